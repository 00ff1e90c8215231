//! The real Gardener and the stand-in behind a real API server answer the requests of `support::requests` as their rows say.

use gardenlet::base::clock::Clock;

use crate::failure::{Result, ensure};
use crate::gardener::{Gardener, users};
use crate::lab::Lab;
use crate::world::{self, World};
use support::garden::prepare::{self, Preparation};
use support::requests::{self, Peer, Place};

/// The Seed of the rows.
const OWN: &str = "own";
/// The account of the extension of the rows.
const EXTENSION: &str = "extension-x";

pub(crate) fn real(lab: &mut Lab) -> Result<()> {
    let mut gardener = Gardener::start(lab, &Preparation::new(OWN, Clock::system().now()))?;
    lab.garden.apply(&world::list(&[prepare::provider(), prepare::for_shoots()].concat()))?;
    let wrong = answers(lab, Place::Real, &|| {})?;
    gardener.ensure_running()?;
    ensure(wrong.is_empty(), || format!("answers that differ from their rows:\n{}", wrong.join("\n")))
}

/// The stand-in behind a real API server answers them, too.
pub(crate) fn behind(lab: &mut Lab) -> Result<()> {
    let world = World::guarded(lab, Preparation::new(OWN, Clock::system().now()))?;
    let wrong = answers(lab, Place::Behind, &|| world.gardener.compact())?;
    ensure(wrong.is_empty(), || format!("answers that differ from their rows:\n{}", wrong.join("\n")))
}

/// The answers that are not as their rows say. `compacts` makes a stand-in forget what has happened.
fn answers(lab: &mut Lab, place: Place, compacts: &dyn Fn()) -> Result<Vec<String>> {
    let admin = lab.garden.client()?;
    let [agent, account] = ["own", "extension-x"].map(|name| lab.place.join(format!("{name}.kubeconfig")));
    users::write_agent(&lab.garden, OWN, &agent)?;
    let seed = users::client(&agent)?;
    let garden = &lab.garden;
    let compacts = &|| {
        compacts();
        garden.compact().map_err(|why| why.to_string())
    };
    Peer { place, admin: &admin, seed: &seed, extension: &seed, compacts }.prepare(&requests::scene());
    users::write_extension(&lab.garden, (OWN, EXTENSION), &account)?;
    let extension = users::client(&account)?;
    let peer = Peer { place, admin: &admin, seed: &seed, extension: &extension, compacts };
    Ok(peer.run(&requests::table()))
}
