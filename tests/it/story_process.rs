//! The program as a separate process: the resources of the host that it may use.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

use gardenlet::base::clock::Clock;
use gardenlet::base::thread;
use gardenlet::limits;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::charts;
use crate::commands::command;
use crate::process::Process;
use crate::story_extension::installed;
use crate::story_outside::files;
use crate::world::{LEASES, Options, World, wait_for};
use support::cluster::PATIENCE;
use support::encoding::from_base64;
use support::json::{list, text};
use support::options::patience;

#[test]
fn threads_and_watches_have_a_maximum() {
    let world = World::start(&Options::real("frugal"));
    let process = Process::start(&world);
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    world.wait_until_ready();
    installed(&world, "echo");
    let watches = |threads: &[String]| threads.iter().filter(|name| name.starts_with("watch ")).count();
    // At least for Seed, installations, registrations and managed resources: the counter must be able to fail.
    let threads = wait_for("the watches", || {
        let threads = process.threads();
        (watches(&threads) >= 4 && threads.iter().any(|name| name == "heartbeat")).then_some(threads)
    });
    assert!(watches(&threads) <= limits::WATCHES_MAX, "{threads:?}");
    assert!(threads.len() <= limits::THREADS_MAX, "{threads:?}");
}

/// A service manager that reads each message at once. The system keeps only ten unread messages, and the agent drops
/// the others.
struct Manager(Receiver<String>);

impl Manager {
    fn listen(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(patience(PATIENCE))).unwrap();
        let (heard, messages) = channel();
        let read = move || {
            let mut bytes = [0; 4_096];
            while let Ok(length) = socket.recv(&mut bytes) {
                let message = String::from_utf8_lossy(&bytes[..length]).into_owned();
                if heard.send(message).is_err() {
                    return;
                }
            }
        };
        // It ends when the agent closes its socket.
        drop(thread::spawn("manager", 128 << 10, read).unwrap());
        Self(messages)
    }

    /// The next message that has a line with this beginning.
    fn wait_for(&self, beginning: &str) -> String {
        let real = Clock::system();
        // A hanging agent still sends other messages all the time.
        let deadline = real.mono() + patience(4 * PATIENCE);
        loop {
            assert!(real.mono() < deadline, "waited in vain for {beginning}");
            let message = self.0.recv().unwrap_or_else(|e| panic!("waited for {beginning}: {e}"));
            if message.lines().any(|line| line.starts_with(beginning)) {
                return message;
            }
        }
    }

    /// The beginnings of all messages until the one that begins like this.
    fn until(&self, beginning: &str) -> Vec<String> {
        let (real, mut heard) = (Clock::system(), Vec::new());
        let deadline = real.mono() + patience(4 * PATIENCE);
        loop {
            assert!(real.mono() < deadline, "waited in vain for {beginning}");
            let message = self.0.recv().unwrap();
            heard.extend(message.lines().map(str::to_owned));
            if heard.iter().any(|line| line.starts_with(beginning)) {
                return heard;
            }
        }
    }

    /// A reload: from its announcement to the end.
    fn wait_for_reload(&self) {
        let message = self.wait_for("RELOADING=1");
        let since = message.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC=")).unwrap();
        assert!(since.parse::<u64>().unwrap() > 0, "{message}");
        self.wait_for("READY=1");
    }
}

/// The page of the agent that listens at the addresses of the configuration `config.yaml`.
fn page(config: &Value) -> Value {
    let probes = config["server"]["healthProbes"]["bindAddress"].as_str().unwrap();
    let address = format!("--address={probes}:2728");
    let (_, output, _) = command(&["status", &address, "-o", "json"], &BTreeMap::new());
    serde_json::from_str(&output).unwrap()
}

/// The problems of one part.
fn problems_of(config: &Value, part: &str) -> Vec<String> {
    let page = page(config);
    let found = list(&page, "/problems").iter().filter(|problem| problem["part"] == part);
    found.map(|problem| text(problem, "/error").to_owned()).collect()
}

