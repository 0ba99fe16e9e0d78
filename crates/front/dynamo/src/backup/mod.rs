//! Backups: a snapshot of a table on each node, and one record of them all; and tables that are restored from them (docs/design/dynamo.md,
//! *Backups*). Each node carries out its own part, and goes by records and the schema alone: a crash of anybody delays a backup.

pub(crate) mod parts;
pub(crate) mod record;
mod restoration;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use coordinator::ClusterView;
use exec::backend::Coordinator;
pub use mutation::PartitionUpdate;
use schema::{Replication, Table, TableId};

use crate::error::{ApiError, Result};
use crate::store::Store;
use crate::table::{self, ApiTable, keyspace_name};
use parts::{NodePart, Outcome, Part, Parts, Standing};
use record::{Backup, Change, Status};

/// Backups of a cluster; each node reads their records again and again.
pub(crate) const BACKUPS_MAX: usize = 1000;

/// A future of this shard.
pub type SnapshotFuture<'a, T> = Pin<Box<dyn Future<Output = std::result::Result<T, SnapshotError>> + 'a>>;

/// Why a snapshot could not be made or read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotError {
    /// The snapshot is damaged or not there; it stays so.
    Lost(String),
    /// It may be possible later.
    Failed(String),
}

/// A snapshot of a table on this node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotPlace {
    /// The table's keyspace.
    pub keyspace: String,
    /// The table, which need not be there any more.
    pub table: String,
    /// Its id.
    pub id: TableId,
    /// Name of the snapshot.
    pub snapshot: String,
}

/// The snapshots of this node.
pub trait SnapshotStore {
    /// Makes a snapshot of all shards, in the place of one of that name; bytes of its files, 0 when the table is empty here.
    fn take<'a>(&'a self, place: &'a SnapshotPlace) -> SnapshotFuture<'a, u64>;

    /// Removes a snapshot, if it is there.
    fn remove<'a>(&'a self, place: &'a SnapshotPlace) -> SnapshotFuture<'a, ()>;

    /// The rows of a snapshot whose files had so many bytes, as rows of another table with the same columns.
    fn rows<'a>(
        &'a self,
        place: &'a SnapshotPlace,
        bytes: u64,
        table: Arc<Table>,
    ) -> SnapshotFuture<'a, Box<dyn SnapshotRows>>;
}

/// The rows of a snapshot.
pub trait SnapshotRows {
    /// The next of them, with their timestamps and deletions; none behind the last.
    fn next(&mut self) -> SnapshotFuture<'_, Option<PartitionUpdate>>;
}

/// The node that carries out parts.
pub(crate) struct Worker {
    pub(crate) snapshots: Rc<dyn SnapshotStore>,
    /// Its id, as records have it.
    pub(crate) own: String,
    /// The snapshots that were made, and bytes of their files: whether they are recorded may be uncertain.
    pub(crate) taken: RefCell<BTreeMap<String, u64>>,
}

/// The place of a node's part of a backup.
fn place(backup: &Backup) -> SnapshotPlace {
    SnapshotPlace {
        keyspace: keyspace_name(&backup.table),
        table: backup.table.clone(),
        id: backup.table_id,
        snapshot: format!("dynamodb-{}", backup.id),
    }
}

/// A node by the name that records have of it.
pub(crate) fn standing(view: &ClusterView, host: &str) -> Standing {
    match view.members().iter().find(|node| node.host.to_string() == host) {
        Some(node) if view.is_alive_host(node.host) => Standing::Alive,
        Some(_) => Standing::Down,
        None => Standing::Departed,
    }
}

/// The parts of a new backup of a table with this replication.
pub(crate) fn new_parts(replication: &Replication, view: &ClusterView) -> Parts {
    // Where datacenters do not count, all nodes are of one.
    let factors = match replication {
        Replication::NetworkTopology { factors } => factors.clone(),
        Replication::Simple { factor } => [(String::new(), *factor)].into(),
        Replication::Local | Replication::Everywhere => [(String::new(), 1)].into(),
    };
    let by_datacenter = matches!(replication, Replication::NetworkTopology { .. });
    let nodes = view.members().iter().map(|node| {
        let datacenter = if by_datacenter { node.location.datacenter.to_string() } else { String::new() };
        (node.host.to_string(), NodePart { datacenter, part: Part::Pending })
    });
    Parts { nodes: nodes.collect(), factors }
}

