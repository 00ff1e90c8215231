use std::cell::RefCell;

use super::*;
use crate::base::random;

/// Runs a command. Returns its output, its errors and its exit code.
fn run(line: &str) -> (String, String, u8) {
    let (mut input, output, errors) = (std::io::empty(), RefCell::default(), RefCell::default());
    let (mut out, mut err): (Vec<u8>, Vec<u8>) = (output.take(), errors.take());
    let mut io =
        Io { input: &mut input, is_terminal: false, output: &mut out, errors: &mut err, colour: false };
    let code = main(&mut io, line.split_whitespace().map(OsString::from).collect(), &|_| None);
    (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap(), code)
}

#[test]
fn a_store_is_listed() {
    let root = std::env::temp_dir().join(format!("gardenlet-list-{}", random::hex(12)));
    let folder = root.join("p/v2");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("Full-00000000-00000007-1600000000.gz"), "1234").unwrap();
    fs::write(folder.join("Incr-00000008-00000009-1600000100.gz"), "12").unwrap();
    fs::write(folder.join("other"), "1").unwrap();
    let store = format!("list --directory={} --prefix=p", root.display());
    let expected = format!(
        "2 snapshots in {}\n\
         2020-09-13T12:26:40Z full revision 7 4 bytes Full-00000000-00000007-1600000000.gz\n\
         2020-09-13T12:28:20Z delta revision 9 2 bytes Incr-00000008-00000009-1600000100.gz\n",
        folder.display()
    );
    assert_eq!(run(&store), (expected, String::new(), 0));
    let (json, _, code) = run(&format!("{store} -o json"));
    let json: Value = serde_json::from_str(&json).unwrap();
    let first = json!({"name": "Full-00000000-00000007-1600000000.gz", "kind": "full", "revision": 7,
        "time": "2020-09-13T12:26:40Z", "bytes": 4});
    assert_eq!((&json[0], json[1]["kind"].as_str(), code), (&first, Some("delta"), 0));
    fs::remove_dir_all(&root).unwrap();
    let (_, error, code) = run(&store);
    assert!(code == 1 && error.starts_with("gardenlet etcd: read the store "), "{error}");
}

#[test]
fn a_run_that_fails_says_why_in_its_result() {
    let result = std::env::temp_dir().join(format!("gardenlet-result-{}", random::hex(12)));
    fs::write(&result, "what was there before is longer than a result that says little ".repeat(9)).unwrap();
    // No program listens on this port.
    let line = format!(
        "snapshot --endpoint=http://127.0.0.1:1 --keep=1 --result={} --directory=/ --prefix=p",
        result.display()
    );
    let (output, error, code) = run(&line);
    assert_eq!((output.as_str(), code), ("", 1));
    let told: Value = serde_json::from_slice(&fs::read(&result).unwrap()).unwrap();
    let reason = told["error"].as_str().unwrap();
    assert!(
        reason.starts_with("ask etcd for its status (http://127.0.0.1:1): connect to 127.0.0.1:1"),
        "{reason}"
    );
    assert_eq!(error, format!("gardenlet etcd: {reason}\n"));
    fs::remove_file(&result).unwrap();
}

#[test]
fn a_command_line_without_meaning_ends_with_another_code() {
    let (_, error, code) = run("list");
    assert_eq!(
        (error.as_str(), code),
        ("gardenlet etcd list: --prefix is missing\nTry gardenlet etcd list --help.\n", 2)
    );
    let (help, _, code) = run("--help");
    assert!(help.starts_with("Usage:") && code == 0);
    assert_eq!(cut(&format!("a\n{}\u{e4}", "x".repeat(997))).len(), 999);
}
