//! What gardener-apiserver does to Seeds.

use gardenlet::format::cidr::Cidr;
use serde_json::{Value, json};

use super::kinds::CORE;
use super::rules::{OPERATION, asks_anew, drop_operation, label_seeds, operation, refuse, refuse_all};
use crate::api::failure::Failure;
use crate::api::rules::{Rules, Write};
use crate::api::store::State;
use crate::json::{default, list, map, text};

/// Seeds.
pub struct Seed;

const RENEWALS: [&str; 3] =
    ["renew-kubeconfig", "renew-garden-access-secrets", "renew-workload-identity-tokens"];

fn seed_defaults(seed: &mut Value) {
    let reservation = json!({"enabled": true, "configs": [{"resources": {"cpu": "2", "memory": "6Gi"}}]});
    default(seed, "/spec/settings/excessCapacityReservation", reservation);
    default(seed, "/spec/settings/scheduling", json!({"visible": true}));
    default(seed, "/spec/settings/verticalPodAutoscaler", json!({"enabled": true}));
    default(seed, "/spec/settings/persistentVolumeClaimAutoscaler", json!({"enabled": false}));
    default(
        seed,
        "/spec/settings/dependencyWatchdog",
        json!({"weeder": {"enabled": true}, "prober": {"enabled": true}}),
    );
    default(seed, "/spec/settings/topologyAwareRouting", json!({"enabled": false}));
    default(seed, "/spec/settings/loadBalancerServices", json!({}));
    default(seed, "/spec/settings/loadBalancerServices/zonalIngress", json!({"enabled": true}));
    default(seed, "/spec/networks/ipFamilies", json!(["IPv4"]));
}

fn seed_labels(seed: &mut Value) {
    let name = text(seed, "/metadata/name").to_owned();
    label_seeds(seed, &[&name]);
    for (label, pointer) in [("provider", "/spec/provider/type"), ("region", "/spec/provider/region")] {
        let value = text(seed, pointer).to_owned();
        map(seed, "/metadata/labels").insert(format!("seed.gardener.cloud/{label}"), value.into());
    }
}

/// Fields that each Seed has.
const REQUIRED: [&str; 6] = [
    "provider/type",
    "provider/region",
    "dns/internal/domain",
    "dns/internal/credentialsRef/name",
    "ingress/domain",
    "ingress/controller/kind",
];

fn wrong_fields(seed: &Value) -> Vec<(String, String)> {
    let mut wrong = wrong_networks(seed);
    let mut add = |field: &str, why: &str| wrong.push((field.to_owned(), why.to_owned()));
    if text(seed, "/spec/dns/provider/type").is_empty() {
        add("spec.dns.provider", "Required value: ingress controller requires dns.provider to be set");
    }
    if seed["spec"]["dns"]["internal"].is_null() {
        add("spec.dns.internal", "Required value: internal DNS configuration is required");
    }
    for field in REQUIRED {
        let is_within_missing =
            field.starts_with("dns/internal") && seed["spec"]["dns"]["internal"].is_null();
        if !is_within_missing && text(seed, &format!("/spec/{field}")).is_empty() {
            add(&format!("spec.{}", field.replace('/', ".")), "Required value");
        }
    }
    let controller = text(seed, "/spec/ingress/controller/kind");
    if !["", "nginx"].contains(&controller) {
        let why = format!("Unsupported value: {controller:?}: supported values: \"nginx\"");
        add("spec.ingress.controller.kind", &why);
    }
    wrong
}

/// Networks that are no networks, or share addresses.
fn wrong_networks(seed: &Value) -> Vec<(String, String)> {
    let of = |field: &str| text(seed, &format!("/spec/networks/{field}"));
    let mut wrong = Vec::new();
    for field in ["pods", "services"] {
        if Cidr::parse(of(field)).is_none() {
            let why = format!("Invalid value: {:?}: invalid CIDR address: {}", of(field), of(field));
            wrong.push((format!("spec.networks.{field}"), why));
        }
    }
    for (field, other) in [("services", "pods"), ("nodes", "pods"), ("nodes", "services")] {
        let ranges = Cidr::parse(of(field)).zip(Cidr::parse(of(other)));
        if ranges.is_some_and(|(one, two)| one.overlaps(two)) {
            let why = format!(
                "Invalid value: {:?}: must not overlap with \"spec.networks.{other}\" ({:?})",
                of(field),
                of(other)
            );
            wrong.push((format!("spec.networks.{field}"), why));
        }
    }
    wrong
}

