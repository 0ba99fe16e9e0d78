//! A cluster in memory: tables as ordered maps, a schema that changes at once, and a clock that ticks when it is read.

use std::cell::{Cell as StdCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use cdc::Log;
use cluster::SchemaEdit;
use cluster::state::{Command, CommandId, Proposal};
use coordinator::{
    CAS_APART_MICROS, CasOptions, CasOutcome, ClusterView, ComputedRows, Consistency, RangePart,
    ReplicaFailure, RequestError, SchemaChangeError, ViewNode, WriteOptions, read_computed,
};
use exec::ExecError;
use exec::backend::{Clock, Coordinator, Decide};
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use mutation::row::ColumnData;
use mutation::{
    Cell, Clustering, Complex, DecoratedKey, Fragment, LivenessInfo, PartitionRange, PartitionUpdate,
    RingPosition, Row, counter,
};
use replica::page::{PageBuilder, Progress};
use replica::{
    Candidate, Candidates, FragmentPlace, FragmentsPage, FragmentsRead, IndexDefinition, IndexQuery, Keys,
    NearestQuery, NearestTo, OrderedPlaces, OrderedScan, Partitions, Place, Predicate, ReadCommand, ReadPage,
    RowLookup, Similarity, TableSize, TraceLog,
};
use rt::Instant;
use schema::{CdcGeneration, ColumnKind, IndexedPart, Schema, Table, TableId};
use topology::{HostId, Location};
use types::CqlType;
use views::View;

/// Seconds at which the clock starts.
pub const START_SECONDS: i64 = 1_700_000_000;

/// A clock whose every look at the wall is a millisecond later.
#[derive(Default)]
pub struct TestClock {
    ticks: StdCell<i64>,
}

impl Clock for TestClock {
    fn wall_micros(&self) -> i64 {
        self.ticks.set(self.ticks.get() + 1);
        START_SECONDS * 1_000_000 + self.ticks.get()
    }

    fn now(&self) -> Instant {
        Instant::START
    }

    fn random(&self) -> [u8; 16] {
        self.ticks.set(self.ticks.get() + 1);
        (self.ticks.get() as u128).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835).to_be_bytes()
    }
}

/// The edits as the nodes read them from the cluster's log.
///
/// # Panics
/// When they are not those that were written.
fn through_the_log(base: [u8; 16], edits: Vec<SchemaEdit>) -> Vec<SchemaEdit> {
    let command = Command::SchemaChange { base, edits };
    let bytes = Proposal { id: CommandId([7; 16]), command: command.clone() }.encode();
    let read = Proposal::decode(&bytes).expect("nodes can read what was proposed");
    assert_eq!(read.encode(), bytes, "a change is another one behind the log");
    let (Command::SchemaChange { edits, .. }, Command::SchemaChange { edits: written, .. }) =
        (read.command, command)
    else {
        panic!("a change of the schema is another command behind the log");
    };
    for (read, written) in edits.iter().zip(&written) {
        if let (SchemaEdit::PutTable(read), SchemaEdit::PutTable(written)) = (read, written) {
            assert_eq!(read.options, written.options, "options are others behind the log");
        }
    }
    edits
}

type Partitioned = BTreeMap<DecoratedKey, PartitionUpdate>;

/// The cluster; clones share it.
#[derive(Clone)]
pub struct Memory {
    view: Arc<ClusterView>,
    schema: Rc<RefCell<Arc<Schema>>>,
    tables: Rc<RefCell<BTreeMap<TableId, Partitioned>>>,
    versions: Rc<StdCell<u64>>,
    /// The deadline of the last operation.
    deadline: Rc<StdCell<Option<Instant>>>,
    /// Whether the next write of one partition waits.
    waits: Rc<StdCell<bool>>,
    /// Whether each write waits, and so has a deadline.
    pub shows_deadlines: Rc<StdCell<bool>>,
    /// Live nodes that do not use a schema in time.
    behind: u32,
    /// Reads of places.
    index_reads: Rc<StdCell<u64>>,
    /// Whether indexes are not built yet.
    pub indexes_building: Rc<StdCell<bool>>,
    /// So many more reads of an index succeed; it is unavailable then.
    pub index_reads_left: Rc<StdCell<u64>>,
    /// A write of another client that comes just before the next conditional one.
    pub between: Rc<RefCell<Option<PartitionUpdate>>>,
    /// Bytes that each row counts for in the size of its table.
    pub row_bytes: Rc<StdCell<u64>>,
    /// Whether the row cache has all partitions, too, as a source of fragments.
    pub is_cached: Rc<StdCell<bool>>,
    /// Whether reads let others go first.
    pub slow_reads: Rc<StdCell<bool>>,
    /// Works on the parts in which aggregations are divided; none where they are not.
    pub part_worker: Rc<RefCell<Option<PartWorker>>>,
}

