//! CREATE and DROP FUNCTION and AGGREGATE.

use crate::ast::{
    CreateAggregate, CreateFunction, DataType, DropAggregate, DropFunction, QualifiedName, Statement,
};
use crate::keyword::Keyword;
use crate::lexer::Kind;
use crate::parser::{Parser, Result};

impl Parser<'_> {
    /// From `FUNCTION` or `AGGREGATE` on.
    pub(super) fn create_function_or_aggregate(&mut self, or_replace: bool) -> Result<Statement> {
        if self.eat_keyword(Keyword::Aggregate) {
            return Ok(Statement::CreateAggregate(self.create_aggregate(or_replace)?));
        }
        self.expect_keyword(Keyword::Function)?;
        Ok(Statement::CreateFunction(self.create_function(or_replace)?))
    }

    fn create_function(&mut self, or_replace: bool) -> Result<CreateFunction> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.function_name()?;
        let args = self.bracketed_or_empty(|parser| Ok((parser.ident()?, parser.data_type()?)))?;
        let called_on_null_input = self.eat_keyword(Keyword::Called);
        if !called_on_null_input {
            self.expect_keyword(Keyword::Returns)?;
            self.expect_keyword(Keyword::Null)?;
        }
        self.expect_keyword(Keyword::On)?;
        self.expect_keyword(Keyword::Null)?;
        self.expect_keyword(Keyword::Input)?;
        self.expect_keyword(Keyword::Returns)?;
        let returns = self.data_type()?;
        self.expect_keyword(Keyword::Language)?;
        let language = self.language()?;
        self.expect_keyword(Keyword::As)?;
        let body = self.string()?;
        Ok(CreateFunction {
            or_replace,
            if_not_exists,
            name,
            args,
            called_on_null_input,
            returns,
            language,
            body,
        })
    }

    fn create_aggregate(&mut self, or_replace: bool) -> Result<CreateAggregate> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.function_name()?;
        let args = self.signature()?;
        self.expect_keyword(Keyword::Sfunc)?;
        let state_function = self.bare_function_name()?;
        self.expect_keyword(Keyword::Stype)?;
        let state_type = self.data_type()?;
        let reduce_function = self.function_after(Keyword::Reducefunc)?;
        let final_function = self.function_after(Keyword::Finalfunc)?;
        let initial_condition = if self.eat_keyword(Keyword::Initcond) { Some(self.term()?) } else { None };
        Ok(CreateAggregate {
            or_replace,
            if_not_exists,
            name,
            args,
            state_function,
            state_type,
            reduce_function,
            final_function,
            initial_condition,
        })
    }

    fn function_after(&mut self, keyword: Keyword) -> Result<Option<String>> {
        if self.eat_keyword(keyword) { Ok(Some(self.bare_function_name()?)) } else { Ok(None) }
    }

    /// `(type, …)`, zero or more.
    pub(in crate::parser) fn signature(&mut self) -> Result<Vec<DataType>> {
        self.bracketed_or_empty(Self::data_type)
    }

    pub(super) fn drop_function(&mut self) -> Result<DropFunction> {
        self.advance();
        let if_exists = self.if_exists()?;
        let (name, args) = self.dropped_function()?;
        Ok(DropFunction { if_exists, name, args })
    }

    pub(super) fn drop_aggregate(&mut self) -> Result<DropAggregate> {
        self.advance();
        let if_exists = self.if_exists()?;
        let (name, args) = self.dropped_function()?;
        Ok(DropAggregate { if_exists, name, args })
    }

    fn dropped_function(&mut self) -> Result<(QualifiedName, Option<Vec<DataType>>)> {
        let name = self.function_name()?;
        let args = match self.kind() {
            Kind::LeftParen => Some(self.signature()?),
            _ => {
                self.want("'('");
                None
            }
        };
        Ok((name, args))
    }
}
