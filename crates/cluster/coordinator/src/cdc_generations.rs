//! Generations of streams of changes: made when the first log is, and anew when the ring has changed (docs/design/cdc.md).

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::SchemaEdit;
use mutation::{PartitionUpdate, Timestamp};
use rt::sync::Notify;
use rt::{Group, ShardId, Task};
use schema::{CdcGeneration, CdcVnode};

use crate::context::Context;
use crate::{ClusterView, Coordinator, RequestError, SchemaChangeError};

/// How far the timestamp of a captured write may be ahead of this node's clock, or behind it once the next generation has begun, in
/// microseconds.
const LEEWAY_MICROS: i64 = 5_000_000;

/// A generation begins so long after it was decided, so that every node knows it by then.
const DELAY: Duration = Duration::from_secs(15);
/// Pause before a generation that could not be decided is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

impl Coordinator {
    /// Shard 0: decides on a generation of streams whenever the ring is another one than that of the last. Ends when the result is
    /// dropped.
    ///
    /// # Panics
    /// On another shard.
    pub fn renew_cdc_generations(&self) -> Task<()> {
        assert_eq!(self.context().rt().shard(), ShardId(0), "shard 0 follows the ring");
        let wake = Rc::new(Notify::new());
        let (by_schema, by_view) = (wake.clone(), wake.clone());
        self.on_schema_change(Box::new(move |_, _| by_schema.notify_one()));
        self.on_view_change(Box::new(move |_, _| by_view.notify_one()));
        let coordinator = self.clone();
        let renew = async move {
            loop {
                match coordinator.renew_cdc_generation().await {
                    Ok(()) => wake.notified().await,
                    Err(error) => {
                        tracing::debug!("a generation of streams of changes is not decided yet: {error}");
                        coordinator.context().rt().sleep(RETRY_PAUSE).await;
                    }
                }
            }
        };
        self.context().rt().spawn(Group::Maintenance, renew)
    }

    /// Of the nodes that live, the one with the least id decides, so that not all try at once.
    async fn renew_cdc_generation(&self) -> Result<(), SchemaChangeError> {
        let (schema, view) = (self.context().schema(), self.context().view());
        let Some(last) = schema.cdc_generations().last() else { return Ok(()) };
        if view.is_changing() {
            return Ok(());
        }
        let start = self.context().rt().wall_micros() / 1000 + DELAY.as_millis() as i64;
        let next = cdc_generation(&view, start.max(last.start_millis.saturating_add(1)));
        let live = view.members().iter().filter(|node| view.is_alive_host(node.host));
        let decides = live.map(|node| node.host).min() == Some(view.node(view.own()).host);
        if next.vnodes == last.vnodes || !decides {
            return Ok(());
        }
        tracing::info!("streams of changes of {} ranges begin at {}", next.vnodes.len(), next.start_millis);
        self.change_schema(schema.version(), vec![SchemaEdit::PutCdcGeneration(next)]).await
    }
}

/// The generation of the ring that is read now, from a time on.
pub fn cdc_generation(view: &ClusterView, start_millis: i64) -> CdcGeneration {
    let members = view.members().iter();
    let mut vnodes: Vec<CdcVnode> = members
        .flat_map(|node| node.tokens.iter().map(|upto| CdcVnode { upto: *upto, shards: node.shards }))
        .collect();
    vnodes.sort_unstable_by_key(|vnode| vnode.upto);
    let rises = vnodes.windows(2).all(|pair| pair[0].upto < pair[1].upto);
    assert!(rises && !vnodes.is_empty(), "the ranges of a generation are those of a ring");
    CdcGeneration { start_millis, vnodes }
}

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
            "The timestamp {last} is later than the server's clock, {now}, by more than {} seconds: the streams of changes \
             of that time are not known yet",
            LEEWAY_MICROS / 1_000_000
        ));
    }
    let current = generation_at(generations, now).map_or(i64::MAX, |generation| generation.start_micros());
    if first < current
        && (generations.first().is_none_or(|oldest| first < oldest.start_micros())
            || first < now.saturating_sub(LEEWAY_MICROS))
    {
        return Err(format!(
            "The timestamp {first} is earlier than the streams of changes in use, which began at {current}: who reads the \
             log may have read on"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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
