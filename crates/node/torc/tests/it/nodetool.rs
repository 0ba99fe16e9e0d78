//! `torc nodetool` against a node: every verb, in text and as JSON, and its errors.

use std::io::{Read, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use wire::Version;

use crate::client::Client;
use crate::node::{Setup, torc};

/// The tool's output, and its errors when it failed.
fn tool(arguments: &[&str]) -> Result<String, String> {
    let mut child = torc(&["nodetool"]).args(arguments).spawn().expect("the binary is there");
    let (mut out, mut err) = (String::new(), String::new());
    child.stdout.take().expect("piped").read_to_string(&mut out).expect("text");
    child.stderr.take().expect("piped").read_to_string(&mut err).expect("text");
    if child.wait().expect("a child").success() { Ok(out) } else { Err(err) }
}

struct Asked {
    host: String,
}

impl Asked {
    fn of(address: IpAddr) -> Self {
        Self { host: address.to_string() }
    }

    fn try_say(&self, arguments: &[&str]) -> Result<String, String> {
        tool(&[&["-h", &self.host], arguments].concat())
    }

    /// The directory of a table.
    fn data_path(&self, table: &str) -> PathBuf {
        let paths = self.json(&["datapaths", table]);
        PathBuf::from(paths[0]["paths"][0].as_str().expect("a path"))
    }

    fn say(&self, arguments: &[&str]) -> String {
        self.try_say(arguments).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
    }

    /// The answer of a verb that ends with status 1.
    fn json_of_failed(&self, arguments: &[&str]) -> serde_json::Value {
        let all = [&["nodetool", "-h", &self.host], arguments, &["--format", "json"]].concat();
        let out = torc(&all).output().expect("the binary is there");
        assert_eq!(out.status.code(), Some(1), "{arguments:?}");
        serde_json::from_slice(&out.stdout).expect("JSON")
    }

    fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let text = self.say(&[arguments, &["--format", "json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error} in {text}"))
    }
}

fn setup(dir: &Path) -> Setup {
    let setup = Setup::new(dir);
    let address = setup.address.to_string();
    setup.option("api_address", &address)
}

#[test]
fn a_node_describes_itself() {
    let dir = tempfile::tempdir().unwrap();
    let node = setup(dir.path()).start();
    let asked = Asked::of(node.address);
    let address = node.address.to_string();
    let mut client = node.any_client();
    client.create_keyspace();
    client.query("CREATE TABLE ks.t (k int PRIMARY KEY, v text)");
    (0..200).for_each(|k| drop(client.query(&format!("INSERT INTO ks.t (k, v) VALUES ({k}, 'value {k}')"))));
    (0..50).for_each(|k| drop(client.query(&format!("SELECT * FROM ks.t WHERE k = {k}"))));

    assert_eq!(asked.say(&["flush", "ks", "t"]), "");
    assert_eq!(asked.say(&["compact", "ks"]), "");
    let status = asked.json(&["status"]);
    let own = &status["datacenters"][0]["nodes"][0];
    assert_eq!((own["status"].as_str(), own["owns"].as_f64()), (Some("UN"), Some(1.0)));
    assert!(own["load"].as_f64().unwrap() > 1_000.0);
    let text = asked.say(&["status", "ks"]);
    assert!(text.contains(&format!("UN  {address}")) && text.contains("100.0%"), "{text}");
    assert!(asked.say(&["ring"]).matches(&address).count() == own["tokens"].as_u64().unwrap() as usize);
    assert!(asked.say(&["describering", "ks"]).contains(&format!("rpc_endpoints:[{address}]")));
    assert_eq!(asked.say(&["getendpoints", "ks", "t", "5"]), format!("{address}\n"));
    let info = asked.say(&["info"]);
    assert!(
        info.contains("Gossip active          : true") && info.contains("Load                   : "),
        "{info}"
    );
    assert_eq!(asked.json(&["info"])["id"], own["host_id"]);
    assert!(asked.say(&["version"]).starts_with("ReleaseVersion: 5.0.6\n"));
    let gossip = asked.say(&["gossipinfo"]);
    let version = gossip.lines().find_map(|line| line.trim().strip_prefix("RELEASE_VERSION:"));
    assert!(version.is_some_and(|version| version.ends_with(":5.0.6")), "{gossip}");
    let cluster = asked.say(&["describecluster"]);
    assert!(
        cluster.contains("\tLive: 1\n") && cluster.contains("ks -> Replication class: SimpleStrategy"),
        "{cluster}"
    );
    assert!(asked.say(&["netstats"]).starts_with("Mode: NORMAL\n"));
    assert_eq!(asked.say(&["bootstrap", "resume"]), "Node is already bootstrapped.\n");
    assert!(asked.say(&["tpstats"]).contains("statement"));
    assert_eq!(asked.json(&["proxyhistograms"])["range"]["Max"], 0);
    client.query("SELECT * FROM ks.t");
    let histograms = asked.json(&["proxyhistograms"]);
    assert!(histograms["range"]["Max"].as_u64() > Some(0), "{histograms}");
    assert!(histograms["write"]["50%"].as_u64() > Some(0) && histograms["read"]["Max"].as_u64() > Some(0));
    let tables = asked.json(&["tablestats", "ks.t"]);
    let table = &tables["ks"]["tables"]["t"];
    assert_eq!(table["local_write_count"], 200);
    assert!(table["sstable_count"].as_u64() > Some(0));
    assert!(asked.say(&["tablestats"]).contains("\t\tTable: t\n"));
    assert!(!asked.say(&["tablestats", "-i", "ks"]).contains("Keyspace: ks\n"));
}

/// Verbs about a table as the node stores it, its compactions, hints and the failure detector.
#[test]
fn a_node_describes_its_tables() {
    let dir = tempfile::tempdir().unwrap();
    let node = setup(dir.path()).start();
    let asked = Asked::of(node.address);
    let mut client = node.any_client();
    client.create_keyspace();
    client.query("CREATE TABLE ks.t (k int PRIMARY KEY, v text)");
    (0..50).for_each(|k| drop(client.query(&format!("INSERT INTO ks.t (k, v) VALUES ({k}, 'value {k}')"))));
    let stats = asked.json(&["tablestats", "ks.t"]);
    let table = &stats["ks"]["tables"]["t"];
    // A column that is not in the key.
    assert_eq!(
        (&table["memtable_cell_count"], &stats["ks"]["pending_flushes"]),
        (&serde_json::json!(50), &serde_json::json!(0))
    );
    let none = asked.json(&["tablehistograms", "ks", "t"]);
    assert_eq!(none[0]["histograms"]["partition_size"], serde_json::Value::Null, "nothing was flushed");
    asked.say(&["flush", "ks", "t"]);
    let read = |k: i32| format!("SELECT * FROM ks.t WHERE k = {k} BYPASS CACHE");
    (0..50).for_each(|k| drop(client.query(&read(k))));

    let found = asked.json(&["tablehistograms", "ks.t"]);
    let of = |figure: &str, name: &str| found[0]["histograms"][figure][name].as_u64().unwrap();
    assert!(of("write_latency", "50%") > 0 && of("read_latency", "Max") >= of("read_latency", "50%"));
    assert_eq!((of("sstables_per_read", "Max"), of("cell_count", "Max")), (1, 1), "{found}");
    assert!((10..1_000).contains(&of("partition_size", "50%")), "{found}");
    assert!(asked.say(&["tablehistograms", "ks", "t"]).starts_with("ks/t histograms\nPercentile "));
    assert!(
        asked
            .try_say(&["tablehistograms", "ks", "nope"])
            .unwrap_err()
            .contains("Can't find a column family nope in keyspace ks")
    );
    assert!(asked.try_say(&["tablehistograms", "ks"]).unwrap_err().contains("requires keyspace and table"));

    let directory = &asked.data_path("ks.t");
    assert!(directory.is_dir() && directory.starts_with(dir.path()), "{directory:?}");
    let sstables = asked.say(&["getsstables", "ks", "t", "7"]);
    let file = Path::new(sstables.trim_end());
    assert!(file.is_file() && file.parent() == Some(directory), "{sstables}");
    assert_eq!(asked.say(&["getsstables", "ks", "t", "700"]), "");
    let sample = asked.say(&["rangekeysample"]);
    assert!(sample.starts_with("RangeKeySample: \n\t") && sample.lines().count() > 1, "{sample}");

    let before =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64;
    asked.say(&["snapshot", "-t", "first", "ks"]);
    let rows = client.rows("SELECT created_at FROM system_views.snapshots WHERE name = 'first'");
    let made = rows[0][0].as_ref().map(|bytes| i64::from_be_bytes(*bytes.first_chunk().unwrap())).unwrap();
    assert!((before - 1_000..before + 60_000).contains(&made), "{made} is not about {before}");

    assert_eq!(asked.say(&["statusautocompaction", "ks"]), "running\n");
    asked.say(&["disableautocompaction", "ks", "t"]);
    assert_eq!(asked.say(&["statusautocompaction", "ks", "t"]), "not running\n");
    assert_eq!(asked.say(&["statusautocompaction"]), "partially running\n");
    asked.say(&["enableautocompaction"]);
    assert_eq!(asked.say(&["statusautocompaction"]), "running\n");
    assert!(asked.say(&["getcompactionthreshold", "ks", "t"]).ends_with(" min = 4,  max = 32\n"));

    assert_eq!(asked.say(&["listpendinghints"]), "This node does not have any pending hints\n");
    for verb in ["pausehandoff", "resumehandoff", "truncatehints"] {
        assert_eq!(asked.say(&[verb]), "", "{verb}");
    }
    assert!(asked.try_say(&["truncatehints", "10.9.9.9"]).unwrap_err().contains("there is no node 10.9.9.9"));
    assert_eq!(asked.say(&["failuredetector"]), "  Endpoint,             Phi\n");
    let refused = asked.try_say(&["recompress_sstables", "ks"]).unwrap_err();
    assert!(refused.contains("nodetool recompress_sstables has no meaning here: files of all"), "{refused}");
}

#[test]
fn guardrails_and_the_default_replication_factor_change() {
    let dir = tempfile::tempdir().unwrap();
    let node = setup(dir.path()).start();
    let asked = Asked::of(node.address);
    assert_eq!(asked.say(&["getdefaultrf"]), "1\n");
    asked.say(&["setdefaultrf", "3"]);
    assert_eq!(asked.say(&["getdefaultrf"]), "3\n");
    assert!(asked.try_say(&["setdefaultrf", "0"]).unwrap_err().contains("cannot be less than 1"));
    let mut client = node.client(1, Version::V4);
    client.query("CREATE KEYSPACE simple WITH replication = {'class': 'SimpleStrategy'}");
    client.query("CREATE KEYSPACE topology WITH replication = {'class': 'NetworkTopologyStrategy'}");
    for (name, factor) in [("simple", "'replication_factor': '3'"), ("topology", "'datacenter1': '3'")] {
        let text = &client.texts(&format!("DESCRIBE KEYSPACE {name}"))[0][3];
        assert!(text.contains(factor), "{text}");
    }

    assert_eq!(asked.say(&["getguardrailsconfig", "tables_threshold"]), "[-1, -1]\n");
    asked.say(&["setguardrailsconfig", "tables_threshold", "9", "5"]);
    assert_eq!(asked.say(&["getguardrailsconfig", "tables_threshold"]), "[9, 5]\n");
    asked.say(&["setguardrailsconfig", "tables_threshold", "4", "2"]);
    let refused = asked.try_say(&["setguardrailsconfig", "tables_threshold", "3", "8"]).unwrap_err();
    assert!(refused.contains("should be lower than the fail threshold"), "{refused}");
    assert_eq!(asked.say(&["getguardrailsconfig", "tables_threshold"]), "[4, 2]\n", "both are as before");
    asked.say(&["setguardrailsconfig", "collection_size_threshold", "2MiB", "1MiB"]);
    asked.say(&["setguardrailsconfig", "collection_size_threshold", "null", "1MiB"]);
    assert_eq!(asked.say(&["getguardrailsconfig", "collection_size_threshold"]), "[null, 1MiB]\n");
    assert_eq!(asked.say(&["getguardrailsconfig", "sai_string_term_size_threshold"]), "[8KiB, 1KiB]\n");
    asked.say(&["setguardrailsconfig", "sai_string_term_size_threshold", "null", "null"]);
    assert_eq!(asked.say(&["getguardrailsconfig", "sai_string_term_size_threshold"]), "[null, null]\n");
    asked.say(&["setguardrailsconfig", "maximum_timestamp_threshold", "2d", "null"]);
    assert_eq!(asked.say(&["getguardrailsconfig", "maximum_timestamp_threshold"]), "[172800s, null]\n");
    asked.say(&["setguardrailsconfig", "group_by_enabled", "false"]);
    asked.say(&["setguardrailsconfig", "table_properties_warned", "cdc", "comment"]);
    let all = asked.say(&["getguardrailsconfig"]);
    assert!(all.lines().any(|line| line.split_whitespace().eq(["group_by_enabled", "false"])), "{all}");
    assert!(all.contains("[cdc,comment]"), "{all}");
    assert!(!asked.say(&["getguardrailsconfig", "-c", "flags"]).contains("_threshold"));
    let expanded = asked.say(&["getguardrailsconfig", "--expand", "tables_threshold"]);
    assert_eq!(expanded, "tables_fail_threshold 4\ntables_warn_threshold 2\n");
    for (arguments, expected) in [
        (&["setguardrailsconfig", "tables_threshold", "4"][..], "is expecting 2 argument values. Getting 1"),
        (&["setguardrailsconfig", "group_by_enabled", "maybe"], "Use 'true' or 'false'"),
        (&["setguardrailsconfig", "nope_enabled", "true"], "Guardrail nope_enabled not found."),
        (&["getguardrailsconfig", "nope"], "Guardrail nope not found."),
    ] {
        let refused = asked.try_say(arguments).unwrap_err();
        assert!(refused.contains(expected), "{arguments:?}: {refused}");
    }
}

#[test]
fn settings_change_while_the_node_runs() {
    let dir = tempfile::tempdir().unwrap();
    let node = setup(dir.path()).start();
    let asked = Asked::of(node.address);
    let mut clients = [node.client(0, Version::V4), node.client(1, Version::V4)];
    clients[0].create_keyspace();
    clients[0].query("CREATE TABLE ks.t (k int PRIMARY KEY, v text)");
    let mut shown = |name: &str| {
        let rows = clients.each_mut().map(|client| {
            client.texts(&format!("SELECT value FROM system_views.settings WHERE name = '{name}'"))
        });
        assert_eq!(rows[0], rows[1], "every shard shows the same");
        rows[0][0][0].clone()
    };

    assert_eq!(asked.say(&["gettimeout", "read"]), "Current timeout for type read: 5000 ms\n");
    assert_eq!(asked.say(&["settimeout", "read", "700"]), "");
    assert_eq!(asked.say(&["gettimeout", "read"]), "Current timeout for type read: 700 ms\n");
    assert_eq!(shown("read_request_timeout"), "700ms");
    assert!(asked.try_say(&["settimeout", "read", "0"]).unwrap_err().contains("at least 1ms"));
    assert!(asked.try_say(&["settimeout", "misc", "5"]).unwrap_err().contains("requires one of (read,"));

    asked.say(&["setcompactionthroughput", "8"]);
    assert_eq!(asked.say(&["getcompactionthroughput"]), "Current compaction throughput: 8 MB/s\n");
    asked.say(&["setstreamthroughput", "80"]);
    assert_eq!(asked.say(&["getstreamthroughput"]), "Current stream throughput: 80 Mb/s\n");
    asked.say(&["setstreamthroughput", "-m", "3"]);
    assert_eq!(asked.say(&["getstreamthroughput", "-m"]), "Current stream throughput: 3.0 MiB/s\n");
    assert!(asked.try_say(&["getstreamthroughput"]).unwrap_err().contains("Use the -d flag"));
    asked.say(&["setconcurrentcompactors", "4"]);
    assert!(asked.say(&["getconcurrentcompactors"]).ends_with("\n4\n"));
    assert!(asked.try_say(&["setconcurrentcompactors", "0"]).unwrap_err().contains("from 1 to 128"));
    asked.say(&["setmaxhintwindow", "60000"]);
    assert_eq!(asked.say(&["getmaxhintwindow"]), "Current max hint window: 60000 ms\n");
    asked.say(&["sethintedhandoffthrottlekb", "512"]);
    assert_eq!(shown("hinted_handoff_throttle"), "512KiB");
    asked.say(&["disablehandoff"]);
    assert_eq!(asked.say(&["statushandoff"]), "Hinted handoff is not running\n");
    asked.say(&["enablehandoff"]);
    assert_eq!(asked.say(&["statushandoff"]), "Hinted handoff is running\n");

    let backups = || {
        let tables = std::fs::read_dir(dir.path().join("data/ks")).unwrap();
        let table = tables.map(|entry| entry.unwrap().path()).next().expect("there is one table");
        std::fs::read_dir(table.join("backups")).map_or(0, Iterator::count)
    };
    let mut write = |k: i32| {
        clients[0].query(&format!("INSERT INTO ks.t (k, v) VALUES ({k}, 'v')"));
        asked.say(&["flush", "ks", "t"]);
        backups()
    };
    assert_eq!(write(1), 0);
    asked.say(&["enablebackup"]);
    let linked = write(2);
    assert!(linked > 0);
    asked.say(&["disablebackup"]);
    assert_eq!((write(3), asked.say(&["statusbackup"])), (linked, "not running\n".to_owned()));

    // Any other setting by its name; every shard uses it.
    let value = "v".repeat(2_000);
    let insert = |k: i32| format!("INSERT INTO ks.t (k, v) VALUES ({k}, '{value}')");
    let large = format!("BEGIN BATCH {}; {}; APPLY BATCH", insert(1), insert(2));
    clients.iter_mut().for_each(|client| drop(client.query(&large)));
    node.http(10000, "POST", "/v2/config/batch_size_warn_threshold?value=1KiB");
    node.http(10000, "POST", "/v2/config/batch_size_fail_threshold?value=1KiB");
    for client in &mut clients {
        assert_eq!(client.error(&large).message, "Batch too large");
    }
}

/// UPDATE of the tables that show settings, through any shard; without passwords anybody may.
#[test]
fn settings_change_by_cql() {
    let dir = tempfile::tempdir().unwrap();
    let node = setup(dir.path()).start();
    let asked = Asked::of(node.address);
    let mut clients = [node.client(0, Version::V4), node.client(1, Version::V4)];
    clients[1].query("UPDATE system_views.settings SET value = '900ms' WHERE name = 'read_request_timeout'");
    assert_eq!(asked.say(&["gettimeout", "read"]), "Current timeout for type read: 900 ms\n");
    clients[0].query("UPDATE system.config SET value = '7' WHERE name = 'tables_fail_threshold'");
    let shown = clients[1].texts("SELECT value FROM system.config WHERE name = 'tables_fail_threshold'");
    assert_eq!(shown, [["7"]]);
    // A string is quoted in ScyllaDB's table, and may be in an UPDATE.
    clients[0].query("UPDATE system.config SET value = '\"info,engine=debug\"' WHERE name = 'log_level'");
    let shown = clients[1].texts("SELECT value FROM system.config WHERE name = 'log_level'");
    assert_eq!(shown, [["\"info,engine=debug\""]]);
    let levels = asked.say(&["getlogginglevels"]);
    assert!(levels.contains("ROOT") && levels.contains("DEBUG"), "{levels}");
    asked.say(&["setlogginglevel", "engine", "WARN"]);
    asked.say(&["setlogginglevel", "ROOT", "ERROR"]);
    let shown = clients[0].texts("SELECT value FROM system_views.settings WHERE name = 'log_level'");
    assert_eq!(shown, [["error,engine=warn"]]);
    assert!(
        asked
            .try_say(&["setlogginglevel", "engine", "loud"])
            .unwrap_err()
            .contains("Unknown logging level loud")
    );
    assert!(
        asked.try_say(&["setlogginglevel", "nope", "INFO"]).unwrap_err().contains("Unknown logger name nope")
    );

    let mut refused = |name: &str, value: &str| {
        let text = format!("UPDATE system.config SET value = '{value}' WHERE name = '{name}'");
        clients[1].error(&text).message
    };
    assert!(refused("native_transport_port", "1").contains("cannot be changed while the node runs"));
    assert!(refused("read_request_timout", "1s").contains("did you mean 'read_request_timeout'?"));
    assert!(refused("concurrent_compactors", "0").contains("from 1 to 128"));
    assert!(refused("log_level", "info,engine=loud").contains("error, warn, info"));
}

/// A built index is in `system."IndexInfo"`, and can be made anew.
#[test]
fn indexes_are_shown_and_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let node = setup(dir.path()).start();
    let asked = Asked::of(node.address);
    let mut client = node.client(0, Version::V4);
    client.create_keyspace();
    client.query("CREATE TABLE ks.t (k int PRIMARY KEY, v int, w int)");
    for k in 0..50 {
        client.query(&format!("INSERT INTO ks.t (k, v, w) VALUES ({k}, {}, {k})", k % 5));
    }
    asked.say(&["flush", "ks"]);
    client.query("CREATE INDEX by_v ON ks.t (v)");
    client.query("CREATE CUSTOM INDEX by_w ON ks.t (w) USING 'sai'");
    let shown = "SELECT table_name, index_name FROM system.\"IndexInfo\"";
    let both = [["ks", "by_v"], ["ks", "by_w"]];
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while client.texts(shown) != both {
        assert!(std::time::Instant::now() < deadline, "{:?}", client.texts(shown));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    client.query(
        "CREATE MATERIALIZED VIEW ks.by_w_view AS SELECT * FROM ks.t WHERE w IS NOT NULL AND k IS NOT NULL PRIMARY KEY (w, k)",
    );
    let built = "SELECT view_name, status FROM system_distributed.view_build_status";
    while client.texts(built) != [["by_w_view", "SUCCESS"]] {
        assert!(std::time::Instant::now() < deadline, "{:?}", client.texts(built));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(asked.say(&["rebuild_index", "ks", "t", "by_v", "t.by_w"]), "");
    assert_eq!(client.texts(shown), both);
    assert_eq!(client.texts("SELECT k FROM ks.t WHERE v = 3").len(), 10);
    assert_eq!(asked.say(&["verifyindex", "ks", "t"]), "");
    let verified = asked.json(&["verifyindex", "--repair", "ks"]);
    let report = verified["tables"].as_array().into_iter().flatten().find(|report| report["table"] == "t");
    assert!(report.is_some_and(|report| report["sstables"].as_u64() > Some(0)), "{verified}");
    let refused = |arguments: &[&str]| asked.try_say(arguments).unwrap_err();
    assert!(refused(&["rebuild_index", "ks", "t", "by_x"]).contains("there is no index by_x on table ks.t"));
    assert!(refused(&["rebuild_index", "ks", "u", "by_v"]).contains("there is no table ks.u"));
}

/// The compactions that have ended, and their figures; and a node that is stopped.
#[test]
fn compactions_are_shown_and_the_node_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let node = setup(dir.path()).shards(1).start();
    let asked = Asked::of(node.address);
    assert!(asked.say(&["compactionstats"]).contains("pending tasks                 0"));
    let mut client = node.client(0, Version::V4);
    client.create_keyspace();
    client.query("CREATE TABLE ks.t (k int PRIMARY KEY, v int)");
    for v in 0..2 {
        client.query(&format!("INSERT INTO ks.t (k, v) VALUES (1, {v})"));
        asked.say(&["flush", "ks", "t"]);
    }
    asked.say(&["compact", "ks", "t"]);
    let history = asked.say(&["compactionhistory"]);
    let line = history.lines().find(|line| line.contains(" ks ")).unwrap_or_else(|| panic!("{history}"));
    assert!(line.contains(" t ") && line.contains("{2:1}"), "{history}");
    let stats = asked.say(&["compactionstats", "-H"]);
    assert!(!stats.contains("compactions completed         0"), "{stats}");
    let clients = asked.say(&["clientstats", "--all"]);
    assert!(clients.contains("Total connected clients: 1\n"), "{clients}");
    assert!(clients.contains(" false undefined undefined 4       anonymous"), "{clients}");
    assert!(asked.say(&["clientstats"]).starts_with("Total connected clients: 1\n"));
    assert!(asked.say(&["getseeds"]).ends_with("any remote node IPs\n"));
    assert_eq!(asked.say(&["statusbinary"]), "running\n");
    assert_eq!(asked.say(&["statusgossip"]), "running\n");
    assert_eq!(asked.say(&["stopdaemon"]), "");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while asked.try_say(&["version"]).is_ok() {
        assert!(std::time::Instant::now() < deadline, "it still runs");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// Two nodes may share an address, with ports of their own.
#[test]
fn nodes_that_share_an_address_are_distinguished() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let first = setup(dirs[0].path()).shards(1).option("num_tokens", "4").option("rack", "r1");
    let address = first.address.to_string();
    let seeds = format!("{address}:7000");
    let _first = first.option("seeds", &seeds).start();
    let second = Setup { address: address.parse().unwrap(), ..Setup::new(dirs[1].path()) }.shards(1);
    let ports = [
        ("storage_port", "7100"),
        ("native_transport_port", "9142"),
        ("api_port", "10100"),
        ("prometheus_port", "9280"),
        ("native_shard_aware_transport_port", "0"),
        ("alternator_port", "0"),
    ];
    let second = ports.iter().fold(second, |setup, (port, number)| setup.option(port, number));
    let places = [("api_address", &address[..]), ("seeds", &seeds), ("num_tokens", "6"), ("rack", "r2")];
    let second = places.iter().fold(second, |setup, (name, value)| setup.option(name, value)).start();
    for asked in [&[][..], &["-p", "10100"]] {
        let said =
            tool(&[&["-h", &address, "status", "--format", "json"], asked].concat()).expect("it answers");
        let status: serde_json::Value = serde_json::from_str(&said).unwrap();
        let nodes = status["datacenters"][0]["nodes"].as_array().expect("a list");
        let each: Vec<_> =
            nodes.iter().map(|node| (node["tokens"].as_u64(), node["rack"].as_str())).collect();
        assert_eq!(each, [(Some(4), Some("r1")), (Some(6), Some("r2"))], "{said}");
        assert_ne!(nodes[0]["host_id"], nodes[1]["host_id"]);
        let owned: f64 = nodes.iter().filter_map(|node| node["owns"].as_f64()).sum();
        assert!((owned - 1.0).abs() < 1e-9 && nodes[0]["owns"] != nodes[1]["owns"], "{said}");
        let ring = tool(&[&["-h", &address, "ring"], asked].concat()).expect("it answers");
        assert_eq!((ring.matches(" r1 ").count(), ring.matches(" r2 ").count()), (4, 6), "{ring}");
    }
    // The dead one is down, and the one beside it is not.
    second.kill();
    let _ = wait_for(|| {
        let said = tool(&["-h", &address, "status"]).expect("it answers");
        (said.contains("UN  ") && said.contains("DN  ")).then_some(said)
    });
}

/// Waits for a result.
fn wait_for<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let begun = std::time::Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "it did not come");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
}

