//! Runs one phase: the generator's threads, their connections, the pace, and the measurements.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rt::{Group, Instant, LocalBoxFuture, Rt, ShardMain, Sleep};
use wire::Envelope;
use wire::client::{Answer, AnswerBody};

use crate::load::connection::{Connection, Prepared};
use crate::load::cpu::{self, CpuTime, Usage};
use crate::load::figures::{Figures, Outcome, ServerUsage, WRONG_ANSWER};
use crate::load::kind::Kind;
use crate::load::options::Options;
use crate::load::progress::Progress;
use crate::load::shared::{PhaseLength, Shared};
use crate::load::values::Values;
use crate::load::workload::{self, Ingredients, Phase, Workload};

/// The generator's runtime: no files, and no cores taken from the server unless the caller pins it.
pub(crate) fn runtime(pin: bool) -> rt_uring::Config {
    rt_uring::Config { pin, files: rt_uring::FileBackend::Memory, ..rt_uring::Config::default() }
}

/// Runs a phase to its end.
pub(crate) fn run(
    options: &Arc<Options>,
    phase: Phase,
    length: PhaseLength,
    in_flight: usize,
    shared: &Arc<Shared>,
) -> Result<Outcome, String> {
    let warmup = if phase == Phase::Run { options.warmup } else { Duration::ZERO };
    let progress =
        (!options.quiet && phase != Phase::Probe).then(|| Progress::start(options, shared, warmup, length));
    let mains = (0..options.threads).map(|shard| {
        let task = ShardTask {
            options: options.clone(),
            shared: shared.clone(),
            phase,
            length,
            warmup,
            in_flight,
            shard,
        };
        Box::new(move |rt: Rt| Box::pin(task.run(rt)) as LocalBoxFuture<_>) as ShardMain<Result<Part, String>>
    });
    let results = rt_uring::run(&runtime(false), mains.collect()).map_err(|error| error.to_string())?;
    drop(progress);
    let mut figures = Figures::new();
    let (mut begin, mut end, mut by_second) = (None, None, Vec::new());
    // An error of a thread's own says more than that another gave up.
    if let Some(error) =
        results.iter().find_map(|result| result.as_ref().err().filter(|e| *e != OTHERS_GAVE_UP))
    {
        return Err(error.clone());
    }
    for result in results {
        let part = result?;
        figures.merge(part.figures);
        begin = begin.or(part.begin);
        end = end.or(part.end);
        by_second.extend(part.by_second);
    }
    if shared.stalled.load(Ordering::Relaxed) {
        let seconds = options.stall_max.as_secs_f64();
        let example =
            figures.errors.values().next().map(|error| format!("; {}", error.example)).unwrap_or_default();
        return Err(format!("the server has answered nothing for {seconds} s{example}"));
    }
    let begin: Moment = begin.expect("the first thread sees the beginning");
    let measured = begin.until(&end.expect("one thread sees the end"), options);
    let operations = match length {
        PhaseLength::Time(_) => measured.operations,
        // Of a number, those count that were taken from it, whenever others of the warm-up were answered.
        PhaseLength::Operations(_) => figures.recorded(),
    };
    Ok(Outcome {
        operations,
        elapsed: measured.elapsed,
        by_second,
        latencies: figures.latencies,
        errors: figures.errors,
        rows: figures.rows,
        unsent: figures.unsent,
        client: measured.client,
        server: measured.server,
    })
}

/// The result of one thread.
struct Part {
    figures: Figures,
    /// Of one thread: when the measurement began, and when it ended.
    begin: Option<Moment>,
    end: Option<Moment>,
    /// Of the first thread, of a measurement that is a time: how many operations succeeded in each of its seconds, of all threads.
    by_second: Vec<u64>,
}

const SECOND: Duration = Duration::from_secs(1);

/// The error of a thread that ended because another could not begin.
const OTHERS_GAVE_UP: &str = "another thread could not connect";

