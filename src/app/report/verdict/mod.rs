//! Derives one line and a list of problems from the known facts. Pure.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use crate::api::meta::Key;
use crate::base::clock::Timestamp;
use crate::base::cut::{cut, one_line};
use crate::base::sorted::SortedMap;
use crate::limits;

/// The agent retries a failed reconciliation within milliseconds. It is a problem if it fails for longer than this.
const BLIP: Duration = Duration::from_secs(5);
/// A server that did not answer the last request is unreachable if it has not answered for this time. The Lease may
/// stay without a renewal for the same time.
const SILENCE: Duration = Duration::from_secs(10);
/// The leader may be unknown for this time, at a start or during a change of the leader.
const ADRIFT: Duration = Duration::from_secs(30);
/// The part of an error that the verdict quotes.
const QUOTE_CHARS_MAX: usize = 120;

/// The state of the agent in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// There is no problem.
    Healthy,
    /// There are problems that need attention.
    Problems,
    StandingBy,
    /// The agent is not complete yet.
    #[default]
    Starting,
}

const HEALTHY: &str = "healthy";
const STANDING_BY: &str = "standing by for ";
const STARTING: &str = "starting: ";

impl State {
    /// The state as JSON shows it.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Problems => "problems",
            Self::StandingBy => "standingBy",
            Self::Starting => "starting",
        }
    }

    /// The state in the first line of the page as text.
    pub(crate) fn of_line(line: &str) -> Self {
        match line {
            HEALTHY => Self::Healthy,
            _ if line.starts_with(STANDING_BY) => Self::StandingBy,
            _ if line.starts_with(STARTING) => Self::Starting,
            _ => Self::Problems,
        }
    }

    /// Whether no action is needed.
    pub(crate) const fn is_good(self) -> bool {
        matches!(self, Self::Healthy | Self::StandingBy)
    }
}

/// The first line of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AgentVerdict {
    pub(super) state: State,
    pub(super) text: String,
}

/// Where a problem is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ProblemPlace {
    /// In the agent itself, or on its way to a server.
    Part(String),
    Object(&'static str, Key),
}

impl fmt::Display for ProblemPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part(name) => f.write_str(name),
            Self::Object(kind, key) if key.namespace.is_empty() => write!(f, "{kind} {}", key.name),
            Self::Object(kind, key) => write!(f, "{kind} {key}"),
        }
    }
}

/// A problem that needs attention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AgentProblem {
    pub(super) place: ProblemPlace,
    pub(super) error: String,
    /// `None` if the time is unknown.
    pub(super) since: Option<Timestamp>,
    /// A command that tells more, or what to do.
    pub(super) remedy: String,
}

/// How people call the program about this agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::app) struct Call {
    program: String,
    /// The option that names the configuration.
    config: String,
}

impl Default for Call {
    fn default() -> Self {
        Self { program: "gardenlet".to_owned(), config: String::new() }
    }
}

impl Call {
    /// The kubeconfigs of a service belong to root. The image of a pod has no shell, and its program is on no path.
    pub(in crate::app) fn new(config: &Path, variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let program = match (set("KUBERNETES_SERVICE_HOST"), set("INVOCATION_ID")) {
            (Some(_), _) => {
                let namespace = set("NAMESPACE").unwrap_or_else(|| "garden".to_owned());
                format!("kubectl --namespace {namespace} exec deployment/gardenlet -- /gardenlet")
            }
            (None, Some(_)) => "sudo gardenlet".to_owned(),
            (None, None) => "gardenlet".to_owned(),
        };
        Self { program, config: format!(" --config={}", config.display()) }
    }
}

/// The command for a problem at this place.
pub(super) fn remedy(place: &ProblemPlace, call: &Call) -> String {
    let Call { program, config } = call;
    match place {
        ProblemPlace::Object(kind, key) if key.namespace.is_empty() => {
            format!("{program} explain {kind}/{}{config}", key.name)
        }
        ProblemPlace::Object(kind, key) => {
            format!("{program} explain {kind}/{}/{}{config}", key.namespace, key.name)
        }
        // Their errors say what to do, which no command can.
        ProblemPlace::Part(part) if ["clock", "state directory"].contains(&part.as_str()) => String::new(),
        ProblemPlace::Part(part) if part == "configuration" => format!("{program} config validate{config}"),
        ProblemPlace::Part(_) => format!("{program} doctor{config}"),
    }
}

