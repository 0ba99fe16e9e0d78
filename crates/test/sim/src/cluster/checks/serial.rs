//! Checker: there is an order of all requests to a register which explains every answer; also, a value that was certainly replaced is never read
//! again.

use model::linear::{Linearity, NEVER, Operation, Register, check};
use wire::Consistency;

use crate::cluster::clients::serial::read_serially;
use crate::cluster::director::ClusterDirector;

/// Reads every register once more, and looks for an order of each history.
pub(crate) async fn judge(director: &mut ClusterDirector) -> Result<(), String> {
    let keys: Vec<u64> = director.registers.borrow().histories.keys().copied().collect();
    let nth = director.any_node();
    let mut connection = director.connect(nth).await?;
    for key in keys {
        let (world, registers) = (director.world.clone(), director.registers.clone());
        if !read_serially(&world, &registers, &mut connection, key, Consistency::Serial).await {
            return Err(format!("register {key} is not read by node {nth}"));
        }
        if director.failed() {
            return Ok(());
        }
    }
    let registers = director.registers.borrow();
    for (key, history) in &registers.histories {
        let found = check(&Register, history);
        director.world.borrow_mut().stats.note_history(!matches!(found, Linearity::Unknown));
        match found {
            Linearity::Linear(_) | Linearity::Unknown => {}
            Linearity::Broken(longest) => {
                return Err(complaint(&format!("register {key}"), history, &longest));
            }
        }
    }
    drop(registers);
    director.registers.borrow_mut().retire();
    Ok(())
}

/// The report on a history without an order: the longest part that has one, then the others.
pub(crate) fn complaint<I: std::fmt::Debug, O: std::fmt::Debug>(
    object: &str,
    history: &[Operation<I, O>],
    longest: &[usize],
) -> String {
    let mut text =
        format!("no order explains the requests to {object}; the longest that fits, then the others:");
    let others = (0..history.len()).filter(|at| !longest.contains(at));
    for at in longest.iter().copied().chain(others) {
        let one = &history[at];
        let mark = if longest.contains(&at) { ' ' } else { '?' };
        let ended = if one.ended == NEVER { "never".to_owned() } else { (one.ended / 1_000).to_string() };
        text.push_str(&format!(
            "\n  {mark} {}–{ended} µs {:?}: {:?}",
            one.invoked / 1_000,
            one.input,
            one.output
        ));
    }
    text
}
