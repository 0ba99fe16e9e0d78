//! Places in a feed, and the tokens by which a reader resumes (docs/design/feed.md).
//!
//! Tokens come back from files and over HTTP: the bytes are hostile.
#![deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used)]

use types::uuid;

/// The first byte of a token.
const VERSION: u8 = 1;
/// Version, table, time (8 + 8), stream, number.
const CONTENT_LEN: usize = 1 + 16 + 16 + 16 + 4;
/// The content and its checksum.
const TOKEN_LEN: usize = CONTENT_LEN + 4;
/// By which bytes that compare signed compare as unsigned ones: so `timeuuid`s are in order.
const SIGNED_BYTES: u64 = 0x8080_8080_8080_8080;
/// Ticks of a `timeuuid` in a microsecond.
const TICKS_PER_MICRO: i64 = 10;

/// A time of the log, in the order of `timeuuid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// 100-nanosecond ticks since 1970.
    pub ticks: i64,
    /// The order of the writes with these ticks.
    pub order: u64,
}

impl Time {
    /// Before all writes of a microsecond since 1970.
    pub fn of_micros(micros: i64) -> Self {
        Self { ticks: micros.saturating_mul(TICKS_PER_MICRO), order: 0 }
    }

    /// The time of a version 1 UUID; none for another one.
    pub fn of_uuid(bytes: &[u8; 16]) -> Option<Self> {
        let low = u64::from_be_bytes(*bytes.last_chunk()?);
        Some(Self { ticks: uuid::unix_ticks(bytes)?, order: low ^ SIGNED_BYTES })
    }

    /// The UUID of this time.
    pub fn uuid(self) -> [u8; 16] {
        uuid::time_uuid(self.ticks, self.order ^ SIGNED_BYTES)
    }

    /// Microseconds since 1970.
    pub fn micros(self) -> i64 {
        self.ticks.div_euclid(TICKS_PER_MICRO)
    }
}

/// The place of a change in the feed of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The time of the write.
    pub time: Time,
    /// The stream of the log: two writes may have one time.
    pub stream: [u8; 16],
    /// The number of the change in its write.
    pub number: u32,
}

impl Position {
    /// Before all changes of a time.
    pub fn before(time: Time) -> Self {
        Self { time, stream: [0; 16], number: 0 }
    }

    /// The next place.
    pub fn next(self) -> Self {
        Self { number: self.number.saturating_add(1), ..self }
    }
}

/// The token of a place in the feed of a table's log.
pub fn encode(log: [u8; 16], position: Position) -> String {
    let mut bytes = Vec::with_capacity(TOKEN_LEN);
    bytes.push(VERSION);
    bytes.extend(log);
    bytes.extend(position.time.ticks.to_be_bytes());
    bytes.extend(position.time.order.to_be_bytes());
    bytes.extend(position.stream);
    bytes.extend(position.number.to_be_bytes());
    bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The log and the place that a token names.
///
/// # Errors
/// A sentence for the user when the text is no token, was changed, or is of another version.
pub fn decode(token: &str) -> Result<([u8; 16], Position), String> {
    let none = || {
        format!(
            "the token is malformed: it has {} digits 0-9 and a-f, as a change of the feed has them in `token`",
            2 * TOKEN_LEN
        )
    };
    if token.len() > 2 * TOKEN_LEN {
        return Err(none());
    }
    let bytes = bytes_of_hex(token).ok_or_else(none)?;
    let version = *bytes.first().ok_or_else(none)?;
    if version != VERSION {
        return Err(format!("the token is of version {version}, this program reads version {VERSION}"));
    }
    let (content, sum) = bytes.split_last_chunk::<4>().ok_or_else(none)?;
    if content.len() != CONTENT_LEN {
        return Err(none());
    }
    if crc32fast::hash(content).to_be_bytes() != *sum {
        return Err("the token was changed: its checksum is wrong".to_owned());
    }
    let mut rest = content.get(1..).unwrap_or_default();
    let log = *take::<16>(&mut rest).ok_or_else(none)?;
    let ticks = i64::from_be_bytes(*take::<8>(&mut rest).ok_or_else(none)?);
    let order = u64::from_be_bytes(*take::<8>(&mut rest).ok_or_else(none)?);
    let stream = *take::<16>(&mut rest).ok_or_else(none)?;
    let number = u32::from_be_bytes(*take::<4>(&mut rest).ok_or_else(none)?);
    Ok((log, Position { time: Time { ticks, order }, stream, number }))
}

fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(first)
}

/// The bytes of hexadecimal digits.
pub fn bytes_of_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;

    fn position() -> Position {
        let time = Time { ticks: 17_640_000_000_000_001, order: 0xfedc_ba98_7654_3210 };
        Position { time, stream: [7; 16], number: 3 }
    }

    #[test]
    fn tokens_are_read_as_they_were_written() {
        for position in [position(), position().next(), Position::before(Time::of_micros(0))] {
            let token = encode([9; 16], position);
            assert_eq!(decode(&token), Ok(([9; 16], position)), "{token}");
            assert_eq!(decode(&token.to_uppercase()), Ok(([9; 16], position)));
        }
        let time = position().time;
        assert_eq!(Time::of_uuid(&time.uuid()), Some(time));
    }

    #[test]
    fn changed_tokens_are_refused() {
        let token = encode([9; 16], position());
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(decode(&changed).is_err(), "{at}");
            assert!(decode(&token[..at]).is_err(), "{at}");
        }
        for text in ["", "x", "é", "01", &format!("{token}00"), &"0".repeat(100_000)] {
            assert!(decode(text).is_err());
        }
        let newer = format!("02{}", &token[2..]);
        assert!(decode(&newer).unwrap_err().contains("version 2"));
    }

    #[test]
    fn times_are_in_the_order_of_timeuuid() {
        let mut times: Vec<Time> = Vec::new();
        for ticks in [-5, 0, 1, i64::from(u32::MAX) + 1, 17_640_000_000_000_000] {
            times.extend([0, 1, 1 << 63, u64::MAX].map(|order| Time { ticks, order }));
        }
        let by_type =
            |left: &Time, right: &Time| types::CqlType::Timeuuid.compare(&left.uuid(), &right.uuid());
        assert!(times.is_sorted());
        assert!(times.is_sorted_by(|left, right| by_type(left, right).is_lt()));
    }
}
