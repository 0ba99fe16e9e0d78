//! Verbs of Cassandra's and ScyllaDB's tools that mean nothing here: each is refused with the reason, and the way to the same end where there is one.

use clap::{Arg, Command};

/// Verbs by name, with the answer to them.
const REFUSED: &[(&str, &str)] = &[
    ("backup", OBJECT_STORAGE),
    (
        "checktokenmetadata",
        "tokens are in the cluster's log, and gossip does not carry them: there is nothing to compare. See nodetool ring",
    ),
    (
        "cluster",
        "each node does its own: run nodetool repair -pr, or nodetool cleanup, on every node. Tables are also repaired by themselves (auto_repair_enabled)",
    ),
    ("disablefullquerylog", FULL_QUERY_LOG),
    ("disablegossip", GOSSIP),
    ("disablehintsfordc", HINTS_OF_DC),
    ("disableoldprotocolversions", OLD_PROTOCOLS),
    (
        "dropquarantinedsstables",
        "damaged SSTables are not quarantined in the table: their files are in its directory under snapshots/damaged-*, for you to remove",
    ),
    ("enablefullquerylog", FULL_QUERY_LOG),
    ("enablegossip", GOSSIP),
    ("enablehintsfordc", HINTS_OF_DC),
    ("enableoldprotocolversions", OLD_PROTOCOLS),
    ("excludenode", "a node that is down for good is removed by nodetool removenode, or replaced"),
    (
        "forcecompact",
        "gc_grace_seconds cannot be passed over for some partitions; lower it with ALTER TABLE, then use nodetool compact",
    ),
    ("gcstats", "the server has no garbage collector; nodetool info and the metrics show its memory"),
    ("getauthcacheconfig", AUTH_CACHES),
    ("getbatchlogreplaythrottle", BATCHLOG),
    (
        "getcolumnindexsize",
        "the granularity of indexes of rows is not an option; SSTables are written with 4 KiB",
    ),
    ("getconcurrency", STAGES),
    ("getconcurrentviewbuilders", VIEW_BUILDERS),
    ("getfullquerylog", FULL_QUERY_LOG),
    ("getinterdcstreamthroughput", INTER_DC),
    ("getsnapshotthrottle", SNAPSHOT_LINKS),
    ("invalidatecidrpermissionscache", CIDR),
    ("invalidatecountercache", "counters have no cache of their own"),
    ("invalidatecredentialscache", AUTH_CACHES),
    ("invalidatejmxpermissionscache", "there is no JMX, and nothing that would cache its permissions"),
    (
        "invalidatekeycache",
        "there is no cache of keys: indexes of partitions are among the chunks of the cache",
    ),
    ("invalidatenetworkpermissionscache", AUTH_CACHES),
    ("invalidatepermissionscache", AUTH_CACHES),
    ("invalidaterolescache", AUTH_CACHES),
    (
        "invalidaterowcache",
        "rows in the cache are always those of the SSTables, and leave it when room is needed; a statement with BYPASS CACHE does not use it",
    ),
    ("move", "a node keeps its tokens; add a node with initial_token, and decommission the other"),
    ("profileload", "nodetool toppartitions samples reads and writes of a table"),
    ("recompress_sstables", REWRITE),
    ("refreshsizeestimates", "system.size_estimates is computed when it is read"),
    ("reloadcidrgroupscache", CIDR),
    ("reloadlocalschema", SCHEMA),
    ("reloadseeds", "seeds are used only by a node that joins; afterwards the cluster's log has the members"),
    ("reloadssl", "certificates are read again by themselves when their files change"),
    ("reloadtriggers", "there are no triggers"),
    ("relocatesstables", "a node has one directory of data"),
    ("replaybatchlog", BATCHLOG),
    ("resetfullquerylog", FULL_QUERY_LOG),
    ("resetlocalschema", SCHEMA),
    ("restore", OBJECT_STORAGE),
    ("setauthcacheconfig", AUTH_CACHES),
    ("setbatchlogreplaythrottle", BATCHLOG),
    ("setcachecapacity", "the cache's size is the option cache_size of torc.yaml, used from the next start"),
    ("setcachekeystosave", "caches are not saved to disk"),
    (
        "setcolumnindexsize",
        "the granularity of indexes of rows is not an option; SSTables are written with 4 KiB",
    ),
    (
        "setcompactionthreshold",
        "thresholds belong to the table on all nodes: ALTER TABLE ... WITH compaction = {'class': ..., 'min_threshold': ..., 'max_threshold': ...}",
    ),
    ("setconcurrency", STAGES),
    ("setconcurrentviewbuilders", VIEW_BUILDERS),
    ("setinterdcstreamthroughput", INTER_DC),
    ("setsnapshotthrottle", SNAPSHOT_LINKS),
    (
        "sjk",
        "there is no Java process; use the metrics, nodetool tpstats, or a profiler of the operating system",
    ),
    (
        "tasks",
        "there is no task manager; nodetool compactionstats, nodetool repair_admin and nodetool netstats show the work under way",
    ),
];

