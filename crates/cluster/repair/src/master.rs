//! Repairs that this node leads: a few ranges of a table concurrently, so that nodes which are far away do not determine how long many small
//! ranges take; the slices of a range concurrently, segment by segment.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::{join_all, try_join, try_join_all};
use mutation::Seconds;
use replica::{RepairedWatermark, Resume};
use rpc::{RpcError, Target, Verb};
use rt::{Group, Instant};
use schema::{Table, TableId};
use topology::{HostId, NodeIndex, Ring, TokenRange};

use crate::codec::encode_request;
use crate::job::{Figures, JobRequest, JobState, JobStatus};
use crate::message::{Ask, Request};
use crate::plan::{PlanError, RepairOptions, Unit, plan, share, straight};
use crate::scope::{Scope, Slice};
use crate::service::{
    Inner, Job, Members, Repair, RepairStats, STALE, TRY_AGAIN, UNITS_AT_ONCE_MAX, Wanted, host_name,
};
use crate::sessions::build_on;
use crate::step::Done;
use crate::wire::{
    Checked, Close, Open, Opening, decode_checked, decode_done, definition, encode_close, encode_open,
};

/// With clocks that differ by more, a repair is not recorded: deletions are purged by its time.
const CLOCK_SECONDS_MAX: u32 = 60;

/// How often a node is notified again that a range was repaired.
const CLOSE_RETRIES_MAX: u32 = 2;

/// Between two looks at whether a job has ended.
const LOOK_PERIOD: Duration = Duration::from_millis(100);

/// Why a repair was not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepairError {
    /// The keyspace does not exist.
    #[error("Keyspace [{0}] does not exist.")]
    UnknownKeyspace(String),
    /// The table does not exist.
    #[error("Keyspace [{0}] does not have table {1}")]
    UnknownTable(String, String),
    /// The ranges are invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// The options of a unit's repair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// Units repaired at this time or later are skipped; 0 for none.
    pub(crate) unless_since: u32,
    /// Full repair: compare everything.
    pub(crate) full: bool,
    /// Replicas flush before, so that the next repair need not compare rows that are in memory now.
    pub(crate) flush: bool,
}

/// Why a unit was not repaired.
#[derive(Debug, thiserror::Error)]
enum UnitError {
    /// Nodes have different topology versions. When they agree, and the replicas are unchanged, it can be retried.
    #[error("{0}")]
    Stale(String),
    #[error("{0}")]
    Failed(String),
}

impl From<String> for UnitError {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl UnitError {
    /// The result of a call, and whether a retry may succeed.
    fn of_call(error: RpcError, named: impl FnOnce(String) -> String) -> (bool, Self) {
        match error {
            RpcError::Refused(refusal) if refusal.code == STALE => {
                (false, Self::Stale(named(refusal.message)))
            }
            RpcError::Refused(refusal) => (refusal.code == TRY_AGAIN, Self::Failed(named(refusal.message))),
            RpcError::TimedOut | RpcError::Overloaded => (true, Self::Failed(named(error.to_string()))),
            error => (false, Self::Failed(named(error.to_string()))),
        }
    }
}

/// Where the progress of a unit is recorded.
#[derive(Clone, Copy)]
struct Progress<'a> {
    figures: &'a RefCell<Figures>,
    unit: u64,
}

/// The context of a unit's repair.
struct Settled {
    /// The topology version that determined the replicas.
    topology: u64,
    nodes: Vec<(HostId, u16)>,
    /// By node and shard: the base of an incremental repair; none for a full repair.
    bases: Option<Vec<Vec<RepairedWatermark>>>,
    /// By node and shard: its mark at the begin.
    marks: Vec<Vec<RepairedWatermark>>,
    session: u64,
    slices: u16,
    gc_before: u32,
    /// The time of the repair, in seconds: the earliest of the participants' clocks at its begin.
    at: u32,
    /// The participants whose clocks are too far from this node's, as text; none if all are near.
    skewed: Option<String>,
    seed: u64,
}

