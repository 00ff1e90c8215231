//! The agent as a process, and the kernel's figures about it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use gardenlet::base::clock::{Clock, Timestamp};
use gardenlet::base::stop::Stop;
use gardenlet::base::thread;

use crate::pause;
use support::options::patience;

/// A running agent, killed when dropped.
pub(crate) struct Agent {
    child: Child,
    /// Just before the process was started.
    pub(crate) started: Timestamp,
}

impl Agent {
    /// Starts the program; its log is appended to a file.
    pub(crate) fn start(program: &Path, config: &Path, log: &Path, clock: &Clock) -> Self {
        Self::run(Command::new(program), config, log, clock)
    }

    /// The same with a limit of its address space. It gets no memory beyond it.
    pub(crate) fn start_within(
        kib_max: usize,
        program: &Path,
        (config, log): (&Path, &Path),
        clock: &Clock,
    ) -> Self {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(format!("ulimit -v {kib_max} && exec \"$0\" \"$@\"")).arg(program);
        Self::run(command, config, log, clock)
    }

    fn run(mut command: Command, config: &Path, log: &Path, clock: &Clock) -> Self {
        let log = File::options().create(true).append(true).open(log).unwrap();
        command.arg(format!("--config={}", config.display())).env_clear().env("NAMESPACE", "garden");
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let started = clock.now();
        Self { child: command.spawn().unwrap(), started }
    }

    /// SIGTERM, and waits for the end; returns how long it took.
    pub(crate) fn terminate(mut self, clock: &Clock) -> Duration {
        let begin = clock.mono();
        let signal = Command::new("sh").args(["-c", &format!("kill -TERM {}", self.child.id())]).status();
        assert!(signal.is_ok_and(|status| status.success()), "the agent has ended before");
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the agent ended with {status}");
        clock.mono() - begin
    }

    /// SIGKILL: a crash.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Fails if it has ended.
    pub(crate) fn ensure_running(&mut self) {
        if let Some(status) = self.child.try_wait().unwrap() {
            panic!("the agent ended with {status}");
        }
    }

    pub(crate) fn memory(&self) -> Memory {
        Memory::read(&self.path())
    }

    /// Where its share of the memory is, in bytes.
    pub(crate) fn parts(&self) -> [(&'static str, u64); 4] {
        parts(&fs::read_to_string(self.path().join("smaps")).unwrap())
    }

    /// Resets the peak of resident memory, so that the next one covers only the time from now on.
    pub(crate) fn reset_peak(&self) {
        fs::write(self.path().join("clear_refs"), "5").unwrap();
    }

    /// Processor time so far, including ended children.
    pub(crate) fn cpu(&self) -> (Duration, Duration) {
        let stat = fs::read_to_string(self.path().join("stat")).unwrap();
        // The name in parentheses may contain blanks; after it, the state is field 3 of proc(5).
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks = |field: usize| fields[field - 3].parse::<u64>().unwrap();
        // USER_HZ is 100 on every supported Linux.
        let time = |ticks: u64| Duration::from_millis(ticks * 10);
        (time(ticks(14) + ticks(15)), time(ticks(16) + ticks(17)))
    }

    /// Processor time of its current threads so far, in nanoseconds: the ticks of [`Agent::cpu`] are too coarse for an
    /// idle agent.
    pub(crate) fn busy(&self) -> Duration {
        let times =
            self.tasks().into_iter().filter_map(|task| fs::read_to_string(task.join("schedstat")).ok());
        times.filter_map(|text| text.split(' ').next()?.parse().ok()).map(Duration::from_nanos).sum()
    }

    /// How often its threads were scheduled, so far: wake-ups keep a small host from sleeping.
    pub(crate) fn switches(&self) -> u64 {
        self.tasks().iter().map(|task| number(&task.join("status"), "voluntary_ctxt_switches:")).sum()
    }

    /// Its threads by name.
    pub(crate) fn threads(&self) -> BTreeMap<String, usize> {
        let mut names = BTreeMap::new();
        for task in self.tasks() {
            // A thread may end between the listing and this read.
            if let Ok(name) = fs::read_to_string(task.join("comm")) {
                *names.entry(name.trim().to_owned()).or_insert(0) += 1;
            }
        }
        names
    }

    /// Its open files, including connections.
    #[allow(dead_code)] // not every program that measures asks for it
    pub(crate) fn files(&self) -> usize {
        fs::read_dir(self.path().join("fd")).unwrap().count()
    }

    fn tasks(&self) -> Vec<PathBuf> {
        fs::read_dir(self.path().join("task")).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}", self.child.id()))
    }

    /// Watches its threads of a name.
    pub(crate) fn watch_threads(&self, name: &'static str) -> Busy {
        Busy::watch(self.path().join("task"), name)
    }

    /// Watches the processes that it starts.
    pub(crate) fn watch_children(&self) -> Children {
        Children::watch(self.path())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.end();
    }
}

/// In bytes, as the kernel counts: whole pages, with small delays.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    /// Its share: its own pages, and its part of the shared ones (libc, the program's file).
    pub(crate) pss: u64,
    /// The part of it without a file: heap, stacks.
    pub(crate) pss_anonymous: u64,
    pub(crate) rss: u64,
    /// The highest resident size so far.
    pub(crate) rss_peak: u64,
}

