//! Tests of the type system against tables made by a real Cassandra and against its own laws.

mod functions;
mod golden;
mod laws;
mod numbers;
mod text;
mod values;
