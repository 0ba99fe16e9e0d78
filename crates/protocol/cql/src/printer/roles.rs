//! Prints statements about roles, permissions, identities and service levels.

use super::{Printer, is_plain_role};
use crate::ast::{
    ListServiceLevels, Password, Permission, Permissions, Resource, RoleName, RoleOption, Statement,
};

impl Printer {
    pub(super) fn access_statement(&mut self, statement: &Statement) {
        match statement {
            Statement::CreateRole(create) => {
                self.create("ROLE", create.if_not_exists);
                self.role_name(&create.name);
                self.role_options(&create.options);
            }
            Statement::AlterRole(alter) => {
                self.verb("ALTER ROLE", alter.if_exists);
                self.role_name(&alter.name);
                self.role_options(&alter.options);
            }
            Statement::DropRole(drop) => {
                self.verb("DROP ROLE", drop.if_exists);
                self.role_name(&drop.name);
            }
            Statement::CreateUser(create) => {
                self.create("USER", create.if_not_exists);
                self.string(&create.name.name);
                self.user_password(&create.password);
                self.push_if(create.superuser, " SUPERUSER");
            }
            Statement::AlterUser(alter) => {
                self.verb("ALTER USER", alter.if_exists);
                self.string(&alter.name.name);
                self.user_password(&alter.password);
                self.push_if(alter.superuser == Some(true), " SUPERUSER");
                self.push_if(alter.superuser == Some(false), " NOSUPERUSER");
            }
            Statement::DropUser(drop) => {
                self.verb("DROP USER", drop.if_exists);
                self.string(&drop.name.name);
            }
            Statement::GrantRole(grant) => {
                self.push("GRANT ");
                self.role_name(&grant.role);
                self.push(" TO ");
                self.role_name(&grant.grantee);
            }
            Statement::RevokeRole(revoke) => {
                self.push("REVOKE ");
                self.role_name(&revoke.role);
                self.push(" FROM ");
                self.role_name(&revoke.grantee);
            }
            other => self.permission_statement(other),
        }
    }

    fn permission_statement(&mut self, statement: &Statement) {
        match statement {
            Statement::GrantPermissions(grant) => {
                self.push("GRANT ");
                self.permissions(&grant.permissions);
                self.push(" ON ");
                self.resource(&grant.resource);
                self.push(" TO ");
                self.role_name(&grant.grantee);
            }
            Statement::RevokePermissions(revoke) => {
                self.push("REVOKE ");
                self.permissions(&revoke.permissions);
                self.push(" ON ");
                self.resource(&revoke.resource);
                self.push(" FROM ");
                self.role_name(&revoke.grantee);
            }
            Statement::ListPermissions(list) => {
                self.push("LIST ");
                self.permissions(&list.permissions);
                if let Some(resource) = &list.resource {
                    self.push(" ON ");
                    self.resource(resource);
                }
                self.of_role(&list.of);
                self.push_if(!list.recursive, " NORECURSIVE");
            }
            Statement::ListRoles(list) => {
                self.push("LIST ROLES");
                self.of_role(&list.of);
                self.push_if(!list.recursive, " NORECURSIVE");
            }
            Statement::ListUsers => self.push("LIST USERS"),
            Statement::ListSuperusers => self.push("LIST SUPERUSERS"),
            Statement::AddIdentity(add) => {
                self.push("ADD IDENTITY ");
                self.push_if(add.if_not_exists, "IF NOT EXISTS ");
                self.string(&add.identity);
                self.push(" TO ROLE ");
                self.string(&add.role);
            }
            Statement::DropIdentity(drop) => {
                self.verb("DROP IDENTITY", drop.if_exists);
                self.string(&drop.identity);
            }
            other => self.service_level_statement(other),
        }
    }

    fn service_level_statement(&mut self, statement: &Statement) {
        match statement {
            Statement::CreateServiceLevel(create) => {
                self.create("SERVICE LEVEL", create.if_not_exists);
                self.ident(&create.name);
                self.with(&create.properties);
            }
            Statement::AlterServiceLevel(alter) => {
                self.push("ALTER SERVICE LEVEL ");
                self.ident(&alter.name);
                self.with(&alter.properties);
            }
            Statement::DropServiceLevel(drop) => {
                self.verb("DROP SERVICE LEVEL", drop.if_exists);
                self.ident(&drop.name);
            }
            Statement::AttachServiceLevel(attach) => {
                self.push("ATTACH SERVICE LEVEL ");
                self.ident(&attach.name);
                self.push(" TO ");
                self.role_name(&attach.role);
            }
            Statement::DetachServiceLevel(detach) => {
                self.push("DETACH SERVICE LEVEL FROM ");
                self.role_name(&detach.role);
            }
            Statement::ListServiceLevels(list) => self.list_service_levels(list),
            _ => unreachable!("every other statement is printed by another file"),
        }
    }

