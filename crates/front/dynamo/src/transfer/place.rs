//! Places of exports and imports: folders below the directory that the operator allows, and nothing outside of it.

use std::path::PathBuf;

use rt::{Disk, DiskError};

use crate::error::{Result, invalid};
use crate::request::constraint;

/// Bytes of a name of S3's, and of one of a directory.
const KEY_BYTES_MAX: usize = 1024;
const NAME_BYTES_MAX: usize = 255;
/// Folders of a key below each other.
pub(crate) const DEPTH_MAX: usize = 32;
/// Files of an import, as AWS allows.
const FILES_MAX: usize = 50_000;

/// Why a folder cannot be used.
#[derive(Debug)]
pub(crate) enum PlaceError {
    /// The directory that the operator allows is not there.
    NoDirectory(PathBuf),
    /// The way to it goes through a symbolic link.
    Link(PathBuf),
    /// It has too many files or folders.
    TooMany(String),
    Disk(DiskError),
}

impl From<DiskError> for PlaceError {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}

impl std::fmt::Display for PlaceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoDirectory(path) => write!(
                f,
                "the directory of the option alternator_export_directory, {}, does not exist",
                path.display()
            ),
            Self::Link(path) => write!(
                f,
                "{} is or goes through a symbolic link, which exports and imports do not follow",
                path.display()
            ),
            Self::TooMany(text) => f.write_str(text),
            Self::Disk(error) => write!(f, "{error}"),
        }
    }
}

/// A bucket.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    pub(crate) name: String,
    /// The account that must own it, which the service checks.
    pub(crate) owner: Option<String>,
}

/// The account that must own a bucket, of which `place` is the member; a folder of the directory has none.
///
/// # Errors
/// When it is no account's id, or the bucket is a folder.
pub(crate) fn owner(owner: Option<&str>, place: &str, has_service: bool) -> Result<Option<String>> {
    let Some(owner) = owner else { return Ok(None) };
    if owner.len() != 12 || !owner.bytes().all(|byte| byte.is_ascii_digit()) {
        return constraint(owner, place, "Member must satisfy regular expression pattern: [0-9]{12}");
    }
    if !has_service {
        return invalid!(
            "S3BucketOwner: the folders of alternator_export_directory have no account; it is of buckets of \
             alternator_export_endpoint"
        );
    }
    Ok(Some(owner.to_owned()))
}

/// The name of a bucket: that of a folder in the directory.
///
/// # Errors
/// When S3 allows no such name.
pub(crate) fn bucket(name: &str) -> Result<String> {
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_".contains(byte);
    let is_valid = is_end(bytes.first()) && is_end(bytes.last()) && bytes.iter().all(is_inner);
    if !is_valid || bytes.len() > NAME_BYTES_MAX {
        return invalid!(
            "S3Bucket must name a folder of the directory alternator_export_directory: up to 255 letters, digits, dots, \
             hyphens and underscores that begin and end with a letter or a digit"
        );
    }
    Ok(name.to_owned())
}

/// The parts of a key or of its beginning.
///
/// # Errors
/// When it leads out of its bucket, or is no path of folders.
pub(crate) fn parts(member: &str, key: &str) -> Result<Vec<String>> {
    if key.len() > KEY_BYTES_MAX {
        return invalid!("{member} has more than {KEY_BYTES_MAX} bytes");
    }
    let parts: Vec<String> = key.split('/').map(str::to_owned).collect();
    let is_name = |part: &String| {
        !matches!(part.as_str(), "" | "." | "..") && part.len() <= NAME_BYTES_MAX && !part.contains('\0')
    };
    // A slash at the end makes the last part a folder.
    let named = parts
        .split_last()
        .map_or(parts.as_slice(), |(last, before)| if last.is_empty() { before } else { parts.as_slice() });
    if !named.iter().all(is_name) || (named.is_empty() && !key.is_empty()) {
        return invalid!(
            "{member} must be a path below the bucket: neither absolute, nor with empty parts, nor with . or .."
        );
    }
    if parts.len() > DEPTH_MAX {
        return invalid!("{member} has more than {DEPTH_MAX} parts");
    }
    Ok(parts)
}

/// The directory that the operator allows.
pub(crate) struct Root {
    pub(crate) disk: Disk,
    pub(crate) path: PathBuf,
}

