//! The page for a browser: one file without scripts, which loads nothing.

use std::fmt::Write as _;

use serde_json::Value;

use crate::format::human;
use crate::format::time::rfc3339;
use crate::limits;

use super::verdict::State;
use super::{ReportRow, Section, StatusReport, Tone};

/// The limits of the time in seconds after which a browser may load the page again.
const REFRESH: (u32, u32) = (1, 3_600);

/// The wide sections come first. The others share each row.
const STYLE: &str = "\
:root{color-scheme:light dark;--paper:#f3f5f8;--card:#fff;--ink:#1b2430;--soft:#5c6878;--line:#e4e8ee;--good:#1a7f4b;\
--bad:#c0322b;--busy:#1f6fd1;--wait:#8a6100;--goodbg:#e4f5ec;--badbg:#fdeceb;--busybg:#e6f0fc;--waitbg:#fdf3dc}\
@media(prefers-color-scheme:dark){:root{--paper:#11161d;--card:#1a212b;--ink:#e4e9f0;--soft:#95a1b2;--line:#2a3441;\
--good:#4cc38a;--bad:#ff7b72;--busy:#6cb0ff;--wait:#e3b341;--goodbg:#14301f;--badbg:#3b1a1a;--busybg:#14283f;--waitbg:#33280f}}\
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);\
font:15px/1.45 system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans','DejaVu Sans',sans-serif;overflow-wrap:break-word}\
main,header,footer{max-width:76rem;margin:0 auto;padding:0 1rem}\
header{display:flex;flex-wrap:wrap;align-items:baseline;gap:.2rem .8rem;padding-top:1.1rem}\
h1{font-size:1.15rem;margin:0}header p{margin:0;color:var(--soft);font-size:.87rem}\
.verdict{margin:.8rem 0 0;padding:.8rem 1.1rem;border-radius:.7rem;border-left:.4rem solid currentColor}\
.verdict strong{display:block;font-size:1.35rem;line-height:1.3}\
.good{color:var(--good)}.bad{color:var(--bad)}.busy{color:var(--busy)}.wait{color:var(--wait)}\
.verdict.good{background:var(--goodbg)}.verdict.bad{background:var(--badbg)}\
.verdict.busy{background:var(--busybg)}.verdict.wait{background:var(--waitbg)}\
main{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr));gap:1rem;align-items:start}\
section{background:var(--card);border:1px solid var(--line);border-radius:.7rem;padding:.7rem 1.1rem .8rem;min-width:0}\
.wide{grid-column:1/-1}h2{font-size:.78rem;letter-spacing:.06em;text-transform:uppercase;color:var(--soft);margin:.1rem 0 .4rem}\
table{width:100%;border-collapse:collapse;table-layout:fixed}tbody{display:block}\
tr{display:grid;grid-template-columns:minmax(0,14rem) minmax(0,1fr);gap:0 1rem;padding:.34rem 0;border-top:1px solid var(--line)}\
tr:first-child{border-top:0}th{text-align:left;font-weight:400;color:var(--soft)}\
.wide tr{grid-template-columns:minmax(0,20rem) minmax(0,1fr)}td p{margin:.1rem 0}code{font-size:.87rem;user-select:all}summary{cursor:pointer}\
th.good{color:var(--good)}th.bad{color:var(--bad)}th.busy{color:var(--busy)}\
.dot::before{content:'';display:inline-block;width:.6em;height:.6em;border-radius:50%;background:currentColor;margin-right:.55em}\
.dot b{font-weight:600;color:var(--ink)}td small,td .since{color:var(--soft);font-size:.87rem}\
.bar{height:.5rem;border-radius:.25rem;background:var(--busybg);margin:.45rem 0 .3rem;max-width:36rem;overflow:hidden}\
.bar i{display:block;height:100%;border-radius:.25rem;background:var(--busy)}\
.more,summary{color:var(--soft);margin:.4rem 0 0}footer{color:var(--soft);padding:1rem;font-size:.87rem}a{color:var(--busy)}\
@media(max-width:40rem){tr,.wide tr{grid-template-columns:minmax(0,1fr)}body{font-size:14px}}";

/// The sections that have long rows.
const WIDE: [&str; 2] = ["Shoots", "Extensions"];

