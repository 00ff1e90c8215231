//! The memory of one more object in the agent, for each store of its informers, compared with the object's bytes on the
//! wire.
//!
//! The measurement uses the released program, thousands of objects that its controllers ignore, and its anonymous
//! memory before and after. The kernel counts that memory, so these are figures and not tests, except for Secrets,
//! which are many. The objects are as large as real ones, with the `managedFields` that every API server sends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::agent::{Agent, wait_for};
use crate::pause;
use crate::report::Report;
use crate::scene::{SEED, Scene};
use support::TestCluster;
use support::api::store::Id;
use support::garden::prepare;

/// Objects of each kind: enough to make other pages irrelevant.
const OBJECTS: usize = 3_000;
/// Secrets: a seed with many shoots has this many. The agent keeps hashes of one, which are smaller than its name.
const SECRETS: usize = 20_000;
/// The maximum memory for one Secret.
const SECRET_BYTES_MAX: f64 = 100.0;
/// The time until temporary memory is released.
const SETTLE: Duration = Duration::from_secs(3);
const CORE: &str = "core.gardener.cloud";
const GROUP: &str = "resources.gardener.cloud";

/// A store, and its objects.
struct Kind {
    /// Its name in `/statusz`.
    watch: &'static str,
    group: &'static str,
    plural: &'static str,
    object: fn(usize) -> Value,
    objects: usize,
    /// Only metadata is requested, and each object may use this many bytes.
    bytes_max: Option<f64>,
}

/// Installations come last: the controllers read them at any other change.
const KINDS: [Kind; 5] = [
    kind("garden/seeds", CORE, "seeds", seed),
    kind("garden/controllerregistrations", CORE, "controllerregistrations", registration),
    kind("seed/managedresources", GROUP, "managedresources", managed),
    Kind {
        objects: SECRETS,
        bytes_max: Some(SECRET_BYTES_MAX),
        ..kind("seed/secrets", "", "secrets", secret)
    },
    kind("garden/controllerinstallations", CORE, "controllerinstallations", installation),
];

const fn kind(
    watch: &'static str,
    group: &'static str,
    plural: &'static str,
    object: fn(usize) -> Value,
) -> Kind {
    Kind { watch, group, plural, object, objects: OBJECTS, bytes_max: None }
}

impl Kind {
    /// The bytes of an object on the wire.
    fn wire(&self, stored: &Value) -> usize {
        if self.bytes_max.is_none() {
            return stored.to_string().len();
        }
        let head = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {}});
        head.to_string().len() + stored["metadata"].to_string().len() - "{}".len()
    }
}

/// Fills one store after the other of an idle agent; a row for each.
pub(crate) fn measure(report: &mut Report, scene: &Scene, agent: &mut Agent) {
    pause(SETTLE);
    for kind in &KINDS {
        let (cluster, known) = (cluster_of(scene, kind), objects(scene, kind));
        let before = agent.memory().pss_anonymous;
        let wire = fill(cluster, kind);
        wait_for(agent, kind.watch, || (objects(scene, kind) >= known + kind.objects).then_some(()));
        pause(SETTLE);
        let count = kind.objects as f64;
        let (held, wire) =
            (agent.memory().pss_anonymous.saturating_sub(before) as f64 / count, wire as f64 / count);
        let name = format!("memory of an object, {}", kind.watch);
        let value = format!("{held:.0} of {wire:.0} bytes, {:.2} times", held / wire);
        match kind.bytes_max {
            None => report.row(name, value, ""),
            Some(max) => report.check(name, value, &format!("{max:.0} bytes"), held <= max),
        }
    }
}

fn cluster_of<'a>(scene: &'a Scene, kind: &Kind) -> &'a TestCluster {
    if kind.watch.starts_with("garden/") { &scene.garden } else { &scene.seed }
}

/// Writes the objects into the storage, all at once; returns their bytes as a watch sends them, without its frame.
fn fill(cluster: &TestCluster, kind: &Kind) -> usize {
    let objects: Vec<Value> = (0..kind.objects).map(kind.object).collect();
    cluster.store().write(|state| {
        let put = |mut object: Value| {
            object["metadata"]["managedFields"] = managed_fields(&object);
            let name = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
            let id = Id::new(kind.group, kind.plural, &name("namespace"), &name("name"));
            kind.wire(&state.put(id, object))
        };
        objects.into_iter().map(put).sum()
    })
}

