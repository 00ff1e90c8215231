//! Objects that a Seed's rounds write for other programs: the CA of the seed, Extensions of class `seed`, the record of
//! the ingress domain. The test plays the extensions.

use std::collections::BTreeSet;
use std::time::Duration;

use gardenlet::api::gardener::OPERATION;
use gardenlet::extension::TIMESTAMP;
use gardenlet::format::yaml;
use serde_json::{Value, json};

use crate::charts;
use crate::story_operating::events;
use crate::world::{AGENT, CORE, MANAGED_RESOURCES, Options, World, condition};
use support::encoding::{base64, from_base64, rfc3339};
use support::garden::prepare;
use support::http::record::Recorded;
use support::json::text;

const GROUP: &str = "extensions.gardener.cloud";
const EXTENSIONS: &str = "extensions";
const RECORDS: &str = "dnsrecords";
const FINALIZER: &str = "extensions.gardener.cloud/lab";
const CONFIRMATION: &str = "confirmation.gardener.cloud/deletion";
const GATEWAY: (&str, &str) = ("istio-ingress", "istio-ingressgateway");
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// The name of the first CA, which a Go gardenlet computes, too.
const CA: &str = "ca-seed-fc28a8dd";

fn asks(world: &World, spec: &Value) {
    world.garden.merge(CORE, "seeds", ("", world.name), &json!({"spec": spec}));
}

/// Waits until the Seed's last operation has this state and these words.
fn says(world: &World, state: &str, words: &[&str]) -> Value {
    world.garden.wait_for(&format!("{state} with {words:?}"), |garden| {
        let operation = garden.seed(world.name)?["status"]["lastOperation"].clone();
        let description = text(&operation, "/description");
        let is_it = operation["state"] == state && words.iter().all(|word| description.contains(word));
        is_it.then_some(operation)
    })
}

/// The existing Secrets of the CA, by the name of their configuration.
fn authorities(world: &World, config: &str) -> BTreeSet<String> {
    let all = world.seed.store().list("", "secrets", "garden");
    let ours = all.iter().filter(|secret| secret["metadata"]["labels"]["name"] == config);
    ours.map(|secret| text(secret, "/metadata/name").to_owned()).collect()
}

fn secret(world: &World, name: &str) -> Value {
    world.seed.get("", "secrets", "garden", name).unwrap_or_else(|| panic!("no Secret {name}"))
}

fn pem(secret: &Value, key: &str) -> String {
    String::from_utf8(from_base64(text(secret, &format!("/data/{key}"))).unwrap()).unwrap()
}