/// Does a part of an aggregation in the place of another shard.
pub type PartWorker = Rc<dyn Fn(Bytes) -> LocalBoxFuture<'static, Result<Bytes, String>>>;

impl Memory {
    /// A node alone.
    pub fn new() -> Self {
        Self::with_nodes(&["datacenter1"])
    }

    /// A cluster with a node in each of these datacenters; the first is this one.
    pub fn with_nodes(datacenters: &[&str]) -> Self {
        let node = |(at, datacenter): (usize, &&str)| ViewNode {
            host: HostId([at as u8 + 1; 16]),
            native: ([127, 0, 0, at as u8 + 1], 9042).into(),
            internode: ([127, 0, 0, at as u8 + 1], 7000).into(),
            location: Location::new(*datacenter, "rack1"),
            shards: 1,
            tokens: vec![at as i64 * 10 - 5],
            alive: true,
            phase: coordinator::Phase::Normal,
            ready: true,
            release_version: "5.0.6".to_owned(),
            schema_version: None,
        };
        let nodes = datacenters.iter().enumerate().map(node).collect();
        let view = Arc::new(ClusterView::new(HostId([1; 16]), nodes).unwrap());
        let mut schema = cluster::own_schema();
        for keyspace in catalog::computed_keyspaces() {
            schema = schema.with_keyspace(keyspace);
        }
        Self {
            view,
            schema: Rc::new(RefCell::new(Arc::new(schema))),
            tables: Rc::default(),
            versions: Rc::default(),
            deadline: Rc::default(),
            waits: Rc::default(),
            shows_deadlines: Rc::default(),
            behind: 0,
            index_reads: Rc::default(),
            indexes_building: Rc::default(),
            index_reads_left: Rc::new(StdCell::new(u64::MAX)),
            between: Rc::default(),
            row_bytes: Rc::new(StdCell::new(100)),
            is_cached: Rc::default(),
            slow_reads: Rc::default(),
            part_worker: Rc::default(),
        }
    }

    /// The same where so many live nodes do not use a new schema in time.
    pub fn with_behind(self, behind: u32) -> Self {
        Self { behind, ..self }
    }

    /// The same cluster as its second node sees it.
    // For the tests of crate `dynamo`, which have this file too.
    #[allow(dead_code)]
    pub fn on_the_other_node(&self) -> Self {
        let view = ClusterView::new(HostId([2; 16]), self.view.nodes().to_vec()).expect("a view");
        Self { view: Arc::new(view), ..self.clone() }
    }

    /// The same cluster where its second node is down.
    // For the tests of crate `dynamo`, which have this file too.
    #[allow(dead_code)]
    pub fn alone(&self) -> Self {
        let mut nodes = self.view.nodes().to_vec();
        nodes[1].alive = false;
        let view = ClusterView::new(HostId([1; 16]), nodes).expect("a view");
        Self { view: Arc::new(view), ..self.clone() }
    }

    /// A timestamp behind those of all conditional writes of before, microseconds since 1970.
    // For the tests of crate `dynamo`, which have this file too.
    #[allow(dead_code)]
    pub fn behind_ballots(&self) -> i64 {
        self.last_ballot() + 1
    }

    /// The time of the last conditional write.
    fn last_ballot(&self) -> i64 {
        let drawn = i64::try_from(self.versions.get()).unwrap() * CAS_APART_MICROS;
        (START_SECONDS + 1) * 1_000_000 + drawn
    }

    /// Reads of places since this was asked.
    pub fn index_reads(&self) -> u64 {
        self.index_reads.take()
    }

    /// The deadline of the last operation since this was asked; none when there was no operation.
    pub fn last_deadline(&self) -> Option<Instant> {
        self.deadline.take()
    }

    fn put(&self, update: PartitionUpdate) {
        self.derive(&update).into_iter().for_each(|update| self.put(update));
        self.log_changes(&update).into_iter().for_each(|update| self.put(update));
        let mut tables = self.tables.borrow_mut();
        let table = tables.entry(update.table.id).or_default();
        match table.get_mut(&update.key) {
            Some(held) => held.merge(update),
            None => {
                let mut fresh = PartitionUpdate::new(update.table.clone(), update.key.clone());
                let key = update.key.clone();
                fresh.merge(update);
                table.insert(key, fresh);
            }
        }
    }

