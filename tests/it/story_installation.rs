//! What a ControllerDeployment can request besides a chart: values from Secrets of the garden, and access to the
//! garden.

use gardenlet::format::yaml;
use serde_json::{Value, json};

use crate::charts;
use crate::story_extension::installed;
use crate::world::{CORE, MANAGED_RESOURCES, Options, World, wait_for};
use support::encoding::{base64, from_base64, from_rfc3339};
use support::garden::prepare;
use support::json::text;

const DEPLOYMENTS: &str = "controllerdeployments";
const COLLECTABLE: &str = "resources.gardener.cloud/garbage-collectable-reference";
const ROLE: &str = "gardener.cloud/role";

/// An extension whose deployment requests more.
fn extension(values: &Value, more: &Value) -> Vec<Value> {
    let mut objects = prepare::extension("echo", &charts::extension(), values);
    for (key, value) in more.as_object().unwrap() {
        objects[0][key] = value.clone();
    }
    objects
}

fn decoded(secret: &Value, key: &str) -> Option<String> {
    String::from_utf8(from_base64(secret["data"][key].as_str()?)?).ok()
}

/// A role for Secret `words`.
fn readable_words() -> [Value; 2] {
    let group = "rbac.authorization.k8s.io";
    let metadata = json!({"name": "words", "namespace": "garden"});
    let rule =
        json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["words"], "verbs": ["get"]});
    let seeds = json!({"kind": "Group", "apiGroup": group, "name": "gardener.cloud:system:seeds"});
    [
        json!({"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata, "rules": [rule]}),
        json!({"apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata, "subjects": [seeds],
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "words"}}),
    ]
}

#[test]
fn values_come_from_secrets_of_the_garden() {
    let world = World::start(&Options::new("templated"));
    let agent = world.agent();
    world.garden.apply(&[
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "words", "namespace": "garden"},
        "stringData": {"hello": "good day"}}),
    ]);
    let reference =
        json!({"name": "w", "resourceRef": {"apiVersion": "v1", "kind": "Secret", "name": "words"}});
    let values = json!({"greeting": "{{ .resources.w.data.hello }}"});
    // SeedAuthorizer knows what a deployment names only if its chart is in a registry.
    world.garden.apply(&readable_words());
    world.garden.apply(&extension(&values, &json!({"resources": [reference]})));
    let refused = |reason: &str| {
        world.garden.wait_for(&format!("Valid=False, {reason}"), |_| {
            world.installation_condition("echo", "Valid").filter(|c| c.0 == "False" && c.1 == reason)
        })
    };
    let (_, _, message) = refused("RenderingHelmValuesFailed");
    assert!(message.contains("does not have the label") && message.contains("garden/words"), "{message}");
    let label = json!({"metadata": {"labels": {ROLE: "resource-reference"}}});
    world.garden.merge("", "secrets", ("garden", "words"), &label);
    let name = installed(&world, "echo");
    let namespace = format!("extension-{name}");
    let greets = |greeting: &str| {
        world.seed.wait_for(greeting, |seed| {
            let map = seed.get("", "configmaps", &namespace, "echo")?;
            (map["data"]["greeting"] == greeting).then_some(())
        });
    };
    greets("good day");
    // The Secret changes, and so do the objects.
    let night = json!({"stringData": {"hello": "good night"}});
    world.garden.merge("", "secrets", ("garden", "words"), &night);
    greets("good night");
    let patch = json!({"helm": {"values": {"greeting": "{{ .resources.w.data.nothing }}"}}});
    world.garden.merge(CORE, DEPLOYMENTS, ("", "echo"), &patch);
    let (_, _, message) = refused("RenderingHelmValuesFailed");
    assert!(
        message.ends_with(
            "greeting: template: values:1:13: executing \"values\" at <.resources.w.data.nothing>: \
        map has no entry for key \"nothing\""
        ),
        "{message}"
    );
    greets("good night");
    agent.stop();
}

