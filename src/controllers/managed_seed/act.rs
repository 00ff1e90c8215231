//! Deploys an agent to the cluster of a Shoot.

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::api::core::{DEPLOYMENT, SECRET};
use crate::api::gardener::{MANAGED_SEED, OPERATION, SEED};
use crate::api::meta::{Key, annotation, text};
use crate::base::error::chain;
use crate::base::json::json;
use crate::base::sorted::SortedMap;
use crate::chart::child::RenderedObjects;
use crate::components::managed::checksum;
use crate::deployer::values::{self, AgentAccess, AgentDeployment};
use crate::deployer::{apply, check, own_image, token};
use crate::extension::credentials::CredentialsReference;
use crate::extension::problem;
use crate::flow::Failed;
use crate::format::base64;
use crate::format::time::parse_rfc3339;
use crate::kube::{Client, Patch, Shoot, kubeconfig};
use crate::runtime::controller::ReconcileContext;
use crate::runtime::write;

use super::ManagedSeedContext;
use super::subject::Subject;
use crate::controllers::is_garden;

const RENEW: &str = "renew-kubeconfig";
const VPA: &str = "vpa-admission-controller";

/// The client of the Shoot's cluster.
pub(super) fn target(base: &ManagedSeedContext, subject: &Subject) -> Result<Shoot, Failed> {
    if subject.plane().is_empty() {
        return Err(Failed::new("could not get target client: the Shoot has no control plane"));
    }
    base.site.shoots.connect(subject.plane()).map_err(|error| Failed {
        postponed: error.postponed(),
        ..Failed::new(format!("could not get target client: {}", chain(&error)))
    })
}

/// Creates or updates the agent.
pub(super) fn deploy(
    base: &ManagedSeedContext,
    subject: &Subject,
    cx: &ReconcileContext,
) -> Result<(), Failed> {
    let own = subject.config()?;
    let client = target(base, subject)?;
    check::refuse_another(&client, subject.name())?;
    let (parent, place) = (base.parent_config(subject), "spec.gardenlet.config");
    let config = check::configuration(own, parent, subject.name(), place)?;
    apply::ensure_namespace(&client)?;
    let mut deployment = AgentDeployment {
        wanted: &subject.object["spec"]["gardenlet"]["deployment"],
        domain: text(&subject.shoot["spec"]["dns"]["domain"]),
        ..AgentDeployment::default()
    };
    check_vpa(base, subject, &config)?;
    deployment.annotations = check_backup(base, subject, &config)?;
    let access = access(base, subject, &client, &config, cx)?;
    let objects = render(base, &client, deployment, config, access, cx)?;
    apply::apply(&client, objects)?;
    if annotation(&subject.object, OPERATION) == RENEW {
        let key = subject.key();
        let patch = Patch::annotation(OPERATION, Value::Null);
        base.site.garden.patch::<Value>(&MANAGED_SEED, &key, &patch)?;
    }
    Ok(())
}

/// The chart's objects for an agent with a certificate: enough to remove it.
pub(super) fn objects(
    base: &ManagedSeedContext,
    subject: &Subject,
    client: &Client,
    cx: &ReconcileContext,
) -> Result<RenderedObjects, Failed> {
    let own = subject.config().cloned().unwrap_or_else(|_| json!({"seedConfig": {}}));
    let config = values::configuration(&own, base.parent_config(subject), subject.name());
    let wanted = &subject.object["spec"]["gardenlet"]["deployment"];
    let deployment = AgentDeployment { wanted, ..AgentDeployment::default() };
    render(base, client, deployment, config, AgentAccess::Certificate, cx)
}

fn render(
    base: &ManagedSeedContext,
    client: &Client,
    deployment: AgentDeployment<'_>,
    mut config: Value,
    access: AgentAccess,
    cx: &ReconcileContext,
) -> Result<RenderedObjects, Failed> {
    values::connect(&mut config, access);
    let image = own_image(&base.site.seed, &base.site.images, &base.site.parent)?;
    let mut deployment = AgentDeployment { image: &image, ..deployment };
    let read = |path: &Option<PathBuf>| path.as_deref().map(check::read).transpose();
    deployment.images = [read(&base.site.parent.images)?, read(&base.site.parent.component_images)?];
    if is_garden(client)? {
        deployment.labels.insert(values::TO_GARDEN.to_owned(), json!("allowed"));
    }
    let values = values::values(&deployment, config);
    apply::render(client, &base.site.renderer, &base.site.workers, apply::CHART, values, &cx.stop)
}

/// The Shoot's own VerticalPodAutoscaler would conflict with the seed's.
fn check_vpa(base: &ManagedSeedContext, subject: &Subject, config: &Value) -> Result<(), Failed> {
    let setting = &config["seedConfig"]["spec"]["settings"]["verticalPodAutoscaler"]["enabled"];
    if setting == &json!(false)
        || base.site.seed.find::<Value>(&DEPLOYMENT, &Key::new(subject.plane(), VPA))?.is_none()
    {
        return Ok(());
    }
    Err(problem(
        "runtime VPA is enabled but target cluster already has a VPA: set \
         seedConfig.spec.settings.verticalPodAutoscaler.enabled to false",
    ))
}

