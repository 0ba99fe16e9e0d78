//! Guardrails: limits on requests of ordinary roles, with Cassandra's names and messages. A limit warns, refuses, or both.
//!
//! As in Cassandra they bind nobody on a node without authentication, and no superuser.

pub mod data;
pub mod schema;
pub mod select;

use std::collections::BTreeSet;
use std::fmt::Display;

use crate::error::{Result, invalid};

/// Two bounds of a figure, each of which may be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thresholds {
    /// The client is warned beyond it.
    pub warn: Option<u64>,
    /// The request is refused beyond it.
    pub fail: Option<u64>,
}

/// Values that are not welcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedValues {
    /// The client is warned of these.
    pub warned: BTreeSet<String>,
    /// These are refused.
    pub disallowed: BTreeSet<String>,
}

/// The limits of a node. The fields have the names of Cassandra's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the options, whose help says it")]
pub struct Guardrails {
    pub keyspaces: Thresholds,
    pub tables: Thresholds,
    pub columns_per_table: Thresholds,
    pub secondary_indexes_per_table: Thresholds,
    pub materialized_views_per_table: Thresholds,
    pub fields_per_udt: Thresholds,
    pub vector_dimensions: Thresholds,
    pub minimum_replication_factor: Thresholds,
    pub maximum_replication_factor: Thresholds,
    pub page_size: Thresholds,
    pub partition_keys_in_select: Thresholds,
    pub in_select_cartesian_product: Thresholds,
    pub items_per_collection: Thresholds,
    pub collection_size: Thresholds,
    pub column_value_size: Thresholds,
    pub column_ascii_value_size: Thresholds,
    pub column_blob_value_size: Thresholds,
    pub column_text_and_varchar_value_size: Thresholds,
    pub sai_string_term_size: Thresholds,
    pub sai_frozen_term_size: Thresholds,
    pub sai_vector_term_size: Thresholds,
    /// Microseconds after now, of USING TIMESTAMP.
    pub maximum_timestamp: Thresholds,
    /// Microseconds before now, of USING TIMESTAMP.
    pub minimum_timestamp: Thresholds,
    pub table_properties: RefusedValues,
    pub read_consistency_levels: RefusedValues,
    pub write_consistency_levels: RefusedValues,
    pub user_timestamps_enabled: bool,
    pub alter_table_enabled: bool,
    pub group_by_enabled: bool,
    pub drop_truncate_table_enabled: bool,
    pub drop_keyspace_enabled: bool,
    pub secondary_indexes_enabled: bool,
    pub uncompressed_tables_enabled: bool,
    pub compact_tables_enabled: bool,
    pub read_before_write_list_operations_enabled: bool,
    pub allow_filtering_enabled: bool,
    pub simplestrategy_enabled: bool,
    pub vector_type_enabled: bool,
    pub non_partition_restricted_index_query_enabled: bool,
    pub intersect_filtering_query_warned: bool,
    pub intersect_filtering_query_enabled: bool,
    pub zero_ttl_on_twcs_warned: bool,
    pub zero_ttl_on_twcs_enabled: bool,
}

impl Guardrails {
    /// Whether one of them binds requests other than changes of the schema, whichever table they are for.
    pub fn binds_requests(&self) -> bool {
        let none = Self::default();
        let others = Self {
            zero_ttl_on_twcs_warned: none.zero_ttl_on_twcs_warned,
            sai_string_term_size: none.sai_string_term_size,
            sai_frozen_term_size: none.sai_frozen_term_size,
            sai_vector_term_size: none.sai_vector_term_size,
            ..self.clone()
        };
        others != none
    }

    /// Whether one of them binds writes of tables with indexes.
    pub fn binds_terms(&self) -> bool {
        let bounds = [self.sai_string_term_size, self.sai_frozen_term_size, self.sai_vector_term_size];
        bounds.iter().any(|bounds| *bounds != Thresholds::default())
    }
}

impl Default for Guardrails {
    /// No limits.
    fn default() -> Self {
        let none = Thresholds::default();
        Self {
            keyspaces: none,
            tables: none,
            columns_per_table: none,
            secondary_indexes_per_table: none,
            materialized_views_per_table: none,
            fields_per_udt: none,
            vector_dimensions: none,
            minimum_replication_factor: none,
            maximum_replication_factor: none,
            page_size: none,
            partition_keys_in_select: none,
            in_select_cartesian_product: none,
            items_per_collection: none,
            collection_size: none,
            column_value_size: none,
            column_ascii_value_size: none,
            column_blob_value_size: none,
            column_text_and_varchar_value_size: none,
            sai_string_term_size: none,
            sai_frozen_term_size: none,
            sai_vector_term_size: none,
            maximum_timestamp: none,
            minimum_timestamp: none,
            table_properties: RefusedValues::default(),
            read_consistency_levels: RefusedValues::default(),
            write_consistency_levels: RefusedValues::default(),
            user_timestamps_enabled: true,
            alter_table_enabled: true,
            group_by_enabled: true,
            drop_truncate_table_enabled: true,
            drop_keyspace_enabled: true,
            secondary_indexes_enabled: true,
            uncompressed_tables_enabled: true,
            compact_tables_enabled: true,
            read_before_write_list_operations_enabled: true,
            allow_filtering_enabled: true,
            simplestrategy_enabled: true,
            vector_type_enabled: true,
            non_partition_restricted_index_query_enabled: true,
            intersect_filtering_query_warned: false,
            intersect_filtering_query_enabled: true,
            zero_ttl_on_twcs_warned: false,
            zero_ttl_on_twcs_enabled: true,
        }
    }
}

