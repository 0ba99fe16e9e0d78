//! Vector indexes in CreateTable, UpdateTable and DescribeTable.

use std::sync::Arc;

use coordinator::Consistency;
use exec::backend::Coordinator;
use items::json;
use items::vector::DIMENSIONS_MAX;
use replica::{NearestQuery, NearestTo};
use serde_json::{Map, Value as Json, json as to_json};

use super::Dynamo;
use super::estimate::Estimate;
use super::secondary_indexes::{self, index_name, projected};
use crate::error::{ApiError, ErrorKind, Result, invalid};
use crate::index_definition::IndexKey;
use crate::request::{Request, constraint};
use crate::table::{ApiTable, Details};
use crate::vector_definition::{Distance, VectorIndex};

const WRONG: &str = "One or more parameter values were invalid:";
/// AWS's limits: Quotas in Amazon DynamoDB, Vector indexes.
const INDEXES_MAX: usize = 5;
const FILTERS_MAX: usize = 18;

/// The vector indexes of a table that is to be created, held against the definitions of attributes.
pub(super) fn created(request: &Request, definitions: &[(&str, &str)]) -> Result<Vec<VectorIndex>> {
    let Some(list) = request.get("VectorIndexes").map(json::read_list).transpose()? else {
        return Ok(Vec::new());
    };
    if list.is_empty() {
        return invalid!("{WRONG} List of VectorIndexes is empty");
    }
    if list.len() > INDEXES_MAX {
        return invalid!("{WRONG} VectorIndex count exceeds the per-table limit of {INDEXES_MAX}");
    }
    let read = |(at, one)| read_index(one, &format!("vectorIndexes.{}.member", at + 1), definitions);
    list.iter().enumerate().map(read).collect()
}

/// Refuses sets of indexes that no table may have.
pub(super) fn check_all(details: &Details) -> Result<()> {
    if details.vectors.is_empty() {
        return Ok(());
    }
    if !details.on_demand {
        return invalid!("{WRONG} Vector indexes are only supported for PAY_PER_REQUEST tables");
    }
    if details.vectors.len() > INDEXES_MAX {
        return invalid!("{WRONG} VectorIndex count exceeds the per-table limit of {INDEXES_MAX}");
    }
    for (at, index) in details.vectors.iter().enumerate() {
        let before = || details.vectors.iter().take(at);
        let is_known = before().any(|other| other.name == index.name);
        if is_known || details.indexes.iter().any(|other| other.name == index.name) {
            return invalid!("{WRONG} Duplicate index name: {}", index.name);
        }
        if before().any(|one| one.attribute == index.attribute && one.dimensions != index.dimensions) {
            return invalid!(
                "{WRONG} Conflicting attribute definition for '{}'. All VectorIndexes on the same vector attribute must use \
                 the same dimensions.",
                index.attribute
            );
        }
    }
    Ok(())
}

/// A member that must be there.
fn required<'a>(fields: &'a Map<String, Json>, name: &str, place: &str) -> Result<&'a Json> {
    match fields.get(name).filter(|value| !value.is_null()) {
        Some(value) => Ok(value),
        None => {
            constraint("null", &format!("{place}.{}", crate::request::place(name)), "Member must not be null")
        }
    }
}

/// A member with a text that must be there.
fn text<'a>(fields: &'a Map<String, Json>, name: &str, place: &str) -> Result<&'a str> {
    Ok(json::read_string(required(fields, name, place)?)?)
}

/// `VectorAttribute`
fn attribute(fields: &Map<String, Json>, place: &str, definitions: &[(&str, &str)]) -> Result<String> {
    let attribute = json::read_map(required(fields, "VectorAttribute", place)?)?;
    let place = format!("{place}.vectorAttribute");
    let name = text(attribute, "AttributeName", &place)?;
    let bound = match name.len() {
        0 => "greater than or equal to 1",
        256.. => "less than or equal to 255",
        _ if definitions.iter().any(|(known, _)| *known == name) => {
            return invalid!(
                "{WRONG} Conflicting attribute definition for '{name}'. An attribute cannot be defined in \
                 AttributeDefinitions when used as a VectorAttribute."
            );
        }
        _ => return Ok(name.to_owned()),
    };
    constraint(name, &format!("{place}.attributeName"), &format!("Member must have length {bound}"))
}

