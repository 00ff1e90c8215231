//! Calls that go through the tunnel while the servers at its end restart.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use gardenlet::api::gardener::SHOOT;
use gardenlet::api::meta::{Key, Resource};
use gardenlet::base::clock::{Clock, Mono};
use gardenlet::base::stop::Stop;
use gardenlet::base::thread;
use gardenlet::format::base64;
use gardenlet::kube::{Client, Method, Patch};
use serde_json::{Value, json};

use super::super::owner::Owner;
use super::super::scene::Scene;
use super::super::{PROJECT, succeeded};
use super::{POD_READY_WITHIN_S, POOL, TUNNEL_SERVER, is_good, is_well, runs};
use crate::failure::{Failure, Result, ensure, equal};
use crate::image;
use crate::lab::Lab;
use crate::wait;
use support::pki::Authority;

/// How often each call is made.
const EVERY: Duration = Duration::from_secs(1);
/// A call that takes longer has failed.
const CALL_WITHIN: Duration = Duration::from_secs(5);
/// In each round, the server of the tunnel restarts twice alone, and once with the API server.
const ROUNDS: usize = 3;
/// The kubelet waits before it starts a container again that has ended several times.
const BACK_WITHIN_S: u64 = 120;
/// Selects the pods of the API server.
const SERVERS: &str = "--selector=app=kubernetes,role=apiserver";
const WEBHOOK: &str = "hook";
/// An object that the webhook changes.
const THING: Resource = Resource::new("example.org", "v1", "Thing", "things", true);

/// The longest time without a good answer, in seconds.
const GAP_MAX_S: f64 = 60.0;

/// A call that a thread repeats.
pub(super) struct Calls {
    what: &'static str,
    stop: Stop,
    told: Arc<Mutex<Told>>,
    thread: Option<JoinHandle<()>>,
}

/// What became of it.
#[derive(Default)]
struct Told {
    good: usize,
    bad: usize,
    longest_s: f64,
    /// The last good call.
    well: Option<Mono>,
    last: String,
}

impl Told {
    /// Counts the time since the last good call.
    fn wait(&mut self) {
        let since = self.well.map_or(0.0, wait::seconds_since);
        self.longest_s = self.longest_s.max(since);
    }
}

impl Calls {
    pub(super) fn start(what: &'static str, call: impl Fn() -> Result<()> + Send + 'static) -> Result<Self> {
        let (stop, told) = (Stop::new(), Arc::new(Mutex::new(Told::default())));
        let (stopped, list) = (stop.clone(), told.clone());
        let thread = thread::spawn(what, 1 << 20, move || {
            let clock = Clock::system();
            while !stopped.is_stopped() {
                let (began, outcome) = (clock.mono(), call());
                let mut told = list.lock().unwrap_or_else(PoisonError::into_inner);
                match outcome {
                    Ok(()) => {
                        told.good += 1;
                        told.wait();
                        told.well = Some(wait::now());
                    }
                    Err(why) => {
                        told.bad += 1;
                        told.last = why.to_string();
                    }
                }
                drop(told);
                stopped.wait(&clock, EVERY.saturating_sub(clock.mono() - began));
            }
        });
        let thread = thread.map_err(|error| Failure::new(error.to_string()))?;
        Ok(Self { what, stop, told, thread: Some(thread) })
    }

