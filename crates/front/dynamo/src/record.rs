//! The record of a transaction: one row, written by lightweight transactions alone, that says whether it is committed. The outcome that a record
//! has for an attempt applies to all of its intents at once.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use coordinator::Consistency;
use exec::backend::Coordinator;
use items::{Item, json};
use mutation::row::ColumnData;
use mutation::{Cell, Clustering, DecoratedKey, PartitionUpdate, Row, Seconds, Timestamp};
use replica::{Keys, Partitions, ReadCommand, ReadPage};
use rt::Injected;
use schema::{Schema, Table};
use serde::Deserialize;
use serde_json::Value as Json;
use serde_json::value::RawValue;

use crate::canaries::Canaries;
use crate::error::{ApiError, ErrorKind, Result};
use crate::intent::{Attempt, hex, unhex};
use crate::reply::push_member;
use crate::store::{Store, TRANSACTIONS_KEYSPACE};

const TABLE: &str = "transactions";
const COLUMN: &str = "record";
/// How long a record is kept whose transaction is over, seconds: so long AWS remembers a client's token.
const KEPT_SECONDS: Seconds = 600;
/// How long the record of a transaction that is not decided is kept with an injected bug, seconds.
const UNDECIDED_SECONDS: Seconds = 3600;
/// How long a transaction may take to be decided before anyone may cancel it, microseconds.
const ABANDONED_MICROS: u64 = 10_000_000;

/// The state of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// It prepares its items.
    Pending,
    /// Readers see all of its effects.
    Committed,
    /// Readers see all of its effects, and no intent of it is left.
    Applied,
    /// None of its effects are.
    Cancelled,
}

impl Status {
    const ALL: [(Self, &str); 4] = [
        (Self::Pending, "pending"),
        (Self::Committed, "committed"),
        (Self::Applied, "applied"),
        (Self::Cancelled, "cancelled"),
    ];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(status, _)| *status == self).map_or("", |(_, name)| name)
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(status, _)| *status)
    }
}

/// A record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    pub(crate) status: Status,
    pub(crate) attempt: Attempt,
    /// Of the request, so that a token is not used for two.
    pub(crate) fingerprint: u128,
    /// When the attempt began, microseconds since 1970.
    pub(crate) begun: i64,
    /// The items of the transaction, as they are stored ([`items_text`]): the commit does not read them again.
    pub(crate) items: Rc<str>,
    /// The datacenter of its coordinator, in which its intents are; none in the records of nodes of before.
    pub(crate) datacenter: Option<String>,
}

/// The stored form of a record.
#[derive(Deserialize)]
struct Stored<'a> {
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(borrow)]
    attempt: Cow<'a, str>,
    #[serde(borrow)]
    fingerprint: Cow<'a, str>,
    begun: i64,
    #[serde(borrow)]
    items: &'a RawValue,
    #[serde(borrow)]
    datacenter: Option<Cow<'a, str>>,
}

