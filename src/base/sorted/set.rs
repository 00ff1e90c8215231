//! Sorted sets, each kept in one list.

use std::borrow::Borrow;
use std::fmt::{self, Debug};
use std::vec;

use serde::ser::{Serialize, Serializer};

use super::{Iter, SortedMap};

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SortedSet<T> {
    members: SortedMap<T, ()>,
}

impl<T: Serialize> Serialize for SortedSet<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self)
    }
}

impl<T> SortedSet<T> {
    pub(crate) const fn new() -> Self {
        Self { members: SortedMap::new() }
    }

    /// How many members there are.
    pub(crate) const fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.members.clear();
    }

    pub(crate) fn first(&self) -> Option<&T> {
        self.members.first_key_value().map(|(member, ())| member)
    }

    /// Removes and returns the lowest member.
    pub(crate) fn pop_first(&mut self) -> Option<T> {
        self.members.pop_first().map(|(member, ())| member)
    }

    /// All members in order.
    pub(crate) fn iter(&self) -> Members<'_, T> {
        Members(self.members.iter())
    }

    /// Keeps the members for which `keep` returns true.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.members.retain(|member, ()| keep(member));
    }
}

impl<T: Ord> SortedSet<T> {
    /// Whether the set has the member.
    pub(crate) fn contains<Q: Ord + ?Sized>(&self, member: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.members.contains_key(member)
    }

    /// The member that equals this value.
    pub(crate) fn get<Q: Ord + ?Sized>(&self, member: &Q) -> Option<&T>
    where
        T: Borrow<Q>,
    {
        self.members.get_key_value(member).map(|(member, ())| member)
    }

    /// Adds a member; true if it is new.
    pub(crate) fn insert(&mut self, member: T) -> bool {
        self.members.insert(member, ()).is_none()
    }

    /// Removes a member; true if it was there.
    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, member: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.members.remove(member).is_some()
    }

    /// The members that the other set does not have.
    pub(crate) fn difference<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a T> {
        self.iter().filter(|member| !other.contains(*member))
    }

    /// The members that the other set has too.
    pub(crate) fn intersection<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a T> {
        self.iter().filter(|member| other.contains(*member))
    }

    /// The members of either set.
    pub(crate) fn union<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a T> {
        self.iter().chain(other).collect::<SortedSet<_>>().into_iter()
    }

    /// The members that only one of the two sets has.
    pub(crate) fn symmetric_difference<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a T> {
        let all = self.difference(other).chain(other.difference(self));
        all.collect::<SortedSet<_>>().into_iter()
    }

    /// Whether the two sets have no member in common.
    pub(crate) fn is_disjoint(&self, other: &Self) -> bool {
        self.intersection(other).next().is_none()
    }
}

impl<T> Default for SortedSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Debug> Debug for SortedSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self).finish()
    }
}

impl<T: Ord> Extend<T> for SortedSet<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, members: I) {
        for member in members {
            self.insert(member);
        }
    }
}

impl<'a, T: Ord + Copy + 'a> Extend<&'a T> for SortedSet<T> {
    fn extend<I: IntoIterator<Item = &'a T>>(&mut self, members: I) {
        self.extend(members.into_iter().copied());
    }
}

impl<T: Ord> FromIterator<T> for SortedSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(members: I) -> Self {
        let mut set = Self::new();
        set.extend(members);
        set
    }
}

impl<T: Ord, const N: usize> From<[T; N]> for SortedSet<T> {
    fn from(members: [T; N]) -> Self {
        members.into_iter().collect()
    }
}

impl<T> IntoIterator for SortedSet<T> {
    type Item = T;
    type IntoIter = std::iter::Map<vec::IntoIter<(T, ())>, fn((T, ())) -> T>;

    fn into_iter(self) -> Self::IntoIter {
        self.members.into_iter().map(|(member, ())| member)
    }
}

impl<'a, T> IntoIterator for &'a SortedSet<T> {
    type Item = &'a T;
    type IntoIter = Members<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The members of a set.
#[derive(Debug)]
pub(crate) struct Members<'a, T>(Iter<'a, T, ()>);

impl<T> Clone for Members<'_, T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<'a, T> Iterator for Members<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(member, ())| member)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<T> DoubleEndedIterator for Members<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back().map(|(member, ())| member)
    }
}

impl<T> ExactSizeIterator for Members<'_, T> {}
