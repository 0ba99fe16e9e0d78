//! The short exchange between nodes that know the same lives, which is nearly always: versions in the order of host ids instead of
//! digests, and heartbeats by their place in that order instead of news.
//!
//! Both sides compare a fingerprint of the generations in a range of host ids. Where it differs, full digests follow.

use std::net::SocketAddr;

use stdx::murmur3;

use crate::codec::MESSAGE_HEAD_BYTES_MAX;
use crate::exchange::{self, FIRST, LAST};
use crate::{Delta, Endpoint, Message, Roster};

/// At most so many bytes for an endpoint, in each message of the short exchange: a step of up to three bytes, and a version.
const PLACE_BYTES_MAX: usize = 3 + 9;

/// A place in a roster, and a version.
pub(crate) type Place = (u32, u64);

/// A generation as a number: host, start, address. Two have the same one by chance once in 2^64.
pub(crate) fn life(endpoint: &Endpoint) -> u64 {
    let mut bytes = [0; 16 + 8 + 1 + 16 + 2];
    bytes[..16].copy_from_slice(&endpoint.host.0);
    bytes[16..24].copy_from_slice(&endpoint.generation.to_be_bytes());
    match endpoint.address {
        SocketAddr::V4(v4) => {
            bytes[24] = 4;
            bytes[25..29].copy_from_slice(&v4.ip().octets());
        }
        SocketAddr::V6(v6) => {
            bytes[24] = 6;
            bytes[25..41].copy_from_slice(&v6.ip().octets());
        }
    }
    bytes[41..].copy_from_slice(&endpoint.address.port().to_be_bytes());
    murmur3::hash128(&bytes, 0)[0]
}

/// The known endpoints of a range of host ids, ascending: their generations, and the version of each.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) life: u64,
    pub(crate) version: u64,
}

/// The fingerprint of the lives of a range.
pub(crate) fn fingerprint(known: &[Known<'_>]) -> u64 {
    let mut hash = known.len() as u64;
    for endpoint in known {
        hash = (hash.rotate_left(5) ^ endpoint.life).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    hash
}

/// Versions of everything known, as messages that together cover all host ids.
pub(crate) fn versions(
    cluster: &str,
    reply_to: SocketAddr,
    known: &[Known<'_>],
    bytes_max: usize,
) -> Vec<Message> {
    let room = bytes_max.saturating_sub(MESSAGE_HEAD_BYTES_MAX + 8 + cluster.len());
    let mut first = FIRST;
    let mut messages = Vec::new();
    let mut rest = known;
    loop {
        let (now, later) = rest.split_at((room / PLACE_BYTES_MAX).max(1).min(rest.len()));
        let last = match now.last() {
            Some(known) if !later.is_empty() => known.endpoint.host,
            _ => LAST,
        };
        let roster = Roster { first, last, lives: fingerprint(now) };
        let versions = now.iter().map(|known| known.version).collect();
        messages.push(Message::Versions { cluster: cluster.to_owned(), reply_to, roster, versions });
        if later.is_empty() {
            return messages;
        }
        first = exchange::next(last);
        rest = later;
    }
}

/// The entries that each side lacks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Lacks {
    /// Endpoints of which nothing but the heartbeat is newer here.
    pub(crate) beats: Vec<Place>,
    /// Endpoints of which more is newer here.
    pub(crate) deltas: Vec<Delta>,
    /// Endpoints of which the other side knows more than this version.
    pub(crate) wanted: Vec<Place>,
}

/// Compares the other side's versions of the same generations.
pub(crate) fn compare(known: &[Known<'_>], versions: &[u64]) -> Lacks {
    let mut lacks = Lacks::default();
    for (place, (ours, theirs)) in known.iter().zip(versions).enumerate() {
        if ours.version < *theirs {
            lacks.wanted.push((place as u32, ours.version));
        } else if ours.version > *theirs {
            lacks.give(ours, place as u32, *theirs);
        }
    }
    lacks
}

/// The entries here that are newer than the requested versions.
pub(crate) fn asked(known: &[Known<'_>], wanted: &[Place]) -> Lacks {
    let mut lacks = Lacks::default();
    for (place, version) in wanted {
        if let Some(ours) = known.get(*place as usize).filter(|ours| ours.version > *version) {
            lacks.give(ours, *place, *version);
        }
    }
    lacks
}

impl Lacks {
    fn give(&mut self, ours: &Known<'_>, place: u32, version: u64) {
        let Endpoint { heartbeat, states, .. } = ours.endpoint;
        if *heartbeat > version && states.values().all(|state| state.version <= version) {
            self.beats.push((place, *heartbeat));
        } else {
            self.deltas.push(exchange::delta_since(ours.endpoint, version));
        }
    }
}
