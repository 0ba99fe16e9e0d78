//! The indexes of storage that secondary indexes and vector indexes of a table need.

use std::collections::BTreeMap;

use cluster::state::STATE_VERSION_OF_ORDERED_INDEXES;
use coordinator::ClusterView;
use replica::{DIMENSIONS_OPTION, ENTRY_OPTION, ORDER_OPTION, Order};
use schema::{Index, IndexTarget, IndexedPart};

use crate::index_definition::{IndexKey, SecondaryIndex};
use crate::names::ATTRIBUTES;
use crate::vector_definition::VectorIndex;

/// The class of an index of storage that belongs to the API; no statement of CQL reads by one.
const CLASS: &str = "dynamodb";

/// The name of the index of storage by which items are found by an attribute.
pub(crate) fn storage_index(attribute: &str) -> String {
    format!("dynamodb_{:016x}", xxhash_rust::xxh3::xxh3_64(attribute.as_bytes()))
}

/// Whether every node of the cluster makes ordered indexes.
pub(crate) fn are_ordered(view: &ClusterView) -> bool {
    view.oldest_version() >= STATE_VERSION_OF_ORDERED_INDEXES
}

/// The attributes of an index that are no keys of the table.
pub(crate) fn attributes<'a>(
    index: &'a SecondaryIndex,
    (hash, range): (&'a str, Option<&'a str>),
) -> impl Iterator<Item = &'a IndexKey> {
    index.keys().filter(move |key| key.name != hash && Some(key.name.as_str()) != range)
}

/// Whether a secondary index has an ordered index of storage: one with more than one key. One of which the hash key is the table's, and that
/// has several other attributes, has none: where those were not written at once, no other index would find the items.
pub(crate) fn is_ordered(index: &SecondaryIndex, keys: (&str, Option<&str>)) -> bool {
    index.keys().count() > 1 && (index.hash.name != keys.0 || attributes(index, keys).count() < 2)
}

/// The name of the ordered index of storage of such a secondary index, and its option.
pub(crate) fn ordered_index(index: &SecondaryIndex) -> (String, String) {
    let option = Order::option(index.keys().map(IndexKey::attribute));
    (format!("dynamodb_ordered_{:016x}", xxhash_rust::xxh3::xxh3_64(option.as_bytes())), option)
}

/// Makes the indexes of storage of a table those that its secondary indexes and vector indexes need; `keys` are the table's own. Ordered ones are made if `are_ordered`.
pub(crate) fn attach(
    attached: &mut BTreeMap<String, Index>,
    (indexes, vectors): (&[SecondaryIndex], &[VectorIndex]),
    keys: (&str, Option<&str>),
    are_ordered: bool,
) {
    let (hash, range) = keys;
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
    for index in indexes.iter().filter(|index| are_ordered && is_ordered(index, keys)) {
        let (name, option) = ordered_index(index);
        let options = BTreeMap::from([(ORDER_OPTION.to_owned(), option)]);
        attach(name, ATTRIBUTES.to_owned(), IndexedPart::Entries, options);
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
