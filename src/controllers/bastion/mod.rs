//! Bastions: temporary machines through which people reach the nodes of a Shoot (Gardener's `bastion`).
//!
//! Woken by new generations in the garden, by Shoots that get a control plane, and by [`look`], which notices finished
//! operations of extensions. A correct Bastion is not written.

mod decide;
mod look;
mod status;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::api::extensions;
use crate::api::gardener::{BASTION, SHOOT, ShootHead};
use crate::api::meta::{ALL_NAMESPACES, Key, text};
use crate::api::patch::difference;
use crate::base::error::chain;
use crate::extension::required::unheard;
use crate::extension::{DesiredExtension, ExtensionObject, problem};
use crate::flow::Failed;
use crate::format::view;
use crate::kube::{Error, ErrorVerdict, ListParams, Patch, unless_absent};
use crate::runtime::controller::{ReconcileContext, ReconcileFailure, ReconcileOutcome, Reconciler};
use crate::runtime::group::ControllerGroup;
use crate::runtime::informer::Options;
use crate::runtime::queue::Retry;
use crate::runtime::source::WatchSource;
use crate::runtime::store::Store;
use crate::runtime::write;
use crate::shoot::responsible::has_control_plane_elsewhere;

use super::Site;
use decide::{BastionPlan, State, plan, spec_of};
use look::{BastionPoller, SeenVersions};
use status::{BastionHead, BastionReport, FORCE};

const FINALIZER: &str = "gardener";
/// People fix failures; the next try follows within five minutes.
const RETRY: Retry = Retry { first: Duration::from_secs(1), max: Duration::from_secs(300) };

/// Adds the controller and its poller.
pub(crate) fn add(site: &Arc<Site>, group: &mut ControllerGroup) {
    let lane = group.lane("bastion", site.settings.controllers.bastion_workers, RETRY);
    let looks = group.lane("bastion-objects", 1, Retry::up_to(Duration::from_secs(60)));
    let bastions = WatchSource::<BastionHead>::default();
    group.wake(&lane, &bastions, |change| {
        let asks = |head: &Option<Arc<BastionHead>>| head.as_ref().map(|head| head.asks());
        (asks(&change.old) != asks(&change.new)).then(|| change.key.clone())
    });
    group.wake(&looks, &bastions, |change| change.new.as_ref().map(|_| BastionPoller::key()));
    let known = bastions.store().clone();
    group.wake(&lane, &site.heads, move |change| {
        let place = |head: &Option<Arc<ShootHead>>| {
            head.as_ref().map(|head| (head.status.technical_id.clone(), head.status.seed_name.clone()))
        };
        if place(&change.old) == place(&change.new) {
            return Vec::new();
        }
        let Key { namespace, name } = &change.key;
        let all = known.all().into_iter();
        let of = all.filter(|(key, head)| key.namespace == *namespace && head.spec.shoot_ref.name == *name);
        of.map(|(key, _)| key).collect()
    });
    let ours = Options {
        field_selector: format!("spec.seedName={}", site.seed_name()),
        // A garden may not serve Bastions.
        optional: true,
        ..Options::all("garden/bastions", BASTION)
    };
    group.watch(&site.garden, ours, &bastions);
    let seen = SeenVersions::default();
    let looker = BastionPoller::new(site.seed.clone(), bastions.store().clone(), seen.clone(), lane.clone());
    let reconciler = BastionReconciler { site: Arc::clone(site), bastions: bastions.store().clone(), seen };
    group.run(lane, reconciler);
    group.run(looks, looker);
}

struct BastionReconciler {
    site: Arc<Site>,
    bastions: Store<BastionHead>,
    seen: SeenVersions,
}

/// The namespace of the extension object.
enum ExtensionPlace {
    /// In the namespace of the Shoot's control plane.
    At(String),
    /// This seed is not responsible; with the reason.
    Nowhere(Failed),
    /// The Shoot is gone, or does not belong to this seed.
    NoShoot,
}

