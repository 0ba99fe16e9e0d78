//! Entries as bytes: decoding gives the encoded entry.

use bytes::Bytes;
use commitlog::entry::{Checkpoint, encode_received, encode_updates, updates};
use commitlog::segment::NUMBER_MAX;
use mutation::codec::{self, Version, decode_update, decode_updates};
use proptest::prelude::*;
use schema::TableId;
use testkit::updates::{TABLE, is_same, table, update};

proptest! {
    #[test]
    fn updates_come_back(list in prop::collection::vec(update(), 1..4)) {
        let mut body = Vec::new();
        encode_updates(&list, &mut body);
        let body = Bytes::from(body);
        let parts: Vec<Bytes> = updates(&body).unwrap().map(|part| part.unwrap().1).collect();
        prop_assert_eq!(parts.len(), list.len());
        for (part, update) in parts.iter().zip(&list) {
            let read = decode_update(Version::V1, part, |id| (id == TABLE).then(table)).unwrap().unwrap();
            prop_assert!(is_same(&read, update), "{:?} {:?}", read, update);
        }
    }

    #[test]
    fn received_updates_are_the_entry_that_would_be_encoded(list in prop::collection::vec(update(), 1..4)) {
        let (mut encoded, mut run, mut received) = (Vec::new(), Vec::new(), Vec::new());
        encode_updates(&list, &mut encoded);
        codec::encode_updates(&list, &mut run);
        let run = decode_updates(&Bytes::from(run), None, |_| Some(table())).unwrap();
        encode_received(&run.encoded.unwrap(), &mut received);
        prop_assert_eq!(received, encoded);
    }

    #[test]
    fn checkpoints_come_back(
        flushed in prop::collection::btree_map(any::<[u8; 16]>().prop_map(TableId), 0..=NUMBER_MAX, 0..5),
        tails in prop::collection::btree_map(any::<u64>(), 0..=NUMBER_MAX, 0..3),
    ) {
        let checkpoint = Checkpoint { flushed, tails };
        let mut body = Vec::new();
        checkpoint.encode(&mut body);
        prop_assert_eq!(Checkpoint::decode(&body), Some(checkpoint));
        prop_assert!(updates(&Bytes::from(body)).is_none());
    }
}

#[test]
fn numbers_that_no_log_reaches_are_none() {
    let mut body = Vec::new();
    Checkpoint { flushed: [(TableId([7; 16]), u64::MAX)].into(), ..Checkpoint::default() }.encode(&mut body);
    assert_eq!(Checkpoint::decode(&body), None);
}
