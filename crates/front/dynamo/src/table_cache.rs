//! The tables of the API that requests have named, as they are in the shard's schema value: to find one anew takes a name to be put together and
//! some ten look-ups.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use schema::Schema;
use stdx::HashMap;

use crate::error::Result;
use crate::table::{self, ApiTable};

/// Tables that are kept; requests beyond them look for theirs.
const TABLES_MAX: usize = 1000;

/// The tables by name, of one schema value.
#[derive(Default)]
pub(crate) struct TableCache(RefCell<Found>);

#[derive(Default)]
struct Found {
    /// Its address is of no other value while this is here.
    schema: Weak<Schema>,
    by_name: HashMap<String, ApiTable>,
}

impl TableCache {
    /// As [`table::find`] of this schema value.
    ///
    /// # Errors
    /// When there is no such table, or its items cannot be read and written now.
    pub(crate) fn find(&self, schema: &Arc<Schema>, name: &str) -> Result<ApiTable> {
        let mut found = self.0.borrow_mut();
        if !std::ptr::eq(found.schema.as_ptr(), Arc::as_ptr(schema)) {
            *found = Found { schema: Arc::downgrade(schema), by_name: HashMap::default() };
        }
        if let Some(table) = found.by_name.get(name) {
            return Ok(table.clone());
        }
        let table = table::find(schema, name)?;
        if found.by_name.len() < TABLES_MAX {
            found.by_name.insert(name.to_owned(), table.clone());
        }
        Ok(table)
    }
}
