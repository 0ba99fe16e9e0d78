//! Checks of materialized views and of logs of changes: the options of one, its findings, and the ones that a node runs or remembers
//! (docs/design/views.md, docs/design/cdc.md). `view_check_run` and `log_check_run` carry them out.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use cdc::Divergence;
use mutation::{Clustering, DecoratedKey, Timestamp};
use rt::{Instant, Task};
use schema::{Table, TableId};
use topology::TokenRange;
use views::Difference;

/// Checks that run at once, and those that are remembered.
const RUNNING_MAX: usize = 2;
const REMEMBERED_MAX: usize = 16;
/// Differences that a report lists, at most.
const LISTED_MAX: usize = 10_000;

const _: () = assert!(RUNNING_MAX < REMEMBERED_MAX, "a check that has ended makes room for another");

/// The tokens that a check goes over, of the base and of the derived table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckedTokens {
    /// The whole ring.
    All,
    /// Those of which this node is the first replica.
    Primary,
    /// Those above a token and up to another, which is greater.
    Between(TokenRange),
}

/// A requested check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DerivedCheck {
    /// The view, or the log.
    pub derived: TableId,
    /// The tokens.
    pub tokens: CheckedTokens,
    /// Whether differences of a view are repaired.
    pub repair: bool,
    /// Of a log: writes with timestamps before this are not looked for.
    pub since: Timestamp,
    /// Rows of both tables that are compared in a second, at most.
    pub rows_per_second: u32,
    /// The time after which a difference is looked at again.
    pub pause: Duration,
    /// Differences that are listed, at most.
    pub listed_max: usize,
}

/// The kind of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundKind {
    /// Of a view and its base.
    View(Difference),
    /// Of a log and its base.
    Log(Divergence),
}

impl FoundKind {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::View(difference) => difference.name(),
            Self::Log(Divergence::Unlogged) => "unlogged",
            Self::Log(Divergence::Unapplied) => "unapplied",
        }
    }
}

/// A difference that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundDifference {
    /// Its kind.
    pub kind: FoundKind,
    /// The partition: of the view, or of a log's base.
    pub key: DecoratedKey,
    /// The row: of the view, or of a log's base, where the static row has an empty one.
    pub clustering: Clustering,
    /// Whether it was repaired.
    pub repaired: bool,
}

/// The end of a check, or that there is none yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckState {
    /// It runs.
    Running,
    /// It went over all its tokens.
    Finished,
    /// It was stopped.
    Cancelled,
    /// It could not go on.
    Failed(String),
}

/// The progress and the findings of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerivedCheckStatus {
    /// Its number on this node.
    pub id: u64,
    /// The view, or the log.
    pub derived: TableId,
    /// Whether that is a log, also when it has been dropped since.
    pub is_log: bool,
    /// Whether it has ended, and how.
    pub state: CheckState,
    /// Parts of the ring that it has gone over.
    pub parts_done: usize,
    /// All parts.
    pub parts: usize,
    /// All tokens up to this are done, from the first of the check; a later check can go on behind it.
    pub last_token: Option<i64>,
    /// Rows of the base that were compared; of a view's, those that should be in it.
    pub base_rows: u64,
    /// Rows of the view or of the log that were compared.
    pub derived_rows: u64,
    /// Rows that the view lacked.
    pub missing: u64,
    /// Rows that differ from the base.
    pub wrong: u64,
    /// Rows that the view had without a base row.
    pub ghosts: u64,
    /// Of these, rows that were repaired.
    pub repaired: u64,
    /// Rows of a base with a value that its log lacks.
    pub unlogged: u64,
    /// Rows of a base that lack a change of its log.
    pub unapplied: u64,
    /// Rows of which nothing can be said, for their base rows changed each time that they were read.
    pub unsettled: u64,
    /// The first differences.
    pub listed: Vec<FoundDifference>,
    /// How long it took, or has taken so far.
    pub elapsed: Duration,
}

impl DerivedCheckStatus {
    fn new(derived: &Table) -> Self {
        Self {
            id: 0,
            derived: derived.id,
            is_log: derived.is_cdc_log(),
            state: CheckState::Running,
            parts_done: 0,
            parts: 0,
            last_token: None,
            base_rows: 0,
            derived_rows: 0,
            missing: 0,
            wrong: 0,
            ghosts: 0,
            repaired: 0,
            unlogged: 0,
            unapplied: 0,
            unsettled: 0,
            listed: Vec::new(),
            elapsed: Duration::ZERO,
        }
    }

    /// Rows that differed.
    pub fn differences(&self) -> u64 {
        self.missing + self.wrong + self.ghosts + self.unlogged + self.unapplied
    }
}

