//! Files as source and sink: ranges of files here become files there, and arrived bytes survive a crash.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::{BufMut, Bytes, BytesMut};
use rt::{Disk, DiskError, File, IoBuf, LocalBoxFuture, OpenOptions};
use stdx::Reader;

use super::codec::Chunk;
use super::plan::{CURSOR_LEN_MAX, Plan, Position};
use super::receive::Sink;
use super::send::{Piece, Source};

/// So many bytes at most have to come again after a crash of the receiver.
const SYNC_EVERY: u64 = 16 << 20;
/// The file of a folder's position.
const POSITION_FILE: &str = "position";

/// A part of a file that is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRange {
    /// The file.
    pub path: PathBuf,
    /// The offset of the part.
    pub start: u64,
    /// How long it is.
    pub length: u64,
    /// The CRC-32 that it has; none where it is not known. A part that is read from its begin to its end is compared with it before the last
    /// of it is sent.
    pub checksum: Option<u32>,
}

/// The checksum of the bytes read of an item so far.
struct Sum {
    item: u32,
    upto: u64,
    crc: crc32fast::Hasher,
}

struct Files {
    disk: Disk,
    ranges: Vec<FileRange>,
    /// The file that was read last.
    open: RefCell<Option<(u32, Rc<File>)>>,
    sum: RefCell<Option<Sum>>,
}

/// Sends ranges of files, one an item of the plan.
pub struct FileSource(Rc<Files>);

impl FileSource {
    /// These ranges, in the order of the plan's items.
    pub fn new(disk: &Disk, ranges: Vec<FileRange>) -> FileSource {
        FileSource(Rc::new(Files {
            disk: disk.clone(),
            ranges,
            open: RefCell::default(),
            sum: RefCell::default(),
        }))
    }
}

impl Files {
    async fn file(&self, item: u32, path: &Path) -> Result<Rc<File>, DiskError> {
        if let Some((open, file)) = &*self.open.borrow()
            && *open == item
        {
            return Ok(Rc::clone(file));
        }
        let options = OpenOptions { read: true, ..OpenOptions::default() };
        let file = Rc::new(self.disk.open(path, options).await?);
        *self.open.borrow_mut() = Some((item, Rc::clone(&file)));
        Ok(file)
    }

    async fn read(&self, from: Position, len_max: usize) -> Result<Piece, String> {
        let range = self.ranges.get(from.item as usize).ok_or("the source has no such item")?;
        let left = range.length.saturating_sub(from.offset);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(len_max);
        if len == 0 {
            return Ok(Piece { last: true, ..Piece::default() });
        }
        let text = |error: DiskError| error.to_string();
        let file = self.file(from.item, &range.path).await.map_err(text)?;
        let data = file.read_exact_at(range.start + from.offset, len).await.map_err(text)?;
        if let Some(expected) = range.checksum
            && let Some(found) = self.sum(&from, &data, len as u64 == left)
            && found != expected
        {
            let path = range.path.display();
            return Err(format!(
                "{path} is corrupt: expected checksum {expected} of the file, found {found}"
            ));
        }
        Ok(Piece { data: Bytes::from_owner(data), cursor: Bytes::new(), last: len as u64 == left })
    }
}

impl Files {
    /// Adds a piece to the checksum of its item, which this gives at the end; none where the item was not read from its begin.
    fn sum(&self, from: &Position, data: &[u8], last: bool) -> Option<u32> {
        let mut sum = self.sum.borrow_mut();
        if from.offset == 0 {
            *sum = Some(Sum { item: from.item, upto: 0, crc: crc32fast::Hasher::new() });
        }
        let known = sum.as_mut().filter(|sum| (sum.item, sum.upto) == (from.item, from.offset))?;
        known.crc.update(data);
        known.upto += data.len() as u64;
        last.then(|| known.crc.clone().finalize())
    }
}

impl Source for FileSource {
    fn read(&self, from: Position, len_max: usize) -> LocalBoxFuture<Result<Piece, String>> {
        let files = Rc::clone(&self.0);
        Box::pin(async move { files.read(from, len_max).await })
    }
}

struct Folder {
    disk: Disk,
    path: PathBuf,
    plan: Rc<Plan>,
    durable: RefCell<Position>,
    unsynced: Cell<u64>,
    open: RefCell<Option<(u32, Rc<File>)>>,
}

/// Keeps a transfer of files in a folder of its own: one file an item, named by its number, and the position up to
/// which everything is durable.
pub struct FileSink(Rc<Folder>);

