//! Indexes of full text: the postings of the terms of texts, and the search for the texts that are the most relevant to a query.
//!
//! A posting is a term at a place, with the length of its text and the positions of the term in it. The version of a text is one cell: all of
//! its postings are in one memtable or one segment of a file, so that a source decides a query for each version that it has
//! (docs/design/fulltext.md).

mod cursor;
mod entry;
mod evaluate;
mod memory;
mod posting;
mod search;

pub(crate) use entry::Entry;
pub(crate) use memory::MemoryTexts;
pub(crate) use posting::postings_of;
pub use search::TextSearch;
