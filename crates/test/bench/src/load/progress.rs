//! A line a second on standard error: how far the run is, how fast, and when it will end.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::load::cpu::Usage;
use crate::load::options::Options;
use crate::load::shared::{PhaseLength, Shared};

/// Prints until it is dropped.
pub(crate) struct Progress {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    pub(crate) fn start(
        options: &Options,
        shared: &Arc<Shared>,
        warmup: Duration,
        length: PhaseLength,
    ) -> Self {
        let (stop, stopped) = channel();
        let (shared, pid) = (shared.clone(), options.server_pid);
        let thread = std::thread::spawn(move || {
            let start = Instant::now();
            let (mut last, mut last_at, mut cpu) = (0, start, server_micros(pid));
            while stopped.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
                let now = Instant::now();
                let completed = shared.completed.load(Ordering::Relaxed);
                let failed = shared.failed.load(Ordering::Relaxed);
                let since = completed - last;
                let rate = since as f64 / (now - last_at).as_secs_f64();
                let left = time_left(now - start, warmup, length, completed, rate);
                let mut line =
                    format!("{:5.0} s {completed:>12} ops {rate:>9.0}/s", (now - start).as_secs_f64());
                if let (Some(before), Some(now)) = (cpu, server_micros(pid)) {
                    line +=
                        &format!("  server {:6.2} µs/op", (now - before) as f64 / (since as f64).max(1.0));
                    cpu = Some(now);
                }
                if failed > 0 {
                    line += &format!("  {failed} errors");
                }
                if now - start < warmup {
                    line += "  (warming up)";
                }
                // Nobody may be reading; that is no reason to stop.
                let _ = writeln!(std::io::stderr(), "{line}  {left}");
                (last, last_at) = (completed, now);
            }
        });
        Progress { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has nothing left to lose.
            let _ = thread.join();
        }
    }
}

fn server_micros(pid: Option<u32>) -> Option<u64> {
    Usage::of(pid?).ok().map(|usage| usage.total.total())
}

fn time_left(elapsed: Duration, warmup: Duration, length: PhaseLength, completed: u64, rate: f64) -> String {
    let left = match length {
        PhaseLength::Time(time) => (warmup + time).saturating_sub(elapsed).as_secs_f64(),
        PhaseLength::Operations(_) if elapsed < warmup => return String::new(),
        PhaseLength::Operations(all) if rate > 0.0 => all.saturating_sub(completed) as f64 / rate,
        PhaseLength::Operations(_) => return String::new(),
    };
    format!("{left:.0} s left")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_clock_or_rate() {
        let second = Duration::from_secs;
        assert_eq!(time_left(second(3), second(5), PhaseLength::Time(second(30)), 0, 0.0), "32 s left");
        assert_eq!(time_left(second(3), second(0), PhaseLength::Operations(500), 300, 100.0), "2 s left");
        assert_eq!(time_left(second(3), second(0), PhaseLength::Operations(500), 0, 0.0), "");
    }
}
