//! The work that a requested repair has done so far, and how long it will still take. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rt::Instant;
use topology::HostId;

use crate::plan::RepairOptions;

/// Failures that are kept of one job.
const FAILURES_MAX: usize = 20;

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// Under way.
    Running,
    /// Every range was repaired.
    Done,
    /// Some range was not; the others were.
    Failed,
    /// It was stopped. Finished ranges are recorded.
    Cancelled,
}

impl JobState {
    /// The name in the REST interface.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "RUNNING",
            Self::Done => "SUCCESSFUL",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
        }
    }
}

/// The manner in which a job was requested.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRequest {
    /// The ranges, and the participants.
    pub options: RepairOptions,
    /// Whether everything is compared, also rows that past repairs have compared.
    pub full: bool,
    /// When it began, microseconds since the epoch.
    pub begun_micros: i64,
}

/// The status of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobStatus {
    /// Its number.
    pub id: u64,
    /// Which keyspace.
    pub keyspace: String,
    /// Which tables.
    pub tables: Vec<String>,
    /// How it was requested.
    pub request: JobRequest,
    /// The other nodes that take part.
    pub peers: Vec<HostId>,
    /// How far it is.
    pub state: JobState,
    /// Ranges in all, over all tables.
    pub units: u64,
    /// Ranges that are repaired or have failed.
    pub units_done: u64,
    /// Of these, the ones that have failed.
    pub units_failed: u64,
    /// Of those that are done, the ones in which only writes since their last repair were compared.
    pub units_incremental: u64,
    /// How much of the tokens is behind it, 0 to 1.
    pub share: f64,
    /// Rows and deletions compared.
    pub elements: u64,
    /// Versions of rows and deletions that not all had.
    pub differing: u64,
    /// Rows and deletions that nodes were told.
    pub sent: u64,
    /// Bytes from and to other nodes.
    pub bytes: u64,
    /// For how long it has run.
    pub elapsed: Duration,
    /// For how long it will still run, as far as can be told.
    pub left: Option<Duration>,
    /// The error.
    pub failures: Vec<String>,
}

/// A job's figures.
#[derive(Debug)]
pub struct Figures {
    id: u64,
    keyspace: String,
    tables: Vec<String>,
    request: JobRequest,
    peers: BTreeSet<HostId>,
    state: JobState,
    begun: Instant,
    ended: Option<Instant>,
    units: u64,
    units_done: u64,
    units_failed: u64,
    units_incremental: u64,
    /// How much of the ring the units are together.
    share_all: f64,
    share_done: f64,
    /// Of the units under way, by number and slice.
    under_way: BTreeMap<u64, Vec<f64>>,
    next_unit: u64,
    elements: u64,
    differing: u64,
    sent: u64,
    bytes: u64,
    failures: Vec<String>,
}

impl Figures {
    /// Of a job that begins.
    pub fn new(id: u64, keyspace: &str, tables: Vec<String>, request: JobRequest, begun: Instant) -> Self {
        Self {
            id,
            keyspace: keyspace.to_owned(),
            tables,
            request,
            peers: BTreeSet::new(),
            state: JobState::Running,
            begun,
            ended: None,
            units: 0,
            units_done: 0,
            units_failed: 0,
            units_incremental: 0,
            share_all: 0.0,
            share_done: 0.0,
            under_way: BTreeMap::new(),
            next_unit: 0,
            elements: 0,
            differing: 0,
            sent: 0,
            bytes: 0,
            failures: Vec::new(),
        }
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.state != JobState::Running
    }

    /// More is to be done: a range of this share of the ring, with these nodes.
    pub fn add_unit(&mut self, share: f64, peers: impl IntoIterator<Item = HostId>) {
        self.units += 1;
        self.share_all += share;
        self.peers.extend(peers);
    }

    /// A number for a range that is begun.
    pub fn next_unit(&mut self) -> u64 {
        self.next_unit += 1;
        self.next_unit
    }

    /// A range is begun, in so many slices; `full` says whether everything of it is compared.
    pub fn begin_unit(&mut self, unit: u64, slices: u16, full: bool) {
        self.units_incremental += u64::from(!full);
        self.under_way.insert(unit, vec![0.0; usize::from(slices)]);
    }

