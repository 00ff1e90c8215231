//! The program as a separate process: the resources of the host that it may use.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

use gardenlet::base::clock::Clock;
use gardenlet::base::thread;
use gardenlet::limits;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::charts;
use crate::process::Process;
use crate::story_extension::installed;
use crate::story_outside::files;
use crate::world::{LEASES, Options, World, wait_for};
use support::cluster::PATIENCE;
use support::encoding::from_base64;
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

    /// A reload: from its announcement to the end.
    fn wait_for_reload(&self) {
        let message = self.wait_for("RELOADING=1");
        let since = message.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC=")).unwrap();
        assert!(since.parse::<u64>().unwrap() > 0, "{message}");
        self.wait_for("READY=1");
    }
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
    world.file("config.yaml", "logLevel: loud\n");
    process.signal(Signal::HUP);
    manager.wait_for_reload();
    assert!(
        log().contains("keeping the present one") && log().contains("logLevel: unknown value"),
        "{}",
        log()
    );

    world.file("config.yaml", &config.replace("\"text\"", "\"json\""));
    process.signal(Signal::HUP);
    manager.wait_for_reload();
    assert!(log().contains("\"msg\":\"Nothing has changed that needs a restart of parts\""), "{}", log());

    world.file("config.yaml", &config.replace("\"north\"", "\"south\""));
    process.signal(Signal::HUP);
    manager.wait_for_reload();
    world.garden.wait_for("the new label", |garden| {
        (garden.seed("notified")?["metadata"]["labels"]["site"] == "south").then_some(())
    });
    assert_eq!(log().matches("Restarting the parts in place").count(), 1);

    // Another certificate in a file that the environment names.
    let user = format!("gardener.cloud:system:seed:{}", world.name);
    let other = world.garden.kubeconfig_for(&user, &["gardener.cloud:system:seeds"]);
    fs::write(&garden, other).unwrap();
    process.signal(Signal::HUP);
    manager.wait_for_reload();
    assert_eq!(log().matches("Restarting the parts in place").count(), 2);
    assert!(process.0.try_wait().unwrap().is_none(), "it is the same process");

    process.signal(Signal::TERM);
    manager.wait_for("STOPPING=1");
    assert_eq!(process.0.wait().unwrap().code(), Some(0));
    let lease = world.seed.get(LEASES, "leases", "garden", "gardenlet-leader-election").unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "");
}
