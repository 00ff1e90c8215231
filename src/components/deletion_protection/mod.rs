//! Protects extension objects and Gardener's protected definitions from deletion without a confirmation: an annotation
//! that Go's `strconv.ParseBool` reads as true. Upstream uses a webhook of gardener-resource-manager. Here the API
//! server itself checks it with ValidatingAdmissionPolicies. It checks each object of a bulk deletion.

use super::archive;
use crate::format::semver::Version;

/// The policies and their bindings, as one YAML text.
pub fn manifests() -> String {
    archive::text("deletion_protection/policies.yaml")
}

/// Whether a server of this version serves the kind: since 1.30.
pub(crate) fn is_served(version: &str) -> bool {
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

    /// Upstream's webhook does not protect Bastions.
    #[test]
    fn extension_kinds_except_bastions_are_protected() {
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
    fn confirmations_are_the_values_that_the_agent_reads_as_true() {
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
