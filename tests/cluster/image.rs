//! Container images as archives that `ctr images import` reads: one layer, no registry.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::environment::Environment;
use crate::failure::{Doing, Failure, Result};
use crate::process;

/// The image of the container that holds a pod's namespaces.
pub(crate) const PAUSE: &str = "lab.local/pause:1";
/// An image whose container answers HTTP on port 8080, see `container.c`.
pub(crate) const SERVE: &str = "lab.local/serve:1";

const PROGRAM: &str = include_str!("container.c");

/// What an image contains.
#[derive(Debug)]
pub(crate) struct Image<'a> {
    pub(crate) reference: &'a str,
    /// Absolute path in the image, and the file on this machine.
    pub(crate) files: Vec<(String, PathBuf)>,
    pub(crate) entrypoint: Vec<&'a str>,
}

/// Writes the archives of [`PAUSE`] and [`SERVE`].
pub(crate) fn build_basic(environment: &Environment, folder: &Path) -> Result<Vec<PathBuf>> {
    let source = folder.join("container.c");
    let program = folder.join("container");
    fs::write(&source, PROGRAM).doing(|| format!("write {}", source.display()))?;
    let compiler = environment.program("gcc").ok_or_else(|| Failure::new("gcc not found"))?;
    process::run(Command::new(compiler).args(["-static", "-O1", "-s", "-o"]).arg(&program).arg(&source))?;
    let files = || vec![("/container".to_owned(), program.clone())];
    let images = [
        Image { reference: PAUSE, files: files(), entrypoint: vec!["/container", "pause"] },
        Image { reference: SERVE, files: files(), entrypoint: vec!["/container", "serve", "8080"] },
    ];
    images.iter().map(|image| image.write(folder)).collect()
}

impl Image<'_> {
    /// An image with a dynamically linked program and the libraries that it needs.
    pub(crate) fn of_program<'a>(reference: &'a str, path: &'a str, program: &Path) -> Result<Image<'a>> {
        let mut files = vec![(path.to_owned(), program.to_owned())];
        // A static program has none, and ldd says so with an exit code.
        let libraries = process::run(Command::new("ldd").arg(program)).unwrap_or_default();
        let absolute = libraries.split_whitespace().filter(|word| word.starts_with('/'));
        files.extend(absolute.map(|library| (library.to_owned(), PathBuf::from(library))));
        Ok(Image { reference, files, entrypoint: vec![path] })
    }

    /// Writes the archive to a folder and returns its path.
    pub(crate) fn write(&self, folder: &Path) -> Result<PathBuf> {
        let layer = self.layer().doing(|| format!("build {}", self.reference))?;
        let layer_digest = sha256(&layer);
        let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let config = json!({
            "architecture": architecture,
            "os": "linux",
            "config": {"Entrypoint": self.entrypoint},
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer_digest}")]},
        })
        .to_string();
        let config_name = format!("{}.json", sha256(config.as_bytes()));
        let layer_name = format!("{layer_digest}/layer.tar");
        let manifest = json!([{"Config": config_name, "RepoTags": [self.reference], "Layers": [layer_name]}])
            .to_string();
        let path = folder.join(format!("{}.tar", self.reference.replace(['/', ':'], "-")));
        let parts: [(&str, &[u8]); 3] = [
            (&config_name, config.as_bytes()),
            (&layer_name, &layer),
            ("manifest.json", manifest.as_bytes()),
        ];
        let written = archive(&parts).and_then(|bytes| fs::write(&path, bytes));
        written.doing(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    fn layer(&self) -> std::io::Result<Vec<u8>> {
        let mut layer = tar::Builder::new(Vec::new());
        let mut temporary = tar::Header::new_gnu();
        temporary.set_entry_type(tar::EntryType::Directory);
        temporary.set_mode(0o1777);
        temporary.set_size(0);
        layer.append_data(&mut temporary, "tmp/", std::io::empty())?;
        for (path, file) in &self.files {
            append(&mut layer, path.trim_start_matches('/'), 0o755, &fs::read(file)?)?;
        }
        layer.into_inner()
    }
}

fn archive(parts: &[(&str, &[u8])]) -> std::io::Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in parts {
        append(&mut builder, name, 0o644, bytes)?;
    }
    builder.into_inner()
}

/// Appends a file to an archive.
pub(crate) fn append<W: std::io::Write>(
    builder: &mut tar::Builder<W>,
    path: &str,
    mode: u32,
    bytes: &[u8],
) -> std::io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_mode(mode);
    header.set_size(bytes.len() as u64);
    builder.append_data(&mut header, path, bytes)
}

fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
