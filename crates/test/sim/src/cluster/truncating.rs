//! TRUNCATE while things happen to a cluster: a client that fills a table and truncates it again and again, and the checker that
//! rows from before an acknowledged truncation never come back, whichever node missed it, and that later rows stay.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rt::Rt;
use rt_sim::Rng;
use wire::Consistency;
use wire::client::ResultBody;

use crate::client::{Connection, Failure};
use crate::cluster::director::ClusterDirector;
use crate::cluster::lwt::{self, SharedLwt};
use crate::cluster::plan::ClusterPlan;
use crate::plan::{one_in, pick};
use crate::session::connect_any;
use crate::statement::Query;
use crate::world::SharedWorld;

const TABLE: &str = "k0.cut";
/// Longer than a truncation that was answered with an error may go on: twice its time limit ([`lwt::truncate_text`]).
const GIVEN_UP: Duration = Duration::from_secs(15);
/// One step in so many truncates the table of lightweight transactions.
const LWT_ONE_IN: u64 = 16;
/// How long the nodes may take in a quiescent phase until all of them take part.
const TIME_MAX: Duration = Duration::from_secs(60);

/// The client's knowledge of the table's rows.
#[derive(Default)]
pub(crate) struct Cut {
    next: i64,
    /// Acknowledged, and not truncated since.
    there: BTreeSet<i64>,
    /// There before or during a truncation that was not acknowledged.
    open: BTreeSet<i64>,
    /// A truncation was not answered: it may be carried out as long as the network or a node stands still.
    is_unanswered: bool,
    /// Rows before an acknowledged truncation. Rows that were not acknowledged themselves may come later than it.
    gone: BTreeSet<i64>,
}

/// Shared by the client and the checker.
pub(crate) type SharedCut = Rc<RefCell<Cut>>;

impl Cut {
    fn truncated(&mut self) {
        let before = std::mem::take(&mut self.there).into_iter().chain(std::mem::take(&mut self.open));
        self.gone.extend(before);
    }

    fn maybe_truncated(&mut self) {
        self.open.append(&mut self.there);
    }

    /// A row was acknowledged.
    fn insert(&mut self, k: i64) {
        if self.is_unanswered {
            self.open.insert(k)
        } else {
            self.there.insert(k)
        };
    }

    /// The violation in the rows of a reading; whether it has to show all acknowledged rows.
    fn problem(&self, rows: &BTreeSet<i64>, strong: bool) -> Option<String> {
        let back: Vec<&i64> = rows.intersection(&self.gone).collect();
        if !back.is_empty() {
            return Some(format!("{back:?} are there again"));
        }
        let missing: Vec<&i64> = self.there.difference(rows).filter(|_| strong).collect();
        (!missing.is_empty()).then(|| format!("{missing:?} are missing"))
    }
}

/// Creates the table.
pub(crate) fn create_text() -> String {
    format!("CREATE TABLE {TABLE} (k bigint PRIMARY KEY)")
}

/// A client that fills and truncates the table.
pub(crate) struct Truncater {
    pub(crate) rt: Rt,
    pub(crate) world: SharedWorld,
    pub(crate) cut: SharedCut,
    /// A table of lightweight transactions that it truncates too.
    pub(crate) lwt: Option<SharedLwt>,
    pub(crate) plan: Rc<ClusterPlan>,
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) rng: Rng,
}

impl Truncater {
    /// Works until the world is down.
    pub(crate) async fn run(mut self) {
        while !self.world.borrow().down {
            let opened = connect_any(&self.rt, &self.world, &self.servers, &mut self.rng).await;
            if let Some((mut connection, _)) = opened {
                self.work(&mut connection).await;
            }
        }
    }

    async fn work(&mut self, connection: &mut Connection) {
        for _ in 0..1 + self.rng.below(30) {
            if self.world.borrow().down {
                return;
            }
            self.rt.sleep(Duration::from_micros(self.rng.below(self.plan.pause_micros.max(20_000)))).await;
            if let Some(lwt) = &self.lwt
                && one_in(&mut self.rng, LWT_ONE_IN)
            {
                if lwt::truncate((&self.rt, &self.world, lwt), connection, GIVEN_UP).await.is_err() {
                    return;
                }
                continue;
            }
            let step = match self.rng.below(12) {
                0 => self.truncate(connection).await,
                1..=3 => self.read(connection).await,
                _ => self.insert(connection).await,
            };
            if step.is_err() {
                return;
            }
        }
    }