    fn list_service_levels(&mut self, list: &ListServiceLevels) {
        match list {
            ListServiceLevels::One(name) => {
                self.push("LIST SERVICE LEVEL ");
                self.ident(name);
            }
            ListServiceLevels::All => self.push("LIST ALL SERVICE LEVELS"),
            ListServiceLevels::AllAttached => self.push("LIST ALL ATTACHED SERVICE LEVELS"),
            ListServiceLevels::AttachedTo(role) => {
                self.push("LIST ATTACHED SERVICE LEVEL OF ");
                self.role_name(role);
            }
            ListServiceLevels::EffectiveOf(role) => {
                self.push("LIST EFFECTIVE SERVICE LEVEL OF ");
                self.role_name(role);
            }
        }
    }

    fn role_name(&mut self, role: &RoleName) {
        if is_plain_role(&role.name) {
            self.push(&role.name);
        } else {
            self.string(&role.name);
        }
    }

    fn of_role(&mut self, role: &Option<RoleName>) {
        if let Some(role) = role {
            self.push(" OF ");
            self.role_name(role);
        }
    }

    fn secret(&mut self, text: &str) {
        self.string(if self.redact { "***" } else { text });
    }

    fn user_password(&mut self, password: &Option<Password>) {
        match password {
            None => {}
            Some(Password::Plain(text)) => {
                self.push(" WITH PASSWORD ");
                self.secret(text);
            }
            Some(Password::Hashed(text)) => {
                self.push(" WITH HASHED PASSWORD ");
                self.secret(text);
            }
            Some(Password::Generated) => self.push(" WITH GENERATED PASSWORD"),
        }
    }

    fn role_options(&mut self, options: &[RoleOption]) {
        self.push_if(!options.is_empty(), " WITH ");
        self.separated(options, " AND ", |printer, option| match option {
            RoleOption::Password(Password::Plain(text)) => {
                printer.push("PASSWORD = ");
                printer.secret(text);
            }
            RoleOption::Password(Password::Hashed(text)) => {
                printer.push("HASHED PASSWORD = ");
                printer.secret(text);
            }
            RoleOption::Password(Password::Generated) => printer.push("GENERATED PASSWORD"),
            RoleOption::Superuser(yes) => printer.push(&format!("SUPERUSER = {yes}")),
            RoleOption::Login(yes) => printer.push(&format!("LOGIN = {yes}")),
            RoleOption::Options(entries) => {
                printer.push("OPTIONS = ");
                printer.constant_map(entries);
            }
            RoleOption::Datacenters(names) => printer.access("ACCESS TO", "DATACENTERS", names),
            RoleOption::Cidrs(names) => printer.access("ACCESS FROM", "CIDRS", names),
        });
    }

    fn access(&mut self, verb: &str, what: &str, names: &Option<Vec<String>>) {
        match names {
            None => self.push(&format!("{verb} ALL {what}")),
            Some(names) => {
                self.push(&format!("{verb} {what} {{"));
                self.separated(names, ", ", |printer, name| printer.string(name));
                self.push("}");
            }
        }
    }

    fn permissions(&mut self, permissions: &Permissions) {
        match permissions {
            Permissions::All => self.push("ALL PERMISSIONS"),
            Permissions::List(list) => {
                self.separated(list, ", ", |printer, permission: &Permission| {
                    printer.push(permission.name())
                });
            }
        }
    }

    fn resource(&mut self, resource: &Resource) {
        match resource {
            Resource::AllKeyspaces => self.push("ALL KEYSPACES"),
            Resource::Keyspace(name) => {
                self.push("KEYSPACE ");
                self.ident(name);
            }
            Resource::AllTables(keyspace) => {
                self.push("ALL TABLES IN KEYSPACE ");
                self.ident(keyspace);
            }
            Resource::Table(name) => {
                self.push("TABLE ");
                self.qualified_name(name);
            }
            Resource::AllRoles => self.push("ALL ROLES"),
            Resource::Role(role) => {
                self.push("ROLE ");
                self.role_name(role);
            }
            Resource::AllFunctions => self.push("ALL FUNCTIONS"),
            Resource::AllFunctionsIn(keyspace) => {
                self.push("ALL FUNCTIONS IN KEYSPACE ");
                self.ident(keyspace);
            }
            Resource::Function(name, args) => {
                self.push("FUNCTION ");
                self.function_name(name);
                self.bracketed(args, Self::data_type);
            }
            Resource::AllMbeans => self.push("ALL MBEANS"),
            Resource::Mbean(name) => {
                self.push("MBEAN ");
                self.string(name);
            }
            Resource::Mbeans(pattern) => {
                self.push("MBEANS ");
                self.string(pattern);
            }
        }
    }
}
