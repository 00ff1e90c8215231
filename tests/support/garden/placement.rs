//! Whether a Shoot fits on a Seed: the checks that the scheduler and gardener-apiserver share.

use gardenlet::format::cidr::Cidr;
use gardenlet::format::quantity::Quantity;
use serde_json::Value;
#[cfg(test)]
use serde_json::json;

use crate::api::selector::matches_spec;
use crate::json::{list, text};

/// Whether the Shoot tolerates each taint of the Seed.
pub fn is_tolerated(shoot: &Value, seed: &Value) -> bool {
    list(seed, "/spec/taints").iter().all(|taint| {
        list(shoot, "/spec/tolerations")
            .iter()
            .any(|t| t["key"] == taint["key"] && (t["value"].is_null() || t["value"] == taint["value"]))
    })
}

/// The range of the Shoot's Services: its own, or the one that the Seed gives to Shoots without any.
pub fn services<'a>(shoot: &'a Value, seed: &'a Value) -> &'a str {
    match text(shoot, "/spec/networking/services") {
        "" => text(seed, "/spec/networks/shootDefaults/services"),
        own => own,
    }
}

/// A field of the Shoot's networks that shares addresses with the Seed, and with which of its fields.
pub fn overlap(shoot: &Value, seed: &Value) -> Option<(&'static str, &'static str)> {
    let range = |shoot_field: &str| match shoot_field {
        "services" => services(shoot, seed),
        field => text(shoot, &format!("/spec/networking/{field}")),
    };
    ["services", "pods", "nodes"].into_iter().find_map(|own| {
        let own_range = Cidr::parse(range(own))?;
        let meets = |field: &&str| {
            let other = Cidr::parse(text(seed, &format!("/spec/networks/{field}")));
            other.is_some_and(|other| own_range.overlaps(other))
        };
        ["services", "pods", "nodes"].into_iter().find(meets).map(|field| (own, field))
    })
}

/// Whether the Seed has capacity for one more Shoot.
pub fn has_room(seed: &Value, shoots: usize) -> bool {
    match Quantity::parse(text(seed, "/status/allocatable/shoots")) {
        Ok(allocatable) => i128::try_from(shoots).is_ok_and(|n| n < allocatable.whole()),
        Err(_) => true,
    }
}

/// Whether a seedSelector selects the Seed; none selects every Seed.
pub fn is_selected(selector: &Value, seed: &Value) -> bool {
    selector.is_null() || matches_spec(selector, &seed["metadata"]["labels"])
}

/// Whether Seeds of this provider may carry Shoots of the profile.
pub fn suits_provider(shoot: &Value, seed: &Value, profile: &Value) -> bool {
    let seed_type = text(seed, "/spec/provider/type");
    match list(profile, "/seedSelector/providerTypes") {
        [] => seed_type == text(shoot, "/spec/provider/type"),
        types => types.iter().any(|t| t == seed_type || t == "*"),
    }
}

#[test]
fn taints_must_be_tolerated() {
    let seed = json!({"spec": {"taints": [{"key": "a"}, {"key": "b", "value": "1"}]}});
    let table = [
        (json!([]), false),
        (json!([{"key": "a"}]), false),
        (json!([{"key": "a"}, {"key": "b"}]), true),
        (json!([{"key": "a"}, {"key": "b", "value": "1"}]), true),
        (json!([{"key": "a"}, {"key": "b", "value": "2"}]), false),
    ];
    for (tolerations, expected) in table {
        let shoot = json!({"spec": {"tolerations": tolerations}});
        assert_eq!(is_tolerated(&shoot, &seed), expected, "{shoot}");
    }
    assert!(is_tolerated(&json!({}), &json!({})));
}

#[test]
fn networks_must_be_disjoint() {
    let seed = json!({"spec": {"networks": {"nodes": "10.50.0.0/16", "pods": "10.51.0.0/16",
        "services": "10.52.0.0/16", "shootDefaults": {"services": "100.64.0.0/13"}}}});
    let table = [
        (json!({}), None),
        (json!({"services": "100.64.0.0/13"}), None),
        (json!({"services": "10.52.128.0/20"}), Some(("services", "services"))),
        (json!({"services": "10.48.0.0/13"}), Some(("services", "services"))),
        (json!({"services": "10.51.0.0/24"}), Some(("services", "pods"))),
        (json!({"pods": "10.50.1.0/24"}), Some(("pods", "nodes"))),
        (json!({"nodes": "10.49.0.0/16"}), None),
    ];
    for (networking, expected) in table {
        let shoot = json!({"spec": {"networking": networking}});
        assert_eq!(overlap(&shoot, &seed), expected, "{shoot}");
    }
    let meets_itself =
        json!({"spec": {"networks": {"pods": "10.0.0.0/8", "shootDefaults": {"services": "10.1.0.0/16"}}}});
    assert_eq!(overlap(&json!({}), &meets_itself), Some(("services", "pods")));
}

#[test]
fn room_is_what_is_allocatable() {
    let seed = |shoots: Value| json!({"status": {"allocatable": {"shoots": shoots}}});
    let table =
        [(json!("2"), 1, true), (json!("2"), 2, false), (json!("0"), 0, false), (Value::Null, 99, true)];
    for (allocatable, present, expected) in table {
        assert_eq!(has_room(&seed(allocatable.clone()), present), expected, "{allocatable} {present}");
    }
}

#[test]
fn providers_are_equal_or_listed() {
    let of = |kind: &str| json!({"spec": {"provider": {"type": kind}}});
    let listed = json!({"seedSelector": {"providerTypes": ["local", "other"]}});
    let any = json!({"seedSelector": {"providerTypes": ["*"]}});
    let table = [
        ("local", &json!({}), true),
        ("other", &json!({}), false),
        ("other", &listed, true),
        ("third", &listed, false),
        ("third", &any, true),
    ];
    for (seed, profile, expected) in table {
        assert_eq!(suits_provider(&of("local"), &of(seed), profile), expected, "{seed} {profile}");
    }
}
