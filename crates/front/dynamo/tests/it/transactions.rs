//! Transactions of several clients whose steps are interleaved by a seed, on a table in memory. Clients stop between two steps for good,
//! as coordinators that die do; others go on.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use cluster::SchemaEdit;
use coordinator::{
    CAS_APART_MICROS, CasOptions, CasOutcome, ClusterView, Consistency, RequestError, SchemaChangeError,
    WriteOptions,
};
use dynamo::{Dynamo, Isolation};
use exec::backend::{Clock, Coordinator, Decide};
use exec::{ExecError, ExecLimits, Executor, NodeInfo};
use mutation::{DecoratedKey, PartitionRange, PartitionUpdate, Timestamp};
use replica::{
    Candidates, FragmentsPage, FragmentsRead, NearestQuery, OrderedPlaces, OrderedScan, ReadCommand,
    ReadPage, TraceLog,
};
use rt::Instant;
use schema::{Schema, Table, TableId};
use serde_json::{Value as Json, json};

use crate::memory::{Memory, START_SECONDS};
use crate::{body_of, create};

/// Others come in between: some of the other clients, and other operations of the same one.
async fn step(world: &World) {
    let mut left = 1 + world.random.borrow_mut().below(3);
    std::future::poll_fn(move |context| {
        left -= 1;
        context.waker().wake_by_ref();
        if left == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// A xorshift generator.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// The state that all clients of a run share.
struct World {
    random: RefCell<Random>,
    micros: Cell<i64>,
    /// One write in so many is carried out and reported as timed out, or not carried out and reported so.
    loses: usize,
}

/// The table in memory, where every operation takes two steps and writes may time out.
#[derive(Clone)]
struct Stepped {
    memory: Memory,
    world: Rc<World>,
}

impl Coordinator for Stepped {
    fn schema(&self) -> Arc<Schema> {
        self.memory.schema()
    }

    fn view(&self) -> Arc<ClusterView> {
        self.memory.view()
    }

    async fn read(
        &self,
        command: &ReadCommand,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<ReadPage, RequestError> {
        step(&self.world).await;
        let page = self.memory.read(command, consistency, deadline).await;
        step(&self.world).await;
        page
    }

    async fn fragment_sources(
        &self,
        table: &Table,
        key: &DecoratedKey,
        deadline: Instant,
    ) -> Result<Vec<String>, RequestError> {
        self.memory.fragment_sources(table, key, deadline).await
    }

    async fn read_fragments(
        &self,
        table: &Table,
        read: FragmentsRead,
        deadline: Instant,
    ) -> Result<FragmentsPage, RequestError> {
        self.memory.read_fragments(table, read, deadline).await
    }

    async fn partition_keys(
        &self,
        table: &Table,
        range: &PartitionRange,
        count_max: usize,
        deadline: Instant,
    ) -> Result<Vec<DecoratedKey>, RequestError> {
        self.memory.partition_keys(table, range, count_max, deadline).await
    }

    async fn nearest(
        &self,
        table: &Arc<Table>,
        query: &Arc<NearestQuery>,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<Candidates, RequestError> {
        step(&self.world).await;
        self.memory.nearest(table, query, consistency, deadline).await
    }

    async fn scan_index(
        &self,
        table: &Arc<Table>,
        scan: &Arc<OrderedScan>,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<OrderedPlaces, RequestError> {
        step(&self.world).await;
        self.memory.scan_index(table, scan, consistency, deadline).await
    }

    async fn write(&self, updates: Vec<PartitionUpdate>, options: WriteOptions) -> Result<(), RequestError> {
        step(&self.world).await;
        self.memory.write(updates, options).await
    }

    fn traced(&self, _: &TraceLog) -> Self {
        self.clone()
    }

    async fn cas(
        &self,
        command: &ReadCommand,
        options: CasOptions,
        decide: Decide<'_>,
    ) -> Result<CasOutcome, ExecError> {
        step(&self.world).await;
        let lost = match self.world.loses {
            0 => 9,
            loses => self.world.random.borrow_mut().below(loses),
        };
        let timeout = || {
            ExecError::Request(RequestError::CasUncertain {
                consistency: options.serial,
                received: 1,
                required: 2,
            })
        };
        if lost == 1 {
            return Err(timeout());
        }
        if self.world.loses != 0 && self.world.random.borrow_mut().below(100) == 0 {
            // The transaction in progress seems to have stopped long ago.
            self.world.micros.set(self.world.micros.get() + 11_000_000);
        }
        let micros = || {
            self.world.micros.set(self.world.micros.get() + CAS_APART_MICROS);
            self.world.micros.get()
        };
        let mut decide = |page: &ReadPage, _: Timestamp| decide(page, micros());
        let outcome = self.memory.cas(command, options, &mut decide).await;
        if lost == 0 {
            return Err(timeout());
        }
        step(&self.world).await;
        outcome
    }

    async fn read_serial(
        &self,
        command: &ReadCommand,
        consistency: Consistency,
        deadline: Instant,
    ) -> Result<ReadPage, RequestError> {
        self.read(command, consistency, deadline).await
    }

    async fn increment(&self, _: Vec<PartitionUpdate>, _: WriteOptions) -> Result<(), RequestError> {
        unreachable!("the API has no counters")
    }

    async fn truncate(&self, _: &Table, _: Instant) -> Result<(), RequestError> {
        unreachable!("the API does not truncate")
    }

    async fn change_schema(&self, base: [u8; 16], edits: Vec<SchemaEdit>) -> Result<(), SchemaChangeError> {
        self.memory.change_schema(base, edits).await
    }

    async fn check_given_id(&self, base: [u8; 16], id: TableId) -> Result<(), SchemaChangeError> {
        self.memory.check_given_id(base, id).await
    }
}

/// The clock of a client, so many microseconds ahead of the others.
struct WorldClock(Rc<World>, i64);

impl Clock for WorldClock {
    fn wall_micros(&self) -> i64 {
        self.0.micros.set(self.0.micros.get() + 1);
        self.0.micros.get() + self.1
    }

    fn now(&self) -> Instant {
        Instant::START
    }

    fn random(&self) -> [u8; 16] {
        let mut random = self.0.random.borrow_mut();
        std::array::from_fn(|_| random.below(256) as u8)
    }
}

/// Accounts: two in each of two tables.
const ACCOUNTS: [(&str, &str); 4] = [("one", "a"), ("one", "b"), ("two", "a"), ("two", "b")];

struct Bank {
    world: Rc<World>,
    memory: Memory,
}

impl Bank {
    fn new(seed: u64, loses: usize) -> Self {
        let world = World {
            random: RefCell::new(Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)),
            micros: Cell::new(START_SECONDS * 1_000_000),
            loses: 0,
        };
        let bank = Self { world: Rc::new(world), memory: Memory::new() };
        // The tables are made and filled before any client begins.
        let plain = plain(&bank.memory);
        for table in ["one", "two"] {
            create(&plain, table, None);
        }
        for (table, account) in ACCOUNTS {
            let put = json!({ "TableName": table, "Item": { "p": { "S": account }, "n": { "N": "100" } } });
            body_of(crate::call(&plain, "PutItem", &put.to_string()));
        }
        let random = RefCell::new(Random(seed | 1));
        let micros = Cell::new(bank.world.micros.get() + 3_000_000);
        Self { world: Rc::new(World { random, micros, loses }), memory: bank.memory }
    }

    fn api(&self, ahead_micros: i64) -> Dynamo<Stepped> {
        let node = NodeInfo {
            cluster_name: "c".to_owned(),
            snitch: "s".to_owned(),
            address: ([127, 0, 0, 1], 9042).into(),
        };
        let backend = Stepped { memory: self.memory.clone(), world: self.world.clone() };
        let clock = Rc::new(WorldClock(self.world.clone(), ahead_micros));
        Dynamo::new(Rc::new(Executor::new(backend, clock, node, ExecLimits::default())), Isolation::Always)
    }
}

fn plain(memory: &Memory) -> Dynamo<Memory> {
    let node = NodeInfo {
        cluster_name: "c".to_owned(),
        snitch: "s".to_owned(),
        address: ([127, 0, 0, 1], 9042).into(),
    };
    let clock = Rc::new(crate::memory::TestClock::default());
    let executor = Executor::new(memory.clone(), clock, node, ExecLimits::default());
    Dynamo::new(Rc::new(executor), Isolation::Always)
}

/// The counts of a client.
#[derive(Default)]
struct Seen {
    /// Transfers that were acknowledged, by account: its gain.
    gained: [i64; 4],
    committed: usize,
    cancelled: usize,
    unknown: usize,
    snapshots: usize,
    swept: u64,
}

fn amount(item: &Json) -> i64 {
    item["n"]["N"].as_str().map_or(0, |text| text.parse().expect("a number"))
}

async fn call(api: &Dynamo<Stepped>, operation: &str, body: &Json) -> (u16, Json) {
    let answer = api.call(operation, body.to_string().as_bytes(), "localhost", None).await;
    (answer.status, serde_json::from_str(&answer.body).expect("JSON"))
}

/// Moves money from one account to others, all or nothing; an account that has too little refuses.
async fn transfer(api: &Dynamo<Stepped>, world: &World, token: String, seen: &RefCell<Seen>) {
    let (from, to, mut sum, takes_all) = {
        let mut random = world.random.borrow_mut();
        let from = random.below(4);
        (from, (from + 1 + random.below(3)) % 4, 1 + random.below(40) as i64, random.below(3) == 0)
    };
    if takes_all {
        let (table, account) = ACCOUNTS[from];
        let get = json!({ "TableName": table, "Key": { "p": { "S": account } }, "ConsistentRead": true });
        sum = amount(&call(api, "GetItem", &get).await.1["Item"]).max(1);
    }
    let update = |(table, account): (&str, &str), sum: i64, condition: &str| {
        let mut update = json!({
            "TableName": table, "Key": { "p": { "S": account } }, "UpdateExpression": "ADD n :n",
            "ExpressionAttributeValues": { ":n": { "N": sum.to_string() } }
        });
        if !condition.is_empty() {
            update["ConditionExpression"] = condition.into();
            update["ExpressionAttributeValues"][":least"] = json!({ "N": sum.abs().to_string() });
        }
        json!({ "Update": update })
    };
    let take = match takes_all {
        // An account that is emptied is deleted; a deleted one comes back with the next gain.
        true => json!({ "Delete": {
            "TableName": ACCOUNTS[from].0, "Key": { "p": { "S": ACCOUNTS[from].1 } }, "ConditionExpression": "n = :n",
            "ExpressionAttributeValues": { ":n": { "N": sum.to_string() } }
        } }),
        false => update(ACCOUNTS[from], -sum, "n >= :least"),
    };
    let give = update(ACCOUNTS[to], sum, "");
    let body = json!({ "TransactItems": [take, give], "ClientRequestToken": token });
    for _ in 0..20 {
        let (status, answer) = call(api, "TransactWriteItems", &body).await;
        let kind = answer["__type"].as_str().unwrap_or_default().to_owned();
        let mut seen = seen.borrow_mut();
        if status == 200 {
            seen.committed += 1;
            seen.gained[from] -= sum;
            seen.gained[to] += sum;
            return;
        }
        if kind.ends_with("TransactionCanceledException") {
            seen.cancelled += 1;
            return;
        }
        assert!(
            kind.ends_with("InternalServerError") || kind.ends_with("TransactionInProgressException"),
            "{answer}"
        );
        // The outcome is not known: the same token again.
        world.micros.set(world.micros.get() + 4_000_000);
        drop(seen);
        step(world).await;
    }
    seen.borrow_mut().unknown += 1;
}

/// The sum of all accounts is the same in every snapshot.
async fn snapshot(api: &Dynamo<Stepped>, seen: &RefCell<Seen>) {
    let get = |(table, account): &(&str, &str)| json!({ "Get": { "TableName": table, "Key": { "p": { "S": account } } } });
    let body = json!({ "TransactItems": ACCOUNTS.iter().map(get).collect::<Vec<_>>() });
    let (status, answer) = call(api, "TransactGetItems", &body).await;
    if status != 200 {
        return;
    }
    let all = answer["Responses"].as_array().expect("responses");
    assert_eq!(all.iter().map(|one| amount(&one["Item"])).sum::<i64>(), 400, "{answer}");
    seen.borrow_mut().snapshots += 1;
}

/// Adds to an account and takes the same away, with writes of one item.
async fn single_writes(api: &Dynamo<Stepped>, at: usize) {
    for sum in ["0", "0"] {
        let body = json!({
            "TableName": ACCOUNTS[at].0, "Key": { "p": { "S": ACCOUNTS[at].1 } },
            "UpdateExpression": "ADD n :n", "ConditionExpression": "attribute_exists(p)",
            "ExpressionAttributeValues": { ":n": { "N": sum } }
        });
        let (status, answer) = call(api, "UpdateItem", &body).await;
        let kind = answer["__type"].as_str().unwrap_or_default();
        let expected =
            ["TransactionConflictException", "ConditionalCheckFailedException", "InternalServerError"];
        assert!(status == 200 || expected.iter().any(|one| kind.ends_with(one)), "{answer}");
    }
}

/// The events of a run.
#[derive(Clone, Copy, Default)]
struct Scenario {
    /// One write in so many is reported as timed out; none for 0.
    loses: usize,
    /// A coordinator dies.
    dies: bool,
    /// How far the clock of the first client's node is ahead of the others.
    ahead_micros: i64,
}

/// One run; returns its clients' observations.
fn run(seed: u64, Scenario { loses, dies, ahead_micros }: Scenario) -> Seen {
    let bank = Bank::new(seed, loses);
    let seen = Rc::new(RefCell::new(Seen::default()));
    let mut clients: Vec<Option<Pin<Box<dyn Future<Output = ()>>>>> = Vec::new();
    for client in 0..4 {
        let ahead_micros = if client == 0 { ahead_micros } else { 0 };
        let (api, world, seen) = (bank.api(ahead_micros), bank.world.clone(), seen.clone());
        clients.push(Some(Box::pin(async move {
            for at in 0..4 {
                transfer(&api, &world, format!("{client}-{at}"), &seen).await;
                snapshot(&api, &seen).await;
                let at = world.random.borrow_mut().below(4);
                single_writes(&api, at).await;
            }
        })));
    }
    // Of those that die nothing is known.
    let doomed = if dies { Some((0, 1 + bank.world.random.borrow_mut().below(60))) } else { None };
    let mut context = Context::from_waker(Waker::noop());
    let mut polls = [0; 4];
    while clients.iter().any(Option::is_some) {
        let at = bank.world.random.borrow_mut().below(4);
        let Some(client) = &mut clients[at] else { continue };
        polls[at] += 1;
        assert!(polls[at] < 100_000, "seed {seed}: a client does not end");
        if doomed == Some((at, polls[at])) || client.as_mut().poll(&mut context).is_ready() {
            clients[at] = None;
        }
    }
    // Long afterwards, the next reader finishes unfinished transactions.
    bank.world.micros.set(bank.world.micros.get() + 60_000_000);
    let quiescent = Rc::new(World {
        random: RefCell::new(Random(seed | 1)),
        micros: Cell::new(bank.world.micros.get()),
        loses: 0,
    });
    let bank = Bank { world: quiescent, memory: bank.memory };
    let api = bank.api(0);
    let sweeps = seed.is_multiple_of(2);
    match sweeps {
        true => seen.borrow_mut().swept = crate::ready(api.finish_abandoned()).expect("records are read"),
        false => crate::ready(snapshot(&api, &seen)),
    }
    let mut balances = [0; 4];
    for (at, (table, account)) in ACCOUNTS.iter().enumerate() {
        // Behind the sweep, no reader has to look up the outcome of a transaction.
        let body = json!({ "TableName": table, "Key": { "p": { "S": account } }, "ConsistentRead": !sweeps });
        let (status, answer) = crate::ready(call(&api, "GetItem", &body));
        assert_eq!(status, 200);
        balances[at] = amount(&answer["Item"]);
    }
    assert_eq!(balances.iter().sum::<i64>(), 400, "seed {seed}: {balances:?}");
    let seen = Rc::into_inner(seen).expect("the clients are gone").into_inner();
    if seen.unknown == 0 && !dies {
        let expected: Vec<i64> = seen.gained.iter().map(|gained| 100 + gained).collect();
        assert_eq!(balances[..], expected[..], "seed {seed}: what was acknowledged is there, once");
    }
    seen
}

fn runs(count: u64, scenario: Scenario) -> Seen {
    let mut all = Seen::default();
    for seed in 1..=count {
        let seen = run(seed, scenario);
        all.committed += seen.committed;
        all.cancelled += seen.cancelled;
        all.unknown += seen.unknown;
        all.snapshots += seen.snapshots;
        all.swept += seen.swept;
    }
    all
}

#[test]
fn transactions_are_atomic_and_isolated() {
    let all = runs(150, Scenario::default());
    println!("{} committed, {} cancelled, {} snapshots", all.committed, all.cancelled, all.snapshots);
    assert!(all.committed > 150 && all.cancelled > 150 && all.snapshots > 150);
}

#[test]
fn transactions_whose_coordinator_dies_are_finished_by_others() {
    let all = runs(150, Scenario { dies: true, ..Scenario::default() });
    println!("{} committed, {} swept", all.committed, all.swept);
    assert!(all.committed > 100 && all.snapshots > 100 && all.swept > 10);
}

#[test]
fn a_token_makes_a_transaction_once_whatever_is_lost() {
    let all = runs(150, Scenario { loses: 12, ..Scenario::default() });
    println!("{} committed, {} cancelled, {} unknown", all.committed, all.cancelled, all.unknown);
    assert!(all.committed > 100);
}

#[test]
fn no_clock_that_is_hours_or_years_from_the_others_cancels_half_of_a_transaction() {
    const HOUR: i64 = 3_600_000_000;
    for ahead_micros in [2 * HOUR, -2 * HOUR, 100_000 * HOUR] {
        // Its node finds every transaction of others abandoned, and they its own.
        let all = runs(100, Scenario { ahead_micros, ..Scenario::default() });
        println!("{} committed, {} cancelled, {} snapshots", all.committed, all.cancelled, all.snapshots);
        assert!(all.committed > 100 && all.cancelled > 100 && all.snapshots > 60);
    }
}

#[test]
fn a_coordinator_that_dies_with_a_clock_hours_ahead_holds_no_item_until_then() {
    // The others look a minute later, long before the time at which it has begun by its own clock.
    let scenario = Scenario { dies: true, ahead_micros: 7_200_000_000, ..Scenario::default() };
    let all = runs(150, scenario);
    println!("{} committed, {} swept", all.committed, all.swept);
    assert!(all.committed > 100 && all.swept > 10);
}
