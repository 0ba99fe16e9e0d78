//! CREATE INDEX on vectors: which columns may have one, and the options of Cassandra's and ScyllaDB's forms.

use replica::{BEAM_MAX, CONNECTIONS_MAX, Similarity};
use schema::{Column, Index, IndexTarget, IndexedPart, Table};
use types::CqlType;

use crate::error::{ExecError, Result, config, invalid, shown};
use crate::where_clause::index::{Family, is_float_vector, is_vector, of_vectors};

/// Options of SAI for vectors.
pub(super) const SAI_OPTIONS: [&str; 4] =
    ["similarity_function", "maximum_node_connections", "construction_beam_width", "optimize_for"];
/// Options of ScyllaDB's class.
const CLASS_OPTIONS: [&str; 7] = [
    "similarity_function",
    "maximum_node_connections",
    "construction_beam_width",
    "search_beam_width",
    "quantization",
    "oversampling",
    "rescoring",
];

/// Options of ScyllaDB's class that have one value here: components have one byte in the graph, and candidates are compared exactly.
const DONE_ANYWAY: [(&str, &str); 2] = [("quantization", "i8"), ("rescoring", "true")];
/// The greatest `oversampling`, ScyllaDB's.
const OVERSAMPLING_MAX: f32 = 100.0;

/// Checks a target that has vectors.
pub(super) fn check(table: &Table, target: &IndexTarget, index: &Index, family: Family) -> Result<()> {
    let column = table.column(&target.column).expect("targets are columns");
    if !target.part.term_types(&column.ty).into_iter().any(is_vector) {
        return Ok(());
    }
    if target.part != IndexedPart::Whole || family == Family::Sasi {
        return Err(ExecError::unsupported(format_args!("An index on vectors (column {})", target.column)));
    }
    if !is_float_vector(&column.ty) {
        return invalid!("SAI ANN indexes are only allowed on vector columns with float elements");
    }
    if let Some(other) = of_vectors(table, column) {
        return invalid!("The vectors of column {} have index {} already", column.name, other.name);
    }
    check_options(index, column)
}

/// Checks the requirements of ScyllaDB's class only.
pub(super) fn check_class(index: &Index, table: &Table) -> Result<()> {
    let [target] = index.targets.as_slice() else {
        return invalid!("A vector index is on one column");
    };
    let column = table.column(&target.column).expect("targets are columns");
    if !is_float_vector(&column.ty) {
        return invalid!("Vector indexes are only supported on columns of vectors of floats");
    }
    match index.options.keys().find(|name| !CLASS_OPTIONS.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => config(format!("Unsupported option {} for vector index", shown(name))),
    }
}

fn check_options(index: &Index, column: &Column) -> Result<()> {
    let option = |name: &str| index.options.get(name).map(String::as_str);
    let similarity = match option("similarity_function") {
        None => Similarity::default(),
        Some(name) => match Similarity::of_name(name) {
            Some(similarity) => similarity,
            None => {
                let known: Vec<&str> = Similarity::NAMES.iter().map(|(name, _)| *name).collect();
                return invalid!(
                    "Similarity function {} was not recognized for index {}. Valid values are: {}",
                    shown(&name.to_uppercase()),
                    index.name,
                    known.join(", ")
                );
            }
        },
    };
    if similarity == Similarity::Cosine && matches!(column.ty, CqlType::Vector { dimension: 1, .. }) {
        return invalid!("Cosine similarity is not supported for single-dimension vectors");
    }
    let numbers = [
        ("maximum_node_connections", CONNECTIONS_MAX),
        ("construction_beam_width", BEAM_MAX),
        ("search_beam_width", BEAM_MAX),
    ];
    for (name, max) in numbers {
        let Some(value) = option(name) else { continue };
        if !value.parse().is_ok_and(|number: usize| (1..=max).contains(&number)) {
            return invalid!(
                "Option {name} of an index must be a number from 1 to {max}, not {}",
                shown(value)
            );
        }
    }
    if let Some(factor) = option("oversampling")
        && !factor.parse().is_ok_and(|factor: f32| (1.0..=OVERSAMPLING_MAX).contains(&factor))
    {
        return invalid!(
            "Option oversampling of an index must be a number from 1 to {OVERSAMPLING_MAX}, not {}",
            shown(factor)
        );
    }
    for (name, done) in DONE_ANYWAY {
        if let Some(value) = option(name).filter(|value| !value.eq_ignore_ascii_case(done)) {
            return invalid!("Option {name} of an index must be '{done}', not {}", shown(value));
        }
    }
    if let Some(wanted) = option("optimize_for")
        && !["LATENCY", "RECALL"].iter().any(|known| known.eq_ignore_ascii_case(wanted))
    {
        return invalid!(
            "optimize_for '{}' was not recognized for index {}. Valid values are: LATENCY, RECALL",
            wanted.to_uppercase(),
            index.name
        );
    }
    Ok(())
}
