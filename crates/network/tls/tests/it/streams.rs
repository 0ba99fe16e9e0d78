//! Bytes through a secured connection arrive.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use rt::{Group, Rt, Stream};
use rt_sim::{Config, LinkConfig};
use testkit::certificates::NODE;
use tls::Credentials;

use crate::world::{LIMIT, STRICT, credentials, meet};

const LEN: usize = 700_000;

fn pattern(seed: usize) -> Vec<u8> {
    (0..LEN).map(|at| (at.wrapping_mul(31).wrapping_add(seed) >> 3) as u8).collect()
}

async fn secured(rt: &Rt, stream: Stream, credentials: &Credentials, accept: bool) -> Stream {
    let address = stream.peer_addr().expect("it is connected").ip();
    let secured = match accept {
        true => tls::accept(rt, stream, credentials, false, LIMIT).await.map(|accepted| accepted.stream),
        false => tls::connect(rt, stream, credentials, address, LIMIT).await,
    };
    secured.expect("they belong together")
}

/// Writes and reads at once, each in pieces of its own, and moves the connection before it does.
async fn exchange(rt: Rt, stream: Stream, credentials: Arc<Credentials>, accept: bool) -> Vec<u8> {
    let stream = secured(&rt, stream, &credentials, accept).await;
    let detached = stream.detach().expect("nothing is under way");
    let stream = std::rc::Rc::new(rt.net().attach(detached).expect("it comes from here"));
    let (writer, clock) = (stream.clone(), rt.clone());
    let write = rt.spawn(Group::Statement, async move {
        let bytes = pattern(usize::from(accept));
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let len = 1 + clock.random_below(40_000) as usize;
            let (now, later) = rest.split_at(len.min(rest.len()));
            let (head, tail) = now.split_at(now.len() / 3);
            writer.write_all_vectored(&mut [IoSlice::new(head), IoSlice::new(tail)]).await.expect("it holds");
            rest = later;
        }
        writer.shutdown().await.expect("it holds");
    });
    let mut all = Vec::new();
    let mut slice = [0; 777];
    loop {
        let read = match rt.random_below(2) {
            0 => {
                let read = stream.read(&mut slice).await.expect("it holds");
                all.extend_from_slice(&slice[..read]);
                read
            }
            _ => {
                stream.readable().await.expect("it holds");
                let mut buffer = BytesMut::with_capacity(1 + rt.random_below(50_000) as usize);
                let read = stream.read_buf(&mut buffer).await.expect("it holds");
                all.extend_from_slice(&buffer);
                read
            }
        };
        if read == 0 {
            break;
        }
        if rt.random_below(50) == 0 {
            rt.sleep(Duration::from_millis(3)).await;
        }
    }
    write.await;
    all
}

#[test]
fn bytes_arrive_in_both_directions() {
    let slow = LinkConfig { bandwidth: Some(20 << 20), loss_per_million: 2_000, ..LinkConfig::default() };
    for (seed, link) in [(1, LinkConfig::default()), (2, slow), (3, slow)] {
        let config = Config { link, window_bytes: 20_000, ..Config::default() };
        let both = credentials(NODE, STRICT);
        let (server, client) = (both.clone(), both);
        let (at_server, at_client) = meet(
            seed,
            config,
            move |rt, stream| exchange(rt, stream, server, true),
            move |rt, stream| exchange(rt, stream, client, false),
        );
        assert!(at_server == pattern(0), "seed {seed}: {} bytes came", at_server.len());
        assert!(at_client == pattern(1), "seed {seed}: {} bytes came", at_client.len());
    }
}

#[test]
fn bytes_on_the_wire_are_not_those_that_were_written() {
    let both = credentials(NODE, STRICT);
    let accept = |_, stream: Stream| async move {
        // It receives the client's hello, and could not answer it.
        let mut heard = vec![0; 400];
        let read = stream.read(&mut heard).await.expect("the client sends first");
        heard.truncate(read);
        heard
    };
    let connect = move |rt: Rt, stream: Stream| async move {
        let address = stream.peer_addr().expect("it is connected").ip();
        tls::connect(&rt, stream, &both, address, LIMIT).await.map(|_| ())
    };
    let (heard, outcome) = meet(7, Config::default(), accept, connect);
    assert_eq!(heard[0], 22, "a record of a handshake");
    assert!(outcome.is_err());
}
