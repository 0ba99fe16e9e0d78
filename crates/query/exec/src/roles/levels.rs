//! Service levels: CREATE, ALTER, DROP, ATTACH, DETACH and LIST, with ScyllaDB's attributes.

use std::time::Duration;

use auth::roles;
use cluster::SchemaEdit;
use cql::ast::{
    AlterServiceLevel, AttachServiceLevel, CreateServiceLevel, DetachServiceLevel, DropServiceLevel,
    ListServiceLevels, Property, PropertyValue,
};
use rt::Group;
use schema::{DEFAULT_SERVICE_LEVEL, SHARES_DEFAULT, ServiceLevel, WorkloadType};
use types::CqlType;
use types::duration::Duration as CqlDuration;

use super::changed::ChangedRoles;
use super::{RoleChange, RoleContext, rows};
use crate::ddl::option_value::string;
use crate::error::{Result, invalid, shown, syntax, unauthorized};
use crate::sink::{Outcome, RowSink, Sink};

/// The most shares of a service level.
const SHARES_MAX: u32 = 1000;
/// The longest name of a service level.
const NAME_LEN_MAX: usize = 256;

/// Refuses a change by a role that may not make it: with authorization it takes a superuser.
fn check(permission: &str, context: &RoleContext<'_>) -> Result<()> {
    let performer = &context.performer;
    if !performer.restricted || performer.access.is_superuser {
        return Ok(());
    }
    unauthorized(format!(
        "User {} has no {permission} permission on <all service levels> or any of its parents",
        performer.name
    ))
}

/// The text of an attribute; none for null, which resets it.
fn text(property: &Property) -> Result<Option<&str>> {
    match property.value {
        PropertyValue::Null => Ok(None),
        _ => string(property).map(|text| Some(text).filter(|text| !text.eq_ignore_ascii_case("null"))),
    }
}

fn timeout(text: &str) -> Result<Duration> {
    let Ok(duration) = CqlDuration::parse(text) else {
        return invalid!(
            "Invalid timeout value: {}; expected a duration such as 500ms, or null",
            shown(text)
        );
    };
    if duration.months != 0 || duration.days != 0 {
        return invalid!("Timeout values cannot be expressed in days/months");
    }
    if duration.nanos % 1_000_000 != 0 {
        return invalid!("Timeout values must be expressed in millisecond granularity");
    }
    match u64::try_from(duration.nanos) {
        Ok(nanos) => Ok(Duration::from_nanos(nanos)),
        Err(_) => invalid!("Timeout values must be nonnegative"),
    }
}

fn shares(text: &str) -> Result<u32> {
    let Ok(shares) = text.parse::<i32>() else {
        return syntax(format!("Invalid integer value {} for 'shares'", shown(text)));
    };
    match u32::try_from(shares) {
        Ok(shares) if (1..=SHARES_MAX).contains(&shares) => Ok(shares),
        _ => syntax(format!("'SHARES' can only take values of 1-{SHARES_MAX} (given {shares})")),
    }
}

/// Gives the level these attributes.
fn apply(properties: &[Property], level: &mut ServiceLevel) -> Result<()> {
    for property in properties {
        match property.name.as_str() {
            "timeout" => level.timeout = text(property)?.map(timeout).transpose()?,
            "shares" => level.shares = text(property)?.map_or(Ok(SHARES_DEFAULT), shares)?,
            "workload_type" => {
                level.workload = match text(property)? {
                    None => WorkloadType::Unspecified,
                    Some(name) => match WorkloadType::from_name(name) {
                        Some(workload) => workload,
                        None => return invalid!("Invalid workload type: {}", shown(name)),
                    },
                };
            }
            name => return syntax(format!("Unknown property '{}'", shown(name))),
        }
    }
    Ok(())
}

fn put(properties: &[Property], mut level: ServiceLevel) -> Result<RoleChange> {
    apply(properties, &mut level)?;
    Ok(RoleChange { edits: vec![SchemaEdit::PutServiceLevel(level)], warnings: Vec::new() })
}

