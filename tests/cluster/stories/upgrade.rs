//! The agent replaces itself by another version, under the RBAC of a real API server.

use std::process::Command;

use gardenlet::api::core::DEPLOYMENT;
use gardenlet::api::gardener::GARDENLET;
use gardenlet::api::meta::Key;
use gardenlet::api::rbac::{CLUSTER_ROLE, ROLE};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::cluster;
use crate::failure::{Failure, Result, ensure, equal};
use crate::lab::Lab;
use crate::process;
use crate::registry::{self, Registry};
use crate::stories::steps::{ready, while_running};
use crate::world::{self, SEED, World};

/// An API server lets no user grant permissions beyond the user's own, unless a role allows it. There is no node, so
/// this agent continues.
pub(crate) fn to_more_rights(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let file = lab.place.join("chart.yaml");
    cluster::write(&file, &installed(lab)?)?;
    lab.seed.kubectl(&["apply", "--filename", &file.display().to_string()])?;
    let registry = Registry::start(lab)?;
    let digest = registry.push(lab, "gardenlet", &crate::chart::agent("0.2.0")?)?;
    lab.garden.apply(&json!({"apiVersion": "v1", "kind": "List", "items": registry.secrets()}))?;
    let mut config = world::config(lab, "agent");
    config.as_object_mut().map(|config| config.remove("edge"));
    let repository = json!({"ref": format!("{}/charts/gardenlet@{digest}", registry::ADDRESS),
        "pullSecretRef": {"name": "oci-pull"}, "caBundleSecretRef": {"name": "oci-ca"}});
    lab.garden.apply(&json!({"apiVersion": GARDENLET.api_version(), "kind": GARDENLET.kind, "metadata": {"name": SEED, "namespace": "garden"},
        "spec": {"deployment": {"helm": {"ociRepository": repository}, "replicaCount": 2}, "config": config}}))?;

    let mut agent = Agent::start(lab, world::agent(lab, "agent")?.environment("NAMESPACE", "garden"))?;
    ready(lab, &mut agent)?;
    let (garden, seed) = (lab.garden.client()?, lab.seed.client()?);
    while_running("the upgrade", 120, &mut agent, || {
        let object = garden.get::<Value>(&GARDENLET, &Key::new("garden", SEED))?;
        let told = &object["status"]["conditions"][0];
        if told["reason"] == "Reconciled" { Ok(Some(())) } else { Err(Failure::new(told.to_string())) }
    })?;
    let name = "gardener.cloud:system:gardenlet";
    let roles = [
        (&CLUSTER_ROLE, "", name),
        (&CLUSTER_ROLE, "", "gardener.cloud:system:gardenlet:upgrade"),
        (&ROLE, "garden", name),
        (&ROLE, "kube-system", name),
    ];
    for (resource, namespace, name) in roles {
        let role = seed.get::<Value>(resource, &Key::new(namespace, name))?;
        ensure(role["rules"].to_string().contains("example.org"), || {
            format!("{name} in {namespace}: {role}")
        })?;
    }
    let deployment = seed.get::<Value>(&DEPLOYMENT, &Key::new("garden", "gardenlet"))?;
    let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
    equal("the image", image, &json!("gardenlet:0.2.0"))?;
    agent.ensure_running()
}

/// The objects of the present chart, rendered by the program itself.
fn installed(lab: &Lab) -> Result<String> {
    let mut config = world::config(lab, "agent");
    let place = config["gardenClientConnection"]["bootstrapKubeconfig"].clone();
    config["gardenClientConnection"]["bootstrapKubeconfig"] = json!({"secretRef": place});
    // The chart has a volume for the state.
    config["edge"] = json!({});
    let values = lab.place.join("values.yaml");
    cluster::write(&values, &json!({"config": config}).to_string())?;
    let mut command = Command::new(lab.environment.agent());
    command.args(["render", "gardenlet", concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/chart")]);
    process::run(command.args(["--namespace", "garden", "--values"]).arg(values))
}
