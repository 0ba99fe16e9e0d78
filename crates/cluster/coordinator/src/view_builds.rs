//! The rows that say which materialized views a node has built, and how far the others are: `system.built_views` and
//! `system.view_builds_in_progress`.

use std::sync::Arc;

use bytes::Bytes;
use mutation::row::ColumnData;
use mutation::{
    Cell, Clustering, DecoratedKey, DeletionTime, LivenessInfo, PartitionRange, PartitionUpdate, Row,
};
use replica::{Form, Origin, Partitions, Read, ReadCommand, Replica, ReplicaError, Write};
use rt::Rt;
use schema::{Schema, Table, TableId};
use stdx::HashMap;

/// How far a node is with building a materialized view, by Cassandra's names (`system_distributed.view_build_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewBuildStatus {
    /// Nothing is known: the node has not begun, does not know the view, or does not answer.
    Unknown,
    /// The build is under way.
    Started,
    /// The node has put all that it has of the base into the view.
    Success,
}

impl ViewBuildStatus {
    /// Its name, as Cassandra's `nodetool viewbuildstatus` prints it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Started => "STARTED",
            Self::Success => "SUCCESS",
        }
    }

    /// The number by which it is sent.
    pub(crate) fn number(self) -> i64 {
        match self {
            Self::Unknown => 0,
            Self::Started => 1,
            Self::Success => 2,
        }
    }

    /// The status of a number; none for others.
    pub(crate) fn of_number(number: i64) -> Option<Self> {
        [Self::Unknown, Self::Started, Self::Success].into_iter().find(|status| status.number() == number)
    }
}

/// The state of a build, as stored in its row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Partitions up to this token are in the view.
    pub(crate) last_token: Option<i64>,
    /// Base partitions that were read.
    pub(crate) keys_built: i64,
}

/// The content of the rows.
#[derive(Debug, Default)]
pub(crate) struct Builds {
    /// Views that are built.
    pub(crate) built: Vec<TableId>,
    /// Builds that have begun.
    pub(crate) begun: HashMap<TableId, Progress>,
    /// Rows of views that are gone.
    stale: Vec<PartitionUpdate>,
    /// The latest timestamp of a row.
    latest: i64,
}

impl Builds {
    /// How far the build of a view is.
    pub(crate) fn status(&self, view: TableId) -> ViewBuildStatus {
        match (self.built.contains(&view), self.begun.contains_key(&view)) {
            (true, _) => ViewBuildStatus::Success,
            (false, true) => ViewBuildStatus::Started,
            (false, false) => ViewBuildStatus::Unknown,
        }
    }
}

/// The two tables of a node.
pub(crate) struct BuildRows<'a> {
    rt: &'a Rt,
    replica: &'a Replica,
    schema: &'a Arc<Schema>,
}

impl<'a> BuildRows<'a> {
    pub(crate) fn new(rt: &'a Rt, replica: &'a Replica, schema: &'a Arc<Schema>) -> Self {
        Self { rt, replica, schema }
    }

    fn tables(&self) -> Option<(&'a Arc<Table>, &'a Arc<Table>)> {
        let table = |name| self.schema.table("system", name);
        Some((table("built_views")?, table("view_builds_in_progress")?))
    }

    /// Reads both tables.
    pub(crate) async fn read(&self) -> Result<Builds, ReplicaError> {
        let mut builds = Builds { latest: i64::MIN, ..Builds::default() };
        let Some((built, begun)) = self.tables() else { return Ok(builds) };
        for table in [built, begun] {
            let all = Partitions::Range(PartitionRange::all());
            let command = ReadCommand {
                form: Form::Full,
                bypass_cache: true,
                ..ReadCommand::all_of(table.clone(), all, self.seconds())
            };
            let page = self.replica.read(Read::of(&command).over_all_tombstones()).await?;
            for partition in &page.partitions {
                for row in &partition.rows {
                    builds.latest = builds.latest.max(row.liveness.timestamp).max(row.deletion.timestamp);
                    if row.is_live(self.seconds()) {
                        self.add(table, &partition.key, row, &mut builds);
                    }
                }
            }
        }
        Ok(builds)
    }

