//! Questions of ScyllaDB's `nodetool` and Scylla Manager, over REST: each path with the shape of its answer.

use serde_json::json;

use crate::stored::{answered, change};
use crate::{ask, get, refused};

#[test]
fn figures_by_scylladbs_names() {
    let moments = json!({ "count": 0, "sum": 0, "min": 0, "max": 0, "mean": 0.0, "variance": 0.0 });
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
        ("column_family/metrics/read_latency/histogram/ks:t", moments.clone()),
        ("column_family/metrics/total_disk_space_used/ks:t", json!(0)),
        ("column_family/estimate_keys/ks:t", json!(20)),
        ("column_family/built_indexes/ks:t", json!(["index_7"])),
        ("column_family/tombstone_gc/ks:t", json!(true)),
        ("column_family/sstables/unleveled/ks:t", json!(0)),
        ("column_family/sstables/per_level/ks:t", json!([2, 4])),
        // Of all tables.
        ("column_family/metrics/live_disk_space_used", json!(2_000)),
        ("column_family/metrics/total_disk_space_used/", json!(2_000)),
        ("column_family/metrics/read/", json!([3, 3])),
        ("column_family/metrics/min_row_size", json!(770)),
        ("column_family/metrics/compression_ratio", json!(0.5)),
        ("column_family/metrics/true_snapshots_size", json!(42)),
        ("commitlog/segments/active", json!(["CommitLog-0-1.log"])),
        ("commitlog/segments/archiving", json!([])),
        ("commitlog/metrics/completed_tasks", json!(12)),
        ("commitlog/metrics/max_disk_size", json!(8 << 20)),
        ("compaction_manager/compaction_info", json!([])),
        ("compaction_manager/metrics/total_compactions_completed", json!(0)),
        ("service_levels/count_connections", json!({ "sl:default": { "bob": 1 }, "sl:gold": { "ann": 2 } })),
        ("storage_service/metrics/load", json!(2_000)),
        ("storage_service/metrics/total_hints", json!(10)),
        ("storage_service/metrics/hints_in_progress", json!(0)),
        ("storage_service/raft_topology/upgrade", json!("done")),
        ("storage_service/tombstone_warn_threshold", json!(1_000)),
        ("stream_manager/metrics/incoming", json!(0)),
        ("messaging_service/messages/timeout", json!([{ "key": "10.1.0.2", "value": 6 }])),
        ("messaging_service/messages/dropped", json!([{ "key": "10.1.0.2", "value": 4 }])),
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
    assert_eq!(scanned, moments);
    assert_eq!(get("/column_family/metrics/coordinator/scan")["count"], 4);
    let dropped = get("/messaging_service/messages/dropped_by_ver");
    assert!(dropped.as_array().unwrap().contains(&json!({ "verb": "read", "count": 0 })), "{dropped}");
    let latency = get("/column_family/metrics/write_latency/moving_average_histogram/ks:t");
    assert_eq!((&latency["meter"]["count"], &latency["hist"]["count"]), (&json!(0), &json!(0)));
    let hits = get("/cache_service/metrics/row/hits_moving_avrage");
    assert_eq!((&hits["count"], &hits["mean_rate"]), (&json!(0), &json!(0.0)));
    for path in [
        "cache_service/metrics/key/nope",
        "commitlog/metrics/nope",
        "commitlog/segments/nope",
        "column_family/metrics",
        "column_family/metrics/nope",
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
    let pending = get("/storage_service/pending_range/ks");
    let range = |after: &str, upto: &str, node: &str| json!({ "key": [after, upto], "value": [node] });
    let expected = json!([
        range("-4611686018427387904", "-100", "10.1.0.3"),
        range("-100", "0", "10.1.0.3"),
        range("0", "100", "10.1.0.1"),
    ]);
    assert_eq!(pending, expected, "when node 2 has left");
    assert_eq!(refused("/storage_service/pending_range/nope").0, 400);
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
fn sstables_of_tables() {
    let of = |query: &str| get(&format!("/storage_service/sstable_info{query}"));
    let one = json!({
        "size": 900, "data_size": 700, "index_size": 90, "filter_size": 16, "generation": "1", "level": 1,
        "version": "nb",
    });
    for query in ["", "?keyspace=ks", "?keyspace=ks&cf=t"] {
        let all = of(query);
        assert_eq!(all.as_array().unwrap().len(), 1, "the other table was dropped: {all}");
        assert_eq!((&all[0]["keyspace"], &all[0]["table"]), (&json!("ks"), &json!("t")));
        let sstables = &all[0]["sstables"];
        assert_eq!(sstables[0], one, "when it was written is not known");
        assert_eq!(sstables[1]["timestamp"], json!("1970-01-01T00:01:00.000Z"));
    }
    assert_eq!(refused("/storage_service/sstable_info?cf=t").0, 400);
    assert_eq!(refused("/storage_service/sstable_info?keyspace=ks&cf=nope").0, 400);
}

#[test]
fn operations_on_a_table_by_its_name() {
    let calls = |path: &str| change("POST", path);
    let both = vec!["7 Flush".to_owned(), "7 Compact".to_owned()];
    assert_eq!(calls("/column_family/major_compaction/ks:t"), (200, both));
    let one = vec!["7 Compact".to_owned()];
    assert_eq!(calls("/column_family/major_compaction/ks:t?flush_memtables=false"), (200, one));
    assert_eq!(calls("/column_family/major_compaction/ks:t?split_output=true"), (400, Vec::new()));
    assert_eq!(calls("/column_family/load/sstable/ks:t"), (200, vec!["import t None".to_owned()]));
    let gc = |is_on: bool| (200, vec![format!("7 SetTombstoneGc {{ is_on: {is_on} }}")]);
    for path in ["/column_family/tombstone_gc/ks:t", "/storage_service/tombstone_gc/ks?cf=t"] {
        assert_eq!((change("POST", path), change("DELETE", path)), (gc(true), gc(false)), "{path}");
    }
    assert_eq!(calls("/storage_service/tombstone_gc/ks?cf=nope").0, 400);
    assert_eq!(calls("/storage_service/drop_quarantined_sstables"), (200, Vec::new()));
    assert_eq!(calls("/storage_service/drop_quarantined_sstables?keyspace=nope").0, 400);
    assert_eq!(calls("/storage_service/snapshots?tag=x&use_sstable_identifier=true").0, 400);
}

#[test]
fn the_recording_of_slow_requests() {
    let info = json!({ "enable": false, "ttl": 86_400, "threshold": 500_000, "fast": false });
    assert_eq!(get("/storage_service/slow_query"), info);
    let set = |query: &str| ask(false, "POST", &format!("/storage_service/slow_query?{query}")).status;
    for accepted in ["enable=false&ttl=8600&threshold=10000", "enable=true&fast=true", "threshold=10000", ""]
    {
        assert_eq!(set(accepted), 200, "{accepted}");
    }
    for (refused, status) in
        [("ttl=x", 400), ("ttl=-1", 400), ("threshold=1.5", 400), ("fast=2", 500), ("enable=perhaps", 500)]
    {
        assert_eq!(set(refused), status, "{refused}");
    }
    let threshold = "/storage_service/tombstone_failure_threshold?tombstone_debug_threshold=7";
    assert_eq!(ask(false, "POST", threshold).status, 200);
}

#[test]
fn a_sync_point_waits_for_the_hints_of_before() {
    let make = |query: &str| {
        let answer = ask(false, "POST", &format!("/hinted_handoff/sync_point{query}"));
        (answer.status, answer.body.trim_matches('"').to_owned())
    };
    let (_, all) = make("");
    assert_eq!(all, "01010101-0101-0101-0101-010101010101.60000000.");
    let status = |id: &str, more: &str| get(&format!("/hinted_handoff/sync_point?id={id}{more}"));
    assert_eq!(status(&all, ""), "IN_PROGRESS", "the oldest hints are of the first second");
    assert_eq!(status(&all, "&timeout=1"), "IN_PROGRESS");
    let early = all.replace("60000000", "999999");
    assert_eq!(status(&early, "&timeout=-1"), "DONE", "all hints are later");
    assert_eq!(status(&make("?target_hosts=10.1.0.2").1, ""), "DONE", "no hints are stored for it");
    assert_eq!(status(&make("?target_hosts=10.1.0.2,10.1.0.3").1, ""), "IN_PROGRESS");
    assert_eq!(make("?target_hosts=10.9.9.9").0, 400);
    for wrong in ["id=x", "id=01010101-0101-0101-0101-010101010101.x.", &format!("id={all}&timeout=soon"), ""]
    {
        assert_eq!(refused(&format!("/hinted_handoff/sync_point?{wrong}")).0, 400, "{wrong}");
    }
    let other = all.replace("01010101-0101", "02020202-0202");
    assert!(refused(&format!("/hinted_handoff/sync_point?id={other}")).1.contains("ask that node"));
}

#[test]
fn the_state_of_a_node_as_text() {
    let text = get("/failure_detector/endpoints/states/10.1.0.2");
    let lines: Vec<&str> = text.as_str().unwrap().lines().collect();
    assert_eq!(lines[..2], ["  generation:77", "  heartbeat:9"]);
    assert!(lines.contains(&"  LOAD:4:5000"), "{lines:?}");
    assert_eq!(
        refused("/failure_detector/endpoints/states/10.9.9.9"),
        (400, "unknown endpoint 10.9.9.9".to_owned())
    );
}

#[test]
fn the_requests_are_described() {
    let resources = get("/api-doc");
    assert_eq!(resources["swaggerVersion"], "1.2");
    let v2 = get("/v2");
    let mut described = 0;
    for resource in resources["apis"].as_array().unwrap() {
        let path = resource["path"].as_str().unwrap();
        let declaration = get(&format!("/api-doc{path}"));
        assert_eq!(declaration["resourcePath"], path);
        for api in declaration["apis"].as_array().unwrap() {
            let path = api["path"].as_str().unwrap();
            for operation in api["operations"].as_array().unwrap() {
                let method = operation["method"].as_str().unwrap();
                assert!(v2["paths"][path][method.to_lowercase()].is_object(), "{method} {path}");
                described += 1;
                answers(method, path);
            }
        }
    }
    assert!(described > 250, "{described}");
    assert_eq!(refused("/api-doc/nope").0, 404);
}

/// A described request is known, with a name in the place of each part that varies.
fn answers(method: &str, path: &str) {
    let exists = [
        ("{name}", "ks:t"),
        ("{keyspace}", "ks"),
        ("{addr}", "10.1.0.3"),
        ("{endpoint}", "10.1.0.3"),
        ("{cache}", "row"),
        ("{kind}", "read"),
        ("{operation}", "verify"),
        ("{table}", "t"),
    ];
    let name = exists.iter().fold(path.to_owned(), |path, (part, name)| path.replace(part, name));
    let figure = match path {
        "/cache_service/metrics/{cache}/{figure}" => "hits",
        "/commitlog/metrics/{figure}" => "pending_tasks",
        _ => "histogram",
    };
    let answer = ask(false, method, &name.replace("{figure}", figure).replace("{address}", "10.1.0.3"));
    assert!(!answer.body.contains("is not known"), "{method} {name}: {}", answer.body);
}

#[test]
fn what_is_organized_in_another_way_is_refused_with_the_reason() {
    for (method, path) in [
        ("GET", "/task_manager/user_ttl"),
        ("POST", "/storage_service/tablets/repair"),
        ("POST", "/storage_service/backup?endpoint=s3"),
        ("POST", "/storage_service/truncate/ks?cf=t"),
        ("POST", "/raft/trigger_snapshot/1"),
        ("POST", "/storage_service/move?new_token=5"),
        ("POST", "/storage_service/deliver_hints?host=x"),
        ("POST", "/column_family/minimum_compaction/ks:t?value=2"),
        ("GET", "/messaging_service/version?addr=10.1.0.2"),
        ("GET", "/messaging_service/messages/exception"),
        ("GET", "/stream_manager/metrics/incoming/10.1.0.2"),
        ("GET", "/column_family/metrics/cas_prepare/ks:t"),
        ("GET", "/column_family/metrics/read_latency"),
        ("GET", "/column_family/metrics/range_latency/ks:t"),
        ("GET", "/storage_proxy/metrics/cas_read/unfinished_commit"),
        ("POST", "/storage_proxy/read_rpc_timeout?timeout=5"),
        ("POST", "/failure_detector/phi?phi=9"),
    ] {
        let answer = ask(false, method, path);
        assert!(answer.status == 400 && answer.body.contains(": "), "{path}: {}", answer.body);
    }
}
