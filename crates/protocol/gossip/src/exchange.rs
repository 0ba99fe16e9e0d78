//! The exchange of two nodes: comparing digests, and cutting the answer into messages of bounded size.

use std::net::SocketAddr;

use topology::HostId;

use crate::codec::{DIGEST_BYTES_MAX, MESSAGE_HEAD_BYTES_MAX, delta_bytes};
use crate::{Delta, Digest, Endpoint, Message, Request};

pub(crate) const FIRST: HostId = HostId([0; 16]);
pub(crate) const LAST: HostId = HostId([0xff; 16]);

/// How much is known of an endpoint.
pub(crate) fn digest(endpoint: &Endpoint) -> Digest {
    let Endpoint { host, generation, address, .. } = *endpoint;
    Digest { host, generation, address, version: endpoint.version() }
}

/// The part of an endpoint that is newer than a digest.
pub(crate) fn delta(endpoint: &Endpoint, known: Option<&Digest>) -> Delta {
    let life = (endpoint.generation, endpoint.address);
    let same_life = known.filter(|known| (known.generation, known.address) == life);
    delta_since(endpoint, same_life.map_or(0, |known| known.version))
}

/// The part of an endpoint that is newer than a version of this generation.
pub(crate) fn delta_since(endpoint: &Endpoint, base: u64) -> Delta {
    let newer = endpoint.states.iter().filter(|(_, state)| state.version > base);
    Delta {
        host: endpoint.host,
        generation: endpoint.generation,
        address: endpoint.address,
        heartbeat: endpoint.heartbeat,
        base,
        states: newer.map(|(key, state)| (*key, state.clone())).collect(),
    }
}

/// The host id after one that is not the last.
pub(crate) fn next(host: HostId) -> HostId {
    HostId((u128::from_be_bytes(host.0) + 1).to_be_bytes())
}

/// Digests of everything known between two host ids (ascending), as messages that together cover all from one to the other.
pub(crate) fn syns(
    cluster: &str,
    reply_to: SocketAddr,
    (mut first, end): (HostId, HostId),
    digests: &[Digest],
    bytes_max: usize,
) -> Vec<Message> {
    let room = bytes_max.saturating_sub(MESSAGE_HEAD_BYTES_MAX + cluster.len());
    let mut messages = Vec::new();
    let mut rest = digests;
    loop {
        let (now, later) = rest.split_at((room / DIGEST_BYTES_MAX).max(1).min(rest.len()));
        let last = match now.last() {
            Some(digest) if !later.is_empty() => digest.host,
            _ => end,
        };
        let cluster = cluster.to_owned();
        messages.push(Message::Syn { cluster, reply_to, first, last, digests: now.to_vec() });
        if later.is_empty() {
            return messages;
        }
        first = next(last);
        rest = later;
    }
}

/// The endpoints that the sender of digests lacks, and those that are newer there.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Differences {
    pub(crate) deltas: Vec<Delta>,
    pub(crate) requests: Vec<Request>,
}

/// Compares the digests of a range (both ascending by host id) with the known endpoints of that range. At most `unknown_max`
/// hosts that are not known are asked for.
pub(crate) fn compare<'a>(
    digests: &[Digest],
    known: impl Iterator<Item = &'a Endpoint>,
    unknown_max: usize,
) -> Differences {
    let mut out = Differences::default();
    let mut unknown_left = unknown_max;
    let mut unknown = |digest: &Digest, requests: &mut Vec<Request>| {
        if unknown_left > 0 {
            unknown_left -= 1;
            requests.push(Digest { version: 0, ..*digest });
        }
    };
    let mut theirs = digests.iter().peekable();
    for endpoint in known {
        while let Some(digest) = theirs.next_if(|digest| digest.host < endpoint.host) {
            unknown(digest, &mut out.requests);
        }
        let Some(digest) = theirs.next_if(|digest| digest.host == endpoint.host) else {
            out.deltas.push(delta(endpoint, None));
            continue;
        };
        let life = (endpoint.generation, endpoint.address);
        let their_life = (digest.generation, digest.address);
        match (life, endpoint.version()).cmp(&(their_life, digest.version)) {
            std::cmp::Ordering::Greater => out.deltas.push(delta(endpoint, Some(digest))),
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Less => {
                let version = if life == their_life { endpoint.version() } else { 0 };
                out.requests.push(Digest { version, ..*digest });
            }
        }
    }
    theirs.for_each(|digest| unknown(digest, &mut out.requests));
    out
}

/// Differences as messages, none longer than `bytes_max`; none when there is nothing to say.
pub(crate) fn acks(reply_to: SocketAddr, differences: Differences, bytes_max: usize) -> Vec<Message> {
    let room = bytes_max.saturating_sub(MESSAGE_HEAD_BYTES_MAX);
    let mut messages = Vec::new();
    let mut open = Differences::default();
    let mut used = 0;
    let mut close = |open: &mut Differences| {
        let Differences { deltas, requests } = std::mem::take(open);
        messages.push(Message::Ack { reply_to, deltas, requests });
    };
    for delta in differences.deltas {
        let bytes = delta_bytes(&delta);
        if used > 0 && used + bytes > room {
            close(&mut open);
            used = 0;
        }
        used += bytes;
        open.deltas.push(delta);
    }
    for request in differences.requests {
        if used > 0 && used + DIGEST_BYTES_MAX > room {
            close(&mut open);
            used = 0;
        }
        used += DIGEST_BYTES_MAX;
        open.requests.push(request);
    }
    if used > 0 {
        close(&mut open);
    }
    messages
}

