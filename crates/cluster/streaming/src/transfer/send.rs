//! The sending side: reads from a source, sends within window and bandwidth, and resumes after a cut.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use rpc::{Messenger, RpcError, Target, Verb};
use rt::{Group, Instant, LocalBoxFuture, Rt, Task};

use super::bandwidth::Bandwidth;
use super::codec::{CHUNK_LEN_MAX, Chunk, ChunkAnswer, Close, Open, OpenAnswer};
use super::error::{StreamError, refusal};
use super::plan::{CURSOR_LEN_MAX, Plan, Position, TransferId};
use super::progress::{Meter, Progress};
use super::sending::Sending;

/// How transfers behave; the receiver's parts are the last four.
#[derive(Clone, Debug)]
pub struct StreamConfig {
    /// Bytes of one chunk at most.
    pub chunk_len: usize,
    /// How long one message may take.
    pub timeout: Duration,
    /// A transfer that makes no progress for this time is given up.
    pub give_up: Duration,
    /// The first pause after a cut, which doubles up to the longest.
    pub pause_min: Duration,
    /// The longest pause.
    pub pause_max: Duration,
    /// Bytes that may be under way of one transfer.
    pub window: u32,
    /// Streaming that may come to one shard at once.
    pub transfers_max: usize,
    /// An idle transfer is forgotten after this time; its sink stores the received bytes.
    pub idle_max: Duration,
}

impl Default for StreamConfig {
    fn default() -> Self {
        StreamConfig {
            chunk_len: 256 << 10,
            timeout: Duration::from_secs(30),
            give_up: Duration::from_secs(600),
            pause_min: Duration::from_millis(100),
            pause_max: Duration::from_secs(10),
            window: 4 << 20,
            transfers_max: 64,
            idle_max: Duration::from_secs(1800),
        }
    }
}

/// A chunk of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// The bytes; empty only when the item ends.
    pub data: Bytes,
    /// Of rows: from where the next piece is to be read, should the transfer be cut here.
    pub cursor: Bytes,
    /// Whether the item ends with it.
    pub last: bool,
}

/// The source of a transfer's content.
pub trait Source {
    /// The content behind a position, at most `len_max` bytes. The same position gives the same bytes again; of rows, rows
    /// that mean the same.
    ///
    /// # Errors
    /// The reason for which the content cannot be read; the transfer ends then.
    fn read(&self, from: Position, len_max: usize) -> LocalBoxFuture<Result<Piece, String>>;
}

/// The cost of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Bytes that have arrived.
    pub bytes: u64,
    /// How often the transfer was cut and went on.
    pub resumed: u32,
}

struct Inner {
    rt: Rt,
    messenger: Messenger,
    config: StreamConfig,
    bandwidth: RefCell<Bandwidth>,
    running: RefCell<BTreeMap<TransferId, Meter>>,
}

/// Sends transfers from one shard. Cheap to clone; clones share the bandwidth.
#[derive(Clone)]
pub struct Sender {
    inner: Rc<Inner>,
}

/// How an attempt ended.
enum Ended {
    /// Another one may help.
    Cut(RpcError),
    Failed(StreamError),
}

impl From<RpcError> for Ended {
    fn from(error: RpcError) -> Self {
        match error {
            RpcError::Refused(refused) if !refusal::may_be_repeated(refused.code) => {
                Ended::Failed(StreamError::Refused(refused))
            }
            RpcError::TooLarge { .. } => Ended::Failed(StreamError::Protocol(error.to_string())),
            RpcError::Stopped => Ended::Failed(StreamError::GaveUp(error)),
            error => Ended::Cut(error),
        }
    }
}

/// Shows a transfer while it is under way.
struct Shown<'a>(&'a Inner, TransferId);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.0.running.borrow_mut().remove(&self.1);
    }
}

/// One transfer, over all its attempts.
struct Run<'a> {
    inner: &'a Inner,
    to: Target,
    plan: &'a Plan,
    source: &'a dyn Source,
    moved_at: Instant,
    attempts: u32,
}

