//! PartiQL statements and batches of a client of the DynamoDB API: other forms of the requests to numbers, with the same meaning.

use model::item::{ItemChange, ItemInput, ItemOutput, ItemShown};
use serde_json::{Value as Json, json};

use crate::api::Api;
use crate::cluster::clients::items::{ItemClient, ask};
use crate::cluster::clients::items_draw::{self as draw, StatementRequest};
use crate::cluster::models::items::{Begun, ItemKey, TABLE};
use crate::plan::one_in;

/// The items that a statement shows: at most one.
fn shown(answer: &Json) -> Result<Option<i64>, String> {
    let items = answer["Items"].as_array().ok_or_else(|| format!("no items: {answer}"))?;
    match items.as_slice() {
        [] => Ok(None),
        [item] => draw::shown_number(Some(item)),
        _ => Err(format!("a statement about one item shows several: {answer}")),
    }
}

impl ItemClient {
    /// A statement about a number.
    pub(crate) async fn statement(&mut self, api: &mut Api) -> bool {
        let (key, expected, value) = {
            let mut items = self.items.borrow_mut();
            let key = items.number(&mut self.rng, self.home);
            (key, items.expected(key), items.value())
        };
        let StatementRequest { input, body, needs_item } =
            draw::statement(&mut self.rng, key, (expected, value));
        let begun = self.items.borrow_mut().begin(key, input, self.now());
        match ask(&self.world, api, "ExecuteStatement", &body).await {
            Ok(answer) => {
                match (shown(&answer), input) {
                    (Ok(value), ItemInput::Read) => self.end_number(begun, ItemOutput::Value(value)),
                    (Ok(value), ItemInput::Write { shown: ItemShown::Before, .. }) => {
                        self.end_number(begun, ItemOutput::Showed(value));
                    }
                    (Ok(None), _) => self.end_number(begun, ItemOutput::Written),
                    (Ok(Some(_)), _) => self.fail("items", format!("{body} was answered with {answer}")),
                    (Err(problem), _) => self.fail("items", problem),
                }
                true
            }
            Err(failed) => {
                match failed.refusal() {
                    Some(refusal)
                        if failed.is_of_condition() && needs_item && refusal.get("Item").is_none() =>
                    {
                        // It has shown that there is no item.
                        self.items.borrow_mut().undo(begun);
                        self.end_number(begun, ItemOutput::Value(None));
                    }
                    Some(refusal) if failed.is_of_condition() => {
                        self.refuse_number(begun, &input, refusal.get("Item"));
                    }
                    Some(_) => self.items.borrow_mut().undo(begun),
                    None => {}
                }
                failed.keeps_connection()
            }
        }
    }

    /// A BatchWriteItem of numbers, each of which is written by itself. One that stays unprocessed may have been written.
    pub(crate) async fn batch(&mut self, api: &mut Api) -> bool {
        let mut writes: Vec<(u64, Begun)> = Vec::new();
        let mut requests: Vec<Json> = Vec::new();
        for _ in 0..3 {
            let now = self.now();
            let mut items = self.items.borrow_mut();
            let (key, value) = (items.number(&mut self.rng, self.home), items.value());
            if writes.iter().any(|(known, _)| *known == key) {
                continue;
            }
            let change = if one_in(&mut self.rng, 4) { ItemChange::Delete } else { ItemChange::Set(value) };
            let input = ItemInput::Write { expected: None, change, shown: ItemShown::Nothing };
            writes.push((key, items.begin(key, input, now)));
            requests.push(draw::batched(ItemKey::Number(key), change));
        }
        match ask(&self.world, api, "BatchWriteItem", &json!({ "RequestItems": { TABLE: requests } })).await {
            Ok(answer) => {
                let left = answer["UnprocessedItems"][TABLE].as_array().map_or(&[][..], Vec::as_slice);
                for ((_, begun), request) in writes.iter().zip(&requests) {
                    if !left.contains(request) {
                        self.end_number(*begun, ItemOutput::Written);
                    }
                }
                true
            }
            Err(failed) => failed.keeps_connection(),
        }
    }
}
