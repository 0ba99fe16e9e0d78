//! The workload of a client: random statements, with their meaning for the model.

use std::collections::{BTreeMap, BTreeSet};

use model::{Column, ColumnType, Effect, Place, Scalar, ScalarType, Slice, Value, Write};
use rt_sim::Rng;

use crate::check::Question;
use crate::plan::{one_in, pick};
use crate::statement::Query;
use crate::table::{Key, Table, token};
use crate::world::World;

/// A write that is ready to be sent: its statement, and its effect on each partition.
pub(crate) struct Prepared {
    pub(crate) query: Query,
    pub(crate) writes: Vec<(Key, u64)>,
    /// It is a logged batch: all of its writes happen or none.
    pub(crate) logged: bool,
}

fn key_value(ty: ScalarType, number: u64) -> Scalar {
    match ty {
        // Signs, and orders of bytes that are not those of numbers.
        ScalarType::Int | ScalarType::Bigint => Scalar::Int(number as i64 * 97 - 200),
        ScalarType::Text => {
            Scalar::Text(["", "a", "aa", "b", "ü", "z'z", "zz"][number as usize % 7].to_owned())
        }
        ScalarType::Blob => Scalar::Blob(
            [&b"\x00"[..], b"\x00\x00", b"\x01", b"\x7f\xff", b"\x80", b"\xff", b"\xff\xff"]
                [number as usize % 7]
                .to_vec(),
        ),
    }
}

/// Partition keys of text are never empty.
fn partition_value(ty: ScalarType, number: u64) -> Scalar {
    match ty {
        ScalarType::Text => Scalar::Text(format!("p{number}")),
        ScalarType::Blob if number >= 7 => Scalar::Blob(number.to_be_bytes().to_vec()),
        other => key_value(other, number),
    }
}

pub(crate) fn partition_key(rng: &mut Rng, table: &Table) -> Key {
    let number = rng.below(table.scale.partitions);
    table.shape.partition_key.iter().map(|ty| partition_value(*ty, number)).collect()
}

fn clustering_key(rng: &mut Rng, table: &Table) -> Key {
    let types = table.shape.clustering.iter().enumerate();
    types.map(|(at, (ty, _))| key_value(*ty, rng.below(if at == 0 { table.scale.rows } else { 3 }))).collect()
}

/// A value that identifies its write.
fn value(rng: &mut Rng, ty: ScalarType, id: u64) -> Scalar {
    let padding = match rng.below(12) {
        0 => 200 + rng.below(2500) as usize,
        1..=3 => rng.below(120) as usize,
        _ => 0,
    };
    match ty {
        ScalarType::Int | ScalarType::Bigint => Scalar::Int(id as i64),
        ScalarType::Text => Scalar::Text(format!("w{id}{}", "-".repeat(padding))),
        ScalarType::Blob => {
            let mut bytes = id.to_be_bytes().to_vec();
            bytes.extend((0..padding).map(|_| rng.below(256) as u8));
            Scalar::Blob(bytes)
        }
    }
}

fn element(rng: &mut Rng, ty: ScalarType) -> Scalar {
    key_value(ty, rng.below(5))
}

fn collection(rng: &mut Rng, ty: ColumnType, id: u64) -> Value {
    let count = rng.below(4);
    match ty {
        ColumnType::Set(of) => Value::Set((0..count).map(|_| element(rng, of)).collect::<BTreeSet<_>>()),
        ColumnType::Map(key, of) => Value::Map(
            (0..count).map(|_| (element(rng, key), value(rng, of, id))).collect::<BTreeMap<_, _>>(),
        ),
        ColumnType::Scalar(_) | ColumnType::Counter => panic!("no collection"),
    }
}

/// One statement being written.
struct Draft<'a> {
    rng: &'a mut Rng,
    table: &'a Table,
    id: u64,
    query: Query,
    effects: Vec<Effect>,
    ttl: Option<u32>,
}

