//! The ranges of a partition with many of them: a B-tree whose clones share their nodes.
//!
//! A read hands on the ranges as they were when it began. It clones the tree, which copies one reference; a write meanwhile
//! copies the nodes on its path and no others, so neither costs more the more ranges there are.

use std::sync::Arc;

use crate::{Bound, RangeTombstone};

/// Entries of a node at most.
pub(crate) const ENTRIES_MAX: usize = 32;
/// A node with fewer entries is joined with a neighbour where there is room.
const ENTRIES_MIN: usize = ENTRIES_MAX / 4;

/// Ranges by their starts, each of which occurs once.
#[derive(Clone, Debug)]
pub(crate) struct RangeTree {
    root: Arc<Node>,
    len: usize,
}

/// The right half of a node that was full, with the start of its first range.
type Split = Option<(Bound, Arc<Node>)>;

#[derive(Clone, Debug)]
enum Node {
    Leaf(Entries<RangeTombstone>),
    /// Children, none of them empty, each with the start of its first range.
    Inner(Entries<(Bound, Arc<Node>)>),
}

/// The content of a node, in the order of the starts.
#[derive(Clone, Debug)]
struct Entries<T> {
    /// The first bytes of each start: most searches are decided by them, without a look at the memory of each bound.
    heads: Vec<u64>,
    /// The first bytes of each end, where the items have ends.
    end_heads: Vec<u64>,
    items: Vec<T>,
}

trait Entry {
    fn start(&self) -> &Bound;
    /// None for a node, whose end is that of another entry.
    fn end(&self) -> Option<&Bound>;
}

impl Entry for RangeTombstone {
    fn start(&self) -> &Bound {
        &self.start
    }

    fn end(&self) -> Option<&Bound> {
        Some(&self.end)
    }
}

impl Entry for (Bound, Arc<Node>) {
    fn start(&self) -> &Bound {
        &self.0
    }

    fn end(&self) -> Option<&Bound> {
        None
    }
}

/// The first bytes of a position as a number. Numbers are in the order of the positions, but may be equal where these are not.
fn head(position: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let len = position.len().min(bytes.len());
    bytes[..len].copy_from_slice(&position[..len]);
    u64::from_be_bytes(bytes)
}

impl<T: Entry> Entries<T> {
    const fn new() -> Self {
        Self { heads: Vec::new(), end_heads: Vec::new(), items: Vec::new() }
    }

    fn len(&self) -> usize {
        self.items.len()
    }

    fn insert(&mut self, at: usize, item: T) {
        self.heads.insert(at, head(item.start().position()));
        if let Some(end) = item.end() {
            self.end_heads.insert(at, head(end.position()));
        }
        self.items.insert(at, item);
    }

    fn remove(&mut self, at: usize) -> T {
        self.heads.remove(at);
        if !self.end_heads.is_empty() {
            self.end_heads.remove(at);
        }
        self.items.remove(at)
    }

    /// How many begin at a position or before it.
    fn upto(&self, position: &[u8]) -> usize {
        let wanted = head(position);
        let below = self.heads.partition_point(|head| *head < wanted);
        let equal = self.heads[below..].partition_point(|head| *head == wanted);
        below + self.items[below..below + equal].partition_point(|item| item.start().position() <= position)
    }

    /// Takes the right half away where there are too many. Where the newest entry is at an end, others are likely to follow it
    /// there: the other part stays full.
    fn split(&mut self, newest: usize) -> Option<Self> {
        if self.len() <= ENTRIES_MAX {
            return None;
        }
        let at = match newest {
            0 => 1,
            at if at + 1 == self.len() => at,
            _ => self.len() / 2,
        };
        let end_heads = if self.end_heads.is_empty() { Vec::new() } else { self.end_heads.split_off(at) };
        Some(Self { heads: self.heads.split_off(at), end_heads, items: self.items.split_off(at) })
    }

    fn extend(&mut self, other: Self) {
        self.heads.extend(other.heads);
        self.end_heads.extend(other.end_heads);
        self.items.extend(other.items);
    }
}

impl Entries<(Bound, Arc<Node>)> {
    /// The child in which a position lies, or the first.
    fn child_of(&self, position: &[u8]) -> usize {
        self.upto(position).saturating_sub(1)
    }