/// `SearchSchema`: the attribute of the hash key, and those of filters.
fn search_schema(
    fields: &Map<String, Json>,
    place: &str,
    definitions: &[(&str, &str)],
) -> Result<(Option<IndexKey>, Vec<IndexKey>)> {
    let Some(schema) = fields.get("SearchSchema").filter(|schema| !schema.is_null()) else {
        return Ok((None, Vec::new()));
    };
    let schema = json::read_list(schema)?;
    if schema.is_empty() {
        let at = format!("{place}.searchSchema");
        return constraint("[]", &at, "Member must have length greater than or equal to 1");
    }
    let (mut hash, mut filters) = (None, Vec::<IndexKey>::new());
    for (at, element) in schema.iter().enumerate() {
        let at = format!("{place}.searchSchema.{}.member", at + 1);
        let element = json::read_map(element)?;
        let name = text(element, "AttributeName", &at)?;
        let kind = text(element, "SearchSchemaElementType", &at)?;
        let Some((_, of)) = definitions.iter().find(|(known, _)| *known == name) else {
            return invalid!("{WRONG} One element in SearchSchema is not defined in attribute definitions");
        };
        let of = ["S", "N"].into_iter().find(|known| known == of).unwrap_or("B");
        let key = IndexKey { name: name.to_owned(), kind: of };
        if hash.as_ref() == Some(&key) || filters.contains(&key) {
            return invalid!("{WRONG} SearchSchema has the attribute {name} twice");
        }
        match kind {
            "HASH" if hash.is_some() => return invalid!("{WRONG} SearchSchema has more than one HASH key"),
            "HASH" => hash = Some(key),
            "INLINE_FILTER" if filters.len() == FILTERS_MAX => {
                return invalid!("{WRONG} SearchSchema has more than {FILTERS_MAX} INLINE_FILTER attributes");
            }
            "INLINE_FILTER" => filters.push(key),
            _ => {
                return constraint(
                    kind,
                    &format!("{at}.searchSchemaElementType"),
                    "Member must satisfy enum value set: [HASH, INLINE_FILTER]",
                );
            }
        }
    }
    Ok((hash, filters))
}

/// An index of a request.
fn read_index(json: &Json, place: &str, definitions: &[(&str, &str)]) -> Result<VectorIndex> {
    let fields = json::read_map(json)?;
    let name = index_name(fields, place)?;
    let dimensions = json::read_integer(required(fields, "Dimensions", place)?)?;
    let distance = text(fields, "DistanceFunction", place)?;
    let projection = json::read_map(required(fields, "Projection", place)?)?;
    let attribute = attribute(fields, place, definitions)?;
    let Some(distance) = Distance::of_name(distance) else {
        return constraint(
            distance,
            &format!("{place}.distanceFunction"),
            "Member must satisfy enum value set: [COSINE, DOT_PRODUCT, EUCLIDEAN]",
        );
    };
    let (hash, filters) = search_schema(fields, place, definitions)?;
    let in_range = usize::try_from(dimensions).ok().filter(|count| (1..=DIMENSIONS_MAX).contains(count));
    let Some(dimensions) = in_range else {
        return invalid!("{WRONG} Number of dimensions must be between 1 and {DIMENSIONS_MAX} inclusive.");
    };
    let projected = projected(projection, place)?;
    Ok(VectorIndex { name: name.to_owned(), attribute, dimensions, distance, hash, filters, projected })
}

/// Carries out `VectorIndexUpdates` on the details of a table; how many indexes are added and removed.
pub(super) fn update(request: &Request, table: &ApiTable, details: &mut Details) -> Result<usize> {
    let list = request.get("VectorIndexUpdates").map(json::read_list).transpose()?.unwrap_or_default();
    for (at, one) in list.iter().enumerate() {
        let place = |action: &str| format!("vectorIndexUpdates.{}.member.{action}", at + 1);
        let members = json::read_map(one)?;
        let mut actions = members.iter().filter(|(_, action)| !action.is_null());
        let (Some((kind, action)), None) = (actions.next(), actions.next()) else {
            return invalid!("{WRONG} One of VectorIndexUpdate action must be specified: Create or Delete");
        };
        match kind.as_str() {
            "Create" => create(request, action, &place("create"), (table, details))?,
            "Delete" => {
                let name = index_name(json::read_map(action)?, &place("delete"))?;
                let found = details.vectors.iter().position(|index| index.name == name);
                let missing = || ApiError::new(ErrorKind::ResourceNotFound, "Requested resource not found");
                details.vectors.remove(found.ok_or_else(missing)?);
            }
            _ => return invalid!("{WRONG} {kind} is no action of VectorIndexUpdates"),
        }
    }
    Ok(list.len())
}

