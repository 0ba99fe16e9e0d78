//! Round trips, and bytes that are none.

use mutation::row::ColumnData;
use mutation::{Cell, Clustering, Row};
use proptest::prelude::*;
use schema::TableBuilder;
use types::CqlType;

use super::*;

fn table() -> Arc<Table> {
    TableBuilder::new("ks", "t", TableId([7; 16]))
        .partition_key("k", CqlType::Blob)
        .regular("v", CqlType::Blob)
        .build_known()
}

fn key() -> DecoratedKey {
    DecoratedKey::new(Bytes::from_static(b"key"))
}

fn update(value: &[u8], timestamp: i64) -> PartitionUpdate {
    let table = table();
    let mut row = Row::new(Clustering::empty());
    let cell = Cell::live(timestamp, Bytes::copy_from_slice(value));
    row.set(table.column("v").unwrap().id, ColumnData::Simple(cell));
    let mut update = PartitionUpdate::new(table, key());
    update.add_row(row);
    update
}

fn ballots() -> impl Strategy<Value = Ballot> {
    (any::<i64>(), any::<u64>()).prop_map(|(micros, node)| Ballot { micros, node })
}

fn proposals() -> impl Strategy<Value = Proposal<super::Value>> {
    let value = proptest::option::of((proptest::collection::vec(any::<u8>(), 0..40), 1..i64::MAX));
    (ballots(), ballots(), proptest::collection::vec(ballots(), 0..=AFTER_MAX), value).prop_map(
        |(ballot, id, after, value)| Proposal {
            ballot,
            id,
            after,
            value: value.map(|(value, at)| Arc::new(update(&value, at))),
        },
    )
}

fn replies() -> impl Strategy<Value = Reply<super::Value>> {
    let optional = || proptest::option::of(proposals());
    prop_oneof![
        (optional(), optional()).prop_map(|(accepted, committed)| Reply::Promised { accepted, committed }),
        Just(Reply::Accepted),
        Just(Reply::Committed),
        ballots().prop_map(|promised| Reply::Refused { promised }),
    ]
}

fn requests() -> impl Strategy<Value = (RequestKind, Request<super::Value>)> {
    prop_oneof![
        ballots().prop_map(|ballot| (RequestKind::Prepare, Request::Prepare(ballot))),
        proposals().prop_map(|proposal| (RequestKind::Propose, Request::Propose(proposal))),
        proposals().prop_map(|proposal| (RequestKind::Commit, Request::Commit(proposal))),
        proposals().prop_map(|proposal| (RequestKind::Commit, Request::Repair(proposal))),
    ]
}

/// Two values are the same when their bytes are.
fn shown(request: &Request<super::Value>) -> Bytes {
    encode_request(table().id, &key(), request)
}

proptest! {
    #[test]
    fn encoded_messages_are_decoded((kind, request) in requests(), reply in replies(), stored in proposals()) {
        let body = encode_request(table().id, &key(), &request);
        let (of, at, read) = decode_request(kind, &body, |_| Some(table())).unwrap();
        prop_assert_eq!((of.id, at), (table().id, key()));
        prop_assert_eq!(shown(&read), body);
        let (table, key) = (table(), key());
        let place = Place { table: &table, key: &key };
        let body = encode_reply(&reply);
        prop_assert_eq!(encode_reply(&place.reply(&body).unwrap()), body);
        let mut bytes = Vec::new();
        put_proposal(&stored, &mut bytes);
        let read: Proposal<Value> = place.stored(&Bytes::from(bytes.clone())).unwrap();
        let mut again = Vec::new();
        put_proposal(&read, &mut again);
        prop_assert_eq!(&again, &bytes);
        let unread: Proposal<EncodedValue> = place.stored(&Bytes::from(bytes.clone())).unwrap();
        again.clear();
        put_proposal(&unread, &mut again);
        prop_assert_eq!(again, bytes);
    }

    #[test]
    fn hostile_bytes_are_errors(
        (kind, request) in requests(),
        reply in replies(),
        cut in any::<prop::sample::Index>(),
        noise in proptest::collection::vec(any::<u8>(), 0..80),
        flip in any::<(prop::sample::Index, u8)>(),
    ) {
        let (table, key) = (table(), key());
        let place = Place { table: &table, key: &key };
        let find = |_| Some(table.clone());
        let messages = [encode_request(table.id, &key, &request), encode_reply(&reply)];
        // A part of a reply may be a request, by chance, and of a request a reply.
        let [short_request, short_reply] = messages.each_ref().map(|body| body.slice(..cut.index(body.len())));
        prop_assert!(decode_request(kind, &short_request, find).is_err());
        prop_assert!(place.reply(&short_reply).is_err());
        // Of noise some is a message, by chance.
        for body in messages.into_iter().chain((!noise.is_empty()).then(|| noise.into())) {
            let mut changed = body.to_vec();
            changed[flip.0.index(body.len())] ^= flip.1;
            let changed = Bytes::from(changed);
            let _ = decode_request(kind, &changed, find);
            let _ = place.reply(&changed);
            let _ = place.stored::<Value>(&changed);
            let _ = place.stored::<EncodedValue>(&changed);
        }
    }
}

#[test]
fn a_write_of_another_partition_is_refused() {
    let (table, other) = (table(), DecoratedKey::new(Bytes::from_static(b"other")));
    let ballot = Ballot { micros: 1, node: 1 };
    let value = Some(Arc::new(update(b"x", 1)));
    let proposal = Proposal { ballot, id: ballot, after: Vec::new(), value };
    let body = encode_request(table.id, &other, &Request::Commit(proposal));
    let read = decode_request(RequestKind::Commit, &body, |_| Some(table.clone()));
    assert!(matches!(read, Err(CodecError::Update(_))));
    let missing = decode_request(RequestKind::Commit, &body, |_| None);
    assert_eq!(missing.err(), Some(CodecError::UnknownTable(table.id)));
}
