//! One shard's repair service: it answers the masters of other nodes, and on shard 0 it leads the repairs that were requested of
//! this node.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mutation::{PartitionUpdate, Repaired, Seconds};
use replica::{
    Marked, Origin, Read, ReadCommand, ReadPage, RepairedWatermark, Replica, ReplicaError, TokenSpan,
    Truncation, Write,
};
use rpc::{Incoming, Messenger, Refusal, RpcError, Verb};
use rt::sync::{GateGuard, Semaphore};
use rt::{DiskError, Group, Instant, Rt, ShardId, Task};
use schema::{Keyspace, Schema, Table, TableId};
use topology::{HostId, NodeIndex, Placement, Ring, TabletMaps, TokenRange};

use crate::age::{self, TableAge};
use crate::canaries::Canaries;
use crate::codec::{decode_request, encode_answer};
use crate::follower::{Data, Follower, FollowerConfig, FollowerError};
use crate::history::{History, HistoryStore};
use crate::job::Figures;
use crate::message::{Ask, Request};
use crate::plan::{RepairOptions, straight};
use crate::scope::Scope;
use crate::sessions::{Base, Session, Sessions};
use crate::step::{Segment, StepError, participants, step};
use crate::wire::{
    Address, Checked, Close, Open, Opening, Wire, WireError, decode_addressed, decode_close, decode_open,
    definition, encode_checked, encode_done,
};

/// The refusals of repair: whether an immediate retry may succeed.
pub(crate) const TRY_AGAIN: u16 = Refusal::FIRST_FREE;
/// A retry gives the same answer.
pub(crate) const NO_USE: u16 = Refusal::FIRST_FREE + 1;
/// The asked node has a newer topology version, has just excluded an SSTable, or has lost its record of repairs: the range is to be
/// begun anew.
pub(crate) const STALE: u16 = Refusal::FIRST_FREE + 2;

/// Ranges that this node repairs concurrently.
pub(crate) const UNITS_AT_ONCE_MAX: usize = 4;
/// A shard that gets no request for this time evicts its pages.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// The settings of repair.
#[derive(Clone, Debug)]
pub struct RepairConfig {
    /// The limits of each shard's follower.
    pub follower: FollowerConfig,
    /// Requests that a shard serves concurrently. Together with `follower` this bounds its memory.
    pub serving_max: usize,
    /// Bytes of a segment: the page of each participant for one step.
    pub segment_bytes: u32,
    /// The settings that can be changed later.
    pub settings: RepairSettings,
    /// The timeout of one answer.
    pub timeout: Duration,
    /// How often in a row a segment is retried before its range fails.
    pub attempts_max: u32,
    /// The pause before a retry, which grows with every further attempt.
    pub pause: Duration,
    /// A range of the plan holds at most about so many bytes.
    pub unit_bytes_max: u64,
    /// Ended jobs that are remembered.
    pub jobs_kept: usize,
    /// Injected bugs.
    pub canaries: rt::Injected<Canaries>,
}

impl Default for RepairConfig {
    fn default() -> Self {
        Self {
            follower: FollowerConfig::default(),
            serving_max: 4,
            segment_bytes: 512 << 10,
            settings: RepairSettings::default(),
            timeout: Duration::from_secs(20),
            attempts_max: 5,
            pause: Duration::from_millis(500),
            unit_bytes_max: 1 << 30,
            jobs_kept: 100,
            canaries: rt::Injected::default(),
        }
    }
}

/// The settings of repair that can be changed while it runs, for sessions that begin from then on.
#[derive(Clone, Copy, Debug)]
pub struct RepairSettings {
    /// Bytes a second that repairs led by this node exchange with others; 0 for no limit.
    pub bytes_per_second: u64,
    /// Whether automatic repair is enabled.
    pub automatic: bool,
    /// The interval of automatic repair, at most; 0 for as often as `gc_grace_seconds` requires.
    pub interval_max: Seconds,
    /// The interval of full automatic repairs; 0 for always full.
    pub full_interval: Seconds,
}

impl Default for RepairSettings {
    fn default() -> Self {
        Self { bytes_per_second: 0, automatic: true, interval_max: 0, full_interval: 28 * 24 * 3_600 }
    }
}

