//! Problems around an agent: each time the agent reports them in its log or in a condition, retries without ending, and
//! succeeds once the problem is resolved.

use gardenlet::api::certificates::CERTIFICATE_SIGNING_REQUEST;
use gardenlet::api::core::SECRET;
use gardenlet::api::gardener::CONTROLLER_DEPLOYMENT;
use gardenlet::api::meta::{ALL_NAMESPACES, Key};
use gardenlet::format::base64;
use gardenlet::kube::{ListParams, Patch};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::chart;
use crate::cluster::Server;
use crate::failure::{Failure, Result, ensure, equal};
use crate::lab::Lab;
use crate::stories::steps::{installations, installed, ready, register_demo, while_running};
use crate::wait;
use crate::world::{self, World};
use support::garden::manager::Share;

/// The bootstrap Secret holds a token that the garden does not know; later it is replaced.
pub(crate) fn wrong_token(lab: &mut Lab) -> Result<()> {
    let world = World::build(lab)?;
    let write = |token: &str| -> Result<()> {
        let kubeconfig = lab.garden.kubeconfig_text(&json!({"token": token}));
        let patch = Patch::Merge(json!({"data": {"kubeconfig": base64::encode(kubeconfig.as_bytes())}}));
        lab.seed.client()?.patch::<Value>(
            &SECRET,
            &Key::new("garden", "gardenlet-kubeconfig-bootstrap"),
            &patch,
        )?;
        Ok(())
    };
    write("abcdef.0123456789abcdef")?;
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    let line = agent.wait_log("Cannot continue", 20)?;
    says(&line, &["getting an identity", "401"])?;
    write(&world.preparation.token())?;
    ready(lab, &mut agent)
}

/// The certificate request is not approved for a while, and the agent crashes meanwhile: it waits for the same request.
pub(crate) fn never_approved(lab: &mut Lab) -> Result<()> {
    let world = World::build(lab)?;
    world.gardener.set_manager_share(Share { approver: false, ..Share::default() });
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    agent.wait_log("Posted a certificate request", 20)?;
    agent.kill();
    agent.restart()?;
    agent.wait_log("Resuming the pending certificate request", 20)?;
    world.gardener.set_manager_share(Share::default());
    ready(lab, &mut agent)?;
    equal("requests", &requests(lab)?.len(), &1)
}

/// The certificate request is denied; a second one is approved.
pub(crate) fn denied(lab: &mut Lab) -> Result<()> {
    let world = World::build(lab)?;
    world.gardener.set_manager_share(Share { approver: false, ..Share::default() });
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    agent.wait_log("Posted a certificate request", 20)?;
    let name = wait::until("the request", 10, || requests(lab).map(|mut names| names.pop()))?;
    lab.garden.kubectl(&["certificate", "deny", &name])?;
    let line = agent.wait_log("Cannot continue", 20)?;
    says(&line, &["getting an identity", "denied"])?;
    world.gardener.set_manager_share(Share::default());
    ready(lab, &mut agent)?;
    equal("requests", &requests(lab)?.len(), &2)
}

/// The garden does not answer when the agent starts.
pub(crate) fn garden_down(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let options = world::agent(lab, "agent")?;
    lab.garden.kill(Server::Api);
    let mut agent = Agent::start(lab, options)?;
    let line = agent.wait_log("Cannot continue", 40)?;
    says(&line, &["getting an identity", "127.0.0.1:16443"])?;
    lab.garden.start(Server::Api)?;
    lab.garden.wait_ready()?;
    ready(lab, &mut agent)
}

/// The seed does not answer when the agent starts.
pub(crate) fn seed_down(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let options = world::agent(lab, "agent")?;
    lab.seed.kill(Server::Api);
    let mut agent = Agent::start(lab, options)?;
    agent.wait_log("127.0.0.1:26443", 40)?;
    lab.seed.start(Server::Api)?;
    lab.seed.wait_ready()?;
    ready(lab, &mut agent)
}

/// First the garden, then the seed accepts connections and does not answer: the lease is not renewed, the agent reports
/// it and continues to run, and the lease is renewed when the server continues.
pub(crate) fn silence(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    ready(lab, &mut agent)?;
    for silent in ["garden", "seed"] {
        let cluster = if silent == "garden" { &mut lab.garden } else { &mut lab.seed };
        let server = cluster.process(Server::Api).ok_or_else(|| Failure::new("no API server"))?;
        server.signal("STOP")?;
        let complaint = agent.wait_log("Cannot renew the seed's lease", 40);
        server.signal("CONT")?;
        complaint?;
        agent.wait_log("Renewed the seed's lease again", 60)?;
    }
    ready(lab, &mut agent)
}

/// The garden creates the seed's namespace late, and meanwhile removes the permissions of agents.
pub(crate) fn namespace_and_rights(lab: &mut Lab) -> Result<()> {
    let world = World::build(lab)?;
    world.gardener.set_manager_share(Share { namespaces: false, ..Share::default() });
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    agent.wait_log("failed to get seed namespace in garden cluster", 30)?;
    let role = "gardener.cloud:system:seeds";
    lab.garden.kubectl(&["delete", "clusterrolebinding", role])?;
    agent.wait_log("403", 20)?;
    world.gardener.set_manager_share(Share::default());
    lab.garden.kubectl(&["create", "clusterrolebinding", role, "--clusterrole", role, "--group", role])?;
    ready(lab, &mut agent)
}

/// An extension's chart is first not an archive, then does not render, then is good.
pub(crate) fn bad_charts(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    ready(lab, &mut agent)?;
    register_demo(lab, 0)?;
    let garden = lab.garden.client()?;
    for (chart, words) in
        [(b"no chart".to_vec(), ["chart", "False"]), (chart::broken()?, ["objects.yaml", "False"])]
    {
        let patch = Patch::Merge(json!({"helm": {"rawChart": base64::encode(&chart)}}));
        garden.patch::<Value>(&CONTROLLER_DEPLOYMENT, &Key::cluster("demo"), &patch)?;
        while_running("the chart to be called invalid", 60, &mut agent, || {
            let found = installations(&garden)?;
            let conditions = found.iter().flat_map(|i| i["status"]["conditions"].as_array()).flatten();
            let mut valid = conditions.filter(|condition| condition["type"] == "Valid").map(Value::to_string);
            let shown = valid.find(|text| words.iter().all(|word| text.contains(word)));
            if shown.is_some() {
                Ok(Some(()))
            } else {
                Err(Failure::new(format!("{:?}", found.first().map(|i| &i["status"]))))
            }
        })?;
    }
    let good = Patch::Merge(json!({"helm": {"rawChart": base64::encode(&chart::demo()?)}}));
    garden.patch::<Value>(&CONTROLLER_DEPLOYMENT, &Key::cluster("demo"), &good)?;
    installed(&garden, &mut agent).map(drop)
}

/// The names of all certificate requests.
fn requests(lab: &Lab) -> Result<Vec<String>> {
    let client = lab.garden.client()?;
    let found =
        client.list::<Value>(&CERTIFICATE_SIGNING_REQUEST, ALL_NAMESPACES, &ListParams::default())?.items;
    Ok(found.iter().filter_map(|request| request["metadata"]["name"].as_str().map(str::to_owned)).collect())
}

fn says(line: &str, words: &[&str]) -> Result<()> {
    let missing: Vec<_> = words.iter().filter(|word| !line.contains(**word)).collect();
    ensure(missing.is_empty(), || format!("{missing:?} not in {line:?}"))
}