    /// A slice of a range under way has come so far.
    pub fn step(&mut self, (unit, slice): (u64, u16), share: f64, done: &crate::Done, bytes: u64) {
        if let Some(so_far) = self.under_way.get_mut(&unit).and_then(|all| all.get_mut(usize::from(slice))) {
            *so_far = share;
        }
        self.elements += done.elements;
        self.differing += done.differing;
        self.sent += done.sent;
        self.bytes += bytes;
    }

    /// A range is done, or not.
    pub fn end_unit(&mut self, unit: u64, share: f64, failure: Option<String>) {
        self.under_way.remove(&unit);
        self.units_done += 1;
        self.units_failed += u64::from(failure.is_some());
        assert!(self.units_failed <= self.units_done, "a range that has failed is over");
        self.share_done += share;
        if let Some(failure) = failure
            && self.failures.len() < FAILURES_MAX
        {
            self.failures.push(failure);
        }
    }

    /// The job has ended.
    pub fn end(&mut self, cancelled: bool, now: Instant) {
        if self.is_over() {
            return;
        }
        self.ended = Some(now);
        self.state = match (cancelled, self.failures.is_empty()) {
            (true, _) => JobState::Cancelled,
            (false, true) => JobState::Done,
            (false, false) => JobState::Failed,
        };
    }

    /// Its status.
    pub fn status(&self, now: Instant) -> JobStatus {
        let elapsed = self.ended.unwrap_or(now) - self.begun;
        let unit = if self.units == 0 { 0.0 } else { self.share_all / self.units as f64 };
        let part = |slices: &Vec<f64>| slices.iter().sum::<f64>() / slices.len().max(1) as f64;
        let done = self.share_done + self.under_way.values().map(part).sum::<f64>() * unit;
        let share = match self.state {
            JobState::Done => 1.0,
            _ if self.share_all > 0.0 => (done / self.share_all).clamp(0.0, 1.0),
            _ => 0.0,
        };
        let left = (!self.is_over() && share > 0.0).then(|| elapsed.mul_f64((1.0 - share) / share));
        JobStatus {
            id: self.id,
            keyspace: self.keyspace.clone(),
            tables: self.tables.clone(),
            request: self.request.clone(),
            peers: self.peers.iter().copied().collect(),
            state: self.state,
            units: self.units,
            units_done: self.units_done,
            units_failed: self.units_failed,
            units_incremental: self.units_incremental,
            share,
            elements: self.elements,
            differing: self.differing,
            sent: self.sent,
            bytes: self.bytes,
            elapsed,
            left,
            failures: self.failures.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_the_remaining_time() {
        let begun = Instant::START + Duration::from_secs(100);
        let request = JobRequest { options: RepairOptions::all(), full: true, begun_micros: 7 };
        let mut figures = Figures::new(1, "ks", vec!["t".to_owned()], request, begun);
        let (one, two) = (HostId([1; 16]), HostId([2; 16]));
        figures.add_unit(0.25, [two]);
        figures.add_unit(0.25, [one, two]);
        assert_eq!(figures.status(begun).peers, [one, two]);
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(figures.status(at(1)).left, None, "nothing is known yet");
        figures.begin_unit(1, 2, true);
        figures.step((1, 0), 1.0, &crate::Done { elements: 5, ..crate::Done::default() }, 10);
        let half = figures.status(at(10));
        assert_eq!((half.share, half.left), (0.25, Some(Duration::from_secs(30))));
        figures.end_unit(1, 0.25, None);
        figures.begin_unit(2, 1, false);
        figures.end_unit(2, 0.25, Some("a node is down".to_owned()));
        figures.end(false, at(20));
        let ended = figures.status(at(100));
        assert_eq!((ended.units_done, ended.units_failed), (2, 1));
        assert_eq!((ended.state, ended.units, ended.units_done), (JobState::Failed, 2, 2));
        assert_eq!(ended.units_incremental, 1);
        assert_eq!((ended.elapsed, ended.left, ended.elements), (Duration::from_secs(20), None, 5));
    }
}
