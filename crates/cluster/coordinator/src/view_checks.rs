//! Checks of materialized views: the options of one, its findings, and the ones that a node runs or remembers (docs/design/views.md).
//! `view_check_run` carries them out.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use mutation::{Clustering, DecoratedKey};
use rt::{Instant, Task};
use schema::TableId;
use topology::TokenRange;
use views::Difference;

/// Checks that run at once, and those that are remembered.
const RUNNING_MAX: usize = 2;
const REMEMBERED_MAX: usize = 16;

const _: () = assert!(RUNNING_MAX < REMEMBERED_MAX, "a check that has ended makes room for another");

/// The tokens that a check goes over, of the base and of the view.
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
pub struct ViewCheck {
    /// The view.
    pub view: TableId,
    /// The tokens.
    pub tokens: CheckedTokens,
    /// Whether differences are repaired.
    pub repair: bool,
    /// Rows of both tables that are compared in a second, at most.
    pub rows_per_second: u32,
    /// The time after which a difference is looked at again.
    pub pause: Duration,
    /// Differences that are listed, at most.
    pub listed_max: usize,
}

/// A difference that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundDifference {
    /// Its kind.
    pub difference: Difference,
    /// The partition of the view.
    pub key: DecoratedKey,
    /// The row of the view.
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
pub struct ViewCheckStatus {
    /// Its number on this node.
    pub id: u64,
    /// The view.
    pub view: TableId,
    /// Whether it has ended, and how.
    pub state: CheckState,
    /// Parts of the ring that it has gone over.
    pub parts_done: usize,
    /// All parts.
    pub parts: usize,
    /// All tokens up to this are done, from the first of the check; a later check can go on behind it.
    pub last_token: Option<i64>,
    /// Rows of the base that should be in the view and were compared.
    pub base_rows: u64,
    /// Rows of the view that were compared.
    pub view_rows: u64,
    /// Rows that the view lacked.
    pub missing: u64,
    /// Rows that differ from the base.
    pub wrong: u64,
    /// Rows that the view had without a base row.
    pub ghosts: u64,
    /// Of these, rows that were repaired.
    pub repaired: u64,
    /// Rows of which nothing can be said, for their base rows changed each time that they were read.
    pub unsettled: u64,
    /// The first differences.
    pub listed: Vec<FoundDifference>,
    /// How long it took, or has taken so far.
    pub elapsed: Duration,
}

impl ViewCheckStatus {
    fn new(view: TableId) -> Self {
        Self {
            id: 0,
            view,
            state: CheckState::Running,
            parts_done: 0,
            parts: 0,
            last_token: None,
            base_rows: 0,
            view_rows: 0,
            missing: 0,
            wrong: 0,
            ghosts: 0,
            repaired: 0,
            unsettled: 0,
            listed: Vec::new(),
            elapsed: Duration::ZERO,
        }
    }

    /// Rows that differed.
    pub fn differences(&self) -> u64 {
        self.missing + self.wrong + self.ghosts
    }
}

/// A check that cannot begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViewCheckError {
    /// There is no such view.
    #[error("there is no such materialized view")]
    NoView,
    /// Others run.
    #[error("{RUNNING_MAX} views are being verified already: wait for one, or stop one")]
    Busy,
    /// The node stops.
    #[error("this node stops")]
    Stopping,
}

/// The checks of a node, on its shard 0.
#[derive(Default)]
pub(crate) struct ViewChecks {
    latest: Cell<u64>,
    is_stopping: Cell<bool>,
    checks: RefCell<VecDeque<Rc<Check>>>,
}

impl ViewChecks {
    /// Adds a check that is about to run; its number.
    ///
    /// # Errors
    /// When too many checks run, or the node stops.
    pub(crate) fn add(&self, check: Rc<Check>) -> Result<u64, ViewCheckError> {
        if self.is_stopping.get() {
            return Err(ViewCheckError::Stopping);
        }
        let mut all = self.checks.borrow_mut();
        if all.iter().filter(|check| check.is_running()).count() >= RUNNING_MAX {
            return Err(ViewCheckError::Busy);
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
    pub(crate) fn statuses(&self, now: Instant) -> Vec<ViewCheckStatus> {
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
    status: RefCell<ViewCheckStatus>,
    is_cancelled: Cell<bool>,
    began: Instant,
    task: RefCell<Option<Task<()>>>,
}

impl Check {
    pub(crate) fn new(view: TableId, began: Instant) -> Self {
        let status = RefCell::new(ViewCheckStatus::new(view));
        Self { status, is_cancelled: Cell::new(false), began, task: RefCell::default() }
    }

    /// Keeps the task that runs it.
    pub(crate) fn run_as(&self, task: Task<()>) {
        *self.task.borrow_mut() = Some(task);
    }

    /// Its findings so far, to be added to.
    pub(crate) fn status_mut(&self) -> RefMut<'_, ViewCheckStatus> {
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

    fn status(&self, now: Instant) -> ViewCheckStatus {
        let mut status = self.status.borrow().clone();
        if status.state == CheckState::Running {
            status.elapsed = now - self.began;
        }
        status
    }
}
