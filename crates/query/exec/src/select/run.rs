//! Carrying out a SELECT: pages are read, rows filtered, grouped or sorted, and handed to the sink as they come.

use std::collections::VecDeque;
use std::pin::pin;

use bytes::Bytes;
use coordinator::RangePart;
use futures_util::stream::{FuturesUnordered, StreamExt};
use mutation::{DecoratedKey, PartitionRange, Row, Slices};
use replica::{Form, Limits, PartitionResult, Partitions, ReadCommand, ReadPage, Resume};
use rt::preempt::Pace;
use schema::TableId;

use super::SelectPlan;
use super::nearest::{Found, Nearest};
use super::pages::Pages;
use super::parts;
use super::reach::{check_reach, paged_table, position};
use super::read::{READ_BYTES_MAX, SCAN_ROWS};
use super::reduce;
use super::row_lookup::{run_here, tombstone_warning};
use super::sort::Sorted;
use crate::backend::Coordinator;
use crate::error::{ExecError, Result, invalid};
use crate::expr::calls::{self, Caller};
use crate::expr::row::{RowView, key_components};
use crate::expr::{Env, Expr, Value};
use crate::functions::AggregateState;
use crate::request::{Request, TimeoutKind};
use crate::sink::{PagingState, RESULT_BYTES_MAX, RowSink, RowsPosition, Sink, check_result_bytes};
use crate::where_clause::access::{AccessPath, Scope};
use crate::where_clause::bounds;
use crate::where_clause::filter::BoundFilter;
use crate::where_clause::rows::TokenRange;

/// A page of a paged result ends when it has grown to so many bytes, however few rows it has.
const PAGE_BYTES_MAX: usize = 8 << 20;

/// Runs a SELECT and yields its rows; returns their bytes, as the sink counts them.
///
/// # Errors
/// When values do not fit the statement, replicas do not answer in time, or the result becomes too large.
pub async fn run<'a, C: Coordinator, S: Sink>(
    plan: &'a SelectPlan,
    coordinator: &'a C,
    request: &'a Request<'a>,
    env: &'a Env<'a>,
    runtime: &'a udf::Runtime,
    out: &mut S,
) -> Result<usize> {
    let state = position(plan, request, coordinator)?;
    let limit = limit_value(plan.limit.as_ref(), env)?;
    let per_partition = limit_value(plan.per_partition_limit.as_ref(), env)?;
    plan.aggregation_warning().into_iter().for_each(|warning| out.warn(warning.to_owned()));
    let filters = plan.filters.iter().map(|one| one.bind(env)).collect::<Result<Vec<_>>>()?;
    let partitions = partitions(plan, request, env)?;
    let slices = bounds::slices(&plan.table, plan.access.rows(), env)?;
    check_reach(state, partitions.as_ref(), &slices)?;
    if plan.is_row_lookup
        && let Some(partitions) = &partitions
        && let Some(bytes) = run_here(plan, coordinator, request, env, (partitions, &slices), out)?
    {
        return Ok(bytes);
    }
    let mut caller = Caller::new(runtime, request.time_left(TimeoutKind::Range));
    let mut rows = out.rows(&plan.selection.result);
    let nothing = slices.ranges().is_empty() && !plan.static_rows;
    let (Some(partitions), false) = (partitions, nothing) else {
        Box::pin(write_nothing(plan, env, &mut caller, &mut rows)).await?;
        let bytes = rows.byte_count();
        drop(rows);
        caller.warnings.into_iter().for_each(|warning| out.warn(warning));
        return Ok(bytes);
    };
    let counts_here = !filters.is_empty() || plan.group_width.is_some() || plan.uses_index();
    let (per_partition, sent) = rows_per_partition(plan, per_partition, counts_here);
    let command = command(plan, request, partitions, slices, state, sent);
    let left = state.map_or(limit, |state| state.left.min(limit));
    let wanted = (filters.as_slice(), left, &command);
    let mut found = Nearest::of_plan(plan, coordinator, request, env, wanted).await?;
    caller.warnings.extend(found.as_ref().and_then(|found| page_warning(found, request, limit)));
    let context = found.as_mut().and_then(|found| found.relevance.take()).map(|of| env.call.of_search(of));
    let env = &Env { call: context.as_ref().unwrap_or(env.call), ..*env };
    let mut pages = Pages::new(plan, coordinator, request, env, (command, left))?;
    let mut emitter = Emitter {
        plan,
        request,
        env,
        filters,
        rows,
        left,
        page_left: request.page_size.map_or(u64::MAX, u64::from),
        per_partition,
        counts_here,
        first_that_passes: plan.takes_first_that_passes(),
        paged_table: paged_table(plan, coordinator),
        place: state.map(|state| state.resume.clone()),
        pace: Pace::new(),
        caller,
        called: None,
    };
    let tombstones = emitter.run(&mut pages, found).await?;
    let (count, bytes) = (emitter.rows.row_count(), emitter.rows.byte_count());
    let warnings = std::mem::take(&mut emitter.caller.warnings);
    drop(emitter);
    warnings.into_iter().for_each(|warning| out.warn(warning));
    if let Some(warning) = tombstone_warning(plan, request, count, tombstones) {
        out.warn(warning);
    }
    Ok(bytes)
}

