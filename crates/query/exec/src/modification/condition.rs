//! The IF clause: conditions on a row, resolved against the table, and whether a row that was read meets them.

use std::cmp::Ordering;

use bytes::Bytes;
use cql::ast::{
    ComparisonOperator, Condition, Ident, InValues, Predicate, Relation, Target, Term, TermKind, Using,
};
use schema::{Column, ColumnKind};
use types::CqlType;
use types::elements::{Elements, Fields};

use crate::error::{ExecError, Result, invalid};
use crate::expr::resolve::{Receiver, Resolver};
use crate::expr::row::{ColumnRef, RowView};
use crate::expr::{Env, Expr, Value};
use crate::where_clause::like::Wildcards;

/// The conditions of a statement on the rows that it would change.
#[derive(Clone, Debug, Default)]
pub enum Conditions {
    /// Nothing.
    #[default]
    None,
    /// `IF NOT EXISTS`
    NotExists,
    /// `IF EXISTS`
    Exists,
    /// `IF a = 1 AND …`; those on regular columns before those on static ones.
    Columns(Vec<ColumnCondition>),
}

/// A condition on a column, on an element of a collection or on a field of a user type.
#[derive(Clone, Debug)]
pub struct ColumnCondition {
    /// The column.
    pub column: ColumnRef,
    /// The part of it that is compared.
    part: Part,
    /// The request.
    test: Test,
    /// Type of the compared value.
    ty: CqlType,
}

#[derive(Clone, Debug)]
enum Part {
    Whole,
    Element(Expr),
    Field(usize),
}

#[derive(Clone, Debug)]
enum Test {
    Compare(ComparisonOperator, Expr),
    Between(Expr, Expr),
    In { negated: bool, values: Vec<Expr> },
    InMarker { negated: bool, list: Expr },
    Contains { negated: bool, value: Expr },
    ContainsKey { negated: bool, key: Expr },
    Like { column: String, pattern: Expr },
}

impl Conditions {
    /// Resolves the IF clause of an UPDATE or DELETE. A timestamp beside relations is refused before their columns are looked up; one
    /// beside EXISTS is refused after the rest of the statement, by the plan, as in Cassandra.
    ///
    /// # Errors
    /// [`ExecError::Invalid`](crate::ExecError::Invalid) when a relation names an unknown or key column, or an operator
    /// or value that its type does not have, or stands beside a timestamp.
    pub fn resolve(ast: &Condition, using: &Using, resolver: &mut Resolver<'_>) -> Result<Self> {
        let relations = match ast {
            Condition::None => return Ok(Self::None),
            Condition::Exists => return Ok(Self::Exists),
            Condition::Relations(relations) => relations,
        };
        check_unstamped(using)?;
        let mut columns = relations
            .iter()
            .map(|relation| ColumnCondition::resolve(relation, resolver))
            .collect::<Result<Vec<_>>>()?;
        columns.sort_by_key(|condition| condition.is_static());
        Ok(Self::Columns(columns))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    /// The conditions on columns.
    pub fn columns(&self) -> &[ColumnCondition] {
        match self {
            Self::Columns(columns) => columns,
            _ => &[],
        }
    }

    /// Whether a regular column is named.
    pub fn has_regular(&self) -> bool {
        self.columns().iter().any(|condition| !condition.is_static())
    }

    /// Whether a static column is named.
    pub fn has_static(&self) -> bool {
        self.columns().iter().any(ColumnCondition::is_static)
    }
}

/// Refuses a timestamp of a statement with an IF clause.
///
/// # Errors
/// [`ExecError::Invalid`](crate::ExecError::Invalid) when there is one.
pub fn check_unstamped(using: &Using) -> Result<()> {
    match using.timestamp {
        Some(_) => invalid!("Cannot provide custom timestamp for conditional updates"),
        None => Ok(()),
    }
}

impl ColumnCondition {
    /// Whether it is about the static row.
    pub fn is_static(&self) -> bool {
        self.column.kind == ColumnKind::Static
    }

