//! The findings of `doctor` and their output. No IO.

use serde_json::Value;

use super::super::colour::{ColouredText, Tone};
use super::super::moves::{BY_HAND, REMEDY};
use crate::api::meta;
use crate::base::error::chain;
use crate::base::json::json;
use crate::kube;
use crate::net::{self, Hop, TlsError};
use crate::oci;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Good,
    /// It works, but needs attention.
    Odd,
    Broken,
    /// An earlier check is broken, so this one was not made.
    NotReached,
}

impl State {
    const fn tone(self) -> Tone {
        match self {
            Self::Good => Tone::Good,
            Self::Odd => Tone::Odd,
            Self::Broken => Tone::Bad,
            Self::NotReached => Tone::Faint,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Odd => "odd",
            Self::Broken => "broken",
            Self::NotReached => "not reached",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// `seed`, `garden`, `registry <host>`, `clock` ...
    pub(super) place: String,
    /// The checked hop or property.
    pub(super) hop: &'static str,
    pub(super) state: State,
    pub(super) text: String,
    /// The remedy; empty if none is needed.
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

/// The checks on the way to a server, in order.
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

/// The hop at which a request stopped, and the reason.
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

    /// `None` if the server answered the request. A refusal of the request is an answer, too.
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
    "the server rejects the token or certificate (expired, or of another cluster): supply another one";
const NO_ANSWER: &str = "the answer does not come from an API server: check the server's log, and proxies and load balancers on the way";

fn remedy(error: &net::Error) -> &'static str {
    match error {
        net::Error::Tls(TlsError::Expired { .. } | TlsError::NotYetValid { .. }) => {
            "check the clock of this host; if it is right, renew the server's certificate"
        }
        net::Error::Tls(TlsError::UnknownIssuer | TlsError::BadSignature) => {
            "put the CA of the server's certificate into certificate-authority-data (registries: edge.registries[].caFile, helm.ociRepository.caBundleSecretRef), or let the server send its intermediate certificates, too"
        }
        net::Error::Tls(TlsError::WrongName(_)) => {
            "use a name that the certificate contains, or set tls-server-name"
        }
        _ => match error.hop() {
            Hop::Configuration => "correct what the message names",
            Hop::Proxy => "check HTTPS_PROXY, NO_PROXY and proxy-url, and what the proxy allows",
            Hop::Dns => "check the name, and the resolver of this host (/etc/resolv.conf)",
            Hop::Tcp => "check address and port, routes and firewalls",
            Hop::Tls => {
                "something on the way does not speak TLS or interrupts it: check firewall, proxy and port"
            }
            Hop::Certificate => "replace the server's certificate",
            Hop::Identity => "the server refuses our certificate: renew it, or supply another one",
            Hop::Http => NO_ANSWER,
        },
    }
}

const NOT_PULLED: &str =
    "correct helm.ociRepository of the ControllerDeployment, or the Secret that it names";

/// The sources of a deployment's chart: each source that was tried, or why none could be tried. One that has
/// the chart is enough.
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
        _ if error.verdict() == oci::PullVerdict::Retry => {
            "try again later, and look at the log of the registry"
        }
        _ => NOT_PULLED,
    }
}

/// The way to a server hop by hop: the hops before the broken one are good, the later ones are not reached. A proxy
/// resolves the name and connects. Without TLS, the hops of TLS are left out.
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

/// The name of the check whether the agent may write control planes of Shoots.
pub(super) const SHOOTS: &str = "Shoots";
/// The number of permissions in the message. Without the role, all are missing.
const MISSING_NAMED_MAX: usize = 3;

/// The permissions for control planes of Shoots that the agent lacks.
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
        format!("{} with workers, which this agent does not change: {}", names.len(), named.join(", "));
    if !others.is_empty() {
        text.push_str(&format!(", and {} more", others.len()));
    }
    let remedy = "let Gardener's own gardenlet serve them, or use Shoots without workers";
    (!names.is_empty()).then(|| Finding::new("garden", SHOOTS, State::Odd, text).with(remedy))
}