/// Adds an index, whose attributes may be defined here or were before.
fn create(
    request: &Request,
    action: &Json,
    place: &str,
    (table, details): (&ApiTable, &mut Details),
) -> Result<()> {
    let definitions = secondary_indexes::defined(request, table)?;
    let index = read_index(action, place, &definitions)?;
    secondary_indexes::check_new(details, &index.name)?;
    details.vectors.push(index);
    Ok(())
}

/// The attributes of a vector index that count as projected: the vector, filters, and those of the projection.
pub(super) fn included(index: &VectorIndex) -> usize {
    1 + index.filters.len() + index.projected.included()
}

/// Adds the vector indexes to the description of a table.
pub(super) fn describe(table: &ApiTable, estimate: Estimate, members: &mut Map<String, Json>) {
    let shown: Vec<Json> = table.vectors().iter().map(|index| description(table, index, estimate)).collect();
    if !shown.is_empty() {
        members.insert("VectorIndexes".to_owned(), Json::Array(shown));
    }
}

/// An index as the API shows it. It stores no items; those of the table bound the number of its own.
fn description(table: &ApiTable, index: &VectorIndex, estimate: Estimate) -> Json {
    let element = |kind: &'static str| move |key: &IndexKey| to_json!({ "AttributeName": key.name, "SearchSchemaElementType": kind });
    let hash = index.hash.iter().map(element("HASH"));
    let schema: Vec<Json> = hash.chain(index.filters.iter().map(element("INLINE_FILTER"))).collect();
    let mut out = to_json!({
        "IndexName": index.name,
        "VectorAttribute": { "AttributeName": index.attribute },
        "Dimensions": index.dimensions,
        "DistanceFunction": index.distance.name(),
        "Projection": index.projected.description(),
        "IndexStatus": table.status(),
        "IndexSizeBytes": estimate.bytes,
        "ItemCount": estimate.items,
        "IndexArn": format!("{}/index/{}", table.arn(), index.name),
    });
    if let (false, Some(members)) = (schema.is_empty(), out.as_object_mut()) {
        members.insert("SearchSchema".to_owned(), Json::Array(schema));
    }
    out
}

impl<C: Coordinator> Dynamo<C> {
    /// Marks the vector indexes in the description of a table that are still being built on a node.
    pub(super) async fn mark_building(&self, table: &ApiTable, description: &mut Json) {
        let shown = description.get_mut("VectorIndexes").and_then(Json::as_array_mut);
        for (index, shown) in table.vectors().iter().zip(shown.into_iter().flatten()) {
            let Some(members) = shown.as_object_mut() else { continue };
            if !table.is_restoring() && self.is_building(table, index).await {
                members.insert("IndexStatus".to_owned(), "CREATING".into());
                members.insert("Backfilling".to_owned(), true.into());
            }
        }
    }

    /// Whether a live node has not built an index yet. Nodes that cannot be asked count as having it: searches do without them.
    async fn is_building(&self, table: &ApiTable, index: &VectorIndex) -> bool {
        let query = Arc::new(NearestQuery {
            index: index.storage_index(),
            to: NearestTo::Vector(vec![0.0; index.dimensions]),
            count: 1,
        });
        for consistency in [Consistency::All, Consistency::LocalOne] {
            let deadline = self.store().deadline(self.executor.limits().range_timeout);
            let coordinator = self.executor.coordinator();
            match coordinator.nearest(&table.table, &query, consistency, deadline).await {
                Ok(_) => return false,
                Err(error) if error.is_index_unavailable() => return true,
                Err(_) => {}
            }
        }
        false
    }
}