fn missing<T>(name: &str) -> Result<T> {
    invalid!("Service Level {name} doesn't exists.")
}

pub(super) fn create(ast: &CreateServiceLevel, context: &RoleContext<'_>) -> Result<RoleChange> {
    check("CREATE", context)?;
    let name = &ast.name.name;
    if name.is_empty() || name.len() > NAME_LEN_MAX {
        return invalid!("The name of a service level must have 1 to {NAME_LEN_MAX} bytes");
    }
    if name == DEFAULT_SERVICE_LEVEL {
        return invalid!(
            "The name '{DEFAULT_SERVICE_LEVEL}' is that of the service level of roles without one"
        );
    }
    if context.schema.service_level(name).is_some() {
        if ast.if_not_exists {
            return Ok(RoleChange::default());
        }
        return invalid!("Service Level {name} already exists");
    }
    let levels = context.schema.service_levels().count();
    if levels >= Group::LEVELS.len() {
        return invalid!(
            "Can't create service level {name}: there are {levels}, and no more scheduling groups for their shares"
        );
    }
    put(&ast.properties, ServiceLevel::new(name.clone()))
}

pub(super) fn alter(ast: &AlterServiceLevel, context: &RoleContext<'_>) -> Result<RoleChange> {
    check("ALTER", context)?;
    match context.schema.service_level(&ast.name.name) {
        Some(level) => put(&ast.properties, ServiceLevel::clone(level)),
        None => missing(&ast.name.name),
    }
}

pub(super) fn drop(ast: &DropServiceLevel, context: &RoleContext<'_>) -> Result<RoleChange> {
    check("DROP", context)?;
    let name = &ast.name.name;
    if context.schema.service_level(name).is_none() {
        return if ast.if_exists { Ok(RoleChange::default()) } else { missing(name) };
    }
    let mut changed = ChangedRoles::new(context.schema);
    for role in context.schema.roles().filter(|role| role.service_level.as_ref() == Some(name)) {
        changed.change(&role.name, |role| role.service_level = None);
    }
    let mut edits = changed.edits();
    edits.push(SchemaEdit::DropServiceLevel(name.clone()));
    Ok(RoleChange { edits, warnings: Vec::new() })
}

/// Sets the level of a role, or removes it.
fn set(role: &str, level: Option<&str>, context: &RoleContext<'_>) -> Result<RoleChange> {
    check("AUTHORIZE", context)?;
    if context.schema.role(role).is_none() {
        return invalid!("Role {role} doesn't exist.");
    }
    if let Some(level) = level
        && context.schema.service_level(level).is_none()
    {
        return missing(level);
    }
    let mut changed = ChangedRoles::new(context.schema);
    changed.change(role, |role| role.service_level = level.map(str::to_owned));
    Ok(RoleChange { edits: changed.edits(), warnings: Vec::new() })
}

pub(super) fn attach(ast: &AttachServiceLevel, context: &RoleContext<'_>) -> Result<RoleChange> {
    set(&ast.role.name, Some(&ast.name.name), context)
}

pub(super) fn detach(ast: &DetachServiceLevel, context: &RoleContext<'_>) -> Result<RoleChange> {
    set(&ast.role.name, None, context)
}

/// The duration of CQL that a timeout is.
fn duration(timeout: Duration) -> CqlDuration {
    CqlDuration { months: 0, days: 0, nanos: i64::try_from(timeout.as_nanos()).unwrap_or(i64::MAX) }
}

