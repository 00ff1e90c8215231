//! Charts out of OCI registries: from a reference to verified bytes.
//!
//! What upstream does (`pkg/utils/oci` of Gardener v1.150 with go-containerregistry) and more: sources beside the registry
//! itself, a cache on disk, downloads that go on where they broke off. A tag is asked for anew each time; content that has
//! a digest comes from the cache if it is there, without any network.

pub mod bundle;
mod cache;
mod challenge;
mod digest;
mod error;
mod file;
mod layout;
mod login;
mod manifest;
mod puller;
mod reference;
mod session;
mod source;
#[cfg(test)]
mod testing;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use crate::base::stop::Stop;
use crate::config::settings::Registry;
use crate::limits;
use crate::net;

use manifest::Blob;
use wire::{Running, Wire};

pub use cache::{Cache, Content};
pub use digest::Digest;
pub use error::{Error, Verdict};
pub use login::Keychain;
pub use manifest::Problem;
pub use puller::{Pulled, Puller};
pub use reference::{Reference, Target};
pub use wire::{Network, SILENCE};

/// What is to be pulled, and with what.
#[derive(Debug)]
pub struct Order {
    /// Which artifact.
    pub reference: Reference,
    /// Logins.
    pub keychain: Keychain,
    /// PEM of the only CAs that are believed, if any.
    pub ca_bundle: Option<Arc<[u8]>>,
}

/// Asks a registry, or a mirror by its URL, whether it is there: its address and the status of `/v2/`. Without
/// credentials, but with the CA and the client certificate of `registries`, and the CAs of an order that is for it.
///
/// # Errors
/// [`Error::Net`] if it does not answer, [`Error::Reference`] if it is no address.
pub fn probe<'a>(
    network: &Network,
    registries: &[Registry],
    place: &str,
    orders: impl IntoIterator<Item = &'a Order>,
) -> Result<(String, u16), Error> {
    let url = source::base(place, registries).ok_or(Error::Reference("no host and no URL"))?;
    let is_for_it =
        |order: &&Order| source::base(&order.reference.registry, registries).as_ref() == Some(&url);
    let bundle = orders.into_iter().find(is_for_it).and_then(|order| order.ca_bundle.clone());
    let base = format!("{}://{}", url.scheme, url.authority());
    let host = source::host_key(&url);
    let mut wire = Wire::new(network, registries, Running::until(&Stop::new()), host.clone(), bundle);
    let target = format!("{base}/v2/");
    let request = net::Request::get(&target);
    let limits = wire.limits(Duration::from_secs(15));
    let sent = wire.http(&url)?.send(&request, &limits);
    sent.map(|response| (base, response.status)).map_err(|source| Error::Net { host, source })
}

fn check_size(blob: Blob) -> Result<(), Error> {
    let bytes_max = u64::try_from(limits::CHART_ARCHIVE_BYTES_MAX).unwrap_or(u64::MAX);
    if blob.bytes > bytes_max { Err(Error::Large { what: "chart", bytes_max }) } else { Ok(()) }
}
