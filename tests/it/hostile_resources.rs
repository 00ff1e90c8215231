//! Harmful ManagedResources in a run of the program as a process. Each of them gets a condition that names its problem,
//! and none needs much memory. The agent applies a good one beside them.

use std::time::Duration;

use gardenlet::format::{base64, brotli};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::Process;
use crate::story_outside::files;
use crate::world::{MANAGED_RESOURCES, Options, World, condition, wait_for};
use support::{TestCluster, pace};

/// The memory that the agent may keep above its idle memory while it uses no large piece.
const KEPT_KIB_MAX: u64 = 16 << 10;

/// The memory that the agent may use above its idle memory. The allocator of the released program returns more memory
/// than the system's allocator does.
const GROWTH_KIB_MAX: u64 = if cfg!(target_env = "musl") { 24 << 10 } else { 32 << 10 };

fn config_map(name: &str, data: &Value) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "garden"}, "data": data})
        .to_string()
}

/// A stream of `{}` as the reference encoder packs it: 55 bytes for 33,554,432.
fn packed_braces() -> Vec<u8> {
    base64::decode(b"y///P/il9vrisjAA9/5P/v//wS8BEIcFALr3f/z//4NfAiAOCwB07//y//8PvwRAHBYA6N7/AQ==").unwrap()
}

struct Case {
    name: &'static str,
    key: &'static str,
    value: Vec<u8>,
    /// Of `ResourcesApplied`.
    reason: &'static str,
    words: &'static str,
}

fn plain(name: &'static str, value: impl Into<Vec<u8>>, reason: &'static str, words: &'static str) -> Case {
    Case { name, key: "data.yaml", value: value.into(), reason, words }
}

fn packed(name: &'static str, value: &[u8], reason: &'static str, words: &'static str) -> Case {
    Case { name, key: "data.yaml.br", value: brotli::encode(value), reason, words }
}

const DECODING: &str = "DecodingFailed";
const APPLY: &str = "ApplyFailed";

fn cases() -> Vec<Case> {
    let map = config_map("x", &json!({"a": "b"}));
    let items = vec![json!({"a": 1}); 30_000];
    let maps = |n: usize| vec![json!({"a": 1}); n];
    let object = |value: &Value| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "garden"}, "data": value})
            .to_string()
    };
    let anchors = (0..100).fold(String::new(), |text, n| format!("{text}&a{n} ["))
        + &"1,".repeat(9_000)
        + &"]".repeat(100);
    let lol = (1..9).fold("a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, n| {
        let aliases = vec![format!("*a{}", n - 1); 9].join(",");
        format!("{text}a{n}: &a{n} [{aliases}]\n")
    });
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(500_000), "*a,".repeat(100_000));
    vec![
        Case {
            name: "braces",
            key: "data.yaml.br",
            value: packed_braces(),
            reason: DECODING,
            words: "a document of more than 3145728 bytes",
        },
        plain("many", "{}".repeat(500_000), DECODING, "it has more than 2000 documents"),
        plain("many-yaml", "a: 1\n---\n".repeat(100_000), DECODING, "it has more than 2000 documents"),
        plain("many-broken", "a: [\n---\n".repeat(1_500), DECODING, "; and 1495 more"),
        plain(
            "many-maps",
            format!("{map}\n---\n").repeat(2_500),
            DECODING,
            "it has more than 2000 documents",
        ),
        packed("separators", &b"---\n".repeat(250_000), "ApplySucceeded", "All resources are applied."),
        plain("nodes", object(&json!(items)), DECODING, "more than 60000 values"),
        plain("maps", object(&json!(maps(19_000))), DECODING, "more than 24 MiB of memory"),
        plain("deep", format!("a: {}{}", "[".repeat(400_000), "]".repeat(400_000)), DECODING, "128 levels"),
        plain(
            "deep-json",
            format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000)),
            DECODING,
            "128 levels",
        ),
        plain("laughs", lol, DECODING, "more than 60000 values"),
        plain("long-aliases", long, DECODING, "more than 60000 values"),
        plain("anchors", anchors, DECODING, "more than 60000 values"),
        plain(
            "scalar",
            object(&json!({"a": "x".repeat(900_000)})),
            "ApplySucceeded",
            "All resources are applied.",
        ),
        plain(
            "list",
            json!({"apiVersion": "v1", "kind": "List", "items": maps(100)}).to_string(),
            APPLY,
            "metadata.name is missing",
        ),
        plain("braces-few", "{}{}{}", APPLY, "apiVersion is missing"),
        plain(
            "long-kind",
            json!({"apiVersion": "v1", "kind": "K".repeat(500_000), "metadata": {"name": "x"}}).to_string(),
            APPLY,
            "error during apply",
        ),
        plain("unknown-anchor", format!("a: *{}", "x".repeat(500_000)), DECODING, "unknown anchor"),
        Case {
            name: "window",
            key: "data.yaml.br",
            // A window of 1 GiB, which RFC 7932 does not allow; then one of 16 MiB.
            value: vec![0x11, 30, 0, 0],
            reason: DECODING,
            words: "broken brotli stream",
        },
        Case {
            name: "wide",
            key: "data.yaml.br",
            value: vec![0x0f, 0, 0, 0],
            reason: DECODING,
            words: "its Brotli window has more than 8 MiB",
        },
        plain("labels", labelled(), DECODING, "are more than 40000 values"),
        Case {
            name: "broken",
            key: "data.yaml.br",
            value: [vec![0x1b], vec![0xff; 100_000]].concat(),
            reason: DECODING,
            words: "broken brotli stream",
        },
    ]
}