    async fn insert(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        let k = {
            let mut cut = self.cut.borrow_mut();
            cut.next += 1;
            cut.next
        };
        let text = format!("INSERT INTO {TABLE} (k) VALUES ({k})");
        connection.consistency = *pick(&mut self.rng, &self.plan.levels.strong_writes);
        match connection.query(&Query::text(&text), None).await {
            Ok(_) => {
                self.cut.borrow_mut().insert(k);
                Ok(())
            }
            Err(failure) => {
                self.world.borrow_mut().classify(&failure, &text);
                Err(failure)
            }
        }
    }

    async fn read(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        connection.consistency = *pick(&mut self.rng, &self.plan.levels.strong_reads);
        let page = *pick(&mut self.rng, &[3, 100]);
        match shown(connection, page).await {
            Ok(rows) => {
                let problem = self.cut.borrow().problem(&rows, true);
                if let Some(problem) = problem {
                    let text = format!("checker truncating: of {TABLE}, {problem}");
                    self.world.borrow_mut().fail(text);
                }
                Ok(())
            }
            Err(failure) => {
                self.world.borrow_mut().classify(&failure, "a reading of the truncated table");
                Err(failure)
            }
        }
    }

    async fn truncate(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        let answer = connection.query(&Query::text(lwt::truncate_text(TABLE)), None).await;
        match answer {
            Ok(_) => {
                self.world.borrow_mut().stats.truncations += 1;
                self.cut.borrow_mut().truncated();
                Ok(())
            }
            // A node is down, or is convicted: a truncation needs all of them.
            Err(failure @ Failure::Error(_)) => {
                self.cut.borrow_mut().maybe_truncated();
                self.rt.sleep(GIVEN_UP).await;
                Err(failure)
            }
            Err(failure) => {
                let mut cut = self.cut.borrow_mut();
                cut.maybe_truncated();
                cut.is_unanswered = true;
                Err(failure)
            }
        }
    }
}

/// The rows that a scan shows.
async fn shown(connection: &mut Connection, page: i32) -> Result<BTreeSet<i64>, Failure> {
    let rows = connection.rows(&Query::text(format!("SELECT k FROM {TABLE}")), page).await?;
    let key = |row: Vec<Option<Vec<u8>>>| row.into_iter().next().flatten()?.try_into().ok();
    Ok(rows.into_iter().filter_map(key).map(i64::from_be_bytes).collect())
}

/// Reads the table at a strong level and at every node alone, truncates it, and looks again.
pub(crate) async fn check(director: &mut ClusterDirector) -> Result<(), String> {
    compare(director).await?;
    // The network is whole and nodes run.
    director.cut.borrow_mut().is_unanswered = false;
    let begun = director.sim.now();
    loop {
        let nth = director.any_node();
        let mut connection = director.connect(nth).await?;
        match connection.query(&Query::text(format!("TRUNCATE {TABLE}")), None).await {
            Ok(ResultBody::Void) => break,
            Ok(other) => return Err(format!("TRUNCATE was answered with {other:?}")),
            Err(failure) if director.sim.now() - begun > TIME_MAX => {
                return Err(format!("TRUNCATE by node {nth}: {failure}"));
            }
            Err(_) => director.rt.sleep(Duration::from_secs(1)).await,
        }
    }
    director.cut.borrow_mut().truncated();
    compare(director).await
}

async fn compare(director: &mut ClusterDirector) -> Result<(), String> {
    for nth in director.present() {
        let mut connection = director.connect(nth).await?;
        for (level, strong) in [(Consistency::Quorum, true), (Consistency::One, false)] {
            connection.consistency = level;
            let rows = shown(&mut connection, 100).await;
            let rows = rows.map_err(|failure| format!("node {nth} at {level:?}: {failure}"))?;
            if let Some(problem) = director.cut.borrow().problem(&rows, strong) {
                return Err(format!("of {TABLE}, read by node {nth} at {level:?}, {problem}"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_come_back_and_rows_that_are_missing_are_told_apart() {
        let mut cut = Cut { there: [1, 2].into(), open: [3].into(), ..Cut::default() };
        assert_eq!(cut.problem(&[1, 2, 3].into(), true), None);
        assert!(cut.problem(&[1].into(), true).is_some_and(|problem| problem.contains("[2] are missing")));
        assert_eq!(cut.problem(&[1].into(), false), None);
        cut.maybe_truncated();
        assert_eq!(cut.problem(&[1].into(), true), None, "a truncation without an answer may take rows");
        cut.truncated();
        cut.is_unanswered = true;
        cut.insert(5);
        assert_eq!(cut.problem(&[].into(), true), None, "one that has no answer may come any time");
        cut.is_unanswered = false;
        cut.insert(4);
        assert!(cut.problem(&[3, 4].into(), false).is_some_and(|problem| problem.contains("[3] are there")));
    }
}