/// The measurements between two moments.
struct Measured {
    operations: u64,
    elapsed: Duration,
    client: CpuTime,
    server: Option<ServerUsage>,
}

/// A moment at one end of the measurement.
struct Moment {
    at: Instant,
    completed: u64,
    client: Usage,
    server: Option<Usage>,
}

impl Moment {
    fn take(rt: &Rt, options: &Options, shared: &Shared) -> Result<Self, String> {
        Ok(Moment {
            client: Usage::of(std::process::id())?,
            server: options.server_pid.map(Usage::of).transpose()?,
            at: rt.now(),
            completed: shared.completed.load(Ordering::Relaxed),
        })
    }

    fn until(&self, end: &Moment, options: &Options) -> Measured {
        let server = self.server.as_ref().zip(end.server.as_ref());
        Measured {
            operations: end.completed - self.completed,
            elapsed: end.at.duration_since(self.at),
            client: end.client.total.since(self.client.total),
            server: server.map(|(begin, end)| ServerUsage {
                cpu: end.total.since(begin.total),
                threads: end.threads_since(begin),
                resident_bytes: options.server_pid.and_then(cpu::resident_bytes),
            }),
        }
    }
}

/// One thread's part of a phase.
struct ShardTask {
    options: Arc<Options>,
    shared: Arc<Shared>,
    phase: Phase,
    length: PhaseLength,
    warmup: Duration,
    in_flight: usize,
    shard: u16,
}

/// When operations may start, and which count.
struct Window {
    from: Instant,
    end: Instant,
    /// Operations that may still start inside the window.
    budget: Cell<u64>,
}

impl Window {
    fn admits(&self, now: Instant) -> bool {
        now < self.from || (now < self.end && self.budget.get() > 0)
    }

    /// Whether an operation that was due at this time counts; takes it from the budget.
    fn enter(&self, due: Instant) -> bool {
        if due < self.from {
            return false;
        }
        self.budget.set(self.budget.get().saturating_sub(1));
        true
    }
}

impl ShardTask {
    async fn run(self, rt: Rt) -> Result<Part, String> {
        let threads = u64::from(self.options.threads);
        let opened = self.open(&rt).await;
        if opened.is_err() {
            self.shared.line.broken.store(true, Ordering::Release);
        }
        let opened = opened?;
        let values = Rc::new(Values::new(self.options.value_size));
        let Some(from) = self.shared.line.start(&rt, threads, self.warmup).await else {
            return Err(OTHERS_GAVE_UP.to_owned());
        };
        let (end, budget) = match self.length {
            PhaseLength::Time(time) => (from + time, u64::MAX),
            PhaseLength::Operations(all) => {
                let remainder = u64::from(u64::from(self.shard) < all % threads);
                (Instant::MAX, all / threads + remainder)
            }
        };
        let window = Rc::new(Window { from, end, budget: Cell::new(budget) });
        let figures = Rc::new(RefCell::new(Figures::new()));
        let tasks: Vec<_> = opened
            .into_iter()
            .map(|opened| {
                rt.spawn(Group::Statement, self.driver(&rt, opened, &window, &figures, &values).run())
            })
            .collect();
        let watch = self.watch(&rt);
        let measured = self.measure(&rt, &window, tasks).await;
        drop(watch);
        let (begin, end, by_second) = measured?;
        let figures = Rc::try_unwrap(figures)
            .map(RefCell::into_inner)
            .unwrap_or_else(|shared| std::mem::replace(&mut *shared.borrow_mut(), Figures::new()));
        Ok(Part { figures, begin, end, by_second })
    }

    /// Opens this thread's connections.
    async fn open(&self, rt: &Rt) -> Result<Vec<Opened>, String> {
        let indices =
            (usize::from(self.shard)..self.options.connections).step_by(usize::from(self.options.threads));
        let mut opened = Vec::new();
        for index in indices {
            let mut connection = Connection::open(rt, &self.options, index).await?;
            let mut statements = Vec::new();
            for text in workload::statements(&self.options) {
                statements.push(connection.prepare(&text).await?);
            }
            opened.push(Opened { index, connection, statements });
        }
        Ok(opened)
    }

