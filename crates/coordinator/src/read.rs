//! Reads of several replicas: one sends its rows, the others a digest of theirs; when these differ, all send their rows, which are
//! merged, and each replica is told what it lacks before the client is answered.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use mutation::{ColumnSelection, PartitionRange, PartitionUpdate, RingPosition};
use replica::{Form, Keys, Limits, Partitions, ReadCommand, ReadPage, Resume};
use rpc::Verb;
use rt::Instant;
use schema::{Replication, SpeculativeRetry};
use topology::{NodeIndex, Placement, Replicas};

use crate::contact::{self, Needs, Tally};
use crate::reconcile::{Reconciled, reconcile_planted, to_live};
use crate::remote::{self, PeerError};
use crate::view::ClusterView;
use crate::{Consistency, Coordinator, Copies, ReplicaFailure, RequestError};

/// Partitions of an IN that are read at once.
const KEYS_AT_ONCE: usize = 16;
/// Parts of the ring that are read at once, at most.
const RANGES_AT_ONCE_MAX: usize = 32;

/// What a read needs to know of its keyspace and of the cluster.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) view: Arc<ClusterView>,
    pub(crate) placement: Arc<Copies>,
    pub(crate) replication: Replication,
    /// How it will be, or was, while the keyspace's replicas move.
    pub(crate) other_replication: Option<Replication>,
    pub(crate) planted: crate::Canaries,
}

/// How a read is to be done.
#[derive(Clone, Copy)]
pub(crate) struct How {
    pub(crate) consistency: Consistency,
    pub(crate) deadline: Instant,
}

enum Answer {
    Page(ReadPage),
    Digest(u128),
}

type Asked<'a> = Pin<Box<dyn Future<Output = (NodeIndex, Result<Answer, PeerError>)> + 'a>>;

impl Coordinator {
    /// Reads from the replicas of a keyspace that has several.
    pub(crate) async fn read_replicas(
        &self,
        scene: Scene,
        command: &ReadCommand,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<ReadPage, RequestError> {
        let mut reader = Reader::new(self, scene, How { consistency, deadline });
        let token = match &command.partitions {
            Partitions::Keys(keys) if keys.len() == 1 => Some(keys[0].token),
            Partitions::Keys(_) | Partitions::Range(_) => None,
        };
        loop {
            self.hold_lease(&reader.scene, token, consistency, deadline).await?;
            let result = match &command.partitions {
                Partitions::Keys(keys) if keys.len() == 1 => reader.key(command).await,
                Partitions::Keys(_) => reader.keys(command).await,
                Partitions::Range(range) => reader.range(command, range).await,
            };
            let goes_by = reader.scene.view.ring_number();
            if result.is_ok() || !reader.met_later_ring.get() || !self.catch_up(goes_by, deadline).await {
                return result;
            }
            reader = Reader::new(self, self.scene(&command.table)?, reader.how);
        }
    }
}

/// A read under way.
pub(crate) struct Reader<'a> {
    pub(crate) coordinator: &'a Coordinator,
    pub(crate) scene: Scene,
    pub(crate) how: How,
    /// A replica has refused, for this goes by a ring that is over.
    met_later_ring: Cell<bool>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(coordinator: &'a Coordinator, scene: Scene, how: How) -> Self {
        Self { coordinator, scene, how, met_later_ring: Cell::new(false) }
    }

    /// One partition.
    async fn key(&self, command: &ReadCommand) -> Result<ReadPage, RequestError> {
        let Partitions::Keys(keys) = &command.partitions else { unreachable!("only called for a key") };
        let token = keys[0].token;
        self.part(command, self.scene.placement.replicas(token), token).await
    }

    /// Several partitions in the order of the command: some at once, put together until the page is full.
    async fn keys(&self, command: &ReadCommand) -> Result<ReadPage, RequestError> {
        let Partitions::Keys(keys) = &command.partitions else { unreachable!("only called for keys") };
        let start = match &command.resume {
            Some(resume) => {
                let at = keys.iter().position(|key| *key == resume.key).unwrap_or(0);
                at + usize::from(resume.clustering.is_none())
            }
            None => 0,
        };
        let resumed = command.resume.as_ref().filter(|resume| resume.clustering.is_some());
        let commands: Vec<ReadCommand> = keys[start..]
            .iter()
            .enumerate()
            .map(|(at, key)| ReadCommand {
                partitions: Partitions::Keys(Keys::from_elem(key.clone(), 1)),
                resume: resumed.filter(|_| at == 0).cloned(),
                ..command.clone()
            })
            .collect();
        let mut reads = futures_util::stream::iter(commands.iter().map(|command| self.key(command)))
            .buffered(KEYS_AT_ONCE);
        let mut assembly = Assembly::new(command);
        let mut at = start;
        while let Some(page) = reads.next().await {
            at += 1;
            if assembly.push(page?, at == keys.len()) {
                break;
            }
        }
        Ok(assembly.page)
    }

