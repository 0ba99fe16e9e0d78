//! Reads and writes of items, among transactions that hold some of them: by the isolation that a table's writes have.

use std::collections::BTreeMap;
use std::rc::Rc;

use exec::backend::Coordinator;
use items::{Item, Projection, item_size};
use mutation::{PartitionUpdate, Row, Timestamp};
use replica::{ReadCommand, ReadPage};

use crate::error::{Result, invalid};
use crate::reply::text_of;
use crate::settle::conflict;
use crate::store::{Isolation, Store, read_consistency};
use crate::table::{ApiTable, RowKey, RowWrite, State, row_of};

/// How often a write carries out effects of decided transactions on its rows before it gives up.
const SETTLED_MAX: usize = 16;

/// The decision of a write that sees the item; none where there is nothing to write.
pub(crate) type Decide<'a> = &'a mut dyn FnMut(Option<Rc<Item>>) -> Result<Option<RowWrite>>;

/// The same, given the time of the write as well.
type DecideAt<'a> = &'a mut dyn FnMut(Option<Rc<Item>>, Timestamp) -> Result<Option<RowWrite>>;

impl<C: Coordinator> Store<'_, C> {
    /// The item of a key.
    pub(crate) async fn get(&self, table: &ApiTable, key: &RowKey, consistent: bool) -> Result<Option<Item>> {
        let state = self.state(table, key, consistent).await?;
        self.item_of(table, key, state, consistent).await
    }

    async fn item_of(
        &self,
        table: &ApiTable,
        key: &RowKey,
        state: State,
        consistent: bool,
    ) -> Result<Option<Item>> {
        if !consistent || state.intent.is_none() {
            return Ok(state.item);
        }
        let key = table.key_of_row(key)?;
        self.visible(state.item, &key, state.intent.as_ref(), &mut BTreeMap::new()).await
    }

    /// The text of the item of a key as it is sent, projected, and the size of the whole item.
    pub(crate) async fn shown(
        &self,
        table: &ApiTable,
        key: &RowKey,
        consistent: bool,
        projection: Option<&Projection>,
    ) -> Result<Option<(String, usize)>> {
        let (consistency, now) = (read_consistency(consistent), self.now());
        // The text where that is possible, and else the state.
        let look = |row: Option<&Row>| match row {
            None => Ok(Err(State::default())),
            Some(row) => match projection.is_none().then(|| table.text_of_row(key, row, now)).flatten() {
                Some(shown) => Ok(Ok(shown)),
                None => table.state(key, row, now).map(Err),
            },
        };
        let seen = match self.row_here(table, (&key.partition, &key.clustering), (consistency, now), look) {
            Some(seen) => seen,
            None => {
                let command = table.read_rows(&key.partition, std::iter::once(&key.clustering), now);
                let page = self.read(&command, consistency).await?;
                look(row_of(&page, key).filter(|row| row.is_live(now)))
            }
        };
        let state = match seen? {
            Ok(shown) => return Ok(Some(shown)),
            Err(state) => state,
        };
        let item = self.item_of(table, key, state, consistent).await?;
        Ok(item.map(|item| match projection {
            Some(projection) => (text_of(&projection.apply(&item)), item_size(&item)),
            None => (text_of(&item), item_size(&item)),
        }))
    }

    /// The state of the row of a key.
    pub(crate) async fn state(&self, table: &ApiTable, key: &RowKey, consistent: bool) -> Result<State> {
        let command = table.read_rows(&key.partition, std::iter::once(&key.clustering), self.now());
        let page = self.read(&command, read_consistency(consistent)).await?;
        table.state_of(&page, key, command.now)
    }

    fn isolation(&self, table: &ApiTable) -> Isolation {
        let tagged = table.isolation().and_then(|name| Isolation::from_name(std::str::from_utf8(name).ok()?));
        tagged.unwrap_or(self.isolation)
    }

    /// Whether a write that does not depend on the item may be made without a look at it.
    pub(crate) fn writes_blindly(&self, table: &ApiTable) -> bool {
        self.isolation(table) != Isolation::Always
    }

    /// Writes the result of `decide` on an item. It is called again after contention; a write that does not depend on the item
    /// (`reads` is false) may be called without it.
    pub(crate) async fn modify(
        &self,
        table: &ApiTable,
        key: &RowKey,
        reads: bool,
        decide: Decide<'_>,
    ) -> Result<()> {
        let isolation = self.isolation(table);
        if reads && isolation != Isolation::ForbidRmw {
            self.metrics.count(|figures| figures.reads_before_write += 1);
        }
        match (isolation, reads) {
            (Isolation::Always, _) | (Isolation::OnlyRmw, true) => self.agree(table, key, decide).await,
            (Isolation::ForbidRmw, true) => self.check_may_read_before_write(table),
            (Isolation::UnsafeRmw, true) => {
                let old = self.get(table, key, true).await?;
                self.write_decided(table, key, decide(old.map(Rc::new))?).await
            }
            (_, false) => self.write_decided(table, key, decide(None)?).await,
        }
    }

    /// Refuses a write that reads before it where the table's isolation forbids these.
    ///
    /// # Errors
    /// A validation error.
    pub(crate) fn check_may_read_before_write(&self, table: &ApiTable) -> Result<()> {
        if self.isolation(table) == Isolation::ForbidRmw {
            return invalid!(
                "Read-modify-write operations are disabled by 'forbid_rmw' write isolation policy. Set the tag \
                 system:write_isolation or the option alternator_write_isolation to allow them"
            );
        }
        Ok(())
    }

    async fn write_decided(&self, table: &ApiTable, key: &RowKey, write: Option<RowWrite>) -> Result<()> {
        let Some(write) = write else { return Ok(()) };
        self.write(vec![table.update(key, &write, self.executor.timestamp(), self.now())]).await
    }

    /// Writes the result of `decide` on an item, with no other decision in between.
    ///
    /// # Errors
    /// Those of `decide`, and a conflict while a transaction holds the item.
    pub(crate) async fn agree(&self, table: &ApiTable, key: &RowKey, decide: Decide<'_>) -> Result<()> {
        self.agree_at(table, key, &mut |item, _| decide(item)).await
    }

    /// [`Store::agree`] with a decision that is given the time of the write.
    pub(crate) async fn agree_at(&self, table: &ApiTable, key: &RowKey, decide: DecideAt<'_>) -> Result<()> {
        let now = self.now();
        let command = table.read_rows(&key.partition, std::iter::once(&key.clustering), now);
        let stale = match self.canaries.stale_condition {
            true => Some(self.state(table, key, true).await?.item),
            false => None,
        };
        let mut decided = |page: &ReadPage, ballot: Timestamp| -> Result<Option<PartitionUpdate>> {
            let item = match &stale {
                Some(item) => item.clone(),
                None => table.state_of(page, key, now)?.item,
            };
            let write = decide(item.map(Rc::new), ballot)?;
            Ok(write.map(|write| table.update(key, &write, ballot, now)))
        };
        self.agree_on(table, &command, &mut decided).await
    }

    /// A lightweight transaction on rows that no transaction holds; one that is decided is carried out first.
    pub(crate) async fn agree_on(
        &self,
        table: &ApiTable,
        command: &ReadCommand,
        decide: &mut dyn FnMut(&ReadPage, Timestamp) -> Result<Option<PartitionUpdate>>,
    ) -> Result<()> {
        self.metrics.count(|figures| figures.write_using_lwt += 1);
        for _ in 0..SETTLED_MAX {
            let mut held = Vec::new();
            let mut decided = |page: &ReadPage, ballot: Timestamp| {
                held = table.held(page, command.now)?;
                if held.is_empty() { decide(page, ballot) } else { Ok(None) }
            };
            self.transact(command, &mut decided).await?;
            if held.is_empty() {
                return Ok(());
            }
            for (key, intent) in held {
                self.settle(table, &key, &intent).await?;
            }
        }
        Err(conflict())
    }
}
