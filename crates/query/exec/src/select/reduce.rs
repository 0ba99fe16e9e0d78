//! Aggregates whose states can be merged (`REDUCEFUNC`): which reads are split by token, and the merging of two states.

use std::collections::VecDeque;
use std::pin::pin;

use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use mutation::{PartitionRange, RingPosition};
use replica::{Partitions, ReadCommand};

use super::SelectPlan;
use crate::error::Result;
use crate::expr::calls::Caller;
use crate::functions::{Aggregate, AggregateState};
use crate::where_clause::access::AccessPath;

/// Token ranges of one statement that are read at once: each holds a page of at most
/// [`READ_BYTES_MAX`](super::read::READ_BYTES_MAX).
const RANGES: i128 = 8;

/// The token ranges, in order, whose rows are aggregated apart: of a statement that aggregates a token range to one group, with
/// states that can all be merged. None when the rows are to be added one after another.
pub(super) fn ranges(plan: &SelectPlan, command: &ReadCommand) -> Option<Vec<PartitionRange>> {
    let aggregates = &plan.selection.aggregates;
    let is_user = |kind: &Aggregate| matches!(kind, Aggregate::User(_));
    let merges = |kind: &Aggregate| match kind {
        Aggregate::CountRows => true,
        Aggregate::User(user) => user.merges.is_some(),
        Aggregate::Native(_) | Aggregate::First => false,
    };
    let all_merge = aggregates.iter().all(|aggregate| merges(&aggregate.kind));
    // Native aggregates alone need no calls that wait, and are no faster this way.
    let has_user = aggregates.iter().any(|aggregate| is_user(&aggregate.kind));
    let scans = matches!(plan.access, AccessPath::Range(_) | AccessPath::Full(_));
    if !(all_merge && has_user && scans) || plan.group_width.is_some() || command.resume.is_some() {
        return None;
    }
    match &command.partitions {
        Partitions::Range(range) => Some(split(range)),
        Partitions::Keys(_) => None,
    }
}

/// A range as [`RANGES`] of the same width; as itself where it has fewer tokens than that.
fn split(range: &PartitionRange) -> Vec<PartitionRange> {
    let (first, last) = (i128::from(range.start.token()), i128::from(range.end.token()));
    let width = (last - first) / RANGES;
    if width == 0 {
        return vec![range.clone()];
    }
    let end_of = |part: i128| match i64::try_from(first + width * part) {
        Ok(token) if part < RANGES => RingPosition::AfterToken(token),
        _ => range.end.clone(),
    };
    let start_of = |part: i128| if part == 0 { range.start.clone() } else { end_of(part) };
    (0..RANGES).map(|part| PartitionRange { start: start_of(part), end: end_of(part + 1) }).collect()
}

/// Awaits work on a page while reads go on; those that end meanwhile are put into `arrived`, one a range at most.
pub(super) async fn beside_reads<T, R: Future>(
    work: impl Future<Output = T>,
    reads: &mut FuturesUnordered<R>,
    arrived: &mut VecDeque<R::Output>,
) -> T {
    let mut work = pin!(work);
    loop {
        match select(work.as_mut(), reads.next()).await {
            Either::Left((result, _)) => return result,
            Either::Right((Some(read), _)) => arrived.push_back(read),
            Either::Right((None, _)) => return work.await,
        }
    }
}

/// Merges the states of rows with those of rows behind them. A null state stands for no rows where the function is not called on null.
///
/// # Errors
/// When the function fails.
pub(super) async fn merge(
    caller: &mut Caller<'_>,
    states: &mut [AggregateState],
    behind: &[AggregateState],
) -> Result<()> {
    for (state, behind) in states.iter_mut().zip(behind) {
        match (state, behind) {
            (AggregateState::CountRows(rows), AggregateState::CountRows(behind)) => *rows += behind,
            (AggregateState::User(user, value), AggregateState::User(_, behind)) => {
                let merges = user.merges.as_ref().expect("only states that can be merged are kept apart");
                if merges.called_on_null_input || (value.is_some() && behind.is_some()) {
                    *value = caller.call(merges, &[value.clone(), behind.clone()]).await?;
                } else if value.is_none() {
                    value.clone_from(behind);
                }
            }
            _ => unreachable!("only states that can be merged are kept apart"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_go_on_beside_work() {
        use std::cell::Cell;
        use std::task::{Context, Poll, Waker};
        let (read, polls) = (Cell::new(false), Cell::new(0));
        // It ends only when the read has ended.
        let work = std::future::poll_fn(|_| if read.get() { Poll::Ready(()) } else { Poll::Pending });
        let reading = std::future::poll_fn(|context| {
            polls.set(polls.get() + 1);
            read.set(polls.get() == 3);
            context.waker().wake_by_ref();
            if read.get() { Poll::Ready(7) } else { Poll::Pending }
        });
        let (mut reads, mut arrived) = (FuturesUnordered::from_iter([reading]), VecDeque::new());
        let mut beside = Box::pin(beside_reads(work, &mut reads, &mut arrived));
        let mut context = Context::from_waker(Waker::noop());
        let ended = (0..10).any(|_| beside.as_mut().poll(&mut context).is_ready());
        assert!(ended, "the read was not polled");
        drop(beside);
        assert_eq!((arrived, polls.get()), (VecDeque::from([7]), 3));
    }

    #[test]
    fn the_parts_of_a_range_are_the_range() {
        let (before, after) = (RingPosition::BeforeToken, RingPosition::AfterToken);
        let of = |start, end| PartitionRange { start, end };
        let wide =
            [of(before(i64::MIN), after(i64::MAX)), of(after(-7), before(1_000)), of(before(3), after(11))];
        for range in wide {
            let parts = split(&range);
            assert_eq!(parts.len(), 8, "{range:?}");
            assert_eq!((&parts[0].start, &parts[7].end), (&range.start, &range.end));
            for pair in parts.windows(2) {
                assert_eq!(pair[0].end, pair[1].start, "{range:?}");
                assert!(pair[0].start.token() < pair[1].start.token(), "{range:?}");
            }
        }
        for narrow in
            [of(before(3), after(3)), of(after(3), before(9)), of(before(i64::MAX - 2), after(i64::MAX))]
        {
            assert_eq!(split(&narrow), [narrow]);
        }
    }
}
