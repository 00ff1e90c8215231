//! What the cluster of a Shoot says about itself: the entries of `shoot-info`, and the rules of readers.

use serde_json::Value;

use super::discovery::ask_present;
use super::view::ShootView;
use crate::base::json::json;
use crate::base::sorted::{SortedMap, SortedSet};
use crate::kube::discovery::{ApiGroupList, ApiResourceList};
use crate::kube::{Client, Error};
use crate::limits;

/// The rules of readers for all resources that the API server of a Shoot serves, except `encrypted` ones.
///
/// # Errors
/// A request to the API server of the Shoot fails.
pub(crate) fn rules_of_readers(shoot: &Client, encrypted: &[String]) -> Result<Vec<Value>, Error> {
    Ok(rules(&served(shoot)?, encrypted))
}

/// The entries of `shoot-info`.
pub(crate) fn info(view: &ShootView, extensions: &[String]) -> Value {
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
    if view.has_workers {
        for (one, all, ranges) in
            [("podNetwork", "podNetworks", &view.pods), ("nodeNetwork", "nodeNetworks", &view.nodes)]
        {
            info[one] = json!(ranges.first().map_or("", String::as_str));
            info[all] = json!(ranges.join(","));
        }
        if !view.egress.is_empty() {
            info["egressCIDRs"] = json!(view.egress.join(","));
        }
    }
    info
}

/// The names of readable resources, by API group.
type ServedKinds = SortedMap<String, SortedSet<String>>;

