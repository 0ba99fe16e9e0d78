//! Responses (§4.2), written straight into the bytes that go out: rows are appended cell by cell, and the fields
//! in front of them is put together when the message is packed.

use bytes::{BufMut, Bytes, BytesMut};

use crate::metadata::metadata_flags;
use crate::notation::{put_bytes, put_short_bytes, put_string, put_string_list};
use crate::{CqlError, Dialect, Event, Flags, Metadata, Opcode, PreparedMetadata, SchemaChange, Version};

/// Kinds of RESULT (§4.2.5).
pub(crate) mod result_kind {
    pub(crate) const VOID: i32 = 1;
    pub(crate) const ROWS: i32 = 2;
    pub(crate) const SET_KEYSPACE: i32 = 3;
    pub(crate) const PREPARED: i32 = 4;
    pub(crate) const SCHEMA_CHANGE: i32 = 5;
}

/// The most bytes of a result's rows. Rows beyond that are not written: see [`ResponseWriter::is_too_large`].
pub const RESULT_BYTES_MAX: usize = 256 << 20;

/// The header before the rows; known completely only when the last row is written.
#[derive(Debug)]
struct RowsHead {
    metadata: Metadata,
    skip_metadata: bool,
    metadata_changed: bool,
    paging_state: Option<Bytes>,
    rows: u32,
    /// Cells of the row that is being written.
    cells: usize,
    /// A cell was left out because the rows had become too large.
    too_large: bool,
}

/// The parts of a response that stand before its message and are rarely there.
#[derive(Debug, Default)]
struct Prelude {
    tracing_id: Option<[u8; 16]>,
    warnings: Vec<String>,
    custom_payload: Vec<(String, Bytes)>,
}

/// One response. It takes a message once ([`ResponseWriter::rows`], [`ResponseWriter::void`], …); writing another
/// one replaces it, so that an error in the middle of a result leaves nothing of the result behind.
#[derive(Debug)]
pub struct ResponseWriter {
    dialect: Dialect,
    opcode: Opcode,
    body: BytesMut,
    rows: Option<RowsHead>,
    prelude: Option<Box<Prelude>>,
}

impl ResponseWriter {
    /// An empty response; until something is written it is a void result.
    pub fn new(dialect: Dialect) -> Self {
        Self::with_buffer(dialect, BytesMut::new())
    }

    /// The same, in a buffer that served before ([`ResponseWriter::into_buffer`]).
    pub fn with_buffer(dialect: Dialect, buffer: BytesMut) -> Self {
        let mut writer = Self { dialect, opcode: Opcode::Result, body: buffer, rows: None, prelude: None };
        writer.body.clear();
        writer
    }

    /// The buffer, emptied, for the next response.
    pub fn into_buffer(self) -> BytesMut {
        let mut buffer = self.body;
        buffer.clear();
        buffer
    }

    /// The version that the message is written for.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The message's opcode.
    pub fn opcode(&self) -> Opcode {
        self.opcode
    }

    /// Bytes of the message so far, without the fields before a result's rows.
    pub fn len(&self) -> usize {
        self.body.len()
    }

    /// Whether no byte of a message is written.
    pub fn is_empty(&self) -> bool {
        self.body.is_empty()
    }

    /// Whether cells were left out because the rows would have more than [`RESULT_BYTES_MAX`] bytes. The caller writes an error
    /// instead.
    pub fn is_too_large(&self) -> bool {
        self.rows.as_ref().is_some_and(|rows| rows.too_large)
    }

    fn begin(&mut self, opcode: Opcode) -> &mut BytesMut {
        self.opcode = opcode;
        self.rows = None;
        self.body.clear();
        &mut self.body
    }

    fn begin_result(&mut self, kind: i32) -> &mut BytesMut {
        let body = self.begin(Opcode::Result);
        body.put_i32(kind);
        body
    }

    /// ERROR.
    pub fn error(&mut self, error: &CqlError) {
        let dialect = self.dialect;
        error.put(self.begin(Opcode::Error), dialect);
    }

    /// READY.
    pub fn ready(&mut self) {
        self.begin(Opcode::Ready);
    }

    /// AUTHENTICATE with the class name of the authenticator.
    pub fn authenticate(&mut self, authenticator: &str) {
        put_string(self.begin(Opcode::Authenticate), authenticator);
    }

    /// AUTH_CHALLENGE.
    pub fn auth_challenge(&mut self, token: Option<&[u8]>) {
        put_bytes(self.begin(Opcode::AuthChallenge), token);
    }

    /// AUTH_SUCCESS.
    pub fn auth_success(&mut self, token: Option<&[u8]>) {
        put_bytes(self.begin(Opcode::AuthSuccess), token);
    }

