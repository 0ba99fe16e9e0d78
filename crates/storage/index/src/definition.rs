//! Which terms or vectors an index has of a row, and how terms are ordered.

use hnsw::Quantised;
use mutation::{ColumnData, DecoratedKey, Row};
use schema::{ColumnKind, Index, IndexedPart, Table};
use text::{Analyzer, FULLTEXT_CLASS, FullText, IndexText};
use types::CqlType;

use crate::Predicate;
use crate::ordered::Order;
use crate::term::{TERM_END, component, successor};

/// The part of an index's definition that its terms depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Name of the index.
    pub name: String,
    /// Name of the column.
    column: String,
    kind: ColumnKind,
    /// Of key columns, the place in the key.
    position: usize,
    part: IndexedPart,
    /// The column's type.
    ty: CqlType,
    /// Of an index on entries, the one key of which it has the entries; none for all.
    entry: Option<String>,
    /// How texts become terms; none when they are terms as they are.
    analyzer: Option<Analyzer>,
    /// Of an index of full text, how texts become terms.
    fulltext: Option<FullText>,
    /// Of an ordered index, the attributes of its terms.
    order: Option<Order>,
    /// Of an index on vectors, how its graphs are built.
    vectors: Option<hnsw::Options>,
    /// Count of the dimensions of its vectors, of such an index.
    dimensions: usize,
    /// Of such an index, candidates that a search holds at least.
    search_beam: usize,
}

/// The most neighbours of a node of a graph, and the candidates that it is chosen from, when CREATE INDEX names none: Cassandra's.
const CONNECTIONS: usize = 16;
const BEAM: usize = 100;

/// The dimensions of the vectors that an index is on: of a column of vectors, or of one attribute of the DynamoDB API; none of another index.
fn dimensions_of(index: &Index, ty: &CqlType, part: IndexedPart) -> Option<usize> {
    match (ty, part) {
        (CqlType::Vector { element, dimension }, IndexedPart::Whole) if **element == CqlType::Float => {
            Some(*dimension as usize)
        }
        (CqlType::Map { .. }, IndexedPart::Entries) if index.options.contains_key(ENTRY_OPTION) => {
            let dimensions = index.options.get(DIMENSIONS_OPTION)?.parse().ok();
            dimensions.filter(|dimensions| (1..=items::vector::DIMENSIONS_MAX).contains(dimensions))
        }
        _ => None,
    }
}

/// How graphs of the vectors of an index are built; none of an index that is not on vectors.
fn vector_options(index: &Index, ty: &CqlType, part: IndexedPart) -> Option<hnsw::Options> {
    dimensions_of(index, ty, part)?;
    let option = |name: &str| index.options.get(name).map(String::as_str);
    Some(hnsw::Options {
        similarity: option("similarity_function").and_then(hnsw::Similarity::of_name).unwrap_or_default(),
        connections: number(index, "maximum_node_connections", CONNECTIONS, hnsw::CONNECTIONS_MAX),
        beam: number(index, "construction_beam_width", BEAM, hnsw::BEAM_MAX),
    })
}

/// The option of an index on entries that names the only key of which it has the entries. CREATE INDEX refuses it; the DynamoDB API
/// indexes attributes by it.
pub const ENTRY_OPTION: &str = "entry";

/// The option of such an index by which it has the vectors of the key's values, stored as attributes of the DynamoDB API are: the count of
/// their dimensions. CREATE INDEX refuses it, too.
pub const DIMENSIONS_OPTION: &str = "vector_dimensions";

/// An option that is a number from 1 to `max`.
fn number(index: &Index, name: &str, otherwise: usize, max: usize) -> usize {
    let value = index.options.get(name).and_then(|value| value.parse().ok());
    value.unwrap_or(otherwise).clamp(1, max)
}

/// How the texts of an index of full text become terms; none of another index.
fn fulltext_of(index: &Index) -> Option<FullText> {
    let is_one = index.class.as_deref().is_some_and(|class| class.eq_ignore_ascii_case(FULLTEXT_CLASS));
    is_one.then(|| FullText::of(&index.options).ok()).flatten()
}

