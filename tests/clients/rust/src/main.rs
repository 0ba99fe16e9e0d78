//! The Rust driver against a running node: `rust-client HOST PORT torc|cassandra`.
//!
//! One test a function, in order; each prints `ok NAME` or `FAIL NAME: why`. With `torc`, the driver must find every
//! shard and send each request to the one that owns the token.

mod cdc;

use std::collections::BTreeSet;
use std::future::Future;
use std::ops::ControlFlow;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::frame::Compression;
use scylla::response::PagingState;
use scylla::statement::Statement;
use scylla::statement::batch::{Batch, BatchType};
use scylla::{DeserializeRow, DeserializeValue, SerializeRow, SerializeValue};
use scylla::value::{
    Counter, CqlDate, CqlDecimal, CqlDuration, CqlTime, CqlTimestamp, CqlTimeuuid, CqlValue, CqlVarint, MaybeUnset,
};
use uuid::Uuid;

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// A user-defined type.
#[derive(Debug, PartialEq, SerializeValue, DeserializeValue)]
struct Place {
    street: String,
    number: Option<i32>,
}

/// A row.
#[derive(Debug, PartialEq, SerializeRow, DeserializeRow)]
struct Person {
    id: Uuid,
    name: String,
    places: Vec<Place>,
    age: Option<i32>,
}

const PAGED_ROWS: i32 = 10_000;

struct Suite {
    node: String,
    is_torc: bool,
    keyspace: String,
    session: Session,
    passed: usize,
    failed: usize,
}

async fn connect(node: &str, compression: Option<Compression>) -> Result<Session, Box<dyn std::error::Error + Send + Sync>> {
    let builder = SessionBuilder::new().known_node(node).compression(compression);
    Ok(builder.connection_timeout(Duration::from_secs(20)).build().await?)
}

/// Fails with the found value when the two differ.
fn equal<T: PartialEq + std::fmt::Debug>(found: T, expected: T, what: &str) -> Outcome {
    if found == expected { Ok(()) } else { Err(format!("{what}: found {found:?}, expected {expected:?}").into()) }
}

impl Suite {
    fn note(&mut self, name: &str, outcome: Outcome) {
        match outcome {
            Ok(()) => {
                self.passed += 1;
                println!("ok {name}");
            }
            Err(error) => {
                self.failed += 1;
                println!("FAIL {name}: {error}");
            }
        }
    }

    async fn run(&self, text: &str) -> Outcome {
        self.session.query_unpaged(text, &[]).await.map_err(|error| format!("{text}: {error}"))?;
        Ok(())
    }

    async fn connects(&self) -> Outcome {
        let rows = self.session.query_unpaged("SELECT key FROM system.local", &[]).await?.into_rows_result()?;
        equal(rows.single_row::<(String,)>()?.0, "local".to_string(), "key")?;
        let state = self.session.get_cluster_state();
        let nodes = std::env::var("TEST_NODES").map_or(Ok(1), |nodes| nodes.parse())?;
        equal(state.get_nodes_info().len(), nodes, "nodes")?;
        equal(state.get_nodes_info()[0].datacenter.as_deref(), Some("datacenter1"), "datacenter")
    }

