//! A conversation between two nodes as a capture file, for the dissector of Wireshark (`tests/wireshark`).
//!
//! A proxy between the nodes records the traffic; a seed decides all of it, so the file in `testdata/wireshark` is
//! the present protocol. `UPDATE=1 cargo test -p rpc` writes it again.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use rpc::{Packing, PeerInfo, Peers, Refusal, Verb};
use rt::{ConnectOptions, Group, ListenOptions, Rt, Stream};

use crate::harness::*;

const SEGMENT_LEN_MAX: usize = 8 << 10;

/// Bytes that passed: when, over which connection, in which direction.
struct Segment {
    nanos: u64,
    client: SocketAddr,
    from_client: bool,
    bytes: Vec<u8>,
}

type Record = Rc<RefCell<Vec<Segment>>>;

/// Passes bytes on in one direction until the end.
async fn pass(
    rt: Rt,
    from: Rc<Stream>,
    to: Rc<Stream>,
    client: SocketAddr,
    from_client: bool,
    record: Record,
) {
    let mut buf = vec![0; SEGMENT_LEN_MAX];
    while let Ok(read @ 1..) = from.read(&mut buf).await {
        let bytes = buf[..read].to_vec();
        record.borrow_mut().push(Segment { nanos: rt.now().as_nanos(), client, from_client, bytes });
        if to.write_all(&buf[..read]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

async fn proxy(rt: Rt, record: Record) {
    let any = SocketAddr::from(([0, 0, 0, 0], PORT));
    let listener = rt.net().listen(any, ListenOptions::default()).await.unwrap();
    loop {
        let (near, client) = listener.accept().await.unwrap();
        let far = rt.net().connect(address(1), ConnectOptions::default()).await.unwrap();
        let (near, far) = (Rc::new(near), Rc::new(far));
        for (from, to, from_client) in [(&near, &far, true), (&far, &near, false)] {
            let passing =
                pass(rt.clone(), Rc::clone(from), Rc::clone(to), client, from_client, record.clone());
            rt.spawn(Group::Statement, passing).detach();
        }
    }
}

/// The messages between two nodes during a lightweight transaction, and around it.
fn conversation() -> Vec<Segment> {
    let sim = Cluster::new(77, &[1, 1]).change(|_, config| config.compression = Packing::Lz4).start();
    let client = sim.client();
    let record = Record::default();
    let recording = record.clone();
    let rt = sim.rt(client, rt::ShardId(0)).unwrap();
    rt.spawn(Group::Statement, proxy(rt.clone(), recording)).detach();
    let proxy_address = SocketAddr::new(sim.ip(client), PORT);
    let peer = PeerInfo { address: proxy_address, shard_count: 1, near: rpc::Near::Rack };
    messenger(0, 0).set_peers(Arc::new(Peers::new([(host(1), peer)])));
    for verb in [Verb::PaxosPrepare, Verb::PaxosPropose] {
        messenger(1, 0).serve(verb, |incoming| async move { Ok(incoming.body.slice(..1)) });
    }
    messenger(1, 0)
        .serve(Verb::PaxosCommit, |_| async { Err(Refusal::new(Refusal::FIRST_FREE, "the disk is full")) });
    on(&sim, 0, 0, |rt, caller| async move {
        let call = |verb, body: Bytes| caller.call(to(1, 0), verb, body, rt.now() + SECOND);
        call(Verb::Echo, Bytes::from_static(b"there?")).await.unwrap();
        call(Verb::PaxosPrepare, Bytes::from_static(b"\x01ballot 7")).await.unwrap();
        call(Verb::PaxosPropose, Bytes::from_static(b"\x01ballot 7, value")).await.unwrap();
        call(Verb::PaxosCommit, Bytes::from_static(b"\x01ballot 7, value")).await.unwrap_err();
        caller.send(to(1, 0), Verb::Gossip, Bytes::from_static(b"digests"));
        call(Verb::StreamChunk, Bytes::from(b"row ".repeat(20_000))).await.unwrap();
        let noise: Vec<u8> =
            (0..5_000u32).flat_map(|i| crc32fast::hash(&i.to_be_bytes()).to_be_bytes()).collect();
        call(Verb::StreamChunk, Bytes::from(noise)).await.unwrap();
        rt.sleep(5 * SECOND).await;
    });
    record.take()
}

/// A capture file of Ethernet frames, each a TCP segment over IPv4 (checksums are left 0, as of hardware that fills
/// them in).
fn pcap(segments: &[Segment]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 262_144, 1] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    let server = address(1);
    let mut sent: std::collections::BTreeMap<(SocketAddr, bool), u32> = Default::default();
    for segment in segments {
        let (from, to) =
            if segment.from_client { (segment.client, server) } else { (server, segment.client) };
        let sequence = *sent.get(&(segment.client, segment.from_client)).unwrap_or(&1);
        let acknowledged = *sent.get(&(segment.client, !segment.from_client)).unwrap_or(&1);
        sent.insert((segment.client, segment.from_client), sequence + segment.bytes.len() as u32);
        let (SocketAddr::V4(from), SocketAddr::V4(to)) = (from, to) else { panic!("IPv4") };
        let mut packet = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        packet.extend_from_slice(&[0x45, 0]);
        packet.extend_from_slice(&((40 + segment.bytes.len()) as u16).to_be_bytes());
        packet.extend_from_slice(&[0, 0, 0x40, 0, 64, 6, 0, 0]);
        packet.extend_from_slice(&from.ip().octets());
        packet.extend_from_slice(&to.ip().octets());
        packet.extend_from_slice(&from.port().to_be_bytes());
        packet.extend_from_slice(&to.port().to_be_bytes());
        packet.extend_from_slice(&sequence.to_be_bytes());
        packet.extend_from_slice(&acknowledged.to_be_bytes());
        packet.extend_from_slice(&[0x50, 0x18, 0xFF, 0xFF, 0, 0, 0, 0]);
        packet.extend_from_slice(&segment.bytes);
        let (seconds, nanos) = (segment.nanos / 1_000_000_000, segment.nanos % 1_000_000_000);
        for word in [seconds as u32, nanos as u32, packet.len() as u32, packet.len() as u32] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&packet);
    }
    out
}

#[test]
fn the_capture_equals_the_present_traffic() {
    let capture = pcap(&conversation());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/wireshark/conversation.pcap");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &capture).unwrap();
    }
    assert!(std::fs::read(&path).unwrap() == capture, "nodes say something else: UPDATE=1 cargo test -p rpc");
}
