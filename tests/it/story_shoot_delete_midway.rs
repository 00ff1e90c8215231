//! A Shoot is deleted while the agent creates it, at each border between two tasks; and the agent is killed while it
//! deletes a Shoot. None of its objects remain.

use crate::faultpoints::{Point, after, before};
use crate::sampling::Sample;
use crate::story_shoot_crash::{BORDERS, is_lasting, points_of};
use crate::story_shoot_delete::Scene;
use crate::world::CORE;
use support::shoot::history::wait_until_created;
use support::shoot::object::PROJECT_NAMESPACE;

/// A normal run tries this many points, a long run all.
const FEW: usize = 2;

/// Where the agent is killed while it deletes a Shoot.
static KILLS: [Point; 15] = [
    after("garden: PATCH shoots/status s1 Processing"),
    before("shoot: DELETE validatingwebhookconfigurations dead"),
    after("shoot: DELETE customresourcedefinitions things.example.org"),
    before("shoot: PATCH services held"),
    after("seed: DELETE managedresources shoot-core-system"),
    before("seed: DELETE deployments kube-apiserver"),
    after("seed: DELETE deployments kube-apiserver"),
    after("seed: DELETE services kube-apiserver-exposure"),
    after("seed: DELETE statefulsets etcd-main"),
    before("seed: DELETE namespaces shoot--p--s1"),
    after("seed: DELETE namespaces shoot--p--s1"),
    after("garden: DELETE shootstates s1"),
    after("seed: DELETE clusters shoot--p--s1"),
    after("garden: PATCH shoots/status s1 Succeeded"),
    before("garden: PATCH shoots s1"),
];

/// The same, where only a Shoot with a pool has something to delete.
static KILLS_WITH_A_POOL: [Point; 7] = [
    before("seed: DELETE networks s1"),
    after("seed: DELETE networks s1"),
    after("seed: DELETE managedresources shoot-core-konnectivity-agent"),
    before("seed: DELETE controlplanes s1"),
    after("seed: DELETE deployments kube-scheduler"),
    before("seed: DELETE infrastructures s1"),
    after("seed: DELETE infrastructures s1"),
];

/// One creation that ends at a border: the request there is held until the owner has deleted the Shoot.
fn end_a_creation(at: &Point) -> Result<bool, String> {
    let scene = Scene::new("shoot-unborn");
    let points = points_of(&scene.world, &scene.agent, Some(&at.held()));
    scene.create();
    scene.world.garden.wait_for("the border", |_| {
        // A creation may succeed without some of the borders.
        let is_over = scene.operations().iter().any(|operation| operation.line() == "Create Succeeded 100");
        (is_over || points.hit().is_some()).then_some(())
    });
    scene.delete();
    scene.wait_until_gone();
    points.hit().map(|_| true).ok_or_else(|| "there was no such request".to_owned())
}

#[test]
fn a_deletion_at_any_border_of_a_creation_leaves_nothing() {
    let borders = BORDERS.iter().map(|(_, point)| point.clone()).collect();
    Sample::of("deletions during a creation").with(FEW, borders).run(&end_a_creation);
}

/// One deletion in which the agent is killed.
fn delete_with_a_kill(scene: &Scene, at: &Point) -> Result<bool, String> {
    scene.create();
    wait_until_created(&scene.world.garden, (PROJECT_NAMESPACE, "s1"));
    let shoot = scene.fill();
    // A Shoot that is deleted before it has a ShootState deletes none.
    scene
        .world
        .garden
        .wait_for("the ShootState", |garden| garden.get(CORE, "shootstates", PROJECT_NAMESPACE, "s1"));
    let points = points_of(&scene.world, &scene.agent, Some(at));
    points.watch("shoot", &shoot.cluster, is_lasting);
    scene.delete();
    scene.world.garden.wait_for("the point", |_| (scene.is_gone() || points.hit().is_some()).then_some(()));
    points.restart_if_due();
    scene.wait_until_gone();
    points.hit().map(|_| true).ok_or_else(|| "there was no such request".to_owned())
}

#[test]
fn a_kill_in_a_deletion_changes_nothing() {
    Sample::of("kills during a deletion")
        .with(FEW, KILLS.to_vec())
        .run(&|at| delete_with_a_kill(&Scene::new("shoot-dying"), at));
}

#[test]
fn a_kill_in_a_deletion_with_a_pool_changes_nothing() {
    let points = KILLS.iter().chain(&KILLS_WITH_A_POOL).cloned().collect();
    Sample::of("kills during a deletion with a pool")
        .with(FEW, points)
        .run(&|at| delete_with_a_kill(&Scene::of_hosts("shoot-dying"), at));
}
