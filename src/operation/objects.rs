//! Extension objects of a Shoot are rows: what is wanted, and how it is written, awaited, released to another seed, restored there,
//! and deleted. Tasks call a row.

use serde_json::Value;

use crate::api::meta::Resource;
use crate::extension::{
    DesiredExtension, ExtensionClass, ExtensionObject, ExtensionPatience, ExtensionResourceState, together,
};
use crate::flow::{Attempt, Failed, TaskStep};
use crate::hosts;
use crate::kube::Client;
use crate::shoot::state;

use super::work::Work;

/// Objects that one task of an operation writes, awaits, releases or deletes.
#[derive(Debug)]
pub(super) struct ObjectRow {
    /// The cluster of the objects.
    pub(super) cluster: fn(&Work) -> &Client,
    /// The objects that the Shoot needs. Errors: what they depend on is missing.
    pub(super) desired: fn(&Work) -> Result<Vec<Desired>, Failed>,
    /// Writes one of them.
    pub(super) write: fn(&Work, &Desired) -> Result<TaskStep, Failed>,
    /// The objects to delete, because the Shoot no longer needs them.
    pub(super) leaving: fn(&Work) -> Result<Vec<Leaving>, Failed>,
    /// The objects that a migration releases and deletes.
    pub(super) moving: fn(&Work) -> Result<Vec<Leaving>, Failed>,
}

/// An object that the Shoot needs.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Desired {
    pub(super) target: ExtensionObject,
    pub(super) content: DesiredExtension,
    pub(super) patience: ExtensionPatience,
}

/// An object that goes.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Leaving {
    pub(super) target: ExtensionObject,
    pub(super) patience: ExtensionPatience,
    /// Its deletion is known to be requested.
    pub(super) is_deleted: bool,
}

impl ObjectRow {
    /// No objects, in the seed.
    pub(super) const NONE: Self = Self {
        cluster: |work| &work.env.seed.0,
        desired: |_| Ok(Vec::new()),
        write: |_, _| Ok(TaskStep::Done),
        leaving: |_| Ok(Vec::new()),
        moving: |_| Ok(Vec::new()),
    };

    /// Writes the objects, which triggers their extensions.
    pub(super) fn deploy(&self, work: &Work) -> Result<TaskStep, Failed> {
        for desired in (self.desired)(work)? {
            let step = (self.write)(work, &desired)?;
            if step != TaskStep::Done {
                return Ok(step);
            }
            // Not every operation waits for it.
            answer(work, &desired.target)?;
        }
        Ok(TaskStep::Done)
    }

    /// Waits until their extensions have reconciled them.
    pub(super) fn wait(&self, work: &Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
        let cluster = (self.cluster)(work);
        let look = |desired: Desired| {
            answer(work, &desired.target)?;
            desired.target.wait_ready(cluster, desired.patience, attempt)
        };
        together((self.desired)(work)?.into_iter().map(look).collect())
    }

    /// Writes the objects once in an operation, and waits for them.
    pub(super) fn deploy_and_wait(&self, work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
        for desired in (self.desired)(work)? {
            if work.written.contains(&desired.target) {
                continue;
            }
            let step = (self.write)(work, &desired)?;
            if step != TaskStep::Done {
                return Ok(step);
            }
            work.written.insert(desired.target);
        }
        self.wait(work, attempt)
    }

    /// Asks the extensions to release the objects and to leave their states.
    pub(super) fn migrate(&self, work: &Work) -> Result<TaskStep, Failed> {
        let (cluster, now) = ((self.cluster)(work), work.now());
        let ask = |moving: &Leaving| {
            moving.target.migrate(cluster, now).map(|()| TaskStep::Done).map_err(Failed::from)
        };
        together((self.moving)(work)?.iter().filter(|moving| !moving.is_deleted).map(ask).collect())
    }

    /// Waits until their extensions have released them.
    pub(super) fn wait_migrated(&self, work: &Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
        let cluster = (self.cluster)(work);
        let look = |moving: &Leaving| {
            answer(work, &moving.target)?;
            moving.target.wait_migrated(cluster, moving.patience, attempt)
        };
        together((self.moving)(work)?.iter().map(look).collect())
    }

    /// Asks once in an operation, and waits.
    pub(super) fn migrate_and_wait(&self, work: &mut Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
        let (cluster, now) = ((self.cluster)(work).clone(), work.now());
        for moving in (self.moving)(work)? {
            if !moving.is_deleted && !work.written.contains(&moving.target) {
                moving.target.migrate(&cluster, now)?;
                work.written.insert(moving.target);
            }
        }
        self.wait_migrated(work, attempt)
    }

