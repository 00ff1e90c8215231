//! What a file must not contain, and what has no effect.

use serde_json::{Value, json};

use super::super::control_plane::ExposureType;
use super::super::load;
use super::{errors, minimal, settings, texts, usable, warnings, with};

#[test]
fn a_lease_that_is_renewed_too_often_or_too_rarely_is_refused_with_a_remedy() {
    let field = "controllers.seed.leaseResyncSeconds";
    for number in [0, -2, 600, 20] {
        let expected = format!(
            "{field}: must be from 1 to 19, not {number}: a shorter one loads the garden constantly, and the garden \
             considers a seed lost after 40 s without a renewal, and one renewal may fail; leave it out for the default, 2"
        );
        assert_eq!(errors(&[(field, json!(number))]), [expected]);
    }
    for number in [1, 19] {
        settings(&[(field, json!(number))]);
    }
}

#[test]
fn bounds_hold_at_both_ends() {
    let table = [
        ("controllers.seed.syncPeriod", json!("999ms"), "must be from 1s to 168h, not 999ms: "),
        ("controllers.seed.syncPeriod", json!("0s"), "leave it out for the default, 1m0s"),
        (
            "controllers.controllerInstallationCare.syncPeriod",
            json!("169h"),
            "must be from 1s to 168h, not 169h: ",
        ),
        ("controllers.shootCare.syncPeriod", json!("0s"), "a shorter one loads the API servers constantly"),
        ("controllers.shootState.syncPeriod", json!("1ms"), "must be from 1s to "),
        ("controllers.seed.leaseResyncMissThreshold", json!(0), "must be from 1 to 1000, not 0: "),
        ("leaderElection.retryPeriod", json!("1ns"), "must be from 1s to 1h, not 1ns: "),
        (
            "seedClientConnection.qps",
            json!(0.01),
            "must be from 0.1 to 10000, or negative for no limit, not 0.01: ",
        ),
        ("seedClientConnection.qps", json!(1e9), "not 1000000000: "),
        ("edge.chartCache.maxSize", json!("2Ti"), "must be from 0 to 1Ti, not 2Ti: "),
        ("edge.chartCache.maxSize", json!(-1), "must be from 0 to 1Ti, not -1: "),
        (
            "resources.capacity",
            json!({"shoots": "-1"}),
            "resources.capacity: shoots: must be at least 0, not -1: ",
        ),
        ("seedConfig.spec.volume.minimumSize", json!("-1Gi"), "must be at least 0, not -1Gi: "),
    ];
    for (path, value, expected) in table {
        let problems = errors(&[(path, value)]);
        assert!(problems.len() == 1 && problems[0].contains(expected), "{expected}: {problems:?}");
    }
    for (path, value) in
        [("seedClientConnection.qps", json!(-1)), ("resources.capacity", json!({"a": "20E"}))]
    {
        settings(&[(path, value)]);
    }
}

#[test]
fn keys_that_stand_twice_are_errors_with_both_lines() {
    let text = "edge: {workers: 4}\nlogLevel: info\nedge:\n  stateDir: /a\n  heartbeat: {}\n  stateDir: /b\n";
    let problems = texts(&load(&format!("{text}{}", body()), "c.yaml").unwrap_err());
    let twice = |key: &str, lines: &str| {
        format!("{key}: is written twice, in lines {lines}: the first would be lost. Make it one")
    };
    assert_eq!(problems, [twice("edge", "1 and 3"), twice("stateDir", "4 and 6")]);
    let json = r#"{"logLevel": "info", "logLevel": "debug"}"#;
    let problems = texts(&load(json, "c.yaml").unwrap_err());
    assert!(problems.contains(&twice("logLevel", "1 and 1")), "{problems:?}");
    let merged = "resources:\n  capacity: &a {x: 1, y: 2}\n  reserved: {<<: *a, x: 1}\n";
    assert!(load(&format!("{merged}{}", body()), "c.yaml").is_ok());
    let list = "resources: {}\nedge:\n  registries:\n  - {host: a}\n  - {host: b}\n";
    assert!(load(&format!("{list}{}", body()), "c.yaml").is_ok());
}

