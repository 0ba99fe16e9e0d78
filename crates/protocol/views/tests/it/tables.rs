//! A base table and views of it of all shapes.

use std::sync::Arc;

use schema::{Derivation, HIDDEN, Table, TableBuilder, TableId, ViewCondition, ViewOperator};
use types::CqlType;
use views::View;

/// `p int, c int, a int, b int, m map<int, int>, s int static, PRIMARY KEY (p, c)`
pub fn base() -> Arc<Table> {
    TableBuilder::new("ks", "t", TableId([1; 16]))
        .partition_key("p", CqlType::Int)
        .clustering("c", CqlType::Int, false)
        .static_column("s", CqlType::Int)
        .regular("a", CqlType::Int)
        .regular("b", CqlType::Int)
        .regular("m", CqlType::map(CqlType::Int, CqlType::Int, false))
        .build_known()
}

/// A view of [`base`] with these key columns and shown columns.
fn view_table(
    base: &Table,
    (partition_key, clustering): (&[&str], &[&str]),
    shown: &[&str],
    conditions: &[ViewCondition],
) -> Arc<Table> {
    let ty = |name: &str| base.column(name).expect("a column of the base").ty.clone();
    let mut builder = TableBuilder::new("ks", "v", TableId([2; 16]));
    builder.derivation = Some(Derivation::View {
        base: base.id,
        all_columns: false,
        where_clause: String::new(),
        conditions: conditions.to_vec(),
    });
    for name in partition_key {
        builder = builder.partition_key(*name, ty(name));
    }
    for (at, name) in clustering.iter().enumerate() {
        builder = builder.clustering(*name, ty(name), at % 2 == 1);
    }
    for name in shown {
        builder = builder.regular(*name, ty(name));
    }
    let key = || partition_key.iter().chain(clustering);
    let regular = key().find(|name| !["p", "c"].contains(name)).map(|name| ty(name));
    let shows_all = ["a", "b", "m"].iter().all(|name| shown.contains(name) || key().any(|key| key == name));
    if let Some(hidden) = View::hidden_type(regular.as_ref(), shows_all) {
        builder = builder.regular(HIDDEN, hidden);
    }
    builder.build_known()
}

/// Views of [`base`].
pub fn views(base: &Table) -> Vec<View> {
    let view = |partition_key: &[&str], clustering: &[&str], shown: &[&str], conditions: &[_]| {
        let table = view_table(base, (partition_key, clustering), shown, conditions);
        View::new(base, table).expect("a view of the base")
    };
    let condition = |column: &str, operator, values: &[i32]| ViewCondition {
        column: column.to_owned(),
        operator,
        values: values.iter().map(|value| value.to_be_bytes().to_vec()).collect(),
    };
    vec![
        view(&["c"], &["p"], &["a", "b", "m"], &[]),
        view(&["c"], &["p"], &["b"], &[]),
        view(&["p"], &["c"], &[], &[condition("c", ViewOperator::In, &[0, 2])]),
        view(&["a"], &["p", "c"], &["b", "m"], &[]),
        view(&["c", "a"], &["p"], &[], &[]),
        view(&["p"], &["a", "c"], &["m"], &[condition("a", ViewOperator::GreaterOrEqual, &[1])]),
    ]
}
