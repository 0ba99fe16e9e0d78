//! The same clients over real sockets and threads.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rt::sync::Semaphore;
use rt::{LocalBoxFuture, Rt, ShardMain};
use session::{AllowAll, SessionConfig, Sessions, SessionsEndpoint, sessions_mesh};
use wire::client::AnswerBody;
use wire::{Event, EventType, StatusChange, Version};

use crate::client::Client;
use crate::world::{Echo, node};

const SHARDS: u16 = 2;

async fn main(rt: Rt, endpoint: SessionsEndpoint, done: Arc<AtomicBool>) {
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let config = SessionConfig { shard_aware_address: Some(any_port), ..SessionConfig::new(any_port) };
    let echo = Echo::new(&rt, Rc::default(), Semaphore::new(0));
    let sessions = Sessions::new(&rt, config, node(), Rc::new(AllowAll), endpoint, echo);
    // Shard 0 is also the client; the others end with it.
    if rt.shard().0 > 0 {
        while !done.load(Ordering::Relaxed) {
            rt.sleep(Duration::from_millis(5)).await;
        }
        return;
    }
    let listening = sessions.listen().await.expect("a free port");
    for version in Version::ALL {
        let mut client = Client::connect(&rt, listening.native, None, version).await;
        client.start_up(&[("COMPRESSION", "lz4")]).await;
        for stream in 0..200 {
            client.push_value(stream, "length", b"abc");
        }
        client.flush().await;
        for stream in 0..200 {
            assert_eq!(client.cell(stream).await, b"3");
        }
        client.push_value(1, "length", &vec![1; 3_000_000]);
        client.push_query(2, "sleep 5");
        client.push_query(3, "big 3000000");
        client.flush().await;
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.push(client.next_answer().await.0);
        }
        seen.sort_unstable();
        assert_eq!(seen, [1, 2, 3]);
    }
    choose_shards(&rt, listening.shard_aware.expect("listening")).await;
    let mut client = Client::connect(&rt, listening.native, None, Version::V5).await;
    client.start_up(&[]).await;
    client.register(&[EventType::StatusChange]).await;
    let event = Event::Status { change: StatusChange::Down, address: listening.native };
    sessions.publish_everywhere(event.clone()).await;
    assert_eq!(client.event().await, event);
    client.push_query(1, "sleep 50");
    client.flush().await;
    rt.sleep(Duration::from_millis(10)).await;
    assert!(sessions.connections().await.iter().any(|connection| connection.request_count == 2));
    done.store(true, Ordering::Relaxed);
}

/// The client's port names the shard; some ports are taken by others.
async fn choose_shards(rt: &Rt, address: SocketAddr) {
    for shard in 0..SHARDS {
        let mut connected = None;
        for attempt in 0..200 {
            let port = 20_000 + 2 * (rt.random_below(10_000) as u16 + attempt) + shard;
            let local = Some(SocketAddr::from(([127, 0, 0, 1], port)));
            if let Ok(client) = Client::try_connect(rt, address, local, Version::V4).await {
                connected = Some(client);
                break;
            }
        }
        let mut client = connected.expect("a free port");
        client.push(1, |request| request.options());
        client.flush().await;
        let AnswerBody::Supported(options) = client.answer(1).await else { panic!("not SUPPORTED") };
        let of = |name| {
            options.iter().find(|(key, _)| key.as_str() == name).map(|(_, value)| value[0].to_string())
        };
        assert_eq!(of("SCYLLA_SHARD"), Some(shard.to_string()));
        assert_eq!(of("SCYLLA_SHARD_AWARE_PORT"), Some(address.port().to_string()));
        client.start_up(&[]).await;
        client.push_query(2, "big 100000");
        client.flush().await;
        assert_eq!(client.cell(2).await.len(), 100_000);
    }
}

#[test]
fn over_real_sockets() {
    let done = Arc::new(AtomicBool::new(false));
    let start = |endpoint| {
        let done = Arc::clone(&done);
        Box::new(move |rt| Box::pin(main(rt, endpoint, done)) as LocalBoxFuture<()>) as ShardMain
    };
    let mains = sessions_mesh(SHARDS).into_iter().map(start).collect();
    let config =
        rt_uring::Config { pin: false, files: rt_uring::FileBackend::Blocking, ..Default::default() };
    rt_uring::run(&config, mains).expect("the shards start");
}