/// The same kubeconfig with a plugin that prints its credentials and writes its environment to a file.
fn with_plugin(world: &World, kubeconfig: &str) -> String {
    let mut config: Value = serde_json::from_str(&fs::read_to_string(kubeconfig).unwrap()).unwrap();
    let user = config["users"][0]["user"].take();
    let pem = |key: &str| String::from_utf8(from_base64(user[key].as_str().unwrap()).unwrap()).unwrap();
    let credential = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {
        "clientCertificateData": pem("client-certificate-data"), "clientKeyData": pem("client-key-data")}});
    let (printed, told) = (world.file("credential", &credential.to_string()), world.path("environment"));
    let script = format!("/usr/bin/env > {}; /bin/cat {}", told.display(), printed.display());
    config["users"][0]["user"] = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1",
        "command": "/bin/sh", "args": ["-c", script], "interactiveMode": "Never"}});
    world.file("plugin.kubeconfig", &config.to_string()).to_str().unwrap().to_owned()
}

/// The end of an SD card: the agent keeps its identity, works, and says what it cannot keep.
#[test]
fn an_agent_whose_state_directory_has_become_read_only_works() {
    let world = World::start(&Options::real("worn"));
    let (garden, seed) = files(&world);
    let variables = [("GARDEN_KUBECONFIG", garden.as_str()), ("KUBECONFIG", &seed)];
    let mut process = Process::start_with(&world, &variables);
    world.wait_until_ready();
    process.signal(Signal::TERM);
    assert_eq!(process.0.wait().unwrap().code(), Some(0));
    let id = |log: &str| log.split("holder=").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    let log = || fs::read_to_string(world.path("log")).unwrap();
    let before = id(&log());

    let mut process = Process::start_read_only(&world, &variables);
    world
        .garden
        .wait_for("the problem", |_| log().contains("The state directory cannot be written").then_some(()));
    wait_for("a leader", || log().contains("Became leader").then_some(()));
    assert_eq!(id(&log()), before, "it has read who it is");
    let config: Value =
        serde_json::from_str(&fs::read_to_string(world.path("config.yaml")).unwrap()).unwrap();
    let problems = problems_of(&config, "state directory");
    assert!(problems.len() == 1 && problems[0].contains("Read-only file system"), "{problems:?}");
    wait_for("a healthy seed", || (page(&config)["leading"] == true).then_some(()));
    world.wait_until_ready();
    process.signal(Signal::TERM);
    assert_eq!(process.0.wait().unwrap().code(), Some(0));
    let examined = Process::examine_read_only(&world, &variables);
    let line = format!(
        "odd          state directory: write to {}: Read-only file system (os error 30)\n             the agent works, and \
         loses new state when it stops: repair or replace the disk\n",
        world.path("state").display()
    );
    assert!(examined.contains(&line) && !examined.contains("BROKEN"), "{examined}");
}

