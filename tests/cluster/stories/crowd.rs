//! Many extensions at once, on real API servers: the duration of their installation.

use gardenlet::kube::Client;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::chart;
use crate::failure::{Result, ensure};
use crate::lab::Lab;
use crate::stories::steps::{installations, is_well, ready, while_running};
use crate::wait;
use crate::world::{self, World};
use support::garden::prepare;

/// The number of extensions that are registered together; the second one with `GARDENLET_TESTS_LONG`.
const CROWD: usize = 40;
const CROWD_LONG: usize = 500;
/// The limit for one, in seconds: the recovery of a seed must not take hours. The story waits twice as long.
const SECONDS_EACH_MAX: f64 = 3.0;
const WAIT_EACH_S: u64 = 6;

/// All of them are registered at the same time; each is installed and becomes healthy, with the default settings of an
/// agent.
pub(crate) fn arrives(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    ready(lab, &mut agent)?;
    let garden = lab.garden.client()?;
    let wanted = if lab.environment.long { CROWD_LONG } else { CROWD };
    let chart = chart::small()?;
    let extension = |n: usize| {
        let name = format!("crowd-{n}");
        prepare::extension(&name, &chart, &json!({"number": n}))
    };
    let objects: Vec<Value> = (0..wanted).flat_map(extension).collect();
    let began = wait::now();
    lab.garden.apply(&json!({"apiVersion": "v1", "kind": "List", "items": objects}))?;
    let registered = wait::seconds_since(began);
    let seconds = WAIT_EACH_S * wanted as u64;
    while_running("all installations to be healthy", seconds, &mut agent, || {
        Ok((installed(&garden)? == wanted).then_some(()))
    })?;
    let took = wait::seconds_since(began);
    println!(
        "                         {wanted} installations: {took:.1} s ({registered:.1} s to register them), {:.1} a second",
        wanted as f64 / took
    );
    wait::measured("seconds for one installation", took / wanted as f64, SECONDS_EACH_MAX)?;
    ensure(installed(&garden)? == wanted, || "one of them is no longer healthy".to_owned())?;
    agent.ensure_running()
}

/// The number of ControllerInstallations with all conditions good.
fn installed(garden: &Client) -> Result<usize> {
    Ok(installations(garden)?.iter().filter(|installation| is_well(installation)).count())
}
