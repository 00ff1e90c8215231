//! The documents for operators: the test runs their commands against a garden, a seed and an agent in this process. If
//! a command needs another program, the test checks it instead: its files, units and addresses must exist. No command
//! is skipped without a reason.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use gardenlet::base::sorted::SortedMap;
use gardenlet::cli;
use gardenlet::config::{self, LoadedConfig};
use gardenlet::{app, format::yaml};
use serde_json::{Value, json};

use crate::charts;
use crate::commands::{command, printed};
use crate::story_extension::installed;
use crate::story_status::wait_for_verdict;
use crate::world::{Agent, Options, World, own_address};
use support::registry::Registry;

/// Documents whose commands need the results of an earlier document. The others follow in the order of their names.
const FIRST: [&str; 3] = ["docs/install.md", "docs/air-gap.md", "docs/options.md"];
/// Documents outside of the folder `docs`.
const ABOVE: [&str; 3] = ["README.md", "SECURITY.md", "CONTRIBUTING.md"];
/// Documents about the source: they name options of scripts, too.
const OF_SOURCE: [&str; 3] = ["docs/building.md", "docs/numbers.md", "docs/decisions/"];
/// Commands that this test does not run, and why. [`Desk::account`] runs or checks the others.
const LEFT_OUT: &[(&str, &str)] = &[
    (
        "apt install --allow-downgrades ./gardenlet_0.1.0_amd64.deb",
        "tests/packaging goes back to an older package, on a machine of its own",
    ),
    ("apt purge gardenlet", "tests/packaging purges a package, on a machine of its own"),
    ("dnf remove gardenlet", "tests/packaging removes a package with rpm, which dnf calls"),
    (
        "gardenlet rescue garden-p/s1 --from=edge-1 --to=edge-2 --kubeconfig=garden.kubeconfig",
        "needs a lost seed: story_shoot_lost runs it",
    ),
    ("timedatectl status", "a program of systemd; it shows the clock of a host"),
    (
        "openssl genpkey -algorithm ed25519 -out signing-key.pem",
        "tests/packaging makes such a key and signs a release with it",
    ),
    (
        "openssl pkeyutl -verify -pubin -inkey signing-key.pub.pem -rawin -in SHA256SUMS -sigfile SHA256SUMS.sig",
        "needs a release: tests/packaging verifies one",
    ),
    ("sha256sum --check SHA256SUMS", "needs a release: tests/packaging verifies one"),
    (
        "kubectl --kubeconfig garden.kubeconfig get --raw /apis/core.gardener.cloud/v1beta1/namespaces/garden-p/shoots/s1 | jq -c '.spec.seedName = \"edge-2\"' | kubectl --kubeconfig garden.kubeconfig replace --raw /apis/core.gardener.cloud/v1beta1/namespaces/garden-p/shoots/s1/binding -f -",
        "needs a Shoot and a second seed: the stories of moving Shoots send the same request",
    ),
    ("gardenlet explain shoot garden-p/s1", "needs a Shoot: the story of Shoots in trouble runs it"),
    (
        "gardenlet explain shoot garden-p/s1 --config=gardenlet.yaml",
        "needs a Shoot: the story of Shoots in trouble runs it",
    ),
    (
        "gardenlet node script garden-p/h1 shed --name=shed-1 >join.sh",
        "needs a Shoot with a pool: a story of tests/cluster runs it",
    ),
    ("gardenlet node script garden-p/h1 shed --name=shed-1 --rejoin >join.sh", "the same"),
    ("gardenlet node list garden-p/h1", "needs a Shoot with a pool: story_host_list runs it"),
    ("gardenlet node remove garden-p/h1 shed-1", "needs a Shoot with a host: story_host_remove runs it"),
    ("gardenlet node remove garden-p/h1 shed-1 --lost", "the same"),
    ("sh join.sh", "needs a host: a story of tests/cluster runs the script"),
    ("sh join.sh --check", "the same"),
    ("sh join.sh --help", "the same"),
    ("sh join.sh --uninstall", "the same"),
    ("cargo run --release --example playground", "tests/run runs it beside these tests, built quickly"),
    ("gardenlet status --watch", "does not end by itself: a story of the status page runs it"),
    ("ssh -L 2728:localhost:2728 edge-host", "needs another machine"),
    ("tests/run", "it runs this test"),
    ("tests/bench/run", "tests/run runs it in its lane `sizes`"),
    ("tests/bench/run --shoot", "it is a part of the one above"),
    ("cargo build --profile shipping", "takes minutes; what is shipped is built by cross/build"),
    ("cross/try", "tests/run runs it in its lane `boards`"),
    (
        "ctr --namespace k8s.io images import gardenlet.tar",
        "a story of tests/cluster does it, on a real node",
    ),
    (
        "skopeo copy --all oci:target/image/layout:0.1.0 docker://registry.example.org/edge/gardenlet:0.1.0",
        "needs a registry and skopeo, which tests/run does not install",
    ),
    (
        "skopeo --override-arch=arm --override-variant=v7 copy oci:target/image/layout:0.1.0 docker-archive:armv7.tar:gardenlet:0.1.0",
        "needs all binaries, and skopeo",
    ),
    ("docker load --input=armv7.tar", "needs an engine of Docker"),
    (
        "apt-get install --yes ./gardenlet_0.1.0_amd64.deb",
        "tests/packaging installs packages, on a machine of its own",
    ),
];
/// Files that the reader creates or receives before a command needs them. A document must explain each one.
const MADE: &[&str] = &[
    "bootstrap.kubeconfig",
    "garden.kubeconfig",
    "seed.kubeconfig",
    "gardenlet.yaml",
    "values.yaml",
    "gardenlet",
    "charts.tar",
    "s1.yaml",
    "s1.kubeconfig",
    "h1.kubeconfig",
    "admin.json",
    "no-provider-local.yaml",
    "rbac.yaml",
    "example-project.yaml",
    "example-shoot.yaml",
];

