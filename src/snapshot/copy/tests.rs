use super::*;
use crate::base::clock::{Simulated, Timestamp};
use crate::snapshot::memory::{MemoryStore, packed, packed_content};
use crate::snapshot::name;

const PATIENCE: Duration = Duration::from_secs(300);
const STRICT: CopyOrder = CopyOrder { patience: PATIENCE, accepts_loss: false };
const LENIENT: CopyOrder = CopyOrder { accepts_loss: true, ..STRICT };

/// Names in a short form: `F9@5` is a full snapshot up to revision 9 of second 5, `F9@5!` a final one, `D5-9@5` a delta.
fn named(short: &str) -> String {
    let (what, time) = short.split_once('@').unwrap();
    let (time, end) = time.strip_suffix('!').map_or((time, ""), |time| (time, ".final"));
    match (what.strip_prefix('F'), what.strip_prefix('D').and_then(|range| range.split_once('-'))) {
        (Some(revision), _) => format!("Full-00000000-{revision:0>8}-{time}.gz{end}"),
        (_, Some((first, last))) => format!("Incr-{first:0>8}-{last:0>8}-{time}.gz"),
        _ => panic!("{short}"),
    }
}

fn listing(shorts: &str) -> Vec<Snapshot> {
    name::snapshots(shorts.split_whitespace().map(|short| (named(short), 7)))
}

/// The plan in the same form.
fn decide(source: &str, target: &str, broken: &str, order: CopyOrder, waited_s: u64) -> String {
    let broken: SortedMap<String, String> =
        broken.split_whitespace().map(|short| (named(short), "rotten".to_owned())).collect();
    let (source, target) = (listing(source), listing(target));
    let found = Listings { source: &source, target: &target, broken: &broken };
    match plan(&found, order, Duration::from_secs(waited_s)) {
        CopyStep::Wait(why) => format!("wait: {why}"),
        CopyStep::Refuse(Refusal { why, is_loss: true }) => format!("refuse: {why}"),
        CopyStep::Refuse(Refusal { why, .. }) => format!("refuse always: {why}"),
        CopyStep::Nothing(why) => format!("nothing: {why}"),
        CopyStep::Copy(set) => {
            let members: Vec<String> = set.all().map(|it| it.name.revision.to_string()).collect();
            let lost = set.lost.map(|lost| format!(": {lost}")).unwrap_or_default();
            format!("copy {}{lost}", members.join(" "))
        }
    }
}

