//! Large partitions, rows and cells of the SSTables in service, and the warnings when they are written.

use std::rc::Rc;

use schema::Table;
use sstable::{Component, Descriptor, GuardedFigure, GuardedPartition, LargeKind, Sstable, Written};

use crate::stats::LargeSstable;
use crate::store::Store;

fn name(descriptor: &Descriptor) -> String {
    let path = descriptor.path(Component::Data);
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// The SSTables of a table that have something large.
pub(crate) fn of_table(store: &Store) -> Vec<LargeSstable> {
    let set = store.set();
    let with_large = set.iter().filter(|live| !live.sstable.large().is_empty());
    let one = |live: &Rc<crate::live::LiveSstable>| LargeSstable {
        table: store.id,
        name: name(live.sstable.descriptor()),
        large: live.sstable.large().clone(),
    };
    with_large.map(one).collect()
}

/// Logs the partitions of an SSTable that was written beyond the bounds of guardrails, in Cassandra's words.
pub(crate) fn guarded(table: &Table, written: &Written) {
    let guarded = &written.guarded;
    for one in &guarded.named {
        let text = guarded_text(table, &name(&written.descriptor), one);
        match one.is_failure {
            true => tracing::error!("{text}"),
            false => tracing::warn!("{text}"),
        }
    }
    let unnamed = guarded.count - guarded.named.len() as u64;
    if unnamed > 0 {
        tracing::warn!(
            "{unnamed} further partitions of {} exceed thresholds of guardrails",
            table.full_name()
        );
    }
}

fn guarded_text(table: &Table, sstable: &str, one: &GuardedPartition) -> String {
    let GuardedPartition { key, figure, value, bound, is_failure } = one;
    let (name, unit, reason) = match figure {
        GuardedFigure::Bytes => (
            "partition_size",
            format!("size {value}"),
            "Too large partitions can cause performance problems.",
        ),
        GuardedFigure::Tombstones => (
            "partition_tombstones",
            format!("{value} tombstones"),
            "Partitions with too many tombstones can cause performance problems.",
        ),
    };
    let threshold = if *is_failure { "failure" } else { "warning" };
    // Keys come from clients: no line of the log begins in them.
    let key = key.escape_debug();
    format!(
        "Guardrail {name} violated: Partition {}:{key} on sstable {sstable} has {unit}, this exceeds the {threshold} threshold \
         of {bound}. {reason}",
        table.full_name()
    )
}

/// Logs the large partitions, rows and cells of an SSTable that was written.
pub(crate) fn warned(table: &Table, sstable: Rc<Sstable>) -> Rc<Sstable> {
    let (keyspace, table) = (&table.keyspace, &table.name);
    let name = name(sstable.descriptor());
    for record in sstable.large().records() {
        // Keys come from clients: no line of the log begins in them.
        let (key, bytes) = (record.key.escape_debug(), record.bytes);
        match &record.kind {
            LargeKind::Partition { rows, dead_rows, range_tombstones } => tracing::warn!(
                "large partition {keyspace}/{table}: {key} ({bytes} bytes, {rows} rows of which {dead_rows} are dead, \
                 {range_tombstones} range tombstones) in {name}"
            ),
            LargeKind::Row { clustering } => tracing::warn!(
                "large row {keyspace}/{table}: {key} {} ({bytes} bytes) in {name}",
                clustering.escape_debug()
            ),
            LargeKind::Cell { clustering, column, elements: 0 } => tracing::warn!(
                "large cell {keyspace}/{table}: {key} {} {column} ({bytes} bytes) in {name}",
                clustering.escape_debug()
            ),
            LargeKind::Cell { clustering, column, elements } => tracing::warn!(
                "large collection {keyspace}/{table}: {key} {} {column} ({bytes} bytes, {elements} elements) in {name}",
                clustering.escape_debug()
            ),
        }
    }
    sstable
}
