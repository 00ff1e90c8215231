//! Secret `cloudprovider` in the namespace of a control plane: the credentials with which extensions make the infrastructure and
//! the nodes of a Shoot. The Shoot names a binding in its Project, and that names the credentials.

use serde_json::Value;

use crate::api::gardener::{CREDENTIALS_BINDING, SECRET_BINDING, SHOOT};
use crate::api::meta::{Key, Resource, text};
use crate::base::json::json;
use crate::extension::credentials::{self, CredentialsReference};
use crate::extension::problem;
use crate::flow::{Attempt, Failed, TaskStep};

use super::work::Work;

/// The name of the Secret, and its purpose.
pub(super) const NAME: &str = "cloudprovider";

/// The binding that a Shoot names: its kind, its name, and the field of the Shoot. None for a Shoot without one.
fn binding(shoot: &Value) -> Option<(Resource, &str, &'static str)> {
    let spec = &shoot["spec"];
    let all = [(CREDENTIALS_BINDING, "credentialsBindingName"), (SECRET_BINDING, "secretBindingName")];
    all.into_iter().find_map(|(resource, field)| {
        let name = text(&spec[field]);
        (!name.is_empty()).then_some((resource, name, field))
    })
}

/// Writes the Secret with these credentials.
pub(super) fn deploy(work: &mut Work, _: &Attempt) -> Result<TaskStep, Failed> {
    let Some((resource, name, field)) = binding(&work.shoot) else { return Ok(TaskStep::Done) };
    let key = Key::new(work.view.namespace.as_str(), name);
    let found = work.env.garden.find::<Value>(&resource, &key)?.ok_or_else(|| {
        problem(format!(
            "spec.{field} of the Shoot names {} {key}, which the garden does not have: create it",
            resource.kind
        ))
    })?;
    let reference = match &found["credentialsRef"] {
        Value::Null => CredentialsReference::secret(&found["secretRef"]),
        reference => CredentialsReference::read(reference)?,
    };
    let credentials = reference.find(&work.env.garden, &format!("{} {key}", resource.kind))?;
    let context = credentials::context(&SHOOT, &work.shoot);
    let secret = Key::new(work.plane(), NAME);
    let metadata = json!({"labels": {"gardener.cloud/purpose": NAME}});
    credentials.apply(&work.env.seed, &secret, &metadata, &context)?;
    Ok(TaskStep::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shoot_names_one_binding() {
        let of = |spec: Value| {
            let shoot = json!({"spec": spec});
            binding(&shoot).map(|(resource, name, _)| format!("{} {name}", resource.kind))
        };
        assert_eq!(of(json!({"credentialsBindingName": "a"})).as_deref(), Some("CredentialsBinding a"));
        assert_eq!(of(json!({"secretBindingName": "b"})).as_deref(), Some("SecretBinding b"));
        assert_eq!(of(json!({})), None);
    }
}
