//! The cache through its public interface.

mod cost;
mod evict;
mod forget;
