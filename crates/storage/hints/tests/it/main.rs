//! Hints: stored hints are delivered, whatever happens to power, disk and the host meanwhile.

mod crash;
mod faults;
mod format;
mod limits;
mod replay;
mod world;
