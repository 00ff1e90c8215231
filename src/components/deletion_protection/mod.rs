//! Nobody deletes an object of an extension, or a definition that Gardener protects, without a confirmation: an annotation that Go's
//! `strconv.ParseBool` reads as true. Upstream has a webhook of gardener-resource-manager for it. Here the API server checks it
//! itself, with ValidatingAdmissionPolicies. A deletion of many objects is checked object by object.

use super::archive;
use crate::format::semver::Version;

/// The policies and their bindings, as one text.
pub fn manifests() -> String {
    archive::text("deletion_protection/policies.yaml")
}

/// Whether a server of this version has the kind: since 1.30.
pub fn is_served(version: &str) -> bool {
    Version::parse(version).is_ok_and(|version| (version.major, version.minor) >= (1, 30))
}

#[cfg(test)]
mod tests {
    use crate::base::sorted::SortedSet;

    use serde_json::{Value, json};

    use super::*;
    use crate::api::extensions::SERVED;
    use crate::api::meta::{is_true, text};
    use crate::extension::CONFIRMATION;
    use crate::format::yaml;

    fn objects(kind: &str) -> Vec<Value> {
        let all = manifests();
        let all = all.split("---\n").map(|text| yaml::parse(text).unwrap());
        all.filter(|object| object["kind"] == kind).collect()
    }

    #[test]
    fn every_policy_is_bound() {
        let names = |kind| -> Vec<Value> {
            objects(kind).into_iter().map(|object| object["metadata"]["name"].clone()).collect()
        };
        let bindings = objects("ValidatingAdmissionPolicyBinding");
        let bound: Vec<Value> = bindings.iter().map(|object| object["spec"]["policyName"].clone()).collect();
        assert_eq!(names("ValidatingAdmissionPolicy"), bound);
        assert!(bindings.iter().all(|binding| binding["spec"]["validationActions"] == json!(["Deny"])));
    }

    /// Upstream's webhook lets Bastions pass.
    #[test]
    fn kinds_of_extensions_are_protected_but_bastions() {
        let rules =
            objects("ValidatingAdmissionPolicy")[1]["spec"]["matchConstraints"]["resourceRules"].clone();
        let protected = |group: &str| -> SortedSet<String> {
            let rule = rules.as_array().unwrap().iter().find(|rule| rule["apiGroups"] == json!([group]));
            let resources = rule.unwrap()["resources"].as_array().unwrap();
            resources.iter().map(|resource| text(resource).to_owned()).collect()
        };
        let served = SERVED.iter().map(|kind| kind.plural.to_string()).filter(|plural| plural != "bastions");
        assert_eq!(protected("extensions.gardener.cloud"), served.collect());
        assert_eq!(protected("druid.gardener.cloud"), SortedSet::from(["etcds".to_owned()]));
    }

    #[test]
    fn what_confirms_is_what_the_agent_takes_for_true() {
        for policy in objects("ValidatingAdmissionPolicy") {
            let expression = text(&policy["spec"]["validations"][0]["expression"]).to_owned();
            let words: Vec<&str> = expression.split('\'').skip(1).step_by(2).collect();
            assert_eq!(words[..2], [CONFIRMATION; 2], "{expression}");
            assert_eq!(words[2..], ["1", "t", "T", "true", "TRUE", "True"], "{expression}");
            assert!(words[2..].iter().all(|word| is_true(word)));
        }
    }

    #[test]
    fn which_servers_have_the_kind() {
        let table =
            [("v1.29.9", false), ("v1.30.0", true), ("v1.34.3+k3s1", true), ("v2.0.0", true), ("?", false)];
        for (version, expected) in table {
            assert_eq!(is_served(version), expected, "{version}");
        }
    }
}
