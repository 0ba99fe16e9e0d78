//! A shard that answers a repair's requests. It caches the page of the last request, because the next request is
//! most often about the same segment; without it the shard reads again. So no state here outlives a lost master for long, and
//! nobody has to report a lost master.

use std::cell::{Cell, RefCell};

use futures_util::future::try_join_all;
use mutation::PartitionUpdate;
use replica::{ReadCommand, ReadPage, RepairedWatermark, ReplicaError, Resume};
use schema::TableId;
use topology::TokenRange;

use crate::bits::Bits;
use crate::message::{Answer, Ask, Request, Summary};
use crate::piece::{Piece, command};
use crate::scope::{Scope, Slice};

/// The data of one shard.
pub trait Data {
    /// Reads the shard's part of a command's partitions, or only the rows written after a mark.
    ///
    /// # Errors
    /// That of the shard's storage; the segment is given up then.
    fn read(
        &self,
        command: &ReadCommand,
        above: Option<RepairedWatermark>,
    ) -> impl Future<Output = Result<ReadPage, ReplicaError>>;
    /// Applies an update of a partition that the shard owns, unless the table was truncated later than `truncated_at`.
    ///
    /// # Errors
    /// [`ReplicaError::Truncated`] when the table was truncated later; that of the shard's storage.
    fn apply(
        &self,
        update: PartitionUpdate,
        truncated_at: i64,
    ) -> impl Future<Output = Result<(), ReplicaError>>;
    /// When the shard's part of a table was truncated last.
    fn truncated_at(&self, table: TableId) -> i64;
    /// Returns when a power failure cannot undo applied rows.
    ///
    /// # Errors
    /// That of the commit log or of a flush.
    fn sync(&self) -> impl Future<Output = Result<(), ReplicaError>>;
}

/// The limits of a shard's follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerConfig {
    /// Bytes of a page at most, even if the master requests more; one row may be larger.
    pub piece_bytes_max: u32,
    /// Bytes of all cached pages.
    pub kept_bytes_max: usize,
    /// How often another request may come before an unused page is evicted.
    pub kept_questions_max: u64,
}