impl Repair {
    /// Starts a repair and returns its number. To be called on shard 0.
    ///
    /// # Errors
    /// [`RepairError::UnknownKeyspace`], [`RepairError::UnknownTable`], and [`RepairError::Plan`] as
    /// [`plan`](crate::plan::plan). Failures of units are in the job's figures.
    pub fn begin(&self, wanted: Wanted) -> Result<u64, RepairError> {
        let inner = &self.0;
        let tables = self.tables(&wanted)?;
        let members = inner.context.members();
        let mut work = Vec::new();
        for table in tables {
            let units = inner.units(&members, &table, &wanted.options)?;
            work.push((table, units));
        }
        let id = inner.next_job.get();
        inner.next_job.set(id + 1);
        let ring = members.ring;
        let names = work.iter().map(|(table, _)| table.name.clone()).collect();
        let request = JobRequest {
            options: wanted.options.clone(),
            full: wanted.full,
            begun_micros: inner.rt.wall_micros(),
        };
        let figures = Figures::new(id, &wanted.keyspace, names, request, inner.rt.now());
        let figures = Rc::new(RefCell::new(figures));
        let all = work.iter().flat_map(|(_, units)| units);
        all.for_each(|unit| figures.borrow_mut().add_unit(share(unit.range), unit.hosts(&ring)));
        let (repair, shown) = (self.clone(), figures.clone());
        let Wanted { unless_since, full, .. } = wanted;
        let at_once = wanted.units_at_once.clamp(1, UNITS_AT_ONCE_MAX);
        let task = inner.rt.spawn(Group::Streaming, async move {
            for (table, units) in work {
                let one = |(place, unit): (usize, Unit)| {
                    let manner = Manner { unless_since, full, flush: place == 0 };
                    let (repair, table, ring, shown) = (&repair, &table, &ring, &shown);
                    async move { repair.0.unit(table, &unit, ring, manner, shown).await }
                };
                let units = futures_util::stream::iter(units.into_iter().enumerate());
                units.for_each_concurrent(at_once, one).await;
            }
            shown.borrow_mut().end(false, repair.0.rt.now());
        });
        inner.forget_old_jobs();
        inner.jobs.borrow_mut().insert(id, Job { figures, task: Some(task) });
        Ok(id)
    }

    fn tables(&self, wanted: &Wanted) -> Result<Vec<Arc<Table>>, RepairError> {
        let schema = self.0.context.schema();
        let unknown = || RepairError::UnknownKeyspace(wanted.keyspace.clone());
        let keyspace = schema.keyspace(&wanted.keyspace).ok_or_else(unknown)?;
        if wanted.tables.is_empty() {
            return Ok(keyspace.tables.values().cloned().collect());
        }
        let find = |name: &String| {
            let table = keyspace.tables.get(name).cloned();
            table.ok_or_else(|| RepairError::UnknownTable(wanted.keyspace.clone(), name.clone()))
        };
        wanted.tables.iter().map(find).collect()
    }

    /// The state of a job, on shard 0.
    pub fn status(&self, id: u64) -> Option<JobStatus> {
        let jobs = self.0.jobs.borrow();
        jobs.get(&id).map(|job| job.figures.borrow().status(self.0.rt.now()))
    }

    /// Waits until a job has ended, for some time at most; at once when there is none of this number.
    pub async fn ended(&self, id: u64, timeout: Option<Duration>) {
        let rt = &self.0.rt;
        let ended = async {
            while self.status(id).is_some_and(|job| job.state == JobState::Running) {
                rt.sleep(LOOK_PERIOD).await;
            }
        };
        match timeout {
            Some(timeout) => rt.timeout(timeout, ended).await.unwrap_or_default(),
            None => ended.await,
        }
    }

    /// The state of all remembered jobs, the oldest first; before them, as number 0, the automatic repair that runs
    /// now.
    pub fn statuses(&self) -> Vec<JobStatus> {
        let now = self.0.rt.now();
        let by_itself = self.0.by_itself.borrow().clone();
        let jobs = self.0.jobs.borrow();
        let all = by_itself.iter().chain(jobs.values().map(|job| &job.figures));
        all.map(|figures| figures.borrow().status(now)).collect()
    }

