//! Secondary indexes in CreateTable, UpdateTable and DescribeTable.

use std::collections::BTreeSet;

use items::json;
use serde_json::{Map, Value as Json, json as to_json};

use super::capacity_units::capacity_units;
use super::estimate::Estimate;
use super::key_schema::{self, index_key_elements, key_elements};
use crate::error::{ApiError, ErrorKind, Result, invalid};
use crate::index_definition::{IndexKey, Projected, SecondaryIndex};
use crate::request::{Request, checked_name, constraint};
use crate::table::{ApiTable, Details};
use crate::throughput::warm_at_least;
use crate::vector_definition::VectorIndex;

const WRONG: &str = "One or more parameter values were invalid:";
const GLOBAL_MAX: usize = 20;
const LOCAL_MAX: usize = 5;
/// Attributes that all indexes of a table include together.
pub(super) const INCLUDED_MAX: usize = 100;

/// The keys of a table: the names of its hash and range key.
pub(super) type TableKeys<'a> = (&'a str, Option<&'a str>);

/// The indexes of a table that is to be created, held against the definitions of attributes.
pub(super) fn created(
    request: &Request,
    definitions: &[(&str, &str)],
    (hash, range): TableKeys<'_>,
    on_demand: bool,
) -> Result<Vec<SecondaryIndex>> {
    let mut indexes: Vec<SecondaryIndex> = Vec::new();
    for (parameter, is_global) in [("LocalSecondaryIndexes", false), ("GlobalSecondaryIndexes", true)] {
        let Some(list) = request.get(parameter).map(json::read_list).transpose()? else { continue };
        if list.is_empty() {
            return invalid!("{WRONG} List of {parameter} is empty");
        }
        for (at, one) in list.iter().enumerate() {
            let place = format!("{}.{}.member", crate::request::place(parameter), at + 1);
            let index = read_index(one, &place, is_global, definitions)?;
            if is_global {
                throughput(one, &index.name, on_demand)?;
            } else {
                check_local(&index, (hash, range))?;
            }
            indexes.push(with_units(index, one, &place)?);
        }
    }
    Ok(indexes)
}

/// Refuses sets of indexes that no table may have.
pub(super) fn check_all(indexes: &[SecondaryIndex]) -> Result<()> {
    for (at, index) in indexes.iter().enumerate() {
        if indexes.iter().take(at).any(|other| other.name == index.name) {
            return invalid!("{WRONG} Duplicate index name: {}", index.name);
        }
    }
    let globals = indexes.iter().filter(|index| index.is_global).count();
    if globals > GLOBAL_MAX {
        return invalid!("{WRONG} GlobalSecondaryIndex count exceeds the per-table limit of {GLOBAL_MAX}");
    }
    if indexes.len() - globals > LOCAL_MAX {
        return invalid!("{WRONG} Number of LocalSecondaryIndexes exceeds per-table limit of {LOCAL_MAX}");
    }
    Ok(())
}

fn check_local(index: &SecondaryIndex, (hash, range): TableKeys<'_>) -> Result<()> {
    if range.is_none() {
        return invalid!(
            "{WRONG} Table KeySchema does not have a range key, which is required when specifying a LocalSecondaryIndex"
        );
    }
    if index.hash.name != hash {
        return invalid!(
            "{WRONG} Index KeySchema does not have the same leading hash key as table KeySchema for index: {}. index hash \
             key: {}, table hash key: {hash}",
            index.name,
            index.hash.name
        );
    }
    if index.range.is_none() {
        return invalid!("{WRONG} Index KeySchema does not have a range key for index: {}", index.name);
    }
    Ok(())
}

/// The throughput of a global index, which a table has to give or not to give.
fn throughput(json: &Json, name: &str, on_demand: bool) -> Result<()> {
    let is_given = json.get("ProvisionedThroughput").is_some_and(|value| !value.is_null());
    match (on_demand, is_given) {
        (false, false) => invalid!("{WRONG} ProvisionedThroughput must be specified for index: {name}"),
        (true, true) => invalid!(
            "{WRONG} ProvisionedThroughput should not be specified for index: {name} when BillingMode is PAY_PER_REQUEST"
        ),
        _ => Ok(()),
    }
}

