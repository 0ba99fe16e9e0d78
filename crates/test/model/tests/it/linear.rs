//! The judge of linearisability on histories whose judgement is known.

use std::collections::BTreeMap;

use model::linear::{
    Linearity, NEVER, Operation, Register, RegisterInput, RegisterOutput, check, check_each,
};

type Op = Operation<RegisterInput, RegisterOutput>;

fn op(invoked: u64, returned: u64, input: RegisterInput, output: RegisterOutput) -> Op {
    Operation { invoked, ended: returned, input, output: Some(output) }
}

fn lost(invoked: u64, input: RegisterInput) -> Op {
    Operation { invoked, ended: NEVER, input, output: None }
}

fn write(invoked: u64, returned: u64, value: i64) -> Op {
    op(invoked, returned, RegisterInput::Write(Some(value)), RegisterOutput::Written)
}

fn read(invoked: u64, returned: u64, value: Option<i64>) -> Op {
    op(invoked, returned, RegisterInput::Read, RegisterOutput::Value(value))
}

fn cas(expected: Option<i64>, new: i64) -> RegisterInput {
    RegisterInput::Cas { expected, new: Some(new) }
}

fn applied(invoked: u64, returned: u64, expected: Option<i64>, new: i64) -> Op {
    op(invoked, returned, cas(expected, new), RegisterOutput::Applied(true))
}

fn refused(invoked: u64, returned: u64, expected: Option<i64>, found: Option<i64>) -> Op {
    op(invoked, returned, cas(expected, 99), RegisterOutput::Refused(found))
}

fn is_linear(history: &[Op]) -> bool {
    match check(&Register, history) {
        Linearity::Linear(order) => {
            // The order explains itself: no operation that ended comes behind one that began later.
            for (place, at) in order.iter().enumerate() {
                let ends = |one: &usize| history[*one].ended;
                assert!(order[place + 1..].iter().all(|later| ends(later) >= history[*at].invoked));
            }
            true
        }
        Linearity::Broken(_) => false,
        Linearity::Unknown => panic!("too many places for {} operations", history.len()),
    }
}

#[test]
fn one_after_the_other() {
    assert!(is_linear(&[]));
    assert!(is_linear(&[read(1, 2, None), write(3, 4, 1), read(5, 6, Some(1))]));
    assert!(!is_linear(&[write(1, 2, 1), read(3, 4, None)]), "a read that is stale");
    assert!(!is_linear(&[write(1, 2, 1), write(3, 4, 2), read(5, 6, Some(1))]));
    assert!(!is_linear(&[read(1, 2, Some(7))]), "a value out of nowhere");
}

#[test]
fn overlapping_operations_may_come_in_either_order() {
    assert!(is_linear(&[write(1, 10, 1), read(2, 3, None), read(4, 5, Some(1))]));
    assert!(!is_linear(&[write(1, 10, 1), read(2, 3, Some(1)), read(4, 5, None)]), "a read that goes back");
    assert!(is_linear(&[write(1, 10, 1), write(1, 10, 2), read(11, 12, Some(1))]));
    assert!(is_linear(&[write(1, 10, 1), write(1, 10, 2), read(11, 12, Some(2))]));
    assert!(!is_linear(&[write(1, 10, 1), write(1, 10, 2), read(11, 12, Some(1)), read(13, 14, Some(2)),]));
}

#[test]
fn of_two_conditional_writes_one_is_applied() {
    assert!(is_linear(&[applied(1, 10, None, 1), refused(2, 9, None, Some(1))]));
    assert!(!is_linear(&[applied(1, 10, None, 1), applied(2, 9, None, 2)]));
    assert!(is_linear(&[applied(1, 10, None, 1), applied(2, 9, Some(1), 2), read(11, 12, Some(2))]));
    assert!(!is_linear(&[applied(1, 2, None, 1), refused(3, 4, Some(1), Some(1))]));
    assert!(!is_linear(&[applied(3, 4, None, 1), refused(1, 2, None, Some(1))]), "refused by the future");
}

#[test]
fn an_undetermined_operation_may_have_happened_or_not_but_only_once_and_not_before_it_began() {
    let unknown = lost(3, cas(None, 1));
    assert!(is_linear(&[unknown.clone(), read(5, 6, None)]));
    assert!(is_linear(&[unknown.clone(), read(5, 6, Some(1))]));
    assert!(is_linear(&[unknown.clone(), read(5, 6, None), read(7, 8, Some(1))]), "it may come late");
    assert!(!is_linear(&[unknown.clone(), read(5, 6, Some(1)), read(7, 8, None)]));
    assert!(!is_linear(&[read(1, 2, Some(1)), unknown.clone()]), "before it began");
    assert!(!is_linear(&[
        unknown,
        applied(5, 6, Some(1), 2),
        applied(7, 8, Some(2), 3),
        applied(9, 10, Some(1), 4),
    ]));
}

#[test]
fn an_undetermined_operation_may_be_over_at_a_time() {
    let until = |ended| Op { ended, ..lost(3, cas(None, 1)) };
    let history = |ended| [until(ended), read(5, 6, None), read(7, 8, Some(1))];
    assert!(!is_linear(&history(4)), "it can no longer happen after the first read began");
    assert!(is_linear(&history(6)));
    assert!(is_linear(&[until(4), read(5, 6, None), read(7, 8, None)]));
    assert!(is_linear(&[until(4), read(5, 6, Some(1))]));
}

/// A long history that is right, with many operations at once; and the same with one answer that is not.
#[test]
fn long_histories_are_judged() {
    let mut history = Vec::new();
    for round in 0..60_i64 {
        let time = round as u64 * 10;
        let before = (round > 0).then_some(round - 1);
        history.push(applied(time, time + 9, before, round));
        for client in 0..5 {
            history.push(refused(time + client, time + 10 + client, Some(-1), Some(round)));
        }
        if round % 7 == 0 {
            history.push(lost(time + 2, cas(Some(-5), 1000 + round)));
        }
    }
    assert!(is_linear(&history));
    let last = history.len() - 1;
    history[last] = read(605, 606, Some(3));
    assert!(!is_linear(&history));
}

#[test]
fn the_partition_that_is_broken_is_named() {
    let mut histories = BTreeMap::new();
    histories.insert("a", vec![write(1, 2, 1), read(3, 4, Some(1))]);
    assert_eq!(check_each(&Register, &histories), Ok(()));
    histories.insert("b", vec![write(1, 2, 1), read(3, 4, Some(2))]);
    histories.insert("c", vec![read(1, 2, None)]);
    assert_eq!(check_each(&Register, &histories), Err(("b", Linearity::Broken(vec![0]))));
}