/// The minimal configuration as a block.
fn body() -> String {
    let document = minimal();
    ["apiVersion", "kind", "seedConfig"].map(|key| format!("{key}: {}\n", document[key])).concat()
}

#[test]
fn a_file_says_what_it_is() {
    for (key, value) in
        [("apiVersion", "gardenlet.config.gardener.cloud/v1alpha1"), ("kind", "GardenletConfiguration")]
    {
        let expected = format!("{key}: must be given: {value}");
        for empty in [Value::Null, json!("")] {
            assert_eq!(errors(&[(key, empty)]), [expected.as_str()]);
        }
    }
}

#[test]
fn unknown_options_of_our_own_are_errors_at_any_depth() {
    let table = [
        ("edge.worker", json!(3), "edge.worker: unknown option; did you mean \"workers\"?"),
        ("edge.heartbeat.interval", json!("3s"), "edge.heartbeat.interval: unknown option"),
        (
            "edge.registries",
            json!([{"host": "a", "rewrites": [{"from": "a", "too": "b"}], "mirrors": ["https://b"]}]),
            "edge.registries[0].rewrites[0].too: unknown option",
        ),
    ];
    for (path, value, expected) in table {
        assert_eq!(errors(&[(path, value)]), [expected]);
    }
}

#[test]
fn values_that_fail_later_are_refused() {
    let mirror = "edge.registries[0].mirrors[0]: must be a URL such as https://mirror.example.org:5000/path, without user \
        and query";
    let table = [
        ("edge.registries", json!([{"host": "a", "mirrors": ["foo"]}]), mirror),
        (
            "edge.stateDir",
            json!("state"),
            "edge.stateDir: \"state\" is not an absolute path: it would depend on the directory in which the agent is started",
        ),
        (
            "server.metrics.port",
            json!(2728),
            "server.metrics.port: must differ from server.healthProbes.port: only one of them can listen on 2728",
        ),
        (
            "server.https",
            json!({"port": 2720}),
            "server.https: was removed: this agent serves probes and metrics by plain HTTP, so a probe by HTTPS would \
             always fail. Set server.healthProbes and server.metrics instead (port, bindAddress), and ask with scheme HTTP",
        ),
    ];
    for (path, value, expected) in table {
        assert_eq!(errors(&[(path, value)]), [expected]);
    }
    let listen = |probes: &str, metrics: &str| json!({"healthProbes": {"bindAddress": probes, "port": 9000}, "metrics": {"bindAddress": metrics, "port": 9000}});
    for (probes, metrics) in [("", "127.0.0.1"), ("127.0.0.1", "0.0.0.0"), ("::1", "::1")] {
        assert_eq!(errors(&[("server", listen(probes, metrics))]).len(), 1, "{probes} {metrics}");
    }
    settings(&[("server", listen("127.0.0.1", "10.0.0.1"))]);
}

#[test]
fn fields_that_nothing_reads_warn_unless_they_are_as_by_default_or_off() {
    let table = [
        ("shootClientConnection.qps", json!(20.5), "shootClientConnection"),
        ("seedClientConnection.contentType", json!("x"), "seedClientConnection.contentType"),
        ("logging.enabled", json!(true), "logging"),
        ("monitoring.shoot.externalLabels", json!({"a": "b"}), "monitoring"),
        ("exposureClassHandlers", json!([{"name": "a"}]), "exposureClassHandlers"),
        ("etcdConfig.featureGates", json!({"UpgradeEtcdVersion": true}), "etcdConfig"),
        ("seedConfig.metadata.namespace", json!("x"), "seedConfig.metadata.namespace"),
        (
            "seedConfig.spec.settings.dependencyWatchdog.weeder.enabled",
            json!(true),
            "seedConfig.spec.settings.dependencyWatchdog",
        ),
        ("sni.ingress.serviceExternalIP", json!("10.0.0.1"), "sni.ingress.serviceExternalIP"),
    ];
    for (path, value, place) in table {
        let found = warnings(&[(path, value)]);
        assert!(
            found.len() == 1 && found[0].starts_with(&format!("{place}: has no effect: ")),
            "{path}: {found:?}"
        );
    }
    let quiet = [
        ("controllers.shoot", json!({"concurrentSyncs": 20, "syncPeriod": "60m", "retryDuration": "12h"})),
        ("controllers.backupEntry", json!({"deletionGracePeriodHours": 0})),
        ("shootClientConnection", json!({"qps": 50.0, "burst": 100})),
        ("logging", json!({"enabled": false, "vali": {"garden": {"storage": "102400Mi"}}})),
        ("monitoring.shoot.enabled", json!(false)),
        ("seedConfig.spec.settings.scheduling.visible", json!(true)),
        ("seedConfig.spec.settings.excessCapacityReservation.enabled", json!(false)),
    ];
    for change in quiet {
        settings(&[change]);
    }
    assert_eq!(
        errors(&[("logging", json!({"enabled": true})), ("edge.workers", json!("x"))]).len(),
        2,
        "the warning follows the error"
    );
}

