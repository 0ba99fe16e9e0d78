//! Lightweight transactions: clients that write registers on conditions and read them serially, and the checker that there is an
//! order of all that was asked which explains every answer; also, what was replaced for certain is never read again.

use std::cell::RefCell;
use std::collections::BTreeMap;
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
/// Operations on a register, after which another takes its place: what is to be searched grows with them.
const OPERATIONS_MAX: usize = 60;
/// The same for operations without an answer.
const OPEN_MAX: usize = 8;

type History = Vec<Operation<RegisterInput, RegisterOutput>>;

/// What clients have done with registers.
#[derive(Default)]
pub(crate) struct Registers {
    /// Which register each of those in use is now.
    current: [u64; KEYS as usize],
    next_value: i64,
    histories: BTreeMap<u64, History>,
    /// Operations under way, whose places in the histories are taken.
    last_seen: BTreeMap<u64, Option<i64>>,
    /// Values that were replaced by an acknowledged write, and when that was acknowledged.
    replaced: BTreeMap<(u64, i64), u64>,
}

/// Shared by the clients.
pub(crate) type SharedRegisters = Rc<RefCell<Registers>>;

/// The operation of a client: its register, and its place in the history.
struct Begun {
    key: u64,
    at: usize,
    input: RegisterInput,
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

    fn begin(&mut self, key: u64, input: RegisterInput, now: u64) -> Begun {
        let history = self.histories.entry(key).or_default();
        history.push(Operation { invoked: now, ended: NEVER, input: input.clone(), output: None });
        Begun { key, at: history.len() - 1, input }
    }

    fn end(&mut self, begun: &Begun, output: RegisterOutput, now: u64) {
        if let (RegisterInput::Cas { expected: Some(old), .. }, RegisterOutput::Applied(true)) =
            (&begun.input, &output)
        {
            self.replaced.entry((begun.key, *old)).or_insert(now);
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
) -> bool {
    let key = registers.borrow_mut().key(rng);
    match rng.below(10) {
        0..=1 => read_serially(world, registers, connection, key).await,
        2..=3 => read_plainly(world, registers, connection, key).await,
        _ => {
            let whole = write(world, registers, rng, connection, key).await;
            // What was just acknowledged is there for whoever asks at once.
            whole && (!one_in(rng, 3) || read_plainly(world, registers, connection, key).await)
        }
    }
}

async fn write(
    world: &SharedWorld,
    registers: &SharedRegisters,
    rng: &mut Rng,
    connection: &mut Connection,
    key: u64,
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
    connection.consistency = *pick(rng, &[Consistency::Quorum, Consistency::Quorum, Consistency::All]);
    let begun = registers.borrow_mut().begin(key, input, world.borrow().now());
    let answer = connection.query(&Query::text(&text), None).await;
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

/// What the answer of a conditional statement says.
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
    classify(world, failure, text);
    // Unavailable: nobody was asked.
    if matches!(failure, Failure::Error(error) if error.code() == 0x1000) {
        registers.borrow_mut().undo(begun);
    }
    matches!(failure, Failure::Error(_))
}

/// As [`World::classify`](crate::world::World::classify); but where the way is long transactions that compete may run out of time.
fn classify(world: &SharedWorld, failure: &Failure, text: &str) {
    let mut world = world.borrow_mut();
    let before = world.excuses.errors;
    let late = matches!(failure, Failure::Error(error) if LATE.contains(&error.code()));
    world.excuses.errors |= late && world.is_wide;
    world.classify(failure, text);
    world.excuses.errors = before;
}

/// Reads a register: what it holds.
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
) -> bool {
    connection.consistency = Consistency::Serial;
    let begun = registers.borrow_mut().begin(key, RegisterInput::Read, world.borrow().now());
    match value(connection, key).await {
        Ok(value) => {
            let now = world.borrow().now();
            registers.borrow_mut().end(&begun, RegisterOutput::Value(value), now);
            true
        }
        Err(failure) => failed(world, registers, &begun, &failure, "a serial read"),
    }
}

/// A reading at QUORUM takes no part in the order, but never shows what was replaced before it was sent.
async fn read_plainly(
    world: &SharedWorld,
    registers: &SharedRegisters,
    connection: &mut Connection,
    key: u64,
) -> bool {
    connection.consistency = Consistency::Quorum;
    let since = world.borrow().now();
    match value(connection, key).await {
        Ok(Some(value)) => {
            let replaced = registers.borrow().replaced.get(&(key, value)).copied();
            if let Some(at) = replaced.filter(|at| *at < since) {
                world.borrow_mut().fail(format!(
                    "checker serial: register {key} shows {value} at QUORUM, read at {since} ns, which was replaced by a write \
                     acknowledged at {at} ns"
                ));
            }
            true
        }
        Ok(None) => true,
        Err(failure) => {
            classify(world, &failure, "a reading of a register");
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
        if !read_serially(&world, &registers, &mut connection, key).await {
            return Err(format!("register {key} is not read by node {nth}"));
        }
        if director.failed() {
            return Ok(());
        }
    }
    let registers = director.registers.borrow();
    for (key, history) in &registers.histories {
        match check(&Register, history) {
            Linearity::Linear(_) => {}
            Linearity::Unknown => director.world.borrow_mut().stats.unjudged += 1,
            Linearity::Broken(longest) => return Err(complaint(*key, history, &longest)),
        }
    }
    drop(registers);
    // What is judged is not searched again: new registers take over.
    director.registers.borrow_mut().retire();
    Ok(())
}

impl Registers {
    fn retire(&mut self) {
        self.histories.clear();
        self.current.iter_mut().for_each(|key| *key += KEYS);
    }
}

fn complaint(key: u64, history: &History, longest: &[usize]) -> String {
    let mut text = format!(
        "no order explains what was asked of register {key}; the longest that fits, then the others:"
    );
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
