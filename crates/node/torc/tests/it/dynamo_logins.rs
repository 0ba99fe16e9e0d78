//! The places from which roles may use the DynamoDB API: the same as those from which they log in to CQL.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use ring::{digest, hmac};

use crate::client::Client;
use crate::node::{Node, Setup};

const BODY: &str = "{}";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(text: &str) -> String {
    hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
}

/// The time as signatures have it.
fn now() -> String {
    let output = Command::new("date").args(["-u", "+%Y%m%dT%H%M%SZ"]).output().expect("there is a clock");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

/// The headers of a signed ListTables.
fn signed(role: &str, secret: &str) -> String {
    let (time, target) = (now(), "DynamoDB_20120810.ListTables");
    let names = "host;x-amz-date;x-amz-target";
    let canonical = format!(
        "POST\n/\n\nhost:node\nx-amz-date:{time}\nx-amz-target:{target}\n\n{names}\n{}",
        sha256(BODY)
    );
    let scope = format!("{}/us-east-1/dynamodb/aws4_request", &time[..8]);
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", sha256(&canonical));
    let mut key = format!("AWS4{secret}").into_bytes();
    for part in scope.split('/').chain([text.as_str()]) {
        let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), part.as_bytes());
        key = mac.as_ref().to_vec();
    }
    format!(
        "host: node\r\nx-amz-date: {time}\r\nx-amz-target: {target}\r\nauthorization: AWS4-HMAC-SHA256 \
         Credential={role}/{scope}, SignedHeaders={names}, Signature={}\r\n",
        hex(&key)
    )
}

/// The answer to ListTables with these headers.
fn list_tables(node: &Node, headers: &str) -> String {
    let mut stream = TcpStream::connect((node.address, 8000)).expect("the port is open");
    let request = format!(
        "POST / HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{BODY}",
        BODY.len()
    );
    stream.write_all(request.as_bytes()).expect("the port reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    answer
}

fn setup(dir: &Path) -> Setup {
    Setup::new(dir)
        .option("alternator_port", "8000")
        .option("alternator_enforce_authorization", "true")
        .option("authenticator", "PasswordAuthenticator")
        .option("auth_bcrypt_gensalt_log2_rounds", "4")
        .option("authorizer", "CassandraAuthorizer")
        .option("cidr_authorizer", "CassandraCIDRAuthorizer")
        .option("audit_logging_options_enabled", "true")
}

/// The lines of the audit log so far.
fn audited(dir: &Path) -> String {
    let read = |shard: u16| std::fs::read_to_string(dir.join(format!("audit/audit-{shard}.log")));
    (0..2).filter_map(|shard| read(shard).ok()).collect()
}

/// Fails unless the request was refused with this text.
fn assert_refused(answer: &str, text: &str) {
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(answer.contains("#AccessDeniedException") && answer.contains(text), "{answer}");
}

/// Refused from elsewhere, admitted from inside, by each signature anew.
fn refuses(node: &Node, admin: &mut Client, secret: &str) {
    let from = "You do not have access from this IP 127.0.0.1";
    assert_refused(&list_tables(node, &signed("ann", secret)), from);
    // A header is not the peer of the connection.
    for header in ["X-Forwarded-For: 10.0.0.1", "X-Real-IP: 10.0.0.1", "Forwarded: for=10.0.0.1"] {
        let spoofed = format!("{}{header}\r\n", signed("ann", secret));
        assert_refused(&list_tables(node, &spoofed), from);
    }
    let guessed = list_tables(node, &signed("ann", "wrong"));
    assert!(guessed.contains("InvalidSignatureException"), "a guess learns of no limit: {guessed}");
    admin.query("ALTER ROLE ann WITH ACCESS FROM CIDRS {'office', 'here'}");
    let admitted = list_tables(node, &signed("ann", secret));
    assert!(admitted.starts_with("HTTP/1.1 200"), "{admitted}");

    admin.query("ALTER ROLE ann WITH ACCESS FROM CIDRS {'office'}");
    assert_refused(&list_tables(node, &signed("ann", secret)), from);
}

#[test]
fn roles_use_the_api_from_the_places_where_they_may_log_in() {
    let dir = tempfile::tempdir().unwrap();
    let mut setup = setup(dir.path()).option("cidr_authorizer_mode", "ENFORCE");
    let node = setup.start();
    let at = SocketAddr::new(node.address, 9042);
    let mut admin = Client::log_in(at, "cassandra", "cassandra").expect("the first superuser");
    for statement in [
        "UPDATE system_auth.cidr_groups SET cidrs = {('10.0.0.0', 8)} WHERE cidr_group = 'office'",
        "UPDATE system_auth.cidr_groups SET cidrs = {('127.0.0.0', 8)} WHERE cidr_group = 'here'",
        "CREATE ROLE ann WITH PASSWORD = 'secret' AND LOGIN = true AND ACCESS FROM CIDRS {'office'}",
    ] {
        admin.query(statement);
    }
    let secrets = admin.texts("SELECT salted_hash FROM system_auth.roles WHERE role = 'ann'");
    let secret = secrets[0][0].clone();
    refuses(&node, &mut admin, &secret);
    drop(admin);
    node.stop();
    let lines = audited(dir.path());
    let is_entry = |line: &str| {
        line.starts_with("user:ann|")
            && line.contains("|type:LOGIN_ERROR|category:AUTH|")
            && line.contains("You do not have access from this IP 127.0.0.1")
    };
    assert!(lines.lines().any(is_entry), "no entry of the refusal in:\n{lines}");

    // MONITOR, the default: the log names the role, and the request is served.
    setup.options.pop();
    let node = setup.start();
    let admitted = list_tables(&node, &signed("ann", &secret));
    assert!(admitted.starts_with("HTTP/1.1 200"), "{admitted}");
    node.says("Role ann accessed from unauthorized IP 127.0.0.1");
}