/// Runs a plan if it looks up one row, and that row is in this shard's memory; the bytes of the result, as the sink counts them. None when
/// [`run`] is to be used: the sink has taken nothing then.
///
/// # Errors
/// When values do not fit the statement, or an output cannot be computed.
#[inline]
pub fn run_now<C: Coordinator, S: Sink>(
    plan: &SelectPlan,
    coordinator: &C,
    request: &Request<'_>,
    env: &Env<'_>,
    out: &mut S,
) -> Result<Option<usize>> {
    if !plan.is_row_lookup {
        return Ok(None);
    }
    // One row is within each limit that is valid.
    for limit in [&plan.limit, &plan.per_partition_limit] {
        limit_value(limit.as_ref(), env)?;
    }
    let Some(partitions) = partitions(plan, request, env)? else { return Ok(None) };
    let slices = bounds::slices(&plan.table, plan.access.rows(), env)?;
    run_here(plan, coordinator, request, env, (&partitions, &slices), out)
}

/// Writes the result over no rows, which an aggregation without groups has.
async fn write_nothing(
    plan: &SelectPlan,
    env: &Env<'_>,
    caller: &mut Caller<'_>,
    rows: &mut impl RowSink,
) -> Result<()> {
    if !plan.selection.is_aggregate() || plan.group_width.is_some() {
        return Ok(());
    }
    let mut states = new_states(plan);
    let called = end_states(plan, env, caller, &mut states).await?;
    write_group(plan, &Env { called: &called, ..*env }, &states, rows)
}

/// Which partitions to read; none when there cannot be any.
pub(crate) fn partitions(
    plan: &SelectPlan,
    request: &Request<'_>,
    env: &Env<'_>,
) -> Result<Option<Partitions>> {
    let range = |token: &Option<TokenRange>| match token {
        None => Ok(Some(PartitionRange::all())),
        Some(token) => bounds::token_range(token, env),
    };
    let access = match plan.access.scope() {
        Scope::Range(access) => return Ok(range(&access.token)?.map(Partitions::Range)),
        Scope::Partitions(access) => access,
    };
    let mut keys = bounds::partition_keys(&plan.table, &access.keys, env)?;
    if access.token.is_some() {
        match range(&access.token)? {
            Some(range) => keys.retain(|key| range.contains(key)),
            None => return Ok(None),
        }
    }
    if request.consistency.is_serial() && keys.len() > 1 {
        return invalid!("SERIAL/LOCAL_SERIAL consistency may only be requested for one partition at a time");
    }
    Ok(if keys.is_empty() { None } else { Some(Partitions::Keys(keys)) })
}

/// Rows of a partition that the result takes, and those that replicas send of it.
fn rows_per_partition(plan: &SelectPlan, limit: u64, counts_here: bool) -> (u64, u64) {
    match plan.distinct {
        true if plan.takes_first_that_passes() => (1, u64::MAX),
        true => (limit, 1),
        false => (limit, if counts_here { u64::MAX } else { limit }),
    }
}

/// The value of a LIMIT; the largest number where there is none.
///
/// # Errors
/// When it is null, not positive, or no number.
pub(crate) fn limit_value(limit: Option<&Expr>, env: &Env<'_>) -> Result<u64> {
    let Some(limit) = limit else { return Ok(u64::MAX) };
    match limit.eval(env)? {
        Value::Unset => Ok(u64::MAX),
        Value::Null => invalid!("Invalid null value of limit"),
        Value::Set(bytes) => match <[u8; 4]>::try_from(&*bytes).map(i32::from_be_bytes) {
            Ok(limit) if limit > 0 => Ok(u64::from(limit.unsigned_abs())),
            Ok(_) => invalid!("LIMIT must be strictly positive"),
            Err(_) => invalid!("Invalid limit value"),
        },
    }
}

fn command(
    plan: &SelectPlan,
    request: &Request<'_>,
    partitions: Partitions,
    slices: Slices,
    state: Option<&RowsPosition>,
    per_partition: u64,
) -> ReadCommand {
    ReadCommand {
        table: plan.table.clone(),
        partitions,
        slices,
        columns: plan.fetch.clone(),
        reversed: plan.reversed,
        limits: Limits { rows: u64::MAX, rows_per_partition: per_partition, bytes: READ_BYTES_MAX },
        resume: state.map(|state| state.resume.clone()),
        now: request.now,
        bypass_cache: plan.bypass_cache,
        form: Form::Live,
        index: None,
    }
}