impl Draft<'_> {
    fn elements(&mut self, place: &Place, column: &Column, value: &Value) {
        let parts: Vec<(Scalar, Scalar)> = match value {
            Value::Scalar(_) => Vec::new(),
            Value::Set(set) => {
                set.iter().map(|element| (element.clone(), Scalar::Blob(Vec::new()))).collect()
            }
            Value::Map(map) => map.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        };
        for (path, value) in parts {
            let (place, ttl) = (place.clone(), self.ttl);
            self.effects.push(Effect::Element { place, column: column.id, path, value: Some(value), ttl });
        }
    }

    /// Overwrites a column with a new value, whose text is appended.
    fn overwrite(&mut self, place: &Place, column: &Column) {
        let place = if column.is_static { None } else { place.clone() };
        match column.ty {
            ColumnType::Scalar(ty) => {
                let value = value(self.rng, ty, self.id);
                self.query.scalar(ty, &value);
                self.effects.push(Effect::Cell {
                    place,
                    column: column.id,
                    value: Some(value),
                    ttl: self.ttl,
                });
            }
            ty => {
                let value = collection(self.rng, ty, self.id);
                self.query.column(ty, &value);
                self.effects.push(Effect::Clear { place: place.clone(), column: column.id });
                self.elements(&place, column, &value);
            }
        }
    }

    /// Deletes a column's value.
    fn clear(&mut self, place: &Place, column: &Column) {
        let place = if column.is_static { None } else { place.clone() };
        self.effects.push(match column.ty {
            ColumnType::Scalar(_) => Effect::Cell { place, column: column.id, value: None, ttl: None },
            // Unlike an overwrite, it takes elements of its own timestamp along.
            _ => Effect::Erase { place, column: column.id },
        });
    }

    /// Sets a column to null: of a collection that is an overwrite with nothing.
    fn set_null(&mut self, place: &Place, column: &Column) {
        if !column.ty.is_collection() {
            return self.clear(place, column);
        }
        let place = if column.is_static { None } else { place.clone() };
        self.effects.push(Effect::Clear { place, column: column.id });
    }

    fn name(&self) -> String {
        format!("{}.{}", self.table.keyspace, self.table.name)
    }

    /// Some of the columns, at least one unless there is none.
    fn columns(&mut self, statics: bool) -> Vec<Column> {
        let all: Vec<Column> =
            self.table.shape.columns.iter().filter(|column| column.is_static == statics).cloned().collect();
        if all.is_empty() {
            return all;
        }
        let one = self.rng.below(all.len() as u64) as usize;
        let rng = &mut *self.rng;
        all.into_iter()
            .enumerate()
            .filter(|(at, _)| *at == one || one_in(rng, 2))
            .map(|(_, column)| column)
            .collect()
    }

    /// `WHERE` with the partition, and the row if there is one.
    fn place(&mut self, partition: &Key, row: Option<&Key>) {
        let table = self.table;
        for (at, (ty, scalar)) in table.shape.partition_key.iter().zip(partition).enumerate() {
            self.query
                .push(if at == 0 { " WHERE " } else { " AND " })
                .push(&format!("p{at} = "))
                .scalar(*ty, scalar);
        }
        for (at, ((ty, _), scalar)) in
            table.shape.clustering.iter().zip(row.into_iter().flatten()).enumerate()
        {
            self.query.push(&format!(" AND c{at} = ")).scalar(*ty, scalar);
        }
    }

    fn using(&mut self, timestamp: Option<i64>) {
        let mut word = " USING ";
        if let Some(timestamp) = timestamp {
            self.query.push(word).push("TIMESTAMP ").bigint(timestamp);
            word = " AND ";
        }
        if let Some(ttl) = self.ttl {
            self.query.push(word).push("TTL ").int(ttl as i32);
        }
    }

    fn insert(&mut self, partition: &Key, timestamp: Option<i64>) {
        let row = clustering_key(self.rng, self.table);
        let mut columns = if one_in(self.rng, 6) { Vec::new() } else { self.columns(false) };
        if one_in(self.rng, 3) {
            columns.extend(self.columns(true));
        }
        let table = self.table;
        let keys = (0..partition.len()).map(|at| format!("p{at}"));
        let keys = keys.chain((0..row.len()).map(|at| format!("c{at}")));
        let names: Vec<String> = keys.chain(columns.iter().map(|column| column.name.clone())).collect();
        self.query.push(&format!("INSERT INTO {} ({}) VALUES (", self.name(), names.join(", ")));
        for (at, (ty, scalar)) in table.shape.partition_key.iter().zip(partition).enumerate() {
            self.query.push(if at == 0 { "" } else { ", " }).scalar(*ty, scalar);
        }
        for ((ty, _), scalar) in table.shape.clustering.iter().zip(&row) {
            self.query.push(", ").scalar(*ty, scalar);
        }
        self.effects.push(Effect::Mark(row.clone(), self.ttl));
        for column in &columns {
            self.query.push(", ");
            if one_in(self.rng, 10) {
                self.query.push("null");
                self.set_null(&Some(row.clone()), column);
            } else {
                self.overwrite(&Some(row.clone()), column);
            }
        }
        self.query.push(")");
        self.using(timestamp);
    }

    fn update(&mut self, partition: &Key, timestamp: Option<i64>) {
        let statics = one_in(self.rng, 5);
        let columns = self.columns(statics);
        if columns.is_empty() {
            return self.insert(partition, timestamp);
        }
        let row = clustering_key(self.rng, self.table);
        let place = if statics { None } else { Some(row.clone()) };
        let head = format!("UPDATE {}", self.name());
        self.query.push(&head);
        self.using(timestamp);
        for (at, column) in columns.iter().enumerate() {
            self.query.push(if at == 0 { " SET " } else { ", " });
            self.assign(&place, column);
        }
        self.place(partition, (!statics).then_some(&row));
    }

    fn assign(&mut self, place: &Place, column: &Column) {
        let name = &column.name;
        match (column.ty, self.rng.below(3)) {
            (ColumnType::Scalar(_), _) | (_, 0) => {
                self.query.push(&format!("{name} = "));
                self.overwrite(place, column);
            }
            (ty, 1) => {
                self.query.push(&format!("{name} = {name} + "));
                let value = collection(self.rng, ty, self.id);
                self.query.column(ty, &value);
                self.elements(place, column, &value);
            }
            (ColumnType::Map(key, of), _) => {
                let (path, value) = (element(self.rng, key), value(self.rng, of, self.id));
                self.query.push(&format!("{name}[")).scalar(key, &path).push("] = ").scalar(of, &value);
                let (place, ttl) = (place.clone(), self.ttl);
                self.effects.push(Effect::Element {
                    place,
                    column: column.id,
                    path,
                    value: Some(value),
                    ttl,
                });
            }
            (ty, _) => {
                self.query.push(&format!("{name} = {name} - "));
                let gone = collection(self.rng, ty, self.id);
                self.query.column(ty, &gone);
                if let Value::Set(elements) = gone {
                    for path in elements {
                        let place = place.clone();
                        self.effects.push(Effect::Element {
                            place,
                            column: column.id,
                            path,
                            value: None,
                            ttl: None,
                        });
                    }
                }
            }
        }
    }

    fn delete(&mut self, partition: &Key, timestamp: Option<i64>) {
        self.ttl = None;
        let row = clustering_key(self.rng, self.table);
        let head = |names: &str, table: String| format!("DELETE {names}FROM {table}");
        match self.rng.below(8) {
            0..=2 => {
                let statics = one_in(self.rng, 6);
                let columns = self.columns(statics);
                if columns.is_empty() {
                    return self.delete(partition, timestamp);
                }
                let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
                self.query.push(&head(&format!("{} ", names.join(", ")), self.name()));
                self.using(timestamp);
                self.place(partition, (!statics).then_some(&row));
                let place = if statics { None } else { Some(row) };
                columns.iter().for_each(|column| self.clear(&place, column));
            }
            3 | 4 => {
                self.query.push(&head("", self.name()));
                self.using(timestamp);
                self.place(partition, Some(&row));
                self.effects.push(Effect::Rows(Slice { equal: row, ..Slice::default() }));
            }
            5 | 6 if !self.table.shape.clustering.is_empty() => {
                self.query.push(&head("", self.name()));
                self.using(timestamp);
                self.place(partition, None);
                let slice = slice(self.rng, self.table);
                push_slice(&mut self.query, self.table, &slice);
                self.effects.push(Effect::Rows(slice));
            }
            _ => {
                self.query.push(&head("", self.name()));
                self.using(timestamp);
                self.place(partition, None);
                self.effects.push(Effect::Partition);
            }
        }
    }

    fn count(&mut self, partition: &Key) {
        let columns = self.columns(false);
        let row = clustering_key(self.rng, self.table);
        let head = format!("UPDATE {} SET ", self.name());
        self.query.push(&head);
        for (at, column) in columns.iter().enumerate() {
            let delta = self.rng.below(2000) as i64 - 500;
            let name = &column.name;
            self.query
                .push(if at == 0 { "" } else { ", " })
                .push(&format!("{name} = {name} + "))
                .bigint(delta);
            self.effects.push(Effect::Add { place: Some(row.clone()), column: column.id, delta });
        }
        self.place(partition, Some(&row));
    }

    fn statement(&mut self, partition: &Key, timestamp: Option<i64>) {
        if self.table.shape.is_counter() {
            return self.count(partition);
        }
        match self.rng.below(10) {
            0..=3 => self.insert(partition, timestamp),
            4..=6 => self.update(partition, timestamp),
            _ => self.delete(partition, timestamp),
        }
    }
}

