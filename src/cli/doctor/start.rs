//! The checks that the agent makes at its start, and what it needs to run Shoots.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::api::core::{CONFIG_MAP, ConfigMap};
use crate::api::meta::{ALL_NAMESPACES, Key, Resource};
use crate::app::networks::{self, Mismatch};
use crate::app::versions;
use crate::base::error::chain;
use crate::base::state;
use crate::components::exposure;
use crate::components::images::{self, Images};
use crate::config::version::GARDENER;
use crate::format::address::authority;
use crate::format::human;
use crate::kube::{Client, ListParams};
use crate::serve;

use super::super::clusters;
use super::Doctor;
use super::finding::{self, State};

const STORAGE_CLASS: Resource =
    Resource::new("storage.k8s.io", "v1", "StorageClass", "storageclasses", false);

impl Doctor<'_> {
    /// Checks what the agent finds on this host.
    pub(super) fn host_itself(&mut self) {
        let file = clusters::set(self.variable, images::VARIABLE).map(PathBuf::from);
        if let Err(why) = Images::load(file.as_deref()) {
            self.say("", "images", State::Broken, why, "correct this file");
        }
        let is_running = self.state_directory();
        self.ports(is_running);
    }

    /// Returns whether an agent uses the state directory; none if that is unknown.
    fn state_directory(&mut self) -> Option<bool> {
        let systemd = clusters::set(self.variable, "STATE_DIRECTORY").map(PathBuf::from);
        let hop = "state directory";
        let Some(path) = self.settings.edge.state_dir.clone().or(systemd) else {
            let text = "none: a pending certificate request is lost when the process ends";
            self.say("", hop, State::Good, text, "");
            return None;
        };
        let is_running = match File::open(path.join("lock")) {
            Ok(_) => Some(state::is_locked(&path)),
            Err(error) => (error.kind() == ErrorKind::NotFound).then_some(false),
        };
        let (state, text, remedy) = match state::examine(&path) {
            Ok(is_there) => {
                let how = match is_there {
                    false => "will be created",
                    true if is_running == Some(true) => "in use by a running agent",
                    true => "writable",
                };
                let (state, text, remedy) = room(&path).map_or_else(
                    |why| (State::Odd, why, "free space on its file system"),
                    |room| (State::Good, format!("{how}{room}"), ""),
                );
                (state, format!("{}: {text}", path.display()), remedy.to_owned())
            }
            Err(error) => unusable(&path, &error),
        };
        self.say("", hop, state, text, &remedy);
        is_running
    }

    fn ports(&mut self, is_running: Option<bool>) {
        let settings = self.settings;
        // A pod has its ports for itself.
        let is_in_pod = clusters::set(self.variable, "KUBERNETES_SERVICE_HOST").is_some();
        let is_running = if is_in_pod { Some(true) } else { is_running };
        for (hop, at) in [("port of probes", &settings.health_probes), ("port of metrics", &settings.metrics)]
        {
            let taken = serve::listen(&at.bind_address, at.port).err();
            let is_taken = taken.as_ref().is_some_and(|error| error.kind() == ErrorKind::AddrInUse);
            let (state, text, remedy) = match (taken, is_running) {
                (None, _) => (State::Good, String::new(), ""),
                (_, Some(true)) if is_taken => (State::Good, "in use by the running agent".to_owned(), ""),
                (_, None) if is_taken => {
                    (State::Odd, "in use by this agent, or by another program".to_owned(), "")
                }
                (Some(error), _) => (
                    State::Broken,
                    chain(&error),
                    "end the other program, or choose another address or port (server.healthProbes, server.metrics)",
                ),
            };
            let text = if text.is_empty() { String::new() } else { format!(": {text}") };
            self.say("", hop, state, format!("{}{text}", authority(&at.bind_address, at.port)), remedy);
        }
    }

    /// Compares the configuration with the seed.
    pub(super) fn site(&mut self, seed: &Client) {
        let spec = &self.settings.seed_config.spec;
        let (state, text, remedy) = match networks::check(seed, &spec["networks"]) {
            Ok(()) => (State::Good, String::new(), ""),
            Err(Mismatch::Differs(why)) => {
                (State::Broken, why, "write the networks of the seed into seedConfig.spec.networks")
            }
            Err(Mismatch::Kube(_, error)) => (State::Odd, chain(&error), ""),
        };
        self.say("seed", "networks", state, text, remedy);
        let etcd = &self.settings.edge.etcd;
        let wanted = [&etcd.main, &etcd.events].map(|volume| volume.storage_class.as_deref());
        let mut classes = Vec::new();
        let listed =
            seed.list_all::<Value>(&STORAGE_CLASS, ALL_NAMESPACES, &ListParams::default(), &mut |class| {
                classes.push(class);
            });
        match listed {
            Ok(_) => self.found.push(finding::storage(&classes, wanted)),
            Err(error) => self.say("seed", finding::STORAGE, State::Odd, chain(&error), ""),
        }
        let (state, text, remedy) = match exposure::examine(seed, &self.settings.edge.exposure) {
            Ok(Ok(host)) => (State::Good, host, ""),
            Ok(Err(why)) => (State::Odd, why, exposure::ADDRESS_REMEDY),
            Err(error) => (State::Odd, chain(&error), ""),
        };
        self.say("seed", "exposure", state, text, remedy);
    }

    /// The version of Kubernetes in a cluster.
    pub(super) fn kubernetes(&mut self, cluster: &str, version: &str) {
        let is_off = clusters::set(self.variable, versions::SWITCH).as_deref() == Some("true");
        let (state, text, remedy) = match versions::check_kubernetes(cluster, version) {
            Err(why) if !is_off => (State::Broken, why, "use a supported version of Kubernetes"),
            _ => (State::Good, version.to_owned(), ""),
        };
        self.say(cluster, "Kubernetes", state, text, remedy);
    }

    /// Compares the garden's version with ours. False if they do not fit.
    pub(super) fn gardener(&mut self, garden: &Client) -> bool {
        let found = garden.get::<ConfigMap>(&CONFIG_MAP, &Key::new(versions::NAMESPACE, versions::INFO));
        let (state, text, remedy) = match found {
            Ok(info) => {
                let theirs = versions::gardener(&info);
                match versions::check_skew(GARDENER, &theirs) {
                    Ok(()) => (State::Good, theirs, ""),
                    Err(why) => (State::Broken, why, "use versions of garden and agent that fit together"),
                }
            }
            Err(error) => (State::Odd, chain(&error), UNTOLD),
        };
        self.say("garden", "Gardener", state, text, remedy);
        state != State::Broken
    }
}

