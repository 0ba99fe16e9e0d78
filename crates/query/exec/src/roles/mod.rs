//! Statements about roles, permissions, identities and service levels. Each is planned, purely, into edits of a known version of the schema, or
//! into rows; the caller's permissions are checked first, in Cassandra's order and with its texts.

mod changed;
pub(crate) mod describe;
mod effects;
mod identities;
mod levels;
mod lists;
mod manage;
mod permissions;
mod rows;

use std::sync::Arc;

use cluster::SchemaEdit;
use coordinator::ClusterView;
use cql::ast::{Password, Statement};
use schema::Schema;

use crate::error::{ExecError, Result};
use crate::performer::Performer;
use crate::request::ExecLimits;
use crate::sink::Sink;

pub(crate) use effects::effects;
pub use lists::list;

/// The input of planning beside the statement.
pub struct RoleContext<'a> {
    /// The schema, which holds the roles.
    pub(crate) schema: &'a Arc<Schema>,
    /// The role that runs the statement.
    pub(crate) performer: Performer<'a>,
    /// The session's keyspace.
    pub(crate) keyspace: Option<&'a str>,
    /// The nodes of the cluster.
    pub(crate) view: &'a ClusterView,
    /// The node's settings.
    pub(crate) limits: &'a ExecLimits,
}

/// A planned change.
#[derive(Debug, Default)]
pub(crate) struct RoleChange {
    /// The edits; none when there is nothing to do.
    pub(crate) edits: Vec<SchemaEdit>,
    /// Warnings.
    pub(crate) warnings: Vec<String>,
}

/// The next step of a statement.
pub(crate) enum Planned {
    /// This password has to be hashed first; then the statement is planned again.
    Hash(Password),
    /// The change.
    Change(RoleChange),
}

/// Whether a statement is one of this module's.
pub fn is_about_roles(statement: &Statement) -> bool {
    is_change(statement)
        || matches!(
            statement,
            Statement::ListRoles(_)
                | Statement::ListUsers
                | Statement::ListSuperusers
                | Statement::ListPermissions(_)
                | Statement::ListServiceLevels(_)
        )
}

/// Whether a statement changes roles.
pub(crate) fn is_change(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::CreateRole(_)
            | Statement::AlterRole(_)
            | Statement::DropRole(_)
            | Statement::CreateUser(_)
            | Statement::AlterUser(_)
            | Statement::DropUser(_)
            | Statement::GrantRole(_)
            | Statement::RevokeRole(_)
            | Statement::GrantPermissions(_)
            | Statement::RevokePermissions(_)
            | Statement::AddIdentity(_)
            | Statement::DropIdentity(_)
    ) || is_about_levels(statement) && !matches!(statement, Statement::ListServiceLevels(_))
}

/// Whether a statement is about service levels.
pub(crate) fn is_about_levels(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::CreateServiceLevel(_)
            | Statement::AlterServiceLevel(_)
            | Statement::DropServiceLevel(_)
            | Statement::AttachServiceLevel(_)
            | Statement::DetachServiceLevel(_)
            | Statement::ListServiceLevels(_)
    )
}

/// Plans a statement that changes roles; `hash` is that of its password, once it is known.
///
/// # Errors
/// When the performer may not run it, or it has no meaning for this schema.
pub(crate) fn plan(statement: &Statement, context: &RoleContext<'_>, hash: Option<&str>) -> Result<Planned> {
    let change = match statement {
        Statement::CreateRole(ast) => {
            return manage::create(&manage::Creation::of_role(ast), context, hash);
        }
        Statement::CreateUser(ast) => {
            let options = manage::Creation::options_of_user(ast);
            return manage::create(&manage::Creation::of_user(ast, &options), context, hash);
        }
        Statement::AlterRole(ast) => {
            return manage::alter((&ast.name, ast.if_exists), &ast.options, context, hash);
        }
        Statement::AlterUser(ast) => {
            return manage::alter((&ast.name, ast.if_exists), &manage::altered(ast), context, hash);
        }
        Statement::DropRole(ast) => manage::drop(&ast.name, ast.if_exists, context)?,
        Statement::DropUser(ast) => manage::drop(&ast.name, ast.if_exists, context)?,
        Statement::GrantRole(ast) => manage::grant(ast, context)?,
        Statement::RevokeRole(ast) => manage::revoke(ast, context)?,
        Statement::GrantPermissions(ast) => permissions::grant(ast, context)?,
        Statement::RevokePermissions(ast) => permissions::revoke(ast, context)?,
        Statement::AddIdentity(ast) => identities::add(ast, context)?,
        Statement::DropIdentity(ast) => identities::drop(ast, context)?,
        Statement::CreateServiceLevel(ast) => levels::create(ast, context)?,
        Statement::AlterServiceLevel(ast) => levels::alter(ast, context)?,
        Statement::DropServiceLevel(ast) => levels::drop(ast, context)?,
        Statement::AttachServiceLevel(ast) => levels::attach(ast, context)?,
        Statement::DetachServiceLevel(ast) => levels::detach(ast, context)?,
        other => return Err(ExecError::unsupported(other.name())),
    };
    Ok(Planned::Change(change))
}

/// Answers with a password that the server has made: the client sees it once.
pub(crate) fn show_generated(password: &str, sink: &mut impl Sink) {
    rows::rows(sink, "generated_password", &[("generated_password", types::CqlType::Text)], |rows| {
        use crate::sink::RowSink;
        rows.cell(Some(password.as_bytes()));
        rows.end_row();
    });
}
