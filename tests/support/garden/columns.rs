//! The columns that gardener-apiserver shows of its kinds.

use serde_json::Value;

use crate::api::table::{AGE, Cell, Column, NAME, condition};
use crate::json::{entry, list, text};

const fn column(name: &'static str, cell: Cell) -> Column {
    Column::new(name, cell)
}

const fn wide(name: &'static str, cell: Cell) -> Column {
    Column::wide(name, cell)
}

const OPERATION: Column = column("Last Operation", Cell::Made(operation));
const STATE: Column = column("Operation", Cell::At("/status/lastOperation/state", "<pending>"));
const PROGRESS: Column = column("Progress", Cell::At("/status/lastOperation/progress", "0"));
const PROVIDER: Column = column("Provider", Cell::At("/spec/provider/type", ""));

/// The columns of a kind; none for those of other API servers.
pub fn of(kind: &str) -> &'static [Column] {
    match kind {
        "Seed" => SEED,
        "Shoot" => SHOOT,
        "ControllerInstallation" => INSTALLATION,
        "ControllerRegistration" => const { &[NAME, column("Resources", Cell::Made(resources)), AGE] },
        "BackupBucket" => {
            const { &[NAME, PROVIDER, column("Seed", Cell::At("/spec/seedName", "")), STATE, PROGRESS, AGE] }
        }
        "BackupEntry" => {
            const {
                &[
                    NAME,
                    column("Bucket", Cell::At("/spec/bucketName", "")),
                    column("Seed", Cell::At("/spec/seedName", "")),
                    STATE,
                    PROGRESS,
                    AGE,
                ]
            }
        }
        "CloudProfile" => const { &[NAME, column("Provider", Cell::At("/spec/type", "")), AGE] },
        "NamespacedCloudProfile" => {
            const {
                &[
                    NAME,
                    column("Parent Name", Cell::At("/spec/parent/name", "")),
                    column("Parent Kind", Cell::At("/spec/parent/kind", "")),
                    AGE,
                ]
            }
        }
        "ControllerDeployment" => const { &[NAME, AGE] },
        "ExposureClass" => const { &[NAME, column("Handler", Cell::At("/handler", "")), AGE] },
        "InternalSecret" => {
            const { &[NAME, column("Type", Cell::At("/type", "")), column("Data", Cell::Count(&["/data"])), AGE] }
        }
        "Project" => {
            const {
                &[
                    NAME,
                    column("Namespace", Cell::At("/spec/namespace", "<unknown>")),
                    column("Status", Cell::At("/status/phase", "<unknown>")),
                    column("Owner", Cell::At("/spec/owner/name", "<unknown>")),
                    column("Creator", Cell::At("/spec/createdBy/name", "<unknown>")),
                    AGE,
                ]
            }
        }
        _ => others(kind),
    }
}

const SEED: &[Column] = &[
    NAME,
    column("Status", Cell::Made(seed_status)),
    OPERATION,
    PROVIDER,
    column("Region", Cell::At("/spec/provider/region", "")),
    AGE,
    column("Version", Cell::At("/status/gardener/version", "<unknown>")),
    column("K8S Version", Cell::At("/status/kubernetesVersion", "<unknown>")),
];

const SHOOT: &[Column] = &[
    NAME,
    column("CloudProfile", Cell::Made(profile)),
    PROVIDER,
    column("Region", Cell::At("/spec/region", "")),
    wide("Seed", Cell::At("/spec/seedName", "<none>")),
    column("K8S Version", Cell::At("/spec/kubernetes/version", "")),
    column("Hibernation", Cell::Made(hibernation)),
    OPERATION,
    column("Status", Cell::Made(shoot_status)),
    wide("Purpose", Cell::At("/spec/purpose", "<none>")),
    wide("Gardener Version", Cell::At("/status/gardener/version", "<unknown>")),
    wide("APIServer", Cell::Condition("APIServerAvailable")),
    wide("Control", Cell::Condition("ControlPlaneHealthy")),
    wide("Observability", Cell::Condition("ObservabilityComponentsHealthy")),
    wide("Nodes", Cell::Condition("EveryNodeReady")),
    wide("System", Cell::Condition("SystemComponentsHealthy")),
    AGE,
];

