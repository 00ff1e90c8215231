//! The resources that the process uses, as the kernel counts them.

use std::fs;

/// Ticks of `/proc` per second: `USER_HZ`, which is 100 on every Linux architecture that we build for.
const TICKS_PER_S: f64 = 100.0;
/// The unit that `status` calls kB.
const KIB: f64 = 1024.0;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// Processor time, user and system, in seconds.
    pub(crate) cpu_s: f64,
    pub(crate) resident_bytes: f64,
    pub(crate) virtual_bytes: f64,
    pub(crate) threads: f64,
    /// Open files and sockets.
    pub(crate) open_fds: f64,
}

/// The usage of this process; zeros where `/proc` is missing.
pub(crate) fn usage() -> Usage {
    let read = |name| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    let open = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    // Reading the directory opens one more descriptor.
    let open_fds = f64::from(u32::try_from(open.saturating_sub(1)).unwrap_or(u32::MAX));
    Usage { open_fds, ..parse(&read("stat"), &read("status")) }
}

/// The counterpart of Go's profiles: memory by kind, and the threads with their processor time, the busiest first. For
/// people; the format may change.
pub(crate) fn profile() -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    let mut threads: Vec<(f64, String)> = Vec::new();
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        threads.extend(thread(&stat));
    }
    threads.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let mut out = "This program is not written in Go and has no pprof profiles. Instead:\n\nMemory (smaps_rollup; the heap and \
                   the stacks are Anonymous, the program itself is the rest)\n"
        .to_owned();
    let peak = read("status").lines().filter(|line| line.starts_with("VmHWM:")).map(str::to_owned).next();
    out.extend(
        peak.into_iter().chain(read("smaps_rollup").lines().skip(1).map(str::to_owned)).map(|l| l + "\n"),
    );
    out.push_str("\nThreads (processor seconds, state, name)\n");
    out.extend(threads.into_iter().map(|(cpu_s, name)| format!("{cpu_s:9.2} {name}\n")));
    out
}

/// Processor time of a thread, and its state and name.
fn thread(stat: &str) -> Option<(f64, String)> {
    let (_, name) = stat.split_once('(')?;
    let (name, rest) = name.rsplit_once(')')?;
    Some((parse(stat, "").cpu_s, format!("{} {name}", rest.split_whitespace().next()?)))
}

/// The name in `stat` may hold anything; the fields after its last parenthesis are fixed.
fn parse(stat: &str, status: &str) -> Usage {
    let fields: Vec<&str> =
        stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
    // utime and stime are fields 14 and 15; the first field here is number 3.
    let ticks = |n: usize| fields.get(n).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    let line = |name: &str| {
        let found = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        found.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(0.0)
    };
    Usage {
        cpu_s: (ticks(11) + ticks(12)) / TICKS_PER_S,
        resident_bytes: line("VmRSS") * KIB,
        virtual_bytes: line("VmSize") * KIB,
        threads: line("Threads"),
        open_fds: 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_tells_of_memory_and_threads() {
        let stat = "43 (watch a) b) S 1 42 42 0 -1 4194560 100 0 0 0 150 25 0 0 20 0 7 0 9 1 1";
        assert_eq!(thread(stat), Some((1.75, "S watch a) b".to_owned())));
        assert_eq!(thread(""), None);
        let (send, wait) = std::sync::mpsc::channel::<()>();
        let (runs, begun) = std::sync::mpsc::channel();
        let body = move || {
            runs.send(()).unwrap();
            wait.recv()
        };
        let busy = crate::base::thread::spawn("profiled", 64 << 10, body).unwrap();
        // A thread sets its name when it starts.
        begun.recv().unwrap();
        let profile = profile();
        drop(send);
        assert!(busy.join().unwrap().is_err());
        for part in ["VmHWM:", "\nPss:", "\nAnonymous:", " profiled\n"] {
            assert!(profile.contains(part), "{part}: {profile}");
        }
    }

    #[test]
    fn the_kernels_tables_are_read() {
        let stat = "42 (a) b) S 1 42 42 0 -1 4194560 100 0 0 0 150 25 0 0 20 0 7 0 9 1 1";
        let status = "Name:\ta) b\nVmSize:\t   2048 kB\nVmRSS:\t    1024 kB\nThreads:\t7\n";
        let expected = Usage {
            cpu_s: 1.75,
            resident_bytes: 1_048_576.0,
            virtual_bytes: 2_097_152.0,
            threads: 7.0,
            open_fds: 0.0,
        };
        assert_eq!(parse(stat, status), expected);
        assert_eq!(parse("", ""), Usage::default());
    }

    #[test]
    fn this_process_uses_resources() {
        let usage = usage();
        assert!(usage.resident_bytes > 0.0 && usage.threads >= 1.0 && usage.open_fds >= 1.0, "{usage:?}");
    }
}
