//! Random templates: every action, and calls of every function whose result depends only on its arguments. Arguments
//! mostly have the kind that a function expects.

use crate::tree::{Piece, Sort, Tree};
use support::random::Random;

/// The approximate kind of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Int,
    Float,
    Bool,
    List,
    Dict,
    Any,
}

use Kind::{Any, Bool, Dict, Float, Int, List, Text};

/// The values that every case sees as `.V`. Its texts are difficult for YAML, regular expressions, versions and paths.
pub(crate) const VALUES: &str = r#"
text: hello World
empty: ""
odd: "a: b # c\n  - d\t\"quoted\" 'single' \\ end "
unicode: "Grüße, 世界 🙂"
number_like: "0o17"
version: 1.22.3-rc.1+build
path: /a/b/../c.tar.gz
zero: 0
int: 42
negative: -7
big: 12345678901
float: 3.25
tiny: 0.000001
yes: true
no: false
nothing: null
list: [b, a, c, a]
numbers: [3, 1, 2]
mixed: [1, two, null, true, {k: v}, [x]]
none: []
map: {b: 2, a: 1, nested: {deep: [1, {x: y}]}}
maps: [{name: one, n: 1}, {name: two, n: 2}, {n: 3}]
hollow: {}
yaml: "a: 1\nb: [x, 0x10, 1_000, ~, yes, 1e3, 2001-01-01]\nc: |\n  text\n"
json: "{\"a\": [1, 2.50, null, \"x\"], \"b\": {\"c\": true}}"
"#;

const PATHS: &[(&str, Kind)] = &[
    (".V.text", Text),
    (".V.empty", Text),
    (".V.odd", Text),
    (".V.unicode", Text),
    (".V.number_like", Text),
    (".V.version", Text),
    (".V.path", Text),
    (".V.yaml", Text),
    (".V.json", Text),
    (".V.zero", Float),
    (".V.int", Float),
    (".V.negative", Float),
    (".V.big", Float),
    (".V.float", Float),
    (".V.tiny", Float),
    (".V.yes", Bool),
    (".V.no", Bool),
    (".V.nothing", Any),
    (".V.missing", Any),
    (".V.list", List),
    (".V.numbers", List),
    (".V.mixed", List),
    (".V.none", List),
    (".V.maps", List),
    (".V.map", Dict),
    (".V.map.nested", Dict),
    (".V.map.nested.deep", List),
    (".V.hollow", Dict),
    (".V", Dict),
];

