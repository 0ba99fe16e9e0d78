//! Takes one request through its rounds: sends the messages of the rules, reads and decides when they ask for it, and waits before it tries
//! again.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use mutation::{DecoratedKey, PartitionUpdate, Timestamp};
use paxos::{Action, Ballot, Failure as Expired, Proposal, Proposer, Reply, Request};
use replica::{Partitions, ReadCommand, ReadPage};
use schema::Table;
use topology::{NodeIndex, Replicas};

use super::codec::{Place, Value};
use super::lwt::Lwt;
use super::node_locks::NodeLock;
use super::options::{CasOptions, serial_quorum};
use super::size;
use crate::admission::Admission;
use crate::peer_error::PeerError;
use crate::replication_map::{EffectiveReplicationMap, targets};
use crate::{Consistency, RequestError, WriteKind};

/// The longest first pause after others got in the way; doubled each time.
const PAUSE_FIRST: Duration = Duration::from_millis(5);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_millis(100);

const _: () = assert!(PAUSE_FIRST.as_micros() <= PAUSE_MAX.as_micros(), "pauses grow up to the longest");

/// Why a request ended without an answer.
pub(super) enum Failure<E> {
    /// The replicas did not do their part.
    Request(RequestError),
    /// The deciding node failed.
    Decide(E),
}

/// How a request ended.
pub(super) enum Decided {
    /// Nothing is written; this was read.
    Nothing(ReadPage),
    /// This is chosen, and to be committed.
    Chosen(Proposal<Value>),
    /// The write is committed at all replicas.
    Committed,
}

/// The number of a sending, the voter, and its reply.
type Heard = (u32, usize, Result<Reply<Value>, PeerError>);
type Asked<'a> = FuturesUnordered<Pin<Box<dyn Future<Output = Heard> + 'a>>>;

/// A request.
pub(super) struct Driver<'a> {
    pub(super) lwt: &'a Lwt,
    pub(super) erm: Rc<EffectiveReplicationMap>,
    command: &'a ReadCommand,
    pub(super) key: &'a DecoratedKey,
    pub(super) options: CasOptions,
    pub(super) voters: Replicas,
    required: usize,
    is_read: bool,
    /// Every replica is a voter, and not only those of one of several datacenters.
    all_vote: bool,
    /// A voter has refused, for this uses a stale topology version.
    saw_newer_topology: Cell<bool>,
}

impl<'a> Driver<'a> {
    /// A request about the partition of a command. Fails when too few of its replicas live.
    pub(super) fn new(
        lwt: &'a Lwt,
        command: &'a ReadCommand,
        options: CasOptions,
        is_read: bool,
    ) -> Result<Self, RequestError> {
        let key = match &command.partitions {
            Partitions::Keys(keys) if keys.len() == 1 => &keys[0],
            _ => return Err(RequestError::Invalid("agreement is on one partition".to_owned())),
        };
        let erm = lwt.context.maps().of(&command.table)?;
        let quorum = serial_quorum(options.serial);
        let (replicas, needs) = targets(&erm, key.token, quorum);
        let view = &erm.view;
        let is_local = options.serial == Consistency::LocalSerial;
        let here = view.datacenter(view.own());
        let votes = |node: &NodeIndex| !is_local || view.datacenter(*node) == here;
        let voters: Replicas = replicas.iter().copied().filter(votes).collect();
        let all_vote = voters.len() == replicas.len();
        let live: Replicas = voters.iter().copied().filter(|node| view.is_alive(*node)).collect();
        // Clients asked for SERIAL or LOCAL_SERIAL, of which the quorum is.
        needs.check(options.serial, view, &live)?;
        let required = needs.required_of(&voters);
        assert!(required <= voters.len(), "a quorum of the voters is no more than all of them");
        assert!(2 * required > voters.len(), "two quorums share a voter");
        let saw_newer_topology = Cell::new(false);
        Ok(Self { lwt, erm, command, key, options, voters, required, is_read, all_vote, saw_newer_topology })
    }

