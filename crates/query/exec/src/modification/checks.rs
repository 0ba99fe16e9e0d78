//! Constraints at work: the conditions of a table's columns, made ready with the plan of a statement that writes it, and held against
//! the keys and rows that the statement makes, and the demands of indexes. Messages are Cassandra's.

use bytes::Bytes;
use mutation::row::ColumnData;
use mutation::{Clustering, Row};
use regex::{Regex, RegexBuilder};
use schema::{Column, ColumnId, ColumnKind, Comparison, Constraint, Table};
use types::{CqlType, json};

use super::indexable::Indexable;
use crate::error::{ExecError, Result, invalid};
use crate::expr::row::key_components;

/// The most memory of a compiled regular expression, and of the states that a match remembers.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// A regular expression that a whole text has to match; none when it is none, or too large.
pub fn whole_match(pattern: &str) -> Option<Regex> {
    let compiled = |pattern: &str| {
        let mut builder = RegexBuilder::new(pattern);
        builder.size_limit(REGEX_BYTES_MAX).dfa_size_limit(REGEX_BYTES_MAX).build().ok()
    };
    // By itself first, so that no pattern ends the group around it.
    compiled(pattern)?;
    compiled(&format!(r"\A(?:{pattern})\z"))
}

/// A constraint that is ready to be held against values.
#[derive(Debug)]
enum Condition {
    Json,
    Value(Comparison, Vec<u8>, String),
    Length(Comparison, i32),
    OctetLength(Comparison, i32),
    Regexp(Comparison, Regex, String),
}

/// The conditions of a column.
#[derive(Debug)]
struct ColumnChecks {
    name: String,
    ty: CqlType,
    /// Whether each write of the row gives a value.
    is_required: bool,
    conditions: Vec<Condition>,
}

/// The conditions of a table that has some, by the part of a row that they are about.
#[derive(Debug, Default)]
pub struct Checks {
    /// By place in the partition key.
    partition: Vec<(usize, ColumnChecks)>,
    /// By place in the clustering key.
    clustering: Vec<(usize, ColumnChecks)>,
    statics: Vec<(ColumnId, ColumnChecks)>,
    regulars: Vec<(ColumnId, ColumnChecks)>,
    /// The demands of the indexes on static and regular columns.
    indexable: Indexable,
}

impl Checks {
    /// The conditions of a table; none when no column has constraints or an index that cannot have each value.
    ///
    /// # Errors
    /// When a constraint cannot be held against values, so that nothing may be written.
    pub fn of(table: &Table) -> Result<Option<Box<Self>>> {
        let mut checks = Self { indexable: Indexable::of(table), ..Self::default() };
        if !table.is_constrained() && checks.indexable.is_empty() {
            return Ok(None);
        }
        for column in table.constrained_columns() {
            let ready = ColumnChecks::of(column)?;
            let place = usize::from(column.position);
            match column.kind {
                ColumnKind::PartitionKey => checks.partition.push((place, ready)),
                ColumnKind::Clustering => checks.clustering.push((place, ready)),
                ColumnKind::Static => checks.statics.push((column.id, ready)),
                ColumnKind::Regular => checks.regulars.push((column.id, ready)),
            }
        }
        Ok(Some(Box::new(checks)))
    }

    /// Refuses a statement that leaves out a column which each write has to give, for any bound values. `writes_rows` when it
    /// writes more than the static row.
    ///
    /// # Errors
    /// The first column that is missing.
    pub fn required(&self, writes_rows: bool, is_given: impl Fn(ColumnId) -> bool) -> Result<()> {
        let regulars = self.regulars.iter().filter(|_| writes_rows);
        for (id, column) in self.statics.iter().chain(regulars) {
            if column.is_required && !is_given(*id) {
                return column.missing();
            }
        }
        Ok(())
    }

    /// Holds the partition key against the conditions of its columns.
    ///
    /// # Errors
    /// The first condition that does not hold.
    pub fn key(&self, table: &Table, key: &Bytes) -> Result<()> {
        if self.partition.is_empty() {
            return Ok(());
        }
        let components = key_components(table, key);
        for (place, column) in &self.partition {
            column.check(components.get(*place).map(|value| &**value))?;
        }
        Ok(())
    }

    /// Holds a clustering key against the conditions of its columns.
    ///
    /// # Errors
    /// The first condition that does not hold.
    pub fn clustering(&self, clustering: &Clustering) -> Result<()> {
        if self.clustering.is_empty() {
            return Ok(());
        }
        let components: smallvec::SmallVec<[Option<&[u8]>; 4]> = clustering.components().collect();
        for (place, column) in &self.clustering {
            column.check(components.get(*place).copied().flatten())?;
        }
        Ok(())
    }

    /// Holds the written cells of the static row against the conditions of their columns.
    ///
    /// # Errors
    /// The first condition that does not hold.
    pub fn statics(&self, row: &Row) -> Result<()> {
        cells(&self.statics, row)?;
        self.indexable.check(row)
    }

    /// Holds the written cells of a row against the conditions of their columns.
    ///
    /// # Errors
    /// The first condition that does not hold.
    pub fn regulars(&self, row: &Row) -> Result<()> {
        cells(&self.regulars, row)?;
        self.indexable.check(row)
    }
}

