//! UPDATE of tables that are computed. Those that show the node's settings: `system_views.settings` (Cassandra 6) and `system.config` (ScyllaDB). A setting
//! that is live gets its new value on the node that receives it, until that node ends; nothing is stored.
//! And `system_auth.cidr_groups`, whose rows are groups of addresses in the cluster's log; they are deleted, too.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use cql::ast::{self, ComparisonOperator, Condition, Delete, Operation, Predicate, Relation, Target, Update};
use futures_util::future::LocalBoxFuture;
use schema::{Cidr, Table};
use stdx::Reader;

use crate::error::{ExecError, Result, invalid};
use crate::expr::resolve::{Markers, Receiver, Resolver};
use crate::expr::{Env, Expr, Value};
use crate::lookup::Lookup;
use crate::modification::{check_virtual, is_virtual};

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
    /// None for the removal of a group of addresses.
    pub(crate) value: Option<Expr>,
}

/// A change of a computed table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ComputedChange {
    /// A setting of the node: name and value.
    Setting(String, String),
    /// A group of addresses by its name, with its ranges or to be removed.
    CidrGroup(String, Option<BTreeSet<Cidr>>),
}

fn shows_cidr_groups(table: &Table) -> bool {
    (&*table.keyspace, &*table.name) == ("system_auth", "cidr_groups")
}

/// The names of the table's two columns: of the key, and of the value.
fn columns_of(table: &Table) -> (&'static str, &'static str) {
    if shows_cidr_groups(table) { ("cidr_group", "cidrs") } else { ("name", "value") }
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
        if !computed || !(shows_settings(&table) || shows_cidr_groups(&table)) {
            return Ok(None);
        }
        let full_name = table.full_name();
        if is_virtual(&table) {
            check_virtual(&ast.using, ast.condition != Condition::None)?;
        }
        if ast.condition != Condition::None {
            return invalid!("Conditional updates are not supported by table {full_name}");
        }
        if !ast.using.is_empty() {
            return invalid!("USING is not supported by table {full_name}");
        }
        let (key, value) = columns_of(&table);
        let ([assignment], [relation]) = (&*ast.assignments, &*ast.filter) else {
            return invalid!("An UPDATE of {full_name} has the form SET {value} = … WHERE {key} = …");
        };
        let mut resolver = Resolver::new(lookup.schema, &table, markers);
        let name = key_of(relation, key, &full_name, &mut resolver)?;
        let Operation::Set(term) = &assignment.operation else {
            return invalid!("Only values of {full_name} are set, by SET {value} = …");
        };
        let value = Some(given(&assignment.column.name, value, term, &mut resolver)?);
        if !markers.take_calls().is_empty() {
            return invalid!("An UPDATE of {full_name} cannot call user-defined functions");
        }
        Ok(Some(Self { table, name, value }))
    }

    /// Resolves a DELETE of a group of addresses; none for one of another table.
    ///
    /// # Errors
    /// When it is other than `WHERE cidr_group = …`.
    pub fn prepare_delete(
        ast: &Delete,
        lookup: &Lookup<'_>,
        keyspace: Option<&str>,
        markers: &mut Markers,
    ) -> Result<Option<Self>> {
        let (table, computed) = lookup.table(&ast.table, keyspace)?;
        if !computed || !shows_cidr_groups(&table) {
            return Ok(None);
        }
        let (full_name, (key, _)) = (table.full_name(), columns_of(&table));
        let is_plain = ast.targets.is_empty() && ast.using.is_empty() && ast.condition == Condition::None;
        let ([relation], true) = (&*ast.filter, is_plain) else {
            return invalid!("A DELETE of {full_name} has the form WHERE {key} = …");
        };
        let mut resolver = Resolver::new(lookup.schema, &table, markers);
        let name = key_of(relation, key, &full_name, &mut resolver)?;
        if !markers.take_calls().is_empty() {
            return invalid!("A DELETE of {full_name} cannot call user-defined functions");
        }
        Ok(Some(Self { table, name, value: None }))
    }

    /// The change of a request.
    ///
    /// # Errors
    /// When the name or the value is null or unset, or a range of addresses is none.
    pub(crate) fn evaluate(&self, env: &Env<'_>) -> Result<ComputedChange> {
        let Some(value) = &self.value else {
            return Ok(ComputedChange::CidrGroup(self.text(&self.name, "name", env)?, None));
        };
        let name = self.text(&self.name, "name", env)?;
        if !shows_cidr_groups(&self.table) {
            return Ok(ComputedChange::Setting(name, self.text(value, "value", env)?));
        }
        if name.is_empty() {
            return invalid!("Key may not be empty");
        }
        let cidrs = match value.eval(env)? {
            Value::Set(bytes) if bytes.len() > TEXT_BYTES_MAX => {
                return invalid!("The ranges of a CIDR group take {TEXT_BYTES_MAX} bytes at most");
            }
            Value::Set(bytes) => cidrs(&bytes)?,
            Value::Null | Value::Unset => BTreeSet::new(),
        };
        if cidrs.is_empty() {
            return invalid!("A CIDR group has at least one range of addresses; DELETE removes it");
        }
        Ok(ComputedChange::CidrGroup(name, Some(cidrs)))
    }

    fn text(&self, expr: &Expr, column: &str, env: &Env<'_>) -> Result<String> {
        let of = if shows_cidr_groups(&self.table) { "CIDR group" } else { "setting" };
        match expr.eval(env)? {
            Value::Set(bytes) if bytes.len() > TEXT_BYTES_MAX => {
                invalid!("The {column} of a {of} has {TEXT_BYTES_MAX} bytes at most")
            }
            Value::Set(bytes) => String::from_utf8(bytes.to_vec())
                .map_err(|_| ExecError::invalid(format!("The {column} of a {of} is no valid UTF-8"))),
            Value::Null | Value::Unset => invalid!("The {column} of a {of} cannot be null or unset"),
        }
    }
}

