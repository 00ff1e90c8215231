//! The owner of a Shoot changes its spec: the affected workloads are rolled out once, and nothing else is touched.

use std::collections::{BTreeMap, BTreeSet};

use gardenlet::base::sorted::SortedMap;
use gardenlet::operation::components::{kube_apiserver, kube_controller_manager};
use serde_json::{Value, json};

use crate::world::{AGENT, Agent, CORE, Options, World};
use support::http::record::Recorded;
use support::json::{entry, text};
use support::shoot::Site;
use support::shoot::history::{wait_until, wait_until_created};
use support::shoot::object::{PROJECT_NAMESPACE, ShootObject, technical_id};

const NAME: &str = "s1";
const PLACE: (&str, &str) = (PROJECT_NAMESPACE, NAME);
const DONE: &str = "Reconcile Succeeded 100";
const SERVER: &str = "kube-apiserver";
const CONTROLLERS: &str = "kube-controller-manager";
const NEXT: &str = "1.35.4";

/// The workloads that a change of the spec rolls out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rolled {
    server: bool,
    controllers: bool,
}

const SERVER_ONLY: Rolled = Rolled { server: true, controllers: false };
const CONTROLLERS_ONLY: Rolled = Rolled { server: false, controllers: true };
const BOTH: Rolled = Rolled { server: true, controllers: true };
const NONE: Rolled = Rolled { server: false, controllers: false };

/// Fields of `spec.kubernetes`, and the workloads that they affect in a Shoot without workers.
fn fields() -> Vec<(&'static str, Value, Rolled)> {
    let of_server = |pointer, value| (pointer, value, SERVER_ONLY);
    let plugin = |config: Value| json!([{"name": "PodSecurity", "config": config}]);
    let pod_security =
        json!({"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration"});
    vec![
        of_server("/kubeAPIServer/featureGates", json!({"AggregatedDiscoveryRemoveBetaType": false})),
        of_server("/kubeAPIServer/runtimeConfig", json!({"storage.k8s.io/v1/csinodes": true})),
        ("/kubeAPIServer/runtimeConfig", json!({"apps/v1": true}), BOTH),
        of_server("/kubeAPIServer/admissionPlugins", plugin(pod_security)),
        of_server("/kubeAPIServer/admissionPlugins", json!([{"name": "PodSecurity", "disabled": true}])),
        of_server("/kubeAPIServer/auditConfig/auditPolicy/configMapRef/name", json!("audit")),
        of_server("/kubeAPIServer/structuredAuthentication/configMapName", json!("authentication")),
        of_server(
            "/kubeAPIServer/structuredAuthorization",
            json!({"configMapName": "authorization", "kubeconfigs": [{"authorizerName": "w", "secretName": "w"}]}),
        ),
        of_server("/kubeAPIServer/apiAudiences", json!(["vault"])),
        of_server("/kubeAPIServer/serviceAccountConfig/issuer", json!("https://issuer.example.org")),
        of_server("/kubeAPIServer/serviceAccountConfig/acceptedIssuers", json!(["https://old.example.org"])),
        of_server("/kubeAPIServer/serviceAccountConfig/extendTokenExpiration", json!(false)),
        of_server("/kubeAPIServer/serviceAccountConfig/maxTokenExpiration", json!("720h")),
        of_server("/kubeAPIServer/requests/maxNonMutatingInflight", json!(100)),
        of_server("/kubeAPIServer/requests/maxMutatingInflight", json!(50)),
        of_server("/kubeAPIServer/eventTTL", json!("30m")),
        of_server("/kubeAPIServer/tlsMinVersion", json!("VersionTLS13")),
        of_server("/kubeAPIServer/enableAnonymousAuthentication", json!(true)),
        of_server("/kubeAPIServer/defaultNotReadyTolerationSeconds", json!(60)),
        of_server("/kubeAPIServer/defaultUnreachableTolerationSeconds", json!(60)),
        of_server("/kubeAPIServer/logging/verbosity", json!(3)),
        of_server("/kubeAPIServer/logging/httpAccessVerbosity", json!(3)),
        of_server("/kubeAPIServer/watchCacheSizes/default", json!(10)),
        of_server("/kubeAPIServer/watchCacheSizes/resources", json!([{"resource": "secrets", "size": 5}])),
        (
            "/kubeControllerManager/featureGates",
            json!({"CronJobsScheduledAnnotation": false}),
            CONTROLLERS_ONLY,
        ),
        // They affect nodes, which the Shoot does not have.
        ("/kubeControllerManager/nodeCIDRMaskSize", json!(22), NONE),
        ("/kubeControllerManager/nodeMonitorGracePeriod", json!("1m"), NONE),
        ("/kubeScheduler", json!({"profile": "bin-packing"}), NONE),
        ("/verticalPodAutoscaler", json!({"enabled": true}), NONE),
    ]
}