/// Service levels; of all of them also their parts of the shares of all.
fn show_levels<S: Sink>(levels: &[&ServiceLevel], all: bool, sink: &mut S) {
    let columns = [
        ("service_level", CqlType::Text),
        ("timeout", CqlType::Duration),
        ("workload_type", CqlType::Text),
        ("shares", CqlType::Int),
        ("percentage of all service level shares", CqlType::Text),
    ];
    let total: u32 = levels.iter().map(|level| level.shares).sum();
    rows::rows(sink, "service_levels", &columns[..4 + usize::from(all)], |rows| {
        for level in levels {
            let workload = Some(level.workload).filter(|kind| *kind != WorkloadType::Unspecified);
            rows.cell(Some(level.name.as_bytes()));
            rows.cell(level.timeout.map(|timeout| duration(timeout).to_bytes()).as_deref());
            rows.cell(workload.map(|kind| kind.name().as_bytes()));
            rows.cell(Some(&i32::try_from(level.shares).unwrap_or(i32::MAX).to_be_bytes()));
            if all {
                let part = 100.0 * f64::from(level.shares) / f64::from(total);
                rows.cell(Some(format!("{part:.2}%").as_bytes()));
            }
            rows.end_row();
        }
    });
}

fn show_attached<'r, S: Sink>(attached: impl Iterator<Item = (&'r str, &'r str)>, sink: &mut S) {
    let columns = [("role", CqlType::Text), ("service_level", CqlType::Text)];
    rows::rows(sink, "role_attributes", &columns, |rows| {
        for (role, level) in attached {
            rows.cell(Some(role.as_bytes()));
            rows.cell(Some(level.as_bytes()));
            rows.end_row();
        }
    });
}

/// The combined levels of a role and of those granted to it , and the level that each attribute is of.
fn show_effective<S: Sink>(role: &str, context: &RoleContext<'_>, sink: &mut S) -> Result<()> {
    let effective = roles::service_level(context.schema, role);
    // Any level gives its shares.
    if effective.shares_of == DEFAULT_SERVICE_LEVEL {
        return invalid!("Role {role} doesn't have assigned any service level");
    }
    let columns = [
        ("service_level_option", CqlType::Text),
        ("effective_service_level", CqlType::Text),
        ("value", CqlType::Text),
    ];
    rows::rows(sink, "effective_service_level", &columns, |rows| {
        let timeout = effective.level.timeout.map(|timeout| duration(timeout).format());
        for (option, of, value) in [
            ("workload_type", &effective.workload_of, Some(effective.level.workload.name().to_owned())),
            ("timeout", &effective.timeout_of, timeout),
            ("shares", &effective.shares_of, Some(effective.level.shares.to_string())),
        ] {
            rows.cell(Some(option.as_bytes()));
            rows.cell(Some(of.as_bytes()));
            rows.cell(value.as_deref().map(str::as_bytes));
            rows.end_row();
        }
    });
    Ok(())
}

/// LIST SERVICE LEVEL in its forms.
pub(super) fn list<S: Sink>(
    ast: &ListServiceLevels,
    context: &RoleContext<'_>,
    sink: &mut S,
) -> Result<Outcome> {
    check("DESCRIBE", context)?;
    let known = |role: &str| match context.schema.role(role) {
        Some(known) => Ok(known),
        None => invalid!("Role {role} doesn't exist."),
    };
    match ast {
        ListServiceLevels::One(name) => match context.schema.service_level(&name.name) {
            Some(level) => show_levels(&[&**level], false, sink),
            None => return missing(&name.name),
        },
        ListServiceLevels::All => {
            let levels: Vec<_> = context.schema.service_levels().map(|level| &**level).collect();
            show_levels(&levels, true, sink);
        }
        ListServiceLevels::AttachedTo(role) => {
            let role = known(&role.name)?;
            let level = role.service_level.as_deref();
            show_attached(level.map(|level| (role.name.as_str(), level)).into_iter(), sink);
        }
        ListServiceLevels::AllAttached => {
            let roles: Vec<_> = context.schema.roles().filter(|role| role.service_level.is_some()).collect();
            let pairs = roles.iter().map(|role| {
                (role.name.as_str(), role.service_level.as_deref().unwrap_or(DEFAULT_SERVICE_LEVEL))
            });
            show_attached(pairs, sink);
        }
        ListServiceLevels::EffectiveOf(role) => {
            known(&role.name)?;
            show_effective(&role.name, context, sink)?;
        }
    }
    Ok(Outcome::Rows)
}
