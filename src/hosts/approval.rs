//! Who gets a certificate of a node: decides about the certificate requests in the cluster of a Shoot.
//!
//! Upstream lets any bootstrap token become any node. Here a token belongs to one host: its name is in the Secret of the token, and a request
//! made with the token must ask for that name. The rules about the names of a kubelet's server are those of gardener-resource-manager
//! (`pkg/resourcemanager/controller/csrapprover`), except that nothing is denied that time alone may heal.

use std::net::IpAddr;
use std::time::Duration;

use crate::base::clock::Timestamp;
use crate::base::sorted::SortedSet;
use crate::pki::requested::RequestedCertificate;

/// The common name of a node agent begins with it; the name of its host follows.
pub(crate) const AGENT: &str = "gardener.cloud:node-agent:machine:";
/// The organization of node agents, which is their group.
const AGENTS: &str = "gardener.cloud:node-agents";
/// The user of a kubelet begins with it; the name of its node follows.
pub(super) const NODE: &str = "system:node:";
const NODES: &str = "system:nodes";
/// The user of a bootstrap token begins with it; the id of the token follows.
pub(super) const TOKEN: &str = "system:bootstrap:";
/// How long a kubelet that takes the place of another has to fetch the answer with its token.
const FETCHED: Duration = Duration::from_secs(5);
/// The signer of certificates of any client.
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// The signer of certificates with which kubelets are clients.
pub(super) const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// The signer of certificates of the servers of kubelets.
pub(super) const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";

/// A request as the API server tells of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct NodeRequest {
    pub(crate) signer: String,
    /// The user who made it.
    pub(crate) username: String,
    pub(crate) usages: Vec<String>,
    /// When it was made.
    pub(crate) made: Option<Timestamp>,
    /// What it asks for; none if it cannot be read.
    pub(crate) asked: Option<RequestedCertificate>,
}

/// The token of a host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct JoinToken {
    /// The name of its host.
    pub(crate) host: String,
    /// The uid of the Node whose place the host takes; empty if there was none.
    pub(crate) replaces: String,
    /// When it was made.
    pub(crate) made: Option<Timestamp>,
    /// When the certificate of the kubelet was approved, if its host takes the place of a Node.
    pub(crate) used: Option<Timestamp>,
}

/// A Node of the Shoot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct JoinedNode {
    pub(crate) uid: String,
    /// The names of its host.
    pub(crate) names: SortedSet<String>,
    pub(crate) addresses: SortedSet<IpAddr>,
}

impl JoinedNode {
    /// Whether a server under the names that are asked for could be taken for its kubelet.
    pub(crate) fn has_one_of(&self, asked: &RequestedCertificate) -> bool {
        asked.dns.iter().any(|name| self.names.contains(name))
            || asked.addresses.iter().any(|address| self.addresses.contains(address))
    }
}

/// Where tokens and nodes are found.
pub(crate) trait Joins {
    /// The token with this id, if it was made for a host. Errors: it is unknown now.
    fn token(&self, id: &str) -> Result<Option<JoinToken>, String>;
    /// The Node of this name. Errors: it is unknown now.
    fn node(&self, name: &str) -> Result<Option<JoinedNode>, String>;
    /// Another Node than this one that has a name or an address which is asked for. Errors: it is unknown now.
    fn other_with(&self, name: &str, asked: &RequestedCertificate) -> Result<Option<String>, String>;
}

/// How far a host is that takes the place of a Node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TakeoverStep {
    /// The agent of the host asks.
    Begins,
    /// Its kubelet asks, which is the last to use the token.
    Ends,
}

/// What becomes of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Judgement {
    Approved,
    /// For the host of this name, which takes the place of a Node.
    ApprovedInPlace(String, TakeoverStep),
    /// With the reason, for people.
    Denied(String),
    /// It stays open, and is looked at again.
    Open(String),
    /// Somebody else decides about it.
    Foreign,
}

/// What a request asks to become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wish {
    Agent,
    KubeletClient,
    KubeletServer,
}

