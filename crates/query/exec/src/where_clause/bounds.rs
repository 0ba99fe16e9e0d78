//! From restrictions and bound values to the bounds of a read: partitions and ranges of rows.

use bytes::Bytes;
use mutation::{Bound, DecoratedKey, PartitionRange, RingPosition, RowRange, Side, Slices};
use replica::Keys;
use schema::{Column, Table};
use smallvec::SmallVec;
use types::CqlType;
use types::elements::{Elements, Fields};

use super::choice::{Choice, TupleChoice, TupleValue};
use super::filter::in_values;
use super::rows::{RowRestriction, SliceEnd, TokenRange};
use crate::error::{Result, invalid};
use crate::expr::{Env, Value};
use crate::keys::{COMPONENT_LEN_MAX, check_component, check_values};

/// More combinations of `IN` values than this are refused: each is a partition or a range to read.
pub const COMBINATIONS_MAX: usize = 65_536;

/// Clustering keys that a statement names; most name one.
pub type Clusterings = SmallVec<[mutation::Clustering; 1]>;

/// A prefix of key values.
pub type Prefix = SmallVec<[Bytes; 2]>;

/// The partition keys that the choices make: every combination, in the order of their values, none twice.
///
/// # Errors
/// [`ExecError::Invalid`](crate::ExecError::Invalid) when a value is null or unset, a key is empty or too long, or IN
/// makes too many combinations; as [`Expr::eval`](crate::expr::Expr::eval).
pub fn partition_keys(table: &Table, choices: &[Choice], env: &Env<'_>) -> Result<Keys> {
    if let [Choice::One(expr)] = choices {
        let key = match expr.eval(env)? {
            Value::Set(bytes) => bytes,
            other => return key_refused(&other, &table.partition_key()[0].name),
        };
        let mut keys = Keys::new();
        keys.push(checked_key(key)?);
        return Ok(keys);
    }
    let mut combinations: Vec<Prefix> = vec![Prefix::new()];
    for (choice, column) in choices.iter().zip(table.partition_key()) {
        let mut values = match choice {
            Choice::One(expr) => match expr.eval(env)? {
                Value::Set(bytes) => vec![bytes],
                other => return key_refused(&other, &column.name),
            },
            _ => in_values(choice, &column.name, env, false)?,
        };
        values.sort_by(|a, b| column.ty.compare(a, b));
        values.dedup();
        combinations = extend(combinations, &values)?;
    }
    let mut keys = Keys::with_capacity(combinations.len());
    for parts in combinations {
        check_values(&parts)?;
        keys.push(match parts.as_slice() {
            [single] => checked_key(single.clone())?,
            parts => {
                let parts: SmallVec<[&[u8]; 4]> = parts.iter().map(|part| &**part).collect();
                checked_key(DecoratedKey::compose(&parts))?
            }
        });
    }
    Ok(keys)
}

/// The combinations that the INs of a partition key make, equal ones included; none without an IN.
///
/// # Errors
/// As [`partition_keys`], which refuses more than there may be.
pub fn partition_key_product(table: &Table, choices: &[Choice], env: &Env<'_>) -> Result<Option<u64>> {
    let mut product = None;
    for (choice, column) in choices.iter().zip(table.partition_key()).filter(|(choice, _)| !choice.is_one()) {
        let values = in_values(choice, &column.name, env, false)?.len() as u64;
        product = Some(product.unwrap_or(1u64).saturating_mul(values));
    }
    Ok(product)
}

/// The combinations that the INs of clustering columns make, equal ones included; none without an IN.
///
/// # Errors
/// As [`slices`], which refuses more than there may be.
pub fn clustering_product(table: &Table, rows: &[RowRestriction], env: &Env<'_>) -> Result<Option<u64>> {
    let (mut product, mut first) = (None, 0);
    for restriction in rows {
        let (is_in, width) = match restriction {
            RowRestriction::Single(choice) => (!choice.is_one(), 1),
            RowRestriction::Multi(width, choice) => (!matches!(choice, TupleChoice::One(_)), *width),
            RowRestriction::Slice { .. } => (false, 0),
        };
        if is_in {
            let values = values_of(table, first, restriction, env)?.len() as u64;
            product = Some(product.unwrap_or(1u64).saturating_mul(values));
        }
        first += width;
    }
    Ok(product)
}

/// The key with its token, unless it is empty or too long.
///
/// # Errors
/// [`ExecError::Invalid`](crate::ExecError::Invalid) when the key is empty or too long.
pub fn checked_key(key: Bytes) -> Result<DecoratedKey> {
    if key.is_empty() {
        return invalid!("Key may not be empty");
    }
    check_component(key.len())?;
    Ok(DecoratedKey::new(key))
}