/// The number of objects that the agent knows, from its status page.
fn objects(scene: &Scene, kind: &Kind) -> usize {
    let mut answer = String::new();
    let mut stream = TcpStream::connect(("127.0.0.1", scene.port())).unwrap();
    stream.write_all(b"GET /statusz?format=json HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    stream.read_to_string(&mut answer).unwrap();
    let page: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let count = page["watches"][kind.watch]["objects"].as_u64();
    usize::try_from(count.unwrap_or_else(|| panic!("{} is not in {page}", kind.watch))).unwrap()
}

/// The `managedFields` of an API server, for spec and status.
fn managed_fields(object: &Value) -> Value {
    let entry = |manager: &str, part: &str, subresource: &str| {
        json!({"manager": manager, "operation": "Update", "apiVersion": object["apiVersion"], "time": TIME,
            "fieldsType": "FieldsV1", "fieldsV1": {format!("f:{part}"): fields(&object[part])}, "subresource": subresource})
    };
    let mut whole = entry("gardener-controller-manager", "spec", "");
    whole["fieldsV1"]["f:metadata"] = fields(
        &json!({"labels": object["metadata"]["labels"], "annotations": object["metadata"]["annotations"]}),
    );
    whole.as_object_mut().unwrap().remove("subresource");
    let status = object.get("status").map(|_| entry("gardenlet", "status", "status"));
    std::iter::once(whole).chain(status).collect()
}

/// The names of fields and, below them, those of their fields.
fn fields(value: &Value) -> Value {
    let named = |(key, value): (&String, &Value)| (format!("f:{key}"), fields(value));
    value
        .as_object()
        .map_or_else(|| json!({}), |object| object.iter().map(named).collect::<Map<_, _>>().into())
}

const TIME: &str = "2026-11-20T08:15:30Z";

fn metadata(name: &str, n: usize) -> Value {
    json!({"name": name, "uid": format!("6f0c2b52-5a38-4be1-9d3b-{n:012}"), "resourceVersion": "0", "generation": 3,
        "creationTimestamp": TIME})
}

fn conditions(of: &[(&str, &str, &str)]) -> Value {
    let condition = |(kind, reason, message): &(&str, &str, &str)| {
        json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": TIME,
            "lastUpdateTime": TIME})
    };
    of.iter().map(condition).collect()
}

/// A Seed like one made from a shoot of this seed: the agent watches these, too.
fn seed(n: usize) -> Value {
    let mut metadata = metadata(&format!("managed-seed-{n}"), n);
    metadata["labels"] = json!({"name.seed.gardener.cloud/edge-1": "true", "provider.extensions.gardener.cloud/local": "true",
        "seed.gardener.cloud/region": "north", format!("name.seed.gardener.cloud/managed-seed-{n}"): "true"});
    metadata["finalizers"] = json!(["gardener"]);
    let mut spec = prepare::seed_spec();
    spec["settings"] = json!({"dependencyWatchdog": {"weeder": {"enabled": true}, "prober": {"enabled": true}},
        "excessCapacityReservation": {"enabled": true, "configs": [{"resources": {"cpu": "2", "memory": "6Gi"}}]},
        "scheduling": {"visible": true}, "verticalPodAutoscaler": {"enabled": true},
        "topologyAwareRouting": {"enabled": false}});
    let status = json!({
        "conditions": conditions(&[
            ("GardenletReady", "GardenletReady", "Gardenlet is posting ready status."),
            ("ExtensionsReady", "AllExtensionsReady", "All extensions installed into the seed cluster are ready and healthy."),
            ("SeedSystemComponentsHealthy", "SystemComponentsRunning", "All system components are healthy."),
            ("BackupBucketsReady", "BackupBucketsAvailable", "Backup Buckets are available."),
        ]),
        "gardener": {"id": format!("{n:064x}"), "name": "gardenlet-7d9c5c8f4b-x2x7k", "version": "v1.150.0"},
        "clusterIdentity": format!("shoot--garden--managed-seed-{n}-6f0c2b52-garden"), "kubernetesVersion": "v1.34.3",
        "observedGeneration": 3, "capacity": {"shoots": "250"}, "allocatable": {"shoots": "250"},
        "clientCertificateExpirationTimestamp": "2026-12-20T08:15:30Z",
        "lastOperation": {"description": "Seed has been successfully reconciled.", "lastUpdateTime": TIME, "progress": 100,
            "state": "Succeeded", "type": "Reconcile"},
    });
    json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Seed", "metadata": metadata, "spec": spec, "status": status})
}

