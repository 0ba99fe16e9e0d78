//! Items straight from the text of JSON, without its tree, which takes more time and memory than all that follows of a request. Items with errors
//! and unusual ones (nulls, sets with a member twice, a type of value twice) are left to [`json::read_item`](crate::json::read_item).

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use stdx::base64;

use crate::json::check_name;
use crate::{Item, NESTING_MAX, Number, Value};

/// Reads a map of attribute values.
///
/// # Errors
/// Of an item that it does not take; the message that a client sees is not decided here.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadItem;

impl<'de> DeserializeSeed<'de> for ReadItem {
    type Value = Item;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Item, D::Error> {
        deserializer.deserialize_map(Members { depth: 0 })
    }
}

/// The error of an item that [`ReadItem`] does not take.
fn other<E: Error>() -> E {
    E::custom("not read directly")
}

/// The members of an item or of a map, whose values lie so deep.
struct Members {
    depth: usize,
}

impl<'de> Visitor<'de> for Members {
    type Value = Item;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a map of attribute values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Item, A::Error> {
        let mut item = Item::new();
        while let Some(name) = members.next_key::<String>()? {
            check_name(&name).map_err(|_| other())?;
            // Of a name that is there twice, the last counts.
            item.insert(name, members.next_value_seed(ReadValue { depth: self.depth })?);
        }
        Ok(item)
    }
}

impl<'de> DeserializeSeed<'de> for Members {
    type Value = Item;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Item, D::Error> {
        deserializer.deserialize_map(self)
    }
}

/// A value within so many lists and maps.
#[derive(Clone, Copy)]
struct ReadValue {
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for ReadValue {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ReadValue {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an attribute value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let Some(kind) = members.next_key_seed(Text(Kind::of_name))? else { return Err(other()) };
        let value = match kind {
            Kind::S => Value::S(members.next_value()?),
            Kind::N => Value::N(members.next_value_seed(Text(number))?),
            Kind::B => Value::B(members.next_value_seed(Text(base64::decode))?),
            Kind::Bool => Value::Bool(members.next_value()?),
            Kind::Null if members.next_value()? => Value::Null,
            Kind::Ss => Value::Ss(members.next_value_seed(Set(|text: &str| Some(text.to_owned())))?),
            Kind::Ns => Value::Ns(members.next_value_seed(Set(number))?),
            Kind::Bs => Value::Bs(members.next_value_seed(Set(base64::decode))?),
            Kind::L if self.depth < NESTING_MAX => {
                Value::L(members.next_value_seed(List { depth: self.depth + 1 })?)
            }
            Kind::M if self.depth < NESTING_MAX => {
                Value::M(members.next_value_seed(Members { depth: self.depth + 1 })?)
            }
            Kind::Null | Kind::L | Kind::M => return Err(other()),
        };
        match members.next_key_seed(Text(Kind::of_name))? {
            None => Ok(value),
            Some(_) => Err(other()),
        }
    }
}

fn number(text: &str) -> Option<Number> {
    Number::parse(text).ok()
}

/// The kind of a value.
#[derive(Clone, Copy)]
enum Kind {
    S,
    N,
    B,
    Bool,
    Null,
    Ss,
    Ns,
    Bs,
    L,
    M,
}

impl Kind {
    fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "S" => Self::S,
            "N" => Self::N,
            "B" => Self::B,
            "BOOL" => Self::Bool,
            "NULL" => Self::Null,
            "SS" => Self::Ss,
            "NS" => Self::Ns,
            "BS" => Self::Bs,
            "L" => Self::L,
            "M" => Self::M,
            _ => return None,
        })
    }
}

/// A text that is read as something else.
#[derive(Clone, Copy)]
struct Text<T>(fn(&str) -> Option<T>);

impl<'de, T> DeserializeSeed<'de> for Text<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<T> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text).ok_or_else(other)
    }
}