    /// The changes of logs that follow from an update of their base.
    fn log_changes(&self, update: &PartitionUpdate) -> Vec<PartitionUpdate> {
        let (schema, tables) = (self.schema.borrow(), self.tables.borrow());
        let log = schema.cdc_log_of(&update.table).filter(|_| update.table.options.cdc.enabled);
        let Some(log) = log else { return Vec::new() };
        let log = Log::new(&update.table, log.clone()).expect("a log fits its base");
        let held = tables.get(&update.table.id).and_then(|table| table.get(&update.key));
        let generations = schema.cdc_generations();
        log.changes(
            held,
            update,
            &mut |timestamp| {
                let begun =
                    generations.iter().rev().find(|generation| generation.start_micros() <= timestamp);
                let generation = begun.or(generations.first()).expect("a log comes with a generation");
                cdc::stream_of(generation, update.key.token)
            },
            cdc::Naming::Canonical,
        )
    }

    /// Has streams of logs follow another ring from a time on.
    // For the tests of crate `dynamo`, which have this file too.
    #[allow(dead_code)]
    pub fn renew_generation(&self, generation: CdcGeneration) {
        let schema = Schema::clone(&self.schema.borrow()).with_cdc_generation(generation);
        *self.schema.borrow_mut() = Arc::new(schema);
    }

    /// The changes of views that follow from an update of their base.
    fn derive(&self, update: &PartitionUpdate) -> Vec<PartitionUpdate> {
        let (schema, tables) = (self.schema.borrow(), self.tables.borrow());
        let Some(home) = schema.keyspace(&update.table.keyspace) else { return Vec::new() };
        let held = tables.get(&update.table.id).and_then(|table| table.get(&update.key)).cloned();
        let held = held.unwrap_or_else(|| PartitionUpdate::new(update.table.clone(), update.key.clone()));
        let of_view = |table: &Arc<Table>| {
            let view = View::new(&update.table, table.clone()).expect("views fit their base");
            view.changes(&held, update, START_SECONDS as u32)
        };
        home.views_of(update.table.id).flat_map(of_view).collect()
    }

    /// The fragments of a partition that a command asks for, in its order, without rows hidden by deletions.
    fn fragments(command: &ReadCommand, partition: &PartitionUpdate) -> Vec<Fragment> {
        let slices = match &command.resume {
            Some(resume) if resume.key == partition.key => match &resume.clustering {
                Some(last) => command.slices.after(last, command.reversed),
                None => return Vec::new(),
            },
            _ => command.slices.clone(),
        };
        let keep = |row: &Row| {
            let mut row = row.clone();
            row.retain(|id, _| command.table.column_by_id(id).is_some());
            without_values(&row, |id| !command.columns.contains(id))
        };
        let mut out =
            vec![Fragment::PartitionStart { key: partition.key.clone(), deletion: partition.deletion }];
        if let Some(row) = partition.static_row() {
            let mut row = keep(row);
            row.delete_shadowed(partition.deletion);
            out.push(Fragment::StaticRow(row));
        }
        let mut rows: Vec<Fragment> = Vec::new();
        for row in partition.rows().iter().filter(|row| slices.contains(&row.clustering)) {
            let mut row = keep(row);
            row.delete_shadowed(partition.deletion.max(partition.range_tombstones.covering(&row.clustering)));
            rows.push(Fragment::Row(row));
        }
        if command.reversed {
            rows.reverse();
        }
        out.extend(rows);
        out.push(Fragment::PartitionEnd);
        out
    }
}

/// A row whose cells of these columns have no values: an engine keeps those that nobody asked for, because the row lives by them.
fn without_values(row: &Row, is_unasked: impl Fn(schema::ColumnId) -> bool) -> Row {
    let mut columns = row.columns().to_vec();
    for (_, data) in columns.iter_mut().filter(|(id, _)| is_unasked(*id)) {
        match data {
            ColumnData::Simple(cell) => cell.value = Bytes::new(),
            ColumnData::Complex(complex) => {
                complex.cells.iter_mut().for_each(|element| element.cell.value = Bytes::new());
            }
        }
    }
    let mut kept = Row::from_columns(row.clustering.clone(), columns);
    (kept.liveness, kept.deletion) = (row.liveness, row.deletion);
    kept
}

