//! File content through one private io_uring a shard.
//!
//! Submissions gather during a turn of the executor and go to the kernel with one system call; completions are
//! taken at the beginning of a turn. While the shard sleeps an eventfd, watched by tokio's poller, wakes it
//! (watching the ring's own descriptor hangs with DEFER_TASKRUN, because nothing then runs the deferred work).
//!
//! The kernel uses an operation's buffer until it completes, so buffer and file belong to the operation's slot,
//! not to the future, and the ring is drained before it is dropped.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use io_uring::{IoUring, opcode, squeue, types};
use rt::driver::{FileDriver, LocalBoxFuture, MappingDriver};
use rt::executor::TurnHook;
use rt::sync::{Permit, Semaphore};
use rt::{IO_ALIGNMENT, IoBuf};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::blocking::{self, BlockingFile, on_pool};

/// Submissions that are gathered before the kernel is called in the middle of a turn.
const SUBMISSIONS_MAX: u32 = 256;
/// The largest single transfer; the caller's loop does the rest.
const TRANSFER_BYTES_MAX: usize = 1 << 30;

enum OpState {
    Free,
    InFlight(Option<Waker>),
    /// The future is gone; the slot is freed at completion.
    Abandoned,
    Done(i32),
}

/// An operation under way, with all that the kernel uses until it completes.
struct Op {
    state: OpState,
    buf: Option<IoBuf>,
    file: Option<Arc<File>>,
    permit: Option<Permit>,
}

#[derive(Default)]
struct Ops {
    slots: Vec<Op>,
    free: Vec<u32>,
    in_flight: usize,
}

/// The ring of one shard.
pub(crate) struct Ring {
    ring: RefCell<IoUring>,
    ops: RefCell<Ops>,
    unsubmitted: Cell<bool>,
    completed: AsyncFd<OwnedFd>,
    limit: Semaphore,
}

/// Builds a ring with the best flags that this kernel has.
fn build_ring(operations_max: u32) -> io::Result<IoUring> {
    let submissions = operations_max.clamp(1, SUBMISSIONS_MAX);
    let completions = operations_max.max(submissions).next_power_of_two();
    let deferred = IoUring::builder()
        .setup_cqsize(completions)
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .dontfork()
        .build(submissions);
    match deferred {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            IoUring::builder().setup_cqsize(completions).dontfork().build(submissions)
        }
        result => result,
    }
}

