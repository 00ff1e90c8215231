//! `edge.etcd` and `edge.exposure`: what the control planes of Shoots need from their site.

use serde_json::Value;

use super::read::Reader;
use super::scalar;
use crate::base::sorted::SortedMap;

/// The sizes of volumes in Gardener v1.150.
const MAIN_SIZE: &str = "25Gi";
const EVENTS_SIZE: &str = "10Gi";

/// `edge.etcd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Etcd {
    /// Who runs it.
    pub mode: EtcdMode,
    /// The volume of etcd-main.
    pub main: Volume,
    /// The volume of etcd-events.
    pub events: Volume,
    /// Snapshots of etcd-main, if they are on.
    pub snapshots: Option<Snapshots>,
}

/// `edge.etcd.snapshots`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshots {
    /// A directory of the node; without one, they are kept in the bucket of the Seed.
    pub directory: Option<String>,
    /// How many are kept of each Shoot.
    pub keep: u32,
    /// When they are taken, five fields of cron, in UTC; daily in the maintenance time window if it is not said.
    pub schedule: Option<String>,
    /// The image of the agent, if it is not that of its own pod.
    pub image: Option<String>,
}

/// Who runs the etcds of a Shoot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EtcdMode {
    /// The agent writes StatefulSets.
    Plain,
    /// The agent writes Etcd objects, and an etcd-druid does the rest.
    Druid,
}

/// A volume of an etcd, as it is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its class; the seed's default class if none is named.
    pub storage_class: Option<String>,
    /// Its size, a quantity.
    pub size: String,
}

/// `edge.exposure`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// The type of the Service.
    pub kind: ExposureType,
    /// Under which address the nodes are reached, if that is not one of theirs.
    pub address: Option<String>,
    /// Annotations of the Service.
    pub annotations: SortedMap<String, String>,
}

/// How the kube-apiserver of a Shoot is reached from outside the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExposureType {
    /// By a port of the nodes.
    NodePort,
    /// By a load balancer that somebody else provides.
    LoadBalancer,
    /// Not at all: by the address inside the seed.
    ClusterIp,
}

impl Etcd {
    /// `least` is the smallest volume of the seed.
    pub(super) fn read(r: Reader<'_>, least: Reader<'_>) -> Self {
        Self {
            mode: if r.str("mode") == "Druid" { EtcdMode::Druid } else { EtcdMode::Plain },
            main: Volume::read(r.at("main"), MAIN_SIZE, least),
            events: Volume::read(r.at("events"), EVENTS_SIZE, least),
            snapshots: Snapshots::read(r.at("snapshots")),
        }
    }
}

impl Snapshots {
    fn read(r: Reader<'_>) -> Option<Self> {
        let store = r.str("store");
        (store != "None").then(|| Self {
            directory: text(r.str("directory")).filter(|_| store == "Directory"),
            keep: r.count("keep"),
            schedule: text(r.str("schedule")),
            image: text(r.str("image")),
        })
    }
}

impl Volume {
    fn read(r: Reader<'_>, default: &str, least: Reader<'_>) -> Self {
        let default = Value::from(default);
        let size = match (r.at("size"), least) {
            (size, _) if !size.is_absent() => size.value(),
            (_, least) if scalar::quantity_value(least.value()) > scalar::quantity_value(&default) => {
                least.value()
            }
            _ => &default,
        };
        Self {
            storage_class: text(r.str("storageClass")),
            size: size.as_str().map_or_else(|| size.to_string(), str::to_owned),
        }
    }
}

impl Exposure {
    pub(super) fn read(r: Reader<'_>) -> Self {
        Self {
            kind: match r.str("type") {
                "LoadBalancer" => ExposureType::LoadBalancer,
                "ClusterIP" => ExposureType::ClusterIp,
                _ => ExposureType::NodePort,
            },
            address: text(r.str("address")),
            annotations: r.texts("annotations"),
        }
    }
}

fn text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}
