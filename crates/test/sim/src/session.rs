//! How clients connect and read: protocol options by chance, connections whose failure must be excused, and reads whose answers are
//! compared with the history. The clients and checkers of both simulations begin here.

use std::net::SocketAddr;
use std::time::Duration;

use model::Explained;
use rt::Rt;
use rt_sim::Rng;
use wire::{Compression, Version};

use crate::check::{self, Question};
use crate::client::{Connection, Failure, Speech};
use crate::plan::{one_in, pick};
use crate::statement::Query;
use crate::table::Key;
use crate::world::SharedWorld;

/// How long a client waits after a connection that did not come up.
const RECONNECT_PAUSE: Duration = Duration::from_millis(20);

/// Random protocol options.
pub(crate) fn speech(rng: &mut Rng) -> Speech {
    let version = *pick(rng, &[Version::V3, Version::V4, Version::V5, Version::V5]);
    let compression = match rng.below(4) {
        0 => Some(Compression::Lz4),
        1 if version < Version::V5 => Some(Compression::Snappy),
        _ => None,
    };
    Speech { version, compression, prepared: one_in(rng, 2) }
}

/// Opens a connection. A failure must be excused; the client then waits before it tries again.
pub(crate) async fn connect(
    rt: &Rt,
    world: &SharedWorld,
    server: SocketAddr,
    speech: Speech,
) -> Option<Connection> {
    match Connection::open(rt, server, speech).await {
        Ok(connection) => Some(connection),
        Err(failure) => {
            world.borrow_mut().classify_startup(&failure);
            rt.sleep(RECONNECT_PAUSE).await;
            None
        }
    }
}

/// A connection to one of these servers, and that server.
pub(crate) async fn connect_any(
    rt: &Rt,
    world: &SharedWorld,
    servers: &[SocketAddr],
    rng: &mut Rng,
) -> Option<(Connection, SocketAddr)> {
    let (server, speech) = (*pick(rng, servers), speech(rng));
    connect(rt, world, server, speech).await.map(|connection| (connection, server))
}

/// A partition with the observations of its rows.
pub(crate) type Proofs = Vec<(Key, Vec<Explained>)>;

/// Reads and compares; returns the observations. None when there was no answer and the connection is of no more use.
pub(crate) async fn ask(
    world: &SharedWorld,
    connection: &mut Connection,
    table: usize,
    query: &Query,
    question: &Question,
    page: i32,
) -> Result<Option<Proofs>, Failure> {
    let since = world.borrow().now();
    let from = world.borrow_mut().all_seconds();
    let answer = connection.rows(query, page).await;
    let mut world = world.borrow_mut();
    let rows = match answer {
        Ok(rows) => rows,
        Err(failure) => {
            world.classify(&failure, &query.shown);
            return if matches!(failure, Failure::Error(_)) { Err(failure) } else { Ok(None) };
        }
    };
    let clock = world.clock(since, from);
    match check::check(&mut world, table, question, &rows, clock) {
        Ok(proofs) => Ok(Some(proofs)),
        Err(problem) => {
            world.fail(format!("a wrong answer (pages of {page}) to {}\n  {problem}", query.shown));
            Ok(None)
        }
    }
}