/// Files that a package brings, and where they are in the project.
const PACKAGED: &[(&str, &str)] =
    &[("/usr/share/gardenlet/bootstrap.conf", "packaging/systemd/bootstrap.conf")];

pub fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
        .unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// All documents, in the order in which the test runs their commands.
fn documents() -> Vec<String> {
    let mut found: Vec<String> = FIRST.map(str::to_owned).into();
    for folder in ["docs", "docs/decisions"] {
        let entries = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut paths: Vec<String> =
            names.filter(|name| name.ends_with(".md")).map(|name| format!("{folder}/{name}")).collect();
        paths.retain(|path| !FIRST.contains(&path.as_str()));
        paths.sort();
        found.append(&mut paths);
    }
    found.extend(ABOVE.map(str::to_owned));
    found
}

/// The fenced blocks of a language, with any indentation.
pub fn blocks(document: &str, language: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let (mut open, mut indent) = (None, 0);
    for line in document.lines() {
        let fence = line.trim_start().strip_prefix("```");
        match (fence, &open) {
            (Some(name), None) => {
                open = Some(name.to_owned());
                indent = line.len() - line.trim_start().len();
                found.extend((name == language).then(String::new));
            }
            (Some(_), Some(_)) => open = None,
            (None, Some(name)) if name == language => {
                let block = found.last_mut().unwrap();
                block.push_str(line.get(indent..).unwrap_or_default());
                block.push('\n');
            }
            _ => {}
        }
    }
    assert!(open.is_none(), "a block that does not end");
    found
}

/// The text outside of blocks.
fn prose(document: &str) -> String {
    document.split("```").step_by(2).collect()
}

/// The commands of a document, without `sudo`.
fn commands(document: &str) -> Vec<String> {
    let blocks = blocks(document, "sh");
    let lines = blocks.iter().flat_map(|block| block.lines()).filter(|line| !line.is_empty());
    lines.map(|line| line.trim().strip_prefix("sudo ").unwrap_or(line.trim()).to_owned()).collect()
}

