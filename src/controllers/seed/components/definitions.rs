//! Custom resource definitions: Gardener's, and those of other projects that its extensions need.

use std::time::Duration;

use serde_json::Value;

use crate::api::crd::CUSTOM_RESOURCE_DEFINITION;
use crate::api::meta::{Key, Metadata};
use crate::base::backoff::delay_after;
use crate::components::crds::Foreign;
use crate::components::{crds, install};
use crate::controllers::site::is_garden;
use crate::flow::{Attempt, Failed, TaskStep};

use super::super::work::{Row, SeedTaskFacts, Work, has_own_vpa};
use super::component::SeedComponent;

/// Definitions take a fraction of a second, unless another owner's definitions conflict.
const DEFINITIONS_WITHIN: Duration = Duration::from_secs(30);

pub(super) static COMPONENT: SeedComponent = SeedComponent {
    managed_resource: None,
    rows: &[
        Row::new("Deploying custom resource definitions", install_own, ())
            .when(SeedTaskFacts::is_complete)
            .within(DEFINITIONS_WITHIN),
        Row::new("Deploying custom resource definitions of other projects", install_foreign, ())
            .when(SeedTaskFacts::is_complete)
            .within(DEFINITIONS_WITHIN),
        Row::new("Looking for VerticalPodAutoscaler", |work, _| require_vpa(work), ())
            .when(|facts| facts.is_complete && !facts.has_own_vpa),
    ],
};

fn install_own(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    let is_garden = is_garden(&work.site.seed)?;
    install_definitions(work, attempt, crds::own(is_garden))
}

fn install_foreign(work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
    let wanted = Foreign {
        is_garden: is_garden(&work.site.seed)?,
        vpa: has_own_vpa(&work.live) && !work.lacks("vpa-crds"),
        machines: !work.lacks("machine-crds"),
        etcd: !work.lacks("etcd-crds"),
    };
    install_definitions(work, attempt, crds::foreign(wanted))
}

fn install_definitions(
    work: &Work,
    attempt: &Attempt,
    wanted: impl IntoIterator<Item = Value>,
) -> Result<TaskStep, Failed> {
    Ok(match install::ensure(&work.site.seed, wanted)? {
        install::Step::Done => TaskStep::Done,
        install::Step::Again(waiting) => {
            let all: Vec<String> = waiting.iter().map(ToString::to_string).collect();
            let why = format!("custom resource definitions are not ready: {}", all.join("; "));
            if waiting.iter().any(|waiting| waiting.why.needs_a_person()) {
                return Err(Failed::new(why));
            }
            // Each check reads all definitions, so slow ones are checked less and less often.
            TaskStep::again(delay_after(install::AGAIN, install::AGAIN_MAX, attempt.tries), why)
        }
    })
}

/// The Seed's settings say that another program installs it.
fn require_vpa(work: &Work) -> Result<TaskStep, Failed> {
    const NAME: &str = "verticalpodautoscalers.autoscaling.k8s.io";
    match work.site.seed.find::<Metadata>(&CUSTOM_RESOURCE_DEFINITION, &Key::cluster(NAME))? {
        Some(_) => Ok(TaskStep::Done),
        None => Err(Failed::new(
            "VPA is required for seed cluster: install it, or remove spec.settings.verticalPodAutoscaler.enabled=false \
             from the Seed",
        )),
    }
}
