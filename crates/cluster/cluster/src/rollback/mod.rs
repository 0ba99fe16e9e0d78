//! Rolled back disks: a node whose machine was restored from an older image has forgotten writes, promises and votes that it
//! acknowledged, and must not serve (docs/design/rollback.md).
//!
//! A node records a limit of its gossip versions before it gossips up to it, and every node remembers the versions that it received of others. At
//! its start a node asks for those versions: a version above the limit on its disk proves that the disk was rolled back.

mod progress;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use rpc::{Incoming, Messenger, Refusal, Target, Verb};
use rt::sync::{Watch, oneshot};
use rt::{DiskError, Group, Instant, Rt, ShardId};
use topology::HostId;

pub use progress::Progress;
use progress::{Heard, Own};

use crate::state::host_text;

const FILE_NAME: &str = "progress.json";
const BYTES_MAX: usize = 64 << 20;
/// How many versions are recorded ahead: a heartbeat a second takes one, and little else does.
const VERSIONS_AHEAD: u64 = 15;
/// With fewer left, more are recorded.
const VERSIONS_LEFT_MIN: u64 = 5;
/// A disk that takes longer to record is not waited for: the heartbeat continues without ([`RollbackGuard::is_recorded`]).
const RECORD_TIMEOUT: Duration = Duration::from_secs(2);
/// A disk that has refused a record is given the next one so much later.
const RETRY_PAUSE: Duration = Duration::from_secs(10);
/// How long a node that starts asks, until a majority has answered.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// How long one member is waited for.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);
const ASK_PAUSE: Duration = Duration::from_millis(200);
/// Between two rounds over members that have not answered, before and after a majority has.
const ROUND_PAUSE: Duration = Duration::from_secs(1);
const LATER_PAUSE: Duration = Duration::from_secs(5);
const UNREADABLE: u16 = Refusal::FIRST_FREE;

const _: () = assert!(VERSIONS_LEFT_MIN < VERSIONS_AHEAD, "a fresh record has versions left");
const _: () = assert!(ASK_TIMEOUT.as_millis() < START_TIMEOUT.as_millis(), "a start asks more than once");

/// The disk of a node went back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this node's disk was rolled back: its last record is version {} of the process lifetime {}, and node {} has heard version {} of the \
     lifetime {}. It was restored from an older image, or is a copy of this node's disk that has run elsewhere since; writes and votes \
     that this node acknowledged are missing, so it does not start. Replace it: clear its data, commit log and hints directories and \
     start it with --replace_address_first_boot and its own address. Only where the whole cluster was restored from images: start every \
     node once with --allow_rolled_back true, then repair every node (docs/operations/nodes.md)",
    recorded.version, recorded.generation, host_text(&by.0), heard.version, heard.generation
)]
pub struct RolledBack {
    /// How far the disk says that the node came.
    pub recorded: Progress,
    /// How far it came.
    pub heard: Progress,
    /// The node that remembers it.
    pub by: HostId,
}

/// The members that a node asks.
#[derive(Clone, Debug)]
pub struct Members {
    /// All of the cluster.
    pub all: Vec<HostId>,
    /// Those that vote in its log: a majority of them has to answer. Of members that are lost for good there may be more.
    pub voters: Vec<HostId>,
}

/// This node's own record, and its memory of others. On shard 0; cheap to clone.
#[derive(Clone)]
pub struct RollbackGuard(Rc<Inner>);

struct Inner {
    rt: Rt,
    path: PathBuf,
    host: HostId,
    /// A rolled back disk is logged, and the node serves from it all the same.
    allowed: bool,
    /// The disk's record when the process started; none of a disk on which nothing was recorded.
    before: Option<Own>,
    /// The current record.
    own: RefCell<Option<Own>>,
    /// Generations of this process.
    generations: RefCell<BTreeSet<u64>>,
    /// The bound that is on disk, in this process lifetime; none before it has begun.
    recorded: Cell<Option<Progress>>,
    heard: RefCell<Heard>,
    /// Members that remember nothing that this disk has forgotten.
    confirmed_by: RefCell<BTreeSet<HostId>>,
    /// A majority of the voters was asked, or there is nothing to ask.
    cleared: Cell<bool>,
    found: Watch<Option<Rc<RolledBack>>>,
    /// The file is being written.
    writing: Cell<bool>,
    /// When the disk refused last, until it takes one.
    refused: Cell<Option<Instant>>,
}

impl fmt::Debug for RollbackGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RollbackGuard").field("host", &self.0.host).finish_non_exhaustive()
    }
}

