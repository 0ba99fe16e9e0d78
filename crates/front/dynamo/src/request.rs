//! The members of a request: their types, their limits, and AWS's messages when they are exceeded.

use std::fmt;
use std::rc::Rc;

use items::json;
use items::{Condition, Item, Projection, ReadItem, Substitutions};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value as Json};

use crate::error::{ApiError, ErrorKind, Result, invalid};

/// The longest name of a table: the limit of its directory's name. AWS allows 255.
pub(crate) const TABLE_NAME_MAX: usize = 222;
/// Values of a request's document. Each takes some fifty times the memory of its shortest text, and none is parsed while others wait.
const VALUES_MAX: usize = 400_000;

/// Members of a request that is read without a tree of all of it. No operation has as many.
const MEMBERS_MAX: usize = 64;

/// The members of a request. There are few, so that a look at each is quicker than a map of them.
#[derive(Default)]
pub(crate) struct Request {
    /// Each name once, but for the next two where they were read without their tree.
    members: Vec<(String, Json)>,
    /// `Item`.
    item: Option<Rc<Item>>,
    /// `Key`.
    key: Option<Rc<Item>>,
}

/// The form in which a request asks for its consumed capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capacity {
    None,
    Total,
    Indexes,
}

/// A broken constraint in AWS's words.
pub(crate) fn broken(value: &str, place: &str, constraint: &str) -> String {
    let value = if value == "null" { value.to_owned() } else { format!("'{}'", shortened(value)) };
    format!("Value {value} at '{place}' failed to satisfy constraint: {constraint}")
}

/// The error for one broken constraint.
pub(crate) fn constraint<T>(value: &str, place: &str, constraint: &str) -> Result<T> {
    invalid!("1 validation error detected: {}", broken(value, place, constraint))
}

fn shortened(text: &str) -> String {
    text.chars().take(1000).collect()
}

/// The place of a member in messages: its name with a small first letter.
pub(crate) fn place(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map_or_else(String::new, |first| first.to_ascii_lowercase().to_string() + chars.as_str())
}

/// The name of a table, when it may be one.
pub(crate) fn table_name(name: &str) -> Result<&str> {
    table_name_at(name, "tableName")
}

/// `TargetTableName`.
pub(crate) fn target_name(request: &Request) -> Result<String> {
    let name = json::read_string(request.required("TargetTableName")?)?;
    table_name_at(name, "targetTableName").map(str::to_owned)
}

fn table_name_at<'a>(name: &'a str, place: &str) -> Result<&'a str> {
    // An ARN names a table, too.
    let name = match name.strip_prefix("arn:").and_then(|arn| arn.rsplit_once(":table/")) {
        Some((_, name)) => name,
        None => name,
    };
    checked_name(name, place)
}

/// The name of a table or an index, when it may be one.
pub(crate) fn checked_name<'a>(name: &'a str, place: &str) -> Result<&'a str> {
    match name_bound(name) {
        Some(bound) => constraint(name, place, bound),
        None => Ok(name),
    }
}

/// The constraint of names of tables and indexes that have another character.
pub(crate) const NAME_PATTERN: &str = "Member must satisfy regular expression pattern: [a-zA-Z0-9_.-]+";

/// Whether names of tables and indexes have this character.
pub(crate) fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')
}

/// The constraint that the name of a table breaks.
pub(crate) fn name_bound(name: &str) -> Option<&'static str> {
    match name.len() {
        0 => Some("Member must have length greater than or equal to 1"),
        1..3 => Some("Member must have length greater than or equal to 3"),
        256.. => Some("Member must have length less than or equal to 255"),
        _ if !name.chars().all(is_name_character) => Some(NAME_PATTERN),
        _ => None,
    }
}

/// Whether a document has more values than `max`, by its commas and brackets outside of strings. It need not be valid.
fn has_more_values(body: &[u8], max: usize) -> bool {
    if body.len() < max {
        return false;
    }
    let (mut values, mut in_string, mut is_escaped) = (1, false, false);
    for &byte in body {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_string,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' if !in_string => {
                values += 1;
                if values > max {
                    return true;
                }
            }
            _ => {}
        }
    }
    false
}

