//! Selects the sub-charts, applies their aliases, and imports their exported values.

use serde_json::Value;

use std::fmt;

use super::coalesce::{self, Nulls, coalesced_json, complete};
use super::{Chart, Dependency, ValuesTable, values};
use crate::format::semver::{Constraint, Version};
use crate::limits::{CHART_BYTES_MAX, CHART_COUNT_MAX, CHART_FILES_MAX, CHART_IMPORT_STEPS_MAX};

/// Why the dependencies of a chart cannot be processed.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// The values of a sub-chart are not a map.
    Values(coalesce::Error),
    /// With one chart for each alias, there are more charts than this.
    Charts(usize),
    /// With the files of one chart for each alias, there are more files than this.
    Files(usize),
    /// With the files of one chart for each alias, there are more bytes than this.
    Bytes(usize),
    /// Values are imported to a path with more steps than this.
    ImportSteps(usize),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Values(error) => write!(f, "{error}"),
            Self::Charts(max) => write!(f, "with all aliases there are more than {max} charts"),
            Self::Files(max) => write!(f, "with all aliases the charts have more than {max} files"),
            Self::Bytes(max) => write!(f, "with all aliases the charts have more than {max} bytes"),
            Self::ImportSteps(max) => {
                write!(f, "import-values has a parent with more than {max} steps in its path")
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<coalesce::Error> for Error {
    fn from(error: coalesce::Error) -> Self {
        Self::Values(error)
    }
}

/// The size of a chart and all charts below it.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    charts: usize,
    files: usize,
    bytes: usize,
}

impl Size {
    fn of(chart: &Chart) -> Self {
        let files = chart.templates.iter().chain(&chart.files);
        let text: usize = files.clone().map(|file| file.name.len() + file.data.len()).sum();
        let schema = chart.schema.as_ref().map_or(0, |schema| schema.len());
        let own = Self {
            charts: 1,
            files: files.count(),
            bytes: text + schema + chart.values.values().map(bytes_of).sum::<usize>(),
        };
        chart.children.iter().fold(own, |size, child| size.plus(Self::of(child)))
    }

