//! Two versions: the program's own, and the Gardener version that it stands in for.

/// The version of this program.
pub const PROGRAM: &str = env!("CARGO_PKG_VERSION");

/// When this program was built, in seconds since 1970: `SOURCE_DATE_EPOCH`, or the time of the commit; 0 if neither is known.
pub const BUILT_UNIX_S: i64 = include!(concat!(env!("OUT_DIR"), "/built"));

/// The Gardener version that the agent reports, and that the version-skew rule compares with the garden's: not newer than
/// the garden's, at most two minors older. It is the version whose objects, names and conditions this program follows,
/// so it moves when those are compared with a newer release, and only then.
pub const GARDENER: &str = "v1.150.0";
