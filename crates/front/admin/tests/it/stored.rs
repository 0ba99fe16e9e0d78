//! Tables as a node stores them, its hints, and its failure detector, over REST.

use serde_json::{Value, json};

use crate::{Fake, Rc, RestService, ask, call, fake, get, refused};

/// The status of a request that changes something, and the calls that the node got.
pub(crate) fn change(method: &str, path: &str) -> (u16, Vec<String>) {
    change_of(false, method, path)
}

fn change_of(alone: bool, method: &str, path: &str) -> (u16, Vec<String>) {
    let calls = Rc::default();
    let info = fake(alone).info().clone();
    let node = Fake { info, alone, stops: Rc::default(), calls: Rc::clone(&calls) };
    let answer = call(&RestService::new(Rc::new(node)), method, path);
    (answer.status, calls.take())
}

#[test]
fn the_failure_detector() {
    let phis = get("/failure_detector/endpoint_phi_values");
    let expected =
        json!([{ "endpoint": "10.1.0.2:7000", "phi": 0.5 }, { "endpoint": "10.1.0.3:7000", "phi": 0.75 }]);
    assert_eq!(phis, expected, "this node is not among them");
    let states = get("/failure_detector/simple_states");
    assert_eq!(states[0], json!({ "key": "10.1.0.1", "value": "UP" }), "this node, too");
    assert_eq!(states[2], json!({ "key": "10.1.0.3", "value": "DOWN" }));
    assert_eq!(get("/failure_detector/count/endpoint/up"), json!(2));
    assert_eq!(get("/failure_detector/count/endpoint/down"), json!(1));
    assert_eq!(get("/failure_detector/phi"), json!(8));
    assert_eq!(refused("/failure_detector/count/endpoint/sideways").0, 404);
    let alone = ask(true, "GET", "/failure_detector/endpoint_phi_values");
    assert_eq!((alone.status, alone.body.as_str()), (200, "[]"));
}

#[test]
fn hints_are_listed_paused_and_dropped() {
    let hints = get("/torc/hints");
    let first = json!({
        "host_id": "03030303-0303-0303-0303-030303030303", "address": "10.1.0.3", "datacenter": "dc2", "rack": "rack3",
        "status": "DOWN", "hints": 5, "bytes": 500, "files": 2, "oldest_ms": 1_000, "newest_ms": 2_000,
    });
    assert_eq!(hints[0], first);
    assert_eq!((&hints[1]["address"], &hints[1]["status"]), (&json!("Unknown"), &json!("Unknown")));
    assert_eq!(get("/hinted_handoff/hints"), json!(["10.1.0.3"]), "a former member has no address");
    let calls = |calls: &[&str]| calls.iter().map(|call| (*call).to_owned()).collect::<Vec<_>>();
    assert_eq!(change("POST", "/hinted_handoff/pause?pause=true"), (200, calls(&["paused true"])));
    assert_eq!(change("POST", "/hinted_handoff/pause?pause=false"), (200, calls(&["paused false"])));
    assert_eq!(change("POST", "/hinted_handoff/pause?pause=maybe"), (400, Vec::new()));
    assert_eq!(change("POST", "/hinted_handoff/pause"), (400, Vec::new()));
    assert_eq!(change("DELETE", "/hinted_handoff/hints"), (200, calls(&["dropped None"])));
    assert_eq!(change("DELETE", "/hinted_handoff/hints?host=10.1.0.3"), (200, calls(&["dropped Some(3)"])));
    assert_eq!(change("DELETE", "/hinted_handoff/hints?host=10.9.9.9"), (404, Vec::new()));
}

#[test]
fn distributions_of_a_table() {
    let of = |figure: &str, table: &str| get(&format!("/column_family/metrics/{figure}/ks:{table}"));
    let counted = |histogram: &Value| -> Vec<(u64, u64)> {
        let bounds = histogram["bucket_offsets"].as_array().unwrap();
        let counts = histogram["buckets"].as_array().unwrap();
        assert_eq!(counts.len(), bounds.len() + 1, "one more for values above all bounds");
        let pairs = bounds
            .iter()
            .zip(counts)
            .map(|(bound, count)| (bound.as_u64().unwrap(), count.as_u64().unwrap()));
        pairs.filter(|(_, count)| *count > 0).collect()
    };
    let sizes = of("estimated_row_size_histogram", "t");
    assert_eq!((counted(&sizes), &sizes["sstables"]), (vec![(770, 1)], &json!(2)));
    assert_eq!(counted(&of("estimated_column_count_histogram", "t")), [(3, 1)]);
    assert_eq!(of("estimated_row_size_histogram", "pair")["sstables"], 0);
    assert_eq!(counted(&of("sstables_per_read_histogram", "t")), []);
    for kind in ["read_latency", "write_latency", "range_latency"] {
        assert_eq!(counted(&of(&format!("{kind}/estimated_histogram"), "t")), [], "{kind}");
    }
    assert_eq!(refused("/column_family/metrics/nope/estimated_histogram/ks:t").0, 404);
    assert_eq!(refused("/column_family/metrics/nope/ks:t").0, 404);
}

