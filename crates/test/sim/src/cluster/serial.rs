//! Lightweight transactions: clients that write registers on conditions and read them serially, and the checker that there is an
//! order of all requests which explains every answer; also, a value that was certainly replaced is never read again.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use model::linear::{Linearity, NEVER, Operation, Register, RegisterInput, RegisterOutput, check};
use rt_sim::Rng;
use wire::Consistency;
use wire::client::{ResultBody, Rows};

use crate::client::{Connection, Failure};
use crate::cluster::director::ClusterDirector;
use crate::plan::{one_in, pick};
use crate::statement::Query;
use crate::world::SharedWorld;

/// The registers' table.
pub(crate) const TABLE: &str = "k0.registers";
/// Registers in use at once.
const KEYS: u64 = 3;
/// Write and read timeouts, and a transaction whose outcome is not known.
const LATE: [i32; 3] = [0x1100, 0x1200, 0x1700];
/// Operations on a register, after which another takes its place: the checker's search grows with them.
const OPERATIONS_MAX: usize = 60;
/// The same for operations without an answer.
const OPEN_MAX: usize = 8;

type History = Vec<Operation<RegisterInput, RegisterOutput>>;

/// The clients' operations on registers.
#[derive(Default)]
pub(crate) struct Registers {
    /// Which register each of those in use is now.
    current: [u64; KEYS as usize],
    next_value: i64,
    histories: BTreeMap<u64, History>,
    /// Operations under way, whose places in the histories are taken.
    last_seen: BTreeMap<u64, Option<i64>>,
    /// Operations whose commit every read at QUORUM has to see.
    strong: BTreeSet<(u64, usize)>,
    /// Values that were replaced by such a write, and when that was acknowledged.
    replaced: BTreeMap<(u64, i64), u64>,
    /// A node lost power then, and the commits that it had acknowledged a moment before.
    doubted_upto: Option<u64>,
}

/// Shared by the clients.
pub(crate) type SharedRegisters = Rc<RefCell<Registers>>;

/// The operation of a client: its register, and its place in the history.
struct Begun {
    key: u64,
    at: usize,
    input: RegisterInput,
    /// Its commit level has a replica in common with every read at QUORUM.
    is_strong: bool,
}

/// The levels of a transaction: of its rounds, of its commit, and whether a read at QUORUM has to see the commit.
struct Level {
    serial: Option<Consistency>,
    commit: Consistency,
    is_strong: bool,
}

impl Level {
    fn draw(rng: &mut Rng, one_datacenter: bool) -> Self {
        let strong = |commit| (commit, true);
        let mut commits = vec![
            strong(Consistency::Quorum),
            strong(Consistency::Quorum),
            strong(Consistency::All),
            (Consistency::One, false),
        ];
        if one_datacenter {
            commits.extend([strong(Consistency::LocalQuorum), (Consistency::LocalOne, false)]);
        }
        let (commit, is_strong) = *pick(rng, &commits);
        Self { serial: serial_level(rng, one_datacenter), commit, is_strong }
    }
}

/// Rounds among the replicas of one datacenter and those of all exclude each other only where there is one datacenter.
fn serial_level(rng: &mut Rng, one_datacenter: bool) -> Option<Consistency> {
    (one_datacenter && one_in(rng, 3)).then_some(Consistency::LocalSerial)
}

impl Registers {
    pub(crate) fn new() -> Self {
        Self { current: std::array::from_fn(|at| at as u64), ..Self::default() }
    }

    /// A register that has room for one more operation.
    fn key(&mut self, rng: &mut Rng) -> u64 {
        let slot = rng.below(KEYS) as usize;
        let history = self.histories.entry(self.current[slot]).or_default();
        let open = history.iter().filter(|one| one.output.is_none()).count();
        if history.len() >= OPERATIONS_MAX || open >= OPEN_MAX {
            self.current[slot] += KEYS;
        }
        self.current[slot]
    }

    fn begin(&mut self, key: u64, input: RegisterInput, is_strong: bool, now: u64) -> Begun {
        let history = self.histories.entry(key).or_default();
        history.push(Operation { invoked: now, ended: NEVER, input: input.clone(), output: None });
        let at = history.len() - 1;
        if is_strong {
            self.strong.insert((key, at));
        }
        Begun { key, at, input, is_strong }
    }

