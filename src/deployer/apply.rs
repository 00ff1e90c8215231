//! The agent's chart in another cluster: renders, writes and removes it.
//!
//! An object whose rendered form has changed is replaced by the chart's. Otherwise only the fields that the chart sets
//! are compared, so that nothing is written without a change. A checksum distinguishes the two cases.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::api::core::{
    CONFIG_MAP, DEPLOYMENT, NAMESPACE as NAMESPACES, NETWORK_POLICY, POD_DISRUPTION_BUDGET, PRIORITY_CLASS,
    SECRET, SERVICE, SERVICE_ACCOUNT,
};
use crate::api::meta::{CLUSTER_SCOPED, Key, Resource, annotation, text};
use crate::api::patch::difference;
use crate::api::rbac::{CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING};
use crate::base::error::chain;
use crate::base::json::json;
use crate::base::stop::Stop;
use crate::base::workers::Workers;
use crate::chart::ValuesTable;
use crate::chart::child::{self, Archive, RenderRequest, RenderedObjects, Renderer};
use crate::chart::manifest::install_rank;
use crate::components::managed::sha256_hex;
use crate::extension::problem;
use crate::flow::Failed;
use crate::kube::{Client, Error, Patch};
use crate::runtime::write;

use super::{NAME, NAMESPACE};

/// The chart that is part of this program.
pub(crate) static CHART: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/chart.tgz"));
/// The digest of an object's last rendered form.
const RENDERED: &str = "edge.gardenlet/rendered";
/// When to retry while other charts are being pulled or rendered.
pub(crate) const BUSY_AGAIN: Duration = Duration::from_secs(2);
/// The kinds of the chart.
static KINDS: [Resource; 12] = [
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    DEPLOYMENT,
    NETWORK_POLICY,
    POD_DISRUPTION_BUDGET,
    PRIORITY_CLASS,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
];

/// Renders an agent's chart for a cluster, as soon as one of the `workers` is available. Errors: other charts
/// are being rendered; the cluster does not return its version; the values are invalid.
pub(crate) fn render<'a>(
    client: &Client,
    renderer: &Renderer,
    workers: &Workers,
    chart: impl Into<Archive<'a>>,
    values: Value,
    stop: &Stop,
) -> Result<RenderedObjects, Failed> {
    let busy = || Failed { postponed: Some(BUSY_AGAIN), ..Failed::new("other charts are being rendered") };
    let _worker = workers.chart_soon(stop).ok_or_else(busy)?;
    let version = client.version()?;
    let request = RenderRequest {
        name: NAME.to_owned(),
        namespace: NAMESPACE.to_owned(),
        values,
        resources: Value::Null,
        mix_in: ValuesTable::new(),
        kubernetes_version: version.git_version,
        kubernetes_major: version.major,
        kubernetes_minor: version.minor,
        apart: true,
    };
    renderer.render(&request, chart, stop).map_err(|error| {
        let is_later = matches!(error, child::Error::Busy | child::Error::Stopped);
        let text = format!("failed rendering gardenlet chart: {}", chain(&error));
        Failed { postponed: is_later.then_some(BUSY_AGAIN), ..Failed::new(text) }
    })
}

/// The objects in the order of their installation.
fn sorted(objects: RenderedObjects) -> Result<Vec<(&'static Resource, Value)>, Failed> {
    let mut all = Vec::new();
    for (_, object) in objects {
        let kind = text(&object["kind"]).to_owned();
        let known = KINDS.iter().find(|resource| resource.kind == kind.as_str());
        let resource = known.ok_or_else(|| Failed::new(format!("the chart has an object of kind {kind}")))?;
        all.push((resource, object));
    }
    all.sort_by_cached_key(|(resource, _)| {
        let (rank, kind) = install_rank(&resource.kind);
        (rank, kind.to_owned())
    });
    Ok(all)
}

fn key(resource: &Resource, object: &Value) -> Key {
    let namespace = text(&object["metadata"]["namespace"]);
    let namespace = match (resource.namespaced, namespace) {
        (false, _) => "",
        (true, "") => NAMESPACE,
        (true, namespace) => namespace,
    };
    Key::new(namespace, text(&object["metadata"]["name"]))
}