#[test]
fn every_answer_can_be_had_as_json() {
    let dir = tempfile::tempdir().unwrap();
    let node = setup(dir.path()).start();
    let asked = Asked::of(node.address);
    let mut client = node.any_client();
    client.create_keyspace();
    client.query("CREATE TABLE ks.t (k int PRIMARY KEY)");
    client.query("CREATE TABLE ks.based (k int PRIMARY KEY, v int)");
    client.query(
        "CREATE MATERIALIZED VIEW ks.v AS SELECT * FROM ks.based WHERE v IS NOT NULL AND k IS NOT NULL PRIMARY KEY (v, k)",
    );
    let _ = wait_for(|| {
        // It ends with an error while the view is being built.
        asked.try_say(&["viewbuildstatus", "ks.v"]).ok().inspect(|said| {
            assert_eq!(said, "ks.v has finished building\n");
        })
    });
    for line in [
        "bootstrap",
        "describecluster",
        "describering ks",
        "describering ks t",
        "getendpoints ks t 5",
        "gettraceprobability",
        "gossipinfo",
        "info",
        "listsnapshots",
        "netstats",
        "proxyhistograms",
        "removenode status",
        "repair ks",
        "repair -pl -iuk -j 2 ks",
        "repair_admin list",
        "ring",
        "snapshot -t one ks",
        "clearsnapshot -t one",
        "snapshot -t two -kt ks.t,ks.based",
        "status",
        "tablestats",
        "-u me -pw x cfstats -pp ks",
        "cfhistograms ks t",
        "toppartitions ks t 10",
        "toppartitions -d 10",
        "toppartitions -d=10 --cf-filters ks:t,ks:based",
        "tpstats",
        "version",
        "viewbuildstatus ks v",
        "verifyview ks v --pause 50",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(!asked.json(&words).is_null(), "{line}");
    }
    for line in [
        "cleanup -j 2",
        "compact -s --flush-memtables false ks",
        "compact",
        "flush",
        "settraceprobability 0.5",
        "drain",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(asked.json(&words).is_null(), "{line} has nothing to say");
    }
    assert_eq!(asked.say(&["gettraceprobability"]), "Current trace probability: 0.5\n");
    let refused = asked.try_say(&["settraceprobability", "2", "--format", "json"]).unwrap_err();
    assert!(refused.contains("trace probability must be from 0 to 1, not 2"), "{refused}");
}

