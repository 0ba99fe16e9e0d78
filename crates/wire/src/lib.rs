//! Frames and messages of the CQL native protocol v3, v4 and v5 (pure).