impl Request {
    /// The request in a body.
    ///
    /// # Errors
    /// When it is no JSON object, or has more than [`VALUES_MAX`] values.
    pub(crate) fn parse(body: &[u8]) -> Result<Self> {
        if has_more_values(body, VALUES_MAX) {
            return Err(ApiError::validation(format!(
                "The request's body has more than {VALUES_MAX} values"
            )));
        }
        // Checked as a whole, which is much cheaper than text by text.
        if let Ok(text) = std::str::from_utf8(body) {
            let mut deserializer = serde_json::Deserializer::from_str(text);
            if let Ok(request) = deserializer.deserialize_map(ReadRequest)
                && deserializer.end().is_ok()
            {
                return Ok(request);
            }
        }
        // A request that is unusual or wrong: by its tree, with the message.
        match serde_json::from_slice(body) {
            Ok(Json::Object(members)) => Ok(Self::of_members(members)),
            Ok(_) => Err(ApiError::new(ErrorKind::Serialization, "Unexpected field type")),
            // A document that is nested beyond all limits: the parser follows it down to 128 levels.
            Err(error) if error.to_string().starts_with("recursion limit exceeded") => {
                invalid!("Nesting Levels have exceeded supported limits")
            }
            Err(_) => Err(ApiError::new(ErrorKind::Serialization, "The request's body is not valid JSON")),
        }
    }

    /// A part of a request, checked like a request of its own.
    ///
    /// # Errors
    /// When it is no JSON object.
    pub(crate) fn part(json: &Json) -> Result<Self> {
        let mut part = Self::default();
        for (name, value) in json::read_map(json)? {
            let place = part.item_mut(name).and_then(|place| Some((place, json::read_item(value).ok()?)));
            match place {
                Some((place, item)) => *place = Some(Rc::new(item)),
                None => part.members.push((name.clone(), value.clone())),
            }
        }
        Ok(part)
    }

    fn of_members(members: Map<String, Json>) -> Self {
        Self { members: members.into_iter().collect(), ..Self::default() }
    }

    /// A write or read of a transaction: its structure has fewer members than the request that does the same alone, and others are ignored as
    /// unknown ones are.
    ///
    /// # Errors
    /// As of [`Request::part`].
    pub(crate) fn transaction_part(json: &Json) -> Result<Self> {
        const ALONE: [&str; 5] =
            ["Expected", "ConditionalOperator", "AttributeUpdates", "AttributesToGet", "ReturnValues"];
        let mut part = Self::part(json)?;
        part.members.retain(|(name, _)| !ALONE.contains(&name.as_str()));
        Ok(part)
    }