#[test]
fn snapshots_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let node = setup(dir.path()).start();
    let asked = Asked::of(node.address);
    let mut client = node.any_client();
    client.create_keyspace();
    client.query("CREATE TABLE ks.t (k int PRIMARY KEY)");
    client.query("INSERT INTO ks.t (k) VALUES (1)");
    assert_eq!(asked.say(&["listsnapshots"]), "Snapshot Details: \nThere are no snapshots\n");
    let taken = asked.say(&["snapshot", "-t", "one", "ks"]);
    assert_eq!(
        taken,
        "Requested creating snapshot(s) for [ks] with snapshot name [one] and options {skipFlush=false}\nSnapshot directory: one\n"
    );
    let tables = std::fs::read_dir(dir.path().join("data/ks")).unwrap();
    let parts: Vec<_> = tables.map(|table| table.unwrap().path().join("snapshots/one")).collect();
    let schema = std::fs::read_to_string(parts[0].join("schema.cql")).unwrap();
    assert!(schema.starts_with("CREATE TABLE IF NOT EXISTS ks.t (\n    k int"), "{schema}");
    assert!(schema.contains(") WITH ID = "), "{schema}");
    let manifest: serde_json::Value =
        serde_json::from_slice(&std::fs::read(parts[0].join("manifest.json")).unwrap()).unwrap();
    for file in manifest["files"].as_array().unwrap() {
        assert!(parts[0].join(file.as_str().unwrap()).exists(), "{manifest}");
    }
    let again = asked.try_say(&["snapshot", "-t", "one", "ks"]).unwrap_err();
    assert!(again.contains("one"), "{again}");
    let list = asked.json(&["listsnapshots"]);
    let row = &list["snapshots"][0];
    assert_eq!((row["snapshot_name"].as_str(), row["column_family_name"].as_str()), (Some("one"), Some("t")));
    assert_eq!(row["true_size"], 0, "the table still has the files");
    assert!(row["size_on_disk"].as_u64() > Some(100));
    client.query("INSERT INTO ks.t (k) VALUES (2)");
    asked.say(&["flush", "ks"]);
    asked.say(&["compact", "ks"]);
    // Rows that compaction has removed from the table are only in the snapshot. Files are removed one after the other behind it.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let mut kept = None;
    while kept <= Some(100) {
        assert!(std::time::Instant::now() < deadline, "{kept:?}");
        kept = asked.json(&["listsnapshots"])["snapshots"][0]["true_size"].as_u64();
    }
    assert!(asked.try_say(&["clearsnapshot"]).unwrap_err().contains("Specify snapshot name or --all"));
    // The directory of a snapshot is removed with all that is in it: a name that leads elsewhere is none.
    for name in ["..", ".", "../..", dir.path().to_str().unwrap()] {
        let refusal = asked.try_say(&["clearsnapshot", "-t", name]).unwrap_err();
        assert!(refusal.contains("a tag that can be a directory's name"), "{name}: {refusal}");
    }
    asked.say(&["clearsnapshot", "-t", "one"]);
    assert_eq!(asked.say(&["listsnapshots"]), "Snapshot Details: \nThere are no snapshots\n");
}

