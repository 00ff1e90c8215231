//! The configuration: reads a `GardenletConfiguration` (YAML or JSON), fills in the defaults and checks it. It finds
//! all problems in one pass, each with the path of its field.
//!
//! `schema` is the table of all fields, `bounds` holds their smallest and largest values, and `inert` the fields
//! without effect; `walk` applies them. `validate` and `seed` hold the rules across fields. `settings` is what the rest
//! of the agent reads.

use std::fmt;

use serde_json::Value;

use crate::format::yaml::{self, Repeated};
use crate::limits;

pub(crate) mod backup;
pub(crate) mod care;
pub mod control_plane;
mod controllers;
pub(crate) mod file;
pub mod settings;
pub(crate) mod version;

mod bounds;
mod environment;
mod features;
mod inert;
mod read;
mod replaced;
mod rule;
mod scalar;
mod schema;
mod seed;
mod shown;
mod validate;
mod walk;

use read::FieldReader;
pub(crate) use settings::SecretReference;
pub use settings::Settings;

/// An error or a warning at one place of the document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigProblem {
    /// The path, such as `controllers.seed.syncPeriod`; the file's name if the text is not a document at all.
    pub path: String,
    /// The problem and the remedy.
    pub message: String,
}

impl ConfigProblem {
    fn new(path: &str, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), message: message.into() }
    }
}

impl ConfigProblem {
    /// The same as a warning, for a list of errors or a terminal.
    pub(crate) fn as_warning(&self) -> Self {
        Self::new(&self.path, format!("warning: {}", self.message))
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// A valid configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedConfig {
    /// The settings.
    pub settings: Settings,
    /// Warnings: unknown fields, and fields without effect.
    pub warnings: Vec<ConfigProblem>,
}

/// The problems found so far.
#[derive(Default)]
struct ConfigProblems {
    errors: Vec<ConfigProblem>,
    warnings: Vec<ConfigProblem>,
}

/// Reads, completes and checks a configuration. `file_name` appears in messages about the text as a whole.
/// Errors: the errors, sorted by path, up to a maximum, followed by the warnings, which are marked as such.
pub fn load(text: &str, file_name: &str) -> Result<LoadedConfig, Vec<ConfigProblem>> {
    let (document, repeated) = parse(text).map_err(|message| vec![ConfigProblem::new(file_name, message)])?;
    let mut problems = ConfigProblems::default();
    validate::check_text(&document, &repeated, &mut problems);
    let retry_period = FieldReader::new(&document).duration("leaderElection.retryPeriod");
    let document = complete(document, &mut problems);
    seed::check(&document, &mut problems);
    problems.errors.sort();
    problems.warnings.sort();
    if !problems.errors.is_empty() {
        problems.errors.extend(problems.warnings.iter().map(ConfigProblem::as_warning));
        problems.errors.truncate(limits::CONFIG_PROBLEMS_MAX);
        return Err(problems.errors);
    }
    problems.warnings.truncate(limits::CONFIG_PROBLEMS_MAX);
    let mut settings = Settings::read(&document);
    if retry_period.is_zero() {
        settings.leader_election.spare_writes();
    }
    Ok(LoadedConfig { settings, warnings: problems.warnings })
}

/// The complete document of an empty configuration. `seedConfig` has no defaults.
pub(crate) fn defaults() -> Value {
    complete(Value::Object(serde_json::Map::new()), &mut ConfigProblems::default())
}

fn parse(text: &str) -> Result<(Value, Vec<Repeated>), String> {
    if text.len() > limits::CONFIG_FILE_BYTES_MAX {
        let max = limits::CONFIG_FILE_BYTES_MAX;
        return Err(format!("has {} bytes; a configuration has at most {max}", text.len()));
    }
    match yaml::parse_noting_repeated(text).map_err(|error| error.to_string())? {
        (Value::Null, repeated) => Ok((Value::Object(serde_json::Map::new()), repeated)),
        (document, repeated) if document.is_object() => Ok((document, repeated)),
        _ => Err("is neither a YAML nor a JSON document with fields".to_owned()),
    }
}

/// Fills in the defaults and checks all rules except those of the Seed.
fn complete(mut document: Value, problems: &mut ConfigProblems) -> Value {
    walk::walk(&mut document, &schema::tree(), problems);
    replaced::check(&document, problems);
    features::complete(&mut document, problems);
    validate::derive_defaults(&mut document);
    validate::check(&document, problems);
    document
}

#[cfg(test)]
mod tests;
