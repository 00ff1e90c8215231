//! What the kinds of Kubernetes do to their objects on the way into the storage: defaults, checks, what may not change.

use serde_json::{Map, Value, json};

use super::addresses;
use super::failure::Failure;
use super::kinds::Kind;
use super::store::State;
use crate::encoding;
use crate::json::{copy, default, elements, list, map, set, text};

/// The user, target and surroundings of a write.
#[derive(Clone)]
pub struct Write<'a> {
    pub kind: &'a Kind,
    pub user: &'a str,
    pub groups: &'a [String],
    pub uid: &'a str,
    /// `""`, `status`, `approval`, `finalize` ...
    pub subresource: &'a str,
    /// The server's time, RFC 3339.
    pub now: &'a str,
    /// All objects, as they are before the write.
    pub state: &'a State,
}

/// The behaviour of one kind. Objects come in the storage version.
pub trait Rules: Send + Sync {
    /// Completes a new object: defaults, and fields that only the server sets.
    fn create(&self, _object: &mut Value, _write: &Write<'_>) -> Result<(), Failure> {
        Ok(())
    }

    /// Checks and completes a change. Status and spec have already been kept apart.
    fn update(&self, _old: &Value, _new: &mut Value, _write: &Write<'_>) -> Result<(), Failure> {
        Ok(())
    }

    /// Whether a change counts in `metadata.generation`.
    fn bumps_generation(&self, old: &Value, new: &Value) -> bool {
        strip(old) != strip(new)
    }

    /// Whether something else than the spec requests work and therefore counts as well. `asked` is what was sent, before
    /// [`Rules::update`].
    fn operation_bumps(&self, _old: &Value, _asked: &Value, _write: &Write<'_>) -> bool {
        false
    }

    /// Why the object may not be deleted now.
    fn holds_back(&self, _object: &Value, _state: &State) -> Option<String> {
        None
    }

    /// From the storage version to another.
    fn convert_out(&self, object: Value, _version: &str) -> Value {
        object
    }

    /// From another version to the storage version.
    fn convert_in(&self, object: Value, _version: &str) -> Value {
        object
    }
}

/// The object without what the server manages.
pub fn strip(object: &Value) -> Value {
    let mut rest = object.clone();
    if let Some(fields) = rest.as_object_mut() {
        for key in ["metadata", "status", "apiVersion", "kind"] {
            fields.remove(key);
        }
    }
    rest
}

/// A kind without rules of its own.
pub struct Plain;

impl Rules for Plain {}

/// RBAC: the referenced role of a binding may not change; subjects get their API group.
pub struct Seconds;

impl Rules for Seconds {
    fn create(&self, object: &mut Value, _write: &Write<'_>) -> Result<(), Failure> {
        if !object["roleRef"].is_null() {
            default(object, "/roleRef/apiGroup", "rbac.authorization.k8s.io");
        }
        for subject in elements(object, "/subjects") {
            if subject["kind"] != "ServiceAccount" {
                default(subject, "/apiGroup", "rbac.authorization.k8s.io");
            }
        }
        Ok(())
    }

    fn update(&self, old: &Value, new: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        self.create(new, write)?;
        if old["roleRef"] != new["roleRef"] {
            let why = format!("Invalid value: {}: cannot change roleRef", new["roleRef"]);
            return Err(invalid(write, new, "roleRef", &why));
        }
        Ok(())
    }
}

fn invalid(write: &Write<'_>, object: &Value, field: &str, why: &str) -> Failure {
    Failure::invalid(&write.kind.group, &write.kind.kind, text(object, "/metadata/name"), field, why)
}

/// Secrets and ConfigMaps: `immutable`, `stringData`, the type of a Secret.
pub struct Frozen {
    pub secret: bool,
}

impl Frozen {
    fn complete(&self, object: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        if !self.secret {
            return Ok(());
        }
        default(object, "/type", "Opaque");
        let plain = object.as_object_mut().and_then(|o| o.remove("stringData"));
        for (key, value) in plain.as_ref().and_then(Value::as_object).into_iter().flatten() {
            let data = encoding::base64(value.as_str().unwrap_or_default().as_bytes());
            map(object, "/data").insert(key.clone(), data.into());
        }
        for (key, value) in object["data"].as_object().into_iter().flatten() {
            if value.as_str().and_then(encoding::from_base64).is_none() {
                let message = format!(
                    "Secret in version \"v1\" cannot be handled as a Secret: data.{key} is not base64"
                );
                return Err(Failure::bad_request(message));
            }
        }
        if object["type"] == "kubernetes.io/tls" {
            for key in ["tls.crt", "tls.key"] {
                if object["data"][key].is_null() {
                    return Err(invalid(write, object, &format!("data[{key}]"), "Required value"));
                }
            }
        }
        Ok(())
    }
}

