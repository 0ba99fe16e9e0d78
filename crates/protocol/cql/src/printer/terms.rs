//! Prints terms.

use super::Printer;
use crate::ast::{Marker, ReferencePart, RowReference, Term, TermKind};

impl Printer {
    pub(super) fn term(&mut self, term: &Term) {
        match &term.kind {
            TermKind::Constant(constant) => self.constant(constant),
            TermKind::Null => self.push("NULL"),
            TermKind::Marker(marker) => self.marker(marker),
            TermKind::List(items) => {
                self.push("[");
                self.separated(items, ", ", Self::term);
                self.push("]");
            }
            TermKind::Set(items) => {
                self.push("{");
                self.separated(items, ", ", Self::term);
                self.push("}");
            }
            TermKind::Map(entries) => {
                self.push("{");
                self.separated(entries, ", ", |printer, (key, value)| {
                    printer.term(key);
                    printer.push(": ");
                    printer.term(value);
                });
                self.push("}");
            }
            TermKind::UserType(fields) => {
                self.push("{");
                self.separated(fields, ", ", |printer, (field, value)| {
                    printer.ident(field);
                    printer.push(": ");
                    printer.term(value);
                });
                self.push("}");
            }
            TermKind::Tuple(items) => self.bracketed(items, Self::term),
            TermKind::Function(call) => self.call(call, Self::term),
            TermKind::Cast(inner, native) => {
                self.push("CAST(");
                self.term(inner);
                self.push(&format!(" AS {})", native.name()));
            }
            TermKind::TypeHint(data_type, inner) => {
                self.push("(");
                self.data_type(data_type);
                self.push(") ");
                self.term(inner);
            }
            TermKind::Arithmetic(left, operator, right) => {
                self.term(left);
                self.push(&format!(" {} ", operator.symbol()));
                self.term(right);
            }
            TermKind::Negate(inner) => {
                // With a space: `-1` would be a number and `--` a comment.
                self.push("- ");
                self.term(inner);
            }
            TermKind::RowReference(reference) => self.row_reference(reference),
        }
    }

    pub(super) fn marker(&mut self, marker: &Marker) {
        match &marker.name {
            Some(name) => {
                self.push(":");
                self.name(name);
            }
            None => self.push("?"),
        }
    }

    pub(super) fn row_reference(&mut self, reference: &RowReference) {
        self.ident(&reference.row);
        if let Some(column) = &reference.column {
            self.push(".");
            self.ident(column);
        }
        match reference.part.as_deref() {
            Some(ReferencePart::Element(key)) => {
                self.push("[");
                self.term(key);
                self.push("]");
            }
            Some(ReferencePart::Field(field)) => {
                self.push(".");
                self.ident(field);
            }
            None => {}
        }
    }
}
