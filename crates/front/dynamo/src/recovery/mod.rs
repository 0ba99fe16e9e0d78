//! Recovery of tables to a point in time, from the log of their changes (docs/design/pitr.md).

pub(crate) mod definition;
pub(crate) mod net;
mod restoration;

pub(crate) use restoration::{MICROS_MAX, restored_from, unseen};

use schema::TableId;
use serde_json::{Value as Json, json};

use crate::intent::{hex, unhex};
use crate::names::arn;
use crate::streams::shard::SHARD_BITS_MAX;

/// The longest time between a point in time and a change behind it, microseconds: longer than any period, with the time that a restoration takes.
const SPAN_MICROS_MAX: i64 = 100 * 24 * 3600 * 1_000_000;
// A bit for each part says whether it is done.
const _: () = assert!(1 << SHARD_BITS_MAX <= u64::BITS);

/// A table that is, or is to become, the state of another at a point in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recovered {
    pub(crate) source: String,
    pub(crate) source_id: TableId,
    /// The changes with this timestamp and later ones are left out, microseconds since 1970.
    pub(crate) micros: i64,
    /// When it was asked for, microseconds since 1970.
    pub(crate) at_micros: i64,
    /// It has two to the power of this many parts, which are equal parts of the ring, as shards of streams.
    pub(crate) part_bits: u32,
    /// A bit for each part that is done.
    pub(crate) done: u64,
    /// When a node last recorded progress, milliseconds since 1970; 0 for never.
    pub(crate) progress_millis: i64,
    /// When it was done, milliseconds since 1970; 0 while it is not.
    pub(crate) ended_millis: i64,
}

impl Recovered {
    pub(crate) fn in_progress(&self) -> bool {
        self.ended_millis == 0
    }

    /// The parts that are not done.
    pub(crate) fn left(&self) -> impl Iterator<Item = u32> + '_ {
        (0..1 << self.part_bits).filter(|part| self.done & 1 << part == 0)
    }

    /// The timestamp of the copy of an item, below those of all images.
    pub(crate) fn timestamp_of_copy(&self) -> i64 {
        self.at_micros - 2 * (SPAN_MICROS_MAX + 1)
    }

    /// The timestamp of the image before a change: the earlier the change, the later. A put deletes a microsecond below its cells, so that two
    /// have to be between any two.
    pub(crate) fn timestamp_of_image(&self, changed_micros: i64) -> i64 {
        let behind = changed_micros - self.micros;
        assert!((0..=SPAN_MICROS_MAX).contains(&behind), "a change behind the point in time");
        self.at_micros - 2 * behind
    }

    /// `RestoreSummary`.
    pub(crate) fn summary(&self) -> Json {
        json!({
            "SourceTableArn": arn(&self.source),
            "RestoreDateTime": self.micros as f64 / 1e6,
            "RestoreInProgress": self.in_progress(),
        })
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let json: Json = serde_json::from_slice(bytes).ok()?;
        let integer = |name: &str| json.get(name)?.as_i64();
        let text = |name: &str| json.get(name)?.as_str();
        Some(Self {
            source: text("source")?.to_owned(),
            source_id: TableId(unhex(text("source_id")?)?.to_be_bytes()),
            micros: integer("micros")?,
            at_micros: integer("at")?,
            part_bits: u32::try_from(integer("part_bits")?).ok().filter(|bits| *bits <= SHARD_BITS_MAX)?,
            done: json.get("done")?.as_u64()?,
            progress_millis: integer("progress")?,
            ended_millis: integer("ended")?,
        })
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let json = json!({
            "source": self.source,
            "source_id": hex(u128::from_be_bytes(self.source_id.0)),
            "micros": self.micros,
            "at": self.at_micros,
            "part_bits": self.part_bits,
            "done": self.done,
            "progress": self.progress_millis,
            "ended": self.ended_millis,
        });
        json.to_string().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recovered() -> Recovered {
        Recovered {
            source: "orders".to_owned(),
            source_id: TableId([7; 16]),
            micros: 1_764_000_000_000_000,
            at_micros: 1_764_100_000_000_000,
            part_bits: 2,
            done: 0b0101,
            progress_millis: 3,
            ended_millis: 0,
        }
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        let mut one = recovered();
        assert_eq!(Recovered::read(&one.write()), Some(one.clone()));
        assert_eq!(one.left().collect::<Vec<_>>(), [1, 3]);
        (one.part_bits, one.done, one.ended_millis) = (SHARD_BITS_MAX, u64::MAX, 4);
        assert_eq!(Recovered::read(&one.write()), Some(one.clone()));
        assert_eq!((one.left().count(), one.in_progress()), (0, false));
        assert_eq!(Recovered::read(b"{}"), None);
    }

    #[test]
    fn earlier_changes_win_over_later_ones_and_over_the_copy() {
        let one = recovered();
        let behind = [0, 1, 2, 1_000_000, SPAN_MICROS_MAX - 1, SPAN_MICROS_MAX];
        let mut last = one.at_micros + 1;
        for timestamp in behind.map(|behind| one.timestamp_of_image(one.micros + behind)) {
            assert!(timestamp < last, "with the deletion of its put, a microsecond before it");
            last = timestamp - 1;
        }
        assert!(one.timestamp_of_copy() < last);
    }
}