/// Rows of a partition, by a random restriction.
fn slice(rng: &mut Rng, table: &Table) -> Slice {
    let clustering = &table.shape.clustering;
    let equal_len = if clustering.len() > 1 && one_in(rng, 2) { 1 } else { 0 };
    let mut slice = Slice { equal: clustering_key(rng, table), ..Slice::default() };
    slice.equal.truncate(equal_len);
    let most = if equal_len == 0 { table.scale.rows } else { 3 };
    let ty = clustering[equal_len].0;
    let (low, high) = (rng.below(most), rng.below(most));
    let mut ends = [key_value(ty, low), key_value(ty, high)];
    ends.sort();
    let [from, to] = ends;
    let kind = rng.below(4);
    if kind != 0 {
        slice.from = Some((from, one_in(rng, 2)));
    }
    if kind != 1 {
        slice.to = Some((to, one_in(rng, 2)));
    }
    slice
}

fn push_slice(query: &mut Query, table: &Table, slice: &Slice) {
    let clustering = &table.shape.clustering;
    for (at, ((ty, _), scalar)) in clustering.iter().zip(&slice.equal).enumerate() {
        query.push(&format!(" AND c{at} = ")).scalar(*ty, scalar);
    }
    let at = slice.equal.len();
    if let Some((from, included)) = &slice.from {
        query
            .push(&format!(" AND c{at} {} ", if *included { ">=" } else { ">" }))
            .scalar(clustering[at].0, from);
    }
    if let Some((to, included)) = &slice.to {
        query
            .push(&format!(" AND c{at} {} ", if *included { "<=" } else { "<" }))
            .scalar(clustering[at].0, to);
    }
}

