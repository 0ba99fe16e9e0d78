//! The operations of INSERT, UPDATE and DELETE on single columns, resolved against the column's type.

use cql::ast::{DeleteTarget, Operation as OperationAst, Term, TermKind};
use schema::{Column, ColumnKind};
use types::CqlType;

use crate::error::{ExecError, Result, invalid};
use crate::expr::literal::term_text;
use crate::expr::resolve::{Receiver, Resolver};
use crate::expr::row::ColumnRef;
use crate::expr::{Expr, Kind};

/// One change of one column.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The column.
    pub column: ColumnRef,
    /// Its name, for messages.
    pub name: String,
    /// The change.
    pub change: Change,
}

/// The kinds of changes.
#[derive(Clone, Debug)]
pub enum Change {
    /// The whole value; the old cells of an unfrozen column are deleted.
    Set(Expr),
    /// Elements behind a list.
    Append(Expr),
    /// Elements before a list.
    Prepend(Expr),
    /// Elements into a set, or entries into a map.
    Add(Expr),
    /// Elements out of a set, or keys out of a map; the value is a set.
    Remove(Expr),
    /// All elements of a list that are equal to one of these; the list is read first.
    Discard(Expr),
    /// The element of a list at an index; the list is read first.
    SetIndex(Expr, Expr),
    /// The value of a map's key.
    SetKey(Expr, Expr),
    /// A field of an unfrozen user type.
    SetField(u16, Expr),
    /// Nothing is left of the column.
    Delete,
    /// Without the element of a list at an index; the list is read first.
    DeleteIndex(Expr),
    /// Without a key of a map or an element of a set.
    DeleteKey(Expr),
    /// Without a field of an unfrozen user type.
    DeleteField(u16),
    /// A counter changes by this, or by its negative.
    Count(Expr, bool),
    /// A number grows by this, or this is put behind a text; the column is read first, which only conditional statements do.
    Plus(Expr),
}

impl Change {
    /// Whether it builds on the result of earlier operations of the statement on the column.
    pub(super) fn adds_up(&self) -> bool {
        matches!(self, Self::Count(..) | Self::Plus(_))
    }
}

impl Change {
    /// Whether the list has to be read before it can be changed.
    pub fn needs_read(&self) -> bool {
        matches!(self, Self::Discard(_) | Self::SetIndex(..) | Self::DeleteIndex(_) | Self::Plus(_))
    }
}

impl Operation {
    /// The marker whose value, as it is bound, becomes the column's only cell.
    pub fn bound_cell(&self) -> Option<u32> {
        match &self.change {
            Change::Set(Expr { kind: Kind::Bind(marker), .. }) if !self.column.ty.is_multi_cell() => {
                Some(*marker)
            }
            _ => None,
        }
    }

    fn new(column: &Column, change: Change) -> Self {
        Self { column: ColumnRef::from(column), name: column.name.clone(), change }
    }

    /// Whether it changes the static row.
    pub fn is_static(&self) -> bool {
        self.column.kind == ColumnKind::Static
    }

    /// A value of INSERT.
    ///
    /// # Errors
    /// As [`Resolver::term`].
    pub fn insert(column: &Column, term: &Term, resolver: &mut Resolver<'_>) -> Result<Self> {
        let expr = resolver.term(term, &Receiver::column(column))?;
        Ok(Self::new(column, Change::Set(expr)))
    }

    /// A value of INSERT that is computed already.
    pub fn insert_expr(column: &Column, expr: Expr) -> Self {
        Self::new(column, Change::Set(expr))
    }

