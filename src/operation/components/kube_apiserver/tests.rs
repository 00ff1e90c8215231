use super::*;
use crate::base::sorted::SortedSet;
use crate::components::apply;
use crate::format::{base64, yaml};

const SERVICES: &str = "100.64.0.0/13";
const HOST: &str = "api.s2.p.internal.lab.local";

fn golden(text: &str) -> Value {
    yaml::parse(text).unwrap()
}

fn names() -> SortedMap<&'static str, String> {
    let table = [
        ("ca", "ca-bundle-a90a5ae1"),
        ("ca-client", "ca-client-bundle-098f065d"),
        ("ca-front-proxy", "ca-front-proxy-bundle-4b5f0fd2"),
        ("service-account-key", "service-account-key-c37a87f6"),
        ("service-account-key-bundle", "service-account-key-bundle-367e38a4"),
        ("static-token", "kube-apiserver-static-token-53d619b2"),
        ("kube-aggregator", "kube-aggregator-8eb95db5"),
        ("ca-etcd", "ca-etcd-bundle-6fce777e"),
        ("etcd-client", "etcd-client-828d4dc3"),
        ("server", "kube-apiserver-a4f305a3"),
    ];
    table.into_iter().map(|(volume, name)| (volume, name.to_owned())).collect()
}

fn defaulted() -> Value {
    json!({"version": "1.34.3", "kubeAPIServer": {
        "requests": {"maxNonMutatingInflight": 400, "maxMutatingInflight": 200}, "eventTTL": "1h0m0s",
        "enableAnonymousAuthentication": false, "logging": {"verbosity": 2}}})
}

fn encrypted() -> Value {
    json!({"kind": "Secret", "metadata": {"name": "kube-apiserver-etcd-encryption-configuration-dbb4d7cb"}})
}

fn objects(kubernetes: &Value, texts: &Texts) -> Result<Vec<Value>, String> {
    filled(kubernetes, texts, None, None)
}

/// What the objects of a golden Shoot are made of.
struct Golden {
    services: [String; 1],
    secrets: SortedMap<&'static str, String>,
    encryption: Value,
}

impl Golden {
    fn new(secrets: SortedMap<&'static str, String>, encryption: Value) -> Self {
        Self { services: [SERVICES.to_owned()], secrets, encryption }
    }

    fn input<'a>(&'a self, kubernetes: &'a Value, texts: &'a Texts) -> Input<'a> {
        Input {
            namespace: "shoot--p--s2",
            kubernetes,
            image: "registry.k8s.io/kube-apiserver:v1.34.3",
            replicas: 1,
            services: &self.services,
            external_hostname: HOST,
            managed_issuer: None,
            wildcard: None,
            advertise_address: None,
            writes_endpoints: true,
            health_check_token: "REDACTED",
            secrets: &self.secrets,
            encryption: &self.encryption,
            texts,
            nodes: None,
        }
    }
}

fn filled(
    kubernetes: &Value,
    texts: &Texts,
    managed_issuer: Option<&str>,
    wildcard: Option<&Wildcard>,
) -> Result<Vec<Value>, String> {
    let golden = Golden::new(names(), encrypted());
    let input = Input { managed_issuer, wildcard, ..golden.input(kubernetes, texts) };
    fill(&input).map(|objects| objects.0.into_iter().map(|(_, object)| object).collect())
}

fn deployment_of(kubernetes: &Value) -> Value {
    objects(kubernetes, &Texts::new()).unwrap().pop().unwrap()
}

fn arguments(deployment: &Value) -> SortedSet<String> {
    let list = deployment.pointer("/spec/template/spec/containers/0/args").unwrap().as_array().unwrap();
    let all: SortedSet<String> = list.iter().map(|argument| argument.as_str().unwrap().to_owned()).collect();
    assert_eq!(all.len(), list.len(), "an argument is there twice");
    all
}

/// Checks that docs/differences.md has a row for a difference and its reason.
fn listed(what: &str) {
    let mut rows = include_str!("../../../../docs/differences.md").lines();
    assert!(rows.any(|row| row.starts_with(&format!("| {what}"))), "{what}");
}

/// Labels and annotations of other writers would stay, so they are compared separately.
fn same_marks(ours: &Value, golden: &Value) {
    for field in ["labels", "annotations"] {
        assert_eq!(ours["metadata"][field], golden["metadata"][field], "{field}");
    }
}

