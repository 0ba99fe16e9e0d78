//! Names of a simulated disk: as they are, and as a power loss would leave them.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::config::NameDurability;
use crate::random::Rng;

/// The target of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Dir,
    File(u64),
}

/// A normal path with zeros for slashes, the root being empty: the content of a directory comes right behind it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name(Box<[u8]>);

impl Name {
    fn of(path: &Path) -> Self {
        let path = path.as_os_str().as_bytes();
        let path = path.strip_suffix(b"/").unwrap_or(path);
        Self(path.iter().map(|byte| if *byte == b'/' { 0 } else { *byte }).collect())
    }

    fn path(&self) -> PathBuf {
        let bytes: Vec<u8> = self.0.iter().map(|byte| if *byte == 0 { b'/' } else { *byte }).collect();
        Path::new("/").join(OsStr::from_bytes(&bytes))
    }

    /// The directory that holds it; none of the root.
    fn parent(&self) -> Option<&[u8]> {
        self.0.iter().rposition(|byte| *byte == 0).map(|end| &self.0[..end])
    }

    fn last(&self) -> &[u8] {
        self.0.rsplit(|byte| *byte == 0).next().unwrap_or_default()
    }

    fn is_within(&self, root: &[u8]) -> bool {
        self.0.strip_prefix(root).is_some_and(|rest| matches!(rest.first(), None | Some(0)))
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

type Map = BTreeMap<Name, Entry>;

enum Change {
    Add(Name, Entry),
    Remove(Name),
    Rename(Name, Name),
}

impl Change {
    /// Applies it; calls `gone` with the files that lose a name and `come` with those that gain one.
    fn apply(&self, map: &mut Map, mut gone: impl FnMut(u64), mut come: impl FnMut(u64)) {
        let mut lost = |entry: Option<Entry>| {
            if let Some(Entry::File(inode)) = entry {
                gone(inode);
            }
        };
        match self {
            Change::Add(name, entry) => {
                if let Entry::File(inode) = entry {
                    come(*inode);
                }
                lost(map.insert(name.clone(), *entry));
            }
            Change::Remove(name) => lost(map.remove(name)),
            Change::Rename(from, to) => {
                let moved = subtree(map, from);
                for name in moved.iter().chain(&subtree(map, to)) {
                    if name.is_within(&to.0) && !name.is_within(&from.0) {
                        lost(map.remove(name));
                    }
                }
                for name in moved {
                    let entry = map.remove(&name).expect("listed a moment ago");
                    let target = [&to.0, &name.0[from.0.len()..]].concat();
                    lost(map.insert(Name(target.into()), entry));
                }
            }
        }
    }

    fn touches(&self, dir: &[u8]) -> bool {
        // Most are elsewhere, which the first bytes show: a disk remembers thousands that no sync has made durable.
        let inside = |name: &Name| {
            name.0
                .strip_prefix(dir)
                .and_then(|rest| rest.strip_prefix(&[0]))
                .is_some_and(|last| !last.contains(&0))
        };
        match self {
            Change::Add(name, _) | Change::Remove(name) => inside(name),
            Change::Rename(from, to) => inside(from) || inside(to),
        }
    }
}

fn subtree(map: &Map, root: &Name) -> Vec<Name> {
    let from = map.range::<Name, _>((std::ops::Bound::Included(root), std::ops::Bound::Unbounded));
    from.map(|(name, _)| name).take_while(|name| name.is_within(&root.0)).cloned().collect()
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
    /// How many names a file has now, may have after a power failure, and is about to have then.
    references: BTreeMap<u64, u32>,
    /// Files whose last name went since [`Names::take_unnamed`].
    unnamed: Vec<u64>,
}

impl Names {
    pub(crate) fn new() -> Names {
        let root: Map = [(Name::of(Path::new("/")), Entry::Dir)].into();
        Names {
            current: root.clone(),
            durable: root,
            pending: Vec::new(),
            sequence: 0,
            references: BTreeMap::new(),
            unnamed: Vec::new(),
        }
    }

    fn change(&mut self, change: Change) {
        let (mut gone, mut come) = (Vec::new(), Vec::new());
        change.apply(&mut self.current, |inode| gone.push(inode), |inode| come.push(inode));
        if let Change::Add(_, Entry::File(inode)) = &change {
            come.push(*inode);
        }
        self.sequence += 1;
        self.pending.push((self.sequence, change));
        self.count(&gone, &come);
    }

    fn count(&mut self, gone: &[u64], come: &[u64]) {
        for inode in come {
            *self.references.entry(*inode).or_default() += 1;
        }
        for inode in gone {
            let count = self.references.get_mut(inode).expect("what loses a name has one");
            *count -= 1;
            if *count == 0 {
                self.references.remove(inode);
                self.unnamed.push(*inode);
            }
        }
    }

    pub(crate) fn get(&self, path: &Path) -> Option<Entry> {
        self.current.get(&Name::of(path)).copied()
    }

    /// The directory that holds a name must exist.
    fn check_parent(&self, name: &Name) -> io::Result<()> {
        match self.current.get(name.parent().ok_or_else(exists)?) {
            Some(Entry::Dir) => Ok(()),
            Some(Entry::File(_)) => Err(not_a_directory()),
            None => Err(not_found()),
        }
    }

    pub(crate) fn add_file(&mut self, path: &Path, inode: u64) -> io::Result<()> {
        let name = Name::of(path);
        self.check_parent(&name)?;
        if self.current.contains_key(&name) {
            return Err(exists());
        }
        self.change(Change::Add(name, Entry::File(inode)));
        Ok(())
    }

    pub(crate) fn create_dir_all(&mut self, path: &Path) -> io::Result<()> {
        let mut above: Vec<&Path> = path.ancestors().collect();
        above.reverse();
        for dir in above {
            match self.get(dir) {
                Some(Entry::Dir) => {}
                Some(Entry::File(_)) => return Err(not_a_directory()),
                None => self.change(Change::Add(Name::of(dir), Entry::Dir)),
            }
        }
        Ok(())
    }

    pub(crate) fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        match self.get(path) {
            Some(Entry::File(_)) => self.change(Change::Remove(Name::of(path))),
            Some(Entry::Dir) => return Err(is_a_directory()),
            None => return Err(not_found()),
        }
        Ok(())
    }

    /// Names below a directory and its own.
    fn tree(&self, path: &Path) -> io::Result<Vec<Name>> {
        match self.get(path) {
            Some(Entry::Dir) => Ok(subtree(&self.current, &Name::of(path))),
            Some(Entry::File(_)) => Err(not_a_directory()),
            None => Err(not_found()),
        }
    }

    pub(crate) fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        if self.tree(path)?.len() > 1 {
            return Err(not_empty());
        }
        self.change(Change::Remove(Name::of(path)));
        Ok(())
    }

