//! From syntax to expressions: columns are found, literals get their types, functions are chosen, and every bind
//! marker gets a name and a type.

use std::borrow::Cow;
use std::rc::Rc;

use cql::ast::{
    ArithmeticOperator, CellMetadata, Constant, FunctionCall, Marker, Selector, SelectorKind, Term,
};
use schema::{ColumnKind, Schema, Table};
use types::CqlType;
use types::native::{self, Argument, Operator};

use super::calls::{UserCall, take_calls};
use super::known::{Known, is_compound};
use super::literal::{self, Fit, selector_of, text};
use super::row::ColumnRef;
use super::{CallScope, CellMeta, CellPart, Expr, Kind};
use crate::error::{Result, invalid};
use crate::expr::bind::MarkerSpec;
use crate::functions::{Aggregate, Function};

/// The receiver of an expression's value: its name in messages and in the metadata of markers, and its type.
#[derive(Clone, Debug)]
pub struct Receiver<'a> {
    /// `v`, `key(m)`, `[limit]`.
    pub name: Cow<'a, str>,
    /// The type that is wanted.
    pub ty: Cow<'a, CqlType>,
    /// It is the list of values of IN.
    pub is_choice: bool,
}

impl<'a> Receiver<'a> {
    /// A receiver.
    pub fn new(name: impl Into<Cow<'a, str>>, ty: &'a CqlType) -> Self {
        Self { name: name.into(), ty: Cow::Borrowed(ty), is_choice: false }
    }

    /// A receiver of a type made for the occasion.
    pub fn owned(name: impl Into<Cow<'a, str>>, ty: CqlType) -> Self {
        Self { name: name.into(), ty: Cow::Owned(ty), is_choice: false }
    }

    /// The list of the values of IN, each for a receiver of this name and type.
    pub fn choice(of: &str, ty: CqlType) -> Self {
        let ty = Cow::Owned(CqlType::list(ty, false));
        Self { name: format!("in({of})").into(), ty, is_choice: true }
    }

    /// The value that a column receives.
    pub fn column(column: &'a schema::Column) -> Self {
        Self::new(column.name.as_str(), &column.ty)
    }
}

/// One aggregate of a selection.
#[derive(Clone, Debug)]
pub struct AggregateCall {
    /// Which one.
    pub kind: Aggregate,
    /// The arguments; nothing for `count(*)`, and several values for a user-defined aggregate of several
    /// arguments.
    pub inputs: Vec<Expr>,
}

/// The markers of a statement as they are resolved.
#[derive(Clone, Debug, Default)]
pub struct Markers {
    specs: Vec<Option<MarkerSpec>>,
    /// Calls of user-defined functions in the statement's terms.
    calls: Vec<UserCall>,
    /// Whether a function is called whose result depends on the time or on chance.
    pub(super) varies: bool,
    /// The statement of a BATCH that is being resolved.
    statement: Option<usize>,
}

impl Markers {
    /// Room for so many markers.
    pub fn new(count: usize) -> Self {
        Self { specs: vec![None; count], calls: Vec::new(), varies: false, statement: None }
    }

    /// How many markers there are.
    pub fn count(&self) -> usize {
        self.specs.len()
    }

    /// Markers that are recorded from now on belong to this statement of a BATCH.
    pub fn begin_statement(&mut self, number: Option<usize>) {
        self.statement = number;
    }

    /// Records a marker; its own name goes before that of the column that it stands for.
    pub fn record(&mut self, marker: &Marker, spec: MarkerSpec) {
        let at = marker.index as usize;
        if self.specs.len() <= at {
            self.specs.resize(at + 1, None);
        }
        let name = marker.name.clone().unwrap_or(spec.name);
        self.specs[at] = Some(MarkerSpec { name, statement: self.statement, ..spec });
    }

    /// The calls of user-defined functions in the terms that were resolved since this was asked.
    pub fn take_calls(&mut self) -> Vec<UserCall> {
        std::mem::take(&mut self.calls)
    }

    /// Whether the statement calls a function whose result depends on the time or on chance.
    pub fn varies(&self) -> bool {
        self.varies
    }

    /// All markers in order.
    pub fn finish(self) -> Vec<MarkerSpec> {
        let blob = || MarkerSpec::of(String::new(), CqlType::Blob);
        self.specs.into_iter().map(|spec| spec.unwrap_or_else(blob)).collect()
    }
}

/// Resolves the expressions of one statement.
pub struct Resolver<'a> {
    /// Where user types are found.
    pub schema: &'a Schema,
    /// The keyspace of unqualified user types.
    pub keyspace: &'a str,
    /// The statement's table.
    pub table: &'a Table,
    /// Whether names of columns are allowed: in selections, not in terms.
    pub columns: bool,
    /// Whether masks stand for the columns that have them.
    pub masked: bool,
    /// Whether cells have times: those that describe fragments have none of their own.
    pub timed: bool,
    /// The markers so far.
    pub markers: &'a mut Markers,
    /// The aggregates so far.
    pub aggregates: Vec<AggregateCall>,
    pub(super) in_aggregate: bool,
    /// Whether only the types of expressions are asked for.
    pub(super) probing: bool,
    known: Rc<Known>,
}

