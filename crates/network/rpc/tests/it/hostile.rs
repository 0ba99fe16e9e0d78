//! Peers that send garbage, send nothing, or announce bytes and do not send them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rpc::frame::{Decoder, HEADER_LEN, Header, Kind};
use rpc::hello::{Hello, HelloAnswer, PREFIX_LEN, Versions, decode_prefix};
use rpc::{Class, Dropped, Packer, Packing, Verb, WriteBuffer};
use rt::{Rt, Stream};
use rt_sim::{Sim, Simulation};
use topology::HostId;

use crate::harness::*;

/// Counts the lines of a log that warn.
struct Warnings(Arc<AtomicUsize>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// The result of `work`, and how often the log warned meanwhile.
fn warnings<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let count = Arc::new(AtomicUsize::new(0));
    let result = tracing::subscriber::with_default(Warnings(Arc::clone(&count)), work);
    (result, count.load(Ordering::Relaxed))
}

async fn connect(rt: &Rt) -> Stream {
    rt.net().connect(address(0), rt::ConnectOptions::default()).await.expect("the node listens")
}

/// Whether the other side closes within a time.
async fn is_closed(rt: &Rt, stream: &Stream, within: Duration) -> bool {
    let end = async {
        let mut buf = [0; 256];
        while matches!(stream.read(&mut buf).await, Ok(read) if read > 0) {}
    };
    rt.timeout(within, end).await.is_ok()
}

fn hello(class: Class) -> Hello {
    Hello {
        versions: Versions::SPOKEN,
        host: HostId([99; 16]),
        shard_count: 1,
        source_shard: 0,
        wanted_shard: 0,
        class,
        packings: 0,
        cluster_name: "test".to_owned(),
    }
}

/// A connection past its hello, whose frames a test makes itself.
async fn greeted(rt: &Rt, class: Class) -> Stream {
    let stream = connect(rt).await;
    stream.write_all(&hello(class).encode()).await.unwrap();
    let mut prefix = [0; PREFIX_LEN];
    stream.read_exact(&mut prefix).await.unwrap();
    let mut following = vec![0; decode_prefix(&prefix).unwrap()];
    stream.read_exact(&mut following).await.unwrap();
    assert!(HelloAnswer::decode(&prefix, &following).unwrap().outcome.is_ok());
    stream
}

fn frame(kind: Kind, verb: u8, stream: u64, body: &[u8]) -> Vec<u8> {
    let mut out = WriteBuffer::default();
    let header = Header::outgoing(kind, verb, stream, 60_000);
    out.push(header, Bytes::copy_from_slice(body), &mut Packer::new(Packing::None, 0));
    let mut slices = [std::io::IoSlice::new(&[]); 32];
    let used = out.slices(&mut slices);
    slices[..used].iter().flat_map(|slice| slice.to_vec()).collect()
}

fn one_node(seed: u64) -> Simulation {
    Cluster::new(seed, &[1]).start()
}

/// Runs a client of the simulation; then the node must still serve others.
fn client<F: Future<Output = ()> + 'static>(sim: &Sim, work: impl FnOnce(Rt) -> F + 'static) {
    sim.block_on(|rt| async move {
        work(rt.clone()).await;
        let stream = greeted(&rt, Class::Request).await;
        stream.write_all(&frame(Kind::Request, Verb::Read.number(), 1, b"still here")).await.unwrap();
        let mut input = bytes::BytesMut::with_capacity(1024);
        let mut decoder = Decoder::new(1000);
        let answer = loop {
            assert!(stream.read_buf(&mut input).await.unwrap() > 0, "the connection stays open");
            if let Some(answer) = decoder.next(&mut input).unwrap() {
                break answer;
            }
        };
        assert_eq!(answer.header.kind, Kind::Answer);
        assert_eq!(&answer.body[..], b"\0\x63still here");
    })
    .unwrap();
}