/// News as messages, none longer than `bytes_max`; none when there is nothing to say.
pub(crate) fn deltas(deltas: Vec<Delta>, bytes_max: usize) -> Vec<Message> {
    let room = bytes_max.saturating_sub(MESSAGE_HEAD_BYTES_MAX);
    let mut messages = Vec::new();
    let mut open = Vec::new();
    let mut used = 0;
    for delta in deltas {
        let bytes = delta_bytes(&delta);
        if used > 0 && used + bytes > room {
            messages.push(Message::Deltas(std::mem::take(&mut open)));
            used = 0;
        }
        used += bytes;
        open.push(delta);
    }
    if !open.is_empty() {
        messages.push(Message::Deltas(open));
    }
    messages
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::{Key, Versioned, encode};

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    fn endpoint(id: u8, generation: u64, heartbeat: u64) -> Endpoint {
        let value = |version| Versioned { version, value: Bytes::from_static(b"value") };
        let states = [(Key::DC, value(1)), (Key::LOAD, value(heartbeat.min(7)))];
        let states = Arc::new(states.into_iter().collect());
        Endpoint { host: HostId([id; 16]), generation, address: address(id.into()), heartbeat, states }
    }

    fn knows(id: u8, generation: u64, version: u64) -> Digest {
        Digest { host: HostId([id; 16]), generation, address: address(id.into()), version }
    }

    #[test]
    fn each_side_receives_missing_states() {
        let ours =
            [endpoint(2, 5, 9), endpoint(3, 5, 9), endpoint(4, 5, 9), endpoint(5, 5, 9), endpoint(6, 6, 9)];
        // 1 is not known here, 2 is older there, 3 newer, 4 the same, 5 not known there, 6 from an earlier generation there,
        // 7 and 8 not known here, but there is room for one.
        let theirs = [
            knows(1, 5, 3),
            knows(2, 5, 3),
            knows(3, 5, 12),
            knows(4, 5, 9),
            knows(6, 5, 50),
            knows(7, 1, 1),
            knows(8, 1, 1),
        ];
        let found = compare(&theirs, ours.iter(), 2);
        assert_eq!(found.requests, [knows(1, 5, 0), knows(3, 5, 9), knows(7, 1, 0)]);
        let deltas: Vec<_> =
            found.deltas.iter().map(|delta| (delta.host.0[0], delta.base, delta.states.len())).collect();
        assert_eq!(deltas, [(2, 3, 1), (5, 0, 2), (6, 0, 2)]);
        let later_life = compare(&[knows(2, 6, 1)], ours[..1].iter(), 0);
        assert_eq!(later_life.requests, [knows(2, 6, 0)], "all of a later generation is requested");
        assert_eq!(later_life.deltas, []);
        let elsewhere = |port| [Digest { address: address(port), ..knows(2, 5, 9) }];
        let lesser = compare(&elsewhere(1), ours[..1].iter(), 0);
        assert_eq!(
            (lesser.requests.len(), lesser.deltas[0].base),
            (0, 0),
            "of one second, the greater address"
        );
        let greater = compare(&elsewhere(3), ours[..1].iter(), 0);
        assert_eq!(greater.requests, [Digest { version: 0, ..elsewhere(3)[0] }]);
    }

    #[test]
    fn split_digests_cover_every_host_once() {
        for count in [0, 1, 2, 7, 8, 20] {
            let digests: Vec<_> = (0..count).map(|id| knows(id * 3, 1, u64::MAX)).collect();
            let bytes_max = MESSAGE_HEAD_BYTES_MAX + 1 + 4 * DIGEST_BYTES_MAX;
            let messages = syns("c", address(1), (FIRST, LAST), &digests, bytes_max);
            let mut next = 0_u128;
            let mut received = Vec::new();
            for (at, message) in messages.iter().enumerate() {
                assert!(encode(message).len() <= bytes_max);
                let Message::Syn { first, last, digests, .. } = message else { panic!("{message:?}") };
                assert_eq!(u128::from_be_bytes(first.0), next);
                assert!(digests.iter().all(|digest| *first <= digest.host && digest.host <= *last));
                if at + 1 < messages.len() {
                    next = u128::from_be_bytes(last.0) + 1;
                } else {
                    assert_eq!(*last, LAST);
                }
                received.extend_from_slice(digests);
            }
            assert_eq!(received, digests);
            assert_eq!(messages.len(), usize::from(count).div_ceil(4).max(1));
        }
    }

    #[test]
    fn answers_are_split_and_lose_nothing() {
        let all: Vec<_> = (0..50).map(|id| delta(&endpoint(id, 1, 1), None)).collect();
        let requests: Vec<_> = (50..150).map(|id| knows(id, u64::MAX, u64::MAX)).collect();
        let bytes_max = 700;
        let found = Differences { deltas: all.clone(), requests: requests.clone() };
        let (mut received, mut asked) = (Vec::new(), Vec::new());
        for message in acks(address(1), found, bytes_max) {
            assert!(encode(&message).len() <= bytes_max);
            let Message::Ack { deltas, requests, .. } = message else { panic!("{message:?}") };
            received.extend(deltas);
            asked.extend(requests);
        }
        assert_eq!((received, asked), (all.clone(), requests));
        let mut received = Vec::new();
        for message in deltas(all.clone(), bytes_max) {
            assert!(encode(&message).len() <= bytes_max);
            let Message::Deltas(some) = message else { panic!("{message:?}") };
            received.extend(some);
        }
        assert_eq!(received, all);
        assert_eq!(acks(address(1), Differences::default(), bytes_max), []);
        assert_eq!(deltas(Vec::new(), bytes_max), []);
    }
}
