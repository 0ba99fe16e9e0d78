//! A seeded fuzzer over the messages of peers.

use std::net::SocketAddr;
use std::time::Duration;

use gossip::{Config, Event, Gossip, Message, Now, Roster, decode, encode};
use testkit::fuzz::{change, hunt};
use topology::HostId;

use crate::codec::{delta, digest, syn};

/// The node that is given changed messages; it begins every exchange with versions.
fn fuzzed() -> Gossip {
    let config = Config { memory_max: 20 * Config::PEER_MEMORY, roster_least: 1, ..Config::new("c", vec![]) };
    Gossip::new(config, HostId([2; 16]), 5, SocketAddr::from(([10, 0, 0, 2], 7_000)), vec![])
}

/// The fingerprint of a node's knowledge, as it sends it to a seed.
fn lives_of(gossip: &Gossip) -> u64 {
    let own = gossip.own();
    let members = [(own.host, own.address), (HostId([9; 16]), SocketAddr::from(([10, 0, 0, 9], 7_000)))];
    let now = Now { monotonic: Duration::ZERO, wall_seconds: 1_000_000 };
    let effects = fuzzed().step(Event::Members(members.into()), now, &mut |_| 0);
    match &effects[..] {
        [gossip::Effect::Send { message: Message::Versions { roster, .. }, .. }] => roster.lives,
        other => panic!("{other:?}"),
    }
}

/// Messages with bytes changed, given to a node: it does not panic, remembers no more than it may, and sends no message
/// that is too long.
#[test]
fn messages_of_peers() {
    let mut corpus =
        vec![syn(vec![]), syn((1..40).map(digest).collect()), delta([(0, 8), (1, 3), (200, 1_000)])];
    corpus.push(Message::Ack {
        reply_to: SocketAddr::from(([10, 0, 0, 9], 7_000)),
        deltas: match delta([(0, 5)]) {
            Message::Deltas(deltas) => deltas,
            other => panic!("{other:?}"),
        },
        requests: (1..9).map(digest).collect(),
    });
    let (first, last) = (HostId([0; 16]), HostId([0xff; 16]));
    let roster = |lives| Roster { first, last, lives };
    // The fingerprint of the receiver's generations: it is alone in the beginning.
    let alone = lives_of(&fuzzed());
    for lives in [7, alone] {
        let reply_to = SocketAddr::from(([10, 0, 0, 9], 7_000));
        let (cluster, roster) = ("c".to_owned(), roster(lives));
        corpus.push(Message::Versions { cluster, reply_to, roster, versions: vec![3] });
        let (beats, wanted) = (vec![(0, 900), (3, 5)], vec![(0, 0), (9, 1)]);
        corpus.push(Message::Beats { reply_to, roster, beats, wanted });
    }
    let corpus: Vec<Vec<u8>> = corpus.iter().map(|message| encode(message).to_vec()).collect();
    hunt("gossip messages", |random| {
        let mut gossip = fuzzed();
        let bytes_max = Config::new("c", vec![]).message_bytes_max;
        for second in 0..50 {
            let mut bytes = random.of(&corpus).clone();
            change(random, &mut bytes, &corpus);
            let Ok(message) = decode(&bytes) else { continue };
            assert_eq!(decode(&encode(&message)).as_ref(), Ok(&message));
            let now = Now { monotonic: Duration::from_secs(second), wall_seconds: 1_000_000 + second };
            for event in [Event::Received(message), Event::Tick] {
                for effect in gossip.step(event, now, &mut |bound| random.next() % bound) {
                    if let gossip::Effect::Send { message, .. } = effect {
                        assert!(encode(&message).len() <= bytes_max);
                    }
                }
            }
            assert!(gossip.peers().count() <= 20);
        }
    });
}
