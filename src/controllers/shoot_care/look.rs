//! One check of a Shoot: collects the input of its conditions and constraints.

use crate::api::core::SECRET;
use crate::api::extensions::CLUSTER;
use crate::api::gardener::{ShootHead, ShootStatus};
use crate::api::meta::{Key, Metadata};
use crate::base::clock::{Mono, Timestamp};
use crate::base::error::chain;
use crate::kube::{Client, Error, ListParams};
use crate::operation::components::workloads;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure};
use crate::secrets::labels;
use crate::shoot::ServingState;

use super::act::KnownShoot;
use super::basis::Basis;
use super::constraints::ShootFindings;
use super::decide::{Plane, ServerHealth};
use super::inside::{self, ServerAnswer};
use super::nodes::NodeFindings;
use super::{CareReconciler, pace};

/// The findings of a check.
pub(super) struct CheckFindings {
    /// The API server's answer.
    pub(super) server: ServerHealth,
    /// The namespace in the seed.
    pub(super) plane: Result<Plane, String>,
    /// The findings inside the Shoot.
    pub(super) inside: Result<ShootFindings, String>,
    /// Why the applier does not serve the Shoot.
    pub(super) applier: Option<String>,
    /// The findings about its nodes, if it has workers and a server that answers.
    pub(super) nodes: Option<NodeFindings>,
}

/// CAs with their expiry, or why it is unknown.
type Authorities = Result<Vec<(String, Timestamp)>, String>;

/// Cached facts that are read rarely.
#[derive(Default)]
pub(super) struct RarelyReadFacts {
    /// The last reconciled spec, when it was read, and for which operation.
    basis: Option<(Basis, Mono, (i64, String, String))>,
    /// CAs and their validity.
    pub(super) authorities: Option<(Mono, Authorities)>,
    definitions: Option<(Mono, Result<Vec<String>, String>)>,
    pods: Option<Mono>,
    /// Since when the applier has not served the Shoot.
    unserved: Option<Mono>,
}

impl RarelyReadFacts {
    /// The Shoot was reconciled: everything may have changed.
    pub(super) fn forget(&mut self) {
        (self.basis, self.authorities, self.definitions) = (None, None, None);
    }
}

fn is_due(last: Option<Mono>, at: Mono, period: std::time::Duration) -> bool {
    last.is_none_or(|last| at.saturating_sub(last) >= period)
}

/// The fields of a Shoot whose change means that its `Cluster` may have changed.
fn mark(status: &ShootStatus) -> (i64, String, String) {
    let last = status.last_operation.clone().unwrap_or_default();
    (status.observed_generation, last.kind, last.state)
}

impl CareReconciler {
    /// The last reconciled spec of the Shoot; `None` if there is no `Cluster`. Cached values are used while
    /// the seed does not answer.
    pub(super) fn basis(
        &self,
        head: &ShootHead,
        known: &mut KnownShoot,
        at: Mono,
    ) -> Result<Option<Basis>, Error> {
        let mark = mark(&head.status);
        // An operation first reports its start, and writes the `Cluster` after that.
        let is_changing = mark.2 == "Processing";
        if let Some((basis, read, of)) = &known.rarely.basis
            && *of == mark
            && !is_changing
            && !is_due(Some(*read), at, pace::SELDOM)
        {
            return Ok(Some(basis.clone()));
        }
        match self.site.seed.find(&CLUSTER, &Key::cluster(&head.status.technical_id)) {
            Ok(cluster) => {
                let host_types = &self.site.settings.edge.host_types;
                let basis = cluster.as_ref().and_then(|cluster| Basis::read(cluster, host_types));
                known.rarely.basis = basis.clone().map(|basis| (basis, at, mark));
                Ok(basis)
            }
            Err(error) => match &known.rarely.basis {
                Some((basis, ..)) => Ok(Some(basis.clone())),
                None => Err(error),
            },
        }
    }

    /// Runs the check. `answer` is the API server's, if it was just asked. Errors: a request to the seed was
    /// not sent, which says nothing about the Shoot.
    pub(super) fn look(
        &self,
        head: &ShootHead,
        known: &mut KnownShoot,
        basis: &Basis,
        answer: Option<ServerAnswer>,
        cx: &ReconcileContext,
    ) -> Result<CheckFindings, ReconcileFailure> {
        let (namespace, at) = (head.status.technical_id.as_str(), cx.clock.mono());
        let care = self.settings();
        let plane = if known.wants_present() || answer.is_some() {
            self.planes.now(namespace)
        } else {
            self.planes.of(namespace, at, pace::age_max(known.is_well(), care.sync_period))
        };
        let plane = match plane {
            Err(error) if error.postponed().is_some() => return Err(error.into()),
            Ok(plane) => Ok(self.with_snapshots(namespace, plane, known.wants_present(), cx)),
            Err(error) => Err(super::planes::words(&error)),
        };
        let ServerAnswer { health, client } = match &plane {
            Ok(plane) if !plane.has_server() => ServerAnswer { health: ServerHealth::Stopped, client: None },
            _ => match answer {
                Some(answer) => answer,
                None => inside::ask(&self.site, namespace, &mut known.held, cx.clock.now(), &cx.metrics)?,
            },
        };
        let nodes = client.as_ref().filter(|_| !basis.pools.is_empty()).map(|client| {
            let is_well = known.is_well() && !known.wants_present();
            known.nodes.look(&client.ungated(), basis.delay_max, is_well, at)
        });
        // The cause of an unhealthy server may be inside: a webhook, for example.
        let inside = match client {
            // It has just answered, so backoff after failures of other requests does not apply.
            Some(client) => {
                let is_going = basis.is_going || head.metadata.deletion_timestamp.is_some();
                Ok(self.inside(namespace, &client.ungated(), known, is_going, at, cx))
            }
            None => Err("The API server of the Shoot does not answer.".to_owned()),
        };
        let applier = self.applier(namespace, known, &health, at);
        Ok(CheckFindings { server: health, plane, inside, applier, nodes })
    }

