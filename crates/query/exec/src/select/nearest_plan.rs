//! `ORDER BY … ANN OF` and `ORDER BY BM25(…)`: the column, its index, and the vector or query that rows are to be near to.

use std::sync::Arc;

use bytes::Bytes;
use cql::ast::{Direction, Ordering, Select, Term};
use replica::{NearestTo, Similarity, TextStatistics};
use schema::{ColumnId, ColumnKind};
use text::{Document, FullText, TextQuery};

use crate::error::{Result, invalid};
use crate::expr::resolve::{Receiver, Resolver};
use crate::expr::row::ColumnRef;
use crate::expr::{Env, Expr};
use crate::select::selection::Selection;
use crate::text_functions::{Relevance, misplaced};
use crate::where_clause::index::{is_float_vector, of_texts, of_vectors};

/// Candidates of the index for each row that is wanted: by one with `optimize_for: recall` twice as many, and no fewer than its
/// `oversampling` says.
const CANDIDATES_A_ROW: f32 = 3.0;

/// The order by nearness to a vector, or by the relevance of texts to a query.
#[derive(Clone, Debug)]
pub struct NearestPlan {
    pub(super) column: ColumnRef,
    pub(super) name: String,
    pub(super) index: String,
    pub(super) candidates_a_row: f32,
    measure: Measure,
}

/// How rows are compared.
#[derive(Clone, Debug)]
enum Measure {
    Vector {
        similarity: Similarity,
        vector: Expr,
    },
    Text {
        fulltext: Arc<FullText>,
        query: Expr,
        /// The query of the WHERE clause, which is the same.
        filter: Option<Expr>,
    },
}

/// The vector or query of a statement, ready for many rows.
pub(super) enum Goal {
    Vector(Similarity, Vec<f32>),
    Text {
        fulltext: Arc<FullText>,
        text: String,
        query: TextQuery,
        /// The figures of all texts, once they are known.
        statistics: Option<TextStatistics>,
    },
}

impl Goal {
    /// The question to an index.
    pub(super) fn to(&self) -> NearestTo {
        match self {
            Self::Vector(_, vector) => NearestTo::Vector(vector.clone()),
            Self::Text { text, .. } => NearestTo::Text(text.clone()),
        }
    }

    /// Takes the figures of the first answer of an index; those of a later one would rank the rows so far differently.
    pub(super) fn learn(&mut self, figures: TextStatistics) {
        if let Self::Text { statistics, .. } = self {
            statistics.get_or_insert(figures);
        }
    }

    /// The search that the rows are of; none when they are not ranked by a query or none was ranked.
    pub(super) fn into_relevance(self, column: &str) -> Option<Relevance> {
        match self {
            Self::Text { text, statistics, .. } => {
                Some(Relevance { column: column.to_owned(), query: text, statistics: statistics? })
            }
            Self::Vector(..) => None,
        }
    }

    /// Whether the figures of an index are needed before rows are compared.
    pub(super) fn needs_figures(&self) -> bool {
        matches!(self, Self::Text { statistics: None, .. })
    }

    /// How near a value is; none when it is no vector of these dimensions, one that no index has because it is not finite, or no text
    /// that the query finds.
    pub(super) fn closeness(&self, value: &[u8]) -> Option<f32> {
        match self {
            Self::Vector(similarity, wanted) => {
                let vector = floats(value);
                let is_one = vector.len() == wanted.len() && Similarity::is_comparable(&vector);
                is_one.then(|| similarity.closeness(wanted, &vector))
            }
            Self::Text { fulltext, query, statistics, .. } => {
                let document = Document::new(query, &fulltext.analyzer, value)?;
                query.score(&document, statistics.as_ref()?)
            }
        }
    }
}

