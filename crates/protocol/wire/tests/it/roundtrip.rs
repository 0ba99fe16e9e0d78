//! Round trips between both halves of the protocol: every message, version and transport.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use wire::client::{Answer, AnswerBody, BatchItem, Parameters, RequestWriter, ResultBody};
use wire::{
    BatchType, Consistency, CqlError, Dialect, Direction, Encoder, ErrorKind, Message, Metadata,
    QueryParameters, Request, ResponseWriter, SchemaTarget, StatementSource, Value, Values, Version,
    WriteType,
};

use crate::samples::{
    codecs, columns, columns_seen_in, decode_all, dialects, errors, events, prepared, request_envelope,
    requests, response_envelope, responses, transports,
};

fn answer(response: &ResponseWriter) -> Answer {
    Answer::decode(&response_envelope(response), response.dialect()).expect("a good response")
}

fn decode(request: &RequestWriter) -> Request {
    Request::decode(&request_envelope(request), request.dialect()).expect("a good request")
}

#[derive(Clone, Debug)]
enum OwnedValue {
    Null,
    Unset,
    Set(Vec<u8>),
}

impl OwnedValue {
    fn borrow(&self) -> Value<'_> {
        match self {
            OwnedValue::Null => Value::Null,
            OwnedValue::Unset => Value::Unset,
            OwnedValue::Set(bytes) => Value::Set(bytes),
        }
    }

    /// As a server of this version sees it.
    fn seen_in(&self, version: Version) -> Value<'_> {
        match self {
            OwnedValue::Unset if version < Version::V4 => Value::Null,
            other => other.borrow(),
        }
    }
}

fn value() -> impl Strategy<Value = OwnedValue> {
    prop_oneof![
        1 => Just(OwnedValue::Null),
        1 => Just(OwnedValue::Unset),
        6 => prop::collection::vec(any::<u8>(), 0..40).prop_map(OwnedValue::Set),
    ]
}

fn consistency() -> impl Strategy<Value = Consistency> {
    prop::sample::select(Consistency::ALL_LEVELS.to_vec())
}

fn dialect() -> impl Strategy<Value = Dialect> {
    prop::sample::select(dialects())
}

#[derive(Clone, Debug)]
struct OwnedParameters {
    consistency: Consistency,
    values: Vec<OwnedValue>,
    names: Option<Vec<String>>,
    skip_metadata: bool,
    page_size: Option<i32>,
    paging_state: Option<Vec<u8>>,
    serial_consistency: Option<Consistency>,
    timestamp: Option<i64>,
    keyspace: Option<String>,
    now_in_seconds: Option<i32>,
}

fn parameters() -> impl Strategy<Value = OwnedParameters> {
    let values = prop::collection::vec((value(), "\\PC{0,8}"), 0..20);
    let paging = (any::<bool>(), any::<Option<i32>>(), any::<Option<Vec<u8>>>());
    let times = (any::<Option<i64>>(), any::<Option<i32>>());
    let keyspace = prop::option::of("\\PC{0,20}");
    (consistency(), values, any::<bool>(), paging, prop::option::of(consistency()), times, keyspace).prop_map(
        |(consistency, values, named, paging, serial_consistency, times, keyspace)| {
            let (values, names): (Vec<_>, Vec<_>) = values.into_iter().unzip();
            let (skip_metadata, page_size, paging_state) = paging;
            OwnedParameters {
                consistency,
                names: (named && !values.is_empty()).then_some(names),
                values,
                skip_metadata,
                page_size,
                paging_state,
                serial_consistency,
                timestamp: times.0.filter(|timestamp| *timestamp != i64::MIN),
                keyspace,
                now_in_seconds: times.1,
            }
        },
    )
}

