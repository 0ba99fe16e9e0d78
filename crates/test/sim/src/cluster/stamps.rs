//! Writes without USING TIMESTAMP while clocks are skewed: a client that writes and deletes registers with the timestamps of its
//! coordinators, some with the protocol's default timestamp, and reads them with WRITETIME; and the checker of what may be concluded.
//!
//! A timestamp that a coordinator draws lies between what its clock showed when the request was sent and the latest that it had shown
//! when the answer came; who reads the value learns it exactly. A reading that was sent after a write was acknowledged
//! shows that write or something later by timestamp, however much earlier it was written. A reading bounds the timestamps of
//! all acknowledged writes that are not, which is remembered, for one of them may be read one day.
//!
//! Some writes have conditions. Between those and the others there is no order but that of their timestamps: a condition is compared
//! with what a read at QUORUM may show, and what is written on it has the time of its ballot, and may lose to a write whose clock is
//! ahead; it is not lost otherwise.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rt::Rt;
use rt_sim::Rng;
use wire::Consistency;
use wire::client::{ResultBody, Rows};

use crate::client::{Connection, Failure};
use crate::cluster::director::ClusterDirector;
use crate::cluster::plan::ClusterPlan;
use crate::cluster::serial;
use crate::plan::{one_in, pick};
use crate::session::connect_any;
use crate::statement::Query;
use crate::world::SharedWorld;

const TABLE: &str = "k0.stamped";
/// Registers in use at once.
const KEYS: u64 = 2;
/// It rests longer than other clients, so many times.
const PAUSES: u64 = 3;
/// Writes of a register, after which another takes its place.
const WRITES_MAX: usize = 40;
/// A coordinator's timestamps never repeat: in one microsecond it may run ahead of its clock by so much.
const AHEAD_MICROS: i64 = 1_000;

/// A write of a register; its timestamp is one of these.
#[derive(Clone, Debug)]
struct Stamped {
    /// None for a deletion.
    value: Option<i64>,
    begun: u64,
    /// A quorum has stored it since then.
    since: Option<u64>,
    least: i64,
    most: i64,
}

/// A statement on a register.
struct Statement {
    query: Query,
    /// The value that it writes.
    value: Option<i64>,
    /// The value that its condition expects.
    expected: Option<Option<i64>>,
}

/// The writes of a register.
#[derive(Default)]
pub(crate) struct Stamps {
    /// The last known value of each register.
    known: BTreeMap<u64, Option<i64>>,
    current: [u64; KEYS as usize],
    next_value: i64,
    registers: BTreeMap<u64, Vec<Stamped>>,
}

/// Shared by the client and the checker.
pub(crate) type SharedStamps = Rc<RefCell<Stamps>>;

/// A reading: when it was sent and answered, the value, with its timestamp if that is shown, and whether every later reading shows as much.
struct Shown {
    sent: u64,
    answered: u64,
    value: Option<(i64, Option<i64>)>,
    settles: bool,
}

impl Stamps {
    pub(crate) fn new() -> Self {
        Self { current: std::array::from_fn(|at| at as u64), ..Self::default() }
    }

    /// A register that has room for one more write.
    fn key(&mut self, rng: &mut Rng) -> u64 {
        let slot = rng.below(KEYS) as usize;
        if self.registers.entry(self.current[slot]).or_default().len() >= WRITES_MAX {
            self.current[slot] += KEYS;
        }
        self.current[slot]
    }

    fn begin(&mut self, key: u64, value: Option<i64>, begun: u64, stamp: Option<i64>) -> usize {
        let (least, most) = stamp.map_or((i64::MIN, i64::MAX), |stamp| (stamp, stamp));
        let all = self.registers.entry(key).or_default();
        all.push(Stamped { value, begun, since: None, least, most });
        all.len() - 1
    }

    /// Adds a reading; returns the violation.
    fn judge(&mut self, key: u64, shown: &Shown) -> Result<(), String> {
        let all = self.registers.entry(key).or_default();
        let mut source = None;
        // Of the writes that were not refused, any deletion so late can be the reason for an empty reading.
        let deleted = all.iter().filter(|one| one.value.is_none() && one.begun < shown.answered);
        let mut latest = deleted.map(|one| one.most).max().unwrap_or(i64::MIN);
        if let Some((value, stamp)) = shown.value {
            let Some(at) = all.iter().position(|one| one.value == Some(value)) else {
                return Err(format!("shows {value}, which nobody wrote"));
            };
            let one = &mut all[at];
            if stamp.is_some_and(|stamp| stamp < one.least || stamp > one.most) {
                return Err(format!(
                    "shows {value} with the timestamp {stamp:?}, which cannot be that of {one:?}"
                ));
            }
            (one.least, one.most) = stamp.map_or((one.least, one.most), |stamp| (stamp, stamp));
            if shown.settles && one.since.is_none() {
                one.since = Some(shown.answered);
            }
            (source, latest) = (Some(at), one.most);
        }
        for (at, one) in all.iter_mut().enumerate() {
            if Some(at) == source || one.since.is_none_or(|since| since >= shown.sent) {
                continue;
            }
            let limit = match (shown.value, one.value) {
                // Of one timestamp the greater value is shown, and rather a deletion than any value.
                (_, Some(_)) => latest,
                (Some(_), None) => latest.saturating_sub(1),
                (None, None) => continue,
            };
            if one.least > limit {
                return Err(format!(
                    "shows {:?}, at {limit} at the latest, and not {one:?}, which is later",
                    shown.value
                ));
            }
            one.most = one.most.min(limit);
        }
        Ok(())
    }
}

