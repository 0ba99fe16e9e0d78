//! The table of options.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tls::ClientAuth;

use super::value::{Keyword, OptionValue, Secret, Size};
use super::{ConfigError, nearest};

/// An option's description in help texts and `system_views.settings`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionInfo {
    /// Its name.
    pub name: &'static str,
    /// Other names that are understood, each with the unit that its numbers are in (empty for none).
    pub aliases: &'static [(&'static str, &'static str)],
    /// The type of its value, as ScyllaDB's `system.config` names it.
    pub kind: &'static str,
    /// Whether it can be changed while the node runs.
    pub is_live: bool,
    /// Its effect, in a sentence.
    pub help: &'static str,
}

macro_rules! is_live {
    () => {
        false
    };
    (live) => {
        true
    };
}

macro_rules! options {
    ($($(#[alias($alias:literal, $unit:literal)])* $name:ident: $ty:ty = $default:expr, $($live:ident)? $help:literal;)*) => {
        /// Every option of a node.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Config {
            $(#[doc = $help] pub $name: $ty,)*
        }

        impl Default for Config {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        impl Config {
            /// All options in the order of the help text.
            pub const OPTIONS: &'static [OptionInfo] = &[
                $(OptionInfo {
                    name: stringify!($name),
                    aliases: &[$(($alias, $unit)),*],
                    kind: <$ty as OptionValue>::KIND,
                    is_live: is_live!($($live)?),
                    help: $help,
                },)*
            ];

            /// Sets one option by name.
            ///
            /// # Errors
            /// [`ConfigError::Value`] with the expected form when the text is no value of the option; the nearest name
            /// when no option has this one.
            pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
                $(
                    for (known, unit) in [(stringify!($name), "") $(, ($alias, $unit))*] {
                        if name == known {
                            // A unit in the name belongs to bare numbers only.
                            let bare = !unit.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
                            let text = if bare { format!("{value}{unit}") } else { value.to_owned() };
                            self.$name = OptionValue::parse(&text).map_err(|expected| ConfigError::Value {
                                name: name.to_owned(),
                                value: value.to_owned(),
                                expected,
                            })?;
                            return Ok(());
                        }
                    }
                )*
                Err(Self::unknown(name))
            }

            /// The option of this name or alias.
            ///
            /// # Errors
            /// When there is none: the nearest name.
            pub fn option(name: &str) -> Result<&'static OptionInfo, ConfigError> {
                let is_it = |option: &&OptionInfo| {
                    option.name == name || option.aliases.iter().any(|(alias, _)| *alias == name)
                };
                Self::OPTIONS.iter().find(is_it).ok_or_else(|| Self::unknown(name))
            }

            fn unknown(name: &str) -> ConfigError {
                let known = Self::OPTIONS.iter().map(|option| option.name);
                ConfigError::Unknown { name: name.to_owned(), nearest: nearest(name, known) }
            }

            /// Whether an option has this name, or an alias of it.
            pub(super) fn has(&self, name: &str) -> bool {
                Self::option(name).is_ok()
            }

            /// The value of one option as `torc.yaml` would have it; none when no option has this name.
            pub fn value_of(&self, name: &str) -> Option<String> {
                self.show().into_iter().find(|(known, _)| *known == name).map(|(_, value)| value)
            }

            /// Every option with its value as `torc.yaml` would have it, in name order.
            pub fn show(&self) -> Vec<(&'static str, String)> {
                let mut all = vec![$((stringify!($name), self.$name.show()),)*];
                all.sort();
                all
            }
        }
    };
}

