//! The ways of a proposer, one by one.

use paxos::{Action, Ballot, Failure, Proposal, Proposer, Reply, Request};

type Write = &'static str;

fn ballot(micros: i64) -> Ballot {
    Ballot { micros: 2 * micros, node: 1 }
}

fn proposal(at: i64, value: Option<Write>) -> Proposal<Write> {
    Proposal { ballot: ballot(at), id: ballot(at), after: Vec::new(), value }
}

fn promised(accepted: Option<Proposal<Write>>, committed: Option<Proposal<Write>>) -> Option<Reply<Write>> {
    Some(Reply::Promised { accepted, committed })
}

/// A proposer to three voters in its first round, and the number of the Prepare.
fn prepared(at: i64) -> (Proposer<Write>, u32) {
    let mut proposer = Proposer::new(3, 2);
    let sending = sent(proposer.begin(ballot(at)), &[0, 1, 2], Request::Prepare(ballot(at)));
    (proposer, sending)
}

#[track_caller]
fn sent(action: Action<Write>, voters: &[usize], wanted: Request<Write>) -> u32 {
    match action {
        Action::Send { sending, to, request } => {
            assert_eq!((to.as_slice(), request), (voters, wanted));
            sending
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_write_without_others() {
    let (mut proposer, prepare) = prepared(10);
    assert_eq!(proposer.reply(prepare, 0, promised(None, None)), Action::Wait);
    assert_eq!(proposer.reply(prepare, 0, promised(None, None)), Action::Wait, "the same voter again");
    assert_eq!(proposer.reply(prepare, 2, promised(None, None)), Action::Decide(ballot(10)));
    let mine = proposal(10, Some("mine"));
    let propose = sent(proposer.decided(Some("mine")), &[0, 1, 2], Request::Propose(mine.clone()));
    assert_eq!(proposer.reply(prepare, 1, promised(None, None)), Action::Wait, "late");
    assert_eq!(proposer.reply(propose, 1, Some(Reply::Accepted)), Action::Wait);
    assert_eq!(proposer.reply(propose, 2, Some(Reply::Accepted)), Action::Chosen(mine));
}

#[test]
fn an_unfinished_proposal_is_finished_first() {
    let (mut proposer, prepare) = prepared(10);
    let left = proposal(5, Some("left"));
    proposer.reply(prepare, 0, promised(Some(proposal(3, Some("older"))), None));
    let again = Proposal { ballot: ballot(10), ..left.clone() };
    let action = proposer.reply(prepare, 1, promised(Some(left), None));
    let propose = sent(action, &[0, 1, 2], Request::Propose(again.clone()));
    proposer.reply(propose, 0, Some(Reply::Accepted));
    let action = proposer.reply(propose, 1, Some(Reply::Accepted));
    let commit = sent(action, &[0, 1, 2], Request::Commit(again));
    proposer.reply(commit, 0, Some(Reply::Committed));
    let action = proposer.reply(commit, 2, Some(Reply::Committed));
    assert_eq!(action, Action::Again { above: ballot(10), contended: false });
}

#[test]
fn an_empty_proposal_hides_older_ones() {
    let (mut proposer, prepare) = prepared(10);
    proposer.reply(prepare, 0, promised(Some(proposal(3, Some("older"))), None));
    let action = proposer.reply(prepare, 1, promised(Some(proposal(5, None)), None));
    assert_eq!(action, Action::Decide(ballot(10)));
}

#[test]
fn a_committed_proposal_is_not_finished_once_more() {
    let (mut proposer, prepare) = prepared(10);
    let committed = proposal(5, Some("done"));
    let once_more = Proposal { ballot: ballot(7), ..committed.clone() };
    proposer.reply(prepare, 0, promised(Some(once_more.clone()), Some(committed.clone())));
    let action = proposer.reply(prepare, 1, promised(Some(once_more), Some(committed)));
    assert_eq!(action, Action::Decide(ballot(10)));
}

#[test]
fn a_voter_that_lacks_the_last_commit_is_sent_it() {
    let (mut proposer, prepare) = prepared(10);
    let last = proposal(5, Some("last"));
    proposer.reply(prepare, 0, promised(None, Some(last.clone())));
    let action = proposer.reply(prepare, 1, promised(None, Some(proposal(2, Some("old")))));
    let commit = sent(action, &[1], Request::Repair(last));
    assert_eq!(proposer.reply(commit, 1, Some(Reply::Committed)), Action::Decide(ballot(10)));
}

#[test]
fn a_read_proposes_nothing_unless_all_voters_have_nothing_open() {
    let (mut proposer, prepare) = prepared(10);
    for voter in 0..2 {
        proposer.reply(prepare, voter, promised(None, None));
    }
    let mut alone = proposer.clone();
    sent(alone.decided(None), &[0, 1, 2], Request::Propose(proposal(10, None)));
    let mut open = proposer.clone();
    open.reply(prepare, 2, promised(Some(proposal(4, Some("open"))), None));
    let propose = sent(open.decided(None), &[0, 1, 2], Request::Propose(proposal(10, None)));
    open.reply(propose, 0, Some(Reply::Accepted));
    assert_eq!(open.reply(propose, 2, Some(Reply::Accepted)), Action::Nothing);
    proposer.reply(prepare, 2, promised(None, None));
    assert_eq!(proposer.decided(None), Action::Nothing);
}

#[test]
fn a_higher_round_is_given_way_to() {
    let (mut proposer, prepare) = prepared(10);
    let refused = |at| Some(Reply::Refused { promised: ballot(at) });
    assert_eq!(proposer.reply(prepare, 0, refused(12)), Action::Wait);
    let action = proposer.reply(prepare, 1, refused(15));
    assert_eq!(action, Action::Again { above: ballot(15), contended: true });
    sent(proposer.begin(ballot(16)), &[0, 1, 2], Request::Prepare(ballot(16)));
    assert_eq!(proposer.reply(prepare, 2, promised(None, None)), Action::Wait, "of the round before");
}

/// A proposer whose write one voter accepted and two refused; its round, and the next Prepare's number.
fn half_accepted() -> (Proposer<Write>, u32) {
    let (mut proposer, prepare) = prepared(10);
    proposer.reply(prepare, 0, promised(None, None));
    proposer.reply(prepare, 1, promised(None, None));
    let mine = proposal(10, Some("mine"));
    let propose = sent(proposer.decided(Some("mine")), &[0, 1, 2], Request::Propose(mine));
    proposer.reply(propose, 0, Some(Reply::Accepted));
    let refused = || Some(Reply::Refused { promised: ballot(20) });
    proposer.reply(propose, 1, refused());
    let action = proposer.reply(propose, 2, refused());
    assert_eq!(action, Action::Again { above: ballot(20), contended: true });
    let prepare = sent(proposer.begin(ballot(30)), &[0, 1, 2], Request::Prepare(ballot(30)));
    (proposer, prepare)
}

#[test]
fn a_write_that_another_finished_is_known_by_its_author() {
    let (proposer, prepare) = half_accepted();
    let finished = Proposal { ballot: ballot(20), ..proposal(10, Some("mine")) };
    let followed = Proposal { after: vec![ballot(10)], ..proposal(25, Some("another")) };
    for last in [finished, followed] {
        let mut proposer = proposer.clone();
        proposer.reply(prepare, 0, promised(None, None));
        let action = proposer.reply(prepare, 1, promised(None, Some(last)));
        assert_eq!(action, Action::Chosen(proposal(10, Some("mine"))));
    }
}

#[test]
fn a_write_that_stands_is_finished_by_its_author() {
    let (mut proposer, prepare) = half_accepted();
    proposer.reply(prepare, 0, promised(Some(proposal(10, Some("mine"))), None));
    let action = proposer.reply(prepare, 1, promised(None, None));
    let again = Proposal { ballot: ballot(30), ..proposal(10, Some("mine")) };
    let propose = sent(action, &[0, 1, 2], Request::Propose(again.clone()));
    proposer.reply(propose, 1, Some(Reply::Accepted));
    assert_eq!(proposer.reply(propose, 2, Some(Reply::Accepted)), Action::Chosen(again));
}

#[test]
fn a_write_that_another_overtook_is_tried_again() {
    let (mut proposer, prepare) = half_accepted();
    proposer.reply(prepare, 1, promised(None, None));
    let another = Proposal { after: vec![ballot(9)], ..proposal(20, Some("another")) };
    let action = proposer.reply(prepare, 2, promised(None, Some(another.clone())));
    let commit = sent(action, &[1], Request::Repair(another));
    assert_eq!(proposer.reply(commit, 1, Some(Reply::Committed)), Action::Decide(ballot(30)));
    assert!(!proposer.expire().uncertain, "what was overtaken is never chosen");
}

/// A proposer to a replica and a pending one whose write the first accepted before the second refused its topology version; the next Prepare's number
/// by the newer version, by which the first one is a former replica.
fn refused_by_a_newer_version() -> (Proposer<Write>, u32) {
    let mut proposer = Proposer::new(2, 2);
    let prepare = sent(proposer.begin(ballot(10)), &[0, 1], Request::Prepare(ballot(10)));
    proposer.reply(prepare, 0, promised(None, None));
    proposer.reply(prepare, 1, promised(None, None));
    let propose = sent(proposer.decided(Some("mine")), &[0, 1], Request::Propose(proposal(10, Some("mine"))));
    proposer.reply(propose, 0, Some(Reply::Accepted));
    let failure = Failure { uncertain: true, received: 1, required: 2 };
    assert_eq!(proposer.reply(propose, 1, None), Action::Failed(failure));
    proposer.ask_others(3, 2);
    assert_eq!(proposer.ballot(), ballot(10));
    let prepare = sent(proposer.begin(ballot(20)), &[0, 1, 2], Request::Prepare(ballot(20)));
    (proposer, prepare)
}

#[test]
fn an_author_learns_its_write_s_fate_from_the_voters_of_a_newer_topology_version() {
    let (proposer, prepare) = refused_by_a_newer_version();
    let mut chosen = proposer.clone();
    chosen.reply(prepare, 2, promised(None, None));
    let action = chosen.reply(prepare, 1, promised(None, Some(proposal(10, Some("mine")))));
    assert_eq!(action, Action::Chosen(proposal(10, Some("mine"))));
    let mut open = proposer.clone();
    open.reply(prepare, 2, promised(Some(proposal(10, Some("mine"))), None));
    let again = Proposal { ballot: ballot(20), ..proposal(10, Some("mine")) };
    let propose =
        sent(open.reply(prepare, 0, promised(None, None)), &[0, 1, 2], Request::Propose(again.clone()));
    open.reply(propose, 0, Some(Reply::Accepted));
    assert_eq!(open.reply(propose, 1, Some(Reply::Accepted)), Action::Chosen(again));
    assert!(!open.expire().uncertain);
}

#[test]
fn a_refusal_after_a_write_of_its_author_is_proposed_though_all_voters_have_nothing_open() {
    let (mut proposer, prepare) = refused_by_a_newer_version();
    for voter in 0..3 {
        proposer.reply(prepare, voter, promised(None, None));
    }
    // A former replica, which may be a voter again, has the write.
    let propose = sent(proposer.decided(None), &[0, 1, 2], Request::Propose(proposal(20, None)));
    proposer.reply(propose, 0, Some(Reply::Accepted));
    assert_eq!(proposer.reply(propose, 1, Some(Reply::Accepted)), Action::Nothing);
    assert!(!proposer.expire().uncertain);
}

#[test]
fn whether_a_write_came_before_many_others_is_uncertain() {
    let (mut proposer, prepare) = half_accepted();
    proposer.reply(prepare, 1, promised(None, None));
    let after = (11..).map(ballot).take(paxos::AFTER_MAX).collect();
    let another = Proposal { after, ..proposal(28, Some("another")) };
    let action = proposer.reply(prepare, 2, promised(None, Some(another)));
    assert_eq!(action, Action::Failed(Failure { uncertain: true, received: 2, required: 2 }));
}

#[test]
fn a_proposer_that_stops_before_it_proposed_is_certain() {
    let (mut proposer, prepare) = prepared(10);
    assert_eq!(proposer.reply(prepare, 0, None), Action::Wait);
    let failure = Failure { uncertain: false, received: 0, required: 2 };
    assert_eq!(proposer.clone().expire(), failure);
    assert_eq!(proposer.reply(prepare, 1, None), Action::Failed(failure));
}
