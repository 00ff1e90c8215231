//! Operations that an administrator or gardener-operator requests with the Seed's annotation
//! `gardener.cloud/operation`. The annotation is removed once the operation is done: gardener-operator waits for that
//! during a rotation of its credentials.

use serde_json::Value;

use crate::api::core::SECRET;
use crate::api::gardener::{OPERATION, SEED};
use crate::api::meta::{ALL_NAMESPACES, Key, Metadata};
use crate::base::json::json;
use crate::config::settings::SecretReference;
use crate::flow::{Failed, TaskStep};
use crate::identity::secret::OPERATION_RENEW;
use crate::kube::{Garden, ListParams, Patch, Seed};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeedOperation {
    /// Renew tokens for the garden.
    GardenAccessSecrets,
    /// Renew tokens of workload identities.
    WorkloadIdentityTokens,
    /// Renew the agent's certificate.
    Kubeconfig,
}

impl SeedOperation {
    /// The operation with that name. Other programs may handle other names.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "renew-garden-access-secrets" => Some(Self::GardenAccessSecrets),
            "renew-workload-identity-tokens" => Some(Self::WorkloadIdentityTokens),
            "renew-kubeconfig" => Some(Self::Kubeconfig),
            _ => None,
        }
    }

    /// The Secrets with the renewal time of their tokens, and the annotation that contains it.
    const fn tokens(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::GardenAccessSecrets => Some((
                "resources.gardener.cloud/purpose=token-requestor,resources.gardener.cloud/class=garden",
                "serviceaccount.resources.gardener.cloud/token-renew-timestamp",
            )),
            Self::WorkloadIdentityTokens => Some((
                "security.gardener.cloud/purpose=workload-identity-token-requestor",
                "workloadidentity.security.gardener.cloud/token-renew-timestamp",
            )),
            Self::Kubeconfig => None,
        }
    }
}

/// Performs the operation. It can be repeated: a Secret whose token was renewed meanwhile gets another one.
pub(super) fn perform(
    seed: &Seed,
    operation: SeedOperation,
    kubeconfig: Option<&SecretReference>,
) -> Result<(), Failed> {
    if let Some((labels, annotation)) = operation.tokens() {
        let params = ListParams { label_selector: labels.to_owned(), ..ListParams::default() };
        let mut due = Vec::new();
        seed.list_all::<Metadata>(&SECRET, ALL_NAMESPACES, &params, &mut |secret| {
            if secret.metadata.annotations.contains_key(annotation) {
                due.push(secret.metadata.key());
            }
        })?;
        for key in due {
            let patch = Patch::annotation(annotation, Value::Null);
            match seed.patch::<Value>(&SECRET, &key, &patch) {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        return Ok(());
    }
    let Some(secret) = kubeconfig else {
        return Err(Failed::new(
            "the agent has no kubeconfig Secret (gardenClientConnection.kubeconfigSecret), so its credentials cannot be \
             renewed here: renew them where they come from, then remove the annotation",
        ));
    };
    let patch = Patch::annotation(OPERATION, OPERATION_RENEW);
    seed.patch::<Value>(&SECRET, &secret.key(), &patch)?;
    Ok(())
}

/// Removes the annotation if it still requests the performed operation.
pub(super) fn acknowledge(garden: &Garden, name: &str, asked: &str) -> Result<TaskStep, Failed> {
    let key = Key::cluster(name);
    let Some(live) = garden.find::<Value>(&SEED, &key)? else { return Ok(TaskStep::Done) };
    if live["metadata"]["annotations"][OPERATION] != asked {
        return Ok(TaskStep::Done);
    }
    let patch = json!({"metadata": {
        "annotations": {OPERATION: null}, "resourceVersion": live["metadata"]["resourceVersion"],
    }});
    garden.patch::<Value>(&SEED, &key, &Patch::Merge(patch))?;
    log::info!(seed = name, operation = asked; "Performed the operation that the Seed's annotation requested");
    Ok(TaskStep::Done)
}