options! {
    cluster_name: String = "Test Cluster".to_owned(), "Name of the cluster; a node joins no other.";
    num_tokens: u16 = 16, "Places of this node on the ring.";
    initial_token: String = String::new(), "The places themselves, separated by commas; chosen for balance by default.";
    #[alias("smp", "")]
    shards: u16 = 0, "Shards, each a thread on a core of its own; 0 for one a core.";
    datacenter: String = "datacenter1".to_owned(), "Datacenter that this node stands in.";
    rack: String = "rack1".to_owned(), "Rack that this node stands in.";
    #[alias("seed_provider", "")]
    #[alias("seed_provider_parameters", "")]
    seeds: String = String::new(), "Addresses of nodes to find the cluster by, each with :port where it is not storage_port, separated by commas; without any the node begins a cluster.";
    new_cluster: bool = false, "A node without data begins a cluster although seeds do not answer; to be given once, to the first node.";
    allow_rolled_back: bool = false, "A node whose disk was restored from an older image than others remember serves all the same; to be given once, to every node of a cluster that was restored as a whole.";
    auto_bootstrap: bool = true, "A new node takes its part of the data over before it serves.";
    replace_address: String = String::new(), "The same as replace_address_first_boot.";
    replace_address_first_boot: String = String::new(), "Address of the dead node whose place a new node takes; of no effect once the node is a member.";
    replace_node_first_boot: String = String::new(), "Host id of the dead node whose place a new node takes; of no effect once the node is a member.";
    ignore_dead_nodes_for_replace: String = String::new(), "Host ids or addresses, separated by commas, of other nodes that are dead while a new node takes the place of one: their data is taken from the replicas that are left; of no effect once the node is a member.";
    join_ring: bool = true, "Enter the ring at the start; without it the node only coordinates until nodetool join.";
    #[alias("data_dir", "")]
    data_file_directories: PathBuf = PathBuf::from("/var/lib/torc/data"), "Directory of tables.";
    commitlog_directory: Option<PathBuf> = None, "Directory of the commit log; beside the data by default.";
    hints_directory: Option<PathBuf> = None, "Directory of hints; beside the data by default.";
    memory: bool = false, "Keep everything in memory and never touch the disk; all is gone at the end.";
    listen_address: IpAddr = IpAddr::from([127, 0, 0, 1]), "Address for other nodes.";
    broadcast_address: Option<IpAddr> = None, "Address by which other nodes find this one, if it is not listen_address.";
    #[alias("address", "")]
    rpc_address: IpAddr = IpAddr::from([127, 0, 0, 1]), "Address for clients.";
    broadcast_rpc_address: Option<IpAddr> = None, "Address by which clients find this node, if it is not rpc_address.";
    native_transport_port: u16 = 9042, "Port for CQL clients.";
    native_shard_aware_transport_port: u16 = 19042, "Port for shard-aware CQL clients; 0 for none.";
    storage_port: u16 = 7000, "Port for other nodes.";
    server_encryption_options_internode_encryption: Keyword = "none".into(), "Encryption of connections between nodes: none, all, dc (those that leave the datacenter) or rack (those that leave the rack).";
    server_encryption_options_certificate: Option<PathBuf> = None, "PEM file of the certificate that this node shows to others, and of those between it and the authority.";
    server_encryption_options_keyfile: Option<PathBuf> = None, "PEM file of its private key.";
    server_encryption_options_truststore: Option<PathBuf> = None, "PEM file of the authorities whose certificates nodes must have.";
    server_encryption_options_require_client_auth: bool = false, "Nodes that connect to this one must show a certificate, too.";
    server_encryption_options_require_endpoint_verification: bool = false, "The certificate of a node that is connected to must be for its address.";
    client_encryption_options_enabled: bool = false, "Clients connect with TLS.";
    client_encryption_options_optional: bool = false, "The ports with TLS take clients without it, too.";
    client_encryption_options_certificate: Option<PathBuf> = None, "PEM file of the certificate that this node shows to clients, and of those between it and the authority.";
    client_encryption_options_keyfile: Option<PathBuf> = None, "PEM file of its private key.";
    client_encryption_options_truststore: Option<PathBuf> = None, "PEM file of the authorities whose certificates clients must have, where require_client_auth asks for them.";
    client_encryption_options_require_client_auth: ClientAuth = ClientAuth::No, "Whether clients show a certificate: true, false, or optional, where one that is shown must be good.";
    native_transport_port_ssl: u16 = 0, "Port for CQL clients with TLS; 0 for native_transport_port, which then uses TLS.";
    native_shard_aware_transport_port_ssl: u16 = 0, "Port for shard-aware CQL clients with TLS; 0 for native_shard_aware_transport_port, which then uses TLS.";
    internode_compression: Keyword = "dc".into(), "Compression of connections between nodes: all, dc (those that leave the datacenter) or none.";
    internode_compressor: Keyword = "lz4".into(), "How that is compressed: lz4, or zstd for fewer bytes and more work.";
    phi_convict_threshold: f64 = 8.0, "How unlikely a node's silence must be (as -log10 of its chance) before the node counts as down, from 5 to 16.";
    hinted_handoff_enabled: bool = true, live "Keep writes for replicas that are down until they are back.";
    #[alias("max_hint_window_in_ms", "ms")]
    max_hint_window: Duration = Duration::from_secs(3 * 3600), live "Down for longer, a replica gets no more hints.";
    hint_window_persistent_enabled: bool = true, "The age of a replica's oldest hint counts against max_hint_window too.";
    #[alias("hinted_handoff_throttle_in_kb", "KiB")]
    hinted_handoff_throttle: Size = Size(1 << 20), live "Bytes of hints a second that are delivered to a node; 0 for no limit.";
    max_hints_delivery_threads: u16 = 2, "Nodes that hints are delivered to at once, from each shard.";
    #[alias("hints_flush_period_in_ms", "ms")]
    hints_flush_period: Duration = Duration::from_secs(10), "Time between syncs of hints.";
    #[alias("max_hints_file_size_in_mb", "MiB")]
    max_hints_file_size: Size = Size::mib(128), "Size at which a file of hints is ended and the next begun.";
    #[alias("max_hints_size_per_host_in_mb", "MiB")]
    max_hints_size_per_host: Size = Size(0), "Limit of the hints for one node; 0 for no limit.";
    #[alias("auto_repair_enabled_default", "")]
    auto_repair_enabled: bool = true, live "Automatic repair: the node repairs its primary ranges.";
    #[alias("auto_repair_threshold_default_in_seconds", "s")]
    auto_repair_threshold: Duration = Duration::ZERO, live "Time after which a table is repaired again by itself; 0 for three quarters of its gc_grace_seconds, a day with tombstone_gc repair; a week at most.";
    auto_repair_full_interval: Duration = Duration::from_secs(28 * 86_400), live "Time after which an automatic repair is a full one and not incremental; 0 for always.";
    #[alias("repair_request_timeout_in_ms", "ms")]
    repair_request_timeout: Duration = Duration::from_secs(20), "How long a repair waits for one answer of another node.";
    #[alias("repair_session_space_in_mb", "MiB")]
    repair_session_space: Size = Size(0), "Limit of the pages of repairs that a shard caches between two requests; 0 for 8MiB.";
    #[alias("stream_io_throughput_mb_per_sec", "MiB")]
    stream_throughput_outbound: Size = Size::mib(24), live "Bytes a second that this node sends of SSTables to nodes that gain ranges, and that the repairs that it leads exchange with others; 0 for no limit.";
    api_address: IpAddr = IpAddr::from([127, 0, 0, 1]), "Address of the REST administration.";
    api_port: u16 = 10000, "Port of the REST administration; 0 for none.";
    prometheus_address: IpAddr = IpAddr::from([127, 0, 0, 1]), "Address of the metrics.";
    prometheus_port: u16 = 9180, "Port of the metrics; 0 for none.";
    api_encryption_options_enabled: bool = false, "Administration and metrics use TLS; clients on the node itself (loopback) may do without.";
    api_encryption_options_certificate: Option<PathBuf> = None, "PEM file of the certificate that the ports of administration and metrics show, and of those between it and the authority; without it and keyfile those of client_encryption_options are used.";
    api_encryption_options_keyfile: Option<PathBuf> = None, "PEM file of its private key.";
    api_encryption_options_truststore: Option<PathBuf> = None, "PEM file of the authorities whose certificates clients of administration and metrics must have, where require_client_auth asks for them.";
    api_encryption_options_require_client_auth: ClientAuth = ClientAuth::No, "Whether clients of administration and metrics show a certificate: true, false, or optional; one that does needs no password, and may change everything.";
    api_local_login: bool = false, "Clients of administration and metrics on the node itself (loopback) log in, too, when there is an authenticator.";
    http_host_names: String = String::new(), "Names by which clients may reach administration and metrics, and web pages the DynamoDB API without authorization, separated by commas; addresses and localhost always may be used.";
    alternator_port: u16 = 0, "Port of the DynamoDB API; 0 for none, 8000 with torc dev.";
    alternator_address: Option<IpAddr> = None, "Address of the DynamoDB API; rpc_address by default.";
    alternator_https_port: u16 = 0, "Port of the DynamoDB API with TLS, beside alternator_port or alone; 0 for none, customarily 8043.";
    alternator_encryption_options_certificate: Option<PathBuf> = None, "PEM file of the certificate that the port of the DynamoDB API with TLS shows, and of those between it and the authority; without it and keyfile those of client_encryption_options are used.";
    alternator_encryption_options_keyfile: Option<PathBuf> = None, "PEM file of its private key.";
    alternator_describe_endpoints: String = String::new(), live "Endpoint that DescribeEndpoints of the DynamoDB API gives; nothing for the one that the client used, disabled to refuse the operation.";
    alternator_write_isolation: String = "always_use_lwt".to_owned(), "How writes of the DynamoDB API are kept apart, where a table's tag system:write_isolation does not say: always_use_lwt, only_rmw_uses_lwt, forbid_rmw or unsafe_rmw.";
    #[alias("alternator_ttl_period_in_seconds", "s")]
    alternator_ttl_period: Duration = Duration::from_secs(86_400), "Time between two looks for items of the DynamoDB API, and rows of tables with a TTL column, whose time to live is over; 10s with torc dev.";
    #[alias("alternator_streams_time_window_s", "s")]
    alternator_streams_time_window: Duration = Duration::from_secs(10), "Age of changes before streams of the DynamoDB API show them; 1s with torc dev. Longer than write_request_timeout with the difference of the nodes' clocks: readers do not see a change that is stored later.";
    alternator_export_directory: Option<PathBuf> = None, "Directory in which exports and imports of the DynamoDB API have their files, an absolute path; S3Bucket names a folder in it. Without it exports and imports are refused. Roles with SELECT on a table may write it there, those with CREATE may read all of it.";
    alternator_export_endpoint: String = String::new(), "URL of an S3-compatible service that has the files of exports and imports of the DynamoDB API, http://HOST:PORT or https://HOST; S3Bucket is a bucket there, and alternator_export_directory has their records alone.";
    alternator_export_region: String = "us-east-1".to_owned(), "Region of the signatures of requests to it.";
    alternator_export_credentials: Option<PathBuf> = None, "File with the credentials for it, in lines aws_access_key_id=… and aws_secret_access_key=….";
    alternator_export_truststore: Option<PathBuf> = None, "PEM file of the authorities of its certificate, for https.";
    alternator_enforce_authorization: bool = false, live "Requests of the DynamoDB API must be signed by a role: its name is the access key, its salted_hash in system_auth.roles the secret.";
    alternator_warn_authorization: bool = false, live "Requests of the DynamoDB API that alternator_enforce_authorization refuses, or would refuse, are named in the log and counted.";
    alternator_allow_system_table_write: bool = false, live "PutItem and UpdateItem of the DynamoDB API may change settings by .scylla.alternator.system.config, as UPDATE system.config does; where an authorizer asks for permissions, a superuser's.";
    #[alias("alternator_timeout_in_ms", "ms")]
    alternator_timeout: Duration = Duration::ZERO, live "How long a read or write of the DynamoDB API may take; 0 for read_request_timeout, range_request_timeout and write_request_timeout.";
    alternator_max_items_in_batch_write: u32 = 100, live "Writes that a BatchWriteItem of the DynamoDB API may have, as in ScyllaDB; 25 for the limit of AWS.";
    alternator_response_compression_threshold_in_bytes: u32 = 4096, live "Answers of the DynamoDB API of fewer bytes are not compressed.";
    alternator_response_gzip_compression_level: u16 = 6, live "How answers of the DynamoDB API are compressed for clients that accept it: from 1, fast, to 9, small; 0 not at all.";
    max_open_files: u64 = 0, "Files and sockets that the node may have open; 0 for the limit of the process. Half of them are for files.";
    #[alias("max_heap_size", "")]
    memory_size: Size = Size(0), "Memory that the node may use; 0 for the memory of the machine or the limit of the container.";
    #[alias("memtable_heap_space_in_mb", "MiB")]
    #[alias("memtable_heap_space", "")]
    memtable_space: Size = Size(0), "Limit of memtables on all shards together; 0 for a quarter of the memory.";
    #[alias("row_cache_size", "")]
    #[alias("row_cache_size_in_mb", "MiB")]
    cache_size: Size = Size(0), "Rows and chunks in the cache of all shards, which have what memtables leave of memtable_space besides; 0 for a quarter of the memory.";
    commitlog_sync: Keyword = "periodic".into(), "When writes are on disk: periodic, batch (before they are acknowledged) or group.";
    #[alias("commitlog_sync_period_in_ms", "ms")]
    commitlog_sync_period: Duration = Duration::from_secs(10), "Time between syncs of the periodic mode.";
    #[alias("commitlog_sync_group_window_in_ms", "ms")]
    commitlog_sync_group_window: Duration = Duration::from_millis(10), "Time for which the group mode gathers writes.";
    #[alias("commitlog_segment_size_in_mb", "MiB")]
    commitlog_segment_size: Size = Size::mib(32), "Size of a commit log file; a mutation may take half of it.";
    #[alias("commitlog_total_space_in_mb", "MiB")]
    commitlog_total_space: Size = Size::mib(1024), "Limit of the commit logs of all shards, at which tables are flushed.";
    commitlog_archive: Option<PathBuf> = None, "Directory into which full commit log files are linked.";
    commitlog_ignore_errors: bool = false, "Start in spite of damage in the middle of a commit log; its entries are lost.";
    commit_failure_policy: Keyword = "stop".into(), "When the commit log fails: stop (refuse reads and writes), stop_commit (refuse writes), ignore (fail the writes concerned) or die (end the process).";
    disk_failure_policy: Keyword = "stop".into(), "When data files cannot be written: stop (refuse writes), ignore (try again) or die (end the process).";
    #[alias("compaction_throughput_mb_per_sec", "MiB")]
    compaction_throughput: Size = Size::mib(64), live "Bytes a second that compaction may write; 0 for no limit.";
    compaction_static_shares: u32 = 0, live "Shares of compaction, of CPU and disk, beside 1000 of statements; by default they follow its backlog, from 50 to 1000.";
    compaction_max_shares: u32 = 0, live "Most shares of compaction that follow its backlog; 0 for the default.";
    memtable_flush_static_shares: u32 = 0, live "Shares of flushes; by default they follow the memory that memtables take, from 100 to 1000.";
    io_properties_file: Option<PathBuf> = None, "File with the speed of disks as ScyllaDB's iotune writes it; without one the first start measures the disk of the data.";
    #[alias("io_latency_goal_ms", "ms")]
    io_latency_goal: Duration = Duration::from_millis(1), "How much of the disk's time reads and writes in flight may take, by its speed; the others wait by the shares of their scheduling groups. 0: none waits.";
    concurrent_compactors: u16 = 2, live "Compactions at once on a shard.";
    compaction_large_partition_warning_threshold_mb: u32 = 1000, live "Partitions of more MiB are listed in system.large_partitions, and logged, when an SSTable is written.";
    compaction_rows_count_warning_threshold: u32 = 100_000, live "So are partitions of more rows.";
    compaction_large_row_warning_threshold_mb: u32 = 10, live "Rows of more MiB are listed in system.large_rows.";
    compaction_large_cell_warning_threshold_mb: u32 = 1, live "Cells and collections of more MiB are listed in system.large_cells.";
    compaction_collection_elements_count_warning_threshold: u32 = 10_000, live "So are collections of more elements.";
    default_keyspace_rf: u16 = 1, live "Copies of a keyspace whose replication does not say how many, from 1.";
    auto_snapshot: bool = true, live "Snapshot before DROP and TRUNCATE.";
    incremental_backups: bool = false, live "Link every flushed SSTable into backups/.";
    #[alias("read_request_timeout_in_ms", "ms")]
    read_request_timeout: Duration = Duration::from_secs(5), live "How long a read of partitions may take.";
    #[alias("range_request_timeout_in_ms", "ms")]
    range_request_timeout: Duration = Duration::from_secs(10), live "How long a page of a scan may take.";
    #[alias("write_request_timeout_in_ms", "ms")]
    write_request_timeout: Duration = Duration::from_secs(2), live "How long a write may take.";
    #[alias("cas_contention_timeout_in_ms", "ms")]
    cas_contention_timeout: Duration = Duration::from_millis(1800), live "How long a conditional statement may wait for others of its partition.";
    #[alias("counter_write_request_timeout_in_ms", "ms")]
    counter_write_request_timeout: Duration = Duration::from_secs(5), live "How long a counter update may take.";
    #[alias("truncate_request_timeout_in_ms", "ms")]
    truncate_request_timeout: Duration = Duration::from_secs(60), live "How long TRUNCATE may take.";
    #[alias("request_timeout_in_ms", "ms")]
    request_timeout: Duration = Duration::from_secs(10), "How long anything else may take.";
    #[alias("slow_query_log_timeout_in_ms", "ms")]
    slow_query_log_timeout: Duration = Duration::from_millis(500), live "Statements that take longer are named in the log; 0 for none.";
    slow_query_tracing: bool = false, live "Whether requests that take longer than slow_query_tracing_threshold are recorded in system_traces.node_slow_log, with their steps.";
    #[alias("slow_query_tracing_threshold_in_us", "us")]
    slow_query_tracing_threshold: Duration = Duration::from_millis(500), live "How long a request takes that slow_query_tracing does not record.";
    #[alias("slow_query_tracing_ttl_in_s", "s")]
    slow_query_tracing_ttl: Duration = Duration::from_secs(24 * 60 * 60), live "How long records of slow requests are kept.";
    slow_query_tracing_fast: bool = false, live "Whether slow_query_tracing records requests without their steps, which costs much less.";
    trace_probability: f64 = 0.0, live "Share of the requests that are traced although their client does not ask for it, from 0 to 1.";
    tombstone_warn_threshold: u64 = 1_000, live "Tombstones in a read from which it is logged.";
    tombstone_failure_threshold: u64 = 100_000, live "Tombstones in a read from which it fails.";
    #[alias("batch_size_warn_threshold_in_kb", "KiB")]
    batch_size_warn_threshold: Size = Size(5 << 10), live "Size of a batch from which the client is warned.";
    #[alias("batch_size_fail_threshold_in_kb", "KiB")]
    batch_size_fail_threshold: Size = Size(50 << 10), live "Size of a batch from which it is refused.";
    keyspaces_warn_threshold: i32 = -1, live "Guardrail: keyspaces beyond which an ordinary role is warned; -1 for none.";
    keyspaces_fail_threshold: i32 = -1, live "Guardrail: keyspaces beyond which an ordinary role is refused; -1 for none.";
    tables_warn_threshold: i32 = -1, live "Guardrail: tables beyond which an ordinary role is warned; -1 for none.";
    tables_fail_threshold: i32 = -1, live "Guardrail: tables beyond which an ordinary role is refused; -1 for none.";
    columns_per_table_warn_threshold: i32 = -1, live "Guardrail: columns of a table beyond which an ordinary role is warned; -1 for none.";
    columns_per_table_fail_threshold: i32 = -1, live "Guardrail: columns of a table beyond which an ordinary role is refused; -1 for none.";
    secondary_indexes_per_table_warn_threshold: i32 = -1, live "Guardrail: secondary indexes of a table beyond which an ordinary role is warned; -1 for none.";
    secondary_indexes_per_table_fail_threshold: i32 = -1, live "Guardrail: secondary indexes of a table beyond which an ordinary role is refused; -1 for none.";
    materialized_views_per_table_warn_threshold: i32 = -1, live "Guardrail: materialized views of a table beyond which an ordinary role is warned; -1 for none.";
    materialized_views_per_table_fail_threshold: i32 = -1, live "Guardrail: materialized views of a table beyond which an ordinary role is refused; -1 for none.";
    fields_per_udt_warn_threshold: i32 = -1, live "Guardrail: fields of a user type beyond which an ordinary role is warned; -1 for none.";
    fields_per_udt_fail_threshold: i32 = -1, live "Guardrail: fields of a user type beyond which an ordinary role is refused; -1 for none.";
    vector_dimensions_warn_threshold: i32 = -1, live "Guardrail: dimensions of a vector beyond which an ordinary role is warned; -1 for none.";
    vector_dimensions_fail_threshold: i32 = -1, live "Guardrail: dimensions of a vector beyond which an ordinary role is refused; -1 for none.";
    minimum_replication_factor_warn_threshold: i32 = -1, live "Guardrail: least replication factor without a warning for an ordinary role; -1 for none.";
    minimum_replication_factor_fail_threshold: i32 = -1, live "Guardrail: least replication factor that an ordinary role may give; -1 for none.";
    maximum_replication_factor_warn_threshold: i32 = -1, live "Guardrail: greatest replication factor without a warning for an ordinary role; -1 for none.";
    maximum_replication_factor_fail_threshold: i32 = -1, live "Guardrail: greatest replication factor that an ordinary role may give; -1 for none.";
    page_size_warn_threshold: i32 = -1, live "Guardrail: rows of a page that a client asks for beyond which an ordinary role is warned; -1 for none.";
    page_size_fail_threshold: i32 = -1, live "Guardrail: rows of a page that a client asks for beyond which an ordinary role is refused; -1 for none.";
    partition_keys_in_select_warn_threshold: i32 = -1, live "Guardrail: partitions that a SELECT names beyond which an ordinary role is warned; -1 for none.";
    partition_keys_in_select_fail_threshold: i32 = -1, live "Guardrail: partitions that a SELECT names beyond which an ordinary role is refused; -1 for none.";
    in_select_cartesian_product_warn_threshold: i32 = -1, live "Guardrail: keys that the INs of a SELECT come to beyond which an ordinary role is warned; -1 for none.";
    in_select_cartesian_product_fail_threshold: i32 = -1, live "Guardrail: keys that the INs of a SELECT come to beyond which an ordinary role is refused; -1 for none.";
    items_per_collection_warn_threshold: i32 = -1, live "Guardrail: items of a collection that is written beyond which an ordinary role is warned; -1 for none.";
    items_per_collection_fail_threshold: i32 = -1, live "Guardrail: items of a collection that is written beyond which an ordinary role is refused; -1 for none.";
    collection_size_warn_threshold: Option<Size> = None, live "Guardrail: bytes of a collection that is written beyond which an ordinary role is warned.";
    collection_size_fail_threshold: Option<Size> = None, live "Guardrail: bytes of a collection that is written beyond which an ordinary role is refused.";
    partition_size_warn_threshold: Option<Size> = None, live "Guardrail: bytes of a partition beyond which it is named in the log when an SSTable is written.";
    partition_size_fail_threshold: Option<Size> = None, live "Guardrail: bytes of a partition beyond which it is named in the log as an error when an SSTable is written.";
    partition_tombstones_warn_threshold: i32 = -1, live "Guardrail: tombstones of a partition beyond which it is named in the log when an SSTable is written; -1 for none.";
    partition_tombstones_fail_threshold: i32 = -1, live "Guardrail: tombstones of a partition beyond which it is named in the log as an error when an SSTable is written; -1 for none.";
    column_value_size_warn_threshold: Option<Size> = None, live "Guardrail: bytes of a value that is written beyond which an ordinary role is warned.";
    column_value_size_fail_threshold: Option<Size> = None, live "Guardrail: bytes of a value that is written beyond which an ordinary role is refused.";
    column_ascii_value_size_warn_threshold: Option<Size> = None, live "Guardrail: bytes of a value of type ascii that is written beyond which an ordinary role is warned.";
    column_ascii_value_size_fail_threshold: Option<Size> = None, live "Guardrail: bytes of a value of type ascii that is written beyond which an ordinary role is refused.";
    column_blob_value_size_warn_threshold: Option<Size> = None, live "Guardrail: bytes of a value of type blob that is written beyond which an ordinary role is warned.";
    column_blob_value_size_fail_threshold: Option<Size> = None, live "Guardrail: bytes of a value of type blob that is written beyond which an ordinary role is refused.";
    column_text_and_varchar_value_size_warn_threshold: Option<Size> = None, live "Guardrail: bytes of a value of type text that is written beyond which an ordinary role is warned.";
    column_text_and_varchar_value_size_fail_threshold: Option<Size> = None, live "Guardrail: bytes of a value of type text that is written beyond which an ordinary role is refused.";
    sai_string_term_size_warn_threshold: Option<Size> = Some(Size(1 << 10)), live "Guardrail: bytes of a text of a column with an index of SAI beyond which an ordinary role is warned.";
    sai_string_term_size_fail_threshold: Option<Size> = Some(Size(8 << 10)), live "Guardrail: bytes of a text of a column with an index of SAI beyond which an ordinary role is refused.";
    sai_frozen_term_size_warn_threshold: Option<Size> = Some(Size(1 << 10)), live "Guardrail: bytes of a frozen value of a column with an index of SAI beyond which an ordinary role is warned.";
    sai_frozen_term_size_fail_threshold: Option<Size> = Some(Size(8 << 10)), live "Guardrail: bytes of a frozen value of a column with an index of SAI beyond which an ordinary role is refused.";
    sai_vector_term_size_warn_threshold: Option<Size> = Some(Size(16 << 10)), live "Guardrail: bytes of a vector of a column with an index of SAI beyond which an ordinary role is warned.";
    sai_vector_term_size_fail_threshold: Option<Size> = Some(Size(32 << 10)), live "Guardrail: bytes of a vector of a column with an index of SAI beyond which an ordinary role is refused.";
    maximum_timestamp_warn_threshold: Duration = Duration::ZERO, live "Guardrail: time after now of USING TIMESTAMP beyond which an ordinary role is warned; 0 for none.";
    maximum_timestamp_fail_threshold: Duration = Duration::ZERO, live "Guardrail: time after now of USING TIMESTAMP beyond which an ordinary role is refused; 0 for none.";
    minimum_timestamp_warn_threshold: Duration = Duration::ZERO, live "Guardrail: time before now of USING TIMESTAMP beyond which an ordinary role is warned; 0 for none.";
    minimum_timestamp_fail_threshold: Duration = Duration::ZERO, live "Guardrail: time before now of USING TIMESTAMP beyond which an ordinary role is refused; 0 for none.";
    table_properties_warned: String = String::new(), live "Guardrail: options of tables that an ordinary role is warned of.";
    table_properties_disallowed: String = String::new(), live "Guardrail: options of tables that an ordinary role may not use.";
    read_consistency_levels_warned: String = String::new(), live "Guardrail: consistency levels of reads that an ordinary role is warned of.";
    read_consistency_levels_disallowed: String = String::new(), live "Guardrail: consistency levels of reads that an ordinary role may not use.";
    write_consistency_levels_warned: String = String::new(), live "Guardrail: consistency levels of writes that an ordinary role is warned of.";
    write_consistency_levels_disallowed: String = String::new(), live "Guardrail: consistency levels of writes that an ordinary role may not use.";
    user_timestamps_enabled: bool = true, live "Guardrail: whether an ordinary role may use USING TIMESTAMP.";
    alter_table_enabled: bool = true, live "Guardrail: whether an ordinary role may change the columns of tables.";
    group_by_enabled: bool = true, live "Guardrail: whether an ordinary role may use GROUP BY.";
    drop_truncate_table_enabled: bool = true, live "Guardrail: whether an ordinary role may drop and truncate tables.";
    drop_keyspace_enabled: bool = true, live "Guardrail: whether an ordinary role may drop keyspaces.";
    secondary_indexes_enabled: bool = true, live "Guardrail: whether an ordinary role may create secondary indexes.";
    uncompressed_tables_enabled: bool = true, live "Guardrail: whether an ordinary role may create tables without compression.";
    compact_tables_enabled: bool = true, live "Guardrail: whether an ordinary role may create tables with COMPACT STORAGE.";
    read_before_write_list_operations_enabled: bool = true, live "Guardrail: whether an ordinary role may change lists by index or by value, which reads them first.";
    allow_filtering_enabled: bool = true, live "Guardrail: whether an ordinary role may use ALLOW FILTERING.";
    simplestrategy_enabled: bool = true, live "Guardrail: whether an ordinary role may use SimpleStrategy.";
    zero_ttl_on_twcs_warned: bool = true, live "Guardrail: whether an ordinary role is warned of TimeWindowCompactionStrategy with a default_time_to_live of 0.";
    zero_ttl_on_twcs_enabled: bool = true, live "Guardrail: whether an ordinary role may use TimeWindowCompactionStrategy with a default_time_to_live of 0.";
    vector_type_enabled: bool = true, live "Guardrail: whether an ordinary role may use vectors.";
    non_partition_restricted_index_query_enabled: bool = true, live "Guardrail: whether an ordinary role may query an index without naming the partition.";
    intersect_filtering_query_warned: bool = false, live "Guardrail: whether an ordinary role is warned of a query by several columns outside of the key at a level of more than one replica.";
    intersect_filtering_query_enabled: bool = true, live "Guardrail: whether an ordinary role may send such a query.";
    unlogged_batch_across_partitions_warn_threshold: u32 = 10, live "Partitions of an unlogged batch from which the client is warned.";
    #[alias("prepared_statements_cache_size_mb", "MiB")]
    prepared_statements_cache_size: Size = Size::mib(10), "Limit of prepared statements, on each shard.";
    #[alias("enable_materialized_views", "")]
    materialized_views_enabled: bool = true, live "Allow materialized views to be created.";
    audit: String = "none".to_owned(), "ScyllaDB's audit log: none; table, rows of audit.audit_log; syslog; or both, separated by a comma. Not together with audit_logging_options.";
    audit_categories: String = "DCL,AUTH,ADMIN".to_owned(), live "Categories that `audit` writes, of QUERY, DML, DDL, DCL, AUTH, ADMIN.";
    audit_keyspaces: String = String::new(), live "Keyspaces of which `audit` writes the statements (QUERY, DML, DDL); none by default.";
    audit_tables: String = String::new(), live "Tables of which `audit` writes the statements, each as keyspace.table.";
    audit_unix_socket_path: String = "/dev/log".to_owned(), "The socket for datagrams to which `audit` sends for syslog.";
    audit_logging_options_enabled: bool = false, live "Audit log: who did what is written to files, a line for each request.";
    audit_logging_options_logger: String = "FileAuditLogger".to_owned(), "Where the audit log goes: FileAuditLogger, lines of text in files; SyslogAuditLogger, messages to syslog; TableAuditLogger, rows of audit.audit_log.";
    audit_logging_options_syslog_target: String = "/dev/log".to_owned(), "Where SyslogAuditLogger sends: the path of a socket for datagrams, or an address with its port for UDP.";
    audit_logging_options_audit_logs_dir: Option<PathBuf> = None, "Directory of the audit log; beside the data by default.";
    audit_logging_options_included_keyspaces: String = String::new(), live "Keyspaces that are audited, separated by commas; all by default.";
    audit_logging_options_excluded_keyspaces: String = "system,system_schema,system_virtual_schema".to_owned(), live "Keyspaces that are not audited.";
    audit_logging_options_included_categories: String = String::new(), live "Categories that are audited, of QUERY, DML, DDL, DCL, OTHER, AUTH, ERROR, PREPARE; all by default.";
    audit_logging_options_excluded_categories: String = String::new(), live "Categories that are not audited.";
    audit_logging_options_included_users: String = String::new(), live "Roles that are audited; all by default.";
    audit_logging_options_excluded_users: String = String::new(), live "Roles that are not audited.";
    audit_logging_options_max_log_size: Size = Size::mib(16 << 10), live "Bytes of audit logs that a node keeps; older files are removed.";
    #[alias("live_updatable_config_params_changeable_via_cql", "")]
    enable_cql_config_updates: bool = true, "Let superusers change live settings by UPDATE system.config or system_views.settings; anybody where roles are not checked.";
    dynamic_data_masking_enabled: bool = false, "Let columns have masks, which readers without the permission UNMASK see in place of values; without, masks are neither attached nor applied.";
    #[alias("enable_user_defined_functions", "")]
    user_defined_functions_enabled: bool = false, live "Allow user-defined functions and aggregates.";
    #[alias("user_defined_function_fail_timeout", "ms")]
    #[alias("user_defined_function_time_limit_ms", "ms")]
    user_defined_functions_fail_timeout: Duration = Duration::from_millis(1500), live "How long a call of a user-defined function may run.";
    #[alias("user_defined_function_warn_timeout", "ms")]
    user_defined_functions_warn_timeout: Duration = Duration::from_millis(500), live "The client is warned of a call that has run for longer; 0 for never.";
    user_defined_function_allocation_limit_bytes: Size = Size::mib(1), live "Memory of a call of a user-defined function in Lua.";
    wasm_udf_memory_limit: Size = Size::mib(2), live "Memory of a call of a user-defined function in WebAssembly.";
    #[alias("native_transport_max_frame_size_in_mb", "MiB")]
    native_transport_max_frame_size: Size = Size::mib(16), "Largest request.";
    #[alias("native_transport_max_concurrent_requests_in_bytes", "")]
    native_transport_max_request_data_in_flight: Size = Size(0), "Bytes of requests being worked on, of all clients; 0 for a tenth of the memory.";
    #[alias("native_transport_max_concurrent_requests_in_bytes_per_ip", "")]
    native_transport_max_request_data_in_flight_per_ip: Size = Size(0), "Bytes of requests being worked on, of one client address; 0 for a fortieth of the memory.";
    native_transport_max_concurrent_connections: u64 = 0, "Connections of all clients; 0 for no limit.";
    native_transport_max_concurrent_connections_per_ip: u64 = 0, "Connections of one client address; 0 for no limit.";
    #[alias("native_transport_idle_timeout_in_ms", "ms")]
    native_transport_idle_timeout: Duration = Duration::ZERO, "Time after which an idle connection is closed; 0 for never.";
    authenticator: String = "AllowAllAuthenticator".to_owned(), "How clients prove who they are: AllowAllAuthenticator (not at all), PasswordAuthenticator, MutualTlsAuthenticator or CertificateAuthenticator (by their certificates), MutualTlsWithPasswordFallbackAuthenticator or CertificateOrPasswordAuthenticator (either), or LdapAuthenticator (by a password that a directory has).";
    authenticator_validator_class_name: String = "SpiffeCertificateValidator".to_owned(), "How the authenticators of Cassandra find the identity in a certificate: only SpiffeCertificateValidator, the first URI among its alternative names that begins with spiffe://.";
    auth_certificate_role_queries: String = r"SUBJECT CN=([^,\s]+)".to_owned(), "How the authenticators of ScyllaDB find the role in a certificate: on each line SUBJECT or ALTNAME and a regular expression with one group; the first that matches counts.";
    authorizer: String = "AllowAllAuthorizer".to_owned(), "Whether roles need permissions: AllowAllAuthorizer (no) or CassandraAuthorizer.";
    network_authorizer: String = "AllowAllNetworkAuthorizer".to_owned(), "Whether roles may log in only in their datacenters: AllowAllNetworkAuthorizer (no) or CassandraNetworkAuthorizer.";
    cidr_authorizer: String = "AllowAllCIDRAuthorizer".to_owned(), "Whether roles may log in only from their groups of addresses (ACCESS FROM CIDRS): AllowAllCIDRAuthorizer (no) or CassandraCIDRAuthorizer.";
    cidr_authorizer_mode: String = "MONITOR".to_owned(), "What CassandraCIDRAuthorizer does with a login from elsewhere: MONITOR (it is named in the log) or ENFORCE (it is refused).";
    cidr_checks_for_superusers: bool = true, "Whether CassandraCIDRAuthorizer restricts superusers as well.";
    auth_superuser_name: String = "cassandra".to_owned(), "Name of the superuser that is created where there is no role yet.";
    auth_superuser_identity: String = String::new(), "Identity of a certificate with which clients authenticate as that superuser.";
    auth_superuser_salted_password: Secret = Secret::default(), "bcrypt hash of that superuser's password; without it the password is cassandra, and counts from loopback addresses only.";
    auth_bcrypt_gensalt_log2_rounds: u32 = 10, live "Cost of the hashes of passwords, as a power of two: each step doubles the time of a login.";
    role_manager: String = "CassandraRoleManager".to_owned(), "Where the roles of roles are: CassandraRoleManager, or LDAPRoleManager, by the groups that a directory has them in.";
    ldap_authentication_url_template: String = String::new(), "URL of the directory (ldap, ldaps) by which LdapAuthenticator finds the entry of {USER}, whose password counts: by a search with a filter, or by its name.";
    ldap_url_template: String = String::new(), "URL of the directory with the search by which LDAPRoleManager finds the groups of {USER}, which stands in the filter.";
    ldap_attr_role: String = String::new(), "The attribute of a group that has the name of its role.";
    ldap_bind_dn: String = String::new(), "The name by which searches are made; none for anonymous ones.";
    ldap_bind_passwd: Secret = Secret::default(), "Its password.";
    ldap_start_tls: bool = false, "Connections to ldap URLs change to TLS before anything is said.";
    ldap_truststore: Option<PathBuf> = None, "PEM file of the authorities whose certificates the directory must have.";
    ldap_timeout: Duration = Duration::from_secs(5), "How long a conversation with the directory may take.";
    ldap_cache_validity: Duration = Duration::from_secs(60), "How long a password that was right counts without asking again, and how often the groups of users are looked up again; 0 for at each login.";
    auth_failed_logins_max: u32 = 20, "Failed logins in a row after which a shard refuses an address; 0 for no limit.";
    auth_lockout_duration: Duration = Duration::from_secs(30), "How long an address is refused then.";
    partitioner: String = "org.apache.cassandra.dht.Murmur3Partitioner".to_owned(), "Only Murmur3Partitioner.";
    endpoint_snitch: String = "GossipingPropertyFileSnitch".to_owned(), "How the node knows its place: GossipingPropertyFileSnitch (cassandra-rackdc.properties beside torc.yaml, or datacenter and rack) or SimpleSnitch (datacenter1, rack1).";
    #[alias("blocked_reactor_notify_ms", "ms")]
    blocked_reactor_notify: Duration = Duration::from_millis(10), "A task that occupies its shard for longer is logged and counted (scylla_stall_detector_reported); 0 for never.";
    disable_io_uring: bool = false, "Use threads for files instead of io_uring.";
    #[alias("default_log_level", "")]
    log_level: String = "info".to_owned(), live "error, warn, info, debug or trace, also by module (info,engine=debug).";
}