#[test]
fn a_drained_node_serves_no_more_and_has_all_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let node = setup(dir.path()).start();
    let asked = Asked::of(node.address);
    let mut client = node.any_client();
    client.create_keyspace();
    client.query("CREATE TABLE ks.t (k int PRIMARY KEY)");
    client.query("INSERT INTO ks.t (k) VALUES (1)");
    assert_eq!(asked.say(&["drain"]), "");
    assert!(asked.say(&["netstats"]).starts_with("Mode: DRAINED\n"));
    assert_eq!(asked.json(&["info"])["native_transport_active"], false);
    let table = &asked.json(&["tablestats", "ks.t"])["ks"]["tables"]["t"];
    assert_eq!((table["memtable_cell_count"].as_u64(), table["sstable_count"].as_u64()), (Some(0), Some(1)));
    let refused = std::net::TcpStream::connect((node.address, 9042));
    assert!(refused.is_err(), "no client gets in");
    assert_eq!(asked.say(&["drain"]), "", "once more is no error");
    assert!(node.stop().success());
    let node = setup(dir.path()).start();
    node.any_client().query("SELECT * FROM ks.t WHERE k = 1");
}

#[test]
fn invalid_arguments_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = setup(dir.path()).start();
    let asked = Asked::of(node.address);
    for (arguments, said) in [
        (&["flush", "nope"][..], "Can't find a keyspace nope"),
        (&["compact", "system", "nope"], "Can't find a column family nope in keyspace system"),
        (&["status", "nope"], "The keyspace nope, does not exist"),
        (&["ring", "nope"], "The keyspace nope, does not exist"),
        (&["describering", "nope"], "The keyspace nope, does not exist"),
        (&["getendpoints", "nope", "t", "5"], "The keyspace nope, does not exist"),
        (&["getendpoints", "system", "nope", "5"], "Can't find a column family nope in keyspace system"),
        (&["viewbuildstatus", "nope", "v"], "Can't find a keyspace nope"),
        (&["viewbuildstatus", "system.local"], "Can't find a materialized view local in keyspace system"),
        (&["viewbuildstatus", "system"], "viewbuildstatus requires keyspace and view name arguments"),
        (&["tablestats", "nope"], "Unknown keyspace: nope"),
        (&["tablestats", "system.nope"], "Unknown tables: nope in keyspace: system"),
        (&["snapshot", "-t", "a/b", "system"], "a snapshot needs a tag that can be a directory's name"),
        (&["snapshot", "--table", "t"], "you must specify one and only one keyspace"),
        (&["snapshot", "-t", "x", "nope"], "Can't find a keyspace nope"),
        (&["clearsnapshot", "-t", "x", "--all"], "Specify only one of snapshot name or --all"),
        (&["frobnicate"], "unrecognized subcommand 'frobnicate'"),
        (&["describering"], "<keyspace>"),
    ] {
        let error = asked.try_say(arguments).expect_err(said);
        assert!(error.contains(said), "{arguments:?} said {error}");
    }
    // Another port of the node does not answer this tool's HTTP.
    let other = asked.try_say(&["-p", "9042", "version"]).unwrap_err();
    assert!(other.contains("is not HTTP"), "{other}");
    let address = node.address.to_string();
    node.kill();
    let gone = tool(&["-h", &address, "status"]).unwrap_err();
    let expected = format!("torc: Failed to connect to '{address}:10000': nothing listens there");
    assert!(gone.starts_with(&expected), "{gone}");
    let nowhere = tool(&["-h", "no.such.host.invalid", "status"]).unwrap_err();
    assert!(nowhere.starts_with("torc: Failed to connect to 'no.such.host.invalid:10000'"), "{nowhere}");
}

/// Removes the SSTables of a table of `ks`, as an accident would.
fn lose_files(dir: &Path, table: &str) {
    let mut lost = 0;
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a directory") {
            let path = entry.expect("an entry").path();
            let is_of = |path: &Path| {
                path.parent()
                    .and_then(Path::file_name)
                    .is_some_and(|name| name.to_string_lossy().starts_with(&format!("{table}-")))
            };
            if path.is_dir() {
                folders.push(path);
            } else if is_of(&path) {
                std::fs::remove_file(path).expect("it can be removed");
                lost += 1;
            }
        }
    }
    assert!(lost > 0, "{table} has files");
}