/// What keeps a Shoot from moving between this seed and another one, or why that is not known.
pub(super) fn moves(shoot: &str, compared: Result<Vec<String>, String>) -> Option<Finding> {
    let (why, remedy) = match compared {
        Ok(obstacles) if obstacles.is_empty() => return None,
        Ok(obstacles) => (obstacles.join("; "), REMEDY),
        Err(why) => (why, BY_HAND),
    };
    let text = format!("{shoot} waits to move: {why}");
    Some(Finding::new("garden", SHOOTS, State::Odd, text).with(remedy))
}

/// The name of the check of StorageClasses.
pub(super) const STORAGE: &str = "StorageClass";

/// Whether the etcds of Shoots get volumes: of these classes, or of the default one.
pub(super) fn storage(classes: &[Value], wanted: [Option<&str>; 2]) -> Finding {
    let name = |class: &Value| meta::text(&class["metadata"]["name"]).to_owned();
    let is_default = |class: &&Value| {
        ["storageclass.kubernetes.io", "storageclass.beta.kubernetes.io"]
            .iter()
            .any(|group| class["metadata"]["annotations"][format!("{group}/is-default-class")] == "true")
    };
    let default = classes.iter().find(is_default).map(name);
    let names: Vec<String> = classes.iter().map(name).collect();
    let is_missing = |wanted: &&str| !names.iter().any(|known| known == wanted);
    let finding = |state, text: String| Finding::new("seed", STORAGE, state, text);
    let remedy = "mark one as default, or name existing ones in edge.etcd.main.storageClass and edge.etcd.events.storageClass";
    if let Some(missing) = wanted.iter().flatten().copied().find(is_missing) {
        return finding(State::Odd, format!("no Shoot can come up: {missing} of edge.etcd does not exist"))
            .with(remedy);
    }
    match default {
        None if wanted.contains(&None) => {
            let others = if names.is_empty() { "there are none".to_owned() } else { names.join(", ") };
            finding(State::Odd, format!("no Shoot can come up: none is the default ({others})")).with(remedy)
        }
        default => {
            let mut used: Vec<&str> = wanted.iter().filter_map(|name| name.or(default.as_deref())).collect();
            used.dedup();
            finding(State::Good, used.join(", "))
        }
    }
}

/// A smaller difference of the clocks is good. Gardener considers a seed lost after 40 s.
const SKEW_ODD_S: i64 = 5;
const SKEW_BROKEN_S: i64 = 30;

/// Compares this host's clock with the clock of a server.
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

/// Whether no check is broken.
pub(super) fn is_good(findings: &[Finding]) -> bool {
    !findings.iter().any(|finding| finding.state == State::Broken)
}

/// The verdict in one sentence.
fn verdict(findings: &[Finding]) -> (Tone, String) {
    let count = |state| findings.iter().filter(|finding| finding.state == state).count();
    match (findings.iter().find(|finding| finding.state == State::Broken), count(State::Odd)) {
        (Some(first), _) => {
            (Tone::Bad, format!("Broken: {}; begin with {}.", count(State::Broken), first.title()))
        }
        (None, 0) => (Tone::Good, "Everything works.".to_owned()),
        (None, 1) => (Tone::Odd, "Works, with 1 remark.".to_owned()),
        (None, remarks) => (Tone::Odd, format!("Works, with {remarks} remarks.")),
    }
}

/// The output for people: first the broken checks, then all checks, then the verdict.
pub(super) fn text(findings: &[Finding], colour: bool) -> ColouredText {
    let mut out = ColouredText::new(colour);
    for finding in findings.iter().filter(|finding| finding.state == State::Broken) {
        out.toned(Tone::Bad, "BROKEN");
        out.plain(&format!(": {}: {}\n    {}\n", finding.title(), finding.text, finding.remedy));
    }
    if !is_good(findings) {
        out.plain("\n");
    }
    for finding in findings {
        out.toned(finding.state.tone(), &format!("{:<12}", finding.state.name()));
        out.plain(&format!(" {}", finding.title()));
        if !finding.text.is_empty() && finding.state != State::Broken {
            out.plain(&format!(": {}", finding.text));
        }
        if finding.state == State::Odd && !finding.remedy.is_empty() {
            out.plain(&format!("\n             {}", finding.remedy));
        }
        out.plain("\n");
    }
    let (tone, verdict) = verdict(findings);
    out.plain("\n");
    out.toned(tone, &verdict);
    out.plain("\n");
    out
}

