//! The packed manifests. They are unpacked on demand and not kept in memory.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::DeflateDecoder;
use serde_json::Value;

use crate::format::yaml;

const PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/components"));
/// Texts and tables of the program itself.
const TEXTS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/texts"));

/// A file among the components.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct File {
    /// Path below `src/components` or `src/operation/components`, with `/`; what nodes get is below `osc/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// The files whose path starts with a folder (`crds/resources.gardener.cloud/`), in the order of their paths.
pub(crate) fn files(folder: &str) -> Vec<File> {
    // The archive is part of the binary, and a test reads all of it: an error here is a bug, not a runtime condition.
    #[expect(clippy::expect_used)]
    select(PACKED, folder).expect("build.rs wrote the archive")
}

/// The text of one file.
pub(crate) fn text(path: &str) -> String {
    #[expect(clippy::expect_used)]
    files(path).pop().expect("build.rs packed the file").text
}

/// A text or a table of the program: `help/<command>.txt`, `completions/<file>`, `roles.txt`, `types.txt`.
/// Empty if there is no such file.
pub(crate) fn packed_text(path: &str) -> String {
    packed_texts(path).into_iter().find(|file| file.path == path).map(|file| file.text).unwrap_or_default()
}

/// The texts whose path starts with a folder.
pub(crate) fn packed_texts(folder: &str) -> Vec<File> {
    // As above.
    #[expect(clippy::expect_used)]
    select(TEXTS, folder).expect("build.rs wrote the texts")
}

/// The object in a file of one manifest.
pub(crate) fn object(path: &str) -> Value {
    // Our own files, and a test parses all of them.
    #[expect(clippy::expect_used)]
    yaml::parse(&text(path)).expect("a manifest of our own parses")
}

/// The objects in a file of several manifests.
pub(crate) fn objects(path: &str) -> Vec<Value> {
    // As above.
    let of = |document: yaml::YamlDocument| {
        #[expect(clippy::expect_used)]
        document.value.expect("manifests of our own parse")
    };
    yaml::parse_all(&text(path)).into_iter().map(of).collect()
}

/// Renders objects like the golden files of the tests.
#[cfg(test)]
pub(crate) fn golden(objects: &[Value]) -> String {
    let texts: Vec<String> = objects.iter().map(|object| yaml::emit(object, yaml::Dialect::V4)).collect();
    texts.join("---\n")
}

/// Reads a stream that `build.rs` packed, and keeps only the files of a folder. Errors: a
/// stream of another form.
pub(crate) fn select(packed: &[u8], folder: &str) -> io::Result<Vec<File>> {
    let mut stream = BufReader::new(DeflateDecoder::new(packed));
    let mut found = Vec::new();
    let mut header = String::new();
    while stream.read_line(&mut header)? > 0 {
        let (path, size) = parse(&header).ok_or(io::ErrorKind::InvalidData)?;
        let mut body = (&mut stream).take(size);
        if path.starts_with(folder) {
            let mut text = String::new();
            body.read_to_string(&mut text)?;
            found.push(File { path: path.to_owned(), text });
        } else {
            io::copy(&mut body, &mut io::sink())?;
        }
        header.clear();
    }
    Ok(found)
}

fn parse(header: &str) -> Option<(&str, u64)> {
    let (path, size) = header.trim_end().rsplit_once(' ')?;
    Some((path, size.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_a_folder_in_order_and_nothing_else() {
        let paths: Vec<String> = files("crds/resources.").into_iter().map(|f| f.path).collect();
        assert_eq!(paths, ["crds/resources.gardener.cloud/managedresources.yaml"]);
        assert_eq!(files("no/such/folder/"), []);

        let all = files("");
        assert!(all.len() > 13);
        assert!(all.is_sorted_by_key(|f| f.path.clone()));
        assert!(all.iter().all(|f| !f.path.ends_with(".rs") && !f.text.is_empty()));
    }

    #[test]
    fn text_is_that_of_the_file() {
        let file = files("crds/extensions.gardener.cloud/clusters.yaml").remove(0);
        assert_eq!(file.text, include_str!("crds/extensions.gardener.cloud/clusters.yaml"));
    }

    #[test]
    fn packed_is_small() {
        assert!(PACKED.len() < 24 << 10, "{} bytes", PACKED.len());
    }

    #[test]
    fn broken_archive_is_an_error() {
        assert!(select(&PACKED[..PACKED.len() / 2], "").is_err());
        assert!(select(b"not deflate at all", "").is_err());
    }
}
