//! A place in a file with the bytes that follow it, as many of them in one piece as an item needs.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::rc::Rc;

use super::blocks::{BlockFile, ReadAhead};
use crate::prefix::ParseError;
use crate::{Block, SstableError};

/// The bytes at hand.
enum Window {
    /// A block as it is.
    Block(Block),
    /// The tail of one block and the blocks behind it, for an item that spans them.
    Joined(Vec<u8>),
}

/// Reads a [`BlockFile`] forward, with jumps. A block that is in the cache costs no wait.
pub(crate) struct Cursor {
    file: Rc<BlockFile>,
    window: Window,
    /// Where in the file's content the window begins.
    start: u64,
    /// Where in the window the cursor is; may be its end.
    at: usize,
    /// For scans: large reads instead of the cache.
    ahead: Option<ReadAhead>,
}

impl Cursor {
    /// A cursor at `position`.
    pub(crate) fn new(file: Rc<BlockFile>, position: u64, scan: bool) -> Self {
        Self {
            file,
            window: Window::Joined(Vec::new()),
            start: position,
            at: 0,
            ahead: scan.then(ReadAhead::default),
        }
    }

    /// The size in the file of some bytes of its content.
    pub(crate) fn on_disk(&self, bytes: u64) -> u64 {
        let (file, content) = (u128::from(self.file.file_len()), u128::from(self.file.len().max(1)));
        (u128::from(bytes) * file / content) as u64
    }

    /// Whether it reads for a scan.
    pub(crate) fn is_scan(&self) -> bool {
        self.ahead.is_some()
    }

    /// Where the cursor is in the file's content.
    #[inline]
    pub(crate) fn position(&self) -> u64 {
        self.start + self.at as u64
    }

    fn window(&self) -> &[u8] {
        match &self.window {
            Window::Block(block) => block,
            Window::Joined(bytes) => bytes,
        }
    }

    /// The bytes at hand from the cursor on.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.window().get(self.at..).unwrap_or_default()
    }

    /// Moves on over bytes that are at hand.
    #[inline]
    pub(crate) fn advance(&mut self, len: usize) {
        assert!(len <= self.window().len() - self.at, "the cursor moves over bytes that were read");
        self.at += len;
    }

    /// Whether the file ends here.
    pub(crate) fn is_at_end(&self) -> bool {
        self.position() >= self.file.len()
    }

    /// Bytes from the cursor to the end of the file.
    pub(crate) fn remaining(&self) -> u64 {
        self.file.len().saturating_sub(self.position())
    }

    /// Moves to another place; beyond the file's end is an error.
    pub(crate) fn seek(&mut self, position: u64) -> Result<(), SstableError> {
        if position > self.file.len() {
            let expected = format!("a place within {} bytes", self.file.len());
            return Err(SstableError::corrupt(
                self.file.path(),
                self.position(),
                expected,
                position.to_string(),
            ));
        }
        match position.checked_sub(self.start).filter(|at| *at <= self.window().len() as u64) {
            Some(at) => self.at = at as usize,
            None => {
                self.window = Window::Joined(Vec::new());
                self.start = position;
                self.at = 0;
            }
        }
        assert_eq!(self.position(), position, "the cursor is where it was moved to");
        Ok(())
    }

    async fn block(&mut self, block: u64) -> Result<Block, SstableError> {
        if let Some(found) = self.file.cached(block) {
            return Ok(found);
        }
        match &mut self.ahead {
            Some(ahead) => self.file.read_ahead(block, ahead).await,
            None => self.file.read(block).await,
        }
    }

    /// Makes at least `missing` bytes more available behind those at hand.
    pub(crate) async fn extend(&mut self, missing: usize) -> Result<(), SstableError> {
        let block_len = self.file.block_len();
        let rest = self.bytes().len();
        let end = self.position() + rest as u64;
        let wanted = end.saturating_add(missing as u64);
        if wanted > self.file.len() {
            let found = format!("the end of the data at {}", self.file.len());
            return Err(SstableError::corrupt(
                self.file.path(),
                self.position(),
                format!("{missing} bytes at {end}"),
                found,
            ));
        }
        if rest == 0 {
            let number = end / block_len;
            let block = self.block(number).await?;
            let start = number * block_len;
            let covers = start + block.len() as u64;
            self.window = Window::Block(block);
            self.start = start;
            self.at = (end - start) as usize;
            assert!(covers > end, "a block has the byte at the cursor");
            if covers >= wanted {
                return Ok(());
            }
        }
        // The item spans blocks: join them. Blocks before the wanted end exist, so memory is bounded by the file.
        let mut joined = Vec::with_capacity((wanted - self.position()) as usize + block_len as usize);
        joined.extend_from_slice(self.bytes());
        let position = self.position();
        while position + (joined.len() as u64) < wanted {
            let number = (position + joined.len() as u64) / block_len;
            let skip = (position + joined.len() as u64 - number * block_len) as usize;
            let block = self.block(number).await?;
            assert!(skip < block.len(), "a block has the bytes that follow those at hand");
            joined.extend_from_slice(block.get(skip..).unwrap_or_default());
        }
        assert!(joined.len() >= rest + missing, "as many bytes come as were missing");
        self.window = Window::Joined(joined);
        self.start = position;
        self.at = 0;
        Ok(())
    }

    /// Reads the bytes that a parser lacked, or turns its verdict into an error with the place.
    pub(crate) async fn resolve(&mut self, error: ParseError) -> Result<(), SstableError> {
        match error {
            ParseError::Short(missing) => self.extend(missing).await,
            ParseError::Invalid { expected, found } => {
                Err(SstableError::corrupt(self.file.path(), self.position(), expected, found))
            }
        }
    }

    /// An error about the bytes at the cursor.
    pub(crate) fn corrupt(&self, expected: impl Into<String>, found: impl Into<String>) -> SstableError {
        SstableError::corrupt(self.file.path(), self.position(), expected, found)
    }
}