/// The nodes of the ring as this node sees them.
#[derive(Clone, Debug)]
pub struct Members {
    /// The ring.
    pub ring: Ring,
    /// This node; it may not be in the ring yet.
    pub own: NodeIndex,
    /// By node: whether it is up.
    pub alive: Vec<bool>,
    /// Whether topology changes are under way: pending replicas may then lack data that the others have received.
    pub changing: bool,
    /// The topology version of this ring.
    pub topology: u64,
    /// The tables that do not lie with their keyspaces.
    pub tablets: TabletMaps,
}

impl Members {
    /// Where the copies of a table are.
    pub(crate) fn place(&self, keyspace: &Keyspace, table: &Table) -> Placement {
        let of_tablets = self.tablets.of(table.id).map(|map| map.place(|host| self.ring.index_of(host)));
        of_tablets.unwrap_or_else(|| Placement::new(&self.ring, &keyspace.replication))
    }

    /// How many parts of each range are repaired at once: as many as the node with the fewest shards has. Parts follow from the
    /// token, as do the shards of most tables; a tablet is on one shard of each node, and a range of it is one part.
    pub(crate) fn slices(&self, table: &Table, nodes: &[(HostId, u16)]) -> u16 {
        match self.tablets.of(table.id) {
            Some(_) => 1,
            None => nodes.iter().map(|(_, shards)| *shards).min().expect("this node is one"),
        }
    }
}

/// The state of its node that repair needs.
pub trait ClusterContext {
    /// The current schema.
    fn schema(&self) -> Arc<Schema>;
    /// The current nodes.
    fn members(&self) -> Members;
    /// Admits a request of a topology version, when this shard has the same; else returns its version. Dropping
    /// ranges that the shard loses waits until the guard is dropped.
    ///
    /// # Errors
    /// This shard's topology version, when it is another one.
    fn admit(&self, topology: u64) -> Result<GateGuard, u64>;
    /// Whether this node accepts writes of a table's token.
    fn takes(&self, table: &Table, token: i64) -> bool;
}

/// An operator's repair request.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The keyspace.
    pub keyspace: String,
    /// The tables; empty for all.
    pub tables: Vec<String>,
    /// The ranges, and the participants.
    pub options: RepairOptions,
    /// Ranges repaired at this time or later are skipped, so that a repair continues where another one ended; seconds, 0 for none.
    pub unless_since: u32,
    /// Full repair: compare everything, also rows that past repairs have compared.
    pub full: bool,
    /// Ranges that are repaired at the same time, at most.
    pub units_at_once: usize,
}

/// One shard's repair. Cheap to clone.
#[derive(Clone)]
pub struct Repair(pub(crate) Rc<Inner>);

pub(crate) struct Inner {
    pub(crate) rt: Rt,
    pub(crate) messenger: Messenger,
    pub(crate) replica: Replica,
    pub(crate) context: Rc<dyn ClusterContext>,
    pub(crate) config: RepairConfig,
    pub(crate) settings: Cell<RepairSettings>,
    pub(crate) host: HostId,
    follower: Follower<Own>,
    serving: Semaphore,
    /// On shard 0.
    pub(crate) history: Option<HistoryStore>,
    pub(crate) jobs: RefCell<BTreeMap<u64, Job>>,
    pub(crate) next_job: Cell<u64>,
    /// Of [`UNITS_AT_ONCE_MAX`].
    pub(crate) unit_slots: Semaphore,
    pub(crate) scheduler: RefCell<Option<Task<()>>>,
    /// When the replicas of a table were asked to flush for a repair.
    pub(crate) flushed: RefCell<BTreeMap<TableId, Instant>>,
    /// The range of automatic repair that runs now.
    pub(crate) by_itself: RefCell<Option<Rc<RefCell<Figures>>>>,
    pub(crate) stats: Cell<RepairStats>,
    /// Evicts unused pages; while there are any.
    reaper: RefCell<Option<Task<()>>>,
}

/// Counters of the repairs led by a node since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairStats {
    /// Ranges that were repaired.
    pub ranges: u64,
    /// Of these, how many incrementally.
    pub ranges_incremental: u64,
    /// Ranges that failed.
    pub ranges_failed: u64,
    /// Rows and deletions compared.
    pub elements: u64,
    /// Differing versions of rows and deletions.
    pub differing: u64,
    /// Rows and deletions that were sent to nodes that lacked them.
    pub sent: u64,
    /// Bytes from and to other nodes.
    pub bytes: u64,
}

