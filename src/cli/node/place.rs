//! Where a Shoot is in the seed, and how to reach it.

use serde_json::Value;

use super::super::{Variable, clusters};
use super::arguments::ShootPlace;
use crate::api::core::NAMESPACE;
use crate::api::extensions::CLUSTER;
use crate::api::meta::{Key, Metadata, text};
use crate::base::clock::Timestamp;
use crate::base::error::chain;
use crate::base::workers::Workers;
use crate::config::Settings;
use crate::format::time::parse_rfc3339;
use crate::hosts::token::JOINING;
use crate::kube::{Client, ListParams, RequestGates, Seed, Shoot};
use crate::shoot::client::{ShootConnector, ShootServers};
use crate::shoot::has_foreign_workers;

/// Where a Shoot is in the seed.
pub(super) struct Place {
    pub(super) seed: Seed,
    pub(super) shoot: Shoot,
    /// The namespace of its control plane.
    pub(super) plane: String,
    /// Until when other hosts may join.
    pub(super) joining: Option<Timestamp>,
    /// Its namespace and name in the garden.
    pub(super) name: Key,
    /// The Shoot, as the seed knows it.
    pub(super) known: Value,
}

impl Place {
    /// Errors: the nodes of the Shoot are no hosts of the site.
    pub(super) fn check_type(&self, settings: &Settings) -> Result<(), String> {
        if !has_foreign_workers(&self.known, &settings.edge.host_types) {
            return Ok(());
        }
        let kind = text(&self.known["spec"]["provider"]["type"]);
        Err(format!("edge.hosts.types of the configuration does not name {kind:?}, the type of the Shoot"))
    }
}

/// Finds the Shoot by the names of namespaces, because only the garden knows the name of its Project.
pub(super) fn find(asked: &ShootPlace, settings: &Settings, variable: Variable<'_>) -> Result<Place, String> {
    let connection =
        clusters::seed(settings, variable).map_err(|(why, remedy)| format!("{why}: {remedy}"))?;
    let options = clusters::options(variable);
    let seed = Seed(Client::new(connection, options.clone()).map_err(|error| chain(&error))?);
    let role = ListParams {
        label_selector: "gardener.cloud/role=shoot".to_owned(),
        metadata_only: true,
        ..ListParams::default()
    };
    let mut candidates = Vec::new();
    let end = format!("--{}", asked.shoot.name);
    seed.list_all::<Metadata>(&NAMESPACE, "", &role, &mut |space| {
        candidates.extend(Some(space.metadata).filter(|space| space.name.ends_with(&end)));
    })
    .map_err(|error| format!("list the namespaces of the seed: {}", chain(&error)))?;
    for space in candidates {
        let plane = space.name;
        let cluster = seed.find::<Value>(&CLUSTER, &Key::cluster(plane.as_str()));
        // That of a namespace which is being deleted may be gone.
        let Some(cluster) = cluster.map_err(|error| format!("read Cluster {plane}: {}", chain(&error)))?
        else {
            continue;
        };
        let known = cluster["spec"]["shoot"].clone();
        let joining = space.annotations.get(JOINING).and_then(|until| parse_rfc3339(until).ok());
        if text(&known["metadata"]["namespace"]) == asked.shoot.namespace {
            let servers = ShootServers::from_outside(RequestGates::new(&Workers::new(1)));
            let connector = ShootConnector::new(seed.clone(), options, &servers);
            let shoot =
                connector.connect(&plane).map_err(|error| format!("reach the Shoot: {}", chain(&error)))?;
            return Ok(Place { seed, shoot, plane, joining, name: asked.shoot.clone(), known });
        }
    }
    Err(format!(
        "the seed has no Shoot {}: write the namespace and the name that it has in the garden",
        asked.shoot
    ))
}
