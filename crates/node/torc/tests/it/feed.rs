//! `torc cdc`: the feed of a table's changes, printed and over HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wire::Version;

use crate::client::Client;
use crate::node::{Setup, addresses, torc};

const PATIENCE: Duration = Duration::from_secs(60);
/// The window of these feeds, seconds.
const WINDOW: u64 = 1;

/// Waits until all changes so far are older than the window.
fn wait_for_window() {
    std::thread::sleep(Duration::from_secs(WINDOW) + Duration::from_millis(300));
}

/// The output of `torc cdc tail`, and its error.
fn tail(host: IpAddr, arguments: &[&str]) -> Result<Vec<Value>, String> {
    let mut command = torc(&["cdc", "tail", "--host", &host.to_string(), "--window", &WINDOW.to_string()]);
    let output = command.args(arguments).output().expect("the binary is there");
    if !output.status.success() {
        return Err(String::from_utf8(output.stderr).expect("text"));
    }
    let text = String::from_utf8(output.stdout).expect("text");
    Ok(text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect())
}

/// All changes of a table so far.
fn all(host: IpAddr, table: &str) -> Vec<Value> {
    tail(host, &[table, "--from", "oldest", "--until-now"]).expect("a feed")
}

/// A change without the fields that differ between runs.
fn shown(change: &Value) -> Value {
    let mut change = change.clone();
    let members = change.as_object_mut().expect("an object");
    for name in ["token", "writetime", "table"] {
        assert!(members.remove(name).is_some(), "{name}");
    }
    change
}

fn token(change: &Value) -> &str {
    change["token"].as_str().expect("a text")
}

#[test]
fn each_kind_of_write_is_an_object() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).start();
    let mut client = node.any_client();
    client.create_keyspace();
    client.query(
        "CREATE TABLE ks.t (p int, c int, v varint, \"W\" text, s int static, m map<int, text>, l list<int>, PRIMARY KEY (p, c)) \
         WITH cdc = {'enabled': true, 'preimage': true, 'postimage': true}",
    );
    let writes: &[(&str, &[Value])] = &[
        (
            "INSERT INTO ks.t (p, c, v) VALUES (1, 2, 123456789012345678901234567890) USING TTL 600",
            &[json!({"operation": "insert", "key": {"p": 1, "c": 2}, "ttl": 600,
                "columns": {"v": serde_json::from_str::<Value>("123456789012345678901234567890").unwrap()},
                "after": {"v": serde_json::from_str::<Value>("123456789012345678901234567890").unwrap()}, "last": true})],
        ),
        (
            "UPDATE ks.t SET v = 4, \"W\" = 'ä' WHERE p = 1 AND c = 2",
            &[json!({"operation": "update", "key": {"p": 1, "c": 2}, "columns": {"v": 4, "W": "ä"},
                "before": {"v": serde_json::from_str::<Value>("123456789012345678901234567890").unwrap()},
                "after": {"v": 4, "W": "ä"}, "last": true})],
        ),
        (
            "UPDATE ks.t SET m = {1: 'a'}, l = [3, 1, 2] WHERE p = 1 AND c = 3",
            &[json!({"operation": "update", "key": {"p": 1, "c": 3},
                "columns": {"m": {"1": "a"}, "l": [3, 1, 2]}, "after": {"m": {"1": "a"}, "l": [3, 1, 2]}, "last": true})],
        ),
        (
            "UPDATE ks.t SET m = m + {2: 'b'} WHERE p = 1 AND c = 3",
            &[json!({"operation": "update", "key": {"p": 1, "c": 3}, "added": {"m": {"2": "b"}},
                "before": {"m": {"1": "a"}}, "after": {"m": {"1": "a", "2": "b"}, "l": [3, 1, 2]}, "last": true})],
        ),
        (
            "DELETE m[1], v FROM ks.t WHERE p = 1 AND c = 3",
            &[
                json!({"operation": "update", "key": {"p": 1, "c": 3}, "removed": {"m": [1]}, "deleted": ["v"],
                "before": {"m": {"1": "a", "2": "b"}}, "after": {"m": {"2": "b"}, "l": [3, 1, 2]}, "last": true}),
            ],
        ),
        (
            "UPDATE ks.t SET s = 7 WHERE p = 1",
            &[
                json!({"operation": "update", "key": {"p": 1}, "static": true, "columns": {"s": 7}, "after": {"s": 7}, "last": true}),
            ],
        ),
        (
            "BEGIN BATCH INSERT INTO ks.t (p, c) VALUES (1, 8); INSERT INTO ks.t (p, c) VALUES (1, 9); APPLY BATCH",
            &[
                json!({"operation": "insert", "key": {"p": 1, "c": 8}, "after": {}, "last": false}),
                json!({"operation": "insert", "key": {"p": 1, "c": 9}, "after": {}, "last": true}),
            ],
        ),
        (
            "DELETE FROM ks.t WHERE p = 1 AND c = 2",
            &[
                json!({"operation": "delete", "key": {"p": 1, "c": 2}, "before": {"v": 4, "W": "ä"}, "last": true}),
            ],
        ),
        (
            "DELETE FROM ks.t WHERE p = 1 AND c > 4 AND c <= 8",
            &[
                json!({"operation": "delete_range", "key": {"p": 1}, "from": {"inclusive": false, "key": {"c": 4}},
                "to": {"inclusive": true, "key": {"c": 8}}, "last": true}),
            ],
        ),
        (
            "DELETE FROM ks.t WHERE p = 1",
            &[json!({"operation": "delete_partition", "key": {"p": 1}, "last": true})],
        ),
        (
            "INSERT INTO ks.t (p, c) VALUES (1, 8) IF NOT EXISTS",
            &[json!({"operation": "insert", "key": {"p": 1, "c": 8}, "after": {}, "last": true})],
        ),
        ("UPDATE ks.t SET v = 1 WHERE p = 1 AND c = 8 IF v = 5", &[]),
    ];
    for (text, _) in writes {
        client.query(text);
    }
    wait_for_window();
    let changes = all(node.address, "ks.t");
    let wanted: Vec<&Value> = writes.iter().flat_map(|(_, changes)| *changes).collect();
    for (change, wanted) in changes.iter().zip(&wanted) {
        assert_eq!(shown(change), **wanted);
    }
    assert_eq!(changes.len(), wanted.len(), "{changes:#?}");

    // From each token on, the rest comes.
    for at in [0, 5, 6, changes.len() - 1] {
        let rest = tail(node.address, &["ks.t", "--from", token(&changes[at]), "--until-now"]).unwrap();
        assert_eq!(rest, changes[at + 1..], "from {at}");
    }
    let first = tail(node.address, &["KS.t", "--from", "oldest", "--limit", "2"]).unwrap();
    assert_eq!(first, changes[..2]);

    // A table of the same name is another one.
    client.query("DROP TABLE ks.t");
    let gone = tail(node.address, &["ks.t", "--from", token(&changes[0])]).unwrap_err();
    assert!(gone.contains("there is no log of changes of ks.t"), "{gone}");
    client.query("CREATE TABLE ks.t (p int PRIMARY KEY) WITH cdc = {'enabled': true}");
    let other = tail(node.address, &["ks.t", "--from", token(&changes[0])]).unwrap_err();
    assert!(other.contains("the token is of another table than ks.t"), "{other}");
    let malformed = tail(node.address, &["ks.t", "--from", "0123456789abcdef"]).unwrap_err();
    assert!(malformed.contains("the token is malformed"), "{malformed}");
    let name = tail(node.address, &["t"]).unwrap_err();
    assert!(name.contains("t is no table"), "{name}");
}

