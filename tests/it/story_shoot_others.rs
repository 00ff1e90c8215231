//! A Shoot with other participants: extensions that work on it, DNS records that an extension has to create, a garden
//! that publishes its public keys. The test plays the extensions.

use gardenlet::api::gardener::SHOOT;
use gardenlet::api::meta::Key;
use gardenlet::kube::DeleteParams;
use serde_json::{Value, json};

use crate::charts;
use crate::story_operating::Desk;
use crate::story_seed_objects::answer_in;
use crate::world::{CORE, Options, World};
use support::encoding::{base64, from_base64};
use support::garden::prepare;
use support::http::faults::{Action, Seen, failure};
use support::json::{entry, list, text};
use support::shoot::Site;
use support::shoot::history::{wait_until, wait_until_created};
use support::shoot::object::{self, PROJECT_NAMESPACE, SERVICES, ShootObject, technical_id};

const GROUP: &str = "extensions.gardener.cloud";
const OPERATION: &str = "gardener.cloud/operation";
const EXTENSIONS: &str = "extensions";
const RECORDS: &str = "dnsrecords";
const NAME: &str = "s1";
const PLACE: (&str, &str) = (PROJECT_NAMESPACE, NAME);
const BEFORE: &str = "Waiting until extension resources handled before kube-apiserver are ready";
const AFTER: &str = "Waiting until extension resources handled after kube-apiserver are ready";

fn shoot(world: &World) -> Value {
    world.garden.get(CORE, "shoots", PLACE.0, PLACE.1).unwrap()
}

pub(crate) fn wait_for_task(world: &World, task: &str) {
    world.garden.wait_for(task, |_| {
        text(&shoot(world), "/status/lastOperation/description").contains(task).then_some(())
    });
}

fn has_server(world: &World) -> bool {
    world.seed.get("apps", "deployments", &technical_id(NAME), "kube-apiserver").is_some()
}

/// Registers an extension of Shoots without workers.
pub(crate) fn register(world: &World, name: &str, resource: &Value) {
    let mut objects = prepare::extension(name, &charts::extension(), &json!({"greeting": "hello"}));
    let all = &mut objects[1]["spec"]["resources"][0];
    all["workerlessSupported"] = json!(true);
    for (key, value) in resource.as_object().unwrap() {
        all[key] = value.clone();
    }
    world.garden.apply(&objects);
}

pub(crate) fn reconcile_at(moment: &str) -> Value {
    json!({"lifecycle": {"reconcile": moment}})
}

fn answer(world: &World, name: &str, error: Option<&str>) -> Value {
    answer_in(world, EXTENSIONS, (&technical_id(NAME), name), error)
}

