//! The engine as a whole, on the simulated disk: random work against a naive model, with crashes at any point.

mod adopting;
mod cleanup;
mod compacting;
mod cost;
mod counters;
mod crash;
mod damaged;
mod dropping;
mod flushing;
mod fragments;
mod indexes;
mod isolation;
mod large;
mod marks;
mod met;
mod model;
mod observers;
mod operated;
mod pruned;
mod received;
mod shards;
mod shortage;
mod starting;
mod truncation;
mod vectors;
mod world;