#[test]
fn the_newest_complete_set_is_copied() {
    let lost = |revision: u64| {
        let second = [(7, 1), (9, 5), (11, 6)].into_iter().find(|(of, _)| *of == revision).unwrap().1;
        format!(
            "; changes after revision {revision} of 1970-01-01T00:00:0{second}Z are lost, if there were any"
        )
    };
    let (seven, nine) = (named("F7@1"), named("F9@5"));
    let rotten = format!("snapshot {}! is broken: rotten", named("F9@5")).replace('!', ".final");
    let gap = format!("revisions 10 to 10 are in no snapshot, and {} follows", named("D11-12@6"));
    let late = format!("snapshot {} is broken: rotten", named("D10-11@3"));
    let overlap = format!("{} and {} contain the same revisions", named("D10-11@6"), named("D11-13@7"));
    let newer = |name: &str, end: &str| {
        let (name, end) = (named(name), named(end));
        format!("the target has a newer snapshot {name}, which etcd would restore instead of {end}")
    };
    let table: [(&str, &str, &str, u64, &str, String, String); 22] = [
        // A final one is there.
        ("F9@5!", "", "", 0, "at once", "copy 9".to_owned(), "copy 9".to_owned()),
        ("F7@1 F9@5! D10-11@6 D12-13@7", "", "", 0, "", "copy 9 11 13".to_owned(), "copy 9 11 13".to_owned()),
        // Deltas that the full one contains, or that are older, do not belong to it. One may overlap it.
        ("D8-9@6 D8-12@4 F9@5! D8-12@6", "", "", 0, "", "copy 9 12".to_owned(), "copy 9 12".to_owned()),
        // None is there yet, or none comes.
        ("", "", "", 299, "", "wait: there is no snapshot".into(), "nothing: there is no snapshot".into()),
        ("", "", "", 300, "", "refuse: there is no snapshot".into(), "nothing: there is no snapshot".into()),
        (
            "D8-9@6",
            "",
            "",
            300,
            "",
            "refuse: there is no full snapshot, only 1 delta snapshot".to_owned(),
            "nothing: there is no full snapshot, only 1 delta snapshot".to_owned(),
        ),
        (
            "F7@1",
            "",
            "",
            0,
            "",
            format!("wait: the newest full snapshot {seven} is not final"),
            format!("copy 7: the newest full snapshot {seven} is not final{}", lost(7)),
        ),
        (
            "F7@1",
            "",
            "",
            300,
            "",
            format!("refuse: the newest full snapshot {seven} is not final"),
            format!("copy 7: the newest full snapshot {seven} is not final{}", lost(7)),
        ),
        (
            "F9@5 D10-11@6",
            "",
            "",
            300,
            "",
            format!("refuse: the newest full snapshot {nine} is not final, and deltas follow it"),
            format!(
                "copy 9 11: the newest full snapshot {nine} is not final, and deltas follow it{}",
                lost(11)
            ),
        ),
        // etcd-druid takes another one before it stops etcd.
        ("F9@5! F9@6", "", "", 0, "", "copy 9".to_owned(), "copy 9".to_owned()),
        // The final one is of an earlier move.
        (
            "F7@1! F9@5",
            "",
            "",
            300,
            "",
            format!("refuse: the newest full snapshot {nine} is not final"),
            format!("copy 9: the newest full snapshot {nine} is not final{}", lost(9)),
        ),
        // Broken ones. An older full one may have deltas up to the end.
        (
            "F7@1 F9@5!",
            "",
            "F9@5!",
            0,
            "",
            format!("refuse: {rotten}"),
            format!("copy 7: {rotten}{}", lost(7)),
        ),
        (
            "F7@1 D8-9@4 F9@5! D10-11@6",
            "",
            "F9@5!",
            0,
            "",
            format!("refuse: {rotten}"),
            format!("copy 7 9 11: {rotten}{}", lost(11)),
        ),
        ("F9@5!", "", "F9@5!", 0, "", format!("refuse: {rotten}"), format!("nothing: {rotten}")),
        ("F9@5! D11-12@6", "", "", 0, "", format!("refuse: {gap}"), format!("copy 9: {gap}{}", lost(9))),
        (
            "F9@5! D10-11@6 D10-12@7",
            "",
            "D10-11@6",
            0,
            "another has its changes",
            "copy 9 12".to_owned(),
            "copy 9 12".to_owned(),
        ),
        // The clock went back, or two deltas contain the same revisions.
        ("F9@5! D10-11@3 D12-13@4", "", "", 0, "", "copy 9 11 13".to_owned(), "copy 9 11 13".to_owned()),
        (
            "F9@5! D10-11@3",
            "",
            "D10-11@3",
            0,
            "",
            format!("refuse: {late}"),
            format!("copy 9: {late}{}", lost(9)),
        ),
        (
            "F9@5! D10-11@6 D11-13@7",
            "",
            "",
            0,
            "",
            format!("refuse: {overlap}"),
            format!("copy 9 11: {overlap}{}", lost(11)),
        ),
        // What the target has.
        ("F9@5!", "F7@1! F9@5", "", 0, "", "copy 9".to_owned(), "copy 9".to_owned()),
        (
            "F9@5!",
            "F3@7",
            "",
            0,
            "",
            format!("refuse always: {}", newer("F3@7", "F9@5!")),
            format!("refuse always: {}", newer("F3@7", "F9@5!")),
        ),
        ("F9@5!", "F9@5 F10@7", "", 0, "etcd went on there", "copy 9".to_owned(), "copy 9".to_owned()),
    ];
    for (source, target, broken, waited_s, note, strict, lenient) in table {
        for (order, expected) in [(STRICT, strict), (LENIENT, lenient)] {
            let found = decide(source, target, broken, order, waited_s);
            let found = found.strip_suffix(": move it away if nobody needs it").unwrap_or(&found);
            assert_eq!(found, expected, "{source} -> {target} {note} {order:?}");
        }
    }
    let other = [("Full-00000000-00000009-5.zst.final".to_owned(), 7)];
    let (other, broken) = (name::snapshots(other), SortedMap::new());
    let found = Listings { source: &other, target: &[], broken: &broken };
    assert!(matches!(plan(&found, STRICT, Duration::ZERO), CopyStep::Refuse(it) if it.is_loss));
}

