//! The files of a chart in a folder, but for those that `.helmignore` names.

use std::fs;
use std::io::Read;
use std::path::Path;

use super::{Budget, Error, File, without_bom};
use crate::chart::glob::Pattern;
use crate::limits::NESTING_DEPTH_MAX;

/// Reads the files in the order of their names; links are followed.
pub(super) fn read(top: &Path, budget: &mut Budget) -> Result<Vec<File>, Error> {
    let mut rules = match fs::read_to_string(top.join(".helmignore")) {
        Ok(text) => Rule::parse_all(&text)?,
        Err(_) => Vec::new(),
    };
    // Upstream's only default: hidden files among the templates.
    rules.extend(Rule::parse("templates/.?*")?);
    let mut files = Vec::new();
    walk(&Walk { top, rules: &rules }, "", 0, budget, &mut files)?;
    Ok(files)
}

struct Walk<'a> {
    top: &'a Path,
    rules: &'a [Rule],
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
    let mut names: Vec<String> = fs::read_dir(&path)
        .map_err(|e| failed(&path, e))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    for name in names {
        let within = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        let path = walk_.top.join(&within);
        let metadata = fs::metadata(&path).map_err(|e| failed(&path, e))?;
        if ignored(walk_.rules, &within, metadata.is_dir()) {
            continue;
        }
        if metadata.is_dir() {
            walk(walk_, &within, depth + 1, budget, files)?;
        } else if metadata.is_file() {
            budget.take_file(&within, metadata.len())?;
            let mut data = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
            // What grows meanwhile is cut where the budget says.
            let read = fs::File::open(&path).and_then(|f| f.take(metadata.len()).read_to_end(&mut data));
            read.map_err(|e| failed(&path, e))?;
            files.push(File { name: within, data: without_bom(data) });
        } else {
            return Err(failed(&path, std::io::Error::other("not a regular file")));
        }
    }
    Ok(())
}

/// A line of `.helmignore`.
struct Rule {
    negated: bool,
    folders_only: bool,
    /// The pattern is for the whole path, not for the name alone.
    whole_path: bool,
    pattern: Pattern,
}

impl Rule {
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

/// The first rule that fits decides; a negated one hides all that does *not* fit, as upstream.
fn ignored(rules: &[Rule], path: &str, is_folder: bool) -> bool {
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
    fn helmignore_hides_files() {
        let rules = Rule::parse_all("\u{feff}# c\n*.bak\n/top.txt\nsub/x.*\ndir/\n").unwrap();
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
        let rules = Rule::parse_all("!*.yaml").unwrap();
        assert!(ignored(&rules, "a.txt", false) && !ignored(&rules, "a.yaml", false));
        assert!(Rule::parse_all("a/**/b").is_err());
        assert!(Rule::parse_all("[a").is_err());
    }
}
