use super::*;
use crate::format::view;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_unix(1_700_000_000 + seconds)
}

fn condition(status: ConditionStatus, reason: &str) -> Condition {
    Condition {
        kind: "Healthy".into(),
        status,
        last_transition_time: at(0),
        last_update_time: at(0),
        reason: reason.into(),
        message: "m".into(),
        codes: Vec::new(),
    }
}

fn finding(reason: &str, message: &str, codes: &[&str]) -> Finding {
    Finding {
        reason: reason.into(),
        message: message.into(),
        codes: codes.iter().map(|&c| c.into()).collect(),
    }
}

#[test]
fn the_wire_form_is_gardeners() {
    let text = r#"{"type":"Healthy","status":"Progressing","lastTransitionTime":"2023-11-14T22:13:20Z",
        "lastUpdateTime":"2023-11-14T22:13:21Z","reason":"R","message":"M","codes":["ERR_INFRA_DEPENDENCIES"]}"#;
    let parsed: Condition = view::parse(text.as_bytes()).unwrap();
    assert_eq!(parsed.status, ConditionStatus::Progressing);
    assert_eq!(parsed.last_transition_time, at(0));
    assert_eq!(serde_json::to_value(&parsed).unwrap(), serde_json::from_str::<Value>(text).unwrap());
}

#[test]
fn odd_input_is_read_and_empty_codes_are_not_written() {
    let odd = json!({"type": "T", "status": "Sideways", "lastTransitionTime": null, "codes": null, "new": 1});
    let parsed: Condition = view::read(odd).unwrap();
    assert_eq!(
        (parsed.status, parsed.last_transition_time),
        (ConditionStatus::Unknown, Timestamp::default())
    );
    assert!(serde_json::to_value(&parsed).unwrap().get("codes").is_none());
    for bad in
        ["yesterday", "2023-11-14", "2023-11-14T22:13:20", "2023-13-14T22:13:20Z", "2023-11-14T22:13:20é"]
    {
        let value = json!({"type": "T", "lastUpdateTime": bad});
        assert!(view::read::<Condition>(value).is_err(), "{bad}");
    }
}

#[test]
fn a_new_condition_is_unknown() {
    let new = find_or_init(&[], "Valid", at(7));
    assert_eq!((new.kind.as_str(), new.status), ("Valid", ConditionStatus::Unknown));
    assert_eq!(new.reason, "ConditionInitialized");
    let text = "The condition has been initialized but its semantic check has not been performed yet.";
    assert_eq!(new.message, text);
    assert_eq!((new.last_transition_time, new.last_update_time), (at(7), at(7)));
}

#[test]
fn times_move_only_with_what_they_stand_for() {
    let old = condition(ConditionStatus::False, "R");
    let table = [
        ("nothing", ConditionStatus::False, finding("R", "m", &[]), 0, 0),
        ("status alone", ConditionStatus::True, finding("R", "m", &[]), 9, 0),
        ("reason", ConditionStatus::False, finding("S", "m", &[]), 0, 9),
        ("message", ConditionStatus::False, finding("R", "n", &[]), 0, 9),
        ("codes", ConditionStatus::False, finding("R", "m", &["ERR"]), 0, 9),
        ("all", ConditionStatus::True, finding("S", "n", &["ERR"]), 9, 9),
    ];
    for (name, status, finding, transition, update) in table {
        let new = old.updated(at(9), status, finding);
        assert_eq!((new.last_transition_time, new.last_update_time), (at(transition), at(update)), "{name}");
    }
}

#[test]
fn empty_texts_get_defaults_and_codes_are_dropped() {
    let mut old = condition(ConditionStatus::False, "R");
    old.codes = vec!["ERR".into()];
    let new = old.updated(at(1), ConditionStatus::False, Finding::default());
    assert_eq!((new.reason.as_str(), new.message.as_str()), ("Unspecified", "No message given."));
    assert!(new.codes.is_empty());
    let unknown = old.unknown(at(1), "boom");
    assert_eq!((unknown.status, unknown.reason.as_str()), (ConditionStatus::Unknown, "ConditionCheckError"));
    assert_eq!(unknown.message, "boom");
}

