//! `compaction = {…}`: which options each strategy takes, and which values each option may have.

use std::collections::BTreeMap;

use cql::ast::Property;

use super::options::{config, map};
use crate::error::Result;

const PACKAGE: &str = "org.apache.cassandra.db.compaction.";

/// What an option's value must be.
#[derive(Clone, Copy)]
enum Rule {
    /// Anything.
    Any,
    /// An integer of at least so much; the words for less.
    Integer(i64, &'static str),
    /// A number above zero.
    Positive,
    /// A number.
    Float,
    /// A number from 0 to 1.
    Fraction,
    /// `true` or `false`; the words for something else, with `{}` for the value.
    Boolean(&'static str),
    /// One of these names; the words for something else, with `{}` for the value.
    Name(&'static [&'static str], &'static str),
    /// A size with a unit.
    Size,
    /// A list of scaling parameters.
    Scaling,
}

type Rules = &'static [(&'static str, Rule)];

const COMMON: Rules = &[
    ("class", Rule::Any),
    ("enabled", Rule::Boolean("enabled should either be 'true' or 'false', not {}")),
    ("tombstone_threshold", Rule::Positive),
    (
        "tombstone_compaction_interval",
        Rule::Integer(0, "tombstone_compaction_interval must be greater than 0, but was {}"),
    ),
    (
        "unchecked_tombstone_compaction",
        Rule::Boolean("'unchecked_tombstone_compaction' should be either 'true' or 'false', not '{}'"),
    ),
    ("only_purge_repaired_tombstones", Rule::Any),
    ("log_all", Rule::Boolean("'log_all' should either be 'true' or 'false', not {}")),
    (
        "provide_overlapping_tombstones",
        Rule::Name(
            &["NONE", "ROW", "CELL"],
            "Invalid value {} for 'provide_overlapping_tombstones' compaction sub-option - must be one of the following \
             [NONE, ROW, CELL].",
        ),
    ),
];

/// Checked together, by [`check_thresholds`].
const THRESHOLDS: Rules = &[("min_threshold", Rule::Any), ("max_threshold", Rule::Any)];

const TIERS: Rules = &[
    ("bucket_high", Rule::Float),
    ("bucket_low", Rule::Float),
    ("min_sstable_size", Rule::Integer(0, "min_sstable_size must be non negative: {}")),
];

const LEVELS: Rules = &[
    ("sstable_size_in_mb", Rule::Integer(1, "sstable_size_in_mb must be larger than 0, but was {}")),
    ("fanout_size", Rule::Integer(1, "fanout_size must be larger than 0, but was {}")),
    ("single_sstable_uplevel", Rule::Any),
];

const UNITS: &[&str] = &["DAYS", "HOURS", "MINUTES"];
const RESOLUTIONS: &[&str] =
    &["DAYS", "HOURS", "MINUTES", "SECONDS", "MILLISECONDS", "MICROSECONDS", "NANOSECONDS"];

const EXPIRY: Rules = &[
    (
        "expired_sstable_check_frequency_seconds",
        Rule::Integer(0, "expired_sstable_check_frequency_seconds must not be negative, but was {}"),
    ),
    (
        "unsafe_aggressive_sstable_expiration",
        Rule::Boolean("unsafe_aggressive_sstable_expiration is not 'true' or 'false' ({})"),
    ),
];

const WINDOWS: Rules = &[
    ("compaction_window_unit", Rule::Name(UNITS, "{} is not valid for compaction_window_unit")),
    ("compaction_window_size", Rule::Integer(1, "{} must be greater than 1 for compaction_window_size")),
    ("timestamp_resolution", Rule::Name(RESOLUTIONS, "{} is not valid for timestamp_resolution")),
];

const UNIFIED: Rules = &[
    ("scaling_parameters", Rule::Scaling),
    ("target_sstable_size", Rule::Size),
    ("base_shard_count", Rule::Integer(1, "Invalid configuration, base_shard_count should be positive: {}")),
    ("min_sstable_size", Rule::Size),
    ("flush_size_override", Rule::Size),
    (
        "overlap_inclusion_method",
        Rule::Name(
            &["NONE", "SINGLE", "TRANSITIVE"],
            "Invalid overlap inclusion method {}. The valid options are [NONE, SINGLE, TRANSITIVE].",
        ),
    ),
    ("sstable_growth", Rule::Fraction),
];

/// ScyllaDB's incremental strategy: tiers of runs.
const INCREMENTAL: Rules = &[("sstable_size_in_mb", Rule::Any), ("space_amplification_goal", Rule::Any)];

/// The rules of a strategy by its short name.
fn rules_of(strategy: &str) -> Option<&'static [Rules]> {
    Some(match strategy {
        "SizeTieredCompactionStrategy" => &[THRESHOLDS, TIERS],
        "LeveledCompactionStrategy" => &[THRESHOLDS, LEVELS],
        "TimeWindowCompactionStrategy" => &[THRESHOLDS, TIERS, WINDOWS, EXPIRY],
        "UnifiedCompactionStrategy" => &[UNIFIED, EXPIRY],
        "IncrementalCompactionStrategy" => &[THRESHOLDS, TIERS, INCREMENTAL],
        _ => return None,
    })
}

