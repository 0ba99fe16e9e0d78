//! A simulated node for tests that need a clock and a disk, and the answers of its API.

use std::time::Duration;

use dynamo::Dynamo;
use rt::{LocalBoxFuture, Rt, ShardMain};
use rt_sim::{Config, NodeConfig, Simulation};
use serde_json::Value as Json;

use crate::memory::Memory;

/// Runs a test on a node.
pub fn on_a_node<F: Future<Output = ()> + 'static>(test: fn(Rt) -> F) {
    on_a_node_by(1, test);
}

/// The same where this seed decides the order of tasks.
pub fn on_a_node_by<F: Future<Output = ()> + 'static>(seed: u64, test: fn(Rt) -> F) {
    let simulation =
        Simulation::new(seed, Config { time_max: Duration::from_secs(1_000_000), ..Config::default() });
    let sim = simulation.handle();
    let node = sim.add_node(NodeConfig::default(), move |_| {
        let main = move |rt: Rt| -> LocalBoxFuture<()> { Box::pin(test(rt)) };
        vec![Box::new(main) as ShardMain<()>]
    });
    sim.start(node);
    sim.run_until_exit(node).expect("the test ends");
    assert_eq!(sim.exits(node), ["()"]);
}

/// An answer: its status and its body.
pub async fn ask(api: &Dynamo<Memory>, operation: &str, body: &Json) -> (u16, Json) {
    let answer = api.call(operation, body.to_string().as_bytes(), "localhost:8000", None).await;
    (answer.status, serde_json::from_str(&answer.body).expect("an answer is JSON"))
}

/// The body of an answer that is no error.
pub async fn done(api: &Dynamo<Memory>, operation: &str, body: &Json) -> Json {
    let (status, answer) = ask(api, operation, body).await;
    assert_eq!(status, 200, "{operation}: {answer}");
    answer
}
