//! The operations on a Shoot.

/// The operation on a Shoot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Operation {
    #[default]
    Create,
    /// Reconcile it with its spec.
    Reconcile,
    /// Create it from the state that another seed has left.
    Restore,
    /// Prepare its migration to another seed.
    Migrate,
    Delete,
    /// Delete it even if something is left behind.
    ForceDelete,
}

impl Operation {
    /// The type of the last operation.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "Create",
            Self::Reconcile => "Reconcile",
            Self::Restore => "Restore",
            Self::Migrate => "Migrate",
            Self::Delete | Self::ForceDelete => "Delete",
        }
    }

    /// Whether it ends the Shoot.
    pub(crate) const fn is_deletion(self) -> bool {
        matches!(self, Self::Delete | Self::ForceDelete)
    }
}
