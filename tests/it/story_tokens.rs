//! Tokens for Secrets of the seed: the life of WorkloadIdentity tokens and their errors; a thousand tokens that are due
//! at once; faults at each write.

use std::collections::BTreeMap;
use std::time::Duration;

use gardenlet::base::clock::Timestamp;
use serde_json::{Value, json};

use crate::faultpoints::{Fault, FaultPoints, Point};
use crate::story_backups::Lab;
use crate::story_operating::events;
use crate::world::{CORE, Options, World, wait_for};
use support::api::store::Id;
use support::encoding::{base64, from_base64, from_rfc3339, rfc3339};
use support::garden::identity::claims;
use support::garden::kinds::SECURITY;
use support::http::faults::Seen;
use support::http::record::Recorded;
use support::json::{entry, text};

const HOUR: Duration = Duration::from_secs(3_600);
const SECOND: Duration = Duration::from_secs(1);
const IDENTITIES: &str = "workloadidentities";
const IDENTITY_RENEW_AT: &str = "workloadidentity.security.gardener.cloud/token-renew-timestamp";
const RENEW_AT: &str = "serviceaccount.resources.gardener.cloud/token-renew-timestamp";

fn identity(name: &str, config: &Value) -> Value {
    json!({"apiVersion": "security.gardener.cloud/v1alpha1", "kind": "WorkloadIdentity",
        "metadata": {"namespace": "garden", "name": name},
        "spec": {"audiences": ["lab"], "targetSystem": {"type": "lab", "providerConfig": config}}})
}

fn refers_to(name: &str) -> Value {
    json!({"apiVersion": "security.gardener.cloud/v1alpha1", "kind": "WorkloadIdentity", "namespace": "garden", "name": name})
}

/// A Secret of the seed that requests the token of an identity.
fn asks_for(name: &str, identity: &str, context: &Value) -> Value {
    let of = |name: &str| format!("workloadidentity.security.gardener.cloud/{name}");
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "garden", "name": name,
        "labels": {"security.gardener.cloud/purpose": "workload-identity-token-requestor"},
        "annotations": {of("namespace"): "garden", of("name"): identity, of("context-object"): context.to_string()}}})
}

/// A Secret of the seed that requests the token of an account in the garden.
fn access(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace,
        "labels": {"resources.gardener.cloud/purpose": "token-requestor", "resources.gardener.cloud/class": "garden"},
        "annotations": {"serviceaccount.resources.gardener.cloud/name": name}}})
}

fn token(secret: &Value) -> Option<String> {
    String::from_utf8(from_base64(secret["data"]["token"].as_str()?)?).ok()
}

/// The token of a Secret for an identity, and its claims.
fn identity_token(lab: &Lab, secret: &str) -> Option<(String, Value)> {
    let token = token(&lab.secret(secret)?)?;
    let claims = claims(&token)?;
    Some((token, claims))
}

fn renew_at(secret: &Value, annotation: &str) -> Option<Timestamp> {
    from_rfc3339(entry(secret, "/metadata/annotations", annotation)?)
}

fn with_identity(name: &'static str) -> Lab {
    let lab = Lab::prepare_and(
        name,
        &[],
        |config| config["seedConfig"]["spec"]["backup"]["credentialsRef"] = refers_to("cloud"),
        |_, _| {},
    );
    lab.world.wait_until_ready();
    lab
}

/// Lets time pass until a condition holds.
fn wait_over_time<T>(lab: &Lab, what: &str, condition: impl Fn() -> Option<T>) -> T {
    lab.wait_for(what, || {
        lab.world.time.advance(5 * SECOND);
        condition()
    })
}

