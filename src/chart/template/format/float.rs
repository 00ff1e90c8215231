//! Floats as Go's `strconv` writes them.

/// Go's `strconv.FormatFloat` with verb and precision; without precision, the shortest text that reads back.
pub(super) fn format(value: f64, verb: char, precision: Option<usize>) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value < 0.0 { "-Inf" } else { "+Inf" }.to_owned();
    }
    match verb {
        'f' => match precision {
            Some(p) => with_zeros(format!("{value:.*}", p.min(DIGITS_MAX)), p),
            None => format!("{value}"),
        },
        'e' | 'E' => {
            let text = match precision {
                Some(p) => scientific(value, p),
                None => format!("{value:e}"),
            };
            let text = with_exponent(&text);
            if verb == 'E' { text.to_uppercase() } else { text }
        }
        'b' => binary(value),
        'x' => hex(value, precision),
        'X' => hex(value, precision).to_uppercase(),
        'G' => general(value, precision).to_uppercase(),
        _ => general(value, precision),
    }
}

/// Rust's formatter accepts precisions up to 65,535. Beyond this many digits, every float has only zeros.
const DIGITS_MAX: usize = 1_100;

/// Appends the zeros that Rust's formatter did not write.
fn with_zeros(text: String, precision: usize) -> String {
    text + &"0".repeat(precision.saturating_sub(DIGITS_MAX))
}

fn scientific(value: f64, precision: usize) -> String {
    let text = format!("{value:.*e}", precision.min(DIGITS_MAX));
    match text.split_once('e') {
        Some((mantissa, exponent)) if precision > DIGITS_MAX => {
            format!("{}e{exponent}", with_zeros(mantissa.to_owned(), precision))
        }
        _ => text,
    }
}

/// `1.5e7` to `1.5e+07`.
fn with_exponent(text: &str) -> String {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
    format!("{mantissa}e{sign}{digits:0>2}")
}

fn general(value: f64, precision: Option<usize>) -> String {
    let precision = precision.map(|p| p.max(1));
    let scientific = match precision {
        Some(p) => format!("{value:.*e}", (p - 1).min(DIGITS_MAX)),
        None => format!("{value:e}"),
    };
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let mantissa =
        if mantissa.contains('.') { mantissa.trim_end_matches('0').trim_end_matches('.') } else { mantissa };
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count();
    let mut limit = precision.unwrap_or(6);
    // Go: a precision beyond the digits counts as their number, unless the digits only partly fill the places before
    // the point.
    if precision.is_some() && limit > digits && i64::try_from(digits).is_ok_and(|d| d > i64::from(exponent)) {
        limit = digits;
    }
    if exponent < -4 || i64::try_from(limit).is_ok_and(|l| i64::from(exponent) >= l) {
        return with_exponent(&format!("{mantissa}e{exponent}"));
    }
    plain(mantissa, exponent)
}

/// Moves the point of `d.ddd` by `exponent` places.
fn plain(mantissa: &str, exponent: i32) -> String {
    let (sign, body) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let digits: String = body.chars().filter(|c| *c != '.').collect();
    let places = usize::try_from(exponent.unsigned_abs()).unwrap_or(0);
    if exponent < 0 {
        return format!("{sign}0.{}{digits}", "0".repeat(places - 1));
    }
    if digits.len() <= places + 1 {
        return format!("{sign}{digits}{}", "0".repeat(places + 1 - digits.len()));
    }
    format!("{sign}{}.{}", &digits[..=places], &digits[places + 1..])
}

/// The `#` flag: a decimal point always, and for `%g` the zeros up to the precision.
pub(super) fn with_point(text: &str, verb: char, precision: Option<usize>) -> String {
    let split =
        text.find(['e', 'E']).filter(|_| !matches!(verb, 'x' | 'X')).or_else(|| text.find(['p', 'P']));
    let (number, tail) = text.split_at(split.unwrap_or(text.len()));
    let mut out = number.to_owned();
    let wanted = if matches!(verb, 'v' | 'g' | 'G' | 'x') { precision.unwrap_or(6) } else { 0 };
    let significant = number.trim_start_matches(['-', '0', '.']).bytes().filter(|b| *b != b'.').count();
    let mut have = significant;
    if !number.contains('.') {
        if number.trim_start_matches('-') == "0" {
            have += 1;
        }
        out.push('.');
    }
    out.push_str(&"0".repeat(wanted.saturating_sub(have)));
    out + tail
}

fn parts(value: f64) -> (u64, i32) {
    let bits = value.to_bits();
    let exponent = i32::try_from((bits >> 52) & 0x7ff).unwrap_or(0);
    let mantissa = bits & ((1 << 52) - 1);
    if exponent == 0 { (mantissa, -1074) } else { (mantissa | 1 << 52, exponent - 1075) }
}

fn sign(value: f64) -> &'static str {
    if value.is_sign_negative() { "-" } else { "" }
}

fn binary(value: f64) -> String {
    let (mantissa, exponent) = parts(value);
    format!("{}{mantissa}p{exponent:+}", sign(value))
}

fn hex(value: f64, precision: Option<usize>) -> String {
    let (mut mantissa, mut exponent) = parts(value);
    if mantissa == 0 {
        let zeros = precision.filter(|p| *p > 0).map_or(String::new(), |p| format!(".{}", "0".repeat(p)));
        return format!("{}0x0{zeros}p+00", sign(value));
    }
    while mantissa >> 52 == 0 {
        mantissa <<= 1;
        exponent -= 1;
    }
    if let Some(p) = precision.filter(|p| *p < 13) {
        let drop = 4 * (13 - u32::try_from(p).unwrap_or(0));
        let (half, rest) = (1_u64 << (drop - 1), mantissa & ((1 << drop) - 1));
        mantissa >>= drop;
        if rest > half || (rest == half && mantissa & 1 == 1) {
            mantissa += 1;
        }
        mantissa <<= drop;
        if mantissa >> 53 != 0 {
            mantissa >>= 1;
            exponent += 1;
        }
    }
    let digits = format!("{:013x}", mantissa & ((1 << 52) - 1));
    let fraction = match precision {
        None => digits.trim_end_matches('0').to_owned(),
        Some(p) if p <= digits.len() => digits[..p].to_owned(),
        Some(p) => format!("{digits}{}", "0".repeat(p - digits.len())),
    };
    let point = if fraction.is_empty() { "" } else { "." };
    let exponent = exponent + 52;
    let mark = if exponent < 0 { '-' } else { '+' };
    format!("{}0x1{point}{fraction}p{mark}{:02}", sign(value), exponent.abs())
}
