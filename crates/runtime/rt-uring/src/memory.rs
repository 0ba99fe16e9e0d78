//! Files in memory, for nodes that must never touch the disk (other people's test suites): one tree shared by the
//! shards of a node, gone when the node ends.
//!
//! Nothing here waits, so no thread pool and no ring are needed; a lock is held for the copy of one buffer.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rt::driver::{DiskDriver, FileDriver, LocalBoxFuture, LockOutput, MappingDriver, PathOp, PathOutput};
use rt::{DirEntry, IoBuf, OpenOptions};

/// The disk size of a node with files in memory; memory itself runs out first.
const SPACE_BYTES: u64 = 1 << 40;

type Content = Arc<Mutex<Vec<u8>>>;

enum Node {
    Directory,
    File(Content),
}

/// The files of one node.
#[derive(Clone, Default)]
pub(crate) struct MemoryDisk {
    tree: Arc<Mutex<BTreeMap<PathBuf, Node>>>,
    locked: Arc<Mutex<BTreeSet<PathBuf>>>,
}

/// A lock held by one of this node's tasks.
struct HeldLock {
    path: PathBuf,
    locked: Arc<Mutex<BTreeSet<PathBuf>>>,
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        hold(&self.locked).remove(&self.path);
    }
}

fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl MemoryDisk {
    fn open_now(&self, path: &Path, options: OpenOptions) -> io::Result<Rc<dyn FileDriver>> {
        let mut tree = hold(&self.tree);
        let content = match tree.get(path) {
            Some(Node::Directory) => return Err(io::ErrorKind::IsADirectory.into()),
            Some(Node::File(_)) if options.create_new => return Err(io::ErrorKind::AlreadyExists.into()),
            Some(Node::File(content)) => content.clone(),
            None if options.create || options.create_new => {
                if !path.parent().is_none_or(|parent| is_directory(&tree, parent)) {
                    return Err(not_found());
                }
                let content = Content::default();
                tree.insert(path.to_owned(), Node::File(content.clone()));
                content
            }
            None => return Err(not_found()),
        };
        if options.truncate {
            hold(&content).clear();
        }
        Ok(Rc::new(MemoryFile { content, append: options.append }))
    }

    fn path_op_now(&self, op: PathOp) -> io::Result<PathOutput> {
        let mut tree = hold(&self.tree);
        match op {
            PathOp::Rename(source, target) => {
                let node = tree.remove(&source).ok_or_else(not_found)?;
                let inside: Vec<PathBuf> = below(&tree, &source).collect();
                for path in inside {
                    let node = tree.remove(&path).expect("it was just listed");
                    let rest = path.strip_prefix(&source).expect("it lies below");
                    tree.insert(target.join(rest), node);
                }
                tree.insert(target, node);
            }
            PathOp::RemoveDir(path) if is_file(&tree, &path) => Err(io::ErrorKind::NotADirectory)?,
            PathOp::Remove(path) | PathOp::RemoveDir(path) => match tree.get(&path) {
                Some(Node::File(_)) => drop(tree.remove(&path)),
                Some(Node::Directory) if below(&tree, &path).next().is_none() => drop(tree.remove(&path)),
                Some(Node::Directory) => return Err(io::ErrorKind::DirectoryNotEmpty.into()),
                None => return Err(not_found()),
            },
            PathOp::RemoveDirAll(path) => {
                let inside: Vec<PathBuf> = below(&tree, &path).collect();
                inside.iter().for_each(|path| drop(tree.remove(path)));
                tree.remove(&path).ok_or_else(not_found)?;
            }
            PathOp::CreateDirAll(path) => {
                for ancestor in path.ancestors() {
                    match tree.get(ancestor) {
                        Some(Node::File(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
                        Some(Node::Directory) => {}
                        None => drop(tree.insert(ancestor.to_owned(), Node::Directory)),
                    }
                }
            }
            PathOp::List(path) => {
                if !is_directory(&tree, &path) {
                    return Err(not_found());
                }
                let children = below(&tree, &path).filter(|child| child.parent() == Some(&path));
                let entry = |child: PathBuf| {
                    let name = child.file_name()?.to_str()?.to_owned();
                    let (is_dir, len) = stat(tree.get(&child)?);
                    Some(DirEntry { name, is_dir, len })
                };
                return Ok(PathOutput::Entries(children.filter_map(entry).collect()));
            }
            PathOp::HardLink(source, target) => {
                let Some(Node::File(content)) = tree.get(&source) else {
                    return Err(not_found());
                };
                let content = content.clone();
                if tree.contains_key(&target) {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                tree.insert(target, Node::File(content));
            }
            PathOp::Stat(path) => {
                let (is_dir, len) = stat(tree.get(&path).ok_or_else(not_found)?);
                return Ok(PathOutput::Stat { is_dir, len });
            }
            PathOp::Resolve(path) => {
                // No name is a link.
                return tree.get(&path).map(|_| PathOutput::Path(path.clone())).ok_or_else(not_found);
            }
            PathOp::SyncDir(_) => {}
            PathOp::Space(_) => return Ok(PathOutput::Space { free: SPACE_BYTES, total: SPACE_BYTES }),
        }
        Ok(PathOutput::Done)
    }
}

fn is_file(tree: &BTreeMap<PathBuf, Node>, path: &Path) -> bool {
    matches!(tree.get(path), Some(Node::File(_)))
}

fn is_directory(tree: &BTreeMap<PathBuf, Node>, path: &Path) -> bool {
    matches!(tree.get(path), Some(Node::Directory))
}

fn stat(node: &Node) -> (bool, u64) {
    match node {
        Node::Directory => (true, 0),
        Node::File(content) => (false, hold(content).len() as u64),
    }
}

/// Everything below a directory, in path order.
fn below<'a>(tree: &'a BTreeMap<PathBuf, Node>, directory: &'a Path) -> impl Iterator<Item = PathBuf> + 'a {
    let after = tree.range::<Path, _>((std::ops::Bound::Excluded(directory), std::ops::Bound::Unbounded));
    after.map(|(path, _)| path).take_while(move |path| path.starts_with(directory)).cloned()
}

impl DiskDriver for MemoryDisk {
    fn open(&self, path: PathBuf, options: OpenOptions) -> LocalBoxFuture<io::Result<Rc<dyn FileDriver>>> {
        Box::pin(std::future::ready(self.open_now(&path, options)))
    }

    fn path_op(&self, op: PathOp) -> LocalBoxFuture<io::Result<PathOutput>> {
        Box::pin(std::future::ready(self.path_op_now(op)))
    }

    fn lock(&self, path: PathBuf) -> LocalBoxFuture<io::Result<LockOutput>> {
        // No other process can see these files, but this one may ask twice.
        let lock = || {
            self.open_now(&path, OpenOptions::READ_WRITE)?;
            if !hold(&self.locked).insert(path.clone()) {
                return Ok(LockOutput::Held(Some(std::process::id())));
            }
            let held = HeldLock { path: path.clone(), locked: Arc::clone(&self.locked) };
            Ok(LockOutput::Locked(Box::new(held)))
        };
        Box::pin(std::future::ready(lock()))
    }
}

struct MemoryFile {
    content: Content,
    append: bool,
}

fn at(position: u64) -> io::Result<usize> {
    usize::try_from(position).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

impl MemoryFile {
    fn read_now(&self, position: u64, buf: &mut [u8]) -> io::Result<usize> {
        let content = hold(&self.content);
        let rest = content.get(at(position)?..).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn write_now(&self, position: u64, bytes: &[u8]) -> io::Result<usize> {
        let mut content = hold(&self.content);
        let start = if self.append { content.len() } else { at(position)? };
        let end = start.checked_add(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        if content.len() < end {
            content.resize(end, 0);
        }
        content[start..end].copy_from_slice(bytes);
        Ok(bytes.len())
    }
}

impl FileDriver for MemoryFile {
    fn read(
        &self,
        position: u64,
        mut buf: IoBuf,
        start: usize,
        len: usize,
    ) -> LocalBoxFuture<(io::Result<usize>, IoBuf)> {
        let result = self.read_now(position, buf.io_area_mut(start, len));
        Box::pin(std::future::ready((result, buf)))
    }

    fn write(
        &self,
        position: u64,
        mut buf: IoBuf,
        start: usize,
        len: usize,
    ) -> LocalBoxFuture<(io::Result<usize>, IoBuf)> {
        let result = self.write_now(position, buf.io_area_mut(start, len));
        Box::pin(std::future::ready((result, buf)))
    }

    fn sync(&self, _all: bool) -> LocalBoxFuture<io::Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn set_len(&self, len: u64) -> LocalBoxFuture<io::Result<()>> {
        let result = at(len).map(|len| hold(&self.content).resize(len, 0));
        Box::pin(std::future::ready(result))
    }

    fn allocate(&self, position: u64, len: u64) -> LocalBoxFuture<io::Result<()>> {
        let result = at(position.saturating_add(len)).map(|end| {
            let mut content = hold(&self.content);
            if content.len() < end {
                content.resize(end, 0);
            }
        });
        Box::pin(std::future::ready(result))
    }

    fn map(&self, len: u64) -> LocalBoxFuture<io::Result<Box<dyn MappingDriver>>> {
        let has_blocks = hold(&self.content).len() as u64 >= len;
        let mapping = MemoryFile { content: Arc::clone(&self.content), append: false };
        Box::pin(std::future::ready(match has_blocks {
            true => Ok(Box::new(mapping) as Box<dyn MappingDriver>),
            false => Err(io::ErrorKind::Unsupported.into()),
        }))
    }

    fn len(&self) -> LocalBoxFuture<io::Result<u64>> {
        Box::pin(std::future::ready(Ok(hold(&self.content).len() as u64)))
    }

    fn alignment(&self) -> usize {
        1
    }
}

impl MappingDriver for MemoryFile {
    fn write(&self, position: u64, bytes: &[u8]) {
        self.write_now(position, bytes).expect("a mapped range fits into memory");
    }
}
