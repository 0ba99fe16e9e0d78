//! Which entries are wanted, by Cassandra's lists: excluded names are not logged; where a list includes names, no others are. An
//! entry without a keyspace passes the lists of keyspaces.

use std::collections::BTreeSet;

use super::{AuditCategory, AuditEvent, shown_user};

/// The lists of the configuration, each separated by commas.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditLists<'a> {
    /// `included_keyspaces`, or all when empty.
    pub included_keyspaces: &'a str,
    /// `excluded_keyspaces`
    pub excluded_keyspaces: &'a str,
    /// `included_categories`, or all when empty.
    pub included_categories: &'a str,
    /// `excluded_categories`
    pub excluded_categories: &'a str,
    /// `included_users`, or all when empty.
    pub included_users: &'a str,
    /// `excluded_users`
    pub excluded_users: &'a str,
}

/// Decides which entries are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    keyspaces: Lists<String>,
    categories: Lists<AuditCategory>,
    users: Lists<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Lists<T> {
    included: BTreeSet<T>,
    excluded: BTreeSet<T>,
}

impl<T> Default for Lists<T> {
    fn default() -> Self {
        Self { included: BTreeSet::new(), excluded: BTreeSet::new() }
    }
}

impl<T: Ord> Lists<T> {
    fn admit<Q: Ord + ?Sized>(&self, one: &Q) -> bool
    where
        T: std::borrow::Borrow<Q>,
    {
        !self.excluded.contains(one) && (self.included.is_empty() || self.included.contains(one))
    }
}

pub(super) fn names(list: &str) -> BTreeSet<String> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn categories(list: &str) -> Result<BTreeSet<AuditCategory>, String> {
    let one = |name: &String| AuditCategory::parse(name).ok_or_else(|| name.clone());
    names(list).iter().map(one).collect()
}

impl AuditFilter {
    /// That of the configuration.
    ///
    /// # Errors
    /// The name that is no category.
    pub fn new(lists: &AuditLists<'_>) -> Result<Self, String> {
        Ok(Self {
            keyspaces: Lists {
                included: names(lists.included_keyspaces),
                excluded: names(lists.excluded_keyspaces),
            },
            categories: Lists {
                included: categories(lists.included_categories)?,
                excluded: categories(lists.excluded_categories)?,
            },
            users: Lists { included: names(lists.included_users), excluded: names(lists.excluded_users) },
        })
    }

    /// Whether an entry is wanted.
    pub fn admits(&self, event: &AuditEvent, user: Option<&str>) -> bool {
        let keyspace = event.keyspace.as_deref();
        self.categories.admit(&event.category)
            && keyspace.is_none_or(|keyspace| self.keyspaces.admit(keyspace))
            && self.users.admit(shown_user(user))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excluded_goes_before_included() {
        let lists = AuditLists {
            included_keyspaces: "a, b",
            excluded_keyspaces: "b",
            included_categories: "query,DDL",
            excluded_users: "root,anonymous",
            ..AuditLists::default()
        };
        let filter = AuditFilter::new(&lists).unwrap();
        let ann = Some("ann");
        let admits = |filter: &AuditFilter, category, keyspace: Option<&str>, user| {
            let keyspace = keyspace.map(str::to_owned);
            filter.admits(&AuditEvent { keyspace, ..AuditEvent::new("X", category) }, user)
        };
        assert!(admits(&filter, AuditCategory::Query, Some("a"), ann));
        assert!(admits(&filter, AuditCategory::Ddl, None, ann));
        assert!(!admits(&filter, AuditCategory::Query, Some("b"), ann));
        assert!(!admits(&filter, AuditCategory::Query, Some("c"), ann));
        assert!(!admits(&filter, AuditCategory::Dml, Some("a"), ann));
        assert!(!admits(&filter, AuditCategory::Query, Some("a"), Some("root")));
        assert!(!admits(&filter, AuditCategory::Query, Some("a"), None));
        let all = AuditFilter::new(&AuditLists::default()).unwrap();
        assert!(AuditCategory::ALL.iter().all(|category| admits(&all, *category, Some("x"), None)));
        let wrong = AuditLists { included_categories: "QUERY,QUERRY", ..AuditLists::default() };
        assert_eq!(AuditFilter::new(&wrong), Err("QUERRY".to_owned()));
    }
}
