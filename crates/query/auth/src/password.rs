//! Passwords as bcrypt hashes (`$2a$10$…`), the form of Cassandra.
//!
//! A hash of the usual cost takes tens of milliseconds of CPU on purpose. A shard has one thread, so that the 2^cost steps of the key
//! schedule are made in slices: after each the task asks whether others have to run. No thread is needed, the simulator sees the
//! same code, and the work belongs to the scheduling group of its task.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::fmt;

use blowfish::Blowfish;
use rt::preempt::Pace;

/// The cost of hashes that this node makes, unless the configuration says otherwise.
pub const COST_DEFAULT: u32 = 10;
/// The lowest cost of bcrypt.
pub const COST_MIN: u32 = 4;
/// The highest cost of a hash that is accepted: a login with it takes seconds.
pub const COST_MAX: u32 = 16;

/// The longest password: bcrypt takes no notice of bytes after the 72nd, and one that is much longer is no password.
pub const PASSWORD_LEN_MAX: usize = 1024;

const ALPHABET: &[u8; 64] = b"./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const SALT_LEN: usize = 16;
/// One byte less than the cipher gives, for historical reasons.
const DIGEST_LEN: usize = 23;
/// A step is as long as so many of [`Pace`]: the clock is looked at after each.
const PACE_STEPS: usize = 64;

/// The hash of a password with salt and cost.
#[derive(Clone, PartialEq, Eq)]
pub struct Hash {
    /// The letter after `$2`.
    variant: u8,
    cost: u32,
    salt: [u8; SALT_LEN],
    digest: [u8; DIGEST_LEN],
}

impl Hash {
    /// Hashes a password.
    ///
    /// # Panics
    /// When the cost is not from [`COST_MIN`] to [`COST_MAX`].
    pub async fn new(password: &str, cost: u32, salt: [u8; SALT_LEN]) -> Self {
        assert!((COST_MIN..=COST_MAX).contains(&cost), "the configuration was checked");
        Self { variant: b'a', cost, salt, digest: bcrypt(password.as_bytes(), cost, &salt).await }
    }

    /// Whether it is that of this password. Takes the same time when it is not.
    pub async fn matches(&self, password: &str) -> bool {
        let digest = bcrypt(password.as_bytes(), self.cost, &self.salt).await;
        let different = digest.iter().zip(&self.digest).fold(0, |different, (a, b)| different | (a ^ b));
        different == 0
    }

    /// A hash that no password has, of this cost: checking against it takes as long as against another.
    pub fn of_nobody(cost: u32) -> Self {
        Self {
            variant: b'a',
            cost: cost.clamp(COST_MIN, COST_MAX),
            salt: [0; SALT_LEN],
            digest: [0; DIGEST_LEN],
        }
    }

    /// Reads `$2a$10$…`; none for anything else, and for costs outside the accepted ones.
    pub fn parse(text: &str) -> Option<Self> {
        let [b'$', b'2', variant @ (b'a' | b'b' | b'y'), b'$', tens, ones, b'$', encoded @ ..] =
            text.as_bytes()
        else {
            return None;
        };
        let digit = |byte: &u8| char::from(*byte).to_digit(10);
        let cost = digit(tens)? * 10 + digit(ones)?;
        if !(COST_MIN..=COST_MAX).contains(&cost) || encoded.len() != 22 + 31 {
            return None;
        }
        let (salt, digest) = encoded.split_at(22);
        Some(Self { variant: *variant, cost, salt: decode(salt)?, digest: decode(digest)? })
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variant = char::from(self.variant);
        write!(f, "$2{variant}${:02}${}{}", self.cost, encode(&self.salt), encode(&self.digest))
    }
}

impl fmt::Debug for Hash {
    /// Never shows the hash.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hash(***)")
    }
}

/// A password that nobody guesses, of letters and digits.
#[expect(clippy::indexing_slicing, reason = "62 letters and digits follow the first two")]
pub fn generated(random: [u8; 16]) -> String {
    random.iter().map(|byte| char::from(ALPHABET[2 + usize::from(*byte) % 62])).collect()
}

#[expect(
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "the text is cut into eight bytes, and the digest is longer than the cut"
)]
async fn bcrypt(password: &[u8], cost: u32, salt: &[u8; SALT_LEN]) -> [u8; DIGEST_LEN] {
    let mut key = password.to_vec();
    key.push(0);
    let mut cipher = Box::new(Blowfish::bc_init_state());
    cipher.salted_expand_key(salt, &key);
    let mut pace = Pace::new();
    for _ in 0..1_u32 << cost {
        cipher.bc_expand_key(&key);
        cipher.bc_expand_key(salt);
        pace.steps(PACE_STEPS).await;
    }
    let mut digest = [0; 24];
    for (block, text) in digest.chunks_exact_mut(8).zip(b"OrpheanBeholderScryDoubt".chunks_exact(8)) {
        let word = |at: usize| u32::from_be_bytes(text[at..at + 4].try_into().expect("four bytes"));
        let mut words = [word(0), word(4)];
        for _ in 0..64 {
            words = cipher.bc_encrypt(words);
        }
        block[..4].copy_from_slice(&words[0].to_be_bytes());
        block[4..].copy_from_slice(&words[1].to_be_bytes());
    }
    let mut cut = [0; DIGEST_LEN];
    cut.copy_from_slice(&digest[..DIGEST_LEN]);
    cut
}

/// bcrypt's own base64: another alphabet, and no padding.
#[expect(clippy::indexing_slicing, reason = "the index has six bits")]
fn encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 4 / 3 + 1);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..=chunk.len() {
            out.push(char::from(ALPHABET[(bits >> (18 - 6 * at)) as usize & 63]));
        }
    }
    out
}

#[expect(clippy::indexing_slicing, reason = "the place is below the length")]
fn decode<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let mut out = [0; N];
    let (mut bits, mut have, mut at) = (0_u32, 0, 0);
    for byte in text {
        let value = ALPHABET.iter().position(|known| known == byte)?;
        bits = bits << 6 | value as u32;
        have += 6;
        if have >= 8 && at < N {
            have -= 8;
            out[at] = (bits >> have) as u8;
            at += 1;
        }
        bits &= 0xFFF;
    }
    (at == N).then_some(out)
}
