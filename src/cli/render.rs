//! `gardenlet render`: a chart on the terminal, as `helm template` or as an extension's.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use lexopt::Arg::{Long, Short, Value};
use lexopt::Parser;

use super::{Io, fail, print};
use crate::base::capped;
use crate::base::clock::Clock;
use crate::base::error::chain;
use crate::base::thread;
use crate::chart::render::{self, KubeVersion, Mode, Options, Rendered};
use crate::chart::set::{self, Words};
use crate::chart::{Table, archive, values};
use crate::limits::{RENDER_REQUEST_BYTES_MAX, RENDER_STACK_BYTES};

/// The option without which a process that renders is limited.
pub(super) const UNLIMITED: &str = "--unlimited";
/// Written at once.
const OUTPUT_BYTES: usize = 16 << 10;

const HELP: &str = "\
Usage: gardenlet render [NAME] CHART [OPTIONS]

CHART is a folder or a .tgz. Prints what `helm template` would print.

  -f, --values FILE          values; may be given several times, the last wins
      --set A.B=1,C={x,y}    single values
      --set-string A=1       single values that stay text
  -n, --namespace NAME       release namespace (default)
      --kube-version V       Kubernetes version that the chart sees (v1.36.0)
  -a, --api-versions A,B     further API versions that the chart sees
      --include-crds         also print the CRDs of the chart
  -s, --show-only PATTERN    only these templates, as templates/*.yaml
      --no-hooks             leave out hooks
      --as-extension         render as the agent does: keys of the Secret and their objects
      --unlimited            lift the limits of a rendering: 96 MiB of memory, 120 s of processor time
";

/// What the command line asks for.
#[derive(Debug)]
struct Arguments {
    chart: PathBuf,
    files: Vec<PathBuf>,
    assignments: Vec<(Words, String)>,
    include_crds: bool,
    hooks: bool,
    show_only: Vec<String>,
    options: Options,
}

/// Why the command failed.
#[derive(Debug)]
enum Error {
    Help,
    Argument(lexopt::Error),
    NoChart,
    KubeVersion(String),
    Read(PathBuf, io::Error),
    Values(PathBuf, values::Error),
    Set(String, set::Error),
    Load(archive::Error),
    Render(render::Error),
    NothingToShow(String),
    Thread,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Help => f.write_str(HELP),
            Self::Argument(error) => write!(f, "{error}\nTry gardenlet render --help."),
            Self::NoChart => f.write_str("a chart is missing\nTry gardenlet render --help."),
            Self::KubeVersion(text) => write!(f, "--kube-version {text:?} is no version"),
            Self::Read(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            Self::Values(path, error) => write!(f, "{}: {}", path.display(), chain(error)),
            Self::Set(text, error) => write!(f, "--set {text:?}: {error}"),
            Self::Load(error) => f.write_str(&chain(error)),
            Self::Render(error) => write!(f, "{error}"),
            Self::NothingToShow(pattern) => write!(f, "could not find template {pattern} in chart"),
            Self::Thread => f.write_str("rendering died"),
        }
    }
}

impl From<lexopt::Error> for Error {
    fn from(error: lexopt::Error) -> Self {
        Self::Argument(error)
    }
}

/// What is printed.
#[derive(Debug)]
enum Output {
    Text(String),
    /// All that was rendered; whether the CRDs belong to it.
    Manifests(Rendered, bool),
}

/// Runs the command and returns the exit code.
pub(super) fn main(io: &mut Io<'_>, args: Vec<OsString>) -> u8 {
    match parse(args).and_then(on_a_deep_stack) {
        Ok(Output::Text(text)) => print(io, &text),
        Ok(Output::Manifests(rendered, crds)) => print_all(io, &rendered, crds),
        Err(Error::Help) => print(io, HELP),
        Err(error) => fail(io, format_args!("gardenlet render: {error}")),
    }
}

fn parse(args: Vec<OsString>) -> Result<Arguments, Error> {
    let mut words: Vec<OsString> = Vec::new();
    let (mut files, mut assignments, mut show_only) = (Vec::new(), Vec::new(), Vec::new());
    let (mut include_crds, mut hooks, mut mode) = (false, true, Mode::Template);
    let mut namespace = "default".to_owned();
    let mut kube_version: Option<String> = None;
    let mut api_versions: Vec<String> = Vec::new();
    let mut parser = Parser::from_args(args);
    let text = |parser: &mut Parser| -> Result<String, Error> {
        Ok(parser.value()?.into_string().map_err(lexopt::Error::NonUnicodeValue)?)
    };
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => return Err(Error::Help),
            Long("values") | Short('f') => files.push(PathBuf::from(parser.value()?)),
            Long("set") => assignments.push((Words::Typed, text(&mut parser)?)),
            Long("set-string") => assignments.push((Words::Text, text(&mut parser)?)),
            Long("namespace") | Short('n') => namespace = text(&mut parser)?,
            Long("kube-version") => kube_version = Some(text(&mut parser)?),
            Long("api-versions") | Short('a') => {
                api_versions.extend(text(&mut parser)?.split(',').map(str::to_owned));
            }
            Long("include-crds") => include_crds = true,
            Long("show-only") | Short('s') => show_only.push(text(&mut parser)?),
            Long("no-hooks") => hooks = false,
            Long("as-extension") => mode = Mode::Extension,
            // What it lifts was not set: see `limit_process`.
            Long("unlimited") => {}
            Value(word) if words.len() < 2 => words.push(word),
            _ => return Err(arg.unexpected().into()),
        }
    }
    let chart = PathBuf::from(words.pop().ok_or(Error::NoChart)?);
    let name = words.pop().map_or_else(|| "release-name".to_owned(), |n| n.to_string_lossy().into_owned());
    let kube_version = match kube_version {
        None => KubeVersion::helm_default(),
        Some(text) => KubeVersion::of_flag(&text).ok_or(Error::KubeVersion(text))?,
    };
    // `--set-string` wins over `--set`, wherever it stands.
    assignments.sort_by_key(|(words, _)| *words == Words::Text);
    let values = Table::new();
    let clock = Clock::system();
    let options = Options { mode, name, namespace, values, kube_version, api_versions, clock };
    Ok(Arguments { chart, files, assignments, include_crds, hooks, show_only, options })
}

/// Templates may call themselves: they need more stack than a main thread may have.
fn on_a_deep_stack(arguments: Arguments) -> Result<Output, Error> {
    let rendering = thread::spawn("render", RENDER_STACK_BYTES, move || run(arguments));
    rendering.map_err(|_| Error::Thread)?.join().map_err(|_| Error::Thread)?
}

fn run(mut arguments: Arguments) -> Result<Output, Error> {
    let options = &mut arguments.options;
    for path in arguments.files {
        let text = capped::read_file(&path, RENDER_REQUEST_BYTES_MAX);
        let text = text.and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
        let text = match text {
            Ok(text) => text,
            Err(error) => return Err(Error::Read(path, error)),
        };
        let file = values::read(&text).map_err(|error| Error::Values(path, error))?;
        values::merge(&mut options.values, file);
    }
    for (words, text) in arguments.assignments {
        set::apply(&text, words, &mut options.values).map_err(|error| Error::Set(text, error))?;
    }
    if options.mode == Mode::Extension {
        options.values.values_mut().for_each(values::to_floats);
    }
    let chart = archive::load_path(&arguments.chart).map_err(Error::Load)?;
    let mut rendered = render::render(chart, options).map_err(Error::Render)?;
    if !arguments.hooks {
        rendered.manifests.hooks.clear();
    }
    match options.mode {
        Mode::Extension => Ok(Output::Text(keys(&rendered))),
        Mode::Template if arguments.show_only.is_empty() => {
            Ok(Output::Manifests(rendered, arguments.include_crds))
        }
        Mode::Template => {
            let text = rendered.show_only(&arguments.show_only, arguments.include_crds);
            text.map(Output::Text).map_err(Error::NothingToShow)
        }
    }
}

/// Charts may be large: what they print is not put together before.
fn print_all(io: &mut Io<'_>, rendered: &Rendered, crds: bool) -> u8 {
    struct Out<W: Write>(BufWriter<W>);
    impl<W: Write> fmt::Write for Out<W> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.write_all(text.as_bytes()).map_err(|_| fmt::Error)
        }
    }
    let mut out = Out(BufWriter::with_capacity(OUTPUT_BYTES, &mut *io.output));
    // A reader that went away early has read what it wanted.
    let written = rendered.write(&mut out, crds);
    if written.is_ok() {
        let _ = out.0.flush();
    }
    super::SUCCESS
}

/// Each key of the Secret as a comment, and its text.
fn keys(rendered: &Rendered) -> String {
    let objects = rendered.objects();
    objects.iter().map(|(key, object)| format!("# {key}{}", render::secret_text(object))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<Arguments, String> {
        parse(args.iter().map(OsString::from).collect()).map_err(|e| e.to_string())
    }

    #[test]
    fn arguments_are_helms() {
        let a = parsed(&[
            "rel",
            "dir",
            "-f",
            "v.yaml",
            "--set-string",
            "b=1",
            "--set",
            "a=1",
            "-n",
            "ns",
            "-a",
            "x/v1,y/v1",
            "--kube-version",
            "1.30",
            "-s",
            "templates/a.yaml",
            "--include-crds",
        ])
        .unwrap();
        assert_eq!((a.options.name.as_str(), a.options.namespace.as_str()), ("rel", "ns"));
        assert_eq!((a.chart, a.files), (PathBuf::from("dir"), vec![PathBuf::from("v.yaml")]));
        assert_eq!(a.assignments[0], (Words::Typed, "a=1".to_owned()));
        assert_eq!(a.options.api_versions, ["x/v1", "y/v1"]);
        assert_eq!(a.options.kube_version.version, "v1.30");
        assert_eq!(parsed(&["dir"]).unwrap().options.name, "release-name");
        assert_eq!(parsed(&["dir", UNLIMITED]).unwrap().options.name, "release-name");
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for (args, message) in [
            (&[][..], "a chart is missing"),
            (&["a", "b", "c"], "unexpected argument \"c\""),
            (&["a", "--nope"], "invalid option '--nope'"),
            (&["a", "--kube-version", "x"], "--kube-version \"x\" is no version"),
            (&["a", "-f"], "missing argument for option '-f'"),
        ] {
            let error = parsed(args).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let run = |args: &[&str]| parsed(args).map(|a| on_a_deep_stack(a).unwrap_err().to_string()).unwrap();
        assert!(run(&["/nonexistent/chart"]).starts_with("cannot read /nonexistent/chart: "));
        assert!(run(&["x", "-f", "/nonexistent/v"]).starts_with("cannot read /nonexistent/v: "));
        assert_eq!(run(&["x", "--set", "a"]), "--set \"a\": key \"a\" has no value");
    }
}
