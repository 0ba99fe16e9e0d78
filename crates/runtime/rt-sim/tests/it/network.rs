//! Network faults: partitions in both directions and one, crashes of the other side, slow and lossy links.

use std::cell::Cell;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rt::{ConnectOptions, Group, ListenOptions, Rt, Stream};
use rt_sim::{Config, LinkConfig, NodeConfig, NodeId, Simulation};

use crate::single;

const PORT: u16 = 7000;

async fn echo_server(rt: Rt, ip: std::net::IpAddr) {
    let address = SocketAddr::new(ip, PORT);
    let listener = rt.net().listen(address, ListenOptions::default()).await.unwrap();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        rt.spawn(Group::Statement, async move {
            let mut buf = [0; 1000];
            while let Ok(read @ 1..) = stream.read(&mut buf).await {
                if stream.write_all(&buf[..read]).await.is_err() {
                    return;
                }
            }
        })
        .detach();
    }
}

fn with_server(seed: u64, config: Config) -> (Simulation, NodeId, SocketAddr) {
    let sim = Simulation::new(seed, config);
    let node = sim.add_node(NodeConfig::default(), |info| {
        let ip = info.ip;
        single(move |rt| echo_server(rt, ip))
    });
    sim.start(node);
    sim.run_for(Duration::from_millis(1));
    let address = SocketAddr::new(sim.ip(node), PORT);
    (sim, node, address)
}

async fn connect(rt: &Rt, address: SocketAddr) -> Result<Stream, ErrorKind> {
    let result = rt.net().connect(address, ConnectOptions::default()).await;
    result.map_err(|error| error.source.kind())
}

async fn ping(stream: &Stream) -> Result<(), ErrorKind> {
    stream.write_all(b"ping").await.map_err(|error| error.kind())?;
    let mut back = [0; 4];
    stream.read_exact(&mut back).await.map_err(|error| error.kind())?;
    assert_eq!(&back, b"ping");
    Ok(())
}

#[test]
fn a_partition_delays_and_then_breaks_connections() {
    let (sim, node, address) = with_server(1, Config::default());
    let client = sim.client();
    let handle = sim.handle();
    sim.block_on(move |rt| async move {
        let stream = connect(&rt, address).await.unwrap();
        ping(&stream).await.unwrap();
        handle.partition(client, node);
        let blocked = rt.timeout(Duration::from_secs(2), ping(&stream)).await;
        assert!(blocked.is_err(), "nothing comes through");
        handle.heal(client, node);
        let mut late = [0; 4];
        stream.read_exact(&mut late).await.expect("TCP sends it again when the way is free");
        ping(&stream).await.unwrap();
        handle.partition(client, node);
        let start = rt.now();
        assert_eq!(ping(&stream).await, Err(ErrorKind::TimedOut));
        assert!(rt.now() - start >= Duration::from_secs(30));
        assert_eq!(connect(&rt, address).await.err(), Some(ErrorKind::TimedOut));
        handle.heal_all();
        ping(&connect(&rt, address).await.unwrap()).await.unwrap();
    })
    .unwrap();
}

#[test]
fn a_one_way_partition_lets_requests_in_but_no_answers_out() {
    let (sim, node, address) = with_server(2, Config::default());
    let client = sim.client();
    let handle = sim.handle();
    sim.block_on(move |rt| async move {
        let stream = Rc::new(connect(&rt, address).await.unwrap());
        ping(&stream).await.unwrap();
        handle.partition_one_way(node, client);
        stream.write_all(b"hear").await.unwrap();
        let answer = Rc::new(Cell::new(false));
        let (reader, arrived) = (Rc::clone(&stream), Rc::clone(&answer));
        let reading = rt.spawn(Group::Statement, async move {
            reader.read_exact(&mut [0; 4]).await.unwrap();
            arrived.set(true);
        });
        rt.sleep(Duration::from_secs(5)).await;
        assert!(!answer.get());
        assert_eq!(connect(&rt, address).await.err(), Some(ErrorKind::TimedOut));
        handle.heal_all();
        reading.await;
    })
    .unwrap();
}

#[test]
fn a_killed_process_closes_and_lost_power_is_silent() {
    let (sim, node, address) = with_server(3, Config::default());
    let handle = sim.handle();
    sim.block_on(move |rt| async move {
        let stream = connect(&rt, address).await.unwrap();
        ping(&stream).await.unwrap();
        handle.kill(node);
        rt.sleep(Duration::from_millis(2)).await;
        assert!(
            rt.timeout(Duration::from_secs(1), ping(&stream)).await.expect("the connection breaks").is_err()
        );
        assert_eq!(connect(&rt, address).await.err(), Some(ErrorKind::ConnectionRefused));

        handle.start(node);
        rt.sleep(Duration::from_millis(2)).await;
        let stream = connect(&rt, address).await.unwrap();
        ping(&stream).await.unwrap();
        handle.crash(node);
        assert!(rt.timeout(Duration::from_secs(5), ping(&stream)).await.is_err(), "no sign of life");
        assert_eq!(connect(&rt, address).await.err(), Some(ErrorKind::TimedOut));
        handle.start(node);
        let reset = rt.timeout(Duration::from_secs(5), stream.read(&mut [0; 4])).await;
        let kind = reset.expect("the new process knows nothing of it").unwrap_err().kind();
        assert_eq!(kind, ErrorKind::ConnectionReset);
    })
    .unwrap();
}

