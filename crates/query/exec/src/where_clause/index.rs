//! Which restrictions a secondary index finds: whether a statement needs ALLOW FILTERING, as in Cassandra, and the index that
//! a plan uses.
//!
//! All indexes are stored in one way (docs/design/index.md), but each class answers the queries that Cassandra's of that name answers, so
//! that a statement is taken or refused by both.

use std::sync::Arc;

use cql::ast::ComparisonOperator;
use schema::{Column, ColumnKind, Index, IndexedPart, Table};
use text::{IndexText, SasiMode};
use types::CqlType;

use super::access::{IndexAccess, IndexPart, IndexScope, Wanted};
use super::choice::{Choice, TupleChoice, TupleValue};
use super::filter::{Filter, Test};
use super::relation::{Multi, MultiKind, Single, is_start};
use super::texts::LikeTexts;
use crate::expr::Expr;

/// The abilities of an index, by the name of its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Cassandra's first indexes: equality.
    Local,
    /// SAI: equality and ranges, several at once.
    StorageAttached,
    /// SASI: equality, ranges, prefixes of texts.
    Sasi,
    /// ScyllaDB's indexes on vectors.
    Vector,
    /// ScyllaDB's indexes of full text.
    FullText,
}

/// The class of ScyllaDB's indexes on vectors.
const VECTOR: &str = "vector_index";
/// The name of the built-in indexes in USING.
pub const LOCAL: &str = "legacy_local_table";

impl Family {
    /// The family of an implementation; none when there is no such class.
    pub fn of_class(class: Option<&str>) -> Option<Self> {
        let Some(class) = class else { return Some(Self::Local) };
        if schema::is_storage_attached(class) {
            return Some(Self::StorageAttached);
        }
        if class.eq_ignore_ascii_case(VECTOR) {
            return Some(Self::Vector);
        }
        if class.eq_ignore_ascii_case(text::FULLTEXT_CLASS) {
            return Some(Self::FullText);
        }
        (class == text::SASI_CLASS).then_some(Self::Sasi)
    }

    /// Whether it finds ranges of values of a type.
    fn orders(self, ty: &CqlType) -> bool {
        let plain = !(ty.is_collection() || ty.is_tuple() || ty.is_udt() || is_vector(ty));
        match self {
            Self::Local | Self::Vector | Self::FullText => false,
            Self::StorageAttached => {
                plain && !matches!(ty, CqlType::Text | CqlType::Ascii | CqlType::Boolean | CqlType::Uuid)
            }
            Self::Sasi => plain && !matches!(ty, CqlType::Text | CqlType::Ascii),
        }
    }
}

/// Whether values are vectors, of which indexes find the nearest and no others.
pub fn is_vector(ty: &CqlType) -> bool {
    matches!(ty, CqlType::Vector { .. })
}

/// How a condition compares texts; none when it compares them as they are. Only an index that compares them in the same way answers it.
type Analysis = Option<Arc<IndexText>>;

/// One condition of a column.
#[derive(Debug)]
enum Condition {
    Equal(Expr, Analysis),
    In(Choice),
    Slice(Vec<(ComparisonOperator, Expr)>),
    Contains(Expr, Analysis),
    ContainsKey(Expr, Analysis),
    Entry(Expr, Expr),
    Like(LikeTexts, Expr),
    /// A condition that no index finds.
    Other,
}

/// A restriction as an index sees it: conditions of one column, or the parts of a tuple.
#[derive(Debug)]
pub(super) struct Restriction<'a> {
    parts: Vec<(&'a Column, Condition)>,
    /// Whether each part must be found, as of a tuple, or one of them, as of several CONTAINS.
    tuple: bool,
}

impl Condition {
    fn of_test(test: &Test) -> Self {
        match test {
            Test::Contains(value) => Self::Contains(value.clone(), None),
            Test::ContainsKey(key) => Self::ContainsKey(key.clone(), None),
            Test::Element { key, test, .. } => match &**test {
                Test::Compare(ComparisonOperator::Equal, value) => Self::Entry(key.clone(), value.clone()),
                _ => Self::Other,
            },
            Test::Like(texts, pattern) => Self::Like(texts.clone(), pattern.clone()),
            Test::Analyzed(text, inner) => {
                let text = Some(text.clone());
                match &**inner {
                    Test::Compare(ComparisonOperator::Equal, value) => Self::Equal(value.clone(), text),
                    Test::Contains(value) => Self::Contains(value.clone(), text),
                    Test::ContainsKey(key) => Self::ContainsKey(key.clone(), text),
                    _ => Self::Other,
                }
            }
            Test::Compare(..) | Test::In(_) | Test::Matches(_) | Test::Not(_) | Test::SameAs(_) => {
                Self::Other
            }
        }
    }

