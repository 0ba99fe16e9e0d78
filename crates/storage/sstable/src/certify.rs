//! Gives an SSTable that came without checksums its own, once all of its files agree.

use rt::Rt;

use crate::integrity::{replace, write};
use crate::verify::verify;
use crate::{Component, Descriptor, Integrity, Owner, SstableError};

/// Compares all files of an SSTable without the component, or with a damaged one, with each other, and writes the
/// component when nothing is wrong.
///
/// # Errors
/// The error in the SSTable, or a failure of the disk.
pub async fn certify(rt: &Rt, descriptor: &Descriptor, owner: Option<Owner>) -> Result<(), SstableError> {
    let disk = rt.disk();
    if let Err(SstableError::Corrupt(_)) = Integrity::read(disk, descriptor).await {
        disk.remove(descriptor.path(Component::Torc)).await?;
    }
    if let Some(problem) = verify(rt, descriptor).await?.problems.into_iter().next() {
        return Err(problem);
    }
    let content = Integrity::of_files(rt, descriptor, owner).await?;
    write(disk, descriptor, &content).await?;
    // The removal of the SSTable by its list of components has to include this one.
    let toc = descriptor.path(Component::Toc);
    let mut listed = disk.read_to_end(&toc, 1 << 20).await?;
    if !String::from_utf8_lossy(&listed).lines().any(|line| line.trim() == Component::Torc.name()) {
        if listed.last().is_some_and(|byte| *byte != b'\n') {
            listed.push(b'\n');
        }
        listed.extend_from_slice(Component::Torc.name().as_bytes());
        listed.push(b'\n');
        replace(disk, descriptor, toc, &listed).await?;
    }
    Ok(())
}
