//! The columns that kube-apiserver shows of its kinds.

use gardenlet::base::clock::Timestamp;
use serde_json::Value;

use super::table::{AGE, Cell, Column, NAME, condition, count, duration, since};
use crate::encoding::from_rfc3339;
use crate::json::{list, text};

const fn column(name: &'static str, cell: Cell) -> Column {
    Column::new(name, cell)
}

const fn wide(name: &'static str, cell: Cell) -> Column {
    Column::wide(name, cell)
}

const CONTAINERS: Column = wide("Containers", Cell::Made(|object| containers(object, "/name")));
const IMAGES: Column = wide("Images", Cell::Made(|object| containers(object, "/image")));
const SELECTOR: Column = wide("Selector", Cell::Made(|object| selector(&object["spec"]["selector"])));
const ROLE: Column = column(
    "Role",
    Cell::Made(|object| format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"))),
);
const WEBHOOKS: &[Column] = &[NAME, column("Webhooks", Cell::Count(&["/webhooks"])), AGE];

/// The columns of a kind; none if kube-apiserver has none for it.
pub fn of(group: &str, kind: &str) -> &'static [Column] {
    match group {
        "" => core(kind),
        "apps" => apps(kind),
        "rbac.authorization.k8s.io" if kind.ends_with("Binding") => {
            const {
                &[
                    NAME,
                    ROLE,
                    AGE,
                    wide("Users", Cell::Made(|object| subjects(object, "User"))),
                    wide("Groups", Cell::Made(|object| subjects(object, "Group"))),
                    wide("ServiceAccounts", Cell::Made(|object| subjects(object, "ServiceAccount"))),
                ]
            }
        }
        "admissionregistration.k8s.io" => admission(kind),
        _ => others(kind),
    }
}

fn core(kind: &str) -> &'static [Column] {
    match kind {
        "ConfigMap" => const { &[NAME, column("Data", Cell::Count(&["/data", "/binaryData"])), AGE] },
        "Endpoints" => const { &[NAME, column("Endpoints", Cell::Made(endpoints)), AGE] },
        "Event" => EVENT,
        "Namespace" => const { &[NAME, column("Status", Cell::At("/status/phase", "")), AGE] },
        "Node" => {
            const {
                &[
                    NAME,
                    column("Status", Cell::Made(node_status)),
                    column("Roles", Cell::Made(node_roles)),
                    AGE,
                    column("Version", Cell::At("/status/nodeInfo/kubeletVersion", "")),
                ]
            }
        }
        "Pod" => POD,
        "PersistentVolumeClaim" => CLAIM,
        "Secret" => {
            const { &[NAME, column("Type", Cell::At("/type", "")), column("Data", Cell::Count(&["/data"])), AGE] }
        }
        "Service" => {
            const {
                &[
                    NAME,
                    column("Type", Cell::At("/spec/type", "")),
                    column("Cluster-IP", Cell::At("/spec/clusterIP", "<none>")),
                    column("External-IP", Cell::Made(external_address)),
                    column("Port(s)", Cell::Made(ports)),
                    AGE,
                    wide("Selector", Cell::Made(|object| pairs(&object["spec"]["selector"]))),
                ]
            }
        }
        "ServiceAccount" => const { &[NAME, column("Secrets", Cell::Count(&["/secrets"])), AGE] },
        _ => &[],
    }
}

const EVENT: &[Column] = &[
    column("Last Seen", Cell::Timed(|event, now| since(last_seen(event), now))),
    column("Type", Cell::At("/type", "")),
    column("Reason", Cell::At("/reason", "")),
    column("Object", Cell::Made(involved)),
    wide("Subobject", Cell::At("/involvedObject/fieldPath", "")),
    wide("Source", Cell::Made(source)),
    column("Message", Cell::Made(|event| text(event, "/message").trim().to_owned())),
    wide("First Seen", Cell::Timed(|event, now| since(first_seen(event), now))),
    wide("Count", Cell::Made(|event| times(event).to_string())),
    wide("Name", Cell::At("/metadata/name", "")),
];