impl Root {
    /// The folder of these names, each in the one before it; none when one of them is not there.
    ///
    /// # Errors
    /// When the way goes through a symbolic link, or cannot be looked up.
    pub(crate) async fn find(&self, names: &[String]) -> Result<Option<PathBuf>, PlaceError> {
        let mut path = match self.disk.resolve(&self.path).await {
            Ok(path) => path,
            Err(error) if error.is_not_found() => return Err(PlaceError::NoDirectory(self.path.clone())),
            Err(error) => return Err(error.into()),
        };
        for name in names {
            path.push(name);
            match self.disk.resolve(&path).await {
                Ok(resolved) if resolved == path => {}
                Ok(_) => return Err(PlaceError::Link(path)),
                Err(error) if error.is_not_found() => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(path))
    }

    /// The folder of these names, which is made when it is not there.
    ///
    /// # Errors
    /// As [`Root::find`], and when it cannot be made.
    pub(crate) async fn create(&self, names: &[String]) -> Result<PathBuf, PlaceError> {
        if let Some(path) = self.find(names).await? {
            return Ok(path);
        }
        // All that is there of it is no link.
        let path = names.iter().fold(self.path.clone(), |path, name| path.join(name));
        self.disk.create_dir_durably(&path).await?;
        self.find(names).await?.ok_or(PlaceError::Link(path))
    }

    /// The files whose keys begin so, in the order of their keys, with their lengths in bytes: the last part begins a name, the others are
    /// folders.
    ///
    /// # Errors
    /// As [`Root::find`]; when there are more than AWS imports, or when one of them is a symbolic link.
    pub(crate) async fn files(&self, parts: &[String]) -> Result<Vec<(PathBuf, u64)>, PlaceError> {
        let Some((begins, folders)) = parts.split_last() else { return Ok(Vec::new()) };
        let Some(top) = self.find(folders).await? else { return Ok(Vec::new()) };
        let (mut files, mut left) = (Vec::new(), vec![(top, 0)]);
        while let Some((folder, depth)) = left.pop() {
            for entry in self.disk.list(&folder).await? {
                if depth == 0 && !entry.name.starts_with(begins.as_str()) {
                    continue;
                }
                let path = folder.join(&entry.name);
                if self.disk.resolve(&path).await? != path {
                    return Err(PlaceError::Link(path));
                }
                match entry.is_dir {
                    true if depth >= DEPTH_MAX => {
                        let text = format!("{} lies more than {DEPTH_MAX} folders deep", path.display());
                        return Err(PlaceError::TooMany(text));
                    }
                    true => left.push((path, depth + 1)),
                    false => files.push((path, entry.len)),
                }
                if files.len() + left.len() > FILES_MAX {
                    let text = format!("more than {FILES_MAX} files begin with this prefix");
                    return Err(PlaceError::TooMany(text));
                }
            }
        }
        files.sort();
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_one_name() {
        for name in ["abc", "a", "a.b-c_d", "2020-Nov"] {
            assert_eq!(bucket(name).as_deref(), Ok(name));
        }
        let long = "a".repeat(256);
        for name in ["", ".", "..", ".torc", "a/b", "/", "a..", "-a", "a\0b", "ä", "a b", &long] {
            let error = bucket(name).expect_err(name);
            assert!(error.message.contains("alternator_export_directory"), "{}", error.message);
        }
    }

    #[test]
    fn a_key_stays_below_its_bucket() {
        let of = |key: &str| parts("S3Prefix", key).map(|parts| parts.join("|"));
        for (key, expected) in [
            ("", ""),
            ("a", "a"),
            ("a/b", "a|b"),
            ("a/b/", "a|b|"),
            ("..a/b..", "..a|b.."),
            ("a b/ü", "a b|ü"),
        ] {
            assert_eq!(of(key).as_deref(), Ok(expected), "{key}");
        }
        let (deep, wide) = ("a/".repeat(40), "a".repeat(256));
        let long = "abcd/".repeat(300);
        for key in [
            "/", "/etc", "..", "../a", "a/..", "a/../b", "a//b", "./a", "a/.", "a\0", "a//", &deep, &wide,
            &long,
        ] {
            assert!(of(key).is_err(), "{key}");
        }
    }
}