#[test]
fn garbage_gives_one_line_and_a_closed_connection() {
    let garbage: [&'static [u8]; 6] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        &[0; 100],
        &[0xFF; 100],
        b"\xF5TorcRPC\xFF\xFFand then nothing that makes sense",
        b"\xF5TorcRPC\x00\x20________________________________",
        b"\xF5TorcRPC\x00\x00",
    ];
    for (seed, bytes) in garbage.into_iter().enumerate() {
        let sim = one_node(100 + seed as u64);
        let ((), lines) = warnings(|| {
            client(&sim, move |rt| async move {
                let stream = connect(&rt).await;
                stream.write_all(bytes).await.unwrap();
                assert!(is_closed(&rt, &stream, SECOND).await, "{bytes:?}");
            });
        });
        assert_eq!(lines, 1, "{bytes:?}");
        assert_eq!(messenger(0, 0).stats().connections_refused, 1);
    }
}

#[test]
fn garbage_after_the_hello_closes_the_connection() {
    let mut damaged = frame(Kind::Request, Verb::Read.number(), 1, b"body");
    *damaged.last_mut().unwrap() ^= 1;
    let long = Header { body_len: u32::MAX, ..Header::outgoing(Kind::Request, 16, 1, 1) };
    let garbage: [Vec<u8>; 6] = [
        vec![0; HEADER_LEN],
        b"\x16\x03\x01 a TLS hello, perhaps, of some length".to_vec(),
        damaged,
        long.encode().to_vec(),
        frame(Kind::Answer, Verb::Read.number(), 1, b"nobody asked"),
        frame(Kind::Request, Verb::Gossip.number(), 1, b"not over this connection"),
    ];
    for (seed, bytes) in garbage.into_iter().enumerate() {
        let sim = one_node(200 + seed as u64);
        let ((), lines) = warnings(|| {
            client(&sim, move |rt| async move {
                let stream = greeted(&rt, Class::Request).await;
                stream.write_all(&bytes).await.unwrap();
                assert!(is_closed(&rt, &stream, SECOND).await, "{bytes:?}");
            });
        });
        assert_eq!(lines, 1, "seed {seed}");
    }
}

#[test]
fn a_verb_of_a_later_version_is_refused_and_the_connection_stays_open() {
    let sim = one_node(300);
    client(&sim, |rt| async move {
        let stream = greeted(&rt, Class::Request).await;
        for verb in [0, 255] {
            stream.write_all(&frame(Kind::OneWay, verb, 0, b"")).await.unwrap();
            stream.write_all(&frame(Kind::Request, verb, 5, b"")).await.unwrap();
            let mut header = [0; HEADER_LEN];
            stream.read_exact(&mut header).await.unwrap();
            let header = Header::decode(&header).unwrap();
            assert_eq!((header.kind, header.verb, header.stream), (Kind::Refusal, verb, 5));
            stream.read_exact(&mut vec![0; header.body_len as usize]).await.unwrap();
        }
    });
}

#[test]
fn those_that_say_no_hello_are_few_and_do_not_stay() {
    let sim = Cluster::new(400, &[1]).change(|_, config| config.limits.greeting_max = 20).start();
    let (_, lines) = warnings(|| {
        client(&sim, |rt| async move {
            let mut silent = Vec::new();
            for _ in 0..60 {
                silent.push(connect(&rt).await);
            }
            rt.sleep(Duration::from_millis(100)).await;
            assert_eq!(messenger(0, 0).stats().connections_refused, 40);
            rt.sleep(Duration::from_secs(6)).await;
            assert_eq!(messenger(0, 0).stats().connections_refused, 60);
            for stream in &silent {
                assert!(is_closed(&rt, stream, SECOND).await);
            }
        });
    });
    assert_eq!(lines, 20, "ten each time; the rest is counted");
}

#[test]
fn nodes_say_hello_beside_thousands_that_are_silent() {
    let sim = Cluster::new(402, &[1]).start();
    client(&sim, |rt| async move {
        let mut silent = Vec::new();
        for _ in 0..1_500 {
            silent.push(connect(&rt).await);
        }
        for _ in 0..20 {
            let begun = rt.now();
            let stream = greeted(&rt, Class::Request).await;
            assert!(rt.now() - begun < Duration::from_millis(500));
            drop(stream);
            for _ in 0..50 {
                silent.push(connect(&rt).await);
            }
        }
    });
}

