//! Exports and imports of tables: the place that the operator allows, the tasks of this shard, and their records.

pub(crate) mod csv;
pub(crate) mod data_file;
mod failure;
pub(crate) mod lines;
pub(crate) mod place;
pub(crate) mod record;
pub(crate) mod s3;
pub(crate) mod storage;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use rt::{Group, Instant, Rt, Task};
use types::CqlType;

use crate::error::{ApiError, ErrorKind, Result};
pub(crate) use failure::Failure;
use place::{PlaceError, Root};
use record::{Kind, RECORDS_MAX, Record, Records};
use s3::{ObjectStore, S3};
use storage::Files;

/// Exports and imports of a shard at once.
const TASKS_MAX: usize = 4;
/// How often the record of one under way is written.
const SAVE_INTERVAL: Duration = Duration::from_secs(2);
/// How often an operation is tried again, and the pause before the first time; it grows.
const RETRIES_MAX: u32 = 6;
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// How long a token stands for the request that it came with.
pub(crate) const TOKEN_MILLIS: i64 = 8 * 3600 * 1000;
/// How long the look for transfers of an earlier process may take when the node starts.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);

impl From<PlaceError> for ApiError {
    fn from(error: PlaceError) -> Self {
        match error {
            PlaceError::Disk(error) => Self::new(ErrorKind::InternalServer, error.to_string()),
            other => Self::validation(other.to_string()),
        }
    }
}

/// Seconds since 1970 as the API shows them.
pub(crate) fn seconds(micros: i64) -> f64 {
    micros.div_euclid(1000) as f64 / 1000.0
}

/// A time in microseconds since 1970 as text, to the millisecond.
pub(crate) fn time_text(micros: i64) -> String {
    CqlType::Timestamp.to_text(&micros.div_euclid(1000).to_be_bytes())
}

/// Exports and imports of this shard.
pub(crate) struct Transfers {
    pub(crate) rt: Rt,
    pub(crate) files: Files,
    /// The name of this node in records.
    pub(crate) node: String,
    tasks: RefCell<BTreeMap<(&'static str, String), (Kind, Task<()>)>>,
    is_stopped: Cell<bool>,
}

impl Transfers {
    pub(crate) fn new(rt: &Rt, path: PathBuf, objects: Option<ObjectStore>, node: String) -> Self {
        let root = Root { disk: rt.disk().clone(), path };
        let objects = objects.map(|store| Rc::new(S3::new(rt, store)));
        Self {
            rt: rt.clone(),
            files: Files { root, objects },
            node,
            tasks: RefCell::default(),
            is_stopped: Cell::new(false),
        }
    }

    /// Refuses a transfer when there are as many as there may be.
    ///
    /// # Errors
    /// When there are, or when the node stops.
    pub(crate) fn check_room(&self) -> Result<()> {
        let mut tasks = self.tasks.borrow_mut();
        tasks.retain(|_, (_, task)| !task.is_finished());
        if tasks.len() < TASKS_MAX && !self.is_stopped.get() {
            return Ok(());
        }
        let text = "There are as many exports and imports under way as this node carries out at once";
        Err(ApiError::new(ErrorKind::LimitExceeded, text))
    }

    /// The outcome of an operation, which is tried again for a while when it fails for a reason that passes.
    ///
    /// # Errors
    /// That of the last try.
    pub(crate) async fn retrying<T>(&self, mut operation: impl AsyncFnMut() -> Result<T>) -> Result<T> {
        let mut pause = RETRY_PAUSE;
        for _ in 0..RETRIES_MAX {
            match operation().await {
                Err(error) if error.is_passing() => self.rt.sleep(pause).await,
                done => return done,
            }
            pause *= 2;
        }
        operation().await
    }

    /// Carries out a transfer in the background.
    pub(crate) fn begin(&self, kind: Kind, id: &str, work: impl Future<Output = ()> + 'static) {
        let task = self.rt.spawn(Group::Maintenance, work);
        self.tasks.borrow_mut().insert((kind.part(), id.to_owned()), (kind, task));
    }

