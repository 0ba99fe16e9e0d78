//! Messages as bytes, put together by hand from the specification's layouts.

use bytes::{Bytes, BytesMut};
use wire::client::{BatchItem, Parameters, RequestWriter};
use wire::{
    BatchType, ColumnSpec, Consistency, CqlError, Dialect, Encoder, ErrorKind, Framing, Metadata,
    PreparedMetadata, ResponseWriter, TypeOption, Value, Version,
};

fn request(version: Version, write: impl FnOnce(&mut RequestWriter)) -> BytesMut {
    let mut writer = RequestWriter::new(Dialect::new(version));
    write(&mut writer);
    let mut encoder = Encoder::new();
    encoder.push_request(1, &writer);
    encoder.finish().split()
}

fn response(version: Version, write: impl FnOnce(&mut ResponseWriter)) -> BytesMut {
    let mut writer = ResponseWriter::new(Dialect::new(version));
    write(&mut writer);
    let mut encoder = Encoder::new();
    encoder.push(1, &writer);
    encoder.finish().split()
}

/// Bytes from hexadecimal digits, with words in quotes taken as they are; `~` is the length of all that follows it.
fn bytes(text: &str) -> Vec<u8> {
    if let Some((before, after)) = text.split_once('~') {
        let after = bytes(after);
        let len = u32::try_from(after.len()).expect("short");
        return [bytes(before), len.to_be_bytes().to_vec(), after].concat();
    }
    let mut out = Vec::new();
    for (index, part) in text.split('\'').enumerate() {
        if index % 2 == 1 {
            out.extend_from_slice(part.as_bytes());
            continue;
        }
        let digits: String = part.split_whitespace().collect();
        for at in (0..digits.len()).step_by(2) {
            out.push(u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal"));
        }
    }
    out
}

#[track_caller]
fn check(written: &[u8], expected: &str) {
    assert_eq!(written, bytes(expected), "written {written:02x?}");
}

#[test]
fn requests_of_each_version() {
    check(
        &request(Version::V4, |w| w.startup(&[("CQL_VERSION", "3.0.0")])),
        "04 00 0001 01 ~  0001 000b'CQL_VERSION' 0005'3.0.0'",
    );
    check(&request(Version::V5, |w| w.options()), "05 00 0001 05 ~");
    let parameters = Parameters { page_size: Some(100), ..Parameters::new(Consistency::One, &[Value::Null]) };
    check(
        &request(Version::V3, |w| w.query("Q", &parameters)),
        "03 00 0001 07 ~  00000001'Q' 0001 05 0001 ffffffff 00000064",
    );
    let parameters = Parameters {
        keyspace: Some("k"),
        now_in_seconds: Some(9),
        timestamp: Some(-1),
        ..Parameters::new(Consistency::Quorum, &[Value::Unset, Value::Set(b"ab")])
    };
    check(
        &request(Version::V5, |w| w.execute(b"id", b"mid", &parameters)),
        "05 00 0001 0a ~  0002'id' 0003'mid' 0004 000001a1
         0002 fffffffe 00000002'ab' ffffffffffffffff 0001'k' 00000009",
    );
    check(
        &request(Version::V5, |w| w.prepare("P", Some("ks"))),
        "05 00 0001 09 ~  00000001'P' 00000001 0002'ks'",
    );
    check(&request(Version::V4, |w| w.prepare("P", Some("ks"))), "04 00 0001 09 ~  00000001'P'");
    let serial = Parameters {
        serial_consistency: Some(Consistency::Serial),
        ..Parameters::new(Consistency::LocalOne, &[])
    };
    let items = [BatchItem::Text("A", &[Value::Set(b"x")]), BatchItem::Prepared(b"id", &[])];
    check(
        &request(Version::V4, |w| w.batch(BatchType::Unlogged, &items, &serial)),
        "04 00 0001 0d ~  01 0002 00 00000001'A' 0001 00000001'x' 01 0002'id' 0000 000a 10 0008",
    );
}

#[test]
fn results() {
    check(&response(Version::V4, |w| w.void()), "84 00 0001 08 ~  00000001");
    let column = |table: &str, name: &str, ty| ColumnSpec {
        keyspace: "k".into(),
        table: table.into(),
        name: name.into(),
        ty,
    };
    let metadata = Metadata::new(vec![
        column("t", "a", TypeOption::Int),
        column("t", "b", TypeOption::list(TypeOption::Duration)),
    ]);
    let rows = |w: &mut ResponseWriter| {
        let mut rows = w.rows(&metadata, false, None);
        rows.cell(&[0, 0, 0, 1]);
        rows.null();
        rows.end_row();
        rows.set_paging_state(Bytes::from_static(b"ps"));
        w.warn("w");
        w.set_tracing_id([0xAB; 16]);
    };
    check(
        &response(Version::V5, rows),
        "85 0a 0001 08 ~  abababababababababababababababab 0001 0001'w'
         00000002 00000003 00000002 00000002'ps' 0001'k' 0001't' 0001'a' 0009 0001'b' 0020 0015
         00000001 00000004 00000001 ffffffff",
    );
    let two_tables = Metadata::new(vec![
        column("t", "a", TypeOption::Tinyint),
        column("u", "b", TypeOption::tuple([TypeOption::Varchar])),
    ]);
    check(
        &response(Version::V4, |w| _ = w.rows(&two_tables, false, None)),
        "84 00 0001 08 ~  00000002 00000000 00000002
         0001'k' 0001't' 0001'a' 0014 0001'k' 0001'u' 0001'b' 0031 0001 000d 00000000",
    );
    check(
        &response(Version::V4, |w| _ = w.rows(&two_tables, true, None)),
        "84 00 0001 08 ~  00000002 00000004 00000002 00000000",
    );
    let prepared = PreparedMetadata {
        id: Bytes::from_static(b"id"),
        bind_markers: Metadata::new(vec![column("t", "a", TypeOption::Int)]),
        partition_key_markers: vec![0],
        result: Metadata::none(),
        is_conditional: true,
    };
    check(
        &response(Version::V4, |w| w.prepared(&prepared)),
        "84 00 0001 08 ~  00000004 0002'id' 00000001 00000001 00000001 0000
         0001'k' 0001't' 0001'a' 0009  00000004 00000000",
    );
    check(
        &response(Version::V3, |w| w.prepared(&prepared)),
        "83 00 0001 08 ~  00000004 0002'id' 00000001 00000001
         0001'k' 0001't' 0001'a' 0009  00000004 00000000",
    );
}

#[test]
fn errors() {
    let unavailable = ErrorKind::Unavailable { consistency: Consistency::EachQuorum, required: 3, alive: 2 };
    check(
        &response(Version::V4, |w| w.error(&CqlError::new(unavailable, "no"))),
        "84 00 0001 00 ~  00001000 0002'no' 0007 00000003 00000002",
    );
    let failure = ErrorKind::ReadFailure {
        consistency: Consistency::One,
        received: 0,
        block_for: 1,
        failures: vec![([127, 0, 0, 1].into(), 3)],
        data_present: false,
    };
    let error = CqlError::new(failure, "no");
    check(
        &response(Version::V5, |w| w.error(&error)),
        "85 00 0001 00 ~  00001300 0002'no' 0001 00000000 00000001 00000001 04 7f000001 0003 00",
    );
    check(
        &response(Version::V4, |w| w.error(&error)),
        "84 00 0001 00 ~  00001300 0002'no' 0001 00000000 00000001 00000001 00",
    );
}

#[test]
fn version_refusals() {
    let text = "Invalid or unsupported protocol version (6); supported versions are (3/v3, 4/v4, 5/v5)";
    let mut out = BytesMut::new();
    wire::put_version_refusal(6, 2, &mut out);
    check(&out, &format!("85 00 0002 00 ~  0000000a 0056'{text}'"));
    let mut out = BytesMut::new();
    wire::put_version_refusal(2, 5, &mut out);
    check(&out, &format!("82 00 05 00 ~  0000000a 0056'{}'", text.replace("(6)", "(2)")));
}

#[test]
fn a_checksummed_frame() {
    let mut writer = RequestWriter::new(Dialect::new(Version::V5));
    writer.options();
    let mut encoder = Encoder::new();
    encoder.agree(Framing::Checksummed, None);
    encoder.push_request(1, &writer);
    encoder.push_request(2, &writer);
    // 18 bytes of payload, self-contained: the 17 low bits are the length, the next one the mark.
    let frame = encoder.finish().split();
    assert_eq!(frame.len(), 6 + 18 + 4);
    check(&frame[..3], "120002");
    check(&frame[6..24], "05 00 0001 05 00000000 05 00 0002 05 00000000");
    let mut checked = vec![0xFA, 0x2D, 0x55, 0xCA];
    checked.extend_from_slice(&frame[6..24]);
    assert_eq!(frame[24..], crc32fast::hash(&checked).to_le_bytes());
}