/// A value that an option does not take.
pub(super) fn refused(name: &str, value: impl Into<String>, expected: impl Into<String>) -> ConfigError {
    ConfigError::Value { name: name.to_owned(), value: value.into(), expected: expected.into() }
}

/// Letters by which the name of an environment variable may differ from an option's to be taken for it misspelt.
const MISSPELT_MAX: usize = 2;

/// A shorter time would refuse every request.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);

impl Config {
    /// Gives every option that is 0 for "a part of the memory" its value; `memory` is that of the machine.
    pub fn size_by_memory(&mut self, memory: u64) {
        if self.memory_size.0 == 0 {
            self.memory_size = Size(memory);
        }
        let memory = self.memory_size.0;
        for (size, part) in [
            (&mut self.memtable_space, 4),
            (&mut self.cache_size, 4),
            (&mut self.native_transport_max_request_data_in_flight, 10),
            (&mut self.native_transport_max_request_data_in_flight_per_ip, 40),
        ] {
            if size.0 == 0 {
                *size = Size(memory / part);
            }
        }
    }

    /// Refuses options that cannot work together or are not implemented yet.
    ///
    /// # Errors
    /// [`ConfigError::Value`] and [`ConfigError::Conflict`] with the first option that is out of its range, not built
    /// yet, or contradicts another.
    pub fn check(&self) -> Result<(), ConfigError> {
        let one_of = |name: &str, value: &str, allowed: &[&str]| {
            let short = value.rsplit('.').next().unwrap_or(value);
            if allowed.iter().any(|a| a.eq_ignore_ascii_case(short)) {
                return Ok(());
            }
            Err(refused(name, value, format!("expected {}", allowed.join(" or "))))
        };
        let keyword = |name: &str, value: &Keyword, allowed: &[&str]| match allowed.contains(&&**value) {
            true => Ok(()),
            false => Err(refused(name, &**value, format!("expected {}", allowed.join(" or ")))),
        };
        keyword("commitlog_sync", &self.commitlog_sync, &["periodic", "batch", "group"])?;
        let policies = ["stop", "stop_commit", "ignore", "die"];
        keyword("commit_failure_policy", &self.commit_failure_policy, &policies)?;
        let policies = ["stop", "stop_paranoid", "best_effort", "ignore", "die"];
        keyword("disk_failure_policy", &self.disk_failure_policy, &policies)?;
        self.check_ranges()?;
        self.check_transitional()?;
        one_of("authorizer", &self.authorizer, &["AllowAllAuthorizer", "CassandraAuthorizer"])?;
        let authorizers = ["AllowAllNetworkAuthorizer", "CassandraNetworkAuthorizer"];
        one_of("network_authorizer", &self.network_authorizer, &authorizers)?;
        let authorizers = ["AllowAllCIDRAuthorizer", "CassandraCIDRAuthorizer"];
        one_of("cidr_authorizer", &self.cidr_authorizer, &authorizers)?;
        one_of("cidr_authorizer_mode", &self.cidr_authorizer_mode, &["MONITOR", "ENFORCE"])?;
        self.check_auth()?;
        self.check_functions()?;
        self.check_audit()?;
        one_of("partitioner", &self.partitioner, &["Murmur3Partitioner"])?;
        let snitches = [super::snitch::READS_FILE, super::snitch::SIMPLE];
        one_of("endpoint_snitch", &self.endpoint_snitch, &snitches).map_err(|_| {
            let expected = format!(
                "expected {}; the node asks no cloud for its place: give datacenter and rack, or cassandra-rackdc.properties beside the file",
                snitches.join(" or ")
            );
            refused("endpoint_snitch", &self.endpoint_snitch, expected)
        })?;
        keyword(
            "server_encryption_options_internode_encryption",
            &self.server_encryption_options_internode_encryption,
            &["none", "all", "dc", "rack"],
        )?;
        self.check_encryption()?;
        self.check_administration()?;
        self.check_alternator()?;
        keyword("internode_compression", &self.internode_compression, &["all", "dc", "none"])?;
        keyword("internode_compressor", &self.internode_compressor, &["lz4", "zstd"])?;
        self.check_cluster()?;
        self.guardrails()?;
        if self.commitlog_segment_size < Size::mib(1) || self.commitlog_segment_size > Size::mib(1024) {
            return Err(ConfigError::Conflict(format!(
                "commitlog_segment_size is {}, but must be from 1MiB to 1GiB",
                self.commitlog_segment_size.show()
            )));
        }
        if self.batch_size_fail_threshold < self.batch_size_warn_threshold {
            return Err(ConfigError::Conflict(
                "batch_size_fail_threshold must not be below batch_size_warn_threshold".to_owned(),
            ));
        }
        if self.tombstone_failure_threshold < self.tombstone_warn_threshold {
            return Err(ConfigError::Conflict(
                "tombstone_failure_threshold must not be below tombstone_warn_threshold".to_owned(),
            ));
        }
        Ok(())
    }

