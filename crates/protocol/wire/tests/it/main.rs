//! Integration tests of the native protocol: round trips through client and server half, byte fixtures, hostile input.

mod decoder;
mod fixtures;
mod fuzz;
mod roundtrip;
mod samples;
mod truncation;
