//! The part of kube-controller-manager's work that others wait for. One thread looks at the objects of a part of the
//! work after each change that may concern it: clusters of tests are small, and this is simpler than to follow each object.

pub mod collector;
pub mod namespaces;
pub mod news;
pub mod pods;
pub mod signer;
pub mod workloads;

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use gardenlet::base::clock::Clock;
use gardenlet::base::stop::Stop;
use gardenlet::base::thread;

use super::api::store::rest;
use super::api::{Api, crd};
use super::pki::Authority;
use news::News;

/// What is done.
#[derive(Clone, Debug)]
pub struct Share {
    /// Approved requests are signed.
    pub signer: bool,
    /// Namespaces get their root CA and default account; deleted ones are emptied; bootstrap tokens end.
    pub namespaces: bool,
    /// Objects are deleted with their owners.
    pub garbage: bool,
    /// Workloads report that they run.
    pub workloads: bool,
    /// Workloads in namespaces with this prefix are left to another component. Empty: none.
    pub workloads_but_in: &'static str,
}

impl Default for Share {
    fn default() -> Self {
        Self { signer: true, namespaces: true, garbage: true, workloads: true, workloads_but_in: "" }
    }
}

impl Share {
    pub fn none() -> Self {
        Self { signer: false, namespaces: false, garbage: false, workloads: false, workloads_but_in: "" }
    }
}

impl Share {
    /// Whether another component handles the workloads of a namespace.
    fn leaves_out(&self, namespace: &str) -> bool {
        !self.workloads_but_in.is_empty() && namespace.starts_with(self.workloads_but_in)
    }
}

struct Shared {
    api: Api,
    share: Mutex<Share>,
    authority: Mutex<Arc<Authority>>,
    /// The bundle that is published instead of the certificate of that CA.
    root_ca: Mutex<Option<String>>,
    stop: Stop,
}

/// The running controllers.
pub struct Controllers {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Controllers {
    pub fn start(api: &Api, authority: &Arc<Authority>, share: Share) -> Self {
        let shared = Arc::new(Shared {
            api: api.clone(),
            share: Mutex::new(share),
            authority: Mutex::new(authority.clone()),
            root_ca: Mutex::default(),
            stop: Stop::new(),
        });
        let running = shared.clone();
        let thread = thread::spawn("kube-controllers", 1 << 20, move || run(&running)).unwrap();
        Self { shared, thread: Mutex::new(Some(thread)) }
    }

    /// Signs with another CA from now on, and publishes it.
    pub fn set_authority(&self, authority: &Arc<Authority>) {
        *self.shared.authority.lock().unwrap_or_else(PoisonError::into_inner) = authority.clone();
        self.shared.api.store.wake();
    }

    /// Publishes this CA.
    pub fn set_root_ca(&self, certificate: &str) {
        *self.shared.root_ca.lock().unwrap_or_else(PoisonError::into_inner) = Some(certificate.to_owned());
        self.shared.api.store.wake();
    }

    /// Changes what is done.
    pub fn set_share(&self, share: Share) {
        *self.shared.share.lock().unwrap_or_else(PoisonError::into_inner) = share;
        self.shared.api.store.wake();
    }

    pub fn stop(&self) {
        self.shared.stop.stop();
        self.shared.api.store.wake();
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}

/// A round looks at everything after this time, because some work depends on time alone.
const WHOLE: Duration = Duration::from_secs(1);
/// The longest pause between two rounds.
const ROUND: Duration = Duration::from_millis(100);
/// The shortest one.
const ROUND_MIN: Duration = Duration::from_millis(3);

fn run(shared: &Shared) {
    let (store, clock) = (&shared.api.store, Clock::system());
    let (mut seen, mut waits, mut whole_at) = (None, News::default(), clock.mono());
    while !shared.stop.is_stopped() {
        let (mark, began) = (store.mark(), clock.mono());
        let news = match seen {
            Some(seen) if began < whole_at => News::between(&store.read(), seen, mark).or(waits),
            _ => News::all(),
        };
        if news.is_all() {
            whole_at = began + WHOLE;
        }
        seen = Some(mark);
        waits = look(shared, news);
        rest(&shared.stop, began, ROUND_MIN);
        store.wait_past(mark, ROUND);
    }
}

/// One round: the parts that have news. Returns the parts that must look in the next round, too.
fn look(shared: &Shared, news: News) -> News {
    let share = shared.share.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let authority = shared.authority.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut waits = News::default();
    if news.definitions {
        waits.definitions = crd::sync(&shared.api);
    }
    if share.signer {
        signer::sync(&shared.api, &|approved| {
            let is_ours = approved.signer == signer::CLIENT;
            is_ours.then(|| authority.sign(approved.pem, approved.from, approved.until))
        });
    }
    if share.namespaces {
        namespaces::clean_tokens(&shared.api);
    }
    if share.namespaces && news.namespaces {
        let published = shared.root_ca.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let ca = published.unwrap_or_else(|| authority.certificate());
        waits.namespaces = namespaces::sync(&shared.api, &ca);
    }
    if share.garbage && news.owners {
        collector::sync(&shared.api);
    }
    if share.workloads && news.workloads {
        let left_out = |namespace: &str| share.leaves_out(namespace);
        pods::sync(&shared.api, &left_out);
        workloads::sync(&shared.api, &left_out);
    }
    waits
}
