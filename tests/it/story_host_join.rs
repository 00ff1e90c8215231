//! Hosts join a pool of a Shoot: what their agent and their kubelet read, the script with their token, and the approval of their
//! certificates. The tests play the hosts.

use std::sync::Arc;
use std::time::Duration;

use gardenlet::api::core::{NAMESPACE, NODE, SECRET};
use gardenlet::api::meta::Key;
use gardenlet::base::clock::Clock;
use gardenlet::format::time::rfc3339;
use gardenlet::kube::{Error, Patch};
use serde_json::{Value, json};

use crate::commands::command_with;
use crate::nodes::{Nodes, POOL};
use crate::story_operating::Desk;
use crate::world::{Agent, CORE, MANAGED_RESOURCES, Options, World};
use support::api::{Target, User};
use support::encoding::{base64, from_base64, sha256_hex};
use support::garden::prepare;
use support::http::faults::Action;
use support::http::record::Recorded;
use support::json::{entry, text};
use support::pki::{self, Subject};
use support::shoot::Site;
use support::shoot::history::{wait_until, wait_until_created};
use support::shoot::host::{AGENT, APPLIED, Asked, CSRS, Host, Purpose, tokens, variable};
use support::shoot::object::{self, PROJECT_NAMESPACE, technical_id};
use support::shoot::server::Server;

const RBAC: &str = "rbac.authorization.k8s.io";
const DAY: Duration = Duration::from_secs(86_400);
const GROUP: &str = "extensions.gardener.cloud";
/// What is printed is pasted into the user data of a host.
const SCRIPT_BYTES_MAX: usize = 64 << 10;
/// Until when hosts may join: an annotation of the namespace of the control plane.
pub(crate) const JOINING: &str = "edge.gardenlet/hosts-join-until";
pub(crate) const TOKENS: &str = "bootstrap-token-";

/// A Shoot with a pool, its owner's desk, and the agent of its seed.
pub(crate) struct Stand {
    pub(crate) world: World,
    pub(crate) site: Site,
    pub(crate) agent: Arc<Agent>,
    name: &'static str,
}

impl Stand {
    /// A world whose Shoot is created. Its time stays behind that of the commands, to which its certificates would not be valid yet. No other
    /// story may have a Shoot of this name that commands reach.
    pub(crate) fn begin(seed: &'static str, name: &'static str) -> Self {
        Self::with(seed, name, |_| ())
    }

    /// The same with another Shoot.
    fn with(seed: &'static str, name: &'static str, change: fn(&mut Value)) -> Self {
        let begin = Clock::system().now().minus(DAY);
        let world = World::start(&Options { begin, ..Options::new(seed) });
        Self::changed(world, World::reachable_site, name, change)
    }

    /// The same in another world.
    pub(crate) fn on(world: World, site: fn(&World) -> Site, name: &'static str) -> Self {
        Self::changed(world, site, name, |_| ())
    }

    fn changed(world: World, site: fn(&World) -> Site, name: &'static str, change: fn(&mut Value)) -> Self {
        let site = site(&world);
        let mut shoot = Nodes::Hosts.shoot(&world, name).build();
        change(&mut shoot);
        let agent = Arc::new(world.agent_of(&site, &Nodes::Hosts.config(&world)));
        agent.launch();
        world.wait_until_ready();
        world.garden.apply(&[shoot]);
        wait_until_created(&world.garden, (PROJECT_NAMESPACE, name));
        let stand = Self { world, site, agent, name };
        let cluster = &stand.server().cluster;
        cluster.wait_for("the Secret of the pool", |_| stand.pool_secret());
        // The last one of what agents of nodes need.
        cluster.wait_for("the rights of hosts", |cluster| {
            cluster.get(RBAC, "clusterrolebindings", "", "system:node-bootstrapper")?;
            cluster.get(RBAC, "rolebindings", "kube-system", "gardener.cloud:node-agents")?;
            cluster.get(RBAC, "roles", "kube-system", &format!("gardener.cloud:node-agents:{POOL}"))
        });
        stand
    }

