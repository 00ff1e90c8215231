//! Which snapshots are removed.

use super::name::{Kind, Snapshot};

/// The full snapshots except the `keep` newest ones, the oldest first. `snapshots` are sorted, and the newest
/// one, which was just checked, always stays. Empty ones do not count. Delta snapshots stay, because they
/// belong to another program.
pub(crate) fn superfluous(snapshots: &[Snapshot], keep: usize) -> Vec<&Snapshot> {
    let full: Vec<&Snapshot> = snapshots.iter().filter(|s| s.name.kind == Kind::Full).collect();
    let mut whole = 0;
    let mut gone: Vec<&Snapshot> = Vec::new();
    for snapshot in full.into_iter().rev() {
        if whole >= keep.max(1) {
            gone.push(snapshot);
        }
        whole += usize::from(snapshot.bytes > 0);
    }
    gone.reverse();
    gone
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::name::snapshots;

    #[test]
    fn the_newest_complete_ones_stay() {
        // Time, size; a delta has a size of 1.
        let all = |entries: &[(u64, u64)]| {
            snapshots(entries.iter().map(|(time, bytes)| {
                let kind = if *bytes == 1 { "Incr" } else { "Full" };
                (format!("{kind}-00000000-{time:08}-{time}.gz"), *bytes)
            }))
        };
        type Case = (&'static [(u64, u64)], usize, &'static [u64]);
        let table: [Case; 8] = [
            (&[], 3, &[]),
            (&[(1, 9)], 3, &[]),
            (&[(1, 9), (2, 9), (3, 9)], 3, &[]),
            (&[(1, 9), (2, 9), (3, 9)], 2, &[1]),
            (&[(1, 9), (2, 9), (3, 9)], 0, &[1, 2]),
            (&[(1, 9), (2, 0), (3, 9), (4, 0)], 1, &[1, 2]),
            (&[(1, 9), (2, 0), (3, 9)], 2, &[]),
            (&[(1, 9), (2, 1), (3, 9), (4, 1)], 1, &[1]),
        ];
        for (entries, keep, expected) in table {
            let all = all(entries);
            let gone: Vec<u64> = superfluous(&all, keep).iter().map(|s| s.name.revision).collect();
            assert_eq!(gone, expected, "{entries:?} {keep}");
        }
    }
}
