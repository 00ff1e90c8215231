//! Parses the command line: the arguments of `helm template` that need neither a cluster nor a network.

use std::ffi::OsString;
use std::path::PathBuf;

use lexopt::Arg::{Long, Short, Value};
use lexopt::Parser;

use super::super::arguments::truth;
use super::super::usage::Usage;
use crate::chart::render::{KubeVersion, Options, RenderMode};
use crate::chart::set::SetWords;

/// The option that lifts the limits of a rendering process.
pub(in super::super) const UNLIMITED: &str = "--unlimited";

#[derive(Debug)]
pub(super) struct Arguments {
    pub(super) chart: PathBuf,
    pub(super) files: Vec<String>,
    pub(super) assignments: Vec<(SetWords, String)>,
    pub(super) name_template: Option<String>,
    pub(super) include_crds: bool,
    pub(super) hooks: bool,
    pub(super) tests: bool,
    pub(super) show_only: Vec<String>,
    pub(super) output_dir: Option<PathBuf>,
    pub(super) release_dir: bool,
    pub(super) debug: bool,
    pub(super) options: Options,
}

impl Arguments {
    /// An option that chooses among Helm's documents, of which an extension has none.
    fn without_meaning(&self) -> Option<&'static str> {
        let given = [
            ("--output-dir", self.output_dir.is_some()),
            ("--show-only", !self.show_only.is_empty()),
            ("--include-crds", self.include_crds),
            ("--release-name", self.release_dir),
            ("--no-hooks", !self.hooks),
            ("--skip-tests", !self.tests),
        ];
        let is_extension = self.options.mode == RenderMode::Extension;
        given.into_iter().find(|(_, is_given)| is_extension && *is_given).map(|(option, _)| option)
    }
}

/// Options of `helm template` that are refused, and why.
const REFUSED: [(&str, &[&str]); 4] = [
    (
        "asks a cluster, and this command asks none",
        &[
            "validate",
            "kubeconfig",
            "kube-apiserver",
            "kube-as-group",
            "kube-as-user",
            "kube-ca-file",
            "kube-context",
            "kube-insecure-skip-tls-verify",
            "kube-tls-server-name",
            "kube-token",
            "burst-limit",
            "qps",
        ],
    ),
    (
        "fetches or verifies charts, or looks up names, and this command reaches no network: give a folder or a .tgz",
        &[
            "ca-file",
            "cert-file",
            "content-cache",
            "dependency-update",
            "devel",
            "enable-dns",
            "insecure-skip-tls-verify",
            "key-file",
            "keyring",
            "pass-credentials",
            "password",
            "plain-http",
            "registry-config",
            "repo",
            "repository-cache",
            "repository-config",
            "username",
            "verify",
            "version",
        ],
    ),
    ("runs another program: use a pipe", &["post-renderer", "post-renderer-args"]),
    (
        "concerns an installation, and this command installs nothing: leave it out",
        &[
            "atomic",
            "create-namespace",
            "description",
            "force",
            "force-conflicts",
            "force-replace",
            "labels",
            "replace",
            "rollback-on-failure",
            "server-side",
            "take-ownership",
            "timeout",
            "wait",
            "wait-for-jobs",
        ],
    ),
];

/// Arguments that are not complete yet.
struct IncompleteArguments {
    words: Vec<OsString>,
    generate_name: bool,
    kube_version: Option<String>,
    arguments: Arguments,
}

/// Parses the arguments after `render`; none if the user requests help.
pub(super) fn parse(args: Vec<OsString>) -> Result<Option<Arguments>, Usage> {
    read(args)
        .and_then(|given| given.map(IncompleteArguments::finish).transpose())
        .map_err(|usage| usage.of("render"))
}

fn wrong(why: impl Into<String>) -> Usage {
    Usage::new("render", why)
}

fn text(parser: &mut Parser) -> Result<String, Usage> {
    Ok(parser.value()?.into_string().map_err(lexopt::Error::NonUnicodeValue)?)
}

/// Whether a switch is on: as in Go, it may have a value.
fn flag(parser: &mut Parser) -> Result<bool, Usage> {
    let Some(value) = parser.optional_value() else { return Ok(true) };
    let value = value.to_string_lossy();
    truth(&value).ok_or_else(|| wrong(format!("{value:?} is neither true nor false")))
}