    pub(crate) fn plane(&self) -> String {
        technical_id(self.name)
    }

    pub(crate) fn server(&self) -> Arc<Server> {
        self.site.server(&self.plane()).unwrap()
    }

    /// What the nodes of the pool apply.
    pub(crate) fn pool_secret(&self) -> Option<Value> {
        let all = self.server().cluster.store().list("", "secrets", "kube-system");
        all.into_iter().find(|secret| {
            entry(secret, "/metadata/labels", "gardener.cloud/role") == Some("operating-system-config")
        })
    }

    /// A command of `gardenlet node` with the permissions of the agent, at a terminal if there is an answer: code, output, errors.
    pub(crate) fn command(&self, answer: Option<&str>, words: &[&str]) -> (u8, String, String) {
        let desk = Desk::new(&self.world, |config| {
            object::make_edge(config);
            config["edge"]["hosts"] = json!({"types": [prepare::HOSTS]});
        });
        let all = [&["node"], words, &["--config", &desk.config]].concat();
        command_with(answer, &all, &desk.variables)
    }

    /// Prints the script for a host of the pool.
    pub(crate) fn print(&self, host: &str, more: &[&str]) -> String {
        let name = format!("--name={host}");
        let words = ["script", &self.place(), POOL, &name];
        let (code, script, told) = self.command(None, &[&words, more].concat());
        assert_eq!(code, 0, "{told}");
        for token in tokens(&script) {
            assert!(!told.contains(&token), "{told}");
        }
        script
    }

    /// The refusal to print one.
    fn refused(&self, shoot: &str, pool: &str, host: &str) -> String {
        let (code, script, told) = self.command(None, &["script", shoot, pool, &format!("--name={host}")]);
        assert_eq!((code, script.as_str()), (1, ""), "{told}");
        told
    }

    /// The namespace and the name of the Shoot in the garden.
    pub(crate) fn in_garden(&self) -> (&'static str, &'static str) {
        (PROJECT_NAMESPACE, self.name)
    }

    /// The Shoot, as commands name it.
    pub(crate) fn place(&self) -> String {
        format!("{PROJECT_NAMESPACE}/{}", self.name)
    }

    /// Until when hosts may join.
    pub(crate) fn joining(&self) -> Option<String> {
        let space = self.world.seed.get("", "namespaces", "", &self.plane())?;
        entry(&space, "/metadata/annotations", JOINING).map(str::to_owned)
    }

    pub(crate) fn wait_until_nobody_joins(&self) {
        self.world.seed.wait_for("the end of the annotation", |_| self.joining().is_none().then_some(()));
    }

    /// The names of the tokens of hosts.
    pub(crate) fn tokens(&self) -> Vec<String> {
        let mut names = self.server().cluster.store().names("", "secrets", "kube-system");
        names.retain(|name| name.starts_with(TOKENS));
        names
    }

    /// Waits until the requests were read so many times.
    fn wait_for_looks(&self, looks: usize) {
        let (server, mark) = (self.server(), self.server().cluster.request_count());
        server.cluster.wait_for("looks at requests", |cluster| {
            let looked = cluster.requests_since(mark).iter().filter(|r| is_look(r) && r.ended).count();
            (looked >= looks).then_some(())
        });
    }

    pub(crate) fn end(self) {
        assert_eq!(self.site.complaints(), Vec::<String>::new());
        self.agent.stop();
    }
}

fn is_of_agent(request: &Recorded) -> bool {
    request.user_agent.starts_with("gardenlet/")
}

/// Whether it begins to read the requests for certificates.
fn is_look(request: &Recorded) -> bool {
    let is_first = !request.query.contains("continue=");
    is_of_agent(request) && request.info.resource == CSRS.1 && request.info.verb == "list" && is_first
}

fn is_answer(request: &Recorded) -> bool {
    is_of_agent(request) && request.info.subresource == "approval" && request.status == 200
}

fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> u16 {
    match result {
        Err(Error::Api(failure)) => failure.code,
        other => panic!("{other:?}"),
    }
}

