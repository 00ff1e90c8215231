//! `gardenlet render`: prints a chart as `helm template` does, or as the agent renders an extension.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use super::{Io, SUCCESS, code_of, fail, help, print, refuse};
use crate::base::capped;
use crate::base::error::chain;
use crate::base::thread;
use crate::chart::render::{self, RenderMode, Rendered};
use crate::chart::set::{self, SetWords};
use crate::chart::template::{Options, Templates};
use crate::chart::value::Value;
use crate::chart::{ValuesTable, archive, values};
use crate::format::view;
use crate::limits::{RENDER_REQUEST_BYTES_MAX, RENDER_STACK_BYTES};

mod arguments;
mod files;

pub(super) use arguments::UNLIMITED;
use arguments::{Arguments, parse};

/// The most bytes in one write.
const OUTPUT_BYTES: usize = 16 << 10;

/// Why the command failed. The messages follow Helm's.
#[derive(Debug)]
enum Error {
    Read(String),
    Values(String, values::Error),
    Set(SetWords, String, set::Error),
    /// The JSON object of `--set-json` is wrong.
    Json(String),
    Name(String),
    Load(archive::Error),
    Render(render::Error),
    /// With `--debug`: the rendered part and the error.
    Debug(String, String),
    NothingToShow(String),
    Write(String),
    Thread,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(why) | Self::Name(why) | Self::Write(why) | Self::Debug(_, why) => f.write_str(why),
            Self::Values(path, error) => write!(f, "failed to parse {path}: {}", chain(error)),
            Self::Set(words, text, error) => match words {
                SetWords::Json => write!(f, "failed parsing --set-json data {text}"),
                SetWords::Typed => write!(f, "failed parsing --set data: {error}"),
                SetWords::Text => write!(f, "failed parsing --set-string data: {error}"),
                SetWords::File => write!(f, "failed parsing --set-file data: {error}"),
                SetWords::Literal => write!(f, "failed parsing --set-literal data: {error}"),
            },
            Self::Json(text) => write!(f, "failed parsing --set-json data JSON: {text}"),
            Self::Load(error) => f.write_str(&chain(error)),
            Self::Render(error @ render::Error::Manifest(..)) => {
                write!(f, "{error}\n\nUse --debug flag to render out invalid YAML")
            }
            Self::Render(error) => write!(f, "{error}"),
            Self::NothingToShow(pattern) => write!(f, "could not find template {pattern} in chart"),
            Self::Thread => f.write_str("rendering died"),
        }
    }
}

#[derive(Debug)]
enum Output {
    Text(String),
    /// Everything that was rendered.
    Manifests(Rendered),
}

/// The form of the output.
struct Printing {
    include_crds: bool,
    show_only: Vec<String>,
    files: Option<files::OutputFolders>,
}

/// Runs the command and returns the exit code.
pub(super) fn main(io: &mut Io<'_>, args: Vec<OsString>) -> u8 {
    let mut arguments = match parse(args) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => return print(io, &help::page("render")),
        Err(usage) => return refuse(io, &usage),
    };
    let mut printing = Printing {
        include_crds: arguments.include_crds,
        show_only: std::mem::take(&mut arguments.show_only),
        files: None,
    };
    let (output_dir, release_dir) = (arguments.output_dir.take(), arguments.release_dir);
    let done = read_input(&arguments, io.input).and_then(|input| on_a_deep_stack(arguments, input));
    let done = done.and_then(|(name, output)| {
        printing.files = output_dir.map(|folder| files::OutputFolders {
            objects: if release_dir { folder.join(name) } else { folder.clone() },
            folder,
        });
        print_all(io, output, &printing)
    });
    done.unwrap_or_else(|error| {
        if let Error::Debug(text, _) = &error {
            let _ = print(io, text);
        }
        fail(io, format_args!("gardenlet render: {error}"))
    })
}

