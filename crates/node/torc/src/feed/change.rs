//! Changes of rows as JSON objects, made of the rows that a log has of one write.
//!
//! The rows come as `SELECT JSON` writes them. Values are passed on as texts and never parsed as numbers, so that a `varint` of a hundred
//! digits is the same at the end.
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use types::uuid;

use crate::feed::position::{self, Position, Time, bytes_of_hex};

/// The table whose changes are read, as the schema describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Base {
    /// `keyspace.table`.
    pub name: String,
    /// The identity of the log's table.
    pub log: [u8; 16],
    /// Names of the partition key's columns.
    pub partition_key: Vec<String>,
    /// Names of the clustering key's columns.
    pub clustering: Vec<String>,
    /// Names of columns that are lists with an entry of the log for each element.
    pub lists: Vec<String>,
    /// How long the log's rows live, microseconds; none when they do not expire.
    pub ttl_micros: Option<i64>,
}

/// The operations of a log's rows (docs/operations/cdc.md).
mod code {
    pub(super) const PREIMAGE: i8 = 0;
    pub(super) const UPDATE: i8 = 1;
    pub(super) const INSERT: i8 = 2;
    pub(super) const ROW_DELETE: i8 = 3;
    pub(super) const PARTITION_DELETE: i8 = 4;
    pub(super) const FROM_INCLUSIVE: i8 = 5;
    pub(super) const FROM_EXCLUSIVE: i8 = 6;
    pub(super) const TO_INCLUSIVE: i8 = 7;
    pub(super) const TO_EXCLUSIVE: i8 = 8;
    pub(super) const POSTIMAGE: i8 = 9;
}

type Columns = BTreeMap<String, Box<RawValue>>;

/// A row of a log.
#[derive(Debug)]
pub struct LogRow {
    /// The stream.
    pub stream: [u8; 16],
    /// The time of the write.
    pub time: Time,
    /// The number of the row in its write.
    pub number: u32,
    operation: i8,
    ttl: Option<i64>,
    /// All columns of the row that have a value; those of the base by their names, those of the log by theirs.
    columns: Columns,
    /// Columns of the base that have one entry for each element.
    is_multi_cell: Vec<String>,
}

