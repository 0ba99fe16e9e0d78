//! Hints: stored hints are delivered, through faults of power, disk and the host meanwhile.

mod crash;
mod faults;
mod format;
mod limits;
mod replay;
mod world;
