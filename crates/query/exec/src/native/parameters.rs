//! Requests of the native protocol as execution takes them: values, parameters, and their form in a trace.

use wire::{QueryParameters, ValuePlace, Values};

use super::paging;
use crate::error::{Result, invalid};
use crate::expr::Value;
use crate::expr::bind::{Binds, MarkerSpec};
use crate::plan::Plan;
use crate::request::Parameters;

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
    if query.now_in_seconds.is_none() && query.paging_state.is_none() {
        return Ok(());
    }
    if let Some(now) = query.now_in_seconds {
        let Ok(now) = u32::try_from(now) else {
            return invalid!("Invalid value {now} for now_in_seconds");
        };
        parameters.now = Some(now);
    }
    if let (Some(bytes), Some(plan)) = (&query.paging_state, plan) {
        parameters.paging_state = paging::decode(bytes, plan)?;
    }
    Ok(())
}

/// The values of a request, checked against a statement's markers.
///
/// # Errors
/// When there are more or fewer than markers, or one is not of its marker's type.
pub fn bind(specs: &[MarkerSpec], values: &Values) -> Result<Binds> {
    if values.is_empty() && !specs.is_empty() {
        return invalid!("Invalid amount of bind variables");
    }
    if !values.is_named() && values.len() != specs.len() {
        return invalid!("there were {} markers(?) in CQL but {} bound variables", specs.len(), values.len());
    }
    let mut binds = Binds::within(values.body(), specs.len());
    for (at, spec) in specs.iter().enumerate() {
        let index = if values.is_named() { named(values, &spec.name)? } else { at };
        match values.place(index) {
            Some(ValuePlace::Set { start, end }) => binds.push_place(spec, start..end)?,
            None | Some(ValuePlace::Null) => binds.push(Value::Null),
            Some(ValuePlace::Unset) => binds.push(Value::Unset),
        }
    }
    Ok(binds)
}

fn named(values: &Values, name: &str) -> Result<usize> {
    match (0..values.len()).find(|index| values.name(*index) == Some(name)) {
        Some(index) => Ok(index),
        None => invalid!("Bind variable {name} is missing: no value of this name was sent"),
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
