//! The clusters of Shoots that are served now, for everything that waits for one of them.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;

use super::client::OpenedClient;
use crate::api::meta::Key;
use crate::base::clock::Timestamp;
use crate::base::lock::IgnorePoison;
use crate::base::sorted::{SortedMap, SortedSet};
use crate::kube::Shoot;
use crate::runtime::pool::Lane;
use crate::runtime::source::Listeners;

/// How long a released cluster stays released without a repetition: an agent that has lost its lease does not repeat
/// it, and another agent may wake the Shoot up.
const LET_GO: Duration = Duration::from_secs(60);
/// How long the answer of a server to another client replaces a separate check.
const HEARD: Duration = Duration::from_secs(60);

/// Whether the cluster of a Shoot is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServingState {
    /// Its ManagedResources are applied and its tokens are renewed.
    Served,
    /// Its API server has no replicas, or is about to lose them: no requests are sent.
    Asleep,
    /// A gardener-resource-manager is deployed in its namespace.
    LeftToOther,
    /// Not served, for this reason.
    Waiting(String),
}

impl fmt::Display for ServingState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Served => f.write_str("served"),
            Self::Asleep => f.write_str("it is hibernated, or is about to be: no requests are sent to its kube-apiserver"),
            Self::LeftToOther => f.write_str(
                "left to deployment gardener-resource-manager in its namespace: scale it to 0 or delete it, and the agent does its \
                 work",
            ),
            Self::Waiting(why) => f.write_str(why),
        }
    }
}

/// The last result for a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// Whether it is served.
    pub(crate) serving: ServingState,
    pub(crate) since: Timestamp,
    /// When its API server last answered a check.
    pub(crate) answered: Option<Timestamp>,
}

#[derive(Default)]
struct ServedShootsState {
    states: SortedMap<String, State>,
    clients: SortedMap<String, OpenedClient>,
    /// Secrets whose tokens wait for their cluster, by namespace.
    waiting: SortedMap<String, SortedSet<Key>>,
    /// Namespaces whose API servers are about to stop, and until when this is valid.
    let_go: SortedMap<String, Timestamp>,
    /// When the API servers of namespaces last answered the applier's clients, if nothing has changed since.
    heard: SortedMap<String, Timestamp>,
    /// The queues for checks of namespaces and for tokens of Secrets.
    looks: Option<Lane>,
    tokens: Option<Lane>,
}

/// The shared state. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct ServedShoots(Arc<Mutex<ServedShootsState>>, Listeners<Value>);

impl fmt::Debug for ServedShoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServedShoots").field(&self.lock().states).finish()
    }
}