/// A requested repair.
pub(crate) struct Job {
    pub(crate) figures: Rc<RefCell<Figures>>,
    /// Until it has ended.
    pub(crate) task: Option<Task<()>>,
}

/// This shard's data.
struct Own(Replica);

impl Data for Own {
    async fn read(
        &self,
        command: &ReadCommand,
        above: Option<RepairedWatermark>,
    ) -> Result<ReadPage, ReplicaError> {
        self.0.read(Read::of(command).here_above(above).over_all_tombstones()).await
    }

    async fn apply(&self, update: PartitionUpdate, truncated_at: i64) -> Result<(), ReplicaError> {
        // The time is this shard's.
        assert!(self.0.owns(std::slice::from_ref(&update)), "it belongs to another shard");
        let truncation = Truncation::LeavesOut(truncated_at.saturating_add(1));
        self.0.apply(Write::one(Origin::Repair, update).in_parts().with_truncation(truncation)).await
    }

    fn truncated_at(&self, table: TableId) -> i64 {
        self.0.truncated_at(table)
    }

    async fn sync(&self) -> Result<(), ReplicaError> {
        self.0.apply(Write::all(Origin::System, Vec::new()).synced()).await
    }
}

impl Repair {
    /// This shard's service, which answers from now on. Shard 0 reads the history of repairs from `directory`, which exists.
    ///
    /// # Errors
    /// A [`DiskError`] when the history cannot be read; a damaged one is as none.
    pub async fn open(
        rt: &Rt,
        host: HostId,
        messenger: &Messenger,
        replica: Replica,
        context: Rc<dyn ClusterContext>,
        config: RepairConfig,
        directory: &Path,
    ) -> Result<Self, DiskError> {
        rt.allow_injected(&config.canaries);
        let history = match rt.shard() {
            ShardId(0) => Some(HistoryStore::open(rt.disk(), directory).await?),
            _ => None,
        };
        let repair = Self(Rc::new(Inner {
            rt: rt.clone(),
            messenger: messenger.clone(),
            follower: Follower::new(Own(replica.clone()), config.follower),
            serving: Semaphore::new(config.serving_max.max(1)),
            replica,
            context,
            settings: Cell::new(config.settings),
            config,
            host,
            history,
            jobs: RefCell::default(),
            next_job: Cell::new(1),
            unit_slots: Semaphore::new(UNITS_AT_ONCE_MAX),
            scheduler: RefCell::default(),
            flushed: RefCell::default(),
            by_itself: RefCell::default(),
            stats: Cell::default(),
            reaper: RefCell::default(),
        }));
        repair.serve(Verb::RepairOpen, |inner, incoming| async move { inner.opened(incoming).await });
        repair.serve(Verb::RepairDigest, |inner, incoming| async move { asked(inner, incoming).await });
        repair.serve(Verb::RepairRows, |inner, incoming| async move { asked(inner, incoming).await });
        repair.serve(Verb::RepairClose, |inner, incoming| async move { inner.closed(incoming).await });
        Ok(repair)
    }

