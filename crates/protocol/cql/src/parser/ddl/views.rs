//! CREATE, ALTER and DROP MATERIALIZED VIEW.

use crate::ast::{AlterView, CreateView, DropView};
use crate::keyword::Keyword;
use crate::lexer::Kind;
use crate::parser::properties::Properties;
use crate::parser::{Parser, Result};

impl Parser<'_> {
    fn materialized_view(&mut self) -> Result<()> {
        self.expect_keyword(Keyword::Materialized)?;
        self.expect_keyword(Keyword::View)
    }

    pub(super) fn create_view(&mut self) -> Result<CreateView> {
        self.materialized_view()?;
        let if_not_exists = self.if_not_exists()?;
        let name = self.table_name()?;
        self.expect_keyword(Keyword::As)?;
        self.expect_keyword(Keyword::Select)?;
        let selection = self.selection()?;
        self.expect_keyword(Keyword::From)?;
        let base = self.table_name()?;
        let filter = if self.eat_keyword(Keyword::Where) { self.where_clause()? } else { Vec::new() };
        let pos = self.pos();
        self.expect_keyword(Keyword::Primary)?;
        self.expect_keyword(Keyword::Key)?;
        let primary_key = self.key_columns(pos)?;
        let mut clustering_order = Vec::new();
        let mut properties = Properties::default();
        if self.eat_keyword(Keyword::With) {
            loop {
                if self.kind() == Kind::Keyword(Keyword::Compact)
                    && self.next_kind() == Kind::Keyword(Keyword::Storage)
                {
                    let text = "COMPACT STORAGE tables are not allowed starting with version 4.0";
                    return Err(self.rule(text));
                }
                if !self.clustering_order(&mut clustering_order)? {
                    self.property(&mut properties)?;
                }
                if !self.eat_keyword(Keyword::And) {
                    break;
                }
            }
        }
        let properties = properties.list;
        Ok(CreateView {
            if_not_exists,
            name,
            selection,
            base,
            filter,
            primary_key,
            clustering_order,
            properties,
        })
    }

    pub(super) fn alter_view(&mut self) -> Result<AlterView> {
        self.materialized_view()?;
        let if_exists = self.if_exists()?;
        let name = self.table_name()?;
        self.expect_keyword(Keyword::With)?;
        Ok(AlterView { if_exists, name, properties: self.properties()? })
    }

    pub(super) fn drop_view(&mut self) -> Result<DropView> {
        self.materialized_view()?;
        Ok(DropView { if_exists: self.if_exists()?, name: self.table_name()? })
    }
}