/// Everything that a partition holds, in order.
fn stored_fragments(partition: &PartitionUpdate) -> Vec<Fragment> {
    let mut out = vec![Fragment::PartitionStart { key: partition.key.clone(), deletion: partition.deletion }];
    out.extend(partition.static_row().cloned().map(Fragment::StaticRow));
    let mut changes = partition.range_tombstones.changes(false).into_iter().peekable();
    let change = |(bound, deletion)| Fragment::RangeTombstoneChange { bound, deletion };
    for row in partition.rows() {
        while let Some(next) = changes.next_if(|(bound, _)| bound.position() < row.clustering.position()) {
            out.push(change(next));
        }
        out.push(Fragment::Row(row.clone()));
    }
    out.extend(changes.map(change));
    out.push(Fragment::PartitionEnd);
    out
}

fn unavailable_index() -> RequestError {
    let failure = ReplicaFailure {
        address: [127, 0, 0, 1].into(),
        code: ReplicaFailure::INDEX_NOT_AVAILABLE,
        message: "The secondary index is not yet available".to_owned(),
    };
    RequestError::ReadFailure {
        consistency: Consistency::One,
        received: 0,
        required: 1,
        data_present: false,
        failures: vec![failure],
    }
}

/// The most relevant texts of a table, and their figures.
fn texts(
    held: Option<&BTreeMap<DecoratedKey, PartitionUpdate>>,
    (index, column): (&schema::Index, schema::ColumnId),
    text: &str,
    count: usize,
) -> Candidates {
    let fulltext = text::FullText::of(&index.options).expect("its options");
    let query = text::TextQuery::parse(text, &fulltext.analyzer, fulltext.has_positions).expect("a query");
    let mut all = Vec::new();
    let mut statistics =
        replica::TextStatistics { with_leaf: vec![0; query.leaves().len()], ..Default::default() };
    for held in held.into_iter().flat_map(BTreeMap::values) {
        for row in held.rows() {
            let Some(ColumnData::Simple(cell)) = row.column(column) else { continue };
            let Some(document) = text::Document::new(&query, &fulltext.analyzer, &cell.value) else {
                continue;
            };
            statistics.texts += 1;
            statistics.terms += u64::from(document.terms);
            for (count, hit) in statistics.with_leaf.iter_mut().zip(&document.hits) {
                *count += u64::from(hit.count > 0);
            }
            all.push((Place { key: held.key.clone(), clustering: Some(row.clustering.clone()) }, document));
        }
    }
    let scored = all.into_iter().filter_map(|(place, document)| {
        Some(Candidate { place, closeness: query.score(&document, &statistics)? })
    });
    let mut places: Vec<Candidate> = scored.collect();
    Candidate::keep_nearest(&mut places, count);
    Candidates { places, statistics }
}

/// The vector of a row: of a column of vectors, or of one entry of the attributes of the DynamoDB API.
fn stored_vector(data: Option<&ColumnData>, index: &schema::Index, dimensions: usize) -> Option<Vec<f32>> {
    match data? {
        ColumnData::Simple(cell) => {
            Some(cell.value.as_chunks::<4>().0.iter().map(|bytes| f32::from_be_bytes(*bytes)).collect())
        }
        ColumnData::Complex(complex) => {
            let entry = index.options.get(replica::ENTRY_OPTION)?;
            let element = complex.cells.iter().find(|element| element.path == entry.as_bytes())?;
            items::vector::of_stored(&element.cell.value, dimensions)
        }
    }
}