    /// A range: its parts that have the same replicas, in ring order; more of them at once the fewer rows they have.
    async fn range(&self, command: &ReadCommand, range: &PartitionRange) -> Result<ReadPage, RequestError> {
        let mut parts = parts(self.scene.placement.now(), range, command.resume.as_ref());
        let mut assembly = Assembly::new(command);
        let mut at_once = 1;
        let mut resume = command.resume.clone();
        while !parts.is_empty() {
            let now: Vec<(ReadCommand, Replicas)> = parts
                .drain(..at_once.min(parts.len()))
                .map(|(range, replicas)| {
                    let command = ReadCommand {
                        partitions: Partitions::Range(range),
                        resume: resume.take(),
                        ..command.clone()
                    };
                    (command, replicas)
                })
                .collect();
            let reads = now.iter().map(|(command, replicas)| self.part(command, replicas, token_of(command)));
            let count = now.len();
            for (at, page) in try_join_all(reads).await?.into_iter().enumerate() {
                if assembly.push(page, parts.is_empty() && at + 1 == count) {
                    return Ok(assembly.page);
                }
            }
            at_once = (at_once * 2).min(RANGES_AT_ONCE_MAX);
        }
        Ok(assembly.page)
    }

    /// What has one set of replicas.
    async fn part(
        &self,
        command: &ReadCommand,
        replicas: &[NodeIndex],
        token: i64,
    ) -> Result<ReadPage, RequestError> {
        let (view, consistency) = (&*self.scene.view, self.how.consistency);
        let mut needs = Needs::new(consistency, &self.scene.replication, view, &[]);
        if self.scene.planted.short_quorum {
            needs = needs.one_short();
        }
        if self.scene.planted.long_quorum {
            needs = needs.one_more(replicas.len());
        }
        let candidates = contact::candidates(
            view,
            replicas,
            self.coordinator.next_turn(),
            &self.coordinator.slow_among(view, replicas),
        );
        let chosen = needs.choose(consistency, view, &candidates)?;
        if let [one] = chosen.as_slice()
            && *one == view.own()
        {
            let page = self.own_page(command).await;
            return page.map_err(|error| self.not_enough(0, 1, false, &[(*one, error)]));
        }
        let spare: VecDeque<NodeIndex> =
            candidates.iter().copied().filter(|node| !chosen.contains(node)).collect();
        let gather = Gather {
            reader: self,
            command: if chosen.len() == 1 {
                command.clone()
            } else {
                ReadCommand { form: Form::Full, ..command.clone() }
            },
            token,
            needs,
        };
        let (answered, page) = gather.run(&chosen, spare).await?;
        match page {
            Some(page) if answered.len() == 1 => Ok(page),
            Some(page) => Ok(to_live(command, page)),
            None => self.reconciled(command, &answered, token).await,
        }
    }