    /// A child begins elsewhere now.
    fn set_start(&mut self, at: usize, start: &Bound) {
        self.heads[at] = head(start.position());
        self.items[at].0 = start.clone();
    }

    /// Joins a child with its right neighbour, or with its left one, if both fit into a node.
    fn join(&mut self, at: usize) {
        let left = if at + 1 < self.len() { at } else { at.saturating_sub(1) };
        let [(_, a), (_, b)] = &self.items[left..(left + 2).min(self.len())] else { return };
        if a.len() + b.len() > ENTRIES_MAX {
            return;
        }
        let (_, right) = self.remove(left + 1);
        let right = Arc::try_unwrap(right).unwrap_or_else(|shared| Node::clone(&shared));
        match (Arc::make_mut(&mut self.items[left].1), right) {
            (Node::Leaf(left), Node::Leaf(right)) => left.extend(right),
            (Node::Inner(left), Node::Inner(right)) => left.extend(right),
            _ => unreachable!("siblings have one height"),
        }
    }
}

impl RangeTree {
    /// Ranges that are in order and apart.
    pub(crate) fn of(ranges: impl IntoIterator<Item = RangeTombstone>) -> Self {
        let mut tree = Self { root: Arc::new(Node::Leaf(Entries::new())), len: 0 };
        ranges.into_iter().for_each(|range| tree.insert(range));
        tree
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a range that overlaps none of the tree.
    pub(crate) fn insert(&mut self, range: RangeTombstone) {
        let inserted = self.insert_if(range, |one, next| one <= next);
        assert!(inserted.is_ok(), "ranges of a tree do not overlap");
    }

    /// Adds a range unless it overlaps or touches another one, which leaves the tree as it was. One descent does both.
    ///
    /// # Errors
    /// The range, where it is not apart from the others.
    pub(crate) fn insert_apart(&mut self, range: RangeTombstone) -> Result<(), RangeTombstone> {
        self.insert_if(range, |one, next| one < next)
    }

    /// Adds a range if `is_apart` is true of the end of each range and the start of the next one.
    fn insert_if(
        &mut self,
        range: RangeTombstone,
        is_apart: fn(&[u8], &[u8]) -> bool,
    ) -> Result<(), RangeTombstone> {
        if let Some(right) = Arc::make_mut(&mut self.root).insert(range, None, is_apart)? {
            let first = self.root.first().expect("a node that was split is not empty").clone();
            let left = Arc::clone(&self.root);
            let mut children = Entries::new();
            children.insert(0, (first, left));
            children.insert(1, right);
            self.root = Arc::new(Node::Inner(children));
        }
        self.len += 1;
        Ok(())
    }

    /// Removes the range with this start, which is in the tree.
    pub(crate) fn remove(&mut self, start: &Bound) -> RangeTombstone {
        let range = Arc::make_mut(&mut self.root).remove(start);
        self.len -= 1;
        while let Node::Inner(children) = &*self.root
            && let [(_, only)] = children.items.as_slice()
        {
            self.root = Arc::clone(only);
        }
        range
    }

    /// Frees some ranges that no clone shares; false when that was the last of the tree.
    pub(crate) fn free_some(&mut self) -> bool {
        fn free_leaf(node: &mut Arc<Node>) -> bool {
            match Arc::get_mut(node) {
                Some(Node::Inner(children)) => {
                    if let Some((_, last)) = children.items.last_mut()
                        && !free_leaf(last)
                    {
                        children.items.pop();
                    }
                    !children.items.is_empty()
                }
                // Other owners of a shared node free it.
                Some(Node::Leaf(_)) | None => false,
            }
        }
        if free_leaf(&mut self.root) {
            return true;
        }
        *self = Self::of([]);
        false
    }

    /// The ranges from a position on ([`Walk`]), or all.
    pub(crate) fn walk(&self, from: Option<&[u8]>, reversed: bool) -> Walk<'_> {
        let mut walk = Walk { path: Vec::new(), leaf: Default::default(), reversed };
        walk.descend(&self.root, from);
        walk
    }
}

