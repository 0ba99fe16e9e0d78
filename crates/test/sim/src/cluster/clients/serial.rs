//! Lightweight transactions: the steps of a client that writes registers on conditions, and reads them serially and at QUORUM.

use model::linear::{RegisterInput, RegisterOutput};
use rt_sim::Rng;
use wire::Consistency;
use wire::client::{ResultBody, Rows};

use crate::client::{Connection, Failure};
use crate::cluster::models::serial::{Begun, SharedRegisters, TABLE};
use crate::plan::{one_in, pick};
use crate::statement::Query;
use crate::world::SharedWorld;

/// Write and read timeouts, and a transaction whose outcome is not known.
const LATE: [i32; 3] = [0x1100, 0x1200, 0x1700];

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

/// As [`World::classify`](crate::world::World::classify); but over slow links transactions that compete may run out of time, and one that
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

/// Reads a register in a round of its own.
pub(crate) async fn read_serially(
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
