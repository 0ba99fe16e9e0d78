//! SSTables as a whole: files made by Cassandra, round trips, damage.

mod copying;
mod damage;
mod fixtures;
mod flips;
mod fuzz;
mod generate;
mod oracle;
mod round_trip;
mod support;
