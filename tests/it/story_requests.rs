//! The garden of the tests answers the requests of agents and extensions as the real Gardener does.

use gardenlet::base::clock::{Clock, Timestamp};
use gardenlet::kube;
use serde_json::json;

use support::garden::Garden;
use support::garden::prepare::{self, Preparation};
use support::requests::{self, Peer, Place};

const TIME: Timestamp = Timestamp::from_unix(1_750_000_000);

#[test]
fn the_garden_answers_as_the_real_one() {
    let garden = Garden::start(&Clock::system());
    garden.apply(&Preparation::new("own", TIME).garden());
    garden.apply(&prepare::provider());
    garden.apply(&prepare::for_shoots());
    let admin = garden.client();
    let client = |user: &str, group: &str| {
        garden.client_from(&garden.kubeconfig_for(user, &[group]), kube::Options::default())
    };
    let seed = client("gardener.cloud:system:seed:own", "gardener.cloud:system:seeds");
    let extension = client("system:serviceaccount:seed-own:extension-x", "system:serviceaccounts");
    let compacts = || {
        garden.compact();
        Ok(())
    };
    let (place, compacts) = (Place::Inside, &compacts);
    let peer = Peer { place, admin: &admin, seed: &seed, extension: &extension, compacts };
    peer.prepare(&requests::scene());
    let wrong = peer.run(&requests::table());
    assert!(wrong.is_empty(), "{}", json!(wrong).to_string().replace("\",\"", "\n"));
}
