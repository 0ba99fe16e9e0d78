//! Changes of the schema from several nodes at once: clients that create, alter and drop tables of their own, and use at once, through another
//! node, a change that was acknowledged.

use std::net::SocketAddr;
use std::time::Duration;

use rt::Rt;
use rt_sim::Rng;
use wire::Consistency;
use wire::client::ResultBody;

use crate::client::{Connection, Failure};
use crate::cluster::models::ddl::{SharedSchema, TABLES};
use crate::session::connect_any;
use crate::statement::Query;
use crate::world::SharedWorld;

/// The server's code of a statement that is wrong, as one about a table that it does not know.
const INVALID: i32 = 0x2200;
/// The same of a table that is there already.
const EXISTS: i32 = 0x2400;

/// A client that changes the schema.
pub(crate) struct Changer {
    pub(crate) rt: Rt,
    pub(crate) world: SharedWorld,
    pub(crate) schema: SharedSchema,
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) rng: Rng,
    /// Up to how long it waits between two changes.
    pub(crate) pause_micros: u64,
    /// Which client it is.
    pub(crate) number: usize,
}

impl Changer {
    /// Works until the world is down.
    pub(crate) async fn run(mut self) {
        while !self.world.borrow().down {
            let pause = Duration::from_micros(self.rng.below(self.pause_micros));
            self.rt.sleep(pause).await;
            let of_table = self.number * TABLES + self.rng.below(TABLES as u64) as usize;
            if self.schema.borrow()[of_table].may.len() == 1 {
                self.step(of_table).await;
            }
        }
    }

    async fn connect(&mut self) -> Option<Connection> {
        let opened = connect_any(&self.rt, &self.world, &self.servers, &mut self.rng).await;
        opened.map(|(connection, _)| connection)
    }

    async fn step(&mut self, table: usize) {
        let Some(mut connection) = self.connect().await else { return };
        // Through another node the change is used at once.
        let Some(other) = self.connect().await else { return };
        if self.world.borrow().down {
            return;
        }
        let (text, after, used) = self.schema.borrow_mut()[table].change(&mut self.rng);
        self.schema.borrow_mut()[table].may.push(after);
        match connection.query(&Query::text(&text), None).await {
            // An ALTER without effect is no change.
            Ok(ResultBody::SchemaChange(_) | ResultBody::Void) => {
                self.world.borrow_mut().stats.schema_changes += 1;
                self.schema.borrow_mut()[table].may.remove(0);
            }
            Ok(other) => return self.world.borrow_mut().fail(format!("{text} was answered with {other:?}")),
            // A convicted node may not know the agreed schema: it proposes nothing.
            Err(failure) if is_wrong(&failure) && self.world.borrow().excuses.errors => {
                self.schema.borrow_mut()[table].may.pop();
                return;
            }
            Err(failure) => {
                self.world.borrow_mut().classify(&failure, &text);
                return;
            }
        }
        if let Some(used) = used {
            self.use_change(other, &text, &used).await;
        }
    }

    /// An acknowledged change can be used through every node.
    async fn use_change(&mut self, mut connection: Connection, change: &str, text: &str) {
        connection.consistency = Consistency::One;
        let Err(failure) = connection.query(&Query::text(text), None).await else { return };
        let wrong = is_wrong(&failure);
        let mut world = self.world.borrow_mut();
        // A node that others have convicted may not have it yet.
        if wrong && !world.excuses.errors {
            world.fail(format!("checker schema: {change} was acknowledged, and then {text}: {failure}"));
        } else if !wrong {
            world.classify(&failure, text);
        }
    }
}

/// Whether the node does not know the statement's table.
fn is_wrong(failure: &Failure) -> bool {
    matches!(failure, Failure::Error(error) if [INVALID, EXISTS].contains(&error.code()))
}
