//! `gardenlet bundle`: charts for sites that reach no registry.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use lexopt::Arg::{Long, Short, Value};
use lexopt::Parser;

use super::arguments::{CONFIG, is_json, path};
use super::usage::Usage;
use super::{Io, SUCCESS, Variable, fail, fail_as, help, print, refuse};
use crate::base::json::json;
use crate::base::sorted::SortedSet;
use crate::format::human;
use crate::format::semver::Version;
use crate::oci::bundle::{Bundle, BundleContents, Error};
use crate::oci::{ArtifactReference, Digest};

mod export;

/// The command and its arguments.
#[derive(Debug, PartialEq, Eq)]
enum BundleCommand {
    /// The help of this command.
    Help(&'static str),
    Export(Export),
    Import {
        from: PathBuf,
        to: PathBuf,
        digest: Option<Digest>,
    },
    List {
        path: PathBuf,
        images: bool,
        as_json: bool,
    },
}

/// The arguments of `bundle export`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Export {
    output: PathBuf,
    config: Option<PathBuf>,
    all: bool,
    charts: Vec<ArtifactReference>,
    /// The versions of Kubernetes for the control planes.
    kubernetes: Vec<String>,
    logins: Option<PathBuf>,
}

/// Runs the command and returns the exit code. `usual` is the configuration that the environment names.
pub(super) fn main(
    io: &mut Io<'_>,
    args: Vec<OsString>,
    usual: Option<PathBuf>,
    variable: Variable<'_>,
) -> u8 {
    let mut wants_json = false;
    let done = match parse(args) {
        Err(usage) => return refuse(io, &usage),
        Ok(BundleCommand::Help(about)) => return print(io, &help::page(about)),
        Ok(BundleCommand::Export(mut task)) => {
            // Named charts need no garden, and so no configuration.
            if task.config.is_none() && task.charts.is_empty() {
                task.config = Some(usual.unwrap_or_else(|| PathBuf::from(CONFIG)));
            }
            return export::main(io, &task, variable);
        }
        Ok(BundleCommand::Import { from, to, digest }) => import(io, &from, to, digest),
        Ok(BundleCommand::List { path, images, as_json }) => {
            wants_json = as_json;
            list(io, path, images, as_json)
        }
    };
    done.unwrap_or_else(|error| fail_as(io, wants_json, "bundle", &error.to_string()))
}

/// The commands of `bundle` and their options.
const COMMANDS: [(&str, &[&str]); 3] = [
    ("bundle export", &["output", "config", "all", "chart", "kubernetes", "registry-config"]),
    ("bundle import", &["to", "digest"]),
    ("bundle list", &["images", "output"]),
];

/// The parsed words and options.
#[derive(Default)]
struct BundleArguments {
    words: Vec<OsString>,
    /// The options in the form that the user wrote.
    options: Vec<String>,
    export: Export,
    output: Option<OsString>,
    to: Option<PathBuf>,
    digest: Option<Digest>,
    images: bool,
}

fn parse(args: Vec<OsString>) -> Result<BundleCommand, Usage> {
    let mut given = BundleArguments::default();
    let is_help = given.read(args).map_err(|usage| usage.of(given.command()))?;
    let command = given.command();
    if let (true, "bundle", Some(verb)) = (is_help, command, given.words.first())
        && verb != "help"
    {
        return Err(Usage::unknown(&format!("bundle {}", verb.to_string_lossy())));
    }
    if is_help || given.words.first().is_some_and(|word| word == "help") {
        return Ok(BundleCommand::Help(command));
    }
    given.task().map_err(|usage| usage.of(command))
}

