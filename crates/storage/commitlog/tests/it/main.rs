//! The commit log's formats: every update comes back, every torn or damaged byte is detected.

mod codec;
mod faults;
mod fuzz;
mod segment;
