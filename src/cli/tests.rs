use std::path::PathBuf;

use super::*;
use crate::config::version::{BUILT_UNIX_S, COMMIT};

struct Ended {
    code: u8,
    output: String,
    errors: String,
    loaded: Option<LoadedConfig>,
}

fn command(line: &str, variables: &[(&str, &str)]) -> Ended {
    command_with("", line, variables)
}

/// Like `command`, with this standard input.
fn command_with(input: &str, line: &str, variables: &[(&str, &str)]) -> Ended {
    let mut input = input.as_bytes();
    let (mut output, mut errors, mut loaded) = (Vec::new(), Vec::new(), None);
    let mut io =
        Io { input: &mut input, is_terminal: true, output: &mut output, errors: &mut errors, colour: false };
    let variable =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let args = line.split_whitespace().map(OsString::from).collect();
    let rebootstrap = |loaded: &LoadedConfig, _: Vec<_>, announce: &mut dyn FnMut(&str)| match loaded
        .settings
        .edge
        .bootstrap_keep
    {
        true => {
            announce("to be written\n");
            Ok("done\n".to_owned())
        }
        false => Err("nowhere".to_owned()),
    };
    let code = main(args, &variable, &mut io, &rebootstrap, |it, _| {
        loaded = Some(it);
        7
    });
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code, output: text(output), errors: text(errors), loaded }
}