/// Runs a copy on a clock that runs fast, and returns its log, too.
fn copied(from: &MemoryStore, to: &MemoryStore, order: CopyOrder) -> (Result<CopyEnd, Error>, Vec<String>) {
    let clock = Clock::new(Simulated::new(Timestamp::from_unix(1_790_000_000), 5_000));
    let (mut log, stop) = (Vec::new(), Stop::new());
    let waiting = Waiting { clock: &clock, stop: &stop };
    let end = run(from, to, order, waiting, &mut |text| log.push(text.to_owned()));
    (end, log)
}

fn done(from: &MemoryStore, to: &MemoryStore, order: CopyOrder) -> CopyOutcome {
    match copied(from, to, order) {
        (Ok(CopyEnd::Done(outcome)), _) => outcome,
        (other, log) => panic!("{other:?} {log:?}"),
    }
}

fn moving() -> MemoryStore {
    MemoryStore::with(&[
        (&named("F9@5!"), packed(1)),
        (&named("D10-11@6"), packed_content(b"[1]")),
        (&named("D12-13@7"), packed_content(b"[2, 3]")),
        ("other", vec![1]),
    ])
}

#[test]
fn a_copy_ends_with_its_full_snapshot_and_is_repeated_without_effect() {
    let (from, to) = (moving(), MemoryStore::with(&[(&named("F7@1"), packed(9))]));
    let first = done(&from, &to, STRICT);
    assert_eq!((first.copied, first.deltas, first.revision, first.lost.as_ref()), (3, 2, 13, None));
    assert_eq!(first.full.unwrap().text, named("F9@5"));
    let expected = [named("F7@1"), named("D12-13@7"), named("D10-11@6"), named("F9@5")];
    assert_eq!(to.names(), expected);
    let content = |store: &MemoryStore, name: &str| {
        store.all.borrow().iter().find(|(other, _)| other == name).unwrap().1.clone()
    };
    assert_eq!(content(&to, &named("F9@5")), content(&from, &named("F9@5!")));
    assert_eq!(content(&to, &named("D10-11@6")), content(&from, &named("D10-11@6")));
    let again = done(&from, &to, STRICT);
    assert_eq!((again.copied, again.bytes, again.revision), (0, 0, 13));
    assert_eq!(to.names(), expected);
    // What is damaged is replaced, and what is whole and different stays.
    to.all.borrow_mut()[1].1.truncate(5);
    assert_eq!(done(&from, &to, STRICT).copied, 1);
    to.put(&named("F9@5"), packed(2));
    let (end, _) = copied(&from, &to, STRICT);
    let error = chain(&end.unwrap_err());
    assert!(
        error.starts_with(&format!("memory has another snapshot {}: move it away", named("F9@5"))),
        "{error}"
    );
}

#[test]
fn an_interrupted_copy_is_no_complete_one() {
    let from = moving();
    for left in 0..3 {
        // Its uploads fail from the n-th on.
        let to = MemoryStore::default();
        for name in [named("D12-13@7"), named("D10-11@6")].iter().take(left) {
            to.put(name, from.all.borrow().iter().find(|(other, _)| other == name).unwrap().1.clone());
        }
        to.is_full.set(true);
        let (end, _) = copied(&from, &to, STRICT);
        let error = chain(&end.unwrap_err());
        assert!(error.contains("make room there"), "{error}");
        assert_eq!(to.names().len(), left);
        assert!(to.list().unwrap().iter().all(|snapshot| snapshot.name.kind == Kind::Delta));
        to.is_full.set(false);
        assert_eq!(done(&from, &to, STRICT).copied, 3 - left);
    }
    // The store spoils what it was sent.
    let to = MemoryStore::default();
    to.spoils.set(Some(|all| *all.last_mut().unwrap() ^= 1));
    let (end, _) = copied(&from, &to, STRICT);
    assert!(matches!(end, Err(Error::Broken { .. })));
    assert_eq!(to.names(), [""; 0]);
}