    /// The replicas differ: merges what they have, tells each what it lacks, and answers when they know it.
    ///
    /// All columns are read, whichever were asked for: of a write that few replicas hold, a repair of one column would make a
    /// part visible to later quorums, and a row's columns are written all or none.
    async fn reconciled(
        &self,
        command: &ReadCommand,
        nodes: &[NodeIndex],
        token: i64,
    ) -> Result<ReadPage, RequestError> {
        let mut command =
            ReadCommand { form: Form::Unbroken, columns: ColumnSelection::All, ..command.clone() };
        let planted = self.scene.planted;
        let repairs_wanted = command.table.options.read_repair != "NONE" && !planted.skipped_repair;
        let replica = self.coordinator.replica();
        loop {
            let truncated = replica.truncated_at(command.table.id);
            let begun_micros = self.coordinator.begin_write();
            let body = remote::encode_command(&self.scene.view, &command);
            let asked = nodes.iter().map(|node| self.page(*node, &command, body.clone(), token));
            let mut pages = Vec::with_capacity(nodes.len());
            let mut failures = Vec::new();
            for (node, answer) in nodes.iter().zip(join_all(asked).await) {
                match answer {
                    Ok(page) => pages.push(page),
                    Err(error) => failures.push((*node, error)),
                }
            }
            if !failures.is_empty() {
                return Err(self.not_enough(pages.len(), nodes.len(), !pages.is_empty(), &failures));
            }
            let Reconciled { page, repairs } = reconcile_planted(&command, pages, planted);
            // What was read before a truncation is not told after it.
            if replica.truncated_at(command.table.id) != truncated {
                continue;
            }
            if repairs_wanted {
                self.repair(nodes, repairs, begun_micros).await?;
            }
            // A stretch without anything live: go on behind it.
            if page.partitions.is_empty() && page.more.is_some() {
                command.resume = page.more;
                continue;
            }
            return Ok(page);
        }
    }

    async fn repair(
        &self,
        nodes: &[NodeIndex],
        repairs: Vec<Vec<PartitionUpdate>>,
        begun_micros: i64,
    ) -> Result<(), RequestError> {
        let pending = self.pending_repairs(&repairs);
        let told = nodes.iter().copied().zip(repairs).filter(|(_, updates)| !updates.is_empty());
        let told: Vec<_> =
            told.chain(pending).map(|(node, updates)| self.tell(node, updates, begun_micros)).collect();
        let count = told.len();
        self.coordinator.count(|stats| stats.repaired += count as u64);
        let failures: Vec<(NodeIndex, PeerError)> =
            join_all(told).await.into_iter().filter_map(Result::err).collect();
        if failures.is_empty() {
            return Ok(());
        }
        Err(self.not_enough(count - failures.len(), count, true, &failures))
    }

    /// What nodes that are about to be replicas, or were until now, are told with the replicas: what this read has shown must not be
    /// missing when reads have gone over to them.
    fn pending_repairs(&self, repairs: &[Vec<PartitionUpdate>]) -> Vec<(NodeIndex, Vec<PartitionUpdate>)> {
        let (view, placement) = (&self.scene.view, &self.scene.placement);
        if !view.is_changing() || self.scene.planted.no_pending_repairs {
            return Vec::new();
        }
        let mut told: BTreeMap<NodeIndex, Vec<PartitionUpdate>> = BTreeMap::new();
        for update in repairs.iter().flatten() {
            for node in placement.pending(update.key.token).into_iter().filter(|node| view.is_alive(*node)) {
                told.entry(node).or_default().push(update.clone());
            }
        }
        told.into_iter().collect()
    }

    async fn tell(
        &self,
        node: NodeIndex,
        updates: Vec<PartitionUpdate>,
        begun_micros: i64,
    ) -> Result<(), (NodeIndex, PeerError)> {
        let (coordinator, view, deadline) = (self.coordinator, &self.scene.view, self.how.deadline);
        let told = if node == view.own() {
            match coordinator.admit_own_writes(view, &updates) {
                Ok(_under_way) => {
                    let applied = coordinator.replica().apply_in_parts(updates, begun_micros);
                    coordinator.here(deadline, applied).await
                }
                Err(error) => Err(error),
            }
        } else {
            let token = updates[0].key.token;
            let body = remote::begun_updates(view, begun_micros, &updates);
            let call = coordinator.remote().call(view.node(node), token, Verb::ReadRepair, body, deadline);
            call.await.map(|_| ())
        };
        told.map_err(|error| (node, error))
    }

    /// A replica's rows.
    pub(crate) async fn page(
        &self,
        node: NodeIndex,
        command: &ReadCommand,
        body: Bytes,
        token: i64,
    ) -> Result<ReadPage, PeerError> {
        let (coordinator, view, deadline) = (self.coordinator, &self.scene.view, self.how.deadline);
        if node != view.own() {
            return coordinator.remote().read(view.node(node), token, command, body, deadline).await;
        }
        self.own_page(command).await
    }

    /// The rows of this node's own replica.
    async fn own_page(&self, command: &ReadCommand) -> Result<ReadPage, PeerError> {
        let _under_way = self.coordinator.admit_own(&self.scene.view)?;
        self.coordinator.read_here(command, self.how.deadline).await
    }

