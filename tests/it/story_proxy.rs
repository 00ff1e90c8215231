//! A site that reaches garden, seed and registry only through a proxy with a login, by names that only the proxy can
//! resolve. The test observes connections at the agent's dialer, which opens every socket.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use gardenlet::base::sorted::SortedMap;
use serde_json::{Value, json};

use crate::charts;
use crate::story_extension::installed;
use crate::story_outside::{files, without_secrets};
use crate::world::{Agent, Options, World};
use support::encoding::base64;
use support::garden::prepare;
use support::http::tls::server_config;
use support::pki::Authority;
use support::proxy::{Door, Proxy, TlsFront};
use support::registry::Registry;

const DAY: std::time::Duration = std::time::Duration::from_secs(86_400);
/// Text that must not be in a log: the password, and the encoded login.
const SECRETS: [&str; 2] = ["w:rd", "dXNlcjp3OnJk"];
const CONNECT: Door = Door::Connect("user", "w:rd");
const SOCKS: Door = Door::Socks5("user", "w:rd");

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn url(scheme: &str, proxy: SocketAddr) -> String {
    format!("{scheme}://user:w%3Ard@{proxy}")
}

/// A kubeconfig whose server has another name than its certificate, and optionally its own proxy.
fn renamed(world: &World, file: &str, name: &str, proxy: Option<&str>) -> String {
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let cluster = &mut config["clusters"][0]["cluster"];
    cluster["server"] = json!(format!("https://{name}"));
    cluster["tls-server-name"] = json!("127.0.0.1");
    if let Some(proxy) = proxy {
        cluster["proxy-url"] = json!(proxy);
    }
    let written = world.file(&format!("{name}.kubeconfig"), &config.to_string());
    written.to_str().unwrap().to_owned()
}

/// The API servers and a registry with the chart of an extension.
struct Site {
    world: World,
    registry: Registry,
    targets: Vec<(String, SocketAddr)>,
}

impl Site {
    fn new(seed: &'static str) -> Self {
        let world = World::start(&Options::new(seed));
        let registry = Registry::start(&world.clock);
        registry.push("charts/echo", "1", &charts::extension());
        let targets = vec![
            ("garden.example.org:443".to_owned(), address(&World::address(&world.garden))),
            ("seed.example.org:443".to_owned(), address(&World::address(&world.seed))),
            ("registry.example.org:443".to_owned(), address(&registry.address)),
        ];
        Self { world, registry, targets }
    }

    fn proxy(&self, door: Door) -> Proxy {
        Proxy::knowing(&self.targets, door).unwrap()
    }

    /// TLS in front of a proxy, and the file with its CA.
    fn front(&self, proxy: &Proxy) -> (TlsFront, String) {
        let now = self.world.clock.now();
        let authority = Authority::new("proxies", now);
        let identity = authority.server(&[], now.minus(DAY), now.plus(DAY));
        let front = TlsFront::start(server_config(&identity, &self.world.clock), proxy.address()).unwrap();
        let file = self.world.file("proxies.crt", &authority.certificate());
        (front, file.to_str().unwrap().to_owned())
    }

    fn agent(&self, seed: &str, variables: &[(&str, &str)]) -> Agent {
        let (garden_file, seed_file) = files(&self.world);
        let own = [
            ("GARDEN_KUBECONFIG", renamed(&self.world, &garden_file, "garden.example.org", None)),
            ("KUBECONFIG", renamed(&self.world, &seed_file, seed, None)),
        ];
        let given = variables.iter().map(|(name, value)| (*name, (*value).to_owned()));
        let all = own.into_iter().chain(given).map(|(name, value)| (name.to_owned(), value)).collect();
        Agent::new(&self.world, "host-1", &without_secrets(&self.world), all)
    }

