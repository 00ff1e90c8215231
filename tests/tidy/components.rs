//! Components that import each other. What two of them need belongs to a file beside their folders.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Source, assert_none, sources};

/// The folders in which each folder is a component.
const ROOTS: [&str; 2] = ["src/components", "src/operation/components"];

/// The component that a file belongs to: the folder of components, and the component's own.
fn component(path: &Path) -> Option<(&'static str, PathBuf)> {
    ROOTS.into_iter().find_map(|root| {
        let mut inner = path.strip_prefix(root).ok()?.components();
        let name = inner.next()?;
        inner.next().map(|_| (root, Path::new(root).join(name)))
    })
}

fn components_that_meet(sources: &[Source]) -> Vec<String> {
    let all: BTreeSet<PathBuf> =
        sources.iter().filter_map(|source| Some(component(&source.path)?.1)).collect();
    let mut complaints = Vec::new();
    for source in sources {
        let Some((root, own)) = component(&source.path) else { continue };
        for (number, path) in source.paths() {
            let imported = Path::new("src").join(path.iter().collect::<PathBuf>());
            let other = all.iter().find(|other| imported.starts_with(other) && other.starts_with(root));
            if let Some(other) = other.filter(|other| **other != own) {
                complaints.push(source.at(number, format_args!("imports {}", other.display())));
            }
        }
    }
    complaints
}

#[test]
fn components_do_not_import_each_other() {
    assert_none("a component imports another one", &components_that_meet(&sources(&["src"])));
    let complaints = |path: &str, text: &str| {
        let others = ["src/operation/components/etcd/mod.rs", "src/components/crds/mod.rs"];
        let files = others.into_iter().map(|other| Source::new(other, ""));
        components_that_meet(&files.chain([Source::new(path, text)]).collect::<Vec<_>>()).len()
    };
    let path = "src/operation/components/access/tasks.rs";
    assert_eq!(complaints(path, "use super::super::etcd::Role;\n"), 1);
    assert_eq!(complaints(path, "use crate::operation::components::{etcd::{Role, druid}, pods};\n"), 2);
    assert_eq!(complaints(path, "use super::super::workload::Workload;\nuse super::super::etcds;\n"), 0);
    assert_eq!(complaints(path, "use super::Input;\nuse crate::components::crds;\n"), 0);
    assert_eq!(complaints("src/operation/components/etcd/tasks.rs", "use super::druid;\n"), 0);
    assert_eq!(complaints("src/operation/components/workload.rs", "use super::etcd::Role;\n"), 0);
    assert_eq!(complaints("src/components/left/mod.rs", "use super::crds;\n"), 1);
}
