//! Files written from front to back in large blocks.

use std::path::PathBuf;

use crc32fast::Hasher;
use rt::{Disk, File, IoBuf, OpenOptions};

use crate::checksums::ChunkChecksums;
use crate::compress::Compressor;
use crate::compression_info::CompressionInfo;
use crate::integrity::{PageChecksums, PageHasher};
use crate::{Compression, SstableError};

/// Bytes of one write.
const WRITE_LEN: usize = 256 << 10;

/// A new file to which bytes are appended.
pub(crate) struct AppendFile {
    file: File,
    buf: IoBuf,
    /// Bytes written before `buf`.
    flushed: u64,
    /// Checksums of what was appended, where they are wanted.
    pages: Option<PageHasher>,
}

impl AppendFile {
    pub(crate) async fn create(disk: &Disk, path: PathBuf) -> Result<Self, SstableError> {
        let options = OpenOptions { write: true, ..OpenOptions::CREATE_NEW };
        let file = disk.open(path, options).await?;
        Ok(Self { file, buf: IoBuf::with_capacity(WRITE_LEN), flushed: 0, pages: None })
    }

    /// [`AppendFile::create`] of a file whose pages get checksums.
    pub(crate) async fn create_checked(disk: &Disk, path: PathBuf) -> Result<Self, SstableError> {
        Ok(Self { pages: Some(PageHasher::default()), ..Self::create(disk, path).await? })
    }

    /// Bytes appended so far.
    pub(crate) fn len(&self) -> u64 {
        self.flushed + self.buf.len() as u64
    }

    pub(crate) async fn append(&mut self, mut bytes: &[u8]) -> Result<(), SstableError> {
        if let Some(pages) = &mut self.pages {
            pages.update(bytes);
        }
        while self.buf.len() + bytes.len() >= WRITE_LEN {
            let (now, later) = bytes.split_at(WRITE_LEN - self.buf.len());
            self.buf.extend_from_slice(now);
            self.flush().await?;
            bytes = later;
        }
        self.buf.extend_from_slice(bytes);
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), SstableError> {
        let buf = std::mem::take(&mut self.buf);
        let len = buf.len() as u64;
        let mut buf = self.file.write_at(self.flushed, buf).await?;
        self.flushed += len;
        buf.clear();
        self.buf = buf;
        Ok(())
    }

    /// Writes what is left and makes the file durable.
    pub(crate) async fn finish(&mut self) -> Result<(), SstableError> {
        if !self.buf.is_empty() {
            self.flush().await?;
        }
        self.file.sync_all().await?;
        Ok(())
    }

    /// The checksums of a file that was made with [`AppendFile::create_checked`].
    pub(crate) fn page_checksums(&mut self) -> PageChecksums {
        self.pages.take().expect("the file was made with checksums").finish()
    }
}

/// Writes a small file whole, durably.
pub(crate) async fn write_whole(disk: &Disk, path: PathBuf, bytes: &[u8]) -> Result<(), SstableError> {
    let mut file = AppendFile::create(disk, path).await?;
    file.append(bytes).await?;
    file.finish().await
}

/// Writes a small file whole over an empty one, durably.
pub(crate) async fn rewrite(disk: &Disk, path: PathBuf, bytes: &[u8]) -> Result<(), SstableError> {
    let file = disk.open(path, OpenOptions { create: false, ..OpenOptions::READ_WRITE }).await?;
    file.write_at(0, IoBuf::copy_of(bytes)).await?;
    Ok(file.sync_all().await?)
}

/// How chunks reach the file.
enum Form {
    Compressed { compressor: Compressor, info: Box<CompressionInfo>, chunk: Vec<u8> },
    Plain(ChunkChecksums),
}

/// What describes the chunks of a finished data file.
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
        self.pending.shrink_to(chunk_len * 4);
        Ok(())
    }

    async fn chunk(&mut self, data: &[u8]) -> Result<(), SstableError> {
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
                    // Not worth compressing: kept as it is, and a last chunk that is shorter than what tells compressed
                    // from plain chunks is filled up to that.
                    chunk.clear();
                    chunk.extend_from_slice(data);
                    chunk.resize(data.len().max(max), 0);
                }
                let crc = crc32fast::hash(chunk);
                chunk.extend_from_slice(&crc.to_be_bytes());
                self.digest.update(chunk);
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
        let form =
            std::mem::replace(&mut self.form, Form::Plain(ChunkChecksums { chunk_len: 1, crcs: Vec::new() }));
        let chunks = match form {
            Form::Compressed { info, .. } => Chunks::Compressed(info),
            Form::Plain(checksums) => Chunks::Plain(checksums),
        };
        Ok((chunks, self.digest.clone().finalize()))
    }
}
