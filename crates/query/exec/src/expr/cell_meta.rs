//! `writetime`, `maxwritetime` and `ttl`: times of the cells of a column.

use bytes::Bytes;
use mutation::{CellRef, DataRef};
use types::CqlType;
use types::elements::{CollectionBuilder, EMPTY, Fields};

use super::row::RowView;
use super::{CellMeta, CellPart, Env, Expr};
use crate::error::Result;

/// An end of a slice of a collection, if there is one.
fn end(of: &Option<Box<Expr>>, env: &Env<'_>) -> Result<Option<Bytes>> {
    of.as_ref().map_or(Ok(None), |end| end.eval_option(env))
}

impl RowView<'_> {
    /// Times of a column's cells as `ty` (a number, or a list of them for the cells of an unfrozen column).
    pub(super) fn cell_meta(&self, meta: &CellMeta, ty: &CqlType, env: &Env<'_>) -> Result<Option<Bytes>> {
        let Some(data) = self.data(&meta.column) else { return Ok(None) };
        let complex = match data {
            DataRef::Simple(cell) => {
                let has_time = cell.is_live(self.now) && self.has_frozen_part(meta, env)?;
                return Ok(if has_time { self.time_of(cell, meta.what) } else { None });
            }
            DataRef::Complex(complex) => complex,
        };
        let live = complex.cells.iter().filter(|element| element.cell.is_live(self.now));
        let order = |a: &[u8], b: &[u8]| mutation::row::compare_paths(&meta.column.ty, a, b);
        let chosen: Vec<_> = match &meta.part {
            CellPart::Whole => live.collect(),
            CellPart::Element(key) => {
                let Some(key) = key.eval_option(env)? else { return Ok(None) };
                let found = self.element(&meta.column, &key);
                return Ok(found.and_then(|element| self.time_of((&element.cell).into(), meta.what)));
            }
            CellPart::Field(field) => {
                let found = live.into_iter().find(|element| *element.path == field.to_be_bytes());
                return Ok(found.and_then(|element| self.time_of((&element.cell).into(), meta.what)));
            }
            CellPart::Slice(from, to) => {
                let (from, to) = (end(from, env)?, end(to, env)?);
                live.filter(|element| {
                    from.as_ref().is_none_or(|from| order(&element.path, from).is_ge())
                        && to.as_ref().is_none_or(|to| order(&element.path, to).is_le())
                })
                .collect()
            }
        };
        if chosen.is_empty() {
            return Ok(None);
        }
        if !matches!(ty, CqlType::List { .. }) {
            let largest = chosen.iter().map(|element| element.cell.timestamp).max();
            return Ok(largest.map(|at| Bytes::copy_from_slice(&at.to_be_bytes())));
        }
        let mut out = CollectionBuilder::new();
        let mut push = |value: Option<Bytes>| match value {
            Some(value) => out.push(&value),
            None => out.push_null(),
        };
        if let CqlType::Udt { ty: udt, .. } = &meta.column.ty {
            for field in 0..udt.fields.len() as u16 {
                let cell = chosen.iter().find(|element| *element.path == field.to_be_bytes());
                push(cell.and_then(|element| self.time_of((&element.cell).into(), meta.what)));
            }
        } else {
            chosen.iter().for_each(|element| push(self.time_of((&element.cell).into(), meta.what)));
        }
        Ok(Some(out.finish().into()))
    }

    /// Whether the part of a frozen value is there whose times, which are those of the whole, are wanted.
    fn has_frozen_part(&self, meta: &CellMeta, env: &Env<'_>) -> Result<bool> {
        let Some(value) = self.value(&meta.column) else { return Ok(false) };
        let ty = &meta.column.ty;
        Ok(match &meta.part {
            CellPart::Whole => true,
            CellPart::Field(field) => {
                let found = Fields::new(&value).nth(usize::from(*field)).transpose()?.flatten();
                found.is_some()
            }
            CellPart::Element(key) => match key.eval_option(env)? {
                Some(key) => super::select_element(ty, &value, &key)?.is_some(),
                None => false,
            },
            CellPart::Slice(from, to) => {
                let (from, to) = (end(from, env)?, end(to, env)?);
                super::select_slice(ty, &value, from.as_deref(), to.as_deref())?[..] != EMPTY
            }
        })
    }

    fn time_of(&self, cell: CellRef<'_>, what: cql::ast::CellMetadata) -> Option<Bytes> {
        use cql::ast::CellMetadata;
        match what {
            CellMetadata::WriteTime | CellMetadata::MaxWriteTime => {
                Some(Bytes::copy_from_slice(&cell.timestamp.to_be_bytes()))
            }
            CellMetadata::Ttl if !cell.is_expiring() => None,
            CellMetadata::Ttl => {
                let left = cell.local_deletion.saturating_sub(self.now);
                Some(Bytes::copy_from_slice(&left.to_be_bytes()))
            }
        }
    }
}
