//! UUIDs: the layout of versions 1 and 4, their text, and conversions between a version 1 UUID and time.
//! Nothing here reads a clock or draws a random number: the caller passes both in.

/// 100-nanosecond ticks between the start of the Gregorian calendar (1582-10-15) and the Unix epoch.
pub const GREGORIAN_TO_UNIX_TICKS: i64 = 0x01B2_1DD2_1381_4000;

/// The largest time of a version 1 UUID, which has 60 bits, in ticks since the start of the Gregorian calendar.
const TICKS_MAX: i64 = (1 << 60) - 1;

/// The smallest and the largest clock-and-node half in the order of `timeuuid`, whose bytes compare signed.
const LEAST_CLOCK_AND_NODE: u64 = 0x8080_8080_8080_8080;
const GREATEST_CLOCK_AND_NODE: u64 = 0x7f7f_7f7f_7f7f_7f7f;

/// The two halves of a UUID; `None` unless there are 16 bytes.
pub(crate) fn halves(bytes: &[u8]) -> Option<(u64, u64)> {
    let bytes: &[u8; 16] = bytes.try_into().ok()?;
    let all = u128::from_be_bytes(*bytes);
    Some(((all >> 64) as u64, all as u64))
}

/// Moves a time half so that its integer order is: version, then timestamp.
#[inline]
pub(crate) fn time_order(high: u64) -> u64 {
    high << 48 | (high << 16 & 0xFFFF_0000_0000) | high >> 32
}

/// Undoes [`time_order`].
#[inline]
pub(crate) fn from_time_order(ordered: u64) -> u64 {
    ordered << 32 | (ordered >> 16 & 0xFFFF_0000) | ordered >> 48
}

/// Flips the sign bit of each byte, so that signed bytes compare as unsigned ones.
pub(crate) const SIGNED_BYTES: u64 = 0x8080_8080_8080_8080;

/// The two halves of a `uuid` in its own order: version first, then time for version 1, then the bytes.
#[inline]
pub(crate) fn uuid_order(high: u64, low: u64) -> (u64, u64) {
    let version = high >> 12 & 0xf;
    if version == 1 {
        return (time_order(high), low);
    }
    (version << 60 | (high >> 4 & 0x0FFF_FFFF_FFFF_F000) | (high & 0xFFF), low)
}

/// Undoes [`uuid_order`].
#[inline]
pub(crate) fn from_uuid_order(high: u64, low: u64) -> (u64, u64) {
    let version = high >> 60;
    if version == 1 {
        return (from_time_order(high), low);
    }
    ((high << 4 & 0xFFFF_FFFF_FFFF_0000) | version << 12 | (high & 0xFFF), low)
}

/// The version digit of a UUID; `None` unless there are 16 bytes.
pub fn version(bytes: &[u8]) -> Option<u8> {
    halves(bytes).map(|(high, _)| (high >> 12 & 0xf) as u8)
}

/// A version 1 UUID of `unix_ticks` (100-nanosecond ticks since the Unix epoch) and of a clock-and-node half, whose
/// variant bits the caller has set (see [`clock_and_node`]).
pub fn time_uuid(unix_ticks: i64, clock_and_node: u64) -> [u8; 16] {
    let ticks = unix_ticks.wrapping_add(GREGORIAN_TO_UNIX_TICKS) as u64;
    let high = (ticks & 0xFFFF_FFFF) << 32 | (ticks >> 32 & 0xFFFF) << 16 | 0x1000 | (ticks >> 48 & 0x0FFF);
    (u128::from(high) << 64 | u128::from(clock_and_node)).to_be_bytes()
}

/// The clock-and-node half of version 1 UUIDs: the variant bits, a 14-bit clock sequence and a 48-bit node.
pub fn clock_and_node(clock_sequence: u16, node: u64) -> u64 {
    0x8000_0000_0000_0000 | u64::from(clock_sequence & 0x3fff) << 48 | (node & 0xFFFF_FFFF_FFFF)
}

/// The smallest `timeuuid` of a millisecond: the result of `minTimeuuid`. Times before 1582 and after 5236, which a
/// version 1 UUID cannot hold, give the first and the last one that it can, so that comparisons with the result are right.
pub fn min_time_uuid(unix_ms: i64) -> [u8; 16] {
    time_uuid(within_time_uuids(unix_ms.saturating_mul(10_000)), LEAST_CLOCK_AND_NODE)
}

/// The largest `timeuuid` of a millisecond: the result of `maxTimeuuid`, within the same bounds.
pub fn max_time_uuid(unix_ms: i64) -> [u8; 16] {
    let last = unix_ms.saturating_add(1).saturating_mul(10_000).saturating_sub(1);
    time_uuid(within_time_uuids(last), GREATEST_CLOCK_AND_NODE)
}

/// The tick nearest to `unix_ticks` of which there are version 1 UUIDs.
fn within_time_uuids(unix_ticks: i64) -> i64 {
    unix_ticks.clamp(-GREGORIAN_TO_UNIX_TICKS, TICKS_MAX - GREGORIAN_TO_UNIX_TICKS)
}

/// A version 4 UUID of 16 random bytes.
pub fn random_uuid(random: [u8; 16]) -> [u8; 16] {
    let cleared = u128::from_be_bytes(random) & !(0xf << 76) & !(0b11 << 62);
    (cleared | 4 << 76 | 0b10 << 62).to_be_bytes()
}

/// The time of a version 1 UUID in 100-nanosecond ticks since the Unix epoch; `None` for other versions and lengths.
pub fn unix_ticks(bytes: &[u8]) -> Option<i64> {
    let (high, _) = halves(bytes)?;
    if high >> 12 & 0xf != 1 {
        return None;
    }
    let ticks = (high & 0x0FFF) << 48 | (high >> 16 & 0xFFFF) << 32 | high >> 32;
    Some(ticks as i64 - GREGORIAN_TO_UNIX_TICKS)
}

/// The time of a version 1 UUID in milliseconds since the Unix epoch; `None` for other versions and lengths.
pub fn unix_ms(bytes: &[u8]) -> Option<i64> {
    // Cassandra rounds the microseconds towards zero here.
    unix_micros(bytes).map(|micros| micros / 1_000)
}

/// The time of a version 1 UUID in microseconds since the Unix epoch; `None` for other versions and lengths.
pub fn unix_micros(bytes: &[u8]) -> Option<i64> {
    unix_ticks(bytes).map(|ticks| ticks.div_euclid(10))
}

/// The usual text of a UUID, in lower case; `None` unless there are 16 bytes.
pub fn format(bytes: &[u8]) -> Option<String> {
    let (high, low) = halves(bytes)?;
    Some(format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xFFFF,
        high & 0xFFFF,
        low >> 48,
        low & 0xFFFF_FFFF_FFFF
    ))
}

/// Reads the usual text: 8-4-4-4-12 hexadecimal digits in any case.
pub fn parse(text: &str) -> Option<[u8; 16]> {
    let bytes = text.as_bytes();
    if bytes.len() != 36 {
        return None;
    }
    let mut all = 0u128;
    for (i, byte) in bytes.iter().enumerate() {
        if matches!(i, 8 | 13 | 18 | 23) {
            if *byte != b'-' {
                return None;
            }
        } else {
            all = all << 4 | u128::from(char::from(*byte).to_digit(16)?);
        }
    }
    Some(all.to_be_bytes())
}
