//! Streaming of SSTables as files, for bootstrap, decommission, removenode, replace and rebuild.
//!
//! A shard of a pending replica queries a shard of a current replica for a table and token ranges. The source references its SSTables,
//! sends those that lie wholly in the ranges as they are and the wanted ranges of others as SSTables of their own, and then reports which
//! of them make up its content. The receiver adopts that set by one edit: it is the content of the source at one moment after the
//! query. The caller decides which replica to query, and reads the rows that other replicas have beyond it. [`transfer`] moves the files.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

pub mod transfer;

mod codec;
mod error;
mod fetch;
mod source;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use crate::transfer::{Progress, Receiver, Sender, StreamConfig, TransferId};
use engine::Engine;
use rpc::{Messenger, Verb};
use rt::sync::Semaphore;
use rt::{DiskError, Rt, Task};
use topology::HostId;

pub use codec::{Answer, Offered, Question, RequestId, SourceState};
pub use error::FetchError;
pub use fetch::{Fetched, Peer};

/// How SSTables are sent and fetched.
#[derive(Clone, Debug)]
pub struct StreamingConfig {
    /// How each transfer behaves.
    pub stream: StreamConfig,
    /// Bytes a second that this shard sends; none for no limit.
    pub bytes_per_second: Option<u64>,
    /// A directory for transfers under way, on the file system of the tables.
    pub directory: PathBuf,
    /// Requests that a shard serves at once; others wait.
    pub served_at_once: usize,
    /// A source that has nothing new to tell answers after so long.
    pub answer_within: Duration,
    /// A source that does not answer for so long is given up; a request that nobody asks after for so long is forgotten.
    pub silent_max: Duration,
}

impl StreamingConfig {
    /// The usual values, with a directory.
    pub fn new(directory: PathBuf) -> Self {
        Self {
            stream: StreamConfig {
                give_up: Duration::from_secs(60),
                idle_max: Duration::from_secs(300),
                pause_max: Duration::from_secs(2),
                transfers_max: 256,
                ..StreamConfig::default()
            },
            bytes_per_second: None,
            directory,
            served_at_once: 2,
            answer_within: Duration::from_secs(5),
            silent_max: Duration::from_secs(60),
        }
    }
}

/// The transfers of a shard at present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamingProgress {
    /// Streaming that go out, with the host that gets them.
    pub sending: Vec<(TransferId, Progress)>,
    /// Streaming that come in, with the host that sends them.
    pub receiving: Vec<(TransferId, HostId, Progress)>,
    /// Bytes that the requests under way come to, as far as sources have told.
    pub bytes_total: u64,
    /// Bytes of them that are there.
    pub bytes_done: u64,
}

/// One shard's end of all transfers of SSTables. Cheap to clone.
#[derive(Clone)]
pub struct Streaming(Rc<Inner>);

struct Inner {
    rt: Rt,
    messenger: Messenger,
    engine: Engine,
    config: StreamingConfig,
    /// This node.
    host: HostId,
    sender: Sender,
    receiver: RefCell<Option<Receiver>>,
    /// The requests of others.
    jobs: RefCell<BTreeMap<(HostId, RequestId), Rc<source::Job>>>,
    turns: Semaphore,
    /// The requests of this shard.
    awaited: RefCell<BTreeMap<RequestId, Rc<fetch::Waiting>>>,
    /// The files that were taken over in this lifetime and belong to something that is not complete.
    adopted: RefCell<BTreeSet<RequestId>>,
    sweeper: RefCell<Option<Task<()>>>,
    stopped: Cell<bool>,
}

impl Streaming {
    /// This shard's end, on the node `host`. Serves others from now on; files that an earlier process wrote for sending are removed, files that had
    /// arrived stay until they are requested again.
    ///
    /// # Errors
    /// A [`DiskError`] when leftover files of an earlier process cannot be removed.
    pub async fn open(
        rt: &Rt,
        host: HostId,
        messenger: &Messenger,
        engine: &Engine,
        config: StreamingConfig,
    ) -> Result<Self, DiskError> {
        let sender = Sender::new(rt, messenger, config.stream.clone(), config.bytes_per_second);
        let inner = Rc::new(Inner {
            rt: rt.clone(),
            messenger: messenger.clone(),
            engine: engine.clone(),
            turns: Semaphore::new(config.served_at_once.max(1)),
            host,
            sender,
            receiver: RefCell::default(),
            jobs: RefCell::default(),
            awaited: RefCell::default(),
            adopted: RefCell::default(),
            sweeper: RefCell::default(),
            stopped: Cell::new(false),
            config,
        });
        remove_dir(&inner, &inner.outgoing()).await?;
        let owner = Rc::downgrade(&inner);
        let accept = move |from, plan| {
            let owner = owner.upgrade();
            async move {
                match owner {
                    Some(inner) => fetch::accept(inner, from, plan).await,
                    None => Err("the node stops".to_owned()),
                }
            }
        };
        let receiver = Receiver::new(rt, messenger, inner.config.stream.clone(), accept);
        *inner.receiver.borrow_mut() = Some(receiver);
        let owner = Rc::clone(&inner);
        messenger.serve(Verb::StreamFiles, move |incoming| source::serve(Rc::clone(&owner), incoming));
        let sweeping = rt.spawn(rt::Group::Maintenance, source::sweep(Rc::downgrade(&inner)));
        *inner.sweeper.borrow_mut() = Some(sweeping);
        Ok(Self(inner))
    }

    /// Changes the limit of the bytes a second that this shard sends, for transfers that are under way too; none for no limit.
    pub fn set_bandwidth(&self, bytes_per_second: Option<u64>) {
        self.0.sender.set_bandwidth(bytes_per_second);
    }

    /// The operations under way.
    pub fn progress(&self) -> StreamingProgress {
        let inner = &self.0;
        let awaited = inner.awaited.borrow();
        StreamingProgress {
            sending: inner.sender.progress(),
            receiving: inner.receiver.borrow().as_ref().map(Receiver::progress).unwrap_or_default(),
            bytes_total: awaited.values().map(|waiting| waiting.bytes_total()).sum(),
            bytes_done: awaited.values().map(|waiting| waiting.bytes_done()).sum(),
        }
    }

    /// Ends everything that is under way. Fetching again resumes where it is.
    pub fn stop(&self) {
        let inner = &self.0;
        inner.stopped.set(true);
        drop(inner.sweeper.borrow_mut().take());
        let jobs = std::mem::take(&mut *inner.jobs.borrow_mut());
        jobs.values().for_each(|job| job.stop());
        if let Some(receiver) = inner.receiver.borrow_mut().take() {
            receiver.stop();
        }
    }

    /// To be called when all fetches of this shard are complete: their remaining files on disk, and those of abandoned fetches from
    /// before, are removed.
    ///
    /// # Errors
    /// A [`DiskError`] when the files cannot be removed.
    pub async fn finish(&self) -> Result<(), DiskError> {
        self.0.adopted.borrow_mut().clear();
        remove_dir(&self.0, &self.0.incoming()).await
    }
}

impl Inner {
    fn incoming(&self) -> PathBuf {
        self.config.directory.join(format!("in-{}", self.rt.shard().0))
    }

    fn outgoing(&self) -> PathBuf {
        self.config.directory.join(format!("out-{}", self.rt.shard().0))
    }
}

/// Removes a directory that may not be there.
async fn remove_dir(inner: &Inner, path: &std::path::Path) -> Result<(), DiskError> {
    let disk = inner.rt.disk();
    if !disk.exists(path).await? {
        return Ok(());
    }
    match disk.remove_dir_all(path).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
