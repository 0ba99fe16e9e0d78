//! The files of exports and imports: in folders below the operator's directory, or as objects of an S3-compatible service.

use std::path::PathBuf;
use std::rc::Rc;

use bytes::Bytes;
use rt::{File, IoBuf, OpenOptions};

use super::failure::Failure;
use super::place::{Bucket, PlaceError, Root};
use super::s3::{S3, Upload};

/// Bytes of a file, or of an object, that are read at once.
const FILE_READ_BYTES: usize = 256 << 10;
const OBJECT_READ_BYTES: usize = 2 << 20;

/// A folder of a bucket.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    pub(crate) bucket: Bucket,
    pub(crate) names: Vec<String>,
}

impl Folder {
    /// The key of a file in it.
    pub(crate) fn key(&self, name: &str) -> String {
        let names = self.names.iter().map(String::as_str).chain([name]);
        names.collect::<Vec<_>>().join("/")
    }

    /// The folders from the operator's directory down.
    fn path(&self) -> Vec<String> {
        [&self.bucket.name].into_iter().chain(&self.names).cloned().collect()
    }
}

/// A file that is being written.
pub(crate) enum Written {
    File { file: File, len: u64 },
    Object(Box<Upload>),
}

impl Written {
    /// Adds bytes.
    ///
    /// # Errors
    /// When the disk or the service fails.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match self {
            Self::File { file, len } => {
                file.write_at(*len, IoBuf::copy_of(bytes)).await?;
                *len += bytes.len() as u64;
                Ok(())
            }
            Self::Object(upload) => upload.write(bytes).await,
        }
    }

    /// Makes it durable; the tag that the service has for it, if it is an object.
    ///
    /// # Errors
    /// As [`Written::write`].
    pub(crate) async fn finish(&mut self) -> Result<Option<String>, Failure> {
        match self {
            Self::File { file, .. } => {
                file.sync_all().await?;
                Ok(None)
            }
            Self::Object(upload) => upload.finish().await.map(Some),
        }
    }

    /// Leaves nothing behind that nobody sees.
    pub(crate) async fn abort(&mut self) {
        if let Self::Object(upload) = self {
            upload.abort().await;
        }
    }
}

/// A file that is to be read.
pub(crate) enum Stored {
    File(PathBuf),
    Object { bucket: Rc<Bucket>, key: String },
}

impl std::fmt::Display for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Object { bucket, key } => write!(f, "{}/{key}", bucket.name),
        }
    }
}

/// Reads a file from its beginning.
pub(crate) struct Reading<'a> {
    files: &'a Files,
    stored: &'a Stored,
    file: Option<File>,
    position: u64,
}

impl Reading<'_> {
    /// The next bytes; none at the end.
    ///
    /// # Errors
    /// When the disk or the service fails.
    pub(crate) async fn next(&mut self) -> Result<Bytes, Failure> {
        let read = match (&self.file, self.stored, &self.files.objects) {
            (Some(file), ..) => {
                Bytes::copy_from_slice(&file.read_at(self.position, FILE_READ_BYTES).await?[..])
            }
            (None, Stored::Object { bucket, key }, Some(s3)) => {
                s3.read((bucket, key), self.position, OBJECT_READ_BYTES).await?
            }
            (None, ..) => Bytes::new(),
        };
        self.position += read.len() as u64;
        Ok(read)
    }
}

/// The place of files.
pub(crate) struct Files {
    /// The directory: it has the records in any case.
    pub(crate) root: Root,
    /// The service that has the files; none where the directory does.
    pub(crate) objects: Option<Rc<S3>>,
}

impl Files {
    /// Refuses folders whose way leads out of the directory. Whether there are such objects is found when they are used.
    ///
    /// # Errors
    /// When it goes through a symbolic link, or cannot be looked up.
    pub(crate) async fn check_way(&self, folders: &[String]) -> Result<(), PlaceError> {
        let folders = if self.objects.is_some() { &[] } else { folders };
        self.root.find(folders).await.map(drop)
    }

    /// Refuses a bucket that is not there.
    ///
    /// # Errors
    /// When it is not. A service refuses the first object.
    async fn check_bucket(&self, bucket: &str) -> Result<(), Failure> {
        match self.root.find(&[bucket.to_owned()]).await? {
            Some(_) => Ok(()),
            None => Err(Failure::new("S3NoSuchBucket", "The specified bucket does not exist")),
        }
    }

    /// Writes a small file, as a whole.
    ///
    /// # Errors
    /// When there is no such bucket, or the disk or the service fails.
    pub(crate) async fn put(&self, folder: &Folder, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        if let Some(s3) = &self.objects {
            let bytes = Bytes::copy_from_slice(bytes);
            return s3.put(&folder.bucket, &folder.key(name), bytes).await.map(drop);
        }
        self.check_bucket(&folder.bucket.name).await?;
        let path = self.root.create(&folder.path()).await?.join(name);
        Ok(self.root.disk.write_atomically(path, bytes).await?)
    }

    /// A new file, of which nothing is there yet.
    ///
    /// # Errors
    /// As [`Files::put`].
    pub(crate) async fn create(&self, folder: &Folder, name: &str) -> Result<Written, Failure> {
        if let Some(s3) = &self.objects {
            let upload = Upload::new(s3.clone(), &folder.bucket, &folder.key(name));
            return Ok(Written::Object(Box::new(upload)));
        }
        let path = self.root.create(&folder.path()).await?;
        let file = self.root.disk.open(&path.join(name), OpenOptions::CREATE_NEW).await?;
        // Its name, which nobody looks for before the manifest names it.
        self.root.disk.sync_dir(&path).await?;
        Ok(Written::File { file, len: 0 })
    }

    /// The files whose keys begin so, in their order: a bucket, whose owner is checked where it has one, the folders of the prefix, and the
    /// beginning of names.
    ///
    /// # Errors
    /// When there is no such bucket or no such file, or the disk or the service fails.
    pub(crate) async fn list(&self, place: &[String], owner: Option<&str>) -> Result<Vec<Stored>, Failure> {
        let (bucket, prefix) =
            place.split_first().map_or(("", place), |(bucket, rest)| (bucket.as_str(), rest));
        let files: Vec<Stored> = match &self.objects {
            Some(s3) => {
                let bucket = Rc::new(Bucket { name: bucket.to_owned(), owner: owner.map(str::to_owned) });
                let found = s3.list(&bucket, &prefix.join("/")).await?.into_iter();
                found.map(|(key, _)| Stored::Object { bucket: bucket.clone(), key }).collect()
            }
            None => {
                self.check_bucket(bucket).await?;
                self.root.files(place).await?.into_iter().map(|(path, _)| Stored::File(path)).collect()
            }
        };
        if files.is_empty() {
            return Err(Failure::new("S3NoSuchKey", "No file in the bucket begins with the prefix"));
        }
        Ok(files)
    }

    /// Begins to read a file.
    ///
    /// # Errors
    /// When the disk fails.
    pub(crate) async fn open<'a>(&'a self, stored: &'a Stored) -> Result<Reading<'a>, Failure> {
        let file = match stored {
            Stored::File(path) => Some(self.root.disk.open(path, OpenOptions::READ).await?),
            Stored::Object { .. } => None,
        };
        Ok(Reading { files: self, stored, file, position: 0 })
    }
}
