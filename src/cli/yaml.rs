//! `-o yaml`: the same documents as `-o json`, in YAML.

use std::ffi::OsString;
use std::io::{self, Write};

use crate::format::{view, yaml};

/// The commands that print JSON on request.
const COMMANDS: [&str; 8] = ["config", "doctor", "explain", "bundle", "etcd", "node", "status", "version"];

/// Whether a command line that was parsed asks for YAML.
pub(super) fn is_wanted(args: &[OsString]) -> bool {
    let words: Vec<&str> = args.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    let command = words.first().copied().unwrap_or_default();
    // There, the option is a path.
    let is_path = words.starts_with(&["bundle", "export"]);
    // Short options may stand together: -wo yaml.
    let is_short =
        |word: &str, end: &str| word.starts_with('-') && !word.starts_with("--") && word.ends_with(end);
    let asks = |word: &str| word == "--output" || is_short(word, "o");
    let has_two = || words.windows(2).any(|pair| asks(pair[0]) && pair[1] == "yaml");
    let has_one = || {
        let ends = |word: &&str| is_short(word, "oyaml") || is_short(word, "o=yaml");
        words.iter().any(|word| ends(word) || *word == "--output=yaml")
    };
    COMMANDS.contains(&command) && !is_path && (has_two() || has_one())
}

/// Turns each line, which is a document in JSON, into a document in YAML.
pub(super) struct Converter<'a> {
    output: &'a mut dyn Write,
    line: Vec<u8>,
    has_begun: bool,
}

impl<'a> Converter<'a> {
    pub(super) fn new(output: &'a mut dyn Write) -> Self {
        Self { output, line: Vec::new(), has_begun: false }
    }

    fn convert(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        let Ok(document) = view::json(&line) else {
            return self.output.write_all(&line);
        };
        if std::mem::replace(&mut self.has_begun, true) {
            self.output.write_all(b"---\n")?;
        }
        self.output.write_all(yaml::emit(&document, yaml::Dialect::V4).as_bytes())
    }
}

impl Write for Converter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            self.line.push(*byte);
            if *byte == b'\n' {
                self.convert()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wants_yaml() {
        let table = [
            ("version -o yaml", true),
            ("status --watch -oyaml", true),
            ("status -wo yaml", true),
            ("status -woyaml", true),
            ("status -wo=yaml", true),
            ("status -w --address yaml:1", false),
            ("config validate --config=c --output=yaml", true),
            ("doctor --output yaml", true),
            ("bundle list x -o=yaml", true),
            ("bundle export -o yaml", false),
            ("render -o yaml", false),
            ("version -o json", false),
            ("--config=yaml", false),
            ("", false),
        ];
        for (line, expected) in table {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            assert_eq!(is_wanted(&words), expected, "{line}");
        }
    }

    #[test]
    fn documents_in_json_become_documents_in_yaml() {
        let mut out = Vec::new();
        let mut converter = Converter::new(&mut out);
        converter.write_all(b"{\"a\": {\"b\": [1, \"true\"]}}\n{\"c\"").unwrap();
        converter.write_all(b": null}\n").unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "a:\n  b:\n  - 1\n  - \"true\"\n---\nc: null\n");
    }
}
