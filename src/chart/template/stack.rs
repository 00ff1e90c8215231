//! A guard against stack overflow: recursion checks it before it descends, and gets an error instead of a crash.

/// Measures how far the stack has grown since the guard was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackGuard {
    base: usize,
    bytes_max: usize,
}

impl StackGuard {
    /// Starts to measure here. The thread must have more than `bytes_max` left, by as much as one
    /// level of recursion needs.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { base: stack_address(), bytes_max }
    }

    /// Whether there is room for one more level.
    pub(super) fn has_room(self) -> bool {
        self.base.abs_diff(stack_address()) <= self.bytes_max
    }
}

#[inline(never)]
fn stack_address() -> usize {
    let here = 0_u8;
    std::ptr::from_ref(std::hint::black_box(&here)).addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recursion_ends_before_the_stack_does() {
        fn deeper(guard: StackGuard, level: u64) -> u64 {
            let frame = std::hint::black_box([level; 64]);
            if guard.has_room() { deeper(guard, level + 1).max(frame[0]) } else { level }
        }
        let depth = deeper(StackGuard::new(200 << 10), 0);
        assert!(depth > 100 && depth < 10_000, "{depth}");
    }
}
