//! Charts for sites without a registry: an OCI image layout in a directory, with a list of the images that the charts
//! name (`images.txt`). An agent reads it as `layoutDir`.
//!
//! Blobs are written first, each under its digest after verification. `index.json`, which references them, is written
//! last. So an interruption leaves the existing charts intact, and the next run continues. Existing blobs are not
//! written again.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::cache::Cache;
use super::digest::Digest;
use super::layout::{Layout, REF_NAME};
use super::manifest::{self, Next};
use super::{Error as Cause, file};
use crate::base::capped;
use crate::base::error::chain;
use crate::base::json::json;
use crate::base::sorted::{SortedMap, SortedSet};
use crate::format::view;
use crate::limits;

mod import;
mod pack;

pub(crate) use pack::{BundleForm, beside, pack};

const INDEX: &str = "index.json";
const IMAGES: &str = "images.txt";
const LAYOUT: (&str, &[u8]) = ("oci-layout", b"{\"imageLayoutVersion\":\"1.0.0\"}");
const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

const READ_AGAIN: &str = "get the bundle again: it is damaged or was changed";
const WRITABLE: &str = "name a writable directory with enough free space";
const NO_BUNDLE: &str = "name a bundle that `gardenlet bundle export` wrote, or another OCI image layout";

/// What is wrong with a bundle, where, and the remedy.
#[derive(Debug)]
pub(crate) struct Error {
    place: String,
    why: String,
    remedy: &'static str,
}

impl Error {
    fn new(place: impl fmt::Display, why: impl fmt::Display, remedy: &'static str) -> Self {
        Self { place: place.to_string(), why: why.to_string(), remedy }
    }

    fn at<E: std::error::Error + 'static>(path: &Path, remedy: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::new(path.display(), chain(&error), remedy)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.place, self.why, self.remedy)
    }
}

impl std::error::Error for Error {}

/// References and their digests, each once.
pub(crate) type BundleCharts = Vec<(String, Digest)>;
/// References of container images.
pub(crate) type BundleImages = SortedSet<String>;
/// Blobs and their sizes.
pub(crate) type BundleBlobs = SortedMap<Digest, u64>;

/// A bundle in a directory.
#[derive(Debug)]
pub(crate) struct Bundle {
    directory: PathBuf,
}

impl Bundle {
    /// The bundle in this directory, which need not exist.
    pub(crate) const fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Creates the directory, and locks it against other writers until the lock is dropped. Errors: if it
    /// cannot be created, or another program writes to it.
    pub(crate) fn open(&self) -> Result<(Cache, File), Error> {
        let folder = self.directory.join("blobs").join("sha256");
        file::make_folders(&folder, 2).map_err(Error::at(&folder, WRITABLE))?;
        let lock = File::open(&self.directory).map_err(Error::at(&self.directory, WRITABLE))?;
        let busy = "wait until the other program has ended, or name another directory";
        lock.try_lock().map_err(Error::at(&self.directory, busy))?;
        Ok((Cache::of_blobs(folder), lock))
    }

    fn images(&self) -> Result<BundleImages, Error> {
        let path = self.directory.join(IMAGES);
        let text = read(&path, limits::BUNDLE_IMAGES_BYTES_MAX).map_err(Error::at(&path, READ_AGAIN))?;
        Ok(text.map(|text| images(&text)).unwrap_or_default())
    }

    /// All blobs of a chart, each verified against its digest. Errors: the first blob that
    /// is missing or wrong.
    pub(crate) fn verify(&self, reference: &str, digest: Digest) -> Result<BundleBlobs, Error> {
        let missing = |blob: Digest, cause: Cause| match cause {
            Cause::NotInLayout => Error::new(reference, format_args!("blob {blob} is missing"), READ_AGAIN),
            cause => Error::new(reference, chain(&cause), READ_AGAIN),
        };
        let (layout, mut found, mut next) = (Layout::at(&self.directory), BundleBlobs::new(), digest);
        for _ in 0..=limits::OCI_INDEX_DEPTH_MAX {
            let content = layout.manifest(next).map_err(|cause| missing(next, cause))?;
            found.insert(next, u64::try_from(content.len()).unwrap_or(u64::MAX));
            match manifest::read(&content).map_err(|why| Error::new(reference, why, READ_AGAIN))? {
                Next::Manifest(digest) => next = digest,
                Next::Chart(_) => {
                    let parts = manifest::parts(&content);
                    for part in parts.map_err(|why| Error::new(reference, why, READ_AGAIN))? {
                        layout.chart(part).map_err(|cause| missing(part.digest, cause))?;
                        found.insert(part.digest, part.bytes);
                    }
                    return Ok(found);
                }
            }
        }
        Err(Error::new(reference, manifest::ArtifactProblem::DeepIndex, READ_AGAIN))
    }

