//! Names of releases, as Helm allows them.

const BYTES_MAX: usize = 53;

/// Whether a release may have this name: words of small letters, digits and dashes, with dots between them.
pub(super) fn is_valid(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_word = |word: &str| {
        word.starts_with(is_letter)
            && word.ends_with(is_letter)
            && word.chars().all(|c| is_letter(c) || c == '-')
    };
    name.len() <= BYTES_MAX && name.split('.').all(is_word)
}

/// Why a name is refused, in Helm's words.
pub(super) fn refusal(name: &str) -> String {
    let why = match name {
        "" => "no name provided".to_owned(),
        _ => format!(
            "invalid release name, must match regex ^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$ \
             and the length must not be longer than {BYTES_MAX}"
        ),
    };
    format!("release name check failed: release name {name:?}: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_helm_allows() {
        for name in ["a", "release-name", "a.b-c.9", &"a".repeat(53)] {
            assert!(is_valid(name), "{name}");
        }
        for name in ["", "A", "a_b", "-a", "a-", "a..b", ".a", "a.-b", "\u{e4}", &"a".repeat(54)] {
            assert!(!is_valid(name), "{name}");
        }
        assert!(refusal("A").ends_with("the length must not be longer than 53"));
        assert_eq!(refusal(""), "release name check failed: release name \"\": no name provided");
    }
}
