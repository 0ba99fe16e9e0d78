//! The ports over the simulated network: with TLS and without, on several shards, and clients that use the wrong one.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use dynamo::{ApiSettings, HandOverEndpoint, HttpLimits, Isolation, Server, hand_over_mesh};
use rt::{ConnectOptions, LocalBoxFuture, Rt, ShardMain, Stream};
use rt_sim::{Config, NodeConfig, Simulation};
use testkit::certificates::{AUTHORITY, NODE};
use tls::{ClientAuth, Credentials, Pem, Policy};

use crate::api;
use crate::memory::Memory;

const SHARDS: u16 = 3;
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const PLAIN: SocketAddr = SocketAddr::new(ADDRESS, 8000);
const TLS: SocketAddr = SocketAddr::new(ADDRESS, 8043);
/// Longer than anything takes that is not stuck.
const WHILE: Duration = Duration::from_secs(20);

fn credentials() -> Arc<Credentials> {
    let pem = Pem {
        certificate: NODE.certificate.to_vec(),
        key: NODE.key.to_vec(),
        truststore: Some(AUTHORITY.to_vec()),
    };
    let policy = Policy { client_auth: ClientAuth::No, verify_names: true };
    Arc::new(Credentials::new(pem, policy).expect("the certificates of the tests are good"))
}

/// Clients, which run on shard 0 beside its server.
type Clients<F> = fn(Rt, Rc<Server<Memory>>) -> F;

/// Runs clients against a node with both ports and several shards.
fn run<F: Future<Output = ()> + 'static>(clients: Clients<F>) {
    run_on(SHARDS, Setting::default(), clients);
}

/// Where requests have to be signed.
fn enforcing() -> Setting {
    let settings = ApiSettings { enforces_authorization: true, ..ApiSettings::default() };
    Setting { settings, ..Setting::default() }
}

/// How the API is served.
#[derive(Clone, Default)]
struct Setting {
    settings: ApiSettings,
    /// A shard that takes no connections for minutes.
    busy: Option<u16>,
    limits: HttpLimits,
}

fn run_on<F: Future<Output = ()> + 'static>(shards: u16, setting: Setting, clients: Clients<F>) {
    let config = Config { time_max: Duration::from_secs(100_000), ..Config::default() };
    let simulation = Simulation::new(1, config);
    let sim = simulation.handle();
    let shape = NodeConfig { ip: Some(ADDRESS), shards, ..NodeConfig::default() };
    let node = sim.add_node(shape, move |_| {
        let main = |endpoint: HandOverEndpoint| {
            let setting = setting.clone();
            let main =
                move |rt: Rt| -> LocalBoxFuture<()> { Box::pin(shard(rt, endpoint, setting, clients)) };
            Box::new(main) as ShardMain<()>
        };
        hand_over_mesh(shards, 64).into_iter().map(main).collect()
    });
    sim.start(node);
    sim.run_until_exit(node).expect("the clients end");
    assert_eq!(sim.exits(node), vec!["()"; usize::from(shards)]);
}

async fn shard<F: Future<Output = ()> + 'static>(
    rt: Rt,
    endpoint: HandOverEndpoint,
    setting: Setting,
    clients: Clients<F>,
) {
    let day = Duration::from_secs(86_400);
    if setting.busy == Some(rt.shard().0) {
        rt.sleep(Duration::from_secs(300)).await;
    }
    let api = api(Isolation::Always).with_settings(setting.settings);
    let server = Rc::new(Server::new(&rt, api, setting.limits, day, endpoint));
    if rt.shard().0 == 0 {
        assert_eq!(server.listen(PLAIN, None).await.expect("it is free"), PLAIN);
        assert_eq!(server.listen(TLS, Some(credentials())).await.expect("it is free"), TLS);
        clients(rt.clone(), server.clone()).await;
        server.stop(Duration::from_secs(1)).await;
        assert!(rt.net().connect(TLS, ConnectOptions::default()).await.is_err(), "both ports are closed");
        assert!(rt.net().connect(PLAIN, ConnectOptions::default()).await.is_err(), "both ports are closed");
    } else {
        // The others serve connections that shard 0 hands over for as long as the longest of these tests.
        rt.sleep(Duration::from_secs(600)).await;
        server.stop(Duration::from_secs(1)).await;
    }
}