    fn resolve(relation: &Relation, resolver: &mut Resolver<'_>) -> Result<Self> {
        let name = match &relation.target {
            Target::Column(name) | Target::Element(name, _) | Target::Field(name, _) => name,
            _ => return Err(ExecError::Syntax("a condition of IF names one column".to_owned())),
        };
        let column = resolver.column(&name.name)?;
        if column.ty.is_counter() {
            return invalid!("Conditions on counters are not supported");
        }
        let (part, receiver) = part(&relation.target, column, resolver)?;
        check_durations(&relation.predicate, &receiver.ty)?;
        let test = test(&relation.predicate, column, &receiver, resolver)?;
        if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
            return invalid!("PRIMARY KEY column '{}' cannot have IF conditions", column.name);
        }
        Ok(Self { column: ColumnRef::from(column), part, test, ty: receiver.ty.into_owned() })
    }

    /// The condition with its values.
    ///
    /// # Errors
    /// [`ExecError::Invalid`](crate::ExecError::Invalid) when a bound value is unset, or null where the operator takes
    /// none; as [`Expr::eval`](crate::expr::Expr::eval).
    pub fn bind<'a>(&'a self, env: &Env<'_>) -> Result<BoundCondition<'a>> {
        let part = match &self.part {
            Part::Whole => BoundPart::Whole,
            Part::Field(at) => BoundPart::Field(*at),
            Part::Element(key) => match key.eval(env)? {
                // An empty index is none; an empty key may be one.
                Value::Set(key) if !key.is_empty() || matches!(self.column.ty, CqlType::Map { .. }) => {
                    BoundPart::Element(key)
                }
                Value::Unset => return unset(),
                Value::Set(_) | Value::Null => {
                    let what = if matches!(self.column.ty, CqlType::Map { .. }) { "map" } else { "list" };
                    return invalid!("Invalid null value for {what} element access");
                }
            },
        };
        let equal = BoundTest::Compare(ComparisonOperator::Equal);
        let (negated, relation, values) = match &self.test {
            Test::Compare(operator, expr) => (false, BoundTest::Compare(*operator), vec![one(expr, env)?]),
            Test::Between(low, high) => (false, self.between(one(low, env)?, one(high, env)?)?, vec![None]),
            Test::Contains { negated, value } => (*negated, BoundTest::Contains, vec![one(value, env)?]),
            Test::ContainsKey { negated, key } => (*negated, BoundTest::ContainsKey, vec![one(key, env)?]),
            Test::In { negated, values } => (*negated, equal, in_list(values, env)?),
            Test::InMarker { negated, list } => (*negated, equal, in_marker(list, env)?),
            Test::Like { column, pattern } => {
                let pattern = one(pattern, env)?.map(|pattern| Wildcards::parse(&pattern, column));
                (false, BoundTest::Like(pattern.transpose()?), vec![None])
            }
        };
        Ok(BoundCondition { condition: self, part, relation, values, negated })
    }
}

impl ColumnCondition {
    /// The bounds of BETWEEN, the lower one first.
    fn between(&self, one: Option<Bytes>, other: Option<Bytes>) -> Result<BoundTest> {
        match (one, other) {
            (Some(one), Some(other)) if self.ty.compare(&one, &other).is_gt() => {
                Ok(BoundTest::Between(other, one))
            }
            (Some(one), Some(other)) => Ok(BoundTest::Between(one, other)),
            _ => null_comparison("BETWEEN"),
        }
    }
}

fn unset<T>() -> Result<T> {
    invalid!("Invalid 'unset' value in condition")
}

fn one(expr: &Expr, env: &Env<'_>) -> Result<Option<Bytes>> {
    match expr.eval(env)? {
        Value::Unset => unset(),
        value => Ok(value.into_bytes()),
    }
}

/// The values of `IN (a, b)`; those that are not set are left out.
fn in_list(exprs: &[Expr], env: &Env<'_>) -> Result<Vec<Option<Bytes>>> {
    let mut values = Vec::with_capacity(exprs.len());
    for expr in exprs {
        match expr.eval(env)? {
            Value::Unset => {}
            value => values.push(value.into_bytes()),
        }
    }
    Ok(values)
}

/// The values of `IN ?`.
fn in_marker(expr: &Expr, env: &Env<'_>) -> Result<Vec<Option<Bytes>>> {
    let list = match expr.eval(env)? {
        Value::Set(list) => list,
        Value::Null => return invalid!("Invalid null list in IN condition"),
        Value::Unset => return unset(),
    };
    let mut values = Vec::new();
    for element in Elements::of_list(&list)? {
        values.push(element?.map(|element| list.slice_ref(element)));
    }
    Ok(values)
}

