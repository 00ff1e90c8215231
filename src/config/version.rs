//! Two versions: the version of the program, and the Gardener version that it implements.

/// The version of this program.
pub(crate) const PROGRAM: &str = env!("CARGO_PKG_VERSION");

/// When this program was built, in seconds since 1970: `SOURCE_DATE_EPOCH`, or the time of the commit; 0
/// if neither is known.
pub(crate) const BUILT_UNIX_S: i64 = include!(concat!(env!("OUT_DIR"), "/built"));

/// The commit of which this program was built; empty if it is not known, and for a program of a working copy.
pub(crate) const COMMIT: &str = include_str!(concat!(env!("OUT_DIR"), "/commit"));

/// The Gardener version that the agent reports, and that the version-skew rule compares with the garden's: not newer
/// than the garden's, and at most two minor versions older. This program follows the objects, names and conditions of
/// that version. The version changes only after a comparison with a newer release.
pub(crate) const GARDENER: &str = "v1.150.0";
