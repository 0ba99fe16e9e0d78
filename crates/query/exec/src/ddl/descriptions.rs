//! COMMENT ON and SECURITY LABEL: descriptions of elements of the schema.

use cluster::SchemaEdit;
use cql::ast::{CommentOn, CommentSubject, Ident, QualifiedName, SecurityLabel};
use schema::{Description, Keyspace, Table, TypeDescription};
use types::UserType;

use super::{DdlContext, Outcome, check_not_system, option_value};
use crate::error::{ExecError, Result, invalid};
use crate::lookup::keyspace_of;
use crate::sink::{ChangeType, SchemaTarget};

/// The longest description, in characters. The comment of a table is an option, and may be as long as one.
const CHARACTERS_MAX: usize = 1024;

/// A comment or a label as a statement gives it.
#[derive(Clone, Copy)]
enum Said<'a> {
    Comment(Option<&'a str>),
    Label(Option<&'a str>),
}

impl Said<'_> {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Comment(text) | Self::Label(text) => *text,
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Comment(_) => "comment",
            Self::Label(_) => "security label",
        }
    }

    /// A description that says it, too.
    fn put(&self, mut description: Description) -> Description {
        let text = self.text().map(str::to_owned);
        match self {
            Self::Comment(_) => description.comment = text,
            Self::Label(_) => description.security_label = text,
        }
        description
    }

    fn check(&self, subject: &CommentSubject) -> Result<()> {
        let Some(text) = self.text() else { return Ok(()) };
        if text.is_empty() {
            return invalid!("Cannot set {} to empty string", self.kind());
        }
        if matches!((self, subject), (Self::Comment(_), CommentSubject::Table(_))) {
            return option_value::check_len(text, "comment");
        }
        let length = text.chars().count();
        match length <= CHARACTERS_MAX {
            true => Ok(()),
            false => invalid!(
                "{} length ({length}) exceeds maximum allowed length ({CHARACTERS_MAX})",
                self.kind()
            ),
        }
    }
}

/// COMMENT ON.
pub(super) fn comment(ast: &CommentOn, context: &DdlContext<'_>) -> Result<Outcome> {
    describe(&ast.subject, Said::Comment(ast.comment.as_deref()), context)
}

/// SECURITY LABEL. A provider has no effect, which a warning reports.
pub(super) fn label(ast: &SecurityLabel, context: &DdlContext<'_>) -> Result<Outcome> {
    let mut outcome = describe(&ast.subject, Said::Label(ast.label.as_deref()), context)?;
    if let Some(provider) = &ast.provider {
        outcome.warnings.push(format!(
            "Provider functionality not implemented. Provider '{}' will not be loaded or invoked.",
            provider.name
        ));
    }
    Ok(outcome)
}

fn describe(subject: &CommentSubject, said: Said<'_>, context: &DdlContext<'_>) -> Result<Outcome> {
    said.check(subject)?;
    match subject {
        CommentSubject::Keyspace(name) => of_keyspace(&name.name, said, context),
        CommentSubject::Table(name) => of_table(name, said, context),
        CommentSubject::Column(name, column) => of_column(name, column, said, context),
        CommentSubject::Type(name) => of_type(name, None, said, context),
        CommentSubject::Field(name, field) => of_type(name, Some(field), said, context),
    }
}

fn home<'a>(name: &str, context: &DdlContext<'a>) -> Result<&'a Keyspace> {
    check_not_system(context, name)?;
    match context.lookup.schema.keyspace(name) {
        Some(keyspace) => Ok(keyspace),
        None => invalid!("Keyspace '{name}' doesn't exist"),
    }
}

fn of_keyspace(name: &str, said: Said<'_>, context: &DdlContext<'_>) -> Result<Outcome> {
    let mut changed = home(name, context)?.settings();
    changed.description = said.put(changed.description);
    let mut outcome = Outcome::new(ChangeType::Updated, name, SchemaTarget::Keyspace);
    outcome.edits.push(SchemaEdit::PutKeyspace(changed));
    Ok(outcome)
}