    /// SUPPORTED: options and the values they can have.
    #[expect(clippy::expect_used, reason = "options are this node's own")]
    pub fn supported(&mut self, options: &[(String, Vec<String>)]) {
        let body = self.begin(Opcode::Supported);
        body.put_u16(u16::try_from(options.len()).expect("options are few"));
        for (name, values) in options {
            put_string(body, name);
            put_string_list(body, values);
        }
    }

    /// EVENT.
    pub fn event(&mut self, event: &Event) {
        let version = self.dialect.version;
        event.put(self.begin(Opcode::Event), version);
    }

    /// RESULT without content.
    pub fn void(&mut self) {
        self.begin(Opcode::Result);
    }

    /// RESULT of USE.
    pub fn set_keyspace(&mut self, keyspace: &str) {
        put_string(self.begin_result(result_kind::SET_KEYSPACE), keyspace);
    }

    /// RESULT of a statement that changed the schema.
    pub fn schema_change(&mut self, change: &SchemaChange) {
        let version = self.dialect.version;
        change.put(self.begin_result(result_kind::SCHEMA_CHANGE), version);
    }

    /// RESULT of PREPARE.
    pub fn prepared(&mut self, prepared: &PreparedMetadata) {
        let dialect = self.dialect;
        prepared.put(self.begin_result(result_kind::PREPARED), dialect);
    }

    /// RESULT with rows of these columns. The client asks for `skip_metadata`, if it knows them.
    ///
    /// `known_id` is the result metadata id that came with EXECUTE: if the columns have changed since, the response
    /// has the new id and names them, regardless of `skip_metadata`.
    pub fn rows(
        &mut self,
        metadata: &Metadata,
        skip_metadata: bool,
        known_id: Option<&[u8]>,
    ) -> RowsWriter<'_> {
        self.begin(Opcode::Result);
        let metadata_changed =
            self.dialect.has_metadata_id() && known_id.is_some_and(|known| known != metadata.id().as_slice());
        self.rows = Some(RowsHead {
            metadata: metadata.clone(),
            skip_metadata: skip_metadata && !metadata_changed,
            metadata_changed,
            paging_state: None,
            rows: 0,
            cells: 0,
            too_large: false,
        });
        RowsWriter { columns: metadata.len(), writer: self }
    }

    /// Continues the rows that [`ResponseWriter::rows`] began.
    ///
    /// # Panics
    /// When the message is not a rows result.
    #[expect(clippy::expect_used, reason = "the caller has begun a rows result")]
    pub fn more_rows(&mut self) -> RowsWriter<'_> {
        let columns = self.rows.as_ref().expect("a rows result was begun").metadata.len();
        RowsWriter { columns, writer: self }
    }

    /// Names the trace of the request.
    pub fn set_tracing_id(&mut self, id: [u8; 16]) {
        self.prelude.get_or_insert_default().tracing_id = Some(id);
    }

    /// Adds a warning (v4 and later; dropped before).
    pub fn warn(&mut self, warning: impl Into<String>) {
        self.prelude.get_or_insert_default().warnings.push(warning.into());
    }

    /// Adds an entry to the custom payload (v4 and later; dropped before).
    pub fn add_custom_payload(&mut self, name: impl Into<String>, value: Bytes) {
        self.prelude.get_or_insert_default().custom_payload.push((name.into(), value));
    }

    /// The flags of the envelope.
    pub(crate) fn flags(&self) -> Flags {
        let mut flags = 0;
        if let Some(prelude) = &self.prelude {
            if prelude.tracing_id.is_some() {
                flags |= Flags::TRACING;
            }
            if self.dialect.version >= Version::V4 {
                if !prelude.warnings.is_empty() {
                    flags |= Flags::WARNING;
                }
                if !prelude.custom_payload.is_empty() {
                    flags |= Flags::CUSTOM_PAYLOAD;
                }
            }
        }
        Flags(flags)
    }

    /// The body in the parts that it consists of; `head` takes those that are not in memory yet.
    ///
    /// # Panics
    /// When a row has been begun and not ended, or cells were left out.
    pub(crate) fn parts<'a>(&'a self, head: &'a mut BytesMut) -> [&'a [u8]; 4] {
        if let Some(prelude) = &self.prelude {
            prelude.put(head, self.flags());
        }
        let Some(rows) = &self.rows else {
            if self.body.is_empty() && self.opcode == Opcode::Result {
                // Nothing was written: a void result.
                head.put_i32(result_kind::VOID);
            }
            return [head, &[], &[], &self.body];
        };
        assert_eq!(rows.cells, 0, "the last row of the result is not complete");
        assert!(!rows.too_large, "a result without some of its cells is never sent");
        rows.put(head);
        let before_metadata = head.len();
        head.put_slice(&rows.rows.to_be_bytes());
        let metadata: &[u8] =
            if rows.skip_metadata { &[] } else { rows.metadata.encoded(self.dialect.version) };
        let (before, count) = head.split_at(before_metadata);
        [before, metadata, count, &self.body]
    }
}

