//! Names of types that say what they are without their path, and parameters with a name each.

use std::collections::BTreeMap;

use super::{Source, assert_none, sources};

/// A type name may be declared so often.
const DECLARATIONS_MAX: usize = 3;
/// Names that mean the same in each module, and may be declared as often as needed.
const COMMON: &[&str] = &["Entry", "Error", "Kind", "Options", "State"];

/// A place, or several.
type Places = Vec<String>;

/// The name of the type that a line declares. Associated types belong to their trait.
fn declared(line: &str) -> Option<&str> {
    let item = line.trim_start();
    let item = match item.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => item,
    };
    let (word, rest) = item.split_once(' ')?;
    let is_type = match word {
        "struct" | "enum" | "trait" => true,
        "type" => !line.starts_with(' '),
        _ => false,
    };
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    Some(&rest[..end]).filter(|_| is_type)
}

fn repeated_types(sources: &[Source]) -> Vec<String> {
    let mut found: BTreeMap<&str, Places> = BTreeMap::new();
    for source in sources {
        for (number, line) in source.statements() {
            if let Some(name) = declared(line).filter(|name| !COMMON.contains(name)) {
                found.entry(name).or_default().push(source.at(number, name));
            }
        }
    }
    found.retain(|_, places| places.len() > DECLARATIONS_MAX);
    complaints(found)
}

/// The signatures of a file, from `fn` to the body, each with its first line.
fn signatures(source: &Source) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    for (number, line) in source.statements() {
        let code = line.trim();
        let starts = !is_open && (code.starts_with("fn ") || code.contains(" fn ")) && code.contains('(');
        if starts {
            found.push((number, String::new()));
        }
        if starts || is_open {
            let (_, text) = found.last_mut().expect("a signature has begun");
            text.push_str(code.split('{').next().unwrap_or(code));
            text.push(' ');
            is_open = !code.contains('{') && !code.ends_with(';');
        }
    }
    found
}

/// The number of tuples among the parameters of a signature: `(a, b): Pair`, `pair: (A, B)`, `pair: Option<(A, B)>`.
fn tuples(signature: &str) -> usize {
    let mut open: Vec<usize> = Vec::new();
    let mut count = 0;
    for (at, c) in signature.char_indices() {
        match c {
            '(' => open.push(at),
            ')' => {
                let start = open.pop().unwrap_or(at);
                let is_tuple = has_comma(&signature[start + 1..at]);
                count += usize::from(is_tuple && signature[at + 1..].starts_with(": "));
                count += usize::from(is_tuple && begins_type(&signature[..start]));
            }
            _ => {}
        }
    }
    count
}

/// Whether a list has a comma outside of all brackets.
fn has_comma(list: &str) -> bool {
    let mut depth = 0_i32;
    list.replace("->", "").chars().any(|c| {
        depth += i32::from("([<".contains(c)) - i32::from(")]>".contains(c));
        c == ',' && depth == 0
    })
}

/// Whether the type of a parameter follows: what is before it ends with `: `, a reference, or an `Option` of these.
fn begins_type(before: &str) -> bool {
    let before = before.strip_suffix("mut ").unwrap_or(before);
    let before = before.strip_suffix("Option<").unwrap_or(before);
    let without_lifetime =
        before.trim_end().rsplit_once('\'').filter(|(_, name)| !name.contains([' ', '>', ',']));
    let before = without_lifetime.map_or(before, |(before, _)| before);
    before.ends_with(": ") || before.ends_with(": &")
}

fn tuple_parameters(sources: &[Source]) -> Vec<String> {
    let rooms: Vec<String> = sources.iter().map(Source::module).collect();
    let mut found: BTreeMap<&str, Places> = BTreeMap::new();
    for (source, room) in sources.iter().zip(&rooms) {
        for (number, signature) in signatures(source) {
            let name = signature.split("fn ").nth(1).and_then(|rest| rest.split(['(', '<']).next());
            let place = source.at(number, format_args!("fn {}", name.unwrap_or_default()));
            found.entry(room).or_default().extend(vec![place; tuples(&signature)]);
        }
    }
    found.retain(|_, places| !places.is_empty());
    complaints(found)
}

fn complaints(found: BTreeMap<&str, Places>) -> Vec<String> {
    found.into_iter().map(|(name, places)| format!("{name}: {}", places.join(", "))).collect()
}

#[test]
fn type_names_say_what_they_are() {
    assert_none("a type name is declared too often", &repeated_types(&sources(&["src"])));
    let declare = |name: &str, times: usize| {
        let kinds = ["struct", "pub(crate) enum", "pub trait", "    pub struct", "pub(super) type"];
        let lines = kinds.iter().cycle().take(times).map(|kind| format!("{kind} {name} {{\n"));
        [Source::new("src/a.rs", lines.collect::<String>())]
    };
    assert_eq!(repeated_types(&declare("Plan", 3)).len(), 0);
    assert_eq!(repeated_types(&declare("Plan", 5)).len(), 1);
    assert_eq!(repeated_types(&declare("Error", 5)).len(), 0);
    let inner = "impl A for B {\n    type Item = u8;\n}\n".repeat(5);
    assert_eq!(repeated_types(&[Source::new("src/a.rs", inner)]).len(), 0);
}

#[test]
fn parameters_are_no_tuples() {
    assert_none("a parameter is a tuple", &tuple_parameters(&sources(&["src"])));
    let count = |text: &str| tuple_parameters(&[Source::new("src/a/b.rs", text)]).len();
    assert_eq!(
        count("fn f(c: (u8), d: &[(u8, u8)]) -> (u8, u8) {\n    let (a, b): (u8, u8) = pair;\n}\n"),
        0
    );
    assert_eq!(
        count("fn f(a: impl Fn(u8, u8), b: &(dyn Fn(u8, u8) + 'static), c: &'a (dyn X + 'a)) {\n}\n"),
        0
    );
    for parameter in ["(u8, u8)", "&(u8, u8)", "&'a (u8, Vec<u8>)", "&mut (u8, u8)", "Option<(u8, u8)>"] {
        assert_eq!(count(&format!("fn f(a: u8, pair: {parameter}) {{\n}}\n")), 1, "{parameter}");
    }
    assert_eq!(count("fn f(x: u8) {\n    g(|(a, b): (u8, u8)| a + b);\n}\n"), 0);
    assert_eq!(count("pub fn f((a, b): (u8, u8)) -> u8 {\n    a\n}\n"), 1);
    assert_eq!(count("    fn f(\n        &self,\n        (a, _b): (&str, &[u8]),\n    ) {\n    }\n"), 1);
    assert_eq!(count("fn f(((a, b), c): ((u8, u8), u8)) { g(|(a, b): (u8, u8)| a) }\n"), 1);
    let two = [Source::new("src/a/b.rs", "fn f((a, b): (u8, u8), (c, d): (u8, u8));\nfn g(a: u8) {}\n")];
    assert_eq!(tuple_parameters(&two).len(), 1, "a room has one complaint");
}
