//! A backend of `rt` for these tests: shards on one thread, virtual time, and a network of pipes whose capacity and
//! resets are like those of sockets.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::BytesMut;
use rt::driver::{
    Clock, DiskDriver, FileDriver, ListenerDriver, LockOutput, NetDriver, PathOp, PathOutput, Random,
    StreamDriver,
};
use rt::executor::Executor;
use rt::{
    ConnectOptions, Disk, Group, Instant, IoQueue, ListenOptions, LocalBoxFuture, Net, OpenOptions, Rt,
    RtParts, ShardId,
};

/// Bytes that a pipe holds before its writer has to wait.
pub const PIPE_CAPACITY: usize = 64 << 10;

#[derive(Default)]
pub struct TestClock {
    now: Cell<u64>,
    /// Every look at the quota finds it spent.
    pub always_spent: Cell<bool>,
}

impl Clock for TestClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.now.get())
    }

    fn wall_micros(&self) -> i64 {
        1_700_000_000_000_000 + (self.now.get() / 1000) as i64
    }

    fn quota_spent(&self, _turn_start: Instant, _quota: Duration) -> bool {
        self.always_spent.get()
    }
}

struct NoRandom;

impl Random for NoRandom {
    fn next_u64(&self) -> u64 {
        4
    }

    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(4);
    }
}

struct NoDisk;

impl DiskDriver for NoDisk {
    fn open(&self, _: std::path::PathBuf, _: OpenOptions) -> LocalBoxFuture<io::Result<Rc<dyn FileDriver>>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    fn path_op(&self, _: PathOp) -> LocalBoxFuture<io::Result<PathOutput>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    fn lock(&self, _: std::path::PathBuf) -> LocalBoxFuture<io::Result<LockOutput>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }
}

/// One direction of a connection.
#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    writer_closed: bool,
    reader_closed: bool,
    reset: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if self.bytes.is_empty() && !self.writer_closed {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.reset || self.reader_closed || self.writer_closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.bytes.len() >= PIPE_CAPACITY {
            self.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

type SharedPipe = Rc<RefCell<Pipe>>;

struct TestStream {
    incoming: SharedPipe,
    outgoing: SharedPipe,
    local: SocketAddr,
    peer: SocketAddr,
    net: Rc<Network>,
    detached: bool,
}

impl Drop for TestStream {
    fn drop(&mut self) {
        if self.detached {
            return;
        }
        let mut incoming = self.incoming.borrow_mut();
        let mut outgoing = self.outgoing.borrow_mut();
        incoming.reader_closed = true;
        outgoing.writer_closed = true;
        if !incoming.bytes.is_empty() {
            // As a socket that is closed with unread bytes: the other end loses the bytes that it has not read yet.
            outgoing.reset = true;
            incoming.reset = true;
        }
        incoming.wake();
        outgoing.wake();
    }
}

impl StreamDriver for TestStream {
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.incoming.borrow_mut().poll_readable(cx)
    }

    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut pipe = self.incoming.borrow_mut();
        std::task::ready!(pipe.poll_readable(cx))?;
        let len = buf.len().min(pipe.bytes.len());
        for (target, byte) in buf.iter_mut().zip(pipe.bytes.drain(..len)) {
            *target = byte;
        }
        pipe.wake();
        Poll::Ready(Ok(len))
    }

    fn poll_read_buf(&self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        let mut bytes = vec![0; buf.capacity() - buf.len()];
        assert!(!bytes.is_empty(), "no room to read into");
        let read = std::task::ready!(self.poll_read(cx, &mut bytes))?;
        buf.extend_from_slice(&bytes[..read]);
        Poll::Ready(Ok(read))
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outgoing.borrow_mut().poll_writable(cx)
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut pipe = self.outgoing.borrow_mut();
        std::task::ready!(pipe.poll_writable(cx))?;
        let len = bytes.len().min(PIPE_CAPACITY - pipe.bytes.len());
        pipe.bytes.extend(&bytes[..len]);
        pipe.wake();
        Poll::Ready(Ok(len))
    }

    fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = slices.iter().find(|slice| !slice.is_empty());
        first.map_or(Poll::Ready(Ok(0)), |slice| self.poll_write(cx, slice))
    }

    fn poll_shutdown(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut pipe = self.outgoing.borrow_mut();
        pipe.writer_closed = true;
        pipe.wake();
        Poll::Ready(Ok(()))
    }

    fn set_nodelay(&self, _: bool) -> io::Result<()> {
        Ok(())
    }

    fn set_keepalive(&self, _: Duration) -> io::Result<()> {
        Ok(())
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local)
    }

    fn detach(mut self: Box<Self>) -> io::Result<Box<dyn Any + Send>> {
        self.detached = true;
        let net = Rc::clone(&self.net);
        let ticket = net.tickets.get();
        net.tickets.set(ticket + 1);
        net.detached
            .borrow_mut()
            .insert(ticket, (self.incoming.clone(), self.outgoing.clone(), self.local, self.peer));
        Ok(Box::new(ticket))
    }
}

#[derive(Default)]
struct Backlog {
    waiting: VecDeque<Box<TestStream>>,
    acceptor: Option<Waker>,
}

type Detached = (SharedPipe, SharedPipe, SocketAddr, SocketAddr);

#[derive(Default)]
pub struct Network {
    listeners: RefCell<BTreeMap<SocketAddr, Rc<RefCell<Backlog>>>>,
    detached: RefCell<BTreeMap<u64, Detached>>,
    tickets: Cell<u64>,
    ports: Cell<u16>,
}

