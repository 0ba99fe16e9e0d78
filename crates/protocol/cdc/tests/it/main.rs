//! Tests of logs of changes: what is replayed from them, and what replicas derive that know different things.

mod images;
mod replayed;
mod streams;
mod tables;