const POD: &[Column] = &[
    NAME,
    column(
        "Ready",
        Cell::Made(|pod| format!("{}/{}", statuses(pod, "ready"), count(pod, "/spec/containers"))),
    ),
    column("Status", Cell::Made(pod_status)),
    column("Restarts", Cell::Made(|pod| statuses(pod, "restartCount").to_string())),
    AGE,
    wide("IP", Cell::At("/status/podIPs/0/ip", "<none>")),
    wide("Node", Cell::At("/spec/nodeName", "<none>")),
    wide("Nominated Node", Cell::At("/status/nominatedNodeName", "<none>")),
    wide("Readiness Gates", Cell::At("/none", "<none>")),
];

const CLAIM: &[Column] = &[
    NAME,
    column("Status", Cell::At("/status/phase", "")),
    column("Volume", Cell::At("/spec/volumeName", "")),
    column("Capacity", Cell::At("/status/capacity/storage", "")),
    column("Access Modes", Cell::Made(access_modes)),
    column("StorageClass", Cell::At("/spec/storageClassName", "")),
    column("VolumeAttributesClass", Cell::At("/spec/volumeAttributesClassName", "<unset>")),
    AGE,
    wide("VolumeMode", Cell::At("/spec/volumeMode", "<unset>")),
];

fn apps(kind: &str) -> &'static [Column] {
    const READY: Column = column(
        "Ready",
        Cell::Made(|object| {
            let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
            format!("{}/{}", number("/status/readyReplicas"), number("/spec/replicas"))
        }),
    );
    match kind {
        "Deployment" => {
            const {
                &[
                    NAME,
                    READY,
                    column("Up-to-date", Cell::Number("/status/updatedReplicas")),
                    column("Available", Cell::Number("/status/availableReplicas")),
                    AGE,
                    CONTAINERS,
                    IMAGES,
                    SELECTOR,
                ]
            }
        }
        "StatefulSet" => const { &[NAME, READY, AGE, CONTAINERS, IMAGES] },
        "ReplicaSet" => {
            const {
                &[
                    NAME,
                    column("Desired", Cell::Number("/spec/replicas")),
                    column("Current", Cell::Number("/status/replicas")),
                    column("Ready", Cell::Number("/status/readyReplicas")),
                    AGE,
                    CONTAINERS,
                    IMAGES,
                    SELECTOR,
                ]
            }
        }
        "DaemonSet" => {
            const {
                &[
                    NAME,
                    column("Desired", Cell::Number("/status/desiredNumberScheduled")),
                    column("Current", Cell::Number("/status/currentNumberScheduled")),
                    column("Ready", Cell::Number("/status/numberReady")),
                    column("Up-to-date", Cell::Number("/status/updatedNumberScheduled")),
                    column("Available", Cell::Number("/status/numberAvailable")),
                    column(
                        "Node Selector",
                        Cell::Made(|object| pairs(&object["spec"]["template"]["spec"]["nodeSelector"])),
                    ),
                    AGE,
                    CONTAINERS,
                    IMAGES,
                    SELECTOR,
                ]
            }
        }
        _ => &[],
    }
}

fn admission(kind: &str) -> &'static [Column] {
    match kind {
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => WEBHOOKS,
        "ValidatingAdmissionPolicy" => {
            const {
                &[
                    NAME,
                    column("Validations", Cell::Count(&["/spec/validations"])),
                    column("ParamKind", Cell::At("/spec/paramKind/kind", "<unset>")),
                    AGE,
                ]
            }
        }
        "ValidatingAdmissionPolicyBinding" => {
            const {
                &[
                    NAME,
                    column("PolicyName", Cell::At("/spec/policyName", "")),
                    column("ParamRef", Cell::At("/spec/paramRef/name", "<unset>")),
                    AGE,
                ]
            }
        }
        _ => &[],
    }
}

