//! The work of gardener-scheduler: it finds a Seed for each Shoot that names none and binds it, or writes into the Shoot's
//! last operation why no Seed fits.

#[cfg(test)]
mod tests;

use gardenlet::api::gardener::{CLOUD_PROFILE, NAMESPACED_CLOUD_PROFILE, SEED, SHOOT};
use gardenlet::api::meta::{ALL_NAMESPACES, Key};
use serde_json::{Value, json};

use super::manager::Manager;
use super::placement;
use crate::api::failure::Failure;
use crate::api::write::Patch;
use crate::json::{entry, list, text};

/// The scheduler's name in the spec of a Shoot.
const NAME: &str = "default-scheduler";
const EMERGENCY_STOP: &str = "shoot.gardener.cloud/emergency-stop-reconciliations";

/// How one of several Seeds is preferred.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Strategy {
    /// Seeds of the Shoot's provider and region.
    #[default]
    SameRegion,
    /// Seeds whose region has the most similar name to the Shoot's.
    MinimalDistance,
}

/// What the choice depends on besides the Shoot.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub seeds: &'a [Value],
    pub shoots: &'a [Value],
    /// The spec of the Shoot's CloudProfile.
    pub profile: &'a Value,
    pub strategy: Strategy,
}

/// The name of the Seed for a Shoot, or why there is none.
pub fn choose<'a>(shoot: &Value, view: &View<'a>) -> Result<&'a str, String> {
    let judged: Vec<(&Value, Option<String>)> =
        view.seeds.iter().map(|seed| (seed, unfit(shoot, seed, view))).collect();
    let fit: Vec<&Value> = judged.iter().filter(|(_, why)| why.is_none()).map(|(seed, _)| *seed).collect();
    if fit.is_empty() {
        let reasons: Vec<String> = judged
            .iter()
            .map(|(seed, why)| format!("{} => {}", name(seed), why.as_deref().unwrap_or_default()))
            .collect();
        return Err(format!("none of the {} seeds is eligible: {{{}}}", judged.len(), reasons.join(", ")));
    }
    let near = nearest(shoot, fit, view.strategy);
    let least = near.into_iter().min_by_key(|seed| (shoots_on(view.shoots, name(seed)), name(seed)));
    least.map(name).ok_or_else(|| {
        format!(
            "no eligible seed in the region (cloud profile {:?}, region {:?}, strategy {:?})",
            text(shoot, "/spec/cloudProfile/name"),
            text(shoot, "/spec/region"),
            view.strategy
        )
    })
}

fn name(seed: &Value) -> &str {
    text(seed, "/metadata/name")
}

fn shoots_on(shoots: &[Value], seed: &str) -> usize {
    shoots.iter().filter(|s| text(s, "/spec/seedName") == seed).count()
}

fn condition<'a>(seed: &'a Value, kind: &str) -> &'a str {
    let found = list(seed, "/status/conditions").iter().find(|c| c["type"] == kind);
    found.map_or("", |c| text(c, "/status"))
}

/// The first rule that the Seed breaks for the Shoot.
fn unfit(shoot: &Value, seed: &Value, view: &View<'_>) -> Option<String> {
    let fixed = not_usable(seed).or_else(|| not_wanted(shoot, seed, view.profile));
    if let Some(why) = fixed {
        return Some(why.to_owned());
    }
    if let Some((own, other)) = placement::overlap(shoot, seed) {
        return Some(format!("the shoot's {own} network overlaps the seed's {other} network"));
    }
    if !placement::is_tolerated(shoot, seed) {
        return Some("shoot does not tolerate the seed's taints".to_owned());
    }
    if !placement::has_room(seed, shoots_on(view.shoots, name(seed))) {
        return Some("seed does not have available capacity for shoots".to_owned());
    }
    None
}

/// Whether the Seed accepts Shoots at all.
fn not_usable(seed: &Value) -> Option<&'static str> {
    let rules = [
        (!text(seed, "/metadata/deletionTimestamp").is_empty(), "it is being deleted"),
        (seed.pointer("/spec/settings/scheduling/visible") != Some(&json!(true)), "it is not visible"),
        (seed["status"]["lastOperation"].is_null(), "it was never reconciled"),
        (condition(seed, "GardenletReady") != "True", "GardenletReady is not True"),
        (
            !seed["spec"]["backup"].is_null() && condition(seed, "BackupBucketsReady") != "True",
            "BackupBucketsReady is not True",
        ),
        (
            entry(seed, "/metadata/annotations", EMERGENCY_STOP) == Some("true"),
            "its reconciliations are stopped",
        ),
    ];
    rules.into_iter().find(|(applies, _)| *applies).map(|(_, why)| why)
}