#[test]
fn feature_gates_of_a_stage_and_of_the_library_are_those_of_upstream() {
    let gates = |written: Value| usable(&[("featureGates", written)]).feature_gates;
    let plain = gates(json!({}));
    assert_eq!((plain.len(), plain.values().filter(|on| **on).count()), (57, 38));
    for (gate, on) in [("AllAlpha", false), ("AllBeta", false), ("WatchList", true), ("KMSv1", false)] {
        assert_eq!(plain[gate], on, "{gate}");
    }
    let alpha = gates(json!({"AllAlpha": true, "RemoveVali": false}));
    for (gate, on) in [
        ("AllAlpha", true),
        ("DefaultSeccompProfile", true),
        ("StorageVersionAPI", true),
        ("RemoveVali", false),
        ("IstioTLSTermination", true),
        ("CoordinatedLeaderElection", false),
        ("KMSv1", false),
    ] {
        assert_eq!(alpha[gate], on, "{gate}");
    }
    let beta = gates(json!({"AllBeta": false, "WatchList": true}));
    for (gate, on) in [
        ("IstioTLSTermination", false),
        ("DoNotCopyBackupCredentials", true),
        ("APIServerIdentity", false),
        ("WatchList", true),
        ("MutatingAdmissionPolicy", true),
    ] {
        assert_eq!(beta[gate], on, "{gate}");
    }
    let document = usable(&[("featureGates", json!({"AllAlpha": true, "KMSv1": true}))]).document;
    let shown = document["featureGates"].as_object().unwrap();
    assert_eq!((shown.len(), &shown["RemoveVali"], &shown["KMSv1"]), (13, &json!(true), &json!(true)));
    let locked = errors(&[("featureGates.APIServerTracing", json!(false))]);
    assert_eq!(locked, ["featureGates.APIServerTracing: is locked to true"]);
}

