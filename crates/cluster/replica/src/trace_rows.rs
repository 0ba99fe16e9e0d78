//! Rows of `system_traces`, all cells of which expire together, and the rows of one node's steps for a traced request.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mutation::row::ColumnData;
use mutation::{
    Cell, Clustering, Complex, ComplexCell, DecoratedKey, LivenessInfo, PartitionUpdate, Row, Seconds,
};
use rt::Instant;
use schema::Table;

use crate::TraceEvent;

/// Writes rows and cells of one time.
pub struct TraceRows {
    timestamp: i64,
    ttl: Seconds,
    expires: Seconds,
}

/// The node that took steps for a traced request.
pub struct TraceSource {
    /// The request's id.
    pub session: [u8; 16],
    /// The node's address.
    pub address: SocketAddr,
    /// When its part began.
    pub began: Instant,
    /// The same, in microseconds since 1970.
    pub began_micros: i64,
}

impl TraceRows {
    /// Rows written at `timestamp`, in microseconds since 1970, which expire after `ttl` seconds.
    pub fn new(timestamp: i64, ttl: Seconds) -> Self {
        let now = Seconds::try_from(timestamp / 1_000_000).unwrap_or(0);
        Self { timestamp, ttl, expires: now.saturating_add(ttl).min(mutation::NO_DELETION - 1) }
    }

    /// A row without cells.
    pub fn row(&self, clustering: Clustering) -> Row {
        let mut row = Row::new(clustering);
        row.liveness = LivenessInfo::expiring(self.timestamp, self.ttl, self.expires);
        row
    }

    /// Sets a column, if the table has one of this name: tables of former versions have fewer.
    pub fn set(&self, table: &Table, row: &mut Row, name: &str, value: Bytes) {
        if let Some(column) = table.column(name) {
            row.set(column.id, ColumnData::Simple(self.cell(value)));
        }
    }

    /// Sets the elements of a collection, each with its path, in the order of these.
    pub fn set_all(
        &self,
        table: &Table,
        row: &mut Row,
        name: &str,
        elements: impl Iterator<Item = (Bytes, Bytes)>,
    ) {
        let Some(column) = table.column(name) else { return };
        let cells: Vec<_> =
            elements.map(|(path, value)| ComplexCell { path, cell: self.cell(value) }).collect();
        if !cells.is_empty() {
            row.set(column.id, ColumnData::Complex(Complex { cells, ..Complex::empty() }));
        }
    }

    /// The rows of `system_traces.events` for the steps of a node, each with an id of its time, in microseconds since 1970.
    pub fn events(
        &self,
        table: &Arc<Table>,
        source: &TraceSource,
        events: &[TraceEvent],
        mut id: impl FnMut(i64) -> [u8; 16],
    ) -> PartitionUpdate {
        let key = DecoratedKey::new(Bytes::copy_from_slice(&source.session));
        let mut update = PartitionUpdate::new(table.clone(), key);
        for event in events {
            let elapsed = event.at.duration_since(source.began);
            let since = i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX);
            let id = id(source.began_micros.saturating_add(since));
            let mut row = self.row(Clustering::new(table, &[Some(&id)]));
            self.set(table, &mut row, "activity", text(&event.activity));
            self.set(table, &mut row, "source", inet(source.address.ip()));
            self.set(table, &mut row, "source_elapsed", micros(elapsed));
            self.set(table, &mut row, "source_port", int(source.address.port().into()));
            self.set(table, &mut row, "thread", text(&format!("shard-{}", event.shard)));
            update.add_row(row);
        }
        update
    }

    fn cell(&self, value: Bytes) -> Cell {
        Cell::expiring(self.timestamp, self.ttl, self.expires, value)
    }
}

/// The serialised form of a text.
pub fn text(value: &str) -> Bytes {
    Bytes::copy_from_slice(value.as_bytes())
}

/// That of a duration in microseconds, as far as an int has room for it.
pub fn micros(duration: Duration) -> Bytes {
    int(i32::try_from(duration.as_micros()).unwrap_or(i32::MAX))
}

/// That of an int.
pub fn int(value: i32) -> Bytes {
    Bytes::copy_from_slice(&value.to_be_bytes())
}

/// That of an address.
pub fn inet(address: IpAddr) -> Bytes {
    match address {
        IpAddr::V4(ip) => Bytes::copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => Bytes::copy_from_slice(&ip.octets()),
    }
}
