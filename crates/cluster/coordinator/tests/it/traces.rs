//! Traced requests: every node that had a part in one keeps its own steps under the request's id.

use std::collections::BTreeSet;

use coordinator::{Consistency, WriteKind, WriteOptions};
use mutation::{ColumnData, DecoratedKey};
use replica::{Keys, Partitions, TraceLog};
use rt_sim::Config;

use crate::world::*;

/// Who tells which steps of a request.
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
        coordinator.write_traced(vec![write], options, &trace).await.expect("all live");
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
        let page = coordinator.read_traced(&read, Consistency::All, rt.now() + 2 * SECOND, &trace).await;
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