    fn of_singles(table: &Table, column: &Column, singles: &[Single]) -> Self {
        match singles {
            [Single::Equal(value)] => {
                Self::Equal(value.clone(), analysis_of(table, column, IndexedPart::Whole))
            }
            [Single::In(choice)] => Self::In(choice.clone()),
            slices if slices.iter().any(|slice| matches!(slice, Single::NotIn(_))) => Self::Other,
            slices => Self::Slice(
                slices
                    .iter()
                    .filter_map(|single| match single {
                        Single::Slice(operator, expr) => Some((*operator, expr.clone())),
                        _ => None,
                    })
                    .collect(),
            ),
        }
    }

    /// The question to an index of the column; none when it does not find the condition.
    fn wanted(&self, index: &Index, column: &Column) -> Option<Wanted> {
        let part = index.targets.iter().find(|target| target.column == column.name)?.part;
        let family = Family::of_class(index.class.as_deref()).filter(|family| *family != Family::FullText)?;
        let whole = matches!(part, IndexedPart::Whole | IndexedPart::Full) && !is_vector(&column.ty);
        let equal = |value: &Expr, analysis: &Analysis| {
            // An index has no terms of texts that are compared in another way.
            let text = analysis.as_ref();
            if index_text(index, column, part).as_ref() != text.map(|text| &**text) {
                return None;
            }
            match text.filter(|text| text.index.is_tokenizing()) {
                None => Some(Wanted::Equal(value.clone())),
                // The words of a text say nothing of the whole to SASI.
                Some(_) if family == Family::Sasi => None,
                Some(text) => Some(Wanted::Terms(text.clone(), value.clone())),
            }
        };
        match self {
            Self::Equal(value, text) => whole.then(|| equal(value, text)).flatten(),
            // IN compares texts as they are.
            Self::In(choice) => {
                let is_plain = whole && index_text(index, column, part).is_none();
                is_plain.then(|| Wanted::In(choice.clone()))
            }
            Self::Slice(ends) => (whole && family.orders(&column.ty)).then(|| {
                let end = |start: bool| {
                    let found = ends.iter().find(|(operator, _)| is_start(*operator) == start);
                    found.map(|(operator, expr)| {
                        let included = matches!(
                            operator,
                            ComparisonOperator::GreaterOrEqual | ComparisonOperator::LessOrEqual
                        );
                        (expr.clone(), included)
                    })
                };
                Wanted::Slice { from: end(true), to: end(false) }
            }),
            Self::Contains(value, text) => {
                (part == IndexedPart::Values).then(|| equal(value, text)).flatten()
            }
            Self::ContainsKey(key, text) => (part == IndexedPart::Keys).then(|| equal(key, text)).flatten(),
            Self::Entry(key, value) => {
                (part == IndexedPart::Entries).then(|| Wanted::Entry(key.clone(), value.clone()))
            }
            Self::Like(texts, pattern) => {
                let is_fit = finds_patterns(index, column) && {
                    let of_index = texts_of(index, column);
                    of_index.mode == texts.mode && of_index.analyzer == texts.analyzer
                };
                (is_fit && whole).then(|| Wanted::Like(texts.clone(), pattern.clone()))
            }
            Self::Other => None,
        }
    }

    /// Whether an index of the column finds the condition without ALLOW FILTERING.
    fn is_answered(&self, index: &Index, column: &Column) -> bool {
        !matches!(self, Self::In(_)) && self.wanted(index, column).is_some()
    }
}

/// Whether an index answers LIKE on a column.
fn finds_patterns(index: &Index, column: &Column) -> bool {
    index.depends_on(&column.name)
        && Family::of_class(index.class.as_deref()) == Some(Family::Sasi)
        && matches!(column.ty, CqlType::Text | CqlType::Ascii)
}

