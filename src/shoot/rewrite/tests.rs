use super::super::view::Rotated;
use super::*;

#[test]
fn what_is_rewritten() {
    type Row<'a> = (Phase, &'a [&'a str], &'a [&'a str], &'a [&'a str]);
    let table: &[Row<'_>] = &[
        (Phase::Preparing, &[], &[], &["secrets"]),
        (Phase::Completing, &["configmaps"], &["configmaps"], &["configmaps", "secrets"]),
        (Phase::Preparing, &["b"], &["a"], &["a", "b", "secrets"]),
        (Phase::Completed, &["b", "c"], &["a", "c"], &["a", "b"]),
        (Phase::None, &["configmaps.", "secrets"], &[], &["configmaps"]),
        (Phase::None, &["*."], &[], &["*."]),
        // The status does not record yet what is encrypted.
        (Phase::None, &[], &[], &["secrets"]),
    ];
    for (phase, after, before, expected) in table {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
        let mut view = View { encrypted: list(after), encrypted_before: list(before), ..View::default() };
        view.rotations.encryption_key = Rotated { phase: *phase, ..Rotated::default() };
        assert_eq!(resources(&view), *expected, "{phase:?} {after:?} {before:?}");
    }
}
