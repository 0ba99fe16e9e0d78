//! The options of `UnifiedCompactionStrategy`, checked as Cassandra checks them.

use std::collections::BTreeMap;

use schema::units::{ScalingError, SizeError, scaling_parameter, share, shown_size, size};

use crate::error::{Result, config, shown};

/// The least size of a flush and of an SSTable that may be configured.
const SIZE_MIN: i64 = 1 << 20;
/// Bytes that an SSTable is to have when nothing is said.
const TARGET_DEFAULT: i64 = 1 << 30;
/// The least size must be below this share of the target, or rounding would never reach the target.
const MIN_SHARE: f64 = std::f64::consts::FRAC_1_SQRT_2;

/// Checks the options together.
///
/// # Errors
/// [`ExecError::Config`](crate::ExecError::Config) when an option is no number of its kind, out of its range, or
/// contradicts another.
pub fn check(given: &BTreeMap<String, String>) -> Result<()> {
    let text = |name: &str| given.get(name).map(String::as_str);
    if let Some(list) = text("scaling_parameters") {
        check_scaling(list)?;
    }
    positive::<i32>(text("base_shard_count"), "base_shard_count", "int")?;
    let target = at_least_min(text("target_sstable_size"), "target_sstable_size")?.unwrap_or(TARGET_DEFAULT);
    at_least_min(text("flush_size_override"), "flush_size_override")?;
    positive::<i64>(
        text("expired_sstable_check_frequency_seconds"),
        "expired_sstable_check_frequency_seconds",
        "long",
    )?;
    if let Some(growth) = text("sstable_growth") {
        match share(growth) {
            None => {
                let growth = shown(growth);
                let why = format!("For input string: \"{growth}\"");
                return config(format!("sstable_growth is not a valid number between 0 and 1: {why}"));
            }
            Some(share) if !(0.0..=1.0).contains(&share) => {
                return config(format!("sstable_growth {} must be between 0 and 1", shown(growth)));
            }
            Some(_) => {}
        }
    }
    if let Some(number) = text("max_sstables_to_compact")
        && number.parse::<i32>().is_err()
    {
        let number = shown(number);
        return config(format!("{number} is not a parsable int (base10) for max_sstables_to_compact"));
    }
    if let Some(method) = text("overlap_inclusion_method")
        && !["NONE", "SINGLE", "TRANSITIVE"].contains(&method.to_ascii_uppercase().as_str())
    {
        return config(format!(
            "Invalid overlap inclusion method {}. The valid options are [NONE, SINGLE, TRANSITIVE].",
            shown(method)
        ));
    }
    match text("min_sstable_size") {
        Some(least) => check_least(least, target),
        None => Ok(()),
    }
}

fn check_scaling(list: &str) -> Result<()> {
    // Java's split drops empty strings at the end.
    let trimmed = list.trim_end_matches(',');
    for one in if trimmed.is_empty() { list } else { trimmed }.split(',').map(str::trim) {
        let refused = match scaling_parameter(one) {
            Ok(_) => continue,
            Err(ScalingError::Fanout) => format!("Fan factor cannot be lower than 2 in {}", shown(one)),
            Err(ScalingError::Form) => {
                format!("Scaling parameter {} must match N|L[0-9]+|T[0-9]+|[+-]?[0-9]+", shown(one))
            }
            Err(ScalingError::Range) => {
                let digits = shown(one.trim_start_matches(['T', 'L'])).into_owned();
                format!(
                    "org.apache.cassandra.db.compaction.UnifiedCompactionStrategy.validateOptions() threw an error: \
                     java.lang.NumberFormatException For input string: \"{digits}\""
                )
            }
        };
        return config(refused);
    }
    Ok(())
}

/// A number above 0, if there is one.
fn positive<T: std::str::FromStr + Into<i64>>(text: Option<&str>, name: &str, kind: &str) -> Result<()> {
    let Some(text) = text else { return Ok(()) };
    match text.parse::<T>().map(Into::into) {
        Err(_) => config(format!("{} is not a parsable {kind} (base10) for {name}", shown(text))),
        Ok(number) if number <= 0 => {
            config(format!("Invalid configuration, {name} should be positive: {number}"))
        }
        Ok(_) => Ok(()),
    }
}

/// A size of at least a MiB, if there is one.
fn at_least_min(text: Option<&str>, name: &str) -> Result<Option<i64>> {
    let Some(text) = text else { return Ok(None) };
    let long = shown(text);
    match size(text) {
        Ok(bytes) if bytes >= SIZE_MIN => Ok(Some(bytes)),
        Ok(_) => {
            config(format!("{name} {long} is not acceptable, size must be at least {}", shown_size(SIZE_MIN)))
        }
        Err(SizeError::Range) => config(format!("{name} {long} is out of range of Long.")),
        Err(SizeError::Unit) => {
            config(format!("{name} {long} is not a valid size in bytes: {long} does not end in unit B"))
        }
        Err(SizeError::Number) => {
            config(format!("{name} {long} is not a valid size in bytes: {long} is not a number"))
        }
    }
}

fn check_least(least: &str, target: i64) -> Result<()> {
    match size(least) {
        Err(SizeError::Range) => {
            config(format!("min_sstable_size {} is out of range of Long.", shown(least)))
        }
        Err(_) => config(format!("{} is not a valid size in bytes for min_sstable_size", shown(least))),
        Ok(bytes) if bytes < 0 => {
            config("Invalid configuration, min_sstable_size should be greater than or equal to 0 (zero)")
        }
        Ok(bytes) if bytes as f64 >= target as f64 * MIN_SHARE => config(format!(
            "Invalid configuration, min_sstable_size ({}) should be less than 70% of the targetSSTableSize ({})",
            shown_size(bytes),
            shown_size(target)
        )),
        Ok(_) => Ok(()),
    }
}
