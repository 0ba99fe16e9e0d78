//! Guardrails as the options give them, checked as Cassandra checks them.

use std::collections::BTreeSet;
use std::time::Duration;

use exec::{Guardrails, RefusedValues, Thresholds};

use super::{Config, ConfigError, Size};

/// Which side of a bound is beyond it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// Greater figures.
    Most,
    /// Smaller figures.
    Least,
}

impl Config {
    /// The guardrails.
    ///
    /// # Errors
    /// Bounds of 0 or below -1, those that refuse before they warn, and unknown consistency levels.
    pub(crate) fn guardrails(&self) -> Result<Guardrails, ConfigError> {
        let mut all = Guardrails {
            user_timestamps_enabled: self.user_timestamps_enabled,
            alter_table_enabled: self.alter_table_enabled,
            group_by_enabled: self.group_by_enabled,
            drop_truncate_table_enabled: self.drop_truncate_table_enabled,
            drop_keyspace_enabled: self.drop_keyspace_enabled,
            secondary_indexes_enabled: self.secondary_indexes_enabled,
            uncompressed_tables_enabled: self.uncompressed_tables_enabled,
            compact_tables_enabled: self.compact_tables_enabled,
            read_before_write_list_operations_enabled: self.read_before_write_list_operations_enabled,
            allow_filtering_enabled: self.allow_filtering_enabled,
            simplestrategy_enabled: self.simplestrategy_enabled,
            vector_type_enabled: self.vector_type_enabled,
            non_partition_restricted_index_query_enabled: self.non_partition_restricted_index_query_enabled,
            intersect_filtering_query_warned: self.intersect_filtering_query_warned,
            intersect_filtering_query_enabled: self.intersect_filtering_query_enabled,
            zero_ttl_on_twcs_warned: self.zero_ttl_on_twcs_warned,
            zero_ttl_on_twcs_enabled: self.zero_ttl_on_twcs_enabled,
            ..Guardrails::default()
        };
        self.schema_bounds(&mut all)?;
        self.request_bounds(&mut all)?;
        self.value_bounds(&mut all)?;
        self.refused_values(&mut all)?;
        self.partition_bounds()?;
        Ok(all)
    }

    /// The bounds beyond which partitions are named in the log when they are written.
    ///
    /// # Errors
    /// As of [`Config::guardrails`].
    pub(crate) fn partition_bounds(&self) -> Result<engine::PartitionBounds, ConfigError> {
        let of = |Thresholds { warn, fail }| engine::Bounds { warn, fail };
        let bytes =
            sizes("partition_size", self.partition_size_warn_threshold, self.partition_size_fail_threshold)?;
        let (warn, fail) =
            (self.partition_tombstones_warn_threshold, self.partition_tombstones_fail_threshold);
        let tombstones = bounds("partition_tombstones", warn, fail, Side::Most)?;
        Ok(engine::PartitionBounds { bytes: of(bytes), tombstones: of(tombstones) })
    }

    fn schema_bounds(&self, into: &mut Guardrails) -> Result<(), ConfigError> {
        into.keyspaces =
            bounds("keyspaces", self.keyspaces_warn_threshold, self.keyspaces_fail_threshold, Side::Most)?;
        into.tables = bounds("tables", self.tables_warn_threshold, self.tables_fail_threshold, Side::Most)?;
        into.columns_per_table = bounds(
            "columns_per_table",
            self.columns_per_table_warn_threshold,
            self.columns_per_table_fail_threshold,
            Side::Most,
        )?;
        into.secondary_indexes_per_table = bounds(
            "secondary_indexes_per_table",
            self.secondary_indexes_per_table_warn_threshold,
            self.secondary_indexes_per_table_fail_threshold,
            Side::Most,
        )?;
        into.materialized_views_per_table = bounds(
            "materialized_views_per_table",
            self.materialized_views_per_table_warn_threshold,
            self.materialized_views_per_table_fail_threshold,
            Side::Most,
        )?;
        into.fields_per_udt = bounds(
            "fields_per_udt",
            self.fields_per_udt_warn_threshold,
            self.fields_per_udt_fail_threshold,
            Side::Most,
        )?;
        into.vector_dimensions = bounds(
            "vector_dimensions",
            self.vector_dimensions_warn_threshold,
            self.vector_dimensions_fail_threshold,
            Side::Most,
        )?;
        into.minimum_replication_factor = bounds(
            "minimum_replication_factor",
            self.minimum_replication_factor_warn_threshold,
            self.minimum_replication_factor_fail_threshold,
            Side::Least,
        )?;
        into.maximum_replication_factor = bounds(
            "maximum_replication_factor",
            self.maximum_replication_factor_warn_threshold,
            self.maximum_replication_factor_fail_threshold,
            Side::Most,
        )?;
        let factor = u64::from(self.default_keyspace_rf);
        if factor == 0 {
            return Err(ConfigError::Conflict("default_keyspace_rf cannot be less than 1".to_owned()));
        }
        if let Some(least) = into.minimum_replication_factor.fail.filter(|least| factor < *least) {
            return Err(ConfigError::Conflict(format!(
                "default_keyspace_rf ({factor}) cannot be less than minimum_replication_factor_fail_threshold ({least})"
            )));
        }
        if let Some(most) = into.maximum_replication_factor.fail.filter(|most| factor > *most) {
            return Err(ConfigError::Conflict(format!(
                "default_keyspace_rf ({factor}) cannot be greater than maximum_replication_factor_fail_threshold ({most})"
            )));
        }
        Ok(())
    }

