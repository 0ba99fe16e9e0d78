//! `ORDER BY … ANN OF`: the column, its index and the vector that rows are to be near to.

use cql::ast::{Direction, Select};
use replica::Similarity;
use schema::{ColumnId, ColumnKind};

use crate::error::{Result, invalid};
use crate::expr::resolve::{Receiver, Resolver};
use crate::expr::row::ColumnRef;
use crate::expr::{Env, Expr};
use crate::where_clause::index::{is_float_vector, of_vectors};

/// Candidates of the index for each row that is wanted: by one with `optimize_for: recall` twice as many, and no fewer than its
/// `oversampling` says.
const CANDIDATES_A_ROW: f32 = 3.0;

/// The order by nearness to a vector.
#[derive(Clone, Debug)]
pub struct NearestPlan {
    pub(super) column: ColumnRef,
    pub(super) name: String,
    pub(super) index: String,
    pub(super) similarity: Similarity,
    pub(super) candidates_a_row: f32,
    pub(super) vector: Expr,
}

impl NearestPlan {
    /// The order of a SELECT; none when it does not ask for the nearest.
    ///
    /// # Errors
    /// When the column has no vectors or no index on them, or there is another order beside it.
    pub fn prepare(ast: &Select, resolver: &mut Resolver<'_>) -> Result<Option<Self>> {
        let mut nearest =
            ast.order_by.iter().filter_map(|ordering| Some((ordering, ordering.ann_of.as_ref()?)));
        let Some((ordering, term)) = nearest.next() else { return Ok(None) };
        if nearest.next().is_some() {
            return invalid!("Cannot specify more than one ANN ordering");
        }
        if ast.order_by.len() > 1 {
            return invalid!("ANN ordering does not support any other ordering");
        }
        if ordering.direction == Direction::Descending {
            return invalid!("Descending ANN ordering is not supported");
        }
        let column = resolver.column(&ordering.column.name)?;
        if !is_float_vector(&column.ty) {
            return invalid!("ANN ordering is only supported on float vector indexes");
        }
        let vector = resolver.term(term, &Receiver::column(column))?;
        let Some(index) = of_vectors(resolver.table, column) else {
            return invalid!("ANN ordering by vector requires the column to be indexed");
        };
        let option = |name: &str| index.options.get(name).map(String::as_str);
        let similarity = option("similarity_function").and_then(Similarity::of_name).unwrap_or_default();
        let for_recall = option("optimize_for").is_some_and(|goal| goal.eq_ignore_ascii_case("recall"));
        let oversampling = option("oversampling").and_then(|factor| factor.parse().ok()).unwrap_or(1.0);
        let candidates_a_row = if for_recall { CANDIDATES_A_ROW * 2.0 } else { CANDIDATES_A_ROW };
        Ok(Some(Self {
            column: column.into(),
            name: column.name.clone(),
            index: index.name.clone(),
            similarity,
            candidates_a_row: candidates_a_row.max(oversampling),
            vector,
        }))
    }

    /// The column that is read beside those that are selected.
    pub fn fetched(&self) -> Option<ColumnId> {
        matches!(self.column.kind, ColumnKind::Static | ColumnKind::Regular).then_some(self.column.id)
    }

    /// The vector of the statement.
    pub(super) fn vector(&self, env: &Env<'_>) -> Result<Vec<f32>> {
        let Some(value) = self.vector.eval_option(env)? else {
            return invalid!("Unsupported null value for column {}", self.name);
        };
        let vector = floats(&value);
        if !vector.iter().all(|component| component.is_finite()) {
            return invalid!("non-finite value in the vector of ANN OF");
        }
        let square: f64 = vector.iter().map(|component| f64::from(*component).powi(2)).sum();
        if self.similarity == Similarity::Cosine && square < f64::from(f32::MIN_POSITIVE) {
            return invalid!(
                "Zero and near-zero vectors cannot be indexed or queried with cosine similarity"
            );
        }
        if !(square as f32).is_finite() {
            return invalid!("the vector of ANN OF is too long");
        }
        Ok(vector)
    }
}

/// The components of a vector of floats as it is stored.
pub(super) fn floats(value: &[u8]) -> Vec<f32> {
    value.as_chunks::<4>().0.iter().map(|bytes| f32::from_be_bytes(*bytes)).collect()
}

/// The refusal of a search without a limit of its rows.
pub(super) fn limit_expected<T>() -> Result<T> {
    invalid!("Top-K queries must have a limit specified and the limit must be less than the query page size")
}
