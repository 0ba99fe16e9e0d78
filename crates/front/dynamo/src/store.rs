//! Reads and writes of rows through the shard's coordinator.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::SchemaEdit;
use coordinator::{CasOptions, ClusterView, Consistency, WriteKind, WriteOptions};
use exec::backend::Coordinator;
use exec::{ExecError, Executor};
use mutation::{Clustering, DecoratedKey, PartitionUpdate, Row, Seconds, Timestamp};
use replica::{ReadCommand, ReadPage, RowLookup, TraceLog};
use rt::{Injected, Instant};
use schema::{Keyspace, Replication, Schema, Table, TableBuilder, TableId};
use types::CqlType;

use crate::canaries::Canaries;
use crate::error::{ApiError, ErrorKind, Result};
use crate::metrics::Metrics;
use crate::table::ApiTable;

/// Replicas of a table in a datacenter that has as many nodes, as ScyllaDB chooses.
const REPLICAS: usize = 3;

/// The keyspaces of the API's own: records of transactions and of backups. A table of the API has a name of three characters or more, so
/// none has one of these.
const OWN_KEYSPACES: [&str; 2] = [TRANSACTIONS_KEYSPACE, BACKUPS_KEYSPACE];
pub(crate) const TRANSACTIONS_KEYSPACE: &str = "alternator_tx";
pub(crate) const BACKUPS_KEYSPACE: &str = "alternator_bk";

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

/// The rows of one shard's coordinator.
pub(crate) struct Store<'a, C> {
    pub(crate) executor: &'a Executor<C>,
    pub(crate) isolation: Isolation,
    pub(crate) metrics: &'a Metrics,
    /// The timeout of each operation on the cluster that the service level of the caller gives; none for the node's.
    pub(crate) timeout: Option<Duration>,
    /// Where the steps of the request are recorded, if it is traced.
    pub(crate) trace: Option<&'a TraceLog>,
    /// Injected bugs.
    pub(crate) canaries: Injected<Canaries>,
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

    /// When an operation on the cluster is over, whose timeout on this node is this.
    pub(crate) fn deadline(&self, timeout: Duration) -> Instant {
        self.executor.clock().now() + self.timeout.unwrap_or(timeout)
    }

    pub(crate) async fn read(&self, command: &ReadCommand, consistency: Consistency) -> Result<ReadPage> {
        let timeout = match command.partitions {
            replica::Partitions::Keys(_) => self.executor.limits().read_timeout,
            replica::Partitions::Range(_) => self.executor.limits().range_timeout,
        };
        let deadline = self.deadline(timeout);
        Ok(match self.traced() {
            None => self.executor.coordinator().read(command, consistency, deadline).await?,
            Some(coordinator) => Box::pin(coordinator.read(command, consistency, deadline)).await?,
        })
    }

    /// The coordinator of a traced request; none for that of all others.
    fn traced(&self) -> Option<C> {
        self.trace.map(|trace| self.executor.coordinator().traced(trace))
    }

    /// Hands the live row of a key to `visit` (none where there is none) where it lies in this shard's memory, when no other node is to be queried. None when
    /// [`Store::read`] is to be used.
    pub(crate) fn row_here<T>(
        &self,
        table: &ApiTable,
        (partition, row): (&DecoratedKey, &Clustering),
        (consistency, now): (Consistency, Seconds),
        visit: impl FnOnce(Option<&Row>) -> T,
    ) -> Option<T> {
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) || self.trace.is_some() {
            return None;
        }
        let slices = table.slices_of(std::iter::once(row));
        let (table, bypass_cache, values_only) = (&*table.table, false, false);
        let lookup = RowLookup { table, key: partition, slices: &slices, now, bypass_cache, values_only };
        let of_now = (consistency, self.executor.clock().now());
        self.executor.coordinator().row_here(&lookup, of_now, visit).map(|(seen, _)| seen)
    }

    /// The name of this node's datacenter.
    pub(crate) fn datacenter(&self) -> String {
        let view = self.executor.coordinator().view();
        view.datacenter_name(view.datacenter(view.own())).to_owned()
    }

    /// Whether rows of a table have replicas in more than one datacenter.
    pub(crate) fn spans_datacenters(&self, table: &Table) -> bool {
        let coordinator = self.executor.coordinator();
        match coordinator.schema().keyspace(&table.keyspace).map(|keyspace| &keyspace.replication) {
            Some(Replication::NetworkTopology { factors }) => {
                factors.values().filter(|copies| **copies > 0).count() > 1
            }
            _ => coordinator.view().datacenter_sizes().len() > 1,
        }
    }

    /// The level at which everything is read or written that was acknowledged in any datacenter.
    pub(crate) fn settled_consistency(&self, table: &Table) -> Consistency {
        if self.spans_datacenters(table) { Consistency::EachQuorum } else { Consistency::LocalQuorum }
    }

    /// The replicas that the keyspaces of the API's own lack ([`lacks_copies`]).
    pub(crate) fn own_keyspaces_lacking(&self) -> Vec<String> {
        let coordinator = self.executor.coordinator();
        let (schema, wanted) = (coordinator.schema(), replication(&coordinator.view()));
        let own = OWN_KEYSPACES.iter().filter_map(|name| schema.keyspace(name));
        own.filter_map(|keyspace| lacks_copies(keyspace, &wanted)).collect()
    }

    /// A table of the API's own in a keyspace of its own, of rows by the text `id` with columns of text; made when there is none.
    pub(crate) async fn own_table(&self, keyspace: &str, name: &str, columns: &[&str]) -> Result<Arc<Table>> {
        let find = |schema: &Schema| schema.table(keyspace, name).cloned();
        let coordinator = self.executor.coordinator();
        if let Some(table) = find(&coordinator.schema()) {
            return Ok(table);
        }
        let plan = |schema: &Schema, view: &ClusterView, id: [u8; 16]| {
            if find(schema).is_some() {
                return Ok(Vec::new());
            }
            let builder = TableBuilder::new(keyspace, name, TableId(id)).partition_key("id", CqlType::Text);
            let builder =
                columns.iter().fold(builder, |builder, column| builder.regular(*column, CqlType::Text));
            let table = builder.build().map_err(|error| ApiError::validation(error.to_string()))?;
            let keyspace = Keyspace::new(keyspace.to_owned(), replication(view));
            Ok::<_, ApiError>(vec![SchemaEdit::PutKeyspace(keyspace), SchemaEdit::PutTable(table)])
        };
        let made = self.executor.change_schema_by(None, plan).await;
        // Another node may have made it, or this one has without all nodes using it in time.
        match (find(&coordinator.schema()), made) {
            (Some(table), _) => Ok(table),
            (None, Err(error)) => Err(error),
            (None, Ok(())) => {
                Err(ApiError::new(ErrorKind::InternalServer, format!("The table of {name} is gone")))
            }
        }
    }

    /// Writes without agreement.
    pub(crate) async fn write(&self, updates: Vec<PartitionUpdate>) -> Result<()> {
        let options = WriteOptions {
            consistency: Consistency::LocalQuorum,
            kind: if updates.len() == 1 { WriteKind::Simple } else { WriteKind::UnloggedBatch },
            deadline: self.deadline(self.executor.limits().write_timeout),
        };
        Ok(match self.traced() {
            None => self.executor.coordinator().write(updates, options).await?,
            Some(coordinator) => Box::pin(coordinator.write(updates, options)).await?,
        })
    }

    /// A lightweight transaction on one partition. An error of `decide` is settled before it is returned: nothing that was not
    /// seen may come back later.
    pub(crate) async fn transact(
        &self,
        command: &ReadCommand,
        decide: &mut dyn FnMut(&ReadPage, Timestamp) -> Result<Option<PartitionUpdate>>,
    ) -> Result<()> {
        self.transact_at(command, Consistency::LocalSerial, decide).await
    }

    /// [`Store::transact`] with this agreement.
    pub(crate) async fn transact_at(
        &self,
        command: &ReadCommand,
        serial: Consistency,
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
        let deadline = self.deadline(limits.write_timeout);
        let options = CasOptions {
            serial,
            commit: Consistency::LocalQuorum,
            deadline,
            contention_deadline: deadline.min(now + limits.cas_contention_timeout),
        };
        match self.traced() {
            None => self.executor.coordinator().cas(command, options, &mut decided).await?,
            Some(coordinator) => Box::pin(coordinator.cas(command, options, &mut decided)).await?,
        };
        refusal.map_or(Ok(()), Err)
    }
}

