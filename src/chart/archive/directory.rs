//! The files of a chart in a directory, except those that `.helmignore` excludes.

use std::fs::{self, FileType};
use std::io::{self, Read};
use std::path::Path;

use super::{Budget, Error, File, without_bom};
use crate::base::capped;
use crate::chart::glob::Pattern;
use crate::limits::{CHART_FILE_BYTES_MAX, CHART_IGNORE_BYTES_MAX, NESTING_DEPTH_MAX};

/// Reads the files sorted by name; follows links.
pub(super) fn read(top: &Path, budget: &mut Budget) -> Result<Vec<File>, Error> {
    let mut rules = IgnoreRule::parse_all(&read_ignore(&top.join(".helmignore"))?)?;
    // Upstream's only default rule: hidden files among the templates.
    rules.extend(IgnoreRule::parse("templates/.?*")?);
    let mut files = Vec::new();
    walk(&Walk { top, rules: &rules }, "", 0, budget, &mut files)?;
    Ok(files)
}

/// The text of `.helmignore`; empty if there is none.
fn read_ignore(path: &Path) -> Result<String, Error> {
    let failed = |source| Error::Read { path: path.to_owned(), source };
    match fs::metadata(path) {
        Err(_) => return Ok(String::new()),
        // Reading a device may never end, and opening a pipe may block.
        Ok(metadata) if !metadata.is_file() => return Err(failed(io::Error::other("not a regular file"))),
        Ok(_) => {}
    }
    let bytes = capped::read_file(path, CHART_IGNORE_BYTES_MAX).map_err(failed)?;
    Ok(String::from_utf8(bytes).unwrap_or_default())
}

/// Size of one read.
const SMALL_BYTES: usize = 16 << 10;

struct Walk<'a> {
    top: &'a Path,
    rules: &'a [IgnoreRule],
}

fn walk(
    walk_: &Walk<'_>,
    folder: &str,
    depth: usize,
    budget: &mut Budget,
    files: &mut Vec<File>,
) -> Result<(), Error> {
    if depth > NESTING_DEPTH_MAX {
        return Err(Error::Depth(NESTING_DEPTH_MAX));
    }
    let path = walk_.top.join(folder);
    let failed = |path: &Path, source| Error::Read { path: path.to_owned(), source };
    let mut names: Vec<(String, Option<FileType>)> = fs::read_dir(&path)
        .map_err(|e| failed(&path, e))?
        .filter_map(Result::ok)
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.file_type().ok())))
        .collect();
    names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let mut data = Vec::new();
    for (name, kind) in names {
        let within = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        let path = walk_.top.join(&within);
        let kind = match kind {
            Some(kind) if !kind.is_symlink() => kind,
            _ => fs::metadata(&path).map_err(|e| failed(&path, e))?.file_type(),
        };
        if ignored(walk_.rules, &within, kind.is_dir()) {
            continue;
        }
        if kind.is_dir() {
            walk(walk_, &within, depth + 1, budget, files)?;
        } else if kind.is_file() {
            // One byte more than allowed, so that the budget reports the error.
            let limit = u64::try_from(budget.bytes.min(CHART_FILE_BYTES_MAX)).unwrap_or(u64::MAX) + 1;
            read_file(&path, limit, &mut data).map_err(|e| failed(&path, e))?;
            budget.take_file(&within, u64::try_from(data.len()).unwrap_or(u64::MAX))?;
            files.push(File { name: within, data: without_bom(&data) });
        } else {
            return Err(failed(&path, io::Error::other("not a regular file")));
        }
    }
    Ok(())
}

/// Reads a file up to a limit. Most files are small, so their size is not queried.
fn read_file(path: &Path, limit: u64, data: &mut Vec<u8>) -> io::Result<()> {
    if data.capacity() != SMALL_BYTES {
        *data = Vec::with_capacity(SMALL_BYTES);
    }
    data.clear();
    let mut file = fs::File::open(path)?.take(limit.min(SMALL_BYTES as u64));
    if file.read_to_end(data)? == SMALL_BYTES {
        let file = file.into_inner();
        let size = file.metadata()?.len().min(limit);
        data.reserve_exact(usize::try_from(size).unwrap_or(0).saturating_sub(SMALL_BYTES));
        file.take(limit.saturating_sub(SMALL_BYTES as u64)).read_to_end(data)?;
    }
    Ok(())
}

