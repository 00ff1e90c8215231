//! The methods of `.Values` besides its keys: Helm defines four methods on the Go type of values.

use std::any::Any;

use super::super::functions::to_yaml;
use super::super::unquote::quote;
use crate::chart::value::{Map, MapKind, Object, Signature, Type, Value};

/// A map as the receiver of its methods.
pub(super) struct MapReceiver(pub(super) Map);

impl MapReceiver {
    /// The parameters of a method; a method hides a key of the same name.
    pub(super) fn signature(name: &str) -> Option<Signature> {
        let fixed: &[Type] = match name {
            "AsMap" | "YAML" => &[],
            "Table" | "PathValue" => &[Type::Str],
            _ => return None,
        };
        Some(Signature { fixed, variadic: None })
    }

    fn table(&self, path: &str) -> Result<Map, String> {
        path.split('.').try_fold(self.0.clone(), |table, name| match table.get(name) {
            Some(Value::Map(map)) if map.kind() != MapKind::Strings => Ok(map.with_kind(MapKind::Values)),
            _ => Err(format!("{} is not a table", quote(name.as_bytes()))),
        })
    }

    fn path_value(&self, path: &str) -> Result<Value, String> {
        if path.is_empty() {
            return Err("YAML path cannot be empty".to_owned());
        }
        let (table, key) = match path.rsplit_once('.') {
            Some((tables, key)) => (self.table(tables).ok(), key),
            None => (Some(self.0.clone()), path),
        };
        let is_table = |v: &Value| matches!(v, Value::Map(m) if m.kind() == MapKind::Any);
        let found = table.and_then(|t| t.get(key)).filter(|v| !is_table(v));
        found.ok_or_else(|| format!("{} is not a value", quote(key.as_bytes())))
    }
}

impl Object for MapReceiver {
    fn type_name(&self) -> &'static str {
        "common.Values"
    }

    fn display(&self) -> String {
        String::new()
    }

    fn call(&self, name: &str, args: &[Value]) -> Result<Value, String> {
        let path = args.first().and_then(Value::as_text).map(|t| t.to_str().into_owned()).unwrap_or_default();
        match name {
            "AsMap" => Ok(self.0.with_kind(MapKind::Any).into()),
            "YAML" => Ok(format!("{}\n", to_yaml(&self.0.clone().into()).unwrap_or_default()).into()),
            "Table" => self.table(&path).map(Value::Map),
            _ => self.path_value(&path),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
