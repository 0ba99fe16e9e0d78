//! The definitions of computed tables, read from `tables.txt`.

use std::sync::Arc;

use schema::{Keyspace, Replication, Table, TableBuilder, TableId};
use types::CqlType;

const TABLES: &str = include_str!("tables.txt");
/// Tables of these keyspaces that are stored: their rows have to survive a crash and are in no other place.
const KEPT: &[(&str, &str)] = &[
    ("system", "batches"),
    ("system", "built_views"),
    ("system", "paxos"),
    ("system", "view_builds_in_progress"),
];

/// The computed keyspaces with their tables.
pub fn computed_keyspaces() -> Vec<Keyspace> {
    let mut keyspaces: Vec<Keyspace> = Vec::new();
    let mut open: Option<TableBuilder> = None;
    for line in TABLES.lines().filter(|line| !line.starts_with('#')) {
        if let Some(column) = line.strip_prefix("    ") {
            let builder = open.take().expect("columns follow their table");
            open = Some(add_column(builder, column));
            continue;
        }
        close(&mut keyspaces, open.take());
        let (name, comment) = line.split_once(" -- ").unwrap_or((line, ""));
        let (keyspace, table) = name.split_once('.').expect("keyspace and table");
        let mut builder = TableBuilder::new(keyspace, table, table_id(keyspace, table));
        builder.options.comment = comment.to_owned();
        builder.options.gc_grace_seconds = 0;
        open = Some(builder);
    }
    close(&mut keyspaces, open);
    keyspaces
}

fn close(keyspaces: &mut Vec<Keyspace>, open: Option<TableBuilder>) {
    let Some(builder) = open else {
        return;
    };
    let table: Arc<Table> = builder.build_known();
    if keyspaces.last().is_none_or(|keyspace| keyspace.name != table.keyspace) {
        let mut keyspace = Keyspace::new(table.keyspace.clone(), Replication::Local);
        keyspace.system = true;
        keyspace.computed = true;
        let kept = KEPT.iter().filter(|(kept, _)| *kept == table.keyspace);
        keyspace.kept = kept.map(|(_, name)| (*name).to_owned()).collect();
        keyspaces.push(keyspace);
    }
    let keyspace = keyspaces.last_mut().expect("pushed above");
    keyspace.tables.insert(table.name.clone(), table);
}

fn add_column(builder: TableBuilder, line: &str) -> TableBuilder {
    let (line, descending) = line.strip_suffix(" desc").map_or((line, false), |line| (line, true));
    let (name, rest) = line.split_once(' ').expect("a name and a type");
    let (ty, place) = match rest.rsplit_once(' ') {
        Some((ty, place @ ("partition" | "clustering"))) => (ty, place),
        _ => (rest, ""),
    };
    let ty = parse_type(ty);
    match place {
        "partition" => builder.partition_key(name, ty),
        "clustering" => builder.clustering(name, ty, descending),
        _ => builder.regular(name, ty),
    }
}

/// The few forms of types that `tables.txt` uses.
fn parse_type(text: &str) -> CqlType {
    let inner = |prefix: &str| text.strip_prefix(prefix).and_then(|rest| rest.strip_suffix('>'));
    if let Some(inner) = inner("frozen<") {
        return parse_type(inner).freeze();
    }
    if let Some(inner) = inner("list<") {
        return CqlType::list(parse_type(inner), false);
    }
    if let Some(inner) = inner("set<") {
        return CqlType::set(parse_type(inner), false);
    }
    if let Some(inner) = inner("map<") {
        let (key, value) = inner.split_once(", ").expect("two types");
        return CqlType::map(parse_type(key), parse_type(value), false);
    }
    if let Some(inner) = inner("tuple<") {
        return CqlType::tuple(inner.split(", ").map(parse_type));
    }
    CqlType::from_native_name(text).unwrap_or_else(|| panic!("no such type: {text}"))
}

/// An id that every node computes alike.
fn table_id(keyspace: &str, table: &str) -> TableId {
    let [high, low] = stdx::murmur3::hash128(format!("{keyspace}.{table}").as_bytes(), 0);
    let mut id = [0; 16];
    id[..8].copy_from_slice(&high.to_be_bytes());
    id[8..].copy_from_slice(&low.to_be_bytes());
    id[6] = (id[6] & 0x0f) | 0x30;
    id[8] = (id[8] & 0x3f) | 0x80;
    TableId(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_definition_is_valid() {
        let keyspaces = computed_keyspaces();
        let names: Vec<&str> = keyspaces.iter().map(|k| k.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "system",
                "system_auth",
                "system_distributed",
                "system_schema",
                "system_virtual_schema",
                "system_views"
            ]
        );
        let generations = &keyspaces[2].tables["cdc_generation_timestamps"];
        assert!(generations.clustering()[0].descending);
        let local = &keyspaces[0].tables["local"];
        assert_eq!(local.column("tokens").unwrap().ty, CqlType::set(CqlType::Text, false));
        assert_eq!(keyspaces[3].tables["columns"].clustering().len(), 2);
    }
}
