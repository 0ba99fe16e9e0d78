//! The content of an SSTable as JSON, in the shape of Cassandra's `sstabledump`, from its files alone.

mod describe;
mod pretty;
pub(crate) mod time;

use std::rc::Rc;
use std::sync::Arc;

use mutation::row::ColumnData;
use mutation::{Bound, Cell, Clustering, DecoratedKey, DeletionTime, LivenessInfo, Row, Seconds, Side};
use rt::Rt;
use schema::{Column, Table, TableBuilder, TableId};
use types::{CqlType, quote_identifier};

use crate::header::SerializationHeader;
use crate::prefix::Kind;
use crate::reader::{RawItem, RawScan, open_data, read_metadata};
use crate::unfiltered::decode::ItemDecoder;
use crate::{Component, Descriptor, Integrity, NoCache, SstableError};
pub use describe::describe;
use pretty::Pretty;

/// The target and the form of a dump.
#[derive(Clone, Debug, Default)]
pub struct DumpOptions {
    /// The time that decides which cells have expired.
    pub now: Seconds,
    /// Times as numbers (microseconds and seconds) instead of text.
    pub raw_time: bool,
    /// Only the partition keys.
    pub keys_only: bool,
}

/// The table as far as a file describes it: the types of everything, the names of static and regular columns.
///
/// # Errors
/// [`schema::InvalidSchema`] when the header has types that no key may have, or a column name twice.
pub fn table_of_header(header: &SerializationHeader) -> Result<Table, schema::InvalidSchema> {
    let mut builder = TableBuilder::new("keyspace", "table", TableId([0; 16]));
    for (at, ty) in header.key_types.iter().enumerate() {
        builder = builder.partition_key(format!("\u{0}key{at}"), ty.clone());
    }
    for (at, (ty, descending)) in header.clustering_types.iter().enumerate() {
        builder = builder.clustering(format!("\u{0}clustering{at}"), ty.clone(), *descending);
    }
    for column in &header.statics {
        builder = builder.static_column(column.name.clone(), column.ty.clone());
    }
    for column in &header.regulars {
        builder = builder.regular(column.name.clone(), column.ty.clone());
    }
    builder.build()
}

/// Opens the parts of an SSTable that a tool needs: its data, and a table made of its header.
pub(crate) async fn open_raw(
    rt: &Rt,
    descriptor: &Descriptor,
) -> Result<(RawScan, Arc<Table>), SstableError> {
    let metadata = read_metadata(rt.disk(), descriptor).await?;
    let file = descriptor.path(Component::Statistics);
    let table = table_of_header(&metadata.header)
        .map_err(|error| SstableError::corrupt(&file, 0, "the columns of a table", error.to_string()))?;
    let decoder = ItemDecoder::new(&metadata.header, &table)
        .map_err(|what| SstableError::corrupt(&file, 0, "a header that fits itself", what))?;
    let table = Arc::new(table);
    // Without checksums of other components the data can still be looked into.
    let integrity = Integrity::read(rt.disk(), descriptor).await.unwrap_or_default();
    let data = Rc::new(open_data(rt.disk(), descriptor, integrity.as_ref(), Rc::new(NoCache)).await?);
    Ok((RawScan::new(data, Rc::new(decoder), table.clone()), table))
}

/// Hands the SSTable's content as JSON to `sink`, a piece at a time.
///
/// # Errors
/// [`SstableError::Missing`], [`SstableError::Unsupported`] and [`SstableError::Disk`] when the files cannot be opened,
/// [`SstableError::Corrupt`] at the first damaged byte; the JSON before it has gone to `sink`.
pub async fn dump(
    rt: &Rt,
    descriptor: &Descriptor,
    options: &DumpOptions,
    sink: &mut dyn FnMut(&str),
) -> Result<(), SstableError> {
    let (mut scan, table) = open_raw(rt, descriptor).await?;
    let mut dumper = Dumper { json: Pretty::default(), table, options: options.clone() };
    dumper.json.start('[');
    while let Some(item) = scan.next().await? {
        match item {
            RawItem::Partition { key, .. } if options.keys_only => dumper.key(&key),
            _ if options.keys_only => {}
            RawItem::Partition { key, deletion, static_row, start: _, rows_at } => {
                dumper.partition(&key, deletion, rows_at);
                if let Some(row) = static_row {
                    dumper.row(&row, None, rows_at);
                }
            }
            RawItem::Row { row, start } => dumper.row(&row, Some(&row.clustering), start),
            RawItem::Marker { bound, kind, ends, starts, .. } => dumper.marker(&bound, kind, ends, starts),
            RawItem::End => {
                dumper.json.end_array();
                dumper.json.end_object();
                rt.maybe_yield().await;
            }
        }
        sink(&dumper.json.take());
    }
    dumper.json.end_array();
    sink(&dumper.json.take());
    Ok(())
}