impl BundleArguments {
    /// The command in the first word.
    fn command(&self) -> &'static str {
        let verb = self.words.first().map(|word| format!("bundle {}", word.to_string_lossy()));
        let known = COMMANDS.iter().map(|(name, _)| *name).find(|name| verb.as_deref() == Some(*name));
        known.unwrap_or("bundle")
    }

    /// Parses all arguments. Returns true as soon as it finds a request for help.
    fn read(&mut self, args: Vec<OsString>) -> Result<bool, Usage> {
        let wrong = |text: String| Usage::new("", text);
        let mut parser = Parser::from_args(args);
        while let Some(arg) = parser.next()? {
            match arg {
                Long(name) => self.options.push(format!("--{name}")),
                Short(letter) => self.options.push(format!("-{letter}")),
                Value(_) => {}
            }
            match arg {
                Long("help") | Short('h') => return Ok(true),
                Long("output") | Short('o') => self.output = Some(parser.value()?),
                Long("config") => path("--config", &mut self.export.config, &mut parser)?,
                Long("all") => self.export.all = true,
                Long("chart") => {
                    let text = parser.value()?.to_string_lossy().into_owned();
                    let reference = ArtifactReference::parse(&text);
                    self.export
                        .charts
                        .push(reference.map_err(|why| wrong(format!("--chart {text:?}: {why}")))?);
                }
                Long("kubernetes") => {
                    let text = parser.value()?.to_string_lossy().into_owned();
                    // Tags of images have three numbers.
                    if !Version::is_strict(&text) {
                        return Err(wrong(format!(
                            "--kubernetes {text:?}: expected a full version, for example 1.34.3"
                        )));
                    }
                    self.export.kubernetes.push(text);
                }
                Long("registry-config") => self.export.logins = Some(parser.value()?.into()),
                Long("to") => self.to = Some(PathBuf::from(parser.value()?)),
                Long("digest") => {
                    let text = parser.value()?.to_string_lossy().into_owned();
                    let digest = Digest::parse(&text);
                    let why = || wrong(format!("--digest {text:?}: expected sha256: and 64 digits"));
                    self.digest = Some(digest.ok_or_else(why)?);
                }
                Long("images") => self.images = true,
                Value(word) if self.words.len() < 2 => self.words.push(word),
                other => return Err(Usage::unexpected(self.command(), &other)),
            }
        }
        Ok(false)
    }

    fn task(mut self) -> Result<BundleCommand, Usage> {
        let command = self.command();
        let Some((_, own)) = COMMANDS.iter().find(|(name, _)| *name == command) else {
            return Err(match self.words.first() {
                None => Usage::incomplete("bundle"),
                Some(verb) => Usage::unknown(&format!("bundle {}", verb.to_string_lossy())),
            });
        };
        for option in &self.options {
            let (long, arg) = match option.strip_prefix("--") {
                Some(long) => (long, Long(long)),
                None => ("output", Short('o')),
            };
            if !own.contains(&long) {
                return Err(Usage::unexpected(command, &arg));
            }
        }
        let missing = |what: &str| Usage::new("", format!("{what} is missing"));
        let mut path = (self.words.len() > 1).then(|| self.words.swap_remove(1));
        if command == "bundle export" {
            if let Some(word) = path.take() {
                return Err(Usage::unexpected(command, &Value(word)));
            }
            self.export.output = self.output.ok_or_else(|| missing("--output"))?.into();
            return Ok(BundleCommand::Export(self.export));
        }
        let path = path.map(PathBuf::from).ok_or_else(|| missing("the path of the bundle"))?;
        if command == "bundle import" {
            let to = self.to.ok_or_else(|| missing("--to"))?;
            return Ok(BundleCommand::Import { from: path, to, digest: self.digest });
        }
        let as_json = self.output.map_or(Ok(false), |form| is_json(&form))?;
        Ok(BundleCommand::List { path, images: self.images, as_json })
    }
}

fn import(io: &mut Io<'_>, from: &Path, to: PathBuf, digest: Option<Digest>) -> Result<u8, Error> {
    let bundle = Bundle::at(to);
    let BundleContents { charts, images, .. } = bundle.import(from, digest)?;
    let directory = bundle.directory().display();
    let (number, listed) = (human::counted(charts.len(), "chart"), human::counted(images.len(), "image"));
    let mut text = format!("{directory} has {number} and a list of {listed}\n");
    let references = charts.iter().filter_map(|(name, _)| ArtifactReference::parse(name).ok());
    let mut hosts = SortedSet::new();
    for reference in references {
        hosts.insert(reference.registry);
    }
    if !hosts.is_empty() {
        text += "In the configuration of the agent:\nedge:\n  registries:\n";
    }
    for host in hosts {
        text += &format!("  - {{host: {host:?}, layoutDir: {:?}}}\n", bundle.directory());
    }
    Ok(print(io, &text))
}

