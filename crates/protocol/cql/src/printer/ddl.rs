//! Prints schema statements and DESCRIBE.

use super::Printer;
use crate::ast::{
    AlterTable, AlterTableOperation, AlterType, AlterTypeOperation, ColumnDefinition, CommentOn,
    CommentSubject, Constant, Constraint, ConstraintArgument, CopyTable, CreateAggregate, CreateFunction,
    CreateIndex, CreateTable, CreateType, CreateView, DataType, Describe, DescribeTarget, Direction, Ident,
    IndexTarget, Mask, PrimaryKey, Property, PropertyValue, SECURITY_LABELS, SecurityLabel, Statement,
};

impl Printer {
    pub(super) fn schema_statement(&mut self, statement: &Statement) {
        match statement {
            Statement::CreateKeyspace(create) => {
                self.create("KEYSPACE", create.if_not_exists);
                self.ident(&create.name);
                self.with(&create.properties);
            }
            Statement::AlterKeyspace(alter) => {
                self.verb("ALTER KEYSPACE", alter.if_exists);
                self.ident(&alter.name);
                self.with(&alter.properties);
            }
            Statement::DropKeyspace(drop) => {
                self.verb("DROP KEYSPACE", drop.if_exists);
                self.ident(&drop.name);
            }
            Statement::CreateTable(create) => self.create_table(create),
            Statement::CopyTable(copy) => self.copy_table(copy),
            Statement::AlterTable(alter) => self.alter_table(alter),
            Statement::DropTable(drop) => {
                self.verb("DROP TABLE", drop.if_exists);
                self.qualified_name(&drop.name);
            }
            Statement::CreateType(create) => self.create_type(create),
            Statement::AlterType(alter) => self.alter_type(alter),
            Statement::DropType(drop) => {
                self.verb("DROP TYPE", drop.if_exists);
                self.type_name(&drop.name);
            }
            Statement::CreateIndex(create) => self.create_index(create),
            Statement::DropIndex(drop) => {
                self.verb("DROP INDEX", drop.if_exists);
                self.qualified_name(&drop.name);
            }
            Statement::CreateView(create) => self.create_view(create),
            Statement::AlterView(alter) => {
                self.verb("ALTER MATERIALIZED VIEW", alter.if_exists);
                self.qualified_name(&alter.name);
                self.with(&alter.properties);
            }
            Statement::DropView(drop) => {
                self.verb("DROP MATERIALIZED VIEW", drop.if_exists);
                self.qualified_name(&drop.name);
            }
            other => self.program_statement(other),
        }
    }

    /// Functions, aggregates, triggers and comments.
    fn program_statement(&mut self, statement: &Statement) {
        match statement {
            Statement::CreateFunction(create) => self.create_function(create),
            Statement::DropFunction(drop) => {
                self.verb("DROP FUNCTION", drop.if_exists);
                self.function_name(&drop.name);
                self.signature(&drop.args);
            }
            Statement::CreateAggregate(create) => self.create_aggregate(create),
            Statement::DropAggregate(drop) => {
                self.verb("DROP AGGREGATE", drop.if_exists);
                self.function_name(&drop.name);
                self.signature(&drop.args);
            }
            Statement::CreateTrigger(create) => {
                self.create("TRIGGER", create.if_not_exists);
                self.ident(&create.name);
                self.push(" ON ");
                self.qualified_name(&create.table);
                self.push(" USING ");
                self.string(&create.class);
            }
            Statement::DropTrigger(drop) => {
                self.verb("DROP TRIGGER", drop.if_exists);
                self.ident(&drop.name);
                self.push(" ON ");
                self.qualified_name(&drop.table);
            }
            Statement::CommentOn(comment) => self.comment_on(comment),
            Statement::SecurityLabel(label) => self.security_label(label),
            other => self.access_statement(other),
        }
    }

    /// `CREATE element [IF NOT EXISTS] `.
    pub(super) fn create(&mut self, element: &str, if_not_exists: bool) {
        self.push("CREATE ");
        self.push(element);
        self.push(if if_not_exists { " IF NOT EXISTS " } else { " " });
    }

    /// `VERB ELEMENT [IF EXISTS] `.
    pub(super) fn verb(&mut self, verb: &str, if_exists: bool) {
        self.push(verb);
        self.push(if if_exists { " IF EXISTS " } else { " " });
    }

    /// ` WITH …`, or nothing.
    pub(super) fn with(&mut self, properties: &[Property]) {
        if !properties.is_empty() {
            self.push(" WITH ");
            self.properties(properties);
        }
    }

