//! The cost of gossip a node and second, in messages, bytes and processed endpoints, which are the same on every host, and in time of a
//! core: the figures of docs/design/gossip.md.

use std::time::Duration;

use crate::world::{Cost, World};

/// One hundredth of a core for a node of a build that is optimised (`opt-level = 3`); that of the tests (`opt-level = 1`, with its
/// assertions) may take three times as long.
const CPU_MAX: Duration = Duration::from_millis(10 * if cfg!(debug_assertions) { 3 } else { 1 });

/// Messages and bytes sent, endpoints gone through and host time, of a node and second.
struct Rate {
    messages: f64,
    bytes: f64,
    entries: f64,
    cpu: Duration,
}

/// Measured once the nodes' knowledge is as old as in a cluster that has run for long.
fn rate(nodes: usize, rounds: u64) -> Rate {
    let mut world = World::acquainted(1, nodes);
    // Here versions take a byte; three once a node has run for five hours, which makes it about twice as much.
    world.run(Duration::from_secs(2 * u64::from(nodes.ilog2()).min(5)));
    world.cost = Cost::default();
    world.run(Duration::from_secs(rounds));
    assert_eq!(world.convictions().len(), 0);
    let each = (nodes as u64 * rounds) as f64;
    Rate {
        messages: world.cost.messages as f64 / each,
        bytes: world.cost.bytes as f64 / each,
        entries: world.cost.entries as f64 / each,
        cpu: world.cost.cpu.div_f64(each),
    }
}

#[test]
fn a_node_sends_little_in_a_large_cluster() {
    for (nodes, rounds, bytes_max) in
        [(3, 200, 1_000.0), (50, 40, 1_000.0), (200, 10, 2_000.0), (1_000, 2, 8_000.0)]
    {
        let Rate { messages, bytes, entries, cpu } = rate(nodes, rounds);
        println!(
            "{nodes} nodes: {messages:.1} messages, {bytes:.0} bytes, {entries:.0} endpoints, {cpu:?} a node and second"
        );
        // About one message of all versions each way and a second, and news of every endpoint once in two.
        let entries_max = 6.0 * nodes as f64;
        assert!(entries <= entries_max, "{nodes} nodes: {entries:.0} endpoints a node and second");
        assert!(messages <= 4.0, "{nodes} nodes: {messages:.1} messages a node and second");
        assert!(bytes <= bytes_max, "{nodes} nodes: {bytes:.0} bytes a node and second");
        assert!(cpu < CPU_MAX, "{nodes} nodes: {cpu:?} of a core a node and second");
    }
}
