//! The objects of templates: `.Chart`, `.Files`, `.Capabilities` and others.

use std::any::Any;
use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use super::glob::Pattern;
use super::render::KubeVersion;
use super::value::{Entries, Map, MapKind, Object, Signature, Type, Value, count_walked};
use super::{Chart, File, Metadata};
use crate::base::json::json;
use crate::base::sorted::SortedMap;
use crate::format::base64;
use crate::format::yaml::{self, Dialect};

/// `.Chart`: in Helm 4 a map with Go's names of the fields.
pub(super) fn metadata(metadata: &Metadata, is_root: bool) -> Value {
    let m = metadata;
    let text = |text: &str| Value::str(text);
    let list = |texts: &[String]| Value::list(texts.iter().map(|t| text(t)).collect());
    let maintainers = m
        .maintainers
        .iter()
        .map(|m| Value::map([("Name", text(&m.name)), ("Email", text(&m.email)), ("URL", text(&m.url))]));
    let dependencies = m.dependencies.iter().map(|d| {
        let numbers = super::value::Numbers::Float64Always;
        let imports = d.import_values.iter().map(|v| Value::from_json(v, numbers)).collect();
        Value::map([
            ("Name", text(&d.name)),
            ("Version", text(&d.version)),
            ("Repository", text(&d.repository)),
            ("Condition", text(&d.condition)),
            ("Tags", list(&d.tags)),
            ("Enabled", d.enabled.into()),
            ("ImportValues", Value::list(imports)),
            ("Alias", text(&d.alias)),
        ])
    });
    Value::map([
        ("Name", text(&m.name)),
        ("Home", text(&m.home)),
        ("Sources", list(&m.sources)),
        ("Version", text(&m.version)),
        ("Description", text(&m.description)),
        ("Keywords", list(&m.keywords)),
        ("Maintainers", Value::list(maintainers.collect())),
        ("Icon", text(&m.icon)),
        ("APIVersion", text(&m.api_version)),
        ("Condition", text(&m.condition)),
        ("Tags", text(&m.tags)),
        ("AppVersion", text(&m.app_version)),
        ("Deprecated", m.deprecated.into()),
        ("Annotations", annotations(m.annotations.as_ref())),
        ("KubeVersion", text(&m.kube_version)),
        ("Dependencies", Value::list(dependencies.collect())),
        ("Type", text(&m.kind)),
        ("IsRoot", is_root.into()),
    ])
}

fn annotations(annotations: Option<&SortedMap<String, String>>) -> Value {
    let Some(annotations) = annotations else { return Map::nil().with_kind(MapKind::Strings).into() };
    let entries: Entries =
        annotations.iter().map(|(k, v)| (Rc::from(k.as_str()), Value::str(v.as_str()))).collect();
    Map::of(MapKind::Strings, entries).into()
}

/// This many copied bytes count as one visited value.
const BYTES_PER_VALUE: usize = 64;

/// The content of a file as a value; the copy is counted.
fn copied(data: &[u8]) -> Value {
    count_walked(data.len() / BYTES_PER_VALUE);
    Value::Bytes(Rc::from(data))
}

/// `.Files`: all files of a chart except templates and values.
pub(super) struct Files(SortedMap<String, Arc<[u8]>>);

impl Files {
    pub(super) fn of(chart: &Chart) -> Value {
        let file = |f: &File| (f.name.clone(), f.data.clone());
        Value::native(Self(chart.files.iter().map(file).collect()))
    }

    fn data(&self, name: &str) -> &[u8] {
        self.0.get(name).map_or(&[], |data| data)
    }

    /// A broken pattern matches all files, as upstream.
    fn glob(&self, pattern: &str) -> Self {
        count_walked(self.0.len());
        let pattern = Pattern::glob(pattern);
        let fits = |name: &str| pattern.as_ref().is_none_or(|p| p.matches(name));
        Self(self.0.iter().filter(|(name, _)| fits(name)).map(|(n, d)| (n.clone(), d.clone())).collect())
    }

