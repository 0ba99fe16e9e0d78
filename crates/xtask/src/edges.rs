//! The table of allowed crate edges: the architecture's layers, in the one place where a machine holds them.
//!
//! An arrow points to a lower level, or to a crate of the same level that the table names. A crate that is not in
//! the table may not exist; a row may name crates that do not exist yet.

/// One crate: its level, and the crates of this workspace that it may depend on.
pub struct Row {
    /// Folder and package name.
    pub name: &'static str,
    /// 0 to 5 as ARCHITECTURE.md draws them; 6 is the test side.
    pub level: u8,
    /// Crates that may stand under `[dependencies]`, with blanks between.
    may_use: &'static str,
}

impl Row {
    /// Crates that may stand under `[dependencies]`.
    pub fn may_use(&self) -> impl Iterator<Item = &'static str> {
        self.may_use.split_whitespace()
    }
}

const fn row(name: &'static str, level: u8, may_use: &'static str) -> Row {
    Row { name, level, may_use }
}

/// Every crate, lowest level first.
pub const TABLE: &[Row] = &[
    // L0: values. No IO, no clock, no threads, no randomness.
    row("stdx", 0, ""),
    row("types", 0, "stdx"),
    row("schema", 0, "stdx types"),
    row("mutation", 0, "stdx types schema"),
    // L1: capabilities, and pure state machines beside them.
    row("rt", 1, "stdx"),
    row("rt-uring", 1, "rt stdx"),
    row("rt-sim", 1, "rt stdx"),
    row("topology", 1, "stdx types schema"),
    row("raft", 1, "stdx"),
    row("gossip", 1, "stdx topology"),
    row("paxos", 1, "stdx"),
    row("cql", 1, "stdx types schema"),
    row("wire", 1, "stdx types"),
    // L2: one shard's storage, and bytes between nodes.
    row("tls", 2, "stdx rt"),
    row("rpc", 2, "stdx types schema mutation rt topology tls"),
    row("hints", 2, "stdx rt topology"),
    row("sstable", 2, "stdx types schema mutation rt"),
    row("commitlog", 2, "stdx types schema mutation rt"),
    row("memtable", 2, "stdx types schema mutation rt"),
    row("cache", 2, "stdx types schema mutation rt memtable"),
    row("streaming", 2, "stdx types schema mutation rt topology rpc sstable"),
    row("compaction", 2, "stdx types schema mutation rt sstable"),
    row("engine", 2, "stdx types schema mutation rt topology sstable commitlog memtable cache compaction"),
    // L3: replicas, membership, and operations over them.
    row("replica", 3, "stdx types schema mutation rt topology engine"),
    row("cluster", 3, "stdx types schema mutation rt topology raft gossip rpc replica"),
    row("transfer", 3, "stdx types schema mutation rt topology rpc sstable streaming engine"),
    row("repair", 3, "stdx types schema mutation rt topology rpc streaming replica"),
    row("coordinator", 3, "stdx types schema mutation rt topology paxos rpc hints replica cluster"),
    // L4: what clients speak.
    row("catalog", 4, "stdx types schema mutation rt topology coordinator cluster replica"),
    row("exec", 4, "stdx types schema mutation rt topology cql wire coordinator cluster replica catalog"),
    row("session", 4, "stdx types schema mutation rt tls topology cql wire exec cluster catalog"),
    row("dynamo", 4, "stdx types schema mutation rt topology exec coordinator"),
    // L5: a whole node.
    row(
        "admin",
        5,
        "stdx types schema mutation rt topology gossip rpc cql engine replica coordinator cluster repair exec \
         catalog session dynamo",
    ),
    row(
        "server",
        5,
        "stdx types schema mutation rt tls topology cql wire gossip rpc hints sstable commitlog memtable cache streaming \
         compaction engine replica coordinator cluster transfer repair exec catalog session dynamo admin",
    ),
    row(
        "torc",
        5,
        "stdx types schema mutation rt rt-uring rt-sim topology cql wire sstable commitlog engine replica \
         cluster coordinator exec catalog session admin server bench sim model",
    ),
    // T: the test side, which nothing above links except the binary (`torc bench`, `torc sim`).
    row("model", 6, "stdx types schema mutation cql"),
    row("testkit", 6, "stdx types schema mutation rt rt-sim rt-uring cql wire"),
    row(
        "bench",
        6,
        "stdx types schema mutation rt rt-uring topology cql wire rpc engine replica coordinator cluster exec session \
         server",
    ),
    row(
        "sim",
        6,
        "stdx types schema mutation rt rt-sim topology cql wire sstable commitlog memtable cache \
         compaction engine replica coordinator cluster repair exec catalog session server model testkit",
    ),
    row("xtask", 6, ""),
];

/// What any crate may name under `[dev-dependencies]` beside its own row: the test side, the two backends, and real storage.
pub const DEV_EXTRA: &[&str] = &["testkit", "model", "rt-sim", "rt-uring", "engine"];

/// Third-party crates that only some of ours may use: each is a capability that the others get passed in, or
/// belongs to one layer.
pub const RESTRICTED: &[(&str, &[&str], &str)] = &[
    ("tokio", &["rt-uring", "torc", "bench", "testkit"], "sockets, timers and tasks come through `rt`"),
    ("io-uring", &["rt-uring"], "files come through `rt`"),
    ("socket2", &["rt-uring", "bench"], "sockets come through `rt`"),
    ("libc", &["rt-uring", "torc", "bench"], "only the backend makes system calls"),
    ("tikv-raft", &["raft"], "our crate `raft` keeps its order, its randomness and its codec in check"),
    ("slog", &["raft"], "events are told through `tracing`"),
    ("rand", &[], "random numbers come from `rt`, so that a seed decides them"),
    ("hyper", &["admin", "dynamo"], "only the HTTP interfaces speak HTTP"),
    ("clap", &["torc", "server", "bench"], "only the binary reads its command line"),
];

/// The row of a crate.
pub fn find(name: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An arrow points to a lower level; inside a level, to a crate that stands earlier in the table. Either way
    /// there is no cycle.
    #[test]
    fn arrows_point_down() {
        for (position, row) in TABLE.iter().enumerate() {
            for used in row.may_use() {
                let target = TABLE
                    .iter()
                    .position(|candidate| candidate.name == used)
                    .unwrap_or_else(|| panic!("{} may use {used}, which has no row", row.name));
                let binary_on_test_side = row.name == "torc" && TABLE[target].level == 6;
                assert!(
                    TABLE[target].level <= row.level || binary_on_test_side,
                    "{} → {used} points up",
                    row.name
                );
                assert!(target < position || binary_on_test_side, "{} → {used} may close a cycle", row.name);
            }
        }
    }

    #[test]
    fn pure_crates_never_see_the_runtime() {
        for name in crate::rules::PURE {
            let row = find(name).expect("a pure crate has a row");
            assert!(row.may_use().all(|used| used != "rt"), "{name} is pure and may not use rt");
        }
    }
}