/// Compares our Deployment with a golden one after the differences that docs/differences.md lists.
fn assert_golden(mut golden: Value, mut ours: Value) {
    assert_eq!(arguments(&ours), arguments(&golden));

    listed("order of arguments");
    let args = "/spec/template/spec/containers/0/args";
    *golden.pointer_mut(args).unwrap() = Value::Null;
    *ours.pointer_mut(args).unwrap() = Value::Null;
    listed("replicas of a new Deployment");
    golden["spec"]["replicas"] = json!(1);
    listed("`securityContext.sysctls` of the pod");
    let sysctls = json!([{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]);
    golden["spec"]["template"]["spec"]["securityContext"]["sysctls"] = sysctls;
    listed("authorizer `node-agent-authorizer`");
    remove_volumes(&mut golden, &["authorization-kubeconfigs"]);
    let configuration = |deployment: &mut Value| {
        let volumes = deployment.pointer_mut("/spec/template/spec/volumes").unwrap().as_array_mut().unwrap();
        let own = volumes.iter_mut().find(|entry| entry["name"] == "authorization-config");
        std::mem::take(&mut own.unwrap()["configMap"]["name"])
    };
    let (theirs, own) = (configuration(&mut golden), configuration(&mut ours));
    assert_ne!(theirs, own);
    for object in [&mut golden, &mut ours] {
        for metadata in ["/metadata", "/spec/template/metadata"] {
            object.pointer_mut(metadata).unwrap()["annotations"] = Value::Null;
        }
        content::annotate_references(object);
    }
    assert_eq!(apply::patch(&golden, &ours, Keep::default()), None);
    same_marks(&ours, &golden);
}

fn remove_volumes(deployment: &mut Value, names: &[&str]) {
    let pod = deployment.pointer_mut("/spec/template/spec").unwrap();
    let stays = |entry: &Value| !names.iter().any(|name| entry["name"] == *name);
    pod["volumes"].as_array_mut().unwrap().retain(stays);
    pod["containers"][0]["volumeMounts"].as_array_mut().unwrap().retain(stays);
}

#[test]
fn the_deployment_is_the_golden_one_except_for_listed_differences() {
    let golden =
        golden(include_str!("../../../../tests/fixtures/control-plane/deployment-kube-apiserver.yaml"));
    assert_golden(golden, deployment_of(&defaulted()));
}

fn names_with_nodes() -> SortedMap<&'static str, String> {
    let mut all = names();
    all.extend([CA_KUBELET, KUBELET_CLIENT].map(|volume| (volume, volume.to_owned())));
    all
}

/// The names of the Secrets in the golden Deployment with workers.
fn names_of(golden: &Value) -> SortedMap<&'static str, String> {
    let mut volumes = names_with_nodes();
    for (volume, name) in &mut volumes {
        name.clone_from(&secret_of(golden, volume));
    }
    volumes
}

fn secret_of(deployment: &Value, volume: &str) -> String {
    let volumes = deployment.pointer("/spec/template/spec/volumes").unwrap().as_array().unwrap();
    let found = volumes.iter().find(|entry| entry["name"] == volume).unwrap();
    found["secret"]["secretName"].as_str().unwrap().to_owned()
}

