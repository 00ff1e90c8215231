//! Explains why a pod of an etcd has no volume.

use serde_json::Value;

use crate::api::core::{EVENT, PERSISTENT_VOLUME_CLAIM};
use crate::api::meta::{Key, text};
use crate::components::rollout::regarding;
use crate::flow::Failed;
use crate::kube::{Error, ListParams, Seed};
use crate::limits;

/// Why the volumes of a StatefulSet are not bound, if one is not. A wait for its pods calls this while they
/// are not ready. Errors: a request fails.
pub fn look(seed: &Seed, set: &Value) -> Result<Option<Failed>, Error> {
    let namespace = text(&set["metadata"]["namespace"]);
    let mut unbound = Vec::new();
    for name in names(set) {
        let claim: Option<Value> = seed.find(&PERSISTENT_VOLUME_CLAIM, &Key::new(namespace, &name))?;
        unbound.extend(claim.filter(is_unbound));
    }
    let Some(claim) = unbound.first() else { return Ok(None) };
    let metadata = &claim["metadata"];
    let about = regarding(text(&metadata["name"]), text(&metadata["uid"]));
    let params = ListParams {
        field_selector: format!("regarding.kind={},{about}", PERSISTENT_VOLUME_CLAIM.kind),
        limit: limits::ROLLOUT_OBJECTS_MAX,
        ..ListParams::default()
    };
    // Without permission to read events, or without any, the answer contains what is known otherwise.
    let events = seed.list::<Value>(&EVENT, namespace, &params).map(|list| list.items).unwrap_or_default();
    Ok(judge(set, &unbound, &events))
}

/// The names of the claims that a StatefulSet creates.
fn names(set: &Value) -> Vec<String> {
    let spec = &set["spec"];
    let replicas = spec["replicas"].as_u64().unwrap_or(1);
    let templates = spec["volumeClaimTemplates"].as_array().into_iter().flatten();
    let set = text(&set["metadata"]["name"]);
    templates
        .flat_map(|template| {
            let template = text(&template["metadata"]["name"]);
            (0..replicas).map(move |ordinal| format!("{template}-{set}-{ordinal}"))
        })
        .collect()
}

fn is_unbound(claim: &Value) -> bool {
    matches!(text(&claim["status"]["phase"]), "" | "Pending" | "Lost")
}

/// Event reasons of a claim whose StorageClass waits until a node is chosen for the pod. The pod
/// shows the problem then.
const WAITS_FOR_POD: [&str; 2] = ["WaitForFirstConsumer", "WaitForPodScheduled"];

/// The sentence for the first claim of a StatefulSet that has no volume, with its newest Event. `None` if the claim
/// waits for its pod.
pub(crate) fn judge(set: &Value, claims: &[Value], events: &[Value]) -> Option<Failed> {
    let names = names(set);
    let name = |object: &Value| text(&object["metadata"]["name"]).to_owned();
    let claim = claims.iter().find(|claim| is_unbound(claim) && names.contains(&name(claim)))?;
    let of_claim = |event: &&Value| {
        let about = &event["regarding"];
        about["kind"] == PERSISTENT_VOLUME_CLAIM.kind.as_ref() && about["name"] == claim["metadata"]["name"]
    };
    let newest = events.iter().filter(of_claim).max_by_key(|event| when(event));
    if newest.is_some_and(|event| WAITS_FOR_POD.contains(&text(&event["reason"]))) {
        return None;
    }
    let phase = match text(&claim["status"]["phase"]) {
        "" => "Pending",
        phase => phase,
    };
    let class = text(&claim["spec"]["storageClassName"]);
    let remedy = match (phase, class) {
        ("Lost", _) => {
            "its volume is gone: restore the volume, or delete the claim and the pod if the data may be lost".to_owned()
        }
        (_, "") => "it names no StorageClass: mark one of the seed as default, or name one in edge.etcd for new Shoots".to_owned(),
        (_, class) => format!("check that StorageClass {class} exists, and that its provisioner works and has space on a node"),
    };
    let event = newest.map_or_else(
        || "no Event says why".to_owned(),
        |event| text(&event["note"]).trim_end_matches('.').to_owned(),
    );
    Some(Failed::new(format!("PersistentVolumeClaim {} is {phase}: {event}; {remedy}", name(claim))))
}