/// How many writes to a partition may be open at once.
const UNKNOWN_MAX: usize = 8;

/// The head of a batch of some kind; whether it is logged.
fn begin_batch(query: &mut Query, rng: &mut Rng, counter: bool, timestamp: Option<i64>) -> bool {
    let (kind, logged) = match (counter, one_in(rng, 3)) {
        (true, _) => ("BEGIN COUNTER BATCH ", false),
        (false, true) => ("BEGIN UNLOGGED BATCH ", false),
        (false, false) => ("BEGIN BATCH ", true),
    };
    query.push(kind);
    if let Some(timestamp) = timestamp {
        query.push("USING TIMESTAMP ").bigint(timestamp).push(" ");
    }
    logged
}

/// Draws a write and notes it as begun; none when the partition has enough open ones.
pub(crate) fn draw_write(world: &mut World, rng: &mut Rng, table: usize, bound: bool) -> Option<Prepared> {
    let scale = world.tables[table].scale;
    let batch = if one_in(rng, scale.one_batch_in) { 2 + rng.below(3) } else { 1 };
    let counter = world.tables[table].shape.is_counter();
    let timestamp = match rng.below(10) {
        _ if counter => None,
        0 => Some(world.timestamp_again()),
        1..=3 => {
            let back = rng.below(1_500_000) as i64;
            Some(world.timestamp(back))
        }
        _ => Some(world.timestamp(0)),
    };
    let first = partition_key(rng, &world.tables[table]);
    let mut writes: Vec<(Key, Write)> = Vec::new();
    let mut query = Query::new(bound);
    let logged = batch > 1 && begin_batch(&mut query, rng, counter, timestamp);
    let clock = world.all_seconds();
    for _ in 0..batch {
        let partition = if one_in(rng, scale.one_elsewhere_in) {
            partition_key(rng, &world.tables[table])
        } else {
            first.clone()
        };
        let at = match writes.iter().position(|(key, _)| *key == partition) {
            Some(at) => at,
            None => {
                let id = world.next_id();
                let timestamp = timestamp.unwrap_or(0);
                let write = Write { id, timestamp, clock, text: String::new(), effects: Vec::new() };
                writes.push((partition.clone(), write));
                writes.len() - 1
            }
        };
        let ttl = (!counter && one_in(rng, 6)).then(|| 1 + rng.below(25) as u32);
        let id = writes[at].1.id;
        let mut draft = Draft { rng, table: &world.tables[table], id, query, effects: Vec::new(), ttl };
        draft.statement(&partition, if batch > 1 { None } else { timestamp });
        writes[at].1.effects.append(&mut draft.effects);
        query = draft.query;
        if batch > 1 {
            query.push("; ");
        }
    }
    if batch > 1 {
        query.push("APPLY BATCH");
    }
    let open = |key: &Key| world.tables[table].partitions.get(key).map_or(0, model::Partition::unknown_count);
    if writes.iter().any(|(key, _)| open(key) >= UNKNOWN_MAX) {
        return None;
    }
    let mut ids = Vec::with_capacity(writes.len());
    for (key, mut write) in writes {
        write.text.clone_from(&query.shown);
        for part in parts(world, write) {
            ids.push((key.clone(), part.id));
            world.begin(table, &key, part);
        }
    }
    Some(Prepared { query, writes: ids, logged })
}

