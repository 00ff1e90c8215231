//! Copies of the objects that a Shoot refers to, which its extensions read in the seed.

use serde_json::Value;

use crate::components::managed::{self, Managed};
use crate::components::references::{self, Referrer};
use crate::flow::{Attempt, Failed, TaskStep};

use super::work::Work;

/// The name of the ManagedResource.
pub(super) const MANAGED_RESOURCE: &str = "referenced-resources";

/// Copies the objects that the Shoot's `spec.resources` names to the namespace of its control plane.
pub(super) fn deploy(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let view = &work.view;
    let (references, from, to) = (&view.resources, &*view.namespace, &*view.technical_id);
    let copies = references::copies(&work.env.garden, &Referrer { kind: "Shoot", references, from, to })?;
    managed::deploy(&work.env.seed, &objects(&view.technical_id, &copies))?;
    Ok(TaskStep::Done)
}

/// A ManagedResource of class `seed`.
fn objects(namespace: &str, copies: &[Value]) -> Managed {
    Managed::copies_in(namespace, MANAGED_RESOURCE, copies)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::format::yaml;

    #[test]
    fn without_references_the_copies_are_an_empty_secret() {
        let object = yaml::parse(&objects("shoot--p--s2", &[]).golden()).unwrap();
        // Like the golden object.
        assert_eq!(
            object,
            json!({"apiVersion": "resources.gardener.cloud/v1alpha1", "kind": "ManagedResource", "metadata": {
                "annotations": {"reference.resources.gardener.cloud/secret-1503ea48": "referenced-resources-e3b0c442"},
                "name": "referenced-resources", "namespace": "shoot--p--s2"},
                "spec": {"class": "seed", "forceOverwriteAnnotations": false, "keepObjects": false,
                    "secretRefs": [{"name": "referenced-resources-e3b0c442"}]}})
        );
    }
}
