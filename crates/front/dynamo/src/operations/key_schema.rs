//! `AttributeDefinitions` and `KeySchema` of requests that create tables and indexes.

use items::json;
use serde_json::{Map, Value as Json};

use crate::error::{Result, invalid};
use crate::names::ATTRIBUTES;
use crate::request::{Request, constraint};
use crate::table::column_type;

/// The longest name of a key attribute.
const KEY_NAME_MAX: usize = 255;
/// Attributes of the hash key of a global index, and of its range key.
const ATTRIBUTES_MAX: usize = 4;

/// Names of attributes and their types.
pub(super) type Definitions<'a> = Vec<(&'a str, &'a str)>;

fn text<'a>(fields: &'a Map<String, Json>, name: &str, place: &str) -> Result<&'a str> {
    match fields.get(name).filter(|value| !value.is_null()) {
        Some(value) => Ok(json::read_string(value)?),
        None => constraint("null", place, "Member must not be null"),
    }
}

/// `AttributeDefinitions`: names and types.
pub(super) fn definitions(request: &Request) -> Result<Definitions<'_>> {
    let mut definitions: Vec<(&str, &str)> = Vec::new();
    for (at, definition) in json::read_list(request.required("AttributeDefinitions")?)?.iter().enumerate() {
        let fields = json::read_map(definition)?;
        let place = |member: &str| format!("attributeDefinitions.{}.member.{member}", at + 1);
        let name = text(fields, "AttributeName", &place("attributeName"))?;
        let kind = text(fields, "AttributeType", &place("attributeType"))?;
        if column_type(kind).is_none() {
            return constraint(
                kind,
                &place("attributeType"),
                "Member must satisfy enum value set: [B, N, S]",
            );
        }
        if name.is_empty() || name.len() > KEY_NAME_MAX {
            return constraint(
                name,
                &place("attributeName"),
                if name.is_empty() {
                    "Member must have length greater than or equal to 1"
                } else {
                    "Member must have length less than or equal to 255"
                },
            );
        }
        if definitions.iter().any(|(known, _)| *known == name) {
            return invalid!("Attribute Name is duplicated: {name}");
        }
        definitions.push((name, kind));
    }
    Ok(definitions)
}

/// The `KeySchema` of a global index, held against the definitions: the attributes of its hash key, then those of its range key.
pub(super) fn index_key_elements<'a>(
    schema: &'a Json,
    at_place: &str,
    definitions: &[(&str, &str)],
) -> Result<Vec<(&'a str, &'a str)>> {
    let keys = elements(schema, at_place, 2 * ATTRIBUTES_MAX)?;
    let count = |wanted: &str| keys.iter().filter(|(_, kind)| *kind == wanted).count();
    let (hashes, ranges) = (count("HASH"), count("RANGE"));
    if hashes > 1 || ranges > 1 {
        for (count, kind) in [(hashes, "HASH"), (ranges, "RANGE")] {
            if count > ATTRIBUTES_MAX {
                return invalid!(
                    "Invalid KeySchema: The number of {kind} key attributes is {count}, and {ATTRIBUTES_MAX} are allowed"
                );
            }
        }
        if keys.iter().skip_while(|(_, kind)| *kind == "HASH").any(|(_, kind)| *kind == "HASH") {
            return invalid!(
                "Invalid KeySchema: All HASH key attributes have to be before the RANGE key attributes"
            );
        }
        if hashes == 0 {
            return invalid!("Invalid KeySchema: The first KeySchemaElement is not a HASH key type");
        }
        for (at, (name, _)) in keys.iter().enumerate() {
            if keys.iter().take(at).any(|(known, _)| known == name) {
                return invalid!("Invalid KeySchema: Some KeySchemaElements have the same name: {name}");
            }
        }
        check_defined(&keys, definitions)?;
        return Ok(keys);
    }
    check_keys(&keys, definitions)?;
    Ok(keys)
}

/// A `KeySchema`, held against the definitions: one key or two, the first of which is the hash key.
pub(super) fn key_elements<'a>(
    schema: &'a Json,
    at_place: &str,
    definitions: &[(&str, &str)],
) -> Result<Vec<(&'a str, &'a str)>> {
    let keys = elements(schema, at_place, 2)?;
    check_keys(&keys, definitions)?;
    Ok(keys)
}

/// The names and types of the elements of a `KeySchema`.
fn elements<'a>(schema: &'a Json, at_place: &str, count_max: usize) -> Result<Vec<(&'a str, &'a str)>> {
    let list = json::read_list(schema)?;
    if list.is_empty() {
        return constraint("[]", at_place, "Member must have length greater than or equal to 1");
    }
    if list.len() > count_max {
        let bound = format!("Member must have length less than or equal to {count_max}");
        return constraint("[...]", at_place, &bound);
    }
    let mut keys: Vec<(&str, &str)> = Vec::new();
    for (at, element) in list.iter().enumerate() {
        let fields = json::read_map(element)?;
        let place = |member: &str| format!("{at_place}.{}.member.{member}", at + 1);
        let name = text(fields, "AttributeName", &place("attributeName"))?;
        let kind = text(fields, "KeyType", &place("keyType"))?;
        if !["HASH", "RANGE"].contains(&kind) {
            return constraint(kind, &place("keyType"), "Member must satisfy enum value set: [HASH, RANGE]");
        }
        keys.push((name, kind));
    }
    Ok(keys)
}

fn check_keys(keys: &[(&str, &str)], definitions: &[(&str, &str)]) -> Result<()> {
    if keys.first().is_some_and(|(_, kind)| *kind != "HASH") {
        return invalid!("Invalid KeySchema: The first KeySchemaElement is not a HASH key type");
    }
    if keys.get(1).is_some_and(|(_, kind)| *kind != "RANGE") {
        return invalid!("Invalid KeySchema: The second KeySchemaElement is not a RANGE key type");
    }
    if let [(hash, _), (range, _)] = keys
        && hash == range
    {
        return invalid!("Both the Hash Key and the Range Key element in the KeySchema have the same name");
    }
    if keys.len() > definitions.len() {
        return invalid!("Invalid KeySchema: Some index key attribute have no definition");
    }
    check_defined(keys, definitions)
}

/// Refuses keys of attributes that are not defined.
fn check_defined(keys: &[(&str, &str)], definitions: &[(&str, &str)]) -> Result<()> {
    const WRONG: &str = "One or more parameter values were invalid:";
    let names = |list: &[(&str, &str)]| list.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    if keys.iter().any(|(name, _)| !definitions.iter().any(|(known, _)| known == name)) {
        return invalid!(
            "{WRONG} Some index key attributes are not defined in AttributeDefinitions. Keys: [{}], \
             AttributeDefinitions: [{}]",
            names(keys),
            names(definitions)
        );
    }
    if let Some((name, _)) = keys.iter().find(|(name, _)| *name == ATTRIBUTES) {
        return invalid!("{WRONG} The name {name} is reserved for Torc and cannot be that of a key");
    }
    Ok(())
}
