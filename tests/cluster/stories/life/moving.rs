//! A Shoot moves between two seeds of this agent: its control plane in the node of one, then in that of the other.

use std::sync::Mutex;

use gardenlet::api::core::NAMESPACE;
use gardenlet::api::meta::Key;
use gardenlet::base::stop::Stop;
use gardenlet::kube::{Client, Options};
use serde_json::{Value, json};

use super::end;
use super::owner::Owner;
use super::rotation::fill;
use super::seeds::{Cast, FIRST, Known, OF_THE_AGENTS, READY_WITHIN_S, SECOND};
use super::writer;
use super::{COMPONENTS, ONE, SUCCEEDED_WITHIN_S};
use crate::audit::Audit;
use crate::cluster::Cluster;
use crate::failure::{Result, ensure, equal};
use crate::image;
use crate::lab::Lab;
use crate::outside;
use crate::second::NODE_ADDRESS;
use crate::site::Site;
use crate::snapshot::Snapshot;
use crate::stories::role;
use crate::wait;

const OBJECTS: usize = 2_000;
const MOVED_WITHIN_S: u64 = 600;
/// The goal for the time without an API server.
const AWAY_S: f64 = 60.0;
/// Acknowledged writes before and after a move.
const WRITES: usize = 30;

/// A Shoot with 2,000 objects moves while somebody writes, and keeps its CAs, the tokens of its ServiceAccounts and all
/// acknowledged writes. It moves back while it is hibernated, wakes up, and is deleted. Nothing of it stays on the seed that it
/// has left.
pub(crate) fn there_and_back(lab: &mut Lab) -> Result<()> {
    // Ends after the cast.
    let site = Site::start(lab, &COMPONENTS)?;
    let mut cast = Cast::gather(lab, &site, &OF_THE_AGENTS)?;
    let before = end::look(lab)?;
    cast.create(lab)?;
    let owner = Owner::new(lab, &cast.garden, ONE, &site.outside)?;
    owner.gets_in(image::API_SERVER.version())?;
    owner.keeps_a_secret()?;
    fill(&owner.client()?, OBJECTS)?;
    let known = Known::look(&cast.garden, &owner, OBJECTS)?;

    cast.moves_under_a_writer(lab, &site, &owner)?;
    let owner = Owner::new(lab, &cast.garden, ONE, &site.outside)?;
    owner.gets_in(image::API_SERVER.version())?;
    known.is_unchanged(&cast.garden, &owner)?;
    cast.has_left(&lab.seed, (FIRST, SECOND))?;

    cast.patch(&json!({"spec": {"hibernation": {"enabled": true}}}))?;
    cast.reaches(lab, SECOND, "Reconcile Succeeded", SUCCEEDED_WITHIN_S)?;
    let began = wait::now();
    cast.bind(FIRST)?;
    let moved = cast.reaches(lab, FIRST, "Reconcile Succeeded", MOVED_WITHIN_S)?;
    println!("       {:6.1} s  moved back while it is hibernated", wait::seconds_since(began));
    equal("status.hibernated", &moved["status"]["hibernated"], &json!(true))?;
    cast.has_left(&cast.second.cluster, (SECOND, FIRST))?;
    cast.patch(&json!({"spec": {"hibernation": {"enabled": false}}}))?;
    cast.reaches(lab, FIRST, "Reconcile Succeeded", SUCCEEDED_WITHIN_S)?;
    let owner = Owner::new(lab, &cast.garden, ONE, &site.outside)?;
    owner.gets_in(image::API_SERVER.version())?;
    known.is_unchanged(&cast.garden, &owner)?;
    end::goes(lab, &cast.garden, &mut cast.agents[0], (&before, ONE))?;
    role::allows_with_shoots(&mut Audit::of_all(&cast.second.cluster.audit_log())).map(drop)
}

impl Cast {
    /// The first move. The writer knows the addresses of both seeds, and the port that the Shoot keeps.
    pub(super) fn moves_under_a_writer(&mut self, lab: &Lab, site: &Site, owner: &Owner<'_>) -> Result<()> {
        let places = [owner.connection_to(outside::INSIDE_ADDRESS)?, owner.connection_to(NODE_ADDRESS)?];
        let clients = || -> Result<Vec<Client>> {
            let client = |place: &gardenlet::kube::Connection| Client::new(place.clone(), Options::default());
            Ok(places.iter().map(client).collect::<std::result::Result<_, _>>()?)
        };
        let (over, writes) = (Stop::new(), Mutex::new(Vec::new()));
        let enough = |count: usize| {
            wait::until_true("acknowledged writes", READY_WITHIN_S, || {
                let writes = writes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                writes.iter().filter(|write: &&writer::Write| write.is_acknowledged()).count() >= count
            })
        };
        let began = wait::now();
        let result = std::thread::scope(|scope| {
            scope.spawn(|| writer::until(&over, "moved", &writes, &clients));
            let result = enough(WRITES).and_then(|()| {
                self.bind(SECOND)?;
                self.reaches(lab, SECOND, "Restore Succeeded", MOVED_WITHIN_S)?;
                let acknowledged = writes.lock().map_or(0, |writes| {
                    writes.iter().filter(|write: &&writer::Write| write.is_acknowledged()).count()
                });
                enough(acknowledged + WRITES)
            });
            over.stop();
            result
        });
        result?;
        println!("       {:6.1} s  moved: Restore Succeeded", wait::seconds_since(began));
        let writes = writes.into_inner().unwrap_or_default();
        let new = Owner::new(lab, &self.garden, owner.name, &site.outside)?;
        let gap = writer::judge(&writes, (&new, "moved"))?;
        println!(
            "       {:6.1} s  without an API server; the goal is {AWAY_S} s on a machine that does nothing else",
            gap.seconds
        );
        Ok(())
    }

    /// Nothing of the Shoot is on the seed that it has left, and its backups are those of the other seed.
    pub(super) fn has_left(&self, cluster: &Cluster, (from, to): (&str, &str)) -> Result<()> {
        let plane = self.name.plane();
        ensure(cluster.client()?.find::<Value>(&NAMESPACE, &Key::cluster(&plane))?.is_none(), || {
            format!("{from} still has namespace {plane}")
        })?;
        let left = Snapshot::take(cluster)?.since(&Snapshot::default());
        let left: Vec<&str> = left.keys().into_iter().filter(|key| key.contains(&plane)).collect();
        // The provisioner of a volume removes it when it notices.
        let left: Vec<&&str> = left.iter().filter(|key| !key.starts_with("/PersistentVolume ")).collect();
        equal(&format!("left on {from}"), &left, &Vec::new())?;
        self.has_its_backups((from, to))
    }
}