fn new_states(plan: &SelectPlan) -> Vec<AggregateState> {
    plan.selection.aggregates.iter().map(|aggregate| AggregateState::new(&aggregate.kind)).collect()
}

fn write_group(
    plan: &SelectPlan,
    env: &Env<'_>,
    states: &[AggregateState],
    rows: &mut impl RowSink,
) -> Result<()> {
    let results = states.iter().map(AggregateState::result).collect::<Result<Vec<Option<Bytes>>>>()?;
    let env = Env { aggregates: &results, ..*env };
    plan.selection.write(&env, rows)
}

/// Makes the calls with which a group ends: the last functions of user-defined aggregates, whose results become their states,
/// and then those of the select clause, whose results are returned.
async fn end_states(
    plan: &SelectPlan,
    env: &Env<'_>,
    caller: &mut Caller<'_>,
    states: &mut [AggregateState],
) -> Result<Vec<Option<Bytes>>> {
    if !plan.selection.calls_in_groups() {
        return Ok(Vec::new());
    }
    for state in &mut *states {
        if let AggregateState::User(user, value) = state
            && let Some(ends) = &user.ends
        {
            *value = caller.call(ends, std::slice::from_ref(value)).await?;
        }
    }
    let results = states.iter().map(AggregateState::result).collect::<Result<Vec<Option<Bytes>>>>()?;
    caller.row(&plan.selection.group_calls, &Env { aggregates: &results, ..*env }).await
}

/// Adds a row to the aggregates of a plan that calls user-defined functions.
async fn add_row(
    plan: &SelectPlan,
    env: &Env<'_>,
    caller: &mut Caller<'_>,
    states: &mut [AggregateState],
) -> Result<()> {
    let called = caller.row(&plan.selection.row_calls, env).await?;
    let env = Env { called: &called, ..*env };
    let mut held = 0;
    for (state, aggregate) in states.iter_mut().zip(&plan.selection.aggregates) {
        match state {
            AggregateState::User(user, value) => {
                let mut arguments = calls::arguments(&user.adds, &aggregate.inputs, &env)?;
                if user.adds.called_on_null_input || arguments.iter().all(Option::is_some) {
                    arguments.insert(0, value.clone());
                    *value = caller.call(&user.adds, &arguments).await?;
                }
            }
            _ => {
                let value = match aggregate.inputs.first() {
                    Some(input) => input.eval_option(&env)?,
                    None => None,
                };
                state.add(value)?;
            }
        }
        held += state.held_bytes();
        check_result_bytes(held)?;
    }
    Ok(())
}

/// Hands rows to the sink and knows when to stop.
struct Emitter<'a, R> {
    plan: &'a SelectPlan,
    request: &'a Request<'a>,
    env: &'a Env<'a>,
    filters: Vec<BoundFilter<'a>>,
    rows: R,
    /// Rows or groups that LIMIT still allows.
    left: u64,
    /// Rows or groups that the page still takes.
    page_left: u64,
    per_partition: u64,
    /// Whether PER PARTITION LIMIT is counted here: rows that do not pass the filters do not count.
    counts_here: bool,
    /// Whether the first row of a partition that passes the filters stands for it.
    first_that_passes: bool,
    /// The table that its paging state names.
    paged_table: TableId,
    /// The last row (or last row of the last group) that was returned.
    place: Option<Resume>,
    /// Other tasks run between rows when they have waited long enough.
    pace: Pace,
    /// Calls user-defined functions.
    caller: Caller<'a>,
    /// Their results for the next row.
    called: Option<Vec<Option<Bytes>>>,
}

/// Whether a row belongs to the group under way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Admitted {
    /// It does.
    Add,
    /// It is in no group.
    Skip,
    /// The group ends before it.
    EndGroup,
    /// No more rows of its partition are in a group.
    PartitionDone,
}

/// How far a page was taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// To its end.
    Whole,
    /// Not further, because the result's page is full.
    Full,
    /// Other tasks have waited long enough; go on after them.
    Paused,
    /// The next row needs the results of user-defined functions.
    Calls,
}

/// The warning of a search for the nearest rows whose page is smaller than its limit: all of them come in one page.
fn page_warning(found: &Found, request: &Request<'_>, limit: u64) -> Option<String> {
    let size = request.page_size.map(u64::from).filter(|size| *size < limit && found.relevance.is_none())?;
    Some(format!(
        "Top-K queries do not support paging and the page size is set to {size}, which is less than LIMIT {limit}. The page size \
         has been set to {limit} to match the LIMIT."
    ))
}

/// Where in a page to go on after a pause.
#[derive(Default)]
struct PagePlace {
    partition: usize,
    row: usize,
    /// Rows of the partition that were returned; none before its first row.
    in_partition: Option<u64>,
}

