//! Constants: which types a literal fits, and its value once the type is known.

use bytes::Bytes;
use cql::ast::{Constant, Selector, SelectorKind, Term, TermKind};
use types::CqlType;

use crate::error::{Result, invalid};

pub use types::Assignment as Fit;
use types::ConstantKind;

/// The lexical kind of a constant.
fn kind(constant: &Constant) -> ConstantKind {
    match constant {
        Constant::String(_) => ConstantKind::String,
        Constant::Integer(_) => ConstantKind::Integer,
        Constant::Float(_) => ConstantKind::Float,
        Constant::Boolean(_) => ConstantKind::Boolean,
        Constant::Duration(_) => ConstantKind::Duration,
        Constant::Uuid(_) => ConstantKind::Uuid,
        Constant::Hex(_) => ConstantKind::Hex,
    }
}

/// The type that a literal has when nothing else says.
pub fn preferred_type(constant: &Constant) -> CqlType {
    kind(constant).preferred_type(constant.text())
}

/// How well a constant fits a type.
pub fn fits(constant: &Constant, ty: &CqlType) -> Fit {
    kind(constant).assignment(constant.text(), ty)
}

/// Whether a constant is the timestamp `'now'`, which is the time at which its statement runs.
pub fn is_now(constant: &Constant, ty: &CqlType) -> bool {
    matches!((constant, ty), (Constant::String(text), CqlType::Timestamp) if text.trim().eq_ignore_ascii_case("now"))
}

/// The name of the function that gives the time at which a statement runs.
pub fn now_function() -> cql::ast::QualifiedName {
    let (keyspace, name) = (Some("system".to_owned()), "current_timestamp".to_owned());
    cql::ast::QualifiedName { keyspace, name, pos: cql::ast::Pos::default() }
}

/// The value of a constant for `name`, which is of type `ty`.
///
/// # Errors
/// [`ExecError::Invalid`](crate::ExecError::Invalid) when a constant of this kind cannot be of the type, or its text is
/// no value of it.
pub fn value(constant: &Constant, name: &str, ty: &CqlType) -> Result<Bytes> {
    if fits(constant, ty) == Fit::None {
        return invalid!(
            "Invalid {} constant ({}) for \"{name}\" of type {}",
            kind(constant).name(),
            constant.text(),
            ty.cql_name()
        );
    }
    let text = match constant {
        // Types of a class alone have texts of their own, and bytes beside them.
        Constant::Hex(text) if matches!(ty, CqlType::Custom(_)) => {
            let bytes = CqlType::Blob.from_string(text.get(2..).unwrap_or_default())?;
            ty.validate(&bytes)?;
            return Ok(bytes.into());
        }
        Constant::Hex(text) => text.get(2..).unwrap_or_default(),
        other => other.text(),
    };
    let ty = if ty.is_counter() { &CqlType::Bigint } else { ty };
    Ok(ty.from_string(text)?.into())
}

/// A term as a selector: terms and selectors are resolved by one piece of code.
pub fn selector_of(term: &Term) -> Selector {
    let all = |terms: &[Term]| terms.iter().map(selector_of).collect::<Vec<_>>();
    let kind = match &term.kind {
        TermKind::Constant(constant) => SelectorKind::Constant(constant.clone()),
        TermKind::Null => SelectorKind::Null,
        TermKind::Marker(marker) => SelectorKind::Marker(marker.clone()),
        TermKind::List(terms) => SelectorKind::List(all(terms)),
        TermKind::Set(terms) => SelectorKind::Set(all(terms)),
        TermKind::Map(entries) => {
            SelectorKind::Map(entries.iter().map(|(k, v)| (selector_of(k), selector_of(v))).collect())
        }
        TermKind::UserType(fields) => SelectorKind::Map(
            fields
                .iter()
                .map(|(name, value)| {
                    let key = Selector { kind: SelectorKind::Column(name.clone()), pos: name.pos };
                    (key, selector_of(value))
                })
                .collect(),
        ),
        TermKind::Tuple(terms) => SelectorKind::Tuple(all(terms)),
        TermKind::Function(call) => {
            SelectorKind::Function(cql::ast::FunctionCall { name: call.name.clone(), args: all(&call.args) })
        }
        TermKind::Cast(inner, ty) => SelectorKind::Cast(Box::new(selector_of(inner)), *ty),
        TermKind::TypeHint(ty, inner) => SelectorKind::TypeHint(ty.clone(), Box::new(selector_of(inner))),
        TermKind::Arithmetic(left, op, right) => {
            SelectorKind::Arithmetic(Box::new(selector_of(left)), *op, Box::new(selector_of(right)))
        }
        TermKind::Negate(inner) => SelectorKind::Negate(Box::new(selector_of(inner))),
        TermKind::RowReference(reference) => SelectorKind::Column(reference.row.clone()),
    };
    Selector { kind, pos: term.pos }
}