/// Maps without entries are not stored. Before that, an empty map differs from an absent one.
fn without_empty_maps(object: &mut Value) {
    for field in ["data", "binaryData"] {
        if object[field].as_object().is_some_and(Map::is_empty) {
            object.as_object_mut().and_then(|object| object.remove(field));
        }
    }
}

impl Rules for Frozen {
    fn create(&self, object: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        self.complete(object, write)?;
        without_empty_maps(object);
        Ok(())
    }

    fn update(&self, old: &Value, new: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        self.complete(new, write)?;
        if self.secret && old["type"] != new["type"] {
            let why = format!("Invalid value: {}: field is immutable", new["type"]);
            return Err(invalid(write, new, "type", &why));
        }
        if old["immutable"] == true {
            let frozen = [("immutable", "/immutable"), ("data", "/data"), ("binaryData", "/binaryData")];
            for (field, pointer) in frozen {
                if old.pointer(pointer) != new.pointer(pointer) {
                    let why = "Forbidden: field is immutable when `immutable` is set";
                    return Err(invalid(write, new, field, why));
                }
            }
        }
        without_empty_maps(new);
        Ok(())
    }
}

/// PriorityClasses: the value stays.
pub struct Priority;

impl Rules for Priority {
    fn create(&self, object: &mut Value, _write: &Write<'_>) -> Result<(), Failure> {
        default(object, "/preemptionPolicy", "PreemptLowerPriority");
        Ok(())
    }

    fn update(&self, old: &Value, new: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        self.create(new, write)?;
        if old["value"] != new["value"] {
            return Err(invalid(write, new, "value", "Forbidden: may not be changed in an update."));
        }
        Ok(())
    }
}

/// Namespaces: the name as a label, the finalizer of the spec, the phase.
pub struct Namespace;

impl Rules for Namespace {
    fn create(&self, object: &mut Value, _write: &Write<'_>) -> Result<(), Failure> {
        let name = text(object, "/metadata/name").to_owned();
        map(object, "/metadata/labels").insert("kubernetes.io/metadata.name".to_owned(), name.into());
        set(object, "/spec/finalizers", json!(["kubernetes"]));
        set(object, "/status", json!({"phase": "Active"}));
        Ok(())
    }

    fn update(&self, old: &Value, new: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        if write.subresource != "finalize" {
            copy(old, new, "/spec/finalizers");
        }
        let name = text(new, "/metadata/name").to_owned();
        map(new, "/metadata/labels").insert("kubernetes.io/metadata.name".to_owned(), name.into());
        Ok(())
    }
}

/// A port of all nodes that no Service has.
fn node_port(write: &Write<'_>) -> u16 {
    let taken = |port: u16| {
        let mut services = write.state.of("", "services", "");
        services.any(|(_, service)| list(service, "/spec/ports").iter().any(|p| p["nodePort"] == port))
    };
    let any = || 30_000 + u16::from_be_bytes(gardenlet::base::random::bytes::<2>()) % 2_768;
    std::iter::repeat_with(any).find(|port| !taken(*port)).unwrap_or_default()
}

/// Services: a cluster IP, which does not change, and a node port for types that have one.
pub struct ServiceRules;

impl Rules for ServiceRules {
    fn create(&self, object: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        default(object, "/spec/type", "ClusterIP");
        let is_exposed = object["spec"]["type"] == "NodePort" || object["spec"]["type"] == "LoadBalancer";
        default(object, "/spec/sessionAffinity", "None");
        default(object, "/spec/internalTrafficPolicy", "Cluster");
        set(object, "/status", json!({"loadBalancer": {}}));
        let families = addresses::families(object, write);
        if object["spec"]["type"] != "ExternalName" && text(object, "/spec/clusterIP").is_empty() {
            let all: Vec<String> = families.iter().map(|family| addresses::free(family, write)).collect();
            set(object, "/spec/clusterIP", all.first().cloned());
            set(object, "/spec/clusterIPs", all);
        }
        for port in elements(object, "/spec/ports") {
            default(port, "/protocol", "TCP");
            let number = port["port"].clone();
            default(port, "/targetPort", number);
            if is_exposed {
                default(port, "/nodePort", node_port(write));
            }
        }
        if let Some(address) = object["spec"].get("clusterIP").cloned() {
            default(object, "/spec/clusterIPs", json!([address]));
            default(object, "/spec/ipFamilies", families);
            default(object, "/spec/ipFamilyPolicy", "SingleStack");
        }
        Ok(())
    }