/// The resources that a server serves. A group with a missing or invalid answer is skipped, as in
/// upstream: it may belong to a server of the Shoot's owner. For the same reason there are limits; readers
/// get no permissions beyond them.
fn served(client: &Client) -> Result<ServedKinds, Error> {
    // A group without an answer would close the gate, although the server answers for other groups.
    let client = client.ungated();
    let begun = client.clock().mono();
    let groups: ApiGroupList = ask_present(&client, "/apis")?;
    let mut all = ServedKinds::new();
    add(&mut all, "", ask_present(&client, "/api/v1")?);
    let versions = groups
        .groups
        .iter()
        .flat_map(|group| group.versions.iter().map(|version| (group.name.as_str(), version.name.as_str())));
    for (group, version) in versions.take(limits::DISCOVERY_VERSIONS_MAX) {
        if client.clock().mono().saturating_sub(begun) > limits::SHOOT_DISCOVERY_TIME_MAX {
            break;
        }
        match ask_present(&client, &format!("/apis/{version}")) {
            Ok(list) => add(&mut all, group, list),
            Err(Error::Response { .. }) => {}
            Err(error @ Error::Transport { .. }) if !error.is_cut_off() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// Adds the readable resources.
fn add(all: &mut ServedKinds, group: &str, list: ApiResourceList) {
    let mut left = limits::SHOOT_RESOURCES_MAX.saturating_sub(all.values().map(SortedSet::len).sum());
    for served in list.resources {
        let is_readable = served.has_verb("get") || served.has_verb("list");
        let name = served.name;
        let is_resource = !name.contains('/') && name.len() <= limits::SHOOT_RESOURCE_NAME_BYTES_MAX;
        if left > 0 && is_resource && is_readable && all.entry(group.to_owned()).or_default().insert(name) {
            left -= 1;
        }
    }
}

/// Readers may read all readable resources, except encrypted ones.
fn rules(served: &ServedKinds, encrypted: &[String]) -> Vec<Value> {
    let mut rules = Vec::new();
    for (group, resources) in served {
        let is_encrypted = |name: &str| {
            let own = if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") };
            let any = format!("*.{group}");
            own == "secrets" || encrypted.iter().any(|entry| [&own, &any, "*.*"].contains(&entry.as_str()))
        };
        let mut names: SortedSet<&str> = resources.iter().map(String::as_str).collect();
        names.retain(|name| !is_encrypted(name));
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
    use std::time::Duration;

    use super::super::view::tests::golden;
    use super::*;
    use crate::format::{view, yaml};
    use crate::kube::{Connection, Options};
    use crate::net::testing::{Act, TestServer};

    #[test]
    fn the_info_is_that_of_a_go_gardenlet() {
        let text = include_str!("../../tests/fixtures/components/shoot/system.yaml");
        let map = yaml::parse(text.split("\n---\n").next().unwrap()).unwrap();
        assert_eq!(info(&golden("s2"), &[]), map["data"]);
        let s1 = info(&golden("s1"), &["a".to_owned(), "b".to_owned()]);
        assert_eq!((&s1["domain"], &s1["extensions"]), (&json!("s1.p.shoots.lab.local"), &json!("a,b")));
    }

    fn list(resources: &Value) -> ApiResourceList {
        view::read(json!({"resources": resources})).unwrap()
    }

    #[test]
    fn readers_may_read_resources_that_are_not_encrypted() {
        let resource = |name: &str, verbs: &[&str]| json!({"name": name, "kind": "K", "verbs": verbs});
        let core =
            ["secrets", "pods", "configmaps", "pods/status"].map(|name| resource(name, &["get", "list"]));
        let mut core = Vec::from(core);
        core.push(resource("bindings", &["create"]));
        let groups = [
            ("", core),
            ("apps", vec![resource("deployments", &["list"]), resource("deployments", &["list"])]),
            ("authentication.k8s.io", vec![resource("tokenreviews", &["create"])]),
            ("b.io", vec![resource("hidden", &["get"])]),
        ];
        let mut served = ServedKinds::new();
        for (group, resources) in groups {
            add(&mut served, group, list(&json!(resources)));
        }
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

    #[test]
    fn served_resources_have_limits() {
        let named = |name: String| json!({"name": name, "kind": "K", "verbs": ["list"]});
        let many: Vec<Value> = (0..=limits::SHOOT_RESOURCES_MAX).map(|i| named(format!("r{i}"))).collect();
        let mut served = ServedKinds::new();
        add(&mut served, "long.io", list(&json!([named("x".repeat(64)), named("x".repeat(63))])));
        add(&mut served, "many.io", list(&json!(many)));
        add(&mut served, "late.io", list(&json!([named("y".to_owned())])));
        assert_eq!(served["long.io"].len(), 1);
        assert_eq!(served["many.io"].len(), limits::SHOOT_RESOURCES_MAX - 1);
        assert!(!served.contains_key("late.io"));
    }

    #[test]
    fn a_group_with_an_invalid_answer_is_skipped() {
        let groups = ["a", "silent", "empty", "large", "broken", "b"]
            .map(|group| json!({"name": group, "versions": [{"groupVersion": format!("{group}/v1")}]}));
        let answer = move |path: &str| match path {
            "/apis" => Act::json(200, &json!({"groups": groups}).to_string()),
            "/api/v1" => Act::json(200, r#"{"resources":[{"name":"pods","kind":"Pod","verbs":["get"]}]}"#),
            "/apis/silent/v1" => vec![Act::Silence],
            "/apis/empty/v1" => Act::json(200, r#"{"resources":[{},{}]}"#),
            "/apis/large/v1" => Act::json(200, &" ".repeat(limits::SHOOT_DISCOVERY_BYTES_MAX + 1)),
            "/apis/broken/v1" => Act::json(503, "{}"),
            _ => Act::json(200, r#"{"resources":[{"name":"x","kind":"X","verbs":["list","other"]}]}"#),
        };
        let without = |broken: &'static str| {
            let answer = answer.clone();
            let server = TestServer::plain(move |seen| match seen.path.as_str() {
                path if path == broken => Act::json(503, "{}"),
                path => answer(path),
            });
            let client = Client::new(Connection::new(server.url()), Options::default()).unwrap();
            served(&client.with_deadline(Duration::from_secs(5)))
        };
        let found = without("").unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["", "a", "b"]);
        for path in ["/apis", "/api/v1"] {
            assert!(without(path).unwrap_err().to_string().contains("status 503"), "{path}");
        }
    }
}