    fn request_bounds(&self, into: &mut Guardrails) -> Result<(), ConfigError> {
        into.page_size =
            bounds("page_size", self.page_size_warn_threshold, self.page_size_fail_threshold, Side::Most)?;
        into.partition_keys_in_select = bounds(
            "partition_keys_in_select",
            self.partition_keys_in_select_warn_threshold,
            self.partition_keys_in_select_fail_threshold,
            Side::Most,
        )?;
        into.in_select_cartesian_product = bounds(
            "in_select_cartesian_product",
            self.in_select_cartesian_product_warn_threshold,
            self.in_select_cartesian_product_fail_threshold,
            Side::Most,
        )?;
        into.items_per_collection = bounds(
            "items_per_collection",
            self.items_per_collection_warn_threshold,
            self.items_per_collection_fail_threshold,
            Side::Most,
        )?;
        into.collection_size = sizes(
            "collection_size",
            self.collection_size_warn_threshold,
            self.collection_size_fail_threshold,
        )?;
        into.column_value_size = sizes(
            "column_value_size",
            self.column_value_size_warn_threshold,
            self.column_value_size_fail_threshold,
        )?;
        into.maximum_timestamp = spans(
            "maximum_timestamp",
            self.maximum_timestamp_warn_threshold,
            self.maximum_timestamp_fail_threshold,
        )?;
        into.minimum_timestamp = spans(
            "minimum_timestamp",
            self.minimum_timestamp_warn_threshold,
            self.minimum_timestamp_fail_threshold,
        )?;
        Ok(())
    }

    fn value_bounds(&self, into: &mut Guardrails) -> Result<(), ConfigError> {
        into.column_ascii_value_size = sizes(
            "column_ascii_value_size",
            self.column_ascii_value_size_warn_threshold,
            self.column_ascii_value_size_fail_threshold,
        )?;
        into.column_blob_value_size = sizes(
            "column_blob_value_size",
            self.column_blob_value_size_warn_threshold,
            self.column_blob_value_size_fail_threshold,
        )?;
        into.column_text_and_varchar_value_size = sizes(
            "column_text_and_varchar_value_size",
            self.column_text_and_varchar_value_size_warn_threshold,
            self.column_text_and_varchar_value_size_fail_threshold,
        )?;
        into.sai_string_term_size = sizes(
            "sai_string_term_size",
            self.sai_string_term_size_warn_threshold,
            self.sai_string_term_size_fail_threshold,
        )?;
        into.sai_frozen_term_size = sizes(
            "sai_frozen_term_size",
            self.sai_frozen_term_size_warn_threshold,
            self.sai_frozen_term_size_fail_threshold,
        )?;
        into.sai_vector_term_size = sizes(
            "sai_vector_term_size",
            self.sai_vector_term_size_warn_threshold,
            self.sai_vector_term_size_fail_threshold,
        )?;
        Ok(())
    }

    fn refused_values(&self, into: &mut Guardrails) -> Result<(), ConfigError> {
        into.table_properties = RefusedValues {
            warned: names(&self.table_properties_warned, str::to_lowercase),
            disallowed: names(&self.table_properties_disallowed, str::to_lowercase),
        };
        into.read_consistency_levels = RefusedValues {
            warned: levels("read_consistency_levels_warned", &self.read_consistency_levels_warned)?,
            disallowed: levels(
                "read_consistency_levels_disallowed",
                &self.read_consistency_levels_disallowed,
            )?,
        };
        into.write_consistency_levels = RefusedValues {
            warned: levels("write_consistency_levels_warned", &self.write_consistency_levels_warned)?,
            disallowed: levels(
                "write_consistency_levels_disallowed",
                &self.write_consistency_levels_disallowed,
            )?,
        };
        Ok(())
    }
}

fn bounds(name: &str, warn: i32, fail: i32, side: Side) -> Result<Thresholds, ConfigError> {
    let bound = |kind: &str, value: i32| match value {
        -1 => Ok(None),
        1.. => Ok(Some(u64::from(value.unsigned_abs()))),
        _ => Err(ConfigError::Conflict(format!(
            "Invalid value for {name}_{kind}_threshold: {value} is not allowed; if attempting to disable use -1"
        ))),
    };
    ordered(name, Thresholds { warn: bound("warn", warn)?, fail: bound("fail", fail)? }, side)
}

fn sizes(name: &str, warn: Option<Size>, fail: Option<Size>) -> Result<Thresholds, ConfigError> {
    let bounds = Thresholds { warn: warn.map(|size| size.0), fail: fail.map(|size| size.0) };
    ordered(name, bounds, Side::Most)
}