/// The parts of a write that may happen without the rest. In a cluster this is each increment: a counter's new state on its leader reaches the other
/// replicas with the next increment of that counter, also if the leader is lost for good before it sent them the rest of the write before.
fn parts(world: &mut World, mut write: Write) -> Vec<Write> {
    let is_apart = |effect: &Effect| matches!(effect, Effect::Add { .. });
    if world.nodes.len() == 1 || write.effects.len() < 2 || !write.effects.iter().all(is_apart) {
        return vec![write];
    }
    let mut by_counter: BTreeMap<(Place, u32), Vec<Effect>> = BTreeMap::new();
    for effect in std::mem::take(&mut write.effects) {
        if let Effect::Add { place, column, .. } = &effect {
            by_counter.entry((place.clone(), *column)).or_default().push(effect);
        }
    }
    let all = by_counter.into_values().enumerate();
    all.map(|(nth, effects)| {
        let id = if nth == 0 { write.id } else { world.next_id() };
        Write { id, effects, ..write.clone() }
    })
    .collect()
}

/// The columns that a read selects: all static ones, and some others.
fn selected(rng: &mut Rng, table: &Table) -> Vec<u32> {
    let all = one_in(rng, 2);
    let columns = table.shape.columns.iter();
    columns.filter(|column| all || column.is_static || one_in(rng, 2)).map(|column| column.id).collect()
}

fn select(table: &Table, columns: &[u32], bound: bool) -> Query {
    let shape = &table.shape;
    let keys = (0..shape.partition_key.len()).map(|at| format!("p{at}"));
    let keys = keys.chain((0..shape.clustering.len()).map(|at| format!("c{at}")));
    let names = columns.iter().filter_map(|id| shape.columns.iter().find(|column| column.id == *id));
    let names: Vec<String> = keys.chain(names.map(|column| column.name.clone())).collect();
    let mut query = Query::new(bound);
    query.push(&format!("SELECT {} FROM {}.{}", names.join(", "), table.keyspace, table.name));
    query
}

