//! Requests of the native protocol as execution takes them: values, parameters, and their form in a trace.

use std::collections::BTreeMap;

use wire::{QueryParameters, ValuePlace, Values};

use super::paging;
use crate::error::{ExecError, Result, invalid};
use crate::expr::Value;
use crate::expr::bind::{Binds, MarkerSpec};
use crate::modification::EXPIRY_MAX;
use crate::plan::Plan;
use crate::request::Parameters;

/// Bytes that bound values may come to above those of the message, where several markers have one name.
const REPEATED_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Names that are compared one by one.
const NAMES_COMPARED_MAX: usize = 256;

/// The parameters of a request, but those that [`set_checked`] sets.
#[inline]
pub fn parameters(query: &QueryParameters) -> Parameters {
    let mut parameters = Parameters::new(query.consistency);
    if let Some(serial) = query.serial_consistency {
        parameters.serial_consistency = serial;
    }
    parameters.page_size = query.page_size.and_then(|size| u32::try_from(size).ok()).filter(|size| *size > 0);
    parameters.timestamp = query.timestamp;
    parameters
}

/// Sets the parameters that may be wrong, and that most requests lack, in place: a result that holds parameters is large. A
/// batch has no plan, and no paging.
///
/// # Errors
/// When a parameter has no meaning, or the paging state is not one of the plan's.
#[inline]
pub fn set_checked(parameters: &mut Parameters, query: &QueryParameters, plan: Option<&Plan>) -> Result<()> {
    if query.now_in_seconds.is_none() && query.paging_state.is_none() && query.page_size != Some(0) {
        return Ok(());
    }
    if query.page_size == Some(0) {
        return Err(ExecError::Protocol("The page size cannot be 0".to_owned()));
    }
    if let Some(now) = query.now_in_seconds {
        // As in Cassandra, which reads 32 bits without a sign, and stores no later time of a deletion.
        parameters.now = Some(now.cast_unsigned().min(EXPIRY_MAX));
    }
    if let (Some(bytes), Some(plan)) = (&query.paging_state, plan) {
        parameters.paging_state = paging::decode(bytes, plan)?;
    }
    Ok(())
}

/// The message that values come with, which decides the words about a wrong number of them, as in Cassandra.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundBy {
    /// QUERY.
    Query,
    /// EXECUTE.
    Execute,
    /// One statement of BATCH.
    Batch,
}

impl BoundBy {
    fn refused<T>(self, markers: usize, values: usize) -> Result<T> {
        match self {
            Self::Query => invalid!("Invalid amount of bind variables"),
            Self::Execute => invalid!("there were {markers} markers(?) in CQL but {values} bound variables"),
            Self::Batch => invalid!("There were {markers} markers(?) in CQL but {values} bound variables"),
        }
    }
}

/// The values of a request, checked against a statement's markers.
///
/// # Errors
/// When there are more or fewer than markers, or one is not of its marker's type.
pub fn bind(specs: &[MarkerSpec], values: &Values, by: BoundBy) -> Result<Binds> {
    let mut binds = Binds::within(values.body(), specs.len());
    bind_into(&mut binds, specs, values, by)?;
    Ok(binds)
}

/// [`bind`] in place, into nothing within the body of the values: a result that holds [`Binds`] is large.
///
/// # Errors
/// As [`bind`].
#[inline]
pub fn bind_into(binds: &mut Binds, specs: &[MarkerSpec], values: &Values, by: BoundBy) -> Result<()> {
    if values.is_named() {
        return bind_named(binds, specs, values, by);
    }
    if values.len() != specs.len() {
        return by.refused(specs.len(), values.len());
    }
    for (spec, place) in specs.iter().zip(values.places()) {
        match place {
            ValuePlace::Set { start, end } => binds.push_place(spec, start..end)?,
            ValuePlace::Null => binds.push(Value::Null),
            ValuePlace::Unset => binds.push(Value::Unset),
        }
    }
    Ok(())
}

/// [`bind_into`] of values that have names: several markers may have one, and other values are left out.
fn bind_named(binds: &mut Binds, specs: &[MarkerSpec], values: &Values, by: BoundBy) -> Result<()> {
    let names = Names::of(values, specs.len());
    let found = specs.iter().filter(|spec| names.index(&spec.name).is_some()).count();
    if found != specs.len() {
        return by.refused(specs.len(), found);
    }
    // A value that several markers name is copied for each of them.
    let mut room = values.body().len() + REPEATED_BYTES_MAX;
    for spec in specs {
        match names.index(&spec.name).and_then(|index| values.place(index)) {
            Some(ValuePlace::Set { start, end }) if (end - start) as usize > room => {
                let (body, count) = (values.body().len(), specs.len());
                return invalid!(
                    "The {count} bind variables come to more than {REPEATED_BYTES_MAX} bytes above the {body} of the message: use a large value for fewer of them"
                );
            }
            Some(ValuePlace::Set { start, end }) => {
                room -= (end - start) as usize;
                binds.push_place(spec, start..end)?;
            }
            None | Some(ValuePlace::Null) => binds.push(Value::Null),
            Some(ValuePlace::Unset) => binds.push(Value::Unset),
        }
    }
    Ok(())
}

/// The positions of named values; of values with the same name, the first one counts.
struct Names<'a> {
    values: &'a Values,
    /// Where there are so many that to look at each for each marker is work without a bound.
    index: Option<BTreeMap<&'a str, usize>>,
}

impl<'a> Names<'a> {
    fn of(values: &'a Values, markers: usize) -> Self {
        let is_small = values.len().saturating_mul(markers) <= NAMES_COMPARED_MAX;
        // From the last one on, so that the first one stays.
        let names =
            || (0..values.len()).rev().filter_map(|index| Some((values.name(index)?, index))).collect();
        Self { values, index: (!is_small).then(names) }
    }

    fn index(&self, name: &str) -> Option<usize> {
        match &self.index {
            Some(index) => index.get(name).copied(),
            None => (0..self.values.len()).find(|index| self.values.name(*index) == Some(name)),
        }
    }
}

/// The text that `system_traces.sessions` shows of a request's parameters.
pub fn trace_parameters(text: &str, parameters: &QueryParameters) -> Vec<(String, String)> {
    let mut all = vec![("consistency_level".to_owned(), parameters.consistency.name().to_owned())];
    if !text.is_empty() {
        all.push(("query".to_owned(), crate::redact::redacted(text).into_owned()));
    }
    if let Some(size) = parameters.page_size {
        all.push(("page_size".to_owned(), size.to_string()));
    }
    if let Some(serial) = parameters.serial_consistency {
        all.push(("serial_consistency_level".to_owned(), serial.name().to_owned()));
    }
    all
}
