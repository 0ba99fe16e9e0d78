//! A round of a partition that has one voter, as a whole: a proposal that this voter accepts is chosen. A voter that takes no other request between
//! the steps may store their result at once, and nothing at all of a round that writes nothing. The state is the same as if each step had been stored.

use crate::acceptor::{AcceptorState, Reply, Request, Step, step};
use crate::{Ballot, Proposal};

/// The first step: the state with the promise, by which to decide. None when the round is not followed, or an unfinished write comes first.
pub fn promise_alone<V: Clone>(
    state: &AcceptorState<V>,
    ballot: Ballot,
    now_micros: i64,
    memory_micros: i64,
) -> Option<AcceptorState<V>> {
    let step = step(state, Request::Prepare(ballot), now_micros, memory_micros);
    match step.reply {
        Reply::Promised { accepted, .. } if accepted.as_ref().is_none_or(|open| open.value.is_none()) => {
            step.state
        }
        _ => None,
    }
}

/// The steps after the decision to write `value`, from the state of [`promise_alone`] with the same times: the write is accepted, chosen and committed.
///
/// # Panics
/// When the state does not promise this round.
pub fn choose_alone<V: Clone>(
    promised: &AcceptorState<V>,
    value: V,
    now_micros: i64,
    memory_micros: i64,
) -> Step<V> {
    let proposal = Proposal::decided(promised.promised, promised.committed.as_ref(), Some(value));
    let accepted = step(promised, Request::Propose(proposal.clone()), now_micros, memory_micros);
    assert!(matches!(accepted.reply, Reply::Accepted), "the round that was promised last is followed");
    let accepted = accepted.state.as_ref().unwrap_or(promised);
    let committed = step(accepted, Request::Commit(proposal), now_micros, memory_micros);
    assert!(committed.state.is_some() && committed.apply.is_some(), "a new write is committed");
    committed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Action, Proposer};

    const NOW: i64 = 1_000_000;
    const MEMORY: i64 = 100_000;

    fn ballot(at: i64) -> Ballot {
        Ballot { micros: NOW + 2 * at, node: 1 }
    }

    fn proposal(at: i64, value: Option<&'static str>) -> Proposal<&'static str> {
        Proposal { ballot: ballot(at), id: ballot(at), after: Vec::new(), value }
    }

    /// The same round by the rules of many voters, each step stored.
    fn by_steps(mut state: AcceptorState<&'static str>, value: &'static str) -> AcceptorState<&'static str> {
        let mut proposer = Proposer::new(1, 1);
        let mut action = proposer.begin(ballot(9));
        loop {
            action = match action {
                Action::Send { sending, request, .. } => {
                    let step = step(&state, request, NOW, MEMORY);
                    state = step.state.unwrap_or(state);
                    proposer.reply(sending, 0, Some(step.reply))
                }
                Action::Decide(_) => proposer.decided(Some(value)),
                Action::Chosen(chosen) => {
                    return step(&state, Request::Commit(chosen), NOW, MEMORY).state.expect("it is new");
                }
                other => panic!("{other:?}"),
            };
        }
    }

    #[test]
    fn the_steps_at_once_come_to_the_same_state() {
        let committed = || Some(Proposal { after: vec![ballot(1)], ..proposal(3, Some("before")) });
        for accepted in [None, Some(proposal(5, None))] {
            for committed in [None, committed()] {
                let promised = if accepted.is_some() { ballot(5) } else { ballot(3) };
                let state = AcceptorState { promised, accepted: accepted.clone(), committed };
                let promise = promise_alone(&state, ballot(9), NOW, MEMORY).expect("it is followed");
                let step = choose_alone(&promise, "new", NOW, MEMORY);
                assert_eq!(step.state, Some(by_steps(state, "new")));
                assert_eq!((step.apply, step.reply), (Some("new"), Reply::Committed));
            }
        }
    }

    #[test]
    fn an_unfinished_write_and_a_later_round_come_first() {
        let open = AcceptorState { accepted: Some(proposal(5, Some("open"))), ..AcceptorState::default() };
        assert_eq!(promise_alone(&open, ballot(9), NOW, MEMORY), None);
        let later = AcceptorState::<&str> { promised: ballot(9), ..AcceptorState::default() };
        for at in [8, 9] {
            assert_eq!(promise_alone(&later, ballot(at), NOW, MEMORY), None);
        }
        let old = Ballot { micros: NOW - MEMORY - 1, node: 1 };
        assert_eq!(promise_alone(&AcceptorState::<&str>::default(), old, NOW, MEMORY), None);
    }
}
