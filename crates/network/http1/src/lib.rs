//! HTTP/1.1 over a shard's stream: the shared ground of the ports that speak it with hyper.
//!
//! [`Io`] is a stream as hyper reads and writes it, and [`origin`] distinguishes requests of web pages from those of programs. Neither
//! knows a path, a body or a service.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

mod io;
pub mod origin;

pub use io::{Activity, Io};
