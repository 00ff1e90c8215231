//! Eviction requirements of VerticalPodAutoscalers, with the definition that the agent itself brings to the seed.

use gardenlet::api::meta::{Key, Resource};
use gardenlet::base::clock::Clock;
use gardenlet::kube::{Client, Patch};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::failure::{Failure, Result, equal};
use crate::lab::Lab;
use crate::stories::steps::{ready, while_running};
use crate::world::{self, World};

const AUTOSCALER: Resource =
    Resource::new("autoscaling.k8s.io", "v1", "VerticalPodAutoscaler", "verticalpodautoscalers", true);
const RESTRICTION: &str = "eviction-requirements.autoscaling.gardener.cloud/downscale-restriction";
const WINDOW: &str = "shoot.gardener.cloud/maintenance-window";
const NAMESPACE: &str = "garden";
const NAMES: [&str; 4] = ["never", "closed", "open", "others"];
const WITHIN_S: u64 = 90;

/// Pods become smaller in their window or never: after the first start of the agent, and after a restart with changed
/// objects.
pub(crate) fn restricts(lab: &mut Lab) -> Result<()> {
    let _world = World::build(lab)?;
    let mut agent = Agent::start(lab, world::agent(lab, "agent")?)?;
    ready(lab, &mut agent)?;
    let seed = lab.seed.client()?;
    let in_window = |window: &str| json!({RESTRICTION: "in-maintenance-window-only", WINDOW: window});
    for name in NAMES {
        let annotations = match name {
            "closed" => in_window(&window(6)),
            "open" => in_window(&window(0)),
            _ => json!({RESTRICTION: "never"}),
        };
        seed.create::<Value>(&AUTOSCALER, NAMESPACE, &autoscaler(name, &annotations))?;
    }
    // The agent lists them when it starts, and once a minute.
    agent.kill();
    agent.restart()?;
    become_such(&seed, &mut agent, &[grows_only(), grows_only(), Value::Null, Value::Null])?;

    agent.kill();
    let opens = json!({"metadata": {"annotations": in_window(&window(0))}});
    seed.patch::<Value>(&AUTOSCALER, &Key::new(NAMESPACE, "closed"), &Patch::Merge(opens))?;
    let closes = json!({"metadata": {"annotations": in_window(&window(6))}});
    seed.patch::<Value>(&AUTOSCALER, &Key::new(NAMESPACE, "open"), &Patch::Merge(closes))?;
    let free = json!({"spec": {"updatePolicy": {"evictionRequirements": null}}});
    seed.patch::<Value>(&AUTOSCALER, &Key::new(NAMESPACE, "never"), &Patch::Merge(free))?;
    agent.restart()?;
    become_such(&seed, &mut agent, &[grows_only(), Value::Null, grows_only(), Value::Null])?;
    let kept: Value = seed.get(&AUTOSCALER, &Key::new(NAMESPACE, "never"))?;
    equal("the mode", &kept["spec"]["updatePolicy"]["updateMode"], &json!("Auto"))?;
    agent.ensure_running()
}

/// A window of two hours that starts in the given number of hours.
fn window(in_hours: i64) -> String {
    let hour = Clock::system().now().unix().rem_euclid(86_400) / 3_600 + in_hours;
    format!("{:02}0000+0000,{:02}0000+0000", hour % 24, (hour + 2) % 24)
}

fn autoscaler(name: &str, annotations: &Value) -> Value {
    let labels = match name {
        "others" => json!({}),
        _ => json!({"autoscaling.gardener.cloud/eviction-requirements": "managed-by-controller"}),
    };
    json!({"apiVersion": AUTOSCALER.api_version(), "kind": AUTOSCALER.kind,
        "metadata": {"namespace": NAMESPACE, "name": name, "labels": labels, "annotations": annotations},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "updatePolicy": {"updateMode": "Auto"}}})
}

fn grows_only() -> Value {
    json!([{"resources": ["memory", "cpu"], "changeRequirement": "TargetHigherThanRequests"}])
}

/// Waits until each of [`NAMES`] has these requirements.
fn become_such(seed: &Client, agent: &mut Agent, wanted: &[Value; 4]) -> Result<()> {
    while_running("the requirements", WITHIN_S, agent, || {
        for (name, wanted) in NAMES.iter().zip(wanted) {
            let found: Value = seed.get(&AUTOSCALER, &Key::new(NAMESPACE, *name))?;
            let found = &found["spec"]["updatePolicy"]["evictionRequirements"];
            if found != wanted {
                return Err(Failure::new(format!("{name} has {found}")));
            }
        }
        Ok(Some(()))
    })
}
