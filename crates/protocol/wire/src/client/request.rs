//! Requests, written (§4.1).

use bytes::{BufMut, Bytes, BytesMut};

use crate::notation::{length, put_bytes, put_long_string, put_short_bytes, put_string, put_string_list};
use crate::request::{PREPARE_KEYSPACE, parameter_flags};
use crate::{BatchType, Consistency, Dialect, EventType, Flags, Opcode, Value, Version};

/// Values and options of a statement. Fields that a version does not know are left out.
#[derive(Clone, Debug)]
pub struct Parameters<'a> {
    /// Consistency level.
    pub consistency: Consistency,
    /// Bound values.
    pub values: &'a [Value<'a>],
    /// Names of the values, empty or one for each.
    pub names: &'a [&'a str],
    /// Leave the metadata out of the result.
    pub skip_metadata: bool,
    /// Rows of a page.
    pub page_size: Option<i32>,
    /// Where to go on.
    pub paging_state: Option<&'a [u8]>,
    /// Consistency level of a conditional statement's first phase.
    pub serial_consistency: Option<Consistency>,
    /// Default timestamp in microseconds.
    pub timestamp: Option<i64>,
    /// Keyspace of unqualified names (v5).
    pub keyspace: Option<&'a str>,
    /// The present in seconds since 1970 (v5).
    pub now_in_seconds: Option<i32>,
}

impl<'a> Parameters<'a> {
    /// A consistency level and values.
    pub fn new(consistency: Consistency, values: &'a [Value<'a>]) -> Self {
        Self {
            consistency,
            values,
            names: &[],
            skip_metadata: false,
            page_size: None,
            paging_state: None,
            serial_consistency: None,
            timestamp: None,
            keyspace: None,
            now_in_seconds: None,
        }
    }

    /// The flags that batches have too.
    fn common_flags(&self, version: Version) -> u32 {
        let mut flags = 0;
        let mut set = |condition, flag| flags |= if condition { flag } else { 0 };
        set(self.serial_consistency.is_some(), parameter_flags::SERIAL_CONSISTENCY);
        set(self.timestamp.is_some(), parameter_flags::TIMESTAMP);
        if version >= Version::V5 {
            set(self.keyspace.is_some(), parameter_flags::KEYSPACE);
            set(self.now_in_seconds.is_some(), parameter_flags::NOW_IN_SECONDS);
        }
        flags
    }

    fn put(&self, out: &mut BytesMut, version: Version) {
        let mut flags = self.common_flags(version);
        let mut set = |condition, flag| flags |= if condition { flag } else { 0 };
        set(!self.values.is_empty(), parameter_flags::VALUES);
        set(!self.names.is_empty(), parameter_flags::NAMES);
        set(self.skip_metadata, parameter_flags::SKIP_METADATA);
        set(self.page_size.is_some(), parameter_flags::PAGE_SIZE);
        set(self.paging_state.is_some(), parameter_flags::PAGING_STATE);
        out.put_u16(self.consistency.code());
        put_flags(out, flags, version);
        if !self.values.is_empty() {
            put_values(out, self.values, self.names);
        }
        if let Some(page_size) = self.page_size {
            out.put_i32(page_size);
        }
        if self.paging_state.is_some() {
            put_bytes(out, self.paging_state);
        }
        self.put_common(out, version);
    }

    fn put_common(&self, out: &mut BytesMut, version: Version) {
        if let Some(consistency) = self.serial_consistency {
            out.put_u16(consistency.code());
        }
        if let Some(timestamp) = self.timestamp {
            out.put_i64(timestamp);
        }
        if version >= Version::V5 {
            if let Some(keyspace) = self.keyspace {
                put_string(out, keyspace);
            }
            if let Some(now) = self.now_in_seconds {
                out.put_i32(now);
            }
        }
    }
}

#[expect(clippy::expect_used, reason = "the version has only these flags")]
fn put_flags(out: &mut BytesMut, flags: u32, version: Version) {
    if version >= Version::V5 {
        out.put_u32(flags);
    } else {
        out.put_u8(u8::try_from(flags).expect("older versions have eight flags"));
    }
}

