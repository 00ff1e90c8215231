//! What a Go gardenlet of v1.150 reads when it starts, and what its controllers compare with the objects that they
//! would write. This is a table of objects, paths in them, expectations, and facts about upstream's source that justify
//! them.

use std::collections::BTreeMap;

use gardenlet::format::yaml;
use regex_lite::Regex;
use serde_json::{Value, json};

use crate::upstream::{self, GRM};
use crate::world::{LEASES, MANAGED_RESOURCES, World};
use support::encoding::{from_base64, sha256_hex};
use support::json::text;

/// What the Go gardenlet expects of a value.
#[derive(Debug)]
pub enum Expect {
    Is(Value),
    /// A string or number that matches this pattern.
    Like(&'static str),
    /// A map with exactly these keys.
    Keys(&'static [&'static str]),
    /// The value or the object does not exist.
    Absent,
}

use Expect::{Absent, Is, Keys, Like};

/// Times as Go's types read them: `Time` with seconds, and `MicroTime`, which accepts nothing else, with six digits.
const TIME: &str = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$";
pub const MICRO_TIME: &str = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$";

impl Expect {
    fn problem(&self, value: Option<&Value>) -> Option<String> {
        let number = value.and_then(Value::as_i64).map(|number| number.to_string());
        let text = value.and_then(Value::as_str).or(number.as_deref());
        let is_met = match self {
            Is(wanted) => value == Some(wanted),
            Like(pattern) => text.is_some_and(|text| Regex::new(pattern).unwrap().is_match(text)),
            Keys(keys) => value.and_then(Value::as_object).is_some_and(|map| map.keys().eq(keys.iter())),
            Absent => value.is_none_or(Value::is_null),
        };
        (!is_met).then(|| format!("{value:?} is not {self:?}"))
    }
}