impl Ring {
    /// To be called on the shard's thread inside its tokio runtime: only this thread may submit.
    pub(crate) fn new(operations_max: u32) -> io::Result<Ring> {
        let ring = build_ring(operations_max)?;
        // SAFETY: no pointers; the result is checked.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        ring.submitter().register_eventfd(fd.as_raw_fd())?;
        // SAFETY: the AsyncFd owns the descriptor, which stays open and the same as long as it lives.
        let completed = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE)? };
        Ok(Ring {
            ring: RefCell::new(ring),
            ops: RefCell::new(Ops::default()),
            unsubmitted: Cell::new(false),
            completed,
            limit: Semaphore::new(operations_max as usize),
        })
    }

    /// Ready once after completions have arrived; to be asked before the shard sleeps.
    pub(crate) fn poll_completed(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.ops.borrow().in_flight == 0 {
            return Poll::Pending;
        }
        match self.completed.poll_read_ready(cx) {
            Poll::Ready(Ok(mut guard)) => {
                // The poller is edge-triggered, so there is no need to read the descriptor.
                guard.clear_ready();
                Poll::Ready(())
            }
            Poll::Ready(Err(error)) => panic!("the poller of a shard ended while the shard runs: {error}"),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Queues an operation. `entry` may point into `buf` and name `file`: both are held until it completes.
    fn start(
        self: &Rc<Ring>,
        entry: squeue::Entry,
        buf: Option<IoBuf>,
        file: Arc<File>,
        permit: Permit,
    ) -> OpFuture {
        let mut ops = self.ops.borrow_mut();
        ops.in_flight += 1;
        let op = Op { state: OpState::InFlight(None), buf, file: Some(file), permit: Some(permit) };
        let index = match ops.free.pop() {
            Some(index) => {
                ops.slots[index as usize] = op;
                index
            }
            None => {
                ops.slots.push(op);
                u32::try_from(ops.slots.len() - 1).expect("operations are limited")
            }
        };
        drop(ops);
        let entry = entry.user_data(u64::from(index));
        // SAFETY: the memory and the descriptor that the entry names belong to the slot, which lives until the
        // completion; the ring is drained before its slots are dropped.
        while unsafe { self.ring.borrow_mut().submission().push(&entry) }.is_err() {
            self.submit();
        }
        self.unsubmitted.set(true);
        OpFuture { ring: Rc::clone(self), index }
    }

    /// Hands the gathered submissions to the kernel and runs its deferred work.
    fn submit(&self) {
        let result = self.ring.borrow().submit();
        match result {
            Ok(_) => {
                let left = !self.ring.borrow_mut().submission().is_empty();
                self.unsubmitted.set(left);
            }
            Err(error) => match error.raw_os_error() {
                // Short of memory, interrupted, or completions are to be taken first: again at the next turn.
                Some(libc::EAGAIN | libc::EINTR | libc::EBUSY) => {
                    self.reap();
                }
                _ => panic!("io_uring_enter failed: {error}"),
            },
        }
    }

    /// Takes the completions that are there.
    fn reap(&self) -> bool {
        let mut any = false;
        loop {
            let Some(entry) = self.ring.borrow_mut().completion().next() else { return any };
            any = true;
            self.complete(entry.user_data() as usize, entry.result());
        }
    }

    fn complete(&self, index: usize, result: i32) {
        let mut ops = self.ops.borrow_mut();
        ops.in_flight -= 1;
        let op = &mut ops.slots[index];
        let permit = op.permit.take();
        let file = op.file.take();
        match std::mem::replace(&mut op.state, OpState::Done(result)) {
            OpState::InFlight(waker) => {
                drop(ops);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            OpState::Abandoned => {
                let buf = op.buf.take();
                op.state = OpState::Free;
                ops.free.push(index as u32);
                drop(ops);
                drop(buf);
            }
            OpState::Free | OpState::Done(_) => unreachable!("an operation completes once"),
        }
        drop((permit, file));
    }

    /// Whether the kernel has completions or deferred work for us.
    fn has_completions(&self) -> bool {
        let mut ring = self.ring.borrow_mut();
        !ring.completion().is_empty() || ring.submission().taskrun()
    }

    /// Waits, blocking, until the kernel uses no buffer any more.
    fn drain(&self) {
        while self.ops.borrow().in_flight > 0 {
            match self.ring.borrow().submit_and_wait(1) {
                Ok(_) => {}
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                Err(error) => panic!("io_uring_enter failed: {error}"),
            }
            self.reap();
        }
    }
}

impl TurnHook for Ring {
    fn poll(&self) -> bool {
        if self.ops.borrow().in_flight == 0 {
            return false;
        }
        if self.ring.borrow_mut().submission().taskrun() {
            self.submit();
        }
        self.reap()
    }

    fn flush(&self) {
        if self.unsubmitted.get() {
            self.submit();
        }
    }

    fn has_input(&self) -> bool {
        self.unsubmitted.get() || (self.ops.borrow().in_flight > 0 && self.has_completions())
    }

    fn shutdown(&self) {
        self.drain();
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.drain();
    }
}

/// Waits for one operation: gives the kernel's result and the buffer.
struct OpFuture {
    ring: Rc<Ring>,
    index: u32,
}

impl Future for OpFuture {
    type Output = (io::Result<usize>, Option<IoBuf>);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut ops = self.ring.ops.borrow_mut();
        let op = &mut ops.slots[self.index as usize];
        match &mut op.state {
            OpState::InFlight(waker) => {
                match waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    None => *waker = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
            OpState::Done(result) => {
                let result = match *result {
                    done if done >= 0 => Ok(done as usize),
                    // For a file this means "not now" without a reason to wait for.
                    error if -error == libc::EAGAIN => Err(io::ErrorKind::Interrupted.into()),
                    error => Err(io::Error::from_raw_os_error(-error)),
                };
                let buf = op.buf.take();
                op.state = OpState::Free;
                ops.free.push(self.index);
                Poll::Ready((result, buf))
            }
            OpState::Free | OpState::Abandoned => unreachable!("an operation is polled until it is done"),
        }
    }
}

impl Drop for OpFuture {
    fn drop(&mut self) {
        let mut ops = self.ring.ops.borrow_mut();
        let op = &mut ops.slots[self.index as usize];
        match std::mem::replace(&mut op.state, OpState::Free) {
            // The result was taken; the slot may serve another operation only after this returns.
            OpState::Free => {}
            OpState::InFlight(waker) => {
                op.state = OpState::Abandoned;
                drop(ops);
                drop(waker);
            }
            OpState::Done(_) => {
                let buf = op.buf.take();
                ops.free.push(self.index);
                drop(ops);
                drop(buf);
            }
            OpState::Abandoned => unreachable!("an operation is given up once"),
        }
    }
}

/// A file whose content goes through the ring.
pub(crate) struct RingFile {
    ring: Rc<Ring>,
    pool: BlockingFile,
}

impl RingFile {
    pub(crate) fn new(ring: Rc<Ring>, pool: BlockingFile) -> RingFile {
        RingFile { ring, pool }
    }

    fn transfer(
        &self,
        buf: IoBuf,
        start: usize,
        len: usize,
        entry: impl FnOnce(types::Fd, *mut u8, u32) -> squeue::Entry + 'static,
    ) -> LocalBoxFuture<(io::Result<usize>, IoBuf)> {
        let ring = Rc::clone(&self.ring);
        let file = Arc::clone(&self.pool.file);
        let mut buf = buf;
        Box::pin(async move {
            let len = len.min(TRANSFER_BYTES_MAX);
            let permit = ring.limit.acquire(1).await.expect("the limit of a ring is never closed");
            let memory = buf.io_area_mut(start, len).as_mut_ptr();
            let entry = entry(types::Fd(file.as_raw_fd()), memory, len as u32);
            let (result, buf) = ring.start(entry, Some(buf), file, permit).await;
            (result, buf.expect("a transfer gives its buffer back"))
        })
    }

    fn without_buffer(&self, entry: squeue::Entry) -> LocalBoxFuture<io::Result<()>> {
        let ring = Rc::clone(&self.ring);
        let file = Arc::clone(&self.pool.file);
        Box::pin(async move {
            loop {
                let permit = ring.limit.acquire(1).await.expect("the limit of a ring is never closed");
                match ring.start(entry.clone(), None, Arc::clone(&file), permit).await.0 {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    result => return result.map(|_| ()),
                }
            }
        })
    }

    fn fd(&self) -> types::Fd {
        types::Fd(self.pool.file.as_raw_fd())
    }
}

impl FileDriver for RingFile {
    fn read(
        &self,
        position: u64,
        buf: IoBuf,
        start: usize,
        len: usize,
    ) -> LocalBoxFuture<(io::Result<usize>, IoBuf)> {
        self.transfer(buf, start, len, move |fd, memory, len| {
            opcode::Read::new(fd, memory, len).offset(position).build()
        })
    }

    fn write(
        &self,
        position: u64,
        buf: IoBuf,
        start: usize,
        len: usize,
    ) -> LocalBoxFuture<(io::Result<usize>, IoBuf)> {
        self.transfer(buf, start, len, move |fd, memory, len| {
            opcode::Write::new(fd, memory.cast_const(), len).offset(position).build()
        })
    }

    fn sync(&self, all: bool) -> LocalBoxFuture<io::Result<()>> {
        let flags = if all { types::FsyncFlags::empty() } else { types::FsyncFlags::DATASYNC };
        self.without_buffer(opcode::Fsync::new(self.fd()).flags(flags).build())
    }

    fn set_len(&self, len: u64) -> LocalBoxFuture<io::Result<()>> {
        self.pool.set_len(len)
    }

    fn allocate(&self, position: u64, len: u64) -> LocalBoxFuture<io::Result<()>> {
        let done = self.without_buffer(opcode::Fallocate::new(self.fd(), len).offset(position).build());
        let file = Arc::clone(&self.pool.file);
        let handle = self.pool.handle.clone();
        Box::pin(async move {
            match done.await {
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                    on_pool(handle, move || blocking::extend(&file, position + len)).await
                }
                result => result,
            }
        })
    }

    fn map(&self, len: u64) -> LocalBoxFuture<io::Result<Box<dyn MappingDriver>>> {
        self.pool.map(len)
    }

    fn len(&self) -> LocalBoxFuture<io::Result<u64>> {
        self.pool.len()
    }

    fn alignment(&self) -> usize {
        if self.pool.direct { IO_ALIGNMENT } else { 1 }
    }
}
