//! How fast tokens are asked for. All classes share one pace: however many Secrets wait, servers are asked about so many a second,
//! the most urgent first. Nobody waits in a worker: a Secret that has to wait comes back when its turn is near. A server that is
//! away is asked by one Secret at a time, after growing pauses, and the others wait without a request.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::api::meta::Key;
use crate::base::backoff::delay_after;
use crate::base::clock::{Mono, Timestamp};
use crate::base::sorted::{SortedMap, SortedSet};
use crate::kube::{Error, Verdict};

/// So many Secrets in a second.
const RATE: usize = 5;
const SECOND: Duration = Duration::from_secs(1);
/// How long after its turn one that has not come back loses its place.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pauses after failures of a server, the first and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How long one that finds out whether a server is back holds up the others.
const PROBE: Duration = Duration::from_secs(15);

/// Why a server is asked, the most urgent first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Urgency {
    /// Somebody waits for a first token.
    Missing,
    /// The renewal is due.
    Due,
    /// The same, but nobody seems to need it.
    Unused,
    /// Whether the token is good.
    Check,
}

/// A Secret that asks, and for which class.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Asker {
    pub(super) class: &'static str,
    pub(super) key: Key,
}

/// The place of one that waits: by urgency, then by how long it has been due.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Place {
    urgency: Urgency,
    since: Timestamp,
    asker: Asker,
}

#[derive(Debug)]
struct Waiting {
    server: String,
    back_at: Mono,
}

/// A server that failed last time.
#[derive(Debug, Default)]
struct Away {
    failures: u32,
    until: Mono,
    is_probed: bool,
}

#[derive(Default)]
struct State {
    waiting: SortedMap<Place, Waiting>,
    places: SortedMap<Asker, (Urgency, Timestamp)>,
    /// When turns were given in the last second, the oldest first.
    given: VecDeque<Mono>,
    away: SortedMap<String, Away>,
    users: Users,
}

/// The namespaces in which something runs, as they were a moment ago.
#[derive(Default)]
struct Users {
    known: Option<(Mono, SortedSet<String>)>,
    is_looking: bool,
}

/// Whether something runs in a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Use {
    /// Something does.
    Used,
    /// Nothing does.
    Unused,
    /// The caller has to look, and to [`Pace::tell_users`].
    Look,
    /// Somebody else is looking.
    Wait,
}

/// How long it counts which namespaces something runs in.
const USERS_COUNT: Duration = Duration::from_secs(60);

/// See the module. Cheap to clone.
#[derive(Clone, Default)]
pub struct Pace(Arc<Mutex<State>>);

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pace").field(&self.lock().waiting.len()).finish()
    }
}

impl Pace {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in between leaves a place that is lost after a while.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long one that waits already has to go on waiting; `None`: it may be its turn, or it does not wait.
    pub(super) fn still_waits(&self, asker: &Asker, now: Mono) -> Option<Duration> {
        let mut state = self.lock();
        let (urgency, since) = *state.places.get(asker)?;
        let place = Place { urgency, since, asker: asker.clone() };
        let server = state.waiting.get(&place)?.server.clone();
        let wait = state.wait(&place, &server, now);
        (!wait.is_zero()).then(|| state.keep(place, server, now, wait))
    }

    /// Asks to be allowed to ask a server; `None`: now, once.
    pub(super) fn ask(
        &self,
        asker: Asker,
        server: &str,
        (urgency, since): (Urgency, Timestamp),
        now: Mono,
    ) -> Option<Duration> {
        let mut state = self.lock();
        // Who has waited for the same before keeps its place.
        let before = state.places.get(&asker).filter(|(known, _)| *known == urgency);
        let since = before.map_or(since, |(_, known)| since.min(*known));
        state.forget(&asker);
        let place = Place { urgency, since, asker };
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

    /// It does not ask any more.
    pub(super) fn forget(&self, asker: &Asker) {
        self.lock().forget(asker);
    }

    /// Hears what became of a request to a server, and hands it through.
    pub(super) fn hear<T>(&self, server: &str, now: Mono, result: Result<T, Error>) -> Result<T, Error> {
        let mut state = self.lock();
        match &result {
            Err(error) if is_away(error) => state.fail(server, now, error.postponed()),
            _ => drop(state.away.remove(server)),
        }
        drop(state);
        result
    }

    /// Whether something runs in a namespace of the seed.
    pub(super) fn use_of(&self, namespace: &str, now: Mono) -> Use {
        let users = &mut self.lock().users;
        match &users.known {
            Some((at, all)) if now.saturating_sub(*at) < USERS_COUNT => {
                if all.contains(namespace) {
                    Use::Used
                } else {
                    Use::Unused
                }
            }
            _ if users.is_looking => Use::Wait,
            _ => {
                users.is_looking = true;
                Use::Look
            }
        }
    }

    /// The answer to [`Use::Look`]; without one, the next asker looks.
    pub(super) fn tell_users(&self, found: Option<SortedSet<String>>, now: Mono) {
        let known = found.map(|all| (now, all));
        self.lock().users = Users { known, is_looking: false };
    }
}

/// Whether another request would fail, too, for whatever Secret it is. An error within a server may be about one Secret only: a
/// garden answers with it when the object for which a token is asked is another one.
fn is_away(error: &Error) -> bool {
    let is_unwell = matches!(error.verdict(), Verdict::Unreachable | Verdict::Throttled(_) | Verdict::Fenced);
    is_unwell && error.status_code() != Some(500)
}

impl State {
    fn forget(&mut self, asker: &Asker) {
        if let Some((urgency, since)) = self.places.remove(asker) {
            self.waiting.remove(&Place { urgency, since, asker: asker.clone() });
        }
    }

