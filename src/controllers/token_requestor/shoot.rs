//! Tokens of the clusters of Shoots (class `shoot`): what the gardener-resource-manager of each control plane does. It needs no
//! garden. The clients are those of the applier, with certificates: a cluster in which every token has expired heals, too.

use super::Requests;
use crate::api::core::SECRET;
use crate::api::meta::Key;
use crate::kube::{Client, Seed};
use crate::runtime::controller::{Context, Failure, Outcome, Reconciler};
use crate::runtime::group::Group;
use crate::runtime::informer::Options;
use crate::runtime::marks::Marks;
use crate::runtime::queue::RETRY_DEFAULT;
use crate::shoot::Served;

const CLASS: &str = "shoot";
const SELECTOR: &str =
    "resources.gardener.cloud/purpose=token-requestor,resources.gardener.cloud/class=shoot";
/// As upstream.
const WORKERS: u32 = 5;

/// Watches the Secrets that ask for tokens.
pub fn watch(seed: &Client, secrets: &Marks, group: &mut Group) {
    let labelled = Options {
        label_selector: SELECTOR.to_owned(),
        metadata_only: true,
        ..Options::all("seed/shoot-token-secrets", SECRET)
    };
    group.watch(seed, labelled, secrets);
}

/// Adds the controller. It works on what [`watch`] sees from now on: the watch is begun after it.
pub fn add(seed: &Seed, served: &Served, secrets: &Marks, group: &mut Group) {
    let lane = group.lane("token-requestor-shoot", WORKERS, RETRY_DEFAULT);
    served.renews_tokens(&lane);
    group.wake_seen(&lane, secrets, |secret| vec![secret.key.clone()]);
    group.run(lane, ShootTokens { seed: seed.clone(), served: served.clone() });
}

struct ShootTokens {
    seed: Seed,
    served: Served,
}

impl Reconciler for ShootTokens {
    fn reconcile(&self, key: &Key, cx: &Context) -> Result<Outcome, Failure> {
        // Without a client the Secret comes back once its cluster is served.
        let Some(client) = self.served.client_for(key, cx.clock.now()) else { return Ok(Outcome::Done) };
        Requests { target: &client, seed: &self.seed, class: CLASS, namespace: None }.renew(key, cx)
    }
}
