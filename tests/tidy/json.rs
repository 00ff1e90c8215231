//! Ways to read and write JSON that would add kilobytes to the program at each place.

use super::{Source, about, assert_none, sources};

/// What is used instead, and what it replaces.
const COSTLY: [(&str, &[&str]); 2] = [
    ("base::json", &["serde_json::json"]),
    (
        "format::view",
        &[
            "serde_json::from_str",
            "serde_json::from_reader",
            "serde_json::from_value",
            "serde_json::Deserializer::from_str",
            "serde(flatten",
        ],
    ),
];

fn costly(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources {
        for (number, line) in source.statements() {
            // `use serde_json::{Value, json};`
            let list = line.strip_prefix("use serde_json::{").unwrap_or_default();
            let imports = list.split([',', '}', ' ']).any(|name| name == "json");
            for (instead, ways) in COSTLY {
                let names = ways.iter().any(|way| line.contains(way));
                if names || imports && instead == "base::json" {
                    complaints.push(source.at(number, format_args!("use {instead}: {}", line.trim())));
                }
            }
        }
    }
    complaints
}

#[test]
fn json_is_read_and_written_in_one_way() {
    assert_none("this way to use JSON makes the program larger", &costly(&sources(&["src"])));
    for text in [
        "use serde_json::json;\n",
        "use serde_json::{Value, json};\n",
        "    let a = serde_json::from_str::<Value>(text);\n",
        "    #[serde(flatten)]\n",
    ] {
        assert_eq!(about(costly, "src/a.rs", text), 1, "{text}");
    }
    assert_eq!(about(costly, "src/a.rs", "use serde_json::{Map, Value};\nuse crate::base::json::json;\n"), 0);
    assert_eq!(about(costly, "src/a/tests.rs", "use serde_json::json;\n"), 0);
}