    /// A workload with failed snapshots is not healthy, as in upstream.
    fn with_snapshots(&self, namespace: &str, mut plane: Plane, anew: bool, cx: &ReconcileContext) -> Plane {
        let trouble = self.snapshots.as_ref().and_then(|all| all.trouble(&self.planes, namespace, anew, cx));
        for workload in workloads().filter(|workload| workload.has_snapshots()) {
            if let (Some(why), Some(health @ Ok(()))) = (&trouble, plane.etcds.get_mut(workload.name())) {
                *health = Err(why.clone());
            }
        }
        plane
    }

    fn inside(
        &self,
        namespace: &str,
        client: &Client,
        known: &mut KnownShoot,
        is_going: bool,
        at: Mono,
        cx: &ReconcileContext,
    ) -> ShootFindings {
        let told = |what: &str, result: Result<(), Error>| {
            if let Err(error) = result {
                let err = chain(&error);
                log::warn!(namespace = namespace, what = what, err = err.as_str(); "A check inside the Shoot failed");
            }
        };
        if self.settings().remediates_webhooks {
            told("webhooks", inside::remediate(client, namespace));
        }
        let rarely = &mut known.rarely;
        if is_due(rarely.pods, at, pace::RARELY) {
            rarely.pods = Some(at);
            told("pods", inside::collect(client, is_going, cx.clock.now()));
        }
        let read = rarely.definitions.as_ref().filter(|(_, names)| names.as_ref().is_ok_and(Vec::is_empty));
        if is_due(read.map(|(read, _)| *read), at, pace::RARELY) {
            let names = inside::definitions(client);
            rarely.definitions = Some((at, names.map_err(|error| chain(&error))));
        }
        let webhooks = inside::problem(client).map_err(|error| chain(&error));
        let definitions = rarely.definitions.as_ref().map_or(Ok(Vec::new()), |(_, names)| names.clone());
        ShootFindings { webhooks, definitions }
    }

    /// Why the applier does not serve the Shoot, if it should and has had time to start.
    fn applier(
        &self,
        namespace: &str,
        known: &mut KnownShoot,
        server: &ServerHealth,
        at: Mono,
    ) -> Option<String> {
        let state = self.site.served.state(namespace).map(|state| state.serving);
        let is_here = self.site.settings.edge.resource_manager.is_here();
        if !is_here
            || matches!(state, Some(ServingState::Served | ServingState::LeftToOther))
            || *server != ServerHealth::Well
        {
            known.rarely.unserved = None;
            return None;
        }
        // The applier may not have noticed the running server yet.
        self.site.served.wake(namespace);
        let since = *known.rarely.unserved.get_or_insert(at);
        let is_late = at.saturating_sub(since) >= pace::APPLIER_GRACE;
        is_late.then(|| match state {
            Some(serving) => serving.to_string(),
            None => {
                (self.site.remarks)().unwrap_or_else(|| "the embedded applier has not started".to_owned())
            }
        })
    }

    /// Reads the expiry of a control plane's CAs periodically.
    pub(super) fn read_authorities(&self, namespace: &str, known: &mut KnownShoot, at: Mono) {
        let period = if known.has_expiring() { pace::SOON } else { pace::SELDOM };
        if !is_due(known.rarely.authorities.as_ref().map(|(read, _)| *read), at, period) {
            return;
        }
        let params = ListParams {
            label_selector: format!("{},{}=true", labels::selector("gardenlet"), labels::PERSIST),
            metadata_only: true,
            ..ListParams::default()
        };
        let mut found = Vec::new();
        let listed = self.site.seed.list_all::<Metadata>(&SECRET, namespace, &params, &mut |secret| {
            let label = |name: &str| secret.metadata.labels.get(name);
            let until = label(labels::VALID_UNTIL).and_then(|until| until.parse().ok());
            found.extend(label(labels::NAME).cloned().zip(until.map(Timestamp::from_unix)));
        });
        found.sort();
        let result = match listed {
            // Keep the previous facts.
            Err(error) if error.postponed().is_some() => return,
            other => other.map(|_| found).map_err(|error| super::planes::words(&error)),
        };
        known.rarely.authorities = Some((at, result));
    }
}
