//! The compactions of a shard: the running ones, their statistics, and the time at which a table's are retried.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use compaction::{Progress, Throttle};
use rt::Instant;
use rt::sync::Notify;
use schema::{Table, TableId};
use stdx::HashMap;

use crate::MaintenanceError;
use crate::stats::{COMPACTION_HISTORY_MAX, CompactionRecord, StopRequest, TaskKind, TaskRecord};

/// Longest pause after compactions of a table that failed.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The compactions of a shard.
pub(crate) struct Compactions {
    /// Notified when there may be something to compact.
    pub(crate) check: Notify,
    /// Their limit of bytes read and written a second.
    pub(crate) throttle: Throttle,
    running: Cell<u64>,
    failed: Cell<u64>,
    /// The last logged message about a failure.
    failure: RefCell<String>,
    tasks: RefCell<Vec<Weak<RunningTask>>>,
    operations: RefCell<Vec<Weak<Operation>>>,
    totals: Cell<Totals>,
    history: RefCell<VecDeque<CompactionRecord>>,
    /// The table of which one was started last.
    last: Cell<Option<TableId>>,
    /// Tables of which they failed: how often in a row, and until when none is started.
    pauses: RefCell<HashMap<TableId, (u32, Instant)>>,
    /// Bytes that those under way may still write.
    claimed: Rc<Cell<u64>>,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// Compactions.
    pub(crate) done: u64,
    /// Bytes of data read.
    pub(crate) bytes_in: u64,
    /// Bytes of data written.
    pub(crate) bytes_out: u64,
}

impl Compactions {
    pub(crate) fn new(throttle: Throttle) -> Self {
        Self {
            check: Notify::new(),
            throttle,
            running: Cell::new(0),
            failed: Cell::new(0),
            failure: RefCell::default(),
            tasks: RefCell::default(),
            operations: RefCell::default(),
            totals: Cell::default(),
            history: RefCell::default(),
            last: Cell::new(None),
            pauses: RefCell::default(),
            claimed: Rc::default(),
        }
    }

    /// How many run.
    pub(crate) fn running(&self) -> u64 {
        self.running.get()
    }

    /// How many failed since start.
    pub(crate) fn failed(&self) -> u64 {
        self.failed.get()
    }

    /// Counters since the start.
    pub(crate) fn totals(&self) -> Totals {
        self.totals.get()
    }

    /// One of a table begins, which was chosen in its turn.
    pub(crate) fn begin(&self) {
        self.running.set(self.running.get() + 1);
    }

    /// One that was begun has ended.
    pub(crate) fn end(&self) {
        let running = self.running.get();
        assert!(running > 0, "a compaction that ends has begun");
        self.running.set(running - 1);
    }

    /// The table of which one was started last.
    pub(crate) fn last(&self) -> Option<TableId> {
        self.last.get()
    }

    /// One of this table was started.
    pub(crate) fn set_last(&self, table: TableId) {
        self.last.set(Some(table));
    }

    /// Counts one that failed, or was stopped.
    pub(crate) fn count_failure(&self) {
        self.failed.set(self.failed.get() + 1);
    }

    /// One of a table failed: the next is started after a pause, not at once, for the disk may be full for a while. The log says why,
    /// once.
    pub(crate) fn pause(&self, table: TableId, now: Instant, text: String) {
        let mut pauses = self.pauses.borrow_mut();
        let (failures, until) = pauses.entry(table).or_insert((0, Instant::START));
        *until = now + PAUSE_MAX.min(Duration::from_secs(1 << (*failures).min(6)));
        assert!(*until > now, "a pause ends after it began");
        *failures += 1;
        drop(pauses);
        if *self.failure.borrow() != text {
            tracing::error!("{text}");
            *self.failure.borrow_mut() = text;
        }
    }

    /// An operator has stopped one of this table: no other is started for a while.
    pub(crate) fn rest(&self, table: TableId, now: Instant) {
        self.pauses.borrow_mut().entry(table).or_insert((0, now)).1 = now + PAUSE_MAX;
    }

    /// Whether none of a table is to be started yet.
    pub(crate) fn is_paused(&self, table: TableId, now: Instant) -> bool {
        self.pauses.borrow().get(&table).is_some_and(|(_, until)| now < *until)
    }

    /// One of a table succeeded, or the table is gone.
    pub(crate) fn resume(&self, table: TableId) {
        self.pauses.borrow_mut().remove(&table);
    }

    /// Bytes that those under way may still write.
    pub(crate) fn claimed(&self) -> u64 {
        self.claimed.get()
    }

    /// Takes room on disk, until the result is dropped.
    pub(crate) fn claim(&self, bytes: u64) -> Claim {
        self.claimed.set(self.claimed.get() + bytes);
        Claim { claimed: self.claimed.clone(), bytes }
    }

