//! The group through the crate's own interface: its codec, single steps, and a network that misbehaves.

mod bytes_of;
mod cost;
mod rules;
mod shuffle;
mod world;