    /// Waits for the tasks. The first thread sees the beginning of the measurement; the end of a time is seen by it too,
    /// that of a number of operations by whichever thread does the last.
    async fn measure(
        &self,
        rt: &Rt,
        window: &Window,
        tasks: Vec<rt::Task<()>>,
    ) -> Result<(Option<Moment>, Option<Moment>, Vec<u64>), String> {
        let (mut begin, mut end, mut by_second) = (None, None, Vec::new());
        let timed = window.end < Instant::MAX;
        if self.shard == 0 {
            rt.sleep_until(window.from).await;
            begin = Some(Moment::take(rt, &self.options, &self.shared)?);
            if timed {
                by_second = self.count_seconds(rt, window).await;
                rt.sleep_until(window.end).await;
                end = Some(Moment::take(rt, &self.options, &self.shared)?);
            }
        }
        join(tasks).await;
        let last = self.shared.line.end(u64::from(self.options.threads));
        if last && !timed {
            end = Some(Moment::take(rt, &self.options, &self.shared)?);
        }
        Ok((begin, end, by_second))
    }

    /// How many operations succeed in each whole second of the window.
    async fn count_seconds(&self, rt: &Rt, window: &Window) -> Vec<u64> {
        let completed = || self.shared.completed.load(Ordering::Relaxed);
        let (mut counts, mut last, mut next) = (Vec::new(), completed(), window.from + SECOND);
        while next <= window.end {
            rt.sleep_until(next).await;
            let now = completed();
            counts.push(now - last);
            (last, next) = (now, next + SECOND);
        }
        counts
    }

    /// Ends the phase when nothing is answered for a long time.
    fn watch(&self, rt: &Rt) -> rt::Task<()> {
        let (rt2, shared, stall_max) = (rt.clone(), self.shared.clone(), self.options.stall_max);
        rt.spawn(Group::Maintenance, async move {
            let answered = |shared: &Shared| {
                shared.completed.load(Ordering::Relaxed) + shared.failed.load(Ordering::Relaxed)
            };
            let (mut last, mut since) = (answered(&shared), rt2.now());
            loop {
                rt2.sleep(Duration::from_millis(500)).await;
                let now = answered(&shared);
                if now != last {
                    (last, since) = (now, rt2.now());
                } else if rt2.now().duration_since(since) >= stall_max {
                    shared.stalled.store(true, Ordering::Relaxed);
                }
            }
        })
    }

    fn driver(
        &self,
        rt: &Rt,
        opened: Opened,
        window: &Rc<Window>,
        figures: &Rc<RefCell<Figures>>,
        values: &Rc<Values>,
    ) -> Driver {
        let Opened { index, connection, statements } = opened;
        let from = Ingredients {
            options: self.options.clone(),
            shared: self.shared.clone(),
            phase: self.phase,
            values: values.clone(),
            slots: self.in_flight,
            index,
        };
        let idle = Slot { kind: Kind::Read, due: Instant::START, busy: false, counts: false };
        Driver {
            rt: rt.clone(),
            connection,
            statements,
            operations: workload::operations(&from),
            slots: vec![idle; self.in_flight],
            free: (0..self.in_flight).rev().collect(),
            pace: self.options.rate.map(|rate| Pace::new(rate, self.options.connections, index, rt.now())),
            timer: rt.sleep_until(Instant::START),
            window: window.clone(),
            figures: figures.clone(),
            shared: self.shared.clone(),
        }
    }
}

/// A connection that is ready for work.
struct Opened {
    index: usize,
    connection: Connection,
    statements: Vec<Prepared>,
}

