//! CREATE, ALTER and DROP KEYSPACE.

use std::collections::BTreeMap;

use cluster::SchemaEdit;
use cql::ast::{AlterKeyspace, CreateKeyspace, DropKeyspace, Property};
use schema::{Keyspace, Replication};
use wire::{ChangeType, SchemaTarget};

use super::{DdlContext, Outcome, check_name, check_not_system, options};
use crate::error::{ExecError, Result, invalid};

const PACKAGE: &str = "org.apache.cassandra.locator.";

struct Settings {
    replication: Option<Replication>,
    durable_writes: Option<bool>,
}

/// Reads the properties of a keyspace. `old` is its replication before, whose factors ALTER keeps.
fn settings(name: &str, properties: &[Property], context: &DdlContext<'_>) -> Result<Settings> {
    let mut out = Settings { replication: None, durable_writes: None };
    for property in properties {
        match property.name.as_str() {
            "replication" => out.replication = Some(replication(name, options::map(property)?, context)?),
            "durable_writes" => out.durable_writes = Some(options::boolean(property)?),
            // Tablets are a matter of placement, which this keyspace leaves to the ring.
            "tablets" => return Err(ExecError::unsupported("The keyspace option 'tablets'")),
            other => return Err(ExecError::Syntax(format!("Unknown property '{other}'"))),
        }
    }
    Ok(out)
}

fn factor(text: &str) -> Result<u32> {
    // `3/1` asks for transient replicas.
    if text.contains('/') {
        return Err(ExecError::unsupported("Transient replication"));
    }
    match text.parse::<i32>() {
        Ok(value) => match u32::try_from(value) {
            Ok(value) => Ok(value),
            Err(_) => {
                Err(ExecError::Config(format!("Replication factor must be non-negative, found {value}")))
            }
        },
        Err(_) => Err(ExecError::Config(format!("For input string: \"{text}\""))),
    }
}

fn replication(
    keyspace: &str,
    mut map: BTreeMap<String, String>,
    context: &DdlContext<'_>,
) -> Result<Replication> {
    let Some(class) = map.remove("class") else {
        return Err(ExecError::Config("Missing replication strategy class".to_owned()));
    };
    let short = class.strip_prefix(PACKAGE).unwrap_or(&class);
    let unknown = |option: &str, strategy: &str| {
        Err(ExecError::Config(format!(
            "Unrecognized strategy option {{{option}}} passed to {strategy} for keyspace {keyspace}"
        )))
    };
    match short {
        "SimpleStrategy" => {
            let given = map.remove("replication_factor");
            if let Some(option) = map.keys().next() {
                return unknown(option, "SimpleStrategy");
            }
            Ok(Replication::Simple { factor: given.map_or(Ok(1), |text| factor(&text))? })
        }
        "NetworkTopologyStrategy" => {
            let mut factors = BTreeMap::new();
            let everywhere = map.remove("replication_factor").map(|text| factor(&text)).transpose()?;
            for (datacenter, text) in &map {
                if !context.node.datacenters.contains(datacenter) {
                    return unknown(datacenter, "NetworkTopologyStrategy");
                }
                factors.insert(datacenter.clone(), factor(text)?);
            }
            for datacenter in &context.node.datacenters {
                if everywhere.is_some() || map.is_empty() {
                    factors.entry(datacenter.clone()).or_insert(everywhere.unwrap_or(1));
                }
            }
            Ok(Replication::NetworkTopology { factors })
        }
        "EverywhereStrategy" => Ok(Replication::Everywhere),
        "LocalStrategy" => Err(ExecError::Config(
            "Unable to use given strategy class: LocalStrategy is reserved for internal use.".to_owned(),
        )),
        _ => Err(ExecError::Config(format!(
            "Unable to find replication strategy class '{}'",
            if class.contains('.') { class.clone() } else { format!("{PACKAGE}{class}") }
        ))),
    }
}

/// The warning about more copies than there are nodes.
fn warning(keyspace: &str, replication: &Replication, context: &DdlContext<'_>) -> Option<String> {
    let copies = match replication {
        Replication::Simple { factor } => *factor as usize,
        Replication::NetworkTopology { factors } => {
            let most = factors.values().copied().max().unwrap_or(0) as usize;
            return (most > context.node.nodes).then(|| {
                let datacenter = factors.iter().find(|(_, n)| **n as usize == most).map_or("", |(dc, _)| dc);
                format!(
                    "Your replication factor {most} for keyspace {keyspace} is higher than the number of nodes {} for \
                     datacenter {datacenter}",
                    context.node.nodes
                )
            });
        }
        Replication::Local | Replication::Everywhere => return None,
    };
    (copies > context.node.nodes).then(|| {
        format!(
            "Your replication factor {copies} for keyspace {keyspace} is higher than the number of nodes {}",
            context.node.nodes
        )
    })
}

pub(super) fn create(ast: &CreateKeyspace, context: &DdlContext<'_>) -> Result<Outcome> {
    let name = &ast.name.name;
    if context.lookup.keyspace(name).is_some_and(|keyspace| keyspace.system) {
        return invalid!("System keyspace '{name}' is not user-modifiable");
    }
    check_name(name, "Keyspace").map_err(ExecError::Invalid)?;
    let settings = settings(name, &ast.properties, context)?;
    let Some(replication) = settings.replication else {
        return invalid!("Missing mandatory option 'replication'");
    };
    if context.lookup.keyspace(name).is_some() {
        if ast.if_not_exists {
            return Ok(Outcome::nothing());
        }
        return Err(ExecError::AlreadyExists { keyspace: name.clone(), table: String::new() });
    }
    let warning = warning(name, &replication, context);
    let mut keyspace = Keyspace::new(name.clone(), replication);
    keyspace.durable_writes = settings.durable_writes.unwrap_or(true);
    let mut outcome = Outcome::new(ChangeType::Created, name, SchemaTarget::Keyspace);
    outcome.edits.push(SchemaEdit::PutKeyspace(keyspace));
    outcome.warnings.extend(warning);
    Ok(outcome)
}

pub(super) fn alter(ast: &AlterKeyspace, context: &DdlContext<'_>) -> Result<Outcome> {
    let name = &ast.name.name;
    check_not_system(context, name)?;
    let settings = settings(name, &ast.properties, context)?;
    let Some(old) = context.lookup.schema.keyspace(name) else {
        if ast.if_exists {
            return Ok(Outcome::nothing());
        }
        return invalid!("Keyspace '{name}' doesn't exist");
    };
    let mut keyspace = Keyspace::clone(old);
    let mut outcome = Outcome::new(ChangeType::Updated, name, SchemaTarget::Keyspace);
    if let Some(replication) = settings.replication {
        outcome.warnings.extend(warning(name, &replication, context));
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