/// Whether an update of a global index gives it provisioned units; the other kinds of throughput are looked at elsewhere.
fn updates_units(request: &Request, action: &Json, name: &str, on_demand: bool) -> Result<bool> {
    let is_given = action.get("ProvisionedThroughput").is_some_and(|value| !value.is_null());
    match (on_demand, is_given) {
        (true, true) if request.has("BillingMode") => invalid!(
            "{WRONG} Neither ReadCapacityUnits nor WriteCapacityUnits can be specified for index: {name} when BillingMode is \
             PAY_PER_REQUEST"
        ),
        (_, false) if super::throughput::is_given_to(action)? => Ok(false),
        (true, _) => invalid!(
            "{WRONG} The only Updates for index: {name} when TableThroughputMode is PAY_PER_REQUEST can be to \
             OnDemandThroughput, WarmThroughput"
        ),
        (false, false) => invalid!(
            "{WRONG} Both ReadCapacityUnits and WriteCapacityUnits must be specified for index: {name}"
        ),
        (false, true) => Ok(true),
    }
}

/// The index with the units of capacity that a request gives it at a place.
fn with_units(mut index: SecondaryIndex, json: &Json, place: &str) -> Result<SecondaryIndex> {
    let given = json.get("ProvisionedThroughput").filter(|value| !value.is_null());
    let units = given.map(|given| capacity_units(given, &format!("{place}.provisionedThroughput")));
    (index.read_units, index.write_units) = units.transpose()?.unwrap_or_default();
    Ok(index)
}

/// `IndexName`, when it may be one.
pub(super) fn index_name<'a>(fields: &'a Map<String, Json>, place: &str) -> Result<&'a str> {
    let at = format!("{place}.indexName");
    let Some(name) = fields.get("IndexName").filter(|name| !name.is_null()) else {
        return constraint("null", &at, "Member must not be null");
    };
    checked_name(json::read_string(name)?, &at)
}

/// An index of a request.
fn read_index(
    json: &Json,
    place: &str,
    is_global: bool,
    definitions: &[(&str, &str)],
) -> Result<SecondaryIndex> {
    let fields = json::read_map(json)?;
    let name = index_name(fields, place)?;
    let at = format!("{place}.keySchema");
    let Some(schema) = fields.get("KeySchema").filter(|schema| !schema.is_null()) else {
        return constraint("null", &at, "Member must not be null");
    };
    let keys = match is_global {
        true => index_key_elements(schema, &at, definitions)?,
        false => key_elements(schema, &at, definitions)?,
    };
    let key = |(name, _): &(&str, &str)| {
        let kind = definitions.iter().find(|(known, _)| *known == *name).map_or("B", |(_, kind)| kind);
        let kind = ["S", "N"].into_iter().find(|known| *known == kind).unwrap_or("B");
        IndexKey { name: (*name).to_owned(), kind }
    };
    let of = |wanted: &'static str| keys.iter().filter(move |(_, kind)| *kind == wanted).map(key);
    let (mut hashes, mut ranges) = (of("HASH"), of("RANGE"));
    let Some(hash) = hashes.next() else {
        return constraint("[]", &at, "Member must have length greater than or equal to 1");
    };
    let Some(projection) = fields.get("Projection").filter(|projection| !projection.is_null()) else {
        return constraint("null", &format!("{place}.projection"), "Member must not be null");
    };
    Ok(SecondaryIndex {
        name: name.to_owned(),
        is_global,
        hash,
        range: ranges.next(),
        further_hash: hashes.collect(),
        further_range: ranges.collect(),
        projected: projected(json::read_map(projection)?, place)?,
        read_units: 0,
        write_units: 0,
    })
}