    /// A node that authenticates CQL clients does not serve others without.
    fn check_alternator(&self) -> Result<(), ConfigError> {
        if dynamo::Isolation::from_name(&self.alternator_write_isolation).is_none() {
            let expected = "expected always_use_lwt, only_rmw_uses_lwt, forbid_rmw or unsafe_rmw";
            return Err(refused("alternator_write_isolation", &self.alternator_write_isolation, expected));
        }
        let conflict = |text: &str| Err(ConfigError::Conflict(text.to_owned()));
        if self.alternator_ttl_period.is_zero() {
            return conflict("alternator_ttl_period must be longer than nothing");
        }
        if self.alternator_export_directory.as_ref().is_some_and(|directory| !directory.is_absolute()) {
            return conflict("alternator_export_directory must be an absolute path");
        }
        self.check_export_endpoint()?;
        if self.alternator_https_port != 0 && self.alternator_https_port == self.alternator_port {
            return conflict("alternator_https_port and alternator_port are the same: no port serves both");
        }
        if self.has_alternator() && !self.asks_nobody() && !self.alternator_enforce_authorization {
            return conflict(
                "alternator_port and alternator_https_port with an authenticator would serve everybody: set alternator_enforce_authorization, too",
            );
        }
        Ok(())
    }

    /// The names in `http_host_names`.
    pub(crate) fn host_names(&self) -> impl Iterator<Item = String> {
        let names = self.http_host_names.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.map(str::to_owned)
    }

