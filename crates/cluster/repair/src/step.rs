//! One repair of one scope, segment by segment: the master's exchange with the participants. It holds only the
//! differences of one segment, and every finished segment is repaired for good, even when the repair fails later.

use futures_util::future::try_join_all;
use mutation::PartitionUpdate;
use replica::{PartitionResult, RepairedWatermark, Resume};
use schema::TableId;

use crate::bits::Bits;
use crate::canaries::Canaries;
use crate::merge::{Compared, Holdings, bucket_count, compare, differing};
use crate::message::{Answer, Ask, Request, Summary};
use crate::scope::Scope;

/// How often rows that were sent to a node may turn out to be hidden by a deletion of another one.
const CORRECTIONS_MAX: usize = 4;

/// One participating shard of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Participant {
    /// The node; 0 is the master's own.
    pub node: usize,
    /// The shard of it.
    pub shard: u16,
    /// The shard count of the node.
    pub shard_count: u16,
    /// Its base: it compares only rows written after it; none for all.
    pub base: Option<RepairedWatermark>,
}

/// All participants of the repair of a slice: of each node (the master's own first) the shards that own tokens of it. `bases` are
/// by node and shard; none where everything is compared.
pub fn participants(
    scope: &Scope,
    shard_counts: &[u16],
    bases: &[Vec<RepairedWatermark>],
) -> Vec<Participant> {
    let of = |(node, shard_count): (usize, &u16)| {
        let shard_count = *shard_count;
        scope.slice.shards(shard_count).map(move |shard| {
            let base = bases.get(node).and_then(|marks| marks.get(usize::from(shard))).copied();
            Participant { node, shard, shard_count, base }
        })
    };
    shard_counts.iter().enumerate().flat_map(of).collect()
}

/// Sends requests to participants, and returns their answers.
pub trait Carrier {
    /// Why an answer is missing.
    type Error;
    /// The shard of a node that owns a token of a table.
    fn owner(&self, node: usize, table: TableId, token: i64) -> u16;
    /// Sends a request to a participant.
    ///
    /// # Errors
    /// That of the connection or of the participant; the step is given up then.
    fn ask(
        &self,
        participant: Participant,
        request: Request,
    ) -> impl Future<Output = Result<Answer, Self::Error>>;
}

/// Why a segment was not repaired.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError<E> {
    /// A participant did not answer.
    #[error("node {}, shard {}: {error}", participant.node, participant.shard)]
    Carrier {
        /// The participant.
        participant: Participant,
        /// The error.
        error: E,
    },
    /// A participant sent an unexpected answer.
    #[error("node {}, shard {}: {what}", participant.node, participant.shard)]
    Nonsense {
        /// The participant.
        participant: Participant,
        /// The answer.
        what: &'static str,
    },
}

/// The result of a segment's repair.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    /// The next segment's begin; none when the scope is finished.
    pub upto: Option<Resume>,
    /// Elements that were compared (of the node with the most).
    pub elements: u64,
    /// Elements of which the nodes had different versions, each version counted.
    pub differing: u64,
    /// Rows and deletions that were sent to nodes that lacked them.
    pub sent: u64,
}

/// A segment of a scope.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// Its begin, exclusive; none for the scope's begin.
    pub after: Option<&'a Resume>,
    /// Its size, about.
    pub bytes_max: u32,
    /// Injected bugs.
    pub canaries: Canaries,
}

/// Repairs a segment.
///
/// # Errors
/// When a participant does not answer, or sends an unexpected answer.
pub async fn step<C: Carrier>(
    carrier: &C,
    scope: &Scope,
    participants: &[Participant],
    Segment { after, bytes_max, canaries }: Segment<'_>,
) -> Result<Done, StepError<C::Error>> {
    let talk = Talk { carrier, scope, participants, after };
    let nodes: Vec<usize> = participants.iter().map(|participant| participant.node).collect();
    let summaries = talk.summaries(bytes_max).await?;
    let Compared { upto, equal, elements } = compare(&nodes, &summaries);
    let mut done = Done { upto: upto.clone(), elements, ..Done::default() };
    if equal {
        return Ok(done);
    }
    let buckets = bucket_count(elements);
    let mut which = Bits::all(buckets);
    if buckets > 1 {
        let asked = || Ask::Sums { upto: upto.clone(), buckets };
        let sums = talk.numbers(asked, Some(buckets as usize)).await?;
        which = differing(&nodes, &sums);
        if which.is_empty() {
            return Ok(done);
        }
    }
    let asked = || Ask::Contents { upto: upto.clone(), buckets, which: which.clone() };
    let mut holdings = Holdings::new(&nodes, &talk.numbers(asked, None).await?);
    if canaries.lone_elements {
        holdings.forget_lone();
    }
    if holdings.is_empty() {
        return Ok(done);
    }
    done.differing = holdings.fetch.iter().map(|contents| contents.len() as u64).sum();
    let fetched = talk.fetch(&upto, &holdings).await?;
    let mut lacking = holdings.lacking(scope, after, fetched);
    if canaries.skipped_tokens {
        lacking.iter_mut().for_each(|updates| updates.retain(|update| update.key.token & 1 != 0));
    }
    for _ in 0..CORRECTIONS_MAX {
        if lacking.iter().all(Vec::is_empty) {
            break;
        }
        done.sent += lacking.iter().flatten().map(|update| update.operations() as u64).sum::<u64>();
        lacking = talk.push(&upto, lacking).await?;
    }
    Ok(done)
}

