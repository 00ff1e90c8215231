//! `format` of JSON Schema, as upstream's library checks it, with the library's messages.

use std::net::IpAddr;

use super::super::template;
use crate::format::time::layout;

type FormatVerdict = Result<(), String>;

/// Checks a text. An unknown format accepts any text.
pub(super) fn check(format: &str, text: &str) -> FormatVerdict {
    match format {
        "json-pointer" => json_pointer(text),
        "relative-json-pointer" => relative_json_pointer(text),
        "uuid" => uuid(text),
        "duration" => duration(text),
        "period" => period(text),
        "ipv4" => ipv4(text),
        "ipv6" => ipv6(text),
        "hostname" => hostname(text),
        "email" => email(text),
        "date" => date(text),
        "time" => time(text),
        "date-time" => date_time(text),
        "uri" | "iri" => uri(text),
        "uri-reference" | "iri-reference" => uri_reference(text),
        "semver" => semver(text),
        "regex" => template::regex(text).map(drop),
        _ => Ok(()),
    }
}

fn refuse(why: &str) -> FormatVerdict {
    Err(why.to_owned())
}

fn quoted_char(c: char) -> String {
    format!("'{}'", if c == '\'' { "\\'".to_owned() } else { c.to_string() })
}

fn json_pointer(text: &str) -> FormatVerdict {
    if text.is_empty() {
        return Ok(());
    }
    let Some(tokens) = text.strip_prefix('/') else { return refuse("not starting with /") };
    for token in tokens.split('/') {
        let mut rest = token;
        while let Some((_, after)) = rest.split_once('~') {
            rest = after.strip_prefix(['0', '1']).ok_or("~ must be followed by 0 or 1")?;
        }
    }
    Ok(())
}

fn relative_json_pointer(text: &str) -> FormatVerdict {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    match digits {
        0 => return refuse("must start with non-negative integer"),
        2.. if text.starts_with('0') => return refuse("starts with zero"),
        _ => {}
    }
    if &text[digits..] == "#" { Ok(()) } else { json_pointer(&text[digits..]) }
}

fn uuid(text: &str) -> FormatVerdict {
    const LENGTHS: [usize; 5] = [8, 4, 4, 4, 12];
    let groups: Vec<&str> = text.split('-').collect();
    if groups.len() != LENGTHS.len() {
        return refuse("must have 5 elements");
    }
    for (i, (group, len)) in (1..).zip(groups.iter().zip(LENGTHS)) {
        if group.len() != len {
            return Err(format!("element {i} must be {len} characters long"));
        }
        if let Some(c) = group.chars().find(|c| !c.is_ascii_hexdigit()) {
            return Err(format!("non-hex character {}", quoted_char(c)));
        }
    }
    Ok(())
}

fn duration(text: &str) -> FormatVerdict {
    let Some(rest) = text.strip_prefix('P') else { return refuse("must start with P") };
    if rest.is_empty() {
        return refuse("nothing after P");
    }
    if let Some(weeks) = rest.strip_suffix('W') {
        return match weeks {
            "" => refuse("no number in week"),
            w if w.bytes().all(|b| b.is_ascii_digit()) => Ok(()),
            _ => refuse("invalid week"),
        };
    }
    for (i, part) in rest.split('T').enumerate() {
        if i > 0 && part.is_empty() {
            return refuse("no time elements");
        }
        let Some(all) = ["YMD", "HMS"].get(i) else { return refuse("more than one T") };
        duration_part(part, all)?;
    }
    Ok(())
}

fn duration_part(mut part: &str, all: &str) -> FormatVerdict {
    let mut units = all;
    while !part.is_empty() {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return refuse("missing number");
        }
        part = &part[digits..];
        let Some(unit) = part.chars().next() else { return refuse("missing unit") };
        let Some((_, after)) = units.split_once(unit) else {
            let why = if all.contains(unit) { "out of order" } else { "" };
            let unit = quoted_char(unit);
            return Err(if why.is_empty() {
                format!("invalid unit {unit}")
            } else {
                format!("unit {unit} {why}")
            });
        };
        units = after;
        part = &part[unit.len_utf8()..];
    }
    Ok(())
}

fn period(text: &str) -> FormatVerdict {
    let Some((start, end)) = text.split_once('/') else { return refuse("missing slash") };
    let named = |what: &str, verdict: FormatVerdict| verdict.map_err(|e| format!("invalid {what}: {e}"));
    if start.starts_with('P') {
        named("start duration", duration(start))?;
        return named("end date-time", date_time(end));
    }
    named("start date-time", date_time(start))?;
    if end.starts_with('P') {
        return named("end duration", duration(end));
    }
    named("end date-time", date_time(end))
}