/// Writes all objects. A failure does not stop the others. Errors: the objects that could not be written.
pub(crate) fn apply(client: &Client, objects: RenderedObjects) -> Result<(), Failed> {
    let mut failed = Failed::default();
    for (resource, object) in sorted(objects)? {
        let key = key(resource, &object);
        if let Err(error) = apply_object(client, resource, &key, object) {
            let codes = if error.is_denied() { problem("").codes } else { Vec::new() };
            let one = Failed::from(error);
            if one.postponed.is_some() {
                return Err(one);
            }
            let before = if failed.text.is_empty() { String::new() } else { failed.text + "; " };
            failed = Failed::new(format!("{before}{} {key}: {}", resource.kind, one.text));
            failed.codes = codes;
        }
    }
    if failed.text.is_empty() {
        return Ok(());
    }
    failed.text = format!("failed applying gardenlet chart: {}", failed.text);
    Err(failed)
}

/// Writes all objects to the agent's own cluster. The Deployment is written last, and only after all other
/// writes succeeded, because it ends this agent. Errors: the objects that could not be written.
pub(crate) fn replace(client: &Client, objects: RenderedObjects) -> Result<(), Failed> {
    let is_last = |object: &Value| object["kind"] == DEPLOYMENT.kind.as_ref();
    let (last, first) = objects.into_iter().partition::<RenderedObjects, _>(|(_, object)| is_last(object));
    apply(client, first).and_then(|()| apply(client, last)).map_err(|mut failed| {
        if !failed.codes.is_empty() {
            failed.text.push_str(
                ": this agent may not do it; the Deployment stays as it is; apply the chart yourself once, with upgrade.allowed",
            );
        }
        failed
    })
}

fn apply_object(client: &Client, resource: &Resource, key: &Key, mut object: Value) -> Result<(), Error> {
    let digest = sha256_hex(object.to_string().as_bytes());
    object["metadata"]["annotations"][RENDERED] = json!(digest);
    if resource.namespaced {
        object["metadata"]["namespace"] = json!(key.namespace);
    }
    let Some(live) = client.find::<Value>(resource, key)? else {
        return client.create::<Value>(resource, &key.namespace, &object).map(drop);
    };
    match change(&live, &object, digest == annotation(&live, RENDERED)) {
        None => Ok(()),
        Some(patch) => client.patch::<Value>(resource, key, &Patch::Merge(patch)).map(drop),
    }
}

/// The patch that turns a live object into the chart's.
fn change(live: &Value, object: &Value, is_known: bool) -> Option<Value> {
    let mut wanted = live.clone();
    if is_known {
        cover(&mut wanted, object);
        return difference(live, &wanted);
    }
    for (name, value) in object.as_object().into_iter().flatten() {
        if name != "metadata" {
            wanted[name] = value.clone();
        }
    }
    // Remove fields that the chart does not set any more. Fields of the server are not the chart's.
    let parts = ["data", "stringData", "rules", "subjects", "spec"];
    for part in parts.into_iter().filter(|part| object.get(*part).is_none()) {
        wanted.as_object_mut().into_iter().for_each(|wanted| drop(wanted.remove(part)));
    }
    for name in ["labels", "annotations"] {
        for (key, value) in object["metadata"][name].as_object().into_iter().flatten() {
            wanted["metadata"][name][key] = value.clone();
        }
    }
    if object["kind"] == "Service" {
        // Fields that the cluster has set.
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort"] {
            if !live["spec"][field].is_null() {
                wanted["spec"][field] = live["spec"][field].clone();
            }
        }
    }
    difference(live, &wanted)
}

/// Merges the fields of `over` into `under`, also within lists of equal length, so that fields of the server stay.
fn cover(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over.iter().filter(|(_, value)| !value.is_null()) {
                cover(under.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(under), Value::Array(over)) if under.len() == over.len() => {
            under.iter_mut().zip(over).for_each(|(under, over)| cover(under, over));
        }
        (under, over) => *under = over.clone(),
    }
}

/// Deletes all objects, the Deployment last: while it exists, there is more to delete.
pub(crate) fn remove(client: &Client, objects: RenderedObjects) -> Result<(), Failed> {
    let all = sorted(objects)?;
    let (last, first): (Vec<_>, Vec<_>) =
        all.iter().rev().partition(|(resource, _)| resource.kind == DEPLOYMENT.kind);
    for (resource, object) in first.into_iter().chain(last) {
        write::delete(client, resource, &key(resource, object))?;
    }
    Ok(())
}