    /// The rules of its rounds.
    pub(super) fn proposer(&self) -> Proposer<Value> {
        Proposer::new(self.voters.len(), self.required)
    }

    /// After an error: the same request with a newer topology version, when voters refused this one's. A write of it that may be chosen by now is
    /// looked for among the voters of that version, to which votes have been carried over; those of one datacenter of several need not have been.
    pub(super) async fn anew(
        &self,
        error: &RequestError,
        proposer: &mut Proposer<Value>,
    ) -> Result<Option<Self>, RequestError> {
        let uncertain = matches!(error, RequestError::CasUncertain { .. });
        let (ring, deadline) = (self.erm.view.topology_version(), self.options.deadline);
        if !self.saw_newer_topology.get() || !Admission(&self.lwt.context).catch_up(ring, deadline).await {
            return Ok(None);
        }
        match self.by_newer_topology().await {
            Ok(driver) if !uncertain || self.all_vote && driver.all_vote => {
                proposer.ask_others(driver.voters.len(), driver.required);
                Ok(Some(driver))
            }
            Err(error) if !uncertain => Err(error),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    async fn by_newer_topology(&self) -> Result<Self, RequestError> {
        let driver = Self::new(self.lwt, self.command, self.options, self.is_read)?;
        driver.hold_lease().await?;
        Ok(driver)
    }

    /// Fails when too few replicas live to commit at a level.
    pub(super) fn check_commit(&self, commit: Consistency) -> Result<(), RequestError> {
        let (replicas, needs) = targets(&self.erm, self.key.token, commit);
        let view = &self.erm.view;
        let live: Replicas = replicas.into_iter().filter(|node| view.is_alive(*node)).collect();
        needs.check(commit, view, &live)
    }

    pub(super) fn table(&self) -> &'a std::sync::Arc<Table> {
        &self.command.table
    }

    pub(super) fn place(&self) -> Place<'a> {
        Place { table: &self.command.table, key: self.key }
    }

    /// Waits for earlier requests of this node on the partition.
    pub(super) async fn lock(&self) -> Result<NodeLock, RequestError> {
        let (until, end) = (self.options.contention_deadline, self.options.deadline);
        match self.lwt.lock_partition(self.table().id, self.key, until, end).await {
            Some(lock) => self.hold_lease().await.map(|()| lock),
            None => {
                Err(self.contended(0, Expired { uncertain: false, received: 0, required: self.required }))
            }
        }
    }

    async fn hold_lease(&self) -> Result<(), RequestError> {
        let (token, options) = (Some(self.key.token), &self.options);
        self.lwt.context.lease().hold(&self.erm, token, options.serial, options.deadline).await
    }

    /// Goes through rounds until one ends.
    pub(super) async fn run<E: From<RequestError>>(
        &self,
        proposer: &mut Proposer<Value>,
        decide: &mut dyn FnMut(&ReadPage, Timestamp) -> Result<Option<PartitionUpdate>, E>,
    ) -> Result<Decided, Failure<E>> {
        // A topology change waits for rounds that are under way: refused between two of their steps they would end uncertain.
        let _under_way = self.lwt.context.fence().enter();
        if proposer.is_fresh()
            && let Some(decided) = Box::pin(self.run_alone(decide)).await?
        {
            return Ok(decided);
        }
        self.rounds(proposer, decide).await
    }

