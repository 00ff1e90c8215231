//! What an operation finds in the seed, and in the garden, before its tasks. It decides which of them are needed.

pub(crate) mod departure;
mod handover;
pub(crate) mod read;

/// The state before the flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Found {
    /// The namespace exists and is not being deleted.
    pub(crate) has_namespace: bool,
    /// The Deployment of the API server exists and is not being deleted.
    pub(crate) has_server: bool,
    /// The cluster may have been used: its API server answers, or has issued a token.
    pub(crate) was_served: bool,
    /// The Deployment of the controllers exists and is not being deleted.
    pub(crate) has_controllers: bool,
    /// The etcd with the data of the Shoot exists.
    pub(crate) has_etcd: bool,
    /// The last snapshot is still to be taken, and the backups to be given to the other seed.
    pub(crate) keeps_backups: bool,
    /// The BackupEntry of the Shoot that leaves does not name the next seed yet.
    pub(crate) keeps_entry: bool,
    /// Nothing of the data of the Shoot that leaves has come here: [`departure::Departure::PassedOn`].
    pub(crate) passes_on: bool,
    /// The backups are in the bucket of the seed that the Shoot has left.
    pub(crate) needs_copy: bool,
}

impl Found {
    /// Everything, for a description of the longest flow.
    pub(crate) const ALL: Self = Self {
        has_namespace: true,
        has_server: true,
        was_served: true,
        has_controllers: true,
        has_etcd: true,
        keeps_backups: true,
        keeps_entry: true,
        passes_on: false,
        needs_copy: true,
    };

    /// Whether the content of the cluster can and must be deleted. Without an API server there is nothing to clean, and
    /// neither in a cluster that was never reachable.
    pub(crate) const fn is_usable(&self) -> bool {
        self.has_namespace && self.has_server && self.was_served
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_cluster_that_was_reachable_is_cleaned() {
        let table = [
            ([true, true, true], true),
            ([true, true, false], false),
            ([true, false, true], false),
            ([false, true, true], false),
            ([false, false, false], false),
        ];
        for ([has_namespace, has_server, was_served], expected) in table {
            let found = Found { has_namespace, has_server, was_served, ..Found::ALL };
            assert_eq!(found.is_usable(), expected, "{found:?}");
        }
    }
}