    fn keep(&mut self, place: Place, server: String, now: Mono, wait: Duration) -> Duration {
        self.places.insert(place.asker.clone(), (place.urgency, place.since));
        self.waiting.insert(place, Waiting { server, back_at: now.saturating_add(wait) });
        wait
    }

    fn is_held(&self, server: &str, now: Mono) -> Duration {
        self.away.get(server).map_or(Duration::ZERO, |away| away.until.saturating_sub(now))
    }

    /// How long until the turn of a place, as things stand.
    fn wait(&mut self, place: &Place, server: &str, now: Mono) -> Duration {
        while self.given.front().is_some_and(|at| now.saturating_sub(*at) >= SECOND) {
            self.given.pop_front();
        }
        let is_lost = |waiting: &Waiting| waiting.back_at.saturating_add(PATIENCE) < now;
        let lost = self.waiting.iter().filter(|(other, waiting)| *other != place && is_lost(waiting));
        let lost: Vec<Asker> = lost.map(|(place, _)| place.asker.clone()).collect();
        lost.iter().for_each(|asker| self.forget(asker));
        // Those whose server is away take no turns from the others.
        let counts =
            |waiting: &Waiting| waiting.server == server || self.is_held(&waiting.server, now).is_zero();
        let earlier = self.waiting.iter().take_while(|(other, _)| *other < place);
        let ahead = earlier.filter(|(_, waiting)| counts(waiting)).count();
        let held = self.is_held(server, now);
        if ahead + self.given.len() < RATE {
            return held;
        }
        // The turns that have to be a second old before.
        let n = ahead + self.given.len() - RATE;
        let turn = self.given.get(n % RATE).copied().unwrap_or(now);
        let seconds = u32::try_from(1 + n / RATE).unwrap_or(u32::MAX);
        held + turn.saturating_add(SECOND.saturating_mul(seconds)).saturating_sub(now)
    }