/// How well a value of type `from` can stand where `to` is wanted; whether either is frozen does not matter.
pub fn fit_of_type(to: &CqlType, from: &CqlType) -> Fit {
    if to.freeze() == from.freeze() {
        return Fit::Exact;
    }
    match (to, from) {
        (CqlType::Counter, CqlType::Bigint) | (CqlType::Bigint, CqlType::Counter) => Fit::Weak,
        _ => from.freeze().assignment_to(&to.freeze()),
    }
}

impl<'a> Resolver<'a> {
    /// A resolver of terms of a statement on `table`.
    pub fn new(schema: &'a Schema, table: &'a Table, markers: &'a mut Markers) -> Self {
        Self {
            schema,
            keyspace: &table.keyspace,
            table,
            columns: false,
            masked: false,
            timed: true,
            markers,
            aggregates: Vec::new(),
            in_aggregate: false,
            probing: false,
            known: Rc::default(),
        }
    }

    /// A term's expression for a receiver.
    ///
    /// # Errors
    /// [`ExecError::Invalid`](crate::ExecError::Invalid) when the term cannot be of the receiver's type, or names an
    /// unknown column, function or type.
    pub fn term(&mut self, term: &Term, receiver: &Receiver<'_>) -> Result<Expr> {
        self.selector(&selector_of(term), Some(receiver))
    }