/// What a pool has: the objects of an extension, and what nodes read.
#[test]
fn a_pool_has_what_its_hosts_apply() {
    let stand = Stand::begin("host-objects", "j1");
    let (plane, seed) = (stand.plane(), &stand.world.seed);
    let secret = stand.pool_secret().unwrap();
    let key = text(&secret, "/metadata/name").to_owned();
    let configs = seed.store().names(GROUP, "operatingsystemconfigs", &plane);
    assert_eq!(configs, [format!("{key}-init"), format!("{key}-original")]);
    let kinds = configs.iter().map(|name| ("operatingsystemconfigs", name.as_str()));
    for (kind, name) in kinds.chain([("workers", stand.name)]) {
        let object = seed.get(GROUP, kind, &plane, name).unwrap();
        let status = &object["status"];
        assert_eq!(status["lastOperation"]["state"], "Succeeded", "{object}");
        assert_eq!(status["observedGeneration"], object["metadata"]["generation"], "{name}");
    }
    let init = seed.get(GROUP, "operatingsystemconfigs", &plane, &configs[0]).unwrap();
    let result = text(&init, "/status/cloudConfig/secretRef/name");
    assert_eq!(result, format!("osc-result-{key}-init"));
    let worker = seed.get(GROUP, "workers", &plane, stand.name).unwrap();
    assert_eq!(worker["spec"]["pools"][0]["userDataSecretRef"]["name"], result);
    assert_eq!(worker["spec"]["pools"][0]["nodeAgentSecretName"], key.as_str());
    assert_eq!(worker["status"]["machineDeployments"], json!([]));
    assert!(seed.get("", "secrets", &plane, result).is_some_and(|it| it["data"]["cloud_config"].is_string()));
    assert!(seed.get(MANAGED_RESOURCES, "managedresources", &plane, "shoot-gardener-node-agent").is_some());

    let content = from_base64(text(&secret, "/data/osc.yaml")).unwrap();
    let checksum = sha256_hex(&content);
    assert_eq!(entry(&secret, "/metadata/annotations", "checksum/data-script"), Some(checksum.as_str()));
    stand.end();
}

/// One host has one token, however often its script is printed. A command says what is wrong, and works without the garden.
#[test]
fn a_script_is_printed_for_one_host() {
    let stand = Stand::begin("host-script", "j2");
    let server = stand.server();
    let scripts: Vec<String> = (0..5).map(|_| stand.print("Shed", &[])).collect();
    assert!(scripts.iter().all(|script| script.len() <= SCRIPT_BYTES_MAX), "{}", scripts[0].len());
    let hosts: Vec<Host<'_>> = scripts.iter().map(|script| Host::new(&server, script, "10.67.0.1")).collect();
    assert_eq!((hosts[0].name.as_str(), stand.tokens().len()), ("shed", 1));
    assert_eq!(variable(&scripts[0], "POOL"), Some(POOL));
    assert_eq!(variable(&scripts[0], "SHOOT"), Some(stand.place().as_str()));
    let subject = Purpose::Agent.subject("shed");
    let ask = |host: &Host<'_>| host.ask(&host.beginner(), Purpose::Agent, &subject, &[]);
    let (last, before) = hosts.split_last().unwrap();
    for host in before {
        assert_eq!(code(ask(host).map(|asked| asked.name)), 401, "an old token is good");
    }
    ask(last).unwrap();

    let told = stand.refused(&stand.place(), "attic", "shed");
    assert!(told.contains(&format!("Shoot {} has no pool \"attic\": it has pool", stand.place())), "{told}");
    for other in [format!("{PROJECT_NAMESPACE}/j9"), format!("garden-other/{}", stand.name)] {
        let told = stand.refused(&other, POOL, "shed");
        let expected = format!("the seed has no Shoot {other}: write the namespace and the name");
        assert!(told.contains(&expected), "{told}");
    }
    server.join("taken", POOL);
    let told = stand.refused(&stand.place(), POOL, "taken");
    assert!(told.contains("node taken exists") && told.contains("--rejoin"), "{told}");
    assert_eq!(stand.tokens().len(), 1, "a refusal leaves a token");

    stand.world.garden.server().down();
    let node = server.cluster.get("", "nodes", "", "taken").unwrap();
    let script = stand.print("taken", &["--rejoin"]);
    assert_eq!(variable(&script, "REJOIN"), node["metadata"]["uid"].as_str());
    let host = Host::new(&server, &script, "10.67.0.9");
    host.agent();
    stand.world.garden.server().up().unwrap();
    stand.end();
}

