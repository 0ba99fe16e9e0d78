//! INSERT, UPDATE, DELETE, BATCH, TRUNCATE, USE.

use super::{Parser, Result};
use crate::ast::{
    Assignment, Batch, BatchKind, Constant, Delete, DeleteTarget, Insert, InsertSource, JsonValue,
    Modification, Operation, PruneView, Term, TermKind, Truncate, Update, Use, Using,
};
use crate::keyword::Keyword;
use crate::lexer::Kind;

/// Which attributes a USING clause may set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attributes {
    All,
    /// No TTL: a DELETE.
    TimestampAndTimeout,
    /// Only the timeout: SELECT, TRUNCATE.
    Timeout,
    /// Timeout and concurrency: PRUNE.
    TimeoutAndConcurrency,
}

impl Parser<'_> {
    /// `USE keyspace`.
    pub(super) fn use_keyspace(&mut self) -> Result<Use> {
        self.expect_keyword(Keyword::Use)?;
        Ok(Use { keyspace: self.keyspace_name()? })
    }

    /// `TRUNCATE [TABLE] table`.
    pub(super) fn truncate(&mut self) -> Result<Truncate> {
        self.expect_keyword(Keyword::Truncate)?;
        self.eat_table_keyword();
        Ok(Truncate { table: self.table_name()?, using: self.using_timeout()? })
    }

    /// `TABLE` or `COLUMNFAMILY`.
    pub(super) fn eat_table_keyword(&mut self) -> bool {
        self.eat_keyword(Keyword::Table) || self.eat_keyword(Keyword::Columnfamily)
    }

    /// `PRUNE MATERIALIZED VIEW view …`.
    pub(super) fn prune_view(&mut self) -> Result<PruneView> {
        self.expect_keyword(Keyword::Prune)?;
        self.expect_keyword(Keyword::Materialized)?;
        self.expect_keyword(Keyword::View)?;
        let view = self.table_name()?;
        let filter = if self.eat_keyword(Keyword::Where) { self.where_clause()? } else { Vec::new() };
        Ok(PruneView { view, filter, using: self.using(Attributes::TimeoutAndConcurrency)? })
    }

    /// `USING TIMEOUT …`, or nothing.
    pub(super) fn using_timeout(&mut self) -> Result<Using> {
        self.using(Attributes::Timeout)
    }

    fn using(&mut self, allowed: Attributes) -> Result<Using> {
        let mut using = Using::default();
        if !self.eat_keyword(Keyword::Using) {
            return Ok(using);
        }
        loop {
            let token = self.cursor.token;
            // An attribute given twice counts as given last, but a marker would have no place then.
            let writes = matches!(allowed, Attributes::All | Attributes::TimestampAndTimeout);
            let prunes = allowed == Attributes::TimeoutAndConcurrency;
            let (slot, value) = if writes && self.eat_keyword(Keyword::Timestamp) {
                (&mut using.timestamp, self.integer_or_marker()?)
            } else if allowed == Attributes::All && self.eat_keyword(Keyword::Ttl) {
                (&mut using.ttl, self.integer_or_marker()?)
            } else if self.eat_keyword(Keyword::Timeout) {
                (&mut using.timeout, self.duration_or_marker()?)
            } else if prunes && self.eat_keyword(Keyword::Concurrency) {
                (&mut using.concurrency, self.integer_or_marker()?)
            } else {
                return Err(self.unexpected());
            };
            if slot.as_ref().is_some_and(|before| matches!(before.kind, TermKind::Marker(_))) {
                return Err(self.rule_at(token, "A property whose value is a marker is given twice"));
            }
            *slot = Some(value);
            if !self.eat_keyword(Keyword::And) {
                return Ok(using);
            }
        }
    }

    /// A duration, a marker or null: of TIMEOUT.
    fn duration_or_marker(&mut self) -> Result<Term> {
        let pos = self.pos();
        let kind = match self.kind() {
            Kind::Duration => {
                let text = self.text().to_owned();
                self.advance();
                TermKind::Constant(Constant::Duration(text))
            }
            Kind::QuestionMark | Kind::Colon => TermKind::Marker(self.marker()?),
            Kind::Keyword(Keyword::Null) => {
                self.advance();
                TermKind::Null
            }
            _ => return Err(self.unexpected_want("a duration or a bind marker")),
        };
        Ok(Term { kind, pos })
    }

    /// `INSERT INTO …`.
    pub(super) fn insert(&mut self) -> Result<Insert> {
        self.expect_keyword(Keyword::Insert)?;
        self.expect_keyword(Keyword::Into)?;
        let table = self.table_name()?;
        let source = if self.eat_keyword(Keyword::Json) {
            self.json_source()?
        } else {
            let columns = self.bracketed(Self::column)?;
            self.expect_keyword(Keyword::Values)?;
            InsertSource::Values { columns, values: self.bracketed(Self::term)? }
        };
        let if_not_exists = self.if_not_exists()?;
        let using = self.using(Attributes::All)?;
        Ok(Insert { table, source, if_not_exists, using })
    }

    fn json_source(&mut self) -> Result<InsertSource> {
        let value = match self.kind() {
            Kind::QuestionMark | Kind::Colon => JsonValue::Marker(self.marker()?),
            _ => JsonValue::Text(self.string()?),
        };
        let mut default_unset = false;
        if self.eat_keyword(Keyword::Default) && !self.eat_keyword(Keyword::Null) {
            self.expect_keyword(Keyword::Unset)?;
            default_unset = true;
        }
        Ok(InsertSource::Json { value, default_unset })
    }

    /// `UPDATE …`.
    pub(super) fn update(&mut self) -> Result<Update> {
        self.expect_keyword(Keyword::Update)?;
        let table = self.table_name()?;
        let using = self.using(Attributes::All)?;
        self.expect_keyword(Keyword::Set)?;
        let assignments = self.comma_separated(Self::assignment)?;
        self.expect_keyword(Keyword::Where)?;
        let filter = self.where_clause()?;
        let condition = self.condition()?;
        Ok(Update { table, using, assignments, filter, condition })
    }

    fn assignment(&mut self) -> Result<Assignment> {
        let pos = self.pos();
        let column = self.column()?;
        let operation = match self.kind() {
            Kind::PlusEqual => {
                self.advance();
                Operation::Add(self.term()?)
            }
            Kind::MinusEqual => {
                self.advance();
                Operation::Subtract(self.term()?)
            }
            Kind::LeftBracket => {
                self.advance();
                let key = self.term()?;
                self.expect(Kind::RightBracket)?;
                self.expect(Kind::Equal)?;
                Operation::SetElement(key, self.term()?)
            }
            Kind::Dot => {
                self.advance();
                let field = self.ident()?;
                self.expect(Kind::Equal)?;
                Operation::SetField(field, self.term()?)
            }
            Kind::Equal => {
                self.advance();
                self.assigned_value(&column.name)?
            }
            _ => {
                for what in ["'='", "'+='", "'-='", "'['", "'.'"] {
                    self.want(what);
                }
                return Err(self.unexpected());
            }
        };
        Ok(Assignment { column, operation, pos })
    }

    /// The right-hand side of `column =`.
    fn assigned_value(&mut self, column: &str) -> Result<Operation> {
        let is_column = self.kind() == Kind::EmptyName || self.kind().is_name();
        let signed_number = match self.next_kind() {
            Kind::Integer | Kind::Float => self.text_of(self.cursor.next).starts_with('-'),
            _ => false,
        };
        if is_column && (signed_number || matches!(self.next_kind(), Kind::Plus | Kind::Minus)) {
            let token = self.cursor.token;
            let operand = self.column()?;
            let sign = if signed_number { "- " } else { self.text() };
            if operand.name != column {
                let text = format!("Only expressions of the form X = X {sign}<value> are supported.");
                return Err(self.rule_at(token, text));
            }
            if signed_number {
                return Ok(Operation::Add(self.term()?));
            }
            let minus = self.kind() == Kind::Minus;
            self.advance();
            let term = self.term()?;
            return Ok(if minus { Operation::Subtract(term) } else { Operation::Add(term) });
        }
        let term = self.term_before_column()?;
        if self.kind() != Kind::Plus {
            return Ok(Operation::Set(term));
        }
        self.advance();
        let token = self.cursor.token;
        if self.column()?.name != column {
            let text = "Only expressions of the form X = <value> + X are supported.";
            return Err(self.rule_at(token, text));
        }
        Ok(Operation::Prepend(term))
    }

    /// `DELETE …`.
    pub(super) fn delete(&mut self) -> Result<Delete> {
        self.expect_keyword(Keyword::Delete)?;
        let targets = match self.kind() {
            Kind::Keyword(Keyword::From) => Vec::new(),
            _ => {
                self.want("FROM");
                self.comma_separated(Self::delete_target)?
            }
        };
        self.expect_keyword(Keyword::From)?;
        let table = self.table_name()?;
        let using = self.using(Attributes::TimestampAndTimeout)?;
        self.expect_keyword(Keyword::Where)?;
        let filter = self.where_clause()?;
        let condition = self.condition()?;
        // ScyllaDB's: no limit of sizes holds for a deletion here.
        if self.eat_keyword(Keyword::Bypass) {
            let token = self.cursor.token;
            if self.ident()?.name != "large_data_guardrails" {
                return Err(self.rule_at(token, "BYPASS of DELETE is followed by LARGE_DATA_GUARDRAILS"));
            }
        }
        Ok(Delete { targets, table, using, filter, condition })
    }

    fn delete_target(&mut self) -> Result<DeleteTarget> {
        let column = self.column()?;
        if self.eat(Kind::LeftBracket) {
            let key = self.term()?;
            self.expect(Kind::RightBracket)?;
            return Ok(DeleteTarget::Element(column, key));
        }
        if self.eat(Kind::Dot) {
            return Ok(DeleteTarget::Field(column, self.ident()?));
        }
        Ok(DeleteTarget::Column(column))
    }

    /// `BEGIN … BATCH … APPLY BATCH`.
    pub(super) fn batch(&mut self) -> Result<Batch> {
        let mut batch = self.batch_head()?;
        while self.batch_statement(&mut batch)? {}
        self.batch_end()?;
        Ok(batch)
    }

    /// `BEGIN … BATCH` with its attributes; the batch has no statements yet.
    pub(super) fn batch_head(&mut self) -> Result<Batch> {
        self.expect_keyword(Keyword::Begin)?;
        let kind = if self.eat_keyword(Keyword::Unlogged) {
            BatchKind::Unlogged
        } else if self.eat_keyword(Keyword::Counter) {
            BatchKind::Counter
        } else {
            BatchKind::Logged
        };
        self.expect_keyword(Keyword::Batch)?;
        let using = self.using(Attributes::All)?;
        Ok(Batch { kind, using, statements: Vec::new() })
    }

    /// The next statement of a batch; false when there is none.
    pub(super) fn batch_statement(&mut self, batch: &mut Batch) -> Result<bool> {
        self.begin_part();
        let Some(statement) = self.modification()? else { return Ok(false) };
        batch.statements.push(statement);
        self.eat(Kind::Semicolon);
        Ok(true)
    }

    /// `APPLY BATCH`.
    pub(super) fn batch_end(&mut self) -> Result<()> {
        self.expect_keyword(Keyword::Apply)?;
        self.expect_keyword(Keyword::Batch)
    }

    /// An INSERT, UPDATE or DELETE, if one starts here.
    pub(super) fn modification(&mut self) -> Result<Option<Modification>> {
        let statement = match self.kind() {
            Kind::Keyword(Keyword::Insert) => Modification::Insert(self.insert()?),
            Kind::Keyword(Keyword::Update) => Modification::Update(self.update()?),
            Kind::Keyword(Keyword::Delete) => Modification::Delete(self.delete()?),
            _ => {
                for what in ["INSERT", "UPDATE", "DELETE"] {
                    self.want(what);
                }
                return Ok(None);
            }
        };
        Ok(Some(statement))
    }
}
