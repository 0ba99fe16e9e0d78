//! Answers, whose items are kept as the texts that are sent: the tree of an item's JSON may take hundreds of times its bytes.

use items::{Item, item_size, json};
use serde_json::{Map, Value as Json};

/// The bytes of a batch's or a transaction's answer as they are sent, after which there are no more items: a short number or a list may be
/// sent in tens of times the bytes that it counts for.
pub(crate) const ANSWER_TEXT_BYTES: usize = 32 << 20;

/// The bytes of an attribute as it is sent beside those of its name and a text: `"":{"S":""},`.
const ATTRIBUTE_TEXT_BYTES: usize = 12;

/// The answer to an operation.
#[derive(Debug)]
pub(crate) enum Reply {
    /// A small one.
    Json(Json),
    /// The text of its JSON.
    Text(String),
}

impl From<Json> for Reply {
    fn from(json: Json) -> Self {
        Self::Json(json)
    }
}

impl Reply {
    /// The object with a list of texts under this name, and then these members.
    pub(crate) fn of_list(name: &str, texts: &Texts, rest: Map<String, Json>) -> Self {
        Self::of_text(name, &texts.list(), rest)
    }

    /// The object with the text of a JSON value under this name, and then these members.
    pub(crate) fn of_text(name: &str, text: &str, rest: Map<String, Json>) -> Self {
        let rest = Json::Object(rest).to_string();
        let rest = rest.strip_prefix('{').unwrap_or_default();
        let comma = if rest == "}" { "" } else { "," };
        Self::Text(["{\"", name, "\":", text, comma, rest].concat())
    }

    /// The text that is sent.
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::Json(json) => json.to_string(),
            Self::Text(text) => text,
        }
    }
}

/// The text of an item's JSON.
pub(crate) fn text_of(item: &Item) -> String {
    let mut text = String::with_capacity(item_size(item) + item.len() * ATTRIBUTE_TEXT_BYTES);
    json::write_item(item, &mut text);
    text.shrink_to_fit();
    text
}

/// Adds a member behind those of the text of an object, which has some; `write` appends the text of its value.
pub(crate) fn push_member(object: &mut String, name: &str, write: impl FnOnce(&mut String)) {
    object.pop();
    object.push_str(",\"");
    object.push_str(name);
    object.push_str("\":");
    write(object);
    object.push('}');
}

/// The texts of a list's elements.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    all: Vec<String>,
    bytes: usize,
}

impl Texts {
    /// Adds an item.
    pub(crate) fn push(&mut self, item: &Item) {
        self.push_text(text_of(item));
    }

    /// Adds an object with an item under this name, and then these members.
    pub(crate) fn push_object(&mut self, name: &str, item: &Item, rest: Map<String, Json>) {
        self.push_text(Reply::of_text(name, &text_of(item), rest).into_text());
    }

    /// Adds the text of a JSON value.
    pub(crate) fn push_text(&mut self, mut text: String) {
        text.shrink_to_fit();
        // With a comma.
        self.bytes += text.len() + 1;
        self.all.push(text);
    }

    /// Adds all of others.
    pub(crate) fn append(&mut self, others: Self) {
        self.bytes += others.bytes;
        self.all.extend(others.all);
    }

    /// The bytes that are sent.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The texts, in their order.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.all.iter().map(String::as_str)
    }

    /// The text of the list.
    pub(crate) fn list(&self) -> String {
        let mut out = String::with_capacity(self.bytes + 2);
        out.push('[');
        for (at, text) in self.all.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            out.push_str(text);
        }
        out.push(']');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use items::Value;

    #[test]
    fn texts_are_the_json_of_their_items() {
        let item = Item::from([("a\"b".to_owned(), Value::S("\u{1}\\\u{e9}".to_owned()))]);
        let mut texts = Texts::default();
        assert_eq!(texts.list(), "[]");
        let empty = Reply::of_list("Items", &texts, Map::new()).into_text();
        assert_eq!(empty, r#"{"Items":[]}"#);
        texts.push(&item);
        let mut more = Texts::default();
        more.append(Texts::default());
        more.push(&item);
        more.append(texts);
        let rest = Map::from_iter([("Count".to_owned(), Json::from(2))]);
        let all = Reply::of_list("Items", &more, rest.clone()).into_text();
        let expected = Json::from_iter([
            ("Items", Json::Array(vec![json::item(&item), json::item(&item)])),
            ("Count", Json::from(2)),
        ]);
        assert_eq!(all, expected.to_string());
        let mut objects = Texts::default();
        objects.push_object("Item", &item, rest);
        let expected = Json::from_iter([("Item", json::item(&item)), ("Count", Json::from(2))]);
        assert_eq!(objects.list(), format!("[{expected}]"));
        assert_eq!(objects.bytes(), expected.to_string().len() + 1);
    }
}