#[test]
fn the_rest_of_upstreams_rules_of_a_seed() {
    let tolerate = |toleration: Value| json!([{"resources": {"cpu": "1"}, "tolerations": [toleration]}]);
    let (configs, at) = ("settings.excessCapacityReservation.configs", "configs[0].tolerations[0]");
    let of = |kind: &str| json!({"apiVersion": "v1", "kind": kind, "name": "s"});
    let table: Vec<(&str, Value, String)> = vec![
        (configs, tolerate(json!({"key": "a b"})), format!("{at}.key: \"a b\" is not a qualified name")),
        (configs, tolerate(json!({"operator": "Equal"})), format!("{at}.operator: must be Exists without a key")),
        (configs, tolerate(json!({"key": "a", "operator": "In"})), format!("{at}.operator: unknown value \"In\"")),
        (
            configs,
            tolerate(json!({"key": "a", "operator": "Exists", "value": "b"})),
            format!("{at}.value: must be empty with operator Exists"),
        ),
        (configs, tolerate(json!({"key": "a", "value": "b c"})), format!("{at}.value: \"b c\" is not a label value")),
        (configs, tolerate(json!({"key": "a", "effect": "Never"})), format!("{at}.effect: unknown value \"Never\"")),
        (
            configs,
            tolerate(json!({"key": "a", "tolerationSeconds": 3})),
            format!("{at}.effect: must be NoExecute with tolerationSeconds"),
        ),
        (
            configs,
            tolerate(json!({"key": "a", "effect": "NoExecute", "tolerationSeconds": "1h"})),
            format!("{at}.tolerationSeconds: expected a whole number, found the text \"1h\""),
        ),
        (
            configs,
            tolerate(json!({"key": "a", "effect": "NoExecute", "tolerationSeconds": 3_000_000_000_i64})),
            format!("{at}.tolerationSeconds: must be from -315360000 to 315360000, not 3000000000"),
        ),
        ("accessRestrictions", json!(["eu"]), "spec.accessRestrictions[0]: expected fields, found the text".to_owned()),
        ("accessRestrictions", json!([{}]), "spec.accessRestrictions[0].name: must be given".to_owned()),
        (
            "accessRestrictions",
            json!([{"name": "eu", "options": {"a": true}}]),
            "spec.accessRestrictions[0].options: expected a map of texts".to_owned(),
        ),
        (configs, tolerate(json!({"key": 1})), format!("{at}.key: expected a text, found 1")),
        (
            configs,
            json!([{"resources": {"example.org/gpu": "1500m"}}]),
            "configs[0].resources.example.org/gpu: must be a whole number: 1500m".to_owned(),
        ),
        (
            "settings.verticalPodAutoscaler.featureGates",
            json!({"InPlaceOrRecreate": true}),
            "verticalPodAutoscaler.featureGates.InPlaceOrRecreate: unknown feature gate; known: CPUStartupBoost, InPlace, \
             PerVPAConfig"
                .to_owned(),
        ),
        (
            "settings.verticalPodAutoscaler.maxAllowed",
            json!({"storage": "1Gi"}),
            "verticalPodAutoscaler.maxAllowed.storage: unknown value; known: cpu, memory".to_owned(),
        ),
        ("extensions", json!([{}]), "spec.extensions[0].type: must be given".to_owned()),
        ("extensions", json!([{"type": "a.b"}]), "spec.extensions[0].type: \"a.b\" is not a DNS label".to_owned()),
        (
            "extensions",
            json!([{"type": "a"}, {"type": "a"}]),
            "spec.extensions[1].type: \"a\" occurs twice".to_owned(),
        ),
        ("resources", json!([{"resourceRef": of("Secret")}]), "spec.resources[0].name: must be given".to_owned()),
        ("resources", json!([{"name": "a"}]), "spec.resources[0].resourceRef.name: must be given".to_owned()),
        (
            "resources",
            json!([{"name": "a", "resourceRef": of("Pod")}]),
            "spec.resources[0].resourceRef: must be v1 Secret or v1 ConfigMap or security.gardener.cloud/v1alpha1 \
             WorkloadIdentity, not v1 Pod"
                .to_owned(),
        ),
        (
            "resources",
            json!([{"name": "a", "resourceRef": of("Secret")}, {"name": "a", "resourceRef": of("ConfigMap")}]),
            "spec.resources[1].name: \"a\" occurs twice".to_owned(),
        ),
        ("extensions", json!("x"), "spec.extensions: expected a list".to_owned()),
    ];
    for (path, value, expected) in table {
        let problems = errors(&[(&format!("seedConfig.spec.{path}"), value)]);
        assert!(problems.iter().any(|problem| problem.contains(&expected)), "{expected}: {problems:?}");
    }
    let good = json!([
        {"operator": "Exists"},
        {"key": "a", "value": "b", "effect": "NoSchedule"},
        {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": -1}
    ]);
    usable(&[(
        "seedConfig.spec.settings.excessCapacityReservation.configs",
        json!([{"resources": {"cpu": "500m", "example.org/gpu": 2}, "tolerations": good}]),
    )]);
    let internal = json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "InternalSecret", "namespace": "garden",
        "name": "x"});
    settings(&[("seedConfig.spec.dns.internal.credentialsRef", internal)]);
}

