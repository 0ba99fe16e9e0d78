//! A read of a table of `system_schema`: its rows in the order of the read, made as they are asked for.
//!
//! A schema may have twenty thousand tables, and a table 65,535 columns. A page begins where the page before ended, and rows
//! behind its last row are not made: all pages together make about as many rows as there are.

use std::ops::Bound;
use std::sync::Arc;

use mutation::{Clustering, DecoratedKey, PartitionUpdate, RowRange, Slices};
use replica::{Partitions, ReadCommand};
use schema::{Keyspace, Schema, Table};

use crate::rows::RowBuilder;
use crate::schema_tables::{
    aggregate, columns, constraints, dropped, function, indexes, is_virtual, keyspace, masks,
    scylla_aggregate, scylla_table, table, triggers, user_type, view,
};

/// Columns, functions or aggregates that become rows in one step.
pub const COLUMNS_A_STEP: usize = 256;

/// The rows of one table of `system_schema` (those stored, and those of the keyspaces that Cassandra stores too) that a read asks
/// for, a table of the schema at a time. Each call of [`Iterator::next`] is a step between which a shard does other work; one that ends within a
/// table gives a part without rows.
pub struct StoredSchema {
    table: Arc<Table>,
    schema: Arc<Schema>,
    rows: RowBuilder,
    /// The next one last.
    keyspaces: Vec<Arc<Keyspace>>,
    slices: Slices,
    reversed: bool,
    /// Where the page before ended.
    after: Option<(DecoratedKey, Clustering)>,
    under_way: Option<UnderWay>,
}

/// The keyspace whose rows are made.
struct UnderWay {
    keyspace: Arc<Keyspace>,
    key: DecoratedKey,
    /// The names of tables or types whose rows are still to be made.
    names: (Bound<String>, Bound<String>),
    /// The one of them that is begun.
    name: Option<String>,
    /// How much of it (without a name: of the keyspace) has become rows.
    done: usize,
}

impl StoredSchema {
    /// The rows that a command asks for; none when its table is not of `system_schema`.
    pub fn new(command: &ReadCommand, schema: &Arc<Schema>) -> Option<Self> {
        let table = &command.table;
        if table.keyspace != "system_schema" {
            return None;
        }
        let listed = |k: &&Arc<Keyspace>| !is_virtual(k);
        let place = |keyspace: &Arc<Keyspace>| place(&command.partitions, &key_of(keyspace));
        let resumes_at = command.resume.as_ref().map(|resume| self::place(&command.partitions, &resume.key));
        let finished = command.resume.as_ref().is_some_and(|resume| resume.clustering.is_none());
        let is_before = |keyspace: &Arc<Keyspace>| match &resumes_at {
            Some(resumes_at) if finished => place(keyspace) <= *resumes_at,
            Some(resumes_at) => place(keyspace) < *resumes_at,
            None => false,
        };
        let wanted = |keyspace: &&Arc<Keyspace>| is_wanted(&command.partitions, &key_of(keyspace));
        let keyspaces = schema.keyspaces().filter(listed).filter(wanted);
        let mut keyspaces: Vec<Arc<Keyspace>> = keyspaces.filter(|one| !is_before(one)).cloned().collect();
        keyspaces.sort_by_cached_key(|one| std::cmp::Reverse(place(one)));
        let after = command.resume.as_ref();
        let after = after.and_then(|resume| Some((resume.key.clone(), resume.clustering.clone()?)));
        Some(Self {
            table: table.clone(),
            schema: schema.clone(),
            rows: RowBuilder::new(table.clone()),
            keyspaces,
            slices: command.slices.clone(),
            reversed: command.reversed,
            after,
            under_way: None,
        })
    }

    fn begin(&mut self, keyspace: Arc<Keyspace>) -> UnderWay {
        let key = key_of(&keyspace);
        let ranges = self.slices.ranges();
        let mut names = (
            ranges.first().and_then(start_name).map_or(Bound::Unbounded, Bound::Included),
            ranges.last().and_then(end_name).map_or(Bound::Unbounded, Bound::Included),
        );
        if let Some((_, last)) = self.after.take_if(|(after, _)| *after == key)
            && let Some(name) = name_of(last.components())
        {
            // Of the last row's table there may be more rows.
            *(if self.reversed { &mut names.1 } else { &mut names.0 }) = Bound::Included(name);
        }
        UnderWay { keyspace, key, names, name: None, done: 0 }
    }

