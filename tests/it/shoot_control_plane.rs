//! The control plane that the agent writes, in a seed without nodes. The API server starts with these Secrets,
//! arguments and files, and accepts the right clients. A message gives the reason why a workload does not run.

use std::sync::Arc;
use std::time::Duration;

use gardenlet::api::core::{CONFIG_MAP, DEPLOYMENT, NAMESPACE, STATEFUL_SET};
use gardenlet::api::meta::Key;
use gardenlet::base::clock::{Clock, Simulated, Timestamp};
use gardenlet::components::rollout;
use gardenlet::flow::{Attempt, TaskStep};
use gardenlet::kube::{self, Client, Connection, Seed};
use gardenlet::operation::components::{self, kube_apiserver, kube_controller_manager};
use gardenlet::pki::AnyKey;
use gardenlet::pki::issue::{
    Authority, CertificateIssuer, CertificateTemplate, KeyUsage, ServerNames, subject,
};
use gardenlet::secrets::{self, Secrets};
use gardenlet::shoot::addresses::{self, Outside};
use gardenlet::shoot::rotation::{ENCRYPTION_KEY, rotation};
use gardenlet::shoot::secrets::{EnsuredSecrets, ShootSecrets, ensure};
use gardenlet::shoot::view::{ShootView, ShootViewSources};
use serde_json::{Value, json};

use support::controllers::Share;
use support::garden::prepare;
use support::json::text;
use support::keys::FixtureKeys;
use support::shoot::object::{self, INTERNAL_DOMAIN, SERVICES, ShootObject};
use support::shoot::{Site, Trouble};
use support::{Options as ClusterOptions, TestCluster, pace};

const VERSION: &str = "1.34.3";

struct Rig {
    site: Site,
    seed: TestCluster,
    client: Seed,
    view: ShootView,
    made: ShootSecrets,
}

/// The Shoot as the garden stores it, and its Seed at the edge.
fn view() -> ShootView {
    let mut seed = json!({"metadata": {"name": "edge-1"}, "spec": prepare::seed_spec()});
    seed["spec"]["dns"]["internal"]["type"] = "unmanaged".into();
    let shoot = ShootObject::workerless("s1").version(VERSION).with("/spec/networking/services", SERVICES);
    let shoot = shoot
        .with("/metadata/uid", "6fedff37-803d-40b4-80ba-66e284a593e8")
        .with("/spec/dns", json!({}))
        .build();
    ShootView::new(ShootViewSources {
        shoot: &shoot,
        seed: &seed,
        project: "p",
        garden: "garden-identity",
        secrets: &[],
    })
}

impl Rig {
    fn new(name: &str) -> Self {
        let clock = Clock::new(Simulated::paced(pace::clock(), Timestamp::from_unix(1_795_352_540), 20));
        let seed = TestCluster::start(ClusterOptions::new(name, &clock));
        let site = Site::in_process(&seed, Share::default());
        let view = view();
        assert_eq!(view.technical_id, object::technical_id("s1"));
        seed.create("v1", "namespaces", &json!({"metadata": {"name": view.technical_id}}));
        let client = Seed(seed.client());
        kube_apiserver::deploy_service(&client, &view.technical_id).unwrap();
        let place = secrets::SecretsLocation {
            client: client.clone(),
            namespace: view.technical_id.clone(),
            identity: "gardenlet".to_owned(),
            keys: Arc::new(FixtureKeys::default()),
            clock,
        };
        let mut secrets = Secrets::load(place, &rotation(&view)).unwrap();
        let outside = expose(&seed, &view.technical_id);
        let EnsuredSecrets::All(made) =
            ensure(&mut secrets, &view, &components::certificates(&view, Some(&outside))).unwrap()
        else {
            panic!("the keys are there");
        };
        Self { site, seed, client, view, made }
    }

    fn deploy_server(&self) {
        let (view, made) = (&self.view, &self.made);
        let encryption = kube_apiserver::encryption(&kube_apiserver::Encryption {
            namespace: &view.technical_id,
            resources: &view.encrypted,
            before: &view.encrypted_before,
            current: made.data(ENCRYPTION_KEY).unwrap(),
            old: None,
            order: kube_apiserver::KeyOrder::NewFirst,
        });
        let objects = kube_apiserver::fill(&kube_apiserver::Input {
            namespace: &view.technical_id,
            kubernetes: &view.kubernetes,
            image: &format!("registry.k8s.io/kube-apiserver:v{VERSION}"),
            replicas: 1,
            services: &[SERVICES.to_owned()],
            external_hostname: &view.internal.server(),
            managed_issuer: None,
            wildcard: None,
            advertise_address: None,
            writes_endpoints: true,
            health_check_token: made.health_check_token(),
            secrets: &kube_apiserver::volumes(made),
            encryption: &encryption.unwrap(),
            texts: &kube_apiserver::Texts::new(),
            nodes: None,
        });
        kube_apiserver::deploy(&self.client, &objects.unwrap()).unwrap();
    }