fn key_refused<T>(value: &Value, column: &str) -> Result<T> {
    match value {
        Value::Unset => invalid!("Invalid unset value for column {column}"),
        _ => invalid!("Invalid null value in condition for column {column}"),
    }
}

fn too_many<T>() -> Result<T> {
    invalid!(
        "The IN restrictions make more than {COMBINATIONS_MAX} combinations of key values; split the query"
    )
}

/// Refuses a write that names more rows, of all its partitions together, than one may.
///
/// # Errors
/// [`ExecError::Invalid`](crate::ExecError::Invalid) when there are more than [`COMBINATIONS_MAX`].
pub fn check_product(partitions: usize, rows: usize) -> Result<()> {
    match partitions.saturating_mul(rows) > COMBINATIONS_MAX {
        true => too_many(),
        false => Ok(()),
    }
}

fn extend(combinations: Vec<Prefix>, values: &[Bytes]) -> Result<Vec<Prefix>> {
    if combinations.len().saturating_mul(values.len()) > COMBINATIONS_MAX {
        return too_many();
    }
    let mut out = Vec::with_capacity(combinations.len() * values.len());
    for prefix in combinations {
        for value in values {
            let mut longer = prefix.clone();
            longer.push(value.clone());
            out.push(longer);
        }
    }
    Ok(out)
}

/// The part of the ring that token restrictions leave; none when it is empty.
///
/// # Errors
/// [`ExecError::Invalid`](crate::ExecError::Invalid) when a token is null, unset or empty.
pub fn token_range(range: &TokenRange, env: &Env<'_>) -> Result<Option<PartitionRange>> {
    let token = |expr: &crate::expr::Expr| match expr.eval(env)? {
        Value::Set(bytes) => match <[u8; 8]>::try_from(&*bytes) {
            Ok(bytes) => Ok(i64::from_be_bytes(bytes)),
            Err(_) => invalid!("Invalid empty value for a token"),
        },
        Value::Null => invalid!("Invalid null token value"),
        Value::Unset => invalid!("Invalid unset value for partition key token"),
    };
    let start = match &range.start {
        None => PartitionRange::all().start,
        Some((expr, true)) => RingPosition::BeforeToken(token(expr)?),
        Some((expr, false)) => RingPosition::AfterToken(token(expr)?),
    };
    let end = match &range.end {
        None => PartitionRange::all().end,
        Some((expr, inclusive)) => match (token(expr)?, *inclusive) {
            // The smallest token stands for the end of the ring, as drivers that split it have it.
            (i64::MIN, _) => PartitionRange::all().end,
            (token, true) => RingPosition::AfterToken(token),
            (token, false) => RingPosition::BeforeToken(token),
        },
    };
    let order = |position: &RingPosition| (position.token(), matches!(position, RingPosition::AfterToken(_)));
    Ok((order(&start) < order(&end)).then_some(PartitionRange { start, end }))
}

/// The ranges of rows that restrictions of the clustering columns leave.
///
/// # Errors
/// [`ExecError::Invalid`](crate::ExecError::Invalid) when a value is null or unset, or IN makes too many combinations; as [`Expr::eval`](crate::expr::Expr::eval).
pub fn slices(table: &Table, rows: &[RowRestriction], env: &Env<'_>) -> Result<Slices> {
    ranges_of(table, rows, TooLong::MatchesNothing, env)
}

/// The handling of a clustering value with more bytes than a row can have.
#[derive(Clone, Copy, PartialEq)]
enum TooLong {
    /// A write is refused.
    Refused,
    /// A read finds no row with it.
    MatchesNothing,
}

