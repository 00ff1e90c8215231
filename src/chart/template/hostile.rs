//! Templates that exceed limits: each ends with an error, in bounded time, on a stack of 8 MiB.

use super::*;

fn on_main_stack<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    crate::base::thread::spawn("test", 8 << 20, body).unwrap().join().unwrap()
}

/// The error of a template, or the end of its output.
fn outcome(text: String, steps_max: u64) -> String {
    on_main_stack(move || {
        let mut set = Templates::new(Options { steps_max, ..Options::default() });
        let result = set.parse("t", &text).and_then(|()| set.render("t", &Value::map::<&str>([])));
        match result {
            Ok(text) => text.chars().take(100).collect(),
            Err(e) => {
                let text = e.to_string();
                drop(e);
                text.chars().skip(text.chars().count().saturating_sub(100)).collect()
            }
        }
    })
}

fn assert_ends(text: impl Into<String>, want: &str) {
    let (text, start) = (text.into(), Clock::system().mono());
    let shown: String = text.chars().take(80).collect();
    // If another limit ends the template, it needs enough steps to grow.
    let got = outcome(text, if want == "steps" { 400_000 } else { TEMPLATE_STEPS_MAX });
    assert!(got.contains(want), "{shown}: {got}");
    let took = Clock::system().mono().saturating_sub(start);
    assert!(took.as_secs() < 60, "{shown}: {took:?}");
}

#[test]
fn recursion_ends() {
    for (text, want) in [
        ("{{ define \"a\" }}{{ include \"a\" . }}{{ end }}{{ include \"a\" . }}", ""),
        ("{{ define \"a\" }}{{ template \"a\" . }}{{ end }}{{ template \"a\" . }}", "too deeply"),
        ("{{ define \"a\" }}{{ include (cat . 1) . }}{{ end }}{{ template \"a\" . }}", ""),
        ("{{ define \"a\" }}{{ tpl \"{{ include `a` . }}\" . }}{{ end }}{{ include \"a\" . }}", ""),
        (
            "{{ define \"a\" }}{{ range list 1 }}{{ with 1 }}{{ if 1 }}{{ (include \"a\" .) | upper }}{{ end }}{{ end }}{{ end }}{{ end }}{{ include \"a\" . }}",
            "",
        ),
        ("{{ $t := \"{{ tpl . . }}\" }}{{ tpl $t $t }}", "too deeply"),
    ] {
        assert_ends(text, want);
    }
    // Helm's limit on one name, on a sufficiently large stack.
    let deep = crate::base::thread::spawn("test", 256 << 20, || {
        let mut set = Templates::new(Options { stack_bytes_max: 250 << 20, ..Options::default() });
        set.parse("t", "{{ define \"a\" }}{{ include \"a\" . }}{{ end }}{{ include \"a\" . }}").unwrap();
        set.render("t", &Value::Nil).unwrap_err().to_string()
    });
    let text = deep.unwrap().join().unwrap();
    assert!(text.ends_with("rendering template has a nested reference name: a: unable to execute template"));
    assert_eq!(text.matches("error calling include").count(), 1_002);
}

#[test]
fn nesting_of_the_text_ends() {
    for (open, inner, close, want) in [
        ("{{ if 1 }}", "x", "{{ end }}", "nests too deeply"),
        ("{{ if 1 }}{{ else }}", "x", "{{ end }}", "nests too deeply"),
        ("{{ range list }}", "x", "{{ end }}", "nests too deeply"),
    ] {
        assert_ends(format!("{}{inner}{}", open.repeat(50_000), close.repeat(50_000)), want);
    }
    assert_ends(format!("{{{{ {}1{} }}}}", "(".repeat(100_000), ")".repeat(100_000)), "max expression depth");
    assert_ends(
        format!("{{{{ if 0 }}}}{}{{{{ end }}}}", "{{ else if 0 }}".repeat(100_000)),
        "nests too deeply",
    );
    assert_ends(format!("{{{{ {}1 }}}}", "1 | ".repeat(100_000)), "non executable command");
    assert_ends(format!("{{{{ list {} }}}}", "1 ".repeat(600_000)), "more than 1048576 words");
}