#[expect(clippy::expect_used, reason = "the caller's limit")]
fn put_values(out: &mut BytesMut, values: &[Value<'_>], names: &[&str]) {
    assert!(names.is_empty() || names.len() == values.len(), "a name for each value or for none");
    out.put_u16(u16::try_from(values.len()).expect("at most 65,535 values"));
    for (index, value) in values.iter().enumerate() {
        if let Some(name) = names.get(index) {
            put_string(out, name);
        }
        match value {
            Value::Set(bytes) => {
                out.put_i32(length(bytes.len()));
                out.put_slice(bytes);
            }
            Value::Null => out.put_i32(-1),
            Value::Unset => out.put_i32(-2),
        }
    }
}

/// A statement of a batch.
#[derive(Clone, Copy, Debug)]
pub enum BatchItem<'a> {
    /// Text and values.
    Text(&'a str, &'a [Value<'a>]),
    /// Id of a prepared statement and values.
    Prepared(&'a [u8], &'a [Value<'a>]),
}

/// One request; like a response it takes one message, and another one replaces it.
#[derive(Debug)]
pub struct RequestWriter {
    dialect: Dialect,
    opcode: Opcode,
    tracing: bool,
    custom_payload: bool,
    /// Where the message begins, after the custom payload.
    start: usize,
    body: BytesMut,
}

impl RequestWriter {
    /// An OPTIONS request.
    pub fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            opcode: Opcode::Options,
            tracing: false,
            custom_payload: false,
            start: 0,
            body: BytesMut::new(),
        }
    }

    /// The version that the request is written for.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The message's opcode.
    pub fn opcode(&self) -> Opcode {
        self.opcode
    }

    pub(crate) fn flags(&self) -> Flags {
        let mut flags = if self.tracing { Flags::TRACING } else { 0 };
        if self.custom_payload {
            flags |= Flags::CUSTOM_PAYLOAD;
        }
        Flags(flags)
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    fn begin(&mut self, opcode: Opcode) -> &mut BytesMut {
        self.opcode = opcode;
        self.body.truncate(self.start);
        &mut self.body
    }

    /// Asks for the request to be traced, or not.
    pub fn set_tracing(&mut self, tracing: bool) {
        self.tracing = tracing;
    }

    /// Sets the custom payload (v4 and later); to be called before the message is written.
    #[expect(clippy::expect_used, reason = "the caller's limit")]
    pub fn set_custom_payload(&mut self, payload: &[(&str, Option<Bytes>)]) {
        self.body.clear();
        self.custom_payload = self.dialect.version >= Version::V4 && !payload.is_empty();
        if self.custom_payload {
            self.body.put_u16(u16::try_from(payload.len()).expect("entries are few"));
            for (name, value) in payload {
                put_string(&mut self.body, name);
                put_bytes(&mut self.body, value.as_deref());
            }
        }
        self.start = self.body.len();
    }

    /// STARTUP.
    #[expect(clippy::expect_used, reason = "the caller's limit")]
    pub fn startup(&mut self, options: &[(&str, &str)]) {
        let body = self.begin(Opcode::Startup);
        body.put_u16(u16::try_from(options.len()).expect("options are few"));
        for (name, value) in options {
            put_string(body, name);
            put_string(body, value);
        }
    }

    /// AUTH_RESPONSE.
    pub fn auth_response(&mut self, token: Option<&[u8]>) {
        put_bytes(self.begin(Opcode::AuthResponse), token);
    }

    /// OPTIONS.
    pub fn options(&mut self) {
        self.begin(Opcode::Options);
    }

    /// REGISTER.
    pub fn register(&mut self, events: &[EventType]) {
        let names: Vec<_> = events.iter().map(|event| event.name()).collect();
        put_string_list(self.begin(Opcode::Register), &names);
    }

    /// QUERY.
    pub fn query(&mut self, text: &str, parameters: &Parameters<'_>) {
        let version = self.dialect.version;
        let body = self.begin(Opcode::Query);
        put_long_string(body, text);
        parameters.put(body, version);
    }

    /// PREPARE.
    pub fn prepare(&mut self, text: &str, keyspace: Option<&str>) {
        let version = self.dialect.version;
        let body = self.begin(Opcode::Prepare);
        put_long_string(body, text);
        if version >= Version::V5 {
            body.put_u32(if keyspace.is_some() { PREPARE_KEYSPACE } else { 0 });
            if let Some(keyspace) = keyspace {
                put_string(body, keyspace);
            }
        }
    }

    /// EXECUTE. The metadata id is sent where the dialect has one.
    pub fn execute(&mut self, id: &[u8], result_metadata_id: &[u8], parameters: &Parameters<'_>) {
        let dialect = self.dialect;
        let body = self.begin(Opcode::Execute);
        put_short_bytes(body, id);
        if dialect.has_metadata_id() {
            put_short_bytes(body, result_metadata_id);
        }
        parameters.put(body, dialect.version);
    }

    /// BATCH. Of the parameters, those that a batch has are sent.
    #[expect(clippy::expect_used, reason = "the caller's limit")]
    pub fn batch(&mut self, kind: BatchType, items: &[BatchItem<'_>], parameters: &Parameters<'_>) {
        let version = self.dialect.version;
        let body = self.begin(Opcode::Batch);
        body.put_u8(kind as u8);
        body.put_u16(u16::try_from(items.len()).expect("at most 65,535 statements"));
        for item in items {
            let values = match item {
                BatchItem::Text(text, values) => {
                    body.put_u8(0);
                    put_long_string(body, text);
                    values
                }
                BatchItem::Prepared(id, values) => {
                    body.put_u8(1);
                    put_short_bytes(body, id);
                    values
                }
            };
            put_values(body, values, &[]);
        }
        body.put_u16(parameters.consistency.code());
        put_flags(body, parameters.common_flags(version), version);
        parameters.put_common(body, version);
    }
}