/// Standard input, if an option names it. The command reads it once.
fn read_input(arguments: &Arguments, input: &mut dyn Read) -> Result<String, Error> {
    let is_input = |text: &str| text.trim() == "-";
    let of_set =
        |(words, text): &(SetWords, String)| *words == SetWords::File && text.split([',', '=']).any(is_input);
    if !arguments.files.iter().any(|path| is_input(path)) && !arguments.assignments.iter().any(of_set) {
        return Ok(String::new());
    }
    let read = capped::read(input, RENDER_REQUEST_BYTES_MAX);
    let bytes = read.map_err(|error| Error::Read(files::failure("read", "standard input", &error)))?;
    let too_long = || Error::Read(format!("standard input has more than {RENDER_REQUEST_BYTES_MAX} bytes"));
    String::from_utf8(bytes.ok_or_else(too_long)?)
        .map_err(|_| Error::Read("standard input is not UTF-8".to_owned()))
}

/// Templates may call themselves, so they may need more stack than the main thread has.
fn on_a_deep_stack(arguments: Arguments, input: String) -> Result<(String, Output), Error> {
    let rendering = thread::spawn("render", RENDER_STACK_BYTES, move || run(arguments, input));
    rendering.map_err(|_| Error::Thread)?.join().map_err(|_| Error::Thread)?
}

/// Renders the chart. Returns the name of the release, too.
fn run(mut arguments: Arguments, mut input: String) -> Result<(String, Output), Error> {
    let mut values = ValuesTable::new();
    for path in &arguments.files {
        let text = read_file(path, &mut input).map_err(Error::Read)?;
        let file = values::read(&text).map_err(|error| Error::Values(path.clone(), error))?;
        values::merge(&mut values, file);
    }
    for (words, text) in std::mem::take(&mut arguments.assignments) {
        if words == SetWords::Json && text.trim_start().starts_with('{') {
            let mut table: ValuesTable = view::parse(text.as_bytes()).map_err(|_| Error::Json(text))?;
            table.values_mut().for_each(values::to_floats);
            values::merge(&mut values, table);
            continue;
        }
        set::apply(&text, words, &mut |path| read_file(path, &mut input), &mut values)
            .map_err(|error| Error::Set(words, text, error))?;
    }
    let options = &mut arguments.options;
    if options.mode == RenderMode::Extension {
        values.values_mut().for_each(values::to_floats);
    }
    options.values = values;
    if let Some(template) = &arguments.name_template {
        options.name =
            release_name(template, Options { clock: options.clock.clone(), ..Options::default() })?;
    }
    let chart = archive::load_path(&arguments.chart).map_err(Error::Load)?;
    let mut rendered = render::render(chart, options).map_err(|error| match arguments.debug {
        true => Error::Debug(as_far_as_rendered(&error), error.to_string()),
        false => Error::Render(error),
    })?;
    rendered.manifests.hooks.retain(|hook| arguments.hooks && (arguments.tests || !hook.is_test));
    let output = match options.mode {
        RenderMode::Extension => Output::Text(keys(&rendered)),
        RenderMode::Template => Output::Manifests(rendered),
    };
    Ok((std::mem::take(&mut options.name), output))
}

/// Reads a file, or standard input, which is empty the second time.
fn read_file(path: &str, input: &mut String) -> Result<String, String> {
    if path.trim() == "-" {
        return Ok(std::mem::take(input));
    }
    if ["http://", "https://", "oci://"].iter().any(|scheme| path.starts_with(scheme)) {
        return Err(format!("{path}: this command reaches no network: fetch the file and give its path"));
    }
    let bytes = capped::read_file(Path::new(path), RENDER_REQUEST_BYTES_MAX)
        .map_err(|error| files::failure("open", path, &error))?;
    String::from_utf8(bytes).map_err(|_| format!("{path} is not UTF-8"))
}

fn release_name(template: &str, options: Options) -> Result<String, Error> {
    const NAME: &str = "name-template";
    let mut templates = Templates::new(options);
    let parsed = templates.parse(NAME, template);
    parsed.and_then(|()| templates.render(NAME, &Value::Nil)).map_err(|error| Error::Name(error.to_string()))
}