async fn join(tasks: Vec<rt::Task<()>>) {
    for task in tasks {
        task.await;
    }
}

/// The schedule of the operations of one connection of an open loop: evenly spaced, the connections one after another.
pub(crate) struct Pace {
    start: Instant,
    interval_nanos: f64,
    next: u64,
}

impl Pace {
    /// The pace of one of several connections that together reach the rate.
    pub(crate) fn new(rate: f64, connections: usize, index: usize, now: Instant) -> Self {
        let interval_nanos = 1e9 * connections as f64 / rate;
        let start = now + Duration::from_nanos((1e9 / rate * index as f64) as u64);
        Pace { start, interval_nanos, next: 0 }
    }

    /// The scheduled time of the next operation.
    pub(crate) fn due(&self) -> Instant {
        self.start + Duration::from_nanos((self.next as f64 * self.interval_nanos) as u64)
    }

    fn advance(&mut self) {
        self.next += 1;
    }

    /// Operations that were due before a time and were not sent.
    fn unsent(&self, end: Instant) -> u64 {
        (end.duration_since(self.due()).as_nanos() as f64 / self.interval_nanos) as u64
    }
}

/// A place for a request in flight.
#[derive(Clone)]
struct Slot {
    kind: Kind,
    /// When the request was sent, or in an open loop should have been.
    due: Instant,
    busy: bool,
    counts: bool,
}

/// One connection and its operations.
struct Driver {
    rt: Rt,
    connection: Connection,
    statements: Vec<Prepared>,
    operations: Box<dyn Workload>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    pace: Option<Pace>,
    /// When to look again although nothing has come.
    timer: Sleep,
    window: Rc<Window>,
    figures: Rc<RefCell<Figures>>,
    shared: Arc<Shared>,
}

impl Driver {
    async fn run(mut self) {
        if let Err(error) = self.drive().await {
            let lost = (self.slots.len() - self.free.len()) as u64;
            self.shared.failed.fetch_add(lost.max(1), Ordering::Relaxed);
            for slot in 0..self.slots.len() {
                if self.slots[slot].busy {
                    self.operations.failed(slot);
                }
            }
            self.figures.borrow_mut().error("connection lost", || error);
        }
    }

    async fn drive(&mut self) -> Result<(), String> {
        loop {
            let now = self.rt.now();
            self.fill(now);
            let idle = self.free.len() == self.slots.len();
            if idle && !self.window.admits(self.rt.now()) {
                break;
            }
            let wake_at = match &self.pace {
                Some(pace) if !self.free.is_empty() && self.window.admits(now) => {
                    pace.due().min(self.window.end)
                }
                // The watch cannot wake a connection that waits for its answers; a slow tick can.
                _ if self.timer.deadline() > now => self.timer.deadline(),
                _ => now + Duration::from_secs(1),
            };
            if self.timer.deadline() != wake_at {
                self.timer = self.rt.sleep_until(wake_at);
            }
            self.connection.exchange(&mut self.timer).await?;
            self.take_answers()?;
            if self.shared.stalled.load(Ordering::Relaxed) {
                return Err("no answer".to_owned());
            }
        }
        if let Some(pace) = &self.pace
            && self.window.end < Instant::MAX
        {
            self.figures.borrow_mut().unsent += pace.unsent(self.window.end);
        }
        Ok(())
    }

    /// Puts a request into every free slot, as far as time, budget and pace allow.
    fn fill(&mut self, now: Instant) {
        while let Some(slot) = self.free.last().copied() {
            if !self.window.admits(now) {
                return;
            }
            let due = match &mut self.pace {
                None => now,
                Some(pace) => {
                    let due = pace.due();
                    if due > now {
                        return;
                    }
                    pace.advance();
                    due
                }
            };
            self.free.pop();
            let kind = self.operations.request(slot, &self.statements, &mut self.connection.request);
            let stream = i16::try_from(slot).expect("fewer slots than stream ids");
            self.connection.encoder.push_request(stream, &self.connection.request);
            self.slots[slot] = Slot { kind, due, busy: true, counts: self.window.enter(due) };
        }
    }

