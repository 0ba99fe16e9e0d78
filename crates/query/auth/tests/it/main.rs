//! Tests of the crate: bcrypt against Cassandra's hashes, names of resources, access through roles, lockout.

mod access;
mod lockout;
mod password;
