//! Text forms: base64, times, percent signs, hashes. They share no code with the program, so that one mistake
//! cannot be in both.

use gardenlet::base::clock::Timestamp;

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Base64 with padding.
pub fn base64(data: &[u8]) -> String {
    let mut out = encode(data, STANDARD);
    while !out.len().is_multiple_of(4) {
        out.push('=');
    }
    out
}

/// Base64url without padding.
pub fn base64_url(data: &[u8]) -> String {
    encode(data, URL)
}

fn encode(data: &[u8], alphabet: &[u8; 64]) -> String {
    let mut out = String::new();
    for chunk in data.chunks(3) {
        let bits = chunk.iter().fold(0u32, |bits, b| bits << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for i in 0..=chunk.len() {
            out.push(char::from(alphabet[(bits >> (18 - 6 * i) & 63) as usize]));
        }
    }
    out
}

/// Reads both alphabets, with or without padding. Line breaks are skipped, as Go's decoder does.
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    let (mut bits, mut count, mut out) = (0u32, 0, Vec::new());
    for b in text.trim_end_matches('=').bytes().filter(|b| !matches!(b, b'\n' | b'\r')) {
        let value = STANDARD.iter().position(|c| *c == b).or_else(|| URL.iter().position(|c| *c == b))?;
        bits = bits << 6 | value as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count & 255) as u8);
        }
    }
    Some(out)
}

/// The contents of the first PEM block of the text.
pub fn from_pem(pem: &str) -> Option<Vec<u8>> {
    let body = pem.split_once("-----BEGIN ")?.1.split_once("-----")?.1.split_once("-----END ")?.0;
    from_base64(body.trim())
}

/// Year, month, day of a number of days since 1970 (proleptic Gregorian).
fn date(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day = shifted.rem_euclid(146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    (year + era * 400 + i64::from(month <= 2), month, day)
}

fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// `2025-01-02T03:04:05Z`, the way `metav1.Time` is written.
pub fn rfc3339(at: Timestamp) -> String {
    let seconds = at.unix();
    let (year, month, day) = date(seconds.div_euclid(86_400));
    let s = seconds.rem_euclid(86_400);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", s / 3_600, s / 60 % 60, s % 60)
}

/// `2025-01-02T03:04:05.678901Z`, the way `metav1.MicroTime` is written.
pub fn rfc3339_micro(at: Timestamp) -> String {
    let whole = rfc3339(at);
    format!("{}.{:06}Z", whole.trim_end_matches('Z'), at.subsec_nanos() / 1_000)
}

/// Reads RFC 3339 with any number of decimals and a numeric or `Z` offset.
pub fn from_rfc3339(text: &str) -> Option<Timestamp> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<i64>().ok();
    let day = days(number(0..4)?, number(5..7)?, number(8..10)?);
    let seconds = day * 86_400 + number(11..13)? * 3_600 + number(14..16)? * 60 + number(17..19)?;
    let rest = text.get(19..)?;
    let digits =
        rest.strip_prefix('.').map_or("", |r| &r[..r.bytes().take_while(u8::is_ascii_digit).count()]);
    let zone = rest.get(if digits.is_empty() { 0 } else { digits.len() + 1 }..)?;
    let nanos: i64 = format!("{digits:0<9}").get(..9)?.parse().ok()?;
    let offset = match zone.bytes().next()? {
        b'Z' | b'z' => 0,
        sign => {
            let minutes = zone.get(1..3)?.parse::<i64>().ok()? * 60 + zone.get(4..6)?.parse::<i64>().ok()?;
            if sign == b'-' { -minutes * 60 } else { minutes * 60 }
        }
    };
    Some(Timestamp::from_unix(seconds - offset).offset(nanos))
}

/// `Thu, 02 Jan 2025 03:04:05 GMT`, for the `Date` header.
pub fn http_date(at: Timestamp) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let days = at.unix().div_euclid(86_400);
    let (year, month, day) = date(days);
    let s = at.unix().rem_euclid(86_400);
    let (weekday, month) = (DAYS[days.rem_euclid(7) as usize], MONTHS[month as usize - 1]);
    format!("{weekday}, {day:02} {month} {year:04} {:02}:{:02}:{:02} GMT", s / 3_600, s / 60 % 60, s % 60)
}

/// Percent-decodes a path segment or, with `plus`, a query component.
pub fn unescape(text: &str, plus: bool) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut i) = (Vec::with_capacity(bytes.len()), 0);
    while i < bytes.len() {
        let hex = bytes.get(i + 1..i + 3).and_then(|h| std::str::from_utf8(h).ok());
        match (bytes[i], hex.and_then(|h| u8::from_str_radix(h, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                i += 3;
                continue;
            }
            (b'+', _) if plus => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        i += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Lower-case hex of the SHA-256 of the data.
pub fn sha256_hex(data: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, data);
    digest.as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn texts_survive_the_way_there_and_back() {
    for data in ["", "f", "fo", "foo", "foob", "fooba", "foobar"] {
        assert_eq!(from_base64(&base64(data.as_bytes())).unwrap(), data.as_bytes());
        assert_eq!(from_base64(&base64_url(data.as_bytes())).unwrap(), data.as_bytes());
    }
    assert_eq!(base64(b"fooba"), "Zm9vYmE=");
    let at = Timestamp::from_unix(1_735_787_045);
    assert_eq!(rfc3339(at), "2025-01-02T03:04:05Z");
    assert_eq!(http_date(at), "Thu, 02 Jan 2025 03:04:05 GMT");
    assert_eq!(from_rfc3339("2025-01-02T05:04:05+02:00"), Some(at));
    assert_eq!(from_rfc3339("2024-02-29T23:59:60.5Z").unwrap().subsec_nanos(), 500_000_000);
    assert_eq!(rfc3339_micro(at.offset(678_901_999)), "2025-01-02T03:04:05.678901Z");
    assert_eq!(unescape("a%2Fb+c%zz", true), "a/b c%zz");
}
