//! Limits of connections, bytes in flight and time.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use session::{AllowAll, SessionConfig};
use wire::{ErrorKind, Version};

use crate::client::Client;
use crate::world::{ADDRESS, SHARD_AWARE, World, config, run_config, run_with};

async fn from(world: &World, host: u8) -> Client {
    use std::sync::atomic::{AtomicU16, Ordering};
    static PORTS: AtomicU16 = AtomicU16::new(50_000);
    let local = SocketAddr::from(([127, 0, 1, host], PORTS.fetch_add(1, Ordering::Relaxed)));
    Client::connect(&world.rt, ADDRESS, Some(local), Version::V4).await
}

#[test]
fn connections_in_total_and_of_one_address() {
    let config = SessionConfig {
        native_transport_max_concurrent_connections: Some(3),
        native_transport_max_concurrent_connections_per_ip: Some(2),
        ..config()
    };
    run_with(
        2,
        config,
        || Rc::new(AllowAll),
        |world| async move {
            let mut first = from(&world, 1).await;
            let mut second = from(&world, 1).await;
            first.start_up(&[]).await;
            second.start_up(&[]).await;
            from(&world, 1).await.is_closed().await;
            let mut third = from(&world, 2).await;
            third.start_up(&[]).await;
            from(&world, 3).await.is_closed().await;
            assert_eq!(world.metrics().connections_refused.get(), 2);
            drop(second);
            world.sleep(10).await;
            let mut fourth = from(&world, 3).await;
            fourth.start_up(&[]).await;
        },
    );
}

fn small() -> SessionConfig {
    SessionConfig {
        native_transport_max_request_data_in_flight: 10_000,
        native_transport_max_request_data_in_flight_per_ip: 5_000,
        ..config()
    }
}

#[test]
fn too_many_bytes_stop_the_reading() {
    run_config(small(), |world| async move {
        let mut greedy = from(&world, 1).await;
        greedy.start_up(&[]).await;
        for stream in 0..20 {
            greedy.push_value(stream, "hold", &[0; 1000]);
        }
        greedy.flush().await;
        world.sleep(100).await;
        // Four fit, and the fifth is taken as it was read already.
        assert_eq!(world.begun.get(), 5);
        assert_eq!(world.metrics().reads_paused.get(), 1);
        // Another connection of the same address has to wait too, one of another address does not.
        let mut sibling = from(&world, 1).await;
        sibling.start_up(&[]).await;
        sibling.push_value(1, "length", &[0; 1000]);
        sibling.push_value(2, "length", &[0; 1000]);
        sibling.flush().await;
        assert_eq!(sibling.cell(1).await, b"1000");
        let mut other = from(&world, 2).await;
        other.start_up(&[]).await;
        for stream in 1..10 {
            other.push_value(stream, "length", &[0; 1000]);
            other.flush().await;
            assert_eq!(other.cell(stream).await, b"1000");
        }
        world.gate.add(20);
        for _ in 0..20 {
            greedy.next_answer().await;
        }
        assert_eq!(sibling.cell(2).await, b"1000");
        assert_eq!(world.metrics().request_bytes_in_flight.get(), 0);
        assert_eq!(world.metrics().overloaded.get(), 0);
    });
}

#[test]
fn a_client_that_opted_in_gets_overloaded() {
    run_config(small(), |world| async move {
        let mut client = from(&world, 1).await;
        client.start_up(&[("THROW_ON_OVERLOAD", "1")]).await;
        for stream in 0..10 {
            client.push_value(stream, "hold", &[0; 1000]);
        }
        client.flush().await;
        for stream in 4..10 {
            let error = client.error(stream).await;
            assert_eq!(error.kind, ErrorKind::Overloaded);
        }
        assert_eq!(world.metrics().overloaded.get(), 6);
        world.gate.add(4);
        for _ in 0..4 {
            client.next_answer().await;
        }
        client.push_value(1, "length", &[0; 4000]);
        client.flush().await;
        assert_eq!(client.cell(1).await, b"4000");
    });
}

#[test]
fn the_processor_decides_about_overload_before_the_client() {
    for (options, refused) in [
        (&[("WORKLOAD_TYPE", "interactive")][..], 6),
        (&[("THROW_ON_OVERLOAD", "1"), ("WORKLOAD_TYPE", "batch")], 0),
    ] {
        run_config(small(), move |world| async move {
            let mut client = from(&world, 1).await;
            client.start_up(options).await;
            for stream in 0..10 {
                client.push_value(stream, "hold", &[0; 1000]);
            }
            client.flush().await;
            world.sleep(100).await;
            assert_eq!(world.metrics().overloaded.get(), refused, "{options:?}");
            world.gate.add(10);
            for _ in 0..10 {
                client.next_answer().await;
            }
        });
    }
}