async fn connect(rt: &Rt, address: SocketAddr) -> Stream {
    rt.net().connect(address, ConnectOptions::default()).await.expect("the port is open")
}

async fn connect_tls(rt: &Rt) -> Stream {
    let stream = connect(rt, TLS).await;
    tls::connect(rt, stream, &credentials(), ADDRESS, WHILE).await.expect("the certificate is good")
}

/// The bytes that come until the port closes the connection, which it must.
async fn rest(rt: &Rt, stream: &Stream) -> Vec<u8> {
    let mut all = Vec::new();
    let reading = async {
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut bytes).await {
            all.extend_from_slice(&bytes[..read]);
        }
    };
    rt.timeout(WHILE, reading).await.expect("the port closes the connection");
    all
}

/// The answer to these bytes.
async fn ask(rt: &Rt, stream: &Stream, request: &[u8]) -> String {
    stream.write_all(request).await.expect("the port reads");
    String::from_utf8_lossy(&rest(rt, stream).await).into_owned()
}

/// A request for the names of tables, with some more headers.
fn list_tables(headers: &str) -> Vec<u8> {
    let head = "POST / HTTP/1.1\r\nconnection: close\r\ncontent-length: 2\r\nx-amz-target: DynamoDB_20120810.ListTables\r\n";
    format!("{head}{headers}\r\n{{}}").into_bytes()
}

const HOST: &str = "host: db.example:8043\r\n";

