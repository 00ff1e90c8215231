//! A second seed: its own servers, and a node on a machine beside the sandbox. What runs in the first seed cannot reach its
//! Services, only what its node publishes.

use crate::cluster::{self, Cluster};
use crate::failure::Result;
use crate::image::Component;
use crate::lab::Lab;
use crate::machine::{Cable, Machine};
use crate::node::{FIRST, Node, NodeSettings};
use crate::sandbox::ADDRESS;
use crate::site::{self, Controllers, STORAGE};

/// The address of its node.
pub(crate) const NODE_ADDRESS: &str = "10.88.0.1";
const SETTINGS: NodeSettings = NodeSettings {
    name: "n2",
    address: NODE_ADDRESS,
    pod_range: "10.98.0.0/16",
    dns_address: "10.3.0.10",
    masquerades: false,
};
const CABLE: Cable = Cable { name: "beside", inside: "10.66.1.1", outside: "10.66.1.2" };

/// It ends when dropped.
pub(crate) struct SecondSeed {
    // Dropped in this order.
    _controllers: Controllers,
    pub(crate) node: Node,
    pub(crate) cluster: Cluster,
    /// The path of the network namespace of its node.
    pub(crate) network: String,
}

impl SecondSeed {
    /// Starts it with the images of `components`. From now on, kubeconfigs for the garden have an address that leads there from both
    /// seeds.
    pub(crate) fn start(lab: &mut Lab, components: &[Component]) -> Result<Self> {
        let mut cluster = Cluster::prepare(cluster::SECOND_SEED, &lab.environment, &lab.place)?;
        for one in [&mut cluster, &mut lab.garden] {
            one.front = Some(format!("https://{ADDRESS}:{}", one.role.api_port));
        }
        cluster.start_servers()?;
        cluster.wait_ready()?;
        let machine = Machine::with_mounts(lab, &CABLE)?;
        machine.ip(&format!("address add {NODE_ADDRESS}/32 dev lo"))?;
        machine.ip(&format!("route add default via {} src {NODE_ADDRESS}", CABLE.inside))?;
        let sandbox = Machine::sandbox(lab);
        for range in [NODE_ADDRESS, SETTINGS.pod_range] {
            sandbox.ip(&format!("route add {range} via {} src {}", CABLE.outside, FIRST.address))?;
        }
        let network = machine.network().unwrap_or_default();
        let node = Node::on(lab, &cluster, SETTINGS, machine)?;
        site::furnish(lab, &cluster, (&node, &SETTINGS), components)?;
        let controllers = Controllers::start(lab, &cluster, &[STORAGE])?;
        cluster.rolled_out("kube-system", "deployment/coredns", 120)?;
        Ok(Self { _controllers: controllers, node, cluster, network })
    }
}
