//! Streaming of whole files, before a node compares its data with the other replicas. Each shard streams the ranges that it will own.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, join_all, select};
use rt::Rt;
use schema::{Keyspace, Replication, Table};
use streaming::Peer;
use topology::{DataPlacement, TokenRange};

use super::Inner;
use super::expected::Expected;
use super::fetch_reason::{FetchReason, FetchedRanges};
use super::streamer::{FetchFigures, RangeStreamer};
use crate::{MembershipError, ShardTask};

/// How often a stream checks whether it is still wanted.
const WANTED_PERIOD: Duration = Duration::from_secs(1);

impl RangeStreamer {
    /// Streams this shard's part of the files of the node's ranges.
    pub(super) async fn fetch_files(
        &self,
        rt: &Rt,
        reason: &FetchReason,
    ) -> Result<FetchedRanges, MembershipError> {
        let (began_micros, ranges_total) = (rt.wall_micros(), self.pieces(rt, reason).len() as u64);
        self.fetch.set(FetchFigures { active: true, began_micros, ranges_total, ..FetchFigures::default() });
        *self.expected.borrow_mut() = Expected::default();
        // Whether sources tell early how much comes holds nothing up.
        let had = match select(pin!(self.fetch_tables(rt, reason)), pin!(self.learn_totals(rt, reason))).await
        {
            Either::Left((had, _)) => had,
            Either::Right(((), fetching)) => fetching.await,
        };
        *self.expected.borrow_mut() = Expected::known();
        self.fetch.set(FetchFigures { active: had.is_ok(), ..self.fetch.get() });
        had
    }

    /// Asks for the total of each table, until all sources have reported.
    async fn learn_totals(&self, rt: &Rt, reason: &FetchReason) {
        let label = reason.label();
        let mut open = self.tables_to_fetch(reason);
        loop {
            let mut untold = Vec::new();
            for (table, ranges) in open {
                match self.expected_of(&table, &ranges, (reason, &label)).await {
                    Some(bytes) => self.expected.borrow_mut().guess(table.id, bytes),
                    None => untold.push((table, ranges)),
                }
            }
            if untold.is_empty() {
                self.expected.borrow_mut().is_known = true;
                return;
            }
            open = untold;
            rt.sleep(WANTED_PERIOD).await;
        }
    }

    /// The estimated bytes of a table's files, if all sources report.
    async fn expected_of(
        &self,
        table: &Arc<Table>,
        ranges: &[TokenRange],
        (reason, label): (&FetchReason, &str),
    ) -> Option<u64> {
        let sources = self.coordinator.file_sources(table, ranges, reason.from()).ok()?;
        let asked = sources.iter().map(|source| {
            let peer = Peer { host: source.host, shards: source.shards };
            self.transfers.estimate(peer, table.id, &source.ranges, label)
        });
        join_all(asked).await.into_iter().sum()
    }

    /// The tables of which this node is to have ranges, with the ranges.
    fn tables_to_fetch(&self, reason: &FetchReason) -> Vec<(Arc<Table>, Arc<[TokenRange]>)> {
        let schema = self.coordinator.schema();
        let mut tables = Vec::new();
        for keyspace in schema.keyspaces().filter(|keyspace| keyspace.replication != Replication::Local) {
            for (ranges, stored) in self.ranges_to_fetch(keyspace, reason) {
                let ranges: Arc<[TokenRange]> = ranges.into();
                if !ranges.is_empty() {
                    tables.extend(stored.into_iter().map(|table| (table, ranges.clone())));
                }
            }
        }
        tables
    }

    async fn fetch_tables(&self, rt: &Rt, reason: &FetchReason) -> Result<FetchedRanges, MembershipError> {
        let label = reason.label();
        let mut had = FetchedRanges::new();
        for (table, ranges) in self.tables_to_fetch(reason) {
            self.expected.borrow_mut().begin(table.id, self.fetch.get().file_bytes);
            // Dropping the future ends it; received files stay for another attempt.
            let fetching = pin!(self.fetch_table(&table, &ranges, (reason, &label), &mut had));
            match select(fetching, pin!(self.given_up(rt, reason))).await {
                Either::Left((fetched, _)) => fetched?,
                Either::Right((error, _)) => return Err(error),
            }
            self.expected.borrow_mut().complete(table.id);
        }
        Ok(had)
    }