/// Readers that stop after every few changes, on three nodes, while a writer writes.
#[test]
fn every_change_comes_once_on_three_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup { address: addresses(3), ..Setup::new(dir.path()) }.shards(1).option("nodes", "3");
    let node = setup.start();
    let mut client = node.any_client();
    client
        .query("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}");
    client.query("CREATE TABLE ks.t (p int, c int, v int, PRIMARY KEY (p, c)) WITH cdc = {'enabled': true, 'ttl': 3600}");
    let address = SocketAddr::new(node.address, 9042);
    let writer = std::thread::spawn(move || {
        let mut client = Client::connect(address, Version::V4);
        for at in 0..300 {
            client.query(&format!("UPDATE ks.t SET v = {at} WHERE p = {} AND c = {}", at % 17, at % 3));
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let (mut seen, mut from) = (Vec::new(), "oldest".to_owned());
    let begun = Instant::now();
    while seen.len() < 300 {
        assert!(begun.elapsed() < PATIENCE, "{} changes came", seen.len());
        let changes = tail(node.address, &["ks.t", "--from", &from, "--limit", "37", "--until-now"]).unwrap();
        if let Some(last) = changes.last() {
            from = token(last).to_owned();
        }
        seen.extend(changes.iter().map(|change| change["columns"]["v"].as_i64().unwrap()));
    }
    writer.join().unwrap();
    assert_eq!(seen, (0..300).collect::<Vec<i64>>(), "one writer's changes are in its order");
}

/// A process that serves feeds; killed when dropped.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn serve(host: IpAddr, options: &[&str]) -> Server {
    let mut command = torc(&["cdc", "serve", "--listen", "127.0.0.1:0", "--host", &host.to_string()]);
    command.args(["--window", &WINDOW.to_string()]).args(options).stderr(Stdio::null());
    let mut child = command.spawn().expect("the binary is there");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("text");
    let address =
        line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("it names its address");
    Server { address: address.parse().expect("an address"), child }
}

/// A request; the status and the rest of the connection.
fn get(server: &Server, path: &str, lines: &[&str]) -> (u16, BufReader<TcpStream>) {
    let mut stream = TcpStream::connect(server.address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n").expect("it reads");
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).expect("text");
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    while line.trim() != "" {
        line.clear();
        reader.read_line(&mut line).expect("text");
    }
    (status, reader)
}

/// The next so many events: their ids and data.
fn events(reader: &mut BufReader<TcpStream>, count: usize) -> Vec<(String, Value)> {
    let (mut found, mut id) = (Vec::new(), String::new());
    while found.len() < count {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).expect("an event") > 0, "the stream has ended");
        if let Some(rest) = line.strip_prefix("id: ") {
            id = rest.trim().to_owned();
        } else if let Some(rest) = line.strip_prefix("data: ") {
            found.push((id.clone(), serde_json::from_str(rest).expect("JSON")));
        }
    }
    found
}

