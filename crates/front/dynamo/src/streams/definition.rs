//! The streams of a table: their begin and end, and the view type of their records. They are in an extension of the table, so they are where the
//! schema is.

use schema::{Cdc, CdcPreimage};
use serde_json::{Value as Json, json};
use types::CqlType;

use crate::error::{ApiError, ErrorKind};
use crate::names::arn;

/// How long records are there, microseconds; so long a stream can be read that is not written to any more.
pub(crate) const RETENTION_MICROS: i64 = 24 * 3600 * 1_000_000;
/// Records are stored for longer than they are promised, so that a reader of the oldest is not overtaken by their end; seconds.
const SLACK_SECONDS: u32 = 3600;
const DAY_SECONDS: u32 = 24 * 3600;
/// The most streams of a table: each time one is enabled there is a further one, until it is forgotten.
pub(crate) const STREAMS_MAX: usize = 32;

/// The part of an item that records show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ViewType {
    KeysOnly,
    NewImage,
    OldImage,
    NewAndOldImages,
}

impl ViewType {
    const ALL: [(Self, &str); 4] = [
        (Self::NewImage, "NEW_IMAGE"),
        (Self::OldImage, "OLD_IMAGE"),
        (Self::NewAndOldImages, "NEW_AND_OLD_IMAGES"),
        (Self::KeysOnly, "KEYS_ONLY"),
    ];
    pub(crate) const NAMES: [&str; 4] = ["NEW_IMAGE", "OLD_IMAGE", "NEW_AND_OLD_IMAGES", "KEYS_ONLY"];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(view, _)| *view == self).map_or("", |(_, name)| name)
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(view, _)| *view)
    }

    pub(crate) fn shows_new(self) -> bool {
        matches!(self, Self::NewImage | Self::NewAndOldImages)
    }

    pub(crate) fn shows_old(self) -> bool {
        matches!(self, Self::OldImage | Self::NewAndOldImages)
    }
}

/// A stream of a table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stream {
    /// The first millisecond since 1970 of which it has changes.
    pub(crate) start_millis: i64,
    /// The microsecond since 1970 behind the last of which it has changes; none while it is enabled.
    pub(crate) end_micros: Option<i64>,
    pub(crate) view: ViewType,
    /// It has two to the power of this many shards.
    pub(crate) shard_bits: u32,
}

impl Stream {
    pub(crate) fn start_micros(&self) -> i64 {
        self.start_millis.saturating_mul(1000)
    }

    /// The time of its start, which is its name among the streams of the table.
    pub(crate) fn label(&self) -> String {
        let text = CqlType::Timestamp.format(&self.start_millis.to_be_bytes());
        text.trim_matches(['\'', 'Z']).to_owned()
    }

    pub(crate) fn arn(&self, table: &str) -> String {
        format!("{}/stream/{}", arn(table), self.label())
    }

    /// Whether it is enabled.
    pub(crate) fn is_open(&self) -> bool {
        self.end_micros.is_none()
    }

    pub(crate) fn status(&self) -> &'static str {
        if self.is_open() { "ENABLED" } else { "DISABLED" }
    }

    /// Whether it can be read at a time, microseconds since 1970.
    pub(crate) fn is_readable(&self, now_micros: i64) -> bool {
        self.end_micros.is_none_or(|end| end.saturating_add(RETENTION_MICROS) > now_micros)
    }
}

/// The first microsecond since 1970 of which records are still stored.
pub(crate) fn stored_since(now_micros: i64) -> i64 {
    now_micros.saturating_sub(RETENTION_MICROS + i64::from(SLACK_SECONDS) * 1_000_000)
}

/// The options of a table, by whether it has an enabled stream, and the days of its recovery to a point in time.
pub(crate) fn capture(is_streamed: bool, recovery_days: Option<i64>) -> Cdc {
    let is_enabled = is_streamed || recovery_days.is_some();
    let of_stream = (RETENTION_MICROS / 1_000_000) as u32 + SLACK_SECONDS;
    let of_recovery = recovery_days.map_or(0, |days| (days as u32 + 1) * DAY_SECONDS);
    Cdc {
        enabled: is_enabled,
        preimage: if is_enabled { CdcPreimage::Full } else { CdcPreimage::Off },
        ttl: of_stream.max(of_recovery),
        ..Cdc::default()
    }
}

/// The stored form of a table's streams.
pub(crate) fn write(streams: &[Stream]) -> Vec<u8> {
    let one = |stream: &Stream| {
        json!({
            "start": stream.start_millis,
            "end": stream.end_micros,
            "view": stream.view.name(),
            "shard_bits": stream.shard_bits,
        })
    };
    Json::Array(streams.iter().map(one).collect()).to_string().into_bytes()
}

/// The streams of a stored form.
pub(crate) fn read(bytes: &[u8]) -> Vec<Stream> {
    let json: Json = serde_json::from_slice(bytes).unwrap_or_default();
    let one = |json: &Json| {
        Some(Stream {
            start_millis: json.get("start")?.as_i64()?,
            end_micros: json.get("end").and_then(Json::as_i64),
            view: ViewType::from_name(json.get("view")?.as_str()?)?,
            shard_bits: u32::try_from(json.get("shard_bits")?.as_u64()?).ok().filter(|bits| *bits < 32)?,
        })
    };
    json.as_array().into_iter().flatten().filter_map(one).collect()
}

/// Table and label of a stream's ARN.
pub(crate) fn parts_of_arn(arn: &str) -> Option<(&str, &str)> {
    arn.strip_prefix("arn:")?.rsplit_once(":table/")?.1.split_once("/stream/")
}

/// The error for a stream that there is not.
pub(crate) fn missing(arn: &str) -> ApiError {
    let text = format!("Requested resource not found: Stream: {arn} not found");
    ApiError::new(ErrorKind::ResourceNotFound, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_read_as_they_were_written() {
        let stream = |start_millis, end_micros| Stream {
            start_millis,
            end_micros,
            view: ViewType::NewAndOldImages,
            shard_bits: 3,
        };
        let streams = [stream(5, Some(70_000)), stream(1_764_000_000_123, None)];
        assert_eq!(read(&write(&streams)), streams);
        assert_eq!(read(b"x"), []);
        assert_eq!(read(b"[{}]"), []);
        assert_eq!(streams[1].label(), "2025-11-24T16:00:00.123");
        let arn = streams[1].arn("t");
        assert_eq!(parts_of_arn(&arn), Some(("t", "2025-11-24T16:00:00.123")));
        for arn in ["", "arn:", "arn:x:table/t", "x:table/t/stream/y"] {
            assert_eq!(parts_of_arn(arn), None, "{arn}");
        }
        assert!(streams[0].is_readable(RETENTION_MICROS + 69_999));
        assert!(!streams[0].is_readable(RETENTION_MICROS + 70_000));
    }

    #[test]
    fn every_name_is_a_view() {
        for (at, name) in ViewType::NAMES.into_iter().enumerate() {
            assert_eq!(ViewType::from_name(name).map(ViewType::name), Some(name));
            assert_eq!(ViewType::ALL[at].1, name);
        }
    }
}
