//! One type per role, so that a client for one cluster can never be passed for another.

use std::ops::Deref;

use serde::de::DeserializeOwned;

use super::{Client, Error};
use crate::api::meta::{Key, Resource};

macro_rules! role {
    ($(#[$doc:meta])* $visible:vis $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        $visible struct $name($visible Client);

        impl Deref for $name {
            type Target = Client;

            fn deref(&self) -> &Client {
                &self.0
            }
        }
    };
}

role! {
    /// The client of the garden cluster.
    pub Garden
}
impl Garden {
    /// Reads an object of this seed that may be gone. The SeedAuthorizer forbids a seed to read what has left
    /// its graph, so the answer is 403 then, and not 404. That means "gone" if the watch does not have the
    /// object either (`is_known`). Errors: any [`Error`] except not found.
    pub(crate) fn find_own<T: DeserializeOwned>(
        &self,
        r: &Resource,
        key: &Key,
        is_known: &dyn Fn() -> bool,
    ) -> Result<Option<T>, Error> {
        unless_gone(self.find(r, key), is_known)
    }
}

/// The watch is asked after the answer: it is behind the garden, so an object that it has not seen yet is no reason to ask.
fn unless_gone<T>(found: Result<Option<T>, Error>, is_known: &dyn Fn() -> bool) -> Result<Option<T>, Error> {
    match found {
        Err(error) if error.is_unrelated() && !is_known() => Ok(None),
        other => other,
    }
}

role! {
    /// The client of the seed cluster, with the agent's own small role.
    pub Seed
}
role! {
    /// The client that applies ManagedResources in the seed; only `resources/` holds it.
    pub Applier
}
role! {
    /// The client of the cluster of a Shoot; there are many of them.
    pub(crate) Shoot
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::error::StatusFailure;

    #[test]
    fn what_has_left_the_graph_of_the_seed_is_gone() {
        const SHORT: &str = r#"shoots "s" is forbidden: User "u" cannot get resource "shoots""#;
        let related = format!("{SHORT}: no relationship found");
        let joined = format!("{related}\nRBAC: clusterrole.rbac.authorization.k8s.io \"x\" not found");
        let only = format!("{SHORT}: only the following verbs are allowed for this resource type: [get]");
        let quoted = format!("{SHORT}: no relationship found, they said");
        // Code and message; gone for the watch as well; gone.
        let table = [
            (403, related.as_str(), true, true),
            (403, &related, false, false),
            (403, &joined, true, true),
            (403, SHORT, true, false),
            (403, &only, true, false),
            (403, &quoted, true, false),
            (401, &related, true, false),
            (500, &related, true, false),
        ];
        for (code, message, is_unknown, expected) in table {
            let failure = StatusFailure { code, message: message.to_owned(), ..StatusFailure::default() };
            let found = unless_gone::<()>(Err(Error::Api(Box::new(failure))), &|| !is_unknown);
            assert_eq!(matches!(found, Ok(None)), expected, "{code} {message} {is_unknown}");
        }
        assert_eq!(unless_gone(Ok(Some(1)), &|| false).unwrap(), Some(1));
    }
}
