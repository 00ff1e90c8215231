//! Resolves a list of encrypted resources to kinds: `secrets`, `deployments.apps`, `*.apps`, `*.` and `*.*`.

use serde_json::Value;

use crate::api::core::{API_SERVICE, SECRET};
use crate::api::meta::{ALL_NAMESPACES, Resource, text};
use crate::base::sorted::SortedSet;
use crate::flow::Failed;
use crate::kube::discovery::{ApiGroup, ApiGroupList, ApiResourceList};
use crate::kube::{Client, Error, ListItem, ListParams};
use crate::limits;

use super::super::discovery::ask;

/// The kinds that `entries` match, and what could not be determined, with reasons. Errors: the server does
/// not answer at all.
pub(super) fn find(shoot: &Client, entries: &[String]) -> Result<(Vec<Resource>, Vec<String>), Failed> {
    // Every server has Secrets, so no request is needed.
    if entries.iter().all(|entry| entry == "secrets") {
        return Ok((vec![SECRET], Vec::new()));
    }
    // A group without an answer would close the gate, although the server answers for other groups.
    let shoot = shoot.ungated();
    let (mut kinds, mut troubles) = (Vec::new(), Vec::new());
    if entries.iter().any(|entry| concerns(entry, "")) {
        add(&shoot, entries, "", "v1", "/api/v1", &mut kinds, &mut troubles)?;
    }
    let wanted = |group: &ApiGroup| entries.iter().any(|entry| concerns(entry, &group.name));
    if entries.iter().all(|entry| !entry.contains('.') || entry == "*.") {
        return Ok((kinds, troubles));
    }
    let foreign = foreign(&shoot)?;
    let groups: Option<ApiGroupList> = ask(&shoot, "/apis")?;
    let groups = groups.map(|all| all.groups).unwrap_or_default();
    for group in groups.iter().filter(|group| wanted(group)) {
        for version in group.versions.iter().take(limits::DISCOVERY_VERSIONS_MAX) {
            // Objects of another server are not in the Shoot's etcd.
            if !foreign.contains(&format!("{}.{}", version.version, group.name)) {
                let path = format!("/apis/{}", version.name);
                add(&shoot, entries, &group.name, &version.version, &path, &mut kinds, &mut troubles)?;
            }
        }
    }
    Ok((kinds, troubles))
}

/// Adds the kinds of a group's version.
fn add(
    shoot: &Client,
    entries: &[String],
    group: &str,
    version: &str,
    path: &str,
    kinds: &mut Vec<Resource>,
    troubles: &mut Vec<String>,
) -> Result<(), Failed> {
    let list: ApiResourceList = match ask(shoot, path) {
        Ok(list) => list.unwrap_or_default(),
        Err(error) if !is_answer(&error) => return Err(error.into()),
        Err(error) => {
            let why = crate::base::error::chain(&error);
            troubles.push(format!("API group {group} does not say which kinds it has ({why})"));
            return Ok(());
        }
    };
    for served in list.resources {
        let is_writable = served.has_verb("list") && served.has_verb("patch");
        let is_wanted = entries.iter().any(|entry| covers(entry, group, &served.name));
        let is_known = kinds.iter().any(|known| known.group == group && known.plural == *served.name);
        let is_resource = !served.name.contains('/');
        if is_resource && is_writable && is_wanted && !is_known && kinds.len() < limits::SHOOT_RESOURCES_MAX {
            kinds.push(Resource {
                group: group.to_owned().into(),
                version: version.to_owned().into(),
                kind: served.kind.into(),
                plural: served.name.into(),
                namespaced: served.namespaced,
            });
        }
    }
    Ok(())
}

/// Versions of groups that the owner's servers handle, as `v1.example.org`.
fn foreign(shoot: &Client) -> Result<SortedSet<String>, Failed> {
    let (mut all, mut trouble) = (SortedSet::new(), None);
    let mut add = |name: String| {
        if name.len() > limits::SHOOT_NAME_BYTES_MAX || all.len() >= limits::DISCOVERY_VERSIONS_MAX {
            trouble =
                Some("the Shoot has too many APIServices, or one with a name that is too long".to_owned());
        } else {
            all.insert(name);
        }
    };
    let (params, mut unread) = (ListParams::default(), None);
    let mut see = |item: ListItem<Value>| match item {
        ListItem::Object(object) if !object["spec"]["service"].is_null() => {
            add(text(&object["metadata"]["name"]).to_owned());
        }
        ListItem::Undecodable(object) => unread = Some(format!("APIService {}: {}", object.key, object.why)),
        // A name that is found twice is the same one.
        ListItem::Object(_) | ListItem::Restart => {}
    };
    match shoot.list_each(&API_SERVICE, ALL_NAMESPACES, &params, &mut see) {
        Err(error) if !error.is_not_found() => return Err(error.into()),
        _ => {}
    }
    // Without one of them, objects of another server would be written.
    trouble.or(unread).map_or(Ok(all), |why| Err(Failed::new(why)))
}

/// Whether the server answered, although not with what was asked for.
fn is_answer(error: &Error) -> bool {
    error.status_code().is_some() || matches!(error, Error::Response { .. }) || error.is_too_large()
}

fn parts(entry: &str) -> (&str, &str) {
    entry.split_once('.').unwrap_or((entry, ""))
}

fn concerns(entry: &str, group: &str) -> bool {
    let (_, own) = parts(entry);
    own == group || own == "*"
}

fn covers(entry: &str, group: &str, resource: &str) -> bool {
    let (own, _) = parts(entry);
    concerns(entry, group) && (own == resource || own == "*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_an_entry() {
        let table = [
            ("secrets", "", "secrets", true),
            ("secrets", "", "configmaps", false),
            ("secrets", "apps", "secrets", false),
            ("deployments.apps", "apps", "deployments", true),
            ("deployments.apps", "extensions", "deployments", false),
            ("*.apps", "apps", "anything", true),
            ("*.apps", "", "pods", false),
            ("*.", "", "pods", true),
            ("*.", "apps", "deployments", false),
            ("*.*", "", "pods", true),
            ("*.*", "example.org", "things", true),
            ("things.a.example.org", "a.example.org", "things", true),
        ];
        for (entry, group, resource, expected) in table {
            assert_eq!(covers(entry, group, resource), expected, "{entry} {group} {resource}");
        }
    }
}
