//! Every rule of the choice.

use serde_json::{Value, json};

use super::{Strategy, View, choose, distance};
use crate::json::{remove, set};

/// A Seed that takes the Shoot of [`shoot`].
fn seed(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"site": "north"}},
        "spec": {"provider": {"type": "local", "region": "north"}, "settings": {"scheduling": {"visible": true}},
            "networks": {"nodes": "10.50.0.0/16", "pods": "10.51.0.0/16", "services": "10.52.0.0/16",
                "shootDefaults": {"services": "100.64.0.0/13"}}},
        "status": {"lastOperation": {"state": "Succeeded"}, "allocatable": {"shoots": "2"},
            "conditions": [{"type": "GardenletReady", "status": "True"}]}})
}

fn shoot() -> Value {
    json!({"metadata": {"name": "s1", "namespace": "garden-p"},
        "spec": {"cloudProfile": {"kind": "CloudProfile", "name": "lab"}, "region": "north",
            "provider": {"type": "local"}}})
}

fn on(seed: &str) -> Value {
    json!({"spec": {"seedName": seed}})
}

fn choice(shoot: &Value, seeds: &[Value], shoots: &[Value], strategy: Strategy) -> Result<String, String> {
    let profile = json!({"type": "local"});
    choose(shoot, &View { seeds, shoots, profile: &profile, strategy }).map(str::to_owned)
}