impl<R: RowSink> Emitter<'_, R> {
    /// Writes the result: the rows that were found with their tombstones, if they were, or those that are read now. How many
    /// tombstones were read.
    async fn run<C: Coordinator>(&mut self, pages: &mut Pages<'_, C>, found: Option<Found>) -> Result<u64> {
        if let Some(Found { page, tombstones, .. }) = found {
            self.page_left = u64::MAX;
            self.emit_page(&page).await?;
            return Ok(tombstones);
        }
        if self.plan.selection.is_aggregate() {
            match reduce::ranges(self.plan, &pages.command) {
                Some(ranges) => Box::pin(self.reduced(pages, ranges)).await,
                None if parts::divides(self.plan, self.request, &pages.command) => {
                    Box::pin(self.in_parts(pages)).await
                }
                None => self.groups(pages).await,
            }
        } else if !self.plan.sort.is_empty() {
            self.sorted(pages).await
        } else {
            self.rows(pages).await
        }
    }

    fn passes(&self, view: &RowView<'_>) -> bool {
        self.filters.iter().all(|filter| filter.matches(view))
    }

    fn is_full(&self) -> bool {
        self.left == 0 || self.page_left == 0
    }

    /// Sets the position at which the result resumes, if it may.
    fn set_paging_state(&mut self) {
        if self.left == 0 {
            return;
        }
        if let Some(resume) = self.place.take() {
            let (table, left) = (self.paged_table, self.left.min(i64::MAX as u64));
            self.rows.set_paging_state(&PagingState::Rows(RowsPosition { table, resume, left }));
        }
    }

    fn check_size(&mut self) -> Result<()> {
        if self.request.page_size.is_some() && self.rows.byte_count() >= PAGE_BYTES_MAX {
            self.page_left = 0;
        }
        Ok(())
    }

    /// Rows as they are read.
    async fn rows<C: Coordinator>(&mut self, pages: &mut Pages<'_, C>) -> Result<u64> {
        let wanted = self.left.min(self.page_left);
        if self.filters.is_empty() && !self.counts_here && self.place.is_none() {
            // The common case: one read brings all that is returned.
            if let Partitions::Keys(keys) = &pages.command.partitions
                && keys.len() == 1
                && pages.command.limits.rows_per_partition == u64::MAX
            {
                return self.one_partition(pages, wanted).await;
            }
        }
        loop {
            let fetch = self.left.min(self.page_left);
            let fetch = if self.filters.is_empty() && pages.places.is_none() { fetch } else { SCAN_ROWS };
            let Some(page) = pages.next(fetch).await? else { break };
            let more = page.more.clone();
            if self.emit_page(&page).await? {
                self.set_paging_state();
                break;
            }
            self.check_size()?;
            if self.left == 0 {
                break;
            }
            match more {
                None => break,
                Some(mut resume) => {
                    if self.first_that_passes && self.has_all_of(&resume.key) {
                        pages.skip_partition();
                        resume.clustering = None;
                    }
                    self.advance(resume);
                    if self.page_left == 0 {
                        self.set_paging_state();
                        break;
                    }
                }
            }
        }
        Ok(pages.tombstones())
    }

    /// A read of one partition: the result of the first read is nearly always all of it.
    async fn one_partition<C: Coordinator>(&mut self, pages: &mut Pages<'_, C>, wanted: u64) -> Result<u64> {
        if let AccessPath::Key(_) = &self.plan.access {
            if let Some(page) = pages.next(wanted).await? {
                self.emit_page(&page).await?;
            }
            return Ok(pages.tombstones());
        }
        let mut rows = wanted;
        loop {
            let Some(page) = pages.next(rows).await? else { break };
            self.emit_page(&page).await?;
            self.check_size()?;
            let Some(resume) = page.more else { break };
            self.place = Some(resume);
            if self.is_full() {
                self.set_paging_state();
                break;
            }
            rows = self.left.min(self.page_left);
        }
        Ok(pages.tombstones())
    }

    /// Applies the position at which a read ended. The replica counts rows of a partition that the filters then refuse;
    /// PER PARTITION LIMIT counts returned rows.
    fn advance(&mut self, resume: Resume) {
        let returned = match &self.place {
            Some(place) if place.key == resume.key => place.rows_in_partition,
            _ => 0,
        };
        let rows_in_partition = if self.counts_here { returned } else { resume.rows_in_partition };
        self.place = Some(Resume { rows_in_partition, ..resume });
    }

    /// Whether the result has as many rows of a partition as it takes.
    fn has_all_of(&self, key: &DecoratedKey) -> bool {
        self.place
            .as_ref()
            .is_some_and(|place| place.key == *key && place.rows_in_partition >= self.per_partition)
    }

    /// Writes the rows of a page. True when it had to stop inside of it because the result's page is full.
    async fn emit_page(&mut self, page: &ReadPage) -> Result<bool> {
        let mut at = PagePlace::default();
        loop {
            match self.emit_rows(page, &mut at)? {
                Taken::Whole => return Ok(false),
                Taken::Full => return Ok(true),
                Taken::Paused => self.pace.pause().await,
                Taken::Calls => {
                    let partition = &page.partitions[at.partition];
                    Box::pin(self.call_for(partition, partition.rows.get(at.row))).await?;
                    self.pace.step().await;
                }
            }
        }
    }

    /// Calls the functions of the next row.
    async fn call_for(&mut self, partition: &PartitionResult, row: Option<&Row>) -> Result<()> {
        let key = key_components(&self.plan.table, &partition.key.key);
        let view = RowView::new(&key, partition.static_row.as_ref(), row, self.request.now);
        let called = self.caller.row(&self.plan.selection.row_calls, &self.env.with_row(&view)).await?;
        self.called = Some(called);
        Ok(())
    }

    /// Whether functions are to be called for the next row.
    fn must_call(&self) -> bool {
        self.called.is_none() && !self.plan.selection.row_calls.is_empty()
    }

    /// Writes the rows of a page from a place on.
    fn emit_rows(&mut self, page: &ReadPage, at: &mut PagePlace) -> Result<Taken> {
        let plan = self.plan;
        while let Some(partition) = page.partitions.get(at.partition) {
            let mut in_partition = at.in_partition.unwrap_or_else(|| match &self.place {
                Some(place) if place.key == partition.key => place.rows_in_partition,
                _ => 0,
            });
            let key = key_components(&plan.table, &partition.key.key);
            let statics = partition.static_row.as_ref();
            if plan.is_static_alone(partition, self.request.now) {
                let view = RowView::new(&key, statics, None, self.request.now);
                if self.passes(&view) {
                    if self.is_full() {
                        return Ok(if self.left > 0 { Taken::Full } else { Taken::Whole });
                    }
                    if self.must_call() {
                        at.in_partition = Some(in_partition);
                        return Ok(Taken::Calls);
                    }
                    self.emit(&view, &partition.key, &mut in_partition)?;
                }
            }
            for row in &partition.rows[at.row..] {
                if self.counts_here && in_partition >= self.per_partition {
                    break;
                }
                at.row += 1;
                let view = RowView::new(&key, statics, Some(row), self.request.now);
                if self.passes(&view) {
                    if self.is_full() {
                        return Ok(if self.left > 0 { Taken::Full } else { Taken::Whole });
                    }
                    if self.must_call() {
                        (at.row, at.in_partition) = (at.row - 1, Some(in_partition));
                        return Ok(Taken::Calls);
                    }
                    self.emit(&view, &partition.key, &mut in_partition)?;
                }
                self.pace.count(1 + self.env.call.take_steps());
                if self.pace.is_due() {
                    at.in_partition = Some(in_partition);
                    return Ok(Taken::Paused);
                }
            }
            *at = PagePlace { partition: at.partition + 1, ..PagePlace::default() };
            self.pace.count(1);
            if self.pace.is_due() {
                return Ok(Taken::Paused);
            }
        }
        Ok(Taken::Whole)
    }

    fn emit(&mut self, view: &RowView<'_>, key: &DecoratedKey, in_partition: &mut u64) -> Result<()> {
        let called = self.called.take().unwrap_or_default();
        let env = Env { called: &called, ..self.env.with_row(view) };
        self.plan.selection.write(&env, &mut self.rows)?;
        self.left -= 1;
        self.page_left -= 1;
        *in_partition += 1;
        // Only a page that ends in the middle of a read needs the place of its last row.
        if self.page_left == 0 || self.counts_here {
            let clustering =
                if self.plan.distinct { None } else { view.row.map(|row| row.clustering.clone()) };
            self.place = Some(Resume { key: key.clone(), clustering, rows_in_partition: *in_partition });
        }
        Ok(())
    }

    /// Groups of rows, or all rows as one group.
    async fn groups<C: Coordinator>(&mut self, pages: &mut Pages<'_, C>) -> Result<u64> {
        let mut group = Group {
            in_partition: self.place.as_ref().map_or(0, |place| place.rows_in_partition),
            partition: self.place.as_ref().map(|place| place.key.clone()),
            ..Group::new(self.plan)
        };
        while let Some(page) = pages.next(SCAN_ROWS).await? {
            for partition in &page.partitions {
                let mut at = 0;
                let taken = loop {
                    if self.plan.selection.calls_in_groups() {
                        break Box::pin(self.add_partition_calling(&mut group, partition)).await?;
                    }
                    match self.add_partition(&mut group, partition, &mut at)? {
                        Taken::Paused => self.pace.pause().await,
                        taken => break taken,
                    }
                };
                if taken == Taken::Full {
                    self.set_paging_state();
                    return Ok(pages.tombstones());
                }
                if self.left == 0 {
                    return Ok(pages.tombstones());
                }
            }
        }
        if group.key.is_some() || self.plan.group_width.is_none() {
            self.end_group_calling(&mut group).await?;
        }
        self.write_held(group.held).await?;
        Ok(pages.tombstones())
    }

    /// All rows as one group, whose token ranges are read at once and aggregated apart; their states are merged in token order, so that
    /// the result does not depend on which range is read first.
    async fn reduced<C: Coordinator>(
        &mut self,
        pages: &mut Pages<'_, C>,
        ranges: Vec<PartitionRange>,
    ) -> Result<u64> {
        let mut groups: Vec<Group> = ranges.iter().map(|_| Group::new(self.plan)).collect();
        let parts = ranges.into_iter().map(|range| pages.of_range(range)).enumerate();
        let mut reads: FuturesUnordered<_> = parts.map(|(at, part)| part.next_of(at)).collect();
        let (mut tombstones, mut arrived) = (0, VecDeque::new());
        loop {
            let read = match arrived.pop_front() {
                Some(read) => Some(read),
                None => reads.next().await,
            };
            let Some((at, part, page)) = read else { break };
            let Some(page) = page? else {
                tombstones += part.tombstones();
                continue;
            };
            reads.push(part.next_of(at));
            let add = async {
                for partition in &page.partitions {
                    self.add_partition_calling(&mut groups[at], partition).await?;
                }
                Ok::<(), ExecError>(())
            };
            // Functions may run for longer than a read has time.
            reduce::beside_reads(add, &mut reads, &mut arrived).await?;
            let held = groups.iter().flat_map(|group| &group.states).map(AggregateState::held_bytes).sum();
            crate::sink::check_result_bytes(held)?;
        }
        let mut groups = groups.into_iter().filter(|group| group.has_rows);
        let mut whole = groups.next().unwrap_or_else(|| Group::new(self.plan));
        for group in groups {
            reduce::merge(&mut self.caller, &mut whole.states, &group.states).await?;
            self.pace.step().await;
        }
        self.end_group_calling(&mut whole).await?;
        Ok(tombstones)
    }

    /// All rows as one group: those of the first page, which are all of a small table, and then those of parts that other shards add.
    async fn in_parts<C: Coordinator>(&mut self, pages: &mut Pages<'_, C>) -> Result<u64> {
        let mut group = Group::new(self.plan);
        let parts = loop {
            let Some(page) = pages.next(C::AGGREGATED_ROWS).await? else { break Vec::new() };
            for partition in &page.partitions {
                let mut at = 0;
                while self.add_partition(&mut group, partition, &mut at)? == Taken::Paused {
                    self.pace.pause().await;
                }
            }
            if page.more.is_none() {
                break Vec::new();
            }
            let parts = pages.divided(self.plan, self.env, &self.filters).parts(&pages.command)?;
            if !parts.is_empty() {
                break parts;
            }
        };
        let tombstones =
            if parts.is_empty() { 0 } else { self.merge_parts(pages, &mut group, parts).await? };
        self.end_group(&mut group, &[])?;
        Ok(pages.tombstones() + tombstones)
    }

    /// Adds the states of parts to a group; how many tombstones were read.
    async fn merge_parts<C: Coordinator>(
        &mut self,
        pages: &Pages<'_, C>,
        group: &mut Group,
        parts: Vec<(ReadCommand, RangePart)>,
    ) -> Result<u64> {
        let divided = pages.divided(self.plan, self.env, &self.filters);
        let mut tombstones = 0;
        let mut answers = pin!(divided.answers(parts));
        while let Some(next) = answers.next().await {
            let (mut answer, mut command, mut part) = next?;
            loop {
                tombstones += answer.tombstones;
                parts::merge(&mut group.states, answer.states, &mut self.pace).await?;
                let held = group.states.iter().map(AggregateState::held_bytes).sum();
                crate::sink::check_result_bytes(held)?;
                if command.resume.is_none() {
                    break;
                }
                (answer, command, part) = divided.answer(command, part).await?;
            }
        }
        Ok(tombstones)
    }

    /// Adds a partition's rows, from the one at `at` on, to groups. Full when the page is, and a further group has begun.
    fn add_partition(
        &mut self,
        group: &mut Group,
        partition: &PartitionResult,
        at: &mut usize,
    ) -> Result<Taken> {
        let plan = self.plan;
        let key = key_components(&plan.table, &partition.key.key);
        let statics = partition.static_row.as_ref();
        for row in plan.rows_of(partition, self.request.now).skip(*at) {
            self.pace.count(1);
            if self.pace.is_due() {
                return Ok(Taken::Paused);
            }
            *at += 1;
            let view = RowView::new(&key, statics, row, self.request.now);
            let mut admitted = self.admit(group, partition, &view)?;
            if admitted == Admitted::EndGroup {
                self.end_group(group, &[])?;
                if self.left == 0 {
                    return Ok(Taken::Whole);
                }
                if self.page_left == 0 {
                    return Ok(Taken::Full);
                }
                admitted = self.admit(group, partition, &view)?;
            }
            match admitted {
                Admitted::Skip => continue,
                Admitted::PartitionDone => break,
                Admitted::Add | Admitted::EndGroup => {}
            }
            parts::add_values(plan, &self.env.with_row(&view), &mut group.states)?;
            self.pace.count(self.env.call.take_steps());
            if plan.group_width.is_some() {
                group.last = Some((partition.key.clone(), row.map(|row| row.clustering.clone())));
            }
        }
        Ok(Taken::Whole)
    }

    /// [`Emitter::add_partition`] of a plan that calls user-defined functions.
    async fn add_partition_calling(
        &mut self,
        group: &mut Group,
        partition: &PartitionResult,
    ) -> Result<Taken> {
        let plan = self.plan;
        let key = key_components(&plan.table, &partition.key.key);
        let statics = partition.static_row.as_ref();
        for row in plan.rows_of(partition, self.request.now) {
            self.pace.step().await;
            let view = RowView::new(&key, statics, row, self.request.now);
            let mut admitted = self.admit(group, partition, &view)?;
            if admitted == Admitted::EndGroup {
                self.end_group_calling(group).await?;
                if self.left == 0 {
                    return Ok(Taken::Whole);
                }
                if self.page_left == 0 {
                    return Ok(Taken::Full);
                }
                admitted = self.admit(group, partition, &view)?;
            }
            match admitted {
                Admitted::Skip => continue,
                Admitted::PartitionDone => break,
                Admitted::Add | Admitted::EndGroup => {}
            }
            add_row(plan, &self.env.with_row(&view), &mut self.caller, &mut group.states).await?;
            group.has_rows = true;
            self.pace.count(self.env.call.take_steps());
            if plan.group_width.is_some() {
                group.last = Some((partition.key.clone(), row.map(|row| row.clustering.clone())));
            }
        }
        Ok(Taken::Whole)
    }

    /// Whether a row belongs to the group under way, which begins with it where there is none.
    fn admit(&self, group: &mut Group, partition: &PartitionResult, view: &RowView<'_>) -> Result<Admitted> {
        if !self.passes(view) {
            return Ok(Admitted::Skip);
        }
        let plan = self.plan;
        if self.first_that_passes && group.partition.as_ref() == Some(&partition.key) {
            return Ok(Admitted::PartitionDone);
        }
        let Some(width) = plan.group_width else {
            if self.first_that_passes {
                group.partition = Some(partition.key.clone());
            }
            return Ok(Admitted::Add);
        };
        let clustered = width - plan.table.partition_key().len();
        let mut prefix: Vec<Option<Bytes>> =
            (0..clustered).map(|at| view.clustering(at).map(Bytes::copy_from_slice)).collect();
        if let Some(function) = &plan.group_function {
            prefix.push(function.eval_option(&self.env.with_row(view))?);
        }
        let group_key = (partition.key.clone(), prefix);
        if group.key.as_ref().is_some_and(|held| *held != group_key) {
            return Ok(Admitted::EndGroup);
        }
        if group.partition.as_ref() != Some(&partition.key) {
            group.partition = Some(partition.key.clone());
            group.in_partition = 0;
        }
        if group.in_partition >= self.per_partition {
            return Ok(Admitted::PartitionDone);
        }
        if group.key.is_none() && !plan.sort.is_empty() {
            group.sort_key = plan.sort.iter().map(|by| view.value(&by.column)).collect();
        }
        group.key = Some(group_key);
        Ok(Admitted::Add)
    }

    /// Writes the groups that had to wait for the others, in their order.
    async fn write_held(&mut self, mut held: Vec<HeldGroup>) -> Result<()> {
        held.sort_by(|(a, ..), (b, ..)| super::sort::order(&self.plan.sort, a, b));
        for (_, results, called) in held {
            if self.left == 0 {
                break;
            }
            self.pace.step().await;
            self.left -= 1;
            let env = Env { aggregates: &results, called: &called, ..*self.env };
            self.plan.selection.write(&env, &mut self.rows)?;
            self.pace.count(self.env.call.take_steps());
        }
        Ok(())
    }

    /// Ends a group, after the calls that end it.
    async fn end_group_calling(&mut self, group: &mut Group) -> Result<()> {
        let called = Box::pin(end_states(self.plan, self.env, &mut self.caller, &mut group.states)).await?;
        self.end_group(group, &called)
    }

    /// Ends a group for which these calls were made.
    fn end_group(&mut self, group: &mut Group, called: &[Option<Bytes>]) -> Result<()> {
        if !self.plan.sort.is_empty() && self.plan.group_width.is_some() {
            let results = group.states.iter().map(AggregateState::result).collect::<Result<Vec<_>>>()?;
            let held = (std::mem::take(&mut group.sort_key), results, called.to_vec());
            group.held_bytes += held_bytes(&held);
            check_result_bytes(group.held_bytes)?;
            group.held.push(held);
            group.states.iter_mut().for_each(AggregateState::reset);
            group.key = None;
            group.in_partition += 1;
            return Ok(());
        }
        write_group(self.plan, &Env { called, ..*self.env }, &group.states, &mut self.rows)?;
        group.states.iter_mut().for_each(AggregateState::reset);
        group.key = None;
        group.in_partition += 1;
        self.left -= 1;
        self.page_left -= 1;
        if let Some((key, clustering)) = group.last.take() {
            self.place = Some(Resume { key, clustering, rows_in_partition: group.in_partition });
        }
        Ok(())
    }

    /// Rows of several partitions in one order.
    async fn sorted<C: Coordinator>(&mut self, pages: &mut Pages<'_, C>) -> Result<u64> {
        let mut sorted = Sorted::new();
        let mut bytes = 0;
        // Rows of the last partition: the next page may go on with it.
        let mut counted: Option<(DecoratedKey, u64)> = None;
        while let Some(page) = pages.next(SCAN_ROWS).await? {
            for partition in page.partitions {
                bytes += partition.rows.iter().map(mutation::Row::memory_size).sum::<usize>();
                let filters = &self.filters;
                let keep = |view: &RowView<'_>| filters.iter().all(|filter| filter.matches(view));
                self.pace.count(partition.rows.len());
                if !self.counts_here {
                    sorted.add(self.plan, partition, self.request.now, u64::MAX, keep);
                } else {
                    let key = partition.key.clone();
                    let before = counted.take().filter(|(of, _)| *of == key).map_or(0, |(_, rows)| rows);
                    let room = self.per_partition.saturating_sub(before);
                    let kept = sorted.add(self.plan, partition, self.request.now, room, keep);
                    counted = Some((key, before + kept));
                }
                if self.pace.is_due() {
                    self.pace.pause().await;
                }
            }
            sorted.end_run(&self.plan.sort);
            if bytes > RESULT_BYTES_MAX {
                return invalid!("Sorting needs {bytes} bytes; ask for fewer partitions or use a LIMIT");
            }
        }
        let (plan, now) = (self.plan, self.request.now);
        let mut order = sorted.in_order(&plan.sort);
        while self.left > 0
            && let Some((partition, row)) = order.next()
        {
            if !plan.selection.row_calls.is_empty() {
                Box::pin(self.call_for(partition, row)).await?;
            }
            let called = self.called.take().unwrap_or_default();
            let key = key_components(&plan.table, &partition.key.key);
            let view = RowView::new(&key, partition.static_row.as_ref(), row, now);
            plan.selection.write(&Env { called: &called, ..self.env.with_row(&view) }, &mut self.rows)?;
            self.left -= 1;
            self.pace.count(self.env.call.take_steps());
            self.pace.step().await;
        }
        Ok(pages.tombstones())
    }
}

