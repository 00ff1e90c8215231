//! What the seed shows of a deletion: what is still there, and who holds it.

use std::time::Duration;

use serde_json::Value;

use crate::api::core::{DEPLOYMENT, NAMESPACE};
use crate::api::extensions::{DNS_RECORD, EXTENSION};
use crate::api::meta::{Key, Resource, annotation, text};
use crate::api::resources::{MANAGED_RESOURCE, ManagedResource};
use crate::components::kube_apiserver;
use crate::format::duration;
use crate::kube::ListParams;
use crate::limits;
use crate::shoot::cleaner::Stage;

use super::looks::{Found, Looker, Seen, missing};

impl Looker<'_> {
    /// A task of a deletion; none if it is another one.
    pub(super) fn leaving(&self, task: &str) -> Option<Found> {
        let stage = match task {
            "Cleaning up webhooks" => Some(Stage::Webhooks),
            "Cleaning extended API groups" => Some(Stage::Apis),
            "Cleaning Kubernetes resources" => Some(Stage::Resources),
            _ => None,
        };
        if let Some(stage) = stage {
            return Some(Ok(Seen::Missing(inside(self.shoot, stage))));
        }
        Some(match task {
            "Waiting until managed resources have been deleted"
            | "Waiting until shoot managed resources have been deleted" => self.managed_left(),
            "Waiting until Kubernetes API server has been deleted" => {
                self.is_gone(&DEPLOYMENT, self.plane(), kube_apiserver::NAME)
            }
            "Waiting until extension resources that should be handled before kube-apiserver have been deleted"
            | "Waiting until all stale extension resources have been deleted"
            | "Waiting until extension resources that should be handled after kube-apiserver have been deleted"
            | "Waiting until all extension resources have been deleted"
            | "Waiting until extension resources have been deleted" => self.extensions_left(),
            "Destroying external domain DNS record" => self.record_left("external"),
            "Destroying internal domain DNS record" => self.record_left("internal"),
            "Waiting until shoot namespace in Seed has been deleted"
            | "Waiting until shoot namespace has been deleted" => self.namespace_left(),
            _ => return None,
        })
    }

    fn is_gone(&self, resource: &Resource, namespace: &str, name: &str) -> Found {
        let found = self.seed.find::<Value>(resource, namespace, name)?;
        Ok(found.map_or(Seen::There, |object| missing(held(resource, &object))))
    }

    fn record_left(&self, role: &str) -> Found {
        let name = format!("{}-{role}", text(&self.shoot["metadata"]["name"]));
        self.is_gone(&DNS_RECORD, self.plane(), &name)
    }

    fn extensions_left(&self) -> Found {
        let mut left = Vec::new();
        self.seed.list_all::<Value>(&EXTENSION, self.plane(), &ListParams::default(), &mut |object| {
            left.push(held(&EXTENSION, &object));
        })?;
        Ok(few(left))
    }

    fn managed_left(&self) -> Found {
        let mut left = Vec::new();
        let params = ListParams::default();
        self.seed.list_all::<ManagedResource>(&MANAGED_RESOURCE, self.plane(), &params, &mut |managed| {
            if managed.spec.class.is_empty() {
                let applied =
                    managed.status.conditions.iter().find(|condition| condition.kind == "ResourcesApplied");
                let why = applied.map_or("no applier has reported", |condition| &condition.message);
                left.push(format!("ManagedResource {}: {why}", managed.metadata.key()));
            }
        })?;
        Ok(few(left))
    }

    fn namespace_left(&self) -> Found {
        let Some(found) = self.seed.find::<Value>(&NAMESPACE, "", self.plane())? else {
            return Ok(Seen::There);
        };
        let conditions = found["status"]["conditions"].as_array().into_iter().flatten();
        let holds = conditions.filter(|condition| condition["status"] == "True");
        let mut why: Vec<String> = holds.map(|condition| text(&condition["message"]).to_owned()).collect();
        why.insert(0, held(&NAMESPACE, &found));
        Ok(Seen::Missing(why))
    }
}