/// Few objects whose labels and annotations would fill the status.
fn labelled() -> String {
    let annotations: serde_json::Map<_, _> = (0..11_000).map(|n| (format!("a{n}"), json!("b"))).collect();
    let object = |name: &str| {
        let metadata = json!({"name": name, "namespace": "garden", "annotations": annotations});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}).to_string()
    };
    format!("{}\n---\n{}", object("first"), object("second"))
}

fn install(world: &World, name: &str, data: &Value, references: &Value) {
    let metadata = json!({"name": name, "namespace": "garden"});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data});
    world.seed.create("v1", "secrets", &secret);
    let object = json!({"apiVersion": "resources.gardener.cloud/v1alpha1", "kind": "ManagedResource", "metadata": metadata,
        "spec": {"class": "seed", "secretRefs": references}});
    world.seed.create("resources.gardener.cloud/v1alpha1", "managedresources", &object);
}

fn applied(world: &World, name: &str) -> Option<(String, String)> {
    let object = world.seed.get(MANAGED_RESOURCES, "managedresources", "garden", name)?;
    let (status, reason, message) = condition(&object, "ResourcesApplied")?;
    (status != "Progressing").then_some((reason, message))
}

/// Waits as long as a busy machine needs to read all large objects, even again after the agent has lost its Lease.
fn wait_long<T>(world: &World, what: &str, look: impl Fn(&TestCluster) -> Option<T>) -> T {
    let found = world.seed.wait_on(&pace::clock(), Duration::from_secs(180), look);
    found.unwrap_or_else(|| panic!("waited in vain for {what}"))
}

