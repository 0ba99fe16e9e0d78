//! The receiving side: transfers that are under way on this shard, and the reordering of their chunks.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;

use bytes::Bytes;
use rpc::{Incoming, Messenger, Refusal, Verb};
use rt::sync::Notify;
use rt::{Group, Instant, LocalBoxFuture, Rt, Task};
use stdx::HashMap;
use topology::HostId;

use super::codec::{CHUNK_LEN_MAX, Chunk, ChunkAnswer, Close, CodecError, Open, OpenAnswer};
use super::error::refusal;
use super::plan::{Plan, Position, TransferId};
use super::progress::{Meter, Progress};
use super::send::StreamConfig;

/// Streaming that were completed lately, whose sender may not have heard of it.
const COMPLETED_KEPT: usize = 1024;

/// The target of a transfer's content.
pub trait Sink {
    /// The position at which the transfer continues: everything before is durable.
    fn resume(&self) -> Position;

    /// Takes the next chunk; called in order, one at a time. A chunk may come again when its future was dropped.
    ///
    /// # Errors
    /// The reason, which goes to the sender; the transfer ends then.
    fn write(&self, chunk: Chunk) -> LocalBoxFuture<Result<(), String>>;

    /// The transfer is complete (everything is to be made durable and used) or given up. May be called again.
    ///
    /// # Errors
    /// The reason, which goes to the sender; it may ask again.
    fn close(&self, complete: bool) -> LocalBoxFuture<Result<(), String>>;
}

type Accept = Box<dyn Fn(HostId, Rc<Plan>) -> LocalBoxFuture<Result<Rc<dyn Sink>, String>>>;

/// A transfer that is under way.
struct Transfer {
    from: HostId,
    plan: Rc<Plan>,
    sink: Rc<dyn Sink>,
    next: RefCell<Position>,
    /// A chunk is being written.
    writing: Cell<bool>,
    /// Chunks that came before their turn, in bytes.
    early_bytes: Cell<usize>,
    moved: Notify,
    failed: RefCell<Option<String>>,
    used_at: Cell<Instant>,
    meter: RefCell<Meter>,
}

struct Inner {
    rt: Rt,
    config: StreamConfig,
    accept: Accept,
    transfers: RefCell<HashMap<TransferId, Rc<Transfer>>>,
    /// Streaming whose sink is being made.
    opening: RefCell<Vec<TransferId>>,
    completed: RefCell<VecDeque<TransferId>>,
}

/// The transfers that come to this shard. Ends with them when dropped or stopped.
pub struct Receiver {
    inner: Rc<Inner>,
    sweeper: RefCell<Option<Task<()>>>,
}

fn refuse(code: u16, message: impl Into<String>) -> Refusal {
    Refusal::new(code, message)
}

fn malformed(error: &CodecError) -> Refusal {
    let code = match error {
        CodecError::Checksum { .. } => refusal::DAMAGED,
        _ => refusal::MALFORMED,
    };
    refuse(code, error.to_string())
}

impl Receiver {
    /// Receives transfers on the shard of `rt`. `accept` makes the sink of a transfer that a host begins, or of one
    /// that resumes after this node was restarted; its error goes to the sender, which then gives up.
    pub fn new<F>(
        rt: &Rt,
        messenger: &Messenger,
        config: StreamConfig,
        accept: impl Fn(HostId, Rc<Plan>) -> F + 'static,
    ) -> Receiver
    where
        F: Future<Output = Result<Rc<dyn Sink>, String>> + 'static,
    {
        let inner = Rc::new(Inner {
            rt: rt.clone(),
            config,
            accept: Box::new(move |from, plan| Box::pin(accept(from, plan))),
            transfers: RefCell::default(),
            opening: RefCell::default(),
            completed: RefCell::default(),
        });
        let owner = Rc::clone(&inner);
        messenger.serve(Verb::StreamOpen, move |incoming| Rc::clone(&owner).open(incoming));
        let owner = Rc::clone(&inner);
        messenger.serve(Verb::StreamChunk, move |incoming| Rc::clone(&owner).chunk(incoming));
        let owner = Rc::clone(&inner);
        messenger.serve(Verb::StreamClose, move |incoming| Rc::clone(&owner).close(incoming));
        let sweeper = rt.spawn(Group::Maintenance, sweep(Rc::clone(&inner)));
        Receiver { inner, sweeper: RefCell::new(Some(sweeper)) }
    }

