//! The applier of ManagedResources on a real API server with a real controller manager: defaults, immutable fields and
//! deletion, which the in-process server cannot prove.

use std::time::Duration;

use gardenlet::api::core::{CONFIG_MAP, NAMESPACE, SECRET};
use gardenlet::api::meta::{CLUSTER_SCOPED, Key, Resource};
use gardenlet::api::rbac::CLUSTER_ROLE_BINDING;
use gardenlet::api::resources::MANAGED_RESOURCE;
use gardenlet::base::clock::Clock;
use gardenlet::base::metrics::Metrics;
use gardenlet::base::stop::Stop;
use gardenlet::components::{crds, install, webhooks};
use gardenlet::format::{base64, brotli};
use gardenlet::kube::{Applier, Client, DeleteParams, Patch, Seed};
use gardenlet::resources::{ApplierSettings, ManagedResourceApplier};
use gardenlet::runtime::controller::{ReconcileContext, ReconcileOutcome, Reconciler};
use serde_json::{Value, json};

use crate::audit::Audit;
use crate::failure::{Failure, Result, ensure, equal};
use crate::lab::Lab;
use crate::wait;

const NAME: &str = "applier";

struct Rig {
    admin: Client,
    resources: ManagedResourceApplier,
    cx: ReconcileContext,
}

/// Objects of twenty kinds are applied, not written while they are correct, repaired, replaced and removed.
pub(crate) fn whole_life(lab: &mut Lab) -> Result<()> {
    let rig = Rig::new(lab)?;
    let mut audit = lab.seed.audit();
    rig.install(&manifests("one"))?;
    rig.settle()?;
    equal("applied", &rig.condition("ResourcesApplied")?, &"True ApplySucceeded".to_owned())?;
    ensure(!writes(&mut audit)?.is_empty(), || "the first writes are not in the audit log".to_owned())?;

    // The controller of Deployments annotates each new one, and the applier then writes it once more.
    let deployments = Resource::new("apps", "v1", "Deployment", "deployments", true);
    for name in ["fixed", "scaled"] {
        wait::until(&format!("the revision of {name}"), 30, || {
            let deployment: Value = rig.admin.get(&deployments, &Key::new(NAME, name))?;
            let revision = &deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"];
            Ok::<_, Failure>(revision.is_string().then_some(()))
        })?;
    }
    rig.settle()?;
    writes(&mut audit)?;

    // A default from the server is not a difference.
    let before = rig.versions()?;
    for _ in 0..2 {
        rig.settle()?;
    }
    equal("writes while nothing changes", &writes(&mut audit)?, &Vec::new())?;

    // An applier after a restart writes everything once, and still changes nothing.
    let rig = Rig { resources: applier(lab)?, ..rig };
    rig.settle()?;
    equal("objects after a restart", &rig.versions()?, &before)?;

    rig.damage()?;
    rig.settle()?;
    rig.is_repaired()?;

    rig.install(&manifests("two"))?;
    rig.settle()?;
    let map: Value = rig.admin.get(&CONFIG_MAP, &Key::new(NAME, "immutable"))?;
    equal("the immutable one", &map["data"]["key"], &json!("two"))?;

    rig.install(&manifests("two")[..3])?;
    rig.settle()?;
    equal("the number of recorded objects", &rig.recorded()?.len(), &3)?;

    rig.admin.delete(&MANAGED_RESOURCE, &Key::new(NAME, NAME), &DeleteParams::default())?;
    rig.settle()?;
    rig.is_gone()
}

/// The webhooks of a gardener-resource-manager that no longer exists refuse writes, with the words that the agent
/// recognizes, until they are removed.
pub(crate) fn webhooks_left_behind(lab: &mut Lab) -> Result<()> {
    const PLACE: &str = "hooked";
    let admin = lab.seed.client()?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE}});
    admin.create::<Value>(&NAMESPACE, CLUSTER_SCOPED, &namespace)?;
    equal("before", &webhooks::blocking(&admin)?, &None)?;
    leave_webhooks(&admin, &json!({"matchLabels": {"kubernetes.io/metadata.name": PLACE}}))?;
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    // The API server loads the configurations after a moment.
    let refusal = wait::until("a refusal", 30, || {
        let made = admin.create::<Value>(
            &CONFIG_MAP,
            PLACE,
            &map(&format!("before-{}", Clock::system().now().unix())),
        );
        Ok::<_, String>(made.err().filter(|error| error.status_code() == Some(500)))
    })?;
    let words = gardenlet::base::error::chain(&refusal);
    ensure(webhooks::is_unanswered(&words), || format!("the agent would not recognize this: {words}"))?;
    let blocking = webhooks::blocking(&admin)?.map(|blocking| blocking.command());
    let command = "kubectl delete mutatingwebhookconfiguration,validatingwebhookconfiguration gardener-resource-manager";
    equal("the command", &blocking.as_deref(), &Some(command))?;

    equal("removed", &webhooks::remove(&admin)?.len(), &2)?;
    equal("after", &webhooks::blocking(&admin)?, &None)?;
    wait::until("a write that is not refused", 30, || {
        let made = admin.create::<Value>(&CONFIG_MAP, PLACE, &map("after"));
        Ok::<_, String>(made.ok())
    })?;
    Ok(())
}