/// Whether Shoots are on the Seed.
fn is_used(state: &State, seed: &str) -> bool {
    state.of(CORE, "shoots", "").any(|(_, shoot)| {
        ["/spec/seedName", "/status/seedName"].iter().any(|pointer| text(shoot, pointer) == seed)
    })
}

/// Types for which nobody has registered.
fn unregistered(seed: &Value, state: &State) -> Option<String> {
    let is_known = |kind: &str, of: &str| {
        let mut all =
            state.of(CORE, "controllerregistrations", "").flat_map(|(_, r)| list(r, "/spec/resources"));
        all.any(|resource| resource["kind"] == kind && resource["type"] == of)
    };
    let (provider, backup) = (text(seed, "/spec/provider/type"), text(seed, "/spec/backup/provider"));
    let wanted = [
        ("ControlPlane", provider, "provider"),
        ("BackupBucket", backup, "backup provider"),
        ("BackupEntry", backup, "backup provider"),
        ("DNSRecord", text(seed, "/spec/dns/provider/type"), "extension"),
    ];
    let (_, of, what) = wanted.into_iter().find(|(kind, of, _)| !of.is_empty() && !is_known(kind, of))?;
    Some(format!("given Seed uses non-registered {what} type: {of:?}"))
}

/// What does not change while Shoots are on the Seed.
fn check_use(old: &Value, new: &Value, write: &Write<'_>) -> Result<(), Failure> {
    let name = text(new, "/metadata/name");
    let refused = |why: String| Err(Failure::forbidden(CORE, "Seed", name, &why));
    let zones = list(new, "/spec/provider/zones");
    let gone: Vec<&str> = list(old, "/spec/provider/zones")
        .iter()
        .filter(|z| !zones.contains(z))
        .filter_map(Value::as_str)
        .collect();
    let domain = "/spec/dns/internal/domain";
    let is_moved = text(old, domain) != text(new, domain);
    if (gone.is_empty() && !is_moved) || !is_used(write.state, name) {
        return Ok(());
    }
    if !gone.is_empty() {
        let zones = gone.join(" ");
        return refused(format!(
            "cannot remove zones [{zones}] from Seed {name} as there are Shoots scheduled to this Seed"
        ));
    }
    refused(format!("cannot change internal domain as the Seed {name:?} is still in use by shoots"))
}

fn check(seed: &Value, write: &Write<'_>) -> Result<(), Failure> {
    refuse_all(write, seed, &wrong_fields(seed))
}

fn check_registered(seed: &Value, write: &Write<'_>) -> Result<(), Failure> {
    let name = text(seed, "/metadata/name");
    unregistered(seed, write.state).map_or(Ok(()), |why| Err(Failure::forbidden(CORE, "seeds", name, &why)))
}

impl Rules for Seed {
    fn create(&self, object: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        drop_operation(object, &["reconcile"]);
        seed_defaults(object);
        seed_labels(object);
        check(object, write)?;
        check_registered(object, write)
    }

    fn update(&self, old: &Value, new: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        let (before, asked) = (operation(old), operation(new));
        if !before.is_empty() && !asked.is_empty() && before != asked {
            let why = format!("Forbidden: must not overwrite operation {before:?} with {asked:?}");
            return Err(refuse(write, new, &format!("metadata.annotations[{OPERATION}]"), &why));
        }
        drop_operation(new, &["reconcile"]);
        seed_defaults(new);
        seed_labels(new);
        let fixed = [
            "/spec/networks/pods",
            "/spec/networks/services",
            "/spec/networks/nodes",
            "/spec/networks/ipFamilies",
            "/spec/ingress/domain",
            "/status/clusterIdentity",
        ];
        for pointer in fixed {
            let was = old.pointer(pointer).filter(|v| !v.is_null());
            if was.is_some() && was != new.pointer(pointer) {
                let value = new.pointer(pointer).unwrap_or(&Value::Null);
                let why = format!("Invalid value: {value}: field is immutable");
                return Err(refuse(write, new, &pointer.trim_start_matches('/').replace('/', "."), &why));
            }
        }
        check(new, write)?;
        if write.subresource.is_empty() {
            check_use(old, new, write)?;
            if old["spec"] != new["spec"] {
                check_registered(new, write)?;
            }
        }
        Ok(())
    }

    fn operation_bumps(&self, old: &Value, asked: &Value, _write: &Write<'_>) -> bool {
        let bumping: Vec<&str> = RENEWALS.into_iter().chain(["reconcile"]).collect();
        asks_anew(old, asked, &bumping)
    }

    fn holds_back(&self, object: &Value, state: &State) -> Option<String> {
        let name = text(object, "/metadata/name");
        is_used(state, name).then(|| format!("cannot delete seed {name} since it is still used by shoot(s)"))
    }
}
