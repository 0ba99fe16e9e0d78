//! Lightweight transactions over several nodes: conditional writes and serial reads of a register under partitions, crashes and
//! power failures, judged for linearisability.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use coordinator::{CasOptions, CasOutcome, Consistency, Coordinator, PaxosStats, RequestError};
use model::linear::{Linearity, NEVER, Operation, Register, RegisterInput, RegisterOutput, check};
use mutation::{
    Bound, Cell, Clustering, ColumnData, ColumnSelection, DeletionTime, PartitionUpdate, Row, RowRange, Side,
    Slices, Timestamp,
};
use replica::{ReadCommand, ReadPage};
use rt::{DiskOp, Rt};
use rt_sim::{Config, DiskFault, Sim};

use crate::world::{
    SECOND, SEGMENT_BYTES, SYNCS_EACH, World, begin, join, key, partition, row, seconds, table, texts,
};

const KEYS: i32 = 2;

type Op = Operation<RegisterInput, RegisterOutput>;

/// The values that clients saw of each key, in the order in which it happened.
#[derive(Default)]
pub struct History {
    time: u64,
    keys: BTreeMap<i32, Vec<Op>>,
    /// Operations that may happen yet, with when they failed.
    unsettled: Vec<(u64, i32, usize)>,
    failed: u64,
}

impl History {
    fn begin(&mut self, key: i32, input: RegisterInput) -> usize {
        self.time += 1;
        let operations = self.keys.entry(key).or_default();
        operations.push(Operation { invoked: self.time, ended: NEVER, input, output: None });
        operations.len() - 1
    }

    fn end(&mut self, key: i32, at: usize, result: Result<RegisterOutput, RequestError>) {
        self.time += 1;
        let now = self.time;
        let operations = self.keys.get_mut(&key).expect("it was begun");
        match result {
            Ok(output) => {
                operations[at].output = Some(output);
                operations[at].ended = now;
                // A later answered request has settled the uncertain ones before it.
                let invoked = operations[at].invoked;
                self.unsettled.retain(|(failed, of, open)| {
                    let settled = *of == key && *failed < invoked;
                    if settled {
                        operations[*open].ended = now;
                    }
                    !settled
                });
            }
            // Chosen, and not known to be everywhere: it counts from here on.
            Err(RequestError::WriteTimeout { .. } | RequestError::WriteFailure { .. }) => {
                operations[at].output = Some(RegisterOutput::Applied(true));
                operations[at].ended = now;
            }
            Err(RequestError::CasUncertain { .. }) => {
                self.failed += 1;
                self.unsettled.push((now, key, at));
            }
            Err(_) => {
                self.failed += 1;
                operations[at].input = RegisterInput::Read;
            }
        }
    }
}

fn held(page: &ReadPage) -> Option<i64> {
    texts(page).first().map(|(_, text)| text.parse().expect("a number"))
}

pub async fn read(
    rt: &Rt,
    coordinator: &Coordinator,
    key: i32,
    now: u32,
) -> Result<RegisterOutput, RequestError> {
    let command = partition(&table("ks", "t"), key, now);
    let page = coordinator.read_serial(&command, Consistency::Serial, rt.now() + 2 * SECOND).await?;
    Ok(RegisterOutput::Value(held(&page)))
}

pub async fn cas(
    rt: &Rt,
    coordinator: &Coordinator,
    (key, now): (i32, u32),
    expected: Option<i64>,
    new: i64,
) -> Result<RegisterOutput, RequestError> {
    cas_at(rt, coordinator, (key, now), expected, new, Consistency::One).await
}

/// [`cas`] that is answered when as many replicas have the write as `commit` says.
pub async fn cas_at(
    rt: &Rt,
    coordinator: &Coordinator,
    (key, now): (i32, u32),
    expected: Option<i64>,
    new: i64,
    commit: Consistency,
) -> Result<RegisterOutput, RequestError> {
    let table = table("ks", "t");
    let options = CasOptions {
        serial: Consistency::Serial,
        commit,
        deadline: rt.now() + 2 * SECOND,
        contention_deadline: rt.now() + SECOND,
    };
    let command = partition(&table, key, now);
    let mut decide = |page: &ReadPage, at: Timestamp| {
        let write = (held(page) == expected).then(|| row(&table, key, 0, &new.to_string(), at));
        Ok::<_, RequestError>(write)
    };
    match coordinator.cas(&command, options, &mut decide).await? {
        CasOutcome::Applied => Ok(RegisterOutput::Applied(true)),
        CasOutcome::Refused(page) => Ok(RegisterOutput::Refused(held(&page))),
    }
}

