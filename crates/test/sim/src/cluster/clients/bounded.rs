//! A watcher of the nodes' own metrics while clients work: memory and queues keep to their limits.

use std::net::SocketAddr;
use std::time::Duration;

use rt::Rt;

use crate::cluster::models::bounded::exceeded;
use crate::cluster::node::METRICS_PORT;
use crate::rest;
use crate::world::SharedWorld;

/// Interval at which an observer of nodes checks whether to stop.
const LOOK_PAUSE: Duration = Duration::from_millis(500);
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// Looks at the nodes' metrics again and again while clients work.
pub(crate) struct Watcher {
    pub(crate) rt: Rt,
    pub(crate) world: SharedWorld,
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) period: Duration,
}

impl Watcher {
    /// Looks until the world is down. A node that does not answer is looked at the next time.
    pub(crate) async fn run(self) {
        let mut turn = 0;
        loop {
            let until = self.rt.now() + self.period;
            while self.rt.now() < until {
                if self.world.borrow().down {
                    return;
                }
                self.rt.sleep(LOOK_PAUSE.min(self.period)).await;
            }
            let server = self.servers[turn % self.servers.len()];
            turn += 1;
            let address = SocketAddr::new(server.ip(), METRICS_PORT);
            let Ok(Ok(metrics)) =
                self.rt.timeout(ANSWER_TIME_MAX, rest::get(&self.rt, address, "/metrics")).await
            else {
                continue;
            };
            self.world.borrow_mut().stats.looks += 1;
            if let Some(problem) = exceeded(&metrics) {
                self.world.borrow_mut().fail(format!("checker bounded: node {server}, under way: {problem}"));
            }
        }
    }
}