/// Whether Shoot and profile allow this Seed.
fn not_wanted(shoot: &Value, seed: &Value, profile: &Value) -> Option<&'static str> {
    let rules = [
        (
            !placement::is_selected(&profile["seedSelector"], seed),
            "the profile's seed selector does not match",
        ),
        (
            !placement::is_selected(&shoot["spec"]["seedSelector"], seed),
            "the shoot's seed selector does not match",
        ),
        (!placement::suits_provider(shoot, seed, profile), "the provider does not match"),
        (!knows_domain(shoot, seed), "nobody manages the shoot's domain there"),
    ];
    rules.into_iter().find(|(applies, _)| *applies).map(|(_, why)| why)
}

/// A Shoot without a domain fits on every Seed, and so does one with DNS providers of its own. Any other domain must be a
/// default domain of the Seed.
fn knows_domain(shoot: &Value, seed: &Value) -> bool {
    let domain = text(shoot, "/spec/dns/domain");
    let managed = !list(shoot, "/spec/dns/providers").is_empty();
    let below = |parent: &str| domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
    domain.is_empty() || managed || list(seed, "/spec/dns/defaults").iter().any(|d| below(text(d, "/domain")))
}

/// Those of the Seeds that the strategy prefers.
fn nearest<'a>(shoot: &Value, seeds: Vec<&'a Value>, strategy: Strategy) -> Vec<&'a Value> {
    let (kind, region) = (text(shoot, "/spec/provider/type"), text(shoot, "/spec/region"));
    let same_kind = |seed: &Value| text(seed, "/spec/provider/type") == kind;
    match strategy {
        Strategy::SameRegion => seeds
            .into_iter()
            .filter(|seed| same_kind(seed) && text(seed, "/spec/provider/region") == region)
            .collect(),
        Strategy::MinimalDistance => {
            let far =
                |seed: &Value| (!same_kind(seed), distance(region, text(seed, "/spec/provider/region")));
            let least = seeds.iter().map(|seed| far(seed)).min();
            seeds.into_iter().filter(|seed| Some(far(seed)) == least).collect()
        }
    }
}

/// The edit distance of two words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Binds what can be bound.
pub fn sync(manager: &Manager, strategy: Strategy) -> Result<(), Failure> {
    let cluster = &manager.cluster;
    let mut shoots = cluster.list(&SHOOT, ALL_NAMESPACES)?;
    let waits = |s: &Value| {
        text(s, "/spec/seedName").is_empty()
            && text(s, "/spec/schedulerName") == NAME
            && text(s, "/metadata/deletionTimestamp").is_empty()
    };
    if !shoots.iter().any(waits) {
        return Ok(());
    }
    let seeds = cluster.list(&SEED, ALL_NAMESPACES)?;
    for index in 0..shoots.len() {
        let shoot = &shoots[index];
        if !waits(shoot) {
            continue;
        }
        let bound =
            profile_of(manager, shoot)?.ok_or("the cloud profile is gone".to_owned()).and_then(|profile| {
                let view = View { seeds: &seeds, shoots: &shoots, profile: &profile, strategy };
                bind(manager, shoot, choose(shoot, &view)?).map_err(|f| f.message)
            });
        match bound {
            Ok(bound) => shoots[index] = bound,
            Err(why) => report(manager, shoot, &why)?,
        }
    }
    Ok(())
}

/// The spec of the profile that a Shoot names.
fn profile_of(manager: &Manager, shoot: &Value) -> Result<Option<Value>, Failure> {
    let name = text(shoot, "/spec/cloudProfile/name");
    if text(shoot, "/spec/cloudProfile/kind") == "NamespacedCloudProfile" {
        let namespace = text(shoot, "/metadata/namespace");
        let found = manager.cluster.get(&NAMESPACED_CLOUD_PROFILE, &Key::new(namespace, name))?;
        return Ok(found.map(|p| p["status"]["cloudProfileSpec"].clone()));
    }
    Ok(manager.cluster.get(&CLOUD_PROFILE, &Key::cluster(name))?.map(|p| p["spec"].clone()))
}

fn bind(manager: &Manager, shoot: &Value, seed: &str) -> Result<Value, Failure> {
    let patch = json!({"metadata": {"resourceVersion": shoot["metadata"]["resourceVersion"]}, "spec": {"seedName": seed}});
    manager.cluster.patch(&SHOOT, &Key::of(shoot), "binding", &Patch::Merge(patch))
}

/// Writes into the last operation why no Seed fits.
fn report(manager: &Manager, shoot: &Value, why: &str) -> Result<(), Failure> {
    let description = format!("Failed to schedule Shoot: {why}");
    if text(shoot, "/status/lastOperation/description") == description {
        return Ok(());
    }
    let operation = json!({"type": "Create", "state": "Pending", "progress": 0, "description": description,
        "lastUpdateTime": manager.now()});
    let patch = Patch::Strategic(json!({"status": {"lastOperation": operation}}));
    manager.cluster.patch(&SHOOT, &Key::of(shoot), "status", &patch).map(drop)
}
