//! The verbs of the protocol: their numbers, which never change, and which connection and scheduling group they use.

use rt::Group;

/// Which of the connections between two shards carries a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// Requests that clients wait for.
    Request = 0,
    /// Small messages that decide liveness and leadership: never behind data.
    Urgent = 1,
    /// Bulk transfer.
    Bulk = 2,
}

impl Class {
    /// All classes, in the order of their numbers.
    pub const ALL: [Class; 3] = [Class::Request, Class::Urgent, Class::Bulk];

    /// The class of a number.
    pub fn from_number(number: u8) -> Option<Class> {
        Class::ALL.get(usize::from(number)).copied()
    }

    /// The name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Request => "request",
            Class::Urgent => "urgent",
            Class::Bulk => "bulk",
        }
    }

    /// The scheduling group of the connection's own work.
    pub const fn group(self) -> Group {
        match self {
            Class::Request => Group::Statement,
            Class::Urgent => Group::Membership,
            Class::Bulk => Group::Streaming,
        }
    }
}

macro_rules! verbs {
    ($($(#[$doc:meta])* $verb:ident = $number:literal, $name:literal, $class:ident, $group:ident;)*) => {
        /// The verb of a request. The numbers are part of the protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Verb {
            $($(#[$doc])* $verb = $number,)*
        }

        impl Verb {
            /// All verbs, in the order of their numbers.
            pub const ALL: &'static [Verb] = &[$(Verb::$verb),*];

            /// The name in logs and metrics.
            pub const fn name(self) -> &'static str {
                match self { $(Verb::$verb => $name,)* }
            }

            /// Which connection carries it.
            pub const fn class(self) -> Class {
                match self { $(Verb::$verb => Class::$class,)* }
            }

            /// In which scheduling group it is served.
            pub const fn group(self) -> Group {
                match self { $(Verb::$verb => Group::$group,)* }
            }
        }
    };
}

verbs! {
    /// Answers with the same body: probes a shard and its latency.
    Echo = 1, "echo", Urgent, Membership;
    /// Digests and states of gossip.
    Gossip = 2, "gossip", Urgent, Membership;
    /// A node asks to join the cluster, or for its members.
    Join = 3, "join", Urgent, Membership;
    /// The last versions of another node's gossip that a node received, in its last process lifetimes.
    LastHeard = 4, "last_heard", Urgent, Membership;
    /// A message of the Raft group.
    Raft = 8, "raft", Urgent, Membership;
    /// An edit on its way to the leader.
    RaftForward = 9, "raft_forward", Urgent, Membership;
    /// The replicated state as a whole, for a node that was down too long.
    RaftSnapshot = 10, "raft_snapshot", Bulk, Membership;
    /// A read of rows.
    Read = 16, "read", Request, Statement;
    /// A read whose answer is a digest.
    ReadDigest = 17, "read_digest", Request, Statement;
    /// A mutation for a replica.
    Apply = 18, "apply", Request, Statement;
    /// An increment of counters for the leading replica.
    Increment = 19, "increment", Request, Statement;
    /// Truncation of a table.
    Truncate = 20, "truncate", Request, Statement;
    /// A stored hint for the replica that was down.
    Hint = 21, "hint", Request, Maintenance;
    /// A logged batch to keep until it is done.
    BatchStore = 22, "batch_store", Request, Statement;
    /// A logged batch that is done.
    BatchRemove = 23, "batch_remove", Request, Statement;
    /// A mutation of a read repair.
    ReadRepair = 24, "read_repair", Request, Statement;
    /// A traced request: the id of its session in `system_traces`, a verb, and the verb's body.
    Traced = 25, "traced", Request, Statement;
    /// A mutation for a replica, and for others of its datacenter to which it passes it on.
    Forward = 26, "forward", Request, Statement;
    /// Whether a replica has a mutation that was passed on to it.
    Outcome = 27, "outcome", Request, Statement;
    /// Announces a topology version: the node observes it, and refuses requests that use stale ones.
    Ring = 28, "ring", Request, Statement;
    /// A search for the nearest vectors that a node has.
    Nearest = 29, "nearest", Request, Statement;
    /// An aggregation of the rows of a part of a token range, whose states are the answer.
    Aggregate = 30, "aggregate", Request, Statement;
    /// A scan of an ordered index of a node, in the order of the index.
    ScanIndex = 31, "scan_index", Request, Statement;
    /// Paxos: a ballot is announced.
    PaxosPrepare = 32, "paxos_prepare", Request, Statement;
    /// Paxos: a value is proposed.
    PaxosPropose = 33, "paxos_propose", Request, Statement;
    /// Paxos: a value was chosen.
    PaxosCommit = 34, "paxos_commit", Request, Statement;
    /// Repair of a range begins on a replica.
    RepairOpen = 48, "repair_open", Bulk, Streaming;
    /// Digests of a part of the range.
    RepairDigest = 49, "repair_digest", Bulk, Streaming;
    /// Rows that differ.
    RepairRows = 50, "repair_rows", Bulk, Streaming;
    /// Repair of a range ends on a replica.
    RepairClose = 51, "repair_close", Bulk, Streaming;
    /// A transfer begins, or resumes where it was cut.
    StreamOpen = 64, "stream_open", Bulk, Streaming;
    /// A part of a transfer.
    StreamChunk = 65, "stream_chunk", Bulk, Streaming;
    /// A transfer is complete, or given up.
    StreamClose = 66, "stream_close", Bulk, Streaming;
    /// A shard wants the SSTables of a table that have its tokens, or asks how far they are.
    StreamFiles = 67, "stream_files", Bulk, Streaming;
}

impl Verb {
    /// Whether its handler may wait for other nodes: a write of a table with materialized views waits for updates of these that other nodes
    /// acknowledge, a vote for a vote that commits such a write, a truncation and a topology version for writes under way, an aggregation for
    /// reads. The handlers of the
    /// other verbs of [`Class::Request`] must not, or only few of them at a time: the former wait for them.
    pub const fn waits_for_others(self) -> bool {
        matches!(
            self,
            Verb::Apply
                | Verb::Forward
                | Verb::ReadRepair
                | Verb::PaxosPrepare
                | Verb::PaxosPropose
                | Verb::PaxosCommit
                | Verb::Traced
                | Verb::Truncate
                | Verb::Ring
                | Verb::Aggregate
        )
    }

    /// How many verbs there are.
    pub const COUNT: usize = Verb::ALL.len();

    /// Its number in frames.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The verb of a number.
    pub fn from_number(number: u8) -> Option<Verb> {
        match *INDEX_OF.get(usize::from(number))? {
            ABSENT => None,
            index => Verb::ALL.get(usize::from(index)).copied(),
        }
    }

    /// Position in arrays that hold one entry a verb.
    #[allow(clippy::indexing_slicing, reason = "the table has all numbers of a byte")]
    pub fn index(self) -> usize {
        usize::from(INDEX_OF[usize::from(self.number())])
    }
}

const ABSENT: u8 = u8::MAX;

#[allow(clippy::indexing_slicing, reason = "a table of all numbers of a byte")]
const INDEX_OF: [u8; 256] = {
    let mut table = [ABSENT; 256];
    let mut index = 0;
    while index < Verb::COUNT {
        table[Verb::ALL[index].number() as usize] = index as u8;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_name_verbs_and_only_verbs() {
        for (index, verb) in Verb::ALL.iter().enumerate() {
            assert_eq!(Verb::from_number(verb.number()), Some(*verb));
            assert_eq!(verb.index(), index);
        }
        let known = (0..=255).filter(|number| Verb::from_number(*number).is_some()).count();
        assert_eq!(known, Verb::COUNT);
        assert_eq!(Verb::from_number(0), None, "zeroed memory is no request");
    }

    #[test]
    fn only_requests_of_clients_wait_for_others_and_hints_do_not() {
        let waiters: Vec<_> = Verb::ALL.iter().filter(|verb| verb.waits_for_others()).collect();
        assert!(waiters.iter().all(|verb| verb.class() == Class::Request), "{waiters:?}");
        assert!(!Verb::Hint.waits_for_others(), "updates of views and late writes come as hints");
    }

    /// The numbers are a promise to nodes of other versions: this list only grows.
    #[test]
    fn numbers_never_change() {
        let listed: Vec<String> =
            Verb::ALL.iter().map(|verb| format!("{} {}", verb.number(), verb.name())).collect();
        assert_eq!(
            listed.join(", "),
            "1 echo, 2 gossip, 3 join, 4 last_heard, 8 raft, 9 raft_forward, 10 raft_snapshot, 16 read, 17 read_digest, 18 apply, \
             19 increment, 20 truncate, 21 hint, 22 batch_store, 23 batch_remove, 24 read_repair, 25 traced, 26 forward, \
             27 outcome, 28 ring, 29 nearest, 30 aggregate, 31 scan_index, 32 paxos_prepare, \
             33 paxos_propose, 34 paxos_commit, 48 repair_open, 49 repair_digest, 50 repair_rows, 51 repair_close, \
             64 stream_open, 65 stream_chunk, 66 stream_close, 67 stream_files"
        );
    }
    #[test]
    fn the_dissector_knows_every_verb() {
        let dissector = include_str!("../../../../tools/wireshark/torc.lua");
        for verb in Verb::ALL {
            let line = format!("[{}] = \"{}\"", verb.number(), verb.name());
            assert!(dissector.contains(&line), "tools/wireshark/torc.lua lacks {line}");
        }
    }
}