/// A table that can have a comment or label; derived tables have those of their base.
fn table_of<'a>(name: &QualifiedName, said: Said<'_>, context: &DdlContext<'a>) -> Result<&'a Table> {
    let keyspace = keyspace_of(name, context.keyspace)?;
    let Some(table) = home(keyspace, context)?.tables.get(&name.name) else {
        return invalid!("Table '{keyspace}.{}' doesn't exist", name.name);
    };
    if table.derivation.is_some() {
        return invalid!("Cannot set {} on non-regular table '{keyspace}.{}'", said.kind(), name.name);
    }
    Ok(table)
}

fn put_table(builder: schema::TableBuilder) -> Result<Outcome> {
    let table = builder.build().map_err(|error| ExecError::Invalid(error.to_string()))?;
    let target = SchemaTarget::Table(table.name.clone());
    let mut outcome = Outcome::new(ChangeType::Updated, &table.keyspace, target);
    outcome.edits.push(SchemaEdit::PutTable(table));
    Ok(outcome)
}

fn of_table(name: &QualifiedName, said: Said<'_>, context: &DdlContext<'_>) -> Result<Outcome> {
    let mut builder = table_of(name, said, context)?.to_builder();
    let text = said.text().map(str::to_owned);
    match said {
        Said::Comment(_) => builder.options.comment = text.unwrap_or_default(),
        Said::Label(_) => builder.security_label = text,
    }
    put_table(builder)
}

fn of_column(
    name: &QualifiedName,
    column: &Ident,
    said: Said<'_>,
    context: &DdlContext<'_>,
) -> Result<Outcome> {
    let table = table_of(name, said, context)?;
    let Some(known) = table.column(&column.name) else {
        return invalid!("Column '{}' doesn't exist in table '{}'", column.name, table.full_name());
    };
    let description = said.put(known.description.as_deref().cloned().unwrap_or_default());
    let mut builder = table.to_builder();
    builder.set_description(&column.name, description);
    put_table(builder)
}

/// Of a user type, or of one of its fields.
fn of_type(
    name: &QualifiedName,
    field: Option<&Ident>,
    said: Said<'_>,
    context: &DdlContext<'_>,
) -> Result<Outcome> {
    let keyspace = keyspace_of(name, context.keyspace)?;
    let home = home(keyspace, context)?;
    let Some(ty) = home.types.get(&name.name) else {
        return invalid!("Type '{keyspace}.{}' doesn't exist", name.name);
    };
    let mut changed = home.settings();
    let mut description = changed.type_descriptions.remove(&name.name).unwrap_or_default();
    match field {
        None => description.whole = said.put(description.whole),
        Some(field) if ty.field_index(&field.name).is_none() => {
            return invalid!("Field '{}' doesn't exist in type '{keyspace}.{}'", field.name, name.name);
        }
        Some(field) => {
            let before = description.fields.remove(&field.name).unwrap_or_default();
            put_field(&mut description, field.name.clone(), said.put(before));
        }
    }
    if !description.is_empty() {
        changed.type_descriptions.insert(name.name.clone(), description);
    }
    let mut outcome = Outcome::new(ChangeType::Updated, keyspace, SchemaTarget::Type(name.name.clone()));
    outcome.edits.push(SchemaEdit::PutKeyspace(changed));
    Ok(outcome)
}

fn put_field(description: &mut TypeDescription, field: String, said: Description) {
    if !said.is_empty() {
        description.fields.insert(field, said);
    }
}

/// The edit that moves comments and labels of a type's fields to their new names; none without any.
pub(super) fn renamed(home: &Keyspace, before: &UserType, after: &UserType) -> Option<SchemaEdit> {
    let known = home.type_descriptions.get(&before.name).filter(|known| !known.fields.is_empty())?;
    let mut changed = home.settings();
    let mut description = TypeDescription { whole: known.whole.clone(), fields: Default::default() };
    for ((old, _), (new, _)) in before.fields.iter().zip(&after.fields) {
        if let Some(said) = known.fields.get(old) {
            put_field(&mut description, new.clone(), said.clone());
        }
    }
    if description == *known {
        return None;
    }
    changed.type_descriptions.insert(before.name.clone(), description);
    Some(SchemaEdit::PutKeyspace(changed))
}
