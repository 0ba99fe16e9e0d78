//! Roles, users, permissions and identities.

use super::{Parser, Result};
use crate::ast::{
    AddIdentity, AlterRole, AlterUser, CreateRole, CreateUser, DropIdentity, DropRole, DropUser,
    GrantPermissions, GrantRole, ListPermissions, ListRoles, Password, Permission, Permissions, Resource,
    RevokePermissions, RevokeRole, RoleOption, Statement,
};
use crate::keyword::Keyword;
use crate::lexer::Kind;

impl Parser<'_> {
    /// From `ROLE` on.
    pub(super) fn create_role(&mut self) -> Result<CreateRole> {
        self.advance();
        let if_not_exists = self.if_not_exists()?;
        let name = self.role_name()?;
        Ok(CreateRole { if_not_exists, name, options: self.role_options()? })
    }

    pub(super) fn alter_role(&mut self) -> Result<AlterRole> {
        self.advance();
        let if_exists = self.if_exists()?;
        let name = self.role_name()?;
        Ok(AlterRole { if_exists, name, options: self.role_options()? })
    }

    pub(super) fn drop_role(&mut self) -> Result<DropRole> {
        self.advance();
        Ok(DropRole { if_exists: self.if_exists()?, name: self.role_name()? })
    }

    /// `WITH option AND …`, or nothing.
    fn role_options(&mut self) -> Result<Vec<RoleOption>> {
        let mut options: Vec<RoleOption> = Vec::new();
        if !self.eat_keyword(Keyword::With) {
            return Ok(options);
        }
        loop {
            let token = self.cursor.token;
            let option = self.role_option()?;
            for other in &options {
                if let Some(text) = clash(other, &option) {
                    return Err(self.rule_at(token, text));
                }
            }
            options.push(option);
            if !self.eat_keyword(Keyword::And) {
                return Ok(options);
            }
        }
    }

    fn role_option(&mut self) -> Result<RoleOption> {
        let words = ["PASSWORD", "HASHED", "SALTED", "GENERATED", "SUPERUSER", "LOGIN", "OPTIONS", "ACCESS"];
        let word = self.kind_of_element(&words)?;
        self.advance();
        Ok(match word {
            Keyword::Password => {
                self.expect(Kind::Equal)?;
                RoleOption::Password(Password::Plain(self.string()?))
            }
            Keyword::Hashed => {
                self.expect_keyword(Keyword::Password)?;
                self.expect(Kind::Equal)?;
                RoleOption::Password(Password::Hashed(self.string()?))
            }
            // ScyllaDB's.
            Keyword::Salted => {
                self.expect_keyword(Keyword::Hash)?;
                self.expect(Kind::Equal)?;
                RoleOption::Password(Password::Hashed(self.string()?))
            }
            Keyword::Generated => {
                self.expect_keyword(Keyword::Password)?;
                RoleOption::Password(Password::Generated)
            }
            Keyword::Superuser => {
                self.expect(Kind::Equal)?;
                RoleOption::Superuser(self.boolean()?)
            }
            Keyword::Login => {
                self.expect(Kind::Equal)?;
                RoleOption::Login(self.boolean()?)
            }
            Keyword::Options => {
                self.expect(Kind::Equal)?;
                RoleOption::Options(self.constant_map()?)
            }
            _ => self.access_option()?,
        })
    }

    /// From the word after `ACCESS` on.
    fn access_option(&mut self) -> Result<RoleOption> {
        let from = self.eat_keyword(Keyword::From);
        if !from {
            self.expect_keyword(Keyword::To)?;
        }
        let what = if from { Keyword::Cidrs } else { Keyword::Datacenters };
        let names = if self.eat_keyword(Keyword::All) {
            self.expect_keyword(what)?;
            None
        } else {
            self.expect_keyword(what)?;
            self.expect(Kind::LeftBrace)?;
            let names = self.comma_separated(Self::string)?;
            self.expect(Kind::RightBrace)?;
            Some(names)
        };
        Ok(if from { RoleOption::Cidrs(names) } else { RoleOption::Datacenters(names) })
    }

    /// From `USER` on.
    pub(super) fn create_user(&mut self) -> Result<CreateUser> {
        self.advance();
        let if_not_exists = self.if_not_exists()?;
        let name = self.user_name()?;
        let password = self.user_password()?;
        let superuser = self.user_superuser().unwrap_or(false);
        Ok(CreateUser { if_not_exists, name, password, superuser })
    }

    pub(super) fn alter_user(&mut self) -> Result<AlterUser> {
        self.advance();
        let if_exists = self.if_exists()?;
        let name = self.user_name()?;
        let password = self.user_password()?;
        Ok(AlterUser { if_exists, name, password, superuser: self.user_superuser() })
    }

    pub(super) fn drop_user(&mut self) -> Result<DropUser> {
        self.advance();
        Ok(DropUser { if_exists: self.if_exists()?, name: self.user_name()? })
    }

    /// `WITH [HASHED|GENERATED] PASSWORD …`, or nothing.
    fn user_password(&mut self) -> Result<Option<Password>> {
        if !self.eat_keyword(Keyword::With) {
            return Ok(None);
        }
        if self.eat_keyword(Keyword::Generated) {
            self.expect_keyword(Keyword::Password)?;
            return Ok(Some(Password::Generated));
        }
        let hashed = self.eat_keyword(Keyword::Hashed);
        self.expect_keyword(Keyword::Password)?;
        let text = self.string()?;
        Ok(Some(if hashed { Password::Hashed(text) } else { Password::Plain(text) }))
    }

    fn user_superuser(&mut self) -> Option<bool> {
        if self.eat_keyword(Keyword::Superuser) {
            return Some(true);
        }
        self.eat_keyword(Keyword::Nosuperuser).then_some(false)
    }

    /// `GRANT …`.
    pub(super) fn grant(&mut self) -> Result<Statement> {
        self.expect_keyword(Keyword::Grant)?;
        if self.at_permissions() {
            let permissions = self.permissions()?;
            self.expect_keyword(Keyword::On)?;
            let resource = self.resource()?;
            self.expect_keyword(Keyword::To)?;
            let grantee = self.role_name()?;
            return Ok(Statement::GrantPermissions(GrantPermissions { permissions, resource, grantee }));
        }
        let role = self.role_name()?;
        self.expect_keyword(Keyword::To)?;
        Ok(Statement::GrantRole(GrantRole { role, grantee: self.role_name()? }))
    }

    /// `REVOKE …`.
    pub(super) fn revoke(&mut self) -> Result<Statement> {
        self.expect_keyword(Keyword::Revoke)?;
        if self.at_permissions() {
            let permissions = self.permissions()?;
            self.expect_keyword(Keyword::On)?;
            let resource = self.resource()?;
            self.expect_keyword(Keyword::From)?;
            let grantee = self.role_name()?;
            return Ok(Statement::RevokePermissions(RevokePermissions { permissions, resource, grantee }));
        }
        let role = self.role_name()?;
        self.expect_keyword(Keyword::From)?;
        Ok(Statement::RevokeRole(RevokeRole { role, grantee: self.role_name()? }))
    }

    /// Whether permissions stand after GRANT or REVOKE, not a role that is called like one.
    fn at_permissions(&mut self) -> bool {
        let Kind::Keyword(keyword) = self.kind() else {
            for permission in Permission::ALL {
                self.want(permission.name());
            }
            self.want("ALL");
            return false;
        };
        let is_permission = keyword == Keyword::All || permission_of(keyword).is_some();
        is_permission && !matches!(self.next_kind(), Kind::Keyword(Keyword::To | Keyword::From))
    }

    fn permissions(&mut self) -> Result<Permissions> {
        if self.eat_keyword(Keyword::All) {
            self.eat_keyword(Keyword::Permissions);
            return Ok(Permissions::All);
        }
        let list = self.comma_separated(|parser| {
            let permission = match parser.kind() {
                Kind::Keyword(keyword) => permission_of(keyword),
                _ => None,
            };
            let Some(permission) = permission else {
                for permission in Permission::ALL {
                    parser.want(permission.name());
                }
                return Err(parser.unexpected());
            };
            parser.advance();
            parser.eat_keyword(Keyword::Permission);
            Ok(permission)
        })?;
        Ok(Permissions::List(list))
    }

    fn resource(&mut self) -> Result<Resource> {
        // After these a keyword that could start a resource is the name of a table.
        let name_ends = matches!(
            self.next_kind(),
            Kind::Dot | Kind::Eof | Kind::Semicolon | Kind::Keyword(Keyword::To | Keyword::From)
        ) || matches!(self.next_kind(), Kind::Keyword(Keyword::Of | Keyword::Norecursive));
        let Kind::Keyword(keyword) = self.kind() else {
            self.want("a resource");
            return Ok(Resource::Table(self.table_name()?));
        };
        let resource = match keyword {
            Keyword::Table | Keyword::Columnfamily => {
                self.advance();
                Resource::Table(self.table_name()?)
            }
            Keyword::Keyspace | Keyword::Schema => {
                self.advance();
                Resource::Keyspace(self.keyspace_name()?)
            }
            _ if name_ends => Resource::Table(self.table_name()?),
            Keyword::All => {
                self.advance();
                self.all_of_a_kind()?
            }
            Keyword::Role => {
                self.advance();
                Resource::Role(self.role_name()?)
            }
            Keyword::Function => {
                self.advance();
                Resource::Function(self.function_name()?, self.signature()?)
            }
            Keyword::Mbean => {
                self.advance();
                Resource::Mbean(self.string()?)
            }
            Keyword::Mbeans => {
                self.advance();
                Resource::Mbeans(self.string()?)
            }
            _ => Resource::Table(self.table_name()?),
        };
        Ok(resource)
    }

    /// From the word after `ALL` on.
    fn all_of_a_kind(&mut self) -> Result<Resource> {
        let words = ["KEYSPACES", "TABLES", "COLUMNFAMILIES", "ROLES", "FUNCTIONS", "MBEANS"];
        let word = self.kind_of_element(&words)?;
        self.advance();
        Ok(match word {
            Keyword::Keyspaces => Resource::AllKeyspaces,
            Keyword::Roles => Resource::AllRoles,
            Keyword::Mbeans => Resource::AllMbeans,
            Keyword::Functions => {
                if !self.eat_keyword(Keyword::In) {
                    return Ok(Resource::AllFunctions);
                }
                self.expect_keyspace_keyword()?;
                Resource::AllFunctionsIn(self.keyspace_name()?)
            }
            _ => {
                self.expect_keyword(Keyword::In)?;
                self.expect_keyspace_keyword()?;
                Resource::AllTables(self.keyspace_name()?)
            }
        })
    }

    fn expect_keyspace_keyword(&mut self) -> Result<()> {
        if self.eat_keyword(Keyword::Schema) { Ok(()) } else { self.expect_keyword(Keyword::Keyspace) }
    }

    /// `LIST …`.
    pub(super) fn list_statement(&mut self) -> Result<Statement> {
        self.expect_keyword(Keyword::List)?;
        for what in ["ROLES", "USERS", "SUPERUSERS", "ALL", "SERVICE", "ATTACHED", "EFFECTIVE"] {
            self.want(what);
        }
        match self.kind() {
            Kind::Keyword(Keyword::Users) => {
                self.advance();
                Ok(Statement::ListUsers)
            }
            Kind::Keyword(Keyword::Superusers) => {
                self.advance();
                Ok(Statement::ListSuperusers)
            }
            Kind::Keyword(Keyword::Roles) => {
                self.advance();
                let of = self.of_role()?;
                let recursive = !self.eat_keyword(Keyword::Norecursive);
                Ok(Statement::ListRoles(ListRoles { of, recursive }))
            }
            Kind::Keyword(
                Keyword::Service | Keyword::ServiceLevel | Keyword::Attached | Keyword::Effective,
            ) => Ok(Statement::ListServiceLevels(self.list_service_levels()?)),
            Kind::Keyword(Keyword::All)
                if matches!(
                    self.next_kind(),
                    Kind::Keyword(Keyword::Service | Keyword::ServiceLevels | Keyword::Attached)
                ) =>
            {
                Ok(Statement::ListServiceLevels(self.list_service_levels()?))
            }
            _ => {
                let permissions = self.permissions()?;
                let resource = if self.eat_keyword(Keyword::On) { Some(self.resource()?) } else { None };
                let of = self.of_role()?;
                let recursive = !self.eat_keyword(Keyword::Norecursive);
                Ok(Statement::ListPermissions(ListPermissions { permissions, resource, of, recursive }))
            }
        }
    }

    /// `OF role`, or nothing.
    fn of_role(&mut self) -> Result<Option<crate::ast::RoleName>> {
        if self.eat_keyword(Keyword::Of) { Ok(Some(self.role_name()?)) } else { Ok(None) }
    }

    /// `ADD IDENTITY …`.
    pub(super) fn add_identity(&mut self) -> Result<AddIdentity> {
        self.expect_keyword(Keyword::Add)?;
        self.expect_keyword(Keyword::Identity)?;
        let if_not_exists = self.if_not_exists()?;
        let identity = self.identity()?;
        self.expect_keyword(Keyword::To)?;
        self.expect_keyword(Keyword::Role)?;
        Ok(AddIdentity { if_not_exists, identity, role: self.identity()? })
    }

    /// From `IDENTITY` on.
    pub(super) fn drop_identity(&mut self) -> Result<DropIdentity> {
        self.advance();
        Ok(DropIdentity { if_exists: self.if_exists()?, identity: self.identity()? })
    }
}