fn ranges_of(table: &Table, rows: &[RowRestriction], too_long: TooLong, env: &Env<'_>) -> Result<Slices> {
    if rows.is_empty() {
        return Ok(Slices::all());
    }
    if let Some(range) = single_range(table, rows, env)? {
        return Ok(Slices::new(vec![range]));
    }
    let mut prefixes: Vec<Prefix> = vec![Prefix::new()];
    for restriction in rows {
        let Some(first) = prefixes.first().map(|prefix| prefix.len()) else {
            return Ok(Slices::none());
        };
        match restriction {
            RowRestriction::Single(_) | RowRestriction::Multi(..) => {
                let tuples = values_of(table, first, restriction, env)?;
                if prefixes.len().saturating_mul(tuples.len()) > COMBINATIONS_MAX {
                    return too_many();
                }
                let mut longer = Vec::with_capacity(prefixes.len() * tuples.len());
                for prefix in &prefixes {
                    longer.extend(
                        tuples.iter().map(|tuple| prefix.iter().chain(tuple).cloned().collect::<Prefix>()),
                    );
                }
                prefixes = longer;
            }
            RowRestriction::Slice { start, end, except } => {
                let without = except
                    .iter()
                    .map(|values| values_of(table, first, values, env))
                    .collect::<Result<Vec<_>>>()?
                    .concat();
                if prefixes.len().saturating_mul(without.len()) > COMBINATIONS_MAX {
                    return too_many();
                }
                check_prefixes(&mut prefixes, too_long)?;
                let mut ranges = Vec::new();
                for prefix in &prefixes {
                    let within = slice_of(table, prefix, [start.as_ref(), end.as_ref()], too_long, env)?;
                    match without.is_empty() {
                        true => ranges.extend(within),
                        false => ranges.extend(intersect(&within, &all_but(table, prefix, &without))),
                    }
                }
                return Ok(Slices::new(ranges));
            }
        }
    }
    check_prefixes(&mut prefixes, too_long)?;
    let range = |prefix: &Prefix| {
        let values: SmallVec<[Option<&[u8]>; 4]> = prefix.iter().map(|value| Some(&**value)).collect();
        RowRange {
            start: Bound::new(table, &values, Side::Before),
            end: Bound::new(table, &values, Side::After),
        }
    };
    Ok(Slices::new(prefixes.iter().map(range).collect()))
}

/// Refuses values that no row can have, or leaves out the prefixes with one.
fn check_prefixes(prefixes: &mut Vec<Prefix>, too_long: TooLong) -> Result<()> {
    match too_long {
        TooLong::Refused => prefixes.iter().try_for_each(|prefix| check_values(prefix)),
        TooLong::MatchesNothing => {
            prefixes.retain(|prefix| prefix.iter().all(|value| value.len() <= COMPONENT_LEN_MAX));
            Ok(())
        }
    }
}

/// [`slices`] of rows to delete: an end that is null, above which are all rows for a SELECT, is refused.
///
/// # Errors
/// As [`slices`], and when a value is too long.
pub fn deleted_slices(table: &Table, rows: &[RowRestriction], env: &Env<'_>) -> Result<Slices> {
    let mut at = 0;
    for row in rows {
        match row {
            RowRestriction::Single(_) => at += 1,
            RowRestriction::Multi(width, _) => at += width,
            RowRestriction::Slice { start, end, .. } => {
                for end in [start, end].into_iter().flatten() {
                    if let TupleValue::Parts(exprs) = &end.value
                        && let [expr] = exprs.as_slice()
                        && expr.eval(env)? == Value::Null
                    {
                        return key_refused(&Value::Null, &table.clustering()[at].name);
                    }
                }
            }
        }
    }
    ranges_of(table, rows, TooLong::Refused, env)
}

/// The values of `=` and `IN` for the columns from `first` on.
fn values_of(
    table: &Table,
    first: usize,
    restriction: &RowRestriction,
    env: &Env<'_>,
) -> Result<Vec<Prefix>> {
    match restriction {
        RowRestriction::Single(choice) => {
            let name = &table.clustering()[first].name;
            let values = match choice {
                Choice::One(expr) => match expr.eval(env)? {
                    Value::Set(bytes) => vec![bytes],
                    other => return key_refused(&other, name),
                },
                _ => in_values(choice, name, env, false)?,
            };
            Ok(values.into_iter().map(|value| Prefix::from_iter([value])).collect())
        }
        RowRestriction::Multi(width, choice) => {
            let columns = &table.clustering()[first..][..*width];
            let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
            tuples(choice, &names, env)
        }
        RowRestriction::Slice { .. } => Ok(Vec::new()),
    }
}

/// The ranges of rows with `prefix` that have none of these values behind it.
fn all_but(table: &Table, prefix: &Prefix, values: &[Prefix]) -> Vec<RowRange> {
    let range = |values: &[Option<&[u8]>]| RowRange {
        start: Bound::new(table, values, Side::Before),
        end: Bound::new(table, values, Side::After),
    };
    let before: SmallVec<[Option<&[u8]>; 4]> = prefix.iter().map(|value| Some(&**value)).collect();
    let mut points: Vec<RowRange> = values
        .iter()
        .map(|tuple| {
            let key: SmallVec<[Option<&[u8]>; 4]> =
                before.iter().copied().chain(tuple.iter().map(|value| Some(&**value))).collect();
            range(&key)
        })
        .collect();
    points.sort_by(|a, b| a.start.cmp(&b.start));
    let whole = range(&before);
    let mut out = Vec::with_capacity(points.len() + 1);
    let mut start = whole.start;
    for point in points {
        // A point may lie within the one before it, when their widths differ.
        if point.start > start {
            out.push(RowRange { start, end: point.start });
            start = point.end;
        } else if point.end > start {
            start = point.end;
        }
    }
    out.push(RowRange { start, end: whole.end });
    out
}