/// The agent alone has looked into the cluster.
fn inside(shoot: &Value, stage: Stage) -> Vec<String> {
    let name = stage.annotation();
    let time = match annotation(shoot, name) {
        "" if stage == Stage::Apis => duration::format(Duration::from_secs(3_600)),
        "" => duration::format(Duration::from_secs(300)),
        seconds => format!("{seconds} s"),
    };
    vec![
        "objects are still in the cluster of the Shoot; the last error names them, at the latest ten minutes after the task has begun"
            .to_owned(),
        format!(
            "finalizers of an object are removed {time} after its deletion began: annotate the Shoot with {name} to make that shorter"
        ),
    ]
}

fn held(resource: &Resource, object: &Value) -> String {
    let metadata = &object["metadata"];
    let key = Key::new(text(&metadata["namespace"]), text(&metadata["name"]));
    let finalizers: Vec<&str> = metadata["finalizers"].as_array().into_iter().flatten().map(text).collect();
    let is_deleting = metadata["deletionTimestamp"].is_string();
    let what = format!("{} {key}", resource.kind);
    match (is_deleting, finalizers.as_slice()) {
        (false, _) => format!("{what} is there, and nobody has deleted it"),
        (true, []) => format!("{what} is being deleted"),
        (true, all) => {
            format!("{what} is being deleted, and waits for whoever removes finalizers {}", all.join(", "))
        }
    }
}

fn few(mut left: Vec<String>) -> Seen {
    if left.is_empty() {
        return Seen::There;
    }
    let more = left.len().saturating_sub(limits::CLEANUP_NAMES_MAX);
    left.truncate(limits::CLEANUP_NAMES_MAX);
    if more > 0 {
        left.push(format!("and {more} more"));
    }
    Seen::Missing(left)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::controllers::shoot::look;

    #[test]
    fn a_stuck_object_says_who_holds_it() {
        let object = |metadata: Value| json!({"metadata": metadata});
        let table = [
            (json!({"name": "a", "namespace": "n"}), "Extension n/a is there, and nobody has deleted it"),
            (json!({"name": "a", "deletionTimestamp": "x"}), "Extension a is being deleted"),
            (
                json!({"name": "a", "deletionTimestamp": "x", "finalizers": ["f", "g"]}),
                "Extension a is being deleted, and waits for whoever removes finalizers f, g",
            ),
        ];
        for (metadata, expected) in table {
            assert_eq!(held(&EXTENSION, &object(metadata)), expected);
        }
        let many = few((0..=limits::CLEANUP_NAMES_MAX).map(|index| index.to_string()).collect());
        let Seen::Missing(many) = many else { panic!("{many:?}") };
        assert_eq!(many.last().unwrap(), "and 1 more");
        assert_eq!(few(Vec::new()), Seen::There);
    }

    #[test]
    fn the_time_until_finalizers_go_is_told() {
        let name = Stage::Apis.annotation();
        assert!(inside(&json!({}), Stage::Apis)[1].contains("1h0m0s"));
        assert!(inside(&json!({}), Stage::Webhooks)[1].contains("5m0s"));
        let short = json!({"metadata": {"annotations": {name: "20"}}});
        let told = inside(&short, Stage::Apis);
        assert!(told[1].contains("removed 20 s after") && told[1].contains(name), "{told:?}");
    }

    /// The tasks that have a look are tasks of a deletion.
    #[test]
    fn looks_name_tasks() {
        let mut names: Vec<String> = Vec::new();
        for annotations in [json!({}), json!({"confirmation.gardener.cloud/force-deletion": "true"})] {
            let shoot = json!({"metadata": {"deletionTimestamp": "x", "annotations": annotations},
                "status": {"lastOperation": {"type": "Delete"}}});
            names.extend(look::outline(&shoot).into_iter().map(|task| task.name));
        }
        let source = include_str!("leaving.rs").split("#[cfg(test)]").next().unwrap();
        let arms = source.lines().map(|line| line.trim().trim_start_matches("| "));
        let looked = arms.filter_map(|line| line.strip_prefix('"')?.split_once('"')).map(|(name, _)| name);
        let looked: Vec<&str> = looked
            .filter(|name| ["Cleaning", "Waiting", "Destroying"].iter().any(|word| name.starts_with(word)))
            .collect();
        assert_eq!(looked.len(), 15, "{looked:?}");
        let unknown: Vec<&&str> =
            looked.iter().filter(|name| !names.iter().any(|known| known == *name)).collect();
        assert_eq!(unknown, [&""; 0]);
    }
}