    fn end(&mut self, begun: &Begun, output: RegisterOutput, now: u64) {
        if let (RegisterInput::Cas { expected: Some(old), .. }, RegisterOutput::Applied(true)) =
            (&begun.input, &output)
            && begun.is_strong
            && !self.is_doubted(begun)
        {
            self.replaced.entry((begun.key, *old)).or_insert(now);
        }
        if self.is_doubted(begun) {
            self.strong.remove(&(begun.key, begun.at));
        }
        match (&output, &begun.input) {
            (RegisterOutput::Value(value) | RegisterOutput::Refused(value), _) => {
                self.last_seen.insert(begun.key, *value);
            }
            (RegisterOutput::Applied(true), RegisterInput::Cas { new, .. }) => {
                self.last_seen.insert(begun.key, *new);
            }
            _ => {}
        }
        if let Some(one) = self.histories.get_mut(&begun.key).and_then(|all| all.get_mut(begun.at)) {
            (one.ended, one.output) = (now, Some(output));
        }
    }

    /// It was under way when a node lost power that may have forgotten its commit.
    fn is_doubted(&self, begun: &Begun) -> bool {
        let one = self.histories.get(&begun.key).and_then(|all| all.get(begun.at));
        one.is_some_and(|one| Some(one.invoked) <= self.doubted_upto)
    }

    /// A node lost power: readings at QUORUM may miss commits that were acknowledged at or after a time. Votes survive, so that the
    /// order of the transactions and of serial readings holds.
    pub(crate) fn doubt_since(&mut self, since: u64, now: u64) {
        self.doubted_upto = Some(now);
        let histories = &self.histories;
        let ended =
            |key: &u64, at: &usize| histories.get(key).and_then(|all| all.get(*at)).map(|one| one.ended);
        self.strong.retain(|(key, at)| ended(key, at).is_some_and(|ended| ended < since || ended == NEVER));
        self.replaced.retain(|_, at| *at < since);
    }

    /// Why a QUORUM read sent at `since` may not show this value; none when some order of the history allows it.
    fn refute(&self, key: u64, value: Option<i64>, since: u64) -> Option<String> {
        let history = self.histories.get(&key).map_or(&[][..], Vec::as_slice);
        let writes = |new: Option<i64>| {
            history.iter().filter(move |one| {
                let is_refused =
                    matches!(one.output, Some(RegisterOutput::Refused(_) | RegisterOutput::Applied(false)));
                matches!(&one.input, RegisterInput::Cas { new: written, .. } if *written == new)
                    && !is_refused
            })
        };
        let Some(value) = value else {
            let (_, written) = history.iter().enumerate().find(|(at, one)| {
                let applied = matches!(one.output, Some(RegisterOutput::Applied(true)));
                let inserts = matches!(one.input, RegisterInput::Cas { new: Some(_), .. });
                let is_seen = self.strong.contains(&(key, *at)) && one.ended < since;
                applied && inserts && is_seen && writes(None).all(|gone| gone.ended < one.invoked)
            })?;
            return Some(format!(
                "shows nothing, after {:?} was acknowledged at {} ns and with no deletion since",
                written.input, written.ended
            ));
        };
        if let Some(at) = self.replaced.get(&(key, value)).filter(|at| **at < since) {
            return Some(format!("shows {value}, which was replaced by a write acknowledged at {at} ns"));
        }
        writes(Some(value)).next().is_none().then(|| format!("shows {value}, which nobody wrote"))
    }

    /// It was refused before anything was asked of a replica.
    fn undo(&mut self, begun: &Begun) {
        if let Some(one) = self.histories.get_mut(&begun.key).and_then(|all| all.get_mut(begun.at)) {
            // A reading without an answer says nothing.
            one.input = RegisterInput::Read;
        }
    }
}

/// Creates the table.
pub(crate) fn create_text() -> String {
    format!("CREATE TABLE {TABLE} (k bigint PRIMARY KEY, v bigint)")
}