#[test]
fn the_ca_of_the_seed_is_made_once_and_renewed_in_time() {
    let world = World::start(&Options::new("certified"));
    // Certificates from a Go gardenlet's CAs are still in use.
    let labels = json!({"name": "gardener-resource-manager-server", "managed-by": "secrets-manager",
        "manager-identity": "gardenlet", "checksum-of-config": "1", "last-rotation-initiation-time": ""});
    let of_others = json!({"apiVersion": "v1", "kind": "Secret", "immutable": true,
        "metadata": {"name": "gardener-resource-manager-server-01234567", "namespace": "garden", "labels": labels}});
    world.seed.apply(&[of_others]);
    let agent = world.agent();
    agent.keys.keep_waiting(3);
    world.wait_until_ready();
    let first = secret(&world, CA);
    let certificate = gardenlet::pki::Certificate::parse_pem(&pem(&first, "ca.crt")).unwrap();
    let (issued, until) = (certificate.not_before.unix(), certificate.not_after.unix());
    assert_eq!(
        first["metadata"]["labels"],
        json!({"name": "ca-seed", "managed-by": "secrets-manager", "manager-identity": "gardenlet",
            "checksum-of-config": "16473382070636541080", "last-rotation-initiation-time": "",
            "issued-at-time": issued.to_string(), "valid-until-time": until.to_string()})
    );
    assert_eq!((&first["type"], &first["immutable"]), (&json!("Opaque"), &json!(true)));
    let bundles = authorities(&world, "ca-seed-bundle");
    assert_eq!(bundles.len(), 1);
    let bundle = secret(&world, bundles.first().unwrap());
    assert_eq!(pem(&bundle, "bundle.crt"), pem(&first, "ca.crt"));
    assert_eq!(bundle["metadata"]["labels"]["bundle-for"], "ca-seed");
    assert_eq!(agent.keys.taken(), 1);

    // Another round reads, and writes no Secret.
    let mark = world.seed.request_count();
    asks(&world, &json!({"settings": {"scheduling": {"visible": false}}}));
    world.garden.wait_for("another round", |garden| {
        let seed = garden.seed(world.name)?;
        (seed["status"]["observedGeneration"] == seed["metadata"]["generation"]).then_some(())
    });
    world.wait_until_ready();
    let asked = world.seed.requests_since(mark);
    let about_secrets = |r: &&Recorded| r.user == AGENT && r.info.resource == "secrets";
    let reads =
        asked.iter().filter(about_secrets).filter(|r| r.info.label_selector.contains("managed-by")).count();
    assert!(reads > 0, "the CA was read");
    assert!(!asked.iter().filter(about_secrets).any(|r| r.is_write() && r.info.name.starts_with("ca-")));

    // Ten days before its end there is another one. For a day verifiers trust both.
    agent.stop();
    world.time.advance(20 * DAY + HOUR);
    agent.launch();
    let name = world
        .seed
        .wait_for("the second CA", |_| authorities(&world, "ca-seed").into_iter().find(|name| name != CA));
    assert!(name.starts_with(CA) && name.len() == CA.len() + 6, "{name}");
    let both = pem(&secret(&world, &name), "ca.crt") + &pem(&first, "ca.crt");
    let bundled = |expected: &str| {
        world.seed.wait_for("the bundle", |_| {
            let bundles = authorities(&world, "ca-seed-bundle");
            let is_it = bundles.len() == 1
                && bundles.iter().all(|name| pem(&secret(&world, name), "bundle.crt") == expected);
            is_it.then_some(())
        });
    };
    bundled(&both);
    assert_eq!(authorities(&world, "ca-seed"), [CA.to_owned(), name.clone()].into());
    agent.stop();
    world.time.advance(DAY + HOUR);
    agent.launch();
    bundled(&pem(&secret(&world, &name), "ca.crt"));
    world.seed.wait_for("the end of the first CA", |_| {
        (authorities(&world, "ca-seed") == BTreeSet::from([name.clone()])).then_some(())
    });
    assert_eq!(agent.keys.taken(), 2);
    secret(&world, "gardener-resource-manager-server-01234567");
    agent.stop();
}

/// An object without fields from the server, so that it can be created in another place.
fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.retain(|key, _| ["name", "namespace", "labels", "annotations"].contains(&key.as_str()));
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.retain(|key, _| key != TIMESTAMP);
    }
    object.as_object_mut().unwrap().remove("status");
    object
}

#[test]
fn an_existing_ca_is_taken_over_and_a_damaged_one_is_reported() {
    let donor = World::start(&Options::new("donor"));
    let agent = donor.agent();
    donor.wait_until_ready();
    let mut left: Vec<Value> = ["ca-seed", "ca-seed-bundle"]
        .iter()
        .flat_map(|config| authorities(&donor, config))
        .map(|name| bare(&secret(&donor, &name)))
        .collect();
    agent.stop();
    drop(donor);
    assert_eq!(left.len(), 2);

    let world = World::start(&Options::new("heir"));
    world.seed.apply(&left);
    let before: Vec<Value> = left.iter().map(|s| secret(&world, text(s, "/metadata/name"))).collect();
    let agent = world.agent();
    world.wait_until_ready();
    let after: Vec<Value> = left.iter().map(|s| secret(&world, text(s, "/metadata/name"))).collect();
    assert_eq!((after, agent.keys.taken()), (before, 0));
    agent.stop();
    drop(world);

    let ca = left.iter_mut().find(|s| text(s, "/metadata/name") == CA).unwrap();
    let another_key = include_str!("../fixtures/keys/rsa-3072-4.pem");
    ca["data"]["ca.key"] = json!(base64(another_key.as_bytes()));
    let mut foreign = ca.clone();
    foreign["metadata"]["labels"] = json!({"mine": "yes"});
    for (name, damaged, words) in [
        ("damaged", &*ca, "secret garden/ca-seed-fc28a8dd is damaged and stays as it is"),
        ("foreign", &foreign, "secret garden/ca-seed-fc28a8dd has the name of a CA of the secrets manager"),
    ] {
        let world = World::start(&Options::new(name));
        world.seed.apply(std::slice::from_ref(damaged));
        let before = secret(&world, CA);
        let agent = world.agent();
        says(&world, "Error", &["Generating CA certificates for seed cluster", words, "delete it to get"]);
        assert_eq!((secret(&world, CA), agent.keys.taken()), (before, 0));
        // Steps that do not need the CA are done nevertheless.
        world.seed.wait_for("the other components", |seed| {
            seed.get(MANAGED_RESOURCES, "managedresources", "garden", "system")
        });
        world.seed.delete("", "secrets", "garden", CA);
        world.wait_until_ready();
        assert_eq!(agent.keys.taken(), 1);
        agent.stop();
    }
}

