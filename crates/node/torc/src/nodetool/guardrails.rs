//! Verbs about guardrails: getguardrailsconfig and setguardrailsconfig, with Cassandra's names of two bounds together.

use clap::{Arg, ArgAction, ArgMatches};
use serde_json::{Value, json};

use super::api::{Api, Failure};
use super::grid::Grid;
use super::settings::{change, setting};
use super::{Verb, given, words};

/// Features that are on or off.
const FLAGS: &[&str] = &[
    "allow_filtering_enabled",
    "alter_table_enabled",
    "compact_tables_enabled",
    "drop_keyspace_enabled",
    "drop_truncate_table_enabled",
    "group_by_enabled",
    "intersect_filtering_query_enabled",
    "intersect_filtering_query_warned",
    "non_partition_restricted_index_query_enabled",
    "read_before_write_list_operations_enabled",
    "secondary_indexes_enabled",
    "simplestrategy_enabled",
    "uncompressed_tables_enabled",
    "user_timestamps_enabled",
    "vector_type_enabled",
    "zero_ttl_on_twcs_enabled",
    "zero_ttl_on_twcs_warned",
];

/// Two bounds of a figure, the options `…_warn_threshold` and `…_fail_threshold`.
const THRESHOLDS: &[&str] = &[
    "collection_size_threshold",
    "column_ascii_value_size_threshold",
    "column_blob_value_size_threshold",
    "column_text_and_varchar_value_size_threshold",
    "column_value_size_threshold",
    "columns_per_table_threshold",
    "fields_per_udt_threshold",
    "in_select_cartesian_product_threshold",
    "items_per_collection_threshold",
    "keyspaces_threshold",
    "materialized_views_per_table_threshold",
    "maximum_replication_factor_threshold",
    "maximum_timestamp_threshold",
    "minimum_replication_factor_threshold",
    "minimum_timestamp_threshold",
    "page_size_threshold",
    "partition_keys_in_select_threshold",
    "partition_size_threshold",
    "partition_tombstones_threshold",
    "sai_frozen_term_size_threshold",
    "sai_string_term_size_threshold",
    "sai_vector_term_size_threshold",
    "secondary_indexes_per_table_threshold",
    "tables_threshold",
    "vector_dimensions_threshold",
];

/// Lists of values.
const VALUES: &[&str] = &[
    "read_consistency_levels_disallowed",
    "read_consistency_levels_warned",
    "table_properties_disallowed",
    "table_properties_warned",
    "write_consistency_levels_disallowed",
    "write_consistency_levels_warned",
];

pub(super) const GETGUARDRAILSCONFIG: Verb = Verb {
    name: "getguardrailsconfig",
    about: "Print runtime configuration of guardrails",
    arguments: || {
        vec![
            Arg::new("category")
                .short('c')
                .long("category")
                // Cassandra's fourth category has no guardrail here.
                .value_parser(["values", "thresholds", "flags", "others"])
                .help("The category of guardrails to print"),
            Arg::new("expand")
                .long("expand")
                .action(ArgAction::SetTrue)
                .help("Print the names of the options in torc.yaml"),
            words("names", "The guardrails to print; all when not given"),
        ]
    },
    ask,
    show,
};

pub(super) const SETGUARDRAILSCONFIG: Verb = super::settings::setter(
    "setguardrailsconfig",
    "Modify runtime configuration of guardrails",
    || {
        vec![
            Arg::new("name").required(true).help("The guardrail, as getguardrailsconfig prints it"),
            Arg::new("values")
                .num_args(1..)
                .required(true)
                .allow_hyphen_values(true)
                .help("true or false; the failure and the warning threshold; or a list, separated by commas or blanks. null, [] and -1 reset"),
        ]
    },
    set,
);

/// The options of two bounds: that of the refusal first, as Cassandra prints them.
fn bounds(name: &str) -> [String; 2] {
    let base = name.strip_suffix("_threshold").unwrap_or(name);
    [format!("{base}_fail_threshold"), format!("{base}_warn_threshold")]
}

/// A setting as Cassandra prints one: `null` for one that is not set.
fn shown(api: &Api, name: &str) -> Result<String, Failure> {
    Ok(match setting(api, name)? {
        Value::String(text) if text.is_empty() || text == "0s" || text == "0ms" => "null".to_owned(),
        Value::String(text) => text,
        other => other.to_string(),
    })
}

fn ask(api: &Api, arguments: &ArgMatches) -> Result<Value, Failure> {
    let (wanted, category) = (given(arguments, "names"), arguments.get_one::<String>("category"));
    let all = [("flags", FLAGS), ("thresholds", THRESHOLDS), ("values", VALUES)];
    let known = || all.iter().flat_map(|(_, names)| names.iter());
    if let Some(unknown) = wanted.iter().find(|name| !known().any(|known| known == *name)) {
        return Err(format!("Guardrail {unknown} not found."));
    }
    let mut out = Vec::new();
    for (kind, names) in all.into_iter().filter(|(kind, _)| category.is_none_or(|only| only == kind)) {
        for name in names.iter().filter(|name| wanted.is_empty() || wanted.contains(name)) {
            let values: Vec<(String, String)> = match kind {
                "thresholds" => {
                    let [fail, warn] = bounds(name);
                    let values = (shown(api, &fail)?, shown(api, &warn)?);
                    vec![(fail, values.0), (warn, values.1)]
                }
                "values" => {
                    let text = setting(api, name)?.as_str().unwrap_or_default().to_owned();
                    vec![((*name).to_owned(), format!("[{text}]"))]
                }
                _ => vec![((*name).to_owned(), shown(api, name)?)],
            };
            out.push(json!({ "name": name, "values": values }));
        }
    }
    let is_one = wanted.len() == 1;
    Ok(json!({ "guardrails": out, "expand": arguments.get_flag("expand"), "one": is_one }))
}