#[test]
fn paths_and_samples() {
    let paths = get("/torc/data_paths?keyspace=ks&cf=t");
    assert_eq!(paths, json!([{ "keyspace": "ks", "table": "t", "paths": ["/data/ks/t"] }]));
    assert_eq!(get("/torc/data_paths").as_array().unwrap().len(), 2);
    assert_eq!(refused("/torc/data_paths?keyspace=nope").0, 404);
    assert_eq!(refused("/torc/data_paths?keyspace=ks&cf=t,nope").0, 404);
    assert_eq!(refused("/torc/data_paths?cf=t").0, 404, "a table needs its keyspace");
    assert_eq!(get("/storage_service/sample_key_range"), json!(["-4", "3", "9"]), "each once, in order");
    let of = |key: &str| format!("/column_family/sstables/by_key/ks:t?key={key}");
    assert_eq!(get(&of("5")), json!(["/data/ks/t/oa-1-big-Data.db"]));
    assert_eq!(get(&of("6")), json!([]));
    assert_eq!(refused(&of("7")).0, 500);
    assert_eq!(refused(&of("seven")).0, 400);
    assert_eq!(get(&of("00000005&format=hex")), get(&of("5")));
    for wrong in ["0x05&format=hex", "005&format=hex", "&format=hex", "5&format=oct"] {
        assert_eq!(refused(&of(wrong)).0, 400, "{wrong}");
    }
    assert_eq!(refused("/column_family/sstables/by_key/ks:t").0, 400);
}

#[test]
fn compactions_that_begin_by_themselves_are_switched() {
    assert_eq!(get("/column_family/autocompaction/ks:t"), json!(true));
    let set = |table: u8, is_on: bool| vec![format!("{table} SetAutoCompaction {{ is_on: {is_on} }}")];
    assert_eq!(change("DELETE", "/column_family/autocompaction/ks:t"), (200, set(7, false)));
    assert_eq!(change("POST", "/column_family/autocompaction/ks:t"), (200, set(7, true)));
    assert_eq!(change("DELETE", "/storage_service/auto_compaction/ks?cf=pair"), (200, set(8, false)));
    assert_eq!(get("/column_family/minimum_compaction/ks:t"), json!(4));
    assert_eq!(get("/column_family/maximum_compaction/ks:t"), json!(32));
}

#[test]
fn keyspaces_and_tables_that_are_not_there_have_one_error() {
    let keyspace = "Can't find a keyspace nope";
    let table = "Can't find a column family nope in keyspace ks";
    let name = "Column family name should be in keyspace:column_family format";
    for (method, path, why) in [
        ("POST", "/storage_service/keyspace_flush/nope", keyspace),
        ("POST", "/storage_service/keyspace_flush/ks?cf=t,nope", table),
        ("POST", "/storage_service/keyspace_compaction/nope", keyspace),
        ("POST", "/storage_service/keyspace_cleanup/nope", keyspace),
        ("POST", "/storage_service/keyspace_cleanup/ks?cf=nope", table),
        ("GET", "/storage_service/keyspace_scrub/nope", keyspace),
        ("GET", "/storage_service/keyspace_upgrade_sstables/ks?cf=nope", table),
        ("DELETE", "/storage_service/auto_compaction/nope", keyspace),
        ("POST", "/storage_service/sstables/nope?cf=t", keyspace),
        ("POST", "/compaction_manager/stop_keyspace_compaction/nope?type=SCRUB", keyspace),
        ("GET", "/storage_service/view_build_statuses/nope/v", keyspace),
        ("POST", "/torc/sstables/verify/nope", keyspace),
        ("POST", "/torc/import/nope/t", keyspace),
        ("GET", "/column_family/metrics/read/ks:nope", table),
        ("GET", "/column_family/metrics/read/t", name),
        ("GET", "/column_family/metrics/estimated_row_size_histogram/ks:nope", table),
        ("GET", "/column_family/autocompaction/nope:t", keyspace),
        ("GET", "/column_family/maximum_compaction/t", name),
        ("GET", "/column_family/sstables/by_key/ks:nope?key=5", table),
        ("GET", "/column_family/toppartitions/nope:t?duration=5", keyspace),
    ] {
        let (status, error, calls) = answered(method, path);
        assert_eq!((status, &error["message"]), (400, &json!(why)), "{method} {path}");
        assert_eq!(calls, [""; 0], "{method} {path}");
    }
}