#[test]
fn loops_and_growth_end() {
    for (text, want) in [
        ("{{ range until 100000 }}{{ range until 100000 }}{{ end }}{{ end }}", "steps"),
        ("{{ range 4000000000 }}{{ end }}", "steps"),
        ("{{ range 4000000000 }}{{ genPrivateKey `rsa` }}{{ end }}", "steps"),
        ("{{ range 4000000000 }}{{ bcrypt `a` }}{{ end }}", "steps"),
        ("{{ range 4000000000 }}{{ derivePassword 1 `pin` `a` `b` `c` }}{{ end }}", "steps"),
        (
            "{{ $x := list 1 }}{{ range until 12 }}{{ $x = list $x $x }}{{ end }}{{ range until 100000 }}{{ $y := deepCopy $x }}{{ end }}",
            "steps",
        ),
        ("{{ regexFindAll `(a.*b)|a` (repeat 100000 `a`) -1 | len }}", "steps"),
        ("{{ until 2000000000 }}", "items"),
        ("{{ seq 1 2000000000 }}", "items"),
        ("{{ repeat 2000000000 \"abc\" }}", "bytes"),
        ("{{ indent 2000000000 \"a\" }}", "bytes"),
        ("{{ printf \"%1000000000d\" 1 }}", "NOVERB"),
        ("{{ randAlphaNum 2000000000 }}", "bytes"),
        ("{{ $x := \"ab\" }}{{ range until 100 }}{{ $x = print $x $x }}{{ end }}", "bytes"),
        ("{{ $x := \"ab\" }}{{ range until 100 }}{{ $x = replace \"a\" $x $x }}{{ end }}", "bytes"),
        ("{{ $x := \"ab\" }}{{ range until 100 }}{{ $x = join $x (list $x $x $x) }}{{ end }}", "bytes"),
        ("{{ $x := list 1 2 }}{{ range until 100 }}{{ $x = concat $x $x }}{{ end }}", "items"),
        ("{{ $x := list 1 }}{{ range until 100 }}{{ $x = list $x $x }}{{ end }}{{ $x }}", "too large"),
        ("{{ $x := list 1 }}{{ range until 100 }}{{ $x = list $x $x }}{{ end }}{{ toJson $x | len }}", "0"),
        ("{{ $x := list 1 }}{{ range until 100 }}{{ $x = list $x $x }}{{ end }}{{ toYaml $x | len }}", "0"),
        (
            "{{ $x := list 1 }}{{ range until 100 }}{{ $x = list $x $x }}{{ end }}{{ deepCopy $x | len }}",
            "too large",
        ),
        ("{{ $x := list 1 }}{{ range until 100000 }}{{ $x = list $x }}{{ end }}{{ len $x }}", "1"),
        ("{{ $d := dict }}{{ $_ := set $d \"a\" $d }}{{ $d }}", "too large"),
        ("{{ $d := dict }}{{ $_ := set $d \"a\" $d }}{{ mustToJson $d }}", "cycle"),
        ("{{ $d := dict }}{{ $_ := set $d \"a\" $d }}{{ deepEqual $d $d }}", "true"),
        (
            "{{ $d := dict }}{{ $_ := set $d \"a\" $d }}{{ $e := dict }}{{ $_ := set $e \"a\" $e }}{{ deepEqual $d $e }}",
            "too large",
        ),
        (
            "{{ $d := dict }}{{ $_ := set $d \"a\" $d }}{{ $e := dict \"a\" (dict) }}{{ merge $e $d | len }}",
            "",
        ),
        ("{{ range until 100000 }}{{ repeat 1000 \"a\" }}{{ end }}", "bytes"),
        ("{{ regexMatch \"((a{100}){100}){100}\" \"a\" }}", "false"),
        ("{{ regexMatch \"(a*)*b\" (repeat 20000 \"a\") }}", "false"),
    ] {
        assert_ends(text, want);
    }
    assert_ends(format!("{{{{ regexMatch \"{}\" \"a\" }}}}", "(".repeat(100_000)), "false");
    assert_ends(format!("{{{{ fromJson \"{}\" }}}}", "[".repeat(100_000)), "Error");
    assert_ends(format!("{{{{ fromYaml \"{}\" }}}}", "[".repeat(100_000)), "Error");
}