impl AgentProblem {
    pub(super) fn part(name: &str, error: impl Into<String>, since: Option<Timestamp>) -> Self {
        let error = cut(error.into(), limits::FAILED_TEXT_BYTES_MAX);
        Self { place: ProblemPlace::Part(name.to_owned()), error, since, remedy: String::new() }
    }
}

/// A part of the agent.
#[derive(Clone, Debug, Default)]
pub(super) struct PartFacts {
    pub(super) name: &'static str,
    pub(super) stage: String,
    pub(super) problem: Option<(String, Timestamp)>,
}

#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) name: &'static str,
    pub(super) is_reachable: bool,
    pub(super) answered: Option<Timestamp>,
    /// Why the last request was not answered, if anybody knows.
    pub(super) why: Option<String>,
}

/// A reconciliation that failed.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    pub(super) controller: &'static str,
    pub(super) key: Key,
    pub(super) error: String,
    pub(super) since: Timestamp,
    pub(super) is_final: bool,
}

/// The facts of the verdict.
#[derive(Clone, Debug, Default)]
pub(super) struct VerdictFacts {
    pub(super) leading: bool,
    pub(super) leader: Option<String>,
    /// Since when the leader is unknown.
    pub(super) adrift_since: Option<Timestamp>,
    pub(super) was_ready: bool,
    pub(super) parts: Vec<PartFacts>,
    /// Threads that make no progress.
    pub(super) stuck: Vec<&'static str>,
    /// Watches that have waited too long for their first list.
    pub(super) late: Vec<(&'static str, Timestamp)>,
    pub(super) peers: Vec<Peer>,
    /// Why the seed's Lease is not renewed.
    pub(super) lease: Option<(String, Timestamp)>,
    /// When the certificate for the garden expires.
    pub(super) expires: Option<Timestamp>,
    /// How many percent are done while the agent creates the Seed.
    pub(super) creating: Option<u32>,
    /// A store of the garden waits for its first list.
    pub(super) listing: bool,
    /// The problems that the objects report.
    pub(super) objects: Vec<AgentProblem>,
    pub(super) failed: Vec<Failed>,
}

/// The kind of object that a controller reconciles.
fn kind_of(controller: &str) -> Option<&'static str> {
    Some(match controller {
        "seed" | "seed-care" | "seed-lease" => "Seed",
        "controllerinstallation" | "controllerinstallation-care" | "controllerinstallation-required" => {
            "ControllerInstallation"
        }
        "shoot" | "shoot-care" | "shoot-state" => "Shoot",
        "managedresource" | "managedresource-health" => "ManagedResource",
        "backup-bucket" => "BackupBucket",
        "backup-entry" => "BackupEntry",
        "bastion" => "Bastion",
        "managed-seed" => "ManagedSeed",
        "gardenlet" => "Gardenlet",
        _ => return None,
    })
}

fn place_of(failed: &Failed) -> ProblemPlace {
    match kind_of(failed.controller) {
        Some(kind) => ProblemPlace::Object(kind, failed.key.clone()),
        None => ProblemPlace::Part(format!("controller {} ({})", failed.controller, failed.key)),
    }
}

/// The verdict and the problems, those of the agent's own parts first.
pub(super) fn judge(facts: &VerdictFacts, now: Timestamp) -> (AgentVerdict, Vec<AgentProblem>) {
    let mut problems = of_parts(facts, now);
    problems.extend(of_servers(facts, &problems, now));
    problems.extend(of_objects(facts, now));
    (verdict(facts, &problems), problems)
}

fn of_parts(facts: &VerdictFacts, now: Timestamp) -> Vec<AgentProblem> {
    let mut problems = Vec::new();
    if let Some(since) = facts.adrift_since.filter(|since| now >= since.plus(ADRIFT)) {
        let error = "the leader is unknown: the leader's Lease in the seed cannot be read or written";
        problems.push(AgentProblem::part("leader election", error, Some(since)));
    }
    for part in &facts.parts {
        if let Some((error, since)) = &part.problem {
            problems.push(AgentProblem::part(part.name, error.clone(), Some(*since)));
        }
    }
    for thread in &facts.stuck {
        problems.push(AgentProblem::part(thread, "the thread makes no progress", None));
    }
    for (watch, since) in &facts.late {
        let error = "the watch has not received its first list";
        problems.push(AgentProblem::part(&format!("watch {watch}"), error, Some(*since)));
    }
    if let Some(expired) = facts.expires.filter(|at| *at <= now) {
        problems.push(AgentProblem::part("garden certificate", "the certificate has expired", Some(expired)));
    }
    problems
}

