//! The owner of a Shoot, with the credentials that the garden issues.

use std::path::Path;

use gardenlet::api::core::NAMESPACE;
use gardenlet::api::gardener::SHOOT;
use gardenlet::api::meta::Key;
use gardenlet::kube::{self, Client, Connection, Error};
use serde_json::{Value, json};

use crate::TestCluster;
use crate::encoding::from_base64;
use crate::json::text;

/// What an owner sends to the garden to get a kubeconfig for a day.
pub fn request() -> Value {
    json!({"apiVersion": "authentication.gardener.cloud/v1alpha1", "kind": "AdminKubeconfigRequest",
        "spec": {"expirationSeconds": 86_400}})
}

/// The kubeconfig that the garden issues.
///
/// # Errors
/// The garden refuses it.
pub fn kubeconfig(garden: &TestCluster, shoot: &Key) -> Result<String, Error> {
    let answer: Value = garden.client().create_sub(&SHOOT, shoot, "adminkubeconfig", &request())?;
    let kubeconfig = from_base64(text(&answer, "/status/kubeconfig")).unwrap_or_default();
    Ok(String::from_utf8_lossy(&kubeconfig).into_owned())
}

/// The connection of a kubeconfig.
pub fn connection(kubeconfig: &str) -> Connection {
    kube::kubeconfig::parse(kubeconfig, Path::new("/")).unwrap().current().unwrap()
}

/// A client with the kubeconfig that the garden issues now.
pub fn client(garden: &TestCluster, shoot: &Key, options: kube::Options) -> Client {
    Client::new(connection(&kubeconfig(garden, shoot).unwrap()), options).unwrap()
}

/// Reads something that only an administrator of the Shoot may read.
///
/// # Errors
/// The request fails.
pub fn get_in(client: &Client) -> Result<Value, Error> {
    client.get(&NAMESPACE, &Key::cluster("kube-system"))
}

/// Waits until a client has its rights: a ManagedResource grants them, and the flow does not wait for it.
pub fn wait_until_admitted(garden: &TestCluster, client: &Client) {
    garden.wait_for("the rights of the owner", |_| get_in(client).ok());
}
