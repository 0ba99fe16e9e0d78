//! A SELECT that looks up one row in this shard's memory: from where the row lies into the response, without a future
//! (docs/design/write-path.md, *A row where it lies*).

use mutation::{Row, Slices};
use replica::{Partitions, RowLookup};

use super::SelectPlan;
use crate::backend::Coordinator;
use crate::error::Result;
use crate::expr::Env;
use crate::expr::row::{RowView, key_components};
use crate::request::Request;
use crate::sink::{RowSink, Sink};

/// Runs a plan that looks up one row, if the row is in this shard's memory: from where it lies into the response, without a read command, a
/// page or a wait; the bytes of the result, as the sink counts them. None when the row has to be
/// read: the sink has taken nothing then.
///
/// # Errors
/// When an output cannot be computed.
#[inline]
pub(super) fn run_here<C: Coordinator, S: Sink>(
    plan: &SelectPlan,
    coordinator: &C,
    request: &Request<'_>,
    env: &Env<'_>,
    (partitions, slices): (&Partitions, &Slices),
    out: &mut S,
) -> Result<Option<usize>> {
    debug_assert!(plan.is_row_lookup, "of a plan of several rows a page is read");
    let Partitions::Keys(keys) = partitions else { return Ok(None) };
    let [key] = keys.as_slice() else { return Ok(None) };
    let is_plain = request.trace.is_none() && request.paging_state.is_none() && request.page_size != Some(0);
    if !is_plain || request.has_no_time() || request.consistency.is_serial() || slices.ranges().is_empty() {
        return Ok(None);
    }
    let bypass_cache = plan.bypass_cache;
    let values_only = !plan.table.static_columns().iter().any(|column| plan.fetch.contains(column.id));
    let lookup = RowLookup { table: &plan.table, key, slices, now: request.now, bypass_cache, values_only };
    let write = |row: Option<&Row>| -> Result<(u64, usize)> {
        let mut rows = out.rows(&plan.selection.result);
        if row.is_some() {
            let key = key_components(&plan.table, &key.key);
            let view = RowView::new(&key, None, row, request.now);
            plan.selection.write(&env.with_row(&view), &mut rows)?;
        }
        Ok((u64::from(row.is_some()), rows.byte_count()))
    };
    let written = coordinator.row_here(&lookup, (request.consistency, request.began), write);
    let Some((written, tombstones)) = written else { return Ok(None) };
    let (count, bytes) = written?;
    if let Some(warning) = tombstone_warning(plan, request, count, tombstones) {
        out.warn(warning);
    }
    Ok(Some(bytes))
}

/// The warning of a read that met many tombstones.
#[inline]
pub(super) fn tombstone_warning(
    plan: &SelectPlan,
    request: &Request<'_>,
    count: u64,
    tombstones: u64,
) -> Option<String> {
    let is_many = tombstones > u64::from(request.limits.tombstone_warn_threshold);
    is_many.then(|| {
        let name = plan.table.full_name();
        format!(
            "Read {count} live rows and {tombstones} tombstone cells for query on {name} (see tombstone_warn_threshold)"
        )
    })
}
