//! UPDATE of the tables that show the node's settings: `system_views.settings` (Cassandra 6) and `system.config` (ScyllaDB). A setting
//! that is live gets its new value on the node that receives it, until that node ends; nothing is stored.

use std::sync::Arc;

use cql::ast::{self, ComparisonOperator, Condition, Operation, Predicate, Target, Update};
use futures_util::future::LocalBoxFuture;
use schema::Table;

use crate::error::{ExecError, Result, invalid};
use crate::expr::resolve::{Markers, Receiver, Resolver};
use crate::expr::{Env, Expr, Value};
use crate::lookup::Lookup;

/// The bytes of a name or a value at most.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Sets one setting of the node, by its name; the error says why not.
pub type SettingChange = Box<dyn Fn(&str, &str) -> LocalBoxFuture<'static, Result<(), String>>>;

/// A prepared UPDATE of a setting.
#[derive(Debug)]
pub struct SettingPlan {
    /// The table that shows it.
    pub table: Arc<Table>,
    pub(crate) name: Expr,
    pub(crate) value: Expr,
}

/// Whether a computed table shows settings.
fn shows_settings(table: &Table) -> bool {
    matches!((&*table.keyspace, &*table.name), ("system_views", "settings") | ("system", "config"))
}

impl SettingPlan {
    /// Resolves an UPDATE of a table that shows settings; none for one of another table.
    ///
    /// # Errors
    /// When it is other than `SET value = … WHERE name = …`.
    pub fn prepare(
        ast: &Update,
        lookup: &Lookup<'_>,
        keyspace: Option<&str>,
        markers: &mut Markers,
    ) -> Result<Option<Self>> {
        let (table, computed) = lookup.table(&ast.table, keyspace)?;
        if !computed || !shows_settings(&table) {
            return Ok(None);
        }
        let full_name = table.full_name();
        if ast.condition != Condition::None {
            return invalid!("Conditional updates are not supported by table {full_name}");
        }
        if !ast.using.is_empty() {
            return invalid!("USING is not supported by table {full_name}");
        }
        let ([assignment], [relation]) = (&*ast.assignments, &*ast.filter) else {
            return invalid!("An UPDATE of {full_name} has the form SET value = … WHERE name = …");
        };
        let mut resolver = Resolver::new(lookup.schema, &table, markers);
        let name = match (&relation.target, &relation.predicate) {
            (Target::Column(column), Predicate::Compare(ComparisonOperator::Equal, term)) => {
                text(&column.name, "name", term, &mut resolver)?
            }
            _ => return invalid!("Settings of {full_name} are found by name = …"),
        };
        let Operation::Set(term) = &assignment.operation else {
            return invalid!("Only values of {full_name} are set, by SET value = …");
        };
        let value = text(&assignment.column.name, "value", term, &mut resolver)?;
        if !markers.take_calls().is_empty() {
            return invalid!("An UPDATE of {full_name} cannot call user-defined functions");
        }
        Ok(Some(Self { table, name, value }))
    }

    /// The name and the value of a request.
    ///
    /// # Errors
    /// When one is null or unset.
    pub(crate) fn evaluate(&self, env: &Env<'_>) -> Result<(String, String)> {
        let text = |expr: &Expr, column: &str| match expr.eval(env)? {
            Value::Set(bytes) if bytes.len() > TEXT_BYTES_MAX => {
                invalid!("The {column} of a setting has {TEXT_BYTES_MAX} bytes at most")
            }
            Value::Set(bytes) => String::from_utf8(bytes.to_vec())
                .map_err(|_| ExecError::invalid(format!("The {column} of a setting is no valid UTF-8"))),
            Value::Null | Value::Unset => invalid!("The {column} of a setting cannot be null or unset"),
        };
        Ok((text(&self.name, "name")?, text(&self.value, "value")?))
    }
}

/// The value of one of the table's two columns that the statement names.
fn text(named: &str, wanted: &str, term: &ast::Term, resolver: &mut Resolver<'_>) -> Result<Expr> {
    let column = resolver.column(named)?;
    if column.name != wanted {
        return invalid!(
            "Column {named} cannot be used here: a setting has its value in value, and is found by name"
        );
    }
    resolver.term(term, &Receiver::column(column))
}