    fn serve<F>(&self, verb: Verb, handler: impl Fn(Rc<Inner>, Incoming) -> F + 'static)
    where
        F: Future<Output = Result<Bytes, Refusal>> + 'static,
    {
        let weak = Rc::downgrade(&self.0);
        let handler = Rc::new(handler);
        self.0.messenger.serve(verb, move |incoming| {
            let (inner, handler) = (Weak::upgrade(&weak), Rc::clone(&handler));
            async move {
                match inner {
                    Some(inner) => handler(inner, incoming).await,
                    None => Err(Refusal::new(NO_USE, "this node is stopping")),
                }
            }
        });
    }

    /// Notifies all shards of the repair history, and starts automatic repair, which is idle while it is disabled. On shard 0, when all shards are open.
    pub async fn start(&self) {
        for (table, repaired) in self.history().tables() {
            self.0.replica.set_repaired(table, Arc::new(repaired.clone())).await;
            self.0.keep_apart(table).await;
        }
        self.begin_automatic();
    }

    /// Changes the settings. A range that is being repaired keeps the manner in which it was begun.
    pub fn set_settings(&self, settings: RepairSettings) {
        self.0.settings.set(settings);
    }

    /// The repair history, on shard 0.
    ///
    /// # Panics
    /// On another shard.
    pub fn history(&self) -> Rc<History> {
        self.0.history().current()
    }

    /// The counters of the repairs that this shard led.
    pub fn stats(&self) -> RepairStats {
        self.0.stats.get()
    }

    /// The repair state of this node's tables, on shard 0.
    pub fn ages(&self) -> Vec<TableAge> {
        let members = self.0.context.members();
        age::ages(&self.0.context.schema(), &members.ring, members.own, &self.history())
    }

    /// Bytes of cached pages of this shard.
    pub fn kept_bytes(&self) -> usize {
        self.0.follower.kept_bytes()
    }

    /// Cancels the repairs of this node, and evicts pages.
    pub async fn stop(&self) {
        let scheduler = self.0.scheduler.borrow_mut().take();
        if let Some(task) = scheduler {
            task.cancel().await;
        }
        let ids: Vec<u64> = self.0.jobs.borrow().keys().copied().collect();
        for id in ids {
            self.cancel(id).await;
        }
        self.0.reaper.borrow_mut().take();
        self.0.follower.forget();
    }
}

/// Answers a request about a segment, and evicts the page soon after its master is gone.
async fn asked(inner: Rc<Inner>, incoming: Incoming) -> Result<Bytes, Refusal> {
    let answer = inner.asked(incoming).await;
    let mut reaper = inner.reaper.borrow_mut();
    if inner.follower.kept_bytes() > 0 && reaper.as_ref().is_none_or(Task::is_finished) {
        *reaper = Some(inner.rt.spawn(Group::Maintenance, reap(Rc::downgrade(&inner))));
    }
    drop(reaper);
    answer
}

async fn reap(inner: Weak<Inner>) {
    while let Some(strong) = inner.upgrade() {
        let (seen, rt) = (strong.follower.questions(), strong.rt.clone());
        drop(strong);
        rt.sleep(KEPT_FOR).await;
        let Some(inner) = inner.upgrade() else { return };
        if inner.follower.questions() == seen {
            return inner.follower.forget();
        }
    }
}

fn refused(error: impl std::fmt::Display) -> Refusal {
    Refusal::new(NO_USE, error.to_string())
}

impl Inner {
    pub(crate) fn history(&self) -> &HistoryStore {
        self.history.as_ref().expect("the history lives on shard 0")
    }

    pub(crate) fn seconds(&self) -> u32 {
        u32::try_from(self.rt.wall_micros() / 1_000_000).unwrap_or(0)
    }

    /// Records a repair, and gives it to compaction.
    pub(crate) async fn record(&self, close: Close) -> Result<(), DiskError> {
        let Close { table, range, at, full, session, marks, topology: _ } = close;
        let (of_shards, now) = (marks.clone(), self.seconds());
        let change = |history: &mut History| {
            history.insert(table, range, (at, now), full);
            if !marks.is_empty() {
                history.insert_session(table, range, Session { id: session, at, marks: marks.into() });
            }
        };
        self.history().change(change).await?;
        let repaired: Repaired = self.history().table(table);
        self.replica.set_repaired(table, Arc::new(repaired)).await;
        self.keep_apart(table).await;
        for part in straight(range) {
            self.replica.damage_repaired(table, (part.after, part.upto), &of_shards, self.owned(table)).await;
        }
        Ok(())
    }

    /// The tokens of a table that this node owns.
    fn owned(&self, table: TableId) -> Vec<TokenSpan> {
        let (members, schema) = (self.context.members(), self.context.schema());
        let Some(keyspace) = schema.table_by_id(table).and_then(|table| schema.keyspace(&table.keyspace))
        else {
            return Vec::new();
        };
        let placement = Placement::new(&members.ring, &keyspace.replication);
        let ranges = placement.ranges_of(members.own).flat_map(straight);
        ranges.map(|range| (range.after, range.upto)).collect()
    }

    /// [`Inner::record`] once received rows, and rows compared while they were in memory alone, are durable.
    pub(crate) async fn record_durably(&self, close: Close) -> Result<(), String> {
        self.replica.make_durable(close.table).await.map_err(|error| error.to_string())?;
        self.record(close).await.map_err(|error| error.to_string())
    }

