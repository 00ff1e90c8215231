//! The agent is killed after each of its writes for a ManagedSeed, while one is created, changed and deleted. It starts
//! again, and the result is the same.

use std::time::Duration;

use gardenlet::deployer::token;
use gardenlet::format::yaml;
use serde_json::{Value, json};

use crate::faultpoints::{Fault, FaultPoints, Outcome, Point, change_nothing, created};
use crate::left::Words;
use crate::story_managed_seed::{GARDEN, Lab, MANAGEMENT, NAME};
use crate::world::condition;
use support::api::store::Id;
use support::encoding::{base64, from_base64};
use support::http::faults::Seen;
use support::json::text;

/// Objects that the agent deploys have these names.
const OF_AGENT: &str = "gardenlet";
const TOKENS: &str = "kube-system";

/// Writes for the ManagedSeed: its object and its token in the garden, and everything in the cluster of the Shoot.
fn concerns(seen: &Seen) -> bool {
    let token = token::key(GARDEN, NAME);
    seen.user.ends_with(":gardener-internal")
        || seen.info.resource == "managedseeds"
        || (seen.info.resource == "secrets"
            && [seen.info.name.as_str(), created(seen)].contains(&token.name.as_str()))
}

/// The whole story, with a kill after one write or without a kill.
fn run(at: Option<&Point>) -> Outcome {
    let mut points = None;
    let lab = Lab::start_and(
        "killed-parent",
        |_, _| {},
        |world, target, agent| {
            let counted = points.insert(FaultPoints::new(agent, at));
            counted.watch("garden", &world.garden, concerns);
            counted.watch("target", target, concerns);
        },
    );
    let points = points.unwrap();
    let wait = |what: &str, condition: &dyn Fn() -> Option<()>| {
        lab.world.garden.wait_for(what, |_| {
            points.restart_if_due();
            // Failed steps are tried again after a while.
            lab.world.time.advance(Duration::from_secs(2));
            condition()
        });
    };
    let is_deployed = |replicas: u32| {
        let managed = lab.managed()?;
        let is_observed = managed["status"]["observedGeneration"] == managed["metadata"]["generation"];
        let has_replicas = lab.deployment()?["spec"]["replicas"] == replicas;
        let is_registered = condition(&managed, "SeedRegistered")?.0 == "True";
        (is_observed && has_replicas && is_registered).then_some(())
    };
    lab.put_shoot(|_| {});
    lab.make(|_| {});
    wait("the agent", &|| is_deployed(1));
    let more = json!({"spec": {"gardenlet": {"deployment": {"replicaCount": 2}}}});
    lab.world.garden.merge(MANAGEMENT, "managedseeds", (GARDEN, NAME), &more);
    wait("another replica", &|| is_deployed(2));
    let objects = left(&lab);
    lab.world.garden.delete(MANAGEMENT, "managedseeds", GARDEN, NAME);
    wait("the end", &|| lab.managed().is_none().then_some(()));
    let still: Vec<String> =
        deployed(&lab).into_iter().map(|(key, _)| key).filter(|key| !key.contains(" /namespaces ")).collect();
    assert_eq!(still, Vec::<String>::new());
    points.restart_if_due();
    lab.end();
    Outcome { objects, points, problems: Vec::new() }
}

/// Placeholders for values that differ in each run. The name of the ConfigMap has a digest of the configuration, which
/// contains another folder and other ports each time. A ConfigMap that remains of an earlier configuration has another
/// name and is visible.
fn words(lab: &Lab) -> Words {
    let deployment = lab.deployment().unwrap_or_default();
    let annotations = deployment["metadata"]["annotations"].as_object();
    let reference = annotations.into_iter().flatten().find_map(|(key, name)| {
        let reference = key.strip_prefix("reference.resources.gardener.cloud/")?;
        let name = name.as_str().filter(|name| name.starts_with("gardenlet-configmap-"))?;
        Some((reference, name))
    });
    let (reference, name) = reference.unwrap_or(("no reference", "no name"));
    Words::new(&[
        (name, "<the ConfigMap>"),
        (reference, "<reference to it>"),
        (r"10\.52\.\d+\.\d+", "<address of a Service>"),
        (r"/tmp/gardenlet-it-\d+-\d+", "<folder>"),
    ])
}

/// The agent's objects in the cluster of the Shoot.
fn deployed(lab: &Lab) -> Vec<(String, Value)> {
    words(lab).left_in(&lab.target, |id: &Id| {
        !["pods", "replicasets", "serviceaccounts/token"].contains(&id.plural.as_str())
            && (id.name.contains(OF_AGENT) || id.plural == "namespaces" && id.name == GARDEN)
    })
}

fn left(lab: &Lab) -> Vec<(String, Value)> {
    let of_garden = |id: &Id| {
        id.plural == "managedseeds" || id.plural == "secrets" && id.name.starts_with("bootstrap-token-")
    };
    let mut all = [deployed(lab), words(lab).left_in(&lab.world.garden, of_garden)].concat();
    for (key, object) in &mut all {
        if key.contains("/deployments ") {
            // Other controllers write it at their own time.
            object["status"] = Value::Null;
        }
        // A kill between two writes may cause a second write.
        if key.contains("/managedseeds ") {
            let status = &mut object["status"];
            status["conditions"].as_array_mut().into_iter().flatten().for_each(|one| {
                one["lastTransitionTime"] = Value::Null;
            });
        }
    }
    all.push(("the configuration".to_owned(), configuration(lab)));
    all
}

/// The configuration that the new agent reads. Its token and CA are replaced by whether they match the garden's.
fn configuration(lab: &Lab) -> Value {
    let mut config = lab.config();
    let connection = &mut config["gardenClientConnection"];
    assert_eq!(
        connection["bootstrapKubeconfig"].get("kubeconfig"),
        None,
        "the token is not in the ConfigMap"
    );
    let secret = lab.of_target("", "secrets", "gardenlet-kubeconfig-bootstrap").unwrap();
    let kubeconfig = from_base64(text(&secret, "/data/kubeconfig")).unwrap();
    let mut kubeconfig: Value = yaml::parse(&String::from_utf8(kubeconfig).unwrap()).unwrap();
    let token = text(&kubeconfig, "/users/0/user/token").to_owned();
    let all = lab.world.garden.store().all("", "secrets", TOKENS);
    let mut tokens =
        all.iter().filter(|it| text(it, "/metadata/name").starts_with("bootstrap-token-")).map(|it| {
            let part = |name: &str| {
                String::from_utf8(from_base64(text(it, &format!("/data/{name}"))).unwrap()).unwrap()
            };
            format!("{}.{}", part("token-id"), part("token-secret"))
        });
    kubeconfig["users"][0]["user"]["token"] = json!(tokens.any(|known| known == token));
    let authority = &mut kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"];
    *authority = json!(*authority == base64(lab.world.garden.ca().as_bytes()).as_str());
    config["its kubeconfig"] = kubeconfig;
    let words = words(lab);
    serde_json::from_str(&words.clean(&config.to_string())).unwrap()
}

#[test]
fn a_kill_changes_nothing_for_a_managed_seed() {
    change_nothing("kills after writes for a ManagedSeed", &[(Fault::KillAfter, 6, 60)], &run(None), &run);
}