pub async fn client(rt: Rt, coordinator: Coordinator, history: Rc<RefCell<History>>, now: u32, count: u32) {
    let mut last = None;
    for _ in 0..count {
        let key = rt.random_u64() as i32 & (KEYS - 1);
        let new = (rt.random_u64() % 1_000_000) as i64;
        let expected = if rt.random_u64() % 8 == 0 { Some(-1) } else { last };
        let is_read = rt.random_u64() % 3 == 0;
        let input =
            if is_read { RegisterInput::Read } else { RegisterInput::Cas { expected, new: Some(new) } };
        let at = history.borrow_mut().begin(key, input);
        let result = if is_read {
            read(&rt, &coordinator, key, now).await
        } else {
            cas(&rt, &coordinator, (key, now), expected, new).await
        };
        last = match &result {
            Ok(RegisterOutput::Value(found) | RegisterOutput::Refused(found)) => *found,
            Ok(_) => Some(new),
            Err(_) => last,
        };
        history.borrow_mut().end(key, at, result);
        rt.sleep(SECOND / 100).await;
    }
}

fn disturb(sim: &Sim, turn: u64) {
    let node = |n: u64| sim.node(n as usize % 3);
    match turn % 8 {
        0 => sim.isolate(node(turn / 8)),
        1 => sim.partition(node(turn / 8), node(turn / 8 + 1)),
        2 => sim.partition_one_way(node(turn / 8), node(turn / 8 + 1)),
        3 => sim.reset_connections(node(turn / 8), node(turn / 8 + 2)),
        4 => sim.crash(node(turn / 8)),
        5 => sim.kill(node(turn / 8 + 1)),
        _ => sim.heal_all(),
    }
}

/// Ends all nodes' downtime.
fn revive(sim: &Sim) {
    sim.heal_all();
    for node in 0..3 {
        if !sim.is_running(sim.node(node)) {
            sim.start(sim.node(node));
        }
    }
}

#[derive(Debug, Default)]
pub struct Sum {
    pub answered: usize,
    pub applied: usize,
    pub failed: u64,
    stats: PaxosStats,
}

/// Whether the clients' observations of a disturbed cluster are right.
fn run(seed: u64, faults: bool, sum: &mut Sum) -> bool {
    let world = World::new(seed, &[1, 2, 3], Config::default());
    let history = Rc::new(RefCell::new(History::default()));
    let now = seconds(&world.sim, 0);
    let start = |node: usize, shard: u16, count: u32| {
        let history = history.clone();
        begin(&world.sim, node, shard, move |rt, coordinator| client(rt, coordinator, history, now, count))
    };
    let first: Vec<_> = [(0, 0), (1, 0), (1, 1), (2, 2)].map(|(node, shard)| start(node, shard, 14)).into();
    if faults {
        for turn in 0..6 {
            world.sim.after(SECOND / 8 * turn, move |sim| disturb(sim, seed.wrapping_add(u64::from(turn))));
        }
        world.sim.after(SECOND * 2, revive);
        // Clients of nodes that crashed are gone with them.
        world.sim.run_for(8 * SECOND);
        drop(first);
    } else {
        first.into_iter().for_each(|client| join(&world.sim, client));
    }
    // The faults have ended: new clients succeed.
    for client in [(0, 0), (2, 0)].map(|(node, shard)| start(node, shard, 4)) {
        join(&world.sim, client);
    }
    for (node, shard) in [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)] {
        let stats = world.on(node, shard, |_, coordinator| async move { coordinator.paxos_stats() });
        sum.stats.contended += stats.contended;
        sum.stats.finished += stats.finished;
        sum.stats.uncertain += stats.uncertain;
    }
    judge(&history.borrow(), seed, sum)
}

