//! The body of the verb `stream_files`: the request to a source, and its answer.
//!
//! ```text
//! question := version (1), request (16), attempt (8), table id (16), shard (2), shards (2), source's shards (2),
//!             count (4), { after (8), upto (8) }
//!             attempt 0 asks only how much it would be: nothing begins, and the answer is "under way" with about as many bytes
//! answer   := version (1), 0, bytes in all (8)                                        under way
//!           | version (1), 1, truncated at (8), count (4), { transfer (16), files (1), { component (1), length (8) } }
//!           | version (1), 2, length (4), why it failed
//! ```

use bytes::{BufMut, Bytes, BytesMut};
use schema::TableId;
use sstable::Component;
use stdx::Reader;
use topology::TokenRange;

use crate::transfer::CodecError;

const VERSION: u8 = 1;
/// The attempt of a question that only asks how much it would be.
pub(crate) const NO_ATTEMPT: u64 = 0;
const UNDER_WAY: u8 = 0;
const DONE: u8 = 1;
const FAILED: u8 = 2;
/// Ranges of one question.
const RANGES_MAX: usize = 1 << 18;
/// SSTables of one answer.
const OFFERED_MAX: usize = 1 << 18;

/// Identifies a request, on both sides and after a restart of either: the same table, tokens, source and purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub [u8; 16]);

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The request of a shard to a source's shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The same for the same request.
    pub request: RequestId,
    /// Another number makes the source begin anew.
    pub attempt: u64,
    /// Which table.
    pub table: TableId,
    /// The shard that asks, which wants its own tokens.
    pub shard: u16,
    /// Of how many.
    pub shards: u16,
    /// How many the source is believed to have.
    pub source_shards: u16,
    /// The tokens.
    pub ranges: Vec<TokenRange>,
}

impl Question {
    /// As bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(64 + 16 * self.ranges.len());
        out.put_u8(VERSION);
        out.put_slice(&self.request.0);
        out.put_u64(self.attempt);
        out.put_slice(&self.table.0);
        out.put_u16(self.shard);
        out.put_u16(self.shards);
        out.put_u16(self.source_shards);
        out.put_u32(self.ranges.len() as u32);
        for range in &self.ranges {
            out.put_i64(range.after);
            out.put_i64(range.upto);
        }
        out.freeze()
    }

    /// From bytes.
    ///
    /// # Errors
    /// [`CodecError`] when the version is unknown, the bytes are cut off or too many, there are too many ranges, or the
    /// shard does not exist.
    pub fn decode(body: &[u8]) -> Result<Self, CodecError> {
        let mut reader = begin(body)?;
        let request = RequestId(id(&mut reader)?);
        let (attempt, table) = (reader.u64()?, TableId(id(&mut reader)?));
        let (shard, shards, source_shards) = (reader.u16()?, reader.u16()?, reader.u16()?);
        if shard >= shards {
            return Err(CodecError::Field("there is no such shard"));
        }
        let count = count(&mut reader, RANGES_MAX, 16)?;
        let mut ranges = Vec::with_capacity(count);
        for _ in 0..count {
            ranges.push(TokenRange { after: reader.u64()? as i64, upto: reader.u64()? as i64 });
        }
        end(reader, Self { request, attempt, table, shard, shards, source_shards, ranges })
    }
}

/// An SSTable that a source has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offered {
    /// The transfer that brought it.
    pub transfer: [u8; 16],
    /// Its files, in the order of the transfer's items, with their lengths.
    pub files: Vec<(Component, u64)>,
}

/// How a request stands at the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// It works on it.
    UnderWay {
        /// Bytes that it will have sent, as far as it knows.
        bytes_total: u64,
    },
    /// Everything was sent.
    Done {
        /// When the source had truncated the table last, microseconds; the smallest number for never.
        truncated_at: i64,
        /// The parts of its former data.
        offered: Vec<Offered>,
        /// So many SSTables were left out, because they are damaged.
        damaged: u32,
    },
    /// It cannot.
    Failed(String),
}

/// The answer of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer(pub SourceState);

