//! The objects in a garden and in a seed before an agent starts, on the real servers: those of gardener-operator, those
//! of the administrator of the seed, and the in-process garden as an aggregated API.

use std::path::PathBuf;

use gardenlet::base::clock::Clock;
use gardenlet::format::base64;
use gardenlet::kube::Method;
use serde_json::{Value, json};

use crate::agent::Options;
use crate::cluster::{Cluster, FRONT_PROXY};
use crate::failure::Result;
use crate::lab::Lab;
use crate::wait;
use support::garden::prepare::{self, Preparation};
use support::garden::{Aggregated, Garden};

/// The seed that the stories register.
pub(crate) const SEED: &str = "edge-1";

/// Group, version and priority of the APIs of a gardener-apiserver.
const GARDENER_APIS: &[(&str, &str, u16)] = &[
    ("core.gardener.cloud", "v1beta1", 20),
    ("core.gardener.cloud", "v1", 15),
    ("seedmanagement.gardener.cloud", "v1alpha1", 15),
    ("operations.gardener.cloud", "v1alpha1", 15),
    ("security.gardener.cloud", "v1alpha1", 15),
];

/// The address where the garden's API server finds a gardener-apiserver, or the in-process garden.
pub(crate) const GARDENER_HOST: &str = "gardener-apiserver.garden.svc";

/// A garden and a seed in which an agent can start.
pub(crate) struct World {
    /// The gardener.cloud groups of the garden, and the part of gardener-controller-manager. It ends when dropped.
    pub(crate) gardener: Garden,
    pub(crate) preparation: Preparation,
}

impl World {
    /// Prepares both clusters, which are as [`Lab::reset`] leaves them.
    pub(crate) fn build(lab: &Lab) -> Result<Self> {
        let world = Self::without_provider(lab)?;
        lab.garden.apply(&list(&prepare::provider()))?;
        Ok(world)
    }

    /// The same with only a namespace in the seed: for the objects of a chart.
    pub(crate) fn without_access(lab: &Lab) -> Result<Self> {
        let world = Self::with_garden(lab)?;
        lab.seed.apply(&garden_namespace())?;
        lab.garden.apply(&list(&prepare::provider()))?;
        Ok(world)
    }

    /// The same, in a garden that has no extension for the provider of the seed.
    pub(crate) fn without_provider(lab: &Lab) -> Result<Self> {
        let world = Self::with_garden(lab)?;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"kubeconfig": world.bootstrap(lab)},
            "metadata": {"name": "gardenlet-kubeconfig-bootstrap", "namespace": "garden"}});
        // Accounts and roles are those of the documentation for operators. One call of kubectl takes half a second,
        // and dozens of stories begin with it.
        lab.seed.apply(&list(&[vec![garden_namespace()], prepare::access().0, vec![secret]].concat()))?;
        Ok(world)
    }

    /// A garden alone. Its seeds have no role. SeedAuthorizer and SeedRestriction guard the kinds of Kubernetes, too.
    pub(crate) fn guarded(lab: &mut Lab, preparation: Preparation) -> Result<Self> {
        let gardener = Self::gardener(lab)?;
        let (ca, port) = (gardener.ca(), port(&gardener));
        crate::gardener::guard(lab, &ca, port)?;
        lab.garden.apply(&list(&[preparation.garden(), registration(&ca, port)].concat()))?;
        is_served(&lab.garden)?;
        lab.garden.apply(&list(&[prepare::provider(), prepare::for_shoots()].concat()))?;
        Ok(Self { gardener, preparation })
    }

    fn gardener(lab: &Lab) -> Result<Garden> {
        Ok(Garden::aggregated(Aggregated {
            clock: Clock::system(),
            host: GARDENER_HOST.to_owned(),
            front_proxy_ca: lab.garden.front_proxy.certificate(),
            front_proxy_names: vec![FRONT_PROXY.to_owned()],
            client: lab.garden.client()?,
        }))
    }

    fn with_garden(lab: &Lab) -> Result<Self> {
        let preparation = Preparation::new(SEED, Clock::system().now());
        let gardener = Self::gardener(lab)?;
        let registration = registration(&gardener.ca(), port(&gardener));
        let objects = [preparation.garden(), prepare::without_authorizer(), registration];
        lab.garden.apply(&list(&objects.concat()))?;
        is_served(&lab.garden)?;
        Ok(Self { gardener, preparation })
    }

    /// A kubeconfig with the bootstrap token.
    pub(crate) fn bootstrap(&self, lab: &Lab) -> String {
        lab.garden.kubeconfig_text(&json!({"token": self.preparation.token()}))
    }
}

