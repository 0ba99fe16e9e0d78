//! Agreement under chance: many proposers, voters that crash, messages that are lost, doubled and late.

mod explore;
mod scenarios;
mod shuffle;
mod world;
