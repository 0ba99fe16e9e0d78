//! A partition of a few rows with conditional writes: the requests of statements with IF and batches of them, and the
//! answers. The sequential object behind lightweight transactions on several rows and columns ([`crate::linear`]).

use crate::linear::Sequential;

/// Rows of the partition, numbered from 0.
pub const ROWS: usize = 3;
/// Regular columns of each row, numbered from 0.
pub const COLUMNS: usize = 2;

/// The values of a row's regular columns.
pub type Values = [Option<i64>; COLUMNS];

/// The model of a partition.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConditionalPartition;

/// A row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ConditionalRow {
    /// It was inserted: it is there also without a value.
    pub inserted: bool,
    /// Its values.
    pub values: Values,
}

/// The content of the partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ConditionalState {
    /// The value of the static column.
    pub static_value: Option<i64>,
    /// The rows.
    pub rows: [ConditionalRow; ROWS],
}

/// A reader's view of the whole partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConditionalView {
    /// The value of the static column.
    pub static_value: Option<i64>,
    /// The rows that exist.
    pub rows: [Option<Values>; ROWS],
}

/// Something of the partition that is compared, changed or shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cell {
    /// The static column.
    Static,
    /// A regular column of a row.
    Regular(usize, usize),
    /// Whether a row exists: some number or none.
    Exists(usize),
}

/// A condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// A row exists.
    Exists(usize),
    /// A row does not exist.
    NotExists(usize),
    /// A column has this value, or none.
    Equals(Cell, Option<i64>),
}

/// A change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A row is inserted; its values are set by other changes.
    Insert(usize),
    /// A column is set, or its value deleted.
    Set(Cell, Option<i64>),
    /// A row is deleted.
    Delete(usize),
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionalInput {
    /// Reads the content.
    Read,
    /// Hold nothing any more.
    Truncate,
    /// Change it if all conditions hold.
    Transaction {
        /// The conditions.
        conditions: Vec<Condition>,
        /// The changes, each about something else.
        changes: Vec<Change>,
        /// The cells that a refusal shows.
        shown: Vec<Cell>,
    },
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionalOutput {
    /// It holds this.
    View(ConditionalView),
    /// It was truncated.
    Truncated,
    /// The conditions held, and it was changed.
    Applied,
    /// They did not; these values are shown.
    Refused(Vec<Option<i64>>),
}

impl ConditionalState {
    /// Its view.
    pub fn view(&self) -> ConditionalView {
        let visible = |row: ConditionalRow| row.exists().then_some(row.values);
        ConditionalView { static_value: self.static_value, rows: self.rows.map(visible) }
    }

    /// The value of a cell.
    pub fn cell(&self, cell: Cell) -> Option<i64> {
        match cell {
            Cell::Static => self.static_value,
            Cell::Regular(row, column) => self.rows[row].values[column],
            Cell::Exists(row) => self.rows[row].exists().then_some(1),
        }
    }

    /// Sets a cell to its observed value.
    pub fn show(&mut self, cell: Cell, value: Option<i64>) {
        match (cell, value) {
            (Cell::Exists(row), Some(_)) => self.change(&Change::Insert(row)),
            (Cell::Exists(row), None) => self.change(&Change::Delete(row)),
            (cell, value) => self.change(&Change::Set(cell, value)),
        }
    }

    /// Whether a condition holds.
    pub fn holds(&self, condition: &Condition) -> bool {
        match *condition {
            Condition::Exists(row) => self.rows[row].exists(),
            Condition::NotExists(row) => !self.rows[row].exists(),
            Condition::Equals(cell, value) => self.cell(cell) == value,
        }
    }

    /// Carries out a change.
    pub fn change(&mut self, change: &Change) {
        match *change {
            Change::Insert(row) => self.rows[row].inserted = true,
            Change::Delete(row) => self.rows[row] = ConditionalRow::default(),
            Change::Set(Cell::Static, value) => self.static_value = value,
            Change::Set(Cell::Regular(row, column), value) => self.rows[row].values[column] = value,
            Change::Set(Cell::Exists(_), _) => panic!("a row's existence is no column"),
        }
    }
}

impl ConditionalRow {
    fn exists(&self) -> bool {
        self.inserted || self.values.iter().any(Option::is_some)
    }
}

impl Sequential for ConditionalPartition {
    type State = ConditionalState;
    type Input = ConditionalInput;
    type Output = ConditionalOutput;

    fn initial(&self) -> ConditionalState {
        ConditionalState::default()
    }

    fn apply(
        &self,
        state: &ConditionalState,
        input: &ConditionalInput,
    ) -> (ConditionalState, ConditionalOutput) {
        match input {
            ConditionalInput::Read => (*state, ConditionalOutput::View(state.view())),
            ConditionalInput::Truncate => (ConditionalState::default(), ConditionalOutput::Truncated),
            ConditionalInput::Transaction { conditions, changes, shown } => {
                if !conditions.iter().all(|condition| state.holds(condition)) {
                    let found = shown.iter().map(|cell| state.cell(*cell)).collect();
                    return (*state, ConditionalOutput::Refused(found));
                }
                let mut next = *state;
                changes.iter().for_each(|change| next.change(change));
                (next, ConditionalOutput::Applied)
            }
        }
    }

    fn only_reads(&self, _input: &ConditionalInput, output: &ConditionalOutput) -> bool {
        matches!(output, ConditionalOutput::View(_) | ConditionalOutput::Refused(_))
    }
}
