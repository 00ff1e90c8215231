use super::super::tests::check_all;

// The output of the real engine for each template, on the values of `tests::values`.

#[test]
fn arithmetic() {
    check_all(&[
        ("{{ add 1 2 3 }}", Ok("6")),
        ("{{ add }}", Ok("0")),
        ("{{ add1 2 }}", Ok("3")),
        (r#"{{ add "3" 2.7 true nil }}"#, Ok("6")),
        ("{{ sub 5 3 }}", Ok("2")),
        ("{{ mul 2 3 4 }}", Ok("24")),
        ("{{ div 7 2 }}", Ok("3")),
        ("{{ div -7 2 }}", Ok("-3")),
        ("{{ mod -7 3 }}", Ok("-1")),
        ("{{ mod 7 -3 }}", Ok("1")),
        ("{{ max 1 5 3 }}", Ok("5")),
        ("{{ min 4 2 }}", Ok("2")),
        ("{{ biggest 1 9 }}", Ok("9")),
        (
            "{{ div 1 0 }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <div 1 0>: error calling div: runtime error: integer divide by zero"#,
            ),
        ),
        (
            "{{ mod 1 0 }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <mod 1 0>: error calling mod: runtime error: integer divide by zero"#,
            ),
        ),
        ("{{ addf 1.1 2.2 }}", Ok("3.3")),
        ("{{ add1f 1.5 }}", Ok("2.5")),
        ("{{ subf 3 1.1 }}", Ok("1.9")),
        ("{{ mulf 1.1 1.1 }}", Ok("1.21")),
        ("{{ divf 10 4 }}", Ok("2.5")),
        ("{{ divf 1 3 }}", Ok("0.3333333333333333")),
        ("{{ addf }}", Ok("0")),
        ("{{ addf 1e300 1 }}", Ok("1e+300")),
        ("{{ mulf 1e200 1e200 }}", Ok("+Inf")),
        ("{{ divf -1 3 }}", Ok("-0.3333333333333333")),
        ("{{ divf 2 3 }}", Ok("0.6666666666666667")),
        (
            "{{ divf 1 0 }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <divf 1 0>: error calling divf: decimal division by 0"#,
            ),
        ),
        (r#"{{ maxf 1.5 2 "3.5" }}"#, Ok("3.5")),
        ("{{ minf 1 0.5 }}", Ok("0.5")),
        ("{{ maxf (ceil -0.1) nil }} {{ maxf nil (ceil -0.1) }} {{ maxf (ceil -0.1) }}", Ok("0 0 -0")),
        ("{{ minf (ceil -0.1) nil }} {{ minf nil (ceil -0.1) }} {{ minf nil }}", Ok("-0 -0 0")),
        (
            r#"{{ maxf "nan" 1 }} {{ maxf "nan" "inf" }} {{ minf 1 "nan" }} {{ minf "-inf" "nan" }}"#,
            Ok("NaN +Inf NaN -Inf"),
        ),
        ("{{ floor 2.7 }}", Ok("2")),
        ("{{ floor -2.7 }}", Ok("-3")),
        ("{{ ceil 2.1 }}", Ok("3")),
        ("{{ ceil -2.1 }}", Ok("-2")),
        ("{{ round 2.5 0 }}", Ok("3")),
        ("{{ round -2.5 0 }}", Ok("-3")),
        ("{{ round 2.345 2 }}", Ok("2.35")),
        ("{{ round 123.4567 -1 }}", Ok("120")),
        ("{{ round 2.3 0 0.2 }}", Ok("3")),
        ("{{ round -2.3 0 }}", Ok("-3")),
        ("{{ until 3 }}", Ok("[0 1 2]")),
        ("{{ until -3 }}", Ok("[0 -1 -2]")),
        ("{{ until 0 }}", Ok("[]")),
        ("{{ untilStep 0 10 3 }}", Ok("[0 3 6 9]")),
        ("{{ untilStep 5 0 -2 }}", Ok("[5 3 1]")),
        (
            "{{ untilStep 3 15 9223372036854775807 }}",
            Ok("[3 -9223372036854775806 1 -9223372036854775808 -1]"),
        ),
        ("{{ seq -1 9223372036854775807 }}", Ok("")),
        ("{{ untilStep 0 5 0 }}", Ok("[]")),
        ("{{ untilStep 0 5 -1 }}", Ok("[]")),
        ("{{ untilStep 5 0 1 }}", Ok("[]")),
        ("{{ seq 3 }}", Ok("1 2 3")),
        ("{{ seq -3 }}", Ok("1 0 -1 -2 -3")),
        ("{{ seq 0 }}", Ok("1 0")),
        ("{{ seq 2 5 }}", Ok("2 3 4 5")),
        ("{{ seq 5 2 }}", Ok("5 4 3 2")),
        ("{{ seq 0 2 10 }}", Ok("0 2 4 6 8 10")),
        ("{{ seq 0 -2 -5 }}", Ok("0 -2 -4")),
        ("{{ seq 5 1 0 }}", Ok("")),
        ("{{ seq }}", Ok("")),
        ("{{ seq 1 2 3 4 }}", Ok("")),
        ("{{ seq 1 0 5 }}", Ok("")),
    ]);
}

