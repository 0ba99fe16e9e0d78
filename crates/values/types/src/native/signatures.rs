//! The overloads of every native function by name: those with fixed types, and those whose types follow from the
//! arguments of the call.

use super::argument::Argument;
use super::arithmetic::result_type;
use super::collection::{element_type, require};
use super::mask::Mask;
use super::math::MathFunction;
use super::operator::Operator;
use super::vector::Similarity;
use super::{AggregateKind, Body, Function, FunctionError, cast};
use crate::CqlType;

const NUMBERS: [CqlType; 9] = [
    CqlType::Tinyint,
    CqlType::Smallint,
    CqlType::Int,
    CqlType::Bigint,
    CqlType::Float,
    CqlType::Double,
    CqlType::Decimal,
    CqlType::Varint,
    CqlType::Counter,
];

/// The CQL names of native types, `varchar` beside `text`.
const NATIVE_NAMES: [&str; 21] = [
    "ascii",
    "bigint",
    "blob",
    "boolean",
    "counter",
    "date",
    "decimal",
    "double",
    "duration",
    "float",
    "inet",
    "int",
    "smallint",
    "text",
    "time",
    "timestamp",
    "timeuuid",
    "tinyint",
    "uuid",
    "varchar",
    "varint",
];

fn function(name: &str, arguments: &[CqlType], returns: CqlType, body: Body) -> Function {
    Function { name: name.to_owned(), arguments: arguments.to_vec(), returns, body }
}

/// The overloads with fixed types. Names are in lower case, as the parser leaves names without quotes.
pub(super) fn fixed(name: &str) -> Vec<Function> {
    use CqlType::*;
    let of = |overloads: &[(&[CqlType], CqlType, Body)]| {
        overloads
            .iter()
            .map(|(arguments, returns, body)| function(name, arguments, returns.clone(), *body))
            .collect()
    };
    match name {
        "now" | "current_timeuuid" | "currenttimeuuid" => of(&[(&[], Timeuuid, Body::Now)]),
        "current_timestamp" | "currenttimestamp" => of(&[(&[], Timestamp, Body::Now)]),
        "current_date" | "currentdate" => of(&[(&[], Date, Body::Now)]),
        "current_time" | "currenttime" => of(&[(&[], Time, Body::Now)]),
        "uuid" => of(&[(&[], Uuid, Body::Uuid)]),
        "min_timeuuid" | "mintimeuuid" => of(&[(&[Timestamp], Timeuuid, Body::MinTimeuuid)]),
        "max_timeuuid" | "maxtimeuuid" => of(&[(&[Timestamp], Timeuuid, Body::MaxTimeuuid)]),
        "to_date" | "todate" => of(&[(&[Timeuuid], Date, Body::ToTime), (&[Timestamp], Date, Body::ToTime)]),
        "to_timestamp" | "totimestamp" => {
            of(&[(&[Timeuuid], Timestamp, Body::ToTime), (&[Date], Timestamp, Body::ToTime)])
        }
        "to_unix_timestamp" | "tounixtimestamp" => of(&[
            (&[Timeuuid], Bigint, Body::ToTime),
            (&[Timestamp], Bigint, Body::ToTime),
            (&[Date], Bigint, Body::ToTime),
        ]),
        // Gone from Cassandra 5, still used by older applications.
        "dateof" => of(&[(&[Timeuuid], Timestamp, Body::ToTime)]),
        "unixtimestampof" => of(&[(&[Timeuuid], Bigint, Body::ToTime)]),
        "floor" => of(&[
            (&[Timestamp, Duration], Timestamp, Body::Floor),
            (&[Timestamp, Duration, Timestamp], Timestamp, Body::Floor),
            (&[Timeuuid, Duration], Timestamp, Body::Floor),
            (&[Timeuuid, Duration, Timestamp], Timestamp, Body::Floor),
            (&[Date, Duration], Date, Body::Floor),
            (&[Date, Duration, Date], Date, Body::Floor),
            (&[Time, Duration], Time, Body::Floor),
        ]),
        "count_rows" | "countRows" => of(&[(&[], Bigint, Body::Aggregate(AggregateKind::CountRows))]),
        "count" => of(&[(&[Blob], Bigint, Body::Aggregate(AggregateKind::Count))]),
        "sum" => per_number(name, Body::Aggregate(AggregateKind::Sum)),
        "avg" => per_number(name, Body::Aggregate(AggregateKind::Avg)),
        "abs" => per_number(name, Body::Math(MathFunction::Abs)),
        "exp" => per_number(name, Body::Math(MathFunction::Exp)),
        "log" => per_number(name, Body::Math(MathFunction::Log)),
        "log10" => per_number(name, Body::Math(MathFunction::Log10)),
        "round" => per_number(name, Body::Math(MathFunction::Round)),
        "length" => of(&[(&[Text], Int, Body::Length)]),
        "octet_length" => natives().map(|ty| function(name, &[ty], Int, Body::OctetLength)).collect(),
        "format_bytes" => amounts(name, Body::FormatBytes),
        "format_time" => amounts(name, Body::FormatTime),
        "_negate" => per_number(name, Body::Negate),
        _ => match Operator::ALL.into_iter().find(|operator| operator.function_name() == name) {
            Some(operator) => operations(operator),
            None => conversions(name),
        },
    }
}

