//! A directory with an OCI image layout as a source: `index.json` and `blobs/sha256`, read as other programs wrote
//! them.
//!
//! One directory may serve a whole registry: an artifact is looked up in `<dir>/<repository>` if that is a layout of
//! its own, else in `<dir>`, where `org.opencontainers.image.ref.name` names it by tag, or by repository and tag.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::cache::{VerifiedContent, hash};
use super::digest::Digest;
use super::error::Error;
use super::file;
use super::manifest::Blob;
use super::reference::{ArtifactReference, TagOrDigest};
use crate::format::view;
use crate::limits;

pub(super) const REF_NAME: &str = "org.opencontainers.image.ref.name";

#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Entry {
    digest: String,
    annotations: Option<crate::base::sorted::SortedMap<String, String>>,
}

pub(super) struct Layout(PathBuf);

impl Layout {
    /// The layout for a repository below `dir`.
    pub(super) fn open(dir: &Path, repository: &str) -> Self {
        let own = dir.join(repository);
        Self(if own.join("index.json").is_file() { own } else { dir.to_owned() })
    }

    /// The layout in `dir` itself.
    pub(super) fn at(dir: &Path) -> Self {
        Self(dir.to_owned())
    }

    /// The digest of the artifact.
    pub(super) fn resolve(&self, reference: &ArtifactReference) -> Result<Digest, Error> {
        let tag = match &reference.target {
            TagOrDigest::Digest(digest) => return Ok(*digest),
            TagOrDigest::Tag(tag) => tag,
        };
        let text = self.small(&self.0.join("index.json"))?;
        let index: Index = view::parse(&text).map_err(|_| Error::NotInLayout)?;
        let names = [
            format!("{}/{}:{tag}", reference.registry, reference.repository),
            format!("{}:{tag}", reference.repository),
            tag.clone(),
        ];
        let name = |entry: &Entry| entry.annotations.as_ref().and_then(|all| all.get(REF_NAME).cloned());
        let find =
            |wanted: &String| index.manifests.iter().find(|entry| name(entry).as_ref() == Some(wanted));
        let entry = names.iter().find_map(find).ok_or(Error::NotInLayout)?;
        Digest::parse(&entry.digest).ok_or(Error::NotInLayout)
    }

    /// A manifest, verified.
    pub(super) fn manifest(&self, digest: Digest) -> Result<Vec<u8>, Error> {
        let content = self.small(&self.blob(digest))?;
        let found = Digest::of(&content);
        if found == digest {
            Ok(content)
        } else {
            Err(Error::Digest { what: "manifest", expected: digest, found })
        }
    }

    /// A chart, verified.
    pub(super) fn chart(&self, blob: Blob) -> Result<VerifiedContent, Error> {
        let mut file = self.file(&self.blob(blob.digest))?;
        let read = hash(&mut (&file).take(blob.bytes.saturating_add(1)));
        let (hasher, bytes) = read.map_err(Error::disk("read the layout directory"))?;
        if bytes > blob.bytes {
            return Err(Error::Large { what: "chart", bytes_max: blob.bytes });
        }
        let found = hasher.finish();
        if found != blob.digest {
            return Err(Error::Digest { what: "chart", expected: blob.digest, found });
        }
        file.rewind().map_err(Error::disk("read the layout directory"))?;
        Ok(VerifiedContent::File(file))
    }

    fn blob(&self, digest: Digest) -> PathBuf {
        self.0.join("blobs").join("sha256").join(digest.hex())
    }

    fn file(&self, path: &Path) -> Result<File, Error> {
        file::open(path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => Error::NotInLayout,
            _ => Error::Disk { operation: "open the layout directory", source },
        })
    }

    fn small(&self, path: &Path) -> Result<Vec<u8>, Error> {
        VerifiedContent::File(self.file(path)?).read_all(limits::OCI_MANIFEST_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::base::random;

    #[test]
    fn artifacts_are_found_by_tag_and_by_digest() {
        let dir = std::env::temp_dir().join(format!("gardenlet-layout-{}", random::hex(12)));
        let blob = |root: &Path, content: &[u8]| {
            let folder = root.join("blobs/sha256");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(Digest::of(content).hex()), content).unwrap();
            Digest::of(content)
        };
        let own = dir.join("team/own");
        let (a, b, c) = (blob(&dir, b"a"), blob(&dir, b"b"), blob(&own, b"c"));
        let entry = |digest: Digest, name: &str| json!({"digest": digest.to_string(), "annotations": {"org.opencontainers.image.ref.name": name}});
        let index = json!({"manifests": [entry(a, "1"), entry(b, "team/x:1"), {"digest": "bad"}]});
        fs::write(dir.join("index.json"), index.to_string()).unwrap();
        fs::write(own.join("index.json"), json!({"manifests": [entry(c, "1")]}).to_string()).unwrap();
        let resolve = |text: &str| {
            let reference = ArtifactReference::parse(text).unwrap();
            Layout::open(&dir, &reference.repository).resolve(&reference).ok()
        };
        let pinned = format!("r.example.org/team/x@{a}");
        let table = [
            ("r.example.org/team/x:1", Some(b)),
            ("r.example.org/team/y:1", Some(a)),
            ("r.example.org/team/own:1", Some(c)),
            ("r.example.org/team/own:2", None),
            (pinned.as_str(), Some(a)),
        ];
        for (text, expected) in table {
            assert_eq!(resolve(text), expected, "{text}");
        }
        let layout = Layout::open(&dir, "team/x");
        assert_eq!(layout.manifest(a).unwrap(), b"a");
        assert!(matches!(layout.manifest(c).unwrap_err(), Error::NotInLayout));
        let chart = |bytes| layout.chart(Blob { digest: b, bytes });
        assert_eq!(chart(1).unwrap().read_all(9).unwrap(), b"b");
        assert!(matches!(chart(0), Err(Error::Large { .. })));
        fs::write(dir.join("blobs/sha256").join(b.hex()), "x").unwrap();
        assert!(matches!(chart(1), Err(Error::Digest { .. })) && layout.manifest(b).is_err());
        fs::remove_dir_all(&dir).unwrap();
    }
}
