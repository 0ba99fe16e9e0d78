//! Masks of columns: functions that readers without permission see in place of a column's values.

use types::CqlType;

use crate::UserFunction;

/// The function whose result stands for a column's value, and its arguments after that value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnMask {
    /// Keyspace of the function: `system` for a native one.
    pub keyspace: String,
    /// Name of the function.
    pub name: String,
    /// The arguments after the column's value.
    pub arguments: Vec<MaskArgument>,
}

/// A constant argument of a mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaskArgument {
    /// The type of the function's parameter.
    pub ty: CqlType,
    /// The constant in CQL; none for null.
    pub literal: Option<String>,
}

impl ColumnMask {
    /// Whether a function is this mask of a column of a type. Whether an argument is frozen does not matter.
    pub fn calls(&self, function: &UserFunction, column: &CqlType) -> bool {
        let types = std::iter::once(column).chain(self.arguments.iter().map(|argument| &argument.ty));
        self.keyspace == function.keyspace
            && self.name == function.name
            && types.map(CqlType::freeze).eq(function.argument_types().map(CqlType::freeze))
    }

    /// The same with a new definition of user types in its arguments.
    #[must_use]
    pub fn with_updated_types(&self, updated: impl Fn(&CqlType) -> CqlType) -> Self {
        let mut mask = self.clone();
        for argument in &mut mask.arguments {
            argument.ty = updated(&argument.ty);
        }
        mask
    }
}
