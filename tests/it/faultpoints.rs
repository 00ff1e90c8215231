//! Stories in which one thing goes wrong at one point. What a story is about is counted: writes of the agent, its lists,
//! and events of its watches. The fault happens to one of them, by its number or by its name; then the agent starts
//! again, if it was killed, and the result is the same.
//!
//! A kill cuts all connections and loses everything but the state directory; the agent releases and finishes nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use gardenlet::base::clock::Clock;
use gardenlet::base::stop::Stop;
use serde_json::Value;

use crate::left::{Words, differences};
use crate::sampling::{Sample, is_limited};
use crate::world::{Agent, World, is_write_of_agent};
use support::TestCluster;
use support::garden::authorizer::USER_PREFIX;
use support::http::faults::{Action, Seen, failure};
use support::json::text;

/// How many changes a stale list is behind.
const STALE_BY: u64 = 8;
/// How long a watch sends no events.
const BLIND: Duration = Duration::from_secs(10);
/// In the agent's time: long enough for others to act before the agent continues.
const HELD: Duration = Duration::from_secs(20);

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The write has no effect.
    KillBefore,
    /// The write took effect, but the agent gets no answer.
    KillAfter,
    /// The same, but the agent lives.
    LostAnswer,
    /// The answer to a write is 504: the client cannot know whether the write took effect. It did.
    TimedOut,
    /// The write takes effect later.
    HeldBefore,
    /// The write takes effect at once, and its answer comes later.
    HeldAfter,
    StaleList,
    LateEvents,
    /// Events are lost, and the watch forgets its version.
    LostEvents,
}

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Write,
    List,
    Event,
}

impl Fault {
    fn kind(self) -> Kind {
        match self {
            Self::StaleList => Kind::List,
            Self::LateEvents | Self::LostEvents => Kind::Event,
            _ => Kind::Write,
        }
    }
}

/// The request or event to which it happens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum At {
    /// The number among all of its kind, from 0.
    Number(usize),
    /// The name of a write: see [`name_of`].
    Named(Cow<'static, str>),
}

/// A fault, and where it happens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Point {
    pub(crate) fault: Fault,
    pub(crate) at: At,
}

pub(crate) const fn before(write: &'static str) -> Point {
    Point { fault: Fault::KillBefore, at: At::Named(Cow::Borrowed(write)) }
}

pub(crate) const fn after(write: &'static str) -> Point {
    Point { fault: Fault::KillAfter, at: At::Named(Cow::Borrowed(write)) }
}

impl Point {
    pub(crate) fn number(fault: Fault, number: usize) -> Self {
        Self { fault, at: At::Number(number) }
    }

    pub(crate) fn named(fault: Fault, write: &str) -> Self {
        Self { fault, at: At::Named(write.to_owned().into()) }
    }

    /// The agent is not killed there, but held.
    pub(crate) fn held(&self) -> Self {
        let fault = if self.fault == Fault::KillBefore { Fault::HeldBefore } else { Fault::HeldAfter };
        Self { fault, at: self.at.clone() }
    }
}

/// `KillBefore seed: POST secrets ca`, `StaleList 151`.
impl Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fault = self.fault;
        match &self.at {
            At::Number(number) => write!(f, "{fault:?} {number}"),
            At::Named(name) => write!(f, "{fault:?} {name}"),
        }
    }
}

#[derive(Default)]
struct State {
    /// The names of all writes, in their order.
    writes: Vec<String>,
    /// The count of each write.
    times: BTreeMap<String, usize>,
    lists: usize,
    events: usize,
    /// The request or event to which the fault happens.
    chosen: Option<String>,
    has_happened: bool,
    /// True from the kill until the agent starts again.
    is_dead: bool,
}

/// Counts what a story is about, and lets one fault happen.
pub(crate) struct FaultPoints {
    at: Option<Point>,
    agent: Weak<Agent>,
    /// The agent's user in the garden, where other seeds may have agents of their own.
    user: String,
    words: Words,
    state: Mutex<State>,
}

impl FaultPoints {
    pub(crate) fn new(agent: &Arc<Agent>, at: Option<&Point>) -> Arc<Self> {
        let words =
            Words::new(&[(r"-[0-9a-f]{8}(-[a-z0-9]{5})?\b", "-<hash>"), (r"-[0-9a-f]{10}\b", "-<template>")]);
        let user = format!("{USER_PREFIX}{}", agent.settings().seed_config.name);
        Arc::new(Self { at: at.cloned(), agent: Arc::downgrade(agent), user, words, state: Mutex::default() })
    }

    /// Counts in garden and seed from now on.
    pub(crate) fn of(
        world: &World,
        agent: &Arc<Agent>,
        at: Option<&Point>,
        concerns: fn(&Seen) -> bool,
    ) -> Arc<Self> {
        let points = Self::new(agent, at);
        points.watch("garden", &world.garden, concerns);
        points.watch("seed", &world.seed, concerns);
        points
    }

