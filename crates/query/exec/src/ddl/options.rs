//! `WITH name = value`: the options of tables and keyspaces, checked and put into the schema's form.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use cql::ast::{Property, PropertyValue};
use schema::{
    Cdc, CdcPreimage, RateLimit, Schema, SpeculativeRetry, TTL_MAX, TableId, TableOptions, TombstoneGc,
};

use super::option_value::{
    TEXT_BYTES_MAX, boolean, chance, finite, float, integer, java_double, map, string,
};
use crate::error::{Result, config, invalid, shown, syntax};

/// The end of the names of ScyllaDB's compressors that have dictionaries.
const WITH_DICTIONARIES: &str = "WithDictsCompressor";
const COMPRESSION_PACKAGE: &str = "org.apache.cassandra.io.compress.";
const BLOOM_FP_CHANCE_MIN: f64 = 6.71e-5;
/// The longest wait of a policy, in milliseconds: Cassandra keeps it in 32 bits.
const MILLIS_MAX: f64 = i32::MAX as f64;
/// The longest chunk of a compressed file that this server writes, in KiB.
const CHUNK_KIB_MAX: i32 = 64 << 10;
/// Levels of Zstandard.
const ZSTD_LEVELS: RangeInclusive<i32> = -131_072..=22;
/// Levels of LZ4's slow form.
const LZ4_LEVELS: RangeInclusive<i32> = 1..=17;

/// Sets the options that the properties name, and checks the whole.
///
/// # Errors
/// [`ExecError::Syntax`](crate::ExecError::Syntax) when a property is unknown or its value has the wrong form;
/// [`ExecError::Config`](crate::ExecError::Config) when a value is out of its range or contradicts another;
/// [`ExecError::Invalid`](crate::ExecError::Invalid) when a table with counters gets a default TTL.
pub fn apply(options: &mut TableOptions, properties: &[Property], is_counter: bool) -> Result<()> {
    for property in properties {
        apply_one(options, property)?;
    }
    if options.max_index_interval < options.min_index_interval {
        return config(format!(
            "max_index_interval must be greater than or equal to min_index_interval ({}) (got {})",
            options.min_index_interval, options.max_index_interval
        ));
    }
    if is_counter && options.default_time_to_live > 0 {
        return invalid!("Cannot set default_time_to_live on a table with counters");
    }
    Ok(())
}

/// The options of a new table or view.
///
/// # Errors
/// As [`apply`].
pub fn of_new(properties: &[Property]) -> Result<TableOptions> {
    let mut options = TableOptions::default();
    apply(&mut options, properties, false)?;
    let is_leveled =
        options.compaction.get("class").is_some_and(|class| class.ends_with("LeveledCompactionStrategy"));
    if is_leveled && !properties.iter().any(|property| property.name == "bloom_filter_fp_chance") {
        // As in Cassandra: a read looks into few SSTables of such a table.
        options.bloom_filter_fp_chance = 0.1;
    }
    Ok(options)
}

/// Refuses properties of a new table whose values have a wrong form. Cassandra does this before it looks whether the keyspace and
/// the table exist, and checks names, the ranges of numbers and the options of a compaction strategy afterwards.
///
/// # Errors
/// As [`apply`], but for unknown properties and ranges.
pub fn check_forms(properties: &[Property]) -> Result<()> {
    let mut unused = TableOptions::default();
    for property in properties {
        match property.name.as_str() {
            "default_time_to_live"
            | "gc_grace_seconds"
            | "max_index_interval"
            | "min_index_interval"
            | "memtable_flush_period_in_ms"
            | "paxos_grace_seconds" => {
                integer(property, i32::MIN)?;
            }
            "bloom_filter_fp_chance"
            | "crc_check_chance"
            | "read_repair_chance"
            | "dclocal_read_repair_chance" => {
                float(property)?;
            }
            "compaction" => super::compaction::check_class(property)?,
            "extensions" => {
                map(property)?;
            }
            "additional_write_policy"
            | "allow_auto_snapshot"
            | "caching"
            | "cdc"
            | "comment"
            | "compression"
            | "incremental_backups"
            | "memtable"
            | "read_repair"
            | "speculative_retry" => apply_one(&mut unused, property)?,
            _ => {}
        }
    }
    Ok(())
}