/// Whether a table is being restored from a backup.
pub(crate) fn restores(schema: &schema::Schema, id: &str) -> bool {
    table::all(schema)
        .filter(ApiTable::is_restoring)
        .any(|table| table.details().restore.is_some_and(|restore| restore.backup == id))
}

impl<C: Coordinator> Store<'_, C> {
    /// Microseconds since a time in microseconds since 1970.
    pub(crate) fn age(&self, since_micros: i64) -> i64 {
        self.executor.clock().wall_micros().saturating_sub(since_micros)
    }

    /// Carries out this node's part of backups; how many there were. One that fails does not keep the others.
    pub(crate) async fn back_up(&self, worker: &Worker) -> Result<u64> {
        let (mut count, mut failed) = (0, None);
        let all = self.backups().await?;
        worker.taken.borrow_mut().retain(|id, _| all.iter().any(|backup| backup.id == *id));
        for backup in all {
            match self.do_part(worker, &backup).await {
                Ok(is_done) => count += u64::from(is_done),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(count), Err)
    }

    /// Does this node's part of a backup, and decides on the backup when all parts are done.
    async fn do_part(&self, worker: &Worker, backup: &Backup) -> Result<bool> {
        let own = &worker.own;
        let part = backup.parts.nodes.get(own).map(|node| node.part);
        let done = match (backup.status, part) {
            (Status::Creating, Some(Part::Pending)) => Some(self.take(worker, backup).await),
            (Status::Deleting, Some(Part::Pending | Part::Done(_)))
            | (Status::Available, Some(Part::Pending)) => {
                // Of an available backup, a part that came too late.
                match worker.snapshots.remove(&place(backup)).await {
                    Ok(()) => Some(Part::Gone),
                    Err(error) => {
                        tracing::warn!("the snapshot of {} is not removed yet: {error:?}", backup.arn());
                        None
                    }
                }
            }
            _ => None,
        };
        let (schema, view) = (self.executor.coordinator().schema(), self.executor.coordinator().view());
        let age = self.age(backup.created);
        let is_over =
            backup.expires().is_some_and(|expires| self.age(expires) >= 0) && !restores(&schema, &backup.id);
        let step =
            |found: &Backup| next(found, own, (part, done), (age, is_over), |host| standing(&view, host));
        if step(backup) == Change::Keep {
            return Ok(false);
        }
        self.change_backup(&backup.id, |found| Ok(step(found))).await?;
        Ok(true)
    }

    /// Makes this node's snapshot; one that was made and may be recorded already stays as it is.
    async fn take(&self, worker: &Worker, backup: &Backup) -> Part {
        let taken = worker.taken.borrow().get(&backup.id).copied();
        if let Some(bytes) = taken {
            return Part::Done(bytes);
        }
        let place = place(backup);
        let made = match self.is_current(backup) {
            true => worker.snapshots.take(&place).await,
            false => Err(SnapshotError::Lost("the table or the topology has changed".to_owned())),
        };
        match made {
            // Ranges may have left this node while it was made.
            Ok(bytes) if self.is_current(backup) => {
                worker.taken.borrow_mut().insert(backup.id.clone(), bytes);
                return Part::Done(bytes);
            }
            made => {
                tracing::warn!("this node has no snapshot of the backup {}: {:?}", backup.arn(), made.err());
            }
        }
        if let Err(error) = worker.snapshots.remove(&place).await {
            tracing::warn!("a part of the snapshot of {} stays: {error:?}", backup.arn());
        }
        Part::Gone
    }

    /// Whether the table and the topology are those that a backup was begun with.
    fn is_current(&self, backup: &Backup) -> bool {
        let coordinator = self.executor.coordinator();
        let view = coordinator.view();
        coordinator.schema().table_by_id(backup.table_id).is_some()
            && view.topology_version() == backup.topology
            && !view.is_changing()
    }
}