/// The replicas that a keyspace of the API's own lacks: it has the replication of the cluster in which it was made, and copies are not raised by
/// themselves, as new replicas have none of the rows until a repair and a quorum of them would miss earlier decisions.
pub(crate) fn lacks_copies(keyspace: &Keyspace, wanted: &Replication) -> Option<String> {
    let factors = |replication: &Replication| match replication {
        Replication::NetworkTopology { factors } => factors.clone(),
        _ => BTreeMap::new(),
    };
    let has = factors(&keyspace.replication);
    let wanted = factors(wanted).into_iter().filter(|(name, copies)| has.get(name).unwrap_or(&0) < copies);
    let missing: Vec<String> = wanted.map(|(name, copies)| format!("'{name}': {copies}")).collect();
    (!missing.is_empty()).then(|| {
        format!(
            "keyspace {} has fewer replicas than this cluster could keep: raise them by ALTER KEYSPACE ({}), one replica at a time, with \
             a repair of the keyspace on every node after each",
            keyspace.name,
            missing.join(", ")
        )
    })
}

/// The replication of a keyspace of the API that is created now.
pub(crate) fn replication(view: &ClusterView) -> Replication {
    let sizes = view.datacenter_sizes();
    let factor = |nodes: usize| if nodes >= REPLICAS { REPLICAS as u32 } else { 1 };
    let factors = sizes.into_iter().map(|(name, nodes)| (name.to_owned(), factor(nodes)));
    Replication::NetworkTopology { factors: factors.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keyspace_of_a_smaller_cluster_lacks_copies() {
        let of = |factors: &[(&str, u32)]| Replication::NetworkTopology {
            factors: factors.iter().map(|(name, copies)| ((*name).to_owned(), *copies)).collect(),
        };
        let lacks = |has: &[(&str, u32)], wanted: &[(&str, u32)]| {
            lacks_copies(&Keyspace::new("alternator_tx".to_owned(), of(has)), &of(wanted))
        };
        assert_eq!(lacks(&[("dc1", 3)], &[("dc1", 3)]), None);
        assert_eq!(lacks(&[("dc1", 5)], &[("dc1", 3)]), None, "an operator may have chosen more");
        let more = lacks(&[("dc1", 1)], &[("dc1", 3), ("dc2", 1)]).expect("it lacks some");
        assert!(more.contains("alternator_tx") && more.contains("'dc1': 3, 'dc2': 1"), "{more}");
    }
}