    /// Handles every answer that is there.
    fn take_answers(&mut self) -> Result<(), String> {
        let now = self.rt.now();
        let figures = self.figures.clone();
        let mut figures = figures.borrow_mut();
        let mut succeeded = 0;
        while let Some(envelope) = self.connection.decoder.next(&mut self.connection.input) {
            let envelope = envelope.map_err(|rejection| rejection.error.to_string())?;
            succeeded += u64::from(self.take_answer(&envelope, now, &mut figures)?);
        }
        self.shared.completed.fetch_add(succeeded, Ordering::Relaxed);
        Ok(())
    }

    /// Handles one answer; whether the operation succeeded.
    fn take_answer(
        &mut self,
        envelope: &Envelope,
        now: Instant,
        figures: &mut Figures,
    ) -> Result<bool, String> {
        let stream = envelope.stream;
        // Events have negative ids; nobody asked for any.
        let Ok(index) = usize::try_from(stream) else { return Ok(false) };
        let slot = self.slots.get_mut(index).filter(|slot| slot.busy);
        let slot = slot.ok_or_else(|| format!("an answer on stream {stream}, which has no request"))?;
        slot.busy = false;
        let slot = slot.clone();
        self.free.push(index);
        let answer = Answer::decode(envelope, self.connection.dialect).map_err(|error| error.to_string())?;
        let problem = match &answer.body {
            AnswerBody::Result(result) => match self.operations.check(index, result) {
                Ok(rows) => {
                    if slot.counts {
                        figures.rows += rows;
                        figures.record(slot.kind, now.duration_since(slot.due).as_nanos() as u64);
                    }
                    return Ok(true);
                }
                Err(wrong) => (WRONG_ANSWER.to_owned(), wrong),
            },
            AnswerBody::Error(error) => (name_of(error), error.message.clone()),
            other => ("unexpected answer".to_owned(), format!("{other:?}")),
        };
        let (kind, example) = problem;
        self.operations.failed(index);
        figures.error(&kind, || example);
        self.shared.failed.fetch_add(1, Ordering::Relaxed);
        Ok(false)
    }
}

/// The name of an error's kind, without its fields.
fn name_of(error: &wire::CqlError) -> String {
    let text = format!("{:?}", error.kind);
    let end = text.find(|ch: char| !ch.is_alphanumeric()).unwrap_or(text.len());
    format!("{} (0x{:04X})", &text[..end], error.code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_spreads_operations_evenly_over_connections() {
        let start = Instant::from_nanos(1_000);
        let mut due = Vec::new();
        for index in 0..4 {
            let mut pace = Pace::new(1000.0, 4, index, start);
            for _ in 0..3 {
                due.push(pace.due().as_nanos());
                pace.advance();
            }
        }
        due.sort_unstable();
        let expected: Vec<u64> = (0..12).map(|n| 1_000 + n * 1_000_000).collect();
        assert_eq!(due, expected);
    }

    #[test]
    fn due_operations_that_were_not_sent_are_counted() {
        let mut pace = Pace::new(100.0, 1, 0, Instant::START);
        pace.advance();
        assert_eq!(pace.unsent(Instant::from_nanos(1_005_000_000)), 99);
        assert_eq!(pace.unsent(Instant::from_nanos(5_000_000)), 0);
    }

    #[test]
    fn a_window_counts_operations_that_start_inside() {
        let at = Instant::from_nanos;
        let window = Window { from: at(10), end: at(20), budget: Cell::new(2) };
        assert!(window.admits(at(5)) && !window.enter(at(5)));
        assert!(window.admits(at(10)) && window.enter(at(10)));
        assert!(!window.admits(at(20)));
        assert!(window.enter(at(19)) && !window.admits(at(19)));
    }
}