impl Memory {
    fn read(process: &Path) -> Self {
        let rollup = process.join("smaps_rollup");
        let status = process.join("status");
        Self {
            pss: number(&rollup, "Pss:") << 10,
            pss_anonymous: number(&rollup, "Pss_Anon:") << 10,
            rss: number(&rollup, "Rss:") << 10,
            rss_peak: number(&status, "VmHWM:") << 10,
        }
    }
}

/// See [`Agent::parts`]. Stacks and heap cannot be told apart: Linux joins neighbouring mappings.
fn parts(smaps: &str) -> [(&'static str, u64); 4] {
    let mut parts = [("code", 0), ("constants", 0), ("variables of the file", 0), ("stacks and heap", 0)];
    let mut part = 0;
    for line in smaps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["Pss:", kib, ..] => parts[part].1 += kib.parse::<u64>().unwrap() << 10,
            [range, rights, _, _, inode, ..] if range.contains('-') => {
                part = match (*rights, *inode != "0") {
                    ("r-xp", _) => 0,
                    ("r--p", true) => 1,
                    (_, true) => 2,
                    (_, false) => 3,
                };
            }
            _ => (),
        }
    }
    parts
}

/// The first number in the line of a file of /proc that starts with `label`; 0 without such a line.
pub(crate) fn number(path: &Path, label: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(label));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// The peak of the children of a process, sampled: a short life gives a few samples, and its peak grows until its end.
pub(crate) struct Children {
    done: Arc<AtomicBool>,
    peak: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Children {
    fn watch(process: PathBuf) -> Self {
        let (done, peak) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ending, highest) = (done.clone(), peak.clone());
        let thread = thread::spawn("children", 256 << 10, move || {
            let (clock, stop) = (Clock::system(), Stop::new());
            while !ending.load(Ordering::Relaxed) {
                for child in children(&process) {
                    let status = PathBuf::from(format!("/proc/{child}/status"));
                    if is_renderer(&status) {
                        highest.fetch_max(number(&status, "VmHWM:") << 10, Ordering::Relaxed);
                    }
                }
                stop.wait(&clock, Duration::from_millis(1));
            }
        });
        Self { done, peak, thread: thread.unwrap() }
    }

    /// The highest sampled resident size, in bytes.
    pub(crate) fn finish(self) -> u64 {
        self.done.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        self.peak.load(Ordering::Relaxed)
    }
}

/// Processor time of threads that start and end, sampled: the time after the last sample of a thread is missed. It ends
/// when dropped.
pub(crate) struct Busy {
    done: Arc<AtomicBool>,
    times: Arc<Mutex<BTreeMap<PathBuf, u64>>>,
}

impl Busy {
    fn watch(tasks: PathBuf, name: &'static str) -> Self {
        let (done, times) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let busy = Self { done, times };
        let (ending, seen) = (busy.done.clone(), busy.times.clone());
        let look = move || {
            let (clock, stop) = (Clock::system(), Stop::new());
            while !ending.load(Ordering::Relaxed) {
                sample(&tasks, name, &seen);
                stop.wait(&clock, Duration::from_millis(5));
            }
        };
        thread::spawn("busy", 256 << 10, look).unwrap();
        busy
    }

    /// The sum of all of them.
    pub(crate) fn so_far(&self) -> Duration {
        Duration::from_nanos(self.times.lock().unwrap().values().sum())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
    }
}

fn sample(tasks: &Path, name: &str, seen: &Mutex<BTreeMap<PathBuf, u64>>) {
    for task in fs::read_dir(tasks).into_iter().flatten().flatten() {
        let path = task.path();
        if fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name) {
            let time = fs::read_to_string(path.join("schedstat")).ok();
            let time = time.and_then(|text| text.split(' ').next()?.parse().ok());
            time.and_then(|time| seen.lock().unwrap().insert(path, time));
        }
    }
}

/// Between fork and exec a child shows the memory and the command line of its parent.
fn is_renderer(status: &Path) -> bool {
    fs::read(status.with_file_name("cmdline")).is_ok_and(|line| line.windows(6).any(|word| word == b"render"))
}

fn children(process: &Path) -> Vec<String> {
    let tasks = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// How busy the machine is: the average of the last minute.
pub(crate) fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

/// Processors of the machine.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Waits for a value; fails if the agent ends.
pub(crate) fn wait_for<T>(agent: &mut Agent, what: &str, condition: impl Fn() -> Option<T>) -> T {
    wait_within(agent, Duration::from_secs(120), what, condition)
}

/// The same with a time limit.
pub(crate) fn wait_within<T>(
    agent: &mut Agent,
    limit: Duration,
    what: &str,
    condition: impl Fn() -> Option<T>,
) -> T {
    let clock = Clock::system();
    let deadline = clock.mono() + patience(limit);
    loop {
        if let Some(found) = condition() {
            return found;
        }
        agent.ensure_running();
        assert!(clock.mono() < deadline, "waited in vain for {what}");
        pause(Duration::from_millis(20));
    }
}
