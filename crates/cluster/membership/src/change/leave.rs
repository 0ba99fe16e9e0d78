//! A leaving node: it delivers its hints and batches, and at the end it serves nobody.

use std::time::Duration;

use super::Inner;
use crate::MembershipError;

/// How long a leaving node tries to deliver its hints and batches.
const HAND_OVER_MAX: Duration = Duration::from_secs(300);
/// The same when it has left already and only the latest ones remain.
const LAST_HAND_OVER_MAX: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(500);
/// So long drivers have to hear that this node lets no clients in any more, and go elsewhere.
const CLIENTS_GO: Duration = Duration::from_secs(3);

impl Inner {
    /// Waits until hints for nodes that live are delivered, and logged batches are applied.
    pub(super) async fn hand_over(&self) {
        self.hand_over_until(HAND_OVER_MAX).await;
    }

    async fn hand_over_until(&self, longest: Duration) {
        let deadline = self.rt.now() + longest;
        let mut logged = false;
        loop {
            let kept = self.coordinator.kept_hints().await;
            let (live, away): (Vec<_>, Vec<_>) = kept.iter().partition(|(host, _)| self.is_alive(**host));
            let hints: u64 = live.iter().map(|(_, figures)| figures.count).sum();
            let batches = self.shards.batches_stored().await;
            if hints == 0 && batches == 0 {
                let lost: u64 = away.iter().map(|(_, figures)| figures.count).sum();
                if lost > 0 {
                    tracing::warn!(
                        "{lost} hints are for nodes that are down, and go with this node; run repair when those are back"
                    );
                }
                return;
            }
            if self.rt.now() >= deadline {
                tracing::warn!(
                    "{hints} hints and {batches} logged batches could not be handed over; run repair on the other nodes"
                );
                return;
            }
            if !logged {
                tracing::info!("handing over {hints} hints and {batches} logged batches before leaving");
                logged = true;
            }
            self.rt.sleep(PAUSE).await;
        }
    }

    /// The cluster's log says that this node has left. Nobody asks it once all have taken that over.
    pub(super) async fn leave(&self) -> Result<(), MembershipError> {
        self.membership.expect_removal();
        self.membership.set_ready(false);
        if let Err(error) = self.membership.wait_for_everyone().await {
            // It has left all the same; a client that still asks it asks another one next.
            tracing::warn!("not every node knows yet that this one has left: {error}");
        }
        self.rt.sleep(CLIENTS_GO).await;
        self.coordinator.run_out(self.request_time_max).await;
        self.shards.close_clients().await?;
        self.hand_over_until(LAST_HAND_OVER_MAX).await;
        if let Some(number) = self.membership.number_of(self.own()) {
            self.membership.wait_until_voteless(number).await;
        }
        self.membership.remove_itself().await;
        self.membership.say_good_bye().await;
        self.shards.quiesce().await?;
        tracing::info!(
            "this node has left the cluster; stop it, and clear its data directory before using it again"
        );
        self.has_left.set(true);
        Ok(())
    }
}
