//! CREATE, ALTER and DROP TABLE.

use crate::ast::{
    AlterTable, AlterTableOperation, ColumnDefinition, Constraint, ConstraintArgument, CopyTable,
    CreateTable, Direction, DropTable, Ident, Mask, PrimaryKey, QualifiedName, SECURITY_LABELS, Statement,
    Term, TermKind,
};
use crate::keyword::Keyword;
use crate::lexer::Kind;
use crate::parser::properties::Properties;
use crate::parser::{Parser, Result};

impl Parser<'_> {
    pub(super) fn create_table(&mut self) -> Result<Statement> {
        self.advance();
        let if_not_exists = self.if_not_exists()?;
        let name = self.table_name()?;
        if self.eat_keyword(Keyword::Like) {
            return Ok(Statement::CopyTable(self.copy_table(if_not_exists, name)?));
        }
        let mut table = CreateTable {
            if_not_exists,
            name,
            columns: Vec::new(),
            primary_keys: Vec::new(),
            clustering_order: Vec::new(),
            compact_storage: false,
            properties: Vec::new(),
        };
        self.expect(Kind::LeftParen)?;
        self.column_or_key(&mut table)?;
        while self.eat(Kind::Comma) {
            // A comma may stand before the bracket or before another comma.
            if !matches!(self.kind(), Kind::Comma | Kind::RightParen) {
                self.column_or_key(&mut table)?;
            }
        }
        self.expect(Kind::RightParen)?;
        if self.eat_keyword(Keyword::With) {
            let mut properties = Properties::default();
            loop {
                if self.eat_two(Keyword::Compact, Keyword::Storage) {
                    table.compact_storage = true;
                } else if !self.clustering_order(&mut table.clustering_order)? {
                    self.property(&mut properties)?;
                }
                if !self.eat_keyword(Keyword::And) {
                    break;
                }
            }
            table.properties = properties.list;
        }
        Ok(Statement::CreateTable(table))
    }

    fn column_or_key(&mut self, table: &mut CreateTable) -> Result<()> {
        let pos = self.pos();
        if self.eat_keyword(Keyword::Primary) {
            self.expect_keyword(Keyword::Key)?;
            let key = self.key_columns(pos)?;
            table.primary_keys.push(key);
            return Ok(());
        }
        let column = self.column_definition()?;
        if self.eat_keyword(Keyword::Primary) {
            self.expect_keyword(Keyword::Key)?;
            let partition = vec![column.name.clone()];
            table.primary_keys.push(PrimaryKey { partition, clustering: Vec::new(), pos });
        }
        table.columns.push(column);
        Ok(())
    }

    /// `(partition key, clustering…)`.
    pub(super) fn key_columns(&mut self, pos: crate::ast::Pos) -> Result<PrimaryKey> {
        self.expect(Kind::LeftParen)?;
        let partition = if self.kind() == Kind::LeftParen {
            self.bracketed(Self::ident)?
        } else {
            self.want("'('");
            vec![self.ident()?]
        };
        let mut clustering = Vec::new();
        while self.eat(Kind::Comma) {
            clustering.push(self.ident()?);
        }
        self.expect(Kind::RightParen)?;
        Ok(PrimaryKey { partition, clustering, pos })
    }

    /// `CLUSTERING ORDER BY (…)`, if it stands here.
    pub(super) fn clustering_order(&mut self, order: &mut Vec<(Ident, Direction)>) -> Result<bool> {
        if !self.eat_two(Keyword::Clustering, Keyword::Order) {
            return Ok(false);
        }
        self.expect_keyword(Keyword::By)?;
        order.extend(self.bracketed(|parser| {
            let column = parser.ident()?;
            match parser.direction() {
                Some(direction) => Ok((column, direction)),
                None => Err(parser.unexpected()),
            }
        })?);
        Ok(true)
    }

    fn column_definition(&mut self) -> Result<ColumnDefinition> {
        let name = self.ident()?;
        let data_type = self.data_type()?;
        let is_ttl = self.eat_keyword(Keyword::Ttl);
        let is_static = self.eat_keyword(Keyword::Static);
        let not_null = self.eat_keyword(Keyword::Not);
        if not_null {
            self.expect_keyword(Keyword::Null)?;
        }
        let mask = self.mask()?;
        let mut constraints = self.constraints()?;
        if not_null {
            constraints.insert(0, Constraint::NotNull);
        }
        Ok(ColumnDefinition { name, data_type, is_ttl, is_static, mask, constraints })
    }

    /// `MASKED WITH …`, or nothing.
    fn mask(&mut self) -> Result<Option<Mask>> {
        if !self.eat_keyword(Keyword::Masked) {
            return Ok(None);
        }
        self.expect_keyword(Keyword::With)?;
        if self.kind() == Kind::Keyword(Keyword::Default)
            && !matches!(self.next_kind(), Kind::LeftParen | Kind::Dot)
        {
            self.advance();
            return Ok(Some(Mask { function: None, args: Vec::new() }));
        }
        self.want("DEFAULT");
        let function = self.function_name()?;
        let args = self.bracketed_or_empty(Self::term)?;
        Ok(Some(Mask { function: Some(function), args }))
    }

    /// `CHECK … AND …`, or nothing.
    fn constraints(&mut self) -> Result<Vec<Constraint>> {
        if !self.eat_keyword(Keyword::Check) {
            return Ok(Vec::new());
        }
        self.and_separated(Self::constraint)
    }

    fn constraint(&mut self) -> Result<Constraint> {
        if self.eat_keyword(Keyword::Not) {
            self.expect_keyword(Keyword::Null)?;
            return Ok(Constraint::NotNull);
        }
        if let Some(operator) = self.comparison_operator() {
            return Ok(Constraint::Scalar { column: None, operator, value: self.constraint_value()? });
        }
        let name = self.ident()?;
        if self.kind() == Kind::LeftParen {
            let args = self.bracketed_or_empty(Self::constraint_argument)?;
            let comparison = match self.comparison_operator() {
                Some(operator) => Some((operator, self.constraint_value()?)),
                None => None,
            };
            return Ok(Constraint::Function { name, args, comparison });
        }
        match self.comparison_operator() {
            Some(operator) => {
                Ok(Constraint::Scalar { column: Some(name), operator, value: self.constraint_value()? })
            }
            None => Ok(Constraint::Function { name, args: Vec::new(), comparison: None }),
        }
    }

    fn constraint_argument(&mut self) -> Result<ConstraintArgument> {
        if self.kind().is_name() {
            return Ok(ConstraintArgument::Column(self.ident()?));
        }
        Ok(ConstraintArgument::Value(self.constraint_value()?))
    }

    fn constraint_value(&mut self) -> Result<Term> {
        let pos = self.pos();
        match self.constant() {
            Some(constant) => Ok(Term { kind: TermKind::Constant(constant), pos }),
            None => Err(self.unexpected_want("a constant")),
        }
    }

    fn copy_table(&mut self, if_not_exists: bool, name: QualifiedName) -> Result<CopyTable> {
        let source = self.table_name()?;
        let mut options = Vec::new();
        let mut properties = Properties::default();
        if self.eat_keyword(Keyword::With) {
            loop {
                let pos = self.pos();
                if self.eat_two(Keyword::Security, Keyword::Labels) {
                    options.push(Ident { name: SECURITY_LABELS.to_owned(), pos });
                } else if self.kind().is_name() && self.next_kind() != Kind::Equal {
                    options.push(self.ident()?);
                } else {
                    self.property(&mut properties)?;
                }
                if !self.eat_keyword(Keyword::And) {
                    break;
                }
            }
        }
        Ok(CopyTable { if_not_exists, name, source, options, properties: properties.list })
    }

    pub(super) fn drop_table(&mut self) -> Result<DropTable> {
        self.advance();
        Ok(DropTable { if_exists: self.if_exists()?, name: self.table_name()? })
    }

    pub(super) fn alter_table(&mut self) -> Result<AlterTable> {
        self.advance();
        let if_exists = self.if_exists()?;
        let name = self.table_name()?;
        let operation = match self.kind_of_element(&["ALTER", "ADD", "DROP", "RENAME", "TTL", "WITH"])? {
            Keyword::Alter => self.alter_column()?,
            Keyword::Add => self.add_columns()?,
            Keyword::Drop => self.drop_columns()?,
            Keyword::Rename => {
                self.advance();
                AlterTableOperation::Rename { if_exists: self.if_exists()?, columns: self.renames()? }
            }
            Keyword::Ttl => {
                self.advance();
                self.want("NULL");
                let is_off = self.eat_keyword(Keyword::Null);
                AlterTableOperation::Ttl(if is_off { None } else { Some(self.column()?) })
            }
            _ => {
                self.advance();
                AlterTableOperation::With(self.properties()?)
            }
        };
        Ok(AlterTable { if_exists, name, operation })
    }

    /// `a TO b AND …`.
    pub(super) fn renames(&mut self) -> Result<Vec<(Ident, Ident)>> {
        self.and_separated(|parser| {
            let from = parser.ident()?;
            parser.expect_keyword(Keyword::To)?;
            Ok((from, parser.ident()?))
        })
    }

    fn alter_column(&mut self) -> Result<AlterTableOperation> {
        self.advance();
        let if_exists = self.if_exists()?;
        let column = self.column()?;
        if !if_exists && self.eat_keyword(Keyword::Type) {
            return Ok(AlterTableOperation::AlterType { column, data_type: self.data_type()? });
        }
        if self.eat_keyword(Keyword::Drop) {
            if self.eat_keyword(Keyword::Check) {
                return Ok(AlterTableOperation::Constrain { if_exists, column, constraints: Vec::new() });
            }
            self.expect_keyword(Keyword::Masked)?;
            return Ok(AlterTableOperation::Mask { if_exists, column, mask: None });
        }
        if let Some(mask) = self.mask()? {
            return Ok(AlterTableOperation::Mask { if_exists, column, mask: Some(mask) });
        }
        let constraints = self.constraints()?;
        if constraints.is_empty() {
            return Err(self.unexpected());
        }
        Ok(AlterTableOperation::Constrain { if_exists, column, constraints })
    }

    fn add_columns(&mut self) -> Result<AlterTableOperation> {
        self.advance();
        let if_not_exists = self.if_not_exists()?;
        let columns = if self.kind() == Kind::LeftParen {
            self.bracketed(Self::column_definition)?
        } else {
            // ScyllaDB takes several columns without brackets too.
            self.want("'('");
            self.comma_separated(Self::column_definition)?
        };
        Ok(AlterTableOperation::Add { if_not_exists, columns })
    }

    fn drop_columns(&mut self) -> Result<AlterTableOperation> {
        self.advance();
        if self.eat_two(Keyword::Compact, Keyword::Storage) {
            return Ok(AlterTableOperation::DropCompactStorage);
        }
        let if_exists = self.if_exists()?;
        let columns = if self.kind() == Kind::LeftParen {
            self.bracketed(Self::ident)?
        } else {
            self.want("'('");
            vec![self.ident()?]
        };
        let mut timestamp = None;
        if self.eat_keyword(Keyword::Using) {
            self.expect_keyword(Keyword::Timestamp)?;
            if self.kind() != Kind::Integer {
                return Err(self.unexpected_want("an integer"));
            }
            let Ok(micros) = self.text().parse() else {
                return Err(self.rule(format!("{} is not a timestamp in microseconds", self.text())));
            };
            timestamp = Some(micros);
            self.advance();
        }
        Ok(AlterTableOperation::Drop { if_exists, columns, timestamp })
    }
}