#[test]
fn feeds_over_http_need_the_permission_to_read_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path())
        .option("authenticator", "PasswordAuthenticator")
        .option("auth_bcrypt_gensalt_log2_rounds", "4")
        .option("authorizer", "CassandraAuthorizer")
        .start();
    let mut admin = Client::log_in(SocketAddr::new(node.address, 9042), "cassandra", "cassandra").unwrap();
    admin.create_keyspace();
    admin.query("CREATE TABLE ks.t (p int PRIMARY KEY, v int) WITH cdc = {'enabled': true}");
    for (role, table) in [("reader", "t_scylla_cdc_log"), ("other", "t")] {
        admin.query(&format!("CREATE ROLE {role} WITH PASSWORD = 'secret' AND LOGIN = true"));
        admin.query(&format!("GRANT SELECT ON ks.{table} TO {role}"));
        for table in ["cdc_generation_timestamps", "cdc_streams_descriptions_v2"] {
            admin.query(&format!("GRANT SELECT ON system_distributed.{table} TO {role}"));
        }
    }
    for p in 0..3 {
        admin.query(&format!("INSERT INTO ks.t (p, v) VALUES ({p}, {p})"));
    }
    wait_for_window();
    let server = serve(node.address, &["--feeds", "2"]);
    // reader:secret, other:secret, reader:wrong
    let [reader, other, wrong] = ["cmVhZGVyOnNlY3JldA==", "b3RoZXI6c2VjcmV0", "cmVhZGVyOndyb25n"]
        .map(|code| format!("Authorization: Basic {code}"));
    let path = "/cdc/ks.t?from=oldest";
    assert_eq!(get(&server, path, &[]).0, 401);
    assert_eq!(get(&server, path, &[&wrong]).0, 401);
    assert_eq!(get(&server, path, &[&reader, "Origin: http://evil.example"]).0, 403);
    assert_eq!(get(&server, "/cdc/ks.t?from=x", &[&reader]).0, 400);
    let (status, mut denied) = get(&server, path, &[&other]);
    let mut body = String::new();
    denied.read_to_string(&mut body).unwrap();
    assert_eq!(status, 403, "{body}");
    assert!(body.contains("no SELECT permission on <table ks.t_scylla_cdc_log>"), "{body}");

    let (status, mut feed) = get(&server, path, &[&reader]);
    assert_eq!(status, 200);
    let first = events(&mut feed, 3);
    let mut keys: Vec<i64> = first.iter().map(|(_, data)| data["key"]["p"].as_i64().unwrap()).collect();
    assert_eq!(keys, [0, 1, 2]);
    assert!(first.iter().all(|(id, data)| data["token"] == json!(id)));
    // A change that comes while the feed is open.
    admin.query("DELETE FROM ks.t WHERE p = 1");
    assert_eq!(events(&mut feed, 1)[0].1["operation"], "delete_partition");
    drop(feed);
    // Behind the first event.
    let resumed = format!("Last-Event-ID: {}", first[0].0);
    let (_, mut feed) = get(&server, path, &[&reader, &resumed]);
    keys = events(&mut feed, 3).iter().map(|(_, data)| data["key"]["p"].as_i64().unwrap()).collect();
    assert_eq!(keys, [1, 2, 1]);
    // The places of clients that have gone are free again.
    let begun = Instant::now();
    let mut feeds = vec![feed];
    while feeds.len() < 2 {
        assert!(begun.elapsed() < PATIENCE, "no place is free");
        let (status, feed) = get(&server, "/cdc/ks.t", &[&reader]);
        if status == 200 {
            feeds.push(feed);
        }
    }
    assert_eq!(get(&server, path, &[&reader]).0, 503);
}

#[test]
fn a_port_without_encryption_is_for_loopback() {
    let output = torc(&["cdc", "serve", "--listen", "0.0.0.0:0"]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && error.contains("is not loopback"), "{error}");
}
