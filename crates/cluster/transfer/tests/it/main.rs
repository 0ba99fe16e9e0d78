//! Nodes of a simulation that fetch SSTables from each other, through cuts, crashes and what happens to the table meanwhile.

mod fetching;
mod nodes;
