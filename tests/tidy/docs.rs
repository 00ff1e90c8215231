//! Documentation of very few words: it mostly repeats a name, or is the stray end of a paragraph.

use super::{Source, sources};

/// A line of documentation with fewer words is short.
const WORDS_MIN: usize = 4;
/// The project may have this many short lines. The number may only become smaller.
const SHORT_LINES_MAX: usize = 388;

fn is_short(line: &str) -> bool {
    line.trim_start().strip_prefix("/// ").is_some_and(|text| text.split(' ').count() < WORDS_MIN)
}

/// The short lines of each file that has some; the documentation of tests does not count.
fn short_lines(sources: &[Source]) -> Vec<(String, usize)> {
    let is_test = |source: &&Source| source.path.ends_with("tests.rs") || source.path.ends_with("testing.rs");
    let count = |source: &Source| {
        let lines = source.text.lines().filter(|line| is_short(line)).count();
        (source.path.display().to_string(), lines)
    };
    sources.iter().filter(|source| !is_test(source)).map(count).filter(|(_, lines)| *lines > 0).collect()
}

#[test]
fn few_lines_of_documentation_are_short() {
    let mut files = short_lines(&sources(&["src"]));
    files.sort_by_key(|(_, lines)| std::cmp::Reverse(*lines));
    let sum: usize = files.iter().map(|(_, lines)| lines).sum();
    files.truncate(10);
    assert!(
        sum <= SHORT_LINES_MAX,
        "{sum} lines have fewer than {WORDS_MIN} words, most of them in {files:?}"
    );
    let text = "/// The name.\nname: String,\n    /// A b\n    /// the name of it\n// The name.\n//! The name.\n///\n";
    let files = ["src/a.rs", "src/b/tests.rs", "src/testing.rs"].map(|path| Source::new(path, text));
    assert_eq!(short_lines(&files), [("src/a.rs".to_owned(), 2)]);
}
