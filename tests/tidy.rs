//! Rules that the compiler does not check: imports between modules, lengths of files and functions, forbidden names.
//!
//! A rule is a function from files to complaints. It runs on the project, where it lists every place that breaks it,
//! and on a sample that breaks it, because a rule must be able to fail.

// Test code outside of test functions: a file that cannot be read ends the run.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/components.rs"]
mod components;
#[path = "tidy/docs.rs"]
mod docs;
#[path = "tidy/json.rs"]
mod json;
#[path = "tidy/names.rs"]
mod names;
#[path = "tidy/walk.rs"]
mod walk;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The modules from bottom to top: each imports only the ones before it. `lib.rs` cannot show this order, because
/// rustfmt sorts its lines.
const ORDER: &[&str] = &[
    "limits",
    "base",
    "format",
    "api",
    "pki",
    "chart",
    "config",
    "net",
    "snapshot",
    "oci",
    "kube",
    "identity",
    "runtime",
    "flow",
    "secrets",
    "extension",
    "backup",
    "components",
    "resources",
    "shoot",
    "osc",
    "hosts",
    "deployer",
    "operation",
    "controllers",
    "serve",
    "app",
    "cli",
];

/// The allowed dependencies of the program. A new name here needs its reason in Cargo.toml and its size in the bench.
const DEPENDENCIES: &[&str] = &[
    "aes",
    "bcrypt",
    "brotli-decompressor",
    "dlmalloc",
    "env_logger",
    "flate2",
    "lexopt",
    "log",
    "miniserde",
    "num-bigint",
    "regex-lite",
    "ring",
    "rustix",
    "rustls",
    "scrypt",
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
/// Functions and files that are longer, as `path` or `path:fn name`, each with its reason. Better none.
const LONG: &[(&str, &str)] = &[];

/// tests/flaky.txt lists at most this many stories, none for more days.
const FLAKY_MAX: usize = 5;
const FLAKY_DAYS_MAX: i32 = 14;

/// Names of package registries, in two halves so that this file does not break its own rule. Only the tools' own files
/// name them.
const REGISTRIES: &[&str] = &[
    concat!("crates", ".io"),
    concat!("proxy.golang", ".org"),
    concat!("sum.golang", ".org"),
    concat!("goproxy", ".io"),
    concat!("pypi", ".org"),
    concat!("npmjs", ".org"),
    concat!("deb.debian", ".org"),
];
const REGISTRIES_ALLOWED: &[&str] = &["Cargo.lock", "deny.toml"];
/// Folders of a developer's machine.
const MACHINE: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/")];

/// A file of the project.
struct Source {
    path: PathBuf,
    text: String,
    /// For each line, whether it belongs to tests.
    tests: Vec<bool>,
}

impl Source {
    fn new(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        let (path, text) = (path.into(), text.into());
        let is_test = path.file_stem().is_some_and(|stem| stem == "tests")
            || path.parent().is_some_and(|parent| parent.ends_with("tests") && parent.starts_with("src"));
        let tests = if is_test { vec![true; text.lines().count()] } else { test_lines(&text) };
        Self { path, text, tests }
    }

    /// The number of lines that are not tests.
    fn lines(&self) -> usize {
        self.tests.iter().filter(|is_test| !**is_test).count()
    }

    /// The lines with their numbers, without tests.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().zip(&self.tests).enumerate();
        lines.filter(|(_, (_, is_test))| !**is_test).map(|(index, (line, _))| (index + 1, line))
    }

    /// The same without comments.
    fn statements(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code().filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    /// Every path that begins with `crate::` or `super::`, as names from the root of the crate on, with its line. A
    /// list in braces counts as its members, even over several lines.
    fn paths(&self) -> Vec<(usize, Vec<String>)> {
        let (mut code, mut numbers) = (String::new(), Vec::new());
        for (number, line) in self.statements() {
            numbers.push((code.len(), number));
            code.push_str(line);
            code.push('\n');
        }
        let line_at = |at: usize| numbers[numbers.partition_point(|(start, _)| *start <= at) - 1].1;
        let mut found = Vec::new();
        let mut from = 0;
        while let Some(at) = next_path(&code, from) {
            let mut paths = Vec::new();
            from = at + expand(&code[at..], &[], &mut paths);
            found.extend(paths.into_iter().map(|path| (line_at(at), self.absolute(path))));
        }
        found
    }

    /// A path that begins with `crate` or `super`, from the root of the crate on.
    fn absolute(&self, path: Vec<String>) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        if path.first().is_some_and(|first| first == "super") {
            let inner = self.path.strip_prefix("src").unwrap_or(Path::new("")).with_extension("");
            names.extend(inner.iter().map(|part| part.to_string_lossy().into_owned()));
            names.retain(|name| name != "mod");
        }
        for name in path {
            match name.as_str() {
                "crate" => {}
                "super" => drop(names.pop()),
                _ => names.push(name),
            }
        }
        names
    }

    /// The folder below `src`, or the name of the file in `src`.
    fn module(&self) -> String {
        self.below("src")
    }

    fn below(&self, folder: &str) -> String {
        let inner = self.path.strip_prefix(folder).unwrap_or(Path::new(""));
        let first = inner.components().next().map(|part| part.as_os_str().to_string_lossy().into_owned());
        first.unwrap_or_default().trim_end_matches(".rs").to_owned()
    }

    fn at(&self, line: usize, text: impl std::fmt::Display) -> String {
        format!("{}:{line}: {text}", self.path.display())
    }
}

