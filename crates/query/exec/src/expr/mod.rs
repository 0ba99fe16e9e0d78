//! Expressions: the one prepared form of terms (values of a statement) and selectors (values of a row).
//!
//! [`resolve`] turns syntax into an [`Expr`] whose every node knows its type; [`Expr::eval`] computes its value from the
//! bound values and, in a selection, from a row. All values are in serialised form.

pub mod bind;
mod call;
pub mod calls;
mod cell_meta;
pub mod constant;
mod known;
pub mod literal;
pub mod mask;
pub mod resolve;
pub mod row;
mod user;
mod value;

use bytes::Bytes;
use types::elements::{CollectionBuilder, Elements, Fields};
use types::{CqlType, elements};

use crate::error::{Result, invalid};
use crate::functions::{CallContext, Function};
use bind::Binds;
use row::{ColumnRef, RowView};
use std::rc::Rc;

pub use value::{Value, canonical, collect_elements};

/// Which timestamp or time to live of a column is selected.
#[derive(Clone, Debug)]
pub struct CellMeta {
    /// The column.
    pub column: ColumnRef,
    /// Write time, largest write time or TTL.
    pub what: cql::ast::CellMetadata,
    /// The part of the column.
    pub part: CellPart,
}

/// A part of a column whose cells have times of their own.
#[derive(Clone, Debug)]
pub enum CellPart {
    /// All of it.
    Whole,
    /// One element or field, by its path.
    Element(Box<Expr>),
    /// A field of a user type.
    Field(u16),
    /// Elements from one path to another.
    Slice(Option<Box<Expr>>, Option<Box<Expr>>),
}

/// When a call is made, and where its result is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallScope {
    /// Once for each execution of the statement; with the bound values.
    Statement,
    /// Once for each row or group; in the environment.
    Row,
}

/// The forms of an expression.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A value known when the statement was prepared.
    Constant(Option<Bytes>),
    /// The value of a bind marker.
    Bind(u32),
    /// The value of a column.
    Column(ColumnRef),
    /// Times of a column's cells.
    Meta(Box<CellMeta>),
    /// A field of a tuple or user type.
    Field(Box<Expr>, usize),
    /// An element of a map or set by key.
    Element(Box<Expr>, Box<Expr>, Rc<str>),
    /// The part of a set or map between two keys, both included.
    Slice(Box<Expr>, Option<Box<Expr>>, Option<Box<Expr>>, Rc<str>),
    /// The lesser or the greater of two values, null when one of them is: an end of BETWEEN.
    Extreme {
        /// Whether it is the greater one.
        greatest: bool,
        /// The two.
        of: Box<[Expr; 2]>,
    },
    /// A call of a scalar function.
    Call(Rc<Function>, Vec<Expr>),
    /// A collection, tuple, user type or vector made of its parts; of a map keys and values in turn.
    Build(Vec<Expr>),
    /// The result of an aggregate of the selection.
    Aggregate(usize),
    /// The result of a call of a user-defined function, which was made before.
    Called(CallScope, usize),
}

/// An expression with its type.
#[derive(Clone, Debug)]
pub struct Expr {
    /// Type of its values.
    pub ty: CqlType,
    /// Its kind.
    pub kind: Kind,
}

/// Where an expression finds its inputs.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// The bound values.
    pub binds: &'a Binds,
    /// The services that functions may ask for beside their arguments.
    pub call: &'a CallContext,
    /// The row, in a selection or filter.
    pub row: Option<&'a RowView<'a>>,
    /// Results of aggregates, once they are complete.
    pub aggregates: &'a [Option<Bytes>],
    /// Results of the user-defined functions that were called for the row or group.
    pub called: &'a [Option<Bytes>],
}

impl<'a> Env<'a> {
    /// An environment without a row.
    pub fn new(binds: &'a Binds, call: &'a CallContext) -> Self {
        Self { binds, call, row: None, aggregates: &[], called: &[] }
    }

    /// The same with a row.
    pub fn with_row<'b>(&self, row: &'b RowView<'b>) -> Env<'b>
    where
        'a: 'b,
    {
        Env { row: Some(row), ..*self }
    }
}

impl Expr {
    /// A constant.
    pub fn constant(ty: CqlType, value: Option<Bytes>) -> Self {
        Self { ty, kind: Kind::Constant(value) }
    }

    /// The lesser and the greater of two values of one type.
    pub fn ordered(a: Self, b: Self) -> [Self; 2] {
        let (ty, of) = (a.ty.clone(), Box::new([a, b]));
        let end = |greatest, of| Self { ty: ty.clone(), kind: Kind::Extreme { greatest, of } };
        [end(false, of.clone()), end(true, of)]
    }