#[test]
fn a_long_message_is_booked_before_it_is_read() {
    let config = SessionConfig {
        native_transport_max_request_data_in_flight: 1 << 20,
        native_transport_max_request_data_in_flight_per_ip: 1 << 20,
        ..config()
    };
    run_config(config, |world| async move {
        for version in [Version::V4, Version::V5] {
            let mut first = world.ready(version).await;
            let mut second = world.ready(version).await;
            first.push_value(1, "length", &vec![1; 700_000]);
            second.push_value(1, "length", &vec![2; 800_000]);
            let mut halves = first.take_bytes();
            let rest = halves.split_off(300_000);
            first.write(&halves).await;
            world.sleep(100).await;
            let booked = world.metrics().request_bytes_in_flight.get();
            assert!(booked > 700_000, "{booked}");
            // The second does not fit beside it: it is not read until the first is done.
            let bytes = second.take_bytes();
            let reader = world.rt.spawn(rt::Group::Statement, async move {
                second.write(&bytes).await;
                second.cell(1).await
            });
            world.sleep(100).await;
            assert_eq!(world.metrics().request_bytes_in_flight.get(), booked);
            first.write(&rest).await;
            assert_eq!(first.cell(1).await, b"700000");
            assert_eq!(reader.await, b"800000");
            assert_eq!(world.metrics().request_bytes_in_flight.get(), 0);
        }
    });
}

#[test]
fn a_request_larger_than_the_limit_is_carried_out_alone() {
    run_config(small(), |world| async move {
        for options in [&[][..], &[("THROW_ON_OVERLOAD", "1")]] {
            let mut client = world.connect(Version::V4).await;
            client.start_up(options).await;
            client.push_value(1, "length", &vec![1; 1_000_000]);
            client.flush().await;
            assert_eq!(client.cell(1).await, b"1000000");
        }
    });
}

#[test]
fn a_long_message_has_to_come_in_time() {
    run_config(config(), |world| async move {
        let mut client = world.ready(Version::V4).await;
        client.push_value(1, "length", &vec![1; 1_000_000]);
        let bytes = client.take_bytes();
        client.write(&bytes[..500_000]).await;
        world.sleep(59_000).await;
        assert_eq!(world.metrics().connections.get(), 1);
        client.is_closed().await;
        assert_eq!(world.metrics().message_timeouts.get(), 1);
        assert_eq!(world.metrics().request_bytes_in_flight.get(), 0);
        // One that comes slowly but in time leaves no timer behind.
        let mut client = world.ready(Version::V4).await;
        client.write(&bytes[..500_000]).await;
        world.sleep(30_000).await;
        client.write(&bytes[500_000..]).await;
        assert_eq!(client.cell(1).await, b"1000000");
        world.sleep(120_000).await;
        client.push_query(1, "void");
        client.flush().await;
        client.void(1).await;
    });
}

#[test]
fn idle_connections_are_closed_if_configured() {
    let timeout = Duration::from_secs(10);
    let config = SessionConfig { native_transport_idle_timeout: Some(timeout), ..config() };
    run_config(config, |world| async move {
        let mut client = world.ready(Version::V4).await;
        for _ in 0..5 {
            world.sleep(8000).await;
            client.push_query(1, "void");
            client.flush().await;
            client.void(1).await;
        }
        client.push_query(1, "sleep 25000");
        client.flush().await;
        client.void(1).await;
        client.is_closed().await;
        assert_eq!(world.metrics().idle_timeouts.get(), 1);
    });
}

#[test]
fn handshakes_half_done() {
    run_config(config(), |world| async move {
        let mut clients = Vec::new();
        for index in 0..2000_usize {
            let mut client = world.connect(Version::V4).await;
            client.push(0, |request| request.startup(&[("CQL_VERSION", "3.0.0")]));
            let bytes = client.take_bytes();
            client.write(&bytes[..index % bytes.len()]).await;
            clients.push(client);
        }
        world.sleep(1000).await;
        assert_eq!(world.metrics().connections.get(), 2000);
        world.sleep(12_000).await;
        assert_eq!(world.metrics().connections.get(), 0);
        assert_eq!(world.metrics().handshake_timeouts.get(), 2000);
        for client in &mut clients {
            client.is_closed().await;
        }
    });
}

