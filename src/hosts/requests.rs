//! What the certificate requests in the cluster of a Shoot say about its hosts. Pure.
//!
//! Kubernetes deletes requests: answered ones after an hour, others after a day. So what is found is true, and the
//! rest is unknown.

use serde_json::Value;

use crate::api::bootstrap_token;
use crate::api::meta::text;
use crate::base::clock::Timestamp;
use crate::base::cut;
use crate::base::sorted::SortedMap;
use crate::format::base64;
use crate::format::time::parse_rfc3339;
use crate::limits;
use crate::pki::Certificate;

use super::approval::{KUBELET_CLIENT, KUBELET_SERVING, NODE, TOKEN, is_of_nodes};
use super::token;

/// What became of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RequestAnswer {
    /// Nobody has approved it, or nobody has signed it.
    Open,
    /// Denied or failed, with the reason.
    Refused(String),
    Signed,
}

/// A request for a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SeenRequest {
    pub(crate) made: Option<Timestamp>,
    pub(crate) answer: RequestAnswer,
    /// Whether a kubelet needs the certificate, and not gardener-node-agent.
    pub(crate) is_of_kubelet: bool,
    /// When the certificate expires.
    pub(crate) ends: Option<Timestamp>,
}

/// The newest requests of a host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct HostRequests {
    /// With the token of the host.
    pub(crate) join: Option<SeenRequest>,
    /// The certificate with which its kubelet is a client.
    pub(crate) identity: Option<SeenRequest>,
    /// The certificate of the kubelet's server.
    pub(crate) server: Option<SeenRequest>,
}

/// The requests of some hosts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RequestsOfHosts {
    of: SortedMap<String, HostRequests>,
    /// The hosts, by the names of the Secrets with their tokens.
    by_token: SortedMap<String, String>,
}

impl RequestsOfHosts {
    /// Without any request. Those of other hosts are not kept.
    pub(crate) fn new<'n>(hosts: impl Iterator<Item = &'n str>) -> Self {
        let mut empty = Self::default();
        for host in hosts {
            empty.of.insert(host.to_owned(), HostRequests::default());
            empty.by_token.insert(token::key(host).name, host.to_owned());
        }
        empty
    }

    /// What is known of a host.
    pub(crate) fn of(&self, host: &str) -> HostRequests {
        self.of.get(host).cloned().unwrap_or_default()
    }

    /// Adds a request, unless a newer one for the same purpose is known.
    pub(crate) fn add(&mut self, object: &Value) {
        let (user, signer) = (text(&object["spec"]["username"]), text(&object["spec"]["signerName"]));
        if !is_of_nodes(signer) {
            return;
        }
        if let Some(id) = user.strip_prefix(TOKEN) {
            let Some(host) = self.by_token.get(&bootstrap_token::key(id).name).cloned() else { return };
            self.note(&host, object, |requests| &mut requests.join);
            if signer == KUBELET_CLIENT {
                self.note_identity(&host, object);
            }
        } else if let Some(host) = user.strip_prefix(NODE) {
            match signer {
                KUBELET_CLIENT => self.note_identity(host, object),
                KUBELET_SERVING => self.note(host, object, |requests| &mut requests.server),
                _ => {}
            }
        }
    }

    fn note_identity(&mut self, host: &str, object: &Value) {
        let certificate = certificate(object);
        let is_own = certificate.is_some_and(|it| it.subject.common_name.strip_prefix(NODE) == Some(host));
        if is_own {
            self.note(host, object, |requests| &mut requests.identity);
        }
    }

    fn note(
        &mut self,
        host: &str,
        object: &Value,
        slot: impl FnOnce(&mut HostRequests) -> &mut Option<SeenRequest>,
    ) {
        let Some(slot) = self.of.get_mut(host).map(slot) else { return };
        let seen = read(object);
        if slot.as_ref().is_none_or(|known| known.made <= seen.made) {
            *slot = Some(seen);
        }
    }
}

fn certificate(object: &Value) -> Option<Certificate> {
    let pem = base64::decode(text(&object["status"]["certificate"]).as_bytes()).ok()?;
    Certificate::parse_pem(&String::from_utf8(pem).ok()?).ok()
}

