//! Tokens of other clusters for components and extensions in the seed (Gardener's `token-requestor`).
//!
//! A labelled Secret of the seed names an account. The controller creates the account in another cluster, writes its
//! token to the Secret, and renews it. Woken by such Secrets, and at the time of renewal. For class `garden`, the other
//! cluster is the garden, and the account is in the seed's namespace. gardener-resource-manager handles class `shoot`
//! in upstream: see [`shoot`]. For tokens of WorkloadIdentities see [`workload_identity`]. All of them share one
//! [`TokenRateLimit`].

mod content;
mod decide;
mod pace;
mod request;
mod seen;
pub(super) mod shared;
pub(crate) mod shoot;
pub(crate) mod workload_identity;

use std::sync::Arc;

use crate::api::gardener::seed_namespace;
use crate::api::meta::Key;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use crate::runtime::group::ControllerGroup;
use crate::runtime::pool::Lane;
use crate::runtime::queue::RETRY_DEFAULT;

use super::Site;

use request::Requests;

pub(crate) use pace::TokenRateLimit;
pub(crate) use seen::{TokenSecrets, watch};
pub(crate) use shared::TokenRequestorState;

const CLASS: &str = "garden";
/// The name of the garden in the [`TokenRateLimit`]. Clusters of Shoots have the name of their namespace.
const GARDEN: &str = "";

pub(crate) fn add(site: &Arc<Site>, group: &mut ControllerGroup) {
    let workers = site.settings.controllers.token_requestor_workers;
    let lane = group.lane("token-requestor", workers, RETRY_DEFAULT);
    seen::wake(&lane, &site.tokens.secrets.garden, group);
    let requestor = TokenRequestor {
        site: Arc::clone(site),
        namespace: seed_namespace(site.seed_name()),
        lane: lane.clone(),
    };
    group.run(lane, requestor);
}

struct TokenRequestor {
    site: Arc<Site>,
    /// The namespace of the accounts in the garden.
    namespace: String,
    lane: Lane,
}

impl Reconciler for TokenRequestor {
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        if seen::is_catching_up(key) {
            return seen::catch_up(&self.site.seed, &seen::labels_of(CLASS), &self.lane);
        }
        let requests = Requests {
            target: &self.site.garden,
            target_name: GARDEN,
            seed: &self.site.seed,
            pace: &self.site.tokens.pace,
            class: CLASS,
            namespace: Some(&self.namespace),
        };
        requests.renew(key, cx)
    }
}
