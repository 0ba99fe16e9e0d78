//! Messages survive their bytes, and no bytes harm a node.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use gossip::{
    CodecError, Delta, Digest, FORMAT_VERSION, Key, Message, Roster, STATES_MAX, VALUE_BYTES_MAX, Versioned,
    decode, encode,
};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use topology::HostId;

fn addresses() -> impl Strategy<Value = SocketAddr> {
    let v4 = any::<[u8; 4]>().prop_map(IpAddr::from);
    let v6 = any::<[u8; 16]>().prop_map(IpAddr::from);
    (prop_oneof![v4, v6], any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

fn hosts() -> impl Strategy<Value = HostId> {
    any::<[u8; 16]>().prop_map(HostId)
}

fn digests() -> impl Strategy<Value = Vec<Digest>> {
    btree_set(hosts(), 0..20).prop_flat_map(|hosts| {
        let count = hosts.len();
        (Just(hosts), vec((any::<u64>(), addresses(), any::<u64>()), count)).prop_map(|(hosts, numbers)| {
            let pairs = hosts.into_iter().zip(numbers);
            pairs
                .map(|(host, (generation, address, version))| Digest { host, generation, address, version })
                .collect()
        })
    })
}

fn deltas() -> impl Strategy<Value = Delta> {
    let value = (any::<u64>(), vec(any::<u8>(), 0..40));
    let states = btree_map(any::<u8>(), value, 0..10);
    (hosts(), any::<u64>(), addresses(), any::<u64>(), any::<u64>(), states).prop_map(
        |(host, generation, address, heartbeat, base, states)| {
            let versioned = |(version, value): (u64, Vec<u8>)| Versioned { version, value: value.into() };
            let states = states.into_iter().map(|(key, value)| (Key(key), versioned(value))).collect();
            Delta { host, generation, address, heartbeat, base, states }
        },
    )
}

fn messages() -> impl Strategy<Value = Message> {
    let syn = (".{0,30}", addresses(), hosts(), hosts(), digests()).prop_map(
        |(cluster, reply_to, first, last, digests)| Message::Syn { cluster, reply_to, first, last, digests },
    );
    let ack = (addresses(), vec(deltas(), 0..5), digests())
        .prop_map(|(reply_to, deltas, requests)| Message::Ack { reply_to, deltas, requests });
    let gone = (hosts(), any::<u64>()).prop_map(|(host, generation)| Message::Gone { host, generation });
    let roster =
        || (hosts(), hosts(), any::<u64>()).prop_map(|(first, last, lives)| Roster { first, last, lives });
    let versions = (".{0,30}", addresses(), roster(), vec(any::<u64>(), 0..30)).prop_map(
        |(cluster, reply_to, roster, versions)| Message::Versions { cluster, reply_to, roster, versions },
    );
    let places = || {
        btree_map(0..65_536_u32, any::<u64>(), 0..20)
            .prop_map(|places| places.into_iter().collect::<Vec<_>>())
    };
    let beats = (addresses(), roster(), places(), places())
        .prop_map(|(reply_to, roster, beats, wanted)| Message::Beats { reply_to, roster, beats, wanted });
    let deltas = vec(deltas(), 0..5).prop_map(Message::Deltas);
    prop_oneof![syn, ack, deltas, gone, versions, beats]
}

proptest! {
    #[test]
    fn round_trip(message in messages()) {
        prop_assert_eq!(decode(&encode(&message)).unwrap(), message);
    }

    #[test]
    fn every_shortened_message_is_refused(message in messages()) {
        let bytes = encode(&message);
        for len in 0..bytes.len() {
            prop_assert!(decode(&bytes[..len]).is_err());
        }
        let mut longer = bytes.to_vec();
        longer.push(0);
        prop_assert_eq!(decode(&longer), Err(CodecError::Trailing { count: 1 }));
    }

    #[test]
    fn noise_is_no_message_or_one(noise in vec(any::<u8>(), 0..200)) {
        let mut bytes = vec![FORMAT_VERSION];
        bytes.extend(noise);
        if let Ok(message) = decode(&bytes) {
            prop_assert_eq!(decode(&encode(&message)).unwrap(), message);
        }
    }
}

pub fn digest(id: u8) -> Digest {
    let address = SocketAddr::from(([10, 0, 0, id], 7_000));
    Digest { host: HostId([id; 16]), generation: 1, address, version: 1 }
}

pub fn syn(digests: Vec<Digest>) -> Message {
    Message::Syn {
        cluster: "c".to_owned(),
        reply_to: SocketAddr::from(([10, 0, 0, 1], 7_000)),
        first: HostId([0; 16]),
        last: HostId([0xff; 16]),
        digests,
    }
}

pub fn delta(values: impl IntoIterator<Item = (u8, usize)>) -> Message {
    let value = |(key, len)| (Key(key), Versioned { version: 1, value: Bytes::from(vec![7; len]) });
    Message::Deltas(vec![Delta {
        host: HostId([1; 16]),
        generation: 1,
        address: SocketAddr::from(([10, 0, 0, 1], 7_000)),
        heartbeat: 1,
        base: 0,
        states: values.into_iter().map(value).collect(),
    }])
}

#[test]
fn bounds_are_held() {
    let refused = |message: &Message| decode(&encode(message)).unwrap_err().to_string();
    let mut future = encode(&syn(vec![])).to_vec();
    future[0] = FORMAT_VERSION + 1;
    assert_eq!(decode(&future), Err(CodecError::Version { found: FORMAT_VERSION + 1 }));
    assert_eq!(refused(&syn(vec![digest(2), digest(1)])), "gossip message: digest out of order is 1");
    assert_eq!(refused(&syn(vec![digest(1), digest(1)])), "gossip message: digest out of order is 1");
    assert_eq!(
        refused(&delta([(1, VALUE_BYTES_MAX + 1)])),
        format!("gossip message: length of a value is {}", VALUE_BYTES_MAX + 1)
    );
    assert_eq!(
        refused(&delta((0..=STATES_MAX as u8).map(|key| (key, 1)))),
        format!("gossip message: number of an endpoint's values is {}", STATES_MAX + 1)
    );
    let too_much = refused(&delta((0..17).map(|key| (key, VALUE_BYTES_MAX))));
    assert!(too_much.contains("16384 in all"), "{too_much}");
    assert!(decode(&encode(&delta((0..16).map(|key| (key, VALUE_BYTES_MAX))))).is_ok());
    // A count for which there are no bytes takes no memory.
    let mut hostile = encode(&syn(vec![])).to_vec();
    hostile.pop();
    hostile.extend([0xc0, 0xff, 0xff]);
    assert_eq!(decode(&hostile), Err(CodecError::Value { what: "number of digests", found: 0xffff }));
}
