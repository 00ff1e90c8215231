//! From `helm.ociRepository` of a deployment to the archive of its chart. The Secrets that it names are in the garden.

use std::sync::Arc;

use crate::api::condition::Status;
use crate::api::core::{SECRET, Secret};
use crate::api::gardener::{HelmDeployment, OciRepository};
use crate::base::error::chain;
use crate::chart::child::Archive;
use crate::format::base64;
use crate::kube::Garden;
use crate::oci::{self, Content, Error, Keychain, Order, Reference};
use crate::runtime::controller::{Context, Failure};

use super::InstallationReconciler;
use super::render::BUSY_AGAIN;
use super::status::Verdict;
use crate::api::resources::GARDEN_NAMESPACE;

const DOCKER_CONFIG: &str = ".dockerconfigjson";
const BUNDLE: &str = "bundle.crt";

/// A chart's archive. On disk it stays there: only the process that renders reads it.
pub(super) enum Chart {
    /// Out of the deployment.
    Raw(Vec<u8>),
    /// Out of a registry.
    Pulled(Content),
}

impl Chart {
    pub(super) fn archive(&self) -> Archive<'_> {
        match self {
            Self::Raw(bytes) => Archive::Bytes(bytes),
            Self::Pulled(Content::Bytes(bytes)) => Archive::Bytes(bytes),
            Self::Pulled(Content::File(file)) => Archive::File(file),
        }
    }
}

/// Pulls the chart; says in `Valid` why it cannot. Only a reference that can never work waits for a change of the
/// deployment: nothing tells us when a registry or a Secret has changed.
pub(super) fn chart(
    this: &InstallationReconciler,
    helm: &HelmDeployment,
    verdict: &mut Verdict,
    cx: &Context,
) -> Result<Chart, Failure> {
    let nowhere = "the deployment has neither helm.rawChart nor helm.ociRepository";
    let repository = helm.oci_repository.as_ref().ok_or_else(|| Failure::terminal(nowhere));
    let order = repository.and_then(|repository| order(&this.garden, repository));
    let result = order.and_then(|order| match this.charts.pull(&order, &cx.stop) {
        // Not the chart's fault: nobody needs to know.
        Err(error @ (Error::Busy | Error::Stopped)) => Ok(Err(Failure::later(BUSY_AGAIN, error))),
        pulled => pulled.map(Ok).map_err(failure),
    });
    let pulled = result.inspect_err(|failure| {
        let why = format!("chart pulling process failed: {}", failure.text());
        verdict.valid(Status::False, "OCIChartCannotBePulled", &why);
    })?;
    pulled.map(Chart::Pulled)
}

fn failure(error: Error) -> Failure {
    match error.verdict() {
        oci::Verdict::Final => Failure::terminal(error),
        oci::Verdict::Retry | oci::Verdict::Configuration => Failure::retry(error),
    }
}

/// What is pulled, with the logins and CAs that the deployment names.
pub(super) fn order(garden: &Garden, repository: &OciRepository) -> Result<Order, Failure> {
    let reference = Reference::parse(&repository.url()).map_err(|why| failure(Error::Reference(why)))?;
    let read = |name: &str, what: &str| {
        garden.get::<Secret>(&SECRET, GARDEN_NAMESPACE, name).map_err(|e| {
            Failure::retry(format!("failed to get {what} {GARDEN_NAMESPACE}/{name}: {}", chain(&e)))
        })
    };
    let mut ca_bundle = None;
    if let Some(secret) = &repository.ca_bundle_secret_ref {
        let found = read(&secret.name, "CA bundle secret")?;
        let pem = value(&found, BUNDLE).map_err(|why| complaint("CA bundle secret", &secret.name, &why))?;
        ca_bundle = Some(Arc::from(pem));
    }
    let mut keychain = Keychain::default();
    if let Some(secret) = &repository.pull_secret_ref {
        let found = read(&secret.name, "pull secret")?;
        keychain = value(&found, DOCKER_CONFIG)
            .and_then(|text| Keychain::parse(&text).map_err(str::to_owned))
            .map_err(|why| complaint("pull secret", &secret.name, &why))?;
    }
    Ok(Order { reference, keychain, ca_bundle })
}

/// A value of a Secret, not empty.
fn value(secret: &Secret, key: &str) -> Result<Vec<u8>, String> {
    let text = secret.data.get(key).ok_or_else(|| format!("is missing the data key {key}"))?;
    match base64::decode(text.as_bytes()) {
        Ok(bytes) if bytes.is_empty() => Err(format!("has empty data for key {key}")),
        Ok(bytes) => Ok(bytes),
        Err(_) => Err(format!("has no base64 in data key {key}")),
    }
}

fn complaint(what: &str, name: &str, why: &str) -> Failure {
    Failure::retry(format!("{what} {GARDEN_NAMESPACE}/{name} {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_without_what_is_needed_say_so() {
        let secret =
            |data: serde_json::Value| -> Secret { serde_json::from_value(json!({"data": data})).unwrap() };
        let table = [
            (json!({BUNDLE: "eA=="}), Ok(b"x".to_vec())),
            (json!({}), Err("is missing the data key bundle.crt")),
            (json!({BUNDLE: ""}), Err("has empty data for key bundle.crt")),
            (json!({BUNDLE: "%"}), Err("has no base64 in data key bundle.crt")),
        ];
        for (data, expected) in table {
            assert_eq!(value(&secret(data), BUNDLE), expected.map_err(str::to_owned));
        }
        let text = complaint("pull secret", "x", "is missing the data key y").text();
        assert_eq!(text, "pull secret garden/x is missing the data key y");
    }

    #[test]
    fn only_references_are_final() {
        assert!(matches!(failure(Error::Reference("x")), Failure::Terminal(_)));
        assert!(matches!(failure(Error::NotInLayout), Failure::Retry(_)));
        assert!(matches!(failure(Error::Stopped), Failure::Retry(_)));
    }
}