impl NearestPlan {
    /// The order of a SELECT; none when it does not ask for the nearest.
    ///
    /// # Errors
    /// When the column has no vectors or no index on them, or there is another order beside it.
    pub fn prepare(ast: &Select, resolver: &mut Resolver<'_>) -> Result<Option<Self>> {
        if let Some((ordering, query)) =
            ast.order_by.iter().find_map(|ordering| Some((ordering, ordering.bm25.as_ref()?)))
        {
            return Self::of_text(ast, ordering, query, resolver).map(Some);
        }
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
            candidates_a_row: candidates_a_row.max(oversampling),
            measure: Measure::Vector { similarity, vector },
        }))
    }

    fn of_text(ast: &Select, ordering: &Ordering, query: &Term, resolver: &mut Resolver<'_>) -> Result<Self> {
        if ast.order_by.len() > 1 {
            return invalid!("BM25 ordering does not support any other ordering");
        }
        if ordering.direction == Direction::Descending {
            return invalid!("Descending BM25 ordering is not supported: the most relevant rows come first");
        }
        let column = resolver.column(&ordering.column.name)?;
        let query = resolver.term(query, &Receiver::column(column))?;
        let Some(index) = of_texts(resolver.table, column) else {
            return invalid!("BM25() requires a fulltext_index on column {}", column.name);
        };
        let fulltext = Arc::new(FullText::of(&index.options).expect("the options were checked"));
        Ok(Self {
            column: column.into(),
            name: column.name.clone(),
            index: index.name.clone(),
            candidates_a_row: CANDIDATES_A_ROW,
            measure: Measure::Text { fulltext, query, filter: None },
        })
    }

    /// Takes `BM25(column, query) > 0` of the WHERE clause.
    ///
    /// # Errors
    /// When it is of another column, or rows are not ordered by relevance.
    fn filtered_by(mut self, relevance: Option<(String, Expr)>) -> Result<Self> {
        let Some((column, expr)) = relevance else { return Ok(self) };
        match &mut self.measure {
            Measure::Text { filter, .. } if column == self.name => {
                *filter = Some(expr);
                Ok(self)
            }
            _ => invalid!(
                "BM25() in the WHERE clause requires ORDER BY BM25() on the same column with the same query"
            ),
        }
    }

    /// Whether it is the relevance of texts.
    pub fn is_of_texts(&self) -> bool {
        matches!(self.measure, Measure::Text { .. })
    }

    /// The order with `BM25(column, query) > 0` of the WHERE clause, held against `BM25` in the select clause.
    ///
    /// # Errors
    /// As `filtered_by`; also when the select clause has another `BM25` than the order.
    pub fn complete(
        order: Option<Self>,
        filter: Option<(String, Expr)>,
        selection: &Selection,
    ) -> Result<Option<Self>> {
        let order = order.map(|order| order.filtered_by(filter)).transpose()?;
        let known = order.as_ref().filter(|order| order.is_of_texts()).map(|order| order.name.as_str());
        match selection.relevance_of().iter().all(|column| Some(column.as_str()) == known) {
            true => Ok(order),
            false => misplaced(),
        }
    }

    /// The column that is read beside those that are selected.
    pub fn fetched(&self) -> Option<ColumnId> {
        matches!(self.column.kind, ColumnKind::Static | ColumnKind::Regular).then_some(self.column.id)
    }

    /// The vector or the query of the statement.
    pub(super) fn goal(&self, env: &Env<'_>) -> Result<Goal> {
        match &self.measure {
            Measure::Vector { similarity, vector } => {
                Ok(Goal::Vector(*similarity, self.vector(*similarity, vector, env)?))
            }
            Measure::Text { fulltext, query, filter } => {
                let value = self.value(query, env)?;
                if let Some(filter) = filter
                    && self.value(filter, env)? != value
                {
                    return invalid!("BM25() in WHERE and in ORDER BY must have the same query");
                }
                let Ok(text) = String::from_utf8(value.to_vec()) else {
                    return invalid!("The query of BM25() is no valid UTF-8");
                };
                match TextQuery::parse(&text, &fulltext.analyzer, fulltext.has_positions) {
                    Ok(query) => Ok(Goal::Text { fulltext: fulltext.clone(), text, query, statistics: None }),
                    Err(error) => invalid!("{error}"),
                }
            }
        }
    }

    fn value(&self, expr: &Expr, env: &Env<'_>) -> Result<Bytes> {
        match expr.eval_option(env)? {
            Some(value) => Ok(value),
            None => invalid!("Unsupported null value for column {}", self.name),
        }
    }

    fn vector(&self, similarity: Similarity, vector: &Expr, env: &Env<'_>) -> Result<Vec<f32>> {
        let vector = floats(&self.value(vector, env)?);
        if !vector.iter().all(|component| component.is_finite()) {
            return invalid!("non-finite value in the vector of ANN OF");
        }
        let square: f64 = vector.iter().map(|component| f64::from(*component).powi(2)).sum();
        if similarity == Similarity::Cosine && square < f64::from(f32::MIN_POSITIVE) {
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
fn floats(value: &[u8]) -> Vec<f32> {
    value.as_chunks::<4>().0.iter().map(|bytes| f32::from_be_bytes(*bytes)).collect()
}

/// The refusal of a search without a limit of its rows.
pub(super) fn limit_expected<T>() -> Result<T> {
    invalid!("Top-K queries must have a limit specified and the limit must be less than the query page size")
}
