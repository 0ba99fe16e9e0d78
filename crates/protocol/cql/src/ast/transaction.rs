//! Multi-partition transactions, as Cassandra 6 writes them.

use super::{Ident, Modification, Relation, RowReference, Select};

/// `BEGIN TRANSACTION … COMMIT TRANSACTION`.
#[derive(Clone, Debug, PartialEq)]
pub struct Transaction {
    /// `LET name = (SELECT …)`.
    pub lets: Vec<(Ident, Select)>,
    /// The result of the transaction.
    pub returning: Option<Returning>,
    /// `IF … THEN`; the updates are then conditional. Empty without it.
    pub conditions: Vec<Relation>,
    /// The modifications, between `THEN` and `END IF` when there are conditions.
    pub updates: Vec<Modification>,
}

/// The result of a [`Transaction`].
#[derive(Clone, Debug, PartialEq)]
pub enum Returning {
    /// `SELECT …` from a table.
    Select(Box<Select>),
    /// `SELECT row.column, …` of the LETs.
    References(Vec<RowReference>),
}