const INSTALLATION: &[Column] = &[
    NAME,
    column("Registration", Cell::At("/spec/registrationRef/name", "")),
    column("Cluster", Cell::Made(cluster)),
    column("Valid", Cell::Condition("Valid")),
    column("Installed", Cell::Condition("Installed")),
    column("Healthy", Cell::Condition("Healthy")),
    column("Progressing", Cell::Condition("Progressing")),
    AGE,
];

fn others(kind: &str) -> &'static [Column] {
    match kind {
        "Quota" => {
            const {
                &[
                    NAME,
                    column(
                        "Scope",
                        Cell::Made(|quota| {
                            format!(
                                "{}.{}",
                                text(quota, "/spec/scope/apiVersion"),
                                text(quota, "/spec/scope/kind")
                            )
                        }),
                    ),
                    column(
                        "Cluster Lifetime",
                        Cell::Made(|quota| match quota["spec"]["clusterLifetimeDays"].as_i64() {
                            Some(days) => format!("{days} days"),
                            None => "<unspecified>".to_owned(),
                        }),
                    ),
                    AGE,
                ]
            }
        }
        "SecretBinding" => {
            const {
                &[
                    NAME,
                    column("Secret", Cell::Made(|binding| place(&binding["secretRef"]))),
                    column("Provider", Cell::At("/provider/type", "<none>")),
                    AGE,
                ]
            }
        }
        "ShootState" => {
            const {
                &[
                    NAME,
                    column("Gardener Data", Cell::Count(&["/spec/gardener"])),
                    column("Extension States", Cell::Count(&["/spec/extensions"])),
                    AGE,
                ]
            }
        }
        "Bastion" => {
            const {
                &[
                    NAME,
                    column("Shoot", Cell::At("/spec/shootRef/name", "")),
                    column("Seed", Cell::At("/spec/seedName", "<pending>")),
                    column("IP", Cell::Made(bastion_address)),
                    AGE,
                ]
            }
        }
        "CredentialsBinding" => {
            const {
                &[
                    NAME,
                    column("Provider", Cell::At("/provider/type", "")),
                    column("APIVersion", Cell::At("/credentialsRef/apiVersion", "")),
                    column("Kind", Cell::At("/credentialsRef/kind", "")),
                    column("Name", Cell::Made(|binding| place(&binding["credentialsRef"]))),
                    AGE,
                ]
            }
        }
        "WorkloadIdentity" => {
            const {
                &[
                    NAME,
                    column("Sub", Cell::At("/status/sub", "")),
                    column("Type", Cell::At("/spec/targetSystem/type", "")),
                    wide("Audiences", Cell::Made(audiences)),
                    AGE,
                ]
            }
        }
        "Gardenlet" => {
            const {
                &[
                    NAME,
                    column("OCI Repository", Cell::Made(repository)),
                    column("Reconciled", Cell::Condition("Reconciled")),
                    AGE,
                ]
            }
        }
        "ManagedSeed" => {
            const {
                &[
                    NAME,
                    column("Status", Cell::Made(managed_seed_status)),
                    column("Shoot", Cell::At("/spec/shoot/name", "")),
                    AGE,
                ]
            }
        }
        _ => &[],
    }
}

fn operation(object: &Value) -> String {
    let last = &object["status"]["lastOperation"];
    if last.is_null() {
        return "<pending>".to_owned();
    }
    format!("{} {} ({}%)", text(last, "/type"), text(last, "/state"), last["progress"].as_i64().unwrap_or(0))
}

fn seed_status(seed: &Value) -> String {
    let (agent, extensions) = (condition(seed, "GardenletReady"), condition(seed, "ExtensionsReady"));
    let buckets = condition(seed, "BackupBucketsReady").unwrap_or("True");
    let components = condition(seed, "SeedSystemComponentsHealthy").unwrap_or("True");
    let is_bad = |status: &str| matches!(status, "False" | "Unknown");
    let status = match agent {
        Some("Unknown") => "Unknown",
        Some("True") if buckets != "True" || is_bad(components) => "NotReady",
        Some("True") if extensions.is_some_and(|status| !is_bad(status)) => "Ready",
        _ => "NotReady",
    };
    status.to_owned()
}

