//! Replaces the agent with the version that its Gardenlet object describes.

use std::path::Path;

use serde_json::{Map, Value};

use crate::api::core::{CONFIG_MAP, DEPLOYMENT, SECRET};
use crate::api::gardener::{GARDENLET, OPERATION, OciRepository};
use crate::api::meta::{Key, annotation, text};
use crate::base::json::json;
use crate::chart::child::RenderedObjects;
use crate::deployer::{NAME, NAMESPACE, apply, check, values};
use crate::extension::problem;
use crate::flow::Failed;
use crate::format::view;
use crate::identity::secret::OPERATION_RENEW;
use crate::kube::Patch;
use crate::oci::{Error, PullVerdict, PulledChart};
use crate::runtime::controller::{ReconcileContext, ReconcileFailure};

use super::decide::{self, Program, RENEW, REPLACE};
use super::{GardenletReconciler, KEY_NAMESPACE};
use crate::controllers::{charts, is_garden};

const PLACE: &str = "spec.config";

/// Deploys the described version. Returns the message for the condition.
pub(super) fn deploy(
    base: &GardenletReconciler,
    object: &Value,
    cx: &ReconcileContext,
) -> Result<String, Failed> {
    let spec = &object["spec"];
    if spec["deployment"]["replicaCount"] == 0 {
        return Err(problem(
            "spec.deployment.replicaCount is 0: no agent would be left to read this Gardenlet",
        ));
    }
    let running = running(base)?;
    let config = configuration(base, spec, &running)?;
    let mut labels = Map::new();
    if is_garden(&base.site.seed)? {
        labels.insert(values::TO_GARDEN.to_owned(), json!("allowed"));
    }
    let values = decide::values(spec, &running, labels, config);
    let found = view::look::<OciRepository>(&spec["deployment"]["helm"]["ociRepository"]);
    let repository =
        found.map_err(|error| problem(format!("spec.deployment.helm.ociRepository: {error}")))?;
    let pulled = pull(base, &repository, cx)?;
    let url = repository.url();
    let (renderer, workers) = (&base.site.renderer, &base.site.workers);
    let objects = apply::render(&base.site.seed, renderer, workers, &pulled.chart, values, &cx.stop)?;
    refuse_another_program(object, &objects, &url)?;
    apply::replace(&base.site.seed, objects)?;
    if annotation(object, OPERATION) == RENEW {
        renew(base)?;
    }
    let digest = pulled.digest.to_string();
    let digest = if url.contains(&digest) { String::new() } else { format!(" ({digest})") };
    Ok(format!("Gardenlet with chart from {url} has been deployed{digest}"))
}

/// The Deployment that this agent runs from.
fn running(base: &GardenletReconciler) -> Result<Value, Failed> {
    if base.site.parent.namespace.as_deref() != Some(NAMESPACE) {
        return Err(problem(format!(
            "this agent does not run in a pod of namespace {NAMESPACE} of its seed, so it cannot upgrade itself: upgrade it where it was \
             installed, and delete this Gardenlet"
        )));
    }
    match base.site.seed.find::<Value>(&DEPLOYMENT, &Key::new(NAMESPACE, NAME)) {
        Ok(Some(found)) => match text(&found["spec"]["template"]["metadata"]["labels"]["release"]) {
            // The network policy of a new release would not select the present pods.
            release if !release.is_empty() && release != NAME => Err(problem(format!(
                "the agent was installed as Helm release {release:?}, and upgrades are for release {NAME:?}: install it under that name"
            ))),
            _ => Ok(found),
        },
        Ok(None) => Err(problem(format!(
            "there is no Deployment {NAMESPACE}/{NAME} in the seed that could be upgraded: install the agent with its chart"
        ))),
        Err(error) if error.is_denied() => Err(problem(format!(
            "this agent may not read its Deployment {NAMESPACE}/{NAME}: apply its chart with upgrade.allowed, or upgrade it yourself and \
             delete this Gardenlet"
        ))),
        Err(error) => Err(error.into()),
    }
}

