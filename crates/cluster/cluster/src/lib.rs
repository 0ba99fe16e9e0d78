//! The schema and the identity of a node as the cluster agrees on them, and their copy on this node's disk.
//!
//! A schema change is a list of [`SchemaEdit`]s planned against a known version; it is applied only if the schema is
//! still that one, so that concurrent changes never lose each other. Today one node decides alone; the same edits will
//! be the entries of the cluster's Raft log. `system_schema` is not stored: it is computed from the [`schema::Schema`].

mod cdc;
mod codec;
mod dropped;
mod edit;
mod error;
mod event;
pub mod group;
mod identity;
pub mod liveness;
mod objects;
mod own;
pub mod rollback;
pub mod state;
mod steps;
mod store;
mod stored_value;
mod written;

pub use dropped::DroppedTable;
pub use edit::{EditError, SchemaEdit, apply as apply_edits};
pub use error::{SchemaCodecError, StoreError};
pub use event::{Change, ChangedObject, SchemaEvent, events};
pub use identity::{IdentityError, NewTokens, NodeIdentity};
pub use own::own_schema;
pub use store::SchemaStore;
pub use stored_value::parse_id;