/// How the texts of a column become terms.
fn analyzer_of(index: &Index, ty: &CqlType, part: IndexedPart) -> Option<Analyzer> {
    let is_text = matches!(part.term_types(ty).as_slice(), [CqlType::Text | CqlType::Ascii]);
    Some(IndexText::of_index(index.class.as_deref(), &index.options, is_text)?.index)
}

/// From which to which term a query looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TermRange {
    /// Terms below are out.
    pub(crate) start: Vec<u8>,
    /// Terms from here on are out; none for no end.
    pub(crate) end: Option<Vec<u8>>,
}

impl TermRange {
    /// Whether it is one term.
    pub(crate) fn is_one(&self) -> bool {
        self.end.as_ref().is_some_and(|end| {
            end.len() == self.start.len() + 1 && end.starts_with(&self.start) && end.ends_with(&[0])
        })
    }

    pub(crate) fn one(term: Vec<u8>) -> Self {
        Self { end: Some(successor(&term)), start: term }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }
}

impl Definition {
    /// Of an index of this table; none for one that is not on one column.
    pub fn new(table: &Table, index: &Index) -> Option<Self> {
        let [target] = index.targets.as_slice() else { return None };
        let column = table.column(&target.column)?;
        Some(Self {
            name: index.name.clone(),
            column: column.name.clone(),
            kind: column.kind,
            position: usize::from(column.position),
            part: target.part,
            ty: column.ty.clone(),
            analyzer: analyzer_of(index, &column.ty, target.part),
            fulltext: fulltext_of(index),
            vectors: vector_options(index, &column.ty, target.part),
            dimensions: dimensions_of(index, &column.ty, target.part).unwrap_or(0),
            search_beam: number(index, "search_beam_width", BEAM, hnsw::BEAM_MAX),
            order: Order::new(table, index),
            entry: index.options.get(ENTRY_OPTION).filter(|_| target.part == IndexedPart::Entries).cloned(),
        })
    }

    /// How texts become terms, of an index of full text.
    pub(crate) fn fulltext(&self) -> Option<&FullText> {
        self.fulltext.as_ref()
    }

    /// The attributes of its terms, of an ordered index.
    pub(crate) fn order(&self) -> Option<&Order> {
        self.order.as_ref()
    }

    /// How graphs are built, of an index on vectors.
    pub(crate) fn vectors(&self) -> Option<hnsw::Options> {
        self.vectors
    }

    /// Candidates that a search of a graph holds at least.
    pub(crate) fn search_beam(&self) -> usize {
        self.search_beam
    }

    /// Count of the dimensions of its vectors, of an index on vectors.
    pub(crate) fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// A number that differs where terms or graphs differ.
    pub fn fingerprint(&self) -> u64 {
        let Self {
            name, column, kind, position, part, ty, entry, analyzer, fulltext, order, vectors, ..
        } = self;
        let mut text = format!("1|{name:?}|{column:?}|{kind:?}|{position}|{part:?}|{ty}");
        if let Some(entry) = entry {
            text.push_str(&format!("|{entry:?}"));
        }
        if let Some(analyzer) = analyzer {
            text.push_str(&analyzer.describe());
        }
        if let Some(FullText { analyzer, has_positions }) = fulltext {
            text.push_str(&format!("|full text{}|{has_positions}", analyzer.describe()));
        }
        if let Some(order) = order {
            text.push_str(&order.describe());
        }
        if let Some(options) = vectors {
            text.push_str(&format!("|{options:?}"));
            if entry.is_some() {
                text.push_str(&format!("|{}", self.dimensions));
            }
        }
        xxhash_rust::xxh3::xxh3_64(text.as_bytes())
    }

    /// The types of the components of a term: the key's and the value's for entries, else one.
    fn term_types(&self) -> (&CqlType, Option<&CqlType>) {
        match (self.part, &self.ty) {
            (IndexedPart::Values, CqlType::List { element, .. } | CqlType::Set { element, .. }) => {
                (element, None)
            }
            (IndexedPart::Values, CqlType::Map { value, .. }) => (value, None),
            (IndexedPart::Keys, CqlType::Map { key, .. }) => (key, None),
            (IndexedPart::Entries, CqlType::Map { key, value, .. }) => (key, Some(value)),
            _ => (&self.ty, None),
        }
    }

