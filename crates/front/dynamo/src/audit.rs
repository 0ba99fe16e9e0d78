//! Requests as events of the audit log: operation, category and first table, and nothing of the items.

use auth::{Permission, Resource};
use exec::audit::{AuditCategory, AuditEvent, AuditOutcome};

use crate::error::{ErrorKind, Result};
use crate::permissions;
use crate::request::Request;

/// That of an operation; its category follows from the permissions that it needs.
pub(crate) fn event(operation: &str, request: Option<&Request>) -> AuditEvent {
    let needed = request.and_then(|request| permissions::needed(operation, request));
    let needed = needed.unwrap_or_default();
    let has = |permission: Permission| needed.iter().any(|(one, _)| *one == permission);
    let changes = [Permission::Create, Permission::Alter, Permission::Drop];
    let category = match () {
        () if changes.into_iter().any(has) => AuditCategory::Ddl,
        () if has(Permission::Modify) => AuditCategory::Dml,
        () if has(Permission::Select) => AuditCategory::Query,
        () => AuditCategory::Other,
    };
    let table = needed.into_iter().find_map(|(_, resource)| match resource {
        Resource::Table { keyspace, name } => Some((keyspace, name)),
        _ => None,
    });
    let (keyspace, scope) = table.unzip();
    AuditEvent { keyspace, scope, ..AuditEvent::new(operation, category) }
}

/// That of a result.
pub(crate) fn outcome<T>(result: &Result<T>) -> AuditOutcome {
    match result {
        Ok(_) => AuditOutcome::Succeeded,
        Err(error) if error.kind == ErrorKind::AccessDenied => {
            AuditOutcome::Unauthorized(error.message.clone())
        }
        Err(error) => AuditOutcome::Failed(error.message.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_follow_from_what_an_operation_does() {
        let of = |operation: &str, body: &str| {
            let event = event(operation, Request::parse(body.as_bytes()).ok().as_ref());
            (event.category, event.scope)
        };
        let table = r#"{"TableName": "music"}"#;
        let music = || Some("music".to_owned());
        assert_eq!(of("GetItem", table), (AuditCategory::Query, music()));
        assert_eq!(of("PutItem", table), (AuditCategory::Dml, music()));
        assert_eq!(of("DeleteTable", table), (AuditCategory::Ddl, music()));
        assert_eq!(of("CreateTable", table), (AuditCategory::Ddl, None));
        assert_eq!(of("DescribeTable", table), (AuditCategory::Other, None));
        assert_eq!(of("BatchGetItem", r#"{"RequestItems": {"music": {}}}"#), (AuditCategory::Query, music()));
        assert_eq!(of("GetItem", "no JSON"), (AuditCategory::Other, None));
    }
}
