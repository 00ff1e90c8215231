//! Rules that the compiler does not know: who imports whom, how long things are, what may be named where.
//!
//! Each rule lists every place that breaks it, so one run shows all there is to do.

// Test code outside of test functions: a file that cannot be read ends the run.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::path::{Path, PathBuf};

/// The modules from bottom to top: each imports only what stands before it. `lib.rs` cannot say it, because rustfmt
/// sorts its lines.
const ORDER: &[&str] = &[
    "limits",
    "base",
    "format",
    "api",
    "pki",
    "chart",
    "config",
    "net",
    "oci",
    "kube",
    "identity",
    "runtime",
    "flow",
    "components",
    "resources",
    "controllers",
    "serve",
    "cli",
    "app",
];

/// What the program may be linked with. A new name here needs its reason in Cargo.toml and its size in the bench.
const DEPENDENCIES: &[&str] = &[
    "brotli-decompressor",
    "env_logger",
    "flate2",
    "lexopt",
    "libyaml-safer",
    "log",
    "miniserde",
    "rcgen",
    "regex-lite",
    "ring",
    "rustls",
    "serde",
    "serde_json",
    "signal-hook",
    "socket2",
    "tar",
    "time",
    "ureq",
    "x509-parser",
];

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 500;

/// A source file, cut into lines, without its tests.
struct Source {
    path: PathBuf,
    text: String,
    lines: usize,
}

impl Source {
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().take(self.lines).enumerate().map(|(index, line)| (index + 1, line))
    }

    /// The first folder below `src`, or the name of the file that stands there.
    fn module(&self) -> String {
        let inner = self.path.strip_prefix("src").unwrap_or(&self.path);
        let first = inner.components().next().map(|part| part.as_os_str().to_string_lossy().into_owned());
        first.unwrap_or_default().trim_end_matches(".rs").to_owned()
    }

    fn at(&self, line: usize, text: &str) -> String {
        format!("{}:{line}: {text}", self.path.display())
    }
}

fn sources(folder: &str) -> Vec<Source> {
    let mut found = Vec::new();
    collect(Path::new(folder), &mut found);
    assert!(!found.is_empty(), "no sources in {folder}: the tests run in the root of the project");
    found
}

fn collect(folder: &Path, found: &mut Vec<Source>) {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let all = text.lines().count();
            let is_test = path.file_stem().is_some_and(|stem| stem == "tests")
                || path.parent().is_some_and(|parent| parent.ends_with("tests") && parent.starts_with("src"));
            let tests = text.lines().position(|line| line == "#[cfg(test)]");
            let lines = if is_test { 0 } else { tests.unwrap_or(all) };
            found.push(Source { path, text, lines });
        }
    }
}

fn assert_none(rule: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{rule}:\n  {}", broken.join("\n  "));
}

#[test]
fn modules_import_only_what_stands_below_them() {
    let rank = |module: &str| ORDER.iter().position(|name| *name == module);
    let mut broken = Vec::new();
    for source in sources("src") {
        let module = source.module();
        if matches!(module.as_str(), "lib" | "main") {
            continue;
        }
        let Some(own) = rank(&module) else {
            broken.push(source.at(1, "a module that ORDER does not know"));
            continue;
        };
        for (number, line) in source.code().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            for rest in line.split("crate::").skip(1) {
                let name: String = rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
                if rank(&name).is_some_and(|other| other > own) {
                    broken.push(source.at(number, &format!("{module} imports {name}")));
                }
            }
        }
    }
    assert_none("a module uses what stands above it in the order", &broken);
}

#[test]
fn files_say_first_what_they_are_for() {
    let all = ["src", "tests"].into_iter().flat_map(sources);
    let silent: Vec<String> = all
        .filter(|source| {
            !source.text.starts_with("//! ") && source.path.file_name() != Some("tests.rs".as_ref())
        })
        .map(|source| source.at(1, "no module comment"))
        .collect();
    assert_none("a file starts with what it is for", &silent);
}

#[test]
fn functions_and_files_are_short() {
    let mut broken = Vec::new();
    for source in sources("src") {
        if source.lines > FILE_LINES_MAX {
            broken.push(source.at(1, &format!("{} lines without tests", source.lines)));
        }
        let mut open: Option<(usize, usize)> = None;
        for (number, line) in source.code() {
            let indent = line.len() - line.trim_start().len();
            if let Some((start, depth)) = open {
                if indent == depth && line.trim_start().starts_with('}') {
                    if number - start + 1 > FUNCTION_LINES_MAX {
                        broken.push(source.at(start, &format!("a function of {} lines", number - start + 1)));
                    }
                    open = None;
                }
            } else if starts_function(line) && !line.ends_with(['}', ';']) {
                open = Some((number, indent));
            }
        }
    }
    assert_none("functions have at most 70 lines, files 500 without tests", &broken);
}

fn starts_function(line: &str) -> bool {
    let mut words = line.split_whitespace().map(|word| word.split('(').next().unwrap_or(word));
    words.find(|word| !matches!(*word, "pub" | "const" | "unsafe" | "async")) == Some("fn")
}

#[test]
fn network_crates_are_named_only_in_net() {
    let mut broken = Vec::new();
    for source in sources("src").iter().filter(|source| source.module() != "net") {
        for (number, line) in source.code().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            for name in ["ureq::", "rustls::"] {
                let mut before = line.match_indices(name).map(|(at, _)| line[..at].chars().next_back());
                if before.any(|c| !c.is_some_and(|c| c.is_alphanumeric() || c == '_')) {
                    broken.push(source.at(number, name));
                }
            }
        }
    }
    assert_none("ureq and rustls are a matter of src/net", &broken);
}

#[test]
fn no_test_is_ignored_or_expects_a_panic() {
    let words = [concat!("#[ig", "nore"), concat!("#[should", "_panic")];
    let mut broken = Vec::new();
    for source in ["src", "tests"].into_iter().flat_map(sources) {
        for (index, line) in source.text.lines().enumerate() {
            if words.iter().any(|word| line.contains(word)) {
                broken.push(source.at(index + 1, line.trim()));
            }
        }
    }
    assert_none("no ignored tests, no expected panics", &broken);
}

#[test]
fn dependencies_are_the_agreed_ones() {
    let manifest = fs::read_to_string("Cargo.toml").unwrap();
    let section = manifest.split("\n[dependencies]\n").nth(1).unwrap().split("\n[").next().unwrap();
    let named = section.lines().filter(|line| line.contains('=') && !line.starts_with('#'));
    let mut found: Vec<&str> = named.map(|line| line.split([' ', '=', '.']).next().unwrap()).collect();
    found.sort_unstable();
    assert_eq!(found, DEPENDENCIES);
}

#[test]
fn the_changelog_names_the_version() {
    let changelog = fs::read_to_string("CHANGELOG.md").expect("there is a CHANGELOG.md");
    let version = env!("CARGO_PKG_VERSION");
    assert!(changelog.lines().any(|line| line.starts_with("## ") && line.contains(version)), "no {version}");
}
