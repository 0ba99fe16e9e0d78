//! Service levels.

use super::{Parser, Result};
use crate::ast::{
    AlterServiceLevel, AttachServiceLevel, CreateServiceLevel, DetachServiceLevel, DropServiceLevel, Ident,
    ListServiceLevels, RoleName,
};
use crate::keyword::Keyword;
use crate::lexer::Kind;

impl Parser<'_> {
    /// In two words, or in one as in ScyllaDB's grammar.
    fn service_level(&mut self) -> Result<()> {
        if self.kind() == Kind::Keyword(Keyword::ServiceLevel) {
            self.advance();
            return Ok(());
        }
        self.expect_keyword(Keyword::Service)?;
        self.expect_keyword(Keyword::Level)
    }

    /// The name of a level: a name, or a string whose case is kept.
    fn level_name(&mut self) -> Result<Ident> {
        let pos = self.pos();
        match self.kind() {
            Kind::String | Kind::DollarString => match self.string()? {
                name if name.is_empty() => Err(self.rule("A service level has a name")),
                name => Ok(Ident { name, pos }),
            },
            _ => self.ident(),
        }
    }

    pub(super) fn create_service_level(&mut self) -> Result<CreateServiceLevel> {
        self.service_level()?;
        let if_not_exists = self.if_not_exists()?;
        let name = self.level_name()?;
        let properties = if self.eat_keyword(Keyword::With) { self.properties()? } else { Vec::new() };
        Ok(CreateServiceLevel { if_not_exists, name, properties })
    }

    pub(super) fn alter_service_level(&mut self) -> Result<AlterServiceLevel> {
        self.service_level()?;
        let name = self.level_name()?;
        self.expect_keyword(Keyword::With)?;
        Ok(AlterServiceLevel { name, properties: self.properties()? })
    }

    pub(super) fn drop_service_level(&mut self) -> Result<DropServiceLevel> {
        self.service_level()?;
        Ok(DropServiceLevel { if_exists: self.if_exists()?, name: self.level_name()? })
    }

    pub(super) fn attach_service_level(&mut self) -> Result<AttachServiceLevel> {
        self.expect_keyword(Keyword::Attach)?;
        self.service_level()?;
        let name = self.level_name()?;
        self.expect_keyword(Keyword::To)?;
        Ok(AttachServiceLevel { name, role: self.role_name()? })
    }

    pub(super) fn detach_service_level(&mut self) -> Result<DetachServiceLevel> {
        self.expect_keyword(Keyword::Detach)?;
        self.service_level()?;
        self.expect_keyword(Keyword::From)?;
        Ok(DetachServiceLevel { role: self.role_name()? })
    }

    /// The rest of a statement behind `LIST`, from `SERVICE`, `ATTACHED`, `EFFECTIVE` or `ALL` on.
    pub(super) fn list_service_levels(&mut self) -> Result<ListServiceLevels> {
        if self.eat_keyword(Keyword::All) {
            let attached = self.eat_keyword(Keyword::Attached);
            if self.kind() == Kind::Keyword(Keyword::ServiceLevels) {
                self.advance();
            } else {
                self.expect_keyword(Keyword::Service)?;
                self.expect_keyword(Keyword::Levels)?;
            }
            return Ok(if attached { ListServiceLevels::AllAttached } else { ListServiceLevels::All });
        }
        if self.eat_keyword(Keyword::Attached) {
            return Ok(ListServiceLevels::AttachedTo(self.service_level_of()?));
        }
        if self.eat_keyword(Keyword::Effective) {
            return Ok(ListServiceLevels::EffectiveOf(self.service_level_of()?));
        }
        self.service_level()?;
        Ok(ListServiceLevels::One(self.level_name()?))
    }

    fn service_level_of(&mut self) -> Result<RoleName> {
        self.service_level()?;
        self.expect_keyword(Keyword::Of)?;
        self.role_name()
    }
}
