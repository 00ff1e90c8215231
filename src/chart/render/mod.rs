//! Renders a chart: values and templates to manifests.
//!
//! There is one engine with two modes. [`RenderMode::Template`] prints the output of `helm template`; tests compare it.
//! [`RenderMode::Extension`] does what a gardenlet does with the chart of an extension: it drops hooks and CRDs, knows no API
//! versions, ignores `kubeVersion`, and splits the result into keys of a Secret ([`Rendered::objects`]).

use std::borrow::Cow;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value as Json;

use super::coalesce::{self, Nulls};
use super::context::{Capabilities, Files, metadata};
use super::glob::Pattern;
use super::manifest::{self, KeptPart, Manifest, Manifests};
use super::template::{self, Templates};
use super::value::{Map, MapKind, Value};
use super::{Chart, TextSlice, dependencies, schema};
use crate::base::sorted::SortedMap;
use crate::format::yaml::{self, Dialect};

mod api_versions;
mod name;
mod options;

use api_versions::DEFAULT_API_VERSIONS;
pub use options::{KubeVersion, Options, RenderMode};

/// Why a chart was not rendered. The texts follow Helm's.
#[derive(Debug)]
pub enum Error {
    /// Dependencies are listed but missing.
    MissingDependencies(Vec<String>),
    /// A library chart cannot be installed.
    Library,
    /// The release cannot have this name.
    Name(String),
    /// The chart requires another version of Kubernetes.
    KubeVersion {
        /// The required range.
        wanted: String,
        /// The actual version.
        version: String,
    },
    /// Sub-charts or their values are invalid.
    Dependencies(dependencies::Error),
    /// Values do not match the schema: the report, line by line.
    Schema(String),
    /// A template is wrong, or failed on purpose.
    Template(template::Error),
    /// The output of a template is not an object; the output of all templates, by path.
    Manifest(manifest::Error, SortedMap<String, TextSlice>),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingDependencies(names) => {
                write!(f, "found in Chart.yaml, but missing in charts/ directory: {}", names.join(", "))
            }
            Self::Library => f.write_str("library charts are not installable"),
            Self::Name(name) => f.write_str(&name::refusal(name)),
            Self::KubeVersion { wanted, version } => {
                write!(
                    f,
                    "chart requires kubeVersion: {wanted} which is incompatible with Kubernetes {version}"
                )
            }
            Self::Dependencies(error) => write!(f, "chart dependencies processing failed: {error}"),
            Self::Schema(report) => {
                let report = report.trim_end();
                write!(
                    f,
                    "values don't meet the specifications of the schema(s) in the following chart(s):\n{report}"
                )
            }
            Self::Template(error) => f.write_str(&error.helm_text()),
            Self::Manifest(error, _) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Error {}

/// The result.
#[derive(Clone, Debug, Default)]
pub struct Rendered {
    pub(crate) manifests: Manifests,
    /// The files below `crds/`, with their paths from the root chart; empty for extensions.
    pub(crate) crds: Vec<(String, Arc<[u8]>)>,
}

/// Renders a chart. Recursive templates need a deep stack: see [`template::Options`]. Errors: problems of
/// values, templates, or their output.
pub fn render(mut chart: Chart, options: &Options) -> Result<Rendered, Error> {
    if options.mode == RenderMode::Template {
        check_as_helm(&chart, options)?;
    }
    dependencies::process(&mut chart, &options.values).map_err(Error::Dependencies)?;
    let values = coalesce::coalesced(&chart, &options.values, Nulls::Drop);
    let values = values.map_err(|error| Error::Dependencies(error.into()))?;
    if options.checks_schema
        && schema::is_wanted(&chart)
        && let Some(report) = schema::check(&chart, &coalesce::table_of(values.clone()))
    {
        return Err(Error::Schema(report));
    }
    drop_defaults(&mut chart);
    let mut files = render_files(&mut chart, &values, options)?;
    files.retain(|path, _| !path.ends_with("NOTES.txt"));
    let keep = match options.mode {
        RenderMode::Template => KeptPart::Head,
        RenderMode::Extension => KeptPart::Object,
    };
    let mut manifests = match manifest::sort(files.iter().map(|(path, text)| (path.as_str(), text)), keep) {
        Ok(manifests) => manifests,
        Err(error) => return Err(Error::Manifest(error, files)),
    };
    let mut crds = Vec::new();
    match options.mode {
        RenderMode::Template => collect_crds(&chart, chart.name(), &mut crds),
        RenderMode::Extension => manifests.hooks.clear(),
    }
    Ok(Rendered { manifests, crds })
}

/// Templates see only the coalesced values.
fn drop_defaults(chart: &mut Chart) {
    chart.values.clear();
    chart.children.iter_mut().for_each(drop_defaults);
}

/// Checks that `helm template` makes and a gardenlet does not.
fn check_as_helm(chart: &Chart, options: &Options) -> Result<(), Error> {
    if chart.is_library() {
        return Err(Error::Library);
    }
    let missing = dependencies::missing(chart);
    if !missing.is_empty() {
        return Err(Error::MissingDependencies(missing.into_iter().map(str::to_owned).collect()));
    }
    if !name::is_valid(&options.name) {
        return Err(Error::Name(options.name.clone()));
    }
    let (wanted, version) = (&chart.metadata.kube_version, &options.kube_version.constraint_version);
    if !wanted.is_empty() && !dependencies::in_range(wanted, version) {
        let version = options.kube_version.version.clone();
        return Err(Error::KubeVersion { wanted: wanted.clone(), version });
    }
    Ok(())
}

/// One template: its path from the root chart, its text, its context, and its directory.
struct Template {
    path: String,
    text: TextSlice,
    context: Map,
    folder: Rc<str>,
    depth: usize,
}

/// Renders every template, the deepest chart first, with shared values: a file sees what an earlier file has set.
fn render_files(
    chart: &mut Chart,
    values: &Map,
    options: &Options,
) -> Result<SortedMap<String, TextSlice>, Error> {
    let mut templates = Vec::new();
    let root = Context::root(options);
    let name = chart.name().to_owned();
    root.collect(chart, &name, Some(values), &mut templates);
    templates.sort_by(|a, b| b.depth.cmp(&a.depth).then_with(|| b.path.cmp(&a.path)));
    // Of two files with one path, upstream sees only the last.
    templates.dedup_by(|a, b| a.path == b.path);

    let options = template::Options { clock: options.clock.clone(), ..template::Options::default() };
    let mut set = Templates::new(options);
    for template in &templates {
        set.parse(&template.path, template.text.clone()).map_err(Error::Template)?;
    }
    let mut files = SortedMap::new();
    let [key, name, base_path]: [Rc<str>; 3] = ["Template", "Name", "BasePath"].map(Rc::from);
    for template in templates {
        if template.path.rsplit('/').next().is_some_and(|base| base.starts_with('_')) {
            continue;
        }
        let about = Map::of(MapKind::Values, super::value::Entries::new());
        about.insert(base_path.clone(), Value::str(template.folder));
        about.insert(name.clone(), template.path.as_str());
        template.context.insert(key.clone(), about);
        let text = set.render_file(&template.path, &template.context.into()).map_err(Error::Template)?;
        files.insert(template.path, text);
    }
    Ok(files)
}

/// Shared by all charts of a rendering.
struct Context {
    release: Value,
    capabilities: Value,
}

impl Context {
    fn root(options: &Options) -> Self {
        let (api_versions, helm_version) = match options.mode {
            RenderMode::Template => {
                let known = DEFAULT_API_VERSIONS.iter().map(|v| Cow::Borrowed(*v));
                (known.chain(options.api_versions.iter().cloned().map(Cow::Owned)).collect(), "v4.2")
            }
            RenderMode::Extension => (Rc::from([]), ""),
        };
        let kube_version = options.kube_version.clone();
        let release = Value::map([
            ("Name", Value::str(options.name.as_str())),
            ("Namespace", options.namespace.as_str().into()),
            ("IsUpgrade", options.is_upgrade.into()),
            ("IsInstall", (!options.is_upgrade).into()),
            ("Revision", Value::Int(1)),
            ("Service", "Helm".into()),
        ]);
        let capabilities = Value::native(Capabilities { kube_version, api_versions, helm_version });
        Self { release, capabilities }
    }