    /// An assignment of UPDATE. `reads` when the statement has conditions, and so reads before it writes.
    ///
    /// # Errors
    /// [`ExecError::Invalid`](crate::ExecError::Invalid) when the column is part of the key, its type does not have the
    /// operation, or the term does not fit it.
    pub fn update(
        column: &Column,
        operation: &OperationAst,
        reads: bool,
        resolver: &mut Resolver<'_>,
    ) -> Result<Self> {
        if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
            return invalid!("PRIMARY KEY part {} found in SET part", column.name);
        }
        let change = match operation {
            OperationAst::Set(term) => {
                if column.ty.is_counter() {
                    check_increment(term)?;
                    return invalid!(
                        "Cannot set the value of counter column {} (counters can only be incremented/decremented, not set)",
                        column.name
                    );
                }
                Change::Set(resolver.term(term, &Receiver::column(column))?)
            }
            OperationAst::Add(term) if reads && !column.ty.is_collection() => plus(column, term, resolver)?,
            OperationAst::Add(term) => add(column, term, resolver)?,
            OperationAst::Prepend(term) => prepend(column, term, resolver)?,
            OperationAst::Subtract(term) => subtract(column, term, resolver)?,
            OperationAst::SetElement(key, term) => set_element(column, key, term, resolver)?,
            OperationAst::SetField(field, term) => set_field(column, &field.name, term, resolver)?,
        };
        Ok(Self::new(column, change))
    }

    /// A target of DELETE.
    ///
    /// # Errors
    /// [`ExecError::Invalid`](crate::ExecError::Invalid) when the column is unknown or part of the key, or its type has
    /// no such element or field.
    pub fn delete(target: &DeleteTarget, resolver: &mut Resolver<'_>) -> Result<Self> {
        let name = match target {
            DeleteTarget::Column(name) | DeleteTarget::Element(name, _) | DeleteTarget::Field(name, _) => {
                name
            }
        };
        let column = resolver.column(&name.name)?;
        if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
            return invalid!(
                "Invalid identifier {} for deletion (should not be a PRIMARY KEY part)",
                column.name
            );
        }
        let change = match target {
            DeleteTarget::Column(_) => Change::Delete,
            DeleteTarget::Element(_, key) => delete_element(column, key, resolver)?,
            DeleteTarget::Field(_, field) => {
                let CqlType::Udt { ty, frozen } = &column.ty else {
                    return invalid!("Invalid field deletion operation for non-UDT column {}", column.name);
                };
                if *frozen {
                    return invalid!("Frozen UDT column {} does not support field deletions", column.name);
                }
                match ty.field_index(&field.name) {
                    Some(at) => Change::DeleteField(at as u16),
                    None => {
                        return invalid!(
                            "UDT column {} does not have a field named {}",
                            column.name,
                            field.name
                        );
                    }
                }
            }
        };
        Ok(Self::new(column, change))
    }
}

/// The operand of an operation on a map, in Cassandra's words where it does not fit.
fn of_map(expr: Result<Expr>, term: &Term, operation: &str, kind: &str) -> Result<Expr> {
    match expr {
        Err(ExecError::Invalid(_)) => {
            invalid!("Value for a map {operation} has to be a {kind}, but was: '{}'", term_text(term))
        }
        other => other,
    }
}

/// Refuses a counter that is changed by, or set to, the constant null.
fn check_increment(term: &Term) -> Result<()> {
    match term.kind {
        TermKind::Null => invalid!("Invalid null value for counter increment/decrement"),
        _ => Ok(()),
    }
}

/// Refuses an operation on a column that is not an unfrozen collection.
fn check_collection(column: &Column, shown: &str) -> Result<()> {
    if !column.ty.is_collection() {
        let what = if column.ty.is_counter() { "collection" } else { "counter" };
        return invalid!("Invalid operation ({shown}) for non {what} column {}", column.name);
    }
    if !column.is_complex() {
        return invalid!("Invalid operation ({shown}) for frozen collection column {}", column.name);
    }
    Ok(())
}

fn add(column: &Column, term: &Term, resolver: &mut Resolver<'_>) -> Result<Change> {
    let name = &column.name;
    if column.ty.is_counter() {
        check_increment(term)?;
        return Ok(Change::Count(resolver.term(term, &Receiver::column(column))?, false));
    }
    let shown = format!("{name} = {name} + {}", term_text(term));
    if column.ty.is_tuple() || column.ty.is_udt() {
        return invalid!("Invalid operation ({shown}) for tuple column {name}");
    }
    check_collection(column, &shown)?;
    let expr = resolver.term(term, &Receiver::column(column));
    Ok(match &column.ty {
        CqlType::List { .. } => Change::Append(expr?),
        CqlType::Map { .. } => Change::Add(of_map(expr, term, "addition", "map")?),
        _ => Change::Add(expr?),
    })
}

/// The value that is added to a column whose value was read.
fn plus(column: &Column, term: &Term, resolver: &mut Resolver<'_>) -> Result<Change> {
    let name = &column.name;
    let shown = || format!("{name} = {name} + {}", term_text(term));
    let added = matches!(
        column.ty,
        CqlType::Tinyint
            | CqlType::Smallint
            | CqlType::Int
            | CqlType::Bigint
            | CqlType::Varint
            | CqlType::Float
            | CqlType::Double
            | CqlType::Decimal
            | CqlType::Ascii
            | CqlType::Text
    );
    if matches!(column.ty, CqlType::Tuple(_) | CqlType::Udt { .. }) {
        return invalid!("Invalid operation ({}) for tuple column {name}", shown());
    }
    if !added {
        return invalid!("Invalid operation ({}) for non-numeric and non-text type {name}", shown());
    }
    Ok(Change::Plus(resolver.term(term, &Receiver::column(column))?))
}

