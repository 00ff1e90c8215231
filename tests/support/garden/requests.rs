//! Requests of agents for their certificate.

use serde_json::Value;

use super::authorizer::{SEEDS, USER_PREFIX};
use crate::encoding::from_base64;
use crate::json::{list, text};
use crate::pki;

/// Why a request is none of an agent.
#[derive(Debug, PartialEq)]
pub enum Refusal {
    /// It cannot be read.
    Unreadable,
    /// Subject, names or usages are others.
    Other(String),
}

const USAGES: [&str; 3] = ["key encipherment", "digital signature", "client auth"];

/// The Seed whose agent a request is about.
pub fn seed_of(request: &Value) -> Result<String, Refusal> {
    let pem = from_base64(text(request, "/spec/request")).unwrap_or_default();
    let found = pki::request_subject(&String::from_utf8_lossy(&pem));
    let (subject, has_names) = found.ok_or(Refusal::Unreadable)?;
    let other = |why: String| Err(Refusal::Other(why));
    if subject.organizations != [SEEDS] {
        return other(format!("subject's organization is not set to [{SEEDS}]"));
    }
    let Some(seed) = subject.common_name.strip_prefix(USER_PREFIX) else {
        return other(format!("subject's common name does not start with {USER_PREFIX:?}"));
    };
    if has_names {
        return other("DNSNames, EmailAddresses and IPAddresses fields must be empty".to_owned());
    }
    let usages = list(request, "/spec/usages");
    let fits = USAGES.iter().all(|u| usages.iter().any(|v| v == u))
        && usages.iter().all(|u| u.as_str().is_some_and(|u| USAGES.contains(&u)));
    if !fits {
        return other(format!("key usages are not set to [{}]", USAGES.join(" ")));
    }
    Ok(seed.to_owned())
}
