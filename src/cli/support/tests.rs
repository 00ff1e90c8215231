use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::base::random;

/// Ten kinds of secrets, in the texts in which they come.
const PLANTED: [(&str, &str); 10] = [
    ("hunter2-kept-secret", "password: hunter2-kept-secret"),
    ("c2VjcmV0OnRva2VuOnZhbHVl", "Authorization: Basic c2VjcmV0OnRva2VuOnZhbHVl"),
    ("opaque~bearer.value~1", "sent Bearer opaque~bearer.value~1"),
    (
        "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJl",
        "refused eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJl",
    ),
    ("q1w2e3.a1b2c3d4e5f6g7h8", "bootstrap q1w2e3.a1b2c3d4e5f6g7h8 was taken"),
    ("pr0xypassw0rd", "dial https://me:pr0xypassw0rd@proxy.example.org:3128"),
    (
        "MIIEvQIBADANBgkqhkiG",
        "-----BEGIN PRIVATE KEY-----\\nMIIEvQIBADANBgkqhkiG\\n-----END PRIVATE KEY-----",
    ),
    ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "s3 wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    (
        "LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQo1",
        "client-key-data: LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQo1",
    ),
    ("5ca1ab1e0ddba11c0ffee0ddba11deadbeef0123", "session 5ca1ab1e0ddba11c0ffee0ddba11deadbeef0123"),
];

fn all_planted() -> String {
    PLANTED.iter().map(|(_, text)| format!("{text}\n")).collect()
}

/// A file of a test, which is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("gardenlet-support-{}", random::hex(12)));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Answers one request for the status, with this text.
fn agent(text: String) -> (u16, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let body = move || {
        let (mut socket, _) = listener.accept().unwrap();
        let _ = socket.read(&mut [0; 4_096]);
        socket
            .write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()).as_bytes())
            .unwrap();
    };
    (port, crate::base::thread::spawn("agent", 256 << 10, body).unwrap())
}

fn run(args: &[String], input: &[u8]) -> (u8, String, String) {
    let (mut input, mut output, mut errors) = (input, Vec::new(), Vec::new());
    let mut io =
        Io { input: &mut input, is_terminal: false, output: &mut output, errors: &mut errors, colour: false };
    let code = main(&mut io, args.iter().map(OsString::from).collect(), &|_| None);
    (code, String::from_utf8(output).unwrap(), String::from_utf8(errors).unwrap())
}

fn configuration_with(port: u16, seed_kubeconfig: &str) -> String {
    let planted: String = all_planted().lines().map(|line| format!("      {line}\n")).collect();
    format!(
        "apiVersion: gardenlet.config.gardener.cloud/v1alpha1\nkind: GardenletConfiguration\nlogLevel: debug\n\
         server: {{healthProbes: {{bindAddress: 127.0.0.1, port: {port}}}}}\n\
         seedClientConnection: {{kubeconfig: {seed_kubeconfig}}}\n\
         gardenClientConnection: {{kubeconfig: {seed_kubeconfig}}}\n\
         seedConfig:\n  metadata:\n    name: edge-1\n    annotations:\n      secretAccessKey: hunter2-kept-secret\n      note: |\n  {}",
        planted.replace('\n', "\n  ")
    ) + "\n  spec:\n    provider: {type: local, region: north}\n    networks: {pods: 10.51.0.0/16, services: 10.52.0.0/16}\n"
        + "    ingress: {domain: ingress.example.org, controller: {kind: nginx}}\n"
        + "    dns:\n      provider: {type: local, credentialsRef: {apiVersion: v1, kind: Secret, namespace: garden, name: dns}}\n"
        + "      internal: {type: local, domain: i.example.org, credentialsRef: {apiVersion: v1, kind: Secret, namespace: garden, name: dns}}\n"
}

