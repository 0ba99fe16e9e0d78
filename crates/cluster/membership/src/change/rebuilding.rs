//! Rebuilding: a node streams all its ranges. The request is in the node's directory, so that a stop or a crash
//! interrupts it and does not end it, nor does the end of the operator's connection.

use std::rc::Rc;

use cluster::state::{ClusterState, MemberStatus};
use rt::Group;

use super::fetch_reason::FetchReason;
use super::rebuild::Rebuild;
use super::{Inner, RETRY_PAUSE, TopologyChanges};
use crate::{MembershipError, ShardTask};

/// The file of the rebuild under way.
const NOTE: &str = "rebuild";
/// More than is in it.
const NOTE_LEN_MAX: usize = 4096;
/// Attempts that may fail one after the other, as when a source restarts.
const TRIES_MAX: u32 = 20;
/// The operator's error when a rebuild is under way already.
const BUSY: &str = "Node is still rebuilding. Check nodetool netstats.";

impl TopologyChanges {
    /// From where this node is being rebuilt.
    pub fn rebuilds_from(&self) -> Option<String> {
        self.0.rebuild.borrow().as_ref().map(|rebuild| rebuild.name().to_owned())
    }

    /// Resumes a rebuild that was under way when this node stopped.
    pub(super) fn resume_rebuild(&self) {
        let inner = Rc::clone(&self.0);
        let resuming = async move {
            let Some(rebuild) = inner.noted_rebuild().await else { return };
            tracing::info!("resuming the interrupted rebuild from {}", rebuild.name());
            inner.wait_until(|state| inner.status_in(state) == Some(MemberStatus::Normal)).await;
            if let Err(why) = inner.carry_out(rebuild).await {
                tracing::error!("{why}");
            }
        };
        *self.0.rebuilding.borrow_mut() = Some(self.0.rt.spawn(Group::Maintenance, resuming));
    }
}

/// Says, however a rebuild ends, that none is under way.
struct UnderWay<'a>(&'a Inner);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        *self.0.rebuild.borrow_mut() = None;
    }
}

impl Inner {
    /// The rebuild that was not brought to its end.
    async fn noted_rebuild(&self) -> Option<Rebuild> {
        let read = self.rt.disk().read_durably(self.directory.join(NOTE), NOTE_LEN_MAX).await;
        Rebuild::decode(&read.ok()?)
    }

    async fn forget_rebuild(&self) -> Result<(), String> {
        match self.rt.disk().remove(self.directory.join(NOTE)).await {
            Err(error) if !error.is_not_found() => Err(error.to_string()),
            _ => Ok(()),
        }
    }

    /// An operator asks for it; returns when it is done.
    pub(super) async fn rebuild(self: &Rc<Self>, source: Option<String>) -> Result<(), String> {
        let view = self.coordinator.view();
        if let Some(name) = &source
            && !view.datacenter_sizes().contains_key(&**name)
        {
            let known = view.datacenter_sizes().into_keys().collect::<Vec<_>>().join(", ");
            return Err(format!("there is no datacenter '{name}' with nodes; there are: {known}"));
        }
        if self.status_in(&self.state()) != Some(MemberStatus::Normal) {
            return Err("this node is not in the ring: it owns nothing to rebuild".to_owned());
        }
        // A topology change or a cleanup that is under way is waited for.
        if self.rebuild.borrow().is_some() {
            return Err(BUSY.to_owned());
        }
        tracing::info!("rebuild from {}", source.as_deref().unwrap_or("(any dc)"));
        let rebuild = Rebuild::new(self.rt.wall_micros(), source.map(Into::into));
        // From here on a second request gets the error that one is under way.
        *self.rebuild.borrow_mut() = Some(rebuild.clone());
        let (tell, told) = rt::sync::oneshot::channel();
        let inner = Rc::clone(self);
        let working = async move {
            // Nobody may wait for it any more.
            let _ = tell.send(inner.begin(rebuild).await);
        };
        *self.rebuilding.borrow_mut() = Some(self.rt.spawn(Group::Maintenance, working));
        told.await
            .unwrap_or_else(|_| Err("the rebuild was interrupted; it resumes at the next start".to_owned()))
    }

    /// Notes a rebuild and carries it out; one from the same datacenter that failed resumes.
    async fn begin(&self, asked: Rebuild) -> Result<(), String> {
        let _under_way = UnderWay(self);
        let noted = self.noted_rebuild().await.filter(|noted| noted.source == asked.source);
        let number = noted.map_or(asked.number, |noted| noted.number);
        let rebuild = asked.named(number);
        let written = self.rt.disk().write_atomically(self.directory.join(NOTE), &rebuild.encode()).await;
        written.map_err(|error| format!("the rebuild cannot be noted: {error}"))?;
        self.carry_out(rebuild).await
    }

    async fn carry_out(&self, rebuild: Rebuild) -> Result<(), String> {
        *self.rebuild.borrow_mut() = Some(rebuild.clone());
        let _under_way = UnderWay(self);
        let done = self.attempt(&rebuild).await;
        match &done {
            Ok(()) => self.forget_rebuild().await?,
            Err(_) if rebuild.is_cancelled() => {
                self.forget_rebuild().await?;
                self.leftovers.set(true);
                return Err("the rebuild was cancelled; streamed data stays".to_owned());
            }
            Err(_) => {}
        }
        done.map_err(|error| {
            format!("Error while rebuilding node: {error}; streamed data stays, and the next rebuild continues from there")
        })
    }

    async fn attempt(&self, rebuild: &Rebuild) -> Result<(), MembershipError> {
        let mut tries = 0;
        loop {
            let alone = self.data.acquire(1).await.map_err(|_| MembershipError::Stopped)?;
            let fetched = self.fetch_all(FetchReason::Rebuild(rebuild.clone())).await;
            drop(alone);
            let Err(error) = fetched else { return Ok(()) };
            tries += 1;
            if rebuild.is_cancelled() || tries == TRIES_MAX {
                return Err(error);
            }
            tracing::warn!("the rebuild is stalled and is tried again: {error}");
            self.rt.sleep(RETRY_PAUSE).await;
        }
    }

    /// An operator cancels a rebuild; streamed data stays.
    pub(super) async fn abort_rebuild(&self) -> Result<(), String> {
        let under_way = self.rebuild.borrow().clone();
        let Some(rebuild) = under_way else {
            if self.noted_rebuild().await.is_none() {
                return Err("this node is not being rebuilt".to_owned());
            }
            self.leftovers.set(true);
            return self.forget_rebuild().await;
        };
        rebuild.cancel();
        self.wait_until(|_| self.rebuild.borrow().is_none()).await;
        Ok(())
    }

    /// Removes files of an abandoned stream, which nothing could continue.
    pub(super) async fn drop_leftovers(&self, state: &ClusterState) {
        if !self.leftovers.get() || state.change.is_some() || self.rebuild.borrow().is_some() {
            return;
        }
        let Some(_alone) = self.data.try_acquire(1) else { return };
        // A rebuild that failed resumes where it was when it is requested again.
        if self.noted_rebuild().await.is_some() {
            return;
        }
        match self.on_all(ShardTask::FetchOver).await {
            Ok(()) => self.leftovers.set(false),
            Err(error) => tracing::warn!("files of an abandoned stream stay on the disk for now: {error}"),
        }
    }
}
