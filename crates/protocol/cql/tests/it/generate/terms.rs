//! Names, types, terms and selectors.

use cql::ast::*;

use super::{Entropy, name, text};

pub fn ident(e: &mut Entropy) -> Ident {
    Ident::new(name(e))
}

/// A column in DML, which may have no name.
pub fn column(e: &mut Entropy) -> Ident {
    if e.below(20) == 19 { Ident::new("") } else { ident(e) }
}

pub fn qualified(e: &mut Entropy) -> QualifiedName {
    let keyspace = e.maybe(name);
    QualifiedName::new(keyspace.as_deref(), name(e))
}

pub fn marker(e: &mut Entropy) -> Marker {
    Marker { index: 0, name: e.maybe(name), pos: Pos::default() }
}

pub fn constant(e: &mut Entropy) -> Constant {
    match e.below(8) {
        0 => Constant::Integer(e.of(&["1", "0", "-1", "007", "123456789012345678901234567890"]).to_owned()),
        1 => Constant::String(text(e)),
        2 => {
            let floats = ["1.5", "-1.", "1e10", "-2.5E-3", "1E+2", "NaN", "Infinity", "-Infinity"];
            Constant::Float(e.of(&floats).to_owned())
        }
        3 => Constant::Boolean(e.chance()),
        4 => Constant::Duration(e.of(&["1d", "-2h3m", "P1Y2M", "PT1S", "-P3W", "5\u{b5}s"]).to_owned()),
        5 => Constant::Uuid(
            e.of(&["550e8400-e29b-41d4-a716-446655440000", "ABCDEF01-e29b-41d4-a716-446655440000"])
                .to_owned(),
        ),
        _ => Constant::Hex(e.of(&["0x", "0xab", "0XCafe1"]).to_owned()),
    }
}

pub fn native(e: &mut Entropy) -> NativeType {
    e.of(&NativeType::ALL)
}

pub fn data_type(e: &mut Entropy) -> DataType {
    let leaf = |e: &mut Entropy| DataType::Native(native(e));
    e.nest(leaf, |e| match e.below(10) {
        0..=2 => DataType::Native(native(e)),
        3 => DataType::List(Box::new(data_type(e))),
        4 => DataType::Set(Box::new(data_type(e))),
        5 => DataType::Map(Box::new(data_type(e)), Box::new(data_type(e))),
        6 => DataType::Tuple(e.list(1, data_type)),
        7 => DataType::Vector(Box::new(data_type(e)), e.of(&[3, 0, -1, i32::MAX])),
        8 => match data_type(e) {
            DataType::Native(_) => DataType::Custom(text(e)),
            other => DataType::Frozen(Box::new(other)),
        },
        _ => DataType::UserDefined(qualified(e)),
    })
}

/// Operands joined from the left: products of signed operands, and sums of products.
fn sum<T>(e: &mut Entropy, operand: fn(&mut Entropy) -> T, join: fn(T, ArithmeticOperator, T) -> T) -> T {
    let product = |e: &mut Entropy| {
        let mut left = operand(e);
        for _ in 0..e.below(10).saturating_sub(7) {
            let operator =
                e.of(&[ArithmeticOperator::Multiply, ArithmeticOperator::Divide, ArithmeticOperator::Modulo]);
            left = join(left, operator, operand(e));
        }
        left
    };
    let mut left = product(e);
    for _ in 0..e.below(10).saturating_sub(7) {
        let operator = e.of(&[ArithmeticOperator::Add, ArithmeticOperator::Subtract]);
        left = join(left, operator, product(e));
    }
    left
}

pub fn term(e: &mut Entropy) -> Term {
    sum(e, signed_term, |left, operator, right| {
        Term::new(TermKind::Arithmetic(Box::new(left), operator, Box::new(right)))
    })
}

fn signed_term(e: &mut Entropy) -> Term {
    if e.below(8) == 7 { Term::new(TermKind::Negate(Box::new(simple_term(e)))) } else { simple_term(e) }
}

fn simple_term(e: &mut Entropy) -> Term {
    let leaf = |e: &mut Entropy| TermKind::Constant(constant(e));
    Term::new(e.nest(leaf, |e| match e.below(13) {
        0..=2 => TermKind::Constant(constant(e)),
        3 => TermKind::Null,
        4 => TermKind::Marker(marker(e)),
        5 => TermKind::List(e.list(0, term)),
        6 => TermKind::Set(e.list(0, term)),
        7 => TermKind::Map(e.list(1, |e| (key_term(e), term(e)))),
        8 => TermKind::UserType(e.list(1, |e| (ident(e), term(e)))),
        9 => TermKind::Tuple(e.list(1, term)),
        10 => TermKind::Function(FunctionCall { name: qualified(e), args: e.list(0, term) }),
        11 => TermKind::Cast(Box::new(term(e)), native(e)),
        _ => TermKind::TypeHint(data_type(e), Box::new(simple_term(e))),
    }))
}

