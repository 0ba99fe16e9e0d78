//! Estimated number of distinct partitions: HyperLogLog++ with 2^13 registers and a sparse form of 25 bits, in the bytes
//! that Cassandra's library reads and writes.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use crate::{DecodeError, decode::Decoder};

const P: u32 = 13;
const SP: u32 = 25;
const REGISTERS: usize = 1 << P;
/// Registers of five bits, six to a word.
const WORDS: usize = REGISTERS / 6 + 1;
const _: () = assert!(WORDS * 6 >= REGISTERS, "every register lies in a word");
/// A sparse set larger than this becomes registers.
const SPARSE_MAX: usize = REGISTERS / 4 * 3;
/// New entries that are gathered before they are merged into the sparse set.
const GATHERED_MAX: usize = SPARSE_MAX / 4;
/// Below this estimate counting empty registers is more exact.
const LINEAR_BELOW: f64 = 6500.0;
const VERSION: i32 = -2;

/// A sketch of a set of partition keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cardinality {
    form: Form,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    Sparse { set: Vec<i32>, gathered: Vec<i32> },
    Dense(Vec<u32>),
}

impl Default for Cardinality {
    fn default() -> Self {
        Self { form: Form::Sparse { set: Vec::new(), gathered: Vec::new() } }
    }
}

/// The slot of an entry of the sparse form.
fn slot(entry: i32) -> u32 {
    let entry = entry as u32;
    if entry & 1 == 1 { entry >> 7 } else { entry >> 1 }
}

fn encode_hash(hash: u64) -> i32 {
    let slot = (hash >> (64 - SP)) as u32;
    if slot << (32 - SP + P) == 0 {
        // The run of zeros goes beyond the slot's bits: it is stored, inverted.
        let run = run_length(hash);
        ((((slot << 6) | (run ^ 0x3f)) << 1) | 1) as i32
    } else {
        (slot << 1) as i32
    }
}

fn run_length(hash: u64) -> u32 {
    ((hash << P) | (1 << (P - 1))).leading_zeros() + 1
}

fn entry_run(entry: i32) -> u32 {
    if entry & 1 == 1 {
        ((entry as u32 >> 1) & 0x3f) ^ 0x3f
    } else {
        ((entry as u32) << (P + 31 - SP)).leading_zeros() + 1
    }
}

fn register(words: &[u32], at: usize) -> u32 {
    words.get(at / 6).map_or(0, |word| (word >> (5 * (at % 6))) & 31)
}

fn raise(words: &mut [u32], at: usize, run: u32) {
    let run = run.min(31);
    if register(words, at) < run {
        let shift = 5 * (at % 6);
        if let Some(word) = words.get_mut(at / 6) {
            *word = (*word & !(31 << shift)) | (run << shift);
        }
    }
}

impl Cardinality {
    /// Adds a partition key.
    pub fn add(&mut self, key: &[u8]) {
        self.add_hash(murmur2(key));
    }

    fn add_hash(&mut self, hash: u64) {
        match &mut self.form {
            Form::Dense(words) => raise(words, (hash >> (64 - P)) as usize, run_length(hash)),
            Form::Sparse { set, gathered } => {
                gathered.push(encode_hash(hash));
                if gathered.len() > GATHERED_MAX {
                    merge_gathered(set, gathered);
                    assert!(gathered.is_empty(), "gathered entries are merged into the set");
                    if set.len() > SPARSE_MAX {
                        self.make_dense();
                    }
                }
            }
        }
    }

    fn make_dense(&mut self) {
        if let Form::Sparse { set, gathered } = &mut self.form {
            let mut words = vec![0; WORDS];
            for entry in set.iter().chain(gathered.iter()) {
                raise(&mut words, (slot(*entry) >> (SP - P)) as usize, entry_run(*entry));
            }
            self.form = Form::Dense(words);
        }
    }

