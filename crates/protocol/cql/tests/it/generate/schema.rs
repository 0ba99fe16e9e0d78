//! Statements about the schema, roles and service levels, and the choice of any statement.

use std::collections::BTreeSet;

use cql::ast::*;

use super::dml::{filter, selection};
use super::terms::*;
use super::{Entropy, dml, name, text};

/// Any statement.
pub fn statement(e: &mut Entropy) -> Statement {
    match e.below(5) {
        0 | 1 => dml::statement(e),
        2 => table_statement(e),
        3 => other_schema_statement(e),
        _ => access_statement(e),
    }
}

fn constant_map(e: &mut Entropy) -> Vec<(Constant, Constant)> {
    let mut seen = BTreeSet::new();
    let mut entries = e.list(0, |e| (constant(e), constant(e)));
    entries.retain(|(key, _)| seen.insert(key.text().to_owned()));
    entries
}

fn properties(e: &mut Entropy, least: usize) -> Vec<Property> {
    let mut seen = BTreeSet::new();
    let mut properties = e.list(least, |e| Property {
        name: name(e),
        value: match e.below(4) {
            0 => PropertyValue::Constant(constant(e)),
            1 => PropertyValue::Keyword(e.of(&["all", "ttl", "int", "default"]).to_owned()),
            2 => PropertyValue::Null,
            _ => PropertyValue::Map(constant_map(e)),
        },
        pos: Pos::default(),
    });
    properties.retain(|property| seen.insert(property.name.clone()));
    properties
}

fn primary_key(e: &mut Entropy) -> PrimaryKey {
    PrimaryKey { partition: e.list(1, ident), clustering: e.list(0, ident), pos: Pos::default() }
}

fn order(e: &mut Entropy) -> Vec<(Ident, Direction)> {
    e.list(0, |e| (ident(e), e.of(&[Direction::Ascending, Direction::Descending])))
}

fn mask(e: &mut Entropy) -> Mask {
    match e.maybe(qualified) {
        Some(function) => Mask { function: Some(function), args: e.list(0, term) },
        None => Mask { function: None, args: Vec::new() },
    }
}

fn value(e: &mut Entropy) -> Term {
    Term::new(TermKind::Constant(constant(e)))
}

fn constraint(e: &mut Entropy) -> Constraint {
    let operator = e.of(&[ComparisonOperator::Equal, ComparisonOperator::GreaterOrEqual]);
    match e.below(3) {
        0 => Constraint::NotNull,
        1 => Constraint::Scalar { column: e.maybe(ident), operator, value: value(e) },
        _ => Constraint::Function {
            name: ident(e),
            args: e.list(0, |e| match e.chance() {
                true => ConstraintArgument::Column(ident(e)),
                false => ConstraintArgument::Value(value(e)),
            }),
            comparison: e.maybe(|e| (operator, value(e))),
        },
    }
}

fn column_definition(e: &mut Entropy) -> ColumnDefinition {
    ColumnDefinition {
        name: ident(e),
        data_type: data_type(e),
        is_ttl: e.below(4) == 3,
        is_static: e.chance(),
        mask: e.maybe(mask),
        constraints: if e.below(5) == 4 { e.list(1, constraint) } else { Vec::new() },
    }
}

fn table_statement(e: &mut Entropy) -> Statement {
    match e.below(4) {
        0 => Statement::CreateTable(CreateTable {
            if_not_exists: e.chance(),
            name: qualified(e),
            columns: e.list(1, column_definition),
            primary_keys: e.list(0, primary_key),
            clustering_order: order(e),
            compact_storage: e.chance(),
            properties: properties(e, 0),
        }),
        1 => Statement::AlterTable(AlterTable {
            if_exists: e.chance(),
            name: qualified(e),
            operation: alter_table_operation(e),
        }),
        2 => Statement::CopyTable(CopyTable {
            if_not_exists: e.chance(),
            name: qualified(e),
            source: qualified(e),
            options: e.list(0, ident),
            properties: properties(e, 0),
        }),
        _ => Statement::DropTable(DropTable { if_exists: e.chance(), name: qualified(e) }),
    }
}