/// The registration of a provider's extension.
fn registration(n: usize) -> Value {
    let resource = |kind: &str| json!({"kind": kind, "type": format!("provider-{n}"), "primary": true, "reconcileTimeout": "3m0s"});
    let kinds =
        ["BackupBucket", "BackupEntry", "Bastion", "ControlPlane", "DNSRecord", "Infrastructure", "Worker"];
    json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "ControllerRegistration",
        "metadata": metadata(&format!("provider-{n}"), n),
        "spec": {"resources": kinds.map(resource),
            "deployment": {"policy": "OnDemand", "deploymentRefs": [{"name": format!("provider-{n}")}]}}})
}

/// An installation that waits for a foreign finalizer: no controller has work with it.
fn installation(n: usize) -> Value {
    let mut metadata = metadata(&format!("provider-{n}-x7k2p"), n);
    metadata["generateName"] = json!(format!("provider-{n}-"));
    metadata["labels"] = json!({"registration-spec-hash": "5d1f0a7c3be94826", "seed-spec-hash": "77b1d6a2c3f4e500",
        "deployment-hash": "9a0b1c2d3e4f5061"});
    metadata["finalizers"] = json!(["core.gardener.cloud/controllerregistration"]);
    metadata["deletionTimestamp"] = json!(TIME);
    let reference = |name: &str| json!({"name": name, "resourceVersion": "1203948571"});
    let provider = format!("gone-{n}");
    let status = json!({"conditions": conditions(&[
        ("Valid", "RegistrationValid", "chart could be rendered successfully."),
        ("Installed", "InstallationSuccessful", "The controller was successfully installed in the seed cluster."),
        ("Healthy", "ControllerHealthy", "The controller running in the seed cluster is healthy."),
        ("Progressing", "ControllerRolledOut", "The controller has been rolled out successfully."),
        ("Required", "ExtensionObjectsExist", "extension objects still exist in the seed: [Infrastructure/local Worker/local]"),
    ])});
    json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "ControllerInstallation", "metadata": metadata, "status": status,
        "spec": {"registrationRef": reference(&provider), "seedRef": reference(SEED), "deploymentRef": reference(&provider)}})
}

/// A ManagedResource of a shoot, which its own resource manager applies.
fn managed(n: usize) -> Value {
    let mut metadata = metadata(&format!("shoot-core-component-{n}"), n);
    metadata["namespace"] = json!(format!("shoot--team--cluster-{}", n % 50));
    metadata["labels"] = json!({"origin": "gardener"});
    metadata["finalizers"] = json!(["resources.gardener.cloud/gardener-resource-manager"]);
    let kinds = [
        "ServiceAccount",
        "ConfigMap",
        "Service",
        "Deployment",
        "PodDisruptionBudget",
        "VerticalPodAutoscaler",
    ];
    let object = |kind: &str| {
        json!({"apiVersion": "apps/v1", "kind": kind, "name": format!("component-{n}"), "namespace": "kube-system",
            "labels": {"app": "component", "gardener.cloud/role": "system-component"}})
    };
    let status = json!({"observedGeneration": 3, "resources": kinds.map(object), "secretsDataChecksum": format!("{n:064x}"),
    "conditions": conditions(&[
        ("ResourcesApplied", "ApplySucceeded", "All resources are applied."),
        ("ResourcesHealthy", "ResourcesHealthy", "All resources are healthy."),
        ("ResourcesProgressing", "ResourcesRolledOut", "All resources have been fully rolled out."),
    ])});
    let spec = json!({"secretRefs": [{"name": format!("managedresource-shoot-core-component-{n}-5b2f1c3d")}], "keepObjects": false,
        "injectLabels": {"shoot.gardener.cloud/no-cleanup": "true"}});
    json!({"apiVersion": "resources.gardener.cloud/v1alpha1", "kind": "ManagedResource", "metadata": metadata, "spec": spec,
        "status": status})
}

/// A Secret of a shoot's control plane.
fn secret(n: usize) -> Value {
    let mut metadata = metadata(&format!("component-server-{n}-5b2f1c3d"), n);
    metadata["namespace"] = json!(format!("shoot--team--cluster-{}", n % 50));
    metadata["labels"] = json!({"name": format!("component-server-{n}"), "managed-by": "secrets-manager",
        "manager-identity": "gardenlet", "bundle-for": "ca", "checksum-of-config": "13498283712004218231",
        "checksum-of-signing-ca": format!("{n:064x}"), "issued-at-time": "1763626530", "valid-until-time": "1795162530",
        "last-rotation-initiation-time": "1763626530", "rotation-strategy": "inplace"});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": {"tls.crt": "", "tls.key": ""}})
}