/// An operator's desk: a seed with an agent and an extension, whose chart is in a registry.
struct Desk {
    world: World,
    agent: Agent,
    _registry: Registry,
    installation: String,
}

impl Desk {
    fn new() -> Self {
        let world = World::start(&Options::real("edge-1"));
        let registry = Registry::start_plain(&world.clock);
        registry.push("charts/echo", "1", &charts::extension());
        registry.put_blob("charts/echo", b"{}");
        let mut config = world.config();
        config["edge"]["stateDir"] = json!(world.path("state-host-1"));
        config["edge"]["registries"] = json!([{"host": registry.address, "insecure": true}]);
        let token = world.preparation.token();
        let bootstrap = world.file("bootstrap.kubeconfig", &world.garden.bootstrap_kubeconfig(&token));
        config["edge"]["bootstrap"] = json!({"keep": true, "kubeconfig": bootstrap});
        // `doctor` looks for free ports, and other worlds have agents, too.
        let mut of_host = config.clone();
        let own = json!({"bindAddress": own_address()});
        of_host["server"] = json!({"healthProbes": own, "metrics": own});
        world.file("gardenlet.yaml", &of_host.to_string());
        world.file("garden.kubeconfig", &world.garden.admin_kubeconfig());
        let token = std::fs::read_to_string(world.path("serviceaccount").join("token")).unwrap();
        world.file("seed.kubeconfig", &world.seed.bootstrap_kubeconfig(&token));
        let repository = json!({"ref": format!("{}/charts/echo:1", registry.address)});
        crate::story_oci::register(&world, &repository);
        world.garden.apply(&[crate::story_by_hand::dns_secret()]);
        let agent = world.agent_with(&config);
        world.wait_until_ready();
        let installation = installed(&world, "echo");
        // `explain` asks for the objects of the extension, which the agent's role does not allow.
        world.expect_refusals();
        Self { world, agent, _registry: registry, installation }
    }

    /// Replaces a word of a command by its counterpart in this test.
    fn meant(&self, word: &str) -> String {
        let (option, value) = word.split_once('=').map_or(("", word), |(name, value)| (name, value));
        let here = |name: &str| self.world.path(name).display().to_string();
        let value = match value {
            "NAME" => self.installation.clone(),
            "/etc/gardenlet/config.yaml" => here("gardenlet.yaml"),
            "/etc/gardenlet/seed.kubeconfig" => here("seed.kubeconfig"),
            "/usr/share/charts" => here("layout"),
            name if name.contains('.') && MADE.contains(&name) => here(name),
            other => other.to_owned(),
        };
        if option.is_empty() { value } else { format!("{option}={value}") }
    }

    /// Runs `gardenlet ...`. Returns the reason of a failure.
    fn run(&self, variables: &[(String, String)], words: &[&str]) -> Result<(), String> {
        let mut environment: SortedMap<String, String> =
            [("KUBECONFIG", "seed.kubeconfig"), ("GARDENLET_CONFIG", "gardenlet.yaml")]
                .map(|(name, value)| (name.to_owned(), self.meant(value)))
                .into();
        environment.extend(variables.iter().map(|(name, value)| (name.clone(), self.meant(value))));
        let mut args: Vec<String> = words.iter().map(|word| self.meant(word)).collect();
        if args.first().is_some_and(|command| command == "status") {
            // An earlier command may have asked for a new identity, which takes a moment.
            wait_for_verdict(&self.agent, "healthy");
            // Each agent of a test has its own address.
            args.retain(|word| !word.starts_with("--config"));
            args.push(format!("--address={}:2728", self.agent.probes));
        }
        let variable = |name: &str| environment.get(name).cloned();
        let rebootstrap = |loaded: &LoadedConfig, _: Vec<_>, announce: &mut dyn FnMut(&str)| {
            app::ask_for_identity(loaded, environment.clone(), announce)
        };
        // An agent runs already: this command would start it with the same settings.
        let run = |_: LoadedConfig, _: &Path| cli::SUCCESS;
        let words = args.iter().map(Into::into).collect();
        let (code, output, errors) = printed(None, |io| cli::main(words, &variable, io, &rebootstrap, run));
        if code == cli::SUCCESS {
            if args[0] == "bootstrap-token" {
                self.apply_token(&yaml::parse(&output).unwrap());
            }
            return Ok(());
        }
        Err(format!("ends with {code}: {output}{errors}"))
    }

