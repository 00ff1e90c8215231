//! Who may choose the Seed of a new Shoot.

use super::authorizer;
use super::kinds::CORE;
use crate::api::failure::Failure;
use crate::api::request::Info;
use crate::api::{Operation, Review};
use crate::http::server::Authorizer as _;
use crate::json::text;

/// A Shoot that is created with the name of its Seed: only for users who may bind Shoots.
pub fn admit(review: &Review<'_>) -> Result<(), Failure> {
    let (target, object) = (review.target, review.object);
    let chooses = review.operation == Operation::Create && !text(object, "/spec/seedName").is_empty();
    if target.kind.kind != "Shoot" || !chooses {
        return Ok(());
    }
    let own = str::to_owned;
    let info = Info {
        verb: own("update"),
        group: own(CORE),
        resource: own("shoots"),
        subresource: own("binding"),
        namespace: target.namespace.clone(),
        name: text(object, "/metadata/name").to_owned(),
        ..Info::default()
    };
    if authorizer::Garden.decide(review.state, review.user, &info).is_ok() {
        return Ok(());
    }
    let why = "user is not allowed to set .spec.seedName";
    Err(Failure::forbidden(CORE, "shoots", &info.name, why))
}
