//! The writer of control planes in the real seed: an account with only the roles that `packaging/rbac.yaml` has for
//! that.

use gardenlet::api::coordination::LEASE;
use gardenlet::api::core::{
    CONFIG_MAP, CRON_JOB, DEPLOYMENT, EVENT, JOB, NAMESPACE, POD, SERVICE_ACCOUNT, STATEFUL_SET,
};
use gardenlet::api::extensions::{
    CONTAINER_RUNTIME, CONTROL_PLANE, INFRASTRUCTURE, NETWORK, OPERATING_SYSTEM_CONFIG,
    SELF_HOSTED_SHOOT_EXPOSURE, WORKER,
};
use gardenlet::api::meta::{Key, Resource};
use gardenlet::config::control_plane::EtcdVolume;
use gardenlet::extension::HEARTBEAT;
use gardenlet::format::yaml;
use gardenlet::kube::{self, Client, DeleteParams, Discovery, ListParams, Method, Patch, Seed};
use gardenlet::operation::components::etcd::druid::copy::{self, CopyStores};
use gardenlet::operation::components::etcd::druid::{BackupStore, EtcdUpkeep};
use gardenlet::operation::components::etcd::plain::snapshots::{self, Snapshots, Store};
use gardenlet::operation::components::etcd::{Input, Role, Secrets, claims, druid};
use gardenlet::runtime::write;
use serde_json::{Value, json};

use crate::audit::{self, Audit};
use crate::cluster::Cluster;
use crate::failure::{Doing, Failure, Result, ensure, equal};
use crate::lab::Lab;
use crate::wait;
use support::api::patch::merge;
use support::api::rbac;
use support::garden::prepare;

const ACCOUNT: &str = "writer";
const USER: &str = "system:serviceaccount:garden:writer";
/// The kinds of objects that make nodes.
const OF_NODES: [Resource; 6] =
    [CONTAINER_RUNTIME, CONTROL_PLANE, INFRASTRUCTURE, NETWORK, OPERATING_SYSTEM_CONFIG, WORKER];
/// The kinds of another gardenlet that a deletion by force removes.
const LEFTOVERS: [Resource; 7] = [
    CONTAINER_RUNTIME,
    CONTROL_PLANE,
    INFRASTRUCTURE,
    NETWORK,
    OPERATING_SYSTEM_CONFIG,
    SELF_HOSTED_SHOOT_EXPOSURE,
    WORKER,
];

/// The account that writes.
pub(crate) struct Writer {
    pub(crate) client: Client,
    discovery: Discovery,
    /// The written objects, in this order.
    written: Vec<(Resource, Key)>,
    audit: Audit,
}