    /// As kubectl does behind the pipe. The garden has a token with this name.
    fn apply_token(&self, secret: &Value) {
        let name = secret["metadata"]["name"].as_str().unwrap();
        self.world.garden.merge("", "secrets", ("kube-system", name), &json!({"data": secret["data"]}));
    }

    /// Runs a command, or checks the names in it.
    fn account(&self, command: &str) -> Result<(), String> {
        if LEFT_OUT.iter().any(|(known, _)| *known == command) {
            return Ok(());
        }
        let mut words: Vec<&str> = command.split_whitespace().collect();
        let mut variables = Vec::new();
        while let Some((name, value)) = words[0].split_once('=') {
            variables.push((name.to_owned(), value.to_owned()));
            words.remove(0);
        }
        let (program, rest) = (words[0], &words[1..]);
        match program {
            "gardenlet" => self.run(&variables, of_pipe(rest)),
            _ if program.starts_with("./gardenlet-") => self.run(&variables, of_pipe(rest)),
            "curl" => self.served(rest),
            // Commands in the agent's pod.
            "kubectl" => {
                let rest = of_pipe(rest);
                one_of(rest, KUBECTL).and(files_exist(rest))
            }
            "helm" => one_of(rest, &["install", "rollback", "uninstall", "upgrade"]).and(files_exist(rest)),
            "echo" if rest.last() == Some(&"admin.json") => Ok(()),
            "install" => {
                let target = rest.iter().position(|word| *word == "-t").map(|at| at + 1);
                let target = target.unwrap_or(rest.len() - 1);
                let files: Vec<&str> =
                    rest.iter().enumerate().filter(|(at, _)| *at != target).map(|(_, word)| *word).collect();
                files_exist(&files)
            }
            "systemctl" => unit(rest),
            "journalctl" if matches!(rest, ["-u", "gardenlet" | "gardenlet@edge-1"]) => Ok(()),
            "journalctl" if matches!(rest, ["-u", "gardenlet", grep, ..] if grep.starts_with("--grep=")) => {
                Ok(())
            }
            "cross/build" | "packaging/build" | "packaging/image" => script(program, rest),
            "packaging/monitoring/render" if rest.is_empty() => Ok(()),
            // The values of options are the reader's.
            "packaging/release" => script(program, &options(rest)),
            _ => Err("this test does not know how to check it".to_owned()),
        }
    }

    fn served(&self, words: &[&str]) -> Result<(), String> {
        let url = words.last().unwrap().trim_matches('"');
        let rest = url.strip_prefix("localhost:").ok_or("another host")?;
        let (port, path) = rest.split_once('/').ok_or("no path")?;
        let (status, body) = self.agent.get(port.parse().unwrap(), &format!("/{path}"));
        if status == 200 { Ok(()) } else { Err(format!("{status}: {body}")) }
    }
}

/// The words of the first program: the rest of a pipe is another one.
fn of_pipe<'w, 'a>(words: &'w [&'a str]) -> &'w [&'a str] {
    words.split(|word| *word == "|").next().unwrap_or_default()
}

