//! The in-process replacement for the seed's part of Shoots. Its API servers trust the CAs and tokens in the mounted
//! Secrets, start and stop with their Deployment, and keep their data.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gardenlet::api::core::{CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT};
use gardenlet::api::meta::Key;
use gardenlet::base::clock::{Clock, Simulated, Timestamp};
use gardenlet::kube::{self, Client, Connection, Error, Seed};
use gardenlet::net::Dial;
use gardenlet::pki::issue::{KeyUsage, ServerNames};
use gardenlet::secrets::{Options, SecretConfig, Secrets, SecretsLocation, SecretsRotation, TokenUser};
use serde_json::{Value, json};

use support::api::rules::strip;
use support::controllers::Share;
use support::encoding::from_base64;
use support::json::{entry, list, text};
use support::keys::FixtureKeys;
use support::shoot::{Listen, Options as SiteOptions, PREFIX, Routes, Site, Trouble};
use support::{Options as ClusterOptions, TestCluster, pace};

pub(crate) const SHOOT: &str = "shoot--test--one";
const ADDRESS: &str = "10.52.7.7";

/// A seed with a site and the namespace of a Shoot in it.
pub(crate) struct Rig {
    pub(crate) site: Site,
    pub(crate) seed: TestCluster,
    secrets: BTreeMap<&'static str, String>,
}

impl Rig {
    fn new(name: &str) -> Self {
        Self::with(name, |seed| Site::in_process(seed, Share::default()))
    }

    pub(crate) fn with(name: &str, start: impl FnOnce(&TestCluster) -> Site) -> Self {
        let clock = Clock::new(Simulated::paced(pace::clock(), Timestamp::from_unix(1_795_352_540), 20));
        let seed = TestCluster::start(ClusterOptions::new(name, &clock));
        let site = start(&seed);
        seed.create("v1", "namespaces", &json!({"metadata": {"name": SHOOT}}));
        let secrets = make_secrets(&seed);
        let service = json!({"metadata": {"name": "kube-apiserver", "namespace": SHOOT}, "spec": {"clusterIP": ADDRESS,
            "selector": {"app": "kubernetes", "role": "apiserver"}, "type": "LoadBalancer",
            "ports": [{"name": "kube-apiserver", "port": 443, "targetPort": 443}]}});
        seed.create("v1", "services", &service);
        Self { site, seed, secrets }
    }

    pub(crate) fn apply_server(&self, version: &str) {
        self.seed.create("apps/v1", "deployments", &self.deployment(version));
    }

    fn data(&self, secret: &str, key: &str) -> String {
        let object = self.seed.get("", "secrets", SHOOT, &self.secrets[secret]).unwrap();
        String::from_utf8(from_base64(object["data"][key].as_str().unwrap()).unwrap()).unwrap()
    }

