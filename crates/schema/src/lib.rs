//! Keyspaces, tables, columns and user types as immutable values, and the changes between them.
