//! Tests of views: each is recomputed from its base.

mod recomputed;
mod tables;