fn others(kind: &str) -> &'static [Column] {
    match kind {
        "APIService" => {
            const {
                &[
                    NAME,
                    column("Service", Cell::Made(api_service)),
                    column(
                        "Available",
                        Cell::Made(|object| condition(object, "Available").unwrap_or("Unknown").to_owned()),
                    ),
                    AGE,
                ]
            }
        }
        "CertificateSigningRequest" => {
            const {
                &[
                    NAME,
                    AGE,
                    column("SignerName", Cell::At("/spec/signerName", "<none>")),
                    column("Requestor", Cell::At("/spec/username", "")),
                    column("RequestedDuration", Cell::Made(requested_duration)),
                    column("Condition", Cell::Made(request_condition)),
                ]
            }
        }
        "EndpointSlice" => {
            const {
                &[
                    NAME,
                    column("AddressType", Cell::At("/addressType", "")),
                    column("Ports", Cell::Made(|slice| joined(list(slice, "/ports"), "/port", "<unset>"))),
                    column(
                        "Endpoints",
                        Cell::Made(|slice| joined(list(slice, "/endpoints"), "/addresses/0", "<unset>")),
                    ),
                    AGE,
                ]
            }
        }
        "HorizontalPodAutoscaler" => {
            const {
                &[
                    NAME,
                    column(
                        "Reference",
                        Cell::Made(|object| {
                            let target = &object["spec"]["scaleTargetRef"];
                            format!("{}/{}", text(target, "/kind"), text(target, "/name"))
                        }),
                    ),
                    column("MinPods", Cell::At("/spec/minReplicas", "<unset>")),
                    column("MaxPods", Cell::Number("/spec/maxReplicas")),
                    column("Replicas", Cell::Number("/status/currentReplicas")),
                    AGE,
                ]
            }
        }
        "Job" => {
            const {
                &[
                    NAME,
                    column("Status", Cell::Made(job_status)),
                    column(
                        "Completions",
                        Cell::Made(|job| {
                            let number =
                                |pointer, or| job.pointer(pointer).and_then(Value::as_i64).unwrap_or(or);
                            format!("{}/{}", number("/status/succeeded", 0), number("/spec/completions", 1))
                        }),
                    ),
                    column("Duration", Cell::Timed(job_duration)),
                    AGE,
                ]
            }
        }
        "CronJob" => {
            const {
                &[
                    NAME,
                    column("Schedule", Cell::At("/spec/schedule", "")),
                    column("Timezone", Cell::At("/spec/timeZone", "<none>")),
                    column("Suspend", Cell::At("/spec/suspend", "<unset>")),
                    column("Active", Cell::Count(&["/status/active"])),
                    column("Last Schedule", Cell::Timed(last_schedule)),
                    AGE,
                ]
            }
        }
        "Lease" => const { &[NAME, column("Holder", Cell::At("/spec/holderIdentity", "")), AGE] },
        "NetworkPolicy" => {
            const {
                &[
                    NAME,
                    column("Pod-Selector", Cell::Made(|object| selector(&object["spec"]["podSelector"]))),
                    AGE,
                ]
            }
        }
        "PodDisruptionBudget" => {
            const {
                &[
                    NAME,
                    column("Min Available", Cell::At("/spec/minAvailable", "N/A")),
                    column("Max Unavailable", Cell::At("/spec/maxUnavailable", "N/A")),
                    column("Allowed Disruptions", Cell::Number("/status/disruptionsAllowed")),
                    AGE,
                ]
            }
        }
        "PriorityClass" => {
            const {
                &[
                    NAME,
                    column("Value", Cell::Number("/value")),
                    column("Global-Default", Cell::At("/globalDefault", "false")),
                    AGE,
                    wide("PreemptionPolicy", Cell::At("/preemptionPolicy", "")),
                ]
            }
        }
        _ => &[],
    }
}