/// Marks the items under `#[cfg(test)]`. rustfmt puts the brace that ends an item below the item's first word.
fn test_lines(text: &str) -> Vec<bool> {
    let mut marks = Vec::new();
    // The indentation of the item that is skipped, and whether its first line was seen.
    let mut item: Option<(usize, bool)> = None;
    for line in text.lines() {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        if item.is_none() && trimmed == "#[cfg(test)]" {
            item = Some((indent, false));
            marks.push(true);
            continue;
        }
        marks.push(item.is_some());
        item = match item {
            Some((depth, false)) if trimmed.starts_with("#[") || trimmed.starts_with("//") => {
                Some((depth, false))
            }
            Some((_, false)) if trimmed.ends_with([';', ',', '}']) => None,
            Some((depth, false)) => Some((depth, true)),
            Some((depth, true)) if indent == depth && trimmed.starts_with(['}', ']', ')']) => None,
            other => other,
        };
    }
    marks
}

/// The position of the next path that starts with `crate::` or `super::`.
fn next_path(code: &str, from: usize) -> Option<usize> {
    let starts = ["crate::", "super::"].iter().flat_map(|word| code[from..].match_indices(word));
    // The path of a visibility is no import.
    let is_inner = |at: usize| {
        let before = &code[..at];
        before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') || before.ends_with("pub(in ")
    };
    starts.map(|(at, _)| from + at).filter(|at| !is_inner(*at)).min()
}

