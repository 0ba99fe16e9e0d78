//! Which generation of streams of changes a timestamp belongs to, and which timestamps a captured write may have (docs/design/cdc.md).

use std::sync::Arc;

use mutation::{PartitionUpdate, Timestamp};
use schema::CdcGeneration;

use crate::RequestError;
use crate::context::Context;

/// How far the timestamp of a captured write may be ahead of this node's clock, or behind it once the next generation has begun, in
/// microseconds.
const LEEWAY_MICROS: i64 = 5_000_000;

/// The generation that counts at a timestamp: the first one before it has begun.
pub(crate) fn generation_at(
    generations: &[Arc<CdcGeneration>],
    timestamp: Timestamp,
) -> Option<&Arc<CdcGeneration>> {
    let begun = generations.partition_point(|generation| generation.start_micros() <= timestamp);
    generations.get(begun.saturating_sub(1))
}

/// Refuses captured writes whose timestamps are of no stream that a reader of the log can still be waiting for.
pub(crate) fn check_times(context: &Context, updates: &[PartitionUpdate]) -> Result<(), RequestError> {
    let now = context.rt().wall_micros();
    let schema = context.schema();
    for update in updates.iter().filter(|update| update.table.options.cdc.enabled) {
        let Some((first, last)) = cdc::time_span(update) else { continue };
        check_span(schema.cdc_generations(), (first, last), now).map_err(RequestError::Invalid)?;
    }
    Ok(())
}

fn check_span(
    generations: &[Arc<CdcGeneration>],
    (first, last): (Timestamp, Timestamp),
    now: i64,
) -> Result<(), String> {
    if last > now.saturating_add(LEEWAY_MICROS) {
        return Err(format!(
            "cdc: attempted to get a stream \"from the future\" ({last}; current server time: {now}). With CDC you cannot \
             send writes with timestamps arbitrarily into the future, because we don't know what streams will be used at \
             that time: {} seconds are allowed",
            LEEWAY_MICROS / 1_000_000
        ));
    }
    let current = generation_at(generations, now).map_or(i64::MAX, |generation| generation.start_micros());
    if first < current
        && (generations.first().is_none_or(|oldest| first < oldest.start_micros())
            || first < now.saturating_sub(LEEWAY_MICROS))
    {
        return Err(format!(
            "cdc: attempted to get a stream \"from the past\" ({first}; current server time: {now}). With CDC you cannot \
             send writes with timestamps too far into the past, because that would break consistency properties: the \
             streams in use began at {current}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use schema::CdcVnode;

    use super::*;

    const SECOND: i64 = 1_000_000;

    fn generations(starts: &[i64]) -> Vec<Arc<CdcGeneration>> {
        let vnodes = vec![CdcVnode { upto: 0, shards: 1 }];
        let starts = starts.iter();
        starts
            .map(|start| Arc::new(CdcGeneration { start_millis: start * 1000, vnodes: vnodes.clone() }))
            .collect()
    }

    #[test]
    fn a_timestamp_has_the_generation_that_has_begun() {
        let all = generations(&[100, 200]);
        let at = |second: i64| generation_at(&all, second * SECOND).map(|it| it.start_millis / 1000);
        assert_eq!([at(0), at(100), at(199), at(200), at(900)], [100, 100, 100, 200, 200].map(Some));
        assert!(generation_at(&[], 0).is_none());
    }

    #[test]
    fn timestamps_of_streams_out_of_use_are_refused() {
        let all = generations(&[100, 200]);
        let check = |at: i64, now: i64| check_span(&all, (at * SECOND, at * SECOND), now * SECOND).is_ok();
        assert!(check(150, 150) && check(155, 150), "now and a little later");
        assert!(!check(156, 150), "much later");
        assert!(check(100, 199), "since the generation began");
        assert!(!check(99, 101), "before there were streams");
        assert!(check(199, 203), "the generation of before, a moment later");
        assert!(!check(199, 205), "and too late");
        assert!(check_span(&[], (1, 1), 5).is_err(), "no streams at all");
        assert!(check_span(&all, (i64::MIN, i64::MAX), i64::MAX).is_err());
    }
}