#[test]
fn extensions_of_a_shoot_work_at_their_time() {
    let world = World::start(&Options::new("shoot-extended"));
    let site = world.site();
    let mut early = reconcile_at("BeforeKubeAPIServer");
    early["autoEnable"] = json!(["shoot"]);
    register(&world, "early", &early);
    register(&world, "asked", &json!({"reconcileTimeout": "1m0s"}));
    register(
        &world,
        "older",
        &json!({"globallyEnabled": true, "lifecycle": {"delete": "AfterKubeAPIServer"}}),
    );
    register(&world, "refused", &json!({"autoEnable": ["shoot"]}));
    register(&world, "late", &reconcile_at("AfterWorker"));
    let mut config = world.edge_config();
    config["edge"]["exposure"] = json!({"type": "NodePort", "address": "127.0.0.1"});
    let agent = world.agent_of(&site, &config);
    agent.launch();
    world.wait_until_ready();
    let extensions = json!([{"type": "asked", "providerConfig": {"volume": 11}}, {"type": "refused", "disabled": true},
        {"type": "late"}]);
    world.garden.apply(&[ShootObject::workerless(NAME).with("/spec/extensions", extensions).build()]);

    // The API server waits for the extension that works before it.
    let namespace = technical_id(NAME);
    wait_for_task(&world, BEFORE);
    assert!(!has_server(&world));
    assert_eq!(world.seed.store().names(GROUP, EXTENSIONS, &namespace), ["early"]);
    let asked = answer(&world, "early", None);
    assert_eq!(asked["spec"], json!({"type": "early", "class": "shoot"}));

    // The others work when it answers, all at once. One is slower than its registration allows.
    let asked = answer(&world, "older", None);
    assert!(has_server(&world));
    assert_eq!(asked["spec"], json!({"type": "older", "class": "shoot"}));
    let asked = world.seed.get(GROUP, EXTENSIONS, &namespace, "asked").unwrap();
    assert_eq!(asked["spec"], json!({"type": "asked", "class": "shoot", "providerConfig": {"volume": 11}}));
    wait_for_task(&world, AFTER);
    let error = world.garden.wait_for("an error of the wait", |_| {
        let errors = list(&shoot(&world), "/status/lastErrors").to_vec();
        errors.into_iter().find(|error| error["taskID"] == AFTER)
    });
    assert!(text(&error, "/description").contains("Extension shoot--p--s1/asked"), "{error}");
    assert_eq!(error["codes"], Value::Null);

    // The agent requests it again; an error of an extension keeps its code.
    for name in ["early", "older"] {
        answer(&world, name, None);
    }
    answer(&world, "asked", Some("11 is too loud"));
    let error = world.garden.wait_for("the error of the extension", |_| {
        let errors = list(&shoot(&world), "/status/lastErrors").to_vec();
        errors.into_iter().find(|error| text(error, "/description").contains("11 is too loud"))
    });
    assert_eq!(error["codes"], json!(["ERR_CONFIGURATION_PROBLEM"]));
    let told = Desk::new(&world, object::make_edge).explain(&["shoot", &format!("{}/{}", PLACE.0, PLACE.1)]);
    assert!(told.contains("11 is too loud") && told.contains("ERR_CONFIGURATION_PROBLEM"), "{told}");
    world.garden.wait_for("the end of all tries", |_| {
        (shoot(&world)["status"]["lastOperation"]["state"] == "Failed").then_some(())
    });
    let retry = json!({"metadata": {"annotations": {"gardener.cloud/operation": "retry"}}});
    world.garden.merge(CORE, "shoots", PLACE, &retry);
    for name in ["early", "older", "asked"] {
        answer(&world, name, None);
    }
    wait_until_created(&world.garden, PLACE);

    // A refused extension gets no request, nor does one that works after workers. The namespace lists the extensions
    // that may check it.
    assert_eq!(world.seed.store().names(GROUP, EXTENSIONS, &namespace), ["asked", "early", "older"]);
    let labels = world.seed.get("", "namespaces", "", &namespace).unwrap();
    let is_named =
        |name: &str| entry(&labels, "/metadata/labels", &format!("{GROUP}/{name}")) == Some("true");
    let named = ["asked", "early", "older", "late", "refused"].map(is_named);
    assert_eq!(named, [true, true, true, true, false]);

    // An extension that is no longer needed is deleted.
    let held = json!({"metadata": {"finalizers": ["extensions.gardener.cloud/lab"]}});
    world.seed.merge(GROUP, EXTENSIONS, (&namespace, "asked"), &held);
    let patch = json!({"spec": {"extensions": [{"type": "refused", "disabled": true}]}});
    world.garden.merge(CORE, "shoots", PLACE, &patch);
    for name in ["early", "older"] {
        answer(&world, name, None);
    }
    let leaving = world.seed.wait_for("the end of the extension", |seed| {
        let object = seed.get(GROUP, EXTENSIONS, &namespace, "asked")?;
        object["metadata"]["deletionTimestamp"].is_string().then_some(object)
    });
    assert_eq!(
        entry(&leaving, "/metadata/annotations", "confirmation.gardener.cloud/deletion"),
        Some("true")
    );
    wait_for_task(&world, "Waiting until stale extension resources are deleted");
    let released = json!({"metadata": {"finalizers": null}});
    world.seed.merge(GROUP, EXTENSIONS, (&namespace, "asked"), &released);
    wait_until(&world.garden, PLACE, "Reconcile Succeeded 100");
    assert_eq!(world.seed.store().names(GROUP, EXTENSIONS, &namespace), ["early", "older"]);
    extensions_go_in_turn(&world);
    assert_eq!(site.complaints(), Vec::<String>::new());
    agent.stop();
}

/// What its owner does.
fn delete(world: &World, name: &str) {
    let confirmed = json!({"metadata": {"annotations": {"confirmation.gardener.cloud/deletion": "true"}}});
    world.garden.merge(CORE, "shoots", (PROJECT_NAMESPACE, name), &confirmed);
    let client = world.garden.client();
    client.delete(&SHOOT, &Key::new(PROJECT_NAMESPACE, name), &DeleteParams::default()).unwrap();
}