fn list(io: &mut Io<'_>, path: PathBuf, images: bool, as_json: bool) -> Result<u8, Error> {
    let contents = BundleContents::read(&path)?;
    if images {
        let text = match as_json {
            true => format!("{}\n", json!(contents.images.iter().collect::<Vec<_>>())),
            false => contents.images.iter().map(|image| format!("{image}\n")).collect(),
        };
        return Ok(print(io, &text));
    }
    let (bundle, mut text, mut code) = (path.is_dir().then(|| Bundle::at(path)), String::new(), SUCCESS);
    let mut charts = Vec::new();
    for (reference, digest) in &contents.charts {
        let blobs = bundle.as_ref().map(|bundle| bundle.verify(reference, *digest)).transpose();
        let mut chart = json!({"reference": reference, "digest": digest.to_string()});
        match blobs {
            Ok(None) => text += &format!("{reference} {digest}\n"),
            Ok(Some(blobs)) => {
                let bytes = blobs.values().sum::<u64>();
                text += &format!("{reference} {digest} {bytes} bytes\n");
                chart["bytes"] = bytes.into();
            }
            Err(error) => {
                chart["error"] = error.to_string().into();
                code = fail(io, format_args!("gardenlet bundle: {error}"));
            }
        }
        charts.push(chart);
    }
    if as_json {
        let told = json!({"digest": contents.digest.to_string(), "charts": charts});
        return Ok(print(io, &format!("{told}\n")).max(code));
    }
    text += &format!("digest of the bundle: {}\n", contents.digest);
    Ok(print(io, &text).max(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<BundleCommand, String> {
        parse(line.split_whitespace().map(OsString::from).collect()).map_err(|usage| usage.to_string())
    }

    #[test]
    fn command_lines_say_what_to_carry() {
        let path = || PathBuf::from("b.tar");
        let hex = "0".repeat(64);
        let pinned = format!("import b.tar --to d --digest sha256:{hex}");
        let reference = |text| ArtifactReference::parse(text).unwrap();
        let export = |change: fn(&mut Export)| {
            let mut export = Export { output: path(), ..Export::default() };
            change(&mut export);
            BundleCommand::Export(export)
        };
        let charts = vec![reference("r.example.org/xy:1"), reference("r.example.org/xz:1")];
        let table = [
            ("export --output b.tar", export(|_| {})),
            ("export --output b.tar --config c", export(|e| e.config = Some("c".into()))),
            (
                "export -o b.tar --config c --kubernetes 1.34.3 --kubernetes 1.35.4",
                BundleCommand::Export(Export {
                    output: path(),
                    config: Some("c".into()),
                    kubernetes: ["1.34.3", "1.35.4"].map(str::to_owned).to_vec(),
                    ..Export::default()
                }),
            ),
            ("export --config c --all -o b.tar", export(|e| (e.config, e.all) = (Some("c".into()), true))),
            (
                "export --output b.tar --chart oci://r.example.org/xy:1 --chart r.example.org/xz:1 --registry-config l",
                BundleCommand::Export(Export {
                    output: path(),
                    charts,
                    logins: Some("l".into()),
                    ..Export::default()
                }),
            ),
            ("import b.tar --to d", BundleCommand::Import { from: path(), to: "d".into(), digest: None }),
            (
                pinned.as_str(),
                BundleCommand::Import { from: path(), to: "d".into(), digest: Digest::from_hex(&hex) },
            ),
            ("list b.tar", BundleCommand::List { path: path(), images: false, as_json: false }),
            ("list --images b.tar", BundleCommand::List { path: path(), images: true, as_json: false }),
            ("list -o json b.tar", BundleCommand::List { path: path(), images: false, as_json: true }),
            ("help", BundleCommand::Help("bundle")),
            ("--help", BundleCommand::Help("bundle")),
            ("export --help", BundleCommand::Help("bundle export")),
            ("help --help", BundleCommand::Help("bundle")),
        ];
        for (line, expected) in table {
            assert_eq!(parsed(line), Ok(expected), "{line}");
        }
    }

    #[test]
    fn command_lines_without_meaning_say_why() {
        let table = [
            ("", "a command is missing:\n  export "),
            ("inport x", "unknown command \"bundle inport\"; did you mean \"bundle import\"?"),
            ("inport --help", "unknown command \"bundle inport\"; did you mean \"bundle import\"?"),
            ("export", "--output is missing"),
            ("export --config c", "--output is missing"),
            (
                "export --output x --chart nowhere",
                "--chart \"nowhere\": the registry must be given, as a host with a dot or a port",
            ),
            (
                "export --kubernetes 1.34",
                "--kubernetes \"1.34\": expected a full version, for example 1.34.3",
            ),
            ("export --kubernetes new", "--kubernetes \"new\": expected a full version, for example 1.34.3"),
            ("export x --output x --config c", "unexpected argument \"x\""),
            ("import --to d", "the path of the bundle is missing"),
            ("import b", "--to is missing"),
            ("import b --to d --digest 1", "--digest \"1\": expected sha256: and 64 digits"),
            ("list", "the path of the bundle is missing"),
            ("list a b", "unexpected argument \"b\""),
            ("list a --nope", "unknown option --nope"),
            ("list a -o xml", "--output=xml: expected text, json or yaml"),
            ("list a --to x", "--to is not an option of this command"),
            ("import a --to x -o json", "-o is not an option of this command: its output has"),
            ("export --config c --output x --images", "--images belongs"),
        ];
        for (line, expected) in table {
            let said = parsed(line).unwrap_err();
            let (_, why) = said.split_once(": ").unwrap();
            assert!(why.starts_with(expected), "{line}: {said}");
        }
    }
}
