//! Packs what the agent installs (`src/components`, all but Rust) into one compressed stream for the binary.
//!
//! The stream is made of files in the order of their paths, each a line `<path> <bytes>` followed by that many bytes.
//! `src/components/archive.rs` reads it.

// Output of a build script is how it talks to cargo.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::{env, fs};

use flate2::Compression;
use flate2::write::DeflateEncoder;

const ROOT: &str = "src/components";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={ROOT}");

    let mut files = BTreeMap::new();
    collect(Path::new(ROOT), "", &mut files)?;
    let (packed, bytes) = pack(&files)?;

    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    fs::write(out.join("components"), &packed)?;
    println!("components: {} files, {bytes} bytes, {} packed", files.len(), packed.len());
    Ok(())
}

/// Reads all files of a folder and of those below it, by their path from the root with `/` on every platform.
fn collect(folder: &Path, prefix: &str, files: &mut BTreeMap<String, String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(OsStr::to_str).ok_or(io::ErrorKind::InvalidData)?;
        if path.is_dir() {
            collect(&path, &format!("{prefix}{name}/"), files)?;
        } else if path.extension() != Some(OsStr::new("rs")) {
            files.insert(format!("{prefix}{name}"), fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

fn pack(files: &BTreeMap<String, String>) -> io::Result<(Vec<u8>, usize)> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    let mut bytes = 0;
    for (path, text) in files {
        writeln!(encoder, "{path} {}", text.len())?;
        encoder.write_all(text.as_bytes())?;
        bytes += text.len();
    }
    Ok((encoder.finish()?, bytes))
}
