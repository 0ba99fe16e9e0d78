//! Requests and answers as bytes: encoded values are decoded again, and no bytes make a decoder panic.

use bytes::Bytes;
use proptest::prelude::*;
use repair::bits::Bits;
use repair::codec::{decode_answer, decode_request, encode_answer, encode_request};
use repair::message::{Answer, Ask, Request, Summary};
use repair::{Scope, Slice};
use replica::{PartitionResult, Resume};
use testkit::data::{clustering, table, update};
use topology::TokenRange;

fn place() -> impl Strategy<Value = Option<Resume>> {
    prop::option::of((any::<i32>(), prop::option::of(any::<i32>()))).prop_map(|place| {
        place.map(|(k, c)| Resume {
            key: mutation::DecoratedKey::new(Bytes::copy_from_slice(&k.to_be_bytes())),
            clustering: c.map(|c| clustering(&table(), c)),
            rows_in_partition: 0,
        })
    })
}

fn numbers() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(any::<u64>(), 0..5)
}

fn updates() -> impl Strategy<Value = Vec<mutation::PartitionUpdate>> {
    let kept = |update: mutation::PartitionUpdate| {
        let mut result = PartitionResult::from_update(update, false);
        result.rows.retain(|row| !row.is_empty());
        result.into_update(&table(), false)
    };
    prop::collection::vec(update(table()).prop_map(kept), 0..3)
}

fn ask() -> impl Strategy<Value = Ask> {
    prop_oneof![
        any::<u32>().prop_map(|bytes_max| Ask::Summary { bytes_max }),
        (place(), 0u32..10).prop_map(|(upto, bits)| Ask::Sums { upto, buckets: 1 << bits }),
        (place(), 0u32..10, any::<u32>()).prop_map(|(upto, bits, one)| {
            let mut which = Bits::none(1 << bits);
            which.set(one % (1 << bits));
            Ask::Contents { upto, buckets: 1 << bits, which }
        }),
        (place(), numbers()).prop_map(|(upto, contents)| Ask::Fetch { upto, contents }),
        (place(), updates()).prop_map(|(upto, updates)| Ask::Push { upto, updates }),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let numbers = (any::<u32>(), any::<u32>(), any::<u64>());
    let base = prop::option::of((any::<u64>(), any::<u64>()))
        .prop_map(|base| base.map(|(epoch, number)| replica::RepairedWatermark { epoch, number }));
    (any::<i64>(), any::<i64>(), 0u16..9, (numbers, base), place(), ask()).prop_filter_map(
        "a range",
        |(a, b, number, ((now, gc_before, seed), base), after, ask)| {
            let range = TokenRange { after: a.min(b), upto: a.max(b) };
            let slice = Slice { number, of: number + 1 };
            (a != b).then(|| Request {
                scope: Scope { table: table(), range, slice, now, gc_before, seed },
                after,
                base,
                ask,
            })
        },
    )
}

fn answer() -> impl Strategy<Value = Answer> {
    let partitions = |updates: Vec<mutation::PartitionUpdate>| {
        updates.into_iter().map(|update| PartitionResult::from_update(update, false)).collect()
    };
    prop_oneof![
        (place(), any::<u64>(), any::<u64>()).prop_map(|(end, elements, sum)| Answer::Summary(Summary {
            end,
            elements,
            sum
        })),
        numbers().prop_map(Answer::Numbers),
        updates().prop_map(move |updates| Answer::Partitions(partitions(updates))),
        updates().prop_map(Answer::Hidden),
    ]
}

proptest! {
    #[test]
    fn requests_come_back(request in request()) {
        let mut bytes = Vec::new();
        encode_request(&request, &mut bytes);
        let bytes = Bytes::from(bytes);
        let back = decode_request(&bytes, |_| Some(table())).expect("it was written here");
        prop_assert_eq!(format!("{back:?}"), format!("{request:?}"));
        prop_assert!(decode_request(&bytes, |_| None).is_err(), "an unknown table");
        for len in 0..bytes.len() {
            prop_assert!(decode_request(&bytes.slice(..len), |_| Some(table())).is_err(), "cut at {}", len);
        }
    }

    #[test]
    fn answers_come_back(answer in answer()) {
        let mut bytes = Vec::new();
        encode_answer(&table(), answer.clone(), &mut bytes);
        let bytes = Bytes::from(bytes);
        let back = decode_answer(&table(), &bytes).expect("it was written here");
        prop_assert_eq!(format!("{back:?}"), format!("{answer:?}"));
        for len in 0..bytes.len() {
            prop_assert!(decode_answer(&table(), &bytes.slice(..len)).is_err(), "cut at {}", len);
        }
    }

    #[test]
    fn no_damage_panics(request in request(), answer in answer(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut bytes = Vec::new();
        encode_request(&request, &mut bytes);
        let place = at.index(bytes.len());
        bytes[place] = to;
        let _ = decode_request(&bytes.into(), |_| Some(table()));
        let mut bytes = Vec::new();
        encode_answer(&table(), answer, &mut bytes);
        let place = at.index(bytes.len());
        bytes[place] = to;
        let _ = decode_answer(&table(), &bytes.into());
    }

    #[test]
    fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 2..200), kind in 0u8..6) {
        bytes[0] = 2;
        bytes[1] = kind;
        let bytes = Bytes::from(bytes);
        let _ = decode_request(&bytes, |_| Some(table()));
        let _ = decode_answer(&table(), &bytes);
    }
}