    /// A Deployment as small as it can be.
    fn deployment(&self, version: &str) -> Value {
        let labels = json!({"app": "kubernetes", "role": "apiserver"});
        let folders = [
            ("server", "apiserver", "server"),
            ("ca-client", "ca-client", "ca-client-bundle"),
            ("ca-front-proxy", "ca-front-proxy", "ca-client-bundle"),
            ("service-account-key", "service-account-key", "service-account-key"),
            ("service-account-key-bundle", "service-account-key-bundle", "service-account-key-bundle"),
            ("static-token", "token", "static-token"),
        ];
        let volumes: Vec<Value> = folders
            .iter()
            .map(|(name, _, secret)| json!({"name": name, "secret": {"secretName": self.secrets[secret]}}))
            .collect();
        let mounts: Vec<Value> = folders
            .iter()
            .map(|(name, folder, _)| json!({"name": name, "mountPath": format!("/srv/kubernetes/{folder}")}))
            .collect();
        let token = self.data("static-token", "static_tokens.csv");
        let header = format!("Bearer {}", token.split(',').next().unwrap());
        let probe = json!({"httpGet": {"scheme": "HTTPS", "path": "/readyz", "port": 443,
            "httpHeaders": [{"name": "Authorization", "value": header}]}});
        let arguments = [
            "--api-audiences=kubernetes,gardener",
            "--anonymous-auth=false",
            "--client-ca-file=/srv/kubernetes/ca-client/bundle.crt",
            "--etcd-servers=https://etcd-main-client:2379",
            "--requestheader-client-ca-file=/srv/kubernetes/ca-front-proxy/bundle.crt",
            "--runtime-config=apps/v1=false,batch/v1=false",
            "--service-account-issuer=https://api.one.test.internal.example.org",
            "--service-account-key-file=/srv/kubernetes/service-account-key-bundle/bundle.key",
            "--service-account-signing-key-file=/srv/kubernetes/service-account-key/id_rsa",
            "--service-cluster-ip-range=100.64.0.0/13",
            "--tls-cert-file=/srv/kubernetes/apiserver/tls.crt",
            "--tls-private-key-file=/srv/kubernetes/apiserver/tls.key",
            "--token-auth-file=/srv/kubernetes/token/static_tokens.csv",
        ];
        let container = json!({"name": "kube-apiserver", "command": ["/usr/local/bin/kube-apiserver"], "args": arguments,
            "image": format!("registry.k8s.io/kube-apiserver:{version}"), "volumeMounts": mounts,
            "readinessProbe": probe});
        json!({"metadata": {"name": "kube-apiserver", "namespace": SHOOT}, "spec": {"replicas": 1,
            "minReadySeconds": 30, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
                "spec": {"containers": [container], "volumes": volumes}}}})
    }

    /// The parts of etcd that other components see: a StatefulSet with a volume, and its Service.
    fn apply_etcd(&self) {
        self.apply_etcd_of(&json!({"containers": [{"name": "etcd", "image": "e:v3"}]}));
    }

    /// The same with another pod.
    pub(crate) fn apply_etcd_of(&self, pod: &Value) {
        let labels = json!({"app": "etcd"});
        let claim = json!({"metadata": {"name": "main-etcd"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "25Gi"}}}});
        self.seed.create(
            "apps/v1",
            "statefulsets",
            &json!({"metadata": {"name": "etcd-main", "namespace": SHOOT},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "volumeClaimTemplates": [claim],
                "template": {"metadata": {"labels": labels}, "spec": pod}}}),
        );
        self.seed.create(
            "v1",
            "services",
            &json!({"metadata": {"name": "etcd-main-client", "namespace": SHOOT},
            "spec": {"selector": labels, "ports": [{"name": "client", "port": 2379}]}}),
        );
    }

    fn scale(&self, replicas: u32) {
        self.seed.merge(
            "apps",
            "deployments",
            (SHOOT, "kube-apiserver"),
            &json!({"spec": {"replicas": replicas}}),
        );
    }

    pub(crate) fn wait_until_available(&self) -> Value {
        self.seed.wait_for("the API server of the Shoot", |seed| {
            let deployment = seed.get("apps", "deployments", SHOOT, "kube-apiserver")?;
            let progress =
                list(&deployment, "/status/conditions").iter().find(|c| c["type"] == "Progressing")?;
            let is_done = progress["reason"] == "NewReplicaSetAvailable"
                && deployment["status"]["observedGeneration"] == deployment["metadata"]["generation"];
            is_done.then_some(deployment)
        })
    }

    /// A client of the Shoot through the address of its Service.
    fn client(&self, identify: impl FnOnce(Connection) -> Connection) -> Client {
        let connection = identify(
            Connection::new(format!("https://{ADDRESS}")).with_ca(self.data("ca-bundle", "bundle.crt")),
        );
        let options = kube::Options {
            qps: 0.0,
            clock: self.seed.clock().clone(),
            dialer: Arc::new(self.site.routes()),
            ..kube::Options::default()
        };
        Client::new(connection, options).unwrap()
    }

    pub(crate) fn admin(&self) -> Client {
        let (certificate, key) = (self.data("admin", "tls.crt"), self.data("admin", "tls.key"));
        self.client(|connection| connection.with_certificate(certificate, key))
    }

    pub(crate) fn pod(&self, name: &str) -> Value {
        let mut pods = self.seed.store().list("", "pods", SHOOT);
        pods.retain(|pod| text(pod, "/metadata/name").starts_with(name));
        pods.pop().unwrap_or_default()
    }
}