    async fn ddl(&self) -> Outcome {
        let replication = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}";
        self.run(&format!("CREATE KEYSPACE {} WITH replication = {replication}", self.keyspace)).await?;
        self.session.use_keyspace(&self.keyspace, false).await?;
        for text in [
            "CREATE TYPE address (street text, number int, phones frozen<map<text, text>>)",
            "CREATE TABLE t (k int, c text, v int, s text STATIC, PRIMARY KEY (k, c)) WITH CLUSTERING ORDER BY (c DESC)",
            "ALTER TABLE t ADD extra list<int>",
        ] {
            self.run(text).await?;
        }
        self.session.refresh_metadata().await?;
        let state = self.session.get_cluster_state();
        let keyspace = state.get_keyspace(&self.keyspace).ok_or("the keyspace is not in the metadata")?;
        let table = keyspace.tables.get("t").ok_or("table t is not in the metadata")?;
        equal(table.columns.len(), 5, "columns")?;
        equal(table.partition_key.join(","), "k".to_string(), "partition key")?;
        equal(table.clustering_key.join(","), "c".to_string(), "clustering key")?;
        equal(keyspace.user_defined_types.contains_key("address"), true, "type address")
    }

    async fn types(&self) -> Outcome {
        let kinds = kinds(&self.keyspace);
        let columns: Vec<String> =
            kinds.iter().enumerate().map(|(index, (kind, _))| format!("c{index} {kind}")).collect();
        self.run(&format!("CREATE TABLE types (id int PRIMARY KEY, {})", columns.join(", "))).await?;
        for (index, (kind, values)) in kinds.into_iter().enumerate() {
            let insert = self.session.prepare(format!("INSERT INTO types (id, c{index}) VALUES (?, ?)")).await?;
            let select = self.session.prepare(format!("SELECT c{index} FROM types WHERE id = ?")).await?;
            for (number, value) in values.into_iter().map(Some).chain([None]).enumerate() {
                let id = (index * 100 + number) as i32;
                self.session.execute_unpaged(&insert, (id, &value)).await.map_err(|error| format!("{kind}: {error}"))?;
                let rows = self.session.execute_unpaged(&select, (id,)).await?.into_rows_result()?;
                equal(rows.single_row::<(Option<CqlValue>,)>()?.0, value, kind)?;
            }
        }
        Ok(())
    }

    async fn prepared(&self) -> Outcome {
        self.run("CREATE TABLE prep (k int, c text, v int, PRIMARY KEY (k, c))").await?;
        let insert = self.session.prepare("INSERT INTO prep (k, c, v) VALUES (?, ?, ?)").await?;
        equal(insert.is_token_aware(), true, "token awareness")?;
        self.session.execute_unpaged(&insert, (1, "a", 10)).await?;
        let named = self.session.prepare("INSERT INTO prep (k, c, v) VALUES (:key, :cluster, :value)").await?;
        let values = std::collections::HashMap::from([
            ("key", CqlValue::Int(1)),
            ("cluster", CqlValue::Text("b".to_string())),
            ("value", CqlValue::Int(20)),
        ]);
        self.session.execute_unpaged(&named, &values).await?;
        let select = self.session.prepare("SELECT c, v FROM prep WHERE k = ? AND c > ?").await?;
        let rows = self.session.execute_unpaged(&select, (1, "a")).await?.into_rows_result()?;
        equal(rows.single_row::<(String, i32)>()?, ("b".to_string(), 20), "slice")?;
        self.session.execute_unpaged(&insert, (1, "a", MaybeUnset::<i32>::Unset)).await?;
        let rows = self.session.query_unpaged("SELECT v FROM prep WHERE k = ? AND c = ?", (1, "a")).await?;
        equal(rows.into_rows_result()?.single_row::<(i32,)>()?.0, 10, "a value left unset")?;
        // The driver computes the same token as the server.
        let token = insert.calculate_token(&(1, "a", 10))?.ok_or("no token")?.value();
        let rows = self.session.query_unpaged("SELECT token(k) FROM prep WHERE k = 1 LIMIT 1", &[]).await?;
        equal(rows.into_rows_result()?.single_row::<(i64,)>()?.0, token, "token")
    }

    async fn batch(&self) -> Outcome {
        self.run("CREATE TABLE bat (k int, c int, v int, PRIMARY KEY (k, c))").await?;
        self.run("CREATE TABLE cnt (k int PRIMARY KEY, n counter)").await?;
        let insert = self.session.prepare("INSERT INTO bat (k, c, v) VALUES (?, ?, ?)").await?;
        for (key, kind) in [BatchType::Logged, BatchType::Unlogged].into_iter().enumerate() {
            let mut batch = Batch::new(kind);
            let mut values = Vec::new();
            for index in 0..20 {
                batch.append_statement(insert.clone());
                values.push((key as i32, index, index));
            }
            self.session.batch(&batch, values).await?;
            let rows = self.session.query_unpaged("SELECT c FROM bat WHERE k = ?", (key as i32,)).await?;
            equal(rows.into_rows_result()?.rows_num(), 20, "rows of the batch")?;
        }
        let bump = self.session.prepare("UPDATE cnt SET n = n + ? WHERE k = ?").await?;
        let mut batch = Batch::new(BatchType::Counter);
        (0..3).for_each(|_| batch.append_statement(bump.clone()));
        self.session.batch(&batch, vec![(Counter(7), 1); 3]).await?;
        let rows = self.session.query_unpaged("SELECT n FROM cnt WHERE k = 1", &[]).await?;
        equal(rows.into_rows_result()?.single_row::<(Counter,)>()?.0, Counter(21), "counter")
    }

    async fn paging(&self) -> Outcome {
        self.run("CREATE TABLE paged (k int, c int, v text, PRIMARY KEY (k, c))").await?;
        let insert = self.session.prepare("INSERT INTO paged (k, c, v) VALUES (?, ?, ?)").await?;
        let insert = &insert;
        futures::stream::iter(0..PAGED_ROWS)
            .map(|index| async move { self.session.execute_unpaged(insert, (index % 4, index, "value")).await })
            .buffer_unordered(64)
            .try_for_each(|_| async { Ok(()) })
            .await?;
        let all = Statement::new("SELECT c FROM paged").with_page_size(777);
        let found: BTreeSet<(i32,)> = self.session.query_iter(all, &[]).await?.rows_stream::<(i32,)>()?.try_collect().await?;
        equal(found.len(), PAGED_ROWS as usize, "rows over pages")?;
        let down = Statement::new("SELECT c FROM paged WHERE k = 0 ORDER BY c DESC").with_page_size(100);
        let found: Vec<(i32,)> = self.session.query_iter(down, &[]).await?.rows_stream::<(i32,)>()?.try_collect().await?;
        equal(found, (0..PAGED_ROWS).rev().filter(|c| c % 4 == 0).map(|c| (c,)).collect(), "rows downwards")?;
        let one = Statement::new("SELECT c FROM paged WHERE k = 1").with_page_size(10);
        let (page, next) = self.session.query_single_page(one.clone(), &[], PagingState::start()).await?;
        equal(page.into_rows_result()?.rows_num(), 10, "rows of a page")?;
        let ControlFlow::Continue(next) = next.into_paging_control_flow() else { return Err("no second page".into()) };
        let (page, _) = self.session.query_single_page(one, &[], next).await?;
        equal(page.into_rows_result()?.first_row::<(i32,)>()?.0, 41, "first row of the second page")
    }

    async fn error_of(&self, text: &str) -> Result<(DbError, String), String> {
        match self.session.query_unpaged(text, &[]).await {
            Err(ExecutionError::LastAttemptError(RequestAttemptError::DbError(kind, message))) => Ok((kind, message)),
            other => Err(format!("{text}: {other:?}")),
        }
    }

    async fn errors(&self) -> Outcome {
        equal(self.error_of("SELEC * FROM t").await?.0, DbError::SyntaxError, "syntax")?;
        for (text, word) in [
            ("SELECT * FROM no_such_table", "no_such_table"),
            ("SELECT nope FROM prep", "nope"),
            ("SELECT * FROM prep WHERE v = 1", "ALLOW FILTERING"),
            ("CREATE TABLE bad (k nosuchtype PRIMARY KEY)", "nosuchtype"),
        ] {
            let (kind, message) = self.error_of(text).await?;
            equal(kind, DbError::Invalid, text)?;
            equal(message.to_lowercase().contains(&word.to_lowercase()), true, &message)?;
        }
        let expected = DbError::AlreadyExists { keyspace: self.keyspace.clone(), table: "prep".to_string() };
        equal(self.error_of("CREATE TABLE prep (k int PRIMARY KEY)").await?.0, expected, "already exists")
    }

    async fn reprepare(&self) -> Outcome {
        self.run("CREATE TABLE rep (k int PRIMARY KEY, a int)").await?;
        let insert = self.session.prepare("INSERT INTO rep (k, a) VALUES (?, ?)").await?;
        self.session.execute_unpaged(&insert, (1, 1)).await?;
        self.run("ALTER TABLE rep ADD b text").await?;
        self.session.execute_unpaged(&insert, (2, 2)).await?;
        self.run("DROP TABLE rep").await?;
        self.run("CREATE TABLE rep (k int PRIMARY KEY, a int)").await?;
        self.session.execute_unpaged(&insert, (5, 6)).await?;
        let rows = self.session.query_unpaged("SELECT k, a FROM rep", &[]).await?.into_rows_result()?;
        equal(rows.single_row::<(i32, i32)>()?, (5, 6), "row")
    }

    /// Another session sees a new table once it asks (this driver does not act on schema events).
    async fn metadata_refresh(&self) -> Outcome {
        let watcher = connect(&self.node, None).await?;
        self.run("CREATE TABLE seen (k int PRIMARY KEY)").await?;
        watcher.refresh_metadata().await?;
        let state = watcher.get_cluster_state();
        let keyspace = state.get_keyspace(&self.keyspace).ok_or("the keyspace is not in the metadata")?;
        equal(keyspace.tables.contains_key("seen"), true, "the new table")
    }

    async fn tracing(&self) -> Outcome {
        let mut statement = Statement::new("SELECT * FROM prep WHERE k = 1");
        statement.set_tracing(true);
        let id = self.session.query_unpaged(statement, &[]).await?.tracing_id().ok_or("no tracing id")?;
        let trace = self.session.get_tracing_info(&id).await?;
        equal(trace.events.is_empty(), false, "a trace without events")
    }

    async fn warnings(&self) -> Outcome {
        let result = self.session.query_unpaged("SELECT count(*) FROM prep", &[]).await?;
        let warning = result.warnings().next().ok_or("no warning")?.to_lowercase();
        equal(warning.contains("aggregation"), true, &warning)
    }

    async fn conditions(&self) -> Outcome {
        let text = "INSERT INTO prep (k, c, v) VALUES (900, 'x', 1) IF NOT EXISTS";
        if !self.is_torc {
            return self.run(text).await;
        }
        match self.session.query_unpaged(text, &[]).await {
            Ok(_) => Ok(()),
            // Not executed yet: an error with this reason.
            Err(ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::Invalid, _))) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Rows, values and user-defined types by the driver's derive macros.
    async fn macros(&self) -> Outcome {
        self.run("CREATE TYPE place (street text, number int)").await?;
        self.run("CREATE TABLE people (id uuid PRIMARY KEY, name text, places list<frozen<place>>, age int)").await?;
        let person = Person {
            id: Uuid::new_v4(),
            name: "Ann".to_owned(),
            places: vec![Place { street: "Höhe".to_owned(), number: Some(7) }, Place { street: String::new(), number: None }],
            age: None,
        };
        // Bound by name: the order of the statement's columns is another one.
        let insert = self.session.prepare("INSERT INTO people (age, places, id, name) VALUES (?, ?, ?, ?)").await?;
        self.session.execute_unpaged(&insert, &person).await?;
        let select = self.session.prepare("SELECT name, age, id, places FROM people WHERE id = ?").await?;
        let rows = self.session.execute_unpaged(&select, (person.id,)).await?.into_rows_result()?;
        equal(rows.single_row::<Person>()?, person, "a row by its struct")?;
        let stream = self.session.execute_iter(self.session.prepare("SELECT * FROM people").await?, &[]).await?;
        equal(stream.rows_stream::<Person>()?.try_collect::<Vec<_>>().await?.len(), 1, "rows of a stream")
    }

    async fn compression(&self, compression: Compression) -> Outcome {
        let session = connect(&self.node, Some(compression)).await?;
        session.use_keyspace(&self.keyspace, false).await?;
        let text = "squeeze me ".repeat(1000);
        let insert = session.prepare("INSERT INTO prep (k, c, v) VALUES (?, ?, 1)").await?;
        let key = 1000 + compression as i32;
        session.execute_unpaged(&insert, (key, &text)).await?;
        let rows = session.query_unpaged("SELECT c FROM prep WHERE k = ?", (key,)).await?.into_rows_result()?;
        equal(rows.single_row::<(String,)>()?.0 == text, true, "the text came back")
    }

    async fn shards(&self) -> Outcome {
        let state = self.session.get_cluster_state();
        let sharder = state.get_nodes_info()[0].sharder().ok_or("the driver found no shards")?;
        let shards = u32::from(sharder.nr_shards.get());
        equal(shards >= 2, true, "at least two shards")?;
        let insert = self.session.prepare("INSERT INTO prep (k, c, v) VALUES (?, 'shard', 1)").await?;
        let mut seen = BTreeSet::new();
        for key in 0..200 {
            let token = insert.calculate_token(&(key,))?.ok_or("no token")?;
            let result = self.session.execute_unpaged(&insert, (key,)).await?;
            let shard = result.request_coordinator().shard().ok_or("the request went to no shard")?;
            equal(shard, sharder.shard_of(token), "shard of the request")?;
            seen.insert(shard);
        }
        equal(seen, (0..shards).collect(), "shards that were used")
    }
}