struct Dumper {
    json: Pretty,
    table: Arc<Table>,
    options: DumpOptions,
}

impl Dumper {
    fn micros(&self, micros: i64) -> String {
        if self.options.raw_time {
            return micros.to_string();
        }
        // Java rounds the seconds towards zero and takes the fraction from below.
        time::iso(micros / 1_000_000, micros.rem_euclid(1_000_000) as u32 * 1000)
    }

    fn seconds(&self, seconds: Seconds) -> String {
        if self.options.raw_time { seconds.to_string() } else { time::iso(i64::from(seconds), 0) }
    }

    fn text(&mut self, name: &str, text: &str) {
        self.json.name(name);
        self.json.string(text);
    }

    fn number(&mut self, name: &str, number: impl ToString) {
        self.json.name(name);
        self.json.raw(&number.to_string());
    }

    fn key(&mut self, key: &DecoratedKey) {
        let json = &mut self.json;
        json.compact_objects = true;
        json.compact_arrays = true;
        json.start('[');
        let columns = self.table.partition_key();
        let components = DecoratedKey::components(&key.key, columns.len()).unwrap_or_default();
        for (column, value) in columns.iter().zip(components) {
            json.string(&column.ty.to_text(value));
        }
        json.end_array();
        json.compact_objects = false;
        json.compact_arrays = false;
    }

    fn partition(&mut self, key: &DecoratedKey, deletion: DeletionTime, position: u64) {
        self.json.start('{');
        self.text("table kind", "REGULAR");
        self.json.name("partition");
        self.json.start('{');
        self.json.name("key");
        self.key(key);
        self.number("position", position);
        if !deletion.is_live() {
            self.deletion(deletion);
        }
        self.json.end_object();
        self.json.name("rows");
        self.json.start('[');
    }

    fn deletion(&mut self, deletion: DeletionTime) {
        self.json.name("deletion_info");
        self.json.compact_objects = true;
        self.json.start('{');
        let (marked, local) = (self.micros(deletion.timestamp), self.seconds(deletion.local));
        self.text("marked_deleted", &marked);
        self.text("local_delete_time", &local);
        self.json.end_object();
        self.json.compact_objects = false;
    }

    fn row(&mut self, row: &Row, clustering: Option<&Clustering>, position: u64) {
        self.json.start('{');
        self.text("type", if clustering.is_some() { "row" } else { "static_block" });
        self.number("position", position);
        if let Some(clustering) = clustering {
            self.clustering(&clustering.components().collect::<Vec<_>>());
        }
        let liveness = row.liveness;
        if !liveness.is_none() {
            self.json.name("liveness_info");
            self.json.compact_objects = true;
            self.json.start('{');
            let timestamp = self.micros(liveness.timestamp);
            self.text("tstamp", &timestamp);
            if liveness.ttl != 0 {
                self.expiry(liveness.ttl, liveness.expires, liveness.expires < self.options.now);
            }
            self.json.end_object();
            self.json.compact_objects = false;
        }
        if !row.deletion.is_live() {
            self.deletion(row.deletion);
        }
        self.json.name("cells");
        self.json.start('[');
        let table = self.table.clone();
        for (id, data) in row.columns() {
            let column = table.column_by_id(*id).expect("the table was made of the file's columns");
            self.column(column, data, liveness);
        }
        self.json.end_array();
        self.json.end_object();
    }

    fn expiry(&mut self, ttl: Seconds, expires: Seconds, expired: bool) {
        self.number("ttl", ttl);
        let at = self.seconds(expires);
        self.text("expires_at", &at);
        self.number("expired", expired);
    }

    fn clustering(&mut self, values: &[Option<&[u8]>]) {
        if values.is_empty() {
            return;
        }
        self.json.name("clustering");
        self.json.compact_objects = true;
        self.json.start('[');
        self.json.compact_arrays = true;
        for (at, column) in self.table.clustering().iter().enumerate() {
            match values.get(at) {
                None => self.json.string("*"),
                Some(None) => self.json.raw("null"),
                Some(Some(value)) => self.json.raw(&column.ty.to_json(value)),
            }
        }
        self.json.end_array();
        self.json.compact_objects = false;
        self.json.compact_arrays = false;
    }

    fn column(&mut self, column: &Column, data: &ColumnData, liveness: LivenessInfo) {
        match data {
            ColumnData::Simple(cell) => self.cell(column, None, &column.ty, cell, liveness),
            ColumnData::Complex(complex) => {
                if !complex.deletion.is_live() {
                    self.json.compact_objects = true;
                    self.json.start('{');
                    self.text("name", &quote_identifier(&column.name));
                    self.deletion(complex.deletion);
                    self.json.compact_objects = true;
                    self.json.end_object();
                    self.json.compact_objects = false;
                }
                for element in &complex.cells {
                    let (path, ty) = element_path(&column.ty, &element.path);
                    self.cell(column, Some(&path), ty, &element.cell, liveness);
                }
            }
        }
    }