impl Node {
    fn first(&self) -> Option<&Bound> {
        match self {
            Self::Leaf(ranges) => ranges.items.first().map(Entry::start),
            Self::Inner(children) => children.items.first().map(Entry::start),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Leaf(ranges) => ranges.len(),
            Self::Inner(children) => children.len(),
        }
    }

    /// Adds a range; the right half of this node when it was full. `next` is the start of the first range behind this node. The range
    /// comes back where it is not apart from its neighbours.
    fn insert(
        &mut self,
        range: RangeTombstone,
        next: Option<&Bound>,
        is_apart: fn(&[u8], &[u8]) -> bool,
    ) -> Result<Split, RangeTombstone> {
        match self {
            Self::Leaf(ranges) => {
                let at = ranges.upto(range.start.position());
                // The range before is in this leaf: only the first leaf has ranges before its first.
                let is_behind = match at.checked_sub(1) {
                    Some(before) if ranges.end_heads[before] < head(range.start.position()) => true,
                    Some(before) => is_apart(ranges.items[before].end.position(), range.start.position()),
                    None => true,
                };
                let is_before = match ranges.items.get(at).map(Entry::start).or(next) {
                    Some(_)
                        if ranges.heads.get(at).is_some_and(|next| head(range.end.position()) < *next) =>
                    {
                        true
                    }
                    Some(next) => is_apart(range.end.position(), next.position()),
                    None => true,
                };
                if !is_behind || !is_before {
                    return Err(range);
                }
                ranges.insert(at, range);
                let right = ranges.split(at);
                Ok(right.map(|right| (right.items[0].start.clone(), Arc::new(Self::Leaf(right)))))
            }
            Self::Inner(children) => {
                let at = children.child_of(range.start.position());
                // The only child that may begin behind the range is the first one of the tree.
                let start = (at == 0 && range.start < children.items[0].0).then(|| range.start.clone());
                let (upto, behind) = children.items.split_at_mut(at + 1);
                let next = behind.first().map(Entry::start).or(next);
                let right = Arc::make_mut(&mut upto[at].1).insert(range, next, is_apart)?;
                if let Some(start) = start {
                    children.set_start(0, &start);
                }
                let Some(right) = right else { return Ok(None) };
                children.insert(at + 1, right);
                let right = children.split(at + 1);
                Ok(right.map(|right| (right.items[0].0.clone(), Arc::new(Self::Inner(right)))))
            }
        }
    }

    fn remove(&mut self, start: &Bound) -> RangeTombstone {
        match self {
            Self::Leaf(ranges) => {
                let at = ranges.upto(start.position()).checked_sub(1).expect("it is in the tree");
                let range = ranges.remove(at);
                assert!(range.start == *start, "it is in the tree");
                range
            }
            Self::Inner(children) => {
                let at = children.child_of(start.position());
                let child = Arc::make_mut(&mut children.items[at].1);
                let range = child.remove(start);
                let (first, len) = (child.first().cloned(), child.len());
                match first {
                    None => drop(children.remove(at)),
                    Some(now) => {
                        if now != children.items[at].0 {
                            children.set_start(at, &now);
                        }
                        if len < ENTRIES_MIN {
                            children.join(at);
                        }
                    }
                }
                range
            }
        }
    }
}

/// Ranges in ascending order, or in descending order when reversed. From a position on means: ascending, from the last range that
/// begins there or before it (the first of all if there is none); descending, from the same range or from none.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    /// The rest of the nodes above the leaf.
    path: Vec<std::slice::Iter<'a, (Bound, Arc<Node>)>>,
    leaf: std::slice::Iter<'a, RangeTombstone>,
    reversed: bool,
}

impl<'a> Walk<'a> {
    /// Walks over ranges in a vector.
    pub(crate) fn of(ranges: &'a [RangeTombstone], from: Option<&[u8]>, reversed: bool) -> Self {
        let upto = from.map(|from| ranges.partition_point(|range| range.start.position() <= from));
        Self { path: Vec::new(), leaf: Self::part(ranges, upto, reversed).iter(), reversed }
    }

    /// The part that a walk hands on of ranges of which so many begin at its place or before it.
    fn part(ranges: &[RangeTombstone], upto: Option<usize>, reversed: bool) -> &[RangeTombstone] {
        match upto {
            None => ranges,
            Some(upto) if reversed => &ranges[..upto],
            Some(upto) => &ranges[upto.saturating_sub(1)..],
        }
    }