/// The guardrails over one request, and its warnings.
#[derive(Debug)]
pub struct Guard<'a> {
    pub(super) limits: &'a Guardrails,
    /// The warnings for the client.
    pub warnings: Vec<String>,
}

/// The words for a figure beyond a bound.
pub(super) struct Words<'a> {
    /// Of a warning; gets the bound.
    pub(super) warn: &'a dyn Fn(u64) -> String,
    /// Of a refusal; gets the bound.
    pub(super) fail: &'a dyn Fn(u64) -> String,
}

impl<'a> Guard<'a> {
    /// The guardrails over a request.
    pub fn new(limits: &'a Guardrails) -> Self {
        Self { limits, warnings: Vec::new() }
    }

    fn warn(&mut self, name: &str, text: impl Display) {
        self.warnings.push(violated(name, text));
    }

    /// Refuses a request, of which Cassandra's clients get a warning besides.
    pub(super) fn refuse(&mut self, name: &str, text: impl Display) -> Result<()> {
        self.warn(name, text);
        invalid!("{}", self.warnings[self.warnings.len() - 1])
    }

    /// Refuses or warns of a figure above its bounds.
    pub(super) fn at_most(
        &mut self,
        name: &str,
        bounds: Thresholds,
        value: u64,
        words: &Words<'_>,
    ) -> Result<()> {
        if let Some(bound) = bounds.fail.filter(|bound| value > *bound) {
            return self.refuse(name, (words.fail)(bound));
        }
        if let Some(bound) = bounds.warn.filter(|bound| value > *bound) {
            self.warn(name, (words.warn)(bound));
        }
        Ok(())
    }

    /// Refuses or warns of a figure below its bounds.
    pub(super) fn at_least(
        &mut self,
        name: &str,
        bounds: Thresholds,
        value: u64,
        words: &Words<'_>,
    ) -> Result<()> {
        if let Some(bound) = bounds.fail.filter(|bound| value < *bound) {
            return self.refuse(name, (words.fail)(bound));
        }
        if let Some(bound) = bounds.warn.filter(|bound| value < *bound) {
            self.warn(name, (words.warn)(bound));
        }
        Ok(())
    }

    /// Refuses a feature that is off.
    pub(super) fn enabled(&mut self, name: &str, is_enabled: bool, feature: &str) -> Result<()> {
        match is_enabled {
            true => Ok(()),
            false => self.refuse(name, format_args!("{feature} is not allowed")),
        }
    }

    /// Refuses or warns of values; the words for them are `what`.
    pub(super) fn values(
        &mut self,
        name: &str,
        known: &RefusedValues,
        given: &BTreeSet<String>,
        what: &str,
    ) -> Result<()> {
        let met = |set: &BTreeSet<String>| {
            let met: Vec<&str> = given.intersection(set).map(String::as_str).collect();
            (!met.is_empty()).then(|| met.join(", "))
        };
        let all = |set: &BTreeSet<String>| set.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        if let Some(met) = met(&known.disallowed) {
            let all = all(&known.disallowed);
            let text = format!(
                "Provided values [{met}] are not allowed for {what} (disallowed values are: [{all}])"
            );
            return self.refuse(name, text);
        }
        if let Some(met) = met(&known.warned) {
            let all = all(&known.warned);
            self.warn(
                name,
                format_args!(
                    "Provided values [{met}] are not recommended for {what} (warned values are: [{all}])"
                ),
            );
        }
        Ok(())
    }
}

fn violated(name: &str, text: impl Display) -> String {
    format!("Guardrail {name} violated: {text}")
}

/// The words for something that "exceeds" a bound, which are one for both but for the name of the bound.
pub(super) fn exceeds(what: String) -> (impl Fn(u64) -> String, impl Fn(u64) -> String) {
    let other = what.clone();
    (
        move |bound| format!("{what}, this exceeds the warning threshold of {bound}."),
        move |bound| format!("{other}, this exceeds the failure threshold of {bound}."),
    )
}