    fn add(&self, table: &Arc<Table>, key: &DecoratedKey, row: &Row, builds: &mut Builds) {
        let cell = |name: &str| table.column(name).and_then(|column| row.cell(column.id));
        let view = cell("view_id").and_then(|cell| <[u8; 16]>::try_from(&*cell.value).ok()).map(TableId);
        let Some(view) = view.filter(|view| self.schema.table_by_id(*view).is_some()) else {
            let mut removal = PartitionUpdate::new(table.clone(), key.clone());
            removal.add_row(self.removal_of(row.clustering.clone(), builds));
            builds.stale.push(removal);
            return;
        };
        if table.name == "built_views" {
            builds.built.push(view);
            return;
        }
        let last_token =
            cell("last_token").and_then(|cell| std::str::from_utf8(&cell.value).ok()?.parse().ok());
        let keys_built = cell("keys_built").and_then(|cell| <[u8; 8]>::try_from(&*cell.value).ok());
        let progress = Progress { last_token, keys_built: keys_built.map_or(0, i64::from_be_bytes) };
        builds.begun.insert(view, progress);
    }

    /// Removes the rows of views that are gone.
    pub(crate) async fn forget_stale(&self, builds: &mut Builds) -> Result<(), ReplicaError> {
        for removal in std::mem::take(&mut builds.stale) {
            self.replica.apply(Write::one(Origin::System, removal)).await?;
        }
        Ok(())
    }

    /// Notes how far a build is.
    pub(crate) async fn note_progress(
        &self,
        view: &Table,
        builds: &Builds,
        progress: Progress,
    ) -> Result<(), ReplicaError> {
        let Some((_, begun)) = self.tables() else { return Ok(()) };
        let mut cells = vec![("keys_built", progress.keys_built.to_be_bytes().to_vec())];
        cells.extend(progress.last_token.map(|token| ("last_token", token.to_string().into_bytes())));
        let row = self.row_of(begun, view, cells, builds);
        self.replica.apply(Write::one(Origin::System, row)).await
    }

    /// Notes that a view is built.
    pub(crate) async fn note_built(&self, view: &Table, builds: &Builds) -> Result<(), ReplicaError> {
        let Some((built, begun)) = self.tables() else { return Ok(()) };
        let row = self.row_of(built, view, Vec::new(), builds);
        self.replica.apply(Write::one(Origin::System, row).synced()).await?;
        self.replica.apply(Write::one(Origin::System, self.removal(begun, view, builds))).await
    }

    /// Notes that a view is to be built from the beginning.
    pub(crate) async fn note_unbuilt(&self, view: &Table, builds: &Builds) -> Result<(), ReplicaError> {
        let Some((built, begun)) = self.tables() else { return Ok(()) };
        for table in [begun, built] {
            let removal = self.removal(table, view, builds);
            self.replica.apply(Write::one(Origin::System, removal).synced()).await?;
        }
        Ok(())
    }

    fn seconds(&self) -> u32 {
        u32::try_from(self.rt.wall_micros() / 1_000_000).unwrap_or(0)
    }

    /// A timestamp behind those of all rows, wherever the wall clock stands.
    fn now(&self, builds: &Builds) -> i64 {
        self.rt.wall_micros().max(builds.latest.saturating_add(1))
    }

    fn key_of(table: &Table, view: &Table) -> (DecoratedKey, Clustering) {
        // The tokens of a row of progress: a build goes over the whole ring.
        let (start, end) = (i64::MIN.to_string(), i64::MAX.to_string());
        let all = [view.name.as_bytes(), start.as_bytes(), end.as_bytes()];
        let components: Vec<Option<&[u8]>> =
            all.iter().take(table.clustering().len()).map(|component| Some(*component)).collect();
        let key = DecoratedKey::new(Bytes::copy_from_slice(view.keyspace.as_bytes()));
        (key, Clustering::new(table, &components))
    }

    fn row_of(
        &self,
        table: &Arc<Table>,
        view: &Table,
        mut cells: Vec<(&str, Vec<u8>)>,
        builds: &Builds,
    ) -> PartitionUpdate {
        let (key, clustering) = Self::key_of(table, view);
        let at_micros = self.now(builds);
        let mut row = Row::new(clustering);
        row.liveness = LivenessInfo::forever(at_micros);
        cells.push(("view_id", view.id.0.to_vec()));
        for (name, value) in cells {
            if let Some(column) = table.column(name) {
                row.set(column.id, ColumnData::Simple(Cell::live(at_micros, value.into())));
            }
        }
        let mut update = PartitionUpdate::new(table.clone(), key);
        update.add_row(row);
        update
    }

    fn removal_of(&self, clustering: Clustering, builds: &Builds) -> Row {
        let mut row = Row::new(clustering);
        row.deletion = DeletionTime::new(self.now(builds), self.seconds());
        row
    }

    fn removal(&self, table: &Arc<Table>, view: &Table, builds: &Builds) -> PartitionUpdate {
        let (key, clustering) = Self::key_of(table, view);
        let mut update = PartitionUpdate::new(table.clone(), key);
        update.add_row(self.removal_of(clustering, builds));
        update
    }
}