struct TestNet(Rc<Network>);

struct TestListener {
    net: Rc<Network>,
    backlog: Rc<RefCell<Backlog>>,
    address: SocketAddr,
}

impl Drop for TestListener {
    fn drop(&mut self) {
        self.net.listeners.borrow_mut().remove(&self.address);
    }
}

impl ListenerDriver for TestListener {
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Box<dyn StreamDriver>, SocketAddr)>> {
        let mut backlog = self.backlog.borrow_mut();
        match backlog.waiting.pop_front() {
            Some(stream) => {
                let peer = stream.peer;
                Poll::Ready(Ok((stream, peer)))
            }
            None => {
                backlog.acceptor = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

impl NetDriver for TestNet {
    fn listen(
        &self,
        address: SocketAddr,
        _: ListenOptions,
    ) -> LocalBoxFuture<io::Result<Box<dyn ListenerDriver>>> {
        let net = Rc::clone(&self.0);
        Box::pin(async move {
            let backlog = Rc::<RefCell<Backlog>>::default();
            if net.listeners.borrow().contains_key(&address) {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            net.listeners.borrow_mut().insert(address, Rc::clone(&backlog));
            Ok(Box::new(TestListener { net, backlog, address }) as Box<dyn ListenerDriver>)
        })
    }

    fn connect(
        &self,
        address: SocketAddr,
        options: ConnectOptions,
    ) -> LocalBoxFuture<io::Result<Box<dyn StreamDriver>>> {
        let net = Rc::clone(&self.0);
        Box::pin(async move {
            let local = options.local.unwrap_or_else(|| {
                net.ports.set(net.ports.get() % 20_000 + 1);
                SocketAddr::from(([127, 0, 0, 1], 40_000 + net.ports.get()))
            });
            let backlog = net.listeners.borrow().get(&address).cloned();
            let backlog = backlog.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionRefused))?;
            let (there, back) = (SharedPipe::default(), SharedPipe::default());
            let stream = |incoming: &SharedPipe, outgoing: &SharedPipe, local, peer| {
                let (incoming, outgoing) = (Rc::clone(incoming), Rc::clone(outgoing));
                Box::new(TestStream {
                    incoming,
                    outgoing,
                    local,
                    peer,
                    net: Rc::clone(&net),
                    detached: false,
                })
            };
            let mut waiting = backlog.borrow_mut();
            waiting.waiting.push_back(stream(&there, &back, address, local));
            if let Some(acceptor) = waiting.acceptor.take() {
                acceptor.wake();
            }
            Ok(stream(&back, &there, local, address) as Box<dyn StreamDriver>)
        })
    }

    fn attach(&self, detached: Box<dyn Any + Send>) -> io::Result<Box<dyn StreamDriver>> {
        let ticket = detached.downcast::<u64>().expect("a ticket of this network");
        let (incoming, outgoing, local, peer) =
            self.0.detached.borrow_mut().remove(&ticket).expect("a ticket is used once");
        let net = Rc::clone(&self.0);
        Ok(Box::new(TestStream { incoming, outgoing, local, peer, net, detached: false }))
    }
}

/// Shards that run in turn on this thread.
pub struct Shards {
    pub clock: Rc<TestClock>,
    pub rts: Vec<Rt>,
    executors: Vec<Executor>,
}

impl Shards {
    pub fn new(count: u16) -> Self {
        let clock = Rc::new(TestClock::default());
        let network = Rc::<Network>::default();
        let executors: Vec<_> =
            (0..count).map(|_| Executor::new(Rc::clone(&clock) as Rc<dyn Clock>)).collect();
        let rt = |(shard, executor): (usize, &Executor)| {
            let queue = IoQueue::new(Rc::clone(&clock) as Rc<dyn Clock>, None, count, Duration::ZERO);
            Rt::new(RtParts {
                shard: ShardId(shard as u16),
                shard_count: count,
                executor: executor.clone(),
                clock: Rc::clone(&clock) as Rc<dyn Clock>,
                random: Rc::new(NoRandom),
                disk: Disk::new(Rc::new(NoDisk), queue),
                net: Net::new(Rc::new(TestNet(Rc::clone(&network)))),
            })
        };
        let rts = executors.iter().enumerate().map(rt).collect();
        Self { clock, rts, executors }
    }

    /// Runs everything until `future`, on shard 0, is done. Time passes only when nothing else can happen.
    pub fn block_on<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        let mut task = {
            let _entered = self.executors[0].enter();
            self.rts[0].spawn(Group::Statement, future)
        };
        loop {
            let mut busy = false;
            for executor in &self.executors {
                let _entered = executor.enter();
                if executor.has_work() {
                    executor.run_turn();
                    busy = true;
                }
            }
            if task.is_finished() {
                let mut cx = Context::from_waker(Waker::noop());
                let Poll::Ready(output) = std::pin::Pin::new(&mut task).poll(&mut cx) else {
                    panic!("a finished task has its result")
                };
                return output;
            }
            if !busy {
                let next = self.executors.iter().filter_map(Executor::next_deadline).min();
                let next = next.expect("everything waits for something that will not happen");
                self.clock.now.set(self.clock.now.get().max(next.as_nanos()));
                for executor in &self.executors {
                    let _entered = executor.enter();
                    executor.fire_timers(next);
                }
            }
        }
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        for executor in &self.executors {
            let _entered = executor.enter();
            executor.shutdown();
        }
    }
}
