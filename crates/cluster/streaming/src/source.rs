//! The source's side: the requests of others, one job each.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::time::Duration;

use crate::transfer::{FileRange, FileSource, Item, ItemKind, Plan, StreamError, TransferId};
use bytes::Bytes;
use engine::{Outgoing, OwnedRanges, Wanted};
use rpc::{Incoming, Refusal, Target};
use rt::sync::Notify;
use rt::{Group, Instant, Task};
use sstable::Component;
use topology::{HostId, TableSharder};
use xxhash_rust::xxh3::Xxh3;

use crate::codec::{self, Answer, NO_ATTEMPT, Offered, Question, SourceState};
use crate::{Inner, remove_dir};

/// How often it is looked which requests nobody asks after any more.
const SWEEP_PERIOD: Duration = Duration::from_secs(10);

/// How long a requester waits for the total, once that is known.
const TOTAL_WITHIN: Duration = Duration::from_secs(1);

mod code {
    use rpc::Refusal;

    pub(super) const MALFORMED: u16 = Refusal::FIRST_FREE;
    pub(super) const OTHER_SHARDS: u16 = Refusal::FIRST_FREE + 1;
    pub(super) const STOPPED: u16 = Refusal::FIRST_FREE + 2;
}

/// A request of another node.
pub(crate) struct Job {
    attempt: u64,
    state: RefCell<SourceState>,
    changed: Notify,
    /// The asking side has been told how much comes.
    total_sent: Cell<bool>,
    asked_at: Cell<Instant>,
    /// The directory for SSTables that have to be rewritten for sending.
    scratch: PathBuf,
    task: RefCell<Option<Task<()>>>,
}

impl Job {
    /// Ends it; sent bytes stay with the receiver.
    pub(crate) fn stop(&self) {
        drop(self.task.borrow_mut().take());
    }

    fn set_state(&self, state: SourceState) {
        *self.state.borrow_mut() = state;
        self.changed.notify_all();
    }

    /// Whether there is something new to say of how much comes.
    fn has_total(&self) -> bool {
        let known =
            matches!(&*self.state.borrow(), SourceState::UnderWay { bytes_total } if *bytes_total > 0);
        known && !self.total_sent.get()
    }

    fn is_over(&self) -> bool {
        !matches!(&*self.state.borrow(), SourceState::UnderWay { .. })
    }
}

/// Answers a question: at once when the request is over, else when something changes or after a while.
pub(crate) async fn serve(inner: Rc<Inner>, incoming: Incoming) -> Result<Bytes, Refusal> {
    let question =
        Question::decode(&incoming.body).map_err(|error| Refusal::new(code::MALFORMED, error.to_string()))?;
    let own = inner.rt.shard_count();
    if question.source_shards != own {
        let text = format!("this node has {own} shards, not {}", question.source_shards);
        return Err(Refusal::new(code::OTHER_SHARDS, text));
    }
    if inner.stopped.get() {
        return Err(Refusal::new(code::STOPPED, "the node stops"));
    }
    if question.attempt == NO_ATTEMPT {
        let wanted = wanted(sharder_of(&inner, incoming.from, &question), &question);
        let bytes_total = inner.engine.estimate_files(question.table, &wanted).unwrap_or(0);
        return Ok(Answer(SourceState::UnderWay { bytes_total }).encode());
    }
    let job = inner.job(incoming.from, question);
    let began = inner.rt.now();
    loop {
        // The answer of a transfer that ends soon waits for its end: that costs one answer, not two.
        let within = if job.has_total() { TOTAL_WITHIN } else { inner.config.answer_within };
        let until = began + within.min(inner.config.answer_within);
        if job.is_over() || inner.rt.now() >= until {
            break;
        }
        // Either it has changed, or it is time to say that it has not.
        let _ = inner.rt.timeout_at(until, job.changed.notified()).await;
    }
    job.total_sent.set(job.total_sent.get() || job.has_total());
    job.asked_at.set(inner.rt.now());
    let state = job.state.borrow().clone();
    Ok(Answer(state).encode())
}

impl Inner {
    /// The job of a question; another attempt begins anew.
    fn job(self: &Rc<Self>, from: HostId, question: Question) -> Rc<Job> {
        let key = (from, question.request);
        let known = self.jobs.borrow().get(&key).filter(|job| job.attempt == question.attempt).cloned();
        if let Some(job) = known {
            job.asked_at.set(self.rt.now());
            return job;
        }
        let job = Rc::new(Job {
            attempt: question.attempt,
            state: RefCell::new(SourceState::UnderWay { bytes_total: 0 }),
            changed: Notify::new(),
            total_sent: Cell::new(false),
            asked_at: Cell::new(self.rt.now()),
            scratch: self.outgoing().join(format!("{}-{:016x}", question.request, question.attempt)),
            task: RefCell::default(),
        });
        let before = self.jobs.borrow_mut().insert(key, Rc::clone(&job));
        if let Some(before) = before {
            self.give_up(&before);
        }
        let (inner, working) = (Rc::clone(self), Rc::downgrade(&job));
        let task = self.rt.spawn(Group::Streaming, async move {
            let done = send_all(&inner, from, &question, &working).await;
            if let Some(job) = working.upgrade() {
                job.set_state(done.unwrap_or_else(SourceState::Failed));
                remove_scratch(&inner, &job.scratch).await;
            }
        });
        *job.task.borrow_mut() = Some(task);
        job
    }

    /// Ends a job that is of no use any more, and removes its files.
    fn give_up(self: &Rc<Self>, job: &Job) {
        job.stop();
        let (inner, scratch) = (Rc::clone(self), job.scratch.clone());
        let removing = async move { remove_scratch(&inner, &scratch).await };
        self.rt.spawn(Group::Maintenance, removing).detach();
    }
}

