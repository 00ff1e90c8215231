//! What the process itself takes, as the kernel counts it.

use std::fs;

/// Ticks of `/proc` per second: `USER_HZ`, which is 100 on every architecture of Linux that we build for.
const TICKS_PER_S: f64 = 100.0;
/// What `status` calls kB.
const KIB: f64 = 1024.0;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Processor time, user and system, in seconds.
    pub cpu_s: f64,
    /// Memory that is resident.
    pub resident_bytes: f64,
    /// Address space.
    pub virtual_bytes: f64,
    /// Threads.
    pub threads: f64,
    /// Open files and sockets.
    pub open_fds: f64,
}

/// Of this process; zeros where `/proc` is missing.
pub fn usage() -> Usage {
    let read = |name| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    let open = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    // The directory itself is open while it is read.
    let open_fds = f64::from(u32::try_from(open.saturating_sub(1)).unwrap_or(u32::MAX));
    Usage { open_fds, ..parse(&read("stat"), &read("status")) }
}

/// The name in `stat` may hold anything: what follows its last parenthesis is fixed.
fn parse(stat: &str, status: &str) -> Usage {
    let fields: Vec<&str> =
        stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
    // utime and stime are fields 14 and 15; the first one here is field 3.
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
    fn this_process_takes_something() {
        let usage = usage();
        assert!(usage.resident_bytes > 0.0 && usage.threads >= 1.0 && usage.open_fds >= 1.0, "{usage:?}");
    }
}