/// The part of a column that a relation names, and its operand.
fn part<'a>(
    target: &Target,
    column: &'a Column,
    resolver: &mut Resolver<'_>,
) -> Result<(Part, Receiver<'a>)> {
    let name = &column.name;
    match target {
        Target::Element(_, key) => {
            let (key_receiver, value) = match &column.ty {
                CqlType::List { element, .. } => {
                    (Receiver::owned(format!("idx({name})"), CqlType::Int), element)
                }
                CqlType::Map { key, value, .. } => (Receiver::new(format!("key({name})"), key), value),
                CqlType::Set { .. } => {
                    return invalid!("Invalid element access syntax for set column {name}");
                }
                _ => return invalid!("Invalid element access syntax for non-collection column {name}"),
            };
            let key = resolver.term(key, &key_receiver)?;
            Ok((Part::Element(key), Receiver::new(format!("value({name})"), value)))
        }
        Target::Field(_, field) => field_part(field, column),
        _ => Ok((Part::Whole, Receiver::column(column))),
    }
}

fn field_part<'a>(field: &Ident, column: &'a Column) -> Result<(Part, Receiver<'a>)> {
    let CqlType::Udt { ty, .. } = &column.ty else {
        return invalid!("Invalid field access syntax for non-UDT column {}", column.name);
    };
    match ty.field_index(&field.name) {
        Some(at) => {
            let receiver = Receiver::new(format!("{}.{}", column.name, field.name), &ty.fields[at].1);
            Ok((Part::Field(at), receiver))
        }
        None => invalid!("Unknown field {} for column {}", field.name, column.name),
    }
}

/// Durations have no order.
fn check_durations(predicate: &Predicate, ty: &CqlType) -> Result<()> {
    use ComparisonOperator::{Greater, GreaterOrEqual, Less, LessOrEqual};
    let operator = match predicate {
        Predicate::Compare(operator @ (Less | LessOrEqual | Greater | GreaterOrEqual), _) => {
            operator.symbol()
        }
        Predicate::Between(..) => "BETWEEN",
        _ => return Ok(()),
    };
    if !ty.is_or_contains_duration() {
        return Ok(());
    }
    match ty {
        CqlType::Duration => {
            invalid!("Slice conditions ( {operator} ) are not supported on durations")
        }
        CqlType::Tuple(_) => invalid!("Slice conditions are not supported on tuples containing durations"),
        CqlType::Udt { .. } => invalid!("Slice conditions are not supported on UDTs containing durations"),
        _ => invalid!("Slice conditions are not supported on collections containing durations"),
    }
}

fn test(
    predicate: &Predicate,
    column: &Column,
    receiver: &Receiver<'_>,
    resolver: &mut Resolver<'_>,
) -> Result<Test> {
    let name = &column.name;
    match predicate {
        Predicate::Compare(operator, term) => Ok(Test::Compare(*operator, resolver.term(term, receiver)?)),
        Predicate::Between(low, high) => {
            Ok(Test::Between(resolver.term(low, receiver)?, resolver.term(high, receiver)?))
        }
        Predicate::Like(pattern) => match &*receiver.ty {
            CqlType::Text | CqlType::Ascii => {
                Ok(Test::Like { column: name.clone(), pattern: resolver.term(pattern, receiver)? })
            }
            _ => invalid!("LIKE is allowed only on string types, which {} is not", receiver.name),
        },
        Predicate::In { negated, values: InValues::List(terms) } => {
            let all = terms.iter().map(|term| resolver.term(term, receiver));
            Ok(Test::In { negated: *negated, values: all.collect::<Result<_>>()? })
        }
        Predicate::In { negated, values: InValues::Marker(marker) } => {
            let term = Term::new(TermKind::Marker(marker.clone()));
            let receiver = Receiver::choice(&receiver.name, CqlType::clone(&receiver.ty).freeze());
            Ok(Test::InMarker { negated: *negated, list: resolver.term(&term, &receiver)? })
        }
        Predicate::Contains { negated, key: true, value } => match &column.ty {
            CqlType::Map { key, .. } => {
                let receiver = Receiver::new(format!("key({name})"), key);
                Ok(Test::ContainsKey { negated: *negated, key: resolver.term(value, &receiver)? })
            }
            _ => invalid!("Cannot use CONTAINS KEY on non-map column {name}"),
        },
        Predicate::Contains { negated, key: false, value } => match &column.ty {
            CqlType::List { element, .. }
            | CqlType::Set { element, .. }
            | CqlType::Map { value: element, .. } => {
                let receiver = Receiver::new(format!("value({name})"), element);
                Ok(Test::Contains { negated: *negated, value: resolver.term(value, &receiver)? })
            }
            _ => invalid!("Cannot use CONTAINS on non-collection column {name}"),
        },
        _ => Err(ExecError::Syntax(format!("IF cannot ask this of column {name}"))),
    }
}

