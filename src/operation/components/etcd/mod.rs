//! The etcds of a Shoot, `etcd-main` and `etcd-events`: [`plain`], which the agent runs itself, or [`druid`], which an
//! etcd-druid runs.

use serde_json::Value;

use crate::base::json::json;
use crate::components::archive;
use crate::config::control_plane::EtcdVolume;

pub mod claims;
pub mod druid;
pub(crate) mod mode;
mod moving;
pub mod plain;
pub(crate) mod tasks;

/// Which of the two etcds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Everything but Events.
    Main,
    /// Events, which may be lost.
    Events,
}

/// The input that both implementations share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Input<'a> {
    /// The namespace of the control plane.
    pub namespace: &'a str,
    /// Which etcd.
    pub role: Role,
    /// 1, or 0 for a hibernated Shoot.
    pub replicas: u32,
    /// ServerNames of Secrets.
    pub secrets: Secrets<'a>,
    /// Its volume, used when it is created.
    pub volume: &'a EtcdVolume,
}

/// ServerNames of the Secrets that an etcd needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Secrets<'a> {
    /// The bundle `ca-etcd-bundle`, with key `bundle.crt`.
    pub ca: &'a str,
    /// `etcd-server-main` or `etcd-server-events`.
    pub server: &'a str,
    /// The name of Secret `etcd-client`.
    pub client: &'a str,
}

impl Role {
    pub(crate) const ALL: [Self; 2] = [Self::Main, Self::Events];

    /// The name of the etcd and of its StatefulSet.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Main => "etcd-main",
            Self::Events => "etcd-events",
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Events => "events",
        }
    }

    /// Whether snapshots of it are taken. Events are not worth them.
    pub(super) const fn has_snapshots(self) -> bool {
        matches!(self, Self::Main)
    }

    /// The name of the volume claim's template.
    const fn claim(self) -> &'static str {
        match self {
            Self::Main => "main-etcd",
            Self::Events => "etcd-events",
        }
    }

    /// The name of the first member's volume claim. It outlives the StatefulSet.
    pub(crate) fn first_claim(self) -> String {
        format!("{}-{}-0", self.claim(), self.name())
    }

    const fn metrics(self) -> &'static str {
        match self {
            Self::Main => "extensive",
            Self::Events => "basic",
        }
    }

    /// The container's resource requests.
    fn requests(self) -> Value {
        match self {
            Self::Main => json!({"cpu": "150m", "memory": "500M"}),
            Self::Events => json!({"cpu": "30m", "memory": "150M"}),
        }
    }
}

impl Input<'_> {
    /// A manifest with its names filled in. `more` are names that only this manifest uses.
    fn manifest(&self, path: &str, more: &[(&str, &str)]) -> Value {
        let own = [
            ("name", self.role.name()),
            ("namespace", self.namespace),
            ("role", self.role.as_str()),
            ("claim", self.role.claim()),
            ("metrics", self.role.metrics()),
            ("ca", self.secrets.ca),
            ("server", self.secrets.server),
            ("client", self.secrets.client),
            ("size", &self.volume.size),
        ];
        let mut object = archive::object(path);
        let names: Vec<_> = own.iter().chain(more).copied().collect();
        replace(&mut object, &names);
        object["metadata"]["namespace"] = json!(self.namespace);
        object
    }
}

/// Replaces `${...}` in the texts of a manifest with names.
fn replace(value: &mut Value, names: &[(&str, &str)]) {
    match value {
        Value::String(text) if text.contains("${") => {
            for (name, with) in names {
                *text = text.replace(&format!("${{{name}}}"), with);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| replace(value, names)),
        Value::Object(map) => map.values_mut().for_each(|value| replace(value, names)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An etcd of a Shoot.
    pub(super) fn input(role: Role, volume: &EtcdVolume) -> Input<'_> {
        let server = match role {
            Role::Main => "etcd-server-main-d1fbe9bd",
            Role::Events => "etcd-server-events-04e49acc",
        };
        let secrets = Secrets { ca: "ca-etcd-bundle-6fce777e", server, client: "etcd-client-828d4dc3" };
        Input { namespace: "shoot--p--s2", role, replicas: 1, secrets, volume }
    }
}