/// The warnings of options that a statement sets to other values than their defaults, and that change nothing here: clients and tools see them, and
/// no more. `options` are those that the statement results in.
pub fn without_effect(options: &TableOptions, properties: &[Property]) -> Vec<String> {
    let default = TableOptions::default();
    let differs = |option: &str| options.caching.get(option) != default.caching.get(option);
    let of_property = |property: &Property| -> Vec<&'static str> {
        let of = |changes: bool, name: &'static str| if changes { vec![name] } else { Vec::new() };
        let checks = options.crc_check_chance != default.crc_check_chance;
        match property.name.as_str() {
            "additional_write_policy" => of(
                options.additional_write_policy != default.additional_write_policy,
                "additional_write_policy",
            ),
            "caching" => [
                of(differs("keys"), "caching['keys']"),
                of(differs("rows_per_partition"), "caching['rows_per_partition']"),
            ]
            .concat(),
            "crc_check_chance" => of(checks, "crc_check_chance"),
            "compression" => {
                let names = map(property).is_ok_and(|given| given.contains_key("crc_check_chance"));
                of(checks && names, "crc_check_chance")
            }
            "max_index_interval" => {
                of(options.max_index_interval != default.max_index_interval, "max_index_interval")
            }
            "memtable" => of(options.memtable != default.memtable, "memtable"),
            _ => Vec::new(),
        }
    };
    let names: BTreeSet<&str> = properties.iter().flat_map(of_property).collect();
    let mut warnings = Vec::new();
    if !names.is_empty() {
        let names: Vec<&str> = names.into_iter().collect();
        warnings.push(format!(
            "Options of the table that are stored and shown, and have no effect: {}",
            names.join(", ")
        ));
    }
    let is_old = |property: &&Property| property.name.ends_with("read_repair_chance");
    for old in properties.iter().filter(is_old) {
        if chance(old).is_ok_and(|chance| chance != 0.0) {
            warnings.push(format!("{} has no effect: reads are repaired by read_repair alone", old.name));
        }
    }
    let compression = properties.iter().find(|property| property.name == "compression");
    let mut values = compression.and_then(|property| map(property).ok()).into_iter().flatten();
    if let Some((_, class)) = values.find(|(_, class)| class.ends_with(WITH_DICTIONARIES)) {
        warnings.push(format!(
            "No dictionaries are trained: {} is taken as {}",
            shown(&class),
            shown(&without_dictionaries(&class))
        ));
    }
    warnings
}

/// The compressor of a name of ScyllaDB's that has dictionaries.
fn without_dictionaries(class: &str) -> String {
    match class.strip_suffix(WITH_DICTIONARIES) {
        Some(name) if name.ends_with("LZ4") || name.ends_with("Zstd") => format!("{name}Compressor"),
        _ => class.to_owned(),
    }
}

/// Whether and how changes are captured, in ScyllaDB's form. Cassandra's has files of the commit log for them, which this server does not have.
fn cdc(property: &Property) -> Result<Cdc> {
    if let PropertyValue::Map(_) = &property.value {
        return cdc_of_scylla(property);
    }
    match boolean(property)? {
        true => config(
            "cdc = true, which keeps segments of the commit log, is not supported; use cdc = {'enabled': true}, which \
             makes a log that is a table",
        ),
        false => Ok(Cdc::default()),
    }
}

fn cdc_of_scylla(property: &Property) -> Result<Cdc> {
    let mut cdc = Cdc::default();
    for (name, value) in map(property)? {
        let (name, word) = (name.to_lowercase(), value.to_lowercase());
        let refused = || config(format!("Invalid value for CDC option \"{name}\": {}", shown(&value)));
        let word = match word.as_str() {
            "1" if name != "ttl" => "true",
            "0" if name != "ttl" => "false",
            word => word,
        };
        match (name.as_str(), word) {
            ("enabled", "true" | "false") => cdc.enabled = word == "true",
            ("postimage", "true" | "false") => cdc.postimage = word == "true",
            ("preimage", word) => match CdcPreimage::from_word(word) {
                Some(preimage) => cdc.preimage = preimage,
                None => return refused(),
            },
            ("delta", "full" | "keys") => cdc.keys_only = word == "keys",
            ("ttl", seconds) => match seconds.parse::<i128>() {
                Ok(seconds) if seconds < 0 => return config("Invalid CDC option: ttl must be >= 0"),
                Ok(seconds) => match u32::try_from(seconds) {
                    Ok(seconds) if seconds <= TTL_MAX => cdc.ttl = seconds,
                    _ => return config("Invalid CDC option: ttl too large"),
                },
                Err(_) => return refused(),
            },
            ("enabled" | "postimage" | "delta", _) => return refused(),
            _ => return config(format!("Invalid CDC option: {}", shown(&name))),
        }
    }
    Ok(cdc)
}