#[test]
fn nothing_is_written_before_all_is_checked() {
    type Damage = fn(&mut Vec<u8>);
    let damages: [Damage; 3] =
        [|all| all.truncate(all.len() - 3), |all| *all = packed_content(&[1; 100]), |all| all.clear()];
    for damage in damages {
        let (from, to) = (moving(), MemoryStore::default());
        damage(&mut from.all.borrow_mut()[0].1);
        let (end, _) = copied(&from, &to, LENIENT);
        let Ok(CopyEnd::Done(outcome)) = end else { panic!("{end:?}") };
        assert!(outcome.starts_empty && outcome.full.is_none() && outcome.copied == 0, "{outcome:?}");
        let (end, _) = copied(&from, &to, STRICT);
        let Ok(CopyEnd::Refused(refusal)) = end else { panic!("{end:?}") };
        let expected = format!("memory: snapshot {} is broken: ", named("F9@5!"));
        assert!(refusal.why.starts_with(&expected) && refusal.is_loss, "{refusal:?}");
        assert_eq!(to.names(), [""; 0]);
    }
    let (from, to) = (moving(), MemoryStore::default());
    from.all.borrow_mut()[2].1.truncate(9);
    let (end, _) = copied(&from, &to, STRICT);
    assert!(matches!(end, Ok(CopyEnd::Refused(it)) if it.is_loss));
    assert_eq!(to.names(), [""; 0]);
    let outcome = done(&from, &to, LENIENT);
    assert_eq!((outcome.revision, outcome.copied), (11, 2));
    let lost = outcome.lost.unwrap();
    let end = "; changes after revision 11 of 1970-01-01T00:00:06Z are lost, if there were any";
    assert!(lost.ends_with(end), "{lost}");
}

#[test]
fn a_final_snapshot_is_awaited_and_an_absent_store_is_not_empty() {
    let (from, to) = (MemoryStore::with(&[(&named("F7@1"), packed(1))]), MemoryStore::default());
    from.is_away.set(3);
    let (end, log) = copied(&from, &to, STRICT);
    assert!(matches!(end, Ok(CopyEnd::Refused(_))), "{end:?}");
    assert_eq!(log.len(), 2, "{log:?}");
    assert!(log[0].starts_with("waiting for a final snapshot: list snapshots"), "{log:?}");
    assert!(log[1].ends_with(&format!("the newest full snapshot {} is not final", named("F7@1"))), "{log:?}");
    // It stays away. Loss is accepted, but nobody knows what would be lost.
    from.is_away.set(u32::MAX);
    let (end, _) = copied(&from, &to, LENIENT);
    assert!(matches!(end, Err(Error::Net { .. })), "{end:?}");
    // The target is away.
    let from = moving();
    to.is_away.set(1);
    assert!(copied(&from, &to, LENIENT).0.is_err());
    // The source is empty, and the target has something of an earlier move.
    let (from, to) = (MemoryStore::default(), MemoryStore::with(&[(&named("F3@1"), packed(1))]));
    let outcome = done(&from, &to, LENIENT);
    assert!(!outcome.starts_empty && outcome.revision == 3, "{outcome:?}");
    assert!(outcome.lost.unwrap().ends_with("(revision 3), which memory has from before"));
    // A stop ends the wait.
    let (clock, stop) = (Clock::system(), Stop::new());
    stop.stop();
    let end = run(&from, &to, STRICT, Waiting { clock: &clock, stop: &stop }, &mut |_| {});
    assert!(matches!(end, Err(Error::Unusable(_))));
}
