//! Turns a failure response into a typed error.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::error::{Error, StatusDetails, StatusFailure};
use super::request::{ApiRequest, ListMeta};
use crate::base::clock::Timestamp;
use crate::base::cut::cut;
use crate::format::view;

/// How much of a response that is not a `Status` an error shows.
const EXCERPT_CHARS: usize = 200;
/// The message of a `Status`.
const MESSAGE_BYTES_MAX: usize = 8 << 10;

#[derive(Deserialize, Default)]
#[serde(default)]
struct StatusBody {
    kind: String,
    metadata: ListMeta,
    message: String,
    reason: String,
    details: StatusDetails,
    code: u16,
}

/// The failure in a response; `retry_after` is its header, `now` our time.
pub(super) fn failure(
    request: &str,
    code: u16,
    retry_after: Option<&str>,
    body: &[u8],
    now: Timestamp,
) -> StatusFailure {
    let mut failure = match view::parse::<StatusBody>(body) {
        Ok(status) if status.kind == "Status" => from_status(status),
        _ => StatusFailure { message: excerpt(body), ..StatusFailure::default() },
    };
    request.clone_into(&mut failure.request);
    // The status line counts, because a proxy may answer in place of the server.
    failure.code = code;
    let header = retry_after.and_then(|text| parse_retry_after(text, now));
    failure.retry_after = header.or(failure.retry_after);
    failure
}

/// The failure in an `ERROR` event of a watch.
pub(super) fn event_failure(object: Value) -> StatusFailure {
    match view::read::<StatusBody>(object) {
        Ok(status) if status.kind == "Status" => from_status(status),
        _ => StatusFailure {
            code: 500,
            message: "an ERROR event without Status".to_owned(),
            ..StatusFailure::default()
        },
    }
}

fn from_status(status: StatusBody) -> StatusFailure {
    let seconds = status.details.retry_after_seconds;
    StatusFailure {
        request: String::new(),
        code: if status.code == 0 { 500 } else { status.code },
        reason: status.reason,
        message: cut(status.message, MESSAGE_BYTES_MAX),
        continue_token: status.metadata.continue_token,
        retry_after: (seconds > 0).then(|| Duration::from_secs(seconds.into())),
        details: status.details,
    }
}

/// The start of a text that should have been JSON, on one line; the title of an HTML page.
pub(super) fn excerpt(body: &[u8]) -> String {
    let head = String::from_utf8_lossy(&body[..body.len().min(4_096)]);
    let lower = head.to_ascii_lowercase();
    if let Some(begin) = lower.find("<title>") {
        let rest = &head[begin + 7..];
        let title = rest.split('<').next().unwrap_or_default();
        return format!("a page in HTML: {}", one_line(title));
    }
    one_line(&head)
}

fn one_line(text: &str) -> String {
    let words: Vec<&str> =
        text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|w| !w.is_empty()).collect();
    words.join(" ").chars().take(EXCERPT_CHARS).collect()
}

/// `Retry-After`: seconds, or a date.
fn parse_retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    Some(parse_http_date(text)?.since(now))
}

/// A date in HTTP's current format: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(super) fn parse_http_date(text: &str) -> Option<Timestamp> {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let rest = text.split_once(", ")?.1;
    let mut parts = rest.split(' ');
    let (day, month, year, clock) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    if parts.next()? != "GMT" || month.len() != 3 {
        return None;
    }
    let month = time::Month::try_from(u8::try_from(MONTHS.find(month)? / 3 + 1).ok()?).ok()?;
    let date = time::Date::from_calendar_date(year.parse().ok()?, month, day.parse().ok()?).ok()?;
    let mut fields = clock.split(':').map(|field| field.parse::<u8>().ok());
    let clock = time::Time::from_hms(fields.next()??, fields.next()??, fields.next()??.min(59)).ok()?;
    Some(Timestamp::from_unix(date.with_time(clock).assume_utc().unix_timestamp()))
}