#[test]
fn a_seed_must_pass_each_rule() {
    let ready = |status: &str| json!([{"type": "GardenletReady", "status": status}]);
    let buckets = |status: &str| json!([{"type": "GardenletReady", "status": "True"}, {"type": "BackupBucketsReady", "status": status}]);
    type Change = (&'static str, Value);
    let table: Vec<(Vec<Change>, Vec<Change>, Option<&str>)> = vec![
        (vec![], vec![], None),
        (
            vec![("/metadata/deletionTimestamp", json!("2026-11-22T13:00:00Z"))],
            vec![],
            Some("it is being deleted"),
        ),
        (vec![("/spec/settings/scheduling/visible", json!(false))], vec![], Some("it is not visible")),
        (vec![("/status/lastOperation", Value::Null)], vec![], Some("it was never reconciled")),
        (vec![("/status/conditions", json!([]))], vec![], Some("GardenletReady is not True")),
        (vec![("/status/conditions", ready("False"))], vec![], Some("GardenletReady is not True")),
        (vec![("/status/conditions", ready("Unknown"))], vec![], Some("GardenletReady is not True")),
        (
            vec![("/spec/backup", json!({"provider": "local"}))],
            vec![],
            Some("BackupBucketsReady is not True"),
        ),
        (
            vec![("/spec/backup", json!({"provider": "local"})), ("/status/conditions", buckets("False"))],
            vec![],
            Some("BackupBucketsReady is not True"),
        ),
        (
            vec![("/spec/backup", json!({"provider": "local"})), ("/status/conditions", buckets("True"))],
            vec![],
            None,
        ),
        (
            vec![(
                "/metadata/annotations",
                json!({"shoot.gardener.cloud/emergency-stop-reconciliations": "true"}),
            )],
            vec![],
            Some("its reconciliations are stopped"),
        ),
        (vec![], vec![("/spec/seedSelector", json!({"matchLabels": {"site": "north"}}))], None),
        (
            vec![],
            vec![("/spec/seedSelector", json!({"matchLabels": {"site": "south"}}))],
            Some("the shoot's seed selector does not match"),
        ),
        (vec![("/spec/provider/type", json!("other"))], vec![], Some("the provider does not match")),
        (
            vec![],
            vec![("/spec/dns", json!({"domain": "s1.p.shoots.example.org"}))],
            Some("nobody manages the shoot's domain there"),
        ),
        (
            vec![("/spec/dns", json!({"defaults": [{"domain": "shoots.example.org"}]}))],
            vec![("/spec/dns", json!({"domain": "s1.p.shoots.example.org"}))],
            None,
        ),
        (
            vec![("/spec/dns", json!({"defaults": [{"domain": "shoots.example.org"}]}))],
            vec![("/spec/dns", json!({"domain": "s1.p.othershoots.example.org"}))],
            Some("nobody manages the shoot's domain there"),
        ),
        (
            vec![],
            vec![(
                "/spec/dns",
                json!({"domain": "s1.example.org", "providers": [{"type": "local", "primary": true}]}),
            )],
            None,
        ),
        (
            vec![],
            vec![("/spec/networking", json!({"services": "10.51.0.0/24"}))],
            Some("the shoot's services network overlaps the seed's pods network"),
        ),
        (
            vec![("/spec/taints", json!([{"key": "t"}]))],
            vec![],
            Some("shoot does not tolerate the seed's taints"),
        ),
        (
            vec![("/spec/taints", json!([{"key": "t"}]))],
            vec![("/spec/tolerations", json!([{"key": "t"}]))],
            None,
        ),
        (
            vec![("/status/allocatable/shoots", json!("0"))],
            vec![],
            Some("seed does not have available capacity for shoots"),
        ),
        (vec![("/status/allocatable", Value::Null)], vec![], None),
    ];
    for (of_seed, of_shoot, expected) in table {
        let (mut seed, mut shoot) = (seed("a"), shoot());
        of_seed.iter().for_each(|(at, value)| set(&mut seed, at, value.clone()));
        of_shoot.iter().for_each(|(at, value)| set(&mut shoot, at, value.clone()));
        let expected = match expected {
            None => Ok("a".to_owned()),
            Some(why) => Err(format!("none of the 1 seeds is eligible: {{a => {why}}}")),
        };
        let found = choice(&shoot, std::slice::from_ref(&seed), &[], Strategy::SameRegion);
        assert_eq!(found, expected, "{of_seed:?} {of_shoot:?}");
    }
}

#[test]
fn a_profile_narrows_the_seeds() {
    let seeds = [seed("a")];
    let with = |profile: &Value| {
        choose(&shoot(), &View { seeds: &seeds, shoots: &[], profile, strategy: Strategy::SameRegion })
            .map(str::to_owned)
    };
    let selector = |site: &str| json!({"seedSelector": {"matchLabels": {"site": site}}});
    assert_eq!(with(&selector("north")), Ok("a".to_owned()));
    let why = "none of the 1 seeds is eligible: {a => the profile's seed selector does not match}";
    assert_eq!(with(&selector("south")), Err(why.to_owned()));
    let types = json!({"seedSelector": {"providerTypes": ["other"]}});
    let why = "none of the 1 seeds is eligible: {a => the provider does not match}";
    assert_eq!(with(&types), Err(why.to_owned()));
}

#[test]
fn all_reasons_are_named() {
    let (mut a, mut b) = (seed("a"), seed("b"));
    remove(&mut a, "/status/lastOperation");
    set(&mut b, "/spec/taints", json!([{"key": "t"}]));
    let why = "none of the 2 seeds is eligible: {a => it was never reconciled, b => shoot does not tolerate the seed's taints}";
    assert_eq!(choice(&shoot(), &[a, b], &[], Strategy::SameRegion), Err(why.to_owned()));
    let none = choice(&shoot(), &[], &[], Strategy::SameRegion);
    assert_eq!(none, Err("none of the 0 seeds is eligible: {}".to_owned()));
}

#[test]
fn the_seed_with_the_fewest_shoots_is_taken() {
    let seeds = [seed("a"), seed("b"), seed("c")];
    let mut full = seeds.clone();
    set(&mut full[0], "/status/allocatable/shoots", "1");
    let table = [
        (&seeds, vec![], "a"),
        (&seeds, vec![on("a")], "b"),
        (&seeds, vec![on("b"), on("a")], "c"),
        (&seeds, vec![on("c"), on("b"), on("a")], "a"),
        (&full, vec![on("c"), on("b"), on("a")], "b"),
    ];
    for (seeds, shoots, expected) in table {
        assert_eq!(
            choice(&shoot(), seeds, &shoots, Strategy::SameRegion).as_deref(),
            Ok(expected),
            "{shoots:?}"
        );
    }
}

#[test]
fn the_strategy_decides_about_regions() {
    let in_region = |name: &str, region: &str| {
        let mut seed = seed(name);
        set(&mut seed, "/spec/provider/region", region);
        seed
    };
    let far = [in_region("a", "south"), in_region("b", "northern"), in_region("c", "west")];
    let why = "no eligible seed in the region (cloud profile \"lab\", region \"north\", strategy SameRegion)";
    assert_eq!(choice(&shoot(), &far, &[], Strategy::SameRegion), Err(why.to_owned()));
    assert_eq!(choice(&shoot(), &far, &[on("b")], Strategy::MinimalDistance).as_deref(), Ok("a"));
    let near = [in_region("a", "south"), in_region("b", "north")];
    for strategy in [Strategy::SameRegion, Strategy::MinimalDistance] {
        assert_eq!(choice(&shoot(), &near, &[on("b")], strategy).as_deref(), Ok("b"));
    }
}

#[test]
fn distances_count_letters() {
    for (a, b, expected) in
        [("", "", 0), ("a", "", 1), ("north", "south", 2), ("north", "northern", 3), ("abc", "ca", 3)]
    {
        assert_eq!(distance(a, b), expected, "{a} {b}");
        assert_eq!(distance(b, a), expected, "{b} {a}");
    }
}
