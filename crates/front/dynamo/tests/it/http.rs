//! The ports over the simulated network: with TLS and without, on several shards, and clients that use the wrong one.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dynamo::{HandOverEndpoint, HttpLimits, Isolation, Server, hand_over_mesh};
use rt::{ConnectOptions, LocalBoxFuture, Rt, ShardMain, Stream};
use rt_sim::{Config, NodeConfig, Simulation};
use testkit::certificates::{AUTHORITY, NODE};
use tls::{Credentials, Pem, Policy};

use crate::api;

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
    let policy = Policy { require_client_auth: false, verify_names: true };
    Arc::new(Credentials::new(pem, policy).expect("the certificates of the tests are good"))
}

/// Runs clients, on shard 0, against a node with both ports.
fn run<F: Future<Output = ()> + 'static>(clients: fn(Rt) -> F) {
    let config = Config { time_max: Duration::from_secs(100_000), ..Config::default() };
    let simulation = Simulation::new(1, config);
    let sim = simulation.handle();
    let shape = NodeConfig { ip: Some(ADDRESS), shards: SHARDS, ..NodeConfig::default() };
    let node = sim.add_node(shape, move |_| {
        let main = |endpoint: HandOverEndpoint| {
            let main = move |rt: Rt| -> LocalBoxFuture<()> { Box::pin(shard(rt, endpoint, clients)) };
            Box::new(main) as ShardMain<()>
        };
        hand_over_mesh(SHARDS, 64).into_iter().map(main).collect()
    });
    sim.start(node);
    sim.run_until_exit(node).expect("the clients end");
    assert_eq!(sim.exits(node), vec!["()"; usize::from(SHARDS)]);
}

async fn shard<F: Future<Output = ()> + 'static>(rt: Rt, endpoint: HandOverEndpoint, clients: fn(Rt) -> F) {
    let day = Duration::from_secs(86_400);
    let server = Server::new(&rt, api(Isolation::Always), HttpLimits::default(), day, endpoint);
    if rt.shard().0 == 0 {
        assert_eq!(server.listen(PLAIN, None).await.expect("it is free"), PLAIN);
        assert_eq!(server.listen(TLS, Some(credentials())).await.expect("it is free"), TLS);
        clients(rt.clone()).await;
        server.stop(Duration::from_secs(1)).await;
        assert!(rt.net().connect(TLS, ConnectOptions::default()).await.is_err(), "both ports are closed");
        assert!(rt.net().connect(PLAIN, ConnectOptions::default()).await.is_err(), "both ports are closed");
    } else {
        // The others serve what shard 0 hands over for as long as the longest of these tests.
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

/// What comes until the port closes the connection, which it must.
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

/// What comes when this was sent.
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
    run(|rt| async move {
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
    run(|rt| async move {
        let stream = connect_tls(&rt).await;
        let kept = String::from_utf8(list_tables(HOST)).unwrap().replace("connection: close\r\n", "");
        let two = [kept.as_bytes(), &list_tables(HOST)].concat();
        let answers = ask(&rt, &stream, &two).await;
        assert_eq!(answers.matches("HTTP/1.1 200").count(), 2, "{answers}");
    });
}

#[test]
fn the_wrong_protocol_gets_an_answer_or_a_closed_connection() {
    run(|rt| async move {
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
        // A handshake that begins well and goes on with noise.
        let noise = [&b"\x16\x03\x01\0\x20"[..], &[0xaa; 32]].concat();
        ask(&rt, &connect(&rt, TLS).await, &noise).await;
    });
}

#[test]
fn pages_of_other_sites_are_refused_and_programs_are_not() {
    run(|rt| async move {
        let status = async |headers: &str| {
            let answer = ask(&rt, &connect(&rt, PLAIN).await, &list_tables(headers)).await;
            answer.get(9..12).unwrap_or_default().to_owned()
        };
        assert_eq!(status("host: any.name:1\r\n").await, "200");
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
fn a_silent_client_is_given_up() {
    run(|rt| async move {
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
