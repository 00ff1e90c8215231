//! Writes the planned changes.

use super::decide::PolicyWrite;
use super::policy::Policy;
use crate::api::core::NETWORK_POLICY;
use crate::api::meta::Key;
use crate::kube::{Error, Seed};
use crate::runtime::write;

pub(super) fn step(seed: &Seed, namespace: &str, step: &PolicyWrite) -> Result<(), Error> {
    match step {
        PolicyWrite::Create(policy) => create(seed, namespace, policy),
        PolicyWrite::Change(policy) => change(seed, namespace, policy),
        PolicyWrite::Delete(name) => {
            write::delete(seed, &NETWORK_POLICY, &Key::new(namespace, name.as_str())).map(drop)
        }
    }
}

fn create(seed: &Seed, namespace: &str, policy: &Policy) -> Result<(), Error> {
    match seed.create::<serde_json::Value>(&NETWORK_POLICY, namespace, &policy.object(namespace)) {
        // An operator has created it, or the watch has not delivered it yet.
        Err(e) if e.status_code() == Some(409) => change(seed, namespace, policy),
        // A terminating namespace accepts no new objects and needs none.
        Err(e) if is_of_an_end(&e) => Ok(()),
        other => other.map(drop),
    }
}

fn change(seed: &Seed, namespace: &str, policy: &Policy) -> Result<(), Error> {
    let key = Key::new(namespace, policy.name.as_str());
    write::ensure(seed, &NETWORK_POLICY, &key, &|live| policy.fill(live)).map(drop)
}

fn is_of_an_end(error: &Error) -> bool {
    let causes = error.failure().into_iter().flat_map(|failure| &failure.details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}
