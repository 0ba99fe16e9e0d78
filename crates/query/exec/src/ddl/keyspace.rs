//! CREATE, ALTER and DROP KEYSPACE.

use std::collections::{BTreeMap, BTreeSet};

use crate::sink::{ChangeType, SchemaTarget};
use cluster::SchemaEdit;
use cql::ast::{AlterKeyspace, CreateKeyspace, DropKeyspace, Property};
use schema::{Keyspace, Replication};

use super::{DdlContext, Outcome, check_name, check_not_system, option_value};
use crate::error::{ExecError, Result, config, invalid, shown};

const PACKAGE: &str = "org.apache.cassandra.locator.";
const MORE_COPIES: &str =
    "When increasing replication factor you need to run a full (-full) repair to distribute the data.";

struct Settings {
    replication: Option<Replication>,
    durable_writes: Option<bool>,
}

/// Reads the properties of a keyspace. `old` is its replication before, from which ALTER takes omitted properties.
fn settings(
    name: &str,
    properties: &[Property],
    old: Option<&Replication>,
    context: &DdlContext<'_>,
) -> Result<Settings> {
    let mut out = Settings { replication: None, durable_writes: None };
    for property in properties {
        match property.name.as_str() {
            "replication" => {
                out.replication = Some(replication(name, option_value::map(property)?, old, context)?);
            }
            "durable_writes" => out.durable_writes = Some(option_value::boolean(property)?),
            // Tablets are a matter of placement, which this keyspace leaves to the ring.
            "tablets" => {
                let map = option_value::map(property)?;
                let off = |(name, value): (&String, &String)| {
                    name == "enabled" && value.eq_ignore_ascii_case("false")
                };
                if !map.iter().all(off) {
                    return Err(ExecError::Config(
                        "Tablets are not supported: replicas are placed by virtual nodes. Use tablets = {'enabled': false}"
                            .to_owned(),
                    ));
                }
            }
            // Every keyspace is eventually consistent; ScyllaDB's other values need tablets.
            "consistency" => {
                let value = option_value::string(property)?;
                if !value.eq_ignore_ascii_case("eventual") {
                    return config(format!(
                        "consistency = '{}' is not supported: use 'eventual'",
                        shown(value)
                    ));
                }
            }
            "storage" => {
                return config(
                    "storage is not supported: SSTables are files of the node. Leave the option out",
                );
            }
            other => return unknown(other),
        }
    }
    Ok(out)
}

fn unknown<T>(property: &str) -> Result<T> {
    Err(ExecError::Syntax(format!("Unknown property '{property}'")))
}

/// Refuses unknown properties, which is done before the keyspace is looked for.
fn check_known(properties: &[Property]) -> Result<()> {
    let known = ["replication", "durable_writes", "tablets", "consistency", "storage"];
    match properties.iter().find(|property| !known.contains(&property.name.as_str())) {
        Some(property) => unknown(&property.name),
        None => Ok(()),
    }
}

fn factor(text: &str) -> Result<u32> {
    // `3/1` asks for transient replicas.
    if text.contains('/') {
        return Err(ExecError::Config("Transient replication is not enabled on this node".to_owned()));
    }
    match text.parse::<i32>() {
        Ok(value) => match u32::try_from(value) {
            Ok(value) => Ok(value),
            Err(_) => {
                Err(ExecError::Config(format!("Replication factor must be non-negative, found {value}")))
            }
        },
        Err(_) => Err(ExecError::Config(format!("For input string: \"{}\"", shown(text)))),
    }
}

