//! The table of `testkit`'s updates with a log.

use std::sync::Arc;

use cdc::{Log, log_table};
use schema::{Cdc, CdcPreimage, Table, TableId};

/// Options with images or without.
pub fn options(images: bool) -> Cdc {
    let preimage = if images { CdcPreimage::Full } else { CdcPreimage::Off };
    Cdc { enabled: true, preimage, postimage: images, ..Cdc::default() }
}

/// The log of `testkit::updates::table`.
pub fn log(cdc: Cdc) -> Log {
    let mut builder = testkit::updates::table().to_builder();
    builder.options.cdc = cdc;
    let base: Table = builder.build().expect("only an option has changed");
    let table = log_table(&base, TableId([9; 16]), None, 0).expect("a log of the table");
    Log::new(&base, Arc::new(table)).expect("the log of the table")
}