    /// Passes the lowest mark of all ranges of a table to compaction.
    async fn keep_apart(&self, table: TableId) {
        let floor = self.history().current().sessions(table).map(Sessions::floor);
        self.replica.set_repaired_upto(table, &floor.unwrap_or_default()).await;
    }

    /// This node's mark of a table, and the base for a repair of the range.
    pub(crate) async fn check(
        &self,
        table: TableId,
        range: TokenRange,
        flush: bool,
    ) -> Result<Checked, ReplicaError> {
        let marked = self.replica.take_marks(table, flush).await?;
        let marks: Vec<RepairedWatermark> = marked.iter().map(|marked| marked.mark).collect();
        let known = self.history().current().sessions(table).and_then(|known| known.base(range, &marks));
        let base = known.map(|(lineage, base)| {
            let above = |(marked, mark): (&Marked, &RepairedWatermark)| {
                marked.bytes.range(mark.number + 1..).map(|(_, bytes)| bytes).sum::<u64>()
            };
            let fresh_bytes = marked.iter().zip(&base).map(above).sum();
            let all_bytes = marked.iter().flat_map(|marked| marked.bytes.values()).sum();
            Base { lineage, marks: base, fresh_bytes, all_bytes }
        });
        let (shard_count, seconds) = (self.rt.shard_count(), self.seconds());
        Ok(Checked { shard_count, seconds, marks, base })
    }

    fn table(&self, id: TableId) -> Option<Arc<schema::Table>> {
        self.context.schema().table_by_id(id).cloned()
    }

    /// A master's request about a segment.
    async fn asked(&self, incoming: Incoming) -> Result<Bytes, Refusal> {
        let (Address { shard, shard_count, topology }, body) =
            decode_addressed(&incoming.body).map_err(refused)?;
        let (own, count) = (self.rt.shard().0, self.rt.shard_count());
        if (shard, shard_count) != (own, count) {
            let what = format!("this is shard {own} of {count}, not {shard} of {shard_count}: begin again");
            return Err(Refusal::new(NO_USE, what));
        }
        let _under_way = self.admit(topology)?;
        let request = decode_request(&body, |id| self.table(id)).map_err(refused)?;
        self.check_owned(&request)?;
        let (table, base) = (request.scope.table.clone(), request.base);
        let _place = self.serving.acquire(1).await.expect("it is never closed");
        let answer = self.follower.answer(request).await.map_err(|error| match &error {
            FollowerError::Grown(_)
            | FollowerError::Changed
            | FollowerError::Replica(ReplicaError::Stopped) => Refusal::new(TRY_AGAIN, error.to_string()),
            // It has met damage, and a repair that begins from here on excludes the damaged SSTable; or data that moved here
            // has made it lose its record of repairs, and a repair that begins now has another base.
            FollowerError::Replica(ReplicaError::Storage(_))
                if self.replica.engine().awaits_salvage(table.id)
                    || base.is_some_and(|base| !self.replica.engine().knows_watermark(table.id, base)) =>
            {
                Refusal::new(STALE, error.to_string())
            }
            FollowerError::Replica(_) => refused(&error),
        })?;
        let mut out = Vec::new();
        encode_answer(&table, answer, &mut out);
        Ok(out.into())
    }

    /// Received rows must belong to this node: no peer may write rows that nobody reads.
    fn check_owned(&self, request: &Request) -> Result<(), Refusal> {
        let Ask::Push { updates, .. } = &request.ask else { return Ok(()) };
        let Scope { range, slice, .. } = &request.scope;
        let belongs = |update: &PartitionUpdate| {
            let token = update.key.token;
            range.after < token
                && token <= range.upto
                && slice.contains(token)
                && self.replica.shard_of(request.scope.table.id, token) == self.rt.shard().0
                && self.context.takes(&request.scope.table, token)
        };
        if updates.iter().all(belongs) {
            return Ok(());
        }
        Err(refused("a row that does not belong to this segment, shard or node"))
    }

    /// Admits requests of this shard's topology version. By another one the replicas may differ, so that the master would
    /// misjudge which of them have received the rows.
    fn admit(&self, topology: u64) -> Result<GateGuard, Refusal> {
        self.context.admit(topology).map_err(|own| {
            let what = format!("the repair uses topology version {topology}, and this node has {own}");
            Refusal::new(if own > topology { STALE } else { TRY_AGAIN }, what)
        })
    }