impl Default for FollowerConfig {
    fn default() -> Self {
        Self { piece_bytes_max: 4 << 20, kept_bytes_max: 8 << 20, kept_questions_max: 64 }
    }
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FollowerError {
    /// The data could not be read or written.
    #[error(transparent)]
    Replica(#[from] ReplicaError),
    /// The segment has grown too large since its end was agreed. The master begins it again.
    #[error("the segment has grown to more than {0} bytes since its end was agreed")]
    Grown(u32),
    /// The rows that the shard had reported are gone or changed. The master begins the segment again.
    #[error("the segment has changed since its content was reported")]
    Changed,
}

/// Identifies a page.
#[derive(Clone, Debug, PartialEq)]
struct Name {
    table: TableId,
    range: TokenRange,
    slice: Slice,
    seed: u64,
    base: Option<RepairedWatermark>,
    after: Option<Resume>,
}

struct HeldSegment {
    name: Name,
    piece: Piece,
    /// When the table had been truncated last, before the page was read: the next truncation invalidates it.
    truncated_at: i64,
    bytes: usize,
    asked_at: u64,
}

/// One shard's side of all repairs.
pub struct Follower<D> {
    pub(crate) data: D,
    pub(crate) config: FollowerConfig,
    /// The most recently used is the last.
    kept: RefCell<Vec<HeldSegment>>,
    questions: Cell<u64>,
}

impl<D: Data> Follower<D> {
    /// Answers from this data.
    pub fn new(data: D, config: FollowerConfig) -> Self {
        Self { data, config, kept: RefCell::default(), questions: Cell::new(0) }
    }

    /// The data of the shard.
    pub fn data(&self) -> &D {
        &self.data
    }

    /// Bytes of cached pages.
    pub fn kept_bytes(&self) -> usize {
        self.kept.borrow().iter().map(|kept| kept.bytes).sum()
    }

    /// Requests answered so far.
    pub fn questions(&self) -> u64 {
        self.questions.get()
    }

    /// Evicts all pages, as happens to unused ones.
    pub fn forget(&self) {
        self.kept.borrow_mut().clear();
    }

    /// Answers a request.
    ///
    /// # Errors
    /// [`FollowerError::Replica`] when data cannot be read, written or made durable, or the table was truncated;
    /// [`FollowerError::Grown`] and [`FollowerError::Changed`] when the segment is not the agreed one any more.
    pub async fn answer(&self, request: Request) -> Result<Answer, FollowerError> {
        let Request { scope, after, base, ask } = request;
        let name = Name {
            table: scope.table.id,
            range: scope.range,
            slice: scope.slice,
            seed: scope.seed,
            base,
            after,
        };
        let (piece, truncated_at) = self.piece(&name, &scope, &ask).await?;
        let answer = match ask {
            Ask::Summary { .. } => Answer::Summary(Summary {
                end: piece.end().cloned(),
                elements: piece.elements(),
                sum: piece.sum(),
            }),
            Ask::Sums { buckets, .. } => Answer::Numbers(piece.sums(buckets)),
            Ask::Contents { buckets, which, .. } => {
                Answer::Numbers(piece.contents(buckets, |bucket| which.has(bucket)))
            }
            Ask::Fetch { contents, .. } => {
                let found = piece.fetch(&scope, &contents);
                Answer::Partitions(found.ok_or(FollowerError::Changed)?)
            }
            Ask::Push { updates, .. } if base.is_some() => {
                Answer::Hidden(self.take_new(&scope, updates, truncated_at).await?)
            }
            Ask::Push { updates, .. } => {
                let hidden = piece.hides(&scope, &updates);
                // Each is a row or more of one partition, and none has to wait for the others to be durable.
                let apply = |update| self.data.apply(update, truncated_at);
                try_join_all(updates.into_iter().map(apply)).await?;
                // The others may forget a deletion as soon as this shard has acknowledged it: it must be durable first.
                self.data.sync().await?;
                Answer::Hidden(hidden)
            }
        };
        // The page may be obsolete after a truncation, and the rows that arrived were dropped.
        self.check_truncation(name.table, truncated_at)?;
        self.keep(name, piece, truncated_at);
        Ok(answer)
    }

    /// The page of a request, cached or read now, and when the table had been truncated last before it
    /// was read.
    async fn piece(&self, name: &Name, scope: &Scope, ask: &Ask) -> Result<(Piece, i64), FollowerError> {
        let (base, after) = (name.base, name.after.clone());
        let mut truncated_at = self.data.truncated_at(name.table);
        let Some(upto) = ask.upto() else {
            self.forget_segment_before(name);
            let Ask::Summary { bytes_max } = ask else { unreachable!("only a summary has no end") };
            let bytes_max = (*bytes_max).min(self.config.piece_bytes_max);
            return Ok((self.read(scope, after, base, bytes_max).await?, truncated_at));
        };
        let kept = self.take(name).filter(|kept| kept.piece.reaches(upto));
        let forgotten = kept.is_none();
        let mut piece = match kept {
            Some(kept) => {
                truncated_at = kept.truncated_at;
                self.check_truncation(name.table, truncated_at)?;
                kept.piece
            }
            None => self.read(scope, after, base, self.config.piece_bytes_max).await?,
        };
        if !piece.reaches(upto) {
            return Err(FollowerError::Grown(self.config.piece_bytes_max));
        }
        piece.cut(scope, upto);
        match ask {
            Ask::Contents { buckets, which, .. } if base.is_some() => {
                self.make_whole(scope, &mut piece, *buckets, which).await?;
            }
            Ask::Fetch { .. } if base.is_some() && forgotten => {
                self.make_whole(scope, &mut piece, 1, &Bits::all(1)).await?;
            }
            _ => {}
        }
        Ok((piece, truncated_at))
    }

    /// Rows from before a truncation must not come back by way of a repair that began before it.
    fn check_truncation(&self, table: TableId, at: i64) -> Result<(), FollowerError> {
        if self.data.truncated_at(table) == at { Ok(()) } else { Err(FollowerError::Changed) }
    }

    async fn read(
        &self,
        scope: &Scope,
        after: Option<Resume>,
        base: Option<RepairedWatermark>,
        bytes_max: u32,
    ) -> Result<Piece, FollowerError> {
        let page = self.data.read(&command(scope, after.as_ref(), bytes_max as usize), base).await?;
        Ok(Piece::new(scope, after, page))
    }

    fn take(&self, name: &Name) -> Option<HeldSegment> {
        let mut kept = self.kept.borrow_mut();
        let at = kept.iter().position(|kept| kept.name == *name)?;
        Some(kept.remove(at))
    }

    /// A request of a master for the next segment ends the one before.
    fn forget_segment_before(&self, name: &Name) {
        self.kept
            .borrow_mut()
            .retain(|kept| Name { after: None, ..kept.name.clone() } != Name { after: None, ..name.clone() });
    }

    fn keep(&self, name: Name, piece: Piece, truncated_at: i64) {
        let now = self.questions.get() + 1;
        self.questions.set(now);
        let mut kept = self.kept.borrow_mut();
        kept.retain(|kept| now - kept.asked_at <= self.config.kept_questions_max);
        let bytes = piece.memory_size();
        kept.push(HeldSegment { name, piece, truncated_at, bytes, asked_at: now });
        let mut total: usize = kept.iter().map(|kept| kept.bytes).sum();
        while total > self.config.kept_bytes_max {
            total -= kept.remove(0).bytes;
        }
    }
}
