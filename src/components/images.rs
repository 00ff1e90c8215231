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
pub(crate) const VARIABLE: &str = "IMAGEVECTOR_OVERWRITE";

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
    /// The image vector, with the entries of an overwriting file if there is one. Errors: the file cannot be
    /// read or is invalid: its path and the reason.
    pub(crate) fn load(path: Option<&Path>) -> Result<Self, String> {
        let Some(path) = path else { return Ok(Self::default()) };
        let failed = |why: &dyn std::fmt::Display| format!("{VARIABLE} names {}: {why}", path.display());
        let text = read(path).map_err(|error| failed(&error))?;
        Self::overwritten(&text).map_err(|why| failed(&why))
    }

    /// The image vector with the overwriting entries of a text. Errors: the reason why the text is invalid.
    pub fn overwritten(text: &str) -> Result<Self, String> {
        let mut file = yaml::parse(text).map_err(|error| error.to_string())?;
        let Some(Value::Array(mut entries)) = file.get_mut("images").map(Value::take) else {
            return Err("images: it must be a list of images".to_owned());
        };
        for (number, entry) in entries.iter().enumerate() {
            check(entry).map_err(|why| format!("images[{number}]{why}"))?;
        }
        entries.extend(Self::default().entries);
        Ok(Self { entries })
    }

    /// The references of the images with these names for a Kubernetes version: all images of a control plane. Errors: one
    /// of them has no image, or the version is not supported.
    pub fn of_control_plane<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
        version: &str,
    ) -> Result<Vec<String>, String> {
        let parsed = Version::parse(version).map_err(|error| format!("version {version:?}: {error}"))?;
        if (parsed.major, parsed.minor) < OLDEST || (parsed.major, parsed.minor) > NEWEST {
            let ((major, oldest), (_, newest)) = (OLDEST, NEWEST);
            return Err(format!(
                "Kubernetes {version} is not supported: {major}.{oldest} to {major}.{newest} are"
            ));
        }
        names.into_iter().map(|name| self.find(name, version)).collect()
    }

    /// The reference of an image for a Kubernetes version. An entry without a tag uses that version as its
    /// tag. An entry for certain versions wins over one for all versions, then an entry for certain
    /// architectures wins. Entries for other architectures are ignored. Errors: there is no matching entry.
    pub(crate) fn find(&self, name: &str, version: &str) -> Result<String, String> {
        self.find_for(name, version, ARCHITECTURE)
    }

    /// The same for a node of an architecture, as images name it.
    pub(crate) fn find_for(&self, name: &str, version: &str, architecture: &str) -> Result<String, String> {
        let parsed = Version::parse(version).map_err(|error| format!("version {version:?}: {error}"))?;
        let mut best: Option<(&Value, (bool, bool))> = None;
        for entry in self.entries.iter().filter(|entry| entry["name"] == name) {
            let constraint = constraint(entry)?;
            let is_meant = constraint.as_ref().is_none_or(|constraint| constraint.check(&parsed));
            let architectures = entry["architectures"].as_array().filter(|all| !all.is_empty());
            let is_ours = architectures.is_none_or(|all| all.iter().any(|one| one == architecture));
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

/// The fields of an entry that are texts.
const TEXTS: [&str; 7] = ["name", "repository", "ref", "tag", "version", "runtimeVersion", "targetVersion"];

/// Checks an entry. The error begins with the field.
fn check(entry: &Value) -> Result<(), String> {
    if !entry.is_object() {
        return Err(": it must be an image, with a name, and a repository or a ref".to_owned());
    }
    let is_text = |value: &Value| value.is_null() || value.is_string();
    if let Some(field) = TEXTS.iter().find(|field| !is_text(&entry[**field])) {
        return Err(format!(".{field}: it must be a text; numbers such as 3.10 need quotes"));
    }
    let architectures = &entry["architectures"];
    let are_texts = |list: &Vec<Value>| list.iter().all(Value::is_string);
    if !architectures.is_null() && !architectures.as_array().is_some_and(are_texts) {
        return Err(".architectures: it must be a list of texts, such as [amd64, arm64]".to_owned());
    }
    if text(&entry["name"]).is_empty() {
        return Err(".name: it is missing".to_owned());
    }
    if text(&entry["repository"]).is_empty() && text(&entry["ref"]).is_empty() {
        return Err(".repository: it is missing, and so is ref".to_owned());
    }
    constraint(entry).map(drop).map_err(|why| format!(".targetVersion: {why}"))
}

fn constraint(entry: &Value) -> Result<Option<Constraint>, String> {
    match text(&entry["targetVersion"]) {
        "" | "*" => Ok(None),
        range => Constraint::parse(range).map(Some).map_err(|error| error.to_string()),
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
    fn a_control_plane_has_images_for_supported_versions() {
        let own = Images::default();
        let names = ["etcd", "kube-apiserver"];
        let expected = ["gcr.io/etcd-development/etcd:v3.5.27", "registry.k8s.io/kube-apiserver:v1.35.4"];
        assert_eq!(own.of_control_plane(names, "1.35.4").unwrap(), expected);
        for version in ["1.31.9", "1.37.0", "2.34.0"] {
            let why = own.of_control_plane(names, version).unwrap_err();
            assert_eq!(why, format!("Kubernetes {version} is not supported: 1.32 to 1.36 are"));
        }
        assert!(own.of_control_plane(names, "new").is_err());
    }

    #[test]
    fn an_invalid_file_is_refused() {
        let list = "images: it must be a list of images";
        let image = "images[0]: it must be an image, with a name, and a repository or a ref";
        let table = [
            ("", list),
            ("1", list),
            ("- a", list),
            ("images", list),
            ("images: 1", list),
            ("images: {}", list),
            ("Images: []", list),
            ("images: [1]", image),
            ("images: [[]]", image),
            ("images: [~]", image),
            ("images: [{name: a}]", "images[0].repository: it is missing, and so is ref"),
            ("images: [{name: a, ref: b}, {repository: a}]", "images[1].name: it is missing"),
            (
                "images: [{name: a, repository: b, tag: 3.10}]",
                "images[0].tag: it must be a text; numbers such as 3.10 need quotes",
            ),
            (
                "images: [{name: [], repository: b}]",
                "images[0].name: it must be a text; numbers such as 3.10 need quotes",
            ),
            (
                "images: [{name: a, repository: b, architectures: amd64}]",
                "images[0].architectures: it must be a list of texts, such as [amd64, arm64]",
            ),
        ];
        for (text, expected) in table {
            assert_eq!(Images::overwritten(text).unwrap_err(), expected, "{text}");
        }
        let of = |text: &str| Images::overwritten(text).unwrap_err();
        assert!(of("a: [").starts_with("line "), "{}", of("a: ["));
        let range = of("images: [{name: a, repository: b, targetVersion: '>> 1'}]");
        assert!(range.starts_with("images[0].targetVersion: "), "{range}");
        assert!(
            Images::load(Some(Path::new("/no/such/file")))
                .unwrap_err()
                .starts_with("IMAGEVECTOR_OVERWRITE names")
        );
    }
}
