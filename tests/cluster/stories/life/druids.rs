//! Two seeds, each with the real etcd-druid, which runs the etcds of a Shoot with the real etcd-backup-restore. Only etcd-wrapper is
//! a stand-in.

use gardenlet::api::core::{NAMESPACE, STATEFUL_SET};
use gardenlet::api::meta::{Key, text};
use gardenlet::operation::components::etcd::druid::ETCD;
use gardenlet::operation::components::etcd::druid::copy::COPY_TASK;
use serde_json::{Value, json};

use super::owner::Owner;
use super::rotation::fill;
use super::seeds::{Backups, Cast, FIRST, Known, SECOND};
use super::{COMPONENTS, ONE, end};
use crate::audit::Audit;
use crate::cluster::Cluster;
use crate::druid;
use crate::failure::{Result, ensure, equal};
use crate::image;
use crate::lab::Lab;
use crate::site::Site;
use crate::stories::role;

/// A type that etcd-druid takes for S3. The agents know no image of their own program, so that they leave the copy to it.
const BACKUPS: Backups = Backups { provider: "aws", etcd: || json!({"mode": "Druid"}) };
const OBJECTS: usize = 2_000;

/// A Shoot whose etcds are Etcd objects comes up, moves under a writer with an EtcdCopyBackupsTask, keeps everything, and is deleted.
pub(crate) fn move_a_shoot(lab: &mut Lab) -> Result<()> {
    // Ends after the cast.
    let site = Site::start(lab, &COMPONENTS)?;
    let mut cast = Cast::gather(lab, &site, &BACKUPS)?;
    let second = &cast.second;
    druid::install(lab, &lab.seed, &site.node)?;
    druid::install(lab, &second.cluster, &second.node)?;
    let before = end::look(lab)?;
    cast.create(lab)?;
    runs_its_etcds(&lab.seed)?;
    let owner = Owner::new(lab, &cast.garden, ONE, &site.outside)?;
    owner.gets_in(image::API_SERVER.version())?;
    owner.keeps_a_secret()?;
    fill(&owner.client()?, OBJECTS)?;
    let known = Known::look(&cast.garden, &owner, OBJECTS)?;

    cast.moves_under_a_writer(lab, &site, &owner)?;
    druid::works(&lab.seed)?;
    let owner = Owner::new(lab, &cast.garden, ONE, &site.outside)?;
    owner.gets_in(image::API_SERVER.version())?;
    known.is_unchanged(&cast.garden, &owner)?;
    runs_its_etcds(&cast.second.cluster)?;
    cast.has_left(&lab.seed, (FIRST, SECOND))?;
    let requests = Audit::of_all(&cast.second.cluster.audit_log()).requests()?;
    let asked = requests.iter().filter(|request| {
        let info = request.info();
        info.verb == "create" && info.resource == COPY_TASK.plural && info.subresource.is_empty()
    });
    equal("copies that etcd-druid was asked for", &asked.count(), &1)?;

    let Cast { agents: [_, two], garden, second, .. } = &mut cast;
    end::goes(lab, garden, two, (&before, ONE))?;
    let plane = Key::cluster(ONE.plane());
    ensure(second.cluster.client()?.find::<Value>(&NAMESPACE, &plane)?.is_none(), || {
        format!("{SECOND} still has namespace {plane}")
    })?;
    druid::works(&second.cluster)?;
    role::allows_with_shoots(&mut Audit::of_all(&second.cluster.audit_log())).map(drop)
}

/// Each StatefulSet of an etcd belongs to an Etcd.
fn runs_its_etcds(seed: &Cluster) -> Result<()> {
    let seed = seed.client()?;
    for name in ["etcd-main", "etcd-events"] {
        let key = Key::new(ONE.plane(), name);
        let etcd: Value = seed.get(&ETCD, &key)?;
        equal(&format!("whether Etcd {key} is ready"), &etcd["status"]["ready"], &json!(true))?;
        let set: Value = seed.get(&STATEFUL_SET, &key)?;
        equal(
            "the owner of its StatefulSet",
            &text(&set["metadata"]["ownerReferences"][0]["kind"]),
            &"Etcd",
        )?;
    }
    Ok(())
}