/// `Projection`
pub(super) fn projected(fields: &Map<String, Json>, place: &str) -> Result<Projected> {
    let kind = match fields.get("ProjectionType").filter(|kind| !kind.is_null()) {
        Some(kind) => json::read_string(kind)?,
        None => return invalid!("{WRONG} Unknown ProjectionType: null"),
    };
    let names =
        fields.get("NonKeyAttributes").filter(|names| !names.is_null()).map(json::read_list).transpose()?;
    let at = format!("{place}.projection");
    if let Some([]) = names {
        let at = format!("{at}.nonKeyAttributes");
        return constraint("[]", &at, "Member must have length greater than or equal to 1");
    }
    match (kind, names) {
        ("ALL", None) => Ok(Projected::All),
        ("KEYS_ONLY", None) => Ok(Projected::KeysOnly),
        ("INCLUDE", Some(names)) => {
            let mut all: Vec<String> = Vec::with_capacity(names.len().min(INCLUDED_MAX));
            for name in names {
                let name = json::read_string(name)?;
                if name.is_empty() || name.len() > 255 {
                    return invalid!(
                        "{WRONG} NonKeyAttributes has a name of {} bytes: 1 to 255 are allowed",
                        name.len()
                    );
                }
                if all.iter().any(|known| known == name) {
                    return invalid!("{WRONG} Duplicate value in NonKeyAttributes: {name}");
                }
                all.push(name.to_owned());
                if all.len() > INCLUDED_MAX {
                    return invalid!("{WRONG} NonKeyAttributes has more than {INCLUDED_MAX} names");
                }
            }
            Ok(Projected::Include(all))
        }
        ("INCLUDE", None) => {
            invalid!("{WRONG} ProjectionType is INCLUDE, but NonKeyAttributes is not specified")
        }
        ("ALL" | "KEYS_ONLY", Some(_)) => {
            invalid!("{WRONG} ProjectionType is {kind}, but NonKeyAttributes is specified")
        }
        _ => constraint(
            kind,
            &format!("{at}.projectionType"),
            "Member must satisfy enum value set: [ALL, INCLUDE, KEYS_ONLY]",
        ),
    }
}

/// Carries out `GlobalSecondaryIndexUpdates`; how many indexes are added and removed.
pub(super) fn update(request: &Request, table: &ApiTable, details: &mut Details) -> Result<usize> {
    let list =
        request.get("GlobalSecondaryIndexUpdates").map(json::read_list).transpose()?.unwrap_or_default();
    let (mut online, mut named) = (0, BTreeSet::new());
    for (at, one) in list.iter().enumerate() {
        let place = |action: &str| format!("globalSecondaryIndexUpdates.{}.member.{action}", at + 1);
        let members = json::read_map(one)?;
        let known = ["Create", "Delete", "Update"].into_iter();
        let given = |kind| Some((kind, members.get(kind).filter(|action| !action.is_null())?));
        let mut actions = known.filter_map(given);
        let (kind, action) = match (actions.next(), actions.next()) {
            (Some(action), None) => action,
            (None, _) => return invalid!("Update global secondary index action is null"),
            _ => {
                return invalid!(
                    "{WRONG} One of GlobalSecondaryIndexUpdate action must be specified: Create, Update or Delete"
                );
            }
        };
        let fields = json::read_map(action)?;
        let name = index_name(fields, &place(&crate::request::place(kind)))?;
        if !named.insert(name) {
            return invalid!(
                "{WRONG} Only one global secondary index update per index is allowed simultaneously. Index: {name}"
            );
        }
        let found = details.indexes.iter().position(|index| index.is_global && index.name == name);
        let missing = || ApiError::new(ErrorKind::ResourceNotFound, "Requested resource not found");
        match kind {
            "Create" => {
                online += 1;
                create(request, action, &place("create"), (table, details))?;
            }
            "Delete" => {
                online += 1;
                details.indexes.remove(found.ok_or_else(missing)?);
            }
            _ => {
                let at = found.ok_or_else(missing)?;
                let gives_units = updates_units(request, action, name, details.on_demand)?;
                if let Some(index) = details.indexes.get_mut(at).filter(|_| gives_units) {
                    let changed = with_units(index.clone(), action, &place("update"))?;
                    let units = |index: &SecondaryIndex| [index.read_units, index.write_units];
                    super::throughput::check_units_change(Some(name), units(index), units(&changed))?;
                    *index = changed;
                }
            }
        }
    }
    Ok(online)
}

/// Adds an index, whose keys may be of attributes that are defined here or were before.
fn create(
    request: &Request,
    action: &Json,
    place: &str,
    (table, details): (&ApiTable, &mut Details),
) -> Result<()> {
    if request.get("AttributeDefinitions").and_then(Json::as_array).is_none_or(Vec::is_empty) {
        return invalid!("No Attribute Schema Defined");
    }
    let definitions = defined(request, table)?;
    let index = with_units(read_index(action, place, true, &definitions)?, action, place)?;
    check_new(details, &index.name)?;
    throughput(action, &index.name, details.on_demand)?;
    details.indexes.push(index);
    Ok(())
}

