//! Materialized views while things happen to a cluster: clients write a base table, and the checker that in the end each view is what its
//! definition gives over the rows of the base, through every node.
//!
//! Which writes happened does not matter: whatever the base shows, its views show.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rt::Rt;
use rt_sim::Rng;
use wire::Consistency;

use crate::client::{Connection, Failure};
use crate::cluster::director::ClusterDirector;
use crate::cluster::plan::ClusterPlan;
use crate::plan::pick;
use crate::session::connect_any;
use crate::statement::Query;
use crate::world::SharedWorld;

pub(crate) const TABLE: &str = "k0.followed";
const PARTITIONS: u64 = 8;
const ROWS: u64 = 3;
const VALUES: u64 = 4;
/// How long views may take in a quiescent phase until they have followed: a batch that was left is written again after a while.
const TIME_MAX: Duration = Duration::from_secs(120);
/// Clients of the table.
pub(crate) const CLIENTS: u64 = 3;

/// A row of the base: its key, then `v` and `w`.
pub(crate) type BaseRow = Vec<Option<i32>>;

/// A view: its name, the columns that are read of it, and what a row of the base is in it.
struct View {
    name: &'static str,
    columns: &'static str,
    shows: fn(&BaseRow) -> Option<Vec<Option<i32>>>,
}

const VIEWS: [View; 3] = [
    View {
        name: "by_v",
        columns: "v, p, c, w",
        shows: |row| row[2].map(|v| vec![Some(v), row[0], row[1], row[3]]),
    },
    View { name: "by_c", columns: "c, p", shows: |row| Some(vec![row[1], row[0]]) },
    View {
        name: "large",
        columns: "p, w, c, v",
        shows: |row| row[3].filter(|w| *w > 1).map(|w| vec![row[0], Some(w), row[1], row[2]]),
    },
];

/// Creates the table, whose changes may be captured, and its views.
pub(crate) fn create_texts(captured: bool) -> [String; 4] {
    let options = if captured { " WITH cdc = {'enabled': true, 'ttl': 0}" } else { "" };
    let named = "p IS NOT NULL AND c IS NOT NULL";
    [
        format!("CREATE TABLE {TABLE} (p int, c int, v int, w int, PRIMARY KEY (p, c)){options}"),
        format!(
            "CREATE MATERIALIZED VIEW k0.by_v AS SELECT * FROM {TABLE} WHERE v IS NOT NULL AND {named} PRIMARY KEY (v, p, c)"
        ),
        format!(
            "CREATE MATERIALIZED VIEW k0.by_c AS SELECT p, c FROM {TABLE} WHERE {named} PRIMARY KEY (c, p)"
        ),
        format!(
            "CREATE MATERIALIZED VIEW k0.large AS SELECT * FROM {TABLE} WHERE w > 1 AND {named} PRIMARY KEY (p, w, c)"
        ),
    ]
}

/// A client that writes the base.
pub(crate) struct BaseWriter {
    pub(crate) rt: Rt,
    pub(crate) world: SharedWorld,
    pub(crate) plan: Rc<ClusterPlan>,
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) rng: Rng,
}

impl BaseWriter {
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
            let text = self.statement();
            connection.consistency = *pick(&mut self.rng, &self.plan.levels.strong_writes);
            if let Err(failure) = connection.query(&Query::text(&text), None).await {
                self.world.borrow_mut().classify(&failure, &text);
                return;
            }
        }
    }

    fn statement(&mut self) -> String {
        match self.rng.below(10) {
            0 => format!("BEGIN BATCH {}; {}; {} APPLY BATCH", self.change(), self.change(), self.change()),
            _ => self.change(),
        }
    }

    fn change(&mut self) -> String {
        let mut below = |limit| self.rng.below(limit);
        let (p, c, v, w) = (below(PARTITIONS), below(ROWS), below(VALUES), below(VALUES));
        match below(10) {
            0..=3 => format!("INSERT INTO {TABLE} (p, c, v, w) VALUES ({p}, {c}, {v}, {w})"),
            4 | 5 => format!("UPDATE {TABLE} SET v = {v} WHERE p = {p} AND c = {c}"),
            6 => format!("UPDATE {TABLE} SET w = {w} WHERE p = {p} AND c = {c}"),
            7 => format!("DELETE v FROM {TABLE} WHERE p = {p} AND c = {c}"),
            8 => format!("DELETE FROM {TABLE} WHERE p = {p} AND c = {c}"),
            _ => format!("DELETE FROM {TABLE} WHERE p = {p}"),
        }
    }
}