/// Functions, the kinds of their arguments and results. Not included: functions that depend on chance, time or the
/// machine, functions that change their argument, and functions that end the rendering on purpose.
const FUNCTIONS: &[(&str, &[Kind], Kind)] = &[
    ("not", &[Any], Bool),
    ("and", &[Any, Any], Any),
    ("or", &[Any, Any, Any], Any),
    ("eq", &[Any, Any], Bool),
    ("eq", &[Text, Text, Text], Bool),
    ("ne", &[Float, Float], Bool),
    ("lt", &[Int, Int], Bool),
    ("le", &[Text, Text], Bool),
    ("gt", &[Float, Float], Bool),
    ("ge", &[Int, Float], Bool),
    ("len", &[List], Int),
    ("len", &[Text], Int),
    ("index", &[List, Int], Any),
    ("index", &[Dict, Text], Any),
    ("slice", &[List, Int], List),
    ("slice", &[Text, Int, Int], Text),
    ("html", &[Text], Text),
    ("js", &[Text], Text),
    ("urlquery", &[Text], Text),
    ("print", &[Any, Any], Text),
    ("println", &[Text, Any], Text),
    ("printf", &[Text, Any], Text),
    ("toYaml", &[Any], Text),
    ("toYamlPretty", &[Any], Text),
    ("toJson", &[Any], Text),
    ("toPrettyJson", &[Any], Text),
    ("toRawJson", &[Any], Text),
    ("toToml", &[Dict], Text),
    ("fromYaml", &[Text], Dict),
    ("fromYamlArray", &[Text], List),
    ("fromJson", &[Text], Dict),
    ("fromJsonArray", &[Text], List),
    ("toString", &[Any], Text),
    ("toStrings", &[List], List),
    ("toDecimal", &[Text], Int),
    ("int", &[Any], Int),
    ("int64", &[Any], Int),
    ("float64", &[Any], Float),
    ("atoi", &[Text], Int),
    ("quote", &[Any], Text),
    ("squote", &[Any], Text),
    ("cat", &[Any, Any], Text),
    ("indent", &[Int, Text], Text),
    ("nindent", &[Int, Text], Text),
    ("trim", &[Text], Text),
    ("trimAll", &[Text, Text], Text),
    ("trimPrefix", &[Text, Text], Text),
    ("trimSuffix", &[Text, Text], Text),
    ("upper", &[Text], Text),
    ("lower", &[Text], Text),
    ("title", &[Text], Text),
    ("untitle", &[Text], Text),
    ("swapcase", &[Text], Text),
    ("snakecase", &[Text], Text),
    ("camelcase", &[Text], Text),
    ("kebabcase", &[Text], Text),
    ("initials", &[Text], Text),
    ("nospace", &[Text], Text),
    ("repeat", &[Int, Text], Text),
    ("substr", &[Int, Int, Text], Text),
    ("trunc", &[Int, Text], Text),
    ("abbrev", &[Int, Text], Text),
    ("abbrevboth", &[Int, Int, Text], Text),
    ("wrap", &[Int, Text], Text),
    ("wrapWith", &[Int, Text, Text], Text),
    ("contains", &[Text, Text], Bool),
    ("hasPrefix", &[Text, Text], Bool),
    ("hasSuffix", &[Text, Text], Bool),
    ("replace", &[Text, Text, Text], Text),
    ("plural", &[Text, Text, Int], Text),
    ("sha1sum", &[Text], Text),
    ("sha256sum", &[Text], Text),
    ("adler32sum", &[Text], Text),
    ("b64enc", &[Text], Text),
    ("b64dec", &[Text], Text),
    ("b32enc", &[Text], Text),
    ("b32dec", &[Text], Text),
    ("split", &[Text, Text], Dict),
    ("splitList", &[Text, Text], List),
    ("splitn", &[Text, Int, Text], Dict),
    ("join", &[Text, List], Text),
    ("sortAlpha", &[List], List),
    ("list", &[Any, Any, Any], List),
    ("dict", &[Text, Any], Dict),
    ("get", &[Dict, Text], Any),
    ("hasKey", &[Dict, Text], Bool),
    ("keys", &[Dict], List),
    ("pluck", &[Text, Dict, Dict], List),
    ("pick", &[Dict, Text], Dict),
    ("omit", &[Dict, Text], Dict),
    ("dig", &[Text, Any, Dict], Any),
    ("deepCopy", &[Any], Any),
    ("set", &[Dict, Text, Any], Dict),
    ("unset", &[Dict, Text], Dict),
    ("merge", &[Dict, Dict], Dict),
    ("mergeOverwrite", &[Dict, Dict], Dict),
    ("first", &[List], Any),
    ("last", &[List], Any),
    ("rest", &[List], List),
    ("initial", &[List], List),
    ("append", &[List, Any], List),
    ("prepend", &[List, Any], List),
    ("concat", &[List, List], List),
    ("reverse", &[List], List),
    ("uniq", &[List], List),
    ("without", &[List, Any], List),
    ("has", &[Any, List], Bool),
    ("compact", &[List], List),
    ("chunk", &[Int, List], List),
    ("until", &[Int], List),
    ("untilStep", &[Int, Int, Int], List),
    ("seq", &[Int, Int], Text),
    ("add", &[Any, Any], Int),
    ("add1", &[Any], Int),
    ("sub", &[Int, Int], Int),
    ("mul", &[Int, Int], Int),
    ("div", &[Int, Int], Int),
    ("mod", &[Int, Int], Int),
    ("max", &[Int, Int], Int),
    ("min", &[Int, Any], Int),
    ("floor", &[Any], Float),
    ("ceil", &[Any], Float),
    ("round", &[Any, Int], Float),
    ("addf", &[Float, Float], Float),
    ("subf", &[Float, Float], Float),
    ("mulf", &[Float, Float], Float),
    ("divf", &[Float, Float], Float),
    ("maxf", &[Float, Any], Float),
    ("minf", &[Float, Float], Float),
    ("default", &[Any, Any], Any),
    ("empty", &[Any], Bool),
    ("coalesce", &[Any, Any, Any], Any),
    ("ternary", &[Any, Any, Bool], Any),
    ("all", &[Any, Any], Bool),
    ("any", &[Any, Any], Bool),
    ("typeOf", &[Any], Text),
    ("kindOf", &[Any], Text),
    ("typeIs", &[Text, Any], Bool),
    ("kindIs", &[Text, Any], Bool),
    ("typeIsLike", &[Text, Any], Bool),
    ("deepEqual", &[Any, Any], Bool),
    ("semver", &[Text], Text),
    ("semverCompare", &[Text, Text], Bool),
    ("regexMatch", &[Text, Text], Bool),
    ("regexFind", &[Text, Text], Text),
    ("regexFindAll", &[Text, Text, Int], List),
    ("regexReplaceAll", &[Text, Text, Text], Text),
    ("regexReplaceAllLiteral", &[Text, Text, Text], Text),
    ("regexSplit", &[Text, Text, Int], List),
    ("regexQuoteMeta", &[Text], Text),
    ("base", &[Text], Text),
    ("dir", &[Text], Text),
    ("ext", &[Text], Text),
    ("clean", &[Text], Text),
    ("isAbs", &[Text], Bool),
    ("osBase", &[Text], Text),
    ("urlParse", &[Text], Dict),
    ("urlJoin", &[Dict], Text),
    ("duration", &[Any], Text),
    ("durationRound", &[Text], Text),
    ("toDate", &[Text, Text], Int),
    ("lookup", &[Text, Text, Text, Text], Dict),
    ("tpl", &[Text, Dict], Text),
];

