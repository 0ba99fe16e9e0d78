//! Checker: all nodes have the same schema, and it is the one that was acknowledged.

use wire::Consistency;

use crate::cluster::director::ClusterDirector;

/// Compares versions and tables.
pub(crate) async fn check(director: &mut ClusterDirector) -> Result<(), String> {
    let mut first = None;
    for nth in director.present() {
        let version = director.ask(nth, "SELECT schema_version FROM system.local", Consistency::One).await?;
        let tables = director
            .ask(
                nth,
                "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'k0'",
                Consistency::One,
            )
            .await?;
        let mut tables: Vec<String> = tables
            .into_iter()
            .map(|row| String::from_utf8_lossy(row[0].as_deref().unwrap_or_default()).into_owned())
            // The others have a checker of their own.
            .filter(|name| name.starts_with('t'))
            .collect();
        tables.sort();
        let expected: Vec<String> = {
            let world = director.world.borrow();
            let mut names: Vec<String> =
                world.tables.iter().filter(|table| table.exists).map(|table| table.name.clone()).collect();
            names.sort();
            names
        };
        if tables != expected {
            return Err(format!("node {nth} has the tables {tables:?} instead of {expected:?}"));
        }
        match &first {
            None => first = Some(version),
            Some(known) if *known == version => {}
            Some(known) => {
                return Err(format!("node {nth} has schema version {version:?}, node 0 {known:?}"));
            }
        }
    }
    Ok(())
}
