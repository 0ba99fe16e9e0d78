//! `Statistics.db`: four components behind a table of contents, each with a checksum since 4.0.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

pub mod cardinality;
pub mod histogram;
pub(crate) mod stats;
pub mod tombstones;

pub use cardinality::Cardinality;
pub use histogram::SizeHistogram;
pub use stats::{CommitLogPosition, Stats};
pub use tombstones::TombstoneHistogram;

use crate::header::SerializationHeader;
use crate::{DecodeError, Version, decode::Decoder};

/// The partitioner that every token of this system comes from.
pub const PARTITIONER: &str = "org.apache.cassandra.dht.Murmur3Partitioner";

const VALIDATION: u32 = 0;
const COMPACTION: u32 = 1;
const STATS: u32 = 2;
const HEADER: u32 = 3;

/// All metadata of an SSTable.
#[derive(Clone, Debug, PartialEq)]
pub struct Metadata {
    /// Class of the partitioner that ordered the partitions.
    pub partitioner: String,
    /// False-positive chance that the bloom filter was made for.
    pub bloom_fp_chance: f64,
    /// Sketch of the partition keys; none when its form is not known.
    pub cardinality: Option<Cardinality>,
    /// Statistics.
    pub stats: Stats,
    /// Columns and types of the data.
    pub header: SerializationHeader,
}

impl Metadata {
    /// The file's bytes, in the current version.
    pub fn encode(&self) -> Vec<u8> {
        let mut validation = Vec::with_capacity(64);
        validation.extend_from_slice(&(self.partitioner.len() as u16).to_be_bytes());
        validation.extend_from_slice(self.partitioner.as_bytes());
        validation.extend_from_slice(&self.bloom_fp_chance.to_be_bytes());
        let sketch = self.cardinality.clone().unwrap_or_default().encode();
        let mut compaction = Vec::with_capacity(sketch.len() + 4);
        compaction.extend_from_slice(&(sketch.len() as u32).to_be_bytes());
        compaction.extend_from_slice(&sketch);
        let parts = [
            (VALIDATION, validation),
            (COMPACTION, compaction),
            (STATS, self.stats.encode()),
            (HEADER, self.header.encode()),
        ];

        let mut out = Vec::with_capacity(16 << 10);
        out.extend_from_slice(&(parts.len() as u32).to_be_bytes());
        let mut crc = crc32fast::Hasher::new();
        crc.update(&out);
        out.extend_from_slice(&crc.clone().finalize().to_be_bytes());
        let mut at = 4 + 4 + parts.len() * 8 + 4;
        let mut contents = Vec::with_capacity(parts.len() * 8);
        for (kind, bytes) in &parts {
            contents.extend_from_slice(&kind.to_be_bytes());
            contents.extend_from_slice(&(at as u32).to_be_bytes());
            at += bytes.len() + 4;
        }
        // The second checksum continues the first.
        crc.update(&contents);
        out.extend_from_slice(&contents);
        out.extend_from_slice(&crc.finalize().to_be_bytes());
        for (_, bytes) in &parts {
            out.extend_from_slice(bytes);
            out.extend_from_slice(&crc32fast::hash(bytes).to_be_bytes());
        }
        assert_eq!(out.len(), at, "the contents say where each part lies");
        out
    }

    /// Decodes the output of [`Metadata::encode`], or of an earlier version.
    ///
    /// # Errors
    /// A [`DecodeError`] when the table of contents, a checksum or a component is damaged, or one of the four
    /// components is missing.
    pub fn decode(bytes: &[u8], version: Version) -> Result<Self, DecodeError> {
        let parts = split(bytes, version)?;
        let part = |kind: u32, what: &str| {
            let found = parts.iter().find(|part| part.kind == kind);
            found.ok_or_else(|| DecodeError::new(0, format!("a component with the {what}"), "none"))
        };
        let validation = part(VALIDATION, "partitioner")?;
        let (partitioner, bloom_fp_chance) = validation.decode(|decoder| {
            Ok((decoder.utf("partitioner")?.to_owned(), decoder.f64("false-positive chance")?))
        })?;
        let compaction = part(COMPACTION, "cardinality")?;
        let sketch = compaction.decode(|decoder| decoder.bytes_u32("sketch of the keys"))?;
        let cardinality = Cardinality::decode(sketch).map_err(|error| compaction.moved(error, 4))?;
        let stats = part(STATS, "statistics")?;
        let header = part(HEADER, "serialisation header")?;
        Ok(Self {
            partitioner,
            bloom_fp_chance,
            cardinality,
            stats: Stats::decode(stats.bytes, version).map_err(|error| stats.moved(error, 0))?,
            header: SerializationHeader::decode(header.bytes).map_err(|error| header.moved(error, 0))?,
        })
    }
}

