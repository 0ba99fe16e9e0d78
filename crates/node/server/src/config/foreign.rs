//! Options of Cassandra's and ScyllaDB's configuration files that do nothing here: a file that served there is read all the
//! same, and the node says which of its lines have no effect. Options that would be unsafe to ignore are refused with the reason.

/// Options of a file that have no effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// They adjust parts that do not exist here: threads, pools, garbage collection, caches of another design.
    pub of_no_use: Vec<String>,
    /// Options of features that are not built.
    pub not_built: Vec<String>,
}

/// The treatment of an option that is no option here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It adjusts a part that does not exist here.
    NoUse,
    /// Its feature is not built, and a node without it is as safe.
    NotBuilt,
    /// It may have the only value that is supported (in any capitals, a class with or without its package); any other is refused.
    Only(&'static [&'static str]),
    /// A group of options that is refused where its `enabled` is true, with the alternative: a node without it is not as safe.
    UnlessEnabled(&'static str),
    /// It is refused, with the alternative.
    Refused(&'static str),
}

use Standing::{NoUse, NotBuilt, Only, Refused, UnlessEnabled};

/// The treatment of an option of that name; none when it is unknown.
pub(super) fn standing(name: &str) -> Option<Standing> {
    let bare = without_unit(name);
    if let Some((_, standing)) = STANDINGS.iter().find(|(known, _)| *known == bare || *known == name) {
        return Some(*standing);
    }
    if NO_USE.contains(&bare) {
        return Some(NoUse);
    }
    let part = |group: &str| bare.strip_prefix(group);
    if let Some(part) = part("server_encryption_options_").or_else(|| part("client_encryption_options_")) {
        return STORES.contains(&part).then_some(NoUse);
    }
    if let Some(part) = part("alternator_encryption_options_") {
        // The list of ciphers is rustls's, and sessions are not resumed.
        return ["priority_string", "enable_session_tickets"].contains(&part).then_some(NoUse);
    }
    let ends = |ends: &[&str]| ends.iter().any(|end| bare.ends_with(end));
    let begins = |begins: &[&str]| begins.iter().any(|begin| bare.starts_with(begin));
    if ends(&GUARDRAILS) || begins(&["alternator_", "audit_", "full_query_logging_", "restrict_"]) {
        return Some(NotBuilt);
    }
    begins(&[
        "dynamic_snitch_",
        "internode_application_",
        "memtable_",
        "cms_",
        "reader_concurrency_semaphore_",
    ])
    .then_some(NoUse)
}

/// An old spelling has its unit in its name.
fn without_unit(name: &str) -> &str {
    const UNITS: [&str; 9] = [
        "_in_ms",
        "_in_kb",
        "_in_mb",
        "_in_bytes",
        "_in_seconds",
        "_in_secs",
        "_in_minutes",
        "_megabits_per_sec",
        "_mb_per_sec",
    ];
    UNITS.iter().find_map(|unit| name.strip_suffix(unit)).unwrap_or(name)
}

/// The suffixes of Cassandra's guardrails.
const GUARDRAILS: [&str; 6] =
    ["_warn_threshold", "_fail_threshold", "_warned", "_disallowed", "_warning_threshold", "_ignored"];

const ENCRYPTION: &str = "files are not encrypted; encrypt their file system";
const ADDRESS: &str = "interfaces are not looked up; give the address with listen_address or rpc_address";

const STANDINGS: &[(&str, Standing)] = &[
    ("azure_hosts", NotBuilt),
    ("cdc_enabled", Only(&["false"])),
    ("commitlog_compression", NotBuilt),
    ("compaction_enforce_min_threshold", NotBuilt),
    ("default_compaction", NotBuilt),
    ("enable_cache", Only(&["true"])),
    ("enable_commitlog", Only(&["true"])),
    ("enable_sasi_indexes", NotBuilt),
    ("enable_tablets", NotBuilt),
    ("enable_transient_replication", Only(&["false"])),
    ("full_query_logging_options", NotBuilt),
    ("gcp_hosts", NotBuilt),
    ("hinted_handoff_disabled_datacenters", NotBuilt),
    ("ideal_consistency_level", NotBuilt),
    ("inter_dc_stream_throughput_outbound", NotBuilt),
    ("internode_authenticator", Only(&["AllowAllInternodeAuthenticator"])),
    ("kmip_hosts", NotBuilt),
    ("kms_hosts", NotBuilt),
    ("listen_interface", Refused(ADDRESS)),
    ("maintenance_socket", Only(&["ignore"])),
    ("max_clustering_key_restrictions_per_query", NotBuilt),
    ("max_concurrent_requests_per_shard", NotBuilt),
    ("max_partition_key_restrictions_per_query", NotBuilt),
    ("max_value_size", NotBuilt),
    ("native_transport_allow_older_protocols", Only(&["true"])),
    ("native_transport_rate_limiting_enabled", Only(&["false"])),
    ("object_storage_endpoints", NotBuilt),
    ("prometheus_prefix", Only(&["scylla"])),
    ("query_page_size", NotBuilt),
    ("query_tombstone_page_limit", NotBuilt),
    ("replication_strategy_fail_list", NotBuilt),
    ("replication_strategy_warn_list", NotBuilt),
    ("rf_rack_valid_keyspaces", NotBuilt),
    ("rpc_interface", Refused(ADDRESS)),
    ("sasi_indexes_enabled", NotBuilt),
    ("scripted_user_defined_functions_enabled", NotBuilt),
    ("server_encryption_options_optional", Only(&["false"])),
    ("snapshot_before_compaction", NotBuilt),
    ("sstable_compression_user_table_options", NotBuilt),
    ("start_native_transport", Only(&["true"])),
    (
        "stream_throughput_outbound_megabits_per_sec",
        Refused("give stream_throughput_outbound, as in 24MiB/s"),
    ),
    ("strict_allow_filtering", NotBuilt),
    ("system_info_encryption", UnlessEnabled(ENCRYPTION)),
    ("tablets_mode_for_new_keyspaces", NotBuilt),
    ("transient_replication_enabled", Only(&["false"])),
    ("transparent_data_encryption_options", UnlessEnabled(ENCRYPTION)),
    ("twcs_max_window_count", NotBuilt),
    ("user_info_encryption", UnlessEnabled(ENCRYPTION)),
    ("workdir", Refused("give data_file_directories, commitlog_directory and hints_directory")),
];

/// Options of encryption for Java's stores; check names the PEM files that are needed instead.
const STORES: &[&str] = &[
    "accepted_protocols",
    "algorithm",
    "cipher_suites",
    "enable_legacy_ssl_storage_port",
    "keystore",
    "keystore_password",
    "legacy_ssl_storage_port_enabled",
    "outbound_keystore",
    "outbound_keystore_password",
    "protocol",
    "ssl_context_factory",
    "store_type",
    "truststore_password",
];

/// `ssl_storage_port` is among them: `storage_port` takes connections with TLS too.
const NO_USE: &[&str] = &[
    "allocate_tokens_for_keyspace",
    "allocate_tokens_for_local_replication_factor",
    "allowed_repair_based_node_ops",
    "api_doc_dir",
    "api_ui_dir",
    "auth_read_consistency_level",
    "auth_write_consistency_level",
    "auto_hints_cleanup_enabled",
    "auto_optimise_full_repair_streams",
    "auto_optimise_inc_repair_streams",
    "auto_optimise_preview_repair_streams",
    "automatic_sstable_upgrade",
    "available_processors",
    "back_pressure_enabled",
    "back_pressure_strategy",
    "batchlog_endpoint_strategy",
    "batchlog_replay_throttle",
    "buffer_pool_use_heap_if_exhausted",
    "cache_load_timeout",
    "cdc_block_writes",
    "cdc_free_space_check_interval",
    "cdc_on_repair_enabled",
    "cdc_raw_directory",
    "cdc_total_space",
    "column_index_cache_size",
    "column_index_size",
    "commitlog_disk_access_mode",
    "commitlog_max_compression_buffers_in_pool",
    "commitlog_sync_batch_window",
    "compaction_static_shares",
    "concurrent_counter_writes",
    "concurrent_index_builders",
    "concurrent_materialized_view_builders",
    "concurrent_materialized_view_writes",
    "concurrent_merkle_tree_requests",
    "concurrent_reads",
    "concurrent_validations",
    "concurrent_writes",
    "consistent_cluster_management",
    "corrupted_tombstone_strategy",
    "counter_cache_keys_to_save",
    "counter_cache_save_period",
    "counter_cache_size",
    "credentials_cache_active_update",
    "credentials_cache_max_entries",
    "credentials_update_interval",
    "credentials_validity",
    "cross_node_timeout",
    "crypto_provider",
    "default_secondary_index",
    "default_secondary_index_enabled",
    "defragment_memory_on_idle",
    "developer_mode",
    "diagnostic_events_enabled",
    "disk_access_mode",
    "disk_optimization_estimate_percentile",
    "disk_optimization_page_cross_chance",
    "disk_optimization_strategy",
    "drop_compact_storage_enabled",
    "dump_heap_on_uncaught_exception",
    "dynamic_snitch",
    "enable_drop_compact_storage",
    "enable_repair_based_node_ops",
    "experimental_features",
    "failure_detector_timeout",
    "file_cache_enabled",
    "file_cache_round_up",
    "file_cache_size",
    "flush_compression",
    "force_schema_commit_log",
    "gc_log_threshold",
    "heap_dump_path",
    "hints_compression",
    "index_summary_capacity",
    "index_summary_resize_interval",
    "initial_range_tombstone_list_allocation_size",
    "inter_dc_tcp_nodelay",
    "internode_max_message_size",
    "internode_recv_buff_size",
    "internode_send_buff_size",
    "internode_socket_receive_buffer_size",
    "internode_socket_send_buffer_size",
    "internode_streaming_tcp_user_timeout",
    "internode_tcp_connect_timeout",
    "internode_tcp_user_timeout",
    "internode_timeout",
    "key_cache_keys_to_save",
    "key_cache_migrate_during_compaction",
    "key_cache_save_period",
    "key_cache_size",
    "listen_interface_prefer_ipv6",
    "listen_on_broadcast_address",
    "log_to_stdout",
    "log_to_syslog",
    "logger_log_level",
    "max_concurrent_automatic_sstable_upgrades",
    "max_memory_for_unlimited_query_hard_limit",
    "max_memory_for_unlimited_query_soft_limit",
    "max_space_usable_for_compactions_in_percentage",
    "max_streaming_retries",
    "memtable",
    "min_free_space_per_drive",
    "murmur3_partitioner_ignore_msb_bits",
    "native_transport_flush_in_batches_legacy",
    "native_transport_max_negotiable_protocol_version",
    "native_transport_max_threads",
    "native_transport_receive_queue_capacity",
    "networking_cache_size",
    "otc_backlog_expiration_interval",
    "otc_coalescing_enough_coalesced_messages",
    "otc_coalescing_strategy",
    "otc_coalescing_window_us",
    "periodic_commitlog_sync_lag_block",
    "permissions_cache_active_update",
    "permissions_cache_max_entries",
    "permissions_update_interval",
    "permissions_validity",
    "prometheus_allow_protobuf",
    "range_tombstone_list_growth_factor",
    "repair_command_pool_full_strategy",
    "repair_command_pool_size",
    "repair_session_max_tree_depth",
    "repaired_data_tracking_for_partition_reads_enabled",
    "repaired_data_tracking_for_range_reads_enabled",
    "replica_filtering_protection",
    "report_unconfirmed_repaired_data_mismatches",
    "request_scheduler",
    "ring_delay_ms",
    "roles_cache_active_update",
    "roles_cache_max_entries",
    "roles_update_interval",
    "roles_validity",
    "row_cache_class_name",
    "row_cache_keys_to_save",
    "row_cache_save_period",
    "rpc_interface_prefer_ipv6",
    "rpc_keepalive",
    "rpc_max_threads",
    "rpc_min_threads",
    "rpc_port",
    "rpc_server_type",
    "saved_caches_directory",
    "schema_commitlog_directory",
    "schema_commitlog_segment_size",
    "service_levels_interval_ms",
    "snapshot_links_per_second",
    "ssl_storage_port",
    "sstable",
    "sstable_format",
    "sstable_preemptive_open_interval",
    "sstable_read_rate_persistence_enabled",
    "start_rpc",
    "startup_checks",
    "storage_compatibility_mode",
    "stream_entire_sstables",
    "stream_transfer_task_timeout",
    "streaming_connections_per_host",
    "streaming_keep_alive_period",
    "streaming_socket_timeout",
    "strict_is_not_null_in_views",
    "tablets_initial_scale_factor",
    "task_ttl",
    "thrift_framed_transport_size",
    "thrift_max_message_length",
    "trace_type_query_ttl",
    "trace_type_repair_ttl",
    "tracetype_query_ttl",
    "tracetype_repair_ttl",
    "transfer_hints_on_decommission",
    "traverse_auth_from_root",
    "trickle_fsync",
    "trickle_fsync_interval",
    "use_deterministic_table_id",
    "use_offheap_merkle_trees",
    "user_defined_functions_threads_enabled",
    "user_task_ttl",
    "uuid_sstable_identifiers_enabled",
    "view_hints_directory",
    "windows_timer_interval",
];

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    #[test]
    fn no_option_of_ours_is_left_out() {
        for option in Config::OPTIONS {
            assert!(!NO_USE.contains(&option.name), "{}", option.name);
            assert!(!STANDINGS.iter().any(|(name, _)| *name == option.name), "{}", option.name);
        }
        assert!(STANDINGS.is_sorted_by_key(|(name, _)| *name));
    }

    #[test]
    fn old_spellings_and_families_of_names_are_known() {
        assert_eq!(standing("roles_validity_in_ms"), Some(NoUse));
        assert_eq!(standing("key_cache_size_in_mb"), Some(NoUse));
        assert_eq!(standing("dynamic_snitch_update_interval_in_ms"), Some(NoUse));
        assert_eq!(standing("sai_sstable_indexes_per_query_warn_threshold"), Some(NotBuilt));
        assert_eq!(standing("write_consistency_levels_disallowed"), Some(NotBuilt));
        assert_eq!(standing("server_encryption_options_keystore_password"), Some(NoUse));
        assert_eq!(standing("server_encryption_options_keystoer"), None);
        assert_eq!(standing("frobnicate"), None);
    }
}
