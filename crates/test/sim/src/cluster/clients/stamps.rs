//! Writes without USING TIMESTAMP while clocks are skewed: a client that writes and deletes registers with the timestamps of its
//! coordinators, some with the protocol's default timestamp and some on conditions, and reads them with WRITETIME.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rt::Rt;
use rt_sim::Rng;
use wire::client::{ResultBody, Rows};

use crate::client::{Connection, Failure};
use crate::cluster::clients::serial;
use crate::cluster::models::stamps::{SharedStamps, Shown, TABLE};
use crate::cluster::plan::ClusterPlan;
use crate::plan::{one_in, pick};
use crate::session::connect_any;
use crate::statement::Query;
use crate::world::SharedWorld;

/// It rests longer than other clients, so many times.
const PAUSES: u64 = 3;
/// A coordinator's timestamps never repeat: in one microsecond it may run ahead of its clock by so much.
const AHEAD_MICROS: i64 = 1_000;

/// A statement on a register.
struct Statement {
    query: Query,
    /// The value that it writes.
    value: Option<i64>,
    /// The value that its condition expects.
    expected: Option<Option<i64>>,
}

/// A client that writes the registers.
pub(crate) struct Stamper {
    pub(crate) rt: Rt,
    pub(crate) world: SharedWorld,
    pub(crate) stamps: SharedStamps,
    pub(crate) plan: Rc<ClusterPlan>,
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) rng: Rng,
}

impl Stamper {
    /// Works until the world is down.
    pub(crate) async fn run(mut self) {
        while !self.world.borrow().down {
            let opened = connect_any(&self.rt, &self.world, &self.servers, &mut self.rng).await;
            if let Some((mut connection, server)) = opened {
                let bound = connection.speech().prepared;
                self.work(&mut connection, server, bound).await;
            }
        }
    }

    async fn work(&mut self, connection: &mut Connection, server: SocketAddr, bound: bool) {
        // Few, so that the next write of a register comes from another clock.
        for _ in 0..1 + self.rng.below(6) {
            if self.world.borrow().down {
                return;
            }
            let pause = self.rng.below((self.plan.pause_micros * PAUSES).max(40_000));
            self.rt.sleep(Duration::from_micros(pause)).await;
            let key = self.stamps.borrow_mut().key(&mut self.rng);
            let step = match one_in(&mut self.rng, 3) {
                true => self.read(connection, key).await,
                false => self.write(connection, (server, bound), key).await,
            };
            if step.is_err() {
                return;
            }
        }
    }

    async fn write(
        &mut self,
        connection: &mut Connection,
        (server, bound): (SocketAddr, bool),
        key: u64,
    ) -> Result<(), Failure> {
        let Statement { query, value, expected } = self.statement(key, bound);
        // A condition's write has the time of its ballot.
        let own = (expected.is_none() && one_in(&mut self.rng, 5)).then(|| {
            let off = self.rng.below(2_000_000) as i64 - 1_000_000;
            self.world.borrow().client_micros() + off
        });
        let (before, begun) = (self.world.borrow().wall(server), self.world.borrow().now());
        let at = self.stamps.borrow_mut().begin(key, value, begun, own);
        connection.consistency = *pick(&mut self.rng, &self.plan.levels.strong_writes);
        connection.timestamp = own;
        let answer = connection.query(&query, None).await;
        connection.timestamp = None;
        let mut world = self.world.borrow_mut();
        let mut stamps = self.stamps.borrow_mut();
        let (answered, after) = (world.now(), world.wall(server));
        let is_steady = own.is_none() && before.jumps == after.jumps;
        let outcome = match &answer {
            Ok(ResultBody::Rows(rows)) => found(rows).map_err(Failure::Protocol)?,
            Ok(_) => None,
            Err(failure) => {
                // Transactions that compete where the way is long may run out of time.
                let what = format!("{} at {:?}", query.shown, connection.consistency);
                drop(world);
                serial::classify(&self.world, failure, &what, false);
                return answer.map(drop);
            }
        };
        world.stats.writes += 1;
        stamps.known.insert(key, outcome.unwrap_or(value));
        if let Some(one) = stamps.registers.get_mut(&key).and_then(|all| all.get_mut(at)) {
            match (outcome, expected) {
                // It is as if it had not been asked: a deletion that explains nothing.
                (Some(_), _) => (one.value, one.least, one.most) = (None, i64::MIN, i64::MIN),
                (None, Some(_)) => {
                    one.since = Some(answered);
                    // Deletions come just before their ballots. Those above met ballots may be ahead of all clocks.
                    one.least = if is_steady { before.micros - 1 } else { i64::MIN };
                }
                (None, None) => {
                    one.since = Some(answered);
                    if is_steady {
                        (one.least, one.most) = (before.micros, after.latest.saturating_add(AHEAD_MICROS));
                    }
                }
            }
        }
        // Its condition was compared with a reading that was sent meanwhile.
        let Some(seen) = outcome.or(expected) else { return Ok(()) };
        let shown = Shown { sent: begun, answered, value: seen.map(|value| (value, None)), settles: false };
        if let Err(problem) = stamps.judge(key, &shown) {
            world.fail(format!(
                "checker stamps: the condition of {}, sent at {begun} ns: {problem}",
                query.shown
            ));
        }
        Ok(())
    }

