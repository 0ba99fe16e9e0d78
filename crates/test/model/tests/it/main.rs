//! The model's own rules, each in the smallest history that shows it.

mod conditional;
mod linear;

use std::rc::Rc;

use model::{
    Clock, Column, ColumnType, Effect, Partition, Scalar, ScalarType, Seen, SeenRow, Shape, Slice, Value,
    Verdict, Write,
};

const A: u32 = 1;
const SET: u32 = 2;

fn shape() -> Shape {
    let column = |id, name: &str, ty| Column { id, name: name.to_owned(), ty, is_static: false };
    Shape {
        partition_key: vec![ScalarType::Int],
        clustering: vec![(ScalarType::Int, false)],
        columns: vec![
            column(A, "a", ColumnType::Scalar(ScalarType::Bigint)),
            column(SET, "s", ColumnType::Set(ScalarType::Int)),
        ],
    }
}

fn row() -> Vec<Scalar> {
    vec![Scalar::Int(1)]
}

fn cell(value: Option<i64>, ttl: Option<u32>) -> Effect {
    Effect::Cell { place: Some(row()), column: A, value: value.map(Scalar::Int), ttl }
}

fn element(number: i64) -> Effect {
    let value = Some(Scalar::Blob(Vec::new()));
    Effect::Element { place: Some(row()), column: SET, path: Scalar::Int(number), value, ttl: None }
}

/// A history in which each write is acknowledged before the next is begun, except unknown ones.
struct History(Partition, u64);

impl History {
    fn new() -> Self {
        Self(Partition::default(), 0)
    }

    fn begin(&mut self, timestamp: i64, effects: Vec<Effect>) -> u64 {
        self.1 += 1;
        let write = Write { id: self.1, timestamp, clock: (100, 100), text: String::new(), effects };
        self.0.begin(Rc::new(write), self.1 * 10);
        self.1
    }

    fn done(&mut self, timestamp: i64, effects: Vec<Effect>) -> &mut Self {
        let id = self.begin(timestamp, effects);
        self.0.acknowledge(id, id * 10 + 5, (100, 100));
        self
    }

    fn judge(&self, seen: SeenRow, now: i64) -> Verdict {
        let clock = Clock { since: 1_000_000, now: (now, now), latest: now };
        self.0.judge(&shape(), &Some(row()), &seen, &[A, SET], clock)
    }

    fn shows(&self, seen: SeenRow) -> bool {
        matches!(self.judge(seen, 100), Verdict::Right(_))
    }
}

fn with(a: Option<i64>, set: &[i64]) -> SeenRow {
    let mut seen = Seen::new();
    if let Some(a) = a {
        seen.insert(A, Value::Scalar(Scalar::Int(a)));
    }
    if !set.is_empty() {
        seen.insert(SET, Value::Set(set.iter().map(|number| Scalar::Int(*number)).collect()));
    }
    SeenRow::Present(seen)
}

#[test]
fn the_later_timestamp_wins_whatever_came_first() {
    let mut history = History::new();
    history.done(20, vec![cell(Some(1), None)]).done(10, vec![cell(Some(2), None)]);
    assert!(history.shows(with(Some(1), &[])));
    assert!(!history.shows(with(Some(2), &[])) && !history.shows(SeenRow::Absent));
}

#[test]
fn at_a_tie_a_deletion_wins_then_the_larger_value() {
    let mut history = History::new();
    history.done(10, vec![cell(Some(1), None)]).done(10, vec![cell(Some(2), None)]);
    assert!(history.shows(with(Some(2), &[])));
    history.done(10, vec![cell(None, None)]);
    assert!(history.shows(SeenRow::Absent));
}