#[test]
fn with_workers_only_the_tunnel_differs() {
    let mut theirs = golden(include_str!(
        "../../../../tests/fixtures/control-plane/workers/deployment-kube-apiserver.yaml"
    ));
    let mut kubernetes = defaulted();
    for field in ["defaultNotReadyTolerationSeconds", "defaultUnreachableTolerationSeconds"] {
        kubernetes["kubeAPIServer"][field] = json!(300);
    }
    let addition = ServerAddition {
        containers: vec![json!({"name": "beside"})],
        volumes: vec![json!({"name": "more", "secret": {"secretName": "s"}})],
        mounts: vec![json!({"name": "more", "mountPath": "/more"})],
        arguments: vec!["--more".to_owned()],
        objects: vec![(CONFIG_MAP, json!({"metadata": {"name": "c"}}))],
    };
    let secret = secret_of(&theirs, "etcd-encryption-secret");
    let encryption = json!({"kind": "Secret", "metadata": {"name": secret}});
    let (golden, texts) = (Golden::new(names_of(&theirs), encryption), Texts::new());
    let with = |additions: &[ServerAddition]| {
        let input = Input {
            namespace: "shoot--p--w4",
            external_hostname: "api.w4.p.internal.lab.local",
            nodes: Some(additions),
            ..golden.input(&kubernetes, &texts)
        };
        fill(&input).unwrap().0
    };
    let (plain, more) = (with(&[]), with(&[addition]));
    assert!(more.iter().any(|(_, object)| object["metadata"]["name"] == "c"));
    let pod = &more.last().unwrap().1["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][1]["name"], "beside");
    assert!(arguments(&more.last().unwrap().1).contains("--more"));
    for list in [&pod["volumes"], &pod["containers"][0]["volumeMounts"]] {
        assert_eq!(list.as_array().unwrap().last().unwrap()["name"], "more");
    }

    listed("tunnel to the nodes");
    remove_volumes(&mut theirs, &["ca-vpn", "http-proxy", "egress-selection-config"]);
    let arguments =
        theirs.pointer_mut("/spec/template/spec/containers/0/args").unwrap().as_array_mut().unwrap();
    arguments.retain(|argument| !argument.as_str().unwrap().starts_with("--egress-selector-config-file="));
    let labels = theirs.pointer_mut("/spec/template/metadata/labels").unwrap().as_object_mut().unwrap();
    assert!(labels.remove("networking.resources.gardener.cloud/to-vpn-seed-server-tcp-9443").is_some());
    assert_golden(theirs, plain.last().unwrap().1.clone());
}

#[test]
fn permissions_at_kubelets_are_those_of_a_go_gardenlet() {
    let golden = include_str!("../../../../tests/fixtures/components/shoot/workers/kube-apiserver.yaml");
    permissions("shoot--p--s2").assert_for_shoot(golden, false);
}

#[test]
fn references_are_those_of_gardener() {
    let golden =
        golden(include_str!("../../../../tests/fixtures/control-plane/deployment-kube-apiserver.yaml"));
    let mut again = golden.clone();
    again["metadata"]["annotations"] = json!({"deployment.kubernetes.io/revision": "1"});
    again["spec"]["template"]["metadata"]["annotations"] = Value::Null;
    content::annotate_references(&mut again);
    assert_eq!(again, golden);
}

#[test]
fn service_and_budget_are_the_golden_ones() {
    let mut golden_service =
        golden(include_str!("../../../../tests/fixtures/control-plane/service-kube-apiserver.yaml"));
    listed("annotation `networking.istio.io/exportTo` of the Service");
    golden_service["metadata"]["annotations"].as_object_mut().unwrap().remove("networking.istio.io/exportTo");
    let ours = service("shoot--p--s2");
    assert_eq!(apply::patch(&golden_service, &ours, Keep::default()), None);
    same_marks(&ours, &golden_service);
    let golden_budget = golden(include_str!(
        "../../../../tests/fixtures/control-plane/poddisruptionbudget-kube-apiserver.yaml"
    ));
    let all = objects(&defaulted(), &Texts::new()).unwrap();
    let budget = all.iter().find(|object| object["kind"] == "PodDisruptionBudget").unwrap();
    assert_eq!(*budget, golden_budget);
}

#[test]
fn names_by_content_are_those_of_gardener() {
    let names = |texts: &Texts| -> Vec<String> {
        objects(&defaulted(), texts).unwrap().iter().map(|object| content::name(object).to_owned()).collect()
    };
    let plain = names(&Texts::new());
    for name in [
        "audit-policy-config-1e270362",
        "kube-apiserver-admission-config-07c5248a",
        "kube-apiserver-admission-kubeconfigs-e3b0c442",
        "kube-apiserver-authentication-config-242362f0",
    ] {
        assert!(plain.iter().any(|found| found == name), "{name}: {plain:?}");
    }
    // The webhook for node agents, as if a Shoot had configured it.
    let text = "authorizers:\n- {name: x, type: Node}\n- name: node-agent-authorizer\n  type: Webhook\n  webhook:\n    authorizedTTL: 1ns\n    \
        failurePolicy: Deny\n    matchConditionSubjectAccessReviewVersion: v1\n    matchConditions:\n    \
        - expression: '''gardener.cloud:node-agents'' in request.groups'\n    subjectAccessReviewVersion: v1\n    \
        timeout: 10s\n    unauthorizedTTL: 1ns\n";
    let texts = Texts::from([
        ("authorization".to_owned(), text.to_owned()),
        ("node-agent-authorizer-kubeconfig.yaml".to_owned(), "kubeconfig".to_owned()),
    ]);
    let named = names(&texts);
    assert!(named.contains(&"kube-apiserver-authorization-config-720d4044".to_owned()), "{named:?}");
    assert!(named.iter().any(|name| name.starts_with("kube-apiserver-authorization-webhooks-kubeconfigs-")));
    // With workers, the authorizer of nodes comes first.
    let (golden, kubernetes) = (Golden::new(names_with_nodes(), encrypted()), defaulted());
    let with_nodes = fill(&Input { nodes: Some(&[]), ..golden.input(&kubernetes, &texts) }).unwrap().0;
    let theirs = "kube-apiserver-authorization-config-706dfba5";
    assert!(with_nodes.iter().any(|(_, object)| content::name(object) == theirs), "{with_nodes:?}");
    let without = Texts::from([("authorization".to_owned(), text.to_owned())]);
    assert!(objects(&defaulted(), &without).unwrap_err().contains("structuredAuthorization.kubeconfigs"));
}

#[test]
fn the_garden_is_the_issuer_if_it_serves_the_keys() {
    let of = |kubernetes: &Value, managed: Option<&str>| -> Vec<String> {
        let deployment = filled(kubernetes, &Texts::new(), managed, None).unwrap().pop().unwrap();
        let all = deployment.pointer("/spec/template/spec/containers/0/args").unwrap().as_array().unwrap();
        let of_accounts =
            |argument: &&str| argument.starts_with("--service-account-issuer") || argument.contains("jwks");
        all.iter().filter_map(Value::as_str).filter(of_accounts).map(str::to_owned).collect()
    };
    let own = json!({"kubeAPIServer": {"serviceAccountConfig": {"issuer": "https://own"}}});
    let managed = "https://issuers.example.org/projects/p/shoots/u/issuer";
    let issuer = |issuer: &str| format!("--service-account-issuer={issuer}");
    let usual = issuer("https://api.s2.p.internal.lab.local");
    let keys = format!("--service-account-jwks-uri={managed}/jwks");
    let table = [
        (&defaulted(), None, vec![usual.clone()]),
        (&own, None, vec![issuer("https://own"), usual.clone()]),
        (&defaulted(), Some(managed), vec![issuer(managed), usual.clone(), keys.clone()]),
        (&own, Some(managed), vec![issuer(managed), usual, keys]),
    ];
    for (kubernetes, managed, expected) in table {
        assert_eq!(of(kubernetes, managed), expected);
    }
}

#[test]
fn a_certificate_of_the_seed_is_shown_for_its_name() {
    let wildcard = Wildcard { secret: "wildcard".to_owned(), host: "api-p--s2.ingress.lab.local".to_owned() };
    let deployment = filled(&defaulted(), &Texts::new(), None, Some(&wildcard)).unwrap().pop().unwrap();
    let folder = "/srv/kubernetes/tls-sni/0";
    let argument =
        format!("--tls-sni-cert-key={folder}/tls.crt,{folder}/tls.key:api-p--s2.ingress.lab.local");
    assert!(arguments(&deployment).contains(&argument));
    let pod = deployment.pointer("/spec/template/spec").unwrap();
    let of = |list: &Value| -> Value {
        list.as_array().unwrap().iter().find(|entry| entry["name"] == "tls-sni-0").unwrap().clone()
    };
    assert_eq!(of(&pod["volumes"])["secret"], json!({"defaultMode": 416, "secretName": "wildcard"}));
    let mount = json!({"mountPath": folder, "name": "tls-sni-0", "readOnly": true});
    assert_eq!(of(&pod["containers"][0]["volumeMounts"]), mount);
    let annotations = deployment["metadata"]["annotations"].as_object().unwrap();
    assert!(annotations.values().any(|name| name == "wildcard"));
}

#[test]
fn settings_of_the_shoot_become_arguments() {
    let kubernetes = json!({"kubeAPIServer": {
        "featureGates": {"B": false, "A": true},
        "runtimeConfig": {"batch/v1": true, "x/v1": true},
        "apiAudiences": ["a", "gardener"],
        "serviceAccountConfig": {"issuer": "https://own", "acceptedIssuers": ["https://old"],
            "extendTokenExpiration": false, "maxTokenExpiration": "720h"},
        "watchCacheSizes": {"default": 50, "resources": [{"resource": "secrets", "size": 5},
            {"apiGroup": "apps", "resource": "deployments", "size": 6}]},
        "requests": {"maxNonMutatingInflight": 7, "maxMutatingInflight": 8},
        "eventTTL": "90m", "logging": {"verbosity": 4, "httpAccessVerbosity": 3},
        "defaultNotReadyTolerationSeconds": 30, "defaultUnreachableTolerationSeconds": 31,
        "admissionPlugins": [{"name": "PodNodeSelector"}, {"name": "NodeRestriction", "disabled": true},
            {"name": "AlwaysPullImages", "disabled": true}],
    }});
    let all = arguments(&deployment_of(&kubernetes));
    for argument in [
        "--feature-gates=A=true,B=false",
        "--runtime-config=apps/v1=false,autoscaling/v2=false,batch/v1=true,policy/v1=false,storage.k8s.io/v1/csinodes=false,x/v1=true",
        "--api-audiences=a,gardener",
        "--service-account-issuer=https://own",
        "--service-account-issuer=https://old",
        "--service-account-issuer=https://api.s2.p.internal.lab.local",
        "--service-account-extend-token-expiration=false",
        "--service-account-max-token-expiration=720h0m0s",
        "--default-watch-cache-size=50",
        "--watch-cache-sizes=secrets#5,deployments.apps#6",
        "--max-requests-inflight=7",
        "--max-mutating-requests-inflight=8",
        "--event-ttl=1h30m0s",
        "--v=4",
        "--vmodule=httplog=3",
        "--default-not-ready-toleration-seconds=30",
        "--default-unreachable-toleration-seconds=31",
        "--enable-admission-plugins=PodNodeSelector",
        "--disable-admission-plugins=NodeRestriction,AlwaysPullImages",
    ] {
        assert!(all.contains(argument), "{argument}: {all:#?}");
    }
}

fn files(kubernetes: &Value, texts: &Texts, prefix: &str) -> SortedMap<String, String> {
    let all = objects(kubernetes, texts).unwrap();
    let found = all.iter().find(|object| content::name(object).starts_with(prefix)).unwrap();
    let entries = found["data"].as_object().into_iter().flatten();
    let text = |value: &Value| match found["kind"].as_str() {
        Some("Secret") => {
            String::from_utf8(base64::decode(value.as_str().unwrap().as_bytes()).unwrap()).unwrap()
        }
        _ => value.as_str().unwrap().to_owned(),
    };
    entries.map(|(key, value)| (key.clone(), text(value))).collect()
}

#[test]
fn admission_plugins_have_their_files() {
    let security = |kind: &str| json!({"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": kind, "exemptions": {"namespaces": ["a"]}});
    let broken =
        json!({"kubeAPIServer": {"admissionPlugins": [{"name": "PodSecurity", "config": security("X")}]}});
    assert!(check(&broken, &Texts::new()).unwrap_err().ends_with("correct its apiVersion and kind"));
    let kubernetes = json!({"kubeAPIServer": {"admissionPlugins": [
        {"name": "PodSecurity", "config": security("PodSecurityConfiguration")},
        {"name": "ValidatingAdmissionWebhook", "kubeconfigSecretName": "s"},
        {"name": "ImagePolicyWebhook", "config": {"imagePolicy": {"kubeConfigFile": "/etc/passwd"}}},
        {"name": "AlwaysPullImages", "disabled": true, "config": {"a": 1}},
    ]}});
    let texts = Texts::from([("validatingadmissionwebhook-kubeconfig.yaml".to_owned(), "k".to_owned())]);
    let all = files(&kubernetes, &texts, "kube-apiserver-admission-config-");
    let read = |file: &str| yaml::parse(&all[file]).unwrap();
    assert_eq!(read("podsecurity.yaml")["exemptions"]["namespaces"], json!(["a", "kube-system"]));
    let path = "/etc/kubernetes/admission-kubeconfigs/validatingadmissionwebhook-kubeconfig.yaml";
    assert_eq!(read("validatingadmissionwebhook.yaml")["kubeConfigFile"], json!(path));
    assert_eq!(read("imagepolicywebhook.yaml")["imagePolicy"]["kubeConfigFile"], json!(""));
    let plugins = read("admission-configuration.yaml")["plugins"].clone();
    assert_eq!(plugins.as_array().unwrap().len(), 3);
    assert_eq!(
        plugins[0],
        json!({"configuration": null, "name": "PodSecurity", "path": "/etc/kubernetes/admission/podsecurity.yaml"})
    );
    let kubeconfigs = files(&kubernetes, &texts, "kube-apiserver-admission-kubeconfigs-");
    assert_eq!(kubeconfigs["validatingadmissionwebhook-kubeconfig.yaml"], "k");
}

#[test]
fn texts_of_the_garden_are_used_and_checked() {
    let texts = |file: &str, text: &str| Texts::from([(file.to_owned(), text.to_owned())]);
    let policy = texts("audit", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n");
    let audit = files(&defaulted(), &policy, "audit-policy-config-");
    assert!(audit["audit-policy.yaml"].contains("level: Metadata"), "{audit:?}");
    let jwt = texts("authentication", "apiVersion: x/v1\njwt: []\n");
    let config = files(&defaulted(), &jwt, "kube-apiserver-authentication-config-");
    assert!(config["config.yaml"].contains("enabled: false"), "{config:?}");
    for broken in ["audit", "authentication", "authorization"] {
        let error = objects(&defaulted(), &texts(broken, "- a")).unwrap_err();
        assert!(error.contains("spec.kubernetes.kubeAPIServer"), "{error}");
    }
}

#[test]
fn a_setting_of_the_wrong_type_is_named() {
    let security = |exemptions: Value| {
        json!({"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
            "exemptions": exemptions})
    };
    let image = |policy: Value| json!({"imagePolicy": policy});
    let hostile = [json!("x"), json!(1), json!(true), json!(["x"])];
    let table = |value: &Value| {
        [
            ("PodSecurity", security(value.clone()), "exemptions in the configuration"),
            ("ImagePolicyWebhook", image(value.clone()), "imagePolicy in the configuration"),
            ("ImagePolicyWebhook", value.clone(), "ImagePolicyWebhook in the Shoot"),
            ("ValidatingAdmissionWebhook", value.clone(), "ValidatingAdmissionWebhook in the Shoot"),
            ("PodSecurity", value.clone(), "PodSecurity in the Shoot"),
        ]
    };
    for value in &hostile {
        for (plugin, config, words) in table(value) {
            let kubernetes =
                json!({"kubeAPIServer": {"admissionPlugins": [{"name": plugin, "config": config}]}});
            let error = check(&kubernetes, &Texts::new()).unwrap_err();
            assert!(error.contains(words) && error.ends_with("is not an object: correct it"), "{error}");
        }
        let texts = Texts::from([
            (
                "authorization".to_owned(),
                json!({"authorizers": [value, {"type": "Webhook", "name": "a", "webhook": value}]})
                    .to_string(),
            ),
            ("a-kubeconfig.yaml".to_owned(), "k".to_owned()),
        ]);
        let error = check(&defaulted(), &texts).unwrap_err();
        assert_eq!(
            error,
            "webhook in the configuration of authorizer a of the Shoot is not an object: correct it"
        );
    }
    for nothing in [json!(null), json!({})] {
        for (plugin, config) in
            [("PodSecurity", security(nothing.clone())), ("ImagePolicyWebhook", image(nothing))]
        {
            let kubernetes =
                json!({"kubeAPIServer": {"admissionPlugins": [{"name": plugin, "config": config}]}});
            check(&kubernetes, &Texts::new()).unwrap();
        }
    }
}

#[test]
fn what_is_missing_in_the_garden_is_named() {
    let kubernetes = json!({"kubeAPIServer": {
        "auditConfig": {"auditPolicy": {"configMapRef": {"name": "policy"}}},
        "admissionPlugins": [{"name": "ImagePolicyWebhook", "kubeconfigSecretName": "s"}],
        "structuredAuthorization": {"configMapName": "c", "kubeconfigs": [{"authorizerName": "a", "secretName": "t"}]},
    }});
    let all = references(&kubernetes);
    let files: Vec<&str> = all.iter().map(|reference| reference.file.as_str()).collect();
    assert_eq!(files, ["audit", "authorization", "imagepolicywebhook-kubeconfig.yaml", "a-kubeconfig.yaml"]);
    assert_eq!(
        all[0].text("garden-p", None).unwrap_err().text,
        "ConfigMap garden-p/policy of the garden does not exist: create it, or change \
         spec.kubernetes.kubeAPIServer.auditConfig.auditPolicy.configMapRef.name of the Shoot, which names it"
    );
    let empty = json!({"data": {"other": "x"}});
    assert!(all[0].text("garden-p", Some(&empty)).unwrap_err().text.contains("no text under key \"policy\""));
    let secret = json!({"data": {"kubeconfig": "eA=="}});
    assert_eq!(all[2].text("garden-p", Some(&secret)).unwrap(), "x");
}

#[test]
fn replicas_are_kept_or_one() {
    let table = [
        (None, false, 1),
        (None, true, 0),
        (Some(0), false, 1),
        (Some(0), true, 0),
        (Some(1), true, 1),
        (Some(2), true, 2),
    ];
    for (live, is_hibernated, expected) in table {
        assert_eq!(replicas(live, is_hibernated), expected);
    }
}

fn key(provider: &str, name: &str) -> crate::secrets::SecretEntries {
    let entry = |key: &str, value: &str| (key.to_owned(), value.as_bytes().to_vec());
    [entry("provider", provider), entry("key", name), entry("secret", "s"), entry("encoding", "none")].into()
}

#[test]
fn keys_are_ordered_by_phase() {
    let table = [
        ("Preparing", false, KeyOrder::OldFirst),
        ("Preparing", true, KeyOrder::NewFirst),
        ("Prepared", true, KeyOrder::NewFirst),
        ("Completing", false, KeyOrder::NewFirst),
        ("", false, KeyOrder::NewFirst),
    ];
    for (phase, is_populated, expected) in table {
        assert_eq!(KeyOrder::of(phase, is_populated), expected, "{phase}");
    }
}

fn configuration(resources: &[&str], before: &[&str], old: Option<&str>, order: KeyOrder) -> (Value, Value) {
    let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let old = old.map(|provider| key(provider, "old"));
    let secret = encryption(&Encryption {
        namespace: "n",
        resources: &texts(resources),
        before: &texts(before),
        current: &key("", "new"),
        old: old.as_ref(),
        order,
    })
    .unwrap();
    let text = secret["data"]["encryption-configuration.yaml"].as_str().unwrap();
    let text = String::from_utf8(base64::decode(text.as_bytes()).unwrap()).unwrap();
    (yaml::parse(&text).unwrap()["resources"].clone(), secret)
}

#[test]
fn the_encryption_is_configured() {
    let one = |name: &str| json!({"name": name, "secret": "cw=="});
    let identity = json!({"identity": {}});
    let (new, old) = (one("new"), one("old"));
    let cases = [
        (
            configuration(&[], &[], None, KeyOrder::NewFirst).0,
            json!([{"resources": ["secrets"], "providers": [{"aescbc": {"keys": [new]}}, identity]}]),
        ),
        (
            configuration(&["a"], &[], Some("aescbc"), KeyOrder::OldFirst).0,
            json!([{"resources": ["a", "secrets"], "providers": [{"aescbc": {"keys": [old, new]}}, identity]}]),
        ),
        (
            configuration(&[], &["b", "secrets"], Some("secretbox"), KeyOrder::NewFirst).0,
            json!([
                {"resources": ["secrets"],
                    "providers": [{"aescbc": {"keys": [new]}}, {"secretbox": {"keys": [old]}}, identity]},
                {"resources": ["b"],
                    "providers": [identity, {"aescbc": {"keys": [new]}}, {"secretbox": {"keys": [old]}}]},
            ]),
        ),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
    let (_, secret) = configuration(&[], &[], None, KeyOrder::NewFirst);
    assert_eq!(secret["metadata"]["labels"]["role"], json!("kube-apiserver-etcd-encryption-configuration"));
}
