//! Bad situations: each ends with one clear message with the remedy, and nothing is lost.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use wire::ErrorKind;
use wire::client::AnswerBody;

use crate::client::Client;
use crate::node::{Ended, Setup, run, torc};

fn make_table(client: &mut Client) {
    client.create_keyspace();
    client.query("CREATE TABLE ks.t (k int PRIMARY KEY, v text)");
}

/// The start must fail with one line that has all of these words.
fn refused(setup: &Setup, words: &[&str]) -> String {
    match setup.try_start() {
        Ok(node) => panic!("the node started: {}", node.log()),
        Err(ended) => complaint(&ended, words),
    }
}

fn complaint(ended: &Ended, words: &[&str]) -> String {
    assert!(!ended.status.success() && ended.status.code().is_some(), "{:?}: {}", ended.status, ended.err);
    let said: Vec<&str> = ended.err.lines().filter(|line| line.starts_with("torc: ")).collect();
    assert_eq!(said.len(), 1, "one message: {}", ended.err);
    for word in words {
        assert!(said[0].contains(word), "'{word}' is not in: {}", said[0]);
    }
    assert!(!ended.err.contains("panicked"), "{}", ended.err);
    said[0].to_owned()
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files_below(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x5a;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_second_process_on_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).start();
    let said = refused(
        &Setup::new(dir.path()),
        &["another node uses the data directory", "stop it, or use another"],
    );
    assert!(said.contains(&format!("process {}", node.pid())), "{said}");
    node.any_client().query("SELECT * FROM system.local");
    assert!(node.stop().success());
    Setup::new(dir.path()).start();
}

#[test]
fn a_port_in_use() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let node = Setup::new(one.path()).start();
    let mut other = Setup::new(two.path());
    other.address = node.address;
    refused(&other, &["the port for other nodes", "7000", "storage_port"]);
    other = other.option("storage_port", "7001");
    refused(&other, &["the administration port", "10000", "api_port"]);
    other = other.option("api_port", "10001").option("prometheus_port", "9181");
    refused(&other, &["the CQL port", "9042", "native_transport_port"]);
    other =
        other.option("native_transport_port", "9043").option("native_shard_aware_transport_port", "19043");
    // Nobody asked for that port by name: the node does without.
    let without = other.start();
    without.says("alternator_port");
    drop(without);
    other = other.option("alternator_port", "8000");
    refused(&other, &["the port of the DynamoDB API", "8000", "alternator_port"]);
    drop(node);
}

#[test]
fn a_directory_that_cannot_be_used() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "not a directory").unwrap();
    refused(&Setup::new(&file), &["cannot create directory", "file"]);
    let command = torc(&["dev", "--dir", "/proc/torc"]);
    complaint(&run(command), &["cannot create directory", "/proc/torc"]);
}

#[test]
fn options_that_do_not_exist_or_do_not_fit() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("torc.yaml");
    let path = file.to_str().unwrap();
    let check = |yaml: &str, words: &[&str]| {
        fs::write(&file, yaml).unwrap();
        complaint(&run(torc(&["server", "--config", path])), words);
    };
    check(
        "comitlog_sync: batch\n",
        &["torc.yaml", "unknown option 'comitlog_sync'", "did you mean 'commitlog_sync'"],
    );
    check("num_tokens: 0\n", &["num_tokens", "'0'", "expected a number from 1 to 1024"]);
    check("num_tokens: 70000\n", &["num_tokens", "70000", "from 0 to 65535"]);
    check("commitlog_sync: sometimes\n", &["commitlog_sync", "sometimes", "periodic or batch or group"]);
    check("read_request_timeout: soon\n", &["read_request_timeout", "a duration such as"]);
    check("data_file_directories: [/a, /b]\n", &["data_file_directories", "one directory"]);
    check("disk_failure_policy: pray\n", &["disk_failure_policy", "pray", "best_effort"]);
    check("a: b: c\n", &["torc.yaml", "not valid"]);
    complaint(&run(torc(&["server", "--config", "/nowhere/torc.yaml"])), &["cannot read the configuration"]);
}

#[test]
fn a_directory_of_a_newer_version() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    assert!(setup.start().stop().success());
    let identity = dir.path().join("data/.torc/node.json");
    let before = fs::read_to_string(&identity).unwrap();
    fs::write(&identity, before.replace("\"format\": 1", "\"format\": 9")).unwrap();
    refused(&setup, &["node.json", "newer version", "layout 9", "nothing was changed"]);
    fs::write(&identity, &before[..before.len() / 2]).unwrap();
    refused(&setup, &["node.json", "damaged", "restore"]);
    fs::write(&identity, before).unwrap();
    let node = setup.start();
    make_table(&mut node.any_client());
    assert!(node.stop().success());
    // The schema is in the cluster's log.
    let log = files_below(&dir.path().join("data/.torc/raft"));
    let is_snapshot = |path: &&PathBuf| path.to_str().unwrap().contains("/snapshot-");
    let schema = log.iter().find(is_snapshot).unwrap().clone();
    let good = fs::read(&schema).unwrap();
    flip(&schema, 40);
    refused(&setup, &["raft/snapshot-", "Nothing was changed", "backup"]);
    fs::write(&schema, good).unwrap();
    assert!(setup.start().stop().success());
}