#[test]
fn compactions_flush_first() {
    let compact =
        |query: &str| change("POST", &format!("/storage_service/keyspace_compaction/ks?cf=t{query}"));
    let calls = |calls: &[&str]| calls.iter().map(|call| (*call).to_owned()).collect::<Vec<_>>();
    assert_eq!(compact(""), (200, calls(&["7 Flush", "7 Compact"])));
    assert_eq!(compact("&flush_memtables=no"), (200, calls(&["7 Compact"])));
    assert_eq!(compact("&flush_memtables=bogus"), (500, Vec::new()));
    assert_eq!(compact("&consider_only_existing_data=true"), (400, Vec::new()));
    let answer = ask(false, "POST", "/storage_service/keyspace_flush/ks");
    assert_eq!(answer.body, "", "nothing is said");
}

/// The status and the body of a request that changes something, and the calls that the node got.
pub(crate) fn answered(method: &str, path: &str) -> (u16, Value, Vec<String>) {
    let calls = Rc::default();
    let info = fake(false).info().clone();
    let node = Fake { info, alone: false, stops: Rc::default(), calls: Rc::clone(&calls) };
    let answer = call(&RestService::new(Rc::new(node)), method, path);
    let body = if answer.body.is_empty() { "null" } else { &answer.body };
    (answer.status, serde_json::from_str(body).expect("JSON"), calls.take())
}

#[test]
fn sstables_are_written_anew_or_verified() {
    let (_, done, calls) = answered("POST", "/torc/sstables/garbage_collect/ks?cf=pair,t&granularity=CELL");
    assert_eq!(calls, ["8 GarbageCollect(Cell)", "7 GarbageCollect(Cell)"]);
    let second = json!({
        "keyspace": "ks", "table": "t", "sstables": 2, "set_aside": 1, "indexes_replaced": 0, "problems": ["t is damaged"],
    });
    assert_eq!(done[1], second);
    let scrub = |query: &str| answered("GET", &format!("/storage_service/keyspace_scrub/ks?cf=t&{query}"));
    let (_, number, calls) = scrub("scrub_mode=validate");
    assert_eq!((number, calls), (json!(3), vec!["7 Verify".to_owned()]), "damage was found");
    let (_, number, calls) = scrub("skip_corrupted=true&disable_snapshot=true");
    assert_eq!((number, calls), (json!(0), vec!["7 Scrub { skip: true }".to_owned()]));
    let (_, _, calls) = scrub("");
    assert!(calls[0].starts_with("snapshot pre-scrub-") && calls[0].ends_with(" of ks.t"), "{calls:?}");
    assert_eq!(calls[1], "7 Scrub { skip: false }");
    for (query, why) in [
        ("scrub_mode=SEGREGATE", "no mode SEGREGATE"),
        ("scrub_mode=x", "Unknown argument for 'scrub_mode' parameter: x"),
        ("quarantine_mode=x", "Unknown argument for 'quarantine_mode' parameter: x"),
    ] {
        let (status, error, calls) = scrub(query);
        assert!(error["message"].as_str().unwrap().contains(why), "{error}");
        assert_eq!((status, calls), (400, Vec::new()));
    }
    let (status, error, calls) = scrub("disable_snapshot=maybe");
    assert!(error["message"].as_str().unwrap().starts_with("Invalid boolean parameter value"), "{error}");
    assert_eq!((status, calls), (500, Vec::new()));
    assert_eq!(scrub("quarantine_mode=ONLY"), (200, json!(0), Vec::new()), "none is quarantined");
    let upgrade = "/storage_service/keyspace_upgrade_sstables/ks?cf=t&exclude_current_version=true";
    assert_eq!(answered("GET", upgrade).2, ["7 Upgrade { all: false }"]);
    assert_eq!(answered("POST", "/torc/sstables/polish/ks").0, 404);
    assert_eq!(answered("POST", "/torc/sstables/garbage_collect/ks?granularity=x").0, 400);
}

