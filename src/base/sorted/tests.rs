//! Compares maps and sets with the trees of the standard library.

use std::collections::{BTreeMap, BTreeSet};

use super::{SortedMap, SortedSet};

/// A small, deterministic generator of numbers.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

#[test]
fn a_map_behaves_like_a_tree() {
    for seed in 0..50 {
        let mut next = numbers(seed);
        let (mut map, mut tree) = (SortedMap::new(), BTreeMap::new());
        for _ in 0..300 {
            let (key, value) = (next(40), next(1_000));
            match next(9) {
                0..=2 => assert_eq!(map.insert(key, value), tree.insert(key, value)),
                3 => assert_eq!(map.remove(&key), tree.remove(&key)),
                4 => assert_eq!(map.entry(key).or_insert(value), tree.entry(key).or_insert(value)),
                5 => assert_eq!(map.entry(key).or_default(), tree.entry(key).or_default()),
                6 => assert_eq!(map.pop_first(), tree.pop_first()),
                7 => {
                    map.retain(|key, value| (*key + *value) % 7 != 0);
                    tree.retain(|key, value| (*key + *value) % 7 != 0);
                }
                _ => assert!(map.range_from(&key).eq(tree.range(key..))),
            }
            assert_eq!((map.get(&key), map.contains_key(&key)), (tree.get(&key), tree.contains_key(&key)));
            assert!(map.iter().eq(&tree) && map.iter().rev().eq(tree.iter().rev()));
            assert_eq!((map.len(), map.first_key_value()), (tree.len(), tree.first_key_value()));
        }
        map.extend([(3, 1), (90, 2), (3, 4)]);
        tree.extend([(3, 1), (90, 2), (3, 4)]);
        assert!(map.keys().eq(tree.keys()) && map.values().eq(tree.values()));
        assert_eq!(format!("{map:?}"), format!("{tree:?}"));
        assert_eq!(serde_json::to_string(&map).unwrap(), serde_json::to_string(&tree).unwrap());
        let text = serde_json::to_string(&tree).unwrap();
        assert_eq!(serde_json::from_str::<SortedMap<u64, u64>>(&text).unwrap(), map);
        assert!(map.into_iter().eq(tree));
    }
}

#[test]
fn a_set_behaves_like_a_tree() {
    for seed in 0..50 {
        let mut next = numbers(seed);
        let mut some = || (0..next(30)).map(|_| next(40)).collect::<Vec<_>>();
        let (ours, theirs) = (some(), some());
        let set = |all: &[u64]| all.iter().copied().collect::<SortedSet<_>>();
        let tree = |all: &[u64]| all.iter().copied().collect::<BTreeSet<_>>();
        let (a, b, x, y) = (set(&ours), set(&theirs), tree(&ours), tree(&theirs));
        assert!(a.iter().eq(&x) && b.iter().rev().eq(y.iter().rev()));
        assert!(a.difference(&b).eq(x.difference(&y)) && a.intersection(&b).eq(x.intersection(&y)));
        assert!(a.union(&b).eq(x.union(&y)));
        assert!(a.symmetric_difference(&b).eq(x.symmetric_difference(&y)));
        assert_eq!(serde_json::to_string(&a).unwrap(), serde_json::to_string(&x).unwrap());
        assert_eq!(a.is_disjoint(&b), x.is_disjoint(&y));
        assert_eq!(format!("{a:?}"), format!("{x:?}"));
        let (mut a, mut x) = (a, x);
        for member in theirs {
            assert_eq!(a.remove(&member), x.remove(&member));
            assert_eq!(a.insert(member + 1), x.insert(member + 1));
            assert_eq!((a.contains(&member), a.first()), (x.contains(&member), x.first()));
        }
        assert_eq!(a.pop_first(), x.pop_first());
        assert!(a.into_iter().eq(x));
    }
}
