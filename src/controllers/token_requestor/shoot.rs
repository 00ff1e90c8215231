//! Tokens of the clusters of Shoots (class `shoot`): what the gardener-resource-manager of each control plane does. It needs no
//! garden. The clients are those of the applier, with certificates: a cluster in which every token has expired heals, too.

use super::request::Requests;
use super::{Pace, Secrets, seen};
use crate::api::meta::Key;
use crate::kube::Seed;
use crate::runtime::controller::{Context, Failure, Outcome, Reconciler};
use crate::runtime::group::Group;
use crate::runtime::pool::Lane;
use crate::runtime::queue::RETRY_DEFAULT;
use crate::shoot::Served;

const CLASS: &str = "shoot";
/// As upstream.
const WORKERS: u32 = 5;

/// Adds the controller.
pub fn add(seed: &Seed, served: &Served, secrets: &Secrets, pace: &Pace, group: &mut Group) {
    let lane = group.lane("token-requestor-shoot", WORKERS, RETRY_DEFAULT);
    served.renews_tokens(&lane);
    seen::wake(&lane, &secrets.shoot, group);
    let (seed, served, pace) = (seed.clone(), served.clone(), pace.clone());
    group.run(lane.clone(), ShootTokens { seed, served, pace, lane });
}

struct ShootTokens {
    seed: Seed,
    served: Served,
    pace: Pace,
    lane: Lane,
}

impl Reconciler for ShootTokens {
    fn reconcile(&self, key: &Key, cx: &Context) -> Result<Outcome, Failure> {
        if seen::is_catching_up(key) {
            return seen::catch_up(&self.seed, &seen::labels_of(CLASS), &self.lane);
        }
        // Without a client the Secret comes back once its cluster is served.
        let Some(client) = self.served.client_for(key, cx.clock.now()) else { return Ok(Outcome::Done) };
        let target = (&*client, key.namespace.as_str());
        Requests { target, seed: &self.seed, pace: &self.pace, class: CLASS, namespace: None }.renew(key, cx)
    }
}
