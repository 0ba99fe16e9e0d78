//! Checkers of the DynamoDB API: for each number there is an order of all requests to it which explains every answer (`items`), and there is one order
//! of all transactions and of all requests to lists (`transactions`).

use model::append;
use model::item::NumberItem;
use model::linear::{Linearity, check};

use crate::api::Api;
use crate::cluster::checks::serial;
use crate::cluster::clients::items::{read_list, read_number};
use crate::cluster::clients::items_draw::create_table;
use crate::cluster::director::ClusterDirector;
use crate::cluster::models::items::ItemKey;

/// Creates the table, if the plan wants one.
pub(crate) async fn prepare(director: &mut ClusterDirector) -> Result<(), String> {
    if !director.plan.operations.items {
        return Ok(());
    }
    let mut api = open(director, 0).await?;
    let created = api.call("CreateTable", &create_table()).await;
    created.map_err(|failure| format!("CreateTable: {failure}"))?;
    director.world.borrow_mut().stats.schema_changes += 1;
    Ok(())
}

/// Reads every item once more, and looks for an order of the requests to each number.
pub(crate) async fn judge_numbers(director: &mut ClusterDirector) -> Result<(), String> {
    let (world, items) = (director.world.clone(), director.items.clone());
    let (keys, homes) = (items.borrow().keys(), items.borrow().homes());
    for home in 0..homes {
        let nth = director.any_node_of(Some(home));
        let mut api = open(director, nth).await?;
        let here = keys.iter().filter(|key| items.borrow().home(**key) == home).copied().collect::<Vec<_>>();
        for key in here {
            let read = match key {
                ItemKey::Number(key) => read_number(&world, &items, &mut api, key).await,
                ItemKey::List(key) => read_list(&world, &items, &mut api, key).await,
            };
            if director.failed() {
                return Ok(());
            }
            if !read {
                return Err(format!("item {} is not read by node {nth}", key.text()));
            }
        }
    }
    for (key, history) in &items.borrow().numbers {
        let found = check(&NumberItem, history);
        world.borrow_mut().stats.note_history(!matches!(found, Linearity::Unknown));
        match found {
            Linearity::Linear(_) | Linearity::Unknown => {}
            Linearity::Broken(longest) => {
                return Err(serial::complaint(&format!("item n{key}"), history, &longest));
            }
        }
    }
    Ok(())
}

/// Looks for an order of all requests to lists. The items were read once more by [`judge_numbers`].
pub(crate) fn judge_lists(director: &ClusterDirector) -> Result<(), String> {
    let mut items = director.items.borrow_mut();
    director.world.borrow_mut().stats.note_history(true);
    if let Err(anomaly) = append::check(&items.lists) {
        let mut text = format!("no order explains the requests to lists: {anomaly}");
        for at in anomaly.members() {
            let one = &items.lists[at];
            let (invoked, ended) = (one.invoked / 1_000, one.ended / 1_000);
            text.push_str(&format!("\n  {at}: {invoked}–{ended} µs {:?} {:?}", one.ending, one.steps));
        }
        return Err(text);
    }
    items.retire();
    Ok(())
}

/// A connection to the API of a node that must take one.
pub(crate) async fn open(director: &ClusterDirector, nth: usize) -> Result<Api, String> {
    let opened = Api::open(&director.rt, director.ip(nth)).await;
    opened.map_err(|failure| format!("node {nth} takes no connection to the API: {failure}"))
}
