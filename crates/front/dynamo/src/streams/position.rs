//! Places in a stream: the order of its records, sequence numbers, and iterators.

use types::uuid;

use crate::error::{ApiError, ErrorKind, Result, invalid};
use crate::request::constraint;
use crate::streams::definition::parts_of_arn;

/// Digits of the parts of a sequence number: microseconds, the order of writes in one of them, the place in a write. Forty in all, which is the
/// most that AWS has.
const MICROS_DIGITS: usize = 16;
const ORDER_DIGITS: usize = 19;
const NUMBER_DIGITS: usize = 5;
const DIGITS: usize = MICROS_DIGITS + ORDER_DIGITS + NUMBER_DIGITS;
/// The last time that a sequence number can have.
const MICROS_MAX: i64 = 9_999_999_999_999_999;
/// The fewest digits of AWS's sequence numbers.
const DIGITS_MIN: usize = 21;
/// The largest last part of a sequence number. Further records of one write, which only CQL can make so large, have this one, too.
const NUMBER_MAX: u32 = 99_999;
/// The most characters of an iterator.
const ITERATOR_LEN_MAX: usize = 2048;
/// How long an iterator may be used, microseconds.
const ITERATOR_LIFE_MICROS: i64 = 15 * 60 * 1_000_000;
/// By which bytes that compare signed compare as unsigned ones: so `timeuuid`s are in order.
const SIGNED_BYTES: u64 = 0x8080_8080_8080_8080;

/// The place of a record among those of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    /// The timestamp of the write, microseconds since 1970.
    pub(crate) micros: i64,
    /// The order of writes with this timestamp.
    pub(crate) order: u64,
    /// The place of the item in its write.
    pub(crate) number: u32,
}

impl Position {
    /// Before all writes of a time.
    pub(crate) fn before(micros: i64) -> Self {
        Self { micros, order: 0, number: 0 }
    }

    /// The first record of a write, by its `cdc$time`; none when that is no time.
    pub(crate) fn of_time(time: &[u8]) -> Option<Self> {
        let low = u64::from_be_bytes(*time.last_chunk()?);
        Some(Self { micros: uuid::unix_micros(time)?, order: low ^ SIGNED_BYTES, number: 0 })
    }

    /// The `cdc$time` of its write.
    pub(crate) fn time(self) -> [u8; 16] {
        uuid::time_uuid(self.micros.wrapping_mul(10), self.order ^ SIGNED_BYTES)
    }

    /// The next place of the same write.
    pub(crate) fn next(self) -> Self {
        Self { number: self.number.saturating_add(1), ..self }
    }

    pub(crate) fn sequence_number(self) -> String {
        let number = self.number.min(NUMBER_MAX);
        format!("{:0MICROS_DIGITS$}{:0ORDER_DIGITS$}{number:0NUMBER_DIGITS$}", self.micros.max(0), self.order)
    }

    /// The place of a sequence number.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn of_sequence_number(text: &str) -> Result<Self> {
        const PLACE: &str = "sequenceNumber";
        if text.len() < DIGITS_MIN {
            let bound = format!("Member must have length greater than or equal to {DIGITS_MIN}");
            return constraint(text, PLACE, &bound);
        }
        if text.len() > DIGITS {
            let bound = format!("Member must have length less than or equal to {DIGITS}");
            return constraint(text, PLACE, &bound);
        }
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return constraint(text, PLACE, "Member must satisfy regular expression pattern: \\d+");
        }
        let text = format!("{text:0>DIGITS$}");
        let (micros, rest) = text.split_at(MICROS_DIGITS);
        let (order, number) = rest.split_at(ORDER_DIGITS);
        match (micros.parse(), order.parse(), number.parse()) {
            (Ok(micros), Ok(order), Ok(number)) => Ok(Self { micros, order, number }),
            _ => invalid!("Invalid SequenceNumber"),
        }
    }
}

/// The position at which a reader of a shard resumes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ShardIterator {
    /// Of the stream.
    pub(crate) table: String,
    pub(crate) label: String,
    pub(crate) shard: u32,
    /// The first record that is wanted, if it is there.
    pub(crate) position: Position,
    /// When it was given out, microseconds since 1970.
    pub(crate) issued_micros: i64,
}

impl ShardIterator {
    /// The text for clients; `arn` is that of the stream.
    pub(crate) fn encode(&self, arn: &str) -> String {
        let Position { micros, order, number } = self.position;
        format!("{arn}|1|{}.{}.{micros}.{order}.{number}", self.issued_micros, self.shard)
    }

