//! Nodes in memory whose shards answer as real ones do, and a carrier that counts their messages and may fail.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use mutation::merge::{Merger, Step};
use mutation::purge::{PurgeRule, Purger};
use mutation::{Fragment, FragmentBuffer, PartitionUpdate, Timestamp};
use repair::codec::{decode_answer, decode_request, encode_answer, encode_request};
use repair::message::{Answer, Request};
use repair::{
    Canaries, Carrier, Data, Done, Follower, FollowerConfig, FollowerError, Participant, Scope, Segment,
    StepError, participants, step,
};
use replica::compare::fragments;
use replica::page::{PageBuilder, Progress};
use replica::{PartitionResult, Partitions, ReadCommand, ReadPage, RepairedWatermark, ReplicaError, Resume};
use schema::{Table, TableId};
use topology::Sharder;

/// One node's updates, and how many shards share them.
#[derive(Clone)]
pub struct Node {
    pub updates: Rc<RefCell<Vec<PartitionUpdate>>>,
    pub shard_count: u16,
    truncated_at: Rc<Cell<i64>>,
}

impl Node {
    pub fn new(updates: Vec<PartitionUpdate>, shard_count: u16) -> Self {
        Self { updates: Rc::new(RefCell::new(updates)), shard_count, truncated_at: Rc::default() }
    }

    /// Removes all that it has.
    pub fn truncate(&self) {
        self.updates.borrow_mut().clear();
        self.truncated_at.set(self.truncated_at.get() + 1);
    }

    /// All its data, merged, without tombstones that a rule purges.
    pub fn merged(&self, command: &ReadCommand, rule: Option<PurgeRule>) -> Vec<PartitionResult> {
        read(command, &self.updates.borrow(), rule).partitions
    }

    /// Keeps the merge of the first `covered` updates, and purges from it like a compaction that knows of the others. How many
    /// they are now.
    pub fn compact_covered(&self, command: &ReadCommand, covered: usize, rule: PurgeRule) -> usize {
        let mut updates = self.updates.borrow_mut();
        let fresh = updates.split_off(covered);
        let kept = read(command, &updates, fresh.is_empty().then_some(rule)).partitions;
        *updates = kept.into_iter().map(|partition| partition.into_update(&command.table, false)).collect();
        let covered = updates.len();
        updates.extend(fresh);
        covered
    }

    /// Keeps the merge, without tombstones that a compaction purges.
    pub fn compact(&self, command: &ReadCommand, rule: PurgeRule) {
        let kept = self.merged(command, Some(rule));
        let table = &command.table;
        *self.updates.borrow_mut() =
            kept.into_iter().map(|partition| partition.into_update(table, false)).collect();
    }
}

/// The answer of a replica that holds `updates`.
fn read(command: &ReadCommand, updates: &[PartitionUpdate], rule: Option<PurgeRule>) -> ReadPage {
    let mut page = PageBuilder::new(command);
    if let Some(resume) = &command.resume {
        page.resume(resume.key.clone(), resume.rows_in_partition);
    }
    let mut merger = Merger::new(command.table.clone(), updates.len(), command.reversed);
    for (input, update) in updates.iter().enumerate() {
        if let Some(part) = asked_for(command, update) {
            fragments(&part, command.reversed, merger.buffer(input));
        }
        merger.end(input);
    }
    let mut purger = rule.map(Purger::new);
    let mut kept = FragmentBuffer::new();
    while let Step::Fragment(fragment) = merger.next() {
        match &mut purger {
            Some(purger) => purger.push(fragment, |_| Timestamp::MAX, &mut kept),
            None => kept.push_back(fragment),
        }
        if kept.drain(..).any(|fragment: Fragment| page.push(fragment) == Progress::Full) {
            break;
        }
    }
    page.finish()
}

/// The part of an update that lies behind the command's place to resume from.
fn asked_for(command: &ReadCommand, update: &PartitionUpdate) -> Option<PartitionResult> {
    let mut part = PartitionResult::from_update(update.clone(), command.reversed);
    part.rows.retain(|row| command.slices.contains(&row.clustering));
    part.range_tombstones = mutation::range::clip(&part.range_tombstones, &command.slices);
    let is_wanted = match &command.partitions {
        Partitions::Range(range) => range.contains(&update.key),
        Partitions::Keys(keys) => keys.contains(&update.key),
    };
    match &command.resume {
        _ if !is_wanted => return None,
        Some(resume) if part.key < resume.key => return None,
        Some(resume) if part.key == resume.key => {
            let last = resume.clustering.as_ref()?;
            let slices = command.slices.after(last, command.reversed);
            part.rows.retain(|row| slices.contains(&row.clustering));
            part.range_tombstones = mutation::range::clip(&part.range_tombstones, &slices);
        }
        Some(_) | None => {}
    }
    Some(part)
}

struct Shard {
    node: Node,
    number: u16,
}

impl Shard {
    fn owns(&self, token: i64) -> bool {
        Sharder::new(self.node.shard_count).shard_of(token) == self.number
    }
}

impl Data for Shard {
    async fn read(
        &self,
        command: &ReadCommand,
        above: Option<RepairedWatermark>,
    ) -> Result<ReadPage, ReplicaError> {
        let updates = self.node.updates.borrow();
        let covered = above.map_or(0, |mark| mark.number as usize);
        let own: Vec<PartitionUpdate> =
            updates[covered..].iter().filter(|update| self.owns(update.key.token)).cloned().collect();
        Ok(read(command, &own, None))
    }