impl Prelude {
    #[expect(clippy::expect_used, reason = "payloads are this node's own")]
    fn put(&self, out: &mut BytesMut, flags: Flags) {
        if let Some(id) = &self.tracing_id {
            out.put_slice(id);
        }
        if flags.has(Flags::WARNING) {
            put_string_list(out, &self.warnings);
        }
        if flags.has(Flags::CUSTOM_PAYLOAD) {
            out.put_u16(u16::try_from(self.custom_payload.len()).expect("entries are few"));
            for (name, value) in &self.custom_payload {
                put_string(out, name);
                put_bytes(out, Some(value));
            }
        }
    }
}

impl RowsHead {
    /// Kind, flags, number of columns, paging state and metadata id.
    fn put(&self, out: &mut BytesMut) {
        let mut flags = if self.skip_metadata { metadata_flags::NO_METADATA } else { self.metadata.flags() };
        if self.paging_state.is_some() {
            flags |= metadata_flags::HAS_MORE_PAGES;
        }
        if self.metadata_changed {
            flags |= metadata_flags::METADATA_CHANGED;
        }
        let mut fixed = [0; 12];
        let columns = crate::notation::length(self.metadata.len());
        let fields = [result_kind::ROWS, flags.cast_signed(), columns];
        for (bytes, field) in fixed.chunks_exact_mut(4).zip(fields) {
            bytes.copy_from_slice(&field.to_be_bytes());
        }
        out.put_slice(&fixed);
        if let Some(paging_state) = &self.paging_state {
            put_bytes(out, Some(paging_state));
        }
        if self.metadata_changed {
            put_short_bytes(out, self.metadata.id());
        }
    }
}

/// Appends rows to a response, cell by cell in the order of the columns.
pub struct RowsWriter<'a> {
    writer: &'a mut ResponseWriter,
    columns: usize,
}

impl RowsWriter<'_> {
    #[expect(clippy::expect_used, reason = "the writer was made for rows")]
    fn head(&mut self) -> &mut RowsHead {
        self.writer.rows.as_mut().expect("the writer was made for rows")
    }

    /// Counts a cell of `len` bytes; false when there is no room for it.
    ///
    /// # Panics
    /// When the row has more cells than there are columns.
    #[inline]
    fn count_cell(&mut self, len: usize) -> bool {
        let columns = self.columns;
        let fits = self.writer.body.len() + 4 + len <= RESULT_BYTES_MAX;
        let head = self.head();
        head.cells += 1;
        assert!(head.cells <= columns, "a row has more cells than the result has columns");
        head.too_large |= !fits;
        fits && !head.too_large
    }

    /// Appends a value in its serialised form.
    #[inline]
    pub fn cell(&mut self, value: &[u8]) {
        self.optional(Some(value));
    }

    /// Appends a null.
    #[inline]
    pub fn null(&mut self) {
        self.optional(None);
    }

    /// Appends a value or a null.
    #[inline]
    pub fn optional(&mut self, value: Option<&[u8]>) {
        if self.count_cell(value.map_or(0, <[u8]>::len)) {
            put_bytes(&mut self.writer.body, value);
        }
    }

    /// Whether cells were left out because the rows have grown too large: rows written from here on are lost.
    #[inline]
    pub fn is_too_large(&self) -> bool {
        self.writer.is_too_large()
    }

    /// Ends the row.
    ///
    /// # Panics
    /// When it has fewer cells than there are columns.
    #[inline]
    pub fn end_row(&mut self) {
        let columns = self.columns;
        let head = self.head();
        assert_eq!(head.cells, columns, "a row has fewer cells than the result has columns");
        head.cells = 0;
        head.rows += 1;
    }

    /// Rows so far.
    pub fn rows(&self) -> u32 {
        self.writer.rows.as_ref().map_or(0, |head| head.rows)
    }

    /// Bytes of the rows so far.
    pub fn len(&self) -> usize {
        self.writer.body.len()
    }

    /// Whether no row was written.
    pub fn is_empty(&self) -> bool {
        self.writer.body.is_empty()
    }

    /// There are more rows: the state with which the client asks for them.
    pub fn set_paging_state(&mut self, state: Bytes) {
        self.head().paging_state = Some(state);
    }
}