fn leaf(
    name: &str,
    common_name: &str,
    organizations: &[&str],
    usage: KeyUsage,
    names: ServerNames,
) -> SecretConfig {
    SecretConfig::Leaf {
        name: name.to_owned(),
        common_name: common_name.to_owned(),
        organizations: organizations.iter().map(|group| (*group).to_owned()).collect(),
        usage,
        names,
        validity: None,
        skip_ca: true,
        with_chain: false,
    }
}

/// The Secrets that the Deployment mounts, and an administrator's certificate, by their names.
fn make_secrets(seed: &TestCluster) -> BTreeMap<&'static str, String> {
    let options = kube::Options { qps: 0.0, clock: seed.clock().clone(), ..kube::Options::default() };
    let place = SecretsLocation {
        client: Seed(seed.client_from(&seed.admin_kubeconfig(), options)),
        namespace: SHOOT.to_owned(),
        identity: "gardenlet".to_owned(),
        keys: Arc::new(FixtureKeys::default()),
        clock: seed.clock().clone(),
    };
    let mut secrets = Secrets::load(place, &SecretsRotation::default()).unwrap();
    let mut names = BTreeMap::new();
    let bundled = Options { plain_name: true, keep_old: true, ..Options::default() };
    let ca =
        |name: &str| SecretConfig::Ca { name: name.to_owned(), common_name: name.to_owned(), validity: None };
    for (key, bundle, config) in [
        ("ca", "ca-bundle", ca("ca")),
        ("ca-client", "ca-client-bundle", ca("ca-client")),
        (
            "service-account-key",
            "service-account-key-bundle",
            SecretConfig::RsaKey { name: "service-account-key".to_owned(), bits: 4_096, for_ssh: false },
        ),
    ] {
        names.insert(key, secrets.ensure(&config, &bundled).unwrap().unwrap().name.clone());
        names.insert(bundle, secrets.get(key).unwrap().bundle.as_ref().unwrap().name.clone());
    }
    let health = TokenUser { username: "system:health".to_owned(), user_id: "h".to_owned(), groups: vec![] };
    let tokens = [("health-check".to_owned(), health)].into();
    let server = ServerNames {
        dns: vec![format!("kube-apiserver.{SHOOT}.svc")],
        addresses: [ADDRESS, "203.0.113.1", "127.0.0.1"].map(|address| address.parse().unwrap()).to_vec(),
    };
    let signed_by = |ca: &str| Options { signed_by: Some(ca.to_owned()), ..Options::default() };
    for (key, config, options) in [
        (
            "static-token",
            SecretConfig::StaticToken { name: "static-token".to_owned(), tokens },
            Options::default(),
        ),
        ("server", leaf("kube-apiserver", "kube-apiserver", &[], KeyUsage::Server, server), signed_by("ca")),
        (
            "admin",
            leaf("admin", "admin", &["system:masters"], KeyUsage::Client, ServerNames::default()),
            signed_by("ca-client"),
        ),
        (
            "nobody",
            leaf("nobody", "nobody", &[], KeyUsage::Client, ServerNames::default()),
            signed_by("ca-client"),
        ),
    ] {
        names.insert(key, secrets.ensure(&config, &options).unwrap().unwrap().name.clone());
    }
    names
}

fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> u16 {
    match result {
        Err(Error::Api(failure)) => failure.code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_api_server_trusts_the_credentials_in_its_secrets() {
    let rig = Rig::new("stand-believes");
    rig.apply_etcd();
    rig.apply_server("v1.34.3");
    rig.wait_until_available();
    let admin = rig.admin();
    assert_eq!(admin.version().unwrap().git_version, "v1.34.3");
    admin
        .create::<Value>(&CONFIG_MAP, "default", &json!({"metadata": {"name": "kept"}, "data": {"a": "b"}}))
        .unwrap();

    let kept = Key::new("default", "kept");
    let (certificate, key) = (rig.data("nobody", "tls.crt"), rig.data("nobody", "tls.key"));
    let nobody = rig.client(|connection| connection.with_certificate(certificate, key));
    assert_eq!(code(nobody.get::<Value>(&CONFIG_MAP, &kept)), 403);
    assert_eq!(code(rig.client(|c| c).get::<Value>(&CONFIG_MAP, &kept)), 401);
    let stranger = rig.seed.client_identity("admin", &["system:masters"]);
    let stranger = rig.client(|connection| connection.with_certificate(stranger.certificate, stranger.key));
    assert_eq!(code(stranger.get::<Value>(&CONFIG_MAP, &kept)), 401);
    let token = rig.data("static-token", "static_tokens.csv");
    let health = rig.client(|connection| connection.with_token(token.split(',').next().unwrap()));
    let livez = health.raw(kube::Method::Get, "/livez", None, "").unwrap();
    assert_eq!((livez.status, code(health.get::<Value>(&CONFIG_MAP, &kept))), (200, 403));

    // Tokens signed with the key of ServiceAccounts, but only for the server's own audiences.
    let account = json!({"metadata": {"name": "gardener"}});
    admin.create::<Value>(&SERVICE_ACCOUNT, "kube-system", &account).unwrap();
    let request = |spec: Value| {
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        let answer: Value = admin
            .create_sub(&SERVICE_ACCOUNT, &Key::new("kube-system", "gardener"), "token", &request)
            .unwrap();
        answer["status"]["token"].as_str().unwrap().to_owned()
    };
    let ours = request(json!({"expirationSeconds": 600}));
    let head = from_base64(ours.split('.').next().unwrap()).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&head).unwrap()["alg"], "RS256");
    let get = |token: String| {
        let client = rig.client(|connection| connection.with_token(token));
        code(client.get::<Value>(&NAMESPACE, &Key::cluster("kube-system")))
    };
    assert_eq!(get(ours.clone()), 403);
    assert_eq!(get(request(json!({"audiences": ["vault"], "expirationSeconds": 600}))), 401);
    let (body, signature) = ours.rsplit_once('.').unwrap();
    let other = if signature.starts_with('x') { "y" } else { "x" };
    let forged = format!("{body}.{other}{}", &signature[1..]);
    assert_eq!(get(forged), 401);

    // Disabled APIs do not exist, and Services have addresses of the Shoot.
    assert_eq!(admin.raw(kube::Method::Get, "/apis/apps/v1", None, "").unwrap().status, 404);
    let service: Value =
        admin.get(&gardenlet::api::core::SERVICE, &Key::new("default", "kubernetes")).unwrap();
    assert_eq!(service["spec"]["clusterIP"], "100.64.0.1");
    assert_eq!(rig.site.complaints(), Vec::<String>::new());
}