/// The webhooks of a gardener-resource-manager that no longer exists: they refuse ConfigMaps in namespaces with these
/// labels.
pub(crate) fn leave_webhooks(admin: &Client, namespaces: &Value) -> Result<()> {
    for (kind, plural) in [
        ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
        ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    ] {
        let resource = Resource::new("admissionregistration.k8s.io", "v1", kind, plural, false);
        let service = json!({"namespace": "garden", "name": "gardener-resource-manager", "path": "/webhooks", "port": 443});
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
            "resources": ["configmaps"]});
        let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": "gardener-resource-manager"}, "webhooks": [{
                "name": "high-availability-config.resources.gardener.cloud", "failurePolicy": "Fail",
                "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 2,
                "clientConfig": {"service": service}, "rules": [rule],
                "namespaceSelector": namespaces}]});
        admin.create::<Value>(&resource, CLUSTER_SCOPED, &configuration)?;
    }
    Ok(())
}

/// An applier that may do everything. Its group is one whose requests are in the audit log.
fn applier(lab: &Lab) -> Result<ManagedResourceApplier> {
    let client = lab.seed.client_of(NAME, Some("system:serviceaccounts:garden"))?;
    Ok(ManagedResourceApplier::new(Applier(client), ApplierSettings::default()))
}

/// Lets the user of the applier do everything, and waits until the server knows it.
fn allow(lab: &Lab, admin: &Client) -> Result<()> {
    let group = "rbac.authorization.k8s.io";
    let binding = json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": NAME},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": NAME}]});
    admin.create::<Value>(&CLUSTER_ROLE_BINDING, CLUSTER_SCOPED, &binding)?;
    let client = lab.seed.client_of(NAME, None)?;
    wait::until("the rights of the applier", 30, || {
        client.find::<Value>(&SECRET, &Key::new(NAME, NAME)).map(|_| Some(()))
    })
}

/// The applier's writes since the last call.
fn writes(audit: &mut Audit) -> Result<Vec<String>> {
    let all = audit.requests()?.into_iter().filter(|r| r.user.username == NAME && r.is_write());
    Ok(all.map(|r| format!("{} {}", r.verb, r.uri)).collect())
}

