//! Paths with slashes. The variants for paths of the operating system are the same, because the programs run on Linux.

use super::{Answer, Args, Function, fixed};
use crate::chart::value::Type::Str;

pub(super) const FUNCTIONS: &[Function] = &[
    fixed("base", &[Str], base),
    fixed("osBase", &[Str], base),
    fixed("dir", &[Str], dir),
    fixed("osDir", &[Str], dir),
    fixed("clean", &[Str], |a| Ok(clean(&a.str(0)).into())),
    fixed("osClean", &[Str], |a| Ok(clean(&a.str(0)).into())),
    fixed("ext", &[Str], ext),
    fixed("osExt", &[Str], ext),
    fixed("isAbs", &[Str], |a| Ok(a.bytes(0).starts_with(b"/").into())),
    fixed("osIsAbs", &[Str], |a| Ok(a.bytes(0).starts_with(b"/").into())),
];

fn base(a: &Args<'_>) -> Answer {
    let path = a.str(0);
    let trimmed = path.trim_end_matches('/');
    Ok(match (path.is_empty(), trimmed) {
        (true, _) => ".",
        (false, "") => "/",
        (false, rest) => rest.rsplit('/').next().unwrap_or(rest),
    }
    .into())
}

fn dir(a: &Args<'_>) -> Answer {
    let path = a.str(0);
    let folder = path.rfind('/').map_or("", |slash| &path[..=slash]);
    Ok(clean(folder).into())
}

/// The shortest equivalent path.
fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut kept: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if kept.last().is_some_and(|last| *last != "..") => {
                kept.pop();
            }
            ".." if rooted => {}
            _ => kept.push(part),
        }
    }
    match (rooted, kept.is_empty()) {
        (true, _) => format!("/{}", kept.join("/")),
        (false, true) => ".".to_owned(),
        (false, false) => kept.join("/"),
    }
}

fn ext(a: &Args<'_>) -> Answer {
    let path = a.str(0);
    let name = path.rsplit('/').next().unwrap_or("");
    Ok(name.rfind('.').map_or("", |dot| &name[dot..]).into())
}
