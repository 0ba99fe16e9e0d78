//! A client that changes the schema while the others work, and the settling of interrupted changes after a restart.

use std::net::SocketAddr;
use std::time::Duration;

use model::{Column, Effect, Write};
use rt::Rt;
use rt_sim::Rng;
use wire::client::ResultBody;

use crate::client::{Connection, Failure};
use crate::plan::{self, one_in, pick};
use crate::session;
use crate::statement::Query;
use crate::table::{Key, Pending, Table};
use crate::world::{SharedWorld, World};

/// Columns that a table may have outside of its key.
const COLUMNS_MAX: usize = 6;

/// One change, ready to be sent.
struct Change {
    table: usize,
    text: String,
    pending: Pending,
    /// Truncation as the partitions' histories have it.
    writes: Vec<(Key, u64)>,
}

/// The state of the client.
pub(crate) struct Schemer {
    pub(crate) rt: Rt,
    pub(crate) world: SharedWorld,
    pub(crate) server: SocketAddr,
    pub(crate) rng: Rng,
}

impl Schemer {
    fn is_down(&self) -> bool {
        self.world.borrow().down
    }

    /// Works until the world is down.
    pub(crate) async fn run(mut self) {
        while !self.is_down() {
            let speech = session::speech(&mut self.rng);
            if let Some(mut connection) = session::connect(&self.rt, &self.world, self.server, speech).await {
                while !self.is_down() && self.step(&mut connection).await {}
            }
            self.rt.sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits, and makes one change; false when the connection is of no more use.
    async fn step(&mut self, connection: &mut Connection) -> bool {
        let pause = Duration::from_micros(self.rng.below(60_000));
        self.rt.sleep(pause).await;
        if self.is_down() {
            return false;
        }
        if self.world.borrow().hold {
            self.rt.sleep(Duration::from_millis(100)).await;
            return true;
        }
        let Some(table) = self.take_table() else { return true };
        while self.world.borrow().tables[table].busy > 0 && !self.is_down() {
            self.rt.sleep(Duration::from_micros(200)).await;
        }
        if self.is_down() {
            // Nothing was sent: the table is as it was.
            self.world.borrow_mut().tables[table].frozen = false;
            return false;
        }
        let change = self.draw(table);
        self.carry_out(connection, change).await
    }

    /// A table that clients leave alone from now on.
    fn take_table(&mut self) -> Option<usize> {
        let mut world = self.world.borrow_mut();
        let free: Vec<usize> = (0..world.tables.len()).filter(|at| !world.tables[*at].frozen).collect();
        if free.is_empty() {
            return None;
        }
        let table = *pick(&mut self.rng, &free);
        world.tables[table].frozen = true;
        Some(table)
    }

    fn draw(&mut self, at: usize) -> Change {
        let rng = &mut self.rng;
        let mut world = self.world.borrow_mut();
        let world = &mut *world;
        if !world.tables[at].exists {
            return draw_create(world, rng, at);
        }
        let name = world.tables[at].full_name();
        let change = |text, pending| Change { table: at, text, pending, writes: Vec::new() };
        let counter = world.tables[at].shape.is_counter();
        match rng.below(10) {
            0..=2 if !counter && world.tables[at].shape.columns.len() < COLUMNS_MAX => {
                let column = draw_column(world, rng, at);
                let fixed = if column.is_static { " static" } else { "" };
                let text = format!("ALTER TABLE {name} ADD {} {}{fixed}", column.name, column.ty.name());
                let mut shape = world.tables[at].shape.clone();
                shape.columns.push(column);
                change(text, Pending::Alter(shape))
            }
            3 | 4 if !counter && world.tables[at].shape.columns.len() > 1 => {
                let mut shape = world.tables[at].shape.clone();
                let gone = shape.columns.remove(rng.below(shape.columns.len() as u64) as usize);
                // Cells up to this timestamp go; later ones of a column of the same name are another column's.
                let timestamp = world.timestamp(0);
                world.raise_floor();
                let text = format!("ALTER TABLE {name} DROP {} USING TIMESTAMP {timestamp}", gone.name);
                world.tables[at].gone.push(gone);
                change(text, Pending::Alter(shape))
            }
            5 | 6 => {
                let options = plan::options(rng);
                let shape = world.tables[at].shape.clone();
                change(format!("ALTER TABLE {name} WITH {options}"), Pending::Alter(shape))
            }
            7 => change(format!("DROP TABLE {name}"), Pending::Drop),
            _ => draw_truncate(world, at),
        }
    }

    async fn carry_out(&mut self, connection: &mut Connection, change: Change) -> bool {
        let Change { table, text, pending, writes } = change;
        self.world.borrow_mut().tables[table].pending = Some(pending.clone());
        let answer = connection.query(&Query::text(&text), None).await;
        let mut world = self.world.borrow_mut();
        match (answer, &pending) {
            (Ok(ResultBody::Void), Pending::Truncate) => {
                world.stats.schema_changes += 1;
                world.tables[table].pending = None;
                world.tables[table].partitions.values_mut().for_each(model::Partition::truncate);
                world.tables[table].frozen = false;
            }
            // An ALTER to the options that are there changes nothing.
            (Ok(ResultBody::SchemaChange(_)), _) | (Ok(ResultBody::Void), Pending::Alter(_)) => {
                world.stats.schema_changes += 1;
                world.tables[table].settle(true);
                world.tables[table].frozen = false;
            }
            (Ok(other), _) => world.fail(format!("{text} was answered with {other:?}")),
            (Err(failure), _) => {
                let outcome = world.classify(&failure, &text);
                world.end(table, &writes, Some(outcome));
                // The table stays frozen until a restart shows the outcome of the change.
                return matches!(failure, Failure::Error(_));
            }
        }
        true
    }
}

fn draw_create(world: &mut World, rng: &mut Rng, at: usize) -> Change {
    let counter = one_in(rng, 4);
    let shape = plan::shape(rng, counter, &mut world.next_column);
    let options = plan::options(rng);
    let table = &mut world.tables[at];
    (table.shape, table.options) = (shape, options);
    table.gone.clear();
    let text = table.create_text();
    Change { table: at, text, pending: Pending::Create, writes: Vec::new() }
}

/// A new column, or one of a name and type that the table once had.
fn draw_column(world: &mut World, rng: &mut Rng, at: usize) -> Column {
    world.next_column += 1;
    let (id, table) = (world.next_column, &mut world.tables[at]);
    if !table.gone.is_empty() && one_in(rng, 2) {
        let place = rng.below(table.gone.len() as u64) as usize;
        let column = Column { id, ..table.gone[place].clone() };
        if table.shape.column(&column.name).is_none() {
            return column;
        }
    }
    let is_static = !table.shape.clustering.is_empty() && one_in(rng, 4);
    Column { id, name: format!("x{id}"), ty: plan::column_type(rng), is_static }
}

fn draw_truncate(world: &mut World, at: usize) -> Change {
    let text = format!("TRUNCATE {}", world.tables[at].full_name());
    let keys: Vec<Key> = world.tables[at].partitions.keys().cloned().collect();
    let mut writes = Vec::new();
    for key in keys {
        let (id, clock) = (world.next_id(), world.all_seconds());
        let effects = vec![Effect::Truncate];
        world.begin(at, &key, Write { id, timestamp: 0, clock, text: text.clone(), effects });
        writes.push((key, id));
    }
    world.note_truncation(at, &writes);
    Change { table: at, text, pending: Pending::Truncate, writes }
}

/// Compares the tables with the node's schema after a start, and settles changes that were cut off.
pub(crate) async fn resolve(world: &SharedWorld, connection: &mut Connection) -> Result<(), String> {
    let count = world.borrow().tables.len();
    for at in 0..count {
        let (keyspace, name) = {
            let world = world.borrow();
            (world.tables[at].keyspace.clone(), world.tables[at].name.clone())
        };
        let text = format!(
            "SELECT column_name, type FROM system_schema.columns WHERE keyspace_name = '{keyspace}' AND table_name = '{name}'"
        );
        let rows = connection.rows(&Query::text(text), 100).await.map_err(|failure| failure.to_string())?;
        let text = |cell: &Option<Vec<u8>>| {
            String::from_utf8_lossy(cell.as_deref().unwrap_or_default()).into_owned()
        };
        let mut found: Vec<(String, String)> =
            rows.iter().map(|row| (text(&row[0]), text(&row[1]))).collect();
        found.sort();
        let mut world = world.borrow_mut();
        let table = &mut world.tables[at];
        let before = if table.exists { Table::columns(&table.shape) } else { Vec::new() };
        let after = match &table.pending {
            Some(Pending::Alter(shape)) => Table::columns(shape),
            Some(Pending::Drop) => Vec::new(),
            Some(Pending::Create) => Table::columns(&table.shape),
            Some(Pending::Truncate) | None => before.clone(),
        };
        if found != before && found != after {
            return Err(format!(
                "{keyspace}.{name} has columns {found:?}, but it had {before:?}, and the change that was cut off ({:?}) \
                 would have left {after:?}",
                table.pending
            ));
        }
        table.settle(found == after);
        table.frozen = false;
    }
    Ok(())
}
