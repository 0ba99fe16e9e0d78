//! CHECK: the constraints that a statement gives a column, with Cassandra's texts.

use std::cmp::Ordering;

use cql::ast::{ComparisonOperator, Constant, ConstraintArgument, Term, TermKind};
use schema::{Column, ColumnKind, Comparison, Constraint, Table, TableBuilder};
use types::CqlType;

use crate::error::{Result, invalid};
use crate::modification::checks::whole_match;

/// The most constraints of a column.
const CONSTRAINTS_MAX: usize = 32;
/// The longest pattern or number of a constraint, in bytes.
const BOUND_BYTES_MAX: usize = 1024;
/// The most regular expressions of a table.
const REGEXPS_MAX: usize = 16;

/// Refuses more regular expressions than a table may have, before they are compiled: those of columns that it has, and those that a
/// statement gives columns. Each plan of a statement that writes the table compiles them again.
///
/// # Errors
/// When there are too many.
pub(super) fn check_regexps<'a>(
    known: impl Iterator<Item = &'a Column>,
    written: impl Iterator<Item = &'a cql::ast::Constraint>,
) -> Result<()> {
    let known = known.flat_map(|column| &column.constraints);
    let known = known.filter(|one| matches!(one, Constraint::Regexp(..))).count();
    let is_regexp = |one: &&cql::ast::Constraint| matches!(one, cql::ast::Constraint::Function { name, .. } if name.name.eq_ignore_ascii_case("regexp"));
    let count = known + written.filter(is_regexp).count();
    match count <= REGEXPS_MAX {
        true => Ok(()),
        false => invalid!("A table would have {count} constraints REGEXP: at most {REGEXPS_MAX} are allowed"),
    }
}

/// Checks the constraints that a statement gives a column of a table.
///
/// # Errors
/// When one cannot be a constraint of the column, or they do not go together.
pub(super) fn resolve(
    ast: &[cql::ast::Constraint],
    column: &Column,
    (keyspace, table): (&str, &str),
) -> Result<Vec<Constraint>> {
    let name = &column.name;
    if ast.is_empty() {
        return Ok(Vec::new());
    }
    if ast.len() > CONSTRAINTS_MAX {
        return invalid!(
            "Column '{name}' has {} constraints: at most {CONSTRAINTS_MAX} are allowed",
            ast.len()
        );
    }
    if column.ty.is_counter() || column.is_complex() || column.ty.is_udt() {
        return invalid!(
            "Constraint cannot be defined on the column {name} of type {} for the table {keyspace}.{table}",
            column.ty.cql_name()
        );
    }
    let constraints = ast.iter().map(|one| constraint(one, column)).collect::<Result<Vec<_>>>()?;
    check_duplicates(&constraints, name)?;
    for function in [Some("LENGTH"), Some("OCTET_LENGTH"), Some("REGEXP"), None] {
        check_together(&constraints, function, column)?;
    }
    for constraint in &constraints {
        check_alone(constraint, column)?;
    }
    Ok(constraints)
}

/// ALTER TABLE … ALTER column CHECK …, or DROP CHECK; nothing when that changes nothing.
pub(super) fn alter(
    ast: &[cql::ast::Constraint],
    column: &str,
    if_exists: bool,
    table: &Table,
) -> Result<Option<TableBuilder>> {
    let Some(known) = table.column(column) else {
        return match if_exists {
            true => Ok(None),
            false => invalid!("Column with name '{column}' doesn't exist on table '{}'", table.name),
        };
    };
    check_regexps(table.columns().iter().filter(|other| other.id != known.id), ast.iter())?;
    let constraints = resolve(ast, known, (&table.keyspace, &table.name))?;
    if constraints == known.constraints {
        return Ok(None);
    }
    let mut builder = table.to_builder();
    builder.set_constraints(column, constraints);
    Ok(Some(builder))
}

fn constraint(ast: &cql::ast::Constraint, column: &Column) -> Result<Constraint> {
    match ast {
        cql::ast::Constraint::NotNull => Ok(Constraint::NotNull),
        cql::ast::Constraint::Scalar { column: named, operator, value } => {
            if named.as_ref().is_some_and(|named| named.name != column.name) {
                return wrong_parameter("scalar", column);
            }
            Ok(Constraint::Value(comparison(*operator), number(value, column)?))
        }
        cql::ast::Constraint::Function { name, args, comparison } => {
            function(&name.name, args, comparison.as_ref(), column)
        }
    }
}

