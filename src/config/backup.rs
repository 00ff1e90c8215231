//! `controllers.backupEntry`.

use super::read::FieldReader;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BackupEntryController {
    /// Field `concurrentSyncs` of this section.
    pub(crate) workers: u32,
    /// How long a backup is kept after its BackupEntry was deleted.
    pub(crate) grace_hours: u64,
    /// The Shoot purposes to which the grace period applies; empty: all.
    pub(crate) grace_purposes: Vec<String>,
}

impl BackupEntryController {
    pub(super) fn read(r: FieldReader<'_>) -> Self {
        let purposes = r.items("deletionGracePeriodShootPurposes");
        Self {
            workers: r.count("concurrentSyncs").max(1),
            grace_hours: r.count("deletionGracePeriodHours").into(),
            grace_purposes: purposes
                .map(|purpose| purpose.value().as_str().unwrap_or_default().to_owned())
                .collect(),
        }
    }
}
