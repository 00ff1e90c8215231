//! Charts carried from a real registry with TLS and users to a seed without access to one, by the program as operators
//! run it.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::agent::{Agent, Options};
use crate::cluster;
use crate::failure::{Failure, Result, ensure};
use crate::lab::Lab;
use crate::process;
use crate::registry::{ADDRESS, Registry};
use crate::stories::oci::{chart, wait_for_greeting};
use crate::stories::steps::{installed, ready};
use crate::world::{self, World};
use support::garden::prepare;

/// Exported next to the garden, imported after the registry has ended, installed by an agent that has only the
/// directory.
pub(crate) fn carries(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let mut registry = Registry::start(lab)?;
    let digest = registry.push_demo(lab)?;
    lab.garden.apply(&json!({"apiVersion": "v1", "kind": "List", "items": registry.secrets()}))?;
    let reference = format!("{}:1.0.0", Registry::repository());
    let mut objects = prepare::extension("demo", b"", &Value::Null);
    objects[0]["helm"] = chart(&json!({"ref": format!("oci://{reference}")}), "out of a bundle");
    lab.garden.apply(&json!({"apiVersion": "v1", "kind": "List", "items": objects}))?;

    let (archive, charts) = (lab.place.join("charts.tar"), lab.place.join("charts"));
    let options = options(lab, &charts)?;
    let pin = export(lab, &options, &archive, [&reference, &digest])?;
    // The login from the garden gave access to the registry.
    let other = lab.place.join("other.tar");
    let mut stranger = bundle(lab, &["export", "--chart", &format!("oci://{reference}"), "--output"], &other);
    let refused = process::run(stranger.env("SSL_CERT_FILE", registry.authority())).err();
    let refused = refused.map(|failure| failure.to_string()).unwrap_or_default();
    ensure(refused.contains("401"), || format!("without a login: {refused:?}"))?;

    registry.kill();
    process::run(bundle(lab, &["import", "--digest", &pin, "--to"], &charts).arg(&archive))?;
    let listed = process::run(&mut bundle(lab, &["list"], &charts))?;
    ensure(listed.contains(&reference) && listed.contains(&pin), || format!("the list: {listed}"))?;

    let mut agent = Agent::start(lab, options)?;
    ready(lab, &mut agent)?;
    let name = installed(&lab.garden.client()?, &mut agent)?;
    wait_for_greeting(&lab.seed.client()?, &mut agent, &name, "out of a bundle")?;
    agent.ensure_running()
}

/// An agent that has charts of the registry in a directory, and its configuration as a file.
fn options(lab: &Lab, charts: &Path) -> Result<Options> {
    let mut options = world::agent(lab, "agent")?;
    options.config["edge"]["registries"] = json!([{"host": ADDRESS, "layoutDir": charts}]);
    cluster::write(&lab.place.join("agent.yaml"), &options.config.to_string())?;
    Ok(options)
}

/// Exports all charts of the garden, which must include the one with a reference and a digest; returns the digest of
/// the bundle.
fn export(lab: &Lab, options: &Options, archive: &Path, expected: [&str; 2]) -> Result<String> {
    let config = lab.place.join(format!("{}.yaml", options.name)).display().to_string();
    let mut collect = bundle(lab, &["export", "--all", "--config", &config, "--output"], archive);
    let told = process::run(collect.env("GARDEN_KUBECONFIG", lab.garden.kubeconfig()))?;
    let listed = process::run(&mut bundle(lab, &["list"], archive))?;
    let images = process::run(&mut bundle(lab, &["list", "--images"], archive))?;
    ensure(images == "lab.local/serve:1\n", || format!("its images: {images}"))?;
    let is_there = expected.iter().all(|word| listed.contains(word));
    ensure(is_there, || format!("{expected:?}, but the list is {listed}"))?;
    let pin = told.split("digest of the bundle: ").nth(1).map(|rest| rest.trim().to_owned());
    pin.ok_or_else(|| Failure::new(format!("no digest: {told}")))
}

/// `gardenlet bundle ...` with a path as the last argument, without the developer's environment.
fn bundle(lab: &Lab, words: &[&str], path: &Path) -> Command {
    let mut command = Command::new(lab.environment.agent());
    command.arg("bundle").args(words).arg(path).env_clear().env("HOME", &lab.place);
    command
}
