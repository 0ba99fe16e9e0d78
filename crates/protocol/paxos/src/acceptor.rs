//! The voter of one replica for one partition: its promise, its accepted proposal, and the last write that it saw
//! committed. A pure step; the caller stores the new state before the reply leaves.

use crate::ballot::BETWEEN_MICROS;
use crate::{Ballot, Proposal};

/// The state that a replica keeps of a partition. Without memory it is the default.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AcceptorState<V> {
    /// No round below this one is followed any more.
    pub promised: Ballot,
    /// The proposal of the highest round that was accepted and not committed since.
    pub accepted: Option<Proposal<V>>,
    /// The commit of the highest round that was seen.
    pub committed: Option<Proposal<V>>,
}

impl<V> Default for AcceptorState<V> {
    fn default() -> Self {
        Self { promised: Ballot::NONE, accepted: None, committed: None }
    }
}

impl<V> AcceptorState<V> {
    /// The round of the last commit.
    pub fn committed_ballot(&self) -> Ballot {
        self.committed.as_ref().map_or(Ballot::NONE, |commit| commit.ballot)
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.promised.is_none() && self.accepted.is_none() && self.committed.is_none()
    }

    /// The same without writes whose authors' rounds are not above `floor`, and following no round that is not: results of those
    /// are not wanted any more.
    #[must_use]
    pub fn above(mut self, floor: Ballot) -> Self {
        let wanted = |proposal: &Proposal<V>| proposal.id > floor;
        self.accepted = self.accepted.filter(wanted);
        self.committed = self.committed.filter(wanted);
        self.promised = self.promised.max(floor);
        self
    }

    /// The joint state of two voters: everything that either one has promised, accepted or seen committed.
    #[must_use]
    pub fn merged(self, other: Self) -> Self {
        let later = |one: Option<Proposal<V>>, two: Option<Proposal<V>>| match (one, two) {
            (Some(one), Some(two)) => Some(if two.ballot > one.ballot { two } else { one }),
            (one, two) => one.or(two),
        };
        let committed = later(self.committed, other.committed);
        let last = committed.as_ref().map_or(Ballot::NONE, |commit| commit.ballot);
        let accepted = later(self.accepted, other.accepted).filter(|accepted| accepted.ballot > last);
        Self { promised: self.promised.max(other.promised), accepted, committed }
    }

    /// The first microsecond of which a further round is followed.
    fn earliest(&self) -> i64 {
        match self.promised.is_none() {
            true => i64::MIN,
            false => self.promised.micros.saturating_add(BETWEEN_MICROS),
        }
    }

    /// The last round that left a trace.
    fn last(&self) -> Ballot {
        let accepted = self.accepted.as_ref().map_or(Ballot::NONE, |proposal| proposal.ballot);
        self.promised.max(accepted).max(self.committed_ballot())
    }
}

/// A proposer's request of a voter. The reply to a [`Request::Commit`] alone may leave before the changed state is on disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request<V> {
    /// Follow no round below this one, and return the unfinished proposal.
    Prepare(Ballot),
    /// Accept this.
    Propose(Proposal<V>),
    /// This was accepted by a quorum: write it.
    Commit(Proposal<V>),
    /// The same to a voter that lacks the last commit. The next decision builds on it, perhaps without this voter: it is to be
    /// on disk before the reply leaves, as promises are.
    Repair(Proposal<V>),
}

/// The answer of a voter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<V> {
    /// The promise, and the proposals accepted and committed before.
    Promised {
        /// See [`AcceptorState::accepted`].
        accepted: Option<Proposal<V>>,
        /// See [`AcceptorState::committed`].
        committed: Option<Proposal<V>>,
    },
    /// Accepted.
    Accepted,
    /// Written.
    Committed,
    /// A higher round was promised, or the round is too old to be followed.
    Refused {
        /// The round to be above.
        promised: Ballot,
    },
}

/// The effects of a step, in this order: the state is stored, the write applied, the reply sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step<V> {
    /// The new state; none when it did not change.
    pub state: Option<AcceptorState<V>>,
    /// The write to apply to the partition.
    pub apply: Option<V>,
    /// The reply.
    pub reply: Reply<V>,
}