/// Every type, with values that must come back as they went.
fn kinds(keyspace: &str) -> Vec<(&'static str, Vec<CqlValue>)> {
    let text = |text: &str| CqlValue::Text(text.to_string());
    let ints = |values: &[i32]| values.iter().map(|value| CqlValue::Int(*value)).collect::<Vec<_>>();
    let address = |street: &str, number: i32| CqlValue::UserDefinedType {
        keyspace: keyspace.to_string(),
        name: "address".to_string(),
        fields: vec![
            ("street".to_string(), Some(text(street))),
            ("number".to_string(), Some(CqlValue::Int(number))),
            ("phones".to_string(), Some(CqlValue::Map(vec![(text("home"), text("1"))]))),
        ],
    };
    let time = Uuid::parse_str("2c9c2dd0-0000-11ef-8000-000000000001").expect("a version 1 uuid");
    vec![
        ("ascii", vec![CqlValue::Ascii(String::new()), CqlValue::Ascii("plain".to_string())]),
        ("bigint", vec![CqlValue::BigInt(0), CqlValue::BigInt(i64::MIN), CqlValue::BigInt(i64::MAX)]),
        ("blob", vec![CqlValue::Blob(Vec::new()), CqlValue::Blob(vec![0, 255, 7])]),
        ("boolean", vec![CqlValue::Boolean(true), CqlValue::Boolean(false)]),
        ("date", vec![CqlValue::Date(CqlDate(1 << 31)), CqlValue::Date(CqlDate(0)), CqlValue::Date(CqlDate(u32::MAX))]),
        ("decimal", vec![CqlValue::Decimal(CqlDecimal::from_signed_be_bytes_and_exponent(vec![0xff, 0x6a], 2))]),
        ("double", vec![CqlValue::Double(0.0), CqlValue::Double(-1.5), CqlValue::Double(f64::INFINITY)]),
        ("duration", vec![CqlValue::Duration(CqlDuration { months: -1, days: -2, nanoseconds: -3 })]),
        ("float", vec![CqlValue::Float(0.0), CqlValue::Float(-1.5)]),
        ("inet", vec![CqlValue::Inet([127, 0, 0, 1].into()), CqlValue::Inet([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into())]),
        ("int", ints(&[0, i32::MIN, i32::MAX])),
        ("smallint", vec![CqlValue::SmallInt(i16::MIN), CqlValue::SmallInt(i16::MAX)]),
        ("text", vec![text(""), text("žluťoučký kůň 🐎")]),
        ("time", vec![CqlValue::Time(CqlTime(0)), CqlValue::Time(CqlTime(86_399_999_999_999))]),
        ("timestamp", vec![CqlValue::Timestamp(CqlTimestamp(0)), CqlValue::Timestamp(CqlTimestamp(-2_208_988_800_000))]),
        ("timeuuid", vec![CqlValue::Timeuuid(CqlTimeuuid::from(time))]),
        ("tinyint", vec![CqlValue::TinyInt(-128), CqlValue::TinyInt(127)]),
        ("uuid", vec![CqlValue::Uuid(Uuid::new_v4())]),
        ("varint", vec![CqlValue::Varint(CqlVarint::from_signed_bytes_be(vec![0x81, 0, 0, 0, 0, 0, 0, 0, 0, 1]))]),
        ("list<int>", vec![CqlValue::List(ints(&[3, 1, 2, 2]))]),
        ("set<text>", vec![CqlValue::Set(vec![text("a"), text("b")])]),
        ("map<text, int>", vec![CqlValue::Map(vec![(text("a"), CqlValue::Int(1)), (text("b"), CqlValue::Int(2))])]),
        ("frozen<list<set<int>>>", vec![CqlValue::List(vec![CqlValue::Set(ints(&[1, 2])), CqlValue::Set(vec![])])]),
        ("tuple<int, text>", vec![CqlValue::Tuple(vec![Some(CqlValue::Int(1)), None])]),
        ("vector<float, 2>", vec![CqlValue::Vector(vec![CqlValue::Float(1.0), CqlValue::Float(-2.5)])]),
        ("vector<text, 2>", vec![CqlValue::Vector(vec![text(""), text("longer")])]),
        ("frozen<address>", vec![address("Main", 7)]),
        ("address", vec![address("Side", 8)]),
        ("list<frozen<address>>", vec![CqlValue::List(vec![address("Main", 7), address("", 0)])]),
    ]
}

/// Runs one test; one that hangs fails.
async fn limited(test: impl Future<Output = Outcome>) -> Outcome {
    tokio::time::timeout(Duration::from_secs(120), test).await.unwrap_or_else(|_| Err("not finished in 120 s".into()))
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let node = format!("{}:{}", arguments[1], arguments[2]);
    let session = match connect(&node, None).await {
        Ok(session) => session,
        Err(error) => {
            println!("FAIL connect: {error}\n0 passed, 1 failed");
            std::process::exit(1);
        }
    };
    let keyspace = format!("rust_{}", &Uuid::new_v4().simple().to_string()[..10]);
    let is_torc = arguments[3] == "torc";
    let mut suite = Suite { node, is_torc, keyspace, session, passed: 0, failed: 0 };
    macro_rules! check {
        ($name:expr, $test:expr) => {
            let outcome = limited($test).await;
            suite.note($name, outcome);
        };
    }
    check!("connect", suite.connects());
    check!("ddl", suite.ddl());
    check!("types", suite.types());
    check!("prepared", suite.prepared());
    check!("batch", suite.batch());
    check!("paging", suite.paging());
    check!("errors", suite.errors());
    check!("reprepare", suite.reprepare());
    check!("metadata_refresh", suite.metadata_refresh());
    check!("tracing", suite.tracing());
    check!("warnings", suite.warnings());
    check!("conditions", suite.conditions());
    check!("macros", suite.macros());
    check!("compression_lz4", suite.compression(Compression::Lz4));
    check!("compression_snappy", suite.compression(Compression::Snappy));
    if suite.is_torc {
        check!("shards", suite.shards());
        check!("cdc_library", async { cdc::consume(connect(&suite.node, None).await?, &format!("{}_cdc", suite.keyspace)).await });
    }
    if let Err(error) = suite.run(&format!("DROP KEYSPACE IF EXISTS {}", suite.keyspace)).await {
        println!("could not clean up: {error}");
    }
    println!("{} passed, {} failed", suite.passed, suite.failed);
    std::process::exit(i32::from(suite.failed > 0));
}
