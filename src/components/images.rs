//! The images of control planes: Gardener's image vector, and a file that overwrites it (`IMAGEVECTOR_OVERWRITE`) in
//! the format that Gardener reads.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde_json::Value;

use super::archive;
use crate::api::meta::text;
use crate::format::semver::{Constraint, Version};
use crate::format::yaml;
use crate::limits;

/// The environment variable with the path of the file.
pub const VARIABLE: &str = "IMAGEVECTOR_OVERWRITE";

/// The images of a control plane without workers.
const NAMES: [&str; 3] = ["etcd", "kube-apiserver", "kube-controller-manager"];
/// Major and minor version of the oldest Kubernetes that Gardener supports.
const OLDEST: (u64, u64) = (1, 32);
/// Major and minor version of the newest one.
const NEWEST: (u64, u64) = (1, 36);
/// The agent's architecture, as images name it. The nodes of its seed are assumed to have the same architecture.
const ARCHITECTURE: &str = match std::env::consts::ARCH.as_bytes() {
    b"x86_64" => "amd64",
    b"aarch64" => "arm64",
    _ => std::env::consts::ARCH,
};

/// The known images.
#[derive(Clone, PartialEq, Debug)]
pub struct Images {
    /// The entries. Overwriting entries come first.
    entries: Vec<Value>,
}

impl Default for Images {
    fn default() -> Self {
        let own = archive::object("images.yaml")["images"].take();
        Self { entries: own.as_array().cloned().unwrap_or_default() }
    }
}

impl Images {
    /// The image vector, with the entries of an overwriting file if there is one.
    ///
    /// # Errors
    /// The file cannot be read or is invalid: its path and the reason.
    pub fn load(path: Option<&Path>) -> Result<Self, String> {
        let Some(path) = path else { return Ok(Self::default()) };
        let failed = |why: &dyn std::fmt::Display| format!("{VARIABLE} names {}: {why}", path.display());
        let text = read(path).map_err(|error| failed(&error))?;
        Self::overwritten(&text).map_err(|why| failed(&why))
    }

    /// The image vector with the overwriting entries of a text.
    ///
    /// # Errors
    /// The reason why the text is invalid.
    pub fn overwritten(text: &str) -> Result<Self, String> {
        let mut file = yaml::parse(text).map_err(|error| error.go_text())?;
        let Value::Array(mut entries) = file["images"].take() else {
            return Err("the list \"images\" is missing".to_owned());
        };
        for entry in &entries {
            let has_place = ["repository", "ref"].iter().any(|field| !self::text(&entry[*field]).is_empty());
            if self::text(&entry["name"]).is_empty() || !has_place {
                return Err(format!("the image {entry} needs a name, and a repository or a ref"));
            }
            constraint(entry)?;
        }
        entries.extend(Self::default().entries);
        Ok(Self { entries })
    }

    /// The references of all images of a control plane without workers for a Kubernetes version.
    ///
    /// # Errors
    /// One of them has no image, or the version is not supported.
    pub fn of_control_plane(&self, version: &str) -> Result<Vec<String>, String> {
        let parsed = Version::parse(version).map_err(|error| format!("version {version:?}: {error}"))?;
        if (parsed.major, parsed.minor) < OLDEST || (parsed.major, parsed.minor) > NEWEST {
            let ((major, oldest), (_, newest)) = (OLDEST, NEWEST);
            return Err(format!(
                "Kubernetes {version} is not supported: {major}.{oldest} to {major}.{newest} are"
            ));
        }
        NAMES.iter().map(|name| self.find(name, version)).collect()
    }

    /// The reference of an image for a Kubernetes version. An entry without a tag uses that version as its tag. An
    /// entry for certain versions wins over one for all versions, then an entry for certain architectures wins. Entries
    /// for other architectures are ignored.
    ///
    /// # Errors
    /// There is no matching entry.
    pub fn find(&self, name: &str, version: &str) -> Result<String, String> {
        let parsed = Version::parse(version).map_err(|error| format!("version {version:?}: {error}"))?;
        let mut best: Option<(&Value, (bool, bool))> = None;
        for entry in self.entries.iter().filter(|entry| entry["name"] == name) {
            let constraint = constraint(entry)?;
            let is_meant = constraint.as_ref().is_none_or(|constraint| constraint.check(&parsed));
            let architectures = entry["architectures"].as_array().filter(|all| !all.is_empty());
            let is_ours = architectures.is_none_or(|all| all.iter().any(|one| one == ARCHITECTURE));
            let rank = (constraint.is_some(), architectures.is_some());
            let is_better = best.is_none_or(|(_, other)| rank > other);
            if is_meant && is_ours && is_better {
                best = Some((entry, rank));
            }
        }
        let (entry, _) = best.ok_or_else(|| {
            format!(
                "no image {name} is known for Kubernetes {version}: add one to the file that {VARIABLE} names"
            )
        })?;
        Ok(reference(entry, version))
    }
}

