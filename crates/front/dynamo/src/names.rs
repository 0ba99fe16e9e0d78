//! Names that all tables of the API have in common: the column of their attributes, and ARNs; and those of system tables.

use auth::is_system_keyspace;

/// The column of the attributes that are no key.
pub(crate) const ATTRIBUTES: &str = ":attrs";
/// The region of all ARNs: one of AWS's, for libraries refuse others (the adapter of streams for the Kinesis Client Library).
pub(crate) const REGION: &str = "us-east-1";

/// The beginning of the names under which system tables are read, as ScyllaDB has them; a keyspace, a dot and a table come behind it.
pub(crate) const SYSTEM_PREFIX: &str = ".scylla.alternator.";

/// The keyspace and the name of the system table that a table's name means; none of another name.
pub(crate) fn system_table(name: &str) -> Option<(&str, &str)> {
    let parts = name.strip_prefix(SYSTEM_PREFIX)?.split_once('.')?;
    is_system_keyspace(parts.0).then_some(parts)
}

/// The table of a backup's ARN, which may be gone.
pub(crate) fn table_of_backup(arn: &str) -> Option<&str> {
    Some(arn.rsplit_once(":table/")?.1.split_once("/backup/")?.0)
}

/// The ARN of a table; there is one region and one account.
pub(crate) fn arn(table: &str) -> String {
    format!("arn:aws:dynamodb:{REGION}:000000000000:table/{table}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tables_of_the_server_are_system_tables() {
        assert_eq!(system_table(".scylla.alternator.system.config"), Some(("system", "config")));
        assert_eq!(system_table(".scylla.alternator.system_schema.a.b"), Some(("system_schema", "a.b")));
        for other in
            ["system.config", ".scylla.alternator.system", ".scylla.alternator.alternator_t.t", "music"]
        {
            assert_eq!(system_table(other), None, "{other}");
        }
    }
}
