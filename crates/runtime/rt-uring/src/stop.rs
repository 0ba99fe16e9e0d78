//! Asking nodes to stop: by a signal to the process, or by the caller that started several of them in one.

use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Asks a node of this process to stop, from any thread. Give it to [`crate::Config::stop`].
#[derive(Clone, Debug, Default)]
pub struct StopHandle(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    requested: bool,
    waiting: Option<Waker>,
}

impl StopHandle {
    /// Asks; the node may still be starting, or have ended.
    pub fn request(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.requested = true;
        let waiting = state.waiting.take();
        drop(state);
        if let Some(waker) = waiting {
            waker.wake();
        }
    }

    /// Ready when the node is to stop.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.requested {
            return Poll::Ready(());
        }
        state.waiting = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// SIGTERM and SIGINT. A second SIGINT ends the process.
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    interrupts: u32,
}

impl StopSignals {
    /// Takes the signals of the process over; on a tokio runtime.
    pub(crate) fn watch() -> io::Result<Self> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, interrupts: 0 })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        let interrupted = poll_fn(|cx| {
            if self.interrupt.poll_recv(cx).is_ready() {
                return Poll::Ready(true);
            }
            self.terminate.poll_recv(cx).map(|_| false)
        })
        .await;
        self.interrupts += u32::from(interrupted);
        if self.interrupts > 1 {
            eprintln!("interrupted twice: ending without a clean stop");
            std::process::exit(130);
        }
    }
}

/// Calls `requested` on a thread of its own at every SIGTERM and SIGINT, until the process ends. For a process of several
/// nodes; one alone has [`crate::Config::handle_signals`].
///
/// # Errors
/// That of the system when it refuses the handlers of the signals or the thread.
pub fn on_stop_signal(requested: impl Fn() + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    // Before the thread begins, so that no signal is missed.
    let mut signals = runtime.block_on(async { StopSignals::watch() })?;
    let watch = move || {
        runtime.block_on(async {
            loop {
                signals.next().await;
                requested();
            }
        })
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(watch).map(|_| ())
}
