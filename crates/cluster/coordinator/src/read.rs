//! Reads of several replicas: one sends its rows, the others a digest of theirs. When these differ, `read_repair` continues.

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use futures_util::future::try_join_all;
use futures_util::stream::StreamExt;
use mutation::{DecoratedKey, PartitionRange, RingPosition};
use replica::steps::free_page;
use replica::{Form, Keys, Limits, Partitions, ReadCommand, ReadPage, Resume};
use rt::Instant;
use topology::{NodeIndex, Placement, Replicas};

use crate::admission::Admission;
use crate::contact::{self, Needs};
use crate::context::Context;
use crate::message;
use crate::peer_error::PeerError;
use crate::quorum::{Asked, Quorum};
use crate::read_repair::Participants;
use crate::reader::{ReadOptions, Reader};
use crate::reconcile::to_live;
use crate::replication_map::EffectiveReplicationMap;
use crate::{Consistency, RequestError};

/// Partitions of an IN that are read at once.
const KEYS_AT_ONCE: usize = 16;
/// Parts of the ring that are read at once, at most.
const RANGES_AT_ONCE_MAX: usize = 32;

enum Answer {
    Page(ReadPage),
    Digest(u128),
}

/// Reads the rows of this node only.
pub(crate) async fn read_here(
    context: &Context,
    erm: Rc<EffectiveReplicationMap>,
    command: &ReadCommand,
    options: ReadOptions,
) -> Result<ReadPage, RequestError> {
    erm.check_only_here(options.consistency)?;
    let view = &*erm.view;
    let read = match Admission(&context).admit_own(view) {
        Ok(_under_way) => context.read_here(command, options.deadline).await,
        Err(error) => Err(error),
    };
    match read {
        Ok(page) => Ok(page),
        // Another topology version may know of other replicas.
        Err(PeerError::StaleTopology(_)) => {
            Box::pin(read_replicas(context, erm, command, options.consistency, options.deadline)).await
        }
        Err(error) => {
            let own = view.own();
            Err(Reader::new(context, erm, options).not_enough(0, 1, false, &[(own, error)]))
        }
    }
}

/// Reads from the replicas of a table.
pub(crate) async fn read_replicas(
    context: &Context,
    erm: Rc<EffectiveReplicationMap>,
    command: &ReadCommand,
    consistency: Consistency,
    deadline: Instant,
) -> Result<ReadPage, RequestError> {
    let mut reader = Reader::new(context, erm, ReadOptions { consistency, deadline });
    let token = match &command.partitions {
        Partitions::Keys(keys) if keys.len() == 1 => Some(keys[0].token),
        Partitions::Keys(_) | Partitions::Range(_) => None,
    };
    loop {
        context.lease().hold(&reader.erm, token, consistency, deadline).await?;
        let result = match &command.partitions {
            Partitions::Keys(keys) if keys.len() == 1 => reader.key(command).await,
            Partitions::Keys(_) => reader.keys(command).await,
            Partitions::Range(range) => reader.range(command, range).await,
        };
        let goes_by = reader.erm.view.topology_version();
        if result.is_ok()
            || !reader.saw_newer_topology.get()
            || !Admission(&context).catch_up(goes_by, deadline).await
        {
            return result;
        }
        reader = Reader::new(context, context.maps().of(&command.table)?, reader.options);
    }
}

impl Reader<'_> {
    /// One partition.
    async fn key(&self, command: &ReadCommand) -> Result<ReadPage, RequestError> {
        let Partitions::Keys(keys) = &command.partitions else { unreachable!("only called for a key") };
        assert_eq!(keys.len(), 1, "the replicas of one partition are asked");
        let token = keys[0].token;
        self.part(command, self.erm.placement.replicas(token), token).await
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
        // Each command is made when its turn comes: it may name many ranges of rows.
        let read = async |(at, key): (usize, &DecoratedKey)| {
            let one = ReadCommand {
                partitions: Partitions::Keys(Keys::from_elem(key.clone(), 1)),
                resume: resumed.filter(|_| at == 0).cloned(),
                ..command.clone()
            };
            self.key(&one).await
        };
        let mut reads =
            futures_util::stream::iter(keys[start..].iter().enumerate().map(read)).buffered(KEYS_AT_ONCE);
        let mut assembly = Assembly::new(command);
        let mut at = start;
        while let Some(page) = reads.next().await {
            at += 1;
            assert!(at <= keys.len(), "a partition is read once");
            if assembly.push(page?, at == keys.len()) {
                break;
            }
        }
        let is_last = at == keys.len();
        assert!(
            is_last || assembly.page.more.is_some(),
            "a page that is not the last says where the next begins"
        );
        Ok(assembly.page)
    }

    /// A range: its parts that have the same replicas, in ring order; more of them at once the fewer rows they have.
    async fn range(&self, command: &ReadCommand, range: &PartitionRange) -> Result<ReadPage, RequestError> {
        let mut parts = parts(self.erm.placement.now(), range, command.resume.as_ref());
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
            assert!(count > 0, "a round reads a part");
            for (at, page) in try_join_all(reads).await?.into_iter().enumerate() {
                let is_last = parts.is_empty() && at + 1 == count;
                if assembly.push(page, is_last) {
                    let has_more = assembly.page.more.is_some();
                    assert!(is_last || has_more, "a page that is not the last has the position of the next");
                    return Ok(assembly.page);
                }
            }
            at_once = (at_once * 2).min(RANGES_AT_ONCE_MAX);
        }
        Ok(assembly.page)
    }

    /// The range that has one set of replicas.
    async fn part(
        &self,
        command: &ReadCommand,
        replicas: &[NodeIndex],
        token: i64,
    ) -> Result<ReadPage, RequestError> {
        let (view, consistency) = (&*self.erm.view, self.options.consistency);
        let mut needs = Needs::new(consistency, &self.erm.replication, view, &[]);
        if self.erm.injected.short_quorum {
            needs = needs.one_short();
        }
        if self.erm.injected.long_quorum {
            needs = needs.one_more(replicas.len());
        }
        let candidates = contact::candidates(
            view,
            replicas,
            self.context.next_turn(),
            &self.context.read_latencies().slow_among(view, replicas),
        );
        let chosen = needs.choose(consistency, view, &candidates)?;
        if let [one] = chosen.as_slice()
            && *one == view.own()
        {
            let page = self.own_page(command).await;
            return page.map_err(|error| self.not_enough(0, 1, false, &[(*one, error)]));
        }
        let participants = Participants { needs: &needs, candidates: &candidates, token };
        // Each replica's places count, and no two need to be the same.
        if command.index.is_some() && chosen.len() > 1 {
            return self.reconciled(command, chosen, &participants).await;
        }
        let gather = Gather {
            reader: self,
            command: if chosen.len() == 1 {
                command.clone()
            } else {
                ReadCommand { form: Form::Full, ..command.clone() }
            },
            participants: &participants,
        };
        let (answered, page) = gather.run(&chosen).await?;
        match page {
            Some(page) if answered.len() == 1 => Ok(page),
            Some(page) => Ok(to_live(command, page).await),
            None => self.reconciled(command, answered, &participants).await,
        }
    }
}