fn ipv4(text: &str) -> FormatVerdict {
    let groups: Vec<&str> = text.split('.').collect();
    if groups.len() != 4 {
        return refuse("expected four decimals");
    }
    for group in groups {
        if group.len() > 1 && group.starts_with('0') {
            return refuse("leading zeros");
        }
        let digits = group.strip_prefix(['+', '-']).unwrap_or(group);
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(format!("strconv.Atoi: parsing {}: invalid syntax", template::quoted(group)));
        }
        let Ok(number) = group.parse::<i64>() else {
            return Err(format!("strconv.Atoi: parsing {}: value out of range", template::quoted(group)));
        };
        if !(0..256).contains(&number) {
            return refuse("decimal must be between 0 and 255");
        }
    }
    Ok(())
}

fn ipv6(text: &str) -> FormatVerdict {
    if !text.contains(':') {
        return refuse("missing colon");
    }
    if let Some((address, zone)) = text.split_once('%')
        && !zone.is_empty()
        && address.parse::<IpAddr>().is_ok()
    {
        return refuse("zone id is not a part of ipv6 address");
    }
    match text.parse::<IpAddr>() {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("ParseAddr({}): unable to parse IP", template::quoted(text))),
    }
}

fn hostname(text: &str) -> FormatVerdict {
    let text = text.strip_suffix('.').unwrap_or(text);
    if text.len() > 253 {
        return refuse("more than 253 characters long");
    }
    for label in text.split('.') {
        if !(1..=63).contains(&label.len()) {
            return refuse("label must be 1 to 63 characters long");
        }
        if label.starts_with('-') {
            return refuse("label starts with hyphen");
        }
        if label.ends_with('-') {
            return refuse("label ends with hyphen");
        }
        if let Some(c) = label.chars().find(|c| !c.is_ascii_alphanumeric() && *c != '-') {
            return Err(format!("invalid character {}", quoted_char(c)));
        }
    }
    Ok(())
}

fn email(text: &str) -> FormatVerdict {
    if text.len() > 254 {
        return refuse("more than 255 characters long");
    }
    let Some((local, domain)) = text.rsplit_once('@') else { return refuse("missing @") };
    if local.len() > 64 {
        return refuse("local part more than 64 characters long");
    }
    if local.len() > 1 && local.starts_with('"') {
        if local.get(1..local.len() - 1).is_none_or(|inner| inner.contains(['\\', '"'])) {
            return refuse("backslash and quote are not allowed within quoted local part");
        }
    } else {
        if local.starts_with('.') {
            return refuse("starts with dot");
        }
        if local.ends_with('.') {
            return refuse("ends with dot");
        }
        if local.contains("..") {
            return refuse("consecutive dots");
        }
        let valid = |c: &char| c.is_ascii_alphanumeric() || ".!#$%&'*+-/=?^_`{|}~".contains(*c);
        if let Some(c) = local.chars().find(|c| !valid(c)) {
            return Err(format!("invalid character {}", quoted_char(c)));
        }
    }
    match domain.strip_prefix('[').and_then(|d| d.strip_suffix(']')) {
        Some(address) => match address.strip_prefix("IPv6:") {
            Some(address) => ipv6(address).map_err(|e| format!("invalid ipv6 address: {e}")),
            None => ipv4(address).map_err(|e| format!("invalid ipv4 address: {e}")),
        },
        None => hostname(domain).map_err(|e| format!("invalid domain: {e}")),
    }
}

fn date(text: &str) -> FormatVerdict {
    layout::parse("2006-01-02", text).map(drop).map_err(|e| e.to_string())
}

fn date_time(text: &str) -> FormatVerdict {
    if text.len() < 20 {
        return refuse("less than 20 characters long");
    }
    let (Some(day), Some(clock)) = (text.get(..10), text.get(11..)) else {
        return refuse("11th character must be t or T");
    };
    if !text[10..].starts_with(['t', 'T']) {
        return refuse("11th character must be t or T");
    }
    date(day).map_err(|e| format!("invalid date element: {e}"))?;
    time(clock).map_err(|e| format!("invalid time element: {e}"))
}