/// The places that an index finds in a partition. It may find too many, as terms of older versions do: every fourth row is a place.
fn places(table: &Table, query: &IndexQuery, held: &PartitionUpdate) -> Option<PartitionUpdate> {
    let index = table.indexes.get(&query.index).expect("the index exists");
    let target = &index.targets[0];
    let column = table.column(&target.column).expect("the column exists");
    let within = |ty: &types::CqlType, value: &[u8]| match &query.predicate {
        Predicate::Equal(wanted) => ty.compare(value, wanted).is_eq(),
        Predicate::Entry { .. } => unreachable!("of entries alone"),
        Predicate::Range { from, to } => {
            let low = from.as_ref().is_none_or(|(end, included)| {
                let order = ty.compare(value, end);
                order.is_gt() || (*included && order.is_eq())
            });
            let high = to.as_ref().is_none_or(|(end, included)| {
                let order = ty.compare(value, end);
                order.is_lt() || (*included && order.is_eq())
            });
            low && high
        }
    };
    let of_elements = |complex: &Complex| {
        complex.cells.iter().map(|one| (&one.path[..], &one.cell.value[..])).any(|(path, value)| {
            match (&column.ty, target.part) {
                (CqlType::Map { key, value: ty, .. }, IndexedPart::Entries) => match &query.predicate {
                    Predicate::Entry { key: wanted, value: other } => {
                        key.compare(path, wanted).is_eq() && ty.compare(value, other).is_eq()
                    }
                    other => panic!("an index on entries is queried with {other:?}"),
                },
                (CqlType::Map { key, .. }, IndexedPart::Keys) => within(key, path),
                (CqlType::Map { value: ty, .. } | CqlType::List { element: ty, .. }, _) => within(ty, value),
                (CqlType::Set { element, .. }, _) => within(element, path),
                (other, _) => panic!("{other:?} has no elements"),
            }
        })
    };
    let of_row = |row: &Row| match row.column(column.id) {
        Some(ColumnData::Simple(cell)) => {
            let is_text = matches!(column.ty, CqlType::Text | CqlType::Ascii);
            match text::IndexText::of_index(index.class.as_deref(), &index.options, is_text) {
                None => within(&column.ty, &cell.value),
                Some(text) => {
                    let mut is_found = false;
                    text.index.indexed(&cell.value, |term| is_found |= within(&column.ty, term));
                    is_found
                }
            }
        }
        Some(ColumnData::Complex(complex)) => of_elements(complex),
        None => false,
    };
    let mut out = PartitionUpdate::new(held.table.clone(), held.key.clone());
    let component = |at: usize| {
        let count = table.partition_key().len();
        DecoratedKey::components(&held.key.key, count).expect("a key has its components")[at].to_vec()
    };
    let position = usize::from(column.position);
    let found_key = column.kind == ColumnKind::PartitionKey && within(&column.ty, &component(position));
    if found_key || (column.kind == ColumnKind::Static && held.static_row().is_some_and(of_row)) {
        let id = table.static_columns().first().expect("the tests have a static column").id;
        let cell = ColumnData::Simple(Cell::live(1, Bytes::new()));
        out.add_static(Row::from_columns(Clustering::empty(), vec![(id, cell)]));
    }
    for (at, row) in held.rows().iter().enumerate() {
        let finds = match column.kind {
            ColumnKind::PartitionKey => found_key,
            ColumnKind::Static => false,
            ColumnKind::Clustering => row
                .clustering
                .components()
                .nth(position)
                .flatten()
                .is_some_and(|value| within(&column.ty, value)),
            ColumnKind::Regular => at % 4 == 0 || of_row(row),
        };
        if finds {
            let mut place = Row::new(row.clustering.clone());
            place.liveness = LivenessInfo::forever(1);
            out.add_row(place);
        }
    }
    (out.static_row().is_some() || !out.rows().is_empty()).then_some(out)
}

impl Memory {
    /// Loses the rows of a table, which nothing that is derived from it follows.
    pub fn lose(&self, keyspace: &str, table: &str) {
        let table = self.schema.borrow().table(keyspace, table).expect("a table").id;
        self.tables.borrow_mut().remove(&table);
    }
}

impl Coordinator for Memory {
    fn schema(&self) -> Arc<Schema> {
        self.schema.borrow().clone()
    }

    fn view(&self) -> Arc<ClusterView> {
        self.view.clone()
    }

    fn traced(&self, _trace: &TraceLog) -> Self {
        self.clone()
    }

    const AGGREGATED_ROWS: u64 = 3;

    /// Every third partition begins a part, and every second part is another shard's.
    fn range_parts(
        &self,
        table: &Arc<Table>,
        range: &PartitionRange,
        width: i128,
    ) -> Result<Vec<RangePart>, RequestError> {
        assert!(width >= 0, "a part has tokens");
        if self.part_worker.borrow().is_none() {
            return Ok(Vec::new());
        }
        let tables = self.tables.borrow();
        let keys =
            tables.get(&table.id).into_iter().flat_map(BTreeMap::keys).filter(|key| range.contains(key));
        let ends = keys.step_by(3).map(|key| RingPosition::AfterToken(key.token));
        let mut out: Vec<RangePart> = Vec::new();
        let mut start = range.start.clone();
        for end in ends.filter(|end| end.token() < range.end.token()).chain([range.end.clone()]) {
            let by = (out.len() % 2 == 0).then_some((HostId([2; 16]), 0));
            out.push(RangePart { range: PartitionRange { start, end: end.clone() }, by });
            start = end;
        }
        Ok(out)
    }