fn profile(shoot: &Value) -> String {
    let (kind, name) = (text(shoot, "/spec/cloudProfile/kind"), text(shoot, "/spec/cloudProfile/name"));
    match kind {
        "NamespacedCloudProfile" => format!("{}/{name}", text(shoot, "/metadata/namespace")),
        _ if name.is_empty() => text(shoot, "/spec/cloudProfileName").to_owned(),
        _ => name.to_owned(),
    }
}

fn hibernation(shoot: &Value) -> String {
    let wanted = shoot["spec"]["hibernation"]["enabled"] == true;
    let reached = shoot["status"]["hibernated"] == true;
    let text = match (wanted, reached) {
        (true, true) => "Hibernated",
        (true, false) => "Hibernating",
        (false, true) => "Waking Up",
        (false, false) => "Awake",
    };
    text.to_owned()
}

fn shoot_status(shoot: &Value) -> String {
    entry(shoot, "/metadata/labels", "shoot.gardener.cloud/status").unwrap_or("<pending>").to_owned()
}

fn cluster(installation: &Value) -> String {
    let (seed, shoot) = (&installation["spec"]["seedRef"], &installation["spec"]["shootRef"]);
    match (seed.is_object(), shoot.is_object()) {
        (_, true) => format!("Shoot/{}", place(shoot)),
        (true, false) => format!("Seed/{}", text(seed, "/name")),
        (false, false) => "<unknown>".to_owned(),
    }
}

fn resources(registration: &Value) -> String {
    let resource = |r: &Value| format!("{}/{}", text(r, "/kind"), text(r, "/type"));
    list(registration, "/spec/resources").iter().map(resource).collect::<Vec<_>>().join(", ")
}

fn place(reference: &Value) -> String {
    format!("{}/{}", text(reference, "/namespace"), text(reference, "/name"))
}

fn bastion_address(bastion: &Value) -> String {
    let ingress = &bastion["status"]["ingress"];
    match (text(ingress, "/hostname"), text(ingress, "/ip")) {
        ("", "") => "<pending>".to_owned(),
        ("", address) => address.to_owned(),
        (name, _) => name.to_owned(),
    }
}

fn audiences(identity: &Value) -> String {
    let all: Vec<&str> = list(identity, "/spec/audiences").iter().filter_map(Value::as_str).collect();
    all.join(",")
}

fn repository(gardenlet: &Value) -> String {
    let found = "/spec/deployment/helm/ociRepository";
    let Some(found) = gardenlet.pointer(found) else { return String::new() };
    match (text(found, "/ref"), text(found, "/repository"), text(found, "/digest")) {
        ("", repository, "") => format!("{repository}:{}", text(found, "/tag")),
        ("", repository, digest) => format!("{repository}@{digest}"),
        (reference, ..) => reference.to_owned(),
    }
}