    pub(super) fn properties(&mut self, properties: &[Property]) {
        self.separated(properties, " AND ", |printer, property| {
            printer.name(&property.name);
            printer.push(" = ");
            match &property.value {
                PropertyValue::Constant(constant) => printer.constant(constant),
                PropertyValue::Keyword(word) => printer.push(word),
                PropertyValue::Map(entries) => printer.constant_map(entries),
                PropertyValue::Null => printer.push("NULL"),
            }
        });
    }

    pub(super) fn constant_map(&mut self, entries: &[(Constant, Constant)]) {
        self.push("{");
        self.separated(entries, ", ", |printer, (key, value)| {
            printer.constant(key);
            printer.push(": ");
            printer.constant(value);
        });
        self.push("}");
    }

    fn create_table(&mut self, create: &CreateTable) {
        self.create("TABLE", create.if_not_exists);
        self.qualified_name(&create.name);
        self.push(" (");
        self.separated(&create.columns, ", ", Self::column_definition);
        for (i, key) in create.primary_keys.iter().enumerate() {
            self.push_if(i > 0 || !create.columns.is_empty(), ", ");
            self.primary_key(key);
        }
        self.push(")");
        let compact = if create.compact_storage { Some("COMPACT STORAGE") } else { None };
        self.table_properties(compact, &create.clustering_order, &create.properties);
    }

    fn table_properties(
        &mut self,
        first: Option<&str>,
        order: &[(Ident, Direction)],
        properties: &[Property],
    ) {
        let mut separator = " WITH ";
        if let Some(first) = first {
            self.push(separator);
            self.push(first);
            separator = " AND ";
        }
        if !order.is_empty() {
            self.push(separator);
            self.push("CLUSTERING ORDER BY ");
            self.bracketed(order, |printer, (column, direction)| {
                printer.ident(column);
                printer.push(if *direction == Direction::Ascending { " ASC" } else { " DESC" });
            });
            separator = " AND ";
        }
        if !properties.is_empty() {
            self.push(separator);
            self.properties(properties);
        }
    }

    fn primary_key(&mut self, key: &PrimaryKey) {
        self.push("PRIMARY KEY (");
        match key.partition.as_slice() {
            [one] => self.ident(one),
            several => self.idents(several),
        }
        for column in &key.clustering {
            self.push(", ");
            self.ident(column);
        }
        self.push(")");
    }

    fn column_definition(&mut self, column: &ColumnDefinition) {
        self.ident(&column.name);
        self.push(" ");
        self.data_type(&column.data_type);
        self.push_if(column.is_ttl, " TTL");
        self.push_if(column.is_static, " STATIC");
        if let Some(mask) = &column.mask {
            self.mask(mask);
        }
        self.constraints(&column.constraints);
    }

    fn mask(&mut self, mask: &Mask) {
        self.push(" MASKED WITH ");
        match &mask.function {
            Some(function) => {
                self.function_name(function);
                self.bracketed(&mask.args, Self::term);
            }
            None => self.push("DEFAULT"),
        }
    }

    fn constraints(&mut self, constraints: &[Constraint]) {
        if constraints.is_empty() {
            return;
        }
        self.push(" CHECK ");
        self.separated(constraints, " AND ", |printer, constraint| match constraint {
            Constraint::Scalar { column, operator, value } => {
                if let Some(column) = column {
                    printer.ident(column);
                    printer.push(" ");
                }
                printer.push(operator.symbol());
                printer.push(" ");
                printer.term(value);
            }
            Constraint::Function { name, args, comparison } => {
                printer.ident(name);
                printer.bracketed(args, |printer, arg| match arg {
                    ConstraintArgument::Column(column) => printer.ident(column),
                    ConstraintArgument::Value(value) => printer.term(value),
                });
                if let Some((operator, value)) = comparison {
                    printer.push(&format!(" {} ", operator.symbol()));
                    printer.term(value);
                }
            }
            Constraint::NotNull => printer.push("NOT NULL"),
        });
    }

    fn copy_table(&mut self, copy: &CopyTable) {
        self.create("TABLE", copy.if_not_exists);
        self.qualified_name(&copy.name);
        self.push(" LIKE ");
        self.qualified_name(&copy.source);
        self.push_if(!copy.options.is_empty() || !copy.properties.is_empty(), " WITH ");
        self.separated(&copy.options, " AND ", |printer, option| match option.name.as_str() {
            SECURITY_LABELS => printer.push("SECURITY LABELS"),
            _ => printer.ident(option),
        });
        self.push_if(!copy.options.is_empty() && !copy.properties.is_empty(), " AND ");
        self.properties(&copy.properties);
    }

