//! Generations of streams of changes: made when the first log is, and anew when the ring has changed (docs/design/cdc.md).

use std::rc::Rc;
use std::time::Duration;

use cluster::SchemaEdit;
use rt::sync::Notify;
use rt::{Group, ShardId, Task};
use schema::{CdcGeneration, CdcVnode};

use crate::{ClusterView, Coordinator, SchemaChangeError};

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
