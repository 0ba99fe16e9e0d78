//! Checker: under faults, a well-behaved client's writes and reads at QUORUM succeed within a stated time through every
//! healthy node that reaches, of each key's replicas, a healthy majority.

use std::rc::Rc;
use std::time::Duration;

use rt::Rt;
use rt_sim::Rng;
use wire::Consistency;
use wire::client::ResultBody;

use crate::client::{Connection, Failure};
use crate::cluster::health::Health;
use crate::cluster::plan::ClusterPlan;
use crate::plan::one_in;
use crate::session::speech;
use crate::statement::Query;
use crate::world::SharedWorld;

/// The table that this checker writes and reads.
const TABLE: &str = "k0.steady";
const KEYS: u64 = 64;
/// Requests in the time that clients work.
const REQUESTS: u32 = 60;
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// How long a request may take, with its connection: of several datacenters a write gets to another one by way of one of its replicas,
/// which is given up after a second when it does not answer; round trips of 80 ms and slow links come on top.
const TIME_MAX: Duration = Duration::from_millis(2_000);
/// The same in one datacenter, where links are as usual and nothing is delayed on purpose.
const NEAR_TIME_MAX: Duration = Duration::from_millis(500);

/// Creates the table. Of a replica that is silent and not convicted yet a read must not wait: another one is queried.
pub(crate) fn create_text() -> String {
    format!("CREATE TABLE {TABLE} (k bigint PRIMARY KEY, v bigint) WITH speculative_retry = '100ms'")
}

/// A client that asks a healthy node now and then.
pub(crate) struct Prober {
    pub(crate) rt: Rt,
    pub(crate) world: SharedWorld,
    pub(crate) health: Health,
    pub(crate) plan: Rc<ClusterPlan>,
    /// The replication factor.
    pub(crate) copies: usize,
    pub(crate) rng: Rng,
}

impl Prober {
    /// Works until the world is down.
    pub(crate) async fn run(mut self) {
        let pause = Duration::from_millis(self.plan.machine.lifetime_millis) / REQUESTS;
        let but = self.copies - (self.copies / 2 + 1);
        let is_near = self.plan.is_one_datacenter() && self.plan.links.is_none() && self.plan.buggify == 0;
        let time_max = if is_near { NEAR_TIME_MAX } else { TIME_MAX };
        while !self.world.borrow().down {
            self.rt
                .sleep(Duration::from_nanos(self.rng.below(2 * pause.max(PAUSE_MIN).as_nanos() as u64)))
                .await;
            let nth = self.rng.below(self.health.len() as u64) as usize;
            let faulty = self.health.all_but(&self.plan, nth, but);
            if self.world.borrow().down || faulty.is_none() {
                continue;
            }
            let key = self.rng.below(KEYS);
            let text = match one_in(&mut self.rng, 2) {
                true => format!("INSERT INTO {TABLE} (k, v) VALUES ({key}, {nth})"),
                false => format!("SELECT v FROM {TABLE} WHERE k = {key}"),
            };
            let begun = self.rt.now();
            let answer = self.ask(nth, &text).await;
            let took = self.rt.now().duration_since(begun);
            let Some(since) = self.health.all_but(&self.plan, nth, but) else { continue };
            let mut world = self.world.borrow_mut();
            world.stats.probes += u64::from(since > 0);
            let problem = match answer {
                Ok(()) if took <= time_max => continue,
                Ok(()) => format!("took {took:?}, at most {time_max:?}"),
                Err(failure) => format!("failed after {took:?}: {failure}"),
            };
            let text = format!(
                "checker steady: {text} at QUORUM by node {nth}, which is healthy and reaches a healthy majority, {problem}"
            );
            world.fail(text);
        }
    }

    async fn ask(&mut self, nth: usize, text: &str) -> Result<(), Failure> {
        let speech = speech(&mut self.rng);
        let server = self.health.server(nth);
        let mut connection = Connection::open(&self.rt, server, speech).await?;
        connection.consistency = Consistency::Quorum;
        match connection.query(&Query::text(text), None).await? {
            ResultBody::Void | ResultBody::Rows(_) => Ok(()),
            other => Err(Failure::Protocol(format!("{text} was answered with {other:?}"))),
        }
    }
}
