//! Random clients over the simulated network: partial reads and writes, late and broken connections, tasks that are
//! preempted. Every answer that comes is the right one, nothing is left behind, and a seed repeats itself.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rt::sync::Semaphore;
use rt::{Group, LocalBoxFuture, Rt, ShardMain};
use rt_sim::{Config, LinkConfig, NodeConfig, Rng, Simulation};
use session::{AllowAll, ClientTls, SessionConfig, Sessions, SessionsEndpoint, sessions_mesh};
use testkit::certificates::{AUTHORITY, NODE};
use tls::{ClientAuth, Credentials, Pem, Policy};
use wire::Version;
use wire::client::{Answer, AnswerBody, ResultBody};

use crate::client::Client;
use crate::world::{Echo, node};

const SHARDS: u16 = 3;
/// Longer than any client works.
const LIFETIME: Duration = Duration::from_secs(3600);

/// The certificates and truststores of both sides of encrypted connections.
fn credentials() -> Arc<Credentials> {
    let pem = Pem {
        certificate: NODE.certificate.to_vec(),
        key: NODE.key.to_vec(),
        truststore: Some(AUTHORITY.to_vec()),
    };
    let policy = Policy { client_auth: ClientAuth::Required, verify_names: true };
    Arc::new(Credentials::new(pem, policy).expect("the certificates of the tests are good"))
}

async fn serve(rt: Rt, endpoint: SessionsEndpoint, address: SocketAddr, encrypted: bool) -> [u64; 3] {
    let config = SessionConfig {
        native_transport_max_request_data_in_flight_per_ip: 300_000,
        requests_per_connection_max: 20,
        ..SessionConfig::new(address)
    };
    let echo = Echo::new(&rt, Rc::default(), Semaphore::new(0));
    let sessions = Sessions::new(&rt, config, node(), Rc::new(AllowAll), endpoint, echo);
    if rt.shard().0 == 0 {
        let tls = encrypted.then(|| ClientTls {
            credentials: credentials(),
            optional: false,
            native_address: None,
            shard_aware_address: None,
        });
        sessions.listen_with(tls).await.expect("the address is free");
    }
    rt.sleep(LIFETIME).await;
    let metrics = sessions.metrics();
    [metrics.connections.get(), metrics.requests_waiting.get(), metrics.request_bytes_in_flight.get()]
}

/// A request and its expected answer: the length of a cell, or nothing.
fn draw(rng: &mut Rng) -> (String, Vec<u8>, Option<usize>) {
    match rng.below(6) {
        0 => ("void".into(), Vec::new(), None),
        1 => (format!("sleep {}", rng.below(5)), Vec::new(), None),
        2 => (format!("yield {}", rng.below(5)), Vec::new(), None),
        3 => {
            let len = rng.below(200_000) as usize;
            (format!("big {len}"), Vec::new(), Some(len))
        }
        kind => {
            let len = rng.below(if kind == 4 { 200 } else { 200_000 }) as usize;
            ("length".into(), vec![3; len], Some(len.to_string().len()))
        }
    }
}

fn check(answer: Answer, expected: Option<usize>) {
    match (answer.body, expected) {
        (AnswerBody::Result(ResultBody::Void), None) => {}
        (AnswerBody::Result(ResultBody::Rows(rows)), Some(len)) => {
            let cells = rows.to_vec().expect("whole rows");
            assert_eq!(cells[0][0].as_ref().map(Vec::len), Some(len));
        }
        (body, expected) => panic!("{body:?} instead of {expected:?}"),
    }
}

/// Runs one connection; false when the network broke it.
async fn converse(rt: &Rt, address: SocketAddr, encrypted: bool, rng: &mut Rng) -> bool {
    let version = Version::ALL[rng.below(3) as usize];
    let Ok(mut client) = Client::try_connect(rt, address, None, version).await else { return false };
    if encrypted {
        let stream = tls::connect(rt, client.stream, &credentials(), address.ip(), LIFETIME).await;
        let Ok(stream) = stream else { return false };
        client.stream = stream;
    }
    let lz4 = rng.below(2) == 0;
    client.push(0, |request| {
        let options = [("CQL_VERSION", "3.0.0"), ("COMPRESSION", if lz4 { "lz4" } else { "" })];
        request.startup(&options);
    });
    let bytes = client.take_bytes();
    if client.stream.write_all(&bytes).await.is_err() || client.next().await.is_none() {
        return false;
    }
    client.agree(lz4.then_some(wire::Compression::Lz4));
    for _ in 0..rng.below(6) {
        let requests: Vec<_> = (0..1 + rng.below(40)).map(|_| draw(rng)).collect();
        for (stream, (text, value, _)) in requests.iter().enumerate() {
            client.push_value(stream as i16, text, value);
        }
        let bytes = client.take_bytes();
        let mut answered = vec![false; requests.len()];
        // Answers are read while requests are written: both sides have little room.
        let stream = &client.stream;
        let mut rest = &bytes[..];
        let mut left = requests.len();
        while left > 0 {
            if !rest.is_empty() {
                let now = rest.len().min(50_000);
                let write = rt.timeout(Duration::from_millis(5), stream.write_all(&rest[..now])).await;
                match write {
                    // How much was written of a piece that timed out is not known: give the connection up.
                    Err(_) => return false,
                    Ok(Err(_)) => return false,
                    Ok(Ok(())) => rest = &rest[now..],
                }
                continue;
            }
            return read_answers(&mut client, &requests, &mut answered, &mut left).await && left == 0;
        }
    }
    true
}