    fn update(&self, old: &Value, new: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        let external = new["spec"]["type"] == "ExternalName";
        if !external && text(new, "/spec/clusterIP").is_empty() {
            for pointer in ["/spec/clusterIP", "/spec/clusterIPs"] {
                copy(old, new, pointer);
            }
        }
        if !external
            && old["spec"]["clusterIP"].is_string()
            && old["spec"]["clusterIP"] != new["spec"]["clusterIP"]
        {
            let why = format!("Invalid value: {}: field is immutable", new["spec"]["clusterIPs"]);
            return Err(invalid(write, new, "spec.clusterIPs[0]", &why));
        }
        keep_node_ports(old, new);
        let before = new.clone();
        self.create(new, write)?;
        copy(&before, new, "/status");
        Ok(())
    }
}

/// Keeps the node ports of ports that still exist, though a PUT does not name them.
fn keep_node_ports(old: &Value, new: &mut Value) {
    if new["spec"]["type"] == "ClusterIP" {
        return;
    }
    for port in elements(new, "/spec/ports") {
        let before = list(old, "/spec/ports").iter();
        let mut before = before.filter(|p| p["port"] == port["port"] && p["nodePort"].is_u64());
        if let Some(before) = before.next() {
            default(port, "/nodePort", before["nodePort"].clone());
        }
    }
}

/// Pods and their controllers: the defaults that an agent may read back, and selectors that may not change.
pub struct Workload;

impl Rules for Workload {
    fn create(&self, object: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        let template = if write.kind.kind == "Pod" { "" } else { "/spec/template" };
        match write.kind.kind.as_str() {
            "Pod" => set(object, "/status", json!({"phase": "Pending", "qosClass": "BestEffort"})),
            "Deployment" | "StatefulSet" | "ReplicaSet" => {
                default(object, "/spec/replicas", 1);
                check_selector(object, write)?;
            }
            "DaemonSet" => check_selector(object, write)?,
            _ => {}
        }
        if write.kind.kind != "CronJob" {
            pod_defaults(object, template);
            let containers = list(object, &format!("{template}/spec/containers"));
            if containers.is_empty() {
                let field = format!("{template}/spec/containers").trim_start_matches('/').replace('/', ".");
                return Err(invalid(write, object, &field, "Required value"));
            }
        }
        Ok(())
    }

    fn update(&self, old: &Value, new: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        let before = new.clone();
        self.create(new, write)?;
        copy(&before, new, "/status");
        if write.kind.kind != "Pod" && old["spec"]["selector"] != new["spec"]["selector"] {
            let why = format!("Invalid value: {}: field is immutable", new["spec"]["selector"]);
            return Err(invalid(write, new, "spec.selector", &why));
        }
        Ok(())
    }
}

fn check_selector(object: &Value, write: &Write<'_>) -> Result<(), Failure> {
    if object["spec"]["selector"].is_null() {
        return Err(invalid(write, object, "spec.selector", "Required value"));
    }
    let labels = &object["spec"]["template"]["metadata"]["labels"];
    if !super::selector::matches_spec(&object["spec"]["selector"], labels) {
        let why = format!("Invalid value: {labels}: `selector` does not match template `labels`");
        return Err(invalid(write, object, "spec.template.metadata.labels", &why));
    }
    Ok(())
}

fn pod_defaults(object: &mut Value, template: &str) {
    for (key, value) in
        [("restartPolicy", "Always"), ("dnsPolicy", "ClusterFirst"), ("schedulerName", "default-scheduler")]
    {
        default(object, &format!("{template}/spec/{key}"), value);
    }
    default(object, &format!("{template}/spec/terminationGracePeriodSeconds"), 30);
    for container in elements(object, &format!("{template}/spec/containers")) {
        default(container, "/terminationMessagePath", "/dev/termination-log");
        default(container, "/terminationMessagePolicy", "File");
        default(container, "/imagePullPolicy", "IfNotPresent");
        default(container, "/resources", json!({}));
        for port in elements(container, "/ports") {
            default(port, "/protocol", "TCP");
        }
    }
}

