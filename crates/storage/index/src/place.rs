//! Places: where in a table a term is, as bytes in ring order.
//!
//! ```text
//! place := token with its sign flipped (8, big-endian), key with every 0x00 followed by 0xff, 0x00 0x00,
//!          0x00 for the partition | 0x01, byte-comparable clustering
//! ```
//!
//! No place is the beginning of another one.

use bytes::Bytes;
use mutation::{Clustering, DecoratedKey, RingPosition};
use schema::Table;
use types::Terminator;

/// A place is a partition.
const PARTITION: u8 = 0;
/// A place is a row.
const ROW: u8 = 1;

/// Where a term is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// In which partition.
    pub key: DecoratedKey,
    /// In which row; none for the static row, that is in the partition as a whole.
    pub clustering: Option<Clustering>,
}

impl Place {
    /// The order of the ring, and of the rows of a partition; the partition as a whole is before its rows.
    pub(crate) fn cmp_in_ring(&self, other: &Self) -> std::cmp::Ordering {
        let [own, others] = [self, other].map(|place| place.clustering.as_ref().map(Clustering::position));
        self.key.cmp(&other.key).then_with(|| own.cmp(&others))
    }
}

/// Appends the place of a row, or of the partition.
pub(crate) fn encode(key: &DecoratedKey, clustering: Option<&Clustering>, out: &mut Vec<u8>) {
    encode_key(key, out);
    out.extend_from_slice(&[0, 0]);
    match clustering {
        None => out.push(PARTITION),
        Some(clustering) => {
            out.push(ROW);
            out.extend_from_slice(clustering.position());
        }
    }
}

fn encode_key(key: &DecoratedKey, out: &mut Vec<u8>) {
    out.extend_from_slice(&token_bytes(key.token));
    for byte in &key.key {
        out.push(*byte);
        if *byte == 0 {
            out.push(0xff);
        }
    }
}

fn token_bytes(token: i64) -> [u8; 8] {
    (token as u64 ^ 1 << 63).to_be_bytes()
}

/// The bytes that every place before a position of the ring is below, and no other; none when all places are before it.
pub(crate) fn bound(position: &RingPosition) -> Option<Vec<u8>> {
    match position {
        RingPosition::BeforeToken(token) => Some(token_bytes(*token).to_vec()),
        RingPosition::AfterToken(token) => token.checked_add(1).map(|next| token_bytes(next).to_vec()),
        RingPosition::BeforeKey(key) | RingPosition::AfterKey(key) => {
            let mut out = Vec::with_capacity(key.key.len() + 10);
            encode_key(key, &mut out);
            out.extend_from_slice(&[0, u8::from(matches!(position, RingPosition::AfterKey(_)))]);
            Some(out)
        }
    }
}

/// The bytes that every place of a partition before a position in it is below.
pub(crate) fn row_bound(key: &DecoratedKey, position: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.key.len() + position.len() + 12);
    encode_key(key, &mut out);
    out.extend_from_slice(&[0, 0, ROW]);
    out.extend_from_slice(position);
    out
}

/// Takes a place apart; none when it is not one of this table.
pub(crate) fn decode(table: &Table, bytes: &[u8]) -> Option<Place> {
    let (token, mut rest) = bytes.split_first_chunk::<8>()?;
    let mut key = Vec::with_capacity(rest.len());
    loop {
        let (byte, left) = rest.split_first()?;
        rest = left;
        if *byte != 0 {
            key.push(*byte);
            continue;
        }
        let (escape, left) = rest.split_first()?;
        rest = left;
        match escape {
            0xff => key.push(0),
            0 => break,
            _ => return None,
        }
    }
    let key = DecoratedKey::new(Bytes::from(key));
    if token_bytes(key.token) != *token {
        return None;
    }
    let clustering = match rest.split_first()? {
        (&PARTITION, []) => None,
        (&ROW, position) => Some(decode_clustering(table, position)?),
        _ => return None,
    };
    Some(Place { key, clustering })
}

fn decode_clustering(table: &Table, position: &[u8]) -> Option<Clustering> {
    if table.clustering().is_empty() {
        let empty = Clustering::empty();
        return (position == empty.position()).then_some(empty);
    }
    let (components, end) = types::decode_clustering(table.clustering_types(), position).ok()?;
    if end != Terminator::Clustering || components.len() != table.clustering().len() {
        return None;
    }
    let components: Vec<Option<&[u8]>> = components.iter().map(Option::as_deref).collect();
    let clustering = Clustering::new(table, &components);
    (clustering.position() == position).then_some(clustering)
}
