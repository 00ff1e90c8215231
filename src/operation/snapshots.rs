//! The snapshots of a Shoot's etcd-main, if the configuration enables them.

use serde_json::Value;

use crate::api::meta::{annotation, is_true};
use crate::backup::garden;
use crate::deployer;
use crate::flow::Failed;
use crate::format::time::time_of_day;
use crate::kube::Error;
use crate::shoot::ShootView;

use super::components::etcd::plain::moving;
use super::components::etcd::plain::snapshots::{self, Snapshots, Store};
use super::work::Work;

/// How many snapshots are kept where the configuration does not say it.
const KEEP: u32 = 7;
/// The start time of a pod, in minutes.
const STARTS_WITHIN: i64 = 5;

/// The settings of snapshots.
pub(super) struct Wanted<'a> {
    /// A directory of the node; `None` for the bucket.
    directory: Option<&'a str>,
    keep: u32,
    entry: String,
    image: String,
    schedule: String,
}

/// The settings; `None` if snapshots are off. A missing input is not the owner's fault, so the error has no
/// code that would stop retries.
pub(super) fn wanted(work: &Work) -> Result<Option<Wanted<'_>>, Failed> {
    let Some(settings) = &work.env.settings.edge.etcd.snapshots else { return Ok(None) };
    match settings.directory.as_deref() {
        None => of_bucket(work).map(Some),
        Some(directory) => of(work, Some(directory)).map(Some),
    }
}

/// The settings for snapshots in the bucket of the seed, whether or not the configuration enables them: a Shoot that moves has no
/// other way.
pub(super) fn of_bucket(work: &Work) -> Result<Wanted<'_>, Failed> {
    snapshots::check_secret(&work.env.seed, work.plane(), snapshots::SECRET)?;
    of(work, None)
}

/// The owner accepts that data of the Shoot are lost in a move, even all of them.
pub(super) fn accepts_loss(shoot: &Value) -> bool {
    is_true(annotation(shoot, moving::ACCEPT_LOSS))
}

/// The owner accepts at least that what no snapshot has is lost.
pub(super) fn accepts_older(shoot: &Value) -> bool {
    accepts_loss(shoot) || annotation(shoot, moving::ACCEPT_LOSS) == moving::SINCE_SNAPSHOT
}

/// The settings with which the etcd of a Shoot that comes from another seed restores its data. Without them it would start
/// empty, which only the owner may accept. Errors: the configuration does not let it restore from the bucket.
pub(super) fn restored(work: &Work) -> Result<Option<Wanted<'_>>, Failed> {
    let wanted = wanted(work)?;
    if wanted.as_ref().is_some_and(|wanted| wanted.directory.is_none()) || accepts_loss(&work.shoot) {
        return Ok(wanted);
    }
    Err(Failed::new(
        "the data of this Shoot is in the bucket of the seed, and its etcd cannot restore it: set edge.etcd.snapshots with store \
         S3 in the gardenlet's configuration",
    ))
}

/// The image with the agent's own program; empty if the agent does not know it.
pub(super) fn image(work: &Work) -> Result<String, Error> {
    let settings = work.env.settings.edge.etcd.snapshots.as_ref();
    match settings.and_then(|settings| settings.image.clone()) {
        Some(image) => Ok(image),
        None => deployer::own_image(&work.env.seed, &work.env.images, &work.env.parent),
    }
}

fn of<'a>(work: &'a Work, directory: Option<&'a str>) -> Result<Wanted<'a>, Failed> {
    let (settings, view) = (work.env.settings.edge.etcd.snapshots.as_ref(), &work.view);
    let image = image(work)?;
    if image.is_empty() {
        return Err(Failed::new(
            "snapshots of an etcd need the image of the gardenlet, and the gardenlet does not know its own: name it in \
             edge.etcd.snapshots.image of its configuration",
        ));
    }
    Ok(Wanted {
        directory,
        keep: settings.map_or(KEEP, |settings| settings.keep),
        entry: garden::entry(&work.shoot).key.name,
        image,
        schedule: settings.and_then(|settings| settings.schedule.clone()).unwrap_or_else(|| daily(view)),
    })
}

impl Wanted<'_> {
    /// In the form that the component needs.
    pub(super) fn input<'a>(&'a self, work: &'a Work) -> Snapshots<'a> {
        let view = &work.view;
        Snapshots {
            store: self.directory.map_or(Store::Bucket, Store::Directory),
            entry: &self.entry,
            image: &self.image,
            keep: self.keep,
            schedule: &self.schedule,
            window: (&view.maintenance_begin, &view.maintenance_end),
            is_suspended: work.facts.is_hibernated,
            now: work.now(),
        }
    }
}

/// Once a day, in the first hour of the maintenance time window, as in upstream, and early enough to defragment within
/// it. The minute differs between Shoots with the same window.
pub(super) fn daily(view: &ShootView) -> String {
    const DAY: i64 = 24 * 60;
    let minute = |time: &str| time_of_day(time).map(|seconds| seconds / 60);
    let begin = minute(&view.maintenance_begin).unwrap_or(0);
    let lasts = minute(&view.maintenance_end).map_or(DAY, |end| (end - begin).rem_euclid(DAY));
    let spread = view.status_uid.bytes().map(i64::from).sum::<i64>() % (lasts - STARTS_WITHIN).clamp(1, 60);
    let minute = (begin + spread) % DAY;
    format!("{} {} * * *", minute % 60, minute / 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_one_time_in_the_window() {
        let at = |begin: &str, uid: &str| {
            daily(&ShootView {
                maintenance_begin: begin.to_owned(),
                status_uid: uid.to_owned(),
                ..ShootView::default()
            })
        };
        assert_eq!(at("220000+0000", ""), "0 22 * * *");
        assert_eq!(at("220000+0100", ""), "0 21 * * *");
        assert_eq!(at("233000+0000", "+"), "13 0 * * *");
        assert_eq!(at("", "<"), "0 0 * * *");
        let short = ShootView {
            maintenance_begin: "234500+0000".to_owned(),
            maintenance_end: "001500+0000".to_owned(),
            status_uid: "z".to_owned(),
            ..ShootView::default()
        };
        assert_eq!(daily(&short), "7 0 * * *");
    }
}
