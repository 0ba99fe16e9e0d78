//! The integration tests of `cql`, in one binary.

mod depth;
mod fuzz;
mod generate;
mod golden;
mod roundtrip;
mod steps;