/// With `refresh`, the browser loads the page again after this number of seconds.
pub(super) fn html(report: &StatusReport, refresh: Option<u32>) -> String {
    let seed = escape(report.json.get("seed").and_then(Value::as_str).unwrap_or_default());
    let verdict = report.verdict.text.split_once(": ").map(|(_, rest)| escape(rest)).unwrap_or_default();
    let (state, word) = match report.verdict.state {
        State::Healthy => ("good", report.verdict.text.clone()),
        State::Problems if report.problems.len() == 1 => ("bad", "1 problem".to_owned()),
        State::Problems => ("bad", format!("{} problems", report.problems.len())),
        State::StandingBy => ("busy", report.verdict.text.clone()),
        State::Starting => ("wait", "starting".to_owned()),
    };
    let word = escape(&word);
    let again = refresh.map(|seconds| seconds.clamp(REFRESH.0, REFRESH.1));
    let again =
        again.map(|seconds| format!("<meta http-equiv=refresh content={seconds}>")).unwrap_or_default();
    let mut out = format!(
        "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width,initial-scale=1\">\
        {again}<title>{word} \u{b7} {seed}</title><style>{STYLE}</style></head><body>\
        <header><h1>gardenlet {seed}</h1><p>{}</p></header><main><p class=\"wide verdict {state}\">\
        <strong>{word}</strong>{verdict}</p>",
        about(report)
    );
    problems(&mut out, report);
    let is_wide = |section: &&Section| WIDE.contains(&section.title);
    for each in report.sections.iter().filter(is_wide) {
        section(&mut out, each, " class=wide");
    }
    for each in report.sections.iter().filter(|section| !is_wide(section)) {
        section(&mut out, each, "");
    }
    out.push_str(
        "</main><footer>refresh: <a href=?format=html>off</a> \u{b7} <a href=\"?format=html&amp;refresh=5\">5 s</a> \u{b7} \
        <a href=\"?format=html&amp;refresh=30\">30 s</a> \u{2003} as <a href=?format=text>text</a> \u{b7} \
        <a href=?format=json>JSON</a></footer></body></html>\n",
    );
    out
}

/// The text beside the title.
fn about(report: &StatusReport) -> String {
    let version = report.json.get("version").and_then(Value::as_str);
    let uptime = report.json.get("uptime").and_then(|uptime| uptime["seconds"].as_u64());
    let uptime = uptime.map(|s| format!("up {}", human::lasting(std::time::Duration::from_secs(s))));
    let version = version.map(|version| format!("version {version}"));
    let time = Some(format!("seen {}", rfc3339(report.now)));
    let words: Vec<String> = [version, uptime, time].into_iter().flatten().collect();
    escape(&words.join(", "))
}

fn problems(out: &mut String, report: &StatusReport) {
    if report.problems.is_empty() {
        return;
    }
    // Writing to a String cannot fail.
    out.push_str("<section class=wide><h2>Problems</h2><table>");
    for problem in report.problems.iter().take(limits::STATUS_PROBLEMS_MAX) {
        let (place, error) = (escape(&problem.place.to_string()), escape(&problem.error));
        let since = escape(&report.since(problem));
        let _ = write!(
            out,
            "<tr><th class=\"dot bad\"><b>{place}</b><td>{error} <span class=since>{since}</span>"
        );
        if !problem.remedy.is_empty() {
            let _ = write!(out, "<p><code>{}</code></p>", escape(&problem.remedy));
        }
    }
    out.push_str("</table>");
    left_out(out, report.problems_left_out());
    out.push_str("</section>");
}

fn section(out: &mut String, section: &Section, class: &str) {
    let _ = write!(out, "<section{class}><h2>{}</h2><table>", escape(section.title));
    let (resting, busy): (Vec<&ReportRow>, Vec<&ReportRow>) =
        section.rows.iter().partition(|row| row.is_at_rest);
    rows(out, &busy);
    out.push_str("</table>");
    left_out(out, section.more);
    if !resting.is_empty() {
        let _ = write!(out, "<details><summary>{} at rest</summary><table>", resting.len());
        rows(out, &resting);
        out.push_str("</table></details>");
    }
    out.push_str("</section>");
}

fn rows(out: &mut String, rows: &[&ReportRow]) {
    for ReportRow { label, text, problem, bar, tone, .. } in rows {
        let (label, text) = (escape(label), escape(text));
        let dot = match tone {
            Tone::Plain => "",
            Tone::Good => "good",
            Tone::Busy => "busy",
            Tone::Bad => "bad",
        };
        match dot {
            "" => {
                let _ = write!(out, "<tr><th>{label}<td>");
            }
            // The text of a part contains its problem.
            "bad" if problem.is_some() => {
                let _ = write!(out, "<tr><th>{label}<td>");
            }
            dot => {
                let _ = write!(out, "<tr><th class=\"dot {dot}\"><b>{label}</b><td>");
            }
        }
        if let Some(percent) = bar {
            let _ = write!(out, "<div class=bar><i style=\"width:{percent}%\"></i></div>");
        }
        out.push_str(&text);
        if let Some(problem) = problem {
            let _ = write!(out, "<p class=bad>{}</p>", escape(problem));
        }
    }
}

fn left_out(out: &mut String, count: usize) {
    if count > 0 {
        let _ = write!(out, "<p class=more>and {count} more</p>");
    }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}