/// A response that is not JSON did not come from the API server.
pub(super) fn undecodable(request: &ApiRequest, body: &[u8], source: serde_json::Error) -> Error {
    if source.is_data() {
        return Error::Decode { what: request.bare_path().to_owned(), source };
    }
    let problem = format!("not JSON: {}", excerpt(body));
    Error::Response { request: format!("{} {}", request.method.as_str(), request.bare_path()), problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::error::ErrorVerdict;

    fn made(code: u16, body: &str) -> StatusFailure {
        failure("GET https://x/api", code, None, body.as_bytes(), Timestamp::default())
    }

    #[test]
    fn verdicts_follow_code_and_reason() {
        let table = [
            (404, "NotFound", ErrorVerdict::NotFound),
            (409, "AlreadyExists", ErrorVerdict::AlreadyExists),
            (409, "Conflict", ErrorVerdict::Conflict),
            (410, "Expired", ErrorVerdict::Gone),
            (401, "Unauthorized", ErrorVerdict::Denied),
            (403, "Forbidden", ErrorVerdict::Denied),
            (400, "BadRequest", ErrorVerdict::Invalid),
            (405, "MethodNotAllowed", ErrorVerdict::Invalid),
            (413, "", ErrorVerdict::Invalid),
            (415, "UnsupportedMediaType", ErrorVerdict::Invalid),
            (422, "Invalid", ErrorVerdict::Invalid),
            (408, "", ErrorVerdict::Unreachable),
            (429, "TooManyRequests", ErrorVerdict::Throttled(None)),
            (500, "InternalError", ErrorVerdict::Unreachable),
            (502, "", ErrorVerdict::Unreachable),
            (503, "ServiceUnavailable", ErrorVerdict::Unreachable),
            (504, "Timeout", ErrorVerdict::Unreachable),
            (302, "", ErrorVerdict::Unreachable),
        ];
        for (code, reason, verdict) in table {
            let body = format!(r#"{{"kind":"Status","reason":"{reason}","code":{code}}}"#);
            assert_eq!(made(code, &body).verdict(), verdict, "{code} {reason}");
        }
    }

    #[test]
    fn a_status_keeps_its_parts() {
        let body = r#"{"kind":"Status","apiVersion":"v1","metadata":{"continue":"next"},"status":"Failure",
            "message":"secrets \"a\" is invalid","reason":"Invalid","code":422,"details":{"name":"a","kind":"secrets",
            "causes":[{"reason":"FieldValueInvalid","message":"bad","field":"data"}],"retryAfterSeconds":3}}"#;
        let failure = made(422, body);
        assert_eq!(failure.to_string(), "GET https://x/api: 422 Invalid: secrets \"a\" is invalid");
        assert_eq!(
            (failure.continue_token.as_str(), failure.retry_after),
            ("next", Some(Duration::from_secs(3)))
        );
        assert_eq!(failure.details.causes[0].field, "data");
        let event = event_failure(serde_json::from_str(body).unwrap());
        assert_eq!((event.code, event.reason.as_str()), (422, "Invalid"));
        assert_eq!(event_failure(Value::Null).code, 500);
    }

    #[test]
    fn other_texts_are_shown_in_one_line() {
        let table = [
            ("<html>\n<head><title>Login\n required</title>", "a page in HTML: Login required"),
            ("upstream\r\n\u{1b}[31m gone", "upstream [31m gone"),
            ("", ""),
            (r#"{"kind":"Other","message":"m"}"#, r#"{"kind":"Other","message":"m"}"#),
        ];
        for (body, message) in table {
            assert_eq!(made(502, body).message, message, "{body:?}");
        }
        assert_eq!(made(502, &"x".repeat(10_000)).message.len(), 200);
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = Timestamp::from_unix(784_111_777);
        let table = [
            ("7", Some(7)),
            (" 0 ", Some(0)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", Some(10)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("Sun, 06 Foo 1994 08:00:00 GMT", None),
            ("soon", None),
            ("-1", None),
        ];
        for (text, seconds) in table {
            assert_eq!(parse_retry_after(text, now), seconds.map(Duration::from_secs), "{text:?}");
        }
        let throttled = failure("", 429, Some("7"), b"", now);
        assert_eq!(throttled.verdict(), ErrorVerdict::Throttled(Some(Duration::from_secs(7))));
        let unavailable = failure("", 503, Some("1"), b"", now);
        assert_eq!(unavailable.verdict(), ErrorVerdict::Throttled(Some(Duration::from_secs(1))));
    }
}
