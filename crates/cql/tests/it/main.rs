//! The integration tests of `cql`, in one binary.

mod depth;
mod golden;