fn read(args: Vec<OsString>) -> Result<Option<IncompleteArguments>, Usage> {
    let mut given = IncompleteArguments {
        words: Vec::new(),
        generate_name: false,
        kube_version: None,
        arguments: Arguments {
            chart: PathBuf::new(),
            files: Vec::new(),
            assignments: Vec::new(),
            name_template: None,
            include_crds: false,
            hooks: true,
            tests: true,
            show_only: Vec::new(),
            output_dir: None,
            release_dir: false,
            debug: false,
            options: Options::new(RenderMode::Template, "", "default"),
        },
    };
    let mut parser = Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => return Ok(None),
            Value(word) => given.words.push(word),
            Short(letter) => {
                let long = match letter {
                    'a' => "api-versions",
                    'f' => "values",
                    'g' => "generate-name",
                    'l' => "labels",
                    'n' => "namespace",
                    's' => "show-only",
                    _ => return Err(Usage::unexpected("render", &Short(letter))),
                };
                given.option(long, &mut parser)?;
            }
            Long(name) => {
                let name = name.to_owned();
                given.option(&name, &mut parser)?;
            }
        }
    }
    Ok(Some(given))
}

impl IncompleteArguments {
    fn option(&mut self, name: &str, parser: &mut Parser) -> Result<(), Usage> {
        let arguments = &mut self.arguments;
        let options = &mut arguments.options;
        let mut set = |words, parser: &mut Parser| -> Result<(), Usage> {
            arguments.assignments.push((words, text(parser)?));
            Ok(())
        };
        match name {
            // A list separated by commas, like the next option.
            "values" => arguments.files.extend(text(parser)?.split(',').map(str::to_owned)),
            "api-versions" => options.api_versions.extend(text(parser)?.split(',').map(str::to_owned)),
            "set" => set(SetWords::Typed, parser)?,
            "set-string" => set(SetWords::Text, parser)?,
            "set-json" => set(SetWords::Json, parser)?,
            "set-file" => set(SetWords::File, parser)?,
            "set-literal" => set(SetWords::Literal, parser)?,
            "namespace" => options.namespace = text(parser)?,
            "kube-version" => self.kube_version = Some(text(parser)?),
            "name-template" => arguments.name_template = Some(text(parser)?),
            "generate-name" => self.generate_name = flag(parser)?,
            "is-upgrade" => options.is_upgrade = flag(parser)?,
            "include-crds" => arguments.include_crds = flag(parser)?,
            "no-hooks" => arguments.hooks = !flag(parser)?,
            "skip-tests" => arguments.tests = !flag(parser)?,
            "skip-schema-validation" => options.checks_schema = !flag(parser)?,
            "show-only" => arguments.show_only.push(text(parser)?),
            "output-dir" => arguments.output_dir = Some(parser.value()?.into()),
            "release-name" => arguments.release_dir = flag(parser)?,
            "debug" => arguments.debug = flag(parser)?,
            "as-extension" => {
                options.mode = if flag(parser)? { RenderMode::Extension } else { RenderMode::Template }
            }
            // `limit_process` handles the last one. The others have no effect in Helm, either.
            "skip-crds"
            | "disable-openapi-validation"
            | "hide-notes"
            | "render-subchart-notes"
            | "unlimited" => {
                flag(parser)?;
            }
            "dry-run" => match parser.optional_value() {
                None => {}
                Some(value) if matches!(value.to_str(), Some("client" | "true" | "unset")) => {}
                Some(value) if value == "server" => {
                    return Err(wrong("--dry-run=server asks a cluster, and this command asks none"));
                }
                Some(value) => {
                    let value = value.to_string_lossy();
                    let why = format!("invalid dry-run value ({value:?}). Must be \"server\" or \"client\"");
                    return Err(wrong(why));
                }
            },
            other => {
                return Err(match REFUSED.iter().find(|(_, names)| names.contains(&other)) {
                    Some((why, _)) => wrong(format!("--{other} {why}")),
                    None => Usage::unexpected("render", &Long(other)),
                });
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Arguments, Usage> {
        let Self { words, generate_name, kube_version, mut arguments } = self;
        let mut words = words.into_iter();
        let (name, chart) = match (words.next(), words.next(), words.next()) {
            (None, ..) => return Err(wrong("a chart is missing")),
            (Some(chart), None, _) => (None, chart),
            (Some(name), Some(chart), None) => (Some(name), chart),
            (_, _, Some(word)) => return Err(Usage::unexpected("render", &Value(word))),
        };
        if name.is_some() && generate_name {
            return Err(wrong("cannot set --generate-name and also specify a name"));
        }
        if name.is_some() && arguments.name_template.is_some() {
            return Err(wrong("cannot set --name-template and also specify a name"));
        }
        if let Some(option) = arguments.without_meaning() {
            let why =
                "an extension's chart becomes one Secret, which is printed with all objects of its templates";
            return Err(wrong(format!("leave out {option} with --as-extension: {why}")));
        }
        arguments.chart = chart.into();
        let name = name.map(|name| name.to_string_lossy().into_owned());
        arguments.options.name = name.unwrap_or_else(|| "release-name".to_owned());
        if let Some(text) = kube_version {
            let version = KubeVersion::of_flag(&text);
            arguments.options.kube_version =
                version.ok_or_else(|| wrong(format!("--kube-version {text:?} is not a version")))?;
        }
        // The order on the command line does not matter: `--set-string` always overrides `--set`, and so on.
        arguments.assignments.sort_by_key(|(words, _)| *words);
        Ok(arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<Arguments, String> {
        let args = args.iter().map(OsString::from).collect();
        parse(args).map(Option::unwrap).map_err(|usage| usage.to_string())
    }

    #[test]
    fn arguments_are_helms() {
        let line = "rel dir -f v.yaml,w.yaml --set-literal d=1 --set-file c=f --set-string b=1 --set a=1 --set-json e=1 -n ns \
                    -a x/v1,y/v1 --kube-version 1.30 -s templates/a.yaml --include-crds --skip-tests --output-dir out \
                    --release-name --debug --is-upgrade --skip-schema-validation --skip-crds --dry-run=client --no-hooks=false";
        let words: Vec<&str> = line.split_whitespace().collect();
        let a = parsed(&words).unwrap();
        assert_eq!((a.options.name.as_str(), a.options.namespace.as_str()), ("rel", "ns"));
        assert_eq!(
            (a.chart, a.files),
            (PathBuf::from("dir"), vec!["v.yaml".to_owned(), "w.yaml".to_owned()])
        );
        let order: Vec<&str> = a.assignments.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(order, ["e=1", "a=1", "b=1", "c=f", "d=1"]);
        assert_eq!(a.options.api_versions, ["x/v1", "y/v1"]);
        assert_eq!(a.options.kube_version.version, "v1.30");
        assert!(a.options.is_upgrade && !a.options.checks_schema && a.include_crds && a.hooks && !a.tests);
        assert!(a.debug && a.release_dir && a.output_dir == Some("out".into()));
        assert_eq!(parsed(&["dir"]).unwrap().options.name, "release-name");
        assert_eq!(parsed(&["dir", UNLIMITED, "-g"]).unwrap().options.name, "release-name");
        let extension = parsed(&["dir", "--as-extension", "--no-hooks=false", "--include-crds=f"]).unwrap();
        assert_eq!(extension.options.mode, RenderMode::Extension);
        for (values, expected) in [
            (["1", "t", "T", "true", "TRUE", "True"], true),
            (["0", "f", "F", "false", "FALSE", "False"], false),
        ] {
            for value in values {
                assert_eq!(parsed(&["dir", &format!("--debug={value}")]).unwrap().debug, expected, "{value}");
            }
        }
        assert!(parse(vec!["a".into(), "-h".into()]).unwrap().is_none());
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for (args, message) in [
            (&[][..], "a chart is missing"),
            (&["a", "b", "c"], "unexpected argument \"c\""),
            (&["a", "--nope"], "unknown option --nope"),
            (&["a", "--setjson", "x"], "unknown option --setjson; did you mean --set-json?"),
            (&["a", "--kube-version", "x"], "--kube-version \"x\" is not a version"),
            (&["a", "-f"], "-f needs a value"),
            (&["a", "b", "-g"], "cannot set --generate-name and also specify a name"),
            (&["a", "b", "--name-template", "x"], "cannot set --name-template and also specify a name"),
            (&["a", "--debug=maybe"], "\"maybe\" is neither true nor false"),
            (&["a", "--debug=TRue"], "\"TRue\" is neither true nor false"),
            (
                &["a", "--as-extension", "--output-dir=x"],
                "leave out --output-dir with --as-extension: an extension",
            ),
            (&["a", "--as-extension", "-s=x"], "leave out --show-only with --as-extension: an extension"),
            (&["a", "--include-crds", "--as-extension"], "leave out --include-crds with --as-extension"),
            (&["a", "--as-extension", "--release-name"], "leave out --release-name with --as-extension"),
            (&["a", "--as-extension", "--no-hooks"], "leave out --no-hooks with --as-extension"),
            (&["a", "--as-extension", "--skip-tests"], "leave out --skip-tests with --as-extension"),
            (&["a", "--dry-run=server"], "--dry-run=server asks a cluster"),
            (&["a", "--dry-run=none"], "invalid dry-run value (\"none\")"),
            (&["a", "--validate"], "--validate asks a cluster, and this command asks none"),
            (&["a", "--repo", "x"], "--repo fetches or verifies charts"),
            (&["a", "--version", "1"], "--version fetches or verifies charts"),
            (&["a", "--post-renderer", "x"], "--post-renderer runs another program"),
            (&["a", "--wait"], "--wait concerns an installation"),
            (&["a", "-l", "x"], "--labels concerns an installation"),
        ] {
            let error = parsed(args).unwrap_err();
            let expected = format!("gardenlet render: {message}");
            assert!(
                error.starts_with(&expected) && error.ends_with("Try gardenlet render --help."),
                "{error}"
            );
        }
    }
}