/// The agent of a host reads what the nodes of its own pool apply, and nothing of another pool.
#[test]
fn a_host_has_a_place_in_one_pool() {
    let stand = Stand::with("host-place", "j10", |shoot| {
        let mut other = shoot["spec"]["provider"]["workers"][0].clone();
        other["name"] = json!("attic");
        shoot["spec"]["provider"]["workers"].as_array_mut().unwrap().push(other);
    });
    let server = stand.server();
    let secret = |pool: &str| Key::new("kube-system", format!("gardener-node-agent-{pool}"));
    server.cluster.wait_for("the Secrets of both pools", |cluster| {
        let of = |pool: &str| cluster.get("", "secrets", "kube-system", &secret(pool).name);
        of(POOL).and(of("attic")).map(drop)
    });
    let script = stand.print("shed", &[]);
    let host = Host::new(&server, &script, "10.67.0.1");
    let (identity, _) = host.join();
    let agent = host.with(&identity);
    let reads = |pool: &str| agent.get::<Value>(&SECRET, &secret(pool)).map(drop);
    reads(POOL).unwrap();
    assert_eq!(code(reads("attic")), 403);
    let pools = || server.cluster.get("", "configmaps", "kube-system", "edge-hosts").unwrap()["data"].clone();
    assert_eq!(pools(), json!({"shed": POOL}));

    // Its Node stays in its pool.
    let name = "--name=shed";
    let (code_of_exit, _, told) = stand.command(None, &["script", &stand.place(), "attic", name, "--rejoin"]);
    assert!(code_of_exit == 1 && told.contains("node shed is in pool \"pool\""), "{told}");
    server.cluster.delete("", "nodes", "", "shed");
    let (code_of_exit, _, told) = stand.command(None, &["script", &stand.place(), "attic", name]);
    assert_eq!(code_of_exit, 0, "{told}");
    reads("attic").unwrap();
    assert_eq!(code(reads(POOL)), 403);
    assert_eq!(pools(), json!({"shed": "attic"}));
    stand.end();
}

/// The host with the longest time decides how long requests are read often.
#[test]
fn a_script_does_not_shorten_the_time_of_another_host() {
    let stand = Stand::begin("host-two", "j3");
    stand.print("slow", &["--ttl=3h"]);
    let until = stand.joining().unwrap();
    stand.print("fast", &["--ttl=1m"]);
    assert_eq!(stand.joining().unwrap(), until);
    // Its Shoot is reconciled meanwhile.
    let operation = json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}});
    stand.world.garden.merge(CORE, "shoots", (PROJECT_NAMESPACE, stand.name), &operation);
    wait_until(&stand.world.garden, (PROJECT_NAMESPACE, stand.name), "Reconcile Succeeded 100");
    assert_eq!(stand.joining().unwrap(), until);
    stand.print("slower", &["--ttl=4h"]);
    assert!(stand.joining().unwrap() > until);
    stand.end();
}