/// Whether some order explains the clients' observations.
pub fn judge(history: &History, seed: u64, sum: &mut Sum) -> bool {
    sum.failed += history.failed;
    history.keys.iter().all(|(key, operations)| {
        let outputs = || operations.iter().filter_map(|operation| operation.output.as_ref());
        sum.answered += outputs().count();
        sum.applied += outputs().filter(|output| matches!(output, RegisterOutput::Applied(_))).count();
        match check(&Register, operations) {
            Linearity::Linear(_) => true,
            Linearity::Unknown => panic!("seed {seed}: key {key}: too many orders"),
            Linearity::Broken(order) => {
                for (at, operation) in operations.iter().enumerate() {
                    println!("{at}: {operation:?}");
                }
                println!("seed {seed}: key {key}: explained up to {order:?}");
                false
            }
        }
    })
}

#[test]
fn a_cluster_without_faults_is_linear_and_certain() {
    let mut sum = Sum::default();
    assert!((0..20).all(|seed| run(seed, false, &mut sum)));
    assert_eq!((sum.failed, sum.stats.uncertain), (0, 0), "{sum:?}");
    assert!(sum.answered == 20 * 64 && sum.applied > 200 && sum.stats.contended > 50, "{sum:?}");
}

#[test]
fn a_disturbed_cluster_is_linear() {
    let mut sum = Sum::default();
    for seed in 100..160 {
        assert!(run(seed, true, &mut sum), "seed {seed}");
    }
    assert!(sum.answered > 1_500 && sum.applied > 400, "{sum:?}");
    assert!(sum.failed > 20 && sum.stats.finished > 20, "faults have an effect: {sum:?}");
}

