use std::path::PathBuf;

use super::*;

struct Ended {
    code: u8,
    output: String,
    errors: String,
    loaded: Option<Loaded>,
}

fn command(line: &str, variables: &[(&str, &str)]) -> Ended {
    command_with("", line, variables)
}

/// The same, with this standard input.
fn command_with(input: &str, line: &str, variables: &[(&str, &str)]) -> Ended {
    let mut input = input.as_bytes();
    let (mut output, mut errors, mut loaded) = (Vec::new(), Vec::new(), None);
    let mut io = Io { input: &mut input, output: &mut output, errors: &mut errors };
    let variable =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let args = line.split_whitespace().map(OsString::from).collect();
    let rebootstrap = |loaded: &Loaded| match loaded.settings.edge.bootstrap_keep {
        true => Ok("done\n".to_owned()),
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

const GOOD: &str = "
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
fn a_wrong_configuration_ends_with_2_and_all_problems() {
    let file = TempFile::new("wrong.yaml", format!("logLevel: loud\nlogFormat: xml\n{GOOD}"));
    for line in ["--config", "config validate --config"] {
        let ended = command(&format!("{line} {}", file.name()), &[]);
        assert_eq!(ended.code, 2);
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
    assert!(ended.errors.contains("\\u001b[2J\\u001b]0;x\\u0007"), "{:?}", ended.errors);
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
    assert_eq!((ended.code, ended.output.as_str()), (2, ""));
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
    assert_eq!(ended.code, 2);
    assert!(ended.errors.starts_with("standard input: is read once"), "{}", ended.errors);
}

#[test]
fn files_that_are_no_configuration_end_with_2() {
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
        assert_eq!(ended.code, 2);
        assert!(ended.errors.starts_with(&format!("{name}: ")), "{}", ended.errors);
        assert!(ended.errors.contains(part), "{}", ended.errors);
    }
}

#[test]
fn a_garden_out_of_reach_is_refused() {
    let file = TempFile::new("nowhere.yaml", GOOD);
    let ended = command(&format!("--config {}", file.name()), &[]);
    assert_eq!(ended.code, 2);
    assert!(ended.errors.contains(": gardenClientConnection: does not say how"), "{}", ended.errors);
    assert_eq!(command(&format!("config validate --config {}", file.name()), &[]).code, 0);
}

#[test]
fn the_other_mode_is_refused() {
    let file = TempFile::new("mode.yaml", GOOD);
    let ended = command(&format!("--config {}", file.name()), &[("NAMESPACE", "kube-system")]);
    assert_eq!(ended.code, 2);
    assert!(
        ended.errors.contains("NAMESPACE: kube-system means to serve a self-hosted shoot"),
        "{}",
        ended.errors
    );
}

#[test]
fn information_goes_to_the_output() {
    assert_eq!(
        command("--version", &[]).output,
        format!("gardenlet {} (as Gardener v1.150.0)\n", config::version::PROGRAM)
    );
    assert!(command("--version=raw", &[]).output.contains(r#""gardenerVersion":"v1.150.0""#));
    assert!(command("--help", &[]).output.starts_with("gardenlet: joins"));
    let ended = command("--nonsense", &[]);
    assert_eq!(
        (ended.code, ended.errors.as_str()),
        (2, "gardenlet: invalid option '--nonsense'\nTry gardenlet --help.\n")
    );
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
    assert_eq!((ended.code, ended.errors.as_str()), (2, "gardenlet rebootstrap: nowhere\n"));
    let file = TempFile::new("keeping", format!("{GOOD}{garden}edge: {{bootstrap: {{keep: true}}}}\n"));
    let ended = command(&format!("rebootstrap --config={}", file.name()), &[]);
    assert_eq!((ended.code, ended.output.as_str()), (0, "done\n"));
    assert!(command("rebootstrap", &[]).errors.contains("--config is missing"));
}

/// What stands in a help text: options with their dashes, and commands.
fn spoken(help: &str) -> Vec<String> {
    let is_word = |c: char| c.is_ascii_lowercase() || c == '-';
    let mut found = Vec::new();
    for line in help.lines() {
        let words = line.split(|c: char| !(is_word(c) || c.is_ascii_uppercase() || c == '=' || c == '.'));
        let options = words.clone().filter(|word| word.starts_with('-') && word.len() > 1);
        found.extend(options.map(|word| word.split('=').next().unwrap().to_owned()));
        let usage = line.strip_prefix("  gardenlet ").unwrap_or_default();
        let commands = usage.split(' ').take_while(|word| word.starts_with(|c: char| c.is_ascii_lowercase()));
        found.extend(commands.map(str::to_owned));
    }
    found.sort();
    found.dedup();
    found
}

#[test]
fn manual_and_completions_say_what_help_says() {
    let helps = ["--help", "render --help", "bundle --help"].map(|line| command(line, &[]).output);
    let expected = spoken(&helps.concat());
    for word in ["--config", "--set-string", "-o", "-a", "doctor", "print-defaults"] {
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