impl OwnedParameters {
    fn with<T>(&self, run: impl FnOnce(&Parameters<'_>) -> T) -> T {
        let values: Vec<_> = self.values.iter().map(OwnedValue::borrow).collect();
        let names: Vec<_> = self.names.iter().flatten().map(String::as_str).collect();
        run(&Parameters {
            consistency: self.consistency,
            values: &values,
            names: &names,
            skip_metadata: self.skip_metadata,
            page_size: self.page_size,
            paging_state: self.paging_state.as_deref(),
            serial_consistency: self.serial_consistency,
            timestamp: self.timestamp,
            keyspace: self.keyspace.as_deref(),
            now_in_seconds: self.now_in_seconds,
        })
    }

    fn check_common(&self, read: &QueryParameters, version: Version) {
        let v5 = version >= Version::V5;
        assert_eq!(read.consistency, self.consistency);
        assert_eq!(read.serial_consistency, self.serial_consistency);
        assert_eq!(read.timestamp, self.timestamp);
        assert_eq!(read.keyspace.as_deref(), self.keyspace.as_deref().filter(|_| v5));
        assert_eq!(read.now_in_seconds, self.now_in_seconds.filter(|_| v5));
    }

    fn check(&self, read: &QueryParameters, version: Version) {
        self.check_common(read, version);
        assert_eq!(read.skip_metadata, self.skip_metadata);
        assert_eq!(read.page_size, self.page_size);
        assert_eq!(read.paging_state.as_deref(), self.paging_state.as_deref());
        check_values(&read.values, &self.values, version);
        match &self.names {
            None => assert!(!read.values.is_named()),
            Some(names) => {
                for (index, name) in names.iter().enumerate() {
                    assert_eq!(read.values.name(index), Some(name.as_str()));
                }
            }
        }
    }
}

fn check_values(read: &Values, written: &[OwnedValue], version: Version) {
    let expected: Vec<_> = written.iter().map(|value| value.seen_in(version)).collect();
    assert_eq!(read.iter().collect::<Vec<_>>(), expected);
    for (index, value) in expected.iter().enumerate() {
        assert_eq!(read.shared(index).as_deref(), value.as_slice());
    }
    assert_eq!(read.get(expected.len()), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn query_and_execute(
        dialect in dialect(),
        text in "\\PC{0,60}",
        id in prop::collection::vec(any::<u8>(), 0..32),
        parameters in parameters(),
        tracing: bool,
    ) {
        let mut writer = RequestWriter::new(dialect);
        writer.set_tracing(tracing);
        parameters.with(|parameters| writer.query(&text, parameters));
        let request = decode(&writer);
        prop_assert_eq!(request.tracing, tracing);
        let Message::Query(query) = request.message else { panic!("not a query") };
        prop_assert_eq!(query.text.as_str(), text);
        parameters.check(&query.parameters, dialect.version);

        parameters.with(|parameters| writer.execute(&id, b"metadata", parameters));
        let Message::Execute(execute) = decode(&writer).message else { panic!("not an execute") };
        prop_assert_eq!(&execute.id[..], &id[..]);
        let metadata_id = dialect.has_metadata_id().then_some(&b"metadata"[..]);
        prop_assert_eq!(execute.result_metadata_id.as_deref(), metadata_id);
        parameters.check(&execute.parameters, dialect.version);
    }

    #[test]
    fn batches(
        dialect in dialect(),
        kind in prop::sample::select(vec![BatchType::Logged, BatchType::Unlogged, BatchType::Counter]),
        statements in prop::collection::vec((any::<bool>(), "\\PC{0,30}", prop::collection::vec(value(), 0..12)), 0..10),
        parameters in parameters(),
    ) {
        let values: Vec<Vec<_>> =
            statements.iter().map(|(_, _, values)| values.iter().map(OwnedValue::borrow).collect()).collect();
        let items: Vec<_> = statements
            .iter()
            .zip(&values)
            .map(|((prepared, text, _), values)| match prepared {
                true => BatchItem::Prepared(text.as_bytes(), values),
                false => BatchItem::Text(text, values),
            })
            .collect();
        let mut writer = RequestWriter::new(dialect);
        parameters.with(|parameters| writer.batch(kind, &items, parameters));
        let Message::Batch(batch) = decode(&writer).message else { panic!("not a batch") };
        prop_assert_eq!(batch.kind, kind);
        prop_assert_eq!(batch.statements.len(), statements.len());
        for (read, (prepared, text, values)) in batch.statements.iter().zip(&statements) {
            match &read.source {
                StatementSource::Prepared(id) => {
                    prop_assert!(prepared);
                    prop_assert_eq!(&id[..], text.as_bytes());
                }
                StatementSource::Text(read) => {
                    prop_assert!(!prepared);
                    prop_assert_eq!(read.as_str(), text);
                }
            }
            check_values(&read.values, values, dialect.version);
        }
        parameters.check_common(&batch.parameters, dialect.version);
    }

    #[test]
    fn rows(
        dialect in dialect(),
        columns in 1_usize..6,
        cells in prop::collection::vec(any::<Option<Vec<u8>>>(), 0..60),
        skip: bool,
        known in prop::sample::select(vec![None, Some(true), Some(false)]),
        paging_state in any::<Option<Vec<u8>>>(),
        warnings in prop::collection::vec("\\PC{0,20}", 0..3),
    ) {
        let metadata = Metadata::new(crate::samples::columns()[..columns].to_vec());
        let rows: Vec<_> = cells.chunks_exact(columns).collect();
        let other_id = [7; 16];
        let known_id = known.map(|same| if same { &metadata.id()[..] } else { &other_id[..] });
        let mut writer = ResponseWriter::new(dialect);
        let mut out = writer.rows(&metadata, skip, known_id);
        for row in &rows {
            for (index, cell) in row.iter().enumerate() {
                match cell {
                    Some(bytes) if index % 2 == 0 => out.cell(bytes),
                    Some(bytes) => out.cell(bytes),
                    None => out.optional(None),
                }
            }
            out.end_row();
        }
        prop_assert_eq!(out.rows() as usize, rows.len());
        if let Some(state) = &paging_state {
            out.set_paging_state(Bytes::copy_from_slice(state));
        }
        for warning in &warnings {
            writer.warn(warning.clone());
        }
        let answer = answer(&writer);
        let AnswerBody::Result(ResultBody::Rows(read)) = answer.body else { panic!("not rows") };
        let changed = dialect.has_metadata_id() && known == Some(false);
        prop_assert_eq!(read.metadata.is_none(), skip && !changed);
        if let Some(read) = &read.metadata {
            prop_assert_eq!(read.columns(), &columns_seen_in(dialect.version)[..columns]);
        }
        prop_assert_eq!(read.new_metadata_id.as_deref(), changed.then_some(&metadata.id()[..]));
        prop_assert_eq!(read.paging_state.as_deref(), paging_state.as_deref());
        let expected: Vec<Vec<_>> = rows.iter().map(|row| row.to_vec()).collect();
        prop_assert_eq!(read.to_vec().expect("whole rows"), expected);
        let seen = if dialect.version >= Version::V4 { warnings.len() } else { 0 };
        prop_assert_eq!(answer.warnings.len(), seen);
    }

    /// Any sequence of messages, cut at any places, comes out whole and in order.
    #[test]
    fn transports_carry_any_sequence(
        version in prop::sample::select(Version::ALL.to_vec()),
        pick in 0_usize..3,
        sizes in prop::collection::vec(prop_oneof![8 => 0_usize..3000, 1 => 100_000_usize..400_000], 1..12),
        packable: bool,
        cuts in prop::collection::vec(1_usize..200_000, 1..10),
    ) {
        let dialect = Dialect::new(version);
        let (mut decoder, mut encoder) = codecs(Direction::Request, version, transports(version)[pick]);
        let mut noise = 0x9E37_79B9_7F4A_7C15_u64;
        let texts: Vec<String> = sizes
            .iter()
            .map(|size| {
                let letters = (0..*size).map(|_| {
                    noise ^= noise << 13;
                    noise ^= noise >> 7;
                    noise ^= noise << 17;
                    if packable { 'x' } else { char::from(b' ' + (noise % 90) as u8) }
                });
                letters.collect()
            })
            .collect();
        let mut writer = RequestWriter::new(dialect);
        for (stream, text) in texts.iter().enumerate() {
            writer.prepare(text, None);
            encoder.push_request(stream as i16, &writer);
        }
        let bytes = encoder.finish().split().freeze();
        let mut rest = &bytes[..];
        let mut input = BytesMut::new();
        let mut read = Vec::new();
        for cut in cuts.iter().cycle() {
            let (now, later) = rest.split_at((*cut).min(rest.len()));
            input.extend_from_slice(now);
            rest = later;
            for envelope in decoder.feed(&mut input) {
                read.push(envelope.expect("a good message"));
            }
            if rest.is_empty() {
                break;
            }
        }
        prop_assert!(input.is_empty());
        prop_assert_eq!(read.len(), texts.len());
        for (stream, (envelope, text)) in read.iter().zip(&texts).enumerate() {
            prop_assert_eq!(envelope.stream, stream as i16);
            let Message::Prepare(prepare) = Request::decode(envelope, dialect).expect("good").message else {
                panic!("not a PREPARE")
            };
            prop_assert_eq!(prepare.text.as_str(), text);
        }
    }
}

#[test]
fn every_message_over_every_transport() {
    for dialect in dialects() {
        for transport in transports(dialect.version) {
            let (mut decoder, mut encoder) = codecs(Direction::Request, dialect.version, transport);
            for request in requests(dialect) {
                encoder.push_request(3, &request);
                let envelopes = decode_all(&mut decoder, &encoder.finish().split());
                assert_eq!(envelopes, [wire::Envelope { stream: 3, ..request_envelope(&request) }]);
                let request = Request::decode(&envelopes[0], dialect).expect("a good request");
                assert!(dialect.version >= Version::V4 || request.custom_payload.is_empty());
            }
            let (mut decoder, mut encoder) = codecs(Direction::Response, dialect.version, transport);
            let responses = responses(dialect);
            for response in &responses {
                encoder.push(-1, response);
            }
            let envelopes = decode_all(&mut decoder, &encoder.finish().split());
            assert_eq!(envelopes.len(), responses.len());
            for (envelope, response) in envelopes.iter().zip(&responses) {
                assert_eq!(envelope.opcode, response.opcode());
                assert_eq!(Answer::decode(envelope, dialect).expect("a good response"), answer(response));
            }
        }
    }
}

#[test]
fn options_tracing_and_payload_come_through() {
    let dialect = Dialect::new(Version::V4);
    let mut writer = RequestWriter::new(dialect);
    writer.set_tracing(true);
    writer.set_custom_payload(&[("a", Some(Bytes::from_static(b"1"))), ("b", None)]);
    writer.startup(&[("CQL_VERSION", "3.4.7"), ("compression", "lz4")]);
    let request = decode(&writer);
    assert!(request.tracing);
    assert_eq!(request.custom_payload.len(), 2);
    assert_eq!(request.custom_payload[1].1, None);
    let Message::Startup(startup) = request.message else { panic!("not a STARTUP") };
    assert_eq!(startup.get("COMPRESSION"), Some("lz4"));
    assert_eq!(startup.get("DRIVER_NAME"), None);
}

#[test]
fn errors_in_every_dialect() {
    for dialect in dialects() {
        for error in errors() {
            let mut writer = ResponseWriter::new(dialect);
            writer.error(&error);
            let AnswerBody::Error(read) = answer(&writer).body else { panic!("not an error") };
            assert_eq!(read.message, error.message);
            assert_eq!(read.kind, seen_error(error.kind, dialect));
        }
    }
}

/// The replacements for older clients, stated independently of the encoder.
fn seen_error(kind: ErrorKind, dialect: Dialect) -> ErrorKind {
    let (v3, v5) = (dialect.version == Version::V3, dialect.version == Version::V5);
    let unnamed = |failures: Vec<_>| vec![([0, 0, 0, 0].into(), 0); failures.len()];
    match kind {
        ErrorKind::ReadFailure { consistency, received, block_for, data_present, .. } if v3 => {
            ErrorKind::ReadTimeout { consistency, received, block_for, data_present }
        }
        ErrorKind::WriteFailure { consistency, received, block_for, write_type, .. } if v3 => {
            ErrorKind::WriteTimeout { consistency, received, block_for, write_type, contentions: 0 }
        }
        ErrorKind::FunctionFailure { .. } | ErrorKind::CdcWriteFailure if v3 => ErrorKind::Invalid,
        ErrorKind::ReadFailure { consistency, received, block_for, failures, data_present } if !v5 => {
            let failures = unnamed(failures);
            ErrorKind::ReadFailure { consistency, received, block_for, failures, data_present }
        }
        ErrorKind::WriteFailure { consistency, received, block_for, failures, write_type } if !v5 => {
            let failures = unnamed(failures);
            ErrorKind::WriteFailure { consistency, received, block_for, failures, write_type }
        }
        ErrorKind::WriteTimeout { consistency, received, block_for, write_type, .. } if !v5 => {
            ErrorKind::WriteTimeout { consistency, received, block_for, write_type, contentions: 0 }
        }
        ErrorKind::CasWriteUnknown { consistency, received, block_for } if !v5 => {
            let write_type = WriteType::Cas;
            ErrorKind::WriteTimeout { consistency, received, block_for, write_type, contentions: 0 }
        }
        ErrorKind::RateLimit { .. } if !dialect.rate_limit_error => ErrorKind::ConfigError,
        other => other,
    }
}

#[test]
fn events_in_every_version() {
    for version in Version::ALL {
        for event in events() {
            let mut writer = ResponseWriter::new(Dialect::new(version));
            writer.event(&event);
            let AnswerBody::Event(read) = answer(&writer).body else { panic!("not an event") };
            let mut expected = event.clone();
            if let wire::Event::Schema(change) = &mut expected
                && version < Version::V4
                && matches!(change.target, SchemaTarget::Function { .. } | SchemaTarget::Aggregate { .. })
            {
                change.change = wire::ChangeType::Updated;
                change.target = SchemaTarget::Keyspace;
            }
            assert_eq!(read, expected);
        }
    }
}

#[test]
fn prepared_statements_in_every_dialect() {
    for dialect in dialects() {
        let mut writer = ResponseWriter::new(dialect);
        writer.prepared(&prepared());
        let AnswerBody::Result(ResultBody::Prepared(read)) = answer(&writer).body else {
            panic!("not prepared")
        };
        assert_eq!(read.metadata.id, prepared().id);
        assert_eq!(read.metadata.bind_markers.columns(), columns_seen_in(dialect.version));
        assert_eq!(read.metadata.result.columns(), columns_seen_in(dialect.version));
        assert_eq!(read.metadata.is_conditional, dialect.lwt_mark);
        let markers: &[u16] = if dialect.version >= Version::V4 { &[2, 0, 1] } else { &[] };
        assert_eq!(read.metadata.partition_key_markers, markers);
        let id = dialect.has_metadata_id().then_some(&prepared().result.id()[..]).map(<[u8]>::to_vec);
        assert_eq!(read.result_metadata_id.map(|id| id.to_vec()), id);
    }
}

#[test]
fn ids_are_stable_and_tell_columns_apart() {
    let metadata = Metadata::new(columns());
    assert_eq!(metadata.id(), Metadata::new(columns()).id());
    assert_ne!(metadata.id(), Metadata::new(columns()[1..].to_vec()).id());
    let mut renamed = columns();
    renamed[3].name = "other".into();
    assert_ne!(metadata.id(), Metadata::new(renamed).id());
    assert_ne!(wire::statement_id("a", "bc"), wire::statement_id("ab", "c"));
    assert_eq!(wire::statement_id("a", "bc"), wire::statement_id("a", "bc"));
}

/// A client that could make a text with the id of another client's would have its own run with the other's rights.
#[test]
fn an_id_cannot_be_made_for_another_text() {
    let wanted = "SELECT balance FROM bank.accounts WHERE id = ?";
    let other = "DELETE FROM bank.accounts WHERE id = ? -- xxxxx7bnlbhu1qrqgyttl\x15p4+k\x11X^\x08\x10>e?<j}";
    assert_ne!(wire::statement_id("", wanted), wire::statement_id("", other));
}

#[test]
fn an_error_after_rows_leaves_no_rows() {
    let mut writer = ResponseWriter::new(Dialect::new(Version::V5));
    let mut rows = writer.rows(&Metadata::new(columns()), false, None);
    rows.cell(b"half a row");
    writer.error(&CqlError::new(ErrorKind::Overloaded, "no"));
    assert_eq!(answer(&writer).body, AnswerBody::Error(CqlError::new(ErrorKind::Overloaded, "no")));
}

#[test]
#[should_panic(expected = "not complete")]
fn half_a_row_is_not_sent() {
    let mut writer = ResponseWriter::new(Dialect::new(Version::V5));
    let mut rows = writer.rows(&Metadata::new(columns()), false, None);
    rows.cell(b"half a row");
    Encoder::new().push(0, &writer);
}

#[test]
fn long_texts_are_cut_at_a_character() {
    let message = "ø".repeat(40_000);
    let mut writer = ResponseWriter::new(Dialect::new(Version::V5));
    writer.error(&CqlError::new(ErrorKind::Invalid, message));
    let AnswerBody::Error(read) = answer(&writer).body else { panic!("not an error") };
    assert_eq!(read.message, "ø".repeat(32_767));
}