fn apply_one(options: &mut TableOptions, property: &Property) -> Result<()> {
    match property.name.as_str() {
        "comment" => options.comment = string(property)?.to_owned(),
        "bloom_filter_fp_chance" => {
            let value = float(property)?;
            if !(value > BLOOM_FP_CHANCE_MIN && value <= 1.0) {
                return config(format!(
                    "bloom_filter_fp_chance must be larger than 6.71E-5 and less than or equal to 1.0 (got {})",
                    java_double(value)
                ));
            }
            options.bloom_filter_fp_chance = value;
        }
        "caching" => options.caching = caching(property)?,
        "cdc" => options.cdc = cdc(property)?,
        "compaction" => options.compaction = super::compaction::compaction(property)?,
        "compression" => set_compression(options, property)?,
        "crc_check_chance" => options.crc_check_chance = chance(property)?,
        "default_time_to_live" => {
            let value = integer(property, 0)?;
            if value > TTL_MAX {
                return config(format!(
                    "default_time_to_live must be less than or equal to {TTL_MAX} (got {value})"
                ));
            }
            options.default_time_to_live = value;
        }
        "gc_grace_seconds" => options.gc_grace_seconds = integer(property, 0)?,
        "max_index_interval" => options.max_index_interval = integer(property, 1)?,
        "min_index_interval" => options.min_index_interval = integer(property, 1)?,
        "memtable_flush_period_in_ms" => options.memtable_flush_period_in_ms = integer(property, 0)?,
        "memtable" => {
            let name = string(property)?;
            if !matches!(name, "default" | "skiplist" | "trie") {
                return config(format!("Memtable configuration \"{}\" not found.", shown(name)));
            }
            options.memtable = name.to_owned();
        }
        "read_repair" => {
            let name = string(property)?.to_uppercase();
            if !matches!(name.as_str(), "BLOCKING" | "NONE") {
                let name = shown(&name);
                return config(format!("Invalid value {name} for option 'read_repair': BLOCKING or NONE"));
            }
            options.read_repair = name;
        }
        "speculative_retry" => options.speculative_retry = retry(property)?,
        "additional_write_policy" => options.additional_write_policy = retry(property)?,
        "incremental_backups" => options.incremental_backups = Some(boolean(property)?),
        "allow_auto_snapshot" => options.allow_auto_snapshot = boolean(property)?,
        "tombstone_gc" => options.tombstone_gc = tombstone_gc(property)?,
        "paxos_grace_seconds" => options.paxos_grace_seconds = Some(integer(property, 0)?),
        "per_partition_rate_limit" => options.per_partition_rate_limit = rate_limit(property)?,
        "synchronous_updates" => options.synchronous_updates = boolean(property)?,
        "in_memory" | "scylla_encryption_options" | "large_data_guardrails_enabled" => absent(property)?,
        "tablets" => check_tablets(property)?,
        "extensions" => extensions(property, &mut options.extensions)?,
        // Options of old versions, which ScyllaDB takes, and shows in its dumps.
        "read_repair_chance" | "dclocal_read_repair_chance" => {
            chance(property)?;
        }
        "id" => {}
        other => return syntax(format!("Unknown property '{other}'")),
    }
    Ok(())
}

/// Refuses options of tablets but for none of them, as ScyllaDB's DESCRIBE shows them.
fn check_tablets(property: &Property) -> Result<()> {
    match map(property)?.is_empty() {
        true => Ok(()),
        false => config("tablet options cannot be used when tablets are disabled for the keyspace"),
    }
}

/// Refuses options that only a materialized view may have.
///
/// # Errors
/// [`ExecError::Invalid`](crate::ExecError::Invalid) when `synchronous_updates` is set.
pub fn check_table(options: &TableOptions) -> Result<()> {
    match options.synchronous_updates {
        true => invalid!(
            "The synchronous_updates option is only applicable to materialized views, not to base tables"
        ),
        false => Ok(()),
    }
}