#[test]
fn links_may_be_slow_and_lossy_but_keep_the_order() {
    let link = LinkConfig {
        latency_min: Duration::from_millis(20),
        latency_max: Duration::from_millis(30),
        bandwidth: Some(1_000_000),
        loss_per_million: 50_000,
        reset_per_million: 0,
    };
    for seed in 0..10 {
        let (sim, _, address) = with_server(seed, Config { link, ..Config::default() });
        sim.block_on(move |rt| async move {
            let start = rt.now();
            let stream = Rc::new(connect(&rt, address).await.unwrap());
            let sent: Vec<u8> = (0..200_000u32).map(|at| ((at * 13) >> 5) as u8).collect();
            let (writer, bytes) = (Rc::clone(&stream), sent.clone());
            let writing = rt.spawn(Group::Statement, async move { writer.write_all(&bytes).await.unwrap() });
            let mut back = vec![0; sent.len()];
            stream.read_exact(&mut back).await.unwrap();
            assert!(back == sent);
            writing.await;
            assert!(rt.now() - start > Duration::from_millis(250), "{:?}", rt.now() - start);
        })
        .unwrap();
    }
}

#[test]
fn connections_overtake_each_other() {
    let link = LinkConfig {
        latency_min: Duration::ZERO,
        latency_max: Duration::from_millis(10),
        ..LinkConfig::default()
    };
    let (sim, _, address) = with_server(5, Config { link, ..Config::default() });
    sim.block_on(move |rt| async move {
        let order = Rc::new(std::cell::RefCell::new(Vec::new()));
        let tasks: Vec<_> = (0..20)
            .map(|n| {
                let (rt2, order) = (rt.clone(), Rc::clone(&order));
                rt.spawn(Group::Statement, async move {
                    ping(&connect(&rt2, address).await.unwrap()).await.unwrap();
                    order.borrow_mut().push(n);
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        assert!(!order.borrow().is_sorted());
    })
    .unwrap();
}

#[test]
fn resets_break_connections_and_local_ports_are_kept() {
    let (sim, node, address) = with_server(6, Config::default());
    let (client, handle) = (sim.client(), sim.handle());
    let own = sim.ip(client);
    sim.block_on(move |rt| async move {
        let local = SocketAddr::new(own, 40_007);
        let options = ConnectOptions { local: Some(local) };
        let stream = rt.net().connect(address, options).await.unwrap();
        assert_eq!(stream.local_addr().unwrap(), local);
        assert!(rt.net().connect(address, options).await.is_err(), "the same pair of addresses twice");
        ping(&stream).await.unwrap();
        handle.reset_connections(client, node);
        assert_eq!(ping(&stream).await, Err(ErrorKind::ConnectionReset));
        drop(stream);
        rt.sleep(Duration::from_millis(10)).await;
        ping(&rt.net().connect(address, options).await.unwrap()).await.unwrap();
    })
    .unwrap();
}

#[test]
fn a_full_window_makes_the_writer_wait() {
    let (sim, _, _) = with_server(7, Config { window_bytes: 10_000, ..Config::default() });
    sim.block_on(move |rt| async move {
        let any = "0.0.0.0:0".parse().unwrap();
        let listener = rt.net().listen(any, ListenOptions::default()).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = connect(&rt, SocketAddr::from(([127, 0, 0, 1], port))).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let writing =
            rt.spawn(Group::Statement, async move { client.write_all(&[7; 50_000]).await.unwrap() });
        rt.sleep(Duration::from_secs(1)).await;
        assert!(!writing.is_finished());
        server.read_exact(&mut vec![0; 39_000]).await.unwrap();
        rt.sleep(Duration::from_secs(1)).await;
        assert!(!writing.is_finished());
        server.read_exact(&mut vec![0; 11_000]).await.unwrap();
        writing.await;
    })
    .unwrap();
}

#[test]
fn keepalive_ends_connections_whose_other_end_is_gone() {
    // With keepalive or without, and whether the other machine comes back.
    for (seed, keepalive, restarts) in [(7, false, true), (8, true, true), (9, true, false)] {
        let (sim, node, address) = with_server(seed, Config::default());
        let handle = sim.handle();
        sim.block_on(move |rt| async move {
            let minute = Duration::from_secs(60);
            let stream = connect(&rt, address).await.unwrap();
            if keepalive {
                stream.set_keepalive(minute).unwrap();
            }
            ping(&stream).await.unwrap();
            rt.sleep(5 * minute).await;
            ping(&stream).await.expect("an idle connection stays");
            handle.crash(node);
            if restarts {
                handle.start(node);
            }
            let mut buf = [0; 1];
            let ended = rt.timeout(3 * minute, stream.read(&mut buf)).await;
            match (keepalive, restarts) {
                (false, _) => assert!(ended.is_err(), "nobody would ever tell"),
                (true, true) => {
                    assert_eq!(ended.expect("in time").unwrap_err().kind(), ErrorKind::ConnectionReset);
                }
                (true, false) => assert_eq!(ended.expect("in time").unwrap_err().kind(), ErrorKind::TimedOut),
            }
        })
        .unwrap();
    }
}
