//! Intents: the write of a transaction to an item, stored beside the item's attributes until the transaction is decided.

use std::rc::Rc;

use coordinator::CAS_APART_MICROS;
use items::{Item, item_size, json};
use mutation::Timestamp;
use serde_json::{Map, Value as Json, json as to_json};

use crate::reply::push_member;

/// Of one attempt of a transaction.
pub(crate) type Attempt = u128;

/// The first byte of a stored intent; attributes have the bytes of `items::stored`.
const PREPARED: u8 = 5;
/// Bytes of the attributes that a small update sets.
const SMALL_BYTES_MAX: usize = 64 << 10;

/// A prepared write of one item.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Intent {
    /// The key of the record with the outcome of the transaction.
    pub(crate) record: String,
    /// The attempt: a record is used again by a client that repeats a transaction which was cancelled.
    pub(crate) attempt: Attempt,
    /// The change of the item when the transaction is committed.
    pub(crate) effect: Effect,
    /// Whether there is an item yet: an intent may be all that a row has.
    pub(crate) on_item: bool,
}

/// An intent that an item has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Prepared {
    pub(crate) intent: Rc<Intent>,
    /// The time of its cell.
    pub(crate) at: Timestamp,
}

impl Prepared {
    /// The time of the write that puts the outcome in the place of the intent, the same on every node: later than the intent, and earlier than the next
    /// agreed write of the item, for these are [`CAS_APART_MICROS`] apart.
    pub(crate) fn outcome_at(&self) -> Timestamp {
        const { assert!(CAS_APART_MICROS > 1, "there is a time between two agreed writes") };
        self.at + 1
    }
}

/// A change of an item.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    /// Nothing: the item was only looked at, and stays as it is until the transaction is decided.
    Nothing,
    /// It becomes this one.
    Put(Rc<Item>),
    /// It has these attributes, and no longer those.
    Update(Item, Vec<String>),
    /// It is gone.
    Delete,
}

impl Effect {
    /// The item after the effect; `key` are its key attributes.
    pub(crate) fn apply(&self, item: Option<Item>, key: &Item) -> Option<Item> {
        match self {
            Self::Nothing => item,
            Self::Put(item) => Some(Item::clone(item)),
            Self::Update(set, removed) => {
                let mut item = item.unwrap_or_else(|| key.clone());
                item.retain(|name, _| !removed.contains(name));
                item.extend(set.iter().map(|(name, value)| (name.clone(), value.clone())));
                Some(item)
            }
            Self::Delete => None,
        }
    }
}

impl Intent {
    /// Whether it is small, beside the request: an update may have written most of a large item.
    pub(crate) fn is_small(&self) -> bool {
        match &self.effect {
            Effect::Update(set, _) => item_size(set) <= SMALL_BYTES_MAX,
            Effect::Put(_) | Effect::Delete | Effect::Nothing => true,
        }
    }

    /// The stored form.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let record = Json::from(self.record.as_str());
        let mut text = format!(r#"{{"record":{record},"attempt":"{}"}}"#, hex(self.attempt));
        let mut add = |name: &str, write: &dyn Fn(&mut String)| push_member(&mut text, name, write);
        if self.on_item {
            add("on_item", &|out| out.push_str("true"));
        }
        // Items are written as they are: the tree of one may have hundreds of times its bytes.
        match &self.effect {
            Effect::Nothing => {}
            Effect::Put(item) => add("put", &|out| json::write_stored_item(item, out)),
            Effect::Update(set, removed) => {
                add("set", &|out| json::write_stored_item(set, out));
                add("remove", &|out| out.push_str(&to_json!(removed).to_string()));
            }
            Effect::Delete => add("delete", &|out| out.push_str("true")),
        }
        let mut out = vec![PREPARED];
        out.extend_from_slice(text.as_bytes());
        out
    }

    /// Whether stored bytes are those of an intent. An attribute without a name, which could be written once, stands in the same place.
    pub(crate) fn is_stored(bytes: &[u8]) -> bool {
        bytes.first() == Some(&PREPARED)
    }

    /// The intent; none when the bytes are none, which a writer in CQL may have left.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (PREPARED, bytes) = bytes.split_first().map(|(kind, rest)| (*kind, rest))? else { return None };
        let fields: Map<String, Json> = serde_json::from_slice(bytes).ok()?;
        let text = |name: &str| fields.get(name)?.as_str();
        let item = |name: &str| fields.get(name).map(json::read_item).transpose();
        let effect = match (item("put").ok()?, item("set").ok()?, fields.contains_key("delete")) {
            (Some(item), _, _) => Effect::Put(Rc::new(item)),
            (_, Some(set), _) => {
                let removed = fields.get("remove")?.as_array()?;
                let removed = removed.iter().map(|name| Some(name.as_str()?.to_owned()));
                Effect::Update(set, removed.collect::<Option<_>>()?)
            }
            (None, None, true) => Effect::Delete,
            (None, None, false) => Effect::Nothing,
        };
        Some(Self {
            record: text("record")?.to_owned(),
            attempt: unhex(text("attempt")?)?,
            effect,
            on_item: fields.contains_key("on_item"),
        })
    }
}

/// An attempt as text.
pub(crate) fn hex(id: Attempt) -> String {
    format!("{id:032x}")
}

/// The attempt of a text.
pub(crate) fn unhex(text: &str) -> Option<Attempt> {
    Attempt::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use items::Value;

    fn item(name: &str) -> Item {
        Item::from([(name.to_owned(), Value::S("x".to_owned()))])
    }

    #[test]
    fn every_effect_is_read_as_it_was_written() {
        let effects = [
            Effect::Nothing,
            Effect::Put(Rc::new(item("a"))),
            Effect::Update(item("b"), vec!["c".to_owned()]),
            Effect::Update(Item::new(), Vec::new()),
            Effect::Delete,
        ];
        for (effect, on_item) in effects.into_iter().zip([true, false].into_iter().cycle()) {
            let intent = Intent { record: "\u{e9}\"".to_owned(), attempt: u128::MAX, effect, on_item };
            assert_eq!(Intent::decode(&intent.encode()), Some(intent));
        }
    }

    #[test]
    fn invalid_intents_are_refused() {
        for bytes in [&b""[..], b"\x05", b"\x05{}", b"\x04{}", b"\x05{\"record\":\"1\",\"attempt\":\"zz\"}"] {
            assert_eq!(Intent::decode(bytes), None);
        }
    }

    #[test]
    fn effects_make_the_item_of_after() {
        let key = item("k");
        assert_eq!(Effect::Nothing.apply(None, &key), None);
        assert_eq!(Effect::Delete.apply(Some(item("a")), &key), None);
        let update = Effect::Update(item("b"), vec!["a".to_owned()]);
        assert_eq!(update.apply(Some(item("a")), &key), Some(item("b")));
        let mut made = item("k");
        made.extend(item("b"));
        assert_eq!(update.apply(None, &key), Some(made));
    }
}