fn alter_table_operation(e: &mut Entropy) -> AlterTableOperation {
    match e.below(9) {
        0 => AlterTableOperation::AlterType { column: column(e), data_type: data_type(e) },
        1 => AlterTableOperation::Mask { if_exists: e.chance(), column: column(e), mask: e.maybe(mask) },
        2 => AlterTableOperation::Constrain {
            if_exists: e.chance(),
            column: column(e),
            constraints: e.list(0, constraint),
        },
        3 => AlterTableOperation::Add { if_not_exists: e.chance(), columns: e.list(1, column_definition) },
        4 => AlterTableOperation::Drop {
            if_exists: e.chance(),
            columns: e.list(1, ident),
            timestamp: e.maybe(|e| e.of(&[0, -1, i64::MAX])),
        },
        5 => AlterTableOperation::Rename {
            if_exists: e.chance(),
            columns: e.list(1, |e| (ident(e), ident(e))),
        },
        6 => AlterTableOperation::DropCompactStorage,
        7 => AlterTableOperation::Ttl(e.maybe(column)),
        _ => AlterTableOperation::With(properties(e, 1)),
    }
}

fn other_schema_statement(e: &mut Entropy) -> Statement {
    match e.below(16) {
        0 => Statement::CreateKeyspace(CreateKeyspace {
            if_not_exists: e.chance(),
            name: ident(e),
            properties: properties(e, 1),
        }),
        1 => Statement::AlterKeyspace(AlterKeyspace {
            if_exists: e.chance(),
            name: ident(e),
            properties: properties(e, 1),
        }),
        2 => Statement::DropKeyspace(DropKeyspace { if_exists: e.chance(), name: ident(e) }),
        3 => Statement::CreateType(CreateType {
            if_not_exists: e.chance(),
            name: qualified(e),
            fields: e.list(1, |e| (ident(e), data_type(e))),
        }),
        4 => Statement::AlterType(AlterType {
            if_exists: e.chance(),
            name: qualified(e),
            operation: match e.below(3) {
                0 => AlterTypeOperation::AlterField { field: ident(e), data_type: data_type(e) },
                1 => AlterTypeOperation::Add {
                    if_not_exists: e.chance(),
                    field: ident(e),
                    data_type: data_type(e),
                },
                _ => AlterTypeOperation::Rename {
                    if_exists: e.chance(),
                    fields: e.list(1, |e| (ident(e), ident(e))),
                },
            },
        }),
        5 => Statement::DropType(DropType { if_exists: e.chance(), name: qualified(e) }),
        6 => Statement::CreateIndex(CreateIndex {
            custom: e.chance(),
            if_not_exists: e.chance(),
            name: e.maybe(ident),
            table: qualified(e),
            targets: e.list(0, |e| match e.below(6) {
                0 => IndexTarget::Column(column(e)),
                1 => IndexTarget::Values(column(e)),
                2 => IndexTarget::Keys(column(e)),
                3 => IndexTarget::Entries(column(e)),
                4 => IndexTarget::Full(column(e)),
                _ => IndexTarget::PartitionKey(e.list(1, column)),
            }),
            using: e.maybe(text),
            properties: properties(e, 0),
        }),
        7 => Statement::DropIndex(DropIndex { if_exists: e.chance(), name: qualified(e) }),
        8 => Statement::CreateView(CreateView {
            if_not_exists: e.chance(),
            name: qualified(e),
            selection: selection(e),
            base: qualified(e),
            filter: filter(e, 0),
            primary_key: primary_key(e),
            clustering_order: order(e),
            properties: properties(e, 0),
        }),
        9 => Statement::AlterView(AlterView {
            if_exists: e.chance(),
            name: qualified(e),
            properties: properties(e, 1),
        }),
        10 => Statement::DropView(DropView { if_exists: e.chance(), name: qualified(e) }),
        _ => program_statement(e),
    }
}

