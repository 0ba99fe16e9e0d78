//! Searches for the nearest vectors as bytes.

use bytes::Bytes;
use proptest::prelude::*;
use replica::nearest_codec::{decode_candidates, decode_query, encode_candidates, encode_query};
use replica::{Candidate, Candidates, NearestQuery, NearestTo, Place, TextStatistics};
use schema::TableId;
use testkit::data::{clustering, table};

use crate::key;

fn candidates() -> impl Strategy<Value = Candidates> {
    let place = (any::<i32>(), prop::option::of(any::<i32>()));
    let place =
        place.prop_map(|(k, c)| Place { key: key(k), clustering: c.map(|c| clustering(&table(), c)) });
    let candidate = (place, 0_f32..1.0).prop_map(|(place, closeness)| Candidate { place, closeness });
    let figures = (any::<u64>(), any::<u64>(), prop::collection::vec(any::<u64>(), 0..4));
    let figures = prop::option::of(figures).prop_map(|figures| match figures {
        None => TextStatistics::default(),
        Some((texts, terms, with_leaf)) => TextStatistics { texts, terms, with_leaf },
    });
    let all = (prop::collection::vec(candidate, 0..8), figures);
    all.prop_map(|(places, statistics)| Candidates { places, statistics })
}

proptest! {
    #[test]
    fn queries_come_back(name in "[a-zé_]{0,20}", vector in prop::collection::vec(any::<f32>(), 0..20), count in 0_usize..5_000) {
        prop_assume!(vector.iter().all(|one| !one.is_nan()));
        for to in [NearestTo::Vector(vector), NearestTo::Text(name.clone())] {
            let query = NearestQuery { index: name.clone(), to, count };
            let mut bytes = Vec::new();
            encode_query(TableId([7; 16]), &query, &mut bytes);
            prop_assert_eq!(decode_query(&bytes), Some((TableId([7; 16]), query)));
            prop_assert_eq!(decode_query(&bytes[..bytes.len() - 1]), None);
        }
    }

    #[test]
    fn candidates_come_back(candidates in candidates(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut bytes = Vec::new();
        encode_candidates(&candidates, &mut bytes);
        prop_assert_eq!(decode_candidates(&Bytes::from(bytes.clone()), &table()), Some(candidates));
        let at = at.index(bytes.len());
        bytes[at] = to;
        // The changed bytes are decoded or refused.
        let _ = decode_candidates(&Bytes::from(bytes.clone()), &table());
        bytes.truncate(at);
        prop_assert_eq!(decode_candidates(&Bytes::from(bytes), &table()), None);
    }

    #[test]
    fn no_bytes_are_more_than_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = decode_query(&bytes);
        let _ = decode_candidates(&Bytes::from(bytes), &table());
    }
}

#[test]
fn the_nearest_of_each_place_are_kept() {
    let at = |k, closeness| Candidate { place: Place { key: key(k), clustering: None }, closeness };
    let mut candidates = vec![at(1, 0.2), at(2, 0.9), at(1, 0.7), at(3, 0.1)];
    Candidate::keep_nearest(&mut candidates, 2);
    assert_eq!(candidates, [at(2, 0.9), at(1, 0.7)]);
}
