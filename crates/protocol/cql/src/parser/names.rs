//! Names: identifiers, qualified names, roles, strings.

use super::{Parser, Result};
use crate::ast::{Ident, QualifiedName, RoleName};
use crate::keyword::Keyword;
use crate::lexer::{Kind, Token};

/// Whether an unquoted user-defined type cannot have this name.
pub(crate) fn is_reserved_type_name(name: &str) -> bool {
    RESERVED_TYPE_NAMES.contains(&name)
}

/// Type names that are kept for later use.
const RESERVED_TYPE_NAMES: [&str; 7] =
    ["byte", "complex", "enum", "date", "interval", "macaddr", "bitstring"];

impl Parser<'_> {
    /// A name as text: folded to lower case when bare, unquoted when quoted.
    fn name_text(&mut self, what: &'static str) -> Result<String> {
        let name = match self.kind() {
            Kind::Word => self.text().to_ascii_lowercase(),
            Kind::Keyword(keyword) if keyword.is_name() => self.text().to_ascii_lowercase(),
            Kind::QuotedName => unquote(self.text(), '"'),
            _ => return Err(self.unexpected_want(what)),
        };
        self.advance();
        Ok(name)
    }

    /// A name: of a column in DDL, a field, an argument, an alias.
    pub(super) fn ident(&mut self) -> Result<Ident> {
        let pos = self.pos();
        Ok(Ident { name: self.name_text("an identifier")?, pos })
    }

    /// The name of a column in DML: may also be `""`.
    pub(super) fn column(&mut self) -> Result<Ident> {
        let pos = self.pos();
        if self.kind() == Kind::EmptyName {
            self.advance();
            return Ok(Ident { name: String::new(), pos });
        }
        self.ident()
    }

    /// The name of a keyspace.
    pub(super) fn keyspace_name(&mut self) -> Result<Ident> {
        self.refuse_marker("keyspace")?;
        self.ident()
    }

    /// `[keyspace.]name` of a table or view.
    pub(super) fn table_name(&mut self) -> Result<QualifiedName> {
        self.qualified_name("table")
    }

    /// `[keyspace.]name` of an index.
    pub(super) fn index_name(&mut self) -> Result<QualifiedName> {
        self.qualified_name("index")
    }

    fn qualified_name(&mut self, what: &str) -> Result<QualifiedName> {
        let pos = self.pos();
        self.refuse_marker(if self.next_kind() == Kind::Dot { "keyspace" } else { what })?;
        let first = self.name_text("an identifier")?;
        if !self.eat(Kind::Dot) {
            return Ok(QualifiedName { keyspace: None, name: first, pos });
        }
        self.refuse_marker(what)?;
        Ok(QualifiedName { keyspace: Some(first), name: self.name_text("an identifier")?, pos })
    }

    /// An error when a bind marker stands where only a name can.
    pub(super) fn refuse_marker(&mut self, what: &str) -> Result<()> {
        if self.kind() == Kind::QuestionMark {
            return Err(self.rule(format!("Bind variables cannot be used for {what} names")));
        }
        Ok(())
    }

    /// `[keyspace.]name` of a function or aggregate.
    pub(super) fn function_name(&mut self) -> Result<QualifiedName> {
        let pos = self.pos();
        let keyspace = match self.kind().is_name() && self.next_kind() == Kind::Dot {
            true => {
                let keyspace = self.name_text("an identifier")?;
                self.advance();
                Some(keyspace)
            }
            false => None,
        };
        Ok(QualifiedName { keyspace, name: self.bare_function_name()?, pos })
    }

    /// The name of a function without a keyspace.
    pub(super) fn bare_function_name(&mut self) -> Result<String> {
        let name = match self.kind() {
            Kind::QuotedName => unquote(self.text(), '"'),
            kind if kind.is_function_name() => self.text().to_ascii_lowercase(),
            _ => return Err(self.unexpected_want("a function name")),
        };
        self.advance();
        Ok(name)
    }

    /// `[keyspace.]name` of a user-defined type.
    pub(super) fn type_name(&mut self) -> Result<QualifiedName> {
        let pos = self.pos();
        let keyspace = match self.kind().is_name() && self.next_kind() == Kind::Dot {
            true => {
                let keyspace = self.name_text("an identifier")?;
                self.advance();
                Some(keyspace)
            }
            false => None,
        };
        let name = match self.kind() {
            Kind::QuotedName => unquote(self.text(), '"'),
            Kind::Word => {
                let name = self.text().to_ascii_lowercase();
                if is_reserved_type_name(&name) {
                    return Err(self.rule(format!("Invalid (reserved) user type name {name}")));
                }
                name
            }
            Kind::Keyword(keyword) if keyword.is_type_name() => self.text().to_ascii_lowercase(),
            _ => return Err(self.unexpected_want("a type")),
        };
        self.advance();
        Ok(QualifiedName { keyspace, name, pos })
    }

    /// The name of a role: bare, quoted, or a string.
    pub(super) fn role_name(&mut self) -> Result<RoleName> {
        self.refuse_marker("role")?;
        let pos = self.pos();
        if matches!(self.kind(), Kind::String | Kind::DollarString) {
            return Ok(RoleName { name: self.string()?, pos });
        }
        Ok(RoleName { name: self.name_text("a role name")?, pos })
    }

    /// The name of a user: bare or a string, case kept.
    pub(super) fn user_name(&mut self) -> Result<RoleName> {
        if self.kind() == Kind::QuotedName {
            return Err(self.rule(
                "Quoted strings are not supported for user names and USER is deprecated, please use ROLE",
            ));
        }
        let pos = self.pos();
        Ok(RoleName { name: self.exact_word_or_string("a user name")?, pos })
    }

    /// An identity, or the role of one: bare or a string, case kept.
    pub(super) fn identity(&mut self) -> Result<String> {
        if self.kind() == Kind::QuotedName {
            return Err(self.rule("Quoted strings are not supported for identity"));
        }
        self.exact_word_or_string("an identity")
    }

    fn exact_word_or_string(&mut self, what: &'static str) -> Result<String> {
        let text = match self.kind() {
            Kind::String | Kind::DollarString => return self.string(),
            kind if is_plain_word(kind) => self.text().to_owned(),
            _ => return Err(self.unexpected_want(what)),
        };
        self.advance();
        Ok(text)
    }

    /// The language of a function, in lower case.
    pub(super) fn language(&mut self) -> Result<String> {
        if !is_plain_word(self.kind()) {
            return Err(self.unexpected_want("a language"));
        }
        let language = self.text().to_ascii_lowercase();
        self.advance();
        Ok(language)
    }

    /// The text of a string constant.
    pub(super) fn string(&mut self) -> Result<String> {
        let Some(text) = self.string_text(self.cursor.token) else {
            return Err(self.unexpected_want("a string"));
        };
        self.advance();
        Ok(text)
    }

    /// The text of the token if it is a string.
    pub(super) fn string_text(&self, token: Token) -> Option<String> {
        let text = self.text_of(token);
        match token.kind {
            Kind::String => Some(unquote(text, '\'')),
            Kind::DollarString => Some(text.get(2..text.len() - 2).unwrap_or_default().to_owned()),
            _ => None,
        }
    }

    /// `true` or `false`.
    pub(super) fn boolean(&mut self) -> Result<bool> {
        let value = match self.kind() {
            Kind::Keyword(Keyword::True) => true,
            Kind::Keyword(Keyword::False) => false,
            _ => return Err(self.unexpected_want("true or false")),
        };
        self.advance();
        Ok(value)
    }
}

/// Whether the token is a word that Cassandra's lexer would call an identifier.
fn is_plain_word(kind: Kind) -> bool {
    match kind {
        Kind::Word => true,
        Kind::Keyword(keyword) => keyword.class() == crate::keyword::Class::Context,
        _ => false,
    }
}

/// The text between two quotes, with doubled quotes made single.
fn unquote(text: &str, quote: char) -> String {
    let inner = text.get(1..text.len() - 1).unwrap_or_default();
    if !inner.contains(quote) {
        return inner.to_owned();
    }
    let mut out = String::with_capacity(inner.len());
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        out.push(character);
        if character == quote {
            characters.next();
        }
    }
    out
}