#[test]
fn work_on_sstables_is_stopped() {
    let stop = |query: &str| answered("POST", &format!("/compaction_manager/stop_compaction?{query}"));
    assert_eq!(stop("type=cleanup"), (200, json!(3), vec!["Kind(Cleanup, None)".to_owned()]));
    let id = "01010101-0101-0101-0101-010101010101";
    assert_eq!(stop(&format!("id={id}")).2, [format!("Id({:?})", [1; 16])]);
    let path = "/compaction_manager/stop_keyspace_compaction/ks?type=UPGRADE&tables=t";
    let (status, _, calls) = answered("POST", path);
    assert!(status == 200 && calls[0].starts_with("Kind(Upgrade, Some([") && calls.len() == 1, "{calls:?}");
    for none in ["RESHAPE", "reshard"] {
        assert_eq!(stop(&format!("type={none}")), (200, json!(0), Vec::new()), "there is no such work");
    }
    for query in ["", "type=NOTHING", "id=7", &format!("id={id}&type=SCRUB")] {
        let (status, _, calls) = stop(query);
        assert_eq!((status, calls), (400, Vec::new()), "{query}");
    }
    let missing = "/compaction_manager/stop_keyspace_compaction/ks?type=SCRUB&tables=nope";
    assert_eq!(answered("POST", missing).0, 400);
}

