//! Rows of which there are many: each user, kind and place with each verb. Writes are dry runs.

use super::row::{Answer, Call, Row};

/// The meaning of the letter after a code: the reason, and the end of the message.
const ENDINGS: [(char, &str, &str); 8] = [
    ('r', "Forbidden", ": no relationship found"),
    ('v', "Forbidden", ": only the following verbs are allowed for this resource type: ["),
    ('u', "Forbidden", ": only the following subresources are allowed for this resource type: ["),
    ('n', "Forbidden", ": only the following namespaces are allowed for this resource type: ["),
    ('s', "Forbidden", ": must specify field or label selector for name own"),
    ('l', "Forbidden", ": lease object is not in seed namespace"),
    ('f', "Forbidden", ""),
    ('w', "", "admission webhook \"seed-restriction.gardener.cloud\" denied the request: "),
];

/// The rows of a text. A line has user, resource and place, then a verb with its answer for each row: a code, and what it says
/// if it is a refusal.
pub fn rows(text: &str) -> Vec<Row> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .flat_map(|line| {
            cases(line).into_iter().map(|(who, verb, call, answer)| row(who, verb, call, answer))
        })
        .collect()
}

/// User, verb, request and answer of each case of a line.
pub fn cases(line: &str) -> Vec<(&str, &str, Call, &str)> {
    let mut words = line.split(' ');
    let (Some(who), Some(resource), Some(place)) = (words.next(), words.next(), words.next()) else {
        return Vec::new();
    };
    words
        .filter_map(|case| case.split_once('='))
        .map(|(verb, answer)| (who, verb, call(verb, resource, place), answer))
        .collect()
}

fn call(verb: &str, resource: &str, place: &str) -> Call {
    let (namespace, name) = place.split_once('/').unwrap_or(("", place));
    let name = if verb == "LIST" { "" } else { name };
    let (method, subresource, body) = match verb {
        "LIST" => ("GET", "", ""),
        "STATUS" => ("MERGE", "/status", r#"{"metadata":{"labels":{"matrix":"x"}}}"#),
        "MERGE" => ("MERGE", "", r#"{"metadata":{"labels":{"matrix":"x"}}}"#),
        other => (other, "", ""),
    };
    Call {
        method: method.to_owned(),
        resource: format!("{resource}{subresource}"),
        place: (namespace.to_owned(), name.to_owned()),
        query: if ["GET", "LIST"].contains(&verb) { String::new() } else { "?dryRun=All".to_owned() },
        acts_as: String::new(),
        body: body.to_owned(),
    }
}

fn row(who: &str, verb: &str, call: Call, answer: &str) -> Row {
    let name = format!("{who} {verb} {} {}/{}", call.resource, call.place.0, call.place.1);
    let code = answer.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let ending = ENDINGS.iter().find(|(letter, ..)| answer.ends_with(*letter));
    let (reason, says) = match (code, ending) {
        (_, Some((_, reason, says))) => (*reason, *says),
        ("404", None) => ("NotFound", ""),
        ("405", None) => ("MethodNotAllowed", ""),
        ("409", None) => ("Conflict", ""),
        ("422", None) => ("Invalid", ""),
        _ => ("", ""),
    };
    let answer = Answer {
        code: code.parse().unwrap_or_else(|_| panic!("no code: {name} {answer}")),
        reason: reason.to_owned(),
        says: says.to_owned(),
    };
    Row { name, asks: Some((who.to_owned(), call)), answer, ..Row::default() }
}

/// A code with the letter for what it says.
pub fn told(code: u16, reason: &str, message: &str) -> String {
    let fits = |(_, of, says): &&(char, &str, &str)| *of == reason && message.contains(says);
    match ENDINGS.iter().find(fits).filter(|_| code >= 300) {
        Some((letter, ..)) => format!("{code}{letter}"),
        None => code.to_string(),
    }
}