/// One field of many objects, with commas.
fn joined(objects: &[Value], pointer: &str, none: &str) -> String {
    let texts: Vec<String> = objects.iter().filter_map(|object| object.pointer(pointer)).map(plain).collect();
    if texts.is_empty() { none.to_owned() } else { texts.join(",") }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn containers(object: &Value, pointer: &str) -> String {
    joined(list(object, "/spec/template/spec/containers"), pointer, "")
}

/// Labels, with commas.
fn pairs(labels: &Value) -> String {
    let texts: Vec<String> = labels
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", plain(value)))
        .collect();
    if texts.is_empty() { "<none>".to_owned() } else { texts.join(",") }
}

/// A label selector as text.
fn selector(selector: &Value) -> String {
    let mut texts: Vec<String> = Vec::new();
    if count(selector, "/matchLabels") > 0 {
        texts.push(pairs(&selector["matchLabels"]));
    }
    for expression in list(selector, "/matchExpressions") {
        let key = text(expression, "/key");
        let values: Vec<&str> = list(expression, "/values").iter().filter_map(Value::as_str).collect();
        texts.push(match text(expression, "/operator") {
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            operator => format!("{key} {} ({})", operator.to_lowercase(), values.join(",")),
        });
    }
    if texts.is_empty() { "<none>".to_owned() } else { texts.join(",") }
}

fn subjects(binding: &Value, kind: &str) -> String {
    let of_kind = list(binding, "/subjects").iter().filter(|subject| subject["kind"] == kind);
    let name = |subject: &Value| match text(subject, "/namespace") {
        "" => text(subject, "/name").to_owned(),
        namespace => format!("{namespace}/{}", text(subject, "/name")),
    };
    of_kind.map(name).collect::<Vec<_>>().join(", ")
}

fn endpoints(object: &Value) -> String {
    let mut all = Vec::new();
    for subset in list(object, "/subsets") {
        for port in list(subset, "/ports") {
            for address in list(subset, "/addresses") {
                all.push(format!("{}:{}", text(address, "/ip"), port["port"]));
            }
        }
    }
    match all.len() {
        0 => "<none>".to_owned(),
        1..4 => all.join(","),
        more => format!("{} + {} more...", all[..3].join(","), more - 3),
    }
}

fn external_address(service: &Value) -> String {
    let outside = joined(list(service, "/spec/externalIPs"), "", "");
    match text(service, "/spec/type") {
        "LoadBalancer" => {
            let ingress = list(service, "/status/loadBalancer/ingress");
            let addresses = ingress.iter().filter_map(|i| i.get("ip").or(i.get("hostname"))).map(plain);
            let all: Vec<String> = addresses.chain(Some(outside).filter(|o| !o.is_empty())).collect();
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        "ExternalName" => text(service, "/spec/externalName").to_owned(),
        _ if outside.is_empty() => "<none>".to_owned(),
        _ => outside,
    }
}

fn ports(service: &Value) -> String {
    let one = |port: &Value| {
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        match port["nodePort"].as_i64() {
            Some(of_node) if of_node > 0 => format!("{}:{of_node}/{protocol}", port["port"]),
            _ => format!("{}/{protocol}", port["port"]),
        }
    };
    let all: Vec<String> = list(service, "/spec/ports").iter().map(one).collect();
    if all.is_empty() { "<none>".to_owned() } else { all.join(",") }
}

fn node_status(node: &Value) -> String {
    let ready = match condition(node, "Ready") {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let closed = if node["spec"]["unschedulable"] == true { ",SchedulingDisabled" } else { "" };
    format!("{ready}{closed}")
}

fn node_roles(node: &Value) -> String {
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let roles = labels.filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/"));
    let roles: Vec<&str> = roles.filter(|role| !role.is_empty()).collect();
    if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") }
}

/// A field of the containers' statuses: a sum of numbers, or how often it is true.
fn statuses(pod: &Value, field: &str) -> i64 {
    let value = |status: &Value| status[field].as_i64().unwrap_or_else(|| i64::from(status[field] == true));
    list(pod, "/status/containerStatuses").iter().map(value).sum()
}

fn pod_status(pod: &Value) -> String {
    if pod["metadata"]["deletionTimestamp"].is_string() {
        return "Terminating".to_owned();
    }
    let state = |status: &Value| {
        let reason = |state: &str| status["state"][state]["reason"].as_str().map(str::to_owned);
        reason("waiting").or_else(|| reason("terminated"))
    };
    let found = list(pod, "/status/containerStatuses").iter().find_map(state);
    found.unwrap_or_else(|| match text(pod, "/status/reason") {
        "" => text(pod, "/status/phase").to_owned(),
        reason => reason.to_owned(),
    })
}

fn access_modes(claim: &Value) -> String {
    let short = |mode: &Value| match mode.as_str()? {
        "ReadWriteOnce" => Some("RWO"),
        "ReadOnlyMany" => Some("ROX"),
        "ReadWriteMany" => Some("RWX"),
        "ReadWriteOncePod" => Some("RWOP"),
        _ => None,
    };
    list(claim, "/status/accessModes").iter().filter_map(short).collect::<Vec<_>>().join(",")
}

fn involved(event: &Value) -> String {
    let (kind, name) =
        (text(event, "/involvedObject/kind").to_lowercase(), text(event, "/involvedObject/name"));
    if name.is_empty() { kind } else { format!("{kind}/{name}") }
}

/// The first of these fields that has a text.
fn first<'a>(object: &'a Value, pointers: &[&str]) -> &'a str {
    pointers.iter().map(|pointer| text(object, pointer)).find(|text| !text.is_empty()).unwrap_or_default()
}

fn source(event: &Value) -> String {
    let component = first(event, &["/source/component", "/reportingComponent"]);
    let instance = first(event, &["/source/host", "/reportingInstance"]);
    if instance.is_empty() { component.to_owned() } else { format!("{component}, {instance}") }
}

fn first_seen(event: &Value) -> &str {
    first(event, &["/firstTimestamp", "/eventTime"])
}

fn last_seen(event: &Value) -> &str {
    first(event, &["/series/lastObservedTime", "/lastTimestamp", "/firstTimestamp", "/eventTime"])
}

fn times(event: &Value) -> i64 {
    let number = |pointer: &str| event.pointer(pointer).and_then(Value::as_i64).filter(|n| *n > 0);
    number("/series/count").or_else(|| number("/count")).unwrap_or(1)
}

fn api_service(object: &Value) -> String {
    match &object["spec"]["service"] {
        Value::Object(_) => {
            let service = &object["spec"]["service"];
            format!("{}/{}", text(service, "/namespace"), text(service, "/name"))
        }
        _ => "Local".to_owned(),
    }
}

fn requested_duration(request: &Value) -> String {
    request["spec"]["expirationSeconds"].as_u64().map_or_else(|| "<none>".to_owned(), duration)
}

fn request_condition(request: &Value) -> String {
    let has = |kind: &str| condition(request, kind).is_some();
    let decided = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    };
    let failed = if has("Failed") { ",Failed" } else { "" };
    let issued = if text(request, "/status/certificate").is_empty() { "" } else { ",Issued" };
    format!("{decided}{failed}{issued}")
}

