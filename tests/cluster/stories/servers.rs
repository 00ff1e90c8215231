//! The real servers work as the later stories assume.

use std::fs;

use gardenlet::api::core::{NAMESPACE, SERVICE_ACCOUNT};
use gardenlet::api::meta::{Key, Metadata};
use gardenlet::format::base64;
use serde_json::{Value, json};

use crate::audit;
use crate::cluster::Server;
use crate::failure::{Doing, Failure, Result, ensure, equal};
use crate::lab::Lab;
use crate::snapshot::{Difference, Snapshot};
use crate::wait;
use crate::world::{self, World};
use support::garden::prepare;

/// etcd, then the API server crash and restart: stored objects exist, and the server is unready in between.
pub(crate) fn crash(lab: &mut Lab) -> Result<()> {
    let seed = &mut lab.seed;
    seed.kubectl(&["create", "configmap", "remember", "--from-literal=key=value"])?;
    for server in [Server::Etcd, Server::Api] {
        seed.kill(server);
        wait::until_true("the API server to be unready", 20, || !seed.is_ready())?;
        seed.start(server)?;
        seed.wait_ready()?;
    }
    let value = seed.kubectl(&["get", "configmap", "remember", "--output", "jsonpath={.data.key}"])?;
    equal("the value", value.as_str(), "value")
}

/// The audit log contains the requests of an agent to a cluster, with its user and the answer, and no requests of
/// others.
pub(crate) fn audit(lab: &mut Lab) -> Result<()> {
    let mut audit = lab.seed.audit();
    let kubeconfig = lab.place.join("audited.kubeconfig");
    lab.seed.write_kubeconfig(&kubeconfig, "somebody", Some("gardener.cloud:system:seeds"))?;
    lab.seed.kubectl(&["get", "--raw", "/api/v1/namespaces"])?;
    let refused = lab.seed.kubectl_as(&kubeconfig, &["delete", "--raw", "/api/v1/namespaces/default"]);
    ensure(refused.is_err(), || "a user without permissions deleted a namespace".to_owned())?;
    let requests = audit.requests()?;
    let found: Vec<_> =
        requests.iter().map(|request| (request.user.username.as_str(), request.code())).collect();
    equal("the log", &found, &vec![("somebody", 403)])?;
    ensure(requests.iter().all(audit::Request::is_write), || format!("no write: {requests:?}"))?;
    equal("the path", requests[0].uri.as_str(), "/api/v1/namespaces/default")
}

/// The servers accept the first objects of a garden and a seed, the bootstrap token has exactly the needed permissions,
/// and the gardener.cloud groups are part of the garden's API.
pub(crate) fn prepared(lab: &mut Lab) -> Result<()> {
    let world = World::build(lab)?;
    let secret = lab.seed.kubectl(&[
        "get",
        "secret",
        "gardenlet-kubeconfig-bootstrap",
        "--namespace=garden",
        "--output=jsonpath={.data.kubeconfig}",
    ])?;
    let path = lab.place.join("bootstrap.kubeconfig");
    fs::write(&path, base64::decode(secret.trim().as_bytes()).doing(|| "decode the kubeconfig".to_owned())?)?;
    let may =
        |verb: &str, resource: &str| lab.garden.kubectl_as(&path, &["auth", "can-i", verb, resource]).is_ok();
    let found = [
        may("create", "certificatesigningrequests"),
        may("create", "certificatesigningrequests/seedclient"),
        may("list", "certificatesigningrequests"),
        may("get", "secrets"),
    ];
    equal("what the token may do", &found, &[true, true, false, false])?;
    world::agent(lab, "agent")?;
    seed_through_the_garden(lab, &world)
}

/// This process stores a Seed that is created through the real API server. It receives the name of the user, and
/// maintains the Seed.
fn seed_through_the_garden(lab: &Lab, world: &World) -> Result<()> {
    let seed = json!({
        "apiVersion": "core.gardener.cloud/v1beta1",
        "kind": "Seed",
        "metadata": {"name": world::SEED},
        "spec": prepare::seed_spec(),
    });
    lab.garden.apply(&seed)?;
    let label = format!("name.seed.gardener.cloud/{}=true", world::SEED);
    let listed = lab.garden.kubectl(&["get", "seeds", "--selector", &label, "--output", "name"])?;
    equal("the list", listed.trim(), format!("seed.core.gardener.cloud/{}", world::SEED).as_str())?;
    let record = world.gardener.requests();
    let created = record.iter().find(|request| request.method == "POST" && request.path.ends_with("/seeds"));
    equal("the user of the request", &created.map(|request| request.user.as_str()), &Some("admin"))?;
    let namespace = format!("seed-{}", world::SEED);
    let client = lab.garden.client()?;
    wait::until("the seed's namespace", 20, || client.find::<Metadata>(&NAMESPACE, &Key::cluster(&namespace)))
        .map(drop)
}

