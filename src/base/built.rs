//! What a trimmed build leaves out: each part is a feature of cargo, and all are there by default. A part that is left out
//! is a branch that is never taken: its code is compiled and checked in every build, and the linker drops it.

/// A part of the program that a build may leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The feature of cargo.
    pub feature: &'static str,
    /// Whether it is there.
    pub is_there: bool,
    /// What to tell somebody who wants to use it when it is not.
    pub refusal: &'static str,
}

macro_rules! part {
    ($name:ident, $feature:literal, $what:literal) => {
        #[doc = $what]
        pub const $name: Part = Part {
            feature: $feature,
            is_there: cfg!(feature = $feature),
            refusal: concat!(
                "this program was built without ",
                $what,
                " (feature ",
                $feature,
                "): use one that has it"
            ),
        };
    };
}

part!(BROTLI, "brotli", "a reader for compressed manifests");
part!(DOCTOR, "doctor", "gardenlet doctor");
part!(EXPLAIN, "explain", "gardenlet explain");
part!(KEYS, "keys", "functions for keys, certificates and passwords");
part!(OCI, "oci", "charts from registries");
part!(RENDER, "render", "gardenlet render");

/// All of them, by name.
pub const PARTS: [Part; 6] = [BROTLI, DOCTOR, EXPLAIN, KEYS, OCI, RENDER];

/// What of these parts is not there: `, without doctor, oci`; nothing if all are.
pub fn left_out(parts: &[Part]) -> String {
    let names = parts.iter().filter(|part| !part.is_there).map(|part| part.feature).collect::<Vec<_>>();
    if names.is_empty() { String::new() } else { format!(", without {}", names.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_told() {
        let missing = |part| Part { is_there: false, ..part };
        let there = |part| Part { is_there: true, ..part };
        assert_eq!(left_out(&[missing(DOCTOR), there(KEYS), missing(OCI)]), ", without doctor, oci");
        assert_eq!(left_out(&[there(KEYS)]), "");
        assert_eq!(
            OCI.refusal,
            "this program was built without charts from registries (feature oci): use one that has it"
        );
    }

    #[test]
    fn parts_are_sorted_and_are_features() {
        assert!(PARTS.is_sorted_by_key(|part| part.feature));
        let manifest = include_str!("../../Cargo.toml");
        let names = PARTS.map(|part| format!("\"{}\"", part.feature)).join(", ");
        assert!(manifest.contains(&format!("\ndefault = [{names}]\n")), "{names}");
    }
}