    fn plus(self, other: Self) -> Self {
        Self {
            charts: self.charts.saturating_add(other.charts),
            files: self.files.saturating_add(other.files),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            charts: self.charts.saturating_sub(other.charts),
            files: self.files.saturating_sub(other.files),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    fn check(self) -> Result<(), Error> {
        if self.charts > CHART_COUNT_MAX {
            return Err(Error::Charts(CHART_COUNT_MAX));
        }
        if self.files > CHART_FILES_MAX {
            return Err(Error::Files(CHART_FILES_MAX));
        }
        if self.bytes > CHART_BYTES_MAX { Err(Error::Bytes(CHART_BYTES_MAX)) } else { Ok(()) }
    }
}

/// The approximate size of a value in its file.
fn bytes_of(value: &Value) -> usize {
    const NODE_BYTES: usize = 8;
    NODE_BYTES
        + match value {
            Value::String(text) => text.len(),
            Value::Array(list) => list.iter().map(bytes_of).sum(),
            Value::Object(map) => map.iter().map(|(key, value)| key.len() + bytes_of(value)).sum(),
            _ => 0,
        }
}

/// Removes the sub-charts that conditions and tags disable, applies aliases, and imports values. Errors: if
/// the values of a sub-chart are not a map, or are too many.
pub(super) fn process(chart: &mut Chart, user: &ValuesTable) -> Result<(), Error> {
    let mut size = Size::of(chart);
    enable(chart, user, "", &mut size)?;
    import_all(chart)
}

/// Dependencies that are listed but missing.
pub(super) fn missing(chart: &Chart) -> Vec<&str> {
    let is_there = |d: &&Dependency| !chart.children.iter().any(|c| c.name() == d.name);
    chart.metadata.dependencies.iter().filter(is_there).map(|d| d.name.as_str()).collect()
}

fn enable(chart: &mut Chart, parent_values: &ValuesTable, path: &str, size: &mut Size) -> Result<(), Error> {
    if chart.metadata.dependencies.is_empty() {
        return Ok(());
    }
    choose(chart, size)?;
    let all = coalesced_json(chart, parent_values, Nulls::Drop)?;
    for dependency in &mut chart.metadata.dependencies {
        dependency.enabled = by_tags(dependency, &all);
        if let Some(enabled) = by_condition(dependency, &all, path) {
            dependency.enabled = enabled;
        }
    }
    let off: Vec<String> =
        chart.metadata.dependencies.iter().filter(|d| !d.enabled).map(|d| d.name.clone()).collect();
    chart.children.retain(|c| !off.iter().any(|name| name == c.name()));
    chart.metadata.dependencies.retain(|d| !off.contains(&d.name));
    for child in &mut chart.children {
        let path = format!("{path}{}.", child.name());
        enable(child, &all, &path, size)?;
    }
    Ok(())
}

/// Puts the charts that no dependency lists first, then one for each dependency, under its alias. `size` is the total
/// of all charts of the rendering; it is checked before copies are made.
fn choose(chart: &mut Chart, size: &mut Size) -> Result<(), Error> {
    let found = std::mem::take(&mut chart.children);
    let fits = |child: &Chart, d: &Dependency| {
        child.name() == d.name && in_range(&d.version, &child.metadata.version)
    };
    let dependencies = &chart.metadata.dependencies;
    let unlisted = found.iter().filter(|child| !dependencies.iter().any(|d| fits(child, d)));
    let mut children: Vec<(&Chart, &str)> = unlisted.map(|child| (child, "")).collect();
    for dependency in dependencies {
        let child = found.iter().find(|child| fits(child, dependency));
        children.extend(child.map(|child| (child, dependency.alias.as_str())));
    }
    let of_all = |charts: &mut dyn Iterator<Item = &Chart>| {
        charts.fold(Size::default(), |size, chart| size.plus(Size::of(chart)))
    };
    *size = size.minus(of_all(&mut found.iter())).plus(of_all(&mut children.iter().map(|(child, _)| *child)));
    size.check()?;
    let named = |(child, alias): (&Chart, &str)| {
        let mut child = child.clone();
        if !alias.is_empty() {
            alias.clone_into(&mut child.metadata.name);
        }
        child
    };
    chart.children = children.into_iter().map(named).collect();
    for dependency in &mut chart.metadata.dependencies {
        if !dependency.alias.is_empty() {
            dependency.name.clone_from(&dependency.alias);
        }
    }
    Ok(())
}

/// Whether a version is in a range; an unreadable range or version never matches.
pub(super) fn in_range(range: &str, version: &str) -> bool {
    match (Constraint::parse(range), Version::parse(version)) {
        (Ok(range), Ok(version)) => range.check(&version),
        _ => false,
    }
}

/// Disabled only if one of its tags is false and none is true.
fn by_tags(dependency: &Dependency, all: &ValuesTable) -> bool {
    let Some(tags) = values::table(all, "tags") else { return true };
    let said: Vec<bool> =
        dependency.tags.iter().filter_map(|tag| tags.get(tag).and_then(Value::as_bool)).collect();
    said.is_empty() || said.contains(&true)
}

/// The boolean at the first path of the condition that has one.
fn by_condition(dependency: &Dependency, all: &ValuesTable, path: &str) -> Option<bool> {
    let paths = dependency.condition.trim().split(',').filter(|p| !p.is_empty());
    paths.filter_map(|p| values::scalar(all, &format!("{path}{p}"))).find_map(|value| {
        if !value.is_boolean() {
            log::warn!(chart = dependency.name.as_str(); "The condition of a sub-chart is not a boolean");
        }
        value.as_bool()
    })
}

fn import_all(chart: &mut Chart) -> Result<(), Error> {
    for child in &mut chart.children {
        import_all(child)?;
    }
    import(chart)
}

/// Imports exported values of sub-charts into the defaults of their parent, whose own values win.
fn import(chart: &mut Chart) -> Result<(), Error> {
    if chart.metadata.dependencies.is_empty() {
        return Ok(());
    }
    let mut all = coalesced_json(chart, &ValuesTable::new(), Nulls::Keep)?;
    let mut imported = ValuesTable::new();
    for dependency in &mut chart.metadata.dependencies {
        let mut pairs = Vec::new();
        for import in &dependency.import_values {
            let Some((child, parent, exported)) = import_paths(import) else { continue };
            pairs.push(crate::base::json::json!({"child": child, "parent": parent}));
            let Some(table) = values::table(&all, &format!("{}.{exported}", dependency.name)) else {
                log::warn!(chart = dependency.name.as_str(); "A sub-chart lacks an imported table");
                continue;
            };
            if parent.split('.').count() > CHART_IMPORT_STEPS_MAX {
                return Err(Error::ImportSteps(CHART_IMPORT_STEPS_MAX));
            }
            complete(&mut imported, &below(&parent, table.clone()));
        }
        dependency.import_values = pairs;
    }
    complete(&mut all, &imported);
    chart.values = all;
    Ok(())
}

/// The path in the child as written, the path in the parent, and the full path in the child.
fn import_paths(import: &Value) -> Option<(String, String, String)> {
    match import {
        Value::String(name) => {
            let path = format!("exports.{name}");
            Some((path.clone(), ".".to_owned(), path))
        }
        Value::Object(map) => {
            let text = |key| map.get(key).and_then(Value::as_str).unwrap_or("<nil>").to_owned();
            Some((text("child"), text("parent"), text("child")))
        }
        _ => None,
    }
}

/// A table at a dotted path.
fn below(path: &str, table: ValuesTable) -> ValuesTable {
    if path == "." {
        return table;
    }
    path.rsplit('.')
        .fold(table, |table, key| ValuesTable::from_iter([(key.to_owned(), Value::Object(table))]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn chart(name: &str, values: &Value, children: Vec<Chart>) -> Chart {
        let mut chart = Chart { children, ..Chart::default() };
        chart.values = values.as_object().cloned().unwrap_or_default();
        name.clone_into(&mut chart.metadata.name);
        "1.2.3".clone_into(&mut chart.metadata.version);
        chart
    }

    fn needs(chart: &mut Chart, document: &str) {
        let document = crate::format::yaml::parse(&format!("dependencies:\n{document}")).unwrap();
        chart.metadata.merge(&document).unwrap();
    }

    fn names(chart: &Chart, user: &Value) -> Vec<String> {
        let mut chart = chart.clone();
        process(&mut chart, user.as_object().unwrap()).unwrap();
        chart.children.iter().map(|c| c.name().to_owned()).collect()
    }

    #[test]
    fn conditions_and_tags_switch_charts() {
        let mut parent = chart(
            "p",
            &json!({"tags": {"t": false}}),
            vec![chart("a", &json!({}), vec![]), chart("b", &json!({"on": false}), vec![])],
        );
        needs(
            &mut parent,
            "- {name: a, version: 1.x, tags: [t, u]}\n- {name: b, version: '*', condition: 'x.y,b.on'}\n",
        );
        assert_eq!(names(&parent, &json!({})), Vec::<String>::new());
        assert_eq!(names(&parent, &json!({"tags": {"u": true}, "b": {"on": true}})), ["a", "b"]);
        assert_eq!(names(&parent, &json!({"x": {"y": true}})), ["b"]);
        assert_eq!(names(&parent, &json!({"x": {"y": "yes"}, "b": {"on": 1}})), ["b"]);
    }

    #[test]
    fn aliases_multiply_charts_and_unlisted_ones_stay() {
        let mut parent =
            chart("p", &json!({}), vec![chart("a", &json!({}), vec![]), chart("z", &json!({}), vec![])]);
        needs(&mut parent, "- {name: a, version: 1.2.3, alias: one}\n- {name: a, version: ~1, alias: two}\n");
        assert_eq!(names(&parent, &json!({})), ["z", "one", "two"]);
        assert_eq!(missing(&parent), Vec::<&str>::new());
        needs(&mut parent, "- {name: a, version: 2.x}\n- {name: q}\n");
        assert_eq!(names(&parent, &json!({})), ["a", "z"]);
        assert_eq!(missing(&parent), ["q"]);
    }

    #[test]
    fn conditions_of_grandchildren_are_looked_up_below_their_parent() {
        let mut child = chart("c", &json!({"g": {"on": true}}), vec![chart("g", &json!({}), vec![])]);
        needs(&mut child, "- {name: g, version: '*', condition: g.on}\n");
        let mut parent = chart("p", &json!({}), vec![child]);
        needs(&mut parent, "- {name: c, version: '*'}\n");
        for (user, left) in [(json!({}), 1), (json!({"c": {"g": {"on": false}}}), 0)] {
            let mut parent = parent.clone();
            process(&mut parent, user.as_object().unwrap()).unwrap();
            assert_eq!(parent.children[0].children.len(), left);
        }
    }

    #[test]
    fn values_are_imported() {
        let child = chart("c", &json!({"exports": {"data": {"a": 1, "b": 1}}, "t": {"x": 1}}), vec![]);
        let mut parent = chart("p", &json!({"b": 2}), vec![child]);
        needs(
            &mut parent,
            "- {name: c, version: '*', import-values: [data, none, {child: t, parent: deep.er}]}\n",
        );
        process(&mut parent, &ValuesTable::new()).unwrap();
        let values = Value::Object(parent.values);
        assert_eq!(
            (&values["a"], &values["b"], &values["deep"]),
            (&json!(1), &json!(2), &json!({"er": {"x": 1}}))
        );
        assert_eq!(parent.metadata.dependencies[0].import_values.len(), 3);
    }
}