fn job_status(job: &Value) -> String {
    let is = |kind: &str| condition(job, kind) == Some("True");
    let status = match () {
        () if is("Complete") => "Complete",
        () if is("Failed") => "Failed",
        () if is("Suspended") => "Suspended",
        () => "Running",
    };
    status.to_owned()
}

fn job_duration(job: &Value, now: Timestamp) -> String {
    let at = |pointer: &str| from_rfc3339(text(job, pointer));
    let Some(start) = at("/status/startTime") else { return String::new() };
    duration(at("/status/completionTime").unwrap_or(now).since(start).as_secs())
}

fn last_schedule(job: &Value, now: Timestamp) -> String {
    match text(job, "/status/lastScheduleTime") {
        "" => "<none>".to_owned(),
        time => since(time, now),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::builtin;
    use super::super::table::{Include, table};
    use super::*;

    const NOW: &str = "2026-01-01T00:10:00Z";

    /// The cells of an object, and the names of the columns that `-o wide` adds.
    fn shown(group: &str, kind: &str, mut object: Value) -> (Value, Vec<String>) {
        object["metadata"]["name"] = json!("n");
        object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        let kinds = builtin::kinds();
        let kind = kinds.iter().find(|k| k.group == group && k.kind == kind).unwrap();
        let now = from_rfc3339(NOW).unwrap();
        let table = table(kind, &kind.storage, &[object], &json!({}), Include::None, now);
        let wide = list(&table, "/columnDefinitions").iter().filter(|column| column["priority"] == 1);
        (table["rows"][0]["cells"].clone(), wide.map(|column| text(column, "/name").to_owned()).collect())
    }

    #[test]
    fn kinds_have_the_cells_of_kube_apiserver() {
        let containers =
            json!({"spec": {"containers": [{"name": "a", "image": "i:1"}, {"name": "b", "image": "j:1"}]}});
        let selector = json!({"matchLabels": {"app": "x"}, "matchExpressions": [
            {"key": "k", "operator": "In", "values": ["1", "2"]}, {"key": "l", "operator": "DoesNotExist"}]});
        for (group, kind, object, expected) in [
            ("", "ConfigMap", json!({"data": {"a": "1"}, "binaryData": {"b": ""}}), json!(["n", 2, "10m"])),
            ("", "Secret", json!({"type": "Opaque", "data": {"a": ""}}), json!(["n", "Opaque", 1, "10m"])),
            ("", "Namespace", json!({"status": {"phase": "Active"}}), json!(["n", "Active", "10m"])),
            ("", "ServiceAccount", json!({}), json!(["n", 0, "10m"])),
            (
                "apps",
                "Deployment",
                json!({"spec": {"replicas": 2, "template": containers, "selector": selector},
                    "status": {"readyReplicas": 1, "updatedReplicas": 2}}),
                json!(["n", "1/2", 2, 0, "10m", "a,b", "i:1,j:1", "app=x,k in (1,2),!l"]),
            ),
            (
                "apps",
                "StatefulSet",
                json!({"spec": {"replicas": 1, "template": containers}}),
                json!(["n", "0/1", "10m", "a,b", "i:1,j:1"]),
            ),
            (
                "coordination.k8s.io",
                "Lease",
                json!({"spec": {"holderIdentity": "me"}}),
                json!(["n", "me", "10m"]),
            ),
            (
                "certificates.k8s.io",
                "CertificateSigningRequest",
                json!({"spec": {"signerName": "s", "username": "u", "expirationSeconds": 7_200},
                    "status": {"certificate": "eA==", "conditions": [{"type": "Approved", "status": "True"}]}}),
                json!(["n", "10m", "s", "u", "120m", "Approved,Issued"]),
            ),
            (
                "",
                "Service",
                json!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.1", "selector": {"app": "x"},
                    "ports": [{"port": 443, "nodePort": 30_000}, {"port": 53, "protocol": "UDP"}]}}),
                json!(["n", "NodePort", "10.0.0.1", "<none>", "443:30000/TCP,53/UDP", "10m", "app=x"]),
            ),
            (
                "",
                "Pod",
                json!({"spec": {"containers": [{}, {}], "nodeName": "m"}, "status": {"phase": "Running",
                    "containerStatuses": [{"ready": true, "restartCount": 2}, {"ready": false, "restartCount": 1,
                        "state": {"waiting": {"reason": "ImagePullBackOff"}}}]}}),
                json!(["n", "1/2", "ImagePullBackOff", "3", "10m", "<none>", "m", "<none>", "<none>"]),
            ),
            (
                "rbac.authorization.k8s.io",
                "ClusterRoleBinding",
                json!({"roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [{"kind": "Group", "name": "g"},
                    {"kind": "ServiceAccount", "name": "s", "namespace": "m"}]}),
                json!(["n", "ClusterRole/r", "10m", "", "g", "m/s"]),
            ),
            // A kind without columns of its own.
            ("rbac.authorization.k8s.io", "ClusterRole", json!({}), json!(["n", "2026-01-01T00:00:00Z"])),
        ] {
            assert_eq!(shown(group, kind, object).0, expected, "{kind}");
        }
        let wide = shown("apps", "Deployment", json!({})).1;
        assert_eq!(wide, ["Containers", "Images", "Selector"]);
    }

    #[test]
    fn events_tell_when_and_how_often() {
        let event = json!({"type": "Normal", "reason": "Done", "message": " It is done.\n",
            "involvedObject": {"kind": "Seed", "name": "s"}, "reportingComponent": "gardenlet", "reportingInstance": "h",
            "eventTime": "2026-01-01T00:01:00.000000Z"});
        let expected =
            json!(["9m", "Normal", "Done", "seed/s", "", "gardenlet, h", "It is done.", "9m", "1", "n"]);
        assert_eq!(shown("", "Event", event.clone()).0, expected);
        let mut repeated = event;
        repeated["series"] = json!({"count": 3, "lastObservedTime": "2026-01-01T00:09:30.000000Z"});
        let cells = shown("", "Event", repeated).0;
        assert_eq!((&cells[0], &cells[7], &cells[8]), (&json!("30s"), &json!("9m"), &json!("3")));
    }
}