const UNTOLD: &str = "let every client of the garden read ConfigMap gardener-system-public/gardener-info, as gardener-operator does";

/// With less space, charts are probably not kept. The agent works without any.
const FREE_BYTES_GOOD: u64 = 16 << 20;

/// The free space at a path that may not exist yet, or that there is too little of it.
fn room(path: &Path) -> Result<String, String> {
    let above = path.ancestors().find(|above| above.exists()).unwrap_or(path);
    // A file system that does not tell is no reason to complain.
    let Ok(found) = rustix::fs::statvfs(above) else { return Ok(String::new()) };
    let bytes = found.f_bavail.saturating_mul(found.f_frsize);
    let files = (found.f_files > 0).then_some(found.f_favail);
    judge(bytes, files)
}

fn judge(free_bytes: u64, free_files: Option<u64>) -> Result<String, String> {
    let text = format!("{} free", human::bytes(free_bytes));
    match free_bytes {
        _ if free_files == Some(0) => Err("no file can be created there".to_owned()),
        0..FREE_BYTES_GOOD => Err(format!("only {text}")),
        _ => Ok(format!(", {text}")),
    }
}

/// The agent starts with a directory that it cannot write, but not with a wrong path.
fn unusable(path: &Path, error: &state::Error) -> (State, String, String) {
    let (state, remedy) = match error.is_of_disk(path) {
        true => (State::Odd, error.remedy()),
        false => {
            let remedy = "make it a directory that the agent's user can write to (edge.stateDir)";
            (State::Broken, remedy.to_owned())
        }
    };
    (state, chain(error), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_space_is_odd() {
        let table = [
            (0, None, true),
            (FREE_BYTES_GOOD - 1, Some(9), true),
            (FREE_BYTES_GOOD, Some(9), false),
            (FREE_BYTES_GOOD, None, false),
            (u64::MAX, Some(0), true),
        ];
        for (bytes, files, expected) in table {
            assert_eq!(judge(bytes, files).is_err(), expected, "{bytes} {files:?}");
        }
    }

    /// `StateDir::open` judges in the same way.
    #[test]
    fn a_directory_that_cannot_be_written_is_odd_and_a_wrong_path_is_broken() {
        use rustix::io::Errno;
        let (there, missing) = (Path::new("/"), Path::new("/nonexistent/state"));
        let table = [
            (there, Errno::ROFS, State::Odd, "stops: repair or replace the disk"),
            (missing, Errno::ROFS, State::Odd, "stops: repair or replace the disk"),
            (missing, Errno::IO, State::Odd, "stops: repair or replace the disk"),
            (missing, Errno::NOSPC, State::Odd, "stops: free space on its file system"),
            (there, Errno::ACCESS, State::Odd, "stops: let the agent's user write there"),
            (missing, Errno::ACCESS, State::Broken, "(edge.stateDir)"),
            (missing, Errno::NOTDIR, State::Broken, "(edge.stateDir)"),
        ];
        for (path, errno, expected, end) in table {
            let error =
                state::Error::Io { operation: "write to", path: path.to_owned(), source: errno.into() };
            let (state, text, remedy) = unusable(path, &error);
            assert_eq!((state, remedy.ends_with(end)), (expected, true), "{errno:?}: {remedy}");
            assert!(text.starts_with(&format!("write to {}: ", path.display())), "{text}");
        }
        let file = Path::new("Cargo.toml");
        let error = state::examine(file).unwrap_err();
        assert_eq!(unusable(file, &error).0, State::Broken);
        assert!(state::examine(&std::env::temp_dir()).unwrap());
        assert!(!state::examine(&std::env::temp_dir().join("nonexistent/state")).unwrap());
    }
}
