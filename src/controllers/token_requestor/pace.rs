//! Limits the rate of token requests. All classes share one limit: however many Secrets wait, servers handle a fixed
//! number per second, the most urgent first. Waiting does not block a worker: a Secret that must wait returns when its
//! turn is near. Only one Secret at a time tries an unavailable server, with growing delays, and the others wait
//! without requests.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::api::meta::Key;
use crate::base::backoff::delay_after;
use crate::base::clock::{Mono, Timestamp};
use crate::base::lock::IgnorePoison;
use crate::base::sorted::{SortedMap, SortedSet};
use crate::kube::{Error, ErrorVerdict};

/// The number of Secrets per second.
const RATE: usize = 5;
const SECOND: Duration = Duration::from_secs(1);
/// How long after its turn an absent Secret loses its place.
const PATIENCE: Duration = Duration::from_secs(60);
/// The first and the longest delay after failures of a server.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How long a try of an unavailable server blocks the others.
const PROBE: Duration = Duration::from_secs(15);

/// The reason for a request, the most urgent first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Urgency {
    /// A component waits for its first token.
    Missing,
    /// The renewal is due.
    Due,
    /// The renewal is due, but nothing seems to use the token.
    Unused,
    /// Check whether the token is valid.
    Check,
}

/// A Secret that needs a token, with its class.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct TokenSecret {
    pub(super) class: &'static str,
    pub(super) key: Key,
}

/// The place in the queue: ordered by urgency, then by the time since it is due.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct QueuePosition {
    urgency: Urgency,
    since: Timestamp,
    asker: TokenSecret,
}

#[derive(Debug)]
struct WaitingSecret {
    server: String,
    back_at: Mono,
}

/// A server that failed the last time.
#[derive(Debug, Default)]
struct FailedServer {
    failures: u32,
    until: Mono,
    is_probed: bool,
}

#[derive(Default)]
struct State {
    waiting: SortedMap<QueuePosition, WaitingSecret>,
    places: SortedMap<TokenSecret, (Urgency, Timestamp)>,
    /// The times of turns in the last second, the oldest first.
    given: VecDeque<Mono>,
    away: SortedMap<String, FailedServer>,
    users: NamespacesWithPods,
}

/// The namespaces with running pods, cached.
#[derive(Default)]
struct NamespacesWithPods {
    known: Option<(Mono, SortedSet<String>)>,
    is_looking: bool,
}

/// Whether pods run in a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NamespaceUse {
    /// Pods run in it.
    Used,
    /// No pods run in it.
    Unused,
    /// The caller must list pods and call [`TokenRateLimit::tell_users`].
    Look,
    /// Another caller is listing pods.
    Wait,
}

/// How long the list of used namespaces stays valid.
const USERS_COUNT: Duration = Duration::from_secs(60);

/// The shared rate limit. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct TokenRateLimit(Arc<Mutex<State>>);

impl fmt::Debug for TokenRateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TokenRateLimit").field(&self.lock().waiting.len()).finish()
    }
}