/// A check that cannot begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DerivedCheckError {
    /// There is no such view.
    #[error("there is no such materialized view")]
    NoView,
    /// The log is of a base that is gone.
    #[error("there is no such log of changes, or its base is gone")]
    NoLog,
    /// The log has no values.
    #[error("the log has keys only ('delta': 'keys'), so that its values cannot be compared with the base")]
    KeysOnly,
    /// Others run.
    #[error("{RUNNING_MAX} tables are being verified already: wait for one, or stop one")]
    Busy,
    /// The node stops.
    #[error("this node stops")]
    Stopping,
}

/// The checks of a node, on its shard 0.
#[derive(Default)]
pub(crate) struct DerivedChecks {
    latest: Cell<u64>,
    is_stopping: Cell<bool>,
    checks: RefCell<VecDeque<Rc<Check>>>,
}

impl DerivedChecks {
    /// Adds a check that is about to run; its number.
    ///
    /// # Errors
    /// When too many checks run, or the node stops.
    pub(crate) fn add(&self, check: Rc<Check>) -> Result<u64, DerivedCheckError> {
        if self.is_stopping.get() {
            return Err(DerivedCheckError::Stopping);
        }
        let mut all = self.checks.borrow_mut();
        if all.iter().filter(|check| check.is_running()).count() >= RUNNING_MAX {
            return Err(DerivedCheckError::Busy);
        }
        if all.len() >= REMEMBERED_MAX
            && let Some(at) = all.iter().position(|check| !check.is_running())
        {
            all.remove(at);
        }
        let id = self.latest.get() + 1;
        self.latest.set(id);
        check.status_mut().id = id;
        let is_later = all.back().is_none_or(|last| last.status.borrow().id < id);
        assert!(is_later, "a check has a number of its own");
        all.push_back(check);
        assert!(all.len() <= REMEMBERED_MAX, "checks that are remembered are bounded");
        Ok(id)
    }

    /// Ends the checks that run, wherever they are, and adds none any more.
    pub(crate) async fn stop(&self) {
        self.is_stopping.set(true);
        let all: Vec<Rc<Check>> = self.checks.borrow().iter().cloned().collect();
        for check in all {
            let task = check.task.borrow_mut().take();
            if let Some(task) = task {
                task.cancel().await;
            }
            if check.is_running() {
                check.status_mut().state = CheckState::Cancelled;
            }
        }
    }

    /// The checks that run, and the last ones that have ended.
    pub(crate) fn statuses(&self, now: Instant) -> Vec<DerivedCheckStatus> {
        self.checks.borrow().iter().map(|check| check.status(now)).collect()
    }

    /// Has a check end after the page at which it is; whether there is one of that number.
    pub(crate) fn cancel(&self, id: u64) -> bool {
        let checks = self.checks.borrow();
        let check = checks.iter().find(|check| check.status.borrow().id == id);
        check.inspect(|check| check.is_cancelled.set(true)).is_some()
    }
}

/// One check: its findings so far, and its task.
pub(crate) struct Check {
    status: RefCell<DerivedCheckStatus>,
    is_cancelled: Cell<bool>,
    began: Instant,
    task: RefCell<Option<Task<()>>>,
}

impl Check {
    pub(crate) fn new(derived: &Table, began: Instant) -> Self {
        let status = RefCell::new(DerivedCheckStatus::new(derived));
        Self { status, is_cancelled: Cell::new(false), began, task: RefCell::default() }
    }

    /// Keeps the task that runs it.
    pub(crate) fn run_as(&self, task: Task<()>) {
        *self.task.borrow_mut() = Some(task);
    }

    /// A part of its tokens is done, up to this one.
    pub(crate) fn part_done(&self, upto: i64) {
        let mut status = self.status.borrow_mut();
        status.parts_done += 1;
        assert!(status.parts_done <= status.parts, "a part is done once");
        assert!(status.last_token < Some(upto), "a check does not go back");
        status.last_token = Some(upto);
    }

    /// Lists a difference, if the report has room.
    pub(crate) fn list(&self, found: FoundDifference, listed_max: usize) {
        let mut status = self.status.borrow_mut();
        if status.listed.len() < listed_max.min(LISTED_MAX) {
            status.listed.push(found);
        }
    }

    /// Its findings so far, to be added to.
    pub(crate) fn status_mut(&self) -> RefMut<'_, DerivedCheckStatus> {
        self.status.borrow_mut()
    }

    /// It has ended.
    pub(crate) fn end(&self, state: CheckState, now: Instant) {
        let mut status = self.status.borrow_mut();
        (status.state, status.elapsed) = (state, now - self.began);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.get()
    }

    fn is_running(&self) -> bool {
        self.status.borrow().state == CheckState::Running
    }

    fn status(&self, now: Instant) -> DerivedCheckStatus {
        let mut status = self.status.borrow().clone();
        if status.state == CheckState::Running {
            status.elapsed = now - self.began;
        }
        status
    }
}