/// A list of values.
struct List {
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for List {
    type Value = Vec<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<Value>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for List {
    type Value = Vec<Value>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of attribute values")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<Value>, A::Error> {
        let mut all = Vec::new();
        while let Some(value) = elements.next_element_seed(ReadValue { depth: self.depth })? {
            all.push(value);
        }
        Ok(all)
    }
}

/// A set of texts that are read as something else.
struct Set<T>(fn(&str) -> Option<T>);

impl<'de, T: Ord> DeserializeSeed<'de> for Set<T> {
    type Value = BTreeSet<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<BTreeSet<T>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: Ord> Visitor<'de> for Set<T> {
    type Value = BTreeSet<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a set")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut members: A) -> Result<BTreeSet<T>, A::Error> {
        let mut all = BTreeSet::new();
        while let Some(member) = members.next_element_seed(Text(self.0))? {
            if !all.insert(member) {
                return Err(other());
            }
        }
        if all.is_empty() { Err(other()) } else { Ok(all) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn direct(text: &str) -> Option<Item> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let item = ReadItem.deserialize(&mut deserializer).ok()?;
        deserializer.end().ok().map(|()| item)
    }

    fn by_tree(text: &str) -> Option<Item> {
        json::read_item(&serde_json::from_str(text).ok()?).ok()
    }

    /// Each with whether it is read directly.
    const TEXTS: &[(&str, bool)] = &[
        ("{}", true),
        (r#"{"a":{"S":"x"},"b":{"N":"-1.50"},"c":{"B":"AAE="},"d":{"BOOL":false},"e":{"NULL":true}}"#, true),
        (r#"{"a":{"SS":["y","x"]},"b":{"NS":["2","1.0"]},"c":{"BS":["AA==","AQ=="]}}"#, true),
        (r#"{"a":{"L":[{"M":{"m":{"L":[]},"n":{"M":{}}}},{"S":"\u00e9\n"}]}}"#, true),
        (r#"{"a":{"S":"first"},"a":{"S":"last"}}"#, true),
        (r#"{"a":{"S":null}}"#, false),
        (r#"{"a":{"N":null,"S":"x"}}"#, false),
        (r#"{"a":{"S":"x","S":"y"}}"#, false),
        (r#"{"a":{"S":"x","N":"1"}}"#, false),
        (r#"{"a":{}}"#, false),
        (r#"{"a":{"X":"x"}}"#, false),
        (r#"{"":{"S":"x"}}"#, false),
        (r#"{"a":{"M":{"":{"S":"x"}}}}"#, false),
        (r#"{"a":{"SS":[]}}"#, false),
        (r#"{"a":{"SS":["x","x"]}}"#, false),
        (r#"{"a":{"NS":["1","1.0"]}}"#, false),
        (r#"{"a":{"N":"1e999"}}"#, false),
        (r#"{"a":{"N":1}}"#, false),
        (r#"{"a":{"B":"?"}}"#, false),
        (r#"{"a":{"BOOL":"true"}}"#, false),
        (r#"{"a":{"NULL":false}}"#, false),
        (r#"{"a":{"L":{}}}"#, false),
        (r#"{"a":{"M":[]}}"#, false),
        (r#"{"a":"x"}"#, false),
        ("[]", false),
        ("null", false),
    ];

    #[test]
    fn an_item_is_that_of_the_tree() {
        for (text, is_direct) in TEXTS {
            let item = direct(text);
            assert_eq!(item.is_some(), *is_direct, "{text}");
            if item.is_some() {
                assert_eq!(item, by_tree(text), "{text}");
            }
        }
        // Those that the tree takes, too.
        for text in [r#"{"a":{"N":null,"S":"x"}}"#, r#"{"a":{"S":"x","S":"y"}}"#] {
            assert!(by_tree(text).is_some(), "{text}");
        }
    }

    #[test]
    fn nesting_and_names_have_the_limits_of_the_tree() {
        for depth in [NESTING_MAX - 1, NESTING_MAX, NESTING_MAX + 1] {
            for (open, close) in [(r#"{"L":["#, "]}"), (r#"{"M":{"m":"#, "}}")] {
                let text = format!(r#"{{"a":{}{{"S":"x"}}{}}}"#, open.repeat(depth), close.repeat(depth));
                assert_eq!(direct(&text), by_tree(&text), "{depth}");
                assert_eq!(direct(&text).is_some(), depth <= NESTING_MAX, "{depth}");
            }
        }
        for len in [json::NAME_BYTES_MAX, json::NAME_BYTES_MAX + 1] {
            let name = "n".repeat(len);
            for text in
                [format!(r#"{{"{name}":{{"S":""}}}}"#), format!(r#"{{"a":{{"M":{{"{name}":{{"S":""}}}}}}}}"#)]
            {
                assert_eq!(direct(&text), by_tree(&text), "{len}");
                assert_eq!(direct(&text).is_some(), len == json::NAME_BYTES_MAX, "{len}");
            }
        }
    }
}