/// A tuple or a marker.
pub fn tuple_or_marker(e: &mut Entropy) -> Term {
    Term::new(if e.chance() { TermKind::Marker(marker(e)) } else { TermKind::Tuple(e.list(1, term)) })
}

pub fn integer_or_marker(e: &mut Entropy) -> Term {
    Term::new(if e.chance() {
        TermKind::Marker(marker(e))
    } else {
        TermKind::Constant(Constant::Integer(e.of(&["1", "-5", "100"]).to_owned()))
    })
}

pub fn duration_or_marker(e: &mut Entropy) -> Term {
    Term::new(if e.chance() {
        TermKind::Marker(marker(e))
    } else {
        TermKind::Constant(Constant::Duration("5s".to_owned()))
    })
}

pub fn selector(e: &mut Entropy) -> Selector {
    sum(e, signed_selector, |left, operator, right| {
        Selector::new(SelectorKind::Arithmetic(Box::new(left), operator, Box::new(right)))
    })
}

fn signed_selector(e: &mut Entropy) -> Selector {
    if e.below(8) != 7 {
        return selector_with_parts(e);
    }
    let leaf = |e: &mut Entropy| Selector::new(SelectorKind::Column(ident(e)));
    e.nest(leaf, |e| Selector::new(SelectorKind::Negate(Box::new(signed_selector(e)))))
}

fn selector_with_parts(e: &mut Entropy) -> Selector {
    let base = simple_selector(e);
    // `(a)[0]` is a list with the type hint `a`.
    if ends_in_brackets(&base) { base } else { parts(e, base) }
}

fn parts(e: &mut Entropy, mut selector: Selector) -> Selector {
    for _ in 0..e.below(8).saturating_sub(5) {
        let inner = Box::new(selector);
        selector = Selector::new(match e.below(5) {
            0 | 1 => SelectorKind::Field(inner, ident(e)),
            2 => SelectorKind::Element(inner, term(e)),
            3 => SelectorKind::Slice(inner, Some(term(e)), e.maybe(term)),
            _ => SelectorKind::Slice(inner, None, Some(term(e))),
        });
    }
    selector
}

fn simple_selector(e: &mut Entropy) -> Selector {
    let leaf = |e: &mut Entropy| SelectorKind::Column(ident(e));
    Selector::new(e.nest(leaf, |e| match e.below(16) {
        0..=3 => SelectorKind::Column(ident(e)),
        4 => SelectorKind::Constant(constant(e)),
        5 => SelectorKind::Null,
        6 => SelectorKind::Marker(marker(e)),
        7 => SelectorKind::CountRows,
        8 => {
            let column = Selector::new(SelectorKind::Column(ident(e)));
            let metadata = e.of(&[CellMetadata::WriteTime, CellMetadata::MaxWriteTime, CellMetadata::Ttl]);
            SelectorKind::Metadata(metadata, Box::new(parts(e, column)))
        }
        9 => SelectorKind::Cast(Box::new(selector(e)), native(e)),
        10 => SelectorKind::Function(FunctionCall { name: qualified(e), args: e.list(0, selector) }),
        11 => SelectorKind::TypeHint(data_type(e), Box::new(simple_selector(e))),
        12 => SelectorKind::Tuple(e.list(1, selector)),
        13 => SelectorKind::List(e.list(0, selector)),
        14 => SelectorKind::Set(e.list(0, selector)),
        _ => SelectorKind::Map(e.list(1, |e| (key_selector(e), selector(e)))),
    }))
}

/// A key of a map. One that ends in `(x)` would take the colon after it for a bind marker with a type hint.
fn key_term(e: &mut Entropy) -> Term {
    fn ends_in_brackets(term: &Term) -> bool {
        match &term.kind {
            TermKind::Tuple(items) => items.len() == 1,
            TermKind::Arithmetic(_, _, last) | TermKind::Negate(last) | TermKind::TypeHint(_, last) => {
                ends_in_brackets(last)
            }
            _ => false,
        }
    }
    let key = term(e);
    if ends_in_brackets(&key) { Term::new(TermKind::Null) } else { key }
}

/// See [`key_term`].
fn key_selector(e: &mut Entropy) -> Selector {
    let key = selector(e);
    if ends_in_brackets(&key) { Selector::new(SelectorKind::Null) } else { key }
}

/// Whether the text of a selector ends in `(x)`.
fn ends_in_brackets(selector: &Selector) -> bool {
    match &selector.kind {
        SelectorKind::Tuple(items) => items.len() == 1,
        SelectorKind::Arithmetic(_, _, last)
        | SelectorKind::Negate(last)
        | SelectorKind::TypeHint(_, last) => ends_in_brackets(last),
        _ => false,
    }
}
