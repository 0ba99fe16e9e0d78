//! The serialisation header: the smallest values that rows are encoded against, and the types and names of the columns
//! that occur in the file. It makes a data file readable without a schema.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use mutation::NO_DELETION;
use schema::{ColumnId, Table};
use stdx::{HashSet, vint};
use types::CqlType;

use crate::{DecodeError, EncodingStats, decode::Decoder};

const COMPOSITE: &str = "org.apache.cassandra.db.marshal.CompositeType";

/// A column as the header names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderColumn {
    /// Its name.
    pub name: String,
    /// The class of its type.
    pub class: String,
    /// Its type.
    pub ty: CqlType,
}

/// The header of a data file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SerializationHeader {
    /// The types that values are encoded against.
    pub encoding: EncodingStats,
    /// Class of the partition key; a composite of several columns.
    pub key_class: String,
    /// Types of the partition key's columns.
    pub key_types: Vec<CqlType>,
    /// Classes of the clustering columns.
    pub clustering_classes: Vec<String>,
    /// Types of the clustering columns, and whether they are in descending order.
    pub clustering_types: Vec<(CqlType, bool)>,
    /// Static columns, those with one cell first, each kind by name.
    pub statics: Vec<HeaderColumn>,
    /// Regular columns in the same order.
    pub regulars: Vec<HeaderColumn>,
}

impl SerializationHeader {
    /// The header of a file of `table` in which `columns` occur (all of them when `None`).
    pub fn of_table(table: &Table, columns: Option<&[ColumnId]>, encoding: EncodingStats) -> Self {
        let key_types: Vec<CqlType> = table.partition_key().iter().map(|column| column.ty.clone()).collect();
        assert!(!key_types.is_empty(), "a table has a partition key");
        let key_class = match key_types.as_slice() {
            [single] => single.class_name(false),
            several => {
                let parts: Vec<String> = several.iter().map(|ty| ty.class_name(false)).collect();
                format!("{COMPOSITE}({})", parts.join(","))
            }
        };
        let pick = |all: &[schema::Column]| {
            let wanted = |column: &&schema::Column| columns.is_none_or(|ids| ids.contains(&column.id));
            let mut picked: Vec<&schema::Column> = all.iter().filter(wanted).collect();
            picked.sort_by_key(|column| column.is_complex());
            let header = |column: &schema::Column| HeaderColumn {
                name: column.name.clone(),
                class: column.ty.class_name(false),
                ty: column.ty.clone(),
            };
            picked.into_iter().map(header).collect::<Vec<_>>()
        };
        Self {
            encoding,
            key_class,
            key_types,
            clustering_classes: table
                .clustering_types()
                .iter()
                .map(|(ty, down)| ty.class_name(*down))
                .collect(),
            clustering_types: table.clustering_types().to_vec(),
            statics: pick(table.static_columns()),
            regulars: pick(table.regular_columns()),
        }
    }

    /// The component's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let clusterings = self.clustering_types.len();
        assert_eq!(self.clustering_classes.len(), clusterings, "each clustering column has a class");
        for columns in [&self.statics, &self.regulars] {
            let names: HashSet<&str> = columns.iter().map(|column| &*column.name).collect();
            assert_eq!(names.len(), columns.len(), "columns have different names");
        }
        let mut out = Vec::with_capacity(256);
        let epoch = EncodingStats::NONE;
        let timestamp = self.encoding.min_timestamp.wrapping_sub(epoch.min_timestamp);
        vint::write_unsigned(timestamp as u64, &mut out);
        epoch.write_local(self.encoding.min_local_deletion, &mut out);
        epoch.write_ttl(self.encoding.min_ttl, &mut out);
        let text = |text: &str, out: &mut Vec<u8>| {
            vint::write_unsigned(text.len() as u64, out);
            out.extend_from_slice(text.as_bytes());
        };
        text(&self.key_class, &mut out);
        vint::write_unsigned(self.clustering_classes.len() as u64, &mut out);
        self.clustering_classes.iter().for_each(|class| text(class, &mut out));
        for columns in [&self.statics, &self.regulars] {
            vint::write_unsigned(columns.len() as u64, &mut out);
            for column in columns {
                text(&column.name, &mut out);
                text(&column.class, &mut out);
            }
        }
        out
    }

    /// Decodes the output of [`SerializationHeader::encode`].
    ///
    /// # Errors
    /// A [`DecodeError`] when the bytes are cut off, something follows them, or a class name is no type.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let epoch = EncodingStats::NONE;
        let min_timestamp = epoch.min_timestamp.wrapping_add(decoder.vint("smallest timestamp")? as i64);
        let local = decoder.vint("smallest local deletion time")? as i32;
        let local =
            crate::deletion::from_signed(i64::from((epoch.min_local_deletion as i32).wrapping_add(local)));
        let min_ttl = decoder.vint("smallest TTL")? as u32;
        let encoding = EncodingStats {
            min_timestamp,
            min_local_deletion: if local == NO_DELETION { epoch.min_local_deletion } else { local },
            min_ttl,
        };
        let key_class = text(&mut decoder, "class of the partition key")?;
        let key_types = key_types(&key_class, &decoder)?;
        let count = decoder.count_vint(1, "clustering columns")?;
        let mut clustering_classes = Vec::with_capacity(count);
        let mut clustering_types = Vec::with_capacity(count);
        for _ in 0..count {
            let class = text(&mut decoder, "class of a clustering column")?;
            clustering_types.push(parse(&class, &decoder)?);
            clustering_classes.push(class);
        }
        let statics = columns(&mut decoder)?;
        let regulars = columns(&mut decoder)?;
        decoder.end()?;
        Ok(Self { encoding, key_class, key_types, clustering_classes, clustering_types, statics, regulars })
    }
}