    fn cell(
        &mut self,
        column: &Column,
        path: Option<&str>,
        ty: &CqlType,
        cell: &Cell,
        liveness: LivenessInfo,
    ) {
        self.json.start('{');
        self.json.compact_objects = true;
        self.text("name", &quote_identifier(&column.name));
        if let Some(path) = path {
            self.json.name("path");
            self.json.compact_arrays = true;
            self.json.start('[');
            self.json.string(path);
            self.json.end_array();
            self.json.compact_arrays = false;
        }
        if cell.is_tombstone() {
            self.json.name("deletion_info");
            self.json.start('{');
            let local = self.seconds(cell.local_deletion);
            self.text("local_delete_time", &local);
            self.json.end_object();
            self.json.compact_objects = false;
        } else {
            self.json.name("value");
            match ty {
                // The value of an element of a set is its path.
                CqlType::Set { frozen: false, .. } => self.json.raw("\"\""),
                CqlType::Counter => self.json.raw(&mutation::counter::total(&cell.value).to_string()),
                _ => self.json.raw(&ty.to_json(&cell.value)),
            }
        }
        if liveness.is_none() || cell.timestamp != liveness.timestamp {
            let timestamp = self.micros(cell.timestamp);
            self.text("tstamp", &timestamp);
        }
        if cell.is_expiring() && (liveness.is_none() || cell.ttl != liveness.ttl) {
            self.expiry(cell.ttl, cell.local_deletion, !cell.is_live(self.options.now));
        }
        self.json.end_object();
        self.json.compact_objects = false;
    }

    fn marker(&mut self, bound: &Bound, kind: Kind, ends: DeletionTime, starts: DeletionTime) {
        self.json.start('{');
        let boundary = kind.ends_and_starts() == Some((true, true));
        self.text("type", if boundary { "range_tombstone_boundary" } else { "range_tombstone_bound" });
        for (name, deletion, inclusive) in
            [("start", starts, bound.side() == Side::Before), ("end", ends, bound.side() == Side::After)]
        {
            if deletion.is_live() {
                continue;
            }
            self.json.name(name);
            self.json.start('{');
            self.text("type", if inclusive { "inclusive" } else { "exclusive" });
            self.clustering(&bound.components().collect::<Vec<_>>());
            self.deletion(deletion);
            self.json.end_object();
        }
        self.json.end_object();
    }
}

/// The text of an element's path, and the type of its value.
fn element_path<'a>(ty: &'a CqlType, path: &[u8]) -> (String, &'a CqlType) {
    match ty {
        CqlType::List { element, .. } => (CqlType::Timeuuid.to_text(path), element),
        CqlType::Map { key, value, .. } => (key.to_text(path), value),
        CqlType::Set { element, .. } => (element.to_text(path), ty),
        CqlType::Udt { ty, .. } => {
            let at = path.first_chunk::<2>().map_or(usize::MAX, |at| usize::from(u16::from_be_bytes(*at)));
            match ty.fields.get(at) {
                Some((name, field)) => (name.clone(), field),
                None => (CqlType::Blob.to_text(path), &CqlType::Blob),
            }
        }
        _ => (CqlType::Blob.to_text(path), &CqlType::Blob),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// The text that is printed for a column that holds this cell.
    fn printed(ty: CqlType, data: ColumnData) -> String {
        let table = TableBuilder::new("ks", "t", TableId([0; 16]))
            .partition_key("k", CqlType::Int)
            .regular("v", ty)
            .build()
            .unwrap();
        let table = Arc::new(table);
        let mut dumper =
            Dumper { json: Pretty::default(), table: table.clone(), options: DumpOptions::default() };
        dumper.json.start('[');
        dumper.column(table.column("v").unwrap(), &data, LivenessInfo::forever(1));
        dumper.json.take()
    }

    #[test]
    fn only_an_element_of_a_set_has_no_value() {
        let cell = |value: &[u8]| Cell::live(1, Bytes::copy_from_slice(value));
        let frozen = CqlType::set(CqlType::Boolean, true);
        let text = printed(frozen, ColumnData::Simple(cell(&[0, 0, 0, 1, 0, 0, 0, 1, 1])));
        assert_eq!(text.split_whitespace().collect::<String>(), r#"[{"name":"v","value":[true]}"#);
        let element = mutation::ComplexCell { path: Bytes::from_static(&[1]), cell: cell(&[]) };
        let complex = mutation::Complex { deletion: DeletionTime::LIVE, cells: vec![element] };
        let text = printed(CqlType::set(CqlType::Boolean, false), ColumnData::Complex(complex));
        assert_eq!(
            text.split_whitespace().collect::<String>(),
            r#"[{"name":"v","path":["true"],"value":""}"#
        );
    }
}
