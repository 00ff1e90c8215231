//! What a host tries that is not its own, as its agent or its kubelet. The API server refuses it without the agent of the seed.

use std::fmt::Debug;

use gardenlet::api::certificates::CERTIFICATE_SIGNING_REQUEST;
use gardenlet::api::coordination::LEASE;
use gardenlet::api::core::{NODE, SECRET};
use gardenlet::api::meta::{Key, Resource};
use gardenlet::format::base64;
use gardenlet::kube::{Client, Error, ListParams, Patch};
use serde_json::{Value, json};
use support::pki::{self, Subject};

use super::super::scene::Scene;
use super::{POOL, has_a_place, outside, server_of};
use crate::cluster;
use crate::failure::{Doing, Result, ensure};
use crate::gardener::users;
use crate::host::{self, ControlPlane};
use crate::lab::Lab;

const AGENT: &str = "gardener.cloud:node-agent:machine:";
const AGENTS: &str = "gardener.cloud:node-agents";
const KUBELET: &str = "system:node:";
const NODES: &str = "system:nodes";
const POOL_LABEL: &str = "worker.gardener.cloud/pool";
const SECRET_LABEL: &str = "worker.gardener.cloud/gardener-node-agent-secret-name";
/// A host that has not joined.
const THIEF: &str = "thief";

/// A host that has joined, and one that has not, ask for what belongs to others.
pub(super) fn are_refused(lab: &Lab, scene: &Scene, host: &str) -> Result<()> {
    let as_user =
        |prefix: &str, name: &str, group: &str| client(lab, scene, &format!("{prefix}{name}"), group);
    let agent = as_user(AGENT, host, AGENTS)?;
    let kubelet = as_user(KUBELET, host, NODES)?;
    let other = as_user(AGENT, THIEF, AGENTS)?;
    secrets(&agent, &other)?;
    nodes_and_leases(host, &agent, &kubelet, &other)?;
    certificates(&agent, &kubelet)?;
    let owner = scene.owner(lab, POOL)?;
    let thief = as_user(KUBELET, THIEF, NODES)?;
    let (own, attic) = (host::POOL, "attic");
    is_no_node(&thief, (own, own), "no script was printed for a host of this name")?;
    has_a_place(&owner, THIEF)?;
    is_no_node(&thief, (attic, own), "the script of this host was printed for another pool")?;
    is_no_node(&thief, (own, attic), "the agent of this host reads the Secret of another pool")?;
    // The one that has joined may renew its certificate, and one that has left may not.
    renewal(&kubelet, host).doing(|| "the certificate of a member".to_owned())?;
    renewal(&thief, THIEF).doing(|| "the certificate of a member".to_owned())?;
    let nothing = json!({"data": {THIEF: null}}).to_string();
    let pools = ["patch", "configmap", "edge-hosts", "--namespace=kube-system", "--type=merge"];
    owner.kubectl(&[&pools[..], &["--patch", &nothing]].concat())?;
    fails("a host that has left", &renewal(&thief, THIEF), "the host has left")
}

/// A client with a certificate like those of hosts.
fn client(lab: &Lab, scene: &Scene, user: &str, group: &str) -> Result<Client> {
    let server = server_of(&scene.garden, outside::INSIDE_ADDRESS)?;
    let plane = ControlPlane { namespace: &POOL.plane(), server: &server };
    let path = lab.place.join("host.kubeconfig");
    cluster::write(&path, &host::kubeconfig(lab, plane, user, group)?)?;
    users::client(&path)
}

fn fails<T: Debug>(what: &str, found: &std::result::Result<T, Error>, expected: &str) -> Result<()> {
    let refusal = match found {
        Err(Error::Api(failure)) => failure.to_string(),
        other => format!("{other:?}"),
    };
    ensure(found.is_err() && refusal.contains(expected), || format!("{what}: {refusal}"))
}

/// An agent reads the Secret of its own pool, and no other.
fn secrets(agent: &Client, other: &Client) -> Result<()> {
    let key = Key::new("kube-system", format!("gardener-node-agent-{}", host::POOL));
    agent.get::<Value>(&SECRET, &key).doing(|| "read the Secret of the pool".to_owned())?;
    fails("the Secret of another pool", &other.get::<Value>(&SECRET, &key), "cannot get resource")?;
    let all = agent.list_all::<Value>(&SECRET, "kube-system", &ListParams::default(), &mut |_| ());
    fails("all Secrets", &all, "cannot list resource")
}

fn nodes_and_leases(host: &str, agent: &Client, kubelet: &Client, other: &Client) -> Result<()> {
    let patch = |client: &Client, resource: &Resource, key: &Key, change: Value| {
        client.patch::<Value>(resource, key, &Patch::Merge(change))
    };
    let node = Key::cluster(host);
    let note = json!({"metadata": {"annotations": {"a": "b"}}});
    let expected = "an agent changes only the Node of its own host";
    fails("the Node of another host", &patch(other, &NODE, &node, note), expected)?;
    let cordon = json!({"spec": {"unschedulable": true}});
    fails(
        "the spec of a Node",
        &patch(agent, &NODE, &node, cordon),
        "an agent does not change the spec of a Node",
    )?;
    for label in [POOL_LABEL, SECRET_LABEL] {
        for client in [agent, kubelet] {
            let change = json!({"metadata": {"labels": {label: "attic"}}});
            fails(label, &patch(client, &NODE, &node, change), "a Node stays in its pool")?;
        }
    }
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": format!("gardener-node-agent-{host}"), "namespace": "kube-system"},
        "spec": {"holderIdentity": THIEF}});
    let stolen = other.create::<Value>(&LEASE, "kube-system", &lease);
    fails("the Lease of another host", &stolen, "an agent changes only the Lease of its own host")
}

/// Neither asks for the other's certificate.
fn certificates(agent: &Client, kubelet: &Client) -> Result<()> {
    let subject = Subject { common_name: format!("{KUBELET}{THIEF}"), organizations: vec![NODES.to_owned()] };
    let (pem, _) = pki::request(&subject, &[]);
    for (client, signer) in [(kubelet, "kube-apiserver-client"), (agent, "kube-apiserver-client-kubelet")] {
        let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": "node-agent-csr-theft"},
            "spec": {"signerName": format!("kubernetes.io/{signer}"), "request": base64::encode(pem.as_bytes()), "usages": ["client auth"]}});
        let expected = "a host asks only for the certificates of its agent and of its kubelet";
        let made = client.create::<Value>(&CERTIFICATE_SIGNING_REQUEST, "", &request);
        fails(signer, &made, expected)?;
    }
    Ok(())
}

/// A kubelet asks for another certificate of its own.
fn renewal(kubelet: &Client, host: &str) -> std::result::Result<Value, Error> {
    let subject = Subject { common_name: format!("{KUBELET}{host}"), organizations: vec![NODES.to_owned()] };
    let (pem, _) = pki::request(&subject, &[]);
    let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "csr-"}, "spec": {"signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "request": base64::encode(pem.as_bytes()), "usages": ["client auth"]}});
    kubelet.create::<Value>(&CERTIFICATE_SIGNING_REQUEST, "", &request)
}

/// A kubelet registers a Node with the label of a pool, and with that of the Secret of a pool.
fn is_no_node(kubelet: &Client, (pool, secret): (&str, &str), expected: &str) -> Result<()> {
    let labels = json!({POOL_LABEL: pool, SECRET_LABEL: format!("gardener-node-agent-{secret}")});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": THIEF, "labels": labels}});
    fails("a Node without a place", &kubelet.create::<Value>(&NODE, "", &node), expected)
}