    /// Adds charts, whose blobs must exist, to the index. A chart with the same reference is
    /// replaced. Returns the digest of the index, which identifies the whole bundle. Errors: if a
    /// file cannot be written.
    pub(crate) fn publish(&self, charts: &BundleCharts, images: &BundleImages) -> Result<Digest, Error> {
        let path = self.directory.join(INDEX);
        let present = read(&path, limits::OCI_MANIFEST_BYTES_MAX).map_err(Error::at(&path, WRITABLE))?;
        let present = present.map(|index| entries(&path, &index)).transpose()?.unwrap_or_default();
        let mut all = Map::new();
        for entry in present {
            all.insert(name(&entry).to_owned(), entry);
        }
        let layout = Layout::at(&self.directory);
        for (reference, digest) in charts {
            let content = layout.manifest(*digest);
            let content = content.map_err(|cause| Error::new(reference, chain(&cause), READ_AGAIN))?;
            all.insert(reference.clone(), entry(reference, *digest, &content));
        }
        let entries: Vec<Value> = all.into_iter().map(|(_, entry)| entry).collect();
        let index = json!({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": entries}).to_string();
        let mut known = self.images()?;
        known.extend(images.iter().cloned());
        let lines: String = known.iter().map(|image| format!("{image}\n")).collect();
        self.write(LAYOUT.0, LAYOUT.1)?;
        self.write(IMAGES, lines.as_bytes())?;
        self.write(INDEX, index.as_bytes())?;
        Ok(Digest::of(index.as_bytes()))
    }

    /// Removes the index; the blobs stay.
    pub(crate) fn forget(&self) {
        for name in [INDEX, IMAGES] {
            let _ = fs::remove_file(self.directory.join(name));
        }
    }

    /// Writes atomically; skips a file whose content is the same.
    fn write(&self, name: &str, content: &[u8]) -> Result<(), Error> {
        let path = self.directory.join(name);
        if read(&path, content.len()).is_ok_and(|present| present.as_deref() == Some(content)) {
            return Ok(());
        }
        replace(&path, &mut |file| file.write_all(content))
    }
}

/// The index of a bundle in any form.
#[derive(Debug)]
pub(crate) struct BundleContents {
    pub(crate) charts: BundleCharts,
    /// The images that they name.
    pub(crate) images: BundleImages,
    /// The digest of the index, which identifies the whole bundle.
    pub(crate) digest: Digest,
}

impl BundleContents {
    /// Reads the index of a directory, a `.tar` or a `.tar.gz`, but no blob. Errors: if it cannot be read, or
    /// is not an OCI image layout.
    pub(crate) fn read(from: &Path) -> Result<Self, Error> {
        let (mut index, mut listed) = (None, BundleImages::new());
        let names = [INDEX, IMAGES].map(str::to_owned).into();
        pack::each(from, &names, &mut |name, file| {
            match name {
                INDEX => index = Some(file.small(limits::OCI_MANIFEST_BYTES_MAX)?),
                IMAGES => listed = images(&file.small(limits::BUNDLE_IMAGES_BYTES_MAX)?),
                _ => {}
            }
            Ok(())
        })?;
        let index = index.ok_or_else(|| Error::new(from.display(), "it has no index.json", NO_BUNDLE))?;
        Ok(Self { charts: charts(from, &index)?, images: listed, digest: Digest::of(&index) })
    }
}

/// Reads a whole file of the bundle's directory, if it exists.
fn read(path: &Path, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
    match file::open_own(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => match capped::read(&mut other?, bytes_max)? {
            None => {
                Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {bytes_max} bytes")))
            }
            content => Ok(content),
        },
    }
}

/// Writes a temporary file, syncs it, and renames it over the old one: atomic.
fn replace(path: &Path, fill: &mut dyn FnMut(&mut File) -> io::Result<()>) -> Result<(), Error> {
    let new = beside(path, ".new");
    let written = file::make(&new, 0o644).and_then(|mut file| {
        fill(&mut file)?;
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&new, path)).map_err(Error::at(path, WRITABLE))
}

fn blob_path(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// The digest in the path of a blob.
fn blob(name: &str) -> Option<Digest> {
    Digest::from_hex(name.strip_prefix("blobs/sha256/")?)
}

fn images(text: &[u8]) -> BundleImages {
    let text = String::from_utf8_lossy(text);
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn entries(path: &Path, index: &[u8]) -> Result<Vec<Value>, Error> {
    let bad = || Error::new(path.display(), "it is not the index of an OCI image layout", NO_BUNDLE);
    let mut index = view::json(index).map_err(|_| bad())?;
    match index.get_mut("manifests").map(Value::take) {
        Some(Value::Array(entries)) if entries.len() <= limits::BUNDLE_CHARTS_MAX => Ok(entries),
        Some(Value::Array(_)) => {
            let max = limits::BUNDLE_CHARTS_MAX;
            Err(Error::new(path.display(), format_args!("more than {max} charts"), "split it"))
        }
        _ => Err(bad()),
    }
}

/// An entry without a name is listed by its digest.
fn name(entry: &Value) -> &str {
    let name = entry["annotations"][REF_NAME].as_str().filter(|name| !name.is_empty());
    name.or(entry["digest"].as_str()).unwrap_or_default()
}

fn entry(reference: &str, digest: Digest, content: &[u8]) -> Value {
    let is_index = view::json(content).is_ok_and(|content| content["manifests"].is_array());
    let kind = if is_index { INDEX_TYPE } else { MANIFEST_TYPE };
    json!({"mediaType": kind, "digest": digest.to_string(), "size": content.len(), "annotations": {REF_NAME: reference}})
}

fn charts(path: &Path, index: &[u8]) -> Result<BundleCharts, Error> {
    let mut all = BundleCharts::new();
    for entry in entries(path, index)? {
        let digest = entry["digest"].as_str().and_then(Digest::parse);
        let digest =
            digest.ok_or_else(|| Error::new(path.display(), "an entry has no digest", READ_AGAIN))?;
        let name = name(&entry);
        all.retain(|(known, _)| known != name);
        all.push((name.to_owned(), digest));
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