/// The native types, each once.
fn natives() -> impl Iterator<Item = CqlType> {
    let names = NATIVE_NAMES.iter().filter(|name| **name != "varchar");
    names.filter_map(|name| CqlType::from_native_name(name))
}

/// The overloads of a function of an amount and up to two units.
fn amounts(name: &str, body: Body) -> Vec<Function> {
    use CqlType::{Ascii, Bigint, Int, Smallint, Text, Tinyint, Varint};
    let mut overloads = Vec::new();
    for units in 0..=2 {
        for amount in [Int, Tinyint, Smallint, Bigint, Varint, Ascii, Text] {
            let mut arguments = vec![amount];
            arguments.extend(std::iter::repeat_n(Ascii, units));
            overloads.push(function(name, &arguments, Text, body));
        }
    }
    overloads
}

fn per_number(name: &str, body: Body) -> Vec<Function> {
    NUMBERS.iter().map(|ty| function(name, std::slice::from_ref(ty), ty.clone(), body)).collect()
}

fn operations(operator: Operator) -> Vec<Function> {
    use CqlType::{Ascii, Date, Duration, Text, Timestamp};
    let name = operator.function_name();
    let mut overloads = Vec::new();
    for left in &NUMBERS {
        for right in &NUMBERS {
            let returns = result_type(left, right);
            overloads.push(function(
                name,
                &[left.clone(), right.clone()],
                returns,
                Body::Arithmetic(operator),
            ));
        }
    }
    if matches!(operator, Operator::Add | Operator::Subtract) {
        for ty in [Timestamp, Date] {
            overloads.push(function(name, &[ty.clone(), Duration], ty, Body::Temporal(operator)));
        }
    }
    if operator == Operator::Add {
        for (left, right, returns) in
            [(Text, Text, Text), (Ascii, Ascii, Ascii), (Ascii, Text, Text), (Text, Ascii, Text)]
        {
            overloads.push(function(name, &[left, right], returns, Body::Concatenate));
        }
    }
    overloads
}

/// Casts and conversions from and to blobs, whose names hold a type's.
fn conversions(name: &str) -> Vec<Function> {
    let native = |ty: &str| NATIVE_NAMES.contains(&ty).then(|| CqlType::from_native_name(ty)).flatten();
    if let Some(target) = name.strip_prefix("cast_as_").and_then(native) {
        let sources = cast::sources(&target);
        return sources
            .into_iter()
            .map(|source| function(name, &[source], target.clone(), Body::Cast))
            .collect();
    }
    let from = name.strip_prefix("blob_as_").or_else(|| name.strip_prefix("blobas")).and_then(native);
    if let Some(ty) = from.filter(|ty| *ty != CqlType::Blob) {
        return vec![function(name, &[CqlType::Blob], ty, Body::FromBlob)];
    }
    let to = name.strip_suffix("_as_blob").or_else(|| name.strip_suffix("asblob")).and_then(native);
    match to.filter(|ty| *ty != CqlType::Blob) {
        Some(ty) => vec![function(name, &[ty], CqlType::Blob, Body::ToBlob)],
        None => Vec::new(),
    }
}