/// The checked options of a table's compaction, the class with its package.
pub fn compaction(property: &Property) -> Result<BTreeMap<String, String>> {
    let mut given = map(property)?;
    let Some(class) = given.get("class").cloned() else {
        return config("Missing sub-option 'class' for the 'compaction' option");
    };
    let short = class.strip_prefix(PACKAGE).unwrap_or(&class).to_owned();
    let Some(own) = rules_of(&short) else {
        let full = if class.contains('.') { class } else { format!("{PACKAGE}{class}") };
        return config(format!("Unable to find compaction strategy class '{full}'"));
    };
    let rule_of = |name: &str| {
        let mut all = COMMON.iter().chain(own.iter().copied().flatten());
        all.find(|(option, _)| *option == name).map(|(_, rule)| *rule)
    };
    let unknown: Vec<&str> = given.keys().map(String::as_str).filter(|key| rule_of(key).is_none()).collect();
    if !unknown.is_empty() {
        return config(format!(
            "Properties specified [{}] are not understood by {short}",
            unknown.join(", ")
        ));
    }
    for (name, value) in &given {
        check(name, value, rule_of(name).unwrap_or(Rule::Any))?;
    }
    given.insert("class".to_owned(), format!("{PACKAGE}{short}"));
    if rule_of("min_threshold").is_some() {
        given.entry("min_threshold".to_owned()).or_insert_with(|| "4".to_owned());
        given.entry("max_threshold".to_owned()).or_insert_with(|| "32".to_owned());
        check_thresholds(&given)?;
    }
    if rule_of("bucket_low").is_some() {
        check_buckets(&given)?;
    }
    Ok(given)
}

/// Checks one option.
fn check(name: &str, value: &str, rule: Rule) -> Result<()> {
    match rule {
        Rule::Any => Ok(()),
        Rule::Integer(min, words) => match value.parse::<i64>() {
            Err(_) => config(format!("{value} is not a parsable int (base10) for {name}")),
            Ok(number) if number < min => config(words.replace("{}", value)),
            Ok(_) => Ok(()),
        },
        Rule::Positive => match value.parse::<f64>() {
            Err(_) => config(format!("{value} is not a parsable int (base10) for {name}")),
            Ok(number) if number <= 0.0 => {
                config(format!("{name} must be greater than 0, but was {number:.6}"))
            }
            Ok(_) => Ok(()),
        },
        Rule::Float => match value.parse::<f64>() {
            Err(_) => config(format!("{value} is not a parsable float for {name}")),
            Ok(_) => Ok(()),
        },
        Rule::Fraction => match value.parse::<f64>() {
            Err(_) => {
                config(format!("{name} is not a valid number between 0 and 1: For input string: \"{value}\""))
            }
            Ok(number) if !(0.0..=1.0).contains(&number) => {
                config(format!("{name} {value} must be between 0 and 1"))
            }
            Ok(_) => Ok(()),
        },
        Rule::Boolean(words) => match value.to_ascii_lowercase().as_str() {
            "true" | "false" => Ok(()),
            _ => config(words.replace("{}", value)),
        },
        Rule::Name(names, words) => match names.contains(&value.to_ascii_uppercase().as_str()) {
            true => Ok(()),
            // Cassandra shows the value as it compared it.
            false if name == "provide_overlapping_tombstones" => {
                config(words.replace("{}", &value.to_ascii_uppercase()))
            }
            false => config(words.replace("{}", value)),
        },
        Rule::Size => check_size(name, value),
        Rule::Scaling => {
            match value.split(',').map(str::trim).find(|parameter| !is_scaling_parameter(parameter)) {
                Some(wrong) => {
                    config(format!("Scaling parameter {wrong} must match N|L[0-9]+|T[0-9]+|[+-]?[0-9]+"))
                }
                None => Ok(()),
            }
        }
    }
}

/// A number with an optional unit, B to TiB.
fn check_size(name: &str, value: &str) -> Result<()> {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = value[digits.len()..].trim();
    let scale = match unit {
        "" | "B" => Some(1.0),
        "KiB" => Some(1024.0),
        "MiB" => Some(1024.0 * 1024.0),
        "GiB" => Some(1024.0 * 1024.0 * 1024.0),
        "TiB" => Some(1024.0 * 1024.0 * 1024.0 * 1024.0),
        _ => None,
    };
    let bytes = digits.trim().parse::<f64>().ok().zip(scale).map(|(number, scale)| number * scale);
    match (name, bytes) {
        ("target_sstable_size", None) => {
            config(format!("{name} {value} is not a valid size in bytes: {value} does not end in unit B"))
        }
        (_, None) => config(format!("{value} is not a valid size in bytes for {name}")),
        ("target_sstable_size", Some(bytes)) if bytes < 1024.0 * 1024.0 => {
            config(format!("{name} {value} is not acceptable, size must be at least 1.000MiB"))
        }
        (_, Some(_)) => Ok(()),
    }
}

fn is_scaling_parameter(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text == "N" || digits(text.strip_prefix(['L', 'T', '+', '-']).unwrap_or(text))
}

fn check_thresholds(given: &BTreeMap<String, String>) -> Result<()> {
    let threshold = |name: &str| match given[name].parse::<i32>() {
        Ok(value) => Ok(value),
        Err(_) => config(format!(
            "Invalid value {} for '{name}' compaction sub-option - must be an integer",
            given[name]
        )),
    };
    let (min, max) = (threshold("min_threshold")?, threshold("max_threshold")?);
    if min < 2 {
        return config(format!("Min compaction threshold cannot be less than 2 (got {min})"));
    }
    if min > max {
        return config(format!(
            "Min compaction threshold (got {min}) cannot be greater than max compaction threshold (got {max})"
        ));
    }
    Ok(())
}

fn check_buckets(given: &BTreeMap<String, String>) -> Result<()> {
    let bucket =
        |name: &str, otherwise: f64| given.get(name).and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (low, high) = (bucket("bucket_low", 0.5), bucket("bucket_high", 1.5));
    match high <= low {
        true => config(format!(
            "bucket_high value ({high:?}) is less than or equal to the bucket_low value ({low:?})"
        )),
        false => Ok(()),
    }
}
