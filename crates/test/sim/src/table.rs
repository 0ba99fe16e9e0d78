//! A table as its clients know it: its shape, the history of each partition, and a change that is under way. Both simulations' clients and
//! checkers share it, and so it knows nothing of them.

use std::collections::BTreeMap;

use model::{Column, Partition, Scalar, Shape};

use crate::statement::encode;

/// A partition key, or a clustering key.
pub(crate) type Key = Vec<Scalar>;

/// How much a table holds, and how it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Partitions.
    pub(crate) partitions: u64,
    /// Values of the first clustering component.
    pub(crate) rows: u64,
    /// One write in so many is a batch.
    pub(crate) one_batch_in: u64,
    /// One statement of a batch in so many is about any partition instead of the batch's first.
    pub(crate) one_elsewhere_in: u64,
}

impl Default for Scale {
    fn default() -> Self {
        Self { partitions: 6, rows: 6, one_batch_in: 6, one_elsewhere_in: 3 }
    }
}

/// A change whose outcome is not known until the node has started again.
#[derive(Clone, Debug)]
pub(crate) enum Pending {
    /// The table may have these columns now.
    Alter(Shape),
    /// The table may be gone.
    Drop,
    /// The table may be there.
    Create,
    /// Its data may be gone; each partition is judged alone.
    Truncate,
}

/// A table as its clients know it.
pub(crate) struct Table {
    pub(crate) keyspace: String,
    pub(crate) name: String,
    pub(crate) shape: Shape,
    /// The options behind WITH.
    pub(crate) options: String,
    pub(crate) scale: Scale,
    pub(crate) partitions: BTreeMap<Key, Partition>,
    /// Requests under way.
    pub(crate) busy: usize,
    /// Clients leave the table alone.
    pub(crate) frozen: bool,
    /// It has been created for certain.
    pub(crate) exists: bool,
    /// A change of it that was cut off, or is under way.
    pub(crate) pending: Option<Pending>,
    /// Columns that it has had.
    pub(crate) gone: Vec<Column>,
}

impl Table {
    /// A table that is about to be made.
    pub(crate) fn new(keyspace: String, name: String, shape: Shape, options: String) -> Self {
        Self {
            keyspace,
            name,
            shape,
            options,
            scale: Scale::default(),
            partitions: BTreeMap::new(),
            busy: 0,
            frozen: false,
            exists: true,
            pending: None,
            gone: Vec::new(),
        }
    }

    /// Keyspace and name.
    pub(crate) fn full_name(&self) -> String {
        format!("{}.{}", self.keyspace, self.name)
    }

    /// The statement that makes it.
    pub(crate) fn create_text(&self) -> String {
        let shape = &self.shape;
        let mut columns: Vec<String> = Vec::new();
        columns.extend(shape.partition_key.iter().enumerate().map(|(at, ty)| format!("p{at} {}", ty.name())));
        columns
            .extend(shape.clustering.iter().enumerate().map(|(at, (ty, _))| format!("c{at} {}", ty.name())));
        for column in &shape.columns {
            let fixed = if column.is_static { " static" } else { "" };
            columns.push(format!("{} {}{fixed}", column.name, column.ty.name()));
        }
        let names =
            |prefix: &str, count: usize| (0..count).map(|at| format!("{prefix}{at}")).collect::<Vec<_>>();
        let mut key = vec![format!("({})", names("p", shape.partition_key.len()).join(", "))];
        key.extend(names("c", shape.clustering.len()));
        let mut text = format!(
            "CREATE TABLE {}.{} ({}, PRIMARY KEY ({})) WITH {}",
            self.keyspace,
            self.name,
            columns.join(", "),
            key.join(", "),
            self.options
        );
        if !shape.clustering.is_empty() {
            let order = shape.clustering.iter().enumerate();
            let order = order
                .map(|(at, (_, backwards))| format!("c{at} {}", if *backwards { "DESC" } else { "ASC" }));
            text.push_str(&format!(" AND CLUSTERING ORDER BY ({})", order.collect::<Vec<_>>().join(", ")));
        }
        text
    }

    /// Takes over a change that has happened, or has not.
    pub(crate) fn settle(&mut self, happened: bool) {
        match self.pending.take() {
            Some(Pending::Alter(shape)) if happened => self.shape = shape,
            Some(Pending::Drop) if happened => {
                self.exists = false;
                self.partitions.clear();
            }
            Some(Pending::Create) => {
                self.exists = happened;
                self.partitions.clear();
            }
            Some(Pending::Alter(_) | Pending::Drop | Pending::Truncate) | None => {}
        }
    }

    /// Names and types of the columns of a shape, its key included, sorted.
    pub(crate) fn columns(shape: &Shape) -> Vec<(String, String)> {
        let keys =
            shape.partition_key.iter().enumerate().map(|(at, ty)| (format!("p{at}"), ty.name().to_owned()));
        let rows =
            shape.clustering.iter().enumerate().map(|(at, (ty, _))| (format!("c{at}"), ty.name().to_owned()));
        let others = shape.columns.iter().map(|column| (column.name.clone(), column.ty.name()));
        let mut all: Vec<_> = keys.chain(rows).chain(others).collect();
        all.sort();
        all
    }
}

/// Bytes of a partition key as tokens are computed from them.
fn partition_bytes(table: &Table, key: &Key) -> Vec<u8> {
    let parts: Vec<Vec<u8>> =
        table.shape.partition_key.iter().zip(key).map(|(ty, scalar)| encode(*ty, scalar)).collect();
    if let [single] = parts.as_slice() {
        return single.clone();
    }
    let part = |part: &Vec<u8>| {
        let mut bytes = (part.len() as u16).to_be_bytes().to_vec();
        bytes.extend_from_slice(part);
        bytes.push(0);
        bytes
    };
    parts.iter().flat_map(part).collect()
}

/// The place of a partition in a scan.
pub(crate) fn token(table: &Table, key: &Key) -> i64 {
    match stdx::murmur3::hash128(&partition_bytes(table, key), 0)[0] as i64 {
        i64::MIN => i64::MAX,
        token => token,
    }
}

/// The shard of a token, as drivers compute it from the sharding parameters of OPTIONS.
pub(crate) fn shard_of(token: i64, shards: u16) -> u16 {
    let spread = (token as u64).wrapping_add(1 << 63) << 12;
    ((u128::from(spread) * u128::from(shards)) >> 64) as u16
}
