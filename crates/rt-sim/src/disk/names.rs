//! Names of a simulated disk: as they are, and as a power loss would leave them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::config::NameDurability;
use crate::random::Rng;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Dir,
    File(u64),
}

type Map = BTreeMap<PathBuf, Entry>;

enum Change {
    Add(PathBuf, Entry),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

impl Change {
    fn apply(&self, map: &mut Map) {
        match self {
            Change::Add(path, entry) => {
                map.insert(path.clone(), *entry);
            }
            Change::Remove(path) => {
                map.remove(path);
            }
            Change::Rename(from, to) => {
                let moved = subtree(map, from);
                for path in moved.iter().chain(&subtree(map, to)) {
                    if path.starts_with(to) && !path.starts_with(from) {
                        map.remove(path);
                    }
                }
                for path in moved {
                    let entry = map.remove(&path).expect("listed a moment ago");
                    let rest = path.strip_prefix(from).expect("a path below its root");
                    let target = if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) };
                    map.insert(target, entry);
                }
            }
        }
    }

    fn touches(&self, dir: &Path) -> bool {
        // As `parent() == Some(dir)`, of which a run has a hundred million, without taking the paths apart.
        let dir = dir.as_os_str().as_bytes();
        let inside = |path: &Path| {
            let path = path.as_os_str().as_bytes();
            let parent = path.len() - path.rsplit(|byte| *byte == b'/').next().map_or(0, <[u8]>::len);
            path[..parent.saturating_sub(1).max(1).min(path.len())] == *dir
        };
        match self {
            Change::Add(path, _) | Change::Remove(path) => inside(path),
            Change::Rename(from, to) => inside(from) || inside(to),
        }
    }
}

fn subtree(map: &Map, root: &Path) -> Vec<PathBuf> {
    let from = map.range::<Path, _>((std::ops::Bound::Included(root), std::ops::Bound::Unbounded));
    from.map(|(path, _)| path).take_while(|path| path.starts_with(root)).cloned().collect()
}

pub(crate) fn not_found() -> io::Error {
    io::Error::from_raw_os_error(2)
}

pub(crate) fn exists() -> io::Error {
    io::Error::from_raw_os_error(17)
}

fn not_a_directory() -> io::Error {
    io::Error::from_raw_os_error(20)
}

pub(crate) fn is_a_directory() -> io::Error {
    io::Error::from_raw_os_error(21)
}

fn not_empty() -> io::Error {
    io::Error::from_raw_os_error(39)
}

/// An absolute path without `.` components.
pub(crate) fn normal(path: &Path) -> PathBuf {
    let whole = Path::new("/").join(path);
    whole.components().filter(|part| !matches!(part, Component::CurDir)).collect()
}

/// The tree of names.
pub(crate) struct Names {
    current: Map,
    durable: Map,
    pending: Vec<(u64, Change)>,
    sequence: u64,
}

impl Names {
    pub(crate) fn new() -> Names {
        let root: Map = [(PathBuf::from("/"), Entry::Dir)].into();
        Names { current: root.clone(), durable: root, pending: Vec::new(), sequence: 0 }
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.sequence += 1;
        self.pending.push((self.sequence, change));
    }

    pub(crate) fn get(&self, path: &Path) -> Option<Entry> {
        self.current.get(path).copied()
    }

    /// The directory that holds `path` must exist.
    fn check_parent(&self, path: &Path) -> io::Result<()> {
        let parent = path.parent().ok_or_else(exists)?;
        match self.get(parent) {
            Some(Entry::Dir) => Ok(()),
            Some(Entry::File(_)) => Err(not_a_directory()),
            None => Err(not_found()),
        }
    }

    pub(crate) fn add_file(&mut self, path: &Path, inode: u64) -> io::Result<()> {
        self.check_parent(path)?;
        if self.current.contains_key(path) {
            return Err(exists());
        }
        self.change(Change::Add(path.to_path_buf(), Entry::File(inode)));
        Ok(())
    }

