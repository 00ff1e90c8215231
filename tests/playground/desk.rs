//! The files of a playground: kubeconfigs, the agent's configuration, and what a person applies. With them `kubectl` and the
//! commands of the program work while the playground runs.

use std::fs::DirBuilder;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};

use gardenlet::format::yaml;
use serde_json::{Value, json};

use crate::shoot;
use support::garden::prepare;

/// The default ports of an agent for probes and metrics.
const PORTS: [u16; 2] = [2728, 2729];

/// Under this name, the playground's program is the agent.
pub const PROGRAM: &str = "gardenlet";

/// A folder with files.
pub struct Desk {
    folder: PathBuf,
    is_ours: bool,
    /// The agent's configuration, YAML.
    pub configuration: String,
    /// The port of the agent's probes.
    pub probes: u16,
}

impl Desk {
    /// In a temporary folder of this process, which is removed with the value.
    pub fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("gardenlet-playground-{}", std::process::id()));
        // It holds keys of administrators.
        DirBuilder::new().mode(0o700).recursive(true).create(&folder).unwrap();
        Self { folder, is_ours: true, configuration: String::new(), probes: 0 }
    }

    /// In a given folder, which is made if it is missing, and stays.
    ///
    /// # Errors
    /// The folder cannot be made or used.
    pub fn at(folder: &Path) -> io::Result<Self> {
        DirBuilder::new().mode(0o700).recursive(true).create(folder)?;
        let folder = std::fs::canonicalize(folder)?;
        Ok(Self { folder, is_ours: false, configuration: String::new(), probes: 0 })
    }

    /// Writes a link to this program, which is the agent under the name `gardenlet`: nothing has to be compiled for its commands.
    ///
    /// # Errors
    /// The folder has something else under this name, or is not writable.
    pub fn link_program(&self) -> io::Result<()> {
        let link = self.folder.join(PROGRAM);
        if link.is_symlink() {
            std::fs::remove_file(&link)?;
        }
        symlink(std::env::current_exe()?, link)
    }

    pub fn path(&self) -> &Path {
        &self.folder
    }

    pub fn write(&self, name: &str, content: &str) {
        std::fs::write(self.folder.join(name), content).unwrap();
    }

    pub fn write_yaml(&self, name: &str, content: &Value) {
        self.write(name, &to_yaml(content));
    }

    /// Writes the configuration of an agent that reaches its seed with a kubeconfig of this folder, as `gardenlet.yaml`.
    pub fn configure(&mut self, seed: &str, edge: &Value) {
        let [probes, metrics] = free_ports();
        let mut config = prepare::configuration(seed);
        config["seedClientConnection"] = json!({"kubeconfig": self.folder.join("seed.kubeconfig")});
        config["server"] = json!({"healthProbes": {"bindAddress": "127.0.0.1", "port": probes},
            "metrics": {"bindAddress": "127.0.0.1", "port": metrics}});
        // The default is a minute, which is too long for a demonstration.
        config["controllers"] = json!({"shootCare": {"syncPeriod": "5s"}});
        config["edge"] = edge.clone();
        config["edge"]["stateDir"] = json!(self.folder.join("state"));
        shoot::configure(&mut config);
        self.configuration = to_yaml(&config);
        self.probes = probes;
        self.write("gardenlet.yaml", &self.configuration);
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if self.is_ours {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

fn to_yaml(value: &Value) -> String {
    yaml::emit(value, yaml::Dialect::V4)
}

/// The ports that agents have by default, or free ones if another program uses them.
fn free_ports() -> [u16; 2] {
    let listen = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
    let found = PORTS.map(|wanted| listen(wanted).or_else(|_| listen(0)).unwrap());
    [port(&found[0]), port(&found[1])]
}
