//! The parts of a seed at the edge besides a node that control planes need: cluster DNS, volumes, load balancer
//! addresses, and a network for clients.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use gardenlet::base::stop::Stop;
use gardenlet::base::thread;
use gardenlet::format::yaml;
use gardenlet::kube::Client;
use serde_json::{Value, json};

use crate::balancer;
use crate::cluster::Cluster;
use crate::failure::{Doing, Failure, Result};
use crate::image::{self, Component};
use crate::lab::Lab;
use crate::node::{DNS_DOMAIN, FIRST, Node, NodeSettings};
use crate::outside::Outside;
use crate::storage::{self, Folders};

const STACK_BYTES: usize = 512 << 10;
/// How often the controllers of the site run.
const LOOK: Duration = Duration::from_millis(250);
/// Does the pending work, and is called again.
pub(crate) type Look = fn(&Client) -> Result<()>;
const BALANCER: &str = "load balancer";
pub(crate) const STORAGE: (&str, Look) = ("storage", storage::look);
const CONTROLLERS: &[(&str, Look)] = &[STORAGE, (BALANCER, balancer::look)];
/// Cluster DNS, with the image of [`image::DNS`].
const DNS: &str = include_str!("dns.yaml");

/// A node with all these parts. It ends when dropped.
#[derive(Debug)]
pub(crate) struct Site {
    // Dropped in this order.
    controllers: Controllers,
    pub(crate) outside: Outside,
    pub(crate) node: Node,
    _folders: Folders,
}

impl Site {
    /// Starts a site with the images of `components` for pods.
    pub(crate) fn start(lab: &mut Lab, components: &[Component]) -> Result<Self> {
        let node = Node::start(lab)?;
        balancer::prepare()?;
        let outside = Outside::start(lab)?;
        furnish(lab, &lab.seed, (&node, &FIRST), components)?;
        let controllers = Controllers::start(lab, &lab.seed, CONTROLLERS)?;
        lab.seed.rolled_out("kube-system", "deployment/coredns", 120)?;
        Ok(Self { controllers, outside, node, _folders: Folders })
    }

    /// Whether Services get addresses of a load balancer from now on.
    pub(crate) fn balance(&self, does: bool) {
        self.controllers.balances.store(does, Ordering::SeqCst);
    }
}

/// Gives a node the images of `components`, and its seed a class of volumes and cluster DNS.
pub(crate) fn furnish(
    lab: &Lab,
    seed: &Cluster,
    (node, settings): (&Node, &NodeSettings),
    components: &[Component],
) -> Result<()> {
    for component in components.iter().chain([&image::DNS]) {
        node.import_component(lab, component)?;
    }
    seed.apply(&storage::class())?;
    seed.apply(&dns(settings.dns_address)?)
}

/// A thread with the controllers of a site. Their errors are in `<cluster>-site.log`.
#[derive(Debug)]
pub(crate) struct Controllers {
    stop: Stop,
    balances: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Controllers {
    pub(crate) fn start(lab: &Lab, seed: &Cluster, all: &'static [(&'static str, Look)]) -> Result<Self> {
        let client = seed.client()?;
        let log = lab.place.join(format!("{}-site.log", seed.role.name));
        let mut log = File::create(&log).doing(|| format!("create {}", log.display()))?;
        let stop = Stop::new();
        let stopped = stop.clone();
        let balances = Arc::new(AtomicBool::new(true));
        let is_balancing = balances.clone();
        let thread = thread::spawn("site", STACK_BYTES, move || {
            while !stopped.is_stopped() {
                for (name, look) in all {
                    if *name == BALANCER && !is_balancing.load(Ordering::SeqCst) {
                        continue;
                    }
                    if let Err(failure) = look(&client) {
                        // If the log cannot be written, the waiting story reports what is missing.
                        let _ = writeln!(log, "{name}: {failure}");
                    }
                }
                stopped.wait(client.clock(), LOOK);
            }
        })?;
        Ok(Self { stop, balances, thread: Some(thread) })
    }
}

impl Drop for Controllers {
    fn drop(&mut self) {
        self.stop.stop();
        // A panic in it has been printed.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A list of the objects.
fn dns(address: &str) -> Result<Value> {
    let text = DNS
        .replace("${image}", &image::DNS.reference())
        .replace("${address}", address)
        .replace("${domain}", DNS_DOMAIN);
    list_of(&text)
}

/// A list of the objects in a manifest.
pub(crate) fn list_of(manifest: &str) -> Result<Value> {
    let objects = yaml::parse_all(manifest).into_iter().map(|document| document.value);
    let objects = objects.collect::<std::result::Result<Vec<Value>, _>>();
    let objects = objects.map_err(|err| Failure::new(format!("a manifest: {err}")))?;
    Ok(json!({"apiVersion": "v1", "kind": "List", "items": objects}))
}
