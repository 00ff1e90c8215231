use super::*;

const DNS_RECORD: Resource =
    Resource::new("extensions.gardener.cloud", "v1alpha1", "DNSRecord", "dnsrecords", true);
const NOW: Timestamp = Timestamp::from_unix(1_767_225_600);

/// The time until an error ends the wait is upstream's.
#[test]
fn patience_is_upstreams() {
    let of = |group: &'static str, kind: &'static str| {
        let patience = ExtensionPatience::of(&Resource::new(group, "v1", kind, "x", true));
        (patience.interval.as_secs(), patience.looks(), patience.timeout.as_secs())
    };
    let extension = "extensions.gardener.cloud";
    let table = [
        (extension, "Infrastructure", (10, 20, 600)),
        (extension, "Worker", (5, 8, 600)),
        (extension, "BackupEntry", (5, 8, 600)),
        (extension, "ControlPlane", (5, 8, 180)),
        (extension, "Extension", (5, 8, 180)),
        (extension, "DNSRecord", (5, 5, 120)),
        ("core.gardener.cloud", "BackupEntry", (5, 122, 600)),
        ("core.gardener.cloud", "BackupBucket", (5, 122, 600)),
    ];
    for (group, kind, expected) in table {
        assert_eq!(of(group, kind), expected, "{group} {kind}");
    }
}

#[test]
fn the_first_interval_has_three_checks() {
    let pauses = |kind: &'static str| {
        let patience =
            ExtensionPatience::of(&Resource::new("extensions.gardener.cloud", "v1", kind, "x", true));
        (0..5).map(|tries| patience.pause(tries).as_secs()).collect::<Vec<_>>()
    };
    assert_eq!(pauses("Extension"), [1, 2, 2, 5, 5]);
    assert_eq!(pauses("Infrastructure"), [1, 2, 7, 10, 10]);
}

#[test]
fn the_wait_ends_after_its_timeout() {
    let patience = ExtensionPatience::of(&DNS_RECORD);
    let at = |seconds: u64| Attempt {
        begun: Duration::from_secs(10),
        now: Duration::from_secs(seconds),
        tries: 9,
    };
    assert_eq!(patience.again(&at(129), "why".into()), Ok(TaskStep::again(patience.interval, "why")));
    assert_eq!(patience.again(&at(130), "why".into()), Err("why".into()));
}

#[test]
fn a_patch_has_the_differences_and_the_request() {
    let live = json!({"metadata": {"name": "x", "labels": {"theirs": "1"}, "annotations": {OPERATION: "reconcile"}},
        "spec": {"type": "a", "old": 1}, "status": {"state": 1}});
    let mut desired = DesiredExtension::new(json!({"type": "a", "old": 1}));
    assert_eq!(desired.difference(&live, None), None);
    let asked = request(ExtensionOperation::Reconcile, NOW);
    let annotations = json!({OPERATION: "reconcile", TIMESTAMP: "2026-01-01T00:00:00Z"});
    assert_eq!(asked, annotations);
    assert_eq!(
        desired.difference(&live, Some(asked.clone())),
        Some(json!({"metadata": {"annotations": annotations}}))
    );
    desired.labels.insert("ours".to_owned(), json!("2"));
    desired.annotations.insert("note".to_owned(), json!("3"));
    desired.spec = json!({"type": "b"});
    let expected = json!({"metadata": {"labels": {"ours": "2"}, "annotations": {OPERATION: "reconcile",
        TIMESTAMP: "2026-01-01T00:00:00Z", "note": "3"}}, "spec": {"type": "b", "old": null}});
    assert_eq!(desired.difference(&live, Some(asked)), Some(expected));
}

#[test]
fn a_record_is_reconciled_only_for_a_reason() {
    let spec = json!({"type": "lab", "recordType": "A", "values": ["10.0.0.1"]});
    let ready = json!({"metadata": {"generation": 1, "annotations": {TIMESTAMP: "2026-01-01T00:00:00.5Z"}},
        "spec": spec, "status": {"observedGeneration": 1,
            "lastOperation": {"type": "Create", "state": "Succeeded", "lastUpdateTime": "2026-01-01T00:00:00Z"}}});
    let changes = [
        ("", Value::Null, Need::Nothing),
        ("/spec/values", json!(["10.0.0.2"]), Need::Request),
        ("/spec/ttl", json!(60), Need::Request),
        ("/status/lastOperation/state", json!("Processing"), Need::Request),
        ("/status/lastOperation/state", json!("Error"), Need::Request),
        ("/status/lastError", json!({"description": "quota"}), Need::Request),
        ("/metadata/annotations/gardener.cloud~1timestamp", json!("2026-01-01T00:00:01Z"), Need::Request),
        ("/metadata/annotations/gardener.cloud~1timestamp", json!("soon"), Need::Request),
        ("/metadata/annotations/gardener.cloud~1operation", json!("reconcile"), Need::Nothing),
        ("/spec/recordType", json!("CNAME"), Need::Another),
        ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"), Need::Another),
    ];
    for (pointer, value, expected) in changes {
        let mut live = ready.clone();
        if let Some((parent, key)) = pointer.rsplit_once('/') {
            live.pointer_mut(parent).unwrap()[key.replace("~1", "/")] = value.clone();
        }
        assert_eq!(need(&live, &spec, false), expected, "{pointer} {value}");
        let asked = if expected == Need::Nothing { Need::Request } else { expected };
        assert_eq!(need(&live, &spec, true), asked, "{pointer} {value}");
    }
}
