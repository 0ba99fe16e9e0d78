//! Tests of bulk transfer: its values and messages, and nodes of a simulation that are cut in the middle.

mod fuzz;
mod messages;
mod nodes;
mod transfers;
mod values;