impl RollbackGuard {
    /// Reads the records in `directory`, which exists. `generation` is that of the node's last process lifetime, 0 if it had none.
    /// With `allowed` a rolled back disk is served from.
    ///
    /// # Errors
    /// The disk refused.
    pub async fn open(
        rt: &Rt,
        directory: &Path,
        host: HostId,
        generation: u64,
        allowed: bool,
    ) -> Result<Self, DiskError> {
        assert_eq!(rt.shard(), ShardId(0), "the record of the disk's progress lives on shard 0");
        let path = directory.join(FILE_NAME);
        let read = match rt.disk().read_to_end(&path, BYTES_MAX).await {
            Ok(bytes) => progress::decode_file(&bytes).or_else(|| {
                tracing::error!(
                    "{} is damaged, or a newer version's: whether this node's disk was rolled back in its last process lifetime is not known",
                    path.display()
                );
                None
            }),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        let (own, heard) = read.unwrap_or_default();
        let own = own.or_else(|| (generation > 0).then(|| Own::unknown_within(generation)));
        Ok(Self(Rc::new(Inner {
            rt: rt.clone(),
            path,
            host,
            allowed,
            cleared: Cell::new(own.is_none()),
            before: own.clone(),
            own: RefCell::new(own),
            generations: RefCell::default(),
            recorded: Cell::new(None),
            heard: RefCell::new(heard),
            confirmed_by: RefCell::default(),
            found: Watch::new(None),
            writing: Cell::new(false),
            refused: Cell::new(None),
        })))
    }

    /// Answers questions about others: from the first moment on, since nodes that start together ask each other.
    ///
    /// # Panics
    /// When the messenger serves the verb already.
    pub fn serve(&self, messenger: &Messenger) {
        let guard = Rc::downgrade(&self.0);
        messenger.serve(Verb::LastHeard, move |incoming: Incoming| {
            let answer = guard.upgrade().map(|guard| match progress::decode_question(&incoming.body) {
                Some(host) => Ok(Bytes::from(progress::encode_answer(&guard.heard.borrow().of(host)))),
                None => Err(Refusal::new(UNREADABLE, "no question about a node's versions")),
            });
            async move { answer.unwrap_or_else(|| Err(Refusal::new(UNREADABLE, "this node stops"))) }
        });
    }

    /// This node has no cluster: nobody remembers it.
    pub(crate) fn clear(&self) {
        self.0.cleared.set(true);
    }

    /// Whether this node may count in a majority.
    pub fn is_cleared(&self) -> bool {
        self.0.cleared.get()
    }

    /// Why this node must stop.
    pub fn found(&self) -> Option<Rc<RolledBack>> {
        self.0.found.get().clone()
    }

    /// Waits until this node must stop.
    pub async fn rolled_back(&self) -> Rc<RolledBack> {
        let mut reader = self.0.found.reader();
        loop {
            if let Some(found) = self.found() {
                return found;
            }
            // The writer is held by `self`.
            let _ = reader.changed().await;
        }
    }

    /// Asks the members, this node left out, until a majority has answered or some seconds have passed: a node alone has to start, too.
    ///
    /// # Errors
    /// The disk was rolled back.
    pub async fn check(&self, messenger: &Messenger, members: &Members) -> Result<(), RolledBack> {
        let deadline = self.0.rt.now() + START_TIMEOUT;
        loop {
            self.ask(messenger, members, deadline).await;
            if let Some(found) = self.found() {
                return Err(RolledBack::clone(&found));
            }
            if self.is_cleared() {
                return Ok(());
            }
            if self.0.rt.now() + ASK_PAUSE >= deadline {
                tracing::warn!(
                    "whether this node's disk was rolled back is not known: no majority of the cluster answers; it votes when one has"
                );
                return Ok(());
            }
            self.0.rt.sleep(ASK_PAUSE).await;
        }
    }

    /// Asks the remaining members, until all have answered or the disk is known to be rolled back.
    pub(crate) async fn go_on(&self, messenger: &Messenger, members: impl Fn() -> Members) {
        if self.0.before.is_none() {
            return;
        }
        while self.found().is_none() {
            let deadline = self.0.rt.now() + ASK_TIMEOUT;
            self.ask(messenger, &members(), deadline).await;
            let pause = if self.is_cleared() { LATER_PAUSE } else { ROUND_PAUSE };
            self.0.rt.sleep(pause).await;
        }
    }

    /// One round: asks those members that have not answered.
    async fn ask(&self, messenger: &Messenger, members: &Members, deadline: Instant) {
        let inner = &self.0;
        let is_unasked = |host: &HostId| *host != inner.host && !inner.confirmed_by.borrow().contains(host);
        let unasked: Vec<HostId> = members.all.iter().copied().filter(is_unasked).collect();
        let until = deadline.min(inner.rt.now() + ASK_TIMEOUT);
        let asking = unasked.iter().map(|host| {
            let body = Bytes::from(progress::encode_question(inner.host));
            messenger.call(Target::Host { host: *host, shard: 0 }, Verb::LastHeard, body, until)
        });
        for (host, answer) in unasked.iter().zip(join_all(asking).await) {
            if let Some(heard) = answer.ok().and_then(|body| progress::decode_answer(&body)) {
                self.judge(*host, &heard);
            }
        }
        let confirmed = inner.confirmed_by.borrow();
        let counts = |host: &&HostId| **host == inner.host || confirmed.contains(host);
        let majority = members.voters.iter().filter(counts).count() > members.voters.len() / 2;
        drop(confirmed);
        if majority && self.found().is_none() {
            inner.cleared.set(true);
        }
    }

    fn judge(&self, by: HostId, heard: &[Progress]) {
        let inner = &self.0;
        let Some(before) = &inner.before else { return };
        let now = u64::try_from(inner.rt.wall_micros() / 1_000_000).unwrap_or(0);
        let generations = inner.generations.borrow();
        let heard: Vec<Progress> =
            heard.iter().copied().filter(|heard| !generations.contains(&heard.generation)).collect();
        let Some(heard) = before.find_rollback(&heard, now) else {
            inner.confirmed_by.borrow_mut().insert(by);
            return;
        };
        let recorded = if before.confirmed { before.recorded } else { before.base };
        let found = RolledBack { recorded, heard, by };
        if inner.allowed {
            tracing::error!("allow_rolled_back is set, so this node continues although: {found}");
            inner.confirmed_by.borrow_mut().insert(by);
        } else if inner.found.get().is_none() {
            inner.found.set(Some(Rc::new(found)));
        }
    }

    /// A process lifetime begins: its number, and the versions that it gossips first, are on disk when this returns. False when the disk
    /// does not take them: then the others must not remember them.
    pub async fn begin(&self, generation: u64) -> bool {
        self.record(Progress { generation, version: 0 }).await
    }

    /// Whether a version may be sent to others.
    pub(crate) fn is_recorded(&self, told: Progress) -> bool {
        self.0
            .recorded
            .get()
            .is_some_and(|recorded| recorded.generation == told.generation && recorded >= told)
    }

    /// Whether it is time to record more.
    pub(crate) fn is_low(&self, told: Progress) -> bool {
        let ahead = Progress { version: told.version + VERSIONS_LEFT_MIN, ..told };
        !self.is_recorded(ahead)
    }

    /// Records some versions beyond this one, and the versions of others. False when the disk did not finish in time.
    pub(crate) async fn record(&self, told: Progress) -> bool {
        let inner = &self.0;
        let waits = inner.refused.get().is_some_and(|refused| inner.rt.now() < refused + RETRY_PAUSE);
        if waits || inner.writing.replace(true) {
            // The disk refused a moment ago, or has not taken the last record yet.
            return false;
        }
        let bound = Progress { version: told.version + VERSIONS_AHEAD, ..told };
        let recorded = inner.recorded.get();
        assert!(recorded.is_none_or(|recorded| recorded <= bound), "the recorded limit never goes back");
        inner.generations.borrow_mut().insert(bound.generation);
        let mut own = inner.own.borrow().clone().unwrap_or_else(|| Own::unknown_within(0));
        match recorded.is_some_and(|recorded| recorded.generation == bound.generation) {
            true => own.recorded = bound,
            false => own.begin(bound),
        }
        own.confirmed = inner.cleared.get();
        let bytes = progress::encode_file(Some(&own), &inner.heard.borrow());
        let (sender, written) = oneshot::channel();
        let this = self.clone();
        let writing = async move {
            let inner = &this.0;
            let result = inner.rt.disk().write_atomically(&inner.path, &bytes).await;
            assert!(inner.writing.replace(false), "the record is written by one task at a time");
            match &result {
                Ok(()) => {
                    inner.own.replace(Some(own));
                    inner.recorded.set(Some(bound));
                    inner.refused.set(None);
                }
                Err(error) => {
                    if inner.refused.replace(Some(inner.rt.now())).is_none() {
                        tracing::warn!(
                            "how far this node's gossip comes cannot be recorded: a disk that goes back now is not noticed ({error})"
                        );
                    }
                }
            }
            // Nobody waits any more where the disk was slow.
            let _ = sender.send(result.is_ok());
        };
        // It continues when nobody waits: one file is not written by two at once.
        inner.rt.spawn(Group::Maintenance, writing).detach();
        matches!(inner.rt.timeout(RECORD_TIMEOUT, written).await, Ok(Ok(true)))
    }

    /// A member says that it has come so far, and that its disk knows.
    pub(crate) fn note(&self, host: HostId, progress: Progress) {
        self.0.heard.borrow_mut().note(host, progress);
    }

    /// Only members are remembered.
    pub(crate) fn retain(&self, is_member: impl Fn(HostId) -> bool) {
        self.0.heard.borrow_mut().retain(is_member);
    }
}