/// Why two options of one role cannot stand together.
fn clash(first: &RoleOption, second: &RoleOption) -> Option<String> {
    if let (RoleOption::Password(first), RoleOption::Password(second)) = (first, second)
        && option_name(first) != option_name(second)
    {
        let mut names = [option_name(first), option_name(second)];
        // In one order, whichever was written first.
        names.sort_by_key(|name| {
            ["password", "hashed password", "generated password"].iter().position(|one| one == name)
        });
        let [first, second] = names;
        return Some(format!("Options '{first}' and '{second}' are mutually exclusive"));
    }
    let same = std::mem::discriminant(first) == std::mem::discriminant(second);
    same.then(|| format!("Multiple definitions for property '{}'", property_name(first)))
}

fn property_name(option: &RoleOption) -> &'static str {
    match option {
        RoleOption::Password(Password::Plain(_)) => "PASSWORD",
        RoleOption::Password(Password::Hashed(_)) => "HASHED_PASSWORD",
        RoleOption::Password(Password::Generated) => "GENERATED_PASSWORD",
        RoleOption::Superuser(_) => "SUPERUSER",
        RoleOption::Login(_) => "LOGIN",
        RoleOption::Options(_) => "OPTIONS",
        RoleOption::Datacenters(_) => "DATACENTERS",
        RoleOption::Cidrs(_) => "CIDRS",
    }
}

fn option_name(password: &Password) -> &'static str {
    match password {
        Password::Plain(_) => "password",
        Password::Hashed(_) => "hashed password",
        Password::Generated => "generated password",
    }
}

fn permission_of(keyword: Keyword) -> Option<Permission> {
    Permission::ALL.into_iter().find(|permission| permission.name() == keyword.text())
}