fn replication(
    keyspace: &str,
    mut map: BTreeMap<String, String>,
    old: Option<&Replication>,
    context: &DdlContext<'_>,
) -> Result<Replication> {
    let class = match map.remove("class") {
        Some(class) => class,
        None if old.is_none() => return without_class(keyspace, map, context),
        None => return Err(ExecError::Config("Missing replication strategy class".to_owned())),
    };
    let short = class.strip_prefix(PACKAGE).unwrap_or(&class);
    // A factor without a datacenter that was given, or else the one before.
    let given = map.remove("replication_factor");
    let before = || match old {
        Some(Replication::Simple { factor }) => *factor,
        _ => context.default_keyspace_rf,
    };
    match short {
        "SimpleStrategy" => {
            if let Some(option) = map.keys().next() {
                return Err(unknown_option(option, "SimpleStrategy", keyspace));
            }
            Ok(Replication::Simple { factor: given.map_or(Ok(before()), |text| factor(&text))? })
        }
        "NetworkTopologyStrategy" => {
            let everywhere = given.or_else(|| map.is_empty().then(|| before().to_string()));
            network_topology(keyspace, &map, everywhere.as_deref(), old, context)
        }
        "EverywhereStrategy" => Ok(Replication::Everywhere),
        "LocalStrategy" => {
            invalid!("Unable to use given strategy class: LocalStrategy is reserved for internal use.")
        }
        "OldNetworkTopologyStrategy" => Err(ExecError::Config(
            "The support for the OldNetworkTopologyStrategy has been removed in C* version 4.0. The keyspace strategy should \
             be switch to NetworkTopologyStrategy"
                .to_owned(),
        )),
        _ => Err(ExecError::Config(format!(
            "Unable to find replication strategy class '{}{}'",
            if class.contains('.') { "" } else { PACKAGE },
            shown(&class)
        ))),
    }
}

/// The replication of a new keyspace that names no strategy, as in ScyllaDB: by datacenters, and where it gives no factor either, as many copies
/// in each as it has racks.
fn without_class(
    keyspace: &str,
    mut map: BTreeMap<String, String>,
    context: &DdlContext<'_>,
) -> Result<Replication> {
    let everywhere = map.remove("replication_factor");
    if everywhere.is_none() && map.is_empty() {
        let racks = context.view.rack_counts();
        map.extend(racks.into_iter().map(|(datacenter, racks)| (datacenter.to_owned(), racks.to_string())));
    }
    network_topology(keyspace, &map, everywhere.as_deref(), None, context)
}

fn unknown_option(option: &str, strategy: &str, keyspace: &str) -> ExecError {
    ExecError::Config(format!(
        "Unrecognized strategy option {{{}}} passed to {strategy} for keyspace {keyspace}",
        shown(option)
    ))
}

/// The factors of the datacenters that are named. A factor for all others leaves those alone that have one already, so that
/// nobody loses copies by it.
fn network_topology(
    keyspace: &str,
    named: &BTreeMap<String, String>,
    everywhere: Option<&str>,
    old: Option<&Replication>,
    context: &DdlContext<'_>,
) -> Result<Replication> {
    let known = context.view.datacenter_sizes();
    let mut factors = BTreeMap::new();
    let mut none = BTreeSet::new();
    for (datacenter, text) in named {
        match factor(text)? {
            0 => {
                none.insert(datacenter.as_str());
            }
            copies => {
                factors.insert(datacenter.clone(), copies);
            }
        }
    }
    if let Some(everywhere) = everywhere {
        if let Some(Replication::NetworkTopology { factors: old }) = old {
            for (datacenter, copies) in
                old.iter().filter(|(datacenter, _)| !none.contains(datacenter.as_str()))
            {
                factors.entry(datacenter.clone()).or_insert(*copies);
            }
        }
        // As in Cassandra, it is not looked at where every datacenter has a factor.
        for datacenter in known.keys().filter(|datacenter| !none.contains(*datacenter)) {
            if !factors.contains_key(*datacenter) && factor(everywhere)? > 0 {
                factors.insert((*datacenter).to_owned(), factor(everywhere)?);
            }
        }
    }
    if factors.is_empty() {
        return Err(ExecError::Config(
            "Configuration for at least one datacenter must be present".to_owned(),
        ));
    }
    match factors.keys().find(|datacenter| !known.contains_key(datacenter.as_str())) {
        Some(datacenter) => Err(unknown_option(datacenter, "NetworkTopologyStrategy", keyspace)),
        None => Ok(Replication::NetworkTopology { factors }),
    }
}

/// The warnings about more copies than there are nodes.
fn warnings(keyspace: &str, replication: &Replication, context: &DdlContext<'_>) -> Vec<String> {
    let warning = |copies: u32, nodes: usize| {
        (copies as usize > nodes).then(|| {
            format!(
                "Your replication factor {copies} for keyspace {keyspace} is higher than the number of nodes {nodes}"
            )
        })
    };
    match replication {
        Replication::Simple { factor } => {
            warning(*factor, context.view.members().len()).into_iter().collect()
        }
        Replication::NetworkTopology { factors } => {
            let sizes = context.view.datacenter_sizes();
            let of = |(datacenter, copies): (&String, &u32)| {
                let nodes = sizes.get(datacenter.as_str()).copied().unwrap_or(0);
                warning(*copies, nodes).map(|text| format!("{text} for datacenter {datacenter}"))
            };
            factors.iter().filter_map(of).collect()
        }
        Replication::Local | Replication::Everywhere => Vec::new(),
    }
}