/// The port of the in-process garden.
fn port(gardener: &Garden) -> u16 {
    gardener.url().rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or_default()
}

/// The namespace of the agent in the seed.
fn garden_namespace() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "garden"}})
}

/// Objects that make a server at a port of loopback serve the gardener.cloud groups of the garden. The CA has signed its
/// certificate.
pub(crate) fn registration(ca: &str, port: u16) -> Vec<Value> {
    let services = GARDENER_APIS.iter().map(|(group, version, priority)| {
        json!({
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": format!("{version}.{group}")},
            "spec": {
                "group": group,
                "version": version,
                "groupPriorityMinimum": 10_000,
                "versionPriority": priority,
                "caBundle": base64::encode(ca.as_bytes()),
                "service": {"name": "gardener-apiserver", "namespace": "garden", "port": port},
            },
        })
    });
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "gardener-apiserver", "namespace": "garden"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    services.chain([service]).collect()
}

/// The paths of the gardener.cloud groups.
pub(crate) fn gardener_paths() -> impl Iterator<Item = String> {
    GARDENER_APIS.iter().map(|(group, version, _)| format!("/apis/{group}/{version}"))
}

/// Waits until the garden serves the gardener.cloud groups.
fn is_served(garden: &Cluster) -> Result<()> {
    let client = garden.client()?;
    gardener_paths().try_for_each(|path| {
        wait::until_true(&path, 30, || {
            client.raw(Method::Get, &path, None, "").is_ok_and(|response| response.is_success())
        })
    })
}

/// An agent on this machine that talks to the seed as its service account.
pub(crate) fn agent(lab: &Lab, name: &str) -> Result<Options> {
    agent_of(lab, &lab.seed, name)
}

/// The same for another seed.
pub(crate) fn agent_of(lab: &Lab, seed: &Cluster, name: &str) -> Result<Options> {
    let kubeconfig = seed_kubeconfig(lab, seed, name)?;
    Ok(Options::new(name, config(lab, name))
        .environment("KUBECONFIG", kubeconfig)
        .environment("HOME", &lab.place)
        .environment("PATH", "/usr/bin:/bin"))
}

/// A kubeconfig with a token of the service account `garden/gardenlet`.
fn seed_kubeconfig(lab: &Lab, seed: &Cluster, name: &str) -> Result<PathBuf> {
    let token = seed.kubectl(&["create", "token", "gardenlet", "--namespace=garden", "--duration=24h"])?;
    let path = lab.place.join(format!("{name}-seed.kubeconfig"));
    seed.write_kubeconfig_with(&path, &json!({"token": token.trim()}))?;
    Ok(path)
}

/// A configuration like the one in the documentation, with ports and files that do not collide with those of another
/// agent.
pub(crate) fn config(lab: &Lab, name: &str) -> Value {
    let mut config = prepare::configuration(SEED);
    config["controllers"] = json!({"shootStatus": {"concurrentSyncs": 1}});
    config["leaderElection"] = json!({"leaderElect": true, "resourceNamespace": "garden"});
    config["logLevel"] = json!("debug");
    config["logFormat"] = json!("text");
    config["edge"] = json!({"stateDir": lab.place.join(format!("{name}-state"))});
    // The real networks of the seed: the agent checks them.
    config["seedConfig"]["spec"]["networks"] =
        json!({"nodes": "10.77.0.0/16", "pods": "10.99.0.0/16", "services": "10.1.0.0/16"});
    config
}

pub(crate) fn list(objects: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": objects})
}
