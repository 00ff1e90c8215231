//! Packs the files that the agent installs (`src/components`, `src/operation/components` and `src/osc`, all except Rust) into one compressed stream for the binary,
//! and records the commit and the time of the build.
//!
//! The stream contains the files sorted by path. Each file is a line `<path> <bytes>`, followed by that many bytes.
//! `src/components/archive.rs` reads it.
//!
//! The texts of `--help`, the completions of shells, the script of hosts and two tables are packed in the same way.
//!
//! The agent's own chart is packed too, as an archive that Helm can read: the agent uses it to turn Shoots into seeds.

// A build script communicates with cargo through its output.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};

/// The components of seeds, those of Shoots, and what nodes get. Each folder has a prefix in the stream.
const ROOTS: [(&str, &str); 3] =
    [("src/components", ""), ("src/operation/components", ""), ("src/osc", "osc/")];
const CHART: &str = "packaging/chart";
const HELP: &str = "src/cli/help";
const COMPLETIONS: &str = "packaging/completions";
/// The parts of the script with which hosts join.
const SCRIPT: &str = "src/hosts/script";
/// Tables that the agent reads seldom, and their names in the stream of texts.
const TABLES: [(&str, &str); 2] = [
    ("roles.txt", "packaging/roles.txt"),
    ("types.txt", "src/controllers/controller_installation/typed/types.txt"),
];
/// The files of the chart's folder that Helm packs.
const CHART_FILES: [&str; 4] = ["Chart.yaml", "values.yaml", "values.schema.json", "templates/"];
const BLOCK_BYTES: usize = 512;
/// The commit of a program that is shipped (`cross/common` sets it). Others have none, because each commit would compile them again.
const COMMIT: &str = "GARDENLET_COMMIT";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let folders = ROOTS.into_iter().map(|(root, _)| root).chain([CHART, HELP, COMPLETIONS, SCRIPT]);
    for path in folders.chain(TABLES.map(|(_, path)| path)) {
        println!("cargo::rerun-if-changed={path}");
    }
    for variable in ["SOURCE_DATE_EPOCH", COMMIT] {
        println!("cargo::rerun-if-env-changed={variable}");
    }

    let mut files = BTreeMap::new();
    for (root, prefix) in ROOTS {
        collect(Path::new(root), prefix, &mut files)?;
    }
    let (packed, bytes) = pack(&files)?;

    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    fs::write(out.join("components"), &packed)?;
    let mut texts = BTreeMap::new();
    collect(Path::new(HELP), "help/", &mut texts)?;
    collect(Path::new(COMPLETIONS), "completions/", &mut texts)?;
    collect(Path::new(SCRIPT), "script/", &mut texts)?;
    for (name, path) in TABLES {
        texts.insert(name.to_owned(), fs::read_to_string(path)?);
    }
    fs::write(out.join("texts"), pack(&texts)?.0)?;
    let mut chart = BTreeMap::new();
    collect(Path::new(CHART), "", &mut chart)?;
    chart.retain(|path, _| CHART_FILES.iter().any(|packed| path.starts_with(packed)));
    fs::write(out.join("chart.tgz"), archive(&chart)?)?;
    fs::write(out.join("built"), built_unix_s().to_string())?;
    fs::write(out.join("commit"), variable(COMMIT).unwrap_or_default())?;
    println!("components: {} files, {bytes} bytes, {} packed", files.len(), packed.len());
    Ok(())
}

/// `SOURCE_DATE_EPOCH`, or the time of the commit: the same sources give the same program. A working copy keeps the time
/// of its first build, because a new commit alone must not cause a full rebuild.
fn built_unix_s() -> i64 {
    let given = variable("SOURCE_DATE_EPOCH").filter(|text| !text.is_empty());
    let text = given.unwrap_or_else(|| git(&["log", "-1", "--format=%ct"]));
    text.parse().unwrap_or(0)
}

fn variable(name: &str) -> Option<String> {
    env::var_os(name)?.into_string().ok()
}

/// What git prints; nothing outside of a repository.
fn git(words: &[&str]) -> String {
    let shown = Command::new("git").args(words).output().ok().filter(|shown| shown.status.success());
    shown.and_then(|shown| String::from_utf8(shown.stdout).ok()).unwrap_or_default().trim().to_owned()
}

/// Reads all files below a folder, by their relative path with `/` on every platform.
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

/// A compressed tar archive of a chart, the same on every machine.
fn archive(files: &BTreeMap<String, String>) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    for (path, text) in files {
        encoder.write_all(&header(&format!("gardenlet/{path}"), text.len()))?;
        encoder.write_all(text.as_bytes())?;
        encoder.write_all(&vec![0; text.len().next_multiple_of(BLOCK_BYTES) - text.len()])?;
    }
    encoder.write_all(&[0; 2 * BLOCK_BYTES])?;
    encoder.finish()
}

/// The header of a plain file in a tar archive.
fn header(path: &str, bytes: usize) -> [u8; BLOCK_BYTES] {
    let mut header = [0; BLOCK_BYTES];
    let mut put = |at: usize, field: &[u8]| header[at..at + field.len()].copy_from_slice(field);
    put(0, path.as_bytes());
    put(100, b"0000644\x000000000\x000000000\0");
    put(124, format!("{bytes:011o}\x0000000000000\0").as_bytes());
    // The checksum counts its own field as blanks.
    put(148, b"        0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().copied().map(u32::from).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}
