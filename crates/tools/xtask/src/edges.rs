//! The table of crate edges: the architecture's layers, in the one place where a machine holds them.
//!
//! A crate is the folder `crates/<layer>/<crate>`. It depends on crates of lower layers, or on crates of its own layer that
//! stand earlier in the table. The table lists the edges that exist and no others: a new edge is a decision that a
//! reviewer sees, and an edge that is gone leaves the table.

/// The folders of `crates/`, lowest layer first.
pub const LAYERS: &[&str] = &[
    "values", "runtime", "protocol", "network", "storage", "cluster", "query", "front", "node", "test",
    "tools",
];

/// One crate: its layer, and the crates of this workspace that it depends on.
pub struct Row {
    /// Folder and package name.
    pub name: &'static str,
    /// The folder of `crates/` that it is in.
    pub layer: &'static str,
    uses: &'static str,
}

impl Row {
    /// Crates that stand under `[dependencies]`.
    pub fn uses(&self) -> impl Iterator<Item = &'static str> {
        self.uses.split_whitespace()
    }

    /// The position of its layer in [`LAYERS`].
    pub fn rank(&self) -> usize {
        LAYERS.iter().position(|layer| *layer == self.layer).expect("a row's layer is one of LAYERS")
    }
}

const fn row(name: &'static str, layer: &'static str, uses: &'static str) -> Row {
    Row { name, layer, uses }
}

/// Every crate, lowest layer first.
pub const TABLE: &[Row] = &[
    // values: no IO, no clock, no threads, no randomness.
    row("stdx", "values", ""),
    row("types", "values", "stdx"),
    row("schema", "values", "stdx types"),
    row("mutation", "values", "stdx types schema"),
    // runtime: the environment of a shard, and its two backends.
    row("rt", "runtime", ""),
    row("rt-uring", "runtime", "stdx rt"),
    row("rt-sim", "runtime", "rt"),
    // protocol: pure state machines and codecs.
    row("topology", "protocol", "stdx schema"),
    row("raft", "protocol", "stdx"),
    row("gossip", "protocol", "stdx topology"),
    row("paxos", "protocol", ""),
    row("cql", "protocol", ""),
    row("wire", "protocol", "stdx topology"),
    row("items", "protocol", "stdx"),
    row("ldap", "protocol", ""),
    row("text", "protocol", ""),
    row("views", "protocol", "types schema mutation"),
    row("cdc", "protocol", "stdx types schema mutation topology"),
    // network: bytes between nodes.
    row("tls", "network", "rt"),
    row("http1", "network", "rt"),
    row("rpc", "network", "stdx rt topology tls"),
    // storage: one shard's storage.
    row("hints", "storage", "stdx rt topology"),
    row("sstable", "storage", "stdx types schema mutation rt"),
    row("commitlog", "storage", "stdx schema mutation rt"),
    row("memtable", "storage", "schema mutation rt"),
    row("cache", "storage", "stdx schema mutation memtable"),
    row("compaction", "storage", "schema mutation rt sstable"),
    row("hnsw", "storage", "stdx"),
    row("index", "storage", "stdx types schema mutation rt items text hnsw"),
    row(
        "engine",
        "storage",
        "stdx schema mutation rt topology sstable commitlog memtable cache compaction index",
    ),
    // cluster: replicas, membership, and operations over them.
    row("replica", "cluster", "stdx schema mutation rt engine"),
    row("cluster", "cluster", "stdx types schema rt topology raft gossip rpc"),
    row("streaming", "cluster", "stdx schema rt topology rpc sstable engine"),
    row("repair", "cluster", "stdx schema mutation rt topology rpc replica"),
    row(
        "coordinator",
        "cluster",
        "stdx types schema mutation rt topology paxos views cdc rpc hints replica cluster",
    ),
    row("membership", "cluster", "schema rt topology gossip rpc engine cluster streaming coordinator"),
    // query: statements.
    row("auth", "query", "stdx types schema rt cql"),
    row("catalog", "query", "stdx types schema mutation rt cdc topology replica coordinator"),
    row("udf", "query", "stdx types schema rt"),
    row(
        "exec",
        "query",
        "stdx types schema mutation rt topology cql wire text views cdc replica cluster coordinator auth catalog udf",
    ),
    // front: the interfaces of clients and operators.
    row("session", "front", "stdx rt wire tls"),
    row(
        "admin",
        "front",
        "stdx types schema mutation rt topology gossip http1 tls rpc engine replica cluster membership repair coordinator",
    ),
    row(
        "dynamo",
        "front",
        "stdx types schema mutation rt items cdc http1 tls replica cluster coordinator auth exec",
    ),
    // node: a whole node.
    row(
        "server",
        "node",
        "stdx schema rt topology wire tls rpc hints commitlog engine replica cluster streaming repair coordinator membership auth catalog exec session admin dynamo ldap",
    ),
    row("torc", "node", "stdx types rt rt-uring topology wire http1 sstable cluster server bench sim"),
    // test: the test side, which nothing above links except the binary (`torc bench`, `torc sim`).
    row("model", "test", "stdx"),
    row("testkit", "test", "types schema mutation"),
    row(
        "bench",
        "test",
        "rt rt-uring topology wire rpc engine replica catalog cluster coordinator exec dynamo",
    ),
    row("sim", "test", "stdx rt rt-sim wire server model"),
    // tools: programs for developers.
    row("xtask", "tools", ""),
];

/// The crates that any crate may name under `[dev-dependencies]` beside crates of its own and of lower layers.
pub const DEV_EXTRA: &[&str] = &["testkit", "model", "rt-sim", "rt-uring", "engine"];

/// Third-party crates that only some of ours may use: each is a capability that the others get passed in, or
/// belongs to one layer.
pub const RESTRICTED: &[(&str, &[&str], &str)] = &[
    ("tokio", &["rt-uring", "torc", "bench", "testkit"], "sockets, timers and tasks come through `rt`"),
    ("io-uring", &["rt-uring"], "files come through `rt`"),
    ("socket2", &["rt-uring", "bench"], "sockets come through `rt`"),
    ("libc", &["rt-uring", "torc", "bench"], "only the backend makes system calls"),
    ("tikv-raft", &["raft"], "our crate `raft` keeps its order, its randomness and its codec in check"),
    ("mlua", &["udf"], "user-defined code runs in one place"),
    ("slog", &["raft"], "events go through `tracing`"),
    ("rand", &[], "random numbers come from `rt`, so that a seed decides them"),
    ("hyper", &["http1", "admin", "dynamo"], "only the HTTP interfaces speak HTTP"),
    ("clap", &["torc", "server", "bench"], "only the binary reads its command line"),
];

/// The row of a crate.
pub fn find(name: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An edge points to a lower layer; inside a layer, to a crate that stands earlier in the table. Either way there is
    /// no cycle.
    #[test]
    fn edges_point_down() {
        for (position, row) in TABLE.iter().enumerate() {
            for used in row.uses() {
                let target = TABLE
                    .iter()
                    .position(|candidate| candidate.name == used)
                    .unwrap_or_else(|| panic!("{} uses {used}, which has no row", row.name));
                let binary_on_test_side = row.name == "torc" && TABLE[target].layer == "test";
                assert!(
                    TABLE[target].rank() <= row.rank() || binary_on_test_side,
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
            assert!(row.uses().all(|used| used != "rt"), "{name} is pure and may not use rt");
        }
    }
}