/// The id that `WITH ID = …` gives a new table.
///
/// # Errors
/// [`ExecError::Config`](crate::ExecError::Config) when it is no UUID, [`ExecError::Invalid`](crate::ExecError::Invalid) when it is the id of a table;
/// as [`string`].
pub fn given_id(properties: &[Property], schema: &Schema) -> Result<Option<TableId>> {
    let Some(property) = properties.iter().find(|property| property.name == "id") else { return Ok(None) };
    let Some(id) = types::uuid::parse(string(property)?).map(TableId) else {
        return config("Invalid table id");
    };
    match schema.table_by_id(id) {
        Some(other) => invalid!("Table id {id} is used by table {}", other.full_name()),
        None => Ok(Some(id)),
    }
}

fn extensions(property: &Property, into: &mut BTreeMap<String, Vec<u8>>) -> Result<()> {
    for (name, value) in map(property)? {
        let digits = value.strip_prefix("0x").unwrap_or(&value);
        // DESCRIBE shows them behind a 0x.
        let bytes = if digits.len() + 2 <= TEXT_BYTES_MAX {
            types::CqlType::Blob.from_string(digits).ok()
        } else {
            None
        };
        let Some(bytes) = bytes else {
            return config(format!(
                "Invalid value {} for extension '{}': at most {} hexadecimal digits",
                shown(&value),
                shown(&name),
                TEXT_BYTES_MAX - 2
            ));
        };
        into.insert(name, bytes);
    }
    Ok(())
}

fn tombstone_gc(property: &Property) -> Result<TombstoneGc> {
    let (mut mode, mut delay) = (None, TombstoneGc::PROPAGATION_DELAY_SECONDS);
    for (name, value) in map(property)? {
        let known = match name.as_str() {
            "mode" => {
                mode = TombstoneGc::from_mode(&value, 0);
                mode.is_some()
            }
            "propagation_delay_in_seconds" => match value.parse::<i32>().ok().map(u32::try_from) {
                Some(Ok(seconds)) => {
                    delay = seconds;
                    true
                }
                _ => false,
            },
            _ => return config(format!("Invalid tombstone_gc option: {}", shown(&name))),
        };
        if !known {
            return config(format!("Invalid value for tombstone_gc option {name}: {}", shown(&value)));
        }
    }
    Ok(match mode.unwrap_or(TableOptions::default().tombstone_gc) {
        TombstoneGc::Repair { .. } => TombstoneGc::Repair { propagation_delay_seconds: delay },
        mode => mode,
    })
}

/// Takes `false` of an option of ScyllaDB that has no effect here, and refuses everything else.
fn absent(property: &Property) -> Result<()> {
    let why = match property.name.as_str() {
        "in_memory" => "no table is stored in memory only",
        "large_data_guardrails_enabled" => "the guardrails of sizes hold for all tables",
        _ => return config(format!("{} is not supported: use an encrypted file system", property.name)),
    };
    match boolean(property)? {
        true => config(format!("{} = true is not supported: {why}", property.name)),
        false => Ok(()),
    }
}

fn rate_limit(property: &Property) -> Result<RateLimit> {
    let mut given = map(property)?;
    let mut limit = |name: &str| match given.remove(name) {
        None => Ok(None),
        Some(text) => match text.trim().parse::<i128>() {
            Ok(number) => match u32::try_from(number) {
                Ok(limit) => Ok(Some(limit)),
                Err(_) => config(format!("Value for {name} is out of range accepted by 32-bit numbers")),
            },
            Err(_) => config(format!("Invalid value for {name} option: expected a non-negative number")),
        },
    };
    let limits = RateLimit {
        max_reads_per_second: limit("max_reads_per_second")?,
        max_writes_per_second: limit("max_writes_per_second")?,
    };
    match given.keys().next() {
        None => Ok(limits),
        Some(_) => {
            let unknown: Vec<&str> = given.keys().map(String::as_str).collect();
            config(format!(
                "Unknown keys in map for per_partition_rate_limit extension: {}",
                shown(&unknown.join(", "))
            ))
        }
    }
}