    /// Writes the record of a new transfer; the oldest ones that are over give way to it.
    ///
    /// # Errors
    /// When the disk fails.
    pub(crate) async fn add(&self, kind: Kind, id: &str, record: &Record) -> Result<(), PlaceError> {
        let records = Records(&self.files.root);
        let ids = records.ids(kind).await?;
        for old in ids.iter().take((ids.len() + 1).saturating_sub(RECORDS_MAX)) {
            if !records.read(kind, old).await?.is_some_and(|record| record.is_running(kind)) {
                records.remove(kind, old).await?;
            }
        }
        records.write(kind, id, record).await
    }

    /// Ends all transfers of this shard, which fail; no more begin.
    pub(crate) async fn stop(&self) {
        self.is_stopped.set(true);
        let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        for ((_, id), (kind, task)) in tasks {
            let is_finished = task.is_finished();
            task.cancel().await;
            if !is_finished {
                self.interrupted(kind, &id).await;
            }
        }
    }

    /// Has the transfers fail that an earlier process of this node has left behind. Before any begins.
    pub(crate) async fn fail_abandoned(&self) {
        let look = async {
            for kind in [Kind::Export, Kind::Import] {
                let ids = Records(&self.files.root).ids(kind).await?;
                for id in ids {
                    self.interrupted(kind, &id).await;
                }
            }
            Ok::<_, PlaceError>(())
        };
        match self.rt.timeout(LOOK_TIMEOUT, look).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("exports and imports of before are not known: {error}"),
            Err(_) => tracing::warn!(
                "the directory of the option alternator_export_directory has not answered in {LOOK_TIMEOUT:?}"
            ),
        }
    }

    /// Writes down that a transfer of this node was interrupted, if it was not done.
    async fn interrupted(&self, kind: Kind, id: &str) {
        let records = Records(&self.files.root);
        let done = async {
            let Some(mut record) = records.read(kind, id).await? else { return Ok(()) };
            if record.node != self.node || !record.is_running(kind) {
                return Ok(());
            }
            let failure = ("InternalServerError", "The node stopped before it was done");
            record.end(kind, seconds(self.rt.wall_micros()), Some(failure));
            records.write(kind, id, &record).await
        };
        if let Err(error) = done.await {
            let part = kind.part();
            tracing::warn!("the record of {part} {id}, which was interrupted, cannot be written: {error}");
        }
    }
}

/// The record of a transfer under way.
pub(crate) struct Progress<'a> {
    pub(crate) transfers: &'a Transfers,
    pub(crate) kind: Kind,
    pub(crate) id: &'a str,
    pub(crate) record: Record,
    saved: Instant,
}

impl<'a> Progress<'a> {
    pub(crate) fn new(transfers: &'a Transfers, kind: Kind, id: &'a str, record: Record) -> Self {
        Self { transfers, kind, id, record, saved: transfers.rt.now() }
    }

    /// Writes the record when it was last written some time ago. A failure only delays it.
    pub(crate) async fn save_sometimes(&mut self) {
        let now = self.transfers.rt.now();
        if now.duration_since(self.saved) >= SAVE_INTERVAL {
            self.saved = now;
            if let Err(error) =
                Records(&self.transfers.files.root).write(self.kind, self.id, &self.record).await
            {
                tracing::warn!("the record of {} {} cannot be written: {error}", self.kind.part(), self.id);
            }
        }
    }

    /// Writes the end of the transfer.
    pub(crate) async fn end(&mut self, result: std::result::Result<(), Failure>) {
        let (part, id) = (self.kind.part(), self.id);
        let failure = result.as_ref().err();
        match failure {
            None => tracing::info!("{part} {id} is complete"),
            Some(failure) => tracing::warn!("{part} {id} has failed: {}: {}", failure.code, failure.message),
        }
        let failure = failure.map(|failure| (failure.code, failure.message.as_str()));
        self.record.end(self.kind, seconds(self.transfers.rt.wall_micros()), failure);
        if let Err(error) = Records(&self.transfers.files.root).write(self.kind, id, &self.record).await {
            tracing::error!(
                "the end of {part} {id} cannot be written, which shows it as unfinished: {error}"
            );
        }
    }
}
