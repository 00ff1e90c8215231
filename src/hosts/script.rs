//! The script that its owner runs on a host, so that it joins a pool or leaves it.
//!
//! It begins with what this module knows about the Shoot and the host. Then come the files of folder `script`, which are the same for each
//! host, and the user data of the pool.

use std::fmt::Write as _;

use serde_json::Value;

use crate::api::meta::text;
use crate::base::clock::Timestamp;
use crate::components::archive::packed_text;
use crate::format::quantity::Quantity;
use crate::osc;

use super::user_data::quoted;

/// The parts of each script, in their order.
const PARTS: [&str; 5] = ["base.sh", "checks.sh", "join.sh", "leave.sh", "main.sh"];
/// The end of the user data within the script.
const END: &str = "GARDENLET_USER_DATA";

/// What the scripts of a pool's hosts have in common.
pub(crate) struct ShootFacts {
    /// Namespace and name in the garden.
    pub(crate) shoot: String,
    pub(crate) pool: String,
    /// The URL of the API server.
    pub(crate) server: String,
    /// The CAs of the API server, in PEM.
    pub(crate) ca: String,
    /// The port of the tunnel at the same address, if there is one.
    pub(crate) tunnel: Option<u16>,
    /// The version of the kubelet.
    pub(crate) version: String,
    /// The architecture of the pool's machines.
    pub(crate) architecture: String,
    /// The type of the network of pods.
    pub(crate) network: String,
    /// The ranges of nodes.
    pub(crate) nodes: Vec<String>,
    /// The ranges of pods.
    pub(crate) pods: Vec<String>,
    /// The ranges of Services.
    pub(crate) services: Vec<String>,
    /// The settings of the pool's kubelets.
    pub(crate) kubelet: Value,
    /// The name of the Secret that nodes read.
    pub(crate) key: String,
    /// Registries of images, each with the URL of its mirror, with a space between them.
    pub(crate) registries: Vec<String>,
    /// The user data of the pool.
    pub(crate) user_data: String,
}

/// The host that joins.
pub(crate) struct HostFacts<'a> {
    pub(crate) name: &'a str,
    /// Its address; empty for that of the route to the API server.
    pub(crate) address: &'a str,
    pub(crate) token: &'a str,
    /// When the token expires.
    pub(crate) until: Timestamp,
    /// The uid of the Node whose place it takes; empty if there is none.
    pub(crate) replaces: &'a str,
}

impl ShootFacts {
    /// The script for a host.
    pub(crate) fn script(&self, host: &HostFacts<'_>) -> String {
        let mut script = "#!/bin/sh\n".to_owned();
        for (name, value) in self.variables(host) {
            // A String can always be written to.
            let _ = writeln!(script, "{name}={}", quoted(&value));
        }
        for part in PARTS {
            script.push_str(&stripped(&packed_text(&format!("script/{part}"))));
        }
        let user_data = self
            .user_data
            .replace(osc::TOKEN_PLACEHOLDER, host.token)
            .replace(osc::NAME_PLACEHOLDER, host.name);
        let user_data = user_data.trim_end();
        // As above.
        let _ = write!(script, "provider_part() {{\n  cat <<'{END}'\n{user_data}\n{END}\n}}\nmain \"$@\"\n");
        script
    }

    fn variables(&self, host: &HostFacts<'_>) -> [(&'static str, String); 23] {
        let (address, port) = self.address();
        let ranges = |ranges: &[String]| ranges.join(" ");
        [
            ("PROGRAM_VERSION", env!("CARGO_PKG_VERSION").to_owned()),
            ("SHOOT", self.shoot.clone()),
            ("POOL", self.pool.clone()),
            ("HOST_NAME", host.name.to_owned()),
            ("EXPIRES", host.until.unix().to_string()),
            ("SERVER", self.server.clone()),
            ("SERVER_ADDRESS", address),
            ("SERVER_PORT", port),
            ("TUNNEL_PORT", self.tunnel.map(|port| port.to_string()).unwrap_or_default()),
            ("SERVER_CA", self.ca.clone()),
            ("KUBERNETES_VERSION", self.version.clone()),
            ("NODE_RANGES", ranges(&self.nodes)),
            ("POD_RANGES", ranges(&self.pods)),
            ("SERVICE_RANGES", ranges(&self.services)),
            ("RESERVED_MEMORY", reserved_bytes(&self.kubelet).to_string()),
            ("NODE_ADDRESS", host.address.to_owned()),
            ("REGISTRIES", self.registries.join("\n")),
            ("SWAP_ALLOWED", if accepts_swap(&self.kubelet) { "yes" } else { "" }.to_owned()),
            ("ARCHITECTURE", self.architecture.clone()),
            ("NETWORK", self.network.clone()),
            ("AGENT_VERSION", osc::AGENT_VERSION.to_owned()),
            ("POOL_SECRET", self.key.clone()),
            ("REJOIN", host.replaces.to_owned()),
        ]
    }

    /// Address and port of the API server.
    fn address(&self) -> (String, String) {
        let authority = self.server.trim_start_matches("https://");
        let (address, port) = match authority.rsplit_once(':') {
            Some((address, port)) if !port.contains(']') => (address, port),
            _ => (authority, "443"),
        };
        (address.trim_matches(['[', ']']).to_owned(), port.to_owned())
    }
}

