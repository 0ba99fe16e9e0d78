//! Tests of logs of changes: tables replayed from them, and rows derived by replicas with different data.

mod compared;
mod images;
mod names;
mod replayed;
mod streams;
mod tables;