#[test]
fn a_row_lives_by_its_mark_or_a_value() {
    let mut history = History::new();
    history.done(10, vec![Effect::Mark(row(), None), cell(Some(1), None)]);
    history.done(20, vec![cell(None, None)]);
    assert!(history.shows(with(None, &[])) && !history.shows(SeenRow::Absent));
    let slice = Slice { from: Some((Scalar::Int(0), false)), ..Slice::default() };
    history.done(30, vec![Effect::Rows(slice)]);
    assert!(history.shows(SeenRow::Absent));
    history.done(30, vec![cell(Some(3), None)]);
    assert!(history.shows(SeenRow::Absent), "a deletion hides cells of its own timestamp");
}

#[test]
fn an_overwrite_keeps_its_own_elements_and_a_deletion_does_not() {
    let clear = || Effect::Clear { place: Some(row()), column: SET };
    let erase = || Effect::Erase { place: Some(row()), column: SET };
    let mut history = History::new();
    history.done(10, vec![element(1)]).done(20, vec![clear(), element(2)]);
    assert!(history.shows(with(None, &[2])));
    history.done(20, vec![erase()]);
    assert!(history.shows(SeenRow::Absent));
}

#[test]
fn expiry_is_an_interval() {
    let mut history = History::new();
    history.done(10, vec![cell(Some(1), Some(5))]);
    let shows = |seen: SeenRow, now| matches!(history.judge(seen, now), Verdict::Right(_));
    assert!(shows(with(Some(1), &[]), 104) && !shows(SeenRow::Absent, 104));
    assert!(shows(SeenRow::Absent, 105) && !shows(with(Some(1), &[]), 105));
}

#[test]
fn an_open_write_may_have_happened_and_an_observation_settles_it() {
    let mut history = History::new();
    history.done(10, vec![cell(Some(1), None)]);
    let open = history.begin(20, vec![cell(Some(2), None)]);
    history.0.unknown(open, (100, 100));
    assert!(history.shows(with(Some(1), &[])) && history.shows(with(Some(2), &[])));
    let Verdict::Right(proof) = history.judge(with(Some(2), &[]), 100) else { panic!("it is right") };
    assert!(proof.happened.contains(&open));
    history.0.settle(&[proof], 2_000).unwrap();
    assert!(!history.shows(with(Some(1), &[])));
    assert_eq!(history.0.unknown_count(), 0);
}

#[test]
fn a_write_that_is_there_in_part_is_found() {
    let mut history = History::new();
    let open = history.begin(20, vec![cell(Some(2), None), element(1)]);
    history.0.unknown(open, (100, 100));
    assert!(!history.shows(with(Some(2), &[])), "half of a row");
    let happened = model::Explained { happened: [open].into(), ..Default::default() };
    let refuted = model::Explained { not_happened: [open].into(), ..Default::default() };
    assert!(history.0.settle(&[happened, refuted], 2_000).is_err(), "one row of two");
}

#[test]
fn a_power_failure_takes_the_end_of_the_log_only() {
    let mut history = History::new();
    history.done(10, vec![cell(Some(1), None)]);
    history.done(20, vec![element(1)]).done(30, vec![element(2)]);
    history.0.forget_since(20);
    assert!(history.shows(with(Some(1), &[])) && history.shows(with(Some(1), &[1])));
    assert!(history.shows(with(Some(1), &[1, 2])));
    assert!(!history.shows(with(Some(1), &[2])), "the later one cannot be there without the earlier");
    assert!(!history.shows(with(None, &[1])), "a durable write is there");
}

#[test]
fn counts_add_up_with_any_choice_of_the_open_ones() {
    let add = |delta| vec![Effect::Add { place: Some(row()), column: A, delta }];
    let mut history = History::new();
    history.done(0, add(5));
    for delta in [10, 100] {
        let open = history.begin(0, add(delta));
        history.0.unknown(open, (100, 100));
    }
    for (count, right) in [(5, true), (15, true), (105, true), (115, true), (10, false), (120, false)] {
        assert_eq!(history.shows(with(Some(count), &[])), right, "{count}");
    }
}