/// The output for programs.
pub(super) fn json(findings: &[Finding]) -> Value {
    let check = |f: &Finding| json!({"place": f.place, "hop": f.hop, "state": f.state.name(), "text": f.text, "remedy": f.remedy});
    let checks: Value = findings.iter().map(check).collect();
    json!({"good": is_good(findings), "verdict": verdict(findings).1, "checks": checks})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::error::StatusFailure;

    fn states(findings: &[Finding]) -> String {
        let one = |f: &Finding| format!("{}={}", f.hop, f.state.name().chars().next().unwrap());
        findings.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn shoots_with_workers_are_named_as_far_as_they_are_few() {
        let all = ["p/a", "p/b", "p/c", "p/d"].map(str::to_owned);
        assert!(workers(&[]).is_none());
        let text = |count: usize| workers(&all[..count]).unwrap().text;
        assert_eq!(text(1), "1 with workers, which this agent does not change: p/a");
        assert_eq!(text(4), "4 with workers, which this agent does not change: p/a, p/b, p/c, and 1 more");
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
        let api = |code| kube::Error::Api(Box::new(StatusFailure { code, ..StatusFailure::default() }));
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
    fn volumes_need_a_class() {
        let class = |name: &str, default: &str| json!({"metadata": {"name": name, "annotations": {"storageclass.kubernetes.io/is-default-class": default}}});
        let all = [class("slow", "false"), class("local-path", "true")];
        let table = [
            (&all[..], [None, None], State::Good, "local-path"),
            (&all[..], [Some("slow"), None], State::Good, "slow, local-path"),
            (&all[..1], [Some("slow"), Some("slow")], State::Good, "slow"),
            (&all[..1], [Some("slow"), None], State::Odd, "no Shoot can come up: none is the default (slow)"),
            (&[], [None, None], State::Odd, "no Shoot can come up: none is the default (there are none)"),
            (
                &all[..],
                [None, Some("fast")],
                State::Odd,
                "no Shoot can come up: fast of edge.etcd does not exist",
            ),
        ];
        for (classes, wanted, state, text) in table {
            let found = storage(classes, wanted);
            assert_eq!((found.state, found.text.as_str()), (state, text), "{wanted:?}");
            assert_eq!(found.remedy.is_empty(), state == State::Good);
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
    fn the_last_line_is_the_verdict() {
        let found = |states: &[State]| -> Vec<Finding> {
            states.iter().map(|state| Finding::new("garden", "TCP", *state, "")).collect()
        };
        use State::{Broken, Good, NotReached, Odd};
        let table: [(&[State], &str); 6] = [
            (&[], "Everything works."),
            (&[Good, Good], "Everything works."),
            (&[Good, Odd], "Works, with 1 remark."),
            (&[Odd, Good, Odd], "Works, with 2 remarks."),
            (&[Odd, Broken, NotReached], "Broken: 1; begin with garden: TCP."),
            (&[Broken, Broken], "Broken: 2; begin with garden: TCP."),
        ];
        for (states, expected) in table {
            let found = found(states);
            assert_eq!(verdict(&found).1, expected);
            assert!(text(&found, false).as_str().ends_with(&format!("\n{expected}\n")));
            assert_eq!(is_good(&found), !expected.starts_with("Broken"));
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
            good         state directory: /s\nbroken       seed: TCP\nnot reached  seed: TLS\n\n\
            Broken: 1; begin with seed: TCP.\n";
        assert_eq!(text(&findings, false).as_str(), expected);
        let coloured = text(&findings, true);
        for part in [
            "\u{1b}[31mBROKEN\u{1b}[0m: seed",
            "\u{1b}[32mgood        \u{1b}[0m state",
            "\u{1b}[2mnot reached ",
        ] {
            assert!(coloured.as_str().contains(part), "{}", coloured.as_str());
        }
        assert!(!is_good(&findings) && is_good(&findings[..1]));
        let json = json(&findings);
        assert_eq!((&json["good"], &json["checks"][1]["state"]), (&json!(false), &json!("broken")));
    }
}
