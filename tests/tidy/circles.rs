//! Circles of files inside each room: files that import each other, directly or through others.

use std::collections::{BTreeMap, BTreeSet};

use super::{Source, assert_none, sources};

/// The files of the largest circle of each room. A number may only become smaller, and a room that is not listed has no circle
/// of more than two files.
const LARGEST: &[(&str, usize)] = &[
    ("app", 13),
    ("chart", 10),
    ("cli", 6),
    ("config", 3),
    ("controllers", 4),
    ("kube", 9),
    ("net", 4),
    ("oci", 3),
    ("operation", 3),
    ("pki", 5),
    ("resources", 13),
    ("runtime", 4),
    ("secrets", 4),
    ("serve", 3),
    ("shoot", 3),
];

/// A file by the names of its modules.
type File = Vec<String>;

fn file_of(source: &Source) -> File {
    let inner = source.path.strip_prefix("src").unwrap_or(&source.path).with_extension("");
    let mut names: File = inner.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    names.retain(|name| name != "mod");
    names
}

/// The files from which a file imports: paths that begin with `crate::` or `super::`, and `use` of its own modules. A call of a
/// function in an own module is no import.
fn named(source: &Source, own: &File, files: &BTreeSet<File>) -> BTreeSet<File> {
    let longest =
        |path: &[String]| (1..=path.len()).rev().map(|n| path[..n].to_vec()).find(|p| files.contains(p));
    let mut found: BTreeSet<File> = source.paths().iter().filter_map(|(_, path)| longest(path)).collect();
    let imported = |line: &str| {
        let path =
            line.split_once("use ").filter(|(before, _)| before.is_empty() || before.starts_with("pub"))?.1;
        let child = [own.as_slice(), &[path.split("::").next()?.to_owned()]].concat();
        Some(child).filter(|child| files.contains(child))
    };
    found.extend(source.statements().filter_map(|(_, line)| imported(line)));
    found.remove(own);
    found
}

/// Everything that can be reached from each file.
fn reachable(edges: &BTreeMap<File, BTreeSet<File>>) -> BTreeMap<&File, BTreeSet<&File>> {
    let from = |start| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![start]);
        while let Some(file) = open.pop() {
            open.extend(edges.get(file).into_iter().flatten().filter(|next| seen.insert(*next)));
        }
        seen
    };
    edges.keys().map(|file| (file, from(file))).collect()
}

/// The largest circle of each room.
fn largest(sources: &[Source]) -> BTreeMap<String, BTreeSet<String>> {
    let mut rooms: BTreeMap<String, Vec<(&Source, File)>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.lines() > 0) {
        rooms.entry(source.module()).or_default().push((source, file_of(source)));
    }
    let mut found = BTreeMap::new();
    for (room, members) in rooms {
        let files: BTreeSet<File> = members.iter().map(|(_, file)| file.clone()).collect();
        let edges =
            members.iter().map(|(source, file)| (file.clone(), named(source, file, &files))).collect();
        let reach = reachable(&edges);
        let circle = |file: &File| {
            let back = |other: &&File| reach.get(other).is_some_and(|all| all.contains(file));
            reach[file].iter().copied().filter(back).map(|file| file.join("/")).collect::<BTreeSet<String>>()
        };
        let circle = edges.keys().map(circle).max_by_key(BTreeSet::len).unwrap_or_default();
        if circle.len() > 2 {
            found.insert(room, circle);
        }
    }
    found
}

fn larger_than_allowed(sources: &[Source], allowed: &[(&str, usize)]) -> Vec<String> {
    let mut found = largest(sources);
    let mut complaints = Vec::new();
    for (room, size) in allowed {
        match found.remove(*room) {
            Some(circle) if circle.len() > *size => {
                complaints.push(format!("{room}: {} files instead of {size}: {circle:?}", circle.len()));
            }
            Some(circle) if circle.len() == *size => {}
            other => {
                let size = other.map_or(0, |circle| circle.len());
                complaints.push(format!("{room}: only {size} files now: write this number into LARGEST"));
            }
        }
    }
    complaints.extend(found.into_iter().map(|(room, circle)| format!("{room}: {circle:?}")));
    complaints
}

#[test]
fn circles_of_files_only_shrink() {
    assert_none("files import each other", &larger_than_allowed(&sources(&["src"]), LARGEST));
    let files = |texts: [&str; 3]| {
        let paths = ["src/a/mod.rs", "src/a/b.rs", "src/a/c/mod.rs"];
        paths.into_iter().zip(texts).map(|(path, text)| Source::new(path, text)).collect::<Vec<Source>>()
    };
    let none = files(["mod b;\npub use b::g;\n", "use super::c::h;\n", "fn h() {}\n"]);
    assert_eq!(larger_than_allowed(&none, &[]).len(), 0);
    let called = files(["mod b;\nfn f() { b::g() }\n", "use super::c::h;\n", "use crate::a::f;\n"]);
    assert_eq!(larger_than_allowed(&called, &[]).len(), 0);
    let circle = files(["mod b;\npub(crate) use b::g;\n", "use super::c::h;\n", "use crate::a::f;\n"]);
    assert_eq!(larger_than_allowed(&circle, &[]).len(), 1);
    assert_eq!(larger_than_allowed(&circle, &[("a", 3)]).len(), 0);
    assert_eq!(larger_than_allowed(&circle, &[("a", 4)]).len(), 1);
    assert_eq!(larger_than_allowed(&none, &[("a", 3)]).len(), 1);
}