#[test]
fn an_extension_gets_access_to_the_garden() {
    let world = World::start(&Options::new("reaching"));
    let agent = world.agent();
    world.garden.apply(&extension(&json!({"greeting": "hello"}), &json!({"injectGardenKubeconfig": true})));
    let name = installed(&world, "echo");
    let namespace = format!("extension-{name}");
    let deployment = world.seed.get("apps", "deployments", &namespace, "echo").unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    let volume = &pod["volumes"][0];
    assert_eq!(volume["name"], "garden-kubeconfig");
    let generic = text(volume, "/projected/sources/0/secret/name");
    assert!(generic.starts_with("generic-garden-kubeconfig-"), "{generic}");
    assert_eq!(text(volume, "/projected/sources/1/secret/name"), "garden-access-extension");
    let path = "/var/run/secrets/gardener.cloud/garden/generic-kubeconfig";
    let container = &pod["containers"][0];
    assert_eq!(
        container["env"],
        json!([{"name": "GARDEN_KUBECONFIG", "value": format!("{path}/kubeconfig")}, {"name": "SEED_NAME", "value": "reaching"}])
    );
    assert_eq!(
        container["volumeMounts"],
        json!([{"mountPath": path, "name": "garden-kubeconfig", "readOnly": true}])
    );
    let secret = world.seed.get("", "secrets", &namespace, generic).unwrap();
    assert_eq!(secret["immutable"], true);
    let config = yaml::parse(&decoded(&secret, "kubeconfig").unwrap()).unwrap();
    assert_eq!(text(&config, "/clusters/0/cluster/server"), world.garden.url());
    assert_eq!(text(&config, "/users/0/user/tokenFile"), format!("{path}/token"));

    token_is_good(&world, &namespace);
    let account = world.garden.get("", "serviceaccounts", "seed-reaching", &namespace).unwrap();
    assert_eq!(
        account["metadata"]["labels"],
        json!({"controllerregistration.core.gardener.cloud/name": "echo"})
    );
    assert_eq!(account["automountServiceAccountToken"], false);

    let without = json!({"injectGardenKubeconfig": null});
    world.garden.merge(CORE, DEPLOYMENTS, ("", "echo"), &without);
    world.seed.wait_for("the end of the access", |seed| {
        let deployment = seed.get("apps", "deployments", &namespace, "echo")?;
        let volumes = deployment.pointer("/spec/template/spec/volumes");
        let secret = seed.get("", "secrets", &namespace, "garden-access-extension");
        (volumes.is_none() && secret.is_none()).then_some(())
    });
    world.garden.delete(CORE, "controllerregistrations", "", "echo");
    world.garden.wait_for("the end of the installation and its account", |garden| {
        let account = garden.get("", "serviceaccounts", "seed-reaching", &namespace);
        (garden.installations("echo").is_empty() && account.is_none()).then_some(())
    });
    agent.stop();
}

/// The token in the extension's Secret belongs to its account in the garden. The agent replaces it in time, and also
/// after a client has changed it.
fn token_is_good(world: &World, namespace: &str) {
    let name = "garden-access-extension";
    let token = |other_than: &str| {
        world.seed.wait_for("a token of the garden", |seed| {
            let secret = seed.get("", "secrets", namespace, name)?;
            let token = decoded(&secret, "token").filter(|token| token != other_than && token != "spoilt")?;
            let claims = from_base64(token.split('.').nth(1)?)?;
            let claims: Value = serde_json::from_slice(&claims).ok()?;
            (claims["sub"] == format!("system:serviceaccount:seed-reaching:{namespace}")).then_some(token)
        })
    };
    let first = token("");
    let key = "serviceaccount.resources.gardener.cloud/token-renew-timestamp";
    let secret = world.seed.get("", "secrets", namespace, name).unwrap();
    let due = from_rfc3339(secret["metadata"]["annotations"][key].as_str().unwrap()).unwrap();
    let hours = due.since(world.clock.now()).as_secs_f64() / 3_600.0;
    assert!((9.0..10.1).contains(&hours), "80 % of 12 h, plus up to 5 %: {hours}");
    let past = json!({"metadata": {"annotations": {key: "2020-01-01T00:00:00Z"}}});
    world.seed.merge("", "secrets", (namespace, name), &past);
    let second = token(&first);
    world.seed.merge("", "secrets", (namespace, name), &json!({"data": {"token": base64(b"spoilt")}}));
    token(&second);
}

