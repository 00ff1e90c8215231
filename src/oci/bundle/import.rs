//! Imports another bundle: only content that its index references, and at most the announced sizes.

use std::io::{self, Read as _};
use std::path::Path;

use super::{Bundle, BundleContents, Error, READ_AGAIN, WRITABLE, blob, blob_path, pack};
use crate::base::capped;
use crate::base::error::chain;
use crate::base::sorted::{SortedMap, SortedSet};
use crate::base::stop::Stop;
use crate::limits;
use crate::oci::cache::{Begun, Cache, VerifiedContent};
use crate::oci::digest::Digest;
use crate::oci::manifest::{self, Blob, Next};
use crate::oci::{Error as Cause, check_size};

impl Bundle {
    /// Imports all charts and images of another bundle: a directory, a `.tar` or a `.tar.gz`. The index is
    /// updated only after every blob matches its digest and all blobs of each chart are present. With
    /// `expected`, the index must have that digest. Errors: what is wrong with either of the two.
    pub(crate) fn import(&self, from: &Path, expected: Option<Digest>) -> Result<BundleContents, Error> {
        let contents = BundleContents::read(from)?;
        let found = contents.digest;
        if let Some(expected) = expected.filter(|expected| *expected != found) {
            let why = format_args!("its digest is {found}, not {expected}");
            return Err(Error::new(from.display(), why, READ_AGAIN));
        }
        let (cache, _lock) = self.open()?;
        let mut plan = ImportPlan::new(from, &contents);
        for _ in 0..=limits::OCI_INDEX_DEPTH_MAX {
            plan.manifests(&cache)?;
        }
        plan.blobs(&cache)?;
        contents.charts.iter().try_for_each(|(name, digest)| self.verify(name, *digest).map(drop))?;
        self.publish(&contents.charts, &contents.images)?;
        Ok(contents)
    }
}

/// The content to import. The manifests must be read first, because they name the rest.
struct ImportPlan<'a> {
    from: &'a Path,
    /// Manifests that are still to be read, each with the chart that needs it.
    manifests: SortedMap<Digest, String>,
    seen: SortedSet<Digest>,
    /// Blobs that manifests name, with their announced sizes.
    blobs: SortedMap<Digest, u64>,
    /// The total of all sizes.
    bytes: u64,
}

impl<'a> ImportPlan<'a> {
    fn new(from: &'a Path, contents: &BundleContents) -> Self {
        let manifests: SortedMap<_, _> =
            contents.charts.iter().map(|(name, digest)| (*digest, name.clone())).collect();
        let seen = manifests.keys().copied().collect();
        Self { from, manifests, seen, blobs: SortedMap::new(), bytes: 0 }
    }

    /// Imports the known manifests, and collects the blobs that they name.
    fn manifests(&mut self, cache: &Cache) -> Result<(), Error> {
        let mut wanted = std::mem::take(&mut self.manifests);
        if wanted.is_empty() {
            return Ok(());
        }
        let (from, paths) = (self.from, wanted.keys().map(blob_path).collect());
        pack::each(from, &paths, &mut |name, file| {
            let Some((digest, chart)) = blob(name).and_then(|digest| wanted.remove_entry(&digest)) else {
                return Ok(());
            };
            let content = file.small(limits::OCI_MANIFEST_BYTES_MAX)?;
            let bytes = u64::try_from(content.len()).unwrap_or(u64::MAX);
            self.count(bytes)?;
            let mut copy = Incoming { from, name, bytes, content: &mut content.as_slice() };
            copy.store(cache, Blob { digest, bytes })?;
            self.learn(&chart, &content)
        })?;
        for (digest, chart) in wanted {
            // An earlier import may have written it.
            let content =
                cache.find(digest).and_then(|found| found.read_all(limits::OCI_MANIFEST_BYTES_MAX).ok());
            let missing = || Error::new(&chart, format_args!("blob {digest} is missing"), READ_AGAIN);
            self.learn(&chart, &content.ok_or_else(missing)?)?;
        }
        Ok(())
    }