fn constraint(entry: &Value) -> Result<Option<Constraint>, String> {
    match text(&entry["targetVersion"]) {
        "" | "*" => Ok(None),
        range => Constraint::parse(range)
            .map(Some)
            .map_err(|error| format!("the image {}: targetVersion: {error}", entry["name"])),
    }
}

fn reference(entry: &Value, version: &str) -> String {
    let (whole, repository) = (text(&entry["ref"]), text(&entry["repository"]));
    match text(&entry["tag"]) {
        _ if !whole.is_empty() => whole.to_owned(),
        "" => format!("{repository}:v{}", version.trim_start_matches('v')),
        digest if digest.starts_with("sha256:") => format!("{repository}@{digest}"),
        tag => format!("{repository}:{tag}"),
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let bytes = File::open(path)?.take(limits::IMAGE_VECTOR_BYTES_MAX + 1).read_to_string(&mut text)?;
    if u64::try_from(bytes).is_ok_and(|bytes| bytes <= limits::IMAGE_VECTOR_BYTES_MAX) {
        return Ok(text);
    }
    Err(io::Error::new(io::ErrorKind::FileTooLarge, "the file is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_those_of_gardener_unless_overwritten() {
        let text = "images:\n- {name: etcd, repository: r/etcd, tag: 'sha256:aa'}\n\
            - {name: kube-apiserver, repository: old, targetVersion: '< 1.34'}\n\
            - {name: kube-controller-manager, ref: 'r/kcm:x', targetVersion: '1.34.x'}\n";
        let changed = Images::overwritten(text).unwrap();
        let own = Images::default();
        let table = [
            (&own, "etcd", "1.34.3", "gcr.io/etcd-development/etcd:v3.5.27"),
            (&own, "kube-apiserver", "1.34.3", "registry.k8s.io/kube-apiserver:v1.34.3"),
            (&changed, "etcd", "1.34.3", "r/etcd@sha256:aa"),
            (&changed, "kube-apiserver", "1.34.3", "registry.k8s.io/kube-apiserver:v1.34.3"),
            (&changed, "kube-apiserver", "1.33.7", "old:v1.33.7"),
            (&changed, "kube-controller-manager", "1.34.3", "r/kcm:x"),
            (
                &changed,
                "kube-controller-manager",
                "1.35.4",
                "registry.k8s.io/kube-controller-manager:v1.35.4",
            ),
        ];
        for (images, name, version, expected) in table {
            assert_eq!(images.find(name, version).as_deref(), Ok(expected));
        }
        assert!(own.find("other", "1.34.3").unwrap_err().contains("IMAGEVECTOR_OVERWRITE"));
    }

    #[test]
    fn images_for_other_architectures_do_not_count() {
        let entry = |repository: &str, more: &str| format!("- {{name: a, repository: {repository}{more}}}\n");
        let own = entry("own", &format!(", architectures: [other, {ARCHITECTURE}]"));
        let other = entry("other", ", architectures: [other]");
        let for_versions = entry("versions", ", targetVersion: '>= 1.34'");
        let (all, empty) = (entry("all", ""), entry("empty", ", architectures: []"));
        let table = [
            ([&all, &own], Some("own")),
            ([&own, &all], Some("own")),
            ([&other, &all], Some("all")),
            ([&empty, &all], Some("empty")),
            ([&own, &for_versions], Some("versions")),
            ([&other, &other], None),
        ];
        for (entries, expected) in table {
            let images = Images::overwritten(&format!("images:\n{}{}", entries[0], entries[1])).unwrap();
            let found = images.find("a", "1.34.3").ok();
            assert_eq!(found, expected.map(|name| format!("{name}:v1.34.3")), "{entries:?}");
        }
    }

    #[test]
    fn a_control_plane_has_three_images() {
        let own = Images::default();
        let expected = [
            "gcr.io/etcd-development/etcd:v3.5.27",
            "registry.k8s.io/kube-apiserver:v1.35.4",
            "registry.k8s.io/kube-controller-manager:v1.35.4",
        ];
        assert_eq!(own.of_control_plane("1.35.4").unwrap(), expected);
        for version in ["1.31.9", "1.37.0", "2.34.0"] {
            let why = own.of_control_plane(version).unwrap_err();
            assert_eq!(why, format!("Kubernetes {version} is not supported: 1.32 to 1.36 are"));
        }
        assert!(own.of_control_plane("new").is_err());
    }

    #[test]
    fn an_invalid_file_is_refused() {
        for text in [
            "images: 1",
            "a: [",
            "images:\n- {name: a}",
            "images:\n- {repository: a}",
            "images:\n- {name: a, repository: b, targetVersion: '>> 1'}",
        ] {
            assert!(Images::overwritten(text).is_err(), "{text}");
        }
        assert!(
            Images::load(Some(Path::new("/no/such/file")))
                .unwrap_err()
                .starts_with("IMAGEVECTOR_OVERWRITE names")
        );
    }
}
