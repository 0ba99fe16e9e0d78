//! The rows that say which materialized views a node has built, and how far the others are: `system.built_views` and
//! `system.view_builds_in_progress`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mutation::row::ColumnData;
use mutation::{
    Cell, Clustering, DecoratedKey, DeletionTime, LivenessInfo, PartitionRange, PartitionUpdate, Row,
};
use replica::{Form, Origin, Partitions, Read, ReadCommand, Replica, ReplicaError, Write};
use rt::Rt;
use schema::{Schema, Table, TableId};
use stdx::{HashMap, Reader};

/// How far a node is with building a materialized view, by Cassandra's names (`system_distributed.view_build_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewBuildStatus {
    /// Nothing is known: the node has not begun, does not know the view, or does not answer.
    Unknown,
    /// The build is under way; how far, where its row says.
    Started(Option<BuildProgress>),
    /// The node has put all that it has of the base into the view.
    Success,
}

impl ViewBuildStatus {
    /// Its name, as Cassandra's `nodetool viewbuildstatus` prints it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Started(_) => "STARTED",
            Self::Success => "SUCCESS",
        }
    }

    /// Its encoding: a number, behind which a build under way has its progress. Nodes before 2026-11-29 send and read the number alone.
    pub(crate) fn encode(self) -> Bytes {
        let number: i64 = match self {
            Self::Unknown => 0,
            Self::Started(_) => 1,
            Self::Success => 2,
        };
        let mut numbers = vec![number];
        if let Self::Started(Some(progress)) = self {
            numbers.extend([i64::from(progress.permille), progress.seconds_left.map_or(-1, i64::from)]);
        }
        numbers.into_iter().flat_map(i64::to_be_bytes).collect()
    }

    /// Reads the encoding; none of other bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        match reader.i64().ok()? {
            0 => Some(Self::Unknown),
            1 if reader.is_empty() => Some(Self::Started(None)),
            1 => {
                let permille =
                    u16::try_from(reader.i64().ok()?).ok().filter(|permille| *permille <= 1_000)?;
                let seconds_left = u32::try_from(reader.i64().ok()?).ok();
                Some(Self::Started(Some(BuildProgress { permille, seconds_left })))
            }
            2 => Some(Self::Success),
            _ => None,
        }
    }
}

/// How far a build is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildProgress {
    /// Of a thousand tokens of the ring so many are behind it.
    pub permille: u16,
    /// The seconds that the rest takes at the speed since the node has started; none until there is one.
    pub seconds_left: Option<u32>,
}

impl BuildProgress {
    /// Of a build that has put the partitions up to a token into the view, and had those up to `from` so long ago.
    pub(crate) fn new(last_token: Option<i64>, since: Option<(Option<i64>, Duration)>) -> Self {
        let share = share_of_ring(last_token);
        let seconds_left = since.and_then(|(from, elapsed)| {
            let done = share - share_of_ring(from);
            // A float that is too large becomes the largest number.
            (done > 0.0).then(|| (elapsed.as_secs_f64() * (1.0 - share) / done).ceil() as u32)
        });
        Self { permille: (share * 1_000.0) as u16, seconds_left }
    }
}

impl fmt::Display for BuildProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}% of the ring", self.permille / 10, self.permille % 10)?;
        self.seconds_left.map_or(Ok(()), |seconds| write!(f, ", about {seconds} s left"))
    }
}

/// Which part of all tokens is up to one.
fn share_of_ring(token: Option<i64>) -> f64 {
    token.map_or(0.0, |token| (token as f64 - i64::MIN as f64) / (u64::MAX as f64))
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
    /// How far the build of a view is, which had put the partitions up to a token into the view so long ago.
    pub(crate) fn status(&self, view: TableId, since: Option<(Option<i64>, Duration)>) -> ViewBuildStatus {
        match (self.built.contains(&view), self.begun.get(&view)) {
            (true, _) => ViewBuildStatus::Success,
            (false, Some(progress)) => {
                ViewBuildStatus::Started(Some(BuildProgress::new(progress.last_token, since)))
            }
            (false, None) => ViewBuildStatus::Unknown,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_as_the_part_that_is_done() {
        let minute = Duration::from_secs(60);
        for (last_token, since, shown) in [
            (None, None, "0.0% of the ring"),
            (None, Some((None, minute)), "0.0% of the ring"),
            (Some(0), None, "50.0% of the ring"),
            (Some(0), Some((None, minute)), "50.0% of the ring, about 60 s left"),
            (Some(i64::MAX / 2), Some((Some(0), minute)), "75.0% of the ring, about 60 s left"),
            (Some(i64::MIN + (1 << 20)), Some((None, minute)), "0.0% of the ring, about 4294967295 s left"),
            (Some(i64::MAX), Some((None, minute)), "100.0% of the ring, about 0 s left"),
        ] {
            assert_eq!(BuildProgress::new(last_token, since).to_string(), shown);
        }
    }

    #[test]
    fn statuses_are_sent_with_their_progress() {
        let progress = |seconds_left| Some(BuildProgress { permille: 421, seconds_left });
        for status in [
            ViewBuildStatus::Unknown,
            ViewBuildStatus::Success,
            ViewBuildStatus::Started(None),
            ViewBuildStatus::Started(progress(None)),
            ViewBuildStatus::Started(progress(Some(7))),
        ] {
            let encoded = status.encode();
            assert_eq!(ViewBuildStatus::decode(&encoded), Some(status));
            for end in 0..8 {
                assert_eq!(ViewBuildStatus::decode(&encoded[..end]), None, "{status:?} up to {end}");
            }
        }
        let of = |numbers: &[i64]| {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
            ViewBuildStatus::decode(&bytes)
        };
        assert_eq!([of(&[3]), of(&[1, 1_001, 1]), of(&[1, 5])], [None; 3]);
    }
}