/// One question to several replicas, until enough have answered and one of them with rows.
struct Gather<'a> {
    reader: &'a Reader<'a>,
    command: ReadCommand,
    participants: &'a Participants<'a>,
}

/// The data that have come so far.
#[derive(Default)]
struct Gathered {
    pages: Vec<ReadPage>,
    digests: Vec<u128>,
}

impl Gather<'_> {
    /// The nodes that answered, and the rows when all said the same.
    async fn run(&self, chosen: &[NodeIndex]) -> Result<(Replicas, Option<ReadPage>), RequestError> {
        let (context, participants) = (self.reader.context, self.participants);
        let body = message::encode_command(&self.reader.erm.view, &self.command);
        let mut gathered = Gathered::default();
        let mut quorum =
            Quorum::new(self.reader, &self.command.table, participants.needs, participants.candidates);
        let ask = |node: NodeIndex, _: &[NodeIndex]| {
            // The first for its rows, and each that takes the place of another.
            let rows = chosen.first() == Some(&node) || !chosen.contains(&node);
            self.ask(node, rows, body.clone())
        };
        let take = |answer| {
            match answer {
                Answer::Page(rows) => gathered.pages.push(rows),
                Answer::Digest(digest) => gathered.digests.push(digest),
            }
            !gathered.pages.is_empty()
        };
        quorum.ask(chosen, participants.spare(chosen), ask, take).await;
        let Gathered { mut pages, mut digests } = gathered;
        let page = pages.pop();
        for known in pages {
            digests.push(context.digest_of(&self.command, &known).await);
            free_page(known).await;
        }
        let has_rows = page.is_some();
        let answered = quorum.answered(has_rows, has_rows)?;
        assert_eq!(digests.len() + 1, answered.len(), "each replica beside the first has a digest");
        let Some(rows) = page.as_ref().filter(|_| !digests.is_empty()) else { return Ok((answered, page)) };
        let own = context.digest_of(&self.command, rows).await;
        let same = digests.iter().all(|digest| *digest == own);
        if !same {
            context.count(|stats| stats.mismatches += 1);
        }
        if same {
            return Ok((answered, page));
        }
        if let Some(page) = page {
            free_page(page).await;
        }
        Ok((answered, None))
    }

    fn ask(&self, node: NodeIndex, rows: bool, body: Bytes) -> Asked<'_, Answer> {
        Box::pin(async move {
            let (reader, command, token) = (self.reader, &self.command, self.participants.token);
            let mut waits = reader.context.read_latencies().wait_for(&reader.erm.view, node, command);
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
            assert!(self.rows <= limits.rows, "a page has at most as many rows as its limit");
            let room = usize::try_from(limits.rows - self.rows).unwrap_or(usize::MAX);
            let cut = partition.rows.len() > room;
            if cut {
                partition.truncate(room, self.command.reversed);
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
pub(crate) fn parts(
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
    // From the smallest token up: tokens above the greatest one belong to the owner of the smallest.
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
        assert!(order(&end) > order(&from), "the parts of a range follow each other");
        from = end;
    }
    let is_covered = order(&from) >= order(&range.end) || placement.range_count() == 0;
    assert!(is_covered, "the parts of a range cover it");
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

/// A token by which the first shard to query is chosen; a range needs all of them.
fn token_of(command: &ReadCommand) -> i64 {
    match &command.partitions {
        Partitions::Keys(keys) => keys.first().map_or(0, |key| key.token),
        Partitions::Range(range) => range.end.token(),
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
