//! Clients of the DynamoDB API while things happen to a cluster: they write and read items one by one, and several at once in transactions.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use model::append::Step;
use model::item::{ItemInput, ItemOutput, ItemShown};
use rt::Rt;
use rt_sim::Rng;
use serde_json::{Value as Json, json};

use crate::api::{Api, ApiFailure};
use crate::cluster::clients::items_draw::{self as draw, WriteRequest};
use crate::cluster::models::items::{Begun, ItemKey, SharedItems, is_refused_rightly};
use crate::cluster::plan::ClusterPlan;
use crate::cluster::plan::fault::Fault;
use crate::plan::{one_in, pick};
use crate::world::{Outcome, SharedWorld};

/// Clients of the table.
pub(crate) const CLIENTS: u64 = 4;
/// How long a client waits after a connection that did not come up.
const RECONNECT_PAUSE: Duration = Duration::from_millis(20);

/// A client that writes and reads items.
pub(crate) struct ItemClient {
    pub(crate) rt: Rt,
    pub(crate) world: SharedWorld,
    pub(crate) items: SharedItems,
    pub(crate) plan: Rc<ClusterPlan>,
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) rng: Rng,
    /// The datacenter of the connection, whose items it writes.
    pub(crate) home: usize,
}

/// A request that did not succeed, and whether it may have been carried out.
pub(crate) struct Unanswered {
    failure: ApiFailure,
    outcome: Outcome,
}

impl Unanswered {
    /// The connection is of further use.
    pub(crate) fn keeps_connection(&self) -> bool {
        matches!(self.failure, ApiFailure::Error { .. })
    }

    /// A condition did not hold, or there is an item already that was to be inserted.
    pub(crate) fn is_of_condition(&self) -> bool {
        ["ConditionalCheckFailedException", "DuplicateItemException"].contains(&self.failure.kind())
    }

    /// The body of the refusal of a condition, or of a transaction.
    pub(crate) fn refusal(&self) -> Option<&Json> {
        match &self.failure {
            ApiFailure::Error { body, .. } if self.outcome == Outcome::Refused => Some(body),
            _ => None,
        }
    }
}

/// Sends a request. A failure has to be excused; conditions and transactions may always be refused.
pub(crate) async fn ask(
    world: &SharedWorld,
    api: &mut Api,
    operation: &str,
    request: &Json,
) -> Result<Json, Unanswered> {
    let answer = api.call(operation, request).await;
    let mut world = world.borrow_mut();
    if answer.is_ok() {
        world.stats.item_requests += 1;
    }
    answer.map_err(|failure| {
        let outcome = world.classify_api(&failure, &format!("{operation} {request}"));
        Unanswered { failure, outcome }
    })
}

/// The meaning of a transaction's part.
enum Part {
    /// Of a list: its key, and the list that its condition expects.
    List(u64, Option<Vec<i64>>),
    /// Of a number.
    Number(Begun, ItemInput),
}

impl ItemClient {
    /// Works until the world is down.
    pub(crate) async fn run(mut self) {
        while !self.world.borrow().down {
            let server = *pick(&mut self.rng, &self.servers);
            self.home = self.home_of(server);
            if let Some(mut api) = self.open(server).await {
                self.work(&mut api).await;
            }
        }
    }

    fn home_of(&self, server: SocketAddr) -> usize {
        self.plan.home(self.world.borrow().nth_at(server))
    }

    async fn open(&mut self, server: SocketAddr) -> Option<Api> {
        match Api::open(&self.rt, server.ip()).await {
            Ok(api) => Some(api),
            Err(failure) => {
                self.world.borrow_mut().classify_api(&failure, "a connection to the API");
                self.rt.sleep(RECONNECT_PAUSE).await;
                None
            }
        }
    }

