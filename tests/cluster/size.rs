//! The size of an agent during a story: its threads and its memory.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use gardenlet::base::clock::Clock;
use gardenlet::base::stop::Stop;
use gardenlet::base::thread;

use crate::failure::{Result, ensure};

/// The limits at any moment.
#[derive(Debug)]
pub(crate) struct Bounds {
    pub(crate) threads: u64,
    pub(crate) bytes: u64,
}

/// The highest values.
pub(crate) struct Size {
    stop: Stop,
    most: Arc<Most>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Most {
    threads: AtomicU64,
    pss: AtomicU64,
    anonymous: AtomicU64,
    names: Mutex<BTreeMap<String, usize>>,
}

impl Size {
    /// Watches a process until dropped.
    pub(crate) fn watch(process: u32) -> Result<Self> {
        let (stop, most) = (Stop::new(), Arc::new(Most::default()));
        let (stopped, seen) = (stop.clone(), most.clone());
        let folder = format!("/proc/{process}");
        let thread = thread::spawn("size", 256 << 10, move || {
            let clock = Clock::system();
            while !stopped.wait(&clock, Duration::from_millis(100)) {
                seen.look(&folder);
            }
        })?;
        Ok(Self { stop, most, thread: Some(thread) })
    }

    pub(crate) fn print(&self, when: &str) {
        let Most { threads, pss, anonymous, .. } = &*self.most;
        let megabytes = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed) as f64 / f64::from(1 << 20);
        println!(
            "                         until {when}: {} threads, {:.1} MB, {:.1} MB of it without a file",
            threads.load(Ordering::Relaxed),
            megabytes(pss),
            megabytes(anonymous)
        );
    }

    /// For a program that is not a release build, its own file does not count: it is several times as large.
    pub(crate) fn ensure_small(&self, bounds: &Bounds, is_shipped: bool) -> Result<()> {
        let Most { threads, pss, anonymous, names } = &*self.most;
        let names = names.lock().unwrap_or_else(PoisonError::into_inner);
        ensure(threads.load(Ordering::Relaxed) <= bounds.threads, || format!("too many threads: {names:?}"))?;
        let bytes = if is_shipped { pss } else { anonymous }.load(Ordering::Relaxed);
        ensure(bytes <= bounds.bytes, || format!("too large: {} kB", bytes >> 10))
    }
}

impl Drop for Size {
    fn drop(&mut self) {
        self.stop.stop();
        // A panic in it has been printed.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Most {
    fn look(&self, process: &str) {
        let tasks = fs::read_dir(format!("{process}/task")).into_iter().flatten().flatten();
        let mut names: BTreeMap<String, usize> = BTreeMap::new();
        // A thread may end between the listing and this read.
        for name in tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok()) {
            *names.entry(name.trim().to_owned()).or_default() += 1;
        }
        let count = names.values().sum::<usize>() as u64;
        if self.threads.fetch_max(count, Ordering::Relaxed) < count {
            *self.names.lock().unwrap_or_else(PoisonError::into_inner) = names;
        }
        let text = fs::read_to_string(format!("{process}/smaps_rollup")).unwrap_or_default();
        for (label, most) in [("Pss:", &self.pss), ("Pss_Anon:", &self.anonymous)] {
            let line = text.lines().find_map(|line| line.strip_prefix(label));
            let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
            most.fetch_max(kilobytes.unwrap_or_default() << 10, Ordering::Relaxed);
        }
    }
}