fn function(
    name: &str,
    args: &[ConstraintArgument],
    compared: Option<&(ComparisonOperator, Term)>,
    column: &Column,
) -> Result<Constraint> {
    let known = match (name.to_ascii_lowercase().as_str(), compared) {
        ("not_null", None) => Constraint::NotNull,
        ("json", None) => Constraint::Json,
        ("length", Some((operator, bound))) => {
            Constraint::Length(comparison(*operator), whole_number("LENGTH", bound)?)
        }
        ("octet_length", Some((operator, bound))) => {
            Constraint::OctetLength(comparison(*operator), whole_number("OCTET_LENGTH", bound)?)
        }
        ("regexp", Some((operator, bound))) => regexp(comparison(*operator), bound)?,
        _ => return invalid!("Unrecognized constraint function: {name}"),
    };
    match args {
        [] => Ok(known),
        [ConstraintArgument::Column(named)] if named.name == column.name => Ok(known),
        _ => wrong_parameter(known.function().unwrap_or("scalar"), column),
    }
}

fn wrong_parameter<T>(of: &str, column: &Column) -> Result<T> {
    invalid!("Parameter of {of} constraint should be the column name ({})", column.name)
}

fn comparison(operator: ComparisonOperator) -> Comparison {
    match operator {
        ComparisonOperator::Equal => Comparison::Equal,
        ComparisonOperator::NotEqual => Comparison::NotEqual,
        ComparisonOperator::Less => Comparison::Less,
        ComparisonOperator::LessOrEqual => Comparison::LessOrEqual,
        ComparisonOperator::Greater => Comparison::Greater,
        ComparisonOperator::GreaterOrEqual => Comparison::GreaterOrEqual,
    }
}

/// The bound of a comparison of the column's value, as it is written.
fn number(term: &Term, column: &Column) -> Result<String> {
    use CqlType::{Bigint, Decimal, Double, Float, Int, Smallint, Tinyint, Varint};
    let name = &column.name;
    if !matches!(column.ty, Tinyint | Smallint | Int | Bigint | Varint | Float | Double | Decimal) {
        return invalid!("Column '{name}' is not a number type.");
    }
    let text = match &term.kind {
        TermKind::Constant(Constant::Integer(text)) => text,
        TermKind::Constant(Constant::Float(text)) if text.contains(|c: char| c.is_ascii_digit()) => text,
        _ => return invalid!("A constraint of column '{name}' compares with a number"),
    };
    if text.len() > BOUND_BYTES_MAX || column.ty.from_string(text).is_err() {
        let ty = column.ty.cql_name();
        return invalid!("A constraint of column '{name}' compares with a number that is no {ty}");
    }
    Ok(text.clone())
}

fn whole_number(function: &str, term: &Term) -> Result<i32> {
    if let TermKind::Constant(Constant::Integer(text)) = &term.kind
        && let Ok(number) = text.parse()
    {
        return Ok(number);
    }
    invalid!("{function} constraint compares with an integer of 32 bits")
}

fn regexp(comparison: Comparison, term: &Term) -> Result<Constraint> {
    if !matches!(comparison, Comparison::Equal | Comparison::NotEqual) {
        return invalid!(
            "REGEXP constraint of relation '{}' is not supported. Only these are: [=, !=]",
            comparison.symbol()
        );
    }
    let TermKind::Constant(Constant::String(pattern)) = &term.kind else {
        return invalid!("REGEXP constraint compares with a string");
    };
    if pattern.len() > BOUND_BYTES_MAX {
        return invalid!(
            "A regular expression has {} bytes: at most {BOUND_BYTES_MAX} are allowed",
            pattern.len()
        );
    }
    if whole_match(pattern).is_none() {
        return invalid!("String '{pattern}' is not a valid regular expression");
    }
    Ok(Constraint::Regexp(comparison, pattern.clone()))
}

/// Refuses a constraint twice; `!=` may stand several times.
fn check_duplicates(constraints: &[Constraint], column: &str) -> Result<()> {
    let full_name = |constraint: &Constraint| {
        let name = constraint.function().unwrap_or(column);
        match constraint.comparison() {
            Some((comparison, _)) => format!("{name} {}", comparison.symbol()),
            None => name.to_owned(),
        }
    };
    let differs = |constraint: &Constraint| {
        constraint.comparison().is_some_and(|(comparison, _)| comparison == Comparison::NotEqual)
    };
    let names: Vec<String> = constraints.iter().map(full_name).collect();
    let duplicates: Vec<&str> = names
        .iter()
        .enumerate()
        .filter(|(at, name)| names[..*at].contains(name) && !differs(&constraints[*at]))
        .map(|(_, name)| name.as_str())
        .collect();
    match duplicates.is_empty() {
        true => Ok(()),
        false => invalid!(
            "There are duplicate constraint definitions on column '{column}': [{}]",
            duplicates.join(", ")
        ),
    }
}

