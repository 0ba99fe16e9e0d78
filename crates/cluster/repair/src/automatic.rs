//! Repair by itself: each node keeps the ranges repaired of which it is the first replica.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mutation::Seconds;
use rt::Group;
use rt::preempt::Pace;
use schema::{Replication, Schema, Table, TableId, TombstoneGc};
use stdx::murmur3::hash128;
use topology::{Placement, Ring, TokenRange};

use crate::job::{Figures, JobRequest};
use crate::master::Manner;
use crate::plan::{Ranges, RepairOptions, Unit, alone, share};
use crate::schedule::{Candidate, Earliest, interval};
use crate::service::{Inner, Repair};
use crate::wire::Close;

/// How long after the start of the node the first repair begins at the earliest, and how often ranges that are due are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// A look is not left out for longer than this: deletions of data without other replicas are released by it.
const LOOK_AT_LEAST_EVERY: Seconds = 600;
/// Ranges that are taken from one look.
const RANGES_A_LOOK: usize = 64;
/// A range that could not be repaired is left alone for so long.
const AFTER_FAILURE: Seconds = 600;
/// After a range it rests for so many times as long as that took.
const REST: u32 = 3;
/// The replicas of a table are asked to flush at most so often.
const FLUSH_EVERY: Duration = Duration::from_secs(900);
/// Ranges without other replicas are taken down so often.
const ALONE_EVERY: Seconds = 3_600;

/// Which range of which table, and until when it is left alone.
type Failed = BTreeMap<(TableId, TokenRange), Seconds>;

impl Repair {
    /// Repairs ranges as they become due from now on, on shard 0.
    pub(crate) fn begin_automatic(&self) {
        let repair = self.clone();
        let task = self.0.rt.spawn(Group::Streaming, async move { repair.0.keep_repaired().await });
        *self.0.scheduler.borrow_mut() = Some(task);
    }
}

/// The ranges that were due at one look, the first first.
struct Due {
    ranges: Vec<(Arc<Table>, Unit, Seconds)>,
    ring: Ring,
    topology: u64,
}

/// No range is due before a time, unless the schema, the ring or the settings change.
struct Idle {
    until: Seconds,
    schema: Arc<Schema>,
    topology: u64,
    interval_max: Seconds,
}

impl Inner {
    async fn keep_repaired(&self) {
        let since = self.seconds();
        let (mut failed, mut idle) = (Failed::new(), None);
        loop {
            self.rt.sleep(LOOK_EVERY).await;
            self.forget_dropped().await;
            while self.settings.get().automatic {
                let now = self.seconds();
                failed.retain(|_, until| *until > now);
                let due = self.due(since, now, &failed, &mut idle).await;
                if due.ranges.is_empty() {
                    break;
                }
                self.repair_due(due, &mut failed).await;
            }
        }
    }

    async fn repair_due(&self, due: Due, failed: &mut Failed) {
        for (table, unit, repaired) in due.ranges {
            // Before each range: an operator may have disabled it or repaired the range, and the ring may have changed.
            if !self.settings.get().automatic || self.context.members().topology != due.topology {
                return;
            }
            let (now, begun) = (self.seconds(), self.rt.now());
            if self.history().current().oldest(table.id, unit.range, now) != repaired {
                continue;
            }
            let name = vec![table.name.clone()];
            let manner = self.manner(&table, unit.range, now);
            let request = JobRequest {
                options: RepairOptions { ranges: Ranges::Primary, ..RepairOptions::all() },
                full: manner.full,
                begun_micros: self.rt.wall_micros(),
            };
            let figures = Rc::new(RefCell::new(Figures::new(0, &table.keyspace, name, request, begun)));
            figures.borrow_mut().add_unit(share(unit.range), unit.hosts(&due.ring));
            *self.by_itself.borrow_mut() = Some(figures.clone());
            self.unit(&table, &unit, &due.ring, manner, &figures).await;
            *self.by_itself.borrow_mut() = None;
            if !figures.borrow().status(self.rt.now()).failures.is_empty() {
                failed.insert((table.id, unit.range), now + AFTER_FAILURE);
            }
            self.rt.sleep((self.rt.now() - begun) * REST).await;
        }
    }