    /// Begins an operation that is to end when an operator wants it, until the result is dropped.
    pub(crate) fn operation(&self, kind: TaskKind, table: Arc<Table>) -> Rc<Operation> {
        let operation = Rc::new(Operation { kind, table, stopped: Cell::new(false) });
        let mut operations = self.operations.borrow_mut();
        operations.retain(|operation| operation.strong_count() > 0);
        operations.push(Rc::downgrade(&operation));
        operation
    }

    /// Has others see the work of an operation on some SSTables until the result is dropped.
    pub(crate) fn show(&self, id: [u8; 16], operation: &Rc<Operation>, sstables: usize) -> Rc<RunningTask> {
        assert!(sstables > 0, "a compaction that is shown has inputs");
        let progress = Progress::default();
        let task = Rc::new(RunningTask { id, operation: operation.clone(), sstables, progress });
        let mut tasks = self.tasks.borrow_mut();
        tasks.retain(|task| task.strong_count() > 0);
        tasks.push(Rc::downgrade(&task));
        task
    }

    /// Has the operations end that an operator means; how many there are.
    pub(crate) fn stop(&self, wanted: &StopRequest) -> u64 {
        let mut stopped = 0;
        let mut end = |operation: &Operation| stopped += u64::from(!operation.stopped.replace(true));
        match wanted {
            StopRequest::Id(id) => {
                let tasks = self.tasks.borrow();
                let is_meant = |task: &Rc<RunningTask>| {
                    task.id == *id && TaskKind::STOPPABLE.contains(&task.operation.kind)
                };
                let meant = tasks.iter().filter_map(Weak::upgrade).filter(is_meant);
                meant.for_each(|task| end(&task.operation));
            }
            StopRequest::Kind(kind, tables) => {
                let is_meant = |operation: &Rc<Operation>| {
                    operation.kind == *kind
                        && tables.as_ref().is_none_or(|tables| tables.contains(&operation.table.id))
                };
                let operations = self.operations.borrow();
                let meant = operations.iter().filter_map(Weak::upgrade).filter(is_meant);
                meant.for_each(|operation| end(&operation));
            }
        }
        stopped
    }

    /// Bytes that those under way have yet to read.
    pub(crate) fn bytes_left(&self) -> u64 {
        self.tasks().iter().map(|task| task.bytes_total - task.bytes_done).sum()
    }

    /// Those that run, for others to see.
    pub(crate) fn tasks(&self) -> Vec<TaskRecord> {
        self.tasks.borrow().iter().filter_map(Weak::upgrade).map(|task| task.record()).collect()
    }

    /// One has happened.
    pub(crate) fn record(&self, record: CompactionRecord) {
        let Totals { done, bytes_in, bytes_out } = self.totals.get();
        self.totals.set(Totals {
            done: done + 1,
            bytes_in: bytes_in + record.bytes_in,
            bytes_out: bytes_out + record.bytes_out,
        });
        let mut history = self.history.borrow_mut();
        if history.len() >= COMPACTION_HISTORY_MAX {
            history.pop_front();
        }
        history.push_back(record);
        assert!(history.len() <= COMPACTION_HISTORY_MAX, "the history is bounded");
    }

    /// The last ones.
    pub(crate) fn history(&self) -> Vec<CompactionRecord> {
        self.history.borrow().iter().cloned().collect()
    }
}

/// Work on the SSTables of a table, which an operator can stop.
pub(crate) struct Operation {
    pub(crate) kind: TaskKind,
    table: Arc<Table>,
    stopped: Cell<bool>,
}

impl Operation {
    /// Whether an operator wants its end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.get()
    }

    /// Fails when an operator wants its end.
    pub(crate) fn refuse_stopped(&self) -> Result<(), MaintenanceError> {
        if self.is_stopped() { Err(MaintenanceError::Interrupted) } else { Ok(()) }
    }
}

/// A compaction that runs, as others see it.
pub(crate) struct RunningTask {
    id: [u8; 16],
    operation: Rc<Operation>,
    sstables: usize,
    pub(crate) progress: Progress,
}

impl RunningTask {
    fn record(&self) -> TaskRecord {
        let (done, total) = (self.progress.bytes_read.get(), self.progress.bytes_total.get());
        assert!(done <= total, "a compaction reads no more than its inputs have");
        TaskRecord {
            id: self.id,
            kind: self.operation.kind,
            keyspace: self.operation.table.keyspace.clone(),
            table: self.operation.table.name.clone(),
            sstables: self.sstables as u64,
            bytes_done: done,
            bytes_total: total,
        }
    }
}

/// Room on disk that a compaction has taken, until it is dropped.
pub(crate) struct Claim {
    claimed: Rc<Cell<u64>>,
    bytes: u64,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let claimed = self.claimed.get();
        assert!(claimed >= self.bytes, "room that is given back was taken");
        self.claimed.set(claimed - self.bytes);
    }
}