/// An object that the next agent reads, a path in it, the expectation, and the fact that justifies it.
pub type Row = (&'static str, &'static str, Expect, &'static str);

/// The objects, by their names in the table.
pub struct Found(pub BTreeMap<&'static str, Option<Value>>);

impl Found {
    pub fn of(world: &World, installation: &str) -> Self {
        let (seed, garden) = (&world.seed, &world.garden);
        let namespace = format!("extension-{installation}");
        let managed = seed.get(MANAGED_RESOURCES, "managedresources", "garden", installation);
        let secret = managed.as_ref().map_or("", |m| text(m, "/spec/secretRefs/0/name")).to_owned();
        let kubeconfig = seed.get("", "secrets", "garden", "gardenlet-kubeconfig");
        let lease = |name: &str| seed.get(LEASES, "leases", "garden", name);
        let token = format!("bootstrap-token-{}", world.preparation.token_id());
        let definitions = ("apiextensions.k8s.io", "customresourcedefinitions");
        Self(BTreeMap::from([
            ("kubeconfig", kubeconfig.as_ref().map(content)),
            ("kubeconfig secret", kubeconfig),
            ("bootstrap secret", seed.get("", "secrets", "garden", "gardenlet-kubeconfig-bootstrap")),
            ("bootstrap token", garden.get("", "secrets", "kube-system", &token)),
            ("leader", lease("gardenlet-leader-election")),
            ("applier", lease(GRM.1)),
            ("resource manager", seed.get("apps", "deployments", GRM.0, GRM.1)),
            ("garden namespace", seed.get("", "namespaces", "", "garden")),
            ("namespace", seed.get("", "namespaces", "", &namespace)),
            ("managed resource", managed),
            ("manifests", seed.get("", "secrets", "garden", &secret)),
            ("workload", seed.get("apps", "deployments", &namespace, "echo")),
            (
                "definition",
                seed.get(definitions.0, definitions.1, "", "extensions.extensions.gardener.cloud"),
            ),
            ("heartbeat", garden.get(LEASES, "leases", "gardener-system-seed-lease", world.name)),
            ("seed", garden.seed(world.name)),
            ("ca", seed.get("", "secrets", "garden", "ca-seed-fc28a8dd")),
            ("installation", garden.installations("echo").pop()),
        ]))
    }

    pub fn problems(&self, rows: &[Row]) -> Vec<String> {
        let one = |(object, path, expected, fact): &Row| {
            let found = self.0.get(object).unwrap_or_else(|| panic!("what is {object}?")).as_ref();
            let why = expected.problem(found.and_then(|found| found.pointer(path)))?;
            Some(format!("{object} {path} ({fact}): {why}"))
        };
        rows.iter().filter_map(one).collect()
    }
}

/// The kubeconfig in a Secret, with its credentials in plain text.
fn content(secret: &Value) -> Value {
    let plain = |encoded: &Value| {
        let bytes = encoded.as_str().and_then(from_base64).unwrap_or_default();
        String::from_utf8(bytes).unwrap()
    };
    let mut config = yaml::parse(&plain(&secret["data"]["kubeconfig"])).unwrap();
    for path in [
        "/clusters/0/cluster/certificate-authority-data",
        "/users/0/user/client-certificate-data",
        "/users/0/user/client-key-data",
    ] {
        if let Some(encoded) = config.pointer_mut(path) {
            *encoded = json!(plain(encoded));
        }
    }
    config
}

/// All rows.
pub fn expected_by_the_go_gardenlet(world: &World, installation: &str) -> Vec<Row> {
    let mut rows = identity(world);
    rows.extend(leases(world));
    rows.extend(seed(world));
    rows.extend(authority());
    rows.extend(extension(world, installation));
    rows.extend(manifests(world, installation));
    rows.extend(conditions("installation", &["Valid", "Installed", "Healthy", "Progressing", "Required"]));
    let managed = ["ResourcesHealthy", "ResourcesProgressing", "ResourcesApplied"];
    rows.extend(conditions("managed resource", &managed));
    rows
}

/// The CA of the seed, under the name that upstream's secrets manager computes.
fn authority() -> Vec<Row> {
    let label = "its secrets manager lists by it";
    let rows = [
        ("/type", Is(json!("Opaque")), "as upstream"),
        ("/data", Keys(&["ca.crt", "ca.key"]), "as upstream"),
        ("/metadata/labels/name", Is(json!("ca-seed")), label),
        ("/metadata/labels/managed-by", Is(json!("secrets-manager")), label),
        ("/metadata/labels/manager-identity", Is(json!("gardenlet")), label),
        ("/metadata/labels/checksum-of-config", Is(json!("16473382070636541080")), "of its configuration"),
        ("/metadata/labels/last-rotation-initiation-time", Is(json!("")), "never rotated"),
        ("/metadata/labels/persist", Absent, "a seed does not move"),
        ("/metadata/labels/issued-at-time", Like(r"^\d{10}$"), "when it is renewed"),
        ("/metadata/labels/valid-until-time", Like(r"^\d{10}$"), "when it is renewed"),
    ];
    of("ca", rows)
}

/// Rows about one object.
fn of<const N: usize>(object: &'static str, rows: [(&'static str, Expect, &'static str); N]) -> Vec<Row> {
    rows.map(|(path, expected, fact)| (object, path, expected, fact)).into()
}

/// Without a bootstrap: a kubeconfig of the usual form, whose user needs no file and no program.
fn identity(world: &World) -> Vec<Row> {
    let context = json!({"name": "gardenlet", "context": {"cluster": "gardenlet", "user": "gardenlet"}});
    let secret = [
        ("/type", Is(json!("Opaque")), "as upstream"),
        ("/data", Keys(&["kubeconfig"]), "as upstream"),
        ("/metadata/annotations/gardener.cloud~1operation", Absent, "it would renew at once"),
    ];
    let cluster = "/clusters/0/cluster";
    let ca = "/clusters/0/cluster/certificate-authority-data";
    let content = [
        ("/current-context", Is(json!("gardenlet")), "as upstream"),
        ("/contexts", Is(json!([context])), "as upstream"),
        ("/clusters/0/name", Is(json!("gardenlet")), "as upstream"),
        (cluster, Keys(&["certificate-authority-data", "server"]), "as upstream"),
        ("/clusters/0/cluster/server", Is(json!(world.garden.url())), "as upstream"),
        (ca, Is(json!(world.garden.ca())), "it would be rewritten"),
        ("/users/0/name", Is(json!("gardenlet")), "as upstream"),
        ("/users/0/user", Keys(&["client-certificate-data", "client-key-data"]), "no files"),
        ("/users/0/user/client-certificate-data", Like("^-----BEGIN CERTIFICATE-----\n"), "as upstream"),
        ("/users/0/user/client-key-data", Like("^-----BEGIN EC PRIVATE KEY-----\n"), "as upstream"),
    ];
    let mut rows = of("kubeconfig secret", secret);
    rows.extend(of("kubeconfig", content));
    rows.extend(of("bootstrap secret", [("", Absent, "as upstream")]));
    rows.extend(of("bootstrap token", [("", Absent, "as upstream")]));
    rows
}

/// client-go acquires a Lease without a holder at once.
fn leases(world: &World) -> Vec<Row> {
    let seed = world.garden.seed(world.name).unwrap();
    let owner = json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Seed", "name": world.name,
        "uid": seed["metadata"]["uid"]});
    let leader = [
        ("/spec/holderIdentity", Is(json!("")), "as upstream"),
        ("/spec/leaseDurationSeconds", Is(json!(1)), "as upstream"),
        ("/spec/acquireTime", Like(MICRO_TIME), "as upstream"),
        ("/spec/renewTime", Like(MICRO_TIME), "as upstream"),
        ("/spec/leaseTransitions", Like("^[0-9]+$"), "as upstream"),
    ];
    let heartbeat = [
        ("/metadata/ownerReferences", Is(json!([owner])), "as upstream"),
        ("/spec", Keys(&["holderIdentity", "leaseDurationSeconds", "renewTime"]), "as upstream"),
        ("/spec/holderIdentity", Is(json!(world.name)), "as upstream"),
        ("/spec/leaseDurationSeconds", Is(json!(2)), "as upstream"),
        ("/spec/renewTime", Like(MICRO_TIME), "as upstream"),
    ];
    let mut rows = of("leader", leader);
    rows.extend(of("heartbeat", heartbeat));
    rows
}