impl ServedShoots {
    fn lock(&self) -> MutexGuard<'_, ServedShootsState> {
        // Single calls change the maps; the next check repairs a client without its state, or the reverse.
        self.0.lock().ignore_poison()
    }

    /// Listeners for each `Cluster` that the agent has written, or found correct.
    pub(crate) const fn clusters(&self) -> &Listeners<Value> {
        &self.1
    }

    /// The last result; `None` if there was no check yet, or the agent does not apply ManagedResources.
    pub(crate) fn state(&self, namespace: &str) -> Option<State> {
        self.lock().states.get(namespace).cloned()
    }

    /// Checks the namespace now, because something in it has changed.
    pub(crate) fn wake(&self, namespace: &str) {
        let mut inner = self.lock();
        inner.heard.remove(namespace);
        if let Some(lane) = &inner.looks {
            lane.add(Key::cluster(namespace));
        }
    }

    /// The API server has answered the applier's client.
    pub(crate) fn hear(&self, namespace: &str, now: Timestamp) {
        let mut inner = self.lock();
        if inner.clients.contains_key(namespace) {
            inner.heard.insert(namespace.to_owned(), now);
        }
    }

    /// Whether it has answered recently, and no check was requested since: a check need not ask it then.
    pub(crate) fn has_heard(&self, namespace: &str, now: Timestamp) -> bool {
        // If the clock was set back, the age of the answer is unknown.
        self.lock().heard.get(namespace).is_some_and(|heard| *heard <= now && now <= heard.plus(HEARD))
    }

    /// The API server of the namespace is about to stop. The applier ends its work there and starts no more. The caller
    /// repeats this until the server has no replicas. True as soon as the applier has released the cluster,
    /// or if there is no applier here.
    pub(crate) fn let_go(&self, namespace: &str, now: Timestamp) -> bool {
        self.lock().let_go.insert(namespace.to_owned(), now.plus(LET_GO));
        let has_let_go = self.state(namespace).is_none_or(|state| state.serving == ServingState::Asleep);
        if !has_let_go {
            self.wake(namespace);
        }
        has_let_go
    }

    /// Serves the cluster again, if its API server exists.
    pub(crate) fn take_up(&self, namespace: &str) {
        self.lock().let_go.remove(namespace);
        self.wake(namespace);
    }

    /// Whether the API server is about to stop.
    pub(crate) fn is_let_go(&self, namespace: &str, now: Timestamp) -> bool {
        self.lock().let_go.get(namespace).is_some_and(|until| now < *until)
    }

    /// The client of a served cluster. If the cluster is not served, the Secret returns as soon as it is. After a
    /// suspend of the machine, the certificate may have expired without a renewal: then the cluster is checked first.
    pub(crate) fn client_for(&self, secret: &Key, now: Timestamp) -> Option<Shoot> {
        let mut inner = self.lock();
        let namespace = &secret.namespace;
        let opened = inner.clients.get(namespace);
        if let Some(opened) = opened.filter(|opened| now < opened.expires_at) {
            return Some(opened.client.clone());
        }
        if let Some(lane) = inner.looks.as_ref().filter(|_| opened.is_some()) {
            lane.add(Key::cluster(namespace.as_str()));
        }
        inner.waiting.entry(namespace.clone()).or_default().insert(secret.clone());
        None
    }

    /// The client of a served cluster, if its certificate is still valid.
    pub(crate) fn client(&self, namespace: &str, now: Timestamp) -> Option<Shoot> {
        let inner = self.lock();
        let opened = inner.clients.get(namespace).filter(|opened| now < opened.expires_at);
        opened.map(|opened| opened.client.clone())
    }

    /// Sets the queue for Secrets that need tokens.
    pub(crate) fn renews_tokens(&self, lane: &Lane) {
        self.lock().tokens = Some(lane.clone());
    }

    /// Sets the queue for checks of namespaces.
    pub(crate) fn looks(&self, lane: &Lane) {
        self.lock().looks = Some(lane.clone());
    }

    /// No cluster is served any more.
    pub(crate) fn end(&self) {
        let waiting = std::mem::take(&mut *self.lock());
        drop(waiting);
    }

    /// Stores the result of a check. Returns true if it has changed.
    pub(crate) fn tell(
        &self,
        namespace: &str,
        serving: ServingState,
        client: Option<&OpenedClient>,
        now: Timestamp,
    ) -> bool {
        let mut inner = self.lock();
        let before = inner.states.get(namespace);
        let is_new = before.is_none_or(|state| state.serving != serving);
        let since = before.filter(|_| !is_new).map_or(now, |state| state.since);
        let answered =
            if serving == ServingState::Served { Some(now) } else { before.and_then(|s| s.answered) };
        inner.states.insert(namespace.to_owned(), State { serving, since, answered });
        let Some(client) = client else {
            inner.clients.remove(namespace);
            inner.heard.remove(namespace);
            return is_new;
        };
        inner.clients.insert(namespace.to_owned(), client.clone());
        let waiting = inner.waiting.remove(namespace).unwrap_or_default();
        if let Some(lane) = &inner.tokens {
            waiting.into_iter().for_each(|key| lane.add(key));
        }
        is_new
    }

    /// The namespace was replaced, or was not checked yet. Its Secrets may already wait for the cluster.
    pub(crate) fn renew(&self, namespace: &str) {
        let mut inner = self.lock();
        inner.states.remove(namespace);
        inner.clients.remove(namespace);
        inner.let_go.remove(namespace);
        inner.heard.remove(namespace);
    }

    /// The namespace was deleted.
    pub(crate) fn forget(&self, namespace: &str) {
        self.renew(namespace);
        self.lock().waiting.remove(namespace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::{Client, Connection, Options};

    fn opened(expires_at: Timestamp) -> OpenedClient {
        let client = Shoot(Client::new(Connection::new("https://127.0.0.1:1"), Options::default()).unwrap());
        OpenedClient { client, renew_at: expires_at.minus(Duration::from_secs(100)), expires_at }
    }

    /// After a start, Secrets may be seen before their namespaces.
    #[test]
    fn a_secret_waits_for_an_unchecked_namespace() {
        let served = ServedShoots::default();
        let waiting =
            |served: &ServedShoots| served.lock().waiting.get("shoot--a--b").map_or(0, SortedSet::len);
        let at = Timestamp::from_unix;
        assert!(served.client_for(&Key::new("shoot--a--b", "gardener"), at(10)).is_none());
        served.renew("shoot--a--b");
        assert_eq!(waiting(&served), 1);
        served.tell("shoot--a--b", ServingState::Served, Some(&opened(at(500))), at(11));
        assert_eq!(waiting(&served), 0);
        assert!(served.client_for(&Key::new("shoot--a--b", "gardener"), at(600)).is_none());
        served.forget("shoot--a--b");
        assert_eq!(waiting(&served), 0);
    }

    #[test]
    fn a_cluster_is_released_until_its_server_is_gone_or_the_release_expires() {
        let (served, name) = (ServedShoots::default(), "shoot--a--b");
        let (at, client) = (Timestamp::from_unix, opened(Timestamp::from_unix(500)));
        assert!(served.let_go(name, at(10)), "there is no applier");
        served.take_up(name);
        served.tell(name, ServingState::Served, Some(&client), at(11));
        assert!(!served.is_let_go(name, at(12)));
        assert!(!served.let_go(name, at(12)));
        assert!(served.is_let_go(name, at(71)) && !served.is_let_go(name, at(72)));
        served.tell(name, ServingState::Asleep, None, at(13));
        assert!(served.let_go(name, at(14)));
        served.take_up(name);
        assert!(!served.is_let_go(name, at(15)));
    }

    #[test]
    fn an_answer_counts_for_a_while_and_until_a_check_is_requested() {
        let (served, name) = (ServedShoots::default(), "shoot--a--b");
        let (at, client) = (Timestamp::from_unix, opened(Timestamp::from_unix(500)));
        let tell = |client| served.tell(name, ServingState::Served, client, at(1));
        let hear = |now| served.hear(name, at(now));
        let has_heard = |now| served.has_heard(name, at(now));
        hear(10);
        assert!(!has_heard(10), "there is no applier");
        tell(Some(&client));
        assert!(!has_heard(10));
        hear(10);
        assert!(has_heard(70) && !has_heard(71));
        assert!(!has_heard(9), "the clock was set back");
        served.wake(name);
        assert!(!has_heard(10), "something has changed");
        hear(11);
        tell(None);
        tell(Some(&client));
        assert!(!has_heard(11), "it was not served");
        hear(12);
        served.renew(name);
        assert!(!has_heard(12), "another namespace");
    }

    #[test]
    fn a_state_has_its_start_and_the_last_answer() {
        let served = ServedShoots::default();
        let at = Timestamp::from_unix;
        let client = opened(at(500));
        let away = || ServingState::Waiting("away".to_owned());
        let table = [
            (10, away(), false, true, (10, None)),
            (20, away(), false, false, (10, None)),
            (30, ServingState::Served, true, true, (30, Some(30))),
            (40, ServingState::Served, true, false, (30, Some(40))),
            (50, ServingState::Asleep, false, true, (50, Some(40))),
        ];
        let key = Key::new("shoot--a--b", "gardener");
        for (now, serving, has_client, is_new, (since, answered)) in table {
            let client = has_client.then_some(&client);
            assert_eq!(served.tell("shoot--a--b", serving.clone(), client, at(now)), is_new, "{now}");
            let state = served.state("shoot--a--b").unwrap();
            assert_eq!(state, State { serving, since: at(since), answered: answered.map(at) }, "{now}");
            assert_eq!(served.client_for(&key, at(now)).is_some(), has_client, "{now}");
            assert!(served.client_for(&key, at(500)).is_none(), "expired");
        }
        served.forget("shoot--a--b");
        assert_eq!(served.state("shoot--a--b"), None);
    }
}