/// Takes a request. `memory_micros` is how long states are kept: older ones may have been dropped, so that rounds from
/// before are not followed, and a state from before counts for nothing.
pub fn step<V: Clone>(
    state: &AcceptorState<V>,
    request: Request<V>,
    now_micros: i64,
    memory_micros: i64,
) -> Step<V> {
    let forgotten = now_micros.saturating_sub(memory_micros);
    let blank = AcceptorState::default();
    let state = if state.last().micros < forgotten { &blank } else { state };
    let step = follow(state, request, forgotten);
    if let Some(next) = &step.state {
        assert!(next.promised >= state.promised, "a promise is not taken back");
        assert!(next.committed_ballot() >= state.committed_ballot(), "the last commit is not forgotten");
    }
    step
}

/// Takes a request; rounds from before `forgotten` are not followed.
fn follow<V: Clone>(state: &AcceptorState<V>, request: Request<V>, forgotten: i64) -> Step<V> {
    let refused = |promised: Ballot| Step { state: None, apply: None, reply: Reply::Refused { promised } };
    let too_old = |ballot: Ballot| ballot.micros < forgotten;
    match request {
        Request::Prepare(ballot) | Request::Propose(Proposal { ballot, .. }) if too_old(ballot) => {
            refused(Ballot { micros: forgotten, node: 0 }.max(state.promised))
        }
        // The times of writes come from ballots, and the later write is to be the later.
        Request::Prepare(ballot) if ballot.micros < state.earliest() => refused(state.promised),
        Request::Prepare(ballot) => {
            let (accepted, committed) = (state.accepted.clone(), state.committed.clone());
            Step {
                state: Some(AcceptorState { promised: ballot, ..state.clone() }),
                apply: None,
                reply: Reply::Promised { accepted, committed },
            }
        }
        Request::Propose(proposal) if proposal.ballot < state.promised => refused(state.promised),
        Request::Propose(proposal) => {
            let state = AcceptorState {
                promised: proposal.ballot,
                accepted: Some(proposal),
                committed: state.committed.clone(),
            };
            Step { state: Some(state), apply: None, reply: Reply::Accepted }
        }
        Request::Commit(commit) | Request::Repair(commit) => {
            // Writes carry the times of their rounds, so that one that comes late hides nothing.
            let apply = commit.value.clone();
            let newer = commit.ballot > state.committed_ballot();
            let state = newer.then(|| AcceptorState {
                // A voter that has not followed the round so far still records that others did.
                promised: state.promised.max(commit.ballot),
                accepted: state.accepted.clone().filter(|accepted| accepted.ballot > commit.ballot),
                committed: Some(commit),
            });
            Step { state, apply, reply: Reply::Committed }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000;
    const MEMORY: i64 = 100_000;

    fn ballot(micros: i64) -> Ballot {
        Ballot { micros: NOW + 2 * micros, node: 1 }
    }

    fn proposal(at: i64, value: &'static str) -> Proposal<&'static str> {
        Proposal { ballot: ballot(at), id: ballot(at), after: Vec::new(), value: Some(value) }
    }

    fn take(state: &mut AcceptorState<&'static str>, request: Request<&'static str>) -> Reply<&'static str> {
        let step = step(state, request, NOW, MEMORY);
        if let Some(next) = step.state {
            *state = next;
        }
        step.reply
    }

    #[test]
    fn a_promise_holds_and_returns_the_unfinished_proposal() {
        let mut state = AcceptorState::default();
        let promised = |accepted, committed| Reply::Promised { accepted, committed };
        assert_eq!(take(&mut state, Request::Prepare(ballot(5))), promised(None, None));
        assert_eq!(take(&mut state, Request::Prepare(ballot(5))), Reply::Refused { promised: ballot(5) });
        assert_eq!(
            take(&mut state, Request::Propose(proposal(4, "a"))),
            Reply::Refused { promised: ballot(5) }
        );
        assert_eq!(take(&mut state, Request::Propose(proposal(5, "b"))), Reply::Accepted);
        // A round that nobody here promised to follow is followed when it is higher.
        assert_eq!(take(&mut state, Request::Propose(proposal(6, "c"))), Reply::Accepted);
        assert_eq!(state.promised, ballot(6));
        assert_eq!(take(&mut state, Request::Prepare(ballot(7))), promised(Some(proposal(6, "c")), None));
        assert_eq!(take(&mut state, Request::Commit(proposal(6, "c"))), Reply::Committed);
        assert_eq!(take(&mut state, Request::Prepare(ballot(8))), promised(None, Some(proposal(6, "c"))));
    }

    #[test]
    fn of_two_rounds_of_one_microsecond_the_first_is_followed() {
        let mut state = AcceptorState::default();
        let at = |node| Ballot { micros: NOW, node };
        assert!(matches!(take(&mut state, Request::Prepare(at(1))), Reply::Promised { .. }));
        let second = take(&mut state, Request::Prepare(at(2)));
        assert_eq!(
            second,
            Reply::Refused { promised: at(1) },
            "its write would have the time of the first one's"
        );
    }

    #[test]
    fn a_late_commit_is_applied_and_does_not_replace_a_newer_one() {
        let mut state = AcceptorState::default();
        take(&mut state, Request::Commit(proposal(9, "new")));
        let late = step(&state, Request::Commit(proposal(3, "old")), NOW, MEMORY);
        assert_eq!((late.apply, late.state, late.reply), (Some("old"), None, Reply::Committed));
        take(&mut state, Request::Propose(proposal(12, "open")));
        take(&mut state, Request::Commit(proposal(10, "newer")));
        assert_eq!(state.accepted, Some(proposal(12, "open")), "what is above the commit is still open");
    }

    #[test]
    fn rounds_below_a_floor_are_forgotten_and_not_followed() {
        let mut state = AcceptorState::default();
        take(&mut state, Request::Commit(proposal(2, "old")));
        take(&mut state, Request::Propose(proposal(4, "open")));
        let finished = Proposal { ballot: ballot(8), ..proposal(4, "open") };
        take(&mut state, Request::Propose(finished));
        let kept = state.clone().above(ballot(3));
        assert_eq!((kept.accepted.is_some(), kept.committed.is_some()), (true, false));
        let mut state = state.above(ballot(5));
        assert_eq!(state, AcceptorState { promised: ballot(8), accepted: None, committed: None });
        state = AcceptorState::default().above(ballot(5));
        assert_eq!(take(&mut state, Request::Prepare(ballot(5))), Reply::Refused { promised: ballot(5) });
        assert!(matches!(take(&mut state, Request::Prepare(ballot(6))), Reply::Promised { .. }));
    }

    #[test]
    fn the_joint_state_of_two_voters_has_the_state_of_each() {
        let state = |promised, accepted: Option<i64>, committed: Option<i64>| AcceptorState {
            promised: ballot(promised),
            accepted: accepted.map(|at| proposal(at, "a")),
            committed: committed.map(|at| proposal(at, "c")),
        };
        let both = |one: AcceptorState<&'static str>, two: AcceptorState<&'static str>| {
            assert_eq!(one.clone().merged(two.clone()), two.clone().merged(one.clone()));
            one.merged(two)
        };
        assert_eq!(both(state(3, Some(3), None), state(9, None, Some(1))), state(9, Some(3), Some(1)));
        assert_eq!(both(state(3, Some(3), None), state(5, Some(5), None)), state(5, Some(5), None));
        // Committed at one of them: it is not open any more.
        assert_eq!(both(state(5, Some(5), Some(2)), state(5, None, Some(5))), state(5, None, Some(5)));
    }

    #[test]
    fn rounds_older_than_the_memory_count_for_nothing_and_are_not_followed() {
        let mut state = AcceptorState::default();
        take(&mut state, Request::Propose(proposal(0, "a")));
        let later = NOW + MEMORY + 1;
        let prepare = step(&state, Request::Prepare(Ballot { micros: later, node: 1 }), later, MEMORY);
        assert_eq!(prepare.reply, Reply::Promised { accepted: None, committed: None });
        let old = step(&state, Request::Propose(proposal(0, "b")), later, MEMORY);
        assert!(matches!(old.reply, Reply::Refused { promised } if promised > ballot(0)));
        assert_eq!(old.state, None);
    }
}
