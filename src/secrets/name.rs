//! Names of Secrets: configuration, checksum, rotation (Gardener's `pkg/utils/secrets/manager`).

use ring::digest;

use crate::base::clock::Timestamp;
use crate::base::sorted::SortedMap;
use crate::format::hex;

/// `<config>[-<8 hex>][-<5 hex>]`.
pub(super) fn secret_name(config: &str, checksum: Option<&str>, rotated: Option<Timestamp>) -> String {
    let mut name = config.to_owned();
    for part in [checksum.map(str::to_owned), rotated.map(suffix_of_rotation)].into_iter().flatten() {
        name.push('-');
        name.push_str(&part);
    }
    name
}

/// The part of a name that depends on the content of the Secret.
pub(super) fn suffix_of_config(checksum: u64, signing_ca: &str) -> String {
    sha256(format!("{checksum}{signing_ca}").as_bytes())[..8].to_owned()
}

/// The part of a name that depends on the start of its rotation.
fn suffix_of_rotation(at: Timestamp) -> String {
    sha256(at.unix().to_string().as_bytes())[..5].to_owned()
}

/// Label `checksum-of-signing-ca`.
pub(super) fn checksum_of_data(data: &SortedMap<String, Vec<u8>>) -> String {
    let each: String = data.values().map(|value| sha256(value)).collect();
    sha256(each.as_bytes())[..63].to_owned()
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(digest::digest(&digest::SHA256, bytes).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_kinds() {
        let rotated = Timestamp::from_unix(1_646_060_228);
        assert_eq!(secret_name("ca", None, None), "ca");
        assert_eq!(secret_name("ca-client", Some("58f8e9ac"), None), "ca-client-58f8e9ac");
        assert_eq!(secret_name("ca", Some("f6032ea0"), Some(rotated)), "ca-f6032ea0-76711");
        assert_eq!(secret_name("a", None, Some(rotated)), "a-76711");
    }

    #[test]
    fn the_checksum_of_a_ca_is_a_label_value() {
        let data = [("ca.crt".to_owned(), b"a".to_vec()), ("ca.key".to_owned(), b"b".to_vec())].into();
        assert_eq!(checksum_of_data(&data).len(), 63);
        assert_ne!(checksum_of_data(&data), checksum_of_data(&SortedMap::new()));
    }
}