    /// The names of all members that are given, and the values of those that are no item that is read already.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&str, Option<&Json>)> {
        let items = [("Item", &self.item), ("Key", &self.key)].into_iter().filter(|(_, item)| item.is_some());
        let others = self.members.iter().map(|(name, value)| (name.as_str(), Some(value)));
        others.chain(items.map(|(name, _)| (name, None)))
    }

    /// The value of a member, of others than items and keys ([`Request::item`]).
    pub(crate) fn get(&self, name: &str) -> Option<&Json> {
        let (_, value) = self.members.iter().find(|(member, _)| member == name)?;
        Some(value).filter(|value| !value.is_null())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some() || self.given_item(name).is_some()
    }

    pub(crate) fn has_any(&self, names: &[&str]) -> bool {
        self.members.iter().any(|(member, value)| names.contains(&member.as_str()) && !value.is_null())
    }

    fn given_item(&self, name: &str) -> Option<&Rc<Item>> {
        match name {
            "Item" => self.item.as_ref(),
            "Key" => self.key.as_ref(),
            _ => None,
        }
    }

    /// The place of a member that is an item or a key.
    fn item_mut(&mut self, name: &str) -> Option<&mut Option<Rc<Item>>> {
        match name {
            "Item" => Some(&mut self.item),
            "Key" => Some(&mut self.key),
            _ => None,
        }
    }

    pub(crate) fn required(&self, name: &str) -> Result<&Json> {
        match self.get(name) {
            Some(value) => Ok(value),
            None => constraint("null", &place(name), "Member must not be null"),
        }
    }

    pub(crate) fn string(&self, name: &str) -> Result<Option<&str>> {
        Ok(self.get(name).map(json::read_string).transpose()?)
    }

    pub(crate) fn boolean(&self, name: &str) -> Result<Option<bool>> {
        Ok(self.get(name).map(json::read_bool).transpose()?)
    }

    pub(crate) fn integer(&self, name: &str, least: i64, most: i64) -> Result<Option<i64>> {
        let Some(value) = self.get(name).map(json::read_integer).transpose()? else { return Ok(None) };
        let bound = match value {
            value if value < least => format!("greater than or equal to {least}"),
            value if value > most => format!("less than or equal to {most}"),
            value => return Ok(Some(value)),
        };
        constraint(&value.to_string(), &place(name), &format!("Member must have value {bound}"))
    }

    pub(crate) fn one_of(&self, name: &str, allowed: &[&'static str]) -> Result<Option<&'static str>> {
        let Some(value) = self.string(name)? else { return Ok(None) };
        match allowed.iter().find(|one| **one == value) {
            Some(one) => Ok(Some(*one)),
            None => constraint(
                value,
                &place(name),
                &format!("Member must satisfy enum value set: [{}]", allowed.join(", ")),
            ),
        }
    }

    /// All members but one.
    pub(crate) fn without(&self, name: &str) -> Json {
        let items = [("Item", &self.item), ("Key", &self.key)];
        let items = items.into_iter().filter_map(|(name, item)| Some((name, json::item(item.as_ref()?))));
        let others = self.members.iter().map(|(name, value)| (name.as_str(), value.clone())).chain(items);
        let others = others.filter(|(member, _)| *member != name);
        Json::Object(others.map(|(member, value)| (member.to_owned(), value)).collect())
    }

    pub(crate) fn table_name(&self) -> Result<&str> {
        let Some(name) = self.get("TableName") else {
            return constraint("null", "tableName", "Member must not be null");
        };
        table_name(json::read_string(name)?)
    }

    /// `IndexName` of a read, when it may be one.
    ///
    /// # Errors
    /// When it breaks a constraint of names.
    pub(crate) fn index_name(&self) -> Result<Option<&str>> {
        self.string("IndexName")?.map(|name| checked_name(name, "indexName")).transpose()
    }

    /// The table as the request names it: by its name or its ARN.
    pub(crate) fn named_table(&self) -> &str {
        self.get("TableName").and_then(Json::as_str).unwrap_or_default()
    }

    pub(crate) fn capacity(&self) -> Result<Capacity> {
        Ok(match self.one_of("ReturnConsumedCapacity", &["INDEXES", "TOTAL", "NONE"])? {
            Some("TOTAL") => Capacity::Total,
            Some("INDEXES") => Capacity::Indexes,
            _ => Capacity::None,
        })
    }

    /// `ReturnValues`, of which this operation allows some.
    pub(crate) fn return_values(&self, allowed: &[&str], refusal: &str) -> Result<&'static str> {
        let all = ["ALL_NEW", "UPDATED_OLD", "ALL_OLD", "NONE", "UPDATED_NEW"];
        let value = self.one_of("ReturnValues", &all)?.unwrap_or("NONE");
        if !allowed.contains(&value) {
            return invalid!("{refusal}");
        }
        self.item_collections()?;
        Ok(value)
    }

    /// Whether the sizes of the written item collections are to be shown.
    pub(crate) fn item_collections(&self) -> Result<bool> {
        Ok(self.one_of("ReturnItemCollectionMetrics", &["SIZE", "NONE"])? == Some("SIZE"))
    }

    /// Whether the item is to be shown when its condition fails.
    pub(crate) fn returns_old_on_failure(&self) -> Result<bool> {
        let value = self.one_of("ReturnValuesOnConditionCheckFailure", &["ALL_OLD", "NONE"])?;
        Ok(value == Some("ALL_OLD"))
    }

    /// An item or a key.
    pub(crate) fn item(&self, name: &str) -> Result<Rc<Item>> {
        match self.given_item(name) {
            Some(item) => Ok(item.clone()),
            None => Ok(Rc::new(json::read_item(self.required(name)?)?)),
        }
    }

    /// Refuses parameters of before expressions beside expressions.
    pub(crate) fn check_mixed(&self, legacy: &[&str], expressions: &[&str]) -> Result<()> {
        let given = |names: &[&str]| {
            names
                .iter()
                .filter(|name| self.has(name))
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let (legacy, expressions) = (given(legacy), given(expressions));
        if legacy.is_empty() || expressions.is_empty() {
            return Ok(());
        }
        invalid!(
            "Can not use both expression and non-expression parameters in the same request: Non-expression parameters: \
             {{{legacy}}} Expression parameters: {{{expressions}}}"
        )
    }

    /// Names and values; `with_values` are the expressions that may use values, `others` those that may not.
    pub(crate) fn substitutions(&self, with_values: &[&str], others: &[&str]) -> Result<Substitutions> {
        let expressions: Vec<(&str, bool)> =
            with_values.iter().chain(others).map(|name| (*name, self.has(name))).collect();
        let (names, values) = (self.get("ExpressionAttributeNames"), self.get("ExpressionAttributeValues"));
        let values = values.filter(|_| !with_values.is_empty());
        Ok(Substitutions::read(names, values, &expressions, with_values)?)
    }

    /// `ConditionExpression` or `Expected`.
    pub(crate) fn condition(&self, substitutions: &Substitutions) -> Result<Option<Condition>> {
        if let Some(text) = self.string("ConditionExpression")? {
            return Ok(Some(Condition::parse(text, "ConditionExpression", substitutions)?));
        }
        let is_or = self.is_or("Expected")?;
        let condition =
            self.get("Expected").map(|expected| items::legacy::expected(expected, is_or)).transpose()?;
        // An empty map asks nothing.
        Ok(condition.filter(
            |condition| !matches!(condition, Condition::And(all) | Condition::Or(all) if all.is_empty()),
        ))
    }

    /// Whether the conditions in this member are joined by `OR`.
    ///
    /// # Errors
    /// When there is a `ConditionalOperator`, and no condition or only one.
    pub(crate) fn is_or(&self, conditions: &str) -> Result<bool> {
        let Some(operator) = self.one_of("ConditionalOperator", &["OR", "AND"])? else { return Ok(false) };
        let count = self.get(conditions).map_or(0, |conditions| conditions.as_object().map_or(2, Map::len));
        match count {
            0 => invalid!("ConditionalOperator cannot be used without Filter or Expected"),
            1 => invalid!(
                "ConditionalOperator can only be used when Filter or Expected has two or more elements"
            ),
            _ => Ok(operator == "OR"),
        }
    }

    /// `ProjectionExpression` or `AttributesToGet`.
    pub(crate) fn projection(&self, substitutions: &Substitutions) -> Result<Option<Projection>> {
        if let Some(text) = self.string("ProjectionExpression")? {
            return Ok(Some(Projection::parse(text, substitutions)?));
        }
        Ok(self.get("AttributesToGet").map(items::legacy::attributes_to_get).transpose()?)
    }
}

/// Reads the members of a request, items and keys without their tree.
struct ReadRequest;

impl<'de> Visitor<'de> for ReadRequest {
    type Value = Request;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the members of a request")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut given: A) -> std::result::Result<Request, A::Error> {
        let mut request = Request::default();
        while let Some(name) = given.next_key::<String>()? {
            // Of a name that is there twice, the last counts.
            if let Some(place) = request.item_mut(&name) {
                *place = Some(Rc::new(given.next_value_seed(ReadItem)?));
                continue;
            }
            let value = given.next_value()?;
            let count = request.members.len();
            match request.members.iter_mut().find(|(member, _)| *member == name) {
                Some((_, known)) => *known = value,
                None if count < MEMBERS_MAX => request.members.push((name, value)),
                None => return Err(serde::de::Error::custom("too many members to look at each")),
            }
        }
        Ok(request)
    }
}

