//! The etcd-druid of a site whose data move ([`super::Options::etcds`]), and the etcd-backup-restore beside each etcd-main.
//!
//! - An Etcd with the annotation for a reconciliation gets a StatefulSet and a Service as it wants them. Its status follows the
//!   StatefulSet. What belongs to it goes with it.
//! - etcd-main starts as that of an agent does (`etcd.rs`), with the newest snapshot of its store. It starts empty if there is none.
//! - A [`Sidecar`] answers at port 8080 of Service etcd-main-client with the certificate of etcd: it takes snapshots, and tells of them. It
//!   asks for no credentials.
//! - An EtcdCopyBackupsTask copies all snapshots. With `waitForFinalSnapshot` it first waits five minutes for a final one. If there are no
//!   snapshots, it copies nothing and succeeds.

use std::io::{self, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use gardenlet::api::core::{SECRET, SERVICE, STATEFUL_SET};
use gardenlet::api::meta::Key;
use gardenlet::base::thread;
use gardenlet::operation::components::etcd::druid::ETCD;
use gardenlet::operation::components::etcd::druid::copy::COPY_TASK;
use serde_json::{Value, json};

use super::Shared;
use super::buckets::Snapshot;
use super::etcd::{self, Etcds, MEMBER};
use super::scene::{Scene, is_alive, is_ready, owned_by, place};
use crate::encoding::{from_base64, from_rfc3339, http_date};
use crate::http::message::{Request, Response};
use crate::http::tls::{Stream, server_config};
use crate::json::{entry, text};
use crate::pki::Identity;

const FINALIZER: &str = "druid.gardener.cloud/etcd-druid";
const OPERATION: &str = "gardener.cloud/operation";
const STACK_BYTES: usize = 1 << 20;
/// How long a copy waits for a final snapshot.
const PATIENCE: Duration = Duration::from_secs(300);

/// Handles the objects of a druid. True if something is not finished.
pub fn look(shared: &Shared, scene: &Scene, etcds: &Etcds) -> bool {
    let waits: Vec<bool> = scene
        .etcds
        .iter()
        .map(|etcd| reconcile(shared, scene, etcd))
        .chain(scene.copies.iter().map(|task| copy(shared, etcds, task)))
        .collect();
    beside(shared, scene);
    waits.contains(&true)
}

fn reconcile(shared: &Shared, scene: &Scene, etcd: &Value) -> bool {
    let (hands, (namespace, name)) = (&shared.hands, place(etcd));
    let set = Scene::find(&scene.stateful_sets, namespace, name);
    let service_name = format!("{name}-client");
    let service = Scene::find(&scene.services, namespace, &service_name);
    if !is_alive(etcd) {
        set.into_iter().for_each(|set| hands.delete(&STATEFUL_SET, set));
        service.into_iter().for_each(|service| hands.delete(&SERVICE, service));
        if set.is_none() && service.is_none() {
            hands.merge(&ETCD, etcd, json!({"metadata": {"finalizers": null}}));
        }
        return true;
    }
    if entry(etcd, "/metadata/annotations", OPERATION) == Some("reconcile") {
        match set {
            None => hands.create(&STATEFUL_SET, namespace, &stateful_set(etcd)),
            Some(set) => {
                hands.merge(&STATEFUL_SET, set, json!({"spec": {"replicas": etcd["spec"]["replicas"]}}));
            }
        }
        if service.is_none() {
            hands.create(&SERVICE, namespace, &client_service(etcd, &service_name));
        }
        // A request that came meanwhile stays.
        let done = json!({"metadata": {"annotations": {OPERATION: null}, "finalizers": [FINALIZER],
            "resourceVersion": etcd["metadata"]["resourceVersion"]}});
        hands.merge(&ETCD, etcd, done);
        hands.set_status(
            &ETCD,
            etcd,
            json!({"observedGeneration": etcd["metadata"]["generation"], "ready": false}),
        );
        return true;
    }
    let wanted = etcd["spec"]["replicas"].as_u64().unwrap_or(0);
    let is_made = set.is_some_and(|set| {
        let (status, generation) = (&set["status"], &set["metadata"]["generation"]);
        set["spec"]["replicas"] == wanted
            && status["observedGeneration"] == *generation
            && status["readyReplicas"].as_u64().unwrap_or(0) == wanted
    });
    let updated = json!([{"type": "AllMembersUpdated", "status": if is_made { "True" } else { "False" }}]);
    hands.set_status(&ETCD, etcd, json!({"ready": is_made && wanted > 0, "conditions": updated}));
    !is_made
}

fn selector(etcd: &Value) -> Value {
    json!({"app.kubernetes.io/managed-by": "etcd-druid", "app.kubernetes.io/part-of": etcd["metadata"]["name"]})
}

fn stateful_set(etcd: &Value) -> Value {
    let (spec, name) = (&etcd["spec"], text(etcd, "/metadata/name"));
    let store = &spec["backup"]["store"];
    let mut labels = spec["labels"].clone();
    let selector = selector(etcd);
    crate::api::patch::merge(&mut labels, &selector);
    let mut arguments = vec!["etcd".to_owned(), "start".to_owned()];
    let (mut volumes, mut mounts) = (json!([]), json!([]));
    if store.is_object() {
        arguments
            .extend(["--s3=/var/etcd/backup".to_owned(), format!("--prefix={}", text(store, "/prefix"))]);
        volumes = json!([{"name": "backup", "secret": {"secretName": store["secretRef"]["name"]}}]);
        mounts = json!([{"name": "backup", "mountPath": "/var/etcd/backup"}]);
    }
    let container =
        json!({"name": "etcd", "image": "etcd-wrapper:1", "args": arguments, "volumeMounts": mounts});
    let claim = json!({"metadata": {"name": spec["volumeClaimTemplate"]}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": spec["storageCapacity"]}}}});
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": name, "labels": labels,
            "ownerReferences": owned_by(etcd, "druid.gardener.cloud/v1alpha1", "Etcd")},
        "spec": {"replicas": spec["replicas"], "serviceName": format!("{name}-peer"),
            "selector": {"matchLabels": selector}, "volumeClaimTemplates": [claim],
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container], "volumes": volumes}}}})
}

