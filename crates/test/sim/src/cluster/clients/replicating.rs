//! ALTER KEYSPACE under faults: a client that changes the replication factor of a keyspace and writes to all replicas.

use std::net::SocketAddr;
use std::time::Duration;

use rt::Rt;
use rt_sim::Rng;
use wire::Consistency;

use crate::client::{Connection, Failure};
use crate::cluster::models::replicating::{SharedCopied, TABLE, alter_text};
use crate::plan::pick;
use crate::session::connect_any;
use crate::statement::Query;
use crate::world::SharedWorld;

/// The server's code of a statement that is refused.
const INVALID: i32 = 0x2200;

/// A client that changes the replication factor.
pub(crate) struct Replicator {
    pub(crate) rt: Rt,
    pub(crate) world: SharedWorld,
    pub(crate) copied: SharedCopied,
    pub(crate) replications: Vec<usize>,
    pub(crate) pause_micros: u64,
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) rng: Rng,
}

impl Replicator {
    /// Works until the world is down.
    pub(crate) async fn run(mut self) {
        while !self.world.borrow().down {
            let opened = connect_any(&self.rt, &self.world, &self.servers, &mut self.rng).await;
            let Some((mut connection, _)) = opened else { continue };
            for _ in 0..1 + self.rng.below(20) {
                let pause = self.rng.below(self.pause_micros.max(50_000));
                self.rt.sleep(Duration::from_micros(pause)).await;
                if self.world.borrow().down || self.step(&mut connection).await.is_err() {
                    break;
                }
            }
        }
    }

    async fn step(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        // Each is a topology change, which moves data and cleans up.
        if self.rng.below(60) == 0 {
            let copies = *pick(&mut self.rng, &self.replications);
            let answer = connection.query(&Query::text(alter_text(copies)), None).await;
            let mut copied = self.copied.borrow_mut();
            match &answer {
                Ok(_) => {
                    self.world.borrow_mut().stats.schema_changes += 1;
                    copied.may = [copies].into();
                }
                // A topology change.
                Err(Failure::Error(error)) if error.code() == INVALID => {}
                Err(failure) => {
                    copied.may.insert(copies);
                    self.world.borrow_mut().classify(failure, &alter_text(copies));
                }
            }
            return answer.map(drop);
        }
        let k = {
            let mut copied = self.copied.borrow_mut();
            copied.next += 1;
            copied.next
        };
        let text = format!("INSERT INTO {TABLE} (k) VALUES ({k})");
        connection.consistency = Consistency::All;
        match connection.query(&Query::text(&text), None).await {
            Ok(_) => {
                self.copied.borrow_mut().rows.insert(k);
                Ok(())
            }
            Err(failure) => {
                self.world.borrow_mut().classify(&failure, &text);
                Err(failure)
            }
        }
    }
}
