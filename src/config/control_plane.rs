//! `edge.etcd` and `edge.exposure`: what the control planes of Shoots need from their site.

use serde_json::Value;

use super::read::FieldReader;
use super::scalar;
use crate::base::sorted::SortedMap;

/// The volume sizes of Gardener v1.150.
const MAIN_SIZE: &str = "25Gi";
const EVENTS_SIZE: &str = "10Gi";

/// Field `edge.etcd` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Etcd {
    pub(crate) mode: EtcdMode,
    /// The volume of etcd-main.
    pub(crate) main: EtcdVolume,
    /// The volume of etcd-events.
    pub(crate) events: EtcdVolume,
    /// Snapshots of etcd-main, if enabled.
    pub(crate) snapshots: Option<EtcdSnapshots>,
}

/// Field `edge.etcd.snapshots` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EtcdSnapshots {
    /// A directory of the node; without one, the bucket of the Seed holds the snapshots.
    pub(crate) directory: Option<String>,
    /// How many snapshots of each Shoot are kept.
    pub keep: u32,
    /// When snapshots are taken: five fields of cron in UTC; if unset, daily in the maintenance time window.
    pub schedule: Option<String>,
    /// The image of the agent, if it differs from the image of its own pod.
    pub image: Option<String>,
}

/// Who manages the etcds of a Shoot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EtcdMode {
    /// The agent writes StatefulSets.
    Plain,
    /// The agent writes Etcd objects, and an etcd-druid manages them.
    Druid,
}

/// Field `edge.tunnel` of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tunnel {
    /// Agents on the nodes connect to a server beside each API server.
    #[default]
    Konnectivity,
    /// The pods of the seed reach nodes and pods of Shoots at their addresses.
    Direct,
}

/// What the site wants on the nodes of each Shoot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeSettings {
    pub(crate) tunnel: Tunnel,
    pub(crate) has_problem_detector: bool,
    pub(crate) has_exporter: bool,
}

/// The volume of an etcd at its creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdVolume {
    /// Its class; if unset, the seed's default class.
    pub storage_class: Option<String>,
    /// Its size, a quantity.
    pub size: String,
}

/// Field `edge.exposure` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exposure {
    /// The type of the Service.
    pub(crate) kind: ExposureType,
    /// The address of the nodes, if it is not one of their own addresses.
    pub(crate) address: Option<String>,
    /// Annotations of the Service.
    pub(crate) annotations: SortedMap<String, String>,
}

/// How clients outside the seed reach the kube-apiserver of a Shoot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExposureType {
    /// Through a port of the nodes.
    NodePort,
    /// Through a load balancer that another component provides.
    LoadBalancer,
    /// Only from inside the seed.
    ClusterIp,
}

impl Etcd {
    /// `least` is the smallest volume of the seed.
    pub(super) fn read(r: FieldReader<'_>, least: FieldReader<'_>) -> Self {
        Self {
            mode: if r.str("mode") == "Druid" { EtcdMode::Druid } else { EtcdMode::Plain },
            main: EtcdVolume::read(r.at("main"), MAIN_SIZE, least),
            events: EtcdVolume::read(r.at("events"), EVENTS_SIZE, least),
            snapshots: EtcdSnapshots::read(r.at("snapshots")),
        }
    }
}

impl EtcdSnapshots {
    fn read(r: FieldReader<'_>) -> Option<Self> {
        let store = r.str("store");
        (store != "None").then(|| Self {
            directory: text(r.str("directory")).filter(|_| store == "Directory"),
            keep: r.count("keep"),
            schedule: text(r.str("schedule")),
            image: text(r.str("image")),
        })
    }
}

impl EtcdVolume {
    fn read(r: FieldReader<'_>, default: &str, least: FieldReader<'_>) -> Self {
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
    pub(super) fn read(r: FieldReader<'_>) -> Self {
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
