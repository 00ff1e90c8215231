//! The input of a rendering besides the chart.

use crate::base::clock::Clock;
use crate::chart::ValuesTable;

/// The purpose of a rendering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenderMode {
    /// As `helm template`.
    Template,
    /// As a gardenlet renders the chart of an extension.
    Extension,
}

/// Templates read it as `.Capabilities.KubeVersion`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeVersion {
    /// The full version: `v1.33.4-gke.1245000`.
    pub(crate) version: String,
    /// The version for checking `kubeVersion` of a chart, and for printing; Helm's own has no suffix.
    pub(crate) constraint_version: String,
    pub(crate) major: String,
    /// The second number; servers may append `+`.
    pub(crate) minor: String,
}

impl KubeVersion {
    /// The default of `helm template`.
    pub(crate) fn helm_default() -> Self {
        Self::of_flag("v1.36.0").unwrap_or_else(|| Self::of_server("v1.36.0", "1", "36"))
    }

    /// Parses the value of `--kube-version`; `None` if it is not a version.
    pub fn of_flag(text: &str) -> Option<Self> {
        let core = text.strip_prefix('v').unwrap_or(text);
        let end = core.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(core.len());
        let mut numbers = core[..end].trim_end_matches('.').split('.');
        let (major, minor) = (numbers.next()?, numbers.next()?);
        let patch = numbers.next().unwrap_or("0");
        for number in [major, minor, patch] {
            number.parse::<u32>().ok()?;
        }
        Some(Self {
            version: format!("v{core}"),
            constraint_version: format!("v{major}.{minor}.{patch}"),
            major: major.to_owned(),
            minor: minor.to_owned(),
        })
    }

    /// A server's response to `/version`, verbatim.
    pub(crate) fn of_server(git_version: &str, major: &str, minor: &str) -> Self {
        Self {
            version: git_version.to_owned(),
            constraint_version: git_version.to_owned(),
            major: major.to_owned(),
            minor: minor.to_owned(),
        }
    }
}

/// The input of a rendering besides the chart.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) mode: RenderMode,
    /// Templates read it as `.Release.Name`.
    pub(crate) name: String,
    /// Templates read it as `.Release.Namespace`.
    pub(crate) namespace: String,
    /// The user's values, which override the chart's defaults.
    pub(crate) values: ValuesTable,
    /// Templates read it as `.Capabilities.KubeVersion`.
    pub(crate) kube_version: KubeVersion,
    /// More `.Capabilities.APIVersions` ([`RenderMode::Template`] only).
    pub(crate) api_versions: Vec<String>,
    /// Whether the chart sees an upgrade instead of an installation.
    pub(crate) is_upgrade: bool,
    /// Whether to check values against the schema of the chart.
    pub(crate) checks_schema: bool,
    /// The clock for `now`.
    pub clock: Clock,
}

impl Options {
    /// A new release without values of the user, on Helm's default version of Kubernetes.
    pub fn new(mode: RenderMode, name: &str, namespace: &str) -> Self {
        Self {
            mode,
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            values: ValuesTable::new(),
            kube_version: KubeVersion::helm_default(),
            api_versions: Vec::new(),
            is_upgrade: false,
            checks_schema: true,
            clock: Clock::system(),
        }
    }
}