impl Sender {
    /// Sends over `messenger`, at most `bytes_a_second` in all.
    pub fn new(rt: &Rt, messenger: &Messenger, config: StreamConfig, bytes_a_second: Option<u64>) -> Sender {
        Sender {
            inner: Rc::new(Inner {
                rt: rt.clone(),
                messenger: messenger.clone(),
                config,
                bandwidth: RefCell::new(Bandwidth::new(bytes_a_second)),
                running: RefCell::default(),
            }),
        }
    }

    /// Changes the limit of bandwidth, for transfers that are under way too.
    pub fn set_bandwidth(&self, bytes_a_second: Option<u64>) {
        self.inner.bandwidth.borrow_mut().set(bytes_a_second);
    }

    /// The transfers that are under way.
    pub fn progress(&self) -> Vec<(TransferId, Progress)> {
        let running = self.inner.running.borrow();
        running.iter().map(|(id, meter)| (*id, meter.progress())).collect()
    }

    /// Streaming all of a plan to a shard of a peer. When this returns, the peer's sink has everything and is closed.
    /// Dropping the future cuts the transfer; sent again, it resumes where the receiver is.
    ///
    /// # Errors
    /// [`StreamError::Refused`] when the receiver refuses it, [`StreamError::Source`] when the content cannot be read,
    /// [`StreamError::GaveUp`] when nothing arrived for too long, [`StreamError::Protocol`] when its answers contradict
    /// the plan.
    pub async fn send(&self, to: Target, plan: &Plan, source: &dyn Source) -> Result<Summary, StreamError> {
        let inner = &*self.inner;
        let now = inner.rt.now();
        inner.running.borrow_mut().insert(plan.id(), Meter::new(plan, now));
        let _shown = Shown(inner, plan.id());
        let mut run = Run { inner, to, plan, source, moved_at: now, attempts: 0 };
        let mut pause = inner.config.pause_min;
        loop {
            let began = run.moved_at;
            let error = match run.attempt().await {
                Ok(()) => {
                    let progress = inner.progress_of(plan.id());
                    return Ok(Summary { bytes: progress.bytes_done, resumed: progress.resumed });
                }
                Err(Ended::Failed(error)) => return Err(error),
                Err(Ended::Cut(error)) => error,
            };
            if inner.rt.now() >= run.moved_at + inner.config.give_up {
                return Err(StreamError::GaveUp(error));
            }
            tracing::debug!("the transfer {} was cut: {error}", plan.id());
            pause = if run.moved_at > began { inner.config.pause_min } else { pause };
            let jitter = inner.rt.random_below(pause.as_nanos() as u64 / 2 + 1);
            inner.rt.sleep(pause + Duration::from_nanos(jitter)).await;
            pause = (pause * 2).min(inner.config.pause_max);
        }
    }

    /// Notifies the receiver that a transfer is abandoned.
    ///
    /// # Errors
    /// That of the call; the receiver gives the transfer up by itself later.
    pub async fn abandon(&self, to: Target, transfer: TransferId) -> Result<(), RpcError> {
        let inner = &*self.inner;
        let body = Close { transfer, complete: false }.encode();
        let deadline = inner.rt.now() + inner.config.timeout;
        inner.messenger.call(to, Verb::StreamClose, body, deadline).await.map(|_| ())
    }
}

impl Inner {
    fn progress_of(&self, id: TransferId) -> Progress {
        self.running.borrow().get(&id).map(Meter::progress).unwrap_or_default()
    }

    fn meter(&self, id: TransferId, change: impl FnOnce(&mut Meter)) {
        if let Some(meter) = self.running.borrow_mut().get_mut(&id) {
            change(meter);
        }
    }
}

type Calls = VecDeque<Task<Result<Bytes, RpcError>>>;

