//! Repair by itself: each node keeps the ranges repaired of which it is the first replica.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mutation::Seconds;
use rt::Group;
use schema::{Replication, Table, TableId, TombstoneGc};
use topology::{Placement, Ring, TokenRange};

use crate::job::Figures;
use crate::master::Manner;
use crate::plan::{Ranges, RepairOptions, Unit, alone, share};
use crate::schedule::{Candidate, interval, next};
use crate::service::{Inner, Repair};
use crate::wire::Close;

/// How long after the start of the node the first repair begins at the earliest, and how often ranges that are due are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(60);
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

impl Inner {
    async fn keep_repaired(&self) {
        let since = self.seconds();
        let mut failed = Failed::new();
        loop {
            self.rt.sleep(LOOK_EVERY).await;
            self.forget_dropped().await;
            // Asked before each range: it may be disabled meanwhile.
            while self.settings.get().automatic {
                let now = self.seconds();
                failed.retain(|_, until| *until > now);
                let Some((table, unit, ring)) = self.due(since, now, &failed).await else { break };
                let begun = self.rt.now();
                let name = vec![table.name.clone()];
                let figures = Rc::new(RefCell::new(Figures::new(0, &table.keyspace, name, begun)));
                figures.borrow_mut().add_unit(share(unit.range), unit.hosts(&ring));
                *self.by_itself.borrow_mut() = Some(figures.clone());
                let manner = self.manner(&table, unit.range, now);
                self.unit(&table, &unit, &ring, manner, &figures).await;
                *self.by_itself.borrow_mut() = None;
                if !figures.borrow().status(self.rt.now()).failures.is_empty() {
                    failed.insert((table.id, unit.range), now + AFTER_FAILURE);
                }
                self.rt.sleep((self.rt.now() - begun) * REST).await;
            }
        }
    }

    /// Everything is compared from time to time, and else only new data.
    fn manner(&self, table: &Table, range: TokenRange, now: Seconds) -> Manner {
        let full_at = self.history().current().oldest_full(table.id, range);
        let flushed = self.flushed.borrow().get(&table.id).copied();
        Manner {
            unless_since: 0,
            full: full_at.saturating_add(self.settings.get().full_interval) <= now,
            flush: flushed.is_none_or(|at| self.rt.now() - at >= FLUSH_EVERY),
        }
    }

    /// The item that is due now, if anything is.
    async fn due(&self, since: Seconds, now: Seconds, failed: &Failed) -> Option<(Arc<Table>, Unit, Ring)> {
        let members = self.context.members();
        let schema = self.context.schema();
        let history = self.history().current();
        let options = RepairOptions { ranges: Ranges::Primary, ..RepairOptions::all() };
        let (mut units, mut candidates) = (Vec::new(), Vec::new());
        for keyspace in schema.keyspaces() {
            if keyspace.computed || keyspace.replication == Replication::Local {
                continue;
            }
            let placement = Placement::new(&members.ring, &keyspace.replication);
            for table in keyspace.tables.values() {
                if matches!(table.options.tombstone_gc, TombstoneGc::Repair { .. }) && !members.changing {
                    self.take_down_alone(table, alone(&placement, members.own), now).await;
                }
                // A plan of all datacenters names none that could be missing.
                for unit in self.units(&members, table, &options).unwrap_or_default() {
                    candidates.push(Candidate {
                        repaired: history.oldest(table.id, unit.range),
                        interval: interval(table, self.settings.get().interval_max),
                        not_before: failed.get(&(table.id, unit.range)).copied().unwrap_or(0),
                    });
                    units.push((table.clone(), unit));
                }
            }
        }
        let (at, due) = next(&candidates, since)?;
        let (table, unit) = units.swap_remove(at);
        (due <= now).then_some((table, unit, members.ring))
    }

    /// Data that nobody else keeps is as good as repaired.
    async fn take_down_alone(&self, table: &Table, ranges: Vec<TokenRange>, now: Seconds) {
        for range in ranges {
            if self.history().current().oldest(table.id, range) + ALONE_EVERY > now {
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