/// The ranges of a value of type `frozen<set<frozen<tuple<inet, smallint>>>>`.
fn cidrs(bytes: &[u8]) -> Result<BTreeSet<Cidr>> {
    let bad = || ExecError::invalid("A range of addresses is a pair of an address and a number of bits");
    let mut reader = Reader::new(bytes);
    let count = reader.i32().map_err(|_| bad())?;
    let mut cidrs = BTreeSet::new();
    for _ in 0..count {
        let mut pair = Reader::new(sized(&mut reader).ok_or_else(bad)?);
        let address = match sized(&mut pair).ok_or_else(bad)? {
            bytes if bytes.len() == 4 => IpAddr::from(<[u8; 4]>::try_from(bytes).map_err(|_| bad())?),
            bytes => IpAddr::from(<[u8; 16]>::try_from(bytes).map_err(|_| bad())?),
        };
        let bits = <[u8; 2]>::try_from(sized(&mut pair).ok_or_else(bad)?).map_err(|_| bad())?;
        let bits = i16::from_be_bytes(bits);
        let cidr = u8::try_from(bits).ok().and_then(|bits| Cidr::new(address, bits));
        let wrong =
            || ExecError::invalid(format!("Invalid CIDR {address}/{bits}: the address has not so many bits"));
        cidrs.insert(cidr.ok_or_else(wrong)?);
    }
    Ok(cidrs)
}

/// Bytes behind their number; none for null and where they end early.
fn sized<'b>(reader: &mut Reader<'b>) -> Option<&'b [u8]> {
    let len = usize::try_from(reader.i32().ok()?).ok()?;
    reader.bytes(len).ok()
}

/// The key that a condition gives.
fn key_of(relation: &Relation, key: &str, table: &str, resolver: &mut Resolver<'_>) -> Result<Expr> {
    match (&relation.target, &relation.predicate) {
        (Target::Column(column), Predicate::Compare(ComparisonOperator::Equal, term)) => {
            given(&column.name, key, term, resolver)
        }
        _ => invalid!("Rows of {table} are found by {key} = …"),
    }
}

/// The value of one of the table's two columns that the statement names.
fn given(named: &str, wanted: &str, term: &ast::Term, resolver: &mut Resolver<'_>) -> Result<Expr> {
    let column = resolver.column(named)?;
    if column.name != wanted {
        return invalid!(
            "Column {named} cannot be used here: a row is found by its key, and has its value in the other column"
        );
    }
    resolver.term(term, &Receiver::column(column))
}