    fn descend(&mut self, mut node: &'a Node, from: Option<&[u8]>) {
        loop {
            match node {
                Node::Leaf(ranges) => {
                    let upto = from.map(|from| ranges.upto(from));
                    self.leaf = Self::part(&ranges.items, upto, self.reversed).iter();
                    return;
                }
                Node::Inner(children) => {
                    let last = children.len() - 1;
                    let at = match from {
                        Some(from) => children.child_of(from),
                        None if self.reversed => last,
                        None => 0,
                    };
                    let children = children.items.as_slice();
                    let rest = if self.reversed { &children[..at] } else { &children[at + 1..] };
                    self.path.push(rest.iter());
                    node = &children[at].1;
                }
            }
        }
    }
}

fn step<'a, T>(entries: &mut std::slice::Iter<'a, T>, reversed: bool) -> Option<&'a T> {
    if reversed { entries.next_back() } else { entries.next() }
}

impl<'a> Iterator for Walk<'a> {
    type Item = &'a RangeTombstone;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(range) = step(&mut self.leaf, self.reversed) {
                return Some(range);
            }
            match step(self.path.last_mut()?, self.reversed) {
                Some((_, child)) => self.descend(child, None),
                None => drop(self.path.pop()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use schema::{Table, TableBuilder, TableId};
    use types::CqlType;

    use super::*;
    use crate::{DeletionTime, Side};

    fn range(table: &Table, n: u32) -> RangeTombstone {
        let bound = |side| Bound::new(table, &[Some(&n.to_be_bytes())], side);
        let (start, end) = (bound(Side::Before), bound(Side::After));
        RangeTombstone { start, end, deletion: DeletionTime::new(1, 1) }
    }

    fn check(tree: &RangeTree, expected: &BTreeMap<u32, RangeTombstone>, table: &Table, from: u32) {
        assert_eq!(tree.len(), expected.len());
        assert!(tree.walk(None, false).eq(expected.values()));
        assert!(tree.walk(None, true).eq(expected.values().rev()));
        let place = range(table, from).start;
        let before = expected.range(..=from).next_back().map_or(from, |(n, _)| *n);
        let ascending = expected.range(before..).map(|(_, range)| range);
        assert!(tree.walk(Some(place.position()), false).eq(ascending));
        let descending = expected.range(..=from).rev().map(|(_, range)| range);
        assert!(tree.walk(Some(place.position()), true).eq(descending));
    }

    /// Against a map of the standard library; a clone stays as it is.
    #[test]
    fn equals_an_ordered_map() {
        let table = TableBuilder::new("ks", "t", TableId([1; 16]))
            .partition_key("pk", CqlType::Int)
            .clustering("ck", CqlType::Int, false)
            .build_known();
        for (seed, among, inserts) in [(1, 3_000, 60), (2, 200, 60), (3, 20_000, 90), (4, 2_000, 35)] {
            let mut state: u64 = seed;
            let mut below = |n: u32| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as u32 % n
            };
            let (mut tree, mut expected) = (RangeTree::of([]), BTreeMap::new());
            let mut clone = (tree.clone(), expected.clone());
            for turn in 0..6_000 {
                let n = below(among);
                // Up and down, so that nodes are split and joined.
                let percent = if turn / 2_000 == 1 { 100 - inserts } else { inserts };
                if below(100) < percent {
                    if expected.insert(n, range(&table, n)).is_none() {
                        tree.insert(range(&table, n));
                    }
                } else if let Some(range) =
                    expected.range(n..).next().map(|(n, _)| *n).and_then(|n| expected.remove(&n))
                {
                    assert_eq!(tree.remove(&range.start), range);
                }
                if turn % 500 == 0 {
                    check(&tree, &expected, &table, n);
                    check(&clone.0, &clone.1, &table, n);
                    clone = (tree.clone(), expected.clone());
                }
            }
            let mut steps = 1;
            drop(clone);
            let leaves = tree.len() / ENTRIES_MAX;
            while tree.free_some() {
                steps += 1;
            }
            assert!(steps >= leaves && tree.len() == 0, "{steps} steps");
        }
    }
}