/// The objects in the garden to which the settings refer.
fn texts() -> kube_apiserver::Texts {
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";
    let authentication = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n\
        jwt: [{issuer: {url: 'https://oidc.example.org', audiences: [a]}, claimMappings: {username: {claim: sub, prefix: ''}}}]\n";
    let authorization = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n\
        authorizers: [{type: Webhook, name: w, webhook: {timeout: 3s}}]\n";
    let all = [
        ("audit", policy),
        ("authentication", authentication),
        ("authorization", authorization),
        ("w-kubeconfig.yaml", "apiVersion: v1\nkind: Config\n"),
    ];
    all.map(|(name, text)| (name.to_owned(), text.to_owned())).into()
}

/// The templates of both Deployments.
fn templates(kubernetes: &Value) -> [Value; 2] {
    let volumes = [
        "ca",
        "ca-client",
        "ca-front-proxy",
        "service-account-key",
        "service-account-key-bundle",
        "static-token",
        "kube-aggregator",
        "ca-etcd",
        "etcd-client",
        "server",
    ];
    let secrets: SortedMap<&'static str, String> = volumes.map(|name| (name, name.to_owned())).into();
    let services = ["100.64.0.0/13".to_owned()];
    let named: BTreeSet<String> =
        kube_apiserver::references(kubernetes).into_iter().map(|each| each.file).collect();
    let texts = texts().into_iter().filter(|(file, _)| named.contains(file)).collect();
    let server = kube_apiserver::fill(&kube_apiserver::Input {
        namespace: "n",
        kubernetes,
        image: "server:1",
        replicas: 1,
        services: &services,
        external_hostname: "api.example.org",
        managed_issuer: None,
        wildcard: None,
        advertise_address: None,
        writes_endpoints: true,
        health_check_token: "t",
        secrets: &secrets,
        encryption: &json!({"kind": "Secret", "metadata": {"name": "encryption"}}),
        texts: &texts,
        nodes: None,
    });
    let (_, server) = server.unwrap().0.pop().unwrap();
    let controllers = kube_controller_manager::fill(&kube_controller_manager::Input {
        namespace: "n",
        kubernetes,
        version: "1.34.3",
        image: "controllers:1",
        replicas: 1,
        services: &services,
        secrets: &secrets,
        generic_kubeconfig: "kubeconfig",
        pods: None,
    });
    [server, controllers.unwrap()].map(|deployment| deployment["spec"]["template"].clone())
}

fn spec(pointer: &str, value: &Value) -> Value {
    let mut names: Vec<&str> = pointer.split('/').skip(1).collect();
    names.reverse();
    names.into_iter().fold(value.clone(), |inner, name| json!({ name: inner }))
}

#[test]
fn each_field_of_the_spec_affects_only_its_workloads() {
    let before = templates(&json!({}));
    for (pointer, value, expected) in fields() {
        let kubernetes = spec(pointer, &value);
        let after = templates(&kubernetes);
        let found = Rolled { server: after[0] != before[0], controllers: after[1] != before[1] };
        assert_eq!(found, expected, "{pointer}: {value}");
        assert_eq!(templates(&kubernetes), after, "{pointer} is written in another way each time");
    }
}

fn begun(world: &World, site: &Site) -> Agent {
    let mut config = world.edge_config();
    config["edge"]["exposure"] = json!({"type": "NodePort", "address": "127.0.0.1"});
    let agent = world.agent_of(site, &config);
    agent.launch();
    world.wait_until_ready();
    world.garden.apply(&[ShootObject::workerless(NAME).build()]);
    wait_until_created(&world.garden, PLACE);
    agent
}

/// How often the template of each workload changed, by its name.
fn rollouts(world: &World) -> BTreeMap<String, usize> {
    let state = world.seed.store().read();
    let mut all = BTreeMap::new();
    for change in state.since(state.compacted) {
        let is_workload = change.id.is_of("apps", "deployments") || change.id.is_of("apps", "statefulsets");
        if !is_workload || change.id.namespace != technical_id(NAME) {
            continue;
        }
        let template = |object: &Value| object["spec"]["template"].clone();
        let before = change.before.as_ref().map(|before| template(before));
        if before.is_none_or(|before| before != template(&change.after)) {
            *all.entry(change.id.name.clone()).or_default() += 1;
        }
    }
    all
}

/// Writes of the agent for the Shoot, except for its `Cluster`.
fn writes(world: &World, mark: usize) -> Vec<String> {
    let is_ours = |request: &Recorded| {
        request.is_write() && request.user == AGENT && request.info.namespace == technical_id(NAME)
    };
    world.seed.requests_since(mark).iter().filter(|request| is_ours(request)).map(Recorded::line).collect()
}

