//! Records: changes of items as GetRecords shows them.

use items::{Item, item_size, json};
use serde_json::json as to_json;
use stdx::murmur3;

use crate::names::REGION;
use crate::reply::push_member;
use crate::streams::change::Change;
use crate::streams::definition::ViewType;

/// The author of a change that no client has made.
const SERVICE: &str = "dynamodb.amazonaws.com";

/// A record and its size.
pub(crate) struct Record {
    /// Its JSON: a tree may have hundreds of times the bytes of the items.
    pub(crate) text: String,
    /// As its items count.
    pub(crate) bytes: usize,
}

/// The record of a change of the stream with an ARN; none when nothing was changed.
pub(crate) fn record(change: &Change, view: ViewType, arn: &str) -> Option<Record> {
    let name = match (&change.before, &change.after) {
        (None, None) => return None,
        (Some(before), Some(after)) if before == after => return None,
        (None, Some(_)) => "INSERT",
        (Some(_), Some(_)) => "MODIFY",
        (Some(_), None) => "REMOVE",
    };
    let sequence_number = change.position.sequence_number();
    let mut bytes = item_size(&change.key);
    let mut inner = to_json!({
        "ApproximateCreationDateTime": change.position.micros / 1_000_000, "Keys": json::item(&change.key),
    })
    .to_string();
    let mut show = |name: &str, item: &Option<Item>, is_shown: bool| {
        if let Some(item) = item.as_ref().filter(|_| is_shown) {
            bytes += item_size(item);
            push_member(&mut inner, name, |out| json::write_item(item, out));
        }
    };
    show("NewImage", &change.after, view.shows_new());
    show("OldImage", &change.before, view.shows_old());
    let [high, low] = murmur3::hash128(format!("{arn}|{sequence_number}").as_bytes(), 0);
    let mut json = to_json!({
        "eventID": format!("{high:016x}{low:016x}"),
        "eventName": name,
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": REGION,
    });
    if change.is_expiry
        && let Some(members) = json.as_object_mut()
    {
        members.insert("userIdentity".to_owned(), to_json!({ "Type": "Service", "PrincipalId": SERVICE }));
    }
    let rest = [
        ("SequenceNumber", to_json!(sequence_number)),
        ("SizeBytes", to_json!(bytes)),
        ("StreamViewType", to_json!(view.name())),
    ];
    for (name, value) in rest {
        push_member(&mut inner, name, |out| out.push_str(&value.to_string()));
    }
    let mut text = json.to_string();
    push_member(&mut text, "dynamodb", |out| out.push_str(&inner));
    Some(Record { text, bytes })
}
