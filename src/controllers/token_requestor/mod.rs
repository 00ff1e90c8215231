//! Tokens of other clusters for components and extensions in the seed (Gardener's `token-requestor`).
//!
//! A labelled Secret of the seed names an account; it is made in another cluster, and its token is written into the Secret and
//! renewed there. Woken by such Secrets, and by the time of renewal. For class `garden` the other cluster is the garden, and
//! the account is in the seed's namespace. Class `shoot` is what gardener-resource-manager does: see [`shoot`]. Tokens of
//! WorkloadIdentities: see [`workload_identity`]. All of them ask at one [`Pace`].

mod content;
mod decide;
mod pace;
mod request;
mod seen;
pub mod shoot;
pub mod workload_identity;

use crate::api::gardener::seed_namespace;
use crate::api::meta::Key;
use crate::kube::{Garden, Seed};
use crate::runtime::controller::{Context, Failure, Outcome, Reconciler};
use crate::runtime::group::Group;
use crate::runtime::pool::Lane;
use crate::runtime::queue::RETRY_DEFAULT;

use super::Site;

use request::Requests;

pub use pace::Pace;
pub use seen::{Secrets, watch};

/// What the requestors of all classes share. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    /// Which Secrets are to have tokens.
    pub secrets: Secrets,
    /// Who may ask next.
    pub pace: Pace,
}

const CLASS: &str = "garden";
/// What the garden is called at the [`Pace`], where clusters of Shoots are called as their namespaces.
const GARDEN: &str = "";

/// Adds the controller.
pub fn add(site: &Site, group: &mut Group) {
    let workers = site.settings.controllers.token_requestor_workers;
    let lane = group.lane("token-requestor", workers, RETRY_DEFAULT);
    seen::wake(&lane, &site.tokens.secrets.garden, group);
    let requestor = TokenRequestor {
        garden: site.garden.clone(),
        seed: site.seed.clone(),
        pace: site.tokens.pace.clone(),
        namespace: seed_namespace(site.seed_name()),
        lane: lane.clone(),
    };
    group.run(lane, requestor);
}

struct TokenRequestor {
    garden: Garden,
    seed: Seed,
    pace: Pace,
    /// The namespace of the accounts in the garden.
    namespace: String,
    lane: Lane,
}

impl Reconciler for TokenRequestor {
    fn reconcile(&self, key: &Key, cx: &Context) -> Result<Outcome, Failure> {
        if seen::is_catching_up(key) {
            return seen::catch_up(&self.seed, &seen::labels_of(CLASS), &self.lane);
        }
        let requests = Requests {
            target: (&*self.garden, GARDEN),
            seed: &self.seed,
            pace: &self.pace,
            class: CLASS,
            namespace: Some(&self.namespace),
        };
        requests.renew(key, cx)
    }
}
