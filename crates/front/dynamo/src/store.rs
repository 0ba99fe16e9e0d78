//! Reads and writes of rows, by the isolation that a table's writes have.

use std::collections::BTreeMap;

use coordinator::{CasOptions, ClusterView, Consistency, WriteKind, WriteOptions};
use exec::backend::Coordinator;
use exec::{ExecError, Executor};
use items::Item;
use mutation::{PartitionUpdate, Seconds, Timestamp};
use replica::{ReadCommand, ReadPage};
use schema::Replication;

use crate::error::{ApiError, Result, invalid};
use crate::table::{ApiTable, RowKey, RowWrite, State};
use crate::transaction::conflict;

/// Replicas of a table in a datacenter that has as many nodes, as ScyllaDB chooses.
const REPLICAS: usize = 3;
/// How often a write carries out what decided transactions have left on its rows before it gives up.
const SETTLED_MAX: usize = 16;

/// How writes of a table are kept apart, by ScyllaDB's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Every write is a lightweight transaction.
    #[default]
    Always,
    /// Writes that depend on the item are lightweight transactions, others are not; no item may have both.
    OnlyRmw,
    /// Writes that depend on the item are refused.
    ForbidRmw,
    /// Writes that depend on the item read it and write it, with nothing to keep others from coming in between.
    UnsafeRmw,
}

impl Isolation {
    /// By its name in the configuration or a tag.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "always" | "always_use_lwt" | "a" => Self::Always,
            "only_rmw_uses_lwt" | "o" => Self::OnlyRmw,
            "forbid_rmw" | "forbid" | "f" => Self::ForbidRmw,
            "unsafe_rmw" | "unsafe" | "u" => Self::UnsafeRmw,
            _ => return None,
        })
    }
}

/// The decision of a write that sees the item; none where there is nothing to write.
pub(crate) type Decide<'a> = &'a mut dyn FnMut(Option<&Item>) -> Result<Option<RowWrite>>;

/// The rows of one shard's coordinator.
pub(crate) struct Store<'a, C> {
    pub(crate) executor: &'a Executor<C>,
    pub(crate) isolation: Isolation,
}

/// The consistency level of reads.
pub(crate) fn read_consistency(consistent: bool) -> Consistency {
    if consistent { Consistency::LocalQuorum } else { Consistency::LocalOne }
}

