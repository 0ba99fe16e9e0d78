//! One shard's part in topology changes: it streams the node's new ranges, and drops those that the node does not own.

use std::cell::{Cell, RefCell};

use coordinator::Coordinator;
use engine::Engine;
use rt::Rt;
use streaming::Streaming;

use super::expected::Expected;
use super::fetch_reason::FetchedRanges;
use crate::{MembershipError, ShardTask};

/// A shard's streaming counters of the present topology change, or the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FetchFigures {
    /// Whether it fetches now.
    pub active: bool,
    /// When it began, microseconds since the epoch; 0 when it never did.
    pub began_micros: i64,
    /// Ranges of tables that are fetched.
    pub ranges_done: u64,
    /// All that are to be fetched.
    pub ranges_total: u64,
    /// Partitions of which something was lacking.
    pub partitions: u64,
    /// Bytes of missing rows, as they are held in memory.
    pub bytes: u64,
    /// SSTables that were streamed before.
    pub sstables: u64,
    /// Bytes of files that are here.
    pub file_bytes: u64,
    /// The total, as far as sources have reported or estimated it.
    pub file_bytes_total: u64,
    /// Whether all sources have reported.
    pub file_bytes_known: bool,
    /// Bytes of SSTables under way to others that are there.
    pub sending_bytes: u64,
    /// All of these.
    pub sending_bytes_total: u64,
}

/// Streams a shard's part of the ranges that its node is to have.
pub struct RangeStreamer {
    pub(super) coordinator: Coordinator,
    pub(super) engine: Engine,
    pub(super) transfers: Streaming,
    /// The item that is fetched, or was last.
    pub(super) fetch: Cell<FetchFigures>,
    /// How much of it comes.
    pub(super) expected: RefCell<Expected>,
}

impl RangeStreamer {
    /// The part of a shard with this coordinator, storage and these streams of SSTables.
    pub fn new(coordinator: &Coordinator, engine: &Engine, transfers: &Streaming) -> Self {
        Self {
            coordinator: coordinator.clone(),
            engine: engine.clone(),
            transfers: transfers.clone(),
            fetch: Cell::default(),
            expected: RefCell::default(),
        }
    }

    /// Carries out a task; only [`ShardTask::FetchFiles`] results in ranges.
    ///
    /// # Errors
    ///
    /// When the data cannot be had or written, or nobody wants it any more; a later attempt resumes.
    pub async fn carry_out(&self, rt: &Rt, task: ShardTask) -> Result<FetchedRanges, MembershipError> {
        match task {
            ShardTask::FetchFiles(reason) => return self.fetch_files(rt, &reason).await,
            ShardTask::Fetch(reason, fetched) => self.fetch(rt, &reason, &fetched).await?,
            ShardTask::FetchOver => self.fetch_over().await?,
            ShardTask::Cleanup(tables, kept) => self.cleanup(&tables, kept).await?,
        }
        Ok(FetchedRanges::new())
    }

    /// This shard's streaming counters.
    pub fn figures(&self) -> FetchFigures {
        let (mut figures, progress) = (self.fetch.get(), self.transfers.progress());
        let expected = self.expected.borrow();
        figures.file_bytes_total = expected.total(figures.file_bytes, progress.bytes_total);
        figures.file_bytes_known = expected.is_known;
        figures.file_bytes += progress.bytes_done;
        figures.sending_bytes = progress.sending.iter().map(|(_, one)| one.bytes_done).sum();
        figures.sending_bytes_total = progress.sending.iter().map(|(_, one)| one.bytes_total).sum();
        figures
    }
}