    /// The transfers that are under way.
    pub fn progress(&self) -> Vec<(TransferId, HostId, Progress)> {
        let transfers = self.inner.transfers.borrow();
        let one =
            |transfer: &Rc<Transfer>| (transfer.plan.id(), transfer.from, transfer.meter.borrow().progress());
        let mut all: Vec<_> = transfers.values().map(one).collect();
        all.sort_by_key(|(id, ..)| *id);
        all
    }

    /// Forgets all transfers; their senders find out when they open them again.
    pub fn stop(&self) {
        self.sweeper.borrow_mut().take();
        let transfers = std::mem::take(&mut *self.inner.transfers.borrow_mut());
        for transfer in transfers.values() {
            transfer.moved.notify_all();
        }
    }
}

/// Forgets transfers that were idle for long.
async fn sweep(inner: Rc<Inner>) {
    loop {
        inner.rt.sleep(inner.config.idle_max / 4).await;
        let now = inner.rt.now();
        let idle = |transfer: &Transfer| {
            now >= transfer.used_at.get() + inner.config.idle_max && !transfer.writing.get()
        };
        inner.transfers.borrow_mut().retain(|id, transfer| {
            let kept = !idle(transfer);
            if !kept {
                tracing::info!(
                    "the transfer {id} is forgotten: nothing came for {:?}",
                    inner.config.idle_max
                );
            }
            kept
        });
    }
}

/// Leaves the list of transfers whose sink is being made.
struct Opening<'a>(&'a Inner, TransferId);

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.opening.borrow_mut().retain(|id| *id != self.1);
    }
}

impl Inner {
    fn answer(&self, position: Position) -> Bytes {
        OpenAnswer { resume: position, window: self.config.window }.encode()
    }

    async fn open(self: Rc<Self>, incoming: Incoming) -> Result<Bytes, Refusal> {
        let Open { plan } = Open::decode(&incoming.body).map_err(|error| malformed(&error))?;
        let id = plan.id();
        if self.completed.borrow().contains(&id) {
            return Ok(self.answer(plan.end()));
        }
        if let Some(transfer) = self.transfers.borrow().get(&id) {
            if transfer.from != incoming.from || *transfer.plan != plan {
                return Err(refuse(refusal::OTHER_PLAN, "this transfer is under way with another plan"));
            }
            transfer.used_at.set(self.rt.now());
            let position = transfer.next.borrow().clone();
            transfer.meter.borrow_mut().begun_at(&plan, &position, true);
            return Ok(self.answer(position));
        }
        let begun = self.transfers.borrow().len() + self.opening.borrow().len();
        if begun >= self.config.transfers_max || self.opening.borrow().contains(&id) {
            return Err(refuse(refusal::TOO_MANY, "too many transfers are under way"));
        }
        self.opening.borrow_mut().push(id);
        let opening = Opening(&self, id);
        let plan = Rc::new(plan);
        let sink = (self.accept)(incoming.from, Rc::clone(&plan)).await;
        let sink = sink.map_err(|error| refuse(refusal::SINK, error))?;
        drop(opening);
        let position = sink.resume();
        if !plan.contains(&position) {
            return Err(refuse(refusal::SINK, "the receiver stored a position that the plan does not have"));
        }
        let now = self.rt.now();
        let mut meter = Meter::new(&plan, now);
        meter.begun_at(&plan, &position, position.place() > (0, 0));
        let transfer = Transfer {
            from: incoming.from,
            plan,
            sink,
            next: RefCell::new(position.clone()),
            writing: Cell::new(false),
            early_bytes: Cell::new(0),
            moved: Notify::new(),
            failed: RefCell::new(None),
            used_at: Cell::new(now),
            meter: RefCell::new(meter),
        };
        self.transfers.borrow_mut().insert(id, Rc::new(transfer));
        Ok(self.answer(position))
    }

    /// The transfer of that name, if it is this host's.
    fn find(&self, id: TransferId, from: HostId) -> Result<Rc<Transfer>, Refusal> {
        let found = self.transfers.borrow().get(&id).filter(|transfer| transfer.from == from).map(Rc::clone);
        let transfer = found
            .ok_or_else(|| refuse(refusal::UNKNOWN_TRANSFER, format!("no transfer {id} is under way")))?;
        transfer.used_at.set(self.rt.now());
        Ok(transfer)
    }