const TEXTS: &[&str] = &[
    r#""""#,
    r#""a""#,
    r#""b""#,
    r#""nested""#,
    r#"" x ""#,
    r#""a b c""#,
    r#""%v|%s""#,
    r#""%05d""#,
    r#""%q %T""#,
    r#""%-8.3v|""#,
    r#""%x""#,
    r#""true""#,
    r#""1""#,
    r#""0x1f""#,
    r#""1.5""#,
    r#""-3""#,
    r#""^1.2""#,
    r#"">=1.0 <2 || 3.x""#,
    r#""~1.22""#,
    r#""1.22.3""#,
    r#""[a-c]+""#,
    r#""(?i)H(.)l*""#,
    r#""(\\w+) (\\w+)""#,
    r#""${1}-$2""#,
    r#""\\d{2,}""#,
    r#""string""#,
    r#""map""#,
    r#""float64""#,
    r#""slice""#,
    r#""a,b,,c""#,
    r#"",""#,
    r#""é世""#,
    r#""line\nline\n""#,
    r#""- a\n- b: 1\n""#,
    r#""[1, 2, x]""#,
    r#""{\"a\": 1}""#,
    r#""a = 1\n[t]\nb = [1.5, 2.0]\n""#,
    r#""https://u:p@host:8443/p/q?x=1&y=2#frag""#,
    r#""1h30m""#,
    r#""90""#,
    r#""fooBarBaz""#,
    r#""FOO_bar-baz qux""#,
    r#""<a href=\"x\">&'</a>""#,
    r#""YWJj""#,
    r#""MFRGG===""#,
    "`raw \\n`",
    r#""{{ .V }}""#,
    r#""{{ 1 | add 2 }}""#,
    r#""2006-01-02""#,
    r#""2024-02-29""#,
    r#""null""#,
    r#""~""#,
    r#""a.b.c""#,
    r#""name""#,
    r#""V""#,
];
const INTS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "5",
    "-1",
    "-3",
    "7",
    "10",
    "0x10",
    "0b11",
    "0o17",
    "1_000",
    "'a'",
    "100",
    "9223372036854775807",
];
const FLOATS: &[&str] = &["0.0", "1.5", "-2.25", "1e3", "1e21", "1e-7", "3.0", "0.1", "100000000.0", "0x1p4"];

/// The variables that are visible at an operand.
#[derive(Clone, Default)]
struct Scope {
    variables: Vec<String>,
    /// Whether `.` is the root.
    root: bool,
    in_range: bool,
}

/// A random template.
pub(crate) fn template(random: &mut Random) -> Tree {
    let scope = Scope { root: true, ..Scope::default() };
    block(random, &scope, 3)
}

fn block(random: &mut Random, scope: &Scope, depth: usize) -> Tree {
    let mut scope = scope.clone();
    let count = 1 + random.below(3);
    let pieces = (0..count).map(|_| Piece::Tree(statement(random, &mut scope, depth))).collect();
    Tree::new(Sort::Block, pieces)
}

