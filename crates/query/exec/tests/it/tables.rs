//! The golden tables, one test a file.

use crate::golden::{Node, check, check_on};
use crate::memory::Memory;

#[test]
fn schema_statements() {
    check("ddl.txt");
}

#[test]
fn columns_by_which_rows_expire() {
    check("row_ttl.txt");
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
fn natives() {
    check("natives.txt");
}

#[test]
fn rows_and_functions() {
    check("rows.txt");
}

#[test]
fn combinations_that_differed_from_cassandra() {
    check("corners.txt");
}

#[test]
fn copies_of_tables() {
    check("copies.txt");
}

#[test]
fn relations() {
    check("relations.txt");
}

#[test]
fn statements_about_a_cluster_of_several_datacenters() {
    check_on(&Node::of(Memory::with_nodes(&["a", "b", "a", "a"])), "cluster.txt");
}

#[test]
fn conditional_statements() {
    check("conditional.txt");
}

#[test]
fn indexes() {
    check("indexes.txt");
}
