//! The texts of `--help` and the completions of shells: `build.rs` packs these files into the binary.

use crate::components::archive::packed_text;

/// Every command and sub-command.
pub(super) const COMMANDS: [&str; 29] = [
    "run",
    "config",
    "config validate",
    "config print-defaults",
    "rebootstrap",
    "bootstrap-token",
    "rescue",
    "status",
    "doctor",
    "explain",
    "support-bundle",
    "bundle",
    "bundle export",
    "bundle import",
    "bundle list",
    "etcd",
    "etcd install",
    "etcd start",
    "etcd snapshot",
    "etcd copy",
    "etcd list",
    "node",
    "node script",
    "node list",
    "node remove",
    "render",
    "completion",
    "version",
    "help",
];

/// The shells that have a completion, and the file of each.
const SHELLS: [(&str, &str); 3] =
    [("bash", "gardenlet.bash"), ("zsh", "_gardenlet"), ("fish", "gardenlet.fish")];

/// The help of a command; of the program, if the command is empty.
pub(super) fn page(command: &str) -> String {
    let name = if command.is_empty() { "gardenlet".to_owned() } else { command.replace(' ', "-") };
    packed_text(&format!("help/{name}.txt"))
}

/// The completion script for a shell.
pub(super) fn completion(shell: &str) -> Option<String> {
    let (_, file) = SHELLS.iter().find(|(known, _)| *known == shell)?;
    Some(packed_text(&format!("completions/{file}")))
}

/// The lines of a page below a heading, up to the next empty line.
pub(super) fn section<'p>(page: &'p str, heading: &str) -> &'p str {
    let (_, rest) = page.split_once(&format!("\n{heading}\n")).unwrap_or_default();
    rest.split("\n\n").next().unwrap_or_default()
}

/// The options of a page, with their dashes.
pub(super) fn options(page: &str) -> Vec<&str> {
    let is_end = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
    let lines = section(page, "Options:").lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let named = lines.flat_map(|line| line.split("  ").take(1).flat_map(|names| names.split(", ")));
    named.map(|name| name.split(is_end).next().unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::components::archive::packed_texts;

    #[test]
    fn every_page_has_usage_options_exit_codes_and_an_example() {
        let files = packed_texts("help/");
        assert_eq!(files.len(), COMMANDS.len() + 1);
        for command in COMMANDS {
            let page = page(command);
            assert!(page.starts_with("Usage: gardenlet "), "{command}: {page}");
            for heading in ["Options:", "Exit codes:", "Example:"] {
                assert!(!section(&page, heading).is_empty(), "{command} has no {heading}");
            }
            assert!(options(&page).contains(&"--help"), "{command}");
            assert!(
                section(&page, "Exit codes:").contains("  2  wrong usage of the command line"),
                "{command}"
            );
            let usage = page.lines().next().unwrap();
            let named = usage.contains(&format!("gardenlet {command}"));
            assert!(named, "{usage}");
            let about = page.split("\n\n").nth(1).unwrap();
            assert!(about.ends_with('.'), "{command}: {about}");
        }
        for file in files {
            assert!(file.text.lines().all(|line| line.len() <= 125), "{}", file.path);
        }
    }

    #[test]
    fn the_first_page_names_all_commands_on_one_screen() {
        let page = page("");
        assert!(page.lines().count() <= 30, "{page}");
        let listed: Vec<&str> =
            section(&page, "Commands:").lines().filter_map(|line| line.split_whitespace().next()).collect();
        let top: Vec<&str> = COMMANDS.into_iter().filter(|name| !name.contains(' ')).collect();
        assert_eq!(listed, top);
    }

    #[test]
    fn groups_list_their_commands() {
        for group in COMMANDS {
            let page = page(group);
            let listed: Vec<String> = section(&page, "Commands:")
                .lines()
                .filter_map(|line| Some(format!("{group} {}", line.split_whitespace().next()?)))
                .collect();
            let own: Vec<&str> =
                COMMANDS.into_iter().filter(|name| name.starts_with(&format!("{group} "))).collect();
            assert_eq!(listed, own, "{group}");
        }
    }

    #[test]
    fn options_are_found() {
        assert_eq!(options(&page("version")), ["-o", "--output", "-h", "--help"]);
        let render = page("render");
        let options = options(&render);
        for option in ["-f", "--values", "--set-json", "--dry-run", "--unlimited"] {
            assert!(options.contains(&option), "{option}: {options:?}");
        }
    }

    #[test]
    fn completions_are_the_packaged_files() {
        let packaged = [
            ("bash", include_str!("../../packaging/completions/gardenlet.bash")),
            ("zsh", include_str!("../../packaging/completions/_gardenlet")),
            ("fish", include_str!("../../packaging/completions/gardenlet.fish")),
        ];
        for (shell, text) in packaged {
            assert_eq!(completion(shell).as_deref(), Some(text));
        }
        assert_eq!(completion("tcsh"), None);
    }
}