    fn lines(&self, name: &str) -> Value {
        let data = self.data(name);
        count_walked(data.len() / BYTES_PER_VALUE);
        if data.is_empty() {
            return Value::strings(Vec::<&str>::new());
        }
        let data = data.strip_suffix(b"\n").unwrap_or(data);
        Value::strings(data.split(|b| *b == b'\n').map(super::value::GoString::from))
    }

    /// The bytes of all files.
    fn size(&self) -> usize {
        self.0.values().map(|data| data.len()).sum()
    }

    /// The base names of the files and their content, as YAML without the last line break.
    fn table(&self, content: impl Fn(&[u8]) -> String) -> String {
        let entries = self.0.iter().map(|(name, data)| {
            let base = name.rsplit('/').next().unwrap_or(name);
            (base.to_owned(), serde_json::Value::String(content(data)))
        });
        let text = yaml::emit(&serde_json::Value::Object(entries.collect()), Dialect::V2);
        text.strip_suffix('\n').unwrap_or(&text).to_owned()
    }
}

impl Object for Files {
    fn type_name(&self) -> &'static str {
        "engine.files"
    }

    fn kind_name(&self) -> &'static str {
        "map"
    }

    fn display(&self) -> String {
        // Each byte becomes a text.
        count_walked(self.size());
        let entry = |(name, data): (&String, &Arc<[u8]>)| {
            let bytes: Vec<String> = data.iter().map(u8::to_string).collect();
            format!("{name}:[{}]", bytes.join(" "))
        };
        format!("map[{}]", self.0.iter().map(entry).collect::<Vec<_>>().join(" "))
    }

    fn is_stringer(&self) -> bool {
        false
    }

    fn to_json(&self) -> serde_json::Value {
        count_walked(self.size() / BYTES_PER_VALUE);
        self.0.iter().map(|(name, data)| (name.clone(), json!(base64::encode(data)))).collect()
    }

    fn field(&self, name: &str) -> Option<Value> {
        self.0.get(name).map(|data| copied(data))
    }

    fn method(&self, name: &str) -> Option<Signature> {
        match name {
            "Get" | "GetBytes" | "Lines" | "Glob" => Some(Signature { fixed: &[Type::Str], variadic: None }),
            "AsConfig" | "AsSecrets" => Some(Signature { fixed: &[], variadic: None }),
            _ => None,
        }
    }

    fn call(&self, name: &str, args: &[Value]) -> Result<Value, String> {
        let argument = args.first().and_then(Value::as_text).map(|t| t.to_str()).unwrap_or_default();
        Ok(match name {
            "Get" => Value::str(self.data(&argument)),
            "GetBytes" => Value::Bytes(Rc::from(self.data(&argument))),
            "Lines" => self.lines(&argument),
            "Glob" => Value::native(self.glob(&argument)),
            "AsConfig" => Value::str(self.table(|data| String::from_utf8_lossy(data).into_owned())),
            "AsSecrets" => Value::str(self.table(base64::encode)),
            _ => return Err(format!("no method {name}")),
        })
    }

    fn count(&self) -> Option<usize> {
        Some(self.0.len())
    }

    fn entries(&self) -> Vec<(Value, Value)> {
        let entry = |(name, data): (&String, &Arc<[u8]>)| (Value::str(name.as_str()), copied(data));
        self.0.iter().map(entry).collect()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// `.Capabilities`.
pub(super) struct Capabilities {
    pub(super) kube_version: KubeVersion,
    pub(super) api_versions: Rc<[Cow<'static, str>]>,
    /// Helm's own version; a gardenlet leaves it empty.
    pub(super) helm_version: &'static str,
}

impl Object for Capabilities {
    fn type_name(&self) -> &'static str {
        "*common.Capabilities"
    }

    fn kind_name(&self) -> &'static str {
        "ptr"
    }

    fn display(&self) -> String {
        let k = &self.kube_version;
        let versions = self.api_versions.join(" ");
        let helm = helm_fields(self.helm_version).map(|(_, _, v)| v).join(" ");
        format!(
            "&{{{{{} {} {} {}}} [{versions}] {{{helm}}}}}",
            k.version, k.constraint_version, k.major, k.minor
        )
    }

    fn is_stringer(&self) -> bool {
        false
    }

    fn to_json(&self) -> serde_json::Value {
        json!({
            "KubeVersion": self.kube_version.to_json(),
            "APIVersions": *self.api_versions,
            "HelmVersion": HelmVersion(self.helm_version).to_json(),
        })
    }

    fn field(&self, name: &str) -> Option<Value> {
        match name {
            "KubeVersion" => Some(Value::native(self.kube_version.clone())),
            "APIVersions" => Some(Value::native(ApiVersions(self.api_versions.clone()))),
            "HelmVersion" => Some(Value::native(HelmVersion(self.helm_version))),
            _ => None,
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Object for KubeVersion {
    fn type_name(&self) -> &'static str {
        "common.KubeVersion"
    }

    fn display(&self) -> String {
        format!("{{{} {} {} {}}}", self.version, self.constraint_version, self.major, self.minor)
    }

    fn action_text(&self) -> Option<String> {
        Some(self.constraint_version.clone())
    }

    fn is_stringer(&self) -> bool {
        false
    }

    fn to_json(&self) -> serde_json::Value {
        json!({"Version": self.version, "Major": self.major, "Minor": self.minor})
    }

    fn field(&self, name: &str) -> Option<Value> {
        match name {
            "Version" => Some(self.version.as_str().into()),
            "Major" => Some(self.major.as_str().into()),
            "Minor" => Some(self.minor.as_str().into()),
            _ => None,
        }
    }

    fn method(&self, name: &str) -> Option<Signature> {
        matches!(name, "String" | "GitVersion").then_some(Signature { fixed: &[], variadic: None })
    }

    fn call(&self, name: &str, _: &[Value]) -> Result<Value, String> {
        Ok(if name == "String" { &self.constraint_version } else { &self.version }.as_str().into())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// `.Capabilities.APIVersions`.
struct ApiVersions(Rc<[Cow<'static, str>]>);

impl Object for ApiVersions {
    fn type_name(&self) -> &'static str {
        "common.VersionSet"
    }

    fn kind_name(&self) -> &'static str {
        "slice"
    }

    fn display(&self) -> String {
        format!("[{}]", self.0.join(" "))
    }

    fn is_stringer(&self) -> bool {
        false
    }

    fn to_json(&self) -> serde_json::Value {
        json!(*self.0)
    }

    fn method(&self, name: &str) -> Option<Signature> {
        (name == "Has").then_some(Signature { fixed: &[Type::Str], variadic: None })
    }

    fn call(&self, _: &str, args: &[Value]) -> Result<Value, String> {
        let wanted = args.first().and_then(Value::as_text).map(|t| t.to_str()).unwrap_or_default();
        Ok(self.0.contains(&wanted).into())
    }

    fn count(&self) -> Option<usize> {
        Some(self.0.len())
    }

    fn item(&self, index: usize) -> Option<Value> {
        self.0.get(index).map(|version| (&**version).into())
    }

    fn entries(&self) -> Vec<(Value, Value)> {
        (0i64..).zip(self.0.iter()).map(|(i, v)| (Value::Int(i), (&**v).into())).collect()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// `.Capabilities.HelmVersion`.
struct HelmVersion(&'static str);

/// Field, name in JSON, value.
fn helm_fields(version: &'static str) -> [(&'static str, &'static str, &'static str); 5] {
    [
        ("Version", "version", version),
        ("GitCommit", "git_commit", ""),
        ("GitTreeState", "git_tree_state", ""),
        ("GoVersion", "go_version", ""),
        ("KubeClientVersion", "kube_client_version", ""),
    ]
}

impl Object for HelmVersion {
    fn type_name(&self) -> &'static str {
        "version.BuildInfo"
    }

    fn display(&self) -> String {
        format!("{{{}}}", helm_fields(self.0).map(|(_, _, value)| value).join(" "))
    }

    fn is_stringer(&self) -> bool {
        false
    }

    fn to_json(&self) -> serde_json::Value {
        let set = helm_fields(self.0).into_iter().filter(|(_, _, value)| !value.is_empty());
        set.map(|(_, name, value)| (name.to_owned(), json!(value))).collect()
    }

    fn field(&self, name: &str) -> Option<Value> {
        helm_fields(self.0).into_iter().find(|(field, ..)| *field == name).map(|(_, _, value)| value.into())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