/// One step of a client; false when the connection is of no more use.
pub(crate) async fn step(
    world: &SharedWorld,
    registers: &SharedRegisters,
    rng: &mut Rng,
    connection: &mut Connection,
    one_datacenter: bool,
) -> bool {
    let key = registers.borrow_mut().key(rng);
    match rng.below(10) {
        0..=1 => {
            let level = serial_level(rng, one_datacenter).unwrap_or(Consistency::Serial);
            read_serially(world, registers, connection, key, level).await
        }
        2..=3 => read_plainly(world, registers, connection, key).await,
        _ => {
            let level = Level::draw(rng, one_datacenter);
            let whole = write(world, registers, rng, connection, (key, level)).await;
            // An acknowledged write is visible to every client at once.
            whole && (!one_in(rng, 3) || read_plainly(world, registers, connection, key).await)
        }
    }
}

async fn write(
    world: &SharedWorld,
    registers: &SharedRegisters,
    rng: &mut Rng,
    connection: &mut Connection,
    (key, level): (u64, Level),
) -> bool {
    let (text, input) = {
        let mut registers = registers.borrow_mut();
        registers.next_value += 1;
        let new = registers.next_value;
        let expected = registers.last_seen.get(&key).copied().flatten();
        match expected {
            Some(old) if one_in(rng, 5) => (
                format!("DELETE FROM {TABLE} WHERE k = {key} IF v = {old}"),
                RegisterInput::Cas { expected, new: None },
            ),
            Some(old) => (
                format!("UPDATE {TABLE} SET v = {new} WHERE k = {key} IF v = {old}"),
                RegisterInput::Cas { expected, new: Some(new) },
            ),
            None => (
                format!("INSERT INTO {TABLE} (k, v) VALUES ({key}, {new}) IF NOT EXISTS"),
                RegisterInput::Cas { expected: None, new: Some(new) },
            ),
        }
    };
    connection.consistency = level.commit;
    let begun = registers.borrow_mut().begin(key, input, level.is_strong, world.borrow().now());
    connection.serial_consistency = level.serial;
    let answer = connection.query(&Query::text(&text), None).await;
    connection.serial_consistency = None;
    let now = world.borrow().now();
    match answer {
        Ok(ResultBody::Rows(rows)) => match applied(&rows) {
            Ok(output) => registers.borrow_mut().end(&begun, output, now),
            Err(problem) => world.borrow_mut().fail(format!("{text}: {problem}")),
        },
        Ok(other) => world.borrow_mut().fail(format!("{text} was answered with {other:?}")),
        Err(failure) => return failed(world, registers, &begun, &failure, &text),
    }
    world.borrow_mut().stats.conditional += 1;
    true
}

/// Decodes the answer of a conditional statement.
fn applied(rows: &Rows) -> Result<RegisterOutput, String> {
    let rows = rows.to_vec().map_err(|error| error.to_string())?;
    let [row] = rows.as_slice() else { return Err(format!("{} rows", rows.len())) };
    match row.first() {
        Some(Some(cell)) if cell == &[1] => Ok(RegisterOutput::Applied(true)),
        Some(Some(cell)) if cell == &[0] => {
            let value = if row.len() > 1 { row.last().cloned().flatten() } else { None };
            Ok(RegisterOutput::Refused(number(value)?))
        }
        other => Err(format!("[applied] is {other:?}")),
    }
}

fn number(cell: Option<Vec<u8>>) -> Result<Option<i64>, String> {
    let number = |bytes: Vec<u8>| <[u8; 8]>::try_from(bytes).map(i64::from_be_bytes);
    cell.map(number).transpose().map_err(|bytes| format!("{bytes:?} is no bigint"))
}

fn failed(
    world: &SharedWorld,
    registers: &SharedRegisters,
    begun: &Begun,
    failure: &Failure,
    text: &str,
) -> bool {
    classify(world, failure, text, false);
    // Unavailable: nobody was asked.
    if matches!(failure, Failure::Error(error) if error.code() == 0x1000) {
        registers.borrow_mut().undo(begun);
    }
    matches!(failure, Failure::Error(_))
}

/// As [`World::classify`](crate::world::World::classify); but where the way is long transactions that compete may run out of time, and what
/// overlaps with a truncation need not be counted by replicas that have truncated.
pub(crate) fn classify(world: &SharedWorld, failure: &Failure, text: &str, is_truncated: bool) {
    let mut world = world.borrow_mut();
    let before = world.excuses.errors;
    let late = matches!(failure, Failure::Error(error) if LATE.contains(&error.code()));
    world.excuses.errors |= late && (world.is_wide || is_truncated);
    world.classify(failure, text);
    world.excuses.errors = before;
}