impl LogRow {
    /// Reads a row as `SELECT JSON *` gives it.
    ///
    /// # Errors
    /// A sentence for the user when it is no row of a log.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parsed: BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(text).map_err(|error| format!("a row of the log is no JSON: {error}"))?;
        let mut columns = Columns::new();
        let mut is_multi_cell = Vec::new();
        for (name, value) in parsed {
            let name = unquoted(name);
            if let Some(column) = name.strip_prefix("cdc$deleted_elements_") {
                is_multi_cell.push(column.to_owned());
            }
            if value.get() != "null" {
                columns.insert(name, value);
            }
        }
        let lacks = |name: &str| format!("a row of the log has no valid {name}");
        let stream = columns.get("cdc$stream_id").and_then(|value| {
            let hex: String = serde_json::from_str(value.get()).ok()?;
            bytes_of_hex(hex.strip_prefix("0x")?)?.try_into().ok()
        });
        let time = columns.get("cdc$time").and_then(|value| {
            let text: String = serde_json::from_str(value.get()).ok()?;
            Time::of_uuid(&uuid::parse(&text)?)
        });
        let number = columns.get("cdc$batch_seq_no").and_then(|value| value.get().parse().ok());
        let operation = columns.get("cdc$operation").and_then(|value| value.get().parse().ok());
        Ok(Self {
            stream: stream.ok_or_else(|| lacks("cdc$stream_id"))?,
            time: time.ok_or_else(|| lacks("cdc$time"))?,
            number: number.ok_or_else(|| lacks("cdc$batch_seq_no"))?,
            operation: operation.ok_or_else(|| lacks("cdc$operation"))?,
            ttl: columns.get("cdc$ttl").and_then(|value| value.get().parse().ok()),
            columns,
            is_multi_cell,
        })
    }

    /// The bytes of its values, with the memory of their holders.
    pub fn bytes(&self) -> usize {
        let columns = self.columns.iter().map(|(name, value)| name.len() + value.get().len() + 64);
        columns.sum::<usize>() + 128
    }

    fn key(&self, base: &Base) -> String {
        let names = base.partition_key.iter().chain(&base.clustering);
        let members =
            names.filter_map(|name| Some((name.as_str(), self.columns.get(name)?.get().to_owned())));
        object(members)
    }

    fn is_true(&self, name: &str) -> bool {
        self.columns.get(name).is_some_and(|value| value.get() == "true")
    }

    /// The columns outside of the key that have a value.
    fn values<'a>(&'a self, base: &'a Base) -> impl Iterator<Item = (&'a str, &'a RawValue)> {
        let columns = self.columns.iter().map(|(name, value)| (name.as_str(), &**value));
        columns.filter(|(name, _)| {
            !name.starts_with("cdc$")
                && !base.partition_key.iter().chain(&base.clustering).any(|key| key == name)
        })
    }

    /// The row as it was or is.
    fn image(&self, base: &Base) -> String {
        object(self.values(base).map(|(name, value)| (name, whole(base, name, value))))
    }

    /// Adds the written and deleted columns.
    fn write_delta(&self, base: &Base, out: &mut Vec<(&'static str, String)>) {
        let (mut columns, mut added, mut deleted, mut removed) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (name, value) in self.values(base) {
            let is_whole = !self.is_multi_cell.iter().any(|column| column == name)
                || self.is_true(&format!("cdc$deleted_{name}"));
            match is_whole {
                true => columns.push((name, whole(base, name, value))),
                false => added.push((name, value.get().to_owned())),
            }
        }
        for (name, value) in &self.columns {
            if let Some(column) = name.strip_prefix("cdc$deleted_elements_") {
                removed.push((column, value.get().to_owned()));
            } else if let Some(column) = name.strip_prefix("cdc$deleted_")
                && value.get() == "true"
                && !self.columns.contains_key(column)
            {
                deleted.push(string(column));
            }
        }
        for (name, members) in [("columns", columns), ("added", added), ("removed", removed)] {
            if !members.is_empty() {
                out.push((name, object(members.into_iter())));
            }
        }
        if !deleted.is_empty() {
            out.push(("deleted", format!("[{}]", deleted.join(","))));
        }
    }

    fn bound(&self, base: &Base, is_inclusive: bool) -> String {
        let names = base.clustering.iter();
        let members =
            names.filter_map(|name| Some((name.as_str(), self.columns.get(name)?.get().to_owned())));
        object([("inclusive", is_inclusive.to_string()), ("key", object(members))].into_iter())
    }
}

/// The name of a column: `SELECT JSON` has names in double quotes that are not all of lower-case letters, digits and `_`.
fn unquoted(name: String) -> String {
    match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        Some(inner) => inner.replace("\"\"", "\""),
        None => name,
    }
}

fn string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn object<'a>(members: impl Iterator<Item = (&'a str, String)>) -> String {
    let members: Vec<String> = members.map(|(name, value)| format!("{}:{value}", string(name))).collect();
    format!("{{{}}}", members.join(","))
}

/// The value of a whole column. Of a list the log has a map by the times of the elements: their order is that of the times.
fn whole(base: &Base, name: &str, value: &RawValue) -> String {
    let text = || value.get().to_owned();
    if !base.lists.iter().any(|list| list == name) {
        return text();
    }
    let Ok(elements) = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(value.get()) else {
        return text();
    };
    let mut ordered: Vec<(Option<Time>, &RawValue)> = Vec::new();
    for (time, value) in &elements {
        ordered.push((uuid::parse(time).and_then(|time| Time::of_uuid(&time)), value));
    }
    ordered.sort_by_key(|(time, _)| *time);
    let values: Vec<&str> = ordered.iter().map(|(_, value)| value.get()).collect();
    format!("[{}]", values.join(","))
}

/// A change of a row, of a range of rows or of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its place in the feed.
    pub position: Position,
    /// By which a reader resumes behind it.
    pub token: String,
    /// The JSON object.
    pub json: String,
}

/// The rows of one write, by their numbers.
pub type WriteRows = BTreeMap<u32, LogRow>;