/// How an index compares the texts of a column, or of a part of it; none when they stay as they are.
fn index_text(index: &Index, column: &Column, part: IndexedPart) -> Option<IndexText> {
    let is_text = matches!(part.term_types(&column.ty).as_slice(), [CqlType::Text | CqlType::Ascii]);
    IndexText::of_index(index.class.as_deref(), &index.options, is_text)
}

/// How equal texts of a column are compared: as its indexes of SAI do, and as those of SASI where it has none of SAI. None when they are
/// compared as they are.
pub fn analysis_of(table: &Table, column: &Column, part: IndexedPart) -> Option<Arc<IndexText>> {
    let is_on = |index: &&Index| {
        index.targets.iter().any(|target| target.column == column.name && target.part == part)
    };
    let of_family = |family: Family| {
        let is_one = move |index: &&Index| Family::of_class(index.class.as_deref()) == Some(family);
        table.indexes.values().filter(is_on).filter(is_one)
    };
    let mut attached = of_family(Family::StorageAttached).peekable();
    let text = match attached.peek() {
        Some(_) => attached.find_map(|index| index_text(index, column, part)),
        None => of_family(Family::Sasi)
            .filter_map(|index| index_text(index, column, part))
            .find(|text| !text.index.is_tokenizing()),
    };
    text.map(Arc::new)
}

/// The index that finds the nearest of a column's vectors.
pub fn of_vectors<'a>(table: &'a Table, column: &Column) -> Option<&'a Index> {
    let is_on = |index: &&Index| match index.targets.as_slice() {
        [target] => target.column == column.name && target.part == IndexedPart::Whole,
        _ => false,
    };
    table.indexes.values().filter(|_| is_float_vector(&column.ty)).find(is_on)
}

/// The index of full text of a column.
pub fn of_texts<'a>(table: &'a Table, column: &Column) -> Option<&'a Index> {
    let is_on = |index: &&Index| {
        Family::of_class(index.class.as_deref()) == Some(Family::FullText) && index.depends_on(&column.name)
    };
    table.indexes.values().find(is_on)
}

/// Whether values are vectors that an index may be on.
pub fn is_float_vector(ty: &CqlType) -> bool {
    matches!(ty, CqlType::Vector { element, .. } if **element == CqlType::Float)
}

/// How an index of SASI compares the texts of a column with patterns.
fn texts_of(index: &Index, column: &Column) -> LikeTexts {
    let analyzer = index_text(index, column, IndexedPart::Whole).map(|text| Arc::new(text.index));
    LikeTexts { analyzer, mode: IndexText::sasi_mode(&index.options, true) }
}

/// How LIKE compares the texts of a column with patterns: as the index that finds the most, words before whole texts. None when none does.
pub(super) fn like_texts(table: &Table, column: &Column) -> Option<LikeTexts> {
    let indexes = table.indexes.values().filter(|index| finds_patterns(index, column));
    indexes.map(|index| texts_of(index, column)).max_by_key(|texts| {
        let has_words = texts.analyzer.as_ref().is_some_and(|analyzer| analyzer.is_tokenizing());
        (has_words, texts.mode == SasiMode::Contains)
    })
}

impl<'a> Restriction<'a> {
    /// The restrictions of a WHERE clause.
    pub(super) fn collect(
        table: &'a Table,
        singles: &[Vec<Single>],
        multis: &[Multi],
        filters: &[Filter],
    ) -> Vec<Self> {
        let mut out = Vec::new();
        for (column, singles) in table.columns().iter().zip(singles) {
            if !singles.is_empty() {
                let condition = Condition::of_singles(table, column, singles);
                out.push(Self { parts: vec![(column, condition)], tuple: false });
            }
            let tests = filters.iter().filter(|filter| filter.name == column.name);
            let parts: Vec<_> = tests.map(|filter| (column, Condition::of_test(&filter.test))).collect();
            if !parts.is_empty() {
                out.push(Self { parts, tuple: false });
            }
        }
        for multi in multis {
            let columns = table.clustering().iter().skip(multi.first).take(multi.width);
            let values = match &multi.kind {
                MultiKind::Choice(TupleChoice::One(TupleValue::Parts(values))) => Some(values),
                MultiKind::Choice(TupleChoice::List(list)) => match list.as_slice() {
                    [TupleValue::Parts(values)] => Some(values),
                    _ => None,
                },
                _ => None,
            };
            let condition = |at: usize, column: &Column| match values.and_then(|values| values.get(at)) {
                Some(value) => {
                    Condition::Equal(value.clone(), analysis_of(table, column, IndexedPart::Whole))
                }
                None => Condition::Other,
            };
            let parts = columns.enumerate().map(|(at, column)| (column, condition(at, column))).collect();
            out.push(Self { parts, tuple: true });
        }
        out
    }