/// The parameters of a function whose types follow from the call: at least, at most, and as messages show them.
fn parameters(name: &str) -> Option<(usize, usize, &'static str)> {
    Some(match name {
        "map_keys" | "map_values" => (1, 1, "map"),
        "collection_count" => (1, 1, "collection"),
        "collection_min" | "collection_max" | "collection_sum" | "collection_avg" => {
            (1, 1, "numeric_set_or_list")
        }
        "similarity_cosine" | "similarity_euclidean" | "similarity_dot_product" => {
            (2, 2, "vector<float, n>, vector<float, n>")
        }
        "min" | "max" | "to_json" | "tojson" | "mask_null" | "mask_default" => (1, 1, "any"),
        "from_json" | "fromjson" => (1, 1, "text"),
        "mask_replace" => (2, 2, "any, any"),
        "mask_hash" => (1, 2, "any, [text]"),
        "mask_inner" | "mask_outer" => (3, 4, "[text|varchar|ascii], int, int, [text]"),
        _ => return None,
    })
}

/// The overload that a call makes of a function whose types follow from its arguments; `None` for other names.
pub(super) fn derived(
    name: &str,
    arguments: &[&dyn Argument],
    receiver: Option<&CqlType>,
) -> Result<Option<Function>, FunctionError> {
    let Some((least, most, shown)) = parameters(name) else { return Ok(None) };
    if !(least..=most).contains(&arguments.len()) {
        let text = format!("Invalid number of arguments for function system.{name}({shown})");
        return Err(FunctionError::Invalid(text));
    }
    let types = infer(name, shown, arguments, receiver)?;
    let text = |i: usize| arguments.get(i).map(|argument| argument.text()).unwrap_or_default();
    let Some(first) = types.first().cloned() else { return Ok(None) };
    let (returns, body) = match name {
        "map_keys" | "map_values" => {
            require(name, "a map", &text(0), &first, matches!(first, CqlType::Map { .. }))?;
            map_parts(name, &first)
        }
        "collection_count" => {
            require(name, "a collection", &text(0), &first, first.is_collection())?;
            (CqlType::Int, Body::CollectionCount)
        }
        "collection_min" | "collection_max" | "collection_sum" | "collection_avg" => {
            over_elements(name, &text(0), &first)?
        }
        "similarity_cosine" | "similarity_euclidean" | "similarity_dot_product" => {
            similarity(name, arguments, &types)?
        }
        "min" => (first, Body::Aggregate(AggregateKind::Min)),
        "max" => (first, Body::Aggregate(AggregateKind::Max)),
        "to_json" | "tojson" => (CqlType::Text, Body::ToJson),
        "from_json" | "fromjson" => {
            let no_receiver =
                || format!("{name}() cannot be used in the selection clause of a SELECT statement");
            let returns = receiver.cloned().ok_or_else(|| FunctionError::Invalid(no_receiver()))?;
            (returns, Body::FromJson)
        }
        "mask_null" => (first, Body::Mask(Mask::Null)),
        "mask_default" => (first, Body::Mask(Mask::Default)),
        "mask_replace" => (types.get(1).cloned().unwrap_or(first), Body::Mask(Mask::Replace)),
        "mask_hash" => (CqlType::Blob, Body::Mask(Mask::Hash)),
        "mask_inner" => (first, Body::Mask(Mask::Inner)),
        _ => (first, Body::Mask(Mask::Outer)),
    };
    Ok(Some(Function { name: name.to_owned(), arguments: types, returns, body }))
}