fn answer(world: &World, plural: &str, name: &str, error: Option<&str>) -> Value {
    answer_in(world, plural, ("garden", name), error)
}

/// The extension completes the last request.
pub fn answer_in(world: &World, plural: &str, key: (&str, &str), error: Option<&str>) -> Value {
    let object = world.seed.wait_for(&format!("a request for {key:?}"), |seed| {
        let object = seed.get(GROUP, plural, key.0, key.1)?;
        (object["metadata"]["annotations"][OPERATION] == "reconcile").then_some(object)
    });
    let begun = json!({"metadata": {"annotations": {OPERATION: null}, "finalizers": [FINALIZER]}});
    world.seed.merge(GROUP, plural, key, &begun);
    let (state, error) = match error {
        None => ("Succeeded", Value::Null),
        Some(text) => ("Error", json!({"description": text, "codes": ["ERR_CONFIGURATION_PROBLEM"]})),
    };
    let operation = json!({"type": "Reconcile", "state": state, "progress": 100, "description": "by the test",
        "lastUpdateTime": rfc3339(world.clock.now())});
    let status = json!({"status": {"lastOperation": operation, "lastError": error,
        "observedGeneration": object["metadata"]["generation"]}});
    world.seed.merge_status(GROUP, plural, key, &status);
    object
}

/// Waits until an object is deleted, and lets its extension clean up.
fn wait_until_deleting(world: &World, plural: &str, name: &str) -> Value {
    world.seed.wait_for(&format!("the deletion of {name}"), |seed| {
        let object = seed.get(GROUP, plural, "garden", name)?;
        object["metadata"]["deletionTimestamp"].is_string().then_some(object)
    })
}

fn release(world: &World, plural: &str, name: &str) {
    world.seed.merge(GROUP, plural, ("garden", name), &json!({"metadata": {"finalizers": null}}));
}

/// Registers an extension of the seed, besides its provider.
fn register(world: &World, name: &str, classes: &[&str]) {
    let mut objects = prepare::extension(name, &charts::extension(), &json!({"greeting": "hello"}));
    objects[1]["spec"]["resources"][0]["autoEnable"] = json!(classes);
    world.garden.apply(&objects);
}

/// Compares an object with the one of the same kind in the golden file.
fn is_golden(object: &Value) {
    let all = yaml::parse_all(include_str!("../fixtures/seed-objects.yaml"));
    let all: Vec<Value> = all.into_iter().map(|document| document.value.unwrap()).collect();
    let expected = all.iter().find(|golden| golden["kind"] == object["kind"]).unwrap();
    assert_eq!(&bare(object), expected);
}