#[test]
fn a_corrupt_sstable_stops_its_table_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path()).shards(1).option("cache_size", "1MiB");
    let node = setup.start();
    let mut client = node.any_client();
    make_table(&mut client);
    client.query("CREATE TABLE ks.other (k int PRIMARY KEY, v text)");
    for k in 0..200 {
        for table in ["t", "other"] {
            client.query(&format!("INSERT INTO ks.{table} (k, v) VALUES ({k}, '{}')", "x".repeat(100)));
        }
    }
    node.http(10000, "POST", "/storage_service/keyspace_flush/ks");
    assert!(node.stop().success());
    let of_table = |ending: &str| {
        let all = files_below(&dir.path().join("data/ks"));
        all.into_iter()
            .find(|path| path.to_str().unwrap().contains("/t-") && path.to_str().unwrap().ends_with(ending))
            .unwrap()
    };
    // Damage that is met when the data is read: the request fails, the rest of the node works.
    let data = of_table("-Data.db");
    flip(&data, 100);
    let node = setup.start();
    let mut client = node.any_client();
    let error = client.error("SELECT * FROM ks.t");
    assert!(matches!(error.kind, ErrorKind::ReadFailure { .. }), "{error:?}");
    for word in [data.to_str().unwrap(), "corrupt at offset", "expected", "found", "restore the SSTable"] {
        assert!(error.message.contains(word), "'{word}' is not in: {}", error.message);
    }
    assert_eq!(client.rows("SELECT k FROM ks.other").len(), 200);
    client.query("INSERT INTO ks.t (k, v) VALUES (1000, 'new')");
    assert!(node.stop().success());
    flip(&data, 100);
    // Damage that is met when the file is opened: the node starts, and the table says why it cannot be read.
    let statistics = of_table("-Statistics.db");
    flip(&statistics, 60);
    let node = setup.start();
    assert!(node.log().contains("table ks.t cannot be read on this shard"), "{}", node.log());
    let mut client = node.any_client();
    let error = client.error("SELECT * FROM ks.t WHERE k = 1");
    assert!(error.message.contains("Statistics.db is corrupt at offset"), "{}", error.message);
    assert_eq!(client.rows("SELECT k FROM ks.other").len(), 200);
    client.query("INSERT INTO ks.t (k, v) VALUES (1001, 'new')");
    assert!(node.stop().success());
    flip(&statistics, 60);
    let node = setup.start();
    assert_eq!(node.any_client().rows("SELECT k FROM ks.t").len(), 202, "nothing was lost");
}

#[test]
fn a_corrupt_commit_log() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path()).shards(1).option("commitlog_sync", "batch");
    let node = setup.start();
    let mut client = node.any_client();
    make_table(&mut client);
    for k in 0..100 {
        client.query(&format!("INSERT INTO ks.t (k, v) VALUES ({k}, 'needle {k} in the log')"));
    }
    node.kill();
    let logs = files_below(&dir.path().join("commitlog"));
    let place = |needle: &str| {
        logs.iter().find_map(|path| {
            let bytes = fs::read(path).unwrap();
            let at = bytes.windows(needle.len()).position(|window| window == needle.as_bytes())?;
            Some((path.clone(), at))
        })
    };
    // The middle: refused, with the place and a way out.
    let (log, at) = place("needle 50 in the log").expect("it is logged");
    flip(&log, at);
    refused(
        &setup,
        &[log.to_str().unwrap(), "corrupt at offset", "expected", "found", "commitlog_ignore_errors"],
    );
    refused(&setup, &["corrupt at offset"]);
    flip(&log, at);
    // The tail, as a power failure leaves it: acknowledged entries before it are there.
    let (log, at) = place("needle 99 in the log").expect("it is logged");
    flip(&log, at);
    let node = setup.start();
    assert!(node.any_client().rows("SELECT k FROM ks.t").len() >= 99);
    node.kill();
    let damaged = setup.option("commitlog_ignore_errors", "true");
    let (log, at) = place("needle 50 in the log").expect("it is logged");
    flip(&log, at);
    let node = damaged.start();
    let left = node.any_client().rows("SELECT k FROM ks.t").len();
    assert!((50..100).contains(&left), "{left} rows behind the damage");
}

/// A small file system; none when this user may not mount one.
struct Small(tempfile::TempDir);