    /// A column of the table by name.
    ///
    /// # Errors
    /// [`ExecError::Invalid`](crate::ExecError::Invalid) when the table has no such column.
    pub fn column(&self, name: &str) -> Result<&'a schema::Column> {
        match self.table.column(name) {
            Some(column) => Ok(column),
            None => invalid!(
                "Undefined column name {} in table {}",
                types::quote_identifier(name),
                self.table.full_name()
            ),
        }
    }

    /// The value of a column, or its mask.
    ///
    /// # Errors
    /// [`ExecError::Invalid`](crate::ExecError::Invalid) when the function of the column's mask is gone.
    pub fn column_value(&self, column: &schema::Column) -> Result<Expr> {
        match self.masked {
            true => Expr::masked(column, self.schema),
            false => Ok(Expr { ty: column.ty.clone(), kind: Kind::Column(ColumnRef::from(column)) }),
        }
    }

    /// A selector's expression; its type is the receiver's, or its own where nothing is wanted.
    ///
    /// # Errors
    /// As [`Resolver::term`].
    pub fn selector(&mut self, selector: &Selector, receiver: Option<&Receiver<'_>>) -> Result<Expr> {
        // Facts about another tree do not hold for this one, which may have its address.
        let outer = std::mem::take(&mut self.known);
        let expr = self.resolve(selector, receiver);
        self.known = outer;
        match self.columns {
            true => expr,
            // A term has the same value for all rows.
            false => expr.map(|expr| take_calls(expr, CallScope::Statement, &mut self.markers.calls)),
        }
    }

    /// The expression of a part of the tree. While only types are asked for, each part is resolved once for each type that may
    /// be wanted of it, and the result has the right type and nothing else.
    pub(super) fn resolve(&mut self, selector: &Selector, receiver: Option<&Receiver<'_>>) -> Result<Expr> {
        if !self.probing || !is_compound(selector) {
            return self.resolve_anew(selector, receiver);
        }
        let wanted = receiver.map(|receiver| &*receiver.ty);
        let context = (self.columns, self.in_aggregate);
        let found = match self.known.probe(selector, context, wanted) {
            Some(found) => found,
            None => {
                let found = self.resolve_anew(selector, receiver).ok().map(|expr| expr.ty);
                self.known.put_probe(selector, context, wanted, found.clone());
                found
            }
        };
        match found {
            Some(ty) => Ok(Expr::constant(ty, None)),
            None => invalid!("an expression without a type"),
        }
    }

    fn constant(
        &mut self,
        constant: &Constant,
        selector: &Selector,
        receiver: Option<&Receiver<'_>>,
    ) -> Result<Expr> {
        let Some(receiver) = receiver else { return self.cannot_infer(selector) };
        if literal::is_now(constant, &receiver.ty) {
            let call = FunctionCall { name: literal::now_function(), args: Vec::new() };
            return self.function(&call, selector, Some(receiver));
        }
        let value = literal::value(constant, &receiver.name, &receiver.ty)?;
        Ok(Expr::constant(CqlType::clone(&receiver.ty), Some(value)))
    }

    fn marker(&mut self, marker: &Marker, receiver: &Receiver<'_>) -> Expr {
        // Keys of elements are named; other markers of a selection are not.
        let is_key = ["key(", "value(", "idx("].iter().any(|start| receiver.name.starts_with(start));
        let name = if self.columns && !is_key { "[selection]" } else { &*receiver.name };
        let ty = CqlType::clone(&receiver.ty);
        let spec =
            MarkerSpec { is_choice: receiver.is_choice, ..MarkerSpec::of(name.to_owned(), ty.clone()) };
        self.markers.record(marker, spec);
        Expr { ty, kind: Kind::Bind(marker.index) }
    }

    fn resolve_anew(&mut self, selector: &Selector, receiver: Option<&Receiver<'_>>) -> Result<Expr> {
        match &selector.kind {
            SelectorKind::Column(name) => {
                if !self.columns {
                    return invalid!("Invalid term {}: a column cannot stand here", name.name);
                }
                let column = self.column(&name.name)?;
                let expr = self.column_value(column)?;
                self.check_fit(expr, selector, receiver)
            }
            SelectorKind::Constant(constant) => self.constant(constant, selector, receiver),
            SelectorKind::Null => match receiver {
                Some(receiver) => Ok(Expr::constant(CqlType::clone(&receiver.ty), None)),
                None => self.cannot_infer(selector),
            },
            SelectorKind::Marker(marker) => match receiver {
                Some(receiver) => Ok(self.marker(marker, receiver)),
                None => self.cannot_infer(selector),
            },
            SelectorKind::CountRows => self.aggregate(Aggregate::CountRows, Vec::new(), CqlType::Bigint),
            SelectorKind::Metadata(what, inner) => self.cell_metadata(*what, inner),
            SelectorKind::Cast(inner, ty) => self.cast(inner, *ty, selector),
            SelectorKind::Function(call) => self.function(call, selector, receiver),
            SelectorKind::Field(inner, field) => {
                let inner_expr = self.resolve(inner, None)?;
                let CqlType::Udt { ty, .. } = &inner_expr.ty else {
                    return invalid!(
                        "Invalid field selection: {} of type {} is not a user type",
                        text(inner),
                        inner_expr.ty.cql_name()
                    );
                };
                let Some(at) = ty.field_index(&field.name) else {
                    return invalid!(
                        "{} of type {} has no field {}",
                        text(inner),
                        inner_expr.ty.cql_name(),
                        field.name
                    );
                };
                let field_type = ty.fields[at].1.clone();
                let expr = Expr { ty: field_type, kind: Kind::Field(Box::new(inner_expr), at) };
                self.check_fit(expr, selector, receiver)
            }
            SelectorKind::Element(inner, key) => self.element(inner, key),
            SelectorKind::Slice(inner, from, to) => self.slice(inner, from.as_ref(), to.as_ref()),
            SelectorKind::TypeHint(ty, inner) => self.type_hint(ty, inner, selector, receiver),
            SelectorKind::Tuple(parts) => self.tuple(parts, selector, receiver),
            SelectorKind::List(parts) => self.list(parts, selector, receiver),
            SelectorKind::Set(parts) => self.set(parts, selector, receiver),
            SelectorKind::Map(entries) => self.map(entries, selector, receiver),
            SelectorKind::Arithmetic(left, op, right) => {
                self.arithmetic(left, *op, right, selector, receiver)
            }
            SelectorKind::Negate(inner) => {
                let argument = self.argument(inner, self.probing);
                let wanted = receiver.filter(|_| !self.columns).map(|receiver| &*receiver.ty);
                let function = match native::resolve("_negate", &[&argument], wanted)? {
                    Some(function) => Function::Native(function),
                    None => return invalid!("the '-' operation is not supported on {}", text(inner)),
                };
                self.call(function, &[inner], selector, receiver)
            }
        }
    }

    fn cannot_infer<T>(&self, selector: &Selector) -> Result<T> {
        invalid!(
            "Cannot infer type for term {} in selection clause (try using a cast to force a type)",
            text(selector)
        )
    }

    fn check_fit(&self, expr: Expr, selector: &Selector, receiver: Option<&Receiver<'_>>) -> Result<Expr> {
        if let Some(receiver) = receiver
            && fit_of_type(&receiver.ty, &expr.ty) == Fit::None
        {
            return invalid!(
                "Type error: cannot assign result of {} (type {}) to {} (type {})",
                text(selector),
                expr.ty.cql_name(),
                receiver.name,
                receiver.ty.cql_name()
            );
        }
        Ok(expr)
    }

    pub(super) fn aggregate(&mut self, kind: Aggregate, inputs: Vec<Expr>, ty: CqlType) -> Result<Expr> {
        if self.in_aggregate {
            return invalid!("aggregate functions cannot be used as arguments of aggregate functions");
        }
        if !self.columns {
            return invalid!("Aggregation function are not supported in the where clause");
        }
        self.aggregates.push(AggregateCall { kind, inputs });
        Ok(Expr { ty, kind: Kind::Aggregate(self.aggregates.len() - 1) })
    }

    /// An aggregate's place for the value of a group's first row.
    pub fn first_of(&mut self, input: Expr) -> Expr {
        let ty = input.ty.clone();
        self.aggregates.push(AggregateCall { kind: Aggregate::First, inputs: vec![input] });
        Expr { ty, kind: Kind::Aggregate(self.aggregates.len() - 1) }
    }

    fn cell_metadata(&mut self, what: CellMetadata, inner: &Selector) -> Result<Expr> {
        let name = match what {
            CellMetadata::WriteTime => "writetime",
            CellMetadata::MaxWriteTime => "maxwritetime",
            CellMetadata::Ttl => "ttl",
        };
        if !self.timed {
            return invalid!(
                "{name}() is not supported by SELECT FROM MUTATION_FRAGMENTS(): its column metadata has the times of cells"
            );
        }
        let (column, part) = self.cell_part(inner)?;
        if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
            return invalid!("Cannot use selection function {name} on PRIMARY KEY part {}", column.name);
        }
        let one = if what == CellMetadata::Ttl { CqlType::Int } else { CqlType::Bigint };
        let many = column.is_complex() && matches!(part, CellPart::Whole | CellPart::Slice(..));
        let ty = if many && what != CellMetadata::MaxWriteTime { CqlType::list(one, false) } else { one };
        let meta = CellMeta { column: ColumnRef::from(column), what, part };
        Ok(Expr { ty, kind: Kind::Meta(Box::new(meta)) })
    }

    fn cell_part(&mut self, inner: &Selector) -> Result<(&'a schema::Column, CellPart)> {
        match &inner.kind {
            SelectorKind::Column(name) => Ok((self.column(&name.name)?, CellPart::Whole)),
            SelectorKind::Field(of, field) => {
                let (column, part) = self.cell_part(of)?;
                let of_type = match part {
                    CellPart::Whole => column.ty.clone(),
                    _ => self.resolve(of, None)?.ty,
                };
                let CqlType::Udt { ty, .. } = &of_type else {
                    return invalid!(
                        "Invalid field selection: {} of type {} is not a user type",
                        text(of),
                        of_type.cql_name()
                    );
                };
                let Some(at) = ty.field_index(&field.name) else {
                    return invalid!(
                        "{} of type {} has no field {}",
                        text(of),
                        of_type.cql_name(),
                        field.name
                    );
                };
                // A field of a field is in the cell of the outer one.
                match part {
                    CellPart::Whole => Ok((column, CellPart::Field(at as u16))),
                    part => Ok((column, part)),
                }
            }
            SelectorKind::Element(of, key) => {
                let (column, _) = self.cell_part(of)?;
                let key_type = self.key_type("Element", of, &column.ty)?.clone();
                let receiver = Receiver::new(key_name(&column.ty, &column.name), &key_type);
                Ok((column, CellPart::Element(Box::new(self.term(key, &receiver)?))))
            }
            SelectorKind::Slice(of, from, to) => {
                let (column, _) = self.cell_part(of)?;
                let key_type = self.key_type("Slice", of, &column.ty)?.clone();
                let receiver = Receiver::new(key_name(&column.ty, &column.name), &key_type);
                let mut end = |term: &Option<Term>| {
                    term.as_ref().map(|term| self.term(term, &receiver).map(Box::new)).transpose()
                };
                let (from, to) = (end(from)?, end(to)?);
                Ok((column, CellPart::Slice(from, to)))
            }
            _ => invalid!(
                "Only a column, an element or a field can be asked for its times, not {}",
                text(inner)
            ),
        }
    }

    /// The type of a set's elements or a map's keys.
    fn key_type<'t>(&self, what: &str, inner: &Selector, ty: &'t CqlType) -> Result<&'t CqlType> {
        match ty {
            CqlType::Map { key, .. } => Ok(key),
            CqlType::Set { element, .. } => Ok(element),
            CqlType::List { .. } => {
                invalid!("{what} selection is only allowed on sets and maps, but {} is a list", text(inner))
            }
            _ => invalid!(
                "Invalid {} selection: {} is of type {} is not a collection",
                what.to_lowercase(),
                text(inner),
                ty.cql_name()
            ),
        }
    }

    fn element(&mut self, inner: &Selector, key: &Term) -> Result<Expr> {
        let expr = self.resolve(inner, None)?;
        let (key_type, ty) = match &expr.ty {
            CqlType::Map { key, value, .. } => (CqlType::clone(key), CqlType::clone(value)),
            // As in ScyllaDB: by its place.
            CqlType::List { element, .. } => (CqlType::Int, CqlType::clone(element)),
            ty => {
                let element = self.key_type("Element", inner, ty)?.clone();
                (element.clone(), element)
            }
        };
        let receiver = Receiver::new(key_name(&expr.ty, &text(inner)), &key_type);
        let key = self.term(key, &receiver)?;
        Ok(Expr { ty, kind: Kind::Element(Box::new(expr), Box::new(key), text(inner).into()) })
    }

    fn slice(&mut self, inner: &Selector, from: Option<&Term>, to: Option<&Term>) -> Result<Expr> {
        let expr = self.resolve(inner, None)?;
        let key_type = self.key_type("Slice", inner, &expr.ty)?.clone();
        let receiver = Receiver::new(key_name(&expr.ty, &text(inner)), &key_type);
        let mut end =
            |term: Option<&Term>| term.map(|term| self.term(term, &receiver).map(Box::new)).transpose();
        let (from, to) = (end(from)?, end(to)?);
        Ok(Expr { ty: expr.ty.clone(), kind: Kind::Slice(Box::new(expr), from, to, text(inner).into()) })
    }

    fn cast(&mut self, inner: &Selector, ty: cql::ast::NativeType, whole: &Selector) -> Result<Expr> {
        let target = crate::type_name::native(ty);
        if self.columns
            && matches!(inner.kind, SelectorKind::Constant(_) | SelectorKind::Null | SelectorKind::Marker(_))
        {
            return self.cannot_infer(inner);
        }
        let argument = self.argument(inner, self.probing);
        match native::resolve_cast(&argument, &target)? {
            Some(function) => self.call(Function::Native(function), &[inner], whole, None),
            None => self.resolve(inner, Some(&Receiver::new(text(inner), &target))),
        }
    }

    fn type_hint(
        &mut self,
        ty: &cql::ast::DataType,
        inner: &Selector,
        whole: &Selector,
        receiver: Option<&Receiver<'_>>,
    ) -> Result<Expr> {
        let ty = crate::type_name::resolve(ty, self.schema, self.keyspace)?;
        let name = text(&self.qualified(whole));
        if self.fit(inner, &ty) == Fit::None {
            return match self.columns {
                true => invalid!("Cannot assign value {name} to {name} of type {}", ty.freeze().cql_name()),
                false => invalid!("Cannot cast value {} to type {}", text(inner), ty.cql_name()),
            };
        }
        // A marker has the name of its receiver.
        let inner_name = match (&inner.kind, receiver) {
            (SelectorKind::Marker(_), Some(receiver)) => &*receiver.name,
            _ => name.as_str(),
        };
        let mut expr = self.resolve(inner, Some(&Receiver::new(inner_name, &ty)))?;
        expr.ty = ty;
        if let Some(receiver) = receiver
            && fit_of_type(&receiver.ty, &expr.ty) == Fit::None
        {
            return invalid!(
                "Cannot assign value {name} to {} of type {}",
                receiver.name,
                receiver.ty.cql_name()
            );
        }
        Ok(expr)
    }

    fn element_type(&self, parts: &[Selector]) -> Option<CqlType> {
        parts.iter().find_map(|part| self.infer(part))
    }

    fn tuple(
        &mut self,
        parts: &[Selector],
        selector: &Selector,
        receiver: Option<&Receiver<'_>>,
    ) -> Result<Expr> {
        let Some(receiver) = receiver else {
            if let [single] = parts {
                return self.resolve(single, None);
            }
            let types: Option<Vec<CqlType>> = parts.iter().map(|part| self.infer(part)).collect();
            let Some(types) = types else { return self.cannot_infer(selector) };
            let ty = CqlType::tuple(types);
            return self.tuple(parts, selector, Some(&Receiver::owned(text(selector), ty)));
        };
        let CqlType::Tuple(fields) = &*receiver.ty else {
            if let [single] = parts {
                return self.resolve(single, Some(receiver));
            }
            return invalid!(
                "Invalid tuple type literal for {} of type {}",
                receiver.name,
                receiver.ty.cql_name()
            );
        };
        if parts.len() > fields.len() {
            return invalid!(
                "Invalid tuple literal for {}: too many elements. Type {} expects {} but got {}",
                receiver.name,
                receiver.ty.cql_name(),
                fields.len(),
                parts.len()
            );
        }
        let mut exprs = Vec::with_capacity(parts.len());
        for (at, (part, ty)) in parts.iter().zip(fields.iter()).enumerate() {
            self.check_array(part, ty)?;
            if self.fit(part, ty) == Fit::None {
                return invalid!(
                    "Invalid tuple literal for {}: component {at} is not of type {}",
                    receiver.name,
                    ty.cql_name()
                );
            }
            exprs.push(self.resolve(part, Some(&Receiver::new(format!("{}[{at}]", receiver.name), ty)))?);
        }
        Ok(Expr { ty: CqlType::clone(&receiver.ty), kind: Kind::Build(exprs) })
    }

    /// Resolves the elements of a collection literal.
    fn elements(
        &mut self,
        what: &str,
        parts: &[Selector],
        ty: &CqlType,
        receiver: &Receiver<'_>,
    ) -> Result<Vec<Expr>> {
        let name = if self.columns { "[selection]".to_owned() } else { format!("value({})", receiver.name) };
        let element = Receiver::new(name, ty);
        let mut exprs = Vec::with_capacity(parts.len());
        for part in parts {
            self.no_marker_inside(what, part, receiver)?;
            self.check_array(part, ty)?;
            if self.fit(part, ty) == Fit::None {
                return invalid!(
                    "Invalid {what} literal for {}: value {} is not of type {}",
                    receiver.name,
                    text(part),
                    ty.cql_name()
                );
            }
            exprs.push(self.resolve(part, Some(&element))?);
        }
        Ok(exprs)
    }

    /// Refuses a list where neither a list nor a vector can stand.
    fn check_array(&self, part: &Selector, ty: &CqlType) -> Result<()> {
        match (&part.kind, ty) {
            (SelectorKind::List(_), CqlType::List { .. } | CqlType::Vector { .. }) => Ok(()),
            (SelectorKind::List(_), other) => self.no_array(other),
            _ => Ok(()),
        }
    }

    fn no_array<T>(&self, ty: &CqlType) -> Result<T> {
        invalid!("Unexpected receiver type '{}'; only list and vector are expected", ty.cql_name())
    }

    /// Collections that are stored an element a cell take no markers inside, as in Cassandra; those of a selection do.
    fn no_marker_inside(&self, what: &str, part: &Selector, receiver: &Receiver<'_>) -> Result<()> {
        if what != "vector" && !self.columns && matches!(part.kind, SelectorKind::Marker(_)) {
            return invalid!(
                "Invalid {what} literal for {}: bind variables are not supported inside collection literals",
                receiver.name
            );
        }
        Ok(())
    }

    fn list(
        &mut self,
        parts: &[Selector],
        selector: &Selector,
        receiver: Option<&Receiver<'_>>,
    ) -> Result<Expr> {
        let Some(receiver) = receiver else {
            let element = self.element_type(parts);
            // The first type decides, as in Cassandra.
            let Some(element) = element.filter(|ty| self.fit_all(parts, ty) != Fit::None) else {
                return self.cannot_infer(selector);
            };
            let ty = CqlType::list(element, true);
            return self.list(parts, selector, Some(&Receiver::owned(text(selector), ty)));
        };
        let kind = match &*receiver.ty {
            CqlType::List { element, .. } => Kind::Build(self.elements("list", parts, element, receiver)?),
            CqlType::Vector { element, dimension } => {
                if parts.len() != *dimension as usize {
                    return invalid!(
                        "Invalid vector literal for {} of type {}; expected {dimension} elements, but given {}",
                        receiver.name,
                        receiver.ty.cql_name(),
                        parts.len()
                    );
                }
                Kind::Build(self.elements("vector", parts, element, receiver)?)
            }
            other => return self.no_array(other),
        };
        Ok(Expr { ty: CqlType::clone(&receiver.ty), kind })
    }

    fn set(
        &mut self,
        parts: &[Selector],
        selector: &Selector,
        receiver: Option<&Receiver<'_>>,
    ) -> Result<Expr> {
        let Some(receiver) = receiver else {
            let Some(element) = self.element_type(parts) else { return self.cannot_infer(selector) };
            let ty = CqlType::set(element, true);
            return self.set(parts, selector, Some(&Receiver::owned(text(selector), ty)));
        };
        let kind = match &*receiver.ty {
            CqlType::Set { element, .. } => Kind::Build(self.elements("set", parts, element, receiver)?),
            // `{}` is also the empty map.
            CqlType::Map { .. } if parts.is_empty() => Kind::Build(Vec::new()),
            other => {
                return invalid!("Invalid set literal for {} of type {}", receiver.name, other.cql_name());
            }
        };
        Ok(Expr { ty: CqlType::clone(&receiver.ty), kind })
    }

    fn map(
        &mut self,
        entries: &[(Selector, Selector)],
        selector: &Selector,
        receiver: Option<&Receiver<'_>>,
    ) -> Result<Expr> {
        let Some(receiver) = receiver else {
            let key = entries.iter().find_map(|(key, _)| self.infer(key));
            let value = entries.iter().find_map(|(_, value)| self.infer(value));
            let (Some(key), Some(value)) = (key, value) else { return self.cannot_infer(selector) };
            let ty = CqlType::map(key, value, true);
            return self.map(entries, selector, Some(&Receiver::owned(text(selector), ty)));
        };
        match &*receiver.ty {
            CqlType::Udt { ty, .. } => self.user_type(entries, ty, receiver),
            CqlType::Map { key, value, .. } => {
                if !self.columns && entries.iter().any(|(key, _)| matches!(key.kind, SelectorKind::Column(_)))
                {
                    return self.wrong_literal("user type", receiver);
                }
                let key_receiver = Receiver::new(format!("key({})", receiver.name), key);
                let value_receiver = Receiver::new(format!("value({})", receiver.name), value);
                let mut exprs = Vec::with_capacity(entries.len() * 2);
                for (k, v) in entries {
                    for (what, part, ty, receiver_of) in
                        [("key", k, key, &key_receiver), ("value", v, value, &value_receiver)]
                    {
                        self.no_marker_inside("map", part, receiver)?;
                        self.check_array(part, ty)?;
                        if self.fit(part, ty) == Fit::None {
                            return invalid!(
                                "Invalid map literal for {}: {what} {} is not of type {}",
                                receiver.name,
                                text(part),
                                ty.cql_name()
                            );
                        }
                        exprs.push(self.resolve(part, Some(receiver_of))?);
                    }
                }
                Ok(Expr { ty: CqlType::clone(&receiver.ty), kind: Kind::Build(exprs) })
            }
            _ => {
                let user_type = entries.iter().all(|(key, _)| matches!(key.kind, SelectorKind::Column(_)));
                let what = if user_type && !self.columns { "user type" } else { "map" };
                self.wrong_literal(what, receiver)
            }
        }
    }

    fn wrong_literal<T>(&self, what: &str, receiver: &Receiver<'_>) -> Result<T> {
        invalid!("Invalid {what} literal for {} of type {}", receiver.name, receiver.ty.cql_name())
    }

    fn user_type(
        &mut self,
        entries: &[(Selector, Selector)],
        ty: &types::UserType,
        receiver: &Receiver<'_>,
    ) -> Result<Expr> {
        let mut fields: Vec<Expr> =
            ty.fields.iter().map(|(_, field)| Expr::constant(field.clone(), None)).collect();
        for (key, value) in entries {
            let SelectorKind::Column(name) = &key.kind else { return self.wrong_literal("map", receiver) };
            let Some(at) = ty.field_index(&name.name) else {
                return invalid!("Unknown field '{}' in value of user defined type {}", name.name, ty.name);
            };
            let field_type = &ty.fields[at].1;
            self.check_array(value, field_type)?;
            if self.fit(value, field_type) == Fit::None {
                return invalid!(
                    "Invalid user type literal for {}: field {} is not of type {}",
                    receiver.name,
                    name.name,
                    field_type.cql_name()
                );
            }
            let of_field = Receiver::new(format!("{}.{}", receiver.name, name.name), field_type);
            fields[at] = self.resolve(value, Some(&of_field))?;
        }
        Ok(Expr { ty: CqlType::clone(&receiver.ty), kind: Kind::Build(fields) })
    }

    fn arithmetic(
        &mut self,
        left: &Selector,
        op: ArithmeticOperator,
        right: &Selector,
        whole: &Selector,
        receiver: Option<&Receiver<'_>>,
    ) -> Result<Expr> {
        let left_argument = self.argument(left, self.probing);
        let right_argument = self.argument(right, self.probing);
        // The operands alone decide in a selection, and also the receiver in a term, as in Cassandra.
        let wanted = receiver.filter(|_| !self.columns).map(|receiver| &*receiver.ty);
        let function = native::resolve_operator(operator(op), &left_argument, &right_argument, wanted)?;
        self.call(Function::Native(function), &[left, right], whole, receiver)
    }

    /// `quiet` where nobody reads the messages.
    pub(super) fn argument<'s>(&self, selector: &'s Selector, quiet: bool) -> ArgumentOf<'s>
    where
        'a: 's,
    {
        let place = (self.schema, self.table, self.columns);
        ArgumentOf { selector, ty: self.infer(selector), place, quiet, known: self.known.clone() }
    }

    /// The type that a selector has by itself.
    pub(super) fn infer(&self, selector: &Selector) -> Option<CqlType> {
        if !is_compound(selector) {
            return self.infer_anew(selector);
        }
        if let Some(known) = self.known.type_of(selector, self.columns) {
            return known;
        }
        let ty = self.infer_anew(selector);
        self.known.put_type(selector, self.columns, ty.clone());
        ty
    }

    fn infer_anew(&self, selector: &Selector) -> Option<CqlType> {
        match &selector.kind {
            SelectorKind::Column(name) if self.columns => {
                self.table.column(&name.name).map(|column| column.ty.clone())
            }
            SelectorKind::Constant(constant) => Some(literal::preferred_type(constant)),
            SelectorKind::TypeHint(ty, _) => crate::type_name::resolve(ty, self.schema, self.keyspace).ok(),
            SelectorKind::Cast(_, ty) => Some(crate::type_name::native(*ty)),
            SelectorKind::Tuple(parts) => match parts.as_slice() {
                [single] => self.infer(single),
                _ => {
                    parts.iter().map(|part| self.infer(part)).collect::<Option<Vec<_>>>().map(CqlType::tuple)
                }
            },
            SelectorKind::List(parts) => self.element_type(parts).map(|ty| CqlType::list(ty, true)),
            SelectorKind::Set(parts) => self.element_type(parts).map(|ty| CqlType::set(ty, true)),
            SelectorKind::Negate(inner) => self.infer(inner),
            SelectorKind::Map(_) | SelectorKind::Null | SelectorKind::Marker(_) | SelectorKind::Column(_) => {
                None
            }
            SelectorKind::CountRows => Some(CqlType::Bigint),
            // The others are resolved, part by part and each part once.
            SelectorKind::Arithmetic(..)
            | SelectorKind::Metadata(..)
            | SelectorKind::Function(_)
            | SelectorKind::Field(..)
            | SelectorKind::Element(..)
            | SelectorKind::Slice(..) => {
                let mut markers = Markers::default();
                let mut probe = Resolver::new(self.schema, self.table, &mut markers);
                probe.columns = self.columns;
                probe.probing = true;
                probe.known = self.known.clone();
                probe.resolve(selector, None).ok().map(|expr| expr.ty)
            }
        }
    }

    /// How well a selector fits a type.
    pub(super) fn fit(&self, selector: &Selector, ty: &CqlType) -> Fit {
        if !is_compound(selector) {
            return self.fit_anew(selector, ty);
        }
        if let Some(known) = self.known.fit(selector, self.columns, ty) {
            return known;
        }
        let fit = self.fit_anew(selector, ty);
        self.known.put_fit(selector, self.columns, ty, fit);
        fit
    }

    fn fit_anew(&self, selector: &Selector, ty: &CqlType) -> Fit {
        match &selector.kind {
            SelectorKind::Constant(constant) => literal::fits(constant, ty),
            SelectorKind::Null | SelectorKind::Marker(_) => Fit::Weak,
            SelectorKind::Tuple(parts) => match (parts.as_slice(), ty) {
                (_, CqlType::Tuple(fields)) if parts.len() <= fields.len() => {
                    parts.iter().zip(fields.iter()).map(|(p, t)| self.fit(p, t)).min().unwrap_or(Fit::Exact)
                }
                ([single], _) => self.fit(single, ty),
                _ => Fit::None,
            },
            SelectorKind::List(parts) => match ty {
                CqlType::List { element, .. } | CqlType::Vector { element, .. } => {
                    self.fit_all(parts, element)
                }
                _ => Fit::None,
            },
            SelectorKind::Set(parts) => match ty {
                CqlType::Set { element, .. } => self.fit_all(parts, element),
                CqlType::Map { .. } if parts.is_empty() => Fit::Exact,
                _ => Fit::None,
            },
            SelectorKind::Map(entries) => match ty {
                CqlType::Map { key, value, .. } => entries
                    .iter()
                    .map(|(k, v)| self.fit(k, key).min(self.fit(v, value)))
                    .min()
                    .unwrap_or(Fit::Exact),
                // Fields that are missing have messages of their own.
                CqlType::Udt { ty, .. } => {
                    let fits = entries.iter().all(|(name, value)| match &name.kind {
                        SelectorKind::Column(name) => match ty.field_index(&name.name) {
                            Some(at) => self.fit(value, &ty.fields[at].1) != Fit::None,
                            None => true,
                        },
                        _ => false,
                    });
                    if fits { Fit::Weak } else { Fit::None }
                }
                _ => Fit::None,
            },
            SelectorKind::Arithmetic(left, op, right) if !self.columns => {
                let (left, right) = (self.argument(left, true), self.argument(right, true));
                match native::resolve_operator(operator(*op), &left, &right, Some(ty)) {
                    Ok(function) => fit_of_type(ty, &function.returns),
                    Err(_) => Fit::None,
                }
            }
            // A constant fits several types, and so do expressions of it in terms; a selection has types of its own.
            SelectorKind::Negate(inner)
                if matches!(inner.kind, SelectorKind::Constant(_))
                    || !self.columns && !matches!(inner.kind, SelectorKind::Column(_)) =>
            {
                self.fit(inner, ty).min(Fit::Weak)
            }
            SelectorKind::Function(call) if call.name.name.ends_with("json") => Fit::Weak,
            _ => match self.infer(selector) {
                Some(own) => fit_of_type(ty, &own),
                None => Fit::Weak,
            },
        }
    }

    fn fit_all(&self, parts: &[Selector], ty: &CqlType) -> Fit {
        parts.iter().map(|part| self.fit(part, ty)).min().unwrap_or(Fit::Exact)
    }
}

