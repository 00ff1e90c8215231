//! The walk in ARCHITECTURE.md names functions that exist, and components are named in few places.

use std::fs;

use super::{Source, assert_none, sources};

/// A row of a table in the walk: a file and a function in it.
fn station(row: &str) -> Option<(&str, &str)> {
    let mut cells = row.strip_prefix("| `")?.split("` | `");
    let (file, rest) = (cells.next()?, cells.next()?);
    let function = rest.split("` |").next()?;
    file.starts_with("src/").then_some((file, function))
}

fn defines(text: &str, function: &str) -> bool {
    let definition = format!("fn {function}");
    text.match_indices(&definition).any(|(at, _)| text[at + definition.len()..].starts_with(['(', '<']))
}

fn lost(walk: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let is_lost = |(file, function): &(&str, &str)| !read(file).is_some_and(|text| defines(&text, function));
    let stations = walk.lines().filter_map(station).filter(is_lost);
    stations.map(|(file, function)| format!("{file} has no function {function}")).collect()
}

#[test]
fn the_walk_names_what_exists() {
    let document = fs::read_to_string("ARCHITECTURE.md").expect("the file is there");
    let walk = document.split("\n## ").find(|section| section.starts_with("A walk ")).expect("a section");
    assert!(walk.lines().filter_map(station).count() >= 20, "the tables have the expected form");
    assert_none("the walk has lost its way", &lost(walk, |file| fs::read_to_string(file).ok()));
    let read = |file: &str| (file == "src/a.rs").then(|| "fn ab() {}\npub fn b<T>(t: T) {}\n".to_owned());
    let row = |file: &str, function: &str| format!("| `{file}` | `{function}` | text |\n");
    assert_eq!(lost(&row("src/a.rs", "b"), read).len(), 0);
    assert_eq!(lost(&row("src/a.rs", "a"), read).len(), 1);
    assert_eq!(lost(&row("src/b.rs", "b"), read).len(), 1);
}

/// The texts of tasks name it as upstream does, and `explain` knows it as the owner of finalizers.
const NAMED_IN: [&str; 3] =
    ["src/cli/explain/finalizers.rs", "src/operation/create/mod.rs", "src/operation/delete/mod.rs"];

/// The files outside of its own folder that name a component.
fn naming(component: &str, sources: &[Source]) -> Vec<String> {
    let folder = component.replace('-', "_");
    let is_other = |source: &&Source| !source.path.iter().any(|part| *part == *folder);
    let is_test =
        |source: &Source| source.path.ends_with("tests.rs") || source.path.iter().any(|part| part == "tests");
    let names = |source: &&Source| {
        let code = source.text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        !is_test(source) && code.contains(component)
    };
    let found = sources.iter().filter(is_other).filter(names);
    found.map(|source| source.path.display().to_string()).collect()
}

#[test]
fn a_component_is_named_in_its_folder() {
    let mut found = naming("kube-controller-manager", &sources(&["src"]));
    found.retain(|file| !NAMED_IN.contains(&file.as_str()));
    assert_none("a file names kube-controller-manager: let it loop over COMPONENTS", &found);
    let made = [
        Source::new("src/a.rs", "\"kube-x\"\n#[cfg(test)]\nmod tests {}\n"),
        Source::new("src/b.rs", "a\n#[cfg(test)]\nmod tests { \"kube-x\" }\n"),
        Source::new("src/kube_x/mod.rs", "kube-x"),
    ];
    assert_eq!(naming("kube-x", &made), ["src/a.rs"]);
}