    /// Cancels a job; false when there is none of this number. Finished ranges stay recorded.
    pub async fn cancel(&self, id: u64) -> bool {
        let task = match self.0.jobs.borrow_mut().get_mut(&id) {
            Some(job) => job.task.take(),
            None => return false,
        };
        if let Some(task) = task {
            task.cancel().await;
        }
        if let Some(job) = self.0.jobs.borrow().get(&id) {
            job.figures.borrow_mut().end(true, self.0.rt.now());
        }
        true
    }
}

impl Inner {
    fn forget_old_jobs(&self) {
        let mut jobs = self.jobs.borrow_mut();
        while jobs.len() >= self.config.jobs_kept.max(1) {
            let over = jobs.iter().find(|(_, job)| job.figures.borrow().is_over()).map(|(id, _)| *id);
            match over {
                Some(id) => jobs.remove(&id),
                None => return,
            };
        }
    }

    /// The ranges of a table that this node is to repair.
    pub(crate) fn units(
        &self,
        members: &Members,
        table: &Table,
        options: &RepairOptions,
    ) -> Result<Vec<Unit>, PlanError> {
        let schema = self.context.schema();
        let Some(keyspace) = schema.keyspace(&table.keyspace) else { return Ok(Vec::new()) };
        let placement = members.place(keyspace, table);
        let kept: f64 = placement
            .ranges_of(members.own)
            .flat_map(straight)
            .map(share)
            .sum::<f64>()
            .max(f64::MIN_POSITIVE);
        let held = self.replica.engine().table_stats(table.id).map_or(0, |stats| {
            (stats.uncompressed_bytes + stats.memtable_bytes) * u64::from(self.rt.shard_count())
        });
        let ring_bytes = (held as f64 / kept) as u64;
        let options =
            RepairOptions { unit_bytes_max: self.config.unit_bytes_max, ring_bytes, ..options.clone() };
        plan(&members.ring, &placement, members.own, &options)
    }

    /// Repairs one range of one table, planned by this ring, and records it.
    pub(crate) async fn unit(
        &self,
        table: &Arc<Table>,
        unit: &Unit,
        ring: &Ring,
        manner: Manner,
        figures: &RefCell<Figures>,
    ) {
        let part = share(unit.range);
        let since = manner.unless_since;
        if since > 0 && self.history().current().oldest(table.id, unit.range, self.seconds()) >= since {
            return figures.borrow_mut().end_unit(0, part, None);
        }
        let _slot = self.unit_slots.acquire(1).await.expect("it is never closed");
        let number = figures.borrow_mut().next_unit();
        let progress = Progress { figures, unit: number };
        let mut done = self.try_unit(table, unit, ring, manner, progress).await;
        // A range compared by a stale topology version is compared again.
        for restart in 1..self.config.attempts_max {
            let Err(UnitError::Stale(why)) = &done else { break };
            tracing::info!("a repair of {} begins again: {why}", table.full_name());
            self.rt.sleep(self.config.pause * restart).await;
            done = self.try_unit(table, unit, ring, manner, progress).await;
        }
        self.count(|stats| match done {
            Ok(full) => {
                stats.ranges += 1;
                stats.ranges_incremental += u64::from(!full);
            }
            Err(_) => stats.ranges_failed += 1,
        });
        let failure = done.err().map(|error| {
            let (table, range) = (table.full_name(), unit.range);
            let text = format!("{table}, tokens ({}, {}]: {error}", range.after, range.upto);
            tracing::warn!("not repaired: {text}");
            text
        });
        figures.borrow_mut().end_unit(number, part, failure);
    }

