//! The names of a test's DNS: what extensions write for DNSRecords, and connections that follow them.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gardenlet::net::Dial;
use serde_json::Value;

use super::json::{list, text};
use super::player::{Deed, Manners};
use super::shoot::Routes;

/// The addresses of all names. Cheap to clone; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Names(Arc<Mutex<BTreeMap<String, Vec<String>>>>);

impl Names {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Vec<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a name points; empty if it does not exist.
    pub fn of(&self, name: &str) -> Vec<String> {
        self.all().get(name).cloned().unwrap_or_default()
    }

    /// What an extension does with DNSRecords: a migrated record keeps its name, a deleted one takes it away.
    pub fn manners(&self) -> Manners {
        let names = self.clone();
        let write = move |record: &Value, operation: &str| {
            let name = text(record, "/spec/name").to_owned();
            let values = list(record, "/spec/values").iter().filter_map(Value::as_str).map(str::to_owned);
            match operation {
                "reconcile" | "restore" => drop(names.all().insert(name, values.collect())),
                "delete" => drop(names.all().remove(&name)),
                _ => {}
            }
            true
        };
        Manners { deed: Some(Deed::new(write)), ..Manners::default() }
    }

    /// A client's way to the addresses of several sites, by their names.
    pub fn dialer(&self, sites: &[Routes]) -> Resolving {
        Resolving { names: self.clone(), sites: sites.to_vec() }
    }
}

/// Opens connections to names and addresses of sites, and to nothing else.
#[derive(Debug)]
pub struct Resolving {
    names: Names,
    sites: Vec<Routes>,
}

impl Dial for Resolving {
    fn dial(&self, host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
        let address = self.names.of(host).pop().unwrap_or_else(|| host.to_owned());
        let site = self.sites.iter().find(|site| site.find(&address, port).is_some());
        site.ok_or(io::ErrorKind::ConnectionRefused)?.dial(&address, port, timeout)
    }
}