#[test]
fn an_address_has_only_so_many_connections() {
    let sim = Cluster::new(401, &[1]).change(|_, config| config.limits.per_address_max = 5).start();
    client(&sim, |rt| async move {
        let mut kept = Vec::new();
        for _ in 0..5 {
            kept.push(greeted(&rt, Class::Request).await);
        }
        let refused = connect(&rt).await;
        assert!(is_closed(&rt, &refused, SECOND).await);
        assert_eq!(messenger(0, 0).stats().connections_in, [5, 0, 0]);
        kept.pop();
        rt.sleep(Duration::from_millis(100)).await;
        assert_eq!(messenger(0, 0).stats().connections_in, [4, 0, 0]);
    });
}

/// A hundred connections that promise long frames and send half of them: the memory for them is bounded, and the
/// frames come in one after another.
#[test]
fn long_frames_wait_for_each_other() {
    let sim = Cluster::new(402, &[1])
        .change(|_, config| {
            config.limits.partial_bytes_max = 2 << 20;
            config.limits.body_len_max = 1 << 20;
        })
        .start();
    let served = Rc::new(RefCell::new(0));
    let count = Rc::clone(&served);
    client(&sim, move |rt| async move {
        let body = vec![7; 1 << 20];
        let whole = frame(Kind::Request, Verb::Read.number(), 1, &body);
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let (whole, clock, count) = (whole.clone(), rt.clone(), Rc::clone(&count));
                rt.spawn(rt::Group::Statement, async move {
                    let stream = greeted(&clock, Class::Request).await;
                    let (first, second) = whole.split_at(whole.len() / 2);
                    stream.write_all(first).await.unwrap();
                    clock.sleep(Duration::from_millis(50)).await;
                    stream.write_all(second).await.unwrap();
                    let mut header = [0; HEADER_LEN];
                    stream.read_exact(&mut header).await.unwrap();
                    *count.borrow_mut() += 1;
                })
            })
            .collect();
        let mut most = 0;
        for _ in 0..20 {
            rt.sleep(Duration::from_millis(5)).await;
            most = most.max(messenger(0, 0).stats().partial_bytes);
        }
        assert_eq!(most, 2 << 20, "two at a time");
        for task in tasks {
            task.await;
        }
        assert_eq!(messenger(0, 0).stats().partial_bytes, 0);
    });
    // The answer has two bytes more than a frame may have: a refusal, but an answer.
    assert_eq!(*served.borrow(), 20);
}

/// A peer that asks and never reads: its queued answers stay within the limit, and others are served.
#[test]
fn a_slow_reader_costs_bounded_memory() {
    let sim = Cluster::new(403, &[1]).change(|_, config| config.limits.outgoing_bytes_max = 1 << 20).start();
    client(&sim, |rt| async move {
        let stream = Rc::new(greeted(&rt, Class::Request).await);
        let writer = Rc::clone(&stream);
        let asking = rt.spawn(rt::Group::Statement, async move {
            let request = frame(Kind::Request, Verb::Read.number(), 1, &[5; 10_000]);
            loop {
                if writer.write_all(&request).await.is_err() {
                    return;
                }
            }
        });
        let mut most = 0;
        for _ in 0..50 {
            rt.sleep(Duration::from_millis(20)).await;
            most = most.max(messenger(0, 0).stats().outgoing_bytes);
        }
        assert!(most > 1 << 19, "answers pile up: {most}");
        assert!(most <= 1 << 20, "{most}");
        rt.sleep(Duration::from_secs(10)).await;
        let stats = messenger(0, 0).stats();
        assert_eq!(stats.outgoing_bytes, 0, "one that reads nothing for so long is gone");
        assert_eq!(stats.dropped(Verb::Read, Dropped::QueueFull), 0, "it was not read from any more");
        assert!(asking.is_finished());
    });
}
