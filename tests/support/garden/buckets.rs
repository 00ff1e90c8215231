//! Updates the Seed's condition BackupBucketsReady: none of its BackupBuckets has an error.

use gardenlet::api::gardener::BACKUP_BUCKET;
use gardenlet::api::meta::ALL_NAMESPACES;
use serde_json::Value;

use super::manager::Manager;
use crate::api::failure::Failure;
use crate::json::text;

pub fn sync(manager: &Manager, seeds: &[Value]) -> Result<(), Failure> {
    let buckets = manager.cluster.list(&BACKUP_BUCKET, ALL_NAMESPACES)?;
    for seed in seeds {
        let ours: Vec<&Value> =
            buckets.iter().filter(|bucket| bucket["spec"]["seedName"] == seed["metadata"]["name"]).collect();
        // Upstream also tells seeds that keep no backups that they have no buckets.
        if ours.is_empty() && seed["spec"]["backup"].is_null() {
            continue;
        }
        let (status, reason, message) = judge(&ours);
        manager.set_seed_condition(seed, "BackupBucketsReady", (status, reason, &message))?;
    }
    Ok(())
}

fn judge(buckets: &[&Value]) -> (&'static str, &'static str, String) {
    let failed: Vec<String> = buckets
        .iter()
        .filter(|bucket| bucket["status"]["lastError"].is_object())
        .map(|bucket| {
            let (name, why) = (text(bucket, "/metadata/name"), text(bucket, "/status/lastError/description"));
            format!("\n* Name: {name}, Error: {why}")
        })
        .collect();
    if !failed.is_empty() {
        let message = format!("The following BackupBuckets have issues:{}", failed.concat());
        return ("False", "BackupBucketsError", message);
    }
    if buckets.is_empty() {
        return ("Unknown", "BackupBucketsGone", "Backup Buckets are gone.".to_owned());
    }
    ("True", "BackupBucketsAvailable", "Backup Buckets are available.".to_owned())
}
