//! Names that all tables of the API have in common: the column of their attributes, and ARNs.

/// The column of the attributes that are no key.
pub(crate) const ATTRIBUTES: &str = ":attrs";
/// The region of all ARNs: one of AWS's, for libraries refuse others (the adapter of streams for the Kinesis Client Library).
pub(crate) const REGION: &str = "us-east-1";

/// The table of a backup's ARN, which may be gone.
pub(crate) fn table_of_backup(arn: &str) -> Option<&str> {
    Some(arn.rsplit_once(":table/")?.1.split_once("/backup/")?.0)
}

/// The ARN of a table; there is one region and one account.
pub(crate) fn arn(table: &str) -> String {
    format!("arn:aws:dynamodb:{REGION}:000000000000:table/{table}")
}
