use super::*;

const NOW: Timestamp = Timestamp::from_unix(1_767_600_000);

fn before(seconds: u64) -> Timestamp {
    NOW.minus(Duration::from_secs(seconds))
}

fn part(name: &'static str, stage: &str) -> PartFacts {
    PartFacts { name, stage: stage.to_owned(), problem: None }
}

/// An agent at its work.
fn good() -> VerdictFacts {
    VerdictFacts {
        leading: true,
        was_ready: true,
        parts: vec![part("garden", "running"), part("seed", "running")],
        peers: vec![
            Peer { name: "garden", is_reachable: true, answered: Some(before(1)), why: None },
            Peer { name: "seed", is_reachable: true, answered: Some(before(1)), why: None },
        ],
        expires: Some(NOW.plus(Duration::from_secs(1))),
        ..VerdictFacts::default()
    }
}

fn failed(controller: &'static str, age: u64) -> Failed {
    let key = Key::new("n", "x");
    Failed { controller, key, error: "denied".to_owned(), since: before(age), is_final: false }
}

fn shoot(error: &str, age: u64) -> AgentProblem {
    let place = ProblemPlace::Object("Shoot", Key::new("n", "x"));
    AgentProblem { place, error: error.to_owned(), since: Some(before(age)), remedy: String::new() }
}

#[test]
fn without_problems_the_verdict_says_how_far_the_agent_is() {
    type Change = fn(&mut VerdictFacts);
    let table: [(&str, Change); 12] = [
        ("healthy", |_| {}),
        ("starting: looking for the leader's Lease in the seed", |f| f.leading = false),
        ("starting: looking for the leader's Lease in the seed", |f| {
            (f.leading, f.adrift_since) = (false, Some(before(29)));
        }),
        ("standing by for host-2", |f| (f.leading, f.leader) = (false, Some("host-2".to_owned()))),
        ("starting: seed: not started", |f| f.parts.clear()),
        ("starting: garden: getting an identity", |f| f.parts[0].stage = "getting an identity".to_owned()),
        ("starting: seed: installing", |f| f.parts[1].stage = "installing".to_owned()),
        ("starting: the Seed is being created, 40 %", |f| f.creating = Some(40)),
        ("starting: waiting for the first list of each watch", |f| f.was_ready = false),
        // Another agent led before.
        ("starting: waiting for the first list of each watch", |f| f.listing = true),
        // One lost request, and one failed reconciliation that the agent retries.
        ("healthy", |f| {
            f.peers[0] = Peer { name: "garden", is_reachable: false, answered: Some(before(9)), why: None };
            f.lease = Some(("refused".to_owned(), before(3)));
        }),
        ("healthy", |f| f.failed = vec![failed("shoot", 4)]),
    ];
    for (expected, change) in table {
        let mut facts = good();
        change(&mut facts);
        let (verdict, problems) = judge(&facts, NOW);
        assert_eq!((verdict.text.as_str(), problems), (expected, vec![]));
        assert_eq!(State::of_line(&verdict.text), verdict.state, "{expected}");
        assert_eq!(verdict.state.is_good(), !expected.starts_with("starting"), "{expected}");
    }
}

#[test]
fn each_problem_has_a_place_an_error_and_a_time() {
    type Change = fn(&mut VerdictFacts);
    let table: [(&str, &str, Option<u64>, Change); 13] = [
        ("clock", "wrong", Some(7), |f| {
            f.parts.push(PartFacts {
                name: "clock",
                stage: String::new(),
                problem: Some(("wrong".into(), before(7))),
            });
        }),
        ("heartbeat", "the thread makes no progress", None, |f| f.stuck = vec!["heartbeat"]),
        ("watch garden/seeds", "the watch has not received its first list", Some(200), |f| {
            f.late = vec![("garden/seeds", before(200))];
        }),
        ("garden certificate", "the certificate has expired", Some(0), |f| f.expires = Some(NOW)),
        ("garden", "the API server does not answer", Some(10), |f| {
            f.peers[0] = Peer { name: "garden", is_reachable: false, answered: Some(before(10)), why: None };
        }),
        ("garden", "the API server does not answer: refused", None, |f| {
            f.peers[0] = Peer { name: "garden", is_reachable: false, answered: None, why: None };
            f.lease = Some(("refused".to_owned(), before(3)));
        }),
        ("seed", "the API server does not answer: no route to host", None, |f| {
            let why = Some("no route to host".to_owned());
            f.peers[1] = Peer { name: "seed", is_reachable: false, answered: None, why };
            f.lease = Some(("not the leader".to_owned(), before(30)));
        }),
        ("seed lease", "the Lease is not renewed: refused", Some(10), |f| {
            f.lease = Some(("refused".to_owned(), before(10)));
        }),
        ("Shoot n/x", "broken", Some(30), |f| f.objects = vec![shoot("broken", 30)]),
        ("Shoot n/x", "denied", Some(5), |f| f.failed = vec![failed("shoot", 5)]),
        ("Shoot n/x", "broken", Some(99), |f| {
            f.objects = vec![shoot("broken", 30)];
            f.failed = vec![failed("shoot", 99), failed("shoot-care", 50)];
        }),
        ("controller garbage-collector (n/x)", "denied", Some(0), |f| {
            f.failed = vec![Failed { is_final: true, ..failed("garbage-collector", 0) }];
        }),
        (
            "leader election",
            "the leader is unknown: the leader's Lease in the seed cannot be read or written",
            Some(30),
            |f| {
                (f.leading, f.adrift_since) = (false, Some(before(30)));
            },
        ),
    ];
    for (place, error, age, change) in table {
        let mut facts = good();
        change(&mut facts);
        let (verdict, problems) = judge(&facts, NOW);
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        assert_eq!((problem.place.to_string().as_str(), problem.error.as_str()), (place, error));
        assert_eq!(problem.since, age.map(before), "{place}");
        assert_eq!(verdict.text, format!("1 problem: {place}: {error}"));
        assert!(verdict.state == State::Problems && State::of_line(&verdict.text) == State::Problems);
    }
}

