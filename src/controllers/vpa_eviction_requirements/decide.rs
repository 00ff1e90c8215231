//! Whether a VerticalPodAutoscaler may shrink pods now. Pure.

use std::time::Duration;

use serde_json::Value;

use crate::api::meta::annotation;
use crate::base::clock::Timestamp;
use crate::base::json::json;
use crate::shoot::window::DailyWindow;

/// The label of managed autoscalers.
pub(super) const SELECTOR: &str = "autoscaling.gardener.cloud/eviction-requirements=managed-by-controller";
/// When pods may be shrunk.
pub(super) const RESTRICTION: &str = "eviction-requirements.autoscaling.gardener.cloud/downscale-restriction";
/// The maintenance time window of the Shoot.
pub(super) const WINDOW: &str = "shoot.gardener.cloud/maintenance-window";
/// Evictions take a while, so they end this long before the end of the window.
const LAST: Duration = Duration::from_secs(5 * 60);

/// The desired state of an autoscaler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct EvictionPlan {
    /// Pods are evicted only to grow.
    pub(super) grows_only: bool,
    /// When that changes; `None`: never.
    pub(super) until: Option<Timestamp>,
}

/// Decides from the annotations of an autoscaler. Errors: the invalid annotation, and the remedy.
pub(super) fn plan(vpa: &Value, now: Timestamp) -> Result<EvictionPlan, String> {
    let words = "\"never\" or \"in-maintenance-window-only\"";
    match annotation(vpa, RESTRICTION) {
        "never" => Ok(EvictionPlan { grows_only: true, until: None }),
        "in-maintenance-window-only" => {
            let text = annotation(vpa, WINDOW);
            let window = text.split_once(',').and_then(|(begin, end)| DailyWindow::parse(begin, end));
            let window = window.ok_or_else(|| {
                format!("annotation {WINDOW} is {text:?}: set it to <begin>,<end> in the form of 220000+0100,230000+0100")
            })?;
            Ok(within(window, now))
        }
        other => Err(format!("annotation {RESTRICTION} is {other:?}: set it to {words}")),
    }
}

fn within(window: DailyWindow, now: Timestamp) -> EvictionPlan {
    let last = now.plus(LAST);
    if window.contains(last) {
        EvictionPlan { grows_only: false, until: Some(window.end(last)) }
    } else {
        EvictionPlan { grows_only: true, until: Some(window.next_begin(now)) }
    }
}

/// Sets the autoscaler to its desired state.
pub(super) fn apply(plan: EvictionPlan, vpa: &mut Value) {
    let policy = &mut vpa["spec"]["updatePolicy"];
    if plan.grows_only {
        policy["evictionRequirements"] =
            json!([{"resources": ["memory", "cpu"], "changeRequirement": "TargetHigherThanRequests"}]);
    } else if let Some(policy) = policy.as_object_mut() {
        policy.remove("evictionRequirements");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::time::{parse_rfc3339, rfc3339};

    fn vpa(restriction: &str, window: &str) -> Value {
        json!({"metadata": {"annotations": {RESTRICTION: restriction, WINDOW: window}}})
    }

    #[test]
    fn when_pods_may_be_shrunk() {
        let (window, only) = ("220000+0000,230000+0000", "in-maintenance-window-only");
        let table = [
            ("never", window, "01T22:30:00", true, ""),
            ("never", "", "01T22:30:00", true, ""),
            (only, window, "01T12:00:00", true, "01T22:00:00"),
            (only, window, "01T21:54:59", true, "01T22:00:00"),
            (only, window, "01T21:55:00", false, "01T23:00:00"),
            (only, window, "01T22:00:00", false, "01T23:00:00"),
            (only, window, "01T22:55:00", false, "01T23:00:00"),
            (only, window, "01T22:55:01", true, "02T22:00:00"),
            (only, window, "01T23:00:00", true, "02T22:00:00"),
            (only, "233000+0000,003000+0000", "02T00:10:00", false, "02T00:30:00"),
            (only, "233000+0000,003000+0000", "01T23:40:00", false, "02T00:30:00"),
            (only, "003000+0100,013000+0100", "01T23:40:00", false, "02T00:30:00"),
        ];
        for (restriction, window, now, grows_only, until) in table {
            let at = parse_rfc3339(&format!("2026-01-{now}Z")).unwrap();
            let plan = plan(&vpa(restriction, window), at).unwrap();
            let text = plan.until.map(rfc3339).unwrap_or_default();
            let expected = if until.is_empty() { String::new() } else { format!("2026-01-{until}Z") };
            assert_eq!((plan.grows_only, text), (grows_only, expected), "{restriction} {window} {now}");
        }
    }

    #[test]
    fn invalid_annotations_are_named() {
        let only = "in-maintenance-window-only";
        let table = [
            ("", "", RESTRICTION),
            ("always", "", "\"never\""),
            (only, "", WINDOW),
            (only, "220000+0000", "<begin>,<end>"),
            (only, "220000+0000,230000+0000,x", WINDOW),
            (only, "22:00,23:00", WINDOW),
        ];
        for (restriction, window, expected) in table {
            let why = plan(&vpa(restriction, window), Timestamp::default()).unwrap_err();
            assert!(why.contains(expected), "{restriction} {window}: {why}");
        }
        assert!(plan(&json!({}), Timestamp::default()).is_err());
    }

    #[test]
    fn only_the_requirements_change() {
        let grows = EvictionPlan { grows_only: true, until: None };
        let free = EvictionPlan { grows_only: false, until: None };
        let mut vpa = json!({"spec": {"targetRef": {"name": "x"}, "updatePolicy": {"updateMode": "Auto"}}});
        let before = vpa.clone();
        apply(free, &mut vpa);
        assert_eq!(vpa, before);
        apply(grows, &mut vpa);
        let policy = json!({"updateMode": "Auto", "evictionRequirements": [
            {"resources": ["memory", "cpu"], "changeRequirement": "TargetHigherThanRequests"}]});
        assert_eq!(vpa["spec"]["updatePolicy"], policy);
        apply(free, &mut vpa);
        assert_eq!(vpa, before);
    }
}
