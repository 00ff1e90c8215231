//! Reads rows.

use serde_json::Value;

/// A request without its user.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// `GET`, `HEAD`, `POST`, `PUT`, `DELETE`, the kind of a patch (`MERGE`, `STRATEGIC`, `JSON`, `APPLY`), or `WATCH`.
    pub method: String,
    /// Plural, as needed with a subresource; or a path.
    pub resource: String,
    /// Namespace and name.
    pub place: (String, String),
    /// With its question mark.
    pub query: String,
    /// The user that the request impersonates.
    pub acts_as: String,
    /// JSON with placeholders.
    pub body: String,
}

/// Code, reason and a part of the message.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Answer {
    pub code: u16,
    pub reason: String,
    pub says: String,
}

/// What is looked at: resource and place, a pointer, and the value there. Without a pointer the object must be gone.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    pub resource: String,
    pub place: (String, String),
    pub pointer: Option<String>,
    pub value: Value,
}

/// One row.
#[derive(Clone, Debug, Default)]
pub struct Row {
    pub name: String,
    pub before: Vec<Step>,
    /// User and request.
    pub asks: Option<(String, Call)>,
    pub answer: Answer,
    /// Pointers into the answer with their values; none if any will do.
    pub shows: Vec<(String, Option<Value>)>,
    pub stored: Vec<Stored>,
    /// Stand-ins that answer differently.
    pub apart: Vec<(String, Answer)>,
}

/// What happens before a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Does(Call),
    Awaits(Call),
    /// The server forgets what has happened so far.
    Compacts,
}

fn place(text: &str) -> (String, String) {
    let (namespace, name) = text.split_once('/').unwrap_or(("", text));
    (namespace.to_owned(), if name == "-" { String::new() } else { name.to_owned() })
}

/// The first word and the rest.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    (word, rest.trim_start())
}

fn call(text: &str) -> Call {
    let (method, rest) = word(text);
    let (resource, rest) = word(rest);
    let (at, mut rest) = word(rest);
    let (mut query, mut acts_as) = (String::new(), String::new());
    if rest.starts_with('?') {
        let (first, after) = word(rest);
        (query, rest) = (first.to_owned(), after);
    }
    if let Some(user) = rest.strip_prefix("as:") {
        let (first, after) = word(user);
        (acts_as, rest) = (first.to_owned(), after);
    }
    Call {
        method: method.into(),
        resource: resource.into(),
        place: place(at),
        query,
        acts_as,
        body: rest.into(),
    }
}

fn answer(text: &str) -> Answer {
    let (head, says) = text.split_once(": ").unwrap_or((text.trim_end_matches(':'), ""));
    let (code, reason) = word(head);
    let reason = if reason == "-" { String::new() } else { reason.trim().to_owned() };
    Answer { code: code.parse().unwrap_or_else(|_| panic!("no code: {text}")), reason, says: says.into() }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn stored(text: &str) -> Stored {
    let (resource, rest) = word(text);
    let (at, rest) = word(rest);
    let (pointer, value) = word(rest);
    let gone = pointer == "gone";
    let value = if gone { Value::Null } else { json(value) };
    Stored {
        resource: resource.to_owned(),
        place: place(at),
        pointer: (!gone).then(|| pointer.to_owned()),
        value,
    }
}

/// The rows of a text.
pub fn rows(text: &str) -> Vec<Row> {
    let mut all: Vec<Row> = Vec::new();
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (first, rest) = word(line);
        if first == "#" {
            all.push(Row { name: rest.to_owned(), ..Row::default() });
            continue;
        }
        let row = all.last_mut().unwrap_or_else(|| panic!("no row begins before {line}"));
        match first {
            "+" if rest == "COMPACT" => row.before.push(Step::Compacts),
            "+" => row.before.push(Step::Does(call(rest))),
            "*" => row.before.push(Step::Awaits(call(&format!("GET {rest}")))),
            "=" => row.answer = answer(rest),
            ">" => {
                let (pointer, value) = word(rest);
                row.shows.push((pointer.to_owned(), (value != "present").then(|| json(value))));
            }
            "~" => row.stored.push(stored(rest)),
            "!" => {
                let (stand_in, rest) = word(rest);
                row.apart.push((stand_in.to_owned(), answer(rest)));
            }
            who => row.asks = Some((who.to_owned(), call(rest))),
        }
    }
    all
}

#[test]
fn rows_are_read() {
    let text = "# a name\n+ POST secrets a/b {\"x\": 1}\n* namespaces a\n+ COMPACT\n\
        seed MERGE seeds/status own ?dryRun=All as:x {\"y\": {}}\n= 403 Forbidden: because: of\n> /kind \"Status\"\n> /x present\n~ secrets a/b gone\n! inside 404 -: text\n";
    let row = &rows(text)[0];
    let (who, asked) = row.asks.clone().unwrap();
    assert_eq!(
        (who.as_str(), asked.resource.as_str(), asked.query.as_str(), asked.acts_as.as_str()),
        ("seed", "seeds/status", "?dryRun=All", "x")
    );
    assert_eq!(asked.place, (String::new(), "own".to_owned()));
    assert_eq!(asked.body, "{\"y\": {}}");
    let expected = Answer { code: 403, reason: "Forbidden".into(), says: "because: of".into() };
    assert_eq!(row.answer, expected);
    assert_eq!(row.apart[0].1.reason, "");
    assert_eq!((row.before.len(), row.stored[0].pointer.clone()), (3, None));
    assert_eq!(row.shows[1], ("/x".to_owned(), None));
}
