//! What `doctor` has found, and how it says so. No IO.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::base::error::chain;
use crate::kube;
use crate::net::{self, Hop, TlsError};
use crate::oci;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Good,
    /// It works, but somebody should look.
    Odd,
    Broken,
    /// What it needs is broken.
    NotReached,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Odd => "odd",
            Self::Broken => "broken",
            Self::NotReached => "not reached",
        }
    }
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// `seed`, `garden`, `registry <host>`, `clock` ...
    pub(super) place: String,
    /// What of it.
    pub(super) hop: &'static str,
    pub(super) state: State,
    pub(super) text: String,
    /// What to do about it; empty if there is nothing to do.
    pub(super) remedy: String,
}

impl Finding {
    pub(super) fn new(place: &str, hop: &'static str, state: State, text: impl Into<String>) -> Self {
        Self { place: place.to_owned(), hop, state, text: text.into(), remedy: String::new() }
    }

    pub(super) fn with(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }

    fn title(&self) -> String {
        if self.place.is_empty() { self.hop.to_owned() } else { format!("{}: {}", self.place, self.hop) }
    }
}

/// What is checked on the way to a server, in order.
const HOPS: [(Hop, &str); 8] = [
    (Hop::Configuration, "configuration"),
    (Hop::Proxy, "proxy"),
    (Hop::Dns, "name"),
    (Hop::Tcp, "TCP"),
    (Hop::Tls, "TLS"),
    (Hop::Certificate, "certificate"),
    (Hop::Identity, "authentication"),
    (Hop::Http, "answer"),
];

/// How far a request came, and why no further.
#[derive(Debug)]
pub(super) struct Stopped {
    pub(super) hop: Hop,
    pub(super) why: String,
    pub(super) remedy: &'static str,
}

impl Stopped {
    pub(super) fn net(error: &net::Error) -> Self {
        Self { hop: error.hop(), why: chain(error), remedy: remedy(error) }
    }

    /// `None` if the request was answered as it should be; a refusal of what was asked is an answer.
    pub(super) fn kube(error: &kube::Error) -> Option<Self> {
        let stopped = |hop, remedy| Some(Self { hop, why: chain(error), remedy });
        match error {
            kube::Error::Transport { source, .. } => {
                Some(Self { hop: source.hop(), why: chain(error), remedy: remedy(source) })
            }
            kube::Error::Credentials(_) | kube::Error::Request(_) => {
                stopped(Hop::Configuration, "correct what the message names")
            }
            _ => match error.status_code() {
                Some(401) => stopped(Hop::Identity, UNKNOWN),
                Some(403 | 404) => None,
                _ => stopped(Hop::Http, NO_ANSWER),
            },
        }
    }
}

const UNKNOWN: &str =
    "the server does not know who we are: token or certificate expired, or of another cluster; supply others";
const NO_ANSWER: &str = "somebody answers, but not as an API server: look at its log, and at what stands between (proxy, load balancer)";

fn remedy(error: &net::Error) -> &'static str {
    match error {
        net::Error::Tls(TlsError::Expired { .. } | TlsError::NotYetValid { .. }) => {
            "compare the clock of this host; if it is right, the server's certificate must be renewed"
        }
        net::Error::Tls(TlsError::UnknownIssuer | TlsError::BadSignature) => {
            "put the CA of the server's certificate into certificate-authority-data (registries: edge.registries[].caFile, helm.ociRepository.caBundleSecretRef), or let the server send its intermediate certificates, too"
        }
        net::Error::Tls(TlsError::WrongName(_)) => "use a name that the certificate has, or tls-server-name",
        _ => match error.hop() {
            Hop::Configuration => "correct what the message names",
            Hop::Proxy => "check HTTPS_PROXY, NO_PROXY and proxy-url, and what the proxy allows",
            Hop::Dns => "check the name, and the resolver of this host (/etc/resolv.conf)",
            Hop::Tcp => "check address and port, routes and firewalls",
            Hop::Tls => "something on the way does not speak TLS, or cuts it: firewall, proxy, wrong port",
            Hop::Certificate => "the server must have another certificate",
            Hop::Identity => "the server refuses our certificate: renew it, or supply another one",
            Hop::Http => NO_ANSWER,
        },
    }
}

const NOT_PULLED: &str =
    "correct helm.ociRepository of the ControllerDeployment, or the Secret that it names";