    /// Whether everything was compared (a full repair).
    async fn try_unit(
        &self,
        table: &Arc<Table>,
        unit: &Unit,
        ring: &Ring,
        manner: Manner,
        progress: Progress<'_>,
    ) -> Result<bool, UnitError> {
        let topology = self.context.members().topology;
        let stable = self.is_stable(table, unit, ring)?;
        let settled = self.settle(table, unit, manner, topology).await?;
        let full = settled.bases.is_none();
        progress.figures.borrow_mut().begin_unit(progress.unit, settled.slices, full);
        let slices = (0..settled.slices).map(|number| {
            let slice = Slice { number, of: settled.slices };
            self.slice(table, unit.range, slice, &settled, progress)
        });
        try_join_all(slices).await?;
        // A replica that joined meanwhile, or is pending, may lack deletions that the others know.
        let stable = unit.complete && stable && self.is_stable(table, unit, ring)?;
        let now = self.context.members().topology;
        if now != topology {
            return Err(UnitError::Stale(format!(
                "topology version {topology} is stale, this node has {now}"
            )));
        }
        if stable {
            if let Some(skewed) = &settled.skewed {
                return Err(UnitError::Failed(format!(
                    "the rows are repaired, but the repair is not recorded, because deletions are purged by its time: {skewed}; \
                     correct the clocks and repair again"
                )));
            }
            self.close(&settled, table.id, unit.range).await?;
        }
        Ok(full)
    }

