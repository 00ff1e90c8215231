//! The input of policies from the watches: namespaces, Services, pods, and live policies.

use std::sync::{Arc, Mutex};

use super::decide::{DesiredPolicies, ServicePolicyWriter};
use super::services::{Service, carried};
use super::{central, policy, services};
use crate::api::core::{NETWORK_POLICY, POD, SERVICE};
use crate::api::meta::{Key, ObjectMeta};
use crate::base::lock::IgnorePoison;
use crate::base::sorted::{SortedMap, SortedSet};
use crate::controllers::site::Namespace;
use crate::kube::Client;
use crate::limits;
use crate::runtime::alike::TextStore;
use crate::runtime::controller::ReconcileFailure;
use crate::runtime::group::ControllerGroup;
use crate::runtime::informer::Options;
use crate::runtime::source::{Notice, WatchSource};

/// The state that the controller shares with its watches. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct NetworkPolicyWatches {
    namespaces: WatchSource<Namespace>,
    pub(super) policies: TextStore,
    pub(super) services: TextStore,
    pub(super) pods: TextStore,
    writer: Arc<Mutex<ServicePolicyWriter>>,
    pub(super) writer_changed: Notice,
}

impl Default for NetworkPolicyWatches {
    fn default() -> Self {
        Self {
            namespaces: WatchSource::default(),
            policies: TextStore::new(policy::look),
            services: TextStore::new(services::look),
            pods: TextStore::new(services::look_of_pod),
            writer: Arc::default(),
            writer_changed: Notice::default(),
        }
    }
}

impl NetworkPolicyWatches {
    /// Watches the policies of the seed.
    pub(crate) fn watch_policies(&self, seed: &Client, group: &mut ControllerGroup) {
        group.watch(seed, Options::all("seed/networkpolicies", NETWORK_POLICY), &self.policies);
    }

    /// Watches the input of the policies of Services.
    pub(crate) fn watch_services(&self, seed: &Client, group: &mut ControllerGroup) {
        group.watch(seed, Options::all("seed/services", SERVICE), &self.services);
        let pods = Options { metadata_only: true, ..Options::all("seed/pods", POD) };
        group.watch(seed, pods, &self.pods);
    }

    /// Sets the writer of the policies that Services request.
    pub(crate) fn set_service_policy_writer(&self, writer: ServicePolicyWriter) {
        let before = std::mem::replace(&mut *self.writer.lock().ignore_poison(), writer);
        if before != writer {
            self.writer_changed.tell(&());
        }
    }

    pub(super) fn writer(&self) -> ServicePolicyWriter {
        *self.writer.lock().ignore_poison()
    }

    /// The namespaces of the seed, also for other controllers.
    pub(crate) const fn namespaces(&self) -> &WatchSource<Namespace> {
        &self.namespaces
    }

    pub(super) fn namespace(&self, name: &str) -> Option<Arc<Namespace>> {
        self.namespaces.store().get(&Key::cluster(name))
    }

    /// Whether all inputs are known if `writer` is the writer of the policies that Services request.
    pub(super) fn is_synced(&self, writer: ServicePolicyWriter) -> bool {
        let asks = self.services.is_synced() && self.pods.is_synced();
        self.namespaces.store().is_synced()
            && self.policies.is_synced()
            && (asks || writer != ServicePolicyWriter::Ours)
    }

    /// The namespaces that are not being deleted.
    fn lasting(&self) -> Vec<Arc<Namespace>> {
        let mut all = self.namespaces.store().values();
        all.retain(|namespace| namespace.metadata.deletion_timestamp.is_none());
        all
    }

    /// The namespaces of Services that allow pods of this one, and the digests of these Services.
    pub(super) fn open_to(&self, namespace: &ObjectMeta) -> Vec<(Arc<str>, Arc<str>)> {
        // The namespace of the Service does not matter.
        self.services.find(&|look| {
            Service::read("", look)
                .is_ok_and(|service| service.is_some_and(|service| service.is_open_to(namespace)))
        })
    }

    /// The namespaces whose pods a Service with this digest allows.
    pub(super) fn open_from(&self, look: &str) -> Vec<String> {
        let Ok(Some(service)) = Service::read("", look) else { return Vec::new() };
        let all = self.lasting();
        let open = all.iter().filter(|namespace| service.is_open_to(&namespace.metadata));
        open.map(|namespace| namespace.metadata.name.clone()).collect()
    }

    /// Adds the policies that Services request in a namespace.
    pub(super) fn ask(
        &self,
        namespace: &ObjectMeta,
        wanted: &mut DesiredPolicies,
    ) -> Result<(), ReconcileFailure> {
        let name = namespace.name.as_str();
        let mut read = |of: &str, look: &str| {
            Service::read(of, look).unwrap_or_else(|unclear| {
                let (service, annotation) = (unclear.service.to_string(), unclear.annotation.as_str());
                log::warn!(service = service.as_str(), annotation; "The annotation is not a list of objects; its policies stay unchanged");
                wanted.unclear.insert(unclear.service);
                None
            })
        };
        let own = carried(&self.pods.within(name));
        let mut policies = Vec::new();
        if central::is_handled(namespace) {
            let (own, lasting) = (Arc::new(own.clone()), self.lasting());
            let mut known: SortedMap<&str, Arc<SortedSet<String>>> = [(name, own)].into();
            for look in self.services.within(name) {
                let Some(service) = read(name, &look) else { continue };
                let open: Vec<&str> = lasting
                    .iter()
                    .map(|other| &other.metadata)
                    .filter(|other| service.is_open_to(other))
                    .map(|other| other.name.as_str())
                    .collect();
                for other in &open {
                    known.entry(other).or_insert_with(|| Arc::new(carried(&self.pods.within(other))));
                }
                let peers = known.iter().filter(|(other, _)| **other == name || open.contains(other));
                let peers = peers.map(|(other, labels)| (*other, Arc::clone(labels))).collect();
                policies.extend(service.within(&peers));
            }
        }
        if !own.is_empty() {
            for (of, look) in self.open_to(namespace) {
                let lasts = |of: &Namespace| {
                    of.metadata.deletion_timestamp.is_none() && central::is_handled(&of.metadata)
                };
                if *of == *name || !self.namespace(&of).is_some_and(|of| lasts(&of)) {
                    continue;
                }
                policies
                    .extend(read(&of, &look).into_iter().flat_map(|service| service.elsewhere(name, &own)));
            }
        }
        if policies.len() > limits::NETWORK_POLICIES_MAX {
            return Err(ReconcileFailure::terminal(format!(
                "the Services of the seed ask for {} NetworkPolicies in namespace {name}; the agent writes at most {}: narrow \
                 annotation networking.resources.gardener.cloud/namespace-selectors of Services there",
                policies.len(),
                limits::NETWORK_POLICIES_MAX
            )));
        }
        wanted.policies.extend(policies);
        Ok(())
    }
}