    /// Everything is compared from time to time, and else only new data.
    fn manner(&self, table: &Table, range: TokenRange, now: Seconds) -> Manner {
        let full_at = self.history().current().oldest_full(table.id, range, now);
        let flushed = self.flushed.borrow().get(&table.id).copied();
        Manner {
            unless_since: 0,
            full: full_at.saturating_add(self.settings.get().full_interval) <= now,
            flush: flushed.is_none_or(|at| self.rt.now() - at >= FLUSH_EVERY),
        }
    }

    /// The ranges that are due now, so many at most. With thousands of tables a look takes a while, so that it gives several, and is left out
    /// while nothing can be due.
    async fn due(&self, since: Seconds, now: Seconds, failed: &Failed, idle: &mut Option<Idle>) -> Due {
        let members = self.context.members();
        let schema = self.context.schema();
        let interval_max = self.settings.get().interval_max;
        let topology = members.topology;
        let is_idle = |idle: &Idle| {
            now < idle.until
                && Arc::ptr_eq(&idle.schema, &schema)
                && (idle.topology, idle.interval_max) == (topology, interval_max)
        };
        // While ranges move nothing is recorded as repaired.
        if members.changing || idle.as_ref().is_some_and(is_idle) {
            return Due { ranges: Vec::new(), ring: members.ring, topology };
        }
        let history = self.history().current();
        let options = RepairOptions { ranges: Ranges::Primary, ..RepairOptions::all() };
        let (mut earliest, mut pace) = (Earliest::new(RANGES_A_LOOK), Pace::new());
        for keyspace in schema.keyspaces() {
            if keyspace.computed || keyspace.replication == Replication::Local {
                continue;
            }
            let placement = Placement::new(&members.ring, &keyspace.replication);
            for table in keyspace.tables.values() {
                let waits = matches!(table.options.tombstone_gc, TombstoneGc::Repair { .. });
                if waits || table.options.only_purges_repaired() {
                    self.take_down_alone(table, alone(&placement, members.own), now).await;
                }
                let interval = interval(table, interval_max);
                // A plan of all datacenters names none that could be missing.
                for unit in self.units(&members, table, &options).unwrap_or_default() {
                    let repaired = history.oldest(table.id, unit.range, now);
                    let not_before = failed.get(&(table.id, unit.range)).copied().unwrap_or(0);
                    let place = place(table.id, unit.range, since);
                    let due = Candidate { repaired, interval, not_before, place }.due(since);
                    earliest.offer(due, || (table.clone(), unit, repaired));
                    pace.step().await;
                }
            }
        }
        let mut found = earliest.into_sorted();
        let until = found.first().map_or(Seconds::MAX, |(due, _)| *due).min(now + LOOK_AT_LEAST_EVERY);
        *idle = Some(Idle { until, schema: schema.clone(), topology, interval_max });
        found.retain(|(due, _)| *due <= now);
        Due { ranges: found.into_iter().map(|(_, range)| range).collect(), ring: members.ring, topology }
    }

    /// Data that nobody else keeps is as good as repaired.
    async fn take_down_alone(&self, table: &Table, ranges: Vec<TokenRange>, now: Seconds) {
        for range in ranges {
            if self.history().current().oldest(table.id, range, now) + ALONE_EVERY > now {
                continue;
            }
            let topology = self.context.members().topology;
            let (session, marks) = (0, Vec::new());
            let close = Close { topology, table: table.id, range, at: now, full: true, session, marks };
            if let Err(error) = self.record(close).await {
                return tracing::warn!("the history of repairs cannot be written: {error}");
            }
        }
    }

    /// Tables that are gone have no history.
    async fn forget_dropped(&self) {
        let schema = self.context.schema();
        let forget = self.history().change(|history| {
            history.retain(|table| schema.table_by_id(table).is_some());
        });
        if let Err(error) = forget.await {
            tracing::warn!("the history of repairs cannot be written: {error}");
        }
    }
}

/// Where a range lies among those that were never repaired; another place after each start, so that a node that starts often leaves nothing
/// out for ever.
fn place(table: TableId, range: TokenRange, since: Seconds) -> u64 {
    let mut bytes = table.0.to_vec();
    bytes.extend_from_slice(&range.upto.to_be_bytes());
    bytes.extend_from_slice(&since.to_be_bytes());
    hash128(&bytes, 0)[0]
}
