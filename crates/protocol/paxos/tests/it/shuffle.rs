//! Thousands of worlds, each judged; and injected bugs, each found.

use model::linear::{Linearity, Register, RegisterOutput, check};

use crate::world::{Bug, Scenario, World};

const RELIABLE: Scenario = Scenario {
    voters: 3,
    clients: 3,
    operations: 24,
    lost: 0,
    doubled: 0,
    crashes: 0,
    impatience: 0,
    bug: Bug::None,
};

const FAULTY: Scenario = Scenario { lost: 12, doubled: 15, crashes: 40, impatience: 200, ..RELIABLE };

/// The outcomes of the operations of some worlds.
#[derive(Debug, Default)]
struct Sum {
    applied: usize,
    refused: usize,
    read: usize,
    open: usize,
    contended: usize,
}

/// Runs a world; whether its clients' observations are right.
fn is_right(seed: u64, scenario: Scenario, sum: &mut Sum) -> bool {
    let mut world = World::new(seed, scenario);
    world.run();
    sum.contended += world.contended;
    for operation in &world.history {
        match &operation.output {
            Some(RegisterOutput::Applied(_)) => sum.applied += 1,
            Some(RegisterOutput::Refused(_)) => sum.refused += 1,
            Some(_) => sum.read += 1,
            None => sum.open += 1,
        }
    }
    match check(&Register, &world.history) {
        Linearity::Linear(_) => true,
        Linearity::Broken(_) => false,
        Linearity::Unknown => panic!("seed {seed}: too many orders to judge"),
    }
}

fn all_right(seeds: std::ops::Range<u64>, scenario: Scenario) -> Sum {
    let mut sum = Sum::default();
    for seed in seeds {
        assert!(is_right(seed, scenario, &mut sum), "seed {seed} in {scenario:?}");
    }
    sum
}

#[test]
fn worlds_without_faults_are_linear_and_everything_ends() {
    let sum = all_right(0..1500, RELIABLE);
    assert_eq!(sum.open, 0, "{sum:?}");
    assert!(
        sum.applied > 5_000 && sum.refused > 3_000 && sum.read > 5_000 && sum.contended > 1_000,
        "{sum:?}"
    );
}

#[test]
fn rough_worlds_are_linear() {
    let three = all_right(0..2000, FAULTY);
    assert!(three.applied > 3_000 && three.open > 1_000, "{three:?}");
    all_right(10_000..10_800, Scenario { voters: 5, clients: 4, ..FAULTY });
    all_right(20_000..20_300, Scenario { voters: 1, ..FAULTY });
    all_right(30_000..30_300, Scenario { voters: 4, ..FAULTY });
}

/// Seeds within which a bug is found.
const SEEDS: u64 = 6000;

/// The seeds that a bug takes until it is found.
fn seeds_until_found(bug: Bug) -> Option<u64> {
    let mut sum = Sum::default();
    (0..SEEDS).find(|seed| !is_right(*seed, Scenario { bug, ..FAULTY }, &mut sum))
}

#[test]
fn injected_bugs_are_found() {
    for bug in [Bug::PromiseNotStored, Bug::UnfinishedIgnored, Bug::NothingProposed, Bug::RepairNotSynced] {
        let found = seeds_until_found(bug);
        assert!(found.is_some(), "{bug:?} was not found");
        println!("{bug:?}: found with seed {}", found.unwrap_or_default());
    }
}