fn caching(property: &Property) -> Result<BTreeMap<String, String>> {
    let given = map(property)?;
    let unknown =
        given.keys().map(String::as_str).filter(|k| !matches!(*k, "keys" | "rows_per_partition" | "enabled"));
    let unknown: Vec<&str> = unknown.collect();
    if !unknown.is_empty() {
        return config(format!(
            "Invalid caching sub-options [{}]: only 'keys' and 'rows_per_partition' are allowed",
            shown(&unknown.join(", "))
        ));
    }
    let keys = given.get("keys").map_or("ALL".to_owned(), |keys| keys.to_uppercase());
    if !matches!(keys.as_str(), "ALL" | "NONE") {
        return config(format!(
            "Invalid value '{}' for caching sub-option 'keys': only 'ALL' and 'NONE' are allowed",
            given.get("keys").map_or("".into(), |keys| shown(keys))
        ));
    }
    let rows = given.get("rows_per_partition").map_or("NONE".to_owned(), |rows| rows.to_uppercase());
    let number = rows.parse::<i32>().ok().filter(|rows| *rows >= 0);
    if !matches!(rows.as_str(), "ALL" | "NONE") && number.is_none() {
        return config(format!(
            "Invalid value '{}' for caching sub-option 'rows_per_partition': only 'ALL', 'NONE', and integer values are \
             allowed",
            given.get("rows_per_partition").map_or("".into(), |rows| shown(rows))
        ));
    }
    let rows = number.map_or(rows, |number| number.to_string());
    let mut caching = BTreeMap::from([("keys".to_owned(), keys), ("rows_per_partition".to_owned(), rows)]);
    match given.get("enabled").map(|enabled| enabled.to_lowercase()).as_deref() {
        None | Some("true") => {}
        Some("false") => {
            caching.insert("enabled".to_owned(), "false".to_owned());
        }
        Some(other) => {
            return config(format!(
                "Invalid value '{}' for caching sub-option 'enabled': only 'true' and 'false' are allowed",
                shown(other)
            ));
        }
    }
    Ok(caching)
}

/// Sets the compression, and the option of the table that ScyllaDB counts to it.
fn set_compression(options: &mut TableOptions, property: &Property) -> Result<()> {
    options.compression = compression(property)?;
    let chance = options.compression.remove("crc_check_chance");
    if let Some(chance) = chance.and_then(|text| finite(&text)) {
        options.crc_check_chance = chance;
    }
    Ok(())
}

fn compression(property: &Property) -> Result<BTreeMap<String, String>> {
    let mut given = map(property)?;
    let disabled = given.get("enabled").is_some_and(|value| value.eq_ignore_ascii_case("false"));
    if given.get("class").is_some_and(String::is_empty) {
        return config("The 'class' option must not be empty. To disable compression use 'enabled' : false");
    }
    let off = given.get("sstable_compression").is_some_and(String::is_empty);
    if disabled || off || given.is_empty() {
        if disabled && given.len() > 1 {
            return config("If the 'enabled' option is set to false no other options must be specified");
        }
        return Ok(BTreeMap::from([("enabled".to_owned(), "false".to_owned())]));
    }
    given.remove("enabled");
    let of_scylla = given.contains_key("sstable_compression") || given.contains_key("chunk_length_kb");
    if let Some(class) = given.remove("sstable_compression") {
        given.entry("class".to_owned()).or_insert(class);
    }
    if let Some(length) = given.remove("chunk_length_kb") {
        given.entry("chunk_length_in_kb".to_owned()).or_insert(length);
    }
    let Some(class) = given.get("class").cloned() else {
        return config("Missing sub-option 'class' for the 'compression' option.");
    };
    let class = without_dictionaries(&class);
    let short = class.strip_prefix(COMPRESSION_PACKAGE).unwrap_or(&class);
    let own: &[&str] = match short {
        "LZ4Compressor" => &["lz4_compressor_type", "lz4_high_compressor_level"],
        "ZstdCompressor" => &["compression_level"],
        "SnappyCompressor" | "DeflateCompressor" | "NoopCompressor" => &[],
        _ => {
            let short = shown(short);
            return config(format!("Could not create Compression for type {COMPRESSION_PACKAGE}{short}"));
        }
    };
    let common = ["class", "chunk_length_in_kb", "min_compress_ratio", "max_compressed_length"];
    // ScyllaDB's option, beside another of its names.
    let is_known =
        |key: &&str| common.contains(key) || own.contains(key) || of_scylla && *key == "crc_check_chance";
    let unknown: Vec<&str> = given.keys().map(String::as_str).filter(|key| !is_known(key)).collect();
    if !unknown.is_empty() {
        return config(format!("Unknown compression options {}", shown(&unknown.join(", "))));
    }
    let full = format!("{COMPRESSION_PACKAGE}{short}");
    given.insert("class".to_owned(), full);
    let length = given.entry("chunk_length_in_kb".to_owned()).or_insert_with(|| "16".to_owned());
    match length.trim_end_matches("KiB").trim_end_matches("kb").parse::<i32>() {
        Ok(value) if value <= 0 => return config("Invalid negative or null chunk_length_in_kb"),
        Ok(value) if value.count_ones() != 1 => return config("chunk_length_in_kb must be a power of 2"),
        Ok(value) if value > CHUNK_KIB_MAX => {
            return config(format!(
                "Value of chunk_length_in_kb is too large ({value}): at most {CHUNK_KIB_MAX} is allowed"
            ));
        }
        Ok(value) => *length = value.to_string(),
        Err(_) => return config("Invalid value for chunk_length_in_kb"),
    }
    check_compression(&given)?;
    Ok(given)
}