/// Checks that the credentials for backups exist. Returns annotations that restart pods when the credentials change.
fn check_backup(
    base: &ManagedSeedContext,
    subject: &Subject,
    config: &Value,
) -> Result<Map<String, Value>, Failed> {
    let mut annotations = Map::new();
    let reference = &config["seedConfig"]["spec"]["backup"]["credentialsRef"];
    if reference["kind"] != "Secret" || reference["apiVersion"] != "v1" {
        return Ok(annotations);
    }
    let reference = CredentialsReference::secret(reference);
    let Some(found) = reference.look(&base.site.garden)? else {
        return Err(problem(format!(
            "the configured backup secret does not exist: seedConfig.spec.backup.credentialsRef names Secret {}; create it",
            reference.key
        )));
    };
    disown(base, subject, &found.object)?;
    let value = format!("{}-{}", reference.key.name, content_checksum(&found.object["data"])?);
    annotations.insert("checksum/seed-backup-secret".to_owned(), json!(value));
    Ok(annotations)
}

/// Upstream's checksum of the data of a Secret, so that a change of the gardenlet restarts no pod.
fn content_checksum(data: &Value) -> Result<String, Failed> {
    let entries = data.as_object().into_iter().flatten();
    let decoded: Result<SortedMap<String, Vec<u8>>, _> = entries
        .map(|(key, value)| base64::decode(text(value).as_bytes()).map(|bytes| (key.clone(), bytes)))
        .collect();
    let decoded = decoded.map_err(|_| problem("the configured backup secret has data that is no base64"))?;
    Ok(checksum(&decoded))
}

/// Whether the ManagedSeed owns the Secret, because an older gardenlet has copied it.
pub(super) fn is_owned(secret: &Value, subject: &Subject) -> bool {
    let owners = secret["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().any(|owner| owner["uid"] == subject.object["metadata"]["uid"])
}

/// Secrets that an older gardenlet has copied are left to the operator.
fn disown(base: &ManagedSeedContext, subject: &Subject, secret: &Value) -> Result<(), Failed> {
    if !is_owned(secret, subject) {
        return Ok(());
    }
    let metadata = &secret["metadata"];
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    let others: Vec<&Value> =
        owners.filter(|owner| owner["uid"] != subject.object["metadata"]["uid"]).collect();
    let patch = json!({"metadata": {"ownerReferences": others, "resourceVersion": metadata["resourceVersion"],
        "labels": {"secret.backup.gardener.cloud/status": "previously-managed"}}});
    base.site.garden.patch::<Value>(&SECRET, &Key::of(secret), &Patch::Merge(patch))?;
    Ok(())
}

/// How the new agent gets access to the garden.
fn access(
    base: &ManagedSeedContext,
    subject: &Subject,
    client: &Client,
    config: &Value,
    cx: &ReconcileContext,
) -> Result<AgentAccess, Failed> {
    let bootstrap = subject.bootstrap();
    if bootstrap == "None" {
        return Ok(AgentAccess::Own);
    }
    let (secret, now) = (values::kubeconfig_secret(config), cx.clock.now());
    let seed = base.site.garden.find::<Value>(&SEED, &Key::cluster(subject.name()))?.unwrap_or_default();
    let expiry = parse_rfc3339(text(&seed["status"]["clientCertificateExpirationTimestamp"]));
    if expiry.is_ok_and(|expiry| expiry < now) || annotation(&subject.object, OPERATION) == RENEW {
        write::delete(client, &SECRET, &secret)?;
    } else if client.find::<Value>(&SECRET, &secret)?.is_some() {
        return Ok(AgentAccess::Certificate);
    }
    if bootstrap != "BootstrapToken" {
        return Err(problem(format!(
            "spec.gardenlet.bootstrap is {bootstrap}, which this version does not support: the garden lets no agent make tokens of \
             ServiceAccounts; make the ManagedSeed anew with BootstrapToken"
        )));
    }
    let key = subject.key();
    let token = token::ensure(&base.site.garden, &key, now).map_err(|error| {
        let failed = Failed::from(error);
        Failed { text: format!("create a bootstrap token in the garden: {}", failed.text), ..failed }
    })?;
    let mut connection = (*base.site.garden.connection()).clone().with_token(token);
    if let Some(address) = config["gardenClientConnection"]["gardenClusterAddress"].as_str() {
        address.clone_into(&mut connection.server);
    }
    let text = kubeconfig::render(&connection);
    text.map(AgentAccess::Bootstrap)
        .map_err(|error| Failed::new(format!("write the bootstrap kubeconfig: {}", chain(&error))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_credentials_is_upstreams() {
        // sha256(hex(sha256("x")) + hex(sha256("y")))
        assert_eq!(content_checksum(&json!({"b": "eQ==", "a": "eA=="})), Ok("80d88848".to_owned()));
        assert_eq!(content_checksum(&Value::Null), Ok("e3b0c442".to_owned()), "of nothing");
        assert!(content_checksum(&json!({"a": "!"})).unwrap_err().text.contains("base64"));
    }
}