    async fn ask_for_part(&self, _: (HostId, u16), body: Bytes, _: Instant) -> Result<Bytes, String> {
        let worker = self.part_worker.borrow().clone().expect("there are parts");
        worker(body).await
    }

    async fn table_size(&self, table: TableId) -> TableSize {
        let (mut size, bytes) = (TableSize::default(), self.row_bytes.get());
        for partition in self.tables.borrow().get(&table).into_iter().flat_map(BTreeMap::values) {
            let rows = partition.rows().len() as u64;
            size.merge(TableSize { rows, bytes: rows * bytes, partition_bytes_max: rows * bytes });
        }
        size
    }

    async fn read(
        &self,
        command: &ReadCommand,
        _: Consistency,
        deadline: Instant,
    ) -> Result<ReadPage, RequestError> {
        self.deadline.set(Some(deadline));
        if self.slow_reads.get() {
            rt::preempt::yield_now().await;
        }
        let schema = self.schema();
        if let Some(stored) = catalog::StoredSchema::new(command, &schema) {
            return Ok(read_computed(command, ComputedRows::InOrder(Box::new(stored))).await);
        }
        if let Some(rows) = catalog::schema_rows(&command.table, &schema).await {
            return Ok(read_computed(command, ComputedRows::All(rows)).await);
        }
        let (tables, nothing) = (self.tables.borrow(), Partitioned::new());
        let table = tables.get(&command.table.id).unwrap_or(&nothing);
        let found: Partitioned;
        let table = match &command.index {
            None => table,
            Some(query) => {
                assert!(!command.reversed, "places come in ring order");
                let left = self.index_reads_left.get();
                if self.indexes_building.get() || left == 0 {
                    return Err(unavailable_index());
                }
                self.index_reads_left.set(left - 1);
                let places = table.values().filter_map(|held| places(&command.table, query, held));
                found = places.map(|update| (update.key.clone(), update)).collect();
                self.index_reads.set(self.index_reads.get() + 1);
                &found
            }
        };
        let mut partitions: Vec<&PartitionUpdate> = match &command.partitions {
            Partitions::Keys(keys) => keys.iter().filter_map(|key| table.get(key)).collect(),
            Partitions::Range(range) => table.values().filter(|p| range.contains(&p.key)).collect(),
        };
        let mut page = PageBuilder::new(command);
        if let Some(resume) = &command.resume {
            // The partition itself may not be among those that an index has found.
            let place = partitions.iter().position(|p| match &command.partitions {
                Partitions::Keys(_) => p.key == resume.key,
                Partitions::Range(_) => p.key >= resume.key,
            });
            partitions.drain(..place.unwrap_or(partitions.len()));
            page.resume(resume.key.clone(), resume.rows_in_partition);
        }
        for partition in partitions {
            let mut skipping = false;
            for fragment in Self::fragments(command, partition) {
                if skipping && !matches!(fragment, Fragment::PartitionEnd) {
                    continue;
                }
                match page.push(fragment) {
                    Progress::More => {}
                    Progress::SkipPartition => skipping = true,
                    Progress::Full => return Ok(page.finish()),
                }
            }
        }
        Ok(page.finish())
    }

    async fn fragment_sources(
        &self,
        _: &Table,
        _: &DecoratedKey,
        _: Instant,
    ) -> Result<Vec<String>, RequestError> {
        let cached = self.is_cached.get().then(|| "row-cache".to_owned());
        Ok(std::iter::once("memtable:0".to_owned()).chain(cached).collect())
    }

    async fn read_fragments(
        &self,
        table: &Table,
        read: FragmentsRead,
        _: Instant,
    ) -> Result<FragmentsPage, RequestError> {
        let tables = self.tables.borrow();
        let partition = tables.get(&table.id).and_then(|table| table.get(&read.key));
        let mut fragments = partition.map(stored_fragments).unwrap_or_default();
        if let Some(after) = &read.after {
            let at = fragments.iter().position(|fragment| FragmentPlace::of(fragment) == *after);
            fragments.drain(..=at.expect("a read resumes after a fragment"));
        }
        // Two at once, of any size: the next page must begin after them.
        let is_last = fragments.len() <= 2;
        fragments.truncate(2);
        Ok(FragmentsPage { fragments, is_last })
    }