    /// Waits until the stream is not wanted any more.
    pub(super) async fn given_up(&self, rt: &Rt, reason: &FetchReason) -> MembershipError {
        loop {
            if let Err(error) = self.check_wanted(reason) {
                return error;
            }
            rt.sleep(WANTED_PERIOD).await;
        }
    }

    /// Fails when the topology change for which this is fetched was given up.
    fn check_wanted(&self, reason: &FetchReason) -> Result<(), MembershipError> {
        match reason {
            FetchReason::Change(gain) if gain.is_given_up() || !self.coordinator.view().is_changing() => {
                let number = gain.number();
                Err(MembershipError::Cluster(format!("topology change {number} was given up")))
            }
            FetchReason::Rebuild(rebuild) if rebuild.is_cancelled() => {
                Err(MembershipError::Cluster("the rebuild was cancelled".to_owned()))
            }
            FetchReason::Change(_) | FetchReason::Rebuild(_) => Ok(()),
        }
    }

    /// The node's ranges of a keyspace's stored tables to stream, with the tables of each placement.
    pub(super) fn ranges_to_fetch(
        &self,
        keyspace: &Keyspace,
        reason: &FetchReason,
    ) -> Vec<(Vec<TokenRange>, Vec<Arc<Table>>)> {
        let view = self.coordinator.view();
        let ranges = |placement: &DataPlacement| match reason {
            FetchReason::Change(_) => placement.gained(view.own()),
            FetchReason::Rebuild(_) => placement.now().ranges_of(view.own()).collect(),
        };
        let placed = view.place_tables(keyspace).map(|(placement, tables)| {
            let stored = tables.into_iter().filter(|table| !keyspace.computes(&table.name));
            (ranges(&placement), stored.cloned().collect())
        });
        placed.collect()
    }

    /// Fetches a table's files from their sources; ranges without such files are fetched as rows.
    async fn fetch_table(
        &self,
        table: &Arc<Table>,
        ranges: &[TokenRange],
        (reason, label): (&FetchReason, &str),
        had: &mut FetchedRanges,
    ) -> Result<(), MembershipError> {
        let sources = self.coordinator.file_sources(table, ranges, reason.from());
        let name = table.full_name();
        let sources =
            sources.map_err(|error| MembershipError::Cluster(format!("fetching {name}: {error}")))?;
        for source in sources {
            self.coordinator.fence_host(source.host).await.map_err(MembershipError::Cluster)?;
            let peer = Peer { host: source.host, shards: source.shards };
            match self.transfers.fetch(peer, table.id, &source.ranges, label).await {
                Ok(fetched) => {
                    let mut figures = self.fetch.get();
                    figures.sstables += fetched.sstables;
                    figures.file_bytes += fetched.bytes;
                    self.fetch.set(figures);
                    if fetched.is_all {
                        let one = |range: &TokenRange| (table.id, range.after, range.upto, source.host);
                        had.extend(source.ranges.iter().map(one));
                    }
                }
                Err(error) if error.is_disk() => {
                    return Err(MembershipError::Cluster(format!(
                        "the files of {name} find no place: {error}"
                    )));
                }
                Err(error) => {
                    tracing::info!(
                        "cannot stream all SSTables of {name}, the rest is streamed as rows: {error}"
                    );
                }
            }
        }
        Ok(())
    }
}

impl RangeStreamer {
    /// All that was to be fetched is here.
    pub(super) async fn fetch_over(&self) -> Result<(), MembershipError> {
        let finished = self.transfers.finish().await;
        finished
            .map_err(|error| MembershipError::Cluster(format!("streamed files cannot be removed: {error}")))
    }
}

impl Inner {
    /// Makes every shard stream its files, and then the rest that this node lacks.
    pub(super) async fn fetch_all(&self, reason: FetchReason) -> Result<(), MembershipError> {
        self.leftovers.set(true);
        let mut all: Option<FetchedRanges> = None;
        for fetched in self.shards.on_each(ShardTask::FetchFiles(reason.clone())).await {
            let fetched = fetched?;
            // A range's rows lie on several shards: each has to have its part.
            all = Some(match all {
                Some(all) => all.intersection(&fetched).copied().collect(),
                None => fetched,
            });
        }
        let fetched = Arc::new(all.unwrap_or_default());
        self.on_all(ShardTask::Fetch(reason, fetched)).await?;
        // No state has to be stored for another attempt.
        self.on_all(ShardTask::FetchOver).await?;
        self.leftovers.set(false);
        Ok(())
    }
}