    fn alter_table(&mut self, alter: &AlterTable) {
        self.verb("ALTER TABLE", alter.if_exists);
        self.qualified_name(&alter.name);
        match &alter.operation {
            AlterTableOperation::AlterType { column, data_type } => {
                self.push(" ALTER ");
                self.ident(column);
                self.push(" TYPE ");
                self.data_type(data_type);
            }
            AlterTableOperation::Mask { if_exists, column, mask } => {
                self.verb(" ALTER", *if_exists);
                self.ident(column);
                match mask {
                    Some(mask) => self.mask(mask),
                    None => self.push(" DROP MASKED"),
                }
            }
            AlterTableOperation::Ttl(column) => {
                self.push(" TTL ");
                match column {
                    Some(column) => self.ident(column),
                    None => self.push("NULL"),
                }
            }
            AlterTableOperation::Constrain { if_exists, column, constraints } => {
                self.verb(" ALTER", *if_exists);
                self.ident(column);
                self.push_if(constraints.is_empty(), " DROP CHECK");
                self.constraints(constraints);
            }
            AlterTableOperation::Add { if_not_exists, columns } => {
                self.push(if *if_not_exists { " ADD IF NOT EXISTS " } else { " ADD " });
                match columns.as_slice() {
                    [one] => self.column_definition(one),
                    several => self.bracketed(several, Self::column_definition),
                }
            }
            AlterTableOperation::Drop { if_exists, columns, timestamp } => {
                self.verb(" DROP", *if_exists);
                match columns.as_slice() {
                    [one] => self.ident(one),
                    several => self.idents(several),
                }
                if let Some(timestamp) = timestamp {
                    self.push(&format!(" USING TIMESTAMP {timestamp}"));
                }
            }
            AlterTableOperation::Rename { if_exists, columns } => {
                self.verb(" RENAME", *if_exists);
                self.renames(columns);
            }
            AlterTableOperation::DropCompactStorage => self.push(" DROP COMPACT STORAGE"),
            AlterTableOperation::With(properties) => self.with(properties),
        }
    }

    fn renames(&mut self, renames: &[(Ident, Ident)]) {
        self.separated(renames, " AND ", |printer, (from, to)| {
            printer.ident(from);
            printer.push(" TO ");
            printer.ident(to);
        });
    }

    fn field(&mut self, (name, data_type): &(Ident, DataType)) {
        self.ident(name);
        self.push(" ");
        self.data_type(data_type);
    }

    fn create_type(&mut self, create: &CreateType) {
        self.create("TYPE", create.if_not_exists);
        self.type_name(&create.name);
        self.push(" ");
        self.bracketed(&create.fields, Self::field);
    }

    fn alter_type(&mut self, alter: &AlterType) {
        self.verb("ALTER TYPE", alter.if_exists);
        self.type_name(&alter.name);
        match &alter.operation {
            AlterTypeOperation::AlterField { field, data_type } => {
                self.push(" ALTER ");
                self.ident(field);
                self.push(" TYPE ");
                self.data_type(data_type);
            }
            AlterTypeOperation::Add { if_not_exists, field, data_type } => {
                self.push(if *if_not_exists { " ADD IF NOT EXISTS " } else { " ADD " });
                self.ident(field);
                self.push(" ");
                self.data_type(data_type);
            }
            AlterTypeOperation::Rename { if_exists, fields } => {
                self.verb(" RENAME", *if_exists);
                self.renames(fields);
            }
        }
    }

    fn create_index(&mut self, create: &CreateIndex) {
        self.create(if create.custom { "CUSTOM INDEX" } else { "INDEX" }, create.if_not_exists);
        if let Some(name) = &create.name {
            self.ident(name);
            self.push(" ");
        }
        self.push("ON ");
        self.qualified_name(&create.table);
        self.push(" ");
        self.bracketed(&create.targets, |printer, target| {
            let (function, column) = match target {
                IndexTarget::Column(column) => return printer.ident(column),
                IndexTarget::PartitionKey(columns) => return printer.idents(columns),
                IndexTarget::Values(column) => ("values(", column),
                IndexTarget::Keys(column) => ("keys(", column),
                IndexTarget::Entries(column) => ("entries(", column),
                IndexTarget::Full(column) => ("full(", column),
            };
            printer.push(function);
            printer.ident(column);
            printer.push(")");
        });
        if let Some(class) = &create.using {
            self.push(" USING ");
            self.string(class);
        }
        self.with(&create.properties);
    }

    fn create_view(&mut self, create: &CreateView) {
        self.create("MATERIALIZED VIEW", create.if_not_exists);
        self.qualified_name(&create.name);
        self.push(" AS SELECT ");
        self.selection(&create.selection);
        self.push(" FROM ");
        self.qualified_name(&create.base);
        self.where_clause(&create.filter);
        self.push(" ");
        self.primary_key(&create.primary_key);
        self.table_properties(None, &create.clustering_order, &create.properties);
    }

