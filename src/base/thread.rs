//! Threads: named, with a stack size, and joined by their owner. One that rests gives its unused stack back.

use std::cell::Cell;
use std::hint::black_box;
use std::io;
use std::ops::Range;
use std::thread::JoinHandle;

/// What a running function may still use below its variables: the red zone, and the call that gives the pages back.
const MARGIN_BYTES: usize = 8 << 10;
/// What the system and the standard library have above the body of a thread, at most: that much may be missing at the
/// other end of its stack. They move the body and its result, so the first is boxed, and the second is small.
const ABOVE_BYTES: usize = 32 << 10;
/// The result of a thread: some of the functions above its body keep it on the stack.
const RESULT_BYTES_MAX: usize = 512;

/// The stack of a thread that [`spawn`] started.
#[derive(Clone, Copy)]
struct Stack {
    /// The address of a variable of its first function.
    top: usize,
    bytes: usize,
}

thread_local! {
    static STACK: Cell<Option<Stack>> = const { Cell::new(None) };
}

/// Starts a thread. `stack_bytes` is explicit because musl's default of 128 KiB is not what the tests run
/// with. Errors: the error of the system, if it cannot start another thread.
pub fn spawn<T: Send + 'static>(
    name: &str,
    stack_bytes: usize,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    const { assert!(size_of::<T>() <= RESULT_BYTES_MAX, "box the result") };
    let body = Box::new(body) as Box<dyn FnOnce() -> T + Send>;
    std::thread::Builder::new().name(name.to_owned()).stack_size(stack_bytes).spawn(move || {
        STACK.set(Some(Stack { top: address_of_a_variable(), bytes: stack_bytes }));
        body()
    })
}

/// Gives the memory below the caller's part of the stack back to the system. A thread calls it before it rests: a TLS
/// handshake touches 50 kB of stack, and a thread that waits for events needs 8 kB. Does nothing in a thread that
/// [`spawn`] did not start.
#[inline(never)]
pub(crate) fn release_unused_stack() {
    let Some(stack) = STACK.get() else { return };
    let Some(unused) = unused(stack, address_of_a_variable(), rustix::param::page_size()) else { return };
    let begin = std::ptr::with_exposed_provenance_mut(unused.start);
    // SAFETY: the stack grows down. These pages are whole, belong to this thread's stack, and lie below all variables of
    // its running functions, with a margin for this call. Nothing reads them before it has written them again.
    #[expect(unsafe_code, reason = "no safe call gives pages of a stack back")]
    let result = unsafe { rustix::mm::madvise(begin, unused.len(), rustix::mm::Advice::LinuxDontNeed) };
    // It only saves memory.
    let _ = result;
}

/// The whole pages of a stack that are below a variable of the running function. The system would round a part of a page
/// up, and clear what is in use: some ARM boards have pages of 16 or 64 KiB.
fn unused(stack: Stack, variable: usize, page_bytes: usize) -> Option<Range<usize>> {
    let begin = stack.top.checked_sub(stack.bytes)?.checked_add(ABOVE_BYTES)?.next_multiple_of(page_bytes);
    let end = variable.checked_sub(MARGIN_BYTES)? / page_bytes * page_bytes;
    (variable <= stack.top && begin < end).then_some(begin..end)
}

#[inline(never)]
fn address_of_a_variable() -> usize {
    let variable = 0_u8;
    (&raw const *black_box(&variable)).expose_provenance()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_pages_below_the_running_functions_are_unused() {
        let stack = Stack { top: 0x1010_0123, bytes: 0x10_0000 };
        let begin = 0x1000_9000;
        let table = [
            ("at rest", stack, 0x1010_0000, Some(begin..0x100f_e000)),
            ("in the middle of a page", stack, 0x100f_0fff, Some(begin..0x100e_e000)),
            ("nearly everything is in use", stack, 0x1000_c000, Some(begin..0x1000_a000)),
            ("everything but the margin is in use", stack, 0x1000_b000, None),
            ("deeper than that", stack, 0x1000_1000, None),
            ("another stack above", stack, 0x1010_0124, None),
            ("another stack below", stack, 0x4000, None),
            ("a stack as large as the memory", Stack { bytes: usize::MAX / 2, ..stack }, 0x1010_0000, None),
            ("a small one", Stack { bytes: 32 << 10, ..stack }, 0x100f_f000, None),
        ];
        for (name, stack, variable, expected) in table {
            assert_eq!(unused(stack, variable, 4 << 10), expected, "{name}");
        }
        assert_eq!(unused(stack, 0x1010_0000, 64 << 10), Some(0x1001_0000..0x100f_0000));
        assert_eq!(unused(stack, 0x1002_0000, 64 << 10), None);
    }

    /// Touches that much of the stack; returns an address in the middle.
    #[inline(never)]
    fn dive() -> usize {
        let touched = black_box([1_u8; 512 << 10]);
        touched.as_ptr().addr() + touched.len() / 2
    }

    /// The resident bytes of the mapping with this address.
    fn resident(address: usize) -> u64 {
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = text.lines().skip_while(|line| {
            let ends = line.split(' ').next().and_then(|range| range.split_once('-'));
            let parse = |end| usize::from_str_radix(end, 16);
            !ends.is_some_and(|(begin, end)| {
                parse(begin).is_ok_and(|begin| begin <= address) && parse(end).is_ok_and(|end| address < end)
            })
        });
        let rss = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
        rss.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    #[test]
    fn a_thread_that_rests_gives_its_stack_back_and_goes_on() {
        let work = || {
            let kept = black_box([7_u8; 10_000]);
            for _ in 0..3 {
                let address = dive();
                let before = resident(address);
                release_unused_stack();
                let after = resident(address);
                assert!(after + (400 << 10) < before, "{before} and {after}");
            }
            Box::new(kept)
        };
        let thread = spawn("diver", 4 << 20, work).unwrap();
        assert_eq!(*thread.join().unwrap(), [7; 10_000]);
        // Neighbours whose bodies are large keep their stacks.
        let large = [3_u8; 100_000];
        let neighbour = move || {
            let (stack, kept) = (STACK.get().unwrap(), black_box(large));
            release_unused_stack();
            assert_eq!(kept, large);
            stack.bytes
        };
        let threads: Vec<_> = (0..8).map(|_| spawn("neighbour", 1 << 20, neighbour).unwrap()).collect();
        assert!(threads.into_iter().all(|thread| thread.join().unwrap() == 1 << 20));
        // Not a thread of ours: nothing happens.
        let other = std::thread::Builder::new().stack_size(4 << 20).spawn(|| {
            let before = resident(dive());
            release_unused_stack();
            (before, resident(dive()))
        });
        let (before, after) = other.unwrap().join().unwrap();
        assert!(after >= before, "{before} and {after}");
    }
}