fn client_service(etcd: &Value, name: &str) -> Value {
    let port =
        |name: &str, port: u16| json!({"name": name, "port": port, "targetPort": port, "protocol": "TCP"});
    json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "annotations": etcd["spec"]["etcd"]["clientService"]["annotations"],
            "ownerReferences": owned_by(etcd, "druid.gardener.cloud/v1alpha1", "Etcd")},
        "spec": {"type": "ClusterIP", "selector": selector(etcd),
            "ports": [port("client", 2379), port("server", 2380), port("backuprestore", 8080)]}})
}

fn copy(shared: &Shared, etcds: &Etcds, task: &Value) -> bool {
    if !is_alive(task) || task["status"]["conditions"].is_array() {
        return false;
    }
    let of = |store: &str| {
        let part = |field: &str| text(task, &format!("/spec/{store}/{field}")).to_owned();
        (part("container"), part("prefix"))
    };
    let ((from, prefix), (to, new_prefix)) = (of("sourceStore"), of("targetStore"));
    let ended = |kind: &str, message: String| {
        let condition = json!([{"type": kind, "status": "True", "message": message}]);
        let status = json!({"observedGeneration": task["metadata"]["generation"], "conditions": condition});
        shared.hands.set_status(&COPY_TASK, task, status);
    };
    let all = match etcds.buckets.list(&from, &prefix) {
        Ok(all) => all,
        Err(why) => {
            ended("Failed", why);
            return true;
        }
    };
    let since = from_rfc3339(text(task, "/metadata/creationTimestamp"));
    let is_patient = since.is_none_or(|since| since.plus(PATIENCE) > shared.hands.client.clock().now());
    let waits = task["spec"]["waitForFinalSnapshot"]["enabled"] == true;
    if waits && is_patient && all.last().is_none_or(|newest| !newest.is_final) {
        return true;
    }
    let copied = all.into_iter().map(|snapshot| Snapshot { is_final: false, ..snapshot });
    match copied.into_iter().try_for_each(|snapshot| etcds.buckets.put(&to, &new_prefix, snapshot)) {
        Ok(()) => ended("Succeeded", String::new()),
        Err(why) => ended("Failed", why),
    }
    true
}

/// Starts and ends the servers beside etcd-main.
fn beside(shared: &Shared, scene: &Scene) {
    let is_up = |namespace: &str| {
        Scene::find(&scene.pods, namespace, MEMBER).is_some_and(is_ready)
            && Scene::find(&scene.etcds, namespace, "etcd-main").is_some()
    };
    let mut sidecars = shared.sidecars();
    sidecars.retain(|namespace, _| is_up(namespace));
    for etcd in scene.etcds.iter().filter(|etcd| text(etcd, "/metadata/name") == "etcd-main") {
        let (namespace, _) = place(etcd);
        if is_up(namespace)
            && !sidecars.contains_key(namespace)
            && etcd["spec"]["backup"]["store"].is_object()
        {
            let started = Sidecar::start(shared, etcd);
            sidecars.extend(started.map(|sidecar| (namespace.to_owned(), sidecar)));
        }
    }
}