#[test]
fn extensions_of_the_seed_follow_its_spec() {
    let world = World::start(&Options::new("expressive"));
    register(&world, "echo", &[]);
    let mut config = world.config();
    config["seedConfig"]["spec"]["extensions"] = json!([{"type": "echo", "providerConfig": {"volume": 11}}]);
    let agent = world.agent_with(&config);
    // While the first round runs, the Seed reports it.
    says(&world, "Processing", &["Waiting until extension resources are ready"]);
    let bootstrapped =
        || condition(&world.garden.seed(world.name).unwrap(), "Bootstrapped").map(|c| (c.0, c.1));
    assert_eq!(bootstrapped(), Some(("Progressing".to_owned(), "BootstrapProgressing".to_owned())));
    is_golden(&answer(&world, EXTENSIONS, "echo", None));
    world.wait_until_ready();
    assert_eq!(bootstrapped(), Some(("True".to_owned(), "BootstrappingSucceeded".to_owned())));

    // An error of the extension becomes an error of the Seed, with its words.
    asks(&world, &json!({"extensions": [{"type": "echo", "providerConfig": {"volume": 12}}]}));
    let asked = answer(&world, EXTENSIONS, "echo", Some("12 is too loud"));
    assert_eq!(asked["spec"], json!({"type": "echo", "class": "seed", "providerConfig": {"volume": 12}}));
    let words = "Error while waiting for Extension garden/echo to become ready: error during reconciliation: 12 is too loud";
    says(&world, "Error", &["Waiting until extension resources are ready", words]);
    assert_eq!(bootstrapped().unwrap().0, "True");
    // The agent requests it again, and this time it works.
    answer(&world, EXTENSIONS, "echo", None);
    world.wait_until_ready();

    // The agent notices a registered extension for all seeds without a change of the Seed.
    register(&world, "everywhere", &["seed"]);
    world.seed.wait_for("the other extension", |seed| {
        let object = seed.get(GROUP, EXTENSIONS, "garden", "everywhere")?;
        assert_eq!(object["spec"], json!({"type": "everywhere", "class": "seed"}));
        Some(())
    });
    answer(&world, EXTENSIONS, "everywhere", None);
    answer(&world, EXTENSIONS, "echo", None);

    // Unneeded Extensions are deleted, but not those of other owners, of any name or class.
    let other = |name: &str, kind: &str, class: &str| {
        json!({"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Extension",
            "metadata": {"name": name, "namespace": "garden"}, "spec": {"type": kind, "class": class}})
    };
    world.seed.apply(&[other("garden-echo", "echo", "garden"), other("second", "everywhere", "seed")]);
    asks(&world, &json!({"extensions": [{"type": "echo", "disabled": true}]}));
    answer(&world, EXTENSIONS, "everywhere", None);
    let deleting = wait_until_deleting(&world, EXTENSIONS, "echo");
    assert_eq!(deleting["metadata"]["annotations"][CONFIRMATION], "true");
    says(&world, "Processing", &["Waiting until stale extension resources are deleted"]);
    release(&world, EXTENSIONS, "echo");
    world.wait_until_ready();
    let names = world.seed.store().names(GROUP, EXTENSIONS, "garden");
    assert_eq!(names, ["everywhere", "garden-echo", "second"]);

    // The Seed is deleted: first its extensions clean up, then their objects are deleted.
    world.garden.delete(CORE, "seeds", "", world.name);
    wait_until_deleting(&world, EXTENSIONS, "everywhere");
    let waits = ["The Seed is still needed by Extension garden/everywhere (deleting since", FINALIZER];
    says(&world, "Processing", &waits);
    assert_eq!(events(&world.garden, world.name, "ResourceReferenced").len(), 1);
    assert_eq!(world.garden.installations("everywhere").len(), 1);
    release(&world, EXTENSIONS, "everywhere");
    // A foreign Extension holds its definition.
    says(&world, "Processing", &["definition extensions.extensions.gardener.cloud", "garden/garden-echo"]);
    assert_eq!(world.seed.store().names(GROUP, EXTENSIONS, "garden"), ["garden-echo"]);
    world.seed.delete(GROUP, EXTENSIONS, "garden", "garden-echo");
    world.garden.wait_for("the end of the Seed", |g| g.seed(world.name).is_none().then_some(()));
    agent.stop();
}

fn gateway_at(world: &World, ingress: &Value) {
    let status = json!({"status": {"loadBalancer": {"ingress": [ingress]}}});
    world.seed.merge_status("", "services", GATEWAY, &status);
}