#[test]
fn who_applies_has_three_values() {
    use super::ResourceManager::{Auto, Embedded, External};
    let of = |changes: &[(&str, Value)]| settings(changes).edge.resource_manager;
    assert_eq!((of(&[]), Auto.is_here(), Embedded.is_here(), External.is_here()), (Auto, true, true, false));
    for (name, value) in [("Auto", Auto), ("Embedded", Embedded), ("External", External)] {
        assert_eq!(of(&[("edge.resourceManager", json!(name))]), value);
    }
    assert_eq!(super::super::defaults()["edge"]["resourceManager"], "Auto");
    assert!(!with(&[]).contains("Embedded"));
}

#[test]
fn volumes_of_etcd_are_as_large_as_asked_or_as_the_seed_needs() {
    let of = |changes: &[(&str, Value)]| {
        let etcd = usable(changes).edge.etcd;
        [etcd.main, etcd.events].map(|volume| (volume.storage_class.unwrap_or_default(), volume.size))
    };
    let pairs = |pairs: [(&str, &str); 2]| pairs.map(|(class, size)| (class.to_owned(), size.to_owned()));
    let least = |size: &str| ("seedConfig.spec.volume.minimumSize", json!(size));
    assert_eq!(of(&[]), pairs([("", "25Gi"), ("", "10Gi")]));
    assert_eq!(of(&[least("20Gi")]), pairs([("", "25Gi"), ("", "20Gi")]));
    assert_eq!(of(&[least("30Gi")]), pairs([("", "30Gi"), ("", "30Gi")]));
    let main = ("edge.etcd.main", json!({"storageClass": "fast", "size": "1Gi"}));
    assert_eq!(of(&[least("30Gi"), main]), pairs([("fast", "1Gi"), ("", "30Gi")]));
    assert_eq!(of(&[("edge.etcd.events.size", json!(2_147_483_648_u64))])[1].1, "2147483648");

    for (path, value, words) in [
        ("edge.etcd.mode", json!("Backup"), "edge.etcd.mode: unknown value \"Backup\"; known: Plain, Druid"),
        ("edge.etcd.main.size", json!("1Mi"), "edge.etcd.main.size: must be from 256Mi to 16Ti, not 1Mi: "),
        ("edge.etcd.events.size", json!("big"), "edge.etcd.events.size: "),
        ("edge.etcd.events.storageClass", json!("Fast_1"), "edge.etcd.events.storageClass: "),
        ("edge.etcd.main.class", json!("a"), "edge.etcd.main.class: unknown option"),
    ] {
        let found = errors(&[(path, value)]);
        assert!(found[0].starts_with(words), "{found:?}");
    }
}