fn wait_until_gone(world: &World, name: &str) {
    world.garden.wait_for("the end of the Shoot", |garden| {
        garden.get(CORE, "shoots", PROJECT_NAMESPACE, name).is_none().then_some(())
    });
    assert!(world.seed.get("", "namespaces", "", &technical_id(name)).is_none());
    assert!(world.seed.get(GROUP, "clusters", "", &technical_id(name)).is_none());
}

/// One while the API server exists, the other one after it.
fn extensions_go_in_turn(world: &World) {
    let namespace = technical_id(NAME);
    let held = json!({"metadata": {"finalizers": ["extensions.gardener.cloud/lab"]}});
    for name in ["early", "older"] {
        world.seed.merge(GROUP, EXTENSIONS, (&namespace, name), &held);
    }
    let is_leaving = |name: &str| {
        let object = world.seed.get(GROUP, EXTENSIONS, &namespace, name)?;
        object["metadata"]["deletionTimestamp"].is_string().then_some(())
    };
    let release = |name: &str| {
        world.seed.wait_for(&format!("the end of {name}"), |_| is_leaving(name));
        let released = json!({"metadata": {"finalizers": null}});
        world.seed.merge(GROUP, EXTENSIONS, (&namespace, name), &released);
    };
    delete(world, NAME);
    world.seed.wait_for("the end of the first", |_| is_leaving("early"));
    assert!(has_server(world) && is_leaving("older").is_none());
    release("early");
    world.seed.wait_for("the end of the second", |_| is_leaving("older"));
    assert!(!has_server(world));
    release("older");
    wait_until_gone(world, NAME);
}

/// A Seed whose Shoots have DNS names, and a garden that publishes keys.
pub(crate) fn with_names(world: &World) -> Value {
    let secret = |name: &str, labels: Value, data: Value| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "garden", "labels": labels},
            "data": data})
    };
    let host = json!({"hostname": base64(b"keys.example.org")});
    world.garden.apply(&[
        secret("dns", json!({}), json!({"token": "dHdv"})),
        secret("issuer", json!({"gardener.cloud/role": "shoot-service-account-issuer"}), host),
    ]);
    let certificate = json!({"tls.crt": base64(b"CERTIFICATE"), "tls.key": base64(b"KEY")});
    world.seed.apply(&[secret("wildcard", json!({"gardener.cloud/role": "controlplane-cert"}), certificate)]);
    let mut config = world.config();
    let spec = &mut config["seedConfig"]["spec"];
    spec["networks"]["shootDefaults"] = json!({"services": SERVICES});
    let mut domain = spec["dns"]["internal"].clone();
    domain["domain"] = json!("shoots.example.org");
    spec["dns"]["defaults"] = json!([domain]);
    config["edge"]["exposure"] = json!({"type": "NodePort", "address": "127.0.0.1"});
    config["controllers"]["shoot"]["dnsEntryTTLSeconds"] = json!(77);
    config
}

/// Golden DNSRecords have these labels and annotations.
fn is_as_upstream(record: &Value, role: &str, domain: &str) {
    let secret = json!({"name": format!("dnsrecord-s1-{role}"), "namespace": technical_id(NAME)});
    let spec = json!({"name": domain, "recordType": "A", "secretRef": secret, "ttl": 77, "type": "local",
        "values": ["127.0.0.1"]});
    assert_eq!(record["spec"], spec);
    assert_eq!(record["metadata"]["labels"], json!({"gardener.cloud/role": "controlplane", "role": role}));
    assert_eq!(entry(record, "/metadata/annotations", "dns.gardener.cloud/ip-stack"), Some("ipv4"));
}

