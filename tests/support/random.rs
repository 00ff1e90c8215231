//! Random numbers that depend only on the seed, on every machine.

use std::fmt::Display;

/// SplitMix64.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Random numbers for one of many things: they depend on its name, too.
    pub fn named(seed: u64, name: &str) -> Self {
        Self(name.bytes().fold(seed, |state, byte| Self(state ^ u64::from(byte)).number()))
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number less than `n`.
    pub fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.number() % u64::try_from(n.max(1)).unwrap_or(1)).unwrap_or(0)
    }

    /// True in `percent` of a hundred calls.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// The first `count` of these in the order of a seed. Each place depends only on the thing's own name, so a thing more
/// or less does not change the others.
pub fn few<T: Display>(seed: u64, count: usize, mut of: Vec<T>) -> Vec<T> {
    of.sort_by_cached_key(|one| Random::named(seed, &one.to_string()).number());
    of.truncate(count);
    of
}

#[test]
fn few_depend_on_the_seed_and_on_the_names_alone() {
    let chosen = |seed, of: Vec<u32>| few(seed, 5, of);
    let all: Vec<u32> = (0..100).collect();
    let first = chosen(1, all.clone());
    assert_eq!((first.len(), chosen(1, all.iter().rev().copied().collect())), (5, first.clone()));
    let without: Vec<u32> = all.iter().copied().filter(|n| *n != first[0]).collect();
    assert_eq!(chosen(1, without)[..4], first[1..]);
    assert_ne!(chosen(2, all), first);
    assert_eq!(chosen(1, vec![7]), [7]);
}