/// A line of `.helmignore`.
struct IgnoreRule {
    negated: bool,
    folders_only: bool,
    /// Whether the pattern applies to the whole path, not only to the name.
    whole_path: bool,
    pattern: Pattern,
}

impl IgnoreRule {
    fn parse_all(text: &str) -> Result<Vec<Self>, Error> {
        let mut rules = Vec::new();
        for line in text.trim_start_matches('\u{feff}').lines() {
            rules.extend(Self::parse(line)?);
        }
        Ok(rules)
    }

    /// `None` for blank lines and comments.
    fn parse(line: &str) -> Result<Option<Self>, Error> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(None);
        }
        let error = || Error::Ignore(line.to_owned());
        if line.contains("**") {
            return Err(error());
        }
        let (negated, rule) = line.strip_prefix('!').map_or((false, line), |rest| (true, rest));
        let (folders_only, rule) = rule.strip_suffix('/').map_or((false, rule), |rest| (true, rest));
        let whole_path = rule.contains('/');
        let pattern = Pattern::path(rule.strip_prefix('/').unwrap_or(rule)).ok_or_else(error)?;
        Ok(Some(Self { negated, folders_only, whole_path, pattern }))
    }

    fn matches(&self, path: &str) -> bool {
        let name = if self.whole_path { path } else { path.rsplit('/').next().unwrap_or(path) };
        self.pattern.matches(name)
    }
}

/// The first matching rule decides; a negated rule excludes everything that does *not* match, as upstream.
fn ignored(rules: &[IgnoreRule], path: &str, is_folder: bool) -> bool {
    rules.iter().any(|rule| {
        if rule.negated {
            return (rule.folders_only && !is_folder) || !rule.matches(path);
        }
        (is_folder || !rule.folders_only) && rule.matches(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_up_to_the_limit() {
        let path =
            std::env::temp_dir().join(format!("gardenlet-chart-file-{}", crate::base::random::hex(12)));
        let mut data = Vec::new();
        for size in [0, 1, SMALL_BYTES - 1, SMALL_BYTES, SMALL_BYTES + 1, 3 * SMALL_BYTES, 5] {
            let text: Vec<u8> = (0..size).map(|i| u8::try_from(i % 251).unwrap()).collect();
            fs::write(&path, &text).unwrap();
            read_file(&path, 1 << 20, &mut data).unwrap();
            assert!(data == text, "{size}");
            for limit in [1, SMALL_BYTES, SMALL_BYTES + 1, 2 * SMALL_BYTES] {
                read_file(&path, limit as u64, &mut data).unwrap();
                assert!(data == text[..size.min(limit)], "{size} up to {limit}");
            }
        }
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn helmignore_hides_files() {
        let rules = IgnoreRule::parse_all("\u{feff}# c\n*.bak\n/top.txt\nsub/x.*\ndir/\n").unwrap();
        for (path, is_folder, hidden) in [
            ("a/b.bak", false, true),
            ("top.txt", false, true),
            ("a/top.txt", false, false),
            ("sub/x.y", false, true),
            ("a/sub/x.y", false, false),
            ("a/dir", true, true),
            ("a/dir", false, false),
        ] {
            assert_eq!(ignored(&rules, path, is_folder), hidden, "{path}");
        }
        let rules = IgnoreRule::parse_all("!*.yaml").unwrap();
        assert!(ignored(&rules, "a.txt", false) && !ignored(&rules, "a.yaml", false));
        assert!(IgnoreRule::parse_all("a/**/b").is_err());
        assert!(IgnoreRule::parse_all("[a").is_err());
    }
}
