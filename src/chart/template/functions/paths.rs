//! Paths with slashes. The variants for paths of the operating system are the same, because the programs run on Linux.

use super::{Args, Function, FunctionResult, fixed};
use crate::chart::value::GoString;
use crate::chart::value::Type::Str;

pub(super) const FUNCTIONS: &[Function] = &[
    fixed("base", &[Str], base),
    fixed("osBase", &[Str], base),
    fixed("dir", &[Str], dir),
    fixed("osDir", &[Str], dir),
    fixed("clean", &[Str], |a| Ok(clean(a.bytes(0)).into())),
    fixed("osClean", &[Str], |a| Ok(clean(a.bytes(0)).into())),
    fixed("ext", &[Str], ext),
    fixed("osExt", &[Str], ext),
    fixed("isAbs", &[Str], |a| Ok(a.bytes(0).starts_with(b"/").into())),
    fixed("osIsAbs", &[Str], |a| Ok(a.bytes(0).starts_with(b"/").into())),
];

fn base(a: &Args<'_>) -> FunctionResult {
    let path = a.bytes(0);
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let base: &[u8] = match (path, &path[..end]) {
        ([], _) => b".",
        (_, []) => b"/",
        (_, trimmed) => last_part(trimmed),
    };
    Ok(GoString::from(base).into())
}

/// The part after the last slash; all without one.
fn last_part(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

fn dir(a: &Args<'_>) -> FunctionResult {
    let path = a.bytes(0);
    let folder = path.iter().rposition(|byte| *byte == b'/').map_or(&[][..], |slash| &path[..=slash]);
    Ok(clean(folder).into())
}

/// The shortest equivalent path.
fn clean(path: &[u8]) -> GoString {
    let rooted = path.starts_with(b"/");
    let mut kept: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if kept.last().is_some_and(|last| *last != b"..") => {
                kept.pop();
            }
            b".." if rooted => {}
            _ => kept.push(part),
        }
    }
    let joined = kept.join(&b'/');
    GoString::from(match (rooted, kept.is_empty()) {
        (true, _) => [b"/", joined.as_slice()].concat(),
        (false, true) => b".".to_vec(),
        (false, false) => joined,
    })
}

fn ext(a: &Args<'_>) -> FunctionResult {
    let name = last_part(a.bytes(0));
    let ext = name.iter().rposition(|byte| *byte == b'.').map_or(&[][..], |dot| &name[dot..]);
    Ok(GoString::from(ext).into())
}
