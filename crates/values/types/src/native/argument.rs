//! The arguments of a call, as far as the choice of an overload needs to know them.

use crate::{Assignment, ConstantKind, CqlType};

/// The facts that the choice needs of an argument: the query layer implements it for its terms and selectors.
pub trait Argument {
    /// How well it fits a parameter of the type.
    fn assignment(&self, ty: &CqlType) -> Assignment;
    /// Its type when it has one of its own; bind markers and `null` have none.
    fn known_type(&self) -> Option<CqlType>;
    /// The CQL text that messages show.
    fn text(&self) -> String;
    /// Whether it is a bind marker or contains one.
    fn is_marker(&self) -> bool {
        false
    }
    /// The number of elements when it is written as `[a, b, …]`.
    fn array_len(&self) -> Option<usize> {
        None
    }
}

/// An argument of a known type: a column, or the result of another function.
#[derive(Clone, PartialEq, Debug)]
pub struct TypedArgument {
    /// Its type.
    pub ty: CqlType,
    /// Its text in messages.
    pub text: String,
}

impl Argument for TypedArgument {
    fn assignment(&self, ty: &CqlType) -> Assignment {
        self.ty.assignment_to(ty)
    }

    fn known_type(&self) -> Option<CqlType> {
        Some(self.ty.clone())
    }

    fn text(&self) -> String {
        self.text.clone()
    }
}

/// A constant as an argument.
#[derive(Clone, PartialEq, Debug)]
pub struct ConstantArgument {
    /// Its kind.
    pub kind: ConstantKind,
    /// Its text; of a string without the quotes.
    pub text: String,
}

impl Argument for ConstantArgument {
    fn assignment(&self, ty: &CqlType) -> Assignment {
        self.kind.assignment(&self.text, ty)
    }

    fn known_type(&self) -> Option<CqlType> {
        Some(self.kind.preferred_type(&self.text))
    }

    fn text(&self) -> String {
        match self.kind {
            ConstantKind::String => format!("'{}'", self.text),
            _ => self.text.clone(),
        }
    }
}