impl Answer {
    /// As bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        match &self.0 {
            SourceState::UnderWay { bytes_total } => {
                out.put_u8(UNDER_WAY);
                out.put_u64(*bytes_total);
            }
            SourceState::Done { truncated_at, offered, damaged } => {
                out.put_u8(DONE);
                out.put_i64(*truncated_at);
                out.put_u32(*damaged);
                out.put_u32(offered.len() as u32);
                for one in offered {
                    out.put_slice(&one.transfer);
                    out.put_u8(one.files.len() as u8);
                    for (component, length) in &one.files {
                        out.put_u8(number(*component));
                        out.put_u64(*length);
                    }
                }
            }
            SourceState::Failed(why) => {
                out.put_u8(FAILED);
                out.put_u32(why.len() as u32);
                out.put_slice(why.as_bytes());
            }
        }
        out.freeze()
    }

    /// From bytes.
    ///
    /// # Errors
    /// [`CodecError`] when the version or the state is unknown, the bytes are cut off or too many, or a list exceeds
    /// its limit.
    pub fn decode(body: &[u8]) -> Result<Self, CodecError> {
        let mut reader = begin(body)?;
        let state = match reader.u8()? {
            UNDER_WAY => SourceState::UnderWay { bytes_total: reader.u64()? },
            DONE => {
                let (truncated_at, damaged) = (reader.u64()? as i64, reader.u32()?);
                let count = count(&mut reader, OFFERED_MAX, 17)?;
                let mut offered = Vec::with_capacity(count);
                for _ in 0..count {
                    offered.push(Offered { transfer: id(&mut reader)?, files: files(&mut reader)? });
                }
                SourceState::Done { truncated_at, offered, damaged }
            }
            FAILED => {
                let len = count(&mut reader, 1 << 16, 1)?;
                SourceState::Failed(String::from_utf8_lossy(reader.bytes(len)?).into_owned())
            }
            _ => return Err(CodecError::Field("no such state")),
        };
        end(reader, Self(state))
    }
}

fn files(reader: &mut Reader<'_>) -> Result<Vec<(Component, u64)>, CodecError> {
    let count = usize::from(reader.u8()?);
    if count > Component::ALL.len() {
        return Err(CodecError::Field("an SSTable of too many files"));
    }
    let mut files = Vec::with_capacity(count);
    for _ in 0..count {
        let component = component(reader.u8()?).ok_or(CodecError::Field("no such component"))?;
        files.push((component, reader.u64()?));
    }
    Ok(files)
}

/// A component's number in messages.
#[expect(clippy::expect_used, reason = "the list has every component")]
pub(crate) fn number(component: Component) -> u8 {
    Component::ALL.iter().position(|known| *known == component).expect("it is one of them") as u8
}

fn component(number: u8) -> Option<Component> {
    Component::ALL.get(usize::from(number)).copied()
}

fn begin(body: &[u8]) -> Result<Reader<'_>, CodecError> {
    let mut reader = Reader::new(body);
    match reader.u8()? {
        VERSION => Ok(reader),
        version => Err(CodecError::Version(version)),
    }
}

fn end<T>(reader: Reader<'_>, value: T) -> Result<T, CodecError> {
    if reader.is_empty() { Ok(value) } else { Err(CodecError::Length) }
}

fn id(reader: &mut Reader<'_>) -> Result<[u8; 16], CodecError> {
    Ok(reader.array()?)
}

/// A count whose elements, of at least `len_min` bytes, are there.
fn count(reader: &mut Reader<'_>, max: usize, len_min: usize) -> Result<usize, CodecError> {
    let count = reader.u32()? as usize;
    if count > max {
        return Err(CodecError::Field("too many"));
    }
    if count.saturating_mul(len_min) > reader.len() { Err(CodecError::Length) } else { Ok(count) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> Question {
        Question {
            request: RequestId([7; 16]),
            attempt: 99,
            table: TableId([3; 16]),
            shard: 1,
            shards: 2,
            source_shards: 4,
            ranges: vec![TokenRange { after: -5, upto: 9 }, TokenRange { after: i64::MAX, upto: i64::MIN }],
        }
    }

    #[test]
    fn questions() {
        let encoded = question().encode();
        assert_eq!(Question::decode(&encoded), Ok(question()));
        for cut in 0..encoded.len() {
            assert!(Question::decode(&encoded[..cut]).is_err(), "{cut}");
        }
        assert_eq!(Question::decode(&[&encoded[..], &[0]].concat()), Err(CodecError::Length));
        let other = Question { shard: 2, ..question() };
        assert_eq!(Question::decode(&other.encode()), Err(CodecError::Field("there is no such shard")));
    }

    #[test]
    fn answers() {
        let offered = Offered { transfer: [5; 16], files: vec![(Component::Data, 100), (Component::Toc, 9)] };
        for state in [
            SourceState::UnderWay { bytes_total: 12 },
            SourceState::Done { truncated_at: i64::MIN, offered: vec![offered.clone(), offered], damaged: 3 },
            SourceState::Failed("the disk is full".to_owned()),
        ] {
            let encoded = Answer(state.clone()).encode();
            assert_eq!(Answer::decode(&encoded), Ok(Answer(state)));
            for cut in 0..encoded.len() {
                assert!(Answer::decode(&encoded[..cut]).is_err(), "{cut}");
            }
        }
        assert_eq!(Answer::decode(&[2, 0]), Err(CodecError::Version(2)));
        // A count larger than the rest of the message takes no memory.
        let mut long = vec![1, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        long.extend_from_slice(&(1u32 << 17).to_be_bytes());
        assert_eq!(Answer::decode(&long), Err(CodecError::Length));
    }
}
