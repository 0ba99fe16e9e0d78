//! Prints INSERT, UPDATE, DELETE, BATCH and transactions.

use super::Printer;
use crate::ast::{
    Assignment, Batch, BatchKind, Condition, Delete, DeleteTarget, Insert, InsertSource, JsonValue,
    Modification, Operation, Returning, Term, TermKind, Transaction, Update, Using,
};

impl Printer {
    /// ` USING …`, or nothing. Markers stand in the order of their numbers.
    pub(super) fn using(&mut self, using: &Using) {
        let mut attributes: Vec<(&str, &Term)> = Vec::new();
        attributes.extend(using.timestamp.as_ref().map(|term| ("TIMESTAMP ", term)));
        attributes.extend(using.ttl.as_ref().map(|term| ("TTL ", term)));
        attributes.extend(using.timeout.as_ref().map(|term| ("TIMEOUT ", term)));
        attributes.extend(using.concurrency.as_ref().map(|term| ("CONCURRENCY ", term)));
        attributes.sort_by_key(|(_, term)| match &term.kind {
            TermKind::Marker(marker) => marker.index,
            _ => u32::MAX,
        });
        if !attributes.is_empty() {
            self.push(" USING ");
            self.separated(&attributes, " AND ", |printer, (name, term)| {
                printer.push(name);
                printer.term(term);
            });
        }
    }

    pub(super) fn insert(&mut self, insert: &Insert) {
        self.push("INSERT INTO ");
        self.qualified_name(&insert.table);
        self.push(" ");
        match &insert.source {
            InsertSource::Values { columns, values } => {
                self.idents(columns);
                self.push(" VALUES ");
                self.bracketed(values, Self::term);
            }
            InsertSource::Json { value, default_unset } => {
                self.push("JSON ");
                match value {
                    JsonValue::Text(text) => self.string(text),
                    JsonValue::Marker(marker) => self.marker(marker),
                }
                self.push_if(*default_unset, " DEFAULT UNSET");
            }
        }
        self.push_if(insert.if_not_exists, " IF NOT EXISTS");
        self.using(&insert.using);
    }

    pub(super) fn update(&mut self, update: &Update) {
        self.push("UPDATE ");
        self.qualified_name(&update.table);
        self.using(&update.using);
        self.push(" SET ");
        self.separated(&update.assignments, ", ", Self::assignment);
        self.where_clause(&update.filter);
        self.condition(&update.condition);
    }

    fn assignment(&mut self, assignment: &Assignment) {
        let column = &assignment.column;
        self.ident(column);
        match &assignment.operation {
            Operation::Set(term) => {
                self.push(" = ");
                self.term(term);
            }
            Operation::Add(term) => {
                self.push(" = ");
                self.ident(column);
                self.push(" + ");
                self.term(term);
            }
            Operation::Prepend(term) => {
                self.push(" = ");
                self.term(term);
                self.push(" + ");
                self.ident(column);
            }
            Operation::Subtract(term) => {
                self.push(" = ");
                self.ident(column);
                self.push(" - ");
                self.term(term);
            }
            Operation::SetElement(key, term) => {
                self.push("[");
                self.term(key);
                self.push("] = ");
                self.term(term);
            }
            Operation::SetField(field, term) => {
                self.push(".");
                self.ident(field);
                self.push(" = ");
                self.term(term);
            }
        }
    }

    fn condition(&mut self, condition: &Condition) {
        match condition {
            Condition::None => {}
            Condition::Exists => self.push(" IF EXISTS"),
            Condition::Relations(relations) => {
                self.push(" IF ");
                self.separated(relations, " AND ", Self::relation);
            }
        }
    }

    pub(super) fn delete(&mut self, delete: &Delete) {
        self.push("DELETE ");
        self.separated(&delete.targets, ", ", |printer, target| match target {
            DeleteTarget::Column(column) => printer.ident(column),
            DeleteTarget::Element(column, key) => {
                printer.ident(column);
                printer.push("[");
                printer.term(key);
                printer.push("]");
            }
            DeleteTarget::Field(column, field) => {
                printer.ident(column);
                printer.push(".");
                printer.ident(field);
            }
        });
        self.push_if(!delete.targets.is_empty(), " ");
        self.push("FROM ");
        self.qualified_name(&delete.table);
        self.using(&delete.using);
        self.where_clause(&delete.filter);
        self.condition(&delete.condition);
    }

    pub(super) fn batch(&mut self, batch: &Batch) {
        self.push(match batch.kind {
            BatchKind::Logged => "BEGIN BATCH",
            BatchKind::Unlogged => "BEGIN UNLOGGED BATCH",
            BatchKind::Counter => "BEGIN COUNTER BATCH",
        });
        self.using(&batch.using);
        for statement in &batch.statements {
            self.push(" ");
            self.modification(statement);
            self.push(";");
        }
        self.push(" APPLY BATCH");
    }

    fn modification(&mut self, statement: &Modification) {
        match statement {
            Modification::Insert(insert) => self.insert(insert),
            Modification::Update(update) => self.update(update),
            Modification::Delete(delete) => self.delete(delete),
        }
    }

    pub(super) fn transaction(&mut self, transaction: &Transaction) {
        self.push("BEGIN TRANSACTION");
        for (name, select) in &transaction.lets {
            self.push(" LET ");
            self.ident(name);
            self.push(" = (");
            self.select(select);
            self.push(");");
        }
        match &transaction.returning {
            Some(Returning::Select(select)) => {
                self.push(" ");
                self.select(select);
                self.push(";");
            }
            Some(Returning::References(references)) => {
                self.push(" SELECT ");
                self.separated(references, ", ", Self::row_reference);
                self.push(";");
            }
            None => {}
        }
        let conditional = !transaction.conditions.is_empty();
        if conditional {
            self.push(" IF ");
            self.separated(&transaction.conditions, " AND ", Self::relation);
            self.push(" THEN");
        }
        for update in &transaction.updates {
            self.push(" ");
            self.modification(update);
            self.push(";");
        }
        self.push_if(conditional, " END IF");
        self.push(" COMMIT TRANSACTION");
    }
}