/// The requests of a host are approved in their order. Once it is a node, nothing of its token is left, and its Shoot is as calm as before.
#[test]
fn a_host_joins_and_its_shoot_is_calm_again() {
    let stand = Stand::begin("host-joins", "j4");
    let server = stand.server();
    let cluster = &server.cluster;
    server.join("first", POOL);
    let calm = requests_of(&stand, Duration::from_secs(900));
    let mark = cluster.request_count();
    let script = stand.print("shed", &["--ttl=2h"]);
    let host = Host::new(&server, &script, "10.67.0.1");
    let (agent, kubelet) = host.join();
    host.await_end();
    stand.wait_until_nobody_joins();
    assert_eq!((stand.tokens(), host.is_closed()), (Vec::new(), false));
    let answers = cluster.requests_since(mark).into_iter().filter(is_answer);
    let answered: Vec<String> = answers.map(|request| request.info.name).collect();
    let begins: Vec<&str> = answered.iter().map(|name| &name[..4]).collect();
    assert_eq!(begins, ["node", "csr-", "csr-"]);
    // Its certificates are those that the API server trusts.
    for identity in [&agent, &kubelet] {
        host.with(identity).get::<Value>(&NODE, &Key::cluster("shed")).map(drop).unwrap_or_else(|error| {
            assert_eq!(code::<Value>(Err(error)), 403, "agents of nodes only list nodes");
        });
    }
    let after = requests_of(&stand, Duration::from_secs(900));
    println!("requests into the Shoot within 15 minutes: {} before, {} after", calm.all, after.all);
    assert!(calm.looks <= 2 && after.looks <= 2, "{} and {} looks", calm.looks, after.looks);
    // The first look after the start of an agent reads them, too.
    assert!(calm.tokens <= 1 && after.tokens == 0, "{} and {} lists of tokens", calm.tokens, after.tokens);
    // One node more is reached through the server.
    assert!(after.all <= calm.all + calm.all / 4 + 15, "{} and {} requests", calm.all, after.all);
    stand.end();
}

/// What the agent of the seed sends into the Shoot.
struct Sent {
    all: usize,
    looks: usize,
    /// How often tokens were read.
    tokens: usize,
}

fn requests_of(stand: &Stand, time: Duration) -> Sent {
    let (server, begun) = (stand.server(), stand.world.clock.mono());
    let mark = server.cluster.request_count();
    stand.world.pass(time);
    let mut sent = server.cluster.requests_since(mark);
    sent.retain(is_of_agent);
    let is_token = |r: &&Recorded| {
        let is_of_pools = r.query.contains("operating-system-config");
        r.info.resource == "secrets"
            && r.info.namespace == "kube-system"
            && r.info.verb == "list"
            && !is_of_pools
    };
    let (all, looks) = (sent.len(), sent.iter().filter(|r| is_look(r)).count());
    let tokens = sent.iter().filter(is_token).count();
    // On a busy machine more time passes.
    let per = |count: usize| {
        count * usize::try_from(time.as_secs()).unwrap() / (60 * stand.world.minutes_since(begun))
    };
    Sent { all: per(all), looks: per(looks), tokens }
}

/// The answer to a request that is denied.
fn denied(host: &Host<'_>, asked: &Asked) -> String {
    let (answer, why) = host.await_answer(asked);
    assert_eq!(answer, "Denied", "{why}");
    why
}

/// Nobody gets the certificate of somebody else.
#[test]
fn a_certificate_of_another_host_is_denied() {
    let stand = Stand::begin("host-hostile", "j5");
    let server = stand.server();
    let scripts = ["one", "three"].map(|name| stand.print(name, &[]));
    let [one, three] = &scripts.map(|script| Host::new(&server, &script, "10.67.0.1"));
    let ask = |purpose: Purpose, subject: &Subject| one.ask(&one.beginner(), purpose, subject, &[]).unwrap();
    for purpose in [Purpose::Agent, Purpose::Kubelet] {
        let why = denied(one, &ask(purpose, &purpose.subject("three")));
        assert_eq!(why, "the token is for host one, and the request for three");
    }
    let masters = |name: &str| Subject {
        common_name: name.to_owned(),
        organizations: vec!["system:masters".to_owned()],
    };
    let why = denied(one, &ask(Purpose::Agent, &masters(&format!("{AGENT}one"))));
    assert!(why.contains("groups other than gardener.cloud:node-agents"), "{why}");
    let why = denied(one, &ask(Purpose::Kubelet, &masters("system:node:one")));
    assert!(why.contains("groups other than system:nodes"), "{why}");
    // Somebody else decides about it, or nobody.
    let foreign = ask(Purpose::Agent, &masters("admin"));

    server.join("three", POOL);
    let asked = three.ask(&three.beginner(), Purpose::Agent, &Purpose::Agent.subject("three"), &[]);
    let why = denied(three, &asked.unwrap());
    assert!(why.contains("node three exists") && why.contains("--rejoin"), "{why}");
    stand.wait_for_looks(2);
    assert_eq!(one.answer(&foreign), None);
    stand.end();
}