#[test]
fn a_log_of_changes_is_verified() {
    let dir = tempfile::tempdir().unwrap();
    let node = setup(dir.path()).start();
    let mut client = node.any_client();
    client.create_keyspace();
    client.query("CREATE TABLE ks.t (k int, c int, s text STATIC, v int, l list<int>, PRIMARY KEY (k, c))");
    client.query("INSERT INTO ks.t (k, c, v) VALUES (0, 0, 0)");
    let asked = Asked::of(node.address);
    let error = asked.try_say(&["verifycdc", "ks", "t"]).expect_err("there is no log");
    assert!(error.contains("changes of table ks.t are not captured: CDC is not enabled"), "{error}");
    client.query("ALTER TABLE ks.t WITH cdc = {'enabled': true, 'postimage': true}");
    for k in 0..20 {
        client.query(&format!("INSERT INTO ks.t (k, c, s, v, l) VALUES ({k}, 1, 'static', {k}, [1, 2])"));
        client.query(&format!("UPDATE ks.t USING TTL 1000 SET v = 5, l = l + [3] WHERE k = {k} AND c = 2"));
        client.query(&format!("DELETE l[0] FROM ks.t WHERE k = {k} AND c = 1"));
    }
    client.query("DELETE FROM ks.t WHERE k = 3");
    client.query("DELETE FROM ks.t WHERE k = 4 AND c > 1");
    client.query("UPDATE ks.t SET v = 7 WHERE k = 5 AND c = 1 IF v = 5");
    client.query("UPDATE ks.t SET v = 7 WHERE k = 6 AND c = 1 IF v = 6");
    // The row of before the log is not expected in it.
    let said = asked.say(&["verifycdc", "ks.t"]);
    assert!(said.starts_with("ks.t: 38 rows of the table and 85 rows of its log compared in "), "{said}");
    assert!(said.ends_with("unlogged: 0, unapplied: 0, unsettled: 0\n"), "{said}");
    let since = asked.json(&["verifycdc", "ks", "t_scylla_cdc_log", "--since", "4000000000"]);
    assert_eq!((&since["base_rows"], &since["log_rows"]), (&38.into(), &0.into()), "{since}");
    let error = asked.try_say(&["verifycdc", "ks", "u"]).expect_err("there is no such table");
    assert!(error.contains("Can't find a table u in keyspace ks"), "{error}");
    client.query(
        "CREATE TABLE ks.keys (k int PRIMARY KEY, v int) WITH cdc = {'enabled': true, 'delta': 'keys'}",
    );
    let error = asked.try_say(&["verifycdc", "ks", "keys"]).expect_err("it has no values");
    assert!(error.contains("the log has keys only"), "{error}");

    // Without the files of the log, every value of the table is missing in it, but for that of before.
    assert_eq!(asked.say(&["drain"]), "");
    assert!(node.stop().success());
    lose_files(dir.path(), "t_scylla_cdc_log");
    let node = setup(dir.path()).start();
    let asked = Asked::of(node.address);
    assert!(asked.try_say(&["verifycdc", "ks", "t", "--pause", "100"]).is_err(), "it ends with status 1");
    let found = asked.json_of_failed(&["verifycdc", "ks", "t", "--pause", "100", "--limit", "3"]);
    assert_eq!((&found["log_rows"], &found["unapplied"]), (&0.into(), &0.into()), "{found}");
    // 37 rows and the static rows of 19 partitions.
    assert_eq!(found["unlogged"], 37 + 19, "{found}");
    assert_eq!(found["differences"].as_array().map(Vec::len), Some(3));
    drop(node);
}

#[test]
fn a_view_is_verified_and_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let node = setup(dir.path()).start();
    let mut client = node.any_client();
    client.create_keyspace();
    client.query("CREATE TABLE ks.based (k int PRIMARY KEY, v text, w int)");
    client.query(
        "CREATE MATERIALIZED VIEW ks.viewed AS SELECT * FROM ks.based WHERE v IS NOT NULL AND k IS NOT NULL PRIMARY KEY (v, k)",
    );
    (0..40).for_each(|k| {
        drop(client.query(&format!("INSERT INTO ks.based (k, v, w) VALUES ({k}, 'value {k}', {k})")));
    });
    let asked = Asked::of(node.address);
    fn verify<'a>(more: &[&'a str]) -> Vec<&'a str> {
        [&["verifyview", "ks", "viewed", "--pause", "100"], more].concat()
    }
    let said = asked.say(&verify(&[]));
    assert!(
        said.starts_with("ks.viewed: 40 rows of the base and 40 rows of the view compared in "),
        "{said}"
    );
    assert!(said.ends_with("missing: 0, wrong: 0, ghosts: 0, repaired: 0, unsettled: 0\n"), "{said}");
    assert_eq!(asked.json(&["verifyview", "ks.viewed", "-pr"])["base_rows"], 40);
    assert_eq!(asked.json(&verify(&["-st", "0"]))["parts"], 256);
    for (more, why) in [
        (&["-st", "5", "-et", "5"][..], "start_token must be below end_token"),
        (&["-st", "x"], "start_token is a token, not x"),
        (&["-pr", "-st", "1"], "name either the primary range or tokens"),
        (&["--rows-per-second", "0"], "rows_per_second is 0; it must be a number from 1 to"),
    ] {
        let error = asked.try_say(&verify(more)).expect_err(why);
        assert!(error.contains(why), "{more:?} said {error}");
    }
    let error = asked.try_say(&["verifyview", "ks", "based"]).expect_err("a table is no view");
    assert!(error.contains("Can't find a materialized view based in keyspace ks"), "{error}");

    assert_eq!(asked.say(&["drain"]), "");
    assert!(node.stop().success());
    lose_files(dir.path(), "viewed");
    let node = setup(dir.path()).start();
    let asked = Asked::of(node.address);
    assert!(asked.try_say(&verify(&[])).is_err(), "it ends with status 1");
    let found = asked.json_of_failed(&verify(&["--limit", "3"]));
    assert_eq!((&found["missing"], &found["ghosts"]), (&40.into(), &0.into()), "{found}");
    assert_eq!(found["differences"].as_array().map(Vec::len), Some(3));
    let said = asked.say(&verify(&["--repair"]));
    assert!(said.contains("missing: 40, wrong: 0, ghosts: 0, repaired: 40, unsettled: 0\n"), "{said}");
    assert!(said.contains("missing: v = value 7, k = 7 (repaired)\n"), "{said}");
    asked.say(&verify(&[]));

    assert_eq!(asked.say(&["drain"]), "");
    assert!(node.stop().success());
    lose_files(dir.path(), "based");
    let node = setup(dir.path()).start();
    let asked = Asked::of(node.address);
    let found = asked.json_of_failed(&verify(&[]));
    assert_eq!((&found["missing"], &found["ghosts"]), (&0.into(), &40.into()), "{found}");
    asked.say(&verify(&["--repair"]));
    let said = asked.say(&verify(&[]));
    assert!(said.starts_with("ks.viewed: 0 rows of the base and 0 rows of the view compared in "), "{said}");
}

/// The audit log is enabled while the node runs; each shard writes its own file.
#[test]
fn requests_are_audited() {
    let dir = tempfile::tempdir().unwrap();
    let node = setup(dir.path()).start();
    let asked = Asked::of(node.address);
    let mut clients = [node.client(0, Version::V4), node.client(1, Version::V4)];
    let create = "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}";
    clients[0].query(create);
    asked.say(&["enableauditlog", "--excluded-categories", "PREPARE"]);
    let shown = asked.say(&["getauditlog"]);
    assert!(shown.contains("excluded_categories                 PREPARE\n"), "{shown}");
    clients[0].query("CREATE TABLE ks.t (k int PRIMARY KEY, v text)");
    clients[1].query("INSERT INTO ks.t (k, v)\nVALUES (1, 'a')");
    clients[0].query("SELECT * FROM ks.t");
    clients[0].query("SELECT * FROM system.local");
    clients[1].error("SELECT * FROM ks.nosuch");
    clients[1].error("SELEKT");
    let prepared = clients[0].prepare("SELECT v FROM ks.t WHERE k = ?");
    clients[0].executed_rows(&prepared, &[&1_i32.to_be_bytes()]);
    asked.say(&["disableauditlog"]);
    clients[0].query("SELECT k FROM ks.t");
    node.stop();
    let read = |shard: u16| {
        std::fs::read_to_string(dir.path().join(format!("audit/audit-{shard}.log"))).unwrap_or_default()
    };
    let lines = format!("{}{}", read(0), read(1));
    let has = |end: &str| assert!(lines.lines().any(|line| line.contains(end)), "no {end} in:\n{lines}");
    has(
        "|type:CREATE_TABLE|category:DDL|ks:ks|scope:t|operation:CREATE TABLE ks.t (k int PRIMARY KEY, v text)",
    );
    has("|type:UPDATE|category:DML|ks:ks|scope:t|operation:INSERT INTO ks.t (k, v) VALUES (1, 'a')");
    has("|type:SELECT|category:QUERY|ks:ks|scope:t|operation:SELECT * FROM ks.t");
    has("|type:REQUEST_FAILURE|category:ERROR|operation:SELECT * FROM ks.nosuch; ");
    has("|type:REQUEST_FAILURE|category:ERROR|operation:SELEKT; a syntax error");
    has("|type:SELECT|category:QUERY|ks:ks|scope:t|operation:SELECT v FROM ks.t WHERE k = ?");
    assert!(lines.starts_with("user:anonymous|host:127."), "{lines}");
    for unwanted in ["system.local", "SELECT k FROM", "PREPARE_STATEMENT", "CREATE KEYSPACE"] {
        assert!(!lines.contains(unwanted), "{unwanted} in:\n{lines}");
    }
}

