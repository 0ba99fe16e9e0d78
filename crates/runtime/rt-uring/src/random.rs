//! Randomness from the kernel, and a fast generator seeded by it.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::io;

use rt::driver::Random;

/// The generator of one shard: xoshiro256** (Blackman, Vigna 2018), seeded by the kernel.
pub(crate) struct SystemRandom {
    state: Cell<[u64; 4]>,
}

impl SystemRandom {
    pub(crate) fn new() -> SystemRandom {
        let mut seed = [0u8; 32];
        fill_from_kernel(&mut seed);
        let (words, _) = seed.as_chunks::<8>();
        let mut state = [0u64; 4];
        for (target, word) in state.iter_mut().zip(words) {
            *target = u64::from_le_bytes(*word);
        }
        // The all-zero state is the only one that the generator never leaves.
        state[0] |= u64::from(state == [0; 4]);
        SystemRandom { state: Cell::new(state) }
    }
}

impl Random for SystemRandom {
    fn next_u64(&self) -> u64 {
        let mut s = self.state.get();
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        self.state.set(s);
        result
    }

    fn fill(&self, bytes: &mut [u8]) {
        fill_from_kernel(bytes);
    }
}

fn fill_from_kernel(mut bytes: &mut [u8]) {
    while !bytes.is_empty() {
        // SAFETY: the pointer and the length describe a slice that is exclusively ours.
        let filled = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        if filled < 0 {
            let error = io::Error::last_os_error();
            assert!(error.kind() == io::ErrorKind::Interrupted, "the kernel gives no randomness: {error}");
            continue;
        }
        bytes = &mut bytes[filled as usize..];
    }
}
