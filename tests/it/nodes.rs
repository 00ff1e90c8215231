//! What the nodes of a Shoot are, for stories that have Shoots of both kinds.

use serde_json::{Value, json};

use crate::world::{CORE, World};
use support::garden::prepare;
use support::json::list;
use support::shoot::Site;
use support::shoot::object::{PROJECT_NAMESPACE, ShootObject, technical_id};
use support::shoot::server::Server;

/// The pool of a Shoot of hosts.
pub(crate) const POOL: &str = "pool";
/// The host that joins.
pub(crate) const HOST: &str = "h1";

/// What the nodes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Nodes {
    /// There are none.
    Nobody,
    /// Hosts of the site.
    Hosts,
}

impl Nodes {
    /// Tells the garden what it needs to know for them.
    pub(crate) fn prepare(self, world: &World) {
        if self == Self::Hosts {
            world.garden.apply(&prepare::hosts());
        }
    }

    /// Prepares the garden for it, and returns the Shoot to apply.
    pub(crate) fn shoot(self, world: &World, name: &str) -> ShootObject {
        self.prepare(world);
        match self {
            Self::Nobody => ShootObject::workerless(name),
            Self::Hosts => ShootObject::of_hosts(name, world.name),
        }
    }

    /// The configuration of an agent at the edge that serves them.
    pub(crate) fn config(self, world: &World) -> Value {
        let mut config = world.edge_config();
        config["edge"]["exposure"] = json!({"type": "NodePort", "address": "127.0.0.1"});
        // Long enough that a busy machine does not lose it.
        config["leaderElection"] =
            json!({"leaseDuration": "300s", "renewDeadline": "200s", "retryPeriod": "2s"});
        if self == Self::Hosts {
            config["edge"]["hosts"] = json!({"types": [prepare::HOSTS]});
        }
        config
    }
}

/// Lets the host of a Shoot's pool join; nothing if it has none.
pub(crate) fn join(world: &World, name: &str, server: &Server) {
    let shoot = world.garden.get(CORE, "shoots", PROJECT_NAMESPACE, name);
    if shoot.is_some_and(|shoot| !list(&shoot, "/spec/provider/workers").is_empty()) {
        server.join(HOST, POOL);
    }
}

/// The same, once the Shoot has an API server.
pub(crate) fn join_at(world: &World, site: &Site, name: &str) {
    join(world, name, &site.server(&technical_id(name)).unwrap());
}