impl Reconciler for BastionReconciler {
    fn reconcile(&self, key: &Key, cx: &ReconcileContext) -> Result<ReconcileOutcome, ReconcileFailure> {
        let is_known = || self.bastions.may_have(key);
        let found = self.site.garden.find_own::<Value>(&BASTION, key, &is_known)?;
        let Some(object) = found else {
            self.seen.forget(key);
            return Ok(ReconcileOutcome::Done);
        };
        let head = view::look::<BastionHead>(&object)?;
        if head.spec.seed_name != self.site.seed_name() {
            self.seen.forget(key);
            return Ok(ReconcileOutcome::Done);
        }
        let round = BastionReconciliation { controller: self, key, object: &object, head: &head, cx };
        if head.is_deleting() { round.delete() } else { round.reconcile() }
    }
}

/// One reconciliation of a Bastion.
struct BastionReconciliation<'a> {
    controller: &'a BastionReconciler,
    key: &'a Key,
    object: &'a Value,
    head: &'a BastionHead,
    cx: &'a ReconcileContext,
}

impl BastionReconciliation<'_> {
    fn reconcile(&self) -> Result<ReconcileOutcome, ReconcileFailure> {
        self.finalize(true)?;
        let spec = match spec_of(self.object) {
            Ok(spec) => spec,
            // The garden makes the field immutable, or a change wakes us.
            Err(failed) => return self.tell(&BastionReport::Failed(failed)).map(|()| ReconcileOutcome::Done),
        };
        let target = match self.place()? {
            ExtensionPlace::At(namespace) => self.target(namespace),
            ExtensionPlace::Nowhere(failed) => return self.fail(failed),
            ExtensionPlace::NoShoot => return self.fail(self.no_shoot()),
        };
        let object = self.read(&target)?;
        let now = self.cx.clock.now();
        let BastionPlan { asks, state, again } = plan(object.as_ref(), &spec, now);
        let waits_for = |failed: Failed| {
            let (bastion, why) = (&target.key, &failed.text);
            let text = format!("Error while waiting for Bastion {bastion} to become ready: {why}");
            BastionReport::Failed(Failed { text, ..failed })
        };
        match state {
            State::Pending => {}
            State::Unheard => self.tell(&waits_for(self.unheard(text(&spec["type"]))))?,
            State::Failed(failed) => self.tell(&waits_for(failed))?,
            State::Succeeded => self.tell(&BastionReport::Ready(&object.unwrap_or_default()))?,
        }
        if asks
            && let Err(error) = target.deploy(&self.controller.site.seed, &DesiredExtension::new(spec), now)
        {
            if error.postponed().is_none() {
                let failed = Failed::new(chain(&error));
                let is_wrong = error.verdict() == ErrorVerdict::Invalid;
                self.tell(&BastionReport::Failed(if is_wrong { problem(failed.text) } else { failed }))?;
            }
            return Err(error.into());
        }
        Ok(again.map_or(ReconcileOutcome::Done, ReconcileOutcome::After))
    }

    fn delete(&self) -> Result<ReconcileOutcome, ReconcileFailure> {
        if !self.head.metadata.finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            self.controller.seen.forget(self.key);
            return Ok(ReconcileOutcome::Done);
        }
        let namespace = match self.place()? {
            ExtensionPlace::At(namespace) => Some(namespace),
            ExtensionPlace::Nowhere(_) => None,
            ExtensionPlace::NoShoot => self.left()?,
        };
        let Some(target) = namespace.map(|namespace| self.target(namespace)) else { return self.finish() };
        let object = self.read(&target)?;
        self.tell(&BastionReport::Deleting(object.as_ref().unwrap_or(&Value::Null)))?;
        let Some(object) = object else { return self.finish() };
        let seed = &self.controller.site.seed;
        let mut marked = object.clone();
        if self.head.is_forced() {
            marked["metadata"]["annotations"][FORCE] = "true".into();
        }
        if let Some(patch) = difference(&object, &marked) {
            let patched = seed.patch::<Value>(&target.resource, &target.key, &Patch::Merge(patch));
            unless_absent(patched)?;
        }
        if object["metadata"]["deletionTimestamp"].is_null() {
            // Unlike other extension objects, it needs no confirmation.
            write::delete(seed, &target.resource, &target.key)?;
        }
        Ok(ReconcileOutcome::Done)
    }

    /// Nothing of it is left in the seed.
    fn finish(&self) -> Result<ReconcileOutcome, ReconcileFailure> {
        self.finalize(false)?;
        self.controller.seen.forget(self.key);
        let bastion = self.key.to_string();
        log::info!(bastion = bastion.as_str(); "The Bastion is deleted");
        Ok(ReconcileOutcome::Done)
    }

    fn target(&self, namespace: String) -> ExtensionObject {
        ExtensionObject { resource: extensions::BASTION, key: Key::new(namespace, self.key.name.as_str()) }
    }

    fn read(&self, target: &ExtensionObject) -> Result<Option<Value>, Error> {
        let object = target.find(&self.controller.site.seed)?;
        let version = object.as_ref().map_or("", |object| text(&object["metadata"]["resourceVersion"]));
        self.controller.seen.note(self.key, target.key.clone(), version);
        Ok(object)
    }

    fn place(&self) -> Result<ExtensionPlace, Error> {
        let key = Key::new(self.key.namespace.as_str(), self.head.spec.shoot_ref.name.as_str());
        let live;
        let site = &self.controller.site;
        let (garden, shoots) = (&site.garden, site.heads.store());
        let known = shoots.get(&key);
        let shoot = match &known {
            Some(shoot) if !shoot.status.technical_id.is_empty() => &**shoot,
            _ => {
                // The garden does not show us Shoots of other seeds, nor whether they exist.
                let is_known = || shoots.may_have(&key);
                let found = garden.find_own(&SHOOT, &key, &is_known)?;
                let Some(found) = found else { return Ok(ExtensionPlace::NoShoot) };
                live = found;
                &live
            }
        };
        let ours = self.controller.site.seed_name();
        let (plane, seed) = (&shoot.status.technical_id, &shoot.status.seed_name);
        Ok(if has_control_plane_elsewhere(seed, ours) {
            ExtensionPlace::Nowhere(Failed::new(format!(
                "the control plane of Shoot {key} is on seed {seed}, but the Bastion names {ours}: delete the Bastion and \
                 make another one"
            )))
        } else if plane.is_empty() {
            ExtensionPlace::Nowhere(Failed::new(format!(
                "Shoot {key} has no control plane yet (status.technicalID is empty): wait until it is created"
            )))
        } else {
            ExtensionPlace::At(plane.clone())
        })
    }

    fn no_shoot(&self) -> Failed {
        let (namespace, name) = (&self.key.namespace, &self.head.spec.shoot_ref.name);
        problem(format!(
            "could not get shoot {namespace}/{name}: the garden does not have it, or it is on another seed; delete the Bastion"
        ))
    }

    /// The namespace of a leftover object whose Shoot is gone. Upstream waits for the Shoot forever.
    fn left(&self) -> Result<Option<String>, Error> {
        let seed = &self.controller.site.seed;
        let params = ListParams {
            field_selector: format!("metadata.name={}", self.key.name),
            ..ListParams::default()
        };
        for object in seed.list::<Value>(&extensions::BASTION, ALL_NAMESPACES, &params)?.items {
            let namespace = text(&object["metadata"]["namespace"]);
            let cluster =
                seed.find::<Value>(&extensions::CLUSTER, &Key::cluster(namespace))?.unwrap_or_default();
            let shoot = &cluster["spec"]["shoot"]["metadata"];
            if shoot["namespace"] == self.key.namespace.as_str()
                && shoot["name"] == self.head.spec.shoot_ref.name.as_str()
            {
                return Ok(Some(namespace.to_owned()));
            }
        }
        Ok(None)
    }

    /// The extension has not started.
    fn unheard(&self, provider: &str) -> Failed {
        let site = &self.controller.site;
        let (registrations, installations) =
            (site.registrations.store().values(), site.installations.store().values());
        unheard("Bastion", provider, &registrations, &installations)
    }

    fn finalize(&self, present: bool) -> Result<(), Error> {
        let metadata = &self.head.metadata;
        write::finalizer(&self.controller.site.garden, &BASTION, self.key, metadata, FINALIZER, present)
    }

    /// Reports to the garden if something changed. A deleted Bastion needs no report.
    fn tell(&self, report: &BastionReport<'_>) -> Result<(), ReconcileFailure> {
        let Some(patch) = status::patch(self.object, report, self.cx.clock.now()) else { return Ok(()) };
        let patch = Patch::Strategic(patch);
        unless_absent(self.controller.site.garden.patch_status::<Value>(&BASTION, self.key, &patch))?;
        Ok(())
    }

    fn fail(&self, failed: Failed) -> Result<ReconcileOutcome, ReconcileFailure> {
        self.tell(&BastionReport::Failed(failed.clone()))?;
        Err(failed.into())
    }
}
