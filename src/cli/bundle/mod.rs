//! `gardenlet bundle`: charts for places that no registry can be reached from.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use lexopt::Arg::{Long, Short, Value};
use lexopt::Parser;

use super::{Io, SUCCESS, Variable, fail, print};
use crate::base::sorted::SortedSet;
use crate::format::semver::Version;
use crate::oci::bundle::{Bundle, Contents, Error};
use crate::oci::{Digest, Reference};

mod export;

/// Something is wrong with a chart or a bundle.
const BROKEN: u8 = 1;

const HELP: &str = "\
Usage:
  gardenlet bundle export --output PATH --config FILE [--all]
  gardenlet bundle export --output PATH --chart REFERENCE ... [--config FILE] [--registry-config FILE]
  gardenlet bundle import PATH --to DIRECTORY [--digest DIGEST]
  gardenlet bundle list PATH [--images]

A bundle is an OCI image layout, which carries the charts. It lists the images of the charts and of Shoot control planes,
one a line, in images.txt. PATH is a directory, or a file if it ends with .tar, .tar.gz or .tgz.

export collects the charts of the seed's ControllerInstallations, as their ControllerDeployments in the garden name them,
with the pull secrets and CAs that stand there. The garden is the one of GARDEN_KUBECONFIG, else the one that an agent with
this configuration finds. Run it again if it breaks off: what has arrived is kept.
      --all                   the charts of all ControllerDeployments of the garden
      --chart REFERENCE       these charts; the garden is not asked
      --kubernetes VERSION    list the images of control planes of this version, as 1.34.3; may be repeated. Without it:
                              of the versions of the CloudProfiles of the seed's provider type, and of the seed's Shoots
      --registry-config FILE  logins for --chart, in the format of docker and helm
import verifies everything and adds it to a directory, which edge.registries[].layoutDir may name.
      --digest DIGEST         refuse any other bundle than that with this digest, which export and list print
list shows the charts and, of a directory, verifies them; --images shows the images instead.
";

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
enum Task {
    Help,
    Export(Export),
    Import { from: PathBuf, to: PathBuf, digest: Option<Digest> },
    List { path: PathBuf, images: bool },
}

/// What is to be collected, and where.
#[derive(Debug, Default, PartialEq, Eq)]
struct Export {
    output: PathBuf,
    config: Option<PathBuf>,
    all: bool,
    charts: Vec<Reference>,
    /// Versions of Kubernetes whose control planes are to run.
    kubernetes: Vec<String>,
    logins: Option<PathBuf>,
}

#[derive(Debug)]
enum Usage {
    Argument(lexopt::Error),
    Missing(&'static str),
    Reference(String, &'static str),
    Digest(String),
    Kubernetes(String),
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument(error) => error.fmt(f),
            Self::Missing(what) => write!(f, "{what} is missing"),
            Self::Reference(text, why) => write!(f, "--chart {text:?}: {why}"),
            Self::Digest(text) => write!(f, "--digest {text:?}: expected sha256: and 64 digits"),
            Self::Kubernetes(text) => write!(f, "--kubernetes {text:?}: expected a full version, as 1.34.3"),
        }
    }
}

impl From<lexopt::Error> for Usage {
    fn from(error: lexopt::Error) -> Self {
        Self::Argument(error)
    }
}

/// Runs the command and returns the exit code.
pub(super) fn main(io: &mut Io<'_>, args: Vec<OsString>, variable: Variable<'_>) -> u8 {
    let done = match parse(args) {
        Err(usage) => {
            return fail(io, format_args!("gardenlet bundle: {usage}\nTry gardenlet bundle --help."));
        }
        Ok(Task::Help) => return print(io, HELP),
        Ok(Task::Export(task)) => return export::main(io, &task, variable),
        Ok(Task::Import { from, to, digest }) => import(io, &from, to, digest),
        Ok(Task::List { path, images }) => list(io, path, images),
    };
    done.unwrap_or_else(|error| {
        fail(io, format_args!("gardenlet bundle: {error}"));
        BROKEN
    })
}

fn parse(args: Vec<OsString>) -> Result<Task, Usage> {
    let (mut words, mut export) = (Vec::new(), Export::default());
    let (mut output, mut to, mut digest, mut images) = (None, None, None, false);
    let mut parser = Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => return Ok(Task::Help),
            Long("output") | Short('o') => output = Some(PathBuf::from(parser.value()?)),
            Long("config") => export.config = Some(parser.value()?.into()),
            Long("all") => export.all = true,
            Long("chart") => {
                let text = parser.value()?.to_string_lossy().into_owned();
                let reference = Reference::parse(&text);
                export.charts.push(reference.map_err(|why| Usage::Reference(text, why))?);
            }
            Long("kubernetes") => {
                let text = parser.value()?.to_string_lossy().into_owned();
                // Images have tags of three numbers.
                if !Version::is_strict(&text) {
                    return Err(Usage::Kubernetes(text));
                }
                export.kubernetes.push(text);
            }
            Long("registry-config") => export.logins = Some(parser.value()?.into()),
            Long("to") => to = Some(PathBuf::from(parser.value()?)),
            Long("digest") => {
                let text = parser.value()?.to_string_lossy().into_owned();
                digest = Some(Digest::parse(&text).ok_or(Usage::Digest(text))?);
            }
            Long("images") => images = true,
            Value(word) if words.len() < 2 => words.push(word),
            other => return Err(other.unexpected().into()),
        }
    }
    let mut words = words.into_iter();
    let (verb, path) = (words.next().unwrap_or_default(), words.next());
    if let ("export", Some(word)) = (verb.to_string_lossy().as_ref(), &path) {
        return Err(Value(word.clone()).unexpected().into());
    }
    let path = path.map(PathBuf::from).ok_or(Usage::Missing("the path of the bundle"));
    match verb.to_str() {
        Some("export") if export.config.is_none() && export.charts.is_empty() => {
            Err(Usage::Missing("--config, or --chart,"))
        }
        Some("export") => {
            export.output = output.ok_or(Usage::Missing("--output"))?;
            Ok(Task::Export(export))
        }
        Some("import") => Ok(Task::Import { from: path?, to: to.ok_or(Usage::Missing("--to"))?, digest }),
        Some("list") => Ok(Task::List { path: path?, images }),
        Some("help") => Ok(Task::Help),
        _ => Err(Usage::Missing("export, import or list")),
    }
}