/// Reads one path, or a list of them in braces, and returns the number of bytes read.
fn expand(text: &str, before: &[String], found: &mut Vec<Vec<String>>) -> usize {
    let skip = |at: usize| at + text[at..].len() - text[at..].trim_start().len();
    let mut path = before.to_vec();
    let mut at = 0;
    loop {
        if text[at..].starts_with('{') {
            at = skip(at + 1);
            while at < text.len() && !text[at..].starts_with('}') {
                at = skip(at + expand(&text[at..], &path, found).max(1));
                at = skip(at + usize::from(text[at..].starts_with(',')));
            }
            return (at + 1).min(text.len());
        }
        let name: String = text[at..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        at += name.len();
        if !name.is_empty() {
            path.push(name);
        }
        if !text[at..].starts_with("::") {
            found.push(path);
            return at;
        }
        at += 2;
    }
}

fn sources(folders: &[&str]) -> Vec<Source> {
    let mut paths = Vec::new();
    for folder in folders {
        collect(Path::new(folder), &mut paths);
    }
    assert!(!paths.is_empty(), "no sources in {folders:?}: the tests run in the root of the project");
    paths.into_iter().map(|path| Source::new(path.clone(), fs::read_to_string(path).unwrap())).collect()
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Everything under version control, as far as it is text.
fn tracked() -> Vec<Source> {
    let listed = Command::new("git").args(["ls-files", "-z"]).output().expect("git lists the tracked files");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8(listed.stdout).unwrap();
    let files = names.split('\0').filter(|name| !name.is_empty());
    files.filter_map(|name| Some(Source::new(name, fs::read_to_string(name).ok()?))).collect()
}

fn assert_none(rule: &str, complaints: &[String]) {
    assert!(complaints.is_empty(), "{rule}:\n  {}", complaints.join("\n  "));
}

/// Complaints about one made-up file.
fn about(rule: fn(&[Source]) -> Vec<String>, path: &str, text: &str) -> usize {
    rule(&[Source::new(path, text)]).len()
}

fn wrong_imports(sources: &[Source]) -> Vec<String> {
    let rank = |module: &str| ORDER.iter().position(|name| *name == module);
    let mut complaints = Vec::new();
    for source in sources.iter().filter(|source| !matches!(source.module().as_str(), "lib" | "main")) {
        let module = source.module();
        let Some(own) = rank(&module) else {
            complaints.push(source.at(1, "a module that ORDER does not know"));
            continue;
        };
        for (number, path) in source.paths() {
            let name = path.first().map_or("", String::as_str);
            if rank(name).is_some_and(|other| other > own) {
                complaints.push(source.at(number, format_args!("{module} imports {name}")));
            }
        }
    }
    complaints
}

#[test]
fn modules_import_only_modules_below_them() {
    assert_none("a module uses a later one in the order", &wrong_imports(&sources(&["src"])));
    assert_eq!(about(wrong_imports, "src/format/x.rs", "use crate::limits;\nuse crate::format::yaml;\n"), 0);
    assert_eq!(about(wrong_imports, "src/format/x.rs", "use crate::kube::Client;\n"), 1);
    assert_eq!(about(wrong_imports, "src/base.rs", "fn f() {\n    crate::app::run();\n}\n"), 1);
    assert_eq!(about(wrong_imports, "src/api/x.rs", "use crate::{base, kube, app};\n"), 2);
    assert_eq!(about(wrong_imports, "src/helpers/x.rs", "\n"), 1);
    let many = "use crate::{\n    base::{clock, stop},\n    kube::{self, Client},\n    app::run,\n};\n";
    assert_eq!(about(wrong_imports, "src/api/x.rs", many), 3);
    assert_eq!(about(wrong_imports, "src/api/x/y.rs", "use super::super::super::app;\n"), 1);
    let tested = "#[cfg(test)]\nuse crate::app;\n\nuse crate::kube;\n";
    assert_eq!(about(wrong_imports, "src/api/x.rs", tested), 1);
}

/// Modules that every controller may use: the list of all controllers, and shared code.
const SHARED_BY_CONTROLLERS: &[&str] = &["mod", "site", "charts"];

fn controllers_that_meet(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources {
        let own = source.below("src/controllers");
        if own.is_empty() || SHARED_BY_CONTROLLERS.contains(&own.as_str()) {
            continue;
        }
        for (number, path) in source.paths() {
            if let [first, name, _, ..] = path.as_slice()
                && first == "controllers"
                && *name != own
                && !SHARED_BY_CONTROLLERS.contains(&name.as_str())
            {
                complaints.push(source.at(number, format_args!("controller {own} imports {name}")));
            }
        }
    }
    complaints
}

#[test]
fn controllers_do_not_import_each_other() {
    assert_none("controllers meet in the API only", &controllers_that_meet(&sources(&["src"])));
    let line = "use crate::controllers::seed::decide;\n";
    assert_eq!(about(controllers_that_meet, "src/controllers/seed/act.rs", line), 0);
    assert_eq!(about(controllers_that_meet, "src/controllers/seed_care/act.rs", line), 1);
    assert_eq!(about(controllers_that_meet, "src/controllers/mod.rs", line), 0);
    assert_eq!(about(controllers_that_meet, "src/controllers/lease/mod.rs", "use super::seed::Agent;\n"), 1);
    assert_eq!(about(controllers_that_meet, "src/controllers/lease/mod.rs", "use super::site::Site;\n"), 0);
}

fn silent_files(sources: &[Source]) -> Vec<String> {
    let is_tests = |source: &&Source| source.path.file_name() != Some("tests.rs".as_ref());
    let silent = sources.iter().filter(is_tests).filter(|source| !source.text.starts_with("//! "));
    silent.map(|source| source.at(1, "no module comment")).collect()
}

#[test]
fn files_start_with_a_module_comment() {
    assert_none("a file starts with its purpose", &silent_files(&sources(&["src", "tests"])));
    assert_eq!(about(silent_files, "src/x.rs", "//! What it is for.\n"), 0);
    assert_eq!(about(silent_files, "src/x.rs", "use std::fs;\n"), 1);
}

fn long_code(sources: &[Source]) -> Vec<String> {
    let is_allowed = |name: &str| LONG.iter().any(|(allowed, reason)| *allowed == name && !reason.is_empty());
    let mut complaints = Vec::new();
    for source in sources {
        let path = source.path.display().to_string();
        if source.lines() > FILE_LINES_MAX && !is_allowed(&path) {
            complaints.push(source.at(1, format_args!("{} lines without tests", source.lines())));
        }
        for (start, end, name) in functions(source) {
            let length = end - start + 1;
            if length > FUNCTION_LINES_MAX && !is_allowed(&format!("{path}:fn {name}")) {
                complaints.push(source.at(start, format_args!("fn {name} has {length} lines")));
            }
        }
    }
    complaints
}

/// First line, last line and name of each function. rustfmt puts the brace that closes it below its first word.
fn functions(source: &Source) -> Vec<(usize, usize, String)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, usize, String)> = None;
    for (number, line) in source.code() {
        let indent = line.len() - line.trim_start().len();
        match &open {
            Some((start, depth, name)) if indent == *depth && line.trim_start().starts_with('}') => {
                found.push((*start, number, name.clone()));
                open = None;
            }
            Some(_) => {}
            None if line.ends_with(['}', ';']) => {}
            None => open = function_name(line).map(|name| (number, indent, name)),
        }
    }
    found
}

