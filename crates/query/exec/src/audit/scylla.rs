//! The categories of ScyllaDB's `audit_categories`, and the entries that its options want: those of the categories, and of these the ones about
//! statements only with the listed keyspaces or tables.

use std::collections::BTreeSet;

use super::filter::names;
use super::{AuditCategory, AuditEvent};

/// A category of ScyllaDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatementCategory {
    /// Reads.
    Query,
    /// Writes, and TRUNCATE.
    Dml,
    /// Changes of the schema.
    Ddl,
    /// Roles and permissions.
    Dcl,
    /// Logins.
    Auth,
    /// Service levels.
    Admin,
}

impl StatementCategory {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Query, Self::Dml, Self::Ddl, Self::Dcl, Self::Auth, Self::Admin];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Query => "QUERY",
            Self::Dml => "DML",
            Self::Ddl => "DDL",
            Self::Dcl => "DCL",
            Self::Auth => "AUTH",
            Self::Admin => "ADMIN",
        }
    }

    /// That of an event with this type and category of Cassandra's log; none for USE, DESCRIBE, PREPARE and invalid requests, which
    /// ScyllaDB does not audit.
    pub(super) fn of(kind: &str, category: AuditCategory) -> Option<Self> {
        Some(match category {
            _ if kind.ends_with("SERVICE_LEVEL") || kind.ends_with("SERVICE_LEVELS") => Self::Admin,
            _ if kind == "TRUNCATE" => Self::Dml,
            AuditCategory::Query => Self::Query,
            AuditCategory::Dml => Self::Dml,
            AuditCategory::Ddl => Self::Ddl,
            AuditCategory::Dcl => Self::Dcl,
            AuditCategory::Auth => Self::Auth,
            AuditCategory::Other | AuditCategory::Error | AuditCategory::Prepare => return None,
        })
    }

    /// Whether its entries need no listed keyspace or table.
    const fn is_about_the_node(self) -> bool {
        matches!(self, Self::Dcl | Self::Auth | Self::Admin)
    }
}

/// The entries that ScyllaDB's options want.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatementFilter {
    categories: BTreeSet<StatementCategory>,
    keyspaces: BTreeSet<String>,
    tables: BTreeSet<(String, String)>,
}

impl StatementFilter {
    /// That of `audit_categories`, `audit_keyspaces` and `audit_tables`, lists with commas.
    ///
    /// # Errors
    /// The option and its part that is no category, or no table with its keyspace.
    pub fn new(categories: &str, keyspaces: &str, tables: &str) -> Result<Self, (&'static str, String)> {
        let category = |name: String| {
            let found = StatementCategory::ALL.into_iter().find(|one| one.name() == name);
            found.ok_or(("audit_categories", name))
        };
        let table = |name: String| match name.split_once('.') {
            Some((keyspace, table)) if !keyspace.is_empty() && !table.is_empty() && !table.contains('.') => {
                Ok((keyspace.trim().to_owned(), table.trim().to_owned()))
            }
            _ => Err(("audit_tables", name)),
        };
        Ok(Self {
            categories: names(categories).into_iter().map(category).collect::<Result<_, _>>()?,
            keyspaces: names(keyspaces),
            tables: names(tables).into_iter().map(table).collect::<Result<_, _>>()?,
        })
    }

    fn has(&self, keyspace: &str, table: &str) -> bool {
        self.keyspaces.contains(keyspace) || self.tables.contains(&(keyspace.to_owned(), table.to_owned()))
    }

    /// Whether an entry is wanted. A batch is when one of its tables is.
    pub fn admits(&self, event: &AuditEvent) -> bool {
        let Some(category) = event.statement.filter(|category| self.categories.contains(category)) else {
            return false;
        };
        let of_own = event
            .keyspace
            .as_deref()
            .is_some_and(|keyspace| self.has(keyspace, event.scope.as_deref().unwrap_or_default()));
        category.is_about_the_node()
            || of_own
            || event.batched.iter().any(|(keyspace, table)| self.has(keyspace, table))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, category: AuditCategory, about: Option<(&str, &str)>) -> AuditEvent {
        let (keyspace, scope) =
            about.map(|(keyspace, table)| (keyspace.to_owned(), table.to_owned())).unzip();
        AuditEvent { keyspace, scope, ..AuditEvent::new(kind, category) }
    }

    #[test]
    fn statements_are_wanted_by_keyspace_and_table_and_the_rest_by_category() {
        let filter = StatementFilter::new("DML, DDL,DCL,AUTH", "all", "ks.t").expect("lists");
        let wants = |kind, category, about| filter.admits(&event(kind, category, about));
        assert!(wants("UPDATE", AuditCategory::Dml, Some(("all", "x"))));
        assert!(wants("UPDATE", AuditCategory::Dml, Some(("ks", "t"))));
        assert!(!wants("UPDATE", AuditCategory::Dml, Some(("ks", "u"))));
        assert!(!wants("SELECT", AuditCategory::Query, Some(("all", "x"))), "no category of the list");
        assert!(wants("TRUNCATE", AuditCategory::Ddl, Some(("ks", "t"))), "it is DML");
        assert!(
            wants("CREATE_ROLE", AuditCategory::Dcl, None) && wants("LOGIN_ERROR", AuditCategory::Auth, None)
        );
        assert!(!wants("CREATE_SERVICE_LEVEL", AuditCategory::Dcl, None), "it is ADMIN");
        assert!(!wants("DESCRIBE", AuditCategory::Other, None));
        let mut batch = event("BATCH", AuditCategory::Dml, None);
        batch.keyspace = Some("ks".to_owned());
        assert!(!filter.admits(&batch));
        batch.batched = vec![("ks".to_owned(), "u".to_owned()), ("ks".to_owned(), "t".to_owned())];
        assert!(filter.admits(&batch));
        // A failed statement is still of its category.
        let mut failed = event("UPDATE", AuditCategory::Dml, Some(("ks", "t")));
        (failed.kind, failed.category) = ("REQUEST_FAILURE".to_owned(), AuditCategory::Error);
        assert!(filter.admits(&failed));
        assert!(
            !StatementFilter::new("DML", "", "").expect("lists").admits(&failed),
            "no keyspace is listed"
        );
    }

    #[test]
    fn wrong_names_are_refused() {
        let refused =
            |categories, tables| StatementFilter::new(categories, "", tables).expect_err("it is wrong");
        assert_eq!(refused("DML,dcl", ""), ("audit_categories", "dcl".to_owned()));
        for table in ["t", ".t", "ks.", "ks.t.x"] {
            assert_eq!(refused("DML", table), ("audit_tables", table.to_owned()));
        }
    }
}