#[test]
fn both_ports_serve_from_every_shard() {
    run(|rt, _| async move {
        for _ in 0..2 * SHARDS {
            for stream in [connect(&rt, PLAIN).await, connect_tls(&rt).await] {
                let answer = ask(&rt, &stream, &list_tables(HOST)).await;
                assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
                assert!(answer.ends_with(r#"{"TableNames":[]}"#), "{answer}");
            }
        }
    });
}

#[test]
fn a_connection_with_tls_is_kept_for_further_requests() {
    run(|rt, _| async move {
        let stream = connect_tls(&rt).await;
        let kept = String::from_utf8(list_tables(HOST)).unwrap().replace("connection: close\r\n", "");
        let two = [kept.as_bytes(), &list_tables(HOST)].concat();
        let answers = ask(&rt, &stream, &two).await;
        assert_eq!(answers.matches("HTTP/1.1 200").count(), 2, "{answers}");
    });
}

#[test]
fn the_wrong_protocol_gets_an_answer_or_a_closed_connection() {
    run(|rt, _| async move {
        let misdirected = ask(&rt, &connect(&rt, TLS).await, &list_tables(HOST)).await;
        assert!(misdirected.starts_with("HTTP/1.1 400"), "{misdirected}");
        assert!(misdirected.contains("ValidationException") && misdirected.contains("https://"));
        let health = ask(&rt, &connect(&rt, TLS).await, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert!(health.starts_with("HTTP/1.1 400"), "a port that is not used right is not healthy: {health}");
        // CQL's STARTUP, and noise.
        for bytes in [&b"\x04\0\0\0\x01\0\0\0\x16\0\x01\0\x0bCQL_VERSION\0\x053.0.0"[..], &[0xff; 64]] {
            for port in [PLAIN, TLS] {
                let answer = ask(&rt, &connect(&rt, port).await, bytes).await;
                assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
            }
        }
        // A client of TLS on the port without it.
        let stream = connect(&rt, PLAIN).await;
        let refused = tls::connect(&rt, stream, &credentials(), ADDRESS, WHILE).await;
        assert!(!matches!(refused, Err(tls::TlsError::TimedOut(_)) | Ok(_)), "{refused:?}");
        // Another protocol inside of TLS.
        let answer = ask(&rt, &connect_tls(&rt).await, &[0xff; 64]).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
        // A handshake that begins well and continues with noise.
        let noise = [&b"\x16\x03\x01\0\x20"[..], &[0xaa; 32]].concat();
        ask(&rt, &connect(&rt, TLS).await, &noise).await;
    });
}

#[test]
fn pages_of_other_sites_are_refused_and_programs_are_not() {
    run(|rt, _| async move {
        let status = async |headers: &str| {
            let answer = ask(&rt, &connect(&rt, PLAIN).await, &list_tables(headers)).await;
            answer.get(9..12).unwrap_or_default().to_owned()
        };
        assert_eq!(status("host: any.name:1\r\n").await, "200");
        let answer = ask(&rt, &connect(&rt, PLAIN).await, &list_tables("host: any.name:1\r\n")).await;
        let date = answer.lines().find(|line| line.to_lowercase().starts_with("date: ")).unwrap_or_default();
        assert!(
            date.ends_with(" GMT") && date.len() == "date: Sun, 06 Nov 1994 08:49:37 GMT".len(),
            "{answer}"
        );
        assert_eq!(status("host: 10.0.0.1:8000\r\norigin: http://10.0.0.1:8000\r\n").await, "200");
        assert_eq!(status("host: evil.example:8000\r\norigin: http://evil.example:8000\r\n").await, "403");
        assert_eq!(status("host: 10.0.0.1:8000\r\nsec-fetch-site: cross-site\r\n").await, "403");
        let preflight = b"OPTIONS / HTTP/1.1\r\nhost: 10.0.0.1:8000\r\norigin: http://evil.example\r\n\
            access-control-request-method: POST\r\naccess-control-request-headers: x-amz-target\r\n\r\n";
        let answer = ask(&rt, &connect(&rt, PLAIN).await, preflight).await.to_lowercase();
        assert!(answer.starts_with("http/1.1 403") && answer.contains("accessdeniedexception"), "{answer}");
        assert!(!answer.contains("access-control-allow"), "{answer}");
        // To a foreign page of its own origin, the port with TLS is as closed.
        let rebound = list_tables("host: evil.example\r\norigin: https://evil.example\r\n");
        assert!(ask(&rt, &connect_tls(&rt).await, &rebound).await.starts_with("HTTP/1.1 403"));
    });
}

#[test]
fn pages_that_sign_may_be_of_any_origin() {
    run_on(1, enforcing(), |rt, _| async move {
        let preflight = b"OPTIONS / HTTP/1.1\r\nconnection: close\r\norigin: http://app.example\r\n\
            access-control-request-method: POST\r\naccess-control-request-headers: x-amz-target, authorization\r\n\r\n";
        let answer = ask(&rt, &connect(&rt, PLAIN).await, preflight).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        for header in [
            "access-control-allow-origin: *",
            "access-control-allow-methods: POST",
            "access-control-allow-headers: x-amz-target, authorization",
            "access-control-max-age: 7200",
        ] {
            assert!(answer.lines().any(|line| line == header), "{header}: {answer}");
        }
        let answer =
            ask(&rt, &connect(&rt, PLAIN).await, &list_tables("origin: http://app.example\r\n")).await;
        assert!(answer.contains("MissingAuthenticationToken"), "{answer}");
        assert!(answer.contains("access-control-allow-origin: *\r\n"), "{answer}");
        assert!(!answer.contains("access-control-max-age"), "{answer}");
        let answer = ask(&rt, &connect(&rt, PLAIN).await, &list_tables(HOST)).await;
        assert!(!answer.contains("access-control"), "a program: {answer}");
    });
}

#[test]
fn the_nodes_of_a_datacenter_are_listed_for_everybody() {
    run_on(1, enforcing(), |rt, _| async move {
        for (query, expected) in [("", r#"["127.0.0.1"]"#), ("?dc=nowhere", "[]"), ("?rack=nowhere", "[]")] {
            let request = format!("GET /localnodes{query} HTTP/1.1\r\nconnection: close\r\n\r\n");
            let answer = ask(&rt, &connect(&rt, PLAIN).await, request.as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(expected), "{query}: {answer}");
            assert!(answer.contains("content-type: application/json\r\n"), "{answer}");
        }
    });
}

/// Clients that send all of a request before they read, and one that asks first.
#[test]
fn a_body_that_is_too_large_is_refused_where_its_client_sees_it() {
    let limits = HttpLimits { body_bytes_max: 10_000, ..HttpLimits::default() };
    run_on(1, Setting { limits, ..Setting::default() }, |rt, server| async move {
        let head = "POST / HTTP/1.1\r\nx-amz-target: DynamoDB_20120810.ListTables\r\n";
        let known = [format!("{head}content-length: 20000\r\n\r\n").as_bytes(), &[b' '; 20_000]].concat();
        let mut chunked = format!("{head}transfer-encoding: chunked\r\n\r\n").into_bytes();
        for _ in 0..15 {
            chunked.extend_from_slice(&[&b"3e8\r\n"[..], &[b' '; 1000], b"\r\n"].concat());
        }
        chunked.extend_from_slice(b"0\r\n\r\n");
        let asking = format!("{head}expect: 100-continue\r\ncontent-length: 20000\r\n\r\n").into_bytes();
        let huge = format!("{head}content-length: 99999999999\r\n\r\n").into_bytes();
        for request in [known, chunked, asking, huge] {
            let answer = ask(&rt, &connect(&rt, PLAIN).await, &request).await;
            assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
            assert!(answer.contains("#PayloadTooLarge\""), "{answer}");
            assert!(answer.contains("Request content length limit of 10000 bytes exceeded"), "{answer}");
        }
        assert_eq!(server.figures().requests_bytes, 0);
    });
}

#[test]
fn settings_count_from_the_next_request_on() {
    run_on(1, Setting::default(), |rt, server| async move {
        let answers = async || ask(&rt, &connect(&rt, PLAIN).await, &list_tables(HOST)).await;
        assert!(answers().await.starts_with("HTTP/1.1 200"));
        let warning = ApiSettings { warns_authorization: true, ..ApiSettings::default() };
        server.configure(warning.clone());
        assert!(answers().await.starts_with("HTTP/1.1 200"), "it is counted and carried out");
        assert_eq!(server.figures().authentication_failures, 1);
        server.configure(ApiSettings { enforces_authorization: true, ..warning });
        assert!(answers().await.contains("MissingAuthenticationToken"));
        assert_eq!(server.figures().authentication_failures, 2);
    });
}

#[test]
fn a_silent_client_is_given_up() {
    run(|rt, _| async move {
        let begun = rt.now();
        let (silent, half) = (connect(&rt, TLS).await, connect(&rt, TLS).await);
        half.write_all(b"\x16\x03\x01").await.unwrap();
        for stream in [silent, half] {
            assert!(rest(&rt, &stream).await.is_empty());
        }
        let took = rt.now().duration_since(begun);
        let limit = HttpLimits::default().handshake_timeout;
        assert!(took >= limit && took < limit + Duration::from_secs(2), "{took:?}");
    });
}

#[test]
fn refused_requests_are_counted() {
    run_on(1, enforcing(), |rt, server| async move {
        let unsigned = ask(&rt, &connect(&rt, PLAIN).await, &list_tables(HOST)).await;
        assert!(unsigned.contains("MissingAuthenticationToken"), "{unsigned}");
        // A page cannot sign, and needs no other refusal.
        let page = ask(&rt, &connect(&rt, PLAIN).await, &list_tables("origin: null\r\n")).await;
        assert!(page.contains("MissingAuthenticationToken"), "{page}");
        let nameless = b"POST / HTTP/1.1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        ask(&rt, &connect(&rt, PLAIN).await, nameless).await;
        ask(&rt, &connect(&rt, TLS).await, &list_tables(HOST)).await;
        ask(&rt, &connect(&rt, PLAIN).await, b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n").await;
        let noise = [&b"\x16\x03\x01\0\x20"[..], &[0xaa; 32]].concat();
        ask(&rt, &connect(&rt, TLS).await, &noise).await;
        // The port waits for a while for a refused client to read why.
        rt.sleep(Duration::from_secs(2)).await;
        let figures = server.figures();
        assert_eq!((figures.authentication_failures, figures.total_operations), (2, 4), "health is none");
        assert_eq!((figures.unsupported_operations, figures.tls_handshake_failures), (1, 1));
        let errors: Vec<_> = figures.errors.iter().map(|(name, count)| (*name, *count)).collect();
        let expected = [
            ("MissingAuthenticationTokenException", 2),
            ("UnknownOperationException", 1),
            ("ValidationException", 1),
        ];
        assert_eq!(errors, expected);
        assert!(figures.operations.is_empty(), "none was carried out");
    });
}

#[test]
fn bytes_and_connections_of_this_moment_are_shown_and_limited() {
    let limits = HttpLimits { bytes_in_flight_max: 1000, connections_max: 2, ..HttpLimits::default() };
    run_on(1, Setting { limits, ..Setting::default() }, |rt, server| async move {
        assert_eq!(server.figures().connections, 0);
        let slow = connect(&rt, PLAIN).await;
        let target = "x-amz-target: DynamoDB_20120810.ListTables\r\n";
        let head = format!("POST / HTTP/1.1\r\nconnection: close\r\n{target}content-length: 950\r\n\r\n");
        slow.write_all(head.as_bytes()).await.unwrap();
        slow.write_all(&[b' '; 900]).await.unwrap();
        rt.sleep(Duration::from_secs(1)).await;
        let figures = server.figures();
        assert_eq!((figures.connections, figures.requests_serving, figures.requests_bytes), (1, 1, 900));
        let body = [&[b' '; 200][..], b"{}"].concat();
        let head = format!("POST / HTTP/1.1\r\nconnection: close\r\n{target}content-length: 202\r\n\r\n");
        let second = connect(&rt, PLAIN).await;
        let answer = ask(&rt, &second, &[head.as_bytes(), &body].concat()).await;
        assert!(answer.contains("RequestLimitExceeded"), "{answer}");
        assert_eq!(server.figures().requests_shed, 1);
        let (third, fourth) = (connect(&rt, PLAIN).await, connect(&rt, PLAIN).await);
        assert!(rest(&rt, &third).await.is_empty(), "two may be open, and who asks nothing gives way");
        assert_eq!((server.figures().connections, server.figures().connections_shed), (2, 1));
        assert!(ask(&rt, &fourth, b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n").await.contains("healthy"));
        let mut last = vec![b' '; 48];
        last.extend_from_slice(b"{}");
        assert!(ask(&rt, &slow, &last).await.contains("TableNames"), "who has begun may end");
        let figures = server.figures();
        assert_eq!((figures.requests_serving, figures.requests_bytes, figures.requests_shed), (0, 0, 1));
    });
}

/// Bodies that do not end, of one address, leave half of the bytes to the others.
#[test]
fn bodies_of_one_client_keep_no_other_out() {
    let limits = HttpLimits { bytes_in_flight_max: 1000, ..HttpLimits::default() };
    run_on(1, Setting { limits, ..Setting::default() }, |rt, server| async move {
        let target = "x-amz-target: DynamoDB_20120810.ListTables\r\n";
        let head =
            |len| format!("POST / HTTP/1.1\r\nconnection: close\r\n{target}content-length: {len}\r\n\r\n");
        let mut endless = Vec::new();
        for _ in 0..4 {
            let one = connect(&rt, PLAIN).await;
            one.write_all(head(300).as_bytes()).await.unwrap();
            one.write_all(&[b' '; 200]).await.unwrap();
            endless.push(one);
        }
        rt.sleep(Duration::from_secs(1)).await;
        let figures = server.figures();
        assert_eq!((figures.requests_bytes, figures.requests_shed), (400, 2), "two of the four have a half");
        // To a port of the loopback address a client comes from that.
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 8001));
        server.listen(loopback, None).await.expect("it is free");
        let other = connect(&rt, loopback).await;
        let body = [&[b' '; 200][..], b"{}"].concat();
        let answer = ask(&rt, &other, &[head(202).as_bytes(), &body].concat()).await;
        assert!(answer.contains("TableNames"), "{answer}");
        drop(endless);
        rt.sleep(Duration::from_secs(1)).await;
        assert_eq!(server.figures().requests_bytes, 0);
    });
}

/// A request of an operation with this body.
fn request(operation: &str, body: &str) -> Vec<u8> {
    let target = format!("x-amz-target: DynamoDB_20120810.{operation}\r\n");
    let head =
        format!("POST / HTTP/1.1\r\nconnection: close\r\n{target}content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body.as_bytes()].concat()
}

/// An answer that its client takes byte by byte is counted, and does not stay for ever.
#[test]
fn answers_that_are_not_taken_are_bounded() {
    let limits = HttpLimits { answer_bytes_max: 4_000_000, ..HttpLimits::default() };
    run_on(1, Setting { limits, ..Setting::default() }, |rt, server| async move {
        let create = r#"{"TableName":"large","AttributeDefinitions":[{"AttributeName":"p","AttributeType":"S"}],
            "KeySchema":[{"AttributeName":"p","KeyType":"HASH"}],"BillingMode":"PAY_PER_REQUEST"}"#;
        let made = ask(&rt, &connect(&rt, PLAIN).await, &request("CreateTable", create)).await;
        assert!(made.starts_with("HTTP/1.1 200"), "{made}");
        for p in 0..3 {
            let text = "x".repeat(390_000);
            let put = format!(r#"{{"TableName":"large","Item":{{"p":{{"S":"{p}"}},"v":{{"S":"{text}"}}}}}}"#);
            let put = ask(&rt, &connect(&rt, PLAIN).await, &request("PutItem", &put)).await;
            assert!(put.starts_with("HTTP/1.1 200"), "{put}");
        }
        let scan = request("Scan", r#"{"TableName":"large"}"#);
        let slow = connect(&rt, PLAIN).await;
        slow.write_all(&scan).await.expect("the port reads");
        let begun = rt.now();
        rt.sleep(Duration::from_secs(1)).await;
        // One address may have a half, which the first answer has more than the half of.
        let refused = ask(&rt, &connect(&rt, PLAIN).await, &scan).await;
        assert!(refused.contains("RequestLimitExceeded"), "{}", refused.len());
        assert_eq!(server.figures().requests_shed, 1);
        // A small one is always given.
        let small = ask(&rt, &connect(&rt, PLAIN).await, &list_tables(HOST)).await;
        assert!(small.contains("large"), "{small}");
        let mut byte = [0; 1];
        let mut ended = false;
        // The rest of its bytes would take years so.
        while !ended && rt.now().duration_since(begun) < Duration::from_secs(400) {
            rt.sleep(Duration::from_secs(20)).await;
            ended = server.figures().connections == 0 || !matches!(slow.read(&mut byte).await, Ok(1..));
        }
        assert!(ended, "the connection is ended");
        let whole = ask(&rt, &connect(&rt, PLAIN).await, &scan).await;
        assert!(whole.starts_with("HTTP/1.1 200") && whole.len() > 1_000_000, "{}", whole.len());
    });
}

#[test]
fn a_busy_shard_keeps_no_other_from_connections() {
    let setting = Setting { busy: Some(1), ..Setting::default() };
    run_on(SHARDS, setting, |rt, _| async move {
        let mut answered = 0;
        for _ in 0..3 * SHARDS {
            let stream = connect(&rt, PLAIN).await;
            stream.write_all(&list_tables(HOST)).await.expect("the connection is open");
            let mut bytes = [0; 4096];
            if let Ok(Ok(1..)) = rt.timeout(Duration::from_secs(5), stream.read(&mut bytes)).await {
                answered += 1;
            }
        }
        assert_eq!(answered, 2 * SHARDS, "those of the other shards");
    });
}