/// A kubelet serves under the names and addresses that its Node has, once it has them.
#[test]
fn a_kubelet_serves_at_the_addresses_of_its_own_node() {
    let stand = Stand::begin("host-serving", "j6");
    let server = stand.server();
    let script = stand.print("one", &[]);
    let host = Host::new(&server, &script, "10.67.0.1");
    host.agent();
    let kubelet = host.with(&host.kubelet());
    host.register(&kubelet);
    let serve = |node: &str, names: &[&str]| {
        host.ask(&kubelet, Purpose::Server, &Purpose::Server.subject(node), names).unwrap()
    };
    let why = denied(&host, &serve("two", &["two", "10.67.0.2"]));
    assert_eq!(why, "system:node:one asks for the certificate of system:node:two");
    let greedy = serve("one", &["one", "10.67.0.2"]);
    stand.wait_for_looks(2);
    assert_eq!(host.answer(&greedy), None);
    stand.world.time.advance(Duration::from_secs(2));
    let early = host.ask_to_serve(&kubelet);
    stand.wait_for_looks(3);
    assert_eq!(host.answer(&early), None, "its node has no address yet");
    host.report(&kubelet);
    host.receive(&early);
    // It goes on asking under an address that it does not have. Then it has another one.
    let ask = |round: &str, address: &str| {
        let names = ["one", address];
        let asked = host.again(round).ask(&kubelet, Purpose::Server, &Purpose::Server.subject("one"), &names);
        stand.world.time.advance(Duration::from_secs(2));
        asked.unwrap()
    };
    for number in 0..12 {
        ask("0", &format!("10.67.1.{number}"));
    }
    let moved = ask("z", "10.67.0.3");
    let addresses =
        json!([{"type": "Hostname", "address": "one"}, {"type": "InternalIP", "address": "10.67.0.3"}]);
    server.cluster.merge_status("", "nodes", ("", "one"), &json!({"status": {"addresses": addresses}}));
    host.receive(&moved);
    stand.end();
}

/// A host that asks without end does not keep another one waiting.
#[test]
fn a_flood_of_requests_delays_nobody() {
    let stand = Stand::begin("host-flood", "j7");
    let server = stand.server();
    let cluster = &server.cluster;
    let (flooder, joiner) = (stand.print("one", &[]), stand.print("two", &[]));
    // The story counts looks, which take longer now.
    let joiner = Host::new(&server, &joiner, "10.67.0.2").patient();
    let token = tokens(&flooder).into_iter().next().unwrap();
    let user = User::new(&format!("system:bootstrap:{}", &token[..6]), &["system:bootstrappers"]);
    let mark = cluster.request_count();
    flood(&stand, &user, 1_000);
    joiner.join();
    stand.wait_for_looks(2);
    let sent = cluster.requests_since(mark);
    let (mut of_look, mut most, mut denials) = (0, 0, 0);
    let is_deletion = |request: &Recorded| request.method == "DELETE" && request.info.resource == CSRS.1;
    for request in
        sent.iter().filter(|request| is_look(request) || is_answer(request) || is_deletion(request))
    {
        let is_of_flood = request.info.name.starts_with(FLOOD);
        of_look = if is_look(request) { 0 } else { of_look + usize::from(is_of_flood) };
        denials += usize::from(is_of_flood);
        most = most.max(of_look);
    }
    // The newest one is denied, and some older ones go.
    assert!(most <= 11, "{most} answers for one user at one look");
    assert!(denials >= 10, "{denials} denials and deletions");
    let asked = sent.iter().position(|request| request.method == "POST" && request.info.resource == CSRS.1);
    let is_first = |request: &Recorded| is_answer(request) && !request.info.name.starts_with(FLOOD);
    let answered = sent.iter().position(is_first).unwrap();
    let looks = sent[asked.unwrap()..answered].iter().filter(|request| is_look(request)).count();
    assert!(looks <= 3, "{looks} looks until the answer");
    stand.end();
}