impl Wish {
    fn of(request: &NodeRequest, asked: &RequestedCertificate) -> Option<Self> {
        match request.signer.as_str() {
            CLIENT if asked.common_name.starts_with(AGENT) => Some(Self::Agent),
            // The controllers of Kubernetes decide when a kubelet renews its own certificate.
            KUBELET_CLIENT if request.username.starts_with(TOKEN) => Some(Self::KubeletClient),
            KUBELET_SERVING => Some(Self::KubeletServer),
            _ => None,
        }
    }

    const fn prefix(self) -> &'static str {
        match self {
            Self::Agent => AGENT,
            Self::KubeletClient | Self::KubeletServer => NODE,
        }
    }

    const fn organization(self) -> &'static str {
        match self {
            Self::Agent => AGENTS,
            Self::KubeletClient | Self::KubeletServer => NODES,
        }
    }

    const fn usage(self) -> &'static str {
        match self {
            Self::Agent | Self::KubeletClient => "client auth",
            Self::KubeletServer => "server auth",
        }
    }

    /// The host that it asks for. Errors: the certificate would be good for something else.
    fn host(self, request: &NodeRequest, asked: &RequestedCertificate) -> Result<String, String> {
        let host = asked.common_name.strip_prefix(self.prefix()).filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| format!("it asks for the name {:?}", asked.common_name))?;
        if asked.organizations != [self.organization()] || asked.has_others {
            return Err(format!("it asks for groups other than {}", self.organization()));
        }
        let has_names = !(asked.dns.is_empty() && asked.addresses.is_empty());
        if has_names != (self == Self::KubeletServer) {
            return Err("the names of its server do not fit its purpose".to_owned());
        }
        let allowed = ["digital signature", "key encipherment", self.usage()];
        let fits = request.usages.iter().all(|usage| allowed.contains(&usage.as_str()))
            && request.usages.iter().any(|usage| usage == self.usage());
        if fits { Ok(host.to_owned()) } else { Err(format!("it asks for the usages {:?}", request.usages)) }
    }
}

/// Whether a signer signs for nodes and their agents.
pub(crate) fn is_of_nodes(signer: &str) -> bool {
    [CLIENT, KUBELET_CLIENT, KUBELET_SERVING].contains(&signer)
}

/// Decides what becomes of a request.
pub(crate) fn judge(request: &NodeRequest, joins: &dyn Joins) -> Judgement {
    let Some(asked) = request.asked.as_ref() else {
        // The API server has checked it, so it is one that this program cannot read.
        return if is_of_nodes(&request.signer) {
            Judgement::Open("it cannot be read".to_owned())
        } else {
            Judgement::Foreign
        };
    };
    let Some(wish) = Wish::of(request, asked) else { return Judgement::Foreign };
    let mut token = None;
    if let Some(id) = request.username.strip_prefix(TOKEN) {
        match joins.token(id) {
            Ok(Some(found)) => token = Some(found),
            // Its owner has made it by other means.
            Ok(None) => return Judgement::Foreign,
            Err(why) => return Judgement::Open(why),
        }
    }
    let host = match wish.host(request, asked) {
        Ok(host) => host,
        Err(why) => return Judgement::Denied(why),
    };
    if let Some(token) = token {
        return match wish {
            Wish::KubeletServer => {
                Judgement::Denied("a bootstrap token gets no certificate of a server".to_owned())
            }
            // Its script was printed again: the request is one of the token before.
            _ if request.made < token.made => {
                Judgement::Denied("it is older than the token of its host".to_owned())
            }
            // A host takes the place of a Node once. Its kubelet, which asks last, may ask again if it has lost the answer.
            _ if token
                .used
                .is_some_and(|used| wish == Wish::Agent || request.made > Some(used.plus(FETCHED))) =>
            {
                Judgement::Denied("the token of its host has been used".to_owned())
            }
            _ => by_token(&host, &token, wish, joins),
        };
    }
    if request.username != asked.common_name {
        return Judgement::Denied(format!(
            "{} asks for the certificate of {}",
            request.username, asked.common_name
        ));
    }
    match wish {
        // A host whose Node was deleted has left.
        Wish::Agent => match joins.node(&host) {
            Ok(Some(_)) => Judgement::Approved,
            Ok(None) => Judgement::Open(format!("node {host} does not exist")),
            Err(why) => Judgement::Open(why),
        },
        Wish::KubeletClient => Judgement::Foreign,
        Wish::KubeletServer => server(&host, asked, joins),
    }
}