/// Verbs of kubectl.
const KUBECTL: &[&str] = &[
    "annotate",
    "apply",
    "config",
    "create",
    "delete",
    "describe",
    "exec",
    "get",
    "logs",
    "port-forward",
    "rollout",
    "scale",
    "wait",
];
/// Words that look like files, but are objects, paths of a server or annotations.
const NO_FILES: &[&str] = &[
    "/gardenlet",
    "/healthz",
    "deployment/gardenlet",
    "deployment/kube-apiserver",
    "project/p",
    "shoot.gardener.cloud/emergency-stop-reconciliations-",
];

/// The options of a command, without their values.
fn options<'a>(words: &[&'a str]) -> Vec<&'a str> {
    words.iter().filter(|word| word.starts_with("--")).copied().collect()
}

fn one_of(words: &[&str], verbs: &[&str]) -> Result<(), String> {
    let found = words.iter().any(|word| verbs.contains(word));
    found.then_some(()).ok_or_else(|| format!("none of {verbs:?}"))
}

/// Each word that looks like a file must exist in the project or come from an earlier command, unless the command
/// creates it.
fn files_exist(words: &[&str]) -> Result<(), String> {
    for word in words {
        let value = word.rsplit('=').next().unwrap();
        let is_file = value.contains('/') || value.ends_with(".yaml") || value.ends_with(".kubeconfig");
        let is_there = MADE.contains(&value)
            || PACKAGED.iter().any(|(place, source)| *place == value && exists(source))
            || exists(value);
        if is_file && !word.starts_with('-') && !is_there && !NO_FILES.contains(&value) {
            return Err(format!("{value} does not exist"));
        }
    }
    Ok(())
}

fn exists(path: &str) -> bool {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path).exists()
}

fn unit(words: &[&str]) -> Result<(), String> {
    let unit = read("packaging/systemd/gardenlet.service");
    match words {
        ["daemon-reload"] => Ok(()),
        ["enable" | "disable", "--now", "gardenlet" | "gardenlet@edge-1"]
            if unit.contains("\n[Install]\n") =>
        {
            Ok(())
        }
        ["reload", "gardenlet"] if unit.contains("\nExecReload=") => Ok(()),
        ["restart" | "status" | "stop", "gardenlet"] => Ok(()),
        _ => Err("no such verb, or the unit does not allow it".to_owned()),
    }
}

/// Checks a script of the project: its words must be targets or options in it.
fn script(path: &str, words: &[&str]) -> Result<(), String> {
    let known = [read(path), read("cross/common")].concat();
    let unknown = words.iter().find(|word| !known.contains(**word));
    unknown.map_or(Ok(()), |word| Err(format!("{path} does not know {word}")))
}