/// Bounds in microseconds; zero is none.
fn spans(name: &str, warn: Duration, fail: Duration) -> Result<Thresholds, ConfigError> {
    let bound =
        |span: Duration| (!span.is_zero()).then(|| u64::try_from(span.as_micros()).unwrap_or(u64::MAX));
    ordered(name, Thresholds { warn: bound(warn), fail: bound(fail) }, Side::Most)
}

/// Refuses bounds of which nobody would ever be warned.
fn ordered(name: &str, bounds: Thresholds, side: Side) -> Result<Thresholds, ConfigError> {
    let (Some(warn), Some(fail)) = (bounds.warn, bounds.fail) else { return Ok(bounds) };
    let (is_ordered, than) = match side {
        Side::Most => (warn <= fail, "lower"),
        Side::Least => (warn >= fail, "greater"),
    };
    match is_ordered {
        true => Ok(bounds),
        false => Err(ConfigError::Conflict(format!(
            "The warn threshold {warn} for {name}_warn_threshold should be {than} than the fail threshold {fail}"
        ))),
    }
}

/// The names of a list; lists of a file come joined by commas.
fn names(text: &str, spelt: impl Fn(&str) -> String) -> BTreeSet<String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(spelt).collect()
}

fn levels(option: &str, text: &str) -> Result<BTreeSet<String>, ConfigError> {
    const LEVELS: [&str; 11] = [
        "ANY",
        "ONE",
        "TWO",
        "THREE",
        "QUORUM",
        "ALL",
        "LOCAL_QUORUM",
        "EACH_QUORUM",
        "SERIAL",
        "LOCAL_SERIAL",
        "LOCAL_ONE",
    ];
    let given = names(text, str::to_uppercase);
    match given.iter().find(|name| !LEVELS.contains(&name.as_str())) {
        None => Ok(given),
        Some(unknown) => Err(ConfigError::Value {
            name: option.to_owned(),
            value: unknown.clone(),
            expected: format!("expected consistency levels, of {}", LEVELS.join(", ")),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_checked() {
        let set = |options: &[(&str, &str)]| {
            let mut config = Config::default();
            for (name, value) in options {
                config.set(name, value)?;
            }
            config.guardrails()
        };
        let without_defaults = set(&[
            ("zero_ttl_on_twcs_warned", "false"),
            ("sai_string_term_size_warn_threshold", ""),
            ("sai_string_term_size_fail_threshold", ""),
            ("sai_frozen_term_size_warn_threshold", ""),
            ("sai_frozen_term_size_fail_threshold", ""),
            ("sai_vector_term_size_warn_threshold", ""),
            ("sai_vector_term_size_fail_threshold", ""),
        ]);
        assert_eq!(without_defaults, Ok(Guardrails::default()));
        let defaults = Config::default().guardrails().unwrap();
        assert_eq!(defaults.sai_string_term_size, Thresholds { warn: Some(1 << 10), fail: Some(8 << 10) });
        let spans =
            set(&[("maximum_timestamp_warn_threshold", "1d"), ("minimum_timestamp_fail_threshold", "1h")]);
        let spans = spans.unwrap();
        assert_eq!(spans.maximum_timestamp, Thresholds { warn: Some(86_400_000_000), fail: None });
        assert_eq!(spans.minimum_timestamp, Thresholds { warn: None, fail: Some(3_600_000_000) });
        let some = set(&[
            ("tables_warn_threshold", "5"),
            ("tables_fail_threshold", "9"),
            ("column_value_size_warn_threshold", "1MiB"),
            ("table_properties_disallowed", "CDC, read_repair"),
            ("write_consistency_levels_warned", "any"),
        ]);
        let some = some.unwrap();
        assert_eq!(some.tables, Thresholds { warn: Some(5), fail: Some(9) });
        assert_eq!(some.column_value_size, Thresholds { warn: Some(1 << 20), fail: None });
        let names: Vec<&String> = some.table_properties.disallowed.iter().collect();
        assert_eq!(names, ["cdc", "read_repair"]);
        assert!(some.write_consistency_levels.warned.contains("ANY"));
        for refused in [
            &[("tables_warn_threshold", "0")][..],
            &[("tables_fail_threshold", "-2")],
            &[("default_keyspace_rf", "0")],
            &[("default_keyspace_rf", "1"), ("minimum_replication_factor_fail_threshold", "2")],
            &[("default_keyspace_rf", "4"), ("maximum_replication_factor_fail_threshold", "3")],
            &[("tables_warn_threshold", "9"), ("tables_fail_threshold", "5")],
            &[("sai_string_term_size_fail_threshold", "500B")],
            &[
                ("minimum_replication_factor_warn_threshold", "2"),
                ("minimum_replication_factor_fail_threshold", "3"),
            ],
            &[("read_consistency_levels_disallowed", "MOST")],
        ] {
            assert!(set(refused).is_err(), "{refused:?}");
        }
    }
}