fn what_the_server_is_told(world: &World) {
    let server = world.seed.get("apps", "deployments", &technical_id(NAME), "kube-apiserver").unwrap();
    let uid = text(&shoot(world), "/metadata/uid").to_owned();
    let service = world.seed.get("", "services", &technical_id(NAME), "kube-apiserver").unwrap();
    let (_, rest) = text(&service, "/spec/clusterIP").split_once('.').unwrap();
    let issuer = format!("https://keys.example.org/projects/p/shoots/{uid}/issuer");
    let folder = "/srv/kubernetes/tls-sni/0";
    let expected = [
        format!("--advertise-address=240.{rest}"),
        format!("--service-account-issuer={issuer}"),
        "--service-account-issuer=https://api.s1.p.internal.example.org".to_owned(),
        format!("--service-account-jwks-uri={issuer}/jwks"),
        format!("--tls-sni-cert-key={folder}/tls.crt,{folder}/tls.key:api-p--s1.ingress.edge-1.example.org"),
    ];
    let all = list(&server, "/spec/template/spec/containers/0/args").to_vec();
    for argument in expected {
        assert!(all.iter().any(|found| *found == argument), "{argument} is not among {all:?}");
    }
    let copy = world.seed.get("", "secrets", &technical_id(NAME), "wildcard").unwrap();
    assert_eq!(copy["data"]["tls.key"], json!(base64(b"KEY")));

    let secret = format!("p--{uid}");
    let keys = world.garden.get("", "secrets", "gardener-system-shoot-issuer", &secret).unwrap();
    let labels = json!({"discovery.gardener.cloud/public": "serviceaccount", "project.gardener.cloud/name": "p",
        "shoot.gardener.cloud/name": NAME, "shoot.gardener.cloud/namespace": PROJECT_NAMESPACE});
    assert_eq!(keys["metadata"]["labels"], labels);
    let document = |entry: &str| -> Value {
        serde_json::from_slice(&from_base64(text(&keys, &format!("/data/{entry}"))).unwrap()).unwrap()
    };
    assert_eq!(document("openid-config"), json!({"issuer": issuer, "jwks_uri": format!("{issuer}/jwks")}));
    assert_eq!(document("jwks")["keys"][0]["kid"], json!(issuer));
}

fn what_is_advertised(world: &World, site: &Site) {
    let addresses = list(&shoot(world), "/status/advertisedAddresses").to_vec();
    let names: Vec<&str> = addresses.iter().map(|address| text(address, "/name")).collect();
    assert_eq!(names, ["external", "internal", "service-account-issuer"]);
    let port = text(&addresses[0], "/url").strip_prefix("https://api.s1.p.shoots.example.org:");
    let port = port.and_then(|port| port.parse().ok()).unwrap();
    assert!(site.routes().find("127.0.0.1", port).is_some());
}

/// A record that a task requests is reconciled, and an immutable one is created again, within one operation. The
/// completed tasks are removed from the annotation.
fn the_owner_asks_for_records(world: &World) {
    const TASKS: &str = "shoot.gardener.cloud/tasks";
    let namespace = technical_id(NAME);
    let other = json!({"metadata": {"finalizers": null}, "spec": {"recordType": "CNAME"}});
    world.seed.merge(GROUP, RECORDS, (&namespace, "s1-external"), &other);
    let asked = "restartControlPlanePods,deployDNSRecordInternal,deployInfrastructure";
    // Somebody else changes the Shoot when the agent removes the completed tasks.
    let removes = |seen: &Seen| {
        let tasks = seen.body.as_ref().and_then(|body| body.pointer("/metadata/annotations")?.get(TASKS));
        seen.info.resource == "shoots" && tasks.is_some()
    };
    let conflict = world.garden.faults().when(removes).once().then(Action::Refuse(failure(409, None)));
    let operation = json!({"metadata": {"annotations": {OPERATION: "reconcile", TASKS: asked}}});
    world.garden.merge(CORE, "shoots", PLACE, &operation);
    answer_in(world, RECORDS, (&namespace, "s1-internal"), None);
    let external = answer_in(world, RECORDS, (&namespace, "s1-external"), None);
    assert_eq!(external["spec"]["recordType"], "A");
    world.garden.wait_for("the tasks to be removed", |_| {
        (shoot(world)["metadata"]["annotations"][TASKS] == "deployInfrastructure").then_some(())
    });
    assert_eq!(conflict.hits(), 1);
    wait_until(&world.garden, PLACE, "Reconcile Succeeded 100");
}

/// The server's DNS name stays as long as it is needed. In the end the garden publishes no keys.
fn names_go_with_their_shoot(world: &World) {
    let namespace = technical_id(NAME);
    let held = json!({"metadata": {"finalizers": ["extensions.gardener.cloud/lab"]}});
    for role in ["internal", "external"] {
        world.seed.merge(GROUP, RECORDS, (&namespace, &format!("s1-{role}")), &held);
    }
    delete(world, NAME);
    for role in ["external", "internal"] {
        let name = format!("s1-{role}");
        let leaving = || {
            let record = world.seed.get(GROUP, RECORDS, &namespace, &name)?;
            record["metadata"]["deletionTimestamp"].is_string().then_some(record)
        };
        world.seed.wait_for(&format!("the end of {name}"), |_| leaving());
        assert!(!has_server(world));
        world.seed.merge(GROUP, RECORDS, (&namespace, &name), &json!({"metadata": {"finalizers": null}}));
    }
    wait_until_gone(world, NAME);
    assert_eq!(world.garden.store().names("", "secrets", "gardener-system-shoot-issuer"), [""; 0]);
}