    async fn opened(&self, incoming: Incoming) -> Result<Bytes, Refusal> {
        let Opening { topology, open } = decode_open(&incoming.body).map_err(refused)?;
        // A step or a flush may take long, and writes nothing by itself: dropping ranges need not wait for it.
        drop(self.admit(topology)?);
        match open {
            Open::Check { table, definition: theirs, range, flush } => {
                let known = self.table(table);
                let known = known.ok_or_else(|| refused(format!("there is no table with id {table}")))?;
                if definition(&known) != theirs {
                    let what = format!("the columns of {} differ between nodes", known.full_name());
                    return Err(Refusal::new(TRY_AGAIN, what));
                }
                if self.history.is_none() {
                    return Err(refused("shard 0 keeps the history of repairs"));
                }
                let checked = self.check(table, range, flush).await.map_err(refused)?;
                Ok(encode_checked(&checked))
            }
            Open::Step { request, nodes, bases } => {
                if incoming.from != self.host {
                    return Err(refused("only a node itself may have it lead a repair"));
                }
                self.step(&request, (&nodes, topology), &bases).await
            }
        }
    }

    /// Leads the repair of one segment.
    async fn step(
        &self,
        request: &Bytes,
        (nodes, topology): (&[(HostId, u16)], u64),
        bases: &[Vec<RepairedWatermark>],
    ) -> Result<Bytes, Refusal> {
        let Request { scope, after, ask, .. } =
            decode_request(request, |id| self.table(id)).map_err(refused)?;
        let Ask::Summary { bytes_max } = ask else { return Err(refused("a step begins with a summary")) };
        let counts: Vec<u16> = nodes.iter().map(|(_, shards)| *shards).collect();
        let (timeout, bytes) = (self.config.timeout, Cell::new(0));
        let tablets = self.context.members().tablets;
        let wire =
            Wire { messenger: &self.messenger, rt: &self.rt, nodes, tablets, topology, timeout, bytes };
        let participants = participants(&scope, &counts, bases);
        let segment = Segment { after: after.as_ref(), bytes_max, canaries: *self.config.canaries };
        let done = step(&wire, &scope, &participants, segment).await;
        let done = done.map_err(|error| failed(nodes, error))?;
        Ok(encode_done(&done, wire.bytes.get()))
    }

    /// A master reports that a range was repaired.
    async fn closed(&self, incoming: Incoming) -> Result<Bytes, Refusal> {
        let mut close = decode_close(&incoming.body).map_err(refused)?;
        // The master's clock may be ahead: this node purges by its own.
        close.at = close.at.min(self.seconds());
        if self.history.is_none() {
            return Err(refused("shard 0 keeps the history of repairs"));
        }
        if self.table(close.table).is_none() {
            return Err(refused(format!("there is no table with id {}", close.table)));
        }
        // A replica by another topology version may lack rows that were compared by this one.
        let _under_way = self.admit(close.topology)?;
        self.record_durably(close).await.map_err(refused)?;
        Ok(Bytes::new())
    }
}

/// The node that failed, its error, and whether a retry may succeed.
fn failed(nodes: &[(HostId, u16)], error: StepError<WireError>) -> Refusal {
    let name = |participant: crate::Participant| {
        let (host, _) = nodes[participant.node];
        format!("host {}, shard {}", host_name(host), participant.shard)
    };
    match error {
        StepError::Nonsense { participant, what } => {
            refused(format!("{} answered with {what}", name(participant)))
        }
        StepError::Carrier { participant, error } => {
            let again = match &error {
                WireError::Rpc(RpcError::Refused(refusal)) => {
                    matches!(refusal.code, TRY_AGAIN | Refusal::OVERLOADED | Refusal::EXPIRED)
                }
                WireError::Rpc(
                    RpcError::Lost | RpcError::TimedOut | RpcError::Overloaded | RpcError::Connect(_),
                ) => true,
                WireError::Rpc(_) | WireError::Codec(_) => false,
            };
            let code = match &error {
                WireError::Rpc(RpcError::Refused(refusal)) if refusal.code == STALE => STALE,
                _ if again => TRY_AGAIN,
                _ => NO_USE,
            };
            Refusal::new(code, format!("{}: {error}", name(participant)))
        }
    }
}

/// A host's id as text.
pub(crate) fn host_name(host: HostId) -> String {
    let hex: String = host.0.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