    /// Whether the participants are all replicas of the range, and will stay so. An error when they are not even those that
    /// were planned.
    fn is_stable(&self, table: &Table, unit: &Unit, ring: &Ring) -> Result<bool, String> {
        let members = self.context.members();
        let schema = self.context.schema();
        let keyspace = schema.keyspace(&table.keyspace);
        let keyspace = keyspace.ok_or_else(|| "the keyspace was dropped".to_owned())?;
        let placement = members.place(keyspace, table);
        let mut peers: Vec<NodeIndex> = placement.replicas(unit.range.upto).to_vec();
        peers.retain(|node| *node != members.own);
        peers.sort_unstable();
        let same = if unit.complete {
            peers == unit.peers
        } else {
            unit.peers.iter().all(|node| peers.contains(node))
        };
        if members.ring != *ring || !same {
            return Err(
                "the ring or the replication has changed since this was planned: repair again".to_owned()
            );
        }
        Ok(!members.changing)
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut RepairStats)) {
        let mut stats = self.stats.get();
        change(&mut stats);
        self.stats.set(stats);
    }

    /// Asks all participants whether they are up and agree on the table, and for their bases.
    async fn settle(
        &self,
        table: &Arc<Table>,
        unit: &Unit,
        manner: Manner,
        topology: u64,
    ) -> Result<Settled, UnitError> {
        let members = self.context.members();
        let hosts = live_hosts(&members, unit)?;
        let (range, flush) = (unit.range, manner.flush);
        let open = Open::Check { table: table.id, definition: definition(table), range, flush };
        let body = encode_open(&Opening { topology, open });
        let at = self.seconds();
        let ask = |host: &HostId| {
            let (host, body) = (*host, body.clone());
            async move {
                let named = |error: String| format!("host {}: {error}", host_name(host));
                let target = Target::Host { host, shard: 0 };
                // It may have to flush.
                let deadline = self.rt.now() + self.config.timeout * 3;
                let answer = self.messenger.call(target, Verb::RepairOpen, body, deadline).await;
                let answer = answer.map_err(|error| {
                    // Its topology version is behind: the range is retried when it has had time to catch up.
                    let is_behind = matches!(&error, RpcError::Refused(refusal) if refusal.code == TRY_AGAIN);
                    match UnitError::of_call(error, &named).1 {
                        UnitError::Failed(why) if is_behind => UnitError::Stale(why),
                        other => other,
                    }
                })?;
                let checked = decode_checked(&answer).map_err(|error| named(error.to_string()))?;
                let skew = skew(checked.seconds, at, self.seconds());
                let skewed = (skew > CLOCK_SECONDS_MAX).then(|| {
                    named(format!("its clock is {skew} s away from the clock of the node that repairs"))
                });
                Ok::<_, UnitError>((host, checked, skewed))
            }
        };
        let here = async {
            let checked = self.check(table.id, range, flush).await;
            checked.map_err(|error| UnitError::Failed(error.to_string()))
        };
        let (own, others) = try_join(here, try_join_all(hosts.iter().map(ask))).await?;
        if flush {
            self.flushed.borrow_mut().insert(table.id, self.rt.now());
        }
        let skewed: Vec<String> = others.iter().filter_map(|(_, _, skewed)| skewed.clone()).collect();
        let skewed = (!skewed.is_empty()).then(|| skewed.join(", "));
        let others = others.into_iter().map(|(host, checked, _)| (host, checked));
        let all: Vec<(HostId, Checked)> = std::iter::once((self.host, own)).chain(others).collect();
        // A deletion that is older than this by its node's clock was there when the repair began.
        let at = all.iter().map(|(_, checked)| checked.seconds).fold(at, Seconds::min);
        let nodes: Vec<(HostId, u16)> =
            all.iter().map(|(host, checked)| (*host, checked.shard_count)).collect();
        let (marks, bases): (Vec<_>, Vec<_>) =
            all.into_iter().map(|(_, checked)| (checked.marks, checked.base)).unzip();
        let bases = if manner.full { None } else { build_on(&bases) };
        let slices = members.slices(table, &nodes);
        let repaired = Arc::new(self.history().table(table.id));
        let rule = mutation::purge::PurgeRule::for_table(table, at, &repaired);
        // Grace counts only in a full repair: rows below the mark may need a deletion however old it is.
        let grace = rule.gc_before_of(unit.range.after, unit.range.upto);
        let gc_before = if bases.is_some() { 0 } else { grace };
        let (seed, session) = (self.rt.random_u64(), self.rt.random_u64());
        Ok(Settled { topology, nodes, bases, marks, session, slices, gc_before, at, skewed, seed })
    }

    /// Repairs one slice of a range, from its begin to its end.
    async fn slice(
        &self,
        table: &Arc<Table>,
        range: TokenRange,
        slice: Slice,
        settled: &Settled,
        progress: Progress<'_>,
    ) -> Result<(), UnitError> {
        let &Settled { gc_before, at: now, seed, .. } = settled;
        let scope = Scope { table: table.clone(), range, slice, now, gc_before, seed };
        let mut after: Option<Resume> = None;
        let (mut failures, mut bytes_max) = (0, self.config.segment_bytes);
        loop {
            let begun = self.rt.now();
            match self.one_step(&scope, settled, after.as_ref(), bytes_max).await {
                Ok((done, bytes)) => {
                    let ahead = done.upto.as_ref().map_or(range.upto, |upto| upto.key.token);
                    let part = share(TokenRange { upto: ahead, ..range }) / share(range);
                    progress.figures.borrow_mut().step((progress.unit, slice.number), part, &done, bytes);
                    self.count(|stats| {
                        stats.elements += done.elements;
                        stats.differing += done.differing;
                        stats.sent += done.sent;
                        stats.bytes += bytes;
                    });
                    self.pay(begun, bytes, settled.slices).await;
                    failures = 0;
                    match done.upto {
                        None => return Ok(()),
                        upto => after = upto,
                    }
                }
                Err((again, error)) => {
                    failures += 1;
                    if !again || failures >= self.config.attempts_max {
                        return Err(error);
                    }
                    // A smaller segment grows past its limit less easily, and a page of it takes less time.
                    bytes_max = (bytes_max / 2).max(16 << 10);
                    self.rt.sleep(self.config.pause * failures).await;
                }
            }
        }
    }

    /// Lets the slice's shard repair the next segment. An error says whether a retry may succeed.
    async fn one_step(
        &self,
        scope: &Scope,
        settled: &Settled,
        after: Option<&Resume>,
        bytes_max: u32,
    ) -> Result<(Done, u64), (bool, UnitError)> {
        let request = Request {
            scope: scope.clone(),
            after: after.cloned(),
            base: None,
            ask: Ask::Summary { bytes_max },
        };
        let mut encoded = Vec::new();
        encode_request(&request, &mut encoded);
        let nodes = settled.nodes.clone();
        let bases = settled.bases.clone().unwrap_or_default();
        let open = Open::Step { request: encoded.into(), nodes, bases };
        let body = encode_open(&Opening { topology: settled.topology, open });
        let shard = scope.slice.shards(self.rt.shard_count()).next().expect("a slice has a shard");
        if self.rt.buggify_fails("repair: a segment fails") {
            return Err((true, UnitError::Failed("the segment's shard was not reached".to_owned())));
        }
        // A step sends at most ten requests, one after the other.
        let deadline = self.rt.now() + self.config.timeout * 10;
        let target = Target::Host { host: self.host, shard };
        let answer = self.messenger.call(target, Verb::RepairOpen, body, deadline).await;
        let answer: Bytes = answer.map_err(|error| UnitError::of_call(error, |why| why))?;
        decode_done(&answer, &scope.table).map_err(|error| (false, UnitError::Failed(error.to_string())))
    }

    /// Waits until the rate limit admits the bytes of a step.
    async fn pay(&self, begun: Instant, bytes: u64, slices: u16) {
        // The units under way share the rate.
        let units = UNITS_AT_ONCE_MAX.saturating_sub(self.unit_slots.available()).max(1) as u64;
        let rate = self.settings.get().bytes_per_second / (u64::from(slices.max(1)) * units);
        if rate > 0 {
            let cost = Duration::from_secs_f64(bytes as f64 / rate as f64);
            self.rt.sleep_until(begun + cost).await;
        }
    }

    /// Records that a range was repaired, here and at all its replicas.
    async fn close(&self, settled: &Settled, table: TableId, range: TokenRange) -> Result<(), String> {
        let &Settled { topology, at, session, .. } = settled;
        let full = settled.bases.is_none();
        let of_node = |node: usize| Close {
            topology,
            table,
            range,
            at,
            full,
            session,
            marks: settled.marks[node].clone(),
        };
        self.record_durably(of_node(0)).await?;
        let tell = |(node, (host, _)): (usize, &(HostId, u16))| {
            let (host, body) = (*host, encode_close(&of_node(node)));
            async move {
                // That node retains its deletions for longer than necessary, and the next repair compares everything.
                if let Err(error) = self.notify_closed(host, body).await {
                    tracing::warn!("host {} has not heard of a repair: {error}", host_name(host));
                }
            }
        };
        join_all(settled.nodes.iter().enumerate().skip(1).map(tell)).await;
        Ok(())
    }

    async fn notify_closed(&self, host: HostId, body: Bytes) -> Result<(), RpcError> {
        let mut failures = 0;
        loop {
            let deadline = self.rt.now() + self.config.timeout;
            let target = Target::Host { host, shard: 0 };
            match self.messenger.call(target, Verb::RepairClose, body.clone(), deadline).await {
                Ok(_) => return Ok(()),
                Err(error) if failures >= CLOSE_RETRIES_MAX => return Err(error),
                Err(_) => failures += 1,
            }
            self.rt.sleep(self.config.pause * failures).await;
        }
    }
}

/// The hosts of a unit's peers.
///
/// # Errors
/// When one of them is down.
fn live_hosts(members: &Members, unit: &Unit) -> Result<Vec<HostId>, UnitError> {
    let host = |peer: &NodeIndex| {
        let host = members.ring.node(*peer).host;
        match members.alive.get(usize::from(peer.0)) {
            Some(true) => Ok(host),
            _ => Err(format!("host {} is down", host_name(host)).into()),
        }
    };
    unit.peers.iter().map(host).collect()
}

/// The difference of another clock, seconds at least, when it showed `theirs` between `sent` and `received` of the own clock.
fn skew(theirs: Seconds, sent: Seconds, received: Seconds) -> Seconds {
    sent.saturating_sub(theirs).max(theirs.saturating_sub(received.max(sent)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_an_answer_is_no_skew() {
        assert_eq!(skew(100, 100, 100), 0);
        assert_eq!(skew(190, 100, 200), 0, "it had to flush");
        assert_eq!((skew(39, 100, 200), skew(261, 100, 200)), (61, 61));
        assert_eq!(skew(100, 100, 40), 0, "the own clock was set back");
    }
}
