//! One type per role, so that a client for one cluster can never be passed for another.

use std::ops::Deref;

use super::Client;

macro_rules! role {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name(pub Client);

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
    Garden
}
role! {
    /// The client of the seed cluster, with the agent's own small role.
    Seed
}
role! {
    /// The client that applies ManagedResources in the seed; only `resources/` holds it.
    Applier
}
role! {
    /// The client of the cluster of a Shoot; there are many of them.
    Shoot
}