    async fn chunk(self: Rc<Self>, incoming: Incoming) -> Result<Bytes, Refusal> {
        let chunk = Chunk::decode(&incoming.body).map_err(|error| malformed(&error))?;
        let id = chunk.transfer;
        let transfer = self.find(id, incoming.from)?;
        let early_max = self.config.window as usize + CHUNK_LEN_MAX;
        let Some(turn) = transfer.turn(&chunk, early_max).await? else {
            return Ok(self.answer(transfer.next.borrow().clone()));
        };
        transfer.check(&chunk)?;
        let (bytes, last, cursor) = (chunk.data.len() as u64, chunk.last, chunk.cursor.clone());
        if let Err(error) = transfer.sink.write(chunk).await {
            *transfer.failed.borrow_mut() = Some(error.clone());
            self.transfers.borrow_mut().remove(&id);
            return Err(refuse(refusal::SINK, error));
        }
        let position = transfer.plan.after(&transfer.next.borrow(), bytes, last, cursor);
        *transfer.next.borrow_mut() = position.clone();
        drop(turn);
        let now = self.rt.now();
        transfer.used_at.set(now);
        transfer.meter.borrow_mut().came(bytes, &position, now);
        let answer: ChunkAnswer = ChunkAnswer { resume: position, window: self.config.window };
        Ok(answer.encode())
    }

    async fn close(self: Rc<Self>, incoming: Incoming) -> Result<Bytes, Refusal> {
        let close = Close::decode(&incoming.body).map_err(|error| malformed(&error))?;
        let id = close.transfer;
        if self.completed.borrow().contains(&id) {
            return Ok(Bytes::new());
        }
        let transfer = match self.find(id, incoming.from) {
            Ok(transfer) => transfer,
            Err(_) if !close.complete => return Ok(Bytes::new()),
            Err(refusal) => return Err(refusal),
        };
        if close.complete && *transfer.next.borrow() != transfer.plan.end() {
            return Err(refuse(refusal::OUT_OF_PLACE, "not everything has come"));
        }
        let closed = transfer.sink.close(close.complete).await;
        self.transfers.borrow_mut().remove(&id);
        closed.map_err(|error| refuse(refusal::SINK, error))?;
        if close.complete {
            let mut completed = self.completed.borrow_mut();
            completed.push_back(id);
            if completed.len() > COMPLETED_KEPT {
                completed.pop_front();
            }
        }
        Ok(Bytes::new())
    }
}

/// The right to write the next chunk; waiting senders look again when it is released.
struct Turn<'a>(&'a Transfer);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.writing.set(false);
        self.0.moved.notify_all();
    }
}

/// A chunk that waits for those before it.
struct Early<'a>(&'a Transfer, usize);

impl Drop for Early<'_> {
    fn drop(&mut self) {
        self.0.early_bytes.set(self.0.early_bytes.get() - self.1);
    }
}

impl Transfer {
    /// Waits until a chunk is the next one; none when it has come already.
    async fn turn(&self, chunk: &Chunk, early_max: usize) -> Result<Option<Turn<'_>>, Refusal> {
        let mut early = None;
        loop {
            if let Some(error) = &*self.failed.borrow() {
                return Err(refuse(refusal::SINK, error.clone()));
            }
            let next = self.next.borrow().place();
            if chunk.place() < next {
                return Ok(None);
            }
            if chunk.place() == next && !self.writing.get() {
                self.writing.set(true);
                return Ok(Some(Turn(self)));
            }
            if early.is_none() {
                let bytes = self.early_bytes.get() + chunk.data.len();
                if bytes > early_max {
                    return Err(refuse(refusal::OUT_OF_PLACE, "more came ahead than the window allows"));
                }
                self.early_bytes.set(bytes);
                early = Some(Early(self, chunk.data.len()));
            }
            self.moved.notified().await;
        }
    }

    /// Whether the plan has such a chunk.
    fn check(&self, chunk: &Chunk) -> Result<(), Refusal> {
        let out = |why: &str| Err(refuse(refusal::MALFORMED, why));
        let Some(item) = self.plan.items().get(chunk.item as usize) else {
            return out("the plan has no such item");
        };
        let end = chunk.offset.saturating_add(chunk.data.len() as u64);
        match item.length {
            Some(length) if end > length => out("the item is shorter"),
            Some(length) if chunk.last != (end == length) => out("the item ends elsewhere"),
            _ if chunk.data.is_empty() && !chunk.last => out("an empty chunk"),
            _ => Ok(()),
        }
    }
}