impl Small {
    fn mount(mib: u32) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={mib}m");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(dir.path()).output();
        mounted.is_ok_and(|done| done.status.success()).then(|| Self(dir))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk() {
    let Some(disk) = Small::mount(48) else {
        eprintln!("not tried: this user may not mount a small file system");
        return;
    };
    let dir = disk.0.path();
    let setup = Setup::new(dir)
        .shards(1)
        .option("commitlog_segment_size", "4MiB")
        .option("memtable_space", "8MiB")
        .option("compaction_throughput", "0");
    let node = setup.start();
    let mut client = node.any_client();
    make_table(&mut client);
    client.query("INSERT INTO ks.t (k, v) VALUES (0, 'first')");
    let ballast = dir.join("ballast");
    let mut acknowledged = vec![0];
    let mut state = 1u64;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'0' + (state >> 58) as u8)
    };
    // Bytes that compression cannot make small.
    let text: String = (0..20_000).map(|_| letter()).filter(|letter| *letter != '\'').collect();
    fs::write(&ballast, vec![1; 20 << 20]).unwrap();
    let mut k = 0;
    let error = loop {
        k += 1;
        assert!(k < 5_000, "the disk does not fill up");
        match client.ask(&format!("INSERT INTO ks.t (k, v) VALUES ({k}, '{text}{k}')")).body {
            AnswerBody::Result(_) => acknowledged.push(k),
            AnswerBody::Error(error) => break error,
            other => panic!("{other:?}"),
        }
    };
    assert!(error.message.contains("free space on this file system"), "{}", error.message);
    // Reads go on.
    assert_eq!(client.texts("SELECT v FROM ks.t WHERE k = 0"), [["first"]]);
    // When there is room again, so do writes, without a restart.
    fs::remove_file(&ballast).unwrap();
    let begun = Instant::now();
    while !matches!(client.ask("INSERT INTO ks.t (k, v) VALUES (-1, 'again')").body, AnswerBody::Result(_)) {
        assert!(begun.elapsed() < Duration::from_secs(30), "writes are still refused");
        std::thread::sleep(Duration::from_millis(100));
    }
    acknowledged.push(-1);
    // Full at the start: the data can be read.
    node.kill();
    let free = fs::File::create(&ballast).unwrap();
    let mut size = 48 << 20;
    while size > 4096 {
        use std::io::Write;
        if (&free).write_all(&vec![1; size]).is_err() {
            size /= 2;
        }
    }
    let node = setup.start();
    let mut client = node.any_client();
    assert_eq!(client.texts("SELECT v FROM ks.t WHERE k = 0"), [["first"]]);
    let refused = client.ask("INSERT INTO ks.t (k, v) VALUES (-2, 'no room')");
    if let AnswerBody::Error(error) = refused.body {
        assert!(error.message.contains("free space on this file system"), "{}", error.message);
    }
    node.kill();
    fs::remove_file(&ballast).unwrap();
    let node = setup.start();
    let mut client = node.any_client();
    for k in &acknowledged {
        assert_eq!(
            client.rows(&format!("SELECT v FROM ks.t WHERE k = {k}")).len(),
            1,
            "{k} was acknowledged"
        );
    }
    assert!(node.stop().success());
}

#[test]
fn sigterm_is_quick_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let node = setup.start();
    let mut client = node.any_client();
    make_table(&mut client);
    for k in 0..100 {
        client.query(&format!("INSERT INTO ks.t (k, v) VALUES ({k}, 'v')"));
    }
    let begun = Instant::now();
    assert!(node.stop().success());
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let node = setup.start();
    assert!(node.ready_line.starts_with("torc is ready after "), "{}", node.ready_line);
    assert_eq!(node.any_client().rows("SELECT k FROM ks.t").len(), 100);
}

#[test]
fn by_the_policy_die_a_failed_disk_ends_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path()).shards(1).option("disk_failure_policy", "die");
    let mut node = setup.start();
    let mut client = node.any_client();
    make_table(&mut client);
    client.query("INSERT INTO ks.t (k, v) VALUES (1, 'v')");
    // A directory where the table's directory is to be made cannot be made.
    let keyspace = dir.path().join("data/ks");
    fs::write(&keyspace, "in the way").unwrap();
    client.query("SELECT * FROM ks.t");
    let begun = Instant::now();
    let flush = Command::new("curl")
        .args(["-s", "-m", "5", "-X", "POST"])
        .arg(format!("http://{}:10000/storage_service/keyspace_flush/ks", node.address))
        .output();
    drop(flush);
    while node.is_running() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it still runs: {}", node.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    let log = node.log();
    assert!(!node.ended().success());
    assert!(log.contains("the node ends because the disk failed"), "{log}");
    fs::remove_file(&keyspace).unwrap();
    let node = Setup::new(dir.path()).shards(1).start();
    assert_eq!(node.any_client().rows("SELECT k FROM ks.t").len(), 1, "the commit log had it");
}