    fn deploy_controllers(&self) {
        let (view, made) = (&self.view, &self.made);
        let deployment = kube_controller_manager::fill(&kube_controller_manager::Input {
            namespace: &view.technical_id,
            kubernetes: &view.kubernetes,
            version: VERSION,
            image: &format!("registry.k8s.io/kube-controller-manager:v{VERSION}"),
            replicas: 1,
            services: &[SERVICES.to_owned()],
            secrets: &kube_controller_manager::volumes(made),
            generic_kubeconfig: made.generic_kubeconfig(),
            pods: None,
        });
        kube_controller_manager::deploy(&self.client, &view.technical_id, &deployment.unwrap()).unwrap();
    }

    /// The parts of an etcd that other components see.
    fn deploy_etcd(&self) {
        let (namespace, labels) = (&self.view.technical_id, json!({"app": "etcd"}));
        let claim = json!({"metadata": {"name": "main-etcd"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "25Gi"}}}});
        self.seed.create("apps/v1", "statefulsets", &json!({"metadata": {"name": "etcd-main", "namespace": namespace},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "volumeClaimTemplates": [claim],
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "etcd", "image": "e:v3"}]}}}}));
        self.seed.create(
            "v1",
            "services",
            &json!({"metadata": {"name": "etcd-main-client", "namespace": namespace},
            "spec": {"selector": labels, "ports": [{"name": "client", "port": 2379}]}}),
        );
    }

    /// The error of a flow that waits for a Deployment; nothing once it runs.
    fn heard(&self, name: &str) -> Option<String> {
        let key = Key::new(&self.view.technical_id, name);
        let resource = if name.starts_with("etcd") { &STATEFUL_SET } else { &DEPLOYMENT };
        let now = Duration::ZERO;
        match rollout::wait(&self.client, resource, &key, &Attempt { begun: now, now, tries: 0 }) {
            Ok(TaskStep::Done) => None,
            Ok(TaskStep::Again { why, .. }) => Some(why.text),
            other => panic!("{other:?}"),
        }
    }

    fn wait_until_it_runs(&self, name: &str) {
        self.seed.wait_for(&format!("{name} to run: {:?}", self.heard(name)), |_| {
            self.heard(name).is_none().then_some(())
        });
    }

    fn wait_to_hear(&self, name: &str, words: &str) {
        self.seed.wait_for(&format!("{words:?} about {name}"), |_| {
            self.heard(name).filter(|text| text.contains(words)).map(drop)
        });
    }

    /// An administrator with a certificate of the CA for clients.
    fn admin(&self, url: &str) -> Client {
        let data = self.made.data("ca-client").unwrap();
        let signing = AnyKey::from_pem(&data["ca.key"]).unwrap();
        let key = AnyKey::new_p256().unwrap();
        let now = self.seed.clock().now().unix();
        let template = CertificateTemplate {
            subject: subject("admin", &["system:masters".to_owned()]),
            names: ServerNames::default(),
            not_before_unix_s: now - 60,
            not_after_unix_s: now + 600,
            usage: Some(KeyUsage::Client),
            authority: Authority::No,
        };
        let certificate =
            template.sign(&key, &CertificateIssuer::of_pem(&data["ca.crt"], &signing).unwrap()).unwrap();
        let connection =
            Connection::new(url).with_ca(self.made.ca_bundle()).with_certificate(certificate, key.to_pem());
        let options = kube::Options {
            clock: self.seed.clock().clone(),
            dialer: Arc::new(self.site.routes()),
            ..kube::Options::default()
        };
        Client::new(connection, options).unwrap()
    }
}

/// A second Service makes the server reachable from outside.
fn expose(seed: &TestCluster, namespace: &str) -> Outside {
    let ports = json!([{"name": "kube-apiserver", "port": 443, "targetPort": 443}]);
    let service = json!({"metadata": {"name": "outside", "namespace": namespace}, "spec": {"type": "NodePort",
        "selector": {"app": "kubernetes", "role": "apiserver"}, "ports": ports}});
    let service = seed.create("v1", "services", &service);
    let port = service["spec"]["ports"][0]["nodePort"].as_u64().and_then(|port| u16::try_from(port).ok());
    Outside { host: "127.0.0.1".to_owned(), port: port.unwrap() }
}

