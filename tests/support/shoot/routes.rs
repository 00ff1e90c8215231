//! The way to addresses that only a seed with nodes would have: those of Services.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gardenlet::base::clock::Clock;
use gardenlet::base::stop::Stop;
use gardenlet::net::{Dial, SystemDialer};

/// How addresses of Services begin, in the ranges that the Seeds of the tests declare.
const SERVICES: [&str; 2] = ["10.52.", "fd00:52::"];

/// Where a Service leads.
#[derive(Clone, Debug)]
struct Route {
    namespace: String,
    /// None: nobody listens.
    to: Option<SocketAddr>,
}

#[derive(Debug, Default)]
struct Table {
    routes: BTreeMap<String, Route>,
    /// Namespaces to which packets vanish.
    lost: Vec<String>,
    /// How many connections to the server of a namespace were attempted.
    dials: BTreeMap<String, usize>,
    /// The dialer is outside of the cluster.
    is_outside: bool,
}

/// Opens connections: those to addresses of Services lead to their servers in this process, all others are opened as they
/// are. Cheap to clone; clones share the table.
#[derive(Clone, Debug, Default)]
pub struct Routes(Arc<Mutex<Table>>);

impl Routes {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets all routes of a namespace: `host:port`, and where that is.
    pub fn set(&self, namespace: &str, routes: BTreeMap<String, Option<SocketAddr>>) {
        let mut table = self.table();
        table.routes.retain(|_, route| route.namespace != namespace);
        let namespace = namespace.to_owned();
        let routes = routes.into_iter();
        table.routes.extend(routes.map(|(name, to)| (name, Route { namespace: namespace.clone(), to })));
    }

    /// Connections to Services of the namespace get no answer.
    pub fn lose(&self, namespace: &str) {
        self.table().lost.push(namespace.to_owned());
    }

    /// Connections to them work again.
    pub fn find_again(&self, namespace: &str) {
        self.table().lost.retain(|lost| lost != namespace);
    }

    /// Addresses within the cluster are refused from now on, as outside of it.
    pub fn leave_cluster(&self) {
        self.table().is_outside = true;
    }

    /// The destination of an address, if it is one of a Service and a server listens.
    pub fn find(&self, host: &str, port: u16) -> Option<SocketAddr> {
        self.table().routes.get(&format!("{host}:{port}")).and_then(|route| route.to)
    }

    /// How many connections to the server of a namespace were attempted, successful or not.
    pub fn dials(&self, namespace: &str) -> usize {
        self.table().dials.get(namespace).copied().unwrap_or_default()
    }

    fn count(&self, host: &str, port: u16) {
        let mut table = self.table();
        let namespace = table.routes.get(&format!("{host}:{port}")).map(|route| route.namespace.clone());
        if let Some(namespace) = namespace {
            *table.dials.entry(namespace).or_default() += 1;
        }
    }

    /// The route, and whether packets vanish on it. Names and addresses within the cluster are never those of the machine.
    fn look(&self, host: &str, port: u16) -> Option<(Option<SocketAddr>, bool)> {
        let table = self.table();
        match table.routes.get(&format!("{host}:{port}")) {
            _ if table.is_outside && is_within_cluster(host) => Some((None, false)),
            Some(route) => Some((route.to, table.lost.contains(&route.namespace))),
            None if is_within_cluster(host) => Some((None, false)),
            None => None,
        }
    }
}

fn is_within_cluster(host: &str) -> bool {
    let is_service = SERVICES.iter().any(|range| host.starts_with(range));
    is_service || host.ends_with(".svc") || host.ends_with(".svc.cluster.local")
}

impl Dial for Routes {
    fn dial(&self, host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
        self.count(host, port);
        let (clock, never) = (Clock::system(), Stop::new());
        let deadline = clock.mono() + timeout;
        loop {
            match self.look(host, port) {
                None => return SystemDialer.dial(host, port, timeout),
                Some((_, true)) if clock.mono() >= deadline => return Err(io::ErrorKind::TimedOut.into()),
                Some((_, true)) => drop(never.wait(&clock, Duration::from_millis(20))),
                Some((None, false)) => return Err(io::ErrorKind::ConnectionRefused.into()),
                Some((Some(to), false)) => return TcpStream::connect_timeout(&to, timeout),
            }
        }
    }
}