    fn good(&self) -> usize {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).good
    }

    /// Prints the outcome. The longest gap has a limit, in seconds.
    pub(super) fn end(mut self, gap_max_s: f64) -> Result<()> {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.wait();
        println!(
            "                 {}: {} good calls, {} failed, the longest gap {:.1} s; the last failure: {}",
            self.what, told.good, told.bad, told.longest_s, told.last
        );
        ensure(told.good > 0, || format!("{}: no good call", self.what))?;
        ensure(told.longest_s < gap_max_s, || format!("{}: a gap of {:.1} s", self.what, told.longest_s))
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

/// The kubelet of the host, and a webhook on it without which nothing is admitted, are asked each second, while the server of the
/// tunnel restarts ten times, alone and with the API server.
pub(in super::super) fn interrupt_little(lab: &mut Lab, scene: &mut Scene) -> Result<()> {
    let owner = scene.owner(lab, POOL)?;
    let client = owner.client()?;
    if let Some(host) = &scene.host {
        host.import(&image::of_extension(&lab.environment, &lab.state)?)?;
    }
    has_a_webhook(lab, &owner, &client)?;
    let asked = client.with_deadline(CALL_WITHIN);
    let path = super::kubelet();
    let kubelet = Calls::start("kubelet", move || is_good(&asked, &path))?;
    let admitted = client.with_deadline(CALL_WITHIN);
    let webhook = Calls::start("webhook", move || is_admitted(&admitted))?;
    drop(owner);
    for round in 1..=ROUNDS {
        for _ in 0..2 {
            server_restarts(lab, scene)?;
            answers_again(&[&kubelet, &webhook])?;
        }
        rolls(lab, scene, round)?;
        answers_again(&[&kubelet, &webhook])?;
        println!("                 round {round} of {ROUNDS}");
    }
    server_restarts(lab, scene)?;
    answers_again(&[&kubelet, &webhook])?;
    kubelet.end(GAP_MAX_S)?;
    webhook.end(GAP_MAX_S)?;
    is_well(&scene.garden)
}

/// Waits until each call has succeeded again.
fn answers_again(calls: &[&Calls]) -> Result<()> {
    let before: Vec<usize> = calls.iter().map(|calls| calls.good()).collect();
    wait::until_true("good answers", BACK_WITHIN_S, || {
        calls.iter().zip(&before).all(|(calls, before)| calls.good() > before + 1)
    })
}

/// The server of the tunnel is killed, and the kubelet starts it again.
fn server_restarts(lab: &Lab, scene: &Scene) -> Result<()> {
    let restarts = || -> Result<i64> {
        let pods = lab.seed.kubectl(&[
            "get",
            "pods",
            "--namespace",
            &POOL.plane(),
            SERVERS,
            "--output",
            "jsonpath={.items[*].status.containerStatuses[?(@.name=='konnectivity-server')].restartCount}",
        ])?;
        Ok(pods.split_whitespace().filter_map(|count| count.parse::<i64>().ok()).sum())
    };
    let before = restarts()?;
    let killed = scene.site.node.kill_container(&POOL.plane(), TUNNEL_SERVER)?;
    equal("the killed servers", &killed, &1)?;
    wait::until_true("the server of the tunnel to restart", BACK_WITHIN_S, || {
        restarts().is_ok_and(|restarts| restarts > before)
    })
}

/// The owner wants other logs of the API server, whose pod is replaced.
fn rolls(lab: &Lab, scene: &mut Scene, round: usize) -> Result<()> {
    let pods = || lab.seed.kubectl(&["get", "pods", "--namespace", &POOL.plane(), SERVERS, "--output=name"]);
    let before = pods()?;
    let louder = json!({"spec": {"kubernetes": {"kubeAPIServer": {"logging": {"verbosity": 2 + round}}}}});
    scene.garden.patch::<Value>(&SHOOT, &Key::new(PROJECT, POOL.0), &Patch::Merge(louder))?;
    succeeded(lab, &scene.garden, &mut scene.agent, (POOL, "Reconcile"))?;
    ensure(pods()? != before, || format!("the same {before}"))
}

/// A pod on the host that the API server asks before it stores a Thing.
fn has_a_webhook(lab: &Lab, owner: &Owner<'_>, client: &Client) -> Result<()> {
    let authority = Authority::new("hook-ca", Clock::system().now());
    let encoded = |text: &str| base64::encode(text.as_bytes());
    let labels = json!({"app": WEBHOOK});
    let items = json!([
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": WEBHOOK}, "data": {
            "tls.crt": encoded(&authority.certificate()), "tls.key": encoded(authority.key())}},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": WEBHOOK},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}]},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": WEBHOOK}, "spec": {
            "selector": labels, "ports": [{"port": 443, "targetPort": 10_250}]}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": WEBHOOK, "labels": labels}, "spec": {
            "volumes": [{"name": "ca", "secret": {"secretName": WEBHOOK}}],
            "containers": [{"name": "main", "image": image::EXTENSION.1, "imagePullPolicy": "Never",
                "args": [format!("-name={WEBHOOK}"), "-webhook-ca=/ca"],
                "volumeMounts": [{"name": "ca", "mountPath": "/ca"}]}]}},
        {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.example.org"}, "spec": {"group": "example.org", "scope": "Namespaced",
                "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}},
    ]);
    let file = lab.place.join("hook.json");
    crate::cluster::write(&file, &json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string())?;
    owner.kubectl(&["apply", "--filename", &file.display().to_string()])?;
    runs(owner, WEBHOOK)?;
    let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": WEBHOOK}, "webhooks": [{"name": "hook.example.org", "failurePolicy": "Fail",
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 3,
            "rules": [{"apiGroups": ["example.org"], "apiVersions": ["v1"], "resources": ["things"], "operations": ["CREATE"]}],
            "clientConfig": {"caBundle": encoded(&authority.certificate()),
                "service": {"name": WEBHOOK, "namespace": "default", "path": "/defaults"}}}]});
    crate::cluster::write(&file, &configuration.to_string())?;
    owner.kubectl(&["apply", "--filename", &file.display().to_string()])?;
    wait::until("the webhook to answer", POD_READY_WITHIN_S, || is_admitted(client).map(Some))
}

/// The webhook changes an object that is not stored.
fn is_admitted(client: &Client) -> Result<()> {
    let thing =
        json!({"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": "thing"}, "spec": {}});
    let path = format!("{}?dryRun=All", THING.collection_path("default"));
    let body = thing.to_string();
    let answer = client.raw(Method::Post, &path, Some(body.as_bytes()), "application/json")?;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    ensure(answer.status == 201, || text.clone())?;
    let made: Value = serde_json::from_str(&text)?;
    equal("what the webhook adds", &made["spec"]["ttl"], &json!(300))
}
