//! Compares docs/options.md and docs/components.md with the tables.

use super::super::rule::FieldRule;
use super::super::schema::{self, SchemaNode, Type};
use super::super::{bounds, inert};
use crate::base::sorted::{SortedMap, SortedSet};

const DOCUMENT: &str = include_str!("../../../docs/options.md");

/// How the document writes the bounds of a field with its own rule.
fn bounds_of(node: &SchemaNode) -> String {
    match node.field.rule {
        _ if node.bounds.is_some() => node.bounds.unwrap().range(node.field.ty),
        FieldRule::OneOf(choices) => choices.iter().map(|c| format!("`{c}`")).collect::<Vec<_>>().join(", "),
        FieldRule::Required => "required".to_owned(),
        FieldRule::AbsolutePath => "an absolute path".to_owned(),
        _ => String::new(),
    }
}

/// Paths of the `edge` options, with defaults, bounds and whether they have no effect. A list is represented by its
/// items, if these have a type.
fn own_options(
    node: &SchemaNode,
    path: &str,
    inert: bool,
    found: &mut SortedMap<String, (String, String, bool)>,
) {
    let inert = inert || node.inert.is_some();
    if !node.children.is_empty() {
        let below = |(name, child): (&String, &SchemaNode)| {
            own_options(child, &format!("{path}.{name}"), inert, found);
        };
        node.children.iter().for_each(below);
        return;
    }
    let is_typed_list = node.item.as_deref().is_some_and(|item| item.children.is_empty());
    if !is_typed_list || inert {
        found.insert(path.to_owned(), (node.field.default.to_owned(), bounds_of(node), inert));
    }
    if let Some(item) = &node.item {
        own_options(item, &format!("{path}[]"), inert, found);
    }
}

#[test]
fn every_own_option_is_documented_with_default_and_bounds_and_none_is_invented() {
    let mut known = SortedMap::new();
    own_options(&schema::tree().children["edge"], "edge", false, &mut known);
    // Only while there are fields without effect.
    let (now, later) = DOCUMENT.split_once("Accepted, and without effect so far").unwrap_or((DOCUMENT, ""));
    let mut told = SortedMap::new();
    for (text, inert) in [(now, false), (later, true)] {
        for row in text.lines().filter_map(|line| line.strip_prefix("| `edge")) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let path = format!("edge{}", cells[0].trim_matches('`'));
            // Rules across fields have bounds that no field has.
            let several = known.get(&path).is_some_and(|(_, bounds, _)| bounds.is_empty());
            let bounds = if several { "" } else { cells[2] };
            told.insert(path, (cells[1].trim_matches('`').to_owned(), bounds.to_owned(), inert));
        }
    }
    assert_eq!(told, known);
}

fn is_number(node: &SchemaNode) -> bool {
    matches!(
        node.field.ty,
        Type::Int | Type::Int32 | Type::Float | Type::Duration | Type::Quantity | Type::Quantities
    )
}

fn unbounded(node: &SchemaNode, path: &str, found: &mut Vec<String>) {
    // The rate of requests is a rule: a negative rate means no limit.
    if is_number(node) && node.bounds.is_none() && node.field.rule != FieldRule::Rate {
        found.push(path.to_owned());
    }
    node.children.iter().for_each(|(name, child)| unbounded(child, &format!("{path}.{name}"), found));
    if let Some(item) = &node.item {
        unbounded(item, &format!("{path}[]"), found);
    }
}

#[test]
fn every_number_has_bounds_and_every_bound_has_a_field() {
    let mut found = Vec::new();
    unbounded(&schema::tree(), "", &mut found);
    assert_eq!(found, [] as [String; 0]);
    for bounds in bounds::TABLE {
        let node = node(bounds.path);
        assert!(is_number(&node), "{}", bounds.path);
    }
}

/// The first node that a path with choices names.
fn node(path: &str) -> SchemaNode {
    let tree = schema::tree();
    let path = schema::expand(path).swap_remove(0).replace("[]", ".[]");
    let step = |node: SchemaNode, step: &str| match step {
        "[]" => *node.item.unwrap(),
        step => node.children[step].clone(),
    };
    path.split('.').filter(|step| !step.is_empty()).fold(tree, step)
}

#[test]
fn the_bounds_of_all_other_fields_are_documented() {
    let rows = bounds::TABLE.iter().filter(|bounds| !bounds.path.starts_with("edge."));
    let row = |bounds: &bounds::Bounds| {
        let range = bounds.range(node(bounds.path).field.ty);
        format!("| `{}` | {range} | {} |\n", bounds.path, bounds.why)
    };
    let expected: String = rows.map(row).collect();
    let (_, table) = DOCUMENT.split_once("| field | bounds | why |\n|---|---|---|\n").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    assert_eq!(format!("{table}\n"), expected, "the table should be:\n{expected}");
}

#[test]
fn what_has_no_effect_is_documented() {
    let row = |(path, missing): &(&str, &str)| format!("| `{path}` | {missing} |\n");
    let expected: String =
        inert::TABLE.iter().filter(|(path, _)| !path.starts_with("edge.")).map(row).collect();
    let (_, table) = DOCUMENT.split_once("| field | why it has no effect |\n|---|---|\n").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    assert_eq!(format!("{table}\n"), expected, "the table should be:\n{expected}");
}

/// Rows whose second cell is a name, or empty.
#[test]
fn the_table_of_components_names_those_that_can_be_left_out() {
    let document = include_str!("../../../docs/components.md");
    let rows: Vec<Vec<&str>> = document
        .lines()
        .filter_map(|line| line.strip_prefix("| "))
        .map(|row| row.split('|').map(str::trim).collect())
        .filter(|cells: &Vec<&str>| cells[0] != "component")
        .collect();
    assert!(rows.len() > 30, "{} rows: are they found?", rows.len());
    let mut named = SortedSet::new();
    for cells in &rows {
        let states = ["deployed", "optional", "not there"];
        assert!(cells.len() == 5 && states.contains(&cells[2]), "{cells:?}");
        if !cells[1].is_empty() {
            assert_eq!(cells[2], "deployed", "only what is deployed can be left out: {cells:?}");
            assert!(named.insert(cells[1].trim_matches('`')), "{} is there twice", cells[1]);
        }
    }
    assert_eq!(named, schema::COMPONENTS.into_iter().collect());
}
