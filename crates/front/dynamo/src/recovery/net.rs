//! The net changes of items within a time: each item before the first of its changes and after the last. Takes the memory of some items
//! at once, however many have changed: items are taken in the order of a hash of their keys, as many as fit, and the log is read again for the
//! others.

use std::collections::BTreeMap;

use items::Item;

use crate::streams::change::{Change, size_of};

/// The net change of an item.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NetChange {
    /// The key attributes.
    pub(crate) key: Item,
    pub(crate) before: Option<Item>,
    pub(crate) after: Option<Item>,
    /// The time of the last write that changed it, microseconds since 1970.
    pub(crate) micros: i64,
}

impl NetChange {
    fn bytes(&self) -> usize {
        size_of((&self.key, self.before.as_ref(), self.after.as_ref()))
    }
}

/// The net changes of the items whose hashes lie between two.
pub(crate) struct NetChanges {
    first: u128,
    last: u128,
    found: BTreeMap<u128, NetChange>,
    bytes: usize,
    bytes_max: usize,
}

impl NetChanges {
    /// Of the items from a hash on, as many as have about so many bytes.
    pub(crate) fn new(first: u128, bytes_max: usize) -> Self {
        Self { first, last: u128::MAX, found: BTreeMap::new(), bytes: 0, bytes_max }
    }

    /// Adds a change of the item with this hash; they come in their order.
    pub(crate) fn add(&mut self, hash: u128, change: Change) {
        if !(self.first..=self.last).contains(&hash) || change.before == change.after {
            return;
        }
        let before = match self.found.remove(&hash) {
            Some(known) => {
                self.bytes -= known.bytes();
                known.before
            }
            None => change.before,
        };
        let net = NetChange { key: change.key, before, after: change.after, micros: change.position.micros };
        self.bytes += net.bytes();
        self.found.insert(hash, net);
        // At least one item fits.
        while self.bytes > self.bytes_max && self.found.len() > 1 {
            self.drop_upper_half();
        }
    }

    /// Leaves the upper half of the items to a later look.
    fn drop_upper_half(&mut self) {
        let Some(middle) = self.found.keys().nth(self.found.len() / 2).copied() else { return };
        let dropped = self.found.split_off(&middle);
        self.bytes -= dropped.values().map(NetChange::bytes).sum::<usize>();
        self.last = middle - 1;
    }

    /// The net changes in the order of the hashes, and the hash with which the next look begins; none when this was all.
    pub(crate) fn finish(self) -> (impl Iterator<Item = NetChange>, Option<u128>) {
        // An item that was made and deleted meanwhile is none.
        let is_there = |net: &NetChange| net.before.is_some() || net.after.is_some();
        (self.found.into_values().filter(is_there), self.last.checked_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::position::Position;
    use items::Value;

    fn item(text: &str) -> Option<Item> {
        (!text.is_empty()).then(|| Item::from([("v".to_owned(), Value::S(text.to_owned()))]))
    }

    fn change(key: u64, micros: i64, (before, after): (&str, &str)) -> Change {
        Change {
            position: Position::before(micros),
            token: 0,
            key: Item::from([("k".to_owned(), Value::S(key.to_string()))]),
            before: item(before),
            after: item(after),
            is_expiry: false,
        }
    }

    #[test]
    fn changes_of_an_item_are_one() {
        let of = |texts: &[(&str, &str)]| {
            let mut net = NetChanges::new(0, 1000);
            for (at, texts) in texts.iter().enumerate() {
                net.add(5, change(5, at as i64, *texts));
            }
            let (mut found, next) = net.finish();
            assert_eq!(next, None);
            found.next().map(|net| (net.before, net.after, net.micros))
        };
        assert_eq!(of(&[("", "a")]), Some((None, item("a"), 0)));
        assert_eq!(of(&[("a", "b"), ("b", "c"), ("c", "c")]), Some((item("a"), item("c"), 1)));
        assert_eq!(of(&[("a", "b"), ("b", "")]), Some((item("a"), None, 1)));
        assert_eq!(of(&[("a", ""), ("", "a")]), Some((item("a"), item("a"), 1)), "it was written");
        assert_eq!(of(&[("", "b"), ("b", "")]), None);
        assert_eq!(of(&[("a", "a")]), None);
    }

    #[test]
    fn many_items_take_several_looks_and_little_memory() {
        let changes: Vec<Change> = (0..3000)
            .map(|at| {
                change(
                    at % 500,
                    at as i64,
                    (["x", ""][usize::from(at < 500)], "x".repeat(20 + at as usize % 7).as_str()),
                )
            })
            .collect();
        for bytes_max in [1, 500, 5_000, 1 << 20] {
            let (mut first, mut seen, mut looks) = (Some(0), BTreeMap::new(), 0);
            while let Some(from) = first {
                let mut net = NetChanges::new(from, bytes_max);
                for (at, change) in changes.iter().enumerate() {
                    let hash = (at as u128 % 500).wrapping_mul(u128::MAX / 500 + 3);
                    net.add(hash, change.clone());
                    assert!(net.bytes <= bytes_max.max(100), "{}", net.bytes);
                    assert_eq!(net.bytes, net.found.values().map(NetChange::bytes).sum::<usize>());
                }
                let (found, next) = net.finish();
                for net in found {
                    assert_eq!((net.before.clone(), net.micros >= 2500), (None, true));
                    assert!(seen.insert(net.key["k"].shown(), net).is_none(), "each item once");
                }
                assert!(next.is_none_or(|next| next > from));
                (first, looks) = (next, looks + 1);
            }
            assert_eq!(seen.len(), 500);
            assert_eq!(looks == 1, bytes_max == 1 << 20, "{looks} looks");
        }
    }
}
