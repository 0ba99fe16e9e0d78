//! The indexes of storage that secondary indexes and vector indexes of a table need.

use std::collections::BTreeMap;

use replica::{DIMENSIONS_OPTION, ENTRY_OPTION};
use schema::{Index, IndexTarget, IndexedPart};

use crate::index_definition::SecondaryIndex;
use crate::names::ATTRIBUTES;
use crate::vector_definition::VectorIndex;

/// The class of an index of storage that belongs to the API; no statement of CQL reads by one.
const CLASS: &str = "dynamodb";

/// The name of the index of storage by which items are found by an attribute.
pub(crate) fn storage_index(attribute: &str) -> String {
    format!("dynamodb_{:016x}", xxhash_rust::xxh3::xxh3_64(attribute.as_bytes()))
}

/// Makes the indexes of storage of a table those that its secondary indexes and vector indexes need; `range` is the table's own range key.
pub(crate) fn attach(
    attached: &mut BTreeMap<String, Index>,
    (indexes, vectors): (&[SecondaryIndex], &[VectorIndex]),
    (hash, range): (&str, Option<&str>),
) {
    attached.retain(|_, index| index.class.as_deref() != Some(CLASS));
    let mut attach = |name: String, column: String, part, options| {
        let (targets, class) = (vec![IndexTarget { column, part }], Some(CLASS.to_owned()));
        attached.insert(name.clone(), Index { name, targets, class, options, local: false });
    };
    let hashes = indexes.iter().filter(|index| index.is_global).map(|index| &index.hash.name);
    let hashes = hashes.chain(vectors.iter().filter_map(|index| Some(&index.hash.as_ref()?.name)));
    for attribute in hashes.filter(|attribute| *attribute != hash) {
        let (column, part, options) = if Some(attribute.as_str()) == range {
            (attribute.clone(), IndexedPart::Whole, BTreeMap::new())
        } else {
            let options = BTreeMap::from([(ENTRY_OPTION.to_owned(), attribute.clone())]);
            (ATTRIBUTES.to_owned(), IndexedPart::Entries, options)
        };
        attach(storage_index(attribute), column, part, options);
    }
    for index in vectors {
        let options = [
            (ENTRY_OPTION, index.attribute.clone()),
            (DIMENSIONS_OPTION, index.dimensions.to_string()),
            ("similarity_function", index.distance.name().to_owned()),
        ];
        let options = options.map(|(name, value)| (name.to_owned(), value)).into();
        attach(index.storage_index(), ATTRIBUTES.to_owned(), IndexedPart::Entries, options);
    }
}