fn program_statement(e: &mut Entropy) -> Statement {
    match e.below(9) {
        0 => Statement::CreateFunction(CreateFunction {
            or_replace: e.chance(),
            if_not_exists: e.chance(),
            name: qualified(e),
            args: e.list(0, |e| (ident(e), data_type(e))),
            called_on_null_input: e.chance(),
            returns: data_type(e),
            language: e.of(&["java", "lua"]).to_owned(),
            body: text(e),
        }),
        1 => Statement::DropFunction(DropFunction {
            if_exists: e.chance(),
            name: qualified(e),
            args: e.maybe(|e| e.list(0, data_type)),
        }),
        2 => Statement::CreateAggregate(CreateAggregate {
            or_replace: e.chance(),
            if_not_exists: e.chance(),
            name: qualified(e),
            args: e.list(0, data_type),
            state_function: name(e),
            state_type: data_type(e),
            reduce_function: e.maybe(name),
            final_function: e.maybe(name),
            initial_condition: e.maybe(term),
        }),
        3 => Statement::DropAggregate(DropAggregate {
            if_exists: e.chance(),
            name: qualified(e),
            args: e.maybe(|e| e.list(0, data_type)),
        }),
        4 => Statement::CreateTrigger(CreateTrigger {
            if_not_exists: e.chance(),
            name: ident(e),
            table: qualified(e),
            class: text(e),
        }),
        5 => {
            Statement::DropTrigger(DropTrigger { if_exists: e.chance(), name: ident(e), table: qualified(e) })
        }
        6 => Statement::CommentOn(CommentOn { subject: described(e), comment: e.maybe(text) }),
        7 => Statement::SecurityLabel(SecurityLabel {
            provider: e.maybe(ident),
            subject: described(e),
            label: e.maybe(text),
        }),
        _ => {
            let (target, with_internals) = (describe_target(e), e.chance());
            let whole = matches!(target, DescribeTarget::Schema { .. });
            let with_passwords = whole && with_internals && e.chance();
            Statement::Describe(Describe { target, with_internals, with_passwords })
        }
    }
}

fn described(e: &mut Entropy) -> CommentSubject {
    match e.below(5) {
        0 => CommentSubject::Keyspace(ident(e)),
        1 => CommentSubject::Table(qualified(e)),
        2 => CommentSubject::Column(qualified(e), ident(e)),
        3 => CommentSubject::Type(qualified(e)),
        _ => CommentSubject::Field(qualified(e), ident(e)),
    }
}

fn describe_target(e: &mut Entropy) -> DescribeTarget {
    match e.below(15) {
        0 => DescribeTarget::Cluster,
        1 => DescribeTarget::Schema { full: e.chance() },
        2 => DescribeTarget::Keyspaces,
        3 => DescribeTarget::Keyspace { name: e.maybe(ident), only: e.chance() },
        4 => DescribeTarget::Tables,
        5 => DescribeTarget::Table(qualified(e)),
        6 => DescribeTarget::Index(qualified(e)),
        7 => DescribeTarget::View(qualified(e)),
        8 => DescribeTarget::Types,
        9 => DescribeTarget::Type(qualified(e)),
        10 => DescribeTarget::Functions,
        11 => DescribeTarget::Function(qualified(e)),
        12 => DescribeTarget::Aggregates,
        13 => DescribeTarget::Aggregate(qualified(e)),
        _ => DescribeTarget::Named(qualified(e)),
    }
}

fn role(e: &mut Entropy) -> RoleName {
    RoleName::new(if e.below(10) == 9 { String::new() } else { name(e) })
}

fn password(e: &mut Entropy) -> Password {
    match e.below(3) {
        0 => Password::Plain(text(e)),
        1 => Password::Hashed(text(e)),
        _ => Password::Generated,
    }
}

fn role_options(e: &mut Entropy) -> Vec<RoleOption> {
    let mut options = Vec::new();
    options.extend(e.maybe(|e| RoleOption::Password(password(e))));
    options.extend(e.maybe(|e| RoleOption::Superuser(e.chance())));
    options.extend(e.maybe(|e| RoleOption::Login(e.chance())));
    options.extend(e.maybe(|e| RoleOption::Options(constant_map(e))));
    options.extend(e.maybe(|e| RoleOption::Datacenters(e.maybe(|e| e.list(1, text)))));
    options.extend(e.maybe(|e| RoleOption::Cidrs(e.maybe(|e| e.list(1, text)))));
    options
}