/// Where the chart of a deployment would come from: each source that was asked, or why none could be. It is enough if one
/// of them has it.
pub(super) fn chart(
    deployment: &str,
    asked: Result<Vec<(String, Option<oci::Error>)>, String>,
) -> Vec<Finding> {
    let place = format!("chart of {deployment}");
    let asked = match asked {
        Ok(asked) => asked,
        Err(why) => return vec![Finding::new(&place, "order", State::Broken, why).with(NOT_PULLED)],
    };
    let failed = if asked.iter().any(|(_, error)| error.is_none()) { State::Odd } else { State::Broken };
    let finding = |(source, error): &(String, Option<oci::Error>)| match error {
        None => Finding::new(&place, "source", State::Good, source.as_str()),
        Some(error) => Finding::new(&place, "source", failed, chain(error)).with(chart_remedy(error)),
    };
    asked.iter().map(finding).collect()
}

fn chart_remedy(error: &oci::Error) -> &'static str {
    match error {
        oci::Error::Net { source, .. } => remedy(source),
        oci::Error::Status { status: 401 | 403, .. } => {
            "put a login that may read this repository into the Secret of helm.ociRepository.pullSecretRef"
        }
        _ if error.verdict() == oci::Verdict::Retry => "try again later, and look at the log of the registry",
        _ => NOT_PULLED,
    }
}

/// The way to a server hop by hop: what came before the break is good, what comes after it is not reached. `proxy` is who
/// stands between; it then looks up the name and connects. Without TLS there are no hops of it.
pub(super) fn way(place: &str, proxy: Option<&str>, is_tls: bool, stopped: Option<&Stopped>) -> Vec<Finding> {
    let takes_part = |hop: Hop| match hop {
        Hop::Proxy => proxy.is_some() || matches!(stopped, Some(Stopped { hop: Hop::Proxy, .. })),
        Hop::Dns | Hop::Tcp => proxy.is_none(),
        Hop::Tls | Hop::Certificate => is_tls,
        _ => true,
    };
    let finding = |(hop, name): (Hop, &'static str)| match stopped {
        Some(stopped) if stopped.hop == hop => {
            Finding::new(place, name, State::Broken, stopped.why.as_str()).with(stopped.remedy)
        }
        Some(stopped) if stopped.hop < hop => Finding::new(place, name, State::NotReached, ""),
        _ => Finding::new(place, name, State::Good, if hop == Hop::Proxy { proxy.unwrap_or("") } else { "" }),
    };
    HOPS.into_iter().filter(|(hop, _)| takes_part(*hop)).map(finding).collect()
}

/// The check whether the agent may write control planes of Shoots.
pub(super) const SHOOTS: &str = "Shoots";
/// More are not named: without the role it is all of them.
const MISSING_NAMED_MAX: usize = 3;

/// What the agent lacks for control planes of Shoots.
pub(super) fn shoots(missing: &[String]) -> Finding {
    let finding = |state, text| Finding::new("seed", SHOOTS, state, text);
    if missing.is_empty() {
        return finding(State::Good, "may run Shoots".to_owned());
    }
    let (named, others) = missing.split_at(missing.len().min(MISSING_NAMED_MAX));
    let mut text = format!("cannot run Shoots: may not {}", named.join(", "));
    if !others.is_empty() {
        text.push_str(&format!(", and {} more", others.len()));
    }
    finding(State::Odd, text).with(
        "apply ClusterRole gardener.cloud:system:gardenlet:shoots of packaging/rbac.yaml, or set shoots.allowed of the chart",
    )
}

/// Shoots that this version cannot serve, if there are any.
pub(super) fn workers(names: &[String]) -> Option<Finding> {
    let (named, others) = names.split_at(names.len().min(MISSING_NAMED_MAX));
    let mut text =
        format!("{} with workers, which this agent leaves as they are: {}", names.len(), named.join(", "));
    if !others.is_empty() {
        text.push_str(&format!(", and {} more", others.len()));
    }
    let remedy = "let a gardenlet of Gardener serve them, or make Shoots without workers";
    (!names.is_empty()).then(|| Finding::new("garden", SHOOTS, State::Odd, text).with(remedy))
}