/// `count(1)`, which is `count(*)`.
fn is_count_of_constant(call: &cql::ast::FunctionCall<Selector>) -> bool {
    call.name.keyspace.as_deref().is_none_or(|keyspace| keyspace == "system")
        && call.name.name == "count"
        && matches!(call.args.as_slice(), [one] if matches!(one.kind, SelectorKind::Constant(_)))
}

fn join(parts: &[Selector]) -> String {
    parts.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// A selector's text, which names its column in results and stands in messages. Functions carry their keyspace.
pub fn text(selector: &Selector) -> String {
    match &selector.kind {
        SelectorKind::Column(name) => name.name.clone(),
        // As Cassandra shows it: a quote inside is not doubled.
        SelectorKind::Constant(Constant::String(text)) => format!("'{text}'"),
        SelectorKind::Constant(constant) => constant.text().to_owned(),
        SelectorKind::Null => "NULL".to_owned(),
        SelectorKind::Marker(marker) => {
            marker.name.as_ref().map_or_else(|| "?".to_owned(), |name| format!(":{name}"))
        }
        SelectorKind::CountRows => "count".to_owned(),
        SelectorKind::Function(call) if is_count_of_constant(call) => "count".to_owned(),
        SelectorKind::Metadata(what, inner) => {
            let name = match what {
                cql::ast::CellMetadata::WriteTime => "writetime",
                cql::ast::CellMetadata::MaxWriteTime => "maxwritetime",
                cql::ast::CellMetadata::Ttl => "ttl",
            };
            format!("{name}({})", text(inner))
        }
        SelectorKind::Cast(inner, ty) => format!("cast({} as {})", text(inner), ty.name()),
        SelectorKind::Function(call) => {
            let keyspace = call.name.keyspace.as_deref().unwrap_or("system");
            format!("{keyspace}.{}({})", call.name.name, join(&call.args))
        }
        SelectorKind::Field(inner, field) => format!("{}.{}", text(inner), field.name),
        SelectorKind::Element(inner, key) => format!("{}[{}]", text(inner), text(&selector_of(key))),
        SelectorKind::Slice(inner, from, to) => {
            let end =
                |term: &Option<Term>| term.as_ref().map_or(String::new(), |term| text(&selector_of(term)));
            format!("{}[{}..{}]", text(inner), end(from), end(to))
        }
        SelectorKind::TypeHint(ty, inner) => format!("({}){}", crate::type_name::text(ty), text(inner)),
        SelectorKind::Tuple(parts) => format!("({})", join(parts)),
        SelectorKind::List(parts) => format!("[{}]", join(parts)),
        SelectorKind::Set(parts) => format!("{{{}}}", join(parts)),
        SelectorKind::Map(entries) => {
            let entries: Vec<String> =
                entries.iter().map(|(key, value)| format!("{}: {}", text(key), text(value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        SelectorKind::Arithmetic(left, op, right) => {
            format!("{} {} {}", text(left), op.symbol(), text(right))
        }
        SelectorKind::Negate(inner) => format!("-{}", text(inner)),
    }
}

/// A term's text.
pub fn term_text(term: &Term) -> String {
    text(&selector_of(term))
}
