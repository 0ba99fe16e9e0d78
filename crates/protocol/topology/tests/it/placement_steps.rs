//! A placement that is made in steps, or of the one of an earlier ring, is the one that is made at once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use schema::Replication;
use topology::{HostId, Location, Placement, PlacementBuilder, Ring, RingNode};

/// Numbers that spread (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

type Member = (RingNode, Vec<i64>);

fn member(id: u32, location: Location, tokens: Vec<i64>) -> Member {
    let mut host = [0; 16];
    host[..4].copy_from_slice(&id.to_be_bytes());
    (RingNode { host: HostId(host), location }, tokens)
}

/// A node of one of three datacenters with up to three racks, with few tokens out of few.
fn drawn(numbers: &mut Numbers, id: u32, free: &mut Vec<i64>) -> Member {
    let location = Location::new(format!("dc{}", numbers.below(3)), format!("rack{}", numbers.below(3)));
    let count = (1 + numbers.below(4)).min(free.len());
    let tokens = (0..count).map(|_| free.swap_remove(numbers.below(free.len()))).collect();
    member(id, location, tokens)
}

fn replications(numbers: &mut Numbers) -> Vec<Replication> {
    let mut factors = BTreeMap::new();
    for datacenter in 0..3 {
        if numbers.below(3) > 0 {
            factors.insert(format!("dc{datacenter}"), numbers.below(5) as u32);
        }
    }
    vec![
        Replication::Local,
        Replication::Everywhere,
        Replication::Simple { factor: numbers.below(6) as u32 },
        Replication::NetworkTopology { factors },
    ]
}

/// Nodes leave, join, move to another rack, or give a token up; the order of the others may change.
fn changed(numbers: &mut Numbers, members: &[Member], free: &mut Vec<i64>, next: &mut u32) -> Vec<Member> {
    let mut members = members.to_vec();
    for _ in 0..=numbers.below(2) {
        let at = numbers.below(members.len());
        match numbers.below(6) {
            0 | 1 if members.len() > 1 => free.extend(members.remove(at).1),
            2 if members[at].1.len() > 1 => free.push(members[at].1.remove(0)),
            3 if numbers.below(4) == 0 => members[at].0.location.rack = "rack9".to_owned(),
            4 => members.rotate_left(at),
            _ if !free.is_empty() => {
                *next += 1;
                members.insert(at, drawn(numbers, *next, free));
            }
            _ => {}
        }
    }
    members
}

#[test]
fn a_placement_from_an_earlier_one_equals_a_new_one() {
    let (mut reused, mut moved) = (0, 0);
    for seed in 0..3_000 {
        let mut numbers = Numbers(seed);
        let mut free: Vec<i64> = (0..80).map(|at| at * 10 - 300).collect();
        let count = 1 + numbers.below(12) as u32;
        let mut members: Vec<Member> = (0..count).map(|id| drawn(&mut numbers, id, &mut free)).collect();
        let replications = replications(&mut numbers);
        let mut ring = Ring::new(members.iter().cloned()).unwrap();
        let mut before: Vec<Placement> =
            replications.iter().map(|replication| Placement::new(&ring, replication)).collect();
        let mut next_id = 100;
        for change in 0..5 {
            members = changed(&mut numbers, &members, &mut free, &mut next_id);
            let next = Ring::new(members.iter().cloned()).unwrap();
            for (replication, placement) in replications.iter().zip(&mut before) {
                let mut builder = PlacementBuilder::new(&next, replication).reusing(&ring, placement);
                reused += builder.reused_ranges();
                moved += next.tokens().len() - builder.reused_ranges();
                while !builder.advance(1 + numbers.below(5)) {}
                let made = builder.finish();
                assert_eq!(
                    made,
                    Placement::new(&next, replication),
                    "seed {seed}, change {change}, {replication:?}\n{ring:?}\n{next:?}"
                );
                *placement = made;
            }
            ring = next;
        }
    }
    assert!(reused > 10_000 && moved > 10_000, "{reused} ranges taken over, {moved} made anew");
}

/// A thousand nodes of 256 tokens in three racks; one more, in the place that its host id gives it.
fn large(count: u32) -> Ring {
    let mut numbers = Numbers(7);
    let members = (0..count).map(|id| {
        let location = Location::new("dc1", format!("rack{}", id % 3));
        member(id, location, (0..256).map(|_| numbers.next() as i64).collect())
    });
    Ring::new(members).expect("tokens are apart")
}

/// Tokens that a step looks at.
const STEP: usize = 1_024;
/// The best of so many runs is judged, to exclude other load of the host.
const RUNS: usize = 5;

/// A change of a large ring, at opt-level 1 and 3 (docs/design/topology.md).
#[test]
fn a_change_of_a_large_ring_moves_few_of_its_ranges() {
    let (before, after) = (large(1_000), large(1_001));
    let count = after.tokens().len();
    let factors = BTreeMap::from([("dc1".to_owned(), 3)]);
    for replication in [Replication::Simple { factor: 3 }, Replication::NetworkTopology { factors }] {
        let anew = least(|| drop(Placement::new(&after, &replication)));
        let placement = Placement::new(&before, &replication);
        let builder = || PlacementBuilder::new(&after, &replication).reusing(&before, &placement);
        let compared = least(|| drop(builder()));
        let moved = count - builder().reused_ranges();
        let made = least(|| while_advancing(builder(), |_| ()));
        // The longest step of all, in the run where that was the shortest.
        let longest = |_| {
            let mut longest = Duration::ZERO;
            while_advancing(builder(), |step| longest = longest.max(step));
            longest
        };
        let step_max = (0..RUNS).map(longest).min().expect("there are runs");
        println!(
            "{replication:?}: {count} ranges are made anew in {anew:?}; after a join {moved} of them are, in all {made:?}, \
             of which the comparison of the rings {compared:?}, and a later step at most {step_max:?}"
        );
        assert!(moved < count / 50, "{moved}");
        assert_eq!(finished(builder()), Placement::new(&after, &replication));
    }
    let everywhere = Placement::new(&before, &Replication::Everywhere);
    assert_eq!(everywhere.replicas(0).len(), 1_000);
}

fn least(mut run: impl FnMut()) -> Duration {
    let one = |_| {
        let began = Instant::now();
        run();
        began.elapsed()
    };
    (0..RUNS).map(one).min().expect("there are runs")
}

fn while_advancing(mut builder: PlacementBuilder<'_>, mut look: impl FnMut(Duration)) {
    loop {
        let began = Instant::now();
        let is_made = builder.advance(STEP);
        look(began.elapsed());
        if is_made {
            return;
        }
    }
}

fn finished(mut builder: PlacementBuilder<'_>) -> Placement {
    while !builder.advance(STEP) {}
    builder.finish()
}