fn statement(random: &mut Random, scope: &mut Scope, depth: usize) -> Tree {
    if depth == 0 || random.chance(15) {
        return Tree::leaf(Sort::Block, *random.pick(&["text ", "\n", "  \n", " - ", "x", "{ }", "\t"]));
    }
    match random.below(12) {
        0 => branch(random, scope, depth),
        1 => with(random, scope, depth),
        2 | 3 => range(random, scope, depth),
        4 => variable(random, scope, depth),
        5 => Tree::leaf(
            Sort::Block,
            *random.pick(&["{{/* c */}}", "{{- /* c */ -}}", "{{ \"a\" -}} ", " {{- 1 }}"]),
        ),
        6 if scope.in_range => jump(random, scope, depth),
        _ => {
            let kind = *random.pick(&[Text, Text, Int, Float, Bool, List, Dict, Any]);
            let operand = operand(random, scope, kind, depth);
            action(random, vec![Piece::Tree(operand)])
        }
    }
}

/// The result for invalid TOML is a message whose words differ: only valid TOML is parsed.
const TOML: &[&str] = &[
    r#"(fromToml "a = 1\n[t]\nb = [1.5, 2.0]\n")"#,
    r#"(fromToml "a.b = 'x'\n[[t]]\nd = 2024-02-29T01:02:03Z\n[[t]]\n")"#,
    r#"(fromToml (toToml $.V.map))"#,
];

fn text(text: impl Into<String>) -> Piece {
    Piece::Text(text.into())
}

fn open(random: &mut Random) -> Piece {
    text(if random.chance(25) { "{{- " } else { "{{ " })
}

fn close(random: &mut Random) -> Piece {
    text(if random.chance(25) { " -}}" } else { " }}" })
}

fn action(random: &mut Random, inner: Vec<Piece>) -> Tree {
    let mut pieces = vec![open(random)];
    pieces.extend(inner);
    pieces.push(close(random));
    Tree::new(Sort::Block, pieces)
}

/// `{{ keyword ... }} block {{ else }} block {{ end }}`.
fn control(random: &mut Random, head: Vec<Piece>, body: Tree, otherwise: Vec<Piece>) -> Tree {
    let mut pieces = vec![open(random)];
    pieces.extend(head);
    pieces.extend([close(random), Piece::Tree(body)]);
    pieces.extend(otherwise);
    pieces.extend([open(random), text("end"), close(random)]);
    Tree::new(Sort::Block, pieces)
}

fn otherwise(random: &mut Random, scope: &Scope, depth: usize) -> Vec<Piece> {
    if random.chance(50) {
        return Vec::new();
    }
    vec![open(random), text("else"), close(random), Piece::Tree(block(random, scope, depth - 1))]
}

fn branch(random: &mut Random, scope: &Scope, depth: usize) -> Tree {
    let head = vec![text("if "), Piece::Tree(operand(random, scope, Any, depth))];
    let body = block(random, scope, depth - 1);
    let mut rest = Vec::new();
    if random.chance(30) {
        let condition = operand(random, scope, Bool, depth - 1);
        rest.extend([open(random), text("else if "), Piece::Tree(condition), close(random)]);
        rest.push(Piece::Tree(block(random, scope, depth - 1)));
    }
    rest.extend(otherwise(random, scope, depth));
    control(random, head, body, rest)
}

fn with(random: &mut Random, scope: &Scope, depth: usize) -> Tree {
    let head = vec![text("with "), Piece::Tree(operand(random, scope, Any, depth))];
    let body = block(random, &Scope { root: false, ..scope.clone() }, depth - 1);
    let rest = otherwise(random, scope, depth);
    control(random, head, body, rest)
}

fn range(random: &mut Random, scope: &Scope, depth: usize) -> Tree {
    let mut inner = Scope { root: false, in_range: true, ..scope.clone() };
    let name = |prefix: &str| format!("${prefix}{depth}");
    let mut head = vec![text("range ")];
    match random.below(3) {
        0 => {}
        1 => {
            inner.variables.push(name("v"));
            head.push(text(format!("{} := ", name("v"))));
        }
        _ => {
            inner.variables.extend([name("k"), name("v")]);
            head.push(text(format!("{}, {} := ", name("k"), name("v"))));
        }
    }
    let over = if random.chance(10) {
        Tree::leaf(Sort::Operand, *random.pick(&["3", "0", "(int 2)", ".V.zero"]))
    } else {
        let kind = *random.pick(&[List, List, Dict, Any]);
        operand(random, scope, kind, depth)
    };
    head.push(Piece::Tree(over));
    let body = block(random, &inner, depth - 1);
    let rest = otherwise(random, scope, depth);
    control(random, head, body, rest)
}