fn cells(columns: &[(ColumnId, ColumnChecks)], row: &Row) -> Result<()> {
    for (id, column) in columns {
        match row.column(*id) {
            Some(ColumnData::Simple(cell)) => {
                column.check((!cell.is_tombstone()).then_some(&*cell.value))?;
            }
            Some(ColumnData::Complex(_)) => panic!("a column of several cells has no constraints"),
            None if column.is_required => return column.missing(),
            None => {}
        }
    }
    Ok(())
}

impl ColumnChecks {
    fn of(column: &Column) -> Result<Self> {
        let unusable = |constraint: &Constraint| {
            ExecError::invalid(format!(
                "Constraint {} of column '{}' cannot be checked; drop it to write the column",
                constraint.cql(&column.name),
                column.name
            ))
        };
        let mut conditions = Vec::new();
        for constraint in &column.constraints {
            conditions.push(match constraint {
                Constraint::NotNull => continue,
                Constraint::Json => Condition::Json,
                Constraint::Value(comparison, bound) => {
                    let value = column.ty.from_string(bound).map_err(|_| unusable(constraint))?;
                    Condition::Value(*comparison, value, bound.clone())
                }
                Constraint::Length(comparison, bound) => Condition::Length(*comparison, *bound),
                Constraint::OctetLength(comparison, bound) => Condition::OctetLength(*comparison, *bound),
                Constraint::Regexp(comparison, pattern) => {
                    let regex = whole_match(pattern).ok_or_else(|| unusable(constraint))?;
                    Condition::Regexp(*comparison, regex, pattern.clone())
                }
            });
        }
        let is_required = column.constraints.contains(&Constraint::NotNull);
        Ok(Self { name: column.name.clone(), ty: column.ty.clone(), is_required, conditions })
    }

    fn missing<T>(&self) -> Result<T> {
        invalid!("Column '{}' has to be specified as part of this query.", self.name)
    }

    /// Holds a value against the conditions; none for null. Bytes of no length count as null, as in Cassandra.
    fn check(&self, value: Option<&[u8]>) -> Result<()> {
        let name = &self.name;
        let Some(value) = value.filter(|value| !value.is_empty()) else {
            return invalid!(
                "Column value does not satisfy value constraint for column '{name}' as it is null."
            );
        };
        self.conditions.iter().try_for_each(|condition| condition.check(value, name, &self.ty))
    }
}

impl Condition {
    fn check(&self, value: &[u8], name: &str, ty: &CqlType) -> Result<()> {
        const UNMET: &str = "Column value does not satisfy value constraint for column";
        match self {
            Self::Json => match std::str::from_utf8(value).is_ok_and(|text| json::parse(text).is_ok()) {
                true => Ok(()),
                false => {
                    invalid!("Value for column '{name}' violated JSON constraint as it is not a valid JSON.")
                }
            },
            Self::Value(comparison, bound, shown) => match comparison.holds(ty.compare(value, bound)) {
                true => Ok(()),
                false => invalid!("{UNMET} '{name}'. It should be {name} {} {shown}", comparison.symbol()),
            },
            Self::Length(comparison, bound) => {
                let length = length(value, ty);
                match comparison.holds(length.cmp(&i64::from(*bound))) {
                    true => Ok(()),
                    false => invalid!(
                        "{UNMET} '{name}'. It has a length of {length} and it should be {} {bound}",
                        comparison.symbol()
                    ),
                }
            }
            Self::OctetLength(comparison, bound) => {
                let length = value.len() as i64;
                match comparison.holds(length.cmp(&i64::from(*bound))) {
                    true => Ok(()),
                    // Cassandra says it twice.
                    false => invalid!(
                        "{UNMET} '{name}'. It has a length of {length} and it should be should be {} {bound}",
                        comparison.symbol()
                    ),
                }
            }
            Self::Regexp(comparison, regex, pattern) => {
                let matches = std::str::from_utf8(value).is_ok_and(|text| regex.is_match(text));
                match (comparison, matches) {
                    (Comparison::NotEqual, true) => {
                        invalid!("Value does match regular expression '{pattern}'")
                    }
                    (Comparison::NotEqual, false) | (_, true) => Ok(()),
                    (_, false) => invalid!("Value does not match regular expression '{pattern}'"),
                }
            }
        }
    }
}

/// Bytes of a blob; of a text Java's length: UTF-16 code units.
fn length(value: &[u8], ty: &CqlType) -> i64 {
    match (ty, std::str::from_utf8(value)) {
        (CqlType::Text, Ok(text)) => text.chars().map(|c| c.len_utf16() as i64).sum(),
        _ => value.len() as i64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_texts_and_stays_within_its_group() {
        let matches =
            |pattern: &str, text: &str| whole_match(pattern).is_some_and(|regex| regex.is_match(text));
        assert!(matches("a|bc", "bc") && !matches("a|bc", "abc") && !matches("a", "a\n"));
        assert!(matches("(?i)ab", "AB"));
        for pattern in ["a)|(b", "(", "a{1000}{1000}", r"(a)\1", "(?=a)", "[z-a]"] {
            assert!(whole_match(pattern).is_none(), "{pattern}");
        }
    }

    #[test]
    fn a_text_is_as_long_as_java_says() {
        assert_eq!(length("aé€😀".as_bytes(), &CqlType::Text), 5);
        assert_eq!(length("aé€😀".as_bytes(), &CqlType::Blob), 10);
    }
}