/// The configuration of the next version, for the values of the chart.
fn configuration(base: &GardenletReconciler, spec: &Value, running: &Value) -> Result<Value, Failed> {
    let own = &spec["config"];
    if !own["seedConfig"].is_object() {
        return Err(problem(
            "spec.config.seedConfig is missing: write the whole configuration of this agent",
        ));
    }
    let known = match values::config_map_of(running) {
        Some(name) => base.site.seed.find::<Value>(&CONFIG_MAP, &Key::new(NAMESPACE, name))?,
        None => None,
    };
    let known = known.as_ref().and_then(values::configuration_of);
    let seed = known.as_ref().map_or("", |known| text(&known["seedConfig"]["metadata"]["name"]));
    if !seed.is_empty() && seed != base.site.seed_name() {
        return Err(problem(format!(
            "Deployment {NAMESPACE}/{NAME} in the seed is the agent of Seed {seed:?}, not the one that reads this Gardenlet: remove one of the two"
        )));
    }
    let own = decide::inherit(known.as_ref().unwrap_or(&base.site.settings.document), own);
    let mut config = check::configuration(&own, None, base.site.seed_name(), PLACE)?;
    if let Some(path) = decide::kept_bootstrap(&config) {
        config["edge"]["bootstrap"]["kubeconfig"] = json!(check::read(Path::new(path))?);
    }
    let secret = values::kubeconfig_secret(&config);
    // Another Secret may be a leftover that would not give the next version access.
    let used = base.site.settings.garden_client_connection.kubeconfig_secret.as_ref();
    let is_used = used.is_some_and(|used| used.key() == secret);
    let has_secret = is_used && base.site.seed.find::<Value>(&SECRET, &secret)?.is_some();
    let access = decide::access(&config, has_secret).ok_or_else(|| {
        problem(format!(
            "spec.config: the next version would have no access to the garden, because Secret {secret} is not in the seed, or is not the \
             one that this agent uses: name that one in gardenClientConnection.kubeconfigSecret"
        ))
    })?;
    decide::connect(&mut config, access);
    Ok(config)
}

fn pull(
    base: &GardenletReconciler,
    repository: &OciRepository,
    cx: &ReconcileContext,
) -> Result<PulledChart, Failed> {
    let failed = |text: String| Failed::new(format!("failed pulling Helm chart from OCI repository: {text}"));
    let order = charts::order(&base.site.garden, repository).map_err(|failure| {
        let postponed = failure.postponed();
        let codes =
            if matches!(failure, ReconcileFailure::Terminal(_)) { problem("").codes } else { Vec::new() };
        Failed { codes, postponed, ..failed(failure.text()) }
    })?;
    base.site.charts.fetch(&order, &cx.stop).map_err(|error| {
        let is_later = matches!(error, Error::Busy | Error::Stopped);
        let codes = if error.verdict() == PullVerdict::Final { problem("").codes } else { Vec::new() };
        let text = crate::base::error::chain(&error);
        Failed { codes, postponed: is_later.then_some(apply::BUSY_AGAIN), ..failed(text) }
    })
}

/// Refuses to hand the seed over to another program unless a person has confirmed it.
fn refuse_another_program(object: &Value, objects: &RenderedObjects, url: &str) -> Result<(), Failed> {
    match decide::program(objects.values()) {
        Program::Ours => Ok(()),
        Program::Another if annotation(object, REPLACE) == "true" => Ok(()),
        Program::Another => Err(problem(format!(
            "the chart from {url} would replace this program by another one, so nothing was deployed: name a chart of this program, or \
             annotate this Gardenlet with {REPLACE}=true"
        ))),
        Program::None => Err(problem(format!(
            "the chart from {url} has no Deployment {NAMESPACE}/{NAME}, so nothing was deployed: name a chart of this program"
        ))),
    }
}

/// Renews the agent's certificate, as if its Secret had been annotated.
fn renew(base: &GardenletReconciler) -> Result<(), Failed> {
    let secret = base.site.settings.garden_client_connection.kubeconfig_secret.as_ref();
    let secret = secret.ok_or_else(|| {
        problem(
            "the agent has no kubeconfig Secret (gardenClientConnection.kubeconfigSecret), so its credentials cannot be renewed here: \
             renew them where they come from, then remove the annotation",
        )
    })?;
    let patch = Patch::annotation(OPERATION, OPERATION_RENEW);
    base.site.seed.patch::<Value>(&SECRET, &secret.key(), &patch)?;
    let patch = Patch::annotation(OPERATION, Value::Null);
    base.site.garden.patch::<Value>(&GARDENLET, &Key::new(KEY_NAMESPACE, base.site.seed_name()), &patch)?;
    Ok(())
}