fn function_name(line: &str) -> Option<String> {
    let mut words = line.split_whitespace().skip_while(|word| {
        matches!(*word, "pub" | "const" | "unsafe" | "async") || word.starts_with("pub(") || *word == "super)"
    });
    let rest = words.next().filter(|word| *word == "fn").and(words.next())?;
    Some(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
}

#[test]
fn functions_and_files_are_short() {
    assert_none("functions have at most 70 lines, files 500 without tests", &long_code(&sources(&["src"])));
    let function =
        |lines: usize| format!("    pub(super) fn f() {{\n{}    }}\n", "        g();\n".repeat(lines - 2));
    assert_eq!(about(long_code, "src/x.rs", &function(70)), 0);
    assert_eq!(about(long_code, "src/x.rs", &function(71)), 1);
    assert_eq!(about(long_code, "src/x.rs", &format!("{}{}", function(71), function(71))), 2);
    assert_eq!(about(long_code, "src/x.rs", &"\n".repeat(500)), 0);
    assert_eq!(about(long_code, "src/x.rs", &"\n".repeat(501)), 1);
    let tests = |lines: usize| format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(lines));
    assert_eq!(about(long_code, "src/x.rs", &tests(501)), 0);
    assert_eq!(about(long_code, "src/x.rs", &format!("{}{}", tests(1), "\n".repeat(501))), 1);
    assert_eq!(about(long_code, "src/x.rs", &format!("#[cfg(test)]\nmod tests;\n{}", "\n".repeat(501))), 1);
    assert_eq!(about(long_code, "src/x.rs", &format!("{}{}", tests(1), function(71))), 1);
    assert_eq!(about(long_code, "src/x/tests.rs", &"\n".repeat(501)), 0);
}

fn mixed_modules(sources: &[Source]) -> Vec<String> {
    let has_folder = |source: &&Source| {
        let folder = source.path.with_extension("");
        sources.iter().any(|other| other.path != source.path && other.path.starts_with(&folder))
    };
    sources
        .iter()
        .filter(has_folder)
        .map(|source| source.at(1, "move it into its folder, as mod.rs"))
        .collect()
}

#[test]
fn a_module_with_a_folder_begins_in_its_mod_rs() {
    assert_none("one style of modules: x/mod.rs", &mixed_modules(&sources(&["src"])));
    let files = |paths: &[&str]| paths.iter().map(|path| Source::new(*path, "//! X.\n")).collect::<Vec<_>>();
    assert_eq!(mixed_modules(&files(&["src/x.rs", "src/x/y.rs"])).len(), 1);
    assert_eq!(mixed_modules(&files(&["src/x/mod.rs", "src/x/y.rs", "src/xy.rs"])).len(), 0);
}