    /// Of which columns it is.
    pub(super) fn kind(&self) -> Option<ColumnKind> {
        self.parts.first().map(|(column, _)| column.kind)
    }

    /// Whether an index finds it, or a part of it.
    pub(super) fn has_index(&self, indexes: &[&'a Index]) -> bool {
        let is_answered =
            |index: &&Index| self.parts.iter().any(|(column, one)| one.is_answered(index, column));
        indexes.iter().any(is_answered)
    }

    /// Whether these indexes, which are asked together, find all that it asks for.
    fn is_covered(&self, group: &[&Index]) -> bool {
        if self.tuple {
            let found = |(column, condition): &(&Column, Condition)| {
                group.iter().any(|index| condition.is_answered(index, column))
            };
            return self.parts.iter().all(found);
        }
        // Several CONTAINS of a column are answered together by SAI alone.
        group.iter().any(|index| {
            let answers = self.parts.len() == 1 || index.is_storage_attached();
            answers && self.parts.iter().any(|(column, one)| one.is_answered(index, column))
        })
    }
}

/// Whether those of these indexes that are asked together find everything that these restrictions ask for.
pub(super) fn covers<'a>(
    indexes: &[&'a Index],
    restrictions: impl Iterator<Item = &'a Restriction<'a>>,
) -> bool {
    let restrictions: Vec<&Restriction<'_>> = restrictions.collect();
    let (attached, others): (Vec<&Index>, Vec<&Index>) =
        indexes.iter().partition(|index| index.is_storage_attached());
    let covers = |group: &[&Index]| restrictions.iter().all(|one| one.is_covered(group));
    covers(&attached) || others.iter().any(|index| covers(std::slice::from_ref(index)))
}

/// The indexes for a plan, the one that should find the fewest rows first: one that finds a value before one that finds a range, and the
/// first by name of those. In a partition only those that find rows by values: the places of a range of values would have to be searched in
/// all partitions. All find rows, or all partitions.
pub(super) fn choose(
    indexes: &[&Index],
    restrictions: &[Restriction<'_>],
    within: IndexScope,
    is_optional: bool,
) -> Option<IndexAccess> {
    let finds_partitions =
        |column: &Column| matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Static);
    // Of the indexes that find a condition one is queried, the first by name.
    let candidates = restrictions.iter().flat_map(|one| &one.parts).filter_map(|(column, condition)| {
        indexes.iter().find_map(|index| Some((*index, *column, condition.wanted(index, column)?)))
    });
    let is_fit = |(_, column, wanted): &(&Index, &Column, Wanted)| match &within {
        IndexScope::Range(_) => true,
        // Its slices have the values of IN of a clustering column.
        IndexScope::Partition(_) => match wanted {
            Wanted::In(_) => column.kind == ColumnKind::Regular,
            wanted => !finds_partitions(column) && wanted.rank() == 0,
        },
    };
    let mut candidates: Vec<(&Index, &Column, Wanted)> = candidates.filter(is_fit).collect();
    candidates.sort_by_key(|(index, _, wanted)| (wanted.rank(), index.name.as_str()));
    let partitions = finds_partitions(candidates.first()?.1);
    let parts = candidates.into_iter().filter(|(_, column, _)| finds_partitions(column) == partitions);
    let parts = parts.map(|(index, column, wanted)| IndexPart {
        index: index.name.clone(),
        column: column.name.clone(),
        is_ascii: matches!(column.ty, CqlType::Ascii),
        wanted,
    });
    Some(IndexAccess { parts: parts.take(INDEXES_MAX).collect(), partitions, is_optional, within })
}

/// Indexes that one statement queries at most; the rest of its conditions filter.
const INDEXES_MAX: usize = 6;

/// Whether a choice is a list or a marker of one.
pub(super) fn is_in(singles: &[Single]) -> bool {
    singles.iter().any(|single| matches!(single, Single::In(Choice::List(_) | Choice::Marker(_))))
}
