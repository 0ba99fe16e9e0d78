//! Aggregations over a token range in parts: the rows of each are added where they are, by a shard of one of their replicas, and only the
//! states travel (docs/design/query.md, *Aggregations in parts*).
//!
//! A part is a statement's text, its values, and a read of a token range. The shard that gets it makes the same plan, coordinates the read at the
//! consistency level of the request, and answers with the states, after [`PART_TIME`] at the latest: with the place to resume from, then. The
//! coordinator merges the states in ring order, so that the result is that of adding the rows one after another. Where no other shard does a
//! part, the coordinator does it itself.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use coordinator::RangePart;
use futures_util::stream::{self, StreamExt};
use mutation::{PartitionRange, RingPosition};
use replica::{Partitions, ReadCommand, ReadPage};
use rt::Instant;
use rt::preempt::Pace;
use stdx::Reader;
use topology::HostId;

use super::part_codec::{PartAnswer, encode_request};
use super::read::read;
use super::{SelectPlan, Source};
use crate::backend::Coordinator;
use crate::error::{ExecError, Result};
use crate::expr::Env;
use crate::expr::row::{RowView, key_components};
use crate::functions::{Aggregate, AggregateState};
use crate::request::{Request, TimeoutKind};
use crate::where_clause::access::AccessPath;
use crate::where_clause::filter::BoundFilter;

/// How long a shard works on a part before it answers with the states so far: so long it continues when the client has gone.
pub(crate) const PART_TIME: Duration = Duration::from_millis(250);
/// Pages of rows that a part is to have, about.
const PAGES_PER_PART: i128 = 4;
/// A shard answers, too, when the states have so many bytes.
const PART_BYTES_MAX: usize = 1 << 20;
/// Parts of one statement under way, for each shard that works on them and in all.
const PARTS_PER_SHARD: usize = 2;
const PARTS_AT_ONCE_MAX: usize = 32;
/// Another shard that has not answered after this part of the statement's timeout is not waited for: its part is read from here.
const ASKED_TIMEOUTS: u32 = 4;

/// Whether a statement may be divided: an aggregation of a token range to one group, by functions whose states or values can be sent, whose
/// terms are the same wherever they are evaluated. One that is traced has all its steps on this shard.
pub(crate) fn divides(plan: &SelectPlan, request: &Request<'_>, command: &ReadCommand) -> bool {
    let selection = &plan.selection;
    let is_scan = matches!(plan.access, AccessPath::Range(_) | AccessPath::Full(_));
    let is_one_group = selection.is_aggregate() && plan.group_width.is_none() && !plan.distinct;
    let is_plain = !selection.calls_in_groups() && plan.calls.is_empty() && plan.fragments_of.is_none();
    is_scan
        && is_one_group
        && is_plain
        && plan.source.is_some()
        && request.trace.is_none()
        && !request.consistency.is_serial()
        && command.resume.is_none()
        && matches!(command.partitions, Partitions::Range(_))
}

/// The statement of which parts are done.
pub(crate) struct Divided<'a, C> {
    pub(super) plan: &'a SelectPlan,
    pub(super) coordinator: &'a C,
    pub(super) request: &'a Request<'a>,
    pub(super) env: &'a Env<'a>,
    pub(super) filters: &'a [BoundFilter<'a>],
    /// Nodes that have not done a part.
    failed: RefCell<BTreeSet<HostId>>,
}

