//! The golden tables, one test a file.

use crate::golden::check;

#[test]
fn schema_statements() {
    check("ddl.txt");
}

#[test]
fn modifications() {
    check("modification.txt");
}

#[test]
fn selections() {
    check("select.txt");
}

#[test]
fn rows_and_functions() {
    check("rows.txt");
}