    /// Whether the DynamoDB API has a port.
    pub fn has_alternator(&self) -> bool {
        self.alternator_port != 0 || self.alternator_https_port != 0
    }

    /// The address of a port of the DynamoDB API; none for the port 0.
    pub(crate) fn alternator_on(&self, port: u16) -> Option<SocketAddr> {
        let address = self.alternator_address.unwrap_or(self.rpc_address);
        (port != 0).then(|| SocketAddr::new(address, port))
    }

    fn check_functions(&self) -> Result<(), ConfigError> {
        let fail = self.user_defined_functions_fail_timeout;
        if !(Duration::from_millis(1)..=Duration::from_secs(3600)).contains(&fail) {
            let expected = "expected a time from 1ms to 1h";
            return Err(refused("user_defined_functions_fail_timeout", format!("{fail:?}"), expected));
        }
        for (name, Size(bytes)) in [
            (
                "user_defined_function_allocation_limit_bytes",
                self.user_defined_function_allocation_limit_bytes,
            ),
            ("wasm_udf_memory_limit", self.wasm_udf_memory_limit),
        ] {
            if !(64 << 10..=256 << 20).contains(&bytes) {
                let expected = "expected a size from 64 KiB to 256 MiB";
                return Err(refused(name, bytes.to_string(), expected));
            }
        }
        Ok(())
    }

