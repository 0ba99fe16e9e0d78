//! SELECT and the statements that change data.

use cql::ast::*;

use super::terms::*;
use super::{Entropy, text};

fn comparison(e: &mut Entropy) -> ComparisonOperator {
    e.of(&[
        ComparisonOperator::Equal,
        ComparisonOperator::NotEqual,
        ComparisonOperator::Less,
        ComparisonOperator::LessOrEqual,
        ComparisonOperator::Greater,
        ComparisonOperator::GreaterOrEqual,
    ])
}

fn in_values(e: &mut Entropy, value: fn(&mut Entropy) -> Term) -> InValues {
    if e.chance() { InValues::Marker(marker(e)) } else { InValues::List(e.list(0, value)) }
}

fn relation(e: &mut Entropy) -> Relation {
    let (target, predicate) = match e.below(9) {
        0..=3 => (Target::Column(column(e)), column_predicate(e)),
        4 => (Target::Element(column(e), term(e)), Predicate::Compare(comparison(e), term(e))),
        5 => (
            Target::Tuple(e.list(1, column)),
            match e.below(3) {
                0 => Predicate::Compare(comparison(e), tuple_or_marker(e)),
                1 => Predicate::In { negated: e.chance(), values: in_values(e, tuple_or_marker) },
                _ => Predicate::Between(tuple_or_marker(e), tuple_or_marker(e)),
            },
        ),
        6 => (
            Target::Token(e.list(1, column)),
            match e.chance() {
                false => Predicate::Compare(comparison(e), term(e)),
                true => Predicate::Between(term(e), term(e)),
            },
        ),
        7 => (Target::Relevance(column(e), term(e)), Predicate::Compare(comparison(e), term(e))),
        _ => (Target::Index(qualified(e)), Predicate::Expression(term(e))),
    };
    Relation { target, predicate, pos: Pos::default() }
}

fn column_predicate(e: &mut Entropy) -> Predicate {
    match e.below(7) {
        0 => Predicate::Compare(comparison(e), term(e)),
        1 => Predicate::In { negated: e.chance(), values: in_values(e, term) },
        2 => Predicate::Between(term(e), term(e)),
        3 => Predicate::Contains { negated: e.chance(), key: e.chance(), value: term(e) },
        4 => Predicate::Like(term(e)),
        5 => Predicate::Matches(term(e)),
        _ => Predicate::IsNotNull,
    }
}

pub fn filter(e: &mut Entropy, least: usize) -> Vec<Relation> {
    e.list(least, relation)
}

pub fn selection(e: &mut Entropy) -> Selection {
    if e.chance() {
        return Selection::All;
    }
    Selection::Selectors(e.list(1, |e| AliasedSelector { selector: selector(e), alias: e.maybe(ident) }))
}

fn timeout(e: &mut Entropy) -> Using {
    Using { timeout: e.maybe(duration_or_marker), ..Using::default() }
}

fn using(e: &mut Entropy) -> Using {
    Using {
        timestamp: e.maybe(integer_or_marker),
        ttl: e.maybe(integer_or_marker),
        timeout: e.maybe(duration_or_marker),
        concurrency: None,
    }
}

pub fn select(e: &mut Entropy) -> Select {
    Select {
        json: e.chance(),
        distinct: e.chance(),
        selection: selection(e),
        from: qualified(e),
        mutation_fragments: e.below(8) == 7,
        filter: filter(e, 0),
        group_by: e.list(0, selector),
        order_by: e.list(0, |e| {
            let by_text = e.chance();
            Ordering {
                column: column(e),
                ann_of: if by_text { None } else { e.maybe(term) },
                bm25: by_text.then(|| term(e)),
                direction: e.of(&[Direction::Ascending, Direction::Descending]),
            }
        }),
        per_partition_limit: e.maybe(integer_or_marker),
        limit: e.maybe(integer_or_marker),
        allow_filtering: e.chance(),
        bypass_cache: e.chance(),
        using: timeout(e),
    }
}

fn insert(e: &mut Entropy) -> Insert {
    let source = if e.chance() {
        InsertSource::Json {
            value: if e.chance() { JsonValue::Marker(marker(e)) } else { JsonValue::Text(text(e)) },
            default_unset: e.chance(),
        }
    } else {
        InsertSource::Values { columns: e.list(1, column), values: e.list(1, term) }
    };
    Insert { table: qualified(e), source, if_not_exists: e.chance(), using: using(e) }
}