fn permissions(e: &mut Entropy) -> Permissions {
    if e.chance() { Permissions::All } else { Permissions::List(e.list(1, |e| e.of(&Permission::ALL))) }
}

fn resource(e: &mut Entropy) -> Resource {
    match e.below(12) {
        0 => Resource::AllKeyspaces,
        1 => Resource::Keyspace(ident(e)),
        2 => Resource::AllTables(ident(e)),
        3 => Resource::Table(qualified(e)),
        4 => Resource::AllRoles,
        5 => Resource::Role(role(e)),
        6 => Resource::AllFunctions,
        7 => Resource::AllFunctionsIn(ident(e)),
        8 => Resource::Function(qualified(e), e.list(0, data_type)),
        9 => Resource::AllMbeans,
        10 => Resource::Mbean(text(e)),
        _ => Resource::Mbeans(text(e)),
    }
}

fn access_statement(e: &mut Entropy) -> Statement {
    match e.below(16) {
        0 => Statement::CreateRole(CreateRole {
            if_not_exists: e.chance(),
            name: role(e),
            options: role_options(e),
        }),
        1 => {
            Statement::AlterRole(AlterRole { if_exists: e.chance(), name: role(e), options: role_options(e) })
        }
        2 => Statement::DropRole(DropRole { if_exists: e.chance(), name: role(e) }),
        3 => Statement::CreateUser(CreateUser {
            if_not_exists: e.chance(),
            name: role(e),
            password: e.maybe(password),
            superuser: e.chance(),
        }),
        4 => Statement::AlterUser(AlterUser {
            if_exists: e.chance(),
            name: role(e),
            password: e.maybe(password),
            superuser: e.maybe(Entropy::chance),
        }),
        5 => Statement::DropUser(DropUser { if_exists: e.chance(), name: role(e) }),
        6 => Statement::GrantRole(GrantRole { role: role(e), grantee: role(e) }),
        7 => Statement::RevokeRole(RevokeRole { role: role(e), grantee: role(e) }),
        8 => Statement::GrantPermissions(GrantPermissions {
            permissions: permissions(e),
            resource: resource(e),
            grantee: role(e),
        }),
        9 => Statement::RevokePermissions(RevokePermissions {
            permissions: permissions(e),
            resource: resource(e),
            grantee: role(e),
        }),
        10 => Statement::ListPermissions(ListPermissions {
            permissions: permissions(e),
            resource: e.maybe(resource),
            of: e.maybe(role),
            recursive: e.chance(),
        }),
        11 => Statement::ListRoles(ListRoles { of: e.maybe(role), recursive: e.chance() }),
        12 => e.of(&[Statement::ListUsers, Statement::ListSuperusers]),
        13 => Statement::AddIdentity(AddIdentity {
            if_not_exists: e.chance(),
            identity: text(e),
            role: text(e),
        }),
        14 => Statement::DropIdentity(DropIdentity { if_exists: e.chance(), identity: text(e) }),
        _ => service_level_statement(e),
    }
}

fn service_level_statement(e: &mut Entropy) -> Statement {
    match e.below(6) {
        0 => Statement::CreateServiceLevel(CreateServiceLevel {
            if_not_exists: e.chance(),
            name: ident(e),
            properties: properties(e, 0),
        }),
        1 => Statement::AlterServiceLevel(AlterServiceLevel { name: ident(e), properties: properties(e, 1) }),
        2 => Statement::DropServiceLevel(DropServiceLevel { if_exists: e.chance(), name: ident(e) }),
        3 => Statement::AttachServiceLevel(AttachServiceLevel { name: ident(e), role: role(e) }),
        4 => Statement::DetachServiceLevel(DetachServiceLevel { role: role(e) }),
        _ => Statement::ListServiceLevels(match e.below(5) {
            0 => ListServiceLevels::One(ident(e)),
            1 => ListServiceLevels::All,
            2 => ListServiceLevels::AttachedTo(role(e)),
            3 => ListServiceLevels::AllAttached,
            _ => ListServiceLevels::EffectiveOf(role(e)),
        }),
    }
}