    /// What a replica's rows come to.
    pub(crate) async fn digest(
        &self,
        node: NodeIndex,
        command: &ReadCommand,
        body: Bytes,
        token: i64,
    ) -> Result<u128, PeerError> {
        let view = &self.scene.view;
        if node == view.own() {
            let page = self.page(node, command, body, token).await?;
            return Ok(self.coordinator.digest_of(command, &page));
        }
        self.coordinator.remote().digest(view.node(node), token, body, self.how.deadline).await
    }

    fn timed_out(&self, received: usize, required: usize, data_present: bool) -> RequestError {
        RequestError::ReadTimeout {
            consistency: self.how.consistency,
            received: received as u32,
            required: required as u32,
            data_present,
        }
    }

    fn failed(
        &self,
        received: usize,
        required: usize,
        data_present: bool,
        errors: &[(NodeIndex, PeerError)],
    ) -> RequestError {
        if let Some(why) = errors.iter().find_map(|(_, error)| match error {
            PeerError::Invalid(why) => Some(why.clone()),
            PeerError::Silent(_) | PeerError::Failed { .. } | PeerError::OldRing(_) => None,
        }) {
            return RequestError::Invalid(why);
        }
        let view = &self.scene.view;
        let failures: Vec<ReplicaFailure> =
            errors.iter().filter_map(|(node, error)| error.failure(remote::address(view, *node))).collect();
        RequestError::ReadFailure {
            consistency: self.how.consistency,
            received: received as u32,
            required: required as u32,
            data_present,
            failures,
        }
    }

    /// Replicas failed, or were silent.
    pub(crate) fn not_enough(
        &self,
        received: usize,
        required: usize,
        data_present: bool,
        errors: &[(NodeIndex, PeerError)],
    ) -> RequestError {
        if errors.iter().any(|(_, error)| matches!(error, PeerError::OldRing(_))) {
            self.met_later_ring.set(true);
        }
        if errors.iter().all(|(_, error)| matches!(error, PeerError::Silent(_))) {
            return self.timed_out(received, required, data_present);
        }
        self.failed(received, required, data_present, errors)
    }
}

/// One question to several replicas, until enough have answered and one of them with rows.
struct Gather<'a> {
    reader: &'a Reader<'a>,
    command: ReadCommand,
    token: i64,
    needs: Needs,
}

/// What has come so far.
struct Gathered {
    tally: Tally,
    answered: Replicas,
    page: Option<ReadPage>,
    digests: Vec<u128>,
    errors: Vec<(NodeIndex, PeerError)>,
}

impl Gather<'_> {
    /// Who answered, and the rows when all said the same.
    async fn run(
        &self,
        chosen: &[NodeIndex],
        mut spare: VecDeque<NodeIndex>,
    ) -> Result<(Replicas, Option<ReadPage>), RequestError> {
        let (reader, view) = (self.reader, &*self.reader.scene.view);
        let (rt, deadline) = (reader.coordinator.rt(), reader.how.deadline);
        let body = remote::encode_command(view, &self.command);
        let all: Replicas = chosen.iter().chain(&spare).copied().collect();
        let mut gathered = Gathered::new(Tally::new(&self.needs, view, &all));
        let mut asked: FuturesUnordered<Asked<'_>> = FuturesUnordered::new();
        for (at, node) in chosen.iter().enumerate() {
            asked.push(self.ask(*node, at == 0, body.clone()));
        }
        let delay = reader.coordinator.speculation(&self.command.table);
        let mut speculate = delay.map(|delay| rt.now() + delay);
        while !gathered.is_enough() {
            let until = speculate.filter(|_| !spare.is_empty()).unwrap_or(deadline).min(deadline);
            let failed = match rt.timeout_at(until, asked.next()).await {
                Ok(Some((node, answer))) => gathered.take(self, node, answer),
                Ok(None) => break,
                Err(_) if rt.now() >= deadline => break,
                Err(_) => {
                    // Those asked are slow: one more, for its rows; and after as long the next, for it may be as slow.
                    speculate = delay.filter(|delay| !delay.is_zero()).map(|delay| rt.now() + delay);
                    reader.coordinator.count(|stats| stats.speculated += 1);
                    true
                }
            };
            if failed && let Some(node) = spare.pop_front() {
                asked.push(self.ask(node, true, body.clone()));
            }
            if gathered.tally.is_hopeless() {
                break;
            }
        }
        gathered.finish(self)
    }

    fn ask(&self, node: NodeIndex, rows: bool, body: Bytes) -> Asked<'_> {
        Box::pin(async move {
            let (reader, command, token) = (self.reader, &self.command, self.token);
            let mut waits = reader.coordinator.wait_for(&reader.scene.view, node, command);
            let answer = if rows {
                reader.page(node, command, body, token).await.map(Answer::Page)
            } else {
                reader.digest(node, command, body, token).await.map(Answer::Digest)
            };
            if let (Some(waits), Err(_)) = (&mut waits, &answer) {
                waits.in_vain();
            }
            (node, answer)
        })
    }
}

