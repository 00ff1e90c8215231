//! New certificates for an agent that continues to work.

use std::sync::Arc;
use std::time::Duration;

use gardenlet::base::clock::Timestamp;
use gardenlet::pki::PrivateKey;
use gardenlet::pki::request::{self, Subject};
use serde_json::{Value, json};

use crate::charts;
use crate::story_extension::installed;
use crate::story_operating::events;
use crate::world::{Agent, CORE, LEASES, Options, World};
use support::encoding::{base64, from_base64, from_rfc3339};
use support::garden::prepare;
use support::http::faults::Action;
use support::json::text;
use support::pki;

const SECRET: (&str, &str) = ("garden", "gardenlet-kubeconfig");

fn annotate_renew(world: &World) {
    let patch = json!({"metadata": {"annotations": {"gardener.cloud/operation": "renew"}}});
    world.seed.merge("", "secrets", SECRET, &patch);
}

fn wants_renewal(world: &World) -> bool {
    let secret = world.seed.get("", "secrets", SECRET.0, SECRET.1).unwrap();
    secret["metadata"]["annotations"].get("gardener.cloud/operation").is_some()
}

/// Prints the longest time between two renewals of the seed's lease, as the garden's API server saw them.
fn measure_silence(world: &World, limit: Duration) {
    let renewals: Vec<Timestamp> = world
        .garden
        .requests()
        .into_iter()
        .filter(|r| r.is_write() && r.path.contains("/gardener-system-seed-lease/leases") && r.status < 300)
        .map(|r| r.at)
        .collect();
    let longest = renewals.windows(2).map(|pair| pair[1].since(pair[0])).max().unwrap();
    world.measured("the longest gap between two heartbeats", longest, limit);
}

/// The garden considers a seed silent after 40 s; the agent itself does after 20 s.
const LATE: Duration = Duration::from_secs(20);

fn greeting(world: &World, name: &str) -> Option<String> {
    let echo = world.seed.get("example.org", "echoes", &format!("extension-{name}"), "first")?;
    Some(text(&echo, "/spec/text").to_owned())
}

#[test]
fn a_certificate_is_renewed_on_request_while_watches_run() {
    let world = World::start(&Options::calm("renewing"));
    let agent = world.agent();
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    world.wait_until_ready();
    let name = installed(&world, "echo");
    let before = world.certificate_pem().unwrap();
    let lease = leader(&world);
    // A change right after the new certificate is stored, before the watches have moved.
    let store = world.garden.api().clone();
    let change = Action::TellAfter(Arc::new(move |_| {
        let kind = store.kind(CORE, "controllerdeployments").unwrap();
        let target = support::api::Target::new(kind, "", "echo");
        let patch = json!({"helm": {"values": {"greeting": "in between"}}});
        let patch = support::api::write::Patch::Merge(patch);
        store.patch(&target, &patch, &support::api::User::system()).unwrap();
    }));
    world.seed.faults().on("PATCH", "/secrets/gardenlet-kubeconfig").once().then(change);
    annotate_renew(&world);
    world.seed.wait_for("the new certificate", |_| (!wants_renewal(&world)).then_some(()));
    assert_ne!(world.certificate_pem().unwrap(), before);
    world
        .seed
        .wait_for("the change in between", |_| (greeting(&world, &name)? == "in between").then_some(()));
    for n in 0..5 {
        let (word, values) =
            (format!("after {n}"), json!({"helm": {"values": {"greeting": format!("after {n}")}}}));
        world.garden.merge(CORE, "controllerdeployments", ("", "echo"), &values);
        world.seed.wait_for("a later change", |_| (greeting(&world, &name)? == word).then_some(()));
    }
    // The agent itself posted the second request, for the same subject, and it was approved automatically.
    let requests = world.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[1]["spec"]["username"], "gardener.cloud:system:seed:renewing");
    let expires = world.certificate().unwrap().not_after;
    world.garden.wait_for("the new expiry in the Seed's status", |_| {
        let seed = world.garden.seed("renewing")?;
        let says = from_rfc3339(text(&seed, "/status/clientCertificateExpirationTimestamp"));
        (says == Some(expires)).then_some(())
    });
    world.pass(Duration::from_secs(20));
    assert!(agent.is_alive());
    assert_eq!(leader(&world), lease);
    measure_silence(&world, LATE);
    agent.stop();
}

