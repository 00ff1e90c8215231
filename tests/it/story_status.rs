//! An operator's first look: the verdict, the problems, and the progress of Shoots, on the page and with `gardenlet
//! status`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gardenlet::base::clock::{Clock, Timestamp};
use gardenlet::base::stop::Stop;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::charts;
use crate::commands::command;
use crate::story_offline::pass;
use crate::story_operating::equip;
use crate::story_probes::series;
use crate::story_shoot_others::{reconcile_at, register, wait_for_task};
use crate::world::{Agent, CORE, Options, World, wait_for};
use support::encoding::from_rfc3339;
use support::json::{list, text};
use support::options::patience;
use support::shoot::object::{PROJECT_NAMESPACE, ShootObject, make_edge};

fn page(agent: &Agent) -> Value {
    serde_json::from_str(&agent.get(2728, "/statusz?format=json").1).unwrap()
}

/// Prints the page if the story fails.
struct Told<'a>(&'a Agent);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && self.0.is_alive() {
            eprintln!("---- the page of the agent:\n{}", self.0.get(2728, "/statusz").1);
        }
    }
}

pub fn wait_for_verdict(agent: &Agent, state: &str) -> Value {
    wait_for(&format!("verdict {state}"), || {
        Some(page(agent)).filter(|page| page["verdict"]["state"] == state)
    })
}

/// Waits for a problem; `key` is the kind of its place.
fn wait_for_problem(agent: &Agent, key: &str, place: &str, word: &str) -> Value {
    wait_for(&format!("a problem of {place} with {word}"), || {
        let page = page(agent);
        let found = list(&page, "/problems").iter().find(|problem| {
            problem[key].as_str().is_some_and(|it| it.starts_with(place))
                && text(problem, "/error").contains(word)
        });
        found.cloned()
    })
}

fn status(agent: &Agent, words: &[&str]) -> (u8, String, String) {
    let address = format!("--address={}:2728", agent.probes);
    let mut all = vec!["status", address.as_str()];
    all.extend(words);
    command(&all, &BTreeMap::new())
}

/// A template whose error contains markup. The page must escape it.
const MARKUP: &str = "{{ fail \"<b>not</b> <script src=//example.org/x.js></script>\" }}";
/// A template with a common mistake: the values have no topology.
const MISTAKE: &str = "zone: {{ .Values.topology.zone }}";

/// A chart that cannot be rendered.
fn broken(template: &str) -> Vec<u8> {
    charts::archive("dns-edge", &[("templates/deployment.yaml", template)])
}