impl<C: Coordinator> Store<'_, C> {
    /// The present in seconds.
    pub(crate) fn now(&self) -> Seconds {
        Seconds::try_from(self.executor.clock().wall_micros() / 1_000_000).unwrap_or(0)
    }

    pub(crate) async fn read(&self, command: &ReadCommand, consistency: Consistency) -> Result<ReadPage> {
        let timeout = match command.partitions {
            replica::Partitions::Keys(_) => self.executor.limits().read_timeout,
            replica::Partitions::Range(_) => self.executor.limits().range_timeout,
        };
        let deadline = self.executor.clock().now() + timeout;
        Ok(self.executor.coordinator().read(command, consistency, deadline).await?)
    }

    /// The item of a key.
    pub(crate) async fn get(&self, table: &ApiTable, key: &RowKey, consistent: bool) -> Result<Option<Item>> {
        let state = self.state(table, key, consistent).await?;
        if !consistent || state.intent.is_none() {
            return Ok(state.item);
        }
        let key = table.key_of_row(key)?;
        self.visible(state.item, &key, state.intent.as_ref(), &mut BTreeMap::new()).await
    }

    /// The state of the row of a key.
    pub(crate) async fn state(&self, table: &ApiTable, key: &RowKey, consistent: bool) -> Result<State> {
        let command = table.read_rows(&key.partition, std::iter::once(&key.clustering), self.now());
        let page = self.read(&command, read_consistency(consistent)).await?;
        table.state_of(&page, key, command.now)
    }

    fn isolation(&self, table: &ApiTable) -> Isolation {
        let tagged = table.isolation().and_then(|name| Isolation::from_name(std::str::from_utf8(name).ok()?));
        tagged.unwrap_or(self.isolation)
    }

    /// Whether a write that does not depend on the item may be made without a look at it.
    pub(crate) fn writes_blindly(&self, table: &ApiTable) -> bool {
        self.isolation(table) != Isolation::Always
    }

    /// Writes what `decide` says of an item. It is asked again after contention; a write that does not depend on the item
    /// (`reads` is false) may be asked without it.
    pub(crate) async fn modify(
        &self,
        table: &ApiTable,
        key: &RowKey,
        reads: bool,
        decide: Decide<'_>,
    ) -> Result<()> {
        match (self.isolation(table), reads) {
            (Isolation::Always, _) | (Isolation::OnlyRmw, true) => self.agree(table, key, decide).await,
            (Isolation::ForbidRmw, true) => {
                invalid!(
                    "Read-modify-write operations are disabled by 'forbid_rmw' write isolation policy. Set the tag \
                     system:write_isolation or the option alternator_write_isolation to allow them"
                )
            }
            (Isolation::UnsafeRmw, true) => {
                let old = self.get(table, key, true).await?;
                self.write_decided(table, key, decide(old.as_ref())?).await
            }
            (_, false) => self.write_decided(table, key, decide(None)?).await,
        }
    }

    async fn write_decided(&self, table: &ApiTable, key: &RowKey, write: Option<RowWrite>) -> Result<()> {
        let Some(write) = write else { return Ok(()) };
        self.write(vec![table.update(key, &write, self.executor.timestamp(), self.now())]).await
    }

    /// Writes without agreement.
    pub(crate) async fn write(&self, updates: Vec<PartitionUpdate>) -> Result<()> {
        let options = WriteOptions {
            consistency: Consistency::LocalQuorum,
            kind: if updates.len() == 1 { WriteKind::Simple } else { WriteKind::UnloggedBatch },
            deadline: self.executor.clock().now() + self.executor.limits().write_timeout,
        };
        Ok(self.executor.coordinator().write(updates, options).await?)
    }

    /// Writes what `decide` says of an item, with nothing agreed on in between.
    ///
    /// # Errors
    /// Those of `decide`, and a conflict while a transaction holds the item.
    pub(crate) async fn agree(&self, table: &ApiTable, key: &RowKey, decide: Decide<'_>) -> Result<()> {
        let now = self.now();
        let command = table.read_rows(&key.partition, std::iter::once(&key.clustering), now);
        let mut decided = |page: &ReadPage, ballot: Timestamp| -> Result<Option<PartitionUpdate>> {
            let item = table.state_of(page, key, now)?.item;
            let write = decide(item.as_ref())?;
            Ok(write.map(|write| table.update(key, &write, ballot, now)))
        };
        self.agree_on(table, &command, &mut decided).await
    }

    /// A lightweight transaction on rows that no transaction holds; one that is decided is carried out first.
    pub(crate) async fn agree_on(
        &self,
        table: &ApiTable,
        command: &ReadCommand,
        decide: &mut dyn FnMut(&ReadPage, Timestamp) -> Result<Option<PartitionUpdate>>,
    ) -> Result<()> {
        for _ in 0..SETTLED_MAX {
            let mut held = Vec::new();
            let mut decided = |page: &ReadPage, ballot: Timestamp| {
                held = table.held(page, command.now)?;
                if held.is_empty() { decide(page, ballot) } else { Ok(None) }
            };
            self.transact(command, &mut decided).await?;
            if held.is_empty() {
                return Ok(());
            }
            for (key, intent) in held {
                self.settle(table, &key, &intent).await?;
            }
        }
        Err(conflict())
    }

    /// A lightweight transaction on one partition. An error of `decide` is settled before it is returned: nothing that was not
    /// seen may come back later.
    pub(crate) async fn transact(
        &self,
        command: &ReadCommand,
        decide: &mut dyn FnMut(&ReadPage, Timestamp) -> Result<Option<PartitionUpdate>>,
    ) -> Result<()> {
        let mut refusal: Option<ApiError> = None;
        let mut decided =
            |page: &ReadPage, ballot: Timestamp| -> Result<Option<PartitionUpdate>, ExecError> {
                refusal = None;
                match decide(page, ballot) {
                    Ok(update) => Ok(update),
                    Err(error) => {
                        refusal = Some(error);
                        Ok(None)
                    }
                }
            };
        let (limits, now) = (self.executor.limits(), self.executor.clock().now());
        let deadline = now + limits.write_timeout;
        let options = CasOptions {
            serial: Consistency::LocalSerial,
            commit: Consistency::LocalQuorum,
            deadline,
            contention_deadline: deadline.min(now + limits.cas_contention_timeout),
        };
        let outcome = self.executor.coordinator().cas(command, options, &mut decided).await;
        outcome?;
        refusal.map_or(Ok(()), Err)
    }
}

/// The replication of a keyspace of the API that is created now.
pub(crate) fn replication(view: &ClusterView) -> Replication {
    let sizes = view.datacenter_sizes();
    let factor = |nodes: usize| if nodes >= REPLICAS { REPLICAS as u32 } else { 1 };
    let factors = sizes.into_iter().map(|(name, nodes)| (name.to_owned(), factor(nodes)));
    Replication::NetworkTopology { factors: factors.collect() }
}
