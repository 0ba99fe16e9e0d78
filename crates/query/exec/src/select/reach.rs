//! The position at which the pages of a SELECT resume, and limits of partitions and rows that it names.

use mutation::Slices;
use replica::Partitions;
use schema::TableId;

use super::SelectPlan;
use super::fragments;
use crate::backend::Coordinator;
use crate::error::{ExecError, Result, invalid};
use crate::request::Request;
use crate::sink::{PagingState, RowsPosition};

/// Ranges of rows that a statement may name, of all its partitions together.
const RANGES_MAX: usize = 1 << 22;

/// The position at which the result resumes.
pub(super) fn position<'a, C: Coordinator>(
    plan: &SelectPlan,
    request: &Request<'a>,
    coordinator: &C,
) -> Result<Option<&'a RowsPosition>> {
    if !plan.sort.is_empty() && request.page_size.is_some() {
        return invalid!(
            "Cannot page queries with both ORDER BY and a IN restriction on the partition key; you must either remove the \
             ORDER BY or the IN and sort client side, or disable paging for this query"
        );
    }
    match request.paging_state {
        Some(PagingState::Rows(state)) if state.table == paged_table(plan, coordinator) => Ok(Some(state)),
        Some(_) if plan.fragments_of.is_some() => invalid!(
            "The pages of one SELECT FROM MUTATION_FRAGMENTS() have to be asked of the same node: each node reads its own data"
        ),
        Some(_) => Err(ExecError::Protocol("The paging state belongs to another statement".to_owned())),
        None => Ok(None),
    }
}

/// Refuses a statement that names too many ranges of rows, and a paging state that lies outside of the partitions that it reads with these
/// values.
pub(super) fn check_reach(
    state: Option<&RowsPosition>,
    partitions: Option<&Partitions>,
    slices: &Slices,
) -> Result<()> {
    if let Some(Partitions::Keys(keys)) = partitions
        && keys.len().saturating_mul(slices.ranges().len()) > RANGES_MAX
    {
        return invalid!(
            "The IN restrictions make more than {RANGES_MAX} combinations of partitions and rows; split the query"
        );
    }
    let Some(state) = state else { return Ok(()) };
    let is_within = match partitions {
        None => true,
        Some(Partitions::Keys(keys)) => keys.contains(&state.resume.key),
        Some(Partitions::Range(range)) => range.contains(&state.resume.key),
    };
    match is_within {
        true => Ok(()),
        false => Err(ExecError::Protocol("The paging state belongs to another statement".to_owned())),
    }
}

/// The table that a paging state of the plan names.
pub(super) fn paged_table<C: Coordinator>(plan: &SelectPlan, coordinator: &C) -> TableId {
    match &plan.fragments_of {
        None => plan.table.id,
        Some(_) => {
            let view = coordinator.view();
            fragments::paged_table(&plan.table, view.node(view.own()).host)
        }
    }
}
