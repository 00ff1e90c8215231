//! Requests to a garden with their answers, as rows of tables that the real Gardener and the stand-ins answer alike, or the row
//! says why not. The rows are in the text files of this folder; `row.rs` and `matrix.rs` read them.
//!
//! | line | meaning |
//! |---|---|
//! | `# text` | the name of the row, which begins here |
//! | `+ POST secrets ns/name {…}` | done before, as an administrator; `+ COMPACT`: the server forgets its history |
//! | `* secrets ns/name` | waited for before |
//! | `seed GET secrets ns/name` | the request, of `seed`, `extension` or `admin` |
//! | `= 403 Forbidden: text` | code, reason (`-`: none) and a part of the message of the answer |
//! | `> /pointer value` | a part of the answer; `present`: any value |
//! | `~ secrets ns/name /pointer value` | a part of what is stored afterwards; `gone`: it is not there |
//! | `! inside 404 NotFound: text` | a stand-in (`inside`, `behind`) answers so, for this reason |
//!
//! A request is a method (a media type for patches), a resource with its subresource (or a path), namespace and name (`-`:
//! none), and as needed `?query`, `as:USER` to impersonate somebody, and a body. `{uid|seeds|own}` is a field of an object,
//! `{next|seeds|-}` where the second page of a list begins, `{csr|O|CN}` a certificate request, `{bytes|5}` a text of this
//! length. The answer to `WATCH` is the list of its first events. A part `name=x` of a pointer is the item of a list with this
//! name.

pub mod matrix;
mod peer;
mod row;
mod wire;

pub use peer::{Peer, Place};
pub use row::{Row, rows};

/// All rows.
pub fn table() -> Vec<Row> {
    let texts = [
        include_str!("authorization.txt"),
        include_str!("restriction.txt"),
        include_str!("writes.txt"),
        include_str!("protocol.txt"),
    ];
    let all = matrix::rows(include_str!("matrix.txt"));
    all.into_iter().chain(texts.into_iter().flat_map(rows)).collect()
}

/// The objects of a garden before the rows: two Seeds, `own` and `other`, with Shoots `s1` and `s2`, and the remains of Shoot
/// `gone` of the first.
pub fn scene() -> Vec<Row> {
    rows(include_str!("scene.txt"))
}
