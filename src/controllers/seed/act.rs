//! What a round writes: the finalizer of the Seed, and namespaces and definitions in its cluster.

use std::sync::PoisonError;
use std::time::Duration;

use serde_json::json;

use crate::api::core::NAMESPACE;
use crate::api::gardener::{SEED, seed_namespace};
use crate::api::meta::{Key, Metadata};
use crate::api::resources::GARDEN_NAMESPACE;
use crate::components::{crds, install};
use crate::controllers::site::is_garden;
use crate::runtime::controller::{Context, Failure};
use crate::runtime::write;

use super::decide::{self, Observed, Phase};
use super::error::{Error, GET_NAMESPACE, kube_error};
use super::{CONFLICT_RETRY, FINALIZER, SeedReconciler, delete};

const DEFINITIONS_PERIOD: Duration = Duration::from_secs(3_600);

impl SeedReconciler {
    /// Finalizer, namespaces and definitions; each write only if something differs.
    pub(super) fn prepare(
        &self,
        key: &Key,
        observed: &Observed,
        cx: &Context,
    ) -> Result<delete::Step, Failure> {
        let namespace = seed_namespace(&key.name);
        let found = self.garden.find::<Metadata>(&NAMESPACE, "", &namespace);
        if found.map_err(kube_error(GET_NAMESPACE))?.is_none() {
            return Err(Error::NoNamespace(namespace).into());
        }
        let live = serde_json::from_value::<Metadata>(observed.live.clone())?.metadata;
        let read = (live.finalizers.as_slice(), live.resource_version.as_str());
        match write::finalizer(&self.garden, &SEED, key, read, FINALIZER, true) {
            Err(e) if e.is_conflict() => return Ok(delete::Step::Again(CONFLICT_RETRY)),
            other => other?,
        }
        if !self.any_version && !decide::is_supported(&observed.kubernetes_version) {
            return Err(Error::Version(observed.kubernetes_version.clone()).into());
        }
        self.namespaces(&observed.zones())?;
        if self.definitions_are_due(observed, cx) {
            if let Some(waiting) = self.definitions()? {
                // At the start the seed's side of the agent installs them at the same time.
                if cx.clock.mono() < self.patient_until {
                    return Ok(delete::Step::Again(install::AGAIN));
                }
                return Err(Error::Definitions(waiting).into());
            }
            *self.definitions_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.clock.mono());
        }
        Ok(delete::Step::Wait(self.sync_period))
    }

    fn namespaces(&self, zones: &[String]) -> Result<(), Failure> {
        let is_garden = is_garden(&self.seed)?;
        let garden = Key::new("", GARDEN_NAMESPACE);
        write::ensure(&self.seed, &NAMESPACE, &garden, |ns| decide::label_garden(ns, zones, is_garden))?;
        let system = Key::new("", "kube-system");
        write::ensure(&self.seed, &NAMESPACE, &system, |ns| {
            ns["metadata"]["labels"]["role"] = json!("kube-system");
        })?;
        Ok(())
    }

    /// They are some hundred kilobytes to unpack and compare: once per life and generation, and then each hour.
    fn definitions_are_due(&self, observed: &Observed, cx: &Context) -> bool {
        let last = *self.definitions_at.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = last.is_some_and(|at| cx.clock.mono() < at.saturating_add(DEFINITIONS_PERIOD));
        !recent || matches!(decide::phase(observed), Phase::Begin)
    }

    /// What is not ready yet, if something is not.
    fn definitions(&self) -> Result<Option<Vec<install::Waiting>>, Failure> {
        Ok(match install::ensure(&self.seed, crds::own(is_garden(&self.seed)?))? {
            install::Step::Done => None,
            install::Step::Again(waiting) => Some(waiting),
        })
    }
}
