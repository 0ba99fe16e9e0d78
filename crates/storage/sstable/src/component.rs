//! Loads small components, with the checksums that the SSTable has of them.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::path::PathBuf;

use rt::{Disk, DiskError};

use crate::{Component, Descriptor, Integrity, SstableError};

/// The largest filter, summary and list of chunks that are loaded.
pub(crate) const COMPONENT_LEN_MAX: usize = 4 << 30;

/// Reads a component, if it is there.
pub(crate) async fn load(disk: &Disk, path: PathBuf, limit: usize) -> Result<Option<Vec<u8>>, DiskError> {
    match disk.read_to_end(path, limit).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a component that can be rebuilt, if it is there. A damaged one counts as missing, and is reported as a problem.
pub(crate) async fn load_checked(
    disk: &Disk,
    descriptor: &Descriptor,
    part: Component,
    integrity: Option<&Integrity>,
) -> Result<(Option<Vec<u8>>, Option<SstableError>), SstableError> {
    let path = descriptor.path(part);
    let bytes = load(disk, path.clone(), COMPONENT_LEN_MAX).await?;
    let checked = match (&bytes, integrity) {
        (Some(bytes), Some(integrity)) => integrity.check(descriptor, part, bytes),
        (None, Some(integrity)) if integrity.lists(part) => Err(SstableError::Missing { file: path }),
        _ => return Ok((bytes, None)),
    };
    Ok(match checked {
        Ok(()) => (bytes, None),
        Err(problem) => (None, Some(problem)),
    })
}
