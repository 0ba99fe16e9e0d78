//! Every read of a shard: where the rows of its table come from, and how long it took.

use std::cell::RefCell;
use std::rc::Rc;

use mutation::Row;
use replica::{Partitions, ReadCommand, ReadPage, RowLookup};
use rt::Instant;

use crate::admission::Admission;
use crate::computed::{ComputedRows, ComputedTables, read_computed};
use crate::context::Context;
use crate::kind::Kind;
use crate::latency::{Counters, RequestFigures};
use crate::local;
use crate::rate_check::RateCheck;
use crate::read::{read_here, read_replicas};
use crate::reader::ReadOptions;
use crate::{Consistency, Operation, RequestError, table_figures};

/// The reads of one shard.
#[derive(Default)]
pub(crate) struct Reads {
    keys: Counters,
    ranges: Counters,
    computed: RefCell<Option<Rc<dyn ComputedTables>>>,
}

impl Reads {
    /// Answers reads of computed keyspaces from `tables` from now on.
    pub(crate) fn compute_with(&self, tables: Rc<dyn ComputedTables>) {
        *self.computed.borrow_mut() = Some(tables);
    }

    /// Drops the source of computed tables' content, which may hold this shard.
    pub(crate) fn forget_computed(&self) {
        self.computed.take();
    }

    /// Reads of partitions by their keys, those of computed tables apart.
    pub(crate) fn figures(&self) -> RequestFigures {
        self.keys.figures()
    }

    /// Reads of ranges of partitions.
    pub(crate) fn range_figures(&self) -> RequestFigures {
        self.ranges.figures()
    }

    fn counters(&self, command: &ReadCommand) -> &Counters {
        match command.partitions {
            Partitions::Range(_) => &self.ranges,
            _ => &self.keys,
        }
    }

    /// Hands the live row that a lookup, of a request that began then, finds to `visit` where it lies, when this node is the only replica of the partition and its shard
    /// has all of it in memory; its result, and the tombstones in the row. None when the row has to be read, of which nothing was counted:
    /// also when the read is to fail.
    #[inline]
    pub(crate) fn row_here<T>(
        &self,
        context: &Context,
        lookup: &RowLookup<'_>,
        (consistency, began): (Consistency, Instant),
        visit: impl FnOnce(Option<&Row>) -> T,
    ) -> Option<(T, u64)> {
        let table = lookup.table;
        if table.is_rate_limited() || context.trace().is_some() {
            return None;
        }
        let erm = context.maps().of(table).ok()?;
        if !erm.is_replicated() || !erm.is_only_here(lookup.key.token) {
            return None;
        }
        erm.check_only_here(consistency).ok()?;
        let _under_way = Admission(&context).admit_own(&erm.view).ok()?;
        let seen = context.replica().row_here(lookup, began, visit)?;
        let now = context.rt().now();
        self.keys.ended(now - began, &Ok(()));
        context.count_request(table.id, table_figures::Kind::Read, began, now);
        Some(seen)
    }

    /// Reads.
    pub(crate) async fn read(
        &self,
        context: &Context,
        command: &ReadCommand,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<ReadPage, RequestError> {
        let kind = context.maps().kind(&command.table);
        let kind = kind.inspect_err(|error| self.counters(command).failed(error))?;
        if kind == Kind::Computed {
            context.record(|| format!("Computing {}", command.table.full_name()));
            let tables = self.computed.borrow().clone();
            let rows = match tables {
                Some(tables) => tables.rows(command).await,
                None => ComputedRows::All(Vec::new()),
            };
            // Boxed: the state for computed tables must not make every read's state larger.
            return Ok(Box::pin(read_computed(command, rows)).await);
        }
        if command.table.is_rate_limited()
            && let Partitions::Keys(keys) = &command.partitions
        {
            for key in keys {
                let checked = RateCheck(&context).check(&command.table, key.token, Operation::Read).await;
                checked.inspect_err(|error| self.keys.failed(error))?;
            }
        }
        let began = context.rt().now();
        if kind == Kind::Local {
            let result = local::read(context, command, consistency, deadline).await;
            self.counters(command).ended(context.rt().now() - began, &result);
            return result;
        }
        let erm = context.maps().of(&command.table)?;
        let is_only_here = erm.are_only_here(&command.partitions);
        let result = if is_only_here {
            read_here(context, erm, command, ReadOptions { consistency, deadline }).await
        } else {
            context.record(|| format!("Reading {} from replicas", command.table.full_name()));
            // Boxed: the state for several replicas must not make every read's state larger.
            Box::pin(read_replicas(context, erm, command, consistency, deadline)).await
        };
        let now = context.rt().now();
        if !is_only_here {
            context.read_latencies().note(command, (began, now), || context.schema());
        }
        self.counters(command).ended(now - began, &result);
        context.count_request(command.table.id, table_figures::Kind::of(command), began, now);
        result
    }
}