/// Refuses comparisons of one function, or of the value itself, that no value fulfils, or that say less than one of them.
fn check_together(constraints: &[Constraint], function: Option<&str>, column: &Column) -> Result<()> {
    let same = |constraint: &&Constraint| constraint.function() == function;
    let compared: Vec<(Comparison, String)> =
        constraints.iter().filter(same).filter_map(Constraint::comparison).collect();
    let (different, bounds): (Vec<_>, Vec<_>) =
        compared.iter().partition(|(comparison, _)| *comparison == Comparison::NotEqual);
    let name = &column.name;
    if bounds.len() > 2 {
        return invalid!(
            "There can not be more than 2 constraints (not including non-equal relations) on a column '{name}' but you \
             have specified {}",
            compared.len()
        );
    }
    for (at, (_, term)) in different.iter().enumerate() {
        if different[..at].iter().any(|(_, before)| before == term) {
            let subject = function.map_or(name.clone(), |function| format!("{function}({name})"));
            return invalid!(
                "There are duplicate constraint definitions on column '{name}': {subject} != {term}"
            );
        }
    }
    let [(first, first_term), (second, second_term)] = compared.as_slice() else { return Ok(()) };
    let what = function.unwrap_or("scalar");
    let shown =
        || format!("{name} {} {first_term}, {name} {} {second_term}", first.symbol(), second.symbol());
    use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    match (first, second) {
        (NotEqual, NotEqual) => return Ok(()),
        (Equal, _) | (_, Equal) | (Greater, GreaterOrEqual) | (GreaterOrEqual, Greater) => {}
        (Less, LessOrEqual) | (LessOrEqual, Less) => {}
        (NotEqual, _) | (_, NotEqual) => return Ok(()),
        _ => {
            let order = order(first_term, second_term, function, column);
            if !first.holds(order.reverse()) || !second.holds(order) {
                return invalid!("Constraints of {what} are not satisfiable: {}", shown());
            }
            return Ok(());
        }
    }
    invalid!("Constraints combination of {what} is not supported: {}", shown())
}

/// How two bounds are ordered: numbers of the column's type, or lengths.
fn order(first: &str, second: &str, function: Option<&str>, column: &Column) -> Ordering {
    let ty = if function.is_some() { &CqlType::Int } else { &column.ty };
    match (ty.from_string(first), ty.from_string(second)) {
        (Ok(first), Ok(second)) => ty.compare(&first, &second),
        _ => Ordering::Equal,
    }
}

/// Refuses a constraint that has no meaning for the column.
fn check_alone(constraint: &Constraint, column: &Column) -> Result<()> {
    static TEXTS: [CqlType; 2] = [CqlType::Text, CqlType::Ascii];
    static BYTES: [CqlType; 3] = [CqlType::Blob, CqlType::Text, CqlType::Ascii];
    let supported: &[CqlType] = match constraint {
        Constraint::Json | Constraint::Regexp(..) => &TEXTS,
        Constraint::Length(..) | Constraint::OctetLength(..) => &BYTES,
        Constraint::Value(..) => return Ok(()),
        Constraint::NotNull => {
            let kind = match column.kind {
                ColumnKind::PartitionKey => "partition",
                ColumnKind::Clustering => "clustering",
                ColumnKind::Static | ColumnKind::Regular => return Ok(()),
            };
            return invalid!(
                "NOT_NULL constraint can not be specified on a {kind} key column '{}'",
                column.name
            );
        }
    };
    if supported.contains(&column.ty) {
        return Ok(());
    }
    let classes: Vec<String> = supported.iter().map(|ty| ty.class_name(false)).collect();
    let class = column.ty.class_name(false);
    invalid!(
        "Constraint '{}' can be used only for columns of type [{}] but it was class {}",
        constraint.function().unwrap_or("scalar"),
        classes.join(", "),
        class.split('(').next().unwrap_or(&class)
    )
}