/// The holder of the lease, the time of acquisition, and the number of transitions.
fn leader(world: &World) -> (Value, Value, Value) {
    let lease = world.seed.get(LEASES, "leases", "garden", "gardenlet-leader-election").unwrap();
    let spec = &lease["spec"];
    (spec["holderIdentity"].clone(), spec["acquireTime"].clone(), spec["leaseTransitions"].clone())
}

#[test]
fn a_certificate_is_renewed_between_70_and_90_percent_of_its_life() {
    let world = World::start(&Options::calm("aging"));
    let mut config = world.config();
    config["gardenClientConnection"]["kubeconfigValidity"] = json!({"validity": "10m"});
    let agent = world.agent_with(&config);
    world.wait_until_ready();
    let lease = leader(&world);
    assert_eq!(world.requests()[0]["spec"]["expirationSeconds"], 600);
    // Two renewals: the second shows that the first certificate is like any other.
    for round in 1..=2 {
        let certificate = world.certificate().unwrap();
        let lifetime = certificate.not_after.since(certificate.not_before);
        let percent = lifetime / 100;
        let due = certificate.not_before.plus(percent * 90);
        while world.requests().len() == round && world.clock.now() < due {
            world.pass(Duration::from_secs(10));
        }
        let request = world.garden.wait_for("the request", |_| world.requests().get(round).cloned());
        let posted = from_rfc3339(text(&request, "/metadata/creationTimestamp")).unwrap();
        let age = posted.since(certificate.not_before);
        assert!(age > percent * 69 && posted < certificate.not_after, "{age:?} of {lifetime:?}");
        // Ten seconds between two checks, and some for the requests.
        world.measured("the age of a certificate when it is renewed", age, percent * 93);
        world.garden.wait_for("the new certificate", |_| {
            world.certificate().filter(|c| c.not_after > certificate.not_after)
        });
    }
    // The first certificate has expired by now, without an effect.
    world.pass(Duration::from_secs(60));
    assert!(agent.is_alive());
    assert_eq!(leader(&world), lease);
    measure_silence(&world, LATE);
    agent.stop();
}

#[test]
fn a_new_ca_at_start_does_not_drop_a_request_for_renewal() {
    let world = World::start(&Options::new("trusting"));
    let agent = world.agent();
    world.wait_until_ready();
    let before = world.certificate_pem().unwrap();
    agent.stop();
    annotate_renew(&world);
    // The garden publishes its new CA and still shows a certificate of the old one.
    let old = world.garden.authority();
    world.garden.rotate_ca();
    let year = Duration::from_secs(365 * 86_400);
    let now = world.clock.now();
    world.garden.server().set_identity(&old.server(&[], now.minus(year), now.plus(year)));
    // The agent's own use of the certificate can wait until the test has checked it.
    let hold = world.garden.faults().on("POST", "/certificatesigningrequests").answer(503);
    agent.launch();
    world.seed.wait_for("the new CA in the Secret, besides the old one", |seed| {
        let secret = seed.get("", "secrets", SECRET.0, SECRET.1)?;
        let kubeconfig = from_base64(secret["data"]["kubeconfig"].as_str()?)?;
        let kubeconfig = gardenlet::format::yaml::parse(&String::from_utf8(kubeconfig).unwrap()).unwrap();
        let ca = from_base64(text(&kubeconfig, "/clusters/0/cluster/certificate-authority-data"))?;
        let ca = String::from_utf8(ca).unwrap();
        (ca.contains(world.garden.ca().trim()) && ca.contains(old.certificate().trim())).then_some(())
    });
    assert!(wants_renewal(&world));
    assert_eq!(world.certificate_pem().unwrap(), before);
    world.garden.server().set_identity(&world.garden.authority().server(
        &[],
        now.minus(year),
        now.plus(year),
    ));
    hold.cancel();
    world.seed.wait_for("the new certificate", |_| (!wants_renewal(&world)).then_some(()));
    assert_ne!(world.certificate_pem().unwrap(), before);
    assert_eq!(world.requests().len(), 2);
    world.wait_until_ready();
    agent.stop();
}

