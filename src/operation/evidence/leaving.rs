//! The seed's view of a deletion: what still exists, and what holds it.

use serde_json::Value;

use crate::api::core::{DEPLOYMENT, NAMESPACE};
use crate::api::extensions::{DNS_RECORD, EXTENSION};
use crate::api::meta::{Key, Resource, text};
use crate::api::resources::{MANAGED_RESOURCE, ManagedResource};
use crate::base::error::chain;
use crate::format::duration;
use crate::kube::ListParams;
use crate::limits;
use crate::shoot::cleaner::{self, CleanupStage};

use super::super::kinds::Operation;
use super::{LookResult, Looker, Seen, all, missing, records};

impl Looker<'_> {
    /// What the cluster of the Shoot still contains, if its API server is reachable from here.
    pub(crate) fn inside(&self, stage: CleanupStage) -> LookResult {
        let found = self
            .shoots
            .connect(self.plane())
            .map_err(|error| chain(&error))
            .and_then(|client| cleaner::look(&client, self.shoot, stage).map_err(|error| chain(&error)));
        let mut said = match found {
            Ok(found) => still_there(found),
            Err(why) => vec![format!(
                "what is in the cluster of the Shoot cannot be read from here ({why}); the last error of the task names it, at the \
                 latest ten minutes after the task has begun"
            )],
        };
        said.push(remedy(self.shoot, stage));
        Ok(Seen::Missing(said))
    }

    /// An object in the namespace of the control plane is gone.
    pub(crate) fn is_gone(&self, resource: &Resource, name: &str) -> LookResult {
        let found = self.seed.find::<Value>(resource, &self.key(name))?;
        Ok(found.map_or(Seen::There, |object| missing(held(resource, &object))))
    }

    pub(crate) fn deployment_left(&self, name: &str) -> LookResult {
        self.is_gone(&DEPLOYMENT, name)
    }

    /// The extension object with the name of the Shoot is gone.
    pub(crate) fn object_left(&self, resource: &Resource) -> LookResult {
        self.is_gone(resource, text(&self.shoot["metadata"]["name"]))
    }

    pub(crate) fn record_left(&self, role: &str) -> LookResult {
        self.is_gone(&DNS_RECORD, &self.target(role).key.name)
    }

    pub(crate) fn records_left(&self) -> LookResult {
        Ok(all(vec![self.record_left(records::EXTERNAL)?, self.record_left(records::INTERNAL)?]))
    }

    pub(crate) fn extensions_left(&self) -> LookResult {
        let mut left = Vec::new();
        self.seed.list_all::<Value>(&EXTENSION, self.plane(), &ListParams::default(), &mut |object| {
            left.push(held(&EXTENSION, &object));
        })?;
        Ok(few(left))
    }

    pub(crate) fn managed_left(&self) -> LookResult {
        let mut left = Vec::new();
        let params = ListParams::default();
        // A forced deletion removes all of them.
        let is_forced = self.operation == Operation::ForceDelete;
        self.seed.list_all::<ManagedResource>(&MANAGED_RESOURCE, self.plane(), &params, &mut |managed| {
            if is_forced || managed.spec.class.is_empty() {
                let applied =
                    managed.status.conditions.iter().find(|condition| condition.kind == "ResourcesApplied");
                let why = applied.map_or("no applier has reported", |condition| &condition.message);
                left.push(format!("ManagedResource {}: {why}", managed.metadata.key()));
            }
        })?;
        Ok(few(left))
    }

    pub(crate) fn namespace_left(&self) -> LookResult {
        let Some(found) = self.seed.find::<Value>(&NAMESPACE, &Key::cluster(self.plane()))? else {
            return Ok(Seen::There);
        };
        let conditions = found["status"]["conditions"].as_array().into_iter().flatten();
        let holds = conditions.filter(|condition| condition["status"] == "True");
        let mut why: Vec<String> = holds.map(|condition| text(&condition["message"]).to_owned()).collect();
        why.insert(0, held(&NAMESPACE, &found));
        Ok(Seen::Missing(why))
    }
}

fn still_there(found: Vec<String>) -> Vec<String> {
    match few(found) {
        Seen::Missing(names) => {
            vec![format!("the cluster of the Shoot still contains {}", names.join(", "))]
        }
        _ => vec!["nothing of it is left in the cluster of the Shoot".to_owned()],
    }
}

fn remedy(shoot: &Value, stage: CleanupStage) -> String {
    let name = stage.annotation();
    match cleaner::finalized_after(shoot, stage) {
        Ok(time) => format!(
            "finalizers of an object are removed {} after its deletion began: annotate the Shoot with {name} to shorten this time",
            duration::format(time)
        ),
        Err(why) => why,
    }
}

fn held(resource: &Resource, object: &Value) -> String {
    let (metadata, key) = (&object["metadata"], Key::of(object));
    let finalizers: Vec<&str> = metadata["finalizers"].as_array().into_iter().flatten().map(text).collect();
    let is_deleting = metadata["deletionTimestamp"].is_string();
    let what = format!("{} {key}", resource.kind);
    match (is_deleting, finalizers.as_slice()) {
        (false, _) => format!("{what} exists, and its deletion was not requested"),
        (true, []) => format!("{what} is being deleted"),
        (true, all) => {
            format!("{what} is being deleted, and waits for the removal of finalizers {}", all.join(", "))
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

    #[test]
    fn a_stuck_object_says_who_holds_it() {
        let object = |metadata: Value| json!({"metadata": metadata});
        let table = [
            (
                json!({"name": "a", "namespace": "n"}),
                "Extension n/a exists, and its deletion was not requested",
            ),
            (json!({"name": "a", "deletionTimestamp": "x"}), "Extension a is being deleted"),
            (
                json!({"name": "a", "deletionTimestamp": "x", "finalizers": ["f", "g"]}),
                "Extension a is being deleted, and waits for the removal of finalizers f, g",
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
        let name = CleanupStage::Apis.annotation();
        assert!(remedy(&json!({}), CleanupStage::Apis).contains("1h0m0s"));
        assert!(remedy(&json!({}), CleanupStage::Webhooks).contains("5m0s"));
        let annotated =
            |value: &str| remedy(&json!({"metadata": {"annotations": {name: value}}}), CleanupStage::Apis);
        let short = annotated("20");
        assert!(short.contains("removed 20s after") && short.contains(name), "{short}");
        // A Shoot can only shorten this time, and only with a number.
        assert!(annotated("9999").contains("1h0m0s"));
        assert!(annotated("1h").contains("set it to a number of seconds"));
    }

    #[test]
    fn what_is_in_the_cluster_is_named() {
        let named = still_there(vec!["Service default/held (finalizers x)".to_owned()]);
        assert_eq!(named, ["the cluster of the Shoot still contains Service default/held (finalizers x)"]);
        assert!(still_there(Vec::new())[0].starts_with("nothing"));
    }
}
