//! WITH clauses and maps of constants.

use std::collections::BTreeSet;

use super::{Parser, Result};
use crate::ast::{Constant, Property, PropertyValue};
use crate::keyword::{Class, Keyword};
use crate::lexer::Kind;

/// The properties read so far, and their names.
#[derive(Default)]
pub(super) struct Properties {
    pub(super) list: Vec<Property>,
    names: BTreeSet<String>,
}

impl Parser<'_> {
    /// `name = value AND …`, one or more, each name once.
    pub(super) fn properties(&mut self) -> Result<Vec<Property>> {
        let mut properties = Properties::default();
        loop {
            self.property(&mut properties)?;
            if !self.eat_keyword(Keyword::And) {
                return Ok(properties.list);
            }
        }
    }

    /// `name = value`, added to the others.
    pub(super) fn property(&mut self, properties: &mut Properties) -> Result<()> {
        let token = self.cursor.token;
        let name = self.ident()?;
        self.expect(Kind::Equal)?;
        let value = self.property_value()?;
        if !properties.names.insert(name.name.clone()) {
            return Err(self.rule_at(token, format!("Multiple definitions for property '{}'", name.name)));
        }
        properties.list.push(Property { name: name.name, value, pos: name.pos });
        Ok(())
    }

    fn property_value(&mut self) -> Result<PropertyValue> {
        if self.kind() == Kind::LeftBrace {
            return Ok(PropertyValue::Map(self.constant_map()?));
        }
        if let Some(constant) = self.constant() {
            return Ok(PropertyValue::Constant(constant));
        }
        match self.kind() {
            Kind::Keyword(Keyword::Null) => {
                self.advance();
                Ok(PropertyValue::Null)
            }
            Kind::Keyword(keyword) if keyword.is_name() && keyword.class() != Class::Context => {
                self.advance();
                Ok(PropertyValue::Keyword(keyword.text().to_ascii_lowercase()))
            }
            _ => Err(self.unexpected_want("a constant or a map")),
        }
    }

    /// `{constant: constant, …}`, each key once.
    pub(super) fn constant_map(&mut self) -> Result<Vec<(Constant, Constant)>> {
        self.expect(Kind::LeftBrace)?;
        let mut entries: Vec<(Constant, Constant)> = Vec::new();
        let mut keys = BTreeSet::new();
        if self.eat(Kind::RightBrace) {
            return Ok(entries);
        }
        loop {
            let key_token = self.cursor.token;
            let key = self.term()?;
            let key = self.constant_of(key, key_token, None)?;
            self.expect(Kind::Colon)?;
            let value_token = self.cursor.token;
            let value = self.term()?;
            let value = self.constant_of(value, value_token, Some(&key))?;
            if !keys.insert(key.text().to_owned()) {
                let text = format!("Multiple definition for property {}", key.text());
                return Err(self.rule_at(key_token, text));
            }
            entries.push((key, value));
            if !self.eat(Kind::Comma) {
                break;
            }
        }
        self.expect(Kind::RightBrace)?;
        Ok(entries)
    }
}
