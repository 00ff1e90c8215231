//! Labels of the secrets manager's Secrets.

/// Name of the configuration.
pub(crate) const NAME: &str = "name";
/// The manager of the Secrets.
pub(crate) const MANAGED_BY: &str = "managed-by";
pub(crate) const SECRETS_MANAGER: &str = "secrets-manager";
/// The instance of the manager.
pub(crate) const IDENTITY: &str = "manager-identity";
/// Checksum of the configuration.
pub(crate) const CHECKSUM: &str = "checksum-of-config";
/// Checksum of the CA that signed the certificate.
pub(crate) const CHECKSUM_OF_CA: &str = "checksum-of-signing-ca";
/// When the last rotation started, in seconds since 1970; empty before the first.
pub(crate) const LAST_ROTATION: &str = "last-rotation-initiation-time";
/// The start of its validity, in seconds since 1970.
pub(crate) const ISSUED_AT: &str = "issued-at-time";
/// The expiry of a certificate, in seconds since 1970.
pub(crate) const VALID_UNTIL: &str = "valid-until-time";
/// A migration copies it.
pub(crate) const PERSIST: &str = "persist";
/// The configuration whose bundle this is.
pub(crate) const BUNDLE_FOR: &str = "bundle-for";
/// When it is renewed, in percent of its validity.
pub(crate) const RENEW_AFTER: &str = "renew-after-validity-percentage";
/// A Secret whose data this configuration reuses.
pub(crate) const USE_DATA_FOR: &str = "secrets-manager-use-data-for-name";

/// Selects the Secrets of one instance.
pub fn selector(identity: &str) -> String {
    format!("{MANAGED_BY}={SECRETS_MANAGER},{IDENTITY}={identity}")
}