    /// Makes some of the rows of the next object; whether that is finished.
    fn step(&mut self, under_way: &mut UnderWay) -> Step {
        let UnderWay { keyspace, names, name, done, .. } = under_way;
        let rows = &mut self.rows;
        let places = |all: usize| *done..(*done + COLUMNS_A_STEP).min(all);
        let (upto, all) = match self.table.name.as_str() {
            "keyspaces" => {
                self::keyspace(rows, keyspace);
                return Step::Keyspace;
            }
            // Readers take a row without `initial_tablets` for one of a keyspace with tablets.
            "scylla_keyspaces" => return Step::Keyspace,
            "functions" => {
                let (places, all) = (places(keyspace.functions.len()), keyspace.functions.len());
                let some = keyspace.functions.values().take(places.end).skip(places.start);
                some.for_each(|one| function(rows, one));
                (places.end, all)
            }
            name @ ("aggregates" | "scylla_aggregates") => {
                let (places, all) = (places(keyspace.aggregates.len()), keyspace.aggregates.len());
                let some = keyspace.aggregates.values().take(places.end).skip(places.start);
                match name {
                    "aggregates" => some.for_each(|one| aggregate(rows, one)),
                    _ => some.for_each(|one| scylla_aggregate(rows, one)),
                }
                (places.end, all)
            }
            "types" => {
                let Some(ty) = next_of(&keyspace.types, names, name, self.reversed) else {
                    return Step::Keyspace;
                };
                if is_selected(&self.slices, &ty.name) {
                    user_type(rows, ty);
                }
                (0, 0)
            }
            of_tables => {
                let Some(table) = next_of(&keyspace.tables, names, name, self.reversed) else {
                    return Step::Keyspace;
                };
                if !is_selected(&self.slices, &table.name) {
                    (0, 0)
                } else if of_tables == "columns" {
                    let places = places(table.columns().len());
                    columns(rows, table, places.clone());
                    (places.end, table.columns().len())
                } else {
                    of_table(of_tables, rows, &self.schema, table);
                    (0, 0)
                }
            }
        };
        *done = upto;
        if upto < all {
            return Step::More;
        }
        *done = 0;
        let Some(name) = name.take() else { return Step::Keyspace };
        *(if self.reversed { &mut names.1 } else { &mut names.0 }) = Bound::Excluded(name);
        Step::Name
    }
}

/// A step's end.
enum Step {
    /// Within a table, or another object with a name of its own.
    More,
    /// Behind one.
    Name,
    /// Behind a keyspace.
    Keyspace,
}

impl Iterator for StoredSchema {
    type Item = PartitionUpdate;

    fn next(&mut self) -> Option<PartitionUpdate> {
        let mut under_way = match self.under_way.take() {
            Some(under_way) => under_way,
            None => {
                let keyspace = self.keyspaces.pop()?;
                self.begin(keyspace)
            }
        };
        let step = self.step(&mut under_way);
        let part = if matches!(step, Step::More) { None } else { self.rows.take() };
        let part = part.unwrap_or_else(|| PartitionUpdate::new(self.table.clone(), under_way.key.clone()));
        assert_eq!(part.key, under_way.key, "a part is of one keyspace");
        if !matches!(step, Step::Keyspace) {
            self.under_way = Some(under_way);
        }
        Some(part)
    }
}

/// Rows of a table that has few of them for each table of the schema.
fn of_table(name: &str, rows: &mut RowBuilder, schema: &Schema, table: &Table) {
    match name {
        "tables" if !table.is_view() => self::table(rows, table),
        "dropped_columns" => dropped(rows, table),
        "views" => view(rows, schema, table),
        "scylla_tables" => scylla_table(rows, table),
        "indexes" => indexes(rows, table),
        "triggers" => triggers(rows, table),
        "column_constraints" => constraints(rows, table),
        "column_masks" => masks(rows, table),
        _ => {}
    }
}

/// The one that is begun, or the next, which begins.
fn next_of<'a, T>(
    all: &'a std::collections::BTreeMap<String, Arc<T>>,
    names: &(Bound<String>, Bound<String>),
    begun: &mut Option<String>,
    reversed: bool,
) -> Option<&'a Arc<T>> {
    if let Some(one) = begun.as_ref().and_then(|name| all.get(name)) {
        return Some(one);
    }
    if is_empty(names) {
        return None;
    }
    let mut range = all.range(names.clone());
    let (name, one) = if reversed { range.next_back() } else { range.next() }?;
    *begun = Some(name.clone());
    Some(one)
}

/// Whether no name lies between these, which a range of a map does not allow.
fn is_empty(names: &(Bound<String>, Bound<String>)) -> bool {
    match names {
        (Bound::Included(start), Bound::Included(end)) => start > end,
        (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => {
            start >= end
        }
        _ => false,
    }
}

fn key_of(keyspace: &Arc<Keyspace>) -> DecoratedKey {
    DecoratedKey::new(keyspace.name.as_bytes().to_vec().into())
}

/// Whether a read asks for a keyspace, a partition of each table.
fn is_wanted(partitions: &Partitions, key: &DecoratedKey) -> bool {
    match partitions {
        Partitions::Keys(keys) => keys.contains(key),
        Partitions::Range(range) => range.contains(key),
    }
}

/// By these keyspaces are in the order of a read.
fn place(partitions: &Partitions, key: &DecoratedKey) -> (usize, Option<DecoratedKey>) {
    match partitions {
        Partitions::Keys(keys) => (keys.iter().position(|one| one == key).unwrap_or(keys.len()), None),
        Partitions::Range(_) => (0, Some(key.clone())),
    }
}

/// The first component of a clustering key or bound: the name of a table, a view or a type.
fn name_of<'a>(mut components: impl Iterator<Item = Option<&'a [u8]>>) -> Option<String> {
    String::from_utf8(components.next()??.to_vec()).ok()
}

fn start_name(range: &RowRange) -> Option<String> {
    name_of(range.start.components())
}

fn end_name(range: &RowRange) -> Option<String> {
    name_of(range.end.components())
}

/// Whether rows with this name may lie in a read's slices.
fn is_selected(slices: &Slices, name: &str) -> bool {
    let ranges = slices.ranges();
    let first = ranges.partition_point(|range| end_name(range).is_some_and(|end| end.as_str() < name));
    ranges.get(first).is_some_and(|range| start_name(range).is_none_or(|start| start.as_str() <= name))
}
