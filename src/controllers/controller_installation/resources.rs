//! Secrets and ConfigMaps of the garden that a deployment's values refer to (`resources[]`). They are read, checked,
//! and passed to the templates in the values as `.resources.<name>.data.<key>`.

use std::fmt;

use serde_json::{Map, Value};

use crate::api::core::{CONFIG_MAP, ConfigMap, SECRET, Secret};
use crate::api::meta::{Key, ObjectMeta, text};
use crate::base::json::json;
use crate::base::sorted::SortedMap;
use crate::format::base64;
use crate::kube::{self, Garden};

use crate::api::resources::GARDEN_NAMESPACE;

const ROLE_LABEL: &str = "gardener.cloud/role";
const ROLE: &str = "resource-reference";

/// Why the data is not available.
#[derive(Debug)]
pub(super) enum Error {
    /// A reference to an unsupported kind.
    Unsupported { reference: String, what: String },
    /// The object lacks the label that allows references.
    Unlabelled { reference: String, object: String },
    /// A value of a Secret is not base64.
    Garbled { reference: String, key: String },
    /// The object does not exist or cannot be read.
    Read { reference: String, object: String, source: kube::Error },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported { reference, what } => {
                write!(
                    f,
                    "resource reference {reference:?} has unsupported {what} (only Secret and ConfigMap of v1 are)"
                )
            }
            Self::Unlabelled { reference, object } => {
                let label = format!("{ROLE_LABEL}: {ROLE}");
                write!(
                    f,
                    "referenced {object} for resource reference {reference:?} does not have the label {label:?}"
                )
            }
            Self::Garbled { reference, key } => {
                write!(f, "value {key:?} of resource reference {reference:?} is not base64")
            }
            Self::Read { reference, object, .. } => {
                write!(f, "cannot get {object} for resource reference {reference:?}")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// The data for the templates; null if there are no references or no values. Errors: the first reference
/// that cannot be resolved.
pub(super) fn resolve(garden: &Garden, references: &[Value], values: &Value) -> Result<Value, Error> {
    if references.is_empty() || values.is_null() {
        return Ok(Value::Null);
    }
    let mut all = Map::new();
    for reference in references {
        let name = text(&reference["name"]);
        let data = data(garden, name, &reference["resourceRef"])?;
        // As upstream serialises it: the key is omitted if there is no data.
        let entry = if data.is_empty() { json!({}) } else { json!({"data": data}) };
        all.insert(name.to_owned(), entry);
    }
    Ok(json!({"resources": all}))
}

fn data(garden: &Garden, name: &str, reference: &Value) -> Result<SortedMap<String, String>, Error> {
    let (kind, object) = (text(&reference["kind"]), text(&reference["name"]));
    let unsupported = |what: String| Error::Unsupported { reference: name.to_owned(), what };
    let described = || format!("{kind} {GARDEN_NAMESPACE}/{object}");
    let unreadable = |source| Error::Read { reference: name.to_owned(), object: described(), source };
    let labelled = |metadata: &ObjectMeta| {
        if metadata.labels.get(ROLE_LABEL).is_some_and(|role| role == ROLE) {
            return Ok(());
        }
        Err(Error::Unlabelled { reference: name.to_owned(), object: described() })
    };
    if reference["apiVersion"] != "v1" {
        return Err(unsupported(format!("apiVersion {:?}", text(&reference["apiVersion"]))));
    }
    let key = Key::new(GARDEN_NAMESPACE, object);
    match kind {
        "Secret" => {
            let secret: Secret = garden.get(&SECRET, &key).map_err(unreadable)?;
            labelled(&secret.metadata)?;
            secret.data.iter().map(|(key, value)| decoded(name, key, value)).collect()
        }
        "ConfigMap" => {
            let map: ConfigMap = garden.get(&CONFIG_MAP, &key).map_err(unreadable)?;
            labelled(&map.metadata)?;
            Ok(map.data)
        }
        other => Err(unsupported(format!("kind {other:?}"))),
    }
}

fn decoded(reference: &str, key: &str, value: &str) -> Result<(String, String), Error> {
    let bytes = base64::decode(value.as_bytes())
        .map_err(|_| Error::Garbled { reference: reference.to_owned(), key: key.to_owned() })?;
    Ok((key.to_owned(), String::from_utf8_lossy(&bytes).into_owned()))
}
