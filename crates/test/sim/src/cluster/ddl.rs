//! Changes of the schema from several nodes at once: clients that create, alter and drop tables of their own, and the checker that
//! a change that was acknowledged can be used through every node, and that all nodes agree on the others in the end.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use rt::Rt;
use rt_sim::Rng;
use wire::Consistency;
use wire::client::ResultBody;

use crate::client::{Connection, Failure};
use crate::cluster::director::ClusterDirector;
use crate::plan::one_in;
use crate::session::connect_any;
use crate::statement::Query;
use crate::world::SharedWorld;

/// Tables of each client.
const TABLES: usize = 2;
const KEYSPACE: &str = "k0";
/// The server's code of a statement that is wrong, as one about a table that it does not know.
const INVALID: i32 = 0x2200;
/// The same of a table that is there already.
const EXISTS: i32 = 0x2400;

/// The columns of a table outside of its key; none when there is no such table.
type Columns = Option<BTreeSet<String>>;

/// A table, and its possible columns.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    name: String,
    may: Vec<Columns>,
    next_column: u32,
}

/// Shared by the clients.
pub(crate) type SharedSchema = Rc<RefCell<Vec<Known>>>;

/// A client that changes the schema.
pub(crate) struct Changer {
    pub(crate) rt: Rt,
    pub(crate) world: SharedWorld,
    pub(crate) schema: SharedSchema,
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) rng: Rng,
    /// Up to how long it waits between two changes.
    pub(crate) pause_micros: u64,
    /// Which client it is.
    pub(crate) number: usize,
}

impl Known {
    /// The tables of so many clients.
    pub(crate) fn all(clients: usize) -> Vec<Known> {
        let one = |at: usize| Known { name: format!("d{at}"), may: vec![None], next_column: 0 };
        (0..clients * TABLES).map(one).collect()
    }

    /// A change of a table whose columns are known: its text, its result, and a statement that uses it.
    fn change(&mut self, rng: &mut Rng) -> (String, Columns, Option<String>) {
        let name = format!("{KEYSPACE}.{}", self.name);
        let Some(columns) = self.may[0].clone() else {
            let text = format!("CREATE TABLE {name} (k int PRIMARY KEY, v int)");
            let used = format!("INSERT INTO {name} (k, v) VALUES (1, 1)");
            return (text, Some(BTreeSet::from(["v".to_owned()])), Some(used));
        };
        if one_in(rng, 4) {
            return (format!("DROP TABLE {name}"), None, None);
        }
        let mut columns = columns;
        if columns.len() > 1 && one_in(rng, 3) {
            let gone = columns.pop_first().expect("there are two");
            return (format!("ALTER TABLE {name} DROP {gone}"), Some(columns), None);
        }
        self.next_column += 1;
        let column = format!("x{}", self.next_column);
        let text = format!("ALTER TABLE {name} ADD {column} int");
        let used = format!("UPDATE {name} SET {column} = 1 WHERE k = 1");
        columns.insert(column);
        (text, Some(columns), Some(used))
    }
}

impl Changer {
    /// Works until the world is down.
    pub(crate) async fn run(mut self) {
        while !self.world.borrow().down {
            let pause = Duration::from_micros(self.rng.below(self.pause_micros));
            self.rt.sleep(pause).await;
            let of_table = self.number * TABLES + self.rng.below(TABLES as u64) as usize;
            if self.schema.borrow()[of_table].may.len() == 1 {
                self.step(of_table).await;
            }
        }
    }

    async fn connect(&mut self) -> Option<Connection> {
        let opened = connect_any(&self.rt, &self.world, &self.servers, &mut self.rng).await;
        opened.map(|(connection, _)| connection)
    }

    async fn step(&mut self, table: usize) {
        let Some(mut connection) = self.connect().await else { return };
        // Through another node the change is used at once.
        let Some(other) = self.connect().await else { return };
        if self.world.borrow().down {
            return;
        }
        let (text, after, used) = self.schema.borrow_mut()[table].change(&mut self.rng);
        self.schema.borrow_mut()[table].may.push(after);
        match connection.query(&Query::text(&text), None).await {
            Ok(ResultBody::SchemaChange(_)) => {
                self.world.borrow_mut().stats.schema_changes += 1;
                self.schema.borrow_mut()[table].may.remove(0);
            }
            Ok(other) => return self.world.borrow_mut().fail(format!("{text} was answered with {other:?}")),
            // A convicted node may not know the agreed schema: it proposes nothing.
            Err(failure) if is_wrong(&failure) && self.world.borrow().excuses.errors => {
                self.schema.borrow_mut()[table].may.pop();
                return;
            }
            Err(failure) => {
                self.world.borrow_mut().classify(&failure, &text);
                return;
            }
        }
        if let Some(used) = used {
            self.use_change(other, &text, &used).await;
        }
    }

    /// An acknowledged change can be used through every node.
    async fn use_change(&mut self, mut connection: Connection, change: &str, text: &str) {
        connection.consistency = Consistency::One;
        let Err(failure) = connection.query(&Query::text(text), None).await else { return };
        let wrong = is_wrong(&failure);
        let mut world = self.world.borrow_mut();
        // A node that others take for dead may not have it yet.
        if wrong && !world.excuses.errors {
            world.fail(format!("checker schema: {change} was acknowledged, and then {text}: {failure}"));
        } else if !wrong {
            world.classify(&failure, text);
        }
    }
}

/// Whether the node does not know the statement's table.
fn is_wrong(failure: &Failure) -> bool {
    matches!(failure, Failure::Error(error) if [INVALID, EXISTS].contains(&error.code()))
}

/// All nodes show each table in the same one of the ways in which it may be.
pub(crate) async fn judge(director: &mut ClusterDirector) -> Result<(), String> {
    let known = director.schema.borrow().clone();
    for (at, table) in known.iter().enumerate() {
        let text = format!(
            "SELECT column_name FROM system_schema.columns WHERE keyspace_name = '{KEYSPACE}' AND table_name = '{}'",
            table.name
        );
        let mut first: Option<Columns> = None;
        for nth in director.present() {
            let rows = director.ask(nth, &text, Consistency::One).await?;
            let name = |row: &Vec<Option<Vec<u8>>>| {
                String::from_utf8_lossy(row[0].as_deref().unwrap_or_default()).into_owned()
            };
            let columns: BTreeSet<String> = rows.iter().map(name).filter(|name| name != "k").collect();
            let found = (!rows.is_empty()).then_some(columns);
            if !table.may.contains(&found) {
                return Err(format!(
                    "node {nth} shows {} with {found:?}, which may be one of {:?}",
                    table.name, table.may
                ));
            }
            match &first {
                None => first = Some(found),
                Some(other) if *other == found => {}
                Some(other) => return Err(format!("{}: {other:?}, and {found:?} on node {nth}", table.name)),
            }
        }
        if let Some(found) = first {
            director.schema.borrow_mut()[at].may = vec![found];
        }
    }
    Ok(())
}
