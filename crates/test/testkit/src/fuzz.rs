//! The frame of a fuzzer: rounds that a seed decides, changes of bytes, corpora, and a watch over time and memory.
//!
//! `FUZZ_SECONDS` (2) says how long a target runs, `FUZZ_SEED` (1) where it begins; every further round takes the next
//! seed. A round that panics, stands still, or takes memory without bound names the seed that repeats it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A round that takes longer stands still.
const ROUND_MAX: Duration = Duration::from_secs(60);
/// By how much a round may raise the memory that this process ever had in use, and ever reserved, in KiB.
const RESIDENT_GROWTH_MAX: u64 = 1 << 20;
const RESERVED_GROWTH_MAX: u64 = 4 << 20;
/// Rounds between two looks at the memory.
const ROUNDS_PER_LOOK: u64 = 16;

/// A small generator of numbers (SplitMix64): one seed, one sequence.
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 when there is none.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// True once in `n`.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of the items.
    pub fn of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// Where a run begins: `FUZZ_SEED`, or 1. For tests with another generator of numbers.
///
/// # Panics
/// When the variable is no number.
pub fn seed() -> u64 {
    variable("FUZZ_SEED", 1)
}

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// Runs rounds until the time is up.
///
/// # Panics
///
/// When a round does, and when memory has grown beyond the bounds.
pub fn hunt(target: &str, mut round: impl FnMut(&mut Random)) {
    let until = Instant::now() + Duration::from_secs(variable("FUZZ_SECONDS", 2));
    let first = seed();
    let current = Arc::new(AtomicU64::new(first));
    let ended = Arc::new(AtomicBool::new(false));
    let _ending = Ending(ended.clone());
    std::thread::spawn({
        let (target, current) = (target.to_owned(), current.clone());
        move || guard(&target, &current, &ended)
    });
    let mut seed = first;
    let mut before = memory();
    while seed == first || Instant::now() < until {
        current.store(seed, Ordering::Relaxed);
        let result = catch_unwind(AssertUnwindSafe(|| round(&mut Random(seed))));
        if let Err(panic) = result {
            eprintln!("{target}: repeat with FUZZ_SEED={seed}");
            resume_unwind(panic);
        }
        if (seed - first).is_multiple_of(ROUNDS_PER_LOOK) {
            let now = memory();
            let too_much = now.0 > before.0 + RESIDENT_GROWTH_MAX || now.1 > before.1 + RESERVED_GROWTH_MAX;
            assert!(
                !too_much,
                "{target}: memory grew from {before:?} to {now:?} KiB in the {ROUNDS_PER_LOOK} rounds up to \
                 FUZZ_SEED={seed}"
            );
            before = now;
        }
        seed += 1;
    }
    println!("{target}: {} rounds", seed - first);
}

/// Notifies the guard, however the hunt ends.
struct Ending(Arc<AtomicBool>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Ends the process when one round lasts too long: nothing else can stop a loop that never ends.
fn guard(target: &str, current: &AtomicU64, ended: &AtomicBool) {
    let (mut seen, mut since) = (current.load(Ordering::Relaxed), Instant::now());
    while !ended.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
        let now = current.load(Ordering::Relaxed);
        if now != seen {
            (seen, since) = (now, Instant::now());
        } else if since.elapsed() > ROUND_MAX {
            eprintln!("{target}: a round does not end; repeat with FUZZ_SEED={seen}");
            std::process::abort();
        }
    }
}

/// The most memory that this process had in use and had reserved so far, in KiB; zeros where the system does not tell.
fn memory() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let figure = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    (figure("VmHWM:").unwrap_or(0), figure("VmPeak:").unwrap_or(0))
}

/// The files of a directory, in the order of their names.
///
/// # Panics
///
/// When the directory cannot be read or holds nothing.
pub fn corpus(dir: &Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a file").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", dir.display());
    paths.iter().map(|path| std::fs::read(path).expect("a readable file")).collect()
}

/// Numbers at which decoders go wrong.
const EDGES: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    1 << 24,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    u64::MAX,
];

/// Changes bytes in a few places; `others` are sound bytes of the same kind, pieces of which are put in.
pub fn change(random: &mut Random, bytes: &mut Vec<u8>, others: &[Vec<u8>]) {
    let mut times = 1 + random.below(3);
    if random.one_in(8) {
        times += random.below(16);
    }
    for _ in 0..times {
        let at = random.below(bytes.len() + 1);
        let len_max = if random.one_in(4) { 300 } else { 12 };
        let end = (at + 1 + random.below(len_max)).min(bytes.len());
        match random.below(12) {
            0..=2 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            3 if at < bytes.len() => bytes[at] = random.next() as u8,
            4 if at < bytes.len() => bytes[at] = *random.of(&EDGES) as u8,
            5 | 6 => overwrite_with_edge(random, bytes, at),
            7 => bytes.truncate(at),
            8 => drop(bytes.drain(at..end)),
            9 => {
                let copy = bytes[at..end].to_vec();
                let target = random.below(bytes.len() + 1);
                bytes.splice(target..target, copy);
            }
            10 if !others.is_empty() => {
                let other = random.of(others);
                let from = random.below(other.len());
                let upto = (from + 1 + random.below(40)).min(other.len());
                let replaced = if random.one_in(2) { end.min(at + (upto - from)) } else { at };
                bytes.splice(at..replaced, other[from..upto].iter().copied());
            }
            _ => bytes[at..end].fill(if random.one_in(2) { 0xff } else { 0 }),
        }
    }
}

/// Puts an edge number over 1 to 8 bytes, or one near the number that stands there.
fn overwrite_with_edge(random: &mut Random, bytes: &mut [u8], at: usize) {
    let width = 1 << random.below(4);
    let Some(place) = bytes.get_mut(at..at + width) else { return };
    let number = if random.one_in(3) {
        let stood = place.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        stood.wrapping_add(random.below(9) as u64).wrapping_sub(4)
    } else {
        *random.of(&EDGES)
    };
    place.copy_from_slice(&number.to_be_bytes()[8 - width..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_follow_from_the_seed() {
        let sound: Vec<u8> = (0..200).collect();
        let changed = |seed| {
            let mut bytes = sound.clone();
            change(&mut Random(seed), &mut bytes, &[vec![9; 50]]);
            bytes
        };
        assert!((0..500).all(|seed| changed(seed) == changed(seed)));
        assert!((0..500).filter(|seed| changed(*seed) != sound).count() > 400);
        let mut empty = Vec::new();
        (0..500).for_each(|seed| change(&mut Random(seed), &mut empty, &[]));
    }

    #[test]
    #[should_panic(expected = "the second")]
    fn a_panic_is_passed_on() {
        let mut rounds = 0;
        hunt("panics", |_| {
            rounds += 1;
            assert!(rounds < 2, "the second");
        });
    }

    #[test]
    #[should_panic(expected = "memory grew")]
    fn memory_without_bound_is_noticed() {
        let mut kept: Vec<Vec<u8>> = Vec::new();
        hunt("grows", |_| kept.push(Vec::with_capacity(1 << 30)));
    }
}
