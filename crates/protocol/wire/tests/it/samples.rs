//! One request and one response of every kind, for the tests that go through all of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::{Bytes, BytesMut};
use wire::client::{BatchItem, Parameters, RequestWriter};
use wire::{
    BatchType, ChangeType, ColumnSpec, Compression, Consistency, CqlError, Decoder, Dialect, Direction,
    Encoder, Envelope, ErrorKind, Event, EventType, Framing, Metadata, OperationType, PreparedMetadata,
    ResponseWriter, SchemaChange, SchemaTarget, StatusChange, TopologyChange, TypeOption, Value, Version,
    WriteType,
};

/// Messages up to the default of `native_transport_max_frame_size`.
pub const MESSAGE_LEN_MAX: usize = 16 << 20;

/// Every dialect that changes the layout of a message.
pub fn dialects() -> Vec<Dialect> {
    let mut dialects: Vec<_> = Version::ALL.map(Dialect::new).to_vec();
    let scylla = Dialect {
        metadata_id: true,
        lwt_mark: true,
        rate_limit_error: true,
        tablets_routing: true,
        ..Dialect::new(Version::V4)
    };
    dialects.push(scylla);
    dialects
}

/// Every way in which messages of a version can lie on a connection.
pub fn transports(version: Version) -> Vec<(Framing, Option<Compression>)> {
    if version == Version::V5 {
        vec![(Framing::Bare, None), (Framing::Checksummed, None), (Framing::Lz4, Some(Compression::Lz4))]
    } else {
        let compressions = [None, Some(Compression::Lz4), Some(Compression::Snappy)];
        compressions.map(|compression| (Framing::Bare, compression)).to_vec()
    }
}

/// Decoder and encoder that agreed on a transport.
pub fn codecs(
    direction: Direction,
    version: Version,
    (framing, compression): (Framing, Option<Compression>),
) -> (Decoder, Encoder) {
    let mut decoder = Decoder::new(direction, MESSAGE_LEN_MAX);
    decoder.agree(version, framing, compression);
    let mut encoder = Encoder::new();
    encoder.agree(framing, compression);
    (decoder, encoder)
}

/// Everything that comes out of these bytes, which have to be right and complete.
pub fn decode_all(decoder: &mut Decoder, bytes: &[u8]) -> Vec<Envelope> {
    let mut input = BytesMut::from(bytes);
    let envelopes = decoder.feed(&mut input).map(|envelope| envelope.expect("a good message")).collect();
    assert!(input.is_empty() && !decoder.is_inside_message(), "bytes are left over");
    envelopes
}

/// A request's envelope in its plain form.
pub fn request_envelope(request: &RequestWriter) -> Envelope {
    let mut encoder = Encoder::new();
    encoder.push_request(7, request);
    let mut decoder = Decoder::new(Direction::Request, MESSAGE_LEN_MAX);
    decode_all(&mut decoder, encoder.finish()).pop().expect("one message")
}

/// A response's envelope in its plain form.
pub fn response_envelope(response: &ResponseWriter) -> Envelope {
    let mut encoder = Encoder::new();
    encoder.push(7, response);
    let mut decoder = Decoder::new(Direction::Response, MESSAGE_LEN_MAX);
    decode_all(&mut decoder, encoder.finish()).pop().expect("one message")
}

