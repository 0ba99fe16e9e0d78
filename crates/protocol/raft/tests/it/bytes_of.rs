//! The codec: everything that was written reads the same, and no bytes whatsoever make it panic or take memory.

use bytes::Bytes;
use proptest::prelude::*;
use raft::codec;
use raft::{Change, CodecError, Entry, HardState, Membership, Message, Payload, Snapshot};
use stdx::Reader;

use crate::world::{Bug, World};

fn change() -> impl Strategy<Value = Change> {
    (0..3u8, 1..u64::MAX).prop_map(|(kind, node)| match kind {
        0 => Change::AddVoter(node),
        1 => Change::AddLearner(node),
        _ => Change::Remove(node),
    })
}

fn payload() -> impl Strategy<Value = Payload> {
    prop_oneof![
        Just(Payload::Empty),
        prop::collection::vec(any::<u8>(), 1..200).prop_map(|data| Payload::Command(data.into())),
        prop::collection::vec(change(), 0..5).prop_map(Payload::Membership),
    ]
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let payloads = prop::collection::vec((payload(), 0..3u64), 0..8);
    (1..1_000_000u64, 1..1_000u64, payloads).prop_map(|(first, mut term, payloads)| {
        let entry = |(at, (payload, step)): (usize, (Payload, u64))| {
            term += step;
            Entry { index: first + at as u64, term, payload }
        };
        payloads.into_iter().enumerate().map(entry).collect()
    })
}

fn snapshot() -> impl Strategy<Value = Snapshot> {
    let nodes = || prop::collection::btree_set(1..50u64, 1..6);
    let data = prop::collection::vec(any::<u8>(), 0..300);
    (1..1_000u64, 1..1_000u64, nodes(), nodes(), nodes(), any::<bool>(), data).prop_map(
        |(index, term, voters, learners, outgoing, joint, data)| {
            let outgoing = if joint { outgoing } else { Default::default() };
            let learners = &(&learners - &voters) - &outgoing;
            let membership =
                Membership { voters, learners, auto_leave: joint, outgoing, ..Membership::default() };
            Snapshot { index, term, membership, data: data.into() }
        },
    )
}

proptest! {
    #[test]
    fn entries_read_as_written(entries in entries()) {
        let mut out = Vec::new();
        codec::put_entries(&mut out, &entries);
        let mut reader = Reader::new(&out);
        prop_assert_eq!(codec::take_entries(&mut reader), Ok(entries));
        prop_assert!(codec::finish(&reader).is_ok());
    }

    #[test]
    fn snapshots_and_promises_read_as_written(snapshot in snapshot(), term: u64, vote: u64, commit: u64) {
        let hard_state = HardState { term, vote, commit };
        let mut out = Vec::new();
        codec::put_snapshot(&mut out, &snapshot);
        codec::put_hard_state(&mut out, &hard_state);
        let mut reader = Reader::new(&out);
        prop_assert_eq!(codec::take_snapshot(&mut reader), Ok(snapshot));
        prop_assert_eq!(codec::take_hard_state(&mut reader), Ok(hard_state));
        prop_assert!(codec::finish(&reader).is_ok());
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0..12u8) {
        let _ = Message::decode(&bytes);
        let mut framed = vec![codec::VERSION, kind];
        framed.extend_from_slice(&bytes);
        let _ = Message::decode(&framed);
        let _ = codec::take_entries(&mut Reader::new(&bytes));
        let _ = codec::take_snapshot(&mut Reader::new(&bytes));
    }
}

/// Real messages with changed bytes: bytes that still decode to a message decode to the same again, and a node takes or refuses
/// it without harm.
#[test]
fn changed_messages_do_no_harm() {
    let mut read = 0;
    for seed in 0..150 {
        let mut world = World::new(seed, 3, Bug::None);
        for step in 0..400 {
            let id = 1 + world.rng.below(3);
            world.tick(id, 0);
            if step % 20 == 0
                && let Some(leader) = world.leader()
            {
                world.propose(leader);
                world.pump(leader, 0);
            }
            let Some((_, to, bytes)) = world.network.first().cloned() else { continue };
            world.deliver(0);
            let mut changed = bytes;
            for _ in 0..1 + world.rng.below(3) {
                let at = world.rng.below(changed.len() as u64) as usize;
                changed[at] = world.rng.next() as u8;
            }
            changed.truncate(changed.len() - world.rng.below(2) as usize);
            let Ok(message) = Message::decode(&changed) else { continue };
            read += 1;
            assert_eq!(message.encode(), changed);
            // A peer that lies may break the group; it may not end the process.
            let mut victim = World::new(seed, 3, Bug::None);
            victim.on(to, |node| node.receive(message).ok());
            victim.pump(to, 0);
        }
    }
    assert!(read > 1_000, "most changes of a number leave a message: {read}");
}

#[test]
fn messages_that_raft_never_sends_are_refused() {
    let mut two = Vec::new();
    let entry = |index, term| Entry { index, term, payload: Payload::Command(Bytes::from_static(b"c")) };
    codec::put_entries(&mut two, &[entry(5, 3), entry(7, 3)]);
    assert!(matches!(codec::take_entries(&mut Reader::new(&two)), Err(CodecError::Nonsense(_))));
    let mut back = Vec::new();
    codec::put_entries(&mut back, &[entry(5, 3), entry(6, 2)]);
    assert!(matches!(codec::take_entries(&mut Reader::new(&back)), Err(CodecError::Nonsense(_))));
    let many = [0xff; 64];
    assert!(matches!(codec::take_entries(&mut Reader::new(&many)), Err(CodecError::Limit { .. })));
    assert_eq!(Message::decode(&[9, 1]), Err(CodecError::Version { found: 9 }));
}