    /// Adds the values of another sketch.
    pub fn merge(&mut self, other: &Self) {
        if let (Form::Sparse { set, gathered }, Form::Sparse { set: theirs, gathered: more }) =
            (&mut self.form, &other.form)
        {
            for part in [theirs, more] {
                gathered.extend_from_slice(part);
                merge_gathered(set, gathered);
            }
            if set.len() > SPARSE_MAX {
                self.make_dense();
            }
            return;
        }
        self.make_dense();
        let mut theirs = other.clone();
        theirs.make_dense();
        if let (Form::Dense(mine), Form::Dense(theirs)) = (&mut self.form, &theirs.form) {
            (0..REGISTERS).for_each(|at| raise(mine, at, register(theirs, at)));
        }
    }

    /// About how many distinct keys were added (an error of 1 or 2 per cent).
    pub fn estimate(&self) -> u64 {
        let linear = |all: f64, empty: f64| all * (all / empty.max(1.0)).ln();
        match &self.form {
            Form::Sparse { set, gathered } => {
                let mut set = set.clone();
                merge_gathered(&mut set, &mut gathered.clone());
                let slots = f64::from(1u32 << SP);
                linear(slots, slots - set.len() as f64).round() as u64
            }
            Form::Dense(words) => {
                let m = REGISTERS as f64;
                let (mut sum, mut empty) = (0.0, 0.0);
                for at in 0..REGISTERS {
                    let value = register(words, at);
                    sum += 1.0 / f64::from(1u32 << value);
                    empty += f64::from(u8::from(value == 0));
                }
                let raw = 0.7213 / (1.0 + 1.079 / m) * m * m / sum;
                let counted = linear(m, empty);
                let estimate = if empty > 0.0 && counted < LINEAR_BELOW { counted } else { raw };
                estimate.round() as u64
            }
        }
    }

    /// The sketch's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        out.extend_from_slice(&VERSION.to_be_bytes());
        write_varint(P, &mut out);
        write_varint(SP, &mut out);
        match &self.form {
            Form::Dense(words) => {
                assert_eq!(words.len(), WORDS, "all registers are written");
                write_varint(0, &mut out);
                write_varint(WORDS as u32 * 4, &mut out);
                words.iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
            }
            Form::Sparse { set, gathered } => {
                let mut set = set.clone();
                merge_gathered(&mut set, &mut gathered.clone());
                write_varint(1, &mut out);
                write_varint(set.len() as u32, &mut out);
                let mut last = 0i32;
                for entry in set {
                    write_varint(entry.wrapping_sub(last) as u32, &mut out);
                    last = entry;
                }
            }
        }
        out
    }

    /// Decodes the output of [`Cardinality::encode`]. Sketches of another precision give none: they only help estimates.
    ///
    /// # Errors
    /// A [`DecodeError`] when a sketch of this precision is cut off, something follows it, or it is in an unknown form.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        if decoder.i32("version of the sketch")? != VERSION
            || read_varint(&mut decoder)? != P
            || read_varint(&mut decoder)? != SP
        {
            return Ok(None);
        }
        let form = match read_varint(&mut decoder)? {
            0 => {
                let len = read_varint(&mut decoder)? as usize;
                if len != WORDS * 4 {
                    return Err(decoder.wrong(
                        2,
                        format!("{} bytes of registers", WORDS * 4),
                        len.to_string(),
                    ));
                }
                let mut words = Vec::with_capacity(WORDS);
                for _ in 0..WORDS {
                    words.push(decoder.u32("registers")?);
                }
                Form::Dense(words)
            }
            1 => {
                let len = read_varint(&mut decoder)? as usize;
                if len > decoder.left() {
                    return Err(decoder.wrong(
                        1,
                        format!("at most {} entries", decoder.left()),
                        len.to_string(),
                    ));
                }
                let mut set = Vec::with_capacity(len);
                let mut last = 0i32;
                for _ in 0..len {
                    last = last.wrapping_add(read_varint(&mut decoder)? as i32);
                    set.push(last);
                }
                Form::Sparse { set, gathered: Vec::new() }
            }
            other => return Err(decoder.wrong(1, "form 0 or 1 of a sketch", other.to_string())),
        };
        decoder.end()?;
        Ok(Some(Self { form }))
    }
}