    pub(crate) fn create_dir_all(&mut self, path: &Path) -> io::Result<()> {
        let mut above: Vec<&Path> = path.ancestors().collect();
        above.reverse();
        for dir in above {
            match self.get(dir) {
                Some(Entry::Dir) => {}
                Some(Entry::File(_)) => return Err(not_a_directory()),
                None => self.change(Change::Add(dir.to_path_buf(), Entry::Dir)),
            }
        }
        Ok(())
    }

    pub(crate) fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        match self.get(path) {
            Some(Entry::File(_)) => self.change(Change::Remove(path.to_path_buf())),
            Some(Entry::Dir) => return Err(is_a_directory()),
            None => return Err(not_found()),
        }
        Ok(())
    }

    pub(crate) fn remove_dir_all(&mut self, path: &Path) -> io::Result<()> {
        match self.get(path) {
            Some(Entry::Dir) => {}
            Some(Entry::File(_)) => return Err(not_a_directory()),
            None => return Err(not_found()),
        }
        for name in subtree(&self.current, path).into_iter().rev() {
            self.change(Change::Remove(name));
        }
        Ok(())
    }

    pub(crate) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let source = self.get(from).ok_or_else(not_found)?;
        self.check_parent(to)?;
        match (source, self.get(to)) {
            _ if from == to => return Ok(()),
            (Entry::Dir, _) if to.starts_with(from) => return Err(io::ErrorKind::InvalidInput.into()),
            (Entry::File(_), Some(Entry::Dir)) => return Err(is_a_directory()),
            (Entry::Dir, Some(Entry::File(_))) => return Err(not_a_directory()),
            (Entry::Dir, Some(Entry::Dir)) if subtree(&self.current, to).len() > 1 => return Err(not_empty()),
            _ => {}
        }
        self.change(Change::Rename(from.to_path_buf(), to.to_path_buf()));
        Ok(())
    }

    /// Names directly inside a directory.
    pub(crate) fn list(&self, path: &Path) -> io::Result<Vec<(String, Entry)>> {
        match self.get(path) {
            Some(Entry::Dir) => {}
            Some(Entry::File(_)) => return Err(not_a_directory()),
            None => return Err(not_found()),
        }
        let below = subtree(&self.current, path).into_iter();
        let inside = below.filter(|name| name.parent() == Some(path)).filter_map(|name| {
            let last = name.file_name()?.to_str()?.to_owned();
            Some((last, self.get(&name)?))
        });
        Ok(inside.collect())
    }

    /// All files, for checkers.
    pub(crate) fn files(&self) -> Vec<(PathBuf, u64)> {
        let files = self.current.iter().filter_map(|(path, entry)| match entry {
            Entry::File(inode) => Some((path.clone(), *inode)),
            Entry::Dir => None,
        });
        files.collect()
    }

    /// Stands for all changes made so far.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Makes changes up to `sequence` durable: those in `dir`, or all.
    ///
    /// Returns whether a name may have gone, and with it the last one of a file.
    pub(crate) fn commit(&mut self, sequence: u64, dir: Option<&Path>) -> bool {
        let mut went = false;
        for (number, change) in std::mem::take(&mut self.pending) {
            if number <= sequence && dir.is_none_or(|dir| change.touches(dir)) {
                change.apply(&mut self.durable);
                went |= !matches!(change, Change::Add(..));
            } else {
                self.pending.push((number, change));
            }
        }
        went
    }

    /// A directory was synced.
    pub(crate) fn commit_dir(&mut self, sequence: u64, dir: &Path, rule: NameDurability) -> bool {
        self.commit(sequence, (rule == NameDurability::SyncDir).then_some(dir))
    }

    /// Loses power: a random prefix of the changes that are not durable survives. Names whose directory did
    /// not survive are gone.
    pub(crate) fn power_loss(&mut self, rng: &mut Rng) -> usize {
        let pending = std::mem::take(&mut self.pending);
        let survivors = rng.below(pending.len() as u64 + 1) as usize;
        for (_, change) in &pending[..survivors] {
            change.apply(&mut self.durable);
        }
        let is_dir = |map: &Map, path: &Path| map.get(path) == Some(&Entry::Dir);
        let orphans: Vec<PathBuf> = self
            .durable
            .keys()
            .filter(|path| path.ancestors().skip(1).any(|above| !is_dir(&self.durable, above)))
            .cloned()
            .collect();
        for orphan in orphans {
            self.durable.remove(&orphan);
        }
        self.current = self.durable.clone();
        survivors
    }

    /// Whether a file has a name now or may have one after a power failure.
    pub(crate) fn refers_to(&self, inode: u64) -> bool {
        self.files_referenced().any(|other| other == inode)
    }

    /// Files that have a name now or may have one after a power failure.
    pub(crate) fn referenced(&self) -> BTreeSet<u64> {
        self.files_referenced().collect()
    }

    fn files_referenced(&self) -> impl Iterator<Item = u64> {
        let pending = self.pending.iter().filter_map(|(_, change)| match change {
            Change::Add(_, entry) => Some(entry),
            _ => None,
        });
        let entries = self.current.values().chain(self.durable.values()).chain(pending);
        entries.filter_map(|entry| match entry {
            Entry::File(inode) => Some(*inode),
            Entry::Dir => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(names: &Names, seed: u64) -> Vec<String> {
        let mut after = Names {
            current: names.current.clone(),
            durable: names.durable.clone(),
            pending: Vec::new(),
            sequence: 0,
        };
        for (number, change) in &names.pending {
            let change = match change {
                Change::Add(path, entry) => Change::Add(path.clone(), *entry),
                Change::Remove(path) => Change::Remove(path.clone()),
                Change::Rename(from, to) => Change::Rename(from.clone(), to.clone()),
            };
            after.pending.push((*number, change));
        }
        after.power_loss(&mut Rng::new(seed, 0));
        after.files().into_iter().map(|(path, _)| path.display().to_string()).collect()
    }

    #[test]
    fn renames_move_whole_trees() {
        let mut names = Names::new();
        names.create_dir_all(Path::new("/a/b")).unwrap();
        names.add_file(Path::new("/a/b/f"), 1).unwrap();
        names.add_file(Path::new("/a/bc"), 2).unwrap();
        names.rename(Path::new("/a/b"), Path::new("/a/d")).unwrap();
        assert_eq!(names.get(Path::new("/a/d/f")), Some(Entry::File(1)));
        assert_eq!(names.get(Path::new("/a/b")), None);
        assert_eq!(names.get(Path::new("/a/bc")), Some(Entry::File(2)));
        names.add_file(Path::new("/a/g"), 3).unwrap();
        names.rename(Path::new("/a/g"), Path::new("/a/d/f")).unwrap();
        assert_eq!(names.get(Path::new("/a/d/f")), Some(Entry::File(3)));
        assert!(names.rename(Path::new("/a"), Path::new("/a/d/x")).is_err());
        assert_eq!(names.list(Path::new("/a")).unwrap().len(), 2);
    }

    #[test]
    fn only_synced_directories_survive_for_sure() {
        let mut names = Names::new();
        names.create_dir_all(Path::new("/d")).unwrap();
        names.commit(names.sequence(), Some(Path::new("/")));
        names.add_file(Path::new("/d/one"), 1).unwrap();
        names.commit(names.sequence(), Some(Path::new("/d")));
        names.add_file(Path::new("/d/two"), 2).unwrap();
        names.rename(Path::new("/d/two"), Path::new("/d/one")).unwrap();
        let outcomes: BTreeSet<Vec<String>> = (0..100).map(|seed| loss(&names, seed)).collect();
        let expected = [vec!["/d/one"], vec!["/d/one", "/d/two"]];
        assert!(outcomes.iter().eq(expected.iter()), "{outcomes:?}");
        names.commit(names.sequence(), Some(Path::new("/d")));
        assert_eq!(loss(&names, 7), ["/d/one"]);
    }

    #[test]
    fn a_file_in_a_lost_directory_is_lost() {
        let mut names = Names::new();
        names.create_dir_all(Path::new("/d")).unwrap();
        names.add_file(Path::new("/d/f"), 1).unwrap();
        names.commit(names.sequence(), Some(Path::new("/d")));
        let outcomes: BTreeSet<usize> = (0..50).map(|seed| loss(&names, seed).len()).collect();
        assert!(outcomes.contains(&0) && outcomes.contains(&1));
    }
}