#[test]
fn one_node_of_several_shards_agrees_with_itself() {
    let world = World::new(5, &[3], Config::default());
    let now = seconds(&world.sim, 0);
    let table = table("one", "t");
    let clients: Vec<_> = (0..3)
        .map(|shard| {
            let table = table.clone();
            begin(&world.sim, 0, shard, move |rt, coordinator| async move {
                let mut counted = 0;
                while counted < 20 {
                    let command = partition(&table, 1, now);
                    let options = CasOptions {
                        serial: Consistency::Serial,
                        commit: Consistency::One,
                        deadline: rt.now() + 2 * SECOND,
                        contention_deadline: rt.now() + 2 * SECOND,
                    };
                    let mut decide = |page: &ReadPage, at: Timestamp| {
                        let next = held(page).unwrap_or(0) + 1;
                        Ok::<_, RequestError>(Some(row(&table, 1, 0, &next.to_string(), at)))
                    };
                    coordinator.cas(&command, options, &mut decide).await.expect("a node without faults");
                    counted += 1;
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| join(&world.sim, client));
    let page = world.read(0, partition(&table, 1, now), Consistency::One).expect("a node without faults");
    assert_eq!(held(&page), Some(60), "every increment counted once");
    let stats =
        [0, 1, 2].map(|shard| world.on(0, shard, |_, coordinator| async move { coordinator.paxos_stats() }));
    assert_eq!(stats.map(|stats| stats.contended), [0; 3], "the shards of a node wait for each other");
}

#[test]
fn too_few_replicas_are_reported_before_anything_is_tried() {
    let world = World::new(6, &[1, 1, 1], Config::default());
    world.believe(&[0]);
    let now = seconds(&world.sim, 0);
    let refused = world.on(0, 0, move |rt, coordinator| async move {
        (cas(&rt, &coordinator, (1, now), None, 1).await, read(&rt, &coordinator, 1, now).await)
    });
    let unavailable = |consistency| RequestError::Unavailable { consistency, required: 2, alive: 1 };
    assert_eq!(refused.0.err(), Some(unavailable(Consistency::Serial)));
    assert_eq!(refused.1.err(), Some(unavailable(Consistency::Serial)));
}

/// The text of a row as a serial read finds it, after it was written under the condition that there was another one, or none.
async fn replace(
    rt: &Rt,
    coordinator: &Coordinator,
    now: u32,
    (expected, text): (Option<String>, String),
) -> Result<Option<String>, RequestError> {
    let table = table("ks", "t");
    let command = partition(&table, 1, now);
    let options = CasOptions {
        serial: Consistency::Serial,
        commit: Consistency::Quorum,
        deadline: rt.now() + 2 * SECOND,
        contention_deadline: rt.now() + SECOND,
    };
    let mut decide = |page: &ReadPage, at: Timestamp| {
        let found = texts(page).pop().map(|(_, text)| text);
        Ok::<_, RequestError>((found == expected).then(|| row(&table, 1, 0, &text, at)))
    };
    coordinator.cas(&command, options, &mut decide).await?;
    let page = coordinator.read_serial(&command, Consistency::Serial, rt.now() + 2 * SECOND).await?;
    Ok(texts(&page).pop().map(|(_, text)| text))
}

/// The commit of a write of more than half an entry of the log has the write and the vote in entries of their own; a write that takes more than
/// an entry is refused before anybody has accepted it, and the partition takes others.
#[test]
fn a_large_conditional_write_is_committed_or_refused() {
    SEGMENT_BYTES.set(Some(512 << 10));
    let world = World::new(1, &[1, 1, 1], Config::default());
    let now = seconds(&world.sim, 0);
    let texts = ["a".repeat(160 << 10), "b".repeat(200 << 10), "small".to_owned()];
    let mut before = None;
    for (node, text) in texts.iter().enumerate() {
        let wanted = (before.replace(text.clone()), text.clone());
        let found = world
            .on(node, 0, move |rt, coordinator| async move { replace(&rt, &coordinator, now, wanted).await });
        assert_eq!(found.as_ref().map(|found| found.as_ref().map(String::len)), Ok(Some(text.len())));
        assert_eq!(found.unwrap().as_deref(), Some(text.as_str()));
    }
    let too_large = (before.clone(), "c".repeat(300 << 10));
    let refused = world
        .on(0, 0, move |rt, coordinator| async move { replace(&rt, &coordinator, now, too_large).await });
    assert!(matches!(refused, Err(RequestError::Invalid(_))), "{refused:?}");
    let next = (before, "next".to_owned());
    let found =
        world.on(1, 0, move |rt, coordinator| async move { replace(&rt, &coordinator, now, next).await });
    assert_eq!(found, Ok(Some("next".to_owned())));
    SEGMENT_BYTES.set(None);
}

/// Writes some columns of a row of `imaged` under a condition that reads some columns; the bytes of the row as a serial read finds it.
async fn fill(
    rt: &Rt,
    coordinator: &Coordinator,
    now: u32,
    (name, bytes, reads): (&'static str, usize, ColumnSelection),
) -> Result<usize, RequestError> {
    let table = table("ks", "imaged");
    let all = partition(&table, 1, now);
    let deadline = rt.now() + 2 * SECOND;
    let (serial, commit) = (Consistency::Serial, Consistency::Quorum);
    let options = CasOptions { serial, commit, deadline, contention_deadline: deadline };
    let mut decide = |_: &ReadPage, at: Timestamp| {
        let mut row = Row::new(Clustering::new(&table, &[Some(&0_i32.to_be_bytes())]));
        let column = table.column(name).expect("a column").id;
        row.set(column, ColumnData::Simple(Cell::live(at, vec![b'x'; bytes].into())));
        let mut update = PartitionUpdate::new(table.clone(), key(1));
        update.add_row(row);
        Ok::<_, RequestError>(Some(update))
    };
    let command = ReadCommand { columns: reads, ..all.clone() };
    coordinator.cas(&command, options, &mut decide).await?;
    let page = coordinator.read_serial(&all, serial, rt.now() + 2 * SECOND).await?;
    let cell = |(_, data): &(_, ColumnData)| match data {
        ColumnData::Simple(cell) => cell.value.len(),
        ColumnData::Complex(_) => 0,
    };
    let rows = page.partitions.iter().flat_map(|partition| &partition.rows);
    Ok(rows.flat_map(|row| row.columns().iter().map(cell)).sum())
}

/// A row that fits an entry of the log, and a write that does, may be too large together where the log of CDC shows the row before: such a write
/// is refused before anybody has accepted it, also when its condition has read none of the columns, and the partition takes others.
#[test]
fn a_conditional_write_whose_image_is_too_large_is_refused() {
    SEGMENT_BYTES.set(Some(512 << 10));
    let world = World::new(1, &[1, 2, 3], Config::default());
    let table = table("ks", "imaged");
    let key_alone = ColumnSelection::Some(Vec::new().into());
    let own = ColumnSelection::Some(vec![table.column("z").expect("a column").id].into());
    let write = |node: usize, name: &'static str, bytes: usize, reads: ColumnSelection| {
        let now = seconds(&world.sim, node);
        let written = (name, bytes, reads);
        world.on(node, 0, move |rt, coordinator| async move { fill(&rt, &coordinator, now, written).await })
    };
    for (node, name) in [(0, "v"), (1, "w"), (2, "x"), (0, "y")] {
        assert_eq!(write(node, name, 45 << 10, own.clone()).map(|bytes| bytes % (45 << 10)), Ok(0), "{name}");
    }
    for reads in [ColumnSelection::All, own, key_alone] {
        let refused = write(1, "z", 45 << 10, reads);
        let Err(RequestError::Invalid(text)) = &refused else { panic!("it is not refused: {refused:?}") };
        assert!(text.contains("larger") || text.contains("too large"), "{text}");
    }
    assert_eq!(write(2, "z", 10, ColumnSelection::All), Ok(4 * (45 << 10) + 10));
    SEGMENT_BYTES.set(None);
}

/// A deletion with which more of a view follows than can be read at once, beside a row: it is committed in parts, and the partition takes others.
#[test]
fn a_conditional_deletion_of_more_than_can_be_read_is_committed() {
    let world = World::with_batches(4, &[1, 1, 1], Config::default(), true);
    let wide = crate::derived::fill_wide(&world, "ks", Consistency::All);
    for (node, c) in [(0, 98), (1, 99)] {
        let (of, now) = (wide.clone(), seconds(&world.sim, node));
        let kept = world.on(node, 0, move |rt, coordinator| async move {
            let deadline = rt.now() + 10 * SECOND;
            let (serial, commit) = (Consistency::Serial, Consistency::Quorum);
            let options = CasOptions { serial, commit, deadline, contention_deadline: deadline };
            let at_row = |c| {
                let row = partition(&of, 1, now);
                let bound = |side| Bound::new(&of, &[Some(&i32::to_be_bytes(c))], side);
                let range = RowRange { start: bound(Side::Before), end: bound(Side::After) };
                ReadCommand { slices: Slices::new(vec![range]), ..row }
            };
            let mut decide = |_: &ReadPage, at: Timestamp| {
                let mut update = row(&of, 1, c, "new", at);
                update.add_deletion(DeletionTime::new(at - 1, now));
                Ok::<_, RequestError>(Some(update))
            };
            coordinator.cas(&at_row(c), options, &mut decide).await?;
            let page =
                coordinator.read_serial(&partition(&of, 1, now), Consistency::Serial, deadline).await?;
            let rows = page.partitions.iter().flat_map(|partition| &partition.rows);
            Ok::<_, RequestError>((
                rows.count(),
                coordinator.read_serial(&at_row(c), serial, deadline).await?,
            ))
        });
        let (rows, at_row) = kept.expect("it is committed");
        assert_eq!((rows, at_row.partitions.len()), (1, 1), "its row alone is left");
    }
}

/// The rows of a node after a power failure. Its disk was full when the commit came, a later round of two nodes, one of which is
/// this node, found it in this node's memory, and built on it.
fn kept_of_a_commit_on_a_full_disk(skip: u32) -> Vec<(i32, String)> {
    SYNCS_EACH.set(true);
    let world = World::new(3, &[1, 1, 1], Config::default());
    let (now, node) = (seconds(&world.sim, 0), world.sim.node(2));
    let fault = DiskFault { op: DiskOp::Write, path_contains: "/log".to_owned(), errno: 28, skip, times: 1 };
    world.sim.inject_disk_fault(node, fault);
    let write =
        world.on(0, 0, move |rt, coordinator| async move { cas(&rt, &coordinator, (1, now), None, 7).await });
    assert_eq!(write, Ok(RegisterOutput::Applied(true)));
    world.sim.run_for(SECOND);
    world.sim.clear_disk_faults(node);
    world.sim.isolate(world.sim.node(0));
    world.believe(&[1, 2]);
    let seen = world.on(1, 0, move |rt, coordinator| async move { read(&rt, &coordinator, 1, now).await });
    assert_eq!(seen, Ok(RegisterOutput::Value(Some(7))));
    world.sim.crash(node);
    world.sim.start(node);
    world.sim.run_for(SECOND);
    SYNCS_EACH.set(false);
    world.kept(2, partition(&table("ks", "t"), 1, now))
}

#[test]
fn a_commit_that_the_log_did_not_take_is_written_again_before_the_next_vote() {
    for skip in 0..4 {
        let kept = kept_of_a_commit_on_a_full_disk(skip);
        assert_eq!(kept, [(0, "7".to_owned())], "{skip} writes of the log succeeded");
    }
}