#[test]
fn builtin() {
    check_all(&[
        ("{{ eq (rest (list)) nil }}", Ok("true")),
        (r#"{{ env "x" }}"#, Err(r#"parse error at (t/templates/t.yaml:1): function "env" not defined"#)),
        (r#"{{ printf "%s-%d" "a" 1 }}"#, Ok("a-1")),
        (
            r#"{{ printf "%v %q %5.2f %t %x %T" .Values.list "x" 3.14159 true 255 .Values.map }}"#,
            Ok(r#"[b a c] "x"  3.14 true ff map[string]interface {}"#),
        ),
        (r#"{{ printf "%d %s %d" .Values.n 1 "x" }}"#, Ok("%!d(float64=3) %!s(int=1) %!d(string=x)")),
        (r#"{{ printf "%s" nil }}"#, Ok("%!s(<nil>)")),
        (r#"{{ printf "%s" .Values.nil }}"#, Ok("%!s(<nil>)")),
        (r#"{{ printf "%d%%" 5 }}"#, Ok("5%")),
        (r#"{{ printf "%!" }}"#, Ok("%!!(MISSING)")),
        (r#"{{ printf "%z" 1 }}"#, Ok("%!z(int=1)")),
        (r#"{{ printf "a" 1 2 }}"#, Ok("a%!(EXTRA int=1, int=2)")),
        (r#"{{ printf "%s %s" "a" }}"#, Ok("a %!s(MISSING)")),
        (r#"{{ printf "%[2]s %[1]s" "a" "b" }}"#, Ok("b a")),
        (r#"{{ printf "%*d" 5 1 }}"#, Ok("    1")),
        (r#"{{ printf "%.3s|%-5s|%5s" "abcdef" "a" "b" }}"#, Ok("abc|a    |    b")),
        (
            r#"{{ printf "%6.2f|%-8.3f|%+d|%05d|%x|%X|%o|%b|%c|%U|%e|%g" 3.14159 2.5 3 42 "hi" 255 8 5 65 65 12345.678 1e20 }}"#,
            Ok("  3.14|2.500   |+3|00042|6869|FF|10|101|A|U+0041|1.234568e+04|1e+20"),
        ),
        (r#"{{ printf "%q" 65 }}"#, Ok("'A'")),
        (
            r#"{{ printf "%#v" .Values.mixed }}"#,
            Ok(r#"[]interface {}{1, interface {}(nil), "x", true, map[string]interface {}{"k":1}}"#),
        ),
        (r#"{{ printf "%v" nil }}"#, Ok("<nil>")),
        (r#"{{ printf "%t" "x" }}"#, Ok("%!t(string=x)")),
        (r#"{{ printf "%s" (list "a" 1) }}"#, Ok("[a %!s(int=1)]")),
        (r#"{{ printf "%d" (list 1 "a") }}"#, Ok("[1 %!d(string=a)]")),
        (r#"{{ printf "%5v|%-5v|" true 1 }}"#, Ok(" true|1    |")),
        (r#"{{ printf "%+v" .Values.map }}"#, Ok("map[x:1 y:map[z:deep]]")),
        (r#"{{ printf "%s" (dict "a" 1) }}"#, Ok("map[a:%!s(int=1)]")),
        (r#"{{ printf "%x" (list 10 11) }}"#, Ok("[a b]")),
        (r#"{{ printf "%08.3f" -3.14159 }}"#, Ok("-003.142")),
        (r#"{{ printf "% d" 5 }}"#, Ok(" 5")),
        (r#"{{ printf "%+.2e" 12345.678 }}"#, Ok("+1.23e+04")),
        (r#"{{ printf "%s" (semver "1.2.3") }}"#, Ok("1.2.3")),
        (r#"{{ printf "%d" 3.0 }}"#, Ok("%!d(float64=3)")),
        (r#"{{ printf "%.0f" 2.5 }}"#, Ok("2")),
        (r#"{{ printf "%f" 1 }}"#, Ok("%!f(int=1)")),
        (r#"{{ printf "%s" true }}"#, Ok("%!s(bool=true)")),
        (r#"{{ printf "%v" 1e6 }}"#, Ok("1e+06")),
        (r#"{{ printf "%.2f" "x" }}"#, Ok("%!f(string=x)")),
        (r#"{{ printf "%[5]d" 1 }}"#, Ok("%!d(BADINDEX)")),
        (r#"{{ printf "%-010d|" 5 }}"#, Ok("5         |")),
        (r#"{{ printf "%w" 1 }}"#, Ok("%!w(int=1)")),
        (
            r#"{{ printf "%g %G %e %E %f %F %b %x %X" 1.5 1e10 1.5 1.5 1.5 1.5 1.5 1.5 1.5 }}"#,
            Ok(
                "1.5 1E+10 1.500000e+00 1.500000E+00 1.500000 1.500000 6755399441055744p-52 0x1.8p+00 0X1.8P+00",
            ),
        ),
        (
            r#"{{ printf "%.3g %.10g %#g %#.3g %g" 1234.5678 1234.5678 1.0 1.0 100000.0 }}"#,
            Ok("1.23e+03 1234.5678 1.00000 1.00 100000"),
        ),
        (r#"{{ printf "%6.3v|%v" 3.14159 0.000001 }}"#, Ok("  3.14|1e-06")),
        (r#"{{ printf "%t" nil }}"#, Ok("%!t(<nil>)")),
        (
            r#"{{ printf "%10q|%-10q|%#q|%+q" "a" "b" "c`" "ä" }}"#,
            Ok(r#"       "a"|"b"       |"c`"|"\u00e4""#),
        ),
        (
            r#"{{ printf "%x % x %#x %X" "hello" "hello" "hello" "hi" }}"#,
            Ok("68656c6c6f 68 65 6c 6c 6f 0x68656c6c6f 6869"),
        ),
        (r#"{{ printf "%c%c" 0x4E16 -1 }}"#, Ok("世�")),
        (r#"{{ printf "%U %#U" 0x4E16 0x4E16 }}"#, Ok("U+4E16 U+4E16 '世'")),
        (r#"{{ printf "%o %#o %O %#b" 8 8 8 5 }}"#, Ok("10 010 0o10 0b101")),
        (r#"{{ printf "%+q" 0x4E16 }}"#, Ok(r#"'\u4e16'"#)),
        (r#"{{ printf "%08b" 5 }}"#, Ok("00000101")),
        (r#"{{ printf "%-8d|%+8d|% 8d" 5 5 5 }}"#, Ok("5       |      +5|       5")),
        (r#"{{ printf "%.5d|%8.5d|%-8.5d|" 42 42 42 }}"#, Ok("00042|   00042|00042   |")),
        (r#"{{ printf "%.0d|" 0 }}"#, Ok("|")),
        (r#"{{ printf "%3c|%-3c|" 65 65 }}"#, Ok("  A|A  |")),
        (r#"{{ printf "%T %T" nil (list) }}"#, Ok("<nil> []interface {}")),
        (r#"{{ printf "%p" 1 }}"#, Ok("%!p(int=1)")),
        (r#"{{ printf "%v" (b64dec "/w==") | len }}"#, Ok("1")),
        (r#"{{ printf "%q" (b64dec "/w==") }}"#, Ok(r#""\xff""#)),
        (r#"{{ printf "%e" 0.0 }}"#, Ok("0.000000e+00")),
        (r#"{{ printf "%g" -0.0 }}"#, Ok("-0")),
        (r#"{{ printf "%c %d %v" (index "abc" 0) (index "abc" 1) (index "abc" 2) }}"#, Ok("a 98 99")),
        (r#"{{ lt (index "abc" 0) 98 }}"#, Ok("true")),
        (
            r#"{{ printf "%s|%v" (toDate "2006-01-02" "2021-03-04") (toDate "2006-01-02" "2021-03-04") }}"#,
            Ok("2021-03-04 00:00:00 +0000 UTC|2021-03-04 00:00:00 +0000 UTC"),
        ),
        (r#"{{ print (toDate "2006-01-02" "2021-03-04") }}"#, Ok("2021-03-04 00:00:00 +0000 UTC")),
        (r#"{{ eq (toDate "2006-01-02" "2021-03-04") (toDate "2006-01-02" "2021-03-04") }}"#, Ok("true")),
        (r#"{{ printf "%v" (semver "1.2.3") }}"#, Ok("1.2.3")),
        (
            r#"{{ printf "%6.2f%%|%+v|%T|%5t|%-5t|%q" 99.5 (list 1 nil) .Values true false (list "a" "b") }}"#,
            Ok(r#" 99.50%|[1 <nil>]|common.Values| true|false|["a" "b"]"#),
        ),
        (r#"{{ printf "%s" .Values.nums }}"#, Ok("[%!s(float64=3) %!s(float64=1) %!s(float64=2.5)]")),
        (r#"{{ printf "%d" .Values.nums }}"#, Ok("[%!d(float64=3) %!d(float64=1) %!d(float64=2.5)]")),
        (r#"{{ printf "%.1f" .Values.nums }}"#, Ok("[3.0 1.0 2.5]")),
        (r#"{{ printf "%x" "é" }}"#, Ok("c3a9")),
        (r#"{{ printf "%q" 'x' }}"#, Ok("'x'")),
        (r#"{{ printf "%#x %#o %#q %#U" 255 8 "a" 9731 }}"#, Ok("0xff 010 `a` U+2603 '☃'")),
        (r#"{{ printf "%v %s" (dict "a" nil) (dict "a" nil) }}"#, Ok("map[a:<nil>] map[a:<nil>]")),
        (r#"{{ printf "%!d" 1 }}"#, Ok("%!!(int=1)d")),
        (r#"{{ printf "%-+5d|%+-5d|" 3 3 }}"#, Ok("+3   |+3   |")),
        (r#"{{ printf "%05s|%-05d|%05.1f|%+05d|%x" "a" 3 2.5 3 -1 }}"#, Ok("0000a|3    |002.5|+0003|-1")),
        (r#"{{ printf "%e %E %.0e" 123456.789 0.00012 5.5 }}"#, Ok("1.234568e+05 1.200000E-04 6e+00")),
        (r#"{{ printf "%g %g %g" 1e-5 123456789.0 0.1 }}"#, Ok("1e-05 1.23456789e+08 0.1")),
        (r#"{{ printf "%[1]d %[1]x %d" 10 11 }}"#, Ok("10 a 11")),
        (r#"{{ printf "%.*f" 2 3.14159 }}"#, Ok("3.14")),
        (r#"{{ printf "%[2]*[1]d" 5 8 }}"#, Ok("       5")),
        (r#"{{ printf "%d %d" 1 }}"#, Ok("1 %!d(MISSING)")),
        (r#"{{ printf "%" }}"#, Ok("%!(NOVERB)")),
        (r#"{{ printf "%5" }}"#, Ok("%!(NOVERB)")),
        (r#"{{ printf "%.d" 5 }}"#, Ok("5")),
        (r#"{{ printf "%.f" 2.5 }}"#, Ok("2")),
        (r#"{{ printf "%c" 128512 }}"#, Ok("😀")),
        (r#"{{ printf "%s" "" }}"#, Ok("")),
        (r#"{{ printf "%5s|%5s" "日本" "é" }}"#, Ok("   日本|    é")),
        (r#"{{ printf "%.2s" "日本語" }}"#, Ok("日本")),
        (r#"{{ printf "%t" true }}"#, Ok("true")),
        (r#"{{ printf "%v" true }}"#, Ok("true")),
        (r#"{{ printf "%08.3f" 3.14159 }}"#, Ok("0003.142")),
        (r#"{{ printf "%+.3e" 1234.5678 }}"#, Ok("+1.235e+03")),
        (r#"{{ printf "%6d|%-6d|%06d" -42 -42 -42 }}"#, Ok("   -42|-42   |-00042")),
        (r#"{{ printf "%x" -255 }}"#, Ok("-ff")),
        (r#"{{ printf "%b" -5 }}"#, Ok("-101")),
        (r#"{{ printf "%o" -8 }}"#, Ok("-10")),
        (r#"{{ printf "%U" -1 }}"#, Ok("U+FFFFFFFFFFFFFFFF")),
        (r#"{{ printf "%c" -1 }}"#, Ok("�")),
        (r#"{{ printf "%s" .Values.uni }}"#, Ok("Äpfel ß 日本")),
        (r#"{{ printf "%q" .Values.multi }}"#, Ok(r#""line1\nline2\n""#)),
        (r#"{{ printf "%v" .Values.f }}"#, Ok("2.5")),
        ("{{- /* comment */ -}}", Ok("")),
        ("{{- end -}}", Err("parse error at (t/templates/t.yaml:1): unexpected {{end}}")),
    ]);
}

#[test]
fn cast() {
    check_all(&[
        ("{{ typeOf (add 1) }}", Ok("int64")),
        ("{{ typeOf (addf 1) }}", Ok("float64")),
        (r#"{{ int "012" }}"#, Ok("10")),
        (r#"{{ int "0x1f" }}"#, Ok("31")),
        (r#"{{ int "1.5" }}"#, Ok("0")),
        (r#"{{ int "1.0" }}"#, Ok("1")),
        (r#"{{ int "1e3" }}"#, Ok("0")),
        ("{{ int nil }}", Ok("0")),
        ("{{ int true }}", Ok("1")),
        ("{{ int 3.99 }}", Ok("3")),
        ("{{ int -3.99 }}", Ok("-3")),
        (r#"{{ int "abc" }}"#, Ok("0")),
        (r#"{{ int " 5" }}"#, Ok("0")),
        ("{{ int (list 1) }}", Ok("0")),
        ("{{ int 1e30 }}", Ok("-9223372036854775808")),
        (r#"{{ int64 "7" }}"#, Ok("7")),
        ("{{ typeOf (int64 1) }}", Ok("int64")),
        (r#"{{ int "" }}"#, Ok("0")),
        (r#"{{ int "-0b11" }}"#, Ok("-3")),
        (r#"{{ int "1_000" }}"#, Ok("1000")),
        (r#"{{ int "100.00" }}"#, Ok("100")),
        (r#"{{ int "0" }}"#, Ok("0")),
        (r#"{{ int "0.0" }}"#, Ok("0")),
        (r#"{{ int "08" }}"#, Ok("0")),
        (r#"{{ atoi "012" }}"#, Ok("12")),
        (r#"{{ atoi "abc" }}"#, Ok("0")),
        (r#"{{ atoi "-5" }}"#, Ok("-5")),
        (r#"{{ atoi "99999999999999999999" }}"#, Ok("9223372036854775807")),
        (r#"{{ atoi "+3" }}"#, Ok("3")),
        (r#"{{ atoi "1_0" }}"#, Ok("0")),
        (r#"{{ float64 "1.5" }}"#, Ok("1.5")),
        (r#"{{ float64 "x" }}"#, Ok("0")),
        ("{{ float64 3 }}", Ok("3")),
        ("{{ float64 true }}", Ok("1")),
        (r#"{{ float64 "1e3" }}"#, Ok("1000")),
        (r#"{{ float64 "0x10" }}"#, Ok("0")),
        (r#"{{ float64 "inf" }}"#, Ok("+Inf")),
        (r#"{{ float64 "0x1p-2" }}"#, Ok("0.25")),
        ("{{ float64 nil }}", Ok("0")),
        (r#"{{ toDecimal "777" }}"#, Ok("511")),
        ("{{ toDecimal 644 }}", Ok("420")),
        (r#"{{ toDecimal "8" }}"#, Ok("0")),
        (r#"{{ toDecimal "-17" }}"#, Ok("-15")),
        ("{{ toDecimal 1.5 }}", Ok("0")),
        ("{{ toStrings .Values.mixed }}", Ok("[1 x true map[k:1]]")),
        ("{{ toString .Values.big }}", Ok("1.234567e+06")),
        ("{{ toString nil }}", Ok("<nil>")),
        ("{{ toString .Values.map }}", Ok("map[x:1 y:map[z:deep]]")),
        (r#"{{ typeOf (set .Values "q" 1) }}"#, Ok("map[string]interface {}")),
        (r#"{{ typeOf (pick .Values "s") }}"#, Ok("map[string]interface {}")),
        (r#"{{ typeIs "string" "a" }}"#, Ok("true")),
        (r#"{{ typeIs "int" 1 }}"#, Ok("true")),
        (r#"{{ typeIsLike "semver.Version" (semver "1.2.3") }}"#, Ok("true")),
        (r#"{{ kindIs "map" .Values }}"#, Ok("true")),
        (r#"{{ kindIs "slice" .Values.list }}"#, Ok("true")),
        (r#"{{ kindIs "invalid" nil }}"#, Ok("true")),
        (r#"{{ typeOf (fromJson "{\"a\":1}").a }}"#, Ok("float64")),
        (r#"{{ int (index "abc" 0) }}"#, Ok("97")),
        (r#"{{ toString (toDate "2006-01-02" "2021-03-04") }}"#, Ok("2021-03-04 00:00:00 +0000 UTC")),
        (r#"{{ typeOf (toDate "2006-01-02" "2021-03-04") }}"#, Ok("time.Time")),
        (r#"{{ typeOf (fromToml "a = 1").a }}"#, Ok("int64")),
        (r#"{{ typeOf (fromToml "a = 1.5").a }}"#, Ok("float64")),
        (r#"{{ typeOf (fromToml "a = [1]").a }}"#, Ok("[]interface {}")),
        (r#"{{ typeOf (fromToml "a = {}").a }}"#, Ok("map[string]interface {}")),
        (r#"{{ typeOf (fromToml "[[a]]\nb=1").a }}|"#, Ok("[]map[string]interface {}|")),
    ]);
}

#[test]
fn crypto() {
    check_all(&[
        (r#"{{ sha1sum "a" }}"#, Ok("86f7e437faa5a7fce15d1ddcb9eaeaea377667b8")),
        (r#"{{ sha256sum "a" }}"#, Ok("ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb")),
        (r#"{{ adler32sum "hello" }}"#, Ok("103547413")),
        (r#"{{ sha256sum "" }}"#, Ok("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")),
    ]);
}

#[test]
fn dates() {
    check_all(&[
        (r#"{{ date "2006-01-02 15:04:05" 0 }}"#, Ok("1970-01-01 00:00:00")),
        (
            r#"{{ date "Mon Jan _2 15:04:05 2006 MST -0700" (int64 1700000000) }}"#,
            Ok("Tue Nov 14 22:13:20 2023 UTC +0000"),
        ),
        ("{{ htmlDate 0 }}", Ok("1970-01-01")),
        (r#"{{ dateInZone "15:04" 0 "UTC" }}"#, Ok("00:00")),
        (r#"{{ dateInZone "2006" 90000000000 "No/Where" }}"#, Ok("4821")),
        (r#"{{ dateInZone "15:04" 0 "Nope/Zone" }}"#, Ok("00:00")),
        (r#"{{ unixEpoch (toDate "2006-01-02" "2020-01-02") }}"#, Ok("1577923200")),
        (r#"{{ toDate "2006-01-02" "2020-01-02" }}"#, Ok("2020-01-02 00:00:00 +0000 UTC")),
        (r#"{{ toDate "2006-01-02" "bad" }}"#, Ok("0001-01-01 00:00:00 +0000 UTC")),
        (r#"{{ date "2006" (toDate "2006-01-02" "bad") }}"#, Ok("0001")),
        (r#"{{ dateModify "24h" (toDate "2006-01-02" "2020-01-31") }}"#, Ok("2020-02-01 00:00:00 +0000 UTC")),
        (r#"{{ dateModify "bad" (toDate "2006-01-02" "2020-01-31") }}"#, Ok("2020-01-31 00:00:00 +0000 UTC")),
        (r#"{{ (toDate "2006-01-02" "2020-01-31").Year }}"#, Ok("2020")),
        (r#"{{ (toDate "2006-01-02" "2020-01-31").Unix }}"#, Ok("1580428800")),
        (r#"{{ (toDate "2006-01-02" "2020-01-31").Format "Jan" }}"#, Ok("Jan")),
        (r#"{{ (toDate "2006-01-02" "2020-01-31").Month }}"#, Ok("January")),
        (r#"{{ (toDate "2006-01-02" "2020-01-31").Weekday }}"#, Ok("Friday")),
        (r#"{{ (toDate "2006-01-02" "2020-01-31").AddDate 0 1 0 }}"#, Ok("2020-03-02 00:00:00 +0000 UTC")),
        (r#"{{ unixEpoch (toDate "2006" "x") }}"#, Ok("-62135596800")),
        (
            r#"{{ mustDateModify "bad" now }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <mustDateModify "bad" now>: error calling mustDateModify: time: invalid duration "bad""#,
            ),
        ),
        (
            r#"{{ dateModify "1h" 3 }}"#,
            Err(
                "t/templates/t.yaml:1:19\n  executing \"t/templates/t.yaml\" at <3>:\n    can't handle 3 for arg of type time.Time",
            ),
        ),
        (
            "{{ unixEpoch 3 }}",
            Err(
                "t/templates/t.yaml:1:13\n  executing \"t/templates/t.yaml\" at <3>:\n    can't handle 3 for arg of type time.Time",
            ),
        ),
        ("{{ duration 90 }}", Ok("0s")),
        (r#"{{ duration "90" }}"#, Ok("1m30s")),
        ("{{ duration (int64 3661) }}", Ok("1h1m1s")),
        (r#"{{ durationRound "2h30m" }}"#, Ok("2h")),
        (r#"{{ durationRound "400h" }}"#, Ok("16d")),
        ("{{ durationRound (int64 1500000000) }}", Ok("1s")),
        (r#"{{ durationRound "1s" }}"#, Ok("0s")),
        (r#"{{ durationRound "1.5s" }}"#, Ok("1s")),
        ("{{ durationRound 3 }}", Ok("0s")),
        (r#"{{ durationRound "9000h" }}"#, Ok("1y")),
        (r#"{{ duration "x" }}"#, Ok("0s")),
        (r#"{{ duration "-5" }}"#, Ok("-5s")),
        (
            "{{ mustToDate }}",
            Err(
                "t/templates/t.yaml:1:3\n  executing \"t/templates/t.yaml\" at <mustToDate>:\n    wrong number of args for mustToDate: want 2 got 0",
            ),
        ),
        (r#"{{ date "Monday, 02-Jan-06 15:04:05 MST" 1e3 | len | lt 5 }}"#, Ok("true")),
        (r#"{{ date "2006-01-02T15:04:05.000Z" 1700000000 }}"#, Ok("2023-11-14T22:13:20.000Z")),
        (r#"{{ date "Jan 2, 2006 at 3:04pm (MST)" 1700000000 }}"#, Ok("Nov 14, 2023 at 10:13pm (UTC)")),
        (r#"{{ date "20060102150405" 1700000000 }}"#, Ok("20231114221320")),
        (
            r#"{{ date "2 Jan 06 03:04 PM .000000 -07:00 Z07 __2 002" 1700000000 }}"#,
            Ok("14 Nov 23 10:13 PM .000000 +00:00 Z 318 318"),
        ),
        (r#"{{ date "" 0 }}"#, Ok("")),
        (
            r#"{{ toDate "2006-01-02T15:04:05Z07:00" "2021-03-04T05:06:07+02:00" }}"#,
            Ok("2021-03-04 05:06:07 +0200 +0200"),
        ),
        (
            r#"{{ toDate "2006-01-02T15:04:05Z07:00" "2021-03-04T05:06:07+02:00" | unixEpoch }}"#,
            Ok("1614827167"),
        ),
        (r#"{{ toDate "Jan 2 2006" "Feb 30 2020" }}"#, Ok("0001-01-01 00:00:00 +0000 UTC")),
        (
            r#"{{ toDate "2006-01-02 15:04:05.000" "2021-03-04 05:06:07.123" }}"#,
            Ok("2021-03-04 05:06:07.123 +0000 UTC"),
        ),
        (r#"{{ (toDate "2006-01-02" "2021-03-04").YearDay }}"#, Ok("63")),
        (r#"{{ (toDate "2006-01-02" "2021-03-04").Before (toDate "2006-01-02" "2021-03-05") }}"#, Ok("true")),
    ]);
}

#[test]
fn defaults() {
    check_all(&[
        (r#"{{ default "d" "" }}"#, Ok("d")),
        (r#"{{ default "d" "x" }}"#, Ok("x")),
        (r#"{{ default "d" }}"#, Ok("d")),
        (r#"{{ default "d" 0 }}"#, Ok("d")),
        (r#"{{ default "d" false }}"#, Ok("d")),
        (r#"{{ default "d" .Values.emap }}"#, Ok("d")),
        (r#"{{ default "d" .Values.nil }}"#, Ok("d")),
        ("{{ empty .Values.elist }}", Ok("true")),
        ("{{ empty 0 }}", Ok("true")),
        (r#"{{ empty "a" }}"#, Ok("false")),
        (r#"{{ coalesce 0 "" nil "x" }}"#, Ok("x")),
        ("{{ coalesce }}", Ok("")),
        (r#"{{ all 1 "a" }}"#, Ok("true")),
        (r#"{{ all 1 "" }}"#, Ok("false")),
        ("{{ all }}", Ok("true")),
        ("{{ any 0 1 }}", Ok("true")),
        ("{{ any }}", Ok("false")),
        (r#"{{ ternary "y" "n" true }}"#, Ok("y")),
        (r#"{{ true | ternary "y" "n" }}"#, Ok("y")),
        (
            r#"{{ ternary "y" "n" 1 }}"#,
            Err(
                "t/templates/t.yaml:1:19\n  executing \"t/templates/t.yaml\" at <1>:\n    expected bool; found 1",
            ),
        ),
        (
            r#"{{ ternary "y" "n" .Values.s }}"#,
            Err(
                "t/templates/t.yaml:1:26\n  executing \"t/templates/t.yaml\" at <.Values.s>:\n    wrong type for value; expected bool; got string",
            ),
        ),
        ("{{ hello }}", Ok("Hello!")),
        (r#"{{ default "x" (toDate "2006-01-02" "bad") }}"#, Ok("0001-01-01 00:00:00 +0000 UTC")),
        (r#"{{ empty (toDate "2006-01-02" "bad") }}"#, Ok("false")),
    ]);
}

#[test]
fn dicts() {
    check_all(&[
        (r#"{{ dict "a" 1 "b" }}"#, Ok("map[a:1 b:]")),
        ("{{ dict }}", Ok("map[]")),
        ("{{ dict 1 2 }}", Ok("map[1:2]")),
        (r#"{{ get .Values.map "x" }}"#, Ok("1")),
        (r#"{{ get .Values.map "q" }}"#, Ok("")),
        (r#"{{ set (dict "a" 1) "b" 2 }}"#, Ok("map[a:1 b:2]")),
        (r#"{{ unset (dict "a" 1 "b" 2) "a" }}"#, Ok("map[b:2]")),
        (r#"{{ hasKey .Values.map "x" }}"#, Ok("true")),
        (r#"{{ pluck "x" .Values.map (dict "x" 5) }}"#, Ok("[1 5]")),
        (r#"{{ keys (dict "a" 1) }}"#, Ok("[a]")),
        (r#"{{ values (dict "a" 1) }}"#, Ok("[1]")),
        (r#"{{ pick .Values.map "x" "q" }}"#, Ok("map[x:1]")),
        (r#"{{ omit .Values.map "x" }}"#, Ok("map[y:map[z:deep]]")),
        ("{{ keys }}", Ok("[]")),
        (r#"{{ keys (dict "a" 1) (dict "b" 1) | sortAlpha }}"#, Ok("[a b]")),
        (r#"{{ dig "y" "z" "def" .Values.map }}"#, Ok("deep")),
        (r#"{{ dig "q" "z" "def" .Values.map }}"#, Ok("def")),
        (r#"{{ dig "y" "q" "def" .Values.map }}"#, Ok("def")),
        (r#"{{ dig "x" "def" .Values.map }}"#, Ok("1")),
        (
            r#"{{ dig "x" "z" "def" .Values.map }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <dig "x" "z" "def" .Values.map>: error calling dig: interface conversion: interface {} is float64, not map[string]interface {}"#,
            ),
        ),
        (
            r#"{{ dig "map" "x" "def" .Values }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <dig "map" "x" "def" .Values>: error calling dig: interface conversion: interface {} is common.Values, not map[string]interface {}"#,
            ),
        ),
        (
            r#"{{ dig "a" "b" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <dig "a" "b">: error calling dig: dig needs at least three arguments"#,
            ),
        ),
        (
            r#"{{ dig 1 "b" .Values.map }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <dig 1 "b" .Values.map>: error calling dig: interface conversion: interface {} is int, not string"#,
            ),
        ),
        (
            r#"{{ dig "a" "b" nil }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <dig "a" "b" nil>: error calling dig: interface conversion: interface {} is nil, not map[string]interface {}"#,
            ),
        ),
        (
            r#"{{ $a := dict "x" 0 "y" "k" "m" (dict "p" 1 "q" "") "l" (list) "k" (list 1) }}{{ merge $a (dict "x" 5 "y" "no" "z" nil "m" (dict "q" 2 "r" 3 "p" 9) "l" (list 7) "k" (list 8)) | toJson }} {{ toJson $a }}"#,
            Ok(
                r#"{"k":[1],"l":[7],"m":{"p":1,"q":2,"r":3},"x":5,"y":"k"} {"k":[1],"l":[7],"m":{"p":1,"q":2,"r":3},"x":5,"y":"k"}"#,
            ),
        ),
        (
            r#"{{ $a := dict "x" 1 "y" "k" "m" (dict "p" 1) "l" (list 1) "s" (dict) }}{{ mergeOverwrite $a (dict "x" 0 "y" "" "z" nil "m" (dict "q" 2 "p" 0) "l" (list) "s" "str") | toJson }} {{ toJson $a }}"#,
            Ok(
                r#"{"l":[],"m":{"p":0,"q":2},"s":"str","x":0,"y":"","z":null} {"l":[],"m":{"p":0,"q":2},"s":"str","x":0,"y":"","z":null}"#,
            ),
        ),
        (
            r#"{{ merge (dict "a" (dict)) (dict "a" (dict "b" 1)) | toJson }}{{ merge (dict "a" "s") (dict "a" (dict "b" 1)) | toJson }}{{ merge (dict "a" (dict "b" 1)) (dict "a" "s") | toJson }}{{ mergeOverwrite (dict "a" (dict "b" 1)) (dict "a" "s") | toJson }}{{ mergeOverwrite (dict "a" "s") (dict "a" (dict "b" 1)) | toJson }}{{ merge (dict "a" false) (dict "a" true) | toJson }}{{ merge (dict) (dict "a" 1) (dict "a" 2 "b" 3) | toJson }}"#,
            Ok(r#"{"a":{"b":1}}{"a":"s"}{"a":{"b":1}}{"a":"s"}{"a":{"b":1}}{"a":true}{"a":1,"b":3}"#),
        ),
        (
            r#"{{ $d := dict "a" 1 }}{{ merge $d $d | toJson }} {{ mergeOverwrite $d $d | toJson }}"#,
            Ok(r#"{"a":1} {"a":1}"#),
        ),
    ]);
}

#[test]
fn encoding() {
    check_all(&[
        ("{{ toYaml (rest (list)) }}", Ok("null")),
        ("{{ fromYaml .Values.yaml }}", Ok("map[a:1 b:[x true]]")),
        (r#"{{ fromYaml "" }}"#, Ok("map[]")),
        (r##"{{ list (fromYaml "") (fromYaml "null") (fromYamlArray "# c") | toJson }}"##, Ok("[{},{},[]]")),
        (
            r#"{{ fromYaml "[1]" }}"#,
            Ok(
                "map[Error:error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type map[string]interface {}]",
            ),
        ),
        (
            r#"{{ fromYaml "a: b: c" }}"#,
            Ok(
                "map[Error:error converting YAML to JSON: yaml: mapping values are not allowed in this context]",
            ),
        ),
        (r#"{{ fromYamlArray "[1, a]" }}"#, Ok("[1 a]")),
        (
            r#"{{ fromYamlArray "a: 1" }}"#,
            Ok(
                "[error unmarshaling JSON: while decoding JSON: json: cannot unmarshal object into Go value of type []interface {}]",
            ),
        ),
        (
            r#"{{ fromYaml "x" }}"#,
            Ok(
                "map[Error:error unmarshaling JSON: while decoding JSON: json: cannot unmarshal string into Go value of type map[string]interface {}]",
            ),
        ),
        (
            r#"{{ fromYaml "- a" }}"#,
            Ok(
                "map[Error:error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type map[string]interface {}]",
            ),
        ),
        ("{{ toYaml .Values.map }}", Ok("x: 1\n\"y\":\n  z: deep")),
        ("{{ toYaml .Values.mixed }}", Ok("- 1\n- null\n- x\n- true\n- k: 1")),
        (r#"{{ toYaml "a: b" }}"#, Ok("'a: b'")),
        ("{{ toYaml nil }}", Ok("null")),
        ("{{ toYaml (list) }}", Ok("[]")),
        ("{{ toYaml (dict) }}", Ok("{}")),
        ("{{ toYaml .Values.big }}", Ok("1234567")),
        ("{{ toYaml 123456789.5 }}", Ok("1.234567895e+08")),
        (r#"{{ toYaml "multi\nline\n" }}"#, Ok("|\n  multi\n  line")),
        ("{{ toYaml .Values.multi }}", Ok("|\n  line1\n  line2")),
        ("{{ toYamlPretty .Values.map }}", Ok("x: 1\n\"y\":\n  z: deep")),
        ("{{ toYamlPretty .Values.list }}", Ok("- b\n- a\n- c")),
        ("{{ toYamlPretty 1000000.0 }}", Ok("1e+06")),
        // What toYamlPretty writes does not pass through JSON.
        (
            r#"{{ $t := toDate "2006" "2024" }}{{ list $t (dict "t" $t) | toYamlPretty }} {{ toYaml $t }}"#,
            Ok("- 2024-01-01T00:00:00Z\n- t: 2024-01-01T00:00:00Z \"2024-01-01T00:00:00Z\""),
        ),
        (r#"{{ regexFindAll "b" "" 1 | toYamlPretty }} {{ regexFindAll "b" "" 1 | toYaml }}"#, Ok("[] null")),
        (
            r#"{{ "é" | trunc -1 | fromYaml }}"#,
            Ok("map[Error:error converting YAML to JSON: yaml: invalid leading UTF-8 octet]"),
        ),
        (
            r#"{{ "é" | trunc 1 | fromYaml }}"#,
            Ok("map[Error:error converting YAML to JSON: yaml: incomplete UTF-8 octet sequence]"),
        ),
        (
            r#"{{ printf "%sx" ("é" | trunc 1) | fromYaml }}"#,
            Ok("map[Error:error converting YAML to JSON: yaml: invalid trailing UTF-8 octet]"),
        ),
        (
            r#"{{ duration "99999999999999999999" }} {{ duration "-99999999999999999999" }} {{ duration "x" }}"#,
            Ok("-1s 0s 0s"),
        ),
        (r#"{{ "ä¸\u009f" | toYaml }}"#, Ok("")),
        (
            r#"{{ "ä\u009f" | mustToYaml }}"#,
            Err(
                "template: t/templates/t.yaml:1:16: executing \"t/templates/t.yaml\" at <mustToYaml>: error calling mustToYaml: yaml: control characters are not allowed",
            ),
        ),
        ("{{ mustToYaml .Values.map }}", Ok("x: 1\n\"y\":\n  z: deep")),
        (
            r##"{{ toYaml (dict "a" (list 1 (dict "b" "yes" "c" "1" "d" "0x1" "e" "" "f" "- x" "g" "a: b" "h" "#c" "i" " lead" "j" "trail ")) "z" true) }}"##,
            Ok(
                "a:\n- 1\n- b: \"yes\"\n  c: \"1\"\n  d: \"0x1\"\n  e: \"\"\n  f: '- x'\n  g: 'a: b'\n  h: '#c'\n  i: ' lead'\n  j: 'trail '\nz: true",
            ),
        ),
        (r#"{{ b64enc "hello" }}"#, Ok("aGVsbG8=")),
        (r#"{{ b64dec "aGVsbG8=" }}"#, Ok("hello")),
        (r#"{{ b64dec "!!" }}"#, Ok("illegal base64 data at input byte 0")),
        (r#"{{ b64dec "aGVsbG8" }}"#, Ok("illegal base64 data at input byte 4")),
        (r#"{{ b32enc "hello" }}"#, Ok("NBSWY3DP")),
        (r#"{{ b32dec "NBSWY3DP" }}"#, Ok("hello")),
        (r#"{{ b32dec "NBSWY3D" }}"#, Ok("illegal base32 data at input byte 0")),
        (r#"{{ b32dec "nb" }}"#, Ok("illegal base32 data at input byte 0")),
        (r#"{{ b32enc "" }}"#, Ok("")),
        (r#"{{ b32enc "a" }}"#, Ok("ME======")),
        (r#"{{ b32dec "ME======" }}"#, Ok("a")),
        (r#"{{ b32dec "M=======" }}"#, Ok("illegal base32 data at input byte 1")),
        (r#"{{ b32dec "ME=====" }}"#, Ok("illegal base32 data at input byte 7")),
        (r#"{{ b64enc (b64dec "/w==") }}"#, Ok("/w==")),
        (r#"{{ toYaml (toDate "2006-01-02" "2021-03-04") }}"#, Ok(r#""2021-03-04T00:00:00Z""#)),
        (
            r#"{{ toYaml (dict "a" (list) "b" (dict) "c" nil "d" "" "e" (list (list 1) (dict "x" 1)) "f" "line1\nline2" "g" "  lead" "h" "true" "i" "123" "j" "1e3" "k" "~" "l" "a#b" "m" "a #b" "n" "@x" "o" "*x" "p" "&x" "q" "!x" "r" "%x" "s" "'x'" "t" "\"x\"" "u" "a: b" "v" "a:b" "w" "- a" "x" "-a" "y" "?" "z" "2020-01-02") }}"#,
            Ok(
                "a: []\nb: {}\nc: null\nd: \"\"\ne:\n- - 1\n- x: 1\nf: |-\n  line1\n  line2\ng: '  lead'\nh: \"true\"\ni: \"123\"\nj: \"1e3\"\nk: \"~\"\nl: a#b\nm: 'a #b'\n\"n\": '@x'\no: '*x'\np: '&x'\nq: '!x'\nr: '%x'\ns: '''x'''\nt: '\"x\"'\nu: 'a: b'\nv: a:b\nw: '- a'\nx: -a\n\"y\": '?'\nz: \"2020-01-02\"",
            ),
        ),
        (
            r#"{{ toYaml (list "0o17" "017" "08" "0b1" "1_000" "1:30" ".5" "5." "+1" "-1" "0x" "NaN" ".nan" ".inf" "null" "Null" "NULL" "y" "N" "yes" "OFF" "=" "<<" "a\tb" "é" "😀" "\x01" "trailing " "a\n" "a\n\n" "\na" "a\r\nb" "multi word text that is longer than eighty columns so that the emitter will fold it somewhere in here" "=x" "|" ">" "{" "}" "[" "]" "," "a," "a, b" "a]" "`") }}"#,
            Ok(
                "- \"0o17\"\n- \"017\"\n- \"08\"\n- \"0b1\"\n- \"1_000\"\n- \"1:30\"\n- \".5\"\n- \"5.\"\n- \"+1\"\n- \"-1\"\n- 0x\n- NaN\n- \".nan\"\n- \".inf\"\n- \"null\"\n- \"Null\"\n- \"NULL\"\n- \"y\"\n- \"N\"\n- \"yes\"\n- \"OFF\"\n- =\n- <<\n- \"a\\tb\"\n- é\n- \"\\U0001F600\"\n- \"\\x01\"\n- 'trailing '\n- |\n  a\n- |+\n  a\n\n- |2-\n\n  a\n- \"a\\r\\nb\"\n- multi word text that is longer than eighty columns so that the emitter will fold\n  it somewhere in here\n- =x\n- '|'\n- '>'\n- '{'\n- '}'\n- '['\n- ']'\n- ','\n- a,\n- a, b\n- a]\n- '`'",
            ),
        ),
        (
            r#"{{ toYamlPretty (list (float64 "nan") (float64 "inf") (float64 "-inf")) }} {{ round 0 1000 | toYamlPretty }}|{{ float64 "nan" | toYaml }}|"#,
            Ok("- .nan\n- .inf\n- -.inf .nan||"),
        ),
        (
            r#"{{ toYamlPretty (list "0o17" "017" "08" "0b1" "1_000" "1:30" ".5" "5." "+1" "-1" "0x" "NaN" ".nan" ".inf" "null" "Null" "NULL" "y" "N" "yes" "OFF" "=" "<<" "a\tb" "é" "😀" "\x01" "trailing " "a\n" "a\n\n" "\na" "a\r\nb" "multi word text that is longer than eighty columns so that the emitter will fold it somewhere in here" "=x" "|" ">" "{" "}" "[" "]" "," "a," "a, b" "a]" "`") }}"#,
            Ok(
                "- \"0o17\"\n- \"017\"\n- \"08\"\n- \"0b1\"\n- \"1_000\"\n- \"1:30\"\n- \".5\"\n- \"5.\"\n- \"+1\"\n- \"-1\"\n- 0x\n- NaN\n- \".nan\"\n- \".inf\"\n- \"null\"\n- \"Null\"\n- \"NULL\"\n- \"y\"\n- \"N\"\n- \"yes\"\n- \"OFF\"\n- =\n- <<\n- \"a\\tb\"\n- é\n- \"\\U0001F600\"\n- \"\\x01\"\n- 'trailing '\n- |\n  a\n- |+\n  a\n\n- |2-\n\n  a\n- \"a\\r\\nb\"\n- multi word text that is longer than eighty columns so that the emitter will fold it somewhere in here\n- =x\n- '|'\n- '>'\n- '{'\n- '}'\n- '['\n- ']'\n- ','\n- a,\n- a, b\n- a]\n- '`'",
            ),
        ),
        (
            r#"{{ fromYaml "a: 0o17\nb: 017\nc: 1_000\nd: yes\ne: ~\nf: 1e3\ng: .5\nh: 2020-01-02\ni: 0x1F\nj: 1:30\nk: [a, {b: c}]\nl: &x {y: 1}\nm: *x\nn: |\n  t\no: >\n  u\n  v\n" | toJson }}"#,
            Ok(
                r#"{"a":15,"b":15,"c":1000,"d":true,"e":null,"f":1000,"false":"t\n","g":0.5,"h":"2020-01-02","i":31,"j":"1:30","k":["a",{"b":"c"}],"l":{"true":1},"m":{"true":1},"o":"u v\n"}"#,
            ),
        ),
        (r#"{{ fromYaml "a: 1\n---\nb: 2" }}"#, Ok("map[a:1]")),
        (
            r#"{{ fromYaml "{a: 1" }}"#,
            Ok("map[Error:error converting YAML to JSON: yaml: line 1: did not find expected ',' or '}']"),
        ),
        (
            r#"{{ fromYaml "a: *x" }}"#,
            Ok("map[Error:error converting YAML to JSON: yaml: unknown anchor 'x' referenced]"),
        ),
        (
            r#"{{ fromYaml "\t" }}"#,
            Ok("map[Error:error converting YAML to JSON: yaml: found character that cannot start any token]"),
        ),
        (r#"{{ fromYaml "1: a\ntrue: b" }}"#, Ok("map[1:a true:b]")),
        (r#"{{ fromYamlArray "" }}"#, Ok("[]")),
        (r#"{{ fromYamlArray "- 1\n- a: b" | toJson }}"#, Ok(r#"[1,{"a":"b"}]"#)),
    ]);
}

#[test]
fn engine() {
    check_all(&[
        (r#"{{ fail "a\nb" }}"#, Err("execution error at (t/templates/t.yaml:1:3): a\nb")),
        (r#"{{ required "a\nb" nil }}"#, Err("execution error at (t/templates/t.yaml:1:3): a\nb")),
        (
            r#"{{ range index "abc" 0 }}{{ end }}{{ eq 97 (index "abc" 0) }}{{ typeOf (index "abc" 0) }}"#,
            Ok("trueuint8"),
        ),
        (
            r#"{{ $x := dict "a" (dict "b" (list 1 2)) }}{{ range $k, $v := $x }}{{ $k }}{{ range $i, $e := $v.b }}{{ $i }}{{ $e }}{{ end }}{{ end }}{{ $x.a.b }}{{ index $x "a" "b" 1 }}{{ (index $x.a.b 0) | add 5 }}"#,
            Ok("a0112[1 2]26"),
        ),
        (
            "{{ with $x := 5 }}{{ $x }}{{ end }}{{ with $y := .Values.nil }}{{ else }}{{ $y }}e{{ end }}",
            Ok("5e"),
        ),
        (
            r#"{{ if and (eq 1 1) (or false (not true) "x") }}ok{{ end }}{{ if eq "a" "b" "a" }}ok{{ end }}"#,
            Ok("okok"),
        ),
        (r#"{{- range tuple "a" "b" -}}"#, Err("parse error at (t/templates/t.yaml:1): unexpected EOF")),
        ("{{ range $i, $e := until 3 }}{{ if $i }},{{ end }}{{ $e }}{{ end }}", Ok("0,1,2")),
        (
            "{{ range $i := until 3 }}{{ range $j := until 3 }}{{ if eq $i $j }}{{ continue }}{{ end }}{{ if gt $j 1 }}{{ break }}{{ end }}{{ $i }}{{ $j }} {{ end }}{{ end }}",
            Ok("01 10 20 21 "),
        ),
        (
            r#"{{ define "rec" }}{{ if gt (int .) 0 }}{{ . }}{{ include "rec" (sub (int .) 1) }}{{ end }}{{ end }}{{ include "rec" 5 }}"#,
            Ok("54321"),
        ),
        (
            r#"{{ define "t1" }}{{ $.x }}{{ . }}{{ end }}{{ template "t1" (dict "x" 1) }}{{ include "t1" (dict "x" 2) | trim | quote }}"#,
            Ok(r#"1map[x:1]"2map[x:2]""#),
        ),
        (
            r#"{{ $s := "x" }}{{ define "t2" }}{{ $s }}{{ end }}"#,
            Err(r#"parse error at (t/templates/t.yaml:1): undefined variable "$s""#),
        ),
        (
            r#"{{ printf "%s" (include "undefined" .) }}"#,
            Err(
                "t/templates/t.yaml:1:16\n  executing \"t/templates/t.yaml\" at <include \"undefined\" .>:\n    error calling include:\ntemplate: no template \"undefined\" associated with template \"gotpl\"",
            ),
        ),
        (
            r#"{{ include "a" . | nindent 4 }}{{ define "a" }}x: {{ .Values.s }}{{ end }}"#,
            Ok("\n    x: text"),
        ),
        (
            r#"{{ tpl "{{ tpl .Values.s . }}" . }}{{ tpl (toYaml .Values.map) . }}"#,
            Ok("textx: 1\n\"y\":\n  z: deep"),
        ),
        (
            "{{ tpl 1 . }}",
            Err(
                "t/templates/t.yaml:1:7\n  executing \"t/templates/t.yaml\" at <1>:\n    expected string; found 1",
            ),
        ),
        (
            "{{ tpl .Values.nil . }}",
            Err(
                "t/templates/t.yaml:1:14\n  executing \"t/templates/t.yaml\" at <.Values.nil>:\n    wrong type for value; expected string; got interface {}",
            ),
        ),
        (
            r#"{{ tpl "{{ nope }}" . }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <tpl "{{ nope }}" .>: error calling tpl: cannot parse template "{{ nope }}": template: gotpl:1: function "nope" not defined"#,
            ),
        ),
        (
            r#"{{ tpl "line1\n{{ .Values.nil.x }}" . }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <tpl "line1\n{{ .Values.nil.x }}" .>: error calling tpl: error during tpl function execution for "line1\n{{ .Values.nil.x }}": template: gotpl:2:10: executing "gotpl" at <.Values.nil.x>: nil pointer evaluating interface {}.x"#,
            ),
        ),
        (
            "{{ define \"e1\" }}{{ required \"msg\" .Values.nil }}{{ end }}{{ define \"e2\" }}{{ include \"e1\" . }}{{ end }}\n\n{{ include \"e2\" . | nindent 2 }}",
            Err("execution error at (t/templates/t.yaml:3:3): msg"),
        ),
        (
            "{{ define \"e1\" }}{{ .Values.s.x }}{{ end }}{{ define \"e2\" }}{{ template \"e1\" . }}{{ end }}\n\n{{ include \"e2\" . | nindent 2 }}",
            Err(
                "t/templates/t.yaml:3:3\n  executing \"t/templates/t.yaml\" at <include \"e2\" .>:\n    error calling include:\nt/templates/t.yaml:1:27\n  executing \"e1\" at <.Values.s.x>:\n    can't evaluate field x in type interface {}",
            ),
        ),
        (
            r#"{{ define "e1" }}{{ index .Values.list 7 }}{{ end }}{{ define "e2" }}{{ include "e1" . }}{{ end }}{{ include "e2" . }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:101: executing "t/templates/t.yaml" at <include "e2" .>: error calling include: template: t/templates/t.yaml:1:72: executing "e2" at <include "e1" .>: error calling include: template: t/templates/t.yaml:1:20: executing "e1" at <index .Values.list 7>: error calling index: index out of range: 7"#,
            ),
        ),
        (
            r#"{{ define "e1" }}{{ nindent .Values.s "x" }}{{ end }}{{ define "e2" }}{{ include "e1" . }}{{ end }}{{ include "e2" . }}"#,
            Err(
                "t/templates/t.yaml:1:102\n  executing \"t/templates/t.yaml\" at <include \"e2\" .>:\n    error calling include:\nt/templates/t.yaml:1:73\n  executing \"e2\" at <include \"e1\" .>:\n    error calling include:\nt/templates/t.yaml:1:35\n  executing \"e1\" at <.Values.s>:\n    wrong type for value; expected int; got string",
            ),
        ),
        (
            r#"{{ if (include "e1" .) }}{{ end }}{{ define "e1" }}{{ lt .Values.n 1 }}{{ end }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:7: executing "t/templates/t.yaml" at <include "e1" .>: error calling include: template: t/templates/t.yaml:1:54: executing "e1" at <lt .Values.n 1>: error calling lt: incompatible types for comparison: float64 and int"#,
            ),
        ),
        (
            r#"{{ toToml (dict "t" (dict "x" 1 "u" (dict "y" 2)) "a" 1 "key with space" 1 "ä" 2 "" 3 "1.2" 4) }}|"#,
            Ok(
                "\"\" = 3\n\"1.2\" = 4\na = 1\n\"key with space\" = 1\n\"ä\" = 2\n\n[t]\n  x = 1\n  [t.u]\n    y = 2\n|",
            ),
        ),
    ]);
}

#[test]
fn equal() {
    check_all(&[
        ("{{ deepEqual (list 1 2) (list 1 2) }}", Ok("true")),
        ("{{ deepEqual 1 1.0 }}", Ok("false")),
        (r#"{{ deepEqual (dict "a" (list)) (dict "a" (list)) }}"#, Ok("true")),
        ("{{ deepEqual nil nil }}", Ok("true")),
        ("{{ deepEqual .Values .Values.AsMap }}", Ok("false")),
        ("{{ deepEqual (rest (list)) (list) }}", Ok("false")),
    ]);
}

#[test]
fn json() {
    check_all(&[
        ("{{ toJson (rest (list)) }}", Ok("null")),
        ("{{ toJson (concat (list)) }}", Ok("null")),
        ("{{ toJson (list) }}", Ok("[]")),
        (r#"{{ toJson (regexFindAll "x" "y" -1) }}"#, Ok("null")),
        ("{{ toJson (chunk 2 (list 1 2 3)) }}", Ok("[[1,2],[3]]")),
        ("{{ toJson (without (list 1) 1) }}", Ok("[]")),
        ("{{ toJson (slice (list) 0) }}", Ok("null")),
        (
            r#"{{ $s := dict "m" (dict "k" 1) }}{{ $d := merge (dict) $s }}{{ $_ := set $d.m "k" 2 }}{{ $s | toJson }}"#,
            Ok(r#"{"m":{"k":2}}"#),
        ),
        (
            r#"{{ $s := dict "m" (dict "k" 1) }}{{ $d := deepCopy $s }}{{ $_ := set $d.m "k" 2 }}{{ $s | toJson }}{{ $d | toJson }}"#,
            Ok(r#"{"m":{"k":1}}{"m":{"k":2}}"#),
        ),
        ("{{ toJson .Values.mixed }}", Ok(r#"[1,null,"x",true,{"k":1}]"#)),
        (r#"{{ toJson "<a&b>\u2028ü\x00\x7f" }}"#, Ok("\"\\u003ca\\u0026b\\u003e\\u2028ü\\u0000\u{7f}\"")),
        (r#"{{ toRawJson "<a&b>" }}"#, Ok(r#""<a&b>""#)),
        ("{{ toPrettyJson .Values.map }}", Ok("{\n  \"x\": 1,\n  \"y\": {\n    \"z\": \"deep\"\n  }\n}")),
        ("{{ toPrettyJson (list) }}", Ok("[]")),
        ("{{ toPrettyJson (dict) }}", Ok("{}")),
        ("{{ toJson .Values.big }}", Ok("1234567")),
        ("{{ toJson 1e21 }}", Ok("1e+21")),
        ("{{ toJson 1e-7 }}", Ok("1e-7")),
        ("{{ toJson 100.0 }}", Ok("100")),
        ("{{ toJson nil }}", Ok("null")),
        (r#"{{ toJson (b64dec "/w==") }}"#, Ok(r#""\ufffd""#)),
        ("{{ toJson 9007199254740993 }}", Ok("9007199254740993")),
        ("{{ fromJson .Values.json }}", Ok("map[a:[1 2.5 <nil>]]")),
        (
            r#"{{ fromJson "[1]" }}"#,
            Ok("map[Error:json: cannot unmarshal array into Go value of type map[string]interface {}]"),
        ),
        (r#"{{ fromJson "" }}"#, Ok("map[Error:unexpected end of JSON input]")),
        (
            r#"{{ fromJson "{a}" }}"#,
            Ok("map[Error:invalid character 'a' looking for beginning of object key string]"),
        ),
        (r#"{{ fromJson "null" }}"#, Ok("map[]")),
        (r#"{{ fromJsonArray "[1, \"a\"]" }}"#, Ok("[1 a]")),
        (
            r#"{{ fromJsonArray "{}" }}"#,
            Ok("[json: cannot unmarshal object into Go value of type []interface {}]"),
        ),
        (r#"{{ fromJsonArray "" }}"#, Ok("[unexpected end of JSON input]")),
        (
            r#"{{ fromJson "3" }}"#,
            Ok("map[Error:json: cannot unmarshal number into Go value of type map[string]interface {}]"),
        ),
        (
            r#"{{ fromJson "\"s\"" }}"#,
            Ok("map[Error:json: cannot unmarshal string into Go value of type map[string]interface {}]"),
        ),
        (
            r#"{{ fromJson "true" }}"#,
            Ok("map[Error:json: cannot unmarshal bool into Go value of type map[string]interface {}]"),
        ),
        (r#"{{ mustFromJson "[1,{\"a\":null}]" }}"#, Ok("[1 map[a:<nil>]]")),
        ("{{ mustToJson .Values.map }}", Ok(r#"{"x":1,"y":{"z":"deep"}}"#)),
        ("{{ mustToPrettyJson 1 }}", Ok("1")),
        (r#"{{ mustToRawJson "<" }}"#, Ok(r#""<""#)),
        (
            r#"{{ mustFromJson "{" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <mustFromJson "{">: error calling mustFromJson: unexpected end of JSON input"#,
            ),
        ),
        (
            r#"{{ mustFromJson "x" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <mustFromJson "x">: error calling mustFromJson: invalid character 'x' looking for beginning of value"#,
            ),
        ),
        (
            r#"{{ mustFromJson "{\"a\":x}" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <mustFromJson "{\"a\":x}">: error calling mustFromJson: invalid character 'x' looking for beginning of value"#,
            ),
        ),
        (
            r#"{{ mustFromJson "[1,]" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <mustFromJson "[1,]">: error calling mustFromJson: invalid character ']' looking for beginning of value"#,
            ),
        ),
        (
            r#"{{ mustFromJson "1 2" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <mustFromJson "1 2">: error calling mustFromJson: invalid character '2' after top-level value"#,
            ),
        ),
        (r#"{{ toJson (semver "1.2.3") }}"#, Ok(r#""1.2.3""#)),
        (r#"{{ toJson (toDate "2006-01-02" "2020-01-31") }}"#, Ok(r#""2020-01-31T00:00:00Z""#)),
        ("{{ .Values.list | toJson | quote }}", Ok(r#""[\"b\",\"a\",\"c\"]""#)),
        (r#"{{ toJson (index "abc" 0) }}"#, Ok("97")),
        (
            r#"{{ toJson (toDate "2006-01-02T15:04:05Z07:00" "2021-03-04T05:06:07.5+02:00") }}"#,
            Ok(r#""2021-03-04T05:06:07.5+02:00""#),
        ),
    ]);
}

#[test]
fn lists() {
    check_all(&[
        ("{{ sortAlpha .Values.list }}", Ok("[a b c]")),
        (r#"{{ sortAlpha "b" }}"#, Ok("[b]")),
        ("{{ sortAlpha (list 3 1 10) }}", Ok("[1 10 3]")),
        (r#"{{ $l := splitList "," "c,a,b" }}{{ sortAlpha $l }}{{ $l }}"#, Ok("[a b c][a b c]")),
        (r#"{{ list 1 "a" nil }}"#, Ok("[1 a <nil>]")),
        ("{{ tuple 1 }}", Ok("[1]")),
        ("{{ append (list 1) 2 }}", Ok("[1 2]")),
        ("{{ prepend (list 1) 0 }}", Ok("[0 1]")),
        ("{{ push (list) 1 }}", Ok("[1]")),
        ("{{ first .Values.list }}", Ok("b")),
        ("{{ last .Values.list }}", Ok("c")),
        ("{{ rest .Values.list }}", Ok("[a c]")),
        ("{{ initial .Values.list }}", Ok("[b a]")),
        ("{{ reverse .Values.list }}", Ok("[c a b]")),
        ("{{ compact .Values.mixed }}", Ok("[1 x true map[k:1]]")),
        (r#"{{ uniq (list 1 1 1.0 "1" "1") }}"#, Ok("[1 1 1]")),
        (r#"{{ without .Values.list "a" }}"#, Ok("[b c]")),
        (r#"{{ has "a" .Values.list }}"#, Ok("true")),
        ("{{ has 3 .Values.nums }}", Ok("false")),
        ("{{ has 3.0 .Values.nums }}", Ok("true")),
        ("{{ has 1 nil }}", Ok("false")),
        ("{{ slice .Values.list 1 }}", Ok("[a c]")),
        ("{{ slice .Values.list 0 2 }}", Ok("[b a]")),
        ("{{ slice .Values.list }}", Ok("[b a c]")),
        ("{{ concat (list 1) (list 2 3) }}", Ok("[1 2 3]")),
        ("{{ chunk 2 (list 1 2 3) }}", Ok("[[1 2] [3]]")),
        ("{{ first (list) }}", Ok("")),
        ("{{ last (list) }}", Ok("")),
        ("{{ rest (list) }}", Ok("[]")),
        ("{{ initial (list) }}", Ok("[]")),
        ("{{ slice (list) 1 }}", Ok("")),
        ("{{ concat }}", Ok("[]")),
        ("{{ chunk 3 (list) }}", Ok("[]")),
        (
            "{{ append nil 1 }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <append nil 1>: error calling append: runtime error: invalid memory address or nil pointer dereference"#,
            ),
        ),
        (
            r#"{{ append "a" 1 }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <append "a" 1>: error calling append: Cannot push on type string"#,
            ),
        ),
        (
            "{{ first nil }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <first nil>: error calling first: runtime error: invalid memory address or nil pointer dereference"#,
            ),
        ),
        (
            r#"{{ first "abc" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <first "abc">: error calling first: Cannot find first on type string"#,
            ),
        ),
        (
            "{{ first .Values.map }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <first .Values.map>: error calling first: Cannot find first on type map"#,
            ),
        ),
        (
            "{{ concat (list 1) nil }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <concat (list 1) nil>: error calling concat: runtime error: invalid memory address or nil pointer dereference"#,
            ),
        ),
        (
            r#"{{ concat (list 1) "a" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <concat (list 1) "a">: error calling concat: Cannot concat type string as list"#,
            ),
        ),
        (
            r#"{{ has 1 "abc" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <has 1 "abc">: error calling has: Cannot find has on type string"#,
            ),
        ),
        (
            r#"{{ has "a" .Values.map }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <has "a" .Values.map>: error calling has: Cannot find has on type map"#,
            ),
        ),
        (
            "{{ slice .Values.list 2 1 }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <slice .Values.list 2 1>: error calling slice: reflect.Value.Slice: slice index out of bounds"#,
            ),
        ),
        (
            "{{ slice .Values.list 0 9 }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <slice .Values.list 0 9>: error calling slice: reflect.Value.Slice: slice index out of bounds"#,
            ),
        ),
        (
            r#"{{ slice "abc" 1 }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <slice "abc" 1>: error calling slice: list should be type of slice or array but string"#,
            ),
        ),
        (
            "{{ chunk 0 (list 1) }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <chunk 0 (list 1)>: error calling chunk: runtime error: makeslice: len out of range"#,
            ),
        ),
        (
            "{{ chunk -1 (list 1) }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <chunk -1 (list 1)>: error calling chunk: runtime error: makeslice: len out of range"#,
            ),
        ),
        (
            "{{ uniq 3 }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <uniq 3>: error calling uniq: Cannot find uniq on type int"#,
            ),
        ),
        (
            "{{ without nil 1 }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <without nil 1>: error calling without: runtime error: invalid memory address or nil pointer dereference"#,
            ),
        ),
        (
            "{{ reverse nil }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <reverse nil>: error calling reverse: runtime error: invalid memory address or nil pointer dereference"#,
            ),
        ),
        (
            r#"{{ compact "" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <compact "">: error calling compact: Cannot compact on type string"#,
            ),
        ),
        ("{{ tuple 1 2 | first }}", Ok("1")),
        ("{{ chunk -1 (list 1 2) }}", Ok("[]")),
        ("{{ chunk -2 (list 1) }}", Ok("[[1]]")),
        ("{{ chunk -5 (list 1 2 3) }}", Ok("[]")),
        (
            "{{ chunk -1 (list) }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <chunk -1 (list)>: error calling chunk: runtime error: makeslice: len out of range"#,
            ),
        ),
        (
            "{{ chunk -1 (list 1 2 3) }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <chunk -1 (list 1 2 3)>: error calling chunk: runtime error: makeslice: len out of range"#,
            ),
        ),
        (
            "{{ chunk 0 (list) }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <chunk 0 (list)>: error calling chunk: runtime error: makeslice: len out of range"#,
            ),
        ),
        (r#"{{ list (toDate "2006-01-02" "2021-03-04") }}"#, Ok("[2021-03-04 00:00:00 +0000 UTC]")),
    ]);
}

#[test]
fn paths() {
    check_all(&[
        (r#"{{ base "/a/b.txt" }}"#, Ok("b.txt")),
        (r#"{{ base "" }}"#, Ok(".")),
        (r#"{{ base "/" }}"#, Ok("/")),
        (r#"{{ base "a//" }}"#, Ok("a")),
        (r#"{{ dir "/a/b" }}"#, Ok("/a")),
        (r#"{{ dir "a" }}"#, Ok(".")),
        (r#"{{ dir "" }}"#, Ok(".")),
        (r#"{{ dir "/" }}"#, Ok("/")),
        (r#"{{ clean "a/../b/./c//d" }}"#, Ok("b/c/d")),
        (r#"{{ clean "/../a" }}"#, Ok("/a")),
        (r#"{{ clean "" }}"#, Ok(".")),
        (r#"{{ clean "../a/.." }}"#, Ok("..")),
        (r#"{{ ext "a.tar.gz" }}"#, Ok(".gz")),
        (r#"{{ ext "a/b.c/d" }}"#, Ok("")),
        (r#"{{ ext "." }}"#, Ok(".")),
        (r#"{{ isAbs "/a" }}"#, Ok("true")),
        (r#"{{ osBase "/a/b" }}"#, Ok("b")),
        // A broken character stays as it is.
        (r#"{{ osBase (trunc 3 "a/ü") | b64enc }}"#, Ok("ww==")),
        (r#"{{ dir (trunc 3 "a/ü") | b64enc }}{{ clean (trunc 3 "a/ü") | b64enc }}"#, Ok("YQ==YS/D")),
        (r#"{{ ext (trunc 3 "a.ü") | b64enc }}"#, Ok("LsM=")),
        (r#"{{ osDir "a/b/" }}"#, Ok("a/b")),
        (r#"{{ osClean "a//b" }}"#, Ok("a/b")),
        (r#"{{ osExt "x.y" }}"#, Ok(".y")),
        (r#"{{ osIsAbs "a" }}"#, Ok("false")),
    ]);
}

#[test]
fn random() {
    check_all(&[
        ("{{ randAlphaNum 5 | len }}", Ok("5")),
        ("{{ randAlpha 0 | len }}", Ok("0")),
        ("{{ randNumeric 3 | len }}", Ok("3")),
        ("{{ randAscii 4 | len }}", Ok("4")),
        ("{{ randBytes 5 | len }}", Ok("8")),
        ("{{ randInt 3 4 }}", Ok("3")),
        (r#"{{ shuffle "abc" | len }}"#, Ok("3")),
        ("{{ uuidv4 | len }}", Ok("36")),
        ("{{ randAlpha -1 }}|", Ok("|")),
        (
            "{{ randInt 4 4 }}",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <randInt 4 4>: error calling randInt: invalid argument to Intn"#,
            ),
        ),
    ]);
}

#[test]
fn regex() {
    check_all(&[
        (r#"{{ regexMatch "^a.c$" "abc" }}"#, Ok("true")),
        (r#"{{ regexMatch "(" "a" }}"#, Ok("false")),
        (r#"{{ regexFind "[a-z]+" "12abc34" }}"#, Ok("abc")),
        (r#"{{ regexFindAll "[a-z]" "a1b2c3" -1 }}"#, Ok("[a b c]")),
        (r#"{{ regexFindAll "[a-z]" "a1b2c3" 2 }}"#, Ok("[a b]")),
        (r#"{{ regexFindAll "a*" "baaa" -1 }}"#, Ok("[ aaa]")),
        (r#"{{ regexReplaceAll "a(x*)b" "-ab-axxb-" "${1}W" }}"#, Ok("-W-xxW-")),
        (r#"{{ regexReplaceAll "a(x*)b" "-ab-axxb-" "$1W" }}"#, Ok("---")),
        (r#"{{ regexReplaceAllLiteral "a(x*)b" "-ab-axxb-" "${1}" }}"#, Ok("-${1}-${1}-")),
        (r#"{{ regexSplit "z+" "pizza" -1 }}"#, Ok("[pi a]")),
        (r#"{{ regexSplit "," "a,b,c" 2 }}"#, Ok("[a b,c]")),
        (r#"{{ regexSplit "," "" -1 }}"#, Ok("[]")),
        (r#"{{ regexQuoteMeta "1.2.3[a]{}" }}"#, Ok(r#"1\.2\.3\[a\]\{\}"#)),
        (r#"{{ regexReplaceAll "" "abc" "-" }}"#, Ok("-a-b-c-")),
        (r#"{{ regexReplaceAll "x*" "abxc" "-" }}"#, Ok("-a-b-c-")),
        (r#"{{ regexSplit "" "abc" -1 }}"#, Ok("[a b c]")),
        (r#"{{ regexSplit "," "a,b" 0 }}"#, Ok("[]")),
        (r#"{{ regexFind "{{" "a{{b" }}"#, Ok("{{")),
        (r#"{{ regexMatch "a{,2}" "a{,2}" }}"#, Ok("true")),
        (r#"{{ regexMatch "^{" "{" }}"#, Ok("true")),
        (r#"{{ regexReplaceAll "(?P<n>a)" "abc" "<${n}>" }}"#, Ok("<a>bc")),
        (r#"{{ regexReplaceAll "a" "abc" "$$x$" }}"#, Ok("$x$bc")),
        (r#"{{ regexMatch "\\d+" "٣" }}"#, Ok("false")),
        (r#"{{ regexMatch "(?i)ABC" "abc" }}"#, Ok("true")),
        (r#"{{ regexMatch "[[:alpha:]]+" "abc" }}"#, Ok("true")),
        (r#"{{ regexFind "\\Qa.b\\E" "a.b" }}"#, Ok("a.b")),
        (r#"{{ regexMatch "[]a]" "]" }}"#, Ok("true")),
        (r#"{{ regexMatch "[^]a]" "b" }}"#, Ok("true")),
        (r#"{{ regexMatch "[a&&b]" "&" }}"#, Ok("true")),
        (
            r#"{{ regexFind "(" "a" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <regexFind "(" "a">: error calling regexFind: regexp: Compile(`(`): error parsing regexp: missing closing ): `(`"#,
            ),
        ),
        (
            r#"{{ mustRegexFind "(" "a" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <mustRegexFind "(" "a">: error calling mustRegexFind: error parsing regexp: missing closing ): `(`"#,
            ),
        ),
        (
            r#"{{ mustRegexMatch "a(" "a" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <mustRegexMatch "a(" "a">: error calling mustRegexMatch: error parsing regexp: missing closing ): `a(`"#,
            ),
        ),
        (
            r#"{{ regexReplaceAll "[" "a" "b" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <regexReplaceAll "[" "a" "b">: error calling regexReplaceAll: regexp: Compile(`[`): error parsing regexp: missing closing ]: `[`"#,
            ),
        ),
        (r#"{{ regexMatch "a{1001}" "a" }}"#, Ok("false")),
        (r#"{{ regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" "abc-d" }}"#, Ok("true")),
        (r#"{{ regexMatch "a**" "a" }}"#, Ok("false")),
        (r#"{{ regexMatch "\\z" "" }}"#, Ok("true")),
        (r#"{{ regexMatch "(?s)a.b" "a\nb" }}"#, Ok("true")),
        (r#"{{ regexMatch "a.b" "a\nb" }}"#, Ok("false")),
        (r#"{{ regexMatch "^b" "a\nb" }}"#, Ok("false")),
        (r#"{{ regexMatch "(?m)^b" "a\nb" }}"#, Ok("true")),
        (r#"{{ regexFind "a+?" "aaa" }}"#, Ok("a")),
        (r#"{{ regexFind "(?U)a+" "aaa" }}"#, Ok("a")),
        (r#"{{ regexFind "a|ab" "ab" }}"#, Ok("a")),
        (r#"{{ regexFind "\\bfoo\\b" "a foo b" }}"#, Ok("foo")),
        (r#"{{ regexFind "[^a-z]+" "abc123" }}"#, Ok("123")),
        (r#"{{ regexFind "\\x41" "A" }}"#, Ok("A")),
        (r#"{{ regexFind "\\x{41}" "A" }}"#, Ok("A")),
        (r#"{{ regexFind "\\101" "A" }}"#, Ok("A")),
        (r#"{{ regexFind "." "ä" }}"#, Ok("ä")),
        (r#"{{ regexFind "[ä-ü]+" "xöy" }}"#, Ok("ö")),
        (r#"{{ regexFind "[A-Z]{2,}" "xABCy" }}"#, Ok("ABC")),
        (r#"{{ regexMatch "^(\\d{1,3}\\.){3}\\d{1,3}$" "10.0.0.1" }}"#, Ok("true")),
        (r#"{{ regexReplaceAll "[^a-zA-Z0-9-]" "a_b.c" "-" }}"#, Ok("a-b-c")),
        (r#"{{ regexReplaceAll "(^|-)([a-z])" "foo-bar" "${1}<${2}>" }}"#, Ok("<f>oo-<b>ar")),
        (r#"{{ regexSplit "\\s*,\\s*" "a , b,c" -1 }}"#, Ok("[a b c]")),
        (r#"{{ regexReplaceAll "\\W+" "a b!c" "_" }}"#, Ok("a_b_c")),
        (r#"{{ regexFindAll "\\w+@\\w+" "a@b c@d" -1 }}"#, Ok("[a@b c@d]")),
        (r#"{{ regexMatch "^(https?|ftp)://[^\\s/$.?#].[^\\s]*$" "http://x.y" }}"#, Ok("true")),
        (r#"{{ regexReplaceAll "/+$" "a//" "" }}"#, Ok("a")),
        (r#"{{ regexFind "v?[0-9]+\\.[0-9]+" "foo v1.22" }}"#, Ok("v1.22")),
        (r#"{{ regexReplaceAllLiteral "\\{\\{" "a{{b" "$x" }}"#, Ok("a$xb")),
        (r#"{{ regexMatch "(?i:ab)c" "ABc" }}"#, Ok("true")),
        (r#"{{ regexMatch "a$" "a\n" }}"#, Ok("false")),
        (r#"{{ regexReplaceAll "(?m)^" "a\nb" "> " }}"#, Ok("> a\n> b")),
        (r#"{{ regexReplaceAll "\\$\\{(\\w+)\\}" "x ${FOO}" "<$1>" }}"#, Ok("x <FOO>")),
        (r#"{{ regexMatch "^[[:alnum:]_.-]+$" "a.b" }}"#, Ok("true")),
        (r#"{{ regexMatch "[\\w.-]+" "a" }}"#, Ok("true")),
        (r#"{{ regexMatch "[^\\w]" "!" }}"#, Ok("true")),
        (r#"{{ regexMatch "\\t" "\t" }}"#, Ok("true")),
        (r#"{{ regexMatch "[\\]]" "]" }}"#, Ok("true")),
        (r#"{{ regexMatch "a|" "" }}"#, Ok("true")),
        (r#"{{ regexMatch "()" "" }}"#, Ok("true")),
        (r#"{{ regexMatch "(?P<x>a)(?P<y>b)?" "a" }}"#, Ok("true")),
        (r#"{{ regexMatch "\\/" "/" }}"#, Ok("true")),
        (r#"{{ regexMatch "\\-" "-" }}"#, Ok("true")),
        (r#"{{ regexMatch "\\:" ":" }}"#, Ok("true")),
        (r#"{{ regexMatch "\\_" "_" }}"#, Ok("true")),
        (r#"{{ regexMatch "\\ " " " }}"#, Ok("true")),
        (r#"{{ regexMatch "\\\"" "\"" }}"#, Ok("true")),
        (r#"{{ regexMatch "\\@" "@" }}"#, Ok("true")),
        (r#"{{ regexMatch "\\a" "\a" }}"#, Ok("true")),
        (r#"{{ regexMatch "\\v" "\v" }}"#, Ok("true")),
        (r#"{{ regexMatch "\\e" "e" }}"#, Ok("false")),
        (r#"{{ regexMatch "\\y" "y" }}"#, Ok("false")),
        (r#"{{ regexMatch "[a-\\d]" "a" }}"#, Ok("false")),
        (r#"{{ regexMatch "[z-a]" "a" }}"#, Ok("false")),
        (r#"{{ regexMatch "x{2,1}" "a" }}"#, Ok("false")),
        (r#"{{ regexMatch "*a" "a" }}"#, Ok("false")),
        (r#"{{ regexMatch "a{2}{3}" "aaaaaa" }}"#, Ok("false")),
        (r#"{{ regexMatch "(?<n>a)" "a" }}"#, Ok("true")),
        (r#"{{ regexMatch "a+*" "a" }}"#, Ok("false")),
        (r#"{{ regexMatch "a??" "a" }}"#, Ok("true")),
        (r#"{{ regexMatch "(?=a)" "a" }}"#, Ok("false")),
        (r#"{{ regexMatch "\\Aa\\z" "a" }}"#, Ok("true")),
        (r#"{{ regexMatch "\\Z" "a" }}"#, Ok("false")),
        (r#"{{ regexMatch "[[:word:]]" "_" }}"#, Ok("true")),
        (r#"{{ regexMatch "[[:foo:]]" "_" }}"#, Ok("false")),
        (r#"{{ regexMatch "a{0}" "" }}"#, Ok("true")),
        (r#"{{ regexMatch "\\x{1F600}" "😀" }}"#, Ok("true")),
        (r#"{{ regexMatch "é" "é" }}"#, Ok("true")),
        (r#"{{ regexMatch "\\b" "é" }}"#, Ok("false")),
        (r#"{{ regexMatch "(?x)a b" "ab" }}"#, Ok("false")),
    ]);
}

#[test]
fn strings() {
    check_all(&[
        (r#"{{ abbrev 5 "hello world" }}"#, Ok("he...")),
        (r#"{{ abbrev 3 "hello" }}"#, Ok("hello")),
        (r#"{{ abbrev 20 "hello" }}"#, Ok("hello")),
        (r#"{{ abbrevboth 5 10 "1234 5678 9123" }}"#, Ok("...5678...")),
        (r#"{{ abbrevboth 0 7 "abcdefghijk" }}"#, Ok("abcd...")),
        (r#"{{ abbrevboth 6 10 "abcdefghijklmnopqrstuvwxyz" }}"#, Ok("...ghij...")),
        (r#"{{ trim "  a b \n" }}"#, Ok("a b")),
        (r#"{{ trimAll "$" "$5.00$" }}"#, Ok("5.00")),
        (r#"{{ trimall "ab" "abcba" }}"#, Ok("c")),
        (r#"{{ trimSuffix "-" "a-" }}"#, Ok("a")),
        (r#"{{ trimPrefix "-" "-a" }}"#, Ok("a")),
        (r#"{{ trimAll "" "a" }}"#, Ok("a")),
        // Of a character that was cut, the bytes stay; each is U+FFFD for the set of characters.
        (r#"{{ printf " %s x\u2003" ("aé" | trunc 2) | trim | b64enc }}"#, Ok("YcMgeA==")),
        (r#"{{ printf "x%sx" ("☃" | trunc 2) | trimAll "x" | b64enc }}"#, Ok("4pg=")),
        (r#"{{ printf "x%sx" ("☃" | trunc 2) | trimAll "x\ufffd" | b64enc }}"#, Ok("")),
        (r#"{{ printf "%sa%s" ("é" | trunc 1) ("é" | trunc -1) | trimAll ("☃" | trunc 1) }}"#, Ok("a")),
        (r#"{{ contains "b" "abc" }}"#, Ok("true")),
        (r#"{{ contains "" "a" }}"#, Ok("true")),
        (r#"{{ hasPrefix "a" "abc" }}"#, Ok("true")),
        (r#"{{ hasSuffix "c" "abc" }}"#, Ok("true")),
        (r#"{{ quote "a\"b" 1 nil true "ä\n" }}"#, Ok(r#""a\"b" "1" "true" "ä\n""#)),
        (r#"{{ squote "a" nil 1.5 }}"#, Ok("'a' '1.5'")),
        (r#"{{ cat "a" nil 1 "b " }}"#, Ok("a 1 b ")),
        ("{{ quote }}", Ok("")),
        ("{{ quote .Values.list }}", Ok(r#""[b a c]""#)),
        ("{{ squote .Values.map }}", Ok("'map[x:1 y:map[z:deep]]'")),
        ("{{ quote nil }}", Ok("")),
        ("{{ quote .Values.big }}", Ok(r#""1.234567e+06""#)),
        (r#"{{ indent 2 "a\nb\n" }}"#, Ok("  a\n  b\n  ")),
        (r#"{{ nindent 2 "a\n\nb" }}"#, Ok("\n  a\n  \n  b")),
        (r#"{{ indent 0 "a" }}"#, Ok("a")),
        (
            r#"{{ indent -1 "a" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <indent -1 "a">: error calling indent: strings: negative Repeat count"#,
            ),
        ),
        (r#"{{ replace "a" "b" "banana" }}"#, Ok("bbnbnb")),
        (r#"{{ replace "" "-" "aäc" }}"#, Ok("-a-ä-c-")),
        (r#"{{ repeat 3 "ab" }}"#, Ok("ababab")),
        (r#"{{ plural "one" "many" 1 }}"#, Ok("one")),
        (r#"{{ plural "one" "many" 2 }}"#, Ok("many")),
        (
            r#"{{ repeat -1 "a" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <repeat -1 "a">: error calling repeat: strings: negative Repeat count"#,
            ),
        ),
        (r#"{{ trunc 3 "hello" }}"#, Ok("hel")),
        (r#"{{ trunc -3 "hello" }}"#, Ok("llo")),
        (r#"{{ trunc 10 "a" }}"#, Ok("a")),
        (r#"{{ trunc -10 "a" }}"#, Ok("a")),
        (r#"{{ substr 1 3 "hello" }}"#, Ok("el")),
        (r#"{{ substr -1 3 "hello" }}"#, Ok("hel")),
        (r#"{{ substr 2 -1 "hello" }}"#, Ok("llo")),
        (r#"{{ substr 2 99 "hello" }}"#, Ok("llo")),
        (r#"{{ trunc 1 "ä" | len }}"#, Ok("1")),
        (
            r#"{{ substr 3 2 "hello" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <substr 3 2 "hello">: error calling substr: runtime error: slice bounds out of range [3:2]"#,
            ),
        ),
        (
            r#"{{ substr -1 9 "hello" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <substr -1 9 "hello">: error calling substr: runtime error: slice bounds out of range [:9] with length 5"#,
            ),
        ),
        (
            r#"{{ substr -1 -2 "hello" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <substr -1 -2 "hello">: error calling substr: runtime error: slice bounds out of range [:-2]"#,
            ),
        ),
        (
            r#"{{ substr 9 -1 "hello" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <substr 9 -1 "hello">: error calling substr: runtime error: slice bounds out of range [9:5]"#,
            ),
        ),
        (r#"{{ split "," "a,b,c" }}"#, Ok("map[_0:a _1:b _2:c]")),
        (r#"{{ (split "," "a,b,c")._1 }}"#, Ok("b")),
        (r#"{{ (split "," "a")._9 }}"#, Ok("")),
        (r#"{{ splitn "," 2 "a,b,c" }}"#, Ok("map[_0:a _1:b,c]")),
        (r#"{{ splitn "," 0 "a" }}"#, Ok("map[]")),
        (r#"{{ splitn "," -1 "a,b" }}"#, Ok("map[_0:a _1:b]")),
        (r#"{{ splitList "," "a,b" }}"#, Ok("[a b]")),
        (r#"{{ splitList "" "aäb" }}"#, Ok("[a ä b]")),
        (r#"{{ splitList "," "" | len }}"#, Ok("1")),
        (r#"{{ join "-" .Values.mixed }}"#, Ok("1-x-true-map[k:1]")),
        (r#"{{ join "," "a" }}"#, Ok("a")),
        (r#"{{ join "," nil }}"#, Ok("")),
        (r#"{{ join "," (until 3) }}"#, Ok("0,1,2")),
        (r#"{{ join "," .Values.map }}"#, Ok("map[x:1 y:map[z:deep]]")),
        (r#"{{ "a,b" | splitList "," | join "+" }}"#, Ok("a+b")),
        (r#"{{ quote (toDate "2006-01-02" "2021-03-04") }}"#, Ok(r#""2021-03-04 00:00:00 +0000 UTC""#)),
        (r#"{{ cat (toDate "2006-01-02" "2021-03-04") }}"#, Ok("2021-03-04 00:00:00 +0000 UTC")),
    ]);
}

#[test]
fn toml() {
    check_all(&[
        (r#"{{ toToml (dict "a" 1) }}"#, Ok("a = 1\n")),
        (
            r#"{{ toToml (dict "a" 1 "b" "x\"y" "c" true "d" 1.5 "e" (list 1 2) "f" (list) "g" 1e6 "h" 1e21 "i" "multi\nline" "j" 3.0 "k" (list 1 "a" 1.5)) }}|"#,
            Ok(
                "a = 1\nb = \"x\\\"y\"\nc = true\nd = 1.5\ne = [1, 2]\nf = []\ng = 1e+06\nh = 1e+21\ni = \"multi\\nline\"\nj = 3.0\nk = [1, \"a\", 1.5]\n|",
            ),
        ),
        (
            r#"{{ toToml (dict "l" (list (dict "a" 1 "n" (dict "z" 1)) (dict "b" 2))) }}|"#,
            Ok("[[l]]\n  a = 1\n  [l.n]\n    z = 1\n\n[[l]]\n  b = 2\n|"),
        ),
        (r#"{{ toToml (dict "l" (list (list 1 2) (list 3))) }}|"#, Ok("l = [[1, 2], [3]]\n|")),
        (r#"{{ toToml (dict "l" (list (dict "a" 1) 3)) }}|"#, Ok("l = [{a = 1}, 3]\n|")),
        (r#"{{ toToml (dict "n" nil "a" 1) }}|"#, Ok("a = 1\n|")),
        (r#"{{ toToml (dict "l" (list nil 1)) }}|"#, Ok("toml: cannot encode array with nil element|")),
        ("{{ toToml (list 1 2) }}|", Ok("[1, 2]|")),
        (r#"{{ toToml "a" }}|"#, Ok(r#""a"|"#)),
        ("{{ toToml 3 }}|", Ok("3|")),
        (
            "{{ toToml nil }}|",
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <toToml nil>: error calling toToml: reflect: call of reflect.Value.Type on zero Value"#,
            ),
        ),
        ("{{ toToml (dict) }}|", Ok("|")),
        (r#"{{ toToml (fromJson "null") }}|"#, Ok("|")),
        (r#"{{ toToml (dict "e" (dict)) }}|"#, Ok("[e]\n|")),
        (r#"{{ toToml (dict "e" (dict "f" (dict))) }}|"#, Ok("[e]\n  [e.f]\n|")),
        ("{{ toToml .Values }}|", Ok("toml: cannot encode array with nil element|")),
        (r#"{{ mustToToml (dict "a" 1) }}|"#, Ok("a = 1\n|")),
        ("{{ mustToToml (list 1) }}|", Ok("[1]|")),
        (r#"{{ toToml (dict "a" (list (list (dict "x" 1)))) }}|"#, Ok("a = [[{x = 1}]]\n|")),
        (r#"{{ toToml (dict "a" (list (dict))) }}|"#, Ok("[[a]]\n|")),
        (r#"{{ toToml (dict "d" (toDate "2006-01-02" "2020-01-02")) }}|"#, Ok("d = 2020-01-02T00:00:00Z\n|")),
        (
            r#"{{ toToml (dict "s" (splitList "," "a,b") "m" (split "," "a,b")) }}|"#,
            Ok("s = [\"a\", \"b\"]\n\n[m]\n  _0 = \"a\"\n  _1 = \"b\"\n|"),
        ),
        (
            r#"{{ toToml (dict "a" (dict "b" (list (dict "c" (list (dict "d" 1)))))) }}|"#,
            Ok("[a]\n\n  [[a.b]]\n\n    [[a.b.c]]\n      d = 1\n|"),
        ),
        (
            r#"{{ toToml (dict "s" "tab\tctl\x01del\x7f\\ uni\u00e4 q'") }}|"#,
            Ok("s = \"tab\\tctl\\u0001del\\u007f\\\\ uniä q'\"\n|"),
        ),
        (
            r#"{{ toToml (dict "a" -1 "b" (int64 5) "c" 0.1 "d" -0.0 "e" 1e-7 "f" 123456789.0) }}|"#,
            Ok("a = -1\nb = 5\nc = 0.1\nd = -0.0\ne = 1e-07\nf = 1.23456789e+08\n|"),
        ),
        (
            r#"{{ fromToml "a = 1\nb = \"x\"\n[t]\nc = [1, 2.5, \"z\"]\n" }}|"#,
            Ok("map[a:1 b:x t:map[c:[1 2.5 z]]]|"),
        ),
        (
            r#"{{ fromToml "a = 'lit'\nb = \"\"\"\nmulti\nline\"\"\"\nc = 0x1F\nd = 1_000\ne = true\nf = { x = 1, y.z = 2 }\n" }}|"#,
            Ok("map[a:lit b:multi\nline c:31 d:1000 e:true f:map[x:1 y:map[z:2]]]|"),
        ),
        (
            r#"{{ fromToml "[[l]]\na = 1\n[[l]]\na = 2\n[l.sub]\nb = 3\n" }}|"#,
            Ok("map[l:[map[a:1] map[a:2 sub:map[b:3]]]]|"),
        ),
        (r#"{{ fromToml "" }}|"#, Ok("map[]|")),
        (
            r#"{{ fromToml "a.b.c = 1\n\"q k\".x = 2\n# comment\n" }}|"#,
            Ok("map[a:map[b:map[c:1]] q k:map[x:2]]|"),
        ),
        (
            r#"{{ fromToml "a = 1 b = 2" }}|"#,
            Ok(
                "map[Error:toml: line 1: expected a top-level item to end with a newline, comment, or EOF, but got 'b' instead]|",
            ),
        ),
        (
            r#"{{ fromToml "a = inf\nb = nan\nc = 1e3\nd = -0\ne = 0b101\nf = 0o17" }}|"#,
            Ok("map[a:+Inf b:NaN c:1000 d:0 e:5 f:15]|"),
        ),
        (r#"{{ fromToml "a = -nan\nb = +nan" | toToml }}|"#, Ok("a = -nan\nb = nan\n|")),
        (r#"{{ float64 "-NaN" }} {{ float64 "+nan" }}|"#, Ok("0 0|")),
        (r#"{{ fromToml "a = \"\\u00e4\\n\\\"\"" }}|"#, Ok("map[a:ä\n\"]|")),
        (r#"{{ fromToml "a = '''\nx\ny'''" }}|"#, Ok("map[a:x\ny]|")),
        (
            r#"{{ fromToml "[a]\nb = 1\n[a]\nc = 2" }}|"#,
            Ok("map[Error:toml: line 3: Key 'a' has already been defined.]|"),
        ),
        (r#"{{ fromToml "[a.b]\nc = 1\n[a]\nd = 2" }}|"#, Ok("map[a:map[b:map[c:1] d:2]]|")),
        (r#"{{ fromToml "a = [\n 1, # c\n 2,\n]\n" }}|"#, Ok("map[a:[1 2]]|")),
        (r#"{{ fromToml "\ufeffa = 1\r\nb = 2" }}|"#, Ok("map[a:1 b:2]|")),
        (
            r#"{{ fromToml "a = 07:32\nb = 1979-05-27 07:32Z" | toJson }}|"#,
            Ok(r#"{"a":"0000-01-01T07:32:00Z","b":"1979-05-27T07:32:00Z"}|"#),
        ),
        (
            r#"{{ range list "a = 9223372036854775808" "a = 0XAB" "a = +0x1" "a = 1\rb = 2" " # \x01" "a = \"\x7f\"" }}{{ hasKey (fromToml .) "Error" }} {{ end }}"#,
            Ok("true true true true true true "),
        ),
        (r#"{{ toToml (list (dict "a" 1)) }}"#, Ok("toml: top-level values must be Go maps or structs")),
    ]);
}

#[test]
fn urls() {
    check_all(&[
        (
            "{{ urlParse .Values.url }}",
            Ok(
                "map[fragment:frag host:host.example:8443 hostname:host.example opaque: path:/a/b c query:q=1&r=2 scheme:https userinfo:user:pa%20ss]",
            ),
        ),
        (
            "{{ urlJoin (urlParse .Values.url) }}",
            Ok("https://user:pa%20ss@host.example:8443/a/b%20c?q=1&r=2#frag"),
        ),
        (
            r#"{{ urlParse "a/b?c" }}"#,
            Ok("map[fragment: host: hostname: opaque: path:a/b query:c scheme: userinfo:]"),
        ),
        (
            r#"{{ urlParse "mailto:a@b.c" }}"#,
            Ok("map[fragment: host: hostname: opaque:a@b.c path: query: scheme:mailto userinfo:]"),
        ),
        (
            r#"{{ urlJoin (dict "scheme" "http" "host" "h" "path" "a b" "query" "q=1") }}"#,
            Ok("http://h/a%20b?q=1"),
        ),
        (r#"{{ urlJoin (dict "host" "h" "path" "/p") }}"#, Ok("//h/p")),
        ("{{ urlJoin (dict) }}", Ok("")),
        (
            r#"{{ urlParse "http://[::1]:80/x" }}"#,
            Ok("map[fragment: host:[::1]:80 hostname:::1 opaque: path:/x query: scheme:http userinfo:]"),
        ),
        (
            r#"{{ urlParse "//host/p" }}"#,
            Ok("map[fragment: host:host hostname:host opaque: path:/p query: scheme: userinfo:]"),
        ),
        (r#"{{ urlParse "" }}"#, Ok("map[fragment: host: hostname: opaque: path: query: scheme: userinfo:]")),
        (
            r#"{{ urlJoin (dict "scheme" "https" "host" "h:1" "userinfo" "u:p" "path" "/x" "fragment" "f g") }}"#,
            Ok("https://u:p@h:1/x#f%20g"),
        ),
        (
            r#"{{ urlParse "http://a b/" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <urlParse "http://a b/">: error calling urlParse: unable to parse url: parse "http://a b/": invalid character " " in host name"#,
            ),
        ),
        (
            r#"{{ urlParse ":foo" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <urlParse ":foo">: error calling urlParse: unable to parse url: parse ":foo": missing protocol scheme"#,
            ),
        ),
        (
            r#"{{ urlParse "http://h:x/" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <urlParse "http://h:x/">: error calling urlParse: unable to parse url: parse "http://h:x/": invalid port ":x" after host"#,
            ),
        ),
        (
            r#"{{ urlParse "http://h/%zz" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <urlParse "http://h/%zz">: error calling urlParse: unable to parse url: parse "http://h/%zz": invalid URL escape "%zz""#,
            ),
        ),
        (
            r#"{{ urlJoin (dict "host" 1) }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <urlJoin (dict "host" 1)>: error calling urlJoin: unable to parse host key, must be of type string, but int found"#,
            ),
        ),
        (
            r#"{{ urlParse "http://user@host" }}"#,
            Ok("map[fragment: host:host hostname:host opaque: path: query: scheme:http userinfo:user]"),
        ),
        (
            r#"{{ urlParse "http://host:80" }}"#,
            Ok("map[fragment: host:host:80 hostname:host opaque: path: query: scheme:http userinfo:]"),
        ),
        (
            r#"{{ urlParse "/p?a=b#c%20d" }}"#,
            Ok("map[fragment:c d host: hostname: opaque: path:/p query:a=b scheme: userinfo:]"),
        ),
        (
            r#"{{ urlParse "http://h/%C3%A4%2F" }}"#,
            Ok("map[fragment: host:h hostname:h opaque: path:/ä/ query: scheme:http userinfo:]"),
        ),
        (r#"{{ urlJoin (urlParse "http://h/%C3%A4%2F?x#y z") }}"#, Ok("http://h/%C3%A4/?x#y%20z")),
        (r#"{{ urlJoin (dict "path" "a:b") }}"#, Ok("./a:b")),
        (r#"{{ urlJoin (dict "scheme" "mailto" "opaque" "x@y") }}"#, Ok("mailto:x@y")),
        (
            r#"{{ urlParse "h ttp://x" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <urlParse "h ttp://x">: error calling urlParse: unable to parse url: parse "h ttp://x": first path segment in URL cannot contain colon"#,
            ),
        ),
        (
            r#"{{ urlParse "HTTP://Host/" }}"#,
            Ok("map[fragment: host:Host hostname:Host opaque: path:/ query: scheme:http userinfo:]"),
        ),
        (r#"{{ urlJoin (dict "path" "a b?c#d%") }}"#, Ok("a%20b%3Fc%23d%25")),
        (
            r#"{{ urlParse "http://[fe80::1%25en0]:80/" }}"#,
            Ok(
                "map[fragment: host:[fe80::1%en0]:80 hostname:fe80::1%en0 opaque: path:/ query: scheme:http userinfo:]",
            ),
        ),
        (
            r#"{{ urlParse "?q" }}"#,
            Ok("map[fragment: host: hostname: opaque: path: query:q scheme: userinfo:]"),
        ),
        (
            r##"{{ urlParse "#f" }}"##,
            Ok("map[fragment:f host: hostname: opaque: path: query: scheme: userinfo:]"),
        ),
        (
            r#"{{ urlParse "a:b:c" }}"#,
            Ok("map[fragment: host: hostname: opaque:b:c path: query: scheme:a userinfo:]"),
        ),
        (
            r#"{{ urlParse "http:///p" }}"#,
            Ok("map[fragment: host: hostname: opaque: path:/p query: scheme:http userinfo:]"),
        ),
        (r#"{{ urlJoin (urlParse "http:///p") }}"#, Ok("http:///p")),
        (r#"{{ urlJoin (urlParse "file:///etc") }}"#, Ok("file:///etc")),
        (
            r#"{{ urlParse "1http://x" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <urlParse "1http://x">: error calling urlParse: unable to parse url: parse "1http://x": first path segment in URL cannot contain colon"#,
            ),
        ),
        (
            r#"{{ urlParse "a b:c" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <urlParse "a b:c">: error calling urlParse: unable to parse url: parse "a b:c": first path segment in URL cannot contain colon"#,
            ),
        ),
        (
            r#"{{ urlParse "http://us er@h" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <urlParse "http://us er@h">: error calling urlParse: unable to parse url: parse "http://us er@h": net/url: invalid userinfo"#,
            ),
        ),
        (
            r#"{{ urlParse "http://h\x7f" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <urlParse "http://h\x7f">: error calling urlParse: unable to parse url: parse "http://h\x7f": net/url: invalid control character in URL"#,
            ),
        ),
    ]);
}

#[test]
fn versions() {
    check_all(&[
        (r#"{{ semverCompare ">=1.2.3" "1.3.0" }}"#, Ok("true")),
        (r#"{{ semverCompare "^1.2" "1.9" }}"#, Ok("true")),
        (r#"{{ semverCompare "~1.2.0" "1.3.0" }}"#, Ok("false")),
        (r#"{{ semverCompare ">=1.30-0" "1.31.2-gke.1" }}"#, Ok("true")),
        (r#"{{ semverCompare "1.x || 3.x" "3.2" }}"#, Ok("true")),
        (r#"{{ semverCompare "1 - 2" "1.5" }}"#, Ok("true")),
        (r#"{{ (semver "1.2.3-alpha.1+b").Prerelease }}"#, Ok("alpha.1")),
        (r#"{{ (semver "v1.2").Original }}"#, Ok("v1.2")),
        (r#"{{ semver "v1.2" }}"#, Ok("1.2.0")),
        (r#"{{ (semver "1.2.3").Major }}"#, Ok("1")),
        (r#"{{ (semver "1.2.3").Compare (semver "1.2.4") }}"#, Ok("-1")),
        (r#"{{ (semver "1.2.3").IncMinor }}"#, Ok("1.3.0")),
        (
            r#"{{ semver "abc" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <semver "abc">: error calling semver: invalid semantic version"#,
            ),
        ),
        (
            r#"{{ semverCompare "abc" "1.0.0" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <semverCompare "abc" "1.0.0">: error calling semverCompare: improper constraint: "abc""#,
            ),
        ),
        (
            r#"{{ semverCompare ">1" "x" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <semverCompare ">1" "x">: error calling semverCompare: invalid semantic version"#,
            ),
        ),
        (
            r#"{{ semverCompare "" "1.0.0" }}"#,
            Err(
                r#"template: t/templates/t.yaml:1:3: executing "t/templates/t.yaml" at <semverCompare "" "1.0.0">: error calling semverCompare: improper constraint: """#,
            ),
        ),
        (
            r#"{{ (semver "1.2.3").Nope }}"#,
            Err(
                "t/templates/t.yaml:1:11\n  executing \"t/templates/t.yaml\" at <\"1.2.3\">:\n    can't evaluate field Nope in type *semver.Version",
            ),
        ),
        (
            r#"{{ (semver "1.2.3").Major 1 }}"#,
            Err(
                "t/templates/t.yaml:1:11\n  executing \"t/templates/t.yaml\" at <\"1.2.3\">:\n    wrong number of args for Major: want 0 got 1",
            ),
        ),
        (r#"{{ semverCompare ">=1.19-0" "v1.36.0" }}"#, Ok("true")),
        (r#"{{ semverCompare "<1.14-0 || >=1.19" "1.15" }}"#, Ok("false")),
        (r#"{{ semverCompare "=1.2" "1.2.9" }}"#, Ok("true")),
        (r#"{{ semverCompare "!=1.2" "1.2.9" }}"#, Ok("false")),
        (r#"{{ semverCompare ">1.2" "1.2.9" }}"#, Ok("false")),
        (r#"{{ semverCompare "<=1.2" "1.2.9" }}"#, Ok("true")),
        (r#"{{ semverCompare "~>1.2.3" "1.2.9" }}"#, Ok("true")),
        (r#"{{ semverCompare "*" "1.2.3-a" }}"#, Ok("false")),
        (r#"{{ semverCompare "1.2.3 - 2.0" "2.0.5" }}"#, Ok("true")),
        (r#"{{ semverCompare "^0.2.3" "0.3.0" }}"#, Ok("false")),
        (r#"{{ semverCompare ">= 1.2, < 2" "1.5" }}"#, Ok("true")),
        (r#"{{ semverCompare "1.2.x" "1.2.3" }}"#, Ok("true")),
        (r#"{{ semverCompare "^1.2.3-beta" "1.2.3-rc" }}"#, Ok("true")),
        (r#"{{ (semver "1.2.3+b").Metadata }}"#, Ok("b")),
    ]);
}

#[test]
fn words() {
    check_all(&[
        ("{{ upper .Values.uni }}", Ok("ÄPFEL ß 日本")),
        ("{{ lower .Values.uni }}", Ok("äpfel ß 日本")),
        (r#"{{ title "hello wORLD foo-bar it's ä ß" }}"#, Ok("Hello WORLD Foo-Bar It'S Ä ß")),
        (r#"{{ untitle "Hello World" }}"#, Ok("hello world")),
        (r#"{{ swapcase "Hello World fOO 1a" }}"#, Ok("hELLO wORLD Foo 1A")),
        (r#"{{ nospace "a b\tc" }}"#, Ok("abc")),
        (r#"{{ nospace "ä b" }}"#, Ok("Ã¤b")),
        (r#"{{ nospace "äb" }}"#, Ok("äb")),
        (r#"{{ initials "First Try x" }}"#, Ok("FTx")),
        (r#"{{ camelcase "http_server" }}"#, Ok("HttpServer")),
        (r#"{{ camelcase "some-words here" }}"#, Ok("SomeWordsHere")),
        (r#"{{ camelcase "_leading" }}"#, Ok("_Leading")),
        (r#"{{ camelcase "HTTPServer" }}"#, Ok("Httpserver")),
        (r#"{{ camelcase "a__b" }}"#, Ok("A_B")),
        (r#"{{ camelcase "" }}"#, Ok("")),
        (r#"{{ camelcase "x" }}"#, Ok("X")),
        (r#"{{ camelcase "foo_" }}"#, Ok("Foo_")),
        (r#"{{ camelcase "FOO_BAR" }}"#, Ok("FooBar")),
        (r#"{{ camelcase "--" }}"#, Ok("---")),
        (r#"{{ snakecase "HTTPServer" }}"#, Ok("http_server")),
        (r#"{{ snakecase "FirstName" }}"#, Ok("first_name")),
        (r#"{{ snakecase "HTTP20xOK" }}"#, Ok("http_20x_ok")),
        (r#"{{ snakecase "Bld4Floor3rd" }}"#, Ok("bld4_floor_3rd")),
        (r#"{{ snakecase "foo bar" }}"#, Ok("foo_bar")),
        (r#"{{ snakecase "foo-bar_Baz" }}"#, Ok("foo_bar_baz")),
        (r#"{{ snakecase "a1b2" }}"#, Ok("a_1b2")),
        (r#"{{ snakecase "A1B2" }}"#, Ok("a1_b2")),
        (r#"{{ snakecase "" }}"#, Ok("")),
        (r#"{{ snakecase "a..b" }}"#, Ok("a..b")),
        (r#"{{ snakecase "HTTP2xx" }}"#, Ok("http_2xx")),
        (r#"{{ snakecase "No.1Thing" }}"#, Ok("no.1_thing")),
        (r#"{{ kebabcase "ab世界🙂cd" }}"#, Ok("ab-世界🙂-cd")),
        (r#"{{ kebabcase "HTTPServer" }}"#, Ok("http-server")),
        (r#"{{ kebabcase "camelCase99Bottles" }}"#, Ok("camel-case99-bottles")),
        (r#"{{ snakecase "ÄpfelÖl" }}"#, Ok("äpfel_öl")),
        (r#"{{ snakecase "x$y" }}"#, Ok("x_$_y")),
        (r#"{{ wrap 5 "hello world foo bar" }}"#, Ok("hello\nworld\nfoo\nbar")),
        (r#"{{ wrap 3 "abcdefgh ij" }}"#, Ok("abcdefgh\nij")),
        (r#"{{ wrapWith 5 "\t" "hello world" }}"#, Ok("hello\tworld")),
        (r#"{{ wrapWith 3 "-" "abcdefghij" }}"#, Ok("abc-def-ghi-j")),
        (r#"{{ wrap 0 "ab" }}"#, Ok("ab")),
        (r#"{{ wrap 80 "" }}"#, Ok("")),
    ]);
}
