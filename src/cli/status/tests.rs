use std::net::{TcpListener, TcpStream};

use serde_json::Value;

use super::*;
use crate::base::{random, thread};
use crate::cli::tests::GOOD;
use crate::serve::{self, Routes, ServerResponse};

/// Runs a command. Returns its output, its errors and its exit code.
fn run(line: &str, colour: bool) -> (String, String, u8) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut io =
        Io { input: &mut io::empty(), is_terminal: false, output: &mut out, errors: &mut err, colour };
    let code = main(&mut io, line.split_whitespace().map(OsString::from).collect(), None);
    (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap(), code)
}

/// A server that answers as an agent does, with this page.
fn agent(text: &'static str, json: &'static str) -> serve::HttpServer {
    let routes = Routes::new().get_local("/statusz", move |request| {
        let is_json = request.values("format").next() == Some("json");
        ServerResponse::text(200, if is_json { json } else { text })
    });
    serve::start("127.0.0.1", 0, routes, &Stop::new()).unwrap()
}

#[test]
fn the_verdict_decides_the_exit_code() {
    let table = [
        ("healthy\n\nAgent\n  leading: true\n", 0),
        ("standing by for host-2\n", 0),
        ("starting: garden: getting an identity\n", 1),
        ("1 problem: garden: away\n", 1),
        ("something else\n", 1),
    ];
    for (text, expected) in table {
        let server = agent(text, "");
        let (output, errors, code) = run(&format!("--address={}", server.addr()), false);
        assert_eq!((output.as_str(), errors.as_str(), code), (text, "", expected));
    }
    let server = agent("", "{\"verdict\":{\"state\":\"healthy\",\"text\":\"healthy\"}}\n");
    let (output, _, code) = run(&format!("--address={} -o json", server.addr()), true);
    assert_eq!((output.as_str(), code), ("{\"verdict\":{\"state\":\"healthy\",\"text\":\"healthy\"}}\n", 0));
    let server = agent("", "{}");
    let (output, errors, code) = run(&format!("--address={} -o json", server.addr()), true);
    assert!(errors.is_empty() && code == 1, "{errors}");
    assert!(unreachable_text(&output).contains("not that of a gardenlet"), "{output}");
}

#[test]
fn the_packaged_configuration_names_the_address_if_it_can_be_read() {
    let mut io = Io {
        input: &mut io::empty(),
        is_terminal: false,
        output: &mut Vec::new(),
        errors: &mut Vec::new(),
        colour: false,
    };
    let path = std::env::temp_dir().join(format!("gardenlet-status-{}", random::hex(12)));
    let usual = (vec!["127.0.0.1".to_owned(), "::1".to_owned()], PORT);
    assert_eq!(place(&mut io, &Show::default(), &path), Ok(usual.clone()));
    std::fs::write(&path, "a: [1\n").unwrap();
    assert_eq!(place(&mut io, &Show::default(), &path), Ok(usual));
    let server = "server: {healthProbes: {bindAddress: 10.0.0.7, port: 3000}}\n";
    std::fs::write(&path, format!("{GOOD}{server}")).unwrap();
    let named = (vec!["10.0.0.7".to_owned()], 3_000);
    assert_eq!(place(&mut io, &Show::default(), &path), Ok(named));
    let address = Show { place: AgentPlace::Address("h".to_owned(), 1), ..Show::default() };
    assert_eq!(place(&mut io, &address, &path), Ok((vec!["h".to_owned()], 1)));
    std::fs::remove_file(path).unwrap();
}

/// The text of the document that takes the place of an answer.
fn unreachable_text(output: &str) -> String {
    let told: Value = serde_json::from_str(output).unwrap();
    assert_eq!(told["verdict"]["state"], "unreachable", "{output}");
    told["verdict"]["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_failure_is_json_for_those_who_ask_for_json() {
    let routes = Routes::new().get("/statusz", |_| ServerResponse::text(403, "no"));
    let server = serve::start("127.0.0.1", 0, routes, &Stop::new()).unwrap();
    let refusing = server.addr().to_string();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let table = [
        (format!("--address={free}"), format!("no agent answers at {free}: ")),
        (format!("--address={refusing}"), format!("{refusing} shows the status only to clients")),
        (
            "--config=/nowhere/c.yaml".to_owned(),
            "/nowhere/c.yaml: the configuration cannot be read".to_owned(),
        ),
    ];
    for (line, expected) in table {
        let (output, errors, code) = run(&format!("{line} -o json"), true);
        assert_eq!((errors.as_str(), code), ("", 1), "{line}");
        let text = unreachable_text(&output);
        assert!(text.starts_with(&expected), "{line}: {text}");
        let (output, errors, code) = run(&line, true);
        assert!(output.is_empty() && code == 1 && errors.contains(&expected), "{line}: {errors}");
    }
}

/// A server for one client that does this with the connection, after the request has begun to arrive.
fn server(answer: impl FnOnce(TcpStream) + Send + 'static) -> Agent {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(thread::spawn("server", 64 << 10, move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut request = [0; 1_024];
        assert!(client.read(&mut request).unwrap() > 0);
        answer(client);
    }));
    let (host, port) = (address.ip().to_string(), address.port());
    Agent { hosts: vec![host], port, verbose: false, patience: Duration::from_secs(60), stop: Stop::new() }
}