impl<'a, C: Coordinator> Divided<'a, C> {
    pub(crate) fn new(
        plan: &'a SelectPlan,
        coordinator: &'a C,
        request: &'a Request<'a>,
        env: &'a Env<'a>,
        filters: &'a [BoundFilter<'a>],
    ) -> Self {
        Self { plan, coordinator, request, env, filters, failed: RefCell::default() }
    }

    /// The parts of the rest of a read: their commands, and the shards that work on them.
    ///
    /// # Errors
    /// When the keyspace is gone.
    pub(super) fn parts(&self, command: &ReadCommand) -> Result<Vec<(ReadCommand, RangePart)>> {
        let Partitions::Range(range) = &command.partitions else { return Ok(Vec::new()) };
        let mut resume = command.resume.clone();
        let start = match &resume {
            Some(place) if place.clustering.is_some() => RingPosition::BeforeKey(place.key.clone()),
            Some(place) => RingPosition::AfterKey(place.key.clone()),
            None => range.start.clone(),
        };
        resume = resume.filter(|place| place.clustering.is_some());
        let rest = PartitionRange { start, end: range.end.clone() };
        // As many rows lie in as many tokens.
        let width = (i128::from(rest.start.token()) - i128::from(range.start.token())) * PAGES_PER_PART;
        let parts = self.coordinator.range_parts(&self.plan.table, &rest, width)?;
        let of = |part: RangePart| {
            let partitions = Partitions::Range(part.range.clone());
            (ReadCommand { partitions, resume: resume.take(), ..command.clone() }, part)
        };
        Ok(parts.into_iter().map(of).collect())
    }

    /// The answers to parts in their order, several at once.
    pub(super) fn answers(
        &self,
        parts: Vec<(ReadCommand, RangePart)>,
    ) -> impl stream::Stream<Item = Result<(PartAnswer, ReadCommand, RangePart)>> {
        let workers: BTreeSet<_> = parts.iter().map(|(_, part)| part.by).collect();
        let at_once = (workers.len() * PARTS_PER_SHARD).clamp(1, PARTS_AT_ONCE_MAX);
        stream::iter(parts).map(|(command, part)| self.answer(command, part)).buffered(at_once)
    }

    /// The states of a part, of all of it if they are small, and the read of its rest.
    ///
    /// # Errors
    /// Those of its reads.
    pub(super) async fn answer(
        &self,
        mut command: ReadCommand,
        part: RangePart,
    ) -> Result<(PartAnswer, ReadCommand, RangePart)> {
        let mut whole: Option<PartAnswer> = None;
        loop {
            let mut next = self.ask(&command, &part).await?;
            command.resume = next.resume.clone();
            if let Some(before) = whole.take() {
                next.tombstones += before.tombstones;
                let mut states = before.states;
                for (state, behind) in states.iter_mut().zip(next.states) {
                    join(state, behind);
                }
                next.states = states;
            }
            let held: usize = next.states.iter().map(AggregateState::held_bytes).sum();
            if next.resume.is_none() || held >= PART_BYTES_MAX {
                return Ok((next, command, part));
            }
            whole = Some(next);
        }
    }

    /// The states of a part up to where its shard, or this one, leaves off.
    async fn ask(&self, command: &ReadCommand, part: &RangePart) -> Result<PartAnswer> {
        if let Some(by) = part.by
            && !self.failed.borrow().contains(&by.0)
        {
            match self.ask_other(by, command).await {
                Some(answer) => return Ok(answer),
                None => self.failed.borrow_mut().insert(by.0),
            };
        }
        let until = self.request.instant() + PART_TIME;
        add_rows(self, command.clone(), until).await
    }

    /// The answer of another shard; none when it has none.
    async fn ask_other(&self, by: (HostId, u16), command: &ReadCommand) -> Option<PartAnswer> {
        let source: &Source = self.plan.source.as_ref()?;
        let schema = self.coordinator.schema().version();
        let body = encode_request(source, schema, self.request.consistency, self.env.binds, command);
        let time = self.request.timeout(TimeoutKind::Range) / ASKED_TIMEOUTS;
        let deadline = self.request.deadline(TimeoutKind::Range).min(self.request.instant() + time);
        // The reason does not matter: this shard reads the rows itself, and meets the same fault, if it is one of theirs.
        let answer = self.coordinator.ask_for_part(by, body, deadline).await.ok()?;
        PartAnswer::decode(&answer, self.plan)
    }
}

/// Adds the states of later rows of a part.
fn join(state: &mut AggregateState, behind: AggregateState) {
    match (state, behind) {
        (AggregateState::CountRows(rows), AggregateState::CountRows(behind)) => *rows += behind,
        (AggregateState::Native(native), AggregateState::Native(behind)) => native.merge(&behind),
        (AggregateState::Values(values), AggregateState::Values(behind)) => values.extend_from_slice(&behind),
        (AggregateState::First(first), AggregateState::First(behind)) => {
            if first.is_none() {
                *first = behind;
            }
        }
        _ => unreachable!("states of the same aggregates in the same order"),
    }
}

