//! Service levels.

use super::{Parser, Result};
use crate::ast::{
    AlterServiceLevel, AttachServiceLevel, CreateServiceLevel, DetachServiceLevel, DropServiceLevel,
    ListServiceLevels, RoleName,
};
use crate::keyword::Keyword;

impl Parser<'_> {
    fn service_level(&mut self) -> Result<()> {
        self.expect_keyword(Keyword::Service)?;
        self.expect_keyword(Keyword::Level)
    }

    pub(super) fn create_service_level(&mut self) -> Result<CreateServiceLevel> {
        self.service_level()?;
        let if_not_exists = self.if_not_exists()?;
        let name = self.ident()?;
        let properties = if self.eat_keyword(Keyword::With) { self.properties()? } else { Vec::new() };
        Ok(CreateServiceLevel { if_not_exists, name, properties })
    }

    pub(super) fn alter_service_level(&mut self) -> Result<AlterServiceLevel> {
        self.service_level()?;
        let name = self.ident()?;
        self.expect_keyword(Keyword::With)?;
        Ok(AlterServiceLevel { name, properties: self.properties()? })
    }

    pub(super) fn drop_service_level(&mut self) -> Result<DropServiceLevel> {
        self.service_level()?;
        Ok(DropServiceLevel { if_exists: self.if_exists()?, name: self.ident()? })
    }

    pub(super) fn attach_service_level(&mut self) -> Result<AttachServiceLevel> {
        self.expect_keyword(Keyword::Attach)?;
        self.service_level()?;
        let name = self.ident()?;
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
            self.expect_keyword(Keyword::Service)?;
            self.expect_keyword(Keyword::Levels)?;
            return Ok(if attached { ListServiceLevels::AllAttached } else { ListServiceLevels::All });
        }
        if self.eat_keyword(Keyword::Attached) {
            return Ok(ListServiceLevels::AttachedTo(self.service_level_of()?));
        }
        if self.eat_keyword(Keyword::Effective) {
            return Ok(ListServiceLevels::EffectiveOf(self.service_level_of()?));
        }
        self.service_level()?;
        Ok(ListServiceLevels::One(self.ident()?))
    }

    fn service_level_of(&mut self) -> Result<RoleName> {
        self.service_level()?;
        self.expect_keyword(Keyword::Of)?;
        self.role_name()
    }
}