#[test]
fn an_answer_must_be_complete_in_time() {
    let trickle = |mut client: TcpStream| {
        let _ = client.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        // Each byte comes in time. An end, if nobody hangs up, makes it a complete answer.
        for _ in 0..1_000 {
            if client.write_all(b"x").is_err() {
                break;
            }
            Stop::new().wait(&Clock::system(), Duration::from_millis(20));
        }
    };
    let agent = Agent { patience: Duration::from_millis(200), ..server(trickle) };
    let why = agent.ask(false).err().unwrap();
    assert!(why.contains("the answer takes longer than 200ms"), "{why}");
    let endless = |mut client: TcpStream| while client.write_all(&[b'x'; 4 << 10]).is_ok() {};
    let why = server(endless).ask(false).err().unwrap();
    assert!(why.contains("the answer has more than 4194304 bytes"), "{why}");
}

#[test]
fn a_request_ends_with_the_stop() {
    let stop = Stop::new();
    let signal = stop.clone();
    let silent = move |mut client: TcpStream| {
        signal.stop();
        // Until the other side hangs up.
        while matches!(client.read(&mut [0; 1]), Ok(1..)) {}
    };
    let agent = Agent { stop, ..server(silent) };
    let why = agent.ask(false).err().unwrap();
    assert!(!why.contains("takes longer"), "{why}");
    let why = agent.ask(false).err().unwrap();
    assert!(why.contains("no agent answers at"), "{why}");
}

#[test]
fn an_answer_that_breaks_off_is_an_error() {
    let broken = |mut client: TcpStream| {
        let _ = client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhealthy\n");
    };
    let why = server(broken).ask(false).err().unwrap();
    assert!(why.contains("but the answer broke off: 8 of 100 bytes have arrived"), "{why}");
}

#[test]
fn colours_show_what_is_wrong_and_control_characters_show_nothing() {
    let text =
        "1 problem: x\n\nProblems\n  Shoot a/b: \u{1b}[2Jgone\n\nParts\n  garden: running\n    problem: y\n";
    let server = agent(text, "");
    let (output, _, code) = run(&format!("--address={}", server.addr()), true);
    let expected = "\u{1b}[31m1 problem: x\u{1b}[0m\n\n\u{1b}[1mProblems\u{1b}[0m\n\
        \u{1b}[31m  Shoot a/b: \\u001b[2Jgone\u{1b}[0m\n\n\u{1b}[1mParts\u{1b}[0m\n\u{1b}[2m  garden\u{1b}[0m: running\n\
        \u{1b}[31m    problem: y\u{1b}[0m\n";
    assert_eq!((output.as_str(), code), (expected, 1));
    let server = agent("starting: x\n", "");
    assert_eq!(run(&format!("--address={}", server.addr()), true).0, "\u{1b}[33mstarting: x\u{1b}[0m\n");
}

#[test]
fn without_an_agent_there_is_a_remedy() {
    let server = serve::start("127.0.0.1", 0, Routes::new(), &Stop::new()).unwrap();
    let address = server.addr().to_string();
    let (_, errors, code) = run(&format!("--address={address}"), false);
    assert!(code == 1 && errors.contains("answers, but with status 404"), "{errors}");
    drop(server);
    let (output, errors, code) = run(&format!("--address={address}"), false);
    assert_eq!((output.as_str(), code), ("", 1));
    assert!(errors.starts_with(&format!("gardenlet status: no agent answers at {address}: ")), "{errors}");
    assert!(errors.contains("--config=FILE") && errors.contains("kubectl port-forward"), "{errors}");
}