    async fn partition_keys(
        &self,
        table: &Table,
        range: &PartitionRange,
        count_max: usize,
        _: Instant,
    ) -> Result<Vec<DecoratedKey>, RequestError> {
        let tables = self.tables.borrow();
        let keys = tables.get(&table.id).into_iter().flat_map(BTreeMap::keys);
        Ok(keys.filter(|key| range.contains(key)).take(count_max).cloned().collect())
    }

    async fn nearest(
        &self,
        table: &Arc<Table>,
        query: &Arc<NearestQuery>,
        _: Consistency,
        deadline: Instant,
    ) -> Result<Candidates, RequestError> {
        self.deadline.set(Some(deadline));
        self.index_reads.set(self.index_reads.get() + 1);
        let index = table.indexes.get(&query.index).expect("the index exists");
        let column = table.column(&index.targets[0].column).expect("the column exists").id;
        let tables = self.tables.borrow();
        let mut found = Vec::new();
        let vector = match &query.to {
            NearestTo::Vector(vector) => vector,
            NearestTo::Text(text) => {
                return Ok(texts(tables.get(&table.id), (index, column), text, query.count));
            }
        };
        for held in tables.get(&table.id).into_iter().flat_map(BTreeMap::values) {
            for row in held.all_rows() {
                // Deleted rows and vectors of before are candidates, too.
                let Some(stored) = stored_vector(row.column(column), index, vector.len()) else { continue };
                if stored.len() == vector.len() {
                    let is_static = table.static_columns().iter().any(|one| one.id == column);
                    let clustering = (!is_static).then(|| row.clustering.clone());
                    let place = Place { key: held.key.clone(), clustering };
                    let measure = index.options.get("similarity_function").map_or("COSINE", String::as_str);
                    let measure = Similarity::of_name(measure).expect("a measure");
                    let closeness = measure.closeness(vector, &stored);
                    found.push(Candidate { place, closeness });
                }
            }
        }
        Candidate::keep_nearest(&mut found, query.count);
        Ok(Candidates { places: found, ..Candidates::default() })
    }

    async fn scan_index(
        &self,
        table: &Arc<Table>,
        scan: &Arc<OrderedScan>,
        _: Consistency,
        deadline: Instant,
    ) -> Result<OrderedPlaces, RequestError> {
        self.deadline.set(Some(deadline));
        self.index_reads.set(self.index_reads.get() + 1);
        let index = table.indexes.get(&scan.index).expect("the index exists");
        let definition = IndexDefinition::new(table, index).expect("an index");
        let is_behind = |term: &[u8], place: &Place| {
            scan.after.as_ref().is_none_or(|(after, at)| {
                let of = |place: &Place| (place.key.clone(), place.clustering.clone());
                let order = term.cmp(after).then_with(|| of(place).cmp(&of(at)));
                if scan.is_reversed { order.is_lt() } else { order.is_gt() }
            })
        };
        let mut found = OrderedPlaces::default();
        for held in self.tables.borrow().get(&table.id).into_iter().flat_map(BTreeMap::values) {
            for row in held.rows() {
                let place = Place { key: held.key.clone(), clustering: Some(row.clustering.clone()) };
                definition.terms_of(table, &held.key, row, false, |term| {
                    if term[0] == 0 {
                        // An orphan, with this value of the first attribute or with none.
                        let wanted =
                            scan.unordered.iter().filter(|wanted| wanted.term == term || term.len() == 2);
                        found.unordered.extend(wanted.map(|_| place.clone()));
                    } else if (&*scan.start..&*scan.end).contains(&term) && is_behind(term, &place) {
                        found.places.push((Bytes::copy_from_slice(term), place.clone()));
                    }
                });
            }
        }
        found.finish(scan);
        Ok(found)
    }

    async fn write(&self, updates: Vec<PartitionUpdate>, options: WriteOptions) -> Result<(), RequestError> {
        self.deadline.set(Some(options.deadline));
        updates.into_iter().for_each(|update| self.put(update));
        Ok(())
    }

    fn write_now(&self, update: &mut Option<PartitionUpdate>, _consistency: Consistency) {
        // Every other one, so that statements take both ways, but those that are to show their deadlines.
        self.waits.set(!self.waits.get() || self.shows_deadlines.get());
        if let Some(update) = update.take_if(|_| !self.waits.get()) {
            self.put(update);
        }
    }

