//! Facts that resolving an expression has found out about its parts, so that each is computed once.

use std::cell::RefCell;

use cql::ast::{Selector, SelectorKind};
use stdx::HashMap;
use types::CqlType;

use super::literal::Fit;

/// Whether a selector has parts; one without is cheaper to resolve than to look up.
pub(super) fn is_compound(selector: &Selector) -> bool {
    !matches!(
        selector.kind,
        SelectorKind::Column(_)
            | SelectorKind::Constant(_)
            | SelectorKind::Null
            | SelectorKind::Marker(_)
            | SelectorKind::CountRows
    )
}

/// The place of a selector in the tree that is being resolved, whether columns may stand in it, and whether it is inside an
/// aggregate.
type Place = (usize, bool, bool);

/// The facts about the parts of a tree that is being resolved. Choosing an overload asks each operand for its possible types,
/// and operands are themselves calls: without this, each level of nesting multiplies the work.
#[derive(Default)]
pub(super) struct Known {
    types: RefCell<HashMap<Place, Option<CqlType>>>,
    fits: RefCell<HashMap<Place, Vec<(CqlType, Fit)>>>,
    /// By the type that is wanted: the type that comes out, or none where it is an error.
    probes: RefCell<HashMap<Place, Vec<Probe>>>,
}

/// A type that is wanted, if one is, and the type that comes out, if one does.
type Probe = (Option<CqlType>, Option<CqlType>);

impl Known {
    fn place(selector: &Selector, columns: bool, in_aggregate: bool) -> Place {
        (std::ptr::from_ref(selector).addr(), columns, in_aggregate)
    }

    pub(super) fn type_of(&self, selector: &Selector, columns: bool) -> Option<Option<CqlType>> {
        self.types.borrow().get(&Self::place(selector, columns, false)).cloned()
    }

    pub(super) fn put_type(&self, selector: &Selector, columns: bool, ty: Option<CqlType>) {
        self.types.borrow_mut().insert(Self::place(selector, columns, false), ty);
    }

    pub(super) fn fit(&self, selector: &Selector, columns: bool, ty: &CqlType) -> Option<Fit> {
        let fits = self.fits.borrow();
        fits.get(&Self::place(selector, columns, false))?.iter().find(|(of, _)| of == ty).map(|(_, fit)| *fit)
    }

    pub(super) fn put_fit(&self, selector: &Selector, columns: bool, ty: &CqlType, fit: Fit) {
        let mut fits = self.fits.borrow_mut();
        fits.entry(Self::place(selector, columns, false)).or_default().push((ty.clone(), fit));
    }

    pub(super) fn probe(
        &self,
        selector: &Selector,
        (columns, in_aggregate): (bool, bool),
        wanted: Option<&CqlType>,
    ) -> Option<Option<CqlType>> {
        let probes = self.probes.borrow();
        let of = probes.get(&Self::place(selector, columns, in_aggregate))?;
        of.iter().find(|(of, _)| of.as_ref() == wanted).map(|(_, found)| found.clone())
    }

    pub(super) fn put_probe(
        &self,
        selector: &Selector,
        (columns, in_aggregate): (bool, bool),
        wanted: Option<&CqlType>,
        found: Option<CqlType>,
    ) {
        let mut probes = self.probes.borrow_mut();
        probes
            .entry(Self::place(selector, columns, in_aggregate))
            .or_default()
            .push((wanted.cloned(), found));
    }
}