/// A file that is removed at the end.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, text: impl AsRef<[u8]>) -> Self {
        let path = std::env::temp_dir().join(format!("gardenlet-cli-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn name(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

pub(super) const GOOD: &str = "
apiVersion: gardenlet.config.gardener.cloud/v1alpha1
kind: GardenletConfiguration
seedConfig:
  metadata: {name: edge-1}
  spec:
    provider: {type: local, region: north}
    networks: {pods: 10.51.0.0/16, services: 10.52.0.0/16}
    dns:
      provider: {type: local, credentialsRef: {apiVersion: v1, kind: Secret, namespace: garden, name: dns}}
      internal: {type: local, domain: i.example.org, credentialsRef: {apiVersion: v1, kind: Secret, namespace: garden, name: dns}}
    ingress: {domain: ingress.example.org, controller: {kind: nginx}}
";

#[test]
fn a_good_configuration_runs() {
    let file = TempFile::new("good.yaml", GOOD);
    let variables = [("GARDEN_KUBECONFIG", "/g"), ("KUBECONFIG", ""), ("NAMESPACE", "garden")];
    let ended = command(&format!("--config {}", file.name()), &variables);
    assert_eq!((ended.code, ended.errors.as_str()), (7, ""));
    let settings = ended.loaded.unwrap().settings;
    assert_eq!(settings.garden_client_connection.connection.kubeconfig, Some(PathBuf::from("/g")));
    assert_eq!(settings.seed_client_connection.kubeconfig, None);
}

#[test]
fn a_wrong_configuration_ends_with_1_and_all_problems() {
    let file = TempFile::new("wrong.yaml", format!("logLevel: loud\nlogFormat: xml\n{GOOD}"));
    for line in ["--config", "config validate --config"] {
        let ended = command(&format!("{line} {}", file.name()), &[]);
        assert_eq!(ended.code, 1);
        assert!(ended.loaded.is_none() && ended.output.is_empty());
        let name = file.name();
        let expected = format!(
            "{name}: logFormat: unknown value \"xml\"; known: json, text\n\
             {name}: logLevel: unknown value \"loud\"; known: debug, info, error\n"
        );
        assert_eq!(ended.errors, expected);
    }
}

#[test]
fn validate_shows_warnings_and_succeeds() {
    let file = TempFile::new("warn.yaml", format!("loglevel: info\n{GOOD}"));
    let ended = command(&format!("config validate --config {}", file.name()), &[]);
    assert_eq!((ended.code, ended.output), (0, format!("{} is valid\n", file.name())));
    let expected = "loglevel: warning: unknown field, ignored; did you mean \"logLevel\"?\n";
    assert_eq!(ended.errors, format!("{}: {expected}", file.name()));
}

#[test]
fn what_a_file_says_reaches_no_terminal_as_a_command() {
    let file = TempFile::new("escapes.yaml", "\"\\e[2J\\e]0;x\\a\": 1\n");
    let ended = command(&format!("config validate --config={}", file.name()), &[]);
    assert_eq!(ended.code, FAILURE);
    assert!(ended.errors.contains("\\u{1b}[2J\\u{1b}]0;x\\u{7}"), "{:?}", ended.errors);
    assert!(!ended.errors.contains(['\u{1b}', '\u{7}']), "{:?}", ended.errors);
}

#[test]
fn warnings_fail_where_they_are_told_to() {
    let line = "config validate --strict --config=-";
    let ended = command_with(GOOD, line, &[]);
    assert_eq!(
        (ended.code, ended.output.as_str(), ended.errors.as_str()),
        (0, "standard input is valid\n", "")
    );
    let ended = command_with(&format!("loglevel: info\n{GOOD}"), line, &[]);
    assert_eq!((ended.code, ended.output.as_str()), (1, ""));
    assert_eq!(
        ended.errors,
        "standard input: loglevel: warning: unknown field, ignored; did you mean \"logLevel\"?\n\
         standard input has warnings, which --strict does not allow\n"
    );
}

#[test]
fn standard_input_is_a_configuration_where_it_is_read_once() {
    let variables = [("GARDEN_KUBECONFIG", "/g")];
    let ended = command_with(GOOD, "--config=-", &variables);
    assert_eq!((ended.code, ended.loaded.is_some()), (7, true));
    let ended = command_with("logLevel: loud", "config validate --config -", &[]);
    assert!(ended.errors.contains("standard input: logLevel: unknown value"), "{}", ended.errors);
    let ended = command_with(GOOD, "config print-defaults --config=-", &[]);
    assert_eq!(ended.code, 0);
    assert!(
        ended.output.contains("name: edge-1") && ended.output.contains("resourceManager: Auto"),
        "{}",
        ended.output
    );
    let ended = command_with(GOOD, "rebootstrap --config=-", &variables);
    assert_eq!(ended.code, 1);
    assert!(ended.errors.starts_with("standard input: is read once"), "{}", ended.errors);
}

#[test]
fn files_that_are_no_configuration_end_with_1() {
    let broken = TempFile::new("broken.yaml", "a: [1\nb: 2\n");
    let binary = TempFile::new("binary.yaml", [0xff, 0xfe, 0x00]);
    let long = TempFile::new("long.yaml", vec![b'#'; (1 << 20) + 5]);
    let missing = "/nonexistent/gardenlet.yaml".to_owned();
    let table = [
        (broken.name(), "line 2"),
        (binary.name(), "cannot be read"),
        (long.name(), "at most 1048576"),
        (missing, "cannot be read"),
    ];
    for (name, part) in table {
        let ended = command(&format!("--config {name}"), &[]);
        assert_eq!(ended.code, 1);
        assert!(ended.errors.starts_with(&format!("{name}: ")), "{}", ended.errors);
        assert!(ended.errors.contains(part), "{}", ended.errors);
    }
}

#[test]
fn a_garden_out_of_reach_is_refused() {
    let file = TempFile::new("nowhere.yaml", GOOD);
    let ended = command(&format!("--config {}", file.name()), &[]);
    assert_eq!(ended.code, 1);
    assert!(ended.errors.contains(": gardenClientConnection: does not say how"), "{}", ended.errors);
    assert_eq!(command(&format!("config validate --config {}", file.name()), &[]).code, 0);
}

#[test]
fn the_other_mode_is_refused() {
    let file = TempFile::new("mode.yaml", GOOD);
    let ended = command(&format!("--config {}", file.name()), &[("NAMESPACE", "kube-system")]);
    assert_eq!(ended.code, 1);
    assert!(
        ended.errors.contains("NAMESPACE: kube-system means to serve a self-hosted shoot"),
        "{}",
        ended.errors
    );
}

#[test]
fn information_goes_to_the_output() {
    assert_eq!(command("--version", &[]).output, version(false));
    assert!(command("--version=raw", &[]).output.contains(r#""gardenerVersion":"v1.150.0""#));
    assert!(command("--help", &[]).output.starts_with("gardenlet joins"));
    let ended = command("--nonsense", &[]);
    assert_eq!(
        (ended.code, ended.errors.as_str()),
        (2, "gardenlet: unknown option --nonsense\nTry gardenlet --help.\n")
    );
}

#[test]
fn the_version_names_the_build_as_far_as_it_is_known() {
    let table = [
        ("", None, ""),
        ("", Some("2026-11-27T10:00:00Z"), ", 2026-11-27"),
        ("1a2b3c", None, ", commit 1a2b3c"),
        ("1a2b3c-dirty", Some("2026-11-27T10:00:00Z"), ", commit 1a2b3c-dirty, 2026-11-27"),
    ];
    for (commit, built, expected) in table {
        assert_eq!(origin(commit, built), expected);
    }
    let begin = format!("gardenlet {} (as Gardener v1.150.0)", config::version::PROGRAM);
    assert!(version(false).starts_with(&begin), "{}", version(false));
    let told: Value = serde_json::from_str(&version(true)).unwrap();
    let built = if BUILT_UNIX_S > 0 { rfc3339(Timestamp::from_unix(BUILT_UNIX_S)) } else { String::new() };
    assert_eq!((&told["commit"], &told["date"]), (&json!(COMMIT), &json!(built)));
}

#[test]
fn the_printed_defaults_are_a_configuration_but_for_the_seed() {
    let ended = command("config print-defaults", &[]);
    assert!(ended.output.contains("\ncontrollers:\n"), "{}", ended.output);
    let (_, seed) = GOOD.split_once("\nseedConfig:").unwrap();
    let file = TempFile::new("defaults.yaml", format!("{}seedConfig:{seed}", ended.output));
    let checked = command(&format!("config validate --config {}", file.name()), &[]);
    assert_eq!((checked.code, checked.errors.as_str()), (0, ""));
}

#[test]
fn a_new_identity_is_asked_for() {
    let garden = "gardenClientConnection: {kubeconfigSecret: {name: s, namespace: garden}}\n";
    let file = TempFile::new("asking", format!("{GOOD}{garden}"));
    let ended = command(&format!("rebootstrap --config={}", file.name()), &[]);
    assert_eq!((ended.code, ended.errors.as_str()), (1, "gardenlet rebootstrap: nowhere\n"));
    let file = TempFile::new("keeping", format!("{GOOD}{garden}edge: {{bootstrap: {{keep: true}}}}\n"));
    let ended = command(&format!("rebootstrap --config={}", file.name()), &[]);
    assert_eq!((ended.code, ended.output.as_str()), (0, "to be written\ndone\n"));
    let unread = "/etc/gardenlet/config.yaml: the configuration cannot be read";
    assert!(command("rebootstrap", &[]).errors.contains(unread));
    let ended = command("rebootstrap", &[("GARDENLET_CONFIG", &file.name())]);
    assert_eq!((ended.code, ended.output.as_str()), (0, "to be written\ndone\n"));
}

#[test]
fn the_environment_names_the_configuration_of_the_agent_whose_status_is_shown() {
    let broken = TempFile::new("usual.yaml", "a: [1\n");
    let usual = [("GARDENLET_CONFIG", broken.name())];
    let usual = usual.each_ref().map(|(name, value)| (*name, value.as_str()));
    assert!(command("status", &usual).errors.starts_with(&broken.name()));
    for line in ["status --address=127.0.0.1:1", "status --config=/nowhere"] {
        assert!(!command(line, &usual).errors.contains(&broken.name()), "{line}");
    }
}

#[test]
fn a_bundle_is_exported_with_the_usual_configuration() {
    let broken = TempFile::new("usual-export.yaml", "a: [1\n");
    let usual = [("GARDENLET_CONFIG", broken.name())];
    let usual = usual.each_ref().map(|(name, value)| (*name, value.as_str()));
    let ended = command("bundle export --output=/nowhere/x", &usual);
    assert!(ended.code == 1 && ended.errors.starts_with(&broken.name()), "{}", ended.errors);
    let ended = command("bundle export --output=/nowhere/x", &[]);
    let unread = "/etc/gardenlet/config.yaml: the configuration cannot be read";
    assert!(ended.code == 1 && ended.errors.contains(unread), "{}", ended.errors);
    for line in [
        "bundle export --output=/nowhere/x --config=/nowhere",
        "bundle export --output=/nowhere/x --chart=r.example.org/x:1",
    ] {
        assert!(!command(line, &usual).errors.contains(&broken.name()), "{line}");
    }
}

#[test]
fn exit_codes_are_0_for_success_1_for_failure_2_for_wrong_usage() {
    let good = TempFile::new("codes.yaml", GOOD);
    let odd = TempFile::new("codes-odd.yaml", format!("loglevel: info\n{GOOD}"));
    let broken = TempFile::new("codes-broken.yaml", "a: [1\n");
    let (good, odd, broken) = (good.name(), odd.name(), broken.name());
    let table = [
        (0, "--help".to_owned()),
        (0, "help bundle export".to_owned()),
        (0, "--version".to_owned()),
        (0, "version -o json".to_owned()),
        (0, "completion fish".to_owned()),
        (0, "config print-defaults".to_owned()),
        (0, format!("config validate --config={good}")),
        (0, format!("config validate --config={odd}")),
        (1, format!("config validate --config={odd} --strict")),
        (1, format!("config validate --config={broken}")),
        (1, format!("config validate --config={broken} -o json")),
        (1, format!("config print-defaults --config={broken}")),
        (1, format!("config print-defaults --config={broken} -o json")),
        (1, format!("explain seed/x --config={broken} -o json")),
        (1, "bundle list /nowhere -o json".to_owned()),
        (1, "etcd list --directory=/nowhere --prefix=p -o json".to_owned()),
        (1, "status --address=127.0.0.1:1 -o json".to_owned()),
        (1, format!("--config={broken}")),
        (1, format!("--config={good}")),
        (1, format!("rebootstrap --config={broken}")),
        (1, format!("doctor --config={broken}")),
        (1, format!("explain seed/x --config={broken}")),
        (1, format!("bundle export --output=/nowhere/x --config={broken}")),
        (1, "bundle list /nowhere".to_owned()),
        (1, "bundle import /nowhere --to=/nowhere".to_owned()),
        (1, "etcd list --directory=/nowhere --prefix=p".to_owned()),
        (1, "etcd install /nowhere".to_owned()),
        (1, "etcd start --etcd=/nowhere --etcdutl=/nowhere --etcd-config=/nowhere --data-dir=/nowhere --directory=/nowhere --prefix=p".to_owned()),
        (1, "etcd snapshot --endpoint=http://127.0.0.1:1 --keep=1 --directory=/nowhere --prefix=p".to_owned()),
        (1, "status --address=127.0.0.1:1".to_owned()),
        (1, format!("status --config={broken}")),
        (1, "render /nowhere".to_owned()),
        (1, "render /nowhere -f /nowhere".to_owned()),
        (1, "render /nowhere --set a".to_owned()),
        (2, String::new()),
        (2, "nothing".to_owned()),
        (2, "config".to_owned()),
        (1, "config validate".to_owned()),
        (1, "run".to_owned()),
        (1, "bootstrap-token x".to_owned()),
        (1, "bootstrap-token x --kubeconfig=/nowhere".to_owned()),
        (1, format!("doctor --context=c --config={good}")),
        (2, format!("config validate --config={good} -o xml")),
        (1, "doctor".to_owned()),
        (2, "doctor --config=".to_owned()),
        (2, "status --config=".to_owned()),
        (2, "bundle export -o x --config=".to_owned()),
        (2, format!("explain --config={good}")),
        (1, "rebootstrap".to_owned()),
        (2, "rebootstrap --config=a --config=b".to_owned()),
        (2, "bootstrap-token".to_owned()),
        (2, "bundle".to_owned()),
        (2, "bundle export".to_owned()),
        (2, "bundle list".to_owned()),
        (2, "etcd".to_owned()),
        (2, "etcd list".to_owned()),
        (2, "status x".to_owned()),
        (2, "status -o xml".to_owned()),
        (2, "render".to_owned()),
        (2, "render a b c".to_owned()),
        (2, "render a --nope".to_owned()),
        (2, "render a --kube-version=x".to_owned()),
        (2, "completion".to_owned()),
        (2, "help nothing".to_owned()),
        (2, "nothing --help".to_owned()),
        (2, format!("--config={good} status")),
        (2, "--version=maybe".to_owned()),
    ];
    for (code, line) in table {
        let ended = command(&line, &[]);
        assert_eq!(ended.code, code, "{line}: {}{}", ended.output, ended.errors);
        let is_usage = ended.errors.contains(" --help.\n");
        assert_eq!(is_usage, code == 2, "{line}: {}", ended.errors);
        assert_eq!(ended.output.is_empty(), code == 2 || !ended.errors.is_empty() && code != 0, "{line}");
    }
}

#[test]
fn json_is_printed_or_refused() {
    let good = TempFile::new("json.yaml", format!("loglevel: info\n{GOOD}"));
    let broken = TempFile::new("json-broken.yaml", format!("logLevel: loud\n{GOOD}"));
    let json = |line: &str, code: u8| -> Value {
        let ended = command(line, &[]);
        assert_eq!((ended.code, ended.errors.as_str()), (code, ""), "{line}");
        serde_json::from_str(&ended.output).unwrap()
    };
    let told = json(&format!("config validate --config={} -o json", good.name()), 0);
    assert_eq!(
        (&told["file"], &told["valid"], &told["problems"]),
        (&json!(good.name()), &json!(true), &json!([]))
    );
    let warning =
        json!([{"path": "loglevel", "message": "unknown field, ignored; did you mean \"logLevel\"?"}]);
    assert_eq!(told["warnings"], warning);
    let told = json(&format!("config validate --config={} --strict -o json", good.name()), 1);
    assert_eq!((&told["valid"], &told["warnings"]), (&json!(false), &warning));
    let told = json(&format!("config validate --config={} -o json", broken.name()), 1);
    assert_eq!((&told["valid"], &told["problems"][0]["path"]), (&json!(false), &json!("logLevel")));
    assert_eq!(json("version -o json", 0)["version"], config::version::PROGRAM);
    assert!(json("config print-defaults -o json", 0)["controllers"].is_object());
    let told = json(&format!("config print-defaults --config={} -o json", good.name()), 0);
    assert_eq!(told["seedConfig"]["metadata"]["name"], "edge-1");
    for line in [
        "--config=x",
        "rebootstrap --config=x",
        "bootstrap-token x",
        "bundle import x --to=y",
        "etcd install x",
        "etcd snapshot",
        "render x",
        "completion bash",
        "help",
    ] {
        let ended = command(&format!("{line} -o json"), &[]);
        assert!(
            ended.code == 2 && ended.errors.contains(": -o is not an option of this command: "),
            "{line}: {}",
            ended.errors
        );
    }
}

#[test]
fn a_failure_is_json_where_json_is_printed() {
    let broken = TempFile::new("json-failure.yaml", format!("logFormat: xml\nlogLevel: loud\n{GOOD}"));
    let good = TempFile::new("json-nowhere.yaml", GOOD);
    let (broken, good) = (broken.name(), good.name());
    let problems = format!(
        "{broken}: logFormat: unknown value \"xml\"; known: json, text\n\
         {broken}: logLevel: unknown value \"loud\"; known: debug, info, error"
    );
    let no_seed = "Run gardenlet doctor to find out which hop fails.";
    let table = [
        (format!("config print-defaults --config={broken}"), problems.as_str()),
        (format!("explain seed/x --config={broken}"), &problems),
        (format!("explain managedresource/x --config={good}"), no_seed),
        ("bundle list /nowhere".to_owned(), "/nowhere"),
        ("etcd list --directory=/nowhere --prefix=p".to_owned(), "/nowhere"),
    ];
    let variables = [("GARDEN_KUBECONFIG", "/nowhere"), ("KUBECONFIG", "/nowhere")];
    for (line, expected) in table {
        let ended = command(&format!("{line} -o json"), &variables);
        assert_eq!((ended.code, ended.errors.as_str()), (1, ""), "{line}");
        let told: Value = serde_json::from_str(&ended.output).unwrap();
        assert!(told["error"].as_str().is_some_and(|text| text.contains(expected)), "{line}: {told}");
        let ended = command(&line, &variables);
        assert!(ended.output.is_empty() && ended.errors.contains(expected), "{line}: {}", ended.errors);
    }
}

#[test]
fn an_output_that_cannot_be_written_is_a_failure() {
    /// The reader has closed its end.
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let file = TempFile::new("full.yaml", GOOD);
    let chart = std::env::temp_dir().join(format!("gardenlet-full-{}", crate::base::random::hex(12)));
    std::fs::create_dir_all(chart.join("templates")).unwrap();
    std::fs::write(chart.join("Chart.yaml"), "apiVersion: v2\nname: c\nversion: 1.0.0\n").unwrap();
    std::fs::write(chart.join("templates/a.yaml"), "kind: A\nmetadata: {name: a}\n").unwrap();
    let (config, path) = (file.name(), chart.display());
    let lines = [
        "--help".to_owned(),
        "version -o json".to_owned(),
        "completion bash".to_owned(),
        "config print-defaults".to_owned(),
        format!("config validate --config={config}"),
        format!("config validate --config={config} -o json"),
        "status --help".to_owned(),
        format!("render {path}"),
        format!("render {path} -s templates/a.yaml"),
        format!("render {path} --as-extension"),
        format!("render {path} --output-dir {path}/out"),
    ];
    let run = |line: &str, output: &mut dyn Write| {
        let mut errors = Vec::new();
        let mut io =
            Io { input: &mut io::empty(), is_terminal: false, output, errors: &mut errors, colour: false };
        let args = line.split_whitespace().map(OsString::from).collect();
        let code = main(args, &|_| None, &mut io, &|_, _, _| Err(String::new()), |_, _| 7);
        (code, String::from_utf8(errors).unwrap())
    };
    for line in &lines {
        let mut full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (code, errors) = run(line, &mut full);
        let expected = "gardenlet: cannot write the output: No space left on device (os error 28)\n";
        assert_eq!((code, errors.as_str()), (1, expected), "{line}");
        assert_eq!(run(line, &mut Closed), (0, String::new()), "{line}");
    }
    std::fs::remove_dir_all(&chart).unwrap();
}

#[test]
fn a_configuration_is_valid_in_green() {
    let (file, mut output, mut errors) = (TempFile::new("green.yaml", GOOD), Vec::new(), Vec::new());
    let mut io = Io {
        input: &mut io::empty(),
        is_terminal: false,
        output: &mut output,
        errors: &mut errors,
        colour: true,
    };
    let args = ["config", "validate", "--config", &file.name()].map(OsString::from).to_vec();
    let code = main(args, &|_| None, &mut io, &|_, _, _| Err(String::new()), |_, _| 7);
    let expected = format!("{} is \u{1b}[32mvalid\u{1b}[0m\n", file.name());
    assert_eq!((code, String::from_utf8(output).unwrap()), (0, expected));
}

/// The options of all help pages with their dashes, and the words of all commands.
fn spoken() -> Vec<String> {
    let mut found: Vec<String> =
        help::COMMANDS.iter().flat_map(|command| command.split(' ')).map(str::to_owned).collect();
    for command in [""].iter().chain(&help::COMMANDS) {
        found.extend(help::options(&help::page(command)).iter().map(ToString::to_string));
    }
    // The short form of help needs no mention.
    found.retain(|word| word != "-h");
    found.sort();
    found.dedup();
    found
}

#[test]
fn manual_and_completions_say_what_help_says() {
    let expected = spoken();
    for word in ["--config", "--set-string", "-o", "-a", "doctor", "print-defaults", "status", "--watch"] {
        assert!(expected.iter().any(|it| it == word), "{word} is in {expected:?}");
    }
    // Manuals write \- for a dash and \fB for bold letters, fish -l for two dashes and -s for one.
    let man: &[_] = &[("\\fR", ""), ("\\fB", ""), ("\\fI", ""), ("\\-", "-")];
    let files = [
        ("man/gardenlet.1", include_str!("../../packaging/man/gardenlet.1"), man),
        ("completions/gardenlet.bash", include_str!("../../packaging/completions/gardenlet.bash"), &[]),
        ("completions/_gardenlet", include_str!("../../packaging/completions/_gardenlet"), &[]),
        (
            "completions/gardenlet.fish",
            include_str!("../../packaging/completions/gardenlet.fish"),
            &[("set -l ", ""), ("-l ", "--"), ("-s ", "-")],
        ),
    ];
    for (name, text, marks) in files {
        let plain = marks.iter().fold(text.to_owned(), |plain, (mark, meaning)| plain.replace(mark, meaning));
        let is_end = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
        for word in &expected {
            assert!(plain.split(is_end).any(|it| it == word), "packaging/{name} does not know {word}");
        }
        let options = plain.split(is_end).filter(|word| word.len() > 3 && word.starts_with("--"));
        for option in options {
            assert!(
                expected.iter().any(|word| word == option),
                "packaging/{name} knows {option}, --help does not"
            );
        }
    }
}