/// Entries go to syslog in the place of files: those of logins, a statement, and a request of the DynamoDB API.
#[test]
fn requests_are_audited_to_syslog() {
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let target = udp.local_addr().unwrap().to_string();
    let audited = |dir: &Path| {
        setup(dir)
            .option("audit_logging_options_enabled", "true")
            .option("audit_logging_options_logger", "SyslogAuditLogger")
            .option("audit_logging_options_syslog_target", &target)
    };
    let received = |wanted: &str| {
        let mut bytes = [0; 9_000];
        loop {
            let len = udp.recv(&mut bytes).unwrap_or_else(|error| panic!("no {wanted}: {error}"));
            let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
            let is_entry = text.starts_with("<109>1 20") && text.contains(" AUDIT - user:");
            assert!(is_entry, "{text}");
            if text.contains(wanted) {
                return text;
            }
        }
    };
    let dir = tempfile::tempdir().unwrap();
    let node = audited(dir.path()).option("authenticator", "PasswordAuthenticator").start();
    let address = (node.address, 9042).into();
    assert!(Client::log_in(address, "cassandra", "wrong").is_err());
    assert!(received("|type:LOGIN_ERROR|category:AUTH|").contains("LOGIN FAILURE"));
    let mut client = Client::log_in(address, "cassandra", "cassandra").expect("the password is right");
    assert!(received("|type:LOGIN_SUCCESS|category:AUTH|").contains("user:cassandra|"));
    client.create_keyspace();
    assert!(received("|type:CREATE_KEYSPACE|category:DDL|ks:ks|").contains("user:cassandra|"));
    assert!(!dir.path().join("audit").exists(), "there are no files");

    let dir = tempfile::tempdir().unwrap();
    let node = audited(dir.path()).option("alternator_port", "8000").start();
    let mut stream = std::net::TcpStream::connect((node.address, 8000)).unwrap();
    let head = "POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/x-amz-json-1.0\r\n\
                x-amz-target: DynamoDB_20120810.DescribeTable\r\ncontent-length: 22\r\n\r\n{\"TableName\":\"nosuch\"}";
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("ResourceNotFoundException"), "{answer}");
    assert!(received("DescribeTable").contains("|category:"), "the operation is in an entry");
}

/// Entries go to the table of ScyllaDB: those of logins, of statements with their consistency level, and of failures.
#[test]
fn requests_are_audited_to_a_table() {
    let dir = tempfile::tempdir().unwrap();
    let node = setup(dir.path())
        .option("audit_logging_options_enabled", "true")
        .option("audit_logging_options_logger", "TableAuditLogger")
        .option("audit_logging_options_excluded_keyspaces", "audit,system,system_schema")
        .option("authenticator", "PasswordAuthenticator")
        .start();
    let address = (node.address, 9042).into();
    assert!(Client::log_in(address, "cassandra", "wrong").is_err());
    let mut client = Client::log_in(address, "cassandra", "cassandra").expect("the password is right");
    client.create_keyspace();
    client.query("CREATE TABLE ks.t (k int PRIMARY KEY)");
    client.query("CREATE ROLE ann WITH PASSWORD = 'secret'");
    client.query("INSERT INTO ks.t (k) VALUES (1)");
    let begun = std::time::Instant::now();
    let text =
        |cell: &Option<Vec<u8>>| String::from_utf8_lossy(cell.as_deref().unwrap_or_default()).into_owned();
    let columns =
        "category, table_name, keyspace_name, username, operation, consistency, error, date, event_time";
    let rows = loop {
        let rows = client.rows(&format!("SELECT {columns} FROM audit.audit_log"));
        if rows.iter().any(|row| text(&row[4]).starts_with("INSERT")) {
            break rows;
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(20), "the entries are not there: {rows:?}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    let of = |operation: &str| {
        let row = rows.iter().find(|row| text(&row[4]).starts_with(operation));
        let row = row.unwrap_or_else(|| panic!("no {operation} in {rows:?}"));
        let fields: Vec<String> = row[..4].iter().map(text).collect();
        (fields.join(","), row[6].clone().unwrap_or_default())
    };
    assert_eq!(of("LOGIN FAILURE"), ("AUTH,,,cassandra".to_owned(), vec![1]));
    assert_eq!(of("LOGIN SUCCESSFUL"), ("AUTH,,,cassandra".to_owned(), vec![0]));
    assert_eq!(of("CREATE KEYSPACE ks"), ("DDL,,ks,cassandra".to_owned(), vec![0]));
    assert_eq!(of("INSERT INTO ks.t"), ("DML,t,ks,cassandra".to_owned(), vec![0]));
    let insert = rows.iter().find(|row| text(&row[4]).starts_with("INSERT")).expect("it was there");
    assert_eq!(text(&insert[5]), "ONE");
    assert!(rows.iter().all(|row| !text(&row[4]).contains("secret")), "passwords are left out");
}

/// ScyllaDB's options: a table and a socket at once, categories with keyspaces and tables, changed while the node runs.
#[test]
fn requests_are_audited_by_the_options_of_scylladb() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let patience = std::time::Duration::from_secs(20);
    socket.set_read_timeout(Some(patience)).unwrap();
    let message = || {
        let mut bytes = vec![0; 65_536];
        let len = socket.recv(&mut bytes).expect("a message");
        String::from_utf8(bytes[..len].to_vec()).expect("text")
    };
    let node = setup(dir.path())
        .option("audit", "table,syslog")
        .option("audit_unix_socket_path", path.to_str().unwrap())
        .option("audit_categories", "AUTH,DDL,DML,ADMIN")
        .option("audit_tables", "ks.t")
        .option("authenticator", "PasswordAuthenticator")
        .start();
    let address = (node.address, 9042).into();
    assert!(Client::log_in(address, "cassandra", "wrong").is_err());
    let failed = message();
    assert!(failed.contains("scylla-audit: node=\"") && failed.contains("category=\"AUTH\""), "{failed}");
    assert!(failed.contains("error=\"true\"") && failed.contains("username=\"cassandra\""), "{failed}");
    let mut client = Client::log_in(address, "cassandra", "cassandra").expect("the password is right");
    assert!(message().contains("error=\"false\""));
    client.create_keyspace();
    client.query("CREATE ROLE ann WITH PASSWORD = 'secret'");
    client.query("CREATE TABLE ks.t (k int PRIMARY KEY)");
    let made = message();
    assert!(
        made.contains("category=\"DDL\"") && made.contains("CREATE TABLE ks.t"),
        "neither keyspace nor role: {made}"
    );
    client.query("CREATE TABLE ks.u (k int PRIMARY KEY)");
    client.query("INSERT INTO ks.u (k) VALUES (1)");
    client.query("SELECT * FROM ks.t");
    client.query("BEGIN BATCH INSERT INTO ks.u (k) VALUES (1); INSERT INTO ks.t (k) VALUES (2); APPLY BATCH");
    let batch = message();
    assert!(batch.contains("category=\"DML\"") && batch.contains("BEGIN BATCH"), "{batch}");
    client.error("INSERT INTO ks.t (k) VALUES (null)");
    let refused = message();
    assert!(refused.contains("category=\"DML\"") && refused.contains("error=\"true\""), "{refused}");
    let both = "UPDATE system_views.settings SET value = 'true' WHERE name = 'audit_logging_options_enabled'";
    let conflict = client.error(both);
    assert!(conflict.message.contains("two audit logs"), "{conflict:?}");
    client.query("UPDATE system_views.settings SET value = 'QUERY' WHERE name = 'audit_categories'");
    client.query("TRUNCATE ks.t");
    client.query("SELECT k FROM ks.t");
    let read = message();
    assert!(read.contains("category=\"QUERY\"") && read.contains("query=\"SELECT k FROM ks.t\""), "{read}");

    let begun = std::time::Instant::now();
    let entries = loop {
        let entries =
            client.texts("SELECT category, keyspace_name, table_name, operation FROM audit.audit_log");
        if entries.iter().any(|entry| entry[0] == "QUERY") {
            break entries;
        }
        assert!(begun.elapsed() < patience, "the entries are not there: {entries:?}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    let has = |entry: [&str; 4]| entries.iter().any(|one| *one == entry);
    assert!(has(["AUTH", "", "", "LOGIN"]), "{entries:?}");
    assert!(has(["DML", "ks", "t", "INSERT INTO ks.t (k) VALUES (null)"]), "{entries:?}");
    assert!(has(["QUERY", "ks", "t", "SELECT k FROM ks.t"]), "{entries:?}");
    assert_eq!(entries.len(), 6, "{entries:?}");
}

/// Tables about the statements, batches, log and indexes of a node.
#[test]
fn virtual_tables_show_what_runs() {
    let dir = tempfile::tempdir().unwrap();
    let node = setup(dir.path()).start();
    let mut client = node.client(0, Version::V4);
    client.create_keyspace();
    client.query("CREATE TABLE ks.t (k int PRIMARY KEY, v text)");
    client.query("CREATE INDEX tv ON ks.t (v) USING 'sai' WITH OPTIONS = {'case_sensitive': 'false'}");
    client.query("BEGIN BATCH INSERT INTO ks.t (k) VALUES (1); INSERT INTO ks.t (k) VALUES (2); APPLY BATCH");
    let max =
        client.rows("SELECT max FROM system_views.batch_metrics WHERE name = 'partitions_per_logged_batch'");
    assert_eq!(max, [[Some(2_i64.to_be_bytes().to_vec())]]);
    let own = "SELECT task FROM system_views.queries";
    assert_eq!(client.texts(own), [[format!("QUERY {own} [pageSize = -1] at consistency ONE")]]);
    assert_eq!(client.texts(own).len(), 1, "those that have ended are not listed");
    let prepared = client.prepare(own);
    let rows = client.executed_rows(&prepared, &[]).to_vec().unwrap();
    let text = String::from_utf8(rows[0][0].clone().unwrap()).unwrap();
    assert!(text.starts_with(&format!("EXECUTE {own} [pageSize")), "{text}");
    let rows = client.rows_when_available(
        "SELECT is_queryable, is_string FROM system_views.sai_column_indexes WHERE keyspace_name = 'ks'",
    );
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0][1], Some(vec![1]), "{rows:?}");
    client.query("UPDATE system_views.settings SET value = '901ms' WHERE name = 'read_request_timeout'");
    let lines = client.texts("SELECT level, logger, message FROM system_views.system_logs");
    let line = lines.iter().find(|line| line[2].contains("read_request_timeout is 901ms from now on"));
    assert_eq!(
        line.map(|line| (line[0].as_str(), line[1].as_str())),
        Some(("INFO", "server::settings")),
        "{lines:?}"
    );
}