#[test]
fn no_planted_secret_is_in_the_file_and_it_is_small() {
    let folder = Folder::new();
    let (config, output) = (folder.path("config.yaml"), folder.path("out.txt"));
    let (port, served) =
        agent(format!("healthy\n{}{}", all_planted(), "row of the status\n".repeat(100_000)));
    fs::write(&config, configuration_with(port, "/nowhere/token=hunter2-kept-secret")).unwrap();
    // Long lines, then short ones, and the secrets among the lines that stay.
    let long = format!("long {}\n", "x ".repeat(40_000)).repeat(40);
    let log =
        format!("{long}{}{}", (0..2_000).map(|n| format!("line {n}\n")).collect::<String>(), all_planted());
    let args = [
        "--config".to_owned(),
        config.display().to_string(),
        "--log=-".to_owned(),
        format!("--output={}", output.display()),
    ];
    let (code, told, errors) = run(&args, log.as_bytes());
    served.join().unwrap();
    assert_eq!((code, told), (0, format!("{}\n", output.display())), "{errors}");
    let text = fs::read_to_string(&output).unwrap();
    for (secret, _) in PLANTED {
        assert!(!text.contains(secret), "{secret} is in the file");
    }
    assert!(text.len() <= 2_000_000, "{} bytes", text.len());
    for wanted in [
        "gardenlet ",
        "===== status =====\n\nhealthy\n",
        "===== doctor =====\n",
        "name: edge-1",
        "logLevel: debug",
        CUT,
    ] {
        assert!(text.contains(wanted), "no {wanted:?} in {}", &text[..2_000]);
    }
    let log = text.split("===== log =====\n\n").nth(1).unwrap();
    assert_eq!(
        (log.lines().next(), log.lines().filter(|line| !line.is_empty()).count()),
        (Some("line 1010"), LOG_LINES)
    );
    for rest in ["password: [redacted]\n", "sent Bearer [redacted]\n", "session [redacted]\n"] {
        assert!(log.contains(rest), "no {rest:?} in the log");
    }
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&output).unwrap());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn planted_secrets_leave_the_last_lines_of_a_log() {
    let text = last_lines(&mut format!("begin\n{}end\n", all_planted()).as_bytes(), false).unwrap();
    assert!(text.starts_with("begin\n") && text.ends_with("\nend"), "{text}");
    for (secret, _) in PLANTED {
        assert!(!text.contains(secret), "{secret} is in {text}");
    }
    // The key begins before the lines that are shown.
    let key = format!("-----BEGIN PRIVATE KEY-----\n{}-----END PRIVATE KEY-----\n", "c2VjcmV0\n".repeat(50));
    let text = last_lines(&mut format!("{key}{}", "line\n".repeat(LOG_LINES - 9)).as_bytes(), false).unwrap();
    assert_eq!(text, format!("[redacted]{}", "\nline".repeat(LOG_LINES - 9)));
    // A long line is cut, and the lines before it stay.
    let long = format!("begin\n{}\nend", "y ".repeat(LOG_BYTES_MAX));
    let text = last_lines(&mut long.as_bytes(), false).unwrap();
    let cut = format!("begin\n{}{}\nend", "y ".repeat(16 << 10), CUT.trim_end());
    assert_eq!(text, cut);
    let many = format!("{}\n", "z ".repeat(16_000)).repeat(50);
    let text = last_lines(&mut many.as_bytes(), false).unwrap();
    assert!(text.len() <= LOG_BYTES_MAX && text.len() > LOG_BYTES_MAX - 32_000, "{}", text.len());
    assert!(text.lines().all(|line| line.len() == 32_000), "a line is cut");
    let in_line = last_lines(&mut &b"half a token\nend\n"[..], true).unwrap();
    assert_eq!(in_line, "end");
}

#[test]
fn the_last_lines_of_a_log_of_any_length_are_its_last() {
    const LONG_BYTES: u64 = 300 << 20;
    let mut stream = io::repeat(b'x').take(LONG_BYTES).chain(&b"\nlast of the stream\n"[..]);
    assert!(last_lines(&mut stream, false).unwrap().ends_with("\nlast of the stream"));
    let folder = Folder::new();
    let path = folder.path("log");
    let mut file = File::create(&path).unwrap();
    file.set_len(LONG_BYTES).unwrap();
    file.seek(SeekFrom::End(0)).unwrap();
    file.write_all(b"\nlast of the file\n").unwrap();
    assert_eq!(log(&Log::File(path), &mut io::empty()), Ok("last of the file".to_owned()));
}