#[test]
fn a_change_is_rolled_out_once_and_nothing_else_is_touched() {
    let world = World::start(&Options::new("shoot-change"));
    let site = world.site();
    let agent = begun(&world, &site);
    let policy = json!({"metadata": {"name": "audit", "namespace": PROJECT_NAMESPACE}, "data": {"policy": texts()["audit"]}});
    world.garden.create("v1", "configmaps", &policy);
    let mut expected = rollouts(&world);
    assert_eq!(expected.values().copied().collect::<BTreeSet<_>>(), BTreeSet::from([1]));
    let mut roll = |name: &str| *expected.get_mut(name).unwrap() += 1;
    // One of each kind: the others differ only in what the templates show.
    let sample = [
        ("/kubeAPIServer/auditConfig/auditPolicy/configMapRef/name", SERVER_ONLY),
        ("/kubeControllerManager/featureGates", CONTROLLERS_ONLY),
        ("/kubeAPIServer/runtimeConfig", BOTH),
    ];
    for (pointer, value, rolled) in fields() {
        if !sample.contains(&(pointer, rolled)) {
            continue;
        }
        world.garden.merge(CORE, "shoots", PLACE, &json!({"spec": {"kubernetes": spec(pointer, &value)}}));
        wait_until(&world.garden, PLACE, DONE);
        if rolled.server {
            roll(SERVER);
        }
        if rolled.controllers {
            roll(CONTROLLERS);
        }
    }
    assert_eq!(rollouts(&world), expected);
    let (mark, shoot) = (world.seed.request_count(), site.server(&technical_id(NAME)).unwrap());
    let within = shoot.cluster.request_count();
    let operation = json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}});
    world.garden.merge(CORE, "shoots", PLACE, &operation);
    world.garden.wait_for("the reconciliation", |garden| {
        let shoot = garden.get(CORE, "shoots", PLACE.0, PLACE.1)?;
        let is_taken_up = entry(&shoot, "/metadata/annotations", "gardener.cloud/operation").is_none();
        (is_taken_up && text(&shoot, "/status/lastOperation/state") == "Succeeded").then_some(())
    });
    wait_until(&world.garden, PLACE, DONE);
    assert_eq!(writes(&world, mark), Vec::<String>::new());
    let inside: Vec<String> =
        shoot.cluster.requests_since(within).iter().filter(|r| r.is_write()).map(Recorded::line).collect();
    assert_eq!(inside, Vec::<String>::new());
    assert_eq!(site.complaints(), Vec::<String>::new());
    agent.stop();
}

/// The minor versions of pods of kube-apiserver and kube-controller-manager, each time a pod of the latter was created.
fn versions(world: &World) -> Vec<(String, BTreeSet<String>)> {
    let state = world.seed.store().read();
    let (mut servers, mut seen) = (BTreeMap::new(), Vec::new());
    let plane = technical_id(NAME);
    let pods = state
        .since(state.compacted)
        .filter(|change| change.id.is_of("", "pods") && change.id.namespace == plane);
    for change in pods {
        let image = text(&change.after, "/spec/containers/0/image");
        let version = image.rsplit_once(":v").map_or("", |(_, version)| version).to_owned();
        let is_going = change.deleted || change.after["metadata"]["deletionTimestamp"].is_string();
        match entry(&change.after, "/metadata/labels", "role") {
            Some("apiserver") if is_going => drop(servers.remove(&change.id.name)),
            Some("apiserver") => drop(servers.insert(change.id.name.clone(), version)),
            Some("controller-manager") if change.before.is_none() => {
                seen.push((version, servers.values().cloned().collect()));
            }
            _ => {}
        }
    }
    seen
}

#[test]
fn controllers_are_never_of_a_later_version_than_their_server() {
    let world = World::start(&Options::new("shoot-upgrade"));
    let site = world.site();
    let agent = begun(&world, &site);
    let server = site.server(&technical_id(NAME)).unwrap();
    let kept = json!({"metadata": {"name": "kept", "namespace": "default"}});
    server.cluster.create("v1", "configmaps", &kept);
    world.garden.merge(CORE, "shoots", PLACE, &json!({"spec": {"kubernetes": {"version": NEXT}}}));
    let upgraded = wait_until(&world.garden, PLACE, DONE);
    assert_eq!(upgraded["status"]["lastErrors"], Value::Null);
    world
        .seed
        .wait_for("the controllers of the next version", |_| (versions(&world).len() == 2).then_some(()));
    let only = |version: &str| (version.to_owned(), BTreeSet::from([version.to_owned()]));
    assert_eq!(versions(&world), [only("1.34.3"), only(NEXT)]);
    let twice = [("etcd-events", 1), ("etcd-main", 1), (SERVER, 2), (CONTROLLERS, 2)];
    assert_eq!(rollouts(&world), twice.map(|(name, count)| (name.to_owned(), count)).into());
    assert!(server.cluster.get("", "configmaps", "default", "kept").is_some());
    assert_eq!(site.complaints(), Vec::<String>::new());
    agent.stop();
}
