//! The events in the clusters, in sentences: each interesting change of an object.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use gardenlet::base::clock::Clock;
use gardenlet::base::stop::Stop;
use gardenlet::base::thread;
use serde_json::Value;

use crate::screen::Screen;
use crate::{World, control_plane, shoot};
use support::api::store::{Change, Store};
use support::json::{list, text};
use support::shoot::Site;

/// The number of heartbeats that are awaited and printed.
pub const BEATS: u32 = 2;

/// Threads that follow both clusters.
pub struct News {
    stop: Stop,
    stores: Vec<Store>,
    threads: Vec<JoinHandle<()>>,
}

impl News {
    pub fn follow(world: &World, screen: &Arc<Screen>) -> Self {
        let mut news = Self { stop: Stop::new(), stores: Vec::new(), threads: Vec::new() };
        for (place, cluster) in [("garden", &*world.garden), ("seed", &world.seed)] {
            let (store, screen, stop) = (cluster.store().clone(), screen.clone(), news.stop.clone());
            news.stores.push(store.clone());
            let thread = thread::spawn("news", 256 << 10, move || run(place, &store, &screen, &stop));
            news.threads.push(thread.unwrap());
        }
        let (site, screen, stop) = (world.site.clone(), screen.clone(), news.stop.clone());
        let thread = thread::spawn("news", 256 << 10, move || follow_shoot(&site, &screen, &stop));
        news.threads.push(thread.unwrap());
        news
    }