    async fn apply(&self, update: PartitionUpdate, truncated_at: i64) -> Result<(), ReplicaError> {
        assert!(self.owns(update.key.token), "it belongs to another shard");
        if self.node.truncated_at.get() <= truncated_at {
            self.node.updates.borrow_mut().push(update);
        }
        Ok(())
    }

    fn truncated_at(&self, _: TableId) -> i64 {
        self.node.truncated_at.get()
    }

    async fn sync(&self) -> Result<(), ReplicaError> {
        Ok(())
    }
}

/// Why a question was not answered.
#[derive(Debug, PartialEq)]
pub enum Failure {
    /// The test's wire broke.
    Broken,
    /// The follower refused.
    Refused(FollowerError),
}

/// Brings messages as bytes.
pub struct Wire {
    table: Arc<Table>,
    /// By node and shard.
    followers: Vec<Vec<Follower<Shard>>>,
    /// Questions until the wire breaks.
    pub breaks_after: Cell<Option<u64>>,
    /// All nodes are truncated before this question.
    pub truncated_before: Cell<Option<u64>>,
    /// Followers lose their sessions before every so many requests.
    pub forget_every: Cell<u64>,
    pub questions: Cell<u64>,
    /// Bytes between the master and others.
    pub bytes: Cell<u64>,
    /// Those of rows.
    pub row_bytes: Cell<u64>,
    /// Bytes that one follower's shard kept at most.
    pub kept_bytes_max: Cell<usize>,
}

impl Wire {
    pub fn new(table: &Arc<Table>, nodes: &[Node], config: FollowerConfig) -> Self {
        let shards = |node: &Node| {
            let shard = |number| Follower::new(Shard { node: node.clone(), number }, config);
            (0..node.shard_count).map(shard).collect()
        };
        Self {
            table: table.clone(),
            followers: nodes.iter().map(shards).collect(),
            breaks_after: Cell::new(None),
            truncated_before: Cell::new(None),
            forget_every: Cell::new(u64::MAX),
            questions: Cell::new(0),
            bytes: Cell::new(0),
            row_bytes: Cell::new(0),
            kept_bytes_max: Cell::new(0),
        }
    }
}

impl Carrier for Wire {
    type Error = Failure;

    fn owner(&self, node: usize, _: TableId, token: i64) -> u16 {
        Sharder::new(self.followers[node].len() as u16).shard_of(token)
    }

    async fn ask(&self, participant: Participant, request: Request) -> Result<Answer, Failure> {
        self.questions.set(self.questions.get() + 1);
        if let Some(left) = self.breaks_after.get() {
            self.breaks_after.set(left.checked_sub(1));
            if left == 0 {
                return Err(Failure::Broken);
            }
        }
        if self.truncated_before.get() == Some(self.questions.get()) {
            self.followers.iter().flatten().for_each(|follower| follower.data().node.truncate());
        }
        let follower = &self.followers[participant.node][usize::from(participant.shard)];
        if self.questions.get() % self.forget_every.get() == 0 {
            follower.forget();
        }
        let mut there = Vec::new();
        encode_request(&request, &mut there);
        let there = Bytes::from(there);
        let rows_there = matches!(request.ask, repair::message::Ask::Push { .. });
        let request = decode_request(&there, |_| Some(self.table.clone())).expect("it was written here");
        let answer = follower.answer(request).await.map_err(Failure::Refused)?;
        self.kept_bytes_max.set(self.kept_bytes_max.get().max(follower.kept_bytes()));
        let rows_back = matches!(answer, Answer::Partitions(_));
        let mut back = Vec::new();
        encode_answer(&self.table, answer, &mut back);
        let back = Bytes::from(back);
        if participant.node != 0 {
            self.bytes.set(self.bytes.get() + (there.len() + back.len()) as u64);
            let rows = if rows_there { there.len() } else { 0 } + if rows_back { back.len() } else { 0 };
            self.row_bytes.set(self.row_bytes.get() + rows as u64);
        }
        Ok(decode_answer(&self.table, &back).expect("it was written here"))
    }
}

/// Runs to the end of the scope; where the wire breaks it resumes from the last segment that was finished.
pub fn run(wire: &Wire, scope: &Scope, nodes: &[Node], bytes_max: u32) -> Done {
    run_above(wire, scope, nodes, &[], bytes_max)
}

/// [`run`] without the first so many updates of each node; of none where everything is compared.
pub fn run_above(wire: &Wire, scope: &Scope, nodes: &[Node], covered: &[usize], bytes_max: u32) -> Done {
    let counts: Vec<u16> = nodes.iter().map(|node| node.shard_count).collect();
    let mark = |covered: &usize| RepairedWatermark { epoch: 1, number: *covered as u64 };
    let bases: Vec<Vec<RepairedWatermark>> = covered
        .iter()
        .zip(&counts)
        .map(|(covered, shards)| vec![mark(covered); usize::from(*shards)])
        .collect();
    let participants = participants(scope, &counts, &bases);
    let mut after: Option<Resume> = None;
    let mut total = Done::default();
    for _ in 0..100_000 {
        let segment = Segment { after: after.as_ref(), bytes_max, canaries: Canaries::default() };
        let one = step(wire, scope, &participants, segment).now_or_never();
        match one.expect("nothing waits in memory") {
            Ok(done) => {
                total.elements += done.elements;
                total.differing += done.differing;
                total.sent += done.sent;
                match done.upto {
                    None => return total,
                    upto => after = upto,
                }
            }
            Err(StepError::Carrier {
                error: Failure::Broken | Failure::Refused(FollowerError::Changed),
                ..
            }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    panic!("a repair of a handful of rows never ends");
}
