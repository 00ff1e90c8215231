//! The resource graph: whether an object belongs to a Seed. An object has edges from what it refers to, and to its Seed; there
//! is a path as long as these objects exist. The real one reads informers and lags behind; this one is exact.

use std::sync::Arc;

use serde_json::Value;

use super::authorizer::bootstrap_token_id;
use super::kinds::{CORE, OPERATIONS, SECURITY, SEED_MANAGEMENT};
use super::references;
use crate::api::store::State;
use crate::json::text;

/// A vertex: resource, namespace, name. It needs no object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vertex {
    pub plural: &'static str,
    pub namespace: String,
    pub name: String,
}

impl Vertex {
    pub fn new(plural: &'static str, namespace: &str, name: &str) -> Self {
        Self { plural, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// From what is referred to, to what refers to it.
pub type Edge = (Vertex, Vertex);

/// The kinds whose objects have edges.
const SOURCES: [(&str, &str); 13] = [
    (CORE, "seeds"),
    (CORE, "shoots"),
    (CORE, "backupbuckets"),
    (CORE, "backupentries"),
    (CORE, "controllerinstallations"),
    (CORE, "controllerdeployments"),
    (CORE, "projects"),
    (CORE, "secretbindings"),
    (SECURITY, "credentialsbindings"),
    (OPERATIONS, "bastions"),
    (SEED_MANAGEMENT, "managedseeds"),
    (SEED_MANAGEMENT, "gardenlets"),
    ("certificates.k8s.io", "certificatesigningrequests"),
];

/// The kinds whose objects have edges from a vertex of this kind.
fn referring(plural: &str) -> &'static [&'static str] {
    match plural {
        "secrets" => &[
            "seeds",
            "shoots",
            "backupbuckets",
            "controllerdeployments",
            "secretbindings",
            "credentialsbindings",
            "managedseeds",
            "gardenlets",
        ],
        "configmaps" => &["seeds", "shoots", "controllerdeployments"],
        "workloadidentities" => {
            &["seeds", "shoots", "backupbuckets", "credentialsbindings", "managedseeds", "gardenlets"]
        }
        "internalsecrets" => &["shoots", "credentialsbindings"],
        "namespaces" => &["seeds", "shoots"],
        "leases" => &["seeds"],
        "backupbuckets" => &["backupbuckets", "backupentries"],
        "controllerdeployments" | "controllerregistrations" => &["controllerinstallations"],
        "cloudprofiles"
        | "namespacedcloudprofiles"
        | "exposureclasses"
        | "shootstates"
        | "secretbindings"
        | "credentialsbindings" => &["shoots"],
        "seeds" | "serviceaccounts" | "clusterrolebindings" => &["managedseeds"],
        "shoots" => &["shoots"],
        "backupentries" => &["backupentries"],
        "controllerinstallations" => &["controllerinstallations"],
        "projects" => &["projects"],
        "bastions" => &["bastions"],
        "managedseeds" => &["managedseeds"],
        "gardenlets" => &["gardenlets"],
        "certificatesigningrequests" => &["certificatesigningrequests"],
        _ => &[],
    }
}

/// A view of the storage as a graph.
pub struct Graph<'a>(&'a State);

impl<'a> Graph<'a> {
    pub fn of(state: &'a State) -> Self {
        Self(state)
    }

    /// Whether something is or refers to it.
    pub fn knows(&self, vertex: &Vertex) -> bool {
        let own = SOURCES.iter().find(|(_, plural)| *plural == vertex.plural);
        let exists = own.is_some_and(|(group, _)| {
            self.0.get(group, vertex.plural, &vertex.namespace, &vertex.name).is_some()
        });
        exists || !self.after(vertex).is_empty() || (vertex.plural == "seeds" && self.is_named(&vertex.name))
    }

    /// Whether something is on a Seed of this name.
    fn is_named(&self, seed: &str) -> bool {
        let to = Vertex::new("seeds", "", seed);
        SOURCES.iter().any(|source| self.edges(*source, "").iter().any(|edge| edge.1 == to))
    }

    /// Whether there is a path from the object to the Seed.
    pub fn reaches(&self, from: Vertex, seed: &str) -> bool {
        let goal = Vertex::new("seeds", "", seed);
        let (mut seen, mut next) = (vec![from.clone()], vec![from]);
        while let Some(vertex) = next.pop() {
            if vertex == goal || self.own(&vertex).contains(&goal) {
                return self.is_there(&goal);
            }
            for to in self.after(&vertex) {
                if !seen.contains(&to) {
                    seen.push(to.clone());
                    next.push(to);
                }
            }
        }
        false
    }

    /// A Seed is in the graph if it exists, or an agent asked for its certificate, or somebody is about to install its agent.
    /// With the Seed, the edges of everything else to it go.
    fn is_there(&self, seed: &Vertex) -> bool {
        let early = [SOURCES[10], SOURCES[11], SOURCES[12]];
        self.0.get(CORE, "seeds", "", &seed.name).is_some()
            || early.iter().any(|source| self.edges(*source, "").iter().any(|edge| edge.1 == *seed))
    }

