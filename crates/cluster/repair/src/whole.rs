//! Full reads of a follower during an incremental repair: the new parts of a row may mislead, and received rows may be
//! known already. See docs/design/repair-incremental.md.

use futures_util::future::try_join_all;
use mutation::{PartitionUpdate, RowRange, Slices};
use replica::compare::lacks;
use replica::{Form, Keys, Limits, PartitionResult, Partitions, ReadCommand, ReadPage};

use crate::bits::Bits;
use crate::follower::{Data, Follower, FollowerError};
use crate::piece::{Piece, meet, normal};
use crate::scope::Scope;

impl<D: Data> Follower<D> {
    /// Replaces the rows in the buckets of `which` by all that the shard knows of them, not only recent writes. Rows that a deletion
    /// hides go.
    pub(crate) async fn make_whole(
        &self,
        scope: &Scope,
        piece: &mut Piece,
        buckets: u32,
        which: &Bits,
    ) -> Result<(), FollowerError> {
        let found = piece.rows_of(scope, buckets, which);
        let mut whole = Vec::with_capacity(found.len());
        for (_, rows) in &found {
            let known = self.known(scope, rows).await?;
            whole.push(known.unwrap_or_else(|| rows.clone()));
        }
        piece.replace_rows(scope, found, whole);
        Ok(())
    }

    /// Applies the parts of `updates` that the shard does not know yet, unless the table was truncated later than `truncated_at`; returns
    /// the deletions that hide parts of them here.
    pub(crate) async fn take_new(
        &self,
        scope: &Scope,
        updates: Vec<PartitionUpdate>,
        truncated_at: i64,
    ) -> Result<Vec<PartitionUpdate>, FollowerError> {
        let (mut fresh, mut out) = (Vec::new(), Vec::new());
        for update in updates {
            let theirs = PartitionResult::from_update(update.clone(), false);
            let Some(mine) = self.known(scope, &theirs).await? else {
                fresh.push(update);
                continue;
            };
            let mine = normal(scope, &mine).unwrap_or(mine);
            let (hidden, merged) = meet(scope, &mine, &theirs);
            if !hidden.is_empty() {
                out.push(hidden.into_update(&scope.table, false));
            }
            let page = ReadPage { partitions: vec![mine], ..ReadPage::default() };
            fresh.extend(lacks(&scope.table, &page, &[merged], false));
        }
        try_join_all(fresh.into_iter().map(|update| self.data.apply(update, truncated_at))).await?;
        self.data.sync().await?;
        Ok(out)
    }

    /// The shard's data at the places of `rows`; none when that is too much for one read.
    async fn known(
        &self,
        scope: &Scope,
        rows: &PartitionResult,
    ) -> Result<Option<PartitionResult>, FollowerError> {
        let of_row = |row: &mutation::Row| RowRange::row(&row.clustering);
        let of_range = |range: &mutation::RangeTombstone| RowRange {
            start: range.start.clone(),
            end: range.end.clone(),
        };
        let ranges = rows.rows.iter().map(of_row).chain(rows.range_tombstones.iter().map(of_range));
        let key = Partitions::Keys(Keys::from_elem(rows.key.clone(), 1));
        let command = ReadCommand {
            slices: Slices::new(ranges.collect()),
            limits: Limits { bytes: self.config.piece_bytes_max as usize, ..Limits::NONE },
            bypass_cache: true,
            form: Form::Whole,
            ..ReadCommand::all_of(scope.table.clone(), key, scope.now)
        };
        let mut page = self.data.read(&command, None).await?;
        if page.more.is_some() {
            return Ok(None);
        }
        Ok(Some(page.partitions.pop().unwrap_or_else(|| PartitionResult::new(rows.key.clone()))))
    }
}
