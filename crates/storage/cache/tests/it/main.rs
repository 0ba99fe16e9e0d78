//! The cache through its public interface.

mod cost;
mod forget;
