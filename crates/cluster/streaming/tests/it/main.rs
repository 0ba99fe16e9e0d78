//! Tests of streaming. Transfers of files: values and messages, and nodes of a simulation that are cut in the middle. SSTables: nodes of
//! a simulation that fetch them from each other, through cuts, crashes and concurrent changes of the table.

mod engines;
mod fetching;
mod fuzz;
mod messages;
mod nodes;
mod transfers;
mod values;
