//! Topology changes of nodes of a simulation that have everything from their place in the cluster down to the disk, and no clients.

mod given_id;
mod ignored;
mod interrupted;
mod leftovers;
mod world;
