//! An ordered map for the ranges of a cached partition, of which most have one: a tree's smallest node has room for eleven.

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::slice;

use mutation::Bound;

/// Entries that are kept in a vector. Beyond, putting one in would move too many.
const FEW_MAX: usize = if cfg!(test) { 4 } else { 16 };

/// Values by the start of their range, in order.
#[derive(Debug)]
pub(crate) enum Ranges<V> {
    /// At most [`FEW_MAX`], in order.
    Few(Vec<(Bound, V)>),
    Many(BTreeMap<Bound, V>),
}

impl<V> Default for Ranges<V> {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

/// Entries in order.
pub(crate) enum Iter<'a, V> {
    Few(slice::Iter<'a, (Bound, V)>),
    Many(btree_map::Range<'a, Bound, V>),
}

impl<'a, V> Iterator for Iter<'a, V> {
    type Item = (&'a Bound, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Few(entries) => entries.next().map(|(start, value)| (start, value)),
            Self::Many(entries) => entries.next(),
        }
    }
}

impl<V> Ranges<V> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Few(entries) => entries.len(),
            Self::Many(entries) => entries.len(),
        }
    }

    /// All entries.
    pub(crate) fn iter(&self) -> Iter<'_, V> {
        match self {
            Self::Few(entries) => Iter::Few(entries.iter()),
            Self::Many(entries) => Iter::Many(entries.range::<Bound, _>(..)),
        }
    }

    /// The entries from `start`, which is among them if it is there.
    pub(crate) fn from(&self, start: &Bound) -> Iter<'_, V> {
        match self {
            Self::Few(entries) => {
                Iter::Few(entries[entries.partition_point(|(other, _)| other < start)..].iter())
            }
            Self::Many(entries) => Iter::Many(entries.range::<Bound, _>(start..)),
        }
    }

    /// The entries behind `start`.
    pub(crate) fn behind(&self, start: &Bound) -> Iter<'_, V> {
        match self {
            Self::Few(entries) => {
                Iter::Few(entries[entries.partition_point(|(other, _)| other <= start)..].iter())
            }
            Self::Many(entries) => Iter::Many(entries.range::<Bound, _>((Excluded(start), Unbounded))),
        }
    }

    /// The last entry that begins at a position or before it.
    pub(crate) fn upto(&self, position: &[u8]) -> Option<(&Bound, &V)> {
        match self {
            Self::Few(entries) => {
                let behind = entries.partition_point(|(other, _)| other.position() <= position);
                let (start, value) = entries.get(behind.checked_sub(1)?)?;
                Some((start, value))
            }
            Self::Many(entries) => entries.range::<[u8], _>((Unbounded, Included(position))).next_back(),
        }
    }

    pub(crate) fn first(&self) -> Option<(&Bound, &V)> {
        self.iter().next()
    }

    pub(crate) fn last(&self) -> Option<(&Bound, &V)> {
        match self {
            Self::Few(entries) => entries.last().map(|(start, value)| (start, value)),
            Self::Many(entries) => entries.last_key_value(),
        }
    }

    /// The place of `start` among few, or where it belongs.
    fn search(entries: &[(Bound, V)], start: &Bound) -> Result<usize, usize> {
        entries.binary_search_by(|(other, _)| other.cmp(start))
    }

    pub(crate) fn get(&self, start: &Bound) -> Option<&V> {
        match self {
            Self::Few(entries) => Self::search(entries, start).ok().map(|at| &entries[at].1),
            Self::Many(entries) => entries.get(start),
        }
    }

    pub(crate) fn get_mut(&mut self, start: &Bound) -> Option<&mut V> {
        match self {
            Self::Few(entries) => Self::search(entries, start).ok().map(|at| &mut entries[at].1),
            Self::Many(entries) => entries.get_mut(start),
        }
    }

    /// Adds an entry; the value that was there, if there was one.
    pub(crate) fn insert(&mut self, start: Bound, value: V) -> Option<V> {
        match self {
            Self::Few(entries) => match Self::search(entries, &start) {
                Ok(at) => Some(std::mem::replace(&mut entries[at].1, value)),
                Err(at) if entries.len() < FEW_MAX => {
                    // One at a time: most partitions get no second.
                    entries.reserve_exact(1);
                    entries.insert(at, (start, value));
                    None
                }
                Err(_) => {
                    let entries = std::mem::take(entries).into_iter().chain([(start, value)]);
                    *self = Self::Many(entries.collect());
                    None
                }
            },
            Self::Many(entries) => entries.insert(start, value),
        }
    }

    pub(crate) fn remove_entry(&mut self, start: &Bound) -> Option<(Bound, V)> {
        match self {
            Self::Few(entries) => Self::search(entries, start).ok().map(|at| entries.remove(at)),
            Self::Many(entries) => {
                let removed = entries.remove_entry(start);
                if entries.len() <= FEW_MAX / 2 {
                    *self = Self::Few(std::mem::take(entries).into_iter().collect());
                }
                removed
            }
        }
    }
}