    fn term(&self, value: &[u8], second: Option<&[u8]>, out: &mut Vec<u8>) {
        let types = self.term_types();
        types.0.encode_ordered_component(Some(value), false, out);
        if let (Some(ty), Some(second)) = (types.1, second) {
            ty.encode_ordered_component(Some(second), false, out);
        }
        out.push(TERM_END);
    }

    /// The term of a value that is searched for. A statement's text that has one term may come as it is; words come as they are in the index.
    fn term_of(&self, value: &[u8], second: Option<&[u8]>) -> Vec<u8> {
        let folded = self.analyzer.as_ref().and_then(Analyzer::folding).map(|folding| folding.apply(value));
        self.term_as_it_is(folded.as_deref().unwrap_or(value), second)
    }

    fn term_as_it_is(&self, value: &[u8], second: Option<&[u8]>) -> Vec<u8> {
        let mut out = Vec::with_capacity(value.len() + 8);
        self.term(value, second, &mut out);
        out
    }

    /// The terms that a predicate asks for; none when it does not fit the index, or a value not its type.
    pub(crate) fn terms(&self, predicate: &Predicate) -> Option<TermRange> {
        let (mut ty, second) = self.term_types();
        if self.analyzer.as_ref().is_some_and(Analyzer::has_grams) {
            // Grams are marked by a character that is not ASCII.
            ty = &CqlType::Text;
        }
        let is_pair = second.is_some();
        let is_valid = match predicate {
            Predicate::Equal(value) => ty.validate(value).is_ok(),
            Predicate::Entry { key, value } => {
                ty.validate(key).is_ok() && second.is_some_and(|ty| ty.validate(value).is_ok())
            }
            Predicate::Range { from, to } => {
                [from, to].into_iter().flatten().all(|(value, _)| ty.validate(value).is_ok())
            }
        };
        if !is_valid {
            return None;
        }
        match predicate {
            Predicate::Equal(value) if !is_pair => Some(TermRange::one(self.term_of(value, None))),
            Predicate::Entry { key, value } if is_pair => {
                Some(TermRange::one(self.term_of(key, Some(value))))
            }
            Predicate::Range { from, to } if !is_pair => {
                // The ends of a prefix that was folded: its end, folded again, may be before it.
                let term = |value: &[u8]| self.term_as_it_is(value, None);
                let start = match from {
                    None => Vec::new(),
                    Some((value, true)) => term(value),
                    Some((value, false)) => successor(&term(value)),
                };
                let end = to.as_ref().map(|(value, included)| match included {
                    true => successor(&term(value)),
                    false => term(value),
                });
                Some(TermRange { start, end })
            }
            Predicate::Equal(_) | Predicate::Entry { .. } | Predicate::Range { .. } => None,
        }
    }

    /// Hands each term of a version of a row to `found`. Of the static row only an index on a static column, and one on a partition
    /// key column, have terms. A version that only deletes has none.
    pub fn terms_of(
        &self,
        table: &Table,
        key: &DecoratedKey,
        row: &Row,
        is_static: bool,
        mut found: impl FnMut(&[u8]),
    ) {
        if let Some(order) = &self.order {
            let column = table.column(&self.column).filter(|column| column.ty == self.ty);
            if !is_static && says_something(row) {
                order.terms_of(key, row, column.and_then(|column| row.column(column.id)), found);
            }
            return;
        }
        let mut term = Vec::new();
        self.values_of(table, key, row, is_static, |value, second| {
            let mut take = |value: &[u8]| {
                term.clear();
                self.term(value, second, &mut term);
                found(&term);
            };
            match &self.analyzer {
                None => take(value),
                Some(analyzer) => analyzer.indexed(value, take),
            }
        });
    }