    async fn rounds<E: From<RequestError>>(
        &self,
        proposer: &mut Proposer<Value>,
        decide: &mut dyn FnMut(&ReadPage, Timestamp) -> Result<Option<PartitionUpdate>, E>,
    ) -> Result<Decided, Failure<E>> {
        let rt = self.lwt.context.rt();
        let mut asked: Asked<'_> = FuturesUnordered::new();
        let mut found = ReadPage::default();
        let mut contentions = 0;
        let mut action = proposer.begin(self.ballot(proposer.ballot()));
        loop {
            self.trace_action(&action);
            action = match action {
                Action::Send { sending, to, request } => {
                    let finishes = matches!(&request, Request::Commit(_) | Request::Repair(_));
                    self.lwt.state.count(|stats| stats.finished += u64::from(finishes));
                    for voter in to {
                        asked.push(Box::pin(self.ask(sending, voter, request.clone())));
                    }
                    Action::Wait
                }
                Action::Wait => {
                    let heard = rt.timeout_at(self.options.deadline, asked.next()).await;
                    match heard {
                        // One voter refuses it for good; others may have accepted it.
                        Ok(Some((_, _, Err(PeerError::Invalid(why))))) => {
                            let error = RequestError::Invalid(why);
                            return Err(Failure::Request(self.or_uncertain(proposer, error)));
                        }
                        Ok(Some((sending, voter, reply))) => {
                            if matches!(reply, Err(PeerError::StaleTopology(_))) {
                                self.saw_newer_topology.set(true);
                            }
                            proposer.reply(sending, voter, reply.ok())
                        }
                        // Nobody is left to answer, or there is no more time.
                        Ok(None) | Err(_) => {
                            return Err(Failure::Request(self.expired(contentions, proposer.expire())));
                        }
                    }
                }
                Action::Decide(ballot) => {
                    let read = self.read().await;
                    found = read.map_err(|error| Failure::Request(self.or_uncertain(proposer, error)))?;
                    let decided = decide(&found, ballot.micros);
                    let update = decided.map_err(|error| self.undecided(proposer, error))?;
                    self.check_size(&found, update.as_ref(), proposer).await.map_err(Failure::Request)?;
                    proposer.decided(update.map(Value::new))
                }
                Action::Again { above, contended } => {
                    if contended {
                        contentions += 1;
                        self.lwt.state.count(|stats| stats.contended += 1);
                        if rt.now() >= self.options.contention_deadline {
                            return Err(Failure::Request(self.contended(contentions, proposer.expire())));
                        }
                        rt.sleep(self.pause(contentions)).await;
                    }
                    proposer.begin(self.ballot(above))
                }
                Action::Chosen(proposal) => return Ok(self.chosen(proposal)),
                Action::Nothing => return Ok(Decided::Nothing(found)),
                Action::Failed(failure) => {
                    return Err(Failure::Request(self.expired(contentions, failure)));
                }
            };
        }
    }

    fn chosen(&self, proposal: Proposal<Value>) -> Decided {
        assert!(proposal.value.is_some(), "what is chosen is a write");
        assert!(!self.is_read, "a read proposes nothing of its own");
        Decided::Chosen(proposal)
    }

    /// Records the next step of a traced request, in Cassandra's words.
    fn trace_action(&self, action: &Action<Value>) {
        let Some(trace) = self.lwt.context.trace() else { return };
        let said = match action {
            Action::Send { request, .. } => sends(request),
            Action::Decide(_) => "Reading existing values for CAS precondition".to_owned(),
            Action::Again { contended: true, .. } => {
                "Paxos proposal not accepted (pre-empted by a higher ballot)".to_owned()
            }
            Action::Chosen(proposal) => format!("Paxos proposal {} accepted", proposal.ballot),
            Action::Nothing if !self.is_read => "CAS precondition does not match current values".to_owned(),
            _ => return,
        };
        self.lwt.context.note(trace, said);
    }

    pub(super) fn ballot(&self, above: Ballot) -> Ballot {
        let ballot = self.lwt.state.next_ballot(self.lwt.context.rt().wall_micros(), above);
        assert!(ballot.micros >= above.micros, "ballots never go back");
        ballot
    }

    async fn ask(&self, sending: u32, voter: usize, request: Request<Value>) -> Heard {
        let (node, view) = (self.voters[voter], &self.erm.view);
        if !view.is_alive(node) {
            return (sending, voter, Err(PeerError::Silent("it is down".to_owned())));
        }
        let rt = self.lwt.context.rt();
        rt.buggify("paxos: a message to a voter").await;
        if rt.buggify_fails("paxos: a voter is not reached") {
            return (sending, voter, Err(PeerError::Silent("it was not reached".to_owned())));
        }
        let place = self.place();
        let reply = self.lwt.vote_of(view, node, &place, request, self.options.deadline).await;
        (sending, voter, reply)
    }

