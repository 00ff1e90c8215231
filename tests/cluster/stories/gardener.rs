//! The real Gardener as the peer of an agent.

use gardenlet::api::core::NAMESPACE;
use gardenlet::api::meta::Key;
use gardenlet::base::clock::Clock;
use gardenlet::kube::{Client, Method};
use serde_json::{Value, json};

use crate::failure::{Result, ensure, equal};
use crate::gardener::{Gardener, users};
use crate::lab::Lab;
use crate::wait;
use crate::world::{self, SEED};
use support::garden::prepare::{self, Preparation};

/// The account of an extension.
const EXTENSION: &str = "extension-demo";
/// The end of an answer of the SeedAuthorizer.
const UNRELATED: &str = "no relationship found";

/// A request, and the beginning and a part of its answer.
type Row = (Method, &'static str, Value, u16, &'static str);

/// The SeedAuthorizer and SeedRestriction answer requests of a seed's agent and of an extension. Without them, no other
/// story of this part would prove anything.
pub(crate) fn guards(lab: &mut Lab) -> Result<()> {
    let preparation = Preparation::new(SEED, Clock::system().now());
    let mut gardener = Gardener::start(lab, &preparation)?;
    lab.garden.apply(&world::list(&[prepare::provider(), prepare::for_shoots()].concat()))?;
    for seed in [SEED, "edge-2"] {
        let object = json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Seed",
            "metadata": {"name": seed}, "spec": prepare::seed_spec()});
        // gardener-apiserver may not have seen the provider yet.
        wait::until("the Seed to be accepted", 30, || lab.garden.apply(&object).map(Some))?;
    }
    let admin = lab.garden.client()?;
    for namespace in ["seed-edge-1", "seed-edge-2", "garden-p"] {
        wait::until(namespace, 30, || admin.find::<Value>(&NAMESPACE, &Key::cluster(namespace)))?;
    }
    let [agent, extension] = ["agent", "extension"].map(|name| lab.place.join(format!("{name}.kubeconfig")));
    users::write_agent(&lab.garden, SEED, &agent)?;
    users::write_extension(&lab.garden, (SEED, EXTENSION), &extension)?;
    each(&users::client(&agent)?, &of_agent())?;
    each(&users::client(&extension)?, &of_extension())?;
    gardener.ensure_running()
}

fn of_agent() -> Vec<Row> {
    let lease = |name: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "nobody.ca-cluster"}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/gardener-system-seed-lease/leases";
    vec![
        (Method::Get, "/api/v1/namespaces/garden/secrets/internal-domain", Value::Null, 403, UNRELATED),
        (Method::Get, "/api/v1/namespaces/garden/secrets", Value::Null, 403, "secrets"),
        (Method::Post, leases, lease("edge-2"), 403, "does not belong to seed"),
        (Method::Post, leases, lease(SEED), 201, SEED),
        // SeedRestriction: the authorizer does not know the name of a new object.
        (Method::Post, "/api/v1/namespaces/garden-p/configmaps", map, 403, "\"nobody\" not found"),
    ]
}

fn of_extension() -> Vec<Row> {
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "own"}});
    let (own, other) = (
        "/apis/coordination.k8s.io/v1/namespaces/seed-edge-1/leases",
        "/apis/coordination.k8s.io/v1/namespaces/seed-edge-2/leases",
    );
    vec![
        (Method::Post, own, lease.clone(), 201, "own"),
        (Method::Post, other, lease, 403, "seed-edge-2"),
        (Method::Get, "/api/v1/namespaces/garden/secrets/internal-domain", Value::Null, 403, UNRELATED),
    ]
}

fn each(client: &Client, rows: &[Row]) -> Result<()> {
    for (method, path, body, code, words) in rows {
        let text = body.to_string();
        let body = (!body.is_null()).then_some(text.as_bytes());
        let answer = client.raw(*method, path, body, "application/json")?;
        let said = String::from_utf8_lossy(&answer.body);
        equal(&format!("{method:?} {path}: {said}"), &answer.status, code)?;
        ensure(said.contains(words) || said.contains(&words.replace('"', "\\\"")), || {
            format!("{method:?} {path}: {words:?} is not in {said}")
        })?;
    }
    Ok(())
}