    /// The vertices to which there is an edge.
    fn after(&self, vertex: &Vertex) -> Vec<Vertex> {
        let mut all = self.own(vertex);
        let referring = referring(vertex.plural);
        // Shoots refer to objects of their own namespace.
        let within = |plural: &str| match plural {
            "shoots" if vertex.namespace != ISSUERS => vertex.namespace.as_str(),
            _ => "",
        };
        let sources =
            SOURCES.iter().filter(|(_, plural)| referring.contains(plural) && *plural != vertex.plural);
        let edges = sources.flat_map(|source| self.edges(*source, within(source.1)));
        all.extend(edges.filter(|(from, _)| from == vertex).map(|(_, to)| to));
        all
    }

    /// Where an object itself leads, whatever refers to it.
    fn own(&self, vertex: &Vertex) -> Vec<Vertex> {
        let Some((group, plural)) = SOURCES.iter().find(|(_, plural)| *plural == vertex.plural) else {
            return Vec::new();
        };
        let object = self.0.get(group, plural, &vertex.namespace, &vertex.name);
        object.map_or_else(Vec::new, |object| references::outgoing(plural, object))
    }

    fn edges(&self, (group, plural): (&str, &'static str), namespace: &str) -> Vec<Edge> {
        let objects = self.0.of(group, plural, namespace);
        objects.flat_map(|(_, object)| self.of_object(plural, object)).collect()
    }

    /// The edges of one object.
    fn of_object(&self, plural: &'static str, object: &Value) -> Vec<Edge> {
        let own = Vertex::new(plural, text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        let mut incoming = references::of(plural, object);
        match plural {
            "managedseeds" => incoming.extend(self.bootstrapping(object)),
            "gardenlets" if self.is_asked_again(object) => incoming.push(token_of(object)),
            "shoots" => incoming.extend(self.issuer(object)),
            _ => {}
        }
        let mut all: Vec<Edge> = incoming.into_iter().map(|from| (from, own.clone())).collect();
        all.extend(references::outgoing(plural, object).into_iter().map(|to| (own.clone(), to)));
        all
    }

    /// The Secret with the public keys of a Shoot.
    fn issuer(&self, shoot: &Value) -> Option<Vertex> {
        let is_managed =
            shoot["metadata"]["annotations"]["authentication.gardener.cloud/issuer"] == "managed";
        let namespace = self.0.get("", "namespaces", "", text(shoot, "/metadata/namespace"));
        let projects = self.0.of(CORE, "projects", "").map(|(_, p)| p);
        let of = |p: &&Arc<Value>| text(p, "/spec/namespace") == text(shoot, "/metadata/namespace");
        // Behind a real API server the namespace is elsewhere; its label names this project.
        let project = match namespace {
            Some(namespace) => namespace["metadata"]["labels"]["project.gardener.cloud/name"].as_str(),
            None => projects.into_iter().find(of).map(|p| text(p, "/metadata/name")),
        };
        let name = format!("{}--{}", project?, text(shoot, "/metadata/uid"));
        is_managed.then(|| Vertex::new("secrets", ISSUERS, &name))
    }

    /// With what a ManagedSeed is bootstrapped, while it may be.
    fn bootstrapping(&self, managed: &Value) -> Vec<Vertex> {
        let (namespace, name) = (text(managed, "/metadata/namespace"), text(managed, "/metadata/name"));
        let is_new = self.0.get(CORE, "seeds", "", name).is_none();
        if managed["spec"]["gardenlet"]["config"].is_null() || !(is_new || self.is_asked_again(managed)) {
            return Vec::new();
        }
        match text(managed, "/spec/gardenlet/bootstrap") {
            "BootstrapToken" => vec![token_of(managed)],
            "ServiceAccount" => {
                let account = format!("gardenlet-bootstrap-{name}");
                let binding = format!("gardener.cloud:system:seed-bootstrapper:{namespace}:{account}");
                vec![
                    Vertex::new("serviceaccounts", namespace, &account),
                    Vertex::new("clusterrolebindings", "", &binding),
                ]
            }
            _ => Vec::new(),
        }
    }

    /// Whether the agent of an existing Seed needs a new kubeconfig. Upstream also compares the expiration of its certificate
    /// with the clock, but only when the Seed changes.
    fn is_asked_again(&self, object: &Value) -> bool {
        self.0.get(CORE, "seeds", "", text(object, "/metadata/name")).is_some()
            && super::rules::operation(object) == "renew-kubeconfig"
    }
}

const ISSUERS: &str = "gardener-system-shoot-issuer";

fn token_of(object: &Value) -> Vertex {
    let id = bootstrap_token_id(text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    Vertex::new("secrets", "kube-system", &format!("bootstrap-token-{id}"))
}