/// The stored form of items: of each the table and the key attributes.
pub(crate) fn items_text<'a>(items: impl Iterator<Item = (&'a str, &'a Item)>) -> Rc<str> {
    let mut text = "[".to_owned();
    for (place, (table, key)) in items.enumerate() {
        text.push_str(if place == 0 { r#"{"table":"# } else { r#",{"table":"# });
        text.push_str(&Json::from(table).to_string());
        text.push_str(r#","key":"#);
        json::write_stored_item(key, &mut text);
        text.push('}');
    }
    text.push(']');
    text.into()
}

impl Record {
    /// Whether it is pending for longer than its coordinator would take.
    pub(crate) fn is_abandoned(&self, now_micros: i64) -> bool {
        self.status == Status::Pending && self.is_left_behind(now_micros)
    }

    /// Whether its coordinator would be done with it by now, and is not. One that begins later than that by this clock is taken for the same: its
    /// coordinator's clock is ahead, and its items would be held until this clock has reached it.
    pub(crate) fn is_left_behind(&self, now_micros: i64) -> bool {
        let is_over = matches!(self.status, Status::Applied | Status::Cancelled);
        !is_over && now_micros.abs_diff(self.begun) > ABANDONED_MICROS
    }

    /// The items: table and key. None when the record has something else.
    pub(crate) fn items(&self) -> Option<Vec<(String, Item)>> {
        let items: Vec<Json> = serde_json::from_str(&self.items).ok()?;
        let item = |json: &Json| {
            let key = json::read_item(json.get("key")?).ok()?;
            Some((json.get("table")?.as_str()?.to_owned(), key))
        };
        items.iter().map(item).collect()
    }

    fn encode(&self) -> Vec<u8> {
        let mut text = format!(
            r#"{{"status":"{}","attempt":"{}","fingerprint":"{}","begun":{},"items":{}}}"#,
            self.status.name(),
            hex(self.attempt),
            hex(self.fingerprint),
            self.begun,
            self.items
        );
        if let Some(datacenter) = &self.datacenter {
            push_member(&mut text, "datacenter", |out| {
                out.push_str(&Json::from(datacenter.as_str()).to_string())
            });
        }
        text.into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let stored: Stored<'_> = serde_json::from_slice(bytes).ok()?;
        Some(Self {
            status: Status::from_name(&stored.status)?,
            attempt: unhex(&stored.attempt)?,
            fingerprint: unhex(&stored.fingerprint)?,
            begun: stored.begun,
            items: stored.items.get().into(),
            datacenter: stored.datacenter.map(Cow::into_owned),
        })
    }

    /// Seconds until it is forgotten; none while it is not decided, or an intent may need it. An intent without a record is cancelled: a pending record
    /// that expires by the clock of one node would be missing there while its coordinator commits it.
    fn ttl(&self, canaries: Injected<Canaries>) -> Option<Seconds> {
        match self.status {
            Status::Pending => canaries.expiring_record.then_some(UNDECIDED_SECONDS),
            Status::Committed => None,
            Status::Applied | Status::Cancelled => Some(KEPT_SECONDS),
        }
    }
}

/// The table of records; none before the first transaction.
pub(crate) fn table(schema: &Schema) -> Option<Arc<Table>> {
    schema.table(TRANSACTIONS_KEYSPACE, TABLE).cloned()
}

fn partition(key: &str) -> DecoratedKey {
    DecoratedKey::new(Bytes::copy_from_slice(key.as_bytes()))
}

fn read_command(table: &Arc<Table>, key: &str, now: Seconds) -> ReadCommand {
    ReadCommand::all_of(table.clone(), Partitions::Keys(Keys::from_iter([partition(key)])), now)
}

fn update(
    table: &Arc<Table>,
    key: &str,
    (record, ttl): (&Record, Option<Seconds>),
    (at, now): (Timestamp, Seconds),
) -> PartitionUpdate {
    // Without a marker: the row is gone when its cell has expired.
    let mut row = Row::new(Clustering::empty());
    let value = Bytes::from(record.encode());
    let cell = match ttl {
        None => Cell::live(at, value),
        Some(ttl) => Cell::expiring(at, ttl, now.saturating_add(ttl), value),
    };
    if let Some(column) = table.column(COLUMN) {
        row.set(column.id, ColumnData::Simple(cell));
    }
    PartitionUpdate::with_rows(table.clone(), partition(key), vec![row])
}

/// The records of a page, by key.
pub(crate) fn records(
    table: &Table,
    page: &ReadPage,
    now: Seconds,
) -> impl Iterator<Item = Result<(String, Record)>> {
    let foreign = || {
        let text = format!("{TRANSACTIONS_KEYSPACE}.{TABLE} has a row that is no record of a transaction");
        ApiError::new(ErrorKind::InternalServer, text)
    };
    let column = table.column(COLUMN).map(|column| column.id);
    let rows = page
        .partitions
        .iter()
        .flat_map(|partition| partition.rows.iter().map(move |row| (&partition.key.key, row)));
    rows.filter_map(move |(key, row)| {
        let Some(column) = column else { return Some(Err(foreign())) };
        let Some(ColumnData::Simple(cell)) = row.column(column) else { return None };
        if !cell.is_live(now) {
            return None;
        }
        let key = std::str::from_utf8(key).ok();
        Some(match (key, Record::decode(&cell.value)) {
            (Some(key), Some(record)) => Ok((key.to_owned(), record)),
            _ => Err(foreign()),
        })
    })
}

impl<C: Coordinator> Store<'_, C> {
    /// The table of records, made when there is none.
    pub(crate) async fn records_table(&self) -> Result<Arc<Table>> {
        self.own_table(TRANSACTIONS_KEYSPACE, TABLE, &[COLUMN]).await
    }

    /// The record of a key, with all that was agreed on before, in every datacenter: only so is a missing record one that was never written.
    pub(crate) async fn record(&self, key: &str) -> Result<Option<Record>> {
        let coordinator = self.executor.coordinator();
        // Without the table, nothing was ever committed.
        let Some(table) = table(&coordinator.schema()) else { return Ok(None) };
        let command = read_command(&table, key, self.now());
        let deadline = self.deadline(self.executor.limits().read_timeout);
        let page = coordinator.read_serial(&command, Consistency::Serial, deadline).await?;
        let found = records(&table, &page, command.now).next().transpose()?;
        Ok(found.map(|(_, record)| record))
    }

    /// Changes a record with no other decision in between, in any datacenter; returns the result of `change` on the previous record.
    pub(crate) async fn change_record<T>(
        &self,
        table: &Arc<Table>,
        key: &str,
        mut change: impl FnMut(Option<Record>) -> (Option<Record>, T),
    ) -> Result<T> {
        self.change_record_at(table, key, |found, _| change(found)).await
    }

    /// [`Store::change_record`] by a change that is given the time of the write.
    pub(crate) async fn change_record_at<T>(
        &self,
        table: &Arc<Table>,
        key: &str,
        mut change: impl FnMut(Option<Record>, Timestamp) -> (Option<Record>, T),
    ) -> Result<T> {
        let now = self.now();
        let mut decided = None;
        let mut decide = |page: &ReadPage, ballot: Timestamp| {
            let found = records(table, page, now).next().transpose()?.map(|(_, record)| record);
            let (written, outcome) = change(found, ballot);
            decided = Some(outcome);
            Ok(written.map(|record| self.record_update(table, key, &record, ballot)))
        };
        self.transact_at(&read_command(table, key, now), Consistency::Serial, &mut decide).await?;
        decided.ok_or_else(|| ApiError::new(ErrorKind::InternalServer, "A record was not looked at"))
    }

    /// The write of a record at a time.
    pub(crate) fn record_update(
        &self,
        table: &Arc<Table>,
        key: &str,
        record: &Record,
        at: Timestamp,
    ) -> PartitionUpdate {
        update(table, key, (record, record.ttl(self.canaries)), (at, self.now()))
    }
}

/// Decides on an attempt: a pending one becomes committed or cancelled, a committed one applied; a decision is final. Returns the status
/// of the attempt afterwards.
pub(crate) fn decide(found: Option<Record>, attempt: Attempt, wanted: Status) -> (Option<Record>, Status) {
    let Some(record) = found.filter(|record| record.attempt == attempt) else {
        return (None, Status::Cancelled);
    };
    let goes = matches!(
        (record.status, wanted),
        (Status::Pending, Status::Committed | Status::Cancelled) | (Status::Committed, Status::Applied)
    );
    match goes {
        true => (Some(Record { status: wanted, ..record }), wanted),
        false => (None, record.status),
    }
}

#[cfg(test)]
impl Record {
    /// The record of an attempt on no items, which began in 1970.
    pub(crate) fn empty(status: Status, attempt: Attempt) -> Self {
        let items = items_text(std::iter::empty());
        Self { status, attempt, fingerprint: 1, begun: 0, items, datacenter: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use items::Value;

    #[test]
    fn records_are_read_as_they_were_written() {
        for (status, _) in Status::ALL {
            let key = Item::from([("p".to_owned(), Value::S("\u{e9}".to_owned()))]);
            let record = Record {
                status,
                attempt: 7,
                fingerprint: u128::MAX,
                begun: 1_700_000_000_000_000,
                items: items_text([("abc", &key)].into_iter()),
                datacenter: (status != Status::Pending).then(|| "dc1".to_owned()),
            };
            assert_eq!(record.items(), Some(vec![("abc".to_owned(), key)]));
            assert_eq!(Record::decode(&record.encode()), Some(record));
        }
        // A node of before wrote the members in another order, with spaces.
        let before =
            br#"{ "items": [ {"key":{"p":{"S":"\u00e9"}}, "table":"t"} ], "begun": 5, "status": "committed",
            "fingerprint": "07", "attempt": "ff" }"#;
        let record = Record::decode(before).expect("a record");
        assert_eq!((record.status, record.attempt, record.begun), (Status::Committed, 255, 5));
        let key = Item::from([("p".to_owned(), Value::S("\u{e9}".to_owned()))]);
        assert_eq!(record.items(), Some(vec![("t".to_owned(), key)]));
        assert_eq!(Record::decode(b"{}"), None);
        assert_eq!(Record::decode(b""), None);
    }

    #[test]
    fn a_record_that_an_intent_may_need_is_kept_for_good() {
        let record = |status| Record::empty(status, 1);
        let lasting = |status: &Status| record(*status).ttl(Injected::default()).is_none();
        let lasting = Status::ALL.iter().map(|(status, _)| *status).filter(lasting);
        assert_eq!(lasting.collect::<Vec<_>>(), [Status::Pending, Status::Committed]);
        let limit = ABANDONED_MICROS as i64;
        for far in [limit + 1, -limit - 1, i64::MAX, i64::MIN] {
            assert!(record(Status::Pending).is_abandoned(far), "{far}");
            assert!(!record(Status::Committed).is_abandoned(far), "{far}");
            assert!(record(Status::Committed).is_left_behind(far), "{far}");
            assert!(!record(Status::Cancelled).is_left_behind(far), "{far}");
        }
        for near in [limit, 0, -limit] {
            assert!(!record(Status::Pending).is_abandoned(near), "{near}");
        }
    }

    #[test]
    fn a_decision_is_final() {
        use Status::{Applied, Cancelled, Committed, Pending};
        let of = Record::empty;
        for (found, wanted, after) in [
            (Pending, Committed, Committed),
            (Pending, Cancelled, Cancelled),
            (Pending, Applied, Pending),
            (Committed, Cancelled, Committed),
            (Committed, Applied, Applied),
            (Applied, Cancelled, Applied),
            (Applied, Committed, Applied),
            (Cancelled, Committed, Cancelled),
            (Cancelled, Applied, Cancelled),
        ] {
            let (written, status) = decide(Some(of(found, 7)), 7, wanted);
            assert_eq!((status, written.is_some()), (after, after != found), "{found:?} {wanted:?}");
            // Another attempt took the record, which it can only when this one is not committed.
            assert_eq!(decide(Some(of(found, 8)), 7, wanted), (None, Cancelled));
        }
        assert_eq!(decide(None, 7, Committed), (None, Cancelled));
    }
}
