//! Leases.

use serde::Deserialize;

use super::meta::{ObjectMeta, Resource};

/// The kind `Lease` of `coordination.k8s.io/v1`.
pub const LEASE: Resource = Resource::new("coordination.k8s.io", "v1", "Lease", "leases", true);

/// A Lease as the program reads it. Times stay text: the program only compares them for changes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Lease {
    pub(crate) metadata: ObjectMeta,
    /// The holder and its times.
    pub(crate) spec: LeaseSpec,
}

impl Lease {
    /// Whether this is an earlier version of `other`. The only writer of a Lease sees an earlier version if the
    /// server's storage was restored from a backup: resource versions that are numbers then restart at a lower value
    /// and reach the old value again.
    pub(crate) fn is_older_than(&self, other: &Self) -> bool {
        let version = |lease: &Self| lease.metadata.resource_version.parse::<u64>();
        let is_before = matches!((version(self), version(other)), (Ok(this), Ok(other)) if this < other);
        // Times of one writer have the same format, so they can be compared as text.
        let renewed_before = self.spec.renew_time.is_some() && self.spec.renew_time < other.spec.renew_time;
        is_before || (self.spec.holder_identity == other.spec.holder_identity && renewed_before)
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LeaseSpec {
    /// The holder; empty when released.
    pub(crate) holder_identity: String,
    /// How long others wait for a change.
    pub(crate) lease_duration_seconds: i64,
    /// When the holder acquired it.
    pub(crate) acquire_time: Option<String>,
    /// When the holder renewed it.
    pub(crate) renew_time: Option<String>,
    /// How often the holder changed.
    pub(crate) lease_transitions: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_comes_back_older_than_it_was_written() {
        let lease = |version: &str, holder: &str, renewed: Option<&str>| {
            let spec = LeaseSpec {
                holder_identity: holder.to_owned(),
                renew_time: renewed.map(str::to_owned),
                ..LeaseSpec::default()
            };
            let mut lease = Lease { spec, ..Lease::default() };
            lease.metadata.resource_version = version.to_owned();
            lease
        };
        let (early, late) = (Some("2026-01-01T00:00:00.900000Z"), Some("2026-01-01T00:00:01.000000Z"));
        let wrote = lease("100", "me", late);
        let table = [
            ("as it was written", lease("100", "me", late), false),
            (
                "a write that timed out came through",
                lease("101", "me", Some("2026-01-01T00:00:02.000000Z")),
                false,
            ),
            ("a label was added", lease("107", "me", late), false),
            ("an earlier version", lease("99", "me", late), true),
            ("earlier, and the server has come as far as before", lease("207", "me", early), true),
            ("another holder, whose clock is another one", lease("207", "other", early), false),
            ("another holder from before", lease("9", "other", early), true),
            ("never renewed", lease("207", "me", None), false),
            ("versions that are no numbers", lease("a", "me", late), false),
        ];
        for (name, found, expected) in table {
            assert_eq!(found.is_older_than(&wrote), expected, "{name}");
        }
    }
}