fn import(io: &mut Io<'_>, from: &Path, to: PathBuf, digest: Option<Digest>) -> Result<u8, Error> {
    let bundle = Bundle::at(to);
    let Contents { charts, images, .. } = bundle.import(from, digest)?;
    let directory = bundle.directory().display();
    let mut text =
        format!("{} charts and a list of {} images are in {directory}\n", charts.len(), images.len());
    let references = charts.iter().filter_map(|(name, _)| Reference::parse(name).ok());
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

fn list(io: &mut Io<'_>, path: PathBuf, images: bool) -> Result<u8, Error> {
    let contents = Contents::read(&path)?;
    if images {
        let lines: String = contents.images.iter().map(|image| format!("{image}\n")).collect();
        return Ok(print(io, &lines));
    }
    let (bundle, mut text, mut code) = (path.is_dir().then(|| Bundle::at(path)), String::new(), SUCCESS);
    for (reference, digest) in &contents.charts {
        let blobs = bundle.as_ref().map(|bundle| bundle.verify(reference, *digest)).transpose();
        match blobs {
            Ok(None) => text += &format!("{reference} {digest}\n"),
            Ok(Some(blobs)) => {
                text += &format!("{reference} {digest} {} bytes\n", blobs.values().sum::<u64>());
            }
            Err(error) => {
                fail(io, format_args!("gardenlet bundle: {error}"));
                code = BROKEN;
            }
        }
    }
    text += &format!("digest of the bundle: {}\n", contents.digest);
    print(io, &text);
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Task, String> {
        parse(line.split_whitespace().map(OsString::from).collect()).map_err(|usage| usage.to_string())
    }

    #[test]
    fn command_lines_say_what_to_carry() {
        let path = || PathBuf::from("b.tar");
        let hex = "0".repeat(64);
        let pinned = format!("import b.tar --to d --digest sha256:{hex}");
        let reference = |text| Reference::parse(text).unwrap();
        let export = |change: fn(&mut Export)| {
            let mut export = Export { output: path(), ..Export::default() };
            change(&mut export);
            Task::Export(export)
        };
        let charts = vec![reference("r.example.org/xy:1"), reference("r.example.org/xz:1")];
        let table = [
            ("export --output b.tar --config c", export(|e| e.config = Some("c".into()))),
            (
                "export -o b.tar --config c --kubernetes 1.34.3 --kubernetes 1.35.4",
                Task::Export(Export {
                    output: path(),
                    config: Some("c".into()),
                    kubernetes: ["1.34.3", "1.35.4"].map(str::to_owned).to_vec(),
                    ..Export::default()
                }),
            ),
            ("export --config c --all -o b.tar", export(|e| (e.config, e.all) = (Some("c".into()), true))),
            (
                "export --output b.tar --chart oci://r.example.org/xy:1 --chart r.example.org/xz:1 --registry-config l",
                Task::Export(Export {
                    output: path(),
                    charts,
                    logins: Some("l".into()),
                    ..Export::default()
                }),
            ),
            ("import b.tar --to d", Task::Import { from: path(), to: "d".into(), digest: None }),
            (pinned.as_str(), Task::Import { from: path(), to: "d".into(), digest: Digest::from_hex(&hex) }),
            ("list b.tar", Task::List { path: path(), images: false }),
            ("list --images b.tar", Task::List { path: path(), images: true }),
            ("help", Task::Help),
            ("export --help", Task::Help),
        ];
        for (line, expected) in table {
            assert_eq!(parsed(line), Ok(expected), "{line}");
        }
    }

    #[test]
    fn command_lines_without_meaning_say_why() {
        let table = [
            ("", "export, import or list is missing"),
            ("export --output x", "--config, or --chart, is missing"),
            ("export --config c", "--output is missing"),
            (
                "export --output x --chart nowhere",
                "--chart \"nowhere\": the registry must be given, as a host with a dot or a port",
            ),
            ("export --kubernetes 1.34", "--kubernetes \"1.34\": expected a full version, as 1.34.3"),
            ("export --kubernetes new", "--kubernetes \"new\": expected a full version, as 1.34.3"),
            ("export x --output x --config c", "unexpected argument \"x\""),
            ("import --to d", "the path of the bundle is missing"),
            ("import b", "--to is missing"),
            ("import b --to d --digest 1", "--digest \"1\": expected sha256: and 64 digits"),
            ("list", "the path of the bundle is missing"),
            ("list a b", "unexpected argument \"b\""),
            ("list a --nope", "invalid option '--nope'"),
        ];
        for (line, expected) in table {
            assert_eq!(parsed(line), Err(expected.to_owned()), "{line}");
        }
    }
}
