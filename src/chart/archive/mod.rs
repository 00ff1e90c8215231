//! Loads charts from archives (`.tgz`) and from directories.
//!
//! The allowed content of an archive follows Helm's loader. In addition, the number of files, the nesting depth of
//! charts, and their total size are limited.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::MultiGzDecoder;

use super::{Chart, File, metadata, values};
use crate::base::capped;
use crate::base::sorted::SortedMap;
use crate::format::yaml;
use crate::limits::{
    CHART_ARCHIVE_BYTES_MAX, CHART_BYTES_MAX, CHART_DEPTH_MAX, CHART_FILE_BYTES_MAX, CHART_FILES_MAX,
    CHART_NAME_BYTES_MAX,
};

mod directory;

/// Why a chart was not loaded. The texts follow Helm's.
#[derive(Debug)]
pub enum Error {
    /// The bytes are not a gzip or tar archive.
    Archive(io::Error),
    /// There are no files.
    Empty,
    /// A path is absolute.
    AbsolutePath,
    /// A path has nothing below its first component.
    OutsideBase(String),
    /// A path leaves the chart.
    ParentPath,
    /// A path starts with a drive.
    DrivePath,
    /// Chart.yaml is beside the chart's directory.
    ChartYamlOutside,
    /// The chart has more than this many bytes.
    Size(usize),
    /// A file has more than this many bytes.
    FileSize(String, usize),
    /// There are more than this many files.
    FileCount(usize),
    /// The path of a file is longer than this many bytes.
    NameLength(usize),
    /// Charts are nested deeper than this.
    Depth(usize),
    /// The `apiVersion` of Chart.yaml is neither v1 nor v2.
    ApiVersion(String),
    /// Chart.yaml is missing.
    NoChartYaml,
    /// A file is invalid.
    File {
        /// Its name.
        name: String,
        /// Why.
        source: FileError,
    },
    /// A sub-chart was not loaded.
    Child {
        /// The name of its file or folder.
        file: String,
        /// The chart that it belongs to.
        chart: String,
        /// Why.
        source: Box<Error>,
    },
    /// A file or folder was not read.
    Read {
        /// Where it is.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line of `.helmignore` is invalid.
    Ignore(String),
}

/// A problem of one file of a chart.
#[derive(Debug)]
pub enum FileError {
    /// It is not text.
    Utf8(std::str::Utf8Error),
    /// It is not YAML.
    Yaml(yaml::Error),
    /// A field is wrong.
    Metadata(metadata::Error),
    /// It is not a map.
    NoMap,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Archive(_) => f.write_str("cannot read the chart archive"),
            Self::Empty => f.write_str("no files in chart archive"),
            Self::AbsolutePath => f.write_str("chart illegally contains absolute paths"),
            Self::OutsideBase(name) => {
                write!(f, "chart illegally contains content outside the base directory: {name:?}")
            }
            Self::ParentPath => f.write_str("chart illegally references parent directory"),
            Self::DrivePath => f.write_str("chart contains illegally named files"),
            Self::ChartYamlOutside => f.write_str("chart yaml not in base directory"),
            Self::Size(max) => write!(f, "decompressed chart is larger than the maximum size {max}"),
            Self::FileSize(name, max) => {
                write!(f, "decompressed chart file {name:?} is larger than the maximum file size {max}")
            }
            Self::FileCount(max) => write!(f, "chart has more than {max} files"),
            Self::NameLength(max) => write!(f, "chart has a file whose name is longer than {max} bytes"),
            Self::Depth(max) => write!(f, "charts are nested deeper than {max} levels"),
            Self::ApiVersion(version) => write!(f, "unsupported chart version {version:?}"),
            Self::NoChartYaml => f.write_str("Chart.yaml file is missing"),
            Self::File { source: FileError::Metadata(source), .. } => write!(f, "{source}"),
            Self::File { name, .. } => write!(f, "cannot load {name}"),
            Self::Child { file, chart, .. } => write!(f, "error unpacking subchart {file} in {chart}"),
            Self::Read { path, .. } => write!(f, "cannot read {}", path.display()),
            Self::Ignore(line) => write!(f, "cannot read line {line:?} of .helmignore"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Archive(source) | Self::Read { source, .. } => Some(source),
            Self::File { source: FileError::Metadata(_), .. } => None,
            Self::File { source, .. } => Some(source),
            Self::Child { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Utf8(source) => write!(f, "{source}"),
            Self::Yaml(source) => write!(f, "{source}"),
            Self::Metadata(source) => write!(f, "{source}"),
            Self::NoMap => f.write_str("not a map"),
        }
    }
}

impl std::error::Error for FileError {}

/// Loads a chart from the bytes of a `.tgz`. Errors: if it is not a chart, or is too large.
pub fn load(bytes: &[u8]) -> Result<Chart, Error> {
    load_archive(bytes, &mut Budget::new())
}

/// Loads a chart from a directory, or from a `.tgz` if the path is a file. Errors: if it is not a chart, is
/// too large, or cannot be read.
pub(crate) fn load_path(path: &Path) -> Result<Chart, Error> {
    if path.is_dir() {
        let mut budget = Budget::new();
        let files = directory::read(path, &mut budget)?;
        return load_files(files, &mut budget);
    }
    let read = |source| Error::Read { path: path.to_owned(), source };
    load(&capped::read_file(path, CHART_ARCHIVE_BYTES_MAX).map_err(read)?)
}

/// The remaining limits for a chart and all charts below it.
struct Budget {
    bytes: usize,
    files: usize,
    depth: usize,
}

impl Budget {
    fn new() -> Self {
        Self { bytes: CHART_BYTES_MAX, files: CHART_FILES_MAX, depth: CHART_DEPTH_MAX }
    }