#[test]
fn slow_functions_count_steps() {
    for text in [
        "{{ $a := list (repeat 1000000 `x`) }}{{ $b := list (repeat 1000000 `x`) }}{{ range until 100 }}{{ $x := deepEqual $a $b }}{{ end }}",
        "{{ $a := dict (repeat 1000000 `x`) 1 }}{{ $b := dict (repeat 1000000 `x`) 1 }}{{ range until 100 }}{{ $x := deepEqual $a $b }}{{ end }}",
        "{{ $t := repeat 1000000 `x` }}{{ $l := list $t }}{{ range until 5 }}{{ $l = concat $l $l }}{{ end }}{{ $x := uniq $l }}",
        "{{ $t := repeat 1000000 `x` }}{{ $l := list $t }}{{ range until 5 }}{{ $l = concat $l $l }}{{ end }}{{ $x := without $l $t }}",
        "{{ $t := repeat 1000000 `x` }}{{ $l := list $t }}{{ range until 5 }}{{ $l = concat $l $l }}{{ end }}{{ $x := has (replace `xx` `xy` $t) $l }}",
        "{{ range until 3000 }}{{ $x := divf 1e300 1e-300 }}{{ end }}",
        "{{ range until 3000 }}{{ $x := addf 1e300 1e-300 }}{{ end }}",
        "{{ $k := genPrivateKey `ecdsa` }}{{ range until 300 }}{{ $x := genSelfSignedCertWithKey `a` (list) (list) 1 $k }}{{ end }}",
        "{{ $c := genCA `a` 1 }}{{ range until 20 }}{{ $x := genCAWithKey `a` 1 $c.Key }}{{ end }}",
    ] {
        assert_ends(text, "steps");
    }
}

#[test]
fn long_needles_are_found() {
    let found = |haystack: &str, needle: &str| find(haystack.as_bytes(), needle.as_bytes());
    let needle = format!("{}b{}", "a".repeat(50), "ab".repeat(50));
    for before in ["", "a", "b", "aaaab", &"a".repeat(49), &needle[..120]] {
        let text = format!("{before}{needle}{needle}");
        assert_eq!(found(&text, &needle), text.find(&needle), "{before}");
    }
    assert_eq!(found(&"a".repeat(10_000), &needle), None);
    assert_eq!(found("", &needle), None);
}

