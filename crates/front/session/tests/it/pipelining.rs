//! Many requests at once: one write for many answers, answers out of order, slow readers, the end of a node.

use std::time::Duration;

use wire::client::AnswerBody;
use wire::{ErrorKind, Version};

use crate::world::{config, run, run_config, run_with};

#[test]
fn one_write_answers_one_read() {
    run(|world| async move {
        for version in Version::ALL {
            let mut client = world.ready(version).await;
            let (reads, writes) = (world.metrics().reads.get(), world.metrics().writes.get());
            for stream in 0..200 {
                client.push_value(stream, "length", b"abc");
            }
            client.flush().await;
            for stream in 0..200 {
                assert_eq!(client.cell(stream).await, b"3");
            }
            assert_eq!(world.metrics().reads.get() - reads, 1);
            assert_eq!(world.metrics().writes.get() - writes, 1);
        }
    });
}

#[test]
fn answers_overtake_each_other() {
    run(|world| async move {
        let mut client = world.ready(Version::V5).await;
        client.push_query(1, "sleep 30");
        client.push_query(2, "void");
        client.push_query(3, "sleep 10");
        client.push_query(4, "nonsense");
        client.push_query(5, "yield 3");
        client.flush().await;
        client.void(2).await;
        assert_eq!(client.error(4).await.kind, ErrorKind::SyntaxError);
        client.void(5).await;
        client.void(3).await;
        client.void(1).await;
        assert_eq!(world.metrics().requests_waiting.get(), 0);
        assert_eq!(world.metrics().request_bytes_in_flight.get(), 0);
    });
}

#[test]
fn a_task_that_yields_forgets_nothing() {
    run(|world| async move {
        let mut client = world.ready(Version::V4).await;
        world.clock.always_spent.set(true);
        for stream in 0..500 {
            client.push_query(stream, if stream % 3 == 0 { "yield 2" } else { "void" });
        }
        client.flush().await;
        let mut seen = vec![false; 500];
        for _ in 0..500 {
            let (stream, answer) = client.next_answer().await;
            assert!(matches!(answer.body, AnswerBody::Result(_)));
            assert!(!std::mem::replace(&mut seen[stream as usize], true));
        }
    });
}

#[test]
fn tracing_is_passed_on() {
    run(|world| async move {
        let mut client = world.ready(Version::V4).await;
        let parameters = wire::client::Parameters::new(wire::Consistency::One, &[]);
        client.push(9, |request| {
            request.set_tracing(true);
            request.query("void", &parameters);
        });
        client.flush().await;
        assert_eq!(client.next_answer().await.1.tracing_id, Some([5; 16]));
    });
}

#[test]
fn requests_under_way_are_bounded() {
    let config = session::SessionConfig { requests_per_connection_max: 10, ..config() };
    run_config(config, |world| async move {
        let mut client = world.ready(Version::V4).await;
        for stream in 0..100 {
            client.push_query(stream, "hold");
        }
        client.flush().await;
        world.sleep(100).await;
        assert_eq!(world.begun.get(), 10);
        world.gate.add(5);
        world.sleep(100).await;
        assert_eq!(world.begun.get(), 15);
        world.gate.add(95);
        for _ in 0..100 {
            client.next_answer().await;
        }
    });
}

#[test]
fn a_slow_reader_waits_for_itself() {
    run(|world| async move {
        let mut slow = world.ready(Version::V4).await;
        for stream in 0..500 {
            slow.push_query(stream, "big 100000");
        }
        slow.flush().await;
        world.sleep(1000).await;
        // A pipe full, and a megabyte of answers that wait.
        let begun = world.begun.get();
        assert!((5..20).contains(&begun), "{begun} of 500 requests were begun");
        let mut other = world.ready(Version::V4).await;
        other.push_query(1, "big 5");
        other.flush().await;
        assert_eq!(other.cell(1).await.len(), 5);
        for stream in 0..500 {
            assert_eq!(slow.cell(stream).await.len(), 100_000);
        }
    });
}

#[test]
fn a_client_that_leaves_lets_its_requests_finish() {
    run(|world| async move {
        let mut client = world.ready(Version::V4).await;
        client.push_query(1, "hold");
        client.push_query(2, "sleep 50");
        client.flush().await;
        world.sleep(10).await;
        // Half closed: the answers still come.
        client.stream.shutdown().await.expect("open");
        client.void(2).await;
        world.gate.add(1);
        client.void(1).await;
        client.is_closed().await;

        let mut client = world.ready(Version::V4).await;
        client.push_query(1, "sleep 50");
        client.flush().await;
        world.sleep(10).await;
        drop(client);
        world.sleep(2000).await;
        assert_eq!(world.metrics().connections.get(), 0);
        assert_eq!(world.metrics().requests_waiting.get(), 0);
        assert!(world.sessions[0].connections().await.is_empty());
    });
}

#[test]
fn statements_of_a_client_that_is_gone_end() {
    run(|world| async move {
        let mut client = world.ready(Version::V4).await;
        client.push_query(1, "hold");
        client.flush().await;
        world.sleep(10).await;
        drop(client);
        world.sleep(9_000).await;
        assert_eq!(world.metrics().requests_waiting.get(), 1, "it may have half closed its connection");
        world.sleep(2_000).await;
        assert_eq!(world.metrics().requests_waiting.get(), 0, "nobody waits for it");
        assert_eq!(world.metrics().left_timeouts.get(), 1);
        assert_eq!(world.metrics().connections.get(), 0);
    });
}

#[test]
fn a_node_that_stops_answers_begun_requests() {
    run_with(
        2,
        config(),
        || std::rc::Rc::new(session::AllowAll),
        |world| async move {
            let mut busy = world.ready(Version::V5).await;
            let mut idle = world.ready(Version::V4).await;
            let mut opening = world.connect(Version::V4).await;
            busy.push_query(1, "sleep 100");
            busy.flush().await;
            world.sleep(10).await;
            let [first, second] = [0, 1].map(|shard| world.sessions[shard].clone());
            let stop = world.rt.spawn(rt::Group::Maintenance, async move {
                first.stop(Duration::from_secs(10)).await + second.stop(Duration::from_secs(10)).await
            });
            idle.is_closed().await;
            opening.is_closed().await;
            busy.void(1).await;
            busy.is_closed().await;
            assert_eq!(stop.await, 0);
            let options = rt::ConnectOptions::default();
            assert!(world.rt.net().connect(crate::world::ADDRESS, options).await.is_err());
        },
    );
}

#[test]
fn a_node_does_not_wait_for_ever_to_stop() {
    run(|world| async move {
        let mut client = world.ready(Version::V4).await;
        client.push_query(1, "hold");
        client.flush().await;
        world.sleep(10).await;
        assert_eq!(world.sessions[0].stop(Duration::from_secs(1)).await, 1);
    });
}
