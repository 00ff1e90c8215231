//! Both engines: ours in this process, Helm as a command, many cases at a time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use gardenlet::chart::render::{self, Options, RenderMode};
use gardenlet::chart::{Chart, File, Metadata, values};

use crate::grammar::VALUES;

/// The text of a template, or the reason why there is none.
pub(crate) type Outcome = Result<String, String>;

/// The text for a panic of our engine: always a failure, even if Helm refuses the template, too.
pub(crate) const PANICKED: &str = "the engine panicked";

/// The part of Helm's message before the engine's own message.
const PREFIXES: &[&str] = &["Error: "];

/// Renders one case with our engine.
pub(crate) fn ours(template: &str) -> Outcome {
    let run = || -> Outcome {
        let file =
            |name: &str, text: String| File { name: name.to_owned(), data: Arc::from(text.into_bytes()) };
        let chart = Chart {
            metadata: Metadata {
                name: "oracle".to_owned(),
                version: "0.1.0".to_owned(),
                ..Metadata::default()
            },
            values: values::read(VALUES).map_err(|error| error.to_string())?,
            templates: vec![
                file("templates/all.yaml", call("c0")),
                file("templates/_c0.tpl", define("c0", template)),
            ],
            ..Chart::default()
        };
        let options = Options::new(RenderMode::Template, "release-name", "default");
        let rendered = render::render(chart, &options).map_err(|error| error.to_string())?;
        results(&rendered.to_text(false)).remove("c0").ok_or_else(|| "no result".to_owned())?
    };
    std::panic::catch_unwind(run).unwrap_or_else(|_| Err(PANICKED.to_owned()))
}

/// Helm, and a folder for its charts.
pub(crate) struct Helm {
    program: PathBuf,
    folder: PathBuf,
}

impl Helm {
    pub(crate) fn new(program: PathBuf, folder: PathBuf) -> Self {
        Self { program, folder }
    }

    /// Renders cases that should all succeed, in one chart. Helm's message names a case that fails: it is removed and
    /// the rest is rendered again.
    pub(crate) fn batch(&self, cases: &[String]) -> Result<BTreeMap<usize, Outcome>, String> {
        let mut found = BTreeMap::new();
        let mut left: Vec<usize> = (0..cases.len()).collect();
        while !left.is_empty() {
            match self.run(left.iter().map(|&n| (format!("c{n}"), cases[n].as_str())))? {
                Ok(text) => {
                    let results = results(&text);
                    let result = |n: usize| results.get(&format!("c{n}")).cloned();
                    found.extend(
                        left.iter().map(|&n| (n, result(n).unwrap_or_else(|| Err("no result".to_owned())))),
                    );
                    left.clear();
                }
                Err(message) => {
                    let culprit = culprit(&message).filter(|n| left.contains(n));
                    let culprit = culprit.ok_or_else(|| format!("helm names no case: {message}"))?;
                    left.retain(|n| *n != culprit);
                    found.insert(culprit, Err(message));
                }
            }
        }
        Ok(found)
    }

    /// Renders one case.
    pub(crate) fn one(&self, case: &str) -> Result<Outcome, String> {
        let text = self.run([("c0".to_owned(), case)].into_iter())?;
        Ok(text.and_then(|text| results(&text).remove("c0").unwrap_or_else(|| Err("no result".to_owned()))))
    }

    fn run<'a>(&self, cases: impl Iterator<Item = (String, &'a str)>) -> Result<Outcome, String> {
        let chart = self.folder.join("oracle");
        let wrong = |error: std::io::Error| format!("write a chart: {error}");
        let _ = std::fs::remove_dir_all(&chart);
        std::fs::create_dir_all(chart.join("templates")).map_err(wrong)?;
        let write = |path: &Path, text: &str| std::fs::write(path, text).map_err(wrong);
        write(&chart.join("Chart.yaml"), "apiVersion: v2\nname: oracle\nversion: 0.1.0\n")?;
        write(&chart.join("values.yaml"), VALUES)?;
        let mut calls = String::new();
        for (name, case) in cases {
            calls.push_str(&call(&name));
            write(&chart.join("templates").join(format!("_{name}.tpl")), &define(&name, case))?;
        }
        write(&chart.join("templates/all.yaml"), &calls)?;
        // Helm has no limits of its own: `until 9223372036854775807` uses all memory.
        let output = Command::new("/bin/sh")
            .args(["-c", "ulimit -v 4000000; exec \"$0\" \"$@\""])
            .arg(&self.program)
            .args(["template", "release-name"])
            .arg(&chart)
            .env_clear()
            .env("HOME", &self.folder)
            .output()
            .map_err(|error| format!("{}: {error}", self.program.display()))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(own_words(&text(&output.stderr)))
        })
    }
}

fn define(name: &str, template: &str) -> String {
    format!("{{{{- define \"{name}\" -}}}}{template}{{{{- end -}}}}")
}

/// The values are a copy: a case must not change those of the others.
fn call(name: &str) -> String {
    format!("{name}: {{{{ include \"{name}\" (dict \"V\" (deepCopy .Values)) | toJson }}}}\n")
}

/// The results of a rendered chart, by the names of the cases.
fn results(text: &str) -> BTreeMap<String, Outcome> {
    let line = |line: &str| {
        let (name, json) = line.split_once(": ")?;
        let number = name.strip_prefix('c')?;
        number.parse::<usize>().ok()?;
        Some((name.to_owned(), serde_json::from_str(json).map_err(|error| format!("{json}: {error}"))))
    };
    text.lines().filter_map(line).collect()
}

/// The case of a message: the last one that it names, because messages are ordered from the outside to the inside.
fn culprit(message: &str) -> Option<usize> {
    let rest = message.rsplit("/_c").next().filter(|rest| rest.len() < message.len())?;
    rest.split(".tpl").next()?.parse().ok()
}

fn own_words(message: &str) -> String {
    let lines = message.lines().filter(|line| {
        !line.is_empty() && !line.starts_with("level=") && !line.starts_with("Use --debug flag")
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    PREFIXES.iter().fold(text, |text, prefix| text.strip_prefix(prefix).map_or(text.clone(), str::to_owned))
}