/// Work on SSTables, which reports damage, and is stopped.
#[test]
fn sstables_are_rewritten_and_verified() {
    let dir = tempfile::tempdir().unwrap();
    let node = setup(dir.path()).start();
    let asked = Asked::of(node.address);
    let mut client = node.any_client();
    client.create_keyspace();
    client.query(
        "CREATE TABLE ks.t (k int, c int, v text, PRIMARY KEY (k, c)) WITH compression = {'enabled': false}",
    );
    let fill = |client: &mut Client, text: &str| {
        for (k, c) in (0..40).flat_map(|k| (0..5).map(move |c| (k, c))) {
            client.query(&format!(
                "INSERT INTO ks.t (k, c, v) VALUES ({k}, {c}, '{text} {}')",
                "x".repeat(2_000)
            ));
        }
    };
    asked.say(&["disableautocompaction", "ks"]);
    fill(&mut client, "old");
    asked.say(&["flush", "ks"]);
    fill(&mut client, "new");
    (0..10).for_each(|k| drop(client.query(&format!("DELETE FROM ks.t WHERE k = {k}"))));
    asked.say(&["flush", "ks"]);
    let bytes = || {
        let tables = asked.json(&["tablestats", "ks.t"]);
        tables["ks"]["tables"]["t"]["space_used_live"].as_u64().unwrap()
    };
    let before = bytes();
    assert_eq!(asked.say(&["garbagecollect", "-g", "cell", "ks", "t"]), "");
    assert!(bytes() < before * 2 / 3, "{} of {before}", bytes());
    assert_eq!(asked.say(&["upgradesstables", "-a", "ks"]), "");
    assert_eq!(asked.say(&["verify", "-e", "ks", "t"]), "");
    assert_eq!(asked.say(&["scrub", "-ns", "ks"]), "");
    assert!(!asked.say(&["listsnapshots"]).contains("pre-scrub"));
    assert_eq!(asked.say(&["stop", "COMPACTION"]), "");
    let nobody = "No compaction has this id; it may have ended.\n";
    assert_eq!(asked.say(&["stop", "-id", "01010101-0101-0101-0101-010101010101"]), nobody);
    assert!(asked.try_say(&["stop"]).unwrap_err().contains("name either the type"));
    assert_eq!(asked.say(&["stop", "RESHAPE"]), "", "no such work runs");
    assert!(asked.try_say(&["stop", "DANCE"]).unwrap_err().contains("these are: COMPACTION, CLEANUP"));
    assert!(asked.try_say(&["garbagecollect", "nope"]).unwrap_err().contains("Can't find a keyspace nope"));
    let history = asked.say(&["compactionhistory"]);
    for kind in ["garbage collection", "upgrade", "scrub"] {
        assert!(history.contains(kind), "{kind} in {history}");
    }

    let folder = asked.data_path("ks.t");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut data: Vec<_> = files.filter(|path| path.to_string_lossy().ends_with("-Data.db")).collect();
    data.sort_by_key(|path| std::fs::metadata(path).unwrap().len());
    let largest = data.last().unwrap();
    let mut bytes = std::fs::read(largest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(largest, &bytes).unwrap();
    let found = asked.json_of_failed(&["verify", "ks"]);
    assert!(found["tables"][0]["problems"][0].as_str().unwrap().contains("is corrupt"), "{found}");
    let aborted = asked.try_say(&["scrub", "-m", "abort", "ks"]).unwrap_err();
    assert!(aborted.contains("damaged and left as they are"), "{aborted}");
    let scrubbed = asked.say(&["scrub", "ks", "t"]);
    assert!(
        scrubbed.contains("cannot be read and was dropped") && scrubbed.contains("nodetool repair"),
        "{scrubbed}"
    );
    assert_eq!(asked.say(&["verify", "ks"]), "");
    assert!(asked.say(&["listsnapshots"]).contains("pre-scrub"));
    let left = client.rows("SELECT k FROM ks.t").len();
    assert!((100..150).contains(&left), "{left} of 150 rows");
}

/// A backup of a table is imported into another table of the same columns, and a folder is refreshed from.
#[test]
fn sstables_are_imported() {
    let dir = tempfile::tempdir().unwrap();
    let setup = setup(dir.path());
    let node = setup.start();
    let asked = Asked::of(node.address);
    let mut client = node.any_client();
    client.create_keyspace();
    for table in ["source", "target", "other"] {
        client.query(&format!("CREATE TABLE ks.{table} (k int PRIMARY KEY, v text)"));
    }
    client.query("CREATE TABLE ks.wrong (k text PRIMARY KEY, v int)");
    client.query("CREATE TABLE ks.based (k int PRIMARY KEY, v text)");
    client.query("CREATE MATERIALIZED VIEW ks.by_v AS SELECT * FROM ks.based WHERE v IS NOT NULL AND k IS NOT NULL PRIMARY KEY (v, k)");
    (0..300)
        .for_each(|k| drop(client.query(&format!("INSERT INTO ks.source (k, v) VALUES ({k}, 'value {k}')"))));
    asked.say(&["flush", "ks", "source"]);
    let folder = |table: &str| asked.data_path(&format!("ks.{table}"));
    let source = folder("source");
    let said = asked.say(&["import", "--copy-data", "ks", "target", source.to_str().unwrap()]);
    assert!(said.contains("300 partitions"), "{said}");
    assert_eq!(client.rows("SELECT k FROM ks.target").len(), 300);
    assert_eq!(client.rows("SELECT v FROM ks.target WHERE k = 7").len(), 1);
    assert_eq!(client.rows("SELECT k FROM ks.source").len(), 300, "the files are copied");

    let upload = folder("other").join("upload");
    let missing = asked.try_say(&["refresh", "ks", "other"]).unwrap_err();
    assert!(missing.contains("there is no directory"), "{missing}");
    std::fs::create_dir_all(&upload).unwrap();
    assert_eq!(asked.say(&["refresh", "ks", "other"]), "upload: no SSTables found\n");
    for entry in std::fs::read_dir(&source).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_file() {
            std::fs::copy(entry.path(), upload.join(entry.file_name())).unwrap();
        }
    }
    let said = asked.say(&["refresh", "ks", "other"]);
    assert!(said.contains("300 partitions"), "{said}");
    assert_eq!(client.rows("SELECT k FROM ks.other").len(), 300);
    let left = std::fs::read_dir(&upload)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with("-Data.db"));
    assert_eq!(left.count(), 0, "they were moved");

    let import = |table: &str| asked.try_say(&["import", "ks", table, source.to_str().unwrap()]).unwrap_err();
    assert!(import("wrong").contains("the files stay where they are"), "{}", import("wrong"));
    assert!(import("wrong").contains("its partition key has other types"), "{}", import("wrong"));
    for (columns, why) in [
        ("k int PRIMARY KEY, v int", "its column v has another type"),
        ("k int PRIMARY KEY, w text", "the table has no column v"),
        ("k int, c int, v text, PRIMARY KEY (k, c)", "it has 0 clustering columns, the table 1"),
    ] {
        client.query(&format!("CREATE TABLE ks.differs ({columns})"));
        assert!(import("differs").contains(why), "{columns}: {}", import("differs"));
        client.query("DROP TABLE ks.differs");
    }
    assert!(import("based").contains("the materialized view by_v would lack the rows"));
    assert!(import("by_v").contains("import into its base table"));
    assert!(import("nope").contains("Can't find a column family nope"));
    drop(client);
    node.kill();
    let node = setup.start();
    assert_eq!(node.any_client().rows("SELECT k FROM ks.target").len(), 300);
}

