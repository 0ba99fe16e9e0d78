//! Files as every format reads and writes them: verified blocks, a cursor over them, and appending.

mod append;
mod blocks;
mod cursor;

pub(crate) use append::{AppendFile, rewrite, write_whole};
pub(crate) use blocks::{BlockFile, Layout, max_len_on_disk};
pub(crate) use cursor::Cursor;