#[test]
fn a_service_manager_is_notified_and_sighup_reloads_the_configuration() {
    let world = World::start(&Options::real("notified"));
    let (garden, seed) = files(&world);
    let seed = with_plugin(&world, &seed);
    let socket = world.path("notify");
    let manager = Manager::listen(&socket);
    let mut process = Process::start_with(
        &world,
        &[
            ("GARDEN_KUBECONFIG", &garden),
            ("KUBECONFIG", &seed),
            ("NOTIFY_SOCKET", socket.to_str().unwrap()),
            ("WATCHDOG_USEC", "1000000"),
            // Loopback addresses never use the proxy.
            ("HTTPS_PROXY", "http://user:word@127.0.0.1:9"),
        ],
    );
    manager.wait_for("READY=1");
    manager.wait_for("STATUS=leading; ");
    for _ in 0..3 {
        manager.wait_for("WATCHDOG=1");
    }
    world.wait_until_ready();
    let told = fs::read_to_string(world.path("environment")).unwrap();
    assert!(told.contains("KUBERNETES_EXEC_INFO="), "{told}");
    assert!(told.contains("HTTPS_PROXY=http://user:word@127.0.0.1:9\n"), "{told}");
    assert!(!told.contains("NOTIFY_SOCKET") && !told.contains("WATCHDOG"), "{told}");

    let config = fs::read_to_string(world.path("config.yaml")).unwrap();
    let log = || fs::read_to_string(world.path("log")).unwrap();
    let parsed: Value = serde_json::from_str(&config).unwrap();
    assert_eq!(problems_of(&parsed, "configuration"), [""; 0]);
    world.file("config.yaml", "logLevel: loud\n");
    process.signal(Signal::HUP);
    // The manager hears of the problem, and of no reload.
    let heard = manager.until("STATUS=leading; configuration: the last good one is in use (");
    let is_of_reload = |line: &String| line.starts_with("RELOADING") || line.starts_with("READY");
    assert!(!heard.iter().any(is_of_reload), "{heard:?}");
    let problems = problems_of(&parsed, "configuration");
    assert!(problems.len() == 1 && problems[0].contains("logLevel: unknown value"), "{problems:?}");
    assert!(
        log().contains("keeping the present one") && log().contains("logLevel: unknown value"),
        "{}",
        log()
    );

    world.file("config.yaml", &config.replace("\"text\"", "\"json\""));
    process.signal(Signal::HUP);
    manager.wait_for_reload();
    assert_eq!(problems_of(&parsed, "configuration"), [""; 0]);
    assert!(log().contains("\"msg\":\"Nothing has changed that needs a restart of parts\""), "{}", log());

    world.file("config.yaml", &config.replace("\"north\"", "\"south\""));
    process.signal(Signal::HUP);
    manager.wait_for_reload();
    world.garden.wait_for("the new label", |garden| {
        (garden.seed("notified")?["metadata"]["labels"]["site"] == "south").then_some(())
    });
    assert_eq!(log().matches("Restarting the parts in place").count(), 1);

    // Valid, but the agent cannot start with it: somebody listens there. It returns to the configuration before.
    let good = fs::read_to_string(world.path("config.yaml")).unwrap();
    let taken = TcpListener::bind((text(&parsed, "/server/metrics/bindAddress"), 0)).unwrap();
    let mut bad: Value = serde_json::from_str(&good).unwrap();
    bad["server"]["metrics"]["port"] = json!(taken.local_addr().unwrap().port());
    world.file("config.yaml", &bad.to_string());
    for _ in 0..2 {
        process.signal(Signal::HUP);
        manager.wait_for_reload();
        let problems = wait_for("the problem", || {
            Some(problems_of(&parsed, "configuration")).filter(|problems| !problems.is_empty())
        });
        // musl has other words for it than glibc.
        assert!(
            ["Address already in use", "Address in use"].iter().any(|words| problems[0].contains(words)),
            "{problems:?}"
        );
    }
    world.file("config.yaml", &good);
    process.signal(Signal::HUP);
    manager.wait_for_reload();
    wait_for("a good configuration", || problems_of(&parsed, "configuration").is_empty().then_some(()));
    let restarts = log().matches("Restarting the parts in place").count();

    // Another certificate in a file that the environment names.
    let user = format!("gardener.cloud:system:seed:{}", world.name);
    let other = world.garden.kubeconfig_for(&user, &["gardener.cloud:system:seeds"]);
    fs::write(&garden, other).unwrap();
    process.signal(Signal::HUP);
    manager.wait_for_reload();
    assert_eq!(log().matches("Restarting the parts in place").count(), restarts + 1);
    assert!(process.0.try_wait().unwrap().is_none(), "it is the same process");

    process.signal(Signal::TERM);
    manager.wait_for("STOPPING=1");
    assert_eq!(process.0.wait().unwrap().code(), Some(0));
    let lease = world.seed.get(LEASES, "leases", "garden", "gardenlet-leader-election").unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "");
}
