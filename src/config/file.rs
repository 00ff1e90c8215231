//! Reads a configuration from a file or from standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::limits;

use super::{ConfigProblem, LoadedConfig, load as load_text};

/// The path that means standard input.
const STDIN: &str = "-";

/// The name of a configuration in messages.
pub(crate) fn name_of(path: &Path) -> String {
    if path == Path::new(STDIN) { "standard input".to_owned() } else { path.display().to_string() }
}

/// Reads and checks a configuration. For `-`, reads `input`.
pub(crate) fn load(path: &Path, input: &mut dyn Read) -> Result<LoadedConfig, Vec<ConfigProblem>> {
    let text = if path == Path::new(STDIN) { text_of(input) } else { read(path) };
    parse(text, path)
}

/// Reads and checks a configuration for the agent and applies the environment. Validation reads only the file, because
/// it may run on another machine.
pub(crate) fn load_to_run(
    path: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<LoadedConfig, Vec<ConfigProblem>> {
    if path == Path::new(STDIN) {
        let message =
            "is read once, so only the start of the agent and gardenlet config accept it; name a file";
        return Err(vec![ConfigProblem { path: name_of(path), message: message.to_owned() }]);
    }
    parse(read(path), path).and_then(|loaded| loaded.into_run(variable))
}

impl LoadedConfig {
    /// Applies the environment. Errors: if a variable cannot be used, or the garden cannot be reached.
    pub(crate) fn into_run(
        mut self,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<ConfigProblem>> {
        let usable = self.settings.apply_environment(variable).and_then(|()| {
            self.settings.check_garden_access()?;
            self.settings.check_exposure(variable)?;
            self.settings.check_snapshots(variable)
        });
        usable.map(|()| self).map_err(|problem| vec![problem])
    }
}

fn parse(text: io::Result<String>, path: &Path) -> Result<LoadedConfig, Vec<ConfigProblem>> {
    let name = name_of(path);
    let text = text.map_err(|error| {
        let message = format!("the configuration cannot be read: {error}");
        vec![ConfigProblem { path: name.clone(), message }]
    })?;
    load_text(&text, &name)
}

fn read(path: &Path) -> io::Result<String> {
    text_of(&mut File::open(path)?)
}

/// One byte more than allowed is enough to detect a text that is too long.
fn text_of(from: &mut dyn Read) -> io::Result<String> {
    let mut text = String::new();
    let max = u64::try_from(limits::CONFIG_FILE_BYTES_MAX).unwrap_or(u64::MAX);
    from.take(max.saturating_add(1)).read_to_string(&mut text)?;
    Ok(text)
}