#[test]
fn an_api_server_stops_and_starts_with_its_deployment_and_keeps_its_data() {
    let rig = Rig::new("stand-lives");
    rig.apply_server("v1.34.3");
    // Without etcd the server does not answer, and its Deployment is not available.
    rig.seed
        .wait_for("its pod", |_| (rig.pod("kube-apiserver")["status"]["phase"] == "Running").then_some(()));
    assert!(rig.site.server(SHOOT).is_none());
    rig.apply_etcd();
    let deployment = rig.wait_until_available();
    let status = &deployment["status"];
    assert_eq!((&status["replicas"], &status["availableReplicas"]), (&json!(1), &json!(1)));
    assert_eq!(
        rig.pod("etcd-main")["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"],
        "main-etcd-etcd-main-0"
    );
    let claim = rig.seed.get("", "persistentvolumeclaims", SHOOT, "main-etcd-etcd-main-0").unwrap();
    assert_eq!(claim["status"]["phase"], "Bound");
    let set = rig.seed.get("apps", "statefulsets", SHOOT, "etcd-main").unwrap();
    assert_eq!((&set["status"]["readyReplicas"], &set["status"]["replicas"]), (&json!(1), &json!(1)));
    let slice = rig.seed.wait_for("the endpoint", |seed| {
        let slice = seed.get("discovery.k8s.io", "endpointslices", SHOOT, "kube-apiserver-stand-in")?;
        (slice["endpoints"][0]["conditions"]["ready"] == true).then_some(slice)
    });
    assert_eq!(entry(&slice, "/metadata/labels", "kubernetes.io/service-name"), Some("kube-apiserver"));
    let admin = rig.admin();
    admin.create::<Value>(&CONFIG_MAP, "default", &json!({"metadata": {"name": "kept"}})).unwrap();

    rig.scale(0);
    rig.seed.wait_for("its end", |seed| {
        let deployment = seed.get("apps", "deployments", SHOOT, "kube-apiserver")?;
        (rig.pod("kube-apiserver").is_null() && deployment["status"]["replicas"].is_null()).then_some(())
    });
    let dial = |routes: &Routes, host: &str| {
        routes.dial(host, 443, Duration::from_secs(5)).map(drop).map_err(|e| e.kind())
    };
    let refused = Err(std::io::ErrorKind::ConnectionRefused);
    for host in [ADDRESS, "203.0.113.1", "kube-apiserver.shoot--test--one.svc", "10.52.250.250"] {
        assert_eq!(dial(&rig.site.routes(), host), refused, "{host}");
    }

    // It starts again with the next version.
    let mut next = strip(&rig.deployment("v1.35.4"));
    next["spec"]["replicas"] = json!(1);
    rig.seed.merge("apps", "deployments", (SHOOT, "kube-apiserver"), &next);
    rig.wait_until_available();
    assert_eq!(admin.version().unwrap().git_version, "v1.35.4");
    admin.get::<Value>(&CONFIG_MAP, &Key::new("default", "kept")).unwrap();
    assert_eq!(dial(&rig.site.routes(), "kube-apiserver.shoot--test--one.svc.cluster.local"), Ok(()));

    // A deleted pod is replaced, and its server with it.
    let killed = rig.pod("kube-apiserver");
    rig.seed.delete("", "pods", SHOOT, text(&killed, "/metadata/name"));
    rig.seed.wait_for("the next pod", |_| {
        let pod = rig.pod("kube-apiserver");
        let is_next =
            pod["metadata"]["uid"].is_string() && pod["metadata"]["uid"] != killed["metadata"]["uid"];
        (is_next && rig.site.server(SHOOT)?.pod().as_deref() == pod["metadata"]["uid"].as_str()).then_some(())
    });
    rig.wait_until_available();
    admin.get::<Value>(&CONFIG_MAP, &Key::new("default", "kept")).unwrap();

    // A new namespace of the same name has other data.
    rig.seed.delete("", "namespaces", "", SHOOT);
    rig.seed.wait_for("the end of the namespace", |seed| {
        (seed.get("", "namespaces", "", SHOOT).is_none() && rig.site.server(SHOOT).is_none()).then_some(())
    });
    assert_eq!(rig.site.complaints(), Vec::<String>::new());
}