fn read(object: &Value) -> SeenRequest {
    let conditions = || object["status"]["conditions"].as_array().into_iter().flatten();
    let refused = conditions().find(|condition| matches!(text(&condition["type"]), "Denied" | "Failed"));
    let certificate = certificate(object);
    let answer = match (refused, &certificate) {
        (Some(refused), _) => {
            let why = cut::head(text(&refused["message"]), limits::SHOOT_NODE_BYTES_MAX);
            RequestAnswer::Refused(cut::one_line(why))
        }
        (None, Some(_)) => RequestAnswer::Signed,
        (None, None) => RequestAnswer::Open,
    };
    SeenRequest {
        made: parse_rfc3339(text(&object["metadata"]["creationTimestamp"])).ok(),
        answer,
        is_of_kubelet: [KUBELET_CLIENT, KUBELET_SERVING].contains(&text(&object["spec"]["signerName"])),
        ends: certificate.map(|it| it.not_after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::json::json;
    use crate::pki::AnyKey;
    use crate::pki::issue::{Authority, CertificateIssuer, CertificateTemplate, ServerNames, subject};

    const AGENT_CLIENT: &str = "kubernetes.io/kube-apiserver-client";

    /// A certificate of this name, in base64.
    fn signed(name: &str, ends: i64) -> String {
        let key = AnyKey::new_p256().unwrap();
        let template = CertificateTemplate {
            subject: subject(name, &[]),
            names: ServerNames::default(),
            not_before_unix_s: 0,
            not_after_unix_s: ends,
            usage: None,
            authority: Authority::No,
        };
        let pem = template.sign(&key, &CertificateIssuer::itself(&template, &key).unwrap()).unwrap();
        base64::encode(pem.as_bytes())
    }

    fn request(user: &str, signer: &str, second: u32, status: &Value) -> Value {
        json!({"metadata": {"creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")},
            "spec": {"username": user, "signerName": signer}, "status": status})
    }

    fn of_token(host: &str) -> String {
        let name = token::key(host).name;
        format!("{TOKEN}{}", name.trim_start_matches("bootstrap-token-"))
    }

    #[test]
    fn the_newest_request_of_each_kind_counts() {
        let kubelet = format!("{NODE}h1");
        let denied = json!({"conditions": [{"type": "Denied", "message": "no\nand no"}]});
        let own =
            |ends: i64| json!({"conditions": [{"type": "Approved"}], "certificate": signed(&kubelet, ends)});
        let other = json!({"certificate": signed(&format!("{NODE}h2"), 90)});
        let mut requests = RequestsOfHosts::new(["h1"].into_iter());
        for object in [
            request(&kubelet, KUBELET_CLIENT, 2, &own(70)),
            request(&kubelet, KUBELET_CLIENT, 1, &own(60)),
            request(&kubelet, KUBELET_CLIENT, 3, &other),
            request(&kubelet, KUBELET_CLIENT, 4, &Value::Null),
            request(&kubelet, KUBELET_SERVING, 5, &denied),
            request(&kubelet, KUBELET_SERVING, 4, &Value::Null),
            request(&of_token("h1"), AGENT_CLIENT, 1, &Value::Null),
            request(&format!("{NODE}h3"), KUBELET_SERVING, 9, &Value::Null),
            request(&of_token("h3"), KUBELET_CLIENT, 9, &Value::Null),
            request("admin", "example.org/signer", 9, &Value::Null),
        ] {
            requests.add(&object);
        }
        let found = requests.of("h1");
        assert_eq!(found.identity.unwrap().ends, Some(Timestamp::from_unix(70)));
        assert_eq!(found.server.unwrap().answer, RequestAnswer::Refused("no and no".to_owned()));
        let join = found.join.unwrap();
        assert_eq!((join.answer, join.is_of_kubelet), (RequestAnswer::Open, false));
        assert_eq!(requests.of("h3"), HostRequests::default());
        requests.add(&request(&of_token("h1"), KUBELET_CLIENT, 6, &own(80)));
        let found = requests.of("h1");
        assert_eq!(found.identity.unwrap().ends, Some(Timestamp::from_unix(80)));
        assert_eq!(
            found.join.map(|join| (join.answer, join.is_of_kubelet)),
            Some((RequestAnswer::Signed, true))
        );
    }
}
