//! Gossip from outside: the detector's table, the codec's laws, the machine by hand, and whole clusters in a small simulation.

mod codec;
mod cost;
mod detector;
mod fuzz;
mod machine;
mod simulation;
mod world;
