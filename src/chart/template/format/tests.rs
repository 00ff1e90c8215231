use super::*;
use crate::chart::value::ListKind;

fn map(entries: &[(&str, Value)]) -> Value {
    Value::map(entries.iter().map(|(k, v)| (*k, v.clone())))
}

#[test]
fn values_print_as_in_go() {
    let nested = map(&[("b", Value::list(vec![Value::Nil, Value::str("x")])), ("a", Value::Float(1e6))]);
    for (value, want) in [
        (Value::Float(100_000.0), "100000"),
        (Value::Float(1e6), "1e+06"),
        (Value::Float(12_345_678_901.0), "1.2345678901e+10"),
        (Value::Float(0.00001), "1e-05"),
        (Value::Float(0.0001), "0.0001"),
        (Value::Float(-2.5), "-2.5"),
        (Value::Float(0.0), "0"),
        (Value::Float(f64::INFINITY), "+Inf"),
        (Value::Float(f64::NAN), "NaN"),
        (Value::Int64(-7), "-7"),
        (Value::Nil, "<nil>"),
        (Value::Bool(true), "true"),
        (nested, "map[a:1e+06 b:[<nil> x]]"),
        (Value::Bytes(Rc::from(&b"ab"[..])), "[97 98]"),
        (Value::strings(["a", "b c"]), "[a b c]"),
        (Value::List(List::nil(ListKind::Any)), "[]"),
    ] {
        assert_eq!(display(&value).unwrap().to_str(), want);
    }
}

#[test]
fn printf_as_in_go() {
    let (i, f, s) = (|n| Value::Int(n), |x| Value::Float(x), |t: &str| Value::str(t));
    let list = Value::list(vec![i(1), s("a")]);
    for (format, args, want) in [
        ("%d|%5d|%-5d|%05d|%+d|% d", vec![i(1), i(2), i(3), i(4), i(5), i(6)], "1|    2|3    |00004|+5| 6"),
        (
            "%05d|%.3d|%x|%X|%#x|%o|%#o|%O|%b",
            vec![i(-42), i(7), i(255), i(255), i(255), i(8), i(8), i(8), i(5)],
            "-0042|007|ff|FF|0xff|10|010|0o10|101",
        ),
        ("%c|%q|%U|%#U", vec![i(65), i(65), i(8364), i(8364)], "A|'A'|U+20AC|U+20AC '\u{20ac}'"),
        (
            "%s|%10s|%-10s|%.2s|%q|%x|% x|%#x",
            vec![s("abc"); 8],
            "abc|       abc|abc       |ab|\"abc\"|616263|61 62 63|0x616263",
        ),
        (
            "%v|%f|%.2f|%8.3f|%-8.1f|%08.2f|%+.1f|%e|%g|%G",
            vec![f(3.25); 10],
            "3.25|3.250000|3.25|   3.250|3.2     |00003.25|+3.2|3.250000e+00|3.25|3.25",
        ),
        (
            "%.3g|%g|%g|%.10g",
            vec![f(123_456.0), f(1e6), f(1e21), f(100_000.0)],
            "1.23e+05|1e+06|1e+21|100000",
        ),
        (
            "%t|%v|%T|%T|%T",
            vec![Value::Bool(true), Value::Nil, i(1), f(1.0), list.clone()],
            "true|<nil>|int|float64|[]interface {}",
        ),
        ("%d|%s|%d", vec![s("x"), i(1), f(1.0)], "%!d(string=x)|%!s(int=1)|%!d(float64=1)"),
        ("%s", vec![Value::Nil], "%!s(<nil>)"),
        ("%s|%d", vec![i(1)], "%!s(int=1)|%!d(MISSING)"),
        ("%d", vec![i(1), s("x"), Value::Nil], "1%!(EXTRA string=x, <nil>)"),
        ("%", vec![], "%!(NOVERB)"),
        ("100%%", vec![], "100%"),
        ("%*d|%-*d", vec![i(4), i(7), i(4), i(7)], "   7|7   "),
        ("%[2]d %[1]d", vec![i(1), i(2)], "2 1"),
        ("%[3]d", vec![i(1)], "%!d(BADINDEX)"),
        (
            "%v|%s|%d|%#v",
            vec![list.clone(), list.clone(), list.clone(), list],
            "[1 a]|[%!s(int=1) a]|[1 %!d(string=a)]|[]interface {}{1, \"a\"}",
        ),
        (
            "%#v|%#v|%#v",
            vec![s("a\n"), map(&[("a", Value::Nil)]), f(1.0)],
            "\"a\\n\"|map[string]interface {}{\"a\":interface {}(nil)}|1",
        ),
        ("%z", vec![i(1)], "%!z(int=1)"),
        ("%x|%b", vec![f(1.5), f(1.0)], "0x1.8p+00|4503599627370496p-52"),
        ("%5t|%6v|%-6v|", vec![Value::Bool(true), s("ä"), s("ä")], " true|     ä|ä     |"),
        ("%06s|%+q", vec![s("ab"), s("ä")], "0000ab|\"\\u00e4\""),
    ] {
        let got = sprintf(format.as_bytes(), &args).unwrap();
        assert_eq!(String::from_utf8_lossy(&got), want, "{format}");
    }
}

#[test]
fn print_puts_blanks_between_non_strings() {
    let args = [Value::Int(1), Value::Int(2), Value::str("a"), Value::Int(3), Value::Nil];
    assert_eq!(sprint(&args).unwrap().to_str(), "1 2a3 <nil>");
    assert_eq!(sprintln(&args).unwrap().to_str(), "1 2 a 3 <nil>\n");
}

#[test]
fn values_that_contain_themselves_are_refused() {
    let loop_map = Map::new();
    loop_map.insert("me", loop_map.clone());
    assert!(display(&Value::Map(loop_map.clone())).is_err());
    loop_map.entries_mut().clear();
    let mut twice = Value::list(vec![]);
    for _ in 0..60 {
        twice = Value::list(vec![twice.clone(), twice]);
    }
    assert!(display(&twice).is_err());
}