/// The changes of one write, in its order.
pub fn changes(base: &Base, rows: &WriteRows) -> Vec<Change> {
    // The images belong to the first and the last change of their row.
    let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
    let mut deltas: Vec<(&LogRow, String, Option<&LogRow>)> = Vec::new();
    let mut starts: Option<&LogRow> = None;
    for row in rows.values() {
        match row.operation {
            code::PREIMAGE => drop(before.insert(row.key(base), row)),
            code::POSTIMAGE => drop(after.insert(row.key(base), row)),
            code::FROM_INCLUSIVE | code::FROM_EXCLUSIVE => starts = Some(row),
            code::TO_INCLUSIVE | code::TO_EXCLUSIVE => {
                if let Some(start) = starts.take() {
                    deltas.push((start, start.key(base), Some(row)));
                }
            }
            _ => deltas.push((row, row.key(base), None)),
        }
    }
    let mut changes = Vec::new();
    let single = deltas.iter().enumerate().filter(|(_, (_, _, end))| end.is_none());
    let last: BTreeMap<&str, usize> = single.map(|(at, (_, key, _))| (key.as_str(), at)).collect();
    for (at, (row, key, end)) in deltas.iter().enumerate() {
        let is_last_of_row = last.get(key.as_str()).is_none_or(|last| *last <= at);
        let images =
            [("before", before.remove(key)), ("after", is_last_of_row.then(|| after.remove(key)).flatten())];
        let images = images.map(|(name, image)| (name, image.map(|image| image.image(base))));
        changes.push(change(base, row, *end, images, at + 1 == deltas.len()));
    }
    changes
}

