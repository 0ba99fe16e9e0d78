//! The number of pending compactions: about as many as there are by choosing one after another, and counted in a moment.

use compaction::{Backlog, Candidate, Strategy};

use crate::FIGURES;

/// Numbers by a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// The compactions that follow one another, by choosing each.
fn walked(strategy: &Strategy, candidates: &[Candidate]) -> u64 {
    let mut left = candidates.to_vec();
    let mut pending = 0;
    while let Some(choice) = strategy.choose(&left, &FIGURES) {
        left.retain(|one| !choice.inputs.contains(&one.id));
        pending += 1;
    }
    pending
}

fn strategies() -> Vec<(&'static str, Strategy)> {
    let of = |class: &str, options: &[(&str, &str)]| {
        let class = [("class", class)];
        let options =
            class.iter().chain(options).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Strategy::of(&options.collect())
    };
    let unified = "UnifiedCompactionStrategy";
    vec![
        ("tiers", of("SizeTieredCompactionStrategy", &[("min_sstable_size", "1000000")])),
        ("levels", of("LeveledCompactionStrategy", &[("sstable_size_in_mb", "2")])),
        (
            "windows",
            of(
                "TimeWindowCompactionStrategy",
                &[("compaction_window_unit", "HOURS"), ("compaction_window_size", "1")],
            ),
        ),
        ("unified", of(unified, &[])),
        ("unified without inclusion", of(unified, &[("overlap_inclusion_method", "NONE")])),
        ("unified in parts", of(unified, &[("max_sstables_to_compact", "8")])),
        ("incremental", of("IncrementalCompactionStrategy", &[("space_amplification_goal", "1.5")])),
        ("disabled", of("SizeTieredCompactionStrategy", &[("enabled", "false")])),
    ]
}

/// So many SSTables of a random table.
fn random_table(rng: &mut Random, count: usize) -> Vec<Candidate> {
    let one = |id| {
        let width = 1i64 << (40 + rng.below(23));
        let first = rng.next() as i64 / 2;
        Candidate {
            id,
            bytes: 1 << (18 + rng.below(12)),
            level: rng.below(4) as u32,
            first,
            last: first.saturating_add(width),
            timestamp_max: (900_000 + rng.below(100_000) as i64) * 1_000_000,
            droppable: if rng.below(8) == 0 { 0.5 } else { 0.0 },
            age: 100_000,
            expired: rng.below(50) == 0,
            overlapped: rng.below(2) == 0,
        }
    };
    (0..count).map(one).collect()
}

#[test]
fn the_estimate_of_pending_compactions_is_about_what_choosing_each_gives() {
    let mut rng = Random(39);
    for (name, strategy) in strategies() {
        let (mut estimates, mut walks) = (0, 0);
        for _ in 0..200 {
            let count = rng.below(80) as usize;
            let table = random_table(&mut rng, count);
            let backlog = strategy.backlog(&table, &FIGURES);
            let (estimate, walk) = (backlog.compactions, walked(&strategy, &table));
            assert_eq!(estimate == 0, walk == 0, "{name}: {estimate} for {walk} of {table:?}");
            let alive = table.iter().filter(|one| !one.expired);
            let all: u64 = alive.clone().map(|one| one.bytes).sum();
            let least = alive.map(|one| one.bytes).min().unwrap_or(0);
            assert!(
                backlog.bytes <= all && (backlog.bytes == 0 || backlog.bytes >= least),
                "{name}: {backlog:?}"
            );
            (estimates, walks) = (estimates + estimate, walks + walk);
        }
        println!("{name}: {estimates} for {walks}");
        // Which SSTables of the next level a compaction of a level takes along is not foreseen.
        let most = if name == "levels" { 0.3 } else { 0.1 };
        let apart = estimates.abs_diff(walks) as f64 / walks.max(1) as f64;
        assert!(apart <= most, "{name}: {estimates} for {walks}");
        assert_eq!(walks == 0, name == "disabled");
    }
}

#[test]
fn pending_compactions_of_many_sstables_are_counted_at_once() {
    let table = random_table(&mut Random(40), 100_000);
    for (name, strategy) in strategies() {
        let begun = std::time::Instant::now();
        let pending = strategy.backlog(&table, &FIGURES).compactions;
        let taken = begun.elapsed();
        assert_eq!(pending == 0, name == "disabled");
        // Choosing each of them takes minutes.
        assert!(taken.as_secs() < 10, "{name}: {pending} compactions were counted in {taken:?}");
    }
}

#[test]
fn the_backlog_has_the_bytes_of_what_is_merged() {
    let mut table = random_table(&mut Random(41), 6);
    for (at, one) in table.iter_mut().enumerate() {
        let bytes = if at < 4 { 100 } else { 50_000_000 };
        *one = Candidate { bytes, level: 0, droppable: 0.0, expired: false, ..one.clone() };
    }
    let (_, tiers) = strategies().swap_remove(0);
    assert_eq!(tiers.backlog(&table, &FIGURES), Backlog { compactions: 1, bytes: 400 });
    // One that is rewritten for its tombstones.
    table[5] = Candidate { droppable: 0.9, overlapped: false, ..table[5].clone() };
    assert_eq!(tiers.backlog(&table, &FIGURES), Backlog { compactions: 2, bytes: 50_000_400 });
    table[4].expired = true;
    assert_eq!(tiers.backlog(&table, &FIGURES), Backlog { compactions: 3, bytes: 50_000_400 });
}