/// Refuses the name of an index that is to be added where the table has one of that name, of either kind.
pub(super) fn check_new(details: &Details, name: &str) -> Result<()> {
    let mut names = details
        .indexes
        .iter()
        .map(|index| &index.name)
        .chain(details.vectors.iter().map(|index| &index.name));
    if names.any(|known| known == name) {
        return invalid!("Attempting to create an index which already exists");
    }
    Ok(())
}

/// The definitions of attributes of a request that adds an index: its own, and those that the table has.
pub(super) fn defined<'a>(request: &'a Request, table: &'a ApiTable) -> Result<Vec<(&'a str, &'a str)>> {
    let defined = match request.has("AttributeDefinitions") {
        true => key_schema::definitions(request)?,
        false => Vec::new(),
    };
    let mut definitions: Vec<(&str, &str)> = defined.clone();
    for (name, kind) in attributes(table) {
        match defined.iter().find(|(known, _)| *known == name) {
            Some((_, other)) if *other != kind => {
                return invalid!(
                    "{WRONG} Attributes cannot be redefined. Please check that your attribute has the same type as \
                     previously defined. Existing schema: {name} {kind}, new: {other}"
                );
            }
            Some(_) => {}
            None => definitions.push((name, kind)),
        }
    }
    Ok(definitions)
}

/// The attributes of a table that have a definition: its keys and those of its indexes.
pub(super) fn attributes(table: &ApiTable) -> Vec<(&str, &'static str)> {
    let mut all: Vec<(&str, &'static str)> = table.keys().map(|key| (key.name, key.kind)).collect();
    let of_vectors = table.vectors().iter().flat_map(VectorIndex::keys);
    for key in table.indexes().iter().flat_map(SecondaryIndex::keys).chain(of_vectors) {
        if !all.iter().any(|(known, _)| *known == key.name) {
            all.push((&key.name, key.kind));
        }
    }
    all
}

/// Adds the indexes to the description of a table.
pub(super) fn describe(
    table: &ApiTable,
    details: &Details,
    estimate: Estimate,
    members: &mut Map<String, Json>,
) {
    for (parameter, is_global) in [("LocalSecondaryIndexes", false), ("GlobalSecondaryIndexes", true)] {
        let indexes = table.indexes().iter().filter(|index| index.is_global == is_global);
        let shown: Vec<Json> = indexes.map(|index| description((table, details), index, estimate)).collect();
        if !shown.is_empty() {
            members.insert(parameter.to_owned(), Json::Array(shown));
        }
    }
}

/// An index as the API shows it. It stores no items; those of the table bound the number of its own.
fn description((table, details): (&ApiTable, &Details), index: &SecondaryIndex, estimate: Estimate) -> Json {
    let element =
        |kind: &'static str| move |key: &IndexKey| to_json!({ "AttributeName": key.name, "KeyType": kind });
    let keys: Vec<Json> =
        index.hashes().map(element("HASH")).chain(index.ranges().map(element("RANGE"))).collect();
    let mut out = to_json!({
        "IndexName": index.name,
        "KeySchema": keys,
        "Projection": index.projected.description(),
        "IndexSizeBytes": estimate.bytes,
        "ItemCount": estimate.items,
        "IndexArn": format!("{}/index/{}", table.arn(), index.name),
    });
    if let (true, Some(members)) = (index.is_global, out.as_object_mut()) {
        members.insert("IndexStatus".to_owned(), table.status().into());
        let throughput = to_json!({
            "NumberOfDecreasesToday": 0,
            "ReadCapacityUnits": index.read_units,
            "WriteCapacityUnits": index.write_units,
        });
        members.insert("ProvisionedThroughput".to_owned(), throughput);
        let of = details.index_throughput.get(&index.name).copied().unwrap_or_default();
        let least = warm_at_least(details.on_demand, [index.read_units, index.write_units]);
        super::throughput::describe(of, least, members);
    }
    out
}