impl TokenRateLimit {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in between leaves a place that expires after a while.
        self.0.lock().ignore_poison()
    }

    /// How long a waiting Secret must continue to wait; `None` if it may be its turn, or it does not wait.
    pub(super) fn still_waits(&self, asker: &TokenSecret, now: Mono) -> Option<Duration> {
        let mut state = self.lock();
        let (urgency, since) = *state.places.get(asker)?;
        let place = QueuePosition { urgency, since, asker: asker.clone() };
        let server = state.waiting.get(&place)?.server.clone();
        let wait = state.wait(&place, &server, now);
        (!wait.is_zero()).then(|| state.keep(place, server, now, wait))
    }

    /// Requests a turn; `None` grants one request now.
    pub(super) fn ask(
        &self,
        asker: TokenSecret,
        server: &str,
        urgency: Urgency,
        since: Timestamp,
        now: Mono,
    ) -> Option<Duration> {
        let mut state = self.lock();
        // A Secret that already waits for the same reason keeps its place.
        let before = state.places.get(&asker).filter(|(known, _)| *known == urgency);
        let since = before.map_or(since, |(_, known)| since.min(*known));
        state.forget(&asker);
        let place = QueuePosition { urgency, since, asker };
        let wait = state.wait(&place, server, now);
        if !wait.is_zero() {
            return Some(state.keep(place, server.to_owned(), now, wait));
        }
        state.given.push_back(now);
        if let Some(away) = state.away.get_mut(server) {
            (away.is_probed, away.until) = (true, now.saturating_add(PROBE));
        }
        None
    }

    /// Removes a Secret that needs no further requests.
    pub(super) fn forget(&self, asker: &TokenSecret) {
        self.lock().forget(asker);
    }

    /// Records the result of a request to a server, and returns it.
    pub(super) fn hear<T>(&self, server: &str, now: Mono, result: Result<T, Error>) -> Result<T, Error> {
        let mut state = self.lock();
        match &result {
            Err(error) if is_away(error) => state.fail(server, now, error.postponed()),
            _ => drop(state.away.remove(server)),
        }
        drop(state);
        result
    }

    /// Whether pods run in a namespace of the seed.
    pub(super) fn use_of(&self, namespace: &str, now: Mono) -> NamespaceUse {
        let users = &mut self.lock().users;
        match &users.known {
            Some((at, all)) if now.saturating_sub(*at) < USERS_COUNT => {
                if all.contains(namespace) {
                    NamespaceUse::Used
                } else {
                    NamespaceUse::Unused
                }
            }
            _ if users.is_looking => NamespaceUse::Wait,
            _ => {
                users.is_looking = true;
                NamespaceUse::Look
            }
        }
    }

    /// The answer to [`NamespaceUse::Look`]. After a failure, the next caller lists again.
    pub(super) fn tell_users(&self, found: Option<SortedSet<String>>, now: Mono) {
        let known = found.map(|all| (now, all));
        self.lock().users = NamespacesWithPods { known, is_looking: false };
    }
}

/// Whether requests for other Secrets would fail too. An internal server error may concern only one Secret: a garden
/// returns it when the token's object has another uid.
fn is_away(error: &Error) -> bool {
    let is_unwell = matches!(
        error.verdict(),
        ErrorVerdict::Unreachable | ErrorVerdict::Throttled(_) | ErrorVerdict::Fenced
    );
    is_unwell && error.status_code() != Some(500)
}

impl State {
    fn forget(&mut self, asker: &TokenSecret) {
        if let Some((urgency, since)) = self.places.remove(asker) {
            self.waiting.remove(&QueuePosition { urgency, since, asker: asker.clone() });
        }
    }

    fn keep(&mut self, place: QueuePosition, server: String, now: Mono, wait: Duration) -> Duration {
        self.places.insert(place.asker.clone(), (place.urgency, place.since));
        self.waiting.insert(place, WaitingSecret { server, back_at: now.saturating_add(wait) });
        wait
    }

    fn is_held(&self, server: &str, now: Mono) -> Duration {
        self.away.get(server).map_or(Duration::ZERO, |away| away.until.saturating_sub(now))
    }

    /// The present estimate of the time until the turn of a place.
    fn wait(&mut self, place: &QueuePosition, server: &str, now: Mono) -> Duration {
        while self.given.front().is_some_and(|at| now.saturating_sub(*at) >= SECOND) {
            self.given.pop_front();
        }
        let is_lost = |waiting: &WaitingSecret| waiting.back_at.saturating_add(PATIENCE) < now;
        let lost = self.waiting.iter().filter(|(other, waiting)| *other != place && is_lost(waiting));
        let lost: Vec<TokenSecret> = lost.map(|(place, _)| place.asker.clone()).collect();
        lost.iter().for_each(|asker| self.forget(asker));
        // Secrets of an unavailable server take no turns from the others.
        let counts = |waiting: &WaitingSecret| {
            waiting.server == server || self.is_held(&waiting.server, now).is_zero()
        };
        let earlier = self.waiting.iter().take_while(|(other, _)| *other < place);
        let ahead = earlier.filter(|(_, waiting)| counts(waiting)).count();
        let held = self.is_held(server, now);
        if ahead + self.given.len() < RATE {
            return held;
        }
        // The turns that must be a second old first.
        let n = ahead + self.given.len() - RATE;
        let turn = self.given.get(n % RATE).copied().unwrap_or(now);
        let seconds = u32::try_from(1 + n / RATE).unwrap_or(u32::MAX);
        held + turn.saturating_add(SECOND.saturating_mul(seconds)).saturating_sub(now)
    }