/// The problems of unreachable servers and of the seed's Lease. A part may have reported them already.
fn of_servers(facts: &VerdictFacts, known: &[AgentProblem], now: Timestamp) -> Vec<AgentProblem> {
    let mut problems = Vec::new();
    let mut lease = facts.lease.as_ref();
    for peer in facts.peers.iter().filter(|peer| !peer.is_reachable) {
        let is_away = peer.answered.is_none_or(|answered| now >= answered.plus(SILENCE));
        let is_known = known.iter().any(|problem| problem.place == ProblemPlace::Part(peer.name.to_owned()));
        if !is_away || is_known {
            continue;
        }
        // The heartbeat says the same in other words.
        let renewal = lease.take().map(|(why, _)| why);
        let why = peer.why.as_ref().or(renewal).map(|why| format!(": {why}")).unwrap_or_default();
        let error = format!("the API server does not answer{why}");
        problems.push(AgentProblem::part(peer.name, error, peer.answered));
    }
    if let Some((why, since)) = lease.filter(|(_, since)| now >= since.plus(SILENCE)) {
        problems.push(AgentProblem::part(
            "seed lease",
            format!("the Lease is not renewed: {why}"),
            Some(*since),
        ));
    }
    problems
}

/// The problems that objects and their controllers report. If both report one, the text of the object and
/// the earlier time count.
fn of_objects(facts: &VerdictFacts, now: Timestamp) -> Vec<AgentProblem> {
    let mut problems = facts.objects.clone();
    let mut places: SortedMap<ProblemPlace, usize> =
        problems.iter().enumerate().map(|(index, problem)| (problem.place.clone(), index)).collect();
    for failed in &facts.failed {
        if !failed.is_final && now < failed.since.plus(BLIP) {
            continue;
        }
        let place = place_of(failed);
        if let Some(index) = places.get(&place) {
            let since = &mut problems[*index].since;
            *since = Some(since.map_or(failed.since, |known| known.min(failed.since)));
            continue;
        }
        places.insert(place.clone(), problems.len());
        let (error, since) = (failed.error.clone(), Some(failed.since));
        problems.push(AgentProblem { place, error, since, remedy: String::new() });
    }
    problems
}

fn verdict(facts: &VerdictFacts, problems: &[AgentProblem]) -> AgentVerdict {
    let of = |state, text| AgentVerdict { state, text };
    match problems {
        [] => {}
        [one] => return of(State::Problems, format!("1 problem: {}", quote(one))),
        [first, rest @ ..] => {
            let (count, more) = (problems.len(), rest.len());
            return of(State::Problems, format!("{count} problems: {} (and {more} more)", quote(first)));
        }
    }
    let starting = |why: &str| of(State::Starting, format!("{STARTING}{why}"));
    if !facts.leading {
        return match &facts.leader {
            Some(leader) => of(State::StandingBy, format!("{STANDING_BY}{leader}")),
            None => starting("looking for the leader's Lease in the seed"),
        };
    }
    for name in ["seed", "garden"] {
        match facts.parts.iter().find(|part| part.name == name) {
            Some(part) if part.stage == "running" => {}
            Some(part) => return starting(&format!("{name}: {}", part.stage)),
            None => return starting(&format!("{name}: not started")),
        }
    }
    if let Some(percent) = facts.creating {
        return starting(&format!("the Seed is being created, {percent} %"));
    }
    if facts.listing || !facts.was_ready {
        return starting("waiting for the first list of each watch");
    }
    of(State::Healthy, HEALTHY.to_owned())
}

fn quote(problem: &AgentProblem) -> String {
    let line = one_line(&format!("{}: {}", problem.place, problem.error));
    let Some((end, _)) = line.char_indices().nth(QUOTE_CHARS_MAX) else { return line };
    let beginning = line.get(..end).unwrap_or_default();
    // Between words, unless that loses too much.
    match beginning.rsplit_once(' ') {
        Some((words, _)) if words.len() > end / 2 => format!("{words} \u{2026}"),
        _ => format!("{beginning}\u{2026}"),
    }
}

#[cfg(test)]
mod tests;
