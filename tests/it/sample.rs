//! The sample of tests for runs without time for all of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The tests of a file, as the test program names them.
fn tests_of(module: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_test = false;
    for line in text.lines() {
        if line == "#[test]" {
            is_test = true;
        } else if let Some((name, _)) = line.strip_prefix("fn ").and_then(|rest| rest.split_once('('))
            && std::mem::take(&mut is_test)
        {
            found.push(format!("{module}::{name}"));
        }
    }
    found
}

/// The problems of a sample: tests that do not exist, and modules without a test in the sample that it does not leave
/// out either.
fn complaints(
    (sample, left_out): (&BTreeSet<&str>, &BTreeSet<&str>),
    modules: &[(String, Vec<String>)],
) -> Vec<String> {
    let all: BTreeSet<&str> = modules.iter().flat_map(|(_, tests)| tests).map(String::as_str).collect();
    let unknown = sample.difference(&all).map(|name| format!("no test {name}"));
    let names: BTreeSet<&str> = modules.iter().map(|(module, _)| module.as_str()).collect();
    let gone = left_out.difference(&names).map(|name| format!("no file {name}"));
    let is_missing =
        |tests: &[String]| !tests.is_empty() && !tests.iter().any(|test| sample.contains(test.as_str()));
    let missing =
        modules.iter().filter(|(module, tests)| is_missing(tests) && !left_out.contains(module.as_str()));
    unknown.chain(gone).chain(missing.map(|(module, _)| format!("no test of {module}"))).collect()
}

/// The files that a sample leaves out: `#! FILE: why`.
fn left_out(text: &str) -> BTreeSet<&str> {
    let names = text.lines().filter_map(|line| line.strip_prefix("#! ")?.split_once(": "));
    names.map(|(name, _)| name).collect()
}

fn lines(text: &str) -> BTreeSet<&str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

#[test]
fn every_file_of_tests_is_in_the_sample_for_musl() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let mut modules = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            let module = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let tests = tests_of(&module, &fs::read_to_string(&path).unwrap());
            modules.push((module, tests));
        }
    }
    assert!(modules.len() > 20, "{}", modules.len());
    let text = include_str!("musl.txt");
    assert_eq!(complaints((&lines(text), &left_out(text)), &modules), Vec::<String>::new());
}

#[test]
fn a_sample_that_lacks_a_file_is_noticed() {
    let text = "fn help() {}\n#[test]\n#[cfg(unix)]\nfn first() {}\n#[test]\nfn second() {}\n";
    assert_eq!(tests_of("a", text), ["a::first", "a::second"]);
    let modules = [
        ("a".to_owned(), tests_of("a", text)),
        ("b".to_owned(), tests_of("b", text)),
        ("c".to_owned(), vec![]),
    ];
    let text = "# a comment\n\na::second\na::third\n";
    let found = complaints((&lines(text), &left_out(text)), &modules);
    assert_eq!(found, ["no test a::third", "no test of b"]);
    let text = "#! b: its code is that of a\n#! d: x\n";
    assert_eq!(complaints((&lines(text), &left_out(text)), &modules), ["no file d", "no test of a"]);
}