    /// Builds the context of a chart's templates, adds the templates, and returns the context
    /// for the parent's `.Subcharts`.
    fn collect(
        &self,
        chart: &mut Chart,
        path: &str,
        values: Option<&Map>,
        templates: &mut Vec<Template>,
    ) -> Map {
        let values = values.map_or_else(Map::new, Map::clone).with_kind(MapKind::Values);
        let subcharts = Map::new();
        for child in &mut chart.children {
            let name = child.name().to_owned();
            let own = values.get(&name);
            let path = format!("{path}/charts/{name}");
            let context = self.collect(child, &path, own.as_ref().and_then(Value::as_map), templates);
            subcharts.insert(name, context);
        }
        let context = Map::of(MapKind::Values, super::value::Entries::new());
        context.insert("Chart", metadata(&chart.metadata, !path.contains('/')));
        context.insert("Files", Files::of(chart));
        context.insert("Release", self.release.clone());
        context.insert("Capabilities", self.capabilities.clone());
        context.insert("Values", values);
        context.insert("Subcharts", subcharts);
        let folder: Rc<str> = format!("{path}/templates").into();
        let library = chart.is_library();
        // The bytes of a file are freed when its text exists.
        let files = std::mem::take(&mut chart.templates).into_iter();
        let usable =
            files.filter(|t| !library || t.name.rsplit('/').next().is_some_and(|base| base.starts_with('_')));
        let depth = path.matches('/').count();
        templates.extend(usable.map(|file| Template {
            path: format!("{path}/{}", file.name),
            text: match std::str::from_utf8(&file.data) {
                Ok(text) => text.into(),
                Err(_) => TextSlice::from(&*String::from_utf8_lossy(&file.data)),
            },
            context: context.clone(),
            folder: folder.clone(),
            depth: depth + file.name.matches('/').count(),
        }));
        context
    }
}

fn collect_crds(chart: &Chart, path: &str, crds: &mut Vec<(String, Arc<[u8]>)>) {
    let is_manifest = |name: &str| {
        name.rsplit_once('.')
            .is_some_and(|(_, e)| ["yaml", "yml", "json"].iter().any(|w| e.eq_ignore_ascii_case(w)))
    };
    for file in chart.files.iter().filter(|f| f.name.starts_with("crds/") && is_manifest(&f.name)) {
        crds.push((format!("{path}/{}", file.name), file.data.clone()));
    }
    for child in &chart.children {
        collect_crds(child, &format!("{path}/charts/{}", child.name()), crds);
    }
}

impl Rendered {
    /// The output of `helm template`, with CRDs first if requested.
    pub fn to_text(&self, include_crds: bool) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut text, include_crds);
        text
    }

    /// Writes the text of [`Rendered::to_text`] piece by piece, because it may be large. Errors:
    /// the errors of `out`.
    pub(crate) fn write(&self, out: &mut impl fmt::Write, include_crds: bool) -> fmt::Result {
        let crds = self.crds.iter().filter(|_| include_crds);
        let crds = crds.map(|(path, data)| (path, String::from_utf8_lossy(data)));
        let objects = self.manifests.objects.iter().map(|m| (&m.path, Cow::Borrowed(&*m.text)));
        let mut documents = crds.chain(objects).peekable();
        while let Some((path, text)) = documents.next() {
            // Helm trims the text as a whole.
            let last = documents.peek().is_none();
            let text = if last { text.trim_end() } else { &*text };
            let gap = if last && text.is_empty() { "" } else { "\n" };
            write!(out, "---\n# Source: {path}{gap}{text}\n")?;
        }
        if self.manifests.objects.is_empty() && (self.crds.is_empty() || !include_crds) {
            out.write_char('\n')?;
        }
        for hook in &self.manifests.hooks {
            write!(out, "---\n# Source: {}\n{}\n", hook.path, &*hook.text)?;
        }
        Ok(())
    }

    /// The documents of [`Rendered::to_text`] whose template path, relative to the root chart's directory,
    /// matches one of the patterns (`templates/*.yaml`). Errors: the first pattern without a match.
    pub(crate) fn show_only(&self, patterns: &[String], include_crds: bool) -> Result<String, String> {
        let all = self.to_text(include_crds);
        let documents = manifest::split(&all);
        let mut text = String::new();
        for wanted in patterns {
            let pattern = Pattern::path(wanted).ok_or_else(|| wanted.clone())?;
            let before = text.len();
            for document in &documents {
                let source = document.strip_prefix("# Source: ").and_then(|rest| rest.lines().next());
                let within = source.and_then(|path| path.split_once('/'));
                if within.is_some_and(|(_, path)| pattern.matches(path)) {
                    text.push_str(&format!("---\n{document}\n"));
                }
            }
            if text.len() == before {
                return Err(wanted.clone());
            }
        }
        Ok(text)
    }

    /// The objects under the keys that a gardenlet gives them in the Secret of an extension.
    ///
    /// A file with one object has its path as key; a file with several has a key for each. Objects without kind or
    /// metadata are left out. Of two objects with the same kind and name in one file, the last one stays.
    pub fn objects(&self) -> SortedMap<String, Json> {
        self.keyed(false)
    }

    /// The same, but keeps objects of one kind, name and file in several namespaces apart.
    pub(crate) fn objects_apart(&self) -> SortedMap<String, Json> {
        self.keyed(true)
    }

    fn keyed(&self, apart: bool) -> SortedMap<String, Json> {
        let mut files: SortedMap<&str, SortedMap<String, &Json>> = SortedMap::new();
        for Manifest { path, object, kind, .. } in &self.manifests.objects {
            let Some(metadata) = object.get("metadata").filter(|m| m.is_object()) else { continue };
            if kind.is_empty() {
                continue;
            }
            let name = metadata.get("name").and_then(Json::as_str).unwrap_or("");
            let mut key = format!("{}/{}", kind.to_lowercase(), name.to_lowercase());
            if apart && let Some(namespace) = metadata.get("namespace").and_then(Json::as_str) {
                key = format!("{key}/{namespace}");
            }
            files.entry(path).or_default().insert(key, object);
        }
        let mut keys = SortedMap::new();
        for (path, objects) in files {
            let single = objects.len() == 1;
            for (name, object) in objects {
                let key = if single { path.replace('/', "_") } else { key_of_many(path, &name) };
                keys.insert(key, object.clone());
            }
        }
        keys
    }
}

/// Replaces each run of characters that keys do not allow with one `_`.
fn key_of_many(path: &str, name: &str) -> String {
    let full = format!("{}/{name}.yaml", path.strip_suffix(".yaml").unwrap_or(path));
    let mut key = String::with_capacity(full.len());
    for c in full.chars() {
        if c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_') {
            key.push(c);
        } else if !key.ends_with('\u{0}') {
            key.push('\u{0}');
        }
    }
    key.replace('\u{0}', "_")
}

/// The text of a key of the Secret.
pub fn secret_text(object: &Json) -> String {
    format!("\n---\n{}\n---\n", yaml::emit(object, Dialect::V4))
}

#[cfg(test)]
mod tests;
