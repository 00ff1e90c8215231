//! What a pod told at its end in which the agent's program has run.

use serde_json::Value;

use crate::api::meta::text;
use crate::base::clock::Timestamp;
use crate::format::time::parse_rfc3339;
use crate::format::view;

/// The maximum length of a failure's text.
const WORDS_MAX: usize = 500;

/// A pod that has ended.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct EndedPod {
    pub(crate) at: Timestamp,
    /// Its termination message, if that is JSON.
    pub(crate) told: Value,
    /// Why it failed, if it did.
    pub(crate) failure: Option<String>,
    pub(crate) exit_code: i64,
}

impl EndedPod {
    /// `None` if the pod has not ended.
    pub(crate) fn read(pod: &Value) -> Option<Self> {
        let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        let message = text(&ended["message"]).trim();
        let told = view::json(message.as_bytes()).unwrap_or_default();
        let exit_code = ended["exitCode"].as_i64().unwrap_or_default();
        let failure = match told["error"].as_str() {
            Some(error) => Some(error.to_owned()),
            None if exit_code == 0 => None,
            None if message.is_empty() => {
                let reason = text(&ended["reason"]);
                Some(format!("its pod ended with {reason} (exit code {exit_code})"))
            }
            None => Some(message.to_owned()),
        };
        let failure = failure.map(|why| why.chars().take(WORDS_MAX).collect());
        Some(Self { at: parse_rfc3339(text(&ended["finishedAt"])).ok()?, told, failure, exit_code })
    }

    /// Orders pods by their end. Of two in the same second, the success was later, because it ends the attempts.
    pub(crate) const fn rank(&self) -> (Timestamp, bool) {
        (self.at, self.failure.is_none())
    }
}