#[test]
fn the_ingress_domain_points_to_the_gateway_if_there_is_one() {
    let world = World::start(&Options::new("reachable"));
    let agent = world.agent();
    world.wait_until_ready();
    let record = || world.seed.get(GROUP, RECORDS, "garden", "seed-ingress");
    assert_eq!(record(), None, "nothing answers the names of the domain");

    // A gateway is created, at first without an address.
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": GATEWAY.1, "namespace": GATEWAY.0},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 443}]}});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": GATEWAY.0}});
    world.seed.apply(&[namespace, service]);
    let visible = |visible: bool| asks(&world, &json!({"settings": {"scheduling": {"visible": visible}}}));
    visible(false);
    let task = "Deploying managed ingress DNS record";
    let without = "Service istio-ingress/istio-ingressgateway has no address of a load balancer yet";
    says(&world, "Error", &[task, without]);
    gateway_at(&world, &json!({"ip": "192.0.2.7"}));
    // The garden does not have the credentials.
    says(&world, "Error", &[task, "refers to Secret garden/dns, which the garden does not have"]);
    assert_eq!(record(), None);
    let credentials = |token: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {"token": token},
            "metadata": {"name": "dns", "namespace": "garden", "labels": {"mine": "yes"}}})
    };
    world.garden.apply(&[credentials("b25l")]);
    is_golden(&answer(&world, RECORDS, "seed-ingress", None));
    world.wait_until_ready();
    is_golden(&secret(&world, "seed-ingress"));

    // Without changes there are no requests to the extension.
    let written = || record().unwrap()["metadata"]["resourceVersion"].clone();
    let before = written();
    visible(true);
    world.wait_until_ready();
    assert_eq!(written(), before);

    // Another address changes the value, other credentials change the Secret.
    gateway_at(&world, &json!({"ip": "192.0.2.8"}));
    world.garden.merge("", "secrets", ("garden", "dns"), &json!({"data": {"token": "dHdv"}}));
    visible(false);
    let asked = answer(&world, RECORDS, "seed-ingress", None);
    assert_eq!(asked["spec"]["values"], json!(["192.0.2.8"]));
    assert_eq!(secret(&world, "seed-ingress")["data"], json!({"token": "dHdv"}));
    world.wait_until_ready();

    // A host name needs a record of another type, which is another object.
    gateway_at(&world, &json!({"hostname": "lb.example.org"}));
    visible(true);
    let deleting = wait_until_deleting(&world, RECORDS, "seed-ingress");
    assert_eq!(deleting["metadata"]["annotations"][CONFIRMATION], "true");
    release(&world, RECORDS, "seed-ingress");
    let asked = answer(&world, RECORDS, "seed-ingress", None);
    assert_eq!(
        (&asked["spec"]["recordType"], &asked["spec"]["values"]),
        (&json!("CNAME"), &json!(["lb.example.org"]))
    );
    world.wait_until_ready();

    // Without the gateway the record stays; the gateway may come back.
    world.seed.delete("", "services", GATEWAY.0, GATEWAY.1);
    let before = written();
    visible(false);
    world.wait_until_ready();
    assert_eq!(written(), before);

    // The record is deleted with the Seed, and so are the credentials.
    world.garden.merge("", "secrets", ("garden", "dns"), &json!({"data": {"token": "dGhyZWU="}}));
    world.garden.delete(CORE, "seeds", "", world.name);
    wait_until_deleting(&world, RECORDS, "seed-ingress");
    assert_eq!(
        secret(&world, "seed-ingress")["data"],
        json!({"token": "dGhyZWU="}),
        "credentials for the deletion"
    );
    says(
        &world,
        "Processing",
        &["The Seed is still needed by DNSRecord garden/seed-ingress (deleting since"],
    );
    release(&world, RECORDS, "seed-ingress");
    world.garden.wait_for("the end of the Seed", |g| g.seed(world.name).is_none().then_some(()));
    assert_eq!(world.seed.get("", "secrets", "garden", "seed-ingress"), None);
    agent.stop();
}
