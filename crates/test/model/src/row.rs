//! One row: the merge of its writes, and a reader's view of it.
//!
//! The rules are Cassandra's: the higher timestamp wins; at a tie a deletion beats data, a value that expires beats one that
//! lasts, then the one that expires later, then the larger value wins. A compaction makes a deletion of a value that has expired, which wins such a
//! tie where the other version comes later. A row is there while its mark or one of its values lives.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::{ColumnId, Effect, Place, Scalar, Shape, Value, Write};

/// The server's clock in seconds while something happened: between the two.
pub type Seconds = (i64, i64);

/// Nothing was ever deleted.
const NEVER: i64 = i64::MIN;

/// One version of a value. The order is that of reconciliation: the greatest wins.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    timestamp: i64,
    deleted: bool,
    /// When it is gone: at some second between the two.
    expires: Option<Seconds>,
    value: Option<Scalar>,
    /// From this second on a version that has lost a tie to it may have been made a deletion.
    may_be_gone: Option<i64>,
}

/// Whether a reader sees something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Alive,
    /// It expires about now.
    Perhaps,
    Dead,
}

/// The merge of the writes to a row, or to a partition's static row.
#[derive(Clone, Debug)]
pub struct RowState {
    /// The latest deletion of the row, of rows around it, of the partition.
    deletion: i64,
    mark: Option<Cell>,
    cells: BTreeMap<ColumnId, Cell>,
    /// Per collection: up to which timestamp its elements were deleted, and the elements.
    collections: BTreeMap<ColumnId, (i64, BTreeMap<Scalar, Cell>)>,
    counts: BTreeMap<ColumnId, i64>,
}

/// A reading of a row: the selected columns, without the empty ones.
pub type Seen = BTreeMap<ColumnId, Value>;

/// A reading of a place: nothing, or a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeenRow {
    /// No such row.
    Absent,
    /// The row.
    Present(Seen),
    /// The static row, which is never absent, only empty.
    Static(Seen),
}

impl Default for RowState {
    fn default() -> Self {
        Self {
            deletion: NEVER,
            mark: None,
            cells: BTreeMap::new(),
            collections: BTreeMap::new(),
            counts: BTreeMap::new(),
        }
    }
}

fn take_greater(slot: &mut Option<Cell>, cell: Cell) {
    match slot {
        Some(present) => present.merge(cell),
        None => *slot = Some(cell),
    }
}

impl Cell {
    fn new(write: &Write, value: Option<Scalar>, ttl: Option<u32>) -> Self {
        let deleted = value.is_none();
        let expires = match ttl {
            Some(ttl) if !deleted => Some((write.clock.0 + i64::from(ttl), write.clock.1 + i64::from(ttl))),
            _ => None,
        };
        Self { timestamp: write.timestamp, deleted, expires, value, may_be_gone: None }
    }

    /// Takes another version: the greater one stays.
    fn merge(&mut self, other: Self) {
        let other = if *self < other { std::mem::replace(self, other) } else { other };
        if self.timestamp == other.timestamp {
            let expires = other.expires.map(|(first, _)| first);
            self.may_be_gone = [self.may_be_gone, other.may_be_gone, expires].into_iter().flatten().min();
        }
    }

    fn life(&self, deletion: i64, now: Seconds, latest: i64) -> Life {
        if self.deleted || self.timestamp <= deletion {
            return Life::Dead;
        }
        match self.expires {
            Some((_, last)) if now.0 >= last => Life::Dead,
            // A clock that went back may bring back values that no compaction has seen while they were expired.
            Some((first, _)) if now.1.max(latest) >= first => Life::Perhaps,
            _ if self.may_be_gone.is_some_and(|first| now.1.max(latest) >= first) => Life::Perhaps,
            _ => Life::Alive,
        }
    }
}

