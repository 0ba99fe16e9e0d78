//! Ordered indexes: terms of several attributes of the DynamoDB API, whose order is that of an index's keys.
//!
//! A term is made of one version of a row, but the attributes of a key may be written at different times, so that no version has all of
//! them. A version is *whole* when all attributes of the key that are no columns of the table's key come of one write: each of them is there with
//! the same timestamp, as a value or as a deletion, or is covered by the deletion of a write that replaces the item. Of every
//! other version with one of them the index has the place under [`ORPHANS`]. If the values of a row are in no whole version together,
//! then one version that has one of them is among the orphans: a version that has the newest of them is whole only if it has
//! all of them (docs/design/index.md). Where the first attribute is there and none of the others is newer, that term has its value: a row
//! with a later value of the first has a later version of the others, too, and that one is an orphan.

use mutation::{ColumnData, Complex, DecoratedKey, NO_TIMESTAMP, Row, Timestamp};
use schema::{ColumnKind, Index, Table};
use types::CqlType;

use crate::term::{TERM_END, component};

/// The option of an ordered index: its attributes in order, each as its type (`S`, `N` or `B`), the length of its name in bytes, a colon
/// and the name. CREATE INDEX refuses it.
pub const ORDER_OPTION: &str = "order";

/// Begins the terms of versions that are not whole, before all others: the value of the first attribute follows, if any.
const ORPHAN: u8 = 0;
/// The term of the places of such versions without a value of the first attribute.
pub(crate) const ORPHANS: &[u8] = &[ORPHAN, TERM_END];

/// Greater than the first byte of each component of a term, and of its end.
const BEHIND_COMPONENTS: u8 = 0x41;
/// The most bytes of a value in a key; longer ones are no keys.
const VALUE_BYTES_MAX: usize = 2048;

/// An attribute of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    name: String,
    kind: Kind,
    source: Source,
}

/// The type of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    Binary,
}

/// Where its values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// In the column of the partition key.
    PartitionKey,
    /// In the first clustering column.
    Clustering,
    /// In an element of the map of attributes, in its stored form.
    Attribute,
}

/// The attributes of an ordered index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    parts: Vec<Part>,
}

/// The attribute in a version of a row.
enum Found<'a> {
    Value(&'a [u8]),
    /// It has none, or one that is no key.
    Nothing,
}

impl Kind {
    fn of(letter: char) -> Option<Self> {
        Some(match letter {
            'S' => Self::Text,
            'N' => Self::Number,
            'B' => Self::Binary,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Text => "S",
            Self::Number => "N",
            Self::Binary => "B",
        }
    }

    fn ty(self) -> CqlType {
        match self {
            Self::Text => CqlType::Text,
            Self::Number => CqlType::Decimal,
            Self::Binary => CqlType::Blob,
        }
    }
}

impl Order {
    /// The attributes of an index of this table; none of an index that is not ordered.
    pub fn new(table: &Table, index: &Index) -> Option<Self> {
        let mut rest = index.options.get(ORDER_OPTION)?.as_str();
        let mut parts = Vec::new();
        while let Some(letter) = rest.chars().next() {
            let (len, behind) = rest.get(1..)?.split_once(':')?;
            let (name, behind) = behind.split_at_checked(len.parse().ok()?)?;
            let source = match table.column(name) {
                Some(column) if column.kind == ColumnKind::PartitionKey => Source::PartitionKey,
                Some(column) if column.kind == ColumnKind::Clustering => Source::Clustering,
                _ => Source::Attribute,
            };
            parts.push(Part { name: name.to_owned(), kind: Kind::of(letter)?, source });
            rest = behind;
        }
        (!parts.is_empty()).then_some(Self { parts })
    }

    /// The value of [`ORDER_OPTION`] for these attributes, each with its type.
    pub fn option<'a>(attributes: impl Iterator<Item = (&'a str, &'static str)>) -> String {
        attributes.map(|(name, kind)| format!("{kind}{}:{name}", name.len())).collect()
    }

