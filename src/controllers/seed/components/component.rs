//! What a component of a seed says about itself.

use super::super::work::Row;

/// A part of a seed that the agent installs.
#[derive(Debug)]
pub(super) struct SeedComponent {
    /// Its ManagedResource in namespace `garden`, for a Seed of this name.
    pub(super) managed_resource: Option<ManagedResource>,
    /// Its tasks in the flow of the Seed.
    pub(super) rows: &'static [Row],
}

/// A ManagedResource of a component.
#[derive(Clone, Copy, Debug)]
pub(super) struct ManagedResource {
    /// Its name, for a Seed of this name.
    pub(super) name: fn(seed: &str) -> String,
    /// When the deletion of the Seed deletes it.
    pub(super) leaves: Leaving,
}

/// A turn of a Seed's deletion.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::controllers::seed) enum Leaving {
    /// Together with the objects of extensions, as in upstream.
    WithExtensions,
    /// When nothing needs an extension any more.
    WithoutExtensions,
    /// After all others.
    Last,
}
