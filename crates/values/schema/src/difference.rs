//! The differences between two versions of a schema. Versions share equal parts, so that differences are found by comparing
//! pointers, without a look at unchanged parts.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Schema, Table};

/// A value that one of two maps lacks or that is another one in it: before and after.
pub type Difference<'a, V> = (Option<&'a Arc<V>>, Option<&'a Arc<V>>);

/// The entries in which two maps differ, in the order of their keys. Equal values that are not the same one differ.
pub fn differences<'a, K: Ord, V>(
    before: &'a BTreeMap<K, Arc<V>>,
    after: &'a BTreeMap<K, Arc<V>>,
) -> impl Iterator<Item = (&'a K, Difference<'a, V>)> {
    let (mut before, mut after) = (before.iter().peekable(), after.iter().peekable());
    std::iter::from_fn(move || {
        loop {
            let order = match (before.peek(), after.peek()) {
                (None, None) => return None,
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some((old, _)), Some((new, _))) => old.cmp(new),
            };
            let old = if order.is_le() { before.next() } else { None };
            let new = if order.is_ge() { after.next() } else { None };
            match (old, new) {
                (Some((_, old)), Some((_, new))) if Arc::ptr_eq(old, new) => {}
                _ => {
                    let (key, _) = old.or(new)?;
                    return Some((key, (old.map(|(_, value)| value), new.map(|(_, value)| value))));
                }
            }
        }
    })
}

impl Schema {
    /// The tables in which this schema differs from an earlier one, by keyspace and name: as they were, and as they are. One that
    /// was dropped and made anew under its name is one difference.
    pub fn table_differences<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = Difference<'a, Table>> {
        static NONE: BTreeMap<String, Arc<Table>> = BTreeMap::new();
        differences(&before.keyspaces, &self.keyspaces).flat_map(|(_, (old, new))| {
            let tables = |keyspace: Option<&'a Arc<crate::Keyspace>>| keyspace.map_or(&NONE, |it| &it.tables);
            differences(tables(old), tables(new)).map(|(_, difference)| difference)
        })
    }
}

#[cfg(test)]
mod tests {
    use types::CqlType;

    use super::*;
    use crate::{Keyspace, Replication, TableBuilder, TableId};

    fn table(name: &str, id: u8) -> Table {
        TableBuilder::new("ks", name, TableId([id; 16]))
            .partition_key("pk", CqlType::Int)
            .build()
            .expect("a table")
    }

    #[test]
    fn tables_that_are_new_changed_or_gone_are_found() {
        let keyspace = |name: &str| Keyspace::new(name, Replication::Local);
        let before = Schema::default().with_keyspace(keyspace("other")).with_keyspace(keyspace("ks"));
        let before =
            ["a", "b", "c"].iter().zip(1..).fold(before, |it, (name, id)| it.with_table(table(name, id)));
        assert_eq!(before.table_differences(&before.clone()).count(), 0);
        let after =
            before.clone().without_table("ks", "a").with_table(table("b", 9)).with_table(table("d", 4));
        let seen =
            after.table_differences(&before).map(|(old, new)| (old.map(|it| it.id), new.map(|it| it.id)));
        let id = |n: u8| Some(TableId([n; 16]));
        assert_eq!(seen.collect::<Vec<_>>(), [(id(1), None), (id(2), id(9)), (None, id(4))]);
        let gone = after.clone().without_keyspace("ks");
        assert_eq!(gone.table_differences(&after).filter(|(_, new)| new.is_none()).count(), 3);
        assert_eq!(after.table_differences(&gone).filter(|(old, _)| old.is_none()).count(), 3);
    }
}