/// As with the program as a separate process: no connection is routed inside the test.
#[test]
fn an_api_server_listens_on_the_node_port() {
    let rig = Rig::with("stand-node-port", |seed| {
        seed.set_share(Share { workloads_but_in: PREFIX, ..Share::default() });
        Site::start(seed.client(), SiteOptions { listen: Listen::NodePort, ..SiteOptions::default() })
    });
    rig.apply_etcd();
    rig.apply_server("v1.34.3");
    rig.wait_until_available();
    let service = rig.seed.get("", "services", SHOOT, "kube-apiserver").unwrap();
    let port = service["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
    let admin = Connection::new(format!("https://127.0.0.1:{port}"))
        .with_ca(rig.data("ca-bundle", "bundle.crt"))
        .with_certificate(rig.data("admin", "tls.crt"), rig.data("admin", "tls.key"));
    let options = kube::Options { clock: rig.seed.clock().clone(), ..kube::Options::default() };
    let admin = Client::new(admin, options).unwrap();
    assert_eq!(admin.version().unwrap().git_version, "v1.34.3");
    assert_eq!(rig.site.complaints(), Vec::<String>::new());
}

#[test]
fn trouble_shows_where_a_kubelet_would_report_it() {
    let rig = Rig::new("stand-troubled");
    let trouble = |name: &str, trouble| rig.site.trouble(SHOOT, name, trouble);
    trouble("main-etcd-etcd-main-0", Some(Trouble::Unbound));
    trouble("kube-apiserver", Some(Trouble::NoImage));
    rig.apply_etcd();
    rig.apply_server("v1.34.3");
    let waiting = |name: &str, pointer: &str, words: &str| {
        rig.seed.wait_for(&format!("{words} of {name}"), |_| {
            text(&rig.pod(name), pointer).contains(words).then_some(())
        });
    };
    waiting("etcd-main", "/status/conditions/0/message", "unbound immediate PersistentVolumeClaims");
    waiting("kube-apiserver", "/status/containerStatuses/0/state/waiting/reason", "ImagePullBackOff");
    let told = rig.seed.store().list("events.k8s.io", "events", SHOOT);
    let mut reasons: Vec<&str> = told.iter().map(|event| text(event, "/reason")).collect();
    reasons.sort_unstable();
    reasons.dedup();
    assert_eq!(reasons, ["ExternalProvisioning", "Failed", "FailedScheduling"]);
    trouble("main-etcd-etcd-main-0", None);
    trouble("kube-apiserver", Some(Trouble::NoRoom));
    waiting("kube-apiserver", "/status/conditions/0/message", "Insufficient memory");
    trouble("kube-apiserver", None);
    rig.wait_until_available();

    // A missing Secret prevents the start of the next pod's container; the pod before it continues to run.
    let mut next = rig.deployment("v1.35.4");
    let volume = &mut next["spec"]["template"]["spec"]["volumes"][0];
    volume["secret"]["secretName"] = "absent".into();
    next["spec"]["strategy"] = json!({"type": "RollingUpdate"});
    rig.seed.merge("apps", "deployments", (SHOOT, "kube-apiserver"), &strip(&next));
    rig.seed.wait_for("the pod that waits", |seed| {
        let pods = seed.store().list("", "pods", SHOOT);
        let says = "/status/containerStatuses/0/state/waiting/message";
        pods.iter().any(|pod| text(pod, says).contains("secret \"absent\" not found")).then_some(())
    });
    assert_eq!(rig.admin().version().unwrap().git_version, "v1.34.3");
    // A timeout is not a refusal.
    rig.site.routes().lose(SHOOT);
    let lost = rig.site.routes().dial(ADDRESS, 443, Duration::from_millis(50)).map_err(|e| e.kind());
    assert_eq!(lost.map(drop), Err(std::io::ErrorKind::TimedOut));
    rig.site.routes().find_again(SHOOT);
    rig.site.routes().dial(ADDRESS, 443, Duration::from_secs(5)).unwrap();
}