#[test]
fn a_broken_chart_and_a_garden_that_is_away_are_problems() {
    let world = World::start(&Options::calm("told"));
    let agent = world.agent();
    let _told = Told(&agent);
    world.wait_until_ready();
    let well = wait_for_verdict(&agent, "healthy");
    assert_eq!((&well["verdict"]["text"], list(&well, "/problems").len()), (&json!("healthy"), 0));
    assert!(
        well["latency"]["garden"]["milliseconds"].is_u64() && well["latency"]["seed"].is_object(),
        "{well}"
    );
    let lease = &well["leases"]["garden/gardenlet-leader-election"];
    assert!(lease["held"] == true && lease["renewedSecondsAgo"].is_u64(), "{well}");
    assert!(well["certificateExpires"]["ageSeconds"].is_u64(), "{well}");
    // What is at rest is counted, and shown on request.
    let is_of_work = |line: &&str| line.starts_with("  queue ") || line.starts_with("  watch ");
    let (code, output, errors) = wait_for("a status without work", || {
        Some(status(&agent, &[])).filter(|(_, output, _)| output.lines().all(|line| !is_of_work(&line)))
    });
    assert_eq!((code, errors.as_str(), output.lines().next()), (0, "", Some("healthy")));
    for words in [
        "  seed: told\n",
        "\nLeases and certificate\n",
        "chart cache: 0 files, 0 bytes of 67.1 MB",
        " at rest (--verbose shows them)\n",
    ] {
        assert!(output.contains(words), "{words}: {output}");
    }
    assert!(output.lines().count() < 50, "{output}");
    let (_, all, _) = status(&agent, &["--verbose"]);
    assert!(all.lines().filter(is_of_work).count() > 30 && !all.contains("at rest"), "{all}");
    // The report has a date, and says whom the agent talks to.
    assert!(from_rfc3339(text(&well, "/time")).is_some(), "{well}");
    assert_eq!(text(&well, "/gardenAddress"), world.garden.url());
    let versions = ["/gardenKubernetes", "/seedKubernetes", "/gardenVersion"].map(|path| text(&well, path));
    assert!(versions.iter().all(|version| version.starts_with("v1.")), "{versions:?}");
    assert_eq!(text(&well, "/seedOperation/state"), "Succeeded", "{well}");
    assert!(
        output.contains("  seed operation: ")
            && output.contains(&format!("  garden address: {}\n", world.garden.url()))
    );
    let (code, yaml, _) = status(&agent, &["-o", "yaml"]);
    assert!(code == 0 && yaml.contains("\nverdict:\n  state: healthy\n  text: healthy\n"), "{yaml}");
    let (code, refused) = agent.get(2728, "/statusz?format=xml");
    assert!(code == 400 && refused.starts_with("unknown format: use ?format=text"), "{refused}");
    assert_eq!(agent.get(2728, "/").0, 302);

    world.extend("bad", &broken(MARKUP), &json!({}));
    let problem = wait_for_problem(&agent, "object", "ControllerInstallation bad", "<b>not</b>");
    assert_eq!(
        text(&problem, "/remedy"),
        format!("gardenlet explain {}", text(&problem, "/object").replace(' ', "/"))
    );
    assert!(problem["seconds"].is_u64() && text(&problem, "/since").ends_with('Z'), "{problem}");
    let told = page(&agent);
    assert!(text(&told, "/verdict/text").contains("ControllerInstallation bad"), "{told}");
    let installation = list(&told, "/installations").iter().find(|it| it["registration"] == "bad").unwrap();
    assert_eq!(installation["conditions"]["Valid"], "False");
    let html = agent.get(2728, "/statusz?format=html").1;
    assert!(
        html.contains("&lt;b&gt;not&lt;/b&gt;") && !html.contains("<b>not") && !html.contains("<script"),
        "{html}"
    );
    let (code, output, _) = status(&agent, &[]);
    assert!(code == 1 && output.contains("\nProblems\n  ControllerInstallation bad"), "{output}");
    assert!(output.contains("\n    run: gardenlet explain ControllerInstallation/bad"), "{output}");
    let metrics = agent.get(2729, "/metrics").1;
    let value = |name: &str| series(&metrics, name).unwrap_or_else(|| panic!("no {name}: {metrics}"));
    let invalid = "gardenlet_controller_installation_conditions{condition=\"Valid\",status=\"False\"}";
    assert_eq!(value(invalid), 1.0);
    assert_eq!(value("gardenlet_seed_conditions{condition=\"GardenletReady\",status=\"True\"}"), 1.0);
    assert_eq!(value("gardenlet_seed_conditions{condition=\"GardenletReady\",status=\"False\"}"), 0.0);
    assert_eq!(value("gardenlet_shoots{state=\"Succeeded\"}"), 0.0);
    assert!(value("gardenlet_api_response_seconds{peer=\"garden\"}") > 0.0);

    world.garden.server().down();
    // With each renewal of the leader's Lease: an agent that loses it reports no problems of its last term.
    pass(&world, Duration::from_secs(30), Duration::from_secs(2));
    wait_for("a problem that lasts", || {
        let problem = wait_for_problem(&agent, "part", "garden", "the API server does not answer: ");
        (problem["seconds"].as_u64() > Some(9)).then_some(())
    });
    let (code, output, _) = status(&agent, &["-o", "json"]);
    let answer: Value = serde_json::from_str(&output).unwrap();
    assert_eq!((code, &answer["verdict"]["state"]), (1, &json!("problems")));
    // A problem of a server comes before a problem of an object.
    assert_eq!(answer["problems"][0]["part"], "garden", "{answer}");
    world.garden.server().up().unwrap();
    wait_for("the garden", || {
        list(&page(&agent), "/problems").iter().all(|problem| problem["part"] != "garden").then_some(())
    });
    agent.stop();
    let (code, _, errors) = status(&agent, &[]);
    assert!(code == 1 && errors.contains("no agent answers at "), "{errors}");
}

