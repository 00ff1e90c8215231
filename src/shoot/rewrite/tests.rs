use super::super::view::Rotated;
use super::*;

#[test]
fn what_is_rewritten() {
    type Row<'a> = (RotationPhase, &'a [&'a str], &'a [&'a str], &'a [&'a str]);
    let table: &[Row<'_>] = &[
        (RotationPhase::Preparing, &[], &[], &["secrets"]),
        (RotationPhase::Completing, &["configmaps"], &["configmaps"], &["configmaps", "secrets"]),
        (RotationPhase::Preparing, &["b"], &["a"], &["a", "b", "secrets"]),
        (RotationPhase::Completed, &["b", "c"], &["a", "c"], &["a", "b"]),
        (RotationPhase::None, &["configmaps.", "secrets"], &[], &["configmaps"]),
        (RotationPhase::None, &["*."], &[], &["*."]),
        // The status does not record yet what is encrypted.
        (RotationPhase::None, &[], &[], &["secrets"]),
    ];
    for (phase, after, before, expected) in table {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>();
        let mut view =
            ShootView { encrypted: list(after), encrypted_before: list(before), ..ShootView::default() };
        view.rotations.encryption_key = Rotated { phase: *phase, ..Rotated::default() };
        assert_eq!(resources(&view), *expected, "{phase:?} {after:?} {before:?}");
    }
}
