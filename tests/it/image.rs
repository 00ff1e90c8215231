//! The image that `packaging/image` packs, from files that only look like programs.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use gardenlet::base::random;
use serde_json::{Value, json};

use support::encoding::sha256_hex;

/// Target, machine number in the ELF header of its programs, platform.
const TARGETS: [(&str, u8, &str); 5] = [
    ("x86_64-unknown-linux-musl", 62, "linux/amd64"),
    ("aarch64-unknown-linux-musl", 183, "linux/arm64"),
    ("armv7-unknown-linux-musleabihf", 40, "linux/arm/v7"),
    ("arm-unknown-linux-musleabihf", 40, "linux/arm/v6"),
    ("riscv64gc-unknown-linux-musl", 243, "linux/riscv64"),
];
const TIME: u64 = 1_700_000_000;
const CAS: &str = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";

/// A folder with the output of `cross/build`. It is deleted when dropped.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        let place = Self(std::env::temp_dir().join(format!("gardenlet-image-{}", random::hex(8))));
        std::fs::create_dir_all(&place.0).unwrap();
        place.write("cas.pem", CAS.as_bytes());
        TARGETS.iter().for_each(|(target, machine, _)| place.program(target, *machine));
        place
    }

    fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    fn program(&self, target: &str, machine: u8) {
        let path = self.write(&format!("{target}/shipping/gardenlet"), &program(target, machine));
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
    }

    /// Packs, and returns the archive or the error message.
    fn pack(&self, arguments: &[&str]) -> Result<Vec<u8>, String> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/image");
        let mut command = Command::new(script);
        command.args(["--output", "out", "--ca-bundle", "cas.pem"]).args(arguments).current_dir(&self.0);
        command.env("CARGO_TARGET_DIR", &self.0).env("SOURCE_DATE_EPOCH", TIME.to_string());
        let output = command.output().unwrap();
        if !output.status.success() {
            return Err(String::from_utf8(output.stderr).unwrap());
        }
        Ok(std::fs::read(self.0.join("out/gardenlet.tar")).unwrap())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An ELF header and a name.
fn program(target: &str, machine: u8) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(18, 0);
    bytes.extend([machine, 0]);
    bytes.extend(target.as_bytes());
    bytes
}

/// The files of an archive by their paths.
fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(archive);
    let entries = archive.entries().unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.header().entry_type().is_file());
    files
        .map(|mut entry| {
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (entry.path().unwrap().display().to_string(), content)
        })
        .collect()
}

/// Path, owner, group, mode and time of each entry of an archive, in its order.
fn entries(archive: &[u8]) -> Vec<(String, u64, u64, u32, u64)> {
    let mut archive = tar::Archive::new(archive);
    let entries = archive.entries().unwrap().map(|entry| {
        let entry = entry.unwrap();
        let (path, head) = (entry.path().unwrap().display().to_string(), entry.header());
        (path, head.uid().unwrap(), head.gid().unwrap(), head.mode().unwrap(), head.mtime().unwrap())
    });
    entries.collect()
}

/// An image layout.
struct Layout(BTreeMap<String, Vec<u8>>);

impl Layout {
    fn json(&self, path: &str) -> Value {
        serde_json::from_slice(&self.0[path]).unwrap()
    }

    /// The content of a descriptor, which must have the size that the descriptor gives.
    fn blob(&self, descriptor: &Value) -> &[u8] {
        let path = descriptor["digest"].as_str().unwrap().replace("sha256:", "blobs/sha256/");
        let blob = &self.0[&path];
        assert_eq!(descriptor["size"], blob.len(), "{path}");
        blob
    }

    fn described(&self, descriptor: &Value) -> Value {
        serde_json::from_slice(self.blob(descriptor)).unwrap()
    }

    /// The index of platforms.
    fn index(&self) -> Value {
        self.described(&self.json("index.json")["manifests"][0])
    }

    fn layers(&self, manifest: &Value) -> Vec<Vec<u8>> {
        let layers = manifest["layers"].as_array().unwrap().iter().map(|layer| {
            let mut bytes = Vec::new();
            flate2::read::GzDecoder::new(self.blob(layer)).read_to_end(&mut bytes).unwrap();
            bytes
        });
        layers.collect()
    }
}