    /// Counts from now on the agent's lists, its events, and those of its writes for which `concerns` is true.
    pub(crate) fn watch(
        self: &Arc<Self>,
        server: &'static str,
        cluster: &TestCluster,
        concerns: fn(&Seen) -> bool,
    ) {
        let faults = cluster.faults();
        // While its connections are cut, the agent might still use one to make another write.
        let points = self.clone();
        faults.when(move |seen| points.is_own_write(seen) && points.state().is_dead).then(Action::Drop);
        let points = self.clone();
        let is_hit = move |seen: &Seen| {
            if points.is_own_write(seen) {
                concerns(seen) && points.hits(Kind::Write, server, seen)
            } else {
                points.is_read(seen, "list") && points.hits(Kind::List, server, seen)
            }
        };
        faults.when(is_hit).then(self.action());
        let points = self.clone();
        let begins = Arc::new(move |seen: &Seen| points.hits(Kind::Event, server, seen));
        let is_late = self.at.as_ref().is_some_and(|point| point.fault == Fault::LateEvents);
        let action = if is_late { Action::Late(begins, BLIND) } else { Action::Blind(begins, BLIND) };
        let points = self.clone();
        faults.when(move |seen| points.is_read(seen, "watch")).then(action);
    }

    /// Whether it is a write of the agent: stories themselves use an administrator's identity.
    fn is_own_write(&self, seen: &Seen) -> bool {
        is_write_of_agent(seen) && seen.user != "admin" && self.is_of_agent(seen)
    }

    fn is_read(&self, seen: &Seen, verb: &str) -> bool {
        seen.info.verb == verb && seen.user_agent.starts_with("gardenlet/") && self.is_of_agent(seen)
    }

    /// False if it is of the agent of another seed.
    fn is_of_agent(&self, seen: &Seen) -> bool {
        !seen.user.starts_with(USER_PREFIX) || seen.user == self.user
    }

    /// The fault as an action of the server for writes and lists.
    fn action(self: &Arc<Self>) -> Action {
        let points = self.clone();
        match self.at.as_ref().map(|point| point.fault) {
            Some(Fault::KillAfter) => Action::TellAfter(Arc::new(move |_: &Seen| _ = points.kill())),
            Some(Fault::LostAnswer) => Action::TellAfter(Arc::new(move |_: &Seen| points.break_off())),
            Some(Fault::TimedOut) => Action::RefuseAfter(failure(504, None)),
            Some(Fault::HeldBefore) => Action::Delay(HELD),
            Some(Fault::HeldAfter) => Action::DelayAnswer(HELD),
            Some(Fault::StaleList) => Action::StaleBy(STALE_BY),
            // Without a fault, and for events, no request is hit.
            None | Some(Fault::KillBefore | Fault::LateEvents | Fault::LostEvents) => Action::Drop,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request or an event. True if the fault happens to it.
    fn hits(&self, kind: Kind, server: &str, seen: &Seen) -> bool {
        let mut state = self.state();
        if state.is_dead {
            return false;
        }
        let number = state.count(kind);
        let name = match kind {
            Kind::Write => state.note(self.words.clean(&name_of(server, seen))),
            Kind::List => {
                state.lists += 1;
                String::new()
            }
            Kind::Event => {
                state.events += 1;
                String::new()
            }
        };
        let Some(point) = self.at.as_ref().filter(|point| point.fault.kind() == kind) else { return false };
        let is_it = match &point.at {
            At::Number(at) => *at == number,
            At::Named(at) => *at == name,
        };
        if !is_it {
            return false;
        }
        state.chosen = Some(if name.is_empty() { name_of(server, seen) } else { name });
        // These have happened once the write took effect.
        state.has_happened = !matches!(point.fault, Fault::KillAfter | Fault::LostAnswer);
        drop(state);
        point.fault != Fault::KillBefore || self.kill()
    }

    /// The agent has no connections any longer. False if it has just been stopped, because the story is over.
    fn kill(&self) -> bool {
        let cable = self.agent.upgrade().and_then(|agent| agent.present_cable());
        if let Some(cable) = &cable {
            self.state().is_dead = true;
            cable.cut();
        }
        self.state().has_happened = cable.is_some();
        cable.is_some()
    }

    fn break_off(&self) {
        if let Some(cable) = self.agent.upgrade().and_then(|agent| agent.present_cable()) {
            cable.break_off();
            self.state().has_happened = true;
        }
    }

    /// The request or event to which the fault happened.
    pub(crate) fn hit(&self) -> Option<String> {
        let state = self.state();
        state.chosen.clone().filter(|_| state.has_happened)
    }

    /// How many points there were for a fault.
    pub(crate) fn count(&self, fault: Fault) -> usize {
        self.state().count(fault.kind())
    }

    /// The names of all writes, in their order.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.state().writes.clone()
    }

    /// Restarts the agent, if it was killed.
    pub(crate) fn restart_if_due(&self) {
        self.restart_if_due_and(|| {});
    }

    /// The same; `between` is called while no agent runs.
    fn restart_if_due_and(&self, between: impl FnOnce()) {
        if self.state().is_dead {
            let agent = self.agent.upgrade().unwrap();
            agent.crash();
            between();
            self.state().is_dead = false;
            agent.launch();
        }
    }

    /// Runs a story, and restarts the agent when it was killed. `look` is called again and again; its argument is true
    /// between two lives of the agent.
    pub(crate) fn restarting<T>(&self, mut look: impl FnMut(bool) + Send, story: impl FnOnce() -> T) -> T {
        let (over, real) = (Stop::new(), Clock::system());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                loop {
                    let is_over = over.wait(&real, Duration::from_millis(2));
                    look(false);
                    self.restart_if_due_and(|| look(true));
                    if is_over {
                        return;
                    }
                }
            });
            let ended = catch_unwind(AssertUnwindSafe(story));
            over.stop();
            ended.unwrap_or_else(|panic| resume_unwind(panic))
        })
    }
}