/// The types of the arguments: their own, or those of the function for arguments that have none.
fn infer(
    name: &str,
    shown: &str,
    arguments: &[&dyn Argument],
    receiver: Option<&CqlType>,
) -> Result<Vec<CqlType>, FunctionError> {
    let vectors = name.starts_with("similarity_");
    let own = |argument: &&dyn Argument| match argument.array_len() {
        Some(len) if vectors => u32::try_from(len).ok().map(|len| CqlType::vector(CqlType::Float, len)),
        _ => argument.known_type(),
    };
    let mut types = Vec::with_capacity(arguments.len());
    for (i, argument) in arguments.iter().enumerate() {
        let inferred = match (name, i) {
            ("mask_replace", 1) => types.first().cloned().or_else(|| own(argument)),
            (_, 0 | 1) if vectors => own(argument).or_else(|| arguments.get(1 - i).and_then(own)),
            ("from_json" | "fromjson", _) | ("mask_hash", 1) => Some(CqlType::Text),
            ("mask_inner" | "mask_outer", 0) => own(argument).or(Some(CqlType::Text)),
            ("mask_inner" | "mask_outer", 1 | 2) => Some(CqlType::Int),
            ("mask_inner" | "mask_outer", _) => Some(CqlType::Text),
            ("min" | "max" | "mask_replace", _) => own(argument).or_else(|| receiver.cloned()),
            _ => own(argument),
        };
        let Some(ty) = inferred else {
            return Err(FunctionError::Invalid(format!(
                "Cannot infer type of argument {} in call to function system.{name}({shown}): use type casts to \
                 disambiguate",
                argument.text()
            )));
        };
        if let Some((own, wanted)) = refused(name, i, *argument, &ty) {
            return Err(FunctionError::Invalid(format!(
                "Function system.{name} requires an argument of type {wanted}, but found argument {} of type {}",
                argument.text(),
                own.cql_name()
            )));
        }
        types.push(ty);
    }
    Ok(types)
}

/// The type of an argument of a mask that its parameter does not take, and the types that it takes.
fn refused(name: &str, at: usize, argument: &dyn Argument, ty: &CqlType) -> Option<(CqlType, &'static str)> {
    let (takes, wanted): (&[CqlType], _) = match (name, at) {
        ("mask_inner" | "mask_outer", 0) if matches!(ty, CqlType::Text | CqlType::Ascii) => return None,
        ("mask_inner" | "mask_outer", 0) => return Some((ty.clone(), "[text|varchar|ascii]")),
        ("mask_inner" | "mask_outer", 1 | 2) => (&[CqlType::Int], "int"),
        ("mask_inner" | "mask_outer", 3) | ("mask_hash", 1) | ("from_json" | "fromjson", 0) => {
            (&[CqlType::Text], "text")
        }
        _ => return None,
    };
    let own = argument.known_type()?;
    (!takes.iter().any(|ty| argument.assignment(ty).is_assignable())).then_some((own, wanted))
}

fn map_parts(name: &str, ty: &CqlType) -> (CqlType, Body) {
    match ty {
        CqlType::Map { key, .. } if name == "map_keys" => {
            (CqlType::set((**key).clone(), true), Body::MapKeys)
        }
        CqlType::Map { value, .. } => (CqlType::list((**value).clone(), true), Body::MapValues),
        other => (other.clone(), Body::MapValues),
    }
}

fn over_elements(name: &str, argument: &str, ty: &CqlType) -> Result<(CqlType, Body), FunctionError> {
    let kind = match name {
        "collection_min" => AggregateKind::Min,
        "collection_max" => AggregateKind::Max,
        "collection_sum" => AggregateKind::Sum,
        _ => AggregateKind::Avg,
    };
    let element = element_type(ty);
    if matches!(kind, AggregateKind::Sum | AggregateKind::Avg) {
        require(name, "a numeric set/list", argument, ty, element.is_some_and(CqlType::is_numeric))?;
    } else {
        require(name, "a set or list", argument, ty, element.is_some())?;
    }
    let returns = element.cloned().unwrap_or(CqlType::Blob);
    Ok((returns, Body::CollectionAggregate(kind)))
}

fn similarity(
    name: &str,
    arguments: &[&dyn Argument],
    types: &[CqlType],
) -> Result<(CqlType, Body), FunctionError> {
    let mut dimensions = Vec::new();
    for (ty, argument) in types.iter().zip(arguments) {
        match ty {
            CqlType::Vector { element, dimension } if **element == CqlType::Float => {
                dimensions.push(*dimension)
            }
            _ => require(name, "a float vector", &argument.text(), ty, false)?,
        }
    }
    dimensions.dedup();
    if dimensions.len() > 1 {
        return Err(FunctionError::invalid("All arguments must have the same vector dimensions"));
    }
    let kind = match name {
        "similarity_cosine" => Similarity::Cosine,
        "similarity_euclidean" => Similarity::Euclidean,
        _ => Similarity::DotProduct,
    };
    Ok((CqlType::Float, Body::Similarity(kind)))
}