fn time(text: &str) -> FormatVerdict {
    if text.len() < 9 {
        return refuse("less than 9 characters long");
    }
    let bytes = text.as_bytes();
    if bytes[2] != b':' || bytes[5] != b':' {
        return refuse("missing colon in correct place");
    }
    let number = |part: &[u8]| std::str::from_utf8(part).ok()?.parse::<i32>().ok();
    let (hour, minute, second) = (number(&bytes[..2]), number(&bytes[3..5]), number(&bytes[6..8]));
    let (Some(hour), Some(minute), Some(second)) = (hour, minute, second) else {
        return refuse("invalid hour/min/sec");
    };
    if hour < 0 || minute < 0 || second < 0 {
        return refuse("non-positive hour/min/sec");
    }
    if hour > 23 || minute > 59 || second > 60 {
        return refuse("hour/min/sec out of range");
    }
    let mut rest = &bytes[8..];
    if let Some(fraction) = rest.strip_prefix(b".") {
        let digits = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
        if digits == 0 {
            return refuse("no digits in second fraction");
        }
        rest = &fraction[digits..];
    }
    let minutes_utc = match rest {
        b"z" | b"Z" => hour * 60 + minute,
        rest => (hour * 60 + minute - offset_minutes(rest)?).rem_euclid(24 * 60),
    };
    if second == 60 && minutes_utc != 23 * 60 + 59 {
        return refuse("invalid leap second");
    }
    Ok(())
}

fn offset_minutes(text: &[u8]) -> Result<i32, String> {
    let [sign, h1, h0, colon, m1, m0] = *text else {
        return Err("offset must be 6 characters long".to_owned());
    };
    let sign = match sign {
        b'+' => 1,
        b'-' => -1,
        _ => return Err("offset must begin with plus/minus".to_owned()),
    };
    if colon != b':' {
        return Err("missing colon in offset in correct place".to_owned());
    }
    let number = |digits: [u8; 2]| std::str::from_utf8(&digits).ok()?.parse::<i32>().ok();
    let (Some(hour), Some(minute)) = (number([h1, h0]), number([m1, m0])) else {
        return Err("invalid hour/min in offset".to_owned());
    };
    if hour < 0 || minute < 0 {
        return Err("non-positive hour/min in offset".to_owned());
    }
    if hour > 23 || minute > 59 {
        return Err("hour/min in offset out of range".to_owned());
    }
    Ok(sign * (hour * 60 + minute))
}

/// The scheme of a URL.
fn url(text: &str) -> Result<String, String> {
    let (scheme, host, name) = template::url_parts(text)?;
    if name.contains(':') {
        if !host.contains('[') || !host.contains(']') {
            return Err("ipv6 address not enclosed in brackets".to_owned());
        }
        ipv6(&name).map_err(|e| format!("invalid ipv6 address: {e}"))?;
    }
    Ok(scheme)
}

fn uri(text: &str) -> FormatVerdict {
    if url(text)?.is_empty() { refuse("relative url") } else { Ok(()) }
}

fn uri_reference(text: &str) -> FormatVerdict {
    if text.contains('\\') { refuse("contains \\") } else { url(text).map(drop) }
}

fn semver(text: &str) -> FormatVerdict {
    let odd = |part: &str| part.chars().find(|c| !c.is_ascii_alphanumeric() && *c != '-').map(quoted_char);
    let (core, build) = text.split_once('+').map_or((text, None), |(core, build)| (core, Some(build)));
    if build == Some("") {
        return refuse("build is empty");
    }
    for part in build.into_iter().flat_map(|build| build.split('.')) {
        if part.is_empty() {
            return refuse("build identifier is empty");
        }
        if let Some(c) = odd(part) {
            return Err(format!("invalid character {c} in build identifier"));
        }
    }
    let (core, pre) = core.split_once('-').map_or((core, None), |(core, pre)| (core, Some(pre)));
    for part in pre.into_iter().flat_map(|pre| pre.split('.')) {
        if part.is_empty() {
            return refuse("pre-release identifier is empty");
        }
        if let Some(c) = odd(part) {
            return Err(format!("invalid character {c} in pre-release identifier"));
        }
        if part.len() > 1 && part.starts_with('0') && part.bytes().all(|b| b.is_ascii_digit()) {
            return refuse("pre-release numeric identifier starts with zero");
        }
    }
    let numbers: Vec<&str> = core.split('.').collect();
    if numbers.len() != 3 {
        return refuse("versionCore must have 3 numbers separated by dot");
    }
    for (name, number) in ["major", "minor", "patch"].iter().zip(numbers) {
        if number.is_empty() {
            return Err(format!("{name} is empty"));
        }
        if number.len() > 1 && number.starts_with('0') {
            return Err(format!("{name} starts with zero"));
        }
        if !number.bytes().all(|b| b.is_ascii_digit()) {
            return Err(format!("{name} contains non-digit"));
        }
    }
    Ok(())
}
