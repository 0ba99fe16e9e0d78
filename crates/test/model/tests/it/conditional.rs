//! A partition of conditional statements: its properties, and histories of it with a known verdict.

use model::conditional::{
    Cell, Change, Condition, ConditionalInput, ConditionalOutput, ConditionalPartition, ConditionalState,
    ConditionalView,
};
use model::linear::{Linearity, NEVER, Operation, Sequential, check};

type Op = Operation<ConditionalInput, ConditionalOutput>;

const A: usize = 0;
const B: usize = 1;

fn op(invoked: u64, ended: u64, input: ConditionalInput, output: ConditionalOutput) -> Op {
    Operation { invoked, ended, input, output: Some(output) }
}

fn transaction(conditions: &[Condition], changes: &[Change], shown: &[Cell]) -> ConditionalInput {
    ConditionalInput::Transaction {
        conditions: conditions.to_vec(),
        changes: changes.to_vec(),
        shown: shown.to_vec(),
    }
}

/// Two rows at once, if neither is there.
fn insert_both(value: i64) -> ConditionalInput {
    let set = |row, column| Change::Set(Cell::Regular(row, column), Some(value));
    let changes = [Change::Insert(0), set(0, A), Change::Insert(1), set(1, B)];
    transaction(&[Condition::NotExists(0), Condition::NotExists(1)], &changes, &[])
}

fn read(invoked: u64, ended: u64, first: Option<i64>, second: Option<i64>) -> Op {
    let rows = [first.map(|value| [Some(value), None]), second.map(|value| [None, Some(value)]), None];
    let view = ConditionalView { static_value: None, rows };
    op(invoked, ended, ConditionalInput::Read, ConditionalOutput::View(view))
}

fn is_linear(history: &[Op]) -> bool {
    matches!(check(&ConditionalPartition, history), Linearity::Linear(_))
}

#[test]
fn a_row_exists_while_it_is_inserted_or_has_a_value() {
    let mut state = ConditionalState::default();
    state.change(&Change::Set(Cell::Regular(0, A), Some(1)));
    assert!(state.holds(&Condition::Exists(0)), "an UPDATE makes a row");
    state.change(&Change::Set(Cell::Regular(0, A), None));
    assert!(state.holds(&Condition::NotExists(0)), "which goes with its last value");
    state.change(&Change::Insert(0));
    assert!(state.holds(&Condition::Exists(0)) && state.holds(&Condition::Equals(Cell::Regular(0, A), None)));
    assert_eq!(state.view().rows[0], Some([None, None]));
    state.change(&Change::Set(Cell::Static, Some(7)));
    state.change(&Change::Delete(0));
    assert_eq!(state.view(), ConditionalView { static_value: Some(7), ..ConditionalView::default() });
}

#[test]
fn a_refusal_shows_the_found_row() {
    let (state, _) = ConditionalPartition.apply(&ConditionalState::default(), &insert_both(5));
    let refused = transaction(
        &[Condition::Equals(Cell::Regular(0, A), Some(5)), Condition::Equals(Cell::Static, Some(1))],
        &[Change::Delete(0)],
        &[Cell::Regular(1, B), Cell::Static, Cell::Exists(2)],
    );
    let (after, output) = ConditionalPartition.apply(&state, &refused);
    assert_eq!((after, output), (state, ConditionalOutput::Refused(vec![Some(5), None, None])));
}

#[test]
fn a_batch_is_seen_wholly_or_not_at_all() {
    let both = op(1, 4, insert_both(5), ConditionalOutput::Applied);
    assert!(is_linear(&[both.clone(), read(2, 3, None, None), read(5, 6, Some(5), Some(5))]));
    assert!(!is_linear(&[both.clone(), read(2, 3, Some(5), None)]), "half of a batch");
    assert!(!is_linear(&[both.clone(), read(5, 6, None, Some(5))]), "the other half");
    let lost = Operation { ended: NEVER, output: None, ..both.clone() };
    assert!(is_linear(&[lost.clone(), read(5, 6, None, None)]));
    assert!(!is_linear(&[lost, read(5, 6, Some(5), Some(5)), read(7, 8, None, None)]));
    let again = op(5, 6, insert_both(6), ConditionalOutput::Applied);
    assert!(!is_linear(&[both.clone(), again.clone()]), "IF NOT EXISTS applied twice");
    let truncated = op(4, 5, ConditionalInput::Truncate, ConditionalOutput::Truncated);
    assert!(is_linear(&[both, truncated, again, read(7, 8, Some(6), Some(6))]));
}

#[test]
fn readings_that_may_come_late_do_not_multiply_the_search() {
    let mut history = Vec::new();
    for round in 0..10_u64 {
        let value = Some(round as i64);
        let changes = [Change::Set(Cell::Regular(0, A), value)];
        let input = transaction(&[], &changes, &[]);
        history.push(op(100 * round + 1, 100 * round + 90, input, ConditionalOutput::Applied));
        // Each value that may be there then, and may be placed at any time later.
        let seen = value.filter(|value| *value > 0).map(|value| value - 1);
        (0..5).for_each(|_| history.push(read(100 * round + 2, NEVER, seen, None)));
    }
    assert!(is_linear(&history));
    // Of a value that was never there alone: every order has to be refused.
    history.push(read(2, NEVER, Some(3), Some(3)));
    assert_eq!(
        std::mem::discriminant(&check(&ConditionalPartition, &history)),
        std::mem::discriminant(&Linearity::Broken(Vec::new()))
    );
}
