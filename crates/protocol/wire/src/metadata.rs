//! Metadata of results and prepared statements: which columns, of which types. Encoded once a version, when it is first sent, and then
//! only copied.

use std::sync::{Arc, OnceLock};

use bytes::{BufMut, Bytes, BytesMut};

use crate::notation::{BodyReader, put_short_bytes, put_string};
use crate::{Dialect, LWT_MARK_MASK, ProtocolError, TypeOption, Version};

/// Flags of `<metadata>` (§4.2.5.2).
pub(crate) mod metadata_flags {
    pub(crate) const GLOBAL_TABLE: u32 = 0x0001;
    pub(crate) const HAS_MORE_PAGES: u32 = 0x0002;
    pub(crate) const NO_METADATA: u32 = 0x0004;
    pub(crate) const METADATA_CHANGED: u32 = 0x0008;
}

/// One column of a result, or one bind marker of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnSpec {
    /// Keyspace of the table.
    pub keyspace: Arc<str>,
    /// The table.
    pub table: Arc<str>,
    /// Name of the column, or the alias or text of the selected expression.
    pub name: Arc<str>,
    /// Its type.
    pub ty: TypeOption,
}

#[derive(Debug)]
struct Columns {
    specs: Vec<ColumnSpec>,
    /// Whether all columns are of one table, which is then named once.
    one_table: bool,
    id: OnceLock<[u8; 16]>,
    /// `<global_table_spec>?<col_spec_1>…<col_spec_n>` in each version.
    encoded: [OnceLock<Bytes>; Version::ALL.len()],
}

/// The columns of a result or the bind markers of a statement: cheap to clone, encoded at most once a version.
#[derive(Clone, Debug)]
pub struct Metadata(Arc<Columns>);

impl PartialEq for Metadata {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.specs == other.0.specs
    }
}

impl Eq for Metadata {}

impl Metadata {
    /// The metadata of these columns.
    pub fn new(specs: Vec<ColumnSpec>) -> Self {
        let one_table = specs.first().is_some_and(|first| {
            specs.iter().all(|spec| spec.keyspace == first.keyspace && spec.table == first.table)
        });
        Self(Arc::new(Columns { specs, one_table, id: OnceLock::new(), encoded: Default::default() }))
    }

    /// No columns: for statements that return nothing.
    pub fn none() -> Self {
        Self::new(Vec::new())
    }

    /// The columns.
    pub fn columns(&self) -> &[ColumnSpec] {
        &self.0.specs
    }

    /// Number of columns.
    pub fn len(&self) -> usize {
        self.0.specs.len()
    }

    /// Whether there are no columns.
    pub fn is_empty(&self) -> bool {
        self.0.specs.is_empty()
    }

    /// The result metadata id: the same columns always have the same id, on every node.
    pub fn id(&self) -> &[u8; 16] {
        self.0.id.get_or_init(|| fingerprint(self.encoded(Version::MAX)))
    }

    /// The specifications as they stand in a message of this version.
    #[allow(clippy::indexing_slicing, reason = "one place a version")]
    pub(crate) fn encoded(&self, version: Version) -> &Bytes {
        self.0.encoded[version.index()].get_or_init(|| self.0.encode(version))
    }

    /// [`metadata_flags::GLOBAL_TABLE`] or nothing.
    pub(crate) fn flags(&self) -> u32 {
        if self.0.one_table { metadata_flags::GLOBAL_TABLE } else { 0 }
    }

    /// Reads the specifications of `count` columns, as clients do.
    pub(crate) fn decode(
        reader: &mut BodyReader<'_>,
        flags: u32,
        count: usize,
    ) -> Result<Self, ProtocolError> {
        let table = |reader: &mut BodyReader<'_>| {
            let keyspace: Arc<str> = reader.str("the keyspace")?.into();
            let table: Arc<str> = reader.str("the table")?.into();
            Ok::<_, ProtocolError>((keyspace, table))
        };
        let global = match flags & metadata_flags::GLOBAL_TABLE {
            0 => None,
            _ => Some(table(reader)?),
        };
        // A specification takes at least four bytes.
        let mut specs = Vec::with_capacity(count.min(reader.left() / 4));
        for _ in 0..count {
            let (keyspace, table) = match &global {
                Some(global) => global.clone(),
                None => table(reader)?,
            };
            let name = reader.str("the column")?.into();
            specs.push(ColumnSpec { keyspace, table, name, ty: TypeOption::decode(reader)? });
        }
        Ok(Self::new(specs))
    }
}

impl Columns {
    fn encode(&self, version: Version) -> Bytes {
        let mut out = BytesMut::new();
        if self.one_table
            && let Some(first) = self.specs.first()
        {
            put_string(&mut out, &first.keyspace);
            put_string(&mut out, &first.table);
        }
        for spec in &self.specs {
            if !self.one_table {
                put_string(&mut out, &spec.keyspace);
                put_string(&mut out, &spec.table);
            }
            put_string(&mut out, &spec.name);
            spec.ty.put(&mut out, version);
        }
        out.freeze()
    }
}

/// The answer to PREPARE (§4.2.5.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedMetadata {
    /// The id by which EXECUTE names the statement.
    pub id: Bytes,
    /// The bind markers.
    pub bind_markers: Metadata,
    /// For each column of the partition key in order, the bind marker that gives its value; empty when one of them
    /// has none (v4 and later).
    pub partition_key_markers: Vec<u16>,
    /// The result's columns; none for statements that return nothing.
    pub result: Metadata,
    /// Whether the statement is conditional.
    pub is_conditional: bool,
}

impl PreparedMetadata {
    pub(crate) fn put(&self, out: &mut BytesMut, dialect: Dialect) {
        put_short_bytes(out, &self.id);
        if dialect.has_metadata_id() {
            put_short_bytes(out, self.result.id());
        }
        let mut flags = self.bind_markers.flags();
        if self.is_conditional && dialect.lwt_mark {
            flags |= LWT_MARK_MASK;
        }
        out.put_u32(flags);
        out.put_i32(crate::notation::length(self.bind_markers.len()));
        if dialect.version >= Version::V4 {
            out.put_i32(crate::notation::length(self.partition_key_markers.len()));
            for marker in &self.partition_key_markers {
                out.put_u16(*marker);
            }
        }
        out.put_slice(self.bind_markers.encoded(dialect.version));
        if self.result.is_empty() {
            out.put_u32(metadata_flags::NO_METADATA);
            out.put_i32(0);
        } else {
            out.put_u32(self.result.flags());
            out.put_i32(crate::notation::length(self.result.len()));
            out.put_slice(self.result.encoded(dialect.version));
        }
    }
}

/// The id of a prepared statement: the same text prepared in the same keyspace has the same id on every node and
/// after every restart, so that clients need not prepare again. Nobody can make another text with a given id, which would be run in
/// place of the first one with the rights of the clients that prepared it.
pub fn statement_id(keyspace: &str, text: &str) -> Bytes {
    let mut input = Vec::with_capacity(keyspace.len() + 1 + text.len());
    input.extend_from_slice(keyspace.as_bytes());
    // A byte that UTF-8 does not have keeps ("a", "bc") apart from ("ab", "c").
    input.push(0xFF);
    input.extend_from_slice(text.as_bytes());
    Bytes::copy_from_slice(&fingerprint(&input))
}

/// The first half of the SHA-256 digest.
fn fingerprint(bytes: &[u8]) -> [u8; 16] {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let mut half = [0; 16];
    half.copy_from_slice(digest.as_ref().split_at(16).0);
    half
}