const AUTH_CACHES: &str =
    "roles, passwords and permissions are not cached: a change counts when its statement has returned";
const BATCHLOG: &str = "interrupted logged batches are completed by themselves, without a throttle; the metrics scylla_batchlog_manager_* count them";
const CIDR: &str =
    "CIDR groups are not cached: a change counts for the logins from then on, and the log names refused ones";
const FULL_QUERY_LOG: &str = "there is no full query log; nodetool enableauditlog logs statements";
const GOSSIP: &str =
    "a member always gossips; nodetool drain and nodetool stopdaemon take a node out of service";
const HINTS_OF_DC: &str =
    "hints are stored for all datacenters or none: nodetool disablehandoff, nodetool enablehandoff";
const INTER_DC: &str = "one limit holds for all streams, within datacenters and between them: nodetool getstreamthroughput, nodetool setstreamthroughput";
const OBJECT_STORAGE: &str = "SSTables are not sent to object storage; copy the files of nodetool snapshot, and load them by nodetool import";
const OLD_PROTOCOLS: &str = "versions 3 to 5 of the native protocol are always spoken";
const REWRITE: &str = "files of all supported formats are read as they are, and compaction writes the current one; nodetool upgradesstables -a rewrites all of a table";
const SCHEMA: &str =
    "the schema is in the cluster's log, and a node cannot have another: there is nothing to reload or reset";
const SNAPSHOT_LINKS: &str = "links of snapshots are not throttled";
const STAGES: &str = "there are no stages with threads: each shard is one thread, and nodetool tpstats shows its scheduling groups";
const VIEW_BUILDERS: &str = "views are built one partition after another on each shard, beside requests";

/// The commands of these verbs, which take anything. Help texts do not list them.
pub(super) fn commands() -> impl Iterator<Item = Command> {
    let anything =
        || Arg::new("anything").num_args(0..).allow_hyphen_values(true).trailing_var_arg(true).hide(true);
    REFUSED.iter().map(move |(name, why)| {
        Command::new(*name).about(*why).arg(anything()).disable_help_flag(true).hide(true)
    })
}

/// The answer to a verb; none when it is not refused.
pub(super) fn reason(name: &str) -> Option<String> {
    let (name, why) = REFUSED.iter().find(|(refused, _)| *refused == name)?;
    Some(format!("nodetool {name} has no meaning here: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodetool::{VERBS, command};

    /// All verbs of the tool of Cassandra 5.0.6 but `help`.
    const CASSANDRAS: &str = include_str!("../../testdata/nodetool/verbs-of-cassandra.list");

    /// Verbs of ScyllaDB's tool alone that are refused.
    const SCYLLADBS: [&str; 6] =
        ["backup", "cluster", "dropquarantinedsstables", "excludenode", "restore", "tasks"];

    #[test]
    fn every_verb_of_cassandra_has_an_answer() {
        assert!(REFUSED.is_sorted_by_key(|(name, _)| name));
        for verb in CASSANDRAS.lines() {
            let has = VERBS.iter().any(|known| known.name == verb);
            assert_ne!(has, reason(verb).is_some(), "{verb} is known or refused");
        }
        for (name, why) in REFUSED {
            let is_known = CASSANDRAS.lines().chain(SCYLLADBS).any(|verb| verb == *name);
            assert!(is_known, "{name} is a verb of Cassandra or ScyllaDB");
            assert!(!why.ends_with('.') && why.len() > 20, "{name}: {why}");
        }
        let matches = command().try_get_matches_from(["nodetool", "sjk", "-n", "ks", "t", "--x"]).unwrap();
        assert_eq!(matches.subcommand_name(), Some("sjk"));
        assert!(reason("sjk").unwrap().starts_with("nodetool sjk has no meaning here: there is no Java"));
        assert_eq!(reason("status"), None);
    }
}