/// The exchange about one segment.
struct Talk<'a, C> {
    carrier: &'a C,
    scope: &'a Scope,
    participants: &'a [Participant],
    after: Option<&'a Resume>,
}

impl<C: Carrier> Talk<'_, C> {
    async fn ask(&self, participant: Participant, ask: Ask) -> Result<Answer, StepError<C::Error>> {
        let base = participant.base;
        let request = Request { scope: self.scope.clone(), after: self.after.cloned(), base, ask };
        let answer = self.carrier.ask(participant, request).await;
        answer.map_err(|error| StepError::Carrier { participant, error })
    }

    async fn summaries(&self, bytes_max: u32) -> Result<Vec<Summary>, StepError<C::Error>> {
        let ask = |participant: &Participant| {
            let participant = *participant;
            async move {
                let nonsense = |what| StepError::Nonsense { participant, what };
                match self.ask(participant, Ask::Summary { bytes_max }).await? {
                    Answer::Summary(summary) => {
                        let ends = (self.after, &summary.end);
                        if let (Some(after), Some(end)) = ends
                            && replica::compare::order(end, after, false).is_le()
                        {
                            return Err(nonsense("a segment that ends before it begins"));
                        }
                        Ok(summary)
                    }
                    _ => Err(nonsense("no summary where one was asked for")),
                }
            }
        };
        try_join_all(self.participants.iter().map(ask)).await
    }

    /// Sends the same request to all; `count` numbers are expected of each.
    async fn numbers(
        &self,
        asked: impl Fn() -> Ask,
        count: Option<usize>,
    ) -> Result<Vec<Vec<u64>>, StepError<C::Error>> {
        let ask = |participant: &Participant| {
            let (participant, asked) = (*participant, asked());
            async move {
                match self.ask(participant, asked).await? {
                    Answer::Numbers(numbers) if count.is_none_or(|count| numbers.len() == count) => {
                        Ok(numbers)
                    }
                    _ => {
                        let what = "no numbers where they were asked for, or too few or many";
                        Err(StepError::Nonsense { participant, what })
                    }
                }
            }
        };
        try_join_all(self.participants.iter().map(ask)).await
    }

    async fn fetch(
        &self,
        upto: &Option<Resume>,
        holdings: &Holdings,
    ) -> Result<Vec<PartitionResult>, StepError<C::Error>> {
        let wanted =
            self.participants.iter().zip(&holdings.fetch).filter(|(_, contents)| !contents.is_empty());
        let ask = |(participant, contents): (&Participant, &Vec<u64>)| {
            let ask = Ask::Fetch { upto: upto.clone(), contents: contents.clone() };
            let participant = *participant;
            async move {
                match self.ask(participant, ask).await? {
                    Answer::Partitions(partitions) => Ok(partitions),
                    _ => Err(StepError::Nonsense { participant, what: "no rows where they were asked for" }),
                }
            }
        };
        Ok(try_join_all(wanted.map(ask)).await?.into_iter().flatten().collect())
    }

    /// Sends each node the updates that it lacks; returns the updates that have to be sent to each after that.
    async fn push(
        &self,
        upto: &Option<Resume>,
        lacking: Vec<Vec<PartitionUpdate>>,
    ) -> Result<Vec<Vec<PartitionUpdate>>, StepError<C::Error>> {
        let node_count = lacking.len();
        let mut of_participant: Vec<Vec<PartitionUpdate>> = vec![Vec::new(); self.participants.len()];
        for (node, updates) in lacking.into_iter().enumerate() {
            for update in updates {
                let owner = self.carrier.owner(node, update.table.id, update.key.token);
                let keeps =
                    |participant: &&Participant| participant.node == node && participant.shard == owner;
                let at = self.participants.iter().position(|participant| keeps(&participant));
                of_participant[at.expect("a slice names all shards that keep it")].push(update);
            }
        }
        let sent = self.participants.iter().zip(of_participant).filter(|(_, updates)| !updates.is_empty());
        let ask = |(participant, updates): (&Participant, Vec<PartitionUpdate>)| {
            let ask = Ask::Push { upto: upto.clone(), updates };
            let participant = *participant;
            async move {
                match self.ask(participant, ask).await? {
                    Answer::Hidden(hidden) => Ok((participant.node, hidden)),
                    _ => Err(StepError::Nonsense { participant, what: "no answer to a push of rows" }),
                }
            }
        };
        let mut next = vec![Vec::new(); node_count];
        for (hider, hidden) in try_join_all(sent.map(ask)).await? {
            for update in hidden {
                let others = (0..node_count).filter(|node| *node != hider);
                others.for_each(|node| next[node].push(update.clone()));
            }
        }
        Ok(next)
    }
}
