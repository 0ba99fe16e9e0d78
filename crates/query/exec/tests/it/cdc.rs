//! Change data capture: options, logs that follow their tables, and their content. Log rows are derived from writes by the cluster in memory.

use crate::golden::{Node, check_with};
use crate::memory::Memory;

/// Statements about logs, and reads of them.
#[test]
fn cdc() {
    let node = Node::of(Memory::new());
    check_with(&node, "cdc.txt", |_| None);
}