    /// The iterator of a text.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn decode(text: &str) -> Result<Self> {
        if text.is_empty() || text.len() > ITERATOR_LEN_MAX {
            let bound = match text.is_empty() {
                true => "greater than or equal to 1".to_owned(),
                false => format!("less than or equal to {ITERATOR_LEN_MAX}"),
            };
            return constraint(text, "shardIterator", &format!("Member must have length {bound}"));
        }
        Self::parse(text).ok_or_else(|| ApiError::validation("Invalid ShardIterator"))
    }

    fn parse(text: &str) -> Option<Self> {
        let (arn, fields) = text.split_once("|1|")?;
        let (table, label) = parts_of_arn(arn)?;
        let mut fields = fields.split('.');
        let mut next = || fields.next();
        let iterator = Self {
            table: table.to_owned(),
            label: label.to_owned(),
            issued_micros: next()?.parse().ok()?,
            shard: next()?.parse().ok()?,
            position: Position {
                micros: next()?.parse().ok().filter(|micros| (0..=MICROS_MAX).contains(micros))?,
                order: next()?.parse().ok()?,
                number: next()?.parse().ok()?,
            },
        };
        fields.next().is_none().then_some(iterator)
    }

    /// Refuses an iterator that is too old, or of the future.
    pub(crate) fn check_age(&self, now_micros: i64) -> Result<()> {
        let age = now_micros.saturating_sub(self.issued_micros);
        if (-ITERATOR_LIFE_MICROS..=ITERATOR_LIFE_MICROS).contains(&age) {
            return Ok(());
        }
        let text = "Iterator expired. An iterator can be used for 15 minutes after it was given out";
        Err(ApiError::new(ErrorKind::ExpiredIterator, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: [Position; 5] = [
        Position { micros: 0, order: 0, number: 0 },
        Position { micros: 1_764_000_000_000_000, order: 0, number: 7 },
        Position { micros: 1_764_000_000_000_000, order: 1, number: 0 },
        Position { micros: 1_764_000_000_000_000, order: (1 << 62) - 1, number: 99_999 },
        Position { micros: MICROS_MAX, order: 9_999_999_999_999_999_999, number: 1 },
    ];

    #[test]
    fn sequence_numbers_are_in_the_order_of_their_places() {
        let numbers: Vec<String> = PLACES.iter().map(|place| place.sequence_number()).collect();
        assert!(numbers.is_sorted() && numbers.iter().all(|number| number.len() == 40));
        for (place, number) in PLACES.iter().zip(&numbers) {
            assert_eq!(Position::of_sequence_number(number), Ok(*place));
        }
        for text in [
            "",
            "1",
            &"1".repeat(20),
            &"1".repeat(41),
            "-00000000000000000000000001",
            "1e000000000000000000000000",
        ] {
            assert!(Position::of_sequence_number(text).is_err(), "{text}");
        }
        assert!(Position::of_sequence_number(&"9".repeat(40)).is_ok());
    }

    #[test]
    fn times_of_places_are_in_their_order() {
        let ty = types::CqlType::Timeuuid;
        for pair in PLACES[..4].windows(2) {
            let [first, second] = [pair[0], pair[1]].map(|place| Position { number: 0, ..place });
            assert_eq!(ty.compare(&first.time(), &second.time()), first.cmp(&second));
            assert_eq!(Position::of_time(&second.time()), Some(second));
        }
    }

    #[test]
    fn iterators_are_read_as_they_were_written() {
        let arn = "arn:aws:dynamodb:us-east-1:000000000000:table/t.x/stream/2026-11-24T00:00:00.000";
        for position in PLACES {
            let iterator = ShardIterator {
                table: "t.x".to_owned(),
                label: "2026-11-24T00:00:00.000".to_owned(),
                shard: 3,
                position,
                issued_micros: 5,
            };
            assert_eq!(ShardIterator::decode(&iterator.encode(arn)), Ok(iterator));
        }
        for fields in ["", "1.2.3.4", "1.2.3.4.5.6", "1.2.-3.4.5", "1.2.10000000000000000.4.5", "1.2.3.4.x"] {
            assert!(ShardIterator::decode(&format!("{arn}|1|{fields}")).is_err(), "{fields}");
        }
        for text in ["", "x", "|1|", &format!("{arn}|2|1.2.3.4.5"), &"x".repeat(3000)] {
            assert!(ShardIterator::decode(text).is_err(), "{text}");
        }
    }

    #[test]
    fn iterators_end_after_a_quarter_of_an_hour() {
        let of = |issued_micros| ShardIterator {
            table: String::new(),
            label: String::new(),
            shard: 0,
            position: PLACES[0],
            issued_micros,
        };
        assert!(of(0).check_age(ITERATOR_LIFE_MICROS).is_ok());
        assert!(of(0).check_age(ITERATOR_LIFE_MICROS + 1).is_err());
        assert!(of(i64::MIN).check_age(i64::MAX).is_err() && of(i64::MAX).check_age(0).is_err());
    }
}
