//! Lightweight transactions on several rows and columns of a partition: the steps of a client that sends conditional statements and batches, and
//! reads serially and at QUORUM; and a TRUNCATE of such a table.

use std::time::Duration;

use model::conditional::{ConditionalInput, ConditionalOutput};
use rt::Rt;
use rt_sim::Rng;
use wire::Consistency;
use wire::client::ResultBody;

use crate::client::{Connection, Failure};
use crate::cluster::clients::lwt_draw::{self, Request, RequestGenerator};
use crate::cluster::clients::serial;
use crate::cluster::models::lwt::{Reads, SharedLwt};
use crate::plan::{one_in, pick};
use crate::statement::Query;
use crate::world::SharedWorld;

/// A TRUNCATE with a time limit of its own: its requests to nodes have ended after twice that.
pub(crate) fn truncate_text(table: &str) -> String {
    format!("TRUNCATE {table} USING TIMEOUT 5s")
}

/// Truncates a table; after an error, waits until it cannot go on any more.
pub(crate) async fn truncate(
    (rt, world, lwt): (&Rt, &SharedWorld, &SharedLwt),
    connection: &mut Connection,
    given_up: Duration,
) -> Result<(), Failure> {
    lwt.borrow_mut().begin_truncation();
    let text = truncate_text(lwt.borrow().table);
    let answer = connection.query(&Query::text(text), None).await;
    match &answer {
        Ok(_) => world.borrow_mut().stats.truncations += 1,
        // A node is down, or is convicted: a truncation needs all of them.
        Err(Failure::Error(_)) => rt.sleep(given_up).await,
        Err(_) => lwt.borrow_mut().is_unanswered = true,
    }
    lwt.borrow_mut().end_truncation(answer.is_ok(), world.borrow().now());
    answer.map(drop)
}

/// One step of a client on a connection to this datacenter; false when the connection is of no more use.
pub(crate) async fn step(
    world: &SharedWorld,
    lwt: &SharedLwt,
    rng: &mut Rng,
    (connection, home): (&mut Connection, usize),
) -> bool {
    let (key, serial, plain) = {
        let mut lwt = lwt.borrow_mut();
        (lwt.key(rng, home), *pick(rng, &lwt.levels.serials), lwt.levels.plain)
    };
    match rng.below(10) {
        0 => read(world, lwt, connection, key, serial).await,
        1..=2 => read(world, lwt, connection, key, plain).await,
        _ => {
            let (commit, settles) = lwt.borrow().levels.draw(rng);
            let request = {
                let lwt = &mut *lwt.borrow_mut();
                let known = lwt.histories.get(&key).map(|history| history.known).unwrap_or_default();
                let (table, next_value) = (lwt.table, &mut lwt.next_value);
                RequestGenerator { table, key, known, next_value }.request(rng)
            };
            (connection.consistency, connection.serial_consistency) = (commit, Some(serial));
            let whole = write(world, lwt, connection, (key, settles), request).await;
            connection.serial_consistency = None;
            // An acknowledged write is visible to every client at once.
            whole && (!one_in(rng, 4) || read(world, lwt, connection, key, plain).await)
        }
    }
}

async fn write(
    world: &SharedWorld,
    lwt: &SharedLwt,
    connection: &mut Connection,
    (key, settles): (u64, bool),
    request: Request,
) -> bool {
    let (conditions, changes) = (request.conditions.clone(), request.changes.clone());
    let input = ConditionalInput::Transaction { conditions, changes, shown: Vec::new() };
    let begun = lwt.borrow_mut().begin(key, input, settles, world.borrow().now());
    let answer = connection.query(&Query::text(&request.text), None).await;
    let now = world.borrow().now();
    match answer {
        Ok(ResultBody::Rows(rows)) => match request.answer(&rows) {
            Ok((output, cells)) => lwt.borrow_mut().end(begun, output, cells, now),
            Err(problem) => world.borrow_mut().fail(format!("checker lwt: {}: {problem}", request.text)),
        },
        Ok(other) => world.borrow_mut().fail(format!("{} was answered with {other:?}", request.text)),
        Err(failure) => {
            serial::classify(world, &failure, &request.text, lwt.borrow().overlaps(begun));
            // Unavailable: nobody was asked.
            if matches!(&failure, Failure::Error(error) if error.code() == 0x1000) {
                lwt.borrow_mut().undo(begun);
            }
            return matches!(failure, Failure::Error(_));
        }
    }
    world.borrow_mut().stats.conditional += 1;
    true
}

/// Reads a partition at a serial level or at QUORUM.
pub(crate) async fn read(
    world: &SharedWorld,
    lwt: &SharedLwt,
    connection: &mut Connection,
    key: u64,
    level: Consistency,
) -> bool {
    let text = format!("SELECT c, s, a, b FROM {} WHERE k = {key}", lwt.borrow().table);
    connection.consistency = level;
    let since = world.borrow().now();
    let is_serial = matches!(level, Consistency::Serial | Consistency::LocalSerial);
    let begun = is_serial.then(|| lwt.borrow_mut().begin(key, ConditionalInput::Read, true, since));
    let rows = match connection.rows(&Query::text(&text), 10).await {
        Ok(rows) => rows,
        Err(failure) => {
            serial::classify(world, &failure, &text, begun.is_some_and(|begun| lwt.borrow().overlaps(begun)));
            return matches!(failure, Failure::Error(_));
        }
    };
    let now = world.borrow().now();
    let view = match lwt_draw::view(&rows) {
        Ok(view) => view,
        Err(problem) => {
            world.borrow_mut().fail(format!("checker lwt: {text} at {level:?}: {problem}"));
            return true;
        }
    };
    let mut lwt = lwt.borrow_mut();
    match begun {
        Some(begun) => lwt.end(begun, ConditionalOutput::View(view), Vec::new(), now),
        None if lwt.levels.reads != Reads::Free => lwt.note_read(key, view, (since, now)),
        None => {}
    }
    true
}