impl Rig {
    fn new(lab: &mut Lab) -> Result<Self> {
        let admin = lab.seed.client()?;
        wait::until("the kind ManagedResource", 30, || {
            install::ensure(&Seed(admin.clone()), crds::managed_resource())
                .map(|step| (step == install::Step::Done).then_some(()))
                .map_err(|err| err.to_string())
        })?;
        admin.create::<Value>(
            &NAMESPACE,
            CLUSTER_SCOPED,
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAME}}),
        )?;
        allow(lab, &admin)?;
        let clock = Clock::system();
        let cx = ReconcileContext {
            clock: clock.clone(),
            stop: Stop::new(),
            metrics: Metrics::new(),
            events: gardenlet::runtime::events::EventRecorder::new("test"),
        };
        Ok(Self { admin, resources: applier(lab)?, cx })
    }

    /// Writes the Secret with manifests and, the first time, the ManagedResource.
    fn install(&self, manifests: &[Value]) -> Result<()> {
        let text: Vec<String> = manifests.iter().map(Value::to_string).collect();
        let data = base64::encode(&brotli::encode(text.join("\n---\n").as_bytes()));
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME}, "data": {"data.yaml.br": data}});
        if self.admin.find::<Value>(&SECRET, &Key::new(NAME, NAME))?.is_some() {
            self.admin.patch::<Value>(&SECRET, &Key::new(NAME, NAME), &Patch::Merge(secret))?;
            return Ok(());
        }
        self.admin.create::<Value>(&SECRET, NAME, &secret)?;
        let resource = json!({"apiVersion": "resources.gardener.cloud/v1alpha1", "kind": "ManagedResource",
            "metadata": {"name": NAME}, "spec": {"class": "seed", "secretRefs": [{"name": NAME}],
                "deletePersistentVolumeClaims": true, "injectLabels": {"injected": "yes"}}});
        self.admin.create::<Value>(&MANAGED_RESOURCE, NAME, &resource)?;
        Ok(())
    }

    /// Rounds until there is nothing more to do.
    fn settle(&self) -> Result<()> {
        let key = Key::new(NAME, NAME);
        wait::until("the applier to settle", 60, || {
            match self.resources.applying().reconcile(&key, &self.cx) {
                Ok(ReconcileOutcome::After(d)) if d == Duration::from_secs(5) => Ok(None),
                Ok(_) => Ok(Some(())),
                Err(failure) => Err(failure.text()),
            }
        })
    }

    fn condition(&self, kind: &str) -> Result<String> {
        let object: Value = self.admin.get(&MANAGED_RESOURCE, &Key::new(NAME, NAME))?;
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|c| c["type"] == kind).cloned().unwrap_or_default();
        Ok(format!("{} {}", found["status"].as_str().unwrap_or("?"), found["reason"].as_str().unwrap_or("?")))
    }

    fn recorded(&self) -> Result<Vec<Value>> {
        let object: Value = self.admin.get(&MANAGED_RESOURCE, &Key::new(NAME, NAME))?;
        Ok(object["status"]["resources"].as_array().cloned().unwrap_or_default())
    }

    /// The UID, generation, labels and annotations of every applied object.
    fn versions(&self) -> Result<Vec<String>> {
        let mut all = Vec::new();
        for reference in self.recorded()? {
            let path = path(&reference)?;
            let object: Value =
                self.admin.get(&path, &Key::new(text(&reference, "namespace"), text(&reference, "name")))?;
            let metadata = &object["metadata"];
            all.push(format!(
                "{} {} {} {} {}",
                path.kind,
                metadata["uid"],
                metadata["generation"],
                metadata["labels"],
                metadata["annotations"]
            ));
        }
        Ok(all)
    }

    fn damage(&self) -> Result<()> {
        let deployments = Resource::new("apps", "v1", "Deployment", "deployments", true);
        let services = Resource::new("", "v1", "Service", "services", true);
        let change = json!({"spec": {"replicas": 3, "template": {"spec": {"nodeSelector": {"by": "hand"}}}}});
        self.admin.patch::<Value>(&deployments, &Key::new(NAME, "fixed"), &Patch::Merge(change.clone()))?;
        self.admin.patch::<Value>(&deployments, &Key::new(NAME, "scaled"), &Patch::Merge(change))?;
        let change =
            json!({"spec": {"selector": {"by": "hand"}}, "metadata": {"labels": {"theirs": "stays"}}});
        self.admin.patch::<Value>(&services, &Key::new(NAME, "ports"), &Patch::Merge(change))?;
        self.admin.delete(&CONFIG_MAP, &Key::new(NAME, "immutable"), &DeleteParams::default())?;
        Ok(())
    }

    fn is_repaired(&self) -> Result<()> {
        let deployments = Resource::new("apps", "v1", "Deployment", "deployments", true);
        let services = Resource::new("", "v1", "Service", "services", true);
        let (fixed, scaled): (Value, Value) = (
            self.admin.get(&deployments, &Key::new(NAME, "fixed"))?,
            self.admin.get(&deployments, &Key::new(NAME, "scaled"))?,
        );
        equal("replicas", &fixed["spec"]["replicas"], &json!(1))?;
        equal("replicas of an autoscaler", &scaled["spec"]["replicas"], &json!(3))?;
        equal("a field of others", &fixed["spec"]["template"]["spec"]["nodeSelector"], &Value::Null)?;
        let service: Value = self.admin.get(&services, &Key::new(NAME, "ports"))?;
        equal("the selector", &service["spec"]["selector"], &json!({"app": "x"}))?;
        equal("a label of others", &service["metadata"]["labels"]["theirs"], &json!("stays"))?;
        self.admin.get::<Value>(&CONFIG_MAP, &Key::new(NAME, "immutable"))?;
        Ok(())
    }

    fn is_gone(&self) -> Result<()> {
        ensure(self.admin.find::<Value>(&MANAGED_RESOURCE, &Key::new(NAME, NAME))?.is_none(), || {
            "it still exists".to_owned()
        })?;
        for manifest in manifests("two") {
            let (path, name) = (path(&manifest)?, text(&manifest["metadata"], "name").to_owned());
            let left: Option<Value> = self.admin.find(&path, &Key::new(NAME, &name))?;
            ensure(left.is_none(), || format!("{} {name} still exists", path.kind))?;
        }
        Ok(())
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// The resource path of an object's kind.
fn path(object: &Value) -> Result<Resource> {
    let (api_version, kind) = (text(object, "apiVersion").to_owned(), text(object, "kind").to_owned());
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let plural = match kind.as_str() {
        "NetworkPolicy" => "networkpolicies".to_owned(),
        "Ingress" => "ingresses".to_owned(),
        "PriorityClass" => "priorityclasses".to_owned(),
        other => format!("{}s", other.to_lowercase()),
    };
    let global =
        ["Namespace", "PriorityClass", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"];
    let namespaced = !global.contains(&kind.as_str());
    ensure(!kind.is_empty(), || format!("no kind: {object}"))?;
    Ok(Resource {
        group: group.to_owned().into(),
        version: version.to_owned().into(),
        kind: kind.into(),
        plural: plural.into(),
        namespaced,
    })
}

/// Objects of many kinds as charts write them: with the smallest set of fields that the server accepts.
fn manifests(value: &str) -> Vec<Value> {
    let object = |api_version: &str, kind: &str, name: &str, rest: Value| {
        let mut all =
            json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": NAME}});
        if let (Some(all), Value::Object(rest)) = (all.as_object_mut(), rest) {
            all.extend(rest);
        }
        all
    };
    let pod = json!({"containers": [{"name": "c", "image": "i", "env": [{"name": "V", "value": value}],
        "resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}}}]});
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": pod});
    let selector = json!({"matchLabels": {"app": "x"}});
    let job_pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let workload =
        |replicas: Value| json!({"spec": {"replicas": replicas, "selector": selector, "template": template}});
    let set = json!({"spec": {"serviceName": "ports", "selector": selector, "template": template,
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}}]}});
    let port = json!([{"port": 80}]);
    let backend = json!({"service": {"name": "ports", "port": {"number": 80}}});
    let widget = json!({"spec": {"group": "applier.example.org", "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    vec![
        object("v1", "ConfigMap", "immutable", json!({"immutable": true, "data": {"key": value}})),
        object(
            "v1",
            "Secret",
            "secret",
            json!({"stringData": null, "data": {"key": base64::encode(value.as_bytes())}}),
        ),
        object("v1", "ServiceAccount", "account", json!({"automountServiceAccountToken": false})),
        object("v1", "Service", "ports", json!({"spec": {"selector": {"app": "x"}, "ports": port}})),
        object("v1", "Service", "headless", json!({"spec": {"clusterIP": "None", "ports": port}})),
        object("v1", "Service", "nodes", json!({"spec": {"type": "NodePort", "ports": port}})),
        object("apps/v1", "Deployment", "fixed", workload(json!(1))),
        object("apps/v1", "Deployment", "scaled", workload(json!(1))),
        object("apps/v1", "StatefulSet", "set", set),
        object(
            "apps/v1",
            "DaemonSet",
            "everywhere",
            json!({"spec": {"selector": selector, "template": template}}),
        ),
        object("batch/v1", "Job", "once", json!({"spec": {"template": job_pod}})),
        object(
            "batch/v1",
            "CronJob",
            "often",
            json!({"spec": {"schedule": "0 0 * * *",
            "jobTemplate": {"spec": {"template": job_pod}}}}),
        ),
        object(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            "scaler",
            json!({"spec": {"maxReplicas": 3, "minReplicas": 3,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "scaled"}}}),
        ),
        object(
            "policy/v1",
            "PodDisruptionBudget",
            "budget",
            json!({"spec": {"minAvailable": 1, "selector": selector}}),
        ),
        object(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            "policy",
            json!({"spec": {"podSelector": {}, "ingress": [{}]}}),
        ),
        object("networking.k8s.io/v1", "Ingress", "door", json!({"spec": {"defaultBackend": backend}})),
        object(
            "rbac.authorization.k8s.io/v1",
            "Role",
            "role",
            json!({"rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        ),
        object(
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            "binding",
            json!({
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "role"},
            "subjects": [{"kind": "ServiceAccount", "name": "account", "namespace": NAME}]}),
        ),
        object(
            "scheduling.k8s.io/v1",
            "PriorityClass",
            "applier-low",
            json!({"value": -7, "description": "d"}),
        ),
        object("v1", "Namespace", "applier-made", json!({})),
        object("applier.example.org/v1", "Widget", "widget", json!({"spec": {"value": value}})),
        object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "widgets.applier.example.org", widget),
    ]
}
