//! How fast a disk is: small and large reads and writes past the page cache, for a fraction of a second.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rt::{IO_ALIGNMENT, IoBuf, IoCapacity};

const FILE: &str = ".disk-speed";
const FILE_BYTES: u64 = 32 << 20;
const LARGE: usize = 128 << 10;
const SMALL: usize = IO_ALIGNMENT;
/// Operations in flight, each by a thread.
const DEPTH: u64 = 16;
/// Each kind is measured so often, and the best counts: other work may have slowed the others.
const ROUNDS: u32 = 3;
const ROUND: Duration = Duration::from_millis(25);

/// Measures the disk of a directory by a file there, which is removed; takes about a third of a second.
///
/// # Errors
/// That of the system; of kind `InvalidInput` where the file system has no direct IO, as one in memory.
pub fn measure_disk(directory: &Path) -> io::Result<IoCapacity> {
    fs::create_dir_all(directory)?;
    let path = directory.join(FILE);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).custom_flags(libc::O_DIRECT);
    let measured = options.open(&path).and_then(|file| measure(&file));
    let removed = fs::remove_file(&path);
    let capacity = measured?;
    removed?;
    Ok(capacity)
}

fn measure(file: &File) -> io::Result<IoCapacity> {
    let block = random_block();
    for at in 0..FILE_BYTES / LARGE as u64 {
        file.write_all_at(&block, at * LARGE as u64)?;
    }
    file.sync_data()?;
    Ok(IoCapacity {
        write_bandwidth: best(file, LARGE, true)? * LARGE as u64,
        write_iops: best(file, SMALL, true)?,
        read_bandwidth: best(file, LARGE, false)? * LARGE as u64,
        read_iops: best(file, SMALL, false)?,
    })
}

/// A block that a disk which compresses cannot make smaller.
fn random_block() -> IoBuf {
    let mut block = IoBuf::zeroed(LARGE);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for word in block.chunks_exact_mut(8) {
        state = next(state);
        word.copy_from_slice(&state.to_le_bytes());
    }
    block
}

/// The next number of a sequence (xorshift).
fn next(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ state << 17
}

/// The most operations a second of the rounds.
fn best(file: &File, len: usize, writes: bool) -> io::Result<u64> {
    let mut most = 1;
    for _ in 0..ROUNDS {
        most = most.max(round(file, len, writes)?);
    }
    Ok(most)
}

/// Operations a second at random places.
fn round(file: &File, len: usize, writes: bool) -> io::Result<u64> {
    let (done, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let begun = Instant::now();
    let one = |thread: u64| -> io::Result<()> {
        let mut buffer = random_block();
        let mut state = (thread + 1).wrapping_mul(0x2545_f491_4f6c_dd1d);
        while !is_over.load(Ordering::Relaxed) {
            state = next(state);
            let at = state % (FILE_BYTES / len as u64) * len as u64;
            let part = &mut buffer[..len];
            if writes {
                file.write_all_at(part, at)?
            } else {
                file.read_exact_at(part, at)?
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    let one = &one;
    let result = thread::scope(|scope| {
        let threads: Vec<_> = (0..DEPTH).map(|at| scope.spawn(move || one(at))).collect();
        thread::sleep(ROUND);
        is_over.store(true, Ordering::Relaxed);
        let results = threads.into_iter().map(|thread| thread.join().expect("it does not panic"));
        results.collect::<io::Result<()>>()
    });
    result?;
    let rate = done.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64();
    Ok(rate as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_measured_and_nothing_is_left() {
        let directory = tempfile::tempdir().expect("a directory");
        match measure_disk(directory.path()) {
            Ok(speed) => {
                // A large operation moves more bytes a second than small ones.
                assert!(speed.read_iops > 1 && speed.write_iops > 1, "{speed:?}");
                assert!(
                    speed.read_bandwidth > LARGE as u64 && speed.write_bandwidth > LARGE as u64,
                    "{speed:?}"
                );
            }
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::InvalidInput),
        }
        assert_eq!(fs::read_dir(directory.path()).expect("it is there").count(), 0);
    }
}
