//! A data file of an export: lines, packed, with the digest that the manifest names.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use stdx::base64;

use super::failure::Failure;
use super::storage::{Files, Folder, Written};

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
/// When the disk or the service fails.
pub(crate) async fn write_manifest(
    files: &Files,
    folder: &Folder,
    name: &str,
    text: &str,
) -> Result<(), Failure> {
    let (checksum, _) = texts(md5::compute(text).0);
    files.put(folder, &format!("{name}.md5"), checksum.as_bytes()).await?;
    files.put(folder, &format!("{name}.json"), text.as_bytes()).await
}

/// A data file that is being written.
pub(crate) struct DataFile {
    file: Written,
    key: String,
    encoder: GzEncoder<Vec<u8>>,
    md5: md5::Context,
    items: u64,
    bytes: u64,
}

impl DataFile {
    /// A new file in this folder, with this random name and the end of it for the format of its lines.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) async fn create(
        files: &Files,
        folder: &Folder,
        random: [u8; 16],
        end: &str,
    ) -> Result<Self, Failure> {
        const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
        let digit = |byte: &u8| DIGITS.get(usize::from(byte & 31)).copied().map_or('a', char::from);
        let name = format!("{}.{end}.gz", random.iter().map(digit).collect::<String>());
        let file = files.create(folder, &name).await?;
        let encoder = GzEncoder::new(Vec::new(), Compression::fast());
        Ok(Self { file, key: folder.key(&name), encoder, md5: md5::Context::new(), items: 0, bytes: 0 })
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
    /// When the disk or the service fails.
    pub(crate) async fn drain(&mut self) -> Result<(), Failure> {
        if self.encoder.get_ref().len() < WRITTEN_AT_ONCE {
            return Ok(());
        }
        let packed = std::mem::take(self.encoder.get_mut());
        self.write(&packed).await
    }

    async fn write(&mut self, packed: &[u8]) -> Result<(), Failure> {
        self.md5.consume(packed);
        self.file.write(packed).await
    }

    /// Whether the next item belongs into another file.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= FILE_BYTES
    }

    /// Bytes of the lines that it has.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes it durable; its line of the manifest.
    ///
    /// # Errors
    /// When the disk or the service fails.
    pub(crate) async fn finish(&mut self) -> Result<String, Failure> {
        let encoder = std::mem::replace(&mut self.encoder, GzEncoder::new(Vec::new(), Compression::fast()));
        let packed =
            encoder.finish().map_err(|error| Failure::new("InternalServerError", error.to_string()))?;
        self.write(&packed).await?;
        let tag = self.file.finish().await?;
        let (md5, hex) = texts(self.md5.clone().finalize().0);
        let etag = tag.unwrap_or(hex);
        let entry = json!({
            "itemCount": self.items, "md5Checksum": md5, "etag": etag, "dataFileS3Key": self.key
        });
        Ok(format!("{entry}\n"))
    }

    /// Leaves nothing behind that nobody sees.
    pub(crate) async fn abort(&mut self) {
        self.file.abort().await;
    }
}