#[test]
fn snapshots_are_off_or_have_a_place() {
    fn on<'a>(more: &[(&'a str, Value)]) -> Vec<(&'a str, Value)> {
        let mut changes = vec![
            ("edge.etcd.snapshots.store", json!("Directory")),
            ("edge.etcd.snapshots.directory", json!("/var/lib/snapshots")),
        ];
        changes.extend_from_slice(more);
        changes
    }
    assert_eq!(usable(&[]).edge.etcd.snapshots, None);
    let snapshots = usable(&on(&[("edge.etcd.snapshots.schedule", json!("*/30 * * * *"))]));
    let snapshots = snapshots.edge.etcd.snapshots.unwrap();
    assert_eq!((snapshots.directory.as_deref(), snapshots.keep), (Some("/var/lib/snapshots"), 7));
    assert_eq!(snapshots.schedule.as_deref(), Some("*/30 * * * *"));
    for (path, value, words) in [
        (
            "edge.etcd.snapshots.store",
            json!("Disk"),
            "edge.etcd.snapshots.store: unknown value \"Disk\"; known: None, ",
        ),
        ("edge.etcd.snapshots.store", json!("S3"), "edge.etcd.snapshots.store: S3 is the bucket of the Seed"),
        (
            "edge.etcd.snapshots.directory",
            json!("here"),
            "edge.etcd.snapshots.directory: \"here\" is not an absolute path",
        ),
        ("edge.etcd.snapshots.directory", json!(""), "edge.etcd.snapshots.directory: must name a directory"),
        ("edge.etcd.snapshots.keep", json!(0), "edge.etcd.snapshots.keep: must be from 1 to 1000, not 0"),
        (
            "edge.etcd.snapshots.schedule",
            json!("daily"),
            "edge.etcd.snapshots.schedule: \"daily\" is not a schedule",
        ),
        (
            "edge.etcd.mode",
            json!("Druid"),
            "edge.etcd.snapshots.store: must be None with edge.etcd.mode Druid",
        ),
    ] {
        let found = errors(&on(&[(path, value)]));
        assert!(found[0].starts_with(words), "{found:?}");
    }

    let settings = usable(&on(&[]));
    let problem = settings.check_snapshots(|_| None).unwrap_err();
    assert!(problem.to_string().starts_with("edge.etcd.snapshots.image: must name an image of this agent"));
    for known in ["NAMESPACE", "IMAGEVECTOR_OVERWRITE"] {
        assert_eq!(settings.check_snapshots(|name| (name == known).then(|| "x".to_owned())), Ok(()));
    }
    let named = usable(&on(&[("edge.etcd.snapshots.image", json!("registry.example.org/gardenlet:1"))]));
    assert_eq!(named.check_snapshots(|_| None), Ok(()));
    assert_eq!(usable(&[]).check_snapshots(|_| None), Ok(()));
}

#[test]
fn shoots_are_exposed_at_an_address_that_the_agent_reaches() {
    let of = |changes: &[(&str, Value)]| usable(changes).edge.exposure;
    assert_eq!((of(&[]).kind, of(&[]).address), (ExposureType::NodePort, None));
    for address in ["192.0.2.7", "2001:db8::7", "edge.example.org"] {
        let exposure = of(&[("edge.exposure.address", json!(address))]);
        assert_eq!(exposure.address.as_deref(), Some(address));
    }
    for (address, flaw) in [
        ("192.0.2.7", "reserved for documentation"),
        ("2001:db8::7", "reserved for documentation"),
        ("0.0.0.0", "means any address"),
        ("::1", "a loopback address"),
        ("224.0.0.1", "a multicast address"),
    ] {
        let found = warnings(&[("edge.exposure.address", json!(address))]);
        assert!(found[0].starts_with("edge.exposure.address: ") && found[0].contains(flaw), "{found:?}");
    }
    for address in ["10.0.0.7", "fd00::7", "edge.example.org"] {
        assert_eq!(warnings(&[("edge.exposure.address", json!(address))]), [""; 0], "{address}");
    }
    let place = "edge.exposure.address: must be an IP address or a DNS name without scheme and port: ";
    for (path, value, words) in [
        ("edge.exposure.type", json!("Ingress"), "edge.exposure.type: unknown value \"Ingress\"; known: "),
        ("edge.exposure.address", json!("https://a.example.org"), place),
        ("edge.exposure.address", json!("192.0.2.7:6443"), place),
        ("edge.exposure.annotations", json!({"a b": "c"}), "edge.exposure.annotations: \"a b\": "),
    ] {
        let found = errors(&[(path, value)]);
        assert!(found[0].starts_with(words), "{found:?}");
    }

    let inside = |name: &str| (name == "KUBERNETES_SERVICE_HOST").then(|| "10.0.0.1".to_owned());
    let mut settings = usable(&[("edge.exposure.type", json!("ClusterIP"))]);
    settings.seed_client_connection.kubeconfig = None;
    assert_eq!(settings.check_exposure(inside), Ok(()));
    let problem = settings.check_exposure(|_| None).unwrap_err();
    assert!(problem.to_string().starts_with("edge.exposure.type: ClusterIP is an address that only pods"));
    settings.seed_client_connection.kubeconfig = Some("/seed".into());
    assert!(settings.check_exposure(inside).is_err());
    settings.edge.exposure.kind = ExposureType::LoadBalancer;
    assert_eq!(settings.check_exposure(|_| None), Ok(()));
}