#[test]
fn limits_are_the_nodes_whatever_shard_a_connection_is_on() {
    let config = SessionConfig {
        native_transport_max_request_data_in_flight: 32_000,
        native_transport_max_request_data_in_flight_per_ip: 16_000,
        ..config()
    };
    let scenario = |world: World| async move {
        let greedy = |host: u8, shard: u16, count: i16| {
            let world = world.clone();
            async move {
                let local = SocketAddr::from(([127, 0, 1, host], 51_000 + 10 * u16::from(host) + shard));
                let mut client = Client::connect(&world.rt, SHARD_AWARE, Some(local), Version::V4).await;
                client.start_up(&[]).await;
                let before = world.begun.get();
                for stream in 0..count {
                    client.push_value(stream, "hold", &[0; 1000]);
                }
                client.flush().await;
                world.sleep(100).await;
                (client, world.begun.get() - before)
            }
        };
        // One shard may use an address's whole limit, but for the part that the other shard always has.
        let (mut first, begun) = greedy(1, 0, 25).await;
        assert!((14..=16).contains(&begun), "{begun} of 16 000 bytes");
        let (mut sibling, begun) = greedy(1, 1, 10).await;
        assert!((1..=2).contains(&begun), "{begun} although the address has no more");
        let (mut other, begun) = greedy(2, 1, 25).await;
        assert!((12..=15).contains(&begun), "{begun} of the 32 000 bytes of all");
        let (mut third, begun) = greedy(3, 0, 10).await;
        assert!((1..=2).contains(&begun), "{begun} although nothing is left");
        let booked: u64 =
            world.sessions.iter().map(|shard| shard.metrics().request_bytes_in_flight.get()).sum();
        assert!((29_000..=36_000).contains(&booked), "{booked}");
        let mut impatient = from(&world, 4).await;
        impatient.start_up(&[("THROW_ON_OVERLOAD", "1")]).await;
        impatient.push_value(3, "hold", &[0; 1000]);
        impatient.flush().await;
        assert_eq!(impatient.error(3).await.kind, ErrorKind::Overloaded);
        world.gate.add(100);
        for (client, count) in [(&mut first, 25), (&mut sibling, 10), (&mut other, 25), (&mut third, 10)] {
            for _ in 0..count {
                client.next_answer().await;
            }
        }
        world.sleep(100).await;
        assert!(world.sessions.iter().all(|shard| shard.metrics().request_bytes_in_flight.get() == 0));
        // All leases have been given back.
        drop((first, sibling, other, third));
        let (mut again, begun) = greedy(5, 1, 25).await;
        assert!(begun >= 14, "{begun}");
        for _ in 0..25 {
            again.next_answer().await;
        }
    };
    run_with(2, config, || Rc::new(AllowAll), scenario);
}

#[test]
fn promised_messages_that_do_not_come_hold_nobody_up() {
    let config = SessionConfig {
        native_transport_max_request_data_in_flight: 256 << 20,
        native_transport_max_request_data_in_flight_per_ip: 64 << 20,
        ..config()
    };
    run_config(config, |world| async move {
        // 15 MB each, of which a hundred bytes or 40 KB come.
        let mut silent = Vec::new();
        let mut whole = from(&world, 1).await;
        whole.push_value(1, "length", &vec![1; 15 << 20]);
        let bytes = whole.take_bytes();
        for count in 0..60 {
            let mut client = from(&world, 1).await;
            client.start_up(&[]).await;
            client.write(&bytes[..if count < 30 { 100 } else { 40_000 }]).await;
            silent.push(client);
        }
        world.sleep(100).await;
        assert!(world.metrics().request_bytes_in_flight.get() < 64 << 20);
        // Short requests of the same address do not wait.
        let mut sibling = from(&world, 1).await;
        sibling.start_up(&[]).await;
        for stream in 1..100 {
            let begun = world.rt.now();
            sibling.push_value(stream, "length", &[0; 1000]);
            sibling.flush().await;
            assert_eq!(sibling.cell(stream).await, b"1000");
            assert!(world.rt.now() - begun < Duration::from_millis(50));
        }
        // Neither does a long message of another address; one of the same waits for it, as those that are not received end.
        let mut other = from(&world, 2).await;
        other.start_up(&[]).await;
        other.push_value(1, "length", &vec![1; 10 << 20]);
        let begun = world.rt.now();
        other.flush().await;
        assert_eq!(other.cell(1).await, b"10485760");
        assert!(world.rt.now() - begun < Duration::from_secs(1));
        sibling.push_value(1, "length", &vec![1; 10 << 20]);
        sibling.flush().await;
        assert_eq!(sibling.cell(1).await, b"10485760");
        assert!(
            world.rt.now() - begun < Duration::from_secs(40) && world.metrics().message_timeouts.get() > 10
        );
    });
}

#[test]
fn nobody_runs_while_all_wait_for_room() {
    run_config(small(), |world| async move {
        let mut clients = Vec::new();
        for _ in 0..48 {
            let mut client = from(&world, 1).await;
            client.start_up(&[]).await;
            client.push_value(1, "length", &vec![1; 100_000]);
            let bytes = client.take_bytes();
            client.write(&bytes[..40_000]).await;
            clients.push(client);
        }
        world.sleep(100).await;
        let polls = || world.rt.group_stats(rt::Group::Statement).polls;
        let before = polls();
        world.sleep(1_000).await;
        let polled = polls() - before;
        assert!(polled < 100, "{polled} polls in a second in which nothing happened");
    });
}

