//! The seed's CA, `garden/ca-seed-…`, which signs the certificates of Gardener's components in a seed.
//!
//! Upstream has a second one, `ca-istio-basic-auth-server`, for a server of its monitoring. This agent installs no
//! monitoring, so it does not create that CA. It leaves an existing one alone, with everything that it has signed.

use std::sync::Arc;
use std::time::Duration;

use crate::api::resources::GARDEN_NAMESPACE;
use crate::base::clock::Clock;
use crate::flow::{Failed, TaskStep};
use crate::kube::Seed;
use crate::pki::keys::RsaKeys;
use crate::secrets::{KEY_AGAIN, Options, SecretConfig, Secrets, SecretsLocation, SecretsRotation};

use super::work::Work;

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// A small processor takes half a minute for a key.
pub(super) const WITHIN: Duration = Duration::from_secs(300);

/// Where the seed's Secrets are stored.
pub(super) fn place(seed: &Seed, keys: &Arc<dyn RsaKeys>, clock: &Clock) -> SecretsLocation {
    SecretsLocation {
        client: seed.clone(),
        namespace: GARDEN_NAMESPACE.to_owned(),
        identity: "gardenlet".to_owned(),
        keys: Arc::clone(keys),
        clock: clock.clone(),
    }
}

fn config() -> SecretConfig {
    SecretConfig::Ca {
        name: "ca-seed".to_owned(),
        common_name: "kubernetes".to_owned(),
        validity: Some(30 * DAY),
    }
}

/// As in upstream: no `persist`, because a seed does not migrate.
fn options() -> Options {
    Options { keep_old: true, ignore_old_after: Some(DAY), ..Options::default() }
}

/// Finds the CA, creates it or renews it.
pub(super) fn ensure(work: &mut Work) -> Result<TaskStep, Failed> {
    let secrets = match &mut work.secrets {
        Some(secrets) => secrets,
        none => {
            let rotation = SecretsRotation { renews_cas: true, ..SecretsRotation::default() };
            none.insert(Secrets::load(work.place.clone(), &rotation)?)
        }
    };
    Ok(match secrets.ensure(&config(), &options())? {
        Some(_) => TaskStep::Done,
        None => TaskStep::again(KEY_AGAIN, Failed::progress("making RSA keys, 1 of 1")),
    })
}

pub(super) fn clean_up(work: &mut Work) -> Result<TaskStep, Failed> {
    work.secrets.iter_mut().try_for_each(Secrets::clean_up_asked)?;
    Ok(TaskStep::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_go_gardenlet_files_it_under_the_same_checksum() {
        assert_eq!(config().checksum(), 16_473_382_070_636_541_080);
    }
}