/// A part without comments, indentation and empty lines. Its texts of several lines lose them, too.
fn stripped(part: &str) -> String {
    let lines = part.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The memory that pods cannot have.
fn reserved_bytes(kubelet: &Value) -> i128 {
    // A share of the memory is little on a small host.
    let bytes = |amount: &Value| Quantity::parse(text(amount)).map_or(0, |amount| amount.whole());
    osc::memory_reserved(kubelet).iter().map(bytes).sum()
}

/// Whether the kubelets of a pool start on a host with swap.
fn accepts_swap(kubelet: &Value) -> bool {
    kubelet["failSwapOn"] == false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::json::json;

    fn facts(server: &str) -> ShootFacts {
        ShootFacts {
            shoot: "garden-p/s1".to_owned(),
            pool: "a".to_owned(),
            server: server.to_owned(),
            ca: "-----BEGIN CERTIFICATE-----\n".to_owned(),
            tunnel: Some(30_132),
            version: "1.34.3".to_owned(),
            architecture: "arm64".to_owned(),
            network: "none".to_owned(),
            nodes: Vec::new(),
            pods: vec!["100.96.0.0/11".to_owned()],
            services: vec!["100.64.0.0/13".to_owned(), "fd00::/108".to_owned()],
            kubelet: json!({"kubeReserved": {"memory": "128Mi"}}),
            key: "gardener-node-agent-a".to_owned(),
            registries: vec!["registry.example http://192.0.2.9:5000".to_owned()],
            user_data: "printf %s '<<BOOTSTRAP_TOKEN>>' '<<MACHINE_NAME>>'\n".to_owned(),
        }
    }

    #[test]
    fn it_says_what_the_host_must_know() {
        let host = HostFacts {
            name: "h1",
            address: "",
            token: "abcdef.0123456789abcdef",
            until: Timestamp::from_unix(1_767_225_600),
            replaces: "",
        };
        let script = facts("https://192.0.2.1:30443").script(&host);
        for line in [
            "#!/bin/sh",
            "HOST_NAME='h1'",
            "EXPIRES='1767225600'",
            "SERVER_ADDRESS='192.0.2.1'",
            "SERVER_PORT='30443'",
            "TUNNEL_PORT='30132'",
            "SERVICE_RANGES='100.64.0.0/13 fd00::/108'",
            "RESERVED_MEMORY='239075328'",
            "REGISTRIES='registry.example http://192.0.2.9:5000'",
            "SWAP_ALLOWED=''",
            "ARCHITECTURE='arm64'",
            "NETWORK='none'",
            "printf %s 'abcdef.0123456789abcdef' 'h1'",
            "main \"$@\"",
        ] {
            assert!(script.lines().any(|known| known == line), "{line}");
        }
        assert!(script.len() < 48 << 10, "{} bytes", script.len());
        assert!(!script.contains("<<BOOTSTRAP_TOKEN>>") && !script.contains("<<MACHINE_NAME>>"));
    }

    #[test]
    fn addresses_of_servers() {
        for (server, address, port) in [
            ("https://192.0.2.1:30443", "192.0.2.1", "30443"),
            ("https://192.0.2.1", "192.0.2.1", "443"),
            ("https://[fd00::1]:30443", "fd00::1", "30443"),
            ("https://[fd00::1]", "fd00::1", "443"),
            ("https://api.example.org", "api.example.org", "443"),
        ] {
            assert_eq!(facts(server).address(), (address.to_owned(), port.to_owned()), "{server}");
        }
    }

    #[test]
    fn memory_and_swap_of_a_pool() {
        assert_eq!(reserved_bytes(&json!({})), (1 << 30) + (100 << 20));
        let own = json!({"kubeReserved": {"memory": "64Mi"}, "evictionHard": {"memoryAvailable": "5%"}});
        assert_eq!(reserved_bytes(&own), 64 << 20);
        assert!(!accepts_swap(&json!({})));
        assert!(accepts_swap(&json!({"failSwapOn": false, "memorySwap": {"swapBehavior": "LimitedSwap"}})));
    }
}