impl Gathered {
    fn new(tally: Tally) -> Self {
        Self { tally, answered: Replicas::new(), page: None, digests: Vec::new(), errors: Vec::new() }
    }

    fn is_enough(&self) -> bool {
        self.tally.is_met() && self.page.is_some()
    }

    /// Takes what a replica said; whether it failed.
    fn take(&mut self, gather: &Gather<'_>, node: NodeIndex, answer: Result<Answer, PeerError>) -> bool {
        let datacenter = gather.reader.scene.view.datacenter(node);
        match answer {
            Err(error) => {
                self.tally.fail(node, datacenter);
                self.errors.push((node, error));
                return true;
            }
            Ok(Answer::Page(rows)) => {
                if let Some(known) = self.page.replace(rows) {
                    self.digests.push(gather.reader.coordinator.digest_of(&gather.command, &known));
                }
            }
            Ok(Answer::Digest(digest)) => self.digests.push(digest),
        }
        self.tally.acknowledge(node, datacenter);
        self.answered.push(node);
        false
    }

    fn finish(self, gather: &Gather<'_>) -> Result<(Replicas, Option<ReadPage>), RequestError> {
        let reader = gather.reader;
        let (received, required) = (self.tally.received() as usize, gather.needs.required());
        let data_present = self.page.is_some();
        let Some(page) = self.page.filter(|_| self.tally.is_met()) else {
            return Err(reader.not_enough(received, required, data_present, &self.errors));
        };
        if self.digests.is_empty() {
            return Ok((self.answered, Some(page)));
        }
        let own = reader.coordinator.digest_of(&gather.command, &page);
        let same = self.digests.iter().all(|digest| *digest == own);
        if !same {
            reader.coordinator.count(|stats| stats.mismatches += 1);
        }
        Ok((self.answered, same.then_some(page)))
    }
}

/// A page put together from the pages of parts, in the order of the read.
struct Assembly<'a> {
    command: &'a ReadCommand,
    page: ReadPage,
    rows: u64,
    bytes: usize,
}

impl<'a> Assembly<'a> {
    fn new(command: &'a ReadCommand) -> Self {
        Self { command, page: ReadPage::default(), rows: 0, bytes: 0 }
    }

    /// Adds the next part, the last one or not; whether the page is full.
    fn push(&mut self, part: ReadPage, is_last: bool) -> bool {
        let (limits, now): (&Limits, _) = (&self.command.limits, self.command.now);
        self.page.tombstones += part.tombstones;
        let count = part.partitions.len();
        for (at, mut partition) in part.partitions.into_iter().enumerate() {
            let before = match &self.command.resume {
                Some(resume) if resume.key == partition.key => resume.rows_in_partition,
                _ => 0,
            };
            let room = usize::try_from(limits.rows - self.rows).unwrap_or(usize::MAX);
            let cut = partition.rows.len() > room;
            if cut {
                partition.truncate(&self.command.table, room, self.command.reversed);
            }
            self.rows += partition.row_count(now);
            self.bytes += partition.rows.iter().map(mutation::Row::memory_size).sum::<usize>();
            let rows_in_partition = before + partition.rows.len() as u64;
            let end = Resume {
                key: partition.key.clone(),
                clustering: partition.rows.last().filter(|_| cut).map(|row| row.clustering.clone()),
                rows_in_partition: if cut { rows_in_partition } else { 0 },
            };
            self.page.partitions.push(partition);
            let full = self.rows >= limits.rows || self.bytes >= limits.bytes;
            if cut || full && at + 1 < count {
                self.page.more = Some(end);
                return true;
            }
            if full {
                self.page.more = part.more.or_else(|| (!is_last).then_some(end));
                return true;
            }
        }
        self.page.more = part.more;
        self.page.more.is_some()
    }
}

