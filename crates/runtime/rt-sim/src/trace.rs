//! The trace: every decision of a run folded into one number, and optionally the last of them as text.
//!
//! Two runs of one seed must give the same number; where they do not, the texts show the first difference.

use std::collections::VecDeque;
use std::fmt::Write;

/// The folded trace of a run.
pub(crate) struct Trace {
    hash: u64,
    events: u64,
    lines: VecDeque<String>,
    lines_max: usize,
    lines_from: u64,
    blocks: Vec<u64>,
}

/// The interval of events at which the hash is recorded, to find the first difference of two runs.
pub const TRACE_BLOCK: u64 = 1024;

/// A 64-bit hash of bytes, for the content of writes and messages. Fixed for ever: seeds refer to it.
pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ bytes.len() as u64;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = mix(hash, u64::from_le_bytes(*word));
    }
    for byte in rest {
        hash = mix(hash, u64::from(*byte));
    }
    hash
}

fn mix(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

impl Trace {
    /// A trace that records the last `lines_max` events as text; with `lines_from`, the first ones from that event on.
    pub(crate) fn new(lines_max: usize, lines_from: u64) -> Trace {
        Trace { hash: 0, events: 0, lines: VecDeque::new(), lines_max, lines_from, blocks: Vec::new() }
    }

    /// Folds an event in.
    pub(crate) fn note(&mut self, now: u64, what: &'static str, words: &[u64]) {
        self.events += 1;
        self.hash = mix(self.hash, hash_bytes(what.as_bytes()));
        self.hash = mix(self.hash, now);
        for word in words {
            self.hash = mix(self.hash, *word);
        }
        if self.events.is_multiple_of(TRACE_BLOCK) {
            self.blocks.push(self.hash);
        }
        if self.lines_max > 0 && self.events > self.lines_from {
            if self.lines.len() == self.lines_max {
                if self.lines_from > 0 {
                    return;
                }
                self.lines.pop_front();
            }
            let mut line = format!("{}.{:09} {what}", now / 1_000_000_000, now % 1_000_000_000);
            for word in words {
                let _ = write!(line, " {word:x}");
            }
            self.lines.push_back(line);
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    pub(crate) fn blocks(&self) -> &[u64] {
        &self.blocks
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }
}