/// The range of rows with one value in each of the columns: that of most statements. None of other restrictions, and where a value is longer
/// than a row's can be.
fn single_range(table: &Table, rows: &[RowRestriction], env: &Env<'_>) -> Result<Option<RowRange>> {
    let mut values = Prefix::new();
    for (row, column) in rows.iter().zip(table.clustering()) {
        let RowRestriction::Single(Choice::One(expr)) = row else { return Ok(None) };
        match expr.eval(env)? {
            Value::Set(value) => values.push(value),
            other => return key_refused(&other, &column.name),
        }
    }
    if values.iter().any(|value| value.len() > COMPONENT_LEN_MAX) {
        return Ok(None);
    }
    let values: SmallVec<[Option<&[u8]>; 4]> = values.iter().map(|value| Some(&**value)).collect();
    Ok(Some(RowRange {
        start: Bound::new(table, &values, Side::Before),
        end: Bound::new(table, &values, Side::After),
    }))
}

/// The place of a tuple in a relation, which decides the words about its nulls, as in Cassandra.
#[derive(Clone, Copy)]
enum TuplePlace {
    Equal,
    In,
    Slice,
}

/// The values of a tuple, one a column.
fn tuple_parts(value: &TupleValue, names: &[&str], place: TuplePlace, env: &Env<'_>) -> Result<Prefix> {
    match value {
        TupleValue::Parts(exprs) => exprs
            .iter()
            .zip(names)
            .enumerate()
            .map(|(at, (expr, name))| match (expr.eval(env)?, place) {
                (Value::Set(bytes), _) => Ok(bytes),
                (Value::Null, _) => null_part(name, names, place),
                (Value::Unset, TuplePlace::Slice) if exprs.len() == 1 => key_refused(&Value::Unset, name),
                (Value::Unset, _) => invalid!("Invalid unset value for tuple field number {at}"),
            })
            .collect(),
        TupleValue::Whole(expr) => match expr.eval(env)? {
            Value::Set(bytes) => whole_tuple(&bytes, names, place),
            Value::Null => invalid!("Invalid null value for ({})", names.join(",")),
            Value::Unset => invalid!("Invalid unset value for tuple ({})", names.join(",")),
        },
    }
}

fn null_part<T>(name: &str, names: &[&str], place: TuplePlace) -> Result<T> {
    match place {
        TuplePlace::Equal => invalid!("Invalid null value for column {name}"),
        TuplePlace::In => null_in(names),
        TuplePlace::Slice => key_refused(&Value::Null, name),
    }
}

fn null_in<T>(names: &[&str]) -> Result<T> {
    invalid!("Invalid null value in condition for columns: [{}]", names.join(", "))
}

fn whole_tuple(bytes: &Bytes, names: &[&str], place: TuplePlace) -> Result<Prefix> {
    let mut fields = Fields::new(bytes);
    names
        .iter()
        .map(|name| match fields.next().transpose()?.flatten() {
            Some(field) => Ok(bytes.slice_ref(field)),
            None => null_part(name, names, place),
        })
        .collect()
}

fn tuples(choice: &TupleChoice, names: &[&str], env: &Env<'_>) -> Result<Vec<Prefix>> {
    match choice {
        TupleChoice::One(value) => Ok(vec![tuple_parts(value, names, TuplePlace::Equal, env)?]),
        TupleChoice::List(values) => {
            values.iter().map(|value| tuple_parts(value, names, TuplePlace::In, env)).collect()
        }
        TupleChoice::Marker(expr) => {
            let list = match expr.eval(env)? {
                Value::Set(list) => list,
                Value::Null => return invalid!("Invalid null value for IN restriction"),
                Value::Unset => return invalid!("Invalid unset value for in({})", names.join(",")),
            };
            let mut out = Vec::new();
            for element in Elements::of_list(&list)? {
                let Some(element) = element? else { return null_in(names) };
                out.push(whole_tuple(&list.slice_ref(element), names, TuplePlace::In)?);
            }
            Ok(out)
        }
    }
}