/// Creates the table.
pub(crate) fn create_text() -> String {
    format!("CREATE TABLE {TABLE} (k bigint PRIMARY KEY, v bigint)")
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
async fn read(
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

/// Reads every register of all replicas, and then of one by each node.
pub(crate) async fn check(director: &mut ClusterDirector) -> Result<(), String> {
    let keys: Vec<u64> = director.stamps.borrow().registers.keys().copied().collect();
    let mut levels = vec![(director.any_node(), Consistency::All)];
    levels.extend(director.present().into_iter().map(|nth| (nth, Consistency::One)));
    for (nth, level) in levels {
        let mut connection = director.connect(nth).await?;
        connection.consistency = level;
        for key in &keys {
            let (world, stamps) = (director.world.clone(), director.stamps.clone());
            let read = read(&world, &stamps, &mut connection, *key, true).await;
            read.map_err(|failure| format!("register {key}, read at {level:?} by node {nth}: {failure}"))?;
        }
    }
    // A judged register gets no more requests.
    let mut stamps = director.stamps.borrow_mut();
    stamps.registers.clear();
    stamps.current.iter_mut().for_each(|key| *key += KEYS);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acknowledged(value: Option<i64>, since: u64, least: i64, most: i64) -> Stamped {
        Stamped { value, begun: since - 1, since: Some(since), least, most }
    }

    fn stamps(all: &[Stamped]) -> Stamps {
        Stamps { registers: [(0, all.to_vec())].into(), ..Stamps::new() }
    }

    fn shown(sent: u64, value: Option<(i64, i64)>) -> Shown {
        let value = value.map(|(value, stamp)| (value, Some(stamp)));
        Shown { sent, answered: sent + 1, value, settles: false }
    }

    #[test]
    fn what_is_acknowledged_or_something_later_by_timestamp_is_shown() {
        let both = [acknowledged(Some(1), 10, 100, 200), acknowledged(Some(2), 20, 50, 60)];
        assert_eq!(
            stamps(&both).judge(0, &shown(30, Some((1, 150)))),
            Ok(()),
            "the earlier, by a clock ahead"
        );
        assert!(stamps(&both).judge(0, &shown(30, Some((2, 55)))).is_err(), "1 is later whatever it has");
        assert_eq!(
            stamps(&both).judge(0, &shown(5, Some((2, 55)))),
            Ok(()),
            "sent before 1 was acknowledged"
        );
        assert!(stamps(&both).judge(0, &shown(30, Some((1, 250)))).is_err(), "its clock did not show that");
        assert!(stamps(&both).judge(0, &shown(30, Some((3, 150)))).is_err(), "nobody wrote that");
        assert!(stamps(&both).judge(0, &shown(30, None)).is_err(), "nobody deleted it");
    }

    #[test]
    fn what_one_reading_shows_bounds_what_it_does_not_show() {
        let all = [acknowledged(Some(1), 10, 100, 200), acknowledged(Some(2), 20, 100, 200)];
        let mut seen = stamps(&all);
        assert_eq!(seen.judge(0, &shown(30, Some((1, 150)))), Ok(()));
        assert!(seen.judge(0, &shown(40, Some((2, 160)))).is_err(), "then 2 should have been shown before");
        let mut seen = stamps(&all);
        assert_eq!(seen.judge(0, &shown(30, Some((1, 150)))), Ok(()));
        assert!(seen.judge(0, &shown(40, Some((1, 151)))).is_err(), "a timestamp changes");
        let condition = |value| Shown { value: Some((value, None)), ..shown(30, None) };
        let mut seen = stamps(&[acknowledged(Some(1), 10, 100, 200), acknowledged(Some(2), 20, 150, 300)]);
        assert_eq!(seen.judge(0, &condition(1)), Ok(()), "1 may have been written at 200");
        assert!(seen.judge(0, &shown(40, Some((2, 250)))).is_err(), "then 2 was later than 1");
        let mut seen = stamps(&[acknowledged(Some(1), 10, 100, 140), acknowledged(Some(2), 20, 150, 300)]);
        assert!(seen.judge(0, &condition(1)).is_err(), "a condition found an overwritten value");
    }

    #[test]
    fn deletions_hide_what_is_not_later() {
        let all = [acknowledged(Some(1), 10, 100, 200), acknowledged(None, 20, 150, 160)];
        assert_eq!(stamps(&all).judge(0, &shown(30, None)), Ok(()));
        assert_eq!(stamps(&all).judge(0, &shown(30, Some((1, 170)))), Ok(()));
        assert!(stamps(&all).judge(0, &shown(30, Some((1, 150)))).is_err(), "a tie goes to the deletion");
        let all = [acknowledged(Some(1), 10, 170, 200), acknowledged(None, 20, 150, 160)];
        assert!(stamps(&all).judge(0, &shown(30, None)).is_err(), "the deletion is too early");
    }
}
