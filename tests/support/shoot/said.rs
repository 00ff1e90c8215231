//! What `gardenlet etcd` says when it refuses: parts of its messages. The stand-ins of its Jobs and of its etcd say them, and stories of moves
//! expect them. Stories of the program itself (`story_snapshot_copies`) hear them from it, so that they stay its own.

/// Of a copy: the source is empty.
pub const NO_SNAPSHOT: &str = "there is no snapshot";
/// Of a copy, after the name of a snapshot.
pub const NOT_FINAL: &str = "is not final";
/// After the name of a snapshot; the reason follows.
pub const BROKEN: &str = "is broken: ";
/// After the name of a snapshot that was written, and read back.
pub const SPOILED: &str = "is broken: the store has another content under this name";
/// The address of a store, and the reason, follow.
pub const UNREACHABLE: &str = "connect to ";
/// Of the start of an etcd.
pub const NEVER_EMPTY: &str = "etcd does not start empty";
/// Of the start of an etcd, after the revision that its store has, and the one that it had.
pub const OLDER: &str = "etcd does not start with older data";
