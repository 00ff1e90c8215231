//! `gardenlet bootstrap-token`: makes what an administrator of the garden needs to let a seed join: the Secret of a
//! bootstrap token, and a kubeconfig with this token. It sends no request.

use std::fs::{OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::arguments::ClusterOptions;
use super::{Io, Variable, clusters, fail, print, say};
use crate::base::clock::Clock;
use crate::base::error::chain;
use crate::deployer::token;
use crate::format::time::rfc3339;
use crate::format::yaml;
use crate::kube::{Connection, kubeconfig};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BootstrapTokenArguments {
    pub(super) seed: String,
    pub(super) validity: Duration,
    /// The way to the garden.
    pub(super) way: ClusterOptions,
    /// The file for the kubeconfig.
    pub(super) to: Option<PathBuf>,
}

pub(super) fn main(io: &mut Io<'_>, asked: &BootstrapTokenArguments, variable: Variable<'_>) -> u8 {
    match make(io, asked, variable) {
        Ok(text) => print(io, &text),
        Err(why) => fail(io, format_args!("gardenlet bootstrap-token: {why}")),
    }
}

fn make(io: &mut Io<'_>, asked: &BootstrapTokenArguments, variable: Variable<'_>) -> Result<String, String> {
    let (path, connection) = garden_of(&asked.way, variable)?;
    if let Some(weakness) = connection.weakness() {
        say(io, format_args!("gardenlet bootstrap-token: warning: {}: {weakness}\n", path.display()));
    }
    let until = Clock::system().now().plus(asked.validity);
    let (secret, token) = token::of_seed(&asked.seed, until);
    let rendered = kubeconfig::render(&connection.with_token(token)).map_err(|error| chain(&error))?;
    let mut text = yaml::emit(&secret, yaml::Dialect::V4);
    match &asked.to {
        Some(path) => {
            write(path, &rendered).map_err(|error| format!("write {}: {error}", path.display()))?;
            let (path, until) = (path.display(), rfc3339(until));
            say(io, format_args!("{path} is valid until {until}, once the garden has the Secret.\n"));
        }
        None => text.push_str(&format!("---\n{rendered}")),
    }
    Ok(text)
}

/// The connection of the kubeconfig that an administrator of the garden names, and its path.
pub(super) fn garden_of(
    way: &ClusterOptions,
    variable: Variable<'_>,
) -> Result<(PathBuf, Connection), String> {
    let path = way
        .kubeconfig
        .clone()
        .or_else(|| clusters::set(variable, "GARDEN_KUBECONFIG").map(PathBuf::from))
        .ok_or(
            "the way to the garden is missing: name a kubeconfig with --kubeconfig or GARDEN_KUBECONFIG",
        )?;
    let read = kubeconfig::load(std::slice::from_ref(&path)).and_then(|config| config.select(&way.context));
    let connection = read.map_err(|error| format!("{}: {}", path.display(), chain(&error)))?;
    Ok((path, connection))
}

/// Only the owner may read the file, even if it existed before.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())
}