/// A number of the parameters of a request: the same for the same parameters in any order of their members. SDKs that keep them
/// in maps (Go's) send another order each time.
pub(crate) fn fingerprint(parameters: &Json) -> u128 {
    let mut text = String::new();
    write_sorted(parameters, &mut text);
    xxhash_rust::xxh3::xxh3_128(text.as_bytes())
}

/// Appends a value with the members of its objects in the order of their names.
fn write_sorted(value: &Json, out: &mut String) {
    let separated = |place: usize, out: &mut String| {
        if place > 0 {
            out.push(',');
        }
    };
    match value {
        Json::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by(|(a, _), (b, _)| a.cmp(b));
            out.push('{');
            for (place, (name, value)) in members.into_iter().enumerate() {
                separated(place, out);
                json::write_name(name, out);
                write_sorted(value, out);
            }
            out.push('}');
        }
        Json::Array(values) => {
            out.push('[');
            for (place, value) in values.iter().enumerate() {
                separated(place, out);
                write_sorted(value, out);
            }
            out.push(']');
        }
        other => out.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// No operation whose parameters are compared has an item, but a client may send one.
    #[test]
    fn items_are_among_the_other_members() {
        let body =
            json!({"Key": {"a": {"S": "1"}}, "Item": {"b": {"N": "2"}}, "S3Bucket": "b", "ClientToken": "t"});
        let request = Request::parse(body.to_string().as_bytes()).expect("a request");
        let mut others = body;
        others.as_object_mut().expect("an object").remove("ClientToken");
        assert_eq!(request.without("ClientToken"), others);
    }

    #[test]
    fn the_order_of_members_does_not_count() {
        let one = json!([{"Put": {"TableName": "t", "Item": {"a": {"S": "1"}, "b": {"L": [{"N": "2"}, {"N": "3"}]}}}}]);
        let other = json!([{"Put": {"Item": {"b": {"L": [{"N": "2"}, {"N": "3"}]}, "a": {"S": "1"}}, "TableName": "t"}}]);
        assert_ne!(one.to_string(), other.to_string());
        assert_eq!(fingerprint(&one), fingerprint(&other));
        // Tokens are remembered by nodes of other versions, too.
        let mut sorted = other;
        sorted.sort_all_objects();
        assert_eq!(fingerprint(&one), xxhash_rust::xxh3::xxh3_128(sorted.to_string().as_bytes()));
        let changed = json!([{"Put": {"TableName": "t", "Item": {"a": {"S": "1"}, "b": {"L": [{"N": "3"}, {"N": "2"}]}}}}]);
        assert_ne!(fingerprint(&one), fingerprint(&changed), "the order of a list counts");
    }
}