/// How many copies there are in all.
fn copies(replication: &Replication, context: &DdlContext<'_>) -> usize {
    match replication {
        Replication::Local => 1,
        Replication::Everywhere => context.view.members().len(),
        Replication::Simple { factor } => *factor as usize,
        Replication::NetworkTopology { factors } => factors.values().map(|copies| *copies as usize).sum(),
    }
}

pub(super) fn create(ast: &CreateKeyspace, context: &DdlContext<'_>) -> Result<Outcome> {
    let name = &ast.name.name;
    if context.lookup.keyspace(name).is_some_and(|keyspace| keyspace.system) {
        return invalid!("System keyspace '{name}' is not user-modifiable");
    }
    check_name(name, "Keyspace").map_err(ExecError::Invalid)?;
    check_known(&ast.properties)?;
    if context.lookup.keyspace(name).is_some() {
        if ast.if_not_exists {
            return Ok(Outcome::nothing());
        }
        return Err(ExecError::AlreadyExists { keyspace: name.clone(), table: String::new() });
    }
    let settings = settings(name, &ast.properties, None, context)?;
    let replication = match settings.replication {
        Some(replication) => replication,
        None => without_class(name, BTreeMap::new(), context)?,
    };
    let warnings = warnings(name, &replication, context);
    let mut keyspace = Keyspace::new(name.clone(), replication);
    keyspace.durable_writes = settings.durable_writes.unwrap_or(true);
    let mut outcome = Outcome::new(ChangeType::Created, name, SchemaTarget::Keyspace);
    outcome.edits.push(SchemaEdit::PutKeyspace(keyspace));
    outcome.warnings = warnings;
    Ok(outcome)
}

/// Keyspaces of the server to which operators of Cassandra give a factor once they have installed it.
pub(super) const REPLICATED_IN_CASSANDRA: [&str; 3] = ["system_auth", "system_distributed", "system_traces"];

pub(super) fn alter(ast: &AlterKeyspace, context: &DdlContext<'_>) -> Result<Outcome> {
    let name = &ast.name.name;
    if REPLICATED_IN_CASSANDRA.contains(&name.as_str()) {
        settings(name, &ast.properties, Some(&Replication::Local), context)?;
        let warning = format!(
            "ALTER KEYSPACE {name} changes nothing: each node has the keyspace, which needs no replication of its own"
        );
        return Ok(Outcome { warnings: vec![warning], ..Outcome::nothing() });
    }
    check_not_system(context, name)?;
    let old = context.lookup.schema.keyspace(name);
    let settings = settings(name, &ast.properties, old.map(|old| &old.replication), context)?;
    let Some(old) = old else {
        if ast.if_exists {
            return Ok(Outcome::nothing());
        }
        return invalid!("Keyspace '{name}' doesn't exist");
    };
    let mut keyspace = Keyspace::clone(old);
    let mut outcome = Outcome::new(ChangeType::Updated, name, SchemaTarget::Keyspace);
    if let Some(replication) = settings.replication {
        outcome.warnings = warnings(name, &replication, context);
        if copies(&old.replication, context) < copies(&replication, context) {
            outcome.warnings.push(MORE_COPIES.to_owned());
        }
        keyspace.replication = replication;
    }
    keyspace.durable_writes = settings.durable_writes.unwrap_or(keyspace.durable_writes);
    outcome.edits.push(SchemaEdit::PutKeyspace(keyspace));
    Ok(outcome)
}

pub(super) fn drop(ast: &DropKeyspace, context: &DdlContext<'_>) -> Result<Outcome> {
    let name = &ast.name.name;
    check_not_system(context, name)?;
    if context.lookup.schema.keyspace(name).is_none() {
        if ast.if_exists {
            return Ok(Outcome::nothing());
        }
        return invalid!("Keyspace '{name}' doesn't exist");
    }
    let mut outcome = Outcome::new(ChangeType::Dropped, name, SchemaTarget::Keyspace);
    outcome.edits.push(SchemaEdit::DropKeyspace(name.clone()));
    Ok(outcome)
}