    /// As a part of the fingerprint of a definition.
    pub(crate) fn describe(&self) -> String {
        let one = |part: &Part| format!("|{}{:?}{:?}", part.kind.name(), part.source, part.name);
        self.parts.iter().map(one).collect()
    }

    /// Whether versions of a row may have some of the attributes without others.
    pub fn has_orphans(&self) -> bool {
        self.parts.iter().filter(|part| part.source == Source::Attribute).count() > 1
    }

    /// The beginning of the terms with these values of the first attributes, serialised as columns of their types are.
    pub fn prefix<'a>(&self, values: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
        let mut out = Vec::new();
        for (part, value) in self.parts.iter().zip(values) {
            part.kind.ty().encode_ordered_component(Some(value), false, &mut out);
        }
        out
    }

    /// The whole term of a prefix with the values of all attributes.
    pub fn term(mut prefix: Vec<u8>) -> Vec<u8> {
        prefix.push(TERM_END);
        prefix
    }

    /// The first bytes behind all terms that begin with a prefix of components.
    pub fn behind(mut prefix: Vec<u8>) -> Vec<u8> {
        // The next component, and the end of a term, begin with lesser bytes. Values that go on behind a zero have greater ones there.
        prefix.push(BEHIND_COMPONENTS);
        prefix
    }

    /// The term of the versions that are not whole with this value of the first attribute.
    pub fn orphans(&self, first: &[u8]) -> Vec<u8> {
        let mut term = vec![ORPHAN];
        term.extend(self.prefix(std::iter::once(first)));
        Self::term(term)
    }

    /// The values of a term, serialised; none of a term that is not of this index.
    pub fn values(&self, term: &[u8]) -> Option<Vec<Vec<u8>>> {
        let mut rest = term;
        let mut values = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let (value, taken) = part.kind.ty().decode_ordered_component(rest, false).ok()?;
            values.push(value?);
            rest = rest.get(taken..)?;
        }
        (rest == [TERM_END]).then_some(values)
    }

    /// Hands the term of a version of a row, or [`ORPHANS`], to `found`.
    pub(crate) fn terms_of(
        &self,
        key: &DecoratedKey,
        row: &Row,
        attributes: Option<&ColumnData>,
        mut found: impl FnMut(&[u8]),
    ) {
        let attributes = match attributes {
            Some(ColumnData::Complex(complex)) => Some(complex),
            _ => None,
        };
        let mut term = vec![ORPHAN];
        let (mut written, mut is_key) = (Written::default(), true);
        // The length of the term of an orphan with the first value, and when that was written.
        let mut first = None;
        for (at, part) in self.parts.iter().enumerate() {
            let value = match part.source {
                Source::PartitionKey => Found::Value(&key.key),
                Source::Clustering => match component(&row.clustering, 0) {
                    Some(Some(value)) => Found::Value(value),
                    _ => Found::Nothing,
                },
                Source::Attribute => written.take(part, attributes),
            };
            match value {
                Found::Value(value) if (1..=VALUE_BYTES_MAX).contains(&value.len()) => {
                    part.kind.ty().encode_ordered_component(Some(value), false, &mut term);
                }
                _ => is_key = false,
            }
            if at == 0 && is_key {
                first = Some((term.len(), written.timestamp.unwrap_or(Timestamp::MAX)));
            }
        }
        if written.count > 0 && written.values == 0 {
            return;
        }
        if written.is_whole(attributes) {
            if is_key {
                term.push(TERM_END);
                found(term.split_at(1).1);
            }
            return;
        }
        match first.filter(|(_, timestamp)| *timestamp >= written.newest) {
            Some((len, _)) => {
                term.truncate(len);
                term.push(TERM_END);
                found(&term);
            }
            None => found(ORPHANS),
        }
    }
}