/// No client reaches a Shoot at an address for documentation. The first list of nodes fails.
#[test]
fn an_address_that_no_client_reaches_is_a_problem_until_a_node_has_it() {
    let world = World::start(&Options::new("placeless"));
    equip(&world);
    let site = world.site();
    // The agent is no pod of the seed.
    site.routes().leave_cluster();
    let mut config = world.config();
    make_edge(&mut config);
    config["edge"]["exposure"] = json!({"type": "NodePort", "address": "192.0.2.10"});
    // The agent reads a node before it to compare the networks.
    let failed = world.seed.faults().on("GET", "/api/v1/nodes").skip(1).once().answer(500);
    let agent = world.agent_of(&site, &config);
    agent.launch();
    world.wait_until_ready();
    assert_eq!(failed.hits(), 1);
    world.skip(Duration::from_secs(70));
    let words = [
        "192.0.2.10 is reserved for documentation, and is not an address of a node (they have 10.50.0.7)",
        "leave edge.exposure.address out to use the addresses of the nodes",
    ];
    agent.wait_for_problem("exposure", &words);
    // The skipped minute may have cost the agent a write, which is a problem for a moment.
    wait_for("the exposure as the only problem", || {
        let (_, status) = agent.get(2728, "/statusz?format=text");
        status.contains("1 problem: exposure: edge.exposure.address 192.0.2.10 is reserved").then_some(())
    });

    let addresses = json!([{"type": "ExternalIP", "address": "192.0.2.10"}]);
    world.seed.merge_status("", "nodes", ("", "node-1"), &json!({"status": {"addresses": addresses}}));
    world.skip(Duration::from_secs(3_700));
    agent.wait_until_no_problem("exposure");
    let (_, status) = agent.get(2728, "/statusz?format=text");
    assert!(!status.contains("exposure"), "{status}");
    agent.stop();
}

#[test]
fn a_shoot_in_progress_shows_how_far_it_is() {
    let world = World::start(&Options::calm("watched"));
    let site = world.site();
    let mut config = world.edge_config();
    config["edge"]["exposure"] = json!({"type": "NodePort", "address": "127.0.0.1"});
    // This extension is for Shoots, but has no controller that answers.
    register(&world, "slow", &reconcile_at("BeforeKubeAPIServer"));
    let agent = world.agent_of(&site, &config);
    agent.launch();
    let _told = Told(&agent);
    world.wait_until_ready();
    world.garden.apply(&[ShootObject::workerless("s1").extension("slow").build()]);
    let task = "Waiting until extension resources handled before kube-apiserver are ready";
    wait_for_task(&world, task);
    let told = wait_for("the Shoot on the page", || {
        let page = page(&agent);
        text(page.pointer("/shoots/0")?, "/description").contains(task).then_some(page)
    });
    let shoot = &told["shoots"][0];
    assert_eq!((&shoot["namespace"], &shoot["name"]), (&json!(PROJECT_NAMESPACE), &json!("s1")));
    assert_eq!((&shoot["operation"], &shoot["state"]), (&json!("Create"), &json!("Processing")));
    assert!(shoot["progress"].as_u64().is_some_and(|percent| percent > 0 && percent < 100), "{shoot}");
    assert_eq!(told["shootsTotal"], 1);
    assert!(text(shoot, "/version").starts_with("1."), "{shoot}");
    let html = agent.get(2728, "/statusz?format=html").1;
    assert!(html.contains("<i style=\"width:") && html.contains(task), "{html}");
    let (_, output, _) = status(&agent, &[]);
    assert!(output.contains("\nShoots\n  garden-p/s1: [") && output.contains(task), "{output}");
    let metrics = agent.get(2729, "/metrics").1;
    assert_eq!(series(&metrics, "gardenlet_shoots{state=\"Processing\"}"), Some(1.0));
    // A Shoot that is being created is no problem.
    wait_for_verdict(&agent, "healthy");
    agent.stop();
}

#[test]
fn an_agent_that_stands_by_is_no_problem() {
    let world = World::start(&Options::calm("shared-seat"));
    let first = world.agent();
    world.wait_until_ready();
    let second = Agent::new(&world, "host-2", &world.config(), world.pod());
    second.launch();
    world.wait_for_log(&["Listening", "what=metrics", &second.probes]);
    let told = wait_for_verdict(&second, "standingBy");
    assert!(text(&told, "/verdict/text").starts_with("standing by for host-1_"), "{told}");
    assert_eq!(status(&second, &[]).0, 0);
    second.stop();
    first.stop();
}