    pub(super) async fn read(&self) -> Result<ReadPage, RequestError> {
        self.read_all(self.command).await
    }

    /// Reads at the level of the agreement.
    async fn read_all(&self, command: &ReadCommand) -> Result<ReadPage, RequestError> {
        let quorum = serial_quorum(self.options.serial);
        self.lwt.reads.read(&self.lwt.context, command, quorum, self.options.deadline).await
    }

    /// How long to wait for competing proposers.
    fn pause(&self, contentions: u32) -> Duration {
        let limit = PAUSE_FIRST.saturating_mul(1 << contentions.min(8)).min(PAUSE_MAX);
        let micros = self.lwt.context.rt().random_u64() % limit.as_micros() as u64;
        Duration::from_micros(micros)
    }

    /// Refuses a write whose commit could not be stored, by this node's limit: voters look at theirs. Images of CDC and rows of views follow
    /// from the rows before, too, of which the condition may have read a part.
    pub(super) async fn check_size(
        &self,
        found: &ReadPage,
        update: Option<&PartitionUpdate>,
        proposer: &mut Proposer<Value>,
    ) -> Result<(), RequestError> {
        let Some(update) = update else { return Ok(()) };
        let context = &self.lwt.context;
        let (schema, size_max) = (context.schema(), context.replica().engine().entry_len_max());
        let before = match size::needs_rows_before(&schema, &update.table) {
            false => None,
            true => match size::read_before(self.command, found, update, size_max) {
                None => Some(size::rows_before(found, update)),
                Some(command) => {
                    let read = self.read_all(&command).await;
                    let page = read.map_err(|error| self.or_uncertain(proposer, error))?;
                    Some(size::rows_before(&page, update))
                }
            },
        };
        let checked = size::check(&schema, before.as_ref(), update, size_max);
        checked.map_err(|error| self.or_uncertain(proposer, RequestError::Invalid(error.to_string())))
    }

    /// An error of a read between rounds, unless an earlier round's write may be chosen yet.
    fn or_uncertain(&self, proposer: &mut Proposer<Value>, error: RequestError) -> RequestError {
        let failure = proposer.expire();
        if failure.uncertain { self.expired(0, failure) } else { error }
    }

    /// The same of an error of the deciding node.
    fn undecided<E>(&self, proposer: &mut Proposer<Value>, error: E) -> Failure<E> {
        let failure = proposer.expire();
        if failure.uncertain { Failure::Request(self.expired(0, failure)) } else { Failure::Decide(error) }
    }

    fn contended(&self, contentions: u32, failure: Expired) -> RequestError {
        self.lwt.state.count(|stats| stats.contended_out += 1);
        self.expired(contentions, failure)
    }

    pub(super) fn expired(&self, contentions: u32, failure: Expired) -> RequestError {
        let consistency = self.options.serial;
        let (received, required) = (failure.received as u32, failure.required as u32);
        if self.is_read {
            return RequestError::ReadTimeout { consistency, received, required, data_present: false };
        }
        if failure.uncertain {
            return RequestError::CasUncertain { consistency, received, required };
        }
        RequestError::CasTimeout { consistency, received, required, contentions, kind: WriteKind::Cas }
    }
}

/// The part of a request that the voters receive.
fn sends(request: &Request<Value>) -> String {
    match request {
        Request::Prepare(ballot) => format!("Preparing {ballot}"),
        Request::Propose(proposal) if proposal.value.is_some() => {
            format!("CAS precondition is met; proposing client-requested updates for {}", proposal.ballot)
        }
        Request::Propose(proposal) => {
            format!("Proposing nothing for {}, so that what was agreed on is seen", proposal.ballot)
        }
        Request::Commit(proposal) | Request::Repair(proposal) => {
            format!("Finishing incomplete paxos round {}", proposal.ballot)
        }
    }
}