#[test]
fn a_bucket_has_the_token_of_its_identity() {
    let lab = with_identity("identified");
    let bucket = lab.wait_for_bucket("Error");
    assert!(
        text(&bucket, "/status/lastError/description").contains("refers to WorkloadIdentity garden/cloud")
    );
    assert_eq!(lab.secret(&format!("bucket-{}", lab.bucket)), None);
    let garden = &lab.world.garden;
    let began = lab.world.clock.now().unix();
    garden.apply(&[identity("cloud", &json!({"role": "first"}))]);
    wait_over_time(&lab, "the bucket", || {
        lab.bucket().filter(|bucket| crate::story_backups::is(bucket, "Succeeded"))
    });
    let name = format!("bucket-{}", lab.bucket);
    let (first, said) = lab.wait_for("a token", || identity_token(&lab, &name));
    assert_eq!(
        (text(&said, "/gardener.cloud/workloadIdentity/name"), &said["aud"]),
        ("cloud", &json!(["lab"]))
    );
    assert_eq!(text(&said, "/gardener.cloud/context"), lab.bucket, "in the name of the bucket");
    let secret = lab.secret(&name).unwrap();
    let life = said["exp"].as_i64().unwrap() - said["iat"].as_i64().unwrap();
    assert_eq!(life, 6 * 3_600);
    // Time may pass between the calculation and the token.
    let (due, issued) = (renew_at(&secret, IDENTITY_RENEW_AT).unwrap().unix(), said["iat"].as_i64().unwrap());
    assert!((began + 3 * 3_600..=issued + 3 * 3_600 + 541).contains(&due), "{due}: {began}, {issued}");
    assert_eq!(secret["data"]["config"], base64(br#"{"role":"first"}"#).as_str());

    // The identity's configuration for the target system is copied; the token stays.
    let config = json!({"spec": {"targetSystem": {"providerConfig": {"role": "second"}}}});
    garden.merge(SECURITY, IDENTITIES, ("garden", "cloud"), &config);
    wait_over_time(&lab, "the other configuration", || {
        (lab.secret(&name)?["data"]["config"] == base64(br#"{"role":"second"}"#).as_str()).then_some(())
    });
    assert_eq!(identity_token(&lab, &name).unwrap().0, first);

    // Away until the token is due, and until it has expired.
    let mut before = first;
    for away in [4 * HOUR, 20 * 24 * HOUR] {
        lab.is_away(away);
        before = lab.wait_for("another token", || {
            identity_token(&lab, &name).map(|(token, _)| token).filter(|token| *token != before)
        });
    }

    // Another identity gets another token at once.
    garden.apply(&[identity("other", &Value::Null)]);
    let change = json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}},
        "spec": {"credentialsRef": refers_to("other")}});
    garden.merge(CORE, "backupbuckets", ("", &lab.bucket), &change);
    lab.wait_for("the token of the other identity", || {
        let (_, said) = identity_token(&lab, &name)?;
        (text(&said, "/gardener.cloud/workloadIdentity/name") == "other").then_some(())
    });
    lab.end();
}

#[test]
fn an_identity_without_a_token_is_reported_and_requested_rarely() {
    let lab = with_identity("denied");
    let garden = &lab.world.garden;
    garden.apply(&[identity("cloud", &Value::Null)]);
    wait_over_time(&lab, "the bucket", || {
        lab.bucket().filter(|bucket| crate::story_backups::is(bucket, "Succeeded"))
    });
    let name = format!("bucket-{}", lab.bucket);
    let (first, _) = lab.wait_for("a token", || identity_token(&lab, &name));

    // It is deleted when the token is due: the old one stays.
    garden.merge(SECURITY, IDENTITIES, ("garden", "cloud"), &json!({"metadata": {"finalizers": null}}));
    garden.delete(SECURITY, IDENTITIES, "garden", "cloud");
    lab.is_away(4 * HOUR);
    let told = |lab: &Lab| {
        let is_it =
            |e: &Value| e["regarding"]["kind"] == "BackupBucket" && text(e, "/note").contains("create it");
        let told = events(&lab.world.garden, &lab.bucket, "WorkloadIdentityTokenFailed");
        told.into_iter().find(is_it)
    };
    let event = lab.wait_for("an event", || told(&lab));
    for words in ["WorkloadIdentity garden/cloud", &format!("Secret garden/{name} of the seed")] {
        assert!(text(&event, "/note").contains(words), "{event}");
    }
    assert_eq!(identity_token(&lab, &name).unwrap().0, first);
    let asked = |mark: usize| {
        let all = garden.requests_since(mark);
        all.iter().filter(|r| r.info.resource == IDENTITIES && r.info.subresource == "token").count()
    };
    let mark = garden.request_count();
    for _ in 0..60 {
        lab.world.skip(10 * SECOND);
    }
    assert!(asked(mark) <= 9, "{} requests in ten minutes", asked(mark));
    wait_for("another try", || (asked(mark) > 0).then_some(()));
    garden.apply(&[identity("cloud", &Value::Null)]);
    wait_over_time(&lab, "another token", || {
        identity_token(&lab, &name).filter(|(token, _)| *token != first)
    });

    // Other errors: each is named, with its remedy.
    let context = |uid: &str| json!({"kind": "BackupBucket", "apiVersion": "core.gardener.cloud/v1beta1", "name": lab.bucket, "uid": uid});
    lab.world.seed.apply(&[
        asks_for("of-another", "cloud", &context("wrong")),
        asks_for("of-nobody", "never-referred-to", &context("wrong")),
        asks_for("nameless", "", &context("wrong")),
    ]);
    for words in [
        ["garden/of-another", "differ: check that the object in annotation"],
        ["garden/of-nobody", "check spec.audiences"],
        ["garden/nameless", "does not name a WorkloadIdentity: set its annotation"],
    ] {
        lab.world.wait_for_log(&words);
    }
    // A Secret that names a foreign context delays no other Secret.
    let other = asks_for("also", "cloud", &Value::Null);
    lab.world.seed.apply(&[other]);
    lab.wait_for("a token without a context", || identity_token(&lab, "also"));
    lab.end();
}

