//! Questions of ScyllaDB's `nodetool` and Scylla Manager, over REST: each path with the shape of its answer.

use serde_json::json;

use crate::stored::{answered, change};
use crate::{ask, get, refused};

#[test]
fn figures_by_scylladbs_names() {
    for (path, expected) in [
        ("column_family/metrics/bloom_filter_off_heap_memory_used/ks:t", json!(600)),
        ("column_family/metrics/recent_bloom_filter_false_ratio/ks:t", json!(0.25)),
        ("column_family/metrics/compression_ratio/ks:t", json!(0.5)),
        ("column_family/metrics/max_row_size/ks:t", json!(90)),
        ("column_family/metrics/mean_row_size/ks:t", json!(20)),
        ("column_family/metrics/min_row_size/ks:t", json!(770)),
        ("column_family/metrics/snapshots_size/ks:t", json!(42)),
        ("column_family/metrics/read_latency/ks:t", json!(0)),
        ("column_family/metrics/pending_flushes/ks:pair", json!(0)),
        ("column_family/sstables/per_level/ks:t", json!([2, 4])),
        ("compaction_manager/metrics/pending_tasks_by_table", json!([{ "ks": "ks", "cf": "t", "task": 10 }])),
        ("cache_service/metrics/key/hit_rate", json!(0)),
        ("cache_service/row_cache_save_period", json!(0)),
        ("storage_service/rpc_server", json!(false)),
        ("storage_service/is_initialized", json!(true)),
        ("storage_service/metrics/exceptions", json!(0)),
        ("storage_service/data_file/locations", json!(["/data"])),
        ("stream_manager/", json!([])),
        ("messaging_service/messages/sent", json!([{ "key": "10.1.0.2", "value": 14 }])),
        ("messaging_service/messages/respond_pending", json!([{ "key": "10.1.0.2", "value": 0 }])),
        ("v2/error_injection/injection", json!([])),
    ] {
        assert_eq!(get(&format!("/{path}")), expected, "{path}");
    }
    let scanned = get("/column_family/metrics/live_scanned_histogram/ks:t");
    assert_eq!(scanned, json!({ "count": 0, "sum": 0, "min": 0, "max": 0, "mean": 0.0, "variance": 0.0 }));
    let latency = get("/column_family/metrics/write_latency/moving_average_histogram/ks:t");
    assert_eq!((&latency["meter"]["count"], &latency["hist"]["count"]), (&json!(0), &json!(0)));
    let hits = get("/cache_service/metrics/row/hits_moving_avrage");
    assert_eq!((&hits["count"], &hits["mean_rate"]), (&json!(0), &json!(0.0)));
    for path in [
        "cache_service/metrics/key/nope",
        "messaging_service/messages/nope",
        "column_family/metrics/nope/ks:t",
    ] {
        assert_eq!(refused(&format!("/{path}")).0, 404, "{path}");
    }
}

#[test]
fn work_of_all_tables_and_work_that_is_not_there() {
    let (status, calls) = change("POST", "/storage_service/compact?flush_memtables=false");
    assert_eq!((status, calls), (200, vec!["8 Compact".to_owned(), "7 Compact".to_owned()]));
    let offstrategy = "/storage_service/keyspace_offstrategy_compaction/ks";
    assert_eq!(answered("POST", offstrategy), (200, json!(false), Vec::new()));
    assert_eq!(change("POST", "/storage_service/cdc_streams_check_and_repair"), (200, Vec::new()));
    for (method, path, why) in [
        ("DELETE", "storage_service/gossiping", "a member always gossips"),
        ("POST", "storage_service/relocal_schema", "nothing to reload"),
        ("POST", "storage_service/exclude_node?hosts=x", "nodes are not excluded"),
        ("POST", "storage_service/rebuild?force=true", "The `source_dc` option must be provided"),
        ("POST", "storage_service/keyspace_offstrategy_compaction/nope", "Can't find a keyspace nope"),
    ] {
        let (status, error, _) = answered(method, &format!("/{path}"));
        assert!(
            status == 400 && error["message"].as_str().unwrap().contains(why),
            "{path}: {status} {error}"
        );
    }
}

#[test]
fn levels_of_loggers() {
    let levels = json!([{ "key": "ROOT", "value": "info" }, { "key": "engine", "value": "debug" }]);
    assert_eq!(get("/storage_service/logging_level"), levels);
    assert_eq!(get("/system/logger/engine"), json!("debug"));
    assert_eq!(get("/system/logger/rpc"), json!("info"), "as the process");
    assert!(get("/system/logger").as_array().unwrap().contains(&json!("coordinator")));
    assert_eq!(refused("/system/logger/nope"), (400, "Unknown logger name nope".to_owned()));
    let set = |path: &str| {
        let answer = ask(false, "POST", &format!("/system/logger{path}"));
        (answer.status, answer.body)
    };
    assert_eq!(set("/engine?level=TRACE"), (200, String::new()), "the other levels stay");
    assert_eq!(set("?level=warn"), (200, String::new()), "of all");
    assert!(set("/engine?level=loud").1.contains("Unknown logging level loud"));
    assert!(set("/nope?level=info").1.contains("Unknown logger name nope"));
    assert!(set("/engine").1.contains("Missing mandatory parameter 'level'"));
}

