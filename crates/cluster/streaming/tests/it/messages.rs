//! Messages come back as they were written; other bytes are refused without a panic.

use bytes::Bytes;
use proptest::prelude::*;
use streaming::transfer::{
    Chunk, Close, CodecError, Item, ItemKind, Open, OpenAnswer, Plan, Position, TransferId,
};

fn bytes(len_max: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..len_max).prop_map(Bytes::from)
}

fn items() -> impl Strategy<Value = Item> {
    let kinds = prop_oneof![Just(ItemKind::File), Just(ItemKind::Rows)];
    (kinds, prop::option::of(0..1u64 << 40), bytes(30)).prop_map(|(kind, length, descriptor)| Item {
        kind,
        length,
        descriptor,
    })
}

prop_compose! {
    fn plans()(id in any::<[u8; 16]>(), purpose in bytes(30), items in prop::collection::vec(items(), 0..10)) -> Plan {
        Plan::new(TransferId(id), purpose, items).unwrap()
    }
}

prop_compose! {
    fn positions()(item in any::<u32>(), offset in any::<u64>(), cursor in bytes(40)) -> Position {
        Position { item, offset, cursor }
    }
}

prop_compose! {
    fn chunks()(
        id in any::<[u8; 16]>(),
        item in any::<u32>(),
        offset in any::<u64>(),
        last in any::<bool>(),
        cursor in bytes(40),
        data in bytes(300),
    ) -> Chunk {
        Chunk { transfer: TransferId(id), item, offset, last, cursor, data }
    }
}

proptest! {
    #[test]
    fn messages_come_back(plan in plans(), resume in positions(), window in any::<u32>(), chunk in chunks()) {
        let close = Close { transfer: plan.id(), complete: chunk.last };
        prop_assert_eq!(Close::decode(&close.encode()), Ok(close));
        let open = Open { plan };
        prop_assert_eq!(Open::decode(&open.encode()), Ok(open.clone()));
        let answer = OpenAnswer { resume, window };
        prop_assert_eq!(OpenAnswer::decode(&answer.encode()), Ok(answer));
        prop_assert_eq!(Chunk::decode(&chunk.encode()), Ok(chunk));
    }

    #[test]
    fn a_message_that_is_cut_is_none(plan in plans(), chunk in chunks(), at in any::<prop::sample::Index>()) {
        let open = Open { plan }.encode();
        prop_assert!(Open::decode(&open[..at.index(open.len())]).is_err());
        let chunk = chunk.encode();
        prop_assert!(Chunk::decode(&chunk.slice(..at.index(chunk.len()))).is_err());
    }

    #[test]
    fn every_changed_bit_of_a_chunk_is_seen(chunk in chunks(), at in any::<prop::sample::Index>()) {
        let mut bytes = chunk.encode().to_vec();
        let bit = at.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Chunk::decode(&Bytes::from(bytes)).is_err(), "bit {}", bit);
    }

    #[test]
    fn noise_is_refused(mut noise in prop::collection::vec(any::<u8>(), 0..200), version in any::<bool>()) {
        if version && !noise.is_empty() {
            noise[0] = 1;
        }
        let noise = Bytes::from(noise);
        // The test is that nothing panics and that no memory is allocated for lengths beyond the message.
        let _ = (Open::decode(&noise), OpenAnswer::decode(&noise), Close::decode(&noise));
        prop_assert!(Chunk::decode(&noise).is_err(), "noise has no checksum");
    }
}

#[test]
fn lengths_are_held_against_limits() {
    let mut open = vec![1];
    open.extend_from_slice(&[0; 16]);
    open.extend_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(Open::decode(&open), Err(CodecError::Field("the purpose is too long")));
    let mut open = vec![1];
    open.extend_from_slice(&[0; 20]);
    open.extend_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(Open::decode(&open), Err(CodecError::Field("too many items")));
    assert_eq!(Close::decode(&[2]), Err(CodecError::Version(2)));
}