#[test]
fn a_failing_check_is_tolerated_for_a_while() {
    use ConditionStatus::{False, Progressing, True, Unknown};
    // Threshold in seconds, seconds since the last success, status before, seconds in it, reason changed, result.
    let table = [
        (None, None, True, 0, false, False),
        (None, Some(1), True, 0, false, False),
        (None, None, Progressing, 0, false, False),
        (None, Some(1), False, 0, true, False),
        (None, None, Unknown, 0, false, False),
        (Some(60), None, True, 1_000, false, Progressing),
        (Some(60), None, Progressing, 60, false, Progressing),
        (Some(60), None, Progressing, 61, false, False),
        (Some(60), Some(60), Progressing, 61, false, Progressing),
        (Some(60), Some(61), Progressing, 61, false, False),
        (Some(60), None, False, 1_000, false, False),
        (Some(60), None, False, 1_000, true, Progressing),
        (Some(60), Some(60), False, 1_000, false, Progressing),
        (Some(60), Some(61), False, 1_000, false, False),
        (Some(60), Some(1), Unknown, 0, true, False),
    ];
    for row in table {
        let (threshold, succeeded, before, age, changed, expected) = row;
        let now = at(age);
        let patience = FailurePatience {
            threshold: threshold.map(Duration::from_secs),
            succeeded_at: succeeded.map(|s| now.minus(Duration::from_secs(s))),
            settles: Duration::ZERO,
        };
        let reason = if changed { "New" } else { "Old" };
        let after = condition(before, "Old").failed(now, patience, finding(reason, "m", &[]));
        assert_eq!(after.status, expected, "{row:?}");
        assert_eq!(after.reason, reason);
    }
}

#[test]
fn what_has_just_started_may_settle_without_a_threshold() {
    use ConditionStatus::{False, Progressing, True, Unknown};
    // Threshold and seconds since the success; the status before and after.
    let table = [
        (None, Some(0), Progressing, Progressing),
        (None, Some(60), True, Progressing),
        (None, Some(61), Progressing, False),
        (None, None, Progressing, False),
        (None, Some(1), False, False),
        (None, Some(1), Unknown, False),
        // A threshold wins.
        (Some(5), Some(6), Progressing, False),
    ];
    for row in table {
        let (threshold, succeeded, before, expected) = row;
        let now = at(1_000);
        let patience = FailurePatience {
            threshold: threshold.map(Duration::from_secs),
            succeeded_at: succeeded.map(|s| now.minus(Duration::from_secs(s))),
            settles: Duration::from_secs(60),
        };
        let after = condition(before, "Old").failed(now, patience, finding("Old", "m", &[]));
        assert_eq!(after.status, expected, "{row:?}");
    }
}

#[test]
fn work_on_the_object_makes_everything_but_false_progressing() {
    let after = condition(ConditionStatus::True, "R").reset_to_progressing(at(5));
    assert_eq!((after.status, after.last_update_time), (ConditionStatus::Progressing, at(5)));
    assert_eq!((after.last_transition_time, after.reason.as_str()), (at(0), "R"));
    let failed = condition(ConditionStatus::False, "R");
    assert_eq!(failed.reset_to_progressing(at(5)), failed);
}

#[test]
fn merging_keeps_the_order() {
    let named = |kind: &str, reason: &str| Condition {
        kind: kind.into(),
        ..condition(ConditionStatus::True, reason)
    };
    let mut list = vec![named("B", "1"), named("A", "1")];
    merge(&mut list, vec![named("C", "2"), named("A", "2")]);
    let got: Vec<_> = list.iter().map(|c| (c.kind.as_str(), c.reason.as_str())).collect();
    assert_eq!(got, [("B", "1"), ("A", "2"), ("C", "2")]);
}

#[test]
fn a_strategic_patch_holds_only_what_changes() {
    let mut old = condition(ConditionStatus::True, "R");
    old.codes = vec!["ERR".into()];
    let same = old.clone();
    assert_eq!(status_patch(&[old.clone()], &[same], &["Absent"]), None);
    let new = Condition { codes: Vec::new(), ..old.clone() };
    let other = Condition { kind: "Other".into(), ..condition(ConditionStatus::False, "R") };
    let patch = status_patch(&[old.clone(), other], &[new], &["Other"]).unwrap();
    let times = "2023-11-14T22:13:20Z";
    let expected = json!({"status": {"conditions": [
        {"type": "Healthy", "status": "True", "reason": "R", "message": "m", "codes": null,
            "lastTransitionTime": times, "lastUpdateTime": times},
        {"$patch": "delete", "type": "Other"},
    ]}});
    assert_eq!(patch, expected);
}

#[test]
fn a_merge_patch_repeats_the_conditions_of_others() {
    let foreign = json!({"type": "Foreign", "status": "Odd", "unknownField": 1});
    let live = json!({"metadata": {"resourceVersion": "7"}, "status": {"conditions": [
        foreign, {"type": "Healthy", "status": "True"}, {"type": "Gone", "status": "True"}]}});
    let patch = merge_patch(&live, &[condition(ConditionStatus::False, "R")], &["Gone"]);
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    let list = patch["status"]["conditions"].as_array().unwrap();
    assert_eq!(list.len(), 2);
    assert_eq!(list[0], foreign);
    assert_eq!((&list[1]["type"], &list[1]["status"]), (&json!("Healthy"), &json!("False")));
    assert_eq!(
        merge_patch(&json!({"metadata": {"resourceVersion": "1"}}), &[], &[])["status"]["conditions"],
        json!([])
    );
}