/// Below this the clocks agree; Gardener calls a seed lost that is 40 s late.
const SKEW_ODD_S: i64 = 5;
const SKEW_BROKEN_S: i64 = 30;

/// What the clock of a server says about ours.
pub(super) fn clock(server: &str, offset_nanos: Option<i64>) -> Finding {
    let Some(offset) = offset_nanos else {
        return Finding::new("clock", "offset", State::NotReached, format!("the {server} did not answer"));
    };
    let seconds = offset / 1_000_000_000;
    let text = match seconds {
        0 => format!("agrees with the {server}"),
        1.. => format!("{seconds} s behind the {server}"),
        _ => format!("{} s ahead of the {server}", -seconds),
    };
    let state = match seconds.abs() {
        SKEW_BROKEN_S.. => State::Broken,
        SKEW_ODD_S.. => State::Odd,
        _ => State::Good,
    };
    let finding = Finding::new("clock", "offset", state, text);
    if state == State::Good {
        finding
    } else {
        finding.with("set the clock of this host (NTP), or the server's")
    }
}

/// Whether nothing is broken.
pub(super) fn is_good(findings: &[Finding]) -> bool {
    !findings.iter().any(|finding| finding.state == State::Broken)
}

/// For people: what is broken first, then everything.
pub(super) fn text(findings: &[Finding]) -> String {
    let mut out = String::new();
    for finding in findings.iter().filter(|finding| finding.state == State::Broken) {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "BROKEN: {}: {}\n    {}", finding.title(), finding.text, finding.remedy);
    }
    if !out.is_empty() {
        out.push('\n');
    }
    for finding in findings {
        let _ = write!(out, "{:<12} {}", finding.state.name(), finding.title());
        if !finding.text.is_empty() && finding.state != State::Broken {
            let _ = write!(out, ": {}", finding.text);
        }
        if finding.state == State::Odd && !finding.remedy.is_empty() {
            let _ = write!(out, "\n             {}", finding.remedy);
        }
        out.push('\n');
    }
    out
}