const COUNT: usize = 1_000;
const NAMESPACES: usize = 20;

fn extension(n: usize) -> String {
    format!("extension-{:02}", n % NAMESPACES)
}

fn is_used(namespace: &str) -> bool {
    namespace.ends_with(['0', '2', '4', '6', '8'])
}

/// A seed after three weeks without an agent: a thousand expired tokens, half of them in use.
fn leave_behind(world: &World) {
    let now = world.clock.now();
    for n in 0..NAMESPACES {
        let namespace = extension(n);
        world.seed.create("v1", "namespaces", &json!({"metadata": {"name": namespace}}));
        if is_used(&namespace) {
            world.seed.apply(&[json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"namespace": namespace, "name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})]);
        }
    }
    world.seed.store().write(|state| {
        for n in 0..COUNT {
            let (namespace, name) = (extension(n), format!("access-{n:04}"));
            let mut secret = access(&namespace, &name);
            secret["metadata"]["uid"] = json!(format!("u-{n}"));
            secret["metadata"]["creationTimestamp"] = json!(rfc3339(now.minus(500 * HOUR)));
            let due = now.minus(500 * HOUR).minus(Duration::from_secs(n as u64));
            secret["metadata"]["annotations"][RENEW_AT] = json!(rfc3339(due));
            secret["type"] = json!("Opaque");
            secret["data"] = json!({"token": base64(b"expired")});
            drop(state.put(Id::new("", "secrets", &namespace, &name), secret));
        }
    });
}

/// Requests for tokens of accounts since `mark`: their times and accounts.
fn tokens_since(world: &World, mark: usize) -> Vec<(Timestamp, String)> {
    let is_it = |r: &&Recorded| {
        r.info.resource == "serviceaccounts" && r.info.subresource == "token" && r.status == 201
    };
    let all = world.garden.requests_since(mark);
    let mut found: Vec<_> = all.iter().filter(is_it).map(|r| (r.at, r.info.name.clone())).collect();
    found.sort();
    found
}

/// The highest number within this many seconds.
fn most_within(times: &[Timestamp], seconds: u64) -> usize {
    let count = |from: &Timestamp| {
        times.iter().filter(|at| *at >= from && at.since(*from) < Duration::from_secs(seconds)).count()
    };
    times.iter().map(count).max().unwrap_or(0)
}

/// The number of new tokens, and the times of their renewal.
fn renewals(world: &World) -> Vec<Timestamp> {
    let secrets = world.seed.store().all("", "secrets", "");
    let ours = secrets.iter().filter(|secret| text(secret, "/metadata/name").starts_with("access-"));
    let mut found: Vec<_> = ours.filter_map(|secret| renew_at(secret, RENEW_AT)).collect();
    found.retain(|at| *at > world.clock.now());
    found.sort();
    found
}

/// The number of reads of Secrets since `mark`.
fn reads_since(world: &World, mark: usize) -> usize {
    let is_it = |r: &&Recorded| r.info.resource == "secrets" && r.info.name.starts_with("access-");
    world.seed.requests_since(mark).iter().filter(is_it).count()
}

/// Whether no Secret is read for so long.
fn reads_nothing_for(world: &World, time: Duration) -> bool {
    let mark = world.seed.request_count();
    world.let_pass(time);
    reads_since(world, mark) == 0
}

#[test]
fn a_thousand_expired_tokens_are_renewed_in_order() {
    let world = World::start(&Options::new("crowd"));
    leave_behind(&world);
    let mut config = world.config();
    config["leaderElection"] = json!({"leaderElect": false});
    let agent = world.agent_with(&config);
    world.garden.wait_for("the first tokens", |_| (tokens_since(&world, 0).len() >= 100).then_some(()));

    // The garden goes away during the renewals: there are almost no requests.
    world.garden.server().down();
    // A request for a token need not be the first to fail, and later ones are not sent.
    world.wait_for_log(&["WARN", "Cannot renew the seed's lease", "seed=crowd"]);
    assert!((0..30).any(|_| reads_nothing_for(&world, 10 * SECOND)), "the pauses do not grow");
    let (mark, begun) = (world.seed.request_count(), world.clock.mono());
    world.let_pass(120 * SECOND);
    let count = reads_since(&world, mark);
    let minutes = world.minutes_since(begun);
    assert!(count <= 30 * minutes, "{count} reads of Secrets in {minutes} minutes without a garden");
    world.garden.server().up().unwrap();

    wait_for("a thousand tokens", || (renewals(&world).len() == COUNT).then_some(()));
    let asked = tokens_since(&world, 0);
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    asked.iter().for_each(|(_, account)| *times.entry(account).or_default() += 1);
    // A request is repeated if its answer is lost with the garden.
    assert!((COUNT..=COUNT + 10).contains(&asked.len()), "{} requests", asked.len());
    assert_eq!(times.len(), COUNT);
    let at: Vec<Timestamp> = asked.iter().map(|(at, _)| *at).collect();
    // The agent starts five requests a second; on a busy machine a few arrive late.
    let (in_one, in_ten) = (most_within(&at, 1), most_within(&at, 10));
    assert!(in_one <= 10 && in_ten <= 55, "{in_one} within a second, {in_ten} within ten");
    let number = |account: &str| account.trim_start_matches("access-").parse::<usize>().unwrap();
    let used: Vec<bool> = asked.iter().map(|(_, account)| is_used(&extension(number(account)))).collect();
    let late = used[..COUNT / 2].iter().filter(|used| !**used).count();
    assert!(late <= 25, "{late} unused tokens came before others");

    // The next renewals are spread over half an hour.
    let renewals = renewals(&world);
    let (first, last) = (renewals[0], renewals[COUNT - 1]);
    assert!(last.since(first) > HOUR * 25 / 60, "{:?}", last.since(first));
    assert!(most_within(&renewals, 10) <= 30, "{} within ten seconds", most_within(&renewals, 10));
    agent.stop();
}

fn concerns_tokens(seen: &Seen) -> bool {
    ["serviceaccounts", IDENTITIES].contains(&seen.info.resource.as_str())
        && seen.info.name != "gardener-resource-manager"
        || seen.info.resource == "secrets" && ["mine", "identified"].contains(&seen.info.name.as_str())
}

#[test]
fn a_fault_at_any_write_costs_one_request_at_most() {
    let lab = with_identity("broken-off");
    let (world, agent) = (&lab.world, &lab.agent);
    world.garden.apply(&[identity("cloud", &Value::Null)]);
    wait_over_time(&lab, "the bucket", || {
        lab.bucket().filter(|bucket| crate::story_backups::is(bucket, "Succeeded"))
    });
    let good = |before: &[Option<String>; 2]| {
        let now = world.clock.now();
        let mine = lab.secret("mine").filter(|secret| renew_at(secret, RENEW_AT) > Some(now));
        let mine = mine
            .as_ref()
            .and_then(token)
            .filter(|token| world.garden.server().shared.user_of(token).is_some());
        let other = lab.secret("identified").filter(|secret| renew_at(secret, IDENTITY_RENEW_AT) > Some(now));
        let other = other.as_ref().and_then(token);
        let found = [mine, other];
        found.iter().zip(before).all(|(now, before)| now.is_some() && now != before).then_some(found)
    };
    let mut before = [None, None];
    // An account, its token, its Secret, the token of the identity, its Secret.
    for point in 0..5 {
        // Both request their first tokens.
        for name in ["mine", "identified"] {
            if lab.secret(name).is_some() {
                world.seed.delete("", "secrets", "garden", name);
            }
        }
        if world.garden.get("", "serviceaccounts", "seed-broken-off", "mine").is_some() {
            world.garden.delete("", "serviceaccounts", "seed-broken-off", "mine");
        }
        let points =
            FaultPoints::of(world, agent, Some(&Point::number(Fault::KillAfter, point)), concerns_tokens);
        world.seed.apply(&[access("garden", "mine"), asks_for("identified", "cloud", &Value::Null)]);
        before = lab.wait_for(&format!("tokens in spite of an accident at {point}"), || {
            // The effect of a write is visible before the fault that follows it.
            let happened = points.hit().is_some();
            points.restart_if_due();
            happened.then(|| good(&before)).flatten()
        });
        let (writes, hit) = (points.count(Fault::KillAfter), points.hit().unwrap());
        // In the worst case all steps again. Another write may be on its way.
        assert!(writes <= point + 1 + 5 + 1, "{writes} writes after {hit}");
        let account = world.garden.get("", "serviceaccounts", "seed-broken-off", "mine").unwrap();
        assert_eq!(account["automountServiceAccountToken"], false);
    }
    lab.end();
}
