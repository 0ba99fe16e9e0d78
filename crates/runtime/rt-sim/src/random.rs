//! The seeded generator behind every choice of the simulator.
//!
//! Each domain (scheduling, network, disk, …) draws from a stream of its own, so that a change in one does not
//! move the choices of the others.

use std::time::Duration;

/// xoshiro256++ (Blackman, Vigna 2019), its state filled by splitmix64.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// The generator of `seed`'s stream with this number.
    pub fn new(seed: u64, stream: u64) -> Rng {
        let mut mixed = seed;
        let salt = splitmix(&mut mixed);
        let mut mixed = salt ^ stream.wrapping_mul(0xd134_2543_de82_ef95);
        Rng { state: std::array::from_fn(|_| splitmix(&mut mixed)) }
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a random number below nothing");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True so many times in a million.
    pub fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }

    /// A duration between the two, both included, in nanoseconds.
    pub fn between(&mut self, least: Duration, most: Duration) -> u64 {
        let (least, most) = (least.as_nanos() as u64, most.as_nanos() as u64);
        least + self.below(most.saturating_sub(least) + 1)
    }
}