/// Reads a register's value.
async fn value(connection: &mut Connection, key: u64) -> Result<Option<i64>, Failure> {
    let text = format!("SELECT v FROM {TABLE} WHERE k = {key}");
    let rows = connection.rows(&Query::text(text), 10).await?;
    number(rows.into_iter().next().and_then(|row| row.into_iter().next().flatten()))
        .map_err(Failure::Protocol)
}

async fn read_serially(
    world: &SharedWorld,
    registers: &SharedRegisters,
    connection: &mut Connection,
    key: u64,
    level: Consistency,
) -> bool {
    connection.consistency = level;
    let begun = registers.borrow_mut().begin(key, RegisterInput::Read, false, world.borrow().now());
    match value(connection, key).await {
        Ok(value) => {
            let now = world.borrow().now();
            registers.borrow_mut().end(&begun, RegisterOutput::Value(value), now);
            true
        }
        Err(failure) => failed(world, registers, &begun, &failure, "a serial read"),
    }
}

/// A read at QUORUM takes no part in the order, but it shows neither a value replaced before it was sent, nor one that nobody
/// wrote, nor the absence of a value that was acknowledged and not deleted since.
async fn read_plainly(
    world: &SharedWorld,
    registers: &SharedRegisters,
    connection: &mut Connection,
    key: u64,
) -> bool {
    connection.consistency = Consistency::Quorum;
    let since = world.borrow().now();
    match value(connection, key).await {
        Ok(value) => {
            let refuted = registers.borrow().refute(key, value, since);
            if let Some(problem) = refuted {
                world
                    .borrow_mut()
                    .fail(format!("checker serial: register {key}, read at QUORUM at {since} ns, {problem}"));
            }
            true
        }
        Err(failure) => {
            classify(world, &failure, "a reading of a register", false);
            matches!(failure, Failure::Error(_))
        }
    }
}

/// Reads every register once more, and looks for an order of each history.
pub(crate) async fn judge(director: &mut ClusterDirector) -> Result<(), String> {
    let keys: Vec<u64> = director.registers.borrow().histories.keys().copied().collect();
    let nth = director.any_node();
    let mut connection = director.connect(nth).await?;
    for key in keys {
        let (world, registers) = (director.world.clone(), director.registers.clone());
        if !read_serially(&world, &registers, &mut connection, key, Consistency::Serial).await {
            return Err(format!("register {key} is not read by node {nth}"));
        }
        if director.failed() {
            return Ok(());
        }
    }
    let registers = director.registers.borrow();
    for (key, history) in &registers.histories {
        let found = check(&Register, history);
        director.world.borrow_mut().stats.note_history(!matches!(found, Linearity::Unknown));
        match found {
            Linearity::Linear(_) | Linearity::Unknown => {}
            Linearity::Broken(longest) => {
                return Err(complaint(&format!("register {key}"), history, &longest));
            }
        }
    }
    drop(registers);
    // A judged history is not searched again: new registers take over.
    director.registers.borrow_mut().retire();
    Ok(())
}

impl Registers {
    fn retire(&mut self) {
        self.histories.clear();
        self.strong.clear();
        self.current.iter_mut().for_each(|key| *key += KEYS);
    }
}

/// The report on a history without an order: the longest part that has one, then the others.
pub(crate) fn complaint<I: std::fmt::Debug, O: std::fmt::Debug>(
    object: &str,
    history: &[Operation<I, O>],
    longest: &[usize],
) -> String {
    let mut text =
        format!("no order explains the requests to {object}; the longest that fits, then the others:");
    let others = (0..history.len()).filter(|at| !longest.contains(at));
    for at in longest.iter().copied().chain(others) {
        let one = &history[at];
        let mark = if longest.contains(&at) { ' ' } else { '?' };
        let ended = if one.ended == NEVER { "never".to_owned() } else { (one.ended / 1_000).to_string() };
        text.push_str(&format!(
            "\n  {mark} {}–{ended} µs {:?}: {:?}",
            one.invoked / 1_000,
            one.input,
            one.output
        ));
    }
    text
}