/// Parameters with everything in them.
pub fn full_parameters<'a>(values: &'a [Value<'a>]) -> Parameters<'a> {
    Parameters {
        skip_metadata: true,
        page_size: Some(5000),
        paging_state: Some(b"where it stopped"),
        serial_consistency: Some(Consistency::LocalSerial),
        timestamp: Some(1_700_000_000_000_000),
        keyspace: Some("ks"),
        now_in_seconds: Some(1_700_000_000),
        ..Parameters::new(Consistency::LocalQuorum, values)
    }
}

/// One request of every kind.
pub fn requests(dialect: Dialect) -> Vec<RequestWriter> {
    let values = [Value::Set(b"key"), Value::Null, Value::Set(b""), Value::Unset];
    let values = if dialect.version >= Version::V4 { &values[..] } else { &values[..3] };
    let full = full_parameters(values);
    let named = Parameters { names: &["a", "b"], ..Parameters::new(Consistency::One, &values[..2]) };
    let items = [BatchItem::Text("INSERT …", values), BatchItem::Prepared(b"0123456789abcdef", &[])];
    let mut writers: Vec<RequestWriter> = Vec::new();
    let mut add = |write: &dyn Fn(&mut RequestWriter)| {
        let mut writer = RequestWriter::new(dialect);
        write(&mut writer);
        writers.push(writer);
    };
    add(&|w| w.startup(&[("CQL_VERSION", "3.0.0"), ("COMPRESSION", "lz4"), ("DRIVER_NAME", "tørc")]));
    add(&|w| w.options());
    add(&|w| w.auth_response(Some(b"\0user\0password")));
    add(&|w| w.auth_response(None));
    add(&|w| w.register(&[EventType::SchemaChange, EventType::StatusChange, EventType::TopologyChange]));
    add(&|w| w.query("SELECT * FROM system.local", &Parameters::new(Consistency::One, &[])));
    add(&|w| w.query("SELECT …", &full));
    add(&|w| w.query("SELECT …", &named));
    add(&|w| w.prepare("SELECT 1", None));
    add(&|w| w.prepare("SELECT 1", Some("ks")));
    add(&|w| w.execute(b"0123456789abcdef", b"fedcba9876543210", &full));
    add(&|w| w.batch(BatchType::Logged, &[], &Parameters::new(Consistency::Any, &[])));
    add(&|w| w.batch(BatchType::Unlogged, &items, &full));
    add(&|w| w.batch(BatchType::Counter, &items[1..], &Parameters::new(Consistency::All, &[])));
    add(&|w| {
        w.set_tracing(true);
        w.set_custom_payload(&[("name", Some(Bytes::from_static(b"value"))), ("null", None)]);
        w.query("SELECT …", &full);
    });
    writers
}

/// Columns of every type.
pub fn columns() -> Vec<ColumnSpec> {
    use TypeOption as T;
    let udt = T::udt("ks", "address", [("street".to_owned(), T::Varchar), ("no".to_owned(), T::Smallint)]);
    let types = vec![
        T::vector("org.apache.cassandra.db.marshal.FloatType", 3),
        T::Ascii,
        T::Bigint,
        T::Blob,
        T::Boolean,
        T::Counter,
        T::Decimal,
        T::Double,
        T::Float,
        T::Int,
        T::Timestamp,
        T::Uuid,
        T::Varchar,
        T::Varint,
        T::Timeuuid,
        T::Inet,
        T::Date,
        T::Time,
        T::Smallint,
        T::Tinyint,
        T::Duration,
        T::list(T::set(T::Int)),
        T::map(T::Date, udt.clone()),
        T::set(T::Duration),
        udt,
        T::tuple([T::Int, T::tuple([]), T::list(T::Blob)]),
    ];
    let column = |(index, ty)| ColumnSpec {
        keyspace: "ks".into(),
        table: "t".into(),
        name: format!("c{index}").into(),
        ty,
    };
    types.into_iter().enumerate().map(column).collect()
}

/// The columns as a client of this version sees them: types that the version lacks are custom.
pub fn columns_seen_in(version: Version) -> Vec<ColumnSpec> {
    fn seen(ty: &TypeOption, version: Version) -> TypeOption {
        use TypeOption as T;
        let class = |name| T::custom(&format!("org.apache.cassandra.db.marshal.{name}"));
        match ty {
            T::Duration if version < Version::V5 => class("DurationType"),
            T::Date if version < Version::V4 => class("SimpleDateType"),
            T::Time if version < Version::V4 => class("TimeType"),
            T::Smallint if version < Version::V4 => class("ShortType"),
            T::Tinyint if version < Version::V4 => class("ByteType"),
            T::List(element) => T::list(seen(element, version)),
            T::Set(element) => T::set(seen(element, version)),
            T::Map(entry) => T::map(seen(&entry.0, version), seen(&entry.1, version)),
            T::Tuple(items) => T::tuple(items.iter().map(|item| seen(item, version))),
            T::Udt(udt) => {
                let fields = udt.fields.iter().map(|(name, ty)| (name.clone(), seen(ty, version)));
                T::udt(udt.keyspace.clone(), udt.name.clone(), fields)
            }
            other => other.clone(),
        }
    }
    let mut columns = columns();
    for column in &mut columns {
        column.ty = seen(&column.ty, version);
    }
    columns
}

/// Every error code with its fields.
pub fn errors() -> Vec<CqlError> {
    let failures =
        vec![(IpAddr::from(Ipv4Addr::new(127, 0, 0, 1)), 0), (IpAddr::from(Ipv6Addr::LOCALHOST), 2)];
    let consistency = Consistency::Quorum;
    let (received, block_for) = (1, 2);
    let text = |text: &str| text.to_owned();
    let kinds = vec![
        ErrorKind::ServerError,
        ErrorKind::ProtocolError,
        ErrorKind::AuthenticationFailed,
        ErrorKind::Unavailable { consistency, required: 2, alive: 1 },
        ErrorKind::Overloaded,
        ErrorKind::IsBootstrapping,
        ErrorKind::TruncateError,
        ErrorKind::WriteTimeout {
            consistency,
            received,
            block_for,
            write_type: WriteType::UnloggedBatch,
            contentions: 0,
        },
        ErrorKind::WriteTimeout {
            consistency: Consistency::Serial,
            received,
            block_for,
            write_type: WriteType::Cas,
            contentions: 3,
        },
        ErrorKind::ReadTimeout { consistency, received, block_for, data_present: true },
        ErrorKind::ReadFailure {
            consistency,
            received,
            block_for,
            failures: failures.clone(),
            data_present: false,
        },
        ErrorKind::FunctionFailure {
            keyspace: text("ks"),
            function: text("f"),
            arguments: vec![text("int"), text("frozen<list<text>>")],
        },
        ErrorKind::WriteFailure {
            consistency,
            received,
            block_for,
            failures,
            write_type: WriteType::BatchLog,
        },
        ErrorKind::CdcWriteFailure,
        ErrorKind::CasWriteUnknown { consistency: Consistency::LocalSerial, received, block_for },
        ErrorKind::SyntaxError,
        ErrorKind::Unauthorized,
        ErrorKind::Invalid,
        ErrorKind::ConfigError,
        ErrorKind::AlreadyExists { keyspace: text("ks"), table: text("t") },
        ErrorKind::Unprepared { id: Bytes::from_static(b"0123456789abcdef") },
        ErrorKind::RateLimit { operation: OperationType::Write, rejected_by_coordinator: true },
    ];
    kinds.into_iter().map(|kind| CqlError::new(kind, "what was wrong, and what to do")).collect()
}

/// Every kind of event.
pub fn events() -> Vec<Event> {
    let address = SocketAddr::from(([127, 0, 0, 1], 9042));
    let function = || SchemaTarget::Function { name: "f".into(), arguments: vec!["int".into()] };
    let aggregate = || SchemaTarget::Aggregate { name: "a".into(), arguments: vec![] };
    let schema = |change, target| Event::Schema(SchemaChange { change, keyspace: "ks".into(), target });
    vec![
        Event::Topology { change: TopologyChange::NewNode, address },
        Event::Topology { change: TopologyChange::RemovedNode, address },
        Event::Topology { change: TopologyChange::MovedNode, address },
        Event::Status { change: StatusChange::Up, address },
        Event::Status {
            change: StatusChange::Down,
            address: SocketAddr::new(IpAddr::from(Ipv6Addr::LOCALHOST), 65_535),
        },
        schema(ChangeType::Created, SchemaTarget::Keyspace),
        schema(ChangeType::Updated, SchemaTarget::Table("t".into())),
        schema(ChangeType::Dropped, SchemaTarget::Type("address".into())),
        schema(ChangeType::Created, function()),
        schema(ChangeType::Dropped, aggregate()),
    ]
}

/// The answer to PREPARE for a conditional statement.
pub fn prepared() -> PreparedMetadata {
    PreparedMetadata {
        id: wire::statement_id("ks", "SELECT …"),
        bind_markers: Metadata::new(columns()),
        partition_key_markers: vec![2, 0, 1],
        result: Metadata::new(columns()),
        is_conditional: true,
    }
}

/// One response of every kind.
pub fn responses(dialect: Dialect) -> Vec<ResponseWriter> {
    let mut writers: Vec<ResponseWriter> = Vec::new();
    let mut add = |write: &dyn Fn(&mut ResponseWriter)| {
        let mut writer = ResponseWriter::new(dialect);
        write(&mut writer);
        writers.push(writer);
    };
    add(&|w| w.ready());
    add(&|w| w.authenticate("org.apache.cassandra.auth.PasswordAuthenticator"));
    add(&|w| w.auth_challenge(Some(b"challenge")));
    add(&|w| w.auth_success(None));
    add(&|w| w.supported(&[("COMPRESSION".into(), vec!["lz4".into(), "snappy".into()])]));
    add(&|w| w.void());
    add(&|w| w.set_keyspace("ks"));
    add(&|w| w.prepared(&prepared()));
    add(&|w| w.prepared(&PreparedMetadata { result: Metadata::none(), ..prepared() }));
    for error in errors() {
        add(&|w| w.error(&error));
    }
    for event in events() {
        add(&|w| w.event(&event));
        if let Event::Schema(change) = &event {
            add(&|w| w.schema_change(change));
        }
    }
    add(&|w| {
        let mut rows = w.rows(&Metadata::new(columns()[..3].to_vec()), false, None);
        for row in 0_u32..10 {
            rows.cell(&row.to_be_bytes());
            rows.null();
            rows.cell(b"");
            rows.end_row();
        }
        rows.set_paging_state(Bytes::from_static(b"next"));
        w.set_tracing_id([9; 16]);
        w.warn("slow");
        w.warn("large");
        w.add_custom_payload("tablets-routing-v1", Bytes::from_static(b"\0\x01"));
    });
    add(&|w| {
        w.rows(&Metadata::new(columns()), true, None);
    });
    writers
}