fn show(answer: &Value) -> String {
    let mut grid = Grid::default();
    for guardrail in answer["guardrails"].as_array().into_iter().flatten() {
        let pairs: Vec<(&str, &str)> = guardrail["values"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|pair| Some((pair[0].as_str()?, pair[1].as_str()?)))
            .collect();
        let together = match pairs[..] {
            [(_, value)] => value.to_owned(),
            _ => format!("[{}]", pairs.iter().map(|(_, value)| *value).collect::<Vec<_>>().join(", ")),
        };
        match (answer["expand"] == true, answer["one"] == true) {
            (true, _) => pairs.iter().for_each(|(name, value)| grid.row([*name, *value])),
            (false, true) => return format!("{together}\n"),
            (false, false) => grid.row([guardrail["name"].as_str().unwrap_or_default(), &together]),
        }
    }
    grid.text(" ")
}

fn set(api: &Api, arguments: &ArgMatches) -> Result<Value, Failure> {
    let name = arguments.get_one::<String>("name").expect("it is required").as_str();
    let values = given(arguments, "values");
    let count = |wanted: usize| match values.len() == wanted {
        true => Ok(()),
        false => {
            Err(format!("{name} is expecting {wanted} argument values. Getting {} instead.", values.len()))
        }
    };
    if THRESHOLDS.contains(&name) {
        count(2)?;
        return set_bounds(api, name, values[0], values[1]);
    }
    if VALUES.contains(&name) {
        let list = values.join(",");
        return change(api, name, if matches!(&*list, "null" | "[]") { "" } else { &list });
    }
    count(1)?;
    if !FLAGS.contains(&name) {
        return Err(format!("Guardrail {name} not found."));
    }
    if !matches!(values[0], "true" | "false") {
        return Err("Use 'true' or 'false' values for booleans".to_owned());
    }
    change(api, name, values[0])
}

/// Changes two bounds: the warning is off meanwhile, as the node refuses one above the failure. When it refuses a value, both are as before.
fn set_bounds(api: &Api, name: &str, fail: &str, warn: &str) -> Result<Value, Failure> {
    let [fail_name, warn_name] = bounds(name);
    let before = |name: &str| {
        let value = setting(api, name)?;
        Ok::<_, Failure>(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    };
    let (fail_before, warn_before) = (before(&fail_name)?, before(&warn_name)?);
    // The form that turns a bound off differs: numbers have -1, times 0, sizes nothing.
    let off = match server::config::Config::option(&warn_name).map(|option| option.kind) {
        Ok("integer") => "-1",
        // Of times nothing is none; of sizes an empty text.
        Ok(_) if name.ends_with("_timestamp_threshold") => "0s",
        Ok(_) => "",
        Err(error) => return Err(error.to_string()),
    };
    let plain = |value: &str| if value == "null" { off.to_owned() } else { value.to_owned() };
    change(api, &warn_name, off)?;
    let changed = change(api, &fail_name, &plain(fail)).and_then(|_| change(api, &warn_name, &plain(warn)));
    if changed.is_err() {
        change(api, &fail_name, &fail_before)?;
        change(api, &warn_name, &warn_before)?;
    }
    changed
}

#[cfg(test)]
mod tests {
    use server::config::Config;

    use super::*;

    #[test]
    fn every_guardrail_is_an_option_that_changes_while_the_node_runs() {
        let thresholds = THRESHOLDS.iter().flat_map(|name| bounds(name));
        let single = [FLAGS, VALUES].concat().into_iter().map(str::to_owned);
        let names: Vec<String> = thresholds.chain(single).collect();
        for name in &names {
            let option = Config::option(name).unwrap_or_else(|error| panic!("{error}"));
            assert!(option.is_live, "{name}");
        }
        // Not guardrails in Cassandra's sense: they bind superusers too.
        let others = ["batch_size", "tombstone", "unlogged_batch", "compaction_"];
        let is_other = |name: &str| others.iter().any(|other| name.starts_with(other));
        let bounds = Config::OPTIONS.iter().map(|option| option.name).filter(|name| {
            (name.ends_with("_warn_threshold") || name.ends_with("_fail_threshold")) && !is_other(name)
        });
        for name in bounds {
            assert!(names.iter().any(|known| known == name), "{name} is not among the guardrails");
        }
        for list in [FLAGS, THRESHOLDS, VALUES] {
            assert!(list.is_sorted());
        }
    }
}
