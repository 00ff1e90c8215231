//! Labels of the secrets manager's Secrets.

/// Name of the configuration.
pub const NAME: &str = "name";
/// Who makes them.
pub const MANAGED_BY: &str = "managed-by";
/// Its value.
pub const SECRETS_MANAGER: &str = "secrets-manager";
/// Which instance of it.
pub const IDENTITY: &str = "manager-identity";
/// Checksum of the configuration.
pub const CHECKSUM: &str = "checksum-of-config";
/// Checksum of the CA that signed the certificate.
pub const CHECKSUM_OF_CA: &str = "checksum-of-signing-ca";
/// When the last rotation began, in seconds since 1970; empty before the first.
pub const LAST_ROTATION: &str = "last-rotation-initiation-time";
/// From when it is valid, in seconds since 1970.
pub const ISSUED_AT: &str = "issued-at-time";
/// Until when a certificate is valid, in seconds since 1970.
pub const VALID_UNTIL: &str = "valid-until-time";
/// A migration takes it along.
pub const PERSIST: &str = "persist";
/// Configuration of which this is the bundle.
pub const BUNDLE_FOR: &str = "bundle-for";
/// When it is renewed, in per cent of its validity.
pub const RENEW_AFTER: &str = "renew-after-validity-percentage";
/// A Secret that lends its data to this configuration.
pub const USE_DATA_FOR: &str = "secrets-manager-use-data-for-name";

/// Finds the Secrets of one instance.
pub fn selector(identity: &str) -> String {
    format!("{MANAGED_BY}={SECRETS_MANAGER},{IDENTITY}={identity}")
}