struct Part<'a> {
    kind: u32,
    at: usize,
    bytes: &'a [u8],
}

impl<'a> Part<'a> {
    fn decode<T>(
        &self,
        read: impl FnOnce(&mut Decoder<'a>) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let mut decoder = Decoder::new(self.bytes);
        let value = read(&mut decoder).and_then(|value| decoder.end().map(|()| value));
        value.map_err(|error| self.moved(error, 0))
    }

    fn moved(&self, error: DecodeError, by: usize) -> DecodeError {
        DecodeError { offset: error.offset + self.at + by, ..error }
    }
}

fn split(bytes: &[u8], version: Version) -> Result<Vec<Part<'_>>, DecodeError> {
    let checked = version.capabilities().has_metadata_checksums;
    let mut decoder = Decoder::new(bytes);
    let check =
        |decoder: &mut Decoder<'_>, crc: u32| match checked.then(|| decoder.u32("checksum")).transpose()? {
            Some(found) if found != crc => {
                Err(decoder.wrong(4, format!("checksum {crc:08x}"), format!("{found:08x}")))
            }
            _ => Ok(()),
        };
    let count = decoder.count(8, "components")?;
    let mut crc = crc32fast::Hasher::new();
    crc.update(&(count as u32).to_be_bytes());
    check(&mut decoder, crc.clone().finalize())?;
    let mut contents = Vec::with_capacity(count);
    for _ in 0..count {
        let (kind, at) = (decoder.u32("kind of a component")?, decoder.u32("offset of a component")?);
        crc.update(&kind.to_be_bytes());
        crc.update(&at.to_be_bytes());
        contents.push((kind, at as usize));
    }
    check(&mut decoder, crc.finalize())?;
    let mut parts = Vec::with_capacity(count);
    for (index, (kind, at)) in contents.iter().enumerate() {
        let end = contents.get(index + 1).map_or(bytes.len(), |(_, next)| *next);
        let trailer = if checked { 4 } else { 0 };
        let Some(part) = bytes.get(*at..end).filter(|part| part.len() >= trailer) else {
            return Err(DecodeError::new(
                0,
                "components in order within the file",
                format!("one from {at} to {end}"),
            ));
        };
        let (part, stored) = part.split_at(part.len() - trailer);
        let crc = crc32fast::hash(part).to_be_bytes();
        if checked && stored != crc {
            return Err(DecodeError::new(
                at + part.len(),
                format!("checksum {crc:02x?}"),
                format!("{stored:02x?}"),
            ));
        }
        parts.push(Part { kind: *kind, at: *at, bytes: part });
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::stats::StatsCollector;
    use super::*;
    use crate::EncodingStats;
    use schema::{TableBuilder, TableId};
    use types::CqlType;

    #[test]
    fn round_trip_and_damage() {
        let table = TableBuilder::new("ks", "t", TableId([1; 16]))
            .partition_key("k", CqlType::Int)
            .regular("v", CqlType::Text)
            .build()
            .unwrap();
        let metadata = Metadata {
            partitioner: PARTITIONER.to_owned(),
            bloom_fp_chance: 0.01,
            cardinality: Some(Cardinality::default()),
            stats: StatsCollector::new().build(-1.0, 0, 0, None),
            header: SerializationHeader::of_table(&table, None, EncodingStats::NONE),
        };
        let mut bytes = metadata.encode();
        assert_eq!(Metadata::decode(&bytes, Version::Nb), Ok(metadata));
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            assert!(Metadata::decode(&bytes, Version::Nb).is_err(), "{at}");
            bytes[at] ^= 1;
            assert!(Metadata::decode(&bytes[..at], Version::Nb).is_err(), "{at}");
        }
    }
}
