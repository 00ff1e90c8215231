//! `--output-dir`: a file for each template, as Helm writes them.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use crate::base::sorted::SortedSet;
use crate::chart::render::Rendered;

/// The folders for the files.
pub(super) struct OutputFolders {
    pub(super) folder: PathBuf,
    /// The folder for everything but CRDs. `--release-name` puts it below the other one.
    pub(super) objects: PathBuf,
}

/// Writes the rendered documents, and prints the file of each one.
pub(super) fn write(
    rendered: &Rendered,
    include_crds: bool,
    target: &OutputFolders,
    wrote: &mut dyn FnMut(&Path),
) -> Result<(), String> {
    let mut written = SortedSet::new();
    let crds = rendered.crds.iter().filter(|_| include_crds);
    for (path, data) in crds {
        let is_new = written.insert(path.clone());
        document(&target.folder, path, &String::from_utf8_lossy(data), !is_new, wrote)?;
    }
    for object in &rendered.manifests.objects {
        let is_new = written.insert(object.path.clone());
        document(&target.objects, &object.path, &object.text, !is_new, wrote)?;
    }
    for hook in &rendered.manifests.hooks {
        // As in Helm, documents are also appended to files of an earlier run.
        let is_there = target.objects.join(&hook.path).exists();
        document(&target.objects, &hook.path, &hook.text, is_there, wrote)?;
    }
    Ok(())
}

fn document(
    folder: &Path,
    name: &str,
    text: &str,
    appends: bool,
    wrote: &mut dyn FnMut(&Path),
) -> Result<(), String> {
    if !Path::new(name).components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(format!(
            "{name} leads out of {}: the chart's name is no name of a folder",
            folder.display()
        ));
    }
    let path = folder.join(name);
    let failed =
        |doing: &str, path: &Path, error: &io::Error| failure(doing, &path.display().to_string(), error);
    if let Some(parent) = path.parent() {
        match parent.metadata() {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(format!("mkdir {}: not a directory", parent.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(parent).map_err(|error| failed("mkdir", parent, &error))?;
            }
            Err(error) => return Err(failed("stat", parent, &error)),
        }
    }
    let mut options = OpenOptions::new();
    let options = match appends {
        true => options.append(true),
        false => options.write(true).create(true).truncate(true),
    };
    let mut file = options.open(&path).map_err(|error| failed("open", &path, &error))?;
    file.write_all(format!("---\n# Source: {name}\n{text}\n").as_bytes())
        .map_err(|error| failed("write", &path, &error))?;
    wrote(&path);
    Ok(())
}

/// Prints an error of the system as a Go program does: `open x: no such file or directory`.
pub(super) fn failure(doing: &str, path: &str, error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_ascii_lowercase());
    format!("{doing} {path}: {}{}", first.into_iter().collect::<String>(), chars.as_str())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::random;
    use crate::chart::TextSlice;
    use crate::chart::manifest::Manifest;

    fn manifest(path: &str, text: &str) -> Manifest {
        let (path, text) = (path.to_owned(), TextSlice::from(text));
        Manifest { path, text, object: serde_json::Value::Null, kind: String::new(), is_test: false }
    }

    #[test]
    fn each_template_has_its_file() {
        let folder = std::env::temp_dir().join(format!("gardenlet-files-{}", random::hex(12)));
        let mut rendered = Rendered::default();
        rendered.crds.push(("c/crds/x.yaml".to_owned(), Arc::from(&b"crd: 1\n"[..])));
        rendered.manifests.objects =
            vec![manifest("c/templates/a.yaml", "a: 1"), manifest("c/templates/a.yaml", "a: 2")];
        rendered.manifests.hooks =
            vec![manifest("c/templates/a.yaml", "h: 1"), manifest("c/templates/h.yaml", "h: 2")];
        let target = OutputFolders { objects: folder.join("rel"), folder: folder.clone() };
        let run = |crds: bool| {
            let mut wrote = Vec::new();
            write(&rendered, crds, &target, &mut |path| {
                wrote.push(path.strip_prefix(&folder).unwrap().display().to_string());
            })
            .unwrap();
            wrote.join(" ")
        };
        let objects =
            "rel/c/templates/a.yaml rel/c/templates/a.yaml rel/c/templates/a.yaml rel/c/templates/h.yaml";
        assert_eq!(run(false), objects);
        assert_eq!(run(true), format!("c/crds/x.yaml {objects}"));
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(read("c/crds/x.yaml"), "---\n# Source: c/crds/x.yaml\ncrd: 1\n\n");
        let source = "---\n# Source: c/templates/";
        let expected = format!("{source}a.yaml\na: 1\n{source}a.yaml\na: 2\n{source}a.yaml\nh: 1\n");
        assert_eq!(read("rel/c/templates/a.yaml"), expected);
        assert_eq!(read("rel/c/templates/h.yaml"), format!("{source}h.yaml\nh: 2\n").repeat(2), "as Helm");

        rendered.manifests.objects = vec![manifest("../c/templates/a.yaml", "a: 1")];
        let error = write(&rendered, false, &target, &mut |_| {}).unwrap_err();
        assert!(error.starts_with("../c/templates/a.yaml leads out of "), "{error}");
        rendered.manifests.objects = vec![manifest("c/templates/a.yaml/b", "a: 1")];
        let error = write(&rendered, false, &target, &mut |_| {}).unwrap_err();
        assert!(error.starts_with("mkdir ") && error.ends_with("a.yaml: not a directory"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
