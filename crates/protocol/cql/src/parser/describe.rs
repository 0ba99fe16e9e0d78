//! DESCRIBE.

use super::{Parser, Result};
use crate::ast::{Describe, DescribeTarget};
use crate::keyword::Keyword;
use crate::lexer::Kind;

impl Parser<'_> {
    /// `DESCRIBE …` or `DESC …`.
    pub(super) fn describe(&mut self) -> Result<Describe> {
        self.advance();
        for what in ["CLUSTER", "SCHEMA", "KEYSPACES", "KEYSPACE", "TABLES", "TABLE", "TYPES", "TYPE"] {
            self.want(what);
        }
        for what in
            ["FUNCTIONS", "FUNCTION", "AGGREGATES", "AGGREGATE", "INDEX", "MATERIALIZED", "FULL", "ONLY"]
        {
            self.want(what);
        }
        let target = match self.kind() {
            Kind::Keyword(keyword) => self.describe_keyword(keyword)?,
            _ => None,
        };
        let target = match target {
            Some(target) => target,
            None => DescribeTarget::Named(self.table_name()?),
        };
        let with_internals = self.eat_keyword(Keyword::With);
        if with_internals {
            self.expect_keyword(Keyword::Internals)?;
        }
        let whole = matches!(target, DescribeTarget::Schema { .. });
        let with_passwords = with_internals && whole && self.eat_keyword(Keyword::And);
        if with_passwords {
            if self.kind() != Kind::Word || !self.text().eq_ignore_ascii_case("passwords") {
                return Err(self.unexpected_want("PASSWORDS"));
            }
            self.advance();
        }
        Ok(Describe { target, with_internals, with_passwords })
    }

    /// The target of the keyword; none when it is the name of an element.
    fn describe_keyword(&mut self, keyword: Keyword) -> Result<Option<DescribeTarget>> {
        let whole = match keyword {
            Keyword::Cluster => DescribeTarget::Cluster,
            Keyword::Keyspaces => DescribeTarget::Keyspaces,
            Keyword::Tables | Keyword::Columnfamilies => DescribeTarget::Tables,
            Keyword::Types => DescribeTarget::Types,
            Keyword::Functions => DescribeTarget::Functions,
            Keyword::Aggregates => DescribeTarget::Aggregates,
            _ => return self.describe_element(keyword),
        };
        if self.next_kind() == Kind::Dot {
            return Ok(None);
        }
        self.advance();
        Ok(Some(whole))
    }

    fn describe_element(&mut self, keyword: Keyword) -> Result<Option<DescribeTarget>> {
        let element_follows = self.next_kind().is_name();
        Ok(Some(match keyword {
            Keyword::Schema => {
                self.advance();
                DescribeTarget::Schema { full: false }
            }
            Keyword::Full => {
                self.advance();
                self.expect_keyword(Keyword::Schema)?;
                DescribeTarget::Schema { full: true }
            }
            Keyword::Only if self.next_kind() == Kind::Keyword(Keyword::Keyspace) => {
                self.advance();
                self.describe_keyspace(true)?
            }
            Keyword::Keyspace => self.describe_keyspace(false)?,
            Keyword::Table | Keyword::Columnfamily => {
                self.advance();
                DescribeTarget::Table(self.table_name()?)
            }
            Keyword::Index => {
                self.advance();
                DescribeTarget::Index(self.index_name()?)
            }
            Keyword::Materialized => {
                self.advance();
                self.expect_keyword(Keyword::View)?;
                DescribeTarget::View(self.table_name()?)
            }
            Keyword::Type if element_follows => {
                self.advance();
                DescribeTarget::Type(self.type_name()?)
            }
            Keyword::Function if element_follows || self.next_is_function_name() => {
                self.advance();
                DescribeTarget::Function(self.function_name()?)
            }
            Keyword::Aggregate if element_follows || self.next_is_function_name() => {
                self.advance();
                DescribeTarget::Aggregate(self.function_name()?)
            }
            _ => return Ok(None),
        }))
    }

    fn next_is_function_name(&self) -> bool {
        self.next_kind().is_function_name()
    }

    fn describe_keyspace(&mut self, only: bool) -> Result<DescribeTarget> {
        self.expect_keyword(Keyword::Keyspace)?;
        let name = if self.kind().is_name() { Some(self.keyspace_name()?) } else { None };
        if name.is_none() {
            self.want("an identifier");
        }
        Ok(DescribeTarget::Keyspace { name, only })
    }
}