fn network_crates(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources.iter().filter(|source| source.module() != "net") {
        for (number, line) in source.statements() {
            for name in ["ureq::", "rustls::"] {
                let mut before = line.match_indices(name).map(|(at, _)| line[..at].chars().next_back());
                if before.any(|c| !c.is_some_and(|c| c.is_alphanumeric() || c == '_')) {
                    complaints.push(source.at(number, name));
                }
            }
        }
    }
    complaints
}

#[test]
fn network_crates_are_named_only_in_net() {
    assert_none("only src/net may name ureq and rustls", &network_crates(&sources(&["src"])));
    assert_eq!(about(network_crates, "src/net/tls.rs", "use rustls::ClientConfig;\n"), 0);
    assert_eq!(about(network_crates, "src/kube/client.rs", "use rustls::ClientConfig;\n"), 1);
    assert_eq!(about(network_crates, "src/kube/client.rs", "    ureq::get(url);\n"), 1);
}

fn weak_tests(sources: &[Source]) -> Vec<String> {
    let words = [concat!("#[ig", "nore"), concat!("#[should", "_panic")];
    let mut complaints = Vec::new();
    for source in sources {
        for (index, line) in source.text.lines().enumerate() {
            if words.iter().any(|word| line.contains(word)) {
                complaints.push(source.at(index + 1, line.trim()));
            }
        }
    }
    complaints
}

#[test]
fn no_test_is_ignored_or_expects_a_panic() {
    assert_none("no ignored tests, no expected panics", &weak_tests(&sources(&["src", "tests"])));
    assert_eq!(about(weak_tests, "src/x.rs", concat!("#[test]\n#[ig", "nore]\nfn f() {}\n")), 1);
    assert_eq!(about(weak_tests, "src/x.rs", concat!("#[test]\n#[should", "_panic(expected = \"x\")]\n")), 1);
}

/// Wrong lines of the list of stories that have failed by chance; `today` is a Julian day.
fn flaky_complaints(list: &str, today: i32) -> Vec<String> {
    let lines: Vec<&str> = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let mut complaints = Vec::new();
    if lines.len() > FLAKY_MAX {
        complaints.push(format!("{} stories, at most {FLAKY_MAX}", lines.len()));
    }
    for line in lines {
        let parts: Vec<&str> = line.split(" | ").collect();
        let [lane, name, date, cause] = parts.as_slice() else {
            complaints.push(format!("not LANE | NAME | DATE | CAUSE: {line}"));
            continue;
        };
        let is_complete = [lane, name, cause].iter().all(|part| !part.is_empty());
        match julian_day(date).filter(|_| is_complete) {
            None => complaints.push(format!("no lane, name, date (2026-01-31) or cause: {line}")),
            Some(day) if !(0..=FLAKY_DAYS_MAX).contains(&(today - day)) => {
                complaints.push(format!("older than {FLAKY_DAYS_MAX} days, or of tomorrow: {line}"));
            }
            Some(_) => {}
        }
    }
    complaints
}

fn julian_day(date: &str) -> Option<i32> {
    let [year, month, day] = date.split('-').collect::<Vec<_>>().try_into().ok()?;
    let month = time::Month::try_from(month.parse::<u8>().ok()?).ok()?;
    Some(time::Date::from_calendar_date(year.parse().ok()?, month, day.parse().ok()?).ok()?.to_julian_day())
}

#[test]
fn few_stories_fail_by_chance_and_none_for_long() {
    let today = time::OffsetDateTime::now_utc().date().to_julian_day();
    let list = fs::read_to_string("tests/flaky.txt").unwrap();
    assert_none("stories that fail by chance are mended soon", &flaky_complaints(&list, today));
    let today = julian_day("2026-11-27").unwrap();
    let line = |date: &str| format!("it | story_a::b | {date} | unknown: 3 of 4\n");
    for date in ["2026-11-27", "2026-11-13"] {
        assert_eq!(flaky_complaints(&line(date), today), Vec::<String>::new());
    }
    for wrong in
        [&line("2026-11-12"), &line("2026-11-28"), &line("27 November"), "it | a | 2026-11-27 | ", "it a"]
    {
        assert_eq!(flaky_complaints(wrong, today).len(), 1, "{wrong}");
    }
    assert_eq!(flaky_complaints(&line("2026-11-27").repeat(FLAKY_MAX + 1), today).len(), 1);
}