    /// Whether clients need not authenticate.
    pub fn asks_nobody(&self) -> bool {
        self.authenticator
            .rsplit('.')
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case("AllowAllAuthenticator"))
    }

    fn check_ranges(&self) -> Result<(), ConfigError> {
        let within = |name: &str, value: u64, min: u64, max: u64| {
            if (min..=max).contains(&value) {
                return Ok(());
            }
            Err(refused(name, value.to_string(), format!("expected a number from {min} to {max}")))
        };
        if !(0.0..=1.0).contains(&self.trace_probability) {
            let value = self.trace_probability.to_string();
            return Err(refused("trace_probability", value, "expected a number from 0 to 1"));
        }
        let ttl = &self.slow_query_tracing_ttl;
        if !(1..=u64::from(schema::TTL_MAX)).contains(&ttl.as_secs()) {
            let expected = format!("expected from 1s to {}s", schema::TTL_MAX);
            return Err(refused("slow_query_tracing_ttl", ttl.show(), expected));
        }
        for (name, timeout) in [
            ("read_request_timeout", self.read_request_timeout),
            ("range_request_timeout", self.range_request_timeout),
            ("write_request_timeout", self.write_request_timeout),
            ("counter_write_request_timeout", self.counter_write_request_timeout),
            ("cas_contention_timeout", self.cas_contention_timeout),
            ("truncate_request_timeout", self.truncate_request_timeout),
            ("alternator_timeout", self.alternator_timeout),
        ] {
            let is_none = name == "alternator_timeout" && timeout.is_zero();
            if timeout < TIMEOUT_MIN && !is_none {
                return Err(refused(
                    name,
                    timeout.show(),
                    format!("expected at least {}", TIMEOUT_MIN.show()),
                ));
            }
        }
        within("num_tokens", self.num_tokens.into(), 1, 1024)?;
        within("shards", self.shards.into(), 0, 1024)?;
        let level = self.alternator_response_gzip_compression_level;
        within("alternator_response_gzip_compression_level", level.into(), 0, 9)?;
        within(
            "alternator_max_items_in_batch_write",
            self.alternator_max_items_in_batch_write.into(),
            1,
            1000,
        )?;
        within("concurrent_compactors", self.concurrent_compactors.into(), 1, 128)?;
        within("native_transport_port", self.native_transport_port.into(), 1, 65535)?;
        within("tombstone_failure_threshold", self.tombstone_failure_threshold, 1, u64::MAX)?;
        let at_least = |name: &str, value: Size, min: Size| {
            if value.0 == 0 || value >= min {
                return Ok(());
            }
            Err(refused(name, value.show(), format!("expected at least {}", min.show())))
        };
        at_least("memory_size", self.memory_size, Size::mib(64))?;
        at_least("memtable_space", self.memtable_space, Size::mib(1))?;
        at_least("native_transport_max_frame_size", self.native_transport_max_frame_size, Size(256 << 10))?;
        if self.data_file_directories.to_string_lossy().contains(',') {
            let expected = "expected one directory; put several disks together with RAID or LVM";
            return Err(refused("data_file_directories", self.data_file_directories.show(), expected));
        }
        // Records of edits name files a line each.
        if self.data_file_directories.to_string_lossy().contains(char::is_control) {
            let expected = "expected a path without line breaks and other control characters";
            return Err(refused("data_file_directories", self.data_file_directories.show(), expected));
        }
        Ok(())
    }

    /// Sets the options that environment variables name: `TORC_` and the option's name, or an alias, in capitals.
    ///
    /// # Errors
    /// As [`Config::set`], also of a variable whose name is nearly that of an option: it would be left out without a word.
    pub fn set_from_environment(
        &mut self,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Result<(), ConfigError> {
        for (variable, value) in variables {
            if let Some(name) = variable.strip_prefix("TORC_") {
                let name = name.to_ascii_lowercase();
                match Self::option(&name) {
                    Ok(_) => self.set(&name, &value)?,
                    // Other variables share the prefix: of the development scripts, or of a Kubernetes service named torc.
                    Err(ConfigError::Unknown { nearest: Some(option), .. })
                        if super::distance(&name, option) <= MISSPELT_MAX =>
                    {
                        return Err(Self::unknown(&name));
                    }
                    Err(_) => {}
                }
            }
        }
        Ok(())
    }
}