/// The name of a marker that stands for an element's key.
fn key_name(ty: &CqlType, column: &str) -> String {
    match ty {
        CqlType::Set { .. } => format!("value({column})"),
        CqlType::List { .. } => format!("idx({column})"),
        _ => format!("key({column})"),
    }
}

fn operator(op: ArithmeticOperator) -> Operator {
    match op {
        ArithmeticOperator::Add => Operator::Add,
        ArithmeticOperator::Subtract => Operator::Subtract,
        ArithmeticOperator::Multiply => Operator::Multiply,
        ArithmeticOperator::Divide => Operator::Divide,
        ArithmeticOperator::Modulo => Operator::Modulo,
    }
}

/// A selector as an argument among whose overloads a choice is made.
pub(super) struct ArgumentOf<'a> {
    selector: &'a Selector,
    ty: Option<CqlType>,
    place: (&'a Schema, &'a Table, bool),
    quiet: bool,
    known: Rc<Known>,
}

impl Argument for ArgumentOf<'_> {
    fn assignment(&self, ty: &CqlType) -> Fit {
        let (schema, table, columns) = self.place;
        let mut markers = Markers::default();
        let known = self.known.clone();
        let resolver = Resolver { columns, known, ..Resolver::new(schema, table, &mut markers) };
        resolver.fit(self.selector, ty)
    }

    fn known_type(&self) -> Option<CqlType> {
        self.ty.clone()
    }

    fn text(&self) -> String {
        if self.quiet { String::new() } else { text(self.selector) }
    }

    fn is_marker(&self) -> bool {
        matches!(self.selector.kind, SelectorKind::Marker(_))
    }

    fn array_len(&self) -> Option<usize> {
        match &self.selector.kind {
            SelectorKind::List(parts) => Some(parts.len()),
            _ => None,
        }
    }
}
