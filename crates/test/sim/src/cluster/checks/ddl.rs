//! Checker: all nodes agree on the tables that clients create, alter and drop, and show each as some change has left it.

use std::collections::BTreeSet;

use wire::Consistency;

use crate::cluster::director::ClusterDirector;
use crate::cluster::models::ddl::{Columns, KEYSPACE};

/// All nodes show each table in the same one of the ways in which it may be.
pub(crate) async fn judge(director: &mut ClusterDirector) -> Result<(), String> {
    let known = director.schema.borrow().clone();
    for (at, table) in known.iter().enumerate() {
        let text = format!(
            "SELECT column_name FROM system_schema.columns WHERE keyspace_name = '{KEYSPACE}' AND table_name = '{}'",
            table.name
        );
        let mut first: Option<Columns> = None;
        for nth in director.present() {
            let rows = director.ask(nth, &text, Consistency::One).await?;
            let name = |row: &Vec<Option<Vec<u8>>>| {
                String::from_utf8_lossy(row[0].as_deref().unwrap_or_default()).into_owned()
            };
            let columns: BTreeSet<String> = rows.iter().map(name).filter(|name| name != "k").collect();
            let found = (!rows.is_empty()).then_some(columns);
            if !table.may.contains(&found) {
                return Err(format!(
                    "node {nth} shows {} with {found:?}, which may be one of {:?}",
                    table.name, table.may
                ));
            }
            match &first {
                None => first = Some(found),
                Some(other) if *other == found => {}
                Some(other) => return Err(format!("{}: {other:?}, and {found:?} on node {nth}", table.name)),
            }
        }
        if let Some(found) = first {
            director.schema.borrow_mut()[at].may = vec![found];
        }
    }
    Ok(())
}