/// A host that has no certificate yet asks with its token.
fn by_token(host: &str, token: &JoinToken, wish: Wish, joins: &dyn Joins) -> Judgement {
    if token.host != host {
        return Judgement::Denied(format!(
            "the token is for host {}, and the request for {host}",
            token.host
        ));
    }
    match joins.node(host) {
        Ok(Some(node)) if node.uid != token.replaces => Judgement::Denied(format!(
            "node {host} exists: print its script again with --rejoin if this host takes its place"
        )),
        Ok(None) => Judgement::Approved,
        Ok(Some(_)) => {
            let step = if wish == Wish::Agent { TakeoverStep::Begins } else { TakeoverStep::Ends };
            Judgement::ApprovedInPlace(host.to_owned(), step)
        }
        Err(why) => Judgement::Open(why),
    }
}

/// A kubelet may serve under the names and addresses of its Node.
fn server(host: &str, asked: &RequestedCertificate, joins: &dyn Joins) -> Judgement {
    let node = match joins.node(host) {
        Ok(Some(node)) => node,
        Ok(None) => return Judgement::Open(format!("node {host} does not exist yet")),
        Err(why) => return Judgement::Open(why),
    };
    let names = asked.dns.iter().find(|name| !node.names.contains(*name)).cloned();
    let addresses = asked.addresses.iter().find(|address| !node.addresses.contains(*address));
    // A Node gets its addresses a moment after it was made, and others when its host moves.
    match names.or_else(|| addresses.map(ToString::to_string)) {
        Some(other) => Judgement::Open(format!("node {host} does not have the address {other}")),
        None => match joins.other_with(host, asked) {
            Ok(None) => Judgement::Approved,
            Ok(Some(other)) => Judgement::Open(format!("node {other} has the same address")),
            Err(why) => Judgement::Open(why),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MADE: Timestamp = Timestamp::from_unix(1_767_225_600);

    /// One token, `t`, and one node.
    struct Known {
        token: JoinToken,
        node: Option<JoinedNode>,
    }

    impl Joins for Known {
        fn token(&self, id: &str) -> Result<Option<JoinToken>, String> {
            match id {
                "t" => Ok(Some(self.token.clone())),
                "away" => Err("nobody answers".to_owned()),
                _ => Ok(None),
            }
        }

        fn node(&self, name: &str) -> Result<Option<JoinedNode>, String> {
            if name == "away" {
                return Err("nobody answers".to_owned());
            }
            Ok(self.node.clone().filter(|_| name == "h1"))
        }

        fn other_with(&self, _: &str, asked: &RequestedCertificate) -> Result<Option<String>, String> {
            let addresses = ["10.0.0.9".parse().unwrap()].into_iter().collect();
            let other = JoinedNode { addresses, ..JoinedNode::default() };
            Ok(other.has_one_of(asked).then(|| "h9".to_owned()))
        }
    }

    fn asked(name: &str, organization: &str) -> RequestedCertificate {
        RequestedCertificate {
            common_name: name.to_owned(),
            organizations: vec![organization.to_owned()],
            ..RequestedCertificate::default()
        }
    }

    fn request(signer: &str, username: &str, asked: RequestedCertificate) -> NodeRequest {
        let usage = if signer == KUBELET_SERVING { "server auth" } else { "client auth" };
        NodeRequest {
            signer: signer.to_owned(),
            username: username.to_owned(),
            usages: vec!["digital signature".to_owned(), usage.to_owned()],
            made: Some(MADE),
            asked: Some(asked),
        }
    }

    fn node(uid: &str) -> JoinedNode {
        JoinedNode {
            uid: uid.to_owned(),
            names: ["h1".to_owned()].into_iter().collect(),
            addresses: ["10.0.0.7".parse().unwrap()].into_iter().collect(),
        }
    }

    fn known(replaces: &str, node: Option<JoinedNode>) -> Known {
        Known {
            token: JoinToken {
                host: "h1".to_owned(),
                replaces: replaces.to_owned(),
                made: Some(MADE),
                used: None,
            },
            node,
        }
    }

    /// The word of the judgement, and its reason.
    fn word(request: &NodeRequest, known: &Known) -> String {
        match judge(request, known) {
            Judgement::Approved => "approved".to_owned(),
            Judgement::ApprovedInPlace(host, TakeoverStep::Begins) => {
                format!("approved in the place of {host}")
            }
            Judgement::ApprovedInPlace(host, TakeoverStep::Ends) => format!("approved as the last of {host}"),
            Judgement::Denied(why) => format!("denied: {why}"),
            Judgement::Open(why) => format!("open: {why}"),
            Judgement::Foreign => "foreign".to_owned(),
        }
    }

    #[test]
    fn a_token_is_good_for_one_host() {
        let agent = |name: &str, user: &str| request(CLIENT, user, asked(&format!("{AGENT}{name}"), AGENTS));
        let kubelet =
            |name: &str, user: &str| request(KUBELET_CLIENT, user, asked(&format!("{NODE}{name}"), NODES));
        let (token, free) = ("system:bootstrap:t", known("", None));
        let taken = known("", Some(node("1")));
        let table = [
            (agent("h1", token), &free, "approved"),
            (kubelet("h1", token), &free, "approved"),
            (agent("h2", token), &free, "denied: the token is for host h1, and the request for h2"),
            (kubelet("h2", token), &free, "denied: the token is for host h1"),
            (agent("h1", "system:bootstrap:other"), &free, "foreign"),
            (agent("h1", "system:bootstrap:away"), &free, "open: nobody answers"),
            (agent("h1", token), &taken, "denied: node h1 exists"),
            (kubelet("h1", token), &taken, "denied: node h1 exists"),
            (agent("h1", token), &known("1", Some(node("1"))), "approved in the place of h1"),
            (kubelet("h1", token), &known("1", Some(node("1"))), "approved as the last of h1"),
            // The host has taken the place already.
            (agent("h1", token), &known("1", Some(node("2"))), "denied: node h1 exists"),
            (agent("h1", token), &known("1", None), "approved"),
        ];
        for (request, known, expected) in table {
            let found = word(&request, known);
            assert!(found.starts_with(expected), "{expected}: {found}: {request:?}");
        }
        let early = NodeRequest { made: Some(Timestamp::from_unix(1_767_225_599)), ..agent("h1", token) };
        assert_eq!(word(&early, &free), "denied: it is older than the token of its host");
        let used_before = |seconds: u64| {
            let mut known = known("1", Some(node("1")));
            known.token.used = Some(MADE.minus(Duration::from_secs(seconds)));
            known
        };
        assert_eq!(
            word(&kubelet("h1", token), &used_before(5)),
            "approved as the last of h1",
            "it lost the answer"
        );
        assert_eq!(
            word(&kubelet("h1", token), &used_before(6)),
            "denied: the token of its host has been used"
        );
        assert_eq!(word(&agent("h1", token), &used_before(0)), "denied: the token of its host has been used");
        let foreign = request(KUBELET_CLIENT, "system:bootstrap:other", asked("system:node:x", "other"));
        assert_eq!(word(&foreign, &free), "foreign", "whatever it asks for");
    }

    #[test]
    fn a_node_gets_its_own_certificates_only() {
        let own = format!("{AGENT}h1");
        let there = known("", Some(node("1")));
        let renewal = |user: &str| request(CLIENT, user, asked(&own, AGENTS));
        assert_eq!(word(&renewal(&own), &there), "approved");
        assert_eq!(word(&renewal(&own), &known("", None)), "open: node h1 does not exist");
        assert!(word(&renewal(&format!("{AGENT}h2")), &there).starts_with("denied: "));
        assert!(word(&renewal("system:node:h1"), &there).starts_with("denied: "));
        let kubelet = request(KUBELET_CLIENT, "system:node:h1", asked("system:node:h1", NODES));
        assert_eq!(word(&kubelet, &there), "foreign", "the controllers of Kubernetes approve it");
        assert_eq!(word(&request(CLIENT, "admin", asked("admin", "system:masters")), &there), "foreign");
        assert_eq!(word(&request("example.org/signer", "x", asked(&own, AGENTS)), &there), "foreign");
    }

    #[test]
    fn a_server_has_the_addresses_of_its_node() {
        let server = |user: &str, host: &str, dns: &str, address: &str| {
            let mut asked = asked(&format!("{NODE}{host}"), NODES);
            asked.dns.push(dns.to_owned());
            asked.addresses.push(address.parse().unwrap());
            request(KUBELET_SERVING, user, asked)
        };
        let there = known("", Some(node("1")));
        let table = [
            (server("system:node:h1", "h1", "h1", "10.0.0.7"), "approved"),
            (
                server("system:node:h1", "h1", "h1", "10.0.0.8"),
                "open: node h1 does not have the address 10.0.0.8",
            ),
            (
                server("system:node:h1", "h1", "other", "10.0.0.7"),
                "open: node h1 does not have the address other",
            ),
            (server("system:node:h3", "h3", "h3", "10.0.0.7"), "open: node h3 does not exist yet"),
            (server("system:node:away", "away", "h1", "10.0.0.7"), "open: nobody answers"),
            (server("system:node:h2", "h1", "h1", "10.0.0.7"), "denied: system:node:h2 asks for"),
            (server("system:bootstrap:t", "h1", "h1", "10.0.0.7"), "denied: a bootstrap token"),
        ];
        for (request, expected) in table {
            let found = word(&request, &there);
            assert!(found.starts_with(expected), "{expected}: {found}");
        }
        let addresses = ["10.0.0.9".parse().unwrap()].into_iter().collect();
        let both = known("", Some(JoinedNode { addresses, ..node("1") }));
        let stolen = server("system:node:h1", "h1", "h1", "10.0.0.9");
        assert_eq!(word(&stolen, &both), "open: node h9 has the same address");
        let mut nameless = server("system:node:h1", "h1", "h1", "10.0.0.7");
        if let Some(asked) = &mut nameless.asked {
            (asked.dns, asked.addresses) = (Vec::new(), Vec::new());
        }
        assert!(word(&nameless, &there).starts_with("denied: the names of its server"));
    }

    #[test]
    fn a_certificate_is_good_for_nothing_else() {
        let good = request(CLIENT, "system:bootstrap:t", asked(&format!("{AGENT}h1"), AGENTS));
        let free = known("", None);
        let changed = |change: &dyn Fn(&mut NodeRequest, &mut RequestedCertificate)| {
            let mut request = good.clone();
            let mut asked = request.asked.take().unwrap();
            change(&mut request, &mut asked);
            request.asked = Some(asked);
            word(&request, &free)
        };
        assert_eq!(changed(&|_, _| {}), "approved");
        for (what, found) in [
            ("more groups", changed(&|_, asked| asked.organizations.push("system:masters".to_owned()))),
            ("no group", changed(&|_, asked| asked.organizations.clear())),
            ("another group", changed(&|_, asked| asked.organizations = vec![NODES.to_owned()])),
            ("a name of a server", changed(&|_, asked| asked.dns.push("x".to_owned()))),
            ("other names", changed(&|_, asked| asked.has_others = true)),
            ("no host", changed(&|_, asked| asked.common_name = AGENT.to_owned())),
            ("a server", changed(&|request, _| request.usages.push("server auth".to_owned()))),
            ("no usage", changed(&|request, _| request.usages.clear())),
        ] {
            assert!(found.starts_with("denied: "), "{what}: {found}");
        }
        let unread = NodeRequest { asked: None, ..good };
        assert_eq!(word(&unread, &free), "open: it cannot be read");
    }
}