#[test]
fn a_bad_chart_leaves_the_last_good_one_running() {
    let world = World::start(&Options::new("steady"));
    let agent = world.agent();
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    let name = installed(&world, "echo");
    let managed =
        || world.seed.get(MANAGED_RESOURCES, "managedresources", "garden", &name).unwrap()["spec"].clone();
    let before = managed();
    let set =
        "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: x, namespace: {{ .Release.Namespace }}}\n";
    let large = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: x}}\ndata: {{a: {}}}\n",
        "x".repeat(1 << 20)
    );
    let bad = [
        ("{{ fail \"no\" }}", "chart rendering process failed: "),
        (
            set,
            "failed to inject the environment: environment cannot be injected into objects of kind ReplicaSet",
        ),
        (large.as_str(), "the rendered manifests have "),
    ];
    for (template, expected) in bad {
        let chart = base64(&charts::archive("extension-echo", &[("templates/a.yaml", template)]));
        world.garden.merge(CORE, DEPLOYMENTS, ("", "echo"), &json!({"helm": {"rawChart": chart}}));
        wait_for(expected, || {
            let valid = world.installation_condition("echo", "Valid")?;
            (valid.0 == "False" && valid.1 == "ChartCannotBeRendered" && valid.2.starts_with(expected))
                .then_some(())
        });
        assert_eq!(managed(), before);
        let condition = world.installation_condition("echo", "Installed").unwrap();
        assert_eq!((condition.0.as_str(), condition.1.as_str()), ("True", "InstallationSuccessful"));
    }
    // As an older agent would have left it: it must be deleted as garbage, too.
    let old = text(&before, "/secretRefs/0/name");
    let unlabelled = json!({"metadata": {"labels": {COLLECTABLE: null}}});
    world.seed.merge("", "secrets", ("garden", old), &unlabelled);
    let good = json!({"helm": {"rawChart": base64(&charts::extension()), "values": {"greeting": "again"}}});
    world.garden.merge(CORE, DEPLOYMENTS, ("", "echo"), &good);
    assert_eq!(installed(&world, "echo"), name);
    world.seed.wait_for("the good chart", |_| (managed() != before).then_some(()));
    let secret = world.seed.get("", "secrets", "garden", old).unwrap();
    assert_eq!(secret["metadata"]["labels"], json!({COLLECTABLE: "true"}));
    agent.stop();
}

#[test]
fn a_deployment_of_the_old_version_is_installed() {
    let world = World::start(&Options::new("legacy"));
    let agent = world.agent();
    let mut objects = prepare::extension("echo", &charts::extension(), &json!({}));
    objects[0] = json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "ControllerDeployment",
        "metadata": {"name": "echo"}, "type": "helm",
        "providerConfig": {"chart": base64(&charts::extension()), "values": {"greeting": "old"}}});
    world.garden.apply(&objects);
    let namespace = format!("extension-{}", installed(&world, "echo"));
    let map = world.seed.get("", "configmaps", &namespace, "echo").unwrap();
    assert_eq!(map["data"], json!({"greeting": "old"}));
    agent.stop();
}

#[test]
fn a_deployment_without_a_chart_is_ignored() {
    let world = World::start(&Options::new("custom"));
    let agent = world.agent();
    let mut objects = prepare::extension("custom", &charts::extension(), &json!({}));
    objects[0] = json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "ControllerDeployment",
        "metadata": {"name": "custom"}, "type": "flux", "providerConfig": {"any": "thing"}});
    world.garden.apply(&objects);
    // This one sorts after the other one; when it exists, the agent has checked the other one.
    world.extend("echo", &charts::extension(), &json!({"greeting": "hello"}));
    installed(&world, "echo");
    world.garden.wait_for("Required", |_| world.installation_condition("custom", "Required"));
    let installation = &world.garden.installations("custom")[0];
    assert_eq!(installation["metadata"].get("finalizers"), None);
    assert_eq!(world.installation_condition("custom", "Valid"), None);
    agent.stop();
}