pub(crate) async fn shown(
    connection: &mut Connection,
    columns: &str,
    table: &str,
) -> Result<Vec<BaseRow>, Failure> {
    let text = format!("SELECT {columns} FROM {table}");
    let rows = connection.rows(&Query::text(text), 7).await?;
    let number = |cell: &Option<Vec<u8>>| match cell {
        None => Ok(None),
        Some(bytes) => match bytes.as_slice().try_into() {
            Ok(bytes) => Ok(Some(i32::from_be_bytes(bytes))),
            Err(_) => Err(Failure::Protocol("not an int".to_owned())),
        },
    };
    rows.iter().map(|row| row.iter().map(number).collect()).collect()
}

/// The difference between a view and what the base gives; none if there is no difference.
fn problem(view: &View, base: &[BaseRow], found: &[BaseRow]) -> Option<String> {
    let expected: BTreeSet<BaseRow> = base.iter().filter_map(|row| (view.shows)(row)).collect();
    let rows: BTreeSet<BaseRow> = found.iter().cloned().collect();
    if rows.len() != found.len() {
        return Some(format!("a row comes twice in {found:?}"));
    }
    if let Some(row) = rows.difference(&expected).next() {
        return Some(format!("{row:?} is not in the base"));
    }
    expected.difference(&rows).next().map(|row| format!("{row:?} is missing"))
}

/// Compares each view with the base, through every node.
pub(crate) async fn check(director: &mut ClusterDirector) -> Result<(), String> {
    let begun = director.sim.now();
    for nth in director.present() {
        for view in &VIEWS {
            loop {
                let mut connection = director.connect(nth).await?;
                connection.consistency = Consistency::All;
                let failed = |failure: Failure| format!("node {nth}: {failure}");
                let base = shown(&mut connection, "p, c, v, w", TABLE).await.map_err(failed)?;
                let name = format!("k0.{}", view.name);
                let found = shown(&mut connection, view.columns, &name).await.map_err(failed)?;
                let Some(problem) = problem(view, &base, &found) else { break };
                if director.sim.now() - begun > TIME_MAX {
                    return Err(format!("of the view {name}, read by node {nth}, {problem}"));
                }
                director.rt.sleep(Duration::from_secs(5)).await;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_missing_and_rows_too_many_are_found() {
        let row = |cells: &[i32]| cells.iter().map(|cell| Some(*cell)).collect::<BaseRow>();
        let base = [row(&[1, 2, 3, 4]), vec![Some(5), Some(6), None, None]];
        let by_v = row(&[3, 1, 2, 4]);
        assert_eq!(problem(&VIEWS[0], &base, std::slice::from_ref(&by_v)), None);
        assert!(problem(&VIEWS[0], &base, &[]).is_some_and(|text| text.contains("is missing")));
        let old = row(&[2, 1, 2, 4]);
        let two = problem(&VIEWS[0], &base, &[by_v.clone(), old]);
        assert!(two.is_some_and(|text| text.contains("is not in the base")));
        assert!(problem(&VIEWS[0], &base, &[by_v.clone(), by_v]).is_some());
        assert_eq!(problem(&VIEWS[1], &base, &[row(&[2, 1]), row(&[6, 5])]), None);
        assert_eq!(problem(&VIEWS[2], &base, &[row(&[1, 4, 2, 3])]), None);
    }
}
