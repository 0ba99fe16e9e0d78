//! Requests of the native protocol as execution takes them: values, parameters, and what a trace shows of them.

use wire::{QueryParameters, Values};

use super::errors::from_wire_consistency;
use super::paging;
use crate::error::{Result, invalid};
use crate::expr::Value;
use crate::expr::bind::{Binds, MarkerSpec};
use crate::plan::Plan;
use crate::request::Parameters;

/// The parameters of a request for this plan. A batch has none, and no paging.
///
/// # Errors
/// When a parameter has no meaning, or the paging state is not one of the plan's.
pub fn parameters(query: &QueryParameters, plan: Option<&Plan>) -> Result<Parameters> {
    let now = match query.now_in_seconds {
        Some(now) => match u32::try_from(now) {
            Ok(now) => Some(now),
            Err(_) => return invalid!("Invalid value {now} for now_in_seconds"),
        },
        None => None,
    };
    let paging_state = match (&query.paging_state, plan) {
        (Some(bytes), Some(plan)) => paging::decode(bytes, plan)?,
        _ => None,
    };
    let mut parameters = Parameters::new(from_wire_consistency(query.consistency));
    if let Some(serial) = query.serial_consistency {
        parameters.serial_consistency = from_wire_consistency(serial);
    }
    parameters.page_size = query.page_size.and_then(|size| u32::try_from(size).ok()).filter(|size| *size > 0);
    parameters.paging_state = paging_state;
    parameters.timestamp = query.timestamp;
    parameters.now = now;
    Ok(parameters)
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
    let mut binds = Binds::with_capacity(specs.len());
    for (at, spec) in specs.iter().enumerate() {
        let index = if values.is_named() { named(values, &spec.name)? } else { at };
        binds.push(match values.get(index) {
            None | Some(wire::Value::Null) => Value::Null,
            Some(wire::Value::Unset) => Value::Unset,
            Some(wire::Value::Set(_)) => spec.checked(values.shared(index).unwrap_or_default())?,
        });
    }
    Ok(binds)
}

fn named(values: &Values, name: &str) -> Result<usize> {
    match (0..values.len()).find(|index| values.name(*index) == Some(name)) {
        Some(index) => Ok(index),
        None => invalid!("Bind variable {name} is missing: no value of this name was sent"),
    }
}

/// What `system_traces.sessions` shows of a request's parameters.
pub fn trace_parameters(text: &str, parameters: &QueryParameters) -> Vec<(String, String)> {
    let mut all = vec![("consistency_level".to_owned(), parameters.consistency.name().to_owned())];
    if !text.is_empty() {
        all.push(("query".to_owned(), text.to_owned()));
    }
    if let Some(size) = parameters.page_size {
        all.push(("page_size".to_owned(), size.to_string()));
    }
    if let Some(serial) = parameters.serial_consistency {
        all.push(("serial_consistency_level".to_owned(), serial.name().to_owned()));
    }
    all
}
