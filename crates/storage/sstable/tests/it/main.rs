//! SSTables as a whole: files made by Cassandra, what is written and read again, damage.

mod copying;
mod damage;
mod fixtures;
mod flips;
mod fuzz;
mod generate;
mod oracle;
mod round_trip;
mod support;