fn seed(world: &World) -> Vec<Row> {
    let generation = world.garden.seed(world.name).unwrap()["metadata"]["generation"].clone();
    let identity = world.seed.get("", "namespaces", "", "kube-system").unwrap()["metadata"]["uid"].clone();
    let annotations = json!({"by": "hand", "owner": "me"});
    let operation = ["description", "lastUpdateTime", "progress", "state", "type"].as_slice();
    let rows = [
        ("/metadata/finalizers", Is(json!(["gardener"])), "as upstream"),
        ("/metadata/labels/gardener.cloud~1role", Is(json!("seed")), "as upstream"),
        ("/metadata/labels/site", Is(json!("north")), "as configured"),
        ("/metadata/annotations", Is(annotations), "none removed, no operation pending"),
        ("/status/gardener", Keys(&["id", "name", "version"]), "as upstream"),
        ("/status/gardener/id", Like("^[0-9a-f]{64}$"), "as upstream"),
        ("/status/clusterIdentity", Is(identity), "immutable"),
        ("/status/kubernetesVersion", Like("^v1\\."), "as upstream"),
        ("/status/observedGeneration", Is(generation), "as upstream"),
        ("/status/clientCertificateExpirationTimestamp", Like(TIME), "as upstream"),
        ("/status/capacity", Is(json!({"shoots": "50"})), "as upstream"),
        ("/status/allocatable", Is(json!({"shoots": "45"})), "as upstream"),
        ("/status/lastOperation", Keys(operation), "as upstream"),
        ("/status/lastOperation/state", Is(json!("Succeeded")), "none is unfinished"),
        ("/status/lastOperation/type", Is(json!("Reconcile")), "as upstream"),
        ("/status/lastOperation/lastUpdateTime", Like(TIME), "as upstream"),
    ];
    let role = "/metadata/labels/gardener.cloud~1role";
    let protected = "/metadata/labels/gardener.cloud~1deletion-protected";
    let mut rows = of("seed", rows);
    rows.extend(of("garden namespace", [(role, Is(json!("garden")), "as upstream")]));
    rows.extend(of("definition", [(protected, Is(json!("true")), "as upstream")]));
    rows
}