/// `gardenlet status --watch` in its own process.
fn watch(agent: &Agent, words: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gardenlet"));
    command.args(["status", "--watch", &format!("--address={}:2728", agent.probes)]).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_watch_ends_when_somebody_has_seen_enough() {
    let world = World::start(&Options::calm("looked-at"));
    let agent = world.agent();
    let _told = Told(&agent);
    world.wait_until_ready();
    let mut child = watch(&agent, &["-o", "json"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        let told: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(told["seed"], "looked-at");
    }
    // The command reports that the agent has gone away.
    agent.stop();
    let away = lines.find_map(|line| {
        let told: Value = serde_json::from_str(&line.unwrap()).unwrap();
        (told["verdict"]["state"] == "unreachable").then_some(told)
    });
    assert!(text(&away.unwrap(), "/verdict/text").contains("no agent answers at "));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));

    // The reader is gone.
    let mut child = watch(&agent, &[]);
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert!(line.ends_with("Z\n"), "a time: {line}");
    drop(output);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// The first signal only asks for the end, for which a program waits that cannot write.
#[test]
fn a_watch_that_hangs_ends_with_a_second_signal() {
    // More than a pipe takes.
    const PAGE: usize = 256 << 10;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_gardenlet"));
    command.args(["status", "--watch", &format!("--address={address}")]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut client, _) = listener.accept().unwrap();
    assert!(client.read(&mut [0; 1_024]).unwrap() > 0);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {PAGE}\r\n\r\n");
    client.write_all(head.as_bytes()).unwrap();
    client.write_all(&[b'x'; PAGE]).unwrap();
    drop(client);
    let output = child.stdout.take().unwrap();
    wait_for("a full pipe", || (rustix::io::ioctl_fionread(&output).unwrap() >= 60_000).then_some(()));
    let child = RefCell::new(child);
    let ended = wait_for("the end", || {
        // Two signals at once may count as one.
        kill_process(Pid::from_child(&child.borrow()), Signal::INT).unwrap();
        child.borrow_mut().try_wait().unwrap()
    });
    assert_eq!(ended.signal(), Some(Signal::INT.as_raw()));
}

/// Leaves the page to a browser until there is this file. The date stays within two minutes after `begun`, however long that
/// takes: the Shoots have no control planes, and are ill when they are not new any more.
fn show(world: &World, begun: Timestamp, done: &Path) {
    let real = Clock::system();
    let end = real.mono() + patience(Duration::from_secs(20 * 60));
    let date = world.clock.now().min(begun.plus(Duration::from_secs(120)));
    while !done.exists() {
        assert!(real.mono() < end, "nobody has written {}", done.display());
        world.time.step(date.unix_nanos() - world.clock.now().unix_nanos());
        Stop::new().wait(&real, Duration::from_millis(100));
    }
}

/// A page with a bit of everything. If `GARDENLET_PAGE` names a folder, a browser may look at it: its address is in the file
/// `address`, until there is a file `done` (tests/page/run). With `GARDENLET_PICTURE` the page shows a common error instead of
/// one with markup.
#[test]
fn a_page_of_many_shoots_names_problems_first() {
    let world = World::start(&Options { factor: 1, ..Options::calm("edge-north") });
    let site = world.site();
    let mut config = world.edge_config();
    config["controllers"] = json!({"shoot": {"respectSyncPeriodOverwrite": true}});
    let agent = world.agent_of(&site, &config);
    world.extend("provider-edge", &charts::extension(), &json!({"greeting": "hello"}));
    let is_picture = std::env::var_os("GARDENLET_PICTURE").is_some();
    let (template, word) = if is_picture { (MISTAKE, "{}.zone") } else { (MARKUP, "<b>not</b>") };
    world.extend("dns-edge", &broken(template), &json!({}));
    agent.launch();
    let _told = Told(&agent);
    world.wait_until_ready();
    let flow = |percent: u32, tasks: &str| ("Processing", percent, tasks.to_owned());
    let failed = "Flow \"Shoot cluster reconciliation\" encountered task errors: [task \"Waiting until main and event ETCDs have \
        been reconciled\" failed: etcd main is not ready: pod etcd-main-0 is Pending: no node has 2 GiB of free memory]";
    let begun = world.clock.now();
    let shoots = [
        (
            "press-line",
            "Create",
            flow(
                37,
                "Deploying main and events etcd, Deploying Kubernetes API server service in the Seed cluster",
            ),
        ),
        ("paint-shop", "Reconcile", flow(64, "Waiting until Kubernetes API server rolled out")),
        ("warehouse", "Create", flow(88, "Waiting until shoot control plane has been reconciled")),
        ("assembly", "Reconcile", ("Error", 52, failed.to_owned())),
        (
            "laboratory",
            "Reconcile",
            ("Succeeded", 100, "Shoot cluster has been successfully reconciled.".to_owned()),
        ),
        (
            "canteen",
            "Reconcile",
            ("Succeeded", 100, "Shoot cluster has been successfully reconciled.".to_owned()),
        ),
    ];
    for (name, operation, (state, progress, description)) in &shoots {
        let shoot = ShootObject::workerless(name)
            .bound_to(world.name)
            .annotated("shoot.gardener.cloud/ignore", "true");
        world.garden.apply(&[shoot.build()]);
        // After the first reconciliation the agent does not write the operation again.
        world.garden.wait_for("the first look of the agent", |garden| {
            let shoot = garden.get(CORE, "shoots", PROJECT_NAMESPACE, name)?;
            shoot["status"]["lastOperation"].is_object().then_some(())
        });
        let last = json!({"type": operation, "state": state, "progress": progress, "description": description,
            "lastUpdateTime": gardenlet::format::time::rfc3339(world.clock.now())});
        let conditions = json!([{"type": "APIServerAvailable", "status": "True", "reason": "R", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "2026-01-01T00:00:00Z"}]);
        let status = json!({"lastOperation": last, "conditions": conditions, "seedName": world.name, "observedGeneration": 1});
        world.garden.merge_status(CORE, "shoots", (PROJECT_NAMESPACE, name), &json!({"status": status}));
    }
    let problem = wait_for_problem(&agent, "object", "Shoot garden-p/assembly", "no node has 2 GiB");
    assert!(text(&problem, "/error").starts_with("Reconcile Error: Flow "), "{problem}");
    wait_for_problem(&agent, "object", "ControllerInstallation dns-edge", word);
    let told = wait_for("the state of each Shoot", || {
        let page = page(&agent);
        let is_told = |shoot: &Value| {
            let wanted = shoots.iter().find(|wanted| shoot["name"] == wanted.0);
            wanted.is_some_and(|(_, operation, (state, ..))| {
                shoot["operation"] == *operation && shoot["state"] == *state
            })
        };
        let all = list(&page, "/shoots");
        (all.len() == shoots.len() && all.iter().all(is_told)).then_some(page)
    });
    assert_eq!(told["shootsTotal"], shoots.len());
    let names: Vec<&str> = list(&told, "/shoots").iter().map(|shoot| text(shoot, "/name")).collect();
    assert_eq!(names, ["assembly", "paint-shop", "press-line", "warehouse", "canteen", "laboratory"]);
    let states = ["Processing", "Error", "Succeeded", "None"];
    let metrics = agent.get(2729, "/metrics").1;
    let counts = states.map(|state| series(&metrics, &format!("gardenlet_shoots{{state=\"{state}\"}}")));
    assert_eq!(counts, [3.0, 1.0, 2.0, 0.0].map(Some), "{states:?}");
    let statuses = ["True", "False", "Progressing", "Unknown"].map(|status| {
        let labels = format!("{{condition=\"APIServerAvailable\",status=\"{status}\"}}");
        series(&metrics, &format!("gardenlet_shoot_conditions{labels}")).unwrap()
    });
    assert_eq!(statuses.iter().sum::<f64>(), 6.0, "{statuses:?}");
    if let Some(folder) = std::env::var_os("GARDENLET_PAGE") {
        let folder = std::path::PathBuf::from(folder);
        std::fs::write(folder.join("address.new"), format!("{}:2728", agent.probes)).unwrap();
        std::fs::rename(folder.join("address.new"), folder.join("address")).unwrap();
        show(&world, begun, &folder.join("done"));
    }
    agent.stop();
}
