//! Entries of the audit log in the table `audit.audit_log`: queued, and written by one task, so that no request waits for a replica longer
//! than for room in the queue.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use coordinator::{Consistency, Coordinator, WriteKind, WriteOptions};
use exec::audit::{AuditEntry, AuditStyle, table};
use exec::{ExecError, Executor};
use futures_util::future::join_all;
use rt::sync::Notify;
use rt::{Group, Rt, ShardId, Task};

/// Entries of a shard that wait, and how long a request waits for room among them; then its entry is lost, and counted.
const ENTRIES_MAX: usize = 4096;
const ROOM_TIMEOUT: Duration = Duration::from_secs(2);
/// Entries that are written at a time, and how long that may take.
const WRITES_MAX: usize = 64;
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two attempts to make the table, or two looks for it.
const RETRY: Duration = Duration::from_secs(1);
/// Between two reports of lost entries.
const LOSS_INTERVAL: Duration = Duration::from_secs(10);

/// The table as a shard writes it.
pub(super) struct TableSink {
    rt: Rt,
    node: IpAddr,
    style: AuditStyle,
    executor: Rc<Executor<Coordinator>>,
    entries: RefCell<VecDeque<AuditEntry>>,
    wake: Notify,
    room: Notify,
    is_stopping: Cell<bool>,
    lost: Cell<u64>,
    loss_reported: Cell<Option<rt::Instant>>,
    writer: RefCell<Option<Task<()>>>,
}

impl TableSink {
    /// Begins to write.
    pub(super) fn start(
        rt: &Rt,
        (node, style): (IpAddr, AuditStyle),
        executor: Rc<Executor<Coordinator>>,
    ) -> Rc<Self> {
        let sink = Rc::new(Self {
            rt: rt.clone(),
            node,
            style,
            executor,
            entries: RefCell::default(),
            wake: Notify::new(),
            room: Notify::new(),
            is_stopping: Cell::new(false),
            lost: Cell::new(0),
            loss_reported: Cell::new(None),
            writer: RefCell::default(),
        });
        let own = sink.clone();
        let writer = rt.spawn(Group::Maintenance, async move { own.write().await });
        *sink.writer.borrow_mut() = Some(writer);
        sink
    }

    /// Adds an entry, when there is room for it soon.
    pub(super) async fn record(&self, entry: AuditEntry) {
        let room = async {
            while self.entries.borrow().len() >= ENTRIES_MAX {
                self.room.notified().await;
            }
        };
        if self.is_stopping.get() || self.rt.timeout(ROOM_TIMEOUT, room).await.is_err() {
            return self.report_loss(1, "they come faster than they can be written");
        }
        self.entries.borrow_mut().push_back(entry);
        self.wake.notify_all();
    }

    /// Writes the entries so far and ends.
    pub(super) async fn stop(&self) {
        self.is_stopping.set(true);
        self.wake.notify_all();
        let writer = self.writer.borrow_mut().take();
        if let Some(writer) = writer {
            writer.await;
        }
    }

    async fn write(&self) {
        loop {
            if self.entries.borrow().is_empty() {
                if self.is_stopping.get() {
                    return;
                }
                self.wake.notified().await;
                continue;
            }
            let coordinator = self.executor.coordinator();
            let Some(table) = table::table(&coordinator.schema()) else {
                if self.is_stopping.get() {
                    let left = self.entries.borrow().len() as u64;
                    return self.report_loss(left, "the table is not there yet");
                }
                self.make_table().await;
                continue;
            };
            let deadline = self.rt.now() + WRITE_TIMEOUT;
            let writes: Vec<_> = {
                let mut entries = self.entries.borrow_mut();
                let count = entries.len().min(WRITES_MAX);
                let batch = entries.drain(..count);
                let options =
                    WriteOptions { consistency: Consistency::One, kind: WriteKind::Simple, deadline };
                let write = |entry: AuditEntry| {
                    let (id, at) = (self.executor.time_uuid(), self.executor.timestamp());
                    coordinator.write(vec![entry.update(&table, (self.node, self.style), id, at)], options)
                };
                batch.map(write).collect()
            };
            self.room.notify_all();
            let failed =
                join_all(writes).await.into_iter().filter_map(Result::err).map(|error| error.to_string());
            let failed: Vec<String> = failed.collect();
            if let Some(error) = failed.first() {
                self.report_loss(failed.len() as u64, error);
            }
        }
    }

    /// Makes the table, on the first shard; the others wait for it.
    async fn make_table(&self) {
        if self.rt.shard() == ShardId(0)
            && let Err(error) = self.executor.change_schema_by::<ExecError>(None, table::plan).await
        {
            tracing::warn!("the table of the audit log is not made yet: {error}");
        }
        if table::table(&self.executor.coordinator().schema()).is_none() {
            self.rt.sleep(RETRY).await;
        }
    }

    fn report_loss(&self, count: u64, why: &str) {
        self.lost.set(self.lost.get() + count);
        let now = self.rt.now();
        if self.loss_reported.get().is_none_or(|at| now.duration_since(at) >= LOSS_INTERVAL) {
            self.loss_reported.set(Some(now));
            let lost = self.lost.get();
            tracing::error!(
                "entries of the audit log could not be stored in its table, {lost} since the start: {why}"
            );
        }
    }
}