    /// A statement on a register: one in four has a condition.
    fn statement(&mut self, key: u64, bound: bool) -> Statement {
        let mut query = Query::new(bound);
        let known = self.stamps.borrow().known.get(&key).copied().unwrap_or_default();
        let expected = one_in(&mut self.rng, 4).then_some(known);
        let key = key as i64;
        if one_in(&mut self.rng, 4) && expected != Some(None) {
            query.push(&format!("DELETE FROM {TABLE} WHERE k = ")).bigint(key);
            if let Some(Some(old)) = expected {
                query.push(" IF v = ").bigint(old);
            }
            return Statement { query, value: None, expected };
        }
        let value = {
            let mut stamps = self.stamps.borrow_mut();
            stamps.next_value += 1;
            stamps.next_value
        };
        let updates = if let Some(old) = expected { old.is_some() } else { one_in(&mut self.rng, 2) };
        match updates {
            true => {
                query.push(&format!("UPDATE {TABLE} SET v = ")).bigint(value).push(" WHERE k = ").bigint(key)
            }
            false => {
                query.push(&format!("INSERT INTO {TABLE} (v, k) VALUES (")).bigint(value);
                query.push(", ").bigint(key).push(")")
            }
        };
        match expected {
            Some(Some(old)) => query.push(" IF v = ").bigint(old),
            Some(None) => query.push(" IF NOT EXISTS"),
            None => &mut query,
        };
        Statement { query, value: Some(value), expected }
    }

    async fn read(&mut self, connection: &mut Connection, key: u64) -> Result<(), Failure> {
        let levels = &self.plan.levels;
        connection.consistency = *pick(&mut self.rng, &levels.strong_reads);
        let settles = levels.reads_overlap && self.plan.keeps_replicas();
        let read = read(&self.world, &self.stamps, connection, key, settles).await;
        if let Err(failure) = &read {
            self.world.borrow_mut().classify(failure, "a reading of a stamped register");
        }
        read
    }
}

/// The value in a refusal; none when the condition held.
fn found(rows: &Rows) -> Result<Option<Option<i64>>, String> {
    let rows = rows.to_vec().map_err(|error| error.to_string())?;
    let [row] = rows.as_slice() else { return Err(format!("{} rows", rows.len())) };
    match row.first().and_then(Option::as_deref) {
        Some([1]) => Ok(None),
        Some([0]) if row.len() == 1 => Ok(Some(None)),
        Some([0]) => Ok(Some(row.last().and_then(number))),
        other => Err(format!("[applied] is {other:?}")),
    }
}

fn number(cell: &Option<Vec<u8>>) -> Option<i64> {
    cell.as_deref()?.try_into().ok().map(i64::from_be_bytes)
}

/// Reads a register, and compares.
pub(crate) async fn read(
    world: &SharedWorld,
    stamps: &SharedStamps,
    connection: &mut Connection,
    key: u64,
    settles: bool,
) -> Result<(), Failure> {
    let sent = world.borrow().now();
    let text = format!("SELECT v, WRITETIME(v) FROM {TABLE} WHERE k = {key}");
    let rows = connection.rows(&Query::text(text), 10).await?;
    let answered = world.borrow().now();
    let value = match rows.as_slice() {
        [] => None,
        [row] => Some((number(&row[0]).unwrap_or(i64::MIN), Some(number(&row[1]).unwrap_or(i64::MIN)))),
        _ => return Err(Failure::Protocol(format!("{} rows of one register", rows.len()))),
    };
    stamps.borrow_mut().known.insert(key, value.map(|(value, _)| value));
    let level = connection.consistency;
    if let Err(problem) = stamps.borrow_mut().judge(key, &Shown { sent, answered, value, settles }) {
        let text = format!("checker stamps: register {key}, read at {level:?} at {sent} ns, {problem}");
        world.borrow_mut().fail(text);
    }
    Ok(())
}