/// A certificate from an administrator: because of its names the garden does not approve similar requests.
fn own_kubeconfig(world: &World) -> (String, Subject) {
    let alternative_names = [&[0x30, 18, 0x82, 16][..], b"edge.example.org"].concat();
    let subject = Subject {
        common_name: format!("gardener.cloud:system:seed:{}", world.name),
        organizations: vec!["gardener.cloud:system:seeds".to_owned()],
        alternative_names,
        ..Subject::default()
    };
    let key = PrivateKey::generate().unwrap();
    let request = request::build(&subject, &key).unwrap();
    let (from, hour) = (world.clock.now().minus(Duration::from_secs(60)), Duration::from_secs(3_600));
    let certificate = world.garden.authority().sign(&request.pem, from, from.plus(hour)).unwrap();
    let user = json!({"client-certificate-data": base64(certificate.as_bytes()),
        "client-key-data": base64(key.to_pem().expose().as_bytes())});
    let cluster = json!({"server": world.garden.url(), "certificate-authority-data": base64(world.garden.ca().as_bytes())});
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "own",
        "clusters": [{"name": "own", "cluster": cluster}], "users": [{"name": "own", "user": user}],
        "contexts": [{"name": "own", "context": {"cluster": "own", "user": "own"}}]});
    (kubeconfig.to_string(), subject)
}

#[test]
fn a_custom_certificate_is_renewed_after_an_approval() {
    let world = World::start(&Options::calm("owning"));
    // SeedAuthorizer and SeedRestriction refuse requests with names, and not all gardens have them.
    world.garden.lift_restriction();
    world.garden.apply(&prepare::without_authorizer());
    let (kubeconfig, subject) = own_kubeconfig(&world);
    let mut config = world.config();
    config["gardenClientConnection"] = json!({
        "kubeconfig": world.file("garden.kubeconfig", &kubeconfig),
        "kubeconfigSecret": {"name": "gardenlet-kubeconfig", "namespace": "garden"},
        "kubeconfigValidity": {"autoRotationJitterPercentageMin": 1, "autoRotationJitterPercentageMax": 2},
    });
    // A quarter of an hour has to pass: fewer heartbeats make the test shorter.
    config["controllers"] = json!({"seed": {"leaseResyncSeconds": 10}});
    config["leaderElection"] = json!({"leaseDuration": "60s", "renewDeadline": "40s", "retryPeriod": "10s"});
    let pass = || world.pass_by(Duration::from_secs(10), Duration::from_secs(20));
    let agent = Agent::new(&world, "host-1", &config, world.pod());
    agent.launch();
    world.wait_until_ready();
    assert!(world.seed.get("", "secrets", "garden", "gardenlet-kubeconfig-bootstrap").is_some());
    while world.requests().is_empty() {
        pass();
    }
    let first = world.requests()[0].clone();
    let pem = from_base64(text(&first, "/spec/request")).unwrap();
    let (asked, has_names) = pki::request_subject(&String::from_utf8(pem).unwrap()).unwrap();
    assert_eq!((asked.common_name, asked.organizations), (subject.common_name, subject.organizations));
    assert!(has_names, "the new request has the names of the current certificate");
    // It is not approved. After a quarter of an hour the agent gives it up, and posts another one.
    let posted = from_rfc3339(text(&first, "/metadata/creationTimestamp")).unwrap();
    while world.requests().len() == 1 && world.clock.now().since(posted) < Duration::from_secs(15 * 60) {
        pass();
    }
    let second = world.garden.wait_for("another request", |_| world.requests().get(1).cloned());
    let patience = from_rfc3339(text(&second, "/metadata/creationTimestamp")).unwrap().since(posted);
    assert!(patience >= Duration::from_secs(15 * 60), "{patience:?}");
    assert_ne!(second["spec"]["request"], first["spec"]["request"]);
    // Alerts of Gardener use this event, in the seed.
    let told = world.seed.wait_for("the event of the failed rotation", |seed| {
        events(seed, world.name, "GardenletCertificateRotationFailed").pop()
    });
    assert_eq!((text(&told, "/type"), text(&told, "/metadata/namespace")), ("Warning", "default"));
    assert_eq!((text(&told, "/regarding/kind"), text(&told, "/action")), ("Seed", "Reconcile"));
    assert_eq!(text(&told, "/reportingController"), "certificate-manager");
    let words = "Failed to rotate the kubeconfig for the Garden API Server. Certificate expires in ";
    assert!(text(&told, "/note").starts_with(words), "{told}");
    world.decide(text(&second, "/metadata/name"), "Approved", "by hand");
    world.seed.wait_for("the certificate in its Secret", |_| world.certificate());
    pass();
    assert!(agent.is_alive());
    measure_silence(&world, 2 * LATE);
    agent.stop();
}