/// How the attributes of a version were written.
struct Written {
    /// Attributes that were looked at.
    count: usize,
    /// Of them, those with values, of any type.
    values: usize,
    /// Those that the version has not, not even as a deletion.
    missing: usize,
    /// The timestamps of the others: the first, whether they differ, and the newest.
    timestamp: Option<Timestamp>,
    differ: bool,
    newest: Timestamp,
}

impl Default for Written {
    fn default() -> Self {
        let (timestamp, newest) = (None, NO_TIMESTAMP);
        Self { count: 0, values: 0, missing: 0, timestamp, differ: false, newest }
    }
}

impl Written {
    fn take<'a>(&mut self, part: &Part, attributes: Option<&'a Complex>) -> Found<'a> {
        self.count += 1;
        let cells = attributes.map_or(&[][..], |complex| &complex.cells);
        let at = cells.binary_search_by(|element| element.path[..].cmp(part.name.as_bytes()));
        let Some(cell) = at.ok().and_then(|at| cells.get(at)).map(|element| &element.cell) else {
            self.missing += 1;
            return Found::Nothing;
        };
        self.newest = self.newest.max(cell.timestamp);
        self.differ |= *self.timestamp.get_or_insert(cell.timestamp) != cell.timestamp;
        if cell.is_tombstone() {
            return Found::Nothing;
        }
        self.values += 1;
        items::stored::key_bytes(part.kind.name(), &cell.value).map_or(Found::Nothing, Found::Value)
    }

    /// Whether all come of one write.
    fn is_whole(&self, attributes: Option<&Complex>) -> bool {
        let deleted = attributes.map_or(NO_TIMESTAMP, |complex| complex.deletion.timestamp);
        let is_replaced = self.timestamp.is_none_or(|timestamp| deleted >= timestamp.saturating_sub(1));
        self.count < 2 || !self.differ && (self.missing == 0 || is_replaced)
    }
}

#[cfg(test)]
mod tests {
    use schema::{IndexTarget, IndexedPart, TableBuilder, TableId};

    use super::*;

    /// Also of values that go on with zeros behind another one.
    #[test]
    fn terms_with_a_value_are_between_its_prefix_and_behind() {
        let table = TableBuilder::new("ks", "t", TableId([1; 16]))
            .partition_key("p", CqlType::Text)
            .regular("m", CqlType::map(CqlType::Text, CqlType::Blob, false))
            .build()
            .expect("a good table");
        let option = Order::option([("h:1", "S"), ("rä", "B")].into_iter());
        let index = Index {
            name: "i".to_owned(),
            targets: vec![IndexTarget { column: "m".to_owned(), part: IndexedPart::Entries }],
            class: None,
            options: [(ORDER_OPTION.to_owned(), option)].into(),
            local: false,
        };
        let order = Order::new(&table, &index).expect("it is ordered");
        let mut values: Vec<Vec<u8>> = vec![vec![]];
        for at in 0..40 {
            values.extend([0, 1, 0x38, 0xff].map(|byte| [&values[at][..], &[byte]].concat()));
        }
        values.remove(0);
        for value in &values {
            let prefix = order.prefix([&b"x"[..], value].into_iter());
            let behind = Order::behind(prefix.clone());
            for other in &values {
                let term = Order::term(order.prefix([&b"x"[..], other].into_iter()));
                assert_eq!(order.values(&term), Some(vec![b"x".to_vec(), other.clone()]));
                assert_eq!(term < prefix, other < value, "{other:?} before {value:?}");
                assert_eq!(term >= behind, other > value, "{other:?} behind {value:?}");
            }
        }
        assert_eq!(Order::new(&table, &Index { options: Default::default(), ..index.clone() }), None);
        for broken in ["", "S", "S3", "S9:a", "X1:a", "S1:aN", "S-1:a"] {
            let options = [(ORDER_OPTION.to_owned(), broken.to_owned())].into();
            assert_eq!(Order::new(&table, &Index { options, ..index.clone() }), None, "{broken}");
        }
    }
}