/// Adds the states of a part to those of all rows before it.
///
/// # Errors
/// As [`AggregateState::add`] of values that were not added in the part.
pub(super) async fn merge(
    states: &mut [AggregateState],
    part: Vec<AggregateState>,
    pace: &mut Pace,
) -> Result<()> {
    for (state, behind) in states.iter_mut().zip(part) {
        let AggregateState::Values(values) = behind else {
            join(state, behind);
            continue;
        };
        let values = Bytes::from(values);
        let mut reader = Reader::new(&values);
        while !reader.is_empty() {
            let Ok(value) = reader.bytes_vint() else {
                return Err(ExecError::invalid("A node sent damaged values of an aggregation"));
            };
            state.add(Some(values.slice_ref(value)))?;
            pace.step().await;
        }
    }
    Ok(())
}

/// Adds the rows of a read until it ends, the time is over, or the states are large.
pub(crate) async fn add_rows<C: Coordinator>(
    divided: &Divided<'_, C>,
    mut command: ReadCommand,
    until: Instant,
) -> Result<PartAnswer> {
    let (plan, request) = (divided.plan, divided.request);
    let kinds = plan.selection.aggregates.iter().map(|aggregate| &aggregate.kind);
    let mut states: Vec<AggregateState> = kinds.map(AggregateState::of_part).collect();
    let (mut tombstones, mut pace) = (0, Pace::new());
    command.limits.rows = C::AGGREGATED_ROWS;
    loop {
        let deadline = request.deadline(TimeoutKind::Range);
        let page = read(divided.coordinator, request, &command, deadline).await?;
        tombstones += page.tombstones;
        add_page(divided, &page, &mut states, &mut pace).await?;
        command.resume = page.more;
        let held: usize = states.iter().map(AggregateState::held_bytes).sum();
        crate::sink::check_result_bytes(held)?;
        if command.resume.is_none() || held >= PART_BYTES_MAX || request.instant() >= until {
            return Ok(PartAnswer { states, tombstones, resume: command.resume });
        }
    }
}

async fn add_page<C>(
    divided: &Divided<'_, C>,
    page: &ReadPage,
    states: &mut [AggregateState],
    pace: &mut Pace,
) -> Result<()> {
    let (plan, now) = (divided.plan, divided.request.now);
    let only_counts = divided.filters.is_empty()
        && plan.selection.aggregates.iter().all(|aggregate| matches!(aggregate.kind, Aggregate::CountRows));
    for partition in &page.partitions {
        if only_counts {
            let rows = plan.rows_of(partition, now).count() as i64;
            for state in &mut *states {
                if let AggregateState::CountRows(counted) = state {
                    *counted += rows;
                }
            }
            pace.step().await;
            continue;
        }
        let key = key_components(&plan.table, &partition.key.key);
        let statics = partition.static_row.as_ref();
        for row in plan.rows_of(partition, now) {
            let view = RowView::new(&key, statics, row, now);
            if divided.filters.iter().all(|filter| filter.matches(&view)) {
                add_values(plan, &divided.env.with_row(&view), states)?;
            }
            pace.count(divided.env.call.take_steps());
            pace.step().await;
        }
    }
    Ok(())
}

/// Adds a row to the states of native aggregates.
///
/// # Errors
/// As of its values, of [`AggregateState::add`], and when the states become too large.
#[inline]
pub(super) fn add_values(plan: &SelectPlan, env: &Env<'_>, states: &mut [AggregateState]) -> Result<()> {
    let mut held = 0;
    for (state, call) in states.iter_mut().zip(&plan.selection.aggregates) {
        let value = match call.inputs.first() {
            Some(input) => input.eval_option(env)?,
            None => None,
        };
        state.add(value)?;
        held += state.held_bytes();
        crate::sink::check_result_bytes(held)?;
    }
    Ok(())
}