#[test]
fn sstables_are_imported() {
    let (_, done, calls) = answered("POST", "/torc/import/ks/t?directory=/backup/t");
    assert_eq!(done, json!({ "sstables": 2, "partitions": 9, "removed": false }));
    assert_eq!(calls, [r#"import t Some("/backup/t")"#]);
    let path = "/storage_service/sstables/ks?cf=t";
    assert_eq!(change("POST", path), (200, vec!["import t None".to_owned()]));
    let sparing = format!("{path}&skip_cleanup=true&skip_reshape=true");
    assert_eq!(change("POST", &sparing).0, 200, "they save work that is no part of an import");
    let refused = [
        format!("{path}&load_and_stream=true"),
        "/storage_service/sstables/ks".to_owned(),
        "/storage_service/sstables/ks?cf=nope".to_owned(),
        "/torc/import/ks/t?directory=backup".to_owned(),
    ];
    for path in refused {
        assert_eq!(change("POST", &path), (400, Vec::new()), "{path}");
    }
}

#[test]
fn only_nodes_that_are_down_are_left_out_of_a_removal() {
    let path = "/storage_service/remove_node?host_id=09090909-0909-0909-0909-090909090909&ignore_nodes=";
    let said = |ignored: &str| ask(false, "POST", &format!("{path}{ignored}")).body;
    assert!(said("10.1.0.2").contains("10.1.0.2 is up"), "{}", said("10.1.0.2"));
    assert!(said("10.1.0.3,10.9.9.9").contains("there is no node 10.9.9.9"));
    assert!(said("10.1.0.3").contains("this node has no ring"), "the list is taken: {}", said("10.1.0.3"));
}

#[test]
fn the_native_transport_is_opened_and_closed() {
    let path = "/storage_service/native_transport";
    assert_eq!(change("POST", path), (200, vec!["native true".to_owned()]));
    let (status, error, calls) = answered("DELETE", path);
    assert_eq!((status, &error["message"]), (500, &json!("the node is drained")));
    assert_eq!(calls, ["native false"]);
}

#[test]
fn groups_of_addresses() {
    assert_eq!(
        get("/torc/cidr_groups"),
        json!({ "lab": ["10.1.2.0/24"], "office": ["10.1.0.0/16", "fd00::/8"] })
    );
    assert_eq!(get("/torc/cidr_groups_of/10.1.2.3"), json!(["lab"]), "that of the smallest range");
    assert_eq!(get("/torc/cidr_groups_of/10.1.3.3"), json!(["office"]));
    assert_eq!(get("/torc/cidr_groups_of/10.2.3.3"), json!([]));
    assert_eq!(refused("/torc/cidr_groups_of/host").0, 400);
    let (status, calls) = change("POST", "/torc/cidr_groups/home?cidrs=192.168.1.7/16");
    assert_eq!(status, 200);
    assert!(calls[0].starts_with("group home Some({") && calls[0].contains("192.168.0.0"), "{calls:?}");
    assert_eq!(change("DELETE", "/torc/cidr_groups/lab"), (200, vec!["group lab None".to_owned()]));
    assert_eq!(change("DELETE", "/torc/cidr_groups/nope"), (404, Vec::new()));
    assert_eq!(change("POST", "/torc/cidr_groups/home?cidrs=x"), (400, Vec::new()));
    assert_eq!(change("POST", "/torc/cidr_groups/home"), (400, Vec::new()));
}

#[test]
fn snapshots_are_made_of_all_tables_at_once() {
    let calls = |calls: &[&str]| calls.iter().map(|call| (*call).to_owned()).collect::<Vec<_>>();
    let path = "/storage_service/snapshots?tag=c&kn=ks";
    assert_eq!(change("POST", path), (200, calls(&["snapshot c of ks.pair, ks.t"])));
    assert_eq!(change("POST", &format!("{path}&cf=t")), (200, calls(&["snapshot c of ks.t"])));
    assert_eq!(
        change("POST", &format!("{path}&cf=t&sf=true")),
        (200, calls(&["snapshot c of ks.t as it is on disk"]))
    );
    assert_eq!(change("POST", &format!("{path}&sf=perhaps")), (500, Vec::new()), "as ScyllaDB answers");
    assert_eq!(change("POST", "/storage_service/snapshots?tag=a&kn=ks&cf=t").0, 500, "it exists");
    assert_eq!(
        change("POST", "/storage_service/snapshots?tag=c&kn=ks.t"),
        (200, calls(&["snapshot c of ks.t"]))
    );
    assert_eq!(change("POST", "/storage_service/snapshots?kn=ks"), (500, Vec::new()), "it needs a name");
    assert_eq!(change("POST", "/storage_service/snapshots?tag=c&cf=t"), (400, Vec::new()));
    assert_eq!(change("POST", "/storage_service/snapshots?tag=c&kn=ks,own&cf=t"), (400, Vec::new()));
    assert_eq!(change("POST", "/storage_service/snapshots?tag=.a&kn=ks"), (400, Vec::new()));
    assert_eq!(change("POST", "/storage_service/snapshots?tag=c&kn=ks,nope"), (400, Vec::new()));
    assert_eq!(change("POST", &format!("{path}&cf=t,nope")), (400, Vec::new()));
}

#[test]
fn snapshots_of_dropped_tables_and_keyspaces_are_removed() {
    let clear = |query: &str| {
        let (status, calls) = change_of(true, "DELETE", &format!("/storage_service/snapshots?{query}"));
        (status, calls.join(", "))
    };
    let done = |removed: &str| (200, removed.to_owned());
    assert_eq!(clear("tag=b"), done("b ks.t, b gone.t"));
    assert_eq!(clear("tag=&kn=ks"), done("a ks.pair, a ks.t, b ks.t, dropped-7-old ks.old"));
    assert_eq!(clear("tag=&kn=gone"), done("b gone.t"));
    assert_eq!(clear("kn=ks&cf=old"), done("dropped-7-old ks.old"));
    assert_eq!(clear("tag=a&kn=ks&cf=t"), done("a ks.t"));
    assert_eq!(clear("tag=z&kn=ks&cf=t"), done(""));
    // All were made 7 ms after the epoch, and now is a minute after it.
    assert_eq!([clear("kn=gone&before_ms=8"), clear("kn=gone&before_ms=7")], [done("b gone.t"), done("")]);
    assert_eq!(
        [clear("kn=gone&older_than_ms=59000"), clear("kn=gone&older_than_ms=60000")],
        [done("b gone.t"), done("")]
    );
    for bad in
        ["before_ms=x", "older_than_ms=-1", "older_than_ms=1&before_ms=1", "before_ms=9223372036854775807"]
    {
        assert_eq!(clear(&format!("kn=gone&{bad}")), (400, String::new()), "{bad}");
    }
    assert_eq!(clear("kn=nope").0, 400);
    assert_eq!(clear("kn=ks&cf=nope").0, 400);
    assert_eq!(clear("tag=..").0, 400);
}
