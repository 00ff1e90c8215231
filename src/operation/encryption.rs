//! Tasks that rewrite the stored objects of a Shoot after a change of its encryption or of the key for its tokens.
//!
//! Their progress is stored in annotations of the kube-apiserver's Deployment, as a Go gardenlet does.

use serde_json::Value;

use crate::api::core::DEPLOYMENT;
use crate::api::gardener::SHOOT;
use crate::api::meta::{Key, Metadata, text};
use crate::base::json::json;
use crate::flow::{Attempt, Failed, TaskStep};
use crate::format::time::parse_rfc3339;
use crate::kube::{Client, Patch};
use crate::shoot::RotationPhase;
use crate::shoot::rewrite;
use crate::shoot::rewrite::accounts::SigningKey;
use crate::shoot::rotation::{ENCRYPTION_KEY, SERVICE_ACCOUNT_KEY};

use super::components::kube_apiserver::{self, KeyOrder};
use super::status;
use super::work::Work;

/// All objects have the label, so it can be removed.
const LABELED: &str = "credentials.gardener.cloud/resources-labeled";
/// The labelled objects were backed up.
const SNAPSHOTTED: &str = "credentials.gardener.cloud/etcd-snapshotted";

/// Adds the label to all objects that must be encrypted again. The objects of a new Shoot are encrypted from the start.
pub(super) fn label(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    if is_new(work) || has(work, LABELED)? {
        return Ok(TaskStep::Done);
    }
    let (resources, key) =
        (rewrite::resources(&work.view), work.secrets()?.current(ENCRYPTION_KEY).to_owned());
    let mut rewrite = std::mem::take(&mut work.rewrite);
    let step = rewrite.label(&|| client(work), &resources, &key);
    work.rewrite = rewrite;
    let step = step?;
    if step == TaskStep::Done {
        annotate(work, &[(LABELED, json!("true"))])?;
    }
    Ok(step)
}

/// Removes the label, and records in the garden what is encrypted now.
pub(super) fn unlabel(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    if !is_new(work) {
        let mut rewrite = std::mem::take(&mut work.rewrite);
        let step = rewrite.unlabel(&|| client(work), &rewrite::resources(&work.view));
        work.rewrite = rewrite;
        let step = step?;
        if step != TaskStep::Done {
            return Ok(step);
        }
        // Before the status: a remaining annotation would make the next rotation skip its writes.
        if has(work, LABELED)? || has(work, SNAPSHOTTED)? {
            annotate(work, &[(LABELED, Value::Null), (SNAPSHOTTED, Value::Null)])?;
        }
    }
    let (provider, resources) = (work.view.encryption_provider(), &work.view.encrypted);
    if let Some(patch) = status::encrypted(&work.shoot, provider, resources) {
        work.env.garden.patch_status::<Value>(&SHOOT, &work.key(), &Patch::Merge(patch))?;
    }
    Ok(TaskStep::Done)
}

/// Gives ServiceAccounts tokens that the new key signs.
pub(super) fn renew_accounts(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let mut accounts = std::mem::take(&mut work.accounts);
    let step = signing_key(work).and_then(|key| accounts.renew(&|| client(work), key));
    work.accounts = accounts;
    step
}

/// Deletes their tokens that the old key has signed.
pub(super) fn clean_accounts(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let entry = &work.shoot["status"]["credentials"]["rotation"]["serviceAccountKey"];
    let Ok(prepared) = parse_rfc3339(text(&entry["lastInitiationFinishedTime"])) else {
        return Ok(TaskStep::Done);
    };
    let mut accounts = std::mem::take(&mut work.accounts);
    let step = signing_key(work).and_then(|key| accounts.clean(&|| client(work), key, prepared));
    work.accounts = accounts;
    step
}

/// After the second step of a rotation has started, there is no new key to distribute.
pub(super) fn forget_populated(work: &Work, live: Option<&Value>) -> Result<(), Failed> {
    let is_populated =
        live.is_some_and(|live| live["metadata"]["annotations"][KeyOrder::POPULATED].is_string());
    if is_populated && work.view.rotations.encryption_key.phase == RotationPhase::Completing {
        annotate(work, &[(KeyOrder::POPULATED, Value::Null)])?;
    }
    Ok(())
}

fn signing_key(work: &Work) -> Result<SigningKey<'_>, Failed> {
    let made = work.secrets()?;
    let data = made.data(SERVICE_ACCOUNT_KEY);
    let data = data.ok_or_else(|| Failed::new("there is no key for tokens of ServiceAccounts yet"))?;
    Ok(SigningKey { name: made.current(SERVICE_ACCOUNT_KEY), data })
}

/// Whether the status has no record of the encryption yet, and the key is not being rotated.
fn is_new(work: &Work) -> bool {
    let phase = work.view.rotations.encryption_key.phase;
    let provider = &work.shoot["status"]["credentials"]["encryptionAtRest"]["provider"]["type"];
    text(provider).is_empty() && !matches!(phase, RotationPhase::Preparing | RotationPhase::Completing)
}

fn client(work: &Work) -> Result<Client, Failed> {
    Ok((*work.env.connector.connect(work.plane())?).clone())
}

fn has(work: &Work, annotation: &str) -> Result<bool, Failed> {
    let found = work.env.seed.find::<Metadata>(&DEPLOYMENT, &Key::new(work.plane(), kube_apiserver::NAME))?;
    Ok(found.is_some_and(|found| found.metadata.annotations.contains_key(annotation)))
}

fn annotate(work: &Work, annotations: &[(&str, Value)]) -> Result<(), Failed> {
    let annotations: serde_json::Map<String, Value> =
        annotations.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    work.env.seed.patch_blindly(&DEPLOYMENT, &Key::new(work.plane(), kube_apiserver::NAME), &patch)?;
    Ok(())
}