    /// The value, which may be unset when the expression is a marker.
    ///
    /// # Errors
    /// [`ExecError::Invalid`](crate::ExecError::Invalid) when a bound value does not fit the expression around it,
    /// [`ExecError::FunctionFailure`](crate::ExecError::FunctionFailure) when a function has no result for its
    /// arguments.
    #[inline]
    pub fn eval(&self, env: &Env<'_>) -> Result<Value> {
        match &self.kind {
            Kind::Constant(value) => Ok(value.clone().into()),
            Kind::Bind(index) => Ok(env.binds.value(*index)),
            _ => self.compute(env).map(Value::from),
        }
    }

    /// The value, with a marker that is not set as null.
    ///
    /// # Errors
    /// As [`Expr::eval`].
    pub fn eval_option(&self, env: &Env<'_>) -> Result<Option<Bytes>> {
        self.eval(env).map(Value::into_bytes)
    }

    fn compute(&self, env: &Env<'_>) -> Result<Option<Bytes>> {
        match &self.kind {
            Kind::Constant(_) | Kind::Bind(_) => self.eval_option(env),
            Kind::Column(column) => Ok(env.row.and_then(|row| row.value(column))),
            Kind::Meta(meta) => match env.row {
                Some(row) => row.cell_meta(meta, &self.ty, env),
                None => Ok(None),
            },
            Kind::Field(inner, at) => {
                let Some(value) = inner.eval_option(env)? else { return Ok(None) };
                let field = Fields::new(&value).nth(*at).transpose()?.flatten();
                Ok(field.map(|field| value.slice_ref(field)))
            }
            Kind::Element(inner, key, name) => match key_of(inner, key, name, env)? {
                Some(key) => element_of(inner, &key, env),
                None => Ok(None),
            },
            Kind::Slice(inner, from, to, name) => {
                let Some(value) = inner.eval_option(env)? else { return Ok(None) };
                let end = |expr: &Option<Box<Expr>>| match expr {
                    Some(expr) => match expr.eval(env)? {
                        Value::Null => invalid!("Invalid null value for slice selection on {name}"),
                        value => Ok(value.into_bytes()),
                    },
                    None => Ok(None),
                };
                let slice =
                    select_slice(&inner.ty, &value, end(from)?.as_deref(), end(to)?.as_deref()).map(Some)?;
                // Without cells there is no collection of them, and so none in a slice.
                Ok(slice.filter(|slice| !inner.ty.is_multi_cell() || slice[..] != elements::EMPTY))
            }
            Kind::Extreme { greatest, of } => {
                let values = (of[0].eval(env)?, of[1].eval(env)?);
                if values.0 == Value::Unset || values.1 == Value::Unset {
                    return invalid!("Invalid unset value in BETWEEN");
                }
                let (Some(a), Some(b)) = (values.0.into_bytes(), values.1.into_bytes()) else {
                    return Ok(None);
                };
                Ok(Some(if self.ty.compare(&a, &b).is_gt() == *greatest { a } else { b }))
            }
            Kind::Call(function, args) => {
                let mut values = smallvec::SmallVec::<[Option<Bytes>; 4]>::with_capacity(args.len());
                for arg in args {
                    match arg.eval(env)? {
                        Value::Unset => {
                            return invalid!(
                                "Invalid unset value for argument in call to function {}",
                                function.full_name().trim_start_matches("system.")
                            );
                        }
                        value => values.push(value.into_bytes()),
                    }
                }
                let value = function.call(env.call, &values)?;
                check_value_bytes(value.as_ref().map_or(0, Bytes::len))?;
                Ok(value)
            }
            Kind::Build(parts) => build(&self.ty, parts, env).map(Some),
            Kind::Aggregate(at) => Ok(env.aggregates.get(*at).cloned().flatten()),
            Kind::Called(scope, at) => {
                let called = match scope {
                    CallScope::Statement => env.binds.called(),
                    CallScope::Row => env.called,
                };
                Ok(called.get(*at).expect("calls are made before what needs their results").clone())
            }
        }
    }

    /// Whether it reads a column outside an aggregate.
    pub fn reads_row(&self) -> bool {
        self.any(&mut |expr| matches!(expr.kind, Kind::Column(_) | Kind::Meta(_)))
    }

    /// Whether a bind marker is part of it.
    pub fn has_marker(&self) -> bool {
        self.any(&mut |expr| matches!(expr.kind, Kind::Bind(_)))
    }