/// For machines.
pub(super) fn json(findings: &[Finding]) -> Value {
    let check = |f: &Finding| json!({"place": f.place, "hop": f.hop, "state": f.state.name(), "text": f.text, "remedy": f.remedy});
    json!({"good": is_good(findings), "checks": findings.iter().map(check).collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::error::Failure;

    fn states(findings: &[Finding]) -> String {
        let one = |f: &Finding| format!("{}={}", f.hop, f.state.name().chars().next().unwrap());
        findings.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn shoots_with_workers_are_named_as_far_as_they_are_few() {
        let all = ["p/a", "p/b", "p/c", "p/d"].map(str::to_owned);
        assert!(workers(&[]).is_none());
        let text = |count: usize| workers(&all[..count]).unwrap().text;
        assert_eq!(text(1), "1 with workers, which this agent leaves as they are: p/a");
        assert_eq!(text(4), "4 with workers, which this agent leaves as they are: p/a, p/b, p/c, and 1 more");
    }

    #[test]
    fn charts_are_broken_if_no_source_has_them() {
        let status = |status| {
            let (host, what) = ("h".to_owned(), "manifest 1".to_owned());
            Some(oci::Error::Status { host, what, status, code: None, retry_after: None })
        };
        let net = || {
            let source = net::Error::Connect {
                address: "h:1".to_owned(),
                source: std::io::ErrorKind::NotFound.into(),
            };
            Some(oci::Error::Net { host: "h".to_owned(), source })
        };
        let login = "put a login";
        let table = [
            (vec![None], "source=g", ""),
            (vec![status(404), None], "source=o source=g", "correct helm.ociRepository"),
            (vec![status(401)], "source=b", login),
            (vec![status(403), status(503)], "source=b source=b", login),
            (vec![status(503)], "source=b", "try again later"),
            (vec![Some(oci::Error::NotInLayout)], "source=b", "correct helm.ociRepository"),
            (vec![net()], "source=b", "check address and port"),
        ];
        for (errors, expected, remedy) in table {
            let found = chart("x", Ok(errors.into_iter().map(|error| ("h".to_owned(), error)).collect()));
            assert_eq!(states(&found), expected);
            assert!(found[0].remedy.starts_with(remedy), "{found:?}");
        }
        let found = chart("x", Err("no such secret".to_owned()));
        assert_eq!((states(&found).as_str(), found[0].text.as_str()), ("order=b", "no such secret"));
    }

    #[test]
    fn the_first_broken_hop_hides_those_behind_it() {
        let refused = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let transport = |source| kube::Error::Transport { request: "GET x".to_owned(), source };
        let api = |code| kube::Error::Api(Box::new(Failure { code, ..Failure::default() }));
        let tls = |error| transport(net::Error::Tls(error));
        let all_good = "configuration=g name=g TCP=g TLS=g certificate=g authentication=g answer=g";
        let table = [
            (
                transport(net::Error::Lookup { host: "h".to_owned(), source: refused() }),
                "configuration=g name=b TCP=n TLS=n certificate=n authentication=n answer=n",
            ),
            (
                transport(net::Error::Connect { address: "h:1".to_owned(), source: refused() }),
                "configuration=g name=g TCP=b TLS=n certificate=n authentication=n answer=n",
            ),
            (
                tls(TlsError::Handshake(String::new())),
                "configuration=g name=g TCP=g TLS=b certificate=n authentication=n answer=n",
            ),
            (
                tls(TlsError::UnknownIssuer),
                "configuration=g name=g TCP=g TLS=g certificate=b authentication=n answer=n",
            ),
            (api(401), "configuration=g name=g TCP=g TLS=g certificate=g authentication=b answer=n"),
            (api(503), "configuration=g name=g TCP=g TLS=g certificate=g authentication=g answer=b"),
            (api(403), all_good),
            (
                kube::Error::Request(String::new()),
                "configuration=b name=n TCP=n TLS=n certificate=n authentication=n answer=n",
            ),
        ];
        for (error, expected) in table {
            let found = way("seed", None, true, Stopped::kube(&error).as_ref());
            assert_eq!(states(&found), expected, "{error:?}");
            let broken = found.iter().find(|f| f.state == State::Broken);
            assert!(broken.is_none_or(|f| !f.remedy.is_empty()), "{broken:?}");
        }
        let proxy = Stopped::net(&net::Error::Proxy("p:1: no".to_owned()));
        let found = way("garden", Some("p:1"), false, Some(&proxy));
        assert_eq!(states(&found), "configuration=g proxy=b authentication=n answer=n");
    }

    #[test]
    fn a_seed_without_the_role_cannot_run_shoots() {
        let all = ["get a", "get b", "get c", "get d", "get e"].map(str::to_owned);
        let table = [
            (0, State::Good, "may run Shoots"),
            (1, State::Odd, "cannot run Shoots: may not get a"),
            (3, State::Odd, "cannot run Shoots: may not get a, get b, get c"),
            (5, State::Odd, "cannot run Shoots: may not get a, get b, get c, and 2 more"),
        ];
        for (count, state, text) in table {
            let found = shoots(&all[..count]);
            assert_eq!((found.state, found.text.as_str()), (state, text));
            assert_eq!(found.remedy.is_empty(), count == 0);
        }
    }

    #[test]
    fn clocks_may_differ_a_little() {
        let table = [
            (None, State::NotReached, "the seed did not answer"),
            (Some(900_000_000), State::Good, "agrees with the seed"),
            (Some(-7_000_000_000), State::Odd, "7 s ahead of the seed"),
            (Some(45_000_000_000), State::Broken, "45 s behind the seed"),
        ];
        for (offset, state, text) in table {
            let found = clock("seed", offset);
            assert_eq!((found.state, found.text.as_str()), (state, text));
            assert_eq!(found.remedy.is_empty(), matches!(state, State::Good | State::NotReached));
        }
    }

    #[test]
    fn what_is_broken_comes_first() {
        let findings = [
            Finding::new("", "state directory", State::Good, "/s"),
            Finding::new("seed", "TCP", State::Broken, "connect to h:1").with("check the port"),
            Finding::new("seed", "TLS", State::NotReached, ""),
        ];
        let expected = "BROKEN: seed: TCP: connect to h:1\n    check the port\n\n\
            good         state directory: /s\nbroken       seed: TCP\nnot reached  seed: TLS\n";
        assert_eq!(text(&findings), expected);
        assert!(!is_good(&findings) && is_good(&findings[..1]));
        let json = json(&findings);
        assert_eq!((&json["good"], &json["checks"][1]["state"]), (&json!(false), &json!("broken")));
    }
}
