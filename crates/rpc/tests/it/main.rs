//! Tests of the internode protocol under the simulator.

mod harness;

mod calls;
mod failures;