    fn take_file(&mut self, name: &str, size: u64) -> Result<(), Error> {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        if size > self.bytes {
            return Err(Error::Size(CHART_BYTES_MAX));
        }
        if size > CHART_FILE_BYTES_MAX {
            return Err(Error::FileSize(name.to_owned(), CHART_FILE_BYTES_MAX));
        }
        if name.len() > CHART_NAME_BYTES_MAX {
            return Err(Error::NameLength(CHART_NAME_BYTES_MAX));
        }
        self.bytes -= size;
        self.files = self.files.checked_sub(1).ok_or(Error::FileCount(CHART_FILES_MAX))?;
        Ok(())
    }
}

fn load_archive(mut bytes: &[u8], budget: &mut Budget) -> Result<Chart, Error> {
    // Headers count too: a block for each file, and long names.
    let stream_bytes_max = budget.bytes + budget.files * 1_024;
    // The same type as for bundles: a decoder for another kind of reader would add 8 kB to the program.
    let bytes: &mut dyn Read = &mut bytes;
    let unzipped = MultiGzDecoder::new(bytes).take(u64::try_from(stream_bytes_max).unwrap_or(u64::MAX));
    let mut files = Vec::new();
    for entry in tar::Archive::new(unzipped).entries().map_err(Error::Archive)? {
        let entry = entry.map_err(Error::Archive)?;
        let kind = entry.header().entry_type();
        if kind.is_dir() || kind.is_pax_global_extensions() || kind.is_pax_local_extensions() {
            continue;
        }
        let full = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if full.ends_with('/') {
            continue;
        }
        let name = name_within(&full)?;
        let size = entry.header().entry_size().map_err(Error::Archive)?;
        budget.take_file(&full, size)?;
        let mut data = Vec::new();
        // A link has no content, whatever size its header has.
        if kind.is_file() || kind.is_contiguous() {
            // A header of another kind may have set another size. Only as many bytes as were counted are read.
            let read = entry.take(size.saturating_add(1)).read_to_end(&mut data).map_err(Error::Archive)?;
            if u64::try_from(read).ok() != Some(size) {
                return Err(Error::Archive(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        files.push(File { name, data: without_bom(&data) });
    }
    if files.is_empty() {
        return Err(Error::Empty);
    }
    load_files(files, budget)
}

/// The path of a file within its chart, whose directory is the first component.
fn name_within(full: &str) -> Result<String, Error> {
    // Archives made on Windows.
    let delimiter = if full.contains('\\') { '\\' } else { '/' };
    let (first, rest) = full.split_once(delimiter).unwrap_or((full, ""));
    let rest = rest.replace(delimiter, "/");
    if rest.starts_with('/') {
        return Err(Error::AbsolutePath);
    }
    let clean = clean(&rest);
    if clean == "." {
        return Err(if first == "Chart.yaml" {
            Error::ChartYamlOutside
        } else {
            Error::OutsideBase(full.to_owned())
        });
    }
    if clean.starts_with("..") {
        return Err(Error::ParentPath);
    }
    if matches!(clean.as_bytes(), [letter, b':', b'/', ..] if letter.is_ascii_alphabetic()) {
        return Err(Error::DrivePath);
    }
    if first == "Chart.yaml" {
        return Err(Error::ChartYamlOutside);
    }
    Ok(clean)
}

/// Go's `path.Clean` for relative paths.
fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    if parts.is_empty() { ".".to_owned() } else { parts.join("/") }
}

fn without_bom(data: &[u8]) -> Arc<[u8]> {
    data.strip_prefix(b"\xef\xbb\xbf").unwrap_or(data).into()
}

/// Sorts the files of a chart into its parts and loads its sub-charts.
fn load_files(files: Vec<File>, budget: &mut Budget) -> Result<Chart, Error> {
    let mut chart = Chart::default();
    let mut found = false;
    for file in files.iter().filter(|f| f.name == "Chart.yaml") {
        merge_metadata(&mut chart, file)?;
        found = true;
    }
    match chart.metadata.api_version.as_str() {
        "" if found => "v1".clone_into(&mut chart.metadata.api_version),
        "" | "v1" | "v2" => {}
        other => return Err(Error::ApiVersion(other.to_owned())),
    }
    let mut children: SortedMap<String, Vec<File>> = SortedMap::new();
    for file in files {
        let name = file.name.as_str();
        match name {
            "Chart.yaml" => {}
            "Chart.lock" => {
                document(&file)?;
            }
            "values.yaml" => chart.values = values::read(text(&file)?).map_err(|e| e.in_file(name))?,
            "values.schema.json" => chart.schema = Some(file.data),
            "requirements.yaml" | "requirements.lock" => {
                if name == "requirements.yaml" {
                    merge_metadata(&mut chart, &file)?;
                } else {
                    document(&file)?;
                }
                if chart.metadata.api_version == "v1" {
                    chart.files.push(file);
                }
            }
            _ if name.starts_with("templates/") => chart.templates.push(file),
            _ if name.starts_with("charts/") && !has_extension(name, "prov") => {
                let within = &name["charts/".len()..];
                let child = within.split('/').next().unwrap_or("").to_owned();
                let file = File { name: within.to_owned(), data: file.data };
                children.entry(child).or_default().push(file);
            }
            _ => chart.files.push(file),
        }
    }
    // As upstream: if only requirements.yaml exists, the error is a missing name, not a missing Chart.yaml.
    if !found && chart.metadata.dependencies.is_empty() {
        return Err(Error::NoChartYaml);
    }
    chart.metadata.validate().map_err(|source| Error::File {
        name: "Chart.yaml".to_owned(),
        source: FileError::Metadata(source),
    })?;
    for (file, files) in children {
        if file.starts_with(['_', '.']) {
            continue;
        }
        let child = load_child(&file, files, budget).map_err(|source| Error::Child {
            file: file.clone(),
            chart: chart.name().to_owned(),
            source: Box::new(source),
        })?;
        chart.children.push(child);
    }
    Ok(chart)
}

fn load_child(name: &str, files: Vec<File>, budget: &mut Budget) -> Result<Chart, Error> {
    budget.depth = budget.depth.checked_sub(1).ok_or(Error::Depth(CHART_DEPTH_MAX))?;
    let child = match files.first() {
        Some(file) if has_extension(name, "tgz") && file.name == name => load_archive(&file.data, budget),
        _ => {
            let below = files.into_iter().filter_map(|file| {
                let (_, name) = file.name.split_once('/')?;
                Some(File { name: name.to_owned(), data: file.data })
            });
            load_files(below.collect(), budget)
        }
    };
    budget.depth += 1;
    child
}

fn has_extension(name: &str, extension: &str) -> bool {
    name.rsplit('/').next().and_then(|base| base.rsplit_once('.')).is_some_and(|(_, e)| e == extension)
}

fn merge_metadata(chart: &mut Chart, file: &File) -> Result<(), Error> {
    let document = document(file)?;
    chart
        .metadata
        .merge(&document)
        .map_err(|source| Error::File { name: file.name.clone(), source: FileError::Metadata(source) })
}

fn document(file: &File) -> Result<serde_json::Value, Error> {
    yaml::parse(text(file)?)
        .map_err(|source| Error::File { name: file.name.clone(), source: FileError::Yaml(source) })
}

fn text(file: &File) -> Result<&str, Error> {
    std::str::from_utf8(&file.data)
        .map_err(|source| Error::File { name: file.name.clone(), source: FileError::Utf8(source) })
}

#[cfg(test)]
pub(super) mod tests;