/// A group under way.
struct Group {
    states: Vec<AggregateState>,
    key: Option<(DecoratedKey, Vec<Option<Bytes>>)>,
    /// The last row added to it.
    last: Option<(DecoratedKey, Option<mutation::Clustering>)>,
    /// Groups of the partition that were returned.
    in_partition: u64,
    partition: Option<DecoratedKey>,
    /// The keys that the group under way is sorted by, where groups of several partitions are put in one order.
    sort_key: Vec<Option<Bytes>>,
    held: Vec<HeldGroup>,
    /// Their bytes.
    held_bytes: usize,
    /// Whether a row was added whose functions may wait.
    has_rows: bool,
}

impl Group {
    fn new(plan: &SelectPlan) -> Self {
        Self {
            states: new_states(plan),
            key: None,
            last: None,
            in_partition: 0,
            partition: None,
            sort_key: Vec::new(),
            held: Vec::new(),
            held_bytes: 0,
            has_rows: false,
        }
    }
}

/// The bytes of a group that waits for others.
fn held_bytes((sort_key, results, called): &HeldGroup) -> usize {
    let values = sort_key.iter().chain(results).chain(called);
    size_of::<HeldGroup>()
        + values.map(|value| size_of_val(value) + value.as_ref().map_or(0, Bytes::len)).sum::<usize>()
}

/// Sort key of a group, the results of its aggregates, and those of the calls that ended it.
type HeldGroup = (Vec<Option<Bytes>>, Vec<Option<Bytes>>, Vec<Option<Bytes>>);