/// Bytes of collections that the conditions of a request may look through, together.
const COMPARED_BYTES_MAX: usize = 256 << 20;

/// The work of a request's conditions, which is not interrupted.
#[derive(Debug, Default)]
pub struct Compared {
    /// Bytes of collections that were put together and looked through.
    bytes: usize,
}

impl Compared {
    fn count(&mut self, whole: Option<&Bytes>) -> Result<()> {
        self.bytes += whole.map_or(0, Bytes::len);
        if self.bytes > COMPARED_BYTES_MAX {
            return invalid!(
                "The conditions look through more than {} MiB of collections; use fewer conditions, or conditions on \
                 elements of unfrozen maps, which are found by their keys",
                COMPARED_BYTES_MAX >> 20
            );
        }
        Ok(())
    }
}

/// A condition with its values, ready for a row.
#[derive(Debug)]
pub struct BoundCondition<'a> {
    condition: &'a ColumnCondition,
    part: BoundPart,
    relation: BoundTest,
    /// The condition holds when it holds with one of them.
    values: Vec<Option<Bytes>>,
    /// It holds when it holds with none of them.
    negated: bool,
}

#[derive(Debug)]
enum BoundPart {
    Whole,
    Element(Bytes),
    Field(usize),
}

#[derive(Debug)]
enum BoundTest {
    Compare(ComparisonOperator),
    /// Both bounds are in.
    Between(Bytes, Bytes),
    /// Nothing is like null.
    Like(Option<Wildcards>),
    Contains,
    ContainsKey,
}

impl BoundCondition<'_> {
    /// Whether the row meets it. A row that does not exist has only nulls.
    ///
    /// # Errors
    /// [`ExecError::Invalid`](crate::ExecError::Invalid) when an operator of order meets null, a list has no element
    /// at the index, or the conditions of the request look through too much.
    pub fn holds(&self, row: &RowView<'_>, compared: &mut Compared) -> Result<bool> {
        let column = &self.condition.column;
        let held = match &self.part {
            BoundPart::Element(key) if column.ty.is_multi_cell() && map_key(&column.ty).is_some() => {
                row.element(column, key).map(|element| element.cell.value.clone())
            }
            part => self.part(part, row.value(column), compared)?,
        };
        for value in &self.values {
            if self.holds_with(held.as_ref(), value.as_ref())? {
                return Ok(!self.negated);
            }
        }
        Ok(self.negated)
    }

    /// A part of the column's value.
    fn part(&self, part: &BoundPart, whole: Option<Bytes>, compared: &mut Compared) -> Result<Option<Bytes>> {
        if self.condition.column.ty.is_collection() {
            compared.count(whole.as_ref())?;
        }
        Ok(match part {
            BoundPart::Whole => whole,
            BoundPart::Field(at) => match &whole {
                Some(value) => {
                    let field = Fields::new(value).nth(*at).transpose()?.flatten();
                    field.map(|field| value.slice_ref(field))
                }
                None => None,
            },
            BoundPart::Element(key) => self.element(whole, key)?,
        })
    }

    fn element(&self, whole: Option<Bytes>, key: &Bytes) -> Result<Option<Bytes>> {
        let ty = &self.condition.column.ty;
        let Some(key_type) = map_key(ty) else {
            let index = <[u8; 4]>::try_from(&**key).map_or(0, i32::from_be_bytes);
            // A list that is one value is not looked into when it is null.
            if index < 0 && (whole.is_some() || ty.is_multi_cell()) {
                return invalid!("Invalid negative list index {index}");
            }
            let Some(list) = whole else { return Ok(None) };
            let element = Elements::of_list(&list)?.nth(index as usize).transpose()?.flatten();
            return Ok(element.map(|element| list.slice_ref(element)));
        };
        let Some(map) = whole else { return Ok(None) };
        let mut entries = Elements::of_map(&map)?;
        while let Some(found) = entries.next().transpose()? {
            let value = entries.next().transpose()?.flatten();
            if key_type.compare(found.unwrap_or_default(), key).is_eq() {
                return Ok(value.map(|value| map.slice_ref(value)));
            }
        }
        Ok(None)
    }

    fn holds_with(&self, held: Option<&Bytes>, value: Option<&Bytes>) -> Result<bool> {
        let condition = self.condition;
        match (&self.relation, value) {
            (BoundTest::Between(low, high), _) => Ok(held.is_some_and(|held| {
                condition.ty.compare(low, held).is_le() && condition.ty.compare(held, high).is_le()
            })),
            (BoundTest::Like(pattern), _) => {
                Ok(pattern.as_ref().zip(held).is_some_and(|(pattern, held)| pattern.matches(held)))
            }
            (BoundTest::Contains, None) => null_comparison("CONTAINS"),
            (BoundTest::ContainsKey, None) => null_comparison("CONTAINS KEY"),
            (BoundTest::Contains, Some(value)) => contains(
                &condition.column.ty,
                held,
                value,
                matches!(condition.column.ty, CqlType::Map { .. }),
            ),
            (BoundTest::ContainsKey, Some(value)) => contains(&condition.column.ty, held, value, false),
            (BoundTest::Compare(operator), value) => {
                // An unfrozen collection without elements is null.
                let emptiable = condition.ty.is_collection()
                    && condition.column.ty.is_multi_cell()
                    && matches!(self.part, BoundPart::Whole);
                let empty = emptiable && value.is_some_and(|value| is_empty_collection(value));
                let value = value.filter(|_| !empty);
                compare(&condition.ty, *operator, held, value, empty)
            }
        }
    }
}

