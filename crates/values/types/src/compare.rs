//! The order of serialised values: used by clustering, sets, maps and `ORDER BY`. It must agree with Cassandra's
//! comparators, or files written by one would be unsorted for the other.

use crate::decimal::Decimal;
use crate::elements::{Elements, Fields, VectorElements};
use crate::uuid::{SIGNED_BYTES, halves, time_order, uuid_order};
use crate::{CqlType, TypeError};
use std::cmp::Ordering;

impl CqlType {
    /// Compares two serialised, valid values as the type's comparator does. Empty values sort first. Bytes that are
    /// no value of the type compare as bytes, in some fixed order.
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            CqlType::Text
            | CqlType::Ascii
            | CqlType::Blob
            | CqlType::Inet
            | CqlType::Duration
            | CqlType::Date
            | CqlType::Time
            | CqlType::Custom(_) => a.cmp(b),
            CqlType::Int | CqlType::Bigint | CqlType::Timestamp | CqlType::Counter => signed(a, b),
            CqlType::Smallint | CqlType::Tinyint => signed(a, b),
            CqlType::Boolean => a.first().map(|byte| *byte != 0).cmp(&b.first().map(|byte| *byte != 0)),
            CqlType::Float => {
                match (a.try_into().map(f32::from_be_bytes), b.try_into().map(f32::from_be_bytes)) {
                    (Ok(x), Ok(y)) => float_order(f64::from(x), f64::from(y)),
                    _ => a.cmp(b),
                }
            }
            CqlType::Double => {
                match (a.try_into().map(f64::from_be_bytes), b.try_into().map(f64::from_be_bytes)) {
                    (Ok(x), Ok(y)) => float_order(x, y),
                    _ => a.cmp(b),
                }
            }
            CqlType::Uuid => match (halves(a), halves(b)) {
                (Some((a, a_low)), Some((b, b_low))) => uuid_order(a, a_low).cmp(&uuid_order(b, b_low)),
                _ => a.cmp(b),
            },
            CqlType::Timeuuid => match (halves(a), halves(b)) {
                (Some((a, a_low)), Some((b, b_low))) => {
                    let order = |high, low| (time_order(high), low ^ SIGNED_BYTES);
                    order(a, a_low).cmp(&order(b, b_low))
                }
                _ => a.cmp(b),
            },
            CqlType::Varint => varint(a, b),
            CqlType::Decimal => match (Decimal::read(a), Decimal::read(b)) {
                (Some(x), Some(y)) => x.cmp_value(&y),
                _ => a.cmp(b),
            },
            CqlType::List { element, .. } => {
                elements(Elements::of_list(a), Elements::of_list(b), [element, element])
            }
            CqlType::Set { element, .. } => {
                elements(Elements::of_set(a), Elements::of_set(b), [element, element])
            }
            CqlType::Map { key, value, .. } => {
                elements(Elements::of_map(a), Elements::of_map(b), [key, value])
            }
            CqlType::Tuple(types) => fields(types.iter(), a, b),
            CqlType::Udt { ty, .. } => fields(ty.fields.iter().map(|(_, field)| field), a, b),
            CqlType::Vector { element, dimension } => {
                let a = VectorElements::new(element, *dimension, a);
                let b = VectorElements::new(element, *dimension, b);
                vectors(element, a, b)
            }
        }
    }
}

/// Big-endian two's complement integers of one length; an empty one is the smallest.
fn signed(a: &[u8], b: &[u8]) -> Ordering {
    match (a, b) {
        ([x, a_rest @ ..], [y, b_rest @ ..]) => (*x as i8).cmp(&(*y as i8)).then_with(|| a_rest.cmp(b_rest)),
        _ => a.len().cmp(&b.len()),
    }
}

/// Java's `Double.compare`: -0.0 before 0.0, every NaN equal and last.
pub(crate) fn float_order(x: f64, y: f64) -> Ordering {
    match (x.is_nan(), y.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => x.total_cmp(&y),
    }
}

/// The bytes of an integer without needless leading sign bytes.
pub(crate) fn strip_sign_bytes(mut bytes: &[u8]) -> &[u8] {
    while let [first, second, ..] = bytes {
        let needless = (*first == 0 && *second < 0x80) || (*first == 0xff && *second >= 0x80);
        if !needless {
            break;
        }
        bytes = bytes.get(1..).unwrap_or_default();
    }
    bytes
}

fn varint(a: &[u8], b: &[u8]) -> Ordering {
    let (a, b) = (strip_sign_bytes(a), strip_sign_bytes(b));
    let (Some(x), Some(y)) = (a.first(), b.first()) else { return a.len().cmp(&b.len()) };
    match (*x >= 0x80, *y >= 0x80) {
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        // Of one sign the longer has the larger magnitude; of one length the bytes decide.
        (false, false) => a.len().cmp(&b.len()).then_with(|| a.cmp(b)),
        (true, true) => b.len().cmp(&a.len()).then_with(|| a.cmp(b)),
    }
}

type Walk<'a> = Result<Elements<'a>, TypeError>;

fn elements(a: Walk<'_>, b: Walk<'_>, types: [&CqlType; 2]) -> Ordering {
    let (mut a, mut b) = match (a, b) {
        (Ok(a), Ok(b)) => (a, b),
        (a, b) => return a.is_ok().cmp(&b.is_ok()),
    };
    let lengths = a.len().cmp(&b.len());
    let [even, odd] = types;
    for ty in [even, odd].into_iter().cycle() {
        let (Some(x), Some(y)) = (a.next(), b.next()) else { break };
        let order = nullable(ty, x.unwrap_or_default(), y.unwrap_or_default());
        if order.is_ne() {
            return order;
        }
    }
    lengths
}

fn nullable(ty: &CqlType, a: Option<&[u8]>, b: Option<&[u8]>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => ty.compare(a, b),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// Fields by position; trailing nulls are as good as absent.
fn fields<'t>(types: impl Iterator<Item = &'t CqlType>, a: &[u8], b: &[u8]) -> Ordering {
    if a.is_empty() || b.is_empty() {
        return (!a.is_empty()).cmp(&!b.is_empty());
    }
    let (mut a, mut b) = (Fields::new(a), Fields::new(b));
    for ty in types {
        let order = nullable(ty, field(&mut a), field(&mut b));
        if order.is_ne() {
            return order;
        }
    }
    let any_left =
        |fields: Fields<'_>| fields.into_iter().any(|field| field.is_ok_and(|field| field.is_some()));
    any_left(a).cmp(&any_left(b))
}

fn field<'a>(fields: &mut Fields<'a>) -> Option<&'a [u8]> {
    fields.next().and_then(Result::ok).flatten()
}

fn vectors(element: &CqlType, mut a: VectorElements<'_>, mut b: VectorElements<'_>) -> Ordering {
    loop {
        match (a.next(), b.next()) {
            (Some(Ok(x)), Some(Ok(y))) => {
                let order = element.compare(x, y);
                if order.is_ne() {
                    return order;
                }
            }
            (x, y) => return matches!(x, Some(Ok(_))).cmp(&matches!(y, Some(Ok(_)))),
        }
    }
}
