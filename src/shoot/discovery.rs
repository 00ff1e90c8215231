//! Questions to the API server of a Shoot about what it serves. The owner of the Shoot may run some of the servers
//! behind it, so every answer has a limit.

use serde::de::DeserializeOwned;

use crate::format::view;
use crate::kube::{Client, Error};
use crate::limits;

/// Reads one path; `None` if the server does not have it. Errors: the server does not answer;
/// [`Error::Response`] for another answer than the wanted one.
pub(super) fn ask<T: DeserializeOwned>(shoot: &Client, path: &str) -> Result<Option<T>, Error> {
    let answer = shoot.get_raw(path)?;
    let problem = match answer.status {
        404 => return Ok(None),
        200..300 if answer.body.len() <= limits::SHOOT_DISCOVERY_BYTES_MAX => {
            match view::parse(&answer.body) {
                Ok(decoded) => return Ok(Some(decoded)),
                Err(error) => error.to_string(),
            }
        }
        200..300 => format!("the answer has more than {} bytes", limits::SHOOT_DISCOVERY_BYTES_MAX),
        status => format!("the answer has status {status}"),
    };
    Err(unusable(path, problem))
}

/// Reads a path that every server has.
pub(super) fn ask_present<T: DeserializeOwned>(shoot: &Client, path: &str) -> Result<T, Error> {
    ask(shoot, path)?.ok_or_else(|| unusable(path, "the answer has status 404".to_owned()))
}

fn unusable(path: &str, problem: String) -> Error {
    Error::Response { request: format!("GET {path}"), problem }
}
