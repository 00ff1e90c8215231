//! The status for other commands.

use std::io;
use std::path::PathBuf;

use serde_json::Value;

use super::{Agent, CONFIG, PATIENCE, reached};
use crate::base::stop::Stop;
use crate::config::file;
use crate::config::settings::ListenAddress;
use crate::format::view;
use crate::limits;

/// What the agent with this listener says, or the one with the default port: text, or JSON. Otherwise the reason.
pub(in crate::cli) fn told(listener: Option<&ListenAddress>, as_json: bool) -> Result<String, String> {
    let (hosts, port) = reached(listener);
    let agent = Agent { hosts, port, verbose: true, patience: PATIENCE, stop: Stop::new() };
    agent.ask(as_json).map(|answer| answer.text)
}

/// A line for each object that the agent shows, as `explain` names it. If no agent answers, there are none. `usual` is the
/// configuration that the environment names.
pub(in crate::cli) fn names(usual: Option<PathBuf>) -> String {
    let config = usual.unwrap_or_else(|| PathBuf::from(CONFIG));
    let listener = file::load(&config, &mut io::empty()).ok().map(|loaded| loaded.settings.health_probes);
    let page = told(listener.as_ref(), true).ok().and_then(|text| view::json(text.as_bytes()).ok());
    names_in(&page.unwrap_or_default())
}

fn names_in(page: &Value) -> String {
    let mut lines = String::new();
    for (group, kind) in [("shoots", "shoot"), ("installations", "controllerinstallation")] {
        for object in page[group].as_array().into_iter().flatten().take(limits::STATUS_ROWS_MAX) {
            let part = |field: &str| object[field].as_str().filter(|part| !part.is_empty());
            let Some(name) = part("name") else { continue };
            let namespace = part("namespace").map(|namespace| format!("{namespace}/")).unwrap_or_default();
            lines.push_str(&format!("{kind}/{namespace}{name}\n"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_those_that_explain_takes() {
        let page = json!({"verdict": {"text": "healthy"}, "installations": [{"name": "echo-x"}, {"name": ""}],
            "shoots": [{"namespace": "garden-p", "name": "s1"}, {"namespace": "garden-q", "name": "s2"}, {}]});
        let expected = "shoot/garden-p/s1\nshoot/garden-q/s2\ncontrollerinstallation/echo-x\n";
        assert_eq!(names_in(&page), expected);
        assert_eq!(names_in(&Value::Null), "");
    }
}
