//! Indexes of both kinds, secondary and vector, as far as they count together: names, limits and updates.

use super::secondary_indexes::{self, INCLUDED_MAX, TableKeys};
use super::vector_indexes;
use crate::error::{ApiError, ErrorKind, Result, invalid};
use crate::index_definition::SecondaryIndex;
use crate::request::Request;
use crate::table::{ApiTable, Details};
use crate::vector_definition::VectorIndex;

const WRONG: &str = "One or more parameter values were invalid:";

/// Refuses sets of indexes that no table may have.
pub(super) fn check_all(details: &Details) -> Result<()> {
    secondary_indexes::check_all(&details.indexes)?;
    let included = details.indexes.iter().map(|index| index.projected.included());
    let of_vectors = details.vectors.iter().map(vector_indexes::included);
    if included.chain(of_vectors).sum::<usize>() > INCLUDED_MAX {
        return invalid!(
            "{WRONG} The number of projected attributes of all indexes exceeds the limit of {INCLUDED_MAX}"
        );
    }
    vector_indexes::check_all(details)
}

/// Refuses indexes of a table that is to be created which no table may have together, and definitions that none of them uses.
pub(super) fn check_created(
    details: &Details,
    definitions: &[(&str, &str)],
    (hash, range): TableKeys<'_>,
) -> Result<()> {
    check_all(details)?;
    if details.indexes.is_empty() && details.vectors.is_empty() {
        return Ok(());
    }
    let mut used: Vec<&str> = std::iter::once(hash).chain(range).collect();
    let of_vectors = details.vectors.iter().flat_map(VectorIndex::keys);
    let keys = details.indexes.iter().flat_map(SecondaryIndex::keys).chain(of_vectors);
    used.extend(keys.map(|key| key.name.as_str()));
    if definitions.iter().all(|(name, _)| used.contains(name)) {
        return Ok(());
    }
    let mut seen = Vec::new();
    used.retain(|name| {
        !seen.contains(name) && {
            seen.push(*name);
            true
        }
    });
    invalid!(
        "{WRONG} Some AttributeDefinitions are not used. AttributeDefinitions: [{}], keys used: [{}]",
        definitions.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
        used.join(", ")
    )
}

/// Carries out `GlobalSecondaryIndexUpdates` and `VectorIndexUpdates` on the details of a table.
pub(super) fn update(request: &Request, table: &ApiTable, details: &mut Details) -> Result<()> {
    let online = secondary_indexes::update(request, table, details)?
        + vector_indexes::update(request, table, details)?;
    if online > 1 {
        let text = "Subscriber limit exceeded: Only 1 online index can be created or deleted simultaneously per table";
        return Err(ApiError::new(ErrorKind::LimitExceeded, text));
    }
    Ok(())
}
