//! A keyspace whose replication factor changes: the rows that all replicas have acknowledged, and the possible factors.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// The keyspace.
pub(crate) const KEYSPACE: &str = "k1";
/// Its table.
pub(crate) const TABLE: &str = "k1.copied";

/// The client's knowledge of the keyspace.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    pub(crate) next: i64,
    /// Rows that all replicas of some moment have acknowledged.
    pub(crate) rows: BTreeSet<i64>,
    /// The possible replication factors now.
    pub(crate) may: BTreeSet<usize>,
}

/// Shared by the client and the checker.
pub(crate) type SharedCopied = Rc<RefCell<Copied>>;

/// The replication of the keyspace, as CQL writes it behind WITH.
pub(crate) fn replication(copies: usize) -> String {
    format!("replication = {{'class': 'SimpleStrategy', 'replication_factor': {copies}}}")
}

/// The statement that changes the factor.
pub(crate) fn alter_text(copies: usize) -> String {
    format!("ALTER KEYSPACE {KEYSPACE} WITH {}", replication(copies))
}