async fn read_answers(
    client: &mut Client,
    requests: &[(String, Vec<u8>, Option<usize>)],
    answered: &mut [bool],
    left: &mut usize,
) -> bool {
    while *left > 0 {
        let Some(envelope) = client.next().await else { return false };
        let index = envelope.stream as usize;
        assert!(!std::mem::replace(&mut answered[index], true), "answered twice");
        check(Answer::decode(&envelope, client.dialect).expect("a good answer"), requests[index].2);
        *left -= 1;
    }
    true
}

/// Runs the clients of a seed; the trace's hash and how many connections lived to their end.
fn run(seed: u64, link: LinkConfig, encrypted: bool) -> (u64, usize) {
    let simulation = Simulation::new(seed, Config { link, ..Config::default() });
    let sim = simulation.handle();
    let server = sim.add_node(NodeConfig { shards: SHARDS, ..NodeConfig::default() }, move |info| {
        let address = SocketAddr::new(info.ip, 9042);
        let main = |endpoint| {
            Box::new(move |rt| Box::pin(serve(rt, endpoint, address, encrypted)) as LocalBoxFuture<[u64; 3]>)
                as ShardMain<[u64; 3]>
        };
        sessions_mesh(SHARDS).into_iter().map(main).collect()
    });
    sim.start(server);
    let address = SocketAddr::new(sim.ip(server), 9042);
    let rngs: Vec<_> = (0..6).map(|stream| sim.rng(stream)).collect();
    let complete = sim
        .block_on(move |rt: Rt| async move {
            rt.sleep(Duration::from_secs(1)).await;
            let client = |mut rng: Rng| {
                let own = rt.clone();
                rt.spawn(Group::Statement, async move {
                    let mut complete = 0;
                    for _ in 0..4 {
                        complete += usize::from(converse(&own, address, encrypted, &mut rng).await);
                    }
                    complete
                })
            };
            let tasks: Vec<_> = rngs.into_iter().map(client).collect();
            let mut complete = 0;
            for task in tasks {
                complete += task.await;
            }
            complete
        })
        .expect("the clients end");
    sim.run_until_exit(server).expect("the server ends");
    assert_eq!(
        sim.exits(server),
        vec!["[0, 0, 0]"; usize::from(SHARDS)],
        "seed {seed}: something is left behind"
    );
    (sim.trace_hash(), complete)
}

#[test]
fn clients_of_a_healthy_network() {
    let mut complete = 0;
    for seed in 0..15 {
        complete += run(seed, LinkConfig::default(), false).1;
    }
    assert!(complete > 100, "only {complete} of 360 connections lived to their end");
}

#[test]
fn clients_of_a_network_that_breaks() {
    for seed in 100..115 {
        run(
            seed,
            LinkConfig { loss_per_million: 3000, reset_per_million: 3000, ..LinkConfig::default() },
            false,
        );
    }
}

#[test]
fn a_seed_repeats_itself() {
    for seed in [7, 8] {
        let link = LinkConfig { reset_per_million: 1000, ..LinkConfig::default() };
        assert_eq!(run(seed, link, false), run(seed, link, false));
    }
}

#[test]
fn clients_with_tls() {
    let mut complete = 0;
    for seed in 200..206 {
        complete += run(seed, LinkConfig::default(), true).1;
    }
    assert!(complete > 40, "only {complete} of 144 connections lived to their end");
    for seed in 300..306 {
        run(
            seed,
            LinkConfig { loss_per_million: 3000, reset_per_million: 3000, ..LinkConfig::default() },
            true,
        );
    }
}