    async fn cas(
        &self,
        command: &ReadCommand,
        options: CasOptions,
        decide: Decide<'_>,
    ) -> Result<CasOutcome, ExecError> {
        let other = self.between.take();
        other.into_iter().for_each(|update| self.put(update));
        let page = self.read(command, options.commit, options.deadline).await?;
        // Later than the times that the test's clock has given out.
        self.versions.set(self.versions.get() + 1);
        let ballot = self.last_ballot();
        match decide(&page, ballot)? {
            None => Ok(CasOutcome::Refused(page)),
            Some(update) => {
                self.put(update);
                Ok(CasOutcome::Applied)
            }
        }
    }

    fn row_here<T>(
        &self,
        lookup: &RowLookup<'_>,
        (consistency, _): (Consistency, Instant),
        visit: impl FnOnce(Option<&Row>) -> T,
    ) -> Option<(T, u64)> {
        let table = self.tables.borrow().get(&lookup.table.id)?.get(lookup.key)?.table.clone();
        let command = ReadCommand {
            slices: lookup.slices.clone(),
            bypass_cache: lookup.bypass_cache,
            ..ReadCommand::all_of(table, Partitions::Keys(Keys::from_elem(lookup.key.clone(), 1)), lookup.now)
        };
        let before = self.deadline.get();
        let page = self.read(&command, consistency, Instant::START).now_or_never()?.ok()?;
        self.deadline.set(before);
        match page.partitions.as_slice() {
            [] => Some((visit(None), page.tombstones)),
            [one] if one.static_row.is_none() && one.rows.len() == 1 => {
                Some((visit(one.rows.first()), page.tombstones))
            }
            _ => None,
        }
    }

    async fn read_serial(
        &self,
        command: &ReadCommand,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<ReadPage, RequestError> {
        self.read(command, consistency, deadline).await
    }

    async fn increment(
        &self,
        updates: Vec<PartitionUpdate>,
        options: WriteOptions,
    ) -> Result<(), RequestError> {
        self.deadline.set(Some(options.deadline));
        for mut update in updates {
            let add = |row: &mut Row| {
                row.retain(|_, data| {
                    if let ColumnData::Simple(cell) = data {
                        let delta =
                            i64::from_be_bytes((&*cell.value).try_into().expect("a delta has 8 bytes"));
                        self.versions.set(self.versions.get() + 1);
                        let mut id = [0; 16];
                        id[8..].copy_from_slice(&self.versions.get().to_be_bytes());
                        let context = counter::add(&[0, 0], id, delta, 1);
                        *cell = Cell::live(cell.timestamp, context);
                    }
                    true
                });
            };
            let mut counted = PartitionUpdate::new(update.table.clone(), update.key.clone());
            if let Some(mut row) = update.take_static_row() {
                add(&mut row);
                counted.add_static(row);
            }
            for mut row in update.into_rows() {
                add(&mut row);
                counted.add_row(row);
            }
            self.put(counted);
        }
        Ok(())
    }

    async fn truncate(&self, table: &Table, deadline: Instant) -> Result<(), RequestError> {
        self.deadline.set(Some(deadline));
        self.tables.borrow_mut().remove(&table.id);
        Ok(())
    }

    async fn change_schema(&self, base: [u8; 16], edits: Vec<SchemaEdit>) -> Result<(), SchemaChangeError> {
        let schema = Schema::clone(&self.schema.borrow());
        if schema.version() != base {
            return Err(SchemaChangeError::Moved);
        }
        let schema = cluster::apply_edits(schema, through_the_log(base, edits))
            .map_err(|error| SchemaChangeError::Invalid(error.to_string()))?;
        self.versions.set(self.versions.get() + 1);
        let mut version = [0; 16];
        version[..8].copy_from_slice(&self.versions.get().to_be_bytes());
        *self.schema.borrow_mut() = Arc::new(schema.with_version(version));
        match self.behind {
            0 => Ok(()),
            behind => Err(SchemaChangeError::Behind { used: 3 - behind, live: 3 }),
        }
    }

    async fn check_given_id(&self, base: [u8; 16], id: TableId) -> Result<(), SchemaChangeError> {
        if self.schema.borrow().version() != base {
            return Err(SchemaChangeError::Moved);
        }
        // A node that has rows of a table which is not in the schema has not finished its drop.
        match self.tables.borrow().contains_key(&id) {
            true => Err(SchemaChangeError::Invalid(format!("Table id {id} cannot be given: rows are left"))),
            false => Ok(()),
        }
    }
}