fn variable(random: &mut Random, scope: &mut Scope, depth: usize) -> Tree {
    let value = Piece::Tree(operand(random, scope, Any, depth));
    let assign = !scope.variables.is_empty() && random.chance(40);
    let (name, sign) = match assign {
        true => (random.pick(&scope.variables).clone(), "="),
        false => (format!("$x{}", scope.variables.len()), ":="),
    };
    // In one block together with its uses, it could not be removed alone: then the parser fails, and the case is not
    // minimized that way.
    let tree = action(random, vec![text(format!("{name} {sign} ")), value]);
    if !assign {
        scope.variables.push(name);
    }
    tree
}

fn jump(random: &mut Random, scope: &Scope, depth: usize) -> Tree {
    let head = vec![text("if "), Piece::Tree(operand(random, scope, Bool, depth - 1))];
    let word = *random.pick(&["{{ break }}", "{{- continue -}}"]);
    control(random, head, Tree::leaf(Sort::Block, word), Vec::new())
}

fn operand(random: &mut Random, scope: &Scope, kind: Kind, depth: usize) -> Tree {
    // Occasionally an argument of the wrong kind.
    let kind = if random.chance(4) { Any } else { kind };
    if depth == 0 || random.chance(30) {
        return plain(random, scope, kind);
    }
    let fits: Vec<_> = FUNCTIONS.iter().filter(|(_, _, gives)| kind == Any || *gives == kind).collect();
    let &&(name, wants, _) = random.pick(&fits);
    // The root is never changed: other cases see it, too.
    let writes = ["set", "unset", "merge", "mergeOverwrite"].contains(&name);
    let mut arguments: Vec<Piece> = Vec::new();
    for (n, want) in wants.iter().enumerate() {
        let argument = operand(random, scope, *want, depth - 1);
        arguments.push(match writes && n == 0 {
            true => Piece::Tree(Tree::new(
                Sort::Operand,
                vec![text("(deepCopy "), Piece::Tree(argument), text(")")],
            )),
            false => Piece::Tree(argument),
        });
    }
    let (before, after) = match name {
        // The order of keys is random in Go.
        "keys" => ("(sortAlpha (", "))"),
        // Go's structs are not printed: as YAML they show internal fields.
        "semver" => ("(", ").Original"),
        "toDate" => ("(", ").Year"),
        // Go's libraries print invalid UTF-8 differently.
        "b64dec" => ("(b64enc ", " | b64dec)"),
        "b32dec" => ("(b32enc ", " | b32dec)"),
        _ => ("(", ")"),
    };
    let mut pieces = vec![text(before)];
    if random.chance(30)
        && !name.ends_with("dec")
        && let Some(last) = arguments.pop()
    {
        pieces.extend([last, text(" | ")]);
    }
    if !name.ends_with("dec") {
        pieces.push(text(name));
    }
    for argument in arguments {
        pieces.extend([text(" "), argument]);
    }
    pieces.push(text(after));
    Tree::new(Sort::Operand, pieces)
}

fn plain(random: &mut Random, scope: &Scope, kind: Kind) -> Tree {
    if !scope.variables.is_empty() && random.chance(25) {
        return Tree::leaf(Sort::Operand, random.pick(&scope.variables).clone());
    }
    if !scope.root && random.chance(25) {
        return Tree::leaf(Sort::Operand, ".");
    }
    let paths: Vec<_> = PATHS.iter().filter(|(_, of)| kind == Any || *of == kind).collect();
    let literal = match kind {
        Text => Some(*random.pick(TEXTS)),
        Int => Some(*random.pick(INTS)),
        Float => Some(*random.pick(FLOATS)),
        Bool => Some(*random.pick(&["true", "false"])),
        List => Some(*random.pick(&["(list)", "(list 1 \"a\" 2.5)", "(list \"b\" \"a\")"])),
        Dict => Some(match random.below(4) {
            0 => *random.pick(TOML),
            1 => "(dict)",
            _ => "(dict \"a\" 1 \"b\" (list 1))",
        }),
        Any => None,
    };
    match literal {
        Some(literal) if paths.is_empty() || random.chance(60) => Tree::leaf(Sort::Operand, literal),
        // Paths start at the root, in every place.
        _ => Tree::leaf(Sort::Operand, format!("${}", random.pick(&paths).0)),
    }
}