/// Merges gathered entries into the set, one a slot. The order is that of the library: entries are sorted by slot, sets are
/// merged by value.
fn merge_gathered(set: &mut Vec<i32>, gathered: &mut Vec<i32>) {
    if gathered.is_empty() {
        return;
    }
    let hash_bits = |entry: i32| (entry as u32).wrapping_shl(P + 31 - SP) as i32;
    gathered.sort_by_key(|entry| (slot(*entry), hash_bits(*entry)));
    gathered.dedup_by_key(|entry| slot(*entry));
    let old = std::mem::take(set);
    let (mut left, mut right) = (old.into_iter().peekable(), gathered.drain(..).peekable());
    loop {
        match (left.peek().copied(), right.peek().copied()) {
            (Some(a), Some(b)) if slot(a) == slot(b) => {
                set.push(a.min(b));
                left.next();
                right.next();
            }
            (Some(a), Some(b)) if a < b => set.extend(left.next()),
            (_, Some(_)) => set.extend(right.next()),
            (Some(_), None) => set.extend(left.next()),
            (None, None) => break,
        }
    }
}

fn write_varint(mut value: u32, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn read_varint(decoder: &mut Decoder<'_>) -> Result<u32, DecodeError> {
    let mut value = 0u32;
    for shift in (0..35).step_by(7) {
        let byte = decoder.u8("a number of the sketch")?;
        value |= u32::from(byte & 0x7f).wrapping_shl(shift);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(decoder.wrong(5, "a number of at most 5 bytes", "a longer one"))
}

/// Murmur2 with 64 bits (64A), tail bytes sign-extended.
fn murmur2(key: &[u8]) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    let mut hash = M.wrapping_mul(key.len() as u64);
    let (blocks, tail) = key.as_chunks::<8>();
    for block in blocks {
        let mut k = u64::from_le_bytes(*block).wrapping_mul(M);
        k ^= k >> 47;
        hash = (hash ^ k.wrapping_mul(M)).wrapping_mul(M);
    }
    if !tail.is_empty() {
        for (at, byte) in tail.iter().enumerate() {
            hash ^= (i64::from(*byte as i8) << (8 * at)) as u64;
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 47;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 47)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_and_round_trips() {
        let mut sketch = Cardinality::default();
        let mut added = 0u32;
        for size in [0u32, 1, 100, 1600, 5000, 20_000, 300_000] {
            while added < size {
                sketch.add(&added.to_be_bytes());
                added += 1;
            }
            let estimate = sketch.estimate() as f64;
            assert!((estimate - f64::from(size)).abs() <= f64::from(size) * 0.04, "{estimate} for {size}");
            let bytes = sketch.encode();
            let read = Cardinality::decode(&bytes).unwrap().unwrap();
            assert_eq!(read.estimate(), sketch.estimate());
            assert_eq!(read.encode(), bytes);
            for cut in 0..bytes.len().min(200) {
                assert!(!matches!(Cardinality::decode(&bytes[..cut]), Ok(Some(_))), "{cut}");
            }
        }
    }

    #[test]
    fn merged_sketches_count_the_union() {
        for (first, second) in [(0..50u32, 25..75u32), (0..500, 400..30_000), (0..30_000, 0..40_000)] {
            let size = f64::from(second.end);
            let sketch = |keys: std::ops::Range<u32>| {
                let mut sketch = Cardinality::default();
                keys.for_each(|key| sketch.add(&key.to_be_bytes()));
                sketch
            };
            let mut merged = sketch(first);
            merged.merge(&sketch(second));
            assert!((merged.estimate() as f64 - size).abs() < size * 0.04);
        }
    }
}
