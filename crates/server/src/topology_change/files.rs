//! What a node fetches as files, before it compares what it has with the other replicas. Each shard fetches what it will own.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use admin::FetchFigures;
use coordinator::PullFrom;
use futures_util::future::{Either, join_all, select};
use rt::{Rt, ShardId};
use schema::{Replication, Table, TableId};
use topology::{HostId, TokenRange};
use transfer::Peer;

use super::Inner;
use super::rebuild::Rebuild;
use crate::NodeError;
use crate::node::{Order, Report};
use crate::shard::RunningShard;

/// How often it is looked whether what is fetched is still wanted.
const WANTED_PERIOD: Duration = Duration::from_secs(1);

/// Why a node fetches.
#[derive(Clone, Debug)]
pub(crate) enum FetchReason {
    /// It gains ranges by the change of the ring with this number.
    Change(u64),
    /// An operator asks for all that it owns, from a datacenter or from anywhere.
    Rebuild(Rebuild),
}

impl FetchReason {
    /// From whom.
    pub(crate) fn from(&self) -> PullFrom<'_> {
        match self {
            Self::Change(_) => PullFrom::Quorum,
            Self::Rebuild(rebuild) => {
                rebuild.source.as_deref().map_or(PullFrom::Others, PullFrom::Datacenter)
            }
        }
    }

    /// What it is called: under the same name, fetching goes on where it was.
    fn label(&self) -> String {
        match self {
            Self::Change(number) => number.to_string(),
            Self::Rebuild(rebuild) => format!("rebuild-{}", rebuild.number),
        }
    }
}

/// Ranges of tables of which this node has all that a host had.
pub(crate) type Had = BTreeSet<(TableId, i64, i64, HostId)>;

/// The host of which all is here of a table's range.
pub(crate) fn had_from(had: &Had, table: TableId, range: TokenRange) -> Option<HostId> {
    let from = (table, range.after, range.upto, HostId([0; 16]));
    let upto = (table, range.after, range.upto, HostId([0xff; 16]));
    had.range(from..=upto).next().map(|(.., host)| *host)
}

impl RunningShard {
    /// Fetches this shard's part of the files of what the node is to have.
    pub(crate) async fn fetch_files(&self, rt: &Rt, reason: &FetchReason) -> Result<Had, NodeError> {
        let began_micros = rt.wall_micros();
        self.fetch.set(FetchFigures { active: true, began_micros, ..FetchFigures::default() });
        let had = self.fetch_tables(rt, reason).await;
        self.fetch.set(FetchFigures { active: had.is_ok(), ..self.fetch.get() });
        had
    }

    async fn fetch_tables(&self, rt: &Rt, reason: &FetchReason) -> Result<Had, NodeError> {
        let (schema, label) = (self.coordinator().schema(), reason.label());
        let mut had = Had::new();
        for keyspace in schema.keyspaces().filter(|keyspace| keyspace.replication != Replication::Local) {
            let ranges = self.ranges_to_fetch(&keyspace.replication, reason);
            for table in keyspace.tables.values().filter(|table| !keyspace.computes(&table.name)) {
                if ranges.is_empty() {
                    continue;
                }
                // Dropping what is under way ends it; what has come stays for another attempt.
                let fetching = pin!(self.fetch_table(table, &ranges, (reason, &label), &mut had));
                match select(fetching, pin!(self.given_up(rt, reason))).await {
                    Either::Left((fetched, _)) => fetched?,
                    Either::Right((error, _)) => return Err(error),
                }
            }
        }
        Ok(had)
    }

    /// Waits until nobody wants any more what is fetched.
    async fn given_up(&self, rt: &Rt, reason: &FetchReason) -> NodeError {
        loop {
            if let Err(error) = self.check_wanted(reason) {
                return error;
            }
            rt.sleep(WANTED_PERIOD).await;
        }
    }

