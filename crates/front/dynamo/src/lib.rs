//! The DynamoDB API: HTTP connections, requests, and operations on the shard's coordinator (docs/design/dynamo.md).
//!
//! Items, expressions and messages are those of crate `items`. Tables are those of the schema: a keyspace each, with the
//! attributes that are no key in one map, as ScyllaDB's Alternator documents it.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

mod access;
mod audit;
mod backup;
mod canaries;
mod constraints;
mod cors;
mod encoding;
mod error;
mod expiry;
mod http;
mod http_date;
mod index_definition;
mod intent;
mod local_nodes;
mod metrics;
mod names;
mod operations;
mod pages;
mod permissions;
mod ranges;
mod record;
mod recovery;
mod reply;
mod request;
mod row_ttl;
mod secondary;
mod secure;
mod server;
mod settings;
mod settle;
mod signature;
mod storage_indexes;
mod store;
mod streams;
mod sweep;
mod table;
mod table_cache;
mod throughput;
mod transaction;
mod transfer;
mod vector_definition;
mod vectors;

pub use backup::{
    PartitionUpdate, SnapshotError, SnapshotFuture, SnapshotPlace, SnapshotRows, SnapshotStore,
};
pub use canaries::Canaries;
pub use error::{ApiError, ErrorKind};
pub use http::HttpLimits;
pub use metrics::{ApiFigures, OperationFigures, TableFigures};
pub use operations::{Admission, Answer, DescribedEndpoint, Dynamo};
pub use server::{HandOver, HandOverEndpoint, Server, hand_over_mesh};
pub use settings::{ApiSettings, Compression};
pub use store::Isolation;
pub use transfer::s3::ObjectStore;
