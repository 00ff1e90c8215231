use super::*;
use crate::api::meta::Key;

const NOW: Timestamp = Timestamp::from_unix(1_767_600_000);

fn report() -> StatusReport {
    let place = verdict::ProblemPlace::Object("Shoot", Key::new("n", "<s1>"));
    let since = Some(Timestamp::from_unix(1_767_600_000 - 7_500));
    let problems = vec![
        AgentProblem {
            place,
            error: "it said\n\"<script>&'\"".to_owned(),
            since,
            remedy: "gardenlet explain".to_owned(),
        },
        AgentProblem::part("garden", "away", None),
    ];
    let verdict = AgentVerdict { state: State::Problems, text: "2 problems: \u{2026}".to_owned() };
    let mut report = StatusReport::new(verdict, problems, NOW);
    report.section("Agent");
    report.line("seed lease renewed", json!({"secondsAgo": 3}), "3 s ago");
    report.line("seed", json!("a<b>"), "a<b>");
    let part = json!({"stage": "running", "problem": "it said \"<script>&'\""});
    report.member("parts", "", "garden", part, "running".to_owned());
    report.section("Watches");
    report.member("watches", "watch ", "garden/seeds", json!({"synced": true}), "synced".to_owned());
    report.rest(true);
    report.row(ReportRow {
        label: "s2".to_owned(),
        text: "x".to_owned(),
        bar: Some(47),
        ..ReportRow::default()
    });
    report
}

#[test]
fn the_three_forms_say_the_same() {
    let mut report = report();
    let text = "2 problems: \u{2026}\n\nProblems\n  Shoot n/<s1> (for 2 h 5 min): it said \"<script>&'\"\n    run: gardenlet explain\n  garden: away\n\n\
        Agent\n  seed lease renewed: 3 s ago\n  seed: a<b>\n  garden: running\n    problem: it said \"<script>&'\"\n\n\
        Watches\n  watch garden/seeds: synced\n  s2: [####......] x\n";
    assert_eq!(report.text(false), text);
    let brief = text
        .replace("  watch garden/seeds: synced\n", "")
        .replace(" x\n", " x\n  1 at rest (--verbose shows them)\n");
    assert_eq!(report.text(true), brief);
    let html = page::html(&report, Some(5));
    assert!(html.contains("<title>2 problems \u{b7} a&lt;b&gt;</title>"), "{html}");
    let row = "<th>garden<td>running<p class=bad>it said &quot;&lt;script&gt;&amp;&#39;&quot;</p>";
    assert!(html.contains(row) && !html.contains("<script") && !html.contains("<s1>"), "{html}");
    assert!(
        html.contains("width:47%") && html.contains("content=5") && html.contains("for 2 h 5 min"),
        "{html}"
    );
    let rest =
        "<details><summary>1 at rest</summary><table><tr><th>watch garden/seeds<td>synced</table></details>";
    assert!(
        html.contains(rest) && html.contains("seen 2026-01-05T08:00:00Z") && html.contains("<code>gardenlet"),
        "{html}"
    );
    // The page loads nothing.
    assert!(!html.contains("src=") && !html.contains("url(") && !html.contains("//"), "{html}");
    let problems = report.json.remove("problems").unwrap();
    let first = json!({"object": "Shoot n/<s1>", "error": "it said\n\"<script>&'\"",
        "remedy": "gardenlet explain", "since": "2026-01-05T05:55:00Z", "seconds": 7_500});
    let second = json!({"part": "garden", "error": "away", "remedy": "", "since": null, "seconds": null});
    assert_eq!(problems, json!([first, second]));
    let expected = json!({"time": "2026-01-05T08:00:00Z", "verdict": {"state": "problems", "text": "2 problems: \u{2026}"}, "problemsTotal": 2,
        "seedLeaseRenewed": {"secondsAgo": 3}, "seed": "a<b>",
        "parts": {"garden": {"stage": "running", "problem": "it said \"<script>&'\""}},
        "watches": {"garden/seeds": {"synced": true}}});
    assert_eq!(Value::Object(report.json), expected);
}

#[test]
fn a_page_is_loaded_again_only_if_somebody_asks_for_it() {
    for (wanted, expected) in
        [(None, None), (Some(0), Some("content=1")), (Some(9_999), Some("content=3600"))]
    {
        let html = page::html(&report(), wanted);
        assert_eq!(html.contains("http-equiv=refresh"), expected.is_some());
        assert!(expected.is_none_or(|expected| html.contains(expected)), "{html}");
    }
}

#[test]
fn problems_have_a_maximum() {
    let problem = |n: usize| AgentProblem::part(&format!("p{n}"), "x", None);
    let all: Vec<AgentProblem> = (0..limits::STATUS_PROBLEMS_MAX + 7).map(problem).collect();
    let report = StatusReport::new(AgentVerdict::default(), all, NOW);
    assert!(report.text(false).ends_with("  and 7 more\n"), "{}", report.text(false));
    assert!(page::html(&report, None).contains("and 7 more"));
    assert_eq!(report.json["problems"].as_array().unwrap().len(), limits::STATUS_PROBLEMS_MAX);
}