    /// Whether it or a part of it passes a test.
    pub fn any(&self, test: &mut dyn FnMut(&Expr) -> bool) -> bool {
        if test(self) {
            return true;
        }
        match &self.kind {
            Kind::Constant(_) | Kind::Bind(_) | Kind::Column(_) | Kind::Aggregate(_) | Kind::Called(..) => {
                false
            }
            Kind::Meta(meta) => match &meta.part {
                CellPart::Whole | CellPart::Field(_) => false,
                CellPart::Element(key) => key.any(test),
                CellPart::Slice(from, to) => {
                    from.as_ref().is_some_and(|e| e.any(test)) || to.as_ref().is_some_and(|e| e.any(test))
                }
            },
            Kind::Field(inner, _) => inner.any(test),
            Kind::Element(inner, key, _) => inner.any(test) || key.any(test),
            Kind::Slice(inner, from, to, _) => {
                inner.any(test)
                    || from.as_ref().is_some_and(|e| e.any(test))
                    || to.as_ref().is_some_and(|e| e.any(test))
            }
            Kind::Extreme { of, .. } => of.iter().any(|one| one.any(test)),
            Kind::Call(_, parts) | Kind::Build(parts) => parts.iter().any(|part| part.any(test)),
        }
    }

    /// Calls `visit` with every column that it reads.
    pub fn columns(&self, visit: &mut dyn FnMut(&ColumnRef)) {
        self.any(&mut |expr| {
            match &expr.kind {
                Kind::Column(column) => visit(column),
                Kind::Meta(meta) => visit(&meta.column),
                _ => {}
            }
            false
        });
    }
}

/// The element of a collection: of an unfrozen set or map without putting its value together.
fn element_of(inner: &Expr, key: &[u8], env: &Env<'_>) -> Result<Option<Bytes>> {
    if let Kind::Column(column) = &inner.kind
        && inner.ty.is_multi_cell()
        && !matches!(inner.ty, CqlType::List { .. })
    {
        let Some(row) = env.row else { return Ok(None) };
        let found = row.element(column, key);
        return Ok(found.map(|element| match &inner.ty {
            CqlType::Set { .. } => element.path.clone(),
            _ => element.cell.value.clone(),
        }));
    }
    match inner.eval_option(env)? {
        Some(value) => select_element(&inner.ty, &value, key),
        None => Ok(None),
    }
}

/// The key of an element. A set or map needs one; a list has no element without (as in ScyllaDB; Cassandra selects no elements of lists).
fn key_of(inner: &Expr, key: &Expr, name: &str, env: &Env<'_>) -> Result<Option<Bytes>> {
    match key.eval(env)? {
        Value::Set(key) => Ok(Some(key)),
        _ if matches!(inner.ty, CqlType::List { .. }) => Ok(None),
        Value::Null => invalid!("Invalid null value for element selection on {name}"),
        Value::Unset => invalid!("Invalid unset value for element selection on {name}"),
    }
}

/// The element of a serialised collection with a key or at a place: the value of a map or list, the element of a set itself.
fn select_element(ty: &CqlType, value: &Bytes, key: &[u8]) -> Result<Option<Bytes>> {
    match ty {
        CqlType::Map { key: key_type, .. } => {
            let mut entries = Elements::of_map(value)?;
            while let Some(found) = entries.next() {
                let found = found?.unwrap_or_default();
                let item = entries.next().transpose()?.flatten();
                if key_type.compare(found, key).is_eq() {
                    return Ok(item.map(|item| value.slice_ref(item)));
                }
            }
            Ok(None)
        }
        CqlType::Set { element, .. } => {
            for found in Elements::of_set(value)? {
                let found = found?.unwrap_or_default();
                if element.compare(found, key).is_eq() {
                    return Ok(Some(value.slice_ref(found)));
                }
            }
            Ok(None)
        }
        CqlType::List { .. } => {
            let place = key.try_into().ok().and_then(|key| usize::try_from(i32::from_be_bytes(key)).ok());
            let Some(place) = place else { return Ok(None) };
            let found = Elements::of_list(value)?.nth(place).transpose()?.flatten();
            Ok(found.map(|found| value.slice_ref(found)))
        }
        _ => Ok(None),
    }
}