    async fn work(&mut self, api: &mut Api) {
        for _ in 0..1 + self.rng.below(30) {
            if self.world.borrow().down {
                return;
            }
            self.rt.sleep(Duration::from_micros(self.rng.below(self.plan.pause_micros.max(20_000)))).await;
            if self.items.borrow().homes() > 1 && one_in(&mut self.rng, 5) {
                if self.read_elsewhere(api).await {
                    continue;
                }
                return;
            }
            let step = match self.rng.below(20) {
                0 | 1 => {
                    let key = self.items.borrow_mut().number(&mut self.rng, self.home);
                    read_number(&self.world, &self.items, api, key).await
                }
                2..=5 => self.write_number(api).await,
                6 => self.statement(api).await,
                7 => self.batch(api).await,
                8 => {
                    let keys = self.items.borrow_mut().some_lists(&mut self.rng, self.home, 1);
                    read_list(&self.world, &self.items, api, keys[0]).await
                }
                9 | 10 => self.append(api).await,
                11 | 12 => {
                    let keys = self.items.borrow_mut().some_lists(&mut self.rng, self.home, 3);
                    self.read_at_once(api, &keys).await
                }
                _ => self.transaction(api).await,
            };
            if !step {
                return;
            }
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.world.borrow().now()
    }

    /// A violation that a client sees at once.
    pub(crate) fn fail(&self, checker: &str, text: impl std::fmt::Display) {
        self.world.borrow_mut().fail(format!("checker {checker}: {text}"));
    }

    async fn write_number(&mut self, api: &mut Api) -> bool {
        let (key, expected, value) = {
            let mut items = self.items.borrow_mut();
            let key = items.number(&mut self.rng, self.home);
            (key, items.expected(key), items.value())
        };
        let input = draw::draw_write(&mut self.rng, (expected, value), false);
        let Some(request) = draw::write_number(&mut self.rng, key, &input) else { return true };
        let begun = self.items.borrow_mut().begin(key, input, self.now());
        match ask(&self.world, api, request.operation, &request.body).await {
            Ok(answer) => {
                let shows = matches!(input, ItemInput::Write { shown, .. } if shown != ItemShown::Nothing);
                match draw::shown_number(answer.get("Attributes")) {
                    Ok(value) if shows => self.end_number(begun, ItemOutput::Showed(value)),
                    Ok(None) => self.end_number(begun, ItemOutput::Written),
                    Ok(Some(_)) => self.fail("items", format!("{} was answered with {answer}", request.body)),
                    Err(problem) => self.fail("items", problem),
                }
                true
            }
            Err(failed) => {
                match failed.refusal() {
                    Some(body) if failed.failure.kind() == "ConditionalCheckFailedException" => {
                        self.refuse_number(begun, &input, body.get("Item"));
                    }
                    Some(_) => self.items.borrow_mut().undo(begun),
                    None => {}
                }
                failed.keeps_connection()
            }
        }
    }

    pub(crate) fn end_number(&self, begun: Begun, output: ItemOutput) {
        let now = self.now();
        self.items.borrow_mut().end(begun, output, now);
    }

    /// A condition on a number was refused, which shows the item.
    pub(crate) fn refuse_number(&self, begun: Begun, input: &ItemInput, item: Option<&Json>) {
        match draw::shown_number(item) {
            Ok(found) if is_refused_rightly(input, found) => {
                self.end_number(begun, ItemOutput::Refused(found));
            }
            Ok(found) => self.fail("items", format!("{input:?} was refused, with an item of {found:?}")),
            Err(problem) => self.fail("items", problem),
        }
    }

    async fn append(&mut self, api: &mut Api) -> bool {
        let (key, value) = {
            let mut items = self.items.borrow_mut();
            (items.some_lists(&mut self.rng, self.home, 1)[0], items.value())
        };
        let WriteRequest { operation, mut body, .. } = draw::append(key, value);
        let shows = one_in(&mut self.rng, 2);
        if shows {
            body["ReturnValues"] = "ALL_NEW".into();
        }
        let steps = vec![Step::Append { key, value }];
        let at = self.items.borrow_mut().begin_lists(steps, self.now());
        match ask(&self.world, api, operation, &body).await {
            Ok(answer) => {
                let mut shown = Vec::new();
                if shows {
                    match draw::shown_list(answer.get("Attributes")) {
                        Ok(mut values) if values.last() == Some(&value) => {
                            values.pop();
                            shown.push((key, values));
                        }
                        other => self.fail("transactions", format!("after {body} the item is {other:?}")),
                    }
                }
                let now = self.now();
                self.items.borrow_mut().commit_lists(at, shown, now);
                true
            }
            Err(failed) => {
                if failed.refusal().is_some() {
                    let now = self.now();
                    self.items.borrow_mut().abort_lists(at, Vec::new(), now);
                }
                failed.keeps_connection()
            }
        }
    }

    /// Reads lists as they were at one moment.
    async fn read_at_once(&mut self, api: &mut Api, keys: &[u64]) -> bool {
        let gets: Vec<Json> = keys
            .iter()
            .map(|key| {
                let mut get = draw::get(ItemKey::List(*key));
                get.as_object_mut().map(|members| members.remove("ConsistentRead"));
                json!({ "Get": get })
            })
            .collect();
        let at = self.items.borrow_mut().begin_lists(Vec::new(), self.now());
        match ask(&self.world, api, "TransactGetItems", &json!({ "TransactItems": gets })).await {
            Ok(answer) => {
                let found = answer["Responses"].as_array().map_or(&[][..], Vec::as_slice);
                let read: Result<Vec<_>, String> =
                    found.iter().map(|response| draw::shown_list(response.get("Item"))).collect();
                let now = self.now();
                match read {
                    Ok(lists) if lists.len() == keys.len() => {
                        let shown = keys.iter().copied().zip(lists).collect();
                        self.items.borrow_mut().commit_lists(at, shown, now);
                    }
                    _ => self.fail("transactions", format!("TransactGetItems was answered with {answer}")),
                }
                true
            }
            Err(failed) => failed.keeps_connection(),
        }
    }

    async fn transaction(&mut self, api: &mut Api) -> bool {
        let count = 2 + self.rng.below(2) as usize;
        let keys = self.items.borrow_mut().some_lists(&mut self.rng, self.home, count);
        // A client that has just read them is right more often.
        if one_in(&mut self.rng, 2) && !self.read_at_once(api, &keys).await {
            return false;
        }
        let (mut parts, mut requests, mut steps) = (Vec::new(), Vec::new(), Vec::new());
        for (nth, key) in keys.into_iter().enumerate() {
            let (part, request) = self.list_part(nth, key, &mut steps);
            parts.push(part);
            requests.push(request.as_part());
        }
        if one_in(&mut self.rng, 3)
            && let Some((part, request)) = self.number_part()
        {
            parts.push(part);
            requests.push(request.as_part());
        }
        let mut body = json!({ "TransactItems": requests });
        // A token is remembered for ten minutes, by the clocks of nodes.
        let repeats = !self.plan.faults.contains(&Fault::ClockJump) && one_in(&mut self.rng, 2);
        if repeats {
            body["ClientRequestToken"] = format!("token{}", self.items.borrow_mut().value()).into();
        }
        let at = self.items.borrow_mut().begin_lists(steps, self.now());
        match ask(&self.world, api, "TransactWriteItems", &body).await {
            Ok(_) => self.commit(at, &parts),
            Err(failed) => {
                match failed.refusal() {
                    Some(refusal) => self.refuse(at, &parts, refusal),
                    None if repeats => return self.repeat(at, &parts, &body).await,
                    None => {}
                }
                return failed.keeps_connection();
            }
        }
        true
    }

    /// Reads a list of another datacenter.
    async fn read_elsewhere(&mut self, api: &mut Api) -> bool {
        let key = {
            let mut items = self.items.borrow_mut();
            let others = items.homes() as u64 - 1;
            let home = (self.home + 1 + self.rng.below(others) as usize) % items.homes();
            items.some_lists(&mut self.rng, home, 1)[0]
        };
        match ask(&self.world, api, "GetItem", &draw::get(ItemKey::List(key))).await {
            Ok(answer) => {
                match draw::shown_list(answer.get("Item")) {
                    Ok(values) => self.items.borrow_mut().note_elsewhere(key, values),
                    Err(problem) => self.fail("transactions", problem),
                }
                true
            }
            Err(failed) => failed.keeps_connection(),
        }
    }

    /// Sends a transaction that was not answered once more, to any node of its datacenter. Should it be refused now, the first request may still be carried out.
    async fn repeat(&mut self, at: usize, parts: &[Part], body: &Json) -> bool {
        let near: Vec<SocketAddr> =
            self.servers.iter().copied().filter(|server| self.home_of(*server) == self.home).collect();
        let server = *pick(&mut self.rng, &near);
        if let Some(mut api) = self.open(server).await
            && ask(&self.world, &mut api, "TransactWriteItems", body).await.is_ok()
        {
            self.commit(at, parts);
        }
        false
    }

    /// A transaction's part on a list; the first may be a condition alone.
    fn list_part(&mut self, nth: usize, key: u64, steps: &mut Vec<Step>) -> (Part, WriteRequest) {
        let (known, value) = {
            let mut items = self.items.borrow_mut();
            (items.known(key), items.value())
        };
        match self.rng.below(3) {
            0 if nth == 0 => {
                steps.push(Step::Read { key, values: known.clone() });
                let request = draw::check(key, &known);
                (Part::List(key, Some(known)), request)
            }
            1 => {
                steps.extend([Step::Read { key, values: known.clone() }, Step::Append { key, value }]);
                let request = draw::replace(key, &known, value);
                (Part::List(key, Some(known)), request)
            }
            _ => {
                steps.push(Step::Append { key, value });
                (Part::List(key, None), draw::append(key, value))
            }
        }
    }

    fn number_part(&mut self) -> Option<(Part, WriteRequest)> {
        let now = self.now();
        let mut items = self.items.borrow_mut();
        let key = items.number(&mut self.rng, self.home);
        let (expected, value) = (items.expected(key), items.value());
        let input = draw::draw_write(&mut self.rng, (expected, value), true);
        let request = draw::write_number(&mut self.rng, key, &input)?;
        Some((Part::Number(items.begin(key, input, now), input), request))
    }

    fn commit(&self, at: usize, parts: &[Part]) {
        let now = self.now();
        self.items.borrow_mut().commit_lists(at, Vec::new(), now);
        for part in parts {
            if let Part::Number(begun, _) = part {
                self.end_number(*begun, ItemOutput::Written);
            }
        }
        self.world.borrow_mut().stats.item_transactions += 1;
    }

    /// A transaction was cancelled: each condition that did not hold shows its item.
    fn refuse(&self, at: usize, parts: &[Part], body: &Json) {
        let reasons = body["CancellationReasons"].as_array().map_or(&[][..], Vec::as_slice);
        let is_reason = |reason: &Json| reason["Code"] != "None";
        if reasons.len() != parts.len() || !reasons.iter().any(is_reason) {
            return self.fail("transactions", format!("cancelled without a reason: {body}"));
        }
        let mut shown = Vec::new();
        for (part, reason) in parts.iter().zip(reasons) {
            let (code, item) = (reason["Code"].as_str().unwrap_or_default(), reason.get("Item"));
            match (code, part) {
                ("ConditionalCheckFailed", Part::Number(begun, input)) => {
                    self.refuse_number(*begun, input, item);
                }
                ("ConditionalCheckFailed", Part::List(key, expected)) => match draw::shown_list(item) {
                    Ok(found) if expected.as_ref().is_some_and(|expected| *expected != found) => {
                        shown.push((*key, found));
                    }
                    found => self.fail(
                        "transactions",
                        format!("the condition that list {key} is {expected:?} was refused, with {found:?}"),
                    ),
                },
                ("None" | "TransactionConflict", Part::Number(begun, _)) => {
                    self.items.borrow_mut().undo(*begun);
                }
                ("None" | "TransactionConflict", Part::List(..)) => {}
                _ => self.fail("transactions", format!("an unexpected reason: {body}")),
            }
        }
        let now = self.now();
        self.items.borrow_mut().abort_lists(at, shown, now);
    }
}

/// Reads a number; false when the connection is of no more use.
pub(crate) async fn read_number(world: &SharedWorld, items: &SharedItems, api: &mut Api, key: u64) -> bool {
    let begun = items.borrow_mut().begin(key, ItemInput::Read, world.borrow().now());
    match ask(world, api, "GetItem", &draw::get(ItemKey::Number(key))).await {
        Ok(answer) => {
            let now = world.borrow().now();
            match draw::shown_number(answer.get("Item")) {
                Ok(value) => items.borrow_mut().end(begun, ItemOutput::Value(value), now),
                Err(problem) => world.borrow_mut().fail(format!("checker items: {problem}")),
            }
            true
        }
        Err(failed) => failed.keeps_connection(),
    }
}

/// Reads a list; false when the connection is of no more use.
pub(crate) async fn read_list(world: &SharedWorld, items: &SharedItems, api: &mut Api, key: u64) -> bool {
    let at = items.borrow_mut().begin_lists(Vec::new(), world.borrow().now());
    match ask(world, api, "GetItem", &draw::get(ItemKey::List(key))).await {
        Ok(answer) => {
            let now = world.borrow().now();
            match draw::shown_list(answer.get("Item")) {
                Ok(values) => items.borrow_mut().commit_lists(at, vec![(key, values)], now),
                Err(problem) => world.borrow_mut().fail(format!("checker transactions: {problem}")),
            }
            true
        }
        Err(failed) => failed.keeps_connection(),
    }
}
