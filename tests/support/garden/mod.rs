//! A stand-in garden: what an agent sees of gardener-apiserver, gardener-controller-manager and gardener-scheduler.
//!
//! - [`Garden::start`] is a complete garden in this process, with the kinds of Kubernetes, the SeedAuthorizer and RBAC.
//! - [`Garden::aggregated`] serves the gardener.cloud groups alone, behind a real kube-apiserver, and reaches the rest
//!   through it.

pub mod bastion;
pub mod fields;
pub mod kinds;
pub mod placement;
pub mod rules;
pub mod seed;
pub mod shoot;

pub mod authorizer;
pub mod binding;
pub mod graph;
pub mod guards;
pub mod identity;
pub mod port;
pub mod references;
pub mod requests;
pub mod restriction;

pub mod approver;
pub mod buckets;
pub mod columns;
pub mod installations;
pub mod lifecycle;
pub mod manager;
pub mod moving;
pub mod namespaces;
pub mod projects;
pub mod scheduler;
pub mod shoots;

pub mod prepare;

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gardenlet::api::core::CONFIG_MAP;
use gardenlet::api::meta::Key;
use gardenlet::base::clock::Clock;
use gardenlet::kube;
use serde_json::Value;

use self::guards::Guards;
use self::manager::{Running, Share};
use self::port::{Cluster, Local, Remote, Split};
use super::api::{Api, Connect, Review};
use super::cluster::{Authorization, Options, TestCluster};
use super::controllers;
use super::http::server::Authorizer;

/// A running garden. It ends when it is dropped.
pub struct Garden {
    manager: Running,
    cluster: TestCluster,
    is_restricted: Arc<AtomicBool>,
}

impl Deref for Garden {
    type Target = TestCluster;

    fn deref(&self) -> &TestCluster {
        &self.cluster
    }
}

/// How a garden behind a real kube-apiserver is made.
pub struct Aggregated {
    pub clock: Clock,
    /// The name by which the API server calls it, for the server certificate.
    pub host: String,
    /// CA (PEM) of the API server's proxy certificate.
    pub front_proxy_ca: String,
    /// Common names of that certificate; empty: any.
    pub front_proxy_names: Vec<String>,
    /// A cluster-admin of the real API server.
    pub client: kube::Client,
}

impl Garden {
    /// Starts a garden. The objects of [`prepare`] are still missing.
    pub fn start(clock: &Clock) -> Self {
        Self::with(Options::new("garden", clock), Share::default())
    }

    /// Starts a garden that differs in something. Kinds and authorization are the garden's.
    pub fn with(mut options: Options, share: Share) -> Self {
        options.kinds = kinds::kinds();
        options.authorization = Authorization::Custom(Box::new(authorizer::Garden));
        let is_restricted = Arc::new(AtomicBool::new(true));
        let restricted = is_restricted.clone();
        options.admission = Some(Arc::new(move |review: &Review<'_>| {
            if restricted.load(Ordering::SeqCst) {
                restriction::admit(review)?;
            }
            binding::admit(review)
        }));
        let stored =
            |api: &Api, namespace: &str, name: &str| api.store.get("", "configmaps", namespace, name);
        options.connect = Some(connect(Box::new(stored)));
        let cluster = TestCluster::start(options);
        cluster.store().write(|state| state.kinds.prefer(kinds::CORE, "v1beta1"));
        let store = cluster.store().clone();
        let judge =
            Arc::new(move |user: &_, info: &_| authorizer::Garden.decide(&store.read(), user, info).is_ok());
        let local = Local { api: cluster.api().clone(), judge };
        let mut garden = Self::managed(cluster, Box::new(local), share, Duration::from_millis(100));
        garden.is_restricted = is_restricted;
        garden
    }

    /// Serves the gardener.cloud groups behind a real kube-apiserver.
    pub fn aggregated(aggregated: Aggregated) -> Self {
        let mut options = Options::new("gardener-apiserver", &aggregated.clock);
        options.builtin = false;
        options.kinds = kinds::kinds();
        options.server_names = vec![aggregated.host];
        options.authorization = Authorization::Custom(Box::new(authorizer::Behind));
        options.admission = Some(Arc::new(restriction::admit));
        let client = aggregated.client.clone();
        let remote = move |_: &Api, namespace: &str, name: &str| {
            client.find(&CONFIG_MAP, &Key::new(namespace, name)).ok().flatten()
        };
        options.connect = Some(connect(Box::new(remote)));
        let guards = Guards {
            store: OnceLock::new(),
            client: aggregated.client.clone(),
            clock: aggregated.clock.clone(),
        };
        let guards = Arc::new(guards);
        options.webhook = Some(guards::webhook(guards.clone()));
        options.front_proxy = Some((aggregated.front_proxy_ca, aggregated.front_proxy_names));
        // The real cluster's garbage collector sees these objects, too.
        options.share = controllers::Share::none();
        let cluster = TestCluster::start(options);
        cluster.store().write(|state| state.kinds.prefer(kinds::CORE, "v1beta1"));
        drop(guards.store.set(cluster.store().clone()));
        let own = Local { api: cluster.api().clone(), judge: Arc::new(|_: &_, _: &_| false) };
        let split = Split { own, rest: Remote(aggregated.client) };
        Self::managed(cluster, Box::new(split), Share::default(), Duration::from_millis(250))
    }

    /// `period`: how often the manager reads objects without notice of their changes, in real time.
    fn managed(cluster: TestCluster, port: Box<dyn Cluster>, share: Share, period: Duration) -> Self {
        let manager = Running::start(port, cluster.clock(), cluster.store(), share, period);
        Self { manager, cluster, is_restricted: Arc::default() }
    }

    /// Changes what gardener-controller-manager does.
    pub fn set_manager_share(&self, share: Share) {
        self.manager.set_share(share);
    }

    /// Removes SeedRestriction. Not all gardens have it.
    pub fn lift_restriction(&self) {
        self.is_restricted.store(false, Ordering::SeqCst);
    }

    /// A Seed, if it exists.
    pub fn seed(&self, name: &str) -> Option<Value> {
        self.get(kinds::CORE, "seeds", "", name)
    }

    /// The status of a condition of a Seed.
    pub fn seed_condition(&self, name: &str, kind: &str) -> Option<Value> {
        let seed = self.seed(name)?;
        super::json::list(&seed, "/status/conditions").iter().find(|c| c["type"] == kind).cloned()
    }

    /// As [`TestCluster::wait_for`], but `condition` gets the garden.
    pub fn wait_for<T>(&self, what: &str, condition: impl Fn(&Self) -> Option<T>) -> T {
        self.cluster.wait_for(what, |_| condition(self))
    }

    /// The installations of a registration.
    pub fn installations(&self, registration: &str) -> Vec<Value> {
        let mut all = self.store().list(kinds::CORE, "controllerinstallations", "");
        all.retain(|i| i["spec"]["registrationRef"]["name"] == registration);
        all
    }
}

/// Answers the subresources that issue kubeconfigs and tokens.
fn connect(lookup: shoot::kubeconfig::Lookup) -> Connect {
    Box::new(move |api, target, body, user| match target.subresource.as_str() {
        "token" => identity::answer(api, target, body, user),
        _ => shoot::kubeconfig::answer(api, target, body, user, &lookup),
    })
}

impl Drop for Garden {
    fn drop(&mut self) {
        self.manager.stop();
    }
}
