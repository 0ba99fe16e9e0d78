//! Walking over the records of a segment, past damaged places.

use bytes::Bytes;
use rt::{DiskError, File, IoBuf};

use crate::format::{RECORD_HEADER_LEN, RecordHeader, find_record, record_crc};

/// Bytes that are read at once, unless a record is longer.
const WINDOW_LEN: u64 = 256 << 10;

/// A valid record.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) header: RecordHeader,
    pub(crate) update: Bytes,
    /// Where the next one begins.
    pub(crate) next: u64,
}

/// A walk over a segment's records.
pub(crate) struct SegmentReader {
    file: File,
    number: u64,
    at: u64,
    end: u64,
    update_bytes_max: usize,
    window: IoBuf,
    window_at: u64,
    /// Damaged places that were met.
    pub(crate) damages: u64,
}

impl SegmentReader {
    /// A walk from `at` to `end` over segment `number`.
    pub(crate) fn new(file: File, number: u64, at: u64, end: u64, update_bytes_max: usize) -> Self {
        let window = IoBuf::new();
        Self { file, number, at, end, update_bytes_max, window, window_at: at, damages: 0 }
    }

    /// The next valid record. After an error the walk may be tried again from the same place.
    pub(crate) async fn next(&mut self) -> Result<Option<Record>, DiskError> {
        let mut damaged = false;
        while self.at < self.end {
            if let Some(record) = self.record().await? {
                self.at = record.next;
                return Ok(Some(record));
            }
            if !damaged {
                damaged = true;
                self.damages += 1;
            }
            self.look_behind().await?;
        }
        Ok(None)
    }

    /// The record that stands here, if it is one.
    async fn record(&mut self) -> Result<Option<Record>, DiskError> {
        let Some((header, crc)) = RecordHeader::decode(self.bytes(RECORD_HEADER_LEN as u64).await?) else {
            return Ok(None);
        };
        let len = header.record_len();
        if header.update_len as usize > self.update_bytes_max || len > self.end - self.at {
            return Ok(None);
        }
        let (number, offset) = (self.number, self.at);
        let bytes = self.bytes(len).await?;
        let (Some(head), Some(update)) = (bytes.get(8..RECORD_HEADER_LEN), bytes.get(RECORD_HEADER_LEN..))
        else {
            return Ok(None);
        };
        if record_crc(number, offset, head, update) != crc {
            return Ok(None);
        }
        let update = Bytes::copy_from_slice(update);
        Ok(Some(Record { header, update, next: offset + len }))
    }

    /// Goes to the next place where a record may begin, or to the end.
    async fn look_behind(&mut self) -> Result<(), DiskError> {
        self.at += 1;
        while self.at < self.end {
            let wanted = WINDOW_LEN.min(self.end - self.at);
            let bytes = self.bytes(wanted).await?;
            let (len, found) = (bytes.len() as u64, find_record(bytes));
            match found {
                Some(distance) => {
                    self.at += distance as u64;
                    return Ok(());
                }
                // The file is shorter than it was, or this was its last part.
                None if len < wanted || len <= 4 || self.at + len == self.end => self.at = self.end,
                // A record's first bytes may be cut by the window's end.
                None => self.at += len - 3,
            }
        }
        Ok(())
    }

    /// `len` bytes from here, or as many as the file has.
    async fn bytes(&mut self, len: u64) -> Result<&[u8], DiskError> {
        let len = len.min(self.end - self.at);
        let window_end = self.window_at + self.window.len() as u64;
        if self.at < self.window_at || self.at + len > window_end {
            let wanted = len.max(WINDOW_LEN).min(self.end - self.at);
            self.window = self.file.read_at(self.at, wanted as usize).await?;
            self.window_at = self.at;
        }
        let from = (self.at - self.window_at) as usize;
        let upto = (from + len as usize).min(self.window.len());
        Ok(self.window.get(from..upto).unwrap_or_default())
    }
}