fn prepend(column: &Column, term: &Term, resolver: &mut Resolver<'_>) -> Result<Change> {
    let name = &column.name;
    let shown = format!("{name} = {} - {name}", term_text(term));
    if !matches!(column.ty, CqlType::List { .. }) {
        return invalid!("Invalid operation ({shown}) for non list column {name}");
    }
    check_collection(column, &shown)?;
    Ok(Change::Prepend(resolver.term(term, &Receiver::column(column))?))
}

fn subtract(column: &Column, term: &Term, resolver: &mut Resolver<'_>) -> Result<Change> {
    let name = &column.name;
    if column.ty.is_counter() {
        check_increment(term)?;
        return Ok(Change::Count(resolver.term(term, &Receiver::column(column))?, true));
    }
    check_collection(column, &format!("{name} = {name} - {}", term_text(term)))?;
    match &column.ty {
        CqlType::Map { key, .. } => {
            let receiver = Receiver::owned(name.as_str(), CqlType::set(CqlType::clone(key), false));
            let keys = match term.kind {
                TermKind::Map(_) => invalid!("a map"),
                _ => resolver.term(term, &receiver),
            };
            Ok(Change::Remove(of_map(keys, term, "substraction", "set")?))
        }
        CqlType::List { .. } => Ok(Change::Discard(resolver.term(term, &Receiver::column(column))?)),
        _ => Ok(Change::Remove(resolver.term(term, &Receiver::column(column))?)),
    }
}

fn set_element(column: &Column, key: &Term, term: &Term, resolver: &mut Resolver<'_>) -> Result<Change> {
    let name = &column.name;
    let shown = format!("{name}[{}] = {}", term_text(key), term_text(term));
    if !column.ty.is_collection() {
        return invalid!("Invalid operation ({shown}) for non collection column {name}");
    }
    if !column.is_complex() {
        return invalid!("Invalid operation ({shown}) for frozen collection column {name}");
    }
    match &column.ty {
        CqlType::List { element, .. } => {
            let index = resolver.term(key, &Receiver::owned(format!("idx({name})"), CqlType::Int))?;
            let value = resolver.term(term, &Receiver::new(format!("value({name})"), element))?;
            Ok(Change::SetIndex(index, value))
        }
        CqlType::Map { key: key_type, value: value_type, .. } => {
            let key = resolver.term(key, &Receiver::new(format!("key({name})"), key_type))?;
            let value = resolver.term(term, &Receiver::new(format!("value({name})"), value_type))?;
            Ok(Change::SetKey(key, value))
        }
        _ => invalid!("Invalid operation ({shown}) for set column {name}"),
    }
}

fn set_field(column: &Column, field: &str, term: &Term, resolver: &mut Resolver<'_>) -> Result<Change> {
    let name = &column.name;
    let shown = format!("{name}.{field} = {}", term_text(term));
    let CqlType::Udt { ty, frozen } = &column.ty else {
        return invalid!("Invalid operation ({shown}) for non-UDT column {name}");
    };
    if *frozen {
        return invalid!("Invalid operation ({shown}) for frozen UDT column {name}");
    }
    let Some(at) = ty.field_index(field) else {
        return invalid!("UDT column {name} does not have a field named {field}");
    };
    let receiver = Receiver::new(format!("{name}.{field}"), &ty.fields[at].1);
    Ok(Change::SetField(at as u16, resolver.term(term, &receiver)?))
}

fn delete_element(column: &Column, key: &Term, resolver: &mut Resolver<'_>) -> Result<Change> {
    let name = &column.name;
    if !column.ty.is_collection() {
        return invalid!("Invalid deletion operation for non collection column {name}");
    }
    if !column.is_complex() {
        return invalid!("Invalid deletion operation for frozen collection column {name}");
    }
    match &column.ty {
        CqlType::List { .. } => {
            let index = resolver.term(key, &Receiver::owned(format!("idx({name})"), CqlType::Int))?;
            Ok(Change::DeleteIndex(index))
        }
        CqlType::Map { key: ty, .. } => {
            Ok(Change::DeleteKey(resolver.term(key, &Receiver::new(format!("key({name})"), ty))?))
        }
        CqlType::Set { element, .. } => {
            Ok(Change::DeleteKey(resolver.term(key, &Receiver::new(format!("value({name})"), element))?))
        }
        _ => invalid!("Invalid deletion operation for column {name}"),
    }
}