/// Roles that may log in only from groups of addresses, and the groups, which a superuser changes by CQL where clients authenticate.
#[test]
fn roles_log_in_from_their_groups_of_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let mut setup = setup(dir.path())
        .option("authenticator", "PasswordAuthenticator")
        .option("auth_bcrypt_gensalt_log2_rounds", "4")
        .option("authorizer", "CassandraAuthorizer")
        .option("cidr_authorizer", "CassandraCIDRAuthorizer")
        .option("cidr_authorizer_mode", "ENFORCE");
    let node = setup.start();
    let asked = Asked::of(node.address);
    let at = std::net::SocketAddr::new(node.address, 9042);
    let log_in = |user: &str, password: &str| Client::log_in(at, user, password);
    let mut admin = log_in("cassandra", "cassandra").expect("the first superuser");
    admin.query("UPDATE system_auth.cidr_groups SET cidrs = {('10.1.2.3', 8), ('fd00::', 8)} WHERE cidr_group = 'office'");
    admin.query("UPDATE system_auth.cidr_groups SET cidrs = {('127.0.0.0', 8)} WHERE cidr_group = 'here'");
    let rows = admin.rows("SELECT cidrs FROM system_auth.cidr_groups WHERE cidr_group = 'office'");
    let v4 = [&[0, 0, 0, 14, 0, 0, 0, 4, 10, 0, 0, 0, 0, 0, 0, 2, 0, 8][..]].concat();
    let v6 = [&[0, 0, 0, 26, 0, 0, 0, 16, 0xfd][..], &[0; 15], &[0, 0, 0, 2, 0, 8]].concat();
    let value = [vec![0, 0, 0, 2], v4, v6].concat();
    assert_eq!(rows, [[Some(value)]], "pairs of the first address and the number of bits");
    for bad in [
        "UPDATE system_auth.cidr_groups SET cidrs = {('10.0.0.0', 33)} WHERE cidr_group = 'x'",
        "UPDATE system_auth.cidr_groups SET cidrs = {} WHERE cidr_group = 'x'",
        "UPDATE system_auth.cidr_groups SET cidrs = null WHERE cidr_group = 'x'",
        "DELETE cidrs FROM system_auth.cidr_groups WHERE cidr_group = 'office'",
        "CREATE ROLE x WITH ACCESS FROM CIDRS {'nowhere'}",
    ] {
        let error = admin.error(bad);
        assert_eq!(error.kind, wire::ErrorKind::Invalid, "{bad}: {error:?}");
    }
    admin.query("CREATE ROLE ann WITH PASSWORD = 'secret' AND LOGIN = true AND ACCESS FROM CIDRS {'office'}");
    admin.query(
        "CREATE ROLE bob WITH PASSWORD = 'secret' AND LOGIN = true AND ACCESS FROM CIDRS {'office', 'here'}",
    );
    admin.query("CREATE ROLE eve WITH PASSWORD = 'secret' AND LOGIN = true");
    let permissions = admin.texts("SELECT role, cidr_groups FROM system_auth.cidr_permissions");
    assert_eq!(permissions.len(), 2, "{permissions:?}");
    let refused = log_in("ann", "secret").err().expect("from another address");
    assert_eq!(refused.kind, wire::ErrorKind::Unauthorized);
    assert_eq!(refused.message, "You do not have access from this IP 127.0.0.1");
    let mut bob = log_in("bob", "secret").expect("from one of its groups");
    drop(log_in("eve", "secret").expect("a role without groups"));
    let forbidden =
        bob.error("UPDATE system_auth.cidr_groups SET cidrs = {('0.0.0.0', 0)} WHERE cidr_group = 'office'");
    assert!(forbidden.message.contains("Only superusers"), "{forbidden:?}");

    assert_eq!(asked.json(&["listcidrgroups"])["groups"], serde_json::json!(["here", "office"]));
    assert_eq!(
        asked.json(&["listcidrgroups", "office"])["cidrs"],
        serde_json::json!(["10.0.0.0/8", "fd00::/8"])
    );
    assert_eq!(asked.json(&["getcidrgroupsofip", "10.9.9.9"])["groups"], serde_json::json!(["office"]));
    // Operators on the node itself change groups, and with api_local_login superusers.
    asked.say(&["updatecidrgroup", "tools", "192.0.2.0/24"]);
    assert_eq!(asked.json(&["listcidrgroups", "tools"])["cidrs"], serde_json::json!(["192.0.2.0/24"]));
    asked.say(&["dropcidrgroup", "tools"]);

    // Ann and bob came from `here`; eve, without groups, counts for none.
    let counts = admin.texts("SELECT name FROM system_views.cidr_filtering_metrics_counts");
    let named = |how: &str, group: &str| format!("Number of CIDR accesses {how} from CIDR group - {group}");
    let mut names: Vec<String> = counts.into_iter().flatten().collect();
    names.sort();
    let reloads = "CIDR groups cache reload count".to_owned();
    assert_eq!(names, [reloads, named("accepted", "here"), named("rejected", "here")]);
    let shown = asked.json(&["cidrfilteringstats"]);
    let count = |name: &str| {
        let rows = shown["counts"].as_array().expect("rows");
        rows.iter().find(|row| row["name"] == name).expect("a row")["value"].clone()
    };
    assert_eq!((count(&named("accepted", "here")), count(&named("rejected", "here"))), (1.into(), 1.into()));
    let text = asked.say(&["cidrfilteringstats"]);
    assert!(text.starts_with("cidr_filtering_metrics_counts: \nname "), "{text}");
    let latencies = admin.rows("SELECT name, max FROM system_views.cidr_filtering_metrics_latencies");
    let checks = latencies.iter().find(|row| row[0].as_deref() == Some(b"CIDR checks latency (ns)"));
    let max = checks.and_then(|row| row[1].clone()).expect("a figure");
    assert!(f64::from_be_bytes(max.try_into().expect("a double")) > 0.0, "checks take time");

    // Of several ranges that have the address, the smallest counts.
    admin.query("UPDATE system_auth.cidr_groups SET cidrs = {('127.0.0.1', 32)} WHERE cidr_group = 'office'");
    drop(log_in("ann", "secret").expect("the group has the address now"));
    let mut again = log_in("bob", "secret").expect("it has both groups");
    again.query("SELECT * FROM system.local");
    admin.query("ALTER ROLE bob WITH ACCESS FROM CIDRS {'here'}");
    assert!(log_in("bob", "secret").is_err(), "a smaller range of another group");
    admin.query("DELETE FROM system_auth.cidr_groups WHERE cidr_group = 'office'");
    drop(log_in("bob", "secret").expect("the smaller range is gone"));
    assert!(log_in("ann", "secret").is_err(), "its group is gone");
    admin.query("ALTER ROLE ann WITH ACCESS FROM ALL CIDRS");
    drop(log_in("ann", "secret").expect("from everywhere"));
    admin.query("ALTER ROLE ann WITH ACCESS FROM CIDRS {'here'}");
    drop((admin, bob, again));
    node.kill();
    let node = setup.start();
    let mut admin = Client::log_in(at, "cassandra", "cassandra").expect("after a restart");
    assert_eq!(admin.texts("SELECT cidr_group FROM system_auth.cidr_groups"), [["here"]]);
    admin.query("UPDATE system_auth.cidr_groups SET cidrs = {('10.0.0.0', 8)} WHERE cidr_group = 'here'");
    assert!(Client::log_in(at, "ann", "secret").is_err());
    drop(admin);
    node.stop();
    setup.options.pop();
    let node = setup.start();
    drop(Client::log_in(at, "ann", "secret").expect("it is only named in the log"));
    node.says("Role ann accessed from unauthorized IP");
}

#[test]
fn clients_are_shut_out_and_let_in() {
    let dir = tempfile::tempdir().unwrap();
    let node = setup(dir.path()).start();
    let asked = Asked::of(node.address);
    let mut client = node.any_client();
    client.query("SELECT * FROM system.local");
    assert_eq!(asked.say(&["statusbinary"]), "running\n");
    for _ in 0..2 {
        assert_eq!(asked.say(&["disablebinary"]), "");
        assert_eq!(asked.say(&["statusbinary"]), "not running\n");
        assert!(std::net::TcpStream::connect((node.address, 9042)).is_err(), "nothing listens");
        let clients = asked.json(&["clientstats", "--all"]);
        assert!(!clients.to_string().contains("127."), "the connection has ended: {clients}");
        assert_eq!(asked.say(&["enablebinary"]), "");
        assert_eq!(asked.say(&["enablebinary"]), "", "it is enabled");
        assert_eq!(asked.say(&["statusbinary"]), "running\n");
        node.any_client().query("SELECT * FROM system.local");
    }
    asked.say(&["disablebinary"]);
    asked.say(&["drain"]);
    assert!(asked.try_say(&["enablebinary"]).unwrap_err().contains("the node is drained"));
}