/// Checks the numbers and names among a compressor's settings.
fn check_compression(given: &BTreeMap<String, String>) -> Result<()> {
    let refused = |name: &str, text: &str, range: &str| {
        config(format!("Invalid value for {name}: {} (it must be {range})", shown(text)))
    };
    let integer = |name: &str, range: RangeInclusive<i32>| match given.get(name) {
        Some(text) if !text.parse().is_ok_and(|value| range.contains(&value)) => {
            refused(name, text, &format!("an integer from {} to {}", range.start(), range.end()))
        }
        _ => Ok(()),
    };
    let number = |name: &str, valid: fn(f64) -> bool, range: &str| match given.get(name) {
        Some(text) if !finite(text).is_some_and(valid) => refused(name, text, range),
        _ => Ok(()),
    };
    integer("compression_level", ZSTD_LEVELS)?;
    integer("lz4_high_compressor_level", LZ4_LEVELS)?;
    integer("max_compressed_length", 0..=i32::MAX)?;
    number("crc_check_chance", |value| (0.0..=1.0).contains(&value), "a number from 0.0 to 1.0")?;
    let is_ratio = |value: f64| value == 0.0 || value >= 1.0;
    if given.get("min_compress_ratio").and_then(|text| finite(text)).is_some_and(|value| !is_ratio(value)) {
        return config("min_compress_ratio can either be 0 or greater than or equal to 1");
    }
    number("min_compress_ratio", is_ratio, "0, or a number of at least 1")?;
    match given.get("lz4_compressor_type").map(String::as_str) {
        None | Some("fast" | "high") => Ok(()),
        Some(other) => refused("lz4_compressor_type", other, "fast or high"),
    }
}

/// Digits with at most one point, as Cassandra reads the numbers of a policy: no sign, no exponent, no NaN.
fn plain(text: &str) -> Option<f64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if digits { finite(text) } else { None }
}

fn retry(property: &Property) -> Result<SpeculativeRetry> {
    let text = string(property)?;
    // Both options are of one kind, and Cassandra names the first.
    let refused = || config(format!("Invalid value {} for option 'speculative_retry'", shown(text)));
    let upper = text.to_uppercase();
    if upper == "NEVER" || upper == "NONE" {
        return Ok(SpeculativeRetry::Never);
    }
    if upper == "ALWAYS" {
        return Ok(SpeculativeRetry::Always);
    }
    let percentile = |text: &str| -> Option<f64> {
        let digits = text.strip_suffix("PERCENTILE").or_else(|| text.strip_suffix('P'))?;
        plain(digits)
    };
    let millis =
        |text: &str| -> Option<f64> { plain(text.strip_suffix("MS")?).filter(|ms| *ms <= MILLIS_MAX) };
    let in_range = |p: f64| {
        if p > 0.0 && p < 100.0 {
            return Ok(p);
        }
        config(format!(
            "Invalid value {} for PERCENTILE option 'speculative_retry': must be between (0.0 and 100.0)",
            shown(text)
        ))
    };
    if let Some(p) = percentile(&upper) {
        return Ok(SpeculativeRetry::Percentile(in_range(p)?));
    }
    if let Some(ms) = millis(&upper) {
        return Ok(SpeculativeRetry::Millis(ms));
    }
    for (prefix, min) in [("MIN(", true), ("MAX(", false)] {
        let Some(inner) = upper.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(')')) else {
            continue;
        };
        let Some((a, b)) = inner.split_once(',') else { return refused() };
        let (a, b) = (a.trim(), b.trim());
        let (p, ms) = match (percentile(a), millis(b), millis(a), percentile(b)) {
            (Some(p), Some(ms), ..) | (.., Some(ms), Some(p)) => (p, ms),
            _ => return refused(),
        };
        return Ok(SpeculativeRetry::Hybrid { min, percentile: in_range(p)?, millis: ms });
    }
    refused()
}
