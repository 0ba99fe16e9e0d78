//! `compaction = {…}`: which options each strategy takes, and which values each option may have.

use std::collections::BTreeMap;

use cql::ast::Property;

use super::option_value::{finite, map};
use crate::error::{Result, config, shown};

const PACKAGE: &str = "org.apache.cassandra.db.compaction.";

/// The type of an option's value.
#[derive(Clone, Copy)]
enum Rule {
    /// Anything.
    Any,
    /// An integer of 32 bits of at least so much; the words for less.
    Integer(i32, &'static str),
    /// An integer of 64 bits, none of them the sign; the words for less than 0.
    Long(&'static str),
    /// A number above zero.
    Positive,
    /// A number.
    Float,
    /// `true` or `false`; the words for something else, with `{}` for the value.
    Boolean(&'static str),
    /// One of these names; the words for something else, with `{}` for the value.
    Name(&'static [&'static str], &'static str),
}

type Rules = &'static [(&'static str, Rule)];

const COMMON: Rules = &[
    ("class", Rule::Any),
    ("enabled", Rule::Boolean("enabled should either be 'true' or 'false', not {}")),
    ("tombstone_threshold", Rule::Positive),
    (
        "tombstone_compaction_interval",
        Rule::Long("tombstone_compaction_interval must be greater than 0, but was {}"),
    ),
    (
        "unchecked_tombstone_compaction",
        Rule::Boolean("'unchecked_tombstone_compaction' should be either 'true' or 'false', not '{}'"),
    ),
    // Cassandra takes anything, and all but 'true' for false.
    (
        "only_purge_repaired_tombstones",
        Rule::Boolean("'only_purge_repaired_tombstones' should be either 'true' or 'false', not '{}'"),
    ),
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
    ("min_sstable_size", Rule::Long("min_sstable_size must be non negative: {}")),
];

const LEVELS: Rules = &[
    ("sstable_size_in_mb", Rule::Integer(1, "sstable_size_in_mb must be larger than 0, but was {}")),
    ("fanout_size", Rule::Integer(1, "fanout_size must be larger than 0, but was {}")),
    ("single_sstable_uplevel", Rule::Any),
];

const UNITS: &[&str] = &["DAYS", "HOURS", "MINUTES"];
/// As in Cassandra: timestamps are never as coarse as minutes.
const RESOLUTIONS: &[&str] = &["SECONDS", "MILLISECONDS", "MICROSECONDS", "NANOSECONDS"];

const EXPIRY: Rules = &[
    (
        "expired_sstable_check_frequency_seconds",
        Rule::Long("expired_sstable_check_frequency_seconds must not be negative, but was {}"),
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

/// Unified compaction; [`unified::check`] knows them better.
const UNIFIED: Rules = &[
    ("scaling_parameters", Rule::Any),
    ("target_sstable_size", Rule::Any),
    ("min_sstable_size", Rule::Any),
    ("flush_size_override", Rule::Any),
    ("sstable_growth", Rule::Any),
    ("base_shard_count", Rule::Any),
    ("max_sstables_to_compact", Rule::Any),
    ("overlap_inclusion_method", Rule::Any),
    ("expired_sstable_check_frequency_seconds", Rule::Any),
    (
        "unsafe_aggressive_sstable_expiration",
        Rule::Boolean("unsafe_aggressive_sstable_expiration should either be 'true' or 'false', not {}"),
    ),
];

/// Those of ScyllaDB's incremental compaction that have an effect here.
const INCREMENTAL: Rules = &[
    ("sstable_size_in_mb", Rule::Integer(1, "sstable_size_in_mb must be larger than 0, but was {}")),
    ("min_sstable_size", Rule::Long("min_sstable_size must be non negative: {}")),
    ("space_amplification_goal", Rule::Float),
];

/// The rules of a strategy by its short name.
fn rules_of(strategy: &str) -> Option<&'static [Rules]> {
    Some(match strategy {
        "SizeTieredCompactionStrategy" => &[THRESHOLDS, TIERS],
        "LeveledCompactionStrategy" => &[THRESHOLDS, LEVELS],
        "UnifiedCompactionStrategy" => &[UNIFIED],
        "IncrementalCompactionStrategy" => &[THRESHOLDS, INCREMENTAL],
        "TimeWindowCompactionStrategy" => &[THRESHOLDS, TIERS, WINDOWS, EXPIRY],
        _ => return None,
    })
}

/// The checked options of a table's compaction, the class with its package.
///
/// # Errors
/// [`ExecError::Config`](crate::ExecError::Config) when the class is missing or unknown, an option is none of the
/// class, or a value is out of its range; [`ExecError::Syntax`](crate::ExecError::Syntax) when the property is no map.
pub fn compaction(property: &Property) -> Result<BTreeMap<String, String>> {
    let mut given = map(property)?;
    let (short, own) = strategy_of(&given)?;
    let rule_of = |name: &str| {
        let mut all = COMMON.iter().chain(own.iter().copied().flatten());
        all.find(|(option, _)| *option == name).map(|(_, rule)| *rule)
    };
    let unknown: Vec<&str> = given.keys().map(String::as_str).filter(|key| rule_of(key).is_none()).collect();
    if !unknown.is_empty() {
        return config(format!(
            "Properties specified [{}] are not understood by {short}",
            shown(&unknown.join(", "))
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
    if rule_of("scaling_parameters").is_some() {
        super::unified::check(&given)?;
    }
    if let Some(goal) = given.get("space_amplification_goal")
        && !finite(goal).is_some_and(|goal| goal > 1.0 && goal <= 2.0)
    {
        return config(format!(
            "space_amplification_goal value ({}) must be greater than 1.0 and less than or equal to 2.0",
            shown(goal)
        ));
    }
    if rule_of("bucket_low").is_some() {
        check_buckets(&given)?;
    }
    Ok(given)
}

/// Refuses a property that names no strategy.
///
/// # Errors
/// [`ExecError::Config`](crate::ExecError::Config) when the class is missing or unknown, [`ExecError::Syntax`](crate::ExecError::Syntax) when the
/// property is no map.
pub fn check_class(property: &Property) -> Result<()> {
    strategy_of(&map(property)?).map(drop)
}

/// The short name of the class, and its rules.
fn strategy_of(given: &BTreeMap<String, String>) -> Result<(String, &'static [Rules])> {
    let Some(class) = given.get("class") else {
        return config("Missing sub-option 'class' for the 'compaction' option");
    };
    let short = class.strip_prefix(PACKAGE).unwrap_or(class).to_owned();
    match rules_of(&short) {
        Some(own) => Ok((short, own)),
        None => {
            let class = shown(class).into_owned();
            let full = if class.contains('.') { class } else { format!("{PACKAGE}{class}") };
            config(format!("Unable to find compaction strategy class '{full}'"))
        }
    }
}

/// Checks one option.
fn check(name: &str, value: &str, rule: Rule) -> Result<()> {
    match rule {
        Rule::Any => Ok(()),
        Rule::Integer(min, words) => match value.parse::<i32>() {
            Err(_) => config(format!("{} is not a parsable int (base10) for {name}", shown(value))),
            Ok(number) if number < min => config(words.replace("{}", &shown(value))),
            Ok(_) => Ok(()),
        },
        Rule::Long(words) => match value.parse::<i64>() {
            Err(_) => config(format!("{} is not a parsable int (base10) for {name}", shown(value))),
            Ok(number) if number < 0 => config(words.replace("{}", &shown(value))),
            Ok(_) => Ok(()),
        },
        Rule::Positive => match finite(value) {
            None => config(format!("{} is not a parsable int (base10) for {name}", shown(value))),
            Some(number) if number <= 0.0 => {
                config(format!("{name} must be greater than 0, but was {}", shown(&format!("{number:.6}"))))
            }
            Some(_) => Ok(()),
        },
        Rule::Float => match finite(value) {
            None => config(format!("{} is not a parsable float for {name}", shown(value))),
            Some(_) => Ok(()),
        },
        Rule::Boolean(words) => match value.to_ascii_lowercase().as_str() {
            "true" | "false" => Ok(()),
            _ => config(words.replace("{}", &shown(value))),
        },
        Rule::Name(names, words) => match names.contains(&value.to_ascii_uppercase().as_str()) {
            true => Ok(()),
            // Cassandra shows the value as it compared it.
            false if name == "provide_overlapping_tombstones" => {
                config(words.replace("{}", &shown(&value.to_ascii_uppercase())))
            }
            false => config(words.replace("{}", &shown(value))),
        },
    }
}

fn check_thresholds(given: &BTreeMap<String, String>) -> Result<()> {
    let threshold = |name: &str| match given[name].parse::<i32>() {
        Ok(value) => Ok(value),
        Err(_) => config(format!(
            "Invalid value {} for '{name}' compaction sub-option - must be an integer",
            shown(&given[name])
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