#[test]
fn the_api_server_that_the_agent_writes_accepts_the_right_clients() {
    let rig = Rig::new("plane-runs");
    rig.deploy_etcd();
    rig.deploy_server();
    ["etcd-main", "kube-apiserver"].iter().for_each(|name| rig.wait_until_it_runs(name));
    let namespace = &rig.view.technical_id;
    let service = rig.seed.get("", "services", namespace, "kube-apiserver").unwrap();
    let outside = rig.seed.get("", "services", namespace, "outside").unwrap();
    for url in [
        format!("https://{}", addresses::in_cluster(&rig.view)),
        format!("https://127.0.0.1:{}", outside["spec"]["ports"][0]["nodePort"]),
    ] {
        assert_eq!(rig.admin(&url).version().unwrap().git_version, format!("v{VERSION}"), "{url}");
    }
    // The certificate does not contain the address of the Service.
    assert!(rig.admin(&format!("https://{}", text(&service, "/spec/clusterIP"))).version().is_err());

    // The issuer of tokens is the name that is not reachable.
    let server = rig.site.server(namespace).unwrap();
    let account = server.cluster.create(
        "v1",
        "serviceaccounts",
        &json!({"metadata": {"name": "gardener", "namespace": "kube-system"}}),
    );
    let tokens = server.cluster.server().shared.tokens();
    let token = tokens.issue(&account, &tokens.audiences(), rig.seed.clock().now(), 600);
    drop(tokens);
    let claims = token.split('.').nth(1).and_then(support::encoding::from_base64).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(claims["iss"], format!("https://api.s1.p.{INTERNAL_DOMAIN}"));
    assert_eq!(claims["aud"], json!(["kubernetes", "gardener"]));

    // The controllers publish the CA of the Shoot.
    let admin = rig.admin(&format!("https://{}", addresses::in_cluster(&rig.view)));
    let before = server.cluster.get("", "configmaps", "default", "kube-root-ca.crt");
    rig.deploy_controllers();
    let access = json!({"metadata": {"name": "shoot-access-kube-controller-manager", "namespace": namespace}, "data": {"token": "eA=="}});
    rig.wait_to_hear("kube-controller-manager", "shoot-access-kube-controller-manager");
    rig.seed.create("v1", "secrets", &access);
    rig.wait_until_it_runs("kube-controller-manager");
    let map: Value = rig
        .seed
        .wait_for("the CA", |_| admin.find(&CONFIG_MAP, &Key::new("default", "kube-root-ca.crt")).unwrap());
    assert_eq!((before, text(&map, "/data/ca.crt").as_bytes()), (None, rig.made.ca_bundle()));
    admin.get::<Value>(&NAMESPACE, &Key::cluster("kube-system")).unwrap();
    assert_eq!(rig.site.complaints(), Vec::<String>::new());
}

#[test]
fn the_reason_why_a_control_plane_does_not_run_is_reported() {
    let rig = Rig::new("plane-stuck");
    let namespace = &rig.view.technical_id;
    let trouble = |name: &str, trouble| rig.site.trouble(namespace, name, trouble);
    trouble("main-etcd-etcd-main-0", Some(Trouble::Unbound));
    rig.deploy_etcd();
    rig.deploy_server();
    rig.wait_to_hear("etcd-main", "PersistentVolumeClaim");
    trouble("main-etcd-etcd-main-0", None);
    rig.wait_until_it_runs("etcd-main");
    for (kind, words) in [
        (Trouble::NoRoom, "Insufficient memory"),
        (Trouble::NoImage, "kube-apiserver:v1.34.3"),
        (Trouble::Dies, "exit code 1"),
    ] {
        trouble("kube-apiserver", Some(kind));
        rig.wait_to_hear("kube-apiserver", words);
    }
    trouble("kube-apiserver", None);
    rig.wait_until_it_runs("kube-apiserver");

    // A certificate without its key: the program reports the problem, and the server does not answer.
    let mut deployment = rig.seed.get("apps", "deployments", namespace, "kube-apiserver").unwrap();
    let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
    let arguments = container["args"].as_array_mut().unwrap();
    arguments.retain(|argument| !text(argument, "").starts_with("--tls-private-key-file="));
    arguments.push("--tls-private-key-file=/srv/kubernetes/apiserver/absent.key".into());
    let patch = json!({"spec": {"template": deployment["spec"]["template"]}});
    rig.seed.merge("apps", "deployments", (namespace, "kube-apiserver"), &patch);
    rig.wait_to_hear(
        "kube-apiserver",
        "open /srv/kubernetes/apiserver/absent.key: no such file or directory",
    );
}