#[test]
fn every_command_of_the_documents_is_accounted_for() {
    let desk = Desk::new();
    let (mut run, mut wrong) = (0, Vec::new());
    for document in documents() {
        for command in commands(&read(&document)) {
            run += usize::from(command.contains("gardenlet "));
            if let Err(why) = desk.account(&command) {
                wrong.push(format!("{document}: {command}\n    {why}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let all: BTreeSet<String> = documents().iter().flat_map(|document| commands(&read(document))).collect();
    for (command, why) in LEFT_OUT {
        assert!(all.contains(*command), "{command}: no document has it, but here it is left out: {why}");
    }
    assert!(run > 20, "{run} commands: are they found?");
    // The check finds mistakes.
    for bad in [
        "gardenlet doctor --config=nothing.yaml",
        "gardenlet dance",
        "kubectl apply -f packaging/nothing.yaml",
        "kubectl dance",
        "install packaging/nothing /usr/bin/",
        "systemctl dance gardenlet",
        "curl localhost:2728/dance",
        "cross/build dance",
        "dance",
    ] {
        assert!(desk.account(bad).is_err(), "{bad}");
    }
    desk.agent.stop();
}

#[test]
fn files_that_commands_take_are_told_of() {
    let all: String = documents().iter().map(|document| prose(&read(document))).collect();
    for name in MADE {
        assert!(all.contains(&format!("`{name}")), "{name}: no document says where it comes from");
    }
}

/// Every configuration is valid. If it is a part, a whole one with this part is valid.
#[test]
fn every_configuration_of_the_documents_is_valid() {
    let mut configurations = 0;
    for document in documents() {
        for block in blocks(&read(&document), "yaml") {
            let value = yaml::parse(&block).unwrap_or_else(|e| panic!("{document}: {e}\n{block}"));
            let whole = if value["kind"] == "GardenletConfiguration" {
                block
            } else if value["edge"].is_object() || value["seedConfig"].is_object() {
                let mut whole = support::garden::prepare::configuration("edge-1");
                whole["edge"] = value["edge"].clone();
                for (field, of_seed) in value["seedConfig"]["spec"].as_object().into_iter().flatten() {
                    whole["seedConfig"]["spec"][field] = of_seed.clone();
                }
                whole.to_string()
            } else {
                assert!(is_manifest(&value) || is_of_chart(&value), "{document}: what is this?\n{block}");
                continue;
            };
            let loaded = config::load(&whole, &document).unwrap_or_else(|e| panic!("{document}: {e:?}"));
            assert_eq!(loaded.warnings, [], "{document}");
            configurations += 1;
        }
    }
    assert!(configurations >= 3, "{configurations}");
}

fn is_manifest(value: &Value) -> bool {
    value["kind"].is_string()
}

/// Whether these are values of the agent's chart.
fn is_of_chart(value: &Value) -> bool {
    let known = yaml::parse(&read("packaging/chart/values.yaml")).unwrap();
    value.as_object().is_some_and(|values| values.keys().all(|key| known.get(key).is_some()))
}

/// Every block must have a known language, so that no test skips it.
#[test]
fn blocks_are_commands_or_yaml() {
    for document in documents() {
        let content = read(&document);
        let fences = content.lines().filter_map(|line| line.trim_start().strip_prefix("```"));
        for language in fences.step_by(2) {
            assert!(["sh", "text", "yaml"].contains(&language), "{document}: a block of {language:?}");
        }
    }
}

/// Why a line of a block to copy does not work for everybody who pastes it.
fn unsafe_to_paste(line: &str) -> Option<&'static str> {
    let (mut outside, mut quoted) = (String::new(), None);
    for c in line.chars() {
        match quoted {
            Some(quote) if c == quote => quoted = None,
            Some(_) => {}
            None if c == '\'' || c == '"' => quoted = Some(c),
            None => outside.push(c),
        }
    }
    let has_alternatives = outside.split('{').skip(1).any(|rest| {
        let inside = rest.split('}').next().unwrap();
        inside.contains(',') || inside.contains("..")
    });
    match line {
        _ if ["$ ", "# ", "> "].iter().any(|prompt| line.starts_with(prompt)) => {
            Some("it begins with a prompt")
        }
        _ if quoted.is_some() || line.ends_with('\\') => Some("it does not end on its line"),
        _ if outside.contains('#') => Some("not every shell knows comments"),
        _ if has_alternatives => Some("not every shell expands braces"),
        _ if line.contains("$EDITOR") || line.contains("sudoedit") => {
            Some("an editor takes the lines after it")
        }
        _ if line.contains("install ./") && !line.contains("--yes") => {
            Some("it asks, and the next line answers")
        }
        _ => None,
    }
}

#[test]
fn blocks_to_copy_are_safe_to_paste() {
    for line in [
        "$ kubectl get seeds",
        "# systemctl stop gardenlet",
        "sudo $EDITOR /etc/gardenlet/config.yaml",
        "install {a,b}/c",
        "gardenlet status   # also a page",
        "kubectl apply \\",
        "sudo apt install ./gardenlet_0.1.0_amd64.deb",
    ] {
        assert!(unsafe_to_paste(line).is_some(), "{line}");
    }
    let mut lines = 0;
    for document in documents() {
        let content = read(&document);
        for line in blocks(&content, "sh").iter().flat_map(|block| block.lines()) {
            assert_eq!(unsafe_to_paste(line), None, "{document}: {line}");
            lines += 1;
        }
    }
    assert!(lines > 200, "{lines}");
}

/// The string literals of a source file without tests and comments, as they are at run time.
fn literals(path: &str) -> Vec<String> {
    let source = read(path);
    let code = source.split("#[cfg(test)]").next().unwrap();
    let code: String = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(|line| format!("{line}\n"))
        .collect();
    let (mut found, mut rest) = (Vec::new(), code.as_str());
    while let Some(start) = rest.find('"') {
        let (mut text, mut end, mut escaped) = (String::new(), 0, false);
        for (at, c) in rest[start + 1..].char_indices() {
            match c {
                _ if escaped => {
                    escaped = false;
                    text.push(if c == '\n' { '\u{1}' } else { c });
                }
                '\\' => escaped = true,
                '"' => {
                    end = start + 1 + at;
                    break;
                }
                _ => text.push(c),
            }
        }
        // A string literal that continues on the next line: the line break and the indentation are not part of it.
        let parts: Vec<&str> = text.split('\u{1}').collect();
        let tail = parts[1..].iter().map(|part| part.trim_start());
        found.push(std::iter::once(parts[0]).chain(tail).collect());
        rest = &rest[end.max(start) + 1..];
    }
    found
}

/// Texts of `doctor` that describe a state and contain no remedy.
const STATES: [&str; 55] = [
    "none: a pending certificate request is lost when the process ends",
    "it is in a Secret of the seed",
    "expired at {until}",
    "becomes valid at {from}",
    "valid until {until}",
    "may not {}",
    "{}: no such directory",
    "requires a login: the agent uses the pull secret",
    "answers {status} to /v2/",
    "chart of {deployment}",
    "chart of {name}",
    "will be created",
    "in use by a running agent",
    "the {server} did not answer",
    "the garden runs in this cluster, so gardener-operator installs the garden's components",
    "may run Shoots",
    "{} with workers, which this agent does not change: {}",
    "cannot run Shoots: may not {}",
    ", and {} more",
    "agrees with the {server}",
    "{seconds} s behind the {server}",
    "{} s ahead of the {server}",
    ": {}: {}n    {}n",
    "Broken: {}; begin with {}.",
    "Works, with 1 remark.",
    "Works, with {remarks} remarks.",
    "the configuration does not say how to reach the seed",
    "secret {key} of the seed",
    "bootstrap credential in {}",
    "neither the kubeconfig Secret nor a bootstrap Secret holds a kubeconfig",
    "the agent does not get {}: {lacks}",
    "no Shoot can come up: {missing} of edge.etcd does not exist",
    "no Shoot can come up: none is the default ({others})",
    "there are none",
    "in use by the running agent",
    "in use by this agent, or by another program",
    "no file can be created there",
    "set GARDEN_KUBECONFIG to a kubeconfig of an administrator to check the garden",
    "no ControllerRegistration supports {}",
    "credentialsRef of the Seed",
    "{key} is valid until {end}",
    "{key} expired at {end}",
    "{key} never expires",
    "the garden has no {key}",
    "port of probes",
    "port of metrics",
    "there is no {CONFIG} yet, so defaults are used",
    "{shoot} waits to move: {why}",
    "Seed {other} cannot be read: {}",
    "the garden has no Seed {other}",
    "Seed {} has no spec.backup",
    "status.gardener.version is {one:?} in Seed {first} and {other:?} in Seed {second}, and must be equal",
    "it cannot move to another seed, because this Seed has no spec.backup: {NEEDS}",
    "both Seeds need spec.backup with an extension for its provider, a server that speaks S3 and that both seeds reach, and \
     edge.etcd.snapshots with store S3 (Directory is not enough), or an etcd-druid",
    "its data cannot be restored here: edge.etcd.snapshots of this configuration needs store S3 (Directory is not enough)",
];

#[test]
fn every_remedy_of_doctor_is_documented_and_none_is_invented() {
    let document = read("docs/troubleshooting.md").split_whitespace().collect::<Vec<_>>().join(" ");
    let told: BTreeSet<String> = document
        .split("- *")
        .skip(1)
        .map(|item| item.split("*:").next().unwrap().trim_end_matches('*').to_owned())
        .collect();
    let files =
        ["mod.rs", "finding.rs", "start.rs", "before.rs"].map(|file| format!("src/cli/doctor/{file}"));
    let sources = files.iter().map(String::as_str).chain(["src/cli/clusters.rs", "src/cli/moves.rs"]);
    let mut all: BTreeSet<String> = sources.flat_map(literals).collect();
    all.insert(gardenlet::components::exposure::ADDRESS_REMEDY.to_owned());
    let is_sentence = |text: &&String| text.split_whitespace().count() > 2 || text.starts_with("correct ");
    let undocumented: Vec<&String> = all
        .iter()
        .filter(is_sentence)
        .filter(|text| !told.contains(*text) && !STATES.contains(&text.as_str()))
        .collect();
    assert!(undocumented.is_empty(), "not in docs/troubleshooting.md: {undocumented:#?}");
    let invented: Vec<&String> = told.iter().filter(|text| !all.contains(*text)).collect();
    assert!(invented.is_empty(), "doctor does not say: {invented:#?}");
    assert!(told.len() > 20);
}

fn sources_below(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources_below(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") && path.file_name().unwrap() != "tests.rs" {
            found.push(path.display().to_string());
        }
    }
}

#[test]
fn every_metric_is_documented_and_none_is_invented() {
    let families =
        ["gardenlet", "controller_runtime", "workqueue", "rest_client", "leader_election", "process"];
    let mut files = Vec::new();
    sources_below(Path::new("src"), &mut files);
    let mut known = BTreeSet::new();
    for file in files {
        let source = read(&file);
        let code = source.split("#[cfg(test)]\nmod tests").next().unwrap();
        for family in families {
            for (at, _) in code.match_indices(&format!("\"{family}_")) {
                let name = code[at + 1..].split('"').next().unwrap();
                let is_name = name.bytes().all(|c| c.is_ascii_lowercase() || c == b'_');
                known.extend(is_name.then(|| name.to_owned()));
            }
        }
    }
    let document = read("docs/metrics.md");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `"));
    let told: BTreeSet<String> = rows.map(|row| row.split('`').next().unwrap().to_owned()).collect();
    assert_eq!(told, known);
}

/// The help contains each option that the text names.
#[test]
fn options_that_are_named_exist() {
    let help = |words: &[&str]| {
        let (code, output, _) = command(words, &BTreeMap::new());
        assert_eq!(code, cli::SUCCESS);
        output
    };
    let pages = [
        "",
        "run",
        "config validate",
        "config print-defaults",
        "rebootstrap",
        "bootstrap-token",
        "rescue",
        "status",
        "doctor",
        "explain",
    ];
    let others = [
        "bundle export",
        "bundle import",
        "bundle list",
        "etcd list",
        "node script",
        "node list",
        "node remove",
        "render",
        "support-bundle",
    ];
    let pages = pages.iter().chain(&others);
    let of_program: String =
        pages.map(|page| help(&[vec!["help"], page.split_whitespace().collect()].concat())).collect();
    // The script of hosts has options, too.
    let known = of_program + include_str!("../../src/hosts/script/main.sh");
    let is_of_source = |document: &String| OF_SOURCE.iter().any(|start| document.starts_with(start));
    let of_program = |document: &String| document.starts_with("docs/") && !is_of_source(document);
    for document in documents().into_iter().filter(of_program) {
        for option in prose(&read(&document)).split("`--").skip(1) {
            let option = option.split([' ', '`', '=']).next().unwrap();
            assert!(known.contains(&format!("--{option}")), "{document}: --{option}");
        }
    }
}
