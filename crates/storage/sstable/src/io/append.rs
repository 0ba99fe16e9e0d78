//! Files written from front to back in large blocks.

use std::path::PathBuf;

use rt::{Disk, File, IoBuf, OpenOptions};

use crate::SstableError;
use crate::integrity::{PageChecksums, PageHasher};

/// Bytes of one write.
const WRITE_LEN: usize = 256 << 10;

/// A new file to which bytes are appended.
pub(crate) struct AppendFile {
    file: File,
    buf: IoBuf,
    /// Bytes written before `buf`.
    flushed: u64,
    /// Checksums of the appended bytes, where they are wanted.
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
        let end = self.len() + bytes.len() as u64;
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
        assert!(self.buf.len() < WRITE_LEN, "a full buffer is written");
        assert_eq!(self.len(), end, "all that was appended is counted");
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), SstableError> {
        assert!(self.flushed.is_multiple_of(WRITE_LEN as u64), "only the last write is short");
        let buf = std::mem::take(&mut self.buf);
        let len = buf.len() as u64;
        let mut buf = self.file.write_at(self.flushed, buf).await?;
        self.flushed += len;
        buf.clear();
        self.buf = buf;
        Ok(())
    }

    /// Writes the rest and makes the file durable.
    pub(crate) async fn finish(&mut self) -> Result<(), SstableError> {
        if !self.buf.is_empty() {
            self.flush().await?;
        }
        self.file.sync_all().await?;
        assert!(self.buf.is_empty(), "all that was appended is in the file");
        Ok(())
    }

    /// The checksums of a file that was made with [`AppendFile::create_checked`].
    pub(crate) fn page_checksums(&mut self) -> PageChecksums {
        let checksums = self.pages.take().expect("the file was made with checksums").finish();
        assert_eq!(checksums.file_len, self.len(), "checksums cover the whole file");
        checksums
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
