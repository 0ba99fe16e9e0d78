//! An item of a table that holds one number: the object that a key of the DynamoDB API is to its clients, one of whom writes it on a
//! condition or without one, and is shown the item as it was or as it became.

use crate::linear::Sequential;

/// An item, which is there with a number or is not there.
#[derive(Clone, Copy, Debug, Default)]
pub struct NumberItem;

/// A change of the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemChange {
    /// It has this number.
    Set(i64),
    /// Its number grows by this; one that is not there is made with it.
    Add(i64),
    /// It is gone.
    Delete,
}

/// The item that the answer to a write shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemShown {
    /// None.
    Nothing,
    /// As it was before.
    Before,
    /// As it became.
    After,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemInput {
    /// Reads it.
    Read,
    /// Writes it.
    Write {
        /// The state that it has to have; none for any.
        expected: Option<Option<i64>>,
        /// The change.
        change: ItemChange,
        /// The item in the answer.
        shown: ItemShown,
    },
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemOutput {
    /// It was read.
    Value(Option<i64>),
    /// It was written.
    Written,
    /// It was written, and the answer shows this.
    Showed(Option<i64>),
    /// The condition did not hold, and this was found.
    Refused(Option<i64>),
}

impl ItemChange {
    /// The state after it.
    pub fn apply(self, state: Option<i64>) -> Option<i64> {
        match self {
            Self::Set(value) => Some(value),
            Self::Add(more) => Some(state.unwrap_or(0) + more),
            Self::Delete => None,
        }
    }
}

impl Sequential for NumberItem {
    type State = Option<i64>;
    type Input = ItemInput;
    type Output = ItemOutput;

    fn initial(&self) -> Option<i64> {
        None
    }

    fn apply(&self, state: &Option<i64>, input: &ItemInput) -> (Option<i64>, ItemOutput) {
        match *input {
            ItemInput::Read => (*state, ItemOutput::Value(*state)),
            ItemInput::Write { expected: Some(expected), .. } if expected != *state => {
                (*state, ItemOutput::Refused(*state))
            }
            ItemInput::Write { change, shown, .. } => {
                let next = change.apply(*state);
                let output = match shown {
                    ItemShown::Nothing => ItemOutput::Written,
                    ItemShown::Before => ItemOutput::Showed(*state),
                    ItemShown::After => ItemOutput::Showed(next),
                };
                (next, output)
            }
        }
    }

    fn only_reads(&self, _input: &ItemInput, output: &ItemOutput) -> bool {
        matches!(output, ItemOutput::Value(_) | ItemOutput::Refused(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::{Linearity, Operation, check};

    fn history(answers: &[(ItemInput, ItemOutput)]) -> Vec<Operation<ItemInput, ItemOutput>> {
        let operation = |(at, (input, output)): (usize, &(ItemInput, ItemOutput))| {
            let invoked = at as u64 * 10;
            Operation { invoked, ended: invoked + 5, input: *input, output: Some(*output) }
        };
        answers.iter().enumerate().map(operation).collect()
    }

    #[test]
    fn answers_in_order_are_explained_and_others_are_not() {
        let write = |expected, change, shown| ItemInput::Write { expected, change, shown };
        let mut answers = vec![
            (write(Some(None), ItemChange::Set(5), ItemShown::Nothing), ItemOutput::Written),
            (write(Some(None), ItemChange::Set(6), ItemShown::Nothing), ItemOutput::Refused(Some(5))),
            (write(None, ItemChange::Add(2), ItemShown::After), ItemOutput::Showed(Some(7))),
            (write(Some(Some(7)), ItemChange::Delete, ItemShown::Before), ItemOutput::Showed(Some(7))),
            (ItemInput::Read, ItemOutput::Value(None)),
            (write(None, ItemChange::Add(2), ItemShown::Before), ItemOutput::Showed(None)),
        ];
        assert!(matches!(check(&NumberItem, &history(&answers)), Linearity::Linear(_)));
        answers[4].1 = ItemOutput::Value(Some(7));
        assert!(matches!(check(&NumberItem, &history(&answers)), Linearity::Broken(_)));
        answers[4].1 = ItemOutput::Value(None);
        answers[2].1 = ItemOutput::Showed(Some(5));
        assert!(matches!(check(&NumberItem, &history(&answers)), Linearity::Broken(_)));
    }
}