    pub(crate) fn remove_dir_all(&mut self, path: &Path) -> io::Result<()> {
        for name in self.tree(path)?.into_iter().rev() {
            self.change(Change::Remove(name));
        }
        Ok(())
    }

    pub(crate) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let source = self.get(from).ok_or_else(not_found)?;
        let target = Name::of(to);
        self.check_parent(&target)?;
        match (source, self.get(to)) {
            _ if from == to => return Ok(()),
            (Entry::Dir, _) if to.starts_with(from) => return Err(io::ErrorKind::InvalidInput.into()),
            (Entry::File(_), Some(Entry::Dir)) => return Err(is_a_directory()),
            (Entry::Dir, Some(Entry::File(_))) => return Err(not_a_directory()),
            (Entry::Dir, Some(Entry::Dir)) if subtree(&self.current, &target).len() > 1 => {
                return Err(not_empty());
            }
            _ => {}
        }
        self.change(Change::Rename(Name::of(from), target));
        Ok(())
    }

    /// Names directly inside a directory.
    pub(crate) fn list(&self, path: &Path) -> io::Result<Vec<(String, Entry)>> {
        let dir = Name::of(path);
        let inside = self.tree(path)?.into_iter().filter(|name| name.parent() == Some(&*dir.0));
        let named = inside.filter_map(|name| {
            let last = str::from_utf8(name.last()).ok()?.to_owned();
            Some((last, *self.current.get(&name)?))
        });
        Ok(named.collect())
    }

    /// All files, for checkers.
    pub(crate) fn files(&self) -> Vec<(PathBuf, u64)> {
        let files = self.current.iter().filter_map(|(name, entry)| match entry {
            Entry::File(inode) => Some((name.path(), *inode)),
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
        let dir = dir.map(Name::of);
        let mut went = false;
        let (mut gone, mut come) = (Vec::new(), Vec::new());
        let durable = &mut self.durable;
        self.pending.retain(|(number, change)| {
            if *number > sequence || !dir.as_ref().is_none_or(|dir| change.touches(&dir.0)) {
                return true;
            }
            change.apply(durable, |inode| gone.push(inode), |inode| come.push(inode));
            match change {
                // It was counted as pending.
                Change::Add(_, Entry::File(inode)) => gone.push(*inode),
                Change::Add(_, Entry::Dir) => {}
                Change::Remove(_) | Change::Rename(..) => went = true,
            }
            false
        });
        self.count(&gone, &come);
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
            change.apply(&mut self.durable, |_| {}, |_| {});
        }
        self.settle();
        survivors
    }

    /// The names as they are on disk now.
    pub(crate) fn image(&self) -> Names {
        let mut image = Names { durable: self.durable.clone(), sequence: self.sequence, ..Names::new() };
        image.settle();
        image
    }

    /// The present state becomes the durable one; names whose directory is not durable are gone.
    fn settle(&mut self) {
        let has_dir = |map: &Map, dir: &[u8]| map.get(dir) == Some(&Entry::Dir);
        let is_orphan = |map: &Map, name: &Name| {
            (0..name.0.len()).filter(|at| name.0[*at] == 0).any(|end| !has_dir(map, &name.0[..end]))
        };
        let orphans: Vec<Name> =
            self.durable.keys().filter(|name| is_orphan(&self.durable, name)).cloned().collect();
        for orphan in orphans {
            self.durable.remove(&orphan);
        }
        self.current = self.durable.clone();
        self.references = BTreeMap::new();
        for entry in self.current.values().chain(self.durable.values()) {
            if let Entry::File(inode) = entry {
                *self.references.entry(*inode).or_default() += 1;
            }
        }
    }

    /// Whether a file has a name now or may have one after a power failure.
    pub(crate) fn refers_to(&self, inode: u64) -> bool {
        self.references.contains_key(&inode)
    }

    /// Files whose last name went since the last call, and in no power failure.
    pub(crate) fn take_unnamed(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.unnamed)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn loss(names: &Names, seed: u64) -> Vec<String> {
        let mut after =
            Names { current: names.current.clone(), durable: names.durable.clone(), ..Names::new() };
        for (number, change) in &names.pending {
            let change = match change {
                Change::Add(name, entry) => Change::Add(name.clone(), *entry),
                Change::Remove(name) => Change::Remove(name.clone()),
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

    #[test]
    fn names_of_files_are_counted_whatever_happens_to_them() {
        let mut names = Names::new();
        let all = |names: &Names| -> BTreeMap<u64, u32> {
            let pending = names.pending.iter().filter_map(|(_, change)| match change {
                Change::Add(_, entry) => Some(entry),
                Change::Remove(_) | Change::Rename(..) => None,
            });
            let mut counts = BTreeMap::new();
            for entry in names.current.values().chain(names.durable.values()).chain(pending) {
                if let Entry::File(inode) = entry {
                    *counts.entry(*inode).or_insert(0) += 1;
                }
            }
            counts
        };
        let mut rng = Rng::new(7, 0);
        let path = |rng: &mut Rng| PathBuf::from(format!("/d{}/f{}", rng.below(3), rng.below(4)));
        for inode in 0..3_000 {
            let (one, other) = (path(&mut rng), path(&mut rng));
            let _ = match rng.below(13) {
                0..=3 => names.add_file(&one, inode),
                4 => names.rename(&one, &other),
                5 => names.rename(one.parent().unwrap(), other.parent().unwrap()),
                6 | 7 => names.remove_file(&one),
                8 => names.create_dir_all(one.parent().unwrap()),
                9 => names.remove_dir_all(one.parent().unwrap()),
                12 => names.remove_dir(one.parent().unwrap()),
                10 => {
                    names.commit(rng.below(names.sequence() + 1), one.parent());
                    Ok(())
                }
                _ if rng.below(20) == 0 => {
                    names.power_loss(&mut rng);
                    Ok(())
                }
                _ => {
                    names.commit(names.sequence(), None);
                    Ok(())
                }
            };
            assert_eq!(names.references, all(&names));
            for unnamed in names.take_unnamed() {
                assert!(!names.refers_to(unnamed));
            }
        }
    }
}
