//! The configuration of the new seed changes while a Shoot comes to it.

use std::sync::Arc;

use serde_json::Value;

use crate::move_stage::{NAME, Stage, Writer, missing};
use crate::story_shoot_move::{RESTORED, created, has_left, is_at};
use crate::world::wait_for;
use support::http::faults::{Action, Seen};
use support::json::{list, text};
use support::options::is_long;
use support::shoot::buckets::Fault;
use support::shoot::object::technical_id;
use support::shoot::said;

fn is_etcd(seen: &Seen) -> bool {
    let named = || seen.body.as_ref().is_some_and(|body| text(body, "/metadata/name") == "etcd-main");
    seen.method == "POST" && seen.info.resource == "statefulsets" && named()
}

/// The StatefulSet is there, and has no data yet. Without snapshots, it would begin empty.
#[test]
fn an_etcd_keeps_the_way_to_its_data_until_it_has_them() {
    if !is_long() {
        return;
    }
    let stage = Stage::start("way-old", "way-new");
    let before = created(&stage);
    let writer = Writer::start(stage.owner());
    wait_for("some writes", || (writer.count() > 20).then_some(()));
    let written = writer.end();
    let (b, plane) = (&stage.b, technical_id(NAME));
    let (buckets, bucket) = (stage.etcds.buckets.clone(), b.bucket());
    let goes_away = Action::Tell(Arc::new(move |_: &Seen| buckets.set_fault(&bucket, Fault::Away, true)));
    b.seed().faults().when(is_etcd).once().then(goes_away);
    stage.bind(b);
    wait_for("an etcd without data", || {
        let pod = b.seed().get("", "pods", &plane, "etcd-main-0")?;
        let why = text(&pod, "/status/containerStatuses/0/state/waiting/message");
        why.contains(said::UNREACHABLE).then_some(())
    });
    let mut without = b.config.clone();
    without["edge"]["etcd"].as_object_mut().unwrap().remove("snapshots");
    b.agent.reload(&without);
    stage.wait_for("the demand for snapshots", |shoot| {
        let mut errors = list(shoot, "/status/lastErrors").iter();
        errors.any(|error| text(error, "/description").contains("set edge.etcd.snapshots with store S3"))
    });
    let set = b.seed().get("apps", "statefulsets", &plane, "etcd-main").unwrap();
    assert_eq!(list(&set, "/spec/template/spec/initContainers").len(), 1, "it still restores");
    assert_eq!(b.seed().get("apps", "deployments", &plane, "kube-apiserver"), None::<Value>);

    b.agent.reload(&b.config);
    stage.etcds.buckets.set_fault(&b.bucket(), Fault::Away, false);
    stage.until(RESTORED);
    is_at(&stage, b, &before);
    has_left(&stage, &stage.a);
    assert_eq!(missing(b, &written), [""; 0]);
    stage.end();
}
