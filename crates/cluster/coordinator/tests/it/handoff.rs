//! Hinted handoff between nodes: writes that one missed are delivered when it is back, once, whole, and not too late.

use std::time::Duration;

use coordinator::Consistency;
use hints::{Hint, HintsConfig};
use mutation::codec;
use replica::TableOperation;
use rt_sim::{Config, LinkConfig};
use schema::TableBuilder;
use types::CqlType;

use crate::world::{SECOND, World, deleted, handoff, host, kept_hints, partition, row, seconds, table};

fn world(seed: u64, config: HintsConfig) -> World {
    World::with_handoff(seed, &[1, 2, 3], Config::default(), config)
}

#[test]
fn a_node_that_was_down_receives_missed_writes() {
    let (world, t) = (world(1, HintsConfig::default()), table("ks", "t"));
    let now = seconds(&world.sim, 0);
    world.write(0, row(&t, 1, 0, "old", 10), Consistency::All).unwrap();
    world.sim.crash(world.sim.node(2));
    world.believe(&[0, 1]);
    for k in 0..30 {
        world.write(k as usize % 2, row(&t, k, 1, "a", 20), Consistency::Quorum).unwrap();
    }
    world.write(0, deleted(&t, 1, 0, 20, now), Consistency::Quorum).unwrap();
    assert_eq!(
        [kept_hints(&world, 0), kept_hints(&world, 1)],
        [[(host(2), 16)].into(), [(host(2), 15)].into()]
    );
    // A restart of one that keeps hints: they are still there.
    world.sim.run_for(15 * SECOND);
    world.sim.restart(world.sim.node(1));
    world.sim.run_for(SECOND);
    world.believe(&[0, 1]);
    // It believed for a moment that all nodes are up; deliveries begun then have failed by now.
    world.sim.run_for(15 * SECOND);
    world.sim.start(world.sim.node(2));
    world.sim.run_for(30 * SECOND);
    assert_eq!(
        [kept_hints(&world, 0), kept_hints(&world, 1)],
        [[(host(2), 16)].into(), [(host(2), 15)].into()]
    );
    world.believe(&[0, 1, 2]);
    world.sim.run_for(15 * SECOND);
    assert_eq!([kept_hints(&world, 0), kept_hints(&world, 1)], [[].into(), [].into()]);
    for k in 0..30 {
        assert_eq!(world.kept(2, partition(&t, k, now)), [(1, "a".to_owned())], "partition {k}");
    }
    let files = world.sim.files(world.sim.node(0)).into_iter().chain(world.sim.files(world.sim.node(1)));
    let left: Vec<_> = files.filter(|(path, _)| path.starts_with("/hints")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_node_that_did_not_answer_in_time_gets_it_later() {
    let (world, t) = (world(2, HintsConfig::default()), table("ks", "t"));
    let now = seconds(&world.sim, 0);
    world.sim.isolate(world.sim.node(2));
    // Nobody knows yet that it is down.
    world.write(0, row(&t, 1, 1, "a", 10), Consistency::Quorum).unwrap();
    world.sim.run_for(5 * SECOND);
    assert_eq!(kept_hints(&world, 0), [(host(2), 1)].into());
    world.sim.run_for(60 * SECOND);
    assert_eq!(kept_hints(&world, 0), [(host(2), 1)].into(), "deliveries fail and the hint stays");
    world.sim.heal_all();
    world.sim.run_for(60 * SECOND);
    assert_eq!(kept_hints(&world, 0), [].into());
    assert_eq!(world.kept(2, partition(&t, 1, now)), [(1, "a".to_owned())]);
}

#[test]
fn any_is_content_with_a_hint() {
    let (world, t) = (world(3, HintsConfig::default()), table("one", "t"));
    let now = seconds(&world.sim, 0);
    world.sim.crash(world.sim.node(1));
    world.sim.crash(world.sim.node(2));
    world.believe(&[0]);
    for k in 0..20 {
        world.write(0, row(&t, k, 1, "a", 10), Consistency::Any).unwrap();
    }
    assert!(kept_hints(&world, 0).values().sum::<u64>() > 5);
    world.sim.start(world.sim.node(1));
    world.sim.start(world.sim.node(2));
    world.sim.run_for(SECOND);
    world.believe(&[0, 1, 2]);
    world.sim.run_for(15 * SECOND);
    for k in 0..20 {
        let page = world.read(1, partition(&t, k, now), Consistency::One).unwrap();
        assert_eq!(crate::world::texts(&page), [(1, "a".to_owned())], "partition {k}");
    }
}

#[test]
fn after_the_window_nothing_more_is_kept() {
    let config = HintsConfig { window: Duration::from_secs(60), ..HintsConfig::default() };
    let (world, t) = (world(4, config), table("ks", "t"));
    world.sim.crash(world.sim.node(2));
    world.believe(&[0, 1]);
    world.sim.run_for(55 * SECOND);
    world.write(0, row(&t, 1, 1, "a", 10), Consistency::Quorum).unwrap();
    world.sim.run_for(10 * SECOND);
    world.write(0, row(&t, 2, 1, "a", 10), Consistency::Quorum).unwrap();
    assert_eq!(kept_hints(&world, 0), [(host(2), 1)].into());
    let stats = world.on(0, 0, |_, coordinator| async move { coordinator.replication_stats() });
    assert_eq!((stats.hinted, stats.not_hinted), (1, 1));
}

#[test]
fn a_clock_that_jumps_forward_does_not_shorten_the_window() {
    let config = HintsConfig { window: Duration::from_secs(60), ..HintsConfig::default() };
    let (world, t) = (world(14, config), table("ks", "t"));
    world.sim.crash(world.sim.node(2));
    world.believe(&[0, 1]);
    world.sim.run_for(5 * SECOND);
    world.write(0, row(&t, 1, 1, "a", 10), Consistency::Quorum).unwrap();
    world.sim.jump_clock(world.sim.node(0), 3_600_000_000);
    world.write(0, row(&t, 2, 1, "a", 10), Consistency::Quorum).unwrap();
    assert_eq!(kept_hints(&world, 0), [(host(2), 2)].into());
    world.sim.run_for(60 * SECOND);
    world.write(0, row(&t, 3, 1, "a", 10), Consistency::Quorum).unwrap();
    assert_eq!(kept_hints(&world, 0), [(host(2), 2)].into(), "the outage lasts longer now");
}

#[test]
fn a_stop_keeps_the_rest_for_the_next_start() {
    // So slow that two are delivered a second: the rate is shared with the other node that might deliver.
    let config = HintsConfig { throttle_bytes: 400, in_flight_max: 1, ..HintsConfig::default() };
    let (world, t) = (world(5, config), table("ks", "t"));
    let now = seconds(&world.sim, 0);
    world.sim.crash(world.sim.node(2));
    world.believe(&[0, 1]);
    for k in 0..50 {
        world.write(0, row(&t, k, 1, "a", 10), Consistency::Quorum).unwrap();
    }
    world.sim.start(world.sim.node(2));
    world.sim.run_for(SECOND);
    world.believe(&[0, 1, 2]);
    world.sim.run_for(5 * SECOND);
    world.on(0, 0, |_, _| async { handoff(0, 0).stop().await });
    let delivered = handoff(0, 0).hints().stats().delivered;
    assert!((5..30).contains(&delivered), "{delivered}");
    world.sim.kill(world.sim.node(0));
    world.sim.start(world.sim.node(0));
    world.sim.run_for(SECOND);
    let kept = 50 - delivered;
    let now_kept = kept_hints(&world, 0).get(&host(2)).copied().unwrap_or(0);
    assert!(now_kept <= kept && now_kept + 10 > kept, "{now_kept} of {kept}");
    world.sim.run_for(60 * SECOND);
    assert_eq!(kept_hints(&world, 0), [].into());
    for k in 0..50 {
        assert_eq!(world.kept(2, partition(&t, k, now)), [(1, "a".to_owned())], "partition {k}");
    }
}

#[test]
fn truncated_rows_do_not_come_back_with_a_hint() {
    let (world, t) = (world(6, HintsConfig::default()), table("ks", "t"));
    let now = seconds(&world.sim, 0);
    // The clock of the node that keeps the hints is ahead, further than the truncation will be late, and then goes back.
    world.sim.jump_clock(world.sim.node(0), 300_000_000);
    world.sim.isolate(world.sim.node(2));
    for k in 0..10 {
        world.write(0, row(&t, k, 1, "old", 10), Consistency::Quorum).unwrap();
    }
    world.sim.run_for(5 * SECOND);
    assert_eq!(kept_hints(&world, 0), [(host(2), 10)].into());
    world.sim.jump_clock(world.sim.node(0), -300_000_000);
    world.on(0, 0, |_, _| async { handoff(0, 0).hints().set_paused(true) });
    world.sim.heal_all();
    world.sim.run_for(30 * SECOND);
    let truncated = world.on(1, 0, {
        let t = t.clone();
        |rt, coordinator| async move { coordinator.truncate(&t, rt.now() + SECOND).await }
    });
    assert_eq!(truncated, Ok(()));
    world.on(0, 0, |_, _| async { handoff(0, 0).hints().set_paused(false) });
    world.sim.run_for(60 * SECOND);
    assert_eq!(kept_hints(&world, 0), [].into());
    for k in 0..10 {
        assert_eq!(world.kept(2, partition(&t, k, now)), [], "partition {k}");
    }
}

/// A write that two replicas acknowledge and that reaches the third over `link`, late or never; the table is truncated meanwhile.
fn truncated_while_a_call_is_under_way(seed: u64, link: LinkConfig) {
    let (world, t) = (world(seed, HintsConfig::default()), table("ks", "t"));
    let now = seconds(&world.sim, 0);
    let (from, to) = (world.sim.node(0), world.sim.node(2));
    world.write(0, row(&t, 2, 1, "connected", 9), Consistency::All).unwrap();
    world.sim.set_link(from, to, Some(link));
    world.write(0, row(&t, 1, 1, "old", 10), Consistency::Quorum).unwrap();
    assert_eq!(world.kept(2, partition(&t, 1, now)), [], "it is on its way");
    let truncated = world.on(1, 0, {
        let t = t.clone();
        |rt, coordinator| async move { coordinator.truncate(&t, rt.now() + SECOND).await }
    });
    assert_eq!(truncated, Ok(()));
    world.sim.run_for(5 * SECOND);
    world.sim.set_link(from, to, None);
    world.sim.run_for(60 * SECOND);
    assert_eq!(kept_hints(&world, 0), [].into());
    for node in 0..3 {
        assert_eq!(world.kept(node, partition(&t, 1, now)), [], "node {node}");
    }
    world.write(0, row(&t, 1, 1, "new", 11), Consistency::All).unwrap();
    assert_eq!(world.kept(2, partition(&t, 1, now)), [(1, "new".to_owned())]);
}

#[test]
fn truncated_rows_do_not_come_back_with_a_hint_stored_afterwards() {
    let never = LinkConfig { latency_min: 600 * SECOND, latency_max: 600 * SECOND, ..LinkConfig::default() };
    truncated_while_a_call_is_under_way(9, never);
}

#[test]
fn truncated_rows_do_not_come_back_with_a_late_message() {
    let slow = LinkConfig { latency_min: SECOND, latency_max: SECOND, ..LinkConfig::default() };
    truncated_while_a_call_is_under_way(10, slow);
}

#[test]
fn a_write_is_not_lost_to_a_truncation_that_its_coordinator_has_not_heard_of() {
    let (world, t) = (world(11, HintsConfig::default()), table("ks", "t"));
    let now = seconds(&world.sim, 0);
    // As if the coordinator had joined since: it knows nothing of the truncation, and its clock is behind that of the others.
    for node in 1..3 {
        let truncated = world.on(node, 0, {
            let id = t.id;
            move |rt, coordinator| async move {
                let truncate = TableOperation::Truncate {
                    at_micros: rt.wall_micros() + 60_000_000,
                    expires: rt::Instant::MAX,
                };
                coordinator.replica().table_operation_on_each(id, truncate).await
            }
        });
        assert!(truncated.iter().all(Result::is_ok), "{truncated:?}");
    }
    world.write(0, row(&t, 1, 1, "a", 10), Consistency::All).unwrap();
    world.write(0, row(&t, 1, 2, "b", 11), Consistency::Quorum).unwrap();
    world.sim.run_for(SECOND);
    for node in 0..3 {
        let both = [(1, "a".to_owned()), (2, "b".to_owned())];
        assert_eq!(world.kept(node, partition(&t, 1, now)), both, "node {node}");
    }
}

#[test]
fn writes_after_a_truncation_are_delivered() {
    let (world, t) = (world(7, HintsConfig::default()), table("ks", "t"));
    let now = seconds(&world.sim, 0);
    world.on(0, 0, {
        let t = t.clone();
        |rt, coordinator| async move { coordinator.truncate(&t, rt.now() + SECOND).await.unwrap() }
    });
    world.sim.run_for(SECOND);
    world.sim.isolate(world.sim.node(2));
    // The clock that gives hints their times goes back behind the truncation.
    world.sim.jump_clock(world.sim.node(0), -30_000_000);
    world.write(0, row(&t, 1, 1, "new", 11), Consistency::Quorum).unwrap();
    world.sim.run_for(60 * SECOND);
    world.sim.heal_all();
    world.sim.run_for(60 * SECOND);
    assert_eq!(kept_hints(&world, 0), [].into());
    assert_eq!(world.kept(2, partition(&t, 1, now)), [(1, "new".to_owned())]);
}

#[test]
fn writes_that_a_repair_may_have_overtaken_are_not_delivered() {
    let (world, t) = (world(8, HintsConfig::default()), table("ks", "repaired"));
    let now = seconds(&world.sim, 0);
    world.sim.isolate(world.sim.node(2));
    // A repair lets deletions be forgotten that are older than a minute.
    world.write(0, row(&t, 1, 1, "too old", 10), Consistency::Quorum).unwrap();
    world.sim.run_for(50 * SECOND);
    world.write(0, row(&t, 2, 1, "in time", 10), Consistency::Quorum).unwrap();
    world.sim.run_for(15 * SECOND);
    assert_eq!(kept_hints(&world, 0), [(host(2), 2)].into());
    world.sim.heal_all();
    world.sim.run_for(60 * SECOND);
    assert_eq!(kept_hints(&world, 0), [].into());
    assert_eq!(world.kept(2, partition(&t, 1, now)), []);
    assert_eq!(world.kept(2, partition(&t, 2, now)), [(1, "in time".to_owned())]);
}

#[test]
fn hints_of_a_table_whose_id_another_has_got_do_not_hold_up_the_others() {
    let (world, t) = (world(12, HintsConfig::default()), table("ks", "t"));
    let now = seconds(&world.sim, 0);
    world.sim.isolate(world.sim.node(2));
    world.believe(&[0, 1]);
    // A table of this id that was dropped, with another column.
    let former = TableBuilder::new("ks", "t", t.id)
        .partition_key("k", CqlType::Int)
        .clustering("c", CqlType::Int, false)
        .regular("former", CqlType::Text)
        .build_known();
    let mut update = row(&t, 1, 1, "a", 10);
    let clustering = update.rows()[0].clustering.clone();
    let mut of_former = mutation::Row::new(clustering);
    let cell = mutation::Cell::live(10, "old".into());
    of_former.set(former.column("former").unwrap().id, mutation::ColumnData::Simple(cell));
    update = mutation::PartitionUpdate::with_rows(former, update.key.clone(), vec![of_former]);
    world.on(0, 0, |rt, _| async move {
        let mut body = Vec::new();
        codec::encode_updates(&[update], &mut body);
        let now_micros = rt.wall_micros();
        let hint = Hint {
            host: host(2),
            table: t.id.0,
            update: body.into(),
            grace_seconds: 864_000,
            begun_micros: now_micros,
            now_micros,
            down_since_micros: Some(now_micros),
        };
        handoff(0, 0).hints().store(hint).unwrap();
    });
    let t = table("ks", "t");
    world.write(0, row(&t, 2, 1, "b", 10), Consistency::Quorum).unwrap();
    assert_eq!(kept_hints(&world, 0), [(host(2), 2)].into());
    world.sim.heal_all();
    world.believe(&[0, 1, 2]);
    // It may be that this node is yet to learn of the column.
    world.sim.run_for(30 * SECOND);
    assert_eq!(kept_hints(&world, 0), [(host(2), 2)].into());
    world.sim.run_for(60 * SECOND);
    assert_eq!(kept_hints(&world, 0), [].into());
    assert_eq!(world.kept(2, partition(&t, 2, now)), [(1, "b".to_owned())]);
    let stats = world.on(0, 0, |_, _| async { handoff(0, 0).hints().stats() });
    assert_eq!((stats.left_out, stats.delivered), (1, 1));
}
