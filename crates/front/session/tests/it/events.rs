//! Events go only to the clients that registered for them.

use wire::{ChangeType, Event, EventType, SchemaChange, SchemaTarget, StatusChange, Version};

use crate::world::{config, run, run_config, run_with};

fn schema(name: &str) -> Event {
    Event::Schema(SchemaChange {
        change: ChangeType::Created,
        keyspace: "ks".into(),
        target: SchemaTarget::Table(name.into()),
    })
}

fn status() -> Event {
    Event::Status { change: StatusChange::Up, address: crate::world::ADDRESS }
}

#[test]
fn a_client_receives_the_events_that_it_registered_for() {
    run(|world| async move {
        for version in Version::ALL {
            let mut client = world.ready(version).await;
            let mut other = world.ready(version).await;
            client.register(&[EventType::SchemaChange]).await;
            other.register(&[EventType::StatusChange, EventType::TopologyChange]).await;
            world.sessions[0].publish(schema("a"));
            world.sessions[0].publish(status());
            world.sessions[0].publish(schema("b"));
            assert_eq!(client.event().await, schema("a"));
            assert_eq!(client.event().await, schema("b"));
            assert_eq!(other.event().await, status());
            client.push_query(4, "void");
            client.flush().await;
            client.void(4).await;
        }
    });
}

#[test]
fn all_shards_are_reached() {
    run_with(
        3,
        config(),
        || std::rc::Rc::new(session::AllowAll),
        |world| async move {
            let mut clients = Vec::new();
            for _ in 0..3 {
                let mut client = world.ready(Version::V5).await;
                client.register(&[EventType::SchemaChange]).await;
                clients.push(client);
            }
            world.sessions[0].publish_everywhere(schema("t")).await;
            for client in &mut clients {
                assert_eq!(client.event().await, schema("t"));
            }
        },
    );
}

#[test]
fn a_client_that_does_not_read_them_is_cut_off() {
    let config = session::SessionConfig { unwritten_events_max: 100, unwritten_bytes_max: 1000, ..config() };
    run_config(config, |world| async move {
        let mut client = world.ready(Version::V4).await;
        client.register(&[EventType::SchemaChange]).await;
        // The pipe and then the connection's own buffer fill up, then the queue.
        for _ in 0..100_000 {
            world.sessions[0].publish(schema("a_table_with_quite_a_long_name_to_fill_the_pipe"));
            if world.metrics().event_overflows.get() > 0 {
                break;
            }
            world.rt.yield_now().await;
        }
        assert_eq!(world.metrics().event_overflows.get(), 1);
        while let Some(envelope) = client.next().await {
            assert_eq!(envelope.stream, -1);
        }
        world.sleep(2000).await;
        assert_eq!(world.metrics().connections.get(), 0);
    });
}