fn select_slice(ty: &CqlType, value: &Bytes, from: Option<&[u8]>, to: Option<&[u8]>) -> Result<Bytes> {
    let within = |ty: &CqlType, key: &[u8]| {
        from.is_none_or(|from| ty.compare(key, from).is_ge())
            && to.is_none_or(|to| ty.compare(key, to).is_le())
    };
    let mut out = CollectionBuilder::new();
    match ty {
        CqlType::Map { key: key_type, .. } => {
            let mut entries = Elements::of_map(value)?;
            while let Some(key) = entries.next() {
                let key = key?.unwrap_or_default();
                let item = entries.next().transpose()?.flatten().unwrap_or_default();
                if within(key_type, key) {
                    out.push(key);
                    out.push(item);
                }
            }
            Ok(out.finish_map().into())
        }
        CqlType::Set { element, .. } => {
            for key in Elements::of_set(value)? {
                let key = key?.unwrap_or_default();
                if within(element, key) {
                    out.push(key);
                }
            }
            Ok(out.finish().into())
        }
        _ => Ok(value.clone()),
    }
}

/// The most bytes of a value that an expression computes: functions of functions may double it each time.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

fn check_value_bytes(bytes: usize) -> Result<()> {
    match bytes <= VALUE_BYTES_MAX {
        true => Ok(()),
        false => {
            invalid!("An expression's value has {bytes} bytes or more: at most {VALUE_BYTES_MAX} are allowed")
        }
    }
}

/// Evaluates the parts and puts them together as a value of `ty`.
fn build(ty: &CqlType, parts: &[Expr], env: &Env<'_>) -> Result<Bytes> {
    // Parts are slices of their sources: only the whole takes memory.
    let bytes = std::cell::Cell::new(0_usize);
    let eval = |expr: &Expr| -> Result<Value> {
        let value = expr.eval(env)?;
        if let Value::Set(value) = &value {
            bytes.set(bytes.get() + 4 + value.len());
            check_value_bytes(bytes.get())?;
        }
        Ok(value)
    };
    let element = |expr: &Expr| match eval(expr)? {
        Value::Set(bytes) => Ok(bytes),
        Value::Null => invalid!("null is not supported inside collections"),
        Value::Unset => invalid!("unset value is not supported inside collections"),
    };
    match ty {
        CqlType::List { .. } => {
            let parts = parts.iter().map(element).collect::<Result<Vec<_>>>()?;
            check_element_sizes(&parts)?;
            Ok(elements::build_list(parts).into())
        }
        CqlType::Set { element: element_type, .. } => {
            let parts = parts.iter().map(|part| element(part).map(Vec::from)).collect::<Result<Vec<_>>>()?;
            Ok(elements::build_set(element_type, parts).into())
        }
        CqlType::Map { key, .. } => {
            let mut entries = Vec::with_capacity(parts.len() / 2);
            for entry in parts.chunks_exact(2) {
                entries.push((element(&entry[0])?.to_vec(), element(&entry[1])?.to_vec()));
            }
            Ok(elements::build_map(key, entries).into())
        }
        CqlType::Vector { element: element_type, .. } => {
            let takes_empty = matches!(**element_type, CqlType::Ascii | CqlType::Text | CqlType::Blob);
            let element = |expr: &Expr| match eval(expr)? {
                Value::Set(bytes) if takes_empty || !bytes.is_empty() => Ok(bytes),
                _ => invalid!("null is not supported inside vectors"),
            };
            let parts = parts.iter().map(element).collect::<Result<Vec<_>>>()?;
            Ok(elements::build_vector(element_type, parts).into())
        }
        CqlType::Tuple(_) => {
            let parts = parts
                .iter()
                .enumerate()
                .map(|(at, part)| match eval(part)? {
                    Value::Unset => invalid!("Invalid unset value for tuple field number {at}"),
                    value => Ok(value.into_bytes()),
                })
                .collect::<Result<Vec<_>>>()?;
            Ok(elements::build_tuple(parts).into())
        }
        // A field that is not set is null in a column that has a cell for each field, as in Cassandra.
        CqlType::Udt { ty: of, frozen } => {
            let parts = parts.iter().zip(&of.fields).map(|(part, (field, _))| match eval(part)? {
                Value::Unset if *frozen => {
                    invalid!("Invalid unset value for field '{field}' of user defined type {}", of.name)
                }
                value => Ok(value.into_bytes()),
            });
            Ok(elements::build_tuple(parts.collect::<Result<Vec<_>>>()?).into())
        }
        _ => panic!("values of {ty} are not made of parts"),
    }
}

fn check_element_sizes(parts: &[Bytes]) -> Result<()> {
    match parts.iter().find(|part| i32::try_from(part.len()).is_err()) {
        Some(part) => invalid!("Collection value of {} bytes is too long", part.len()),
        None => Ok(()),
    }
}
