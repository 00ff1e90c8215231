//! 200 BackupEntries at once, of Shoots with several purposes, half of them in a bucket whose credentials are missing.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::story_backups::{Lab, PROJECT, entry_name, is};
use crate::world::CORE;
use support::http::record::Recorded;
use support::json::text;

const COUNT: usize = 200;
const PURPOSES: [&str; 3] = ["production", "testing", "evaluation"];
const KEPT: &str = "production";
const GRACE: Duration = Duration::from_secs(48 * 3_600);
/// The bucket that cannot be used.
const BROKEN: &str = "broken";
/// Requests to the garden for one entry until it has succeeded: its reads and writes, and again for each reported
/// change.
const REQUESTS_EACH_MAX: usize = 24;
/// Requests to the garden in half an hour for one entry that waits for its bucket: three checks.
const WAITING_REQUESTS_MAX: usize = 8;

fn purpose(n: usize) -> &'static str {
    PURPOSES[n % PURPOSES.len()]
}

fn is_broken(n: usize) -> bool {
    n % 2 == 1
}

fn numbers(which: impl Fn(usize) -> bool) -> Vec<usize> {
    (1..=COUNT).filter(|n| which(*n)).collect()
}

impl Lab {
    /// The states of all entries, counted.
    fn states(&self) -> BTreeMap<String, usize> {
        let mut states = BTreeMap::new();
        for entry in self.world.garden.store().all(CORE, "backupentries", PROJECT) {
            *states.entry(text(&entry, "/status/lastOperation/state").to_owned()).or_default() += 1;
        }
        states
    }

    fn wait_for_states(&self, expected: &[(&str, usize)]) {
        let expected: BTreeMap<String, usize> =
            expected.iter().filter(|(_, n)| *n > 0).map(|(state, n)| ((*state).to_owned(), *n)).collect();
        self.wait_for(&format!("{expected:?}, not {:?}", self.states()), || {
            (self.states() == expected).then_some(())
        });
    }

    /// Requests of the agent to the garden that name an entry, since `mark`.
    fn requests_for(&self, mark: usize, n: usize) -> usize {
        let is_it = |r: &&Recorded| r.info.name == entry_name(n) && r.user_agent.starts_with("gardenlet/");
        self.world.garden.requests_since(mark).iter().filter(is_it).count()
    }

    fn make_all(&self) {
        for n in 1..=COUNT {
            let bucket = if is_broken(n) { BROKEN } else { self.bucket.as_str() };
            let more = json!({"metadata": {"annotations": {"shoot.gardener.cloud/purpose": purpose(n)}},
                "spec": {"bucketName": bucket}});
            self.apply_entry(&entry_name(n), &more);
        }
    }
}

#[test]
fn two_hundred_entries_keep_their_schedule_despite_errors() {
    let lab = Lab::start("crowded", |config| {
        config["controllers"]["backupEntry"] =
            json!({"deletionGracePeriodHours": 48, "deletionGracePeriodShootPurposes": [KEPT]});
    });
    let reference = json!({"apiVersion": "v1", "kind": "Secret", "namespace": "garden", "name": "nowhere"});
    lab.world.garden.apply(&[json!({"apiVersion": "core.gardener.cloud/v1beta1", "kind": "BackupBucket",
        "metadata": {"name": BROKEN},
        "spec": {"provider": {"type": "local", "region": "north"}, "credentialsRef": reference, "seedName": "crowded"}})]);
    let (mark, begun) = (lab.world.garden.request_count(), lab.world.clock.mono());
    lab.make_all();
    lab.wait_for_states(&[("Succeeded", COUNT / 2), ("Error", COUNT / 2)]);
    let most = numbers(|_| true).into_iter().map(|n| lab.requests_for(mark, n)).max().unwrap();
    let minutes = lab.world.minutes_since(begun);
    assert!(most <= REQUESTS_EACH_MAX + minutes, "{most} requests for one entry in {minutes} minutes");
    let failed = lab.entry(&entry_name(1)).unwrap();
    assert_eq!(failed["status"]["lastError"]["codes"], json!(["ERR_CONFIGURATION_PROBLEM"]));

    // Entries that wait for their bucket need very few requests.
    let mark = lab.world.garden.request_count();
    lab.world.skip(Duration::from_secs(1_800));
    let most = numbers(is_broken).into_iter().map(|n| lab.requests_for(mark, n)).max().unwrap();
    assert!(most <= WAITING_REQUESTS_MAX, "{most} requests for one entry that waits");

    // All are deleted. Entries of one purpose are kept for a retention period, whatever their bucket.
    for n in 1..=COUNT {
        lab.world.garden.delete(CORE, "backupentries", PROJECT, &entry_name(n));
    }
    let kept = numbers(|n| purpose(n) == KEPT).len();
    lab.wait_for_states(&[("Pending", kept)]);
    let objects = numbers(|n| purpose(n) == KEPT && !is_broken(n)).len();
    assert_eq!(lab.world.seed.store().all("extensions.gardener.cloud", "backupentries", "").len(), objects);
    // The agent does not run when their retention period ends.
    lab.is_away(GRACE);
    lab.wait_for_states(&[]);
    let left: Vec<Value> = lab.world.seed.store().list("", "secrets", "garden");
    let left: Vec<&str> =
        left.iter().map(|s| text(s, "/metadata/name")).filter(|n| n.starts_with("entry-")).collect();
    assert_eq!(left, Vec::<&str>::new());

    // The credentials are created, and the other bucket works, too.
    let mut found = crate::story_backups::credentials("late");
    found["metadata"]["name"] = json!("nowhere");
    lab.world.garden.apply(&[found]);
    lab.wait_for("the other bucket", || {
        lab.world.time.advance(Duration::from_secs(5));
        lab.world.garden.get(CORE, "backupbuckets", "", BROKEN).filter(|bucket| is(bucket, "Succeeded"))
    });
    lab.end();
}