#[test]
fn answers_have_room_before_they_are_made() {
    let config = SessionConfig { answer_bytes_max: 64 << 20, ..config() };
    run_config(config, |world| async move {
        let mut deaf = Vec::new();
        for _ in 0..30 {
            let mut client = from(&world, 1).await;
            client.start_up(&[]).await;
            for stream in 0..1_000 {
                client.push_query(stream, "fetch 1000000");
            }
            client.flush().await;
            deaf.push(client);
        }
        let mut most = 0;
        let mut waited = Duration::ZERO;
        for (host, stream) in (1..=40).map(|at| (1 + at % 2, i16::from(at))) {
            let mut client = from(&world, host).await;
            client.start_up(&[]).await;
            let begun = world.rt.now();
            client.push_query(stream, "fetch 1000");
            client.flush().await;
            assert_eq!(client.cell(stream).await.len(), 1000);
            let took = world.rt.now() - begun;
            assert!(host == 1 || took < Duration::from_secs(1), "the other address waited {took:?}");
            waited = waited.max(took);
            most = most.max(world.metrics().answer_bytes_in_flight.get());
        }
        // As many as have room at a quarter of a megabyte each, for the address half of all; each may be a megabyte.
        assert!(most < 4 * (32 << 20) + 30 * (1_100_000) + (16 << 20), "{most} bytes, not 30 GB");
        assert!(waited < Duration::from_secs(10), "a client that reads waited {waited:?}");
        assert!(
            world.metrics().unread_timeouts.get() > 0,
            "a client that does not read is closed, since others wait"
        );
    });
}

#[test]
fn a_client_that_does_not_read_may_take_its_time_when_no_other_waits() {
    run_config(config(), |world| async move {
        let mut client = world.ready(Version::V4).await;
        for stream in 0..3 {
            client.push_query(stream, "fetch 300000");
        }
        client.flush().await;
        world.sleep(300_000).await;
        assert!(world.metrics().answer_bytes_in_flight.get() > 100_000);
        for _ in 0..3 {
            client.next_answer().await;
        }
        world.sleep(10).await;
        assert_eq!(world.metrics().answer_bytes_in_flight.get(), 0);
        assert_eq!(world.metrics().unread_timeouts.get(), 0);
    });
}

/// A message of a few kilobytes that unpacks to a megabyte is booked with its unpacked length before it is unpacked.
#[test]
fn packed_messages_are_booked_unpacked() {
    let config = SessionConfig {
        native_transport_max_request_data_in_flight: 6 << 20,
        native_transport_max_request_data_in_flight_per_ip: 3 << 20,
        ..config()
    };
    run_config(config, |world| async move {
        for compression in ["lz4", "snappy"] {
            let begun = world.begun.get();
            let mut clients = Vec::new();
            for _ in 0..10 {
                let mut client = from(&world, 1).await;
                client.start_up(&[("COMPRESSION", compression)]).await;
                client.push_value(1, "hold", &vec![0; 1 << 20]);
                client.flush().await;
                clients.push(client);
            }
            world.sleep(100).await;
            assert_eq!(world.begun.get() - begun, 2, "{compression}: those that have room");
            assert!(world.metrics().request_bytes_in_flight.get() <= 3 << 20, "{compression}");
            let mut other = from(&world, 2).await;
            other.start_up(&[]).await;
            other.push_value(1, "length", &[0; 1000]);
            other.flush().await;
            assert_eq!(other.cell(1).await, b"1000", "{compression}: another address is served");
            world.gate.add(10);
            for client in &mut clients {
                client.next_answer().await;
            }
            assert_eq!(world.begun.get() - begun, 11, "all of them, and the other");
            world.sleep(10).await;
            assert_eq!(world.metrics().request_bytes_in_flight.get(), 0);
        }
    });
}

/// One address may have 8 MiB here: without growth twenty answers of 256 KiB would be booked, and be made at once.
#[test]
fn an_answer_that_grows_is_booked_while_it_is_made() {
    let config = SessionConfig { answer_bytes_max: 16 << 20, ..config() };
    run_config(config, |world| async move {
        let mut client = world.ready(Version::V4).await;
        for stream in 0..20 {
            // 128 rows of 64 KiB.
            client.push_query(stream, "grow 128");
        }
        client.flush().await;
        world.sleep(100).await;
        let booked = world.metrics().answer_bytes_in_flight.get();
        assert!((8 << 20..9 << 20).contains(&booked), "{booked} bytes: one is made, the others wait");
        world.gate.add(20);
        for _ in 0..20 {
            client.next_answer().await;
        }
        world.sleep(10).await;
        assert_eq!(world.metrics().answer_bytes_in_flight.get(), 0);
    });
}