impl RowState {
    /// Adds a write's effect on this place.
    pub fn apply(&mut self, write: &Write, place: &Place) {
        for effect in write.effects.iter().filter(|effect| effect.touches(place)) {
            match effect {
                Effect::Truncate => *self = Self::default(),
                Effect::Partition | Effect::Rows(_) => self.deletion = self.deletion.max(write.timestamp),
                Effect::Mark(_, ttl) => {
                    take_greater(&mut self.mark, Cell::new(write, Some(Scalar::Int(0)), *ttl));
                }
                Effect::Cell { column, value, ttl, .. } => {
                    let cell = Cell::new(write, value.clone(), *ttl);
                    match self.cells.entry(*column) {
                        Entry::Occupied(mut present) => present.get_mut().merge(cell),
                        Entry::Vacant(place) => drop(place.insert(cell)),
                    }
                }
                Effect::Clear { column, .. } => {
                    let (cleared, _) = self.collections.entry(*column).or_insert((NEVER, BTreeMap::new()));
                    *cleared = (*cleared).max(write.timestamp - 1);
                }
                Effect::Erase { column, .. } => {
                    let (cleared, _) = self.collections.entry(*column).or_insert((NEVER, BTreeMap::new()));
                    *cleared = (*cleared).max(write.timestamp);
                }
                Effect::Element { column, path, value, ttl, .. } => {
                    let cell = Cell::new(write, value.clone(), *ttl);
                    let (_, elements) = self.collections.entry(*column).or_insert((NEVER, BTreeMap::new()));
                    match elements.entry(path.clone()) {
                        Entry::Occupied(mut present) => present.get_mut().merge(cell),
                        Entry::Vacant(place) => drop(place.insert(cell)),
                    }
                }
                Effect::Add { column, delta, .. } => *self.counts.entry(*column).or_default() += delta,
            }
        }
    }

    /// Whether a reader whose clock showed `now` may have seen this. `latest` is the latest time that the server's
    /// clock has ever shown; `columns` are those that were asked for.
    pub fn may_show(
        &self,
        shape: &Shape,
        seen: &SeenRow,
        columns: &[ColumnId],
        now: Seconds,
        latest: i64,
    ) -> bool {
        let none = Seen::new();
        let (values, is_static) = match seen {
            SeenRow::Absent => (&none, false),
            SeenRow::Present(values) => (values, false),
            SeenRow::Static(values) => (values, true),
        };
        let fits = |column: &ColumnId| self.column_may_show(*column, values.get(column), now, latest);
        let asked = shape.columns.iter().filter(|column| column.is_static == is_static);
        if !asked.clone().filter(|column| columns.contains(&column.id)).all(|column| fits(&column.id)) {
            return false;
        }
        let mark = self.mark.as_ref().map_or(Life::Dead, |mark| mark.life(self.deletion, now, latest));
        let lives = || asked.clone().map(|column| self.column_life(column.id, now, latest));
        match seen {
            SeenRow::Static(_) => true,
            SeenRow::Absent => mark != Life::Alive && lives().all(|life| life != Life::Alive),
            SeenRow::Present(_) => mark != Life::Dead || lives().any(|life| life != Life::Dead),
        }
    }

    fn column_life(&self, column: ColumnId, now: Seconds, latest: i64) -> Life {
        if self.counts.contains_key(&column) {
            return Life::Alive;
        }
        let simple = self.cells.get(&column).map(|cell| cell.life(self.deletion, now, latest));
        let elements = self.collections.get(&column).into_iter().flat_map(|(cleared, elements)| {
            let deletion = self.deletion.max(*cleared);
            elements.values().map(move |element| element.life(deletion, now, latest))
        });
        let lives: Vec<Life> = simple.into_iter().chain(elements).collect();
        if lives.contains(&Life::Alive) {
            Life::Alive
        } else if lives.contains(&Life::Perhaps) {
            Life::Perhaps
        } else {
            Life::Dead
        }
    }

    fn column_may_show(&self, column: ColumnId, seen: Option<&Value>, now: Seconds, latest: i64) -> bool {
        if let Some(count) = self.counts.get(&column) {
            return seen == Some(&Value::Scalar(Scalar::Int(*count)));
        }
        if let Some(cell) = self.cells.get(&column) {
            let same = match seen {
                Some(Value::Scalar(scalar)) => Some(scalar) == cell.value.as_ref(),
                _ => false,
            };
            return match cell.life(self.deletion, now, latest) {
                Life::Alive => same,
                Life::Perhaps => same || seen.is_none(),
                Life::Dead => seen.is_none(),
            };
        }
        let Some((cleared, elements)) = self.collections.get(&column) else { return seen.is_none() };
        let mut left: BTreeMap<Scalar, Scalar> = match seen {
            None => BTreeMap::new(),
            Some(value) => crate::write::elements(value).into_iter().collect(),
        };
        let deletion = self.deletion.max(*cleared);
        for (path, cell) in elements {
            let shown = left.remove(path);
            let same = shown.is_some() && shown == cell.value;
            let fits = match cell.life(deletion, now, latest) {
                Life::Alive => same,
                Life::Perhaps => same || shown.is_none(),
                Life::Dead => shown.is_none(),
            };
            if !fits {
                return false;
            }
        }
        left.is_empty()
    }
}