#[test]
fn an_image_is_the_program_for_each_platform() {
    let layout = Layout(files(&Place::new().pack(&[]).unwrap()));
    for (path, content) in &layout.0 {
        if let Some(digest) = path.strip_prefix("blobs/sha256/") {
            assert_eq!(digest, sha256_hex(content));
        }
    }
    let index = layout.index();
    let manifests = index["manifests"].as_array().unwrap();
    assert_eq!(manifests.len(), TARGETS.len());
    for (descriptor, (target, machine, platform)) in manifests.iter().zip(TARGETS) {
        let named = ["os", "architecture", "variant"].map(|key| descriptor["platform"][key].as_str());
        assert_eq!(named.iter().copied().flatten().collect::<Vec<_>>().join("/"), platform);
        let manifest = layout.described(descriptor);
        let config = layout.described(&manifest["config"]);
        assert_eq!(
            (&config["os"], &config["architecture"]),
            (&json!("linux"), &descriptor["platform"]["architecture"])
        );
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(config["config"]["Entrypoint"], json!(["/gardenlet"]));
        assert_eq!(config["config"]["Labels"], index["annotations"]);
        assert_eq!(manifest["annotations"], index["annotations"]);
        let layers = layout.layers(&manifest);
        let digests: Vec<String> =
            layers.iter().map(|layer| format!("sha256:{}", sha256_hex(layer))).collect();
        assert_eq!(config["rootfs"]["diff_ids"], json!(digests));
        assert_eq!(files(&layers[1])["gardenlet"], program(target, machine));
    }
    let words = &index["annotations"];
    let word = |name: &str| words[&format!("org.opencontainers.image.{name}")].as_str().unwrap_or_default();
    assert_eq!(
        ["title", "version", "licenses"].map(word),
        ["gardenlet", env!("CARGO_PKG_VERSION"), "Apache-2.0"]
    );
    assert_eq!(word("created"), "2023-11-14T22:13:20Z");
}

#[test]
fn an_image_has_only_cas_and_names_of_users_beside_the_program() {
    let layout = Layout(files(&Place::new().pack(&[]).unwrap()));
    let manifest = layout.described(&layout.index()["manifests"][0]);
    let layers = layout.layers(&manifest);
    let of_root = |path: &str, mode| (path.to_owned(), 0, 0, mode, TIME);
    assert_eq!(
        entries(&layers[0]),
        [
            of_root("etc/", 0o755),
            of_root("etc/group", 0o644),
            of_root("etc/passwd", 0o644),
            of_root("etc/ssl/", 0o755),
            of_root("etc/ssl/certs/", 0o755),
            of_root("etc/ssl/certs/ca-certificates.crt", 0o644),
            of_root("var/", 0o755),
            of_root("var/lib/", 0o755),
            ("var/lib/gardenlet/".to_owned(), 65_532, 65_532, 0o700, TIME),
        ]
    );
    assert_eq!(entries(&layers[1]), [of_root("gardenlet", 0o755)]);
    let base = files(&layers[0]);
    assert_eq!(base["etc/ssl/certs/ca-certificates.crt"], CAS.as_bytes());
    let text = |path: &str| String::from_utf8(base[path].clone()).unwrap();
    assert!(text("etc/passwd").contains("nonroot:x:65532:65532:"), "{}", text("etc/passwd"));
    assert!(text("etc/group").contains("nonroot:x:65532:"), "{}", text("etc/group"));
}

#[test]
fn the_same_programs_give_the_same_bytes() {
    let (one, other) = (Place::new(), Place::new());
    let first = one.pack(&[]).unwrap();
    assert_eq!(sha256_hex(&first), sha256_hex(&other.pack(&[]).unwrap()), "in two folders");
    assert_eq!(sha256_hex(&first), sha256_hex(&one.pack(&[]).unwrap()), "over an existing one");
    other.write("cas.pem", format!("{CAS}{CAS}").as_bytes());
    assert_ne!(first, other.pack(&[]).unwrap(), "with other CAs");
}

#[test]
fn engines_know_an_image_by_the_name_in_the_chart() {
    let layout = Layout(files(&Place::new().pack(&["armv7"]).unwrap()));
    let by_layout = &layout.json("index.json")["manifests"][0]["annotations"]["io.containerd.image.name"];
    let by_list = &layout.json("manifest.json")[0];
    let name = format!("docker.io/library/{}", crate::packaging::image_of_the_chart());
    assert_eq!((by_layout, &by_list["RepoTags"]), (&json!(name), &json!([name])));
    let layers = by_list["Layers"].as_array().unwrap();
    for path in layers.iter().chain([&by_list["Config"]]) {
        assert!(layout.0.contains_key(path.as_str().unwrap()), "{path}");
    }
    let other = Layout(files(&Place::new().pack(&["armv7", "--name", "r.example.org:5000/a:1"]).unwrap()));
    assert_eq!(other.json("manifest.json")[0]["RepoTags"], json!(["r.example.org:5000/a:1"]));
}

#[test]
fn packing_errors_have_a_remedy() {
    let place = Place::new();
    let refused = |arguments: &[&str], words: &str| {
        let complaint = place.pack(arguments).unwrap_err();
        assert!(complaint.contains(words), "{arguments:?}: {complaint}");
    };
    refused(&["mips"], "no platform is known for mips");
    refused(&["--name", "r.example.org:5000/a", "x86_64"], "--name needs a tag");
    refused(&["--name", "a:\"1", "x86_64"], "not a name");
    refused(&["--sorce", "x"], "unknown option --sorce");
    refused(&["--ca-bundle", "x86_64-unknown-linux-musl/shipping/gardenlet"], "no certificates (PEM)");
    place.program(TARGETS[1].0, TARGETS[0].1);
    refused(&[], "for another architecture than aarch64-unknown-linux-musl");
    remove(&place, TARGETS[3].0);
    refused(&["armv6"], "run cross/build armv6 first");
    assert!(!place.0.join("out").exists(), "a refused call left files");
}

fn remove(place: &Place, target: &str) {
    std::fs::remove_dir_all(Path::new(&place.0).join(target)).unwrap();
}
