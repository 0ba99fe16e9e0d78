//! The JSON of a fragment's metadata and values, in the schema of `scylla sstable dump-data`.

use mutation::row::ColumnData;
use mutation::{Cell, Complex, DeletionTime, LivenessInfo, Row, Seconds, counter};
use schema::{Column, Table};
use types::CqlType;

/// A JSON object or array under way.
struct Writer {
    out: String,
}

impl Writer {
    /// Begins the next element.
    fn next(&mut self) {
        if !self.out.ends_with(['{', '[', ':']) && !self.out.is_empty() {
            self.out.push(',');
        }
    }

    fn name(&mut self, name: &str) {
        self.next();
        self.out.push_str(&quoted(name));
        self.out.push(':');
    }

    fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        self.out.push_str(&quoted(value));
    }

    fn raw(&mut self, name: &str, value: impl std::fmt::Display) {
        self.name(name);
        self.out.push_str(&value.to_string());
    }

    fn open(&mut self, bracket: char) {
        if !self.out.ends_with(':') {
            self.next();
        }
        self.out.push(bracket);
    }

    fn close(&mut self, bracket: char) {
        self.out.push(bracket);
    }

    fn tombstone(&mut self, deletion: DeletionTime) {
        self.name("tombstone");
        self.open('{');
        if !deletion.is_live() {
            self.raw("timestamp", deletion.timestamp);
            self.text("deletion_time", &time(deletion.local));
        }
        self.close('}');
    }

    fn expiry(&mut self, ttl: Seconds, expires: Seconds) {
        self.text("ttl", &format!("{ttl}s"));
        self.text("expiry", &time(expires));
    }

    fn marker(&mut self, liveness: LivenessInfo) {
        self.name("marker");
        self.open('{');
        self.raw("timestamp", liveness.timestamp);
        if liveness.ttl != 0 {
            self.expiry(liveness.ttl, liveness.expires);
        }
        self.close('}');
    }

    /// A cell without its value.
    fn cell(&mut self, ty: &CqlType, cell: &Cell) {
        let kind = match ty {
            CqlType::Counter if !cell.is_tombstone() => "counter-shards",
            frozen if frozen.is_frozen_collection() => "frozen-collection",
            _ => "regular",
        };
        self.open('{');
        self.raw("is_live", !cell.is_tombstone());
        self.text("type", kind);
        self.raw("timestamp", cell.timestamp);
        if cell.is_expiring() {
            self.expiry(cell.ttl, cell.local_deletion);
        } else if cell.is_tombstone() {
            self.text("deletion_time", &time(cell.local_deletion));
        }
        self.close('}');
    }

    fn collection(&mut self, ty: &CqlType, complex: &Complex) {
        self.open('{');
        self.text("type", "collection");
        if !complex.deletion.is_live() {
            self.tombstone(complex.deletion);
        }
        self.name("cells");
        self.elements(ty, complex, Self::cell);
        self.close('}');
    }

    /// The elements of a collection, each with its key; `write` writes the properties of its cell.
    fn elements(&mut self, ty: &CqlType, complex: &Complex, write: fn(&mut Self, &CqlType, &Cell)) {
        self.open('[');
        for element in &complex.cells {
            let (key, of) = path(ty, &element.path);
            self.open('{');
            self.text("key", &key);
            self.name("value");
            write(self, of, &element.cell);
            self.close('}');
        }
        self.close(']');
    }

    /// The columns without their values.
    fn columns(&mut self, table: &Table, row: &Row) {
        self.open('{');
        for (column, data) in columns(table, row) {
            self.name(&column.name);
            match data {
                ColumnData::Simple(cell) => self.cell(&column.ty, cell),
                ColumnData::Complex(complex) => self.collection(&column.ty, complex),
            }
        }
        self.close('}');
    }

    /// The value of a cell; null where it was deleted.
    fn value(&mut self, ty: &CqlType, cell: &Cell) {
        if cell.is_tombstone() {
            self.out.push_str("null");
            return;
        }
        if !ty.is_counter() {
            let text = shown(ty, &cell.value);
            self.out.push_str(&quoted(&text));
            return;
        }
        self.open('[');
        for shard in counter::shards(&cell.value) {
            self.open('{');
            self.text("id", &CqlType::Uuid.to_text(&shard.id));
            self.raw("value", shard.count);
            self.raw("clock", shard.clock);
            self.close('}');
        }
        self.close(']');
    }
}

/// A JSON string.
fn quoted(text: &str) -> String {
    CqlType::Text.to_json(text.as_bytes())
}

/// `YYYY-MM-DD HH:MM:SSz`.
fn time(seconds: Seconds) -> String {
    let millis = i64::from(seconds) * 1000;
    let text = CqlType::Timestamp.to_text(&millis.to_be_bytes());
    let whole = text.split_once('.').map_or(text.as_str(), |(whole, _)| whole);
    format!("{}z", whole.replacen('T', " ", 1))
}

/// A value as text: parts of collections and tuples as literals.
fn shown(ty: &CqlType, value: &[u8]) -> String {
    let is_whole = ty.is_collection() || ty.is_tuple() || ty.is_udt() || matches!(ty, CqlType::Vector { .. });
    if is_whole { ty.format(value) } else { ty.to_text(value) }
}

/// The key of an element of a collection as text, and the type of its value.
fn path<'a>(ty: &'a CqlType, path: &[u8]) -> (String, &'a CqlType) {
    match ty {
        CqlType::List { element, .. } => (CqlType::Timeuuid.to_text(path), element),
        CqlType::Map { key, value, .. } => (shown(key, path), value),
        // The value of a set's element is empty.
        CqlType::Set { element, .. } => (shown(element, path), &CqlType::Blob),
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

/// The columns of a row, in the order of the table.
fn columns<'a>(table: &'a Table, row: &'a Row) -> impl Iterator<Item = (&'a Column, &'a ColumnData)> {
    table.columns().iter().filter_map(|column| Some((column, row.column(column.id)?)))
}

/// The metadata of a partition's start, or of a change of the range deletion in force.
pub(super) fn deletion(deletion: DeletionTime) -> String {
    let mut writer = Writer { out: String::new() };
    writer.open('{');
    writer.tombstone(deletion);
    writer.close('}');
    writer.out
}

/// The metadata of a static row: its columns.
pub(super) fn static_row(table: &Table, row: &Row) -> String {
    let mut writer = Writer { out: String::new() };
    writer.columns(table, row);
    writer.out
}

/// The metadata of a row.
pub(super) fn row(table: &Table, row: &Row) -> String {
    let mut writer = Writer { out: String::new() };
    writer.open('{');
    if !row.deletion.is_live() {
        writer.tombstone(row.deletion);
    }
    if !row.liveness.is_none() {
        writer.marker(row.liveness);
    }
    writer.name("columns");
    writer.columns(table, row);
    writer.close('}');
    writer.out
}

/// The values of a row's columns.
pub(super) fn values(table: &Table, row: &Row) -> String {
    let mut writer = Writer { out: String::new() };
    writer.open('{');
    for (column, data) in columns(table, row) {
        writer.name(&column.name);
        match data {
            ColumnData::Simple(cell) => writer.value(&column.ty, cell),
            ColumnData::Complex(complex) => writer.elements(&column.ty, complex, Writer::value),
        }
    }
    writer.close('}');
    writer.out
}
