//! The commit log's formats: every update comes back, every torn or damaged byte is told apart.

mod codec;
mod faults;
mod fuzz;
mod segment;