impl Run<'_> {
    async fn call(&self, verb: Verb, body: Bytes) -> Result<Bytes, RpcError> {
        let deadline = self.inner.rt.now() + self.inner.config.timeout;
        self.inner.messenger.call(self.to, verb, body, deadline).await
    }

    fn answer(&self, body: &[u8]) -> Result<OpenAnswer, Ended> {
        let answer = OpenAnswer::decode(body);
        answer.map_err(|error| Ended::Failed(StreamError::Protocol(error.to_string())))
    }

    /// From opening to the end, or to the next cut.
    async fn attempt(&mut self) -> Result<(), Ended> {
        let opened = self.call(Verb::StreamOpen, Open { plan: self.plan.clone() }.encode()).await?;
        let answer = self.answer(&opened)?;
        let protocol = |why: &str| Ended::Failed(StreamError::Protocol(why.to_owned()));
        let mut sending = Sending::new(self.plan, &answer).map_err(protocol)?;
        self.attempts += 1;
        let again = self.attempts > 1 || answer.resume.place() > (0, 0);
        self.inner.meter(self.plan.id(), |meter| meter.begun_at(self.plan, &answer.resume, again));
        let mut calls = Calls::new();
        while let Some(from) = sending.next(self.plan).cloned() {
            let piece = self.read(&from).await?;
            while calls.front().is_some_and(Task::is_finished) || !sending.has_room(piece.data.len()) {
                self.collect(&mut sending, &mut calls).await?;
            }
            let wait = self.inner.bandwidth.borrow_mut().take(piece.data.len(), self.inner.rt.now());
            if wait > Duration::ZERO {
                self.inner.rt.sleep(wait).await;
            }
            calls.push_back(self.begin(&from, &piece));
            sending.sent(self.plan, piece.data.len(), piece.last, piece.cursor);
        }
        while !calls.is_empty() {
            self.collect(&mut sending, &mut calls).await?;
        }
        self.call(Verb::StreamClose, Close { transfer: self.plan.id(), complete: true }.encode()).await?;
        Ok(())
    }

    async fn read(&self, from: &Position) -> Result<Piece, Ended> {
        let failed = |error: String| Ended::Failed(StreamError::Source(error));
        let len_max = self.inner.config.chunk_len.clamp(1, CHUNK_LEN_MAX);
        let piece = self.source.read(from.clone(), len_max).await.map_err(failed)?;
        if piece.data.len() > CHUNK_LEN_MAX || piece.cursor.len() > CURSOR_LEN_MAX {
            return Err(failed("it gave more than a chunk holds".to_owned()));
        }
        if piece.data.is_empty() && !piece.last {
            return Err(failed(format!("item {} ends before it should", from.item)));
        }
        Ok(piece)
    }

    /// Sends a chunk; its answer is waited for later.
    fn begin(&self, from: &Position, piece: &Piece) -> Task<Result<Bytes, RpcError>> {
        let chunk = Chunk {
            transfer: self.plan.id(),
            item: from.item,
            offset: from.offset,
            last: piece.last,
            cursor: piece.cursor.clone(),
            data: piece.data.clone(),
        };
        let (messenger, to, head) = (self.inner.messenger.clone(), self.to, chunk.encode_head());
        let deadline = self.inner.rt.now() + self.inner.config.timeout;
        self.inner.rt.spawn(Group::Streaming, async move {
            messenger.call_parts(to, Verb::StreamChunk, head, chunk.data, deadline).await
        })
    }

    /// Waits for the oldest answer.
    async fn collect(&mut self, sending: &mut Sending, calls: &mut Calls) -> Result<(), Ended> {
        let Some(call) = calls.pop_front() else { return Ok(()) };
        let answer: ChunkAnswer = self.answer(&call.await?)?;
        let bytes = sending.arrived(&answer);
        let now = self.inner.rt.now();
        if bytes > 0 {
            self.moved_at = now;
        }
        self.inner.meter(self.plan.id(), |meter| meter.came(bytes, sending.position(), now));
        Ok(())
    }
}
