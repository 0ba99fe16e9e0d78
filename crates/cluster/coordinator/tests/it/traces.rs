//! Traced requests: every node that had a part in one keeps its own steps under the request's id.

use std::collections::BTreeSet;

use coordinator::{Consistency, WriteKind, WriteOptions};
use mutation::{ColumnData, DecoratedKey};
use replica::{Keys, Partitions, TraceLog};
use rt_sim::Config;

use crate::world::*;

/// The tracer of the steps of a request.
fn told(world: &World, session: [u8; 16]) -> Vec<(String, String)> {
    let table = coordinator(0, 0).schema().table("system_traces", "events").expect("it is there").clone();
    let key = DecoratedKey::new(bytes::Bytes::copy_from_slice(&session));
    let read = command(&table, Partitions::Keys(Keys::from_elem(key, 1)), seconds(&world.sim, 0));
    let page = world.read(0, read, Consistency::All).expect("all live");
    let text = |row: &mutation::Row, name: &str| {
        let column = table.column(name).expect("it is there").id;
        match row.columns().iter().find(|(id, _)| *id == column) {
            Some((_, ColumnData::Simple(cell))) => cell.value.to_vec(),
            other => panic!("no {name}: {other:?}"),
        }
    };
    let rows = page.partitions.iter().flat_map(|partition| &partition.rows);
    let told = rows.map(|row| {
        let source: Vec<String> = text(row, "source").iter().map(u8::to_string).collect();
        (source.join("."), String::from_utf8_lossy(&text(row, "activity")).into_owned())
    });
    told.collect()
}

#[test]
fn every_replica_keeps_its_steps() {
    let world = World::new(1, &[2, 2, 2], Config::default());
    let table = table("ks", "t");
    let write = row(&table, 1, 1, "text", 1);
    let own = world.on(0, 0, |rt, coordinator| async move {
        let trace = TraceLog::of([1; 16]);
        let options = WriteOptions {
            consistency: Consistency::All,
            kind: WriteKind::Simple,
            deadline: rt.now() + 2 * SECOND,
        };
        coordinator.traced(&trace).write(vec![write], options).await.expect("all live");
        trace.events().into_iter().map(|event| event.activity).collect::<Vec<_>>()
    });
    for step in [
        "Sending MUTATION message to /10.0.0.2",
        "Processing response from /10.0.0.3",
        "Adding to t memtable",
    ] {
        assert!(own.iter().any(|told| told.contains(step)), "{step}: {own:?}");
    }
    world.sim.run_for(SECOND);
    let steps = told(&world, [1; 16]);
    let sources: BTreeSet<&str> = steps.iter().map(|(source, _)| source.as_str()).collect();
    assert_eq!(
        sources,
        BTreeSet::from(["10.0.0.2", "10.0.0.3"]),
        "the coordinator's own steps are kept by who asked"
    );
    for source in sources {
        for step in [
            "MUTATION message received from /10.0.0.1",
            "Adding to t memtable",
            "Enqueuing response to /10.0.0.1",
        ] {
            assert!(
                steps.iter().any(|(by, told)| by == source && told.contains(step)),
                "{source}, {step}: {steps:?}"
            );
        }
    }
}

#[test]
fn reads_tell_their_steps_and_untraced_ones_none() {
    let world = World::new(2, &[1, 1, 1], Config::default());
    let table = table("ks", "t");
    world.write(0, row(&table, 1, 1, "text", 1), Consistency::All).unwrap();
    world.read(0, partition(&table, 1, seconds(&world.sim, 0)), Consistency::All).unwrap();
    let received = |verb| (0..3).map(|node| messenger(node).stats().verb(verb).received).sum::<u64>();
    assert_eq!(received(rpc::Verb::Traced), 0);
    let read = partition(&table, 1, seconds(&world.sim, 0));
    let rows = world.on(0, 0, |rt, coordinator| async move {
        let trace = TraceLog::of([2; 16]);
        let page = coordinator.traced(&trace).read(&read, Consistency::All, rt.now() + 2 * SECOND).await;
        texts(&page.expect("all live"))
    });
    assert_eq!(rows, [(1, "text".to_owned())]);
    assert_eq!(received(rpc::Verb::Traced), 2);
    world.sim.run_for(SECOND);
    let steps = told(&world, [2; 16]);
    for source in ["10.0.0.2", "10.0.0.3"] {
        for step in ["READ message received from /10.0.0.1", "Read 1 live rows"] {
            assert!(
                steps.iter().any(|(by, told)| by == source && told.contains(step)),
                "{source}, {step}: {steps:?}"
            );
        }
    }
}