#[test]
fn partitions_of_several_tables() {
    let of = |query: &str| get(&format!("/storage_service/toppartitions?duration=5&capacity=16{query}"));
    let both = json!([
        { "partition": "(ks:t) -7", "count": 2, "error": 0 },
        { "partition": "(ks:pair) 7:x", "count": 2, "error": 0 },
    ]);
    for query in
        ["", "&keyspace_filters=ks", "&table_filters=ks:t,ks:pair", "&table_filters=ks:t&keyspace_filters=ks"]
    {
        let answer = of(query);
        assert_eq!((&answer["read"], &answer["read_cardinality"]), (&both, &json!(2)), "{query}");
    }
    assert_eq!(of("&table_filters=ks:pair&list_size=1")["read"].as_array().unwrap().len(), 1);
    assert_eq!(refused("/storage_service/toppartitions").1, "Missing mandatory parameter 'duration'");
    assert_eq!(refused("/storage_service/toppartitions?duration=5&keyspace_filters=nope").0, 400);
}

#[test]
fn figures_of_requests_have_the_types_of_scylladbs_description() {
    for kind in ["read", "write", "range", "cas_read", "cas_write"] {
        for figure in ["timeouts", "unavailables"] {
            let path = format!("/storage_proxy/metrics/{kind}/{figure}");
            assert!(get(&path).is_u64(), "{path}");
            assert!(get(&format!("{path}_rates"))["rates"].is_array(), "{path}");
        }
        let histogram = get(&format!("/storage_proxy/metrics/{kind}/histogram"));
        let averages = get(&format!("/storage_proxy/metrics/{kind}/moving_average_histogram"));
        assert_eq!(averages["meter"]["count"], histogram["count"], "{kind}");
    }
    assert_eq!(refused("/storage_proxy/metrics/read/colour").0, 404);
    assert_eq!(refused("/storage_proxy/metrics/dream/timeouts").0, 404);
    assert_eq!(get("/storage_proxy/total_hints"), json!(10), "five for each of two nodes");
    assert_eq!(refused("/storage_proxy/rpc").0, 404);
}

#[test]
fn the_gossip_of_one_node_is_shown_by_address_and_host_id() {
    assert!(get("/gossiper/generation_number/10.1.0.2").is_u64());
    let id = "03030303-0303-0303-0303-030303030303";
    assert_eq!(get(&format!("/gossiper/downtime/{id}")), json!(60_000), "it is down since 1970");
    assert_eq!(get("/gossiper/downtime/10.1.0.2"), json!(0), "it is up");
    assert_eq!(refused("/gossiper/heart_beat_version/10.9.9.9").0, 400);
    assert_eq!(refused("/gossiper/colour/10.1.0.2").0, 404);
}

#[test]
fn the_ranges_of_a_keyspace_have_their_replicas() {
    let ranges = get("/storage_service/range_to_endpoint_map/ks");
    let described = get("/storage_service/describe_ring/ks");
    let (ranges, described) = (ranges.as_array().unwrap(), described.as_array().unwrap());
    assert_eq!(ranges.len(), described.len());
    for (range, same) in ranges.iter().zip(described) {
        assert_eq!(range["key"], json!([same["start_token"], same["end_token"]]));
        assert_eq!(range["value"], same["endpoints"]);
    }
    let by_key = get("/storage_service/natural_endpoints/ks?cf=t&key=5");
    assert_eq!(get("/storage_service/natural_endpoints/v2/ks?cf=t&key_component=5"), by_key);
    assert_eq!(refused("/storage_service/natural_endpoints/v2/ks?cf=t").0, 400);
    assert_eq!(get("/storage_service/nodes/excluded"), json!([]));
}

#[test]
fn a_read_barrier_waits_for_the_log() {
    assert_eq!(ask(false, "POST", "/raft/read_barrier?group_id=7&timeout=5").status, 200);
    assert_eq!(ask(false, "POST", "/raft/read_barrier").status, 200);
    assert_eq!(ask(false, "POST", "/raft/read_barrier?timeout=soon").status, 400);
}

#[test]
fn what_is_organized_in_another_way_is_refused_with_the_reason() {
    for (method, path) in [
        ("GET", "/task_manager/user_ttl"),
        ("POST", "/storage_service/tablets/repair"),
        ("POST", "/storage_service/backup?endpoint=s3"),
        ("POST", "/storage_service/truncate/ks?cf=t"),
        ("POST", "/raft/trigger_snapshot/1"),
    ] {
        let answer = ask(false, method, path);
        assert!(answer.status == 400 && answer.body.contains(": "), "{path}: {}", answer.body);
    }
}