/// A new certificate comes with a connection that cannot be used; once the connection is corrected, the certificate is
/// used.
#[test]
fn a_connection_that_cannot_be_used_is_tried_again() {
    let world = World::start(&Options::calm("mistyped"));
    let agent = world.agent();
    world.wait_until_ready();
    let user = "gardener.cloud:system:seed:mistyped";
    let right = world.garden.kubeconfig_for(user, &["gardener.cloud:system:seeds"]);
    let wrong = right.replacen("https://", "https://me:hunter2@", 1);
    let supply = |kubeconfig: &str| {
        let data = json!({"data": {"kubeconfig": base64(kubeconfig.as_bytes())}});
        world.seed.merge("", "secrets", SECRET, &data);
    };
    supply(&wrong);
    let problem = agent.wait_for_problem("garden certificate", &["connect to the garden", "without user"]);
    assert!(!problem.contains("hunter2"), "{problem}");
    world.pass(Duration::from_secs(30));
    // No certificate was due: alerts would report the wrong problem.
    assert!(events(&world.seed, "mistyped", "GardenletCertificateRotationFailed").is_empty());
    assert!(
        agent
            .get(2728, "/statusz")
            .1
            .contains("garden certificate: watched\n    problem: connect to the garden")
    );
    supply(&right);
    world.wait_for_log(&["INFO", "Using another certificate", "seed=mistyped"]);
    let expires = world.certificate().unwrap().not_after;
    world.garden.wait_for("the new expiry in the Seed's status", |_| {
        let seed = world.garden.seed("mistyped")?;
        let says = from_rfc3339(text(&seed, "/status/clientCertificateExpirationTimestamp"));
        (says == Some(expires)).then_some(())
    });
    agent.wait_until_no_problem("garden certificate");
    measure_silence(&world, LATE);
    agent.stop();
}

/// The garden got another name; an operator writes it into the Secret, and does not change the certificate.
#[test]
fn an_address_that_an_operator_writes_is_used() {
    let world = World::start(&Options::calm("readdressed"));
    let agent = world.agent();
    world.wait_until_ready();
    let before = world.certificate().unwrap().not_after;
    let secret = world.seed.get("", "secrets", SECRET.0, SECRET.1).unwrap();
    let kubeconfig = from_base64(text(&secret, "/data/kubeconfig")).unwrap();
    let address = world.garden.url();
    let other = address.replace("127.0.0.1", "localhost");
    let kubeconfig = String::from_utf8(kubeconfig).unwrap().replace(&address, &other);
    assert!(kubeconfig.contains(&other), "{kubeconfig}");
    let data = json!({"data": {"kubeconfig": base64(kubeconfig.as_bytes())}});
    world.seed.merge("", "secrets", SECRET, &data);
    let words = ["INFO", "Using another address or trust", "seed=readdressed", &other];
    world.wait_for_log(&words);
    let since = world.clock.now();
    world.garden.wait_for("a heartbeat", |_| world.beat().filter(|beat| *beat > since));
    agent.wait_until_no_problem("garden certificate");
    assert_eq!(world.certificate().unwrap().not_after, before);
    assert!(events(&world.garden, "readdressed", "CertificateRenewed").is_empty());
    agent.stop();
}