fn map_key(ty: &CqlType) -> Option<&CqlType> {
    match ty {
        CqlType::Map { key, .. } => Some(key),
        _ => None,
    }
}

fn is_empty_collection(value: &[u8]) -> bool {
    value.iter().take(4).all(|byte| *byte == 0)
}

fn null_comparison<T>(operator: &str) -> Result<T> {
    invalid!("Invalid comparison with null for operator \"{operator}\"")
}

fn compare(
    ty: &CqlType,
    operator: ComparisonOperator,
    held: Option<&Bytes>,
    value: Option<&Bytes>,
    empty: bool,
) -> Result<bool> {
    use ComparisonOperator::{Equal, NotEqual};
    let (held, value) = match (held, value) {
        (Some(held), Some(value)) => (held, value),
        // A value that is not null is only known to differ from null.
        (None, Some(_)) => return Ok(operator == NotEqual),
        (held, None) => {
            return match operator {
                Equal => Ok(held.is_none()),
                NotEqual => Ok(held.is_some()),
                _ if empty => {
                    let what = match ty {
                        CqlType::List { .. } => "list",
                        CqlType::Set { .. } => "set",
                        _ => "map",
                    };
                    invalid!("Invalid comparison with an empty {what} for operator \"{}\"", operator.symbol())
                }
                _ => null_comparison(operator.symbol()),
            };
        }
    };
    Ok(satisfies(operator, ty.compare(held, value)))
}

fn satisfies(operator: ComparisonOperator, order: Ordering) -> bool {
    match operator {
        ComparisonOperator::Equal => order.is_eq(),
        ComparisonOperator::NotEqual => order.is_ne(),
        ComparisonOperator::Less => order.is_lt(),
        ComparisonOperator::LessOrEqual => order.is_le(),
        ComparisonOperator::Greater => order.is_gt(),
        ComparisonOperator::GreaterOrEqual => order.is_ge(),
    }
}

/// Whether a collection has an element; of a map a value (`values`) or a key.
fn contains(ty: &CqlType, held: Option<&Bytes>, wanted: &[u8], values: bool) -> Result<bool> {
    let Some(held) = held else { return Ok(false) };
    let (elements, element, step) = match ty {
        CqlType::List { element, .. } => (Elements::of_list(held)?, element, 1),
        CqlType::Set { element, .. } => (Elements::of_set(held)?, element, 1),
        CqlType::Map { value, .. } if values => (Elements::of_map(held)?, value, 2),
        CqlType::Map { key, .. } => (Elements::of_map(held)?, key, 2),
        _ => return Ok(false),
    };
    for item in elements.skip(usize::from(values)).step_by(step) {
        if item?.is_some_and(|item| element.compare(item, wanted).is_eq()) {
            return Ok(true);
        }
    }
    Ok(false)
}