    /// Deletes the objects that were released: their extensions delete nothing else.
    pub(super) fn delete_migrated(&self, work: &Work) -> Result<TaskStep, Failed> {
        delete_each(work, (self.cluster)(work), &(self.moving)(work)?)
    }

    /// Waits until they are gone.
    pub(super) fn wait_migrated_gone(&self, work: &Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
        wait_each((self.cluster)(work), &(self.moving)(work)?, attempt)
    }

    /// Deletes the objects that go.
    pub(super) fn delete(&self, work: &Work) -> Result<TaskStep, Failed> {
        let (cluster, leaving) = ((self.cluster)(work), (self.leaving)(work)?);
        delete_each(work, cluster, &leaving)
    }

    /// Waits until they are gone.
    pub(super) fn wait_gone(&self, work: &Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
        wait_each((self.cluster)(work), &(self.leaving)(work)?, attempt)
    }

    /// Deletes the objects that go, and waits until they are gone.
    pub(super) fn delete_and_wait(&self, work: &Work, attempt: &Attempt) -> Result<TaskStep, Failed> {
        let (cluster, leaving) = ((self.cluster)(work), (self.leaving)(work)?);
        delete_each(work, cluster, &leaving)?;
        wait_each(cluster, &leaving, attempt)
    }
}

/// Does what an extension does elsewhere, if the nodes of the Shoot are hosts of the site.
fn answer(work: &Work, target: &ExtensionObject) -> Result<(), Failed> {
    if hosts::answers(&target.resource.kind, &work.shoot, &work.env.settings.edge.host_types) {
        hosts::answer(&work.env.seed, target, &work.shoot, work.now())?;
    }
    Ok(())
}

/// Writes an object and triggers its extension, in each operation.
pub(super) fn trigger(work: &Work, desired: &Desired) -> Result<TaskStep, Failed> {
    if work.facts.restores() {
        return desired.restore(work);
    }
    desired.target.deploy(&work.env.seed, &desired.content, work.now())?;
    Ok(TaskStep::Done)
}

impl Leaving {
    /// An object whose deletion is not known to be requested.
    pub(super) const fn of(target: ExtensionObject, patience: ExtensionPatience) -> Self {
        Self { target, patience, is_deleted: false }
    }

    /// All objects of a kind that belong to the Shoot.
    pub(super) fn all(
        work: &Work,
        resource: &Resource,
        patience: ExtensionPatience,
    ) -> Result<Vec<Self>, Failed> {
        let class = ExtensionClass::Shoot.as_str();
        let found = ExtensionObject::of_class(&work.env.seed, resource, work.plane(), class)?;
        Ok(found.into_iter().map(|target| Self::of(target, patience)).collect())
    }

    /// The object, if it is there.
    pub(super) fn live(cluster: &Client, target: ExtensionObject) -> Result<Vec<Self>, Failed> {
        let live = target.find(cluster)?;
        let patience = ExtensionPatience::of(&target.resource);
        let of = |live: Value| Self {
            target,
            patience,
            is_deleted: !live["metadata"]["deletionTimestamp"].is_null(),
        };
        Ok(live.map(of).into_iter().collect())
    }
}

impl Desired {
    /// Writes the object with the state that another seed has left, which its extension continues.
    pub(super) fn restore(&self, work: &Work) -> Result<TaskStep, Failed> {
        let Self { target, content, .. } = self;
        let (seed, kind, name) = (&work.env.seed, &target.resource.kind, &target.key.name);
        let mut memory = ExtensionResourceState::default();
        if let Some(state) = &work.inputs.state {
            // The states of a pool's objects also have their purpose.
            memory = state::extension_state(state, kind, name, content.spec["purpose"].as_str());
            state::create_resources(seed, work.plane(), state, &memory)?;
        }
        target.restore(seed, content, &memory, work.now())?;
        Ok(TaskStep::Done)
    }
}

/// Deletes the objects that are not deleted yet. A failed deletion does not stop the others.
fn delete_each(work: &Work, cluster: &Client, objects: &[Leaving]) -> Result<TaskStep, Failed> {
    let now = work.now();
    let delete = |leaving: &Leaving| {
        leaving.target.delete(cluster, now).map(|()| TaskStep::Done).map_err(Failed::from)
    };
    together(objects.iter().filter(|leaving| !leaving.is_deleted).map(delete).collect())
}

fn wait_each(cluster: &Client, objects: &[Leaving], attempt: &Attempt) -> Result<TaskStep, Failed> {
    let look = |leaving: &Leaving| leaving.target.wait_gone(cluster, leaving.patience, attempt);
    together(objects.iter().map(look).collect())
}
