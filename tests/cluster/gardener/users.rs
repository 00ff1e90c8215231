//! Users of a garden besides its administrator. The garden may also be a stand-in behind a real API server.

use std::fs;
use std::path::Path;

use gardenlet::kube::{Client, Options, kubeconfig};
use serde_json::json;

use crate::cluster::Cluster;
use crate::failure::{Doing, Result};

/// The group of all agents.
const SEEDS: &str = "gardener.cloud:system:seeds";

/// Writes a kubeconfig of the agent of a seed.
pub(crate) fn write_agent(garden: &Cluster, seed: &str, path: &Path) -> Result<()> {
    garden.write_kubeconfig(path, &format!("gardener.cloud:system:seed:{seed}"), Some(SEEDS))
}

/// Writes a kubeconfig of an extension on a seed, whose namespace must exist. The account is created, as the agent of
/// the seed does it. Its name begins with `extension-`.
pub(crate) fn write_extension(garden: &Cluster, (seed, account): (&str, &str), path: &Path) -> Result<()> {
    let namespace = format!("seed-{seed}");
    garden.apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": account, "namespace": namespace}}))?;
    let token = garden.kubectl(&["create", "token", account, "--namespace", &namespace, "--duration=24h"])?;
    garden.write_kubeconfig_with(path, &json!({"token": token.trim()}))
}

/// A client with a kubeconfig.
pub(crate) fn client(path: &Path) -> Result<Client> {
    let doing = || format!("client with {}", path.display());
    let text = fs::read_to_string(path).doing(doing)?;
    let connection = kubeconfig::parse(&text, Path::new("/")).and_then(|parsed| parsed.current());
    Client::new(connection.doing(doing)?, Options::default()).doing(doing)
}
