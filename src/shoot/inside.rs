//! What depends on the view among the things that the cluster of a Shoot gets: `shoot-info`, the rules of readers, and copies of
//! what the Shoot refers to in the garden. The rest is in `components::shoot`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::view::View;
use crate::api::meta::text;
use crate::components::managed::{self, Managed};
use crate::components::references::{self, Referrer};
use crate::components::shoot;
use crate::flow::Failed;
use crate::format::semver::Version;
use crate::kube::request::Request;
use crate::kube::{Client, Error, Garden, Method, Seed};

/// ManagedResource `shoot-core-system`. `extensions` are the types of the Shoot's Extensions.
///
/// # Errors
/// Those of the Shoot's API server, which is asked what it serves.
pub fn system(view: &View, extensions: &[String], shoot: &Client) -> Result<Managed, Failed> {
    let minor = Version::parse(&view.kubernetes_version).map_or(0, |version| version.minor);
    let rules = rules(&served(shoot)?, &view.encrypted);
    Ok(shoot::system(&view.technical_id, &info(view, extensions), minor, &rules))
}

/// Copies what `spec.resources` of the Shoot names into the namespace of its control plane.
///
/// # Errors
/// A reference to nothing; those of both clusters.
pub fn deploy_referenced(garden: &Garden, seed: &Seed, view: &View) -> Result<(), Failed> {
    let (references, from, to) = (&view.resources, &*view.namespace, &*view.technical_id);
    let copies = references::copies(garden, &Referrer { kind: "Shoot", references, from, to })?;
    managed::deploy(seed, &shoot::referenced(&view.technical_id, &copies))?;
    Ok(())
}

/// The entries of `shoot-info`.
fn info(view: &View, extensions: &[String]) -> Value {
    let mut info = json!({
        "extensions": extensions.join(","),
        "kubernetesVersion": view.kubernetes_version,
        "maintenanceBegin": view.maintenance_begin,
        "maintenanceEnd": view.maintenance_end,
        "projectName": view.project,
        "provider": view.provider,
        "region": view.region,
        "serviceNetwork": view.services.first().map_or("", String::as_str),
        "serviceNetworks": view.services.join(","),
        "shootName": view.name,
        "shootNamespace": view.namespace,
        "statusUID": view.status_uid,
        "uid": view.uid,
    });
    if let Some(external) = &view.external {
        info["domain"] = json!(external.domain);
    }
    info
}

/// Resources by API group, as the server lists them.
type Served = BTreeMap<String, Vec<Value>>;

/// What a server serves. A group that does not answer is passed over, as upstream does.
fn served(client: &Client) -> Result<Served, Error> {
    let ask = |path: &str| client.fetch::<Value>(&Request::raw(Method::Get, path, None, ""));
    let groups = ask("/apis")?;
    let mut all = Served::new();
    let mut paths = vec![(String::new(), "/api/v1".to_owned())];
    for group in groups["groups"].as_array().into_iter().flatten() {
        for version in group["versions"].as_array().into_iter().flatten() {
            paths
                .push((text(&group["name"]).to_owned(), format!("/apis/{}", text(&version["groupVersion"]))));
        }
    }
    for (group, path) in paths {
        match ask(&path) {
            Ok(mut list) => {
                let Value::Array(resources) = list["resources"].take() else { continue };
                all.entry(group).or_default().extend(resources);
            }
            Err(error) if error.status_code().is_some() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// Readers see all that can be read, but what is encrypted.
fn rules(served: &Served, encrypted: &[String]) -> Vec<Value> {
    let mut rules = Vec::new();
    for (group, resources) in served {
        let is_encrypted = |name: &str| {
            let own = if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") };
            let any = format!("*.{group}");
            own == "secrets" || encrypted.iter().any(|entry| [&own, &any, "*.*"].contains(&entry.as_str()))
        };
        let mut names: BTreeSet<&str> = BTreeSet::new();
        for resource in resources {
            let name = text(&resource["name"]);
            let mut verbs = resource["verbs"].as_array().into_iter().flatten().map(text);
            if !name.contains('/') && verbs.any(|verb| verb == "get" || verb == "list") && !is_encrypted(name)
            {
                names.insert(name);
            }
        }
        if group.is_empty() && names.contains("pods") {
            names.insert("pods/log");
        }
        if !names.is_empty() {
            rules.push(json!({"apiGroups": [group], "resources": names, "verbs": ["get", "list", "watch"]}));
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::golden;
    use super::*;
    use crate::format::yaml;

    #[test]
    fn the_info_is_that_of_a_go_gardenlet() {
        let text = include_str!("../../tests/fixtures/components/shoot/system.yaml");
        let map = yaml::parse(text.split("\n---\n").next().unwrap()).unwrap();
        assert_eq!(info(&golden("s2"), &[]), map["data"]);
        let s1 = info(&golden("s1"), &["a".to_owned(), "b".to_owned()]);
        assert_eq!((&s1["domain"], &s1["extensions"]), (&json!("s1.p.shoots.lab.local"), &json!("a,b")));
    }

    #[test]
    fn readers_see_what_can_be_read_and_is_not_encrypted() {
        let resource = |name: &str, verbs: &[&str]| json!({"name": name, "verbs": verbs});
        let core =
            ["secrets", "pods", "configmaps", "pods/status"].map(|name| resource(name, &["get", "list"]));
        let mut core = Vec::from(core);
        core.push(resource("bindings", &["create"]));
        let served = Served::from([
            (String::new(), core),
            ("apps".to_owned(), vec![resource("deployments", &["list"]), resource("deployments", &["list"])]),
            ("authentication.k8s.io".to_owned(), vec![resource("tokenreviews", &["create"])]),
            ("b.io".to_owned(), vec![resource("hidden", &["get"])]),
        ]);
        let encrypted = ["configmaps".to_owned(), "*.b.io".to_owned()];
        let verbs = ["get", "list", "watch"];
        assert_eq!(
            rules(&served, &encrypted),
            [
                json!({"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": verbs}),
                json!({"apiGroups": ["apps"], "resources": ["deployments"], "verbs": verbs}),
            ]
        );
    }
}