fn managed_seed_status(seed: &Value) -> String {
    let status = match condition(seed, "SeedRegistered") {
        Some("True") => "Registered",
        None | Some("Unknown") => "Unknown",
        Some(_) => "NotRegistered",
    };
    status.to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::kinds;
    use super::*;
    use crate::api::table::{Include, table};
    use crate::encoding::from_rfc3339;

    /// What `kubectl get -o wide` prints of an object: names and cells.
    fn shown(kind: &str, mut object: Value) -> Vec<(String, String)> {
        object["metadata"]["name"] = json!("n");
        object["metadata"]["namespace"] = json!("garden-p");
        object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        let kinds = kinds::kinds();
        let kind = kinds.iter().find(|k| k.kind == kind).unwrap();
        let now = from_rfc3339("2026-01-01T00:00:30Z").unwrap();
        let table = table(kind, &kind.versions[0], &[object], &json!({}), Include::None, now);
        let names = list(&table, "/columnDefinitions").iter().map(|column| text(column, "/name").to_owned());
        let cells = list(&table, "/rows/0/cells").iter();
        names.zip(cells.map(|cell| cell.as_str().map_or_else(|| cell.to_string(), str::to_owned))).collect()
    }

    fn cell(kind: &str, object: Value, name: &str) -> String {
        shown(kind, object).into_iter().find(|(column, _)| column == name).unwrap().1
    }

    #[test]
    fn a_seed_is_ready_if_its_conditions_are() {
        let status = |conditions: &[(&str, &str)]| {
            let conditions: Vec<Value> =
                conditions.iter().map(|(kind, status)| json!({"type": kind, "status": status})).collect();
            cell("Seed", json!({"status": {"conditions": conditions}}), "Status")
        };
        const GOOD: [(&str, &str); 2] = [("GardenletReady", "True"), ("ExtensionsReady", "True")];
        assert_eq!(status(&GOOD), "Ready");
        assert_eq!(status(&[GOOD[0], ("ExtensionsReady", "Progressing")]), "Ready");
        assert_eq!(status(&[]), "NotReady");
        assert_eq!(status(&GOOD[..1]), "NotReady");
        assert_eq!(status(&[("GardenletReady", "Unknown"), GOOD[1]]), "Unknown");
        assert_eq!(status(&[("GardenletReady", "False"), GOOD[1]]), "NotReady");
        for (kind, bad, expected) in [
            ("BackupBucketsReady", "True", "Ready"),
            ("BackupBucketsReady", "Progressing", "NotReady"),
            ("SeedSystemComponentsHealthy", "Progressing", "Ready"),
            ("SeedSystemComponentsHealthy", "Unknown", "NotReady"),
        ] {
            assert_eq!(status(&[GOOD[0], GOOD[1], (kind, bad)]), expected, "{kind} {bad}");
        }
    }

    #[test]
    fn a_shoot_has_the_columns_of_gardener() {
        let shoot = json!({"metadata": {"labels": {"shoot.gardener.cloud/status": "healthy"}},
            "spec": {"cloudProfile": {"kind": "CloudProfile", "name": "local"}, "provider": {"type": "local"},
                "region": "north", "kubernetes": {"version": "1.34.3"}, "seedName": "s"},
            "status": {"lastOperation": {"type": "Create", "state": "Processing", "progress": 40},
                "conditions": [{"type": "APIServerAvailable", "status": "True"}]}});
        let all = shown("Shoot", shoot.clone());
        let line: Vec<String> = all.iter().map(|(name, cell)| format!("{name}={cell}")).collect();
        let expected = "Name=n, CloudProfile=local, Provider=local, Region=north, Seed=s, K8S Version=1.34.3, \
            Hibernation=Awake, Last Operation=Create Processing (40%), Status=healthy, Purpose=<none>, \
            Gardener Version=<unknown>, APIServer=True, Control=<unknown>, Observability=<unknown>, Nodes=<unknown>, \
            System=<unknown>, Age=30s";
        assert_eq!(line.join(", "), expected);
        let mut other = shoot;
        other["spec"]["cloudProfile"]["kind"] = json!("NamespacedCloudProfile");
        other["spec"]["hibernation"] = json!({"enabled": true});
        assert_eq!(cell("Shoot", other.clone(), "CloudProfile"), "garden-p/local");
        assert_eq!(cell("Shoot", other, "Hibernation"), "Hibernating");
        assert_eq!(cell("Shoot", json!({}), "Last Operation"), "<pending>");
        assert_eq!(cell("Shoot", json!({"status": {"hibernated": true}}), "Hibernation"), "Waking Up");
    }

    #[test]
    fn an_installation_names_its_cluster() {
        let of = |spec: Value| cell("ControllerInstallation", json!({"spec": spec}), "Cluster");
        assert_eq!(of(json!({"seedRef": {"name": "s"}})), "Seed/s");
        assert_eq!(of(json!({"shootRef": {"name": "s", "namespace": "garden"}})), "Shoot/garden/s");
        assert_eq!(of(json!({})), "<unknown>");
        let conditions = json!({"status": {"conditions": [{"type": "Healthy", "status": "False"}]}});
        assert_eq!(cell("ControllerInstallation", conditions, "Healthy"), "False");
    }

    #[test]
    fn each_kind_but_one_has_columns() {
        let without: Vec<String> =
            kinds::kinds().into_iter().filter(|kind| kind.columns.is_empty()).map(|kind| kind.kind).collect();
        assert_eq!(without, ["ManagedSeedSet"]);
    }
}
