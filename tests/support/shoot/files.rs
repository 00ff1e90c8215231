//! The files of a container: the Secrets and ConfigMaps that its pod mounts.

use serde_json::Value;

use crate::encoding::from_base64;
use crate::json::{list, text};

/// Finds a Secret (`secrets`) or ConfigMap (`configmaps`) of the namespace by its name.
pub type Find<'a> = &'a dyn Fn(&str, &str) -> Option<Value>;

/// The files of the first container of a pod.
pub struct Files<'a> {
    spec: &'a Value,
    find: Find<'a>,
}

/// One Secret or ConfigMap of a volume: resource, name, keys with the paths that they get (none: all keys as they are),
/// and whether it may be absent.
struct Source<'a> {
    resource: &'static str,
    name: &'a str,
    items: &'a [Value],
    is_optional: bool,
}

fn source(volume: &Value) -> Option<Source<'_>> {
    let kinds = [("secrets", "secret"), ("configmaps", "configMap")];
    let (resource, part) = kinds.into_iter().find(|(_, field)| volume[*field].is_object())?;
    let part = &volume[part];
    // A volume names its Secret in another field.
    let name = if text(part, "/secretName").is_empty() { "/name" } else { "/secretName" };
    Some(Source {
        resource,
        name: text(part, name),
        items: list(part, "/items"),
        is_optional: part["optional"] == true,
    })
}

fn sources(volume: &Value) -> Vec<Source<'_>> {
    list(volume, "/projected/sources").iter().chain([volume]).filter_map(source).collect()
}

impl<'a> Files<'a> {
    /// Of a pod with this spec.
    pub fn new(spec: &'a Value, find: Find<'a>) -> Self {
        Self { spec, find }
    }

    /// Whether all volumes can be mounted.
    ///
    /// # Errors
    /// The message of the kubelet's event `FailedMount`.
    pub fn mounted(&self) -> Result<(), String> {
        for volume in list(self.spec, "/volumes") {
            for source in sources(volume) {
                let Source { resource, name, is_optional, .. } = source;
                if !is_optional && (self.find)(resource, name).is_none() {
                    let (volume, kind) = (text(volume, "/name"), resource.trim_end_matches('s'));
                    return Err(format!(
                        "MountVolume.SetUp failed for volume {volume:?} : {kind} {name:?} not found"
                    ));
                }
            }
        }
        Ok(())
    }

    /// The text of a file.
    ///
    /// # Errors
    /// The message of a program that cannot open it.
    pub fn read(&self, path: &str) -> Result<String, String> {
        let mounts = list(self.spec, "/containers/0/volumeMounts").iter();
        let inside = |mount: &'a Value| {
            let rest = path.strip_prefix(text(mount, "/mountPath").trim_end_matches('/'))?;
            Some((text(mount, "/name"), rest.strip_prefix('/')?))
        };
        // The longest path wins.
        let found = mounts.filter_map(inside).min_by_key(|(_, rest)| rest.len());
        let absent = || format!("open {path}: no such file or directory");
        let (name, rest) = found.ok_or_else(absent)?;
        let volume = list(self.spec, "/volumes").iter().find(|volume| volume["name"] == name);
        let volume = volume.ok_or_else(absent)?;
        sources(volume).iter().find_map(|source| self.entry(source, rest)).ok_or_else(absent)
    }

    fn entry(&self, source: &Source<'_>, path: &str) -> Option<String> {
        let key = match source.items {
            [] => path,
            items => text(items.iter().find(|item| item["path"] == path)?, "/key"),
        };
        let object = (self.find)(source.resource, source.name)?;
        let value = object["data"].get(key)?.as_str()?.to_owned();
        match source.resource {
            "secrets" => String::from_utf8(from_base64(&value)?).ok(),
            _ => Some(value),
        }
    }
}
