//! The cost of the group for its leader in a large cluster, in messages, bytes and time of a core: the figures of docs/design/raft.md.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use raft::{Config, Membership, Message, Node, Snapshot, Stored};

/// Ticks are a tenth of a second.
const TICKS_A_SECOND: usize = 10;
const VOTERS: u64 = 7;
/// One hundredth of a core for a build that is optimised (`opt-level = 3`); that of the tests (`opt-level = 1`, with its assertions)
/// may take three times as long.
const CPU_MAX: Duration = Duration::from_millis(10 * if cfg!(debug_assertions) { 3 } else { 1 });

#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// Sent and received by the leader.
    messages: u64,
    bytes: u64,
    /// Host time of the leader's state machine and of coding its messages.
    cpu: Duration,
}

/// Nodes 1 to `nodes.len()`; number 1 leads, and nothing is lost.
struct Group {
    nodes: Vec<Node>,
    cost: Cost,
}

impl Group {
    fn new(count: u64, at_rest: bool) -> Self {
        let membership = Membership {
            voters: (1..=VOTERS).collect(),
            learners: (VOTERS + 1..=count).collect(),
            ..Membership::default()
        };
        let snapshot = Snapshot { index: 1, term: 1, membership, data: Bytes::new() };
        let stored = Stored { snapshot: Some(snapshot), ..Stored::default() };
        let nodes = (1..=count).map(|id| {
            let mut node = Node::new(Config::new(id, 7), stored.clone()).expect("a log that a node can have");
            node.rest_learners(at_rest);
            node
        });
        let mut group = Self { nodes: nodes.collect(), cost: Cost::default() };
        group.with(1, Node::campaign);
        group.seconds(5);
        assert!(group.nodes[0].is_leader());
        group.cost = Cost::default();
        group
    }

    /// Lets a node act, and all nodes react.
    fn with(&mut self, id: u64, act: impl FnOnce(&mut Node)) {
        let mut queue = VecDeque::new();
        let began = Instant::now();
        act(&mut self.nodes[id as usize - 1]);
        self.pump(id, began, &mut queue);
        while let Some((to, bytes)) = queue.pop_front() {
            let began = Instant::now();
            let message = Message::decode(&bytes).expect("an encoded message can be decoded");
            self.nodes[to as usize - 1].receive(message).expect("a message for this node");
            if to == 1 {
                self.cost.messages += 1;
                self.cost.bytes += bytes.len() as u64;
            }
            self.pump(to, began, &mut queue);
        }
    }

    fn pump(&mut self, id: u64, began: Instant, queue: &mut VecDeque<(u64, Vec<u8>)>) {
        while let Some(batch) = self.nodes[id as usize - 1].take() {
            for message in self.nodes[id as usize - 1].persisted(batch).messages {
                let bytes = message.encode();
                if id == 1 {
                    self.cost.messages += 1;
                    self.cost.bytes += bytes.len() as u64;
                }
                queue.push_back((message.to(), bytes));
            }
        }
        if id == 1 {
            self.cost.cpu += began.elapsed();
        }
    }

    fn seconds(&mut self, seconds: usize) {
        for _ in 0..seconds * TICKS_A_SECOND {
            (1..=self.nodes.len() as u64).for_each(|id| self.with(id, Node::tick));
        }
    }
}

#[test]
fn a_leader_of_many_learners_says_little() {
    const SECONDS: usize = 10;
    for (nodes, at_rest, messages_max) in
        [(7, true, 61), (200, true, 150), (1_000, true, 500), (1_000, false, 10_000)]
    {
        let mut group = Group::new(nodes, at_rest);
        group.seconds(SECONDS);
        let Cost { messages, bytes, cpu } = group.cost;
        let (messages, bytes, cpu) =
            (messages / SECONDS as u64, bytes / SECONDS as u64, cpu / SECONDS as u32);
        println!(
            "{nodes} nodes, learners at rest: {at_rest}: the leader has {messages} messages, {bytes} bytes, {cpu:?} a second"
        );
        assert!(messages <= messages_max, "{nodes} nodes: {messages} messages a second");
        assert!(bytes <= 64 * messages_max);
        assert!(cpu < CPU_MAX, "{nodes} nodes: {cpu:?} of a core a second");
        // A decision still reaches everybody at once.
        group.with(1, |node| {
            node.propose(Bytes::from_static(b"decided")).expect("it leads");
        });
        let commit = group.nodes[0].status().commit;
        assert!(group.nodes.iter().all(|node| node.status().applied == commit), "without a heartbeat");
    }
}