/// The ranges of rows with `prefix` between the ends of a slice.
fn slice_of(
    table: &Table,
    prefix: &Prefix,
    [start, end]: [Option<&SliceEnd>; 2],
    too_long: TooLong,
    env: &Env<'_>,
) -> Result<Vec<RowRange>> {
    let values: SmallVec<[Option<&[u8]>; 4]> = prefix.iter().map(|value| Some(&**value)).collect();
    let mut ranges = vec![RowRange {
        start: Bound::new(table, &values, Side::Before),
        end: Bound::new(table, &values, Side::After),
    }];
    for (end, greater) in [(start, true), (end, false)] {
        let Some(end) = end else { continue };
        let columns = &table.clustering()[prefix.len()..][..end.width];
        let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
        // A single column compared with null: nothing is less than it, and everything is greater.
        if !end.is_tuple
            && let TupleValue::Parts(exprs) = &end.value
            && let [expr] = exprs.as_slice()
            && expr.eval(env)? == Value::Null
        {
            if greater {
                continue;
            }
            return Ok(Vec::new());
        }
        let mut parts = tuple_parts(&end.value, &names, TuplePlace::Slice, env)?;
        let inclusive = match cut_long(&mut parts, columns, too_long)? {
            // Every value that a row can have and that begins so is less than the one that was cut.
            true => !greater,
            false => end.inclusive,
        };
        ranges = intersect(&ranges, &half(table, prefix, &parts, greater, inclusive));
    }
    Ok(ranges)
}

/// Cuts the first value that is longer than a row's can be down to that length, and drops the columns behind it: no
/// row is equal in that one. Whether there was any.
///
/// # Errors
/// [`ExecError::Invalid`](crate::ExecError::Invalid) when the statement writes, and for types whose order is not that
/// of their bytes.
fn cut_long(parts: &mut Prefix, columns: &[Column], too_long: TooLong) -> Result<bool> {
    let Some(at) = parts.iter().position(|part| part.len() > COMPONENT_LEN_MAX) else { return Ok(false) };
    let ordered_by_bytes = matches!(columns[at].ty, CqlType::Blob | CqlType::Text | CqlType::Ascii);
    if too_long == TooLong::Refused || !ordered_by_bytes {
        check_component(parts[at].len())?;
    }
    parts.truncate(at + 1);
    parts[at].truncate(COMPONENT_LEN_MAX);
    Ok(true)
}

/// The rows with `prefix` that lie on one side of a tuple: greater in the first column, or equal there and greater in
/// the second, and so on. (Where all columns run in one direction the ranges touch, and [`Slices::new`] joins them.)
fn half(table: &Table, prefix: &Prefix, tuple: &Prefix, greater: bool, inclusive: bool) -> Vec<RowRange> {
    let mut values: SmallVec<[Option<&[u8]>; 4]> = prefix.iter().map(|value| Some(&**value)).collect();
    let mut ranges = Vec::with_capacity(tuple.len());
    for (at, value) in tuple.iter().enumerate() {
        let descending = table.clustering()[values.len()].descending;
        let whole = (Bound::new(table, &values, Side::Before), Bound::new(table, &values, Side::After));
        values.push(Some(value));
        let takes_equal = inclusive && at + 1 == tuple.len();
        // In the stored order, "greater" lies behind the value unless the column runs downwards.
        let behind = greater != descending;
        let side = if behind == takes_equal { Side::Before } else { Side::After };
        let cut = Bound::new(table, &values, side);
        ranges.push(if behind {
            RowRange { start: cut, end: whole.1 }
        } else {
            RowRange { start: whole.0, end: cut }
        });
    }
    ranges
}

/// The common part of two sets of ranges.
fn intersect(left: &[RowRange], right: &[RowRange]) -> Vec<RowRange> {
    let mut out = Vec::new();
    for a in left {
        for b in right {
            let range =
                RowRange { start: (&a.start).max(&b.start).clone(), end: (&a.end).min(&b.end).clone() };
            if !range.is_empty() {
                out.push(range);
            }
        }
    }
    out
}

/// The clustering keys that restrictions of every clustering column by `=` and `IN` name, none twice.
///
/// # Errors
/// As [`slices`], and when a value is too long.
pub fn rows(table: &Table, rows: &[RowRestriction], env: &Env<'_>) -> Result<Clusterings> {
    let mut keys = Clusterings::new();
    for range in ranges_of(table, rows, TooLong::Refused, env)?.ranges() {
        let components: SmallVec<[Option<&[u8]>; 4]> = range.start.components().collect();
        keys.push(mutation::Clustering::new(table, &components));
    }
    Ok(keys)
}