fn assignment(e: &mut Entropy) -> Assignment {
    let operation = match e.below(6) {
        0 => Operation::Set(term(e)),
        1 => Operation::Add(term(e)),
        2 => Operation::Prepend(term(e)),
        3 => Operation::Subtract(term(e)),
        4 => Operation::SetElement(term(e), term(e)),
        _ => Operation::SetField(ident(e), term(e)),
    };
    Assignment { column: column(e), operation, pos: Pos::default() }
}

fn condition(e: &mut Entropy) -> Condition {
    match e.below(3) {
        0 => Condition::None,
        1 => Condition::Exists,
        _ => Condition::Relations(e.list(1, |e| {
            let target = match e.below(3) {
                0 => Target::Column(column(e)),
                1 => Target::Element(column(e), term(e)),
                _ => Target::Field(column(e), ident(e)),
            };
            let predicate = match e.below(3) {
                0 => Predicate::Compare(comparison(e), term(e)),
                1 if matches!(target, Target::Column(_)) => {
                    Predicate::Contains { negated: false, key: e.chance(), value: term(e) }
                }
                _ => Predicate::In { negated: false, values: in_values(e, term) },
            };
            Relation { target, predicate, pos: Pos::default() }
        })),
    }
}

fn update(e: &mut Entropy) -> Update {
    Update {
        table: qualified(e),
        using: using(e),
        assignments: e.list(1, assignment),
        filter: filter(e, 1),
        condition: condition(e),
    }
}

fn delete(e: &mut Entropy) -> Delete {
    Delete {
        targets: e.list(0, |e| match e.below(3) {
            0 => DeleteTarget::Column(column(e)),
            1 => DeleteTarget::Element(column(e), term(e)),
            _ => DeleteTarget::Field(column(e), ident(e)),
        }),
        table: qualified(e),
        using: Using { ttl: None, ..using(e) },
        filter: filter(e, 1),
        condition: condition(e),
    }
}

fn modification(e: &mut Entropy) -> Modification {
    match e.below(3) {
        0 => Modification::Insert(insert(e)),
        1 => Modification::Update(update(e)),
        _ => Modification::Delete(delete(e)),
    }
}

fn row_reference(e: &mut Entropy) -> RowReference {
    let part = match e.below(3) {
        0 => None,
        1 => Some(Box::new(ReferencePart::Field(ident(e)))),
        _ => Some(Box::new(ReferencePart::Element(integer_or_marker(e)))),
    };
    RowReference { row: ident(e), column: Some(column(e)), part }
}

fn transaction(e: &mut Entropy) -> Transaction {
    let returning = match e.below(3) {
        0 => None,
        1 => Some(Returning::References(e.list(1, row_reference))),
        _ => Some(Returning::Select(Box::new(select(e)))),
    };
    let conditions = e.list(0, |e| {
        let (target, predicate) = match e.below(3) {
            0 => (row_reference(e), Predicate::Compare(comparison(e), term(e))),
            1 => (RowReference { row: ident(e), column: None, part: None }, Predicate::IsNull),
            _ => (row_reference(e), Predicate::IsNotNull),
        };
        Relation { target: Target::Reference(target), predicate, pos: Pos::default() }
    });
    let mut updates = e.list(0, modification);
    if e.chance() {
        let reference = Term::new(TermKind::RowReference(row_reference(e)));
        let operation = Operation::Set(reference);
        updates.push(Modification::Update(Update {
            assignments: vec![Assignment { column: column(e), operation, pos: Pos::default() }],
            ..update(e)
        }));
    }
    Transaction { lets: e.list(0, |e| (ident(e), select(e))), returning, conditions, updates }
}

pub fn statement(e: &mut Entropy) -> Statement {
    match e.below(9) {
        0..=2 => Statement::Select(select(e)),
        3 => Statement::Insert(insert(e)),
        4 => Statement::Update(update(e)),
        5 => Statement::Delete(delete(e)),
        6 => Statement::Batch(Batch {
            kind: e.of(&[BatchKind::Logged, BatchKind::Unlogged, BatchKind::Counter]),
            using: using(e),
            statements: e.list(0, modification),
        }),
        7 => Statement::Transaction(transaction(e)),
        _ => match e.below(3) {
            0 => Statement::Truncate(Truncate { table: qualified(e), using: timeout(e) }),
            1 => Statement::Use(Use { keyspace: ident(e) }),
            _ => Statement::PruneView(PruneView {
                view: qualified(e),
                filter: filter(e, 0),
                using: Using { concurrency: e.maybe(integer_or_marker), ..timeout(e) },
            }),
        },
    }
}