/// Forgets requests that nobody asks after any more.
pub(crate) async fn sweep(inner: Weak<Inner>) {
    loop {
        let Some(rt) = inner.upgrade().map(|inner| inner.rt.clone()) else { return };
        rt.sleep(SWEEP_PERIOD).await;
        let Some(inner) = inner.upgrade() else { return };
        let (now, silent_max) = (rt.now(), inner.config.silent_max);
        let is_silent = |job: &Rc<Job>| now >= job.asked_at.get() + silent_max;
        let silent: Vec<_> = inner.jobs.borrow_mut().extract_if(.., |_, job| is_silent(job)).collect();
        for ((host, request), job) in silent {
            if !job.is_over() {
                tracing::info!("host {host:?} does not ask for its files any more (request {request})");
                inner.give_up(&job);
            }
        }
    }
}

async fn remove_scratch(inner: &Inner, scratch: &Path) {
    if let Err(error) = remove_dir(inner, scratch).await {
        tracing::warn!("{} is removed by the next start: {error}", scratch.display());
    }
}

/// The shards of the asking node that own the table's tokens.
fn sharder_of(inner: &Inner, from: HostId, question: &Question) -> TableSharder {
    inner.engine.sharder(from, question.shards.max(1), question.table)
}

/// The target of a question, for the engine.
pub(crate) fn wanted(sharder: TableSharder, question: &Question) -> Wanted {
    Wanted {
        tokens: OwnedRanges::new(question.ranges.iter().map(|range| (range.after, range.upto))),
        shard: question.shard,
        sharder,
    }
}

/// Sends the requested files.
async fn send_all(
    inner: &Rc<Inner>,
    to: HostId,
    question: &Question,
    job: &Weak<Job>,
) -> Result<SourceState, String> {
    let _turn = inner.turns.acquire(1).await.map_err(|_| "the node stops".to_owned())?;
    let job = || job.upgrade().ok_or("nobody waits for it any more");
    let scratch = job()?.scratch.clone();
    let held = inner.engine.hold_files(question.table).await.map_err(|error| error.to_string())?;
    let wanted = wanted(sharder_of(inner, to, question), question);
    let disk = inner.rt.disk();
    disk.create_dir_all(&scratch).await.map_err(|error| error.to_string())?;
    let (chosen, mut damaged) = held.select(&wanted, &scratch).await.map_err(|error| error.to_string())?;
    let bytes_total = chosen.iter().map(Outgoing::bytes).sum();
    job()?.set_state(SourceState::UnderWay { bytes_total });
    let mut offered = Vec::with_capacity(chosen.len());
    for outgoing in &chosen {
        let transfer = transfer_id(inner, question, outgoing).await.map_err(|error| error.to_string())?;
        let offer = Offered { transfer: transfer.0, files: outgoing.files.clone() };
        let plan = plan_of(question, &offer).map_err(|error| error.to_string())?;
        let range = |(component, length): &(Component, u64)| FileRange {
            path: outgoing.descriptor.path(*component),
            start: 0,
            length: *length,
            checksum: outgoing.checksum.filter(|_| *component == Component::Data),
        };
        let source = FileSource::new(disk, outgoing.files.iter().map(range).collect());
        let target = Target::Host { host: to, shard: question.shard };
        match inner.sender.send(target, &plan, &source).await {
            Ok(_) => offered.push(offer),
            // The others continue, and the readable rows of this one are sent as rows.
            Err(StreamError::Source(_)) if held.is_damaged(outgoing).await.is_ok_and(|damaged| damaged) => {
                damaged += 1;
                // The received part of it is removed there with the rest when this fails.
                let _ = inner.sender.abandon(target, plan.id()).await;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    let damaged = u32::try_from(damaged).unwrap_or(u32::MAX);
    Ok(SourceState::Done { truncated_at: held.truncated_at(), offered, damaged })
}

/// Names an SSTable's transfer by its content, so that the same files resume where they were after a restart of either side. Files
/// written for one attempt belongs to that.
async fn transfer_id(
    inner: &Inner,
    question: &Question,
    outgoing: &Outgoing,
) -> Result<TransferId, rt::DiskError> {
    let mut hasher = Xxh3::new();
    hasher.update(&inner.host.0);
    hasher.update(&question.request.0);
    hasher.update(outgoing.descriptor.to_string().as_bytes());
    for (component, length) in &outgoing.files {
        hasher.update(&[codec::number(*component)]);
        hasher.update(&length.to_be_bytes());
    }
    // A number may be given again after a restart; the content's checksum is another then.
    for component in [Component::Digest, Component::Statistics] {
        match inner.rt.disk().read_to_end(outgoing.descriptor.path(component), 64 << 20).await {
            Ok(bytes) => hasher.update(&bytes),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    if !outgoing.whole {
        hasher.update(&question.attempt.to_be_bytes());
    }
    Ok(TransferId(hasher.digest128().to_be_bytes()))
}

/// The transfer of an SSTable, as both sides make it.
pub(crate) fn plan_of(question: &Question, offered: &Offered) -> Result<Plan, crate::transfer::PlanError> {
    let item = |(component, length): &(Component, u64)| Item {
        kind: ItemKind::File,
        length: Some(*length),
        descriptor: Bytes::copy_from_slice(&[codec::number(*component)]),
    };
    let purpose = Bytes::copy_from_slice(&question.request.0);
    Plan::new(TransferId(offered.transfer), purpose, offered.files.iter().map(item).collect())
}
