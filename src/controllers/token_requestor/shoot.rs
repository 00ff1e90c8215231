//! Tokens of the clusters of Shoots (class `shoot`), which upstream's gardener-resource-manager of each control plane
//! renews. It needs no garden. It uses the applier's clients, which authenticate with certificates, so a cluster
//! recovers even if all its tokens have expired.

use super::request::Requests;
use super::{TokenRateLimit, TokenSecrets, seen};
use crate::api::meta::Key;
use crate::kube::Seed;
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use crate::runtime::group::ControllerGroup;
use crate::runtime::pool::Lane;
use crate::runtime::queue::RETRY_DEFAULT;
use crate::shoot::ServedShoots;

const CLASS: &str = "shoot";
/// As in upstream.
const WORKERS: u32 = 5;

pub(crate) fn add(
    seed: &Seed,
    served: &ServedShoots,
    secrets: &TokenSecrets,
    pace: &TokenRateLimit,
    group: &mut ControllerGroup,
) {
    let lane = group.lane("token-requestor-shoot", WORKERS, RETRY_DEFAULT);
    served.renews_tokens(&lane);
    seen::wake(&lane, &secrets.shoot, group);
    let (seed, served, pace) = (seed.clone(), served.clone(), pace.clone());
    group.run(lane.clone(), ShootTokens { seed, served, pace, lane });
}

struct ShootTokens {
    seed: Seed,
    served: ServedShoots,
    pace: TokenRateLimit,
    lane: Lane,
}

impl Reconciler for ShootTokens {
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        if seen::is_catching_up(key) {
            return seen::catch_up(&self.seed, &seen::labels_of(CLASS), &self.lane);
        }
        // Without a client, the Secret returns once its cluster is served.
        let Some(client) = self.served.client_for(key, cx.clock.now()) else {
            return Ok(ReconcileOutcome::Done);
        };
        let (target, target_name) = (&*client, key.namespace.as_str());
        Requests { target, target_name, seed: &self.seed, pace: &self.pace, class: CLASS, namespace: None }
            .renew(key, cx)
    }
}
