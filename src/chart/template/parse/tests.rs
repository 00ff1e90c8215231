use super::*;
use crate::limits::TEMPLATE_STACK_BYTES_MAX;

fn parsed(text: &str) -> Result<Vec<Tree>, String> {
    parse("t", &text.into(), StackGuard::new(TEMPLATE_STACK_BYTES_MAX)).map_err(|e| e.to_string())
}

#[test]
fn trees_print_as_they_were_written() {
    for text in [
        "{{if .a}}x{{else}}y{{end}}",
        "{{range $i, $e := .list}}{{$i}}{{break}}{{continue}}{{end}}",
        "{{with $x := (dict \"a\" 1).a | add 1}}{{$x.b.c}}{{end}}",
        "{{template \"n\" .}}{{template \"m\"}}",
        "{{$x = printf `%v` 'c' 0x1F nil true}}",
        "{{(now).Unix}}{{.a.b (.c.d 1)}}",
    ] {
        let trees = parsed(text).unwrap();
        let printed: String = trees.last().unwrap().root.iter().map(ToString::to_string).collect();
        assert_eq!(printed, text);
    }
}

#[test]
fn definitions_become_trees() {
    let trees = parsed("{{define \"a\"}}1{{end}}{{block \"b\" .}}2{{end}}").unwrap();
    let names: Vec<&str> = trees.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "t"]);
}