const FLOOD: &str = "flood-";

/// Requests of one user, without the network, before all others by their names.
fn flood(stand: &Stand, user: &User, count: usize) {
    let server = stand.server();
    let api = server.cluster.api();
    let (pem, _) = pki::request(&Purpose::Kubelet.subject("two"), &[]);
    let spec = json!({"signerName": "kubernetes.io/kube-apiserver-client-kubelet", "request": base64(pem.as_bytes()),
        "usages": ["digital signature", "client auth"]});
    let target = Target::new(api.kind(CSRS.0, CSRS.1).unwrap(), "", "");
    for number in 0..count {
        let metadata = json!({"name": format!("{FLOOD}{number:04}")});
        api.create(&target, json!({"metadata": metadata, "spec": spec}), user).unwrap();
    }
}

/// A host takes the place of a node that is still there: with a new identity, and nothing is left of its token.
#[test]
fn a_host_comes_back_as_the_node_that_it_was() {
    let stand = Stand::begin("host-back", "j8");
    let server = stand.server();
    let host = Host::new(&server, &stand.print("shed", &[]), "10.67.0.1");
    host.join();
    host.await_end();
    stand.wait_until_nobody_joins();
    let node = || server.cluster.get("", "nodes", "", "shed").unwrap();
    let before = node();
    assert!(entry(&before, "/metadata/annotations", APPLIED).is_some());
    let host = Host::new(&server, &stand.print("shed", &["--rejoin"]), "10.67.0.1").again("2-");
    stand.wait_for_looks(3);
    assert_eq!(stand.tokens().len(), 1, "the token went before it was used");
    let applied = || {
        stand.wait_for_looks(3);
        assert_eq!(stand.tokens().len(), 1, "the token went before the kubelet had used it");
    };
    // A slow host.
    let certified = || {
        stand.world.skip(Duration::from_secs(20));
        assert!(stand.joining().is_some(), "nobody looks for the next request");
    };
    host.join_again(applied, certified);
    host.await_end();
    stand.wait_until_nobody_joins();
    assert_eq!(node()["metadata"]["uid"], before["metadata"]["uid"]);
    stand.end();
}

/// A script that is printed at the moment at which the last host has joined counts.
#[test]
fn a_script_printed_while_the_last_host_has_just_joined_counts() {
    let stand = Stand::begin("host-moment", "j9");
    let server = stand.server();
    let host = Host::new(&server, &stand.print("shed", &[]), "10.67.0.1");
    let until = rfc3339(stand.world.clock.now().plus(DAY));
    let (mine, plane, value, seed) =
        (server.clone(), stand.plane(), until.clone(), stand.world.seed.client());
    let print = Action::TellAfter(Arc::new(move |_| {
        let secret = json!({"metadata": {"name": format!("{TOKENS}aaaaaa"), "namespace": "kube-system",
            "labels": {"edge.gardenlet/host": "other"}}, "type": "bootstrap.kubernetes.io/token"});
        mine.cluster.create("v1", "secrets", &secret);
        let patch = Patch::Merge(json!({"metadata": {"annotations": {JOINING: value}}}));
        seed.patch::<Value>(&NAMESPACE, &Key::cluster(plane.as_str()), &patch).unwrap();
    }));
    // The agent has found that it is the last token.
    server.cluster.faults().on("DELETE", "/secrets/bootstrap-token-").once().then(print);
    host.join();
    host.await_end();
    stand.wait_for_looks(4);
    assert_eq!(stand.joining(), Some(until));
    stand.end();
}
