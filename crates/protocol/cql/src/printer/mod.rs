//! The printer: from the tree to canonical text, which parses to an equal tree.
//!
//! Keywords in upper case, names quoted only where they must be, one space between tokens. Parts that a clause does not
//! have are not printed.

mod ddl;
mod dml;
mod roles;
mod select;
mod terms;

use std::fmt;

use crate::ast::{
    Constant, DataType, FunctionCall, Ident, QualifiedName, Relation, Selector, Statement, Term,
};
use crate::ident::{is_plain, keyword, push_name, push_name_if, push_quoted};
use crate::keyword::{Class, Keyword};

/// The statement as text for logs and traces: like its `Display`, but passwords are replaced by `***`.
pub fn redacted(statement: &Statement) -> String {
    let mut printer = Printer { out: String::new(), redact: true };
    printer.statement(statement);
    printer.out
}

macro_rules! display {
    ($($what:ty => $method:ident;)*) => {
        $(impl fmt::Display for $what {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut printer = Printer { out: String::new(), redact: false };
                printer.$method(self);
                f.write_str(&printer.out)
            }
        })*
    };
}

display! {
    Statement => statement;
    Relation => relation;
    Selector => selector;
    Term => term;
    Constant => constant;
    DataType => data_type;
    QualifiedName => qualified_name;
    Ident => ident;
}

struct Printer {
    out: String,
    redact: bool,
}

impl Printer {
    fn push(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// The items with `separator` between them.
    fn separated<T>(&mut self, items: &[T], separator: &str, mut item: impl FnMut(&mut Self, &T)) {
        for (i, one) in items.iter().enumerate() {
            if i > 0 {
                self.push(separator);
            }
            item(self, one);
        }
    }

    /// The items in brackets.
    fn bracketed<T>(&mut self, items: &[T], item: impl FnMut(&mut Self, &T)) {
        self.push("(");
        self.separated(items, ", ", item);
        self.push(")");
    }

    /// `text` when `present`.
    fn push_if(&mut self, present: bool, text: &str) {
        if present {
            self.push(text);
        }
    }

    fn ident(&mut self, ident: &Ident) {
        self.name(&ident.name);
    }

    fn name(&mut self, name: &str) {
        push_name(&mut self.out, name);
    }

    fn idents(&mut self, idents: &[Ident]) {
        self.bracketed(idents, Self::ident);
    }

    fn keyspace_dot(&mut self, keyspace: &Option<String>) {
        if let Some(keyspace) = keyspace {
            self.name(keyspace);
            self.push(".");
        }
    }

    fn qualified_name(&mut self, name: &QualifiedName) {
        self.keyspace_dot(&name.keyspace);
        self.name(&name.name);
    }

    /// The name of a function: a keyword is quoted unless functions are usually called so.
    fn function_name(&mut self, name: &QualifiedName) {
        self.keyspace_dot(&name.keyspace);
        self.bare_function_name(&name.name);
    }

    fn bare_function_name(&mut self, name: &str) {
        push_name_if(&mut self.out, name, |keyword| {
            matches!(keyword.class(), Class::Native(_) | Class::Context)
                || matches!(keyword, Keyword::Token | Keyword::Count)
        });
    }

    /// The name of a user-defined type: any keyword is quoted, and so are the names kept for later types.
    fn type_name(&mut self, name: &QualifiedName) {
        self.keyspace_dot(&name.keyspace);
        if crate::parser::is_reserved_type_name(&name.name) {
            push_quoted(&mut self.out, &name.name, '"');
        } else {
            push_name_if(&mut self.out, &name.name, |keyword| keyword.class() == Class::Context);
        }
    }

    /// A name where Cassandra's lexer must see a plain word: any keyword is quoted.
    fn unkeyworded_name(&mut self, name: &str) {
        push_name_if(&mut self.out, name, |_| false);
    }

    fn string(&mut self, text: &str) {
        push_quoted(&mut self.out, text, '\'');
    }

    /// A string of many lines: between `$$` when it may be.
    fn long_string(&mut self, text: &str) {
        if text.contains("$$") || text.ends_with('$') {
            self.string(text);
        } else {
            self.push("$$");
            self.push(text);
            self.push("$$");
        }
    }

    fn constant(&mut self, constant: &Constant) {
        match constant {
            Constant::String(text) => self.string(text),
            other => self.push(other.text()),
        }
    }

    fn data_type(&mut self, data_type: &DataType) {
        match data_type {
            DataType::Native(native) => self.push(native.name()),
            DataType::List(element) => self.generic_type("list", &[element]),
            DataType::Set(element) => self.generic_type("set", &[element]),
            DataType::Map(key, value) => self.generic_type("map", &[key, value]),
            DataType::Frozen(inner) => self.generic_type("frozen", &[inner]),
            DataType::Tuple(elements) => self.generic_type("tuple", &elements.iter().collect::<Vec<_>>()),
            DataType::Vector(element, dimension) => {
                self.push("vector<");
                self.data_type(element);
                self.push(&format!(", {dimension}>"));
            }
            DataType::UserDefined(name) => self.type_name(name),
            DataType::Custom(class) => self.string(class),
        }
    }

    fn generic_type(&mut self, name: &str, arguments: &[&DataType]) {
        self.push(name);
        self.push("<");
        self.separated(arguments, ", ", |printer, data_type| printer.data_type(data_type));
        self.push(">");
    }

    fn call<A>(&mut self, call: &FunctionCall<A>, arg: impl FnMut(&mut Self, &A)) {
        self.function_name(&call.name);
        self.bracketed(&call.args, arg);
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Select(select) => self.select(select),
            Statement::Insert(insert) => self.insert(insert),
            Statement::Update(update) => self.update(update),
            Statement::Delete(delete) => self.delete(delete),
            Statement::Batch(batch) => self.batch(batch),
            Statement::Transaction(transaction) => self.transaction(transaction),
            Statement::Truncate(truncate) => {
                self.push("TRUNCATE ");
                self.qualified_name(&truncate.table);
                self.using(&truncate.using);
            }
            Statement::PruneView(prune) => {
                self.push("PRUNE MATERIALIZED VIEW ");
                self.qualified_name(&prune.view);
                self.where_clause(&prune.filter);
                self.using(&prune.using);
            }
            Statement::Use(use_keyspace) => {
                self.push("USE ");
                self.ident(&use_keyspace.keyspace);
            }
            Statement::Describe(describe) => self.describe(describe),
            other => self.schema_statement(other),
        }
    }
}

/// Whether a role may be printed bare.
fn is_plain_role(name: &str) -> bool {
    is_plain(name) && keyword(name).is_none()
}
