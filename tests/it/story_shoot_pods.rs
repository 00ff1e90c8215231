//! Settings of a control plane's pods that no webhook of a gardener-resource-manager adds: replicas and a spread that
//! tolerate failures, the time they stay on a lost node, a seccomp profile.

use serde_json::{Value, json};

use crate::world::{Options, World};
use support::shoot::history::wait_until_created;
use support::shoot::object::{PROJECT_NAMESPACE, ShootObject, technical_id};

fn tolerations() -> Value {
    let one = |key: &str, seconds: i64| json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
    json!([one("not-ready", 60), one("unreachable", 90)])
}

#[test]
fn pods_tolerate_failures_as_configured() {
    let world = World::start(&Options::new("failing"));
    let site = world.site();
    for name in ["second", "third"] {
        world.seed.create("v1", "nodes", &json!({"metadata": {"name": name}}));
    }
    let mut config = world.edge_config();
    config["edge"]["exposure"] = json!({"type": "NodePort", "address": "127.0.0.1"});
    config["nodeToleration"] =
        json!({"defaultNotReadyTolerationSeconds": 60, "defaultUnreachableTolerationSeconds": 90});
    config["featureGates"] = json!({"DefaultSeccompProfile": true});
    let agent = world.agent_of(&site, &config);
    agent.launch();
    world.wait_until_ready();
    let mut shoot = ShootObject::workerless("s1").build();
    shoot["spec"]["controlPlane"] = json!({"highAvailability": {"failureTolerance": {"type": "node"}}});
    world.garden.apply(&[shoot]);
    wait_until_created(&world.garden, (PROJECT_NAMESPACE, "s1"));
    for (plural, name, replicas) in [
        ("deployments", "kube-apiserver", 2),
        ("deployments", "kube-controller-manager", 2),
        ("statefulsets", "etcd-main", 1),
    ] {
        let found = world.seed.get("apps", plural, &technical_id("s1"), name).unwrap();
        let pod = &found["spec"]["template"]["spec"];
        assert_eq!(found["spec"]["replicas"], replicas, "{name}");
        assert_eq!(pod["tolerations"], tolerations(), "{name}");
        assert_eq!(pod["securityContext"]["seccompProfile"], json!({"type": "RuntimeDefault"}), "{name}");
        let spread = &pod["topologySpreadConstraints"];
        if replicas == 1 {
            assert_eq!(*spread, Value::Null, "{name}");
            continue;
        }
        assert_eq!(spread.as_array().map(Vec::len), Some(1), "{name}: {spread}");
        assert_eq!(spread[0]["topologyKey"], "kubernetes.io/hostname");
        assert_eq!(
            (&spread[0]["whenUnsatisfiable"], &spread[0]["minDomains"]),
            (&json!("DoNotSchedule"), &json!(2))
        );
    }
    agent.stop();
}