#[test]
fn a_shoot_with_names_in_the_dns_waits_for_them() {
    let world = World::start(&Options::new("shoot-named"));
    let site = world.site();
    let agent = world.agent_of(&site, &with_names(&world));
    agent.launch();
    world.wait_until_ready();
    let shoot_of_garden =
        ShootObject::workerless(NAME).annotated("authentication.gardener.cloud/issuer", "managed");
    world.garden.apply(&[shoot_of_garden.build()]);

    // The control plane does not wait for its DNS names, but access to the cluster needs them.
    let namespace = technical_id(NAME);
    let external = answer_in(&world, RECORDS, (&namespace, "s1-external"), None);
    is_as_upstream(&external, "external", "api.s1.p.shoots.example.org");
    let internal = answer_in(&world, RECORDS, (&namespace, "s1-internal"), Some("the zone is locked"));
    is_as_upstream(&internal, "internal", "api.s1.p.internal.example.org");
    for role in ["internal", "external"] {
        let copy = world.seed.get("", "secrets", &namespace, &format!("dnsrecord-s1-{role}")).unwrap();
        assert_eq!((&copy["type"], &copy["data"]), (&json!("Opaque"), &json!({"token": "dHdv"})));
    }
    world.seed.wait_for("the API server", |_| has_server(&world).then_some(()));
    let is_inside = |seed: &support::TestCluster| {
        let name = "shoot-core-system";
        seed.get("resources.gardener.cloud", "managedresources", &namespace, name).is_some()
    };
    assert!(!is_inside(&world.seed));

    // The error of the extension for its record.
    let error = world.garden.wait_for("the error of the record", |_| {
        let errors = list(&shoot(&world), "/status/lastErrors").to_vec();
        errors.into_iter().find(|error| error["taskID"] == "Deploying internal domain DNS record")
    });
    assert!(text(&error, "/description").contains("the zone is locked"), "{error}");
    assert_eq!(error["codes"], json!(["ERR_CONFIGURATION_PROBLEM"]));
    assert!(!is_inside(&world.seed));
    world.garden.wait_for("the end of all tries", |_| {
        (shoot(&world)["status"]["lastOperation"]["state"] == "Failed").then_some(())
    });
    let retry = json!({"metadata": {"annotations": {"gardener.cloud/operation": "retry"}}});
    world.garden.merge(CORE, "shoots", PLACE, &retry);
    answer_in(&world, RECORDS, (&namespace, "s1-internal"), None);
    wait_until_created(&world.garden, PLACE);
    what_is_advertised(&world, &site);
    what_the_server_is_told(&world);

    // Correct records are not touched.
    let before = world.seed.get(GROUP, RECORDS, &namespace, "s1-internal").unwrap();
    let again = json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}});
    world.garden.merge(CORE, "shoots", PLACE, &again);
    wait_until(&world.garden, PLACE, "Reconcile Succeeded 100");
    assert_eq!(world.seed.get(GROUP, RECORDS, &namespace, "s1-internal").unwrap(), before);
    the_owner_asks_for_records(&world);

    // If no extension writes records for a domain, its owner has to correct the error, and no record is created.
    let lost = ShootObject::workerless("s2")
        .bound_to(world.name)
        .with("/spec/dns", json!({"domain": "s2.example.com"}));
    world.garden.apply(&[lost.build()]);
    let lost = world.garden.wait_for("the other Shoot to fail", |garden| {
        let lost = garden.get(CORE, "shoots", PROJECT_NAMESPACE, "s2")?;
        (lost["status"]["lastOperation"]["state"] == "Failed").then_some(lost)
    });
    let error = &lost["status"]["lastErrors"][0];
    assert_eq!(
        (&error["taskID"], &error["codes"]),
        (&json!("initializeOperation"), &json!(["ERR_CONFIGURATION_PROBLEM"]))
    );
    assert!(text(error, "/description").contains("s2.example.com"), "{error}");
    assert_eq!(text(&lost, "/status/uid"), "");
    delete(&world, "s2");
    wait_until_gone(&world, "s2");
    names_go_with_their_shoot(&world);
    assert_eq!(site.complaints(), Vec::<String>::new());
    agent.stop();
}