    /// The vector of a version of a row; none when it has none, or one that no other can be near to because it is not finite.
    pub(crate) fn vector_of(
        &self,
        table: &Table,
        key: &DecoratedKey,
        row: &Row,
        is_static: bool,
    ) -> Option<Quantised> {
        let mut vector = None;
        self.values_of(table, key, row, is_static, |value, second| {
            if let Some(attribute) = second {
                let components = items::vector::of_stored(attribute, self.dimensions);
                vector = components.and_then(|components| Quantised::new(&components));
                return;
            }
            let (components, rest) = value.as_chunks::<4>();
            if rest.is_empty() && components.len() == self.dimensions() {
                let components: Vec<f32> =
                    components.iter().map(|bytes| f32::from_be_bytes(*bytes)).collect();
                vector = Quantised::new(&components);
            }
        });
        vector
    }

    /// Hands each indexed value of a version of a row to `take`, of entries the key and the value.
    pub(crate) fn values_of(
        &self,
        table: &Table,
        key: &DecoratedKey,
        row: &Row,
        is_static: bool,
        mut take: impl FnMut(&[u8], Option<&[u8]>),
    ) {
        match self.kind {
            ColumnKind::PartitionKey if says_something(row) => {
                let components = DecoratedKey::components(&key.key, table.partition_key().len());
                if let Some(value) = components.as_ref().and_then(|all| all.get(self.position)) {
                    take(value, None);
                }
            }
            ColumnKind::Clustering if !is_static && says_something(row) => {
                if let Some(Some(value)) = component(&row.clustering, self.position) {
                    take(value, None);
                }
            }
            ColumnKind::Static | ColumnKind::Regular if (self.kind == ColumnKind::Static) == is_static => {
                let Some(column) = table.column(&self.column).filter(|column| column.ty == self.ty) else {
                    return;
                };
                match row.column(column.id) {
                    Some(ColumnData::Simple(cell)) if !cell.is_tombstone() => match self.part {
                        IndexedPart::Whole | IndexedPart::Full => take(&cell.value, None),
                        IndexedPart::Keys | IndexedPart::Values | IndexedPart::Entries => {}
                    },
                    Some(ColumnData::Complex(complex)) => {
                        for element in complex.cells.iter().filter(|element| !element.cell.is_tombstone()) {
                            let (path, value) = (&element.path, &element.cell.value);
                            match (self.part, &self.ty) {
                                (IndexedPart::Values, CqlType::Set { .. }) => take(path, None),
                                (IndexedPart::Values, _) => take(value, None),
                                (IndexedPart::Keys, _) => take(path, None),
                                (IndexedPart::Entries, _) => {
                                    if self.entry.as_ref().is_none_or(|entry| entry.as_bytes() == &path[..]) {
                                        take(path, Some(value));
                                    }
                                }
                                (IndexedPart::Whole | IndexedPart::Full, _) => {}
                            }
                        }
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

/// Whether a version of a row makes it live, for as long as it lasts.
fn says_something(row: &Row) -> bool {
    let is_live = |data: &ColumnData| match data {
        ColumnData::Simple(cell) => !cell.is_tombstone(),
        ColumnData::Complex(complex) => complex.cells.iter().any(|element| !element.cell.is_tombstone()),
    };
    !row.liveness.is_none() || row.columns().iter().any(|(_, data)| is_live(data))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use mutation::{Cell, Clustering, Complex, ComplexCell};
    use schema::{IndexTarget, TableBuilder, TableId};

    use super::*;

    #[test]
    fn terms_of_analyzed_texts_are_those_of_their_variants() {
        let table = TableBuilder::new("ks", "t", TableId([1; 16]))
            .partition_key("p", CqlType::Text)
            .regular("v", CqlType::Text)
            .build()
            .expect("a good table");
        let definition = |options: &[(&str, &str)]| {
            let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let targets = vec![IndexTarget { column: "v".to_owned(), part: IndexedPart::Whole }];
            let index = Index {
                name: "i".to_owned(),
                targets,
                class: None,
                options: options.collect(),
                local: false,
            };
            Definition::new(&table, &index).expect("an index")
        };
        let folding = definition(&[("case_sensitive", "false"), ("ascii", "true")]);
        let plain = definition(&[("case_sensitive", "true")]);
        assert_eq!(folding.term_of("ÉTÉ".as_bytes(), None), folding.term_of(b"ete", None));
        assert_ne!(plain.term_of(b"ETE", None), plain.term_of(b"ete", None));
        assert_eq!(plain.term_of(b"ete", None), folding.term_of(b"ete", None));
        assert_ne!(plain.fingerprint(), folding.fingerprint());
        assert_eq!(plain.fingerprint(), definition(&[]).fingerprint());
    }

    /// An index of words has the terms of each, and a word that is searched for comes as a term and is not analyzed again.
    #[test]
    fn terms_of_words_and_of_their_parts() {
        let table = TableBuilder::new("ks", "t", TableId([1; 16]))
            .partition_key("p", CqlType::Text)
            .regular("v", CqlType::Ascii)
            .build()
            .expect("a good table");
        let definition = |class: &str, option: (&str, &str)| {
            let targets = vec![IndexTarget { column: "v".to_owned(), part: IndexedPart::Whole }];
            let options = [(option.0.to_owned(), option.1.to_owned())].into();
            let (name, class) = ("i".to_owned(), Some(class.to_owned()));
            Definition::new(&table, &Index { name, targets, class, options, local: false }).expect("an index")
        };
        let id = table.column("v").expect("a column").id;
        let key = DecoratedKey::new(Bytes::from_static(b"p"));
        let terms = |definition: &Definition, text: &'static str| {
            let cell = ColumnData::Simple(Cell::live(1, Bytes::from(text)));
            let row = Row::from_columns(Clustering::empty(), vec![(id, cell)]);
            let mut terms = Vec::new();
            definition.terms_of(&table, &key, &row, false, |term| terms.push(term.to_vec()));
            terms
        };
        let finds = |definition: &Definition, text, predicate: Predicate| {
            let range = definition.terms(&predicate).expect("it answers");
            let is_in =
                |term: &Vec<u8>| *term >= range.start && range.end.as_ref().is_none_or(|end| term < end);
            terms(definition, text).iter().any(is_in)
        };
        let equal = |text: &str| Predicate::Equal(Bytes::copy_from_slice(text.as_bytes()));
        let words = definition("sai", ("index_analyzer", "english"));
        assert_eq!(terms(&words, "The running dogs ran").len(), 3);
        assert!(finds(&words, "The running dogs ran", equal("dog")));
        assert!(!finds(&words, "The running dogs ran", equal("dogs")));
        let parts = definition(text::SASI_CLASS, ("mode", "CONTAINS"));
        let gram = |part: &str| text::grams_of(part).expect("not empty");
        assert!(finds(&parts, "abcde", equal(&gram("bcd").expect("a gram")[0])));
        assert!(!finds(&parts, "abcde", equal(&gram("ace").expect("a gram")[0])));
        let start = Bytes::from(gram("cd").expect_err("too short for a gram"));
        assert!(finds(&parts, "abcde", Predicate::Range { from: Some((start, true)), to: None }));
        assert_ne!(words.fingerprint(), parts.fingerprint());
    }

    /// The character behind a back quote is a letter, which folding to upper case puts before it.
    #[test]
    fn the_ends_of_a_range_are_not_folded() {
        let table = TableBuilder::new("ks", "t", TableId([1; 16]))
            .partition_key("p", CqlType::Text)
            .regular("v", CqlType::Text)
            .build()
            .expect("a good table");
        let options = [
            ("analyzer_class", "org.apache.cassandra.index.sasi.analyzer.NonTokenizingAnalyzer"),
            ("normalize_uppercase", "true"),
        ];
        let index = Index {
            name: "i".to_owned(),
            targets: vec![IndexTarget { column: "v".to_owned(), part: IndexedPart::Whole }],
            class: Some(text::SASI_CLASS.to_owned()),
            options: options.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            local: false,
        };
        let definition = Definition::new(&table, &index).expect("an index");
        let range = Predicate::Range {
            from: Some((Bytes::from_static(b"X`"), true)),
            to: Some((Bytes::from_static(b"Xa"), false)),
        };
        let range = definition.terms(&range).expect("it answers");
        let is_in = |text: &[u8]| {
            let term = definition.term_of(text, None);
            term >= range.start && range.end.as_ref().is_some_and(|end| term < *end)
        };
        assert!(is_in(b"x`y") && is_in(b"X`"));
        assert!(!is_in(b"xb") && !is_in(b"x"));
    }

    #[test]
    fn an_index_on_the_vectors_of_an_entry_has_those_of_its_dimensions() {
        let ty = CqlType::map(CqlType::Text, CqlType::Blob, false);
        let table = TableBuilder::new("ks", "t", TableId([1; 16]))
            .partition_key("p", CqlType::Text)
            .regular("m", ty)
            .build()
            .expect("a good table");
        let definition = |options: &[(&str, &str)]| {
            let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let targets = vec![IndexTarget { column: "m".to_owned(), part: IndexedPart::Entries }];
            let (name, class) = ("i".to_owned(), Some("dynamodb".to_owned()));
            let index = Index { name, targets, class, options: options.collect(), local: false };
            Definition::new(&table, &index).expect("an index")
        };
        let of = |dimensions| definition(&[(ENTRY_OPTION, "v"), (DIMENSIONS_OPTION, dimensions)]);
        let id = table.column("m").expect("a column").id;
        let key = DecoratedKey::new(Bytes::from_static(b"p"));
        let vector = |definition: &Definition, name: &'static str, value: &'static str| {
            let cell = Cell::live(1, Bytes::from(["\u{4}", value].concat()));
            let mut complex = Complex::empty();
            complex.cells = vec![ComplexCell { path: Bytes::from(name), cell }];
            let row = Row::from_columns(Clustering::empty(), vec![(id, ColumnData::Complex(complex))]);
            definition.vector_of(&table, &key, &row, false)
        };
        let two = of("2");
        assert_eq!(two.dimensions(), 2);
        let list = "{\"L\":[{\"N\":\"1.5\"},{\"N\":\"-2\"}]}";
        assert_eq!(vector(&two, "v", list), Quantised::new(&[1.5, -2.0]));
        assert_eq!(vector(&two, "w", list), None, "another attribute");
        assert_eq!(vector(&of("3"), "v", list), None, "other dimensions");
        assert_eq!(vector(&two, "v", "{\"S\":\"text\"}"), None);
        assert_ne!(two.fingerprint(), of("3").fingerprint());
        // Without dimensions, or with none that vectors have, it is on terms.
        for other in [definition(&[(ENTRY_OPTION, "v")]), of("0"), of("4097"), of("many")] {
            assert_eq!(other.vectors(), None);
        }
    }

    #[test]
    fn an_index_of_one_entry_has_its_terms_alone() {
        let ty = CqlType::map(CqlType::Text, CqlType::Text, false);
        let table = TableBuilder::new("ks", "t", TableId([1; 16]))
            .partition_key("p", CqlType::Text)
            .regular("m", ty)
            .build()
            .expect("a good table");
        let index = |entry: Option<&str>| Index {
            name: "i".to_owned(),
            targets: vec![IndexTarget { column: "m".to_owned(), part: IndexedPart::Entries }],
            class: None,
            options: entry.map(|entry| (ENTRY_OPTION.to_owned(), entry.to_owned())).into_iter().collect(),
            local: false,
        };
        let cell = |name: &'static str| ComplexCell {
            path: Bytes::from(name),
            cell: Cell::live(1, Bytes::from_static(b"v")),
        };
        let mut complex = Complex::empty();
        complex.cells = vec![cell("a"), cell("b")];
        let id = table.column("m").expect("a column").id;
        let row = Row::from_columns(Clustering::empty(), vec![(id, ColumnData::Complex(complex))]);
        let key = DecoratedKey::new(Bytes::from_static(b"p"));
        let terms = |entry| {
            let mut terms = Vec::new();
            let definition = Definition::new(&table, &index(entry)).expect("an index");
            definition.terms_of(&table, &key, &row, false, |term| terms.push(term.to_vec()));
            (terms, definition.fingerprint())
        };
        let (all, of_all) = terms(None);
        let (one, of_one) = terms(Some("b"));
        assert_eq!((all.len(), one.as_slice()), (2, &all[1..]));
        assert_ne!(of_all, of_one);
        assert_ne!(of_one, terms(Some("a")).1);
    }
}