/// When an Event was last seen. The texts sort by time.
fn when(event: &Value) -> String {
    let times =
        [&event["series"]["lastObservedTime"], &event["deprecatedLastTimestamp"], &event["eventTime"]];
    let known = times.into_iter().map(text).find(|time| !time.is_empty());
    known.unwrap_or_else(|| text(&event["metadata"]["creationTimestamp"])).to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kube::{Client, Connection, Options};
    use crate::net::testing::{Act, TestServer};

    fn claim(name: &str, phase: &str, class: Option<&str>) -> Value {
        json!({"metadata": {"name": name}, "spec": {"storageClassName": class}, "status": {"phase": phase}})
    }

    fn event(name: &str, at: &str, note: &str) -> Value {
        json!({"regarding": {"kind": "PersistentVolumeClaim", "name": name}, "note": note,
            "deprecatedLastTimestamp": at})
    }

    #[test]
    fn an_unbound_claim_is_named_with_its_newest_event_and_a_remedy() {
        let set = json!({"metadata": {"name": "etcd-main"}, "spec": {"replicas": 1,
            "volumeClaimTemplates": [{"metadata": {"name": "main-etcd"}}]}});
        let name = "main-etcd-etcd-main-0";
        let events = [
            event(name, "2026-11-23T10:00:00Z", "waiting for first consumer to be created before binding"),
            event(name, "2026-11-23T10:00:09Z", "storageclass.storage.k8s.io \"fast\" not found."),
            event("other", "2026-11-23T10:00:20Z", "something else"),
        ];
        let table = [
            (claim(name, "Bound", Some("fast")), None),
            (claim("etcd-events-etcd-events-0", "Pending", None), None),
            (
                claim(name, "Pending", Some("fast")),
                Some(
                    "PersistentVolumeClaim main-etcd-etcd-main-0 is Pending: storageclass.storage.k8s.io \"fast\" not found; \
                     check that StorageClass fast exists, and that its provisioner works and has space on a node",
                ),
            ),
            (
                claim(name, "Lost", Some("fast")),
                Some(
                    "PersistentVolumeClaim main-etcd-etcd-main-0 is Lost: storageclass.storage.k8s.io \"fast\" not found; \
                     its volume is gone: restore the volume, or delete the claim and the pod if the data may be lost",
                ),
            ),
        ];
        for (claim, expected) in table {
            let found = judge(&set, &[claim], &events).map(|failed| failed.text);
            assert_eq!(found.as_deref(), expected);
        }
        let silent = judge(&set, &[claim(name, "", None)], &[]).unwrap().text;
        assert_eq!(
            silent,
            "PersistentVolumeClaim main-etcd-etcd-main-0 is Pending: no Event says why; it names no StorageClass: mark \
             one of the seed as default, or name one in edge.etcd for new Shoots"
        );
        let asleep = json!({"metadata": {"name": "etcd-main"}, "spec": {"replicas": 0,
            "volumeClaimTemplates": [{"metadata": {"name": "main-etcd"}}]}});
        assert_eq!(judge(&asleep, &[claim(name, "Pending", None)], &[]), None);
    }

    #[test]
    fn without_events_the_claim_is_still_named() {
        let server = TestServer::plain(|seen| {
            if seen.path.contains("/events?") {
                assert!(seen.path.contains("limit=50"), "{}", seen.path);
                return Act::json(403, "{}");
            }
            Act::json(200, &claim("main-etcd-etcd-main-0", "Pending", Some("fast")).to_string())
        });
        let seed = Seed(Client::new(Connection::new(server.url()), Options::default()).unwrap());
        let set = json!({"metadata": {"name": "etcd-main", "namespace": "n"}, "spec": {"replicas": 1,
            "volumeClaimTemplates": [{"metadata": {"name": "main-etcd"}}]}});
        let why = look(&seed, &set).unwrap().unwrap().text;
        assert!(
            why.starts_with("PersistentVolumeClaim main-etcd-etcd-main-0 is Pending: no Event says why"),
            "{why}"
        );
    }

    #[test]
    fn a_claim_that_waits_for_its_pod_is_not_the_cause() {
        let set = json!({"metadata": {"name": "etcd-main"}, "spec": {"replicas": 1,
            "volumeClaimTemplates": [{"metadata": {"name": "main-etcd"}}]}});
        let name = "main-etcd-etcd-main-0";
        let because = |reason: &str, at: &str| {
            let mut event = event(name, at, "a note");
            event["reason"] = json!(reason);
            event
        };
        let judge = |events: &[Value]| judge(&set, &[claim(name, "Pending", Some("folders"))], events);
        let (first, second) = ("2026-11-23T10:00:00Z", "2026-11-23T10:00:09Z");
        let waits = because("WaitForFirstConsumer", first);
        assert_eq!(judge(std::slice::from_ref(&waits)), None);
        assert_eq!(judge(&[waits.clone(), because("WaitForPodScheduled", second)]), None);
        let provisioned = judge(&[waits, because("ExternalProvisioning", second)]).unwrap();
        assert!(
            provisioned.text.contains("is Pending: a note; check that StorageClass folders"),
            "{}",
            provisioned.text
        );
    }
}