/// The next state of a backup, by the node `own` whose part was `before` and is `done` now; `is_over` when it is not kept any longer. Pure.
fn next(
    found: &Backup,
    own: &str,
    (before, done): (Option<Part>, Option<Part>),
    (age_micros, is_over): (i64, bool),
    standing: impl Fn(&str) -> Standing,
) -> Change {
    let mut backup = found.clone();
    if let (Some(done), Some(node)) = (done, backup.parts.nodes.get_mut(own))
        // A snapshot of a backup that was decided on meanwhile stays pending, and is removed by the next look.
        && Some(node.part) == before
        && !(backup.status != Status::Creating && matches!(done, Part::Done(_)))
    {
        node.part = done;
    }
    match backup.status {
        Status::Creating => match backup.parts.outcome_of_backup(age_micros, standing) {
            Outcome::Wait => {}
            Outcome::Complete => backup.status = Status::Available,
            Outcome::Failed => {
                tracing::error!(
                    "the backup {} could not be made: too few nodes have a snapshot",
                    backup.arn()
                );
                backup.status = Status::Deleting;
            }
        },
        Status::Available if is_over => backup.status = Status::Deleting,
        Status::Available => {}
        Status::Deleting => {
            let is_left = |(host, node): (&String, &NodePart)| {
                node.part != Part::Gone && standing(host) != Standing::Departed
            };
            if !backup.parts.nodes.iter().any(is_left) {
                return Change::Remove;
            }
        }
    }
    if backup == *found { Change::Keep } else { Change::Put(backup) }
}

/// A table of the API by its id, also while it is being restored.
pub(crate) fn table_by_id(schema: &schema::Schema, id: TableId) -> Result<ApiTable> {
    schema
        .table_by_id(id)
        .and_then(ApiTable::of)
        .ok_or_else(|| ApiError::new(crate::error::ErrorKind::ResourceNotFound, "The table is gone"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backup(status: Status, parts: &[(&str, Part)]) -> Backup {
        let node = |(host, part): &(&str, Part)| {
            ((*host).to_owned(), NodePart { datacenter: "dc".to_owned(), part: *part })
        };
        Backup {
            id: "1".to_owned(),
            status,
            name: "n".to_owned(),
            is_system: false,
            table: "abc".to_owned(),
            table_id: TableId([1; 16]),
            created: 0,
            topology: 1,
            parts: Parts { nodes: parts.iter().map(node).collect(), factors: [("dc".to_owned(), 1)].into() },
        }
    }

    /// The status and parts after node `a` has done its part.
    fn after(found: &Backup, own: (Option<Part>, Option<Part>)) -> String {
        after_all(found, own, false)
    }

    fn after_all(found: &Backup, own: (Option<Part>, Option<Part>), is_over: bool) -> String {
        match next(found, "a", own, (0, is_over), |_| Standing::Alive) {
            Change::Keep => "keep".to_owned(),
            Change::Remove => "remove".to_owned(),
            Change::Put(backup) => {
                let parts: Vec<_> =
                    backup.parts.nodes.values().map(|node| format!("{:?}", node.part)).collect();
                format!("{:?} {}", backup.status, parts.join(" "))
            }
        }
    }

    #[test]
    fn a_backup_goes_from_state_to_state() {
        use Part::{Done, Gone, Pending};
        let creating = |b| backup(Status::Creating, &[("a", Pending), ("b", b)]);
        let made = (Some(Pending), Some(Done(5)));
        assert_eq!(after(&creating(Pending), made), "Creating Done(5) Pending");
        assert_eq!(after(&creating(Done(1)), made), "Available Done(5) Done(1)");
        assert_eq!(after(&creating(Gone), made), "Deleting Done(5) Gone");
        assert_eq!(after(&creating(Done(1)), (Some(Pending), Some(Gone))), "Deleting Gone Done(1)");
        assert_eq!(after(&creating(Pending), (Some(Pending), None)), "keep");

        let available = backup(Status::Available, &[("a", Pending), ("b", Done(1))]);
        assert_eq!(after(&available, made), "keep", "its snapshot came too late");
        assert_eq!(after(&available, (Some(Pending), Some(Gone))), "Available Gone Done(1)");

        let whole = backup(Status::Available, &[("a", Done(5)), ("b", Done(1))]);
        assert_eq!(after_all(&whole, (Some(Done(5)), None), false), "keep");
        assert_eq!(after_all(&whole, (Some(Done(5)), None), true), "Deleting Done(5) Done(1)");

        let deleting = |b| backup(Status::Deleting, &[("a", Done(5)), ("b", b)]);
        assert_eq!(after(&deleting(Done(1)), (Some(Done(5)), Some(Gone))), "Deleting Gone Done(1)");
        assert_eq!(after(&deleting(Gone), (Some(Done(5)), Some(Gone))), "remove");
        assert_eq!(after(&deleting(Gone), (Some(Done(5)), None)), "keep", "it could not be removed yet");
        let raced = backup(Status::Deleting, &[("a", Pending), ("b", Gone)]);
        assert_eq!(after(&raced, made), "keep", "it was deleted while the snapshot was made");
    }
}