fn change(
    base: &Base,
    row: &LogRow,
    end: Option<&LogRow>,
    images: [(&'static str, Option<String>); 2],
    is_last: bool,
) -> Change {
    let position = Position { time: row.time, stream: row.stream, number: row.number };
    let token = position::encode(base.log, position.next());
    let has_clustering = base.clustering.iter().all(|name| row.columns.contains_key(name));
    let operation = match row.operation {
        code::UPDATE => "update",
        code::INSERT => "insert",
        code::ROW_DELETE => "delete",
        code::PARTITION_DELETE => "delete_partition",
        _ if end.is_some() => "delete_range",
        _ => "unknown",
    };
    let mut members =
        vec![("token", string(&token)), ("table", string(&base.name)), ("operation", string(operation))];
    match end {
        None => members.push(("key", row.key(base))),
        Some(end) => {
            let names = base.partition_key.iter();
            let key = names.filter_map(|name| Some((name.as_str(), row.columns.get(name)?.get().to_owned())));
            members.push(("key", object(key)));
            members.push(("from", row.bound(base, row.operation == code::FROM_INCLUSIVE)));
            members.push(("to", end.bound(base, end.operation == code::TO_INCLUSIVE)));
        }
    }
    if !has_clustering && matches!(row.operation, code::UPDATE | code::INSERT) {
        members.push(("static", "true".to_owned()));
    }
    members.push(("writetime", row.time.micros().to_string()));
    if let Some(ttl) = row.ttl {
        members.push(("ttl", ttl.to_string()));
    }
    row.write_delta(base, &mut members);
    members.extend(images.into_iter().filter_map(|(name, image)| Some((name, image?))));
    members.push(("last", is_last.to_string()));
    Change { position, token, json: object(members.into_iter()) }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn base() -> Base {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Base {
            name: "ks.t".to_owned(),
            partition_key: names(&["p"]),
            clustering: names(&["c"]),
            lists: names(&["l"]),
            ..Base::default()
        }
    }

    /// The changes of one write, without token, table and write time, which are the same for all.
    fn show(rows: &[(u32, i8, &str)]) -> Vec<String> {
        let mut write = WriteRows::new();
        for (number, operation, rest) in rows {
            let text = format!(
                r#"{{"\"cdc$stream_id\"":"0x000102030405060708090a0b0c0d0e0f","\"cdc$time\"":"{}","\"cdc$batch_seq_no\"":{number},"\"cdc$operation\"":{operation},"\"cdc$deleted_elements_m\"":null,"\"cdc$deleted_elements_l\"":null,"p":1,{rest}}}"#,
                uuid::format(&Time::of_micros(5).uuid()).unwrap()
            );
            let row = LogRow::parse(&text).unwrap();
            write.insert(row.number, row);
        }
        let shown = changes(&base(), &write);
        assert!(shown.is_sorted_by_key(|change| change.position));
        let rest = |change: &Change| {
            let head = format!(r#"{{"token":"{}","table":"ks.t","operation":"#, change.token);
            change.json.strip_prefix(&head).unwrap().replace(r#","writetime":5"#, "")
        };
        shown.iter().map(rest).collect()
    }

    #[test]
    fn images_and_deltas_are_one_object() {
        let rows = [
            (0, code::PREIMAGE, r#""c":2,"v":1"#),
            (1, code::UPDATE, r#""c":2,"v":123456789012345678901234567890.10"#),
            (2, code::POSTIMAGE, r#""c":2,"v":2"#),
        ];
        let wanted = r#""update","key":{"p":1,"c":2},"columns":{"v":123456789012345678901234567890.10},"before":{"v":1},"after":{"v":2},"last":true}"#;
        assert_eq!(show(&rows), [wanted]);
    }

    #[test]
    fn images_stand_at_the_first_and_last_change_of_a_row() {
        let rows = [
            (0, code::PREIMAGE, r#""c":2,"v":1"#),
            (1, code::INSERT, r#""c":2,"v":2"#),
            (2, code::UPDATE, r#""c":2,"\"V\"":3,"\"cdc$ttl\"":60"#),
            (3, code::INSERT, r#""c":3"#),
            (4, code::POSTIMAGE, r#""c":2,"v":2"#),
        ];
        let wanted = [
            r#""insert","key":{"p":1,"c":2},"columns":{"v":2},"before":{"v":1},"last":false}"#,
            r#""update","key":{"p":1,"c":2},"ttl":60,"columns":{"V":3},"after":{"v":2},"last":false}"#,
            r#""insert","key":{"p":1,"c":3},"last":true}"#,
        ];
        assert_eq!(show(&rows), wanted);
    }

    #[test]
    fn collections_say_whether_they_were_set_or_changed() {
        let uuid_of = |micros| uuid::format(&Time::of_micros(micros).uuid()).unwrap();
        // As texts the first is the greater one.
        let (first, second) = (uuid_of(0xffff_ffff), uuid_of(0x1_0000_0000));
        let list = format!(r#"{{"{second}":"b","{first}":"a"}}"#);
        let rows: [(u32, i8, &str); 3] = [
            (0, code::UPDATE, r#""c":1,"m":{"1":2},"\"cdc$deleted_m\"":true,"\"cdc$deleted_v\"":true"#),
            (1, code::UPDATE, r#""c":2,"m":{"1":2},"\"cdc$deleted_elements_m\"":[7]"#),
            (2, code::UPDATE, &format!(r#""c":3,"l":{list},"\"cdc$deleted_l\"":true"#)),
        ];
        let wanted = [
            r#""update","key":{"p":1,"c":1},"columns":{"m":{"1":2}},"deleted":["v"],"last":false}"#,
            r#""update","key":{"p":1,"c":2},"added":{"m":{"1":2}},"removed":{"m":[7]},"last":false}"#,
            r#""update","key":{"p":1,"c":3},"columns":{"l":["a","b"]},"last":true}"#,
        ];
        let quoted = show(&rows);
        assert_eq!(quoted, wanted);
    }

    #[test]
    fn deletions_of_rows_ranges_and_partitions() {
        let rows = [
            (0, code::PREIMAGE, r#""c":2,"v":1"#),
            (1, code::ROW_DELETE, r#""c":2"#),
            (2, code::FROM_EXCLUSIVE, r#""c":3"#),
            (3, code::TO_INCLUSIVE, r#""c":null"#),
            (4, code::PARTITION_DELETE, r#""c":null"#),
            (5, code::UPDATE, r#""s":1"#),
        ];
        let wanted = [
            r#""delete","key":{"p":1,"c":2},"before":{"v":1},"last":false}"#,
            r#""delete_range","key":{"p":1},"from":{"inclusive":false,"key":{"c":3}},"to":{"inclusive":true,"key":{}},"last":false}"#,
            r#""delete_partition","key":{"p":1},"last":false}"#,
            r#""update","key":{"p":1},"static":true,"columns":{"s":1},"last":true}"#,
        ];
        assert_eq!(show(&rows), wanted);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "[]", "{}", "{\"cdc$time\":1}", "nonsense"] {
            assert!(LogRow::parse(text).is_err(), "{text}");
        }
    }
}
