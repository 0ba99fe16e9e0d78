//! Objects of an S3-compatible service, over HTTP/1.1.

mod client;
mod connection;
mod upload;
mod xml;

pub(crate) use client::S3;
pub use connection::ObjectStore;
pub(crate) use upload::Upload;
