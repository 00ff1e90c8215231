//! The parameters of lists and watches that go together.

use super::failure::Failure;

const MATCH: &str = "resourceVersionMatch";
const INITIAL: &str = "sendInitialEvents";

/// Refuses parameters that do not go together. `text` is a parameter of the query.
pub fn check(text: impl Fn(&str) -> String, watch: bool) -> Result<(), Failure> {
    let limit = text("limit");
    if !limit.is_empty() && limit.parse::<i64>().is_err() {
        return Err(Failure::bad_request(format!("strconv.ParseInt: parsing {limit:?}: invalid syntax")));
    }
    let wrong = if watch { of_watch(text) } else { of_list(text) };
    let wrong: Vec<_> = wrong.into_iter().map(|(field, why)| (field.to_owned(), why)).collect();
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(Failure::all_invalid("meta.k8s.io", "ListOptions", "", &wrong))
    }
}

type Wrong = Vec<(&'static str, String)>;

fn forbidden(why: &str) -> String {
    format!("Forbidden: {why}")
}

fn of_watch(text: impl Fn(&str) -> String) -> Wrong {
    let (matching, has_initial) = (text(MATCH), !text(INITIAL).is_empty());
    let mut wrong = Wrong::new();
    if has_initial && matching != "NotOlderThan" {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        wrong.push((MATCH, forbidden(why)));
    }
    if matching.is_empty() {
        return wrong;
    }
    if !has_initial {
        let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
        wrong.push((MATCH, forbidden(why)));
    }
    if matching != "NotOlderThan" {
        wrong.push((MATCH, format!("Unsupported value: {matching:?}: supported values: \"NotOlderThan\"")));
    }
    if !text("continue").is_empty() {
        wrong.push((MATCH, forbidden("resourceVersionMatch is forbidden when continue is provided")));
    }
    wrong
}

fn of_list(text: impl Fn(&str) -> String) -> Wrong {
    let (matching, version) = (text(MATCH), text("resourceVersion"));
    let mut wrong = Wrong::new();
    if !matching.is_empty() {
        if version.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            wrong.push((MATCH, forbidden(why)));
        }
        if !text("continue").is_empty() {
            wrong.push((MATCH, forbidden("resourceVersionMatch is forbidden when continue is provided")));
        }
        match matching.as_str() {
            "Exact" if version == "0" => {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                wrong.push((MATCH, forbidden(why)));
            }
            "Exact" | "NotOlderThan" => {}
            other => {
                let supported = "supported values: \"Exact\", \"NotOlderThan\", \"\"";
                wrong.push((MATCH, format!("Unsupported value: {other:?}: {supported}")));
            }
        }
    }
    if !text(INITIAL).is_empty() {
        wrong.push((INITIAL, forbidden("sendInitialEvents is forbidden for list")));
    }
    wrong
}