#[test]
fn hostile_managed_resources_need_little_memory_and_report_the_error() {
    let world = World::start(&Options::real("hostile"));
    let (garden, seed) = files(&world);
    let variables = [("GARDEN_KUBECONFIG", &*garden), ("KUBECONFIG", &*seed)];
    let mut process = Process::start_with(&world, &variables);
    world.wait_until_ready();
    let good = |name: &str| {
        install(
            &world,
            name,
            &json!({"k": base64::encode(config_map(name, &json!({"a": "b"})).as_bytes())}),
            &json!([{"name": name}]),
        );
        wait_long(&world, name, |seed| seed.get("", "configmaps", "garden", name));
    };
    good("good");
    let idle = process.memory("VmRSS:");
    process.forget_peak();
    let judge = |process: &Process, name: &str| {
        let peak = process.memory("VmHWM:");
        // Shown if the test fails.
        println!("{name}: {} KiB", peak.saturating_sub(idle));
        assert!(peak < idle + GROWTH_KIB_MAX, "{name}: from {idle} KiB to {peak} KiB");
    };
    for case in cases() {
        let Case { name, key, value, reason, words } = case;
        install(&world, name, &json!({key: base64::encode(&value)}), &json!([{"name": name}]));
        let (found, message) = wait_long(&world, name, |_| applied(&world, name));
        assert!(found == reason && message.contains(words), "{name}: {found}: {message}");
        assert!(message.len() <= 2_048, "{name}: {} bytes", message.len());
        judge(&process, name);
    }
    // Keys, and the same Secret again and again.
    let keys: serde_json::Map<_, _> = (0..20_000).map(|n| (format!("k{n}"), json!(""))).collect();
    install(&world, "keys", &Value::Object(keys), &json!([{"name": "keys"}]));
    let (reason, message) = wait_long(&world, "keys", |_| applied(&world, "keys"));
    assert!(reason == "CannotReadSecret" && message.contains("more than 5000 keys"), "{reason}: {message}");
    let half = base64::encode(&"# nothing\n".repeat(90_000).into_bytes());
    install(&world, "again", &json!({"k": half}), &json!(vec![json!({"name": "again"}); 100]));
    let (reason, message) = wait_long(&world, "again", |_| applied(&world, "again"));
    assert!(reason == DECODING && message.contains("more than 8388608 bytes"), "{reason}: {message}");
    judge(&process, "the same Secret");
    // One that is itself too large, until it is repaired.
    let many = Value::Array((0..50_000).map(|n| json!({"name": format!("s{n}")})).collect());
    let good_data = json!({"k": base64::encode(config_map("large", &json!({})).as_bytes())});
    install(&world, "large", &good_data, &many);
    let (reason, message) = wait_long(&world, "large", |_| applied(&world, "large"));
    assert!(reason == DECODING && message.contains("more than 50000 values"), "{reason}: {message}");
    let repair = json!({"spec": {"secretRefs": [{"name": "large"}]}});
    world.seed.merge(MANAGED_RESOURCES, "managedresources", ("garden", "large"), &repair);
    wait_long(&world, "its objects", |seed| seed.get("", "configmaps", "garden", "large"));
    // Just small enough to be watched and read: alone, and several of them at once.
    let names: Vec<String> = (0..10).map(|n| format!("almost-{n}")).collect();
    for (group, count) in [(&names[..1], 19_000), (&names[1..2], 15_000), (&names[2..], 15_000)] {
        let almost = Value::Array((0..count).map(|n| json!({"name": format!("s{n}")})).collect());
        group.iter().for_each(|name| install(&world, name, &json!({}), &almost));
        for name in group {
            let (reason, message) = wait_long(&world, name, |_| applied(&world, name));
            let words = if count > 16_000 { "more than 50000 values" } else { "more than 6 MiB" };
            assert!(reason == DECODING && message.contains(words), "{reason}: {message}");
        }
        judge(&process, "almost too large");
    }
    // Repeated requests for a round make no difference.
    let asking = json!({"metadata": {"annotations": {"gardener.cloud/operation": "reconcile"}}});
    install(&world, "stays-large", &json!({}), &many);
    wait_long(&world, "stays-large", |_| applied(&world, "stays-large"));
    world.seed.merge(MANAGED_RESOURCES, "managedresources", ("garden", "stays-large"), &asking);
    install(&world, "stays-large-too", &json!({}), &many);
    wait_long(&world, "stays-large-too", |_| applied(&world, "stays-large-too"));
    let version = || {
        let object = world.seed.get(MANAGED_RESOURCES, "managedresources", "garden", "stays-large");
        object.map(|object| object["metadata"]["resourceVersion"].clone())
    };
    let told = version();
    judge(&process, "a large object");
    good("good-as-well");
    judge(&process, "all");
    assert_eq!(version(), told, "the condition is written once");
    if cfg!(target_env = "musl") {
        // The agent retries the broken ones with pauses.
        wait_for("memory to be released", || (process.memory("VmRSS:") < idle + KEPT_KIB_MAX).then_some(()));
    }
    // After a restart the agent finds all of them in one list.
    process.signal(Signal::TERM);
    process.0.wait().unwrap();
    process = Process::start_with(&world, &variables);
    good("good-later");
    judge(&process, "a restart");
}