    fn learn(&mut self, chart: &str, content: &[u8]) -> Result<(), Error> {
        let bad = |why| Error::new(chart, why, READ_AGAIN);
        match manifest::read(content).map_err(bad)? {
            Next::Manifest(digest) => {
                if self.seen.insert(digest) {
                    self.manifests.insert(digest, chart.to_owned());
                }
            }
            Next::Chart(_) => {
                for part in manifest::parts(content).map_err(bad)? {
                    check_size(part).map_err(|cause| Error::new(chart, chain(&cause), READ_AGAIN))?;
                    if self.blobs.insert(part.digest, part.bytes).is_none() {
                        self.count(part.bytes)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds an announced size to the total.
    fn count(&mut self, bytes: u64) -> Result<(), Error> {
        self.bytes = self.bytes.saturating_add(bytes);
        let files = self.blobs.len().saturating_add(self.seen.len());
        let (files_max, bytes_max) = (limits::BUNDLE_FILES_MAX, limits::BUNDLE_BYTES_MAX);
        if self.bytes > bytes_max || files > files_max {
            let why = format_args!("its charts take more than {bytes_max} bytes or {files_max} files");
            return Err(Error::new(self.from.display(), why, "split it"));
        }
        Ok(())
    }

    fn blobs(&self, cache: &Cache) -> Result<(), Error> {
        let paths = self.blobs.keys().map(blob_path).collect();
        pack::each(self.from, &paths, &mut |name, file| {
            let blob = blob(name).and_then(|digest| Some(Blob { digest, bytes: *self.blobs.get(&digest)? }));
            blob.map_or(Ok(()), |blob| file.store(cache, blob))
        })
    }
}

/// A file of a bundle that is being read.
pub(super) struct Incoming<'a> {
    pub(super) from: &'a Path,
    pub(super) name: &'a str,
    pub(super) bytes: u64,
    pub(super) content: &'a mut dyn io::Read,
}

impl Incoming<'_> {
    pub(super) fn small(&mut self, bytes_max: usize) -> Result<Vec<u8>, Error> {
        let refuse = refusal(self.name, self.from);
        let read = capped::read(self.content, bytes_max).map_err(|error| refuse(&chain(&error)))?;
        read.ok_or_else(|| refuse(&format!("larger than {bytes_max} bytes")))
    }

    /// Writes the file as a blob, unless the blob exists.
    fn store(&mut self, cache: &Cache, blob: Blob) -> Result<(), Error> {
        let (name, refuse) = (self.name, refusal(self.name, self.from));
        if self.bytes != blob.bytes {
            return Err(refuse(&format!("it has {} bytes, and {} are announced", self.bytes, blob.bytes)));
        }
        let failed = |cause: Cause| match cause {
            Cause::Digest { found, .. } => refuse(&format!("its content has digest {found}")),
            cause => Error::new(name, chain(&cause), WRITABLE),
        };
        let mut partial = match cache.begin(blob.digest, &Stop::new()).map_err(failed)? {
            Begun::There(_) => return Ok(()),
            Begun::Fetch(partial) => partial,
        };
        partial.restart().map_err(failed)?;
        // A file may grow while it is read.
        let mut content = self.content.take(blob.bytes);
        let mut buffer = [0; 16 << 10];
        loop {
            let amount = content.read(&mut buffer).map_err(|error| refuse(&chain(&error)))?;
            if amount == 0 {
                break;
            }
            partial.write(&buffer[..amount]).map_err(failed)?;
        }
        match partial.finish().map_err(failed)? {
            VerifiedContent::File(_) => Ok(()),
            VerifiedContent::Bytes(_) => Err(Error::new(name, "it cannot be written", WRITABLE)),
        }
    }
}

pub(super) fn refusal<'a>(name: &'a str, from: &'a Path) -> impl Fn(&str) -> Error + 'a {
    move |why| Error::new(format_args!("{name} in {}", from.display()), why, READ_AGAIN)
}
