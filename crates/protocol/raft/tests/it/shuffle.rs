//! Thousands of groups under faults: entries never differ, one leader a term, nothing acknowledged is lost, reads are not
//! stale, and the group converges when faults stop. Injected bugs are caught.

use crate::world::{Bug, World};

struct Figures {
    violation: Option<String>,
    snapshots: u64,
    memberships: u64,
    digest: u64,
}

fn run(seed: u64, bug: Bug) -> Figures {
    let mut world = World::new(seed, 1 + seed % 5, bug);
    let crash_chance = seed % 4;
    let changes = seed.is_multiple_of(2);
    for _ in 0..1_500 {
        if world.violation.is_some() {
            break;
        }
        let ids: Vec<u64> = world.hosts.keys().copied().collect();
        let id = ids[world.rng.below(ids.len() as u64) as usize];
        match world.rng.below(1_000) {
            0..250 => world.tick(id, crash_chance),
            250..900 => world.deliver(crash_chance),
            900..940 => {
                let target = world.leader().unwrap_or(id);
                world.propose(target);
                world.pump(target, crash_chance);
            }
            940..955 => {
                world.read(id);
                world.pump(id, crash_chance);
            }
            955..963 => world.crash(id),
            963..983 => world.start(id),
            983..988 => {
                let other = ids[world.rng.below(ids.len() as u64) as usize];
                world.parted.insert((id, other));
            }
            988..993 => world.parted.clear(),
            993..996 if changes => world.change(),
            _ => {
                if let Some(leader) = world.leader() {
                    world.on(leader, |node| node.transfer_leadership(id));
                    world.pump(leader, crash_chance);
                }
            }
        }
    }
    if world.violation.is_none() {
        world.settle();
    }
    Figures {
        violation: world.violation,
        snapshots: world.snapshots_installed,
        memberships: world.memberships,
        digest: world.digest,
    }
}

#[test]
fn groups_agree_under_faults() {
    let (mut snapshots, mut memberships) = (0, 0);
    for seed in 0..3_000 {
        let figures = run(seed, Bug::None);
        assert_eq!(figures.violation, None, "seed {seed}");
        snapshots += figures.snapshots;
        memberships += figures.memberships;
    }
    assert!(snapshots > 500, "the shuffle exercises snapshots: {snapshots}");
    assert!(memberships > 2_000, "the shuffle exercises changes of the group: {memberships}");
}

#[test]
fn a_seed_decides_everything() {
    for seed in 0..40 {
        assert_eq!(run(seed, Bug::None).digest, run(seed, Bug::None).digest, "seed {seed}");
    }
}

#[test]
fn a_forgotten_vote_is_caught() {
    let caught = (0..2_000).find(|seed| run(*seed, Bug::VoteForgotten).violation.is_some());
    assert!(caught.is_some());
}

#[test]
fn entries_acknowledged_before_they_are_durable_are_caught() {
    let caught = (0..200).find(|seed| run(*seed, Bug::SaidBeforeDurable).violation.is_some());
    assert!(caught.is_some());
}
