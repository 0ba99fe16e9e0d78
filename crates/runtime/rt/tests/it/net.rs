//! Sockets: streams in both directions, their ends, and moving a connection to another shard.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Mutex;
use std::time::Duration;

use bytes::BytesMut;
use rt::{ConnectOptions, DetachedStream, Endpoint, Group, ListenOptions, Mesh, NetOp, Stream};

use crate::backends::on_all_backends;

async fn echo(stream: Stream) {
    let mut buf = BytesMut::new();
    loop {
        buf.reserve(4096);
        if stream.read_buf(&mut buf).await.unwrap() == 0 {
            stream.shutdown().await.unwrap();
            return;
        }
        stream.write_all(&buf.split()).await.unwrap();
    }
}

#[test]
fn sent_bytes_come_back() {
    on_all_backends(1, |rt, place| async move {
        let any_port = SocketAddr::new(place.ip, 0);
        let listener = rt.net().listen(any_port, ListenOptions::default()).await.unwrap();
        let address = listener.local_addr().unwrap();
        assert_ne!(address.port(), 0);
        let rt2 = rt.clone();
        let server = rt.spawn(Group::Statement, async move {
            for _ in 0..8 {
                let (stream, _) = listener.accept().await.unwrap();
                rt2.spawn(Group::Statement, echo(stream)).detach();
            }
        });
        let clients: Vec<_> = (0..8usize)
            .map(|n| {
                let rt2 = rt.clone();
                rt.spawn(Group::Statement, async move {
                    let stream = rt2.net().connect(address, ConnectOptions::default()).await.unwrap();
                    stream.set_nodelay(true).unwrap();
                    stream.set_keepalive(Duration::from_secs(60)).unwrap();
                    assert_eq!(stream.peer_addr().unwrap(), address);
                    let stream = Rc::new(stream);
                    let sent: Vec<u8> = (0..300_000 + n).map(|at| (at * (n + 1)) as u8).collect();
                    let (writer, bytes) = (Rc::clone(&stream), sent.clone());
                    let writing = rt2.spawn(Group::Statement, async move {
                        let (first, rest) = bytes.split_at(1000);
                        let mut slices = [IoSlice::new(first), IoSlice::new(&[]), IoSlice::new(rest)];
                        writer.write_all_vectored(&mut slices).await.unwrap();
                        writer.shutdown().await.unwrap();
                    });
                    let mut back = vec![0; sent.len()];
                    stream.read_exact(&mut back).await.unwrap();
                    assert!(back == sent, "bytes stay in order");
                    assert_eq!(stream.read(&mut [0; 10]).await.unwrap(), 0, "then the stream ends");
                    writing.await;
                })
            })
            .collect();
        for client in clients {
            client.await;
        }
        server.await;
    });
}

#[test]
fn connecting_to_nobody_fails() {
    on_all_backends(1, |rt, place| async move {
        let any_port = SocketAddr::new(place.ip, 0);
        let listener = rt.net().listen(any_port, ListenOptions::default()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let taken = rt.net().listen(address, ListenOptions::default()).await.unwrap_err();
        assert_eq!(taken.source.kind(), std::io::ErrorKind::AddrInUse);
        assert!(taken.to_string().contains("another process has this port"), "{taken}");
        drop(listener);
        let error = rt.net().connect(address, ConnectOptions::default()).await.unwrap_err();
        assert_eq!((error.op, error.source.kind()), (NetOp::Connect, std::io::ErrorKind::ConnectionRefused));
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    });
}

#[test]
fn a_dropped_stream_ends_the_other_side() {
    on_all_backends(1, |rt, place| async move {
        let any_port = SocketAddr::new(place.ip, 0);
        let listener = rt.net().listen(any_port, ListenOptions::default()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = rt.net().connect(address, ConnectOptions::default()).await.unwrap();
        let (server, peer) = listener.accept().await.unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
        client.write_all(b"bye").await.unwrap();
        drop(client);
        server.readable().await.unwrap();
        let mut three = [0; 3];
        server.read_exact(&mut three).await.unwrap();
        assert_eq!(&three, b"bye");
        assert_eq!(server.read(&mut three).await.unwrap(), 0);
        // Writing to it fails sooner or later.
        let write_until_error = async {
            while server.write_all(&[0; 1000]).await.is_ok() {
                rt.sleep(Duration::from_millis(1)).await;
            }
        };
        rt.timeout(Duration::from_secs(10), write_until_error).await.expect("an error comes");
    });
}

#[test]
fn a_connection_moves_to_another_shard() {
    static ENDPOINTS: Mutex<Vec<Option<Endpoint<DetachedStream, bool>>>> = Mutex::new(Vec::new());
    on_all_backends(2, |rt, place| async move {
        let endpoint = {
            let mut endpoints = ENDPOINTS.lock().unwrap();
            if endpoints.is_empty() {
                *endpoints = Mesh::new(2, 8).into_iter().map(Some).collect();
            }
            let mine = endpoints[rt.shard().index()].take().unwrap();
            if endpoints.iter().all(Option::is_none) {
                endpoints.clear();
            }
            mine
        };
        let port = endpoint.attach(&rt);
        if rt.shard().0 == 1 {
            let (done, wait) = rt::sync::oneshot::channel();
            let done = std::cell::Cell::new(Some(done));
            let rt2 = rt.clone();
            port.serve(move |_, detached| {
                let stream = rt2.net().attach(detached).unwrap();
                let task = rt2.spawn(Group::Statement, echo(stream));
                let _ = done.take().unwrap().send(task);
                async { true }
            });
            wait.await.unwrap().await;
            return;
        }
        let any_port = SocketAddr::new(place.ip, 0);
        let listener = rt.net().listen(any_port, ListenOptions::default()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = rt.net().connect(address, ConnectOptions::default()).await.unwrap();
        client.write_all(b"before").await.unwrap();
        let (server, peer) = listener.accept().await.unwrap();
        let mut first = [0; 2];
        server.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"be");
        let detached = server.detach().unwrap();
        assert_eq!(detached.peer_addr(), peer);
        assert!(port.call(rt::ShardId(1), detached).await);
        client.write_all(b" after").await.unwrap();
        client.shutdown().await.unwrap();
        let mut back = [0; 10];
        client.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, b"fore after");
        assert_eq!(client.read(&mut back).await.unwrap(), 0);
    });
}