/// Certificate signing requests: the server records the requestor, and the request never changes.
pub struct Csr;

impl Rules for Csr {
    fn create(&self, object: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        let spec = map(object, "/spec");
        spec.insert("username".into(), write.user.into());
        spec.insert("groups".into(), json!(write.groups));
        for key in ["uid", "extra"] {
            spec.remove(key);
        }
        if !write.uid.is_empty() {
            spec.insert("uid".into(), write.uid.into());
        }
        set(object, "/status", json!({}));
        let request = object["spec"]["request"].as_str().and_then(encoding::from_base64).unwrap_or_default();
        if crate::pki::request_subject(&String::from_utf8_lossy(&request)).is_none() {
            let why = "Invalid value: []byte{}: PEM block type must be CERTIFICATE REQUEST";
            return Err(invalid(write, object, "spec.request", why));
        }
        if text(object, "/spec/signerName").is_empty() {
            return Err(invalid(write, object, "spec.signerName", "Required value"));
        }
        if list(object, "/spec/usages").is_empty() {
            return Err(invalid(write, object, "spec.usages", "Required value: usages must be set"));
        }
        if object["spec"]["expirationSeconds"].as_i64().is_some_and(|s| s < 600) {
            let why = format!(
                "Invalid value: {}: may not specify a duration less than 600 seconds (10 minutes)",
                object["spec"]["expirationSeconds"]
            );
            return Err(invalid(write, object, "spec.expirationSeconds", &why));
        }
        Ok(())
    }

    fn update(&self, old: &Value, new: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        copy(old, new, "/spec");
        match write.subresource {
            "approval" => copy(old, new, "/status/certificate"),
            "status" => keep_approval(old, new),
            _ => copy(old, new, "/status"),
        }
        for condition in elements(new, "/status/conditions") {
            default(condition, "/lastUpdateTime", write.now);
            default(condition, "/lastTransitionTime", write.now);
        }
        Ok(())
    }
}

/// `/status` may not touch the conditions that `/approval` sets.
fn keep_approval(old: &Value, new: &mut Value) {
    let decides = |c: &&Value| matches!(c["type"].as_str(), Some("Approved" | "Denied"));
    let mut conditions: Vec<Value> =
        list(old, "/status/conditions").iter().filter(decides).cloned().collect();
    conditions.extend(list(new, "/status/conditions").iter().filter(|c| !decides(c)).cloned());
    if !conditions.is_empty() {
        set(new, "/status/conditions", conditions);
    }
}

/// CustomResourceDefinitions.
pub struct Definition;

impl Rules for Definition {
    fn create(&self, object: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        let plural = text(object, "/spec/names/plural").to_owned();
        let expected = format!("{plural}.{}", text(object, "/spec/group"));
        if text(object, "/metadata/name") != expected {
            let why = format!(
                "Invalid value: {:?}: must be spec.names.plural+\".\"+spec.group",
                text(object, "/metadata/name")
            );
            return Err(invalid(write, object, "metadata.name", &why));
        }
        let kind = text(object, "/spec/names/kind").to_owned();
        default(object, "/spec/names/singular", kind.to_lowercase());
        default(object, "/spec/names/listKind", format!("{kind}List"));
        default(object, "/spec/conversion", json!({"strategy": "None"}));
        let stored: Vec<&Value> =
            list(object, "/spec/versions").iter().filter(|v| v["storage"] == true).collect();
        if stored.len() != 1 {
            let why = "Invalid value: must have exactly one version marked as storage version";
            return Err(invalid(write, object, "spec.versions", why));
        }
        for (i, version) in list(object, "/spec/versions").iter().enumerate() {
            if version["schema"]["openAPIV3Schema"].is_null() {
                let field = format!("spec.versions[{i}].schema.openAPIV3Schema");
                return Err(invalid(write, object, &field, "Required value: schemas are required"));
            }
        }
        let storage = stored[0]["name"].clone();
        set(
            object,
            "/status",
            json!({"conditions": [], "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": [storage]}),
        );
        Ok(())
    }

    fn update(&self, old: &Value, new: &mut Value, write: &Write<'_>) -> Result<(), Failure> {
        let before = new.clone();
        self.create(new, write)?;
        copy(&before, new, "/status");
        if old["spec"]["scope"] != new["spec"]["scope"] {
            let why = format!("Invalid value: {}: field is immutable", new["spec"]["scope"]);
            return Err(invalid(write, new, "spec.scope", &why));
        }
        Ok(())
    }
}