/// The parts of a range, each with its replicas, behind the place where the page before ended. Neighbours with the same
/// replicas are one part.
fn parts(
    placement: &Placement,
    range: &PartitionRange,
    resume: Option<&Resume>,
) -> VecDeque<(PartitionRange, Replicas)> {
    let start = match resume {
        Some(resume) => RingPosition::BeforeKey(resume.key.clone()),
        None => range.start.clone(),
    };
    let mut out: VecDeque<(PartitionRange, Replicas)> = VecDeque::new();
    let mut from = start;
    // From the smallest token up: what lies above the greatest token belongs to the owner of the smallest.
    let pieces: Vec<(RingPosition, &[NodeIndex])> = pieces(placement);
    for (upto, replicas) in pieces {
        let end = if order(&upto).cmp(&order(&range.end)).is_lt() { upto } else { range.end.clone() };
        if order(&end) <= order(&from) {
            continue;
        }
        let same = out.back_mut().filter(|(_, last)| same_nodes(last, replicas));
        match same {
            Some((last, _)) => last.end = end.clone(),
            None => {
                let part = PartitionRange { start: from.clone(), end: end.clone() };
                out.push_back((part, replicas.iter().copied().collect()));
            }
        }
        from = end;
    }
    // The place to resume from counts within the first part only, whose range begins where the client's does.
    if let (Some((first, _)), Some(_)) = (out.front_mut(), resume) {
        first.start = range.start.clone();
    }
    out
}

/// The ring from its smallest token to its greatest as ends of ranges with their replicas.
fn pieces(placement: &Placement) -> Vec<(RingPosition, &[NodeIndex])> {
    let mut pieces: Vec<(RingPosition, &[NodeIndex])> = placement
        .ranges()
        .map(|(range, replicas)| (RingPosition::AfterToken(range.upto), replicas))
        .collect();
    if let Some((_, first)) = pieces.first() {
        let first: &[NodeIndex] = first;
        pieces.push((RingPosition::AfterToken(i64::MAX), first));
    }
    pieces
}

fn same_nodes(left: &[NodeIndex], right: &[NodeIndex]) -> bool {
    left.len() == right.len() && left.iter().all(|node| right.contains(node))
}

/// A position as something that can be compared.
fn order(position: &RingPosition) -> (i64, u8, Option<&[u8]>, u8) {
    match position {
        RingPosition::BeforeToken(token) => (*token, 0, None, 0),
        RingPosition::BeforeKey(key) => (key.token, 1, Some(&key.key), 0),
        RingPosition::AfterKey(key) => (key.token, 1, Some(&key.key), 1),
        RingPosition::AfterToken(token) => (*token, 2, None, 0),
    }
}

/// A token by which the shard that is asked first is chosen; a range needs all of them.
fn token_of(command: &ReadCommand) -> i64 {
    match &command.partitions {
        Partitions::Keys(keys) => keys.first().map_or(0, |key| key.token),
        Partitions::Range(range) => range.end.token(),
    }
}

/// After how long a further replica is asked, when those asked have not answered. `latency` tells the latency below which a
/// share (0–1) of the recent reads stayed.
pub(crate) fn speculation_delay(
    retry: &SpeculativeRetry,
    latency: impl Fn(f64) -> Option<Duration>,
) -> Option<Duration> {
    // A schema of an earlier version may hold a number that is no time.
    let millis = |millis: f64| Duration::try_from_secs_f64(millis.max(0.0) / 1000.0).unwrap_or(Duration::MAX);
    match retry {
        SpeculativeRetry::Never => None,
        SpeculativeRetry::Always => Some(Duration::ZERO),
        SpeculativeRetry::Millis(fixed) => Some(millis(*fixed)),
        SpeculativeRetry::Percentile(percentile) => latency(percentile / 100.0),
        SpeculativeRetry::Hybrid { min, percentile, millis: fixed } => {
            let fixed = millis(*fixed);
            let measured = latency(percentile / 100.0).unwrap_or(fixed);
            Some(if *min { measured.min(fixed) } else { measured.max(fixed) })
        }
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
