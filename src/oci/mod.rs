//! Charts from OCI registries: from a reference to verified bytes.
//!
//! Follows upstream (`pkg/utils/oci` of Gardener v1.150 with go-containerregistry), and adds sources besides the
//! registry itself, a cache on disk, and downloads that resume after an interruption. A tag is resolved again each
//! time; content with a digest comes from the cache if it is there, without any network.

pub(crate) mod bundle;
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
use wire::{RunningPools, Wire};

pub use cache::Cache;
pub(crate) use cache::VerifiedContent;
pub use digest::Digest;
pub use error::{Error, PullVerdict};
pub use login::Keychain;
pub(crate) use puller::PulledChart;
pub use puller::Puller;
pub use reference::ArtifactReference;
pub use wire::{RegistryNetwork, SILENCE};

/// A chart to pull, and the credentials for it.
#[derive(Debug)]
pub struct PullOrder {
    /// The artifact.
    pub reference: ArtifactReference,
    /// Logins.
    pub keychain: Keychain,
    /// PEM of the only trusted CAs, if any.
    pub ca_bundle: Option<Arc<[u8]>>,
}

/// Requests `/v2/` of a registry, or of a mirror by its URL, and returns its address and the status. The
/// request has no credentials, but uses the CA and the client certificate of `registries`, and the CAs of
/// an order for that host. Errors: [`Error::Net`] if it does not answer, [`Error::Reference`] if the place
/// is not an address.
pub(crate) fn probe<'a>(
    network: &RegistryNetwork,
    registries: &[Registry],
    place: &str,
    orders: impl IntoIterator<Item = &'a PullOrder>,
) -> Result<(String, u16), Error> {
    let url = source::base(place, registries).ok_or(Error::Reference("no host and no URL"))?;
    let is_for_it =
        |order: &&PullOrder| source::base(&order.reference.registry, registries).as_ref() == Some(&url);
    let bundle = orders.into_iter().find(is_for_it).and_then(|order| order.ca_bundle.clone());
    let base = format!("{}://{}", url.scheme, url.authority());
    let host = source::host_key(&url);
    let mut wire = Wire::new(network, registries, RunningPools::until(&Stop::new()), host.clone(), bundle);
    let target = format!("{base}/v2/");
    let request = net::HttpRequest::get(&target);
    let limits = wire.limits(Duration::from_secs(15));
    let sent = wire.http(&url)?.send(&request, &limits);
    sent.map(|response| (base, response.status)).map_err(|source| Error::Net { host, source })
}

fn check_size(blob: Blob) -> Result<(), Error> {
    let bytes_max = u64::try_from(limits::CHART_ARCHIVE_BYTES_MAX).unwrap_or(u64::MAX);
    if blob.bytes > bytes_max { Err(Error::Large { what: "chart", bytes_max }) } else { Ok(()) }
}