    fn fail(&mut self, server: &str, now: Mono, after: Option<Duration>) {
        // Forget failures of servers without requests for a long time.
        self.away.retain(|_, away| away.until.saturating_add(PATIENCE * 10) > now);
        let away = self.away.entry(server.to_owned()).or_default();
        if away.until > now && !away.is_probed {
            // Already recorded.
            return;
        }
        let pause = delay_after(PAUSE.0, PAUSE.1, away.failures).max(after.unwrap_or_default());
        *away = FailedServer {
            failures: away.failures.saturating_add(1),
            until: now.saturating_add(pause),
            is_probed: false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::StatusFailure;

    fn asker(n: usize) -> TokenSecret {
        TokenSecret { class: "garden", key: Key::new("ns", format!("s{n:04}")) }
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    const SINCE: Timestamp = Timestamp::from_unix(1_000);

    /// Lets all waiting Secrets return at their time, and records the time of each turn.
    fn play(
        pace: &TokenRateLimit,
        mut askers: Vec<(Mono, TokenSecret, Urgency)>,
    ) -> Vec<(Mono, TokenSecret)> {
        let mut turns = Vec::new();
        while !askers.is_empty() {
            askers.sort();
            let (now, asker, urgency) = askers.remove(0);
            let wait = pace.still_waits(&asker, now);
            // It has been waiting since this time, according to its Secret.
            let since = Timestamp::default().plus(now);
            match wait.or_else(|| pace.ask(asker.clone(), "", urgency, since, now)) {
                None => turns.push((now, asker)),
                Some(wait) => {
                    assert!(!wait.is_zero());
                    askers.push((now + wait, asker, urgency));
                }
            }
        }
        turns
    }

    #[test]
    fn a_thousand_get_turns_at_five_a_second() {
        let pace = TokenRateLimit::default();
        let turns = play(&pace, (0..1_000).map(|n| (s(7), asker(n), Urgency::Due)).collect());
        assert_eq!(turns.len(), 1_000);
        for (at, _) in &turns {
            let within = turns.iter().filter(|(other, _)| other >= at && *other < *at + SECOND).count();
            assert!(within <= RATE, "{within} within a second from {at:?}");
        }
        assert_eq!(turns.last().unwrap().0, s(7 + 199), "and no slower");
        let state = pace.lock();
        assert!(state.waiting.is_empty() && state.places.is_empty());
    }

    #[test]
    fn the_most_urgent_are_first() {
        let all = [Urgency::Check, Urgency::Unused, Urgency::Due, Urgency::Missing];
        let pace = TokenRateLimit::default();
        let turns = play(&pace, (0..100).map(|n| (s(7), asker(n), all[n % 4])).collect());
        // The first five had their turn before the others arrived.
        let of = |urgency: Urgency| {
            let n = |asker: &TokenSecret| asker.key.name[1..].parse::<usize>().unwrap();
            let times =
                turns[5..].iter().filter(|(_, asker)| all[n(asker) % 4] == urgency).map(|(at, _)| *at);
            (times.clone().min().unwrap(), times.max().unwrap())
        };
        let (missing, due) = (of(Urgency::Missing), of(Urgency::Due));
        let (unused, check) = (of(Urgency::Unused), of(Urgency::Check));
        assert!(missing.1 <= due.0 && due.1 <= unused.0 && unused.1 <= check.0);
    }

    #[test]
    fn the_longest_due_is_first_and_a_single_one_does_not_wait() {
        let pace = TokenRateLimit::default();
        let ask =
            |n: usize, since: i64| pace.ask(asker(n), "", Urgency::Due, Timestamp::from_unix(since), s(7));
        assert_eq!([0, 1, 2, 3, 4].map(|n| ask(n, 9)), [None; 5]);
        assert_eq!((ask(5, 9), ask(6, 8)), (Some(s(1)), Some(s(1))));
        assert_eq!([7, 8, 9].map(|n| ask(n, 1)), [Some(s(1)); 3]);
        assert_eq!(pace.still_waits(&asker(5), s(7)), Some(s(1)), "the fifth of five");
        ask(10, 1);
        assert_eq!(pace.still_waits(&asker(5), s(7)), Some(s(2)), "one more came before");
        assert_eq!(pace.still_waits(&asker(6), s(8)), None, "its turn");
    }

    fn unreachable() -> Result<(), Error> {
        Err(Error::Api(Box::new(StatusFailure { code: 503, ..StatusFailure::default() })))
    }

    #[test]
    fn one_tries_an_unavailable_server_and_the_others_wait() {
        let pace = TokenRateLimit::default();
        let ask = |n: usize, now: u64| pace.ask(asker(n), "a", Urgency::Due, SINCE, s(now));
        let fail = |now: u64| drop(pace.hear("a", s(now), unreachable()));
        assert_eq!((ask(0, 7), ask(1, 7)), (None, None));
        fail(7);
        fail(7);
        // Both were in flight: this counts as one failure. Another server is usable meanwhile.
        assert_eq!(ask(0, 7), Some(s(1)));
        assert_eq!(pace.ask(asker(9), "b", Urgency::Check, SINCE, s(7)), None);
        // Delays of 1, 2, 4 ... seconds; one try at a time.
        let mut now = 8;
        for pause in [2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(ask(0, now), None, "{now}");
            assert_eq!(ask(1, now), Some(PROBE), "another try is in flight");
            fail(now);
            assert_eq!(ask(1, now), Some(s(pause)));
            now += pause;
        }
        assert_eq!(ask(0, now), None);
        assert!(pace.hear("a", s(now), Ok(())).is_ok());
        assert_eq!(ask(1, now), None, "it is back");
        // Any answer means that the server is available.
        for (n, code) in [404, 422, 500].into_iter().enumerate() {
            let refusal = Error::Api(Box::new(StatusFailure { code, ..StatusFailure::default() }));
            assert!(pace.hear("a", s(now), Err::<(), _>(refusal)).is_err());
            assert_eq!(ask(2 + n, now), None);
        }
    }

    #[test]
    fn secrets_of_an_unavailable_server_take_no_turns() {
        let pace = TokenRateLimit::default();
        assert_eq!(pace.ask(asker(0), "away", Urgency::Due, SINCE, s(7)), None);
        drop(pace.hear("away", s(7), unreachable()));
        for n in 1..100 {
            assert!(pace.ask(asker(n), "away", Urgency::Missing, SINCE, s(7)).is_some());
        }
        assert_eq!(pace.ask(asker(200), "here", Urgency::Check, SINCE, s(7)), None);
    }

    #[test]
    fn an_absent_secret_loses_its_place() {
        let pace = TokenRateLimit::default();
        for n in 0..20 {
            pace.ask(asker(n), "", Urgency::Due, SINCE, s(7));
        }
        assert!(pace.still_waits(&asker(19), s(8)).is_some());
        // Only this one is left.
        assert_eq!(pace.still_waits(&asker(19), s(90)), None);
        assert_eq!(pace.lock().places.len(), 1);
        pace.forget(&asker(19));
        assert_eq!(pace.lock().waiting.len(), 0);
    }

    #[test]
    fn one_caller_lists_used_namespaces() {
        let pace = TokenRateLimit::default();
        assert_eq!(
            (pace.use_of("a", s(1)), pace.use_of("b", s(1))),
            (NamespaceUse::Look, NamespaceUse::Wait)
        );
        pace.tell_users(None, s(2));
        assert_eq!(pace.use_of("a", s(2)), NamespaceUse::Look, "the list has failed");
        pace.tell_users(Some(SortedSet::from(["a".to_owned()])), s(3));
        assert_eq!(
            (pace.use_of("a", s(62)), pace.use_of("b", s(62))),
            (NamespaceUse::Used, NamespaceUse::Unused)
        );
        assert_eq!(pace.use_of("a", s(63)), NamespaceUse::Look);
    }
}