#[test]
fn a_cause_is_named_once_and_first() {
    let mut facts = good();
    facts.parts[0].problem = Some(("connection refused".to_owned(), before(60)));
    facts.peers[0] = Peer { name: "garden", is_reachable: false, answered: None, why: None };
    facts.objects = vec![shoot(&"long\n".repeat(100), 5)];
    let (verdict, problems) = judge(&facts, NOW);
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert_eq!(verdict.text, "2 problems: garden: connection refused (and 1 more)");
    facts.parts[0].problem = None;
    facts.peers[0].is_reachable = true;
    let text = judge(&facts, NOW).0.text;
    assert!(text.starts_with("1 problem: Shoot n/x: long long ") && text.ends_with('\u{2026}'), "{text}");
    assert!(text.chars().count() < 140, "{text}");
}

#[test]
fn a_problem_has_a_command_to_copy() {
    let object = |kind, namespace: &str| ProblemPlace::Object(kind, Key::new(namespace, "x"));
    let part = |name: &str| ProblemPlace::Part(name.to_owned());
    let table = [
        (object("Shoot", "garden-p"), "gardenlet explain Shoot/garden-p/x --config=c.yaml"),
        (object("Seed", ""), "gardenlet explain Seed/x --config=c.yaml"),
        (part("garden"), "gardenlet doctor --config=c.yaml"),
        (part("configuration"), "gardenlet config validate --config=c.yaml"),
        (part("clock"), ""),
    ];
    for (place, expected) in table {
        assert_eq!(remedy(&place, &Call::new(Path::new("c.yaml"), &|_| None)), expected);
    }
}

#[test]
fn a_command_is_one_that_works_where_the_agent_runs() {
    let in_pod = ("KUBERNETES_SERVICE_HOST", "10.0.0.1");
    let table: [(&[(&str, &str)], &str); 6] = [
        (&[], "gardenlet"),
        (&[("INVOCATION_ID", "")], "gardenlet"),
        (&[("INVOCATION_ID", "9f2c")], "sudo gardenlet"),
        (&[in_pod], "kubectl --namespace garden exec deployment/gardenlet -- /gardenlet"),
        (
            &[in_pod, ("NAMESPACE", "edge")],
            "kubectl --namespace edge exec deployment/gardenlet -- /gardenlet",
        ),
        (
            &[in_pod, ("INVOCATION_ID", "9f2c")],
            "kubectl --namespace garden exec deployment/gardenlet -- /gardenlet",
        ),
    ];
    let seed = ProblemPlace::Object("Seed", Key::cluster("x"));
    for (variables, program) in table {
        let variable = |wanted: &str| {
            variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).to_owned())
        };
        let call = Call::new(Path::new("/c.yaml"), &variable);
        assert_eq!(remedy(&seed, &call), format!("{program} explain Seed/x --config=/c.yaml"));
    }
    assert_eq!(remedy(&seed, &Call::default()), "gardenlet explain Seed/x");
}

#[test]
fn a_quote_ends_between_words() {
    let quoted = |error: String| quote(&AgentProblem::part("p", error, None));
    assert_eq!(quoted("short".to_owned()), "p: short");
    let words = quoted(format!("{}templates/deployment.yaml", "word ".repeat(22)));
    assert!(words.ends_with("word \u{2026}") && words.len() < 120, "{words}");
    let long = quoted("x".repeat(200));
    assert_eq!(long, format!("p: {}\u{2026}", "x".repeat(117)));
}
