//! The data file while it is written: chunks, compressed and with checksums.

use std::path::PathBuf;

use crc32fast::Hasher;
use rt::Disk;

use crate::checksums::ChunkChecksums;
use crate::compress::Compressor;
use crate::compression_info::CompressionInfo;
use crate::io::{AppendFile, max_len_on_disk};
use crate::{Compression, SstableError};

/// How chunks reach the file.
enum Form {
    Compressed { compressor: Compressor, info: Box<CompressionInfo>, chunk: Vec<u8> },
    Plain(ChunkChecksums),
}

/// The description of the chunks of a finished data file.
pub(crate) enum Chunks {
    Compressed(Box<CompressionInfo>),
    Plain(ChunkChecksums),
}

/// The data file: a stream of bytes, cut into chunks that are compressed and checksummed.
pub(crate) struct DataFile {
    file: AppendFile,
    form: Form,
    /// Bytes not yet cut into chunks. The encoder appends here.
    pub(crate) pending: Vec<u8>,
    /// Bytes cut before `pending`.
    cut: u64,
    digest: Hasher,
}

impl DataFile {
    pub(crate) async fn create(
        disk: &Disk,
        path: PathBuf,
        compression: Option<&Compression>,
    ) -> Result<Self, SstableError> {
        let form = match compression {
            Some(compression) => Form::Compressed {
                compressor: Compressor::new(compression),
                info: Box::new(CompressionInfo::new(compression)),
                chunk: Vec::new(),
            },
            None => Form::Plain(ChunkChecksums { chunk_len: ChunkChecksums::CHUNK_LEN, crcs: Vec::new() }),
        };
        let file = AppendFile::create(disk, path).await?;
        Ok(Self { file, form, pending: Vec::new(), cut: 0, digest: Hasher::new() })
    }

    /// Place in the uncompressed stream where the next byte goes.
    #[inline]
    pub(crate) fn position(&self) -> u64 {
        self.cut + self.pending.len() as u64
    }

    /// Length of the file so far.
    pub(crate) fn file_len(&self) -> u64 {
        self.file.len()
    }

    fn chunk_len(&self) -> usize {
        match &self.form {
            Form::Compressed { info, .. } => info.chunk_len as usize,
            Form::Plain(checksums) => checksums.chunk_len as usize,
        }
    }

    /// Whether [`DataFile::cut`] has something to do.
    #[inline]
    pub(crate) fn has_chunk(&self) -> bool {
        self.pending.len() >= self.chunk_len()
    }

    /// Writes the whole chunks among the pending bytes.
    pub(crate) async fn cut(&mut self) -> Result<(), SstableError> {
        let chunk_len = self.chunk_len();
        assert!(self.cut.is_multiple_of(chunk_len as u64), "only the last chunk is short");
        let pending = std::mem::take(&mut self.pending);
        let (whole, rest) = pending.split_at(pending.len() - pending.len() % chunk_len);
        for chunk in whole.chunks(chunk_len) {
            self.chunk(chunk).await?;
        }
        self.cut += whole.len() as u64;
        // The buffer is kept, unless a huge row has blown it up.
        let (from, len) = (whole.len(), rest.len());
        self.pending = pending;
        self.pending.copy_within(from.., 0);
        self.pending.truncate(len);
        assert!(self.pending.len() < chunk_len, "less than a chunk is left");
        self.pending.shrink_to(chunk_len * 4);
        Ok(())
    }

    async fn chunk(&mut self, data: &[u8]) -> Result<(), SstableError> {
        assert!(
            (1..=self.chunk_len()).contains(&data.len()),
            "a chunk has bytes, and no more than its length"
        );
        match &mut self.form {
            Form::Plain(checksums) => {
                checksums.crcs.push(crc32fast::hash(data));
                self.digest.update(data);
                self.file.append(data).await
            }
            Form::Compressed { compressor, info, chunk } => {
                chunk.clear();
                compressor.compress(data, chunk);
                let max = info.compressed_len_max as usize;
                if chunk.len() >= max {
                    // Not worth compressing: stored as it is, and a last chunk that is shorter than the length that distinguishes compressed
                    // from plain chunks is filled up to that.
                    chunk.clear();
                    chunk.extend_from_slice(data);
                    chunk.resize(data.len().max(max), 0);
                }
                let crc = crc32fast::hash(chunk);
                chunk.extend_from_slice(&crc.to_be_bytes());
                self.digest.update(chunk);
                let len_max = max_len_on_disk(u64::from(info.chunk_len));
                assert!(chunk.len() as u64 <= len_max, "a chunk that can be read again");
                assert!(info.offsets.push(self.file.len()), "chunks follow each other");
                info.data_len += data.len() as u64;
                self.file.append(chunk).await
            }
        }
    }

    /// Writes the rest, makes the file durable; gives the description of its chunks and the checksum of the whole file.
    pub(crate) async fn finish(&mut self) -> Result<(Chunks, u32), SstableError> {
        self.cut().await?;
        let rest = std::mem::take(&mut self.pending);
        if !rest.is_empty() {
            self.chunk(&rest).await?;
            self.cut += rest.len() as u64;
        }
        self.file.finish().await?;
        assert_eq!(self.position(), self.cut, "nothing is left to cut");
        let chunk_len = self.chunk_len() as u64;
        let form =
            std::mem::replace(&mut self.form, Form::Plain(ChunkChecksums { chunk_len: 1, crcs: Vec::new() }));
        let expected = self.cut.div_ceil(chunk_len);
        let chunks = match form {
            Form::Compressed { info, .. } => {
                assert_eq!(info.data_len, self.cut, "all that was cut is described");
                assert_eq!(info.offsets.len() as u64, expected, "each chunk has a place");
                Chunks::Compressed(info)
            }
            Form::Plain(checksums) => {
                assert_eq!(checksums.crcs.len() as u64, expected, "each chunk has a checksum");
                Chunks::Plain(checksums)
            }
        };
        Ok((chunks, self.digest.clone().finalize()))
    }
}
