//! Reads the requests for certificates in the cluster of a Shoot, and answers them.

use serde_json::Value;

use crate::api::certificates::CERTIFICATE_SIGNING_REQUEST;
use crate::api::core::{NODE, SECRET};
use crate::api::meta::{ALL_NAMESPACES, Key, annotation, text};
use crate::base::error::chain;
use crate::base::json::json;
use crate::base::sorted::SortedMap;
use crate::format::base64;
use crate::hosts::approval::{self, JoinToken, JoinedNode, Joins, Judgement, NodeRequest};
use crate::hosts::{critical, token};
use crate::kube::{Client, DeleteParams, Error, ListItem, ListParams};
use crate::limits;
use crate::pki::requested::RequestedCertificate;

/// The annotation of a node with the checksum of what its agent has applied.
const APPLIED: &str = "checksum/cloud-config-data";

/// A request that nobody has answered, as it is.
struct OpenRequest {
    object: Value,
    request: NodeRequest,
}

/// Answers the requests that it may answer. Returns how many stay open. Errors: a request to the server fails.
pub(super) fn look(client: &Client, namespace: &str) -> Result<usize, Error> {
    let joins = Cluster { client };
    let mut open = 0;
    for OpenRequest { object, request } in list(client)? {
        match approval::judge(&request, &joins) {
            Judgement::Approved => {
                answer(
                    client,
                    &object,
                    "Approved",
                    "RequestApproved",
                    "Approved by the gardenlet of the seed.",
                )?;
                tell(namespace, &request, "approved", "");
            }
            Judgement::Denied(why) => {
                answer(client, &object, "Denied", "RequestDenied", &why)?;
                tell(namespace, &request, "denied", &why);
            }
            Judgement::Open(why) => {
                open += 1;
                log::debug!(namespace = namespace, why = why.as_str(); "The request of a host stays open");
            }
            Judgement::Foreign => {}
        }
    }
    Ok(open)
}

fn tell(namespace: &str, request: &NodeRequest, what: &str, why: &str) {
    let user = request.username.as_str();
    log::info!(namespace = namespace, user = user, signer = request.signer.as_str(), answer = what, why = why;
        "Answered the certificate request of a host");
}

/// The requests without an answer. Of one user only some are read: one node must not keep the others waiting.
fn list(client: &Client) -> Result<Vec<OpenRequest>, Error> {
    let mut found = Vec::new();
    let mut of_users: SortedMap<String, usize> = SortedMap::new();
    client.list_each::<Value>(
        &CERTIFICATE_SIGNING_REQUEST,
        ALL_NAMESPACES,
        &ListParams::default(),
        &mut |item| match item {
            ListItem::Object(object) => {
                let is_open = object["status"]["conditions"].as_array().is_none_or(Vec::is_empty);
                let request = read(&object["spec"]);
                let mut count = of_users.get(&request.username).copied().unwrap_or(0);
                if is_open
                    && count < limits::SHOOT_REQUESTS_OF_USER_MAX
                    && found.len() < limits::SHOOT_REQUESTS_MAX
                {
                    count += 1;
                    of_users.insert(request.username.clone(), count);
                    found.push(OpenRequest { object, request });
                }
            }
            ListItem::Undecodable(_) => {}
            ListItem::Restart => {
                found.clear();
                of_users = SortedMap::new();
            }
        },
    )?;
    Ok(found)
}

fn read(spec: &Value) -> NodeRequest {
    let pem = base64::decode(text(&spec["request"]).as_bytes()).ok();
    let usages = spec["usages"].as_array().into_iter().flatten();
    NodeRequest {
        signer: text(&spec["signerName"]).to_owned(),
        username: text(&spec["username"]).to_owned(),
        usages: usages.map(|usage| text(usage).to_owned()).collect(),
        asked: pem.and_then(|pem| RequestedCertificate::parse(&pem).ok()),
    }
}

/// Writes the answer. Somebody else may have answered meanwhile.
fn answer(client: &Client, object: &Value, kind: &str, reason: &str, message: &str) -> Result<(), Error> {
    let mut answered = object.clone();
    answered["status"]["conditions"] =
        json!([{"type": kind, "status": "True", "reason": reason, "message": message}]);
    let key = Key::cluster(text(&object["metadata"]["name"]));
    match client.replace_subresource::<Value>(&CERTIFICATE_SIGNING_REQUEST, &key, "approval", &answered) {
        Err(error) if !(error.is_conflict() || error.is_not_found()) => Err(error),
        _ => Ok(()),
    }
}

/// Deletes the tokens of hosts that are nodes now: both their agent and their kubelet have used them. Opens these nodes to all pods. Returns how many are left.
/// Errors: a request to the server fails.
pub(super) fn tokens(client: &Client) -> Result<usize, Error> {
    let params = ListParams {
        label_selector: token::HOST.to_owned(),
        field_selector: "type=bootstrap.kubernetes.io/token".to_owned(),
        ..ListParams::default()
    };
    let mut left = Vec::new();
    client.list_all::<Value>(&SECRET, "kube-system", &params, &mut |secret| left.push(secret))?;
    let mut count = 0;
    for secret in &left {
        let Some(JoinToken { host, replaces }) = token::read(secret) else { continue };
        let node = client.find::<Value>(&NODE, &Key::cluster(host.as_str()))?;
        let node = node.filter(|node| text(&node["metadata"]["uid"]) != replaces);
        if let Some(node) = node.as_ref().filter(|node| critical::is_closed(node)) {
            critical::open(client, node)?;
        }
        let is_used =
            node.is_some_and(|node| !critical::is_closed(&node) && !annotation(&node, APPLIED).is_empty());
        if is_used {
            client.delete(&SECRET, &Key::of(secret), &DeleteParams::default())?;
            log::info!(host = host.as_str(); "The host has joined");
        } else {
            count += 1;
        }
    }
    Ok(count)
}

/// The cluster of a Shoot, as far as requests need it.
struct Cluster<'a> {
    client: &'a Client,
}

impl Joins for Cluster<'_> {
    fn token(&self, id: &str) -> Result<Option<JoinToken>, String> {
        let found = self.client.find::<Value>(&SECRET, &approval::token_key(id));
        found.map(|secret| secret.as_ref().and_then(token::read)).map_err(|error| chain(&error))
    }

    fn node(&self, name: &str) -> Result<Option<JoinedNode>, String> {
        let found = self.client.find::<Value>(&NODE, &Key::cluster(name));
        found.map(|node| node.as_ref().map(joined)).map_err(|error| chain(&error))
    }
}

fn joined(node: &Value) -> JoinedNode {
    let addresses = || node["status"]["addresses"].as_array().into_iter().flatten();
    let of = |kinds: &'static [&'static str]| {
        addresses().filter(|each| kinds.contains(&text(&each["type"]))).map(|each| text(&each["address"]))
    };
    JoinedNode {
        uid: text(&node["metadata"]["uid"]).to_owned(),
        names: of(&["Hostname", "InternalDNS", "ExternalDNS"]).map(str::to_owned).collect(),
        addresses: of(&["InternalIP", "ExternalIP"]).filter_map(|address| address.parse().ok()).collect(),
    }
}