/// Names, labels and references that the agent uses to find the parts of an extension again.
fn extension(world: &World, installation: &str) -> Vec<Row> {
    let managed = world.seed.get(MANAGED_RESOURCES, "managedresources", "garden", installation).unwrap();
    let secret = text(&managed, "/spec/secretRefs/0/name");
    let sum = &sha256_hex(secret.as_bytes())[..8];
    let reference = json!({format!("reference.resources.gardener.cloud/secret-{sum}"): secret});
    let labels = json!({"controllerinstallation-name": installation, "controllerregistration-name": "echo"});
    let finalizer = json!(["resources.gardener.cloud/gardener-resource-manager-seed"]);
    let spec = json!({"class": "seed", "secretRefs": [{"name": secret}]});
    let status = ["conditions", "observedGeneration", "resources", "secretsDataChecksum"].as_slice();
    let rows = [
        ("/metadata/labels", Is(labels), "as upstream"),
        ("/metadata/annotations", Is(reference), "as upstream"),
        ("/metadata/finalizers", Is(finalizer), "as upstream"),
        ("/spec", Is(spec), "as upstream"),
        ("/status", Keys(status), "as upstream"),
        ("/status/observedGeneration", Is(managed["metadata"]["generation"].clone()), "as upstream"),
        ("/status/secretsDataChecksum", Like("^[0-9a-f]{64}$"), "as upstream"),
    ];
    let finalizer = json!(["core.gardener.cloud/controllerinstallation"]);
    let mut all = of("managed resource", rows);
    all.extend(of("installation", [("/metadata/finalizers", Is(finalizer), "as upstream")]));
    all
}

/// A Secret that needs no successor, and objects that name their owner.
fn manifests(world: &World, installation: &str) -> Vec<Row> {
    let name = upstream::secret_name(&world.seed, installation);
    let collectable = json!({"resources.gardener.cloud/garbage-collectable-reference": "true"});
    let role = "/metadata/labels/gardener.cloud~1role";
    let origin = "/metadata/annotations/resources.gardener.cloud~1origin";
    let managed_by = "/metadata/labels/resources.gardener.cloud~1managed-by";
    let secret = [
        ("/metadata/name", Is(json!(name)), "as upstream"),
        ("/metadata/labels", Is(collectable), "as upstream"),
        ("/immutable", Is(json!(true)), "as upstream"),
        ("/type", Is(json!("Opaque")), "as upstream"),
    ];
    let workload = [
        (origin, Is(json!(format!("garden/{installation}"))), "as upstream"),
        (managed_by, Is(json!("gardener")), "as upstream"),
    ];
    let mut rows = of("manifests", secret);
    rows.extend(of("workload", workload));
    rows.extend(of("namespace", [(role, Is(json!("extension")), "as upstream")]));
    rows
}

/// Each type once, in the original order.
fn conditions(object: &'static str, kinds: &[&'static str]) -> Vec<Row> {
    let one = |(index, kind): (usize, &&'static str)| {
        let at = |field: &str| -> &'static str { format!("/status/conditions/{index}/{field}").leak() };
        let rows = [
            (at("type"), Is(json!(kind)), "as upstream"),
            (at("lastTransitionTime"), Like(TIME), "as upstream"),
            (at("lastUpdateTime"), Like(TIME), "as upstream"),
        ];
        of(object, rows)
    };
    kinds.iter().enumerate().flat_map(one).collect()
}
