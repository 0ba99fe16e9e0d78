//! A data file of an export: lines, packed, with the digest that the manifest names.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use rt::{Disk, DiskError, File, IoBuf, OpenOptions};
use serde_json::json;
use stdx::base64;

/// Packed bytes that are written at once.
const WRITTEN_AT_ONCE: usize = 256 << 10;
/// Bytes before packing after which the next file begins.
const FILE_BYTES: u64 = 256 << 20;

/// A digest as texts: of manifests, and of S3.
fn texts(digest: [u8; 16]) -> (String, String) {
    (base64::encode(&digest), digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Writes a small file and one with its digest beside it.
///
/// # Errors
/// When the disk fails.
pub(crate) async fn write_manifest(
    disk: &Disk,
    folder: &Path,
    name: &str,
    text: &str,
) -> Result<(), DiskError> {
    let (checksum, _) = texts(md5::compute(text).0);
    disk.write_atomically(folder.join(format!("{name}.md5")), checksum.as_bytes()).await?;
    disk.write_atomically(folder.join(format!("{name}.json")), text.as_bytes()).await
}

/// A data file that is being written.
pub(crate) struct DataFile {
    file: File,
    /// Its name in the folder of data.
    name: String,
    encoder: GzEncoder<Vec<u8>>,
    md5: md5::Context,
    written: u64,
    items: u64,
    bytes: u64,
}

impl DataFile {
    /// A new file in this folder, with this random name and the end of it for the format of its lines.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) async fn create(
        disk: &Disk,
        folder: &Path,
        random: [u8; 16],
        end: &str,
    ) -> Result<Self, DiskError> {
        const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
        let digit = |byte: &u8| DIGITS.get(usize::from(byte & 31)).copied().map_or('a', char::from);
        let name = format!("{}.{end}.gz", random.iter().map(digit).collect::<String>());
        let path: PathBuf = folder.join(&name);
        let file = disk.open(&path, OpenOptions::CREATE_NEW).await?;
        let encoder = GzEncoder::new(Vec::new(), Compression::fast());
        Ok(Self { file, name, encoder, md5: md5::Context::new(), written: 0, items: 0, bytes: 0 })
    }

    /// Adds the line of an item. Nothing is written yet.
    ///
    /// # Errors
    /// Never, as it takes memory only.
    pub(crate) fn add(&mut self, line: &str) -> std::io::Result<()> {
        self.items += 1;
        self.bytes += line.len() as u64 + 1;
        self.encoder.write_all(line.as_bytes())?;
        self.encoder.write_all(b"\n")
    }

    /// Writes packed bytes, when there are many.
    ///
    /// # Errors
    /// When the disk fails.
    pub(crate) async fn drain(&mut self) -> Result<(), DiskError> {
        if self.encoder.get_ref().len() < WRITTEN_AT_ONCE {
            return Ok(());
        }
        let packed = std::mem::take(self.encoder.get_mut());
        self.write(&packed).await
    }

    async fn write(&mut self, packed: &[u8]) -> Result<(), DiskError> {
        self.md5.consume(packed);
        self.file.write_at(self.written, IoBuf::copy_of(packed)).await?;
        self.written += packed.len() as u64;
        Ok(())
    }

    /// Whether the next item belongs into another file.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= FILE_BYTES
    }

    /// Bytes of the lines that it has.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes it durable; its line of the manifest. `folder_key` is the key of its folder.
    ///
    /// # Errors
    /// When the disk fails.
    pub(crate) async fn finish(mut self, folder_key: &str) -> Result<String, DiskError> {
        let encoder = std::mem::replace(&mut self.encoder, GzEncoder::new(Vec::new(), Compression::fast()));
        let failed = |error| DiskError::new(rt::DiskOp::Write, self.file.path(), error);
        let packed = encoder.finish().map_err(failed)?;
        self.write(&packed).await?;
        self.file.sync_all().await?;
        let (md5, etag) = texts(self.md5.finalize().0);
        let key = format!("{folder_key}/{}", self.name);
        let entry =
            json!({ "itemCount": self.items, "md5Checksum": md5, "etag": etag, "dataFileS3Key": key });
        Ok(format!("{entry}\n"))
    }
}