/// Creates the namespace of the agent if it is missing.
pub(crate) fn ensure_namespace(client: &Client) -> Result<(), Error> {
    if client.find::<Value>(&NAMESPACES, &Key::cluster(NAMESPACE))?.is_some() {
        return Ok(());
    }
    let labels = Map::from_iter([("gardener.cloud/role".to_owned(), json!(NAMESPACE))]);
    let namespace = json!({"apiVersion": "v1", "kind": NAMESPACES.kind, "metadata": {"name": NAMESPACE, "labels": labels}});
    client.create::<Value>(&NAMESPACES, CLUSTER_SCOPED, &namespace).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::sorted::SortedSet;
    use crate::chart::archive;
    use crate::chart::render::{Options, RenderMode, render};

    #[test]
    fn the_packed_chart_is_complete_and_its_kinds_are_known() {
        let chart = archive::load(CHART).unwrap();
        assert_eq!(chart.name(), NAME);
        assert!(chart.schema.is_some() && chart.templates.len() >= 7 && chart.files.is_empty(), "{chart:?}");
        for case in [
            include_str!("../../packaging/chart/ci/bootstrap-values.yaml"),
            include_str!("../../packaging/chart/ci/everything-values.yaml"),
        ] {
            let values = crate::chart::values::read(case).unwrap();
            let options = Options { values, ..Options::new(RenderMode::Extension, NAME, NAMESPACE) };
            let objects = render(archive::load(CHART).unwrap(), &options).unwrap().objects_apart();
            let count = objects.len();
            let sorted = sorted(objects).unwrap();
            assert!(count > 10 && sorted.len() == count);
            let roles = sorted
                .iter()
                .filter(|(resource, _)| **resource == ROLE)
                .map(|(resource, role)| key(resource, role));
            let namespaces: SortedSet<String> = roles.map(|role| role.namespace).collect();
            assert_eq!(namespaces, SortedSet::from(["default", "garden", "kube-system"].map(str::to_owned)));
            assert!(sorted.iter().all(|(resource, object)| !key(resource, object).name.is_empty()));
        }
    }

    #[test]
    fn nothing_is_written_when_nothing_has_changed() {
        let object = json!({"kind": "Deployment", "metadata": {"name": "g", "annotations": {RENDERED: "d"}},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "g", "image": "x"}]}}}});
        let mut live = object.clone();
        live["metadata"]["uid"] = json!("u");
        live["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = json!("IfNotPresent");
        live["spec"]["strategy"] = json!({"type": "RollingUpdate"});
        live["status"] = json!({"replicas": 2});
        assert_eq!(change(&live, &object, true), None);
        // The Deployment was scaled manually.
        live["spec"]["replicas"] = json!(0);
        assert_eq!(change(&live, &object, true), Some(json!({"spec": {"replicas": 2}})));
        // The chart has changed, so fields that it does not set any more are removed.
        live["spec"]["replicas"] = json!(2);
        live["spec"]["minReadySeconds"] = json!(5);
        let patch = change(&live, &object, false).unwrap();
        assert_eq!(patch["spec"]["minReadySeconds"], Value::Null);
        assert!(patch["spec"].as_object().unwrap().contains_key("minReadySeconds"));
        assert_eq!((patch.get("status"), patch.get("metadata")), (None, None));
        let service = json!({"kind": "Service", "metadata": {"name": "g"}, "spec": {"ports": [{"port": 1}]}});
        let live = json!({"kind": "Service", "metadata": {"name": "g"}, "spec": {"ports": [{"port": 2}], "clusterIP": "10.0.0.1",
            "externalName": "x"}});
        let expected = json!({"spec": {"ports": [{"port": 1}], "externalName": null}});
        assert_eq!(change(&live, &service, false), Some(expected));
        let account = json!({"kind": "ServiceAccount", "metadata": {"name": "g"}});
        let live = json!({"kind": "ServiceAccount", "metadata": {"name": "g"}, "secrets": [{"name": "s"}]});
        assert_eq!(change(&live, &account, false), None);
    }
}
