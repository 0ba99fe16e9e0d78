//! One client's request on its way through as many rounds as it takes. Replies go in, the next actions come out.
//!
//! The caller numbers the voters from 0, sends the messages that it gets (a proposal to one voter arrives once at most), reads and decides when told to, waits as long as it
//! thinks right before it begins [`Action::Again`], and says [`Proposer::expire`] when it has no more time.

use crate::{AFTER_MAX, Ballot, Proposal, Reply, Request};

/// The duty of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<V> {
    /// Send this to these voters, and hand back their replies with the number of the sending.
    Send {
        /// The number of the sending.
        sending: u32,
        /// The voters.
        to: Vec<usize>,
        /// The conditions on them.
        request: Request<V>,
    },
    /// Nothing, but for waiting.
    Wait,
    /// Read the partition from a quorum and pass the write to [`Proposer::decided`]. Its cells are to
    /// have the time of this ballot.
    Decide(Ballot),
    /// Begin another round above this one: after a pause, when others got in the way.
    Again {
        /// The round to be above.
        above: Ballot,
        /// Whether others got in the way.
        contended: bool,
    },
    /// The decided value is chosen: have every replica commit it.
    Chosen(Proposal<V>),
    /// Nothing was to be written, and the read rows are the latest.
    Nothing,
    /// It cannot be done.
    Failed(Failure),
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Whether the decided write may be chosen nonetheless, now or later.
    pub uncertain: bool,
    /// Voters that accepted the requests of the last phase.
    pub received: usize,
    /// Voters that had to.
    pub required: usize,
}

#[derive(Clone, Debug, Hash)]
struct Promise<V> {
    accepted: Option<Proposal<V>>,
    committed: Option<Proposal<V>>,
}

impl<V> Promise<V> {
    fn committed_ballot(&self) -> Ballot {
        self.committed.as_ref().map_or(Ballot::NONE, |commit| commit.ballot)
    }
}

/// Whether a proposal that was accepted may still be to be committed, given the last commit. A proposal that another finished before may
/// be proposed once more, in a higher round, by one that did not know.
fn is_open<V>(proposal: &Proposal<V>, last: Option<&Proposal<V>>) -> bool {
    last.is_none_or(|last| {
        proposal.ballot > last.ballot && proposal.id != last.id && !last.after.contains(&proposal.id)
    })
}

#[derive(Clone, Debug, Hash)]
enum Phase<V> {
    /// Between rounds, and after the end.
    Idle,
    /// Waiting for promises.
    Preparing,
    /// Waiting until so many voters have the last commit.
    Repairing,
    /// Waiting for the caller.
    Deciding,
    /// Waiting for a quorum to accept; `finishes` another's write.
    Proposing { proposal: Proposal<V>, finishes: bool },
    /// Waiting for a quorum to have another's write.
    Committing { proposal: Proposal<V> },
}

/// Replies of one phase.
#[derive(Clone, Debug, Default, Hash)]
struct Count {
    asked: usize,
    done: usize,
    refused: usize,
    failed: usize,
    heard: Vec<usize>,
    above: Ballot,
}

impl Count {
    fn open(&self) -> usize {
        self.asked - self.done - self.refused - self.failed
    }
}

/// A request.
#[derive(Clone, Debug, Hash)]
pub struct Proposer<V> {
    voters: usize,
    required: usize,
    ballot: Ballot,
    phase: Phase<V>,
    sending: u32,
    /// The sending of this round's Prepare: promises that come late still tell something.
    prepare: u32,
    promises: Vec<Option<Promise<V>>>,
    count: Count,
    /// Writes of this request that voters may have accepted in earlier rounds; at most one of them is ever chosen.
    own: Vec<Proposal<V>>,
}

impl<V: Clone> Proposer<V> {
    /// A request to `voters` voters, of which `required` make a quorum.
    pub fn new(voters: usize, required: usize) -> Self {
        assert!(required > voters / 2, "two quorums share a voter");
        Self {
            voters,
            required,
            ballot: Ballot::NONE,
            phase: Phase::Idle,
            sending: 0,
            prepare: 0,
            promises: Vec::new(),
            count: Count::default(),
            own: Vec::new(),
        }
    }

    /// The last round that it began.
    pub fn ballot(&self) -> Ballot {
        self.ballot
    }

    /// Asks other voters from the next round on, because a newer topology version has others. Every quorum of theirs has to know of the values chosen by
    /// those of before, as it has to for any other proposer. So a write of this request that they do not know never will be chosen.
    ///
    /// # Panics
    /// When a round is under way.
    pub fn ask_others(&mut self, voters: usize, required: usize) {
        assert!(matches!(self.phase, Phase::Idle), "voters change between two rounds");
        assert!(required > voters / 2 && required <= voters, "two quorums share a voter");
        (self.voters, self.required) = (voters, required);
        (self.promises, self.count) = (Vec::new(), Count::default());
    }

