//! Statements against a table in memory: golden tables of statements and their results.
