//! Helm charts: loading, values, templates, and manifests. The code knows of no cluster: `lookup` behaves as in an
//! empty cluster.
//!
//! Behaviour follows Helm 4.2 in two modes ([`render::RenderMode`]): the output of `helm template`, and a gardenlet's
//! rendering of an extension's chart.

use std::sync::Arc;

use serde_json::Value;

pub mod archive;
pub mod child;
pub(crate) mod coalesce;
mod context;
mod dependencies;
mod expand;
mod glob;
pub mod manifest;
pub(crate) mod metadata;
pub mod render;
mod schema;
pub mod set;
mod slice;
pub(crate) mod template;
pub(crate) mod value;
pub mod values;

pub(crate) use metadata::Dependency;
pub use metadata::Metadata;
pub(crate) use slice::TextSlice;

/// Values of a chart, or a table within them. Numbers in files are floats, as in Helm; numbers of
/// `--set` may be integers.
pub type ValuesTable = serde_json::Map<String, Value>;

/// A chart with its sub-charts.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// The content of Chart.yaml.
    pub metadata: Metadata,
    /// The defaults of values.yaml.
    pub values: ValuesTable,
    /// The text of values.schema.json.
    pub schema: Option<Arc<[u8]>>,
    /// Files below `templates/`.
    pub templates: Vec<File>,
    /// All other files, which templates reach through `.Files`.
    pub files: Vec<File>,
    /// The charts below `charts/`.
    pub children: Vec<Chart>,
}

/// A file of a chart.
#[derive(Clone, Debug)]
pub struct File {
    /// Its path within the chart, with `/`.
    pub name: String,
    /// Its content, without a byte order mark.
    pub data: Arc<[u8]>,
}

impl Chart {
    /// The name in Chart.yaml, or the alias that a parent gave.
    pub(crate) fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Whether this chart only provides named templates for other charts.
    pub(crate) fn is_library(&self) -> bool {
        self.metadata.kind.eq_ignore_ascii_case("library")
    }
}