    /// Begins a round.
    ///
    /// # Panics
    /// When a round is under way, or the ballot is not above the last one.
    pub fn begin(&mut self, ballot: Ballot) -> Action<V> {
        assert!(matches!(self.phase, Phase::Idle), "one round after the other");
        assert!(ballot > self.ballot, "ballots rise");
        self.ballot = ballot;
        self.promises = vec![None; self.voters];
        self.phase = Phase::Preparing;
        let action = self.send((0..self.voters).collect(), Request::Prepare(ballot));
        self.prepare = self.sending;
        action
    }

    fn send(&mut self, to: Vec<usize>, request: Request<V>) -> Action<V> {
        self.sending += 1;
        self.count = Count { asked: to.len(), ..Count::default() };
        Action::Send { sending: self.sending, to, request }
    }

    /// Whether no write of this request may have been accepted anywhere so far.
    pub fn is_fresh(&self) -> bool {
        self.own.is_empty() && matches!(self.phase, Phase::Idle)
    }

    /// Takes a reply, or that there will be none.
    pub fn reply(&mut self, sending: u32, voter: usize, reply: Option<Reply<V>>) -> Action<V> {
        assert!(voter < self.voters, "voters are numbered from 0");
        assert!(sending <= self.sending, "a reply is to what was sent");
        if sending != self.sending {
            if let (true, Some(Reply::Promised { accepted, committed })) = (sending == self.prepare, reply) {
                self.promises[voter].get_or_insert(Promise { accepted, committed });
            }
            return Action::Wait;
        }
        if matches!(self.phase, Phase::Idle) || self.count.heard.contains(&voter) {
            return Action::Wait;
        }
        if matches!(self.phase, Phase::Deciding) {
            if let Some(Reply::Promised { accepted, committed }) = reply {
                self.promises[voter].get_or_insert(Promise { accepted, committed });
            }
            return Action::Wait;
        }
        self.count.heard.push(voter);
        match reply {
            None => self.count.failed += 1,
            Some(Reply::Refused { promised }) => {
                self.count.refused += 1;
                self.count.above = self.count.above.max(promised);
            }
            Some(Reply::Promised { accepted, committed }) => {
                self.promises[voter] = Some(Promise { accepted, committed });
                self.count.done += 1;
            }
            Some(Reply::Accepted | Reply::Committed) => self.count.done += 1,
        }
        let Count { asked, done, refused, failed, ref heard, .. } = self.count;
        assert_eq!(done + refused + failed, heard.len(), "each voter's reply is counted once");
        assert!(heard.len() <= asked, "no more voters reply than were asked");
        self.progress()
    }

    /// The state that follows from the replies so far.
    fn progress(&mut self) -> Action<V> {
        match &self.phase {
            Phase::Idle | Phase::Deciding => Action::Wait,
            Phase::Preparing if self.count.done >= self.required => self.promised(),
            Phase::Repairing if self.up_to_date() + self.count.done >= self.required => self.ask(),
            Phase::Proposing { .. } if self.count.done >= self.required => self.accepted(),
            Phase::Committing { proposal } if self.count.done >= self.required => {
                let above = proposal.ballot;
                self.again(above, false)
            }
            Phase::Preparing | Phase::Proposing { .. } | Phase::Committing { .. }
                if self.count.done + self.count.open() < self.required =>
            {
                self.hopeless()
            }
            Phase::Repairing if self.up_to_date() + self.count.done + self.count.open() < self.required => {
                self.hopeless()
            }
            _ => Action::Wait,
        }
    }

    fn again(&mut self, above: Ballot, contended: bool) -> Action<V> {
        self.phase = Phase::Idle;
        Action::Again { above: above.max(self.ballot), contended }
    }

    /// The last commit that a promise named.
    fn last_commit(&self) -> Option<&Proposal<V>> {
        let all = self.promises.iter().flatten().filter_map(|promise| promise.committed.as_ref());
        all.max_by_key(|commit| commit.ballot)
    }

    /// How many of those that promised have the last commit.
    fn up_to_date(&self) -> usize {
        let last = self.last_commit().map_or(Ballot::NONE, |commit| commit.ballot);
        self.promises.iter().flatten().filter(|promise| promise.committed_ballot() >= last).count()
    }