    fn fail(&mut self, server: &str, now: Mono, after: Option<Duration>) {
        // What nobody has asked for so long is gone.
        self.away.retain(|_, away| away.until.saturating_add(PATIENCE * 10) > now);
        let away = self.away.entry(server.to_owned()).or_default();
        if away.until > now && !away.is_probed {
            // Others have said so.
            return;
        }
        let pause = delay_after(PAUSE.0, PAUSE.1, away.failures).max(after.unwrap_or_default());
        *away = Away {
            failures: away.failures.saturating_add(1),
            until: now.saturating_add(pause),
            is_probed: false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::Failure;

    fn asker(n: usize) -> Asker {
        Asker { class: "garden", key: Key::new("ns", format!("s{n:04}")) }
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    const SINCE: Timestamp = Timestamp::from_unix(1_000);

    /// Lets all that wait come back when they were told to, and returns when each had its turn.
    fn play(pace: &Pace, mut askers: Vec<(Mono, Asker, Urgency)>) -> Vec<(Mono, Asker)> {
        let mut turns = Vec::new();
        while !askers.is_empty() {
            askers.sort();
            let (now, asker, urgency) = askers.remove(0);
            let wait = pace.still_waits(&asker, now);
            // It has been waiting since now, as far as its Secret tells.
            let since = Timestamp::default().plus(now);
            match wait.or_else(|| pace.ask(asker.clone(), "", (urgency, since), now)) {
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
    fn a_thousand_have_their_turns_at_five_a_second() {
        let pace = Pace::default();
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
    fn the_most_urgent_come_first() {
        let all = [Urgency::Check, Urgency::Unused, Urgency::Due, Urgency::Missing];
        let pace = Pace::default();
        let turns = play(&pace, (0..100).map(|n| (s(7), asker(n), all[n % 4])).collect());
        // The first five came before anybody knew of the others.
        let of = |urgency: Urgency| {
            let n = |asker: &Asker| asker.key.name[1..].parse::<usize>().unwrap();
            let times =
                turns[5..].iter().filter(|(_, asker)| all[n(asker) % 4] == urgency).map(|(at, _)| *at);
            (times.clone().min().unwrap(), times.max().unwrap())
        };
        let (missing, due) = (of(Urgency::Missing), of(Urgency::Due));
        let (unused, check) = (of(Urgency::Unused), of(Urgency::Check));
        assert!(missing.1 <= due.0 && due.1 <= unused.0 && unused.1 <= check.0);
    }

    #[test]
    fn who_was_due_first_has_the_first_turn_and_a_single_one_does_not_wait() {
        let pace = Pace::default();
        let ask =
            |n: usize, since: i64| pace.ask(asker(n), "", (Urgency::Due, Timestamp::from_unix(since)), s(7));
        assert_eq!([0, 1, 2, 3, 4].map(|n| ask(n, 9)), [None; 5]);
        assert_eq!((ask(5, 9), ask(6, 8)), (Some(s(1)), Some(s(1))));
        assert_eq!([7, 8, 9].map(|n| ask(n, 1)), [Some(s(1)); 3]);
        assert_eq!(pace.still_waits(&asker(5), s(7)), Some(s(1)), "the fifth of five");
        ask(10, 1);
        assert_eq!(pace.still_waits(&asker(5), s(7)), Some(s(2)), "one more came before");
        assert_eq!(pace.still_waits(&asker(6), s(8)), None, "its turn");
    }

    fn unreachable() -> Result<(), Error> {
        Err(Error::Api(Box::new(Failure { code: 503, ..Failure::default() })))
    }

    #[test]
    fn one_asks_whether_a_server_is_back_and_the_others_wait() {
        let pace = Pace::default();
        let ask = |n: usize, now: u64| pace.ask(asker(n), "a", (Urgency::Due, SINCE), s(now));
        let fail = |now: u64| drop(pace.hear("a", s(now), unreachable()));
        assert_eq!((ask(0, 7), ask(1, 7)), (None, None));
        fail(7);
        fail(7);
        // Both were on their way: one failure. Another server is asked meanwhile.
        assert_eq!(ask(0, 7), Some(s(1)));
        assert_eq!(pace.ask(asker(9), "b", (Urgency::Check, SINCE), s(7)), None);
        // Pauses of 1, 2, 4 ... seconds; one at a time.
        let mut now = 8;
        for pause in [2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(ask(0, now), None, "{now}");
            assert_eq!(ask(1, now), Some(PROBE), "somebody asks already");
            fail(now);
            assert_eq!(ask(1, now), Some(s(pause)));
            now += pause;
        }
        assert_eq!(ask(0, now), None);
        assert!(pace.hear("a", s(now), Ok(())).is_ok());
        assert_eq!(ask(1, now), None, "it is back");
        // An answer of any kind is one.
        for (n, code) in [404, 422, 500].into_iter().enumerate() {
            let refusal = Error::Api(Box::new(Failure { code, ..Failure::default() }));
            assert!(pace.hear("a", s(now), Err::<(), _>(refusal)).is_err());
            assert_eq!(ask(2 + n, now), None);
        }
    }

    #[test]
    fn those_of_a_server_that_is_away_take_no_turns() {
        let pace = Pace::default();
        assert_eq!(pace.ask(asker(0), "away", (Urgency::Due, SINCE), s(7)), None);
        drop(pace.hear("away", s(7), unreachable()));
        for n in 1..100 {
            assert!(pace.ask(asker(n), "away", (Urgency::Missing, SINCE), s(7)).is_some());
        }
        assert_eq!(pace.ask(asker(200), "here", (Urgency::Check, SINCE), s(7)), None);
    }

    #[test]
    fn who_does_not_come_back_loses_its_place() {
        let pace = Pace::default();
        for n in 0..20 {
            pace.ask(asker(n), "", (Urgency::Due, SINCE), s(7));
        }
        assert!(pace.still_waits(&asker(19), s(8)).is_some());
        // Nobody but this one.
        assert_eq!(pace.still_waits(&asker(19), s(90)), None);
        assert_eq!(pace.lock().places.len(), 1);
        pace.forget(&asker(19));
        assert_eq!(pace.lock().waiting.len(), 0);
    }

    #[test]
    fn one_looks_where_something_runs() {
        let pace = Pace::default();
        assert_eq!((pace.use_of("a", s(1)), pace.use_of("b", s(1))), (Use::Look, Use::Wait));
        pace.tell_users(None, s(2));
        assert_eq!(pace.use_of("a", s(2)), Use::Look, "the look has failed");
        pace.tell_users(Some(SortedSet::from(["a".to_owned()])), s(3));
        assert_eq!((pace.use_of("a", s(62)), pace.use_of("b", s(62))), (Use::Used, Use::Unused));
        assert_eq!(pace.use_of("a", s(63)), Use::Look);
    }
}