    /// Prints what is left, and ends.
    pub fn end(self) {
        self.stop.stop();
        self.stores.iter().for_each(Store::wake);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

/// Follows the Shoot as soon as it has an API server.
fn follow_shoot(site: &Site, screen: &Screen, stop: &Stop) {
    let (clock, namespace) = (Clock::system(), shoot::control_plane());
    loop {
        if let Some(server) = site.server(&namespace) {
            return run("shoot", server.cluster.store(), screen, stop);
        }
        if stop.wait(&clock, Duration::from_millis(20)) {
            return;
        }
    }
}

fn run(place: &'static str, store: &Store, screen: &Screen, stop: &Stop) {
    let mut reader = Reader {
        place,
        definitions: 0,
        beats: 0,
        conditions: BTreeMap::new(),
        plane: control_plane::Teller::default(),
    };
    let (mut seen, mut quiet) = (store.read().revision, 0);
    loop {
        let stopped = stop.is_stopped();
        let changes: Vec<Change> = store.read().since(seen).cloned().collect();
        for change in &changes {
            seen = seen.max(change.revision);
            for line in reader.lines(change) {
                screen.say(place, &line);
            }
        }
        if stopped {
            return;
        }
        // Definitions are counted, and the number is printed when no more come for a moment.
        quiet = if changes.iter().any(is_definition) { 0 } else { quiet + 1 };
        if quiet > 5
            && let Some(line) = reader.counted()
        {
            screen.say(place, &line);
        }
        if changes.is_empty() {
            store.wait_after(seen, Duration::from_millis(20));
        }
    }
}

/// A definition that the agent creates.
fn is_definition(change: &Change) -> bool {
    change.id.plural == "customresourcedefinitions" && !change.id.name.ends_with("example.org")
}

struct Reader {
    place: &'static str,
    /// The number of definitions that are not printed yet.
    definitions: usize,
    /// The number of heartbeats that were printed: the first ones are enough.
    beats: u32,
    /// What was printed last of each condition.
    conditions: BTreeMap<String, String>,
    plane: control_plane::Teller,
}

impl Reader {
    fn counted(&mut self) -> Option<String> {
        let n = std::mem::take(&mut self.definitions);
        (n > 0).then(|| format!("has {n} new CustomResourceDefinitions"))
    }

    fn lines(&mut self, change: &Change) -> Vec<String> {
        let object = &change.after;
        let (kind, name) = (text(object, "/kind").to_owned(), change.id.name.as_str());
        let full = if change.id.namespace.is_empty() {
            name.to_owned()
        } else {
            format!("{}/{name}", change.id.namespace)
        };
        if is_definition(change) {
            self.definitions += usize::from(change.before.is_none());
            return Vec::new();
        }
        if control_plane::holds(change) {
            return self.plane.lines(change);
        }
        if is_dull(change) {
            return self.beat(change).into_iter().collect();
        }
        let mut lines = Vec::new();
        let verb = match (change.before.is_none(), change.deleted) {
            (_, true) => Some("is gone"),
            (true, _) => Some("is created"),
            _ if object["metadata"]["deletionTimestamp"].is_string()
                && change
                    .before
                    .as_ref()
                    .is_some_and(|b| !b["metadata"]["deletionTimestamp"].is_string()) =>
            {
                Some("is being deleted")
            }
            _ => None,
        };
        if let Some(verb) = verb {
            lines.push(format!("{kind} {full} {verb}{}", details(change)));
        }
        lines.extend(changed(change, &kind, &full));
        if !change.deleted {
            lines.extend(self.condition_lines(change, &kind, &full));
        }
        lines
    }

    /// A renewal of the seed's lease.
    fn beat(&mut self, change: &Change) -> Option<String> {
        let is_beat = change.id.namespace == "gardener-system-seed-lease" && change.id.plural == "leases";
        if !is_beat || self.beats >= BEATS {
            return None;
        }
        self.beats += 1;
        let end = if self.beats == BEATS { "; so it goes on" } else { "" };
        Some(format!("Lease {}/{} is renewed{end}", change.id.namespace, change.id.name))
    }

    /// Conditions that have changed.
    fn condition_lines(&mut self, change: &Change, kind: &str, full: &str) -> Vec<String> {
        if !matches!(
            kind,
            "Seed"
                | "ControllerInstallation"
                | "ManagedResource"
                | "CertificateSigningRequest"
                | "Deployment"
        ) {
            return Vec::new();
        }
        let mut lines = Vec::new();
        for condition in list(&change.after, "/status/conditions") {
            let (name, status) = (text(condition, "/type"), text(condition, "/status"));
            let key = format!("{} {kind} {full} {name}", self.place);
            let says = format!("{status} {}", text(condition, "/reason"));
            if self.conditions.insert(key, says.clone()).as_ref() != Some(&says) {
                lines.push(format!("{kind} {full}: {name}={status} ({})", text(condition, "/reason")));
            }
        }
        lines
    }
}

/// Whether a change is not interesting.
fn is_dull(change: &Change) -> bool {
    let name = change.id.name.as_str();
    match change.id.plural.as_str() {
        "configmaps" => name == "kube-root-ca.crt",
        "serviceaccounts" => name == "default",
        "leases" => {
            let holder = |object: Option<&Value>| object.map(|o| text(o, "/spec/holderIdentity").to_owned());
            change.before.is_some() && holder(change.before.as_deref()) == holder(Some(&change.after))
        }
        "controllerdeployments" => false,
        plural => matches!(plural, "events" | "clusterroles" | "clusterrolebindings") && name != "echo",
    }
}

/// Details of a new object.
fn details(change: &Change) -> String {
    let object = &change.after;
    if change.deleted {
        return String::new();
    }
    match change.id.plural.as_str() {
        "certificatesigningrequests" => format!(" by {}", text(object, "/spec/username")),
        "leases" => match text(object, "/spec/holderIdentity") {
            "" => String::new(),
            holder => format!(", held by {}", short(holder)),
        },
        "controllerinstallations" => format!(" for seed {}", text(object, "/spec/seedRef/name")),
        "managedresources" => format!(" with secret {}", text(object, "/spec/secretRefs/0/name")),
        _ => String::new(),
    }
}

/// Changes other than conditions.
fn changed(change: &Change, kind: &str, full: &str) -> Option<String> {
    let (before, after) = (change.before.as_ref()?, &change.after);
    let new = |pointer: &str| {
        (text(before, pointer) != text(after, pointer)).then(|| text(after, pointer).to_owned())
    };
    if change.deleted {
        return None;
    }
    match change.id.plural.as_str() {
        "certificatesigningrequests" => {
            new("/status/certificate").map(|_| format!("{kind} {full} has its certificate"))
        }
        "seeds" => new("/status/lastOperation/state")
            .map(|state| format!("{kind} {full}: {} {state}", text(after, "/status/lastOperation/type"))),
        "shoots" => {
            let operation = shoot::operation(after);
            (shoot::operation(before) != operation).then(|| format!("{kind} {full}: {operation}"))
        }
        "leases" => new("/spec/holderIdentity").map(|holder| match holder.as_str() {
            "" => format!("{kind} {full} is released"),
            holder => format!("{kind} {full} is held by {}", short(holder)),
        }),
        "managedresources" => {
            new("/spec/secretRefs/0/name").map(|name| format!("{kind} {full} has secret {name}"))
        }
        "controllerinstallations" => new("/spec/deploymentRef/resourceVersion")
            .map(|version| format!("{kind} {full} follows version {version} of its deployment")),
        "controllerdeployments" => Some(format!("{kind} {full} has values {}", after["helm"]["values"])),
        "configmaps" | "echoes" => {
            let content = |object: &Value| object["data"].clone() == Value::Null;
            let part = if content(after) { "spec" } else { "data" };
            (before[part] != after[part]).then(|| format!("{kind} {full} says {}", after[part]))
        }
        "deployments" => (before["spec"] != after["spec"]).then(|| format!("{kind} {full} rolls out")),
        "secrets" => (before["data"] != after["data"]).then(|| format!("{kind} {full} has new content")),
        _ => None,
    }
}

/// A holder with the first digits of its id.
fn short(holder: &str) -> String {
    holder.chars().take(24).collect()
}