fn columns(decoder: &mut Decoder<'_>) -> Result<Vec<HeaderColumn>, DecodeError> {
    let count = decoder.count_vint(2, "columns")?;
    let mut out: Vec<HeaderColumn> = Vec::with_capacity(count);
    let mut names: HashSet<String> = HashSet::default();
    for _ in 0..count {
        let name = text(decoder, "name of a column")?;
        let class = text(decoder, "class of a column")?;
        let (ty, _) = parse(&class, decoder)?;
        if !names.insert(name.clone()) {
            return Err(decoder.wrong(class.len(), "columns of different names", name));
        }
        out.push(HeaderColumn { name, class, ty });
    }
    Ok(out)
}

fn text(decoder: &mut Decoder<'_>, what: &str) -> Result<String, DecodeError> {
    let bytes = decoder.bytes_vint(what)?;
    let text = std::str::from_utf8(bytes);
    text.map(str::to_owned).map_err(|_| decoder.wrong(bytes.len(), "UTF-8", format!("{bytes:02x?}")))
}

fn parse(class: &str, decoder: &Decoder<'_>) -> Result<(CqlType, bool), DecodeError> {
    CqlType::parse_class_name(class)
        .map_err(|error| decoder.wrong(class.len().saturating_sub(error.offset), error.expected, class))
}

/// The types in a partition key's class.
fn key_types(class: &str, decoder: &Decoder<'_>) -> Result<Vec<CqlType>, DecodeError> {
    let parts = class.strip_prefix(COMPOSITE).or_else(|| class.strip_prefix("CompositeType"));
    let Some(parts) = parts.and_then(|rest| rest.strip_prefix('(')?.strip_suffix(')')) else {
        return Ok(vec![parse(class, decoder)?.0]);
    };
    let mut out = Vec::new();
    let (mut start, mut depth) = (0, 0usize);
    for (at, byte) in parts.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                out.push(parse(&parts[start..at], decoder)?.0);
                start = at + 1;
            }
            _ => {}
        }
    }
    out.push(parse(&parts[start..], decoder)?.0);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::{TableBuilder, TableId};

    fn table() -> Table {
        TableBuilder::new("ks", "t", TableId([1; 16]))
            .partition_key("a", CqlType::Int)
            .partition_key("b", CqlType::map(CqlType::Int, CqlType::Text, true))
            .clustering("c", CqlType::Text, true)
            .static_column("s", CqlType::set(CqlType::Int, false))
            .regular("z", CqlType::Text)
            .regular("b2", CqlType::list(CqlType::Int, false))
            .regular("y", CqlType::list(CqlType::Int, true))
            .build()
            .unwrap()
    }

    #[test]
    fn the_columns_of_a_wide_table_are_read_in_one_pass() {
        let mut builder = TableBuilder::new("ks", "wide", TableId([1; 16])).partition_key("p", CqlType::Int);
        for number in 0..60_000 {
            builder = builder.regular(format!("column_{number}"), CqlType::Int);
        }
        let encoding = EncodingStats { min_timestamp: 0, min_local_deletion: 0, min_ttl: 0 };
        let bytes = SerializationHeader::of_table(&builder.build().unwrap(), None, encoding).encode();
        let began = std::time::Instant::now();
        assert_eq!(SerializationHeader::decode(&bytes).unwrap().regulars.len(), 60_000);
        // Looking for each name among those before it took over 20 s of a debug build.
        assert!(began.elapsed() < std::time::Duration::from_secs(4), "{:?}", began.elapsed());
    }

    #[test]
    fn round_trip() {
        let encoding = EncodingStats { min_timestamp: -5, min_local_deletion: 7, min_ttl: 3 };
        for columns in [None, Some(&[ColumnId(4), ColumnId(6)][..])] {
            let header = SerializationHeader::of_table(&table(), columns, encoding);
            let bytes = header.encode();
            assert_eq!(SerializationHeader::decode(&bytes), Ok(header));
            for cut in 0..bytes.len() {
                assert!(SerializationHeader::decode(&bytes[..cut]).is_err());
            }
        }
    }

    #[test]
    fn columns_of_one_cell_come_first() {
        let header = SerializationHeader::of_table(&table(), None, EncodingStats::NONE);
        let names: Vec<&str> = header.regulars.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["y", "z", "b2"]);
        assert_eq!(header.key_types.len(), 2);
        assert_eq!(header.clustering_types, [(CqlType::Text, true)]);
    }
}