fn foreign_names(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources {
        let may_name_registries = REGISTRIES_ALLOWED.iter().any(|allowed| source.path == Path::new(allowed));
        for (index, line) in source.text.lines().enumerate() {
            let registry = REGISTRIES.iter().find(|name| !may_name_registries && line.contains(**name));
            let folder = MACHINE.iter().find(|folder| names_folder(line, folder));
            if let Some(name) = registry.or(folder) {
                complaints.push(source.at(index + 1, name));
            }
        }
    }
    complaints
}

/// Whether `folder` is in the line, as an absolute path.
fn names_folder(line: &str, folder: &str) -> bool {
    let is_inner = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '}' | ')');
    line.match_indices(folder).any(|(at, _)| !line[..at].ends_with(is_inner))
}

#[test]
fn no_file_names_registries_or_folders_of_one_machine() {
    assert_none("the project must not depend on one machine", &foreign_names(&tracked()));
    let registry = REGISTRIES[0];
    assert_eq!(about(foreign_names, "README.md", &format!("see https://{registry}/x\n")), 1);
    assert_eq!(about(foreign_names, "Cargo.lock", &format!("source = \"registry+https://{registry}\"\n")), 0);
    assert_eq!(about(foreign_names, "tests/run", &format!("cd {}main\n", MACHINE[0])), 1);
    assert_eq!(about(foreign_names, "Cargo.lock", &format!("{}x\n", MACHINE[1])), 1);
    assert_eq!(about(foreign_names, "tests/run", &format!("cd \"$dir{}main\"\n", MACHINE[0])), 0);
}

/// The linked dependencies, on every target or on one of them.
fn dependencies(manifest: &str) -> Vec<&str> {
    let is_linked = |table: &str| table == "dependencies" || table.ends_with(".dependencies");
    let mut found = Vec::new();
    for section in manifest.split("\n[").skip(1) {
        let (table, lines) = section.split_once("]\n").unwrap_or((section, ""));
        let named = lines.lines().filter(|line| line.contains('=') && !line.starts_with('#'));
        found.extend(
            named.filter(|_| is_linked(table)).map(|line| line.split([' ', '=', '.']).next().unwrap()),
        );
    }
    found.sort_unstable();
    found
}

#[test]
fn dependencies_are_the_agreed_ones() {
    assert_eq!(dependencies(&fs::read_to_string("Cargo.toml").unwrap()), DEPENDENCIES);
    let sample = "[package]\nname = \"x\"\n\n[dependencies]\n# Why = because.\nb = \"1\"\na.version = \"2\"\n\n[lints]\nc = 1\n\n\
        [target.'cfg(unix)'.dependencies]\nd = \"1\"\n\n[dev-dependencies]\ne = \"1\"\n\n[build-dependencies]\nf = \"1\"\n";
    assert_eq!(dependencies(sample), ["a", "b", "d"]);
}

fn names_version(changelog: &str, version: &str) -> bool {
    let mut headings = changelog.lines().filter_map(|line| line.strip_prefix("## "));
    headings.any(|heading| {
        heading.split([' ', '[', ']', ',']).any(|word| word.trim_start_matches('v') == version)
    })
}

#[test]
fn the_changelog_names_the_version() {
    let changelog = fs::read_to_string("CHANGELOG.md").expect("there is a CHANGELOG.md");
    let version = env!("CARGO_PKG_VERSION");
    assert!(names_version(&changelog, version), "no {version}");
    assert!(names_version("# Changelog\n## [0.2.0] 2026-11-21\n", "0.2.0"));
    assert!(!names_version("# Changelog 0.2.0\n## 0.2.01\nabout 0.2.0\n", "0.2.0"));
}

/// The name by which a link finds a heading: as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>().replace(' ', "-")
}

/// The anchors of a document; a heading that is there again gets a number.
fn anchors(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut is_block = false;
    for line in text.lines() {
        is_block ^= line.trim_start().starts_with("```");
        if line.starts_with('#') && !is_block {
            let name = anchor(line);
            let numbered = (1..).map(|n| format!("{name}-{n}"));
            let free = std::iter::once(name.clone()).chain(numbered).find(|name| !found.contains(name));
            found.extend(free);
        }
    }
    found
}

/// Relative links with their lines. Code has none.
fn links(source: &Source) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut is_block = false;
    for (index, line) in source.text.lines().enumerate() {
        is_block ^= line.trim_start().starts_with("```");
        let prose: String = line.split('`').step_by(2).collect();
        let targets = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        let targets = targets.map(|(target, _)| target.to_owned());
        found.extend(targets.filter(|target| !is_block && !target.contains("://")).map(|to| (index + 1, to)));
    }
    found
}