impl State {
    fn count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Write => self.writes.len(),
            Kind::List => self.lists,
            Kind::Event => self.events,
        }
    }

    /// Notes a write; returns its name, which is new each time.
    fn note(&mut self, name: String) -> String {
        let times = self.times.entry(name.clone()).or_default();
        *times += 1;
        let name = if *times > 1 { format!("{name} #{times}") } else { name };
        self.writes.push(name.clone());
        name
    }
}

/// `seed: POST secrets ca`. The name of a patch of a Shoot's status contains its state, because some patches come in any
/// number.
fn name_of(server: &str, seen: &Seen) -> String {
    let (info, slash) = (&seen.info, if seen.info.subresource.is_empty() { "" } else { "/" });
    let object = if info.name.is_empty() { created(seen) } else { &info.name };
    let name = format!("{server}: {} {}{slash}{} {object}", seen.method, info.resource, info.subresource);
    let status = seen.body.as_ref().map(|body| &body["status"]);
    match status.filter(|_| info.resource == "shoots" && info.subresource == "status") {
        None => name,
        Some(status) if status["lastOperation"]["state"].is_string() => {
            format!("{name} {}", text(status, "/lastOperation/state"))
        }
        Some(status) => {
            let fields: Vec<&str> = status.as_object().into_iter().flatten().map(|(key, _)| &**key).collect();
            format!("{name} {}", fields.join(" "))
        }
    }
}

/// The name of an object that a request creates.
pub(crate) fn created(seen: &Seen) -> &str {
    seen.body.as_ref().map_or("", |body| text(body, "/metadata/name"))
}

/// The end of a story.
pub(crate) struct Outcome {
    pub(crate) objects: Vec<(String, Value)>,
    pub(crate) points: Arc<FaultPoints>,
    pub(crate) problems: Vec<String>,
}

impl Outcome {
    /// Whether the fault happened. An error names everything that is wrong, and what differs from a story without a fault.
    pub(crate) fn verdict(self, undisturbed: &[(String, Value)]) -> Result<bool, String> {
        let Self { objects, points, mut problems } = self;
        problems.extend(differences(undisturbed, &objects));
        let state = points.state();
        // How often the agent writes conditions and reads objects depends on time: a story may be too short for its fault.
        let number = points.at.as_ref().map(|point| (&point.at, state.count(point.fault.kind())));
        if let Some((At::Number(number), count)) = number
            && *number < count
            && state.chosen.is_none()
        {
            problems.push("it was left out".to_owned());
        }
        let hit = state.chosen.as_deref().unwrap_or("nothing");
        if problems.is_empty() {
            Ok(state.has_happened)
        } else {
            Err(format!("{hit}:\n  {}", problems.join("\n  ")))
        }
    }
}

/// A fault, how many of its points a normal run tries, and how many there are in each story.
pub(crate) type Share = (Fault, usize, usize);

/// Tries a story at some points. They are chosen among those that are there in each story, so that each run tries the
/// same; a long run tries all of them.
pub(crate) fn change_nothing(
    what: &'static str,
    shares: &[Share],
    undisturbed: &Outcome,
    story: &(dyn Fn(Option<&Point>) -> Outcome + Sync),
) {
    let mut sample = Sample::of(what);
    for (fault, few, least) in shares {
        let count = undisturbed.points.count(*fault);
        assert!(count >= *least, "{what}: {count} points for {fault:?}, not {least}");
        let count = if is_limited() { *least } else { count };
        sample = sample.with(*few, (0..count).map(|number| Point::number(*fault, number)).collect());
    }
    sample.run(&|point| story(Some(point)).verdict(&undisturbed.objects));
}