impl Writer {
    /// Creates the account and binds both of the agent's cluster-wide roles to it.
    pub(crate) fn new(lab: &Lab) -> Result<Self> {
        let meta = json!({"name": ACCOUNT, "namespace": "garden"});
        lab.seed.apply(&list(&[
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "garden"}}),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}),
        ]))?;
        lab.seed.apply(&list(&access()))?;
        let client = client(&lab.seed)?;
        // New bindings take effect within moments.
        wait::until("the writer's roles to be in force", 20, || {
            client.find::<Value>(&NAMESPACE, &Key::cluster("none"))?;
            client.find::<Value>(&CONFIG_MAP, &Key::new("garden", "none")).map(|_| Some(()))
        })?;
        let discovery = Discovery::new(client.clone());
        Ok(Self { discovery, client, written: Vec::new(), audit: lab.seed.audit() })
    }

    /// Creates all objects of a manifest or patches them.
    pub(crate) fn put_all(&mut self, manifest: &str) -> Result<()> {
        for document in yaml::parse_all(manifest) {
            self.put(&document.value.doing(|| "read a manifest".to_owned())?)?;
        }
        Ok(())
    }

    /// Creates an object, or patches it if it differs.
    pub(crate) fn put(&mut self, object: &Value) -> Result<()> {
        let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("/apiVersion"), text("/kind"));
        let resource = self.discovery.resource_for(version, kind)?;
        let resource = resource.ok_or_else(|| Failure::new(format!("{version} {kind} is not served")))?;
        let key = Key::new(text("/metadata/namespace"), text("/metadata/name"));
        write::ensure(&self.client, &resource, &key, &|live| merge(live, object))
            .doing(|| format!("write {kind} {key}"))?;
        if !self.written.iter().any(|(known, its)| known.plural == resource.plural && *its == key) {
            self.written.push((resource, key));
        }
        Ok(())
    }

    /// Annotates all written objects, as a reconciliation annotates the objects of extensions.
    pub(crate) fn touch(&self) -> Result<()> {
        for (resource, key) in &self.written {
            let mark =
                json!({"metadata": {"annotations": {"gardener.cloud/timestamp": "2026-01-01T00:00:00Z"}}});
            write::ensure(&self.client, resource, key, &|live| merge(live, &mark))
                .doing(|| format!("patch {} {key}", resource.kind))?;
        }
        Ok(())
    }

    /// The end of the log of a pod.
    pub(crate) fn log(&self, namespace: &str, selector: &str) -> Result<String> {
        let params = ListParams { label_selector: selector.to_owned(), ..ListParams::default() };
        let pods = self.client.list::<Value>(&POD, namespace, &params)?.items;
        let name = pods.first().and_then(|pod| pod["metadata"]["name"].as_str());
        let name = name.ok_or_else(|| Failure::new(format!("no pod with {selector}")))?;
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/log?tailLines=10");
        let answer = self.client.raw(Method::Get, &path, None, "")?;
        equal("the answer to GET pods/log", &answer.status, &200)?;
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }

    /// Reads what a flow reads while it waits for an etcd.
    pub(crate) fn look_for_causes(&self, namespace: &str, etcd: &str) -> Result<()> {
        let seed = Seed(self.client.clone());
        ensure(druid::may_label(&seed)?, || "there is a druid".to_owned())?;
        let set: Value = self.client.get(&STATEFUL_SET, &Key::new(namespace, etcd))?;
        let why = claims::look(&seed, &set)?.map(|failed| failed.text);
        equal("the problem of the volume", &why, &None)?;
        let events = self.client.list::<Value>(&EVENT, namespace, &ListParams::default())?;
        ensure(!events.items.is_empty(), || "there are no events".to_owned())
    }

    /// Writes the object from which an etcd-druid creates an etcd, and changes it. It is deleted with its namespace.
    pub(crate) fn write_for_a_druid(&self, namespace: &str) -> Result<()> {
        let seed = Seed(self.client.clone());
        let volume = EtcdVolume { storage_class: None, size: "1Gi".to_owned() };
        let secrets = Secrets { ca: "ca-etcd", server: "etcd-server", client: "etcd-client" };
        for replicas in [1, 0] {
            let input = Input { namespace, role: Role::Events, replicas, secrets, volume: &volume };
            let upkeep = EtcdUpkeep { defragmentation: "0 0 * * *".to_owned(), ..EtcdUpkeep::default() };
            druid::deploy(&seed, &input, &upkeep, self.client.clock().now())
                .doing(|| format!("write an Etcd with {replicas} replicas"))?;
        }
        let store = |secret| BackupStore {
            provider: "local".to_owned(),
            container: "bucket".to_owned(),
            prefix: "e/etcd-main".to_owned(),
            secret,
        };
        let stores =
            CopyStores { source: store("source-etcd-backup"), target: store("etcd-backup"), waits: true };
        let key = Key::new(namespace, "s2");
        copy::deploy(&seed, &key, &stores, "1").doing(|| "write an EtcdCopyBackupsTask".to_owned())?;
        copy::wait(&seed, &key).map_err(|failed| Failure::new(failed.text))?;
        copy::delete(&seed, &key).doing(|| "delete an EtcdCopyBackupsTask".to_owned())?;
        druid::delete(&seed, &Key::new(namespace, Role::Events.name())).doing(|| "delete an Etcd".to_owned())
    }

    /// Writes the CronJob for snapshots, and changes it. A correct one is not written again.
    pub(crate) fn write_snapshots(&self, namespace: &str) -> Result<()> {
        let seed = Seed(self.client.clone());
        let volume = EtcdVolume { storage_class: None, size: "1Gi".to_owned() };
        let secrets = Secrets { ca: "ca-etcd", server: "etcd-server", client: "etcd-client" };
        let input = Input { namespace, role: Role::Main, replicas: 1, secrets, volume: &volume };
        let mut version = Value::Null;
        for (store, is_suspended, is_right) in [
            (Store::Bucket, true, false),
            (Store::Directory("/s"), false, false),
            (Store::Directory("/s"), false, true),
        ] {
            let snapshots = Snapshots {
                store,
                entry: "e",
                image: "gardenlet:1",
                keep: 1,
                schedule: "0 0 1 1 *",
                window: ("", ""),
                is_suspended,
                now: self.client.clock().now(),
            };
            snapshots::deploy(&seed, &input, &snapshots).doing(|| "write a CronJob".to_owned())?;
            let live: Value = self.client.get(&CRON_JOB, &Key::new(namespace, snapshots::NAME))?;
            let now = live["metadata"]["resourceVersion"].clone();
            ensure((now == version) == is_right, || format!("a CronJob was written, or not: {live}"))?;
            version = now;
        }
        snapshots::delete(&seed, namespace).doing(|| "delete a CronJob".to_owned())?;
        self.write_job(namespace)
    }

    /// Makes the requests for a Job of a Shoot that moves. It never starts a pod.
    fn write_job(&self, namespace: &str) -> Result<()> {
        let pod = json!({"restartPolicy": "Never", "containers": [{"name": "copy", "image": "gardenlet:1"}]});
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "etcd-main-copy", "namespace": namespace},
            "spec": {"suspend": true, "template": {"spec": pod}}});
        let key = Key::new(namespace, "etcd-main-copy");
        self.client.create::<Value>(&JOB, namespace, &job)?;
        self.client.get::<Value>(&JOB, &key)?;
        self.client.list::<Value>(&JOB, namespace, &ListParams::default())?;
        Ok(self.client.delete(&JOB, &key, &DeleteParams::default())?)
    }

    /// Makes the reads of the care of Shoots, and those of a deletion by force.
    pub(crate) fn look_after(&self, namespace: &str) -> Result<()> {
        for (resource, namespace) in [
            (&DEPLOYMENT, ""),
            (&STATEFUL_SET, ""),
            (&druid::ETCD, ""),
            (&CRON_JOB, ""),
            (&CONFIG_MAP, namespace),
        ] {
            self.client.list::<Value>(resource, namespace, &ListParams::default())?;
        }
        self.client.find::<Value>(&LEASE, &Key::new(namespace, HEARTBEAT))?;
        OF_NODES.iter().try_for_each(|resource| self.write_for_nodes(resource, namespace))?;
        LEFTOVERS.iter().try_for_each(|resource| self.remove_what_is_left(resource, namespace))
    }

    /// Does what an operation does with an object that makes nodes. No extension of this cluster knows the type.
    fn write_for_nodes(&self, resource: &Resource, namespace: &str) -> Result<()> {
        let key = Key::new(namespace, "own");
        let labels = json!({"matchLabels": {"worker.gardener.cloud/pool": "a"}});
        let spec = json!({"type": "unknown", "region": "north", "secretRef": {"name": "cloudprovider", "namespace": namespace},
            "purpose": "reconcile", "pools": [], "podCIDR": "100.96.0.0/11", "serviceCIDR": "100.64.0.0/13", "binaryPath": "/bin",
            "workerPool": {"name": "a", "selector": labels}});
        let object = json!({"apiVersion": resource.api_version(), "kind": resource.kind,
            "metadata": {"name": "own", "namespace": namespace}, "spec": spec});
        // Whether the kind is served or not, the request needs the same right.
        let made = self.client.create::<Value>(resource, namespace, &object).map(drop);
        let status = Patch::Merge(json!({"status": {"observedGeneration": 1}}));
        let answered = self.client.patch_status::<Value>(resource, &key, &status).map(drop);
        let marked = json!({"metadata": {"annotations": {"confirmation.gardener.cloud/deletion": "true"}}});
        let confirmed = self.client.patch_blindly(resource, &key, &Patch::Merge(marked));
        let gone = self.client.delete(resource, &key, &DeleteParams::default());
        for answer in [made, answered, confirmed, gone] {
            match answer {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Does the same as a deletion by force with an object that another gardenlet has left. There is none.
    fn remove_what_is_left(&self, resource: &Resource, namespace: &str) -> Result<()> {
        let nothing = |answer: std::result::Result<(), kube::Error>| match answer {
            Err(error) if error.is_not_found() => Ok(()),
            other => other,
        };
        let found = self.client.find::<Value>(resource, &Key::new(namespace, "left"))?;
        equal("the remaining objects", &found, &None)?;
        nothing(self.client.patch_blindly(resource, &Key::new(namespace, "left"), &Patch::Merge(json!({}))))?;
        Ok(nothing(self.client.delete(resource, &Key::new(namespace, "left"), &DeleteParams::default()))?)
    }

    /// Deletes all written objects, the last one first, and waits for the end of the deletion.
    pub(crate) fn remove_all(&mut self) -> Result<()> {
        while let Some((resource, key)) = self.written.pop() {
            let what = format!("{} {key}", resource.kind);
            write::delete(&self.client, &resource, &key).doing(|| format!("delete {what}"))?;
            wait::until(&format!("the end of {what}"), 90, || {
                let found = self.client.find::<Value>(&resource, &key);
                found.map(|found| found.is_none().then_some(()))
            })?;
        }
        Ok(())
    }

    /// No request was refused, and each rule of the role for control planes was needed.
    pub(crate) fn needed_its_role(&mut self) -> Result<()> {
        let asked: Vec<_> =
            self.audit.requests()?.into_iter().filter(|request| request.user.username == USER).collect();
        let refused: Vec<_> = asked.iter().filter(|request| request.code() == 403).map(|r| &r.uri).collect();
        equal("refused", &refused, &Vec::new())?;
        let asked: Vec<_> = asked.iter().map(audit::Request::info).collect();
        let permissions = permissions();
        ensure(permissions.len() > 40, || format!("a role of {} permissions", permissions.len()))?;
        let unused = permissions.iter().filter(|one| !asked.iter().any(|info| rbac::covers(one, info)));
        equal("unneeded rules", &unused.map(Value::to_string).collect::<Vec<_>>(), &Vec::new())
    }
}

/// The cluster-wide roles of the agent, and bindings of the account to them.
fn access() -> Vec<Value> {
    let (first, shoots) = prepare::access();
    let is_agents = |object: &Value| {
        object["kind"] == "ClusterRole"
            || object["kind"] == "ClusterRoleBinding" && object["roleRef"]["name"] != "cluster-admin"
    };
    let mut all: Vec<Value> = first.into_iter().chain(shoots).filter(is_agents).collect();
    for binding in all.iter_mut().filter(|object| object["kind"] == "ClusterRoleBinding") {
        binding["subjects"][0]["name"] = json!(ACCOUNT);
    }
    all
}

/// Each verb for each resource of the role for control planes, as a separate rule.
fn permissions() -> Vec<Value> {
    let (_, shoots) = prepare::access();
    let all = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let mut found = Vec::new();
    for rule in shoots.iter().flat_map(|role| all(&role["rules"])) {
        for resource in all(&rule["resources"]) {
            for verb in all(&rule["verbs"]) {
                found.push(json!({"apiGroups": rule["apiGroups"], "resources": [resource], "verbs": [verb]}));
            }
        }
    }
    found
}

fn client(seed: &Cluster) -> Result<Client> {
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": [], "expirationSeconds": 3_600}});
    let answer: Value =
        seed.client()?.create_sub(&SERVICE_ACCOUNT, &Key::new("garden", ACCOUNT), "token", &request)?;
    seed.client_with_token(answer["status"]["token"].as_str().unwrap_or_default())
}

fn list(objects: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": objects})
}
