//! A real registry with the images of hosts, without TLS and users. Hosts find it as the mirror of the registries that images
//! are named after: an agent of a node always pulls.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::cluster::write;
use crate::failure::{Doing, Failure, Result};
use crate::image::{self, Image};
use crate::lab::Lab;
use crate::process::Process;
use crate::registry;
use crate::sandbox::ADDRESS;

/// Not used otherwise in the sandbox.
const PORT: u16 = 15_001;
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// A running registry, ended when dropped.
pub(crate) struct Mirror {
    _process: Process,
    /// The folder of its files, in the layout of its program: to write them is faster than to push.
    files: PathBuf,
}

/// The names of an image in a registry: `example.org/some/path:tag`.
struct Reference<'a> {
    host: &'a str,
    path: &'a str,
    tag: &'a str,
}

impl Mirror {
    /// Starts one without images.
    pub(crate) fn start(lab: &Lab) -> Result<Self> {
        let folder = lab.place.join("mirror");
        let data = folder.join("data");
        let files = data.join("docker/registry/v2");
        fs::create_dir_all(&files).doing(|| format!("create {}", files.display()))?;
        let address = format!("{ADDRESS}:{PORT}");
        let config = json!({
            "version": 0.1,
            // It says something about each request otherwise.
            "log": {"level": "warn", "accesslog": {"disabled": true}},
            "storage": {"filesystem": {"rootdirectory": data}},
            "http": {"addr": address},
        });
        write(&folder.join(registry::CONFIG), &config.to_string())?;
        Ok(Self { _process: registry::serve(lab, "mirror", &folder, &address)?, files })
    }

    /// Its URL, for hosts and for the sandbox.
    pub(crate) fn url(&self) -> String {
        format!("http://{ADDRESS}:{PORT}")
    }

    /// Offers an image, and returns the registry that it is named after.
    pub(crate) fn add(&self, image: &Image<'_>) -> Result<String> {
        let reference = Reference::of(&image.reference)?;
        let layer = image.layer().doing(|| format!("make {}", image.reference))?;
        let layer = Blob::new(LAYER, layer);
        let config = Blob::new(CONFIG, image.config(&layer.digest).into_bytes());
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST,
            "config": config.described(), "layers": [layer.described()]});
        let manifest = Blob::new(MANIFEST, manifest.to_string().into_bytes());
        let repository = self.files.join("repositories").join(reference.path);
        for blob in [&layer, &config, &manifest] {
            let place = format!("blobs/sha256/{}/{}/data", &blob.digest[..2], blob.digest);
            put(&self.files.join(place), &blob.content)?;
        }
        for blob in [&layer, &config] {
            link(&repository.join("_layers/sha256").join(&blob.digest), blob)?;
        }
        let manifests = repository.join("_manifests");
        let tag = manifests.join("tags").join(reference.tag);
        link(&manifests.join("revisions/sha256").join(&manifest.digest), &manifest)?;
        link(&tag.join("index/sha256").join(&manifest.digest), &manifest)?;
        link(&tag.join("current"), &manifest)?;
        Ok(reference.host.to_owned())
    }

    /// A `hosts.toml` for a registry of which this is the mirror. With `server`, an image that is missing here is an error at once;
    /// without, containerd asks the registry itself.
    pub(crate) fn hosts_toml(&self) -> String {
        let url = self.url();
        format!("server = \"{url}\"\n[host.\"{url}\"]\n  capabilities = [\"pull\", \"resolve\"]\n")
    }
}

/// Where a host has the `hosts.toml` of a registry.
pub(crate) fn path_of_hosts_toml(registry: &str) -> String {
    format!("/etc/containerd/certs.d/{registry}/hosts.toml")
}

impl<'a> Reference<'a> {
    fn of(text: &'a str) -> Result<Self> {
        let split = text.split_once('/').and_then(|(host, rest)| Some((host, rest.rsplit_once(':')?)));
        let (host, (path, tag)) = split.ok_or_else(|| Failure::new(format!("no registry or tag: {text}")))?;
        Ok(Self { host, path, tag })
    }
}

/// A file of an image, and its digest in hexadecimal digits.
struct Blob {
    kind: &'static str,
    digest: String,
    content: Vec<u8>,
}

impl Blob {
    fn new(kind: &'static str, content: Vec<u8>) -> Self {
        Self { kind, digest: image::sha256(&content), content }
    }

    fn described(&self) -> serde_json::Value {
        json!({"mediaType": self.kind, "digest": format!("sha256:{}", self.digest), "size": self.content.len()})
    }
}

/// Each use of a blob is a file with its digest.
fn link(folder: &Path, blob: &Blob) -> Result<()> {
    put(&folder.join("link"), format!("sha256:{}", blob.digest).as_bytes())
}

fn put(path: &Path, content: &[u8]) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).doing(|| format!("create {}", folder.display()))?;
    fs::write(path, content).doing(|| format!("write {}", path.display()))
}