impl FileSink {
    /// The folder of a transfer, with its content so far.
    ///
    /// # Errors
    /// A [`DiskError`] when the folder cannot be created or synced, or the stored position cannot be read.
    pub async fn open(disk: &Disk, path: PathBuf, plan: Rc<Plan>) -> Result<FileSink, DiskError> {
        disk.create_dir_all(&path).await?;
        if let Some(parent) = path.parent() {
            disk.sync_dir(parent).await?;
        }
        let kept = match disk.read_durably(path.join(POSITION_FILE), CURSOR_LEN_MAX + 64).await {
            Ok(bytes) => decode_position(&bytes),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        // A position that is not there, or not of this plan, is the beginning.
        let durable = kept.filter(|position| plan.contains(position)).unwrap_or_default();
        Ok(FileSink(Rc::new(Folder {
            disk: disk.clone(),
            path,
            plan,
            durable: RefCell::new(durable),
            unsynced: Cell::new(0),
            open: RefCell::default(),
        })))
    }

    /// The path of an item's content.
    pub fn path_of(folder: &Path, item: u32) -> PathBuf {
        folder.join(item.to_string())
    }
}

fn encode_position(position: &Position) -> BytesMut {
    let mut out = BytesMut::with_capacity(32 + position.cursor.len());
    out.put_u8(1);
    out.put_u32(position.item);
    out.put_u64(position.offset);
    out.extend_from_slice(&position.cursor);
    let checksum = crc32fast::hash(&out);
    out.put_u32(checksum);
    out
}

fn decode_position(bytes: &[u8]) -> Option<Position> {
    let (fields, checksum) = bytes.split_last_chunk::<4>()?;
    let mut reader = Reader::new(fields);
    let version = reader.u8().ok()?;
    if version != 1 || crc32fast::hash(fields) != u32::from_be_bytes(*checksum) {
        return None;
    }
    let (item, offset) = (reader.u32().ok()?, reader.u64().ok()?);
    Some(Position { item, offset, cursor: Bytes::copy_from_slice(reader.rest()) })
}

impl Folder {
    async fn file(&self, item: u32) -> Result<Rc<File>, DiskError> {
        if let Some((open, file)) = &*self.open.borrow()
            && *open == item
        {
            return Ok(Rc::clone(file));
        }
        let options = OpenOptions { read: true, write: true, create: true, ..OpenOptions::default() };
        let file = Rc::new(self.disk.open(FileSink::path_of(&self.path, item), options).await?);
        *self.open.borrow_mut() = Some((item, Rc::clone(&file)));
        Ok(file)
    }

    async fn write(&self, chunk: Chunk) -> Result<(), DiskError> {
        let file = self.file(chunk.item).await?;
        if !chunk.data.is_empty() {
            file.write_at(chunk.offset, IoBuf::copy_of(&chunk.data)).await?;
        }
        let bytes = chunk.data.len() as u64;
        self.unsynced.set(self.unsynced.get() + bytes);
        if !chunk.last && self.unsynced.get() < SYNC_EVERY {
            return Ok(());
        }
        let end = chunk.offset + bytes;
        if chunk.last {
            // A file of an earlier attempt may be longer.
            file.set_len(end).await?;
        }
        file.sync_all().await?;
        self.disk.sync_dir(&self.path).await?;
        let from = Position { item: chunk.item, offset: chunk.offset, cursor: Bytes::new() };
        let position = self.plan.after(&from, bytes, chunk.last, chunk.cursor);
        self.disk.write_atomically(self.path.join(POSITION_FILE), &encode_position(&position)).await?;
        *self.durable.borrow_mut() = position;
        self.unsynced.set(0);
        Ok(())
    }

    async fn close(&self, complete: bool) -> Result<(), DiskError> {
        self.open.borrow_mut().take();
        if complete {
            // Every item ended with a sync; a plan without items has nothing to make durable.
            return Ok(());
        }
        match self.disk.remove_dir_all(&self.path).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}

impl Sink for FileSink {
    fn resume(&self) -> Position {
        self.0.durable.borrow().clone()
    }

    fn write(&self, chunk: Chunk) -> LocalBoxFuture<Result<(), String>> {
        let folder = Rc::clone(&self.0);
        Box::pin(async move { folder.write(chunk).await.map_err(|error| error.to_string()) })
    }

    fn close(&self, complete: bool) -> LocalBoxFuture<Result<(), String>> {
        let folder = Rc::clone(&self.0);
        Box::pin(async move { folder.close(complete).await.map_err(|error| error.to_string()) })
    }
}