    /// The agent does its main job, and connects only to `expected`.
    fn works(&self, agent: &Agent, expected: &[String]) {
        let mut objects = prepare::extension("echo", b"", &json!({"greeting": "hello"}));
        objects[0]["helm"] = json!({"values": {"greeting": "hello"}, "ociRepository":
            {"ref": "oci://registry.example.org/charts/echo:1", "caBundleSecretRef": {"name": "ca"}}});
        self.world.garden.apply(&[json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "ca", "namespace": "garden", "labels": {"gardener.cloud/role": "oci-ca-bundle"}},
            "data": {"bundle.crt": base64(self.registry.ca.as_bytes())}})]);
        self.world.garden.apply(&objects);
        agent.launch();
        self.world.wait_until_ready();
        installed(&self.world, "echo");
        let asked = agent.cable().asked();
        assert_eq!(asked, expected.iter().cloned().collect::<BTreeSet<_>>());
        agent.stop();
        let told = self.world.log();
        assert!(!told.iter().any(|line| SECRETS.iter().any(|secret| line.contains(secret))));
    }
}

fn has_asked(proxy: &Proxy, names: &[&str]) {
    let asked: BTreeSet<String> = proxy.asked().into_iter().collect();
    let names = names.iter().map(|name| format!("{name}.example.org:443"));
    assert_eq!(asked, names.collect::<BTreeSet<_>>());
}

#[test]
fn all_connections_use_an_http_proxy_with_a_login() {
    let site = Site::new("proxied");
    let proxy = site.proxy(CONNECT);
    let https = url("http", proxy.address());
    let agent =
        site.agent("seed.example.org", &[("HTTPS_PROXY", &https), ("NO_PROXY", "10.0.0.0/8,.internal")]);
    site.works(&agent, &[proxy.address().to_string()]);
    has_asked(&proxy, &["garden", "seed", "registry"]);
}

#[test]
fn all_connections_use_a_proxy_over_tls() {
    let site = Site::new("tls-proxied");
    let proxy = site.proxy(CONNECT);
    let (front, ca) = site.front(&proxy);
    let https = url("https", front.address());
    let agent = site.agent("seed.example.org", &[("HTTPS_PROXY", &https), ("SSL_CERT_FILE", &ca)]);
    site.works(&agent, &[front.address().to_string()]);
    has_asked(&proxy, &["garden", "seed", "registry"]);
}

#[test]
fn networks_in_no_proxy_are_reached_directly_and_others_through_socks() {
    let site = Site::new("socks-proxied");
    let proxy = site.proxy(SOCKS);
    let https = url("socks5h", proxy.address());
    let mut agent =
        site.agent("10.77.3.4", &[("https_proxy", &https), ("no_proxy", "192.168.0.0/16, 10.77.0.0/16")]);
    agent.routes.insert("10.77.3.4:443".to_owned(), address(&World::address(&site.world.seed)));
    site.works(&agent, &[proxy.address().to_string(), "10.77.3.4:443".to_owned()]);
    has_asked(&proxy, &["garden", "registry"]);
}

#[test]
fn a_kubeconfig_may_name_its_own_proxy() {
    let site = Site::new("own-proxies");
    let world = &site.world;
    let (socks, behind_tls, connect) = (site.proxy(SOCKS), site.proxy(CONNECT), site.proxy(CONNECT));
    let (front, ca) = site.front(&behind_tls);
    let (garden_file, seed_file) = files(world);
    let (of_garden, of_seed) = (url("socks5", socks.address()), url("https", front.address()));
    let variables = [
        ("GARDEN_KUBECONFIG", renamed(world, &garden_file, "garden.example.org", Some(&of_garden))),
        ("KUBECONFIG", renamed(world, &seed_file, "seed.example.org", Some(&of_seed))),
        ("SSL_CERT_FILE", ca),
        // For connections without their own proxy; exceptions come from the environment, too.
        ("HTTPS_PROXY", url("http", connect.address())),
        ("NO_PROXY", "garden.example.org,seed.example.org".to_owned()),
    ];
    let variables: SortedMap<_, _> = variables.map(|(name, value)| (name.to_owned(), value)).into();
    let agent = Agent::new(world, "host-1", &without_secrets(world), variables);
    let expected = [socks.address(), front.address(), connect.address()].map(|proxy| proxy.to_string());
    site.works(&agent, &expected);
    has_asked(&socks, &["garden"]);
    has_asked(&behind_tls, &["seed"]);
    has_asked(&connect, &["registry"]);
}