/// Links in documents whose file or heading does not exist.
fn dead_links(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources.iter().filter(|source| source.path.extension().is_some_and(|e| e == "md")) {
        for (number, link) in links(source) {
            let (file, place) = link.split_once('#').unwrap_or((&link, ""));
            let path = source.path.parent().unwrap_or(Path::new("")).join(file);
            let target = if file.is_empty() { Ok(source.text.clone()) } else { fs::read_to_string(&path) };
            match target {
                _ if place.is_empty() && path.exists() => {}
                Ok(text) if anchors(&text).iter().any(|anchor| anchor == place) => {}
                Ok(_) => complaints.push(source.at(number, format_args!("no heading for {link}"))),
                Err(_) => complaints.push(source.at(number, format_args!("no file for {link}"))),
            }
        }
    }
    complaints
}

#[test]
fn links_of_documents_lead_somewhere() {
    assert_none("a link leads to a file and a heading", &dead_links(&tracked()));
    let text = "# A `b`: c\n\n## A `b`: c\n[x](#a-b-c) [x](#a-b-c-1) [x](docs/README.md) [x](docs)\n";
    assert_eq!(about(dead_links, "x.md", text), 0);
    assert_eq!(about(dead_links, "docs/README.md", "[x](../README.md) [x](https://example.org/x)\n"), 0);
    assert_eq!(about(dead_links, "x.md", "# A\n[x](#b) [x](nothing.md) [x](README.md#nothing)\n"), 3);
    assert_eq!(about(dead_links, "docs/README.md", "[x](docs/README.md)\n"), 1);
    assert_eq!(about(dead_links, "x.md", "`[x](no.md)`\n```\n[x](no.md)\n# A\n```\n[x](#a)\n"), 1);
}

/// Documents that code, comments or other documents name by their path, and that do not exist.
fn lost_documents(sources: &[Source]) -> Vec<String> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let mut complaints = Vec::new();
    for source in sources {
        for (index, line) in source.text.lines().enumerate() {
            let words = line.split(|c| !is_of_name(c)).map(|word| word.trim_end_matches('.'));
            let named = words.filter(|word| word.starts_with("docs/") && word.ends_with(".md"));
            let lost = named.filter(|word| !Path::new(word).exists() && !beside(source, word).exists());
            complaints.extend(lost.map(|word| source.at(index + 1, word)));
        }
    }
    complaints
}

fn beside(source: &Source, name: &str) -> PathBuf {
    source.path.parent().unwrap_or(Path::new("")).join(name)
}

#[test]
fn documents_that_are_named_exist() {
    assert_none("the document of a comment exists", &lost_documents(&tracked()));
    assert_eq!(about(lost_documents, "src/x.rs", "// See `docs/README.md`.\n"), 0);
    assert_eq!(about(lost_documents, "src/x.rs", concat!("// See docs/", "nothing.md.\n")), 1);
}

/// Documents of a folder that its README does not link to.
fn unlisted_documents(sources: &[Source]) -> Vec<String> {
    let is_document = |source: &&Source| {
        source.path.starts_with("docs") && source.path.extension().is_some_and(|extension| extension == "md")
    };
    let mut complaints = Vec::new();
    for source in sources.iter().filter(is_document).filter(|source| !source.path.ends_with("README.md")) {
        let index = source.path.with_file_name("README.md");
        let index = sources.iter().find(|other| other.path == index);
        let name = source.path.file_name().unwrap().to_string_lossy();
        let is_listed = index.is_some_and(|index| links(index).iter().any(|(_, link)| *link == name));
        complaints.extend((!is_listed).then(|| source.at(1, "the README of its folder does not list it")));
    }
    complaints
}

#[test]
fn every_document_is_in_the_index_of_its_folder() {
    assert_none("readers find each document", &unlisted_documents(&tracked()));
    let files =
        |index: &str| [Source::new("docs/README.md", index), Source::new(concat!("docs/", "x.md"), "# X\n")];
    assert_eq!(unlisted_documents(&files("[x](x.md)\n")).len(), 0);
    assert_eq!(unlisted_documents(&files("x.md\n")).len(), 1);
}
