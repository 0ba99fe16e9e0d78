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
        "cms_",
        "disk_space_monitor_",
        "dynamic_snitch_",
        "internode_application_",
        "internode_compression_",
        "logstor_",
        "memtable_",
        "reader_concurrency_semaphore_",
        "rpc_dict_training_",
        "sstable_compression_dictionaries_",
        "vector_store_",
        "view_update_reader_concurrency_semaphore_",
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
    ("auto_snapshot_ttl", NotBuilt),
    ("azure_hosts", NotBuilt),
    ("cdc_enabled", Only(&["false"])),
    ("commitlog_compression", NotBuilt),
    ("compaction_enforce_min_threshold", NotBuilt),
    ("cql_duplicate_bind_variable_names_refer_to_same_variable", NotBuilt),
    ("cql_in_bind_variable_name_uses_uppercase_operator", NotBuilt),
    ("critical_disk_utilization_level", NotBuilt),
    ("default_compaction", NotBuilt),
    ("enable_cache", Only(&["true"])),
    ("enable_cassio_compatibility", NotBuilt),
    ("enable_commitlog", Only(&["true"])),
    ("enable_dangerous_direct_import_of_cassandra_counters", NotBuilt),
    ("enable_in_memory_data_store", Only(&["false"])),
    ("enable_logstor", NotBuilt),
    ("enable_sasi_indexes", NotBuilt),
    ("enable_tablets", NotBuilt),
    ("enable_tablets_by_default", NotBuilt),
    ("enable_transient_replication", Only(&["false"])),
    ("enforce_rack_list", NotBuilt),
    ("error_injections_at_startup", NotBuilt),
    ("full_query_logging_options", NotBuilt),
    ("gcp_hosts", NotBuilt),
    ("hinted_handoff_disabled_datacenters", NotBuilt),
    ("ideal_consistency_level", NotBuilt),
    ("ignore_component_digest_mismatch", NotBuilt),
    ("inter_dc_stream_throughput_outbound", NotBuilt),
    ("internode_authenticator", Only(&["AllowAllInternodeAuthenticator"])),
    ("kmip_hosts", NotBuilt),
    ("kms_hosts", NotBuilt),
    ("large_cell_fail_threshold_mb", NotBuilt),
    ("large_data_cql_warnings", NotBuilt),
    ("large_partition_fail_threshold_mb", NotBuilt),
    ("large_row_fail_threshold_mb", NotBuilt),
    ("listen_interface", Refused(ADDRESS)),
    ("maintenance_io_throughput_mb_per_sec", NotBuilt),
    ("maintenance_mode", Only(&["false"])),
    ("maintenance_socket", NotBuilt),
    ("max_clustering_key_restrictions_per_query", NotBuilt),
    ("max_concurrent_requests_per_shard", NotBuilt),
    ("max_partition_key_restrictions_per_query", NotBuilt),
    ("max_relations_in_where_clause", NotBuilt),
    ("max_value_size", NotBuilt),
    ("minimum_keyspace_rf", NotBuilt),
    ("native_shard_aware_transport_port_proxy_protocol", Only(&["0"])),
    ("native_shard_aware_transport_port_ssl_proxy_protocol", Only(&["0"])),
    ("native_transport_allow_older_protocols", Only(&["true"])),
    ("native_transport_port_proxy_protocol", Only(&["0"])),
    ("native_transport_port_ssl_proxy_protocol", Only(&["0"])),
    ("native_transport_rate_limiting_enabled", Only(&["false"])),
    ("object_storage_config_file", NotBuilt),
    ("object_storage_endpoints", NotBuilt),
    ("override_decommission", Only(&["false"])),
    ("prometheus_prefix", Only(&["scylla"])),
    ("query_page_size", NotBuilt),
    ("query_tombstone_page_limit", NotBuilt),
    ("recovery_leader", NotBuilt),
    ("relabel_config_file", NotBuilt),
    ("replication_strategy_fail_list", NotBuilt),
    ("replication_strategy_warn_list", NotBuilt),
    ("rf_rack_valid_keyspaces", NotBuilt),
    ("rpc_interface", Refused(ADDRESS)),
    ("sasi_indexes_enabled", NotBuilt),
    ("saslauthd_socket_path", NotBuilt),
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
    ("unsafe_ignore_truncation_record", Only(&["false"])),
    ("user_info_encryption", UnlessEnabled(ENCRYPTION)),
    ("view_building", Only(&["true"])),
    ("volatile_system_keyspace_for_testing", Only(&["false"])),
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
    "abort_on_ebadf",
    "abort_on_internal_error",
    "abort_on_lsa_bad_alloc",
    "allocate_tokens_for_keyspace",
    "allocate_tokens_for_local_replication_factor",
    "allowed_repair_based_node_ops",
    "api_doc_dir",
    "api_ui_dir",
    "auth_read_consistency_level",
    "auth_write_consistency_level",
    "auto_adjust_flush_quota",
    "auto_hints_cleanup_enabled",
    "auto_optimise_full_repair_streams",
    "auto_optimise_inc_repair_streams",
    "auto_optimise_preview_repair_streams",
    "automatic_sstable_upgrade",
    "available_processors",
    "back_pressure_enabled",
    "back_pressure_strategy",
    "background_writer_scheduling_quota",
    "backup_io_throughput",
    "batchlog_endpoint_strategy",
    "batchlog_replay_cleanup_after_replays",
    "batchlog_replay_throttle",
    "buffer_pool_use_heap_if_exhausted",
    "cache_hit_rate_read_balancing",
    "cache_index_pages",
    "cache_load_timeout",
    "cdc_block_writes",
    "cdc_dont_rewrite_streams",
    "cdc_free_space_check_interval",
    "cdc_on_repair_enabled",
    "cdc_raw_directory",
    "cdc_total_space",
    "column_index_auto_scale_threshold",
    "column_index_cache_size",
    "column_index_size",
    "commitlog_disk_access_mode",
    "commitlog_flush_threshold",
    "commitlog_max_compression_buffers_in_pool",
    "commitlog_max_data_lifetime",
    "commitlog_reuse_segments",
    "commitlog_sync_batch_window",
    "commitlog_use_fragmented_entries",
    "commitlog_use_hard_size_limit",
    "commitlog_use_o_dsync",
    "compaction_flush_all_tables_before_major_seconds",
    "compaction_large_data_records_per_sstable",
    "components_memory_reclaim_threshold",
    "concurrent_counter_writes",
    "concurrent_index_builders",
    "concurrent_materialized_view_builders",
    "concurrent_materialized_view_writes",
    "concurrent_merkle_tree_requests",
    "concurrent_reads",
    "concurrent_validations",
    "concurrent_writes",
    "consistent_cluster_management",
    "consistent_rangemovement",
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
    "data_file_capacity",
    "default_secondary_index",
    "default_secondary_index_enabled",
    "defragment_memory_on_idle",
    "developer_mode",
    "diagnostic_events_enabled",
    "direct_failure_detector_ping_timeout",
    "disk_access_mode",
    "disk_optimization_estimate_percentile",
    "disk_optimization_page_cross_chance",
    "disk_optimization_strategy",
    "drop_compact_storage_enabled",
    "dump_heap_on_uncaught_exception",
    "dynamic_snitch",
    "enable_3_1_0_compatibility_mode",
    "enable_compacting_data_for_streaming_and_repair",
    "enable_create_table_with_compact_storage",
    "enable_deprecated_partitioners",
    "enable_drop_compact_storage",
    "enable_file_stream",
    "enable_ipv6_dns_lookup",
    "enable_keyspace_column_family_metrics",
    "enable_node_aggregated_table_metrics",
    "enable_optimized_reversed_reads",
    "enable_parallelized_aggregation",
    "enable_repair_based_node_ops",
    "enable_shard_aware_drivers",
    "enable_small_table_optimization_for_rbno",
    "enable_sstable_data_integrity_check",
    "enable_sstable_key_validation",
    "enable_sstables_mc_format",
    "enable_sstables_md_format",
    "enable_tombstone_gc_for_streaming_and_repair",
    "experimental",
    "experimental_features",
    "failure_detector_timeout",
    "fd_initial_value_ms",
    "fd_max_interval_ms",
    "file_cache_enabled",
    "file_cache_round_up",
    "file_cache_size",
    "flush_compression",
    "flush_schema_tables_after_modification",
    "force_capacity_based_balancing",
    "force_gossip_generation",
    "force_gossip_topology_changes",
    "force_schema_commit_log",
    "gc_log_threshold",
    "group0_raft_op_timeout",
    "group0_tombstone_gc_refresh_interval",
    "heap_dump_path",
    "hints_compression",
    "index_cache_fraction",
    "index_summary_capacity",
    "index_summary_resize_interval",
    "initial_range_tombstone_list_allocation_size",
    "initial_sstable_loading_concurrency",
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
    "large_memory_allocation_warning_threshold",
    "listen_interface_prefer_ipv6",
    "listen_on_broadcast_address",
    "load_ring_state",
    "log_to_stdout",
    "log_to_syslog",
    "logger_log_level",
    "lsa_reclamation_step",
    "maintenance_reader_concurrency_semaphore_count_limit",
    "maintenance_socket_group",
    "max_concurrent_automatic_sstable_upgrades",
    "max_hinted_handoff_concurrency",
    "max_memory_for_unlimited_query_hard_limit",
    "max_memory_for_unlimited_query_soft_limit",
    "max_space_usable_for_compactions_in_percentage",
    "max_streaming_retries",
    "memory_allocator",
    "memtable",
    "min_free_space_per_drive",
    "minimal_tablet_size_for_balancing",
    "murmur3_partitioner_ignore_msb_bits",
    "native_transport_flush_in_batches_legacy",
    "native_transport_max_negotiable_protocol_version",
    "native_transport_max_threads",
    "native_transport_receive_queue_capacity",
    "networking_cache_size",
    "nodeops_heartbeat_interval_seconds",
    "nodeops_watchdog_timeout_seconds",
    "object_storage_connections_per_shard",
    "otc_backlog_expiration_interval",
    "otc_coalescing_enough_coalesced_messages",
    "otc_coalescing_strategy",
    "otc_coalescing_window_us",
    "periodic_commitlog_sync_lag_block",
    "permissions_cache_active_update",
    "permissions_cache_max_entries",
    "permissions_update_interval",
    "permissions_validity",
    "preheat_kernel_page_cache",
    "prometheus_allow_protobuf",
    "range_tombstone_list_growth_factor",
    "repair_command_pool_full_strategy",
    "repair_command_pool_size",
    "repair_hints_batchlog_flush_cache_time",
    "repair_multishard_reader_buffer_hint_size",
    "repair_multishard_reader_enable_read_ahead",
    "repair_partition_count_estimation_ratio",
    "repair_session_max_tree_depth",
    "repaired_data_tracking_for_partition_reads_enabled",
    "repaired_data_tracking_for_range_reads_enabled",
    "replica_filtering_protection",
    "report_unconfirmed_repaired_data_mismatches",
    "request_scheduler",
    "request_scheduler_id",
    "request_scheduler_options",
    "request_timeout_on_shutdown",
    "reversed_reads_auto_bypass_cache",
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
    "sanitizer_report_backtrace",
    "saved_caches_directory",
    "schema_commitlog_directory",
    "schema_commitlog_segment_size",
    "schema_registry_grace_period",
    "select_internal_page_size",
    "service_levels_interval_ms",
    "shadow_round_ms",
    "shutdown_announce",
    "size_based_balance_threshold_percentage",
    "skip_wait_for_gossip_to_settle",
    "small_table_optimization_for_rbno_max_table_size",
    "snapshot_links_per_second",
    "ssl_storage_port",
    "sstable",
    "sstable_format",
    "sstable_preemptive_open_interval",
    "sstable_read_rate_persistence_enabled",
    "sstable_summary_max_partitions_per_page",
    "sstable_summary_ratio",
    "start_rpc",
    "startup_checks",
    "storage_compatibility_mode",
    "stream_entire_sstables",
    "stream_plan_ranges_fraction",
    "stream_transfer_task_timeout",
    "streaming_connections_per_host",
    "streaming_keep_alive_period",
    "streaming_socket_timeout",
    "strict_is_not_null_in_views",
    "system_key_directory",
    "table_digest_insensitive_to_expiry",
    "tablet_load_stats_refresh_interval",
    "tablet_streaming_read_concurrency_per_shard",
    "tablet_streaming_write_concurrency_per_shard",
    "tablets_initial_scale_factor",
    "tablets_per_shard_goal",
    "target_tablet_size",
    "task_ttl",
    "thrift_framed_transport_size",
    "thrift_max_message_length",
    "topology_barrier_stall_detector_threshold_seconds",
    "trace_type_query_ttl",
    "trace_type_repair_ttl",
    "tracetype_query_ttl",
    "tracetype_repair_ttl",
    "transfer_hints_on_decommission",
    "traverse_auth_from_root",
    "trickle_fsync",
    "trickle_fsync_interval",
    "uninitialized_connections_semaphore_cpu_concurrency",
    "unspooled_dirty_soft_limit",
    "use_deterministic_table_id",
    "use_offheap_merkle_trees",
    "user_defined_function_contiguous_allocation_limit_bytes",
    "user_defined_functions_threads_enabled",
    "user_task_ttl",
    "uuid_sstable_identifiers_enabled",
    "view_flow_control_delay_limit",
    "view_hints_directory",
    "virtual_dirty_soft_limit",
    "wait_for_hint_replay_before_repair",
    "wasm_cache_instance_size_limit",
    "wasm_cache_memory_fraction",
    "wasm_cache_timeout",
    "wasm_udf_total_fuel",
    "wasm_udf_yield_fuel",
    "windows_timer_interval",
    "x_log2_compaction_groups",
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