/// Two snapshots differ only in the objects that were created, changed and deleted between them.
pub(crate) fn snapshot(lab: &mut Lab) -> Result<()> {
    let seed = &lab.seed;
    let maps = |names: &[&str]| {
        let maps = names
            .iter()
            .map(|name| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}));
        json!({"apiVersion": "v1", "kind": "List", "items": maps.collect::<Vec<_>>()})
    };
    seed.kubectl(&["create", "configmap", "deleted"])?;
    seed.kubectl(&["create", "configmap", "changed"])?;
    let before = Snapshot::take(seed)?;
    let nothing = Snapshot::take(seed)?.since(&before);
    equal("while nothing happens", &(nothing.keys(), nothing.gone.len()), &(Vec::new(), 0))?;
    let run = || -> Result<Difference> {
        seed.kubectl(&["create", "configmap", "created"])?;
        seed.kubectl(&["label", "configmap", "changed", "a=b"])?;
        seed.kubectl(&["delete", "configmap", "deleted"])?;
        Ok(Snapshot::take(seed)?.since(&before))
    };
    let first = run()?;
    equal("changed", &first.keys(), &vec!["/ConfigMap default/changed", "/ConfigMap default/created"])?;
    equal("deleted", &first.gone, &vec!["/ConfigMap default/deleted".to_owned()])?;
    seed.kubectl(&["delete", "configmap", "created", "changed"])?;
    seed.apply(&maps(&["changed", "deleted"]))?;
    seed.kubectl(&["annotate", "configmap", "changed", "kubectl.kubernetes.io/last-applied-configuration-"])?;
    let second = run()?;
    first.ensure_same(&second, "two runs")?;
    seed.kubectl(&["label", "configmap", "created", "c=d"])?;
    let third = Snapshot::take(seed)?.since(&before);
    let complaint =
        first.ensure_same(&third, "a third").err().map(|failure| failure.to_string()).unwrap_or_default();
    ensure(complaint.contains("default/created.metadata.labels"), || {
        format!("the third run differs: {complaint}")
    })?;
    seed.kubectl(&["delete", "configmap", "created", "changed"]).map(drop)
}

/// Objects that an earlier story created, changed and deleted are restored, also those with finalizers; and new objects
/// of the same names work.
pub(crate) fn reset(lab: &mut Lab) -> Result<()> {
    lab.reset()?;
    let before = [Snapshot::take(&lab.garden)?, Snapshot::take(&lab.seed)?];
    for clusters in [&["garden", "seed"][..], &["seed"]] {
        for cluster in [&lab.garden, &lab.seed].into_iter().filter(|one| clusters.contains(&one.role.name)) {
            cluster.apply(&left_over())?;
            cluster.kubectl(&["wait", "--for=condition=Established", "crd/odds.example.org"])?;
            let odd = json!({"apiVersion": "example.org/v1", "kind": "Odd",
                "metadata": {"name": "one", "namespace": "left-over", "finalizers": ["example.org/never"]}});
            wait::until("the kind to be served", 20, || cluster.apply(&odd).map(Some))?;
            wait::until("an account of the namespace", 20, || {
                cluster
                    .client()?
                    .find::<Metadata>(&SERVICE_ACCOUNT, &Key::new("left-over", "default"))
                    .map_err(Failure::from)
            })?;
            cluster.kubectl(&["delete", "clusterrole", "view"])?;
            cluster.kubectl(&["label", "namespace", "default", "changed=true"])?;
            cluster.kubectl(&["delete", "namespace", "left-over", "--wait=false"])?;
        }
        lab.garden.kill(Server::Controllers);
        lab.reset()?;
        for (cluster, before) in [&lab.garden, &lab.seed].into_iter().zip(&before) {
            let left = Snapshot::take(cluster)?.since(before);
            equal("changed and deleted", &(left.keys(), &left.gone), &(Vec::new(), &Vec::new()))?;
        }
    }
    Ok(())
}

/// A namespace with objects that block each other's deletion, and its own kind.
fn left_over() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "left-over"}},
        {"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "held", "namespace": "left-over", "finalizers": ["example.org/never"]}},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "service", "namespace": "left-over"},
            "spec": {"ports": [{"port": 80}]}},
        {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "odds.example.org"},
            "spec": {"group": "example.org", "scope": "Namespaced", "names": {"kind": "Odd", "plural": "odds"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}},
    ]})
}