/// A write of the first node of six in two datacenters, traced or not: the forwarded ones, the messages of the coordinator and those that
/// the other datacenter's nodes sent to each other; and how many writes the coordinator counted.
fn wide_write(seed: u64, trace: Option<[u8; 16]>) -> ([u64; 3], u64) {
    let world = World::wide(seed, &["dc1", "dc1", "dc1", "dc2", "dc2", "dc2"], Config::default());
    let table = table("wide", "t");
    world.write(0, row(&table, 1, 1, "first", 1), Consistency::All).unwrap();
    world.sim.run_for(SECOND);
    let forwarded = || coordinator(0, 0).replication_stats().forwarded;
    let counted = || coordinator(0, 0).request_figures().1.latencies.count();
    let sent = |nodes: std::ops::Range<usize>| {
        // A traced message is wrapped; a traced request's steps are written as other rows are.
        let verbs = match trace {
            None => &[rpc::Verb::Apply, rpc::Verb::Forward][..],
            Some(_) => &[rpc::Verb::Traced][..],
        };
        let of = |node| verbs.iter().map(|verb| messenger(node).stats().verb(*verb).sent).sum::<u64>();
        nodes.map(of).sum::<u64>()
    };
    let before = ([forwarded(), sent(0..1), sent(3..6)], counted());
    let write = row(&table, 1, 1, "text", 2);
    world.on(0, 0, move |rt, coordinator| async move {
        let deadline = rt.now() + 2 * SECOND;
        let options = WriteOptions { consistency: Consistency::All, kind: WriteKind::Simple, deadline };
        match trace.map(TraceLog::of) {
            Some(trace) => coordinator.traced(&trace).write(vec![write], options).await,
            None => coordinator.write(vec![write], options).await,
        }
        .expect("all live");
    });
    let after = ([forwarded(), sent(0..1), sent(3..6)], counted());
    if let Some(session) = trace {
        world.sim.run_for(SECOND);
        let steps = told(&world, session);
        for node in 2..=6 {
            let source = format!("10.0.0.{node}");
            let stored =
                |(by, told): &(String, String)| *by == source && told.contains("Adding to t memtable");
            assert_eq!(steps.iter().filter(|step| stored(step)).count(), 1, "{source}: {steps:?}");
        }
    }
    let diff: Vec<u64> = after.0.iter().zip(before.0).map(|(after, before)| after - before).collect();
    (diff.try_into().expect("three figures"), after.1 - before.1)
}

#[test]
fn a_traced_write_takes_the_way_of_others() {
    let untraced = wide_write(3, None);
    // One forward and two writes near, two writes there that the one node passes on; one request.
    assert_eq!(untraced, ([1, 3, 2], 1));
    assert_eq!(wide_write(3, Some([3; 16])), untraced);
}

#[test]
fn traced_requests_are_counted() {
    for nodes in [&[2][..], &[1, 1, 1][..]] {
        let world = World::new(4, nodes, Config::default());
        let table = table("ks", "t");
        let write = row(&table, 1, 1, "text", 1);
        let read = partition(&table, 1, seconds(&world.sim, 0));
        let counted = || {
            let (reads, writes) = coordinator(0, 0).request_figures();
            (reads.latencies.count(), writes.latencies.count(), reads.unavailable, writes.unavailable)
        };
        let before = counted();
        let told = world.on(0, 0, |rt, coordinator| async move {
            let (trace, deadline) = (TraceLog::of([4; 16]), rt.now() + 2 * SECOND);
            let options = WriteOptions { consistency: Consistency::One, kind: WriteKind::Simple, deadline };
            coordinator.traced(&trace).write(vec![write.clone()], options).await.expect("all live");
            coordinator.traced(&trace).read(&read, Consistency::One, deadline).await.expect("all live");
            trace.events().into_iter().map(|event| event.activity).collect::<Vec<_>>()
        });
        let after = counted();
        assert_eq!((after.0 - before.0, after.1 - before.1), (1, 1), "{} nodes", nodes.len());
        for step in
            ["Determining replicas for 1 mutations", "Adding to t memtable", "Commit log acknowledged"]
        {
            assert!(told.iter().any(|told| told.contains(step)), "{step}: {told:?}");
        }
    }
}