/// The output of Helm with `--debug` before it fails.
fn as_far_as_rendered(error: &render::Error) -> String {
    let mut text = String::new();
    if let render::Error::Manifest(_, files) = error {
        for (path, content) in files.iter().filter(|(_, content)| !content.trim().is_empty()) {
            text.push_str(&format!("---\n# Source: {path}\n{}\n", &**content));
        }
    }
    let rendered = matches!(
        error,
        render::Error::Manifest(..) | render::Error::Template(_) | render::Error::KubeVersion { .. }
    );
    if rendered { format!("{}\n", text.trim()) } else { text }
}

fn print_all(io: &mut Io<'_>, output: Output, printing: &Printing) -> Result<u8, Error> {
    let rendered = match output {
        Output::Text(text) => return Ok(print(io, &text)),
        Output::Manifests(rendered) => rendered,
    };
    let Printing { include_crds, show_only, files } = printing;
    if let Some(target) = files {
        let mut code = SUCCESS;
        let mut wrote = |path: &Path| {
            if code == SUCCESS {
                code = print(io, &format!("wrote {}\n", path.display()));
            }
        };
        files::write(&rendered, *include_crds, target, &mut wrote).map_err(Error::Write)?;
        // As in Helm, there is nothing else to print.
        return match show_only.first() {
            Some(pattern) => Err(Error::NothingToShow(pattern.clone())),
            None if code != SUCCESS => Ok(code),
            None => Ok(print(io, "\n")),
        };
    }
    if !show_only.is_empty() {
        let text = rendered.show_only(show_only, *include_crds).map_err(Error::NothingToShow)?;
        return Ok(print(io, &text));
    }
    let written = print_manifests(io.output, &rendered, *include_crds);
    Ok(code_of(io, written))
}

/// Charts may be large: what they print is not put together before.
fn print_manifests(output: &mut dyn Write, rendered: &Rendered, include_crds: bool) -> io::Result<()> {
    struct Out<'a> {
        inner: BufWriter<&'a mut dyn Write>,
        written: io::Result<()>,
    }
    impl fmt::Write for Out<'_> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.written = self.inner.write_all(text.as_bytes());
            self.written.as_ref().map_or(Err(fmt::Error), |()| Ok(()))
        }
    }
    let inner = BufWriter::with_capacity(OUTPUT_BYTES, output);
    let mut out = Out { inner, written: Ok(()) };
    // Its error has no cause; the cause is in `written`.
    let _ = rendered.write(&mut out, include_crds);
    out.written?;
    out.inner.flush()
}