/// The server of etcd-backup-restore. It ends when dropped.
pub struct Sidecar {
    pub address: SocketAddr,
    ended: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Sidecar {
    /// None if its certificate is not there.
    fn start(shared: &Shared, etcd: &Value) -> Option<Self> {
        let (namespace, _) = place(etcd);
        let name = text(etcd, "/spec/backup/tls/serverTLSSecretRef/name");
        let secret: Value = shared.hands.client.find(&SECRET, &Key::new(namespace, name)).ok()??;
        let part = |key: &str| String::from_utf8(from_base64(entry(&secret, "/data", key)?)?).ok();
        let identity = Identity { certificate: part("tls.crt")?, key: part("tls.key")? };
        let config = server_config(&identity, &shared.clock);
        let listener = TcpListener::bind("127.0.0.1:0").ok()?;
        let (address, ended) = (listener.local_addr().ok()?, Arc::new(AtomicBool::new(false)));
        let (site, key, is_over) = (shared.me.clone(), Key::of(etcd), Arc::clone(&ended));
        let accept = move || {
            for tcp in listener.incoming().map_while(Result::ok) {
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
                if let Ok(stream) = Stream::accept(config.clone(), tcp, Arc::default()) {
                    let _ = serve(&site, &key, stream);
                }
            }
        };
        let accepting = thread::spawn("backup-restore", STACK_BYTES, accept).ok();
        Some(Self { address, ended, accepting })
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
        drop(self.accepting.take());
    }
}

/// Answers one request.
fn serve(site: &Weak<Shared>, etcd: &Key, stream: Stream) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (Some(request), Some(shared)) = (Request::read(&mut stream)?, site.upgrade()) else { return Ok(()) };
    let is_final = request.parameter("final").as_deref() == Some("true");
    let response = match (request.path.as_str(), &shared.options.etcds) {
        ("/snapshot/full", Some(etcds)) => take(&shared, etcds, etcd, is_final),
        ("/snapshot/latest", Some(etcds)) => latest(&shared, etcds, etcd),
        _ => Err("there is no such path".to_owned()),
    };
    let response = match response {
        Ok(told) => Response::text(200, "text/plain; charset=utf-8", &told.to_string()),
        Err(why) => {
            shared.hands.complain(format!("etcd-backup-restore of {etcd}: {why}"));
            Response::text(500, "text/plain", "")
        }
    };
    let date = http_date(shared.clock.now());
    let out = stream.get_mut();
    out.write_all(&response.header("Connection", "close").bytes(&date, &request))?;
    out.flush()?;
    out.close();
    out.tcp().shutdown(Shutdown::Both)
}

fn tell(snapshot: &Snapshot) -> Value {
    json!({"kind": "Full", "snapName": snapshot.file(), "lastRevision": snapshot.revision, "isFinal": snapshot.is_final})
}

/// The bucket of an etcd, and the prefix in it.
fn place_of(shared: &Shared, etcd: &Key) -> Result<[String; 2], String> {
    let etcd: Value = shared.hands.client.get(&ETCD, etcd).map_err(|error| error.to_string())?;
    Ok(["container", "prefix"].map(|field| text(&etcd, &format!("/spec/backup/store/{field}")).to_owned()))
}

fn take(shared: &Shared, etcds: &Etcds, etcd: &Key, is_final: bool) -> Result<Value, String> {
    let [bucket, prefix] = place_of(shared, etcd)?;
    let snapshot = etcd::snapshot(shared, &etcd.namespace, shared.clock.now(), is_final);
    let newest = etcds.buckets.list(&bucket, &prefix)?.pop();
    let is_same = |newest: &Snapshot| newest.revision == snapshot.revision && newest.is_final == is_final;
    if let Some(newest) = newest.filter(is_same) {
        return Ok(tell(&newest));
    }
    let told = tell(&snapshot);
    etcds.buckets.put(&bucket, &prefix, snapshot)?;
    Ok(told)
}

/// The first snapshot follows the start.
fn latest(shared: &Shared, etcds: &Etcds, etcd: &Key) -> Result<Value, String> {
    let [bucket, prefix] = place_of(shared, etcd)?;
    let full = match etcds.buckets.list(&bucket, &prefix)?.pop() {
        Some(newest) => tell(&newest),
        None => take(shared, etcds, etcd, false)?,
    };
    Ok(json!({"fullSnapshot": full, "deltaSnapshots": null}))
}