    /// A quorum has promised: an unfinished proposal comes first.
    fn promised(&mut self) -> Action<V> {
        let last = self.last_commit().cloned();
        let last_ballot = last.as_ref().map_or(Ballot::NONE, |commit| commit.ballot);
        if let Some(last) = &last {
            if last.ballot > self.ballot {
                return self.again(last.ballot, true);
            }
            if let Some(chosen) =
                self.own.iter().find(|own| own.id == last.id || last.after.contains(&own.id))
            {
                let chosen = chosen.clone();
                self.phase = Phase::Idle;
                return Action::Chosen(chosen);
            }
            // Ours may have been chosen so long before that nobody remembers.
            let remembered = |own: &Proposal<V>| {
                last.after.len() < AFTER_MAX || last.after.iter().any(|before| *before < own.id)
            };
            if self.own.iter().any(|own| own.ballot < last.ballot && !remembered(own)) {
                return self.fail(true);
            }
            // A proposal below a commit that was not chosen before it never will be.
            self.own.retain(|own| own.ballot > last.ballot);
        }
        let open = self.promises.iter().flatten().filter_map(|promise| promise.accepted.as_ref());
        let open = open.max_by_key(|proposal| proposal.ballot).filter(|open| is_open(open, last.as_ref()));
        if let Some(open) = open.filter(|open| open.value.is_some()) {
            let proposal = Proposal { ballot: self.ballot, ..open.clone() };
            self.phase = Phase::Proposing { proposal: proposal.clone(), finishes: true };
            return self.send((0..self.voters).collect(), Request::Propose(proposal));
        }
        let Some(last) = last else { return self.ask() };
        let lacks = |promise: &Option<Promise<V>>| {
            promise.as_ref().is_some_and(|promise| promise.committed_ballot() < last_ballot)
        };
        let missing: Vec<usize> = (0..self.voters).filter(|voter| lacks(&self.promises[*voter])).collect();
        if self.up_to_date() >= self.required {
            return self.ask();
        }
        self.phase = Phase::Repairing;
        self.send(missing, Request::Repair(last))
    }

    fn ask(&mut self) -> Action<V> {
        self.phase = Phase::Deciding;
        Action::Decide(self.ballot)
    }

    /// Takes the caller's decision: a write, or nothing.
    ///
    /// # Panics
    /// When it was not asked.
    pub fn decided(&mut self, value: Option<V>) -> Action<V> {
        assert!(matches!(self.phase, Phase::Deciding), "who was not asked has nothing to decide");
        let last = self.last_commit();
        let open = |proposal: &Proposal<V>| proposal.value.is_some() && is_open(proposal, last);
        let is_clean = |promise: &Promise<V>| !promise.accepted.as_ref().is_some_and(open);
        let everybody = self.promises.iter().all(|promise| promise.as_ref().is_some_and(is_clean));
        if value.is_none() && everybody && self.own.is_empty() {
            // No write of an older round stands anywhere, and none can any more. One of this request's may stand at a replica of before, which may be
            // a voter again some day: the empty proposal is above it.
            self.phase = Phase::Idle;
            return Action::Nothing;
        }
        let proposal = Proposal::decided(self.ballot, self.last_commit(), value);
        self.phase = Phase::Proposing { proposal: proposal.clone(), finishes: false };
        self.send((0..self.voters).collect(), Request::Propose(proposal))
    }

    /// A quorum has accepted.
    fn accepted(&mut self) -> Action<V> {
        let Phase::Proposing { proposal, finishes } = std::mem::replace(&mut self.phase, Phase::Idle) else {
            return Action::Wait;
        };
        assert_eq!(proposal.ballot, self.ballot, "a quorum accepts the proposal of this round");
        let is_own = !finishes || self.own.iter().any(|own| own.id == proposal.id);
        // Nothing of a lower round can be chosen any more.
        self.own.clear();
        match (is_own, &proposal.value) {
            (true, Some(_)) => Action::Chosen(proposal),
            (true, None) => Action::Nothing,
            (false, _) => {
                self.phase = Phase::Committing { proposal: proposal.clone() };
                self.send((0..self.voters).collect(), Request::Commit(proposal))
            }
        }
    }

    /// There cannot be a quorum any more.
    fn hopeless(&mut self) -> Action<V> {
        self.remember_own();
        if self.count.refused > 0 {
            let above = self.count.above;
            return self.again(above, true);
        }
        self.fail(!self.own.is_empty())
    }

    /// A write of ours that a voter may have accepted may be chosen later. A voter that refused it did not accept it: a proposal that is sent once
    /// arrives once at most.
    fn remember_own(&mut self) {
        if let Phase::Proposing { proposal, finishes: false } = &self.phase
            && proposal.value.is_some()
            && self.count.refused < self.voters
        {
            let rises = self.own.iter().all(|own| own.ballot < proposal.ballot);
            assert!(rises, "a request proposes once a round");
            self.own.push(proposal.clone());
        }
    }

    fn fail(&mut self, uncertain: bool) -> Action<V> {
        self.phase = Phase::Idle;
        Action::Failed(Failure { uncertain, received: self.count.done, required: self.required })
    }

    /// There is no more time: the outcome for the client.
    pub fn expire(&mut self) -> Failure {
        self.remember_own();
        let failure =
            Failure { uncertain: !self.own.is_empty(), received: self.count.done, required: self.required };
        self.phase = Phase::Idle;
        failure
    }
}