/// Prints each key of the Secret as a comment, and its text.
fn keys(rendered: &Rendered) -> String {
    let objects = rendered.objects();
    objects.iter().map(|(key, object)| format!("# {key}{}", render::secret_text(object))).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::FAILURE;
    use super::*;
    use crate::base::random;

    /// Runs the command. Returns its output, its errors and its exit code.
    fn run(input: &str, args: &[&str]) -> (String, String, u8) {
        let (mut input, mut output, mut errors) = (input.as_bytes(), Vec::new(), Vec::new());
        let mut io = Io {
            input: &mut input,
            is_terminal: false,
            output: &mut output,
            errors: &mut errors,
            colour: true,
        };
        let code = main(&mut io, args.iter().map(OsString::from).collect());
        (String::from_utf8(output).unwrap(), String::from_utf8(errors).unwrap(), code)
    }

    /// A folder with a chart, which is removed at the end.
    struct Chart(PathBuf);

    impl Chart {
        fn new(templates: &[(&str, &str)]) -> Self {
            let folder = std::env::temp_dir().join(format!("gardenlet-render-{}", random::hex(12)));
            std::fs::create_dir_all(folder.join("templates")).unwrap();
            std::fs::write(folder.join("Chart.yaml"), "apiVersion: v2\nname: c\nversion: 1.0.0\n").unwrap();
            for (name, text) in templates {
                std::fs::write(folder.join("templates").join(name), text).unwrap();
            }
            Self(folder)
        }

        fn path(&self, name: &str) -> String {
            self.0.join(name).display().to_string()
        }
    }

    impl Drop for Chart {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    const TEST: &str = "kind: Pod\nmetadata: {name: t, annotations: {helm.sh/hook: test}}\n";

    #[test]
    fn what_cannot_be_read_is_named() {
        for (args, expected) in [
            (&["/nonexistent/chart"][..], "cannot read /nonexistent/chart: "),
            (&["x", "-f", "/nonexistent/v"], "open /nonexistent/v: no such file or directory\n"),
            (&["x", "-f", "https://example.org/v"], "https://example.org/v: this command reaches no network"),
            (&["x", "--set", "a"], "failed parsing --set data: key \"a\" has no value\n"),
            (&["x", "--set-json", "a={"], "failed parsing --set-json data a={\n"),
            (&["x", "--set-json", "{"], "failed parsing --set-json data JSON: {\n"),
            (
                &["x", "--set-file", "a=/nonexistent/v"],
                "failed parsing --set-file data: open /nonexistent/v: no such file",
            ),
            (&["x", "--name-template", "{{"], "template: name-template:1: "),
        ] {
            let (output, errors, code) = run("", args);
            assert_eq!((output.as_str(), code), ("", FAILURE));
            assert!(errors.starts_with(&format!("gardenlet render: {expected}")), "{errors}");
        }
    }

    #[test]
    fn values_come_from_files_input_and_assignments() {
        let chart = Chart::new(&[("a.yaml", "{{ .Release.Name }}: {{ toJson .Values }}\n")]);
        std::fs::write(chart.0.join("text"), "one\ntwo\n").unwrap();
        let file = format!("f={}", chart.path("text"));
        let args = [
            &chart.path(""),
            "-f",
            "-",
            "--set-file",
            &file,
            "--set-json",
            r#"{"a": {"y": [2]}}"#,
            "--set-json",
            "j=[1]",
            "--set-literal",
            "l=a,b",
            "--set",
            "t=1",
            "--name-template",
            "{{ \"web\" | upper | lower }}",
        ];
        let (output, errors, code) = run("a: {x: 1}\n", &args);
        let expected = r#"web: {"a":{"x":1,"y":[2]},"f":"one\ntwo\n","j":[1],"l":"a,b","t":1}"#;
        assert_eq!(
            (output.as_str(), errors.as_str(), code),
            (format!("---\n# Source: c/templates/a.yaml\n{expected}\n").as_str(), "", 0)
        );
    }

    #[test]
    fn tests_and_names_are_as_asked() {
        let chart = Chart::new(&[("a.yaml", "a: {{ .Release.IsUpgrade }}\n"), ("t.yaml", TEST)]);
        let path = chart.path("");
        let (output, ..) = run("", &[&path, "--skip-tests", "--is-upgrade"]);
        assert_eq!(output, "---\n# Source: c/templates/a.yaml\na: true\n");
        assert!(run("", &[&path]).0.contains("kind: Pod"));
        let (_, errors, code) = run("", &["Bad_Name", &path]);
        assert!(
            code == FAILURE && errors.contains("release name \"Bad_Name\": invalid release name"),
            "{errors}"
        );
        let out = chart.path("out");
        let (output, errors, code) = run("", &["rel", &path, "--output-dir", &out, "--release-name"]);
        let expected = format!("wrote {out}/rel/c/templates/a.yaml\nwrote {out}/rel/c/templates/t.yaml\n\n");
        assert_eq!((output, errors.as_str(), code), (expected, "", 0));
    }

    #[test]
    fn invalid_yaml_is_printed_for_those_who_ask() {
        let chart = Chart::new(&[("a.yaml", "a: [\n"), ("b.yaml", "b: 1\n"), ("c.yaml", "\n")]);
        let path = chart.path("");
        let (output, errors, code) = run("", &[&path]);
        assert!(output.is_empty() && code == FAILURE, "{output}");
        assert!(errors.ends_with("\n\nUse --debug flag to render out invalid YAML\n"), "{errors}");
        let (output, errors, code) = run("", &[&path, "--debug"]);
        let expected = "---\n# Source: c/templates/a.yaml\na: [\n\n---\n# Source: c/templates/b.yaml\nb: 1\n";
        assert_eq!((output.as_str(), code), (expected, FAILURE));
        assert!(errors.starts_with("gardenlet render: YAML parse error on c/templates/a.yaml: "), "{errors}");
        assert!(!errors.contains("--debug"), "{errors}");
    }
}
