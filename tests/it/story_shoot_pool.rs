//! Shoots whose nodes are hosts of the site: what only they have, without a host.

use crate::story_shoot_delete::Scene;
use support::shoot::history::wait_until_created;
use support::shoot::object::PROJECT_NAMESPACE;

#[test]
fn a_shoot_with_a_pool_is_created_and_deleted() {
    let scene = Scene::of_hosts("shoot-pool");
    scene.create();
    wait_until_created(&scene.world.garden, (PROJECT_NAMESPACE, "s1"));
    scene.delete();
    scene.wait_until_gone();
}
