//! Masks of columns in expressions: the check of a mask that is attached, and the expression that stands for a masked column.

use std::rc::Rc;

use cql::ast::{FunctionCall, Ident, Mask, QualifiedName, Selector, SelectorKind};
use schema::{Column, ColumnMask, MaskArgument, Schema, TableBuilder, TableId};
use types::CqlType;
use types::native::{self, Argument, TypedArgument};

use super::constant::{constant, constant_of};
use super::literal::{selector_of, text};
use super::resolve::{Markers, Resolver};
use super::row::ColumnRef;
use super::{Expr, Kind};
use crate::error::{Result, invalid};
use crate::functions::{Function, User};

/// The table and column that get a mask, as messages name them.
pub struct Masked<'a> {
    /// The keyspace of the table, whose functions may be masks.
    pub keyspace: &'a str,
    /// The table.
    pub table: &'a str,
    /// The column.
    pub column: &'a str,
    /// The column's type.
    pub ty: &'a CqlType,
}

/// Checks a mask as a statement writes it, with Cassandra's texts.
///
/// # Errors
/// When there is no such function, it cannot be a mask, or its result is not of the column's type.
pub fn resolve(ast: &Mask, masked: &Masked<'_>, schema: &Schema) -> Result<ColumnMask> {
    let Masked { keyspace, table, column, ty } = *masked;
    let default =
        || QualifiedName { keyspace: None, name: "mask_default".to_owned(), pos: cql::ast::Pos::default() };
    let name = ast.function.clone().unwrap_or_else(default);
    let arguments: Vec<Selector> = ast.args.iter().map(selector_of).collect();
    let written = match &name.keyspace {
        Some(keyspace) => format!("{keyspace}.{}", name.name),
        None => name.name.clone(),
    };
    let shown = format!("{written}({})", arguments.iter().map(text).collect::<Vec<_>>().join(", "));
    // A table of the masked column alone. Cassandra's messages name the column's value by the class of its type.
    let value = ty.class_name(false);
    let alone = TableBuilder::new(keyspace, table, TableId([0; 16])).partition_key("", CqlType::Blob);
    let alone = alone.regular(&value, ty.clone()).build_known();
    let pos = name.pos;
    let first = SelectorKind::Column(Ident { name: value, pos });
    let mut args = vec![Selector { kind: first, pos }];
    args.extend(arguments);
    let call = Selector { kind: SelectorKind::Function(FunctionCall { name: name.clone(), args }), pos };
    let mut markers = Markers::default();
    let mut resolver = Resolver::new(schema, &alone, &mut markers);
    resolver.columns = true;
    if !resolver.is_function(&name) {
        return invalid!(
            "Unable to find masking function for {column}, no declared function matches the signature {shown}"
        );
    }
    let expr = resolver.selector(&call, None)?;
    let function = match &expr.kind {
        Kind::Aggregate(_) => {
            return invalid!("Aggregate function {shown} cannot be used for masking table columns");
        }
        Kind::Call(function, _) => function.clone(),
        _ => return invalid!("Not-masking function {shown} cannot be used for masking table columns"),
    };
    let (home, name) = match &*function {
        Function::Native(native) if native.is_masking() => ("system", native.name.as_str()),
        Function::User(user) if user.definition.keyspace != keyspace => {
            return invalid!(
                "Masking function {shown} doesn't belong to the same keyspace as the table {keyspace}.{table}"
            );
        }
        Function::User(user) => (keyspace, user.definition.name.as_str()),
        Function::Native(_) | Function::Token(_) | Function::Text(_) => {
            return invalid!("Not-masking function {shown} cannot be used for masking table columns");
        }
    };
    if function.returns().freeze() != ty.freeze() {
        return invalid!(
            "Masking function {shown} return type is {}. This is different to the type of the masked column {column} of \
             type {}. Masking functions can only be attached to table columns if they return the same data type as the \
             masked column.",
            function.returns().cql_name(),
            ty.cql_name()
        );
    }
    let argument = |(term, ty): (&cql::ast::Term, &CqlType)| {
        let value = constant_of(term, ty, &format!("An argument of the mask {shown}"), schema, keyspace)?;
        Ok(MaskArgument { ty: ty.clone(), literal: value.map(|value| ty.format(&value)) })
    };
    let types = function.arguments().iter().skip(1);
    let arguments = ast.args.iter().zip(types).map(argument).collect::<Result<_>>()?;
    Ok(ColumnMask { keyspace: home.to_owned(), name: name.to_owned(), arguments })
}

impl Expr {
    /// A column as everybody may see it: its value, or the result of its mask.
    ///
    /// # Errors
    /// When the mask's function is gone, so that nothing of the column can be shown.
    pub fn masked(column: &Column, schema: &Schema) -> Result<Self> {
        let value = Self { ty: column.ty.clone(), kind: Kind::Column(ColumnRef::from(column)) };
        let Some(mask) = &column.mask else { return Ok(value) };
        let function = function_of(mask, &column.ty, schema)?;
        let mut parts = vec![value];
        for argument in &mask.arguments {
            let constant = match &argument.literal {
                Some(literal) => constant(literal, &argument.ty, schema, &mask.keyspace)?,
                None => None,
            };
            parts.push(Self::constant(argument.ty.clone(), constant));
        }
        Ok(Self { ty: column.ty.clone(), kind: Kind::Call(Rc::new(function), parts) })
    }
}

/// The function of a mask of a column of a type.
fn function_of(mask: &ColumnMask, ty: &CqlType, schema: &Schema) -> Result<Function> {
    if mask.keyspace != "system" {
        let home = schema.keyspace(&mask.keyspace);
        let mut known = home.into_iter().flat_map(|home| home.functions.values());
        let Some(definition) = known.find(|one| mask.calls(one, ty)) else {
            return invalid!("Masking function {}.{} doesn't exist", mask.keyspace, mask.name);
        };
        let types = definition.argument_types().cloned().collect();
        return Ok(Function::User(User { definition: definition.clone(), types }));
    }
    let typed = |ty: &CqlType| TypedArgument { ty: ty.clone(), text: mask.name.clone() };
    let arguments: Vec<TypedArgument> =
        std::iter::once(ty).chain(mask.arguments.iter().map(|argument| &argument.ty)).map(typed).collect();
    let arguments: Vec<&dyn Argument> = arguments.iter().map(|one| one as &dyn Argument).collect();
    match native::resolve(&mask.name, &arguments, Some(ty))? {
        Some(function) => Ok(Function::Native(function)),
        None => invalid!("Masking function system.{} doesn't exist", mask.name),
    }
}