/// Replaces each number with the extremes of Go's `int`. Test builds panic on arithmetic overflow.
#[test]
fn no_function_overflows() {
    use crate::chart::value::Type;
    // Keys and passwords are slow, and have no numbers to compute with.
    let is_slow =
        |name: &str| ["gen", "bcrypt", "derive", "htpasswd"].iter().any(|slow| name.starts_with(slow));
    const NUMBERS: [&str; 7] =
        ["-9223372036854775808", "9223372036854775807", "0", "-1", "7", "-9223372036854775800", "4294967296"];
    on_main_stack(move || {
        let options = || Options { steps_max: 400_000, ..Options::default() };
        let mut tries: Vec<String> = Vec::new();
        for function in functions::all().filter(|function| !is_slow(function.name)) {
            let more = function.signature.variadic.map_or(0, |_| 3);
            let count = function.signature.fixed.len() + more;
            for turn in 0..NUMBERS.len() * NUMBERS.len() {
                let argument = |i: usize| {
                    let kind = function.signature.fixed.get(i).copied().or(function.signature.variadic);
                    let number =
                        NUMBERS[(turn / if i.is_multiple_of(2) { 1 } else { NUMBERS.len() }) % NUMBERS.len()];
                    match kind {
                        Some(Type::Str) => "\"abcdefghij\"",
                        Some(Type::Map) => "(dict \"a\" 1)",
                        Some(Type::List) => "(list 1 2)",
                        Some(Type::Native(_)) => "(now)",
                        Some(Type::Float) => "1e300",
                        Some(Type::Bool) => "true",
                        _ => number,
                    }
                };
                let arguments: Vec<&str> = (0..count).map(argument).collect();
                tries.push(format!("{{{{ {} {} }}}}", function.name, arguments.join(" ")));
            }
        }
        for method in ["AddDate", "Format"] {
            for a in NUMBERS {
                for b in NUMBERS {
                    tries.push(format!("{{{{ (now.{method} {a} {b} 1).Format \"2006-01-02 MST\" }}}}"));
                    tries.push(format!("{{{{ now.{method} 1 {a} {b} }}}}{{{{ date \"2006-01-02\" {a} }}}}"));
                }
            }
        }
        for text in tries {
            let mut set = Templates::new(options());
            let _ = set.parse("t", &text).and_then(|()| set.render("t", &Value::Nil));
        }
    });
}

#[test]
fn mutated_templates_never_panic() {
    const SEEDS: [&str; 4] = [
        "{{- range $i, $e := .list }}{{ if eq $i 1 }}{{ $e | quote }}{{ else }}{{ printf \"%5.2f|%v\" 1.5 $e }}{{ end }}{{ end -}}",
        "{{ define \"a.b\" }}{{ with .x }}{{ .y.z }}{{ else with .q }}1{{ end }}{{ end }}{{ include \"a.b\" (dict \"x\" 1) }}",
        "{{/* c */}}{{ $x := dict \"a\" (list 1 'c' 0x1F 1e3 `raw`) }}{{ $x.a | join \",\" | regexReplaceAll \"(a)b*\" \"$1\" }}",
        "{{ tpl \"{{ .a | default `x` | indent 2 }}\" . }}{{ substr 0 -1 \"ä\" | trunc 1 | b64enc }}{{ index (list 1 2) 1 }}",
    ];
    let pieces: Vec<&[u8]> = vec![
        b"{{",
        b"}}",
        b"{{-",
        b"-}}",
        b"(",
        b")",
        b"|",
        b"\"",
        b"`",
        b"'",
        b"$",
        b".",
        b"end",
        b" ",
        b"\xc3\xa4",
        b"/*",
        b":=",
        b"-1",
    ];
    on_main_stack(move || {
        // A seeded generator, so that a failure can be repeated.
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = move |bound: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % u64::try_from(bound).unwrap()).unwrap()
        };
        for _ in 0..4_000 {
            let mut text = SEEDS[next(SEEDS.len())].as_bytes().to_vec();
            for _ in 0..=next(4) {
                let at = next(text.len());
                match next(3) {
                    0 => drop(text.drain(at..(at + 1 + next(5)).min(text.len()))),
                    1 => drop(text.splice(at..at, pieces[next(pieces.len())].iter().copied())),
                    _ => text[at] = b"{}()|\"`$.- 09ax\n"[next(16)],
                }
                if text.is_empty() {
                    text.push(b'{');
                }
            }
            let text = String::from_utf8_lossy(&text).into_owned();
            let mut set = Templates::new(Options::default());
            if set.parse("t", &text).is_ok() {
                let _ =
                    set.render("t", &Value::map([("list", Value::strings(["a", "b"])), ("a", "b".into())]));
            }
        }
    });
}