    fn create_function(&mut self, create: &CreateFunction) {
        self.create(if create.or_replace { "OR REPLACE FUNCTION" } else { "FUNCTION" }, create.if_not_exists);
        self.function_name(&create.name);
        self.bracketed(&create.args, Self::field);
        self.push(if create.called_on_null_input { " CALLED" } else { " RETURNS NULL" });
        self.push(" ON NULL INPUT RETURNS ");
        self.data_type(&create.returns);
        self.push(" LANGUAGE ");
        self.push(&create.language);
        self.push(" AS ");
        self.long_string(&create.body);
    }

    fn create_aggregate(&mut self, create: &CreateAggregate) {
        self.create(
            if create.or_replace { "OR REPLACE AGGREGATE" } else { "AGGREGATE" },
            create.if_not_exists,
        );
        self.function_name(&create.name);
        self.bracketed(&create.args, Self::data_type);
        self.push(" SFUNC ");
        self.bare_function_name(&create.state_function);
        self.push(" STYPE ");
        self.data_type(&create.state_type);
        if let Some(function) = &create.reduce_function {
            self.push(" REDUCEFUNC ");
            self.bare_function_name(function);
        }
        if let Some(function) = &create.final_function {
            self.push(" FINALFUNC ");
            self.bare_function_name(function);
        }
        if let Some(term) = &create.initial_condition {
            self.push(" INITCOND ");
            self.term(term);
        }
    }

    fn signature(&mut self, args: &Option<Vec<DataType>>) {
        if let Some(args) = args {
            self.bracketed(args, Self::data_type);
        }
    }

    fn comment_on(&mut self, comment: &CommentOn) {
        self.push("COMMENT");
        self.description(&comment.subject, comment.comment.as_deref());
    }

    fn security_label(&mut self, label: &SecurityLabel) {
        self.push("SECURITY LABEL");
        if let Some(provider) = &label.provider {
            self.push(" FOR ");
            self.ident(provider);
        }
        self.description(&label.subject, label.label.as_deref());
    }

    fn description(&mut self, subject: &CommentSubject, text: Option<&str>) {
        self.push(" ON ");
        match subject {
            CommentSubject::Keyspace(name) => {
                self.push("KEYSPACE ");
                self.ident(name);
            }
            CommentSubject::Table(name) => {
                self.push("TABLE ");
                self.qualified_name(name);
            }
            CommentSubject::Type(name) => {
                self.push("TYPE ");
                self.type_name(name);
            }
            CommentSubject::Column(element, member) => {
                self.push("COLUMN ");
                self.qualified_name(element);
                self.push(".");
                self.ident(member);
            }
            CommentSubject::Field(element, member) => {
                self.push("FIELD ");
                self.qualified_name(element);
                self.push(".");
                self.ident(member);
            }
        }
        self.push(" IS ");
        match text {
            Some(text) => self.string(text),
            None => self.push("NULL"),
        }
    }

    pub(super) fn describe(&mut self, describe: &Describe) {
        self.push("DESCRIBE ");
        match &describe.target {
            DescribeTarget::Cluster => self.push("CLUSTER"),
            DescribeTarget::Schema { full } => self.push(if *full { "FULL SCHEMA" } else { "SCHEMA" }),
            DescribeTarget::Keyspaces => self.push("KEYSPACES"),
            DescribeTarget::Keyspace { name, only } => {
                self.push_if(*only, "ONLY ");
                self.push("KEYSPACE");
                if let Some(name) = name {
                    self.push(" ");
                    self.ident(name);
                }
            }
            DescribeTarget::Tables => self.push("TABLES"),
            DescribeTarget::Types => self.push("TYPES"),
            DescribeTarget::Functions => self.push("FUNCTIONS"),
            DescribeTarget::Aggregates => self.push("AGGREGATES"),
            DescribeTarget::Table(name) => {
                self.push("TABLE ");
                self.qualified_name(name);
            }
            DescribeTarget::Index(name) => {
                self.push("INDEX ");
                self.qualified_name(name);
            }
            DescribeTarget::View(name) => {
                self.push("MATERIALIZED VIEW ");
                self.qualified_name(name);
            }
            DescribeTarget::Type(name) => {
                self.push("TYPE ");
                self.type_name(name);
            }
            DescribeTarget::Function(name) => {
                self.push("FUNCTION ");
                self.function_name(name);
            }
            DescribeTarget::Aggregate(name) => {
                self.push("AGGREGATE ");
                self.function_name(name);
            }
            DescribeTarget::Named(name) => {
                // Bare keywords would ask for something else.
                if let Some(keyspace) = &name.keyspace {
                    self.unkeyworded_name(keyspace);
                    self.push(".");
                }
                self.unkeyworded_name(&name.name);
            }
        }
        self.push_if(describe.with_internals, " WITH INTERNALS");
        self.push_if(describe.with_passwords, " AND PASSWORDS");
    }
}
