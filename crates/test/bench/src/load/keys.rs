//! Which key comes next: uniform, zipfian or sequential, from a seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A small, fast generator of random numbers (xorshift64* of a mixed seed); not for secrets.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// A generator whose numbers follow from the seed.
    pub(crate) fn new(seed: u64) -> Self {
        Random(mix(seed.wrapping_add(0x9E37_79B9_7F4A_7C15)) | 1)
    }

    /// 64 random bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a random number below nothing");
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number of [0, 1).
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Mixes the bits of a number, one to one (the finaliser of Murmur3).
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    let number = (number ^ (number >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    number ^ (number >> 33)
}

/// How keys are distributed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Every key alike.
    Uniform,
    /// Key ranks by a power law with this exponent (above 0); the hot keys lie scattered.
    Zipfian(f64),
    /// One after another, over all connections together, from 0 again after the last.
    Sequential,
}

/// Chooses keys below a count.
pub(crate) struct Keys {
    count: u64,
    chooser: Chooser,
}

enum Chooser {
    Uniform,
    Zipfian(Zipfian),
    Sequential(Arc<AtomicU64>),
}

impl Keys {
    /// Keys below `count`; those of a sequence come from the shared number.
    pub(crate) fn new(distribution: Distribution, count: u64, sequence: &Arc<AtomicU64>) -> Self {
        let chooser = match distribution {
            Distribution::Uniform => Chooser::Uniform,
            Distribution::Zipfian(exponent) => Chooser::Zipfian(Zipfian::new(count, exponent)),
            Distribution::Sequential => Chooser::Sequential(sequence.clone()),
        };
        Keys { count, chooser }
    }

    /// The next key.
    pub(crate) fn next(&self, random: &mut Random) -> u64 {
        match &self.chooser {
            Chooser::Uniform => random.below(self.count),
            Chooser::Zipfian(zipfian) => mix(zipfian.next(random)) % self.count,
            Chooser::Sequential(sequence) => sequence.fetch_add(1, Ordering::Relaxed) % self.count,
        }
    }
}

/// Ranks from 1 by a power law, in constant time and memory: rejection-inversion (Hörmann and Derflinger,
/// "Rejection-inversion to generate variates from monotone discrete distributions", 1996).
struct Zipfian {
    count: f64,
    exponent: f64,
    area_first: f64,
    area_all: f64,
    shortcut: f64,
}

impl Zipfian {
    fn new(count: u64, exponent: f64) -> Self {
        let mut zipfian =
            Zipfian { count: count as f64, exponent, area_first: 0.0, area_all: 0.0, shortcut: 0.0 };
        zipfian.area_first = zipfian.area(1.5) - 1.0;
        zipfian.area_all = zipfian.area(count as f64 + 0.5);
        zipfian.shortcut = 2.0 - zipfian.area_inverse(zipfian.area(2.5) - zipfian.height(2.0));
        zipfian
    }

    fn height(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// The integral of the height, up to a constant.
    fn area(&self, x: f64) -> f64 {
        let log = x.ln();
        exp_m1_over((1.0 - self.exponent) * log) * log
    }

    fn area_inverse(&self, area: f64) -> f64 {
        let t = (area * (1.0 - self.exponent)).max(-1.0);
        (ln_1p_over(t) * area).exp()
    }

    fn next(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.area_all + random.unit() * (self.area_first - self.area_all);
            let x = self.area_inverse(area);
            let rank = (x + 0.5).floor().clamp(1.0, self.count);
            if rank - x <= self.shortcut || area >= self.area(rank + 0.5) - self.height(rank) {
                return rank as u64;
            }
        }
    }
}

/// (e^x - 1) / x, also near 0.
fn exp_m1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x / 2.0 }
}

/// ln(1 + x) / x, also near 0.
fn ln_1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(distribution: Distribution, keys: u64, draws: u64) -> Vec<u64> {
        let chooser = Keys::new(distribution, keys, &Arc::default());
        let mut random = Random::new(7);
        let mut counts = vec![0; keys as usize];
        (0..draws).for_each(|_| counts[chooser.next(&mut random) as usize] += 1);
        counts
    }

    #[test]
    fn uniform_keys_are_all_alike() {
        let counts = counts(Distribution::Uniform, 100, 100_000);
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_sequence_meets_every_key_in_turn() {
        assert_eq!(counts(Distribution::Sequential, 10, 30), vec![3; 10]);
    }

    #[test]
    fn zipfian_ranks_follow_the_power_law() {
        for exponent in [0.99, 1.0, 1.5] {
            let zipfian = Zipfian::new(1000, exponent);
            let mut random = Random::new(11);
            let mut counts = vec![0u64; 1001];
            const DRAWS: u64 = 400_000;
            (0..DRAWS).for_each(|_| counts[zipfian.next(&mut random) as usize] += 1);
            let all: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-exponent)).sum();
            for rank in [1, 2, 5, 20, 100] {
                let expected = DRAWS as f64 * f64::from(rank as u32).powf(-exponent) / all;
                let found = counts[rank] as f64;
                let tolerance = 5.0 * expected.sqrt();
                assert!((found - expected).abs() < tolerance, "{exponent} {rank}: {found}, not {expected}");
            }
        }
    }
}
