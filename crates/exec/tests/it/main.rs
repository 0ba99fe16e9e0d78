//! Statements against a table in memory: golden tables of statements and their results.

mod golden;
mod memory;
mod paging;
mod tables;
