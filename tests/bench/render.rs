//! `gardenlet render` against `helm template` on the same charts, in one run.
//!
//! Times are medians of alternating runs, so that both programs meet the same machine. Memory is the highest resident
//! size of a process that has rendered everything and waits for a reader. Of several runs it is the highest, which a
//! machine must have: Helm's varies by a quarter, with its garbage collection.

use std::fs;
use std::io::{Read, Write, pipe};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use gardenlet::base::clock::Clock;

use crate::agent::number;
use crate::charts;
use crate::pause;
use crate::report::{Report, mb};

/// How often each program renders each chart.
const ROUNDS: usize = 9;
/// How often the memory of each is measured.
const PEAKS: usize = 9;
/// The capacity of a pipe on Linux.
const PIPE_BYTES: usize = 64 << 10;
/// A process that has used no processor time for this long waits.
const QUIET: Duration = Duration::from_millis(100);
/// The minimum ratio of helm's memory to ours. The peak of helm depends on when Go collects garbage, and varies by a quarter, so a
/// short run only prints it.
const MEMORY_RATIO_MIN: f64 = 10.0;
/// The highest memory of our program, for an ordinary chart and for a bundle of CRDs.
const MEMORY_MAX: [u64; 2] = [7_000_000, 12_000_000];

/// The two programs and the folder of their files.
pub(crate) struct Rival {
    pub(crate) own: PathBuf,
    pub(crate) helm: PathBuf,
    pub(crate) folder: PathBuf,
    pub(crate) clock: Clock,
    /// Helm's memory counts.
    pub(crate) demands_ratio: bool,
}

impl Rival {
    /// Renders every chart with both.
    pub(crate) fn compare(&self, report: &mut Report) {
        let start = self.times(&charts::empty(&self.folder));
        for chart in charts::all(&self.folder) {
            let output = |mut command: Command| command.output().unwrap();
            let (own, helm) = (output(self.own(&chart.path)), output(self.helm(&chart.path)));
            assert!(helm.status.success(), "{}", String::from_utf8_lossy(&helm.stderr));
            report.check(
                format!("render, {}: size of the output", chart.name),
                format!("{} bytes", own.stdout.len()),
                "the same",
                own.stdout == helm.stdout,
            );
            let (own, helm) = self.times(&chart.path);
            let goal = if chart.is_ordinary { "20 times" } else { "" };
            report.row("  time, and helm's", ratio(&millis(own), &millis(helm), quotient(own, helm)), goal);
            let engine = (own.saturating_sub(start.0), helm.saturating_sub(start.1));
            let times = quotient(engine.0, engine.1);
            report.row(
                "  beyond an empty chart",
                ratio(&millis(engine.0), &millis(engine.1), times),
                "5 times",
            );
            let (own, helm) = (self.peak(|| self.own(&chart.path)), self.peak(|| self.helm(&chart.path)));
            let max = MEMORY_MAX[usize::from(!chart.is_ordinary)];
            report.check("  peak memory", mb(own), &mb(max), own <= max);
            let times = helm as f64 / own as f64;
            let (name, value) = ("  and helm's", ratio(&mb(own), &mb(helm), times));
            if self.demands_ratio {
                report.check(name, value, "10 times", times >= MEMORY_RATIO_MIN);
            } else {
                report.row(name, value, "10 times");
            }
        }
    }

    fn own(&self, chart: &Path) -> Command {
        self.command(&self.own, "render", chart)
    }

    fn helm(&self, chart: &Path) -> Command {
        self.command(&self.helm, "template", chart)
    }

    /// The machine's own configuration must not have an effect.
    fn command(&self, program: &Path, word: &str, chart: &Path) -> Command {
        let mut command = Command::new(program);
        command.args([word, "release"]).arg(chart).env_clear().env("HOME", &self.folder);
        command
    }

    /// The median times of both.
    fn times(&self, chart: &Path) -> (Duration, Duration) {
        let (mut own, mut helm) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            own.push(self.time(self.own(chart)));
            helm.push(self.time(self.helm(chart)));
        }
        own.sort_unstable();
        helm.sort_unstable();
        (own[ROUNDS / 2], helm[ROUNDS / 2])
    }

    fn time(&self, mut command: Command) -> Duration {
        let begin = self.clock.mono();
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert!(status.success());
        self.clock.mono() - begin
    }

    /// The highest peak memory of some processes.
    fn peak(&self, command: impl Fn() -> Command) -> u64 {
        (0..PEAKS).map(|_| self.peak_of(command())).max().unwrap()
    }

    /// The peak memory of a process that cannot write, because its pipe is full.
    fn peak_of(&self, mut command: Command) -> u64 {
        let (mut reader, mut writer) = pipe().unwrap();
        writer.write_all(&[b'\n'; PIPE_BYTES]).unwrap();
        let mut child = command.stdout(writer).stderr(Stdio::null()).spawn().unwrap();
        // It has an end of the pipe, too.
        drop(command);
        let process = PathBuf::from(format!("/proc/{}", child.id()));
        let mut busy = u64::MAX;
        loop {
            pause(QUIET);
            let now = ticks(&process);
            if now == busy {
                break;
            }
            busy = now;
        }
        let peak = number(&process.join("status"), "VmHWM:") * 1_024;
        reader.read_to_end(&mut Vec::new()).unwrap();
        assert!(child.wait().unwrap().success());
        peak
    }
}

/// Processor time of all threads, in nanoseconds.
fn ticks(process: &Path) -> u64 {
    let tasks = fs::read_dir(process.join("task")).unwrap().flatten();
    let times = tasks.filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok());
    times.filter_map(|text| text.split(' ').next()?.parse::<u64>().ok()).sum()
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

fn quotient(own: Duration, helm: Duration) -> f64 {
    helm.as_secs_f64() / own.as_secs_f64().max(1e-6)
}

fn ratio(own: &str, helm: &str, times: f64) -> String {
    format!("{own}, {helm}: {times:.1} times")
}