/// All columns of a partition, in either direction.
pub(crate) fn whole_partition(table: &Table, key: &Key, reversed: bool, bound: bool) -> (Query, Question) {
    let columns: Vec<u32> = table.shape.columns.iter().map(|column| column.id).collect();
    let mut query = select(table, &columns, bound);
    push_partition(&mut query, table, key);
    if reversed {
        push_reversed(&mut query, table);
    }
    let partitions = Some(vec![key.clone()]);
    (
        query,
        Question {
            partitions,
            slice: None,
            columns,
            reversed,
            limit: None,
            partition_limit: None,
            tokens: None,
            weak: false,
        },
    )
}

/// All columns of a table.
pub(crate) fn whole_table(table: &Table, bound: bool) -> (Query, Question) {
    let columns: Vec<u32> = table.shape.columns.iter().map(|column| column.id).collect();
    let query = select(table, &columns, bound);
    (query, Question { columns, ..Question::default() })
}

fn push_partition(query: &mut Query, table: &Table, key: &Key) {
    for (at, (ty, scalar)) in table.shape.partition_key.iter().zip(key).enumerate() {
        query.push(if at == 0 { " WHERE " } else { " AND " }).push(&format!("p{at} = ")).scalar(*ty, scalar);
    }
}

fn push_reversed(query: &mut Query, table: &Table) {
    let order = table.shape.clustering.iter().enumerate();
    let order =
        order.map(|(at, (_, backwards))| format!("c{at} {}", if *backwards { "ASC" } else { "DESC" }));
    query.push(&format!(" ORDER BY {}", order.collect::<Vec<_>>().join(", ")));
}

/// Draws a read: the statement, its meaning, the size of its pages.
pub(crate) fn draw_read(rng: &mut Rng, table: &Table, bound: bool) -> (Query, Question, i32) {
    let page = *pick(rng, &[1, 2, 3, 7, 100]);
    let columns = selected(rng, table);
    let clustered = !table.shape.clustering.is_empty();
    let mut query = select(table, &columns, bound);
    let mut question = Question { columns, ..Question::default() };
    match rng.below(11) {
        0 => {}
        10 => {
            let mut ends = [(); 2].map(|()| token(table, &partition_key(rng, table)));
            ends.sort_unstable();
            let names: Vec<String> =
                (0..table.shape.partition_key.len()).map(|at| format!("p{at}")).collect();
            let function = format!("token({})", names.join(", "));
            query.push(&format!(" WHERE {function} > ")).bigint(ends[0]);
            query.push(&format!(" AND {function} <= ")).bigint(ends[1]);
            question.tokens = Some((ends[0], ends[1]));
        }
        1 if table.shape.partition_key.len() == 1 => {
            let mut keys: Vec<Key> = (0..2 + rng.below(3)).map(|_| partition_key(rng, table)).collect();
            keys.sort();
            keys.dedup();
            query.push(" WHERE p0 IN (");
            for (at, key) in keys.iter().enumerate() {
                query.push(if at == 0 { "" } else { ", " }).scalar(table.shape.partition_key[0], &key[0]);
            }
            query.push(")");
            question.partitions = Some(keys);
        }
        kind => {
            let key = partition_key(rng, table);
            push_partition(&mut query, table, &key);
            question.partitions = Some(vec![key]);
            if clustered && kind < 7 {
                let slice = if kind < 4 {
                    Slice { equal: clustering_key(rng, table), ..Slice::default() }
                } else {
                    slice(rng, table)
                };
                push_slice(&mut query, table, &slice);
                question.slice = Some(slice);
            }
            if clustered && one_in(rng, 3) {
                question.reversed = true;
                push_reversed(&mut query, table);
            }
        }
    }
    if clustered && one_in(rng, 6) {
        let limit = 1 + rng.below(3);
        query.push(" PER PARTITION LIMIT ").int(limit as i32);
        question.partition_limit = Some(limit as usize);
    }
    if one_in(rng, 4) {
        let limit = 1 + rng.below(6);
        query.push(" LIMIT ").int(limit as i32);
        question.limit = Some(limit as usize);
    }
    (query, question, page)
}