#[test]
fn an_agent_that_refuses_says_why() {
    let routes = Routes::new().get("/statusz", |_| ServerResponse::text(403, "no"));
    let server = serve::start("127.0.0.1", 0, routes, &Stop::new()).unwrap();
    let (_, errors, code) = run(&format!("--address={}", server.addr()), false);
    assert!(code == 1 && errors.contains("only to clients on its own machine"), "{errors}");
}

#[test]
fn a_command_line_without_meaning_ends_with_another_code() {
    let (_, errors, code) = run("--address=x", false);
    assert!(code == 2 && errors.ends_with("Try gardenlet status --help.\n"), "{errors}");
    let (help, _, code) = run("--help", false);
    assert!(help.starts_with("Usage:") && code == 0);
    let (_, errors, code) = run("--config=/nowhere/c.yaml", false);
    assert!(code == 1 && errors.contains("/nowhere/c.yaml"), "{errors}");
}

#[test]
fn an_agent_is_asked_over_loopback() {
    let table: [(&str, &[&str]); 6] = [
        ("", &["127.0.0.1", "::1"]),
        ("0.0.0.0", &["127.0.0.1"]),
        ("::", &["::1", "127.0.0.1"]),
        ("::1", &["::1"]),
        ("192.0.2.1", &["192.0.2.1"]),
        ("localhost", &["localhost"]),
    ];
    for (address, expected) in table {
        assert_eq!(inside(address), expected);
    }
    let agent = Agent { hosts: inside("::1"), ..server(drop) };
    assert!(agent.name().starts_with("[::1]:"));
}

#[test]
fn an_agent_that_listens_for_one_family_is_found() {
    let server = agent("healthy\n", "");
    let mut asked = Agent { hosts: inside("::"), ..self::server(drop) };
    asked.port = server.addr().port();
    assert!(asked.ask(false).unwrap().is_good, "it does not listen at ::1");
    drop(server);
    let why = asked.ask(false).err().unwrap();
    assert!(why.starts_with(&format!("no agent answers at [::1]:{}: ", asked.port)), "{why}");
}

#[test]
fn only_those_who_look_for_it_see_what_is_at_rest() {
    let routes = || {
        Routes::new().get_local("/statusz", |request| {
            ServerResponse::text(
                200,
                if request.has("brief") { "healthy\nbrief\n" } else { "healthy\nall\n" },
            )
        })
    };
    let server = serve::start("127.0.0.1", 0, routes(), &Stop::new()).unwrap();
    for (more, expected) in [("", "healthy\nbrief\n"), (" --verbose", "healthy\nall\n")] {
        assert_eq!(run(&format!("--address={}{more}", server.addr()), false).0, expected);
    }
}

#[test]
fn a_window_cuts_the_text_and_not_its_colours() {
    let text = "healthy\n\nAgent\n  leading: true\n  seed: edge-north\n".to_owned();
    let answer = Answer::new(text, false).unwrap();
    let window = |lines| Some(WindowSize { lines, columns: 15 });
    let shown = answer.shown(true, window(5));
    assert!(shown.ends_with("  seed\u{1b}[0m: edge-n\u{2026}\n"), "{shown:?}");
    assert!(answer.shown(true, window(2)).lines().last().unwrap().contains("and 4 more l\u{2026}"));
    assert_eq!(answer.shown(false, window(2)), "healthy\n\u{2026} and 4 more l\u{2026}\n", "NO_COLOR");
    assert_eq!(answer.shown(false, None).lines().count(), 5, "without a terminal, all is printed");
}

#[test]
fn answers_are_cut_at_the_end_of_their_head() {
    let table: [(&[u8], _); 6] = [
        (b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nx\r\n\r\ny", Ok((200, "x\r\n\r\ny".to_owned()))),
        (b"HTTP/1.1 403 No\r\ncontent-length: 2\r\n\r\n\xc3\xa4", Ok((403, "\u{e4}".to_owned()))),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n\xff\xff",
            Err("the answer broke off: 2 of 3 bytes have arrived".to_owned()),
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Le", Err(NO_AGENT.to_owned())),
        (b"SSH-2.0", Err(NO_AGENT.to_owned())),
        (b"HTTP/1.1 OK\r\n\r\n", Err(NO_AGENT.to_owned())),
    ];
    for (answer, expected) in table {
        assert_eq!(split(answer), expected, "{}", String::from_utf8_lossy(answer));
    }
}
