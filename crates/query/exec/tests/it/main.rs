//! Statements against a table in memory: golden tables of statements and their results.

mod analyzers;
mod cdc;
mod constraints;
mod fragments;
mod fulltext;
mod functions;
mod fuzz;
mod golden;
mod grammar;
mod guardrails;
mod hostile;
mod indexes;
mod masks;
mod memory;
mod names;
mod nearest;
mod objects;
mod options;
mod paging;
mod plans;
mod preemption;
mod roles;
mod schema_change;
mod sinks;
mod tables;
mod views;