    /// Fails when the change of the ring for which this is fetched was given up.
    pub(crate) fn check_wanted(&self, reason: &FetchReason) -> Result<(), NodeError> {
        match reason {
            FetchReason::Change(number) if !self.coordinator().view().is_changing() => {
                Err(NodeError::Cluster(format!("change {number} of the ring was given up")))
            }
            FetchReason::Rebuild(rebuild) if rebuild.is_cancelled() => {
                Err(NodeError::Cluster("the rebuild was cancelled".to_owned()))
            }
            FetchReason::Change(_) | FetchReason::Rebuild(_) => Ok(()),
        }
    }

    /// What the node is to fetch of keyspaces with this replication.
    pub(crate) fn ranges_to_fetch(&self, replication: &Replication, reason: &FetchReason) -> Vec<TokenRange> {
        let view = self.coordinator().view();
        let copies = view.place(replication);
        match reason {
            FetchReason::Change(_) => copies.gained(view.own()),
            FetchReason::Rebuild(_) => copies.now().ranges_of(view.own()).collect(),
        }
    }

    /// Fetches a table's files from those who have them; what cannot be had so is fetched as rows.
    async fn fetch_table(
        &self,
        table: &Arc<Table>,
        ranges: &[TokenRange],
        (reason, label): (&FetchReason, &str),
        had: &mut Had,
    ) -> Result<(), NodeError> {
        let sources = self.coordinator().file_sources(table, ranges, reason.from());
        let name = table.full_name();
        let sources = sources.map_err(|error| NodeError::Cluster(format!("fetching {name}: {error}")))?;
        for source in sources {
            self.coordinator().fence_host(source.host).await.map_err(NodeError::Cluster)?;
            let peer = Peer { host: source.host, shards: source.shards };
            match self.transfers().fetch(peer, table.id, &source.ranges, label).await {
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
                    return Err(NodeError::Cluster(format!("the files of {name} find no place: {error}")));
                }
                Err(error) => {
                    tracing::info!("{name} is fetched as rows as far as its files are not had: {error}");
                }
            }
        }
        Ok(())
    }
}

impl RunningShard {
    /// This shard's figures of what is fetched.
    pub(crate) fn fetch_figures(&self) -> FetchFigures {
        let (mut figures, progress) = (self.fetch.get(), self.transfers().progress());
        figures.file_bytes_total = figures.file_bytes + progress.bytes_total;
        figures.file_bytes += progress.bytes_done;
        figures.sending_bytes = progress.sending.iter().map(|(_, one)| one.bytes_done).sum();
        figures.sending_bytes_total = progress.sending.iter().map(|(_, one)| one.bytes_total).sum();
        figures
    }

    /// All that was to be fetched is here.
    pub(crate) async fn fetch_over(&self) -> Result<(), NodeError> {
        let finished = self.transfers().finish().await;
        finished.map_err(|error| NodeError::Cluster(format!("what was fetched cannot be removed: {error}")))
    }
}

impl Inner {
    /// Has every shard fetch its files, and then what this node lacks beyond that.
    pub(super) async fn fetch_all(&self, reason: FetchReason) -> Result<(), NodeError> {
        self.leftovers.set(true);
        let shards = || (0..self.rt.shard_count()).map(ShardId);
        let order = |shard| self.port.call(shard, Order::FetchFiles(reason.clone()));
        let mut all: Option<Had> = None;
        for report in join_all(shards().map(order)).await {
            let Report::Files(had) = report else { panic!("files are what was ordered") };
            let had = had?;
            // A range's rows lie on several shards: each has to have its part.
            all = Some(match all {
                Some(all) => all.intersection(&had).copied().collect(),
                None => had,
            });
        }
        let had = Arc::new(all.unwrap_or_default());
        self.order_all(Order::Fetch(reason, had)).await?;
        // Nothing has to be kept for another attempt.
        self.order_all(Order::FetchOver).await?;
        self.leftovers.set(false);
        Ok(())
    }
}