#[test]
fn a_journal_without_entries_says_what_to_do() {
    let entry = "2026-11-27T23:00:00+0000 edge-1 gardenlet[7]: ready";
    let hint =
        "Hint: You are currently not seeing messages from other users and the system.\n-- No entries --";
    let table = [
        (entry, None),
        ("-- No entries --", Some("exit status: 0: -- No entries --")),
        (hint, Some("from other users and the system. -- No entries --")),
        ("", Some("exit status: 0: ")),
    ];
    for (text, expected) in table {
        let said = entries(text.to_owned(), "exit status: 0");
        match expected {
            None => assert_eq!(said.unwrap(), text),
            Some(end) => assert!(said.unwrap_err().to_string().ends_with(end), "{text}"),
        }
    }
    // With journalctl and without it.
    let why = log(&Log::Unit("gardenlet-of-no-machine".to_owned()), &mut io::empty()).unwrap_err();
    assert!(why.contains("run the command as root, or name the unit of the agent with --unit"), "{why}");
}

#[test]
fn only_the_owner_may_read_the_file_and_no_link_is_followed() {
    let folder = Folder::new();
    let (old, link, other) = (folder.path("old"), folder.path("link"), folder.path("other"));
    for path in [&old, &other] {
        fs::write(path, "old and longer").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    }
    std::os::unix::fs::symlink(&other, &link).unwrap();
    save(&old, "new").unwrap();
    assert_eq!(fs::read_to_string(&old).unwrap(), "new");
    assert_eq!(fs::metadata(&old).unwrap().permissions().mode() & 0o777, 0o600);
    for path in [&link, &folder.0] {
        assert!(
            save(path, "new").unwrap_err().to_string().contains("something other than a file"),
            "{path:?}"
        );
    }
    assert_eq!(fs::read_to_string(&other).unwrap(), "old and longer");
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 3, "a temporary file is left");
}

#[test]
fn what_cannot_be_read_is_said_in_the_file() {
    let folder = Folder::new();
    let broken = folder.path("broken.yaml");
    fs::write(&broken, "a: [hunter2-kept-secret\n").unwrap();
    let args = |config: &Path| {
        [
            "--config".to_owned(),
            config.display().to_string(),
            "--log=/nowhere/log".to_owned(),
            "--output=-".to_owned(),
        ]
    };
    let (code, text, errors) = run(&args(&folder.path("none.yaml")), b"");
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(
        text.contains("; name the file with --config") && text.contains("/nowhere/log: No such file"),
        "{text}"
    );
    let (code, text, _) = run(&args(&broken), b"");
    assert!(code == 0 && text.contains("is no YAML, so it is left out"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
    let mut into_nowhere = args(&broken).to_vec();
    into_nowhere[3] = "--output=/nowhere/file".to_owned();
    let (code, _, errors) = run(&into_nowhere, b"");
    assert!(code == 1 && errors.contains("cannot write /nowhere/file: No such file"), "{errors}");
}

#[test]
fn command_lines_are_read() {
    let parsed = |line: &str| parse(line.split_whitespace().map(OsString::from).collect(), None);
    let order =
        |config: &str, output: &str, log: Log| Order { config: config.into(), output: output.into(), log };
    let unit = |name: &str| Log::Unit(name.to_owned());
    assert_eq!(parsed(""), Ok(Some(order(CONFIG, OUTPUT, unit(UNIT)))));
    assert_eq!(
        parsed("--config=c --output - --unit=gardenlet@edge-1"),
        Ok(Some(order("c", "-", unit("gardenlet@edge-1"))))
    );
    assert_eq!(parsed("--log=- -h"), Ok(None));
    let by_variable = parse(Vec::new(), Some("/v.yaml".into()));
    assert_eq!(by_variable, Ok(Some(order("/v.yaml", OUTPUT, unit(UNIT)))));
    for wrong in ["--unit=a --log=b", "--log=a --log=b", "--config=a --config=b", "x", "-o yaml"] {
        assert!(parsed(wrong).is_err(), "{wrong}");
    }
    for option in ["--config", "--output", "--log", "--unit"] {
        let (code, _, errors) = run(&[format!("{option}=")], b"");
        let expected = format!("gardenlet support-bundle: {option} needs a value\n");
        assert!(code == 2 && errors.starts_with(&expected), "{errors}");
    }
}
