//! The options for opening a file, and the entries of a directory.

/// How to open a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Allow reading.
    pub read: bool,
    /// Allow writing.
    pub write: bool,
    /// Make the file when it is missing.
    pub create: bool,
    /// Make the file and fail when it exists.
    pub create_new: bool,
    /// Cut an existing file to length 0.
    pub truncate: bool,
    /// Bypass the page cache. Positions and lengths of writes must be multiples of [`crate::IO_ALIGNMENT`]. Where the
    /// file system has no direct IO the file is opened buffered, which [`crate::File::is_direct`] shows.
    pub direct: bool,
    /// Every write goes to the end of the file.
    pub append: bool,
}

impl OpenOptions {
    /// An existing file, for reading.
    pub const READ: OpenOptions = OpenOptions {
        read: true,
        write: false,
        create: false,
        create_new: false,
        truncate: false,
        direct: false,
        append: false,
    };
    /// A file that must not exist yet, for reading and writing.
    pub const CREATE_NEW: OpenOptions =
        OpenOptions { write: true, create: true, create_new: true, ..OpenOptions::READ };
    /// An existing or new file, for reading and writing.
    pub const READ_WRITE: OpenOptions = OpenOptions { write: true, create: true, ..OpenOptions::READ };

    /// The same with direct IO.
    pub const fn direct(self) -> OpenOptions {
        OpenOptions { direct: true, ..self }
    }
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// The name inside the directory. Names that are not UTF-8 are left out of listings.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Length in bytes; 0 for a directory.
    pub len: u64,
}
